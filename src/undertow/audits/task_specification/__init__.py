"""Audit whether a sentence is specified, judged by how far its answers move with a covariate."""
