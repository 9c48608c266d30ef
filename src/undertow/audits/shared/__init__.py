"""Code that several audits share."""
