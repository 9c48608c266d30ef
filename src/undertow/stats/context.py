"""Contexts of statistics: one skips intervals and tests, for estimates that are computed many times; one lets a caller stop them.

A jackknife needs estimates without each cluster, but no bootstrap or permutations. Within `point_estimates()` the functions of
`stats` and `metrics` give the same estimates without draws; intervals and p-values are NaN, and rows without a model, such as
baselines, may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_skips_errors: ContextVar[bool] = ContextVar("skips_errors", default=False)


@contextmanager
def point_estimates() -> Iterator[None]:
    """Skip intervals and tests in this thread."""
    token = _skips_errors.set(True)
    try:
        yield
    finally:
        _skips_errors.reset(token)


def only_points() -> bool:
    """Whether the code runs within `point_estimates`."""
    return _skips_errors.get()


_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def interruptible(check: Callable[[], None]) -> Iterator[None]:
    """Within it, intervals, tests and figures call `check`, which does nothing, or raises what ends the work."""
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
