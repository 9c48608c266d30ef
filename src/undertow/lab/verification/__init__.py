"""Does the instrument recover a planted bias: metrics, figures and report."""
