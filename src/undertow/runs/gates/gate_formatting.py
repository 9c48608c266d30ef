"""Format numbers, labels and text in the messages of a gate."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

REPLACED = "\N{REPLACEMENT CHARACTER}"
_UNSHOWN = {"Cc", "Cs", "Zl", "Zp"}
"""Unicode categories that control a terminal, or that XML or UTF-8 cannot represent."""
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Bidirectional control characters, which could change the apparent meaning of a message."""
MIN_DIGITS, MAX_DIGITS = 3, 17


def printable(text: str) -> str:
    """The text with a replacement for control characters and for characters that XML cannot hold."""

    def is_printable(sign: str) -> bool:
        return unicodedata.category(sign) not in _UNSHOWN and sign not in _TURNING and ord(sign) & 0xFFFE != 0xFFFE

    return "".join(sign if is_printable(sign) else REPLACED for sign in text)


def formatted(number: float, thresholds: Iterable[float] = ()) -> str:
    """A number with three significant digits, or as many as needed to distinguish it from the thresholds."""
    if number.is_integer() and abs(number) < 1e15:
        return f"{number:.0f}"
    before_point = math.floor(math.log10(abs(number))) + 1
    finite = [one for one in thresholds if math.isfinite(one)]
    text = ""
    for digits in range(max(MIN_DIGITS, min(before_point, MAX_DIGITS)), MAX_DIGITS + 1):
        text = f"{number:.{digits}g}"
        if all(_side(float(text), one) == _side(number, one) for one in finite):
            break
    return text


def _side(number: float, threshold: float) -> int:
    return (number > threshold) - (number < threshold)


def labels(groups: Sequence[Mapping[str, str]], left_out: Iterable[str]) -> list[tuple[str, ...]]:
    """Short labels that distinguish results: their levels, with keys where levels are ambiguous [result]."""
    silent = set(left_out)
    names = [tuple(level for key, level in group.items() if level and key not in silent) for group in groups]
    if len(set(names)) < len(names):
        names = [tuple(f"{key}={level}" for key, level in group.items() if level) for group in groups]
    seen: dict[tuple[str, ...], int] = {}
    apart = []
    for one in names:
        seen[one] = seen.get(one, 0) + 1
        apart.append(one if seen[one] == 1 else (*one, f"#{seen[one]}"))
    return apart
