"""Client of an OpenAI-compatible server: budget, retries with backoff, cancellation.

The caller passes a function that reads a response; an incomplete response is requested again. Errors of the OpenAI library quote
requests and parts of keys, so none of their text or chain leaves this module.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from undertow.errors import UndertowError
from undertow.models.base import RequestFailedError, UnsupportedQueryError
from undertow.models.openai.address import KEY_VARIABLE, Address
from undertow.models.openai.connection import UnreadableError, client_for, headers_for, why_nothing_came
from undertow.models.openai.logprobs import IncompleteResponseError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

FIRST_WAIT_S, MAX_WAIT_S = 0.5, 20.0
MAX_RETRY_AFTER_S = 120.0
"""Longest `Retry-After` to wait for; beyond it the prompts fail and the next run tries them again."""
RETRIES_UNREACHED = 2
"""Retries for a server that never answered: most often the address is wrong or the server is not running."""
RETRY_STATUSES = (408, 409, 429)
MAX_MESSAGE_CHARS = 200
LONG_KEY_CHARS = 16
"""Length from which a key cannot occur in an answer by chance."""
KEY_PART_CHARS = 6
"""A server text with this many consecutive characters of the key is not shown."""
OTHER_NAMES: Mapping[tuple[bool, str], str] = {
    (True, "max_tokens"): "max_completion_tokens",
    (True, "seed"): "",
    (False, "seed"): "",
}
"""Other names of parameters that a server refuses, by (chat, name); "" to leave it out."""
OF_ONE_PROMPT: Mapping[str, str] = {
    "content_filter": "the server's content filter refuses the prompt",
}
"""Error codes that concern one prompt only."""
TOO_LONG_TYPE = "exceed_context_size_error"
TOO_LONG_WORDS = ("maximum context length", "maximum model length")
"""Error type of llama.cpp and messages of vLLM for a prompt that is too long; the OpenAI service has a code."""
NOT_OFFERED = 501
LOGGERS = ("openai", "httpx2", "httpcore2", "httpx", "httpcore")

Read = TypeVar("Read")


@contextmanager
def quiet_http_logs() -> Iterator[None]:
    """Disable the HTTP libraries' loggers, which log headers."""
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


Submit: TypeAlias = Callable[[Coroutine[Any, Any, Any]], "Future[Any]"]


@contextmanager
def background() -> Iterator[Submit]:
    """Run an event loop in a thread.

    A thread that waits for a socket cannot be stopped, but a task can be cancelled at once.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_run, args=(loop,), name="undertow-requests", daemon=True)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@dataclass(slots=True)
class Budget:
    """Limits on requests and tokens, and their use.

    Attributes:
        max_requests, max_tokens: limits; 0 for none.
        requests: number of requests, failed ones included.
        tokens: number of tokens, estimated where the server does not count them.
    """

    max_requests: int = 0
    max_tokens: int = 0
    requests: int = 0
    tokens: int = 0

    def take(self) -> None:
        """Count one more request.

        Raises:
            UndertowError: the budget is spent.
        """
        for limit, spent, what in (
            (self.max_requests, self.requests, "requests"),
            (self.max_tokens, self.tokens, "API tokens"),
        ):
            if limit and spent >= limit:
                option = "--max-requests" if what == "requests" else "--max-api-tokens"
                raise UndertowError(
                    f"the budget of {limit} {what} is spent; answers so far are kept; raise {option} and run again"
                )
        self.requests += 1


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """A failed attempt.

    Attributes:
        reason: the reason in a few words.
        unreached: whether the server was not reached.
        fix: what the user must do before a retry can succeed; "" if a retry may succeed.
        free: whether to retry at once without counting, since our request was wrong and is corrected.
        wait_s: the server's `Retry-After`; NaN if not given.
    """

    reason: str
    unreached: bool = False
    fix: str = ""
    free: bool = False
    wait_s: float = math.nan


@dataclass(frozen=True, slots=True)
class HTTPRequest:
    """A request.

    Attributes:
        chat: whether to use the chat endpoint.
        params: keywords of `create`.
        n_tokens: estimated tokens, for servers that do not count.
    """

    chat: bool
    params: Mapping[str, Any]
    n_tokens: int


class PromptTooLongError(UnsupportedQueryError):
    """The prompt is longer than the model's context."""


class GrammarError(UnsupportedQueryError):
    """The server does not accept the grammar; another one may work."""


@dataclass(frozen=True, slots=True)
class StatusError:
    """An HTTP error status.

    Attributes:
        status: the HTTP status.
        said: the error in the response.
        wait_s: the server's `Retry-After`; NaN if not given.
    """

    status: int
    said: Mapping[str, Any]
    wait_s: float

    @property
    def passes(self) -> bool:
        """Whether a retry may succeed."""
        return self.status in RETRY_STATUSES or self.status >= 500

    @property
    def is_too_long(self) -> bool:
        """Whether the prompt is longer than the model's context."""
        message = str(self.said.get("message")).lower()
        named = self.said.get("code") == "context_length_exceeded" or self.said.get("type") == TOO_LONG_TYPE
        return named or (self.status in (400, 422) and any(words in message for words in TOO_LONG_WORDS))


@dataclass(slots=True)
class OpenAIClient:
    """Sends requests to one server, with retries. Runs in one event loop.

    Attributes:
        address: address of the server.
        model: the server's name of the model.
        key: API key; "" for none.
        timeout_s: time limit of one attempt.
        retries: attempts after the first.
        budget: shared by all requests.
        reached: whether the server ever answered.
    """

    address: Address
    model: str
    key: str = field(repr=False)
    timeout_s: float
    retries: int
    budget: Budget
    reached: bool = False
    _names: dict[tuple[bool, str], str] = field(default_factory=dict)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _client: AsyncOpenAI = field(init=False)
    _headers: dict[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._client = client_for(self.address, self.key, self.timeout_s)
        self._headers = headers_for(self.address, self.key)

    async def close(self) -> None:
        """Cancel all requests and close all connections."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    async def drain(self) -> None:
        """Start no further attempts; wait for those in progress."""
        self._closing.set()

    async def send(
        self, request: HTTPRequest, read: Callable[[Mapping[str, Any]], Read]
    ) -> Read | RequestFailedError | UnsupportedQueryError:
        """The result of `read` on the response, or why there is none.

        Raises:
            UndertowError: no request can succeed; no further attempts are started.
        """
        try:
            return await self._until_answered(request, read)
        except UndertowError:
            self._closing.set()
            raise

    async def _until_answered(
        self, request: HTTPRequest, read: Callable[[Mapping[str, Any]], Read]
    ) -> Read | RequestFailedError | UnsupportedQueryError:
        tried = 0
        while not self._closing.is_set():
            outcome = await self._attempt(request)
            tried += 1
            self._check_fixable(outcome)
            if isinstance(outcome, Mapping):
                try:
                    return read(outcome)
                except IncompleteResponseError as half:
                    outcome = AttemptFailure(str(half))
            if isinstance(outcome, UnsupportedQueryError):
                return outcome
            if outcome.free:
                tried -= 1
                continue
            if tried > self._patience(outcome):
                return self._lost(outcome, tried)
            await self._wait(outcome, tried)
        return self._stop_error()

    def _lost(self, fault: AttemptFailure, tried: int) -> RequestFailedError:
        return RequestFailedError(f"{self.address.host}: {fault.reason}, at the last of {tried} attempts")

    def _stop_error(self) -> RequestFailedError:
        return RequestFailedError(f"{self.address.host}: the run was stopped before the answer")

    def _patience(self, fault: AttemptFailure) -> int:
        if fault.wait_s > MAX_RETRY_AFTER_S:
            return 0
        return min(self.retries, RETRIES_UNREACHED) if fault.unreached and not self.reached else self.retries

    async def _wait(self, fault: AttemptFailure, tried: int) -> None:
        """Exponential backoff with jitter."""
        luck = random.random()  # noqa: S311  # jitter, not security
        growing = min(FIRST_WAIT_S * 2 ** (tried - 1), MAX_WAIT_S) * (0.75 + luck / 2)
        wait_s = growing if math.isnan(fault.wait_s) else fault.wait_s + luck * FIRST_WAIT_S
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), wait_s)

    async def get_json(
        self, path: str, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | RequestFailedError | None:
        """JSON from an endpoint without generation, which does not count; None if the server lacks the endpoint.

        Args:
            path: path below the base URL, or a URL.
            body: body of a POST; GET without one.

        Raises:
            UndertowError: the server refuses the key.
        """
        tried = 0
        while not self._closing.is_set():
            reply = await self._exchanged(self._looked_up(path, body))
            tried += 1
            self._check_fixable(reply)
            if isinstance(reply, bytes):
                parsed = _parse_json(reply)
                return parsed if isinstance(parsed, Mapping) else None
            if isinstance(reply, StatusError):
                if reply.status == NOT_OFFERED or not reply.passes:
                    self._check_key(reply.status)
                    return None
                reply = AttemptFailure(f"status {reply.status}", wait_s=reply.wait_s)
            if tried > self._patience(reply):
                return self._lost(reply, tried)
            await self._wait(reply, tried)
        return self._stop_error()

    async def _looked_up(self, path: str, body: Mapping[str, Any] | None) -> bytes:
        options: Any = {"headers": self._headers}
        if body is None:
            return await self._client.get(path, cast_to=bytes, options=options)
        return await self._client.post(path, cast_to=bytes, body=body, options=options)

    async def _attempt(self, request: HTTPRequest) -> Mapping[str, Any] | AttemptFailure | UnsupportedQueryError:
        self.budget.take()
        taken, sent = request.n_tokens, self._server_params(request)
        try:
            reply = await self._exchanged(self._answered(sent, chat=request.chat))
            if isinstance(reply, bytes):
                body = _parse_json(reply)
                taken = _n_tokens(body, taken)
                return (
                    body
                    if isinstance(body, Mapping)
                    else AttemptFailure("a response that is not JSON, or is truncated")
                )
            if isinstance(reply, StatusError) or reply.unreached:
                taken = 0
        finally:
            self.budget.tokens += taken
        if isinstance(reply, AttemptFailure):
            return reply
        refused = (request.chat, str(reply.said.get("param")))
        if reply.status in (400, 422) and refused[1] in sent and refused in OTHER_NAMES:
            self._names[refused] = OTHER_NAMES[refused]
            return AttemptFailure(f"refused the parameter {refused[1]}", free=True)
        return self._handle_refusal(reply, chat=request.chat)

    async def _answered(self, sent: Mapping[str, Any], *, chat: bool) -> bytes:
        endpoint: Any = self._client.chat.completions if chat else self._client.completions
        response = await endpoint.with_raw_response.create(model=self.model, extra_headers=self._headers, **sent)
        content: bytes = response.http_response.content
        return content

    async def _exchanged(self, sending: Coroutine[Any, Any, bytes]) -> bytes | StatusError | AttemptFailure:
        """The response body, or why there is none."""
        import openai

        try:
            # The library's time limit restarts with every byte; this one does not.
            async with asyncio.timeout(self.timeout_s):
                content = await sending
        except openai.APIStatusError as error:
            self.reached = True
            refusal = error.response
            said = _error_of(_parse_json(self._without_key(refusal.content)))
            return StatusError(refusal.status_code, said, _retry_after_s(refusal.headers))
        except (openai.APIConnectionError, TimeoutError, UnreadableError) as error:
            nothing = why_nothing_came(error, self.timeout_s)
            return AttemptFailure(nothing.reason, unreached=nothing.unreached, fix=nothing.fix)
        self.reached = True
        return self._without_key(content)

    def _without_key(self, content: bytes) -> bytes:
        """The response without the key, which a server may echo, since answers are stored."""
        return content.replace(self.key.encode(), b"(key)") if len(self.key) >= LONG_KEY_CHARS else content

    def _server_params(self, request: HTTPRequest) -> dict[str, Any]:
        named = {self._names.get((request.chat, name), name): value for name, value in request.params.items()}
        return {name: value for name, value in named.items() if name}

    def _handle_refusal(self, refusal: StatusError, *, chat: bool) -> AttemptFailure | UnsupportedQueryError:
        """How to handle an error status.

        Raises:
            UndertowError: only the user can fix it.
        """
        status, code = refusal.status, str(refusal.said.get("code"))
        where = f"{self.address.host}: "
        if code == "insufficient_quota":
            raise UndertowError(
                f"{where}the account has nothing left to spend (status {status}); answers so far are kept, so add to it and "
                "run the same command again"
            )
        if refusal.is_too_long:
            return PromptTooLongError("the prompt is longer than the model reads")
        if refusal.passes:
            return AttemptFailure(f"status {status}", wait_s=refusal.wait_s)
        self._check_key(status)
        if status == 404:
            other = (
                "leave --chat out for a model that does not chat" if chat else "add --chat for a model that only chats"
            )
            raise UndertowError(
                f"{where}has no model {self.model} or no such endpoint (status 404); check -m and --base-url, or {other}"
            )
        if status in (400, 422) and code in OF_ONE_PROMPT:
            return UnsupportedQueryError(OF_ONE_PROMPT[code])
        if status in (400, 422) and "grammar" in str(refusal.said.get("message")).lower():
            return GrammarError(f"the server refused the grammar (status {status}){self._reason(refusal.said)}")
        raise UndertowError(f"{where}refused the request (status {status}){self._reason(refusal.said)}")

    def _check_fixable(self, outcome: object) -> None:
        if isinstance(outcome, AttemptFailure) and outcome.fix:
            raise UndertowError(
                f"{self.address.host}: {outcome.reason}; answers so far are kept, so {outcome.fix}, and run the same command again"
            )

    def _check_key(self, status: int) -> None:
        if status not in (401, 403):
            return
        where = f"{self.address.host}: "
        raise UndertowError(
            f"{where}refused the key (status {status}); set {KEY_VARIABLE} to one that may use {self.model}"
            if self.key
            else f"{where}needs a key (status {status}); set {KEY_VARIABLE}"
        )

    def _reason(self, said: Mapping[str, Any]) -> str:
        """The server's message, if it is safe to show, and a hint if there is one."""
        message = self.quotable(said.get("message"))
        hint = "; try --top-logprobs 5" if "logprob" in message else ""
        return f': it said "{message}"{hint}' if message else "; check -m and --base-url"

    def quotable(self, text: object) -> str:
        """A server's text, shortened, on one line; "" if it holds a part of the key."""
        line = " ".join("".join(letter if letter.isprintable() else " " for letter in str(text or "")).split())
        size = min(KEY_PART_CHARS, len(self.key))
        parts = {self.key[at : at + size] for at in range(len(self.key) - size + 1)} if size else set()
        return "" if any(part in line for part in parts) else line[:MAX_MESSAGE_CHARS]


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _error_of(body: Any) -> Mapping[str, Any]:
    """The error object: under `error`, or the body itself."""
    if not isinstance(body, Mapping):
        return {}
    error = body.get("error", body)
    return error if isinstance(error, Mapping) else {"message": error}


def _n_tokens(body: Any, estimate: int) -> int:
    usage = body.get("usage") if isinstance(body, Mapping) else None
    if not isinstance(usage, Mapping):
        return estimate
    counts: list[Any] = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    return sum(counts) if all(map(_is_count, counts)) else estimate


def _is_count(given: Any) -> bool:
    """Whether a value is a count: an integer of at least 0, and not a bool."""
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """`Retry-After` in seconds or as a date; NaN if missing or invalid."""
    given = headers.get("retry-after", "")
    with suppress(ValueError):
        seconds = float(given)
        return seconds if seconds >= 0 and math.isfinite(seconds) else math.nan
    with suppress(ValueError):
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    return math.nan
