"""The way to a server that speaks OpenAI's interface: a client that takes nothing packed and nothing endless, and why there is no way.

Errors of the client library quote requests, and those about proxies quote their passwords, so no text and no chain of theirs leaves
this file.
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
"""Of one response; log-probabilities of a thousand steps, twenty of each, take one or two."""
ACCOUNT_HEADERS = ("OpenAI-Organization", "OpenAI-Project")
"""The client takes these from the environment; they are nobody's business but the OpenAI service's."""
SENT_VARIABLES = (HEADERS_VARIABLE, "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
NOT_CONNECTED = ("ConnectError", "ConnectTimeout", "ProxyError")
CERTIFICATE = "set SSL_CERT_FILE to a file of the certificates that are to be trusted, or check --base-url"


class UnreadableError(Exception):
    """A response that is not read to its end; the message says why, in our own words."""


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    """Why an attempt brought nothing.

    Attributes:
        reason: a few words of our own.
        unreached: whether the server was not even reached.
        mend: what the user has to do before another attempt can do better; "" if it may by itself.
    """

    reason: str
    unreached: bool = False
    mend: str = ""


def client_for(address: Address, key: str, timeout_s: float) -> AsyncOpenAI:
    """A client that asks once, follows no redirect, and reads no response beyond `MAX_BYTES`.

    Raises:
        UndertowError: the client library is not installed, or what the environment says of proxies or certificates cannot be used.
    """
    try:
        import openai
        from httpx2 import InvalidURL
    except ImportError:
        raise UndertowError("asking a server needs the openai package; run pip install 'undertow[api]'") from None
    for name in SENT_VARIABLES:
        if not os.environ.get(name, "").isascii():
            raise UndertowError(f"{name} holds a letter that cannot be sent; set it again, or unset it")
    # What goes to this machine must not take the way over a proxy; a redirect could lead the key elsewhere.
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
        f"{address.host}: cannot be asked, since what this machine's environment says of proxies or certificates is of no use ({kind}); "
        "mend or unset HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE"
    )


def headers_for(address: Address, key: str) -> dict[str, Any]:
    """What is sent with each request, so that the client takes no other from the environment."""
    import openai

    headers: dict[str, Any] = {
        "Authorization": f"Bearer {key}" if key else openai.omit,
        "Accept-Encoding": "identity",
    }
    if address.url != OPENAI_URL:
        headers |= dict.fromkeys(ACCOUNT_HEADERS, openai.omit)
    return headers


async def _bounded(response: Any) -> None:
    """Called before anything of a response's body is read."""
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        # A few bytes of it can become more than there is memory.
        raise UnreadableError("a packed response, which was not asked for")
    response.stream = _limited(response.stream)


def _limited(stream: Any) -> Any:
    from httpx2 import AsyncByteStream

    class Limited(AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            n_bytes = 0
            async for chunk in stream:
                n_bytes += len(chunk)
                if n_bytes > MAX_BYTES:
                    raise UnreadableError(f"a response of more than {MAX_BYTES // 2**20} MiB")
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Limited()


def why_nothing_came(error: BaseException, timeout_s: float) -> ConnectionFailure:
    """What an error of the client means, or that time is over."""
    import openai

    if isinstance(error, UnreadableError):
        return ConnectionFailure(str(error))
    causes = list(_causes(error))
    untrusted = next((cause for cause in causes if isinstance(cause, ssl.SSLCertVerificationError)), None)
    if untrusted is not None:
        return ConnectionFailure(
            f"its certificate is not trusted ({untrusted.verify_message})", unreached=True, mend=CERTIFICATE
        )
    if any(type(cause).__name__ in NOT_CONNECTED for cause in causes):
        return ConnectionFailure(f"cannot be reached{_hindrance(causes)}", unreached=True)
    late = isinstance(error, openai.APITimeoutError | TimeoutError)
    return ConnectionFailure(f"no answer within {timeout_s:g} s" if late else "the connection was dropped")


def _hindrance(causes: list[BaseException]) -> str:
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return " by https, which it may not speak"
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return ", since its name is not known"
    if any(type(cause).__name__ == "ProxyError" for cause in causes):
        return ", since the proxy refuses the way"
    return ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
