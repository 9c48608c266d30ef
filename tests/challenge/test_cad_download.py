"""CAD from its address: an archive made here, fetched once, checked and kept; and archives that are refused.

The files below are written for these tests; of the real ones, only hashes and counts are looked at.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from cad_table import COLUMNS, Row, row, table
from published_site import Site, hanging_up, reach, serving
from refusals import refusal

from undertow.challenge import _cad_download as download
from undertow.challenge._cad_download import FULL, RECORD, SPLITS
from undertow.challenge.document_sources import load_documents

MODULE, ARCHIVE = "undertow.challenge._cad_download", "data.zip?download=1"
DEV = "cad_v1_1_dev.tsv"
NAMES = {f"cad/cad_v1_1/{name}" for name in (*SPLITS, FULL, RECORD)}

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
    """An archive of these files, and of version 1, a description and a folder, which nobody reads."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr(f"{folder}cad_v1.tsv", b"older")
        opened.writestr(f"{folder}test/", b"")
        for name, content in files.items():
            opened.writestr(f"{folder}{name}", content)
        opened.writestr(f"{folder}cad_codebook_april2021.pdf", b"%PDF")
    return archive.getvalue()


@pytest.fixture
def empty_site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with serving(monkeypatch, MODULE, f"/{ARCHIVE}") as site:
        yield site


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The small files, as if the hashes of the split files were the published ones."""
    made = split_files(ROWS)
    pin(monkeypatch, made)
    return {**made, FULL: full_file(ROWS)}


def pin(monkeypatch: pytest.MonkeyPatch, files: Mapping[str, bytes]) -> None:
    monkeypatch.setattr(download, "SPLITS", {name: sha256(files[name]) for name in SPLITS})


@pytest.fixture
def site(empty_site: Site, files: dict[str, bytes]) -> Site:
    """The server with the small files."""
    give(empty_site, files)
    return empty_site


def give(site: Site, files: Mapping[str, bytes]) -> None:
    site.files[ARCHIVE] = packed(files)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def folder_of(cache: Path) -> Path:
    return cache / "data" / "cad" / "cad_v1_1"


def kept(cache: Path) -> dict[str, bytes]:
    """All that lies in the cache of data, by its path from there."""
    folder = cache / "data"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_cad_refused(*names: object) -> None:
    """Fetching comes to one line that names all of this, without any text of the files."""
    message = refusal(load_documents, "cad")
    for name in names:
        assert str(name) in message, message
    texts = [one["meta_text"].strip() for one in ROWS]
    assert not [text for text in texts if text and text in message]


def test_the_files_are_fetched_once_and_kept(site: Site, files: dict[str, bytes], cache: Path) -> None:
    first = load_documents("cad")
    assert [(document.id, document.dimension, document.span) for document in first.evaluation] == [
        ("cad_5", "profession", "dawdle"),
        ("cad_7", "age", "clerks doze"),
        ("cad_8", "", ""),
    ]
    assert [document.text for document in first.training] == ["Tea is warm.", "Rain\n\nis wet.", "Old cooks are slow."]
    assert (first.name, first.source) == ("cad", "Vidgen et al. 2021 (CC BY 4.0), cad_v1_1.tsv")
    record = f"{sha256(files[FULL])}  {FULL}\n".encode()
    assert kept(cache) == {f"cad/cad_v1_1/{name}": content for name, content in {**files, RECORD: record}.items()}
    site.status = 500
    assert load_documents("cad") == first
    assert site.asked == [ARCHIVE]
    assert [agent.partition("/")[0] for agent in site.agents] == ["undertow"]
    checked, trusted = first.notes[-2:]
    assert "7 of its 7 entries" in checked
    assert sha256(files[FULL]) in trusted


def test_an_own_file_is_read_without_fetching(site: Site, files: dict[str, bytes], tmp_path: Path, cache: Path) -> None:
    (tmp_path / FULL).write_bytes(files[FULL])
    own = load_documents(str(tmp_path / FULL))
    assert (site.asked, kept(cache)) == ([], {})
    by_name = load_documents("cad")
    assert (own.evaluation, own.training, own.notes) == (by_name.evaluation, by_name.training, by_name.notes[:-2])


def test_no_other_member_is_read_and_none_gets_out_of_the_folder(
    empty_site: Site, files: dict[str, bytes], cache: Path
) -> None:
    archive = io.BytesIO(packed(files))
    with zipfile.ZipFile(archive, "a") as opened:
        for name in ("../escaped.tsv", f"../../{FULL}", "/escaped.tsv", f"data/../{FULL}", FULL, f"DATA/{FULL}"):
            opened.writestr(name, b"not this")
    empty_site.files[ARCHIVE] = archive.getvalue()
    outside = {path for path in cache.parent.rglob("*") if cache / "data" not in (path, *path.parents)}
    load_documents("cad")
    assert {path for path in cache.parent.rglob("*") if cache / "data" not in (path, *path.parents)} == outside
    assert set(kept(cache)) == NAMES
    assert kept(cache)[f"cad/cad_v1_1/{FULL}"] == files[FULL]


def in_directory(archive: bytes, offset: int, value: bytes) -> bytes:
    """The archive with other bytes at this place of the full file's entry in the list at its end."""
    #                  entry   46 bytes   name
    #  ... PK\x01\x02 ................... data/cad_v1_1.tsv ...
    place = archive.rindex(f"data/{FULL}".encode()) - 46
    assert archive[place : place + 4] == b"PK\x01\x02"
    return archive[: place + offset] + value + archive[place + offset + len(value) :]


def flipped(archive: bytes, name: str) -> bytes:
    """The archive with one wrong byte within what a member holds."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        member = opened.getinfo(f"data/{name}")
    place = member.header_offset + 30 + len(member.filename) + member.compress_size // 2
    return archive[:place] + bytes([archive[place] ^ 255]) + archive[place + 1 :]


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _: b"",
    "without its last byte": lambda archive: archive[:-1],
    "a wrong byte": lambda archive: flipped(archive, FULL),
    "a wrong byte in a split file": lambda archive: flipped(archive, DEV),
    "packed in an unknown way": lambda archive: in_directory(archive, 10, b"\x63\0"),
    "a patch": lambda archive: in_directory(archive, 8, b"\x20\0"),
    "encrypted": lambda archive: in_directory(archive, 8, b"\x01\0"),
    "a member beyond the end": lambda archive: in_directory(archive, 42, b"\xff\xff\xff\x7f"),
    "longer than it says": lambda archive: in_directory(archive, 24, b"\x09\0\0\0"),
    "a name that is not UTF-8": lambda archive: in_directory(archive, 8, b"\0\x08").replace(
        FULL.encode(), b"\xff" * 12
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_archive_is_refused_and_not_kept(case: str, site: Site, cache: Path) -> None:
    whole = site.files[ARCHIVE]
    site.files[ARCHIVE] = DAMAGED[case](whole)
    assert_cad_refused("cad", download.SOURCE_URL)
    assert kept(cache) == {}
    site.files[ARCHIVE] = whole
    assert len(load_documents("cad").evaluation) == 3


Pack = Callable[[dict[str, bytes]], bytes]
OTHERS: dict[str, tuple[Pack, tuple[str, ...]]] = {
    "no full file": (lambda files: packed({name: files[name] for name in SPLITS}), (FULL,)),
    "no split file": (lambda files: packed({FULL: files[FULL]}), ("data/cad_v1_1_train.tsv",)),
    "another folder": (lambda files: packed(files, folder=""), ("data/cad_v1_1_train.tsv",)),
    "many zeros": (lambda files: packed({**files, FULL: bytes(65 * 2**20)}), (FULL, "64 MiB")),
    "another split file": (lambda files: packed({**files, DEV: files[DEV] + b"\n"}), (DEV, "SHA-256")),
}


@pytest.mark.parametrize("case", OTHERS)
def test_an_archive_of_other_files_is_refused_and_not_kept(
    case: str, site: Site, files: dict[str, bytes], cache: Path
) -> None:
    pack, named = OTHERS[case]
    site.files[ARCHIVE] = pack(files)
    assert_cad_refused("cad", download.SOURCE_URL, *named)
    assert kept(cache) == {}


def test_sizes_are_limited_to_the_byte(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = len(full_file(ROWS))
    monkeypatch.setattr(download, "MAX_BYTES", full - 1)
    assert_cad_refused(f"data/{FULL}", "MiB")
    monkeypatch.setattr(download, "MAX_BYTES", full)
    monkeypatch.setattr(download, "MAX_ARCHIVE_BYTES", len(site.files[ARCHIVE]) - 1)
    assert_cad_refused(download.SOURCE_URL, "MiB")
    assert kept(cache) == {}
    monkeypatch.setattr(download, "MAX_ARCHIVE_BYTES", len(site.files[ARCHIVE]))
    assert len(load_documents("cad").evaluation) == 3


def replaced(old: bytes, new: bytes) -> bytes:
    full = full_file(ROWS)
    assert full.count(old) >= 1
    return full.replace(old, new, 1)


OTHER_FULL: dict[str, tuple[Callable[[], bytes], str]] = {
    "22 columns": (lambda: full_file(ROWS, COLUMNS[:-2] + COLUMNS[-1:]), "22 columns"),
    "a column of another name": (lambda: replaced(b"info_id\t", b"info_di\t"), "'info_id'"),
    "without an entry": (lambda: full_file([one for one in ROWS if one["info_id"] != "c2"]), "1 of the 7"),
    "another split": (lambda: replaced(b"test\t\"NA\"\tThat", b"train\t\"NA\"\tThat"), "6 of the 7"),
    "another text": (lambda: replaced(b"It is noon.", b"It is nine."), "6 of the 7"),
    "a category that is none": (lambda: replaced(b"CounterSpeech", b"Countered"), "line 10"),
    "a line break": (lambda: replaced(b"It is noon.", b"It is\nnoon."), "line 10"),
    "not UTF-8": (lambda: replaced(b"It is noon.", b"It is n\xf6on."), "line 9"),
    "nothing": (lambda: b"", "empty"),
    "a split file": (lambda: split_files(ROWS)[DEV], "3 columns"),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHER_FULL)
def test_a_full_file_that_is_not_that_of_the_split_files_is_refused(
    case: str, site: Site, files: dict[str, bytes], cache: Path
) -> None:
    content, named = OTHER_FULL[case]
    give(site, {**files, FULL: content()})
    assert_cad_refused(download.SOURCE_URL, FULL, named)
    assert kept(cache) == {}


def test_one_entry_in_twenty_may_differ_and_no_more(
    empty_site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [entry(f"e{n}", ("train", "dev", "test")[n % 3], "Neutral", f"Tea {n} is warm.") for n in range(40)]
    other = [one | {"meta_text": f"{one['meta_text']} Now."} for one in rows]
    pin(monkeypatch, split_files(rows))
    give(empty_site, {**split_files(rows), FULL: full_file([*other[:3], *rows[3:]])})
    assert_cad_refused("37 of the 40")
    assert kept(cache) == {}
    give(empty_site, {**split_files(rows), FULL: full_file([*other[:2], *rows[2:]])})
    assert "38 of its 40" in load_documents("cad").notes[-2]


def test_another_full_file_than_the_first_one_is_refused_until_the_record_is_deleted(
    site: Site, files: dict[str, bytes], cache: Path
) -> None:
    first, before, record = load_documents("cad"), kept(cache), folder_of(cache) / RECORD
    changed = files[FULL].replace(b"are slow\t", b"slow\t").replace(b"\tage\t", b"\tgender\t")
    assert changed != files[FULL]
    (folder_of(cache) / FULL).write_bytes(changed)
    give(site, {**files, FULL: changed})
    assert_cad_refused(download.SOURCE_URL, FULL, record)
    give(site, files)
    assert load_documents("cad") == first
    assert kept(cache) == before
    give(site, {**files, FULL: changed})
    record.unlink()
    trusted = load_documents("cad")
    assert {document.dimension for document in trusted.training} == {"", "gender"}
    assert sha256(changed) in trusted.notes[-1]
    assert len(site.asked) == 4


@pytest.mark.parametrize("damage", [b"", b"changed", b"\xff\xfe"])
def test_a_damaged_record_is_not_taken_for_none(damage: bytes, site: Site, cache: Path) -> None:
    load_documents("cad")
    (folder_of(cache) / RECORD).write_bytes(damage)
    assert_cad_refused(folder_of(cache) / RECORD)
    assert (folder_of(cache) / RECORD).read_bytes() == damage
    assert len(site.asked) == 2


@pytest.mark.parametrize("name", [DEV, FULL])
def test_a_kept_file_that_is_gone_or_changed_is_fetched_again(name: str, site: Site, cache: Path) -> None:
    first, before, path = load_documents("cad"), kept(cache), folder_of(cache) / name
    path.unlink()
    assert load_documents("cad") == first
    path.write_bytes(b"changed")
    assert load_documents("cad") == first
    assert kept(cache) == before
    assert len(site.asked) == 3


@pytest.mark.parametrize("stopped_at", [FULL, RECORD])
def test_a_fetch_that_is_stopped_leaves_nothing_that_is_taken_for_whole(
    stopped_at: str, site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def stop(path: Path, target: Path) -> Path:
        if path.name == stopped_at:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            load_documents("cad")
    assert all(path.is_file() for path in folder_of(cache).iterdir())
    assert not (folder_of(cache) / RECORD).exists()
    assert len(load_documents("cad").evaluation) == 3
    assert len(site.asked) == 2
    assert set(kept(cache)) == NAMES


def test_kept_files_that_no_longer_agree_say_which_folder_to_delete(
    files: dict[str, bytes], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(cache)
    folder.mkdir(parents=True)
    full = replaced(b"It is noon.", b"It is nine.")
    for name, content in {**files, FULL: full, RECORD: f"{sha256(full)}  {FULL}\n".encode()}.items():
        (folder / name).write_bytes(content)
    assert_cad_refused(folder / FULL, "6 of the 7", f"delete {folder}")
    monkeypatch.setattr(download, "MIN_SAME", 0.8)
    assert len(load_documents("cad").evaluation) == 3


def test_a_site_that_refuses_or_breaks_off_is_named(site: Site, cache: Path) -> None:
    site.status = 403
    assert_cad_refused(download.SOURCE_URL, "403", "cad_v1_1.tsv")
    site.status, site.length = 200, len(site.files[ARCHIVE]) + 100
    assert_cad_refused(download.SOURCE_URL)
    assert kept(cache) == {}


@pytest.mark.usefixtures("files")
def test_offline_the_refusal_says_how_to_give_the_file(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hanging_up(None) as port:
        reach(monkeypatch, MODULE, port, f"/{ARCHIVE}")
        assert_cad_refused(download.SOURCE_URL, "data.zip", "cad_v1_1.tsv")
    assert kept(cache) == {}


@pytest.mark.usefixtures("site")
def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("here", encoding="utf-8")
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "file"))
    assert_cad_refused(tmp_path / "file" / "data" / "cad" / "cad_v1_1", "UNDERTOW_CACHE")


def real_splits(reference_data: Path) -> dict[str, bytes]:
    return {name: gzip.decompress((reference_data / "cad" / f"{name}.gz").read_bytes()) for name in SPLITS}


def test_the_real_split_files_are_those_whose_hashes_are_known(reference_data: Path) -> None:
    assert download.SOURCE_URL == "https://zenodo.org/records/4881008/files/data.zip?download=1"
    assert {name: sha256(content) for name, content in real_splits(reference_data).items()} == SPLITS


@pytest.mark.soak
def test_the_real_split_files_agree_with_a_full_file_written_back_from_them(
    reference_data: Path, empty_site: Site
) -> None:
    splits = real_splits(reference_data)
    rows = [
        entry(name, part.removesuffix(".tsv").rpartition("_")[2], label, f" {text}  ")
        for part, content in splits.items()
        for name, text, labels in (line.split("\t") for line in content.decode().split("\n")[1:-1])
        for label in labels.split(",")
    ]
    give(empty_site, {**splits, FULL: full_file(rows)})
    assert "23,417 of its 23,417" in load_documents("cad").notes[-2]
    assert len(empty_site.asked) == 1
