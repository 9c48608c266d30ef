"""Scores of the four tasks by hand: label measures, overlap of texts, baselines, what is unscored, what an interval is over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import nltk.translate.meteor_score  # type: ignore[import-untyped]
import numpy as np
import pandas as pd
import pytest
from nltk.stem.porter import PorterStemmer  # type: ignore[import-untyped]
from sacrebleu.metrics.bleu import BLEU

from undertow.challenge.documents import DIMENSIONS
from undertow.measures.text_overlap import meteor_scorer
from undertow.measures.understanding import (
    ALL,
    CHANCE,
    COPY,
    DIAGNOSIS,
    EXTRACTION,
    IDENTIFICATION,
    MAJORITY,
    RANDOM_SPAN,
    REPHRASING,
    confusion_of,
    results,
    scored,
)
from undertow.probes.base import Design
from undertow.types import Result, UndertowError

DEFAULTS: dict[str, Any] = {
    "model": "m", "shots": 0, "sampling": "none", "decoding": "greedy", "dimension": "", "passage": "", "description_class": "question",
    "wording": "w1", "draw": 0, "unscored": "", "dropped": 0,
}  # fmt: skip


def table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Answers, with what a row does not say at its default."""
    return pd.DataFrame([DEFAULTS | dict(row) for row in rows])


def told(frame: pd.DataFrame, task: str, labels: Sequence[str] = (), seed: int = 0) -> list[Result]:
    return results(frame, {"task": task, "labels": list(labels)}, seed)


def only(found: Sequence[Result], measure: str, **group: str) -> Result:
    """The one result of a measure with this group, of all classes of descriptions there are if none is named."""
    wanted = {"dimension": ALL} | group
    some = [one for one in found if one.measure == measure and {**one.group, **wanted} == one.group]
    if "description_class" not in group:
        some = [one for one in some if not one.group["description_class"].startswith("(")][-1:]
    (one,) = some
    return one


def diagnosed(said: Mapping[str, Sequence[str]], golds: Sequence[str], **more: Any) -> pd.DataFrame:
    """A row for each document and wording."""
    return table(
        [
            {"document": f"d{at}", "gold": gold, "answer": answers[at], "wording": wording, **more}
            for wording, answers in said.items()
            for at, gold in enumerate(golds)
        ]
    )


YES_NO = ["Yes", "No"]
TWO_WORDINGS = {"w1": ["Yes", "Yes", "No", "No"], "w2": ["Yes", "No", "Yes", "maybe"]}
GOLDS = ["Yes", "Yes", "No", "No"]


# Labels.


def test_diagnosis_by_hand() -> None:
    """The first wording is right four times; the second once: of two Yes it finds one and says one too many, and no No."""
    found = told(diagnosed(TWO_WORDINGS, GOLDS), DIAGNOSIS, YES_NO)
    accuracy, f1, macro = (only(found, name) for name in ("accuracy", "f1", "f1_macro"))
    assert (accuracy.value, accuracy.detail["sd"]) == (62.5, 37.5)
    assert (f1.value, f1.detail["sd"]) == (75.0, 25.0)
    assert (macro.value, macro.detail["sd"]) == (62.5, 37.5)
    assert (accuracy.n, accuracy.n_unscored, accuracy.unit) == (8, 0, "percent")
    assert accuracy.detail["cells"] == 2
    assert accuracy.detail["yes_percent"] == 50.0
    assert accuracy.detail["empty_percent"] == 0.0
    assert "shortened_percent" not in accuracy.detail
    assert accuracy.group == {
        "model": "m", "task": DIAGNOSIS, "dimension": "all", "description_class": "question", "shots": "0", "sampling": "none",
        "decoding": "greedy",
    }  # fmt: skip


def test_confusion_by_hand() -> None:
    ((setting, answers),) = scored(diagnosed(TWO_WORDINGS, GOLDS), {"task": DIAGNOSIS, "labels": YES_NO}).items()
    assert setting == ("m", "0", "none", "greedy")
    assert confusion_of(answers, 2).tolist() == [[3, 1, 0], [1, 2, 1]]


def test_baselines_of_diagnosis_by_hand() -> None:
    found = told(diagnosed(TWO_WORDINGS, GOLDS), DIAGNOSIS, YES_NO)
    values = {
        (name, measure): only(found, measure, description_class=name).value
        for name in (MAJORITY, CHANCE)
        for measure in ("accuracy", "f1", "f1_macro")
    }
    # Always Yes: precision a half, recall 1. A guess says Yes to 0, 1, 2, 3 or 4 of 4 texts, in 1, 4, 6, 4 and 1 of 16 ways.
    guessed = sum(ways / 16 * 2 * (said / 2) / (2 + said) for said, ways in enumerate((1, 4, 6, 4, 1)))
    assert values == {
        (MAJORITY, "accuracy"): 50.0,
        (MAJORITY, "f1"): pytest.approx(200 / 3),
        (MAJORITY, "f1_macro"): pytest.approx(100 / 3),
        (CHANCE, "accuracy"): 50.0,
        (CHANCE, "f1"): pytest.approx(100 * guessed),
        (CHANCE, "f1_macro"): pytest.approx(100 * guessed),
    }
    assert only(found, "accuracy").neutral == 50.0
    assert only(found, "f1").neutral == 66.67
    assert only(found, "f1_macro").neutral == 46.25


def test_sd_is_the_populations_over_wordings_and_draws() -> None:
    """Four cells with 100, 50, 50 and 0 percent; a sample's deviation would be 40.8."""
    right = {("w1", 0): 2, ("w1", 1): 1, ("w2", 0): 1, ("w2", 1): 0}
    rows = [
        {
            "document": f"d{at}",
            "gold": "Yes",
            "answer": "Yes" if at < n else "No",
            "wording": wording,
            "draw": draw,
            "shots": 5,
        }
        for (wording, draw), n in right.items()
        for at in range(2)
    ]
    found = only(told(table(rows), DIAGNOSIS, YES_NO), "accuracy", shots="5")
    assert found.value == 50.0
    assert found.detail["sd"] == pytest.approx(math.sqrt(1250))
    assert found.detail["cells"] == 4


def identified(said: Sequence[str], golds: Sequence[str], **more: Any) -> pd.DataFrame:
    return table(
        [
            {"document": f"d{at}", "gold": gold, "dimension": gold, "answer": answer, **more}
            for at, (gold, answer) in enumerate(zip(golds, said, strict=True))
        ]
    )


def test_identification_by_hand() -> None:
    """Race 2 of 3, age 1 of 1, gender 0 of 2; case and white space do not matter, anything else does."""
    frame = identified(
        ["race", " RACE ", "race.", "age", "race", ""], ["race", "race", "race", "age", "gender", "gender"]
    )
    found = told(frame, IDENTIFICATION, DIMENSIONS)
    exact = {one.group["dimension"]: one for one in found if one.measure == "exact_match" and one.group["model"]}
    assert {name: one.value for name, one in exact.items()} == {
        "all": 50.0, "race": pytest.approx(200 / 3), "age": 100.0, "gender": 0.0,
    }  # fmt: skip
    assert {name: one.n for name, one in exact.items()} == {"all": 6, "race": 3, "age": 1, "gender": 2}
    # F1: race 2 * 2 / (3 gold + 3 said), age 1, gender 0; the eight others do not occur and do not count.
    assert only(found, "f1_macro").value == pytest.approx(100 * (4 / 6 + 1 + 0) / 3)
    assert exact["all"].detail["empty_percent"] == pytest.approx(100 / 6)
    assert only(found, "exact_match", description_class=MAJORITY).value == 50.0
    assert only(found, "exact_match", description_class=CHANCE).value == pytest.approx(100 / 11)
    assert exact["all"].neutral == 50.0
    assert math.isnan(exact["race"].neutral)


def test_dimensions_have_rows_of_each_class_and_of_all_together() -> None:
    frames = [
        identified(said, ["race", "race", "age"], description_class=name)
        for name, said in {"statement": ["race", "age", "age"], "null": ["age", "age", "race"]}.items()
    ]
    found = told(pd.concat(frames, ignore_index=True), IDENTIFICATION, DIMENSIONS)
    values = {
        (one.group["description_class"], one.group["dimension"]): one.value
        for one in found
        if one.measure == "exact_match" and one.group["model"]
    }
    assert values == {
        ("statement", "all"): pytest.approx(200 / 3), ("statement", "race"): 50.0, ("statement", "age"): 100.0,
        ("null", "all"): 0.0, ("null", "race"): 0.0, ("null", "age"): 0.0,
        ("all", "all"): pytest.approx(100 / 3), ("all", "race"): 25.0, ("all", "age"): 50.0,
    }  # fmt: skip


def test_settings_are_kept_apart() -> None:
    """Model, number of examples, sampling and decoding: each has its own score."""
    settings = [
        ("a", 0, "none", "greedy"), ("b", 0, "none", "greedy"), ("a", 5, "random", "greedy"), ("a", 5, "weak-oracle", "greedy"),
        ("a", 0, "none", "exact"),
    ]  # fmt: skip
    frames = [
        identified(
            ["race"] * n + ["age"] * (5 - n),
            ["race"] * 5,
            model=model,
            shots=shots,
            sampling=sampling,
            decoding=decoding,
        )
        for n, (model, shots, sampling, decoding) in enumerate(settings)
    ]
    found = told(pd.concat(frames, ignore_index=True), IDENTIFICATION, DIMENSIONS)
    for n, (model, shots, sampling, decoding) in enumerate(settings):
        group = {"model": model, "shots": str(shots), "sampling": sampling, "decoding": decoding}
        assert only(found, "exact_match", **group).value == 20.0 * n


# What is unscored.


def test_unscored_answers_are_left_out_and_counted() -> None:
    """Not wrong ones: of the scored, three of four are right, all three Yes among them."""
    frame = diagnosed({"w1": ["Yes", "Yes", "Yes", "Yes", ""]}, ["Yes", "Yes", "Yes", "No", "No"])
    frame.loc[4, "unscored"] = "too long"
    found = told(frame, DIAGNOSIS, YES_NO)
    accuracy, f1, macro = (only(found, name) for name in ("accuracy", "f1", "f1_macro"))
    assert (accuracy.value, accuracy.n, accuracy.n_unscored) == (75.0, 4, 1)
    assert accuracy.detail["yes_percent"] == 100.0
    assert accuracy.detail["empty_percent"] == 0.0
    assert f1.value == pytest.approx(100 * 6 / 7)
    assert macro.value == pytest.approx(100 * (6 / 7 + 0) / 2)
    (answers,) = scored(frame, {"task": DIAGNOSIS, "labels": YES_NO}).values()
    assert confusion_of(answers, 2).tolist() == [[3, 0, 0], [1, 0, 0]]


def test_an_unscored_answer_has_no_label_whatever_it_says() -> None:
    frame = diagnosed({"w1": ["Yes", "No"]}, ["Yes", "No"])
    frame.loc[1, "unscored"] = "lost"
    (answers,) = scored(frame, {"task": DIAGNOSIS, "labels": YES_NO}).values()
    assert confusion_of(answers, 2).tolist() == [[1, 0, 0], [0, 0, 0]]
    assert only(told(frame, DIAGNOSIS, YES_NO), "f1").value == 100.0


def test_f1_is_of_the_documents_that_every_cell_has() -> None:
    """The first wording has lost the last document: the second is compared with it on the first three."""
    frame = diagnosed({"w1": ["Yes", "No", "No", ""], "w2": ["Yes", "Yes", "No", "Yes"]}, ["Yes", "Yes", "No", "No"])
    frame.loc[3, "unscored"] = "lost"
    found = told(frame, DIAGNOSIS, YES_NO)
    f1 = only(found, "f1")
    assert f1.value == pytest.approx(100 * (2 / 3 + 1) / 2)
    assert f1.note == "documents that lack an answer in some cell are left out: 1"
    assert only(found, "accuracy").value == pytest.approx(100 * (2 / 3 + 3 / 4) / 2)
    # A cell without any answer is no reason to leave documents out.
    frame.loc[frame["wording"] == "w1", "unscored"] = "lost"
    f1 = only(told(frame, DIAGNOSIS, YES_NO), "f1")
    assert f1.value == pytest.approx(80.0)
    assert (f1.detail["sd"], f1.note) == (0.0, "")


@pytest.mark.parametrize(("task", "labels"), [(DIAGNOSIS, YES_NO), (EXTRACTION, [])])
def test_where_nothing_is_scored_there_is_no_number_and_a_reason(task: str, labels: list[str]) -> None:
    frame = diagnosed({"w1": ["", ""], "w2": ["", ""]}, ["Yes", "No"], unscored="too long", passage="Yes, no.")
    found = told(frame, task, labels)
    scores = [one for one in found if one.group["model"] and "source" not in one.group and "slot" not in one.group]
    assert scores
    for one in scores:
        assert math.isnan(one.value)
        assert math.isnan(one.low)
        assert (one.n, one.n_unscored, one.note) == (0, 4, "no answer is scored")


def test_what_was_not_asked_is_not_unscored() -> None:
    """A wording that names the dimension is not asked of a document without one."""
    frame = table(
        [
            {"document": "d1", "gold": "a cat", "passage": "cats", "answer": "a cat", "wording": "w1"},
            {"document": "d1", "gold": "a cat", "passage": "cats", "answer": "a dog", "wording": "w2"},
            {"document": "d2", "gold": "a dog", "passage": "dogs", "answer": "a dog", "wording": "w1"},
        ]
    )
    found = only(told(frame, REPHRASING), "exact_match")
    assert (found.n, found.n_unscored) == (3, 0)
    assert found.value == 50.0


def test_prompts_that_lost_examples_are_counted() -> None:
    frame = diagnosed(TWO_WORDINGS, GOLDS, shots=5)
    frame["dropped"] = [0, 1, 2, 0, 0, 0, 0, 0]
    frame["unclaimed"] = [10.0, 20.0, 30.0, 40.0, math.nan, math.nan, math.nan, math.nan]
    detail = only(told(frame, DIAGNOSIS, YES_NO), "accuracy", shots="5").detail
    assert detail["shortened_percent"] == 25.0
    assert detail["unclaimed_percent"] == 25.0


# Texts.

PAIRS = [
    ("women lack all sense today", "women lack all sense tomorrow"),
    ("he slept", "the boy slept well in the old house"),
    ("", "an angry old cat"),
    ("The Cat sat there.", "the cat sat there"),
]
"""Answers and right answers."""


def written(task: str, passages: Sequence[str] | None = None) -> pd.DataFrame:
    return table(
        [
            {"document": f"d{at}", "gold": gold, "answer": answer, "passage": (passages or [gold] * len(PAIRS))[at]}
            for at, (answer, gold) in enumerate(PAIRS)
        ]
    )


def nltk_meteor(answer: str, gold: str) -> float:
    """nltk's own, called apart from the package's, with the synonyms that this machine has."""
    words = [
        ["".join(letter for letter in word if letter.isalnum()) for word in text.lower().split()]
        for text in (gold, answer)
    ]
    return float(
        nltk.translate.meteor_score.single_meteor_score(
            words[0], words[1], stemmer=PorterStemmer(), wordnet=NoSynonyms()
        )
    )


class NoSynonyms:
    """A WordNet that knows no word."""

    def synsets(self, word: str) -> list[str]:
        return []


@pytest.mark.parametrize("task", [EXTRACTION, REPHRASING])
def test_overlap_of_texts_by_hand_and_by_the_packages_it_is_from(task: str) -> None:
    found = told(written(task), task)
    # Words in common, twice, over words in both: 2*4/10, 2*1/10, 0, 8/8.
    assert only(found, "token_f1").value == pytest.approx(100 * (0.8 + 0.2 + 0.0 + 1.0) / 4)
    assert only(found, "exact_match").value == 0.0
    corpus = BLEU(tokenize="13a").corpus_score([pair[0] for pair in PAIRS], [[pair[1] for pair in PAIRS]])
    assert only(found, "bleu4").value == pytest.approx(corpus.score, abs=1e-9)
    assert only(found, "meteor").value == pytest.approx(25 * sum(nltk_meteor(*pair) for pair in PAIRS))
    assert only(found, "token_f1").detail["empty_percent"] == 25.0
    # Their dimensions are not known, and there is no row for what is not known.
    assert {one.group["dimension"] for one in found} == {ALL}
    assert only(found, "token_f1").n == 4


def test_bleu_and_meteor_of_one_pair_by_hand() -> None:
    frame = written(EXTRACTION).iloc[[0]]
    found = told(frame, EXTRACTION)
    # 4 of 5 words, 3 of 4 pairs, 2 of 3 threes, 1 of 2 fours; as long as the reference.
    assert only(found, "bleu4").value == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    # Four words in one chunk: precision and recall 0.8, and a penalty of half of (1/4) cubed.
    assert only(found, "meteor").value == pytest.approx(100 * 0.8 * (1 - 0.5 / 64))
    assert only(found, "token_f1").value == pytest.approx(80.0)


def test_bleu_of_a_short_answer_pays_for_its_brevity() -> None:
    """Four words of eight: all n-grams there, times exp(1 - 8/4)."""
    frame = table([{"document": "d", "gold": "a cat sat on the old red mat", "answer": "a cat sat on", "passage": "x"}])
    assert only(told(frame, EXTRACTION), "bleu4").value == pytest.approx(100 * math.exp(-1))


def test_the_copy_baseline_is_that_of_the_packages() -> None:
    passages = [
        "I say that women lack all sense tomorrow, too.",
        "the boy slept",
        "an angry old cat",
        "Nobody was there",
    ]
    golds = [gold for _, gold in PAIRS]
    found = told(written(REPHRASING, passages), REPHRASING)
    copy = {name: only(found, name, description_class=COPY) for name in ("token_f1", "bleu4", "meteor", "exact_match")}
    corpus = BLEU(tokenize="13a").corpus_score(passages, [golds])
    assert copy["bleu4"].value == pytest.approx(corpus.score, abs=1e-9)
    pairs = list(zip(passages, golds, strict=True))
    score = meteor_scorer().score
    assert copy["meteor"].value == pytest.approx(25 * sum(score(*pair) for pair in pairs))
    assert 25 * sum(nltk_meteor(*pair) for pair in pairs) == pytest.approx(copy["meteor"].value, abs=1e-9)
    # Words in common, twice, over words in both: 5 of 9 and 5, 3 of 3 and 8, 4 of 4 and 4, 1 of 3 and 4.
    by_hand = 100 * (10 / 14 + 6 / 11 + 8 / 8 + 2 / 7) / 4
    assert copy["token_f1"].value == pytest.approx(by_hand)
    assert copy["exact_match"].value == 25.0
    assert copy["token_f1"].group["model"] == ""
    assert only(found, "token_f1").neutral == round(by_hand, 2)


def test_rephrasing_has_no_random_spans_and_extraction_has() -> None:
    for task, names in ((REPHRASING, {COPY}), (EXTRACTION, {COPY, RANDOM_SPAN})):
        found = told(written(task), task)
        assert {one.group["description_class"] for one in found if not one.group["model"]} - {ALL} == names


def test_random_spans_are_as_good_as_over_all_places() -> None:
    """Of two words, of which the first is right: it alone in 1 of 4 draws, both in 2 (F1 2/3), the second alone in 1."""
    rows = [{"document": f"d{at}", "gold": "cats", "answer": "cats", "passage": "cats purr"} for at in range(100)]
    found = only(told(table(rows), EXTRACTION), "token_f1", description_class=RANDOM_SPAN)
    assert found.value == pytest.approx(100 * (1 / 4 + 1 / 2 * 2 / 3), abs=3)
    one_word = table([{"document": "d", "gold": "cats purr", "answer": "cats", "passage": "cats"}])
    found = only(told(one_word, EXTRACTION), "token_f1", description_class=RANDOM_SPAN)
    assert found.value == pytest.approx(200 / 3)


def test_what_is_known_of_no_text_is_compared_with_no_text() -> None:
    found = told(written(EXTRACTION, [""] * 4), EXTRACTION)
    assert not [one for one in found if not one.group["model"]]
    assert math.isnan(only(found, "token_f1").neutral)
    assert "above_baseline" not in only(found, "token_f1").detail


def test_a_gain_over_texts_is_paired_by_document() -> None:
    """Answers always ten points above the copy: so is every draw of documents, however the copies differ."""
    passages = ["a b", "a b c d", "a", "a b c d e f"]
    rows = [
        {"document": f"d{at}", "gold": "a", "answer": passage, "passage": passage}
        for at, passage in enumerate(passages)
    ]
    found = only(told(table(rows), REPHRASING), "token_f1")
    assert found.detail["above_baseline"] == 0.0
    assert (found.detail["above_low"], found.detail["above_high"]) == (0.0, 0.0)
    assert found.low < found.value < found.high


# Intervals.


@pytest.mark.parametrize("n", [2, 5, 30])
@pytest.mark.parametrize("right", [True, False])
def test_where_a_bootstrap_has_no_width_the_interval_is_clopper_and_pearsons(n: int, *, right: bool) -> None:
    """All of n are right with the probability 0.025 where each is with the lower end."""
    golds = ["Yes"] * n
    said = {"w1": ["Yes" if right else "No"] * n, "w2": ["Yes" if right else ""] * n}
    found = only(told(diagnosed(said, golds), DIAGNOSIS, YES_NO), "accuracy")
    assert found.value == (100.0 if right else 0.0)
    sure, other = (found.high, found.low) if right else (found.low, found.high)
    assert sure == found.value
    assert (abs(other - (0.0 if right else 100.0)) / 100) ** n == pytest.approx(0.025)
    # Against a baseline too: two right answers of two do not show that a model is better than always saying Yes.
    assert found.detail["above_low"] == pytest.approx(found.low - 100.0)
    assert found.detail["above_high"] == pytest.approx(found.high - 100.0)


def test_an_interval_of_one_document_is_not_there() -> None:
    found = only(told(diagnosed({"w1": ["Yes"], "w2": ["No"]}, ["Yes"]), DIAGNOSIS, YES_NO), "accuracy")
    assert found.value == 50.0
    assert math.isnan(found.low)
    assert math.isnan(found.detail["above_low"])


def test_intervals_are_over_documents_and_more_wordings_do_not_narrow_them() -> None:
    rng = np.random.default_rng(0)
    golds = ["Yes"] * 40
    answers = rng.choice(["Yes", "No"], 40).tolist()
    few, many = (
        only(told(diagnosed({f"w{at}": answers for at in range(n)}, golds), DIAGNOSIS, YES_NO), "accuracy")
        for n in (1, 12)
    )
    assert (few.low, few.high) == (many.low, many.high)
    share = answers.count("Yes") / 40
    expected = 2 * 1.96 * 100 * math.sqrt(share * (1 - share) / 40)
    assert few.high - few.low == pytest.approx(expected, rel=0.15)


def test_intervals_cover_what_other_documents_have() -> None:
    """Documents differ in how easy they are, and wordings agree about it: 95 of 100 intervals should hold the truth."""
    rng = np.random.default_rng(1)
    n_sets, n_documents, n_wordings = 80, 40, 3
    held = 0
    for _ in range(n_sets):
        easy = rng.beta(1.2, 0.8, n_documents)  # mean 0.6
        said = {f"w{at}": np.where(rng.random(n_documents) < easy, "Yes", "No").tolist() for at in range(n_wordings)}
        found = only(told(diagnosed(said, ["Yes"] * n_documents), DIAGNOSIS, YES_NO), "accuracy")
        held += found.low <= 60 <= found.high
    assert 0.88 <= held / n_sets <= 1


def test_a_seed_gives_the_same_numbers_again_and_another_another() -> None:
    frame = diagnosed({name: said * 10 for name, said in TWO_WORDINGS.items()}, GOLDS * 10)
    first, again, other = (only(told(frame, DIAGNOSIS, YES_NO, seed), "f1") for seed in (1, 1, 2))
    assert (first.value, first.low, first.high) == (again.value, again.low, again.high)
    assert first.value == other.value
    assert (first.low, first.high) != (other.low, other.high)
    passages = ["women lack all sense tomorrow and so on"] * len(PAIRS)
    spans = [
        only(
            told(written(EXTRACTION, passages), EXTRACTION, seed=seed), "token_f1", description_class=RANDOM_SPAN
        ).value
        for seed in (1, 1, 2)
    ]
    assert spans[0] == spans[1]
    assert spans[0] != spans[2]


def test_a_design_that_does_not_list_its_labels_is_damaged() -> None:
    frame = diagnosed(TWO_WORDINGS, GOLDS)
    with pytest.raises(UndertowError, match=r"manifest\.json: is damaged \(its design does not say labels\)"):
        results(frame, Design({"task": DIAGNOSIS}, "manifest.json"), 0)
