"""Winogender: the published schemas, from two files that are downloaded once and verified.

Rudinger, Naradowsky, Leonard and Van Durme 2018, "Gender Bias in Coreference Resolution"; winogender-schemas, MIT licence.
Its sentences are not part of this project.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from undertow._files import sha256_of
from undertow._folders import data_folder
from undertow._schemas import check
from undertow.data.fetch import fetch, save_download
from undertow.data.sentences.schemas import Schema, SchemaSource
from undertow.data.text_files import TableRow, read_records
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
    """The schemas from a folder with the two files, else from the cache, else downloaded."""
    where = Path(folder) if folder else data_folder(NAME) / COMMIT[:12]
    by_hand = f"fetch {' and '.join(FILES)} yourself and name their folder with --data-dir"
    for name, sha256 in {} if folder else FILES.items():
        if not _is_published(where / name):
            content = fetch(f"{SOURCE_URL}/{name}", MAX_BYTES, NAME, by_hand)
            if hashlib.sha256(content).hexdigest() != sha256:
                raise UndertowError(
                    f"winogender: {SOURCE_URL}/{name} gave another file (its SHA-256 differs); try again, or {by_hand}"
                )
            save_download(content, where / name)
    shares = {row.occupation: row.share for _, row in read_records(where / STATISTICS, _ShareRow)}
    schemas = _schemas(where / TEMPLATES)
    for schema in schemas:
        if schema.occupation not in shares:
            raise UndertowError(f"{where / STATISTICS}: has no row for {schema.occupation!r} of {TEMPLATES}")
    return SchemaSource(
        name=NAME,
        title="Winogender schemas, extended",
        source="Rudinger et al. 2018 (winogender-schemas, MIT), participants as in McMilin 2024",
        schemas=schemas,
        percent_female=shares,
        notes=tuple(
            f"{name} is not the published file (its SHA-256 differs)"
            for name in FILES
            if not _is_published(where / name)
        ),
    )


def _is_published(path: Path) -> bool:
    return path.is_file() and sha256_of(path) == FILES[path.name]


class _ShareRow(TableRow):
    occupation: str
    share: Annotated[float, Field(ge=0, le=100)] = Field(alias="bls_pct_female")


class _TemplateRow(TableRow):
    occupation: str = Field(alias="occupation(0)")
    participant: str = Field(alias="other-participant(1)")
    answer: Literal["0", "1"]
    sentence: str


def _schemas(path: Path) -> tuple[Schema, ...]:
    schemas = []
    for line, row in read_records(path, _TemplateRow):
        where = f"{path}, line {line}"
        cases = [mark for mark in _CASES if mark in row.sentence]
        participants = _PEOPLE.search(row.sentence)
        if len(cases) != 1 or "$OCCUPATION" not in row.sentence or participants is None:
            raise UndertowError(f"{where}: the sentence needs $OCCUPATION, the $PARTICIPANT and one kind of pronoun")
        template = _PEOPLE.sub("{participant}", row.sentence.replace("{", "{{").replace("}", "}}"))
        cells = {
            "occupation": row.occupation,
            "participant": f"{participants[1].lower()} {row.participant}",
            "coreferent": row.answer,
            "case": _CASES[cases[0]],
            "template": template.replace("$OCCUPATION", "{occupation}").replace(cases[0], "{blank}"),
        }
        schemas.append(check(Schema, cells, where))
    return tuple(schemas)
