"""Causal graphs and structural causal models of selection bias."""
