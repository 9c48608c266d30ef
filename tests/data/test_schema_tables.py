"""Users' own schemas: read like the package's, extended and simplified by the same rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.file_refusal import assert_refused, written
from undertow import data

HEADER = "occupation\tparticipant\tcoreferent\tcase\ttemplate"
ROWS = [
    "potter\tthe pupil\t0\tnominative\tThe {occupation} thanked {participant} because {blank} felt better.",
    "potter\tthe pupil\t1\tpossessive\t{participant} left the {occupation} alone with {blank} own clay.",
]


def schemas_of(folder: Path, *rows: str) -> str:
    return written(folder, "\n".join([HEADER, *rows, ""]), "mine.tsv")


def test_schemas_are_extended_and_simplified(tmp_path: Path) -> None:
    path = schemas_of(tmp_path, *ROWS)
    chosen = data.load_sentences(path)
    assert (chosen.name, len(chosen.sentences)) == ("mine", 8)
    decided = [sentence.factors["well_specified"] for sentence in chosen.sentences]
    assert decided == [False] * 4 + [True] * 2 + [False] * 2
    assert chosen.sentences[4].query.texts()[1] == "The man left the potter alone with his own clay."
    assert chosen.sentences[4].gold == "male"
    assert "percent_female" not in chosen.sentences[0].factors
    simple = data.load_sentences(f"simplified:{path}").sentences
    assert [sentence.query.texts()[0] for sentence in simple] == [
        f"The {who} said that she felt better." for who in ("female potter", "male potter", "potter")
    ]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([], "no rows"), ([ROWS[0].replace("nominative", "dative")], "line 2: case holds 'dative'"),
        ([ROWS[0], ROWS[1].replace("{blank} ", "")], "line 3: the template needs {blank}"),
        ([ROWS[0].replace("\t0\t", "\t2\t")], "line 2: coreferent"), ([ROWS[0].replace("the pupil", "")], "line 2"),
        ([ROWS[0], ROWS[0]], "'potter' with coreferent 0"),
    ],
)  # fmt: skip
def test_a_damaged_table_of_schemas_is_refused(rows: list[str], named: str, tmp_path: Path) -> None:
    path = schemas_of(tmp_path, *rows)
    assert_refused((path, named), data.load_sentences, path)
