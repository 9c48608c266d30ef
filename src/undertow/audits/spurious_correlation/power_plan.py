"""The smallest change along each W list that a design detects, with assumed noise or that of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.audits.shared.item_limit import ListSizes
from undertow.audits.spurious_correlation.items import Settings, lists_of
from undertow.data import NONE, Covariate
from undertow.errors import UndertowError
from undertow.metrics.drift.cells import Cells, unit_codes
from undertow.metrics.drift.covariate_association import OVER_PROMPTS_KEYS
from undertow.stats import MIN_CLUSTERS
from undertow.stats.regression import power_analysis
from undertow.stats.regression.power_analysis import POWER, AssumedNoise, detectable_change, spread_evenly, step_of
from undertow.stats.regression.trend import MIN_VALUES, trend
from undertow.types import ALPHA, Floats, Progress

if TYPE_CHECKING:
    from undertow.audits.base import Observations

SENTENCES, VALUES = (6, 8, 12, 20, 40, 60), (8, 12, 20, 30, 60)
"""Designs of a curve, in addition to the requested one."""
ROUNDING_SHARE = 1e-9
"""Noise below this share of a mass is rounding."""
AUTOCORRELATION, YEARS = 0.3, 215 / 29
"""Autocorrelation of the values' noise of the default model, and its distance in years: the step of the published dates."""
OWN_SHARE = 5
"""Number of series for the requested design, relative to other designs."""


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


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Detectable changes along one W list, for each number of sentences and of values; [] without an order.

    `correlation` says at which distance the values' noise has which correlation.
    """

    covariate: Covariate
    sizes: ListSizes
    designs: Sequence[Detectable]
    correlation: str

    @property
    def title(self) -> str:
        """The list with its first and last value."""
        return f"{self.covariate.name}, from {self.covariate.values[0]} to {self.covariate.values[-1]}"

    @property
    def own(self) -> Detectable:
        """The design itself."""
        return next(one for one in self.designs if one.is_own)

    @property
    def step(self) -> str:
        """What a slope is per."""
        return "step" if self.covariate.scale == "index" else self.covariate.unit or "unit"

    def extremes(self) -> list[Detectable]:
        """The designs with the largest and the smallest change."""
        finite = [one for one in self.designs if math.isfinite(one.change)]
        return [chosen(finite, key=lambda one: one.change) for chosen in (max, min)] if finite else []

    def rows(self) -> list[dict[str, Any]]:
        """A row for each design."""
        return [
            {
                "w_name": self.covariate.name,
                "sentences": one.n_sentences,
                "values": one.n_values,
                "autocorrelation": one.autocorrelation,
                "change": one.change,
                "slope": one.slope,
                "step": self.step,
                "as_it_stands": "yes" if one.is_own else "no",
            }
            for one in self.designs
        ]

    def as_dict(self) -> dict[str, Any]:
        """The curve as JSON-serialisable values."""
        names, rows = ("sentences", "values", "autocorrelation", "change"), self.rows()
        own = next((row for row in rows if row["as_it_stands"] == "yes"), {})
        return {
            "w_name": self.covariate.name,
            **self.covariate.design_entry(),
            "first": self.covariate.values[0],
            "last": self.covariate.values[-1],
            "sentences": self.sizes.n_sentences,
            "clusters": self.sizes.n_clusters,
            "values": self.sizes.n_values,
            "missing": {"sentences": self.sizes.missing_clusters, "values": self.sizes.missing_values},
            "limitations": self.sizes.limitation(),
            **{name: own[name] for name in ("autocorrelation", "change", "slope", "step") if own},
            "correlation": self.correlation,
            "curve": [{name: row[name] for name in names} for row in rows],
        }


@dataclass(frozen=True, slots=True)
class ObservedNoise:
    """The noise of one series of a run.

    Attributes:
        noise: in percentage points.
        group: group of the series: model, challenge, w_name, pronoun.
        n_sentences, n_values: clusters of sentences and W values behind it.
        years: range of the W list; 0 if its values are not years.
    """

    noise: AssumedNoise
    group: dict[str, str]
    n_sentences: int
    n_values: int
    years: float


@dataclass(frozen=True, slots=True)
class PowerPlan:
    """The curves of a challenge set."""

    challenge: str
    assumed: Mapping[str, float]
    observed: ObservedNoise | None
    curves: Sequence[PowerCurve]

    @property
    def noise(self) -> dict[str, float]:
        """The three standard deviations; the autocorrelation is each list's own."""
        numbers = self.assumed if self.observed is None else asdict(self.observed.noise)
        return {name: float(numbers[name]) for name in ("text_sd", "slopes_sd", "values_sd")}

    def as_dict(self) -> dict[str, Any]:
        """The plan as JSON-serialisable values."""
        seen = self.observed
        return {
            "challenge": self.challenge,
            "power": POWER,
            "alpha": ALPHA,
            "noise": self.noise,
            "like": seen and {**seen.group, "sentences": seen.n_sentences, "values": seen.n_values},
            "lists": [one.as_dict() for one in self.curves],
            "notes": [note for one in self.curves for note in one.covariate.notes],
        }


def plan_power(
    settings: Settings,
    assumed: Mapping[str, float],
    observed: ObservedNoise | None,
    progress: Progress,
    *,
    own_only: bool = False,
) -> PowerPlan:
    """Compute the smallest detectable change of each W list: `trend` has p < .05 in 8 of 10 simulations.

    Other numbers of values are spaced evenly over the list.

    Args:
        settings: of the audit: its challenge set and W lists.
        assumed: `text_sd`, `slopes_sd`, `values_sd`, and `autocorrelation` of neighbouring values of each list. Without the last, it is
            that of the default model: .3 at 7.4 years, and between neighbours of any design if the values are not years.
        observed: the noise of a run, which replaces `assumed`.
        progress: called with the number of simulated designs and of all designs.
        own_only: compute the design itself alone.
    """
    lists = lists_of(settings)
    unordered = [covariate.name for covariate, _ in lists if covariate.scale == NONE]
    if len(unordered) == len(lists):
        raise UndertowError(
            f"{settings.challenge}: a list without order ({', '.join(unordered)}) has no slope; give it an order, "
            "or use --w-scale index"
        )
    curves = []
    for at, (covariate, sizes) in enumerate(lists):
        points: list[Detectable] = []
        correlation = ""
        if covariate.scale != NONE:
            places = np.asarray(covariate.axis, dtype=np.float64)
            noise, correlation = _noise_along(covariate, places, assumed, observed)
            noise = replace(noise, n_texts=sizes.n_sentences / sizes.n_clusters)
            own = sizes.n_clusters, len(places)
            across, along = sorted({*SENTENCES, own[0]}), sorted({*VALUES, own[1]})
            designs = [own] if own_only else [(n_sentences, n_values) for n_sentences in across for n_values in along]
            for n_sentences, n_values in designs:
                progress(at * len(designs) + len(points), len(lists) * len(designs))
                is_own, x = (n_sentences, n_values) == own, spread_evenly(places, n_values)
                n_series = power_analysis.N_SERIES * (OWN_SHARE if is_own else 1)
                of_design = noise if noise.step else replace(noise, step=step_of(x))
                change = detectable_change(x, n_sentences, of_design, n_series=n_series)
                slope = change / float(np.ptp(x))
                points.append(Detectable(n_sentences, n_values, of_design.neighbours(x), change, slope, is_own))
            progress((at + 1) * len(designs), len(lists) * len(designs))
        curves.append(PowerCurve(covariate, sizes, points, correlation))
    return PowerPlan(settings.challenge, assumed, observed, curves)


def _noise_along(
    covariate: Covariate, places: Floats, assumed: Mapping[str, float], observed: ObservedNoise | None
) -> tuple[AssumedNoise, str]:
    """The noise along a list of places [value], with a step of 0 if any neighbours have its correlation; and that correlation in words."""
    noise = observed.noise if observed else AssumedNoise(**{"autocorrelation": AUTOCORRELATION, **assumed}, step=0.0)
    years = float(np.ptp(covariate.numbers)) if covariate.unit else 0.0
    if observed is None and "autocorrelation" in assumed:
        noise, distance = replace(noise, step=step_of(places)), "between neighbouring values of this list"
    elif years and (observed is None or observed.years):
        distance_in_years = noise.step * observed.years if observed else YEARS
        noise, distance = (
            replace(noise, step=distance_in_years / years),
            f"at a distance in years of {distance_in_years:.2g}",
        )
    elif observed:
        distance = f"at {noise.step:.2g} of the distance from the first value to the last, as in the run"
    else:
        distance = "between neighbouring values of any design (only lists named date or year are in years)"
    return noise, f"{covariate.name} {noise.autocorrelation:.2g} {distance}"


def noise_of(observations: Observations, pronoun: str) -> ObservedNoise:
    """Noise of the first model and ordered W list of a run, as estimated by `cluster_summary` and `trend`.

    `text_sd` is the square root of the white variance of a mean times its number of texts. `slopes_sd` is the standard deviation of
    the sentences' slopes beyond that noise, over the range of W. `values_sd` and `autocorrelation` belong to the noise of the W
    values (`values_sd` and `values_autocorrelation` of `trend`).

    `pronoun` is a group, or a gap as "a-b"; the first group if "".

    Raises:
        UndertowError: there is no such group or gap, or too little was scored: fewer than six sentences or eight values, or a value
            without a scored text.
    """
    design, frame = observations.design, observations.frame
    series: dict[str, tuple[str, ...]] = {group: (group,) for group in design["groups"]}
    series |= {f"{first}-{second}": (str(first), str(second)) for first, second in design["gaps"]}
    pronoun = pronoun or next(iter(series), "")
    if pronoun not in series:
        raise UndertowError(f"--group {pronoun!r}: the run has {', '.join(series) or 'no word group'}")
    scored = frame[frame["missing_reason"].fillna("") == ""]
    if scored.empty:
        raise UndertowError("the run has no scored answers, so its noise cannot be estimated")
    unordered = [name for name, one in design.get("covariates", {}).items() if one["scale"] == NONE]
    scored = scored[~scored["w_name"].isin(unordered)]
    if scored.empty:
        raise UndertowError("no W list of the run has an order, so its noise cannot be estimated")
    first = scored.iloc[0]
    rows = scored[(scored[list(OVER_PROMPTS_KEYS)] == first[list(OVER_PROMPTS_KEYS)]).all(axis=1)]
    masses = rows[list(series[pronoun])].to_numpy(dtype=np.float64)
    at = rows["w_value" if "w_value" in rows else "w_index"].to_numpy(dtype=np.float64)
    values = masses[:, 0] - (masses[:, 1] if masses.shape[1] > 1 else 0.0)
    cells = Cells.from_rows(rows.assign(w_value=at, unit=unit_codes(rows)), values).drop_empty()
    places, n_clusters = cells.x, cells.n_crossed
    about = {name: str(first[name]) for name in OVER_PROMPTS_KEYS} | {"pronoun": pronoun}
    if n_clusters < MIN_CLUSTERS or len(places) < MIN_VALUES:
        raise UndertowError(
            f"the run has {n_clusters} sentences and {len(places)} values of {about['w_name']}; to estimate its noise takes at least "
            f"{MIN_CLUSTERS} and {MIN_VALUES}"
        )
    parts = cells.summary()
    fit = trend(places, parts)
    white = float(parts.white_variance[0])
    if math.sqrt(white) <= ROUNDING_SHARE * float(np.abs(parts.means).max()):
        raise UndertowError(
            f"the sentences of the run differ in {pronoun} by rounding only, so its noise cannot be estimated"
        )
    own = max(float(parts.slope_variance[0]) - white / float(((places - places.mean()) ** 2).sum()), 0.0) * n_clusters
    noise = AssumedNoise(
        text_sd=math.sqrt(white * float(cells.counts.sum(axis=0).mean())),
        slopes_sd=math.sqrt(own) * float(np.ptp(places)),
        values_sd=float(fit.values_sd[0]),
        autocorrelation=float(fit.values_autocorrelation[0]),
        step=step_of(places),
    )
    if not math.isfinite(noise.values_sd):
        raise UndertowError(f"{pronoun} of the run lies on a line exactly, so its noise cannot be estimated")
    unit = design.get("covariates", {}).get(about["w_name"], {}).get("unit")
    years = float(np.ptp(rows["w"].astype(float))) if unit else 0.0
    return ObservedNoise(noise, about, n_clusters, len(places), years)
