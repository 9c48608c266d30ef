"""Who is timed. A new contender is one function and one line of `CONTENDERS`.

Every contender is given the same loaded network and tokenizer, so that nothing but the scoring differs. It makes of
queries a call that takes no argument; what it does before that call is not timed, the call is. Knows each
contender's way of being asked; knows nothing about clocks, memory or results.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from gate import Logprobs
from jobs import requests
from undertow.models.base import Found, TokenModel
from undertow.models.causal import CausalModel
from undertow.places import cache_folder
from undertow.scoring.ask import ask
from undertow.scoring.store import AnswerStore
from undertow.types import Query

Scoring: TypeAlias = Callable[[], Logprobs]
Prepare: TypeAlias = Callable[[Sequence[Query], int], Scoring]
"""Queries and a batch size (0 where the contender takes none) to what is timed."""

PROTOCOL = "exact"


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to score.

    Attributes:
        name: what results call it.
        package: the distribution whose version is recorded.
        batched: whether a batch size must be found for it.
        target_ratio: how many times its rate the engine promises; 0 for no promise.
        open: what imports the package and wraps the loaded model.
    """

    name: str
    package: str
    batched: bool
    target_ratio: float
    open: Callable[[CausalModel], Prepare]


def open_undertow(model: TokenModel) -> Prepare:
    """The engine by its real path: plan, tokens, passes, and a new answer store on the disk that holds the user's own."""
    found = Found(model.card, lambda: model)

    def prepare(queries: Sequence[Query], _: int) -> Scoring:
        def score() -> Logprobs:
            with (
                tempfile.TemporaryDirectory(prefix="bench-", dir=cache_folder()) as folder,
                AnswerStore(Path(folder) / "answers.sqlite") as store,
            ):
                asked = ask(found, queries, store, PROTOCOL, lambda _done, _all: None)
            return [answer.logprobs_nats for answer in asked.scores.answers]

        return score

    return prepare


def open_lm_eval(model: CausalModel) -> Prepare:
    """lm-evaluation-harness's Hugging Face backend, asked for log-likelihoods as its tasks ask it."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    # It warns that a network which is loaded already cannot be spread over devices.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)

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


CONTENDERS = (
    Contender("undertow", "undertow", batched=False, target_ratio=0, open=open_undertow),
    Contender("lm-eval HF", "lm_eval", batched=True, target_ratio=4, open=open_lm_eval),
)
"""The first is the one that the others are compared with."""
