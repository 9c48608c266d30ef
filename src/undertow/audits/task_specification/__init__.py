"""Audit whether a sentence determines its blank, by the movement of the answers with a covariate."""
