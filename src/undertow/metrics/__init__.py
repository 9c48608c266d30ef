"""What the scores mean: one file per measure, built on `undertow.stats`."""
