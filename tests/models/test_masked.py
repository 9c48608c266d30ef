from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import answering
from helpers.answering import TOLERANCE_NATS, answers, blank, change_json, some_batch, whole
from helpers.file_refusal import assert_refused
from undertow.audits.shared.group_probabilities import group_masses
from undertow.models.base import PAPER_TOP
from undertow.models.families import masked
from undertow.types import EXACT, PAPER, ClozeQuery, Option

torch = pytest.importorskip("torch", reason="the model extra is not installed")

opened = partial(answering.opened, masked)


@pytest.fixture(scope="module")
def bert(network: Callable[[str], str]) -> Any:
    return opened(network("trained_bert"))


@pytest.fixture(scope="module")
def roberta(network: Callable[[str], str]) -> Any:
    return opened(network("trained_roberta"))


@pytest.fixture(scope="module", params=["bert", "roberta"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def fill_mask(model: Any, query: ClozeQuery, top: int = 0) -> dict[int, float]:
    """What transformers' pipeline says at the first blank: the scores of all tokens, or of the most probable ones."""
    from transformers import pipeline

    filled = pipeline("fill-mask", model=model.identity.name, device="cpu", top_k=top or len(model.tokenizer))
    said = filled(query.display_text(model.tokenizer.mask_token))
    return {choice["token"]: choice["score"] for choice in (said[0] if isinstance(said[0], list) else said)}


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
    query: ClozeQuery, with_space: bool, model: Any, tmp_path: Path
) -> None:
    words = [option.group for option in query.options]
    is_bert = model.network.config.model_type == "bert"
    spelled = str.lower if is_bert else ("Ġ{}" if with_space else "{}").format
    tokens = model.tokenizer.convert_tokens_to_ids([spelled(word) for word in words])
    assert model.tokenizer.unk_token_id not in tokens
    scores = fill_mask(model, query)
    (answer,) = answers(model, [query], tmp_path / "s")
    assert answer.logprobs_nats == pytest.approx([math.log(scores[token]) for token in tokens], abs=TOLERANCE_NATS)
    assert answer.other_prob == pytest.approx(1 - sum(scores[token] for token in tokens), abs=1e-5)


def test_a_second_blank_is_read_with_the_first_one_filled(model: Any, tmp_path: Path) -> None:
    query = ClozeQuery(
        ("In 1801, ", " was a child and lost ", " keys."),
        (
            Option("f", ("she", "her")),
            Option("m", ("he", "his")),
            Option("mixed", ("she", "his")),
            Option("odd", ("she", "Kenya")),
        ),
    )
    scores = fill_mask(model, query)
    (answer,) = answers(model, [query], tmp_path / "s")
    firsts = [masks_and_words(model, query, option)[2][0] for option in query.options]
    seconds = [steps_by_hand(model, query, option)[1] for option in query.options]
    expected = [math.log(scores[word]) + second for word, second in zip(firsts, seconds, strict=True)]
    assert answer.logprobs_nats == pytest.approx(expected, abs=TOLERANCE_NATS)
    assert answer.logprobs_nats[0] > answer.logprobs_nats[2]  # *his* after *she* was never seen
    assert answer.other_prob == pytest.approx(1 - sum(scores[word] for word in set(firsts)), abs=1e-5)
    (paper,) = answers(model, [query], tmp_path / "s", PAPER)
    assert paper.logprobs_nats[::3] == pytest.approx(
        [expected[0], -math.inf], abs=TOLERANCE_NATS
    )  # each of both must be among the five


def test_other_prob_is_not_readable_where_words_have_different_numbers_of_tokens(model: Any, tmp_path: Path) -> None:
    """One mask in a text and three are two questions."""
    queries = [blank("In Kenya, ", " was an adult.", *words) for words in (("she", "he"), ("she", "hirself", "theirs"))]
    alike, unlike = answers(model, queries, tmp_path / "s")
    assert alike.other_prob == pytest.approx(1 - sum(np.exp(alike.logprobs_nats)), abs=1e-5)
    assert 0 < alike.other_prob < 1
    assert math.isnan(unlike.other_prob)
    expected = [sum(steps_by_hand(model, queries[1], option)) for option in queries[1].options]
    assert unlike.logprobs_nats == pytest.approx(expected, abs=TOLERANCE_NATS)


def test_forms_that_an_uncased_tokenizer_spells_alike_count_once(bert: Any, roberta: Any, tmp_path: Path) -> None:
    query = ClozeQuery(
        ("In 1801, ", " was a child and lost her keys."),
        (Option("f", ("She",)), Option("f", ("she",)), Option("m", ("he",)), Option("m", ("He",))),
    )
    groups = ClozeQuery(query.pieces, (Option("polite", ("Sie",)), Option("she", ("sie",))))
    (uncased, of_two), (cased, told_apart) = (answers(one, [query, groups], tmp_path / "s") for one in (bert, roberta))
    assert of_two.missing_reason == "this tokenizer spells an option of polite and one of she alike"
    assert (of_two.logprobs_nats, told_apart.missing_reason) == ((), "")
    assert np.isnan(uncased.logprobs_nats).tolist() == [False, True, False, True]
    assert np.isnan(cased.logprobs_nats).tolist() == [False, False, False, False]
    she, he = (math.exp(sum(steps_by_hand(bert, query, option))) for option in query.options[1:3])
    masses = group_masses([query], [uncased], ["f", "m"], shared=False)[1]
    assert {group: mass.item() for group, mass in masses.items()} == pytest.approx(
        {"f": 100 * she, "m": 100 * he}, abs=1e-3
    )
    assert sum(mass.item() for mass in masses.values()) + 100 * uncased.other_prob == pytest.approx(100, abs=1e-4)


def test_protocol_paper_takes_the_top_five_as_they_are_and_the_others_as_nothing(model: Any, tmp_path: Path) -> None:
    words = ("she", "he", "they", "Peru", "lost", "tea", "child", "keys")
    query = blank("In 1801, ", " was a child and lost her keys.", *words)
    probabilities = fill_mask(model, query, PAPER_TOP)
    tokens = [masks_and_words(model, query, option)[2] for option in query.options]
    inside = [word in probabilities for (word,) in tokens]
    assert any(inside)
    assert not all(inside)
    (exact,) = answers(model, [query], tmp_path / "s")
    (paper,) = answers(model, [query], tmp_path / "s", PAPER)  # the same store: neither is served the other's
    expected = [value if among else -math.inf for value, among in zip(exact.logprobs_nats, inside, strict=True)]
    assert paper.logprobs_nats == pytest.approx(expected, abs=TOLERANCE_NATS)
    assert all(math.isfinite(value) for value in exact.logprobs_nats)
    masses = group_masses([query], [paper], words, shared=False)[1]
    assert [mass.item() > 0 for mass in masses.values()] == inside
    claimed = sum(probabilities[word] for (word,) in tokens if word in probabilities)
    assert paper.other_prob == pytest.approx(1 - claimed, abs=1e-5)
    assert paper.other_prob > exact.other_prob


@pytest.mark.parametrize("protocol", [EXACT, PAPER])
def test_at_the_start_of_a_text_both_forms_count_as_in_fill_mask(protocol: str, roberta: Any, tmp_path: Path) -> None:
    words = ("She", "she", "He", "his", "They", "their", "Peru", "A")
    query = blank("", " was a child in 1825.", *words)
    (answer,) = answers(roberta, [query], tmp_path / "s", protocol)
    plain, spaced = dict.fromkeys(words, 0.0), dict.fromkeys(words, 0.0)
    for token, score in fill_mask(roberta, query, PAPER_TOP if protocol == PAPER else 0).items():
        text = roberta.tokenizer.decode([token])
        if text.strip() in plain:
            (spaced if text.startswith(" ") else plain)[text.strip()] += score
    checked = [0, 0]
    for at, word in enumerate(words):
        lengths = [len(roberta.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (f" {word}", word)]
        if lengths[0] == 1:
            assert math.exp(answer.spaced_nats[at]) == pytest.approx(spaced[word], abs=1e-6)
            checked[0] += spaced[word] > 0
        if lengths == [1, 1]:
            assert math.exp(answer.logprobs_nats[at]) == pytest.approx(plain[word] + spaced[word], abs=1e-6)
            checked[1] += 1
    assert protocol == PAPER or all(checked)
    (inside,) = answers(roberta, [blank("In 1825, ", " was a child.", "she", "he")], tmp_path / "s", protocol)
    assert inside.spaced_nats == ()


def test_behind_the_last_attention_only_read_positions_are_computed(model: Any) -> None:
    batch, seen = some_batch(model), list[int]()
    last = model.network.base_model.encoder.layer[-1].output
    with last.register_forward_hook(lambda _, given, out: seen.append(out.shape[:-1].numel())):
        read = model.read_batch(batch)
    assert seen == [len(set(zip(batch.read_rows, batch.read_positions, strict=True)))]
    assert seen[0] < batch.tokens.size
    assert read == pytest.approx(whole(model, batch), abs=TOLERANCE_NATS)


def test_a_last_layer_that_needs_the_text_is_found_out_and_computed_whole(model: Any) -> None:
    plain = opened(model.identity.name)
    layer = plain.network.base_model.encoder.layer[-1]
    layer.output.register_forward_hook(lambda _, given, out: out + out.roll(1, dims=1))
    model = masked.MaskedModel.from_network(plain.network, plain.tokenizer, plain.identity)
    batch = some_batch(model)
    assert model.last_output is None
    assert model.head_apart
    assert model.read_batch(batch) == pytest.approx(whole(model, batch), abs=TOLERANCE_NATS)


def test_a_network_whose_tokenizer_has_no_mask_is_refused(network: Callable[[str], str], tmp_path: Path) -> None:
    folder = shutil.copytree(network("trained_bert"), tmp_path / "m")
    change_json(folder / "tokenizer_config.json", mask_token=None)
    assert_refused((f"{folder}: ", "no mask token"), opened, str(folder))
