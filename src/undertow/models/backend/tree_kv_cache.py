"""Keys and values of a growing tree of tokens: each is fed once, and seen by its descendants only.

fed      the cats sat | on  by | mats       column   0   1   2   3  4   5
                sat → on, by; on → mats     mats sees 0, 1, 2, 3, 5 at depths 0, 1, 2, 3, 4
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.models.base import PrefixTree

if TYPE_CHECKING:
    import torch


def ancestor_mask(ends: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
    """Which nodes of a tree in depth-first order some of them see: their ancestors and themselves [some, node].

    Args:
        ends: one past the subtree below each node, as in `undertow.models.base.PackedTree` [node].
        nodes: by their numbers [some].
    """
    import torch

    node = torch.arange(len(ends), device=ends.device)
    return (node[None, :] <= nodes[:, None]) & (nodes[:, None] < ends[None, :])


class TreeKVCache:
    """The cache of one network.

    Attributes:
        network: a causal one whose attention takes a mask of four dimensions.
        n_columns: tokens fed so far.
        path: tokens of the first columns where these are one path from the root, as `keep_path` left them.
    """

    def __init__(self, network: Any) -> None:
        from transformers import DynamicCache

        self.network = network
        self.n_columns = 0
        self.path: tuple[int, ...] = ()
        self._cache = DynamicCache()

    def feed(self, tokens: torch.Tensor, depths: torch.Tensor, sees: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Logits after some of the new tokens, in float32 [row, vocabulary].

        Args:
            tokens: new ones [new].
            depths: how many stand before each on its path [new].
            sees: which columns each sees, the new ones and itself among them [new, column].
            rows: which of the new tokens are read [row].
        """
        import torch

        mask = torch.zeros(sees.shape, dtype=self.network.dtype, device=sees.device)
        mask.masked_fill_(~sees, torch.finfo(mask.dtype).min)
        out = self.network(
            input_ids=tokens[None],
            position_ids=depths[None],
            attention_mask=mask[None, None],
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=rows,
        )
        self.n_columns += len(tokens)
        logits: torch.Tensor = out.logits[0].float()
        return logits

    def feed_branches(
        self, branches: PrefixTree, n_known: int, nodes: torch.Tensor, at_once: int
    ) -> list[torch.Tensor]:
        """Feed a tree whose first nodes are the columns that are here already; logits after some of its nodes, in pieces.

        Args:
            branches: the tree; its nodes become the columns, in its order.
            n_known: nodes that were fed before.
            nodes: which are read, in ascending order, none of those known [read].
            at_once: tokens of one forward pass, at most.
        """
        import torch

        device = nodes.device
        tokens, depths, ends = (
            torch.from_numpy(one).to(device) for one in (branches.tokens, branches.depths, branches.ends)
        )
        parts = []
        for start in range(n_known, len(tokens), at_once):
            stop = min(start + at_once, len(tokens))
            sees = ancestor_mask(ends[:stop], torch.arange(start, stop, device=device))
            positions = nodes[(nodes >= start) & (nodes < stop)] - start
            # A network that is asked for no logits gives all of them.
            rows = positions if len(positions) else torch.zeros(1, dtype=torch.int64, device=device)
            logits = self.feed(tokens[start:stop], depths[start:stop], sees, rows)
            if len(positions):
                parts.append(logits)
        return parts

    def keep_path(self, path: tuple[int, ...], columns: torch.Tensor) -> None:
        """Forget all but the columns of one path from the root, in its order [token]."""
        for layer in self._cache.layers:
            if layer.keys is not None and layer.keys.numel():
                layer.keys, layer.values = layer.keys[:, :, columns], layer.values[:, :, columns]
        self.n_columns, self.path = len(columns), path
