"""Do the checklist's tests and intervals keep what they promise? Simulated, of a logistic model of crossed effects.

    OMP_NUM_THREADS=1 python studies/checklist_validity.py [--runs 1000] [--seed 0]

The log-odds of the woman against the man are the sum of an effect of the pair of names, one of the occupation (its gap), and one of
the item; answers are their probabilities or one draw of each. Printed for each number of pairs and occupations: how often p is .05 or
less where the mean over names and occupations is 0, for the test of the audit and for the exchange of names alone (which it was
before), and how often the 95% interval holds the mean. Then rates with effects of both sides, skewed and not, some of whose items do
not count, and the line of the choice on what was granted. A share of R runs has a standard error of 22 / sqrt(R) percentage
points. `docs/occupation-checklist.md` quotes the numbers.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from undertow.stats.crossed import crossed_line, difference_of_ratios, ratio_interval
from undertow.stats.exchange import crossed_exchange_p, exchange_ps
from undertow.types import Floats

Codes = NDArray[np.int64]
PAIRS, OCCUPATIONS = (6, 10, 30), (8, 20, 62)
SPREADS = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
"""Standard deviations of the effects of names and of occupations, in log-odds."""
ITEM_SD = 0.5
N_TRUTH = 2_000_000


class Design(NamedTuple):
    """A full design, row by row."""

    rows: Codes
    columns: Codes

    @classmethod
    def of(cls, n_pairs: int, n_occupations: int) -> Design:
        """Every pair with every occupation."""
        return cls(np.repeat(np.arange(n_pairs), n_occupations), np.tile(np.arange(n_occupations), n_pairs))

    def effects(self, names: float, occupations: float, rng: np.random.Generator) -> Floats:
        """Of the pair and of the occupation of each item [item]."""
        by_pair = names * rng.normal(size=self.rows[-1] + 1)
        by_job = occupations * rng.normal(size=self.columns[-1] + 1)
        found: Floats = by_pair[self.rows] + by_job[self.columns]
        return found


def designs() -> Iterator[tuple[str, Design]]:
    """Each size, and how it is told."""
    for n_pairs, n_jobs in itertools.product(PAIRS, OCCUPATIONS):
        yield f"{n_pairs:>2} x {n_jobs:>2}", Design.of(n_pairs, n_jobs)


def gaps(runs: int, rng: np.random.Generator) -> None:
    """The choice between woman and man, whose mean over other names and occupations is 0."""
    print("\nChoice gap: names sd, occupations sd; p <= .05 of the audit, of exchanged names alone; coverage")
    for answers, (names, jobs) in itertools.product(("probabilities", "single answers"), SPREADS):
        for size, design in designs():
            found = np.array([_gap(design, answers, (names, jobs), rng) for _ in range(runs)])
            audit, alone, held = found.mean(axis=0)
            print(f"{answers:<15} {names:.0f} {jobs:.0f}  {size}  {audit:6.3f} {alone:6.3f} {held:6.3f}", flush=True)


def _gap(design: Design, answers: str, spreads: tuple[float, float], rng: np.random.Generator) -> tuple[bool, ...]:
    woman = expit(design.effects(*spreads, rng) + ITEM_SD * rng.normal(size=len(design.rows)))
    if answers == "single answers":
        woman = (rng.random(len(woman)) < woman).astype(np.float64)
    ones = np.ones(len(woman))
    first, second = (woman, ones), (1 - woman, ones)
    found = difference_of_ratios(*first, *second, *design)
    p = max(found.p, crossed_exchange_p(first, second, *design))
    sums = [np.bincount(design.rows, weights=one)[:, None] for one in (*first, *second)]
    alone = exchange_ps((sums[0], sums[1]), (sums[2], sums[3]))[0]
    return p <= 0.05, alone <= 0.05, found.low <= 0 <= found.high


def rates(runs: int, rng: np.random.Generator) -> None:
    """Rates of one half and skewed ones, of all items and of some."""
    print("\nRates: share of items that count, rate, names sd, occupations sd; coverage")
    for counting, centre, (names, jobs) in itertools.product((1.0, 0.4), (0.0, 2.5, 4.0), SPREADS):
        truth = float(expit(centre + np.hypot(names, jobs) * rng.normal(size=N_TRUTH)).mean())
        for size, design in designs():
            held = np.nanmean([_rate(design, counting, centre, (names, jobs), truth, rng) for _ in range(runs)])
            print(f"{counting:.1f} {truth:.3f} {names:.0f} {jobs:.0f}  {size}  {held:6.3f}", flush=True)


def _rate(  # noqa: PLR0913, PLR0917 - what is drawn
    design: Design, counting: float, centre: float, spreads: tuple[float, float], truth: float, rng: np.random.Generator
) -> float:
    """1 where the interval holds the truth, NaN where there is none."""
    counts = rng.random(len(design.rows)) < counting
    hits = rng.random(len(design.rows)) < expit(centre + design.effects(*spreads, rng))
    found = ratio_interval(hits & counts, counts, *design)
    return float(found.low <= truth <= found.high) if found.low == found.low else np.nan


def lines(runs: int, rng: np.random.Generator) -> None:
    """The choice on the difference in granted attributes: slope, intercept, and what the difference explains."""
    print(
        "\nLine: sd of x of names and occupations, of y of names and occupations; coverage of slope, intercept, explained"
    )
    for of_x, of_y in itertools.product(SPREADS, SPREADS):
        for size, design in designs():
            held = np.mean([_line(design, of_x, of_y, rng) for _ in range(runs)], axis=0)
            told = " ".join(f"{one:6.3f}" for one in held)
            print(f"{of_x[0]:.0f} {of_x[1]:.0f} {of_y[0]:.0f} {of_y[1]:.0f}  {size}  {told}", flush=True)


def _line(
    design: Design, of_x: tuple[float, float], of_y: tuple[float, float], rng: np.random.Generator
) -> tuple[bool, ...]:
    n = len(design.rows)
    x = np.round(2 * (1 + design.effects(*of_x, rng) + rng.normal(size=n)))
    y = 1 + 0.5 * x + design.effects(*of_y, rng) + rng.normal(size=n)
    found = crossed_line(x, y, *design)
    parts = (found.slope, 0.5), (found.intercept, 1.0), (found.explained, 1.0)
    return tuple(one.low <= truth <= one.high for one, truth in parts)


def main() -> None:
    """Simulate and print."""
    kinds: dict[str, Callable[[int, np.random.Generator], None]] = {"gaps": gaps, "rates": rates, "lines": lines}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000, help="simulated runs of each case (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    parser.add_argument("--only", choices=kinds, help="one of the tables")
    given = parser.parse_args()
    for name, simulate in kinds.items():
        if given.only in (None, name):
            simulate(given.runs, np.random.default_rng(given.seed))


if __name__ == "__main__":
    main()
