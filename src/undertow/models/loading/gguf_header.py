"""Read the header of a GGUF file, once: everything that it declares must fit into the file.

    "GGUF"  version  tensors  entries
    entries x   (name, type, value)            a value may be an array, and an array of arrays
    tensors x   (name, dimensions, type, offset)
    data        at the next multiple of general.alignment

Libraries trust the header: for a declared array of 2**60 numbers they allocate 2**60. The format is that of ggml-org/ggml,
docs/gguf.md.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

VERSIONS = (2, 3)
FORMATS: Mapping[int, str] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
"""Struct formats of numbers, by type."""
TEXT, ARRAY = 8, 9
COUNT = struct.Struct("<Q")
LAYERS = ".block_count"
MAX_DIMENSIONS = 8
MAX_DEPTH = 4
MAX_KEPT = 4096
"""Longest array that `GgufHeader.summary` keeps: one number for each layer, not for each token."""
MIN_ENTRY_BYTES, MIN_TENSOR_BYTES = 13, 24
"""Size of an entry with an empty name, and of a tensor without dimensions."""
DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies.

    Attributes:
        name: as llama.cpp calls it, `blk.0.attn_q.weight`.
        shape: rows first, as torch counts.
        kind: number of its data type.
        offset: from the beginning of the file, in bytes.
    """

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The header of a file.

    Attributes:
        entries: values by name, `tokenizer.ggml.tokens` for example.
        tensors: in the file's order.
        summary: a file of the same entries without long arrays, and of the same names of tensors without data.
    """

    entries: Mapping[str, Any]
    tensors: tuple[GgufTensor, ...]
    summary: bytes


def read_header(path: Path) -> GgufHeader:
    """Read a header.

    Raises:
        ValueError: names content that does not fit into the file, or has an unknown type.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        if path.stat().st_size < 4:
            raise ValueError("it is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _Cursor(content).header()


class _Cursor:
    def __init__(self, content: mmap.mmap) -> None:
        self._content, self._at, self._size = content, 4, len(content)

    def header(self) -> GgufHeader:
        version = self._number("I", "its version")
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}, and {' and '.join(map(str, VERSIONS))} are read")
        n_tensors, n_entries = self._numbers("Q", 2, "the number of tensors and entries")
        least_bytes = n_tensors * MIN_TENSOR_BYTES + n_entries * MIN_ENTRY_BYTES
        self._need(least_bytes, f"{n_tensors} tensors and {n_entries} entries")
        entries: dict[str, Any] = {}
        kept = []  # the bytes of each entry without a long array
        for number in range(1, n_entries + 1):
            start, what = self._at, f"entry {number}"
            name = self._text(f"the name of {what}")
            if name in entries:
                raise ValueError(f"it holds {name} twice")
            entries[name] = self._value(self._number("I", f"the type of {what}"), what, 0)
            long = isinstance(entries[name], (list, tuple)) and len(entries[name]) > MAX_KEPT
            if not long and name != "general.alignment":
                kept.append(self._content[start : self._at])
        n_layers = max((n for name, n in entries.items() if name.endswith(LAYERS) and isinstance(n, int)), default=0)
        if n_layers > n_tensors:  # transformers would build a network of that size
            raise ValueError(f"it declares {n_layers:,} layers but holds {n_tensors:,} tensors")
        tensors = [self._tensor(number) for number in range(1, n_tensors + 1)]
        alignment = entries.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError("its alignment is no number of bytes")
        start = -(-self._at // alignment) * alignment
        # The tensors of the summary are single numbers that share one place.
        names = [one.name.encode() for one in tensors]
        table = [COUNT.pack(len(name)) + name + struct.pack("<IIQ", 0, 0, 0) for name in names]
        head = b"GGUF" + struct.pack("<IQQ", version, n_tensors, len(kept))
        return GgufHeader(
            entries,
            tuple(replace(one, offset=start + one.offset) for one in tensors),
            b"".join([head, *kept, *table, bytes(2 * DEFAULT_ALIGNMENT)]),
        )

    def _tensor(self, number: int) -> GgufTensor:
        """A tensor, with its offset from the beginning of the data."""
        name = self._text(f"the name of tensor {number}")
        n_dimensions = self._number("I", f"the dimensions of tensor {number}")
        if n_dimensions > MAX_DIMENSIONS:
            raise ValueError(f"tensor {number} has {n_dimensions} dimensions")
        shape = self._numbers("Q", n_dimensions, f"the dimensions of tensor {number}")
        kind = self._number("I", f"the type of tensor {number}")
        offset = self._number("Q", f"the place of tensor {number}")
        self._need(offset, f"tensor {number} at {offset}")
        return GgufTensor(name, tuple(reversed(shape)), kind, offset)

    def _value(self, kind: int, what: str, depth: int) -> Any:
        if kind in FORMATS:
            return self._number(FORMATS[kind], what)
        if kind == TEXT:
            return self._text(what)
        if kind != ARRAY or depth >= MAX_DEPTH:
            raise ValueError(f"{what} is of the unknown type {kind}")
        inner, n = self._number("I", f"the type of {what}"), self._number("Q", f"the length of {what}")
        if inner in FORMATS:
            return self._numbers(FORMATS[inner], n, f"{n} numbers of {what}")
        self._need(8 * n, f"{n} values of {what}")
        if inner == TEXT:
            return self._texts(n, what)
        return [self._value(inner, what, depth + 1) for _ in range(n)]

    def _texts(self, n: int, what: str) -> list[str]:
        """As many texts, in a loop without calls: a vocabulary has 100,000 of them."""
        content, at, size, texts = self._content, self._at, self._size, []
        for _ in range(n):
            start = at + 8
            if start > size:
                raise ValueError(f"it ends before {what}")
            at = start + COUNT.unpack_from(content, at)[0]
            if at > size:
                raise ValueError(f"it ends before {what}")
            texts.append(content[start:at].decode("utf-8", "replace"))
        self._at = at
        return texts

    def _text(self, what: str) -> str:
        return self._texts(1, what)[0]

    def _number(self, kind: str, what: str) -> Any:
        return self._numbers(kind, 1, what)[0]

    def _numbers(self, kind: str, n: int, what: str) -> tuple[Any, ...]:
        size = struct.calcsize(f"<{kind}") * n
        self._need(size, what)
        numbers = struct.unpack_from(f"<{n}{kind}", self._content, self._at)
        self._at += size
        return numbers

    def _need(self, size: int, what: str) -> None:
        if size > self._size - self._at:
            raise ValueError(f"it ends before {what}")
