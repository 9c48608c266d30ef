"""Templates and covariates."""
