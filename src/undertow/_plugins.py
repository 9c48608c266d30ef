"""Extensions of other packages by entry points; a broken one is reported once and skipped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, TypeVar, cast

from undertow._folders import notify
from undertow.errors import UndertowError, on_one_line

T = TypeVar("T")
_notify_once = cache(notify)


@cache
def _entry_points(group: str, search_path: tuple[str, ...]) -> EntryPoints:
    """The entry points of a group on a search path; cached, because it reads a file of each package."""
    return entry_points(group=group)


@dataclass(frozen=True)
class _Registered:
    """A plugin of this process, in place of an entry point."""

    name: str
    group: str
    plugin: Any
    dist: None = None

    @property
    def value(self) -> str:
        return f"the registered {self.name}"

    def load(self) -> Any:
        """The plugin."""
        return self.plugin


_REGISTERED: dict[tuple[str, str], EntryPoint] = {}


def register_plugin(group: str, name: str, plugin: object, check: Callable[[EntryPoint], object] | None = None) -> None:
    """Make an object a plugin of this process if its check passes; one of the same group and name is replaced."""
    entry = cast(EntryPoint, _Registered(name, group, plugin))
    if check is not None:
        check(entry)
    _REGISTERED[group, name] = entry


def plugins(
    group: str, checked: Callable[[EntryPoint, object], T], known: tuple[str, ...] = ()
) -> Iterator[tuple[str, T]]:
    """Name and object of each entry point of a group that loads and passes the check.

    Args:
        group: of the entry points, for example `undertow.audits`.
        checked: converts a loaded object, or raises an `UndertowError` with the problem.
        known: names of this package, which no other package can replace.
    """
    own = {name: one for (of, name), one in _REGISTERED.items() if of == group}
    installed = (one for one in _entry_points(group, tuple(sys.path)) if one.name not in own)
    for entry in (*own.values(), *installed):
        if entry.name in known:
            continue
        try:
            plugin = checked(entry, entry.load())
        except Exception as error:  # noqa: BLE001 - code of another package, which may raise anything
            package = entry.dist.name if entry.dist is not None else entry.value
            why = str(error) if isinstance(error, UndertowError) else f"{type(error).__name__}: {error}"
            _notify_once(
                f"the package {package} is skipped: its entry point {entry.name} of {group} cannot be used ({on_one_line(why)}); "
                "update or remove the package"
            )
        else:
            yield entry.name, plugin
