"""A small package with a model in it, for pip to fetch from a folder instead of the real one's 93 MB from its index."""

from __future__ import annotations

import base64
import hashlib
import random
import zipfile
from pathlib import Path

MODEL = random.Random(0).randbytes(2**20)
MEMBER = "tiny_model/model.gguf"


def build_wheel(folder: Path) -> tuple[str, str]:
    """Puts the wheel of `tiny-model==1.0` into a folder; returns the SHA-256 of it, and of the model in it."""
    info = "tiny_model-1.0.dist-info"
    members = {
        MEMBER: MODEL,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for name, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        rows.append(f"{name},sha256={digest},{len(content)}")
    members[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    folder.mkdir()
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return hashlib.sha256(path.read_bytes()).hexdigest(), hashlib.sha256(MODEL).hexdigest()
