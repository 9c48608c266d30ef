"""Occupations, their attributes, pairs of names and the questions of the checklist."""
