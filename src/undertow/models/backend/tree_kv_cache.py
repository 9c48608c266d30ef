"""KV cache of a growing token tree: each token is fed once and seen by its descendants only.

fed      the cats sat | on  by | mats       column   0   1   2   3  4   5
                sat → on, by; on → mats     mats sees 0, 1, 2, 3, 5 at depths 0, 1, 2, 3, 4
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.models.backend.device import to_device
from undertow.models.base import Ints, PrefixTree

if TYPE_CHECKING:
    import torch


class TreeKVCache:
    """The KV cache of one network.

    Attributes:
        network: a causal network that accepts a four-dimensional mask.
        n_columns: tokens fed so far.
        path: tokens of the first columns after `keep_path`, one path from the root.
    """

    def __init__(self, network: Any) -> None:
        from transformers import DynamicCache

        self.network = network
        self.n_columns = 0
        self.path: tuple[int, ...] = ()
        self._cache = DynamicCache()

    def feed(self, tokens: Ints, depths: Ints, sees: torch.Tensor, rows: Ints) -> torch.Tensor:
        """Feed new tokens; logits after some of them, in float32 [row, vocabulary].

        Args:
            tokens: new tokens [new].
            depths: depth of each on its path [new].
            sees: columns that each sees, new ones included [new, column].
            rows: new tokens whose logits are returned [row].
        """
        import torch

        device = self.network.device
        mask = torch.zeros(sees.shape, dtype=self.network.dtype, device=device)
        mask.masked_fill_(~sees, torch.finfo(mask.dtype).min)
        out = self.network(
            input_ids=to_device(tokens, device)[None],
            position_ids=to_device(depths, device)[None],
            attention_mask=mask[None, None],
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=to_device(rows, device),
        )
        self.n_columns += len(tokens)
        logits: torch.Tensor = out.logits[0].float()
        return logits

    def feed_branches(self, tree: PrefixTree, n_known: int, nodes: Ints, at_once: int) -> list[torch.Tensor]:
        """Feed a tree whose first nodes are cached already; logits after some of its nodes, in slices.

        Args:
            tree: its nodes become the columns, in order.
            n_known: number of cached nodes.
            nodes: new nodes whose logits are returned, in ascending order [read].
            at_once: maximum tokens of one forward pass.
        """
        import torch

        ends = to_device(tree.ends, self.network.device)
        parts = []
        for start in range(n_known, len(tree.tokens), at_once):
            stop = min(start + at_once, len(tree.tokens))
            sees = ancestor_mask(ends[:stop], torch.arange(start, stop, device=ends.device))
            positions = nodes[(nodes >= start) & (nodes < stop)] - start
            # `logits_to_keep` of length 0 would mean all logits.
            rows = positions if len(positions) else np.zeros(1, dtype=np.int64)
            logits = self.feed(tree.tokens[start:stop], tree.depths[start:stop], sees, rows)
            if len(positions):
                parts.append(logits)
        return parts

    def keep_path(self, path: tuple[int, ...], columns: Any) -> None:
        """Drop all columns but those of one path from the root, in its order [token]."""
        import torch

        kept = torch.as_tensor(columns, dtype=torch.int64, device=self.network.device)
        for layer in self._cache.layers:
            if layer.keys is not None and layer.keys.numel():
                layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]
        self.n_columns, self.path = len(kept), path


def ancestor_mask(ends: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
    """Attention mask of some nodes: each sees its ancestors and itself [query, node].

    Args:
        ends: one past the subtree below each node, as in `undertow.models.base.PackedTree` [node].
        nodes: indices of the query nodes [query].
    """
    import torch

    node = torch.arange(len(ends), device=ends.device)
    return (node[None, :] <= nodes[:, None]) & (nodes[:, None] < ends[None, :])
