"""Winogender: the published schemas, read from their two files, which are fetched once and checked.

Rudinger, Naradowsky, Leonard and Van Durme 2018, "Gender Bias in Coreference Resolution"; winogender-schemas, MIT licence.
None of its sentences is part of this project.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from pathlib import Path

from undertow._folders import data_folder
from undertow.data.fetch import DownloadError, download, keep
from undertow.data.sentences.schemas import Schema, SchemaSource, check_template
from undertow.data.text_files import read_text
from undertow.errors import UndertowError

NAME = "winogender"
COMMIT = "1c7f8b481ad8a234b41e9f76a424d6e856e13f7f"
SOURCE_URL = f"https://raw.githubusercontent.com/rudinger/winogender-schemas/{COMMIT}/data"
TEMPLATES, STATISTICS = "templates.tsv", "occupations-stats.tsv"
FILES = {
    TEMPLATES: "496f2e2dc77296bcebcdd8865a8dc5715ce22b772de9abb5f531d5b3114c48a0",
    STATISTICS: "3f7f37c16381a70571356982ea7fe613ac700ad04a6d3b19b9f2be18248df567",
}
"""SHA-256 of the files at that commit."""
MAX_BYTES = 2**20

_CASES = {"$NOM_PRONOUN": "nominative", "$ACC_PRONOUN": "accusative", "$POSS_PRONOUN": "possessive"}
_PEOPLE = re.compile(r"\b(the|an|a) \$PARTICIPANT", re.IGNORECASE)


def read_winogender(folder: str = "") -> SchemaSource:
    """The schemas from a folder with the two files, or else from the cache, or else fetched.

    Raises:
        UndertowError: the files cannot be had, or are not what they should be.
    """
    where = Path(folder) if folder else _fetched()
    texts = {name: read_text(where / name) for name in FILES}
    shares = _shares(texts[STATISTICS], where / STATISTICS)
    schemas = _schemas(texts[TEMPLATES], where / TEMPLATES)
    for schema in schemas:
        if schema.occupation not in shares:
            raise UndertowError(
                f"{where / STATISTICS}: has no row for {schema.occupation!r}, which {TEMPLATES} names; use the two files of one version"
            )
    changed = [name for name in FILES if not _is_published(where / name, name)]
    return SchemaSource(
        name=NAME,
        title="Winogender schemas, extended",
        source="Rudinger et al. 2018 (winogender-schemas, MIT), participants as in McMilin 2024",
        schemas=schemas,
        percent_female=shares,
        notes=tuple(f"{name} is not the published file (another SHA-256)" for name in changed),
    )


def _fetched() -> Path:
    """The folder with the two published files, fetched if they are not there."""
    folder = data_folder(NAME) / COMMIT[:12]
    for name in FILES:
        if not _is_published(folder / name, name):
            _fetch(name, folder)
    return folder


def _fetch(name: str, folder: Path) -> None:
    url = f"{SOURCE_URL}/{name}"
    by_hand = f"fetch {' and '.join(FILES)} yourself and name their folder with --data-dir"
    try:
        content = download(url, MAX_BYTES)
    except DownloadError as error:
        raise UndertowError(f"winogender: {url} cannot be had ({error}); go online once, or {by_hand}") from error
    if hashlib.sha256(content).hexdigest() != FILES[name]:
        raise UndertowError(
            f"winogender: what {url} gave is not the published file (its SHA-256 differs); nothing was kept: try again, or {by_hand}"
        )
    keep(folder, {name: content})


def _is_published(path: Path, name: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == FILES[name]


def _rows(text: str, path: Path, columns: int) -> list[tuple[int, list[str]]]:
    """Number and cells of every line after the header."""
    reader = csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
    try:
        rows = [(number, cells) for number, cells in enumerate(reader, 1) if cells][1:]
    except csv.Error as error:
        raise UndertowError(
            f"{path}, line {reader.line_num}: cannot be read ({error}); it should be the file of winogender-schemas"
        ) from error
    if not rows:
        raise UndertowError(f"{path}: holds no rows; it should be the file of winogender-schemas")
    for number, cells in rows:
        if len(cells) < columns:
            raise UndertowError(f"{path}, line {number}: has {len(cells)} cells instead of {columns}, split by tabs")
    return rows


def _shares(text: str, path: Path) -> dict[str, float]:
    """Share of women in each occupation: the third column (Bureau of Labor Statistics)."""
    shares = {}
    for number, cells in _rows(text, path, 3):
        try:
            shares[cells[0]] = float(cells[2])
        except ValueError as error:
            raise UndertowError(f"{path}, line {number}: {cells[2]!r} is not a number of percent") from error
    return shares


def _schemas(text: str, path: Path) -> tuple[Schema, ...]:
    schemas = []
    for number, (occupation, participant, coreferent, sentence, *_) in _rows(text, path, 4):
        where = f"{path}, line {number}"
        cases = [mark for mark in _CASES if mark in sentence]
        participants = _PEOPLE.search(sentence)
        if len(cases) != 1 or "$OCCUPATION" not in sentence or participants is None:
            raise UndertowError(f"{where}: the sentence needs $OCCUPATION, the $PARTICIPANT and one kind of pronoun")
        if coreferent not in ("0", "1"):
            raise UndertowError(
                f"{where}: answer is {coreferent!r}; it must be 0 (the occupation) or 1 (the participant)"
            )
        if set(occupation + participant) & set("{}"):
            raise UndertowError(f"{where}: a name holds a brace, which stands for a hole here; write it without")
        article = participants.group(1).lower()
        template = _PEOPLE.sub("{participant}", sentence.replace("{", "{{").replace("}", "}}"))
        template = template.replace("$OCCUPATION", "{occupation}").replace(cases[0], "{blank}")
        check_template(template, _CASES[cases[0]], where)
        schemas.append(Schema(occupation, f"{article} {participant}", int(coreferent), _CASES[cases[0]], template))
    return tuple(schemas)
