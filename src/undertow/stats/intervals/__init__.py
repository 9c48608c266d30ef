"""Confidence intervals, clustered and crossed."""
