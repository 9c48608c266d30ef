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
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from undertow.stats.crossed import correlation, ratio_interval
from undertow.types import Floats

Codes = NDArray[np.int64]

N_DRAWS = 500
"""Draws of a bootstrap, whose 95% interval is between their percentiles."""
SHARED_OF_A_CODE = 0.8


def codes_of(*sharing: int, n_columns: int) -> Codes:
    """Codes of columns, the first of which share theirs: as many as `sharing` says, each code in turn [column]."""
    shared = np.repeat(np.arange(len(sharing)), sharing)
    return np.concatenate([shared, np.arange(len(sharing), len(sharing) + n_columns - len(shared))])


ALL_CODES = codes_of(4, 3, 2, 2, n_columns=62)
"""The 62 occupations of the shipped table: 55 codes."""
SOME_CODES = codes_of(2, n_columns=20)
"""As many occupations as a run draws: 19 codes."""
DESIGNS = ((5, codes_of(n_columns=8)), (10, SOME_CODES), (70, ALL_CODES))
"""Pairs, and the code of each occupation."""
FEW = (*((n, SOME_CODES) for n in (2, 3, 5)), *((70, codes_of(n_columns=n)) for n in (2, 3, 5)))


class Truth(NamedTuple):
    """How answers are drawn: the rate of yes, the share of items that count, spreads of effects in log-odds."""

    rate: float = 0.5
    counting: float = 1.0
    pair_sd: float = 0.0
    code_sd: float = 0.0

    def draw(self, pair_of: Codes, code_of: Codes, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Numerator and denominator of each item, each [item]."""
        effects = (
            sd * rng.normal(size=of.max() + 1)[of] for sd, of in ((self.pair_sd, pair_of), (self.code_sd, code_of))
        )
        log_odds = math.log(self.rate / (1 - self.rate)) + sum(effects)
        d = (rng.random(len(pair_of)) < self.counting).astype(np.float64)
        return d * (rng.random(len(pair_of)) < expit(log_odds)), d


COINS = tuple(Truth(rate, counting) for rate in (0.25, 0.5) for counting in (1.0, 0.5, 0.25))
EFFECTS = tuple(Truth(pair_sd=sd * a, code_sd=sd * b) for sd in (0.5, 1.0) for a, b in ((1, 0), (0, 1), (1, 1)))


def resampled(n: int, rng: np.random.Generator) -> Floats:
    """How often each of n clusters is drawn, when as many are drawn as there are [draw, cluster]."""
    return rng.multinomial(n, np.full(n, 1 / n), size=N_DRAWS).astype(np.float64)


def pigeonhole(y: Floats, d: Floats, pair_of: Codes, code_of: Codes, rng: np.random.Generator) -> Floats:
    """Percentile interval of a ratio when pairs and codes are drawn anew; draws in which nothing counts are left out."""
    shape = pair_of.max() + 1, code_of.max() + 1
    pairs, codes = (resampled(n, rng) for n in shape)
    sums = []
    for one in (y, d):
        table = np.bincount(pair_of * shape[1] + code_of, weights=one, minlength=math.prod(shape)).reshape(shape)
        sums.append(np.einsum("dc,dc->d", pairs @ table, codes))
    return percentiles(sums[0][sums[1] > 0] / sums[1][sums[1] > 0])


def bootstrap_correlation(x: Floats, y: Floats, codes: Codes, rng: np.random.Generator) -> Floats:
    """Percentile interval of a correlation when codes are drawn anew; constant draws are left out."""
    weights = resampled(codes.max() + 1, rng)[:, codes]  # [draw, column]
    n = weights.sum(axis=1)
    x, y, xx, yy, xy = (weights @ values / n for values in (x, y, x * x, y * y, x * y))
    spread = (xx - x**2) * (yy - y**2)
    return percentiles((xy - x * y)[spread > 0] / np.sqrt(spread[spread > 0]))


def percentiles(draws: Floats) -> Floats:
    """The 95% interval; NaN of no draws."""
    return np.percentile(draws, (2.5, 97.5)) if len(draws) else np.full(2, np.nan)


def covered(intervals: Floats, truth: float) -> float:
    """Percentage of intervals that hold the truth; one that is NaN holds nothing [run, end]."""
    return 100 * float(np.mean((intervals[:, 0] <= truth) & (truth <= intervals[:, 1])))


def ratios(title: str, cases: Sequence[tuple[int, Codes, Truth]], runs: int, rng: np.random.Generator) -> None:
    """A line for each case, and the range of all: `ratio_interval` and the bootstrap, from the same answers."""
    print(f"\n{title}\n{'pairs x columns (codes)':<24} {'answers':<62} covered pigeonhole its width")
    rows = []
    for n_pairs, codes, truth in cases:
        pair_of, code_of = np.repeat(np.arange(n_pairs), len(codes)), np.tile(codes, n_pairs)
        ours, theirs = np.empty((runs, 2)), np.empty((runs, 2))
        for run in range(runs):
            y, d = truth.draw(pair_of, code_of, rng)
            found = ratio_interval(y, d, pair_of, code_of)
            ours[run] = found.low, found.high
            theirs[run] = pigeonhole(y, d, pair_of, code_of, rng)
        wider = float(np.nanmean(np.diff(theirs)) / np.nanmean(np.diff(ours)))
        rows.append((covered(ours, truth.rate), covered(theirs, truth.rate), wider))
        design = f"{n_pairs} x {len(codes)} ({codes.max() + 1})"
        print(f"{design:<24} {truth!s:<62} {rows[-1][0]:7.1f} {rows[-1][1]:10.1f} {wider:9.2f}", flush=True)
    low, high = np.min(rows, axis=0), np.max(rows, axis=0)
    print(f"all: from {low.round(2)} to {high.round(2)}", flush=True)


def correlations(runs: int, rng: np.random.Generator) -> None:
    """Likewise for correlations, and how often p is .05 or less."""
    print("\nCorrelations\ncolumns (codes)   rho  shared covered bootstrap p <= .05")
    for codes in (SOME_CODES, ALL_CODES):
        for rho, shared in ((rho, shared) for rho in (0.0, -0.5, 0.8) for shared in (0.0, SHARED_OF_A_CODE)):
            ours, theirs, n_claimed = np.empty((runs, 2)), np.empty((runs, 2)), 0
            for run in range(runs):
                alone = rng.normal(size=(2, len(codes)))
                common = rng.normal(size=(2, codes.max() + 1))[:, codes]
                x, noise = math.sqrt(shared) * common + math.sqrt(1 - shared) * alone
                y = rho * x + math.sqrt(1 - rho**2) * noise
                found = correlation(x, y, codes, seed=int(rng.integers(2**31)))
                ours[run] = found.low, found.high
                theirs[run] = bootstrap_correlation(x, y, codes, rng)
                n_claimed += found.p <= 0.05
            numbers = f"{covered(ours, rho):7.1f} {covered(theirs, rho):9.1f} {100 * n_claimed / runs:8.1f}"
            print(f"{len(codes)} ({codes.max() + 1})         {rho:5.1f} {shared:7.0%} {numbers}", flush=True)


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=300, help="simulated runs of each case (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    for title, truths in (("Coin flips", COINS), ("Random effects", EFFECTS)):
        for design in DESIGNS:
            ratios(title, [(*design, truth) for truth in truths], given.runs, rng)
    sides = [(n, codes, Truth(pair_sd=1.0) if n <= codes.max() else Truth(code_sd=1.0)) for n, codes in FEW]
    ratios("A side of two to five clusters that matters", sides, given.runs, rng)
    correlations(given.runs, rng)


if __name__ == "__main__":
    main()
