"""Figures, and one self-contained HTML page.

Importing this package does not import matplotlib; the modules that draw do.
"""

from undertow.report.model import Page, PageFigure
from undertow.report.page import render_page

__all__ = ["Page", "PageFigure", "render_page"]
