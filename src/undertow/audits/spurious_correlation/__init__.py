"""Audit whether the answer to an underspecified sentence drifts with a covariate."""
