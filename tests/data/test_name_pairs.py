"""Pairs of names: the package's own, a user's, and their refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.file_refusal import assert_refused, written
from undertow.data.occupations.occupation_set import NamePair, load_pairs


def test_the_packages_own_pairs_are_those_of_the_word_lists(reference_data: Path) -> None:
    lists = [(reference_data / "names" / f"{sex}.txt").read_text().split() for sex in ("female", "male")]
    pairs = load_pairs()
    assert pairs == [NamePair(*names) for names in zip(*lists, strict=True)]
    assert pairs[0].name == "Mary/James"
    assert len({pair.name for pair in pairs}) == 70
    assert not {pair.female for pair in pairs} & {pair.male for pair in pairs}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pairs.tsv", "female\tmale\nZoë\tJosé\nAnn\tJohann\n"),
        ("pairs.csv", '\ufefffemale,male\r\n"Zoë",José\r\n\r\n" Ann ",Johann\r\n'),
        ("pairs.tsv", "\ufefffemale\tmale\r\nZoe\u0308\tJose\u0301\r\nAnn\tJohann"),
    ],
)
def test_a_table_of_ones_own(name: str, text: str, tmp_path: Path) -> None:
    assert load_pairs(written(tmp_path, text, name)) == [NamePair("Zoë", "José"), NamePair("Ann", "Johann")]
    text = "female\tmale\nAnn\tPaul\nAnn\tJohn\n芳\t伟\nMary Jo\tPeter  O’Neil\n"
    pairs = load_pairs(written(tmp_path, text))
    assert [pair.name for pair in pairs] == ["Ann/Paul", "Ann/John", "芳/伟", "Mary Jo/Peter O’Neil"]


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("\tJames", "female"), ("Mary\t ", "male"), ("Kim\tkim", "'Kim'"), ("Zoë\tZoe\u0308", "'Zoë'"),
        ("mary\tJAMES", "of line 2"), ("Ann\tMary Ann", "'Ann'"), ("Jean Paul\tPaul", "'Paul'"), ("A/B\tC", "'A/B'"),
        ("Ma\x07ry\tPaul", "'\\x07'"), ("Mary", "1 cell"), ("Ma\0ry\tPaul", "zero byte"),
    ],
)  # fmt: skip
def test_a_bad_pair_is_refused_by_its_line_and_other_columns_by_name(row: str, named: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"female\tmale\nMary\tJames\n{row}\n")
    assert_refused((f"{path}, line 3", named), load_pairs, path)
    assert_refused((path, "'male'"), load_pairs, written(tmp_path, "female\nMary\n"))
    assert_refused((path, "'males'"), load_pairs, written(tmp_path, "female\tmale\tmales\na\tb\tc\n"))
    assert_refused((".tsv",), load_pairs, written(tmp_path, "female\tmale\na\tb\n", "pairs.txt"))
    assert_refused(("is empty; its first line",), load_pairs, written(tmp_path, ""))
