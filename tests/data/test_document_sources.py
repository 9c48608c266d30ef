"""Documents by name and by path, and rephrasings given to their spans."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from helpers.file_refusal import assert_refused
from undertow.data.documents.document_sources import load_documents

OWN = (
    "id\tsplit\ttext\tbiased\tdimension\tspan\n"
    "a\tevaluation\tNurses are all slow.\tyes\tprofession\tare all slow\n"
    "b\tevaluation\tOld cooks are all slow.\tyes\tage\tare all slow\n"
    "c\ttrain\tTwins cannot  sing.\tyes\tage\tcannot  sing\n"
    "d\tevaluation\tIt rains.\tno\t\t\n"
)
FULL = (
    "id\tsplit\tannotation_Primary\tannotation_Target_top.level.category\tannotation_highlighted\tmeta_text\n"
    'cad_1\ttest\tIdentityDirectedAbuse\tage\tcannot [linebreak] cook\tThey cannot [linebreak] cook.\n'
    'cad_2\tdev\tNeutral\t"NA"\t"NA"\tIt rains.\n'
)  # fmt: skip
SPLIT = "id\ttext\tlabels\n1\tThey lie.\tAffiliationDirectedAbuse\n2\tIt rains.\tNeutral\n"


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


@pytest.mark.parametrize("name", ["one.tsv", "one.tsv.gz"])
def test_what_a_table_holds_is_seen_from_its_columns(name: str, tmp_path: Path) -> None:
    own = load_documents(write(tmp_path, name, OWN))
    assert (own.name, len(own.evaluation), len(own.training)) == ("one", 3, 1)
    labelled = load_documents(write(tmp_path, name, OWN.replace("\tspan", "\tlabels")))
    assert labelled.notes == ("column 'labels' is not used",)
    full = load_documents(write(tmp_path, name, FULL))
    assert (full.name, [document.span for document in full.evaluation]) == ("cad", ["cannot\ncook", ""])
    split = load_documents(write(tmp_path, name, SPLIT))
    assert (split.name, [document.biased for document in split.evaluation]) == ("cad-splits", [True, False])
    pairs = load_documents(write(tmp_path, name, "span\trephrasing\nslow\tcalm\n"))
    assert [document.rephrasing for document in pairs.evaluation] == ["calm"]


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


def test_rephrasings_of_cad_spans_may_have_its_line_breaks(tmp_path: Path) -> None:
    pairs = write(tmp_path, "pairs.tsv", "span\trephrasing\ncannot [linebreak] cook\tdo not cook\n")
    found = load_documents(write(tmp_path, "full.tsv", FULL), pairs)
    assert [document.rephrasing for document in found.evaluation] == ["do not cook", ""]


def test_rephrasings_that_fit_nowhere_or_contradict_each_other_are_refused(tmp_path: Path) -> None:
    own = write(tmp_path, "own.tsv", OWN)
    stray = write(tmp_path, "stray.tsv", "span\trephrasing\tdimension\nare all slow\tare busy\tgender\n")
    assert_refused((stray, "own"), load_documents, own, stray)
    two = write(tmp_path, "two.tsv", "id\tspan\trephrasing\np\tare  all slow\tbusy\nq\tare all slow\tcalm\n")
    assert_refused((two, "'q'"), load_documents, own, two)
