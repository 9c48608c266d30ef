"""Simulated audits behind docs/development/validity-tables.md."""
