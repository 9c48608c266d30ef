from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from undertow.stats import benjamini_hochberg
from undertow.stats.significance.false_discovery import adjust_p_values, q_values
from undertow.types import Result

p_values = st.lists(st.floats(0, 1), min_size=1, max_size=20)


@settings(max_examples=40)
@given(p=p_values)
def test_agrees_with_statsmodels(p: list[float]) -> None:
    assert benjamini_hochberg(p) == pytest.approx(multipletests(p, method="fdr_bh")[1])


@settings(max_examples=40)
@given(p=p_values, at=st.integers(0, 20))
def test_a_test_that_was_not_made_stays_nan_and_changes_no_other(p: list[float], at: int) -> None:
    place = min(at, len(p))
    q = benjamini_hochberg([*p[:place], math.nan, *p[place:]])
    assert math.isnan(q[place])
    np.testing.assert_array_equal(np.delete(q, place), benjamini_hochberg(p))


def test_nothing_gives_nothing_and_what_is_no_p_value_is_refused() -> None:
    assert benjamini_hochberg([]).shape == (0,)
    assert np.isnan(benjamini_hochberg([math.nan, math.nan])).all()
    with pytest.raises(ValueError, match=r"0 and 1|\[0, 1\]"):
        benjamini_hochberg([0.5, 1.5])


def test_families_are_adjusted_apart_and_what_is_in_none_keeps_its_q() -> None:
    p, families = [0.01, 0.02, 0.03, 0.04, math.nan], ["a", "b", None, "a", "a"]
    expected = [0.02, 0.02, math.nan, 0.04, math.nan]
    assert q_values(p, families) == pytest.approx(expected, nan_ok=True)
    results = [Result(str(at), {}, 0.0, p=one, q=0.5) for at, one in enumerate(p)]
    adjusted = adjust_p_values(results, lambda one: families[int(one.measure)])
    assert [one.q for one in adjusted] == pytest.approx([0.02, 0.02, 0.5, 0.04, 0.5])
