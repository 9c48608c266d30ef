"""Masked models: what is read is what the fill-mask pipeline, or a forward pass made by hand, says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import answering
from helpers.answering import TOLERANCE_NATS, answers, blank, check_the_head, found_as, other_head, some_batch, whole
from helpers.tiny_models import POSITIONS, kept, wordpiece_tokenizer
from helpers.tiny_models import network as network_of
from undertow.audits.shared.group_probabilities import group_masses
from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import estimate
from undertow.models.backend import execution as device
from undertow.models.base import PAPER_TOP, BatchLimits
from undertow.models.families import masked
from undertow.types import EXACT, PAPER, ClozeQuery, Option

torch = pytest.importorskip("torch", reason="the model extra is not installed")
KINDS = ("bert", "roberta")


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained model, as Undertow reads it and as the pipeline does."""

    kind: str
    folder: str
    model: Any
    pipeline: Any

    def fresh(self) -> Any:
        """The same, loaded again, to be tampered with."""
        return opened(self.folder)


opened = partial(answering.opened, masked)


def trained(kind: str, folder: str) -> Trained:
    from transformers import pipeline

    model = opened(folder)
    return Trained(kind, folder, model, pipeline("fill-mask", model=folder, device="cpu", top_k=len(model.tokenizer)))


@pytest.fixture(scope="module")
def bert(network: Callable[[str], str]) -> Trained:
    return trained("bert", network("trained_bert"))


@pytest.fixture(scope="module")
def roberta(network: Callable[[str], str]) -> Trained:
    return trained("roberta", network("trained_roberta"))


@pytest.fixture(scope="module", params=KINDS)
def one(request: pytest.FixtureRequest) -> Trained:
    """Each of them in turn."""
    found: Trained = request.getfixturevalue(request.param)
    return found


def masks_and_words(model: Any, query: ClozeQuery, option: Option) -> tuple[list[int], list[int], list[int]]:
    """The text with as many masks as the fills have tokens, where these are, and the tokens that belong there."""
    words: list[int] = []
    text = query.pieces[0]
    for fill, before, after in zip(option.fills, query.pieces, query.pieces[1:], strict=False):
        spelled = f" {fill}" if before.endswith(" ") else fill
        tokens = model.tokenizer(spelled, add_special_tokens=False)["input_ids"]
        words += tokens
        text += model.tokenizer.mask_token * len(tokens) + after
    ids = list(model.tokenizer(text)["input_ids"])
    return ids, [at for at, token in enumerate(ids) if token == model.tokenizer.mask_token_id], words


def steps_by_hand(model: Any, query: ClozeQuery, option: Option) -> list[float]:
    """Log-probability of each token of an option by the plainest means: full forwards, one token put in after another."""
    ids, places, words = masks_and_words(model, query, option)
    steps = []
    for place, word in zip(places, words, strict=True):
        with torch.inference_mode():
            logprobs = model.network(torch.tensor([ids])).logits[0, place].double().log_softmax(-1)
        steps.append(float(logprobs[word]))
        ids[place] = word
    return steps


def by_hand(model: Any, query: ClozeQuery) -> list[float]:
    return [sum(steps_by_hand(model, query, option)) for option in query.options]


QUERIES = [
    blank("In 1801, ", " was a child and lost her keys.", "she", "he", "they"),
    blank("", " was a kid in Peru and had his tea.", "She", "He", "They"),
    blank("In Kenya, ", " was an adult.", "she", "hirself", "theirs"),
    ClozeQuery(
        ("In 1849, ", " was a teenager and lost ", " keys."),
        (Option("f", ("she", "her")), Option("m", ("he", "his")), Option("x", ("they", "theirs"))),
    ),
    blank("The weaver (", " had her tea) went to Japan.", "she", "he"),
]


@pytest.mark.parametrize(
    ("query", "with_space"),
    [
        (blank("In 1801, ", " was a child and lost her keys.", "she", "he", "they"), True),
        (blank("", " was a child in 1825 and had his tea.", "She", "He", "They"), False),
        (blank('The baker of Peru said "', ' lost their prize."', "She", "He", "They"), False),
        (blank("The weaver (", " had her tea) went to Japan.", "she", "he", "they"), False),
        (blank("The weaver (she had her tea) went to ", ".", "Japan", "Iceland", "Peru"), True),
    ],
    ids=["mid-sentence", "initial", "quote", "bracket", "last"],
)
def test_log_probabilities_are_those_of_the_pipeline(
    query: ClozeQuery, with_space: bool, one: Trained, tmp_path: Path
) -> None:
    words = [option.group for option in query.options]
    spelled = {"bert": str.lower, "roberta": ("Ġ{}" if with_space else "{}").format}[one.kind]
    tokens = one.model.tokenizer.convert_tokens_to_ids([spelled(word) for word in words])
    assert one.model.tokenizer.unk_token_id not in tokens
    scores = {
        choice["token"]: choice["score"] for choice in one.pipeline(query.display_text(one.model.tokenizer.mask_token))
    }
    (answer,) = answers(one.model, [query], tmp_path / "s")
    assert answer.logprobs_nats == pytest.approx([math.log(scores[token]) for token in tokens], abs=TOLERANCE_NATS)
    assert answer.other_prob == pytest.approx(1 - sum(scores[token] for token in tokens), abs=1e-5)


def test_a_second_blank_is_read_with_the_first_one_filled(one: Trained, tmp_path: Path) -> None:
    query = ClozeQuery(
        ("In 1801, ", " was a child and lost ", " keys."),
        (Option("f", ("she", "her")), Option("m", ("he", "his")), Option("mixed", ("she", "his"))),
    )
    first, _ = one.pipeline(query.display_text(one.model.tokenizer.mask_token))
    scores = {choice["token"]: choice["score"] for choice in first}
    (answer,) = answers(one.model, [query], tmp_path / "s")
    firsts = [masks_and_words(one.model, query, option)[2][0] for option in query.options]
    seconds = [steps_by_hand(one.model, query, option)[1] for option in query.options]
    expected = [math.log(scores[word]) + second for word, second in zip(firsts, seconds, strict=True)]
    assert answer.logprobs_nats == pytest.approx(expected, abs=TOLERANCE_NATS)
    assert answer.logprobs_nats[0] > answer.logprobs_nats[2]  # *his* after *she* was never seen
    assert answer.other_prob == pytest.approx(1 - sum(scores[word] for word in set(firsts)), abs=1e-5)


def test_other_prob_is_not_readable_where_words_have_different_numbers_of_tokens(one: Trained, tmp_path: Path) -> None:
    """One mask in a text and three are two questions."""
    alike, unlike = answers(
        one.model,
        [blank("In Kenya, ", " was an adult.", "she", "he"), blank("In Kenya, ", " was an adult.", "she", "hirself")],
        tmp_path / "s",
    )
    assert alike.other_prob == pytest.approx(1 - sum(np.exp(alike.logprobs_nats)), abs=1e-5)
    assert 0 < alike.other_prob < 1
    assert math.isnan(unlike.other_prob)
    assert unlike.missing_reason == ""


def test_forms_that_an_uncased_tokenizer_spells_alike_count_once(
    bert: Trained, roberta: Trained, tmp_path: Path
) -> None:
    query = ClozeQuery(
        ("In 1801, ", " was a child and lost her keys."),
        (Option("f", ("She",)), Option("f", ("she",)), Option("m", ("he",)), Option("m", ("He",))),
    )
    groups = ClozeQuery(query.pieces, (Option("polite", ("Sie",)), Option("she", ("sie",))))
    (uncased, of_two), (cased, told_apart) = (
        answers(one.model, [query, groups], tmp_path / one.kind) for one in (bert, roberta)
    )
    assert of_two.missing_reason == "this tokenizer spells an option of polite and one of she alike"
    assert (of_two.logprobs_nats, told_apart.missing_reason) == ((), "")
    assert np.isnan(uncased.logprobs_nats).tolist() == [False, True, False, True]
    assert np.isnan(cased.logprobs_nats).tolist() == [False, False, False, False]
    she, he = np.exp(by_hand(bert.model, blank(*query.pieces, "she", "he")))
    masses = group_masses([query], [uncased], ["f", "m"], shared=False)[1]
    assert {group: mass.item() for group, mass in masses.items()} == pytest.approx(
        {"f": 100 * she, "m": 100 * he}, abs=1e-3
    )
    assert sum(mass.item() for mass in masses.values()) + 100 * uncased.other_prob == pytest.approx(100, abs=1e-4)


def test_the_longest_text_is_read_and_one_longer_is_not(one: Trained, tmp_path: Path) -> None:
    """RoBERTa has two positions more than its texts can have tokens."""
    assert one.model.network.config.max_position_embeddings - POSITIONS == {"bert": 0, "roberta": 2}[one.kind]
    n_around = len(one.model.tokenizer("In 1801, she was.")["input_ids"]) - 1
    longest, longer = (
        blank("In 1801, ", " was" * (n_tokens - n_around) + ".", "she", "he") for n_tokens in (POSITIONS, POSITIONS + 1)
    )
    tokens = one.model.tokenizer(longer.texts()[0], return_tensors="pt")["input_ids"]
    assert tokens.shape == (1, POSITIONS + 1)
    with pytest.raises((IndexError, RuntimeError)):
        one.model.network(tokens)
    found = answers(one.model, [longest, longer], tmp_path / "s")
    assert found[0].logprobs_nats == pytest.approx(by_hand(one.model, longest), abs=TOLERANCE_NATS)
    assert found[1].missing_reason == f"the text is longer than the {POSITIONS} tokens that the model reads"
    assert math.isnan(found[1].other_prob)


def test_protocol_paper_takes_the_top_five_as_they_are_and_the_others_as_nothing(one: Trained, tmp_path: Path) -> None:
    words = ("she", "he", "they", "Peru", "lost", "tea", "child", "keys")
    query = blank("In 1801, ", " was a child and lost her keys.", *words)
    top = one.pipeline(query.display_text(one.model.tokenizer.mask_token), top_k=PAPER_TOP)
    probabilities = {choice["token"]: choice["score"] for choice in top}
    tokens = [masks_and_words(one.model, query, option)[2] for option in query.options]
    inside = [word in probabilities for (word,) in tokens]
    assert any(inside)
    assert not all(inside)
    (exact,) = answers(one.model, [query], tmp_path / "s")
    (paper,) = answers(one.model, [query], tmp_path / "s", PAPER)  # the same store: neither is served the other's
    expected = [value if among else -math.inf for value, among in zip(exact.logprobs_nats, inside, strict=True)]
    assert paper.logprobs_nats == pytest.approx(expected, abs=TOLERANCE_NATS)
    assert all(math.isfinite(value) for value in exact.logprobs_nats)
    masses = group_masses([query], [paper], words, shared=False)[1]
    assert [mass.item() > 0 for mass in masses.values()] == inside
    claimed = sum(probabilities[word] for (word,) in tokens if word in probabilities)
    assert paper.other_prob == pytest.approx(1 - claimed, abs=1e-5)
    assert paper.other_prob > exact.other_prob


def test_under_protocol_paper_every_token_of_a_word_must_be_among_the_five(one: Trained, tmp_path: Path) -> None:
    query = ClozeQuery(
        ("In 1801, ", " was a child and lost ", " keys."),
        (Option("f", ("she", "her")), Option("odd", ("she", "Kenya"))),
    )
    (exact,) = answers(one.model, [query], tmp_path / "s")
    (paper,) = answers(one.model, [query], tmp_path / "s", PAPER)
    assert math.isfinite(exact.logprobs_nats[1])
    assert paper.logprobs_nats == pytest.approx([exact.logprobs_nats[0], -math.inf], abs=TOLERANCE_NATS)
    assert paper.missing_reason == ""


@pytest.mark.parametrize("rows_at_once", [7, 1000])
def test_the_head_says_of_single_rows_what_it_says_of_whole_texts(
    rows_at_once: int, one: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "LOGITS_AT_ONCE", rows_at_once * int(one.model.network.config.vocab_size))
    check_the_head(one.model, some_batch(one.model), one.model.network.base_model)


@pytest.mark.parametrize("name", ["neighbours", "refuses"])
def test_a_head_that_needs_the_text_is_found_out_and_read_whole(name: str, one: Trained, tmp_path: Path) -> None:
    plain = one.fresh()
    place = {"bert": "cls", "roberta": "lm_head"}[one.kind]
    setattr(plain.network, place, other_head(getattr(plain.network, place), name))
    model = masked.MaskedModel.from_network(plain.network, plain.tokenizer, plain.identity)
    assert not model.head_apart
    batch = some_batch(model)
    assert model.read_batch(batch) == pytest.approx(whole(model, batch), abs=TOLERANCE_NATS)
    for query, answer in zip(QUERIES, answers(model, QUERIES, tmp_path / "s"), strict=True):
        assert answer.logprobs_nats == pytest.approx(by_hand(model, query), abs=TOLERANCE_NATS)
    if name == "neighbours":
        model.head_apart = True
        assert not np.allclose(model.read_batch(batch), whole(model, batch), atol=0.1)


def test_behind_the_last_attention_only_read_positions_are_computed(one: Trained) -> None:
    batch, seen = some_batch(one.model), list[int]()
    last = one.model.network.base_model.encoder.layer[-1].output
    with last.register_forward_hook(lambda _, given, out: seen.append(out.shape[:-1].numel())):
        read = one.model.read_batch(batch)
    assert seen == [len(set(zip(batch.read_rows, batch.read_positions, strict=True)))]
    assert seen[0] < batch.tokens.size
    assert read == pytest.approx(whole(one.model, batch), abs=TOLERANCE_NATS)


def test_a_last_layer_that_needs_the_text_is_found_out_and_computed_whole(one: Trained) -> None:
    plain = one.fresh()
    layer = plain.network.base_model.encoder.layer[-1]
    layer.output.register_forward_hook(lambda _, given, out: out + out.roll(1, dims=1))
    model = masked.MaskedModel.from_network(plain.network, plain.tokenizer, plain.identity)
    batch = some_batch(model)
    assert model.last_output is None
    assert model.head_apart
    assert model.read_batch(batch) == pytest.approx(whole(model, batch), abs=TOLERANCE_NATS)


def test_batches_and_the_order_of_queries_do_not_matter(one: Trained, tmp_path: Path) -> None:
    model = one.fresh()
    model.limits = BatchLimits(60, 0)
    with AnswerCache(tmp_path / "dry") as store:
        assert estimate(found_as(model), QUERIES, store, EXACT).n_passes > 2
    forwards = answers(model, QUERIES, tmp_path / "forwards")
    backwards = answers(model, QUERIES[::-1], tmp_path / "backwards")[::-1]
    model.limits = BatchLimits(10_000, 0)
    together = answers(model, QUERIES, tmp_path / "together")
    for number, query in enumerate(QUERIES):
        (alone,) = answers(model, [query], tmp_path / f"alone {number}")
        for answer in (forwards[number], backwards[number], together[number], alone):
            assert answer.logprobs_nats == pytest.approx(by_hand(model, query), abs=TOLERANCE_NATS)
            assert answer.other_prob == pytest.approx(alone.other_prob, abs=1e-5, nan_ok=True)


def test_a_network_whose_tokenizer_has_no_mask_is_refused(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    backend = wordpiece_tokenizer().backend_tokenizer
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]")
    network = network_of("Bert", "ForMaskedLM", vocab_size=len(tokenizer), intermediate_size=32)
    folder = kept(network, tokenizer, tmp_path / "m")
    with pytest.raises(UndertowError, match="no mask token") as refusal:
        opened(folder)
    assert str(refusal.value).startswith(f"{folder}: ")
    assert "\n" not in str(refusal.value)
