"""Challenge files and sets, and where sentences come from."""
