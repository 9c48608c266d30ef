"""A site on this machine that gives published files, in place of the one on the net."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers import faulty_proxy
from helpers.faulty_proxy import Asked, Reply
from helpers.shared_folders import contents


@dataclass
class Site:
    """Files by the last part of their address, the status, and the requests so far."""

    files: dict[str, bytes] = field(default_factory=dict)
    status: int = 200
    asked: list[str] = field(default_factory=list)

    def reply(self, asked: Asked) -> Reply:
        name = asked.path.rpartition("/")[2]
        self.asked.append(name)
        return Reply(self.files.get(name, b""), self.status if name in self.files else 404)


def kept(cache: Path) -> dict[str, bytes]:
    """All that lies in the cache of data, by its path from there."""
    return contents(cache / "data")


@contextlib.contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, module: str, path: str) -> Iterator[Site]:
    """A site at which this module looks for what it fetches, whatever proxy the user has."""
    site = Site()
    with faulty_proxy.serving(site.reply) as seen:
        monkeypatch.setattr(f"{module}.SOURCE_URL", seen.url.removesuffix("/v1") + path)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "127.0.0.1")
        yield site
