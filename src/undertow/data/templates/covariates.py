"""W lists: the gender-neutral values that are injected into a sentence, with their order and their scale.

A list of numbers is regressed on the numbers (scale "value") or on the place in the list ("index"); a list of words with an
order on the place in the list; an unordered list ("none") on nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from undertow._files import is_plain_file
from undertow.data.text_files import RESOURCES, error_place, first_repeat, read_text, read_toml
from undertow.errors import UndertowError, closest
from undertow.types import Factor

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


def dates_of(values: Sequence[str]) -> tuple[float, ...]:
    """The values as days [w]; () if they are not all ISO dates or times."""
    try:
        times = [datetime.fromisoformat(value.strip()).replace(tzinfo=None) for value in values]
    except ValueError:
        return ()
    return tuple((one - datetime.min) / timedelta(days=1) for one in times)


def direction(numbers: Sequence[float]) -> int:
    """1 where each number is larger than the one before it, -1 where each is smaller, 0 otherwise."""
    steps = np.diff(np.asarray(numbers, dtype=np.float64))
    if (steps > 0).all():
        return 1
    return -1 if (steps < 0).all() else 0


def evenly_spaced(values: Sequence[str], places: Sequence[int] | None = None) -> bool:
    """Whether numbers that rise or fall are evenly spaced, as far as the decimals that they are written with allow.

    Evenly spaced years in whole numbers have steps of, for example, 7 and 8. `places` are those of the values in their list [w], where
    some are left out; 0, 1, 2, ... if not given.
    """
    x = np.asarray(numbers_of(values), dtype=np.float64)
    at = np.arange(len(x), dtype=np.float64) if places is None else np.asarray(places, dtype=np.float64)
    if len(x) < 3 or len(x) != len(at):
        return True
    steps = np.diff(x) / np.diff(at)
    grid = x[0] + (x[-1] - x[0]) * (at - at[0]) / (at[-1] - at[0])
    sizes = np.sort(np.abs(steps))
    rounding = 1e-9 * float(np.abs(x).max())
    exponents = [Decimal(value.strip()).as_tuple().exponent for value in values]
    # One unit of the last decimal that the values are written with, and 1 for whole numbers.
    unit = float(10.0 ** min(0, *(exponent for exponent in exponents if isinstance(exponent, int))))
    is_rounded_grid = bool((np.abs(x - grid) < unit + rounding).all())
    return is_rounded_grid and bool(sizes[-1] <= MAX_STEP_RATIO * sizes[0] + rounding)


MIN_VALUES = 3
"""A line through two points has no error bars."""
MAX_YEAR, MAX_DATES = 10**6, 10**5
AS_LISTED, UNORDERED, BY_DATE = "as listed", "in no order", "dates, earliest first"
"""The order of a list that nothing more is known of, and of one that has none."""
YEARS = ("date", "year")
"""Names of lists whose numbers are years."""


@dataclass(frozen=True, slots=True)
class Covariate:
    """The values of one W, in order.

    Attributes:
        name: what the results call it (`w_name`).
        values: distinct texts [w].
        order: what the list is ordered by, for a reader.
        scale: "value": the covariate is the number; "index": it is the place in the list; "none": the list has no order.
        numbers: the values as numbers [w]; () where they are not all numbers.
        notes: sentences on what was done to the list, and on what its scale ignores.
        parts: the two lists that a crossed list combines, whose values vary with the first one slowest; () for a plain list.
    """

    name: str
    values: tuple[str, ...]
    order: str = AS_LISTED
    scale: str = INDEX
    numbers: tuple[float, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)
    parts: tuple[Covariate, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lists whose values stand in a text."""
        return tuple(part.name for part in self.parts) or (self.name,)

    @property
    def axis(self) -> tuple[float, ...]:
        """Where each value stands on the covariate's axis [w]: the number on the scale "value", else the place in the list."""
        return self.numbers if self.scale == VALUE else tuple(map(float, range(len(self.values))))

    @property
    def unit(self) -> str:
        """The unit of the numbers; "" where they have none, or where the values are words."""
        return "year" if self.numbers and self.name in YEARS else ""

    @property
    def is_uneven(self) -> bool:
        """Whether the values are numbers with uneven steps between them."""
        return bool(self.numbers) and not evenly_spaced(self.values)

    def places(self) -> list[dict[str, Factor]]:
        """What the items of each value say of it: `w_name`, `w_index`, `w_value` (its place on the axis) and `w` [w]."""
        return [
            {"w_name": self.name, "w_index": index, "w_value": x, "w": value}
            for index, (x, value) in enumerate(zip(self.axis, self.values, strict=True))
        ]

    def design_entry(self) -> dict[str, Any]:
        """The order, scale and unit of the list, and whether its steps are uneven, as a run's design holds them.

        A crossed list also has its `parts`: name, values, places on the axis, and these facts of each.
        """
        entry: dict[str, Any] = {"order": self.order, "scale": self.scale, "unit": self.unit, "uneven": self.is_uneven}
        if self.parts:
            entry["parts"] = [
                {"name": part.name, "values": list(part.values), "axis": list(part.axis), **part.design_entry()}
                for part in self.parts
            ]
        return entry

    def summary(self) -> str:
        """One line on the list: its size, its ends, its order and its scale."""
        return list_text(self.name, self.values, self.design_entry())


def list_text(name: str, values: Sequence[str], covariate: Mapping[str, Any]) -> str:
    """One line on a W list of values in order, at least one; `covariate` is its `Covariate.design_entry`."""
    count = f"{name}: {len(values):,} values"
    if covariate.get("parts"):
        first, second = covariate["parts"]
        return (
            f"{count}, each of {len(first['values'])} ({first['name']}) with each of {len(second['values'])} ({second['name']}); tested "
            f"for whether the effect of {first['name']} depends on {second['name']}."
        )
    if covariate["scale"] == NONE:
        return f"{count}, in no order; tested for any difference between them (scale none)."
    step = (
        f"per {covariate['unit'] or 'unit'} (scale value)" if covariate["scale"] == VALUE else "per step (scale index)"
    )
    return f"{count}, from {values[0]} to {values[-1]}; order: {covariate['order']}; slopes are {step}."


@dataclass(frozen=True, slots=True)
class CovariateList:
    """A W list as it was written: texts [w], its file and key for messages, what its author says of its order and scale, or "".

    `default` is the scale of numbers where nobody says one.
    """

    name: str
    values: tuple[str, ...]
    where: str
    order: str = ""
    scale: str = ""
    default: str = VALUE

    def to_covariate(self, wanted: str = "") -> Covariate:
        """The list on its scale, sorted where that needs it.

        `wanted` is a scale that overrides the list's own; "value" leaves lists of words as they are.

        Raises:
            UndertowError: two values are the same number, the scale is "value" and they are no numbers, the scale is "index" and
                they are numbers that neither rise nor fall, or the list has an order and the scale "none".
        """
        check_scale(wanted, "--w-scale")
        with error_place(self.where):
            return self._on_scale(wanted)

    def _on_scale(self, wanted: str) -> Covariate:
        values, numbers = self.values, numbers_of(self.values)
        notes: tuple[str, ...] = ()
        check_scale(self.scale, "scale")
        if self.scale == VALUE and not numbers:
            word = next(value for value in self.values if not numbers_of([value]))
            raise UndertowError(f"scale is {VALUE!r}, but {word!r} is not a number; use {INDEX!r} or {NONE!r}")
        if self.scale == NONE and self.order:
            raise UndertowError(f"has an order and the scale {NONE!r}; leave one of them out")
        own = self.scale or (self.default if numbers else INDEX)
        scale = own if not wanted or (wanted == VALUE and not numbers) else wanted
        if scale == NONE or not numbers:
            return Covariate(self.name, values, UNORDERED if scale == NONE else self.order or AS_LISTED, scale, numbers)
        first_of: dict[float, str] = {}
        for value, number in zip(values, numbers, strict=True):
            if first_of.setdefault(number, value) != value:
                raise UndertowError(f"{first_of[number]!r} and {value!r} are one number; list it once")
        way, order = direction(numbers), self.order
        if scale == INDEX and not way:
            raise UndertowError(
                f"the numbers of {self.name!r} neither rise nor fall, so their positions are no order; "
                f"sort them, or use the scale {VALUE!r}"
            )
        if scale == INDEX and not evenly_spaced(values):
            notes = (uneven_steps(self.name, numbers),)
        if scale == VALUE and way != 1:
            places = sorted(range(len(numbers)), key=numbers.__getitem__)
            values, numbers = tuple(values[at] for at in places), tuple(numbers[at] for at in places)
            way, order = 1, ""
            notes = (
                f"{self.name}: the values were sorted by size, from {values[0]} to {values[-1]}; {self.where} gives them in another order.",
            )
        return Covariate(self.name, values, order or order_by_size(self.name, way), scale, numbers, notes)


def order_by_size(name: str, way: int) -> str:
    """The order of a list of numbers that rise (`way` 1) or fall (-1)."""
    if name in YEARS:
        return "years, earliest first" if way > 0 else "years, latest first"
    return "numbers, smallest first" if way > 0 else "numbers, largest first"


def uneven_steps(name: str, numbers: Sequence[float]) -> str:
    """The warning where numbers with uneven steps between them are on the scale "index"."""
    steps = np.abs(np.diff(np.asarray(numbers)))
    return (
        f"{name}: the steps between its numbers are uneven (from {steps.min():g} to {steps.max():g}), and the scale index counts each as "
        "one step; --w-scale value takes the numbers themselves."
    )


@dataclass(frozen=True, slots=True)
class Dates:
    """Evenly spaced years, both ends included, of which there are at least `least`; a line needs three.

    The default is what the published AAAI data hold.
    """

    start: int = 1801
    stop: int = 2016
    count: int = 30
    least: int = MIN_VALUES

    def to_covariate(self, scale: str = "") -> Covariate:
        """The years as W values, on the scale "index" if none is given.

        Raises:
            UndertowError: the scale is not known, or there are fewer years than `least`, or more years than the range has.
        """
        if self.count < self.least:
            needs = "a slope" if self.least == MIN_VALUES else "a movement"
            raise UndertowError(f"date count {self.count} is too small: {needs} needs at least {self.least} years")
        if max(abs(self.start), abs(self.stop)) > MAX_YEAR or self.count > MAX_DATES:
            raise UndertowError(
                f"{self.count} dates from {self.start} to {self.stop} are too many or too far; ask for up to {MAX_DATES:,} dates and "
                f"years of up to {MAX_YEAR:,}"
            )
        years = [str(year) for year in np.linspace(self.start, self.stop, self.count).astype(int)]
        if len(set(years)) < len(years):
            raise UndertowError(
                f"{self.count} dates do not fit between {self.start} and {self.stop} without repeating a year: "
                "lower --date-count or widen the range"
            )
        return CovariateList("date", tuple(years), "--date-start and --date-stop", default=INDEX).to_covariate(scale)


@cache
def _load_published() -> dict[str, CovariateList]:
    return {
        name: CovariateList(name, tuple(given["values"]), f"W list {name!r}", given["order"], INDEX)
        for name, given in read_toml(RESOURCES / "covariates.toml").items()
    }


def names() -> list[str]:
    """The W lists that come with the package."""
    return ["date", *_load_published()]


def load_covariate(name: str, dates: Dates | None = None, least: int = MIN_VALUES, scale: str = "") -> Covariate:
    """One W by name (`date` with these years, `place`, `subreddit`), or from a file with one value a line, of at least `least` values.

    The scale is "index", "value" or "none"; "" for the list's own, which is "value" for the numbers of a file, else "index". Where the
    values are words, "value" leaves their scale as it is.
    """
    if name == "date":
        return (dates or Dates()).to_covariate(scale)
    if name in _load_published():
        return _load_published()[name].to_covariate(scale)
    path = Path(name)
    if is_plain_file(path):
        lines: dict[str, int] = {}
        for number, line in enumerate(read_text(path).split("\n"), 1):
            if (value := line.strip()) and lines.setdefault(value, number) != number:
                raise UndertowError(f"{path}, line {number}: repeats {value!r} of line {lines[value]}")
        if len(lines) < least:
            needs = "a slope" if least == MIN_VALUES else "a movement"
            raise UndertowError(f"{path}: holds {len(lines) or 'no'} W values, but {needs} needs at least {least}")
        return CovariateList(path.stem, tuple(lines), str(path)).to_covariate(scale)
    raise UndertowError(
        f"there is no W called {name!r} and no such file: use {', '.join(names())}"
        f", or a text file with one value a line{closest(name, names())}"
    )


CROSS = " x "
"""Between the names of two lists whose values stand in one text, in every combination."""


def crossed(name: str, load: Callable[[str], Covariate]) -> Covariate:
    """The list of this name, or two lists crossed for a name such as `date x place`, in the order in which their values stand in a text.

    Raises:
        UndertowError: more than two lists are crossed, or one with itself.
    """
    names = [part.strip() for part in name.split(CROSS)] if not is_plain_file(Path(name)) else [name]
    if len(names) == 1:
        return load(name)
    if len(names) > 2 or len(set(names)) < 2 or not all(names):
        raise UndertowError(f"--w {name!r}: two different lists can be crossed, as in 'date x place'")
    parts = tuple(map(load, names))
    if parts[0].name == parts[1].name:
        raise UndertowError(f"--w {name!r}: both lists are called {parts[0].name!r}; rename one of the files")
    return Covariate(
        CROSS.join(part.name for part in parts),
        tuple(f"{first} in {second}" for first in parts[0].values for second in parts[1].values),
        UNORDERED,
        NONE,
        notes=tuple(note for part in parts for note in part.notes),
        parts=parts,
    )


def published_order(name: str, values: Sequence[str]) -> str:
    """The order of the package's list of this name, where the values are some of its own in its order; else `AS_LISTED`."""
    known = _load_published().get(name)
    rest = iter(known.values if known else ())
    return known.order if known and all(value in rest for value in values) else AS_LISTED


def check_scaled(covariates: Sequence[Covariate], scale: str) -> None:
    """Refuse a `--w-scale` without lists, and the scale "value" where none has numbers."""
    if scale and not covariates:
        raise UndertowError(f"--w-scale {scale}: there is no W list to have a scale; name one with --w")
    if scale == VALUE and not any(covariate.scale == VALUE for covariate in covariates):
        raise UndertowError(
            f"--w-scale {VALUE}: the values of {', '.join(covariate.name for covariate in covariates)} are no numbers; leave it out"
        )


NO_W = "none"
"""The name of no W at all: that of a sentence as it stands."""


def check_covariates(covariates: Sequence[Covariate]) -> None:
    """Refuse W lists that results could not tell apart."""
    called = [covariate.name for covariate in covariates]
    if (twice := first_repeat(called)) is not None:
        raise UndertowError(f"--w names two lists called {twice!r}; name each once, or call a file something else")
    if NO_W in called:
        raise UndertowError(f"--w: a list cannot be called {NO_W!r}, which stands for no W; rename the file")
