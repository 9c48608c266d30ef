"""Where a server that speaks OpenAI's interface is, and the key that may be sent there.

No message quotes an address as it was given, since it may hold
a password, and none quotes the key.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from undertow.errors import UndertowError

OPENAI_URL = "https://api.openai.com/v1"
KEY_VARIABLE, HEADERS_VARIABLE = "OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS"
HOST = re.compile(r"[\w.-]+|\[[0-9a-fA-F:.]+\]")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is.

    Attributes:
        url: base URL, without a slash at its end.
        host: name and port, to be shown.
        path: below the host, where the interface begins.
        name: the host's name alone.
    """

    url: str
    host: str
    path: str
    name: str

    @property
    def is_local(self) -> bool:
        """Whether what is sent there never leaves this machine."""
        with suppress(ValueError):
            return ip_address(self.name.strip("[]")).is_loopback
        return self.name == "localhost"

    @property
    def is_open(self) -> bool:
        """Whether others on the way could read what is sent there."""
        return self.url.startswith("http:") and not self.is_local


def address_of(base_url: str) -> Address:
    """The address that a user gives; the OpenAI service for "".

    Raises:
        UndertowError: it is no HTTP address, or holds what must not be in one. Never quotes it, since it may hold a password.
    """
    mend = "give the server's address alone, as in --base-url http://127.0.0.1:8080/v1"
    try:
        parts = urlsplit(base_url or OPENAI_URL)
        port = parts.port
    except ValueError:
        raise UndertowError(f"the base URL is not one; {mend}") from None
    if "@" in parts.netloc:
        raise UndertowError(f"the base URL holds a user name or a password; {mend}, and the key in {KEY_VARIABLE}")
    if parts.query or parts.fragment or "?" in base_url or "#" in base_url:
        raise UndertowError(
            f"the base URL goes on after its path, with a ? or a #; {mend}, and the key in {KEY_VARIABLE}"
        )
    name = parts.netloc.lower() if port is None else parts.netloc.lower().removesuffix(f":{port}")
    if parts.scheme not in ("http", "https") or not HOST.fullmatch(name) or re.search(r"\s", base_url):
        raise UndertowError(f"the base URL is no http or https address; {mend}")
    path = parts.path.rstrip("/")
    return Address(f"{parts.scheme}://{parts.netloc}{path}", parts.netloc.lower(), path, name)


def key_for(address: Address) -> str:
    """The key from the environment, "" if there is none and the server may do without.

    Raises:
        UndertowError: there is none and there must be, it cannot be sent, or must not be sent there.
    """
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key and address.url == OPENAI_URL:
        raise UndertowError(
            f"{address.host}: wants a key; set {KEY_VARIABLE}, or name a server without one: --base-url URL, in doctor --set base_url=URL"
        )
    if not all("!" <= letter <= "~" for letter in key):
        raise UndertowError(f"{KEY_VARIABLE} holds a letter or a space that no key has; set it again")
    if address.is_open and (key or os.environ.get(HEADERS_VARIABLE)):
        raise UndertowError(
            f"{address.host}: the key is not sent over plain http, where others can read it; use https, or unset "
            f"{KEY_VARIABLE if key else HEADERS_VARIABLE}"
        )
    return key
