"""Rules: thresholds on the results of a run, read from a TOML file and checked against a schema."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from undertow._files import sha256_of
from undertow._schemas import Schema, check
from undertow.data.text_files import read_toml
from undertow.errors import UndertowError

SCHEMA = 1
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
"""Numbers of every result with their ranges; any other name is one of the extras."""


def _name(text: object) -> object:
    if isinstance(text, str) and not (text.strip() and text.isprintable()):
        raise ValueError("must be text on one line that can be shown, and not empty")
    return text


def _levels(value: object) -> object:
    """A level, or a list of levels, as texts; numbers such as years are allowed."""
    several = value if isinstance(value, list) else [value]
    if not several or not all(isinstance(one, (str, int)) and not isinstance(one, bool) for one in several):
        raise ValueError("must be a level, or a list of levels any one of which will do")
    return tuple(dict.fromkeys(map(str, several)))


_Name = Annotated[str, BeforeValidator(_name)]
_Text = Annotated[str, Field(min_length=1)]
_Threshold = Annotated[float, Field(allow_inf_nan=False)]


class Rule(Schema):
    """A condition on every result that it matches.

    Attributes:
        where: required levels of a result's group, any of those listed for each key.
        of: the number to judge: one of `NUMBERS`, or the name of an extra.
        at_most: the largest number that passes; infinite if unset.
        at_least: the smallest number that passes; minus infinite if unset.
        against: `BASELINE` to judge the change against a baseline run; "" for the result itself.
        audit: audit of the runs that it applies to; "" for any.
        optional: whether it may match no result.
        allow_missing: whether a missing number passes.
        why: purpose of the rule, printed if it fails.
    """

    name: _Name
    measure: _Text
    where: dict[str, Annotated[tuple[str, ...], BeforeValidator(_levels)]] = Field(default_factory=dict)
    of: _Text = VALUE
    at_most: _Threshold = math.inf
    at_least: _Threshold = -math.inf
    against: Literal["", "baseline"] = ""
    audit: str = ""
    optional: bool = False
    allow_missing: bool = False
    why: str = ""

    def accepts(self, number: float) -> bool:
        """Whether a number passes; the thresholds pass, NaN does not."""
        return self.at_least <= number <= self.at_most

    @property
    def allowed(self) -> str:
        """The thresholds in words."""
        if math.isinf(self.at_least):
            return f"at most {self.at_most:.15g}"
        if math.isinf(self.at_most):
            return f"at least {self.at_least:.15g}"
        return f"{self.at_least:.15g} to {self.at_most:.15g}"

    @model_validator(mode="after")
    def _decides(self) -> Rule:
        """Refuse thresholds that always pass or always fail."""
        if math.isinf(self.at_most) and math.isinf(self.at_least):
            raise ValueError("sets no threshold; give at_most, at_least or both")
        if self.at_least > self.at_most:
            raise ValueError(
                f"at_least {self.at_least:.15g} is above at_most {self.at_most:.15g}, so nothing can pass; fix one of them"
            )
        if self.against and self.of in MAGNITUDES:
            return self  # a change of magnitude goes both ways
        lowest, highest = NUMBERS.get(self.of, _ANY)
        fails = self.at_most < lowest or self.at_least > highest
        if fails or (math.isfinite(lowest) and self.at_least <= lowest and self.at_most >= highest):
            raise ValueError(
                f"{self.of} lies between {lowest:g} and {highest:g}, so {self.allowed} can never "
                f"{'pass' if fails else 'fail'}; fix it"
            )
        return self


class _File(Schema):
    """A file of rules, whose rules are checked one by one."""

    description: str = ""
    rule: list[dict[str, Any]] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Rules:
    """A file of rules."""

    path: Path
    rules: tuple[Rule, ...]
    description: str
    sha256: str

    def where(self, rule: Rule) -> str:
        """Location of the rule, for messages."""
        return f"{self.path}, rule {self.rules.index(rule) + 1} ({rule.name!r})"


def read_rules(path: Path) -> Rules:
    """The rules of a TOML file; errors name file, rule and key."""
    table = read_toml(path)
    if table.pop("schema", SCHEMA) != SCHEMA:
        raise UndertowError(f"{path}: was written for another Undertow; write schema = {SCHEMA}, or leave it out")
    file = check(_File, table, str(path))
    if not file.rule:
        raise UndertowError(f"{path}: has no rule; begin each rule with [[rule]]")
    rules: dict[str, Rule] = {}
    for number, row in enumerate(file.rule, 1):
        named = f" ({row['name']!r})" if isinstance(row.get("name"), str) and row["name"] else ""
        where = f"{path}, rule {number}{named}"
        rule = check(Rule, row, where)
        if rule.name in rules:
            raise UndertowError(f"{where}: has the name of rule {[*rules].index(rule.name) + 1}; give each its own")
        rules[rule.name] = rule
    return Rules(path, tuple(rules.values()), file.description, sha256_of(path))
