"""Plugins: objects that a process registers, and entry points of other packages; a broken one is reported once and skipped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import TypeVar, cast

from undertow._folders import notify
from undertow.errors import UndertowError, on_one_line

T = TypeVar("T")
_notify_once = cache(notify)


@cache
def _entry_points(group: str, search_path: tuple[str, ...]) -> EntryPoints:
    """The entry points of a group on a search path; cached, because it reads a file of each package."""
    return entry_points(group=group)


_REGISTERED: dict[tuple[str, str], object] = {}
"""Plugins of this process by group and name."""


def register_plugin(group: str, name: str, plugin: object) -> None:
    """Make an object a plugin of this process; one of the same group and name is replaced."""
    _REGISTERED[group, name] = plugin


def plugins(group: str, check: Callable[[str, object], T], known: tuple[str, ...] = ()) -> Iterator[tuple[str, T]]:
    """Name and object of each registered plugin of a group, and of each entry point that loads and passes the check.

    Args:
        group: of the entry points, for example `undertow.audits`.
        check: converts the object that an entry point names, as in its first argument, or raises an `UndertowError`.
        known: names of this package, which no other package can replace.
    """
    own = {name: cast(T, plugin) for (of, name), plugin in _REGISTERED.items() if of == group}
    yield from own.items()
    for entry in _entry_points(group, tuple(sys.path)):
        if entry.name in known or entry.name in own:
            continue
        try:
            plugin = check(entry.value, entry.load())
        except Exception as error:  # noqa: BLE001 - code of another package, which may raise anything
            package = entry.dist.name if entry.dist is not None else entry.value
            why = str(error) if isinstance(error, UndertowError) else f"{type(error).__name__}: {error}"
            _notify_once(
                f"the package {package} is skipped: its entry point {entry.name} of {group} cannot be used ({on_one_line(why)}); "
                "update or remove the package"
            )
        else:
            yield entry.name, plugin
