"""How often do 95% intervals of crossed designs hold the truth? Simulated, and the two-way bootstrap and other ways beside them.

    OMP_NUM_THREADS=1 python studies/crossed_coverage.py [--runs 300] [--seed 0]

Pairs are rows and occupations columns, some of which share a code, as in the shipped table; the truth is known, since items are
drawn from it. `ratio_interval`: coin flips, of which all, half or a quarter count, and items whose log-odds hang on their pair,
on their code, or on both. Beside it the two-way ("pigeonhole") bootstrap, which draws pairs and codes anew: its coverage, and how much
wider it is on average. `correlation`: columns that are independent, or of which those of one code have 80% of their variance in
common; beside it a bootstrap of codes. Coverage of R runs has a standard error of 22 / sqrt(R) percentage points: 1.3 for 300 runs.
Decision 018 quotes the numbers.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from undertow.stats.crossed import correlation, ratio_interval

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

N_DRAWS = 500
"""Draws of a bootstrap, whose 95% interval is between their percentiles."""
TAILS_PERCENT = (2.5, 97.5)
SHARED_OF_A_CODE = 0.8


def codes_of(*sharing: int, n_columns: int) -> Codes:
    """Codes of columns, the first of which share theirs: as many as `sharing` says, each code in turn [column]."""
    shared = np.repeat(np.arange(len(sharing)), sharing)
    return np.concatenate([shared, np.arange(len(sharing), len(sharing) + n_columns - len(shared))])


ALL_CODES = codes_of(4, 3, 2, 2, n_columns=62)
"""The 62 occupations of the shipped table: 55 codes."""
SOME_CODES = codes_of(2, n_columns=20)
"""As many occupations as a run draws: 19 codes."""


@dataclass(frozen=True, slots=True)
class Design:
    """Pairs crossed with occupations.

    Attributes:
        n_pairs: rows.
        codes: cluster of each column [column].
    """

    n_pairs: int
    codes: Codes

    @property
    def n_codes(self) -> int:
        """Clusters of columns."""
        return int(self.codes.max()) + 1

    @property
    def pair_of(self) -> Codes:
        """Row of each item [item]."""
        return np.repeat(np.arange(self.n_pairs), len(self.codes))

    @property
    def code_of(self) -> Codes:
        """Code of each item [item]."""
        return np.tile(self.codes, self.n_pairs)

    @property
    def name(self) -> str:
        """Pairs by occupations, and codes where these are fewer."""
        fewer = f" ({self.n_codes} codes)" if self.n_codes < len(self.codes) else ""
        return f"{self.n_pairs} x {len(self.codes)}{fewer}"


SMALL = Design(5, codes_of(n_columns=8))
USUAL = Design(10, SOME_CODES)
WHOLE = Design(70, ALL_CODES)
DESIGNS = (SMALL, USUAL, WHOLE)
FEW = (
    *(Design(n_pairs, SOME_CODES) for n_pairs in (2, 3, 5)),
    *(Design(70, codes_of(n_columns=n)) for n in (2, 3, 5)),
)
"""Designs with a side of two to five clusters."""


@dataclass(frozen=True, slots=True)
class Truth:
    """How answers are drawn.

    Attributes:
        rate: probability of yes of the usual pair and code, and of all where effects are symmetrical about one half.
        counting: share of items that count.
        pair_sd, code_sd: of their effects, in log-odds.
    """

    rate: float = 0.5
    counting: float = 1.0
    pair_sd: float = 0.0
    code_sd: float = 0.0

    @property
    def is_coin(self) -> bool:
        """Whether items are independent."""
        return self.pair_sd == self.code_sd == 0

    @property
    def name(self) -> str:
        """In words."""
        if self.is_coin:
            return f"coin of {self.rate:.2f}, {self.counting:.0%} count"
        return f"effects: pairs sd {self.pair_sd:g}, codes sd {self.code_sd:g}"

    def draw(self, design: Design, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Numerator and denominator of each item, each [item]."""
        pair_of, code_of = design.pair_of, design.code_of
        of_pairs = self.pair_sd * rng.normal(size=design.n_pairs)
        of_codes = self.code_sd * rng.normal(size=design.n_codes)
        log_odds = math.log(self.rate / (1 - self.rate)) + of_pairs[pair_of] + of_codes[code_of]
        d = (rng.random(len(pair_of)) < self.counting).astype(np.float64)
        return d * (rng.random(len(pair_of)) < expit(log_odds)), d


COINS = tuple(Truth(rate, counting) for rate in (0.25, 0.5) for counting in (1.0, 0.5, 0.25))
EFFECTS = tuple(
    Truth(pair_sd=sd * pairs, code_sd=sd * codes) for sd in (0.5, 1.0) for pairs, codes in ((1, 0), (0, 1), (1, 1))
)


@dataclass(slots=True)
class Tally:
    """Intervals of many runs."""

    hits: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)

    def add(self, truth: float, low: float, high: float) -> None:
        """One more; an interval that is NaN holds nothing, and has no width."""
        self.hits.append(low <= truth <= high)
        self.widths.append(high - low)

    @property
    def percent(self) -> float:
        """Runs whose interval holds the truth."""
        return 100 * float(np.mean(self.hits))

    @property
    def width(self) -> float:
        """Mean width."""
        return float(np.nanmean(self.widths))


def resampled(n: int, rng: np.random.Generator) -> Floats:
    """How often each of n clusters is drawn, when as many are drawn as there are [draw, cluster]."""
    return rng.multinomial(n, np.full(n, 1 / n), size=N_DRAWS).astype(np.float64)


def pigeonhole(y: Floats, d: Floats, design: Design, rng: np.random.Generator) -> tuple[float, float]:
    """Percentile interval of a ratio when pairs and codes are drawn anew; draws in which nothing counts are left out."""
    shape = (design.n_pairs, design.n_codes)
    at = design.pair_of * design.n_codes + design.code_of
    pairs, codes = (resampled(n, rng) for n in shape)
    above, below = (
        np.einsum("dc,dc->d", pairs @ np.bincount(at, weights=one, minlength=math.prod(shape)).reshape(shape), codes)
        for one in (y, d)
    )
    low, high = np.percentile(above[below > 0] / below[below > 0], TAILS_PERCENT)
    return float(low), float(high)


def bootstrap_correlation(x: Floats, y: Floats, codes: Codes, rng: np.random.Generator) -> tuple[float, float]:
    """Percentile interval of a correlation when codes are drawn anew; constant draws are left out."""
    weights = resampled(int(codes.max()) + 1, rng)[:, codes]  # [draw, column]
    n = weights.sum(axis=1)
    sums = {
        name: weights @ values for name, values in (("x", x), ("y", y), ("xx", x * x), ("yy", y * y), ("xy", x * y))
    }
    spread_x, spread_y = (sums[one + one] - sums[one] ** 2 / n for one in "xy")
    varied = (spread_x > 0) & (spread_y > 0)
    r = (sums["xy"] - sums["x"] * sums["y"] / n)[varied] / np.sqrt(spread_x * spread_y)[varied]
    low, high = np.percentile(r, TAILS_PERCENT)
    return float(low), float(high)


def ratio_row(design: Design, truth: Truth, runs: int, rng: np.random.Generator) -> tuple[Tally, Tally]:
    """Intervals of `ratio_interval`, and of the pigeonhole bootstrap, from the same answers."""
    ours, theirs = Tally(), Tally()
    for _ in range(runs):
        y, d = truth.draw(design, rng)
        found = ratio_interval(y, d, design.pair_of, design.code_of)
        ours.add(truth.rate, found.low, found.high)
        # Where nothing counts there is nothing to draw anew.
        theirs.add(truth.rate, *(pigeonhole(y, d, design, rng) if d.any() else (math.nan, math.nan)))
    return ours, theirs


def correlation_row(
    codes: Codes, rho: float, shared: float, runs: int, rng: np.random.Generator
) -> tuple[Tally, Tally, float]:
    """Intervals of `correlation`, and of a bootstrap of codes; and the percentage of runs with p of .05 or less."""
    ours, theirs, n_claimed = Tally(), Tally(), 0
    for _ in range(runs):
        alone = rng.normal(size=(2, len(codes)))
        common = rng.normal(size=(2, int(codes.max()) + 1))[:, codes]
        x, noise = math.sqrt(shared) * common + math.sqrt(1 - shared) * alone
        y = rho * x + math.sqrt(1 - rho**2) * noise
        found = correlation(x, y, codes, seed=int(rng.integers(2**31)))
        ours.add(rho, found.low, found.high)
        theirs.add(rho, *bootstrap_correlation(x, y, codes, rng))
        n_claimed += found.p <= 0.05
    return ours, theirs, 100 * n_claimed / runs


def print_ratios(title: str, cases: Sequence[tuple[Design, Truth]], runs: int, rng: np.random.Generator) -> None:
    """A line for each case, and the range of all."""
    print(f"\n{title}\n{'design':<22} {'answers':<36} {'covered':>8} {'pigeonhole':>11} {'its width':>10}")
    tallies = []
    for design, truth in cases:
        print(f"{title}: {design.name}, {truth.name}", file=sys.stderr)
        ours, theirs = ratio_row(design, truth, runs, rng)
        tallies.append((ours.percent, theirs.percent, theirs.width / ours.width))
        print(f"{design.name:<22} {truth.name:<36} {ours.percent:8.1f} {theirs.percent:11.1f} {tallies[-1][2]:10.2f}")
    covered, others, widths = zip(*tallies, strict=True)
    print(f"all: {span(covered)}% covered; pigeonhole {span(others)}%, {span(widths, 2)} times as wide", flush=True)


def print_correlations(runs: int, rng: np.random.Generator) -> None:
    """Likewise for correlations."""
    print(f"\nCorrelations\n{'columns':<22} {'rho':>5} {'shared':>7} {'covered':>8} {'bootstrap':>10} {'p <= .05':>9}")
    tallies = []
    for codes in (SOME_CODES, ALL_CODES):
        name = f"{len(codes)} ({int(codes.max()) + 1} codes)"
        for rho in (0.0, -0.5, 0.8):
            for shared in (0.0, SHARED_OF_A_CODE):
                print(f"correlations: {name}, rho {rho:g}, {shared:.0%} shared by a code", file=sys.stderr)
                ours, theirs, claimed = correlation_row(codes, rho, shared, runs, rng)
                tallies.append((ours.percent, theirs.percent))
                print(f"{name:<22} {rho:5.1f} {shared:7.0%} {ours.percent:8.1f} {theirs.percent:10.1f} {claimed:9.1f}")
    covered, others = zip(*tallies, strict=True)
    print(f"all: {span(covered)}% covered; bootstrap {span(others)}%", flush=True)


def span(values: Iterable[float], decimals: int = 1) -> str:
    """The smallest to the largest."""
    numbers = list(values)
    return f"{min(numbers):.{decimals}f} to {max(numbers):.{decimals}f}"


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=300, help="simulated runs of each case (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    given = parser.parse_args()
    if given.runs < 1:
        parser.error(f"--runs {given.runs}: give 1 or more")
    rng = np.random.default_rng(given.seed)
    print(
        f"{given.runs} runs of each case; a coverage of 95% has a standard error of {100 * math.sqrt(0.95 * 0.05 / given.runs):.1f}"
    )
    for design in DESIGNS:
        print_ratios(f"Coin flips, {design.name}", [(design, truth) for truth in COINS], given.runs, rng)
    for design in DESIGNS:
        print_ratios(f"Random effects, {design.name}", [(design, truth) for truth in EFFECTS], given.runs, rng)
    sides = [(one, Truth(pair_sd=1.0) if one.n_pairs < one.n_codes else Truth(code_sd=1.0)) for one in FEW]
    print_ratios("A side of two to five clusters that matters", sides, given.runs, rng)
    print_correlations(given.runs, rng)


if __name__ == "__main__":
    main()
