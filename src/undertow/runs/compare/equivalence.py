"""Margins (smallest differences of interest) and verdicts: differs, equivalent, or inconclusive."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from undertow.errors import UndertowError, closest
from undertow.metrics.metric import OVER_PROMPTS
from undertow.types import ALPHA, Result

DIFFERS = "differs by more than the margin"
EQUIVALENT = "equivalent within the margin"
INCONCLUSIVE = "inconclusive"
VERDICTS = (DIFFERS, EQUIVALENT, INCONCLUSIVE)

MARGIN, INNER_LOW, INNER_HIGH, W_SPAN = "margin", "inner_low", "inner_high", "w_span"
"""Names of `extras`: the margin, the ends of the 90% interval, and the range of W."""
PER = " per "

DEFAULT_MARGINS: Mapping[str, float] = {"percentage points": 0.05, "share": 0.005, "r": 0.005}
"""Default margins by unit: half of the last printed digit of typical numbers (10.1%, .51); 0 for other units."""
OVER_THE_LIST: Mapping[str, float] = {"percentage points": 0.1, "log-odds": 0.01}
"""Margins of slopes, over the whole W list: 0.1 points, or a change of the odds by 1%."""
A_STEP: Mapping[str, float] = {"percentage points": 0.005}
"""Margins of slopes with an unknown range of W, such as those of another package's audit."""


def unit_of_difference(unit: str) -> str:
    """The unit of a difference: percentage points for percentages."""
    return "percentage points" + unit.removeprefix("percent") if unit.split(PER, maxsplit=1)[0] == "percent" else unit


@dataclass(frozen=True, slots=True)
class Margins:
    """Smallest differences of interest.

    Attributes:
        of_all: margin of every metric, in the unit of its difference; NaN for the defaults.
        of: margins by metric, which take precedence; also for the metric's average over prompts.
    """

    of_all: float = math.nan
    of: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_value(cls, margin: float | Mapping[str, float] | None) -> Margins:
        """Margins from one number, 0 or more, numbers by measure ("" for all others), or None for the defaults."""
        if margin is None:
            return cls()
        if isinstance(margin, Mapping):
            of = {str(name): _checked(number, str(name)) for name, number in margin.items()}
            return cls(of.pop("", math.nan), of)
        return cls(of_all=_checked(margin, ""))

    @classmethod
    def from_options(cls, texts: Sequence[str]) -> Margins:
        """Margins from command-line options: `0.1`, `slope=0.01`, comma-separated or repeated; each metric once."""
        of_all, of = math.nan, {}
        for text in (part.strip() for one in texts for part in one.split(",")):
            name, equals, number = (part.strip() for part in text.rpartition("="))
            try:
                value = float(number)
            except ValueError:
                raise UndertowError(
                    f"--margin {text!r} is not a number; write for example --margin 0.1 or --margin slope=0.01,mean_mass=0.5"
                ) from None
            if (equals and (not name or name in of)) or (not equals and not math.isnan(of_all)):
                raise UndertowError(f"--margin {text!r}: name each measure once, and one number for all others")
            if equals:
                of[name] = _checked(value, name)
            else:
                of_all = _checked(value, "")
        return cls(of_all, of)

    def check(self, measures: Iterable[str]) -> None:
        """Refuse a metric that is not compared; the message suggests the nearest."""
        known = dict.fromkeys(measures)
        for name in self.of:
            if name not in known:
                hint = f"use {', '.join(list(known)[:8]) or 'none'}{closest(name, known)}"
                raise UndertowError(f"margin of {name!r}: nothing of that name is compared; {hint}")

    def margin(self, result: Result) -> float:
        """The margin of a difference, by its measure, unit and `w_span`."""
        for name in (result.measure, result.measure.removesuffix(OVER_PROMPTS)):
            if name in self.of:
                return self.of[name]
        if not math.isnan(self.of_all):
            return self.of_all
        unit, _, per = result.unit.partition(PER)
        if not per:
            return DEFAULT_MARGINS.get(unit, 0.0)
        span = result.extras.get(W_SPAN, math.nan)
        return OVER_THE_LIST.get(unit, 0.0) / span if 0 < span < math.inf else A_STEP.get(unit, 0.0)

    @property
    def texts(self) -> list[str]:
        """Margins as options of the command line."""
        of_all = [] if math.isnan(self.of_all) else [f"{self.of_all:.15g}"]
        return of_all + [f"{name}={number:.15g}" for name, number in self.of.items()]

    @property
    def value(self) -> float | dict[str, float] | None:
        """Margins as an argument of `compare`; None for the defaults."""
        of_all = None if math.isnan(self.of_all) else self.of_all
        return {**({} if of_all is None else {"": of_all}), **self.of} if self.of else of_all


def _checked(number: float, name: str) -> float:
    of = f"margin of {name!r}" if name else "margin"
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number) or number < 0:
        raise UndertowError(f"{of} is {number!r}; it must be a number, 0 or more")
    return float(number)


def verdict(difference: Result) -> str:
    """The verdict on a difference: one of `VERDICTS`.

    A difference is larger than its margin if q is below .05 and the 95% interval lies wholly beyond the margin, on either side of 0. It is
    equivalent if the 90% interval lies wholly within the margin: two one-sided tests at .05 (Schuirmann 1987, "A Comparison of the Two
    One-Sided Tests Procedure and the Power Approach"). Without an interval it is inconclusive.
    """
    margin = difference.extras.get(MARGIN, 0.0)
    if difference.q < ALPHA and (difference.low > margin or difference.high < -margin):
        return DIFFERS
    if difference.extras.get(INNER_LOW, math.nan) >= -margin and difference.extras.get(INNER_HIGH, math.nan) <= margin:
        return EQUIVALENT
    return INCONCLUSIVE


def is_significant(difference: Result) -> bool:
    """Whether a difference is significant: it differs by more than its margin."""
    return verdict(difference) == DIFFERS


def fewest_clusters() -> int:
    """Fewest clusters for an interval or a claim."""
    from undertow.stats import MIN_CLUSTERS  # statistics take most of a second to load

    return MIN_CLUSTERS
