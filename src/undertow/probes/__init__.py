"""One file, one audit that a user can name. Listing the probes imports none of them."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from typing import cast

from undertow.challenge.reading import closest
from undertow.probes.base import Probe
from undertow.types import UndertowError

ENTRY_POINTS = "undertow.probes"


def names() -> list[str]:
    """The probes of the package, by file name, and those of installed packages, by entry point."""
    return sorted({*_own(), *(entry.name for entry in entry_points(group=ENTRY_POINTS))})


@cache
def _own() -> list[str]:
    return [
        name.replace("_", "-") for _, name, _ in pkgutil.iter_modules(__path__) if name != "base" and name[0] != "_"
    ]


def load(name: str) -> Probe:
    """A probe by name.

    Raises:
        UndertowError: there is no such probe.
    """
    if name in _own():
        return cast(Probe, importlib.import_module(f"{__name__}.{name.replace('-', '_')}"))
    if name not in names():
        raise UndertowError(f"there is no probe called {name!r}; there is {', '.join(names())}{closest(name, names())}")
    (entry,) = entry_points(group=ENTRY_POINTS, name=name)
    return cast(Probe, entry.load())
