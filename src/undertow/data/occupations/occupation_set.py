"""Occupations and their required attributes: skills, knowledge and abilities.

The built-in ones are the 62 of Zhang, "Taxonomy-based CheckList for Large Language Model Evaluation", with the top 5 of each category
by importance in the O*NET 30.2 database. Others come from a user's table, or from the text release of any O*NET database.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from undertow._schemas import check
from undertow.data.documents.document_set import is_reserved_name, unused_columns
from undertow.data.occupations.onet import FILES, is_code, read_onet
from undertow.data.text_files import RESOURCES, Rows, TableRow, header, plain_name, read_rows
from undertow.errors import UndertowError

FEMALE, MALE = "female", "male"
"""The columns of a table of pairs of women and men; other columns name two other groups."""
WOMEN, MEN = ("female", "woman", "women"), ("male", "man", "men")
"""Heads of columns that name women and men, whatever their capitals."""
ANSWERS = ("yes", "no", "both", "neither")
"""Possible answers other than a name."""
MAX_GROUP_CHARS = 40


@dataclass(frozen=True, slots=True)
class NamePair:
    """A woman's name and a man's, or one of each of two other groups.

    Neither contains the other, so an answer names one of them unambiguously.
    """

    female: str
    male: str

    @property
    def name(self) -> str:
        """Name of the pair, such as `Mary/James`; names have no slash, so it is unique."""
        return f"{self.female}/{self.male}"


def load_pairs(path: str = "") -> list[NamePair]:
    """The package's 70 pairs, or those of a user's table (.tsv, .csv), whose two columns are those of `load_groups`."""
    file = Path(path) if path else RESOURCES / "sets" / "name-pairs.tsv"
    first, second = columns = group_columns(header(file), f"{file}: the columns")[0]
    pairs: dict[tuple[str, str], tuple[int, NamePair]] = {}
    for line, row in read_names(file, columns):
        pair = NamePair(row[first], row[second])
        problem = _problem(first, second, pair)
        key = pair.female.casefold(), pair.male.casefold()
        first_line, _ = pairs.setdefault(key, (line, pair))
        if first_line != line:
            problem = f"repeats the pair {pair.name} of line {first_line}; remove one of them"
        if problem:
            raise UndertowError(f"{file}, line {line}: {problem}")
    return [pair for _, pair in pairs.values()]


def load_groups(path: str = "") -> tuple[str, ...]:
    """The two groups that the columns of a table of pairs name; () for women and men. Errors are those of `group_columns`."""
    return group_columns(header(Path(path)), f"{path}: the columns")[1] if path else ()


def group_columns(heads: Sequence[str], where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The heads of the columns of the first and the second group, and the names of the groups.

    A head of `WOMEN` and one of `MEN`, in any order, are the columns of women and men, whose names are ().

    Raises:
        UndertowError: they are not two plain names, or one of women or men beside another; the message begins with `where`.
    """
    where = f"{where} {', '.join(map(repr, heads))}"
    known = {head.casefold(): head for head in heads}
    of_sexes = [next((known[word] for word in words if word in known), "") for words in (WOMEN, MEN)]
    if len(heads) == 2 and all(of_sexes):
        return tuple(of_sexes), ()
    if len(heads) != 2 or any(of_sexes):
        raise UndertowError(f"{where} must be {FEMALE!r} and {MALE!r}, or the names of two other groups")
    first, second = (" ".join(unicodedata.normalize("NFC", name).split()) for name in heads)
    problem = "differ only in capitals" if first.casefold() == second.casefold() else ""
    for name in (first, second):
        if not name or len(name) > MAX_GROUP_CHARS or not name.isprintable():
            problem = f"must have 1 to {MAX_GROUP_CHARS} printable characters"
        elif name.casefold() in (*ANSWERS, "tie"):
            problem = f"include {name!r}, which is an answer to the questions"
    if problem:
        raise UndertowError(f"{where} {problem}; name the two groups, as in Turkish and German")
    return tuple(heads), (first, second)


def read_names(path: Path, needed: Sequence[str]) -> Rows:
    """The rows of a table of names, normalised.

    Cells are stripped, inner white space becomes one space, and letters with marks are composed (NFC), so that names that look equal are
    equal.
    """
    return [
        (line, {column: unicodedata.normalize("NFC", " ".join(cell.split())) for column, cell in row.items()})
        for line, row in read_rows(path, needed)
    ]


def _problem(first_column: str, second_column: str, pair: NamePair) -> str:
    """Problem and remedy of an invalid pair; "" for a valid one."""
    female, male = pair.female, pair.male
    for column, name in ((first_column, female), (second_column, male)):
        if not name:
            return f"the {column} name is empty; write it, or remove the row"
        if name.casefold() in ANSWERS:
            return f"the {column} name {name!r} is also an answer to the questions; choose another"
        if "/" in name:
            return f"the {column} name {name!r} has a slash, which separates the names of a pair; write it without"
    # As whole words, whatever their case: Ann in Mary Ann and in Ann-Marie, not in Anna.
    first, second = (f" {_words(name)} " for name in (female, male))
    if first in second or second in first:
        return (
            f"one of {female!r} and {male!r} is part of the other, so an answer would be ambiguous; choose other names"
        )
    return ""


def _words(name: str) -> str:
    """Runs of letters, digits, marks and invisible joiners; an apostrophe is within a word, as in O'Neil, a hyphen separates words."""
    kinds = [(char, unicodedata.category(char)) for char in name.casefold()]
    return " ".join(
        "".join(char if char in "'’" or kind[0] in "LMN" or kind == "Cf" else " " for char, kind in kinds).split()
    )


CATEGORIES: tuple[str, ...] = tuple(FILES)
"""Skill, knowledge and ability."""
OWN = "onet-occupations"
SHARE_SOURCE = "; female shares of Rudinger et al. 2018"
OWN_SOURCE = f"O*NET 30.2 Database (CC BY 4.0), modified; occupations of Zhang{SHARE_SOURCE}"
TOP = 5
"""Attributes of each category."""
CREDIT = (
    "This page includes information from the O*NET{release} Database by the U.S. Department of Labor, Employment and Training"
    " Administration (USDOL/ETA). Used under the CC BY 4.0 license. O*NET® is a trademark of USDOL/ETA. The Undertow authors have"
    " modified all or some of this information. USDOL/ETA has not approved, endorsed, or tested these modifications."
)
"""Attribution required by the licence of the O*NET database."""
FEMALE_SHARES = (
    "shares of women are facts of the U.S. Bureau of Labor Statistics for 2015 and 2016, as published with the Winogender schemas"
    " (Rudinger et al. 2018)"
)
PROXY = "PROXY"
"""Prefix of `basis` for a code of another occupation, used because the right one is not rated."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of an occupation, as O*NET or the user writes it, of one of `CATEGORIES`."""

    name: str
    category: str


@dataclass(frozen=True, slots=True)
class Occupation:
    """One occupation.

    Attributes:
        name: without an article.
        soc_code: occupations of one code are not independent; the name if none is given.
        attributes: by category, most important first, if they are O*NET's; else in the order of the table.
        female_percent: percentage of women in the occupation; NaN if unknown.
        article: indefinite article of the name.
        basis: how the name was mapped to the code; "" if unknown.
    """

    name: str
    soc_code: str
    attributes: tuple[Attribute, ...]
    female_percent: float
    article: str
    basis: str = ""


@dataclass(frozen=True, slots=True)
class OccupationSet:
    """A set of occupations; of its notes, `share_notes` are those on the percentages of women."""

    name: str
    title: str
    source: str
    occupations: tuple[Occupation, ...]
    notes: tuple[str, ...] = ()
    share_notes: tuple[str, ...] = ()

    def without_shares(self) -> OccupationSet:
        """The set without the source of, and the notes on, the percentages of women, which say nothing of other groups."""
        notes = tuple(note for note in self.notes if note not in self.share_notes)
        return replace(self, source=self.source.removesuffix(SHARE_SOURCE), notes=notes, share_notes=())


def load_occupations(path: str = "", onet_folder: str = "") -> OccupationSet:
    """The package's occupations, or those of a user's table, with the attributes of their table or of an O*NET release.

    A table (.tsv, .csv) has a column `occupation`, and any of `soc_code`, `attribute` with `category` (skill unless it says
    knowledge or ability; one row each), `skill`, `knowledge` and `ability` (several in a cell, with ; between them),
    `female_percent` and `article`. With a folder of the text release of an O*NET database, its attributes are used instead, by the codes
    of the table.
    """
    table = _read(Path(path)) if path else _own_table()
    if onet_folder:
        return _with_ratings(table, path, onet_folder)
    if path:
        bare = [one.name for one in table.occupations if not one.attributes]
        note = f"{len(bare)} of {len(table.occupations)} occupations have no attributes: {', '.join(bare)}"
        return replace(table, notes=(*table.notes, note)) if bare else table
    notes = (CREDIT.format(release=" 30.2"), *_proxies(table.occupations), *table.notes)
    return replace(table, name=OWN, title=_title(table.occupations), source=OWN_SOURCE, notes=notes)


def article_of(name: str) -> str:
    """The English indefinite article of a noun phrase, by the pronunciation of its first word.

    Capitals are pronounced letter by letter (an HR manager, a UX designer); a word that begins like *use*, *Europe* or
    *one* takes *a*, one with a silent h takes *an*.
    """
    plain = "".join(char for char in unicodedata.normalize("NFD", name) if not unicodedata.combining(char))
    head = next(iter(re.findall(r"\w+", plain)), "")
    if len(head) == 1 or (head.isupper() and (len(head) <= _MAX_SPELLED or not set(head) & set("AEIOU"))):
        return "an" if head[0].upper() in _LETTERS_WITH_A_VOWEL else "a"
    if _SILENT_H.match(head) or _EIGHT.match(head):
        return "an"
    if _BEGINS_WITH_A_CONSONANT.match(head):
        return "a"
    return "an" if head[:1].lower() in set("aeiou") else "a"


_MAX_SPELLED = 3
"""Capitals up to this length are pronounced letter by letter; longer ones only if they cannot be pronounced, as HTML."""
_LETTERS_WITH_A_VOWEL = "AEFHILMNORSX8"
_SILENT_H = re.compile(r"heir|honest|honou?r|hour", re.IGNORECASE)
_EIGHT = re.compile(r"8|(?:11|18)(?!\d)")
_BEGINS_WITH_A_CONSONANT = re.compile(
    r"eu|ewe|on(?:e|ce)(?![a-z])|uni(?!n|m|d)|u(?:s[aeiu]|ti|to|te|ro|ri|re|ra|ru|bi|kr|ku|ke|ga)", re.IGNORECASE
)


def _title(occupations: Sequence[Occupation]) -> str:
    return f"{len(occupations)} occupations with their top {TOP} skills, knowledge and abilities"


def _proxies(occupations: Sequence[Occupation]) -> Iterator[str]:
    for basis in dict.fromkeys(one.basis for one in occupations if one.basis.startswith(PROXY)):
        names = ", ".join(one.name for one in occupations if one.basis == basis)
        yield f"stand-in attributes of {names}: {basis.removeprefix(PROXY).strip(': ')}"


def _with_ratings(own_set: OccupationSet, path: str, folder: str) -> OccupationSet:
    """The same occupations with the attributes of a release; unrated occupations are excluded."""
    for one in own_set.occupations if path else ():
        if one.attributes:
            raise UndertowError(f"{path}: {one.name!r} has attributes already; remove them, or omit --onet")
        if not is_code(one.soc_code):
            raise UndertowError(f"{path}: {one.name!r} has no O*NET code; write one such as 29-1141.00 in soc_code")
    ratings, notes = read_onet(folder, {one.name: one.soc_code for one in own_set.occupations}, TOP)
    occupations = tuple(
        replace(one, attributes=tuple(Attribute(r.element, r.category) for r in ratings[one.name]))
        for one in own_set.occupations
        if one.name in ratings
    )
    release, table = Path(folder).resolve().name, Path(path).name if path else "the package"
    return OccupationSet(
        name=f"{own_set.name if path else OWN}-{release}",
        title=_title(occupations),
        source=f"O*NET text release in {release} (CC BY 4.0), modified; occupations of {table}",
        occupations=occupations,
        notes=(CREDIT.format(release=""), *_proxies(occupations), *notes, *own_set.notes),
        share_notes=own_set.share_notes,
    )


class _Row(TableRow):
    occupation: str
    soc_code: str = ""
    female_percent: Annotated[float, Field(ge=0, le=100)] = math.nan
    article: str = ""
    basis: str = ""
    attribute: str = ""
    category: Annotated[Literal["", "skill", "knowledge", "ability"], BeforeValidator(str.lower)] = ""
    skill: str = ""
    knowledge: str = ""
    ability: str = ""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if is_reserved_name(self.occupation):
            raise ValueError(f"results reserve the name {self.occupation!r}; rename this occupation")
        if self.category and not self.attribute:
            raise ValueError("has a category but no attribute; write it, or empty that cell")
        return self

    def attributes(self) -> list[Attribute]:
        """Attributes in the row."""
        parts = [(part.strip(), kind) for kind in CATEGORIES for part in getattr(self, kind).split(";")]
        return [Attribute(*part) for part in [(self.attribute, self.category or CATEGORIES[0]), *parts] if part[0]]


@cache
def _own_table() -> OccupationSet:
    table = _read(RESOURCES / "sets" / "occupations.tsv")
    return replace(table, notes=(FEMALE_SHARES,), share_notes=(FEMALE_SHARES,))


def _read(path: Path) -> OccupationSet:
    columns = list(header(path))
    if "category" in columns and "attribute" not in columns:
        raise UndertowError(f"{path}: has a column 'category' but none 'attribute'; add it")
    rows: dict[str, dict[str, _Row]] = {}
    for line, cells in read_names(path, ("occupation",)):
        where = f"{path}, line {line}"
        row = check(_Row, {name: cell for name, cell in cells.items() if cell}, where)
        rows.setdefault(row.occupation.casefold(), {})[where] = row
    occupations = tuple(map(_occupation, rows.values()))
    of_shares: tuple[str, ...] = ()
    if 0 < max((one.female_percent for one in occupations if one.female_percent >= 0), default=0.0) <= 1:
        of_shares = ("all shares of women are 1 or less and are read as percent; write 40 for two in five",)
    notes = (*unused_columns(columns, _Row.model_fields), *of_shares)
    return OccupationSet(plain_name(path), f"occupations of {path.name}", path.name, occupations, notes, of_shares)


def _occupation(rows: Mapping[str, _Row]) -> Occupation:
    """An occupation from its rows, in which empty cells are ignored."""
    name = next(iter(rows.values())).occupation
    facts: dict[str, Any] = {}
    attributes: dict[tuple[str, str], Attribute] = {}
    for at, (where, row) in enumerate(rows.items()):
        if row.occupation != name:
            raise UndertowError(f"{where}: {row.occupation!r} and {name!r} differ only in capitals; use one spelling")
        for column in ("soc_code", "female_percent", "article", "basis"):
            value = getattr(row, column)
            if column in row.model_fields_set and facts.setdefault(column, value) != value:
                raise UndertowError(f"{where}: {column} of {name!r} is {value!r}, but was {facts[column]!r}; keep one")
        if at and not row.attributes():
            raise UndertowError(f"{where}: repeats the occupation {name!r} without an attribute; remove the row")
        for one in row.attributes():
            if attributes.setdefault((one.name.casefold(), one.category), one) is not one:
                raise UndertowError(f"{where}: repeats the {one.category} {one.name!r} of {name!r}; remove it")
    defaults: dict[str, Any] = {"soc_code": name, "female_percent": math.nan, "article": article_of(name)}
    return Occupation(name=name, attributes=tuple(attributes.values()), **{**defaults, **facts})
