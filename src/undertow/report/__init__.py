"""HOW it is told: figures, and one HTML page that needs nothing but itself.

Knows the nouns of `undertow.types` and how to lay them out; knows nothing about models, scoring or how a number
was got. Importing this package loads no matplotlib: `drawing` and `spectrum` do, when they are imported.
"""

from undertow.report.page import Page, PageFigure, render_page

__all__ = ["Page", "PageFigure", "render_page"]
