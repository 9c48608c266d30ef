"""Auditing the models of a lab with sentences that no corpus holds, and putting beside each reading what was planted.

lab/audits/NAME/drift          undertow run spurious-correlation, on held_out.toml
lab/audits/NAME/specification  undertow run task-specification, on sentences.toml
lab/verification/              models.csv, results.csv, figures, report.html; beside.csv of models that are told apart
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import UndertowError
from undertow.lab.build import UNBIASED_BELOW, BuiltModel, lab_lock, read_attempts, read_built, read_plan, write_text
from undertow.lab.calibration.calibration_metrics import (
    MAX_Q,
    MIN_UNBIASED_MODELS,
    fitted_lines,
    intervals,
    results,
    verdicts,
)
from undertow.lab.experiment_plan import Plan, Subject, custom, full, planted_world, small
from undertow.lab.planted_corpus import (
    INDEPENDENT,
    LINEAR,
    ORDERED,
    Access,
    PlantedTruth,
    SentenceOptions,
    draw_people,
    drift_challenge,
    sentence_challenge,
    write_about,
)
from undertow.lab.worker_pool import ProcessPool, Progress, side_by_side, worked
from undertow.runs.folder.storage import csv_of
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

DRIFT, SENTENCES, BESIDE = "held_out.toml", "sentences.toml", "beside.csv"
W_NAMES = ("date", "place")
DETECTOR, BASELINE = "delta_female", "entropy"
AUDITS = 2


@dataclass(frozen=True, slots=True)
class AuditedModel:
    """What the audits read of one model.

    Attributes:
        drifts: the slope of the female share, by W.
        areas: area under the ROC curve of telling undecided sentences, by score.
    """

    drifts: dict[str, Result]
    areas: dict[str, Result]


def audited(folder: Path, plan: Plan, jobs: int = 0, progress: Progress = lambda done, total: None) -> pd.DataFrame:
    """The table that a verification is measured from: a row for each model and W; see `undertow.lab.calibration.calibration_metrics`.

    Raises:
        UndertowError: the lab holds no model of the plan, or an audit failed.
    """
    import pandas as pd

    built = read_built(folder, plan)
    if not built:
        raise UndertowError(f"{folder}: no model of the lab has been made; build it first with undertow lab build")
    write_text(folder / DRIFT, drift_challenge())
    write_text(folder / SENTENCES, sentence_challenge())
    works = [(str(folder), one.subject.name) for one in built]
    readings = side_by_side(audit_model, works, ProcessPool(jobs, folder / "cache"), AUDITS * len(works), progress)
    rows = [row for one, reading in zip(built, readings, strict=True) for row in _rows(one, reading)]
    return pd.DataFrame(rows)


def audit_model(work: tuple[str, str]) -> AuditedModel:
    """Both audits of one model; taken from their folders where they have been made."""
    from undertow.runs import pipeline

    folder, name = Path(work[0]), work[1]
    place = folder / "audits" / name
    world = planted_world()
    model = folder / "models" / name
    drift = pipeline.audit("spurious-correlation", model, challenge=str(folder / DRIFT), out=place / "drift")
    worked(1)
    specification = pipeline.audit(
        "task-specification",
        model,
        challenge=str(folder / SENTENCES),
        inject="In {w}, ",
        date_start=int(world.dates[0]),
        date_stop=int(world.dates[-1]),
        out=place / "specification",
    )
    worked(1)
    drifts = {
        result.group["w_name"]: result
        for result in drift.record.results
        if result.measure == "slope" and result.group["pronoun"] == "female"
    }
    areas = {
        result.group["score"]: result
        for result in specification.record.results
        if result.measure == "auroc" and result.group["score"] in (DETECTOR, BASELINE)
    }
    return AuditedModel(drifts, areas)


def _rows(built: BuiltModel, reading: AuditedModel) -> list[dict[str, Any]]:
    subject = built.subject
    shared = {
        "model": subject.name,
        "architecture": subject.architecture,
        "trades": subject.trades,
        "drawn": subject.drawn,
        "selected": _selected(subject),
        "training_seed": subject.seed,
        "pronoun_loss_nats": built.loss_nats,
        "floor_nats": built.floor_nats,
        "ignorant_nats": built.ignorant_nats,
        "converged": built.converged,
        "steps": built.kept.steps if built.kept else 0,
        "trainings": len(built.attempts),
    }
    for name, score in (("auroc_delta", DETECTOR), ("auroc_entropy", BASELINE)):
        area = reading.areas.get(score)
        shared |= {
            name: math.nan if area is None else area.value,
            f"{name}_low": math.nan if area is None else area.low,
            f"{name}_high": math.nan if area is None else area.high,
        }
    return [
        {
            **shared,
            "w_name": w_name,
            "strength": _rise(built.population[w_name], n_values),
            "planted_slope": built.planted[w_name],
            "population_slope": built.population[w_name],
            "learned_slope": built.learned.get(w_name, math.nan),
            **_read(reading.drifts[w_name]),
        }
        for w_name, n_values in zip(W_NAMES, (len(planted_world().dates), len(planted_world().places)), strict=True)
    ]


def _selected(subject: Subject) -> bool:
    """Whether the share of women differs among dates or places of the selected, on a line or not."""
    known = PlantedTruth.from_world(Access(subject.access, subject.strength), planted_world())
    return any(float(np.nanmax(share) - np.nanmin(share)) > UNBIASED_BELOW for share in (known.by_date, known.by_place))


def _rise(slope: float, n_values: int) -> float:
    """How much the share of women rises from the first value of W to the last, on the line: of the default access, its strength."""
    return 0.0 if abs(slope) <= UNBIASED_BELOW else round(slope * (n_values - 1) / 100, 6)


def _read(drift: Result) -> dict[str, Any]:
    """With the interval over sentences alone: models are planted at these values of W, and their noise is told from theirs."""
    low, high, df = (drift.extras.get(f"sentences_{name}", math.nan) for name in ("low", "high", "df"))
    return {
        "measured_slope": drift.value, "low": low, "high": high, "p": drift.p, "q": drift.q, "found": bool(drift.q < MAX_Q),
        "n_clusters": drift.extras.get("n_clusters", math.nan), "sentence_df": df,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class HeldOutSentences:
    """The table in its parts, which are not measured together.

    Attributes:
        judged: the rows that the instrument is judged by.
        by_chance: of unbiased models whose people, sentences and order of training were left to chance.
        smooth: of unbiased models whose texts change smoothly with the date.
    """

    judged: pd.DataFrame
    by_chance: pd.DataFrame
    smooth: pd.DataFrame


def apart(frame: pd.DataFrame) -> HeldOutSentences:
    """The table in its parts."""
    smooth = frame["trades"] == ORDERED
    by_chance = (frame["drawn"] == INDEPENDENT) & ~smooth
    judged = ~smooth & ~by_chance
    return HeldOutSentences(*(frame[rows].reset_index(drop=True) for rows in (judged, by_chance, smooth)))


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """What came of a verification.

    Attributes:
        folder: where it was written.
        report: its page.
        verdicts: what the audits promise: requirement, target and value in words, and whether it is met.
        notes: sentences beside these, about models that are told apart.
    """

    folder: Path
    report: Path
    verdicts: list[tuple[str, str, str, bool]]
    notes: list[str]


def verify(
    folder: Path, *, jobs: int = 0, seed: int = 0, progress: Progress = lambda done, total: None
) -> VerificationResult:
    """Audit every model of a lab, and write the table, its measures and their page.

    Raises:
        UndertowError: there is no lab, another command is at work in it, as `audited`, or no model has learned its corpus.
    """
    import pandas as pd

    from undertow.lab.calibration.calibration_report import Verification, write

    plan = read_plan(folder)
    with lab_lock(folder):
        parts = apart(audited(folder, plan, jobs, progress))
        judged = parts.judged
        measured = results(judged, seed)
        notes = [
            *_of_unmade(folder, plan),
            *_of_trainings(judged),
            *_of_chance(parts.by_chance),
            *_of_smooth(parts.smooth),
        ]
        promises = [*verdicts(measured), *_chance_verdict(parts.by_chance, seed)]
        verification = Verification(
            models=intervals(judged),
            lines=fitted_lines(judged),
            results=measured,
            verdicts=promises,
            method=_METHOD,
            examples=_examples(),
            notes=notes,
            command=_command(folder, plan),
            provenance={"models": f"{judged['model'].nunique()}", "seed of draws": f"{seed}", **_circumstances()},
        )
        place = folder / "verification"
        beside = pd.concat([parts.by_chance, parts.smooth])
        place.mkdir(exist_ok=True)
        write_text(place / BESIDE, csv_of(beside))
        return VerificationResult(place, write(place, verification), promises, notes)


def _chance_verdict(rows: pd.DataFrame, seed: int) -> list[tuple[str, str, str, bool]]:
    """The promise about false alarms, of models whose texts lean by chance; none where too few were made."""
    counting = rows[rows["converged"]]
    if counting["model"].nunique() < MIN_UNBIASED_MODELS:
        return []
    *_, (_, target, said, met) = verdicts(results(rows, seed))
    return [
        ("Nothing is found either where people, sentences and order of training were left to chance", target, said, met)
    ]


def _command(folder: Path, plan: Plan) -> str:
    subjects = set(plan.subjects)
    place = shlex.join(["--out", str(folder)])
    verified = f"undertow lab verify {place}"
    if subjects <= set(small().subjects):
        return f"undertow lab build --small {place} && {verified}"
    if subjects <= set(full().subjects):
        return f"undertow lab build {place} && {verified}"
    access = next(iter(subjects)).access
    strengths, seeds = (sorted({getattr(one, name) for one in subjects}) for name in ("strength", "seed"))
    if subjects != set(custom(strengths, seeds, access).subjects):
        return verified  # of several builds
    options = [part for strength in strengths for part in ("--strength", f"{strength:g}")]
    options += [part for seed in seeds for part in ("--seed", f"{seed}")]
    options += ["--access", access] if access != LINEAR else []
    return f"undertow lab build {shlex.join(options)} {place} && {verified}"


def _circumstances() -> dict[str, str]:
    """Versions, machine and hashes, a line each."""
    from undertow.runs.folder.provenance import circumstances

    lines: dict[str, str] = {}
    for name, value in circumstances().items():
        if isinstance(value, Mapping):
            lines |= {f"{name}: {key}": str(one) for key, one in value.items()}
        else:
            lines[name] = str(value)
    return lines


def _of_unmade(folder: Path, planned: Plan) -> list[str]:
    """That some of the planned models are not here, if so."""
    n_missing = len(planned.subjects) - len(read_attempts(folder, planned))
    if not n_missing:
        return []
    return [
        f"{n_missing} of the {len(planned.subjects)} planned models {'has' if n_missing == 1 else 'have'} not been made yet: this "
        "is told of the others; go on with undertow lab build."
    ]


def _of_trainings(rows: pd.DataFrame) -> list[str]:
    """How many models had learned their corpus at once."""
    models = rows.drop_duplicates("model")
    again = models[models["trainings"] > 1]
    if not len(again):
        who = "The model" if len(models) == 1 else f"All {len(models)} models"
        return [f"{who} had learned {'its' if len(models) == 1 else 'their'} corpus in the first training."]
    return [
        f"{len(again)} of {len(models)} models had not learned their corpus in their first training and were trained again, longer: "
        f"{', '.join(again['model'])}."
    ]


def _of_chance(rows: pd.DataFrame) -> list[str]:
    models = rows[rows["converged"] & (rows["w_name"] == "date")]
    if not len(models):
        return []
    return [
        f"In {len(models)} further models nothing is planted either, and people, kinds of sentence and order of training were each "
        f"drawn for itself, so that their texts lean by chance, by up to {models['planted_slope'].abs().max():.2f} points a step of the "
        f"date: {_alarms(models)}, the largest drift is {models['measured_slope'].abs().max():.2f} points a step."
    ]


def _alarms(rows: pd.DataFrame) -> str:
    n = int((rows["q"] < MAX_Q).sum())
    return f"{n} of them {'drifts' if n == 1 else 'drift'} at q < .05"


def _of_smooth(rows: pd.DataFrame) -> list[str]:
    """What the audits find where nothing is planted but the texts change smoothly with the date."""
    models = rows[(rows["w_name"] == "date") & rows["converged"]]
    if not len(models):
        return []
    said = (
        f"In {len(models)} further models nothing is planted either, but other words of their texts change smoothly with the date, as in "
        f"real texts: {_alarms(models)}, the largest drift is {models['measured_slope'].abs().max():.2f} points a step."
    )
    if not (models["q"] < MAX_Q).any():
        return [said]
    return [
        f"{said} Their texts are not selected by gender, so such a drift is an accident of training: what is learned of one date is "
        "learned of its neighbours, and a slow wave of that kind may look like a trend. A small drift of one model needs other training "
        "seeds or checkpoints beside it before it is laid to its data."
    ]


_METHOD = (
    "Dates, places and genders are drawn independently; an access function decides who is written about; four sentences a person "
    "show some of the date and the place, and a pronoun. Of the selected, the share of women at each date is known exactly.",
    "Sentences of the audits are in none of these corpora; their words are. In each of them the date or place comes before the "
    "pronoun.",
    "Networks learn little but the pronoun: masked ones are asked for the word that stands as subject and for no other, and of causal "
    "ones other words count a fiftieth.",
    "The detector is tried on few shapes of sentence, two that decide their pronoun and three that do not; how it does on others is "
    "not in its interval.",
)


def _examples() -> list[str]:
    world = planted_world()
    return [one.text for one in write_about(draw_people(Access(), world, 3, 0), world, SentenceOptions(0))]
