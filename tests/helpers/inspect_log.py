"""A log as Inspect writes it, of an exported task and of scores that are known."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

MASSES = {"female": 30.0, "male": 20.0, "neutral": 10.0, "other_words": 40.0}


def log_of(exported: Path, masses: Mapping[str, Any] | None = None, model: str = "openai/m") -> dict[str, Any]:
    """The whole log; every sample has the same masses, but that those of *she* grow with W."""
    lines = [json.loads(line) for line in (exported / "items.jsonl").read_text(encoding="utf-8").splitlines()]
    samples = [
        {"id": line["id"], "epoch": 1, "input": line["input"], "target": "", "metadata": line["metadata"]}
        | {"messages": [{"role": "user", "content": line["input"]}]}
        | {"scores": {"word_groups": {"value": dict(masses or _masses(line)), "answer": "She", "explanation": None}}}
        for line in lines
    ]
    about = {"task": "undertow_prompts", "model": model, "created": "2026-01-31T10:00:00+00:00"}
    results = {"total_samples": len(lines)}
    return {"version": 2, "status": "success", "eval": about, "results": results, "samples": samples}


def _masses(line: Mapping[str, Any]) -> dict[str, float]:
    more = float(line["metadata"]["w_index"])
    return MASSES | {"female": MASSES["female"] + more, "other_words": MASSES["other_words"] - more}


def write_json(log: Mapping[str, Any], path: Path) -> Path:
    path.write_text(json.dumps(log), encoding="utf-8")
    return path


def write_eval(log: Mapping[str, Any], path: Path, *, zstandard: bool = False, header: str = "header.json") -> Path:
    """The log as a zip file."""
    parts = {header: {name: value for name, value in log.items() if name != "samples"}}
    parts |= {f"samples/{sample['id'].replace('/', '_')}_epoch_1.json": sample for sample in log["samples"]}
    contents = {name: json.dumps(part).encode() for name, part in parts.items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED if zstandard else zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, pa.Codec("zstd").compress(content).to_pybytes() if zstandard else content)
    if zstandard:
        _mark_zstandard(path, list(contents.values()))
    return path


def _mark_zstandard(path: Path, contents: Sequence[bytes]) -> None:
    """Method, checksum and size of each entry, which zipfile writes for no method that it does not know."""
    with zipfile.ZipFile(path) as archive:
        offsets = [entry.header_offset for entry in archive.infolist()]
        at = archive.start_dir
    data = bytearray(path.read_bytes())
    for offset, content in zip(offsets, contents, strict=True):
        for begin in (offset + 8, at + 10):
            struct.pack_into("<H", data, begin, 93)
            struct.pack_into("<I", data, begin + 6, zlib.crc32(content))
            struct.pack_into("<I", data, begin + 14, len(content))
        lengths = struct.unpack_from("<HHH", data, at + 28)
        at += 46 + sum(lengths)
    path.write_bytes(bytes(data))
