"""Inference: planner, runner, answer cache and engines."""
