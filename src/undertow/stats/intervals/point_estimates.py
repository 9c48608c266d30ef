"""A context that skips intervals and tests, for estimates that are computed many times.

A jackknife needs the values of a table without each cluster, and no bootstrap or permutations. Within `point_estimates()` the
functions of `stats` give the same values, without draws; intervals and p-values are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

_T = TypeVar("_T")

_kept: ContextVar[dict[str, Any] | None] = ContextVar("kept", default=None)
"""Cached values of the context by name; None outside of it, and in other threads."""


@contextmanager
def point_estimates() -> Iterator[None]:
    """Skip everything that only intervals and tests need.

    Intervals and p-values are NaN, and rows without a model, such as baselines, may be missing. Functions that ignore the context
    give the same results.
    """
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def only_points() -> bool:
    """Whether the code runs within `point_estimates`."""
    return _kept.get() is not None


def kept(name: str, make: Callable[[], _T]) -> _T:
    """The result of `make`, cached within `point_estimates`.

    For expensive values that many tables share, such as scores of texts.
    """
    within = _kept.get()
    if within is None:
        return make()
    if name not in within:
        within[name] = make()
    value: _T = within[name]
    return value
