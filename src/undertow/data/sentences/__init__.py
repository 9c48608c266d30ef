"""Sentences with a blank: the package's own, published ones, or a user's table."""
