"""Measures of the four tasks of bias in text."""
