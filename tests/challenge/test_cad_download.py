"""CAD from its address: an archive made here, fetched once, checked and kept; and archives that are not what they should be.

No text of CAD stands here: the files below are written for these tests. Only hashes and counts of the real ones are looked at.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from undertow.challenge import _cad_download as download
from undertow.challenge._cad_download import FULL, RECORD, SPLITS, fetched
from undertow.challenge.document_sources import load_documents
from undertow.types import UndertowError

COLUMNS = (
    "id", "info_id", "info_subreddit", "info_subreddit_id", "info_id.parent", "info_id.link", "info_thread.id", "info_order",
    "info_image.saved", "annotation_Primary", "annotation_Secondary", "annotation_Context", "annotation_Target",
    "annotation_Target_top.level.category", "annotation_highlighted", "meta_author", "meta_created_utc", "meta_date", "meta_day",
    "meta_permalink", "split", "subreddit_seen", "meta_text",
)  # fmt: skip
NA = '"NA"'
Row = dict[str, str]


def row(entry: str, split: str, primary: str, text: str, **cells: str) -> Row:
    """A row of the full file."""
    known = {"info_id": entry, "split": split, "annotation_Primary": primary, "meta_text": text}
    named = {"target": "annotation_Target_top.level.category", "marked": "annotation_highlighted"}
    return dict.fromkeys(COLUMNS, NA) | known | {named[name]: cell for name, cell in cells.items()}


IDENTITY, AFFILIATION = "IdentityDirectedAbuse", "AffiliationDirectedAbuse"
ROWS = (
    row("a1-title", "train", "Neutral", "Tea is warm."),
    row("a1-post", "train", "Neutral", "  Rain [linebreak]  [linebreak] is wet. "),
    row("a2", "train", IDENTITY, "Old cooks are slow.", target="age", marked="are slow"),
    row("b1", "dev", "Slur", "A word was said."),
    row("b2", "dev", AFFILIATION, "Clerks dawdle and clerks doze.", target="profession", marked="dawdle"),
    row("b2", "dev", "Slur", "Clerks dawdle and clerks doze.", target="profession", marked="doze"),
    row("b2", "dev", IDENTITY, "Clerks dawdle and clerks doze again.", target="age", marked="clerks doze"),
    row("c1-post", "test", "Neutral", "It is noon."),
    row("c2", "test", "CounterSpeech", "That was unkind."),
    row("c3", "exclude_empty", "Neutral", ""),
    row("c4", "exclude_bot", "Neutral", "I am a bot."),
)


def full_file(rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> bytes:
    numbered = [one | {"id": f"cad_{n}"} for n, one in enumerate(rows, 1)]
    lines = ["\t".join(columns), *("\t".join(one[name] for name in columns) for one in numbered)]
    return ("\n".join(lines) + "\n").encode()


def split_files(rows: Sequence[Row]) -> dict[str, bytes]:
    """The split files as CAD's authors wrote theirs from the full file."""
    files = {}
    for name in SPLITS:
        lines = ["id\ttext\tlabels"]
        part = [one for one in rows if f"_{one['split']}." in name]
        for entry in dict.fromkeys(one["info_id"] for one in part):
            of_entry = [one for one in part if one["info_id"] == entry]
            labels = sorted({one["annotation_Primary"] for one in of_entry} - {"Slur"}) or ["Neutral"]
            lines.append(f"{entry}\t{of_entry[0]['meta_text'].strip()}\t{','.join(labels)}")
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


@dataclass
class Site:
    """A site on this machine that has one archive, how much it says that it is, and who asked for it."""

    archive: bytes = b""
    length: int | None = None
    status: int = 200
    asked: list[str] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    """Gives the site's archive."""

    def __init__(self, site: Site, *arguments: object) -> None:
        self.site = site
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.site.asked.append(f"{self.path} {self.headers['User-Agent']}")
        if self.site.status != 200:
            self.send_error(self.site.status)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(self.site.length or len(self.site.archive)))
        self.end_headers()
        self.wfile.write(self.site.archive)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def reach(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Fetch from this port, whatever proxy the user has."""
    monkeypatch.setattr(download, "SOURCE_URL", f"http://127.0.0.1:{port}/data.zip?download=1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture
def empty_site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Where the archive is fetched from: a server of the test's own."""
    served = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, served))
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    reach(monkeypatch, server.server_address[1])
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


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
    empty_site.archive = packed(files)
    return empty_site


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def folder_of(cache: Path) -> Path:
    return cache / "data" / "cad" / "cad_v1_1"


def kept(cache: Path) -> dict[str, bytes]:
    """All that lies in the cache of data, by its path from there."""
    folder = cache / "data"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal() -> str:
    """What fetching comes to: one sentence, without any text of the files."""
    with pytest.raises(UndertowError) as caught:
        load_documents("cad")
    message = str(caught.value)
    assert "\n" not in message
    assert not [one["meta_text"] for one in ROWS if one["meta_text"].strip() and one["meta_text"].strip() in message]
    return message


BY_HAND = "download data.zip yourself, unpack it, and give the path of its cad_v1_1.tsv in place of the name cad"
AGAIN = f"; nothing was kept: try again, or {BY_HAND}"


def test_the_files_are_fetched_once_and_kept(site: Site, files: dict[str, bytes], cache: Path) -> None:
    first = load_documents("cad")
    assert [(document.id, document.dimension, document.span) for document in first.evaluation] == [
        ("cad_5", "profession", "dawdle"),
        ("cad_7", "age", "clerks doze"),
        ("cad_8", "", ""),
    ]
    assert [document.text for document in first.training] == [
        "Tea is warm.",
        "Rain\n\nis wet.",
        "Old cooks are slow.",
    ]
    assert (first.name, first.source) == ("cad", "Vidgen et al. 2021 (CC BY 4.0), cad_v1_1.tsv")
    record = f"{sha256(files[FULL])}  {FULL}\n".encode()
    assert kept(cache) == {f"cad/cad_v1_1/{name}": content for name, content in {**files, RECORD: record}.items()}
    site.status = 500
    assert load_documents("cad") == first
    (asked,) = site.asked
    assert asked.startswith("/data.zip?download=1 undertow/")


@pytest.mark.usefixtures("site")
def test_the_notes_say_what_was_checked_and_what_is_trusted(files: dict[str, bytes]) -> None:
    by_hand = load_documents("cad").notes[:-2]
    assert load_documents("cad").notes == (
        *by_hand,
        f"cad_v1_1.tsv was fetched from {download.SOURCE_URL}: the split files beside it have the SHA-256 of version 1.1, and"
        " 7 of its 7 entries in them agree with them in split, text and primary categories",
        "no checksum of cad_v1_1.tsv itself is known: its targets and rationales are trusted as they were first fetched here"
        f" (SHA-256 {sha256(files[FULL])})",
    )
    assert any(note.startswith("left out: 2 in the splits that CAD's authors exclude") for note in by_hand)


def test_a_file_of_ones_own_is_read_without_fetching_and_without_these_notes(
    site: Site, files: dict[str, bytes], tmp_path: Path, cache: Path
) -> None:
    path = tmp_path / FULL
    path.write_bytes(files[FULL])
    own = load_documents(str(path))
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
    empty_site.archive = archive.getvalue()
    before = {path for path in cache.parent.rglob("*") if path.name != "data" and cache / "data" not in path.parents}
    load_documents("cad")
    after = {path for path in cache.parent.rglob("*") if path.name != "data" and cache / "data" not in path.parents}
    assert after == before
    assert set(kept(cache)) == {f"cad/cad_v1_1/{name}" for name in (*SPLITS, FULL, RECORD)}
    assert kept(cache)[f"cad/cad_v1_1/{FULL}"] == files[FULL]


def in_directory(archive: bytes, name: str, offset: int, value: bytes) -> bytes:
    """The archive with other bytes at this place of a member's entry in the list at its end."""
    #                  entry   46 bytes   name
    #  ... PK\x01\x02 ................... data/cad_v1_1.tsv ...
    place = archive.rindex(f"data/{name}".encode()) - 46
    assert archive[place : place + 4] == b"PK\x01\x02"
    return archive[: place + offset] + value + archive[place + offset + len(value) :]


def flipped(archive: bytes, name: str) -> bytes:
    """The archive with one wrong byte within what a member holds."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        member = opened.getinfo(f"data/{name}")
    place = member.header_offset + 30 + len(member.filename) + member.compress_size // 2
    return archive[:place] + bytes([archive[place] ^ 255]) + archive[place + 1 :]


UNREADABLE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _: b"",
    "a page": lambda _: b"<html><title>Blocked</title></html>",
    "cut off": lambda archive: archive[: len(archive) // 2],
    "without its last byte": lambda archive: archive[:-1],
    "a wrong byte": lambda archive: flipped(archive, FULL),
    "a wrong byte in a split file": lambda archive: flipped(archive, "cad_v1_1_dev.tsv"),
    "packed in a way that is not known": lambda archive: in_directory(archive, FULL, 10, b"\x63\0"),
    "packed as bzip2 it says": lambda archive: in_directory(archive, FULL, 10, b"\x0c\0"),
    "packed as lzma it says": lambda archive: in_directory(archive, FULL, 10, b"\x0e\0"),
    "a patch": lambda archive: in_directory(archive, FULL, 8, b"\x20\0"),
    "a member at the end": lambda archive: in_directory(archive, FULL, 42, (len(archive) - 9).to_bytes(4, "little")),
    "a member beyond the end": lambda archive: in_directory(archive, FULL, 42, b"\xff\xff\xff\x7f"),
    "longer than it says": lambda archive: in_directory(archive, FULL, 24, b"\x09\0\0\0"),
    "a name that is not UTF-8": lambda archive: in_directory(archive, FULL, 8, b"\0\x08").replace(FULL.encode(), b"\xff" * 12),
}  # fmt: skip


@pytest.mark.parametrize("case", UNREADABLE)
def test_an_archive_that_cannot_be_read_is_refused(case: str, site: Site, cache: Path) -> None:
    whole, site.archive = site.archive, UNREADABLE[case](site.archive)
    message = refusal()
    assert message.startswith(f"cad: what {download.SOURCE_URL} gave is not a zip file that can be read to its end (")
    assert message.endswith(f"){AGAIN}")
    assert kept(cache) == {}
    site.archive = whole
    assert len(load_documents("cad").evaluation) == 3


def test_whatever_bytes_are_damaged_the_files_are_right_or_refused(files: dict[str, bytes]) -> None:
    whole, draw = packed(files), random.Random(7)
    n_refused = 0
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(draw.choice((1, 1, 3))):
            damaged[draw.randrange(len(damaged))] = draw.choice((0, 1, 255, draw.randrange(256)))
        try:
            assert download._unpacked(bytes(damaged)) == files
        except UndertowError:
            n_refused += 1
    assert 0 < n_refused < 2000


def test_an_encrypted_archive_is_refused(site: Site, cache: Path) -> None:
    site.archive = in_directory(site.archive, FULL, 8, b"\x01\0")
    assert refusal() == f"cad: data/{FULL} is encrypted in the archive that {download.SOURCE_URL} gave{AGAIN}"
    assert kept(cache) == {}


@pytest.mark.parametrize("name", [*SPLITS, FULL])
def test_an_archive_without_one_of_the_files_is_refused(
    name: str, site: Site, files: dict[str, bytes], cache: Path
) -> None:
    site.archive = packed({other: content for other, content in files.items() if other != name})
    assert refusal() == f"cad: the archive that {download.SOURCE_URL} gave has no data/{name}{AGAIN}"
    site.archive = packed(files, folder="")
    assert " has no data/cad_v1_1_train.tsv; nothing was kept" in refusal()
    assert kept(cache) == {}


def test_sizes_are_limited_to_the_byte(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = max(len(content) for content in split_files(ROWS).values())
    full = len(full_file(ROWS))
    assert size < full
    monkeypatch.setattr(download, "MAX_BYTES", full - 1)
    assert f"cad: data/{FULL} in the archive that {download.SOURCE_URL} gave is larger than 0 MiB{AGAIN}" == refusal()
    monkeypatch.setattr(download, "MAX_BYTES", full)
    monkeypatch.setattr(download, "MAX_ARCHIVE_BYTES", len(site.archive) - 1)
    assert refusal() == f"cad: what {download.SOURCE_URL} gave is larger than 0 MiB{AGAIN}"
    assert kept(cache) == {}
    monkeypatch.setattr(download, "MAX_ARCHIVE_BYTES", len(site.archive))
    assert len(load_documents("cad").evaluation) == 3


def test_a_member_of_many_zeros_is_refused_by_the_size_it_says(site: Site, files: dict[str, bytes]) -> None:
    site.archive = packed({**files, FULL: bytes(65 * 2**20)})
    assert len(site.archive) < 2**20
    assert f"data/{FULL} in the archive that {download.SOURCE_URL} gave is larger than 64 MiB" in refusal()


@pytest.mark.parametrize("name", list(SPLITS))
def test_a_split_file_with_another_hash_is_refused(name: str, site: Site, files: dict[str, bytes], cache: Path) -> None:
    site.archive = packed({**files, name: files[name] + b"\n"})
    assert refusal() == (
        f"cad: {name} in what {download.SOURCE_URL} gave is not that of version 1.1 (its SHA-256 differs){AGAIN}"
    )
    assert kept(cache) == {}


OTHER_FULL: dict[str, tuple[Callable[[], bytes], str]] = {
    "22 columns": (
        lambda: full_file(ROWS, COLUMNS[:-2] + COLUMNS[-1:]),
        "cad_v1_1.tsv: has 22 columns, where CAD's full file has 23",
    ),
    "a column of another name": (
        lambda: full_file(ROWS).replace(b"info_id\t", b"info_di\t", 1),
        "cad_v1_1.tsv: has no column 'info_id' (did you mean 'info_di'?); it needs info_id, split, annotation_Primary,",
    ),
    "without an entry": (
        lambda: full_file([one for one in ROWS if one["info_id"] != "c2"]),
        "cad_v1_1.tsv: lacks 1 of the 7 entries of the split files",
    ),
    "an entry that is excluded": (
        lambda: full_file([one | ({"split": "exclude_lang"} if one["info_id"] == "c2" else {}) for one in ROWS]),
        "cad_v1_1.tsv: lacks 1 of the 7 entries of the split files",
    ),
    "another split": (
        lambda: full_file([one | ({"split": "train"} if one["info_id"] == "c2" else {}) for one in ROWS]),
        "cad_v1_1.tsv: only 6 of the 7 entries that it has in the three splits are the same in the split files",
    ),
    "another text": (
        lambda: full_file(ROWS).replace(b"It is noon.", b"It is nine."),
        "cad_v1_1.tsv: only 6 of the 7 entries that it has in the three splits are the same in the split files",
    ),
    "another category": (
        lambda: full_file(ROWS).replace(b"CounterSpeech", b"Neutral"),
        "cad_v1_1.tsv: only 6 of the 7 entries that it has in the three splits are the same in the split files",
    ),
    "an entry too many": (
        lambda: full_file([*ROWS, row("d1", "test", "Neutral", "It is late.")]),
        "cad_v1_1.tsv: only 7 of the 8 entries that it has in the three splits are the same in the split files",
    ),
    "a category that is none": (
        lambda: full_file(ROWS).replace(b"CounterSpeech", b"Countered"),
        "cad_v1_1.tsv, line 10: the primary category 'Countered' is not one of CAD's",
    ),
    "a line break": (
        lambda: full_file(ROWS).replace(b"It is noon.", b"It is\nnoon."),
        "cad_v1_1.tsv, line 10: has 1 cell, but the header has 23",
    ),
    "not UTF-8": (
        lambda: full_file(ROWS).replace(b"It is noon.", b"It is n\xf6on."),
        "cad_v1_1.tsv, line 9: byte ",
    ),
    "nothing": (lambda: b"", "cad_v1_1.tsv: is empty; its first line should name the columns"),
    "version 1 of a split file": (lambda: split_files(ROWS)["cad_v1_1_dev.tsv"], "cad_v1_1.tsv: has 3 columns"),
}


@pytest.mark.parametrize("case", OTHER_FULL)
def test_a_full_file_that_is_not_that_of_the_split_files_is_refused(
    case: str, site: Site, files: dict[str, bytes], cache: Path
) -> None:
    content, expected = OTHER_FULL[case]
    site.archive = packed({**files, FULL: content()})
    message = refusal()
    assert message.startswith(f"cad: what {download.SOURCE_URL} gave is not version 1.1 of CAD ({expected}")
    assert message.endswith(f"){AGAIN}")
    assert kept(cache) == {}
    site.archive = packed(files)
    assert len(load_documents("cad").evaluation) == 3


def many(n_other: int) -> tuple[dict[str, bytes], bytes]:
    """Split files of 40 entries, and a full file that says another text of some."""
    rows = [row(f"e{n}", ("train", "dev", "test")[n % 3], "Neutral", f"Tea {n} is warm.") for n in range(40)]
    other = [one | {"meta_text": f"{one['meta_text']} Now."} for one in rows[:n_other]]
    return split_files(rows), full_file([*other, *rows[n_other:]])


def test_one_entry_in_twenty_may_differ_and_no_more(
    empty_site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits, full = many(3)
    pin(monkeypatch, splits)
    empty_site.archive = packed({**splits, FULL: full})
    assert "(cad_v1_1.tsv: only 37 of the 40 entries that it has in the three splits are the same in" in refusal()
    assert kept(cache) == {}
    empty_site.archive = packed({**splits, FULL: many(2)[1]})
    assert "and 38 of its 40 entries in them agree with them in split, text" in load_documents("cad").notes[-2]


def test_another_full_file_than_the_first_one_is_never_taken(site: Site, files: dict[str, bytes], cache: Path) -> None:
    first = load_documents("cad")
    before = kept(cache)
    record = folder_of(cache) / RECORD
    changed = files[FULL].replace(b"are slow\t", b"slow\t").replace(b"\tage\t", b"\tgender\t")
    assert changed != files[FULL]
    (folder_of(cache) / FULL).write_bytes(changed)
    site.archive = packed({**files, FULL: changed})
    assert refusal() == (
        f"cad: {FULL} in what {download.SOURCE_URL} gave is not the one that was first fetched here (its SHA-256 is not that in"
        f" {record}); nothing was kept: delete that file to trust the new one, or {BY_HAND}"
    )
    site.archive = packed(files)
    assert load_documents("cad") == first
    assert kept(cache) == before
    site.archive = packed({**files, FULL: changed})
    record.unlink()
    trusted = load_documents("cad")
    assert {document.dimension for document in trusted.training} == {"", "gender"}
    assert trusted.notes[-1].endswith(f"(SHA-256 {sha256(changed)})")
    assert len(site.asked) == 4


@pytest.mark.parametrize("damage", [b"", b"changed", b"\xff\xfe"])
def test_a_damaged_record_is_not_taken_for_none(damage: bytes, site: Site, cache: Path) -> None:
    load_documents("cad")
    (folder_of(cache) / RECORD).write_bytes(damage)
    assert f"(its SHA-256 is not that in {folder_of(cache) / RECORD}); nothing was kept: delete that file" in refusal()
    assert (folder_of(cache) / RECORD).read_bytes() == damage
    assert len(site.asked) == 2


@pytest.mark.parametrize("name", [*SPLITS, FULL])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"changed")])
def test_a_kept_file_that_is_gone_or_changed_is_fetched_again(
    name: str, damage: Callable[[Path], None], site: Site, cache: Path
) -> None:
    first, before = load_documents("cad"), kept(cache)
    damage(folder_of(cache) / name)
    archive, site.archive = site.archive, b""
    assert "is not a zip file" in refusal()
    site.archive = archive
    assert load_documents("cad") == first
    assert kept(cache) == before
    assert len(site.asked) == 3


@pytest.mark.parametrize("stopped_at", [*SPLITS, FULL, RECORD])
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
    assert set(kept(cache)) == {f"cad/cad_v1_1/{name}" for name in (*SPLITS, FULL, RECORD)}


def test_kept_files_that_no_longer_agree_say_which_folder_to_delete(
    files: dict[str, bytes], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(cache)
    folder.mkdir(parents=True)
    full = files[FULL].replace(b"It is noon.", b"It is nine.")
    for name, content in {**files, FULL: full, RECORD: f"{sha256(full)}  {FULL}\n".encode()}.items():
        (folder / name).write_bytes(content)
    message = refusal()
    assert message.startswith(f"{folder / FULL}: only 6 of the 7 entries")
    assert message.endswith(f"; delete {folder} to have cad fetched again")
    monkeypatch.setattr(download, "MIN_SAME", 0.8)
    assert len(load_documents("cad").evaluation) == 3


@pytest.mark.parametrize("status", [403, 404, 503])
def test_an_address_that_refuses_is_one_sentence(status: int, site: Site, cache: Path) -> None:
    site.status = status
    message = refusal()
    assert message.startswith(f"cad: {download.SOURCE_URL} cannot be had (")
    assert message.endswith(f"); go online once, or {BY_HAND}")
    assert kept(cache) == {}


def test_an_archive_that_breaks_off_is_refused(site: Site, cache: Path) -> None:
    site.length = len(site.archive)
    site.archive = site.archive[:-100]
    message = refusal()
    assert message.startswith("cad: ")
    assert "it was cut short" in message
    assert kept(cache) == {}


@pytest.mark.parametrize(
    "answer", [b"", b"220 mail.example", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\ncut"]
)
@pytest.mark.usefixtures("files")
def test_an_answer_that_is_no_page_is_one_sentence(answer: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        reach(monkeypatch, listening.getsockname()[1])
        thread = threading.Thread(target=answer_once, args=(listening, answer))
        thread.start()
        assert f"{download.SOURCE_URL} cannot be had (" in refusal()
        thread.join()
    assert kept(cache) == {}


def answer_once(listening: socket.socket, answer: bytes) -> None:
    """Say this to whoever asks first, and hang up."""
    asking, _ = listening.accept()
    with asking:
        asking.recv(4096)
        asking.sendall(answer)


@pytest.mark.usefixtures("files")
def test_offline_the_sentence_names_the_address_and_says_how_to_give_the_file(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        reach(monkeypatch, closed.getsockname()[1])
        message = refusal()
    assert message.startswith(f"cad: {download.SOURCE_URL} cannot be had (")
    assert "refused" in message
    assert message.endswith(f"; go online once, or {BY_HAND}")
    assert kept(cache) == {}


@pytest.mark.usefixtures("site")
def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("here", encoding="utf-8")
    monkeypatch.setenv("UNDERTOW_CACHE", str(file))
    folder = file / "data" / "cad" / "cad_v1_1"
    assert refusal() == (
        f"{folder}: cad cannot be kept there (Not a directory); free some space, or set UNDERTOW_CACHE to another folder"
    )


def test_the_address_names_one_record_and_one_file() -> None:
    assert download.SOURCE_URL == "https://zenodo.org/records/4881008/files/data.zip?download=1"


def real_splits(reference_data: Path) -> dict[str, bytes]:
    return {name: gzip.decompress((reference_data / "cad" / f"{name}.gz").read_bytes()) for name in SPLITS}


def test_the_real_split_files_are_those_whose_hashes_are_known(reference_data: Path) -> None:
    assert {name: sha256(content) for name, content in real_splits(reference_data).items()} == SPLITS


@pytest.mark.soak
def test_the_real_split_files_agree_with_a_full_file_written_back_from_them(
    reference_data: Path, empty_site: Site
) -> None:
    splits = real_splits(reference_data)
    rows = [
        row(entry, name.removesuffix(".tsv").rpartition("_")[2], label, f" {text}  ")
        for name, content in splits.items()
        for entry, text, labels in (line.split("\t") for line in content.decode().split("\n")[1:-1])
        for label in labels.split(",")
    ]
    empty_site.archive = packed({**splits, FULL: full_file(rows)})
    found = fetched()
    assert "and 23,417 of its 23,417 entries in them agree with them in split" in found.notes[0]
    assert len(empty_site.asked) == 1
