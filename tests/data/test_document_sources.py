"""Documents by name and by path, and rephrasings given to their spans."""

from __future__ import annotations

import re
from pathlib import Path

from helpers.file_refusal import assert_refused, written
from undertow.data.documents.document_sources import load_documents

OWN = (
    "id\tsplit\ttext\tbiased\tdimension\tspan\n"
    "a\tevaluation\tNurses are all slow.\tyes\tprofession\tare all slow\n"
    "b\tevaluation\tOld cooks are all slow.\tyes\tage\tare all slow\n"
    "c\ttrain\tTwins cannot  sing.\tyes\tage\tcannot  sing\n"
    "d\tevaluation\tIt rains.\tno\t\t\n"
)


def test_an_unknown_name_and_a_file_that_is_not_there_are_refused(tmp_path: Path) -> None:
    named = ("'undertow-statement'", "did you mean 'undertow-statements'", "cad", ".tsv.gz")
    assert_refused(named, load_documents, "undertow-statement")
    for path in (str(tmp_path / "none.tsv"), written(tmp_path, OWN, "notes.txt")):
        assert_refused((path,), load_documents, path)


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
