"""Biased and unbiased documents, task wordings and few-shot examples."""
