"""Find, check, download and load model weights."""
