"""Download CAD's files once from their public address, check them, and keep them.

What can be checked of the archive:

- Its three split files have the SHA-256 of version 1.1.
- Of the full file no checksum is known. But CAD's authors wrote the split files from it (dongpng/cad_naacl2021:
  `src/classification_util.py`): all rows of one `info_id` are one entry, whose text is its first row's and whose labels are its
  primary categories, slurs aside. So every entry of the split files must stand in it, nearly all with their split, text and categories.
- That leaves targets and rationales, and the rows that CAD's authors excluded. They are trusted on first use: the file's SHA-256
  is written beside it, and what is read or fetched ever after must have the same.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from undertow._folders import data_folder
from undertow.data.documents.cad_splits import SPLIT_COLUMNS
from undertow.data.documents.cad_values import NEUTRAL, SLUR, cad_rows, clean, primary_of
from undertow.data.documents.document_set import MAX_BYTES, header
from undertow.data.fetch import DownloadError, download
from undertow.errors import UndertowError

NAME = "cad"
SOURCE_URL = "https://zenodo.org/records/4881008/files/data.zip?download=1"
IN_ARCHIVE = "data/"
"""The folder of the archive that its files are in."""
FULL = "cad_v1_1.tsv"
SPLITS: Mapping[str, str] = {
    "cad_v1_1_train.tsv": "139b4d21be0f6b6c372dbfc8015eb18753e11025e3251f92eebd2ffb9d27fe17",
    "cad_v1_1_dev.tsv": "71f84da6ed1d52ec0e8e478e5428167c86bbb3686c34a54b81c222185ff7ec59",
    "cad_v1_1_test.tsv": "191113e50174b21fe30497e42028f3539e7efb1825b05df0f2ca3854985250e4",
}
"""SHA-256 of the split files."""
RECORD = f"{FULL}.sha256"
"""Holds the SHA-256 of the full file that was first fetched, as `sha256sum` writes it."""
N_COLUMNS = 23
"""Of the full file."""
MIN_SAME = 0.95
"""Least share of entries that are the same in the full and in the split files. Their authors' rule is known from version 1."""
MAX_ARCHIVE_BYTES = 200 * 2**20

_BY_HAND = f"download data.zip yourself, unpack it, and give the path of its {FULL} in place of the name {NAME}"
_AGAIN = f"nothing was kept: try again, or {_BY_HAND}"
_ENTRY_COLUMNS = ("info_id", "split", "annotation_Primary", "meta_text")
# What zipfile raises beside its own error where the list of members or a member's header is torn.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)


@dataclass(frozen=True, slots=True)
class FetchedFiles:
    """CAD as it was fetched.

    Attributes:
        path: of the full file.
        notes: what is known of it, and what is not.
    """

    path: Path
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One post title, post body or comment; `part` is its split."""

    part: str
    text: str
    labels: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Agreement:
    """How many entries are the same in the full and in the split files, of how many."""

    n_same: int
    n_all: int


def fetch_cad() -> FetchedFiles:
    """CAD's full file from the cache, or else from its public address.

    Downloaded files are kept only if they pass the module's checks; later calls read them without a network.

    Raises:
        UndertowError: the files cannot be had or kept, or are not what they should be.
    """
    folder = data_folder(NAME) / Path(FULL).stem
    try:
        agreement = _agreement_of_kept(folder) if _is_kept(folder) else _fetch(folder)
    except OSError as error:
        raise UndertowError(
            f"{folder}: {NAME} cannot be kept there ({error.strerror}); free some space, or set UNDERTOW_CACHE to another folder"
        ) from error
    return FetchedFiles(folder / FULL, _notes(agreement, _recorded(folder)))


def _notes(agreement: _Agreement, sha256: str) -> tuple[str, ...]:
    return (
        f"{FULL} was fetched from {SOURCE_URL}: the split files beside it have the SHA-256 of version 1.1, and"
        f" {agreement.n_same:,} of its {agreement.n_all:,} entries in them agree with them in split, text and primary categories",
        f"no checksum of {FULL} itself is known: its targets and rationales are trusted as they were first fetched here"
        f" (SHA-256 {sha256})",
    )


def _is_kept(folder: Path) -> bool:
    """Whether all files are there, unchanged since they were fetched."""
    expected = {**SPLITS, FULL: _recorded(folder)}
    return all((folder / name).is_file() for name in expected) and all(
        _sha256((folder / name).read_bytes()) == sha256 for name, sha256 in expected.items()
    )


def _recorded(folder: Path) -> str:
    """SHA-256 of the full file that was first fetched; "" where none was."""
    record = folder / RECORD
    return record.read_text(encoding="utf-8", errors="replace").partition(" ")[0] if record.is_file() else ""


def _fetch(folder: Path) -> _Agreement:
    """Put the files in the folder, if they are what they must be."""
    files = _unpacked(_downloaded())
    changed = next((name for name, sha256 in SPLITS.items() if _sha256(files[name]) != sha256), "")
    if changed:
        raise UndertowError(
            f"{NAME}: {changed} in what {SOURCE_URL} gave is not that of version 1.1 (its SHA-256 differs); {_AGAIN}"
        )
    sha256 = _sha256(files[FULL])
    if (folder / RECORD).is_file() and sha256 != _recorded(folder):
        raise UndertowError(
            f"{NAME}: {FULL} in what {SOURCE_URL} gave is not the one that was first fetched here (its SHA-256 is not that in"
            f" {folder / RECORD}); nothing was kept: delete that file to trust the new one, or {_BY_HAND}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    # Beside its destination, so that each file comes into place whole. The record comes last: a set without it is fetched again.
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        for name, content in {**files, RECORD: f"{sha256}  {FULL}\n".encode()}.items():
            (Path(aside) / name).write_bytes(content)
        agreement = _agreement_of_new(Path(aside))
        for name in (*files, RECORD):
            (Path(aside) / name).replace(folder / name)
    return agreement


def _downloaded() -> bytes:
    """The archive."""
    try:
        content = download(SOURCE_URL, MAX_ARCHIVE_BYTES)
    except DownloadError as error:
        raise UndertowError(f"{NAME}: {SOURCE_URL} cannot be had ({error}); go online once, or {_BY_HAND}") from error
    if len(content) > MAX_ARCHIVE_BYTES:
        raise UndertowError(f"{NAME}: what {SOURCE_URL} gave is larger than {MAX_ARCHIVE_BYTES // 2**20} MiB; {_AGAIN}")
    return content


def _unpacked(archive: bytes) -> dict[str, bytes]:
    """The content of the split files and of the full one, by name. No other member is read, and no path of the archive's is used."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return {name: _member(opened, IN_ARCHIVE + name) for name in (*SPLITS, FULL)}
    except _DAMAGE as error:
        why = " ".join(str(error).split())
        raise UndertowError(
            f"{NAME}: what {SOURCE_URL} gave is not a zip file that can be read to its end ({why}); {_AGAIN}"
        ) from error


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        member = archive.getinfo(name)
    except KeyError as error:
        raise UndertowError(f"{NAME}: the archive that {SOURCE_URL} gave has no {name}; {_AGAIN}") from error
    is_encrypted = member.flag_bits & 1
    if is_encrypted:
        raise UndertowError(f"{NAME}: {name} is encrypted in the archive that {SOURCE_URL} gave; {_AGAIN}")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"{name} is packed by method {member.compress_type}")
    # zipfile gives no more than the size that the archive says.
    if member.file_size > MAX_BYTES:
        raise UndertowError(
            f"{NAME}: {name} in the archive that {SOURCE_URL} gave is larger than {MAX_BYTES // 2**20} MiB; {_AGAIN}"
        )
    return archive.read(member)


def _agreement_of_kept(folder: Path) -> _Agreement:
    try:
        return _agreement(folder)
    except UndertowError as error:
        raise UndertowError(f"{error}; delete {folder} to have {NAME} fetched again") from error


def _agreement_of_new(folder: Path) -> _Agreement:
    """The agreement of files that are not kept yet; an error names the address, since these files are temporary."""
    try:
        return _agreement(folder)
    except UndertowError as error:
        what = str(error).replace(f"{folder / FULL}", FULL)
        raise UndertowError(f"{NAME}: what {SOURCE_URL} gave is not version 1.1 of CAD ({what}); {_AGAIN}") from error


def _agreement(folder: Path) -> _Agreement:
    """How far the full file says what the split files beside it say.

    Raises:
        UndertowError: it has other columns, lacks one of their entries, or says too often something else.
    """
    path = folder / FULL
    n_columns = len(header(path))
    if n_columns != N_COLUMNS:
        raise UndertowError(f"{path}: has {n_columns} columns, where CAD's full file has {N_COLUMNS}")
    expected, entries = _split_entries(folder), _full_entries(path)
    n_lacking = len(expected.keys() - entries.keys())
    if n_lacking:
        raise UndertowError(f"{path}: lacks {n_lacking:,} of the {len(expected):,} entries of the split files")
    agreement = _Agreement(sum(entries[name] == entry for name, entry in expected.items()), len(entries))
    if agreement.n_same < MIN_SAME * agreement.n_all:
        raise UndertowError(
            f"{path}: only {agreement.n_same:,} of the {agreement.n_all:,} entries that it has in the three splits are the same in"
            " the split files"
        )
    return agreement


def _split_entries(folder: Path) -> dict[str, _Entry]:
    """What the split files say, by id."""
    return {
        row["id"].strip(): _Entry(
            part=name.removesuffix(".tsv").rpartition("_")[2],
            text=clean(row["text"]),
            labels=frozenset(primary_of(label, where) for label in row["labels"].split(",")),
        )
        for name in SPLITS
        for where, row in cad_rows(folder / name, SPLIT_COLUMNS)
    }


def _full_entries(path: Path) -> dict[str, _Entry]:
    """What the full file says of the entries in the three splits, by the rule that its authors wrote the split files by."""
    firsts: dict[str, tuple[str, str]] = {}
    labels: dict[str, set[str]] = {}
    for where, row in cad_rows(path, _ENTRY_COLUMNS):
        part, name = row["split"].strip(), row["info_id"].strip()
        if part in ("train", "dev", "test"):
            firsts.setdefault(name, (part, clean(row["meta_text"])))
            labels.setdefault(name, set()).add(primary_of(row["annotation_Primary"], where))
    return {
        name: _Entry(part, text, frozenset(labels[name] - {SLUR}) or frozenset({NEUTRAL}))
        for name, (part, text) in firsts.items()
    }


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
