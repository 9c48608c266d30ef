"""Resolve and query the models of a run, and collect their answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from undertow import audits, models
from undertow.audits.base import Audit, ItemBatches, Observations, Sampling
from undertow.data import challenge_digest, list_text
from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.engines import engine_of
from undertow.inference.ray_engine import Cluster
from undertow.inference.runner import Engine, Progress, RunnerResult, check_capabilities, run_queries
from undertow.inference.sanity_check import (
    N_SHORT,
    SanityCheck,
    are_english_pronouns,
    decided_items,
    judged,
    query_decided_sentences,
)
from undertow.models.base import ModelHandle, ModelRequest
from undertow.runs import dtype_check
from undertow.runs.config import RunConfig, resolve_config
from undertow.runs.folder.model_info import Facts, checkpoint
from undertow.types import Item, Query, Scores, digest, query_digest

NOT_JUDGED = ("replay", "toy")
"""Families whose reading shows nothing: they have the answers of a finished run, or planted ones."""


@dataclass(frozen=True, slots=True)
class ModelUnderTest:
    """One model of a run, before it is queried.

    Attributes:
        handle: the model.
        settings: the audit's settings, adapted to the model.
        batches: generator of the audit's batches of items, after the first.
        first: items of the first batch.
        design: what the metrics need beside the table.
        controls: further items that enter no measure.
    """

    handle: ModelHandle
    settings: Any
    batches: ItemBatches
    first: list[Item]
    design: Mapping[str, Any]
    controls: Sequence[Item] = ()

    @classmethod
    def from_request(cls, job: RunConfig, request: ModelRequest) -> ModelUnderTest:
        """Find the model and what it will be asked; refuse what it cannot be asked."""
        audit, settings, protocol = resolve_config(job)
        handle = models.resolve(request)
        settings = audit.adapt_settings(settings, handle.capabilities)
        sampling = Sampling(job.limit, job.seed)
        batches = audit.items(settings, sampling)
        first = next(batches)
        check_capabilities(handle, [item.query for item in first], protocol)
        design = {**audit.design(settings), "protocol": protocol}
        limitations = audit.limitations(settings, sampling)
        design["w_notes"] = [*design.get("w_notes", []), *limitations]
        design |= {"limitations": limitations} if limitations else {}
        return cls(handle, settings, batches, first, design, audit.controls(settings))

    @property
    def decided(self) -> list[Item]:
        """The five decided sentences, where the word groups are English pronouns and the model may read."""
        can_judge = are_english_pronouns(self.design.get("words", {})) and self.handle.identity.family not in NOT_JUDGED
        return decided_items(self.handle, N_SHORT) if can_judge else []

    @property
    def lists(self) -> list[str]:
        """A line on each W list that is asked: its size, its ends, its order and its scale."""
        values: dict[str, list[str]] = {}
        for item in self.first:
            if "w_name" in item.factors:
                values.setdefault(str(item.factors["w_name"]), []).append(str(item.factors["w"]))
        return [
            list_text(name, list(dict.fromkeys(values[name])), covariate)
            for name, covariate in self.design.get("covariates", {}).items()
            if name in values
        ]

    def key(self, job: RunConfig) -> str:
        """Equal for equal questions to the same model."""
        protocol = str(self.design["protocol"])
        return digest([job.audit, self.handle.identity.key(protocol), challenge_digest(self.first), self.design])

    def reduced_run(
        self, job: RunConfig, request: ModelRequest, answered: AuditResponses, observations: Observations
    ) -> dtype_check.ReducedRun:
        """The model with its answers, and how it is asked once more from the start."""
        audit, settings, sampling = audits.load(job.audit), self.settings, Sampling(job.limit, job.seed)
        return dtype_check.ReducedRun(
            request=request,
            identity=self.handle.identity,
            facts=answered.facts,
            batches=lambda: audit.items(settings, sampling),
            design=self.design,
            items=answered.items,
            answers=answered.scores.answers,
            observations=observations,
        )


def models_under_test(job: RunConfig, requests: Sequence[ModelRequest]) -> tuple[list[ModelUnderTest], list[str]]:
    """The models and their keys.

    Raises:
        UndertowError: two names resolve to one model, or no model of the run takes an option.
    """
    subjects = [ModelUnderTest.from_request(job, request) for request in requests]
    keys = [subject.key(job) for subject in subjects]
    names = [subject.handle.identity.name for subject in subjects]
    for at, key in enumerate(keys):
        if key in keys[:at]:
            raise UndertowError(f"{names[keys.index(key)]} and {names[at]} are one model; name it once")
    families = {subject.handle.identity.family for subject in subjects}
    for name in requests[0].settings:
        supported = models.families_with_setting(name)
        if not families & set(supported):
            raise UndertowError(
                f"--{name.replace('_', '-')} is for models of the family {' or '.join(supported)}, and none of {', '.join(names)} is; "
                "leave it out, or check the names"
            )
    return subjects, keys


def max_items(job: RunConfig, subject: ModelUnderTest) -> list[Item]:
    """The most items that a model may get: later batches depend on answers, and the audit's `max_items` bounds them."""
    audit = audits.load(job.audit)
    return audit.max_items(subject.settings, Sampling(job.limit, job.seed)) if audit.adaptive else subject.first


@dataclass(frozen=True, slots=True)
class AuditResponses:
    """The answers to all batches of an audit.

    Attributes:
        items: items of all batches.
        results: one runner result per batch.
        controls: further items that enter no measure, with their scores.
        sanity_check: result of the sanity check on five sentences; None without it.
    """

    items: list[Item]
    results: list[RunnerResult]
    controls: tuple[Sequence[Item], Scores] = ((), Scores(()))
    sanity_check: SanityCheck | None = None

    @property
    def scores(self) -> Scores:
        """Those of all rounds, in the order of the items."""
        answers = tuple(answer for result in self.results for answer in result.scores.answers)
        return Scores(answers, self.results[0].scores.scoring_method) if self.results else Scores(answers)

    @property
    def counts(self) -> dict[str, int]:
        """How many items, distinct queries, computed now, tokens, missing, and lost."""
        return {
            "items": len(self.items),
            "queries": self.results[0].n_distinct
            if len(self.results) == 1
            else len({query_digest(item.query) for item in self.items}),  # a later round may ask what was asked before
            "computed": sum(result.n_computed for result in self.results),
            "tokens": sum(result.n_tokens for result in self.results),
            "missing": sum(bool(reason) for reason in self.scores.missing_reasons),
            "lost": sum(result.n_lost for result in self.results),
            "controls": len(self.controls[0]),
        }

    @property
    def facts(self) -> dict[str, str | float]:
        """What the model tells of itself."""
        return {name: fact for result in self.results for name, fact in result.facts.items() if fact}

    @property
    def notes(self) -> list[str]:
        """What a reader should know of the answers, each once."""
        return list(dict.fromkeys(note for result in self.results for note in result.notes))

    @property
    def seconds(self) -> float:
        """What asking took."""
        return sum(result.seconds for result in self.results)


def query_model(
    subject: ModelUnderTest, store: AnswerCache, protocol: str, progress: Progress, *, engine: Engine
) -> AuditResponses:
    """Query a model with all batches and controls, through the answer cache.

    Controls come last, and only for a model that gives the probability of other words.
    """
    handle = replace(subject.handle, open=cache(subject.handle.open))  # once for all rounds
    answered = _query_batches(
        subject.first,
        subject.batches,
        lambda queries: run_queries(handle, queries, store, protocol, progress, engine=engine),
    )
    if subject.decided:
        result = query_decided_sentences(handle, subject.decided, store, _silent, engine=engine)
        answered = replace(answered, sanity_check=judged(subject.decided, result.scores.answers))
    if not subject.controls or np.isnan(answered.scores.other_prob).all():
        return answered
    queries = [item.query for item in subject.controls]
    result = run_queries(handle, queries, store, protocol, _silent, engine=engine)
    return replace(answered, controls=(subject.controls, result.scores))


def _silent(done: int, total: int) -> None:
    """No progress is shown."""


def observe(audit: Audit, subject: ModelUnderTest, answered: AuditResponses, model: str) -> Observations:
    """The observations of a model; `design["controls"]` has the answers to its controls."""
    observations: Observations = audit.observe(subject.design, answered.items, answered.scores, model)
    items, scores = answered.controls
    if not items:
        return observations
    rows = audit.observe(subject.design, items, scores, model).frame
    controls = [
        {
            "prompt": prompt,
            "text": text,
            "other_words": None if missing_reason or math.isnan(percent) else percent,
            "missing_reason": missing_reason,
        }
        for prompt, text, percent, missing_reason in zip(
            rows["prompt"], rows["text"], map(float, rows["other_words"]), rows["missing_reason"], strict=True
        )
    ]
    return replace(observations, design={**observations.design, "controls": {model: controls}})


def _query_batches(
    items: list[Item], batches: ItemBatches, run_all: Callable[[list[Query]], RunnerResult]
) -> AuditResponses:
    answered = AuditResponses([], [])
    while items:
        result = run_all([item.query for item in items])
        answered.items.extend(items)
        answered.results.append(result)
        try:
            items = batches.send(result.scores)
        except StopIteration:
            break
    return answered


@dataclass(frozen=True, slots=True)
class Float32Scorer:
    """Query the model of a request in another precision, on the engine of the run."""

    request: ModelRequest
    cluster: Cluster | None
    store: AnswerCache
    protocol: str
    progress: Progress

    def __call__(self, handle: ModelHandle, queries: list[Query]) -> Scores:
        """The answers of the model as it was found, in that precision."""
        engine = engine_of(self.cluster, self.request, handle)
        return run_queries(handle, queries, self.store, self.protocol, self.progress, engine=engine).scores


BY_MODEL = ("controls", "tokens_of_word")
"""What a design tells of each model by its name, where it is told at all."""


def model_manifest(
    name: str, subject: ModelUnderTest, answered: AuditResponses, said: Mapping[str, Facts]
) -> dict[str, Any]:
    """The manifest's entry of one model."""
    return {
        "name": name,
        # A model that has other ways too may have been asked by prompts only.
        "identity": asdict(subject.handle.identity) | {"scoring_method": answered.scores.scoring_method},
        "settings": asdict(subject.settings),
        "facts": {**answered.facts, **checkpoint(name), **said.get(name, {})},
        "scoring_method": answered.scores.scoring_method,
        "counts": answered.counts,
        "notes": answered.notes,
        "challenge_sha256": challenge_digest(answered.items),
        **({"sanity_check": answered.sanity_check.counted()} if answered.sanity_check else {}),
        "seconds": answered.seconds,
    }


def notes_of(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The notes on all models, each with its name where there are several."""
    if len(parts) == 1:
        return list(parts[0]["notes"])
    return [f"{part['name']}: {note}" for part in parts for note in part["notes"]]


def unused_model_info(said: Mapping[str, Facts], names: Sequence[str]) -> list[str]:
    """Notes on names in a model-info file that no model of the run has, such as misspelled ones."""
    strange = [name for name in said if name not in names]
    return [f"the model-info file names {', '.join(strange)}, which is not in this run"] if strange else []


def merge_observations(parts_observed: Sequence[Observations], parts: Sequence[Mapping[str, Any]]) -> Observations:
    """Concatenate the tables of several models, and merge their designs."""
    design = dict(parts_observed[0].design)
    for name in ("words", "prompts"):
        design[name] = _joined([one.design.get(name, {}) for one in parts_observed])
    for name in BY_MODEL:
        facts_by_model = {model: facts for one in parts_observed for model, facts in one.design.get(name, {}).items()}
        design |= {name: facts_by_model} if facts_by_model else {}
    for name in ("w_notes", "limitations"):
        if any(name in one.design for one in parts_observed):
            design[name] = list(dict.fromkeys(note for one in parts_observed for note in one.design.get(name, [])))
    design["models"] = {part["name"]: part["facts"] for part in parts}
    design["scoring_methods"] = {part["name"]: part["scoring_method"] for part in parts}
    if len(parts_observed) == 1:
        return Observations(parts_observed[0].frame, design)
    import pandas as pd

    frame = pd.concat([one.frame for one in parts_observed], ignore_index=True)
    if "answer" in frame:
        frame["answer"] = frame["answer"].fillna("")
    return Observations(frame, design)


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
