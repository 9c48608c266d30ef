"""What occupations need most, from the text release of the O*NET database in a user's folder.

Takes the elements of each category with the highest importance (rows of scale IM), equal ones by the alphabet. Columns are found
by name, so that any release with these names is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from undertow.data.tables import read_rows
from undertow.data.text_files import number_between
from undertow.errors import UndertowError

FILES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "skill": (("Skills.txt",), ("Essential Skills.txt", "Transferable Skills.txt")),
    "knowledge": (("Knowledge.txt",),),
    "ability": (("Abilities.txt",),),
}
"""Files of each category, the first set of them that is there. Since release 30.3 skills come in two."""
CODE, ELEMENT, SCALE, VALUE = "O*NET-SOC Code", "Element Name", "Scale ID", "Data Value"
SUPPRESS = "Recommend Suppress"
"""A column that may be absent: Y marks a value of low precision."""
IMPORTANCE = "IM"
LEAST, MOST = 1.0, 5.0
"""The ends of the importance scale."""

_UNRATED = ("", "n/a", "na", "null")
_PATTERN = re.compile(r"[\dx]{2}-[\dx]{4}(\.[\dx]{2})?", re.IGNORECASE)
_EXAMPLES = 5
_DECIMALS = 2
"""Means over several codes are ranked as precisely as O*NET publishes importance, and no more."""


@dataclass(frozen=True, slots=True)
class Rating:
    """One element that an occupation needs.

    Attributes:
        element: its name.
        category: a key of `FILES`.
        importance: 1 to 5; the mean to two decimals, where a pattern stands for several codes.
    """

    element: str
    category: str
    importance: float


@dataclass(frozen=True, slots=True)
class Ratings:
    """What was read of a release.

    Attributes:
        by_occupation: the most important elements of each occupation that is rated, by category, highest importance first.
        notes: who is left out, and which of the elements the release calls imprecise.
    """

    by_occupation: Mapping[str, tuple[Rating, ...]]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Category:
    """What one category's files say.

    Attributes:
        name: a key of `FILES`.
        values: importance of each element, by code.
        imprecise: codes and elements whose suppression is recommended.
    """

    name: str
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    imprecise: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def from_folder(cls, folder: Path, name: str) -> _Category:
        category = cls(name)
        sets = [[folder / one for one in names] for names in FILES[name]]
        paths = next((some for some in sets if all(map(Path.is_file, some))), [])
        if not paths:
            what = (
                "there is no such folder"
                if not folder.is_dir()
                else "has no " + ", or ".join(map(" and ".join, FILES[name]))
            )
            raise UndertowError(f"{folder}: {what}; name the folder with the text release of the O*NET database")
        for path in paths:
            for line, row in read_rows(path, (CODE, ELEMENT, SCALE, VALUE), (".txt",)):
                cells = {column: cell.strip() for column, cell in row.items()}
                if cells[SCALE] == IMPORTANCE and cells[VALUE].lower() not in _UNRATED:
                    category.add(cells, f"{path}, line {line}")
        if not category.values:
            raise UndertowError(f"{paths[0]}: has no value on the scale {IMPORTANCE}; fetch the release again")
        return category

    def add(self, row: Mapping[str, str], where: str) -> None:
        """Take in one row."""
        code, element, importance = row[CODE], row[ELEMENT], number_between(LEAST, MOST, row[VALUE])
        problem = ""
        if not code or not element:
            problem = f"has no {ELEMENT if code else CODE}"
        elif element in self.values.setdefault(code, {}):
            problem = f"rates {element!r} of {code} again"
        elif math.isnan(importance):
            problem = f"{VALUE} is {row[VALUE]!r}, and not an importance from {LEAST:g} to {MOST:g}"
        if problem:
            raise UndertowError(f"{where}: {problem}; fetch the release again")
        self.values[code][element] = importance
        if row.get(SUPPRESS, "").upper() == "Y":
            self.imprecise.add((code, element))

    def codes(self, pattern: str) -> list[str]:
        """The rated codes that a pattern stands for."""
        whole = pattern.lower() if "." in pattern else f"{pattern.lower()}.00"
        fits = re.compile(re.escape(whole).replace("x", "[0-9]"))
        return [code for code in self.values if fits.fullmatch(code)]

    def top(self, pattern: str, n: int) -> list[Rating]:
        """The elements of the highest importance, averaged over the codes that rate them."""
        rated: dict[str, list[float]] = {}
        for code in self.codes(pattern):
            for element, value in self.values[code].items():
                rated.setdefault(element, []).append(value)
        means = {element: round(fmean(values), _DECIMALS) for element, values in rated.items()}
        ranked = sorted(means, key=lambda element: (-means[element], element))
        return [Rating(element, self.name, means[element]) for element in ranked[:n]]


def is_code(pattern: str) -> bool:
    """Whether this is an O*NET-SOC code, or a pattern of them: x for any digit, as in 25-1xxx.00; without its end it is .00."""
    return _PATTERN.fullmatch(pattern) is not None


def read_onet(folder: str | Path, wanted: Mapping[str, str], top: int = 5) -> Ratings:
    """The `top` most important skills, kinds of knowledge and abilities of each occupation.

    A pattern such as 25-1xxx.00 stands for all rated codes that fit: importance is averaged over them, to two decimals, and then ranked.
    Values whose suppression is recommended count as they stand, and are noted. Occupations that lack ratings of a category
    are left out, and noted.

    Args:
        folder: with `Skills.txt`, `Knowledge.txt` and `Abilities.txt`.
        wanted: code, or pattern of codes, by the name of the occupation.
        top: elements of each category, at most.

    Raises:
        UndertowError: a file or column is missing, a row is corrupt (names file and line), or none of the occupations is rated.
    """
    if top < 1:
        raise UndertowError(f"top is {top}; take at least 1 attribute of each category")
    bad = next((name for name, pattern in wanted.items() if not is_code(pattern)), None)
    if bad is not None:
        raise UndertowError(
            f"{bad!r} has the code {wanted[bad]!r}, which no O*NET release has; write one such as 29-1141.00, or 25-1xxx.00 for several"
        )
    categories = [_Category.from_folder(Path(folder), name) for name in FILES]
    by_occupation: dict[str, tuple[Rating, ...]] = {}
    left_out, imprecise, notes = list[str](), list[str](), list[str]()
    for occupation, pattern in wanted.items():
        lacking = [category.name for category in categories if not category.codes(pattern)]
        if lacking:
            left_out.append(f"{occupation} ({pattern}, no {' or '.join(lacking)})")
            continue
        rated = [(category, rating) for category in categories for rating in category.top(pattern, top)]
        by_occupation[occupation] = tuple(rating for _, rating in rated)
        imprecise += [
            f"{rating.element} of {occupation}"
            for category, rating in rated
            if any((code, rating.element) in category.imprecise for code in category.codes(pattern))
        ]
    if not by_occupation:
        raise UndertowError(
            f"{folder}: rates none of the occupations, such as {left_out[0]}; check their codes, or take another release"
        )
    if left_out:
        notes.append(f"left out, because the O*NET release does not rate them in every category: {', '.join(left_out)}")
    if imprecise:
        examples = ", ".join(imprecise[:_EXAMPLES]) + (", ..." if len(imprecise) > _EXAMPLES else "")
        notes.append(
            f"{len(imprecise)} of the attributes rest on values that the O*NET release calls imprecise ({SUPPRESS}): {examples}"
        )
    return Ratings(by_occupation, tuple(notes))
