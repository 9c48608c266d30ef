"""`undertow doctor`: what a model can be asked, whether it gets a known sentence right, how fast, and how it takes bfloat16."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from conftest import Cli
from refusal import refused
from undertow import doctor, models
from undertow.doctor import Checkup, examine, kinds
from undertow.models.base import EXACT, PAPER, Effort, Found, LostError, Request
from undertow.places import store_file
from undertow.types import (
    BLANK,
    CHOICE,
    CONTINUATIONS,
    GENERATION,
    WRITING,
    Answer,
    Blank,
    Generation,
    ModelCard,
    Query,
    UndertowError,
)

Said = Callable[[Any], Answer | LostError]


@dataclass(frozen=True, slots=True)
class Planted:
    """Answers every query in the same way, and keeps what it was asked."""

    card: ModelCard
    said: Said
    asked: list[tuple[Query, str]]
    notes: tuple[str, ...] = ("planted",)

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Answer | LostError]]:
        self.asked.extend((query, protocol) for query in queries)
        yield {place: self.said(query) for place, query in enumerate(queries)}

    def effort(self, queries: Sequence[Query], protocol: str) -> Effort:
        return Effort(0, 0, 0.0, 0)


Plant = Callable[..., list[tuple[Query, str]]]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Makes `planted` a model with these answers."""

    def plant(asks: Mapping[str, tuple[str, ...]], said: Said, dtype: str = "as served") -> list[tuple[Query, str]]:
        asked: list[tuple[Query, str]] = []
        card = ModelCard("planted", "planted", "here", "1", dtype, "top")
        found = Found(card, lambda: Planted(card, said, asked), asks)
        own = models.find
        monkeypatch.setattr(models, "find", lambda request: found if request.name == "planted" else own(request))
        return asked

    return plant


def shares(**of_group: float) -> Said:
    """Each group has this probability, spread over its options."""

    def said(query: Blank | Generation) -> Answer:
        groups = [option.group for option in query.options]
        probs = [of_group[group] / groups.count(group) for group in groups]
        logprobs = tuple(math.log(prob) if prob else -math.inf for prob in probs)
        return Answer(logprobs, max(0.0, 1 - sum(probs)), text=" she.")

    return said


# In memory.


def test_what_the_toy_can_do() -> None:
    checkup = examine(Request("toy:slope=-5"))
    by_tokens = {BLANK: (EXACT,), CONTINUATIONS: (EXACT,), CHOICE: (EXACT, PAPER), WRITING: (EXACT,)}
    assert dict(checkup.asks) == by_tokens | {GENERATION: (EXACT, PAPER)}
    assert list(kinds(checkup).values()) == [
        "yes, by protocol exact",
        "yes, by protocol exact",
        "yes, by protocol exact or paper",
        "yes, by protocol exact or paper",
        "yes, by protocol exact",
        "no",
    ]
    assert checkup.sentence == "In 1953, ___ became a mother."
    assert sum(checkup.percent.values()) == pytest.approx(100)
    # This toy gives he more than she in 1953, whatever the sentence says; the plain one gives she half a point more.
    assert checkup.percent == pytest.approx(
        {"female": 100 * 0.2735 / 0.8, "male": 100 * 0.4265 / 0.8, "neutral": 12.5}, abs=1
    )
    assert max(checkup.percent, key=lambda group: checkup.percent[group]) == "male"
    assert "prefers male words" in checkup.verdict
    assert "wrong" in checkup.verdict
    assert examine(Request("toy")).verdict == "it prefers female words (44%), which is right"
    assert set(checkup.items_per_s) == {BLANK, GENERATION}
    assert all(rate > 0 for rate in checkup.items_per_s.values())
    assert checkup.load_s >= 0
    # Its arithmetic is the same whatever it is told, and nothing is compared with itself.
    assert checkup.dtype == "float32"
    assert checkup.dtype_note
    assert math.isnan(checkup.dtype_gap_nats)
    assert not store_file().exists()


def test_a_model_without_blanks_is_asked_by_a_prompt(plant: Plant) -> None:
    asked = plant({GENERATION: (EXACT, PAPER)}, shares(female=0.5, male=0.2, neutral=0.05))
    checkup = examine(Request("planted"))
    assert "became a mother" in checkup.sentence
    assert "<mask>" in checkup.sentence
    assert checkup.percent["female"] == pytest.approx(100 * 0.5 / 0.75)
    assert checkup.verdict.endswith("which is right")
    assert list(checkup.items_per_s) == [GENERATION]
    assert {protocol for _, protocol in asked} == {EXACT}
    assert all(isinstance(query, Generation) for query, _ in asked)
    assert checkup.notes == ("planted",)


def test_a_model_that_can_be_asked_neither_or_is_cut_off_has_no_verdict(plant: Plant) -> None:
    asked = plant({CHOICE: (EXACT,)}, shares())
    assert list(kinds(examine(Request("planted"))).values()).count("no") == 5
    assert not asked
    plant({GENERATION: (EXACT,)}, lambda query: LostError("the line was cut"))
    assert "the line was cut" in examine(Request("planted")).verdict


def test_each_kind_is_asked_by_a_protocol_of_its_own(plant: Plant) -> None:
    asked = plant({BLANK: (EXACT,), GENERATION: (PAPER,)}, shares(female=0.5, male=0.2, neutral=0.1), "float32")
    examine(Request("planted"))
    assert {(type(query), protocol) for query, protocol in asked} == {(Blank, EXACT), (Generation, PAPER)}
    # One word a group at a blank: one that a tokenizer does not know loses the whole sentence.
    blank = asked[0][0]
    assert isinstance(blank, Blank)
    assert [option.fills for option in blank.options] == [("she",), ("he",), ("they",)]


def test_a_model_that_gives_all_words_the_same_or_nothing_prefers_none(plant: Plant) -> None:
    assert examine(Request("uniform")).verdict.startswith("it prefers none of female, male, neutral")
    plant({GENERATION: (EXACT,)}, shares(female=0.0, male=0.0, neutral=0.0))
    checkup = examine(Request("planted"))
    assert checkup.verdict == "it gives none of these words anything"
    assert dict(checkup.percent) == {"female": 0, "male": 0, "neutral": 0}


def test_long_sentences_are_compared_though_exp_gives_nothing(plant: Plant) -> None:
    """Their log-likelihoods are below what a float can be the exponential of."""
    nats = {"female": -2000.0, "male": -2001.0, "neutral": -math.inf}
    plant(
        {BLANK: (EXACT,)}, lambda query: Answer(tuple(nats[option.group] for option in query.options), 0.0), "float32"
    )
    checkup = examine(Request("planted"))
    assert checkup.percent == pytest.approx(
        {"female": 100 / (1 + math.exp(-1)), "male": 100 / (1 + math.e), "neutral": 0}
    )
    assert checkup.verdict.endswith("which is right")
    # Minus infinity in both precisions is no difference.
    assert (checkup.dtype_gap_nats, checkup.dtype_flips, checkup.dtype_note) == (0, 0, "")


@pytest.mark.parametrize(
    ("ceiling", "others", "unseen", "could_turn"),
    [(0.01, 0.0, 0.5, False), (0.2, 0.0, 0.5, True), (0.05, 0.05, 0.02, False)],
)
def test_what_is_not_shown_may_turn_the_verdict(
    ceiling: float, others: float, unseen: float, could_turn: bool, plant: Plant
) -> None:
    """female has 0.3 and male 0.2 of what was shown; all together have no more than what was not."""

    def said(query: Any) -> Answer:
        last = {option.group: at for at, option in enumerate(query.options)}
        ceilings = tuple(ceiling if at == last["male"] else others for at in range(len(query.options)))
        shown = shares(female=0.3, male=0.2, neutral=0.0)(query)
        assert isinstance(shown, Answer)
        return replace(shown, ceilings_prob=ceilings, unseen_prob=unseen)

    plant({GENERATION: (EXACT,)}, said)
    checkup = examine(Request("planted"))
    assert checkup.on_shown == could_turn
    assert ("what it does not show could turn it" in checkup.verdict) == could_turn
    assert "which is right" in checkup.verdict


def test_a_precision_that_is_refused_does_not_end_the_check_up(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant({BLANK: (EXACT,)}, shares(female=0.5, male=0.2, neutral=0.1), "float32")
    planted = models.find

    def find(request: Request) -> Found:
        if request.dtype == "bfloat16":
            raise UndertowError("planted has no weights")
        return planted(request)

    monkeypatch.setattr(models, "find", find)
    checkup = examine(Request("planted"))
    assert checkup.dtype_note == "planted has no weights"
    assert checkup.verdict.endswith("which is right")


# Models with weights.


@pytest.mark.slow
def test_precisions_of_a_causal_model_are_compared(network: Callable[[str], str]) -> None:
    pytest.importorskip("torch", reason="the model extra is not installed")
    checkup = examine(Request(network("tiny_llama")))
    assert (checkup.card["family"], checkup.dtype, checkup.dtype_note) == ("causal", "float32", "")
    assert 0 < checkup.dtype_gap_nats < 5
    assert 0 <= checkup.dtype_flips <= 1
    assert checkup.facts["parameters"] == pytest.approx(39_072)
    assert sum(checkup.percent.values()) == pytest.approx(100)


@pytest.mark.slow
def test_a_masked_model_is_asked_at_its_mask(network: Callable[[str], str], cli: Cli) -> None:
    pytest.importorskip("torch", reason="the model extra is not installed")
    name = network("trained_bert")
    told = checkup_of(cli, "-m", name)
    assert (told["card"]["family"], told["card"]["readout"]) == ("masked", "mask")
    assert told["asks"] == {"blank": ["exact", "paper"]}
    assert list(told["items_per_s"]) == ["blank"]
    assert 0 < told["dtype_gap_nats"] < 5
    # This vocabulary has no "them", and nobody asks for it.
    assert (told["unscored"], sum(told["percent"].values())) == ("", pytest.approx(100))
    assert told["facts"]["parameters"] > 1000
    assert told["facts"]["objective"]


# The command line.


def checkup_of(cli: Cli, *arguments: str) -> Any:
    """What `undertow doctor` prints as JSON."""
    done = cli("doctor", *arguments, "--json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    return json.loads(done.stdout, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))


def test_the_command_says_it_in_words(cli: Cli) -> None:
    done = cli("doctor", "-m", "toy:slope=-5")
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("toy:slope=-5: toy", "In 1953, ___ became a mother.", "prefers male words", "bfloat16"):
        assert words in done.stdout


def test_a_model_without_an_answer_is_told_of_in_words_and_json(plant: Plant, cli: Cli) -> None:
    plant({BLANK: (EXACT,)}, lambda query: Answer.none("it sneezed"), "float32")
    assert cli("doctor", "-m", "planted").stdout.count("it sneezed") == 3  # the known sentence, timing and precision
    told = checkup_of(cli, "-m", "planted")
    assert told["untimed"] == {BLANK: "it sneezed"}
    assert "it sneezed" in told["dtype_note"]
    assert (told["unscored"], told["percent"], told["dtype_gap_nats"]) == ("it sneezed", {}, None)


def test_the_command_says_it_in_json(cli: Cli) -> None:
    told = checkup_of(cli, "-m", "toy:slope=-5", "--no-compare")
    assert set(told) == set(Checkup.__dataclass_fields__)
    assert told["model"] == "toy:slope=-5"
    assert (told["dtype_gap_nats"], told["dtype_flips"]) == (None, None)
    assert told["percent"]["male"] > told["percent"]["female"] > 0


def test_a_setting_of_a_family_reaches_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Request] = []

    def seeing(request: Request, *, compare_dtypes: bool) -> Checkup:
        seen.append(request)
        return examine(Request("toy"), compare_dtypes=compare_dtypes)

    monkeypatch.setattr(doctor, "examine", seeing)
    cli("doctor", "-m", "openai:x", "--set", "concurrency=3", "--set", "mode=NLG")
    assert seen == [Request("openai:x", settings={"concurrency": 3, "mode": "NLG"})]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "toy", "--set", "nosuch=1"], ["nosuch=1", "base_url"]),
        (["-m", "toy", "--set", "concurrency"], ["'concurrency'"]),
        (["-m", "toy", "--set", "concurrency=many"], ["concurrency", "'many'"]),
        (["-m", "./nosuch"], ["nosuch"]),
    ],
)
def test_what_cannot_be_examined_is_refused(arguments: list[str], words: list[str], cli: Cli) -> None:
    refused(cli("doctor", *arguments), *words)
