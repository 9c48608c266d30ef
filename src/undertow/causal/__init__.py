"""Where a bias would come from: causal graphs, structural models of them, and texts about people drawn from those."""
