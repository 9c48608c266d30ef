from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable
from pathlib import Path

import pytest

from helpers.file_refusal import assert_refused, rows_of
from undertow.data.occupations.onet import Rating, read_onet

COLUMNS = ("O*NET-SOC Code", "Element Name", "Scale ID", "Data Value", "Recommend Suppress", "Date")
FILES = {"Skill": "Skills.txt", "Knowledge": "Knowledge.txt", "Ability": "Abilities.txt"}
NURSE, POET, LAW, ART = "29-1141.00", "27-3043.05", "25-1112.00", "25-1121.00"
Row = tuple[str, str, str, str, str, str]


def row(code: str, element: str, value: str, scale: str = "IM", suppress: str = "N") -> Row:
    return code, element, scale, value, suppress, "08/2025"


def table(rows: Iterable[Row], end: str = "\n") -> str:
    return "".join("\t".join(cells) + end for cells in (COLUMNS, *rows))


KNOWLEDGE = tuple(
    row(*cells)
    for cells in ((NURSE, "Biology", "4.00"), (LAW, "Law", "5.00"), (ART, "Law", "1.50"), (ART, "Fine Arts", "4.00"))
)
ABILITIES = (row(NURSE, "Near Vision", "3.00"), row(LAW, "Memory", "2.00"), row(ART, "Memory", "2.00"))
SKILLS = (
    row(NURSE, "Writing", "3.50"),
    row(NURSE, "Speaking", "3.50"),
    row(NURSE, "Listening", "4.12"),
    row(NURSE, "Repairing", "1.00", suppress="Y"),
    row(NURSE, "Writing", "6.90", scale="LV"),
    row(NURSE, "Science", "n/a"),
    row(LAW, "Writing", "4.00"),
    row(LAW, "Speaking", "3.00"),
    row(ART, "Writing", "2.00"),
    row(ART, "Speaking", "3.50", suppress="Y"),
    row(POET, "Writing", "5.00"),
)


def release(folder: Path) -> Path:
    for name, rows in (("Skills.txt", SKILLS), ("Knowledge.txt", KNOWLEDGE), ("Abilities.txt", ABILITIES)):
        (folder / name).write_text(table(rows), encoding="utf-8")
    return folder


def test_top_elements_by_importance_and_ties_by_the_alphabet(tmp_path: Path) -> None:
    found, notes = read_onet(release(tmp_path), {"nurse": NURSE}, 2)
    assert found == {
        "nurse": (
            Rating("Listening", "skill", 4.12),
            Rating("Speaking", "skill", 3.5),
            Rating("Biology", "knowledge", 4.0),
            Rating("Near Vision", "ability", 3.0),
        )
    }
    assert notes == []


@pytest.mark.parametrize("pattern", ["25-1xxx.00", "25-11XX", "25-11xx.0x"])
def test_a_pattern_is_the_mean_over_the_codes_that_rate_an_element(pattern: str, tmp_path: Path) -> None:
    found, notes = read_onet(release(tmp_path), {"professor": pattern})
    assert found["professor"] == (
        Rating("Speaking", "skill", 3.25),  # (3.00 + 3.50) / 2
        Rating("Writing", "skill", 3.0),  # (4.00 + 2.00) / 2
        Rating("Fine Arts", "knowledge", 4.0),
        Rating("Law", "knowledge", 3.25),
        Rating("Memory", "ability", 2.0),
    )
    (imprecise,) = notes
    assert "Speaking of professor" in imprecise


def test_who_is_not_rated_in_every_category_is_left_out_and_noted(tmp_path: Path) -> None:
    found, notes = read_onet(release(tmp_path), {"senator": "11-1031.00", "nurse": NURSE, "poet": POET})
    assert list(found) == ["nurse"]
    left_out, imprecise = notes
    assert "senator (11-1031.00, no skill or knowledge or ability)" in left_out
    assert "poet (27-3043.05, no knowledge or ability)" in left_out
    assert "Repairing of nurse" in imprecise
    assert_refused((tmp_path, "senator (11-1031.00"), read_onet, tmp_path, {"senator": "11-1031.00"})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a\tb\n1\t2", "'O*NET-SOC Code'"),
        ("O*NET-SOC Code\tElement Name\tScale ID\tValue", "did you mean 'Value'"),
        ("O*NET-SOC Code\tElement Name\tScale ID\tData Value", "no rows"),
        (table([*SKILLS, row(NURSE, "Zeal", "4,12")]), "line 13: Data Value"),
        (table([*SKILLS, row(NURSE, "Writing", "3.50")]), "line 13: rates 'Writing' of 29-1141.00"),
        (table([*SKILLS, row("", "Zeal", "3")]), "line 13: O*NET-SOC Code"),
        (table(SKILLS) + "29-1141.00\t1.A\n", "line 13: has 2 cells"),
    ],
)
def test_a_damaged_file_is_refused_by_its_line(text: str, named: str, tmp_path: Path) -> None:
    path = release(tmp_path) / "Skills.txt"
    path.write_text(text)
    assert_refused((path, named), read_onet, tmp_path, {"nurse": NURSE})


def rebuild(folder: Path, wide: Path) -> None:
    """A text release made of the wide table of importance, with rows of the other scale that must not count."""
    with gzip.open(wide, "rt", encoding="utf-8", newline="") as file:
        header, *body = csv.reader(file)
    rows: dict[str, list[Row]] = {name: [] for name in FILES}
    for place, title in enumerate(header[2:], 2):
        category, _, element = title.partition(":")
        for cells in body:
            rows[category].append(row(cells[1], element, cells[place] or "n/a"))
        rows[category].append(row(body[0][1], element, "7.00", scale="LV"))
    for category, name in FILES.items():
        (folder / name).write_text(table(rows[category], "\r\n"), encoding="utf-8")


def test_the_reference_table_of_all_62_occupations(reference_data: Path, tmp_path: Path) -> None:
    rebuild(tmp_path, reference_data / "onet/importance_wide.csv.gz")
    wanted = {one["occupation"]: one["soc_code"] for one in rows_of(reference_data / "onet/occupation_soc_map.tsv")}
    found, notes = read_onet(tmp_path, wanted, 6)
    assert len(wanted) == 62
    assert notes == []
    # six of each category, of which the table has five and the importance of the sixth
    told = [(name, found[name][place : place + 6]) for name in wanted for place in (0, 6, 12)]
    assert [
        (name, one.category, one.element, f"{one.importance:.2f}", f"{six[5].importance:.2f}")
        for name, six in told
        for one in six[:5]
    ] == [
        (one["occupation"], one["category"], one["element_name"], one["importance"], one["sixth_importance"])
        for one in rows_of(reference_data / "onet/top5.tsv")
    ]
