"""Client of an OpenAI-compatible server: the SDK's retries and time limits, our budget, bounded responses, and no key in any text.

Errors of the SDK quote requests, parts of keys and proxy passwords, so none of their text or chain leaves this module. Nor does a message
quote the user's address, which may hold a password.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from undertow._folders import notify
from undertow.errors import UndertowError
from undertow.models.base import CONTENT_FILTER, RequestFailedError, UnsupportedQueryError
from undertow.models.openai.logprobs import FILTERED, IncompleteResponseError, finish_reason

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OPENAI_URL = "https://api.openai.com/v1"
KEY_VARIABLE, HEADERS_VARIABLE = "OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS"
HOST = re.compile(r"[\w.-]+|\[[0-9a-fA-F:.]+\]")
CONNECT_S = 10.0
MAX_BYTES = 8 * 2**20
"""Size limit of a response; 20 log-probabilities of 1,000 steps take 1 to 2 MiB."""
TOO_LARGE = f"a response of more than {MAX_BYTES // 2**20} MiB"
RETRIES_UNREACHED = 2
"""Retries while no server has responded: most often the address is wrong or the server is not running."""
MAX_MESSAGE_CHARS = 200
KEY_CHARS, LONG_KEY_CHARS = 8, 16
"""Lengths from which a key, and a key of letters alone (`password`), cannot occur in an answer by chance."""
KEY_PART_CHARS = 6
"""A server text with this many consecutive characters of a secret is not shown."""
SECRET_HEADER = re.compile("auth|cookie|cred|key|pass|secret|token", re.IGNORECASE)
WITHHELD = re.compile(
    r"content.?(filter|polic|management)|(?<!-)\bmoderation\b(?!-)|usage (guideline|polic)|inappropriate content|prohibited.?content"
    r"|content exists risk|(input|prompt|content|request)s? (was|were|has been|have been) flagged",
    re.IGNORECASE,
)
"""What filters say of a prompt: Azure, LiteLLM, OpenAI, OpenRouter, xAI, Gemini, DeepSeek, Qwen."""
OF_ACCOUNT = re.compile(r"\b(access|account|organi[sz]ation)\b", re.IGNORECASE)
ACCOUNT_HEADERS = ("OpenAI-Organization", "OpenAI-Project")
"""Headers that the SDK takes from the environment; they are sent to the OpenAI service only."""
NOT_CONNECTED = ("ConnectError", "ConnectTimeout", "ProxyError")
LOGPROBS = ("logprobs", "top_logprobs")
DRAWN = "replies are not at temperature 0, which the server refuses, but at its default; asked again, it may reply otherwise"
ONLY_CHATS = "give undertow run --chat for a model that only chats"
REPORTED = "reported"
"""Key of an error that came in a response of status 200."""
INVALID, FORBIDDEN, NO_ENDPOINT, RATE_LIMITED, NOT_OFFERED = (400, 422), 403, (404, 405), 429, 501
V1, API_VERSION = "/v1", "api-version"
VERSION = re.compile(rf"{API_VERSION}=(preview|latest|\d{{4}}-\d\d-\d\d(-preview)?)", re.ASCII)
ZLIB_WBITS = 47
"""Zlib's code for gzip or deflate by their headers."""

Read = TypeVar("Read")
Submit: TypeAlias = Callable[[Coroutine[Any, Any, Any]], "Future[Any]"]


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server.

    Attributes:
        url: base URL, without a slash at its end.
        host: name and port, for messages.
        path: path of the base URL.
        name: host name without the port.
        version: the query parameter `api-version`, for Azure; "" without one.
    """

    url: str
    host: str
    path: str
    name: str
    version: str = ""

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine."""
        with suppress(ValueError):
            return ip_address(self.name.strip("[]")).is_loopback
        return self.name == "localhost"


def address_of(base_url: str) -> Address:
    """Parse a base URL; "" is the OpenAI service.

    Raises:
        UndertowError: the URL is not an HTTP address, or holds a password, fragment or other query than `api-version`. Never quotes it.
    """
    fix = "give the server's address only, as in --base-url http://127.0.0.1:8080/v1"
    try:
        parts = urlsplit(base_url or OPENAI_URL)
        port = parts.port
    except ValueError:
        raise UndertowError(f"the base URL is not valid; {fix}") from None
    if "@" in parts.netloc:
        raise UndertowError(f"the base URL holds a user name or a password; {fix}, and the key in {KEY_VARIABLE}")
    version = parts.query.removeprefix(f"{API_VERSION}=") if VERSION.fullmatch(parts.query) else ""
    if ("?" in base_url and not version) or "#" in base_url:
        raise UndertowError(
            f"the base URL has a query or fragment (? or #) other than ?{API_VERSION}=DATE; {fix}, and the key in {KEY_VARIABLE}"
        )
    name = parts.netloc.lower() if port is None else parts.netloc.lower().removesuffix(f":{port}")
    if parts.scheme not in ("http", "https") or not HOST.fullmatch(name) or re.search(r"\s", base_url):
        raise UndertowError(f"the base URL is not an http or https address; {fix}")
    path = parts.path.rstrip("/")
    return Address(f"{parts.scheme}://{parts.netloc}{path}", parts.netloc.lower(), path, name, version)


def secrets_of(key: str) -> list[str]:
    """What no text of a server may hold: the key and secrets in custom headers, unless an answer may hold them by chance; longest first."""
    headers = [line.partition(":")[::2] for line in os.environ.get(HEADERS_VARIABLE, "").splitlines()]
    values = [value for name, value in headers if SECRET_HEADER.search(name)]
    words = {key, *(word.strip(",;") for value in values for word in value.split())}
    long = [word for word in words if len(word) >= (LONG_KEY_CHARS if word.isalpha() else KEY_CHARS)]
    return sorted(sorted(long), key=len, reverse=True)


def key_for(address: Address) -> str:
    """The key from the environment; "" if there is none and the server may not need one.

    Raises:
        UndertowError: the key is missing, invalid, or must not be sent unencrypted.
    """
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key and address.url == OPENAI_URL:
        raise UndertowError(
            f"{address.host}: needs a key; set {KEY_VARIABLE}, or name a server without one: --base-url URL"
        )
    if not all("!" <= letter <= "~" for letter in key):
        raise UndertowError(f"{KEY_VARIABLE} holds a character that no key has; set it again")
    # Unencrypted, to another machine.
    if address.url.startswith("http:") and not address.is_local and (key or os.environ.get(HEADERS_VARIABLE)):
        raise UndertowError(
            f"{address.host}: the key is not sent over plain http, where others can read it; use https, or unset "
            f"{KEY_VARIABLE if key else HEADERS_VARIABLE}"
        )
    return key


@contextmanager
def background() -> Iterator[Submit]:
    """Run an event loop in a thread, without the HTTP libraries' logs, which hold headers.

    A thread that waits for a socket cannot be stopped, but a task can be cancelled at once.
    """
    loop = asyncio.new_event_loop()

    def run() -> None:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    loggers = [logging.getLogger(name) for name in ("openai", "httpx2", "httpcore2", "httpx", "httpcore")]
    levels = [logger.level for logger in loggers]
    thread = threading.Thread(target=run, name="undertow-requests", daemon=True)
    thread.start()
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@dataclass(slots=True)
class Budget:
    """Limits on requests and tokens, and their use.

    Attributes:
        max_requests, max_tokens: limits; 0 for none.
        requests: number of requests, failed ones included.
        tokens: number of tokens, estimated where the server does not count them.
        is_rate_limited: whether the server limits the rate, which is reported once.
    """

    max_requests: int = 0
    max_tokens: int = 0
    requests: int = 0
    tokens: int = 0
    is_rate_limited: bool = False

    def take(self) -> None:
        """Count one more request; refuse it if the budget is spent."""
        for limit, spent, what, option in (
            (self.max_requests, self.requests, "requests", "--max-requests"),
            (self.max_tokens, self.tokens, "API tokens", "--max-api-tokens"),
        ):
            if limit and spent >= limit:
                raise UndertowError(
                    f"the budget of {limit} {what} is spent; answers so far are kept; raise {option} and run again"
                )
        self.requests += 1


@dataclass(frozen=True, slots=True)
class HTTPRequest:
    """A request.

    Attributes:
        chat: whether to use the chat endpoint.
        params: what is posted, beside the model's name.
        n_tokens: estimated tokens, for servers that do not count.
        optional: parameters to leave out where the server refuses them.
    """

    chat: bool
    params: Mapping[str, Any]
    n_tokens: int
    optional: tuple[str, ...] = ()


class PromptTooLongError(UnsupportedQueryError):
    """The prompt is longer than the model's context."""


class GrammarError(UnsupportedQueryError):
    """The server does not accept the grammar; another one may work."""


class _UnreadableError(Exception):
    """A response that cannot be read; the message gives the reason."""


class _StoppedError(Exception):
    """No further attempt is started."""


class _UnreachedError(Exception):
    """No server has responded; the cause is the last reason."""


@dataclass(slots=True)
class _Attempts:
    """The attempts at one request.

    Attributes:
        n_tokens: estimated tokens of each attempt; 0 for what generates nothing.
        n_attempts: number of attempts.
        under_way: whether one is under way, and not waiting for another try.
    """

    n_tokens: int = 0
    n_attempts: int = 0
    under_way: bool = False

    def __str__(self) -> str:
        return f"at the last of {self.n_attempts} attempts"


@dataclass(slots=True)
class OpenAIClient:
    """Sends requests to one server. Runs in one event loop.

    Attributes:
        key: API key; "" for none.
        timeout_s: time limit of one attempt.
        retries: attempts after the first.
        reached: whether the server ever answered.
        on_answer: called with each response and what was read in it; returns what counts as read.
        system_prompt: the system message of every chat; "" for none.
    """

    address: Address
    model: str
    key: str = field(repr=False)
    timeout_s: float
    retries: int
    budget: Budget
    reached: bool = False
    on_answer: Callable[[Mapping[str, Any], Any], Any] = lambda body, answer: answer
    system_prompt: str = ""
    _names: dict[tuple[bool, str], str] = field(default_factory=dict)
    _sdk: AsyncOpenAI = field(init=False)
    _headers: dict[str, Any] = field(init=False, repr=False)
    _secrets: list[str] = field(init=False, repr=False)
    _closing: bool = False
    _running: dict[Any, _Attempts] = field(default_factory=dict)
    _with_v1: bool = False

    def __post_init__(self) -> None:
        try:
            import openai
            from httpx2 import InvalidURL
        except ImportError:
            raise UndertowError(
                "models behind a server need the openai package; run pip install 'undertow[api]'"
            ) from None
        for name in (HEADERS_VARIABLE, "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
            if not os.environ.get(name, "").isascii():
                raise UndertowError(f"{name} holds a character that cannot be sent; set it again, or unset it")
        # No proxy for this machine; no redirects, which could send the key elsewhere.
        direct = {f"all://{self.address.name}": None} if self.address.is_local else None
        timeout = openai.Timeout(self.timeout_s, connect=min(self.timeout_s, CONNECT_S))
        attempt = self._attempt

        class Client(openai.DefaultAsyncHttpxClient):
            async def send(self, request: Any, **options: Any) -> Any:
                return await attempt(request, partial(super().send, request, **options | {"stream": True}))

        try:
            http_client = Client(follow_redirects=False, mounts=direct, timeout=timeout)
        except (OSError, ValueError, ImportError, InvalidURL) as error:
            kind, http_client = type(error).__name__, None
        if http_client is None:  # not in the handler, so that no error of the SDK is in the chain
            raise UndertowError(
                f"{self.address.host}: the proxy or certificate settings of this machine's environment are invalid ({kind}); "
                "fix or unset HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE"
            )
        self._secrets, version = secrets_of(self.key), self.address.version
        self._headers = {
            "Authorization": f"Bearer {self.key}" if self.key and not version else openai.omit,
            **({"api-key": self.key} if self.key and version else {}),  # as Azure has it
            "Accept-Encoding": "identity",
            **({} if self.address.url == OPENAI_URL else dict.fromkeys(ACCOUNT_HEADERS, openai.omit)),
        }
        self._sdk = openai.AsyncOpenAI(
            api_key=self.key or "none",
            base_url=self.address.url,
            default_query={API_VERSION: version} if version else None,
            max_retries=self.retries,
            http_client=http_client,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of the address, and of a temperature that the server refuses."""
        moved = [f"{self.address.host}: the base URL has no {V1}; requests go to {V1}"] if self._with_v1 else []
        return (*moved, *([DRAWN] if any(name == "temperature" for _, name in self._names) else []))

    async def close(self) -> None:
        """Cancel all requests and close all connections."""
        self._closing = True
        for task in self._running:
            task.cancel()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
        await self._sdk.close()

    async def drain(self) -> None:
        """Start no further attempts; wait for those under way, and not for those that wait for another try."""
        self._closing = True
        for task, attempts in self._running.items():
            if not attempts.under_way and task is not asyncio.current_task():
                task.cancel()

    async def send(
        self, request: HTTPRequest, read: Callable[[Mapping[str, Any]], Read]
    ) -> Read | RequestFailedError | UnsupportedQueryError:
        """The result of `read` on the response, or the reason why there is none; an incomplete response is requested again.

        Raises:
            UndertowError: no request can succeed; no further attempts are started.
        """
        try:
            return await self._until_read(request, read)
        except asyncio.CancelledError:
            if not self._closing:
                raise
            return self._failure("the run was stopped before the answer")
        except UndertowError:
            await self.drain()
            raise

    async def _until_read(
        self, request: HTTPRequest, read: Callable[[Mapping[str, Any]], Read]
    ) -> Read | RequestFailedError | UnsupportedQueryError:
        attempts, free = _Attempts(request.n_tokens), 0
        while True:
            named = {self._names.get((request.chat, name), name): value for name, value in request.params.items()}
            before, sent = self._with_v1, {name: value for name, value in named.items() if name}
            body = {"model": self.model, **sent}
            if request.chat and self.system_prompt:
                body["messages"] = [{"role": "system", "content": self.system_prompt}, *sent["messages"]]
            path = "/chat/completions" if request.chat else "/completions"
            outcome = await self._exchange(path, body, attempts, max(self.retries + free - attempts.n_attempts, 0))
            if isinstance(outcome, RequestFailedError):
                return outcome
            if isinstance(outcome, _ErrorResponse):
                if self._learn(request, outcome, sent) or (
                    outcome.status in NO_ENDPOINT and await self._add_v1(before)
                ):
                    free += 1
                    continue
                return self._refused(outcome, attempts, chat=request.chat)
            try:
                if not isinstance(outcome, Mapping):
                    raise IncompleteResponseError("a response that is not JSON, or is truncated")
                answer: Read = self.on_answer(outcome, read(outcome))
                return answer
            except IncompleteResponseError as half:
                if not (isinstance(outcome, Mapping) and "choices" in outcome) and await self._add_v1(before):
                    free += 1
                elif attempts.n_attempts > self.retries + free:
                    return self._failure(f"{half}, {attempts}")

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
        attempts = _Attempts()
        reply = await self._exchange(path, body, attempts, self.retries)
        if isinstance(reply, _ErrorResponse):
            self._check_key(reply.status)
            passes = reply.status >= 500 and reply.status != NOT_OFFERED
            return self._failure(f"status {reply.status}, {attempts}") if passes else None
        return reply if isinstance(reply, Mapping | RequestFailedError) else None

    async def _add_v1(self, before: bool) -> bool:
        """Whether the server responds under `/v1` although the base URL lacks it; if so, later requests use it."""
        if self._with_v1 or self.address.path.endswith(V1):
            return self._with_v1 != before
        listed = await self.get_json(f"{self.address.url}{V1}/models")
        if not isinstance(listed, Mapping):
            return False
        self._with_v1, self._sdk.base_url = True, f"{self.address.url}{V1}"
        return True

    # One exchange.

    async def _exchange(self, path: str, body: Mapping[str, Any] | None, attempts: _Attempts, retries: int) -> Any:
        """The response as JSON (None if it is not JSON), a refusal, or the reason why there is no response."""
        import openai

        options = openai.RequestOptions(headers=self._headers, max_retries=retries)
        task = asyncio.current_task()
        self._running[task] = attempts
        try:
            if body is None:
                content = await self._sdk.get(path, cast_to=bytes, options=options)
            else:
                content = await self._sdk.post(path, cast_to=bytes, body=body, options=options)
        except openai.APIStatusError as error:
            return self._error_response(error.response)
        except _UnreadableError as error:
            return self._failure(str(error))
        except _StoppedError:
            return self._failure("the run was stopped before the answer")
        except (openai.APIConnectionError, _UnreachedError) as error:
            return self._connection_failure(error, attempts)
        finally:
            del self._running[task]
        reply = self._parse(content)
        usage = reply.get("usage") if isinstance(reply, Mapping) else None
        given: Mapping[str, Any] = usage if isinstance(usage, Mapping) else {}
        counts: list[Any] = [given.get(name) for name in ("prompt_tokens", "completion_tokens")]
        valid = all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in counts)
        self.budget.tokens += sum(counts) if valid else attempts.n_tokens
        return reply

    async def _attempt(self, request: Any, send: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """One attempt of the SDK: counts it, and determines whether another may succeed."""
        attempts = self._running[asyncio.current_task()]
        if self._closing:
            raise _StoppedError
        if request.url.path.endswith("/completions"):
            self.budget.take()
        attempts.n_attempts += 1
        attempts.under_way = True
        try:
            response = await send()
            self.reached = True
            response = await self._read_body(response)
        except BaseException as error:
            attempts.under_way = False
            if not any(type(one).__name__ in NOT_CONNECTED for one in _causes(error)):
                self.budget.tokens += attempts.n_tokens  # the server may have generated them
            if isinstance(error, Exception) and not self.reached and attempts.n_attempts > RETRIES_UNREACHED:
                raise _UnreachedError from error  # which the SDK does not retry
            raise
        if request.url.path.endswith("/completions") and (reported := _reported_error(response)):
            self.budget.tokens += attempts.n_tokens
            response = reported
        if response.status_code >= 400:
            attempts.under_way = False
            refusal = self._error_response(response)
            if response.status_code == NOT_OFFERED or refusal.is_out_of_quota:
                response.headers["x-should-retry"] = "false"  # the SDK tries again after each 429 and from 500 on
            elif response.status_code == RATE_LIMITED and not self.budget.is_rate_limited:
                self.budget.is_rate_limited = True
                wait = self.quotable(response.headers.get("retry-after"))
                notify(f"{self.address.host}: limits the rate of requests (Retry-After: {wait or 'not given'})")
        return response

    async def _read_body(self, response: Any) -> Any:
        """A response with its body, which is limited in size and time."""
        from httpx2 import ReadTimeout, Response

        content = bytearray()
        async with aclosing(response):
            encoding = response.headers.pop("content-encoding", "identity").strip().lower()
            if encoding not in ("identity", "gzip", "deflate"):
                raise _UnreadableError(
                    f"a response compressed with {self.quotable(encoding)}; turn compression off in the server or its proxy"
                )
            try:
                # The SDK's time limit restarts with every byte; this one does not.
                async with asyncio.timeout(self.timeout_s):
                    async for chunk in response.aiter_raw():
                        content += chunk
                        if len(content) > MAX_BYTES:
                            raise _UnreadableError(TOO_LARGE)
            except TimeoutError:
                raise ReadTimeout("trickles") from None
        if encoding != "identity":
            with suppress(zlib.error):  # half a text is no JSON
                content = bytearray(zlib.decompressobj(ZLIB_WBITS).decompress(content, MAX_BYTES + 1))
            if len(content) > MAX_BYTES:  # a few compressed bytes can expand beyond memory
                raise _UnreadableError(TOO_LARGE)
        return Response(
            response.status_code, headers=response.headers, content=bytes(content), request=response.request
        )

    def _error_response(self, response: Any) -> _ErrorResponse:
        return _ErrorResponse(response.status_code, _error_in(self._parse(response.content)))

    def _failure(self, reason: str) -> RequestFailedError:
        return RequestFailedError(f"{self.address.host}: {reason}")

    def _connection_failure(self, error: BaseException, attempts: _Attempts) -> RequestFailedError:
        """Why no response came."""
        causes = list(_causes(error))
        untrusted = next((one for one in causes if isinstance(one, ssl.SSLCertVerificationError)), None)
        if untrusted is not None:
            raise UndertowError(
                f"{self.address.host}: its certificate is not trusted ({untrusted.verify_message}); answers so far are kept, so set "
                "SSL_CERT_FILE to a file of the certificates that are to be trusted, or check --base-url, and run the same command again"
            ) from None
        if any(type(one).__name__ in NOT_CONNECTED for one in causes):
            why = (
                " by https, which it may not speak" if any(isinstance(one, ssl.SSLError) for one in causes)
                else ", since its name is not known" if any(isinstance(one, socket.gaierror) for one in causes)
                else ", since the proxy refuses the connection" if any(type(one).__name__ == "ProxyError" for one in causes)
                else ""
            )  # fmt: skip
            return self._failure(f"cannot be reached{why}, {attempts}")
        late = any("Timeout" in type(one).__name__ for one in causes)
        reason = f"no answer within {self.timeout_s:g} s" if late else "the connection was dropped"
        return self._failure(f"{reason}, {attempts}")

    # Refusals.

    def _learn(self, request: HTTPRequest, response: _ErrorResponse, sent: Mapping[str, Any]) -> bool:
        """Whether the refusal concerns parameters that can be renamed or omitted; if so, later requests do so."""
        if response.status not in INVALID or response.is_too_long:
            return False
        message = response.message.lower()
        quoted = {name for name in sent if re.search(rf"[\"'`]{name}[\"'`]", message)}
        named = {*quoted, str(response.body.get("param"))}
        omitted = {name for name in ("seed", *request.optional) if name in named or re.search(rf"\b{name}\b", message)}
        if "logprob" in message or omitted.intersection(LOGPROBS):
            omitted.update(set(LOGPROBS).intersection(request.optional))
        learnt = {(request.chat, name): "" for name in omitted if name in sent}
        if request.chat and "max_tokens" in sent and "max_tokens" in named:
            learnt[True, "max_tokens"] = "max_completion_tokens"
        self._names |= learnt
        return bool(learnt)

    def _refused(
        self, response: _ErrorResponse, attempts: _Attempts, *, chat: bool
    ) -> RequestFailedError | UnsupportedQueryError:
        """How a refusal counts for the prompt."""
        status, where = response.status, f"{self.address.host}: "
        if response.is_out_of_quota:
            raise UndertowError(
                f"{where}the account has nothing left to spend (status {status}); answers so far are kept, so add to it and "
                "run the same command again"
            )
        if response.is_too_long:
            return PromptTooLongError("the prompt is longer than the model reads")
        if status in (408, 409, RATE_LIMITED) or status >= 500:
            message = self.quotable(response.message) if REPORTED in response.body else ""
            reported = f' in a response of status 200: it said "{message}"' if message else ""
            return self._failure(f"status {status}{reported}, {attempts}")
        if response.is_withheld:
            return UnsupportedQueryError(f"{CONTENT_FILTER} refuses the prompt")
        self._check_key(status)
        other = "leave --chat out for a model that does not chat" if chat else ONLY_CHATS
        if status in NO_ENDPOINT:
            raise UndertowError(
                f"{where}has no model {self.model} or no such endpoint (status {status}), with {V1} or without; check -m and "
                f"--base-url, or {other}"
            )
        if status in INVALID and "grammar" in response.message.lower():
            return GrammarError(f"the server refused the grammar (status {status}){self._reason(response.message)}")
        hint = "" if chat or "chat" not in response.message.lower() else f"; {ONLY_CHATS}"
        raise UndertowError(f"{where}refused the request (status {status}){self._reason(response.message)}{hint}")

    def _check_key(self, status: int) -> None:
        if status not in (401, FORBIDDEN):
            return
        why = f"refused the key (status {status})" if self.key else f"needs a key (status {status})"
        which = f" to one that may use {self.model}" if self.key else ""
        raise UndertowError(f"{self.address.host}: {why}; set {KEY_VARIABLE}{which}")

    # What a server says.

    def _reason(self, text: str) -> str:
        """The server's message, if it is safe to show, and a hint if there is one."""
        message = self.quotable(text)
        hint = "; try --top-logprobs 5, or read replies with --protocol text" if "logprob" in message else ""
        return f': it said "{message}"{hint}' if message else "; check -m and --base-url"

    def _parse(self, content: bytes) -> Any:
        """The response as JSON, without secrets, which a server may echo, since answers are stored; None if it is not JSON."""
        reply = _parse_json(content)
        with suppress(RecursionError):
            return _without(reply, self._secrets) if self._secrets else reply
        return None

    def quotable(self, text: object) -> str:
        """A server's text, shortened, on one line; "" if it holds a part of a secret."""
        line = " ".join("".join(letter if letter.isprintable() else " " for letter in str(text or "")).split())
        secrets = {self.key, *self._secrets} - {""}
        size = KEY_PART_CHARS
        parts = (one[at : at + size] for one in secrets for at in range(max(len(one) - size, 0) + 1))
        return "" if any(part in line for part in parts) else line[:MAX_MESSAGE_CHARS]


@dataclass(frozen=True, slots=True)
class _ErrorResponse:
    """An HTTP error status, and the error in the response."""

    status: int
    body: Mapping[str, Any]

    @property
    def is_out_of_quota(self) -> bool:
        """Whether the account has nothing left to spend."""
        return self.body.get("code") == "insufficient_quota"

    @property
    def message(self) -> str:
        """What the server says of it; "" if nothing."""
        return str(self.body.get("message") or "")

    @property
    def is_withheld(self) -> bool:
        """Whether a filter refuses this prompt, and not the key or the account all prompts."""
        code, metadata = self.body.get("code"), self.body.get("metadata")
        if self.status not in (*INVALID, FORBIDDEN):
            return False
        if code == "content_filter" or (isinstance(metadata, Mapping) and "flagged_input" in metadata):
            return True
        is_of_account = self.status == FORBIDDEN and OF_ACCOUNT.search(self.message) is not None
        return WITHHELD.search(f"{code} {self.message}") is not None and not is_of_account

    @property
    def is_too_long(self) -> bool:
        """Whether the prompt is longer than the model's context, in the words of the OpenAI service, llama.cpp or vLLM."""
        if self.body.get("code") == "context_length_exceeded" or self.body.get("type") == "exceed_context_size_error":
            return True
        message = self.message.lower()
        return self.status in INVALID and ("maximum context length" in message or "maximum model length" in message)


def _error_in(reply: Any) -> Mapping[str, Any]:
    """The error of a response, which some services put into a list; of refused fields in `detail`, the message has each in quotes.

    {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]} -> 'seed': Extra inputs are not permitted
    """
    reply = reply[0] if isinstance(reply, list) and reply else reply
    error = reply.get("error", reply) if isinstance(reply, Mapping) else {}
    body: Mapping[str, Any] = error if isinstance(error, Mapping) else {"message": error}
    holder = body.get("message", body)
    details = holder.get("detail") if isinstance(holder, Mapping) else None
    if isinstance(details, list):
        named = [one for one in details if isinstance(one, Mapping) and isinstance(one.get("loc"), list) and one["loc"]]
        details = "; ".join(f"'{one['loc'][-1]}': {one.get('msg')}" for one in named)
    return {**body, "message": details} if isinstance(details, str) else body


def _reported_error(response: Any) -> Any:
    """A response of the status that an error in the body names, which gateways send with status 200; None without an error."""
    reply = _parse_json(response.content) if response.status_code < 300 and b'"error"' in response.content else None
    choices = reply.get("choices") if isinstance(reply, Mapping) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    holder = next((one for one in (reply, first) if isinstance(one, Mapping) and one.get("error")), None)
    if holder is None or finish_reason(holder.get("finish_reason")) == FILTERED:
        return None
    error = _error_in(holder)
    code = str(error.get("code"))
    no_endpoint = "unexpected endpoint" in str(error.get("message")).lower()
    by_code = {"content_filter": INVALID[0], "invalid_api_key": 401, "model_not_found": NO_ENDPOINT[0]}
    default = NO_ENDPOINT[0] if no_endpoint else by_code.get(code, 502)
    status = int(code) if re.fullmatch("[45][0-9]{2}", code) else default
    content = json.dumps({"error": {**error, REPORTED: True}}).encode()
    return type(response)(status, headers=response.headers, content=content, request=response.request)


def _without(value: Any, secrets: list[str]) -> Any:
    """A JSON value with each secret in its strings replaced."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "(key)")
        return value
    if isinstance(value, list):
        return [_without(one, secrets) for one in value]
    if isinstance(value, dict):
        return {_without(name, secrets): _without(one, secrets) for name, one in value.items()}
    return value


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _parse_json(content: bytes) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(content)
    return None
