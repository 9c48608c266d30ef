"""The answer reader: what a free reply to a question says, by rules in a file, and how often that is wrong."""
