"""Who is timed. A new contender is one function and one line of `CONTENDERS`.

Every contender of a row is given a network of the same weights and its tokenizer. It makes of queries a call that takes no argument;
what it does before that call is not timed, the call is. Knows each contender's way of being asked; knows nothing about clocks,
memory or results.
"""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast
from unittest.mock import patch

from anew import labels_anew
from gate import Chosen, Logprobs, Numbers
from generated import generated, tokens_of, written
from rows import requests
from undertow.models import decoding
from undertow.models.base import Found
from undertow.models.steps import Step, answer_of
from undertow.places import cache_folder
from undertow.scoring.ask import ask
from undertow.scoring.store import AnswerStore
from undertow.types import Answer, Blank, Choice, Generation, Query
from whole import nats_of_continuations

Scoring: TypeAlias = Callable[[], Numbers]
Prepare: TypeAlias = Callable[[Sequence[Query], int], Scoring]
"""Queries and a batch size to what is timed."""

ITS_OWN, ONE_BY_ONE = 0, 1
"""Batch sizes of contenders for which none is looked for."""

PROTOCOL = "exact"
ENGINE = "undertow"


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to score.

    Attributes:
        name: what results call it.
        package: the distribution whose version is recorded.
        open: what imports the package and wraps the loaded model, which `Found.open` gives.
        batch_size: what it is called with; None where its best one must be found.
        target_ratio: how many times its rate the engine promises; 0 for no promise.
        no_more_memory: whether the engine promises to take no more memory.
    """

    name: str
    package: str
    open: Callable[[Found], Prepare]
    batch_size: int | None
    target_ratio: float = 0.0
    no_more_memory: bool = False


@contextmanager
def _new_store() -> Iterator[AnswerStore]:
    """On the disk that holds the user's own."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=cache_folder()) as folder,
        AnswerStore(Path(folder) / "answers.sqlite") as store,
    ):
        yield store


def _asked(found: Found, queries: Sequence[Query]) -> Sequence[Answer]:
    """The engine by its real path: plan, tokens, passes, and a new answer store."""
    with _new_store() as store:
        return ask(found, queries, store, PROTOCOL, lambda _done, _all: None).scores.answers


def open_undertow(found: Found) -> Prepare:
    """The engine, reading sentences."""

    def prepare(queries: Sequence[Query], _: int) -> Scoring:
        return lambda: [answer.logprobs_nats for answer in _asked(found, queries)]

    return prepare


def open_undertow_prompts(found: Found) -> Prepare:
    """The engine, answering prompts; its steps are looked at as they pass, since answers keep their outcome alone."""

    def prepare(queries: Sequence[Query], _: int) -> Scoring:
        def score() -> Numbers:
            steps_of: dict[Generation, Sequence[Step]] = {}

            def seen(query: Generation, steps: Sequence[Step], text: str) -> Answer:
                steps_of[query] = steps
                return answer_of(query, steps, text)

            with patch.object(decoding, "answer_of", seen):
                answers = _asked(found, queries)
            prompts = cast(Sequence[Generation], queries)
            return [written(answer, steps_of.get(query, ())) for query, answer in zip(prompts, answers, strict=True)]

        return score

    return prepare


def open_lm_eval(found: Found) -> Prepare:
    """lm-evaluation-harness's Hugging Face backend, asked for log-likelihoods as its tasks ask it."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    # It warns that a network which is loaded already cannot be spread over devices.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    model = found.open()

    def prepare(queries: Sequence[Query], batch_size: int) -> Scoring:
        backend = HFLM(pretrained=model.network, tokenizer=model.tokenizer, batch_size=batch_size)
        pairs = [requests(query) for query in queries]
        instances = [
            Instance("loglikelihood", {}, pair, number)
            for number, pair in enumerate(pair for options in pairs for pair in options)
        ]

        def score() -> Logprobs:
            return _by_query(pairs, [float(nats) for nats, _ in backend.loglikelihood(instances, disable_tqdm=True)])

        return score

    return prepare


def open_minicons(found: Found) -> Prepare:
    """The scorer of minicons for causal models: the summed log-probability of a continuation given its context, batch by batch."""
    from minicons.scorer import IncrementalLMScorer

    model = found.open()
    scorer = IncrementalLMScorer(model.network, device="cpu", tokenizer=model.tokenizer)

    def prepare(queries: Sequence[Query], batch_size: int) -> Scoring:
        options = [requests(query) for query in queries]
        pairs = [pair for of_query in options for pair in of_query]

        def score() -> Logprobs:
            found: list[float] = []
            for start in range(0, len(pairs), batch_size):
                contexts, continuations = zip(*pairs[start : start + batch_size], strict=True)
                found += scorer.conditional_score(
                    list(contexts), list(continuations), separator="", reduction=lambda nats: nats.sum().item()
                )
            return _by_query(options, found)

        return score

    return prepare


def open_whole(found: Found) -> Prepare:
    """The network itself, reading each option's whole text; at batch size 1 one call a text, as the papers do."""
    model = found.open()

    def prepare(queries: Sequence[Query], batch_size: int) -> Scoring:
        options = [requests(query) for query in queries]
        pairs = [pair for of_query in options for pair in of_query]
        return lambda: _by_query(options, nats_of_continuations(model, pairs, batch_size))

    return prepare


def _by_query(options: Sequence[Sequence[Any]], nats: Sequence[float]) -> Logprobs:
    """Numbers of all options in a row, as many to each query as it has options [query][option]."""
    numbers = iter(nats)
    return [tuple(next(numbers) for _ in of_query) for of_query in options]


def open_pipeline(found: Found) -> Prepare:
    """The fill-mask pipeline of transformers; at batch size 1 it is called with one text after another, as the papers do."""
    from transformers import pipeline

    model = found.open()

    def prepare(queries: Sequence[Query], batch_size: int) -> Scoring:
        blanks = cast(Sequence[Blank], queries)
        (words,) = {tuple(option.fills[0] for option in query.options) for query in blanks}
        texts = [query.shown(model.tokenizer.mask_token) for query in blanks]
        tokens: list[int] = model.tokenizer.convert_tokens_to_ids(list(words))
        # Named here and not in each call, where the pipeline would go through its vocabulary again.
        fill = pipeline(
            "fill-mask",
            model=model.network,
            tokenizer=model.tokenizer,
            device="cpu",
            targets=list(words),
            top_k=len(words),
        )

        def score() -> Logprobs:
            # What it gives for a list of one text is not in a list.
            together = batch_size > ONE_BY_ONE and len(texts) > 1
            filled = fill(texts, batch_size=batch_size) if together else [fill(text) for text in texts]
            return [_logprobs_nats(found, tokens) for found in filled]

        return score

    return prepare


def _logprobs_nats(filled: Sequence[Mapping[str, Any]], tokens: Sequence[int]) -> tuple[float, ...]:
    prob_of = {one["token"]: float(one["score"]) for one in filled}
    return tuple(math.log(prob_of[token]) if prob_of[token] > 0 else -math.inf for token in tokens)


def open_generate(found: Found) -> Prepare:
    """The network's own greedy search, one prompt at a time, with the listed words read off each step's logits."""
    model = found.open()

    def prepare(queries: Sequence[Query], _: int) -> Scoring:
        prompts = cast(Sequence[Generation], queries)
        words = [tokens_of(model, query) for query in prompts]
        return lambda: [generated(model, query, tokens) for query, tokens in zip(prompts, words, strict=True)]

    return prepare


def open_undertow_choices(found: Found) -> Prepare:
    """The engine, choosing labels."""

    def prepare(queries: Sequence[Query], _: int) -> Scoring:
        return lambda: [Chosen(answer.text, answer.logprobs_nats) for answer in _asked(found, queries)]

    return prepare


def open_anew(found: Found) -> Prepare:
    """The network itself, label by label: at batch size 1 one prompt after another, else prompts of one length together."""
    model = found.open()

    def prepare(queries: Sequence[Query], batch_size: int) -> Scoring:
        choices = cast(Sequence[Choice], queries)
        return lambda: labels_anew(model, choices, batch_size)

    return prepare


LIKELIHOOD = (
    Contender(ENGINE, "undertow", open_undertow, ITS_OWN),
    Contender("lm-eval HF", "lm_eval", open_lm_eval, None, target_ratio=5, no_more_memory=True),
    Contender("minicons", "minicons", open_minicons, None, target_ratio=6),
    Contender("transformers, one by one", "transformers", open_whole, ONE_BY_ONE),
    Contender("transformers, batched", "transformers", open_whole, None),
)

CONTENDERS: Mapping[str, tuple[Contender, ...]] = {
    "likelihood": LIKELIHOOD,
    "schemas": LIKELIHOOD,
    "masked": (
        Contender(ENGINE, "undertow", open_undertow, ITS_OWN),
        Contender("fill-mask, one by one", "transformers", open_pipeline, ONE_BY_ONE, target_ratio=8),
        Contender("fill-mask, batched", "transformers", open_pipeline, None, target_ratio=1.25),
    ),
    "prompts": (
        Contender(ENGINE, "undertow", open_undertow_prompts, ITS_OWN),
        Contender("generate, one by one", "transformers", open_generate, ONE_BY_ONE, target_ratio=5),
    ),
    "wordings": (
        Contender(ENGINE, "undertow", open_undertow_choices, ITS_OWN),
        Contender("each prompt anew, one by one", "transformers", open_anew, ONE_BY_ONE, target_ratio=5),
        Contender("each prompt anew, batched", "transformers", open_anew, None),
    ),
}
"""By row. The first of each is the one that the others are compared with."""
