"""Text to tokens: fill spans, option tokens, chat templates, windows of long passages."""
