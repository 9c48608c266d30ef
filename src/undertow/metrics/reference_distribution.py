"""Scores of a sentence relative to labelled sentences.

The reference is one model's answers to a schema set; it holds for other sentences as far as they are similar.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from undertow.errors import UndertowError
from undertow.metrics.sentence_scores import COMBINED, TOTAL_VARIATION, features, score_names
from undertow.metrics.specification_detection import MIN_CLUSTERS_FOR_A_FIT
from undertow.stats.classification.roc import ROUNDING_DECIMALS, auroc, best_threshold, held_out_calls
from undertow.stats.regression.logistic import Logistic, fit_logistic, held_out_log_odds
from undertow.types import Floats

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class ReferenceRank:
    """One score of one sentence, in percent, and the share of the reference sentences of either kind that it exceeds; ties count half."""

    value: float
    above_unspecified: float
    above_specified: float


@dataclass(frozen=True, slots=True)
class Reference:
    """A model's scores of labelled sentences.

    Attributes:
        name: of the schema set.
        words: its word groups, and the words of each.
        unspecified, specified: scores of sentences of either kind by name [sentence].
        thresholds: the best threshold of each score on all sentences.
        accuracy: held-out balanced accuracy of `combined` and of total variation.
        area: held-out AUROC of these.
        fit: coefficients of the score `combined`.
    """

    name: str
    words: Mapping[str, frozenset[str]]
    unspecified: Mapping[str, Floats]
    specified: Mapping[str, Floats]
    thresholds: Mapping[str, float]
    accuracy: Mapping[str, float]
    area: Mapping[str, float]
    fit: Logistic

    @classmethod
    def from_scores(cls, scored: pd.DataFrame, words: Mapping[str, Sequence[str]]) -> Reference:
        """Create it from scored sentences with `well_specified`, and the words of each group.

        Raises:
            UndertowError: too few sentences have scores.
        """
        groups = tuple(words)
        known = scored[scored["missing_reason"] == ""]
        positive = ~known["well_specified"].astype(bool).to_numpy()
        kinds = [known["cluster"][kind].nunique() for kind in (positive, ~positive)]
        if min(kinds) < MIN_CLUSTERS_FOR_A_FIT:
            raise UndertowError(
                f"the schema set has scored sentences of each kind in only {min(kinds)} occupations or other clusters; a fit needs "
                f"{MIN_CLUSTERS_FOR_A_FIT}; choose another set with --challenge"
            )
        cluster = known["cluster"].astype(str).to_numpy()
        x = features(known, groups)
        odds = held_out_log_odds(x, positive, cluster)
        values = {
            name: known[name].to_numpy(dtype=np.float64) for name in score_names(groups) if known[name].notna().all()
        }
        held_out = {COMBINED: odds, TOTAL_VARIATION: values[TOTAL_VARIATION]}
        calls = {COMBINED: odds > 0, TOTAL_VARIATION: held_out_calls(values[TOTAL_VARIATION], positive, cluster)[0]}
        return cls(
            name=str(known["challenge"].iloc[0]),
            words={group: frozenset(map(str.lower, forms)) for group, forms in words.items()},
            unspecified={name: value[positive] for name, value in values.items()},
            specified={name: value[~positive] for name, value in values.items()},
            thresholds={name: best_threshold(value, positive) for name, value in values.items()},
            accuracy={
                name: float((call[positive].mean() + (~call[~positive]).mean()) / 2) for name, call in calls.items()
            },
            area={name: auroc(value, positive) for name, value in held_out.items()},
            fit=fit_logistic(x, positive),
        )

    def chances_percent(self, scored: pd.DataFrame, words: Mapping[str, Sequence[str]]) -> Floats:
        """Probability that each sentence is underspecified, with equal priors, in percent [sentence].

        NaN for sentences without scores or with other words than the reference.
        """
        chances = np.full(len(scored), math.nan)
        lower = {group: {form.lower() for form in forms} for group, forms in words.items()}
        if lower.keys() == self.words.keys() and all(lower[group] <= own for group, own in self.words.items()):
            x = features(scored, tuple(self.words))
            known = np.isfinite(x).all(axis=1)
            chances[known] = 100 * special.expit(self.fit.log_odds(x[known]))
        return chances

    def rank_of(self, name: str, value: float) -> ReferenceRank:
        """Rank of a score among those of either kind, ties counting half; NaN if the reference or the sentence lacks the score."""
        if math.isnan(value) or name not in self.unspecified:
            return ReferenceRank(value, math.nan, math.nan)
        mark = round(value, ROUNDING_DECIMALS)
        kinds = (np.round(kind[name], ROUNDING_DECIMALS) for kind in (self.unspecified, self.specified))
        return ReferenceRank(value, *(float((kind < mark).mean() + (kind == mark).mean() / 2) for kind in kinds))
