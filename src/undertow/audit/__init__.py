"""The whole pipeline on one screen: find the model, ask the probe's rounds, measure, write the run folder, tell.

challenge -> items -> queries -> (plan, store, model) -> scores -> evidence -> results -> record -> figures, page
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow import precision
from undertow.audit.asking import Rechecker, ask_subject, foreseen, observe, subjects_of
from undertow.audit.finished import Run, evidence_of, finished_run, probe_of
from undertow.audit.job import (
    Job,
    Place,
    Requests,
    changed_of,
    check_recheck,
    folder_name,
    key_of_run,
    names_of,
    prepared,
    safe_name,
    sorted_options,
)
from undertow.audit.together import notes_of, part_of, put_together, unasked
from undertow.engines import HERE, EngineChoice, engine_of
from undertow.models.base import FLOAT32
from undertow.named_graphs import grounds_told, named_graph
from undertow.places import store_file
from undertow.probes.base import Evidence, Probe, Sampling
from undertow.provenance import circumstances, code_sha256, python_call, shell_command
from undertow.records import SCHEMA_VERSION, Record, check_place, write_record
from undertow.scoring.ask import Estimate, Progress, estimate
from undertow.scoring.store import AnswerStore
from undertow.subjects import read_about
from undertow.types import Result, digest

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Job",
    "Observed",
    "Place",
    "Requests",
    "Run",
    "dry_run",
    "evidence_of",
    "finish",
    "key_of_run",
    "prepared",
    "probe_of",
    "run",
    "safe_name",
    "tell_with",
]


def _silent(done: int, total: int) -> None:
    """No progress is shown."""


def run(  # noqa: PLR0913 - a keyword for each choice a user has
    probe: str,
    model: str | Path | Sequence[str | Path],
    *,
    revision: str = "",
    dtype: str = FLOAT32,
    device: str = "auto",
    protocol: str = "",
    seed: int = 0,
    limit: int = 0,
    about: str | Path = "",
    graph: str | Path = "",
    recheck: int = 0,
    engine: str = HERE,
    address: str = "",
    workers: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress = _silent,
    **options: Any,
) -> Run:
    """Audit one model, or several beside each other, and write the run folder.

    Args:
        probe: name of the audit, for example `spurious-correlation`.
        model: a name of `undertow ls models`, a hub id, or the path of a folder or GGUF file; a list of these compares
            them, and a pattern such as `run/checkpoint-*` stands for all folders that it matches.
        revision: of a hub id.
        dtype: precision of the arithmetic: `float32`, `bfloat16`, `float16`, or `auto` (bfloat16 where this machine is fast at it).
        device: `auto`, `cpu`, `cuda`, ...
        protocol: `exact` or `paper`, where the probe knows both.
        seed: of sampling, bootstrap and permutations.
        limit: ask about so many items, counted as `undertow run PROBE --help` says; 0 for all.
        about: a TOML file that says what models do not tell of themselves: `[models.NAME]` with parameters, objective,
            post_training.
        graph: the causal graph that the findings are to be read under: a name of `undertow dag`, a file, or its text.
        recheck: of a run in reduced precision, how many items are read again in float32, about, to say what its precision costs; 0 for a
            tenth of them, but at least 200.
        engine: where models run: `here`, in this process, or `ray`, in workers that each hold the model. The answers are the same.
        address: of a Ray cluster that is there: `auto`, or host:port; "" starts one on this machine for this run.
        workers: how many; 0 for one on every GPU of the cluster, or else on every machine.
        out: the run folder; chosen from what is asked if not given.
        overwrite: replace a folder that holds another run.
        progress: called with (queries done, queries in all), for each model in turn.
        options: the probe's own, for example `challenge="mgc", w="date,place"`, and those of model families.

    Raises:
        UndertowError: anything that the caller can mend; answers got so far are kept.
    """
    own, of_family = sorted_options(probe, options)
    check_recheck(recheck, dtype)
    job = Job(probe, own, protocol, seed, limit, str(about), str(graph), recheck)
    asked = Requests(names_of(model), revision, dtype, device, of_family)
    choice = EngineChoice(engine, address, workers)
    return _run(job, asked, Place(Path(out) if out else None, overwrite), progress, engine=choice)


def dry_run(  # noqa: PLR0913 - as `run`
    probe: str,
    model: str | Path | Sequence[str | Path],
    *,
    revision: str = "",
    dtype: str = FLOAT32,
    device: str = "auto",
    protocol: str = "",
    seed: int = 0,
    limit: int = 0,
    about: str | Path = "",
    graph: str | Path = "",
    recheck: int = 0,
    engine: str = HERE,
    address: str = "",
    workers: int = 0,
    **options: Any,
) -> Estimate:
    """What a run will take: queries, tokens, seconds, memory; of several models, in all. It is for a single process.

    What a run in reduced precision reads again in float32 comes on top of that.

    Raises:
        UndertowError: as `run`.
    """
    choice = EngineChoice(engine, address, workers)
    choice.check()
    check_recheck(recheck, dtype)
    own, of_family = sorted_options(probe, options)
    job = Job(probe, own, protocol, seed, limit)
    requests = Requests(names_of(model), revision, dtype, device, of_family)
    read_about(Path(about) if about else None)
    named_graph(probe, str(graph))
    subjects, _ = subjects_of(job, requests.each())
    choice.check_models([subject.found.card for subject in subjects], device)
    with AnswerStore(store_file()) as store:
        estimated = Estimate.of_all(
            [
                estimate(one.found, [item.query for item in foreseen(job, one)], store, str(one.design["protocol"]))
                for one in subjects
            ]
        )
    notes = [note for one in subjects for note in (*one.lists, *one.design.get("w_notes", []))]
    n_controls = sum(len(one.controls) for one in subjects)
    return replace(estimated, notes=tuple(dict.fromkeys(notes)), n_controls=n_controls)


def _run(job: Job, requests: Requests, place: Place, progress: Progress, *, engine: EngineChoice) -> Run:
    started = time.perf_counter()
    engine.check()
    said = read_about(Path(job.about) if job.about else None)
    graph = named_graph(job.probe, job.graph)
    # What is wrong with the probe's options is said before any model is looked for.
    probe, settings, protocol = prepared(job)
    next(probe.rounds(settings, Sampling(job.limit, job.seed)))
    asked = requests.each()
    subjects, keys = subjects_of(job, asked)
    asked_key = keys[0] if len(keys) == 1 else digest(keys)
    run_key = key_of_run(asked_key, job.seed)
    folder = place.folder or Path("runs") / folder_name(job, asked, run_key)
    check_place(folder, run_key, overwrite=place.overwrite)
    engine.check_models([subject.found.card for subject in subjects], requests.device)
    changed = changed_of(job, requests) | engine.options
    command = shell_command(job.probe, requests.names, changed)
    # The graph is no part of the key: it changes nothing that is asked or measured, only what is told of it.
    wanted = {
        "run_key": run_key,
        "command": command,
        "code_sha256": code_sha256(),
        "about_sha256": digest(said),
        "graph": graph or None,
    }
    finished = None if place.overwrite else finished_run(folder, wanted)
    if finished is not None:
        return finished
    evidences, parts, agains = [], [], []
    with AnswerStore(store_file()) as store, engine.opened(requests.device) as cluster:
        for request, subject in zip(asked, subjects, strict=True):
            runs = engine_of(cluster, request, subject.found)
            answered = ask_subject(subject, store, protocol, progress, engine=runs)
            evidences.append(observe(probe, subject, answered, request.name))
            parts.append(part_of(request.name, subject, answered, said))
            reduced = subject.as_asked(job, request, answered, evidences[-1])
            rechecker = Rechecker(request, cluster, store, protocol, progress)
            agains.append(
                precision.read_again(probe, replace(reduced, here=cluster is None), (job.recheck, job.seed), rechecker)
            )
    evidence = put_together(evidences, parts)
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "run_key": run_key,
        "asked_key": asked_key,
        "about_sha256": digest(said),
        **({"graph": graph} if graph else {}),
        "probe": job.probe,
        "model": ", ".join(request.name for request in asked),
        **({"model_card": parts[0]["card"], "facts": parts[0]["facts"]} if len(parts) == 1 else {"models": parts}),
        **(
            {"reading": {part["name"]: part["reading"] for part in parts if "reading" in part}}
            if any("reading" in part for part in parts)
            else {}
        ),
        "settings": asdict(subjects[0].settings),
        "protocol": protocol,
        "seed": job.seed,
        "limit": job.limit,
        "challenge_sha256": digest([part["challenge_sha256"] for part in parts])
        if parts[1:]
        else parts[0]["challenge_sha256"],
        "design": dict(evidence.design),
        "counts": {name: sum(part["counts"][name] for part in parts) for name in parts[0]["counts"]},
        "notes": [*notes_of(parts), *precision.unknown_of(agains), *unasked(said, [request.name for request in asked])],
        "command": command,
        "python": python_call(job.probe, requests.names, changed),
        **precision.block_of(agains),
        **({"engine": cluster.told()} if cluster is not None else {}),
        **circumstances(),
        "timing": {"asking_s": sum(part["seconds"] for part in parts), "total_s": time.perf_counter() - started},
    }
    observed = Observed(probe, evidence, precision.table_of(agains))
    return finish(observed, manifest, Place(folder, place.overwrite))


@dataclass(frozen=True, slots=True)
class Observed:
    """What a run is measured from.

    Attributes:
        probe: the audit.
        evidence: what was observed.
        again: of a run in reduced precision, the results of the sample that was read again in float32.
    """

    probe: Probe
    evidence: Evidence
    again: pd.DataFrame | None = None


def finish(
    observed: Observed,
    manifest: Mapping[str, Any],
    place: Place,
    *,
    noted: Callable[[Sequence[Result]], list[str]] | None = None,
) -> Run:
    """Measure, and write the run folder.

    Args:
        observed: what is measured.
        manifest: of the run.
        place: where the folder goes.
        noted: the notes of the run, where they depend on what was measured; else those of the manifest.

    Raises:
        UndertowError: the place is taken, or cannot be written.
    """
    probe, evidence = observed.probe, observed.evidence
    results = probe.measure(evidence, int(manifest["seed"]))
    if noted is not None:
        manifest = {**manifest, "notes": noted(results)}
    told, table = precision.judged(probe, evidence, results, manifest, observed.again)
    record = Record(told, evidence.frame, results, table)
    if place.folder is None:
        raise TypeError("a finished run has a folder")
    write_record(record, place.folder, tell_with(probe, evidence, record), overwrite=place.overwrite)
    return Run(place.folder, record)


def tell_with(probe: Probe, evidence: Evidence, record: Record) -> Callable[[Path], None]:
    """What writes tables, figures and page of a run into a folder."""

    def tell(folder: Path) -> None:
        from undertow.report.telling import tell_run, write_tables

        write_tables(folder, probe.tables(evidence))
        drawings = list(probe.draw(evidence, record.results))
        told, findings = probe.told(evidence, record.results), probe.findings(evidence, record.results)
        grounds, costs = grounds_told(record), precision.precision_told(record)
        tell_run(folder, record, told, findings, drawings, grounds=grounds, precision=costs)

    return tell
