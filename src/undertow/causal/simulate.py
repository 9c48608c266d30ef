"""People drawn from a structural causal model, and what is correlated with what among all of them and among the selected.

Draws come in pieces and only sums stay, so that a hundred million need no more memory than a million. Every noise has random
numbers of its own, by the seed, the name of its variable and its place in the equation: changing one equation, or a
parameter, leaves all other noises as they are, and cases are compared on the same people.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.causal.expressions import Noise, evaluate, standard_draws
from undertow.causal.scm import Equation, StructuralCausalModel, implied_graph
from undertow.errors import UndertowError
from undertow.stats.arrays import is_constant
from undertow.stats.correlation import RunningPearson
from undertow.stats.intervals.proportions import wilson_interval
from undertow.types import Floats

MIN_DRAWS, MAX_DRAWS = 100, 10**9
MIN_SELECTED = 30
"""Fewer selected people say nothing about a correlation."""
N_SAMPLED = 2000
"""So many people of either kind are kept, to be drawn as dots."""
HEAVY_SHARE, HEAVY_PEOPLE = 0.1, 100
"""An interval is in doubt where one person makes this much of its variance, and more than so many times an equal share."""
_PIECE = 2**16

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's r of one pair of variables.

    Attributes:
        selected: among whom: the selected, or everyone.
        r: NaN where a variable does not vary.
        low, high: its 95% interval, which does not take the variables for normal.
        constant: what does not vary, where r is NaN.
        heaviest_share: of one person in the variance of r, in 0 to 1; NaN where there is no r.
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

    def as_dict(self) -> dict[str, Any]:
        """The correlation as values of a table's row."""
        when = "after" if self.selected else "before"
        return {"x": self.x, "y": self.y, "selection": when} | {
            name: getattr(self, name) for name in ("r", "low", "high", "n")
        }

    @property
    def text(self) -> str:
        """Pearson's r and its interval, or why there is none."""
        if math.isnan(self.r):
            verb = "is" if len(self.constant) == 1 else "are"
            return f"undefined: {' and '.join(self.constant)} {verb} constant" if self.constant else "undefined"
        r, low, high = (f"{number + 0.0:.3f}".replace("-0.000", "0.000") for number in (self.r, self.low, self.high))
        return f"{r} ({low} to {high})"


@dataclass(frozen=True, slots=True)
class Simulation:
    """What drawing from a model gave.

    Attributes:
        share: of the people who were selected, in 0 to 1.
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
        """The one of this pair, as the model names it.

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
        """A sentence for each interval that tails make unreliable."""
        return [
            f"{one.x} and {one.y} {'after' if one.selected else 'before'} selection: one person of {one.n:,} makes "
            f"{one.heaviest_share:.0%} of the variance of r, so that heavy tails make its interval unreliable; correlate logarithms "
            "or ranks, or bound the variable"
            for one in self.correlations
            if one.heaviest_share > max(HEAVY_SHARE, HEAVY_PEOPLE / one.n)
        ]


@dataclass(frozen=True, slots=True)
class SimulatedCase:
    """One case of one model."""

    model: str
    case: str
    graph: str
    result: Simulation

    def rows(self) -> list[dict[str, Any]]:
        """A row for every correlation, with the share of people that it is of."""
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
    """Draw people from a model and correlate its pairs before and after selection.

    McMilin 2024 ("Underspecification in Language Modeling Tasks", AAAI), figure 2; McMilin ("Selection Induced Collider Bias",
    ICLR submission), figures 6 and 7.

    Args:
        model: its equations.
        draws: people, 100 to 1e9.
        seed: the same seed and equations give the same people; 0 or more.
        settings: parameters in the place of the model's.
        progress: told how many people are drawn, of how many.

    Raises:
        UndertowError: a setting is no parameter, a variable comes out as no number, selection is not by 0 and 1, or fewer
            than 30 people are selected.
    """
    if not MIN_DRAWS <= draws <= MAX_DRAWS:
        raise UndertowError(f"{draws:,} people cannot be drawn; ask for {MIN_DRAWS} to {MAX_DRAWS:,}")
    if seed < 0:
        raise UndertowError(f"the seed cannot be {seed}; choose 0 or more")
    constants = model.constants(settings)
    statistics = _RunningStats(model)
    for people in _draw_people(model, constants, draws, seed):
        statistics.add(people)
        if progress:
            progress(statistics.n_drawn, draws)
    return statistics.result(constants, seed)


def _draw_people(
    model: StructuralCausalModel, constants: Mapping[str, float], n_draws: int, seed: int
) -> Iterator[dict[str, Floats]]:
    """Every variable [person], a piece of the people at a time."""
    generators: dict[tuple[str, int], np.random.Generator] = {}
    for first in range(0, n_draws, _PIECE):
        people: dict[str, Floats] = {}
        for equation in model.variables.values():
            sampler = _NoiseSampler(equation.name, seed, range(first, min(first + _PIECE, n_draws)), generators)
            people[equation.name] = _values(model, equation, {**constants, **people}, sampler)
        yield people


class _NoiseSampler:
    """The noises of one equation for one piece of the people; a noise that stands in two tests is one."""

    def __init__(
        self, name: str, seed: int, people: range, generators: dict[tuple[str, int], np.random.Generator]
    ) -> None:
        self.people = people
        self._name, self._seed, self._generators = name, seed, generators
        self._drawn: dict[int, Floats] = {}

    def __call__(self, noise: Noise) -> Floats:
        if noise.place not in self._drawn:
            key = (self._name, noise.place)
            if key not in self._generators:
                self._generators[key] = _generator(self._seed, *key)
            self._drawn[noise.place] = standard_draws(noise, self._generators[key], len(self.people))
        return self._drawn[noise.place]


def _generator(seed: int, name: str, place: int) -> np.random.Generator:
    letters = name.encode()
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(len(letters), *letters, place)))


def _values(
    model: StructuralCausalModel, equation: Equation, known: Mapping[str, Floats | float], sampler: _NoiseSampler
) -> Floats:
    where = model.where(equation.name)
    try:
        raw = evaluate(equation.expression, known, sampler)
    except UndertowError as error:
        raise UndertowError(f"{where}: {error}") from error
    values = np.broadcast_to(np.asarray(raw, dtype=np.float64), len(sampler.people))
    finite = np.isfinite(values)
    if not finite.all():
        # Of a later piece of the people, those before had a number each.
        who = "some people" if finite.any() or sampler.people.start else "everyone"
        raise UndertowError(
            f"{where}: {equation.name} is no finite number for {who}; look for a division by 0, the logarithm or root of "
            "a negative number, or a power that grows too fast"
        )
    if equation.name == model.selection and not np.isin(values, (0.0, 1.0)).all():
        raise UndertowError(
            f"{where}: people are selected by {equation.name}, which is to be 0 or 1; write a comparison"
        )
    return values


class _RunningStats:
    """What is kept of the people that come by."""

    def __init__(self, model: StructuralCausalModel) -> None:
        self._model = model
        self._running = {(pair, chosen): RunningPearson() for pair in model.pairs for chosen in (False, True)}
        self._samples: dict[bool, dict[str, list[Floats]]] = {
            chosen: {name: [] for pair in model.pairs for name in pair} for chosen in (False, True)
        }
        self.n_drawn = 0
        self._n_selected = 0

    def add(self, people: Mapping[str, Floats]) -> None:
        chosen = people[self._model.selection] == 1
        kept = {
            False: {name: people[name] for name in self._samples[False]},
            True: {name: people[name][chosen] for name in self._samples[True]},
        }
        for ((x, y), selected), running in self._running.items():
            running.add(kept[selected][x], kept[selected][y])
        for selected, seen in ((False, self.n_drawn), (True, self._n_selected)):
            for name, values in kept[selected].items():
                if seen < N_SAMPLED:
                    self._samples[selected][name].append(values[: N_SAMPLED - seen].copy())
        self.n_drawn += len(chosen)
        self._n_selected += int(chosen.sum())

    def result(self, settings: Mapping[str, float], seed: int) -> Simulation:
        self._check_selected()
        everyone, selected = (
            {name: np.concatenate(pieces) for name, pieces in self._samples[chosen].items()} for chosen in (False, True)
        )
        low, high = wilson_interval(self._n_selected / self.n_drawn, self.n_drawn)
        return Simulation(
            settings=settings,
            seed=seed,
            n_draws=self.n_drawn,
            n_selected=self._n_selected,
            share=self._n_selected / self.n_drawn,
            share_low=low,
            share_high=high,
            correlations=tuple(self._correlations()),
            everyone=everyone,
            selected=selected,
        )

    def _check_selected(self) -> None:
        selection = self._model.selection
        where = self._model.where(selection)
        if not self._n_selected:
            raise UndertowError(
                f"{where}: {selection} is 0 for all of {self.n_drawn:,} people, so that nobody is selected; let it be 1 for more of them"
            )
        if self._n_selected < MIN_SELECTED:
            raise UndertowError(
                f"{where}: {self._n_selected} of {self.n_drawn:,} people are selected, and a correlation takes {MIN_SELECTED}; "
                "draw more people, or select more of them"
            )

    def _correlations(self) -> Iterator[Correlation]:
        for ((x, y), selected), running in self._running.items():
            r, low, high, n = running.result()
            constant = (
                tuple(name for name in (x, y) if is_constant(np.concatenate(self._samples[selected][name])))
                if math.isnan(r)
                else ()
            )
            yield Correlation(x, y, selected, r, low, high, n, constant, running.heaviest_share())
