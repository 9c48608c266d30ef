"""Human judgements of rephrasings: categories by model, annotator and class of task description, and agreement of annotators.

Categories: Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language" (Findings of EMNLP), table 10.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.metrics.metric import make_result
from undertow.stats import MIN_CLUSTERS
from undertow.stats.arrays import Estimate
from undertow.stats.intervals.multiway_cluster import ratio_interval
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

CATEGORIES: Mapping[str, str] = {
    "correct": "same meaning, without the bias",
    "rationale paraphrase": "still biased: repeated or paraphrased",
    "only word-based bias rephrased": "no insulting words, but the same biased meaning",
    "unbiased, but not a rephrase": "without the bias, but with another meaning",
    "generated its own example": "an invented text, task or answer",
    "cannot say": "unreadable or undecidable",
}
"""Categories of rephrasings with their meanings."""
ALL = "all"
"""Level of all annotators, or of all classes of task descriptions."""
SHARE, SAME, KAPPA = "judged_percent", "annotator_agreement", "annotator_kappa"
JUDGEMENT_MEASURES = (SHARE, SAME, KAPPA)


def summary(answers: pd.DataFrame, annotations: pd.DataFrame) -> list[dict[str, Any]]:
    """Counts of categories by model and annotator.

    An answer of several wordings or models is one rephrasing and counts once for each model. Rephrasings are shown in random order, so
    those annotated so far are a random sample.

    Args:
        answers: columns `model`, `pair` (id of span and answer) and `cluster` (of the text, the first of a pair) [answer].
        annotations: columns `item` (such an id), `category` and `annotator` [annotation].

    Returns:
        A row for each `model`, `annotator` and `category`: `count` (distinct rephrasings in the category), `n` (annotated ones),
        `n_all` (all), `percent` of `n` with its 95% interval `low` to `high` over clusters of texts, None with fewer than six.
    """
    distinct = answers.drop_duplicates(["model", "pair"])[["model", "pair", "cluster"]]
    judged = distinct.merge(annotations, left_on="pair", right_on="item")
    rows = []
    for (model, annotator), part in judged.groupby(["model", "annotator"], sort=True):
        n, n_all = len(part), int((distinct["model"] == model).sum())
        for category in CATEGORIES:
            count = int((part["category"] == category).sum())
            share = _share(part, category)
            low, high = (100 * end if math.isfinite(end) else None for end in (share.low, share.high))
            row = {"model": model, "annotator": annotator, "category": category, "count": count, "n": n, "n_all": n_all}
            rows.append(row | {"percent": 100 * share.value, "low": low, "high": high})
    return rows


def _share(judged: pd.DataFrame, category: str) -> Estimate:
    """Share of a category, the mean over rephrasings of that over their annotations; rephrasings of a cluster of texts are dependent."""
    by_pair = (judged["category"] == category).groupby([judged["pair"], judged["cluster"].astype(str)]).mean()
    n = len(by_pair)
    return ratio_interval(by_pair, np.ones(n), by_pair.index.get_level_values("cluster"), np.zeros(n))


def agreement(answers: pd.DataFrame, annotations: pd.DataFrame) -> list[dict[str, Any]]:
    """Agreement of each pair of annotators; arguments as `summary`.

    Returns:
        A row for each pair of annotators with common rephrasings: `n` of these, `same_percent` with the same category, and Cohen's
        `kappa` (None if both always chose one category).
    """
    known = annotations[annotations["item"].isin(answers["pair"])]
    table = known.pivot(index="item", columns="annotator", values="category")
    rows = []
    for first, second in combinations(table.columns, 2):
        both = table[[first, second]].dropna()
        n = len(both)
        if not n:
            continue
        same = float((both[first] == both[second]).mean())
        rates = [both[who].value_counts(normalize=True) for who in both]
        by_chance = sum(float(rates[0].get(category, 0) * rates[1].get(category, 0)) for category in CATEGORIES)
        kappa = (same - by_chance) / (1 - by_chance) if by_chance < 1 else None
        rows.append({"annotators": [first, second], "n": n, "same_percent": 100 * same, "kappa": kappa})
    return rows


def judgement_results(answers: pd.DataFrame, annotations: pd.DataFrame) -> Iterator[Result]:
    """Shares of categories by model, annotator and class of task description, and agreement; arguments as `summary`.

    Annotator `all` is the mean over rephrasings of the share of annotators who chose the category; each one follows if there are several.
    """
    several = annotations.loc[annotations["item"].isin(answers["pair"]), "annotator"].nunique() > 1
    classes = answers["description_class"].replace("", "(none)")
    levels = [ALL, *(sorted(set(classes)) if classes.nunique() > 1 else ())]
    for level in levels:
        part = answers if level == ALL else answers[classes == level]
        distinct = part.drop_duplicates(["model", "pair"])[["model", "pair", "cluster"]]
        judged = distinct.merge(annotations, left_on="pair", right_on="item")
        for model, of_model in judged.groupby("model", sort=True):
            n_all = int((distinct["model"] == model).sum())
            by_annotator = of_model.groupby("annotator", sort=True) if several else ()
            for annotator, rows in [(ALL, of_model), *((name, part) for name, part in by_annotator if name != ALL)]:
                n, of = rows["pair"].nunique(), {"model": str(model), "annotator": str(annotator)}
                n_clusters = rows["cluster"].nunique()
                note = "" if n_clusters >= MIN_CLUSTERS else f"no interval: fewer than {MIN_CLUSTERS} texts"
                for category in CATEGORIES:
                    share = _share(rows, category)
                    value, low, high = (100 * one for one in (share.value, share.low, share.high))
                    group = {**of, "category": category, "description_class": level}
                    extras = {"n_clusters": float(n_clusters)}
                    yield make_result(
                        SHARE, group, value, low=low, high=high, n=n, n_missing=n_all - n, extras=extras, note=note
                    )
    for row in agreement(answers, annotations):
        group = {"annotator": " and ".join(row["annotators"])}
        yield make_result(SAME, group, row["same_percent"], n=row["n"])
        note = "" if row["kappa"] is not None else "both annotators always chose one category"
        yield make_result(KAPPA, group, math.nan if row["kappa"] is None else row["kappa"], n=row["n"], note=note)
