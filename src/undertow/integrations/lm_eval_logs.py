"""Read samples that lm-evaluation-harness logged for tasks of `undertow export lm-eval`.

    LOGS/MODEL/samples_undertow_mgc_date_2026-01-31T10-00-00.000000.jsonl    a line for every sentence
    LOGS/MODEL/results_2026-01-31T10-00-00.000000.json                       the model and its configuration

Each sample carries its item, so that nothing but the log is needed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undertow import audits, data
from undertow._files import file_size, read_file
from undertow.audits.base import EXACT, Observations
from undertow.errors import UndertowError
from undertow.integrations.export_format import AnswerLog, named_files
from undertow.integrations.item_codec import COLUMN, CarriedItem, LogFiles, Origin, read_carried
from undertow.integrations.lm_eval import CHOICES, CONTEXT, context_and_choices
from undertow.runs.config import RunConfig
from undertow.runs.folder.storage import MANIFEST
from undertow.types import LIKELIHOOD, Answer, ClozeQuery, Item, Scores

SAMPLES = "samples_*.jsonl"
_DATE = re.compile(r"_(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.jsonl$")
NO_ANSWER = "the log holds no answer to it"
MAX_PARAMETERS = 10**18
MAX_RESULT_BYTES = 64 * 2**20
ABOVE_ONE_NATS = 1e-3
"""A log-likelihood that is above 0 by more than rounding is none."""
OWN = ("undertow-schemas", "simplified")
"""Sentences that come with the package, beside `challenge.names()`."""
FACTORS = ("challenge", "w_name", "w_index", "w")
PLAIN_DTYPES = ("", "float32", "torch.float32")


def is_log(path: Path) -> bool:
    """Whether a path is a file of logged samples, or a folder that contains some."""
    if path.is_dir():
        return not (path / MANIFEST).is_file() and next(path.rglob(SAMPLES), None) is not None
    return path.name.endswith(".jsonl")


def read_log(path: Path, audit: str = "") -> AnswerLog:
    """Read the answers of a log, of one model or several.

    Sentences that the log of a task lacks (an interrupted run, or a limit) are missing. Sentences of a user's own challenge
    file cannot be listed, so a note gives their number.

    Args:
        path: the harness's `--output_path`, or one of its sample files.
        audit: the expected audit; "" for any.

    Raises:
        UndertowError: a file is corrupt or holds other tasks, a sentence appears twice or within other text, or the samples
            belong to several exports.
    """
    files = sorted(path.rglob(SAMPLES)) if path.is_dir() else [path]
    logs = _Logs(path)
    for file in files:
        logs.read(file)
    if logs.origin is None:
        raise UndertowError(
            f"{path}: holds no samples of tasks that undertow export lm-eval wrote; name the folder given with --output_path, and "
            "run the harness with --log_samples"
        )
    origin = logs.origin
    if audit and audit != origin.audit:
        raise UndertowError(f"{path}: holds answers to {origin.audit}, not to {audit}; leave --audit out")
    return AnswerLog(
        audit=origin.audit,
        observations=_observations(logs, origin),
        seed=origin.seed,
        notes=_notes(logs, origin),
        sha256=logs.digest.hexdigest(),
    )


@dataclass(slots=True)
class _Logs(LogFiles):
    """The contents of the files read so far.

    Attributes:
        answers: by model and item index: the item, its answer, and file and line.
        facts: the harness's facts about each model.
        dtypes: the precision of each model, where the harness logs it.
        full_names: the harness's name of each model.
    """

    answers: dict[str, dict[int, tuple[Item, Answer, str]]] = field(default_factory=dict)
    facts: dict[str, dict[str, float]] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    full_names: dict[str, str] = field(default_factory=dict)

    def read(self, file: Path) -> None:
        """Add the samples of a file; skip files of other tasks."""
        model = ""
        for number, sample in _samples(file, self.digest):
            where = f"{file}, line {number}"
            carried = _question(sample, where)
            if carried is None and model:
                raise UndertowError(
                    f"{where}: is a sample of another task; the file was mixed up, run the harness again"
                )
            if carried is None:
                return
            self.check_origin(carried.origin, file)
            model = model or self._model(file)
            of_model = self.answers.setdefault(model, {})
            if carried.place in of_model:
                raise UndertowError(
                    f"{where}: {carried.item.id!r} of {model} was logged in {of_model[carried.place][2]} already; name one of the "
                    "files, or move the log of the other run away"
                )
            of_model[carried.place] = (carried.item, _answer(sample, carried.item, where), where)

    def _model(self, file: Path) -> str:
        """The model of a file, by the results file with the same timestamp, else by its folder."""
        dated = _DATE.search(file.name)
        results = sorted(file.parent.glob(f"*_{dated[1]}.json")) if dated else []
        said = _read_results(results[0]) if results else {}
        model = self._called(str(said.get("model_name") or "").strip() or file.absolute().parent.name)
        config = said.get("config")
        if isinstance(config, Mapping):
            parameters = config.get("model_num_parameters")
            if isinstance(parameters, int) and 0 < parameters < MAX_PARAMETERS:
                self.facts[model] = {"parameters": float(parameters)}
            self.dtypes[model] = str(config.get("model_dtype") or "")
        return model

    def _called(self, full: str) -> str:
        """A model's name; for a path its last part, unless another path has the same."""
        is_path = full.startswith(("/", "./", "../", "~"))
        short = (Path(full).name if is_path else full) or "recorded"
        return short if self.full_names.setdefault(short, full) == full else full


def _samples(file: Path, digest: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line numbers and samples."""
    file_size(file)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UndertowError(f"{file}: cannot be read ({error.strerror or error}); check the path") from error
    digest.update(file.name.encode() + b"\0" + content + b"\0")
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            sample = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UndertowError(
                f"{file}, line {number}: is cut off or corrupt; run the harness again, or remove this line to count its sentence as missing"
            ) from error
        if not isinstance(sample, dict):
            raise UndertowError(f"{file}, line {number}: is no logged sample; name a file that --log_samples wrote")
        yield number, sample


def _question(sample: Mapping[str, Any], where: str) -> CarriedItem | None:
    """The item of a sample; None for a sample of another task."""
    doc = sample.get("doc")
    text = doc.get(COLUMN) if isinstance(doc, Mapping) else None
    if not isinstance(doc, Mapping) or text is None:
        return None
    try:
        carried = read_carried(str(text))
    except ValueError as error:
        raise UndertowError(f"{where}: its question is corrupt: {error}; export and run the task again") from error
    query, factors = carried.item.query, carried.item.factors
    groups = carried.origin.design.get("groups")
    known = isinstance(groups, list) and all(option.group in groups for option in query.options)  # type: ignore[union-attr]
    if not isinstance(query, ClozeQuery) or not known or any(name not in factors for name in FACTORS):
        raise UndertowError(f"{where}: its question is no sentence with a blank; export and run the task again")
    context, choices = context_and_choices(query)
    if doc.get(CONTEXT) != context or doc.get(CHOICES) != choices:
        raise UndertowError(f"{where}: its text is not that of its question; export and run the task again")
    arguments = _arguments(sample.get("arguments"))
    if arguments and arguments != [[context, choice] for choice in choices]:
        raise UndertowError(
            f"{where}: the sentence was queried with other text; run the task without examples, chat template and system instruction"
        )
    return carried


def _arguments(given: Any) -> list[list[Any]]:
    """The logged (context, continuation) pairs, for every version of the harness; [] where it logs none."""
    pairs = list(given.values()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, list):
        return []
    # What is neither a list nor a table is no pair, and so none that was to be asked.
    return [
        list(pair.values()) if isinstance(pair, Mapping) else list(pair) if isinstance(pair, (list, tuple)) else [pair]
        for pair in pairs
        if pair
    ]


def _answer(sample: Mapping[str, Any], item: Item, where: str) -> Answer:
    """Log-likelihoods of the options; such a log has no mass of other words.

    Options that differ in case only and have equal log-likelihoods are one text to the model, and count once.
    """
    query = item.query
    if not isinstance(query, ClozeQuery):
        raise TypeError("only blanks are exported")
    logged = sample.get("filtered_resps") or sample.get("resps")
    if not isinstance(logged, list) or len(logged) != len(query.options):
        raise UndertowError(
            f"{where}: holds {len(logged) if isinstance(logged, list) else 'no'} log-likelihoods for {len(query.options)} choices; "
            "run the harness again"
        )
    nats = [_number(one) for one in logged]
    if any(math.isnan(one) or one > ABOVE_ONE_NATS for one in nats):
        return Answer.missing("the log has no log-likelihood for one of the words")
    if not any(math.isfinite(one) for one in nats):
        return Answer.missing("the log says that none of the words is possible")
    seen: dict[tuple[str, str, float], int] = {}
    for place, (option, text) in enumerate(zip(query.options, query.texts(), strict=True)):
        if seen.setdefault((option.group, text.casefold(), nats[place]), place) != place:
            nats[place] = math.nan
    return Answer(tuple(nats), math.nan)


def _number(logged: Any) -> float:
    """The log-likelihood in a pair (log-likelihood, is greedy); the pair holds text, in `resps` inside one more list."""
    while isinstance(logged, list) and logged:
        logged = logged[0]
    try:
        return float(logged)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _read_results(path: Path) -> Mapping[str, Any]:
    """The harness's results file; {} if it is corrupt, since the samples hold all that is measured."""
    content = read_file(path, MAX_RESULT_BYTES, "results of lm-evaluation-harness")
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, Mapping) else {}


def _observations(logs: _Logs, origin: Origin) -> Observations:
    import pandas as pd

    audit = audits.load(origin.audit)
    design = origin.design | {"protocol": EXACT}
    lacking = [name for name in audit.design(audit.Settings()) if name not in design]
    if lacking:
        raise UndertowError(
            f"{logs.first_file}: its questions do not say what {origin.audit} needs to know ({lacking[0]}); export and run the task again"
        )
    _check_design(origin, f"{logs.first_file}: its questions")
    frames, last = [], None
    for model, answered in logs.answers.items():
        items, answers = _in_order(answered, _known(origin))
        _check_factors(items, str(logs.first_file))
        last = audit.observe(design, items, Scores(tuple(answers), LIKELIHOOD), model)
        frames.append(last.frame)
    if last is None:
        raise UndertowError(f"{logs.path}: holds no answers; run the harness again")
    known = {model: logs.facts.get(model, {}) for model in logs.answers}
    more = {"models": known, "scoring_methods": dict.fromkeys(logs.answers, LIKELIHOOD)}
    return Observations(pd.concat(frames, ignore_index=True), {**last.design, **more})


def _check_design(origin: Origin, where: str) -> None:
    """Refuse a design with an invalid field; names it."""
    from undertow.runs.folder.json_schema import wrong_in_design

    design = origin.design
    wrong = wrong_in_design(origin.audit, design)
    if not wrong:
        listed = [*design.get("words", ()), *(group for pair in design.get("gaps", ()) for group in pair)]
        unknown = [group for group in listed if group not in design["groups"]]
        wrong = f"design.groups lacks {unknown[0]!r}" if unknown else ""
        if len(set(design["groups"])) < len(design["groups"]):
            wrong = "design.groups has one twice"
    if wrong:
        raise UndertowError(f"{where} are corrupt ({wrong}); export and run the task again")


def _check_factors(items: Sequence[Item], where: str) -> None:
    """Refuse items whose factors have different types."""
    kinds: dict[str, type] = {}
    for item in items:
        for name, level in item.factors.items():
            kind = float if type(level) is int else type(level)
            if kinds.setdefault(name, kind) is not kind:
                raise UndertowError(
                    f"{where}: {name} of question {item.id!r} is {level!r}, of another kind than that of others; export and run the "
                    "task again"
                )


def _in_order(
    answered: Mapping[int, tuple[Item, Answer, str]], known: Sequence[Item]
) -> tuple[list[Item], list[Answer]]:
    """Items and answers in the order of a run; items of the logged tasks without an answer are missing."""
    tasks = {_task(item) for item, _, _ in answered.values()}
    items_by_place = {place: item for place, item in enumerate(known) if _task(item) in tasks}
    items_by_place |= {place: item for place, (item, _, _) in answered.items()}
    places = sorted(items_by_place)
    answers = [answered[place][1] if place in answered else Answer.missing(NO_ANSWER) for place in places]
    return [items_by_place[place] for place in places], answers


def _task(item: Item) -> tuple[str, str]:
    return str(item.factors.get("challenge")), str(item.factors.get("w_name"))


def _known(origin: Origin) -> Sequence[Item]:
    """All items of the export, built again; () if they have changed, or come from a user's own files.

    A log is untrusted, so no file that it names is opened or fetched.
    """
    options = origin.options
    if options.get("challenge", "") not in ("", *data.names(), *OWN) or named_files(options):
        return ()
    try:
        config = RunConfig(audit=origin.audit, options=options, seed=origin.seed, limit=origin.limit)
        audit, settings, _ = config.resolve()
        items = next(audit.items(settings, config.sampling))
    except UndertowError:
        return ()
    return items if data.challenge_digest(items) == origin.challenge_sha256 else ()


def _notes(logs: _Logs, origin: Origin) -> list[str]:
    notes = ["answers are those that lm-evaluation-harness logged"]
    for model, answered in logs.answers.items():
        if len(answered) < origin.n_items:
            notes.append(
                f"{model}: the log answers {len(answered):,} of the {origin.n_items:,} sentences that were exported"
            )
        if logs.dtypes.get(model, "") not in PLAIN_DTYPES:
            notes.append(f"{model}: the harness ran it in {logs.dtypes[model].removeprefix('torch.')}")
    return notes
