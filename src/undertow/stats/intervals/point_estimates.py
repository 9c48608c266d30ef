"""Point estimates alone: a switch that leaves out what only intervals and tests need, for whoever measures the same many times.

A jackknife measures a table again without each of its clusters, and looks at the values only: ten thousand bootstrap draws and as many
permutations each time would be for nothing. Within `point_estimates()` the functions of this room give the same values as
ever, no draws, intervals and p-values that are NaN. Knows nothing about what is estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

_T = TypeVar("_T")

_kept: ContextVar[dict[str, Any] | None] = ContextVar("kept", default=None)
"""What was made within the switch, by name; None outside it. A thread of its own is outside."""


@contextmanager
def point_estimates() -> Iterator[None]:
    """Within this context values are what they are without it, and everything that only errors need is left out.

    What honours it draws nothing: intervals and p-values are NaN. Rows about no model at all, such as baselines, may be missing. What
    does not know of it is as right and as slow as ever.
    """
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def only_points() -> bool:
    """Whether values alone are wanted."""
    return _kept.get() is not None


def kept(name: str, make: Callable[[], _T]) -> _T:
    """What `make` gives: made once within a context of `point_estimates`, and each time outside of any.

    For what costs much and is the same for many tables, such as a cache of scores of texts.
    """
    within = _kept.get()
    if within is None:
        return make()
    if name not in within:
        within[name] = make()
    value: _T = within[name]
    return value
