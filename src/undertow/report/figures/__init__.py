"""Figures of the report, one module per kind of plot."""
