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
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

from undertow.data.documents.document_set import Rows, is_reserved_name, plain_name
from undertow.data.occupations.name_pairs import read_names
from undertow.data.occupations.onet import FILES, is_code, read_onet
from undertow.data.text_files import closest, number_between
from undertow.errors import UndertowError

CATEGORIES: tuple[str, ...] = tuple(FILES)
"""Skill, knowledge and ability."""
OWN = "onet-occupations"
OWN_SOURCE = "O*NET 30.2 Database (CC BY 4.0), modified; occupations of Zhang; female shares of Rudinger et al. 2018"
TOP = 5
"""Default attributes of each category, those of the package's table."""
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
COLUMNS = (
    "occupation", "soc_code", "soc_title", "basis", "female_percent", "article", "attribute", "category", *CATEGORIES,
)  # fmt: skip
"""`attribute` and `category` hold one attribute a row; `skill`, `knowledge` and `ability` hold several, with ; between them."""
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
    """Occupations to ask about.

    Attributes:
        name, title, source: for the report.
        occupations: in the order of their table.
        notes: what a reader must know of them, credits to whose facts they are among it.
    """

    name: str
    title: str
    source: str
    occupations: tuple[Occupation, ...]
    notes: tuple[str, ...] = ()


def load_occupations(path: str = "", onet_folder: str = "", top: int = TOP) -> OccupationSet:
    """The package's occupations, or those of a user's table, with the attributes of their table or of an O*NET release.

    A table (.tsv, .csv) has a column `occupation`, and any of `soc_code`, `attribute` with `category` (skill unless it says
    knowledge or ability; one row each), `skill`, `knowledge` and `ability` (several in a cell, with ; between them),
    `female_percent` and `article`.

    Args:
        path: of the table; "" for the package's own.
        onet_folder: with the text release of an O*NET database, whose attributes are taken instead, by the codes of the table.
        top: attributes of each category, at most; up to 5 from the package's own table, any number from an O*NET release, and
            nothing but 5 with a table of one's own, of which all attributes are taken.

    Raises:
        UndertowError: a file cannot be read or is not what it must be (names file and line), or `top` cannot be had.
    """
    if top < 1:
        raise UndertowError(f"top is {top}; take at least 1 attribute of each category")
    table = _read(Path(path)) if path else _own()
    if onet_folder:
        return _rated(table, path, onet_folder, top)
    if path and top != TOP:
        raise UndertowError(f"{path}: all attributes of your own table are used; leave top = {top} out")
    if path:
        return replace(table, notes=(*table.notes, *_bare(table.occupations)))
    if top > TOP:
        raise UndertowError(
            f"the occupations that come with the package have {TOP} attributes of each category and not {top}; name a folder"
            " with the text release of an O*NET database for more"
        )
    occupations = tuple(_cut(one, top) for one in table.occupations)
    notes = (CREDIT.format(release=" 30.2"), *_proxies(occupations), *table.notes)
    return OccupationSet(OWN, _title(occupations, top), OWN_SOURCE, occupations, notes)


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


@dataclass(slots=True)
class _OccupationRows:
    """An occupation from the rows read so far, and the first line of each value."""

    name: str
    line: int
    said: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    attributes: dict[tuple[str, str], Attribute] = field(default_factory=dict)
    attribute_lines: dict[tuple[str, str], int] = field(default_factory=dict)


def _own() -> OccupationSet:
    with resources.as_file(resources.files("undertow.data").joinpath("resources", "sets", "occupations.tsv")) as path:
        return replace(_read(path), notes=(FEMALE_SHARES,))


def _title(occupations: Sequence[Occupation], top: int) -> str:
    return f"{len(occupations)} occupations with their top {top} skills, knowledge and abilities"


def _bare(occupations: Sequence[Occupation]) -> Iterator[str]:
    bare = [one.name for one in occupations if not one.attributes]
    if bare:
        yield f"{len(bare)} of {len(occupations)} occupations have no attributes: {', '.join(bare)}"


def _proxies(occupations: Sequence[Occupation]) -> Iterator[str]:
    for basis in dict.fromkeys(one.basis for one in occupations if one.basis.startswith(PROXY)):
        names = ", ".join(one.name for one in occupations if one.basis == basis)
        yield f"stand-in attributes of {names}: {basis.removeprefix(PROXY).strip(': ')}"


def _cut(occupation: Occupation, top: int) -> Occupation:
    kept = [
        attribute
        for category in CATEGORIES
        for attribute in [one for one in occupation.attributes if one.category == category][:top]
    ]
    return replace(occupation, attributes=tuple(kept))


def _rated(own_set: OccupationSet, path: str, folder: str, top: int) -> OccupationSet:
    """The same occupations with the attributes of a release; those that it does not rate are left out."""
    if path:
        _check_codes(own_set, path)
    ratings = read_onet(folder, {one.name: one.soc_code for one in own_set.occupations}, top)
    occupations = tuple(
        replace(one, attributes=tuple(Attribute(r.element, r.category) for r in ratings.by_occupation[one.name]))
        for one in own_set.occupations
        if one.name in ratings.by_occupation
    )
    release = Path(folder).resolve().name
    table = Path(path).name if path else "the package"
    return OccupationSet(
        name=f"{own_set.name if path else OWN}-{release}",
        title=_title(occupations, top),
        source=f"O*NET text release in {release} (CC BY 4.0), modified; occupations of {table}",
        occupations=occupations,
        notes=(CREDIT.format(release=""), *_proxies(occupations), *ratings.notes, *own_set.notes),
    )


def _check_codes(table: OccupationSet, path: str) -> None:
    """Whether a user's table can be given the attributes of a release."""
    own = next((one for one in table.occupations if one.attributes), None)
    if own is not None:
        raise UndertowError(
            f"{path}: {own.name!r} has attributes already; drop them, or leave the folder of the O*NET release out"
        )
    bare = next((one for one in table.occupations if not is_code(one.soc_code)), None)
    if bare is not None:
        raise UndertowError(
            f"{path}: {bare.name!r} has no O*NET code to be looked up by; write one such as 29-1141.00 in a column soc_code"
        )


def _read(path: Path) -> OccupationSet:
    rows = read_names(path, ("occupation",))
    columns = list(rows[0][1])
    if "category" in columns and "attribute" not in columns:
        raise UndertowError(
            f"{path}: has a column 'category' and none 'attribute'{closest('attribute', columns)}; add it"
        )
    drafts = _drafts(path, rows)
    occupations = tuple(_occupation(draft, path) for draft in drafts)
    notes = (*_unused(columns), *_small_shares(occupations))
    return OccupationSet(plain_name(path), f"occupations of {path.name}", path.name, occupations, notes)


def _unused(columns: Sequence[str]) -> Iterator[str]:
    for name in columns:
        if name not in COLUMNS:
            yield f"column {name!r} is not used{closest(name, COLUMNS)}"


def _small_shares(occupations: Sequence[Occupation]) -> Iterator[str]:
    shares = [one.female_percent for one in occupations if not math.isnan(one.female_percent)]
    if shares and 0 < max(shares) <= 1:
        yield "the shares of women are all 1 or less and taken as percent; write 40 where two in five are meant"


def _drafts(path: Path, rows: Rows) -> list[_OccupationRows]:
    drafts: dict[str, _OccupationRows] = {}
    for line, row in rows:
        where = f"{path}, line {line}"
        name = row["occupation"]
        if not name:
            raise UndertowError(f"{where}: the occupation is empty; write it, or drop the row")
        if is_reserved_name(name):
            raise UndertowError(f"{where}: results reserve the name {name!r}; rename this occupation")
        draft = drafts.setdefault(name.casefold(), _OccupationRows(name, line))
        if draft.name != name:
            raise UndertowError(
                f"{where}: {name!r} and the {draft.name!r} of line {draft.line} differ in capitals alone; write both alike"
            )
        _add(draft, row, line, where)
    return list(drafts.values())


def _add(draft: _OccupationRows, row: Mapping[str, str], line: int, where: str) -> None:
    """Take in one row of an occupation; an empty cell says nothing."""
    for column in ("soc_code", "female_percent", "article", "basis"):
        said = row.get(column, "")
        if not said:
            continue
        if draft.said.setdefault(column, said) != said:
            raise UndertowError(
                f"{where}: {column} of {draft.name!r} is {said!r}, but {draft.said[column]!r} in line {draft.lines[column]}; keep one"
            )
        draft.lines.setdefault(column, line)
    attributes = _attributes(row, where)
    if line != draft.line and not attributes:
        raise UndertowError(
            f"{where}: repeats the occupation {draft.name!r} of line {draft.line} without an attribute; write one, or drop the row"
        )
    for attribute in attributes:
        key = (attribute.name.casefold(), attribute.category)
        if key in draft.attributes:
            raise UndertowError(
                f"{where}: repeats the {attribute.category} {attribute.name!r} of {draft.name!r}, which line"
                f" {draft.attribute_lines[key]} has; drop one of them"
            )
        draft.attributes[key] = attribute
        draft.attribute_lines[key] = line


def _attributes(row: Mapping[str, str], where: str) -> list[Attribute]:
    """What a row says that its occupation needs."""
    name, category = row.get("attribute", ""), row.get("category", "").lower()
    if category and category not in CATEGORIES:
        hint = closest(category, CATEGORIES)
        raise UndertowError(f"{where}: category {row['category']!r} is not known{hint}; use {', '.join(CATEGORIES)}")
    if category and not name:
        raise UndertowError(f"{where}: has a category and no attribute; write it, or empty that cell")
    listed = [
        Attribute(part.strip(), listing)
        for listing in CATEGORIES
        for part in row.get(listing, "").split(";")
        if part.strip()
    ]
    return [*([Attribute(name, category or CATEGORIES[0])] if name else []), *listed]


def _occupation(draft: _OccupationRows, path: Path) -> Occupation:
    said = draft.said
    percent = math.nan
    if "female_percent" in said:
        percent = number_between(0, 100, said["female_percent"])
        if math.isnan(percent):
            raise UndertowError(
                f"{path}, line {draft.lines['female_percent']}: female_percent is {said['female_percent']!r}; write a number from 0 "
                "to 100, or leave the cell empty where it is not known"
            )
    return Occupation(
        name=draft.name,
        soc_code=said.get("soc_code", draft.name),
        attributes=tuple(draft.attributes.values()),
        female_percent=percent,
        article=said.get("article") or article_of(draft.name),
        basis=said.get("basis", ""),
    )
