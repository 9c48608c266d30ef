"""Check the header of a GGUF file: everything that it declares must fit into the file.

    "GGUF"  version  tensors  entries
    entries x   (name, type, value)            a value may be an array, and an array of arrays
    tensors x   (name, dimensions, type, offset)

Libraries trust the header: for a declared array of 2**60 numbers they allocate 2**60. Of the entries only the number of layers is
read. The format is that of ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import IO

VERSIONS = (2, 3)
SIZES: Mapping[int, int] = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a number, by type."""
WHOLE: Mapping[int, str] = {0: "<B", 2: "<H", 4: "<I", 5: "<i", 10: "<Q", 11: "<q"}
"""Struct formats of the integer types."""
LAYERS = b".block_count"
TEXT, ARRAY = 8, 9
MAX_DIMENSIONS = 8
MAX_DEPTH = 4
MIN_ENTRY_BYTES, MIN_TENSOR_BYTES = 13, 24
"""Size of an entry with an empty name, and of a tensor without dimensions."""


def check_header(file: IO[bytes], size_bytes: int) -> None:
    """Check the header.

    Args:
        file: open at its first byte.
        size_bytes: size of the file.

    Raises:
        ValueError: names content that does not fit into the file, or has an unknown type.
    """
    _Head(file, size_bytes).walk()


class _Head:
    def __init__(self, file: IO[bytes], size_bytes: int) -> None:
        self._file, self._left = file, size_bytes

    def walk(self) -> None:
        self._take(4, "its first bytes")
        version = self._whole("<I", "its version")
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}, and {' and '.join(map(str, VERSIONS))} are read")
        n_tensors, n_entries = self._whole("<Q", "the number of tensors"), self._whole("<Q", "the number of entries")
        self._need(
            n_tensors * MIN_TENSOR_BYTES + n_entries * MIN_ENTRY_BYTES,
            f"{n_tensors} tensors and {n_entries} entries",
        )
        for number in range(1, n_entries + 1):
            name, kind = self._text(f"the name of entry {number}"), self._whole("<I", f"the type of entry {number}")
            if name.endswith(LAYERS) and kind in WHOLE:
                n_layers = self._whole(WHOLE[kind], f"entry {number}")
                if n_layers > n_tensors:  # transformers would build a network of that size
                    raise ValueError(f"it declares {n_layers:,} layers but holds {n_tensors:,} tensors")
            else:
                self._skip_value(kind, f"entry {number}", 0)
        for number in range(1, n_tensors + 1):
            self._skip_text(f"the name of tensor {number}")
            n_dimensions = self._whole("<I", f"the dimensions of tensor {number}")
            if n_dimensions > MAX_DIMENSIONS:
                raise ValueError(f"tensor {number} has {n_dimensions} dimensions")
            self._take(8 * n_dimensions + 4, f"the dimensions of tensor {number}")
            offset = self._whole("<Q", f"the place of tensor {number}")
            self._need(offset, f"tensor {number} at {offset}")

    def _skip_value(self, kind: int, what: str, depth: int) -> None:
        if kind in SIZES:
            self._take(SIZES[kind], what)
        elif kind == TEXT:
            self._skip_text(what)
        elif kind == ARRAY and depth < MAX_DEPTH:
            inner, n = self._whole("<I", f"the type of {what}"), self._whole("<Q", f"the length of {what}")
            if inner in SIZES:
                self._take(SIZES[inner] * n, f"{n} numbers of {what}")
                return
            self._need(8 * n, f"{n} values of {what}")
            for _ in range(n):
                self._skip_value(inner, what, depth + 1)
        else:
            raise ValueError(f"{what} is of the unknown type {kind}")

    def _skip_text(self, what: str) -> None:
        self._take(self._whole("<Q", f"the length of {what}"), what)

    def _text(self, what: str) -> bytes:
        size = self._whole("<Q", f"the length of {what}")
        self._need(size, what)
        self._left -= size
        return self._read(size, what)

    def _whole(self, shape: str, what: str) -> int:
        size = struct.calcsize(shape)
        self._need(size, what)
        self._left -= size
        (number,) = struct.unpack(shape, self._read(size, what))
        return int(number)

    def _read(self, size: int, what: str) -> bytes:
        content = self._file.read(size)
        if len(content) < size:
            raise ValueError(f"it ends before {what}")
        return content

    def _take(self, size: int, what: str) -> None:
        self._need(size, what)
        self._left -= size
        self._file.seek(size, 1)

    def _need(self, size: int, what: str) -> None:
        if size > self._left:
            raise ValueError(f"it ends before {what}")
