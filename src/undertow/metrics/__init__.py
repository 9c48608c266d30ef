"""What the scores mean: one file per measure, built on `undertow.stats`.

This room knows nothing about models, how scores were got, or how they are told.
"""
