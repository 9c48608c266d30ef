from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.answering import (
    TOLERANCE_NATS,
    alike,
    answers,
    blank,
    check_the_head,
    found_as,
    opened,
    other_head,
    some_batch,
    whole,
)
from helpers.tiny_models import POSITIONS
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import estimate, run_queries
from undertow.models.backend import execution as device
from undertow.models.base import BatchLimits
from undertow.models.families import masked, seq2seq
from undertow.types import EXACT, NOT_SEEN, ClozeQuery, GenerateQuery, Option, Query

torch = pytest.importorskip("torch", reason="the model extra is not installed")

HEADS = {"trained_bert": "cls", "trained_roberta": "lm_head", "trained_t5": "lm_head", "trained_bart": "lm_head"}
TWO_BLANKS = ClozeQuery(
    ("In 1849, ", " was a teenager and lost ", " keys."),
    (Option("f", ("she", "her")), Option("m", ("he", "his")), Option("x", ("they", "theirs"))),
)
BLANKS: list[Query] = [
    blank("In 1801, ", " was a child and lost her keys.", "she", "he", "they"),
    blank("", " was a kid in Peru and had his tea.", "She", "He", "They"),
    blank("In Kenya, ", " was an adult.", "she", "hirself", "theirs", "shelf"),
    TWO_BLANKS,
    blank("The weaver (", " had her tea) went to Japan.", "she", "he"),
]


@pytest.fixture(params=HEADS)
def model(request: pytest.FixtureRequest, network: Callable[[str], str]) -> Any:
    """Each in turn, loaded again, to be tampered with."""
    return opened(family_of(request.param), network(request.param))


def family_of(builder: str) -> Any:
    return masked if builder in ("trained_bert", "trained_roberta") else seq2seq


def is_seq2seq(model: Any) -> bool:
    return bool(model.network.config.is_encoder_decoder)


def rebuilt(model: Any) -> Any:
    """The model of a network that was tampered with."""
    modes = {"modes": model.modes} if is_seq2seq(model) else {}
    return type(model).from_network(model.network, model.tokenizer, model.identity, **modes)


def batch_for(model: Any) -> Any:
    return some_batch(model, 3 if is_seq2seq(model) else 0)


def test_batches_and_the_order_of_queries_do_not_matter(model: Any, tmp_path: Path) -> None:
    she_or_he = (Option("f", ("she",)), Option("m", ("he",)))
    queries = list(BLANKS)
    if is_seq2seq(model):
        prompts = ("In 1801, she was a child and lost", "They had", "He was an adult in 1873 and had")
        queries += [GenerateQuery(text, she_or_he, 6) for text in prompts]
    model.limits = BatchLimits(60, 0)
    with AnswerCache(tmp_path / "dry") as store:
        assert estimate(found_as(model), queries, store, EXACT).n_passes > 2
    forwards = answers(model, queries, tmp_path / "forwards")
    backwards = answers(model, queries[::-1], tmp_path / "backwards")[::-1]
    model.limits = BatchLimits(10_000, 0)
    together = answers(model, queries, tmp_path / "together")
    alone = [answers(model, [query], tmp_path / f"alone {number}")[0] for number, query in enumerate(queries)]
    for found in (forwards, backwards, together):
        alike(found, alone)


@pytest.mark.parametrize("builder", ["trained_bert", "trained_roberta", "trained_bart"])
def test_the_longest_text_is_read_and_one_longer_is_not(
    builder: str, network: Callable[[str], str], tmp_path: Path
) -> None:
    """RoBERTa has two positions more than its texts can have tokens."""
    model = opened(family_of(builder), network(builder))
    n_around = len(model.tokenizer("In 1801, she was.")["input_ids"]) - 1
    longest, longer = (
        blank("In 1801, ", " was" * (n_tokens - n_around) + ".", "she", "he") for n_tokens in (POSITIONS, POSITIONS + 1)
    )
    tokens = model.tokenizer(longer.texts()[0], return_tensors="pt")["input_ids"]
    assert tokens.shape == (1, POSITIONS + 1)
    with pytest.raises((IndexError, RuntimeError)):
        model.network(tokens)
    read, refused = answers(model, [longest, longer], tmp_path / "s")
    assert all(map(math.isfinite, read.logprobs_nats))
    assert refused.missing_reason == f"the text is longer than the {POSITIONS} tokens that the model reads"
    assert math.isnan(refused.other_prob)


@pytest.mark.parametrize("rows_at_once", [7, 1000])
def test_the_head_says_of_single_rows_what_the_network_says(
    rows_at_once: int, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hasattr(model.network, "final_logits_bias"):  # BART's is trained by nobody, and must still count
        model.network.final_logits_bias.normal_(generator=torch.Generator().manual_seed(0))
    model = rebuilt(model)
    monkeypatch.setattr(device, "LOGITS_AT_ONCE", rows_at_once * int(model.network.config.vocab_size))
    body = model.network.get_decoder() if is_seq2seq(model) else model.network.base_model
    check_the_head(model, batch_for(model), body)


@pytest.mark.parametrize("name", ["neighbours", "refuses"])
@pytest.mark.parametrize("builder", HEADS)
def test_a_head_that_needs_the_text_is_found_out_and_read_whole(
    builder: str, name: str, network: Callable[[str], str]
) -> None:
    plain, place = opened(family_of(builder), network(builder)), HEADS[builder]
    setattr(plain.network, place, other_head(getattr(plain.network, place), name))
    model = rebuilt(plain)
    assert not model.head_apart
    batch = batch_for(model)
    assert model.read_batch(batch) == pytest.approx(whole(model, batch), abs=TOLERANCE_NATS)
    if name == "neighbours":
        model.head_apart = True
        assert not np.allclose(model.read_batch(batch), whole(model, batch), atol=0.1)


@pytest.mark.parametrize("builder", ["trained_bert", "trained_t5"])
def test_an_unknown_word_at_a_blank_leaves_the_others_scored_and_is_named(
    builder: str, network: Callable[[str], str], tmp_path: Path
) -> None:
    model = opened(family_of(builder), network(builder))
    known = blank("In 1801, ", " was a child, \u03a9.", "she", "he")  # what stands around a blank may be unknown
    some = ClozeQuery(known.pieces, (*known.options, Option("other", ("\u03a9e",))))
    none = blank("In 1801, ", " was a child.", "\u03a9e", "\u03a9r")
    with AnswerCache(tmp_path / "s") as store:
        result = run_queries(found_as(model), [known, some, none], store, EXACT, lambda done, total: None)
    both, with_unknown, without = result.scores.answers
    assert with_unknown.logprobs_nats == pytest.approx((*both.logprobs_nats, math.nan), abs=TOLERANCE_NATS, nan_ok=True)
    assert with_unknown.other_prob == pytest.approx(both.other_prob, abs=1e-6)
    said = "an option holds a character or word that this tokenizer does not know: '\u03a9e', '\u03a9r'"
    assert without.missing_reason == said
    assert f"{NOT_SEEN}: \u03a9e" in result.notes
