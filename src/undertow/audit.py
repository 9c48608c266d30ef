"""The whole pipeline on one screen: find the model, ask the probe's rounds, measure, write the run folder, tell.

challenge -> items -> queries -> (plan, store, model) -> scores -> evidence -> results -> record -> figures, page
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from undertow import models, precision, probes
from undertow.challenge import challenge_digest
from undertow.engines import HERE, EngineChoice, engine_of
from undertow.models.base import FLOAT32, Found, Request
from undertow.named_graphs import grounds_of, grounds_told, named_graph
from undertow.places import store_file
from undertow.probes.base import Design, Evidence, Probe, Rounds, Sampling
from undertow.provenance import circumstances, code_sha256, python_call, shell_command
from undertow.records import MANIFEST, SCHEMA_VERSION, Record, check_place, read_record, write_record
from undertow.scoring.ask import Asked, Engine, Estimate, Progress, ask, check_asks, estimate
from undertow.scoring.distributed import Cluster
from undertow.scoring.store import AnswerStore
from undertow.subjects import Facts, checkpoint, read_about, written_out
from undertow.types import Finding, Item, Query, Result, Scores, Shown, UndertowError, digest, query_digest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from undertow.causal.grounds import Grounds


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

    @property
    def grounds(self) -> Grounds | None:
        """What the findings rest on under the graph that the run names; None where it names none."""
        return grounds_of(self.record)

    @property
    def shown(self) -> list[Shown]:
        """Tables that the audit has beside those of its measures, such as a paper's; without those behind a warning."""
        told = probe_of(self.record).told(evidence_of(self.record), self.record.results)
        return [table for table in told.shown if not table.warning]

    def _repr_html_(self) -> str:
        """What a notebook shows: findings first, then the numbers, every text as text."""
        from undertow.notebook import run_html

        head = f"{self.manifest['probe']}: {self.manifest['model']}"
        return run_html(head, self.findings, self.record.results, self.report)

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
        about: path of a file that says what models do not tell of themselves; "" for none.
        graph: a causal graph by name, file or text; "" for none.
        recheck: of a run in reduced precision, how many items are read again in float32; 0 for a tenth.
    """

    probe: str
    options: Mapping[str, Any] = field(default_factory=dict)
    protocol: str = ""
    seed: int = 0
    limit: int = 0
    about: str = ""
    graph: str = ""
    recheck: int = 0


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
        limit: ask about so many items, whole sentences over W; 0 for all.
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
    own, of_family = _sorted_options(probe, options)
    _check_recheck(recheck, dtype)
    job = Job(probe, own, protocol, seed, limit, str(about), str(graph), recheck)
    asked = Requests(_names(model), revision, dtype, device, of_family)
    choice = EngineChoice(engine, address, workers)
    return _run(job, asked, Place(Path(out) if out else None, overwrite), progress, engine=choice)


def _check_recheck(recheck: int, dtype: str) -> None:
    if recheck < 0:
        raise UndertowError(f"recheck {recheck} is negative; leave it out to read a tenth of the items again")
    if recheck and dtype == FLOAT32:
        raise UndertowError("--recheck is for runs in reduced precision; leave it out, or add --dtype bfloat16 or auto")


def _names(model: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(model)] if isinstance(model, (str, Path)) else [str(name) for name in model]


@dataclass(frozen=True, slots=True)
class Requests:
    """The models that a user names, and how they are to be run.

    Attributes:
        names: as they were given; a pattern stands for several.
        revision, dtype, device, settings: as in `undertow.models.base.Request`.
    """

    names: Sequence[str]
    revision: str = ""
    dtype: str = FLOAT32
    device: str = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def each(self) -> list[Request]:
        """One request for each model.

        Raises:
            UndertowError: as `undertow.subjects.written_out`, or one revision for several models.
        """
        names = written_out(self.names)
        if self.revision and len(names) > 1:
            raise UndertowError(f"revision {self.revision!r} cannot be of {len(names)} models; ask them one by one")
        return [Request(name, self.revision, self.dtype, self.device, self.settings) for name in names]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run folder goes.

    Attributes:
        folder: None to choose one.
        overwrite: whether another run there is replaced.
    """

    folder: Path | None = None
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class _Subject:
    """One model of a run, not asked yet.

    Attributes:
        found: the model.
        settings: the probe's, suited to it.
        rounds: of the probe, the first one drawn.
        first: items of the first round.
        design: what the measures need beside the table.
    """

    found: Found
    settings: Any
    rounds: Rounds
    first: list[Item]
    design: Mapping[str, Any]

    @classmethod
    def of(cls, job: Job, request: Request) -> _Subject:
        """Find the model and what it will be asked; refuse what it cannot be asked."""
        probe, settings, protocol = prepared(job)
        found = models.find(request)
        settings = getattr(probe, "suited", lambda given, _: given)(settings, found.asks)
        rounds = probe.rounds(settings, Sampling(job.limit, job.seed))
        first = next(rounds)
        check_asks(found, [item.query for item in first], protocol)
        return cls(found, settings, rounds, first, {**probe.design(settings), "protocol": protocol})

    def key(self, job: Job) -> str:
        """Equal for equal questions to the same model."""
        protocol = str(self.design["protocol"])
        return digest([job.probe, self.found.card.key(protocol), challenge_digest(self.first), self.design])

    def as_asked(self, job: Job, request: Request, answered: _Answered, evidence: Evidence) -> precision.Reduced:
        """The model with its answers, and how it is asked once more from the start."""
        probe, settings, sampling = probes.load(job.probe), self.settings, Sampling(job.limit, job.seed)
        return precision.Reduced(
            request=request,
            card=self.found.card,
            facts=answered.facts,
            rounds=lambda: probe.rounds(settings, sampling),
            design=self.design,
            items=answered.items,
            answers=answered.scores.answers,
            evidence=evidence,
        )


@dataclass(frozen=True, slots=True)
class _Rechecker:
    """Has the model of a request asked in another precision, where the run has it asked."""

    request: Request
    cluster: Cluster | None
    store: AnswerStore
    protocol: str
    progress: Progress

    def __call__(self, found: Found, queries: list[Query]) -> Scores:
        engine = engine_of(self.cluster, self.request, found)
        return ask(found, queries, self.store, self.protocol, self.progress, engine=engine).scores


def _run(job: Job, requests: Requests, place: Place, progress: Progress, *, engine: EngineChoice) -> Run:
    started = time.perf_counter()
    engine.check()
    said = read_about(Path(job.about) if job.about else None)
    graph = named_graph(job.probe, job.graph)
    # What is wrong with the probe's options is said before any model is looked for.
    probe, settings, protocol = prepared(job)
    next(probe.rounds(settings, Sampling(job.limit, job.seed)))
    asked = requests.each()
    subjects, keys = _subjects(job, asked)
    asked_key = keys[0] if len(keys) == 1 else digest(keys)
    run_key = key_of_run(asked_key, job.seed)
    folder = place.folder or Path("runs") / _folder_name(job, asked, run_key)
    check_place(folder, run_key, overwrite=place.overwrite)
    engine.check_models([subject.found.card for subject in subjects], requests.device)
    changed = _changed(job, requests) | engine.options
    command = shell_command(job.probe, requests.names, changed)
    # The graph is no part of the key: it changes nothing that is asked or measured, only what is told of it.
    wanted = {
        "run_key": run_key,
        "command": command,
        "code_sha256": code_sha256(),
        "about_sha256": digest(said),
        "graph": graph or None,
    }
    finished = None if place.overwrite else _finished(folder, wanted)
    if finished is not None:
        return finished
    evidences, parts, agains = [], [], []
    with AnswerStore(store_file()) as store, engine.opened(requests.device) as cluster:
        for request, subject in zip(asked, subjects, strict=True):
            runs = engine_of(cluster, request, subject.found)
            answered = _ask_subject(subject, store, protocol, progress, engine=runs)
            evidences.append(probe.observe(subject.design, answered.items, answered.scores, request.name))
            parts.append(_part(request.name, subject, answered, said))
            reduced = subject.as_asked(job, request, answered, evidences[-1])
            rechecker = _Rechecker(request, cluster, store, protocol, progress)
            agains.append(
                precision.read_again(probe, replace(reduced, here=cluster is None), (job.recheck, job.seed), rechecker)
            )
    evidence = _together(evidences, parts)
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "run_key": run_key,
        "asked_key": asked_key,
        "about_sha256": digest(said),
        **({"graph": graph} if graph else {}),
        "probe": job.probe,
        "model": ", ".join(request.name for request in asked),
        **({"model_card": parts[0]["card"], "facts": parts[0]["facts"]} if len(parts) == 1 else {"models": parts}),
        "settings": asdict(subjects[0].settings),
        "protocol": protocol,
        "seed": job.seed,
        "limit": job.limit,
        "challenge_sha256": digest([part["challenge_sha256"] for part in parts])
        if parts[1:]
        else parts[0]["challenge_sha256"],
        "design": dict(evidence.design),
        "counts": {name: sum(part["counts"][name] for part in parts) for name in parts[0]["counts"]},
        "notes": [*_notes(parts), *precision.unknown_of(agains), *_unasked(said, [request.name for request in asked])],
        "command": command,
        "python": python_call(job.probe, requests.names, changed),
        **precision.block_of(agains),
        **({"engine": cluster.told()} if cluster is not None else {}),
        **circumstances(),
        "timing": {"asking_s": sum(part["seconds"] for part in parts), "total_s": time.perf_counter() - started},
    }
    return finish(probe, evidence, manifest, Place(folder, place.overwrite), precision.table_of(agains))


def _subjects(job: Job, requests: Sequence[Request]) -> tuple[list[_Subject], list[str]]:
    """The models and their keys.

    Raises:
        UndertowError: one model under two names, or an option that no model of the run takes: something else was meant.
    """
    subjects = [_Subject.of(job, request) for request in requests]
    keys = [subject.key(job) for subject in subjects]
    names = [subject.found.card.name for subject in subjects]
    for at, key in enumerate(keys):
        if key in keys[:at]:
            raise UndertowError(f"{names[keys.index(key)]} and {names[at]} are one model; name it once")
    families = {subject.found.card.family for subject in subjects}
    for name in requests[0].settings:
        takers = models.takers(name)
        if not families & set(takers):
            raise UndertowError(
                f"--{name.replace('_', '-')} is for models of the family {' or '.join(takers)}, and none of {', '.join(names)} is; "
                "leave it out, or check the names"
            )
    return subjects, keys


def _unasked(said: Mapping[str, Facts], names: Sequence[str]) -> list[str]:
    """A misspelled name in a file about models would go unnoticed otherwise."""
    strange = [name for name in said if name not in names]
    return [f"the file about models names {', '.join(strange)} too, which this run does not ask"] if strange else []


def _ask_subject(
    subject: _Subject, store: AnswerStore, protocol: str, progress: Progress, *, engine: Engine
) -> _Answered:
    return _ask_rounds(
        subject.first,
        subject.rounds,
        lambda queries: ask(subject.found, queries, store, protocol, progress, engine=engine),
    )


def _part(name: str, subject: _Subject, answered: _Answered, said: Mapping[str, Facts]) -> dict[str, Any]:
    """What the manifest says of one model."""
    return {
        "name": name,
        # A model that has other ways too may have been asked by prompts only.
        "card": asdict(subject.found.card) | {"readout": answered.scores.readout},
        "settings": asdict(subject.settings),
        "facts": {**answered.facts, **checkpoint(name), **said.get(name, {})},
        "readout": answered.scores.readout,
        "counts": answered.counts,
        "notes": answered.notes,
        "challenge_sha256": challenge_digest(answered.items),
        "seconds": answered.seconds,
    }


def _notes(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    if len(parts) == 1:
        return list(parts[0]["notes"])
    return [f"{part['name']}: {note}" for part in parts for note in part["notes"]]


def _together(evidences: Sequence[Evidence], parts: Sequence[Mapping[str, Any]]) -> Evidence:
    """The tables of several models under each other, and what is known of each model."""
    design = dict(evidences[0].design)
    for name in ("words", "prompts"):
        design[name] = _joined([evidence.design.get(name, {}) for evidence in evidences])
    design["models"] = {part["name"]: part["facts"] for part in parts}
    design["readouts"] = {part["name"]: part["readout"] for part in parts}
    if len(evidences) == 1:
        return Evidence(evidences[0].frame, design)
    import pandas as pd

    frame = pd.concat([evidence.frame for evidence in evidences], ignore_index=True)
    if "answer" in frame:
        frame["answer"] = frame["answer"].fillna("")
    return Evidence(frame, design)


def _joined(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Entries of several tables; lists of one name put together, each word once."""
    joined: dict[str, Any] = {}
    for table in tables:
        for name, entry in table.items():
            if isinstance(entry, list):
                joined[name] = list(dict.fromkeys([*joined.get(name, []), *entry]))
            else:
                joined[name] = entry
    return joined


def _finished(folder: Path, wanted: Mapping[str, Any]) -> Run | None:
    """The run that was asked for, if its folder holds it whole, measured and told by this very code."""
    if not (folder / "report.html").is_file() or not (folder / "figures").is_dir():
        return None
    try:
        record = read_record(folder)
    except UndertowError:
        return None  # damaged: it is made anew, from stored answers
    manifest = record.manifest
    if manifest["counts"].get("lost"):
        return None  # what got no answer is asked again
    if any(manifest.get(name) != value for name, value in wanted.items()):
        return None
    asked_now = {"computed": 0, "tokens": 0}
    manifest = {**manifest, "counts": manifest["counts"] | asked_now}
    if "models" in manifest:
        manifest["models"] = [part | {"counts": part["counts"] | asked_now} for part in manifest["models"]]
    return Run(folder, replace(record, manifest=manifest))


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
            "queries": self.asked[0].n_distinct
            if len(self.asked) == 1
            else len({query_digest(item.query) for item in self.items}),  # a later round may ask what was asked before
            "computed": sum(asked.n_computed for asked in self.asked),
            "tokens": sum(asked.n_tokens for asked in self.asked),
            "unscored": sum(bool(reason) for reason in self.scores.unscored),
            "lost": sum(asked.n_lost for asked in self.asked),
        }

    @property
    def facts(self) -> dict[str, str | float]:
        return {name: fact for asked in self.asked for name, fact in asked.facts.items() if fact}

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


def prepared(job: Job) -> tuple[Probe, Any, str]:
    """The audit of a job, its settings and its protocol, checked.

    Raises:
        UndertowError: there is no such audit, option or protocol.
    """
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


def _sorted_options(probe: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The probe's own options, and those of model families, which are looked at only where one is not the probe's.

    Raises:
        UndertowError: an option of neither, or a value of another type.
    """
    known = {option.name for option in fields(probes.load(probe).Settings)}
    own = {name: value for name, value in options.items() if name in known}
    rest = {name: value for name, value in options.items() if name not in known}
    if not rest:
        return own, {}
    families = {name: type(option.default) for name, option in models.settings().items()}
    for name in rest:
        if name not in families:
            raise UndertowError(
                f"{probe} has no option {name!r}; it has {', '.join([*known_in_order(probe), *families])}"
            )
    checked = _of_types(rest, families, "model")
    for name, value in checked.items():
        if isinstance(value, str) and "@" in urlsplit(value).netloc:
            raise UndertowError(
                f"model: option {name} holds a name or password, which would be written down; leave it out of the address"
            )
    return own, checked


def known_in_order(probe: str) -> list[str]:
    """The probe's own options, as they are listed."""
    return [option.name for option in fields(probes.load(probe).Settings)]


def _checked_options(job: Job, types: Mapping[str, type]) -> dict[str, Any]:
    """The probe's own options; a list of names may be given as one, or as text with commas."""
    for name in job.options:
        if name not in types:
            raise UndertowError(f"{job.probe} has no option {name!r}; it has {', '.join(types)}")
    return _of_types(job.options, types, job.probe)


def _of_types(given: Mapping[str, Any], types: Mapping[str, type], whose: str) -> dict[str, Any]:
    checked = {}
    for name, value in given.items():
        plain = float(value) if types[name] is float and type(value) is int else _as_text(value)
        if type(plain) is not types[name]:
            raise UndertowError(f"{whose}: option {name} must be of type {types[name].__name__}, not {value!r}")
        checked[name] = plain
    return checked


def _as_text(value: Any) -> Any:
    """A list of names as the command line has it, and a path as text."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, Path) else value


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
    _check_recheck(recheck, dtype)
    own, of_family = _sorted_options(probe, options)
    job = Job(probe, own, protocol, seed, limit)
    requests = Requests(_names(model), revision, dtype, device, of_family)
    read_about(Path(about) if about else None)
    named_graph(probe, str(graph))
    subjects, _ = _subjects(job, requests.each())
    choice.check_models([subject.found.card for subject in subjects], device)
    with AnswerStore(store_file()) as store:
        return Estimate.of_all(
            [
                estimate(one.found, [item.query for item in _foreseen(job, one)], store, str(one.design["protocol"]))
                for one in subjects
            ]
        )


def _foreseen(job: Job, subject: _Subject) -> list[Item]:
    """The items of a model, at most: later rounds depend on answers, and a probe that has any says what they may be."""
    probe = probes.load(job.probe)
    if not hasattr(probe, "foreseen"):
        return subject.first
    items: list[Item] = probe.foreseen(subject.settings, Sampling(job.limit, job.seed))
    return items


def finish(  # noqa: PLR0913 - what is measured, where it goes, and what is told beside it
    probe: Probe,
    evidence: Evidence,
    manifest: Mapping[str, Any],
    place: Place,
    again: pd.DataFrame | None = None,
    *,
    noted: Callable[[Sequence[Result]], list[str]] | None = None,
) -> Run:
    """Measure, and write the run folder.

    Args:
        probe: the audit.
        evidence: what was observed.
        manifest: of the run.
        place: where the folder goes.
        again: of a run in reduced precision, the results of the sample that was read again in float32.
        noted: the notes of the run, where they depend on what was measured; else those of the manifest.

    Raises:
        UndertowError: the place is taken, or cannot be written.
    """
    results = probe.measure(evidence, int(manifest["seed"]))
    if noted is not None:
        manifest = {**manifest, "notes": noted(results)}
    told, table = precision.judged(probe, evidence, results, manifest, again)
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


def probe_of(record: Record) -> Probe:
    """The audit that a run folder holds."""
    return probes.load(str(record.manifest["probe"]))


def evidence_of(record: Record) -> Evidence:
    """What was observed in it.

    Raises:
        UndertowError: its design is damaged; says what of it.
    """
    probe = probe_of(record)
    design = Design(record.manifest["design"], MANIFEST)
    design.check(probe.design(probe.Settings()))
    return Evidence(record.observations, design)


def key_of_run(asked_key: str, seed: int) -> str:
    """Runs with the same key ask the same of the same model, and measure it the same way."""
    return digest([asked_key, seed])


def _folder_name(job: Job, requests: Sequence[Request], run_key: str) -> str:
    more = f"-and-{len(requests) - 1}-more" if requests[1:] else ""
    return f"{job.probe}_{safe_name(requests[0].name)}{more}_{run_key[:8]}"


def safe_name(name: str) -> str:
    """A name as a part of a folder's name."""
    return "".join(sign if sign.isalnum() or sign in "-." else "-" for sign in name).strip("-.")[:60]


def _changed(job: Job, requests: Requests) -> dict[str, Any]:
    """Options that are not at their defaults, under the names that command line and Python share."""
    common = {name: getattr(requests, name) for name in ("revision", "dtype", "device")}
    common |= {name: getattr(job, name) for name in ("protocol", "seed", "limit", "about", "graph", "recheck")}
    defaults = asdict(Request("")) | asdict(Job(job.probe))
    own = {name: _as_text(value) for name, value in job.options.items()}
    families = models.settings() if requests.settings else {}
    of_family = {name: value for name, value in requests.settings.items() if value != families[name].default}
    return own | of_family | {name: value for name, value in common.items() if value != defaults[name]}
