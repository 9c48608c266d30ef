"""CAD's cells: what its categories, targets, splits, texts and rationales look like, and which of ours they are.

What is known, and from where:

- Rows, columns, primary categories, splits and NA: the code and the notebook of CAD's authors (dongpng/cad_naacl2021: `src/check_data.py`,
  `src/contextual_abuse_dataset.py`, `src/data_analysis.ipynb`). Primary: Neutral, IdentityDirectedAbuse, AffiliationDirectedAbuse,
  PersonDirectedAbuse, CounterSpeech, Slur; ConvoKit's page of CAD writes them in words. Split: train, dev, test, and exclude_empty,
  exclude_bot, exclude_lang, exclude_image. 27,494 rows of 26,550 entries: `id` (cad_1, ...) is a row's own and `info_id` repeats.
- Targets: of `annotation_Target_top.level.category` one value is known for certain, `ableness/disability` (programs that select it).
  The other names here are those of Bauer et al. 2022, section 4.1, and what they might be called; a stranger is counted and reported.
- Quotes: the published files quote nothing, so a text in quotes is one that its author put in quotes. Checked on the three split
  files: 46 of 23,417 texts begin and end with a quote, none of them doubles a quote within, and 2,459 others hold bare ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from undertow.data.documents.document_set import EVALUATION, TRAINING, missing, read_rows
from undertow.data.text_files import closest
from undertow.errors import UndertowError

NEUTRAL, IDENTITY, AFFILIATION = "Neutral", "IdentityDirectedAbuse", "AffiliationDirectedAbuse"
PERSON, COUNTER, SLUR = "PersonDirectedAbuse", "CounterSpeech", "Slur"
PRIMARY = (NEUTRAL, IDENTITY, AFFILIATION, PERSON, COUNTER, SLUR)
COARSE: Mapping[str, str] = {IDENTITY: "identity", AFFILIATION: "affiliation"}
"""The primary categories of bias, and our names of them."""
EXCLUDED = "excluded"
"""The split of what CAD's authors left out of their own experiments."""

_SPLITS: Mapping[str, str] = {"train": TRAINING, "dev": EVALUATION, "test": EVALUATION}
_OTHER_PRIMARY: Mapping[str, str] = {
    "identitydirected": IDENTITY,
    "affiliationdirected": AFFILIATION,
    "persondirected": PERSON,
    "slurs": SLUR,
    "nonhatefulslur": SLUR,
    "nonhatefulslurs": SLUR,
}
_TARGETS: Mapping[str, tuple[str, ...]] = {
    "sexuality": ("sexuality", "sexual orientation", "sexualities"),
    "gender": ("gender", "sex", "gender identity", "genders"),
    "race": ("race", "races"),
    "religion": ("religion", "religions", "religious belief", "religious beliefs", "belief"),
    "age": ("age", "ages"),
    "nationality": ("nationality", "nationalities", "national origin"),
    "ethnicity": ("ethnicity", "ethnicities", "ethnic group", "ethnic origin"),
    "disability": ("disability", "disabilities", "ableness", "ability", "able bodiedness"),
    "profession": ("profession", "professions", "occupation", "job"),
    "political affiliation": (
        "political affiliation", "political affiliations", "politics", "political", "political group", "political groups",
        "political party", "political ideology", "political view", "political views",
    ),
    "perceived negative groups": (
        "perceived negative groups", "perceived negative group", "perceived negatively", "negative groups", "negative group",
        "negatively perceived groups", "negatively perceived group", "negatively viewed groups", "negatively viewed group",
    ),
}  # fmt: skip
_DIMENSION_OF = {name: dimension for dimension, names in _TARGETS.items() for name in names}
_PRIMARY_OF = {name.lower(): name for name in PRIMARY} | dict(_OTHER_PRIMARY)
_LINE_BREAK = re.compile(r" *\[linebreak\] *", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def cad_rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Where each row stands, and its cells by column, out of their quotes.

    Raises:
        UndertowError: the file cannot be read as a table with these columns; names the line.
    """
    rows = read_rows(path)
    header = list(rows[0][1])
    names = {name: _bare(name) for name in header}
    problem = missing(path, needed, list(names.values()))
    if problem:
        raise problem
    # R quotes the names of columns whenever it quotes any cell. A file that does not was written as it stands.
    is_quoted = any(name != bare for name, bare in names.items())
    for line, row in rows:
        yield f"{path}, line {line}", {names[name]: _out_of_quotes(cell, is_quoted) for name, cell in row.items()}


def primary_of(cell: str, where: str) -> str:
    """One of `PRIMARY`, however it is cased and spaced.

    Raises:
        UndertowError: it is none of them.
    """
    known = _PRIMARY_OF.get(re.sub(r"[^a-z]", "", cell.lower()))
    if known is None:
        raise UndertowError(
            f"{where}: the primary category {_short(cell)} is not one of CAD's{closest(cell, PRIMARY)};"
            f" it should be one of {', '.join(PRIMARY)}"
        )
    return known


def split_of(cell: str, where: str) -> str:
    """`EVALUATION` of dev and test, `TRAINING` of train, `EXCLUDED` of what CAD's authors left out.

    Raises:
        UndertowError: it is none of them.
    """
    name = cell.strip().lower()
    if name.startswith("exclude"):
        return EXCLUDED
    if name not in _SPLITS:
        raise UndertowError(
            f"{where}: split is {_short(cell)}; it should be train, dev, test or one that begins with exclude"
        )
    return _SPLITS[name]


def dimension_of(cell: str) -> str:
    """Which of the eleven dimensions a target is on; "" if it is not known to be on one, or is on several."""
    whole = _words(cell)
    if whole in _DIMENSION_OF:
        return _DIMENSION_OF[whole]
    dimensions = {_DIMENSION_OF.get(_words(part), "") for part in cell.split("/")}
    return dimensions.pop() if len(dimensions) == 1 else ""


def is_na(cell: str) -> bool:
    """Whether nothing stands in a cell: CAD writes "NA" with its quotes."""
    return cell.strip() in ("", '""', "NA", '"NA"')


def clean(cell: str) -> str:
    """A text or rationale with its line breaks; "" where there is none."""
    return "" if is_na(cell) else _CONTROL.sub(" ", _LINE_BREAK.sub("\n", cell)).strip()


def find_span(cell: str, text: str) -> str:
    """The piece of a text that its rationale marks, letter by letter as the text has it; "" if it is not there.

    Looked for as it stands, without quotes around it, with other white space, and last in other letter case, as CAD's own check does.
    """
    ways = [way for way in (clean(cell), clean(_bare(cell.strip()))) if way]
    for way in ways:
        if way in text:
            return way
    for flags in (0, re.IGNORECASE):
        for way in ways:
            match = re.search(r"\s+".join(map(re.escape, way.split())), text, flags)
            if match:
                return match.group()
    return ""


def _short(cell: str) -> str:
    """A cell to be quoted in an error, where it may be a whole text that slipped into another column."""
    return repr(cell if len(cell) <= 40 else f"{cell[:20]}...")


def _words(cell: str) -> str:
    return " ".join(re.sub(r"[^a-z]", " ", cell.lower()).split())


def _bare(cell: str) -> str:
    """A cell without the quotes around it; those within are written twice."""
    is_wrapped = len(cell) > 1 and cell[0] == cell[-1] == '"'
    return cell[1:-1].replace('""', '"') if is_wrapped else cell


def _out_of_quotes(cell: str, is_quoted: bool) -> str:
    """What a cell says: its quotes are the file's if the whole file has them, or if every quote within is written twice."""
    within = cell[1:-1]
    is_doubled = '""' in within and '"' not in within.replace('""', "")
    return _bare(cell) if is_quoted or is_doubled else cell
