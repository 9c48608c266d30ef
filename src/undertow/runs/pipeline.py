"""The whole pipeline: resolve the models, query them with the audit's items, measure, write the run folder and its report.

challenge -> items -> queries -> (planner, cache, model) -> scores -> observations -> results -> record -> figures, page
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import cache as cached
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, overload

from undertow import audits
from undertow._folders import cache_file
from undertow._plugins import register_plugin
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
from undertow.audits.base import Audit, Observations
from undertow.errors import LOGGER, UndertowError, short_traceback
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.engines import LOCAL, code_sha256, engine_of
from undertow.inference.ray_engine import Cluster
from undertow.inference.runner import RunEstimate, estimate, run_queries
from undertow.metrics import metric
from undertow.metrics.metric import Metric, added_versions, compute_added
from undertow.models import registry
from undertow.models.backend.execution import preserve
from undertow.models.base import FLOAT32, CostEstimate, ModelHandle, Network
from undertow.report.notebook import notebook_progress
from undertow.runs import dtype_check
from undertow.runs.causal_assumptions import assumptions_text, named_graph
from undertow.runs.collect import ModelRun, ModelUnderTest, merge_observations, models_under_test, observe, query_model
from undertow.runs.config import COMMON, RunConfig, key_of_run
from undertow.runs.finished_run import Run, finished_run, observations_of
from undertow.runs.folder.annotations import annotation_results, copy_annotations
from undertow.runs.folder.model_info import read_model_info
from undertow.runs.folder.provenance import circumstances
from undertow.runs.folder.storage import RUN, SCHEMA_VERSION, Record, read_challenge, write_record
from undertow.runs.folder.whole_folder import check_place
from undertow.types import Progress, Query, Result, Scores, digest, no_progress

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run", "audit", "dry_run", "finish", "observations_of", "write_report"]


RUNS = Path("runs")
ModelNames: TypeAlias = str | Path | Network | Sequence[str | Path]


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
    model: str | Path | Network | Sequence[str | Path],
    *,
    tokenizer: Any = None,
    model_name: str = "",
    revision: str = "",
    dtype: str = FLOAT32,
    device: str = "auto",
    protocol: str = "",
    preset: str = "",
    seed: int = 0,
    limit: int = 0,
    model_info: str | Path = "",
    system: str | Path = "",
    graph: str | Path = "",
    float32_sample: int = 0,
    engine: str = LOCAL,
    ray_address: str = "",
    workers: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress = no_progress,
    **options: Any,
) -> Run:
    """Audit one or several models and write the run folder.

    Args:
        name: of the audit, for example `spurious-correlation`.
        model: a name of `undertow list models`, a hub id, or the path of a folder or GGUF file; a list of these to compare them; or a
            pattern such as `run/checkpoint-*`. `label=NAME` sets the label of a model in reports. Or a loaded transformers network (causal,
            masked, encoder-decoder, ...), whose weights, gradients, training mode, attention implementation and random state are
            unchanged afterwards.
        tokenizer: of a network in memory.
        model_name: label of a network in memory; by default the source that it was loaded from.
        revision: of a hub id.
        dtype: precision of the arithmetic: `float32`, `bfloat16`, `float16`, or `auto` (bfloat16 if this machine has fast instructions).
        device: `auto`, `cpu`, `cuda`, ...
        protocol: `exact`, `paper` or `text`, as far as the audit supports them.
        preset: `paper` for the settings of the audit's paper; other options override it.
        seed: of sampling, bootstrap and permutations.
        limit: maximum number of items, counted as in `undertow run AUDIT --help`; 0 for all.
        model_info: a TOML file with facts about models: `[models.NAME]` with parameters, objective, post_training.
        system: a text file with the system message of every chat, so that the assistant is audited and not only its model.
        graph: a causal graph for the interpretation of the findings: a name of `undertow graph`, a file, or its text.
        float32_sample: in reduced precision, the number of items to score again in float32, to measure its effect; 0 for a tenth, but
            at least 200.
        engine: where models run: `local` (this process) or `ray` (workers that each load the model). Answers are equal.
        ray_address: of a Ray cluster to join: `auto`, or host:port; "" starts one on this machine for this run.
        workers: number of workers; 0 for one per GPU of the cluster, or one per machine without GPUs.
        out: the run folder; by default a name from audit, model and options.
        overwrite: replace a folder with another run.
        progress: called with (queries done, queries in all), for each model in turn; by default a notebook shows a bar.
        options: the audit's own, for example `challenge="mgc", w="date,place"`, and those of model families. `challenge` may also be a
            dict with the content of a challenge file, or a pandas table with a row per sentence.

    Raises:
        UndertowError: anything that the caller can fix; answers so far are cached.
    """
    keywords = {
        name: value for name, value in locals().items() if name in (*COMMON, "tokenizer", "model_name", "preset")
    }
    config = RunConfig.from_keywords(name, model, keywords | options)
    if progress is no_progress:
        progress = notebook_progress() or progress
    return run_audit(config, Path(out) if out else None, progress, overwrite=overwrite)


def run_audit(  # noqa: PLR0913 - where a run comes from and where it goes
    config: RunConfig,
    out: Path | None,
    progress: Progress = no_progress,
    *,
    overwrite: bool,
    cache: Path | None = None,
    runs: Path = RUNS,
) -> Run:
    """Run an audit; see `audit`. `cache` is the file of the answer cache, and `runs` the parent of a folder with a default name."""
    with nullcontext() if config.network is None else preserve(config.network):
        return _run(config, out, progress, cache or cache_file(), overwrite=overwrite, runs=runs)


def _run(  # noqa: PLR0913 - as above
    config: RunConfig, out: Path | None, progress: Progress, cache: Path, *, overwrite: bool, runs: Path
) -> Run:
    started = time.perf_counter()
    audit, model_info, graph = _check(config)
    challenge = Path(str(config.options.get("challenge", "")))
    given = read_challenge(challenge, f"challenge{challenge.suffix}")  # before the models answer, which takes long
    subjects, request_key = models_under_test(config)
    run_key = key_of_run(request_key, config.seed)
    folder = out or runs / config.folder_name([subject.request for subject in subjects], run_key)
    check_place(folder, run_key, RUN, overwrite=overwrite)
    config.engine_choice.check_models([subject.handle.identity for subject in subjects], config.device)
    head = {
        "run_key": run_key,
        "command": config.command,
        "code_sha256": code_sha256(),
        "model_info_sha256": digest(model_info),
        # Not part of the key: these change no query.
        "graph": graph or None,
        "added_metrics": added_versions(config.audit) or None,
    }
    finished = None if overwrite else finished_run(folder, head)
    if finished is not None:
        return finished
    with AnswerCache(cache) as store, config.engine_choice.open_cluster(config.device) as cluster:
        each = [_run_model(config, subject, store, cluster, progress) for subject in subjects]
        ran, rechecks = zip(*each, strict=True)
        checks = [check for check in rechecks if check is not None]
        engine = {"engine": cluster.manifest_entry()} if cluster is not None else {}
    parts = [one.responses.manifest_entry(one.subject, model_info) for one in ran]
    observations = merge_observations([one.observations for one in ran], parts)
    unused = [name for name in model_info if name not in {part["name"] for part in parts}]
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "request_key": request_key,
        **{key: value for key, value in head.items() if value is not None},
        **_model_entries(parts),
        "audit": config.audit,
        "settings": asdict(subjects[0].settings),
        "protocol": subjects[0].design["protocol"],
        "seed": config.seed,
        "limit": config.limit,
        "design": dict(observations.design),
        "notes": [
            *(note if len(parts) == 1 else f"{part['name']}: {note}" for part in parts for note in part["notes"]),
            *dtype_check.unknown_effects(checks),
            *([f"the model-info file names {', '.join(unused)}, which is not in this run"] if unused else []),
        ],
        "python": config.python,
        **dtype_check.block_of(checks),
        **engine,
        **circumstances(str(config.network.device) if config.network is not None else config.device),
        "timing": {"inference_s": sum(part["seconds"] for part in parts), "total_s": time.perf_counter() - started},
    }
    precision = dtype_check.table_of(checks)
    return finish(audit, observations, manifest, folder, precision, challenge_file=given, overwrite=overwrite)


def _run_model(
    config: RunConfig, subject: ModelUnderTest, store: AnswerCache, cluster: Cluster | None, progress: Progress
) -> tuple[ModelRun, dtype_check.Float32Check | None]:
    """Query a model, and score a sample again in float32 if its precision is reduced."""
    audit, _, protocol = config.resolve()

    def run_all(handle: ModelHandle, queries: list[Query]) -> Scores:
        engine = engine_of(cluster, subject.request, handle)
        return run_queries(handle, queries, store, protocol, progress, engine=engine).scores

    responses = query_model(subject, store, progress, engine=engine_of(cluster, subject.request, subject.handle))
    ran = observe(audit, subject, responses)
    check = dtype_check.rescore_sample(config, ran, run_all, is_local=cluster is None)
    if len(config.requests()) > 1:
        gc.collect()  # a network is part of reference cycles, and the next one needs its memory
    return ran, check


def _check(config: RunConfig) -> tuple[Audit, Mapping[str, Mapping[str, str | float]], dict[str, str]]:
    """The audit, the facts about models, and the graph; checks options before any model is resolved."""
    config.engine_choice.check()
    model_info = read_model_info(Path(config.model_info) if config.model_info else None)
    graph = named_graph(config.audit, config.graph)
    audit, settings, _ = config.resolve()
    next(audit.items(settings, config.sampling))
    return audit, model_info, graph


def _model_entries(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The manifest's entries of the models: one identity, or a list."""
    checks = {part["name"]: part["sanity_check"] for part in parts if "sanity_check" in part}
    hashes = [part["challenge_sha256"] for part in parts]
    warnings = [warning for part in parts for warning in part.get("warnings", ())]
    one = {"model_identity": parts[0]["identity"], "facts": parts[0]["facts"]}
    return {
        "model": ", ".join(part["name"] for part in parts),
        **({"models": parts} if parts[1:] else one),
        **({"warnings": warnings} if warnings else {}),
        **({"sanity_check": checks} if checks else {}),
        "challenge_sha256": digest(hashes) if parts[1:] else hashes[0],
        "counts": {name: sum(part["counts"][name] for part in parts) for name in parts[0]["counts"]},
    }


def dry_run(name: str, model: ModelNames, **options: Unpack[AnyAuditOptions]) -> RunEstimate:
    """Estimate the cost of a run in a single process: queries, tokens, seconds, memory; the total for several models.

    The float32 sample of a run in reduced precision is not included.

    Raises:
        UndertowError: as `audit`.
    """
    return estimate_run(RunConfig.from_keywords(name, model, options))


def estimate_run(config: RunConfig) -> RunEstimate:
    """Estimate the cost of a run; see `dry_run`."""
    audit, _, _ = _check(config)
    subjects, _ = models_under_test(config)
    config.engine_choice.check_models([subject.handle.identity for subject in subjects], config.device)
    with AnswerCache(cache_file()) as store, nullcontext() if config.network is None else preserve(config.network):

        def cost(subject: ModelUnderTest) -> RunEstimate:
            # Later batches depend on answers, so the audit bounds their items.
            items = audit.max_items(subject.settings, config.sampling) if audit.adaptive else subject.first
            handle = replace(subject.handle, open=cached(subject.handle.open))
            of_items, *others = (
                estimate(handle, queries, store, protocol, subject.reply_tokens)
                for queries, protocol in subject.groups(items)
            )
            whole = CostEstimate.total([of_items, *others])
            notes = (*subject.lists, *subject.design.get("w_notes", []), subject.budget_note(whole.n_passes))
            return replace(
                of_items,
                **asdict(whole),
                n_controls=sum(one.n_queries for one in others),
                notes=tuple(filter(None, notes)),
            )

        return RunEstimate.of_models([cost(subject) for subject in subjects])


def finish(  # noqa: PLR0913 - parts of a record, and where it is written
    audit: Audit,
    observations: Observations,
    manifest: Mapping[str, Any],
    folder: Path,
    precision: pd.DataFrame | None = None,
    *,
    challenge_file: tuple[str, bytes] | None = None,
    overwrite: bool = False,
    notes: Callable[[Sequence[Result]], list[str]] | None = None,
    annotations_folder: Path | None = None,
) -> Run:
    """Measure the observations and write the run folder.

    `precision` has the results of the float32 sample, and `challenge_file` name and content of a copy of the challenge file. `notes`
    makes notes from the results, which replace the manifest's. Human annotations are copied from `annotations_folder`.

    Raises:
        UndertowError: the folder is taken, or cannot be written, or a line of its annotations is corrupt.
    """
    LOGGER.info("statistics of %s items", f"{len(observations.frame):,}")
    results = list(audit.measure(observations, int(manifest["seed"])))
    results += audit.reply_rates(observations)
    results += compute_added(str(manifest["audit"]), observations.frame, observations.design)
    results += annotation_results(annotations_folder or folder, str(manifest["audit"]), observations.frame)
    if notes is not None:
        manifest = {**manifest, "notes": notes(results)}
    flagged, table = dtype_check.flag_unstable(audit, observations, results, manifest, precision)
    kept = {key: value for key, value in flagged.items() if key != "challenge_file"}
    given = {"challenge_file": challenge_file[0]} if challenge_file else {}
    record = Record(kept | given, observations.frame, results, table)

    def write(draft: Path) -> None:
        if challenge_file:
            (draft / challenge_file[0]).write_bytes(challenge_file[1])
        if annotations_folder is not None and annotations_folder.resolve() != folder.resolve():
            copy_annotations(annotations_folder, draft)
        write_report(audit, observations, record)(draft)

    write_record(record, folder, write, overwrite=overwrite)
    return Run(folder, record)


def write_report(audit: Audit, observations: Observations, record: Record) -> Callable[[Path], None]:
    """A function that writes tables, figures and page of a run into a folder."""

    def write(folder: Path) -> None:
        from undertow.runs.run_report import render_run, write_tables

        LOGGER.info("figures and report")
        behind = audit.sentences(observations)
        written = {audit.sentence_table.file: behind} if len(behind) else {}
        write_tables(folder, {**audit.tables(observations), **written})
        render_run(
            folder,
            record,
            audit.report_text(observations, record.results),
            audit.findings(observations, record.results),
            lambda: audit.draw(observations, record.results),
            causal_assumptions=assumptions_text(record),
            precision=dtype_check.precision_text(record),
            sentences_table=(audit.sentence_table_of(observations), behind),
        )

    return write


@short_traceback
def register(plugin: type[Audit] | Metric | ModuleType, name: str = "") -> None:
    """Add an audit, a metric or a model family to this process, such as a notebook, without a package and its entry point.

    Args:
        plugin: a subclass of `Audit`, a function with the decorator `metric`, or a module with `SUMMARY` and `resolve`. It replaces
            one that was registered under the same name.
        name: of a model family; by default that of its module. Audits and metrics have their own.

    Raises:
        UndertowError: it is none of these, Undertow has an audit, metric or family of this name, or a part of an audit is missing.
    """
    given = name
    if isinstance(plugin, Metric) and plugin.compute is not None:
        group, name, built_in = metric.ENTRY_POINTS, plugin.name, [*metric.METRICS]
    elif isinstance(plugin, type) and issubclass(plugin, Audit):
        group, name, built_in = audits.ENTRY_POINTS, str(getattr(plugin, "name", "")), [*audits.AUDITS]
    elif isinstance(plugin, ModuleType) and {"SUMMARY", "resolve"} <= vars(plugin).keys():
        group, name, built_in = registry.ENTRY_POINTS, name or plugin.__name__, registry.built_in_families()
    else:
        raise UndertowError(
            "a plugin is a subclass of undertow.audits.base.Audit, a function with the decorator undertow.metrics.metric.metric, or a "
            f"module with SUMMARY and resolve, not {plugin!r:.80}"
        )
    if given and not isinstance(plugin, ModuleType):
        raise UndertowError(
            f"name={given!r} is for a model family; leave it out, because audits and metrics have their own"
        )
    if not name or name in built_in:
        raise UndertowError(f"the name {name!r} is empty or that of a part of Undertow; choose another")
    register_plugin(group, name, audits.create(plugin.__qualname__, plugin) if isinstance(plugin, type) else plugin)
