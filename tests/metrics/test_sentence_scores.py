from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from undertow.errors import UndertowError
from undertow.metrics.sentence_scores import FEATURE_FLOOR, KEYS, NO_W, features, score_names, sentence_scores

GROUPS = ["warm", "cold", "mild"]
Masses = Sequence[float]


RUN = {"model": "m", "prompt": "", "challenge": "c", "w_name": "date", "cluster": "k", "missing_reason": ""}


def asked(sentence: str, *masses: Masses, w_index: Sequence[int] = (), **factors: Any) -> list[dict[str, Any]]:
    """The rows of one sentence, one for each W value."""
    rows = []
    for index, values in zip(w_index or range(len(masses)), masses, strict=True):
        row = {"sentence": sentence, "w_index": index, "w": f"w{index}", "item": f"{sentence}/{index}", "text": "___ w"}
        rows.append(RUN | row | factors | dict(zip(GROUPS, values, strict=True)))
    return rows


def scores(*rows: list[dict[str, Any]], endpoint_window: int = 1) -> pd.DataFrame:
    """Scored sentences, by sentence."""
    frame = pd.DataFrame([row for part in rows for row in part])
    return sentence_scores(frame, GROUPS, endpoint_window).set_index("sentence", drop=False)


def of(table: pd.DataFrame, sentence: str, *names: str) -> list[float]:
    return [float(table.loc[sentence, name]) for name in names]  # type: ignore[arg-type]


def each(prefix: str) -> list[str]:
    return [f"{prefix}_{group}" for group in GROUPS]


@pytest.fixture
def four() -> pd.DataFrame:
    return scores(
        asked("some", [50, 50, 0], [100, 0, 0]),
        asked("all", [100, 0, 0], [0, 100, 0]),
        asked("none", [100 / 3] * 3, [100 / 3] * 3),
        # Live masses are shares, but what others wrote down need not be: shares are 50 50 0 and 75 0 25.
        asked("parts", [20, 20, 0], [30, 0, 10]),
    )


def test_levels_and_movements(four: pd.DataFrame) -> None:
    assert of(four, "some", *each("mean")) == [75, 25, 0]
    assert of(four, "some", *each("shift")) == [50, -50, 0]
    assert of(four, "some", *each("delta")) == [50, 50, 0]
    assert of(four, "all", *each("delta")) == [100, 100, 0]
    assert of(four, "none", *each("delta")) == [0, 0, 0]
    assert of(four, "parts", *each("mean")) == [62.5, 25, 12.5]
    assert of(four, "parts", *each("shift")) == [25, -50, 25]
    assert of(four, "parts", *each("delta")) == [25, 50, 25]
    assert four["total_variation"].tolist() == [50, 100, 0, 50]


def test_entropy_is_in_percent_of_the_most_it_can_be(four: pd.DataFrame) -> None:
    """Of shares 75 and 25; of one half each; of three equal ones; of 62.5, 25 and 12.5."""
    bits = [
        -sum(share * math.log2(share) for share in shares)
        for shares in ((0.75, 0.25), (0.5, 0.5), (0.625, 0.25, 0.125))
    ]
    expected = [bits[0], bits[1], math.log2(3), bits[2]]
    assert four["entropy"].to_numpy() == pytest.approx(100 * np.array(expected) / math.log2(3))


def test_two_values_have_no_slope(four: pd.DataFrame) -> None:
    assert four[each("slope")].isna().to_numpy().all()


def test_slopes_are_movements_along_a_line_through_every_value() -> None:
    """Of 10 10 10 30 the slope is 6 a step, 18 from end to end; what rises and falls again has none."""
    table = scores(
        asked("bent", [10, 40, 50], [10, 10, 80], [10, 10, 80], [30, 40, 30]),
        asked("even", [40, 10, 50], [30, 20, 50], [20, 30, 50], [10, 40, 50]),
    )
    assert of(table, "bent", *each("slope")) == pytest.approx([18, 0, 18])
    assert of(table, "bent", *each("delta")) == [20, 0, 20]
    assert of(table, "even", *each("slope")) == pytest.approx([30, 30, 0])
    assert of(table, "even", *each("shift")) == [-30, 30, 0]


def test_the_index_of_w_is_what_a_slope_is_over_and_rows_come_in_any_order() -> None:
    rows = asked("s", [10, 90, 0], [20, 80, 0], [60, 40, 0], w_index=[3, 4, 8])
    table = scores([rows[2], rows[0], rows[1]])
    assert of(table, "s", *each("slope")) == pytest.approx([50, 50, 0])
    assert of(table, "s", *each("shift")) == [50, -50, 0]


def test_several_values_at_either_end_are_averaged() -> None:
    """First are 20 of 10 and 30, last 70 of 80 and 60; the value between is not among them."""
    rows = asked("s", [10, 90, 0], [30, 60, 10], [100, 0, 0], [80, 0, 20], [60, 0, 40])
    table = scores(rows, endpoint_window=2)
    assert of(table, "s", *each("shift")) == [50, -75, 25]
    assert of(table, "s", *each("mean")) == [45, 37.5, 17.5]
    assert table["total_variation"].item() == 75
    of_mean = -sum(share * math.log2(share) for share in (0.45, 0.375, 0.175))
    assert table["entropy"].item() == pytest.approx(100 * of_mean / math.log2(3))
    assert of(scores(rows), "s", *each("shift")) == [50, -90, 40]


@pytest.mark.parametrize("first", [[95.4, 0.8, 3.7], [60.0, 40.0, 0.5], [60.2, 39.3, 0.0], [0.0, 0.0, 0.0]])
def test_masses_that_add_up_but_for_rounding_are_left_alone(first: list[float]) -> None:
    table = scores(asked("s", first, [100, 0, 0]))
    shift = [100 - first[0], -first[1], -first[2]]
    assert of(table, "s", *each("shift")) == pytest.approx(shift, abs=1e-12)


def test_masses_that_are_further_from_100_are_made_shares() -> None:
    table = scores(asked("s", [60, 39, 0], [60, 41, 0]))
    assert of(table, "s", *each("shift")) == pytest.approx([60 / 1.01 - 60 / 0.99, 41 / 1.01 - 39 / 0.99, 0])


def test_a_row_of_zeros_moves_but_is_no_distribution() -> None:
    table = scores(asked("gone", [30, 60, 10], [0, 0, 0]), asked("there", [30, 60, 10], [30, 60, 10]))
    assert of(table, "gone", *each("delta")) == [30, 60, 10]
    assert of(table, "gone", *each("mean")) == [15, 30, 5]
    assert np.isnan(of(table, "gone", "total_variation", "jensen_shannon", "entropy")).all()
    assert table["missing_reason"].tolist() == ["", ""]
    assert table.loc["there", "total_variation"] == 0
    assert np.isnan(features(table, GROUPS)).any(axis=1).tolist() == [True, False]


def test_the_reason_of_either_end_is_the_sentence_s_own() -> None:
    unknown = [math.nan] * 3
    rows = [asked(name, [30, 60, 10], [20, 60, 20], [10, 60, 30], [10, 60, 30]) for name in "abcd"]
    rows[0][0] |= {"missing_reason": "too long"} | dict(zip(GROUPS, unknown, strict=True))
    rows[1][3] |= {"missing_reason": "no number"} | dict(zip(GROUPS, unknown, strict=True))
    rows[2][1] |= {"missing_reason": "too long"} | dict(zip(GROUPS, unknown, strict=True))
    table = scores(*rows)
    assert table["missing_reason"].tolist() == ["too long", "no number", "", ""]
    names = [name for name in score_names(GROUPS) if name != "entropy_plain"]
    assert table.loc[["a", "b"], [*names, *each("mean"), *each("shift")]].isna().to_numpy().all()
    # In between, one value less: the slope does without it.
    assert table.loc[["c", "d"], names].notna().to_numpy().all()
    assert table.loc["c", "slope_warm"] == pytest.approx(3 * np.polyfit([0, 2, 3], [30, 10, 10], 1)[0] * -1)
    # With two values at either end the second counts too.
    assert scores(*rows, endpoint_window=2)["missing_reason"].tolist() == ["too long", "no number", "too long", ""]


def test_masses_beside_a_reason_are_not_believed() -> None:
    rows = asked("s", [30, 60, 10], [20, 60, 20])
    rows[0]["missing_reason"] = "not asked"
    table = scores(rows)
    assert np.isnan(of(table, "s", "delta_warm", "entropy", "total_variation")).all()


def test_a_sentence_that_lacks_an_end_is_missing() -> None:
    rows = [asked(name, [30, 60, 10], [20, 60, 20], [10, 60, 30]) for name in "abc"]
    table = scores(rows[0], rows[1][:2], [rows[2][0], rows[2][2]])
    assert table["missing_reason"].tolist() == ["", "the run lacks some of its W values", ""]
    assert math.isnan(of(table, "b", "delta_warm")[0])
    assert table.loc["c", "delta_warm"] == 20


def test_too_few_values_are_refused() -> None:
    rows = asked("s", [30, 60, 10], [20, 60, 20], [10, 60, 30])
    with pytest.raises(
        UndertowError, match="3 W values are too few for a movement between the first 2 and the last 2; use at least 4"
    ):
        scores(rows, endpoint_window=2)
    with pytest.raises(UndertowError, match="1 W values are too few"):
        scores(rows[:1])


def test_without_any_w_there_is_nothing_to_score() -> None:
    with pytest.raises(UndertowError, match="no sentence with a W"):
        scores(asked("s", [30, 60, 10], w_name=NO_W))


def test_plain_entropy_is_that_of_the_sentence_without_w() -> None:
    ends = ([100, 0, 0], [100, 0, 0])
    table = scores(
        asked("plain", *ends),
        asked("not asked so", *ends),
        asked("missing_reason", *ends, missing_reason="too long"),
        asked("zeros", *ends),
        asked("plain", [20, 20, 0], w_name=NO_W),
        asked("missing_reason", [50, 50, 0], w_name=NO_W),
        asked("zeros", [0, 0, 0], w_name=NO_W),
    )
    assert table["sentence"].tolist() == ["plain", "not asked so", "missing_reason", "zeros"]
    assert table.loc["plain", "entropy_plain"] == pytest.approx(100 / math.log2(3))
    assert table.loc["plain", "entropy"] == 0
    assert table["entropy_plain"].isna().tolist() == [False, True, True, True]


def test_plain_entropy_is_of_the_same_model_prompt_and_set_for_every_w() -> None:
    ends = ([100, 0, 0], [100, 0, 0])
    keys: list[dict[str, Any]] = [{"model": "n"}, {"prompt": "B"}, {"challenge": "d"}]
    frame = pd.DataFrame(
        [
            *asked("s", *ends),
            *asked("s", *ends, w_name="place"),
            *(row for key in keys for row in asked("s", *ends, **key)),
            *asked("s", [50, 50, 0], w_name=NO_W),
            *asked("s", [100, 0, 0], w_name=NO_W, model="n"),
        ]
    )
    table = sentence_scores(frame, GROUPS)
    expected = [100 / math.log2(3)] * 2 + [0, math.nan, math.nan]
    assert table["entropy_plain"].tolist() == pytest.approx(expected, nan_ok=True)


def test_sentences_come_as_they_were_asked_with_their_factors() -> None:
    ends: tuple[Masses, Masses] = ([30, 60, 10], [20, 60, 20])
    clerk: dict[str, Any] = {"occupation": "clerk", "well_specified": False}
    table = scores(
        asked("zebra", *ends, occupation="cook", well_specified=True),
        asked("ant", *ends, **clerk),
        asked("ant", [30, 60, 10], [40, 50, 10], model="n", **clerk),
        asked("ant", [30, 60, 10], [30, 60, 10], [70, 20, 10], w_name="place", **clerk),
    )
    names = ["sentence", "model", "w_name", "occupation", "well_specified", "shift_warm", "delta_warm"]
    assert table[names].to_numpy().tolist() == [
        ["zebra", "m", "date", "cook", True, -10, 10],
        ["ant", "m", "date", "clerk", False, -10, 10],
        ["ant", "n", "date", "clerk", False, 10, 10],
        ["ant", "m", "place", "clerk", False, 40, 40],
    ]
    assert {*KEYS, "cluster", "missing_reason", *score_names(GROUPS)} <= set(table)
    # What belongs to one row of the observations and not to the sentence.
    assert not {"w", "w_index", "item", *GROUPS} & set(table)


def test_features_by_hand() -> None:
    table = scores(asked("s", [50, 50, 0], [100, 0, 0]), asked("t", [30, 60, 10], [30, 60, 10]))
    odds = [math.log((share + FEATURE_FLOOR) / (1 - share + FEATURE_FLOOR)) for share in (0.75, 0.25, 0)]
    sizes = [math.log(0.5 + FEATURE_FLOOR), math.log(of(table, "s", "entropy")[0] / 100 + FEATURE_FLOOR)]
    found = features(table, GROUPS)
    np.testing.assert_allclose(found[0], [*sizes, *odds, *np.square(odds)])
    assert found.shape == (2, 8)
    # Half of what masses are rounded to stands for nothing at all, so that a logarithm can be taken.
    assert found[1, 0] == pytest.approx(math.log(0.0005))


shares = st.lists(st.integers(0, 20), min_size=3, max_size=3).filter(any)
sentences = st.lists(st.tuples(shares, shares), min_size=1, max_size=6)


@settings(max_examples=20)
@given(sentences)
def test_scores_keep_their_bounds_and_agree_with_scipy(pairs: list[tuple[list[int], list[int]]]) -> None:
    table = scores(*(asked(f"s{number}", *pair) for number, pair in enumerate(pairs)))
    deltas = table[each("delta")].to_numpy()
    assert (deltas.max(axis=1) <= table["total_variation"] + 1e-9).all()
    assert (table["total_variation"] <= 100 + 1e-9).all()
    assert table["entropy"].between(0, 100 + 1e-9).all()
    assert (table["jensen_shannon"] <= table["total_variation"] + 1e-9).all()
    np.testing.assert_allclose(table[each("mean")].sum(axis=1), 100)
    np.testing.assert_allclose(table[each("shift")].sum(axis=1), 0, atol=1e-9)
    expected = [100 * jensenshannon(first, last, base=2) ** 2 for first, last in pairs]
    np.testing.assert_allclose(table["jensen_shannon"], expected, atol=1e-6)
