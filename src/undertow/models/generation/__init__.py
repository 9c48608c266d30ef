"""Decoding: greedy and constrained generation, prompts, constraints, per-step probabilities."""
