"""The whole pipeline on one screen: find the model, ask the probe's rounds, measure, write the run folder, tell.

challenge -> items -> queries -> (plan, store, model) -> scores -> evidence -> results -> record -> figures, page
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow import models, probes
from undertow.challenge import challenge_digest
from undertow.models.base import FLOAT32, Found, Request
from undertow.places import store_file
from undertow.probes.base import Evidence, Probe, Rounds, Sampling
from undertow.provenance import circumstances, code_sha256, python_call, shell_command
from undertow.records import SCHEMA_VERSION, Record, check_place, read_record, write_record
from undertow.scoring.ask import Asked, Estimate, Progress, ask, check_asks, estimate
from undertow.scoring.store import AnswerStore
from undertow.types import Finding, Item, Query, Scores, UndertowError, digest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def _silent(done: int, total: int) -> None:
    """No progress is shown."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished audit, in memory and in its folder.

    Attributes:
        folder: where it was written.
        record: manifest, observations and results.
    """

    folder: Path
    record: Record

    @property
    def results(self) -> pd.DataFrame:
        """The measures, a row each."""
        return self.record.results_table()

    @property
    def observations(self) -> pd.DataFrame:
        """A row per item, factors as columns."""
        return self.record.observations

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Who was asked what, when, with which versions and seed."""
        return self.record.manifest

    @property
    def report(self) -> Path:
        """The page to open in a browser."""
        return self.folder / "report.html"

    @property
    def findings(self) -> list[Finding]:
        """The results in plain sentences, the strongest first."""
        return probe_of(self.record).findings(evidence_of(self.record), self.record.results)

    def figure(self, index: int = 0) -> Figure:
        """One of the figures, drawn anew; figures are numbered in the order of the report.

        Raises:
            IndexError: there are fewer figures.
        """
        drawings = list(probe_of(self.record).draw(evidence_of(self.record), self.record.results))
        return drawings[index].figure


@dataclass(frozen=True, slots=True)
class Job:
    """What a user asks for, beside the model.

    Attributes:
        probe: its name.
        options: the probe's own options, by name.
        protocol: "" for the probe's default.
        seed: of everything random.
        limit: ask about so many items, whole sentences over W; 0 for all.
    """

    probe: str
    options: Mapping[str, Any] = field(default_factory=dict)
    protocol: str = ""
    seed: int = 0
    limit: int = 0


def run(  # noqa: PLR0913 - a keyword for each choice a user has
    probe: str,
    model: str,
    *,
    revision: str = "",
    dtype: str = FLOAT32,
    device: str = "auto",
    protocol: str = "",
    seed: int = 0,
    limit: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress = _silent,
    **options: Any,
) -> Run:
    """Audit a model and write the run folder.

    Args:
        probe: name of the audit, for example `spurious-correlation`.
        model: a name of `undertow ls models`, a hub id, or the path of a folder or GGUF file.
        revision: of a hub id.
        dtype: precision of the arithmetic.
        device: `auto`, `cpu`, `cuda`, ...
        protocol: `exact` or `paper`, where the probe knows both.
        seed: of sampling, bootstrap and permutations.
        limit: ask about so many items, whole sentences over W; 0 for all.
        out: the run folder; chosen from what is asked if not given.
        overwrite: replace a folder that holds another run.
        progress: called with (queries done, queries in all).
        options: the probe's own, for example `challenge="mgc", w="date,place"`.

    Raises:
        UndertowError: anything that the caller can mend; answers got so far are kept.
    """
    job = Job(probe, options, protocol, seed, limit)
    return _run(job, Request(model, revision, dtype, device), Place(Path(out) if out else None, overwrite), progress)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run folder goes.

    Attributes:
        folder: None to choose one.
        overwrite: whether another run there is replaced.
    """

    folder: Path | None = None
    overwrite: bool = False


def _run(job: Job, request: Request, place: Place, progress: Progress) -> Run:
    started = time.perf_counter()
    probe, settings, protocol = _prepared(job)
    rounds = probe.rounds(settings, Sampling(job.limit, job.seed))
    first = next(rounds)
    design = dict(probe.design(settings)) | {"protocol": protocol}
    found = models.find(request)
    check_asks(found, [item.query for item in first], protocol)
    asked_key = digest([job.probe, found.card.key(protocol), challenge_digest(first), design])
    run_key = key_of_run(asked_key, job.seed)
    folder = place.folder or Path("runs") / _folder_name(job, found, run_key)
    check_place(folder, run_key, overwrite=place.overwrite)
    changed = _changed(job, request)
    command = shell_command(job.probe, request.name, changed)
    finished = None if place.overwrite else _finished(folder, run_key, command)
    if finished is not None:
        return finished
    with AnswerStore(store_file()) as store:
        answered = _ask_rounds(first, rounds, lambda queries: ask(found, queries, store, protocol, progress))
    evidence = probe.observe(design, answered.items, answered.scores, request.name)
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "run_key": run_key,
        "asked_key": asked_key,
        "probe": job.probe,
        "model": request.name,
        "model_card": asdict(found.card),
        "settings": asdict(settings),
        "protocol": protocol,
        "seed": job.seed,
        "limit": job.limit,
        "challenge_sha256": challenge_digest(answered.items),
        "design": dict(evidence.design),
        "counts": answered.counts,
        "notes": answered.notes,
        "command": command,
        "python": python_call(job.probe, request.name, changed),
        **circumstances(),
        "timing": {"asking_s": answered.seconds, "total_s": time.perf_counter() - started},
    }
    return finish(probe, evidence, manifest, Place(folder, place.overwrite))


def _finished(folder: Path, run_key: str, command: str) -> Run | None:
    """The run that was asked for, if its folder holds it whole, measured and told by this very code."""
    if not (folder / "report.html").is_file() or not (folder / "figures").is_dir():
        return None
    try:
        record = read_record(folder)
    except UndertowError:
        return None  # damaged: it is made anew, from stored answers
    manifest = record.manifest
    wanted = {"run_key": run_key, "command": command, "code_sha256": code_sha256()}
    if any(manifest.get(name) != value for name, value in wanted.items()):
        return None
    counts = manifest["counts"] | {"computed": 0, "tokens": 0}
    return Run(folder, replace(record, manifest={**manifest, "counts": counts}))


@dataclass(frozen=True, slots=True)
class _Answered:
    """All rounds of a probe, asked."""

    items: list[Item]
    asked: list[Asked]

    @property
    def scores(self) -> Scores:
        answers = tuple(answer for asked in self.asked for answer in asked.scores.answers)
        return Scores(answers, self.asked[0].scores.readout) if self.asked else Scores(answers)

    @property
    def counts(self) -> dict[str, int]:
        return {
            "items": len(self.items),
            "queries": sum(asked.n_distinct for asked in self.asked),
            "computed": sum(asked.n_computed for asked in self.asked),
            "tokens": sum(asked.n_tokens for asked in self.asked),
            "unscored": sum(bool(reason) for reason in self.scores.unscored),
        }

    @property
    def notes(self) -> list[str]:
        return list(dict.fromkeys(note for asked in self.asked for note in asked.notes))

    @property
    def seconds(self) -> float:
        return sum(asked.seconds for asked in self.asked)


def _ask_rounds(items: list[Item], rounds: Rounds, ask_all: Callable[[list[Query]], Asked]) -> _Answered:
    answered = _Answered([], [])
    while items:
        asked = ask_all([item.query for item in items])
        answered.items.extend(items)
        answered.asked.append(asked)
        try:
            items = rounds.send(asked.scores)
        except StopIteration:
            break
    return answered


def _prepared(job: Job) -> tuple[Probe, Any, str]:
    probe = probes.load(job.probe)
    options = _checked_options(job, {option.name: type(option.default) for option in fields(probe.Settings)})
    protocol = job.protocol or probe.PROTOCOLS[0]
    if protocol not in probe.PROTOCOLS:
        raise UndertowError(
            f"{job.probe} cannot be asked under protocol {protocol!r} here; use {', '.join(probe.PROTOCOLS)}"
        )
    if job.limit < 0:
        raise UndertowError(f"limit {job.limit} is negative; leave it out to ask everything")
    if job.seed < 0:
        raise UndertowError(f"seed {job.seed} is negative; use 0 or more")
    return probe, probe.Settings(**options), protocol


def _checked_options(job: Job, types: Mapping[str, type]) -> dict[str, Any]:
    """The probe's own options; a list of names may be given as one, or as text with commas."""
    checked = {}
    for name, value in job.options.items():
        if name not in types:
            raise UndertowError(f"{job.probe} has no option {name!r}; it has {', '.join(types)}")
        given = _as_text(value)
        if type(given) is not types[name]:
            raise UndertowError(f"{job.probe}: option {name} must be of type {types[name].__name__}, not {value!r}")
        checked[name] = given
    return checked


def _as_text(value: Any) -> Any:
    """A list of names as the command line has it, and a path as text."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, Path) else value


def dry_run(job: Job, request: Request) -> Estimate:
    """What a run will take: queries, tokens, seconds, memory.

    Raises:
        UndertowError: as `run`.
    """
    probe, settings, protocol = _prepared(job)
    items = next(probe.rounds(settings, Sampling(job.limit, job.seed)))
    found = models.find(request)
    with AnswerStore(store_file()) as store:
        return estimate(found, [item.query for item in items], store, protocol)


def finish(probe: Probe, evidence: Evidence, manifest: Mapping[str, Any], place: Place) -> Run:
    """Measure, and write the run folder.

    Raises:
        UndertowError: the place is taken, or cannot be written.
    """
    results = probe.measure(evidence, int(manifest["seed"]))
    record = Record(manifest, evidence.frame, results)
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
        tell_run(folder, record, probe.told(evidence), probe.findings(evidence, record.results), drawings)

    return tell


def probe_of(record: Record) -> Probe:
    """The audit that a run folder holds."""
    return probes.load(str(record.manifest["probe"]))


def evidence_of(record: Record) -> Evidence:
    """What was observed in it."""
    return Evidence(record.observations, record.manifest["design"])


def key_of_run(asked_key: str, seed: int) -> str:
    """Runs with the same key ask the same of the same model, and measure it the same way."""
    return digest([asked_key, seed])


def _folder_name(job: Job, found: Found, run_key: str) -> str:
    return f"{job.probe}_{safe_name(found.card.name)}_{run_key[:8]}"


def safe_name(name: str) -> str:
    """A name as a part of a folder's name."""
    return "".join(sign if sign.isalnum() or sign in "-." else "-" for sign in name).strip("-.")[:60]


def _changed(job: Job, request: Request) -> dict[str, Any]:
    """Options that are not at their defaults, under the names that command line and Python share."""
    common = {name: getattr(request, name) for name in ("revision", "dtype", "device")}
    common |= {name: getattr(job, name) for name in ("protocol", "seed", "limit")}
    defaults = asdict(Request(request.name)) | asdict(Job(job.probe))
    own = {name: _as_text(value) for name, value in job.options.items()}
    return own | {name: value for name, value in common.items() if value != defaults[name]}
