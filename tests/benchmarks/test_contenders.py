"""Contenders on tiny models: all give the same numbers, each in its own way."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again where they are asked for
from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from stand_ins import TINY_BERT, Here, here, loaded, masked_texts

from tiny import saved, tiny_llama

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

import random_bert
from contenders import (
    CONTENDERS,
    open_anew,
    open_generate,
    open_lm_eval,
    open_minicons,
    open_pipeline,
    open_undertow,
    open_undertow_choices,
    open_undertow_prompts,
    open_whole,
)
from gate import ANSWERS, CHOICES, END, FILLED_MASKS, LIKELIHOODS
from plain import load
from rows import ROWS
from undertow.models import causal, decoding, toy
from undertow.models.base import Found, Request
from undertow.models.steps import answer_of
from undertow.types import Blank, Choice, Generation, Option

LIKELIHOOD, MASKED, PROMPTS = ROWS["likelihood"], ROWS["masked"], ROWS["prompts"]


def test_the_engine_is_asked_anew_each_time(cache: Path) -> None:
    found = toy.find(Request("toy"))
    assert found is not None
    model = found.open()
    passes: list[int] = []

    class Counted:
        """The toy model, its passes counted."""

        card, notes, limits, encode = model.card, model.notes, model.limits, staticmethod(model.encode)
        read_batch, memory_bytes = staticmethod(model.read_batch), staticmethod(model.memory_bytes)

        @staticmethod
        def read_tree(tree: Any) -> Any:
            passes.append(len(tree.tokens))
            return model.read_tree(tree)

    loaded = Found(model.card, Counted)
    score = open_undertow(loaded)([item.query for item in LIKELIHOOD.items()[:60]], 0)
    first, n_passes = score(), len(passes)
    assert score() == first
    assert len(passes) == 2 * n_passes > 0
    assert {len(options) for options in first} == {3}
    assert list(cache.glob("bench-*")) == []


def test_masks_are_filled_alike_by_all(here: Here) -> None:
    found = loaded(MASKED, random_bert.prepared(masked_texts(), TINY_BERT))
    items = MASKED.items()
    queries = [items[place].query for place in MASKED.draw(items, 12, seed=0).places]
    reference = open_undertow(found)(queries, 0)()
    for batch_size in (1, 5):
        assert (
            FILLED_MASKS.require(reference, open_pipeline(found)(queries, batch_size)(), "a pipeline").difference < 1e-5
        )
    assert open_pipeline(found)(queries[:1], 5)() == open_pipeline(found)(queries[:1], 1)()
    # Another sentence's numbers would be noticed.
    gaps = [FILLED_MASKS.compare([one], [other]).difference for one, other in pairwise(reference)]
    assert min(gaps) > 10 * FILLED_MASKS.tolerance


WORDS = tuple(Option(group, (word,)) for group, word in (("female", "she"), ("male", "he"), ("neutral", "they")))
ASKED = [
    Blank((before, after), WORDS)
    for before, after in (
        ("In 1801, ", " was a child."),
        ("In 1953, ", " was an adult."),
        ("In 1953, a child was not what ", " was."),
    )
]


@pytest.fixture
def reader(tmp_path: Path) -> Found:
    """A tiny causal model as transformers loads it, as a peer gets it."""
    pytest.importorskip("torch", reason="the model extra is not installed")
    folder = saved(tmp_path, tiny_llama())
    request = Request(folder, device="cpu")
    found = causal.find(request)
    assert found is not None
    plain = load("causal", found, request)
    return replace(found, open=lambda: plain)


def likelihoods(reader: Found) -> Any:
    """What the engine says, with a network of its own."""
    return open_undertow(loaded(LIKELIHOOD, Path(reader.card.name)))(ASKED, 0)()


def check_likelihoods(reader: Found, scores: Callable[[int], Any]) -> None:
    """All numbers within the tolerance, alone and in batches that need padding, and those of another sentence without."""
    ours = likelihoods(reader)
    for batch_size in (1, 4, 16):
        assert LIKELIHOODS.require(ours, scores(batch_size), "a peer").difference < 1e-4
    gaps = [LIKELIHOODS.compare([one], [other]).difference for one, other in pairwise(ours)]
    assert min(gaps) > 10 * LIKELIHOODS.tolerance


def test_whole_texts_are_read_alike_one_by_one_and_in_padded_batches(reader: Found) -> None:
    check_likelihoods(reader, lambda size: open_whole(reader)(ASKED, size)())


def test_one_by_one_is_one_call_a_text_without_padding(reader: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    network, fed = reader.open().network, []
    forward = network.forward

    def seen(*args: Any, **named: Any) -> Any:
        fed.append((named["input_ids"].shape, named.get("attention_mask")))
        return forward(*args, **named)

    monkeypatch.setattr(network, "forward", seen)
    open_whole(reader)(ASKED, 1)()
    assert [(rows, mask) for (rows, _), mask in fed] == [(1, None)] * 9
    fed.clear()
    open_whole(reader)(ASKED, 4)()
    assert [rows for (rows, _), _ in fed] == [4, 4, 1]
    assert any(mask is not None and not mask.all() for _, mask in fed)


@pytest.mark.filterwarnings("ignore")
def test_minicons_gives_the_same_numbers(reader: Found) -> None:
    pytest.importorskip("minicons.scorer", reason="minicons is in the benchmark's own environment only")
    check_likelihoods(reader, lambda size: open_minicons(reader)(ASKED, size)())


@pytest.mark.filterwarnings("ignore")
def test_lm_eval_gives_the_same_numbers(reader: Found) -> None:
    pytest.importorskip("lm_eval", reason="lm_eval is in the benchmark's own environment only")
    check_likelihoods(reader, lambda size: open_lm_eval(reader)(ASKED, size)())


def test_a_peer_gets_the_network_as_transformers_loads_it(reader: Found) -> None:
    import torch

    engine = loaded(LIKELIHOOD, Path(reader.card.name)).open().network
    network = reader.open().network
    assert network.config._attn_implementation == "sdpa"
    linear = network.model.layers[0].mlp.up_proj
    assert "forward" not in vars(linear)
    assert linear.weight.layout == torch.strided
    assert engine is not network


PROMPTED = [
    Generation(text, WORDS, max_tokens=6)
    for text in ("In 1801, she was", "In 1953, he was", "In 1801, they were", "a child")
]


@pytest.fixture
def writer(tmp_path: Path) -> Found:
    """A tiny causal model that writes no token which reads like another: pieces of letters, and numbers without a text."""
    torch = pytest.importorskip("torch", reason="the model extra is not installed")
    found = loaded(PROMPTS, Path(saved(tmp_path, tiny_llama())))
    model = found.open()
    pieces = [at for at in range(320) if model.tokenizer.decode([at]).strip("\ufffd") == ""]
    with torch.no_grad():
        model.network.lm_head.weight[pieces] = 0.0
    return found


def test_prompts_are_answered_alike_by_all(writer: Found) -> None:
    ours, theirs = open_undertow_prompts(writer)(PROMPTED, 0)(), open_generate(writer)(PROMPTED, 1)()
    agreed = ANSWERS.require(ours, theirs, "one by one")
    assert agreed.difference < 1e-5
    assert agreed.n_ties == 0
    assert all(len(one.step_probs) == len(one.tokens) > 0 for one in ours)
    assert all(one.at(0) in other.ties[0] for one, other in zip(ours, theirs, strict=True))
    # Another prompt's answer would be noticed, and nothing is left of the look at the steps.
    assert all(ANSWERS.compare([one], [other]).trouble for one, other in pairwise(ours))
    assert vars(decoding)["answer_of"] is answer_of


@pytest.mark.parametrize("step", [0, 2])
def test_an_answer_that_ends_is_read_up_to_its_end(writer: Found, step: int) -> None:
    model = writer.open()
    whole = open_generate(writer)(PROMPTED, 1)()
    last = whole[0].tokens[step]
    model.decoder.ends = frozenset(at for at in range(320) if model.tokenizer.decode([at]) == last)
    ours, theirs = open_undertow_prompts(writer)(PROMPTED, 0)(), open_generate(writer)(PROMPTED, 1)()
    assert ANSWERS.require(ours, theirs, "one by one").n_ties == 0
    n_steps = len(theirs[0].tokens)
    assert theirs[0].tokens == whole[0].tokens[:n_steps]
    assert n_steps <= step
    assert theirs[0].ties[n_steps:] == ((END,),)


# Labels that share beginnings, that are beginnings of others, and (behind " not") that all begin alike.
LABELS = (
    " she",
    " she was",
    " she was not",
    " he was",
    " he was an",
    " he an",
    " they were an",
    " they were not",
    " child",
)
CHOSEN = [
    Choice(f"In {year}, {word} was{rest}", labels)
    for year in ("1801", "1953")
    for word in ("she", "he", "they", "a child")
    for rest, labels in (("", LABELS), (" an adult.", LABELS), (" a", tuple(f" not{label}" for label in LABELS)))
]


def test_labels_are_chosen_alike_by_all(writer: Found) -> None:
    ours = open_undertow_choices(writer)(CHOSEN, 0)()
    for batch_size in (1, 3, 16):
        theirs = open_anew(writer)(CHOSEN, batch_size)()
        agreed = CHOICES.require(ours, theirs, "anew")
        assert agreed.difference < 1e-5
        assert agreed.n_ties == 0
        assert any(not math.isnan(nats) for one in theirs for nats in one.nats)
    assert len({one.label for one in ours}) >= 3  # so that ways part, and later ones are gone too
    # Another prompt's numbers would be noticed.
    gaps = [CHOICES.compare([one], [other]) for one, other in pairwise(ours)]
    assert all(gap.trouble or gap.difference > 10 * CHOICES.tolerance for gap in gaps)


def test_each_prompt_is_read_whole_and_forced_tokens_are_not(writer: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    network = writer.open().network
    forward, fed = network.forward, []

    def seen(*args: Any, **named: Any) -> Any:
        fed.append((tuple(named["input_ids"].shape), named["past_key_values"] is None))
        return forward(*args, **named)

    monkeypatch.setattr(network, "forward", seen)
    one_token_each = replace(CHOSEN[0], labels=(" she", " he"))
    n_tokens = len(writer.open().tokenizer(CHOSEN[0].prompt)["input_ids"])
    (one,) = open_anew(writer)([one_token_each], 1)()
    assert fed == [((1, n_tokens), True)]
    assert all(map(math.isfinite, one.nats))
    fed.clear()
    open_anew(writer)(CHOSEN, 1)()
    assert [first for _, first in fed].count(True) == len(CHOSEN)
    n_alone = len(fed)
    assert n_alone > len(CHOSEN)
    fed.clear()
    open_anew(writer)(CHOSEN, 16)()
    assert sum(rows for (rows, _), _ in fed) == n_alone
    assert len(fed) < n_alone


def test_every_row_has_contenders_and_its_promises() -> None:
    assert list(CONTENDERS) == list(ROWS)
    promised = {(row, peer.name): peer.target_ratio for row, (_, *peers) in CONTENDERS.items() for peer in peers}
    assert promised == {
        **{
            (row, peer): times
            for row in ("likelihood", "schemas")
            for peer, times in {
                "lm-eval HF": 5,
                "minicons": 6,
                "transformers, one by one": 0,
                "transformers, batched": 0,
            }.items()
        },
        ("masked", "fill-mask, one by one"): 8,
        ("masked", "fill-mask, batched"): 1.25,
        ("prompts", "generate, one by one"): 5,
        ("wordings", "each prompt anew, one by one"): 5,
        ("wordings", "each prompt anew, batched"): 0,
    }
