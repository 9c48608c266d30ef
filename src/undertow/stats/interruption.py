"""Stop statistics that are running: a check that the slow ones call between their steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def interruptible(check: Callable[[], None]) -> Iterator[None]:
    """Within it, intervals, tests and figures call `check`, which raises to stop them.

    Args:
        check: does nothing, or raises what ends the work.
    """
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def check_interrupted() -> None:
    """Raise if the work is to end; nothing outside `interruptible`."""
    check = _CHECK.get()
    if check is not None:
        check()
