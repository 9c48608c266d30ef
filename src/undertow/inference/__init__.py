"""HOW probabilities are got: the plan, the asking, the store. Knows no model family and no challenge."""
