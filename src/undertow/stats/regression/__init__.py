"""Regression: least squares, logistic, trends and power analysis."""
