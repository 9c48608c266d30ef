"""Attention over trees of tokens: in blocks over a packed tree, without quadratic cost, and over a KV cache that grows.

Neighbours in depth-first order share most ancestors. So the nodes are cut into blocks of equal width, and a block attends to the
columns that any of its nodes sees: the ancestors of its first node, and the block itself.

    node      0   1   2    3  | 4     5    6   7       block 0: nodes 0-3, columns 0 1 2 3
              In  X   she  was| is    he   was a       block 1: nodes 4-7, columns 0 1 2 + 4 5 6 7
                                                                  (3 is no ancestor of 4, nor of what follows)

A pack of n tokens at depth d costs n x (width + d) instead of n x n. Networks of transformers look up their
attention function by name and pass it the keywords of `forward`; the function registered here uses blocks if it gets them, else
torch's attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.models.backend.execution import to_device
from undertow.models.base import Ints

if TYPE_CHECKING:
    import torch

NAME = "undertow_tree"
KEYWORD = "tree_blocks"
"""Keyword of `forward` that carries the blocks."""
MIN_BLOCK, MAX_BLOCK = 16, 128
"""Limits of a block's width; narrower blocks copy more keys than they save."""
PLAIN = {"dropout", "scaling", "is_causal", "sliding_window", "output_attentions", "position_ids", "use_cache"}
"""Keywords of plain attention; with any other, torch's attention is used."""


@dataclass(slots=True)
class AttentionBlocks:
    """The attention mask of a tree, cut into blocks.

    Attributes:
        columns: nodes that the block sees, padded [block x column].
        mask: 0 where a node sees a column, else the smallest float [block, node, column].
        n_nodes: number of nodes of the tree; the last block is padded.
    """

    columns: torch.Tensor
    mask: torch.Tensor
    n_nodes: int
    _by_heads: tuple[tuple[int, int], torch.Tensor] | None = None

    @classmethod
    def from_subtree_ends(cls, ends: Ints, dtype: torch.dtype, device: Any) -> AttentionBlocks | None:
        """Cut a tree into blocks; None if two blocks would hold it. `ends` are as in `undertow.models.base.PackedTree` [node]."""
        import torch

        # About as wide as the tree is deep, which balances both costs.
        changes = np.zeros(len(ends) + 1, dtype=np.int64)
        np.add.at(changes, ends, -1)
        changes[: len(ends)] += 1
        deepest = int(np.cumsum(changes).max())
        width = int(min(MAX_BLOCK, max(MIN_BLOCK, 2 ** int(np.ceil(np.log2(deepest))))))
        if len(ends) <= 2 * width:
            return None
        columns, sees = _cut(ends, width)
        mask = torch.zeros(sees.shape, dtype=dtype).masked_fill_(~torch.from_numpy(sees), torch.finfo(dtype).min)
        return cls(torch.from_numpy(columns.ravel()).to(device), mask.to(device), len(ends))

    def split_queries(self, heads: torch.Tensor) -> torch.Tensor:
        """Queries of each block: [1, head, node, dim] as [block, node, head, dim]."""
        import torch

        n_blocks, width, _ = self.mask.shape
        filled = torch.nn.functional.pad(heads[0].transpose(0, 1), (0, 0, 0, 0, 0, n_blocks * width - self.n_nodes))
        return filled.view(n_blocks, width, *filled.shape[1:])

    def gather_keys(self, heads: torch.Tensor) -> torch.Tensor:
        """Keys or values that each block sees: [1, head, node, dim] as [block, column, head, dim]."""
        return heads[0].transpose(0, 1)[self.columns].view(len(self.mask), -1, heads.shape[1], heads.shape[3])

    def merge(self, outputs: torch.Tensor) -> torch.Tensor:
        """Outputs of all blocks by node: [block, node, head, dim] as [1, node, head, dim]."""
        return outputs.flatten(0, 1)[: self.n_nodes][None]

    def mask_by_heads(self, n_keys: int, n_each: int) -> torch.Tensor:
        """The mask for grouped-query products [block x key head, query head x node, column]."""
        if self._by_heads is None or self._by_heads[0] != (n_keys, n_each):
            repeated = self.mask[:, None, None].expand(-1, n_keys, n_each, -1, -1)
            self._by_heads = (n_keys, n_each), repeated.reshape(len(self.mask) * n_keys, -1, self.mask.shape[-1])
        return self._by_heads[1]


def _cut(ends: Ints, width: int) -> tuple[Ints, Any]:
    """Columns of each block [block, column], and which of them its nodes see [block, node, column]."""
    starts = range(0, len(ends), width)
    ancestors = [np.flatnonzero(ends[:start] > start) for start in starts]
    above = max(map(len, ancestors))
    columns = np.zeros((len(starts), above + width), dtype=np.int64)
    sees = np.zeros((len(starts), width, above + width), dtype=bool)
    for block, (start, known) in enumerate(zip(starts, ancestors, strict=True)):
        nodes = np.arange(start, min(start + width, len(ends)))
        visible = np.concatenate([known, nodes])
        places = np.concatenate([np.arange(len(known)), above + np.arange(len(nodes))])
        columns[block, places] = visible
        sees[block, : len(nodes), places] = ((visible <= nodes[:, None]) & (nodes[:, None] < ends[visible])).T
    return columns, sees


def attend_in_blocks(network: Any) -> bool:
    """Make a network accept blocks; returns whether it looks up its attention by name.

    Networks that do not use torch's attention, for example to cap scores, are left as they are.
    """
    if getattr(network.config, "_attn_implementation", "") not in ("sdpa", NAME):
        return False
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    network.set_attn_implementation(NAME)
    return bool(network.config._attn_implementation == NAME)


def _attention(  # noqa: PLR0913, PLR0917 - as transformers calls it
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    tree_blocks: AttentionBlocks | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Block attention if there are blocks, else torch's attention as transformers calls it.

    Queries are [batch, head, node, dim]; keys and values too, maybe with fewer heads. `more` holds all other keywords.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    fits = tree_blocks is not None and query.shape[::2] == key.shape[::2] == (1, tree_blocks.n_nodes)
    plain = all(name in PLAIN or argument is None for name, argument in more.items())
    if tree_blocks is None or not fits or not plain:
        output: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **more)
        return output
    if query.device.type == "cpu":
        return _by_products(tree_blocks, query, key, value, more.get("scaling")), None
    return _by_kernel(tree_blocks, module, (query, key, value), more), None


def _by_kernel(
    blocks: AttentionBlocks, module: Any, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor], more: dict[str, Any]
) -> torch.Tensor:
    """Attention on a GPU by torch's kernels, blocks as a batch [1, node, head, dim]."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    query, key, value = inputs
    keys, values = (blocks.gather_keys(one).transpose(1, 2) for one in (key, value))
    queries = blocks.split_queries(query).transpose(1, 2)
    output, _ = sdpa_attention_forward(module, queries, keys, values, blocks.mask[:, None], **more)
    return blocks.merge(output)


def _by_products(
    blocks: AttentionBlocks, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    """Attention on a CPU by matrix products, twice as fast as torch's kernel for small blocks [1, node, head, dim]."""
    import torch

    n_keys, n_each = key.shape[1], query.shape[1] // key.shape[1]
    queries = blocks.split_queries(query)
    queries = queries.view(*queries.shape[:2], n_keys, n_each, -1)  # [block, node, key head, query head, dim]
    queries = queries.permute(0, 2, 3, 1, 4).flatten(2, 3).flatten(0, 1)
    keys, values = (blocks.gather_keys(one).transpose(1, 2).flatten(0, 1) for one in (key, value))
    scores = torch.baddbmm(
        blocks.mask_by_heads(n_keys, n_each),
        queries,
        keys.mT,
        alpha=query.shape[-1] ** -0.5 if scaling is None else scaling,
    )
    # Softmax in float32, whatever the precision of the products.
    output = torch.bmm(scores.softmax(-1, dtype=torch.float32).to(values.dtype), values)
    output = output.view(len(blocks.mask), n_keys, n_each, -1, output.shape[-1])
    return blocks.merge(output.permute(0, 3, 1, 2, 4).flatten(2, 3))


class TreeKVCache:
    """KV cache of a growing token tree: each token is fed once and seen by its descendants only.

    fed      the cats sat | on  by | mats       column   0   1   2   3  4   5
                    sat → on, by; on → mats     mats sees 0, 1, 2, 3, 5 at depths 0, 1, 2, 3, 4

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

    `ends` are those of an `undertow.models.base.PackedTree` [node], and `nodes` the indices of the query nodes [query].
    """
    import torch

    node = torch.arange(len(ends), device=ends.device)
    return (node[None, :] <= nodes[:, None]) & (nodes[:, None] < ends[None, :])
