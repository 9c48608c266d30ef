"""The run folder: manifest, observations and results on disk."""
