"""The smallest change along each W list that a design detects, as data: curves, their rows and their figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from undertow.audits.shared.item_limit import ListSizes
from undertow.audits.spurious_correlation.items import Settings, lists_of
from undertow.audits.spurious_correlation.power_curve import Detectable, ObservedNoise, curve, observed_noise
from undertow.data import NONE, Covariate
from undertow.errors import UndertowError
from undertow.stats.regression.power_analysis import POWER, AssumedNoise, step_of
from undertow.types import ALPHA, Progress

if TYPE_CHECKING:
    from undertow.audits.base import Observations
    from undertow.report.style import Drawing


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Detectable changes along one W list."""

    covariate: Covariate
    sizes: ListSizes
    designs: Sequence[Detectable]

    @property
    def own(self) -> Detectable:
        """The design itself."""
        return next(one for one in self.designs if one.is_own)

    @property
    def step(self) -> str:
        """What a slope is per."""
        return "step" if self.covariate.scale == "index" else self.covariate.unit or "unit"

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
        names = ("sentences", "values", "autocorrelation", "change")
        own = {"autocorrelation": self.own.autocorrelation, "change": self.own.change} if self.designs else {}
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
            **(own | {"slope": self.own.slope, "step": self.step} if own else {}),
            "curve": [{name: row[name] for name in names} for row in self.rows()],
        }


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

    def drawing(self) -> Drawing:
        """The figure of the curves."""
        from undertow.report.figures.detectable_change import Curve, draw_power

        curves = [
            Curve(
                title=f"{one.covariate.name}, from {one.covariate.values[0]} to {one.covariate.values[-1]}",
                changes={(cell.n_sentences, cell.n_values): cell.change for cell in one.designs},
                own=(one.own.n_sentences, one.own.n_values),
            )
            for one in self.curves
            if one.designs
        ]
        return draw_power(self.challenge, curves)


def plan_power(
    settings: Settings,
    assumed: Mapping[str, float],
    observed: ObservedNoise | None,
    progress: Progress,
    *,
    own_only: bool = False,
) -> PowerPlan:
    """Compute the smallest detectable change of each W list.

    Args:
        settings: of the audit: its challenge set and W lists.
        assumed: `text_sd`, `slopes_sd`, `values_sd` and `autocorrelation` of neighbouring values.
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

        def on_list(done: int, total: int, at: int = at) -> None:
            progress(at * total + done, len(lists) * total)

        designs: Sequence[Detectable] = []
        if covariate.scale != NONE:
            n_texts = sizes.n_sentences / sizes.n_clusters
            noise = (
                AssumedNoise(**assumed, step=step_of(covariate.axis), n_texts=n_texts)
                if observed is None
                else replace(observed.noise, n_texts=n_texts)
            )
            designs = curve(covariate.axis, sizes.n_clusters, noise, on_list, own_only=own_only)
        curves.append(PowerCurve(covariate, sizes, designs))
    return PowerPlan(settings.challenge, assumed, observed, curves)


def noise_of(observations: Observations, group: str) -> ObservedNoise:
    """Estimate the noise of a word group or a gap from observations."""
    gaps = [(str(first), str(second)) for first, second in observations.design["gaps"]]
    covariates = observations.design.get("covariates", {})
    unordered = [name for name, one in covariates.items() if one["scale"] == NONE]
    return observed_noise(observations.frame, observations.design["groups"], gaps, group, unordered)
