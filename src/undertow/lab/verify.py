"""Audit the models of a lab with held-out sentences, and compare each measured slope with the planted one.

lab/audits/NAME/drift          undertow run spurious-correlation, on held_out.toml
lab/audits/NAME/specification  undertow run task-specification, on sentences.toml
lab/verification/              models.csv, results.csv, figures, report.html; beside.csv of models that are reported separately
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import UndertowError
from undertow.lab import planted_corpus as planted
from undertow.lab.build import UNBIASED_BELOW, BuiltModel, read_attempts, read_built, read_plan
from undertow.lab.experiment_plan import Plan, custom, full, planted_world, small
from undertow.lab.lab_folder import lab_lock, write_text
from undertow.lab.planted_population import LINEAR, Access, PlantedTruth, draw_people
from undertow.lab.settings import INDEPENDENT, ORDERED, SentenceOptions
from undertow.lab.verification import metrics
from undertow.lab.verification.paragraphs import paragraphs
from undertow.lab.verification.promises import MIN_UNBIASED_MODELS, Verdict, verdicts
from undertow.lab.verification.report import Verification, write
from undertow.lab.worker_pool import report_units, side_by_side
from undertow.runs.folder.storage import csv_of
from undertow.types import ALPHA, Progress, Result, no_progress

if TYPE_CHECKING:
    import pandas as pd

DRIFT, SENTENCES, BESIDE = "held_out.toml", "sentences.toml", "beside.csv"
DETECTOR, BASELINE = "delta_female", "entropy"
AUDITS = 2


def audit_models(folder: Path, plan: Plan, jobs: int = 0, progress: Progress = no_progress) -> pd.DataFrame:
    """The table that a verification is measured from: a row for each model and W; see `undertow.lab.verification.metrics`."""
    import pandas as pd

    built = read_built(folder, plan)
    if not built:
        raise UndertowError(f"{folder}: no model of the lab has been made; build it first with undertow lab build")
    write_text(folder / DRIFT, planted.drift_challenge())
    write_text(folder / SENTENCES, planted.sentence_challenge())
    works = [(folder, one) for one in built]
    rows = side_by_side(audit_model, works, AUDITS * len(works), jobs=jobs, cache=folder / "cache", progress=progress)
    return pd.DataFrame([row for of_model in rows for row in of_model])


def audit_model(work: tuple[Path, BuiltModel]) -> list[dict[str, Any]]:
    """Rows of the table for both audits of one model, from their folders if they exist."""
    from undertow.runs import pipeline

    folder, built = work
    subject, world = built.subject, planted_world()
    place, model = folder / "audits" / subject.name, folder / "models" / subject.name
    drift = pipeline.audit("spurious-correlation", model, challenge=str(folder / DRIFT), out=place / "drift")
    report_units(1)
    specification = pipeline.audit(
        "task-specification",
        model,
        challenge=str(folder / SENTENCES),
        inject="In {w}, ",
        date_start=int(world.dates[0]),
        date_stop=int(world.dates[-1]),
        out=place / "specification",
    )
    report_units(1)
    known = PlantedTruth.from_world(subject.selection, world)
    spans = [float(np.nanmax(share) - np.nanmin(share)) for share in (known.by_date, known.by_place)]
    shared: dict[str, Any] = {
        "model": subject.name,
        "architecture": subject.architecture,
        "trades": subject.trades,
        "sampling": subject.sampling,
        # Whether the share of women differs among dates or places of the selected, on a line or not.
        "selected": any(span > UNBIASED_BELOW for span in spans),
        "training_seed": subject.seed,
        "pronoun_loss_nats": built.loss_nats,
        "floor_nats": built.floor_nats,
        "ignorant_nats": built.ignorant_nats,
        "converged": built.converged,
        "steps": built.final_attempt.steps if built.final_attempt else 0,
        "trainings": len(built.attempts),
    }
    areas = {one.group["score"]: one for one in specification.record.results if one.measure == "auroc"}
    for name, score in (("auroc_delta", DETECTOR), ("auroc_entropy", BASELINE)):
        area = areas.get(score, Result("auroc", {}, math.nan))
        shared |= {name: area.value, f"{name}_low": area.low, f"{name}_high": area.high}
    slopes = [one for one in drift.record.results if one.measure == "slope" and one.group["pronoun"] == "female"]
    by_w, rows = {one.group["w_name"]: one for one in slopes}, []
    for w_name in planted.W_NAMES:
        slope, population = by_w[w_name], built.population[w_name]
        # The interval over sentences alone: the bias is planted at these values of W, whose noise is estimated across models.
        low, high, df = (slope.extras.get(f"sentences_{name}", math.nan) for name in ("low", "high", "df"))
        values = world.dates if w_name == "date" else world.places
        rows.append({
            **shared,
            "w_name": w_name,
            "strength": _rise(population, len(values)),
            "planted_slope": built.planted[w_name],
            "population_slope": population,
            "learned_slope": built.learned.get(w_name, math.nan),
            "measured_slope": slope.value, "low": low, "high": high, "p": slope.p, "q": slope.q, "found": bool(slope.q < ALPHA),
            "n_clusters": slope.extras.get("n_clusters", math.nan), "sentence_df": df,
        })  # fmt: skip
    return rows


def _rise(slope: float, n_values: int) -> float:
    """How much the share of women rises from the first value of W to the last, on the line: of the default access, its strength."""
    return 0.0 if abs(slope) <= UNBIASED_BELOW else round(slope * (n_values - 1) / 100, 6)


def split_models(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of models that are judged, of those whose texts lean by chance, and of those whose texts change smoothly."""
    smooth = frame["trades"] == ORDERED
    by_chance = (frame["sampling"] == INDEPENDENT) & ~smooth
    return [frame[rows].reset_index(drop=True) for rows in (~smooth & ~by_chance, by_chance, smooth)]


def verify(folder: Path, *, jobs: int = 0, progress: Progress = no_progress) -> tuple[Path, Verification]:
    """Audit every model of a lab, and write the table, its measures and their page; returns the page, and its content."""
    import pandas as pd

    plan = read_plan(folder)
    with lab_lock(folder):
        judged, by_chance, smooth = split_models(audit_models(folder, plan, jobs, progress))
        measured = metrics.results(judged)
        world = planted_world()
        examples = planted.write_about(draw_people(Access(), world, 3, 0), world, SentenceOptions())
        verification = Verification(
            models=metrics.intervals(judged),
            lines=metrics.fitted_lines(judged),
            results=measured,
            verdicts=[*verdicts(measured), *_chance_verdict(by_chance)],
            examples=[one.text for one in examples],
            notes=beside_notes(judged, by_chance, smooth, len(plan), len(plan) - len(read_attempts(folder, plan))),
            command=_command(folder, plan),
            provenance={"models": f"{judged['model'].nunique()}", "seed of draws": "0", **_circumstances()},
        )
        place = folder / "verification"
        write_text(place / BESIDE, csv_of(pd.concat([by_chance, smooth])))
        return write(place, verification), verification


def beside_notes(
    judged: pd.DataFrame, by_chance: pd.DataFrame, smooth: pd.DataFrame, n_planned: int, n_missing: int
) -> list[str]:
    """Sentences about models that are missing, were trained again, or are reported separately."""
    models = judged.drop_duplicates("model")
    by_chance, smooth = (rows[rows["converged"] & (rows["w_name"] == "date")] for rows in (by_chance, smooth))
    return paragraphs(
        "beside.txt.j2",
        n_planned=n_planned,
        n_missing=n_missing,
        n_models=len(models),
        again=models.loc[models["trainings"] > 1, "model"].tolist(),
        by_chance=by_chance,
        smooth=smooth,
    )[""]


def _chance_verdict(rows: pd.DataFrame) -> list[Verdict]:
    """The promise about false alarms, of models whose texts lean by chance; none where too few were made."""
    counting = rows[rows["converged"]]
    if counting["model"].nunique() < MIN_UNBIASED_MODELS:
        return []
    *_, (_, target, measured, met) = verdicts(metrics.results(rows))
    what = "Nothing is found either where people, sentences and order of training were left to chance"
    return [(what, target, measured, met)]


def _command(folder: Path, plan: Plan) -> str:
    subjects = set(plan)
    place = shlex.join(["--out", str(folder)])
    verified = f"undertow lab verify {place}"
    if subjects <= set(small()):
        return f"undertow lab build --small {place} && {verified}"
    if subjects <= set(full()):
        return f"undertow lab build {place} && {verified}"
    access = plan[0].access
    strengths, seeds = (sorted({getattr(one, name) for one in subjects}) for name in ("strength", "seed"))
    if subjects != set(custom(strengths, seeds, access)):
        return verified  # of several builds
    options = [part for strength in strengths for part in ("--strength", f"{strength:g}")]
    options += [part for seed in seeds for part in ("--seed", f"{seed}")]
    options += ["--access", access] if access != LINEAR else []
    return f"undertow lab build {shlex.join(options)} {place} && {verified}"


def _circumstances() -> dict[str, str]:
    from undertow.runs.folder.provenance import circumstances

    lines: dict[str, str] = {}
    for name, value in circumstances().items():
        parts = {f"{name}: {key}": one for key, one in value.items()} if isinstance(value, Mapping) else {name: value}
        lines |= {key: str(one) for key, one in parts.items()}
    return lines
