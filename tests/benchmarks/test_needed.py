"""Needed work against counts by hand, the machine's limit, and the share of it."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again where they are asked for
from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stand_ins import InThisProcess, Script, asked, command, script

from tiny import saved, tiny_gpt2, tiny_llama

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

import bench
import needed
import peak
import share
import work
from needed import Needed, Shape, counted
from rows import ROWS
from undertow.models.base import Encoded, TokenPath
from undertow.types import Blank, Option, UndertowError
from worker import Loaded, Order

LAYERS = ((32, 32), (32, 16), (32, 16), (32, 32), (32, 64), (32, 64), (64, 32))
LLAMA_WEIGHTS = 1024 + 512 + 512 + 1024 + 3 * 2048
"""Of one layer of the tiny llama: queries and output 32 x 32, keys and values 32 x 16, three of 32 x 64."""

LLAMA_AT_READS = LLAMA_WEIGHTS - 2 * 512
"""Of the last layer, all but keys and values."""

#   query 0   1 2 3   and 1 2 4,  each read after its second and third token
#   query 1   1 5                 read after its second token, and at the same place for another token
TREE = [
    Encoded((TokenPath((1, 2, 3), ((1, 3), (2, 9))), TokenPath((1, 2, 4), ((1, 4), (2, 9))))),
    Encoded((TokenPath((1, 5), ((1, 7),)), TokenPath((1, 5), ((1, 8),)))),
]
MASKED = [
    Encoded((TokenPath((1, 2, 3), ((1, 3),)), TokenPath((1, 2, 3), ((1, 4),))), sees_all=True),
    Encoded((TokenPath((1, 2, 4), ((1, 3), (2, 3))),), sees_all=True),
    Encoded((TokenPath((1, 2, 4, 4), ((0, 3),)),), sees_all=True),
]


def test_a_tree_needs_each_beginning_once_and_each_place_once() -> None:
    # Nodes 1, 12, 123, 124, 15 at depths 0, 1, 2, 2, 1; read are 12, 123, 124 and 15.
    assert counted(TREE, n_fed=8) == Needed(
        n_tokens=5, n_fed=8, n_seen=1 + 2 + 3 + 3 + 2, n_reads=4, n_seen_by_reads=2 + 3 + 3 + 2
    )


def test_masked_texts_need_every_token_of_every_distinct_text() -> None:
    # 123 once, 124, 1244; every token sees its whole text; read are places 123:1, 124:1, 124:2, 1244:0.
    expected = Needed(n_tokens=10, n_fed=10, n_seen=9 + 9 + 16, n_reads=4, n_seen_by_reads=3 + 3 + 3 + 4)
    assert counted(MASKED, n_fed=10) == expected


def test_work_in_operations_is_that_of_layers_attention_and_head() -> None:
    shape = Shape(LAYERS * 2, ((32, 320),), n_layers=2, width=32, weights_bytes=0, at_reads=LLAMA_AT_READS)
    of = counted(TREE, n_fed=5).in_flop(shape)
    # Five tokens through the first layer and the last one's keys and values (32 x 16 each); the four that are read through the rest.
    assert of.layers_flop == 2 * (5 * LLAMA_WEIGHTS + 5 * 2 * 512 + 4 * (2 * 1024 + 3 * 2048))
    # A query times a key, and a share times a value: 32 multiply-adds each, for 11 pairs in the first layer; in the last for 10,
    # since the first token, which sees itself alone, is not read.
    assert of.attention_flop == 2 * (11 + 10) * (32 + 32)
    assert of.head_flop == 2 * 4 * 32 * 320
    assert of.flop == of.layers_flop + of.attention_flop + of.head_flop
    assert of.told()["flop"] == of.flop


@pytest.mark.parametrize("layout", ["as loaded", "packed"])
def test_the_shape_is_the_networks_whatever_the_engine_made_of_its_weights(layout: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the model extra is not installed")
    network = tiny_llama()
    if layout == "packed":
        network = InThisProcess(Order("undertow", "likelihood", saved(tmp_path, network), 1)).loaded.model.network
    shape = Shape.of(network)
    assert shape.body == LAYERS * 2
    assert shape.head == ((32, 320),)
    assert (shape.n_layers, shape.width) == (2, 32)
    assert shape.at_reads == LLAMA_AT_READS
    norms = 5 * 32
    assert shape.weights_bytes == 4 * (2 * LLAMA_WEIGHTS + norms + 2 * 320 * 32)


def test_turned_layers_and_a_head_that_is_the_embedding_are_counted_once() -> None:
    pytest.importorskip("torch", reason="the model extra is not installed")
    network = tiny_gpt2()
    shape = Shape.of(network)
    assert shape.body == ((32, 96), (32, 32), (32, 128), (128, 32)) * 2
    assert shape.head == ((32, 320),)
    assert (
        shape.at_reads == 32 * 32 + 32 * 32 + 2 * 32 * 128
    )  # a third of the layer that makes queries, keys and values
    assert shape.weights_bytes == 4 * sum(one.numel() for one in network.parameters())


def test_a_masked_head_has_a_layer_of_its_own() -> None:
    transformers = pytest.importorskip("transformers", reason="the model extra is not installed")
    config = transformers.BertConfig(
        vocab_size=320, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    shape = Shape.of(transformers.BertForMaskedLM(config))
    assert shape.body == ((32, 32),) * 4 + ((32, 64), (64, 32))
    assert shape.head == ((32, 32), (32, 320))
    assert shape.at_reads == 2 * 32 * 32 + 2 * 32 * 64


def test_keys_and_values_are_found_by_their_names_in_the_last_layer_alone() -> None:
    torch = pytest.importorskip("torch", reason="the model extra is not installed")

    def layer(**sides: tuple[int, int]) -> Any:
        return torch.nn.ModuleDict({name: torch.nn.Linear(*two) for name, two in sides.items()})

    body = torch.nn.ModuleDict(
        {
            "first": torch.nn.Linear(8, 8),
            "layers": torch.nn.ModuleList([layer(k_proj=(8, 8)), layer(qkv_proj=(8, 16), o_proj=(8, 8))]),
        }
    )
    last = needed._last_layer(body, 2)
    assert last == {"layers.1.qkv_proj": (8, 16), "layers.1.o_proj": (8, 8)}
    assert needed._at_reads(last, width=8) == 8 * 8 + 8 * 8  # eight of the sixteen outputs are queries
    apart = {"0.query": (8, 8), "0.key": (8, 4), "0.value": (8, 4), "0.dense": (8, 8)}
    assert needed._at_reads(apart, width=8) == 8 * 8 + 8 * 8
    with pytest.raises(UndertowError, match=r"linear layers: o_proj\)"):
        needed._at_reads({"layers.1.o_proj": (8, 8)}, width=8)
    with pytest.raises(UndertowError, match="linear layers: none"):
        needed._at_reads(needed._last_layer(body, 3), width=8)


def test_what_items_need_is_counted_over_all_of_them(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the model extra is not installed")
    loaded = InThisProcess(Order("undertow", "likelihood", saved(tmp_path, tiny_llama()), 1)).loaded
    one, other, both = (needed.needed_by(loaded, places) for places in ((0,), (1,), (0, 1)))
    assert one.n_tokens < both.n_tokens < one.n_tokens + other.n_tokens
    assert both.n_fed == both.n_tokens  # one pack
    assert 0 < both.n_reads < both.n_tokens
    assert both.n_seen_by_reads < both.n_seen
    assert both.flop > 0
    many = needed.needed_by(loaded, tuple(range(0, 3000, 5)))
    assert many.n_fed > many.n_tokens


def test_a_question_that_cannot_be_asked_is_said(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the model extra is not installed")
    loaded = InThisProcess(Order("undertow", "likelihood", saved(tmp_path, tiny_llama()), 1)).loaded
    long = Blank(("In 1801, " * 30, "."), (Option("female", ("she",)), Option("male", ("he",))))
    with pytest.raises(UndertowError, match="the text is longer than the 64 tokens"):
        needed.needed_by(Loaded(loaded.model, [long]), (0,))


def test_the_limit_is_the_best_median_over_all_visits() -> None:
    visits = [{"a": [1.0, 9.0, 1.0], "b": [4.0, 5.0, 6.0]}, {"a": [1.0, 9.0, 9.0], "b": [4.0, 4.0, 4.0]}]
    limit = peak.Peak.of(visits)
    assert limit.product == "a"
    assert limit.flop_per_s == 5.0
    assert limit.by_visit == (1.0, 9.0)
    assert limit.others == {"a": 5.0, "b": 4.0}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_are_timed_in_every_way_there_is(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="the model extra is not installed")
    monkeypatch.setattr(peak, "ROWS", (4, 8))
    monkeypatch.setattr(peak, "SQUARES", (16,))
    monkeypatch.setattr(peak, "WIDEST", 32 * 64)
    monkeypatch.setattr(peak, "LEAST_SECONDS", 0.0)
    worker = InThisProcess(Order("undertow", "likelihood", saved(tmp_path, tiny_llama()), 1, dtype))
    products = peak.products_of(worker.do(needed.shape_of))
    sides = {(32, 32), (32, 16), (32, 64), (64, 32)}
    expected = {(rows, *two) for rows in (4, 8) for two in sides} | {(4, 32, 320), (16, 16, 16)}
    assert set(products) == expected
    assert len(products) == len(expected)
    found = worker.do(peak.rates, products)
    ways = 2 if torch.backends.mkldnn.is_available() else 1
    assert len(found) == ways * len(products)
    assert "16 x 16 x 16, torch" in found
    assert all(len(rates) == peak.REPEATS and min(rates) > 0 for rates in found.values())


def test_both_ways_multiply_the_same() -> None:
    torch = pytest.importorskip("torch", reason="the model extra is not installed")
    left, weight = torch.randn(6, 8), torch.randn(5, 8)
    found = [product() for _, product in peak._ways(left, weight)]
    for one in found:
        np.testing.assert_allclose(one.numpy(), (left @ weight.t()).numpy(), atol=1e-5)


def test_a_share_is_of_the_limit_around_its_round() -> None:
    assert share.shares(100.0, [1.0, 2.0], (100.0, 300.0, 100.0)) == [0.5, 0.25]
    with pytest.raises(UndertowError, match="before each round and after the last"):
        share.shares(100.0, [1.0, 2.0], (100.0, 300.0))


def test_shares_of_the_engine_and_of_its_peers(
    script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--rows", "masked,share"])
    bench.main()
    page = (Path(command[-1]) / "bench.md").read_text()
    # 960 items of 5 GFLOP in 1 s, of 1000 GFLOP/s: faster than the limit, which a stand-in may be.
    assert "| likelihood: at least 80% of the machine's limit on needed work | 480 (480 to 480)% | yes |" in page
    assert "| masked | undertow | 480% | 480 to 480% | 1000 | fast |" in page
    assert "| masked | fill-mask, one by one | 60% | by its rate |  |  |" in page
    assert "| likelihood | 4,800 | 5,760 | 960 | 4,800.0 | 0.0 | 0.0 | 4,800.0 |" in page
    # Three rounds of the engine alone where a race has two, of three rows, and each warmed up.
    assert script.log[-12:] == [
        *[("undertow", 0, 60), *[("undertow", 0, 960)] * 3],
        *[("undertow", 0, 32), *[("undertow", 0, 320)] * 3],
        *[("undertow", 0, 120), *[("undertow", 0, 960)] * 3],
    ]


def test_numbers_that_change_from_round_to_round_have_no_share(
    script: type[Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = script.score

    def drifting(self: Script, places: tuple[int, ...], batch_size: int) -> object:
        self.off["undertow", 0] = 0.01 * len(self.log)
        return right(self, places, batch_size)

    monkeypatch.setattr(script, "score", drifting)
    with pytest.raises(UndertowError, match="share: likelihood: is off"):
        share.measure(asked())


def test_a_single_round_with_missing_numbers_has_no_share(script: type[Script]) -> None:
    script.off["undertow", 0] = math.nan
    with pytest.raises(UndertowError, match="share: likelihood: is missing numbers"):
        share.measure(asked(rounds=1))
