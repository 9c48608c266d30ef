"""Documents by name and by path, and rephrasings given to their spans."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from helpers.file_refusal import assert_refused
from undertow.data.documents.document_sources import load_documents

OWN = (
    "id\tsplit\ttext\tbiased\tdimension\tspan\n"
    "a\tevaluation\tNurses are all slow.\tyes\tprofession\tare all slow\n"
    "b\tevaluation\tOld cooks are all slow.\tyes\tage\tare all slow\n"
    "c\ttrain\tTwins cannot  sing.\tyes\tage\tcannot  sing\n"
    "d\tevaluation\tIt rains.\tno\t\t\n"
)


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


def test_an_unknown_name_and_a_file_that_is_not_there_are_refused(tmp_path: Path) -> None:
    named = ("'undertow-statement'", "did you mean 'undertow-statements'", "cad", ".tsv.gz")
    assert_refused(named, load_documents, "undertow-statement")
    for path in (str(tmp_path / "none.tsv"), write(tmp_path, "notes.txt", OWN)):
        assert_refused((path,), load_documents, path)


def test_rephrasings_go_to_the_documents_with_their_span(tmp_path: Path) -> None:
    pairs = (
        "span\trephrasing\tdimension\n"
        "are all slow\tare busy\tprofession\n"
        "are all slow\ttake time\t\n"
        "cannot sing\tdo not sing\t\n"
        "never here\tnot here\t\n"
    )
    found = load_documents(write(tmp_path, "own.tsv", OWN), write(tmp_path, "pairs.tsv", pairs))
    assert [document.rephrasing for document in found.evaluation] == ["are busy", "take time", ""]
    assert [document.rephrasing for document in found.training] == ["do not sing"]
    assert re.findall(r"\d+", found.notes[-1]) == ["3", "4", "2", "1"]


def test_rephrasings_that_fit_nowhere_or_contradict_each_other_are_refused(tmp_path: Path) -> None:
    own = write(tmp_path, "own.tsv", OWN)
    stray = write(tmp_path, "stray.tsv", "span\trephrasing\tdimension\nare all slow\tare busy\tgender\n")
    assert_refused((stray, "own"), load_documents, own, stray)
    two = write(tmp_path, "two.tsv", "id\tspan\trephrasing\np\tare  all slow\tbusy\nq\tare all slow\tcalm\n")
    assert_refused((two, "'q'"), load_documents, own, two)
