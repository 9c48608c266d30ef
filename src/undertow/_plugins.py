"""Extensions of other packages: entry points that load, each by itself; a broken one is named once and left out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import TypeVar

from undertow._folders import notify
from undertow.errors import UndertowError, on_one_line

T = TypeVar("T")
_notify_once = cache(notify)


@cache
def _entry_points(group: str, search_path: tuple[str, ...]) -> EntryPoints:
    """The entry points of a group on a search path, which is read once: it takes a file of each package."""
    return entry_points(group=group)


def plugins(
    group: str, checked: Callable[[EntryPoint, object], T], known: tuple[str, ...] = ()
) -> Iterator[tuple[str, T]]:
    """Name and object of each entry point of a group that loads and passes its check.

    Args:
        group: of the entry points, for example `undertow.audits`.
        checked: returns what an object stands for, or raises an `UndertowError` that says what it lacks.
        known: names that the package itself has; no other package replaces them.
    """
    for entry in _entry_points(group, tuple(sys.path)):
        if entry.name in known:
            continue
        try:
            plugin = checked(entry, entry.load())
        except Exception as error:  # noqa: BLE001 - code of another package, which may raise anything
            package = entry.dist.name if entry.dist is not None else entry.value
            why = str(error) if isinstance(error, UndertowError) else f"{type(error).__name__}: {error}"
            _notify_once(
                f"the package {package} is left out: its entry point {entry.name} of {group} cannot be used ({on_one_line(why)}); "
                "update or remove the package"
            )
        else:
            yield entry.name, plugin
