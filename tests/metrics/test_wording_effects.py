from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from undertow.metrics.text.scores import ALL, DIAGNOSIS, EXTRACTION, IDENTIFICATION, Claim, score_answers
from undertow.metrics.text.tasks import results
from undertow.metrics.text.wording_effects import estimate_slot_effects, slot_levels, slot_table, variance_results
from undertow.types import Result

N = 20
"""Documents in designs whose scores are planted: scores in steps of 5 percent."""
LABELS = ["Yes", "No"]
DESIGN = {"task": DIAGNOSIS, "labels": LABELS}


def cell(right: Sequence[bool], **factors: Any) -> pd.DataFrame:
    """One way of asking about every document."""
    rows: dict[str, Any] = {
        "model": "m", "shots": 0, "sampling": "none", "decoding": "greedy", "dimension": "", "passage": "",
        "description_class": "question", "wording": "w", "draw": 0, "missing_reason": "", "n_dropped_shots": 0, **factors,
    }  # fmt: skip
    answers = ["Yes" if one else "No" for one in right]
    return pd.DataFrame({"document": [f"d{at}" for at in range(len(right))], "gold": "Yes", "answer": answers, **rows})


def scoring(percent: float, **factors: Any) -> pd.DataFrame:
    """One way of asking that is right on so many percent of the documents."""
    n = round(percent / 100 * N)
    assert n == pytest.approx(percent / 100 * N)
    return cell([at < n for at in range(N)], **factors)


def together(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    frame = pd.concat(frames, ignore_index=True)
    for name in [name for name in frame if str(name).startswith("slot_")]:
        frame[name] = frame[name].fillna("")
    return frame


def shares(frame: pd.DataFrame, design: Mapping[str, Any] = DESIGN) -> dict[tuple[str, ...], dict[str, float]]:
    """Shares of variance by everything in their group but the source."""
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for one in variance_results(frame, score_answers(frame, design), (str(design["task"]), "accuracy")):
        assert one.measure == "share_of_variance"
        assert one.unit == "percent"
        key = tuple(one.group[name] for name in ("model", "description_class", "shots", "sampling", "decoding"))
        found.setdefault(key, {})[one.group["source"]] = one.value
    return found


def effects(frame: pd.DataFrame, design: Mapping[str, Any] = DESIGN, measure: str = "accuracy") -> list[Result]:
    effects = estimate_slot_effects(frame, score_answers(frame, design), (str(design["task"]), measure), 0)
    return [one.result if isinstance(one, Claim) else one for one in effects]


EVERYTHING = (ALL, ALL, ALL, "none", "greedy")


def test_shares_of_models_wordings_and_examples_by_hand() -> None:
    """Models are 10 points from their mean, wordings 5, numbers of examples 20: 800, 200 and 3200 of 4200 in all."""
    frame = together(
        scoring(50 + 10 * m + 5 * w + 20 * s, model=f"m{m}", wording=f"w{w}", shots=5 * (s > 0), sampling="random" if s > 0 else "none")
        for m, w, s in product((-1, 1), repeat=3)
    )  # fmt: skip
    found = shares(frame)
    assert list(found) == [(ALL, ALL, ALL, "random", "greedy")]
    ((_, sources),) = found.items()
    assert sources == {
        "model": pytest.approx(100 * 800 / 4200), "wording": pytest.approx(100 * 200 / 4200),
        "shots": pytest.approx(100 * 3200 / 4200), "interactions": pytest.approx(0, abs=1e-9),
    }  # fmt: skip


def test_what_sources_do_together_is_said_apart() -> None:
    """The second wording helps one model by 20 points and harms the other as much: no main effect at all."""
    frame = together(scoring(50 + 20 * m * w, model=f"m{m}", wording=f"w{w}") for m, w in product((-1, 1), repeat=2))
    assert shares(frame) == {
        EVERYTHING: {"model": pytest.approx(0), "wording": pytest.approx(0), "interactions": pytest.approx(100)}
    }


def test_shares_of_draws_and_classes_by_hand() -> None:
    """One prompt without examples, two draws of five.

    Settings score 40, 60 and 80, so that numbers of examples have 2 x 600 and draws 2 x 200; wordings are 5 from
    their mean, 150 in all: all of it between the classes, since each has one wording.
    """
    settings = [(0, "none", 0, 40), (5, "random", 0, 60), (5, "random", 1, 80)]
    frame = together(
        scoring(score + 5 * w, shots=shots, sampling=sampling, draw=draw, description_class=f"c{w}")
        for w in (-1, 1)
        for shots, sampling, draw, score in settings
    )
    told = variance_results(frame, score_answers(frame, DESIGN), (DIAGNOSIS, "accuracy"))
    levels = {"description class": 2, "shots": 2, "draw": 2, "interactions": None}
    assert {one.group["source"]: one.extras.get("levels") for one in told} == levels
    ((_, sources),) = shares(frame).items()
    total = 1200 + 400 + 150
    assert sources == {
        "description class": pytest.approx(100 * 150 / total), "shots": pytest.approx(100 * 1200 / total),
        "draw": pytest.approx(100 * 400 / total), "interactions": pytest.approx(0, abs=1e-9),
    }  # fmt: skip


def test_shares_are_over_the_wordings_that_every_setting_has() -> None:
    """Behind examples one of the two wordings was not asked: what it scored without them is no reason for anything."""
    frame = together(
        [
            scoring(50, wording="w1"), scoring(95, wording="w2"),
            scoring(70, wording="w1", shots=5, sampling="random"), scoring(90, wording="w1", shots=5, sampling="random", draw=1),
        ]
    )  # fmt: skip
    ((_, sources),) = shares(frame).items()
    # Settings score 50, 70 and 90 on the first wording: 600 between the numbers of examples, 200 between draws.
    assert sources == {
        "shots": pytest.approx(75.0), "draw": pytest.approx(25.0), "interactions": pytest.approx(0, abs=1e-9),
    }  # fmt: skip


def test_shares_are_had_for_each_sampling_with_the_prompts_without_examples() -> None:
    scores = {("none", 0): 50, ("random", 5): 70, ("weak-oracle", 5): 90}
    frames = [
        scoring(score + 5 * w, sampling=sampling, shots=shots, wording=f"w{w}")
        for (sampling, shots), score in scores.items()
        for w in (-1, 1)
    ]
    found = shares(together(frames))
    assert {key[3] for key in found} == {"random", "weak-oracle"}
    # 100 of 4 x 100 + 4 x 25 and of 4 x 400 + 4 x 25.
    assert found[ALL, ALL, ALL, "random", "greedy"]["shots"] == pytest.approx(80)
    assert found[ALL, ALL, ALL, "weak-oracle", "greedy"]["shots"] == pytest.approx(100 * 1600 / 1700)


def test_decodings_have_shares_of_their_own() -> None:
    moves = product((-1, 1), (("greedy", 20), ("exact", 0)))
    frames = [scoring(50 + by * w, wording=f"w{w}", decoding=decoding) for w, (decoding, by) in moves]
    found = shares(together(frames))
    assert found[EVERYTHING]["wording"] == 100
    assert math.isnan(found[ALL, ALL, ALL, "none", "exact"]["wording"])


def test_scores_that_do_not_differ_have_no_shares_and_say_so() -> None:
    frame = together([scoring(50, wording=f"w{at}") for at in range(3)])
    found = variance_results(frame, score_answers(frame, DESIGN), (DIAGNOSIS, "accuracy"))
    assert {one.group["source"] for one in found} == {"wording", "interactions"}
    assert all(math.isnan(one.value) and one.note == "the scores do not differ" for one in found)
    assert shares(scoring(50)) == {}


def test_shares_of_slots_are_of_one_class_and_average_over_draws() -> None:
    """A wording that is up in one draw is down in the other; the other class has a slot of its own."""
    frames = [
        scoring(50 + 10 * a + 20 * draw * b, wording=f"{a} {b}", slot_a=f"a{a}", slot_b=f"b{b}", draw=int(draw > 0))
        for a, b, draw in product((-1, 1), repeat=3)
    ]
    for c, draw in product(range(3), range(2)):
        frames.append(scoring(50 + 5 * c, wording=f"{c}", slot_c=f"c{c}", description_class="own", draw=draw))
    found = shares(together(frames).assign(shots=5, sampling="random"))
    assert found["m", "question", "5", "random", "greedy"] == {
        "slot a": pytest.approx(100), "slot b": pytest.approx(0, abs=1e-9), "slots together": pytest.approx(0, abs=1e-9),
    }  # fmt: skip
    assert found["m", "own", "5", "random", "greedy"] == {
        "slot c": pytest.approx(100),
        "slots together": pytest.approx(0, abs=1e-9),
    }


def test_slots_of_a_class_are_those_that_it_has() -> None:
    frame = together(
        [scoring(50, slot_a="x", slot_b="y"), scoring(50, wording="v", slot_a="z"), scoring(50, wording="", description_class="null")]
    )  # fmt: skip
    assert slot_levels(frame) == {
        ("question", "w"): {"a": "x", "b": "y"},
        ("question", "v"): {"a": "z"},
        ("null", ""): {},
    }


FIRST = [False, False, True, True, False, False, False]
OTHER = [True, True, True, False, True, True, True]


def test_an_effect_on_seven_documents_by_hand() -> None:
    """Document by document +100, +100, 0, -100 and three times +100."""
    frame = together([cell(FIRST, wording="w1", slot_target="bias"), cell(OTHER, wording="w2", slot_target="toxicity")])
    (effect,) = effects(frame)
    assert effect.measure == "slot_effect"
    assert effect.value == pytest.approx(400 / 7)
    assert effect.extras["first"] == pytest.approx(200 / 7)
    assert (effect.n, effect.n_missing, effect.unit) == (7, 0, "percentage points")
    assert (effect.extras["n_clusters"], effect.extras["n_differing"], effect.extras["n_agreeing"]) == (7, 6, 5)
    assert effect.group == {
        "model": "m", "task": DIAGNOSIS, "dimension": "all", "description_class": "question", "shots": "0", "sampling": "none",
        "decoding": "greedy", "slot": "target", "levels": "toxicity less bias",
    }  # fmt: skip
    # Of the 64 ways to sign six, all but one or none of them alike: 2 * (1 + 6).
    assert effect.p == pytest.approx(14 / 64, abs=0.01)
    # Halves of the documents have means of -100 to 100; 0 is among what is not ruled out.
    assert -100 <= effect.low <= 0 < effect.value < effect.high <= 100


def test_an_effect_of_nothing_is_not_tested() -> None:
    """No signs of no differences say anything; others may differ in as many as all seven leave possible."""
    frame = together([cell(FIRST, wording="w1", slot_s="x"), cell(FIRST, wording="w2", slot_s="y")])
    (effect,) = effects(frame)
    assert (effect.value, effect.extras["n_differing"]) == (0.0, 0)
    assert math.isnan(effect.p)
    reach = 100 * (1 - 0.025 ** (1 / 7))
    assert (effect.low, effect.high) == pytest.approx((-reach, reach))


@pytest.mark.parametrize(("n", "n_differing"), [(5, 5), (9, 5)])
def test_nothing_is_tested_where_no_signs_have_p_below_5_percent(n: int, n_differing: int) -> None:
    """Five that all agree would have p = 2 / 32; they have no place among the tests that are corrected for."""
    first, other = [False] * n, [at < n_differing for at in range(n)]
    frame = together([cell(first, wording="w1", slot_s="x"), cell(other, wording="w2", slot_s="y")])
    (effect,) = effects(frame)
    assert effect.value == pytest.approx(100 * n_differing / n)
    assert math.isnan(effect.p)
    assert effect.note.startswith("not tested")
    assert math.isnan(effect.low) == (n < 6)
    (told,) = [one for one in results(frame, DESIGN, 0) if one.measure == "slot_effect"]
    assert math.isnan(told.q)


def test_documents_that_all_differ_alike_have_an_exact_interval_or_none() -> None:
    """All of eight by 100 points: 0.025^(1/8) of all may still not. By 50 points: a bootstrap has no width, and there is no other."""
    wrong, right = [False] * 8, [True] * 8
    frame = together([cell(wrong, wording="w1", slot_s="x"), cell(right, wording="w2", slot_s="y")])
    (effect,) = effects(frame)
    assert (effect.value, effect.high) == (100.0, 100.0)
    assert effect.low == pytest.approx(-100 + 200 * 0.025 ** (1 / 8))
    half = together([frame, cell(right, wording="w3", slot_s="x"), cell(right, wording="w4", slot_s="y")])
    (effect,) = effects(half)
    assert effect.value == 50.0
    assert np.isnan([effect.low, effect.high]).all()


def test_signs_are_of_documents_and_not_of_answers() -> None:
    """Twelve wordings at each level that all say the same are no more evidence than one."""
    found = []
    for n in (1, 12):
        sides = product((("x", [False] * 7), ("y", [True] * 6 + [False])), range(n))
        frames = [cell(right, wording=f"{level} {at}", slot_s=level, slot_n=f"{at}") for (level, right), at in sides]
        found += [one for one in effects(together(frames)) if one.group["slot"] == "s"]
    of_few, of_many = found
    assert (of_few.value, of_few.p, of_few.low) == (of_many.value, of_many.p, of_many.low)


def test_an_effect_is_of_documents_that_both_sides_have_if_any() -> None:
    first = cell(FIRST, wording="w1", slot_s="x")
    first.loc[3, "missing_reason"] = "lost"
    (effect,) = effects(together([first, cell(OTHER, wording="w2", slot_s="y")]))
    assert effect.value == pytest.approx(500 / 6)
    assert (effect.n, effect.n_missing) == (6, 1)
    frame = together([cell(FIRST, wording="w1", slot_s="x"), cell(OTHER, wording="w2", slot_s="y")])
    (effect,) = effects(frame.assign(missing_reason="too long"))
    assert math.isnan(effect.value)
    assert math.isnan(effect.p)
    assert effect.note == "no answer is scored"


def test_effects_of_texts_are_of_token_f1() -> None:
    design = {"task": EXTRACTION, "labels": []}
    answers = {"x": ["a cat", "a dog"], "y": ["a cat", "a b c d"]}
    frame = together(
        cell([True, True], wording=level, slot_s=level).assign(answer=said, gold=["a cat", "a dog"])
        for level, said in answers.items()
    )
    (effect,) = effects(frame, design, "token_f1")
    # The second document: 1 word in common of 4 and 2.
    assert effect.value == pytest.approx((0 + (100 / 3 - 100)) / 2)


def test_the_table_of_slots_has_means_by_dimension() -> None:
    """The paper's own case: a word of the description moves one dimension and not the other."""
    design = {"task": IDENTIFICATION, "labels": ["politics", "race"]}
    dimensions = ["politics", "politics", "race", "race"]
    said = {"bias": ["politics", "politics", "race", "politics"], "toxicity": ["race", "race", "race", "politics"]}
    frame = together(
        cell([True] * 4, wording=f"{word} {task}", slot_target=word, slot_task=task).assign(
            answer=answers, gold=dimensions, dimension=dimensions
        )
        for word, answers in said.items()
        for task in ("identify", "generate")
    )
    table = slot_table(frame, score_answers(frame, design), "exact_match")
    rows = table[table["slot"] == "target"].set_index(["dimension", "level"])
    assert rows["exact_match"].to_dict() == {
        ("all", "bias"): 75.0, ("all", "toxicity"): 25.0, ("politics", "bias"): 100.0, ("politics", "toxicity"): 0.0,
        ("race", "bias"): 50.0, ("race", "toxicity"): 50.0,
    }  # fmt: skip
    assert set(rows["cells"]) == {2}
    assert set(table["slot"]) == {"target", "task"}
    assert list(table.columns) == [
        "model", "dimension", "description_class", "shots", "sampling", "decoding", "slot", "level", "cells", "exact_match",
    ]  # fmt: skip
    frame = scoring(50)
    assert slot_table(frame, score_answers(frame, DESIGN), "accuracy").empty


WORDS = (("bias", "text"), ("toxicity", "previous text"))


def aliased(n: int = 40, seed: int = 1, pairs: Sequence[tuple[str, str]] = WORDS) -> pd.DataFrame:
    """Two verbs crossed with pairs of words; toxicity alone lowers the score, and what stands beside it does nothing."""
    rng = np.random.default_rng(seed)
    return together(
        cell((rng.random(n) < (0.8 if target == "bias" else 0.4)).tolist(), wording=f"{verb} {target} {text}", slot_verb=verb,
             slot_target=target, slot_text=text)
        for verb in ("identify", "generate")
        for target, text in pairs
    )  # fmt: skip


def test_slots_that_always_change_together_are_told_as_a_set() -> None:
    found = {one.group["slot"]: one for one in effects(aliased())}
    assert list(found) == ["target + text", "verb"] or list(found) == ["verb", "target + text"]
    both = found["target + text"]
    assert both.group["levels"] == "toxicity + previous text less bias + text"
    assert both.value == pytest.approx(-40, abs=12)
    assert both.p < 0.001
    assert "cannot be separated" in both.note
    assert found["verb"].note == ""
    told = [one for one in results(aliased(), DESIGN, 0) if one.measure == "slot_effect"]
    assert [one.group["slot"] for one in told if one.q < 0.05] == ["target + text"]


def test_a_level_that_always_goes_with_another_is_told_with_it() -> None:
    """z never comes without v: what z does, and what v does, cannot be told apart; that y scores 20 more than x can."""
    rows = [("x", "u", 20), ("y", "u", 40), ("z", "v", 90)]
    frame = together([scoring(score, wording=a, slot_a=a, slot_b=b) for a, b, score in rows])
    found: dict[str, Any] = {one.group["levels"]: (one.group["slot"], one.value) for one in effects(frame)}
    assert found == {
        "y + u less x + u": ("a + b", pytest.approx(20)), "z + v less x + u": ("a + b", pytest.approx(70)),
        "z + v less y + u": ("a + b", pytest.approx(50)),
    }  # fmt: skip


def test_slots_that_too_few_wordings_mix_are_not_told_at_all() -> None:
    """Three of the four wordings that would tell three slots apart."""
    rows = [("0", "0", "0", 20), ("0", "1", "1", 50), ("1", "0", "1", 80)]
    frame = together([scoring(score, wording=a + b + c, slot_a=a, slot_b=b, slot_c=c) for a, b, c, score in rows])
    (effect,) = effects(frame)
    assert effect.group["slot"] == "a + b + c"
    assert math.isnan(effect.value)
    assert "too few wordings" in effect.note
    assert not [one for one in results(frame, DESIGN, 0) if one.measure == "slot_effect" and math.isfinite(one.value)]
    # The fourth tells them apart.
    whole = together([frame, scoring(60, wording="110", slot_a="1", slot_b="1", slot_c="0")])
    assert {one.group["slot"] for one in effects(whole)} == {"a", "b", "c"}


@pytest.mark.parametrize("seed", range(2))
def test_effects_are_those_of_least_squares(seed: int) -> None:
    """Statsmodels' fit of the scores of each document, averaged; seven wordings of a factorial of twelve."""
    from statsmodels.formula.api import ols

    rng = np.random.default_rng(seed)
    rows = [("x", "u"), ("y", "u"), ("z", "v"), ("z", "u"), ("x", "v"), ("y", "w"), ("x", "w")]
    right = rng.random((len(rows), 12)) < 0.5
    frame = together(
        [cell(some.tolist(), wording=a + b, slot_a=a, slot_b=b) for (a, b), some in zip(rows, right, strict=True)]
    )
    found = {one.group["levels"]: one.value for one in effects(frame)}
    scores = pd.DataFrame(
        [{"a": a, "b": b, "score": 100.0 * one} for (a, b), some in zip(rows, right, strict=True) for one in some]
    )
    fitted = ols("score ~ a + b", scores).fit().params
    assert len(found) == 3 + 3, "each pair of levels is compared"
    assert found["y less x"] == pytest.approx(fitted["a[T.y]"])
    assert found["z less y"] == pytest.approx(fitted["a[T.z]"] - fitted["a[T.y]"])
    assert found["w less v"] == pytest.approx(fitted["b[T.w]"] - fitted["b[T.v]"])


def test_shares_of_slots_that_change_together_are_of_them_together() -> None:
    """Half of the wordings 20 points above the others: all of it of both slots, and none of one of them."""
    frame = together(
        scoring(40 + 20 * a, wording=f"{a}{b}", slot_a=f"a{a}", slot_c=f"c{a}", slot_b=f"b{b}")
        for a, b in product((0, 1), repeat=2)
    )
    ((_, found),) = ((key, some) for key, some in shares(frame).items() if "question" in key)
    assert found == {
        "slot a + c": pytest.approx(100), "slot b": pytest.approx(0, abs=1e-9), "slots together": pytest.approx(0, abs=1e-9),
    }  # fmt: skip


def by_dimension(n: int, moved: str = "politics") -> pd.DataFrame:
    """The paper's own case: of one dimension all texts are right with one word and none with the other; of the others it does nothing."""
    rng = np.random.default_rng(2)
    names = ["politics", "race", "age", "gender"]
    dimensions = [name for name in names for _ in range(n)]
    frames = []
    for word, verb in product(("type", "dimension"), map(str, range(6))):
        right = [word == "type" if name == moved else rng.random() < 0.4 for name in dimensions]
        answers = [name if one else "nothing" for name, one in zip(dimensions, right, strict=True)]
        frames.append(
            cell(right, wording=word + verb, slot_word=word, slot_verb=verb).assign(
                answer=answers, gold=dimensions, dimension=dimensions
            )
        )
    return together(frames)


OF_DIMENSIONS = {"task": IDENTIFICATION, "labels": ["politics", "race", "age", "gender"]}


def test_an_effect_on_one_dimension_is_found_there() -> None:
    found = [
        one for one in results(by_dimension(16), OF_DIMENSIONS, 0) if one.measure == "slot_effect" and one.q < 0.05
    ]
    of_word = {one.group["dimension"]: one for one in found if one.group["slot"] == "word"}
    assert set(of_word) <= {"politics", ALL}
    politics = of_word["politics"]
    assert (politics.value, politics.extras["first"], politics.n) == (-100.0, 100.0, 16)


def test_an_effect_is_tested_over_all_texts_and_by_dimension() -> None:
    told = [one for one in results(by_dimension(8), OF_DIMENSIONS, 0) if one.measure == "slot_effect"]
    assert len(told) == (1 + 15) * (1 + 4)
    tested = [one for one in told if math.isfinite(one.p)]
    assert all(math.isfinite(one.q) for one in tested)
    assert {one.group["dimension"] for one in tested} == {ALL, "politics", "race", "age", "gender"}
    whole = next(one for one in told if one.group["slot"] == "word" and one.group["dimension"] == ALL)
    parts = [one for one in told if one.group["slot"] == "word" and one.group["dimension"] != ALL]
    assert whole.value == pytest.approx(np.mean([one.value for one in parts]))
    frame = by_dimension(8)
    frame["dimension"] = "politics"
    assert {one.group["dimension"] for one in effects(frame, OF_DIMENSIONS, "exact_match")} == {ALL}


def test_clusters_of_texts_flip_together() -> None:
    """Twenty-four texts in six clusters that agree: p of six."""
    frame = together(
        [cell([False] * 24, wording="w1", slot_s="x"), cell([True] * 23 + [False], wording="w2", slot_s="y")]
    ).assign(cluster=[f"c{at % 6}" for at in [*range(24)] * 2])
    (effect,) = effects(frame)
    assert (effect.n, effect.extras["n_clusters"]) == (24, 6)
    assert effect.p == pytest.approx(2 / 64, abs=0.005)
