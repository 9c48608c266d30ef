"""Requests to a server that speaks OpenAI's interface: counted, tried again with patience, and given up at once when asked to.

Knows statuses, budgets and patience. Knows nothing about prompts, and nothing about what an answer must hold:
whoever asks brings the reading, and a reading that finds half an answer has it asked for again.

The client library's errors quote requests and parts of keys, so no text and no chain of theirs leaves this file.
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
from undertow.models.openai.logprobs import HalfAnswerError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

FIRST_WAIT_S, MAX_WAIT_S = 0.5, 20.0
MAX_RETRY_AFTER_S = 120.0
"""A server that asks for more patience than this is not waited for: its prompts are lost, and asked another time."""
RETRIES_UNREACHED = 2
"""Of a server that never said a word, which is most often a mistyped address or one that was not started."""
TRY_AGAIN = (408, 409, 429)
MAX_MESSAGE_LETTERS = 200
LONG_KEY_LETTERS = 16
"""So many letters are no word that an answer might have by itself."""
KEY_PART_LETTERS = 6
"""Any so many letters of the key in a row, and a server's text is not passed on."""
OTHER_NAMES: Mapping[tuple[bool, str], str] = {
    (True, "max_tokens"): "max_completion_tokens",
    (True, "seed"): "",
    (False, "seed"): "",
}
"""What to call a parameter that a server refuses by name, in chat or not; "" if it can be left out."""
OF_ONE_PROMPT: Mapping[str, str] = {
    "content_filter": "the server's content filter refuses the prompt",
}
"""Refusals that say something about a prompt and nothing about the server, by their codes."""
TOO_LONG_TYPE = "exceed_context_size_error"
TOO_LONG_WORDS = ("maximum context length", "maximum model length")
"""How llama.cpp names a prompt that has no room, and what vLLM writes of one; OpenAI's service has a code for it."""
NOT_OFFERED = 501
LOGGERS = ("openai", "httpx2", "httpcore2", "httpx", "httpcore")

Read = TypeVar("Read")


@contextmanager
def quiet_http_logs() -> Iterator[None]:
    """The client library logs requests with their headers, if somebody listens; while we ask, nobody does."""
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
    """An event loop in a thread of its own.

    A thread that waits for a socket cannot be stopped, and Python waits for it before it ends; a task can be stopped at once.
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
    """What may be spent, and what was.

    Attributes:
        max_requests, max_tokens: limits; 0 for none.
        requests: sent, attempts that failed among them.
        tokens: as the server counted them, estimated where it did not.
    """

    max_requests: int = 0
    max_tokens: int = 0
    requests: int = 0
    tokens: int = 0

    def take(self) -> None:
        """One more request.

        Raises:
            UndertowError: there is none left.
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
    """An attempt that brought no answer.

    Attributes:
        reason: a few words of our own.
        unreached: whether the server was not even reached.
        mend: what the user has to do before another attempt can do better; "" if it may by itself.
        free: whether it was our own fault and is mended: asked again at once, and not counted.
        wait_s: how long the server asks to be left alone; NaN if it does not say.
    """

    reason: str
    unreached: bool = False
    mend: str = ""
    free: bool = False
    wait_s: float = math.nan


@dataclass(frozen=True, slots=True)
class HTTPRequest:
    """What is asked for.

    Attributes:
        chat: which of the two endpoints.
        params: for its `create`.
        n_tokens: an estimate of what it takes, for servers that do not count.
    """

    chat: bool
    params: Mapping[str, Any]
    n_tokens: int


class TooLongError(UnsupportedQueryError):
    """A prompt that has no room in what the model reads; a shorter one may have."""


class GrammarError(UnsupportedQueryError):
    """A grammar that the server cannot read; another may do."""


@dataclass(frozen=True, slots=True)
class StatusError:
    """A status that is no success.

    Attributes:
        status: of HTTP.
        said: what the server gives as its reason.
        wait_s: how long it asks to be left alone; NaN if it does not say.
    """

    status: int
    said: Mapping[str, Any]
    wait_s: float

    @property
    def passes(self) -> bool:
        """Whether the same may be answered later."""
        return self.status in TRY_AGAIN or self.status >= 500

    @property
    def is_too_long(self) -> bool:
        """Whether the prompt has no room in what the model reads."""
        message = str(self.said.get("message")).lower()
        named = self.said.get("code") == "context_length_exceeded" or self.said.get("type") == TOO_LONG_TYPE
        return named or (self.status in (400, 422) and any(words in message for words in TOO_LONG_WORDS))


@dataclass(slots=True)
class OpenAIClient:
    """Sends requests to one server, each until it is answered or patience ends. Runs in one event loop.

    Attributes:
        address: of the server.
        model: as the server calls it.
        key: "" for none.
        timeout_s: of one attempt.
        retries: attempts after the first.
        budget: shared by all requests.
        reached: whether the server ever said anything.
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
        """Stop in the middle of whatever is under way, and drop all connections."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    async def wind_up(self) -> None:
        """Begin no attempt any more; those under way end as they end."""
        self._closing.set()

    async def ask(
        self, request: HTTPRequest, read: Callable[[Mapping[str, Any]], Read]
    ) -> Read | RequestFailedError | UnsupportedQueryError:
        """What `read` finds in the response, or why there is none.

        Raises:
            UndertowError: no request can be answered; what is under way elsewhere ends, and nothing new begins.
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
            self._check_mended(outcome)
            if isinstance(outcome, Mapping):
                try:
                    return read(outcome)
                except HalfAnswerError as half:
                    outcome = AttemptFailure(str(half))
            if isinstance(outcome, UnsupportedQueryError):
                return outcome
            if outcome.free:
                tried -= 1
                continue
            if tried > self._patience(outcome):
                return self._lost(outcome, tried)
            await self._wait(outcome, tried)
        return self._stopped()

    def _lost(self, fault: AttemptFailure, tried: int) -> RequestFailedError:
        return RequestFailedError(f"{self.address.host}: {fault.reason}, at the last of {tried} attempts")

    def _stopped(self) -> RequestFailedError:
        return RequestFailedError(f"{self.address.host}: not asked to the end, since the run was stopped")

    def _patience(self, fault: AttemptFailure) -> int:
        if fault.wait_s > MAX_RETRY_AFTER_S:
            return 0
        return min(self.retries, RETRIES_UNREACHED) if fault.unreached and not self.reached else self.retries

    async def _wait(self, fault: AttemptFailure, tried: int) -> None:
        """Longer from time to time, and not for all requests alike, so that they do not come back at the same moment."""
        luck = random.random()  # noqa: S311  # spreads requests, hides nothing
        growing = min(FIRST_WAIT_S * 2 ** (tried - 1), MAX_WAIT_S) * (0.75 + luck / 2)
        wait_s = growing if math.isnan(fault.wait_s) else fault.wait_s + luck * FIRST_WAIT_S
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), wait_s)

    async def look_up(
        self, path: str, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | RequestFailedError | None:
        """What the server says of itself or of a text, for which it generates nothing: not counted; None if it does not say.

        Args:
            path: below the base URL, or a whole URL.
            body: to be posted; without one, it is got.

        Raises:
            UndertowError: the server wants another key.
        """
        tried = 0
        while not self._closing.is_set():
            reply = await self._exchanged(self._looked_up(path, body))
            tried += 1
            self._check_mended(reply)
            if isinstance(reply, bytes):
                parsed = _parsed(reply)
                return parsed if isinstance(parsed, Mapping) else None
            if isinstance(reply, StatusError):
                if reply.status == NOT_OFFERED or not reply.passes:
                    self._check_key(reply.status)
                    return None
                reply = AttemptFailure(f"status {reply.status}", wait_s=reply.wait_s)
            if tried > self._patience(reply):
                return self._lost(reply, tried)
            await self._wait(reply, tried)
        return self._stopped()

    async def _looked_up(self, path: str, body: Mapping[str, Any] | None) -> bytes:
        options: Any = {"headers": self._headers}
        if body is None:
            return await self._client.get(path, cast_to=bytes, options=options)
        return await self._client.post(path, cast_to=bytes, body=body, options=options)

    async def _attempt(self, request: HTTPRequest) -> Mapping[str, Any] | AttemptFailure | UnsupportedQueryError:
        self.budget.take()
        taken, sent = request.n_tokens, self._named(request)
        try:
            reply = await self._exchanged(self._answered(sent, chat=request.chat))
            if isinstance(reply, bytes):
                body = _parsed(reply)
                taken = _counted(body, taken)
                return body if isinstance(body, Mapping) else AttemptFailure("a response that is no JSON, or cut short")
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
        return self._judged(reply, chat=request.chat)

    async def _answered(self, sent: Mapping[str, Any], *, chat: bool) -> bytes:
        endpoint: Any = self._client.chat.completions if chat else self._client.completions
        response = await endpoint.with_raw_response.create(model=self.model, extra_headers=self._headers, **sent)
        content: bytes = response.http_response.content
        return content

    async def _exchanged(self, sending: Coroutine[Any, Any, bytes]) -> bytes | StatusError | AttemptFailure:
        """What the server sends back, or why nothing came."""
        import openai

        try:
            # The client's own time-out begins again with every byte; ours does not.
            async with asyncio.timeout(self.timeout_s):
                content = await sending
        except openai.APIStatusError as error:
            self.reached = True
            refusal = error.response
            said = _error_of(_parsed(self._without_key(refusal.content)))
            return StatusError(refusal.status_code, said, _retry_after_s(refusal.headers))
        except (openai.APIConnectionError, TimeoutError, UnreadableError) as error:
            nothing = why_nothing_came(error, self.timeout_s)
            return AttemptFailure(nothing.reason, unreached=nothing.unreached, mend=nothing.mend)
        self.reached = True
        return self._without_key(content)

    def _without_key(self, content: bytes) -> bytes:
        """What came, without the key, which a server may throw back: what a model says is stored, and written into runs."""
        return content.replace(self.key.encode(), b"(key)") if len(self.key) >= LONG_KEY_LETTERS else content

    def _named(self, request: HTTPRequest) -> dict[str, Any]:
        named = {self._names.get((request.chat, name), name): value for name, value in request.params.items()}
        return {name: value for name, value in named.items() if name}

    def _judged(self, refusal: StatusError, *, chat: bool) -> AttemptFailure | UnsupportedQueryError:
        """What to do about a status that is no success.

        Raises:
            UndertowError: nothing but to tell the user.
        """
        status, code = refusal.status, str(refusal.said.get("code"))
        where = f"{self.address.host}: "
        if code == "insufficient_quota":
            raise UndertowError(
                f"{where}the account has nothing left to spend (status {status}); answers so far are kept, so add to it and "
                "run the same command again"
            )
        if refusal.is_too_long:
            return TooLongError("the prompt is longer than the model reads")
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

    def _check_mended(self, outcome: object) -> None:
        if isinstance(outcome, AttemptFailure) and outcome.mend:
            raise UndertowError(
                f"{self.address.host}: {outcome.reason}; answers so far are kept, so {outcome.mend}, and run the same command again"
            )

    def _check_key(self, status: int) -> None:
        if status not in (401, 403):
            return
        where = f"{self.address.host}: "
        raise UndertowError(
            f"{where}refused the key (status {status}); set {KEY_VARIABLE} to one that may use {self.model}"
            if self.key
            else f"{where}wants a key (status {status}); set {KEY_VARIABLE}"
        )

    def _reason(self, said: Mapping[str, Any]) -> str:
        """What the server said, where it is fit to be seen; what to try where we know."""
        message = self.presentable(said.get("message"))
        hint = "; try --top-logprobs 5" if "logprob" in message else ""
        return f': it said "{message}"{hint}' if message else "; check -m and --base-url"

    def presentable(self, text: object) -> str:
        """A server's text on one line and cut to size; "" if it has a part of the key in it."""
        line = " ".join("".join(letter if letter.isprintable() else " " for letter in str(text or "")).split())
        size = min(KEY_PART_LETTERS, len(self.key))
        parts = {self.key[at : at + size] for at in range(len(self.key) - size + 1)} if size else set()
        return "" if any(part in line for part in parts) else line[:MAX_MESSAGE_LETTERS]


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _error_of(body: Any) -> Mapping[str, Any]:
    """Servers put what went wrong under `error`, or at the top."""
    if not isinstance(body, Mapping):
        return {}
    error = body.get("error", body)
    return error if isinstance(error, Mapping) else {"message": error}


def _counted(body: Any, estimate: int) -> int:
    usage = body.get("usage") if isinstance(body, Mapping) else None
    if not isinstance(usage, Mapping):
        return estimate
    counts: list[Any] = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    return sum(counts) if all(map(_is_count, counts)) else estimate


def _is_count(given: Any) -> bool:
    """No server gives tokens back to a budget; and JSON's true is a number to Python."""
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """`Retry-After` in seconds, or as a date; NaN if there is none that can be read."""
    given = headers.get("retry-after", "")
    with suppress(ValueError):
        seconds = float(given)
        return seconds if seconds >= 0 and math.isfinite(seconds) else math.nan
    with suppress(ValueError):
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    return math.nan
