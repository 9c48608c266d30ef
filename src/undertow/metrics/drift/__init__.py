"""Association of answers with a covariate W: slopes, effects, interactions, and differences between models."""
