"""Documents by name and by path, and rephrasings given to their spans."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from undertow.challenge.document_sources import load_documents
from undertow.types import UndertowError

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


def refusal(name: str, rephrasings: str = "") -> str:
    with pytest.raises(UndertowError) as caught:
        load_documents(name, rephrasings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["one.tsv", "one.tsv.gz"])
def test_what_a_table_holds_is_seen_from_its_columns(name: str, tmp_path: Path) -> None:
    own = load_documents(write(tmp_path, name, OWN))
    assert (own.name, len(own.evaluation), len(own.training)) == ("one", 3, 1)
    full = load_documents(write(tmp_path, name, FULL))
    assert (full.name, [document.span for document in full.evaluation]) == ("cad", ["cannot\ncook", ""])
    split = load_documents(write(tmp_path, name, SPLIT))
    assert (split.name, [document.biased for document in split.evaluation]) == ("cad-splits", [True, False])
    pairs = load_documents(write(tmp_path, name, "span\trephrasing\nslow\tcalm\n"))
    assert [document.rephrasing for document in pairs.evaluation] == ["calm"]


def test_a_table_of_ones_own_may_have_a_column_labels(tmp_path: Path) -> None:
    text = "id\ttext\tlabels\tbiased\n1\tThey lie.\tx\tyes\n"
    assert load_documents(write(tmp_path, "own.tsv", text)).notes == ("column 'labels' is not used",)


def test_the_own_set_by_name() -> None:
    assert load_documents("undertow-statements").name == "undertow-statements"


def test_cad_is_fetched_by_its_name_and_its_address_is_named_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undertow.challenge._cad_download.SOURCE_URL", "http://127.0.0.1:9/data.zip")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    message = refusal("cad")
    assert message.startswith("cad: http://127.0.0.1:9/data.zip cannot be had (")
    assert message.endswith("unpack it, and give the path of its cad_v1_1.tsv in place of the name cad")


def test_an_unknown_name_and_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert refusal("undertow-statement") == (
        "there are no documents called 'undertow-statement' and no such file: use undertow-statements, cad, a file that ends in"
        " .tsv, .csv, .tsv.gz, .csv.gz, or a folder with the files of CAD (did you mean 'undertow-statements'?)"
    )
    path = str(tmp_path / "none.tsv")
    assert refusal(path) == f"{path}: cannot be read (No such file or directory); check the path"
    assert "is not a table that is read" in refusal(write(tmp_path, "notes.txt", OWN))


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
    assert found.notes[-1] == (
        "rephrasings of pairs.tsv: 3 of 4 have their span here, in 2 evaluation and 1 training documents"
    )


def test_rephrasings_of_cad_spans_may_have_its_line_breaks(tmp_path: Path) -> None:
    pairs = write(tmp_path, "pairs.tsv", "span\trephrasing\ncannot [linebreak] cook\tdo not cook\n")
    found = load_documents(write(tmp_path, "full.tsv", FULL), pairs)
    assert [document.rephrasing for document in found.evaluation] == ["do not cook", ""]


def test_rephrasings_that_fit_nowhere_or_contradict_each_other_are_refused(tmp_path: Path) -> None:
    own = write(tmp_path, "own.tsv", OWN)
    stray = write(tmp_path, "stray.tsv", "span\trephrasing\tdimension\nare all slow\tare busy\tgender\n")
    assert refusal(own, stray) == (
        f"{stray}: none of its 1 spans is one of own; give pairs of this set's spans, or leave them out"
    )
    two = write(tmp_path, "two.tsv", "id\tspan\trephrasing\np\tare  all slow\tbusy\nq\tare all slow\tcalm\n")
    assert refusal(own, two).startswith(f"{two}: has two rephrasings of one span, the second with the id 'q'; keep one")
