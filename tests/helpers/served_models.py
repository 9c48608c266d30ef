"""Models behind a server, as tests ask them: a scripted server (see `faulty_proxy`), or llama.cpp's with the default model."""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from conftest import SMOLLM2
from helpers.faulty_proxy import Asked, Reply, serving
from undertow._folders import cache_file
from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import RunnerResult as Answers
from undertow.inference.runner import run_queries
from undertow.models.base import ModelHandle, ModelRequest
from undertow.models.families.openai import resolve
from undertow.types import EXACT, Query

SLOTS, THREADS = 2, 1  # several threads wait for each other at every step: too long on a busy machine
CONTEXT_TOKENS = 2048
MODEL = "smollm2"
trusting = cache(ssl.create_default_context)
"""Certificates are read once: most of a client's making is reading them."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key of the user's in a test, short waits between attempts, and clients that are quickly made."""
    monkeypatch.setattr(ssl, "create_default_context", trusting)
    for name in ("OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS", "OPENAI_BASE_URL", "OPENAI_LOG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)


def model_at(url: str, name: str = "some-model", **settings: str | int | float | bool) -> ModelHandle:
    found = resolve(ModelRequest(f"openai:{name}", settings={"base_url": url} | settings))
    assert found is not None
    return found


def saying(*replies: Any) -> Callable[[Asked], Reply]:
    """The first reply to the first attempt with a prompt, and so on; the last one to all that follow."""

    def reply(asked: Asked) -> Reply:
        given = replies[min(asked.attempt, len(replies)) - 1]
        return given if isinstance(given, Reply) else Reply(given)

    return reply


def answers_of(found: ModelHandle, queries: Sequence[Query], protocol: str = EXACT) -> list[Any]:
    """Answers, or errors in their place, in the order of the queries."""
    arrived: dict[int, Any] = {}
    for some in found.open().answer(queries, protocol):
        arrived |= some
    return [arrived[place] for place in range(len(queries))]


def answer_to(query: Query, body: Any, protocol: str = EXACT, **settings: Any) -> Any:
    """The answer to one query by a server that replies with this body."""
    with serving(saying(body)) as seen:
        (answer,) = answers_of(model_at(seen.url, **settings), [query], protocol)
    return answer


def stored(found: ModelHandle, queries: Sequence[Query], protocol: str = EXACT) -> Answers:
    """What asking through the store of answers comes to."""
    with AnswerCache(cache_file()) as store:
        return run_queries(found, queries, store, protocol, lambda done, total: None)


def probs(answer: Any) -> list[float]:
    return [math.exp(nats) for nats in answer.logprobs_nats]


def refusal(found: ModelHandle, queries: Sequence[Query], *words: str, protocol: str = EXACT) -> str:
    """The one sentence that asking ends with, which holds the words."""
    with pytest.raises(UndertowError) as caught:
        answers_of(found, queries, protocol)
    said = one_sentence(caught.value)
    for word in words:
        assert word in said
    return said


def one_sentence(said: object) -> str:
    text = str(said)
    assert "\n" not in text
    assert not text.endswith(".")
    return text


@pytest.fixture(scope="session")
def llama_server() -> Iterator[str]:
    """The base URL of llama.cpp's own server of the default model, on loopback, with the chat template of the file."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="the real server is not installed")
    if not SMOLLM2.is_file():
        pytest.skip("the default model is not here: run `undertow pull smollm2`")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(SMOLLM2)
    parameters.model_alias = {MODEL}
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = SLOTS
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = THREADS
    parameters.use_jinja = True
    parameters.cache_prompt = False  # what was asked before must not change how a prompt is cut into batches
    parameters.verbosity = 0
    parameters.port = 0  # one that is free
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server  # which stops it


def real_at(url: str, **settings: Any) -> ModelHandle:
    return model_at(url, MODEL, **{"concurrency": SLOTS} | settings)
