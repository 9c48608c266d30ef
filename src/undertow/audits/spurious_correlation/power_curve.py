"""Power of spurious correlation: noise estimated from a run, and the smallest detectable change."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from undertow.errors import UndertowError
from undertow.metrics.covariate_association import OVER_PROMPTS_KEYS
from undertow.stats import MIN_CLUSTERS
from undertow.stats.regression import power_analysis
from undertow.stats.regression.power_analysis import AssumedNoise, detectable_change, spread_evenly, step_of
from undertow.stats.regression.trend import MIN_VALUES, cluster_summary, trend
from undertow.types import Floats

SENTENCES, VALUES = (6, 8, 12, 20, 40, 60), (8, 12, 20, 30, 60)
"""Designs of a curve, in addition to the requested one."""
ROUNDING_SHARE = 1e-9
"""Noise below this share of a mass is rounding."""
OWN_SHARE = 5
"""Number of series for the requested design, relative to other designs."""


@dataclass(frozen=True, slots=True)
class ObservedNoise:
    """The noise of one series of a run.

    Attributes:
        noise: in percentage points.
        group: group of the series: model, challenge, w_name, pronoun.
        n_sentences, n_values: clusters of sentences and W values behind it.
    """

    noise: AssumedNoise
    group: dict[str, str]
    n_sentences: int
    n_values: int


def observed_noise(
    observations: pd.DataFrame,
    groups: Sequence[str],
    gaps: Sequence[tuple[str, str]],
    pronoun: str = "",
    unordered: Collection[str] = (),
) -> ObservedNoise:
    """Noise of the first model and ordered W list of a table, as estimated by `cluster_summary` and `trend`.

    `text_sd` is the square root of the white variance of a mean times its number of texts. `slopes_sd` is the standard deviation of
    the sentences' slopes beyond that noise, over the range of W. `values_sd` and `autocorrelation` belong to the noise of the W
    values (`values_sd` and `values_autocorrelation` of `trend`).

    Args:
        observations: as for `measure_association`, with `w_value` if it differs from `w_index`.
        groups: columns of the word groups.
        gaps: compared pairs of groups.
        pronoun: a group, or a gap as "a-b"; the first group if not given.
        unordered: names of W lists without an order, which have no neighbouring values.

    Raises:
        UndertowError: there is no such group or gap, or too little was scored: fewer than six sentences or eight values, or a value
            without a scored text.
    """
    series: dict[str, tuple[str, ...]] = {group: (group,) for group in groups}
    series |= {f"{first}-{second}": (first, second) for first, second in gaps}
    pronoun = pronoun or next(iter(series), "")
    if pronoun not in series:
        raise UndertowError(f"--group {pronoun!r}: the run has {', '.join(series) or 'no word group'}")
    scored = observations[observations["missing_reason"].fillna("") == ""]
    if scored.empty:
        raise UndertowError("the run has no scored answers, so its noise cannot be estimated")
    scored = scored[~scored["w_name"].isin(list(unordered))]
    if scored.empty:
        raise UndertowError("no W list of the run has an order, so its noise cannot be estimated")
    first = scored.iloc[0]
    rows = scored[(scored[list(OVER_PROMPTS_KEYS)] == first[list(OVER_PROMPTS_KEYS)]).all(axis=1)]
    masses = rows[list(series[pronoun])].to_numpy(dtype=np.float64)
    at = rows["w_value" if "w_value" in rows else "w_index"].to_numpy(dtype=np.float64)
    table = pd.DataFrame({"cluster": rows["cluster"].astype(str).to_numpy(), "w": at})
    table["mass"] = masses[:, 0] - (masses[:, 1] if masses.shape[1] > 1 else 0.0)
    cells = table.dropna().groupby(["cluster", "w"])["mass"].agg(["sum", "count"]).unstack(fill_value=0)
    sums, counts = (cells[name].to_numpy(dtype=np.float64) for name in ("sum", "count"))
    places = cells["sum"].columns.to_numpy(dtype=np.float64)
    about = {name: str(first[name]) for name in OVER_PROMPTS_KEYS} | {"pronoun": pronoun}
    if len(sums) < MIN_CLUSTERS or len(places) < MIN_VALUES:
        raise UndertowError(
            f"the run has {len(sums)} sentences and {len(places)} values of {about['w_name']}; to estimate its noise takes at least "
            f"{MIN_CLUSTERS} and {MIN_VALUES}"
        )
    parts = cluster_summary(places, sums[None], counts[None])
    fit = trend(places, parts)
    white, n_clusters = float(parts.white_variance[0]), len(sums)
    if math.sqrt(white) <= ROUNDING_SHARE * float(np.abs(parts.means).max()):
        raise UndertowError(
            f"the sentences of the run differ in {pronoun} by rounding only, so its noise cannot be estimated"
        )
    squares = float(((places - places.mean()) ** 2).sum())
    own = max(float(parts.slope_variance[0]) - white / squares, 0.0) * n_clusters
    noise = AssumedNoise(
        text_sd=math.sqrt(white * float(counts.sum(axis=0).mean())),
        slopes_sd=math.sqrt(own) * float(np.ptp(places)),
        values_sd=float(fit.values_sd[0]),
        autocorrelation=float(fit.values_autocorrelation[0]),
        step=step_of(places),
    )
    if not math.isfinite(noise.values_sd):
        raise UndertowError(f"{pronoun} of the run lies on a line exactly, so its noise cannot be estimated")
    return ObservedNoise(noise, about, n_clusters, len(places))


@dataclass(frozen=True, slots=True)
class Detectable:
    """The smallest change that a design detects in 8 of 10 runs.

    Attributes:
        n_sentences, n_values: of the design, each sentence at each value; a cluster of sentences counts once.
        autocorrelation: of the noise of neighbouring values.
        change: from the first value to the last along the line, in percentage points; NaN if no claim is possible.
        slope: the same per unit of its W values.
        is_own: whether it is the requested design.
    """

    n_sentences: int
    n_values: int
    autocorrelation: float
    change: float
    slope: float
    is_own: bool


def curve(
    axis: ArrayLike,
    n_sentences: int,
    noise: AssumedNoise,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    own_only: bool = False,
) -> list[Detectable]:
    """The smallest detectable change for each number of sentences and of values, including the design itself.

    Other numbers of values are spaced evenly over the list. A change is detectable if `trend` has p < .05 in 8 of 10 simulations.

    Args:
        axis: position of each value of the list on the scale of W [value].
        n_sentences: sentences of the design, or clusters of them.
        noise: noise of the audit.
        progress: called with (designs done, designs in all).
        own_only: compute the design itself alone.
    """
    places = np.asarray(axis, dtype=np.float64)
    own = n_sentences, len(places)
    designs = [
        (sentences, values) for sentences in sorted({*SENTENCES, own[0]}) for values in sorted({*VALUES, own[1]})
    ]
    designs = [own] if own_only else designs
    points = []
    for done, (sentences, values) in enumerate(designs):
        progress(done, len(designs))
        points.append(_detectable(places, (sentences, values), noise, is_own=(sentences, values) == own))
    progress(len(designs), len(designs))
    return points


def _detectable(places: Floats, design: tuple[int, int], noise: AssumedNoise, *, is_own: bool) -> Detectable:
    n_sentences, n_values = design
    x = spread_evenly(places, n_values)
    n_series = power_analysis.N_SERIES * (OWN_SHARE if is_own else 1)
    change = detectable_change(x, n_sentences, noise, n_series=n_series)
    return Detectable(n_sentences, n_values, noise.neighbours(x), change, change / float(np.ptp(x)), is_own)
