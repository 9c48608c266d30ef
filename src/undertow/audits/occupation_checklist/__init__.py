"""Audit whether attributes granted to two people decide whom a model prefers for a job."""
