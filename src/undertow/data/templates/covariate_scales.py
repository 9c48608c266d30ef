"""Scales of a W list: which texts are numbers, in which direction they go, and whether their steps are even."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from undertow.data.text_files import closest
from undertow.errors import UndertowError

INDEX, VALUE, NONE = "index", "value", "none"
SCALES = (INDEX, VALUE, NONE)
"""What the x axis of a W list is: the place in the list, the number itself, or nothing, where the list has no order."""
MAX_STEP_RATIO = 1.5
"""Steps of 2 and 3 years are an even list in whole years; steps of 1 and 2 years are not."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_MAX_DIGITS = 40


def check_scale(scale: str, where: str) -> None:
    """Refuse a scale that is not known; "" stands for the list's own."""
    if scale and scale not in SCALES:
        raise UndertowError(f"{where} must be {', '.join(SCALES)}, got {scale!r}{closest(scale, SCALES)}")


def numbers_of(values: Sequence[str]) -> tuple[float, ...]:
    """The values as numbers [w]; () where they are not all finite decimal numbers."""
    texts = [value.strip() for value in values]
    if not all(len(text) <= _MAX_DIGITS and _NUMBER.fullmatch(text) for text in texts):
        return ()
    numbers = tuple(float(text) for text in texts)
    return numbers if all(map(math.isfinite, numbers)) else ()


def direction(numbers: Sequence[float]) -> int:
    """1 where each number is larger than the one before it, -1 where each is smaller, 0 otherwise."""
    steps = np.diff(np.asarray(numbers, dtype=np.float64))
    if (steps > 0).all():
        return 1
    return -1 if (steps < 0).all() else 0


def evenly_spaced(values: Sequence[str], places: Sequence[int] | None = None) -> bool:
    """Whether numbers that rise or fall are evenly spaced, as far as the decimals that they are written with allow.

    Evenly spaced years in whole numbers have steps of, for example, 7 and 8.

    Args:
        values: decimal numbers as texts [w], in order.
        places: the place of each in its list [w], where some are left out; 0, 1, 2, ... if not given.
    """
    x = np.asarray(numbers_of(values), dtype=np.float64)
    at = np.arange(len(x), dtype=np.float64) if places is None else np.asarray(places, dtype=np.float64)
    if len(x) < 3 or len(x) != len(at):
        return True
    steps = np.diff(x) / np.diff(at)
    grid = x[0] + (x[-1] - x[0]) * (at - at[0]) / (at[-1] - at[0])
    sizes = np.sort(np.abs(steps))
    rounding = 1e-9 * float(np.abs(x).max())
    is_rounded_grid = bool((np.abs(x - grid) < _resolution(values) + rounding).all())
    return is_rounded_grid and bool(sizes[-1] <= MAX_STEP_RATIO * sizes[0] + rounding)


def _resolution(values: Sequence[str]) -> float:
    """One unit of the last decimal that the values are written with, and 1 for whole numbers."""
    exponents = [Decimal(value.strip()).as_tuple().exponent for value in values]
    return float(10.0 ** min(0, *(exponent for exponent in exponents if isinstance(exponent, int))))
