"""Models with a planted bias: a plan is built, and the models are audited, to verify that audits measure what was planted."""
