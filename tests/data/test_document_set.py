from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from helpers.file_refusal import assert_refused, written
from undertow.data.documents.document_set import Document, read_documents, read_rephrase_pairs
from undertow.data.documents.document_sources import load_documents

COLUMNS = ("id", "split", "text", "biased", "dimension", "span", "rephrasing")
GOOD = (
    ("a", "evaluation", "Nurses are all slow today.", "yes", "Profession", "are all slow", "are busy"),
    ("b", "train", "The tram is late.", "no", "", "", ""),
    ("c", "evaluation", "Left-handers cannot cook.", "TRUE", "handedness", "cannot cook", ""),
    ("d", "evaluation", "It rains.", "0", "", "", ""),
)


def table(rows: tuple[tuple[str, ...], ...], columns: tuple[str, ...] = COLUMNS) -> str:
    return "".join("\t".join(row) + "\n" for row in (columns, *rows))


def one(text: str, biased: str = "yes", **cells: str) -> str:
    """A table whose third line is the row that is tested."""
    columns = ("text", "biased", *cells)
    first = ("Fine.", "no", *("first" if name == "id" else "train" if name == "split" else "" for name in cells))
    return table((first, (text, biased, *cells.values())), columns)


def test_a_table_of_documents(tmp_path: Path) -> None:
    found = read_documents(Path(written(tmp_path, table(GOOD))))
    assert found.evaluation == (
        Document("a", "Nurses are all slow today.", True, "profession", "are all slow", "are busy"),
        Document("c", "Left-handers cannot cook.", True, "handedness", "cannot cook", ""),
        Document("d", "It rains.", False),
    )
    assert found.training == (Document("b", "The tram is late.", False),)
    assert (found.name, found.title, found.source, found.notes) == ("own", "documents of own.tsv", "own.tsv", ())
    assert [document.category for document in found.evaluation] == ["affiliation", "", ""]


def test_repeated_texts_and_misspelt_dimensions_are_noted_with_their_lines(tmp_path: Path) -> None:
    rows = "text,biased,dimension\nThey lie.,yes,agee\nIt rains.,no,\nThey lie.,no,\n"
    found = read_documents(Path(written(tmp_path, rows, "own.csv")))
    dimension, repeated = found.notes
    assert "line 2 has the dimension 'agee'" in dimension
    assert "'age'" in dimension
    assert "line 4 (that of line 2)" in repeated


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bom.tsv", "\ufeff" + table(GOOD)), ("crlf.tsv", table(GOOD).replace("\n", "\r\n")), ("packed.tsv.gz", table(GOOD)),
        ("semicolons.csv", table(GOOD).replace("\t", ";")), ("blank_lines.tsv", table(GOOD).replace("\n", "\n\n")),
        ("other_order.tsv", table(tuple(row[::-1] for row in GOOD), COLUMNS[::-1])),
    ],
)  # fmt: skip
def test_the_same_table_written_in_another_way(name: str, text: str, tmp_path: Path) -> None:
    wanted, found = (read_documents(Path(written(tmp_path, *one))) for one in ((table(GOOD),), (text, name)))
    assert (found.evaluation, found.training) == (wanted.evaluation, wanted.training)


def test_quotes_are_the_files_in_csv_and_the_texts_in_tsv(tmp_path: Path) -> None:
    text = 'text,biased\n"He said, ""no"".\nTwice.",yes\nthen,no\n'
    found = read_documents(Path(written(tmp_path, text, "quoted.csv"))).evaluation
    assert [(document.id, document.text) for document in found] == [
        ("line 2", 'He said, "no".\nTwice.'), ("line 4", "then"),
    ]  # fmt: skip
    rows = 'text\tbiased\tdimension\n"He said ""no"""\tyes\tall ages\n'
    (document,) = read_documents(Path(written(tmp_path, rows))).evaluation
    assert (document.text, document.dimension) == ('"He said ""no"""', "all ages")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (one("They lie.", "maybe"), "line 3: biased"), (one("They lie.", span="They lied"), "line 3: the span"),
        (one("  "), "line 3: text"), (one("They lie.", id="first"), "line 3: repeats the id 'first'"),
        (one("They lie.", "no", dimension="age"), "line 3: has a dimension"),
        (one("They lie.", "no", span="lie"), "line 3: has a span"),
        *((one("They lie.", dimension=name), repr(name)) for name in ("all", "All", "(none of them)")),
        (one("They lie.", rephrasing="They sit."), "line 3: has a rephrasing"),
        (one("They lie.", split="test"), "line 3: split"), (one("They lie.", split="train"), "split"),
        (one("They\x07lie."), r"'\x07'"), (one("They\0lie."), "line 3: a zero byte"),
        ("text\tbaised\nThey lie.\tyes\n", "did you mean 'baised'"), ("text\tbiased\ttext\na\tyes\tb\n", "'text'"),
        ("text\tbiased\nfine\tno\nThey lie.\tyes\tage\n", "line 3: has 3 cells"),
        ("text\tbiased\n", "no rows"), ("", "empty"), (b"text\tbiased\nfine\tno\ncaf\xe9\tyes\n", "line 3: byte 23"),
    ],
)  # fmt: skip
def test_a_damaged_table_is_refused_by_its_line(text: str | bytes, named: str, tmp_path: Path) -> None:
    path = Path(written(tmp_path, text))
    assert_refused((path, named), read_documents, path)


def test_a_file_that_cannot_be_read_or_unpacks_to_far_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("undertow.data.text_files.MAX_TABLE_BYTES", 2**20)
    cut, none = tmp_path / "cut.tsv.gz", tmp_path / "none.tsv"
    cut.write_bytes(gzip.compress(table(GOOD).encode())[:-20])
    excel = written(tmp_path, table(GOOD), "own.xlsx")
    quoted = written(tmp_path, 'text,biased\nfine,no\n"open,yes\n', "own.csv")
    bomb = written(tmp_path, b"text\tbiased\n" + b"a" * 2**20, "bomb.tsv.gz")
    for path, named in ((cut, "gzip"), (none, ""), (excel, ".tsv"), (quoted, "line 3"), (bomb, "1 MiB")):
        assert_refused((path, named), read_documents, Path(path))


def test_rephrase_pairs_are_read_and_damaged_ones_refused(tmp_path: Path) -> None:
    text = "rephrasing\tspan\tdimension\ttext\nare busy\tare slow\tprofession\tThey are slow.\nrest\tsleep\t\t\n"
    path = Path(written(tmp_path, text))
    assert read_rephrase_pairs(path).evaluation == (
        Document("line 2", "They are slow.", True, "profession", "are slow", "are busy"),
        Document("line 3", "sleep", True, "", "sleep", "rest"),
    )
    for text, named in (
        ("span\tdimension\nslow\tage\n", "'rephrasing'"),
        *((f"span\trephrasing\ttext\n{row}\n", wrong)
          for row, wrong in (("slow\t\t", "rephrasing"), ("\tcalm\t", "span"), ("slow\tcalm\tThey rest.", "'slow'"))),
    ):  # fmt: skip
        assert_refused((written(tmp_path, text), named), read_rephrase_pairs, path)


OWN = (
    "id\tsplit\ttext\tbiased\tdimension\tspan\n"
    "a\tevaluation\tNurses are all slow.\tyes\tprofession\tare all slow\n"
    "b\tevaluation\tOld cooks are all slow.\tyes\tage\tare all slow\n"
    "c\ttrain\tTwins cannot  sing.\tyes\tage\tcannot  sing\n"
    "d\tevaluation\tIt rains.\tno\t\t\n"
)


def test_rephrasings_go_to_the_documents_with_their_span(tmp_path: Path) -> None:
    pairs = (
        "span\trephrasing\tdimension\n"
        "are all slow\tare busy\tprofession\n"
        "are all slow\ttake time\t\n"
        "cannot sing\tdo not sing\t\n"
        "never here\tnot here\t\n"
    )
    found = load_documents(written(tmp_path, OWN), written(tmp_path, pairs, "pairs.tsv"))
    assert [document.rephrasing for document in found.evaluation] == ["are busy", "take time", ""]
    assert [document.rephrasing for document in found.training] == ["do not sing"]
    assert re.findall(r"\d+", found.notes[-1]) == ["3", "4", "2", "1"]


def test_rephrasings_that_fit_nowhere_or_contradict_each_other_are_refused(tmp_path: Path) -> None:
    own = written(tmp_path, OWN)
    for text, named in (
        ("span\trephrasing\tdimension\nare all slow\tare busy\tgender\n", "own"),
        ("id\tspan\trephrasing\np\tare  all slow\tbusy\nq\tare all slow\tcalm\n", "'q'"),
    ):
        pairs = written(tmp_path, text, "pairs.tsv")
        assert_refused((pairs, named), load_documents, own, pairs)
