"""Claims and intervals of the audits of bias in text, on simulated answers whose truth is known."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tools.validity.tables import share, table
from undertow.metrics.text.scores import (
    ACCURACY,
    COPY,
    EXACT_MATCH,
    IDENTIFICATION,
    PERCENT,
    TOKEN_F1,
    Baselines,
    ScoredAnswers,
)
from undertow.metrics.text.tasks import results
from undertow.stats import MIN_CLUSTERS
from undertow.stats.classification.agreement import mean_over_cells
from undertow.stats.significance.largest_difference import largest_difference
from undertow.stats.significance.sign_flip import flip_means

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Rng = np.random.Generator
SIZES = (2, 5, 6, 8, 12, 20, 40, 130)
N_WORDINGS = 3
N_LABELS = 11
TEXT_SD = 1.0
"""Standard deviation of what a text does to all its answers, in log-odds."""
RARE = 0.2
"""The rarer label's share, where labels are not evenly frequent."""
N_TRUTH = 2_000_000
RUN_TEXTS, RUN_SLOTS = 44, {"verb": ("name", "identify"), "noun": ("bias", "prejudice"), "place": ("above", "here")}
N_MODELS = 8


def in_percent(values: Floats) -> Floats:
    """Numbers of 0 to 1 as percent."""
    found: Floats = 100 * values
    return found


def half_empty(shape: tuple[int, ...], rng: Rng) -> Floats:
    """0 in half of the texts, mostly below 60 in the others, as token F1 is [percent]."""
    return np.where(rng.random(shape) < 0.5, 0.0, in_percent(rng.beta(2, 3, shape)))


SCORES: Mapping[str, Callable[[tuple[int, ...], Rng], Floats]] = {
    "0 in half": half_empty,
    "mostly 0": lambda shape, rng: in_percent(rng.beta(0.1, 1, shape)),
    "100 in 85%": lambda shape, rng: in_percent((rng.random(shape) < 0.85).astype(np.float64)),
    "100 in 97%": lambda shape, rng: in_percent((rng.random(shape) < 0.97).astype(np.float64)),
    "near the middle": lambda shape, rng: in_percent(rng.beta(20, 20, shape)),
    "in clusters of 4": lambda shape, rng: np.repeat(
        in_percent(rng.beta(1, 2, (*shape[:-1], -(-shape[-1] // 4)))), 4, axis=-1
    )[..., : shape[-1]],
}
"""Scores of texts, in percent."""
OF_FOUR = "in clusters of 4"


def covered(draw: Callable[[tuple[int, ...], Rng], Floats], name: str, n: int, audit: tuple[int, Rng]) -> list[float]:
    """How often the printed interval and Student's t hold the mean, and how wide they are; NaN where there is none."""
    n_audits, rng = audit
    truth = float(draw((N_TRUTH,), rng).mean())
    n_texts = 4 * n if name == OF_FOUR else n
    clusters = np.arange(n_texts) // (4 if name == OF_FOUR else 1)
    scores = draw((n_audits, n_texts), rng)
    found = [mean_over_cells(one[:, np.newaxis], PERCENT, clusters) for one in scores]
    lows, highs = (np.array([getattr(one, end) for one in found]) for end in ("low", "high"))
    if np.isnan(lows).any():
        return [math.nan] * 4
    means = scores.reshape(n_audits, n, -1).mean(axis=2)
    half = stats.t.ppf(0.975, n - 1) * means.std(axis=1, ddof=1) / math.sqrt(n)
    by_t = np.abs(means.mean(axis=1) - truth) <= half
    held = (lows <= truth) & (truth <= highs)
    return [float(one.mean()) for one in (held, highs - lows, by_t, 2 * half)]


# Against the best answer without a model.


def answered(values: Floats, gold: NDArray[np.int64], name: str = EXACT_MATCH) -> ScoredAnswers:
    """One setting of answers with these scores [text, wording], in percent."""
    names = [f"text {at}" for at in range(len(values))]
    cells = [("question", f"wording {at}", 0) for at in range(values.shape[1])]
    known = {EXACT_MATCH: values} | {name: values}
    bleu, predicted = np.empty((*values.shape, 0)), np.zeros(values.shape, dtype=np.int64)
    return ScoredAnswers(names, [""] * len(names), cells, np.isfinite(values), known, bleu, gold, predicted, names)


def right(rate: float, n: int, rng: Rng) -> Floats:
    """Right answers to texts that are easy or hard, in the mean at this rate [text, wording]."""
    ease = TEXT_SD * rng.standard_normal((n, 1))
    # Logit of the mean of expit(c + normal) is near c / sqrt(1 + .346 sd^2); thresholds of a normal sum are exact.
    level = stats.norm.ppf(rate) * math.sqrt(1 + TEXT_SD**2)
    return np.asarray(100.0 * (rng.standard_normal((n, N_WORDINGS)) < level + ease), dtype=np.float64)


def guesses(n: int, rng: Rng) -> float:
    """P of a model that guesses among eleven labels that are as frequent."""
    gold = rng.permutation(np.arange(n) % N_LABELS)
    return gain_p(Baselines(N_LABELS), answered(right(1 / N_LABELS, n, rng), gold), EXACT_MATCH)


def of_two(n: int, rng: Rng) -> float:
    """P of a model that guesses Yes or No, half of the texts being biased."""
    gold = rng.permutation(np.arange(n) % 2)
    return gain_p(Baselines(2), answered(right(0.5, n, rng), gold), ACCURACY)


def as_the_majority(n: int, rng: Rng) -> float:
    """P of a model that is right as often as the more frequent label is."""
    gold = (rng.random(n) < RARE).astype(np.int64)
    return gain_p(Baselines(2), answered(right(1 - RARE, n, rng), gold), ACCURACY)


def as_a_copy(n: int, rng: Rng) -> float:
    """P of a model whose texts are as good as copies, better and worse by like amounts."""
    copies = 100 * rng.beta(4, 2, (n, 1))
    moved = copies + 15 * rng.standard_normal((n, 1)) + 5 * rng.standard_normal((n, N_WORDINGS))
    # Beyond the ends the differences would not balance: what is lost there is lost on both sides.
    reach = np.minimum(copies, 100 - copies)
    return of_copies(np.clip(moved, copies - reach, copies + reach), copies)


def much_worse_in_few(n: int, rng: Rng) -> float:
    """P of a model that is 10 points better than a copy in five of six texts, and 50 worse in the sixth."""
    copies = 52 + 20 * rng.random((n, 1))
    worse = rng.random((n, 1)) < 1 / 6
    return of_copies(copies + np.where(worse, -50.0, 10.0) + rng.uniform(-1, 1, (n, N_WORDINGS)), copies)


def of_copies(values: Floats, copies: Floats) -> float:
    """P of written answers beside copies [text, wording] and [text, 1], in percent."""
    names = {f"text {at}": at for at in range(len(values))}
    answers = answered(values, np.zeros(len(values), dtype=np.int64), TOKEN_F1)
    return gain_p(Baselines(0, names, {(COPY, TOKEN_F1): copies}), answers, TOKEN_F1)


def gain_p(baselines: Baselines, answers: ScoredAnswers, measure: str) -> float:
    """P of the difference from the best baseline; NaN where nothing is tested."""
    gain = baselines.gain(answers, measure)
    return math.nan if gain is None else gain.p


BESIDE: Mapping[str, Callable[[int, Rng], float]] = {
    "guesses among 11 labels": guesses,
    "guesses Yes or No": of_two,
    "as often right as the label of 80%": as_the_majority,
    "as good as copies": as_a_copy,
    "better than copies in most texts, much worse in few": much_worse_in_few,
}


# Effects of words that have none.

DIFFERENCES: Mapping[str, Callable[[tuple[int, ...], Rng], Floats]] = {
    "right or wrong, one text in five differs": lambda shape, rng: (
        100.0 * rng.choice([-1, 0, 1], shape, p=[0.1, 0.8, 0.1])
    ),
    "any size, alike on both sides": lambda shape, rng: 20 * rng.standard_t(3, shape),
    "other texts, other effects": lambda shape, rng: (
        rng.choice([-1.0, 1.0], shape) * rng.exponential(20, shape) + 5 * rng.standard_normal(shape)
    ),
    "log-normal, less their mean": lambda shape, rng: 10 * (rng.lognormal(0, 1, shape) - math.exp(0.5)),
    "a few large balance many small": lambda shape, rng: (
        np.where(rng.random(shape) < 1 / 6, -50.0, 10.0) + rng.uniform(-1, 1, shape)
    ),
}
"""Differences of texts between two words, in points, whose mean is 0."""


def words_rejected(draw: Callable[[tuple[int, ...], Rng], Floats], n: int, n_audits: int, rng: Rng) -> float:
    """How often an effect of 0 has p below .05; NaN where nothing is tested."""
    sums = np.clip(draw((n, n_audits), rng), -100, 100)
    found = flip_means(sums, np.ones_like(sums), 0)
    if all(math.isnan(one.p) for one in found):
        return math.nan
    return float(np.mean([one.p < 0.05 and one.n_differing >= MIN_CLUSTERS for one in found]))


def _right(share_right: float) -> Callable[[int, Rng], Floats]:
    return lambda n, rng: in_percent((rng.random(n) < share_right).astype(np.float64))


def _normal(sd: float) -> Callable[[int, Rng], Floats]:
    return lambda n, rng: np.clip(rng.normal(50, sd, n), *PERCENT)


def _beta(a: float, b: float) -> Callable[[int, Rng], Floats]:
    return lambda n, rng: in_percent(rng.beta(a, b, n))


OF_SIZES = (6, 6, 8, 8, 10, 10, 12, 20, 30, 40, 60)
DIMENSION_SCORES: Mapping[str, Sequence[tuple[int, Callable[[int, Rng], Floats]]]] = {
    "equal spreads: 6 and 60 texts": [(6, _normal(15)), (60, _normal(15))],
    "right in 20%: 11 times 6": [(6, _right(0.2))] * 11,
    "right in half of 6; near 50 in 60": [(6, _right(0.5)), (60, _normal(8))],
    "right in half of 12; near 50 in 60": [(12, _right(0.5)), (60, _normal(8))],
    "right in half of 12; near 50 in 4 times 12": [(12, _right(0.5)), *[(12, _normal(8))] * 4],
    "normal, sd 30 in 6; sd 5 in 60": [(6, _normal(30)), (60, _normal(5))],
    "normal, sd 30 in 10; sd 10 in 50": [(10, _normal(30)), (50, _normal(10))],
    "right in 20% of 12; mean 20, sd 12 in 60": [(12, _right(0.2)), (60, _beta(2, 8))],
    "mean 30, sd 32 in 10; sd 14 in 50": [(10, _beta(0.3, 0.7)), (50, _beta(3, 7))],
    "normal, sd 5 to 30 in 11 dimensions of 6 to 60": [
        (n, _normal(sd)) for n, sd in zip(OF_SIZES, (30, 5, 30, 5, 20, 10, 30, 5, 15, 10, 5), strict=True)
    ],
}
"""Number of texts and scores of each dimension; all have one mean."""


def dimensions_rejected(parts: Sequence[tuple[int, Callable[[int, Rng], Floats]]], n_audits: int, rng: Rng) -> float:
    """How often a difference of dimensions that is 0 has p below .05."""
    codes = np.repeat(np.arange(len(parts)), [n for n, _ in parts])
    claims = 0
    for audit in range(n_audits):
        scores = np.concatenate([draw(n, rng) for n, draw in parts])
        found = largest_difference(scores, np.ones(len(scores)), codes, PERCENT, audit)
        claims += found is not None and found.p < 0.05
    return claims / n_audits


# Whole runs.


def run_frame(n_models: int, rng: Rng, *, varied: bool) -> pd.DataFrame:
    """Answers of models that guess, to texts of eleven dimensions, in eight wordings of crossed slots.

    Args:
        n_models: how many.
        rng: of the answers.
        varied: whether texts are easier or harder with each word, and with each model, 0 in the mean.
    """
    import pandas as pd

    labels = [f"label {at}" for at in range(N_LABELS)]
    levels = [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)]
    rows: list[dict[str, Any]] = []
    level = stats.norm.ppf(1 / N_LABELS) * math.sqrt(1 + TEXT_SD**2 + (3 * TEXT_SD**2 if varied else 0.0))
    for model in range(n_models):
        ease = TEXT_SD * rng.standard_normal((RUN_TEXTS, 1))
        of_words = TEXT_SD * rng.standard_normal((RUN_TEXTS, 3)) if varied else np.zeros((RUN_TEXTS, 3))
        signs = 2.0 * np.array(levels) - 1
        hits = rng.standard_normal((RUN_TEXTS, len(levels))) < level + ease + of_words @ signs.T
        wrong = rng.integers(1, N_LABELS, hits.shape)
        for text in range(RUN_TEXTS):
            gold = text % N_LABELS
            for at, chosen in enumerate(levels):
                words = {name: RUN_SLOTS[name][one] for name, one in zip(RUN_SLOTS, chosen, strict=True)}
                rows.append(
                    {
                        "model": f"model {model}", "shots": "0", "sampling": "none", "decoding": "exact",
                        "document": f"text {text}", "dimension": labels[gold], "description_class": "question",
                        "wording": " ".join(words.values()), "draw": 0, "gold": labels[gold],
                        "answer": labels[gold if hits[text, at] else (gold + wrong[text, at]) % N_LABELS], "missing_reason": "",
                        "n_dropped_shots": 0, "nats": 0.0, **{f"slot_{name}": word for name, word in words.items()},
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def run_claims(n_models: int, rng: Rng, *, varied: bool) -> bool:
    """Whether a run in which nothing is there claims something."""
    design = {"task": IDENTIFICATION, "labels": [f"label {at}" for at in range(N_LABELS)]}
    return any(one.q < 0.05 for one in results(run_frame(n_models, rng, varied=varied), design, 0))


# The page.


def size_table(first: str, rows: Sequence[Sequence[str]]) -> str:
    """A table with a column for each number of texts."""
    return table([first, *(f"{n} texts" for n in SIZES)], rows)


def coverage_tables(n_audits: int) -> Iterator[str]:
    """Coverage and width of intervals of mean scores."""
    rng = np.random.default_rng(20)
    found = {}
    for name, draw in SCORES.items():
        print("coverage", name, file=sys.stderr, flush=True)
        for n in SIZES:
            found[name, n] = covered(draw, name, n, (n_audits, rng))
    for at, by in ((0, ""), (2, ", by Student's t, which is not used")):
        yield f"### A mean score lies outside its interval{by}\n"
        yield "In brackets the mean width of the interval, in points.\n"
        cells = [
            [
                share(1 - found[name, n][at]) + ("" if math.isnan(found[name, n][at]) else f" ({found[name, n][at + 1]:.0f})")
                for n in SIZES
            ]
            for name in SCORES
        ]  # fmt: skip
        yield size_table("scores", [[name, *row] for name, row in zip(SCORES, cells, strict=True)]) + "\n"


def beside_table(n_audits: int) -> str:
    """Claims of a difference from the best answer without a model, where there is none."""
    rng = np.random.default_rng(21)
    rows = []
    for name, draw in BESIDE.items():
        print("baseline", name, file=sys.stderr, flush=True)
        found = [[draw(n, rng) for _ in range(n_audits if n >= MIN_CLUSTERS else 20)] for n in SIZES]
        rows.append(
            [name, *(share(math.nan if np.isnan(one).all() else float(np.less(one, 0.05).mean())) for one in found)]
        )
    return size_table("the model", rows)


def words_table(n_audits: int) -> str:
    """Claims of an effect of a word, where there is none."""
    rng = np.random.default_rng(22)
    rows = []
    for name, draw in DIFFERENCES.items():
        print("words", name, file=sys.stderr, flush=True)
        rows.append([name, *(share(words_rejected(draw, n, n_audits, rng)) for n in SIZES)])
    return size_table("differences of texts", rows)


def dimension_table(n_audits: int) -> str:
    """Claims of a difference of two dimensions, where there is none."""
    rng = np.random.default_rng(24)
    rows = []
    for name, parts in DIMENSION_SCORES.items():
        print("dimensions", name, file=sys.stderr, flush=True)
        rows.append([name, share(dimensions_rejected(parts, n_audits, rng))])
    return table(["scores of texts", "claims"], rows)


def run_table(n_runs: int) -> str:
    """Runs in which nothing is there, that claim something."""
    rng = np.random.default_rng(23)
    rows = []
    for name, varied in (("easy and hard texts", False), ("texts that differ in what words do", True)):
        print("runs", name, file=sys.stderr, flush=True)
        found = [np.mean([run_claims(n, rng, varied=varied) for _ in range(n_runs)]) for n in (1, N_MODELS)]
        rows.append([name, *(share(float(one)) for one in found)])
    return table(["answers", "one model", "eight models"], rows)


def section(n_audits: int) -> Iterator[str]:
    """The title of this section, then its parts."""
    yield "Bias in text"
    of_runs = max(n_audits // 20, 10)
    yield f"""Scores are in percent, of texts that are drawn independently, or in clusters of four. Columns are numbers of texts, or of
clusters. Fewer than {MIN_CLUSTERS} have no interval and no claim. The tables but the last have {n_audits:,} audits a cell.
"""
    yield from coverage_tables(n_audits)
    yield "### A model is said to be better, or worse, than the best answer without a model, and is neither\n"
    yield (
        f"Each text is answered in {N_WORDINGS} wordings; it is easy or hard in all of them (standard deviation {TEXT_SD:g}, on a "
        "normal scale).\n"
    )
    yield beside_table(n_audits) + "\n"
    yield "### A word is said to have an effect, and has none in the mean\n"
    yield (
        "p below .05, before the correction for the tests of a run. The last two rows are skewed: their small differences lie on one side "
        "and their large ones on the other.\n"
    )
    yield words_table(n_audits) + "\n"
    yield "### Two dimensions are said to differ, and have equal means\n"
    yield "p below .05, before the correction for the tests of a run.\n"
    yield dimension_table(n_audits) + "\n"
    yield "### Runs that claim something where nothing is there, after the correction\n"
    yield (
        f"Models that guess among {N_LABELS} labels, {RUN_TEXTS} texts of {N_LABELS} dimensions, eight wordings of three slots. "
        f"{of_runs:,} runs a cell.\n"
    )
    yield run_table(of_runs) + "\n"
