"""Permutation tests and correction for multiple tests."""
