"""Claims and intervals of task specification, on simulated sentences of which it is known what they decide."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from tools.validity.tables import share, table
from undertow.audits.base import Observations
from undertow.audits.task_specification.findings import findings
from undertow.metrics import score_table, specification_detection
from undertow.metrics.sentence_scores import sentence_scores
from undertow.metrics.specification_detection import Threshold, detect, with_combined
from undertow.stats import MIN_CLUSTERS
from undertow.types import Result

GROUPS = ("a", "b", "c")
SIZES = (5, 6, 8, 12, 20, 60)
"""Clusters."""
SD_OF_DIFFERENCES = 0.7
EFFECT = 1.0
DRAWS: dict[str, Any] = {"N_DRAWS": 200, "N_REFITS": 100, "N_REFITTED_PERMUTATIONS": 99}
N_PERMUTATIONS = 199
"""Fewer than in an audit, for time; with them too p is at most .05 in no more than 5% of audits without an effect."""
OTHER_SCORES = ["delta_b", "delta_c", "jensen_shannon"]
"""Left out for time: they are scores of the same kind as `delta_a`."""
N_MODELS, CLUSTERS_OF_A_RUN = 8, 20
Key = tuple[str, str, str]
"""Measure, score and baseline."""
NAMES: Mapping[Key, str] = {
    ("auroc", "delta_a", ""): "area, movement of one group",
    ("auroc", "total_variation", ""): "area, total variation",
    ("auroc", "entropy", ""): "area, entropy",
    ("auroc", "combined", ""): "area, `combined`",
    ("auroc_difference", "total_variation", "entropy"): "total variation less entropy",
    ("auroc_difference", "combined", "entropy"): "`combined` less entropy",
    ("auroc_difference", "combined", "total_variation"): "`combined` less total variation",
    ("tpr", "delta_a", ""): "undecided sentences flagged at 0.5 points",
    ("tnr", "delta_a", ""): "deciding sentences passed at 0.5 points",
    ("balanced_accuracy", "delta_a", ""): "balanced accuracy at 0.5 points",
    ("balanced_accuracy", "combined", ""): "balanced accuracy of `combined`",
    ("held_out_balanced_accuracy", "delta_a", ""): "held-out balanced accuracy, movement of one group",
    ("held_out_balanced_accuracy", "total_variation", ""): "held-out balanced accuracy, total variation",
    ("mean_movement", "", ""): "mean movement",
}


@dataclass(frozen=True, slots=True)
class Noise:
    """How sentences hang together.

    Attributes:
        size: sentences of each cluster.
        spread: of the effects of clusters on levels and movements, as a multiple of what they usually are.
        whole: clusters decide whole, half of them; else two of eight sentences of each decide.
        differ: standard deviation of what the kinds differ by in a cluster, in logarithms.
    """

    size: int = 8
    spread: float = 1.0
    whole: bool = False
    differ: float = 0.0


NOISES: Mapping[str, Noise] = {
    "sentences alone": Noise(1, 0.0, whole=True),
    "independent": Noise(spread=0.0),
    "clusters": Noise(),
    "kinds differ": Noise(differ=SD_OF_DIFFERENCES),
    "whole clusters": Noise(6, whole=True),
}
WITH_EFFECT = ("sentences alone", "clusters", "kinds differ", "whole clusters")
IN_RUNS = ("clusters", "kinds differ", "whole clusters")


def masses(noise: Noise, n_clusters: int, effect: float, rng: np.random.Generator, model: str = "m") -> pd.DataFrame:
    """Observations of one model: two rows for each sentence, groups in percent."""
    size = noise.size
    n, cluster = n_clusters * size, np.repeat(np.arange(n_clusters), size)
    whole = (rng.permutation(n_clusters) < n_clusters // 2)[cluster]
    decided = whole if noise.whole else np.arange(n) % size < size // 4
    kind = ~decided - 0.5
    of_movement, of_level = noise.differ * rng.normal(0, 1, (2, n_clusters))[:, cluster]
    level = noise.spread * rng.normal(0, 1, (n_clusters, 3))[cluster] + rng.normal(0, 0.7, (n, 3))
    level *= np.exp(-kind * (effect / 3 + of_level))[:, np.newaxis]
    size_of_movement = noise.spread * rng.normal(0, 0.7, n_clusters)[cluster] + rng.normal(0, 0.8, n)
    way = rng.normal(0, 1, (n, 3)) * np.exp(size_of_movement - 3 + kind * (effect + of_movement))[:, np.newaxis]
    rows = []
    for index, sign in enumerate((-1, 1)):
        ends = np.exp(level + sign * way)
        end = pd.DataFrame(100 * ends / ends.sum(axis=1, keepdims=True), columns=list(GROUPS))
        rows.append(
            end.assign(
                model=model, prompt="", challenge="c", part="detect", w_name="date", w_index=index, w=("first", "last")[index],
                sentence=[f"s{at}" for at in range(n)], cluster=[f"k{at}" for at in cluster], well_specified=decided, missing_reason="",
            )
        )  # fmt: skip
    return pd.concat(rows, ignore_index=True)


def measured(frame: pd.DataFrame, seed: int) -> list[Result]:
    """The results of an audit."""
    scored = with_combined(sentence_scores(frame, GROUPS), GROUPS).drop(columns=OTHER_SCORES)
    permutations = mock.patch.object(score_table, "N_PERMUTATIONS", N_PERMUTATIONS)
    with permutations, mock.patch.multiple(specification_detection, **DRAWS):
        return detect(scored, GROUPS, Threshold(), seed=seed)


@dataclass(frozen=True, slots=True)
class Cell:
    """Audits of one kind and size; each by number.

    Attributes:
        n_audits: of them.
        small: share of those tested with p of .05 or less; NaN where none was tested.
        outside: share of those with an interval that leaves out the truth; NaN where none has one.
    """

    n_audits: int
    small: Mapping[Key, float]
    outside: Mapping[Key, float]


def cell(noise: Noise, n_clusters: int, effect: float, n_audits: int) -> Cell:
    """Audits with a truth of chance; with an effect the truth is the mean of all estimates of that size."""
    rng = np.random.default_rng(
        [n_clusters, noise.size, round(10 * effect), round(10 * (noise.spread + 3 * noise.differ))]
    )
    found: dict[Key, list[Result]] = {key: [] for key in NAMES}
    for seed in range(n_audits):
        for one in measured(masses(noise, n_clusters, effect, rng), seed):
            key = (one.measure, one.group.get("score", ""), one.group.get("against", ""))
            if key in found:
                found[key].append(one)
    small, outside = {}, {}
    for key, results in found.items():
        is_chance = not effect and key[0] not in ("tpr", "tnr")
        chance = 0.0 if key[0] in ("auroc_difference", "mean_movement") else 0.5
        truth = chance if is_chance or key[0] == "mean_movement" else _mean([one.value for one in results])
        small[key] = _mean([one.p <= 0.05 for one in results if math.isfinite(one.p)])
        outside[key] = _mean([not one.low <= truth <= one.high for one in results if math.isfinite(one.low)])
    return Cell(n_audits, small, outside)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def claims(noise: Noise, n_models: int, n_runs: int) -> float:
    """Share of runs without an effect that claim anything."""
    rng = np.random.default_rng([n_models, noise.size, round(10 * noise.differ)])
    claimed = 0
    for seed in range(n_runs):
        frame = pd.concat(
            [masses(noise, CLUSTERS_OF_A_RUN, 0.0, rng, f"model {at}") for at in range(n_models)], ignore_index=True
        )
        told = findings(Observations(frame, {"groups": list(GROUPS)}), measured(frame, seed))
        claimed += any(one.significant for one in told)
    return claimed / n_runs


def cell_table(cells: Mapping[tuple[str, int], Cell], kind: str) -> str:
    """A row for each number and noise, a column for each number of clusters; rows without any number are left out."""
    rows = []
    for key, name in NAMES.items():
        for noise in dict.fromkeys(noise for noise, _ in cells):
            values = [getattr(cells[noise, size], kind)[key] for size in SIZES]
            if not all(map(math.isnan, values)):
                rows.append([name, noise, *map(share, values)])
    return table(["number", "sentences", *(f"{size} clusters" for size in SIZES)], rows)


def audits_of(size: int, n_audits: int) -> int:
    """Fits of many clusters take long, and what is never given need not be tried often."""
    return max(10, n_audits // (100 if size < MIN_CLUSTERS else 20 if size >= 60 else 8))


def section(n_audits: int) -> Iterator[str]:
    """The title of this section, then its parts."""
    yield "Task specification"
    fewer, few = (audits_of(size, n_audits) for size in (SIZES[1], SIZES[-1]))
    (draws, fits, marks), orders = DRAWS.values(), N_PERMUTATIONS
    yield f"""A sentence has log masses of three word groups (standard deviation 0.7) and moves by a log-normal amount (0.8) in a direction
of its own; its cluster has a level (1) and an amount (0.7) of its own. *Sentences alone* are clusters of one sentence, of which half
decide; *independent* sentences have no effects of their clusters; *clusters* have eight sentences, of which two decide; where
*kinds differ*, the kinds lie apart by a normal amount of each cluster's own ({SD_OF_DIFFERENCES:g} in logarithms), 0 in the mean;
*whole clusters* have six sentences that all decide or all do not. With an effect, undecided sentences move {math.exp(EFFECT):.1f} times
as far and their masses are more even; the truth of a number is then its mean over the audits.

`combined` and held-out numbers are fitted again in every permutation and every resample, which takes time: a cell has {fewer:,} audits,
with 60 clusters {few:,}, so that a share of .05 has a standard error of {_error(fewer)}, or {_error(few)}. An audit has {fits}
resamples and {marks} permutations that are fitted again, {draws} and {orders} others. Fewer than six clusters of either kind have no
interval and no claim; `combined` needs ten of either kind.
"""
    for effect, noises in ((0.0, tuple(NOISES)), (EFFECT, WITH_EFFECT)):
        cells = {}
        for name in noises:
            for size in SIZES:
                print("task specification", name, size, effect, file=sys.stderr, flush=True)
                cells[name, size] = cell(NOISES[name], size, effect, audits_of(size, n_audits))
        if not effect:
            yield "### P is .05 or less where there is nothing to find\n"
            yield cell_table(cells, "small") + "\n"
        yield f"### A number lies outside its interval, {'with an effect' if effect else 'where there is nothing to find'}\n"
        yield cell_table(cells, "outside") + "\n"
    n_runs = max(5, n_audits // 10), max(5, n_audits // 40)
    yield f"### Runs of {CLUSTERS_OF_A_RUN} clusters without an effect that claim something, after the correction\n"
    yield f"Of {n_runs[0]:,} runs of one model, and of {n_runs[1]:,} of eight.\n"
    rows = []
    for name in IN_RUNS:
        print("task specification, runs", name, file=sys.stderr, flush=True)
        rows.append([name, *(share(claims(NOISES[name], n, of)) for n, of in zip((1, N_MODELS), n_runs, strict=True))])
    yield table(["sentences", "one model", "eight models"], rows) + "\n"


def _error(n_audits: int) -> str:
    return share(math.sqrt(0.05 * 0.95 / n_audits))
