"""Measure a finished run, a recorded table or a log of another harness, without querying a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow import audits
from undertow._files import file_size, is_plain_file, sha256_of
from undertow.errors import UndertowError, short_traceback
from undertow.inference.engines import code_sha256
from undertow.integrations import MARK, inspect_logs, lm_eval_logs
from undertow.integrations.column_mapping import read_mapped
from undertow.integrations.export_format import AnswerLog
from undertow.metrics.text.judgements import JUDGEMENT_MEASURES
from undertow.runs.causal_assumptions import named_graph
from undertow.runs.compare.resampling import by_key
from undertow.runs.config import key_of_run, safe_name
from undertow.runs.finished_run import Run, audit_of, observations_of
from undertow.runs.folder.annotations import annotation_results
from undertow.runs.folder.model_info import read_model_info
from undertow.runs.folder.provenance import call_with, circumstances, command_line, command_with, python_call
from undertow.runs.folder.storage import MANIFEST, RUN, SCHEMA_VERSION, read_challenge, read_record, write_record
from undertow.runs.folder.whole_folder import check_place
from undertow.runs.pipeline import finish, write_report
from undertow.types import Result, digest

if TYPE_CHECKING:
    from undertow.metrics.model_scaling import Point

MEASURED_ANEW = "measured again,"
"""Beginning of the note on results that differ from the recorded ones."""
NUMBERS = ("value", "low", "high", "p", "q")
SAME_DIGITS = 1e-9
"""Tolerance for equal numbers, relative or absolute, because machines round differently."""


@short_traceback
def score(  # noqa: PLR0913 - likewise
    path: str | PathLike[str],
    *,
    audit: str = "",
    protocol: str = "",
    seed: int | None = None,
    model_info: str | Path = "",
    graph: str | Path = "",
    columns: str | Path = "",
    out: str | PathLike[str] | None = None,
    overwrite: bool = False,
) -> Run:
    """Measure a saved run, a recorded table of answers, or a log of lm-evaluation-harness or Inspect, without querying a model.

    Args:
        path: a run folder, a table (CSV, TSV, Parquet; gzip allowed), or a log of exported tasks: the folder of the harness or of
            Inspect, or one file of it.
        audit: the audit of a table; not needed for a run folder.
        protocol: `paper` or `exact`, if the recorded data allow a choice; `text` for free replies to the tasks of bias in text.
        seed: of bootstrap and permutations; by default that of the run or export, or 0.
        model_info: a TOML file with parameters, objective and post_training of the models of a table.
        graph: a causal graph for the interpretation of the findings, by name, file or text; by default that of the run.
        columns: a TOML file that maps the columns of a table (docs/neighbours.md).
        out: the run folder to write; by default a run folder is rewritten in place.
        overwrite: replace a folder with another run.

    Raises:
        UndertowError: the input is invalid.
    """
    source = Path(path)
    is_plain_file(source)  # refuses an invalid file name
    logged = lm_eval_logs.is_log(source) or inspect_logs.is_log(source)
    if columns and (logged or source.is_dir()):
        raise UndertowError(f"{source}: --columns is for tables; leave it out")
    if (source / MARK).is_file():
        raise UndertowError(
            f"{source}: contains exported questions without answers; name the folder that the other tool wrote"
        )
    options = {"audit": audit, "protocol": protocol, "seed": "" if seed is None else seed}
    options |= {"model_info": str(model_info), "graph": str(graph), "columns": str(columns)}
    if source.is_dir() and not logged:
        return _score_run(source, options, Path(out) if out else source, overwrite=overwrite)
    if not source.exists():
        raise UndertowError(f"{source}: there is no such run folder or recorded table; check the path")
    if audit:  # check options before reading
        audits.load(audit)
        named_graph(audit, str(graph))
    model_facts = read_model_info(Path(model_info) if model_info else None)
    read = _read_log(source, audit, protocol) if logged else _read_table(source, audit, protocol, str(columns))
    folder = Path(out) if out else None
    return _score_answers(source, *read, model_facts, options, folder=folder, overwrite=overwrite)


def _read_table(source: Path, audit: str, protocol: str, columns: str) -> tuple[AnswerLog, str]:
    """The answers of a recorded table, and their protocol."""
    if not audit:
        raise UndertowError(
            f"{source}: name the audit that the table belongs to, for example --audit spurious-correlation"
        )
    chosen = audits.load(audit)
    file_size(source)  # refuses what is no regular file
    sha256 = sha256_of(source)
    if columns:
        observations, recorded, of_mapping = read_mapped(source, Path(columns), chosen, protocol)
        sha256 = digest([sha256, of_mapping])
    else:
        observations, recorded = chosen.load_recorded(source, protocol)
    observations = chosen.note_missing(observations)
    notes = ["scored from recorded answers, without a model"]
    return AnswerLog(audit, observations, 0, notes, sha256), recorded


def _read_log(source: Path, audit: str, protocol: str) -> tuple[AnswerLog, str]:
    """The answers of a log of lm-evaluation-harness or Inspect, and their protocol."""
    logged = (inspect_logs if inspect_logs.is_log(source) else lm_eval_logs).read_log(source, audit)
    recorded = str(logged.observations.design["protocol"])
    if protocol and protocol != recorded:
        raise UndertowError(
            f"{source}: was recorded under protocol {recorded}, which does not support {protocol}; leave --protocol out"
        )
    return logged, recorded


def _score_answers(  # noqa: PLR0913 - each input apart
    source: Path,
    answers: AnswerLog,
    protocol: str,
    model_info: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    folder: Path | None,
    overwrite: bool,
) -> Run:
    """Measure recorded answers as a new run."""
    graph = named_graph(answers.audit, options["graph"])
    observations, seed = answers.observations, answers.seed if options["seed"] == "" else options["seed"]
    if model_info:
        models = observations.design.get("models", {})
        known = {name: {**facts, **model_info.get(name, {})} for name, facts in models.items()}
        observations = replace(observations, design={**observations.design, "models": {**model_info, **known}})
    request_key = digest([answers.audit, protocol, answers.sha256, *([model_info] if model_info else [])])
    run_key = key_of_run(request_key, seed)
    folder = folder or Path("runs") / f"{answers.audit}_{safe_name(source.name)}_{run_key[:8]}"
    frame = observations.frame
    check_place(folder, run_key, RUN, overwrite=overwrite)
    given = {**options, "audit": answers.audit, "seed": "" if seed == answers.seed else seed}
    changed = {name: value for name, value in given.items() if value != ""}
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "run_key": run_key,
        "audit": answers.audit,
        "model": ", ".join(dict.fromkeys(observations.frame["model"].astype(str))),
        "request_key": request_key,
        **({"graph": graph} if graph else {}),
        "recorded": source.name,
        "challenge_sha256": answers.sha256,
        "protocol": protocol,
        "seed": seed,
        "design": dict(observations.design),
        "counts": {"items": len(frame), "missing": int((frame["missing_reason"] != "").sum())},
        "notes": list(answers.notes),
        **({"warnings": list(answers.warnings)} if answers.warnings else {}),
        **({"precision": {"models": _unknown_precision(answers)}} if answers.dtypes else {}),
        "command": command_line(["score", str(source)], changed),
        "python": python_call("score", repr(str(source)), changed),
        **circumstances(),
    }
    return finish(audits.load(answers.audit), observations, manifest, folder, overwrite=overwrite)


def _unknown_precision(answers: AnswerLog) -> list[dict[str, Any]]:
    """The manifest's entry of each model in reduced precision, which has no float32 sample."""
    n_of_model = answers.observations.frame["model"].value_counts()
    fix = "the log has no sample in float32; run the tool again with dtype=float32"
    return [
        {"model": model, "dtype": dtype, "of_items": int(n_of_model[model]), "unknown": fix}
        for model, dtype in answers.dtypes.items()
    ]


def _score_run(source: Path, options: Mapping[str, Any], folder: Path, *, overwrite: bool) -> Run:
    """Measure a finished run again."""
    if options["model_info"]:
        raise UndertowError(
            f"{source}: facts about its models are fixed; leave --model-info out, or run the audit again with it"
        )
    record = read_record(source)
    recorded, protocol, seed = record.manifest["audit"], record.manifest.get("protocol"), record.manifest["seed"]
    if options["audit"] not in ("", recorded):
        raise UndertowError(f"{source}: holds a run of {recorded}, not of {options['audit']}; leave --audit out")
    if options["protocol"] not in ("", protocol):
        raise UndertowError(f"{source}: was run under protocol {protocol}; its answers support no other")
    manifest = dict(record.manifest) | {"code_sha256": code_sha256()}
    same_seed = options["seed"] in ("", seed)
    if not same_seed:
        changed = {"seed": options["seed"]}
        manifest |= changed | {
            "run_key": key_of_run(str(manifest["request_key"]), options["seed"]),
            "command": command_line(["score", str(source)], changed),
            "python": python_call("score", repr(str(source)), changed),
        }
    manifest = _with_graph(manifest, options["graph"], source)
    # Its own folder is replaced, even if its key changes.
    in_place = folder.resolve() == source.resolve()

    def notes(results: Sequence[Result]) -> list[str]:
        kept = [note for note in manifest.get("notes", []) if not note.startswith(MEASURED_ANEW)]
        return [*kept, *_note_on_changes(record.results, results)] if same_seed else kept

    audit, observations = audit_of(record), observations_of(record)
    overwrite = overwrite or in_place
    name = str(manifest.get("challenge_file", ""))
    kept = source / name
    challenge_file = None if kept.is_symlink() else read_challenge(kept, name)
    return finish(
        audit,
        observations,
        manifest,
        folder,
        record.precision,
        challenge_file=challenge_file,
        overwrite=overwrite,
        notes=notes,
        annotations_folder=source,
    )


def _note_on_changes(recorded: Sequence[Result], results: Sequence[Result]) -> list[str]:
    """Notes on results that changed when a run was measured again; [] without changes."""

    def moved_numbers(one: Result, other: Result) -> list[str]:
        pairs = [(name, getattr(one, name), getattr(other, name)) for name in NUMBERS]
        return [name for name, old, new in pairs if not np.isclose(old, new, SAME_DIGITS, SAME_DIGITS, equal_nan=True)]

    # Annotations may have been added since.
    measured = ([one for one in some if one.measure not in JUDGEMENT_MEASURES] for some in (recorded, results))
    before, now = map(by_key, measured)
    moved = {key: moved_numbers(before[key], now[key]) for key in before.keys() & now.keys()}
    n_other = sum(map(bool, moved.values())) + len(before.keys() ^ now.keys())
    if not n_other:
        return []
    names = [name for name in NUMBERS if any(name in some for some in moved.values())]
    what = f" ({', '.join(names)})" if names else ""
    return [
        f"{MEASURED_ANEW} {n_other} of {len(before.keys() | now.keys())} results differ from the recorded ones{what}: the measures "
        "have changed, or this machine rounds differently"
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
def render_report(folder: str | PathLike[str], graph: str | Path = "") -> Path:
    """Render figures and page of a run folder again, and add its human annotations to the results; returns the page.

    Args:
        folder: the run folder.
        graph: a causal graph for the interpretation of the findings, by name, file or text; by default that of the run.

    Raises:
        UndertowError: the folder is not a run folder or cannot be written, or the graph or a line of the annotations is invalid.
    """
    record = read_record(Path(folder))
    judgements = annotation_results(Path(folder), str(record.manifest["audit"]), record.observations)
    results = [one for one in record.results if one.measure not in JUDGEMENT_MEASURES] + judgements
    record = replace(record, manifest=_with_graph(record.manifest, str(graph), Path(folder)), results=results)
    write_record(record, Path(folder), write_report(audit_of(record), observations_of(record), record))
    return Path(folder) / "report.html"


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
            "none of these runs has an AUROC; name at least one run folder of task-specification with labelled sentences"
        )
    strange = sorted(set(sizes) - {point.model for point in measured})
    if strange:
        lacks = any(result.group.get("model") == strange[0] for result in results)
        where = "which has no AUROC; add its run of task-specification" if lacks else "which is in none of these runs"
        raise UndertowError(
            f"--size names {strange[0]!r}, {where}; models with an AUROC are {', '.join(sorted({p.model for p in measured}))}"
        )
    notes_by_model = {
        measure: {str(one.group["model"]): one.note for one in results if one.measure == measure}
        for measure in (AREA, GAP)
    }
    silent = sorted(notes_by_model[AREA].keys() - {point.model for point in measured})
    if silent:
        raise UndertowError(
            f"{silent[0]} has no AUROC ({notes_by_model[AREA][silent[0]].rstrip('.')}); remove its run, or run it again"
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
