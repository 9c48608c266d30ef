"""In all of these tables clusters differ, and there is nothing to find."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from conftest import Cli

Rows = Iterator[dict[str, Any]]


def drifts(rng: np.random.Generator) -> Rows:
    """Eight clusters of six sentences along twelve years; each cluster has a slope of its own, 0 in the mean of all."""
    slopes = rng.normal(0, 1, 8)
    for cluster, slope in enumerate(slopes):
        for sentence in range(6):
            for year in range(12):
                share = 50 + slope * (year - 5.5) + rng.normal(0, 1)
                yield {
                    "model": "m", "w_name": "year", "w_index": year, "w": 1900 + year, "text_index": f"{cluster}.{sentence}",
                    "cluster": f"k{cluster}", "xe": share, "ze": 100 - share,
                }  # fmt: skip


def ends(rng: np.random.Generator) -> Rows:
    """Sixteen clusters of six sentences, eight of either kind; clusters move more or less, either way, and kinds do not differ."""
    decided, way = rng.permutation(16) < 8, rng.choice([-1, 1], 16)
    for cluster, size in enumerate(np.exp(rng.normal(1, 0.7, 16))):
        for sentence in range(6):
            moved = way[cluster] * size * np.exp(rng.normal(0, 0.3))
            yield {
                "model": "m", "sentence": f"{cluster}.{sentence}", "well_specified": "yes" if decided[cluster] else "no",
                "cluster": f"k{cluster}", "w_first_xe": 50, "w_first_ze": 50, "w_last_xe": 50 + moved, "w_last_ze": 50 - moved,
            }  # fmt: skip


def choices(rng: np.random.Generator) -> Rows:
    """Eight clusters of five pairs of names and eight jobs; a cluster leans to its women or to its men, 0 in the mean."""
    for cluster, lean in enumerate(rng.normal(0, 20, 8)):
        for pair in range(5):
            for job in range(8):
                for order in ("female first", "male first"):
                    woman = float(np.clip(50 + lean + rng.normal(0, 10), 1, 99))
                    yield {
                        "question_type": "single", "woman": f"W{cluster}.{pair}", "man": f"M{cluster}.{pair}", "occupation": f"job {job}",
                        "order": order, "cluster": f"k{cluster}", "answer": f"{'WM'[woman < 50]}{cluster}.{pair}",
                        "female_percent": woman, "male_percent": 100 - woman,
                    }  # fmt: skip


def labels(rng: np.random.Generator) -> Rows:
    """Ten clusters of twelve texts, half of them of either label; a cluster's answers are mostly right or mostly wrong, as chance says."""
    for cluster, right in enumerate(rng.choice([0.15, 0.85], 10)):
        for text in range(12):
            gold = text % 2 == 0
            said = gold == bool(rng.random() < right)
            yield {
                "document": f"{cluster}.{text}", "gold": ("No", "Yes")[gold], "answer": ("No", "Yes")[said], "cluster": f"k{cluster}",
            }  # fmt: skip


MAIN: dict[str, tuple[Callable[..., Rows], dict[str, str]]] = {
    "spurious-correlation": (drifts, {"measure": "slope"}),
    "task-specification": (ends, {"measure": "auroc", "score": "total_variation"}),
    "occupation-checklist": (choices, {"measure": "choice_gap", "occupation": "all"}),
    "bias-diagnosis": (labels, {"measure": "accuracy", "dimension": "all"}),
}
"""A table of each kind without an effect, and the number that its clusters bear on."""
Score = Callable[[str, pd.DataFrame], tuple[pd.DataFrame, list[dict[str, Any]]]]


@pytest.fixture
def score(cli: Cli, tmp_path: Path) -> Score:

    def scored(audit: str, table: pd.DataFrame) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
        table.to_csv(tmp_path / "own.csv", index=False)
        done = cli("score", "own.csv", "--audit", audit, "--out", "run", "--overwrite", "--json")
        assert done.returncode == 0, done.stderr
        return pd.read_csv(tmp_path / "run" / "results.csv"), json.loads(done.stdout)["findings"]

    return scored


def half_width(results: pd.DataFrame, chosen: dict[str, str]) -> float:
    """Of the interval of the number that the clusters bear on."""
    for column, value in chosen.items():
        results = results[results[column] == value]
    first = results[results["model"].notna() & (results["model"] != "")].iloc[0]
    return float(first["high"] - first["low"]) / 2


@pytest.mark.parametrize("audit", MAIN)
def test_a_column_of_clusters_widens_the_interval_and_five_clusters_have_none(audit: str, score: Score) -> None:
    """Sentences, names or texts of a cluster are alike, so that they count for less than as many independent ones."""
    make, chosen = MAIN[audit]
    table = pd.DataFrame(make(np.random.default_rng(1)))
    of_five = table.assign(cluster=table["cluster"].str[1:].astype(int) % 5)
    (clustered, _), (alone, _), (few, findings) = (
        score(audit, one) for one in (table, table.drop(columns="cluster"), of_five)
    )
    assert half_width(clustered, chosen) > 1.3 * half_width(alone, chosen)
    assert math.isnan(half_width(few, chosen))
    assert not any(one["significant"] for one in findings)


def test_a_cluster_of_sentences_counts_as_their_mean(score: Score) -> None:
    """Six sentences of each cluster beside each year, and one with their mean."""
    table = pd.DataFrame(drifts(np.random.default_rng(1)))
    keys = ["model", "w_name", "w_index", "w", "cluster"]
    of_sentences, of_means = (
        score("spurious-correlation", one)[0]
        for one in (table, table.groupby(keys, as_index=False)[["xe", "ze"]].mean())
    )
    names = ["value", "low", "high", "p"]
    for measure in ("slope", "slope_gap"):
        first, second = (one.loc[one["measure"] == measure, names].to_numpy() for one in (of_sentences, of_means))
        assert np.isfinite(first).all()
        assert first == pytest.approx(second, abs=1e-9)


def test_a_cluster_holds_each_sentence_once_and_whole_pairs_of_names(cli: Cli, tmp_path: Path) -> None:
    sentences = pd.DataFrame(drifts(np.random.default_rng(1))).iloc[:24]
    names = pd.DataFrame(choices(np.random.default_rng(1))).iloc[:40]
    for audit, table, said in (
        ("spurious-correlation", pd.concat([sentences, sentences.iloc[[5]]]), "repeats the sentence"),
        ("occupation-checklist", names.assign(cluster=[f"k{at % 2}" for at in range(40)]), "line 3: cluster of pair 'W0.0/M0.0'"),
    ):  # fmt: skip
        table.to_csv(tmp_path / "own.csv", index=False)
        done = cli("score", "own.csv", "--audit", audit, "--out", "run")
        assert done.returncode != 0
        assert said in " ".join(done.stderr.split())
