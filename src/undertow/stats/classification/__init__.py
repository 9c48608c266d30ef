"""Agreement with gold labels, and ROC analysis."""
