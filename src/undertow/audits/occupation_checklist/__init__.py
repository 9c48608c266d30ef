"""Audit whether the attributes granted to two people determine whom a model prefers for a job."""
