"""HTTP connections to an OpenAI-compatible server, with bounded responses, and reasons for failures.

Errors of the OpenAI library quote requests and proxy passwords, so none of their text or chain leaves this module.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undertow.errors import UndertowError
from undertow.models.openai.address import HEADERS_VARIABLE, OPENAI_URL, Address

if TYPE_CHECKING:
    from openai import AsyncOpenAI

CONNECT_S = 10.0
MAX_BYTES = 8 * 2**20
"""Size limit of a response; 20 log-probabilities of 1,000 steps take 1 to 2 MiB."""
ACCOUNT_HEADERS = ("OpenAI-Organization", "OpenAI-Project")
"""Headers that the library takes from the environment; they are sent to the OpenAI service only."""
SENT_VARIABLES = (HEADERS_VARIABLE, "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
NOT_CONNECTED = ("ConnectError", "ConnectTimeout", "ProxyError")
CERTIFICATE = "set SSL_CERT_FILE to a file of the certificates that are to be trusted, or check --base-url"


class UnreadableError(Exception):
    """A response that cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    """Why an attempt failed.

    Attributes:
        reason: the reason in a few words.
        unreached: whether the server was not reached.
        fix: what the user must do before a retry can succeed; "" if a retry may succeed.
    """

    reason: str
    unreached: bool = False
    fix: str = ""


def client_for(address: Address, key: str, timeout_s: float) -> AsyncOpenAI:
    """A client without retries and redirects that reads at most `MAX_BYTES` of a response.

    Raises:
        UndertowError: the openai package is missing, or the environment's proxies or certificates are invalid.
    """
    try:
        import openai
        from httpx2 import InvalidURL
    except ImportError:
        raise UndertowError("models behind a server need the openai package; run pip install 'undertow[api]'") from None
    for name in SENT_VARIABLES:
        if not os.environ.get(name, "").isascii():
            raise UndertowError(f"{name} holds a character that cannot be sent; set it again, or unset it")
    # No proxy for this machine; no redirects, which could send the key elsewhere.
    direct = {f"all://{address.name}": None} if address.is_local else None
    timeout = openai.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S))
    try:
        http_client = openai.DefaultAsyncHttpxClient(
            follow_redirects=False, mounts=direct, timeout=timeout, event_hooks={"response": [_bounded]}
        )
    except (OSError, ValueError, ImportError, InvalidURL) as error:
        kind = type(error).__name__
    else:
        return openai.AsyncOpenAI(
            api_key=key or "none", base_url=address.url, max_retries=0, http_client=http_client, timeout=timeout
        )
    raise UndertowError(
        f"{address.host}: the proxy or certificate settings of this machine's environment are invalid ({kind}); "
        "fix or unset HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE"
    )


def headers_for(address: Address, key: str) -> dict[str, Any]:
    """Headers of each request, which override those from the environment."""
    import openai

    headers: dict[str, Any] = {
        "Authorization": f"Bearer {key}" if key else openai.omit,
        "Accept-Encoding": "identity",
    }
    if address.url != OPENAI_URL:
        headers |= dict.fromkeys(ACCOUNT_HEADERS, openai.omit)
    return headers


async def _bounded(response: Any) -> None:
    """Limit a response; called before its body is read."""
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        # A few compressed bytes can expand beyond memory.
        raise UnreadableError("a compressed response, which was not requested")
    response.stream = _limit_size(response.stream)


def _limit_size(stream: Any) -> Any:
    from httpx2 import AsyncByteStream

    class LimitedStream(AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            n_bytes = 0
            async for chunk in stream:
                n_bytes += len(chunk)
                if n_bytes > MAX_BYTES:
                    raise UnreadableError(f"a response of more than {MAX_BYTES // 2**20} MiB")
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return LimitedStream()


def why_nothing_came(error: BaseException, timeout_s: float) -> ConnectionFailure:
    """The reason for an error of the client or a time limit."""
    import openai

    if isinstance(error, UnreadableError):
        return ConnectionFailure(str(error))
    causes = list(_causes(error))
    untrusted = next((cause for cause in causes if isinstance(cause, ssl.SSLCertVerificationError)), None)
    if untrusted is not None:
        return ConnectionFailure(
            f"its certificate is not trusted ({untrusted.verify_message})", unreached=True, fix=CERTIFICATE
        )
    if any(type(cause).__name__ in NOT_CONNECTED for cause in causes):
        return ConnectionFailure(f"cannot be reached{_connect_reason(causes)}", unreached=True)
    late = isinstance(error, openai.APITimeoutError | TimeoutError)
    return ConnectionFailure(f"no answer within {timeout_s:g} s" if late else "the connection was dropped")


def _connect_reason(causes: list[BaseException]) -> str:
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return " by https, which it may not speak"
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return ", since its name is not known"
    if any(type(cause).__name__ == "ProxyError" for cause in causes):
        return ", since the proxy refuses the connection"
    return ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
