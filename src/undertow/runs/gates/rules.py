"""Rules: read thresholds on the results of a run from a TOML file, and check them."""

from __future__ import annotations

import difflib
import hashlib
import math
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undertow._files import decode_text, first_line, parse_toml, read_file
from undertow.errors import UndertowError

SCHEMA = 1
MAX_BYTES = 2**20
"""A rules file larger than this is a mistake (a model or data file given by accident)."""
BASELINE = "baseline"
VALUE, LOW, HIGH, P, Q, N, N_MISSING = "value", "low", "high", "p", "q", "n", "n_missing"
MAGNITUDE, MAGNITUDE_LOW, MAGNITUDE_HIGH = "magnitude", "magnitude_low", "magnitude_high"
MISSING_PERCENT = "missing_percent"
MAGNITUDES = (MAGNITUDE, MAGNITUDE_LOW, MAGNITUDE_HIGH)

_ANY, _SIZE = (-math.inf, math.inf), (0.0, math.inf)
NUMBERS: Mapping[str, tuple[float, float]] = {
    VALUE: _ANY, LOW: _ANY, HIGH: _ANY, MAGNITUDE: _SIZE, MAGNITUDE_LOW: _SIZE, MAGNITUDE_HIGH: _SIZE,
    P: (0.0, 1.0), Q: (0.0, 1.0), N: _SIZE, N_MISSING: _SIZE, MISSING_PERCENT: (0.0, 100.0),
}  # fmt: skip
"""Numbers that every result has, and between what they lie; any other name is one of the result's details."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on every result that it matches.

    Attributes:
        number: its position in the file, from 1.
        name: its unique name.
        measure: measure of the results that it matches.
        where: levels that a result's group must have, any one of those listed for each key.
        of: which number of the result is judged: one of `NUMBERS`, or a name of its details.
        at_most: the largest number that passes; infinite if unset.
        at_least: the smallest number that passes; minus infinite if unset.
        against: `BASELINE`, where the change against a baseline run is judged; "" for the result itself.
        audit: audit of the runs that it applies to; "" for any.
        optional: whether it may match no result.
        allow_missing: whether a missing number passes.
        why: purpose of the rule, shown when it fails.
    """

    number: int
    name: str
    measure: str
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    of: str = VALUE
    at_most: float = math.inf
    at_least: float = -math.inf
    against: str = ""
    audit: str = ""
    optional: bool = False
    allow_missing: bool = False
    why: str = ""

    def holds(self, number: float) -> bool:
        """Whether a number passes; the thresholds pass, NaN does not."""
        return self.at_least <= number <= self.at_most

    @property
    def allowed(self) -> str:
        """The thresholds in words."""
        if math.isinf(self.at_least):
            return f"at most {threshold(self.at_most)}"
        if math.isinf(self.at_most):
            return f"at least {threshold(self.at_least)}"
        return f"{threshold(self.at_least)} to {threshold(self.at_most)}"


@dataclass(frozen=True, slots=True)
class Rules:
    """A file of rules.

    Attributes:
        path: the file.
        rules: at least one, in the order of the file.
        description: the file's description.
        sha256: SHA-256 of the file.
    """

    path: Path
    rules: tuple[Rule, ...]
    description: str
    sha256: str

    def where(self, rule: Rule) -> str:
        """Location of the rule, for messages."""
        return f"{self.path}, rule {rule.number} ({rule.name!r})"


def threshold(number: float) -> str:
    """A threshold as text."""
    return f"{number:.15g}"


def closest(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name, ready to append to it; "" if nothing is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def read_rules(path: Path) -> Rules:
    """The rules of a TOML file.

    Raises:
        UndertowError: the file cannot be read, or is invalid; names file, rule and key.
    """
    content = read_file(path, MAX_BYTES, "a file of rules")
    table = _table(path, content)
    _check_keys(table, _FILE_KEYS, str(path))
    schema = table.get("schema", SCHEMA)
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise UndertowError(f"{path}: schema is {reprlib.repr(schema)}; it must be {SCHEMA}")
    if schema > SCHEMA:
        raise UndertowError(f"{path}: was written for a newer Undertow (schema {schema}); update to use it")
    rows = table.get("rule", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UndertowError(f"{path}: rule must be a list of tables; begin each rule with [[rule]]")
    if not rows:
        raise UndertowError(f"{path}: holds no rule, so it would let everything pass; begin each rule with [[rule]]")
    rules = tuple(_rule(row, number, str(path)) for number, row in enumerate(rows, 1))
    first: dict[str, int] = {}
    for rule in rules:
        if first.setdefault(rule.name, rule.number) != rule.number:
            raise UndertowError(
                f"{path}, rule {rule.number} ({rule.name!r}): has the name of rule {first[rule.name]}; give each its own"
            )
    description = _typed(table, "description", "", str(path))
    return Rules(path, rules, description, hashlib.sha256(content).hexdigest())


def _table(path: Path, content: bytes) -> dict[str, Any]:
    try:
        return parse_toml(decode_text(content, path))
    except ValueError as error:
        raise UndertowError(f"{path}: is not valid TOML: {first_line(error)}") from error


_FILE_KEYS = ("schema", "description", "rule")
_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "name": (str, "text"), "measure": (str, "text"), "of": (str, "text"), "against": (str, "text"), "audit": (str, "text"),
    "why": (str, "text"), "description": (str, "text"), "where": (dict, 'a table, as in { w_name = "date" }'),
    "at_most": ((int, float), "a number"), "at_least": ((int, float), "a number"),
    "optional": (bool, "true or false"), "allow_missing": (bool, "true or false"),
}  # fmt: skip
_RULE_KEYS = tuple(key for key in _KINDS if key != "description")


def _rule(row: Mapping[str, Any], number: int, path: str) -> Rule:
    named = row.get("name")
    where = f"{path}, rule {number}" + (f" ({named!r})" if isinstance(named, str) and named else "")
    _check_keys(row, _RULE_KEYS, where)
    rule = Rule(
        number=number,
        name=_needed(row, "name", where),
        measure=_needed(row, "measure", where),
        where=_levels(_typed(row, "where", {}, where), where),
        of=_typed(row, "of", VALUE, where),
        at_most=_threshold(row, "at_most", math.inf, where),
        at_least=_threshold(row, "at_least", -math.inf, where),
        against=_typed(row, "against", "", where),
        audit=_typed(row, "audit", "", where),
        optional=_typed(row, "optional", False, where),
        allow_missing=_typed(row, "allow_missing", False, where),
        why=_typed(row, "why", "", where),
    )
    if not rule.name.isprintable():
        raise UndertowError(f"{where}: name holds a line break or a sign that cannot be shown; leave that out")
    if rule.against not in ("", BASELINE):
        raise UndertowError(
            f"{where}: against is {rule.against!r}; it must be {BASELINE!r}, or be left out to judge the run itself"
        )
    if not rule.of:
        raise UndertowError(f"{where}: of is empty; name a number, such as {MAGNITUDE_HIGH!r}, or leave it out")
    _check_thresholds(rule, where)
    return rule


def _check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise UndertowError(f"{where}: {key!r} is not known{closest(key, known)}; use {', '.join(known)}")


def _typed(row: Mapping[str, Any], key: str, default: Any, where: str) -> Any:
    """The value, if it has the right type; unlike in Python, true is not a number."""
    kind, words = _KINDS[key]
    value = row.get(key, default)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise UndertowError(f"{where}: {key} is {reprlib.repr(value)}; it must be {words}")
    return value


def _needed(row: Mapping[str, Any], key: str, where: str) -> str:
    text = _typed(row, key, "", where)
    if not text.strip():
        given = "is empty" if key in row else "is missing"
        raise UndertowError(f"{where}: {key} {given}; every rule needs a name and a measure")
    return str(text)


def _levels(given: Mapping[str, Any], where: str) -> dict[str, tuple[str, ...]]:
    return {key: _level(key, value, where) for key, value in given.items()}


def _level(key: str, value: object, where: str) -> tuple[str, ...]:
    """A level as text; numbers such as years are allowed."""
    several = value if isinstance(value, list) else [value]
    if not several or not all(isinstance(one, (str, int)) and not isinstance(one, bool) for one in several):
        raise UndertowError(
            f"{where}: where.{key} is {reprlib.repr(value)}; it must be a level, or a list of levels any one of which will do"
        )
    return tuple(dict.fromkeys(str(one) for one in several))


def _threshold(row: Mapping[str, Any], key: str, default: float, where: str) -> float:
    if key not in row:
        return default
    given = _typed(row, key, default, where)
    try:
        number = float(given)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UndertowError(f"{where}: {key} is {reprlib.repr(given)}; it must be a finite number")
    return number


def _check_thresholds(rule: Rule, where: str) -> None:
    """Refuse thresholds that always pass or always fail."""
    if math.isinf(rule.at_most) and math.isinf(rule.at_least):
        raise UndertowError(f"{where}: sets no threshold; give at_most, at_least or both")
    if rule.at_least > rule.at_most:
        raise UndertowError(
            f"{where}: at_least {threshold(rule.at_least)} is above at_most {threshold(rule.at_most)}, so nothing can pass; "
            "fix one of them"
        )
    if rule.against and rule.of in MAGNITUDES:
        return  # a change of magnitude goes both ways
    lowest, highest = NUMBERS.get(rule.of, _ANY)
    what = f"{rule.of} lies between {threshold(lowest)} and {threshold(highest)}"
    if math.isinf(highest):
        what = f"{rule.of} is never below {threshold(lowest)}"
    if rule.at_most < lowest or rule.at_least > highest:
        raise UndertowError(f"{where}: {what}, so {rule.allowed} is something that nothing can pass; fix it")
    if math.isfinite(lowest) and rule.at_least <= lowest and rule.at_most >= highest:
        raise UndertowError(f"{where}: {what}, so {rule.allowed} is something that nothing can fail; fix it")
