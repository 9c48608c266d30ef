"""How often the intervals of an audit hold the truth: 95 of 100 times, by simulation.

Audits are drawn from worlds whose slope, AUROC or difference is known, and measured by what real audits are measured by: in full
(soak) 2,000 of each kind and number of clusters, within 1.5 points; here 200 that are always the same, within 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from helpers.sampled_cases import briefly
from undertow.metrics import score_table
from undertow.metrics.drift import covariate_association
from undertow.metrics.drift.covariate_association import measure_association
from undertow.metrics.specification_detection import Threshold, detect
from undertow.runs.compare.differences import MAX_GROUPS
from undertow.runs.compare.resampling import groups_of
from undertow.stats import fit_rows
from undertow.stats.significance.sign_flip import JackknifeReplicates, paired_errors
from undertow.types import Result

Floats = NDArray[np.float64]
Held: TypeAlias = tuple[int, int]
"""How many intervals hold the truth, of how many."""

N_FULL, N_SHORT = 2000, 200
SLOPE, N_W = 0.2, 10
GAP, BETWEEN = 1.0, 0.7
"""How far positives lie above negatives, and the standard deviation of the clusters' levels, in that of sentences."""
AREA = float(ndtr(GAP / math.sqrt(2 * (1 + BETWEEN**2))))
"""The chance that a positive of one cluster scores above a negative of another."""
CLUSTERS = (60, 20, 10)
"""The sets of the package have 60; a user's own may have a handful."""


def masses(n: int, n_clusters: int, rng: np.random.Generator, slope: float = SLOPE) -> Floats:
    """Percent of one word group in n audits [audit, cluster, w]."""
    steps = np.arange(N_W) - (N_W - 1) / 2
    levels = 40 + rng.normal(0, 6, (n, n_clusters, 1))
    slopes = slope + rng.normal(0, 0.6, (n, n_clusters, 1))
    found: Floats = levels + slopes * steps + rng.normal(0, 2, (n, n_clusters, N_W))
    return found


def slopes_held(n: int, n_clusters: int, rng: np.random.Generator) -> Held:
    """Through `measure_association`, as `spurious-correlation` calls it: for other sentences at these values.

    Each audit is a model of its own; of noise that the values have, see tests/stats/test_trend.py.
    """
    found: list[Result] = []
    for done in range(0, n, 50):
        size = min(50, n - done)
        index = pd.MultiIndex.from_product(
            [range(size), range(n_clusters), range(N_W)], names=["model", "cluster", "w_index"]
        )
        frame = index.to_frame(index=False)
        frame = frame.assign(
            model=frame["model"].astype(str), cluster=frame["cluster"].astype(str), challenge="set", prompt="", w_name="date",
            missing_reason="", other_words=0.0, female=masses(size, n_clusters, rng).ravel(),
        )  # fmt: skip
        found += [one for one in measure_association(frame, ["female"], [], seed=done) if one.measure == "slope"]
    return sum(one.extras["sentences_low"] <= SLOPE <= one.extras["sentences_high"] for one in found), len(found)


def areas_held(n: int, n_clusters: int, rng: np.random.Generator) -> Held:
    """Through `detect`, as `task-specification` calls it: eight sentences of each occupation, half of them unspecified."""
    held, of_cluster = 0, 8
    cluster = np.repeat([str(one) for one in range(n_clusters)], of_cluster)
    positive = np.tile(np.arange(of_cluster) % 2 == 0, n_clusters)
    for at in range(n):
        levels = np.repeat(rng.normal(0, BETWEEN, n_clusters), of_cluster)
        scores = levels + GAP * positive + rng.normal(0, 1, len(cluster))
        frame = pd.DataFrame(
            {
                "model": "m", "prompt": "", "challenge": "set", "w_name": "date", "cluster": cluster, "missing_reason": "",
                "well_specified": ~positive, "delta_female": scores, "mean_female": 50.0, "shift_female": scores,
            }
        )  # fmt: skip
        (found,) = [one for one in detect(frame, ["female"], Threshold(), seed=at) if one.measure == "auroc"]
        held += found.low <= AREA <= found.high
    return held, n


def differences_held(n: int, n_clusters: int, rng: np.random.Generator) -> Held:
    """Through `paired_errors`, as `undertow compare` calls it: both runs lose the same clusters, or groups of them."""
    planted = 0.3
    shared = masses(n, n_clusters, rng)
    both = [shared + masses(n, n_clusters, rng, slope) - 40 for slope in (0.0, planted)]
    groups, n_groups = groups_of([str(one) for one in range(n_clusters)], MAX_GROUPS, 0)

    def differences(kept: NDArray[np.bool_]) -> Floats:
        first, second = (fit_rows(np.arange(N_W), run[:, kept].mean(axis=1))[0] for run in both)
        return second - first

    whole = differences(np.ones(n_clusters, dtype=bool))
    without = np.array([differences(groups != group) for group in range(n_groups)])
    errors = paired_errors(whole, [JackknifeReplicates(without, np.ones(without.shape, dtype=bool))])
    return int(((errors.low <= planted) & (planted <= errors.high)).sum()), n


KINDS: dict[str, Callable[[int, int, np.random.Generator], Held]] = {
    "slope": slopes_held, "auroc": areas_held, "difference": differences_held,
}  # fmt: skip


@pytest.fixture(autouse=True)
def untested(monkeypatch: pytest.MonkeyPatch) -> None:
    """p-values and power have simulations of their own, and would take most of the time."""
    monkeypatch.setattr(score_table, "N_PERMUTATIONS", 1)
    monkeypatch.setattr(covariate_association, "detectable_slope", lambda x, parts: math.nan)


SHORT = [(kind, 10, N_SHORT, 0.04) for kind in ("slope", "difference")]
FULL = [(kind, n_clusters, N_FULL, 0.015) for kind in KINDS for n_clusters in CLUSTERS]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "n_clusters", "n_audits", "most"), briefly([*SHORT, *FULL], len(SHORT)))
def test_intervals_hold_the_truth_in_95_of_100_audits(
    kind: str, n_clusters: int, n_audits: int, most: float, measured: Callable[[str], None]
) -> None:
    held, n = KINDS[kind](n_audits, n_clusters, np.random.default_rng(7))
    measured(f"{kind} of {n_clusters} clusters: {held:,} of {n:,} intervals hold the truth, {held / n:.1%}")
    assert n == n_audits
    assert abs(held / n - 0.95) <= most, held / n
