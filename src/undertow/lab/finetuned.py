"""Fine-tuning on planted texts, with metadata in front and without: whether the head learns the direction that was planted.

As in McMilin 2022 ("Selection Bias Induced Spurious Correlations in Large Language Models", section 4.4 and table 2), where the
truth is not known; here it is.

    lab/finetuning/KIND-STRENGTH-SEED/    a fine-tuned model; its audit is in lab/audits
    lab/finetuning/results-STRENGTH.csv   a row for each: planted, female and male slopes
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from undertow.causal.planted import Access, drift_challenge
from undertow.lab.build import build, the_world
from undertow.lab.corpora import write_corpus
from undertow.lab.plan import Plan, Subject
from undertow.lab.verify import DRIFT
from undertow.lab.work import Crew, Progress, side_by_side, worked
from undertow.models.train import MASKED

if TYPE_CHECKING:
    import pandas as pd

PLAIN, WITH_METADATA = "plain", "metadata"
"""Texts as they are, or with their person's date and place in front."""
METADATA = ("date", "place")
BASE = Subject(MASKED, 0.0, 1)
"""Fine-tuned is a model that was trained on texts about people who were not selected by gender."""
PEOPLE = 6_000
STEPS, BATCH, RATE = 600, 64, 1e-3


@dataclass(frozen=True, slots=True)
class Tuning:
    """One fine-tuning.

    Attributes:
        kind: `plain` or `metadata`.
        strength: planted, as in `undertow.lab.plan.Subject`.
        seed: of the people, the words, the head and the order of the texts.
    """

    kind: str
    strength: float
    seed: int

    @property
    def name(self) -> str:
        """Its folder."""
        return f"{self.kind}-{self.strength:g}-{self.seed}"


def finetune_planted(
    folder: Path, strength: float, n_seeds: int, jobs: int = 0, progress: Progress = lambda done, total: None
) -> pd.DataFrame:
    """Fine-tune with and without metadata, audit each head, and say what it reads: a row for each.

    Columns: `kind`, `strength`, `seed`, `planted_slope`, `female_slope`, `low`, `high`, `male_slope`, `q` (slopes over dates, in
    percentage points per step).

    The lab is made, or its base model, if it is not there.

    Raises:
        UndertowError: the folder holds something else, no such strength can be planted, or a training failed.
    """
    import pandas as pd

    Access(strength=strength).kept_prob(the_world())
    build(folder, Plan((BASE,)), jobs, lambda done, total: None)
    place = folder / "finetuning"
    place.mkdir(exist_ok=True)
    (folder / DRIFT).write_text(drift_challenge(), encoding="utf-8")
    works = [
        (str(folder), Tuning(kind, strength, seed)) for seed in range(1, n_seeds + 1) for kind in (PLAIN, WITH_METADATA)
    ]
    rows = side_by_side(tune, works, Crew(jobs, folder / "cache"), STEPS * len(works), progress)
    frame = pd.DataFrame(rows)
    frame.to_csv(results_file(folder, strength), index=False, lineterminator="\n")
    return frame


def results_file(folder: Path, strength: float) -> Path:
    """Where the slopes of the fine-tunings of one strength are."""
    return folder / "finetuning" / f"results-{strength:g}.csv"


def tune(work: tuple[str, Tuning]) -> dict[str, str | float]:
    """One fine-tuning and its audit; taken up, or taken from its folder where it has been done."""
    from undertow import audit, finetuning
    from undertow.models.finetune import Recipe

    folder, tuning = Path(work[0]), work[1]
    place = folder / "finetuning"
    corpus = place / f"{tuning.name}.jsonl"
    known = write_corpus(corpus, tuning.strength, "", PEOPLE, tuning.seed)
    reached = 0

    def progress(done: int, total: int, loss: float) -> None:
        nonlocal reached
        worked(done - reached)
        reached = done

    finetuning.finetune(
        folder / "models" / BASE.name,
        str(corpus),
        place / tuning.name,
        Recipe(
            finetuning.labels_of("icml"),
            steps=STEPS,
            batch=BATCH,
            learning_rate=RATE,
            dropout=False,
            seed=tuning.seed,
            device="cpu",
        ),
        wanted=finetuning.Wanted(metadata=METADATA if tuning.kind == WITH_METADATA else ()),
        progress=progress,
    )
    corpus.unlink()
    run = audit.run(
        "spurious-correlation",
        place / tuning.name,
        challenge=str(folder / DRIFT),
        out=folder / "audits" / f"finetuned-{tuning.name}",
    )
    slopes = {
        result.group["pronoun"]: result
        for result in run.record.results
        if result.measure == "slope" and result.group["w_name"] == "date"
    }
    return {
        "kind": tuning.kind,
        "strength": tuning.strength,
        "seed": tuning.seed,
        "planted_slope": known.realised["date"],
        "female_slope": slopes["female"].value,
        "low": slopes["female"].low,
        "high": slopes["female"].high,
        "male_slope": slopes["male"].value,
        "q": slopes["female"].q,
    }


def over_seeds(frame: pd.DataFrame) -> list[dict[str, str | float]]:
    """For each kind: mean female slope with its 95% interval over seeds (t), mean planted slope, largest |female + male|."""
    from undertow.stats.calibration import mean_over_models

    rows: list[dict[str, str | float]] = []
    for kind, some in frame.groupby("kind", sort=False):
        mean = mean_over_models(some["female_slope"])
        rows.append(
            {
                "kind": str(kind),
                "seeds": len(some),
                "planted": float(some["planted_slope"].mean()),
                "female": mean.value,
                "low": mean.low,
                "high": mean.high,
                "largest sum of female and male": float(np.abs(some["female_slope"] + some["male_slope"]).max()),
            }
        )
    return rows
