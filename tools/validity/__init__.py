"""Simulated audits behind docs/validity.md."""
