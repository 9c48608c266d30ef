from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from helpers.answering import opened
from undertow.errors import UndertowError
from undertow.models.backend import tree_attention
from undertow.models.backend.tree_attention import KEYWORD, AttentionBlocks, ancestor_mask
from undertow.models.base import OutOfMemoryError, PackedTree, PrefixTree
from undertow.models.families import causal

TOLERANCE = 1e-5


def grown(seed: int, n_paths: int, longest: int) -> PrefixTree:
    """A tree of random texts over few words, so that many beginnings are shared."""
    rng = np.random.default_rng(seed)
    return PrefixTree.from_paths(
        [
            tuple(rng.integers(5, 5 + rng.integers(2, 9), size=rng.integers(1, longest + 1)).tolist())
            for _ in range(n_paths)
        ]
    )


def test_a_small_tree_is_left_whole() -> None:
    assert AttentionBlocks.from_subtree_ends(grown(0, 3, 4).ends, torch.float32, "cpu") is None


HEADS = [(4, 4, 8), (9, 3, 16), (6, 1, 8)]
SHAPES = [(5, 150, 9), (1, 200, 12), (0, 60, 6), (2, 20, 200), (3, 900, 3), (4, 1, 300)]


@pytest.mark.parametrize(
    ("heads", "shape", "scaling"), [(HEADS[at % 3], shape, (None, 0.3)[at % 2]) for at, shape in enumerate(SHAPES)]
)
def test_both_ways_to_attend_in_blocks_are_attention_over_the_whole(
    heads: tuple[int, int, int], shape: tuple[int, int, int], scaling: float | None
) -> None:
    (n_heads, n_keys, dim), ends = heads, grown(*shape).ends
    blocks = AttentionBlocks.from_subtree_ends(ends, torch.float32, "cpu")
    assert blocks is not None
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, n, len(ends), dim) for n in (n_heads, n_keys, n_keys))
    whole = ancestor_mask(torch.from_numpy(ends), torch.arange(len(ends)))
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=whole, scale=scaling, enable_gqa=True
    ).transpose(1, 2)
    here = tree_attention._by_products(blocks, query, key, value, scaling)
    module = type("Layer", (), {"num_key_value_groups": n_heads // n_keys, "is_causal": True})()
    there = tree_attention._by_kernel(blocks, module, (query, key, value), {"scaling": scaling})
    assert (here - expected).abs().max() < TOLERANCE
    assert (there - expected).abs().max() < TOLERANCE


def tree_of(branches: PrefixTree) -> PackedTree:
    nodes = np.arange(len(branches.tokens))
    return PackedTree(branches.tokens, branches.depths, branches.ends, nodes, np.roll(branches.tokens, 1))


@pytest.mark.parametrize(
    ("builder", "dtype"), [("tiny_llama", "float32"), ("tiny_llama", "bfloat16"), ("tiny_gpt2", "float32")]
)
def test_a_network_reads_in_blocks_what_it_reads_whole(builder: str, dtype: str, network: Callable[[str], str]) -> None:
    model = opened(causal, network(builder), dtype)
    assert model.in_blocks
    assert not opened(causal, network("tiny_gpt_neo")).in_blocks  # which attends by code of its own
    tree = tree_of(grown(6, 300, 8))
    found = model.read_tree(tree)
    model.in_blocks = False
    assert found == pytest.approx(model.read_tree(tree), abs=1e-4 if dtype == "float32" else 0.1)


def test_a_network_that_does_not_hand_blocks_on_is_read_by_the_mask(network: Callable[[str], str]) -> None:
    model = opened(causal, network("tiny_llama"))
    tree = tree_of(grown(7, 300, 8))
    expected = model.read_tree(tree)
    body, forward = model.network.base_model, model.network.base_model.forward
    body.forward = lambda **inputs: forward(**{name: given for name, given in inputs.items() if name != KEYWORD})
    again = causal.CausalModel.from_network(model.network, model.tokenizer, model.identity)
    assert not again.in_blocks
    assert again.limits.tree_depth == model.limits.tree_depth
    assert again.read_tree(tree) == pytest.approx(expected, abs=1e-4)


def test_an_attention_that_is_told_more_than_it_knows_leaves_it_to_transformers() -> None:
    ends = grown(8, 150, 6).ends
    blocks = AttentionBlocks.from_subtree_ends(ends, torch.float32, "cpu")
    query = key = value = torch.randn(1, 2, len(ends), 8)
    module = type("Layer", (), {"is_causal": True})()
    bias = torch.randn(1, 2, len(ends), len(ends))
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
    found, _ = tree_attention._attention(
        module, query, key, value, torch.zeros_like(bias), tree_blocks=blocks, position_bias=bias
    )
    assert (found - expected.transpose(1, 2)).abs().max() < TOLERANCE


def test_a_pass_that_has_no_room_when_the_model_is_opened_makes_narrower_ones(
    network: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_tree, budget = causal.CausalModel.read_tree, 500

    def with_room(self: causal.CausalModel, tree: PackedTree) -> Any:
        if len(tree.tokens) > budget:
            raise OutOfMemoryError("memory ran out")
        return read_tree(self, tree)

    monkeypatch.setattr(causal.CausalModel, "read_tree", with_room)
    model = opened(causal, network("tiny_llama"))
    assert model.in_blocks
    assert model.limits.budget_tokens == max(causal.BLOCK_BUDGET_TOKENS // 4, causal.CPU_BUDGET_TOKENS)
    budget = 0
    with pytest.raises(UndertowError, match="memory ran out"):
        causal.CausalModel.from_network(model.network, model.tokenizer, model.identity)
