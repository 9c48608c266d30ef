"""The models of a run, found and asked: each with what it is asked, and what it answered over all rounds.

Knows audits and models; measures nothing and writes nothing but the answers to the store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from undertow import audits, models
from undertow.audits.base import Audit, ItemRounds, Observations, Sampling
from undertow.data import challenge_digest, list_text
from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.engines import engine_of
from undertow.inference.ray_engine import Cluster
from undertow.inference.runner import Engine, Progress, RunnerResult, check_asks, run_queries
from undertow.inference.sanity_check import (
    N_SHORT,
    SanityCheck,
    are_english_pronouns,
    ask_decided,
    decided_items,
    judged,
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
    """One model of a run, not asked yet.

    Attributes:
        found: the model.
        settings: the audit's, suited to it.
        rounds: of the audit, the first one drawn.
        first: items of the first round.
        design: what the measures need beside the table.
        controls: items that are asked beside all rounds, and are in no measure.
    """

    found: ModelHandle
    settings: Any
    rounds: ItemRounds
    first: list[Item]
    design: Mapping[str, Any]
    controls: Sequence[Item] = ()

    @classmethod
    def of(cls, job: RunConfig, request: ModelRequest) -> ModelUnderTest:
        """Find the model and what it will be asked; refuse what it cannot be asked."""
        audit, settings, protocol = resolve_config(job)
        found = models.resolve(request)
        settings = getattr(audit, "adapt_settings", lambda given, _: given)(settings, found.capabilities)
        sampling = Sampling(job.limit, job.seed)
        rounds = audit.items(settings, sampling)
        first = next(rounds)
        check_asks(found, [item.query for item in first], protocol)
        design = {**audit.design(settings), "protocol": protocol}
        if hasattr(audit, "limited"):
            unable = audit.limited(settings, sampling)
            design["w_notes"] = [*design.get("w_notes", []), *unable]
            design |= {"unable": unable} if unable else {}
        controls = audit.controls(settings) if hasattr(audit, "controls") else ()
        return cls(found, settings, rounds, first, design, controls)

    @property
    def decided(self) -> list[Item]:
        """The five decided sentences, where the word groups are English pronouns and the model may read."""
        asks = are_english_pronouns(self.design.get("words", {})) and self.found.identity.family not in NOT_JUDGED
        return decided_items(self.found, N_SHORT) if asks else []

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
        return digest([job.audit, self.found.identity.key(protocol), challenge_digest(self.first), self.design])

    def as_asked(
        self, job: RunConfig, request: ModelRequest, answered: AuditResponses, evidence: Observations
    ) -> dtype_check.ReducedRun:
        """The model with its answers, and how it is asked once more from the start."""
        audit, settings, sampling = audits.load(job.audit), self.settings, Sampling(job.limit, job.seed)
        return dtype_check.ReducedRun(
            request=request,
            card=self.found.identity,
            facts=answered.facts,
            rounds=lambda: audit.items(settings, sampling),
            design=self.design,
            items=answered.items,
            answers=answered.scores.answers,
            evidence=evidence,
        )


def models_under_test(job: RunConfig, requests: Sequence[ModelRequest]) -> tuple[list[ModelUnderTest], list[str]]:
    """The models and their keys.

    Raises:
        UndertowError: one model under two names, or an option that no model of the run takes: something else was meant.
    """
    subjects = [ModelUnderTest.of(job, request) for request in requests]
    keys = [subject.key(job) for subject in subjects]
    names = [subject.found.identity.name for subject in subjects]
    for at, key in enumerate(keys):
        if key in keys[:at]:
            raise UndertowError(f"{names[keys.index(key)]} and {names[at]} are one model; name it once")
    families = {subject.found.identity.family for subject in subjects}
    for name in requests[0].settings:
        takers = models.takers(name)
        if not families & set(takers):
            raise UndertowError(
                f"--{name.replace('_', '-')} is for models of the family {' or '.join(takers)}, and none of {', '.join(names)} is; "
                "leave it out, or check the names"
            )
    return subjects, keys


def max_items(job: RunConfig, subject: ModelUnderTest) -> list[Item]:
    """The items of a model, at most: later rounds depend on answers, and an audit that has any says what they may be."""
    audit = audits.load(job.audit)
    if not hasattr(audit, "max_items"):
        return subject.first
    items: list[Item] = audit.max_items(subject.settings, Sampling(job.limit, job.seed))
    return items


@dataclass(frozen=True, slots=True)
class AuditResponses:
    """All rounds of an audit, asked.

    Attributes:
        items: of all rounds.
        asked: a round each.
        controls: items that are asked beside them, of which nothing is measured, with their scores.
        reading: of five decided sentences, how many are right; None where they were not asked.
    """

    items: list[Item]
    asked: list[RunnerResult]
    controls: tuple[Sequence[Item], Scores] = ((), Scores(()))
    reading: SanityCheck | None = None

    @property
    def scores(self) -> Scores:
        """Those of all rounds, in the order of the items."""
        answers = tuple(answer for asked in self.asked for answer in asked.scores.answers)
        return Scores(answers, self.asked[0].scores.readout) if self.asked else Scores(answers)

    @property
    def counts(self) -> dict[str, int]:
        """How many items, distinct queries, computed now, tokens, unscored, and lost."""
        return {
            "items": len(self.items),
            "queries": self.asked[0].n_distinct
            if len(self.asked) == 1
            else len({query_digest(item.query) for item in self.items}),  # a later round may ask what was asked before
            "computed": sum(asked.n_computed for asked in self.asked),
            "tokens": sum(asked.n_tokens for asked in self.asked),
            "missing": sum(bool(reason) for reason in self.scores.missing_reasons),
            "lost": sum(asked.n_lost for asked in self.asked),
            "controls": len(self.controls[0]),
        }

    @property
    def facts(self) -> dict[str, str | float]:
        """What the model tells of itself."""
        return {name: fact for asked in self.asked for name, fact in asked.facts.items() if fact}

    @property
    def notes(self) -> list[str]:
        """What a reader should know of the answers, each once."""
        return list(dict.fromkeys(note for asked in self.asked for note in asked.notes))

    @property
    def seconds(self) -> float:
        """What asking took."""
        return sum(asked.seconds for asked in self.asked)


def query_model(
    subject: ModelUnderTest, store: AnswerCache, protocol: str, progress: Progress, *, engine: Engine
) -> AuditResponses:
    """Ask a model all that it is asked; what the store has is not computed again.

    Controls are asked last, and only of a model that tells how much of its probability went to no option.
    """
    found = replace(subject.found, open=cache(subject.found.open))  # once for all rounds
    answered = _ask_rounds(
        subject.first,
        subject.rounds,
        lambda queries: run_queries(found, queries, store, protocol, progress, engine=engine),
    )
    if subject.decided:
        asked = ask_decided(found, subject.decided, store, _silent, engine=engine)
        answered = replace(answered, reading=judged(subject.decided, asked.scores.answers))
    if not subject.controls or np.isnan(answered.scores.other_prob).all():
        return answered
    queries = [item.query for item in subject.controls]
    asked = run_queries(found, queries, store, protocol, _silent, engine=engine)
    return replace(answered, controls=(subject.controls, asked.scores))


def _silent(done: int, total: int) -> None:
    """No progress is shown."""


def observe(audit: Audit, subject: ModelUnderTest, answered: AuditResponses, model: str) -> Observations:
    """What was observed of a model; its design tells what became of the controls, under `controls`."""
    evidence: Observations = audit.observe(subject.design, answered.items, answered.scores, model)
    items, scores = answered.controls
    if not items:
        return evidence
    rows = audit.observe(subject.design, items, scores, model).frame
    told = [
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
    return replace(evidence, design={**evidence.design, "controls": {model: told}})


def _ask_rounds(
    items: list[Item], rounds: ItemRounds, ask_all: Callable[[list[Query]], RunnerResult]
) -> AuditResponses:
    answered = AuditResponses([], [])
    while items:
        asked = ask_all([item.query for item in items])
        answered.items.extend(items)
        answered.asked.append(asked)
        try:
            items = rounds.send(asked.scores)
        except StopIteration:
            break
    return answered


@dataclass(frozen=True, slots=True)
class Float32Scorer:
    """Has the model of a request asked in another precision, where the run has it asked."""

    request: ModelRequest
    cluster: Cluster | None
    store: AnswerCache
    protocol: str
    progress: Progress

    def __call__(self, found: ModelHandle, queries: list[Query]) -> Scores:
        """The answers of the model as it was found, in that precision."""
        engine = engine_of(self.cluster, self.request, found)
        return run_queries(found, queries, self.store, self.protocol, self.progress, engine=engine).scores


BY_MODEL = ("controls", "tokens_of_word")
"""What a design tells of each model by its name, where it is told at all."""


def model_manifest(
    name: str, subject: ModelUnderTest, answered: AuditResponses, said: Mapping[str, Facts]
) -> dict[str, Any]:
    """What the manifest says of one model."""
    return {
        "name": name,
        # A model that has other ways too may have been asked by prompts only.
        "card": asdict(subject.found.identity) | {"scoring_method": answered.scores.readout},
        "settings": asdict(subject.settings),
        "facts": {**answered.facts, **checkpoint(name), **said.get(name, {})},
        "scoring_method": answered.scores.readout,
        "counts": answered.counts,
        "notes": answered.notes,
        "challenge_sha256": challenge_digest(answered.items),
        **({"reading": answered.reading.counted()} if answered.reading else {}),
        "seconds": answered.seconds,
    }


def notes_of(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The notes on all models, each with its name where there are several."""
    if len(parts) == 1:
        return list(parts[0]["notes"])
    return [f"{part['name']}: {note}" for part in parts for note in part["notes"]]


def unused_model_info(said: Mapping[str, Facts], names: Sequence[str]) -> list[str]:
    """A misspelled name in a file about models would go unnoticed otherwise."""
    strange = [name for name in said if name not in names]
    return [f"the file about models names {', '.join(strange)} too, which this run does not ask"] if strange else []


def merge_observations(evidences: Sequence[Observations], parts: Sequence[Mapping[str, Any]]) -> Observations:
    """The tables of several models under each other, and what is known of each model."""
    design = dict(evidences[0].design)
    for name in ("words", "prompts"):
        design[name] = _joined([evidence.design.get(name, {}) for evidence in evidences])
    for name in BY_MODEL:
        told = {model: facts for one in evidences for model, facts in one.design.get(name, {}).items()}
        design |= {name: told} if told else {}
    for name in ("w_notes", "unable"):
        if any(name in one.design for one in evidences):
            design[name] = list(dict.fromkeys(note for one in evidences for note in one.design.get(name, [])))
    design["models"] = {part["name"]: part["facts"] for part in parts}
    design["scoring_methods"] = {part["name"]: part["scoring_method"] for part in parts}
    if len(evidences) == 1:
        return Observations(evidences[0].frame, design)
    import pandas as pd

    frame = pd.concat([evidence.frame for evidence in evidences], ignore_index=True)
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
