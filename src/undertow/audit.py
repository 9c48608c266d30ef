"""The whole pipeline on one screen: find the model, ask the probe's rounds, measure, write the run folder, tell.

challenge -> items -> queries -> (plan, store, model) -> scores -> evidence -> results -> record -> figures, page
"""

from __future__ import annotations

import hashlib
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
from undertow.provenance import circumstances, python_call, score_call, score_command, shell_command
from undertow.records import SCHEMA_VERSION, Record, check_place, read_record, write_record
from undertow.scoring.ask import Asked, Estimate, Progress, ask, estimate
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
        return _probe(self.record).findings(_evidence(self.record), self.record.results)

    def figure(self, index: int = 0) -> Figure:
        """One of the figures, drawn anew; figures are numbered in the order of the report.

        Raises:
            IndexError: there are fewer figures.
        """
        drawings = list(_probe(self.record).draw(_evidence(self.record), self.record.results))
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
    design = probe.design(settings)
    found = models.find(request)
    asked_key = digest([job.probe, found.card.key(protocol), challenge_digest(first), design])
    run_key = _run_key(asked_key, job.seed)
    folder = place.folder or Path("runs") / _folder_name(job, found, run_key)
    check_place(folder, run_key, overwrite=place.overwrite)
    changed = _changed(job, request)
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
        "design": dict(design),
        "counts": answered.counts,
        "notes": answered.notes,
        "command": shell_command(job.probe, request.name, changed),
        "python": python_call(job.probe, request.name, changed),
        **circumstances(),
        "timing": {"asking_s": answered.seconds, "total_s": time.perf_counter() - started},
    }
    return _finish(probe, evidence, manifest, Place(folder, place.overwrite))


@dataclass(frozen=True, slots=True)
class _Answered:
    """All rounds of a probe, asked."""

    items: list[Item]
    asked: list[Asked]

    @property
    def scores(self) -> Scores:
        return Scores(tuple(answer for asked in self.asked for answer in asked.scores.answers))

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


def score(  # noqa: PLR0913 - likewise
    path: str | Path,
    *,
    probe: str = "",
    protocol: str = "",
    seed: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Run:
    """Measure a saved run, or a recorded table of answers, without asking any model.

    Args:
        path: a run folder, or a table (CSV, TSV, Parquet; gzip allowed).
        probe: which audit a table belongs to; a run folder knows.
        protocol: `paper` or `exact`, where the recorded data allow a choice.
        seed: of bootstrap and permutations; the run's own, or 0, if not given.
        out: the run folder to write; a run folder is rewritten in place if not given.
        overwrite: replace a folder that holds another run.

    Raises:
        UndertowError: the input is not what it should be.
    """
    source = Path(path)
    if source.is_dir():
        return _score_run(source, probe, protocol, seed, Place(Path(out) if out else source, overwrite))
    if not source.exists():
        raise UndertowError(f"{source}: there is no such run folder or recorded table; check the path")
    if not probe:
        raise UndertowError(
            f"{source}: name the audit that the table belongs to, for example --probe spurious-correlation"
        )
    chosen = probes.load(probe)
    evidence, recorded = chosen.read_table(source, protocol)
    models_asked = list(dict.fromkeys(evidence.frame["model"].astype(str)))
    table_sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    asked_key = digest([probe, recorded, table_sha256])
    run_key = _run_key(asked_key, seed or 0)
    folder = Path(out) if out else Path("runs") / f"{probe}_{_safe(source.name)}_{run_key[:8]}"
    check_place(folder, run_key, overwrite=overwrite)
    given = {"probe": probe, "protocol": protocol, "seed": seed or ""}
    changed = {name: value for name, value in given.items() if value != ""}
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "run_key": run_key,
        "probe": probe,
        "model": ", ".join(models_asked),
        "asked_key": asked_key,
        "recorded": source.name,
        "challenge_sha256": table_sha256,
        "protocol": recorded,
        "seed": seed or 0,
        "design": dict(evidence.design),
        "counts": {"items": len(evidence.frame), "unscored": int((evidence.frame["unscored"] != "").sum())},
        "notes": ["measured from recorded answers; no model was asked"],
        "command": score_command(str(source), changed),
        "python": score_call(str(source), changed),
        **circumstances(),
    }
    return _finish(chosen, evidence, manifest, Place(folder, overwrite))


def _score_run(source: Path, probe: str, protocol: str, seed: int | None, place: Place) -> Run:
    record = read_record(source)
    if probe and probe != record.manifest["probe"]:
        raise UndertowError(f"{source}: holds a run of {record.manifest['probe']}, not of {probe}; leave --probe out")
    if protocol and protocol != record.manifest.get("protocol"):
        raise UndertowError(
            f"{source}: was run under protocol {record.manifest.get('protocol')}; another one cannot be had from its answers"
        )
    manifest = dict(record.manifest)
    if seed is not None and seed != manifest["seed"]:
        manifest |= {
            "seed": seed,
            "run_key": _run_key(str(manifest["asked_key"]), seed),
            "command": score_command(str(source), {"seed": seed}),
            "python": score_call(str(source), {"seed": seed}),
        }
    # Measuring a run anew in its own folder is what was asked for, whatever its key becomes.
    in_place = place.folder is not None and place.folder.resolve() == source.resolve()
    return _finish(_probe(record), _evidence(record), manifest, replace(place, overwrite=place.overwrite or in_place))


def retell(folder: str | Path) -> Path:
    """Write figures and page of a run folder anew; returns the page.

    Raises:
        UndertowError: it is no run folder, or cannot be written.
    """
    record = read_record(Path(folder))
    write_record(record, Path(folder), _tell(_probe(record), _evidence(record), record))
    return Path(folder) / "report.html"


def open_run(folder: str | Path) -> Run:
    """A run folder that was written before.

    Raises:
        UndertowError: it is no run folder, or is damaged.
    """
    return Run(Path(folder), read_record(Path(folder)))


def _finish(probe: Probe, evidence: Evidence, manifest: Mapping[str, Any], place: Place) -> Run:
    results = probe.measure(evidence, int(manifest["seed"]))
    record = Record(manifest, evidence.frame, results)
    if place.folder is None:
        raise TypeError("a finished run has a folder")
    write_record(record, place.folder, _tell(probe, evidence, record), overwrite=place.overwrite)
    return Run(place.folder, record)


def _tell(probe: Probe, evidence: Evidence, record: Record) -> Callable[[Path], None]:
    def tell(folder: Path) -> None:
        from undertow.report.telling import tell_run

        drawings = list(probe.draw(evidence, record.results))
        tell_run(folder, record, probe.told(evidence), probe.findings(evidence, record.results), drawings)

    return tell


def _probe(record: Record) -> Probe:
    return probes.load(str(record.manifest["probe"]))


def _evidence(record: Record) -> Evidence:
    return Evidence(record.observations, record.manifest["design"])


def _run_key(asked_key: str, seed: int) -> str:
    """Runs with the same key ask the same of the same model, and measure it the same way."""
    return digest([asked_key, seed])


def _folder_name(job: Job, found: Found, run_key: str) -> str:
    return f"{job.probe}_{_safe(found.card.name)}_{run_key[:8]}"


def _safe(name: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "-." else "-" for sign in name).strip("-.")[:60]


def _changed(job: Job, request: Request) -> dict[str, Any]:
    """Options that are not at their defaults, under the names that command line and Python share."""
    common = {name: getattr(request, name) for name in ("revision", "dtype", "device")}
    common |= {name: getattr(job, name) for name in ("protocol", "seed", "limit")}
    defaults = asdict(Request(request.name)) | asdict(Job(job.probe))
    own = {name: _as_text(value) for name, value in job.options.items()}
    return own | {name: value for name, value in common.items() if value != defaults[name]}
