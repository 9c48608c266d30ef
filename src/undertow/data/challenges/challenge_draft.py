"""A new challenge file from five answers: title, word groups, sentences, values of W, control sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from undertow._files import is_plain_file, toml_text
from undertow.data.challenges.challenge_file import DEFAULT_BLANK
from undertow.data.challenges.sentence_sources import MARKS
from undertow.data.templates import covariates
from undertow.data.templates.template import Template
from undertow.data.text_files import read_text
from undertow.errors import UndertowError, closest

BLANK, ELLIPSIS = "___", "..."
MAX_EXPANDED = 10_000
LINE_LENGTH = 100
YEARS = range(1000, 2200)
"""Integers that count as years in a list without a name."""
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")


@dataclass(frozen=True, slots=True)
class WList:
    """A W list: built-in if `values` is empty, else of the file.

    `order` is the meaning of the order; "" if not stated, "none" for unordered values.
    """

    name: str
    values: tuple[str, ...] = ()
    order: str = ""

    @property
    def has_numbers(self) -> bool:
        """Whether all values are numbers."""
        return bool(covariates.numbers_of(self.values))


@dataclass(frozen=True, slots=True)
class ChallengeDraft:
    """The five answers."""

    title: str
    groups: Mapping[str, Sequence[str]]
    sentences: Sequence[str]
    w: WList
    controls: Sequence[tuple[str, str]] = ()

    def to_toml(self) -> str:
        """The challenge file."""
        lines = [f"title = {toml_text(self.title)}", f"templates = {_list(self.sentences)}"]
        lines += self._w_lines()
        lines += ["", "[groups]", *(f"{_key(name)} = {_list(words)}" for name, words in self.groups.items())]
        for gold, text in self.controls:
            lines += ["", "[[controls]]", f"text = {toml_text(text)}", f"gold = {toml_text(gold)}"]
        return "\n".join(lines) + "\n"

    def _w_lines(self) -> list[str]:
        if not self.w.values:
            return [f"w = [{toml_text(self.w.name)}]"]
        values = _list(self.w.values, numbers=self.w.has_numbers)
        if not self.w.order:
            return ["", "[w]", f"{_key(self.w.name)} = {values}"]
        order = 'scale = "none"' if self.w.order == covariates.NONE else f"order = {toml_text(self.w.order)}"
        return ["", f"[w.{_key(self.w.name)}]", f"values = {values}", order]


def parse_sentence(answer: str) -> str:
    """Parse a sentence with `{w}`, a blank (`___` or another of `MARKS`) and no other placeholder into a template."""
    text, holes = _template(answer)
    if "w" not in holes:
        raise UndertowError(f"sentence {answer!r} has no place for W; write {{w}} where its value goes")
    return text


def parse_control(answer: str, groups: Sequence[str]) -> tuple[str, str]:
    """Parse a control sentence `GROUP: sentence`, with a blank but no place for W, into its group, one of `groups`, and template."""
    gold, colon, sentence = (part.strip() for part in answer.partition(":"))
    if not colon or gold not in groups:
        raise UndertowError(
            f"control {answer!r}: begin with the group that the sentence determines and a colon; groups are "
            f"{', '.join(groups)}{closest(gold, groups)}"
        )
    text, holes = _template(sentence)
    if "w" in holes:
        raise UndertowError(f"control {sentence!r} has a place for W; remove {{w}} from control sentences")
    return gold, text


def parse_w(answer: str) -> WList:
    """Parse a W list: `NAME: value, value`, values without a name, or the name of a list or of a file with one value per line.

    `1900, 1910, ..., 2020`, also with `…`, includes all numbers in between.

    Raises:
        UndertowError: there are too few values, or the dots cannot be expanded.
    """
    if "," not in answer:
        name = answer.strip()
        if name in covariates.names():
            return WList(name)
        if is_plain_file(Path(name)):
            return WList(Path(name).stem, tuple(filter(None, map(str.strip, read_text(Path(name)).split("\n")))))
        raise UndertowError(
            f"W {answer!r}: write values with commas between them, for example year: 1900, 1910, ..., 2020; or name a list "
            f"({', '.join(covariates.names())}) or a file{closest(name, covariates.names())}"
        )
    name, rest = _split_name(answer)
    values = tuple(_expand([value.strip() for value in rest.replace("…", ELLIPSIS).split(",") if value.strip()]))
    if len(values) < covariates.MIN_VALUES:
        raise UndertowError(
            f"W {answer!r}: has {len(values)} values, but a slope needs at least {covariates.MIN_VALUES}"
        )
    are_years = all(value.isdecimal() and int(value) in YEARS for value in values)
    return WList(name or ("year" if are_years else "value"), values)


def _split_name(answer: str) -> tuple[str, str]:
    """The name of a list and its values; "" for values without a name, which may have colons, as 08:00, 12:00 have."""
    first, *others = answer.split(",")
    name, colon, after = first.partition(":")
    is_of_values = not after[:1].isspace() and first.count(":") <= max(other.count(":") for other in others)
    if not colon or is_of_values or name.strip().isdecimal():
        return "", answer
    return name.strip(), answer.partition(":")[2]


def _template(answer: str) -> tuple[str, list[str]]:
    text = MARKS.sub(f"{{{DEFAULT_BLANK}}}", answer.strip())
    holes = Template(text).holes()
    if DEFAULT_BLANK not in holes:
        raise UndertowError(f"sentence {answer!r} has no blank; write {BLANK} where the word goes")
    if strange := [hole for hole in holes if hole not in ("w", DEFAULT_BLANK)]:
        raise UndertowError(
            f"sentence {answer!r} has the unknown placeholder {{{strange[0]}}}; write {{w}} for the value and {BLANK} for the word"
        )
    return text, holes


def _expand(values: Sequence[str]) -> list[str]:
    """The values with `...` expanded."""
    if ELLIPSIS not in values:
        return list(values)
    at = values.index(ELLIPSIS)
    around = [*values[max(at - 2, 0) : at], *values[at + 1 : at + 2]]
    fix = "write two numbers before the dots and the last one after them, as in 1900, 1910, ..., 2020"
    try:
        first, second, last = map(Decimal, around)
    except (InvalidOperation, ValueError) as error:
        raise UndertowError(f"W {', '.join(values)}: {fix}") from error
    step = second - first
    n_steps = (last - second) / step if step else Decimal("NaN")
    if not math.isfinite(n_steps) or not 0 < n_steps < MAX_EXPANDED or n_steps != int(n_steps):
        raise UndertowError(f"W {', '.join(values)}: the steps from {first} to {second} do not lead to {last}; {fix}")
    between = [str(second + step * number) for number in range(1, int(n_steps))]
    return [*values[:at], *between, *_expand(values[at + 1 :])]


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else toml_text(name)


def _list(values: Sequence[str], *, numbers: bool = False) -> str:
    """A TOML list, on several lines if one is too long; texts of integers become numbers."""
    cells = [value if numbers and _INTEGER.fullmatch(value) else toml_text(value) for value in values]
    one_line = f"[{', '.join(cells)}]"
    if len(one_line) <= LINE_LENGTH:
        return one_line
    per_row = 10 if numbers else 1
    rows = [", ".join(cells[at : at + per_row]) for at in range(0, len(cells), per_row)]
    return "[\n" + "".join(f"    {row},\n" for row in rows) + "]"
