"""Do the tests and intervals of detection keep what they promise? Simulated, of sentences whose answers move with W.

    OMP_NUM_THREADS=1 python studies/detection_validity.py [--runs 200] [--cells 20x8,20x6w] [--differ 0,0.7] [--effect 0] [--seed 0]

A cell is occupations x sentences of each; a quarter of an occupation's sentences decide their blank, or with `w` whole occupations do,
half of them. Levels and movements (log-normal) have effects of the occupation. `--differ` is the standard deviation, in logarithms,
of what the kinds differ by within an occupation, 0 on average: there is nothing to find. `--effect` is what they differ by
everywhere; then the truth of each number is its mean over the runs, which is right for what is fitted and held out at this size.

Printed: how often p is .05 or less, how often the 95% interval holds the truth, and in how many runs anything is claimed (the mean
movement aside, which is 0 by itself). A share of R runs has a standard error of 22 / sqrt(R) percentage points.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pandas as pd

from undertow.measures import detection
from undertow.measures.detection import Threshold, detect, with_combined
from undertow.measures.movement import sentence_scores
from undertow.types import Result

GROUPS = ("a", "b", "c")
CELLS = "60x8,20x8,10x8,20x6w"
TOLD = {
    ("auroc", "total_variation", None): 0.5,
    ("auroc", "combined", None): 0.5,
    ("balanced_accuracy", "combined", None): 0.5,
    ("balanced_accuracy", "delta_a", None): 0.5,
    ("held_out_balanced_accuracy", "total_variation", None): 0.5,
    ("auroc_difference", "total_variation", "entropy"): 0.0,
    ("auroc_difference", "combined", "entropy"): 0.0,
    ("w_effect", None, None): 0.0,
}
"""What is counted: measure, score and baseline, and its value where the kinds do not differ."""


def sentences(cell: str, effect: float, differ: float, rng: np.random.Generator) -> pd.DataFrame:
    """Scored sentences of one run."""
    n_clusters, size = map(int, cell.rstrip("w").split("x"))
    n, cluster = n_clusters * size, np.repeat(np.arange(n_clusters), size)
    whole = (rng.permutation(n_clusters) < n_clusters // 2)[cluster]
    decided = whole if cell.endswith("w") else np.arange(n) % size < size // 4
    kind = ~decided - 0.5
    own = effect + differ * rng.normal(0, 1, n_clusters)[cluster]
    level = rng.normal(0, 1, (n_clusters, 3))[cluster] + rng.normal(0, 0.7, (n, 3))
    level *= np.exp(-kind * (effect / 3 + differ * rng.normal(0, 1, n_clusters)[cluster]))[:, np.newaxis]
    moved = np.exp(rng.normal(-3, 0.7, n_clusters)[cluster] + rng.normal(0, 0.8, n) + kind * own)
    way = rng.normal(0, 1, (n, 3)) * moved[:, np.newaxis]
    rows = []
    for index, sign in enumerate((-1, 1)):
        masses = np.exp(level + sign * way)
        table = pd.DataFrame(100 * masses / masses.sum(axis=1, keepdims=True), columns=list(GROUPS))
        rows.append(
            table.assign(
                model="m", prompt="", challenge="c", w_name="date", sentence=[f"s{at}" for at in range(n)],
                cluster=[f"k{at}" for at in cluster], well_specified=decided, w_index=index, unscored="",
            )
        )  # fmt: skip
    return with_combined(sentence_scores(pd.concat(rows, ignore_index=True), GROUPS), GROUPS)


def runs(
    cell: str, arguments: argparse.Namespace, differ: float
) -> Iterator[dict[tuple[str, str | None, str | None], Result]]:
    """The results of each run, by measure, score and baseline."""
    rng = np.random.default_rng([arguments.seed, *map(ord, cell)])
    for seed in range(arguments.runs):
        results = detect(sentences(cell, arguments.effect, differ, rng), GROUPS, Threshold(), seed=seed)
        yield {(one.measure, one.group.get("score"), one.group.get("against")): one for one in results}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--cells", default=CELLS)
    parser.add_argument("--differ", default="0,0.7")
    parser.add_argument("--effect", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    detection.N_DRAWS, detection.N_REFITS, detection.N_PERMUTATIONS = 200, 200, 199
    for cell in arguments.cells.split(","):
        for differ in map(float, arguments.differ.split(",")):
            found, claimed = defaultdict(list), 0
            for one in runs(cell, arguments, differ):
                claimed += any(result.q < 0.05 for (measure, *_), result in one.items() if measure != "w_effect")
                for key in TOLD:
                    found[key].append(one[key])
            print(
                f"{cell}, kinds differ by {arguments.effect:g} (sd {differ:g}): {arguments.runs} runs, claims in {claimed}"
            )
            for key, results in found.items():
                truth = float(np.mean([one.value for one in results])) if arguments.effect else TOLD[key]
                held = np.mean([one.low <= truth <= one.high for one in results])
                small = np.mean([one.p <= 0.05 for one in results]) if np.isfinite(results[0].p) else np.nan
                name = " ".join(part for part in key if part)
                print(f"  {name:45} p <= .05: {small:5.3f}  truth {truth:5.3f} held: {held:5.3f}", flush=True)


if __name__ == "__main__":
    main()
