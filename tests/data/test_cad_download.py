"""CAD from its address: an archive made here, fetched once, checked and kept; and archives that are refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from helpers.cad_table import COLUMNS, Row, row, table
from helpers.file_refusal import refusal
from helpers.published_site import Site, kept, serving
from undertow.data.documents import cad as download
from undertow.data.documents.cad import FULL, SPLITS
from undertow.data.documents.document_sources import load_documents

MODULE, ARCHIVE = "undertow.data.documents.cad", "data.zip?download=1"
DEV = "cad_v1_1_dev.tsv"

IDENTITY, AFFILIATION = "IdentityDirectedAbuse", "AffiliationDirectedAbuse"


def entry(name: str, split: str, primary: str, text: str, **cells: str) -> Row:
    return row(entry=name, split=split, primary=primary, text=text, **cells)


ROWS = (
    entry("a1-title", "train", "Neutral", "Tea is warm."),
    entry("a1-post", "train", "Neutral", "  Rain [linebreak]  [linebreak] is wet. "),
    entry("a2", "train", IDENTITY, "Old cooks are slow.", target="age", marked="are slow"),
    entry("b1", "dev", "Slur", "A word was said."),
    entry("b2", "dev", AFFILIATION, "Clerks dawdle and clerks doze.", target="profession", marked="dawdle"),
    entry("b2", "dev", "Slur", "Clerks dawdle and clerks doze.", target="profession", marked="doze"),
    entry("b2", "dev", IDENTITY, "Clerks dawdle and clerks doze again.", target="age", marked="clerks doze"),
    entry("c1-post", "test", "Neutral", "It is noon."),
    entry("c2", "test", "CounterSpeech", "That was unkind."),
    entry("c3", "exclude_empty", "Neutral", ""),
    entry("c4", "exclude_bot", "Neutral", "I am a bot."),
)


def full_file(rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> bytes:
    return table([one | {"id": f"cad_{n}"} for n, one in enumerate(rows, 1)], columns)


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
    """A server with the small files."""
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


def in_directory(archive: bytes, offset: int, value: bytes) -> bytes:
    """The archive with other bytes at this place of the full file's entry in the list at its end."""
    #                  entry   46 bytes   name
    #  ... PK\x01\x02 ................... data/cad_v1_1.tsv ...
    place = archive.rindex(f"data/{FULL}".encode()) - 46
    assert archive[place : place + 4] == b"PK\x01\x02"
    return archive[: place + offset] + value + archive[place + offset + len(value) :]


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
    # corrupt
    "nothing": (lambda _: b"", ()),
    "another checksum": (lambda files: in_directory(packed(files), 16, bytes(4)), ()),
    "packed in an unknown way": (lambda files: in_directory(packed(files), 10, b"\x63\0"), ()),
    "encrypted": (lambda files: in_directory(packed(files), 8, b"\x01\0"), ("encrypted",)),
    "a member beyond the end": (lambda files: in_directory(packed(files), 42, b"\xff\xff\xff\x7f"), ()),
    # of other files
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


def test_the_real_split_files_are_those_whose_hashes_are_known(reference_data: Path) -> None:
    assert download.SOURCE_URL == "https://zenodo.org/records/4881008/files/data.zip?download=1"
    packed_files = {name: reference_data / "cad" / f"{name}.gz" for name in SPLITS}
    assert {name: sha256(gzip.decompress(path.read_bytes())) for name, path in packed_files.items()} == SPLITS
