"""Occupations and the attributes that they need: skills, knowledge and abilities.

The package's own are the 62 of Zhang, "Taxonomy-based CheckList for Large Language Model Evaluation", with the top 5 of each
category by importance in the O*NET 30.2 database. Others come from a user's table, or from the text release of any O*NET
database.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from undertow._schemas import check
from undertow.data.documents.document_set import is_reserved_name, unused_columns
from undertow.data.occupations.onet import FILES, is_code, read_onet
from undertow.data.tables import Rows, TableRow, header, plain_name, read_rows
from undertow.data.text_files import RESOURCES, closest
from undertow.errors import UndertowError

FEMALE, MALE = "female", "male"
"""The columns of a table of pairs."""
ANSWERS = ("yes", "no", "both", "neither")
"""What may be answered beside a name."""


@dataclass(frozen=True, slots=True)
class NamePair:
    """A woman's name and a man's.

    Neither contains the other, so an answer names one of them unambiguously.
    """

    female: str
    male: str

    @property
    def name(self) -> str:
        """What the pair is called: `Mary/James`. Names have no slash, so that no two pairs are called alike."""
        return f"{self.female}/{self.male}"


def load_pairs(path: str = "") -> list[NamePair]:
    """The package's 70 pairs, or those of a user's table (.tsv, .csv) with the columns `female` and `male`."""
    file = Path(path) if path else RESOURCES / "sets" / "name-pairs.tsv"
    pairs: dict[tuple[str, str], tuple[int, NamePair]] = {}
    for line, row in read_names(file, (FEMALE, MALE)):
        extra = next((column for column in row if column not in (FEMALE, MALE)), None)
        if extra is not None:
            raise UndertowError(f"{file}: column {extra!r} is not used{closest(extra, (FEMALE, MALE))}; drop it")
        pair = NamePair(row[FEMALE], row[MALE])
        problem = _problem(pair.female, pair.male)
        key = pair.female.casefold(), pair.male.casefold()
        first_line, _ = pairs.setdefault(key, (line, pair))
        if first_line != line:
            problem = f"repeats the pair {pair.name} of line {first_line}; drop one of them"
        if problem:
            raise UndertowError(f"{file}, line {line}: {problem}")
    return [pair for _, pair in pairs.values()]


def read_names(path: Path, needed: Sequence[str]) -> Rows:
    """The rows of a table whose cells are names, each written in one way.

    White space around a cell goes, and within it is one space each; letters with marks are composed (NFC), so that names that
    look alike are alike.
    """
    return [
        (line, {column: unicodedata.normalize("NFC", " ".join(cell.split())) for column, cell in row.items()})
        for line, row in read_rows(path, needed)
    ]


def _problem(female: str, male: str) -> str:
    """What is wrong with a pair and how to fix it; "" for a valid one."""
    for column, name in ((FEMALE, female), (MALE, male)):
        if not name:
            return f"the {column} name is empty; write it, or drop the row"
        if name.casefold() in ANSWERS:
            return f"the {column} name {name!r} is an answer to the questions too; choose another"
        if "/" in name:
            return f"the {column} name {name!r} has a slash, which stands between the names of a pair; write it without"
    # As whole words, whatever their case: Ann in Mary Ann and in Ann-Marie, not in Anna.
    first, second = (f" {_words(name)} " for name in (female, male))
    if first in second or second in first:
        return f"one of {female!r} and {male!r} is a part of the other, so that an answer could mean either; choose names apart"
    return ""


def _words(name: str) -> str:
    """Runs of letters, digits and marks, unseen joiners too. An apostrophe is within a word, as in O'Neil; a hyphen is between."""
    kinds = [(char, unicodedata.category(char)) for char in name.casefold()]
    return " ".join(
        "".join(char if char in "'’" or kind[0] in "LMN" or kind == "Cf" else " " for char, kind in kinds).split()
    )


CATEGORIES: tuple[str, ...] = tuple(FILES)
"""Skill, knowledge and ability."""
OWN = "onet-occupations"
OWN_SOURCE = "O*NET 30.2 Database (CC BY 4.0), modified; occupations of Zhang; female shares of Rudinger et al. 2018"
TOP = 5
"""Attributes of each category."""
CREDIT = (
    "This page includes information from the O*NET{release} Database by the U.S. Department of Labor, Employment and Training"
    " Administration (USDOL/ETA). Used under the CC BY 4.0 license. O*NET® is a trademark of USDOL/ETA. The Undertow authors have"
    " modified all or some of this information. USDOL/ETA has not approved, endorsed, or tested these modifications."
)
"""What the licence of the O*NET database asks to be said beside what is made of it."""
FEMALE_SHARES = (
    "shares of women are facts of the U.S. Bureau of Labor Statistics for 2015 and 2016, as published with the Winogender schemas"
    " (Rudinger et al. 2018)"
)
PROXY = "PROXY"
"""How the basis of a code begins that stands for another occupation, because the right one is not rated."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """Something that an occupation needs.

    Attributes:
        name: as O*NET or the user writes it.
        category: one of `CATEGORIES`.
    """

    name: str
    category: str


@dataclass(frozen=True, slots=True)
class Occupation:
    """One occupation.

    Attributes:
        name: without an article.
        soc_code: occupations of one code are not independent of each other; the name itself where none is given.
        attributes: by category, most important first, if they are O*NET's; else in the order of the table.
        female_percent: women among those who work in it, in percent; NaN where it is not known.
        article: what stands before the name.
        basis: how the name was mapped to the code; "" where nobody said.
    """

    name: str
    soc_code: str
    attributes: tuple[Attribute, ...]
    female_percent: float
    article: str
    basis: str = ""


@dataclass(frozen=True, slots=True)
class OccupationSet:
    """Occupations to ask about."""

    name: str
    title: str
    source: str
    occupations: tuple[Occupation, ...]
    notes: tuple[str, ...] = ()


def load_occupations(path: str = "", onet_folder: str = "") -> OccupationSet:
    """The package's occupations, or those of a user's table, with the attributes of their table or of an O*NET release.

    A table (.tsv, .csv) has a column `occupation`, and any of `soc_code`, `attribute` with `category` (skill unless it says
    knowledge or ability; one row each), `skill`, `knowledge` and `ability` (several in a cell, with ; between them),
    `female_percent` and `article`.

    Args:
        path: of the table; "" for the package's own.
        onet_folder: with the text release of an O*NET database, whose attributes are taken instead, by the codes of the table.
    """
    table = _read(Path(path) if path else RESOURCES / "sets" / "occupations.tsv")
    if not path:
        table = replace(table, notes=(FEMALE_SHARES,))
    if onet_folder:
        return _with_ratings(table, path, onet_folder)
    if path:
        bare = [one.name for one in table.occupations if not one.attributes]
        note = f"{len(bare)} of {len(table.occupations)} occupations have no attributes: {', '.join(bare)}"
        return replace(table, notes=(*table.notes, note)) if bare else table
    notes = (CREDIT.format(release=" 30.2"), *_proxies(table.occupations), *table.notes)
    return OccupationSet(OWN, _title(table.occupations), OWN_SOURCE, table.occupations, notes)


def article_of(name: str) -> str:
    """The English indefinite article of a noun phrase, by how its first word is said.

    Capitals are read letter by letter (an HR manager, a UX designer); a word that begins like *use*, *Europe* or
    *one* takes *a*, one with a silent h takes *an*.
    """
    plain = "".join(char for char in unicodedata.normalize("NFD", name) if not unicodedata.combining(char))
    head = next(iter(re.findall(r"\w+", plain)), "")
    if len(head) == 1 or (head.isupper() and (len(head) <= _MAX_SPELLED or not set(head) & set("AEIOU"))):
        return "an" if head[0].upper() in _SAID_WITH_A_VOWEL else "a"
    if _SILENT_H.match(head) or _EIGHT.match(head):
        return "an"
    if _SAID_WITH_A_CONSONANT.match(head):
        return "a"
    return "an" if head[:1].lower() in set("aeiou") else "a"


_MAX_SPELLED = 3
"""Capitals up to this length are said letter by letter; longer ones only if nothing in them can be said, as in HTML."""
_SAID_WITH_A_VOWEL = "AEFHILMNORSX8"
_SILENT_H = re.compile(r"heir|honest|honou?r|hour", re.IGNORECASE)
_EIGHT = re.compile(r"8|(?:11|18)(?!\d)")
_SAID_WITH_A_CONSONANT = re.compile(
    r"eu|ewe|on(?:e|ce)(?![a-z])|uni(?!n|m|d)|u(?:s[aeiu]|ti|to|te|ro|ri|re|ra|ru|bi|kr|ku|ke|ga)", re.IGNORECASE
)


def _title(occupations: Sequence[Occupation]) -> str:
    return f"{len(occupations)} occupations with their top {TOP} skills, knowledge and abilities"


def _proxies(occupations: Sequence[Occupation]) -> Iterator[str]:
    for basis in dict.fromkeys(one.basis for one in occupations if one.basis.startswith(PROXY)):
        names = ", ".join(one.name for one in occupations if one.basis == basis)
        yield f"stand-in attributes of {names}: {basis.removeprefix(PROXY).strip(': ')}"


def _with_ratings(own_set: OccupationSet, path: str, folder: str) -> OccupationSet:
    """The same occupations with the attributes of a release; those that it does not rate are left out."""
    for one in own_set.occupations if path else ():
        if one.attributes:
            raise UndertowError(f"{path}: {one.name!r} has attributes already; drop them, or leave --onet out")
        if not is_code(one.soc_code):
            raise UndertowError(f"{path}: {one.name!r} has no O*NET code; write one such as 29-1141.00 in soc_code")
    ratings = read_onet(folder, {one.name: one.soc_code for one in own_set.occupations}, TOP)
    occupations = tuple(
        replace(one, attributes=tuple(Attribute(r.element, r.category) for r in ratings.by_occupation[one.name]))
        for one in own_set.occupations
        if one.name in ratings.by_occupation
    )
    release, table = Path(folder).resolve().name, Path(path).name if path else "the package"
    return OccupationSet(
        name=f"{own_set.name if path else OWN}-{release}",
        title=_title(occupations),
        source=f"O*NET text release in {release} (CC BY 4.0), modified; occupations of {table}",
        occupations=occupations,
        notes=(CREDIT.format(release=""), *_proxies(occupations), *ratings.notes, *own_set.notes),
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
            raise ValueError("has a category and no attribute; write it, or empty that cell")
        return self

    def attributes(self) -> list[Attribute]:
        """What the row says that its occupation needs."""
        parts = [(part.strip(), kind) for kind in CATEGORIES for part in getattr(self, kind).split(";")]
        return [Attribute(*part) for part in [(self.attribute, self.category or CATEGORIES[0]), *parts] if part[0]]


def _read(path: Path) -> OccupationSet:
    columns = list(header(path))
    if "category" in columns and "attribute" not in columns:
        raise UndertowError(f"{path}: has a column 'category' and none 'attribute'; add it")
    rows: dict[str, dict[str, _Row]] = {}
    schema = TypeAdapter(_Row)
    for line, cells in read_names(path, ("occupation",)):
        where = f"{path}, line {line}"
        row = check(schema, {name: cell for name, cell in cells.items() if cell}, where)
        rows.setdefault(row.occupation.casefold(), {})[where] = row
    occupations = tuple(map(_occupation, rows.values()))
    notes = unused_columns(columns, _Row.model_fields)
    if 0 < max((one.female_percent for one in occupations if one.female_percent >= 0), default=0.0) <= 1:
        notes.append("the shares of women are all 1 or less and taken as percent; write 40 where two in five are meant")
    return OccupationSet(plain_name(path), f"occupations of {path.name}", path.name, occupations, tuple(notes))


def _occupation(rows: Mapping[str, _Row]) -> Occupation:
    """An occupation from its rows by place, in which an empty cell says nothing."""
    name = next(iter(rows.values())).occupation
    facts: dict[str, Any] = {}
    attributes: dict[tuple[str, str], Attribute] = {}
    for at, (where, row) in enumerate(rows.items()):
        if row.occupation != name:
            raise UndertowError(f"{where}: {row.occupation!r} and {name!r} differ in capitals alone; write both alike")
        for column in ("soc_code", "female_percent", "article", "basis"):
            value = getattr(row, column)
            if column in row.model_fields_set and facts.setdefault(column, value) != value:
                raise UndertowError(f"{where}: {column} of {name!r} is {value!r}, and was {facts[column]!r}; keep one")
        if at and not row.attributes():
            raise UndertowError(f"{where}: repeats the occupation {name!r} without an attribute; drop the row")
        for one in row.attributes():
            if attributes.setdefault((one.name.casefold(), one.category), one) is not one:
                raise UndertowError(f"{where}: repeats the {one.category} {one.name!r} of {name!r}; drop it")
    defaults: dict[str, Any] = {"soc_code": name, "female_percent": math.nan, "article": article_of(name)}
    return Occupation(name=name, attributes=tuple(attributes.values()), **{**defaults, **facts})
