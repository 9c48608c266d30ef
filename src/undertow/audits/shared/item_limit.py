"""Sample sizes: which sentences and values `--limit` keeps, and which effects a design is too small to detect.

Imports no statistics, which take most of a second to load; the constants are equal to theirs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from undertow.data import NONE
from undertow.errors import counted
from undertow.types import ALPHA

MIN_SENTENCES, MIN_VALUES = 6, 8
"""Minima for a claim: `undertow.stats.MIN_CLUSTERS` and `undertow.stats.regression.trend.MIN_VALUES`."""
GOOD_SENTENCES, GOOD_VALUES = 8, 12
"""Sizes that a limit reaches for both before either grows further; beyond, both grow in this proportion."""
NEAR_BALANCE, NEARLY_ALL = 0.85, 0.99
MIN_PER_LINE = 3
MAX_EXACT, N_FLIPS = 13, 10_000
"""Largest number of clusters with exact sign flips, and number of sampled flips beyond (see `stats.significance.sign_flip`)."""


def cross_sizes(limit: int, n_sentences: int, n_values: int) -> tuple[int, int]:
    """Numbers of sentences and of values to cross within a limit.

    Maximises the smaller of sentences / 8 and values / 12; among nearly equal pairs, the one with most items. A limit of 48 or more
    gives at least 6 sentences with 8 values, one of 96 or more at least 8 with 12. If one side is exhausted, the other grows.

    Whatever the limit, there are at least one sentence and three values (or all, if there are fewer).
    """
    least = min(MIN_PER_LINE, n_values)
    most = max(1, min(n_sentences, limit // least))
    pairs = [(sentences, max(least, min(limit // sentences, n_values))) for sentences in range(1, most + 1)]

    def balance(pair: tuple[int, int]) -> float:
        return min(pair[0] / GOOD_SENTENCES, pair[1] / GOOD_VALUES)

    def has(pair: tuple[int, int]) -> tuple[bool, ...]:
        levels = ((MIN_SENTENCES, MIN_VALUES), (GOOD_SENTENCES, GOOD_VALUES))
        return tuple(pair[0] >= min(level[0], n_sentences) and pair[1] >= min(level[1], n_values) for level in levels)

    near = NEAR_BALANCE * max(map(balance, pairs))
    most_of = max(map(has, pairs))
    kept = [pair for pair in pairs if balance(pair) >= near and has(pair) == most_of]
    n_items = max(sentences * values for sentences, values in kept)
    return max(
        (pair for pair in kept if pair[0] * pair[1] >= NEARLY_ALL * n_items), key=lambda pair: (balance(pair), pair)
    )


def divide_limit(limit: int, sizes: Sequence[int]) -> list[int]:
    """Divide a limit evenly among parts of a design [part]; the unused share of small parts goes to the others.

    Args:
        limit: maximum number of items of all parts together.
        sizes: number of items of each part [part].
    """
    left, given = limit, dict.fromkeys(range(len(sizes)), 0)
    for n_done, part in enumerate(sorted(given, key=lambda part: sizes[part])):
        given[part] = min(sizes[part], left // (len(sizes) - n_done))
        left -= given[part]
    return list(given.values())


def even_places(count: int, n: int) -> list[int]:
    """`count` evenly spaced integers from 0 to n - 1, both ends included [count]."""
    return [int(place) for place in np.linspace(0, n - 1, min(count, n)).round()]


def stratified_sample(strata: Sequence[Hashable], count: int, seed: int) -> list[int]:
    """Sample `count` units as evenly over the strata [unit] as possible; sorted positions in `strata` [count].

    Every stratum gives one unit before any gives a second. A larger count with the same seed adds units to the smaller sample.
    """
    rng = np.random.default_rng(seed)
    order = [int(unit) for unit in rng.permutation(len(strata))]
    last: dict[Hashable, int] = {}
    rank = {}
    for unit in order:
        rank[unit] = last[strata[unit]] = last.get(strata[unit], -1) + 1
    return sorted(sorted(order, key=rank.__getitem__)[:count])


def fewest_values(scale: str) -> int:
    """Minimum number of values of a W list for a claim: 8 for a trend, 3 for a difference between unordered values."""
    return MIN_PER_LINE if scale == NONE else MIN_VALUES


@dataclass(frozen=True, slots=True)
class ListSizes:
    """Sample size of a W list: sentences crossed with values."""

    name: str
    scale: str
    n_sentences: int
    n_clusters: int
    n_values: int

    @property
    def noun(self) -> str:
        """The unit of the sample: sentences, or clusters of them."""
        return "sentence" if self.n_clusters == self.n_sentences else "cluster"

    @property
    def missing_clusters(self) -> int:
        """Number of further sentences (clusters) that a claim needs."""
        return max(MIN_SENTENCES - self.n_clusters, 0)

    @property
    def missing_values(self) -> int:
        """Number of further values that a claim needs, for a drift or a difference between unordered values."""
        return max(fewest_values(self.scale) - self.n_values, 0)

    def limitation(self) -> str:
        """Sentence on a list too small to show a drift, or any effect; "" if it is large enough."""
        sentences = counted(self.n_clusters, self.noun), MIN_SENTENCES, self.missing_clusters
        values = counted(self.n_values, "value"), fewest_values(self.scale), self.missing_values
        lacking = [part for part in (sentences, values) if part[2]]
        if not lacking:
            return ""
        what = "a difference between values" if self.scale == NONE else "a drift"
        # Too few values for a trend may still differ.
        only_order = not self.missing_clusters and self.n_values >= fewest_values(NONE)
        cannot = "no drift" if only_order else "nothing"
        has, least, missing = (" and ".join(str(part[at]) for part in lacking) for at in range(3))
        return f"{self.name}: {cannot} can be found with {has}; {what} needs at least {least} ({missing} more)."

    def flip_limitation(self, n_tests: int) -> str:
        """Sentence on an unordered list with too few sentences for a significant p among so many tests; "" if it has enough."""
        if self.scale != NONE or self.limitation() or fewest_hits(self.n_clusters, n_tests) < 2:
            return ""
        few = few_flips(self.n_clusters, n_tests, "a model's")
        return f"{self.name}: {few}."


def smallest_flip_p(n_clusters: int) -> float:
    """The smallest p of sign flips of `n_clusters`: 2^(1 - clusters) if all are enumerated."""
    return float(2.0 ** (1 - n_clusters)) if n_clusters <= MAX_EXACT else 1 / (N_FLIPS + 1)


def fewest_hits(n_clusters: int, n_tests: int) -> int:
    """Number of tests that must have the smallest p for a Benjamini-Hochberg q below .05."""
    return math.floor(smallest_flip_p(n_clusters) * n_tests / ALPHA * (1 + 1e-12)) + 1


def few_flips(n_clusters: int, n_tests: int, of: str, noun: str = "sentences") -> str:
    """Phrase on the number of tests that must agree, for the end of a sentence.

    Args:
        n_clusters: number of clusters.
        n_tests: number of tests that are corrected together.
        of: owner of the tests, for example "the run's".
        noun: what a cluster is, in the plural.
    """
    smallest, n_hits = f"{smallest_flip_p(n_clusters):.2g}".lstrip("0"), fewest_hits(n_clusters, n_tests)
    return f"with {n_clusters} {noun} p is {smallest} at least, so that q below .05 takes {n_hits} of {of} {n_tests} tests at once"


def too_few(remainder: str, smallest: int, claims: str = "") -> str:
    """Sentence on a limit that is too small for a claim.

    Args:
        remainder: the sample within the limit, for example "5 x 6 sentences and values of date".
        smallest: the smallest sufficient limit.
        claims: the part without a possible claim, if not the whole run, for example "about place".
    """
    nothing = f"no claim {claims} is possible" if claims else "no claim is possible"
    return f"--limit leaves {remainder}, so {nothing}; the smallest useful limit is {smallest:,}."
