"""Answers that other tools got, brought into the form that a probe measures: logs of lm-evaluation-harness, tables of anyone."""
