from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from helpers import answering
from helpers.answering import change_json, found_as, told
from helpers.file_refusal import assert_refused
from helpers.tiny_models import POSITIONS, byte_level_tokenizer, kept, mild_corpus, wordpiece_tokenizer
from helpers.tiny_models import network as network_of_kind
from undertow.errors import UndertowError
from undertow.inference.runner import check_capabilities
from undertow.models.base import BatchLimits, ModelRequest
from undertow.models.families import masked, token_classifier
from undertow.types import EXACT, PAPER, Answer, ClozeQuery, Option, Query

pytest.importorskip("torch", reason="the model extra is not installed")

STYLES = ("Bert", "Roberta")
LABELS = ("female", "male", "neutral")
WORDS = {"female": ("she", "her", "woman"), "male": ("he", "him"), "neutral": ("they",)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of networks whose random weights are drawn wide enough that labels are not all as probable as each other."""
    import torch

    found, generator = {}, torch.Generator().manual_seed(0)
    for style, tokenizer in zip(STYLES, (wordpiece_tokenizer(), byte_level_tokenizer()), strict=True):
        network = network_of_kind(
            style, "ForTokenClassification", vocab_size=len(tokenizer), intermediate_size=64,
            max_position_embeddings=POSITIONS + (2 if style == "Roberta" else 0), pad_token_id=tokenizer.pad_token_id,
            id2label=dict(enumerate(LABELS)), label2id={label: number for number, label in enumerate(LABELS)},
        ).eval()  # fmt: skip
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_(std=0.2, generator=generator)
        found[style] = kept(network, tokenizer, tmp_path_factory.mktemp(style))
    return found


opened = partial(answering.opened, token_classifier)


@pytest.fixture(params=STYLES)
def model(folders: dict[str, str], request: pytest.FixtureRequest) -> Any:
    return opened(folders[request.param])


def blank(before: str, after: str, *groups: str) -> ClozeQuery:
    return ClozeQuery(
        (before, after), tuple(Option(group, (word,)) for group in groups or WORDS for word in WORDS[group])
    )


def sums(query: ClozeQuery, answer: Answer) -> dict[str, float]:
    """Probability of each group."""
    found: dict[str, float] = {}
    for option, nats in zip(query.options, answer.logprobs_nats, strict=True):
        found[option.group] = found.get(option.group, 0.0) + math.exp(nats)
    return found


def test_probabilities_are_those_of_transformers_own_forward(model: Any) -> None:
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    network = AutoModelForTokenClassification.from_pretrained(model.identity.name).eval()
    tokenizer = AutoTokenizer.from_pretrained(model.identity.name)
    queries = [blank("In 1801, ", " was a child."), blank("", " was an adult in Peru."), blank("The baker met ", ".")]
    for query, answer in zip(queries, told(model, queries), strict=True):
        coded = tokenizer(query.display_text(tokenizer.mask_token), return_tensors="pt")
        at = int((coded["input_ids"][0] == tokenizer.mask_token_id).nonzero())
        with torch.no_grad():
            expected = network(**coded).logits[0, at].softmax(-1).tolist()
        assert max(expected) - min(expected) > 0.05  # a model that prefers something
        assert list(sums(query, answer).values()) == pytest.approx(expected, abs=1e-6)


def test_a_labels_probability_is_shared_out_equally_and_groups_come_to_1(model: Any) -> None:
    query = blank("In 1801, ", " was a child.")
    (answer,) = told(model, [query])
    assert sum(sums(query, answer).values()) == pytest.approx(1.0, abs=1e-12)
    assert answer.other_prob == 0.0
    assert len(set(answer.logprobs_nats[:3])) == len(set(answer.logprobs_nats[3:5])) == 1
    each = replace(query, options=tuple(Option(group, (WORDS[group][0],)) for group in reversed(LABELS)))
    part = blank("In 1801, ", " was a child.", "female", "neutral")
    one_word_each, some = told(model, [each, part])
    whole = sums(query, answer)
    assert [math.exp(nats) for nats in reversed(one_word_each.logprobs_nats)] == pytest.approx(
        list(whole.values()), rel=1e-12
    )
    assert some.other_prob == pytest.approx(whole["male"], rel=1e-12)  # a label that is not asked about
    assert sums(part, some)["female"] == pytest.approx(whole["female"], rel=1e-12)


def test_what_cannot_be_asked_is_missing_with_its_reason(model: Any) -> None:
    mask = model.tokenizer.mask_token
    two = ClozeQuery(("", " lost ", " keys."), (Option("female", ("she", "her")), Option("male", ("he", "his"))))
    strange = ClozeQuery(("In 1801, ", " was a child."), (Option("warm", ("sun",)), Option("cold", ("ice",))))
    queries: list[Query] = [
        two,
        blank("In 1801, ", " was a child." + " and a kid" * 40),
        blank(f"The {mask} met ", "."),
        strange,
        blank("In 1801, ", " was a child."),
    ]
    *reasons, of_the_last = [answer.missing_reason for answer in told(model, queries)]
    assert len(set(reasons)) == len(reasons)
    assert all(reasons)
    assert not of_the_last
    assert str(model.context_tokens) in reasons[1]
    assert model.context_tokens == POSITIONS


def test_texts_are_read_in_packs_of_one_length_and_alone_alike(model: Any) -> None:
    queries: list[Query] = [
        blank(before.rstrip() + " ", " was" + after)
        for sentence in mild_corpus(held_out=True)
        for before, found, after in [sentence.partition(" was")]
        if found and len(sentence) < 60
    ]
    queries = [*queries[:40], blank("In 1801, ", " was a child.", "female", "male"), queries[0]]
    model.limits = BatchLimits(64, 0)
    together = told(model, queries)
    packs = list(model.packs(queries))
    effort = model.estimate_cost(queries, EXACT)
    model.limits = BatchLimits(512, 0)
    assert sorted(place for pack in packs for place in pack) == list(range(len(queries)))
    assert len(packs) == effort.n_passes > 5
    for pack in packs:
        lengths = {len(tokens) for tokens in model._tokens([queries[place] for place in pack])}
        assert len(lengths) == 1
    for query, answer in zip(queries, together, strict=True):
        (alone,) = told(model, [query])
        assert list(alone.logprobs_nats) == pytest.approx(list(answer.logprobs_nats), abs=2e-6)


def test_the_published_protocol_is_refused(model: Any) -> None:
    assert (model.identity.scoring_method, model.notes) == ("labels", token_classifier.MODEL.NOTES)
    with pytest.raises(UndertowError, match="paper"):
        check_capabilities(found_as(model), [blank("In 1801, ", " was a child.")], PAPER)


def test_a_model_that_cannot_be_read_says_why(
    folders: dict[str, str], network: Callable[[str], str], tmp_path: Path
) -> None:
    other = ModelRequest(str(shutil.copytree(network("trained_bert"), tmp_path / "headless")), device="cpu")
    assert token_classifier.resolve(other) is None, "another architecture is left to another family"
    assert masked.resolve(other) is not None
    change_json(tmp_path / "headless" / "config.json", architectures=["BertForTokenClassification"])
    assert_refused(("classifier.bias",), opened, other.name)
    whole = shutil.copytree(folders["Bert"], tmp_path / "maskless")
    change_json(whole / "tokenizer_config.json", mask_token=None)
    assert_refused(("has no mask token",), opened, str(whole))
