"""Which score tells undecided sentences from deciding ones best? Many candidates beside plain entropy and total variation.

    undertow run task-specification -m smollm2 --w date,place --date-count 10 --plain --out runs/many
    undertow score specification_pronoun_mass.csv.gz --probe task-specification --out runs/recorded
    python studies/detection_scores.py runs/many runs/recorded

For each model and set: the AUROC of every candidate, and its difference from either baseline with a 95% interval from
resampling occupations (2,000 draws, the same for all scores). Fitted scores are out of fold: for each sentence the fit saw other
occupations only. docs/log.md tells what came of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from undertow.measures.movement import FEATURE_FLOOR, features, normalised_percent, sentence_scores
from undertow.records import read_record
from undertow.stats import percentile_interval
from undertow.stats.detection import auroc, auroc_draws, cluster_weights
from undertow.stats.logistic import fit_logistic, held_out_log_odds
from undertow.types import Floats

Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]

BASELINES = ("entropy", "total variation")
N_DRAWS = 2_000


def entropy(shares: Floats) -> Floats:
    """Of each row's shares, in bits [...]."""
    whole = shares / shares.sum(axis=-1, keepdims=True)
    bits: Floats = -(whole * np.log2(np.where(whole > 0, whole, 1))).sum(axis=-1)
    return bits


def log_odds(share: Floats) -> Floats:
    """With the floor that recorded, rounded shares need."""
    odds: Floats = np.log((share + FEATURE_FLOOR) / (1 - share + FEATURE_FLOOR))
    return odds


def information(shares: Floats) -> Floats:
    """Mutual information of answer and W value [sentence]."""
    bits: Floats = entropy(shares.mean(axis=0)) - entropy(shares).mean(axis=0)
    return bits


def shares_by_w(rows: pd.DataFrame, groups: Sequence[str]) -> tuple[pd.DataFrame, dict[str, Floats]]:
    """The sentences that every W value scored, and their shares by W list [w, sentence, group]."""
    known = rows.groupby("sentence", sort=False)["unscored"].transform(lambda reasons: (reasons == "").all())
    scored = rows[known]
    sentences = scored.drop_duplicates("sentence").set_index("sentence")
    shares = {}
    for name, part in scored.groupby("w_name", sort=False):
        tables = [
            table.set_index("sentence").loc[sentences.index, list(groups)] for _, table in part.groupby("w_index")
        ]
        masses = np.stack([table.to_numpy(dtype=np.float64) for table in tables])
        shares[str(name)] = np.stack([normalised_percent(end) for end in masses]) / 100
    return sentences, shares


def candidates(shares: dict[str, Floats], positive: Bools, cluster: Ints) -> Iterator[tuple[str, Floats]]:
    """Every score by name [sentence]; what needs several W values or W lists is left out where there are none."""
    first, last = shares["date"][0], shares["date"][-1]
    mean, moved = (first + last) / 2, np.abs(last - first)
    variation, undecided = moved.sum(axis=-1) / 2, entropy(mean)
    yield "entropy", undecided
    yield "total variation", variation
    yield "Jensen-Shannon", undecided - (entropy(first) + entropy(last)) / 2
    gendered = [np.log((end[:, 0] + FEATURE_FLOOR) / (end[:, 1] + FEATURE_FLOOR)) for end in (first, last)]
    yield "log-odds movement, first against second", np.abs(gendered[1] - gendered[0])
    yield "log-odds nearness to even, first against second", -np.abs(gendered[0] + gendered[1])
    yield "largest share, reversed", -mean.max(axis=-1)
    yield "total variation x entropy", variation * undecided
    if "none" in shares:
        yield "entropy without W", entropy(shares["none"][0])
    if len(shares["date"]) > 2:
        yield "mutual information with the date", information(shares["date"])
    if len(shares) > 2:
        pooled = np.concatenate(list(shares.values()))
        yield "mutual information with the place", information(shares["place"])
        yield "entropy over all W", entropy(pooled.mean(axis=0))
        distances = np.abs(pooled - pooled.mean(axis=0)).sum(axis=-1)
        yield "mean distance from the mean, all W", distances.mean(axis=0)
    sizes = np.log(np.column_stack([variation, undecided / np.log2(mean.shape[-1])]) + FEATURE_FLOOR)
    middle = log_odds(mean)
    movement = np.abs(log_odds(last) - log_odds(first))
    fitted = {
        "fitted: variation, entropy": [sizes],
        "fitted: and log-odds": [sizes, middle],
        "fitted: and their squares (combined)": [sizes, middle, middle**2],
        "fitted: and log-odds movements": [sizes, middle, middle**2, movement],
        "fitted: variation, entropy, log-odds in order of size": [sizes, np.sort(middle, axis=-1)],
    }
    for name, parts in fitted.items():
        yield name, held_out_log_odds(np.column_stack(parts), positive, cluster)


def tell(name: str, rows: pd.DataFrame, groups: Sequence[str]) -> None:
    """A table for one model and set."""
    sentences, shares = shares_by_w(rows, groups)
    positive = ~sentences["well_specified"].to_numpy(dtype=bool)
    _, cluster = np.unique(sentences["cluster"].astype(str), return_inverse=True)
    weights = cluster_weights(int(cluster.max()) + 1, N_DRAWS, np.random.default_rng(0))
    scores = dict(candidates(shares, positive, cluster))
    draws = {score: auroc_draws(values, positive, cluster, weights) for score, values in scores.items()}
    heads = "| score | AUROC | less entropy | less total variation |\n| --- | --- | --- | --- |"
    print(f"\n### {name}: {len(sentences)} sentences\n\n{heads}")
    for score, values in scores.items():
        cells = [f"{auroc(values, positive):.3f}"]
        for baseline in BASELINES:
            gap = auroc(values, positive) - auroc(scores[baseline], positive)
            low, high = percentile_interval(draws[score] - draws[baseline])
            surely = " *" if low > 0 else ""
            cells.append("" if score == baseline else f"{gap:+.3f} ({low:+.3f} to {high:+.3f}){surely}")
        print(f"| {score} | {' | '.join(cells)} |")


def transfer(tables: dict[tuple[str, str], pd.DataFrame], groups: Sequence[str]) -> None:
    """The fit of `combined` to one whole set of a model, used on its other sets."""
    for (model, learned), (other, asked) in permutations(tables, 2):
        if model != other:
            continue
        fit, test = (tables[model, name].query("unscored == ''") for name in (learned, asked))
        known = ~fit["well_specified"].to_numpy(dtype=bool), ~test["well_specified"].to_numpy(dtype=bool)
        odds = fit_logistic(features(fit, groups), known[0]).log_odds(features(test, groups))
        print(f"{model}: fitted to {learned}, used on {asked}: AUROC {auroc(odds, known[1]):.3f}")


def main(folders: Sequence[str]) -> None:
    """Every model and set of the run folders."""
    tables = {}
    groups: list[str] = []
    for folder in folders:
        record = read_record(Path(folder))
        frame, groups = record.observations, record.manifest["design"]["groups"]
        frame = frame[frame["part"] != "follow"]
        for (model, name), rows in frame.groupby(["model", "challenge"], sort=False):
            tell(f"{model}, {name}", rows, groups)
            tables[str(model), str(name)] = sentence_scores(rows[rows["w_name"].isin(["date", "none"])], groups)
    print()
    transfer(tables, groups)


if __name__ == "__main__":
    main(sys.argv[1:])
