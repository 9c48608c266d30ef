"""Simulation of people from a structural causal model, and correlations among everyone and among the selected.

People are simulated in chunks, and only compared variables are kept: ten million people take about 1.6 GB. Every noise has its own
random stream, by the seed, the name of its variable and its place in the equation: a change of one equation or parameter does not
change other noises, so cases are compared on the same people.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from undertow.causal.expressions import Noise, evaluate, standard_draws
from undertow.causal.scm import StructuralCausalModel, implied_graph
from undertow.errors import UndertowError
from undertow.stats.arrays import is_constant
from undertow.stats.correlation import pearson
from undertow.stats.intervals.bounded_mean import wilson_interval
from undertow.types import Floats, Progress

MIN_DRAWS, MAX_DRAWS = 100, 10**7
MIN_SELECTED = 30
"""Minimum number of selected people for a correlation."""
N_SAMPLED = 2000
"""Number of people of either kind that are kept for the figures."""
HEAVY_SHARE, HEAVY_PEOPLE = 0.1, 100
"""An interval is unreliable if one person has this share of its variance, and this many times an equal share."""
EXTREME_SHARE, EXTREME_PEOPLE = 0.3, 30
"""It is also unreliable if one person's share of the variance of a variable exceeds 0.3 for up to 100 people, 30 equal shares for up to
300, and 0.1 for more."""
_PIECE = 2**16


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's r of one pair of variables.

    Attributes:
        selected: whether it is among the selected, or among everyone.
        r: NaN if a variable is constant.
        low, high: its 95% interval, without assuming normality.
        constant: constant variables, if r is NaN.
        heaviest_share: largest share of one person in the variance of r, in 0 to 1; NaN without r.
        extreme_share: largest share of one person in the variance of a variable, in 0 to 1.
        extreme: that variable.
    """

    x: str
    y: str
    selected: bool
    r: float
    low: float
    high: float
    n: int
    constant: tuple[str, ...] = ()
    heaviest_share: float = math.nan
    extreme_share: float = math.nan
    extreme: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The correlation as a row of a table."""
        when = "after" if self.selected else "before"
        return {"x": self.x, "y": self.y, "selection": when} | {
            name: getattr(self, name) for name in ("r", "low", "high", "n")
        }

    @property
    def warning(self) -> str:
        """A sentence if heavy tails make the interval unreliable; else ""."""
        if math.isnan(self.r):
            return ""
        if self.heaviest_share > max(HEAVY_SHARE, HEAVY_PEOPLE / self.n):
            part = f"{self.heaviest_share:.0%} of the variance of r"
        elif self.extreme_share > max(HEAVY_SHARE, min(EXTREME_SHARE, EXTREME_PEOPLE / self.n)):
            part = f"{self.extreme_share:.0%} of the variance of {self.extreme}"
        else:
            return ""
        return (
            f"{self.x} and {self.y} {'after' if self.selected else 'before'} selection: one person of {self.n:,} makes {part}, so its "
            "interval is unreliable (heavy tails); correlate logarithms or ranks, or bound the variable"
        )

    @property
    def text(self) -> str:
        """Pearson's r and its interval, or the reason why r is undefined."""
        if math.isnan(self.r):
            verb = "is" if len(self.constant) == 1 else "are"
            return f"undefined: {' and '.join(self.constant)} {verb} constant" if self.constant else "undefined"
        r, low, high = (f"{number + 0.0:.3f}".replace("-0.000", "0.000") for number in (self.r, self.low, self.high))
        return f"{r} ({low} to {high})"


@dataclass(frozen=True, slots=True)
class Simulation:
    """Results of a simulation.

    Attributes:
        share: share of selected people, in 0 to 1.
        share_low, share_high: its 95% interval (Wilson's).
        correlations: of every pair, among everyone and then among the selected.
        everyone, selected: the first people drawn, and the first selected, by variable [person]; at most `N_SAMPLED`.
    """

    settings: Mapping[str, float]
    seed: int
    n_draws: int
    n_selected: int
    share: float
    share_low: float
    share_high: float
    correlations: tuple[Correlation, ...]
    everyone: Mapping[str, Floats]
    selected: Mapping[str, Floats]

    def correlation(self, x: str, y: str, *, selected: bool) -> Correlation:
        """The correlation of a pair.

        Raises:
            KeyError: the model does not compare the two.
        """
        for correlation in self.correlations:
            if (correlation.x, correlation.y, correlation.selected) == (x, y, selected):
                return correlation
        raise KeyError((x, y))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs that the model compares."""
        return [(one.x, one.y) for one in self.correlations if not one.selected]

    @property
    def warnings(self) -> list[str]:
        """A sentence for each interval that heavy tails make unreliable."""
        return [one.warning for one in self.correlations if one.warning]


@dataclass(frozen=True, slots=True)
class SimulatedCase:
    """One case of one model."""

    model: str
    case: str
    graph: str
    result: Simulation

    def rows(self) -> list[dict[str, Any]]:
        """A row for every correlation, with the share of selected people."""
        result = self.result
        settings = " ".join(f"{name}={repr(value).removesuffix('.0')}" for name, value in result.settings.items())
        return [
            {
                "model": self.model,
                "case": self.case,
                "settings": settings,
                "seed": result.seed,
                **one.as_dict(),
                "share": result.share if one.selected else 1.0,
                "share_low": result.share_low if one.selected else 1.0,
                "share_high": result.share_high if one.selected else 1.0,
            }
            for one in result.correlations
        ]

    def as_dict(self) -> dict[str, Any]:
        """The case as JSON-serialisable values."""
        result = self.result
        selected = {"n": result.n_selected, "share": result.share, "low": result.share_low, "high": result.share_high}
        return {
            "model": self.model,
            "case": self.case,
            "settings": dict(result.settings),
            "graph": self.graph,
            "selected": selected,
            "warnings": result.warnings,
            "correlations": [one.as_dict() for one in result.correlations],
        }


def simulate_cases(
    models: Mapping[str, StructuralCausalModel],
    draws: int,
    seed: int,
    settings: Mapping[str, float],
    progress: Progress,
) -> list[SimulatedCase]:
    """Simulate every case of some models; a setting replaces a parameter of all.

    Raises:
        UndertowError: as `simulate`.
    """
    cases = [(name, case) for name, model in models.items() for case in model.cases]
    simulated = []
    for place, (name, case) in enumerate(cases):
        chosen = {**models[name].cases[case], **settings}

        def on_case(done: int, total: int, place: int = place) -> None:
            progress(place * total + done, len(cases) * total)

        result = simulate(models[name], draws, seed, chosen, on_case)
        simulated.append(SimulatedCase(name, case, implied_graph(models[name], chosen), result))
    return simulated


def simulate(
    model: StructuralCausalModel,
    draws: int = 1_000_000,
    seed: int = 0,
    settings: Mapping[str, float] | None = None,
    progress: Progress | None = None,
) -> Simulation:
    """Simulate people from a model and correlate its pairs before and after selection.

    McMilin 2024 ("Underspecification in Language Modeling Tasks", AAAI), figure 2; McMilin ("Selection Induced Collider Bias",
    ICLR submission), figures 6 and 7.

    Args:
        model: its equations.
        draws: number of people, 100 to 1e7.
        seed: the same seed and equations give the same people; 0 or more.
        settings: parameters that replace those of the model.
        progress: called with the number of simulated people and of all.

    Raises:
        UndertowError: a setting is not a parameter, a variable is not finite, selection is not 0 or 1, or fewer than 30 people are
            selected.
    """
    if not MIN_DRAWS <= draws <= MAX_DRAWS:
        raise UndertowError(f"{draws:,} people cannot be sampled; use {MIN_DRAWS} to {MAX_DRAWS:,}")
    if seed < 0:
        raise UndertowError(f"the seed cannot be {seed}; choose 0 or more")
    constants = model.constants(settings)
    everyone = {name: np.empty(draws) for name in (*chain(*model.pairs), model.selection)}
    n_drawn = 0
    for people in _draw_people(model, constants, draws, seed):
        n_more = len(people[model.selection])
        for name, values in everyone.items():
            values[n_drawn : n_drawn + n_more] = people[name]
        n_drawn += n_more
        if progress:
            progress(n_drawn, draws)
    chosen = everyone[model.selection] == 1
    selected = {name: values[chosen] for name, values in everyone.items()}
    n_selected, where = int(chosen.sum()), model.where(model.selection)
    if not n_selected:
        raise UndertowError(
            f"{where}: {model.selection} is 0 for all of {draws:,} people; let it be 1 for more of them"
        )
    if n_selected < MIN_SELECTED:
        raise UndertowError(
            f"{where}: {n_selected} of {draws:,} people are selected, and {MIN_SELECTED} are needed; draw more"
        )
    low, high = wilson_interval(n_selected / draws, draws)
    correlations = []
    for x, y in model.pairs:
        for people in (everyone, selected):
            estimate = pearson(people[x], people[y])
            constant = tuple(name for name in (x, y) if math.isnan(estimate.r) and is_constant(people[name]))
            interval = estimate.r, estimate.low, estimate.high, estimate.n
            shares = estimate.heaviest_share, *max((_largest_share(people[name]), name) for name in (x, y))
            correlations.append(Correlation(x, y, people is selected, *interval, constant, *shares))
    return Simulation(
        settings=constants,
        seed=seed,
        n_draws=draws,
        n_selected=n_selected,
        share=n_selected / draws,
        share_low=low,
        share_high=high,
        correlations=tuple(correlations),
        everyone={name: everyone[name][:N_SAMPLED].copy() for name in chain(*model.pairs)},
        selected={name: selected[name][:N_SAMPLED].copy() for name in chain(*model.pairs)},
    )


def _largest_share(values: Floats) -> float:
    """Largest share of one value [person] in the variance; 0 for a constant."""
    scaled = values / max(float(np.abs(values).max()), np.finfo(np.float64).tiny)  # squares of large numbers overflow
    squares = (scaled - scaled.mean()) ** 2
    return float(squares.max() / squares.sum()) if squares.any() else 0.0


def _draw_people(
    model: StructuralCausalModel, constants: Mapping[str, float], n_draws: int, seed: int
) -> Iterator[dict[str, Floats]]:
    """Every variable [person], one chunk of people at a time."""

    @cache
    def generator(name: str, place: int) -> np.random.Generator:
        letters = name.encode()
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(len(letters), *letters, place)))

    for first in range(0, n_draws, _PIECE):
        n_people = min(_PIECE, n_draws - first)
        people: dict[str, Floats] = {}
        for name, equation in model.variables.items():

            @cache  # a noise in two comparisons is the same noise
            def draw(noise: Noise, name: str = name, n_people: int = n_people) -> Floats:
                return standard_draws(noise, generator(name, noise.place), n_people)

            try:
                raw = evaluate(equation.expression, {**constants, **people}, draw)
            except UndertowError as error:
                raise UndertowError(f"{model.where(name)}: {error}") from error
            values = np.broadcast_to(np.asarray(raw, dtype=np.float64), n_people)
            finite = np.isfinite(values)
            if not finite.all():
                # In a later chunk, the people of earlier chunks had finite values.
                who = "some people" if finite.any() or first else "everyone"
                raise UndertowError(
                    f"{model.where(name)}: {name} is not a finite number for {who}; look for a division by 0, or a logarithm or root "
                    "of less"
                )
            if name == model.selection and not np.isin(values, (0.0, 1.0)).all():
                raise UndertowError(
                    f"{model.where(name)}: {name} selects people, so it must be 0 or 1; write a comparison"
                )
            people[name] = values
        yield people
