"""Auditing the models of a lab with sentences that no corpus holds, and putting beside each reading what was planted.

lab/audits/NAME/drift          undertow run spurious-correlation, on held_out.toml
lab/audits/NAME/specification  undertow run task-specification, on sentences.toml
lab/verification/              models.csv, results.csv, figures, report.html
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.causal.planted import (
    LINEAR,
    UNORDERED,
    Access,
    Writing,
    draw_people,
    drift_challenge,
    sentence_challenge,
    write_about,
)
from undertow.lab.build import Built, read_built, read_plan, read_tried, the_world
from undertow.lab.plan import Plan, small
from undertow.lab.work import Crew, Progress, side_by_side, worked
from undertow.types import Result, UndertowError

if TYPE_CHECKING:
    import pandas as pd

DRIFT, SENTENCES = "held_out.toml", "sentences.toml"
W_NAMES = ("date", "place")
DETECTOR, BASELINE = "delta_female", "entropy"
AUDITS = 2


@dataclass(frozen=True, slots=True)
class Audited:
    """What the audits read of one model.

    Attributes:
        drifts: the slope of the female share, by W.
        areas: area under the ROC curve of telling undecided sentences, by score.
    """

    drifts: dict[str, Result]
    areas: dict[str, Result]


def audited(
    folder: Path, plan: Plan | None = None, jobs: int = 0, progress: Progress = lambda done, total: None
) -> pd.DataFrame:
    """The table that a verification is measured from: a row for each model and W; see `undertow.measures.calibration`.

    Raises:
        UndertowError: there is no lab, it holds no model, or an audit failed.
    """
    import pandas as pd

    chosen = plan or read_plan(folder)
    built = read_built(folder, chosen)
    if not built:
        raise UndertowError(f"{folder}: no model of the lab has been made; build it first with undertow lab build")
    (folder / DRIFT).write_text(drift_challenge(), encoding="utf-8")
    (folder / SENTENCES).write_text(sentence_challenge(), encoding="utf-8")
    works = [(str(folder), one.subject.name) for one in built]
    readings = side_by_side(audit_model, works, Crew(jobs, folder / "cache"), AUDITS * len(works), progress)
    rows = [row for one, reading in zip(built, readings, strict=True) for row in _rows(one, reading)]
    return pd.DataFrame(rows)


def audit_model(work: tuple[str, str]) -> Audited:
    """Both audits of one model; taken from their folders where they have been made."""
    from undertow import audit

    folder, name = Path(work[0]), work[1]
    place = folder / "audits" / name
    world = the_world()
    model = folder / "models" / name
    drift = audit.run("spurious-correlation", model, challenge=str(folder / DRIFT), out=place / "drift")
    worked(1)
    specification = audit.run(
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
    return Audited(drifts, areas)


def _rows(built: Built, reading: Audited) -> list[dict[str, Any]]:
    subject = built.subject
    shared = {
        "model": subject.name,
        "architecture": subject.architecture,
        "trades": subject.trades,
        "selected": subject.strength != 0,
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
            # The default access looks at dates only, so that nothing is planted along the places.
            "strength": subject.strength if w_name == "date" or subject.access != LINEAR else 0.0,
            "planted_slope": built.planted[w_name],
            "population_slope": built.population[w_name],
            "learned_slope": built.learned.get(w_name, math.nan),
            **_read(reading.drifts[w_name]),
        }
        for w_name in W_NAMES
    ]


def _read(drift: Result) -> dict[str, Any]:
    found = drift.q < 0.05 and (drift.low > 0 or drift.high < 0)
    return {
        "measured_slope": drift.value, "low": drift.low, "high": drift.high, "p": drift.p, "q": drift.q, "found": bool(found),
        "n_clusters": drift.detail["n_clusters"],
    }  # fmt: skip


def apart(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows that the instrument is judged by, and those of corpora whose texts change smoothly with the date."""
    plain = frame["trades"] == UNORDERED
    return frame[plain].reset_index(drop=True), frame[~plain].reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of a verification.

    Attributes:
        folder: where it was written.
        report: its page.
        verdicts: what the audits promise: requirement, target and value in words, and whether it is met.
        notes: sentences beside these, about models whose texts change smoothly with the date.
    """

    folder: Path
    report: Path
    verdicts: list[tuple[str, str, str, bool]]
    notes: list[str]


def verify(folder: Path, *, jobs: int = 0, seed: int = 0, progress: Progress = lambda done, total: None) -> Verified:
    """Audit every model of a lab, and write the table, its measures and their page.

    Raises:
        UndertowError: as `audited`, or no model has learned its corpus.
    """
    from undertow.measures.calibration import fitted_lines, intervals, results, verdicts
    from undertow.report.verification import Verification, write

    judged, smooth = apart(audited(folder, jobs=jobs, progress=progress))
    measured = results(judged, seed)
    notes = [*_of_unmade(folder), *_of_smooth(smooth)]
    promises = verdicts(measured)
    told = Verification(
        models=intervals(judged),
        lines=fitted_lines(judged),
        results=measured,
        verdicts=promises,
        asked=_ASKED,
        examples=_examples(),
        notes=notes,
        command=_command(folder),
        provenance={"models": f"{judged['model'].nunique()}", "seed of draws": f"{seed}", **_circumstances()},
    )
    place = folder / "verification"
    report = write(place, told)
    if len(smooth):
        smooth.to_csv(place / "smooth.csv", index=False, lineterminator="\n")
    return Verified(place, report, promises, notes)


def _command(folder: Path) -> str:
    small_alone = set(read_plan(folder).subjects) <= set(small().subjects)
    place = shlex.join(["--out", str(folder)])
    return f"undertow lab build {'--small ' if small_alone else ''}{place} && undertow lab verify {place}"


def _circumstances() -> dict[str, str]:
    """Versions, machine and hashes, a line each."""
    from undertow.provenance import circumstances

    told: dict[str, str] = {}
    for name, value in circumstances().items():
        if isinstance(value, Mapping):
            told |= {f"{name}: {key}": str(one) for key, one in value.items()}
        else:
            told[name] = str(value)
    return told


def _of_unmade(folder: Path) -> list[str]:
    """That some of the planned models are not here, if so."""
    planned = read_plan(folder)
    n_missing = len(planned.subjects) - len(read_tried(folder, planned))
    if not n_missing:
        return []
    return [
        f"{n_missing} of the {len(planned.subjects)} planned models {'has' if n_missing == 1 else 'have'} not been made yet: this "
        "is told of the others; go on with undertow lab build."
    ]


def _of_smooth(rows: pd.DataFrame) -> list[str]:
    """What the audits find where nothing is planted but the texts change smoothly with the date."""
    asked = rows[(rows["w_name"] == "date") & rows["converged"]]
    if not len(asked):
        return []
    n_alarms = int((asked["q"] < 0.05).sum())
    largest = float(asked["measured_slope"].abs().max())
    return [
        f"In {len(asked)} further models nothing is planted either, but other words of their texts change smoothly with the date, "
        f"as in real texts: {n_alarms} of them drift at q < .05, by up to {largest:.2f} points a step. They do drift, by accident of "
        "their training: what is learned of one date is learned of its neighbours, and the test, which takes dates as "
        "exchangeable, cannot tell that from selection. A small drift of one model needs other training seeds or checkpoints "
        "beside it before it is laid to its data."
    ]


_ASKED = (
    "Dates, places and genders are drawn independently; an access function decides who is written about; four sentences a person "
    "show some of the date and the place, and a pronoun. Of the selected, the share of women at each date is known exactly.",
    "Sentences of the audits are in none of these corpora; their words are. In each of them the date or place comes before the "
    "pronoun.",
)


def _examples() -> list[str]:
    world = the_world()
    return [one.text for one in write_about(draw_people(Access(), world, 3, 0), world, Writing(0))]
