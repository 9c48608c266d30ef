"""Read samples of lm-evaluation-harness for tasks of `undertow export lm-eval`.

    LOGS/MODEL/samples_undertow_mgc_date_2026-01-31T10-00-00.000000.jsonl    a line for every sentence
    LOGS/MODEL/results_2026-01-31T10-00-00.000000.json                       the model and its configuration

Each sample contains its item, so the log suffices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from undertow import audits, data
from undertow._files import parse_json, read_file
from undertow.audits.base import Observations
from undertow.errors import UndertowError
from undertow.integrations.export_format import AnswerLog, Origin, named_files
from undertow.integrations.item_codec import COLUMN, CarriedItem, LogReader, read_question, source_note
from undertow.integrations.lm_eval import CHOICES, CONTEXT, context_and_choices
from undertow.runs.config import RunConfig
from undertow.runs.folder.json_schema import wrong_in_design
from undertow.runs.folder.storage import MANIFEST
from undertow.types import EXACT, LIKELIHOOD, Answer, ClozeQuery, Item, Scores

SAMPLES = "samples_*.jsonl"
_DATE = re.compile(r"_(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.jsonl$")
NO_ANSWER = "the log has no answer for it"
MAX_PARAMETERS = 10**18
MAX_RESULT_BYTES, MAX_SAMPLE_BYTES = 64 * 2**20, 2**32
ABOVE_ONE_NATS = 1e-3
"""Tolerance for log-likelihoods above 0 by rounding."""
OWN = ("undertow-schemas", "simplified")
"""Built-in sentences in addition to `challenge.names()`."""
FACTORS = ("challenge", "w_name", "w_index", "w")
PLAIN_DTYPES = ("", "float32", "float64")


def is_log(path: Path) -> bool:
    """Whether a path is a file of logged samples, or a folder that contains some."""
    if path.is_dir():
        return not (path / MANIFEST).is_file() and next(path.rglob(SAMPLES), None) is not None
    return path.name.endswith(".jsonl")


def read_log(path: Path, audit: str = "") -> AnswerLog:
    """Read the answers of a log, of one model or several: the `--output_path` of the harness, or one of its sample files.

    Sentences without an answer in the log of a task (an interrupted run, or a limit) are missing. For a user's challenge file, which
    is not in the log, a note gives their number.

    Raises:
        UndertowError: a file is corrupt or of other tasks, a sentence appears twice or within other text, or the samples belong to
            several exports.
    """
    files = sorted(path.rglob(SAMPLES)) if path.is_dir() else [path]
    logs = _Logs(path)
    for file in files:
        logs.read(file)
    if logs.origin is None:
        raise UndertowError(
            f"{path}: has no samples of tasks of undertow export lm-eval; name the folder given with --output_path, and "
            "run the harness with --log_samples"
        )
    origin = logs.origin
    if audit and audit != origin.audit:
        raise UndertowError(f"{path}: has answers for {origin.audit}, not {audit}; omit --audit")
    return AnswerLog(
        origin.audit,
        _observations(logs, origin),
        origin.seed,
        [source_note("lm-evaluation-harness")],
        logs.digest.hexdigest(),
        logs.incomplete(origin.n_items, {}),
        {model: dtype for model, dtype in logs.dtypes.items() if dtype not in PLAIN_DTYPES},
    )


@dataclass(slots=True)
class _Logs(LogReader):
    """The contents of the files read so far.

    Attributes:
        answers: item and answer by model and item index.
        dtypes: precision of each model, if the harness logs it.
    """

    answers: dict[str, dict[int, tuple[Item, Answer]]] = field(default_factory=dict)
    facts: dict[str, dict[str, float]] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    full_names: dict[str, str] = field(default_factory=dict)

    def read(self, file: Path) -> None:
        """Add the samples of a file; skip files of other tasks."""
        content = read_file(file, MAX_SAMPLE_BYTES, "samples of lm-evaluation-harness")
        self.add_file(file, content)
        model = ""
        for number, line in enumerate(content.split(b"\n"), 1):
            if not line.strip():
                continue
            where = f"{file}, line {number}"
            try:
                sample = parse_json(line, unique_names=False)
            except ValueError as error:
                raise UndertowError(
                    f"{where}: is cut off or corrupt; run the harness again, or remove this line to count its sentence as missing"
                ) from error
            if not isinstance(sample, dict):
                raise UndertowError(f"{where}: is not a logged sample; name a file that --log_samples wrote")
            doc = sample.get("doc")
            if not isinstance(doc, dict) or COLUMN not in doc:
                if not model:  # a file of another task
                    return
                raise UndertowError(
                    f"{where}: is a sample of another task, so the file is corrupt; run the harness again"
                )
            carried = _question(sample, doc, where)
            model = model or self._model(file)
            self.add_sample(carried, model, file, where)
            answer = _answer(sample, cast(ClozeQuery, carried.item.query), where)
            self.answers.setdefault(model, {})[carried.place] = carried.item, answer

    def _model(self, file: Path) -> str:
        """The model of a file, by the results file with the same timestamp, else by its folder."""
        dated = _DATE.search(file.name)
        results = sorted(file.parent.glob(f"*_{dated[1]}.json")) if dated else []
        metadata: Any = {}
        if results:
            with suppress(ValueError):  # a corrupt file of results is no loss, because the samples suffice
                metadata = parse_json(
                    read_file(results[0], MAX_RESULT_BYTES, "results of lm-evaluation-harness"), unique_names=False
                )
        metadata = metadata if isinstance(metadata, Mapping) else {}
        full = str(metadata.get("model_name") or "").strip() or file.absolute().parent.name
        is_path = full.startswith(("/", "./", "../", "~"))
        short = (Path(full).name if is_path else full) or "recorded"
        model = short if self.full_names.setdefault(short, full) == full else full
        config = metadata.get("config")
        if isinstance(config, Mapping):
            parameters = config.get("model_num_parameters")
            if isinstance(parameters, int) and 0 < parameters < MAX_PARAMETERS:
                self.facts[model] = {"parameters": float(parameters)}
            self.dtypes[model] = str(config.get("model_dtype") or "").removeprefix("torch.")
        return model


def _question(sample: Mapping[str, Any], doc: Mapping[str, Any], where: str) -> CarriedItem:
    """The item of a sample; it must have been queried as exported."""
    carried = read_question(doc[COLUMN], ClozeQuery, FACTORS, where)
    query = cast(ClozeQuery, carried.item.query)
    context, choices = context_and_choices(query)
    if doc.get(CONTEXT) != context or doc.get(CHOICES) != choices:
        raise UndertowError(f"{where}: its text differs from the exported text; export and run the task again")
    logged = sample.get("arguments")
    pairs = list(logged.values()) if isinstance(logged, Mapping) else logged if isinstance(logged, list) else []
    # Versions of the harness log a pair (context, continuation) as a mapping or as a list, or no pairs; other types are no pairs.
    arguments = [list(one.values()) if isinstance(one, Mapping) else one for one in pairs if one]
    if arguments and arguments != [[context, choice] for choice in choices]:
        raise UndertowError(
            f"{where}: the sentence was queried with other text; run the task without examples, chat template and system instruction"
        )
    return carried


def _answer(sample: Mapping[str, Any], query: ClozeQuery, where: str) -> Answer:
    """Log-likelihoods of the options, without a mass of other words.

    Options that differ only in case and have equal log-likelihoods are the same text for the model and count once.
    """
    logged = sample.get("filtered_resps") or sample.get("resps")
    if not isinstance(logged, list) or len(logged) != len(query.options):
        raise UndertowError(
            f"{where}: has {len(logged) if isinstance(logged, list) else 'no'} log-likelihoods for {len(query.options)} choices; "
            "run the harness again"
        )
    nats = [_log_likelihood(one) for one in logged]
    if any(math.isnan(one) or one > ABOVE_ONE_NATS for one in nats):
        return Answer.missing("the log has no log-likelihood for one of the words")
    if not any(math.isfinite(one) for one in nats):
        return Answer.missing("all words have probability 0 in the log")
    seen: dict[tuple[str, str, float], int] = {}
    for place, (option, text) in enumerate(zip(query.options, query.texts(), strict=True)):
        if seen.setdefault((option.group, text.casefold(), nats[place]), place) != place:
            nats[place] = math.nan
    return Answer(tuple(nats), math.nan)


def _log_likelihood(logged: Any) -> float:
    """The log-likelihood in a pair (log-likelihood, is greedy) of strings, which `resps` puts in another list."""
    while isinstance(logged, list) and logged:
        logged = logged[0]
    try:
        return float(logged)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _observations(logs: _Logs, origin: Origin) -> Observations:
    import pandas as pd

    audit = audits.load(origin.audit)
    design = origin.design | {"protocol": EXACT}
    lacking = [name for name in audit.design(audit.Settings()) if name not in design]
    wrong = f"design has no {lacking[0]}" if lacking else wrong_in_design(origin.audit, design)
    if not wrong:
        options = {
            option.group
            for of_model in logs.answers.values()
            for item, _ in of_model.values()
            for option in item.query.options  # type: ignore[union-attr]
        }
        listed = [*options, *design.get("words", ()), *(group for pair in design.get("gaps", ()) for group in pair)]
        unknown = [group for group in listed if group not in design["groups"]]
        wrong = f"design.groups lacks {unknown[0]!r}" if unknown else ""
        if len(set(design["groups"])) < len(design["groups"]):
            wrong = "design.groups has one twice"
    if wrong:
        raise UndertowError(
            f"{logs.first_file}: its questions for {origin.audit} are corrupt ({wrong}); export and run the task again"
        )
    known, observed = _exported_items(origin), []
    for model, answered in logs.answers.items():
        # In the order of a run; items of the logged tasks without an answer are missing.
        tasks = {_task(item) for item, _ in answered.values()}
        items = {place: item for place, item in enumerate(known) if _task(item) in tasks}
        items = dict(sorted((items | {place: item for place, (item, _) in answered.items()}).items()))
        _check_factors(items.values(), str(logs.first_file))
        answers = [answered[place][1] if place in answered else Answer.missing(NO_ANSWER) for place in items]
        observed.append(audit.observe(design, list(items.values()), Scores(tuple(answers), LIKELIHOOD), model))
    facts = {model: logs.facts.get(model, {}) for model in logs.answers}
    more = {"models": facts, "scoring_methods": dict.fromkeys(logs.answers, LIKELIHOOD)}
    frame = pd.concat([one.frame for one in observed], ignore_index=True)
    return Observations(frame, {**observed[-1].design, **more})


def _check_factors(items: Iterable[Item], where: str) -> None:
    """Refuse items whose factors have different types, and items without `w_value` if others have it."""
    kinds: dict[str, type] = {}
    items = list(items)
    n_placed = sum("w_value" in item.factors for item in items)
    for item in items:
        if 0 < n_placed < len(items) and "w_value" not in item.factors:
            raise UndertowError(f"{where}: question {item.id!r} has no w_value; export and run the task again")
        for name, level in item.factors.items():
            kind = float if type(level) is int else type(level)
            if kinds.setdefault(name, kind) is not kind:
                raise UndertowError(
                    f"{where}: {name} of question {item.id!r} is {level!r}, of another type than in other questions; export and run the "
                    "task again"
                )


def _task(item: Item) -> tuple[str, str]:
    return str(item.factors.get("challenge")), str(item.factors.get("w_name"))


def _exported_items(origin: Origin) -> Sequence[Item]:
    """All items of the export, built again; () if they have changed or come from a user's files.

    A log is untrusted, so files that it names are not opened or downloaded.
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
