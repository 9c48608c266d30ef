"""Claims and intervals of the audit of spurious correlation, on simulated audits whose truth is known."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from tools.validity.tables import share, table
from undertow.stats import benjamini_hochberg
from undertow.stats.intervals.cluster_errors import influence_variance, share_interval, skewed_interval
from undertow.stats.regression.trend import cluster_summary, covariate_effect, trend, trend_of_other_values

NOISES = (
    "independent", "sentences", "values", "AR .3", "AR .5", "AR .8", "AR .95", "random walk", "slopes", "skewed", "skewed slopes",
)  # fmt: skip
VALUES = (5, 8, 12, 20, 30, 60)
SENTENCES = (2, 5, 6, 8, 20, 60)
USUAL_VALUES, USUAL_SENTENCES = 30, 20
CELL_SD, SENTENCE_SD, VALUES_SD = 2.0, 8.0, 2.0
"""Noise of a text, of a sentence's level and of a value, in percentage points."""
SLOPES_SD = 0.2
"""Of the sentences' own slopes, in points a step at 30 values; the same over the whole list at other numbers of values."""
TREND_SDS = 1.0
SIGMAS, SKEWED_SENTENCES = (0.5, 1.0, 1.5), (8, 20, 60)
"""Standard deviations of the logarithm of masses of rare groups, and numbers of sentences."""
"""Planted trends: the means' noise per standard deviation of W."""
AT_ONCE = 250
N_MODELS, N_GROUPS = 8, 4


def autoregression(rho: float, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Noise of variance 1 whose neighbours correlate by rho; a random walk for 1 [series, value]."""
    steps = rng.standard_normal(shape)
    if rho == 1:
        return np.cumsum(steps, axis=1) / math.sqrt(shape[1] / 6)
    found = np.empty(shape)
    found[:, 0] = steps[:, 0]
    for at in range(1, shape[1]):
        found[:, at] = rho * found[:, at - 1] + math.sqrt(1 - rho**2) * steps[:, at]
    return found


def audits(noise: str, shape: tuple[int, int, int], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Masses without a trend [audit, sentence, value], and what the values themselves do to them [audit, value]."""
    n, sentences, values = shape
    x = np.arange(values) - (values - 1) / 2
    own = SLOPES_SD * 29 / (values - 1)
    cells, nothing = CELL_SD * rng.standard_normal(shape), np.zeros((n, values))
    if noise == "independent":
        return cells, nothing
    if noise == "skewed":
        # A few sentences hold most of the mass, and texts deviate to one side.
        levels = np.exp(rng.standard_normal((n, sentences, 1)))
        return 10 * levels + CELL_SD * levels * (np.exp(rng.standard_normal(shape)) - math.exp(0.5)), nothing
    cells = cells + SENTENCE_SD * rng.standard_normal((n, sentences, 1))
    if noise == "slopes":
        cells = cells + own * rng.standard_normal((n, sentences, 1)) * x
    if noise == "skewed slopes":
        cells = cells + own * (np.exp(rng.standard_normal((n, sentences, 1))) - math.exp(0.5)) * x
    rho = {"values": 0.0, "random walk": 1.0}.get(noise, float(noise[3:]) if noise.startswith("AR") else math.nan)
    if math.isnan(rho):
        return cells, nothing
    effects = VALUES_SD * autoregression(rho, (n, values), rng)
    return cells + effects[:, None, :], effects


@dataclass(frozen=True)
class Cell:
    """What simulated audits of one kind came to, as shares; NaN where the tool gives no number.

    Attributes:
        drift: drifts claimed (p < .05) where there is none; its interval holds the truth in 1 less this.
        power: drifts claimed where one is planted.
        t_power: the same by the plain t test over the means.
        sentences: slopes of these values, with all sentences there are, outside the interval for other sentences.
        others: slopes outside the interval for other values.
        effect: effects of W claimed; there are some where values have noise of their own.
        autocorrelation: estimated, the median.
    """

    drift: float
    power: float
    t_power: float
    sentences: float
    others: float
    effect: float
    autocorrelation: float


def cell(noise: str, n_sentences: int, n_values: int, n_audits: int, seed: int) -> Cell:
    """Simulate audits of one design."""
    rng, x = np.random.default_rng(seed), np.arange(n_values) - (n_values - 1) / 2
    enough = n_sentences >= 6
    rows: list[tuple[np.ndarray, ...]] = []
    effects: list[float] = []
    for start in range(0, n_audits, AT_ONCE):
        y, of_values = audits(noise, (min(AT_ONCE, n_audits - start), n_sentences, n_values), rng)
        parts = cluster_summary(x, y, np.ones_like(y))
        null = trend(x, parts)
        off = parts.means - parts.means.mean(axis=1, keepdims=True)
        planted = TREND_SDS * off.std() / x.std()
        tilted = replace(parts, means=parts.means + planted * x)
        _, _, p_others = trend_of_other_values(x, parts)
        t, error = stats.t.ppf(0.975, parts.df), np.sqrt(parts.slope_variance)
        low, high = skewed_interval(null.slope, error, t, parts.skewness)
        true_slope = of_values @ x / (x @ x)
        rows.append(
            (
                null.p,
                trend(x, tilted).p,
                _t_p(x, tilted.means),
                (true_slope < low) | (true_slope > high),
                p_others,
                null.autocorrelation,
            )
        )
        if enough and len(effects) < n_audits // 10:
            effects += [covariate_effect(one, np.ones_like(one), seed=start).p for one in y[: AT_ONCE // 5]]
    p, p_planted, p_t, outside, p_others, shared = (np.concatenate(column) for column in zip(*rows, strict=True))
    told = enough and bool(np.isfinite(p).all())
    return Cell(
        drift=float(np.mean(p < 0.05)) if told else math.nan,
        power=float(np.mean(p_planted < 0.05)) if told else math.nan,
        t_power=float(np.mean(p_t < 0.05)),
        sentences=float(outside.mean()) if enough else math.nan,
        others=float(np.mean(p_others < 0.05)) if enough else math.nan,
        effect=float(np.mean(np.array(effects) < 0.05)) if effects else math.nan,
        autocorrelation=float(np.median(shared)) if enough and np.isfinite(shared).all() else math.nan,
    )


def _t_p(x: np.ndarray, means: np.ndarray) -> np.ndarray:
    """P of the plain t test of a slope [series]."""
    weights = x / (x @ x)
    slope = means @ weights
    off = means - means.mean(axis=1, keepdims=True) - slope[:, None] * x
    error = np.sqrt((off**2).sum(axis=1) / (len(x) - 2) / (x @ x))
    return np.asarray(2 * stats.t.sf(np.abs(slope) / error, len(x) - 2))


def runs_with_a_false_claim(noise: str, n_sentences: int, n_models: int, n_runs: int, seed: int) -> float:
    """The share of runs without any drift in which a drift is claimed of some model or group, after the correction."""
    rng, x = np.random.default_rng(seed), np.arange(USUAL_VALUES) - (USUAL_VALUES - 1) / 2
    false = 0
    for _ in range(n_runs):
        shape = (n_models * (N_GROUPS - 2), n_sentences, USUAL_VALUES)
        groups = audits(noise, shape, rng)[0].reshape(n_models, N_GROUPS - 2, n_sentences, USUAL_VALUES)
        # A third group takes what two leave, and the gap of two is tested too: four tests of a model, as in an audit.
        y = np.concatenate([groups, -groups.sum(axis=1, keepdims=True), groups[:, :1] - groups[:, 1:2]], axis=1)
        y = y.reshape(-1, n_sentences, USUAL_VALUES)
        p = trend(x, cluster_summary(x, y, np.ones_like(y))).p
        false += bool((benjamini_hochberg(p) < 0.05).any())
    return false / n_runs


def drift_tables(n_audits: int, only: Sequence[str]) -> Iterator[str]:
    """Claims of the audit of spurious correlation."""
    found = {}
    designs = [(USUAL_SENTENCES, values) for values in VALUES] + [(sentences, USUAL_VALUES) for sentences in SENTENCES]
    for noise in only:
        for sentences, values in dict.fromkeys(designs):
            begun = time.monotonic()
            found[noise, sentences, values] = cell(noise, sentences, values, n_audits, seed=1)
            print(
                noise,
                sentences,
                values,
                found[noise, sentences, values],
                f"{time.monotonic() - begun:.0f} s",
                file=sys.stderr,
            )
    columns: list[tuple[str, Callable[[Cell], float]]] = [
        ("A drift is claimed where there is none", lambda one: one.drift),
        ("A drift of one standard deviation of noise is claimed", lambda one: one.power),
        ("The same by the plain t test, which does not hold its level in most rows", lambda one: one.t_power),
        ("The slope of these values lies outside the interval for other sentences", lambda one: one.sentences),
        ("The slope lies outside the interval for other values", lambda one: one.others),
        ("An effect of W is claimed (there is one from *values* to *random walk*)", lambda one: one.effect),
        ("Autocorrelation of neighbouring means, as estimated (median)", lambda one: one.autocorrelation),
    ]
    for title, of in columns:
        yield f"### {title}\n"
        heads = ["noise", *(f"{v} values" for v in VALUES), *(f"{s} sentences" for s in SENTENCES)]
        rows = [
            [
                noise,
                *(share(of(found[noise, USUAL_SENTENCES, v])) for v in VALUES),
                *(share(of(found[noise, s, USUAL_VALUES])) for s in SENTENCES),
            ]
            for noise in only
        ]
        yield table(heads, rows) + "\n"


def run_table(n_runs: int, only: Sequence[str]) -> str:
    """Runs with a false claim."""
    designs = [(models, sentences) for models in (1, N_MODELS) for sentences in (20, 60)]
    rows = [
        [
            noise,
            *(
                share(runs_with_a_false_claim(noise, sentences, models, n_runs, seed=2))
                for models, sentences in designs
            ),
        ]
        for noise in only
    ]
    return table(["noise", "one model, 20 sentences", "60", "eight models, 20 sentences", "60"], rows)


def mean_table(n_audits: int) -> str:
    """Mean masses outside their interval, where sentences are skewed."""
    rng = np.random.default_rng(3)
    kinds: dict[str, Callable[[tuple[int, ...]], np.ndarray]] = {
        "normal, mean 40%": lambda shape: 0.4 + 0.1 * rng.standard_normal(shape),
        "log-normal (sigma 1), mean 3%": lambda shape: np.minimum(0.02 * np.exp(rng.standard_normal(shape)), 1),
        "log-normal (sigma 1.5), mean 0.6%": lambda shape: np.minimum(
            0.002 * np.exp(1.5 * rng.standard_normal(shape)), 1
        ),
        "beta (.3, 3), mean 9%": lambda shape: rng.beta(0.3, 3, shape),
    }
    counts, rows = (6, 8, 12, 20, 60), []
    for name, draw in kinds.items():
        truth, row = float(draw((2_000_000,)).mean()), [name]
        for n in counts:
            y = draw((n_audits, n))
            means = y.mean(axis=1)
            errors = zip(means, *influence_variance((y - means[:, None]) / n, np.ones_like(y, dtype=bool)), strict=True)
            ends = [share_interval(float(mean), float(variance), float(df)) for mean, variance, df in errors]
            row.append(share(float(np.mean([not low <= truth <= high for low, high in ends]))))
        rows.append(row)
    return table(["mass of a sentence", *(f"{n} sentences" for n in counts)], rows)


def multiplied_table(n_audits: int) -> str:
    """Slopes outside their interval if the masses of all sentences double over 12 values."""
    rng, x, rows = np.random.default_rng(7), np.arange(12.0), []
    of_range = (x - x.mean()) / np.ptp(x)
    truth = float(np.polyfit(x, np.exp(math.log(2) * of_range + (0.3 * of_range) ** 2 / 2 + 0.3**2 / 2), 1)[0])
    for sigma in SIGMAS:
        row = []
        for n in SKEWED_SENTENCES:
            level, drift = rng.standard_normal((2, n_audits, n, 1))
            y = sigma * level - sigma**2 / 2 + (math.log(2) + 0.3 * drift) * of_range
            y = np.exp(y + 0.3 * rng.standard_normal((n_audits, n, 12)))
            parts = cluster_summary(x, y, np.ones_like(y))
            slopes = trend(x, parts)
            t, error = stats.t.ppf(0.975, parts.df), np.sqrt(parts.slope_variance)
            for low, high in (slopes.interval(), skewed_interval(slopes.slope, error, t, parts.skewness)):
                row.append(share(float(np.mean((truth < low) | (truth > high)))))
        rows.append([f"log-normal, sigma {sigma:g}", *row[::2], *row[1::2]])
    heads = [f"{what}{n} sentences" for what in ("", "other sentences: ") for n in SKEWED_SENTENCES]
    return table(["mass of a sentence", *heads], rows)


def section(n_audits: int, only: Sequence[str] = NOISES) -> Iterator[str]:
    """The title of this section, then its parts."""
    yield "Spurious correlation"
    yield f"""A mass is the level of its sentence (standard deviation {SENTENCE_SD:g} points), a slope of the sentence where it has one
({SLOPES_SD:g} points a step at {USUAL_VALUES} values), noise of the text ({CELL_SD:g}) and, from *values* to *random walk*,
noise of the value of W that all sentences share ({VALUES_SD:g}): independent, an autoregression (AR) with the correlation of
neighbours that its name says, or a random walk. *Skewed* has log-normal levels and noise, *skewed slopes* has log-normal slopes
of sentences. The left columns have {USUAL_SENTENCES} sentences, the right ones {USUAL_VALUES} values. Without a drift, the interval of
a slope misses the truth at most as often as the first table says. A cell has {n_audits:,} audits (standard error .005 at .05);
effects of W have a tenth of them, and runs a quarter.
"""
    yield from drift_tables(n_audits, only)
    yield "### Runs without any drift in which one is claimed, after the correction\n"
    yield run_table(max(n_audits // 4, 50), only) + "\n"
    yield "### The mean mass lies outside its interval\n"
    yield mean_table(n_audits) + "\n"
    yield "### The slope lies outside its interval, if masses double over 12 values\n"
    yield "The right columns are the interval for other sentences at these values.\n"
    yield multiplied_table(n_audits) + "\n"
