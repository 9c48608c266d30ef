from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import undertow
from helpers.file_refusal import assert_refused
from helpers.planted_guard import DECIDED, NOMINATIVE, OCCUPATIONS, UNDECIDED, planted_percent, planted_table, unit
from helpers.planted_precision import Plant
from undertow.audits.task_specification.items import Settings
from undertow.metrics.reference_distribution import Reference
from undertow.metrics.sentence_scores import features, score_names
from undertow.models.base import EncodedQuery, ModelHandle, ModelRequest, PackedTree, TokenBatch, UnsupportedQueryError
from undertow.models.families import toy
from undertow.runs.guard import Guard, Options
from undertow.stats.classification.roc import best_threshold
from undertow.stats.regression.logistic import held_out_log_odds
from undertow.types import Floats, ScoredQuery

POSSESSIVE = "female: her; male: his; neutral: their"


def found(model: type[toy.ToyModel], name: str, opened: list[str] | None = None) -> ModelHandle:
    """A variety of the toy, with answers of its own in the store; each loading of it is noted."""
    plain = toy.resolve(ModelRequest("toy"))
    assert plain is not None
    card = replace(plain.identity, name=name, source=name)

    def load() -> toy.ToyModel:
        if opened is not None:
            opened.append(name)
        return model(card, slope_per_year=0.001)

    return ModelHandle(card, load)


class Deaf(toy.ToyModel):
    """Cannot be asked about anything unspeakable."""

    def encode(self, queries: Sequence[ScoredQuery]) -> list[EncodedQuery | UnsupportedQueryError]:
        return [
            UnsupportedQueryError("it is too long for this model") if "unspeakable" in query.texts()[0] else encoded
            for query, encoded in zip(queries, super().encode(queries), strict=True)
        ]


class Evasive(toy.ToyModel):
    """Gives every word a twentieth of the toy's probability, so that nearly all goes to words that nobody lists."""

    def read_tree(self, tree: PackedTree) -> Floats:
        return super().read_tree(tree) - math.log(20)

    def read_batch(self, batch: TokenBatch) -> Floats:
        return super().read_batch(batch) - math.log(20)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_table(tmp_path_factory.mktemp("sentences"))


def guarding(cache: Path, **options: Any) -> Guard:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNDERTOW_CACHE", str(cache))
        return undertow.guard("toy", **options)


@pytest.fixture(scope="module")
def knowing(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Guard:
    """A guard that learnt from sentences which the toy tells apart without fail."""
    return guarding(tmp_path_factory.mktemp("cache"), challenge=str(table))


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    """The guard with nothing chosen: the toy understands none of its schemas."""
    return guarding(tmp_path_factory.mktemp("cache"))


def test_verdicts_in_reduced_precision_say_that_nobody_checked_them(table: Path, plant: Plant) -> None:
    plant()
    told: list[tuple[int, int]] = []
    # The toy has no arithmetic to warn of.
    toys = undertow.guard("toy", challenge=str(table), dtype="bfloat16", progress=lambda *done: told.append(done))
    assert toys.notes == ()
    assert (told[0], told[-1]) == ((0, 4 * len(OCCUPATIONS)), (4 * len(OCCUPATIONS), 4 * len(OCCUPATIONS)))
    reduced = undertow.guard("planted", challenge=str(table), dtype="bfloat16")
    (note,) = reduced.notes
    assert "bfloat16" in note
    assert reduced(UNDECIDED, NOMINATIVE).as_json()["notes"] == [note]
    assert undertow.guard("planted", challenge=str(table))(UNDECIDED, NOMINATIVE).notes == ()


@pytest.mark.parametrize("text", [UNDECIDED, "{blank} was late."])
def test_shares_are_the_planted_ones_at_each_date(text: str, usual: Guard) -> None:
    verdict = usual(text, NOMINATIVE)
    assert list(verdict.percent) == ["1901", "2016"]
    for year, shares in verdict.percent.items():
        before = f"In {year}: {text.partition('{blank}')[0]}".rstrip()
        assert shares == pytest.approx(planted_percent(before, int(year)), abs=1e-9)
    assert verdict.other_words_percent == pytest.approx(20.0)


def test_scores_are_those_of_the_shares(knowing: Guard) -> None:
    verdict = knowing(UNDECIDED, NOMINATIVE)
    first, last = verdict.percent.values()
    moved = {group: abs(last[group] - first[group]) for group in first}
    middle = [(first[group] + last[group]) / 200 for group in first]
    expected = {f"delta_{group}": value for group, value in moved.items()} | {
        "total_variation": sum(moved.values()) / 2,
        "entropy": -100 * sum(share * math.log(share, 3) for share in middle),
    }
    got = {name: standing.value for name, standing in verdict.scores.items()}
    assert {name: got[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    assert set(got) == {*expected, "jensen_shannon"}
    assert 0 < got["jensen_shannon"] < got["total_variation"]


def test_ranks_are_counted_and_a_set_that_is_told_apart_without_fail_is_the_basis(knowing: Guard) -> None:
    """*They* moves nowhere, so all are ties; *she* moves less than after *cook* in five of twelve, and not where a person is named."""
    reference, verdict = knowing.reference, knowing("The cook said that {blank} was late.", NOMINATIVE)
    ends = [
        [planted_percent(f"In {year}: The {who} said that", year)["female"] for year in (1901, 2016)]
        for who in ("cook", *OCCUPATIONS)
    ]
    moved = [abs(last - first) for first, last in ends]
    ranks = {name: (one.above_unspecified, one.above_specified) for name, one in verdict.scores.items()}
    assert ranks["delta_neutral"] == (0.5, 0.5)
    assert ranks["total_variation"] == (sum(one < moved[0] for one in moved[1:]) / 12, 1.0)
    assert reference.thresholds["total_variation"] == pytest.approx(min(moved[1:]) / 2)
    assert "balanced accuracy 100% on held-out sentences of planted (AUROC 1.00)" in verdict.rests_on
    assert knowing(DECIDED, POSSESSIVE).chance_percent < 10
    assert 90 < verdict.chance_percent <= 100


def test_accuracy_is_that_of_calls_without_the_own_cluster() -> None:
    rng, groups = np.random.default_rng(3), ("one", "other")
    positive, cluster = np.tile([True, False], 15), np.repeat([f"job {at}" for at in range(15)], 2)
    shares = rng.uniform(20, 80, 30)
    scored = pd.DataFrame({"missing_reason": "", "challenge": "x", "well_specified": ~positive, "cluster": cluster})
    scored[list(score_names(groups))] = 50.0
    scored = scored.assign(mean_one=shares, mean_other=100 - shares)
    scored["total_variation"] = moved = rng.uniform(1, 5, 30) + positive
    reference = Reference.from_scores(scored, dict.fromkeys(groups, ("word",)))
    odds = held_out_log_odds(features(scored, groups), positive, cluster)
    limits = [best_threshold(moved[cluster != own], positive[cluster != own]) for own in cluster]
    for name, score, calls in (("combined", odds, odds > 0), ("total_variation", moved, moved > limits)):
        assert reference.accuracy[name] == pytest.approx(np.mean(calls == positive))  # as many of either kind
        rank_sum = stats.mannwhitneyu(score[positive], score[~positive]).statistic
        assert reference.area[name] == pytest.approx(rank_sum / 15**2)


def test_advice_names_the_neutral_words_and_what_the_model_prefers(knowing: Guard) -> None:
    first, last = (planted_percent(f"In {year}: The nurse said that", year)["female"] for year in (1901, 2016))
    own = {"female": ["she"], "male": ["he"], "neutral": ["THEY"]}
    plain, other, alone = (
        verdict.advice
        for verdict in knowing.check([(UNDECIDED, words) for words in (NOMINATIVE, own, "female: she; male: he")])
    )
    assert "neutrally (they)" in plain
    assert f"the model prefers female words ({(first + last) / 2:.0f}%)" in plain
    assert "neutrally (THEY)" in other
    assert "neutrally" not in alone
    # The toy says a word that is no pronoun in the nominative with exp(-1 - u), u from 0 to 1 by the word.
    odds = {group: math.exp(-1 - unit(f" {word}")) for group, word in zip("fmn", ("her", "his", "their"), strict=True)}
    assert max(odds, key=lambda group: odds[group]) == "n"
    assert f"neutral words ({100 * odds['n'] / sum(odds.values()):.0f}%)" in knowing(DECIDED, POSSESSIVE).advice


def test_other_words_are_judged_by_movement_alone(knowing: Guard) -> None:
    undecided, decided = knowing(UNDECIDED, "one: she; other: he"), knowing(DECIDED, "one: her; other: his")
    assert (undecided.unspecified, decided.unspecified) == (True, False)
    threshold = knowing.reference.thresholds["total_variation"]
    for verdict in (undecided, decided):
        assert math.isnan(verdict.chance_percent)
        assert f"total variation above {threshold:.2g} points" in verdict.rests_on
        assert verdict.scores["delta_one"].value == pytest.approx(verdict.scores["delta_other"].value)
        assert math.isnan(verdict.scores["delta_one"].above_unspecified)
        assert set(verdict.scores) == {"delta_one", "delta_other", "total_variation", "jensen_shannon", "entropy"}
    assert decided.scores["total_variation"].value < threshold < undecided.scores["total_variation"].value


def test_pronouns_of_the_likeliest_case_are_asked_if_no_options_are_given(knowing: Guard) -> None:
    """The toy takes no notice of grammar: a case is as likely as its words are together."""
    cases = [("she", "he", "they"), ("her", "him", "them"), ("her", "his", "their")]
    odds = {word: math.exp(-1 - unit(f" {word}")) for words in cases for word in words}
    shares = planted_percent("In 1901: The nurse said that", 1901)
    odds |= {word: 0.80 * share / 100 for word, share in zip(cases[0], shares.values(), strict=True)}
    likeliest = max(cases, key=lambda words: sum(odds[word] for word in words))
    total = sum(odds[word] for word in likeliest)
    verdict = knowing(UNDECIDED)
    assert list(verdict.percent["1901"].values()) == pytest.approx([100 * odds[word] / total for word in likeliest])
    words = dict(zip(("female", "male", "neutral"), [[word] for word in likeliest], strict=True))
    assert verdict.percent == knowing(UNDECIDED, words).percent


def test_verdicts_come_in_the_order_of_the_sentences_whatever_their_words(knowing: Guard) -> None:
    doors = "The door stood {blank}."
    given: list[tuple[str, Options]] = [
        (UNDECIDED, NOMINATIVE),
        (doors, "open: open; shut: shut"),
        (DECIDED, POSSESSIVE),
        (UNDECIDED, {"one": ["she"], "other": ["he"]}),
        (doors, "open: ajar; shut: closed"),
        (UNDECIDED, NOMINATIVE),
    ]
    verdicts = knowing.check(given)
    assert verdicts[1].percent != verdicts[4].percent
    for (text, options), verdict in zip(given, verdicts, strict=True):
        alone = knowing(text, options)
        assert verdict.chance_percent == pytest.approx(alone.chance_percent, nan_ok=True)
        assert replace(verdict, chance_percent=0) == replace(alone, chance_percent=0)
    assert knowing.check([]) == []


def test_a_model_is_opened_once_over_many_calls_and_not_where_all_is_stored(table: Path) -> None:
    opened: list[str] = []
    settings = Settings(challenge=str(table))
    check = Guard(found(toy.ToyModel, "counted", opened), settings)
    texts = [UNDECIDED, DECIDED, "A cook said {blank} slept.", "A clerk said {blank} ate.", UNDECIDED]
    before = [check(text, NOMINATIVE) for text in texts]
    check.check([("A maid said {blank} sang.", ""), ("The door stood {blank}.", "open: open; shut: shut")])
    assert opened == ["counted"]
    again = Guard(found(toy.ToyModel, "counted", opened), settings)
    assert [again(text, NOMINATIVE) for text in texts] == before
    assert opened == ["counted"]
    again("A groom said {blank} rode.", NOMINATIVE)
    assert opened == ["counted", "counted"]


def test_a_large_other_prob_share_and_verdicts_that_rest_on_nothing_are_told(
    table: Path, usual: Guard, knowing: Guard
) -> None:
    """The toy does not understand the schemas of the package, so on those its verdicts are right half the time."""
    verdict = Guard(found(Evasive, "evasive"), Settings(challenge=str(table)))(UNDECIDED, NOMINATIVE)
    frank = knowing(UNDECIDED, NOMINATIVE)
    assert verdict.other_words_percent == pytest.approx(96.0)
    assert verdict.advice.startswith(frank.advice)
    assert "96%" in verdict.advice.removeprefix(frank.advice)
    assert verdict.percent["2016"] == pytest.approx(frank.percent["2016"])
    accuracy = usual.reference.accuracy["combined"]
    assert accuracy < 0.6
    assert f"chance ({100 * accuracy:.0f}%)" in usual(UNDECIDED, NOMINATIVE).advice
    assert "chance" not in frank.advice


def test_a_sentence_that_cannot_be_asked_has_no_verdict(table: Path) -> None:
    check = Guard(found(Deaf, "deaf"), Settings(challenge=str(table)))
    heard, unheard, last = check.check(
        [(UNDECIDED, NOMINATIVE), ("An unspeakable nurse said {blank} ran.", NOMINATIVE), (DECIDED, POSSESSIVE)]
    )
    assert (heard.unspecified, last.unspecified) == (True, False)
    assert unheard.unspecified is None
    assert unheard.missing_reason == "it is too long for this model"
    assert math.isnan(unheard.chance_percent)
    own = check("The door stood {blank}.", "open: open; shut: shut")
    for verdict in (heard, unheard, own):
        written = json.dumps(verdict.as_json(), allow_nan=False)
        assert set(json.loads(written)) == {field.name for field in fields(verdict)}
    plain = unheard.as_json()
    assert plain["unspecified"] is None
    assert plain["percent"] == {year: dict.fromkeys(("female", "male", "neutral")) for year in ("1901", "2016")}
    assert all(standing["value"] is None for standing in plain["scores"].values())
    assert own.as_json()["chance_percent"] is None
    assert own.as_json()["scores"]["delta_open"] == {"value": 0.0, "above_unspecified": None, "above_specified": None}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (",well_specified\nThe unspeakable cook ate ___.,no\nA man ate ___.,yes\nA boy ate ___.,yes", "a fit needs 10"),
        ("\nThe cook said ___ ran.\nThe clerk said ___ ran.", "well_specified"),
    ],
)
def test_a_table_that_nothing_can_be_learnt_from_is_refused(rows: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(f"sentence{rows}\n", encoding="utf-8")
    assert_refused((expected,), Guard, found(Deaf, "deaf"), Settings(challenge=str(path)))
