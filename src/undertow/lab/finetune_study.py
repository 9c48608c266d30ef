"""Fine-tuning on planted texts, with metadata in front and without: whether the head learns the direction that was planted.

As in McMilin 2022 ("Selection Bias Induced Spurious Correlations in Large Language Models", section 4.4 and table 2), where the
truth is not known; here it is.

    lab/finetuning/KIND-STRENGTH-SEED-MARK/   a fine-tuned model; its audits are in lab/audits
    lab/finetuning/results-STRENGTH.csv       a row for each, and way of asking: planted, female and male slopes
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from undertow.errors import UndertowError
from undertow.lab.build import BuiltModel, build
from undertow.lab.corpus_files import write_corpus
from undertow.lab.experiment_plan import PlannedModel, planted_world
from undertow.lab.lab_folder import lab_lock, write_text
from undertow.lab.planted_corpus import drift_challenge
from undertow.lab.planted_population import Access
from undertow.lab.settings import CorpusOptions
from undertow.lab.training.training_config import MASKED, FinetuneConfig, FinetuneOptions
from undertow.lab.worker_pool import side_by_side, step_progress
from undertow.runs.folder.storage import csv_of
from undertow.types import Progress, digest, no_progress

if TYPE_CHECKING:
    import pandas as pd

BEFORE, PLAIN, WITH_METADATA = "before", "plain", "metadata"
"""Not fine-tuned; texts as they are; or with their person's date in front, whether they show it or not."""
METADATA = ("date",)
AS_THEY_ARE, DATE_IN_FRONT = "as they are", "date in front"
"""Challenges of the audits: the second puts the date in front, as `metadata` does in training."""
CHALLENGES = {AS_THEY_ARE: ("as_they_are.toml", ""), DATE_IN_FRONT: ("date_in_front.toml", "{w}. ")}
"""File of the sentences, and what is put in front of each."""
BASE = PlannedModel(MASKED, 0.0, 1)
"""The model to fine-tune, trained on texts about people who were not selected by gender."""
PEOPLE = 30_000
STEPS, BATCH, RATE = 2_000, 64, 1e-3


class FinetuneTask(NamedTuple):
    """One fine-tuning."""

    folder: Path
    kind: str
    strength: float
    seed: int
    mark: str

    @property
    def name(self) -> str:
        """Its folder."""
        return f"{self.kind}-{self.strength:g}-{self.seed}-{self.mark}"


def finetune_planted(
    folder: Path, strength: float, n_seeds: int, jobs: int = 0, progress: Progress = no_progress
) -> pd.DataFrame:
    """Fine-tune with and without metadata and audit each head; returns a row for each head and challenge.

    Columns: `kind`, `challenge`, `strength`, `seed`, `planted_slope`, `female_slope`, `low`, `high`, `female_r`, `male_slope`, `q` (slopes
    over dates, in percentage points per step), and `no_better_on` (texts on which the model is no better than the majority class; ""
    for none). The first row is of the base, before.

    The base model is built if it is missing.

    Raises:
        UndertowError: the folder holds something else, another command is at work in it, no such strength can be planted, the base
            did not converge, or a training failed.
    """
    import pandas as pd

    Access(strength=strength).selection_prob(planted_world())
    (base,) = build(folder, (BASE,), jobs)
    if not base.converged:
        raise UndertowError(f"{folder / 'models' / BASE.name}: did not learn its corpus; name another folder")
    mark = digest([base.mark, PEOPLE, STEPS, BATCH, RATE])[:8]
    works = [
        FinetuneTask(folder, kind, strength, seed, mark)
        for seed in range(1, n_seeds + 1)
        for kind in (PLAIN, WITH_METADATA)
    ]
    with lab_lock(folder):
        for file, before in CHALLENGES.values():
            write_text(folder / "finetuning" / file, drift_challenge(before, METADATA))
        crew: dict[str, Any] = {"jobs": jobs, "cache": folder / "cache"}
        rows = side_by_side(read_base, [(folder, base)], 1, **crew, progress=no_progress)
        results = side_by_side(run_task, works, STEPS * len(works), **crew, progress=progress)
        frame = pd.DataFrame([*rows, *(row for result in results for row in result)])
        write_text(results_file(folder, strength), csv_of(frame))
    return frame


def results_file(folder: Path, strength: float) -> Path:
    """The file with the slopes of one strength."""
    return folder / "finetuning" / f"results-{strength:g}.csv"


def run_task(tuning: FinetuneTask) -> list[dict[str, str | float]]:
    """One fine-tuning and its audits, a row for each. Resumes it, or reads it from its folder if it is complete."""
    from undertow.lab.training import finetune_data

    place = tuning.folder / "finetuning"
    corpus = place / f"{tuning.name}.jsonl"
    summary = write_corpus(corpus, CorpusOptions(tuning.seed, strength=tuning.strength, people=PEOPLE))
    made = finetune_data.finetune(
        tuning.folder / "models" / BASE.name,
        str(corpus),
        place / tuning.name,
        FinetuneConfig(
            finetune_data.labels_of("icml"),
            max_steps=STEPS,
            batch_size=BATCH,
            learning_rate=RATE,
            dropout=False,
            seed=tuning.seed,
            device="cpu",
        ),
        wanted=FinetuneOptions(metadata_fields=METADATA if tuning.kind == WITH_METADATA else ()),
        progress=step_progress(),
    )
    corpus.unlink()
    settings = tuning.kind, tuning.strength, tuning.seed, summary.realised_slopes["date"]
    challenges = CHALLENGES if tuning.kind == WITH_METADATA else (AS_THEY_ARE,)
    model, name = place / tuning.name, f"finetuned-{tuning.name}"
    no_better = " and ".join(where for where, _ in made.no_better)
    return [_row(tuning.folder, model, name, how, settings) | {"no_better_on": no_better} for how in challenges]


def read_base(work: tuple[Path, BuiltModel]) -> dict[str, str | float]:
    """Results of the model before fine-tuning, as a row."""
    folder, base = work
    name, subject = base.subject.name, base.subject
    settings = BEFORE, subject.strength, subject.seed, base.planted["date"]
    return _row(folder, folder / "models" / name, f"before-{name}-{base.mark[:8]}", AS_THEY_ARE, settings)


def _row(
    folder: Path, model: Path, name: str, challenge: str, settings: tuple[str, float, int, float]
) -> dict[str, str | float]:
    from undertow.runs import pipeline

    file, _ = CHALLENGES[challenge]
    out = folder / "audits" / f"{name}-{Path(file).stem}"
    run = pipeline.audit("spurious-correlation", model, challenge=str(folder / "finetuning" / file), out=out)
    of_dates = [result for result in run.record.results if result.group["w_name"] == "date"]
    slopes = {result.group["pronoun"]: result for result in of_dates if result.measure == "slope"}
    r = {result.group["pronoun"]: result for result in of_dates if result.measure == "pearson_r"}
    return {
        **dict(zip(("kind", "strength", "seed", "planted_slope"), settings, strict=True)),
        "challenge": challenge,
        "female_slope": slopes["female"].value,
        "low": slopes["female"].low,
        "high": slopes["female"].high,
        "female_r": r["female"].value,
        "male_slope": slopes["male"].value,
        "q": slopes["female"].q,
        "no_better_on": "",
    }


def over_seeds(frame: pd.DataFrame) -> list[dict[str, str | float]]:
    """Mean female slope with its 95% interval over seeds (t), by kind and way of asking; and the largest |female + male|."""
    from undertow.stats.calibration import mean_over_models

    rows: list[dict[str, str | float]] = []
    finetuned = frame[frame["kind"] != BEFORE]
    for (kind, challenge), some in finetuned.groupby(["kind", "challenge"], sort=False):
        mean = mean_over_models(some["female_slope"])
        rows.append(
            {
                "trained on": str(kind),
                "challenge": str(challenge),
                "seeds": len(some),
                "planted": float(some["planted_slope"].mean()),
                "female": mean.value,
                "low": mean.low,
                "high": mean.high,
                "largest sum of female and male": float(np.abs(some["female_slope"] + some["male_slope"]).max()),
            }
        )
    return rows
