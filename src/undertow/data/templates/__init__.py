"""Challenge sets: templates, word groups and covariates."""
