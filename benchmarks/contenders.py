"""Who is timed. A new contender is one function and one line of `CONTENDERS`.

Every contender of a row is given the same loaded network and tokenizer, so that nothing but the asking differs. It makes
of queries a call that takes no argument; what it does before that call is not timed, the call is. Knows each
contender's way of being asked; knows nothing about clocks, memory or results.
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
from gate import END, TIE_LOGITS, Chosen, Logprobs, Numbers, Written
from rows import requests
from undertow.models import decoding
from undertow.models.base import Found, UnscorableError
from undertow.models.steps import Step, answer_of
from undertow.places import cache_folder
from undertow.scoring.ask import ask
from undertow.scoring.store import AnswerStore
from undertow.types import Answer, Blank, Choice, Generation, Query

Scoring: TypeAlias = Callable[[], Numbers]
Prepare: TypeAlias = Callable[[Sequence[Query], int], Scoring]
"""Queries and a batch size to what is timed."""

ITS_OWN, ONE_BY_ONE = 0, 1
"""Batch sizes of contenders for which none is looked for."""

PROTOCOL = "exact"
TOP = 5
"""The most probable tokens that the papers look at in each step, and among which ties are looked for."""


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
            return [_written(answer, steps_of.get(query, ())) for query, answer in zip(prompts, answers, strict=True)]

        return score

    return prepare


def _written(answer: Answer, steps: Sequence[Step], ties: Sequence[tuple[str | None, ...]] = ()) -> Written:
    probs = tuple(map(math.exp, answer.logprobs_nats))
    return Written(
        answer.text, probs, tuple(step.token for step in steps), tuple(step.probs for step in steps), tuple(ties)
    )


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
            answers = iter(backend.loglikelihood(instances, disable_tqdm=True))
            return [tuple(float(next(answers)[0]) for _ in options) for options in pairs]

        return score

    return prepare


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
            filled = fill(texts, batch_size=batch_size) if batch_size > ONE_BY_ONE else [fill(text) for text in texts]
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
        words = [_tokens_of(model, query) for query in prompts]
        return lambda: [_generated(model, query, tokens) for query, tokens in zip(prompts, words, strict=True)]

    return prepare


def _tokens_of(model: Any, query: Generation) -> tuple[tuple[int, ...], ...]:
    """The tokens that each option's word may be [option][token]."""
    tokens = model.decoder.vocabulary.of_options(query.options)
    if isinstance(tokens, UnscorableError):
        raise tokens
    ids: tuple[tuple[int, ...], ...] = tokens.ids
    return ids


def _generated(model: Any, query: Generation, words: Sequence[tuple[int, ...]]) -> Written:
    import torch

    ends = sorted(model.decoder.ends)
    fed = model.tokenizer(query.prompt, return_tensors="pt")
    out = model.network.generate(
        **fed,
        do_sample=False,
        max_new_tokens=query.max_tokens,
        output_logits=True,
        return_dict_in_generate=True,
        eos_token_id=ends,
        pad_token_id=ends[0],
    )
    chosen: list[int] = out.sequences[0, fed["input_ids"].shape[1] :].tolist()
    tokens = [token for token in chosen if token not in ends]
    logits = torch.cat(out.logits).float()  # [step, vocabulary]
    probs = logits.softmax(-1)
    read = [probs[:, list(ids)].sum(-1).tolist() if ids else [math.nan] * len(chosen) for ids in words]
    texts = [model.decoder.vocabulary.text_of(token) for token in tokens]  # tokens are compared by one name for both
    steps = [Step(text, at) for text, at in zip(texts, zip(*read, strict=True), strict=False)]
    return _written(answer_of(query, steps, model.tokenizer.decode(tokens)), steps, _ties(model, logits))


def _ties(model: Any, logits: Any) -> list[tuple[str | None, ...]]:
    """Tokens that rounding might have put first, at each step."""
    values, tokens = logits.topk(TOP)
    near = (values >= values[:, :1] - TIE_LOGITS).tolist()
    return [
        tuple(
            END if token in model.decoder.ends else model.decoder.vocabulary.text_of(token)
            for token, tied in zip(row, marks, strict=True)
            if tied
        )
        for row, marks in zip(tokens.tolist(), near, strict=True)
    ]


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


CONTENDERS: Mapping[str, tuple[Contender, ...]] = {
    "likelihood": (
        Contender("undertow", "undertow", open_undertow, ITS_OWN),
        Contender("lm-eval HF", "lm_eval", open_lm_eval, None, target_ratio=4, no_more_memory=True),
    ),
    "masked": (
        Contender("undertow", "undertow", open_undertow, ITS_OWN),
        Contender("fill-mask, one by one", "transformers", open_pipeline, ONE_BY_ONE, target_ratio=7),
        Contender("fill-mask, batched", "transformers", open_pipeline, None, target_ratio=1.25),
    ),
    "prompts": (
        Contender("undertow", "undertow", open_undertow_prompts, ITS_OWN),
        Contender("generate, one by one", "transformers", open_generate, ONE_BY_ONE, target_ratio=4),
    ),
    "wordings": (
        Contender("undertow", "undertow", open_undertow_choices, ITS_OWN),
        Contender("each prompt anew, one by one", "transformers", open_anew, ONE_BY_ONE, target_ratio=5),
        Contender("each prompt anew, batched", "transformers", open_anew, None),
    ),
}
"""By row. The first of each is the one that the others are compared with."""
