"""No text of CAD stands here."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import random
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest

from helpers.file_refusal import assert_refused, refusal
from helpers.published_site import Site, kept, serving
from undertow.data.documents import cad as download
from undertow.data.documents.cad import FULL, SPLITS, read_cad, read_folder
from undertow.data.documents.document_set import DIMENSIONS, Document
from undertow.data.documents.document_sources import load_documents

COLUMNS = (
    "id", "info_id", "info_subreddit", "info_subreddit_id", "info_id.parent", "info_id.link", "info_thread.id",
    "info_order", "info_image.saved", "annotation_Primary", "annotation_Secondary", "annotation_Context",
    "annotation_Target", "annotation_Target_top.level.category", "annotation_highlighted", "meta_author",
    "meta_created_utc", "meta_date", "meta_day", "meta_permalink", "split", "subreddit_seen", "meta_text",
)  # fmt: skip
NA = '"NA"'
Row = dict[str, str]
NAMES = {
    "entry": "info_id",
    "primary": "annotation_Primary",
    "target": "annotation_Target_top.level.category",
    "marked": "annotation_highlighted",
    "text": "meta_text",
}


def row(**cells: str) -> Row:
    """A row of these cells; all others are NA."""
    return dict.fromkeys(COLUMNS, NA) | {NAMES.get(name, name): cell for name, cell in cells.items()}


def table(rows: Iterable[Row], columns: Sequence[str] = COLUMNS) -> bytes:
    lines = ["\t".join(columns), *("\t".join(one[name] for name in columns) for one in rows)]
    return ("\n".join(lines) + "\n").encode()


IDENTITY = ("IdentityDirectedAbuse", "Identity-directed Abuse", "Identity_DirectedAbuse", "identity directed abuse")
AFFILIATION = ("AffiliationDirectedAbuse", "Affiliation-directed abuse")
SPELLINGS = {"identity": IDENTITY, "affiliation": AFFILIATION}
LONG = " ".join(["word"] * 149)


def kinds() -> Iterator[tuple[int, str, Row]]:
    """How many rows of each kind, what becomes of them, and their cells; `{n}` is the row's number."""
    fine, bad = "Tea number {n} is warm.", "I say  [linebreak]  [linebreak] cooks {n} are  slow."
    yield 300, "neutral evaluation", row(primary="Neutral", split="test", text=fine)
    yield 100, "neutral evaluation", row(primary="neutral", split="dev", text=fine)
    yield 150, "neutral training", row(primary="Neutral", split="train", text=fine)
    yield 20, "too long", row(primary="Neutral", split="train", text=f"{LONG} row {{n}}")
    yield 15, "neutral training", row(primary="Neutral", split="train", text=f"{LONG} {{n}}")
    biased = {"primary": "identity", "target": "race", "text": bad}
    for n, outcome, split, target, marked in (
        (80, "gender evaluation", "dev", "gender", "cooks {n} are  slow"),
        (60, "disability training", "train", "ableness/disability", '"{n} are slow"'),
        (30, "no rationale", "test", "race", NA),
        (25, "not in text", "test", "race", "cooks {n} are fast"),
        (20, "no dimension", "dev", "hobbies", "are slow"),
        (5, "no dimension", "dev", NA, "are slow"),
        (30, "excluded", "exclude_bot", "race", "are slow"),
    ):
        yield n, outcome, row(**biased | {"split": split, "target": target, "marked": marked})
    political = {"primary": "affiliation", "target": "Politics", "marked": "say [linebreak] COOKS {n}"}
    yield 40, "political affiliation evaluation", row(**biased | political, split="test")
    too_long = {"target": "age", "marked": "word word", "text": f"{LONG} row {{n}}"}
    yield 10, "too long", row(**biased | too_long, split="train")
    for n, name in ((50, "PersonDirectedAbuse"), (25, "Slur"), (20, "Counter Speech")):
        yield n, "neither", row(primary=name, split="test", marked="are slow", text=bad)
    yield 20, "excluded", row(primary="Neutral", split="exclude_empty", text="")


def made() -> list[tuple[str, Row]]:
    """1,000 rows with what becomes of each, in a mixed order."""
    rows: list[tuple[str, Row]] = []
    for count, outcome, cells in kinds():
        for _ in range(count):
            n = len(rows)
            numbered = {name: cell.replace("{n}", str(n)) for name, cell in cells.items()}
            primary = numbered[NAMES["primary"]]
            spellings = SPELLINGS.get(primary, (primary,))
            given = {NAMES["primary"]: spellings[n % len(spellings)], "id": f"cad_{n // 2}", "info_id": f"e{n // 2}"}
            rows.append((outcome, numbered | given))
    random.Random(5).shuffle(rows)
    return rows


def write(path: Path, rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> Path:
    data = table(rows, columns)
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
    numbers = [" ".join(re.findall(r"[\d,]+\d|\d", note)) for note in found.notes]
    for expected in (
        "120 580 60",  # documents for identification, those of the paper, and those whose rationale ...
        "520 120 400 1,209 596 613",  # evaluation texts, biased and not; the paper's
        "225 60 165 1,783 892 891",  # training texts
        "120 496",  # documents for extraction
        "50 95 30 25 25 30 150",  # left out, by reason; the words that a training document may have
    ):
        assert any(told.startswith(expected) for told in numbers), (expected, numbers)
    notes = "\n".join(found.notes)
    for told in ("gender 80 (101)", "age 0 (16)", "'hobbies' 20"):
        assert told in notes


def good(**cells: str) -> Row:
    """A biased row that passes every filter, but for what is changed."""
    known = {"id": "cad_1", "primary": "IdentityDirectedAbuse", "target": "age", "split": "test", "marked": "slow"}
    return row(**known | {"text": "They are slow."} | cells)


def only(path: Path, *rows: Row) -> Document:
    (document,) = read_cad(write(path, rows)).evaluation
    return document


def test_a_damaged_file_is_refused_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "full.tsv"
    corrupt = (
        ({"primary": "Neutrl"}, "did you mean 'Neutral'"),
        ({"split": NA}, "split"),
        ({"text": "They are slow.\tYes"}, "24 cells"),
        ({"text": "They are\0slow."}, "zero byte"),
    )
    for cells, named in corrupt:
        assert_refused((path, "line 3", named), read_cad, write(path, [good(), good(**cells), good()]))
    write(path, [good(), good()])
    path.write_bytes(path.read_bytes().replace(b"They are", b"Th\xe9y are", 2))
    assert_refused((path, "line 2"), read_cad, path)
    path.write_bytes(gzip.compress(path.read_bytes())[:-30])
    assert_refused((path, "gzip"), read_cad, path)
    target = NAMES["target"]
    write(path, [good()], tuple(name for name in COLUMNS if name != target))
    assert_refused((path, repr(target), "did you mean 'annotation_Target'"), read_cad, path)
    assert_refused((path, "no rows"), read_cad, write(path, []))


def test_a_byte_order_mark_line_ends_and_odd_characters_change_nothing(tmp_path: Path) -> None:
    odd = good(id="cad_2", text="They\x0bare \x85 slow \u2028 now.")
    path = write(tmp_path / "full.tsv", [good(), odd])
    plain = read_cad(path).evaluation
    assert [document.text for document in plain] == ["They are slow.", "They are \x85 slow \u2028 now."]
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_cad(path).evaluation == plain


def test_quotes_of_an_author_stay_and_quotes_of_the_file_go(tmp_path: Path) -> None:
    path = tmp_path / "full.tsv"
    assert only(path, good(text='"They are slow."')).text == '"They are slow."'
    found = only(path, good(text='"They" are "slow"', marked='"slow"'))
    assert (found.text, found.span) == ('"They" are "slow"', '"slow"')
    assert only(path, good(text='"They are ""slow""."')).text == 'They are "slow".'
    cells = good(text='They say ""so""', marked='say ""so""')
    quoted = {f'"{name}"': f'"{cell}"' if cell != NA else NA for name, cell in cells.items()}
    found = read_cad(write(path, [quoted], tuple(quoted))).evaluation[0]
    assert found == Document("cad_1", 'They say "so"', True, "age", 'say "so"')
    first = next(iter(quoted))
    half = {name if name == first else name.strip('"'): cell for name, cell in quoted.items()}
    assert read_cad(write(path, [half], tuple(half))).evaluation[0] == found


@pytest.mark.parametrize(
    ("target", "dimension"),
    [
        *((name.title().replace(" ", "_"), name) for name in DIMENSIONS),
        ("ableness/disability", "disability"),
        ("Gender / Sex", "gender"),
        ("sexual-orientation", "sexuality"),
        ("negatively viewed groups", "perceived negative groups"),
        ("race/hobbies", ""),
        (NA, ""),
    ],
)
def test_a_target_is_read_as_one_of_the_dimensions(target: str, dimension: str, tmp_path: Path) -> None:
    found = read_cad(write(tmp_path / "full.tsv", [good(target=target)])).evaluation
    assert [document.dimension for document in found] == ([dimension] if dimension else [])


PIECE = "b.* (é [linebreak] Cc"
WAYS = [PIECE, PIECE.upper(), PIECE.replace(" ", "  "), PIECE.replace("[linebreak]", " "), f'"{PIECE}"', PIECE.lower()]


@pytest.mark.parametrize("marked", WAYS)
def test_a_rationale_is_found_however_its_white_space_and_letters_are_written(marked: str, tmp_path: Path) -> None:
    document = only(tmp_path / "full.tsv", good(text=f"a [linebreak] ab a{PIECE}c [linebreak] b", marked=marked))
    assert (document.text, document.span) == ("a\nab ab.* (é\nCcc\nb", "b.* (é\nCc")


def splits(folder: Path, **texts: str) -> Path:
    for part, text in texts.items():
        (folder / f"cad_v1_1_{part}.tsv").write_text(f"id\ttext\tlabels\n{text}", encoding="utf-8")
    return folder


def test_split_files(tmp_path: Path) -> None:
    folder = splits(
        tmp_path,
        train=f"1\tTea [linebreak] is warm.\tNeutral\n2\t{LONG} a b\tNeutral\n",
        dev="3\tThey lie.\tCounterSpeech,IdentityDirectedAbuse\n"
        "4\tYou lie.\tPersonDirectedAbuse\n5\t [linebreak] \tNeutral\n",
        test="3\tAll lie.\tAffiliationDirectedAbuse\n7\tTea [linebreak] is warm.\tNeutral\n",
    )
    found = read_folder(folder)
    assert found.training == (Document("1", "Tea\nis warm.", False),)
    assert found.evaluation == (
        Document("3", "They lie.", True),
        Document("3#2", "All lie.", True),
        Document("7", "Tea\nis warm.", False),
    )
    left_out = next(note for note in found.notes if note.startswith("excluded"))
    assert re.findall(r"\d+", left_out) == ["1", "150", "1", "1"]
    for part, counts in (("train", (0, 1)), ("dev", (1, 0))):
        lone = load_documents(str(folder / f"cad_v1_1_{part}.tsv"))
        assert (len(lone.evaluation), len(lone.training)) == counts
    path = splits(tmp_path, dev="1\tTea.\tNeutral\n2\tTea.\tNeutral,Odd\n") / "cad_v1_1_dev.tsv"
    assert_refused((f"{path}, line 3", "'Odd'"), load_documents, str(path))


def test_a_folder_gives_its_full_file_and_the_corrected_version(tmp_path: Path) -> None:
    line = "1\tTea.\tNeutral\n"
    splits(tmp_path, train=line, dev=line)
    assert_refused((tmp_path, "split test"), read_folder, tmp_path)
    splits(tmp_path, test=line)
    (tmp_path / "cad_v1_test.tsv").write_text("id\ttext\tlabels\n9\tOld.\tNeutral\n", encoding="utf-8")
    assert [document.text for document in read_folder(tmp_path).evaluation] == ["Tea.", "Tea."]
    write(tmp_path / "cad_v1.tsv", [good(text="Old and slow.")])
    assert read_folder(tmp_path).source.endswith(", cad_v1.tsv")
    write(tmp_path / "cad_v1_1.tsv", [good()])
    assert [document.text for document in read_folder(tmp_path).evaluation] == ["They are slow."]
    write(tmp_path / "copy_of_cad_v1_1.tsv", [good()])
    assert_refused(("cad_v1_1.tsv", "copy_of_cad_v1_1.tsv"), read_folder, tmp_path)


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
    contents = {name: gzip.decompress((folder / f"{name}.gz").read_bytes()) for name in SPLITS}
    assert {name: sha256(content) for name, content in contents.items()} == SPLITS
    assert download.SOURCE_URL == "https://zenodo.org/records/4881008/files/data.zip?download=1"
    found, paths = read_folder(folder), [folder / f"cad_v1_1_{part}.tsv.gz" for part in ("train", "dev", "test")]
    train, dev, test = (truth_of(path, path == paths[0]) for path in paths)
    assert {document.id: document.biased for document in found.training} == train
    assert {document.id: document.biased for document in found.evaluation} == {**dev, **test}
    assert (len(found.training), len(found.evaluation)) == (len(train), len(dev) + len(test))
    assert all(document.text == document.text.strip() != "" for document in (*found.training, *found.evaluation))


MODULE, ARCHIVE = "undertow.data.documents.cad", "data.zip?download=1"
DEV = "cad_v1_1_dev.tsv"

AT_GROUP, AT_AFFILIATION = "IdentityDirectedAbuse", "AffiliationDirectedAbuse"

ROWS = tuple(
    row(entry=name, split=split, primary=primary, text=text, **cells)
    for name, split, primary, text, cells in (
        ("a1-title", "train", "Neutral", "Tea is warm.", {}),
        ("a1-post", "train", "Neutral", "  Rain [linebreak]  [linebreak] is wet. ", {}),
        ("a2", "train", AT_GROUP, "Old cooks are slow.", {"target": "age", "marked": "are slow"}),
        ("b1", "dev", "Slur", "A word was said.", {}),
        ("b2", "dev", AT_AFFILIATION, "Clerks dawdle and clerks doze.", {"target": "profession", "marked": "dawdle"}),
        ("b2", "dev", "Slur", "Clerks dawdle and clerks doze.", {"target": "profession", "marked": "doze"}),
        ("b2", "dev", AT_GROUP, "Clerks dawdle and clerks doze again.", {"target": "age", "marked": "clerks doze"}),
        ("c1-post", "test", "Neutral", "It is noon.", {}),
        ("c2", "test", "CounterSpeech", "That was unkind.", {}),
        ("c3", "exclude_empty", "Neutral", "", {}),
        ("c4", "exclude_bot", "Neutral", "I am a bot.", {}),
    )
)


def full_file(rows: Sequence[Row]) -> bytes:
    return table([one | {"id": f"cad_{n}"} for n, one in enumerate(rows, 1)])


def split_files(rows: Sequence[Row]) -> dict[str, bytes]:
    """The split files as CAD's authors wrote theirs from the full file."""
    files = {}
    for name in SPLITS:
        lines = ["id\ttext\tlabels"]
        part = [one for one in rows if f"_{one['split']}." in name]
        for of in dict.fromkeys(one["info_id"] for one in part):
            of_entry = [one for one in part if one["info_id"] == of]
            labels = sorted({one["annotation_Primary"] for one in of_entry} - {"Slur"}) or ["Neutral"]
            lines.append(f"{of}\t{of_entry[0]['meta_text'].strip()}\t{','.join(labels)}")
        files[name] = ("\n".join(lines) + "\n").encode()
    return files


def packed(files: Mapping[str, bytes], folder: str = "data/") -> bytes:
    """An archive of these files, and of version 1, which nobody reads."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr(f"{folder}cad_v1.tsv", b"older")
        for name, content in files.items():
            opened.writestr(f"{folder}{name}", content)
    return archive.getvalue()


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The small files, as if the hashes of the split files were the published ones."""
    made = split_files(ROWS)
    monkeypatch.setattr(download, "SPLITS", {name: sha256(made[name]) for name in SPLITS})
    return {**made, FULL: full_file(ROWS)}


@pytest.fixture
def site(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with serving(monkeypatch, MODULE, f"/{ARCHIVE}") as served:
        served.files[ARCHIVE] = packed(files)
        yield served


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def assert_cad_refused(*names: object) -> None:
    """Fetching comes to one line that names all of this, without any text of the files."""
    message = refusal(load_documents, "cad")
    for name in names:
        assert str(name) in message, message
    texts = [one["meta_text"].strip() for one in ROWS]
    assert not [text for text in texts if text and text in message]


def test_the_files_are_fetched_once_and_kept(site: Site, files: dict[str, bytes], cache: Path, tmp_path: Path) -> None:
    first = load_documents("cad")
    assert [(document.id, document.dimension, document.span) for document in first.evaluation] == [
        ("cad_5", "profession", "dawdle"),
        ("cad_7", "age", "clerks doze"),
        ("cad_8", "", ""),
    ]
    assert [document.text for document in first.training] == ["Tea is warm.", "Rain\n\nis wet.", "Old cooks are slow."]
    assert (first.name, first.source) == ("cad", "Vidgen et al. 2021 (CC BY 4.0), cad_v1_1.tsv")
    assert kept(cache) == {f"cad/cad_v1_1/{FULL}": files[FULL]}
    site.status = 500
    assert load_documents("cad") == first
    assert site.asked == [ARCHIVE]
    assert sha256(files[FULL]) in first.notes[-1]
    (tmp_path / FULL).write_bytes(files[FULL])
    own = load_documents(str(tmp_path / FULL))
    assert (own.evaluation, own.training, own.notes) == (first.evaluation, first.training, first.notes[:-1])


def test_no_other_member_is_read_and_none_gets_out_of_the_folder(
    site: Site, files: dict[str, bytes], cache: Path
) -> None:
    archive = io.BytesIO(packed(files))
    with zipfile.ZipFile(archive, "a") as opened:
        for name in ("../escaped.tsv", f"../../{FULL}", "/escaped.tsv", f"data/../{FULL}", FULL, f"DATA/{FULL}"):
            opened.writestr(name, b"not this")
    site.files[ARCHIVE] = archive.getvalue()
    outside = {path for path in cache.parent.rglob("*") if cache / "data" not in (path, *path.parents)}
    load_documents("cad")
    assert {path for path in cache.parent.rglob("*") if cache / "data" not in (path, *path.parents)} == outside
    assert kept(cache)[f"cad/cad_v1_1/{FULL}"] == files[FULL]


def test_sizes_are_limited_to_the_byte(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = len(full_file(ROWS))
    monkeypatch.setattr(download, "MAX_TABLE_BYTES", full - 1)
    assert_cad_refused(f"data/{FULL}", "MiB")
    monkeypatch.setattr(download, "MAX_TABLE_BYTES", full)
    monkeypatch.setattr(download, "MAX_ARCHIVE_BYTES", len(site.files[ARCHIVE]) - 1)
    assert_cad_refused(download.SOURCE_URL, "MiB")
    monkeypatch.setattr(download, "MAX_ARCHIVE_BYTES", len(site.files[ARCHIVE]))
    assert len(load_documents("cad").evaluation) == 3


Pack = Callable[[dict[str, bytes]], bytes]
REFUSED: dict[str, tuple[Pack, tuple[str, ...]]] = {
    "encrypted": (lambda files: packed(files).replace(b"\x14\0\0\0\x08", b"\x14\0\1\0\x08"), ("encrypted",)),
    "no full file": (lambda files: packed({name: files[name] for name in SPLITS}), (FULL,)),
    "another folder": (lambda files: packed(files, folder=""), ("data/cad_v1_1_train.tsv",)),
    "another split file": (lambda files: packed({**files, DEV: files[DEV] + b"\n"}), (DEV, "SHA-256")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_damaged_archive_and_one_of_other_files_are_refused_and_not_kept(
    case: str, site: Site, files: dict[str, bytes], cache: Path
) -> None:
    whole = site.files[ARCHIVE]
    pack, named = REFUSED[case]
    site.files[ARCHIVE] = pack(files)
    assert_cad_refused("cad", download.SOURCE_URL, *named)
    assert kept(cache) == {}
    site.files[ARCHIVE] = whole
    assert len(load_documents("cad").evaluation) == 3
