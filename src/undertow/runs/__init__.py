"""Audits as runs: configuration, pipeline, run folder, scoring, comparison and gates."""
