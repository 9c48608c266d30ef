"""Pairs of names: the package's own, a user's, and one sentence for each thing that can be wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from undertow.challenge.name_pairs import NamePair, load_pairs
from undertow.types import UndertowError


def write(folder: Path, text: str, name: str = "pairs.tsv") -> str:
    path = folder / name
    path.write_bytes(text.encode())
    return str(path)


def refusal(path: str) -> str:
    """What is said of a bad table: one line that begins with the file's path."""
    with pytest.raises(UndertowError) as caught:
        load_pairs(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(path)
    return message.removeprefix(path)


def test_the_packages_own_pairs_are_those_of_the_word_lists(reference_data: Path) -> None:
    lists = [(reference_data / "names" / f"{sex}.txt").read_text().split() for sex in ("female", "male")]
    assert load_pairs() == [NamePair(*names) for names in zip(*lists, strict=True)]


def test_the_packages_own_pairs() -> None:
    pairs = load_pairs()
    assert len(pairs) == 70
    assert pairs[0] == NamePair("Mary", "James")
    assert pairs[0].name == "Mary/James"
    assert len({pair.name for pair in pairs}) == 70
    assert not {pair.female for pair in pairs} & {pair.male for pair in pairs}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pairs.tsv", "female\tmale\nZoë\tJosé\nAnn\tJohann\n"),
        ("pairs.csv", "male,female\nJosé,Zoë\nJohann,Ann\n"),
        ("pairs.csv", '\ufefffemale,male\r\n"Zoë",José\r\n\r\n" Ann ",Johann\r\n'),
        ("pairs.tsv", "\ufefffemale\tmale\r\nZoe\u0308\tJose\u0301\r\nAnn\tJohann"),
    ],
)
def test_a_table_of_ones_own(name: str, text: str, tmp_path: Path) -> None:
    assert load_pairs(write(tmp_path, text, name)) == [NamePair("Zoë", "José"), NamePair("Ann", "Johann")]


def test_a_name_may_stand_in_several_pairs_and_in_any_script(tmp_path: Path) -> None:
    path = write(tmp_path, "female\tmale\nAnn\tPaul\nAnn\tJohn\n芳\t伟\nसीता\tराम\nMary Jo\tPeter  O’Neil\n")
    assert [pair.name for pair in load_pairs(path)] == [
        "Ann/Paul", "Ann/John", "芳/伟", "सीता/राम", "Mary Jo/Peter O’Neil",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("\tJames", "the female name is empty; write it, or drop the row"),
        ("Mary\t ", "the male name is empty"),
        ("Kim\tkim", "both names are 'Kim'; two different ones"),
        ("Zoë\tZoe\u0308", "both names are 'Zoë'"),
        ("mary\tJAMES", "repeats the pair mary/JAMES of line 2; drop one of them"),
        ("Ann\tMary Ann", "'Ann' is a part of 'Mary Ann', so that an answer could mean either"),
        ("Ann-Marie\tann", "'ann' is a part of 'Ann-Marie'"),
        ("Jean Paul\tPaul", "'Paul' is a part of 'Jean Paul'"),
        ("A/B\tC", "the female name 'A/B' has a slash"),
        ("Ma\x07ry\tPaul", "holds the control character '\\x07'; save the file as plain text"),
        ("Mary", "has 1 cell, but the header has 2"),
        ("Mary\tJames\tx", "has 3 cells, but the header has 2"),
    ],
)
def test_a_bad_pair_is_refused_by_its_line(row: str, said: str, tmp_path: Path) -> None:
    assert refusal(write(tmp_path, f"female\tmale\nMary\tJames\n{row}\n")).startswith(f", line 3: {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ": is empty; its first line should name the columns"),
        ("female\tmale\n", ": holds no rows below its header"),
        ("female\nMary\n", ": has no column 'male'"),
        ("femal\tmale\nMary\tJames\n", ": has no column 'female' (did you mean 'femal'?)"),
        ("female,male\nMary,James\n", ": has no column 'female'"),
        ("female\tmale\tmale\na\tb\tc\n", ": has two columns called 'male'"),
        ("female\tmale\tmales\na\tb\tc\n", ": column 'males' is not used (did you mean 'male'?); keep female and male"),
        ("female\tmale\nMary\tJa\0mes\n", ", line 2: holds a zero byte"),
    ],
)
def test_a_bad_table_is_refused(text: str, said: str, tmp_path: Path) -> None:
    assert refusal(write(tmp_path, text)).startswith(said)


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    assert "name a file that ends in" in refusal(write(tmp_path, "female\tmale\na\tb\n", "pairs.txt"))
    assert "cannot be read" in refusal(str(tmp_path / "none.tsv"))
    assert "mend the quotes" in refusal(write(tmp_path, 'female,male\n"Mary,James\n', "pairs.csv"))
    (tmp_path / "latin.tsv").write_bytes("female\tmale\nZoë\tPaul\n".encode("latin-1"))
    assert "line 2: byte 14 is not UTF-8" in refusal(str(tmp_path / "latin.tsv"))


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\t\n"), max_size=12)


@given(NAMES, NAMES)
def test_any_two_names_are_a_pair_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, female: str, male: str
) -> None:
    path = write(tmp_path_factory.getbasetemp(), f"female\tmale\n{female}\t{male}\n", "any.tsv")
    try:
        pairs = load_pairs(path)
    except UndertowError:
        assert refusal(path)
        return
    (pair,) = pairs
    assert pair.female.split()
    assert pair.male.split()
    assert pair.female.casefold() != pair.male.casefold()
    assert pair.name.count("/") == 1
