"""The address and key of an OpenAI-compatible server.

No message quotes the user's address, which may hold a password, or the key.
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
    """The address of a server.

    Attributes:
        url: base URL, without a slash at its end.
        host: name and port, for messages.
        path: path of the base URL.
        name: host name without the port.
    """

    url: str
    host: str
    path: str
    name: str

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine."""
        with suppress(ValueError):
            return ip_address(self.name.strip("[]")).is_loopback
        return self.name == "localhost"

    @property
    def is_open(self) -> bool:
        """Whether requests are unencrypted and leave this machine."""
        return self.url.startswith("http:") and not self.is_local


def address_of(base_url: str) -> Address:
    """Parse a base URL; "" is the OpenAI service.

    Raises:
        UndertowError: the URL is not an HTTP address, or holds a password, query or fragment. Never quotes it.
    """
    fix = "give the server's address only, as in --base-url http://127.0.0.1:8080/v1"
    try:
        parts = urlsplit(base_url or OPENAI_URL)
        port = parts.port
    except ValueError:
        raise UndertowError(f"the base URL is not valid; {fix}") from None
    if "@" in parts.netloc:
        raise UndertowError(f"the base URL holds a user name or a password; {fix}, and the key in {KEY_VARIABLE}")
    if parts.query or parts.fragment or "?" in base_url or "#" in base_url:
        raise UndertowError(f"the base URL has a query or fragment (? or #); {fix}, and the key in {KEY_VARIABLE}")
    name = parts.netloc.lower() if port is None else parts.netloc.lower().removesuffix(f":{port}")
    if parts.scheme not in ("http", "https") or not HOST.fullmatch(name) or re.search(r"\s", base_url):
        raise UndertowError(f"the base URL is not an http or https address; {fix}")
    path = parts.path.rstrip("/")
    return Address(f"{parts.scheme}://{parts.netloc}{path}", parts.netloc.lower(), path, name)


def key_for(address: Address) -> str:
    """The key from the environment; "" if there is none and the server may not need one.

    Raises:
        UndertowError: the key is missing, invalid, or must not be sent unencrypted.
    """
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key and address.url == OPENAI_URL:
        raise UndertowError(
            f"{address.host}: needs a key; set {KEY_VARIABLE}, or name a server without one: --base-url URL, in doctor --set base_url=URL"
        )
    if not all("!" <= letter <= "~" for letter in key):
        raise UndertowError(f"{KEY_VARIABLE} holds a character that no key has; set it again")
    if address.is_open and (key or os.environ.get(HEADERS_VARIABLE)):
        raise UndertowError(
            f"{address.host}: the key is not sent over plain http, where others can read it; use https, or unset "
            f"{KEY_VARIABLE if key else HEADERS_VARIABLE}"
        )
    return key
