"""W values: the gender-neutral spectrum that is injected into a sentence, in the order that the slope is taken over.

Knows the published lists and how to read a user's own; knows nothing about sentences or models.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from undertow.challenge.reading import closest, read_text
from undertow.outside import is_plain_file
from undertow.types import UndertowError

MIN_VALUES = 3
"""A line through two points has no error bars."""
MAX_YEAR, MAX_DATES = 10**6, 10**5


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The values of one W, in order.

    Attributes:
        name: what the results call it (`w_name`).
        values: distinct texts [w].
    """

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dates:
    """Evenly spaced years, both ends included. The default is what the published AAAI data hold.

    Attributes:
        start, stop: the first year and the last.
        count: how many.
        least: the fewest that will do; a line needs three.
    """

    start: int = 1801
    stop: int = 2016
    count: int = 30
    least: int = MIN_VALUES

    def spectrum(self) -> Spectrum:
        """The years as W values.

        Raises:
            UndertowError: fewer years than `least`, or more years than the range has.
        """
        if self.count < self.least:
            needs = "a slope" if self.least == MIN_VALUES else "a movement"
            raise UndertowError(f"date count {self.count} is too small: {needs} needs at least {self.least} years")
        # What does not fit is not drawn up first: a count may be any number.
        if self.count > abs(self.stop - self.start) + 1:
            raise UndertowError(self._too_many())
        if max(abs(self.start), abs(self.stop)) > MAX_YEAR:
            raise UndertowError(f"dates from {self.start} to {self.stop} are no years; give some of up to {MAX_YEAR:,}")
        if self.count > MAX_DATES:
            raise UndertowError(f"{self.count} dates are more than are read; ask for {MAX_DATES:,} or fewer")
        years = [str(year) for year in np.linspace(self.start, self.stop, self.count).astype(int)]
        if len(set(years)) < len(years):
            raise UndertowError(self._too_many())
        return Spectrum("date", tuple(years))

    def _too_many(self) -> str:
        return (
            f"{self.count} dates do not fit between {self.start} and {self.stop} without repeating a year: "
            "lower --date-count or widen the range"
        )


@cache
def _published() -> dict[str, list[str]]:
    text = resources.files("undertow.challenge").joinpath("spectra.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def names() -> list[str]:
    """The W lists that come with the package."""
    return ["date", *_published()]


def spectrum(name: str, dates: Dates | None = None, least: int = MIN_VALUES) -> Spectrum:
    """One W by name (`date`, `place`, `subreddit`), or from a file with one value a line.

    Raises:
        UndertowError: no such list or file, or a file that holds no usable list.
    """
    if name == "date":
        return (dates or Dates()).spectrum()
    if name in _published():
        return Spectrum(name, tuple(_published()[name]))
    path = Path(name)
    if is_plain_file(path):
        return Spectrum(path.stem, _values(path, least))
    raise UndertowError(
        f"there is no W called {name!r} and no such file: use {', '.join(names())}"
        f", or a text file with one value a line{closest(name, names())}"
    )


def _values(path: Path, least: int) -> tuple[str, ...]:
    lines = [(number, line.strip()) for number, line in enumerate(read_text(path).split("\n"), 1) if line.strip()]
    seen: dict[str, int] = {}
    for number, value in lines:
        if value in seen:
            raise UndertowError(f"{path}, line {number}: repeats {value!r} of line {seen[value]}; list each value once")
        seen[value] = number
    check_values(tuple(seen), str(path), least)
    return tuple(seen)


def check_values(values: tuple[str, ...], where: str, least: int = MIN_VALUES) -> None:
    """Refuse a W list that is too short to be measured along.

    Raises:
        UndertowError: fewer than `least` values, or a value repeated.
    """
    if not values:
        raise UndertowError(f"{where}: holds no W values; write one value a line, in the order the slope is taken over")
    if len(values) < least:
        needs = "a slope" if least == MIN_VALUES else "a movement"
        raise UndertowError(f"{where}: holds {len(values)} W values, but {needs} needs at least {least}")
    repeated = [value for value, count in Counter(values).items() if count > 1]
    if repeated:
        raise UndertowError(f"{where}: W value {repeated[0]!r} stands there more than once; list each value once")


NO_W = "none"
"""The name of no W at all: that of a sentence as it stands."""


def check_spectra(spectra: Sequence[Spectrum]) -> None:
    """Refuse W lists that results could not tell apart.

    Raises:
        UndertowError: two of one name, or one that is called as no W is.
    """
    called = [spectrum.name for spectrum in spectra]
    for name in called:
        if called.count(name) > 1:
            raise UndertowError(f"--w names two lists called {name!r}; name each once, or call a file something else")
        if name == NO_W:
            raise UndertowError(
                f"--w: a list cannot be called {NO_W!r}, which stands for no W; call the file something else"
            )
