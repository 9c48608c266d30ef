"""Metrics of the occupation checklist."""
