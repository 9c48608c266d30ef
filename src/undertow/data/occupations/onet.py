"""What occupations need most, from the text release of the O*NET database in a user's folder.

Takes the elements of each category with the highest importance (rows of scale IM), equal ones by the alphabet. Columns are found
by name, so that any release with these names is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from undertow.data.documents.document_set import file_text, missing
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
        places: where it stands, by code and element.
        imprecise: codes and elements whose suppression is recommended.
    """

    name: str
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    places: dict[tuple[str, str], str] = field(default_factory=dict)
    imprecise: set[tuple[str, str]] = field(default_factory=set)

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

    def imprecise_of(self, pattern: str, n: int) -> list[str]:
        """Which of these elements rest on a value whose suppression is recommended."""
        codes = self.codes(pattern)
        top = [rating.element for rating in self.top(pattern, n)]
        return [element for element in top if any((code, element) in self.imprecise for code in codes)]

    def add(self, row: Mapping[str, str], where: str) -> None:
        """Take in one row, unless it has no value."""
        if row[VALUE].lower() in _UNRATED:
            return
        code, element = row[CODE], row[ELEMENT]
        if not code or not element:
            raise UndertowError(f"{where}: has no {CODE if not code else ELEMENT}; fetch the release again")
        first = self.places.setdefault((code, element), where)
        if first != where:
            raise UndertowError(f"{where}: rates {element!r} of {code} again, after {first}; fetch the release again")
        importance = number_between(LEAST, MOST, row[VALUE])
        if math.isnan(importance):
            raise UndertowError(
                f"{where}: {VALUE} is {row[VALUE]!r}, and not an importance from {LEAST:g} to {MOST:g}; fetch the release again"
            )
        self.values.setdefault(code, {})[element] = importance
        if row.get(SUPPRESS, "").upper() == "Y":
            self.imprecise.add((code, element))


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
    categories = [_read_category(Path(folder), name) for name in FILES]
    ratings: dict[str, tuple[Rating, ...]] = {}
    left_out: list[str] = []
    imprecise: list[str] = []
    for occupation, pattern in wanted.items():
        lacking = [category.name for category in categories if not category.codes(pattern)]
        if lacking:
            left_out.append(f"{occupation} ({pattern}, no {' or '.join(lacking)})")
            continue
        ratings[occupation] = tuple(rating for category in categories for rating in category.top(pattern, top))
        imprecise += [
            f"{name} of {occupation}" for category in categories for name in category.imprecise_of(pattern, top)
        ]
    if not ratings:
        raise UndertowError(
            f"{folder}: rates none of the occupations, such as {left_out[0]}; check their codes, or take another release"
        )
    return Ratings(ratings, tuple(_notes(left_out, imprecise)))


def _notes(left_out: Sequence[str], imprecise: Sequence[str]) -> Iterator[str]:
    if left_out:
        yield f"left out, because the O*NET release does not rate them in every category: {', '.join(left_out)}"
    if imprecise:
        examples = ", ".join(imprecise[:_EXAMPLES]) + (", ..." if len(imprecise) > _EXAMPLES else "")
        yield (
            f"{len(imprecise)} of the attributes rest on values that the O*NET release calls imprecise ({SUPPRESS}): {examples}"
        )


def _read_category(folder: Path, name: str) -> _Category:
    category = _Category(name)
    paths = _files(folder, FILES[name])
    for path in paths:
        for where, row in _importance_rows(path):
            category.add(row, where)
    if not category.values:
        raise UndertowError(f"{paths[0]}: has no value on the scale {IMPORTANCE}; fetch the release again")
    return category


def _files(folder: Path, sets: Sequence[tuple[str, ...]]) -> tuple[Path, ...]:
    """The first set of files that is in the folder."""
    if not folder.is_dir():
        what = "is a file and no folder; unpack it" if folder.exists() else "there is no such folder; check the path"
        raise UndertowError(f"{folder}: {what}, and name the folder with the text release of the O*NET database")
    for names in sets:
        paths = tuple(folder / name for name in names)
        if all(path.is_file() for path in paths):
            return paths
    wanted = ", or ".join(" and ".join(names) for names in sets)
    raise UndertowError(f"{folder}: has no {wanted}; name the folder with the text release of the O*NET database")


def _importance_rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Where each row of importance stands, and those of its cells that are read, by column."""
    numbered = ((number, line.removesuffix("\r")) for number, line in enumerate(file_text(path).split("\n"), 1))
    lines = [(number, line) for number, line in numbered if line.strip()]
    columns = [cell.strip() for cell in (lines[0][1] if lines else "").split("\t")]
    problem = missing(path, (CODE, ELEMENT, SCALE, VALUE), columns)
    if problem:
        raise problem
    scale = columns.index(SCALE)
    read = {column: columns.index(column) for column in (CODE, ELEMENT, VALUE, SUPPRESS) if column in columns}
    for number, line in lines[1:]:
        cells = line.split("\t")
        where = f"{path}, line {number}"
        if len(cells) != len(columns):
            raise UndertowError(
                f"{where}: has {len(cells)} cell{'s' if len(cells) > 1 else ''}, but the header has {len(columns)}; fetch the release again"
            )
        if cells[scale].strip() == IMPORTANCE:
            yield where, {column: cells[place].strip() for column, place in read.items()}
