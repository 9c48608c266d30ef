"""Scores of each sentence: movement of the answer with W, and entropy.

Masses are shares of the word groups. `first` and `last` are the means over the first and the last W values. Movements are in
percentage points; Jensen-Shannon divergence and entropy are in percent of their maximum, so that all scores share a unit.
McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), section 5.2 (the difference between the earliest and the
latest date); the ICLR submission "Selection Induced Collider Bias", section 5 (the mean of several). Entropy is not in the
papers: it is the baseline that needs no W.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from undertow.errors import UndertowError
from undertow.stats.regression.least_squares import fit_rows
from undertow.types import Floats

if TYPE_CHECKING:
    import pandas as pd

KEYS = ("model", "prompt", "challenge", "w_name")
"""Columns that identify a detector."""
NO_W = "none"
"""The `w_name` of a sentence without W."""
DELTA, SLOPE, SHIFT, MEAN = "delta_", "slope_", "shift_", "mean_"
_OF_GROUPS = (MEAN, SHIFT, DELTA, SLOPE)
TOTAL_VARIATION, JENSEN_SHANNON, ENTROPY, ENTROPY_PLAIN = (
    "total_variation", "jensen_shannon", "entropy", "entropy_plain"
)  # fmt: skip
COMBINED = "combined"
"""Probability that a sentence is underspecified, in percent, by a fit to sentences of other clusters; see `features`."""
FEATURE_FLOOR = 5e-4
"""Added to masses before logarithms: half of a tenth of a percent, the rounding of recorded masses."""
_PER_ROW = (
    "item", "w_index", "w_value", "w", "other_words", "missing_reason", "options", "logprobs_nats", "spaced_logprobs_nats", "part",
)  # fmt: skip
_ROUNDING_PERCENT = 0.6
"""Tolerance of sums of normalised masses, because recorded masses are rounded to a tenth."""


def score_names(groups: Sequence[str]) -> list[str]:
    """All scores of a sentence, in the order of reports."""
    return [
        *(f"{DELTA}{group}" for group in groups),
        TOTAL_VARIATION,
        JENSEN_SHANNON,
        *(f"{SLOPE}{group}" for group in groups),
        ENTROPY,
        ENTROPY_PLAIN,
    ]


def sentence_scores(frame: pd.DataFrame, groups: Sequence[str], endpoint_window: int = 1) -> pd.DataFrame:
    """One row for each sentence of each model, prompt, set and W list, with its factors and scores.

    Args:
        frame: a row per sentence and W value, the groups in percent, with `missing_reason`. Rows with `w_name` "none" are sentences
            without W.
        groups: columns of mass.
        endpoint_window: number of W values at each end that are averaged for `first` and `last`.

    Returns:
        Key columns, sentence, cluster, the factors; `mean_<group>`, `shift_<group>` (last minus first), then the scores of
        `score_names`; `missing_reason`. Missing scores are NaN.

    Raises:
        UndertowError: there are fewer than twice `endpoint_window` W values.
    """
    import pandas as pd

    injected, plain = frame[frame["w_name"] != NO_W], frame[frame["w_name"] == NO_W]
    parts = [part.reset_index(drop=True) for _, part in injected.groupby(list(KEYS), sort=False, dropna=False)]
    tables = [_scores_of(part, groups, endpoint_window) for part in parts]
    if not tables:
        raise UndertowError("the observations have no sentence with a W, so there are no movements")
    scored = pd.concat(tables, ignore_index=True)
    # Entropy of each sentence without W; NaN if it was not scored without W.
    by = [key for key in KEYS if key != "w_name"] + ["sentence"]
    most = math.log2(len(groups)) if len(groups) > 1 else 1.0
    values = 100 * _entropy_bits(plain[list(groups)].to_numpy(dtype=np.float64)) / most
    known = dict(zip(map(tuple, plain[by].astype(str).to_numpy()), values, strict=True))
    entropy = [known.get(tuple(key), math.nan) for key in scored[by].astype(str).to_numpy()]
    scored[ENTROPY_PLAIN] = np.where(scored["missing_reason"] == "", entropy, math.nan)
    return scored


def _scores_of(rows: pd.DataFrame, groups: Sequence[str], endpoint_window: int) -> pd.DataFrame:
    sentences, of = np.unique(rows["sentence"].astype(str).to_numpy(), return_inverse=True)
    levels, at = np.unique(rows["w_index"].to_numpy(), return_inverse=True)
    if len(levels) < 2 * endpoint_window:
        raise UndertowError(
            f"{len(levels)} W values are too few for a movement between the first {endpoint_window} and the last "
            f"{endpoint_window}; use at least {2 * endpoint_window}"
        )
    # A group has no mass if the tokenizer knows none of its words; shares are those of the others.
    read = [group for group in groups if rows[group].notna().any()] or list(groups)
    masses = np.full((len(sentences), len(levels), len(read)), math.nan)
    masses[of, at] = normalised_percent(rows[read].to_numpy(dtype=np.float64))
    missing = {f"{kind}{group}": np.full(len(sentences), math.nan) for group in groups for kind in _OF_GROUPS}
    of_read = _movements(masses, read, endpoint_window, levels.astype(np.float64))
    scores = of_read if len(read) == len(groups) else missing | of_read
    opened = np.full(len(sentences), "", dtype=object)
    needed = np.isin(at, [*range(endpoint_window), *range(len(levels) - endpoint_window, len(levels))])
    reasons = rows["missing_reason"].astype(str).to_numpy()
    for row in np.flatnonzero(needed & (reasons != "")):
        opened[of[row]] = opened[of[row]] or reasons[row]
    seen = np.zeros((len(sentences), len(levels)), dtype=bool)
    seen[of, at] = True
    ends_seen = seen[:, :endpoint_window].all(axis=1) & seen[:, -endpoint_window:].all(axis=1)
    opened[(opened == "") & ~ends_seen] = "the run lacks some of its W values"
    first_rows = np.unique(of, return_index=True)[1]
    table = rows.iloc[first_rows].drop(columns=[*groups, *(name for name in _PER_ROW if name in rows)])
    table = table.reset_index(drop=True).assign(**scores, missing_reason=opened)
    table.loc[table["missing_reason"] != "", list(scores)] = math.nan
    return table.iloc[np.argsort(first_rows, kind="stable")].reset_index(drop=True)  # in the order of the run


def normalised_percent(masses: Floats) -> Floats:
    """Masses normalised to 100 [row, group]; rows that add up to 100 within rounding, and rows of zeros, are unchanged."""
    total = masses.sum(axis=1, keepdims=True)
    scale = np.where((np.abs(total - 100) <= _ROUNDING_PERCENT) | (total == 0), 100, total)
    return masses * 100 / scale


def _movements(masses: Floats, groups: Sequence[str], endpoint_window: int, levels: Floats) -> dict[str, Floats]:
    """Every score by name, each [sentence], from masses [sentence, w, group]."""
    first, last = (part.mean(axis=1) for part in (masses[:, :endpoint_window], masses[:, -endpoint_window:]))
    shift, middle = last - first, (first + last) / 2  # [sentence, group]
    # A row of zeros (none of the listed words was recorded) is no distribution: it has movements but no entropy.
    is_shares = (first.sum(axis=1) > 0) & (last.sum(axis=1) > 0)
    most = math.log2(len(groups)) if len(groups) > 1 else 1.0
    mean_entropy = _entropy_bits(middle)
    divergence = mean_entropy - (_entropy_bits(first) + _entropy_bits(last)) / 2
    slopes = [fit_rows(levels, masses[:, :, group])[0] for group in range(len(groups))]
    span = float(levels[-1] - levels[0])
    return {
        **{f"{MEAN}{group}": middle[:, index] for index, group in enumerate(groups)},
        **{f"{SHIFT}{group}": shift[:, index] for index, group in enumerate(groups)},
        **{f"{DELTA}{group}": np.abs(shift[:, index]) for index, group in enumerate(groups)},
        TOTAL_VARIATION: np.where(is_shares, np.abs(shift).sum(axis=1) / 2, math.nan),
        JENSEN_SHANNON: np.where(is_shares, 100 * np.maximum(divergence, 0), math.nan),
        **{f"{SLOPE}{group}": np.abs(slopes[index]) * span for index, group in enumerate(groups)},
        ENTROPY: np.where(is_shares, 100 * mean_entropy / most, math.nan),
    }


def _entropy_bits(masses: Floats) -> Floats:
    """Entropy of each row's shares, in bits [row]; NaN for rows without shares."""
    total = masses.sum(axis=-1, keepdims=True)
    shares = np.divide(masses, total, out=np.full_like(masses, math.nan), where=total > 0)
    bits: Floats = -(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=-1)
    return bits


def features(scored: pd.DataFrame, groups: Sequence[str]) -> Floats:
    """Features of the score `combined` [sentence, feature].

    Logarithms of total variation and of entropy, and the log-odds of each group's mean mass with their squares. NaN for rows
    without scores.
    """
    means = scored[[f"{MEAN}{group}" for group in groups]].to_numpy(dtype=np.float64)
    sizes = scored[[TOTAL_VARIATION, ENTROPY]].to_numpy(dtype=np.float64)
    share = np.clip(means / 100, 0, 1)
    middle = np.log((share + FEATURE_FLOOR) / (1 - share + FEATURE_FLOOR))
    return np.column_stack([np.log(sizes / 100 + FEATURE_FLOOR), middle, middle**2])
