"""CAD: a full file made here, whose truth is known row by row, and the real split files beside a count of their own."""

from __future__ import annotations

import csv
import gzip
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from undertow.challenge._cad_splits import read_splits
from undertow.challenge._cad_values import clean, dimension_of, find_span
from undertow.challenge.cad import read_cad, read_folder
from undertow.challenge.documents import DIMENSIONS, Document
from undertow.types import UndertowError

COLUMNS = (
    "id", "info_id", "info_subreddit", "info_subreddit_id", "info_id.parent", "info_id.link", "info_thread.id", "info_order",
    "info_image.saved", "annotation_Primary", "annotation_Secondary", "annotation_Context", "annotation_Target",
    "annotation_Target_top.level.category", "annotation_highlighted", "meta_author", "meta_created_utc", "meta_date", "meta_day",
    "meta_permalink", "split", "subreddit_seen", "meta_text",
)  # fmt: skip
PRIMARY, TARGET, MARKED, TEXT = (
    "annotation_Primary", "annotation_Target_top.level.category", "annotation_highlighted", "meta_text",
)  # fmt: skip
IDENTITY = ("IdentityDirectedAbuse", "Identity-directed Abuse", "Identity_DirectedAbuse", "identity directed abuse")
AFFILIATION = ("AffiliationDirectedAbuse", "Affiliation-directed abuse")
LONG = " ".join(["word"] * 149)
NA = '"NA"'


def kinds() -> Iterator[tuple[int, str, dict[str, str]]]:
    """How many rows of each kind, what becomes of them, and their cells; `{n}` is the row's number."""
    fine, bad = "Tea number {n} is warm.", "I say  [linebreak]  [linebreak] cooks {n} are  slow."
    yield 300, "neutral evaluation", {PRIMARY: "Neutral", "split": "test", TEXT: fine}
    yield 100, "neutral evaluation", {PRIMARY: "neutral", "split": "dev", TEXT: fine}
    yield 150, "neutral training", {PRIMARY: "Neutral", "split": "train", TEXT: fine}
    yield 20, "too long", {PRIMARY: "Neutral", "split": "train", TEXT: f"{LONG} row {{n}}"}
    yield 15, "neutral training", {PRIMARY: "Neutral", "split": "train", TEXT: f"{LONG} {{n}}"}
    marked = {MARKED: "cooks {n} are  slow", TEXT: bad}
    yield 80, "gender evaluation", {PRIMARY: "identity", "split": "dev", TARGET: "gender"} | marked
    marked = {MARKED: "say [linebreak] COOKS {n}", TEXT: bad}
    yield 40, "political affiliation evaluation", {PRIMARY: "affiliation", "split": "test", TARGET: "Politics"} | marked
    marked = {MARKED: '"{n} are slow"', TEXT: bad}
    yield 60, "disability training", {PRIMARY: "identity", "split": "train", TARGET: "ableness/disability"} | marked
    marked = {MARKED: "word word", TEXT: f"{LONG} row {{n}}"}
    yield 10, "too long", {PRIMARY: "identity", "split": "train", TARGET: "age"} | marked
    biased = {PRIMARY: "identity", TARGET: "race", TEXT: bad}
    yield 20, "no rationale", biased | {"split": "test", MARKED: NA}
    yield 10, "no rationale", biased | {"split": "train", MARKED: ""}
    yield 25, "not in text", biased | {"split": "test", MARKED: "cooks {n} are fast"}
    yield 20, "no dimension", biased | {"split": "dev", MARKED: "are slow", TARGET: "hobbies"}
    yield 5, "no dimension", biased | {"split": "dev", MARKED: "are slow", TARGET: NA}
    for n, name in ((50, "PersonDirectedAbuse"), (25, "Slur"), (20, "Counter Speech")):
        yield n, "neither", {PRIMARY: name, "split": "test", MARKED: "are slow", TEXT: bad}
    yield 30, "excluded", biased | {"split": "exclude_bot", MARKED: "are slow"}
    yield 20, "excluded", {PRIMARY: "Neutral", "split": "exclude_empty", TEXT: ""}


def made() -> list[tuple[str, dict[str, str]]]:
    """1,000 rows with what becomes of each, in a mixed order."""
    rows: list[tuple[str, dict[str, str]]] = []
    for count, outcome, cells in kinds():
        for _ in range(count):
            n = len(rows)
            row = dict.fromkeys(COLUMNS, NA) | {"id": f"cad_{n // 2}", "info_id": f"e{n // 2}"}
            row |= {name: cell.replace("{n}", str(n)) for name, cell in cells.items()}
            spellings = {"identity": IDENTITY, "affiliation": AFFILIATION}.get(row[PRIMARY], (row[PRIMARY],))
            rows.append((outcome, row | {PRIMARY: spellings[n % len(spellings)]}))
    random.Random(5).shuffle(rows)
    return rows


def write(path: Path, rows: list[dict[str, str]], columns: tuple[str, ...] = COLUMNS) -> Path:
    lines = ["\t".join(columns), *("\t".join(row[name] for name in columns) for row in rows)]
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["cad_v1_1.tsv", "cad_v1_1.tsv.gz"])
def test_a_thousand_rows_come_to_what_they_are(name: str, tmp_path: Path) -> None:
    rows = made()
    assert len(rows) == 1000
    columns = list(COLUMNS)
    random.Random(6).shuffle(columns)
    found = read_cad(write(tmp_path / name, [row for _, row in rows], tuple(columns)))
    truth = Counter(outcome for outcome, _ in rows)

    for part, documents in (("evaluation", found.evaluation), ("training", found.training)):
        counted = Counter(f"{document.dimension or 'neutral'} {part}" for document in documents)
        assert counted == {outcome: n for outcome, n in truth.items() if outcome.endswith(part)}
        assert all(document.biased is bool(document.dimension) is bool(document.span) for document in documents)
        assert all(document.span in document.text for document in documents)
        assert not any("[linebreak]" in document.text for document in documents)
    everything = (*found.evaluation, *found.training)
    assert len({document.id for document in everything}) == len(everything) == 745
    assert all(re.fullmatch(r"cad_\d+(#2)?", document.id) for document in everything)
    assert any(document.id.endswith("#2") for document in everything)

    spans = {document.dimension: re.sub(r"\d+", "N", document.span) for document in everything}
    assert spans == {
        "": "",
        "gender": "cooks N are  slow",
        "political affiliation": "say\n\ncooks N",
        "disability": "N are  slow",
    }
    notes = "\n".join(found.notes)
    assert "identification: 120 documents of the evaluation splits pass the filters (the paper has 580), 60 of" in notes
    assert (
        "diagnosis: 520 distinct evaluation texts, 120 biased and 400 not (the paper has 1,209: 596 and 613)" in notes
    )
    assert "diagnosis: 225 distinct training texts, 60 biased and 165 not (the paper has 1,783: 892 and 891)" in notes
    assert "extraction: 120 documents of the evaluation splits have a span (the paper has 496)" in notes
    assert "gender 80 (101)" in notes
    assert "age 0 (16)" in notes
    assert "all of them are here" in notes
    assert (
        "left out: 50 in the splits that CAD's authors exclude, 95 neither neutral nor directed at an identity or an affiliation,"
        " 30 biased without a rationale, 25 biased with a rationale that does not stand in the text,"
        " 25 biased on none of the eleven dimensions, 30 training documents of more than 150 words"
    ) in notes
    assert "targets that are not known to be on one of the eleven dimensions: 'hobbies' 20" in notes


def row(**cells: str) -> dict[str, str]:
    """A biased row that passes every filter, but for what is changed."""
    good = {
        "id": "cad_1",
        PRIMARY: "IdentityDirectedAbuse",
        TARGET: "age",
        "split": "test",
        MARKED: "slow",
        TEXT: "They are slow.",
    }
    return (
        dict.fromkeys(COLUMNS, NA)
        | good
        | {{"primary": PRIMARY, "text": TEXT, "marked": MARKED}.get(k, k): v for k, v in cells.items()}
    )


def only(path: Path, rows: list[dict[str, str]]) -> Document:
    (document,) = read_cad(write(path, rows)).evaluation
    return document


def refusal(path: Path) -> str:
    with pytest.raises(UndertowError) as caught:
        read_cad(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message.removeprefix(str(path))


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (
            {"primary": "Neutrl"},
            ", line 3: the primary category 'Neutrl' is not one of CAD's (did you mean 'Neutral'?); it should be one of Neutral,"
            " IdentityDirectedAbuse, AffiliationDirectedAbuse, PersonDirectedAbuse, CounterSpeech, Slur",
        ),
        ({"primary": "x" * 500}, ", line 3: the primary category 'xxxxxxxxxxxxxxxxxxxx...' is not one of CAD's; it"),
        ({"split": NA}, ", line 3: split is '\"NA\"'; it should be train, dev, test or one that begins with exclude"),
        ({"text": "They are slow.\tYes"}, ", line 3: has 24 cells, but the header has 23; look for a tab"),
        ({"text": "They\nare slow."}, ", line 4: has 1 cell, but the header has 23; look for a tab"),
        ({"text": "They are\0slow."}, ", line 3: holds a zero byte; save the file as plain UTF-8 text"),
    ],
)
def test_each_damage_names_its_line(cells: dict[str, str], said: str, tmp_path: Path) -> None:
    assert refusal(write(tmp_path / "full.tsv", [row(), row(**cells), row()])).startswith(said)


def test_a_damaged_file(tmp_path: Path) -> None:
    path = write(tmp_path / "full.tsv", [row(), row()])
    path.write_bytes(path.read_bytes().replace(b"They are", b"Th\xe9y are", 2))
    assert ", line 2: byte " in refusal(path)
    path.write_bytes(gzip.compress(path.read_bytes())[:-30])
    assert refusal(path).startswith(": is not a whole gzip file (")
    write(path, [row()], tuple(name for name in COLUMNS if name != TARGET))
    assert refusal(path).startswith(
        f": has no column {TARGET!r} (did you mean 'annotation_Target'?); it needs id, split,"
    )
    assert refusal(write(path, [])) == ": holds no rows below its header; add some"


def test_marks_at_the_start_and_ends_of_lines_and_odd_characters_change_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "full.tsv", [row(), row(id="cad_2", text="They\x0bare \x85 slow \u2028 now.")])
    plain = read_cad(path).evaluation
    assert [document.text for document in plain] == ["They are slow.", "They are \x85 slow \u2028 now."]
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_cad(path).evaluation == plain


def test_quotes_that_an_author_put_around_a_text_stay(tmp_path: Path) -> None:
    path = tmp_path / "full.tsv"
    assert only(path, [row(text='"They are slow."')]).text == '"They are slow."'
    assert only(path, [row(text='"They" are "slow"')]).text == '"They" are "slow"'
    found = only(path, [row(text='"They" are "slow"', marked='"slow"')])
    assert found.span == '"slow"'


def test_quotes_that_the_file_has_around_its_cells_do_not(tmp_path: Path) -> None:
    path = tmp_path / "full.tsv"
    assert only(path, [row(text='"They are ""slow""."')]).text == 'They are "slow".'
    quoted = {f'"{name}"': f'"{cell}"' for name, cell in row(text='They say ""so""').items()} | {
        f'"{MARKED}"': '"say ""so"""'
    }
    found = read_cad(write(path, [quoted], tuple(quoted))).evaluation
    assert found == (Document("cad_1", 'They say "so"', True, "age", 'say "so"'),)
    everything_na = quoted | {f'"{MARKED}"': NA}
    assert "1 biased without a rationale" in str(read_cad(write(path, [everything_na], tuple(quoted))).notes)


def test_a_dimension_of_the_other_category_is_kept_and_noted(tmp_path: Path) -> None:
    found = read_cad(write(tmp_path / "full.tsv", [row(primary="AffiliationDirectedAbuse"), row()]))
    assert len(found.evaluation) == 2
    assert found.notes[-1].startswith("1 biased documents have a dimension of the other coarse category")


def test_a_text_with_two_rationales_is_two_documents_and_one_text(tmp_path: Path) -> None:
    found = read_cad(write(tmp_path / "full.tsv", [row(), row(marked="They")]))
    assert [(document.id, document.span) for document in found.evaluation] == [("cad_1", "slow"), ("cad_1#2", "They")]
    assert found.notes[0].startswith("diagnosis: 1 distinct evaluation texts, 1 biased and 0 not")


@pytest.mark.parametrize(
    ("target", "dimension"),
    [
        *((name, name) for name in DIMENSIONS),
        *((name.title().replace(" ", "_"), name) for name in DIMENSIONS),
        ("ableness/disability", "disability"),
        ("Gender / Sex", "gender"),
        ("sexual-orientation", "sexuality"),
        ("politics", "political affiliation"),
        ("negatively viewed groups", "perceived negative groups"),
        ("race/ethnicity", ""),
        ("race/hobbies", ""),
        ("hobbies", ""),
        (NA, ""),
        ("", ""),
    ],
)
def test_names_of_dimensions(target: str, dimension: str) -> None:
    assert dimension_of(target) == dimension


def squeezed(text: str) -> str:
    return "".join(text.lower().split())


@given(st.lists(st.text(alphabet="abAB(.*é \t\n", min_size=1, max_size=6), min_size=1, max_size=12), st.data())
def test_a_piece_of_a_text_is_found_however_its_white_space_and_letters_are_written(
    words: list[str], data: st.DataObject
) -> None:
    text = clean(" [linebreak] ".join(words))
    first = data.draw(st.integers(0, len(text)))
    piece = text[first : data.draw(st.integers(first, len(text)))]
    ways = [piece, piece.upper(), re.sub(r"\s+", "  ", piece), piece.replace("\n", "[LineBreak]"), f'"{piece}"']
    span = find_span(data.draw(st.sampled_from(ways)), text)
    assert span in text
    assert squeezed(span) == squeezed(piece)


@given(st.text(max_size=30), st.text(max_size=8))
def test_a_span_is_always_a_piece_of_its_text(text: str, rationale: str) -> None:
    assert find_span(rationale, clean(text)) in clean(text)


def splits(folder: Path, **texts: str) -> Path:
    for part, text in texts.items():
        (folder / f"cad_v1_1_{part}.tsv").write_text(f"id\ttext\tlabels\n{text}", encoding="utf-8")
    return folder


def test_split_files(tmp_path: Path) -> None:
    folder = splits(
        tmp_path,
        train=f"1\tTea [linebreak] is warm.\tNeutral\n2\t{LONG} a b\tNeutral\n",
        dev="3\tThey lie.\tCounterSpeech,IdentityDirectedAbuse\n4\tYou lie.\tPersonDirectedAbuse\n5\t [linebreak] \tNeutral\n",
        test="3\tAll lie.\tAffiliationDirectedAbuse\n7\tTea [linebreak] is warm.\tNeutral\n",
    )
    found = read_folder(folder)
    assert found.training == (Document("1", "Tea\nis warm.", False),)
    assert found.evaluation == (
        Document("3", "They lie.", True),
        Document("3#2", "All lie.", True),
        Document("7", "Tea\nis warm.", False),
    )
    notes = "\n".join(found.notes)
    assert (
        "left out: 1 training documents of more than 150 words, 1 neither neutral nor directed at an identity or an affiliation,"
        " 1 without a text"
    ) in notes
    assert "1 of the evaluation texts stand among the training ones too" in notes
    lone = read_splits([folder / "cad_v1_1_train.tsv"])
    assert (len(lone.evaluation), len(lone.training)) == (0, 1)
    lone = read_splits([folder / "cad_v1_1_dev.tsv"])
    assert (len(lone.evaluation), len(lone.training)) == (1, 0)


def test_a_split_file_with_an_unknown_label_is_refused(tmp_path: Path) -> None:
    folder = splits(tmp_path, dev="1\tTea.\tNeutral\n2\tTea.\tNeutral,Odd\n")
    with pytest.raises(
        UndertowError, match=r"cad_v1_1_dev\.tsv, line 3: the primary category 'Odd' is not one of CAD's"
    ):
        read_splits([folder / "cad_v1_1_dev.tsv"])


def test_a_folder_gives_its_full_file_and_the_corrected_version(tmp_path: Path) -> None:
    line = "1\tTea.\tNeutral\n"
    splits(tmp_path, train=line, dev=line)
    with pytest.raises(UndertowError, match=r"nor a split file named like cad_v1_1_test\.tsv"):
        read_folder(tmp_path)
    splits(tmp_path, test=line)
    (tmp_path / "cad_v1_test.tsv").write_text("id\ttext\tlabels\n9\tOld.\tNeutral\n", encoding="utf-8")
    assert [document.text for document in read_folder(tmp_path).evaluation] == ["Tea.", "Tea."]
    write(tmp_path / "cad_v1.tsv", [row(text="Old and slow.")])
    assert read_folder(tmp_path).source.endswith(", cad_v1.tsv")
    write(tmp_path / "cad_v1_1.tsv", [row()])
    assert [document.text for document in read_folder(tmp_path).evaluation] == ["They are slow."]
    write(tmp_path / "copy_of_cad_v1_1.tsv", [row()])
    with pytest.raises(
        UndertowError, match=r"several full files of CAD: cad_v1_1\.tsv, copy_of_cad_v1_1\.tsv; name the one"
    ):
        read_folder(tmp_path)


def truth_of(path: Path, is_training: bool) -> Mapping[str, bool]:
    """Whether each text of a real split file is biased, by pandas."""
    frame = pd.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE, keep_default_na=False, dtype=str)
    words = frame["text"].map(lambda text: len(text.replace("[linebreak]", " ").split()))
    frame = frame[(words > 0) & (words <= (150 if is_training else words.max()))]
    biased = frame["labels"].str.contains("IdentityDirectedAbuse|AffiliationDirectedAbuse", regex=True)
    kept = frame[biased | (frame["labels"] == "Neutral")]
    return dict(zip(kept["id"], biased[kept.index].tolist(), strict=True))


def test_the_real_split_files(reference_data: Path) -> None:
    folder = reference_data / "cad"
    found = read_folder(folder)
    train, dev, test = (
        truth_of(folder / f"cad_v1_1_{part}.tsv.gz", part == "train") for part in ("train", "dev", "test")
    )
    assert {document.id: document.biased for document in found.training} == train
    assert {document.id: document.biased for document in found.evaluation} == {**dev, **test}
    assert (len(found.training), len(found.evaluation)) == (len(train), len(dev) + len(test))
    assert sum(document.biased for document in found.evaluation) == sum(dev.values()) + sum(test.values())
    assert all(document.text == document.text.strip() != "" for document in (*found.training, *found.evaluation))
