"""Files of sentences to be judged, one JSON object a line, and the verdicts on them.

Knows the two formats; knows nothing about how a sentence is judged.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from undertow import challenge
from undertow.outside import HALF_CHARACTER, is_whole_text, json_of, text_of, whole_file
from undertow.types import UndertowError

if TYPE_CHECKING:
    from undertow.checking import Guard, Options

AT_ONCE = 200
"""Lines that are asked together: their verdicts are written before the next are asked."""
MAX_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file.

    Attributes:
        given: the object as it stood there; its keys come back with the verdict.
        text: the sentence.
        options: what may fill its blank; "" for pronouns.
    """

    given: Mapping[str, Any]
    text: str
    options: Options


def read_lines(path: Path, options: str = "") -> list[Line]:
    """Every line of a JSONL file, checked before any model is asked; empty lines are skipped.

    Args:
        path: the file; each line has `text`, and may have `options`.
        options: for the lines that have none.

    Raises:
        UndertowError: the file cannot be read, or a line is not what it must be; names the line.
    """
    text = text_of(whole_file(path, MAX_BYTES, "a file of sentences"), path)
    lines = [
        _line(row, options, f"{path}, line {number}") for number, row in enumerate(text.split("\n"), 1) if row.strip()
    ]
    if not lines:
        raise UndertowError(
            f'{path}: holds no lines; write one object a line, such as {{"text": "The doctor said {{blank}} was late."}}'
        )
    return lines


def _line(row: str, options: str, where: str) -> Line:
    try:
        given = json_of(row)
    except ValueError as error:
        raise UndertowError(f"{where}: is not JSON ({error}); write one object a line") from error
    if not isinstance(given, dict) or not isinstance(given.get("text"), str):
        raise UndertowError(f'{where}: needs an object with a "text", not {row[:60]!r}')
    if not is_whole_text(row) or not is_whole_text(json.dumps(given, ensure_ascii=False)):
        raise UndertowError(f"{where}: {HALF_CHARACTER}, which cannot be written; mend it")
    own = given.get("options") or options
    if not isinstance(own, (str, dict)):
        raise UndertowError(
            f"{where}: options must be a text such as 'yes: is; no: is not', or a table of lists of words"
        )
    try:
        challenge.single("line", given["text"], own)
    except UndertowError as error:
        raise UndertowError(f"{where}: {error}") from error
    return Line(given, given["text"], own)


def check_out(out: Path | None) -> None:
    """Refuse to write over a file, before any model is asked.

    Raises:
        UndertowError: the file is there already, or its folder is not.
    """
    if out is not None and not out.absolute().parent.is_dir():
        raise UndertowError(f"{out}: its folder is not there; make it first, or name another file with --out")
    if out is not None and out.exists():
        raise UndertowError(f"{out}: is there already; name another file with --out, or remove it first")


def without_nan(value: Any) -> Any:
    """The same without numbers that JSON has not: these become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: without_nan(one) for key, one in value.items()}
    return [without_nan(one) for one in value] if isinstance(value, list) else value


def write_verdicts(guard: Guard, lines: Sequence[Line], out: Path | None) -> None:
    """One JSON object for each line, in order: its own keys, then the verdict; to standard output where there is no file.

    Raises:
        UndertowError: a model or file fault; what was answered is stored, and what was judged is written.
    """
    with _opened(out) as file:
        for start in range(0, len(lines), AT_ONCE):
            part = lines[start : start + AT_ONCE]
            for line, verdict in zip(part, guard.check([(line.text, line.options) for line in part]), strict=True):
                file.write(
                    json.dumps(without_nan({**line.given, "verdict": verdict.as_json()}), ensure_ascii=False) + "\n"
                )
            file.flush()


@contextmanager
def _opened(out: Path | None) -> Iterator[TextIO]:
    if out is None:
        yield sys.stdout
        return
    # Written beside its place and moved there whole, so that a file that is there is a file that is complete.
    draft = out.with_name(f".{out.name}.part")
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)
