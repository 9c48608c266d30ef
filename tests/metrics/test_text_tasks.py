from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sacrebleu.metrics.bleu import BLEU
from scipy import stats

from undertow.data.documents.document_set import DIMENSIONS
from undertow.errors import UndertowError
from undertow.metrics.text.overlap import meteor_scorer
from undertow.metrics.text.scores import (
    ALL,
    ALWAYS_YES,
    CHANCE,
    COPY,
    DIAGNOSIS,
    EXTRACTION,
    IDENTIFICATION,
    MAJORITY,
    RANDOM_SPAN,
    REPHRASING,
    Baselines,
    confusion_counts,
    score_answers,
)
from undertow.metrics.text.tasks import results, wording_scores
from undertow.runs.folder.storage import ManifestFacts
from undertow.types import Result

DEFAULTS: dict[str, Any] = {
    "model": "m", "shots": 0, "sampling": "none", "decoding": "greedy", "dimension": "", "passage": "", "description_class": "question",
    "wording": "w1", "draw": 0, "missing_reason": "", "n_dropped_shots": 0,
}  # fmt: skip


def table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
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
        {"document": f"d{at}", "gold": gold, "answer": answers[at], "wording": wording, **more}
        for wording, answers in said.items()
        for at, gold in enumerate(golds)
    )


YES_NO = ["Yes", "No"]
TWO_WORDINGS = {"w1": ["Yes", "Yes", "No", "No"], "w2": ["Yes", "No", "Yes", "maybe"]}
GOLDS = ["Yes", "Yes", "No", "No"]


def test_diagnosis_by_hand() -> None:
    """The first wording is right four times; the second once: of two Yes it finds one and says one too many, and no No."""
    found = told(diagnosed(TWO_WORDINGS, GOLDS), DIAGNOSIS, YES_NO)
    accuracy, f1, macro = (only(found, name) for name in ("accuracy", "f1", "f1_macro"))
    assert (accuracy.value, accuracy.extras["sd"]) == (62.5, 37.5)
    assert (f1.value, f1.extras["sd"]) == (75.0, 25.0)
    assert (macro.value, macro.extras["sd"]) == (62.5, 37.5)
    assert (accuracy.n, accuracy.n_missing, accuracy.unit) == (8, 0, "percent")
    assert accuracy.extras["cells"] == 2
    # The last answer of the second wording is neither.
    assert (accuracy.extras["yes_percent"], accuracy.extras["no_percent"]) == (50.0, 37.5)
    assert accuracy.extras["empty_percent"] == 0.0
    assert "shortened_percent" not in accuracy.extras
    assert accuracy.group == {
        "model": "m", "task": DIAGNOSIS, "dimension": "all", "description_class": "question", "shots": "0", "sampling": "none",
        "decoding": "greedy",
    }  # fmt: skip


def test_baselines_of_diagnosis_by_hand() -> None:
    found = told(diagnosed(TWO_WORDINGS, GOLDS), DIAGNOSIS, YES_NO)
    measures = ("accuracy", "f1", "f1_macro")
    values = {
        name: [only(found, measure, description_class=name).value for measure in measures]
        for name in (MAJORITY, CHANCE)
    }
    # Without a text that is Yes the others are mostly No, and the other way round: always wrong. Always Yes: precision a half, recall 1.
    # A guess says Yes to 0, 1, 2, 3 or 4 of 4 texts, in 1, 4, 6, 4 and 1 of 16 ways.
    guessed = sum(ways / 16 * 2 * (said / 2) / (2 + said) for said, ways in enumerate((1, 4, 6, 4, 1)))
    assert values == {MAJORITY: [0, 0, 0], CHANCE: pytest.approx([50, 100 * guessed, 100 * guessed])}
    assert only(found, "f1", description_class=ALWAYS_YES).value == pytest.approx(200 / 3)
    assert only(found, "accuracy").null_value == 50.0
    assert only(found, "f1").null_value == 66.67
    assert only(found, "f1_macro").null_value == 46.25


def identified(said: Sequence[str], golds: Sequence[str], **more: Any) -> pd.DataFrame:
    return table(
        {"document": f"d{at}", "gold": gold, "dimension": gold, "answer": answer, **more}
        for at, (gold, answer) in enumerate(zip(golds, said, strict=True))
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
    assert exact["all"].extras["empty_percent"] == pytest.approx(100 / 6)
    # Of the other texts as many are of gender as of race where one of race is left out, and gender comes first.
    assert DIMENSIONS.index("gender") < DIMENSIONS.index("race")
    assert only(found, "exact_match", description_class=MAJORITY).value == 0.0
    assert only(found, "exact_match", description_class=CHANCE).value == pytest.approx(100 / 11)
    assert exact["all"].null_value == 9.09
    assert math.isnan(exact["race"].null_value)


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


def test_missing_answers_are_left_out_and_counted() -> None:
    """Not wrong ones: of the scored, three of four are right, all three Yes among them."""
    frame = diagnosed({"w1": ["Yes", "Yes", "Yes", "Yes", ""]}, ["Yes", "Yes", "Yes", "No", "No"])
    frame.loc[4, "missing_reason"] = "too long"
    found = told(frame, DIAGNOSIS, YES_NO)
    accuracy, f1, macro = (only(found, name) for name in ("accuracy", "f1", "f1_macro"))
    assert (accuracy.value, accuracy.n, accuracy.n_missing) == (75.0, 4, 1)
    assert accuracy.extras["yes_percent"] == 100.0
    assert accuracy.extras["empty_percent"] == 0.0
    assert f1.value == pytest.approx(100 * 6 / 7)
    assert macro.value == pytest.approx(100 * (6 / 7 + 0) / 2)
    (answers,) = score_answers(frame, {"task": DIAGNOSIS, "labels": YES_NO}).values()
    assert confusion_counts(answers, 2).tolist() == [[3, 0, 0], [1, 0, 0]]


def test_f1_of_each_wording_is_over_the_texts_that_it_has_answers_to() -> None:
    """The first wording has lost the last text, and has 2/3 on the others; the second has 4/5 on all four."""
    frame = diagnosed({"w1": ["Yes", "No", "No", ""], "w2": ["Yes", "Yes", "No", "Yes"]}, ["Yes", "Yes", "No", "No"])
    frame.loc[3, "missing_reason"] = "lost"
    found = told(frame, DIAGNOSIS, YES_NO)
    f1 = only(found, "f1")
    assert f1.value == pytest.approx(100 * (2 / 3 + 4 / 5) / 2)
    assert (f1.n, f1.n_missing) == (7, 1)
    # Always Yes: 4/5 of the first three texts and 2/3 of all four.
    assert f1.null_value == pytest.approx(100 * (4 / 5 + 2 / 3) / 2, abs=0.005)
    assert only(found, "accuracy").value == pytest.approx(100 * (2 / 3 + 3 / 4) / 2)
    # A cell without any answer has no F1.
    frame.loc[frame["wording"] == "w1", "missing_reason"] = "lost"
    f1 = only(told(frame, DIAGNOSIS, YES_NO), "f1")
    assert f1.value == pytest.approx(80.0)
    assert f1.extras["sd"] == 0.0


@pytest.mark.parametrize(("task", "labels"), [(DIAGNOSIS, YES_NO), (EXTRACTION, [])])
def test_where_nothing_is_scored_there_is_no_number_and_a_reason(task: str, labels: list[str]) -> None:
    frame = diagnosed({"w1": ["", ""], "w2": ["", ""]}, ["Yes", "No"], missing_reason="too long", passage="Yes, no.")
    found = told(frame, task, labels)
    scores = [one for one in found if one.group["model"] and "source" not in one.group and "slot" not in one.group]
    assert scores
    for one in scores:
        assert math.isnan(one.value)
        assert math.isnan(one.low)
        n_missing = 2 if one.measure == "recall" else 4  # of the one biased text
        assert (one.n, one.n_missing, one.note) == (0, n_missing, "no answer is scored")


def test_what_was_not_asked_is_not_missing() -> None:
    """A wording that names the dimension is not asked of a document without one."""
    frame = table(
        [
            {"document": "d1", "gold": "a cat", "passage": "cats", "answer": "a cat", "wording": "w1"},
            {"document": "d1", "gold": "a cat", "passage": "cats", "answer": "a dog", "wording": "w2"},
            {"document": "d2", "gold": "a dog", "passage": "dogs", "answer": "a dog", "wording": "w1"},
        ]
    )
    found = only(told(frame, REPHRASING), "exact_match")
    assert (found.n, found.n_missing) == (3, 0)
    assert found.value == 50.0


def test_prompts_that_lost_examples_are_counted() -> None:
    frame = diagnosed(TWO_WORDINGS, GOLDS, shots=5)
    frame["n_dropped_shots"] = [0, 1, 2, 0, 0, 0, 0, 0]
    frame["other_words"] = [10.0, 20.0, 30.0, 40.0, math.nan, math.nan, math.nan, math.nan]
    extras = only(told(frame, DIAGNOSIS, YES_NO), "accuracy", shots="5").extras
    assert extras["shortened_percent"] == 25.0
    assert extras["other_words_percent"] == 25.0


PAIRS = [
    ("women lack all sense today", "women lack all sense tomorrow"),
    ("he slept", "the boy slept well in the old house"),
    ("", "an angry old cat"),
    ("The Cat sat there.", "the cat sat there"),
]
"""Answers and right answers."""


def written(task: str, passages: Sequence[str] | None = None) -> pd.DataFrame:
    return table(
        {"document": f"d{at}", "gold": gold, "answer": answer, "passage": (passages or [gold] * len(PAIRS))[at]}
        for at, (answer, gold) in enumerate(PAIRS)
    )


@pytest.mark.parametrize("task", [EXTRACTION, REPHRASING])
def test_overlap_of_texts_by_hand_and_by_the_packages_it_is_from(task: str) -> None:
    found = told(written(task), task)
    # Words in common, twice, over words in both: 2*4/10, 2*1/10, 0, 8/8.
    assert only(found, "token_f1").value == pytest.approx(100 * (0.8 + 0.2 + 0.0 + 1.0) / 4)
    # But for case and the full stop the last is the right one.
    assert only(found, "exact_match").value == 25.0
    corpus = BLEU(tokenize="13a").corpus_score([pair[0] for pair in PAIRS], [[pair[1] for pair in PAIRS]])
    assert only(found, "bleu4").value == pytest.approx(corpus.score, abs=1e-9)
    assert only(found, "meteor").value == pytest.approx(25 * sum(meteor_scorer().score(*pair) for pair in PAIRS))
    assert only(found, "token_f1").extras["empty_percent"] == 25.0
    # Their dimensions are not known, and there is no row for what is not known.
    assert {one.group["dimension"] for one in found} == {ALL}
    assert only(found, "token_f1").n == 4


def test_the_copy_baseline_is_that_of_the_packages() -> None:
    said = "I say that women lack all sense tomorrow, too."
    passages = [said, "the boy slept", "an angry old cat", "Nobody was there"]
    golds = [gold for _, gold in PAIRS]
    found = told(written(REPHRASING, passages), REPHRASING)
    copy = {name: only(found, name, description_class=COPY) for name in ("token_f1", "bleu4", "meteor", "exact_match")}
    corpus = BLEU(tokenize="13a").corpus_score(passages, [golds])
    assert copy["bleu4"].value == pytest.approx(corpus.score, abs=1e-9)
    assert copy["meteor"].value == pytest.approx(25 * sum(map(meteor_scorer().score, passages, golds)))
    # Words in common, twice, over words in both: 5 of 9 and 5, 3 of 3 and 8, 4 of 4 and 4, 1 of 3 and 4.
    by_hand = 100 * (10 / 14 + 6 / 11 + 8 / 8 + 2 / 7) / 4
    assert copy["token_f1"].value == pytest.approx(by_hand)
    assert copy["exact_match"].value == 25.0
    assert copy["token_f1"].group["model"] == ""
    assert only(found, "token_f1").null_value == round(by_hand, 2)


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
    assert math.isnan(only(found, "token_f1").null_value)
    assert "above_baseline" not in only(found, "token_f1").extras


def test_a_gain_over_texts_is_paired_by_document() -> None:
    """Copies score from 2/101 to 1, and each answer drops one word of its text: the difference is sure where the score is not."""
    passages = [" ".join(["a", *(f"w{word}" for word in range(n))]) for n in range(1, 31)]
    rows = [
        {"document": f"d{at}", "gold": "a", "answer": passage.rpartition(" ")[0], "passage": passage}
        for at, passage in enumerate(passages)
    ]
    found = only(told(table(rows), REPHRASING), "token_f1")
    gaps = [100 * (2 / (1 + n) - 2 / (2 + n)) for n in range(1, 31)]
    assert found.extras["above_baseline"] == pytest.approx(np.mean(gaps))
    assert found.p == pytest.approx(1 / 20_001)
    low, high = found.extras["above_low"], found.extras["above_high"]
    assert 0 < low < np.mean(gaps) < high
    assert high - low < 0.5 * (found.high - found.low)
    student = stats.t.interval(0.95, 29, np.mean(gaps), stats.sem(gaps))
    assert (low, high) == pytest.approx(student, abs=2)


def test_a_copy_is_no_better_than_a_copy() -> None:
    rows = [{"document": f"d{at}", "gold": "a", "answer": "a b", "passage": "a b"} for at in range(20)]
    found = only(told(table(rows), REPHRASING), "token_f1")
    assert (found.extras["above_baseline"], found.p) == (0.0, 1.0)
    assert found.extras["above_low"] < 0 < found.extras["above_high"]


def test_a_baseline_is_of_the_texts_that_are_scored() -> None:
    """Two of three texts are scored, one of either label: of the third nobody says anything."""
    frame = diagnosed({"w1": ["Yes", "Yes", "No"]}, ["Yes", "No", "No"])
    frame.loc[2, "missing_reason"] = "too long"
    found = told(frame, DIAGNOSIS, YES_NO)
    for name in (MAJORITY, CHANCE):
        assert only(found, "accuracy", description_class=name).n == 2
    assert only(found, "accuracy", description_class=MAJORITY).value == 0.0
    assert (only(found, "accuracy").value, only(found, "accuracy").null_value) == (50.0, 50.0)
    rows = [
        {"document": f"d{at}", "gold": "a", "answer": "a", "passage": text} for at, text in enumerate(["a b", "c", "c"])
    ]
    written = table(rows)
    written.loc[2, "missing_reason"] = "too long"
    found = told(written, REPHRASING)
    assert only(found, "token_f1", description_class=COPY).value == pytest.approx(100 / 3)
    assert only(found, "token_f1").null_value == 33.33


def test_each_setting_has_the_baseline_of_its_own_texts() -> None:
    """The copies of one model's texts are right, and those of the other's are not."""
    rows = [
        {"document": f"d{at}", "passage": "aabb"[at], "model": model, "missing_reason": "" if at in kept else "lost"}
        for model, kept in (("m", (0, 1)), ("n", (2, 3)))
        for at in range(4)
    ]
    found = told(table(rows).assign(gold="a", answer="a"), REPHRASING)
    assert [only(found, "token_f1", model=model).null_value for model in "mn"] == [100.0, 0.0]
    assert [only(found, "bleu4", model=model).null_value for model in "mn"] == pytest.approx([100.0, 0.0], abs=100)
    assert only(found, "token_f1", description_class=COPY).value == 50.0


def test_a_score_beside_a_guess_is_tested_exactly() -> None:
    """None of 30 right where a guess is in 1 of 11: the chance of that is (10/11)^30, and twice that either way."""
    frame = identified(["nothing"] * 44, [*DIMENSIONS] * 4)
    found = only(told(frame, IDENTIFICATION, DIMENSIONS), "exact_match")
    assert found.p == pytest.approx(2 * (10 / 11) ** 44)
    assert found.p == pytest.approx(2 * stats.binom.cdf(0, 44, 1 / 11))


@pytest.mark.parametrize("n", [6, 30])
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
    # Against the label that all other texts have: as many right answers do not show that a model is better than always saying Yes.
    if right:
        assert found.extras["above_low"] == pytest.approx(found.low - 100.0)
        assert found.extras["above_high"] > 0
    else:
        # Worse than both baselines, which by Bonferroni are two: in each text by 100 points, and than a guess by 50.
        unseen = 100 * (1 - 0.0125 ** (1 / n))
        assert found.extras["above_high"] == pytest.approx(min(-100 + 2 * unseen, -50 + unseen))


def test_texts_of_a_cluster_are_one() -> None:
    """Forty answers in five clusters say nothing of others, and in eight what eight say."""
    answers, golds = ["Yes", "Yes", "Yes", "No", "Yes"] * 8, ["Yes"] * 40
    frame = diagnosed({"w": answers}, golds)
    five = only(told(frame.assign(cluster=[f"c{at % 5}" for at in range(40)]), DIAGNOSIS, YES_NO), "accuracy")
    assert (five.value, five.extras["n_clusters"]) == (80.0, 5)
    assert math.isnan(five.low)
    eight = only(told(frame.assign(cluster=[f"c{at // 5}" for at in range(40)]), DIAGNOSIS, YES_NO), "accuracy")
    alone = only(told(diagnosed({"w": answers}, golds), DIAGNOSIS, YES_NO), "accuracy")
    exact = stats.binomtest(32, 40).proportion_ci(0.95, method="exact")
    assert (alone.low, alone.high) == pytest.approx((100 * exact.low, 100 * exact.high), abs=1e-5)
    reach = 1 - 0.025 ** (1 / 8)
    assert (eight.low, eight.high) == pytest.approx((80 - 80 * reach, 80 + 20 * reach), abs=1e-5)


def test_a_design_that_does_not_list_its_labels_is_damaged() -> None:
    frame = diagnosed(TWO_WORDINGS, GOLDS)
    with pytest.raises(UndertowError, match=r"manifest\.json: is corrupt \(its design does not say labels\)"):
        results(frame, ManifestFacts({"task": DIAGNOSIS}, "manifest.json", "its design"), 0)


def test_every_wording_has_its_score_interval_and_rank() -> None:
    """Ten, five and five of ten texts are right: the first is best, and the others share the second place."""
    said = {f"w{n}\nAnswer:": ["Yes"] * n + ["No"] * (10 - n) for n in (10, 5)} | {"again": ["No"] * 5 + ["Yes"] * 5}
    frame = diagnosed(said, ["Yes"] * 10)
    frame.loc[frame["wording"] == "again", "draw"] = 0
    table = wording_scores(frame, {"task": DIAGNOSIS, "labels": YES_NO})
    assert set(table["measure"]) == {"accuracy", "f1", "f1_macro"}
    rows = table[table["measure"] == "accuracy"].set_index("wording")
    assert rows["score"].to_dict() == {"w10\nAnswer:": 100.0, "w5\nAnswer:": 50.0, "again": 50.0}
    assert rows["rank"].to_dict() == {"w10\nAnswer:": 1, "w5\nAnswer:": 2, "again": 2}
    exact = stats.binomtest(5, 10).proportion_ci(0.95, method="exact")
    assert tuple(rows.loc["again", ["low", "high"]]) == pytest.approx((100 * exact.low, 100 * exact.high), abs=1e-5)
    assert rows.loc["w10\nAnswer:", "low"] == pytest.approx(100 * 0.025**0.1)
    f1 = table[table["measure"] == "f1"].set_index("wording")["score"]
    assert f1.to_dict() == pytest.approx({"w10\nAnswer:": 100.0, "w5\nAnswer:": 200 / 3, "again": 200 / 3})


def test_wordings_are_ranked_within_their_setting_and_missing_ones_are_counted() -> None:
    frames = [diagnosed({"a": ["Yes"] * 6, "b": ["No"] * 6}, ["Yes"] * 6, model=model) for model in "mn"]
    frame = pd.concat(frames, ignore_index=True)
    frame.loc[(frame["model"] == "n") & (frame["wording"] == "a"), "missing_reason"] = "lost"
    table = wording_scores(frame, {"task": DIAGNOSIS, "labels": YES_NO}, ["accuracy"])
    assert table[["model", "wording", "n", "n_missing"]].to_numpy().tolist() == [
        ["m", "a", 6, 0], ["m", "b", 6, 0], ["n", "a", 0, 6], ["n", "b", 6, 0]
    ]  # fmt: skip
    assert table["rank"].isna().tolist() == [False, False, True, False]
    assert table["rank"].dropna().tolist() == [1, 2, 1]


def test_draws_of_a_wording_are_taken_together() -> None:
    frames = [
        diagnosed({"a": [answer] * 6}, ["Yes"] * 6, draw=draw, shots=5) for draw, answer in enumerate(["Yes", "No"])
    ]
    table = wording_scores(pd.concat(frames, ignore_index=True), {"task": DIAGNOSIS, "labels": YES_NO}, ["accuracy"])
    assert table[["score", "n"]].to_numpy().tolist() == [[50.0, 12]]


def test_dimensions_are_tested_against_texts_dealt_at_random_unless_they_are_few() -> None:
    """Twelve texts of each of two: the exact chance that dealing puts as many right answers on one side."""
    golds = ["race"] * 12 + ["age"] * 12
    answers = ["race"] * 9 + ["none"] * 3 + ["age"] * 2 + ["none"] * 10
    found = told(identified(answers, golds), IDENTIFICATION, DIMENSIONS)
    (gap,) = [one for one in found if one.measure == "dimension_gap"]
    assert gap.value == pytest.approx(100 * (9 - 2) / 12)
    assert gap.note == "race less age"
    exact = stats.fisher_exact(np.array([[9, 3], [2, 10]])).pvalue
    assert gap.p == pytest.approx(exact, abs=0.003)
    assert gap.low <= gap.value <= gap.high
    assert (gap.low > 0) == (gap.p < 0.05)
    golds = ["race"] * 12 + ["age"] * 5
    found = told(identified(golds, golds), IDENTIFICATION, DIMENSIONS)
    assert not [one for one in found if one.measure == "dimension_gap"]


def test_q_is_over_all_tests_and_an_interval_that_leaves_out_0_says_what_q_says() -> None:
    rng = np.random.default_rng(6)
    easy = {"race": 0.9, "age": 0.3, "gender": 0.5}
    frames = []
    for model, help_of_word in (("m", 0.4), ("n", 0.0)):
        for word in ("x", "y"):
            golds = [name for name in easy for _ in range(20)]
            right = [rng.random() < easy[gold] - help_of_word * (word == "x") for gold in golds]
            answers = [gold if one else "none" for gold, one in zip(golds, right, strict=True)]
            frames.append(identified(answers, golds, model=model, wording=word, slot_s=word))
    found = told(pd.concat(frames, ignore_index=True), IDENTIFICATION, DIMENSIONS)
    tested = [one for one in found if math.isfinite(one.p)]
    assert {one.measure for one in tested} == {"exact_match", "dimension_gap", "slot_effect"}
    assert [one.q for one in tested] == pytest.approx(stats.false_discovery_control([one.p for one in tested]).tolist())
    assert {one.q < 0.05 for one in tested} == {True, False}
    for one in tested:
        low, high = one.extras["claim_low"], one.extras["claim_high"]
        assert (low > 0 or high < 0) == (one.q < 0.05)
        plain = (
            (one.extras["above_low"], one.extras["above_high"]) if one.measure == "exact_match" else (one.low, one.high)
        )
        assert low <= plain[0] + 1e-6
        assert plain[1] <= high + 1e-6
        assert (plain[0] > 0 or plain[1] < 0) == (one.p <= 0.05)


def test_only_the_first_measure_of_a_task_is_claimed_and_a_single_test_keeps_its_interval() -> None:
    golds = ["Yes", "No"] * 8
    answers = [{"Yes": "No", "No": "Yes"}[gold] if at < 6 else gold for at, gold in enumerate(golds)]
    (one,) = [one for one in told(diagnosed({"w1": answers}, golds), DIAGNOSIS, YES_NO) if math.isfinite(one.p)]
    assert (one.measure, one.p > 0.05, one.q) == ("accuracy", True, one.p)
    names = ("claim_low", "claim_high", "above_low", "above_high")
    low, high, *plain = (one.extras[name] for name in names)
    assert [low, high] == pytest.approx(plain)


def test_models_that_guess_are_seldom_better_or_worse_than_the_best_answer_without_a_model() -> None:
    """Model, guess and most frequent label are all right on half of other texts: p below 0.05 in one of twenty sets or fewer."""
    rng = np.random.default_rng(3)
    ps = []
    for _ in range(100):
        golds, answers = (rng.choice(["Yes", "No"], 12).tolist() for _ in range(2))
        (answered,) = score_answers(diagnosed({"w": answers}, golds), {"task": DIAGNOSIS, "labels": YES_NO}).values()
        gain = Baselines(2).gain(answered, "accuracy")
        assert gain is not None
        ps.append(gain.p)
    assert np.mean(np.array(ps) < 0.05) <= 0.07
