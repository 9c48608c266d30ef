"""The answer reader: parses free replies by rules in a file, with known error rates."""
