"""Figures, and one self-contained HTML page.

Importing this package does not import matplotlib; the modules that draw do.
"""

from undertow.report.page import render_page
from undertow.report.page_data import Page, PageFigure

__all__ = ["Page", "PageFigure", "render_page"]
