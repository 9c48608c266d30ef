"""Resolve and query the models of a run, and collect their answers."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from undertow import models
from undertow._folders import notify
from undertow.audits.base import Audit, ItemBatches, Observations
from undertow.audits.shared.control_items import OWN_CONTROL
from undertow.data import are_pronouns, challenge_digest, list_text
from undertow.data.replies.answer_rules import rules
from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.answer_notes import answer_notes
from undertow.inference.free_replies import REPLY_TOKENS, TEXT_CAPABILITIES
from undertow.inference.runner import Engine, RunnerResult, check_capabilities, distinct_and_stored, run_queries
from undertow.inference.sanity_check import (
    N_SHORT,
    SanityCheck,
    decided_items,
    judge,
    query_decided,
    supported_protocol,
)
from undertow.models.base import ModelHandle, ModelRequest
from undertow.runs.config import RunConfig
from undertow.runs.folder.model_info import Facts, checkpoint
from undertow.types import EXACT, TEXT, Item, Progress, Query, Reply, Scores, digest, no_progress, query_digest

NOT_JUDGED = ("replay", "toy")
"""Families without a sanity check: their answers are recorded or planted."""
NEVER = 2**31 - 1
"""The largest threshold of Python's garbage collector."""


@contextmanager
def no_full_collection() -> Iterator[None]:
    """Keep Python's garbage collector to young objects: a full collection reads all items and answers, none of which is garbage.

    Of overlapping calls in several threads the first one that ends allows full collections again.
    """
    young, middle, full = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)
    try:
        yield
    finally:
        if full != NEVER:
            gc.set_threshold(young, middle, full)


@dataclass(frozen=True, slots=True)
class ModelUnderTest:
    """One model of a run, before it is queried.

    Attributes:
        settings: the audit's settings, adapted to the model.
        batches: generator of the audit's batches of items, after the first.
        first: items of the first batch.
        design: what the metrics need beside the table.
        challenge_sha256: digest of the first batch.
        controls: further items that enter no measure.
    """

    request: ModelRequest
    handle: ModelHandle
    settings: Any
    batches: ItemBatches
    first: list[Item]
    design: Mapping[str, Any]
    challenge_sha256: str
    controls: Sequence[Item] = ()

    @classmethod
    def from_request(cls, config: RunConfig, request: ModelRequest) -> ModelUnderTest:
        """Find the model and its items; refuse those that it does not support."""
        audit, settings, protocol = config.resolve()
        handle = models.resolve(request)
        capabilities = TEXT_CAPABILITIES if protocol == TEXT else handle.capabilities
        supported = {kind: known for kind, known in capabilities.items() if protocol in known}
        settings = audit.adapt_settings(settings, supported or capabilities)
        batches = audit.items(settings, config.sampling)
        first = next(batches)
        check_capabilities(handle, [item.query for item in first], protocol)
        if request.system_prompt and not all(getattr(item.query, "chat", False) for item in first):
            raise UndertowError(
                f"--system: {handle.identity.name} is not asked by chat here; add --chat (and --prompts A,B,C in audits of sentences), "
                "or leave --system out"
            )
        design = {**audit.design(settings), "protocol": protocol}
        limitations = audit.limitations(settings, config.sampling)
        design |= {"answer_reader": rules().identity} if protocol == TEXT else {}
        limit = getattr(settings, "max_new_tokens", 0)
        if limit < 0:
            raise UndertowError(f"--max-new-tokens must be at least 0, not {limit}")
        if limit and protocol != TEXT and "prompts" not in design:
            raise UndertowError(f"--max-new-tokens limits free replies; add --protocol {TEXT}, or leave it out")
        design |= {"max_new_tokens": limit} if limit else {}
        design["w_notes"] = [*design.get("w_notes", []), *limitations]
        design |= {"limitations": limitations} if limitations else {}
        return cls(request, handle, settings, batches, first, design, challenge_digest(first), audit.controls(settings))

    @property
    def reply_tokens(self) -> int:
        """Token limit of replies under protocol `text`."""
        return getattr(self.settings, "max_new_tokens", 0) or REPLY_TOKENS

    @property
    def decided(self) -> list[Item]:
        """The sentences of the sanity check.

        None for recorded or planted answers, for other words than English pronouns, and for a challenge file with controls.
        """
        is_judged = self.handle.identity.family not in NOT_JUDGED and not _are_own_controls(self.controls)
        if not is_judged or not _are_english_pronouns(self.design.get("words", {})):
            return []
        chat = getattr(self.settings, "chat", False)
        return decided_items(self.handle, N_SHORT, self.decided_protocol, chat=chat, reply_tokens=self.reply_tokens)

    @property
    def decided_protocol(self) -> str:
        """Protocol of the sanity check where the model supports it."""
        return TEXT if self.design["protocol"] == TEXT else EXACT

    def groups(self, items: Sequence[Item]) -> list[tuple[list[Query], str]]:
        """Queries of these items, the sanity check and the controls, each with their protocol."""
        protocol, decided = str(self.design["protocol"]), self.decided
        groups = [([item.query for item in part], protocol) for part in (items, self.controls)]
        if decided:
            chosen = supported_protocol(self.handle, decided, self.decided_protocol)
            groups.append(([item.query for item in decided], chosen))
        return [(queries, chosen) for queries, chosen in groups if queries]

    def budget_note(self, n_requests: int) -> str:
        """What to tell where a run needs more requests than its budget; "" where it does not."""
        limit = self.request.settings.get("max_requests", 0) if self.handle.identity.family == "openai" else 0
        if not 0 < int(limit) < n_requests:
            return ""
        return (
            f"{self.handle.identity.name}: the run needs {n_requests} requests, so that --max-requests {limit} ends it early, without "
            "a report; raise it, or complete the run by the same command later"
        )

    @property
    def lists(self) -> list[str]:
        """A line on each W list of the items: size, ends, order and scale."""
        values: dict[str, dict[str, None]] = {}
        for item in self.first:
            if "w_name" in item.factors:
                values.setdefault(str(item.factors["w_name"]), {})[str(item.factors["w"])] = None
        covariates = self.design.get("covariates", {})
        return [list_text(name, list(values[name]), one) for name, one in covariates.items() if name in values]

    def key(self, audit: str) -> str:
        """Key of the questions and the model."""
        protocol = str(self.design["protocol"])
        own = [item for item in self.controls if item.factors.get("part") == OWN_CONTROL]
        controls = [challenge_digest(own), [str(item.gold) for item in own]] if own else []
        return digest([audit, self.handle.identity.key(protocol), self.challenge_sha256, self.design, *controls])


def _are_own_controls(controls: Sequence[Item]) -> bool:
    """Whether the controls are those of a challenge file."""
    return any(item.factors.get("part") == OWN_CONTROL for item in controls)


@no_full_collection()
def models_under_test(config: RunConfig) -> tuple[list[ModelUnderTest], str]:
    """The models of a run, all different, and the key of their queries; refuses an option that no model takes."""
    subjects = [ModelUnderTest.from_request(config, request) for request in config.requests()]
    keys = [subject.key(config.audit) for subject in subjects]
    names = [subject.handle.identity.name for subject in subjects]
    for at, key in enumerate(keys):
        if key in keys[:at]:
            raise UndertowError(f"{names[keys.index(key)]} and {names[at]} are one model; name it once")
    models.refuse_unused(config.model_options, [subject.handle for subject in subjects])
    if config.options.get("prompts") and not any(getattr(subject.settings, "prompts", "") for subject in subjects):
        raise UndertowError(f"--prompts is for models that answer prompts, and {', '.join(names)} cannot; leave it out")
    return subjects, keys[0] if len(keys) == 1 else digest(keys)


@dataclass(frozen=True, slots=True)
class AuditResponses:
    """The answers to all batches of an audit.

    Attributes:
        items: items of all batches.
        results: one runner result per batch.
        controls: further items that enter no measure, with their scores.
        sanity_check: result of the sanity check on five sentences, or on the controls of a challenge file; None without it.
        started_s: when the first query was made, in seconds since the epoch.
    """

    items: list[Item]
    results: list[RunnerResult]
    controls: tuple[Sequence[Item], Scores] = ((), Scores(()))
    sanity_check: SanityCheck | None = None
    started_s: float = field(default_factory=time.time)

    @property
    def scores(self) -> Scores:
        """Scores of all batches, in the order of the items."""
        answers = tuple(answer for result in self.results for answer in result.scores.answers)
        return Scores(answers, self.results[0].scores.scoring_method) if self.results else Scores(answers)

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of items, distinct queries, answers computed now, tokens, missing and lost answers, and controls."""
        return {
            "items": len(self.items),
            "queries": self.results[0].n_distinct
            if len(self.results) == 1
            else len({query_digest(item.query) for item in self.items}),  # a later batch may repeat a query
            "computed": sum(result.n_computed for result in self.results),
            "tokens": sum(result.n_tokens for result in self.results),
            "missing": sum(bool(reason) for reason in self.scores.missing_reasons),
            "lost": sum(result.n_lost for result in self.results),
            "controls": len(self.controls[0]),
        }

    @property
    def facts(self) -> dict[str, str | float]:
        """Facts of the model about itself."""
        return {key: fact for result in self.results for key, fact in result.facts.items() if fact}

    def manifest_entry(self, subject: ModelUnderTest, model_info: Mapping[str, Facts]) -> dict[str, Any]:
        """The manifest's entry of the model."""
        name, scoring_method, check = subject.request.report_name, self.scores.scoring_method, self.sanity_check
        of_file = _are_own_controls(self.controls[0])
        is_whole = self.items == subject.first
        protocol = str(subject.design["protocol"])
        stored, warnings = answer_notes(subject.handle.identity, self.scores.answers, protocol, self.started_s)
        return {
            "name": name,
            # A model that supports several scoring methods may have been scored by prompts only.
            "identity": subject.handle.identity.as_dict() | {"scoring_method": scoring_method},
            "settings": asdict(subject.settings),
            "facts": {**self.facts, **checkpoint(subject.request.name), **model_info.get(name, {})},
            "scoring_method": scoring_method,
            "counts": self.counts,
            "notes": list(dict.fromkeys([*(note for result in self.results for note in result.notes), *stored])),
            **({"warnings": warnings} if warnings else {}),
            "challenge_sha256": subject.challenge_sha256 if is_whole else challenge_digest(self.items),
            **({"sanity_check": check.to_manifest(of_file=of_file)} if check else {}),
            "seconds": sum(result.seconds for result in self.results),
        }


@no_full_collection()
def query_model(subject: ModelUnderTest, store: AnswerCache, progress: Progress, *, engine: Engine) -> AuditResponses:
    """Query a model with all batches and controls, through the answer cache.

    Controls come last. The built-in controls are only for models that give the probability of other words; those of a challenge file
    replace the five sentences of the sanity check.
    """
    protocol, decided = str(subject.design["protocol"]), subject.decided
    handle = replace(subject.handle, open=cache(subject.handle.open))  # once for all batches
    if subject.request.settings.get("max_requests"):
        parts = [
            distinct_and_stored(handle, queries, store, chosen, subject.reply_tokens)
            for queries, chosen in subject.groups(subject.first)
        ]
        if note := subject.budget_note(sum(len(distinct) - len(stored) for _, distinct, stored in parts)):
            notify(note)

    def run_all(queries: list[Query], progress: Progress = no_progress) -> RunnerResult:
        return run_queries(handle, queries, store, protocol, progress, engine=engine, reply_tokens=subject.reply_tokens)

    responses, items = AuditResponses([], []), subject.first
    while items:
        responses.items.extend(items)
        responses.results.append(run_all([item.query for item in items], progress))
        try:
            items = subject.batches.send(responses.results[-1].scores)
        except StopIteration:
            break
    own_controls = _are_own_controls(subject.controls)
    if decided:
        chosen = subject.decided_protocol
        result = query_decided(handle, decided, store, no_progress, engine=engine, protocol=chosen)
        responses = replace(responses, sanity_check=judge(decided, result.scores.answers))
    if not subject.controls or (np.isnan(responses.scores.other_prob).all() and not own_controls):
        return responses
    scores = run_all([item.query for item in subject.controls]).scores
    responses = replace(responses, controls=(subject.controls, scores))
    if own_controls and handle.identity.family not in NOT_JUDGED:
        responses = replace(responses, sanity_check=judge(subject.controls, scores.answers))
    return responses


def _are_english_pronouns(words: Mapping[str, Sequence[str]]) -> bool:
    """Whether *she* and *he* are in different groups and all other words are in the published lists."""
    owners = {form.lower(): group for group, forms in words.items() for form in forms}
    return {"she", "he"} <= owners.keys() and owners["she"] != owners["he"] and are_pronouns(words)


@dataclass(frozen=True, slots=True)
class ModelRun:
    """One model of a run with its answers, and the audit's table of them."""

    subject: ModelUnderTest
    responses: AuditResponses
    observations: Observations


@no_full_collection()
def observe(audit: Audit, subject: ModelUnderTest, responses: AuditResponses) -> ModelRun:
    """The observations of a model; `design["controls"]` has the answers to its controls."""
    model = subject.request.report_name
    observations: Observations = audit.observe(subject.design, responses.items, responses.scores, model)
    if subject.design["protocol"] == TEXT:
        replies = [answer.reply or Reply("", "") for answer in responses.scores.answers]
        frame = observations.frame.assign(
            reply=[one.text for one in replies],
            reply_outcome=[one.outcome for one in replies],
            first_token_low=[100 * one.low_prob for one in replies],  # bounds on the probability of the answer
            first_token_high=[100 * one.high_prob for one in replies],
            reply_cut_at=[answer.cut_at_tokens for answer in responses.scores.answers],
        )
        observations = audit.note_missing(replace(observations, frame=frame))
    items, scores = responses.controls
    if not items:
        return ModelRun(subject, responses, observations)
    rows = audit.observe(subject.design, items, scores, model).frame
    groups = list(subject.design.get("words", {}))
    masses = rows[groups].astype(float).fillna(-1.0)
    preferred = map(str, masses.idxmax(axis=1)) if _are_own_controls(items) else ()
    own = [{"gold": str(item.gold), "preferred": group} for item, group in zip(items, preferred, strict=False)]
    controls = [
        {
            **{name: row[name] for name in ("prompt", "text", "missing_reason")},
            "other_words": None if row["missing_reason"] or math.isnan(row["other_words"]) else row["other_words"],
            **of_file,
        }
        for row, of_file in zip(rows.to_dict("records"), own or [{}] * len(rows), strict=True)
    ]
    design = {**observations.design, "controls": {model: controls}}
    return ModelRun(subject, responses, replace(observations, design=design))


BY_MODEL = ("controls", "tokens_of_word")
"""Entries of a design with a table for each model."""


def merge_observations(parts_observed: Sequence[Observations], parts: Sequence[Mapping[str, Any]]) -> Observations:
    """Concatenate the tables of several models, and merge their designs."""
    designs = [one.design for one in parts_observed]
    design = dict(designs[0])
    for one in designs:
        design |= {name: one[name] for name in ("chat", "max_new_tokens") if name in one}
    for name in ("words", "prompts", "prompt_masks"):
        entries = [(key, entry) for one in designs for key, entry in one.get(name, {}).items()]
        joined: dict[str, Any] = {}
        for key, entry in entries:
            joined[key] = list(dict.fromkeys([*joined.get(key, []), *entry])) if isinstance(entry, list) else entry
        design[name] = joined
    for name in BY_MODEL:
        by_model = {model: facts for one in designs for model, facts in one.get(name, {}).items()}
        design |= {name: by_model} if by_model else {}
    for name in ("w_notes", "limitations"):
        if any(name in one for one in designs):
            design[name] = list(dict.fromkeys(note for one in designs for note in one.get(name, [])))
    design["models"] = {part["name"]: part["facts"] for part in parts}
    design["scoring_methods"] = {part["name"]: part["scoring_method"] for part in parts}
    if len(parts_observed) == 1:
        return Observations(parts_observed[0].frame, design)
    import pandas as pd

    frame = pd.concat([one.frame for one in parts_observed], ignore_index=True)
    if "answer" in frame:
        frame["answer"] = frame["answer"].fillna("")
    return Observations(frame, design)
