"""What can become of a good input: strange cells, fields, lines, names, bytes and ends, by the kind of the input.

A mutation is drawn by a `Picker`, a list of numbers that hypothesis can draw and shrink: the same numbers give the same input.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TEXTS = (
    "", " ", "\x00", "\ufeff", "\u2028", "\u2029", "\x85", "\x0b", "\x1c", "a\u0301", "\U0001f600", "\u202eabc", "x" * 3000,
    "{", "}", "{}", "{w}", "{blank}", "{a.b}", "{0}", "{w!r}", "{w:>99999999}", "{{w}}", "nan", "NaN", "NA", "None", "inf", "-inf",
    "1e999", "-1", "0", "1", "2", "0.5", "1_0", "\u0661", "9" * 5000, "1e-320", "../../etc/passwd", "/dev/zero", "a/b", "true",
    "yes", "no", "female", "male", "[]", "\\ud800", '"', "'", ",", ";", ":", "\t", "\r", "\r\n", "#", "->", "all", "(all)", "date",
    "%s%n", "\\", "\\x00", "=1+1", "<script>", "MASK MASK", "[MASK]", "evaluation", "train",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, 5e-324, float("nan"), float("inf"), 0.5, [], {}, [[]],
    [1, "a"], {"a": {"b": [1]}}, ["x"] * 50,
)  # fmt: skip
TOML_VALUES = (
    "true", "0", "-1", "9223372036854775808", "1" + "0" * 400, "9" * 5000, "nan", "inf", "1e400", "''", '""', "'x'", '"{w}"', "[]", "[[]]",
    "{}", "{a = 1}", "['a', 'a']", "[1, 'a']", "1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "0x1F", '"""\nmany\nlines"""',
    '"\\u0000"', "'" + "x" * 3000 + "'", "[" * 300 + "]" * 300, "{" + ".".join("a" * 70) + " = 1}", "'\u2028'", "'all'",
)  # fmt: skip
TOML_LINES = (
    "[", "[]", "[[x]]", "[a.b.c]", "x = 1", "x", "= 1", "x = ", "[x]\n[x]", ".".join("a" * 90) + " = 1", "[" + ".".join("b" * 90) + "]",
    "\u2028", "#\x00", "x = [\n" * 200, "'a'.\"b\" = 2",
)  # fmt: skip


class Picker:
    """Choices by a list of numbers; when they have run out, the first of everything."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._left = list(numbers)[::-1]

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        return self._left.pop() % n if self._left and n > 1 else 0

    def of(self, choices: Sequence[Any]) -> Any:
        return choices[self.below(len(choices))]


def mutated(seed: bytes, kind: str, numbers: Sequence[int]) -> bytes:
    """A good input with one to three things wrong with it; as it is where there are no numbers."""
    if not numbers:
        return seed
    pick = Picker(numbers)
    content = seed
    for _ in range(1 + pick.below(3)):
        ways = BY_KIND.get(kind, (of_bytes,))
        content = pick.of((*ways, of_bytes))(content, pick)
    return content


# Any bytes.


def of_bytes(content: bytes, pick: Picker) -> bytes:
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: content[: pick.below(len(content) + 1)],
        lambda: _spliced(content, pick, bytes([pick.below(256)]), 1),
        lambda: _spliced(content, pick, pick.of(TEXTS).encode("utf-8", "surrogatepass"), pick.below(3)),
        lambda: _spliced(content, pick, b"", 1 + pick.below(12)),
        lambda: _spliced(content, pick, pick.of((b"\xff" * 4, b"\xff" * 8, b"\0" * 8, b"\x7f" * 8, b"\xff\xff\xff\x7f")), 4),
        lambda: b"\xef\xbb\xbf" + content,
        lambda: content.replace(b"\n", b"\r\n"),
        lambda: content.replace(b"\n", b"\r"),
        lambda: content.replace(b"\n", "\u2028".encode()),
        lambda: content.decode("utf-8", "replace").encode("utf-16"),
        lambda: content.decode("utf-8", "replace").encode("latin-1", "replace"),
        lambda: _spliced(content, pick, b"\xed\xa0\x80", 0),
        lambda: content + content,
        lambda: content + _piece(content, pick),
        lambda: b"",
        content.swapcase,
    )  # fmt: skip
    return ways[pick.below(len(ways))]()


def _spliced(content: bytes, pick: Picker, piece: bytes, dropped: int) -> bytes:
    at = pick.below(len(content) + 1)
    return content[:at] + piece + content[at + dropped :]


def _piece(content: bytes, pick: Picker) -> bytes:
    start = pick.below(len(content) + 1)
    return content[start : start + pick.below(200)]


# Lines, words and cells.


def of_words(content: bytes, pick: Picker) -> bytes:
    words = content.decode("utf-8", "surrogateescape").split(" ")
    at = pick.below(len(words))
    what = pick.below(4)
    if what == 0:
        words[at] = pick.of(TEXTS)
    elif what == 1:
        words.insert(at, words[pick.below(len(words))])
    elif what == 2 and len(words) > 1:
        del words[at]
    else:
        words.insert(at, pick.of(TEXTS))
    return " ".join(words).encode("utf-8", "surrogateescape")


def of_lines(content: bytes, pick: Picker) -> bytes:
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    at = pick.below(len(lines))
    what = pick.below(5)
    if what == 0:
        lines.insert(at, lines[pick.below(len(lines))])
    elif what == 1 and len(lines) > 1:
        del lines[at]
    elif what == 2:
        lines[at] = pick.of(TEXTS)
    elif what == 3:
        lines[at] += pick.of(TEXTS)
    else:
        other = pick.below(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _of_cells(separator: str) -> Callable[[bytes, Picker], bytes]:
    def change(content: bytes, pick: Picker) -> bytes:
        rows = [line.split(separator) for line in content.decode("utf-8", "surrogateescape").split("\n")]
        row = pick.below(len(rows)) if pick.below(3) else 0
        cell = pick.below(len(rows[row]))
        what = pick.below(7)
        if what <= 1:
            rows[row][cell] = pick.of(TEXTS)
        elif what == 2:
            rows[row][cell] = rows[pick.below(len(rows))][0]
        elif what == 3:
            rows[row].insert(cell, pick.of(TEXTS))
        elif what == 4:
            rows = [[one for at, one in enumerate(cells) if at != cell] for cells in rows]
        elif what == 5:
            rows = [[*cells, cells[min(cell, len(cells) - 1)]] for cells in rows]
        else:
            rows.insert(row, list(rows[pick.below(len(rows))]))
        return "\n".join(separator.join(cells) for cells in rows).encode("utf-8", "surrogateescape")

    return change


def of_toml(content: bytes, pick: Picker) -> bytes:
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    at = pick.below(len(lines))
    key, equals, value = lines[at].partition("=")
    what = pick.below(6)
    if what <= 1 and equals:
        lines[at] = f"{key}= {pick.of(TOML_VALUES)}"
    elif what == 2 and equals:
        lines[at] = f"{json.dumps(pick.of(TEXTS))} ={value}"
    elif what == 3:
        lines.insert(at, lines[pick.below(len(lines))])
    elif what == 4:
        del lines[at]
    else:
        lines.insert(at, pick.of(TOML_LINES))
    return "\n".join(lines).encode("utf-8", "surrogateescape")


# JSON.


def of_json(content: bytes, pick: Picker) -> bytes:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return of_bytes(content, pick)
    holders = [one for one in _holders(value) if one]
    if not holders:
        return json.dumps(pick.of(NUMBERS)).encode()
    holder = pick.of(holders)
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = pick.of(keys)
    what = pick.below(7)
    if what == 0:
        holder[key] = pick.of(TEXTS)
    elif what <= 2:
        holder[key] = pick.of(NUMBERS)
    elif what == 3:
        del holder[key]
    elif what == 4 and isinstance(holder, dict):
        holder[pick.of(TEXTS)] = holder.pop(key)
    elif what == 5:
        return _twice(value, pick)
    else:
        holder[key] = [holder[key]] if pick.below(2) else {"a": holder[key]}
    return _dumped(value)


def _twice(value: Any, pick: Picker) -> bytes:
    """A name that stands there twice, or lists within lists."""
    text = _dumped(value).decode("utf-8", "surrogatepass")
    at = pick.below(len(text) + 1)
    if pick.below(2):
        deep = (150, 900, 5000)[pick.below(3)]
        return f"{text[:at]}{'[' * deep}{']' * deep}{text[at:]}".encode("utf-8", "surrogatepass")
    return (
        text.replace('"', '"a": 1, "', 1).replace('"a": 1, "', '"a": 1, "a": 2, "', 1).encode("utf-8", "surrogatepass")
    )


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _holders(value: Any) -> list[Any]:
    found, waiting = [], [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, (dict, list)):
            found.append(one)
            waiting += one.values() if isinstance(one, dict) else one
    return found


def of_jsonl(content: bytes, pick: Picker) -> bytes:
    lines = content.split(b"\n")
    at = pick.below(len(lines))
    lines[at] = of_json(lines[at], pick)
    return b"\n".join(lines)


# Parquet.


def of_parquet(content: bytes, pick: Picker) -> bytes:
    """A table with other columns, types or names; what is no table stays what it is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(content))
    except (pa.ArrowException, OSError, ValueError):
        return of_bytes(content, pick)
    if not table.num_columns:
        return of_bytes(content, pick)
    at = pick.below(table.num_columns)
    name = table.column_names[at]
    n = table.num_rows
    columns: tuple[Callable[[], Any], ...] = (
        lambda: pa.array([None] * n, pa.null()),
        lambda: pa.array([pick.of(TEXTS).encode("utf-8", "replace").decode()] * n),
        lambda: pa.array([pick.of((0, -1, 2**62, 10**9 + 1))] * n),
        lambda: pa.array([pick.of((0.5, float("nan"), float("inf"), -1.0, 1e300))] * n),
        lambda: pa.array([[1, 2]] * n),
        lambda: pa.array([{"a": 1}] * n),
        lambda: pa.array([b"\xff"] * n),
        lambda: pa.array([True] * n),
        lambda: pa.array([2**62] * n, pa.timestamp("s")),
        lambda: pa.array([0] * n, pa.time64("ns")),
        lambda: pa.array(["a"] * n).dictionary_encode(),
        lambda: pa.array([1] * n, pa.decimal128(30, 3)),
        lambda: pa.array([[]] * n, pa.list_(pa.struct([("x", pa.int8())]))),
    )
    what = pick.below(5)
    if what == 0:
        table = table.drop_columns([name])
    elif what == 1:
        table = table.rename_columns(
            [pick.of(TEXTS).encode("utf-8", "replace").decode() if one == name else one for one in table.column_names]
        )
    elif what == 2:
        table = table.append_column(name, table.column(at))
    elif what == 3:
        table = table.replace_schema_metadata(
            {b"pandas": pick.of((b"", b"{", b"[]", b'{"columns": 1}', b"{}", b'{"index_columns": ["x"]}'))}
        )
    else:
        table = table.set_column(at, name, columns[pick.below(len(columns))]())
    return parquet_bytes(table)


def parquet_bytes(table: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    try:
        pq.write_table(table, out)
    except (pa.ArrowException, ValueError):
        return b"PAR1"
    return out.getvalue()


BY_KIND: Mapping[str, tuple[Callable[[bytes, Picker], bytes], ...]] = {
    "csv": (_of_cells(","), _of_cells(","), of_lines),
    "tsv": (_of_cells("\t"), _of_cells("\t"), of_lines),
    "toml": (of_toml, of_toml, of_lines),
    "json": (of_json, of_json, of_json),
    "jsonl": (of_jsonl, of_jsonl, of_lines),
    "lines": (of_lines, of_words),
    "words": (of_words, of_words, of_lines),
    "parquet": (of_parquet, of_parquet, of_parquet),
    "bytes": (of_bytes,),
}
"""Ways to go wrong, beside those of any bytes."""


def drawn_numbers(random_source: random.Random) -> list[int]:
    """Numbers for a `Picker`, for those who do not draw them by hypothesis."""
    return [random_source.getrandbits(32) for _ in range(16)]
