"""One module per model family, found by listing this folder."""
