"""The whole pipeline: resolve the models, query them with the audit's items, measure, write the run folder and its report.

challenge -> items -> queries -> (planner, cache, model) -> scores -> observations -> results -> record -> figures, page
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, overload

from undertow._folders import cache_file
from undertow.audits.audit_options import (
    AnyAuditOptions,
    BiasDiagnosisOptions,
    BiasExtractionOptions,
    BiasIdentificationOptions,
    BiasRephrasingOptions,
    OccupationChecklistOptions,
    SpuriousCorrelationOptions,
    TaskSpecificationOptions,
)
from undertow.audits.base import Audit, Observations, Sampling
from undertow.errors import short_traceback
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.engines import LOCAL, EngineChoice, engine_of
from undertow.inference.runner import Progress, RunEstimate, estimate
from undertow.inference.versions import code_sha256
from undertow.metrics.metric import compute_added
from undertow.models.base import FLOAT32
from undertow.runs import dtype_check
from undertow.runs.causal_assumptions import assumptions_text, named_graph
from undertow.runs.collect import (
    Float32Scorer,
    max_items,
    merge_observations,
    model_manifest,
    models_under_test,
    notes_of,
    observe,
    query_model,
    unused_model_info,
)
from undertow.runs.config import (
    ModelSelection,
    OutputDir,
    RunConfig,
    changed_of,
    check_float32_sample,
    folder_name,
    key_of_run,
    names_of,
    resolve_config,
    safe_name,
    sorted_options,
)
from undertow.runs.finished_run import Run, audit_of, finished_run, observations_of
from undertow.runs.folder.model_info import read_model_info
from undertow.runs.folder.provenance import circumstances, python_call, shell_command
from undertow.runs.folder.storage import SCHEMA_VERSION, Record, check_place, write_record
from undertow.types import Result, digest

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CollectedRun",
    "ModelSelection",
    "OutputDir",
    "Run",
    "RunConfig",
    "audit",
    "audit_of",
    "dry_run",
    "finish",
    "key_of_run",
    "observations_of",
    "resolve_config",
    "safe_name",
    "write_report",
]


def _silent(done: int, total: int) -> None:
    """No progress is shown."""


ModelNames: TypeAlias = str | Path | Sequence[str | Path]


# The last overload is for a name in a variable; an option of another package's audit goes in as `**{"name": value}`.
@overload
def audit(name: Literal["bias-diagnosis"], model: ModelNames, **options: Unpack[BiasDiagnosisOptions]) -> Run: ...
@overload
def audit(name: Literal["bias-extraction"], model: ModelNames, **options: Unpack[BiasExtractionOptions]) -> Run: ...
@overload
def audit(
    name: Literal["bias-identification"], model: ModelNames, **options: Unpack[BiasIdentificationOptions]
) -> Run: ...
@overload
def audit(name: Literal["bias-rephrasing"], model: ModelNames, **options: Unpack[BiasRephrasingOptions]) -> Run: ...
@overload
def audit(
    name: Literal["occupation-checklist"], model: ModelNames, **options: Unpack[OccupationChecklistOptions]
) -> Run: ...
@overload
def audit(
    name: Literal["spurious-correlation"], model: ModelNames, **options: Unpack[SpuriousCorrelationOptions]
) -> Run: ...
@overload
def audit(
    name: Literal["task-specification"], model: ModelNames, **options: Unpack[TaskSpecificationOptions]
) -> Run: ...
@overload
def audit(name: str, model: ModelNames, **options: Unpack[AnyAuditOptions]) -> Run: ...
@short_traceback
def audit(  # noqa: PLR0913 - a keyword for each choice a user has
    name: str,
    model: str | Path | Sequence[str | Path],
    *,
    revision: str = "",
    dtype: str = FLOAT32,
    device: str = "auto",
    protocol: str = "",
    seed: int = 0,
    limit: int = 0,
    model_info: str | Path = "",
    graph: str | Path = "",
    float32_sample: int = 0,
    engine: str = LOCAL,
    ray_address: str = "",
    workers: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress = _silent,
    **options: Any,
) -> Run:
    """Audit one model, or several beside each other, and write the run folder.

    Args:
        name: of the audit, for example `spurious-correlation`.
        model: a name of `undertow list models`, a hub id, or the path of a folder or GGUF file; a list of these compares
            them, and a pattern such as `run/checkpoint-*` stands for all folders that it matches.
        revision: of a hub id.
        dtype: precision of the arithmetic: `float32`, `bfloat16`, `float16`, or `auto` (bfloat16 where this machine is fast at it).
        device: `auto`, `cpu`, `cuda`, ...
        protocol: `exact` or `paper`, where the audit knows both.
        seed: of sampling, bootstrap and permutations.
        limit: ask about so many items, counted as `undertow run AUDIT --help` says; 0 for all.
        model_info: a TOML file that says what models do not tell of themselves: `[models.NAME]` with parameters, objective,
            post_training.
        graph: the causal graph that the findings are to be read under: a name of `undertow graph`, a file, or its text.
        float32_sample: in reduced precision, the number of items to score again in float32, which tells what the precision costs;
            0 for a tenth of them, but at least 200.
        engine: where models run: `local`, in this process, or `ray`, in workers that each load the model. The answers are the same.
        ray_address: of a Ray cluster that is there: `auto`, or host:port; "" starts one on this machine for this run.
        workers: how many; 0 for one on every GPU of the cluster, or else on every machine.
        out: the run folder; chosen from what is asked if not given.
        overwrite: replace a folder that holds another run.
        progress: called with (queries done, queries in all), for each model in turn.
        options: the audit's own, for example `challenge="mgc", w="date,place"`, and those of model families.

    Raises:
        UndertowError: anything that the caller can fix; answers got so far are kept.
    """
    own, of_family = sorted_options(name, options)
    check_float32_sample(float32_sample, dtype)
    job = RunConfig(name, own, protocol, seed, limit, str(model_info), str(graph), float32_sample)
    selection = ModelSelection(names_of(model), revision, dtype, device, of_family)
    choice = EngineChoice(engine, ray_address, workers)
    return _run(job, selection, OutputDir(Path(out) if out else None, overwrite), progress, engine=choice)


def dry_run(  # noqa: PLR0913 - as `run`
    name: str,
    model: str | Path | Sequence[str | Path],
    *,
    revision: str = "",
    dtype: str = FLOAT32,
    device: str = "auto",
    protocol: str = "",
    seed: int = 0,
    limit: int = 0,
    model_info: str | Path = "",
    graph: str | Path = "",
    float32_sample: int = 0,
    engine: str = LOCAL,
    ray_address: str = "",
    workers: int = 0,
    **options: Any,
) -> RunEstimate:
    """Estimate the cost of a run in a single process: queries, tokens, seconds, memory; the total for several models.

    The float32 sample of a run in reduced precision is not included.

    Raises:
        UndertowError: as `audit`.
    """
    choice = EngineChoice(engine, ray_address, workers)
    choice.check()
    check_float32_sample(float32_sample, dtype)
    own, of_family = sorted_options(name, options)
    job = RunConfig(name, own, protocol, seed, limit)
    requests = ModelSelection(names_of(model), revision, dtype, device, of_family)
    read_model_info(Path(model_info) if model_info else None)
    named_graph(name, str(graph))
    subjects, _ = models_under_test(job, requests.each())
    choice.check_models([subject.handle.identity for subject in subjects], device)
    with AnswerCache(cache_file()) as store:
        estimated = RunEstimate.total(
            [
                estimate(one.handle, [item.query for item in max_items(job, one)], store, str(one.design["protocol"]))
                for one in subjects
            ]
        )
    notes = [note for one in subjects for note in (*one.lists, *one.design.get("w_notes", []))]
    n_controls = sum(len(one.controls) for one in subjects)
    return replace(estimated, notes=tuple(dict.fromkeys(notes)), n_controls=n_controls)


def _run(
    job: RunConfig, requests: ModelSelection, place: OutputDir, progress: Progress, *, engine: EngineChoice
) -> Run:
    started = time.perf_counter()
    engine.check()
    said = read_model_info(Path(job.model_info) if job.model_info else None)
    graph = named_graph(job.audit, job.graph)
    # What is wrong with the audit's options is said before any model is looked for.
    audit, settings, protocol = resolve_config(job)
    next(audit.items(settings, Sampling(job.limit, job.seed)))
    models = requests.each()
    subjects, keys = models_under_test(job, models)
    request_key = keys[0] if len(keys) == 1 else digest(keys)
    run_key = key_of_run(request_key, job.seed)
    folder = place.folder or Path("runs") / folder_name(job, models, run_key)
    check_place(folder, run_key, overwrite=place.overwrite)
    engine.check_models([subject.handle.identity for subject in subjects], requests.device)
    changed = changed_of(job, requests) | engine.options
    command = shell_command(job.audit, requests.names, changed)
    # The graph is no part of the key: it changes nothing that is asked or measured, only what is told of it.
    wanted = {
        "run_key": run_key,
        "command": command,
        "code_sha256": code_sha256(),
        "model_info_sha256": digest(said),
        "graph": graph or None,
    }
    finished = None if place.overwrite else finished_run(folder, wanted)
    if finished is not None:
        return finished
    by_model, parts, rechecks = [], [], []
    with AnswerCache(cache_file()) as store, engine.open_cluster(requests.device) as cluster:
        for request, subject in zip(models, subjects, strict=True):
            runs = engine_of(cluster, request, subject.handle)
            answered = query_model(subject, store, protocol, progress, engine=runs)
            by_model.append(observe(audit, subject, answered, request.name))
            parts.append(model_manifest(request.name, subject, answered, said))
            reduced = subject.reduced_run(job, request, answered, by_model[-1])
            rechecker = Float32Scorer(request, cluster, store, protocol, progress)
            rechecks.append(
                dtype_check.rescore_sample(
                    audit, replace(reduced, is_local=cluster is None), (job.float32_sample, job.seed), rechecker
                )
            )
    observations = merge_observations(by_model, parts)
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "run_key": run_key,
        "request_key": request_key,
        "model_info_sha256": digest(said),
        **({"graph": graph} if graph else {}),
        "audit": job.audit,
        "model": ", ".join(request.name for request in models),
        **(
            {"model_identity": parts[0]["identity"], "facts": parts[0]["facts"]}
            if len(parts) == 1
            else {"models": parts}
        ),
        **(
            {"sanity_check": {part["name"]: part["sanity_check"] for part in parts if "sanity_check" in part}}
            if any("sanity_check" in part for part in parts)
            else {}
        ),
        "settings": asdict(subjects[0].settings),
        "protocol": protocol,
        "seed": job.seed,
        "limit": job.limit,
        "challenge_sha256": digest([part["challenge_sha256"] for part in parts])
        if parts[1:]
        else parts[0]["challenge_sha256"],
        "design": dict(observations.design),
        "counts": {name: sum(part["counts"][name] for part in parts) for name in parts[0]["counts"]},
        "notes": [
            *notes_of(parts),
            *dtype_check.unknown_effects(rechecks),
            *unused_model_info(said, [request.name for request in models]),
        ],
        "command": command,
        "python": python_call(job.audit, requests.names, changed),
        **dtype_check.block_of(rechecks),
        **({"engine": cluster.manifest_entry()} if cluster is not None else {}),
        **circumstances(),
        "timing": {"inference_s": sum(part["seconds"] for part in parts), "total_s": time.perf_counter() - started},
    }
    observed = CollectedRun(audit, observations, dtype_check.table_of(rechecks))
    return finish(observed, manifest, OutputDir(folder, place.overwrite))


@dataclass(frozen=True, slots=True)
class CollectedRun:
    """The observations of a run, before it is measured.

    Attributes:
        audit: the audit.
        observations: the observations.
        recheck: in reduced precision, the results of the sample that was scored again in float32.
    """

    audit: Audit
    observations: Observations
    recheck: pd.DataFrame | None = None


def finish(
    observed: CollectedRun,
    manifest: Mapping[str, Any],
    place: OutputDir,
    *,
    noted: Callable[[Sequence[Result]], list[str]] | None = None,
) -> Run:
    """Measure the observations and write the run folder.

    Args:
        observed: audit and observations.
        manifest: of the run.
        place: the run folder.
        noted: notes from the results, in place of the manifest's.

    Raises:
        UndertowError: the folder is taken, or cannot be written.
    """
    audit, observations = observed.audit, observed.observations
    results = list(audit.measure(observations, int(manifest["seed"])))
    results += compute_added(str(manifest["audit"]), observations.frame, observations.design)
    if noted is not None:
        manifest = {**manifest, "notes": noted(results)}
    flagged, table = dtype_check.flag_unstable(audit, observations, results, manifest, observed.recheck)
    record = Record(flagged, observations.frame, results, table)
    if place.folder is None:
        raise TypeError("a finished run has a folder")
    write_record(record, place.folder, write_report(audit, observations, record), overwrite=place.overwrite)
    return Run(place.folder, record)


def write_report(audit: Audit, observations: Observations, record: Record) -> Callable[[Path], None]:
    """A function that writes tables, figures and page of a run into a folder."""

    def write(folder: Path) -> None:
        from undertow.runs.run_report import render_run, write_tables

        write_tables(folder, audit.tables(observations))
        drawings = list(audit.draw(observations, record.results))
        text, findings = audit.report_text(observations, record.results), audit.findings(observations, record.results)
        causal_assumptions, costs = assumptions_text(record), dtype_check.precision_text(record)
        render_run(folder, record, text, findings, drawings, causal_assumptions=causal_assumptions, precision=costs)

    return write
