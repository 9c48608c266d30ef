"""The models of a run, found and asked: each with what it is asked, and what it answered over all rounds.

Knows probes and models; measures nothing and writes nothing but the answers to the store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from undertow import models, precision, probes
from undertow.audit.job import Job, prepared
from undertow.challenge import challenge_digest, told_list
from undertow.decided import N_SHORT, Reading, are_english_pronouns, ask_decided, decided_items, judged
from undertow.engines import engine_of
from undertow.models.base import Found, Request
from undertow.probes.base import Evidence, Probe, Rounds, Sampling
from undertow.scoring.ask import Asked, Engine, Progress, ask, check_asks
from undertow.scoring.distributed import Cluster
from undertow.scoring.store import AnswerStore
from undertow.types import Item, Query, Scores, UndertowError, digest, query_digest

NOT_JUDGED = ("recorded", "toy")
"""Families whose reading shows nothing: they have the answers of a finished run, or planted ones."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One model of a run, not asked yet.

    Attributes:
        found: the model.
        settings: the probe's, suited to it.
        rounds: of the probe, the first one drawn.
        first: items of the first round.
        design: what the measures need beside the table.
        controls: items that are asked beside all rounds, and are in no measure.
    """

    found: Found
    settings: Any
    rounds: Rounds
    first: list[Item]
    design: Mapping[str, Any]
    controls: Sequence[Item] = ()

    @classmethod
    def of(cls, job: Job, request: Request) -> Subject:
        """Find the model and what it will be asked; refuse what it cannot be asked."""
        probe, settings, protocol = prepared(job)
        found = models.find(request)
        settings = getattr(probe, "suited", lambda given, _: given)(settings, found.asks)
        sampling = Sampling(job.limit, job.seed)
        rounds = probe.rounds(settings, sampling)
        first = next(rounds)
        check_asks(found, [item.query for item in first], protocol)
        design = {**probe.design(settings), "protocol": protocol}
        if hasattr(probe, "limited"):
            unable = probe.limited(settings, sampling)
            design["w_notes"] = [*design.get("w_notes", []), *unable]
            design |= {"unable": unable} if unable else {}
        controls = probe.controls(settings) if hasattr(probe, "controls") else ()
        return cls(found, settings, rounds, first, design, controls)

    @property
    def decided(self) -> list[Item]:
        """The five decided sentences, where the word groups are English pronouns and the model may read."""
        asks = are_english_pronouns(self.design.get("words", {})) and self.found.card.family not in NOT_JUDGED
        return decided_items(self.found, N_SHORT) if asks else []

    @property
    def lists(self) -> list[str]:
        """A line on each W list that is asked: its size, its ends, its order and its scale."""
        values: dict[str, list[str]] = {}
        for item in self.first:
            if "w_name" in item.factors:
                values.setdefault(str(item.factors["w_name"]), []).append(str(item.factors["w"]))
        return [
            told_list(name, list(dict.fromkeys(values[name])), covariate)
            for name, covariate in self.design.get("covariates", {}).items()
            if name in values
        ]

    def key(self, job: Job) -> str:
        """Equal for equal questions to the same model."""
        protocol = str(self.design["protocol"])
        return digest([job.probe, self.found.card.key(protocol), challenge_digest(self.first), self.design])

    def as_asked(self, job: Job, request: Request, answered: Answered, evidence: Evidence) -> precision.Reduced:
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


def subjects_of(job: Job, requests: Sequence[Request]) -> tuple[list[Subject], list[str]]:
    """The models and their keys.

    Raises:
        UndertowError: one model under two names, or an option that no model of the run takes: something else was meant.
    """
    subjects = [Subject.of(job, request) for request in requests]
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


def foreseen(job: Job, subject: Subject) -> list[Item]:
    """The items of a model, at most: later rounds depend on answers, and a probe that has any says what they may be."""
    probe = probes.load(job.probe)
    if not hasattr(probe, "foreseen"):
        return subject.first
    items: list[Item] = probe.foreseen(subject.settings, Sampling(job.limit, job.seed))
    return items


@dataclass(frozen=True, slots=True)
class Answered:
    """All rounds of a probe, asked.

    Attributes:
        items: of all rounds.
        asked: a round each.
        controls: items that are asked beside them, of which nothing is measured, with their scores.
        reading: of five decided sentences, how many are right; None where they were not asked.
    """

    items: list[Item]
    asked: list[Asked]
    controls: tuple[Sequence[Item], Scores] = ((), Scores(()))
    reading: Reading | None = None

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
            "unscored": sum(bool(reason) for reason in self.scores.unscored),
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


def ask_subject(subject: Subject, store: AnswerStore, protocol: str, progress: Progress, *, engine: Engine) -> Answered:
    """Ask a model all that it is asked; what the store has is not computed again.

    Controls are asked last, and only of a model that tells how much of its probability went to no option.
    """
    found = replace(subject.found, open=cache(subject.found.open))  # once for all rounds
    answered = _ask_rounds(
        subject.first,
        subject.rounds,
        lambda queries: ask(found, queries, store, protocol, progress, engine=engine),
    )
    if subject.decided:
        asked = ask_decided(found, subject.decided, store, _silent, engine=engine)
        answered = replace(answered, reading=judged(subject.decided, asked.scores.answers))
    if not subject.controls or np.isnan(answered.scores.unclaimed_prob).all():
        return answered
    queries = [item.query for item in subject.controls]
    asked = ask(found, queries, store, protocol, _silent, engine=engine)
    return replace(answered, controls=(subject.controls, asked.scores))


def _silent(done: int, total: int) -> None:
    """No progress is shown."""


def observe(probe: Probe, subject: Subject, answered: Answered, model: str) -> Evidence:
    """What was observed of a model; its design tells what became of the controls, under `controls`."""
    evidence: Evidence = probe.observe(subject.design, answered.items, answered.scores, model)
    items, scores = answered.controls
    if not items:
        return evidence
    rows = probe.observe(subject.design, items, scores, model).frame
    told = [
        {
            "prompt": prompt,
            "text": text,
            "unclaimed": None if unscored or math.isnan(percent) else percent,
            "unscored": unscored,
        }
        for prompt, text, percent, unscored in zip(
            rows["prompt"], rows["text"], map(float, rows["unclaimed"]), rows["unscored"], strict=True
        )
    ]
    return replace(evidence, design={**evidence.design, "controls": {model: told}})


def _ask_rounds(items: list[Item], rounds: Rounds, ask_all: Callable[[list[Query]], Asked]) -> Answered:
    answered = Answered([], [])
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
class Rechecker:
    """Has the model of a request asked in another precision, where the run has it asked."""

    request: Request
    cluster: Cluster | None
    store: AnswerStore
    protocol: str
    progress: Progress

    def __call__(self, found: Found, queries: list[Query]) -> Scores:
        """The answers of the model as it was found, in that precision."""
        engine = engine_of(self.cluster, self.request, found)
        return ask(found, queries, self.store, self.protocol, self.progress, engine=engine).scores
