"""Score a random sample of a run in reduced precision again in float32, and measure both.

The sample consists of whole clusters, so that it has each sentence at every W.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from undertow import models
from undertow.audits.base import Audit, ItemBatches, Observations
from undertow.errors import LOGGER, UndertowError
from undertow.inference.sanity_check import DecidedQuery, by_group
from undertow.models.backend.dtype import costs_precision, memory_shortage
from undertow.models.base import FLOAT32, ModelHandle
from undertow.models.loading.resolve_weights import is_gguf
from undertow.runs.compare.resampling import key_of, point_results, without_each
from undertow.stats.intervals.cluster_errors import jackknife_interval, random_groups
from undertow.types import Answer, ConstrainedGenerateQuery, Floats, Item, Query, Scores, query_digest

if TYPE_CHECKING:
    from undertow.runs.collect import ModelRun
    from undertow.runs.config import RunConfig

RunQueries: TypeAlias = Callable[[ModelHandle, list[Query]], Scores]
"""Runs queries on a model, using cached answers."""

SHARE, MIN_ITEMS = 0.1, 200
"""Default size of the sample: a tenth, but at least this many items."""
MIN_CLUSTERS_DRAWN, SHARE_OF_CLUSTERS, FEW_CLUSTERS = 10, 0.25, 3
"""Default number of clusters: a quarter of all, but at most the first and at least the last of these."""
MIN_CLUSTERS = 2
"""Minimum number of clusters of a sample of a given size, because one cluster gives no variance."""
GROUPS = 10
"""Number of jackknife groups of clusters."""
NOT_AGAIN = "not scored again in float32"


@dataclass(frozen=True, slots=True)
class Float32Check:
    """The result of scoring a model's sample again.

    Attributes:
        facts: facts of the model and its sample, for the manifest; `unknown` says why there is no sample.
        rows: one per result, as in `undertow.runs.folder.storage.Record.precision`.
    """

    facts: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]] = ()


def rescore_sample(
    config: RunConfig, ran: ModelRun, run_all: RunQueries, *, is_local: bool = True
) -> Float32Check | None:
    """Score a sample again in float32 and compare; None for a model in full precision.

    A model that does not fit into this machine's memory is not loaded. With Ray workers memory is not checked, because the driver does not
    know theirs; the engine reports workers that are killed for lack of memory.
    """
    subject, responses = ran.subject, ran.responses
    identity, request, items = subject.handle.identity, subject.request, responses.items
    if not costs_precision(identity):
        return None
    facts: dict[str, Any] = {"model": request.report_name, "dtype": identity.dtype, "of_items": len(items)}
    if is_local:
        parameters = float(responses.facts.get("parameters", 0))
        reason = memory_shortage(parameters, request.device, gguf=is_gguf(request.name))
        if reason:
            return Float32Check({**facts, "unknown": reason})
    LOGGER.info("score a sample of %s in float32", request.report_name)
    audit, _, _ = config.resolve()
    chosen = sample_clusters(items, config.float32_sample, config.seed)
    answered = list(zip(items, responses.scores.answers, strict=True))
    before = [(item, answer) for item, answer in answered if item.cluster in chosen]
    others = {query_digest(item.query): answer for item, answer in answered if item.cluster not in chosen}
    batches = audit.items(subject.settings, config.sampling)
    started = time.perf_counter()
    try:
        handle = models.resolve(replace(request, dtype=FLOAT32))
        after, scoring_method = _query_again(batches, chosen, others, lambda queries: run_all(handle, queries))
    except (UndertowError, MemoryError) as error:
        return Float32Check({**facts, "unknown": str(error) or "memory ran out"})
    seconds = time.perf_counter() - started
    scores = Scores(tuple(answer for _, answer in after), scoring_method)
    full = audit.observe(subject.design, [item for item, _ in after], scores, request.report_name)
    frame = ran.observations.frame
    sample = replace(ran.observations, frame=frame[frame["cluster"].isin(chosen)].reset_index(drop=True))
    n_clusters = len({item.cluster for item in items})
    n_groups = 0 if len(chosen) == n_clusters else min(GROUPS, len(chosen))
    group_of: dict[str, int] = {}
    if n_groups >= MIN_CLUSTERS:
        groups = random_groups(len(chosen), n_groups, np.random.default_rng(config.seed)).tolist()
        group_of = dict(zip(chosen, groups, strict=True))
    facts |= {
        "items": len(before),
        "clusters": len(chosen),
        "of_clusters": n_clusters,
        "groups": n_groups,
        **gaps(before, after),
        "rescoring_s": seconds,
    }
    rows = _errors((audit, config.seed), sample, full, group_of, len(chosen) / n_clusters)
    return Float32Check(facts, [{"model": request.report_name, **row} for row in rows])


def sample_clusters(items: Sequence[Item], n_items: int, seed: int) -> list[str]:
    """Random clusters, as many as needed for enough items and clusters, in the order of the items."""
    sizes: dict[str, int] = {}
    for item in items:
        sizes[item.cluster] = sizes.get(item.cluster, 0) + 1
    wanted = n_items or max(math.ceil(SHARE * len(items)), MIN_ITEMS)
    names, n_drawn = list(sizes), 0
    least = min(MIN_CLUSTERS_DRAWN, max(FEW_CLUSTERS, math.ceil(SHARE_OF_CLUSTERS * len(names))))
    least = MIN_CLUSTERS if n_items else least
    kept: set[str] = set()
    for at in np.random.default_rng(seed).permutation(len(names)):
        if n_drawn >= wanted and len(kept) >= least:
            break
        kept.add(names[at])
        n_drawn += sizes[names[at]]
    return [name for name in names if name in kept]


def _query_again(
    batches: ItemBatches, chosen: Sequence[str], others: Mapping[str, Answer], run_all: Callable[[list[Query]], Scores]
) -> tuple[list[tuple[Item, Answer]], str]:
    """The sample's items with their answers in float32, and the scoring method.

    Later batches depend on the float32 answers. Items outside the sample keep their answers, `others` by query.
    """
    pairs: list[tuple[Item, Answer]] = []
    items, scoring_method = next(batches), ""
    while items:
        sampled = [item for item in items if item.cluster in chosen]
        scores = run_all([item.query for item in sampled]) if sampled else Scores(())
        pairs += zip(sampled, scores.answers, strict=True)
        scoring_method = scoring_method or (scores.scoring_method if sampled else "")
        fresh = iter(scores.answers)
        everything = tuple(
            next(fresh) if item.cluster in chosen else others.get(query_digest(item.query), Answer.missing(NOT_AGAIN))
            for item in items
        )
        try:
            items = batches.send(Scores(everything, scores.scoring_method))
        except StopIteration:
            break
    return pairs, scoring_method


def gaps(reduced: Sequence[tuple[Item, Answer]], full: Sequence[tuple[Item, Answer]]) -> dict[str, Any]:
    """Differences between answers to the same queries.

    Returns:
        `rms_nats` and `largest_nats` over all log-probabilities in both; `turned_percent`, share of queries with another preferred
        group (or label, or text); `one_sided`, queries with an answer, or a word with a probability, in only one of both; and
        `queries`, the number of common queries.
    """
    of_full = {query_digest(item.query): answer for item, answer in full}
    pairs = {
        digest: (item.query, answer, of_full[digest])
        for item, answer in reduced
        if (digest := query_digest(item.query)) in of_full
    }
    distances, turned, one_sided = [np.zeros(0)], [], 0
    for query, one, other in pairs.values():
        if bool(one.missing_reason) != bool(other.missing_reason):
            one_sided += 1
        elif not one.missing_reason:
            first, second = (np.nan_to_num(np.array(each.logprobs_nats), neginf=-np.inf) for each in (one, other))
            if len(first) != len(second):  # generated texts with different tokens
                first = second = np.zeros(0)
            # Both minus infinity, or both missing, counts as equal.
            apart = np.subtract(first, second, out=np.zeros(len(first)), where=first != second)
            one_sided += not np.isfinite(apart).all()
            distances.append(apart[np.isfinite(apart)])
            turned.append(preferred(query, one) != preferred(query, other))
    nats = np.concatenate(distances)
    return {
        "queries": len(pairs),
        "rms_nats": float(np.sqrt(np.mean(nats**2))) if len(nats) else math.nan,
        "largest_nats": float(np.abs(nats).max(initial=0.0)) if len(nats) else math.nan,
        "turned_percent": 100 * float(np.mean(turned)) if turned else math.nan,
        "one_sided": one_sided,
    }


def preferred(query: Query, answer: Answer) -> str | int:
    """The most probable group, or option without groups; for a generated answer, its text."""
    if isinstance(query, ConstrainedGenerateQuery) or not answer.logprobs_nats:
        return answer.text
    nats = np.nan_to_num(np.array(answer.logprobs_nats), nan=-np.inf, neginf=-np.inf)
    if not isinstance(query, DecidedQuery):
        return int(nats.argmax())
    probs = np.exp(nats - nats.max()) if nats.max() > -np.inf else np.zeros(len(nats))
    sums = by_group(query, probs)
    return max(sums, key=lambda group: sums[group])


def _errors(
    measures: tuple[Audit, int], reduced: Observations, full: Observations, group_of: Mapping[str, int], sampled: float
) -> Iterator[dict[str, Any]]:
    """A row for each result of the sample: its value in both precisions, and their difference with its jackknife interval.

    `group_of` has the jackknife group of each cluster, and nothing if the sample is the whole run; `sampled` is the share of the
    clusters in the sample.
    """
    results = point_results(measures[0], reduced, measures[1])
    keys = [key_of(result) for result in results]

    def values(observations: Observations) -> Floats:
        of_key = {key_of(result): result.value for result in point_results(measures[0], observations, measures[1])}
        return np.array([of_key.get(key, math.nan) for key in keys], dtype=np.float64)

    def without_groups(observations: Observations) -> Iterator[Floats]:
        if group_of:
            groups = [group_of[name] for name in observations.frame["cluster"]]
            for frame in without_each(observations.frame, groups, len(set(group_of.values()))):
                yield values(replace(observations, frame=frame))

    first, second = np.array([result.value for result in results], dtype=np.float64), values(full)
    without = [one - other for one, other in zip(without_groups(reduced), without_groups(full), strict=True)]
    low, high = jackknife_interval(first - second, np.reshape(without, (len(without), len(keys))), sampled=sampled)
    for at, result in enumerate(results):
        yield {
            "measure": result.measure,
            **{name: level for name, level in result.group.items() if name != "model"},
            "reduced_value": first[at],
            "float32_value": second[at],
            "difference": first[at] - second[at],
            "low": low[at],
            "high": high[at],
        }
