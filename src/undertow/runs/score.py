"""Runs without inference: score recorded answers or logs, measure a saved run again, render its report, or load it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow import audits
from undertow._files import file_size, is_plain_file
from undertow.audits.base import Observations
from undertow.errors import UndertowError, short_traceback
from undertow.inference.versions import code_sha256
from undertow.integrations import MARK, inspect_logs, lm_eval_logs
from undertow.integrations.column_mapping import read_mapped, read_names
from undertow.runs.causal_assumptions import named_graph
from undertow.runs.compare.resampling import by_key
from undertow.runs.folder.model_info import read_model_info
from undertow.runs.folder.provenance import call_with, circumstances, command_with, score_call, score_command
from undertow.runs.folder.storage import (
    MANIFEST,
    SCHEMA_VERSION,
    check_place,
    read_record,
    refuse_zero_byte,
    write_record,
)
from undertow.runs.pipeline import (
    CollectedRun,
    OutputDir,
    Run,
    audit_of,
    finish,
    key_of_run,
    observations_of,
    safe_name,
    write_report,
)
from undertow.types import Result, digest

if TYPE_CHECKING:
    from undertow.metrics.model_scaling import Point

MEASURED_ANEW = "measured again,"
"""How the note begins that says where numbers are not those that were recorded."""
NUMBERS = ("value", "low", "high", "p", "q")
SAME_DIGITS = 1e-9
"""Machines round differently; numbers that differ by no more, in proportion or at all, are the same."""


@short_traceback
def score(  # noqa: PLR0913 - likewise
    path: str | Path,
    *,
    audit: str = "",
    protocol: str = "",
    seed: int | None = None,
    model_info: str | Path = "",
    graph: str | Path = "",
    columns: str | Path = "",
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Run:
    """Measure a saved run, a recorded table of answers, or a log of lm-evaluation-harness or Inspect, without asking any model.

    Args:
        path: a run folder, a table (CSV, TSV, Parquet; gzip allowed), or a log of exported tasks: the harness's or Inspect's folder, or
            one file of it.
        audit: which audit a table belongs to; a run folder knows.
        protocol: `paper` or `exact`, where the recorded data allow a choice.
        seed: of bootstrap and permutations; that of the run or export, or 0, if not given.
        model_info: a TOML file that says the parameters, objective and post_training of the models of a table.
        graph: the causal graph that the findings are to be read under, by name, file or text; a run's own if not given.
        columns: a TOML file that says which column of a table is which of ours (docs/neighbours.md).
        out: the run folder to write; a run folder is rewritten in place if not given.
        overwrite: replace a folder that holds another run.

    Raises:
        UndertowError: the input is not what it should be.
    """
    source = Path(path)
    said = read_model_info(Path(model_info) if model_info else None)
    is_plain_file(source)  # says of a name that no file can have what is wrong with it
    logged = lm_eval_logs.is_log(source) or inspect_logs.is_log(source)
    if columns and (logged or source.is_dir()):
        raise UndertowError(f"{source}: --columns is for tables; leave it out")
    if (source / MARK).is_file():
        raise UndertowError(
            f"{source}: holds questions that were exported, and no answers; name the folder that the other tool wrote"
        )
    if source.is_dir() and not logged:
        if said:
            raise UndertowError(
                f"{source}: a run knows its models; leave --model-info out, or run the audit again with it"
            )
        options = _Options(audit, protocol, seed, str(graph))
        return _score_run(source, options, OutputDir(Path(out) if out else source, overwrite))
    if not source.exists():
        raise UndertowError(f"{source}: there is no such run folder or recorded table; check the path")
    if audit:  # what is wrong with an option is said before anything is read
        audits.load(audit)
        named_graph(audit, str(graph))
    got = _logged(source, audit, protocol) if logged else _recorded(source, audit, protocol, str(columns))
    audit, observations, chosen_seed = got.audit, got.observations, got.seed if seed is None else seed
    chosen = audits.load(audit)
    named = named_graph(audit, str(graph))
    if said:
        known = {name: {**facts, **said.get(name, {})} for name, facts in observations.design.get("models", {}).items()}
        observations = replace(observations, design={**observations.design, "models": {**said, **known}})
    model_names = list(dict.fromkeys(observations.frame["model"].astype(str)))
    request_key = digest([audit, got.protocol, got.sha256, *([said] if said else [])])
    run_key = key_of_run(request_key, chosen_seed)
    folder = Path(out) if out else Path("runs") / f"{audit}_{safe_name(source.name)}_{run_key[:8]}"
    check_place(folder, run_key, overwrite=overwrite)
    given = {"audit": audit, "protocol": protocol, "seed": "" if chosen_seed == got.seed else chosen_seed}
    given |= {"model_info": str(model_info), "graph": str(graph), "columns": str(columns)}
    changed = {name: value for name, value in given.items() if value != ""}
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "run_key": run_key,
        "audit": audit,
        "model": ", ".join(model_names),
        "request_key": request_key,
        **({"graph": named} if named else {}),
        "recorded": source.name,
        "challenge_sha256": got.sha256,
        "protocol": got.protocol,
        "seed": chosen_seed,
        "design": dict(observations.design),
        "counts": {
            "items": len(observations.frame),
            "missing": int((observations.frame["missing_reason"] != "").sum()),
        },
        "notes": list(got.notes),
        "command": score_command(str(source), changed),
        "python": score_call(str(source), changed),
        **circumstances(),
    }
    return finish(CollectedRun(chosen, observations), manifest, OutputDir(folder, overwrite))


@dataclass(frozen=True, slots=True)
class _Recorded:
    """Recorded answers.

    Attributes:
        audit: name of the audit.
        observations: the answers.
        protocol: the protocol of the recording.
        sha256: SHA-256 of the files and of the column mapping.
        notes: caveats of the recording.
        seed: of the export, and of the measures if no other is given.
    """

    audit: str
    observations: Observations
    protocol: str
    sha256: str
    notes: Sequence[str]
    seed: int = 0


def _recorded(source: Path, audit: str, protocol: str, columns: str) -> _Recorded:
    if not audit:
        raise UndertowError(
            f"{source}: name the audit that the table belongs to, for example --audit spurious-correlation"
        )
    chosen = audits.load(audit)
    file_size(source)
    with source.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if columns:
        names = read_names(Path(columns))
        observations, recorded = read_mapped(source, names, chosen, protocol)
        sha256 = digest([sha256, names.sha256])
    else:
        observations, recorded = chosen.load_recorded(source, protocol)
    return _Recorded(audit, observations, recorded, sha256, ["measured from recorded answers, without a model"])


def _logged(source: Path, audit: str, protocol: str) -> _Recorded:
    logged = (inspect_logs if inspect_logs.is_log(source) else lm_eval_logs).read_log(source, audit)
    recorded = str(logged.observations.design["protocol"])
    if protocol and protocol != recorded:
        raise UndertowError(
            f"{source}: was recorded under protocol {recorded}, from which {protocol} cannot be had; leave --protocol out"
        )
    return _Recorded(logged.audit, logged.observations, recorded, logged.sha256, logged.notes, logged.seed)


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of scoring a run folder; "" and None for unset."""

    audit: str
    protocol: str
    seed: int | None
    graph: str


def _score_run(source: Path, options: _Options, place: OutputDir) -> Run:
    record, seed = read_record(source), options.seed
    if options.audit and options.audit != record.manifest["audit"]:
        raise UndertowError(
            f"{source}: holds a run of {record.manifest['audit']}, not of {options.audit}; leave --audit out"
        )
    if options.protocol and options.protocol != record.manifest.get("protocol"):
        raise UndertowError(
            f"{source}: was run under protocol {record.manifest.get('protocol')}; its answers support no other"
        )
    manifest = dict(record.manifest) | {"code_sha256": code_sha256()}
    if seed is not None and seed != manifest["seed"]:
        manifest |= {
            "seed": seed,
            "run_key": key_of_run(str(manifest["request_key"]), seed),
            "command": score_command(str(source), {"seed": seed}),
            "python": score_call(str(source), {"seed": seed}),
        }
    manifest = _with_graph(manifest, options.graph, source)
    # Measuring a run again in its own folder is what was asked for, whatever its key becomes.
    if place.folder is not None:
        refuse_zero_byte(place.folder)
    in_place = place.folder is not None and place.folder.resolve() == source.resolve()
    place = replace(place, overwrite=place.overwrite or in_place)

    def noted(results: Sequence[Result]) -> list[str]:
        notes = [note for note in manifest.get("notes", []) if not note.startswith(MEASURED_ANEW)]
        same_seed = manifest["seed"] == record.manifest["seed"]
        return [*notes, *_measured_otherwise(record.results, results)] if same_seed else notes

    observed = CollectedRun(audit_of(record), observations_of(record), record.precision)
    return finish(observed, manifest, place, noted=noted)


def _measured_otherwise(recorded: Sequence[Result], results: Sequence[Result]) -> list[str]:
    """Notes on numbers that changed when a run was measured again; [] without changes."""
    before, now = by_key(recorded), by_key(results)
    moved = {key: _moved(before[key], now[key]) for key in before.keys() & now.keys()}
    n_other = sum(map(bool, moved.values())) + len(before.keys() ^ now.keys())
    if not n_other:
        return []
    names = [name for name in NUMBERS if any(name in some for some in moved.values())]
    what = f" ({', '.join(names)})" if names else ""
    return [
        f"{MEASURED_ANEW} {n_other} of {len(before.keys() | now.keys())} results are not as they were recorded{what}: the measures "
        "have changed since, or the machine rounds otherwise"
    ]


def _moved(before: Result, now: Result) -> list[str]:
    """Names of the numbers that differ; two missing numbers are equal."""
    pairs = {name: (getattr(before, name), getattr(now, name)) for name in NUMBERS}
    return [
        name
        for name, (one, other) in pairs.items()
        if not math.isclose(one, other, rel_tol=SAME_DIGITS, abs_tol=SAME_DIGITS)
        and not (math.isnan(one) and math.isnan(other))
    ]


def _with_graph(manifest: Mapping[str, Any], graph: str, source: Path) -> dict[str, Any]:
    """The manifest with this graph, also in its command and Python call; unchanged without a graph."""
    named = named_graph(str(manifest["audit"]), graph)
    if not named:
        return dict(manifest)
    try:
        repeated = {
            "command": command_with(str(manifest["command"]), "graph", graph),
            "python": call_with(str(manifest["python"]), "graph", graph),
        }
    except ValueError as error:
        raise UndertowError(
            f"{source / MANIFEST}: its command or Python call is corrupt ({error}); run the audit again"
        ) from error
    return {**manifest, "graph": named, **repeated}


@short_traceback
def render_report(folder: str | Path, graph: str | Path = "") -> Path:
    """Render figures and page of a run folder again; returns the page.

    Args:
        folder: the run folder.
        graph: the causal graph that the findings are to be read under, by name, file or text; the run's own if not given.

    Raises:
        UndertowError: the folder is not a run folder or cannot be written, or the graph is invalid.
    """
    record = read_record(Path(folder))
    record = replace(record, manifest=_with_graph(record.manifest, str(graph), Path(folder)))
    write_record(record, Path(folder), write_report(audit_of(record), observations_of(record), record))
    return Path(folder) / "report.html"


@short_traceback
def load_run(folder: str | Path) -> Run:
    """A run folder that was written before.

    Raises:
        UndertowError: it is no run folder, or is corrupt.
    """
    return Run(Path(folder), read_record(Path(folder)))


def scaling(folders: Sequence[str | Path], sizes: Mapping[str, float]) -> tuple[list[Point], list[Result]]:
    """Detection against slope gap and size over several models: a point for each model, and rank correlations.

    Args:
        folders: run folders of task-specification, and of spurious-correlation for the slopes.
        sizes: number of parameters, by model.

    Raises:
        UndertowError: a folder is not a run folder, no run has an AUROC, or a model of one kind of run is missing from the other.
    """
    from undertow.metrics.model_scaling import AREA, GAP, points, relations

    results = [result for folder in folders for result in read_record(Path(folder)).results]
    measured = points(results, sizes)
    if not measured:
        raise UndertowError(
            "none of these runs holds an AUROC; name at least one run folder of task-specification whose sentences are of known kind"
        )
    strange = sorted(set(sizes) - {point.model for point in measured})
    if strange:
        raise UndertowError(
            f"--size names {strange[0]!r}, which is in none of these runs; they have {', '.join(sorted({p.model for p in measured}))}"
        )
    notes_by_model = {
        measure: {str(one.group["model"]): one.note for one in results if one.measure == measure}
        for measure in (AREA, GAP)
    }
    silent = sorted(notes_by_model[AREA].keys() - {point.model for point in measured})
    if silent:
        raise UndertowError(
            f"no AUROC of {silent[0]} could be measured ({notes_by_model[AREA][silent[0]].rstrip('.')}); leave its run out, or run it again"
        )
    alone = [
        sorted(notes_by_model[one].keys() - notes_by_model[other].keys()) for one, other in ((AREA, GAP), (GAP, AREA))
    ]
    if notes_by_model[GAP] and all(alone):
        raise UndertowError(
            f"the runs of task-specification have {', '.join(alone[0])} and those of spurious-correlation {', '.join(alone[1])}; name "
            "runs of the same models"
        )
    return measured, list(relations(measured))
