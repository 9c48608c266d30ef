"""A structural causal model as a file of equations: parameters, variables, selection, pairs to compare.

alpha = 10                       `=` is a parameter: one number, which a case or an option may change
gamma = 0
G := alpha * normal()            `:=` is a variable: a number for every simulated person; each normal(), uniform() or
W := alpha / 2 * normal()        bernoulli(p) is an independent noise
S := W + G + normal() > 2 * alpha
X := W + gamma * G + normal()
Y := gamma * X + G + normal()
select S                         people with S = 1 are in the data
compare W, G; X, Y               pairs to correlate
case well specified: gamma = 1   a named set of parameters; a model without cases is a single case

The order of the lines does not matter, and `#` begins a comment.
"""

from __future__ import annotations

import graphlib
import keyword
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from undertow._files import split_lines
from undertow.causal.expressions import (
    FUNCTIONS,
    NOISES,
    Expression,
    Noise,
    evaluate,
    names,
    read_expression,
    simplify,
    subexpressions,
)
from undertow.errors import UndertowError, closest
from undertow.types import Floats

SELECT, COMPARE, CASE = "select", "compare", "case"
MAX_NAMES = 100
"""Maximum number of parameters and variables, because every variable is an array during simulation."""

_DEFINITION = re.compile(r"(\w+)\s*(:=|=(?!=))\s*(.*)")
_STATEMENT = re.compile(rf"({SELECT}|{COMPARE}|{CASE})\b\s*(.*)")
_PAIR = re.compile(r"\s*(\w+)\s*,\s*(\w+)\s*")
_SETTING = re.compile(r"\s*(\w+)\s*=(?!=)\s*(.+)")
_NOT_A_NAME = {SELECT, COMPARE, CASE, *FUNCTIONS, *NOISES}
_QUOTED_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Equation:
    """One parameter or variable, and its line in the file, from 1."""

    name: str
    expression: Expression
    line: int


@dataclass(frozen=True, slots=True)
class StructuralCausalModel:
    """A structural causal model; create it with `StructuralCausalModel.from_text`.

    Attributes:
        source: name of its text in errors.
        parameters: by name, each after those it uses.
        variables: by name, each after its causes.
        selection: the variable that is 1 for selected people.
        cases: changed parameters by name of the case; one unnamed case if the file has none.
    """

    source: str
    parameters: Mapping[str, Equation]
    variables: Mapping[str, Equation]
    selection: str
    pairs: tuple[tuple[str, str], ...]
    cases: Mapping[str, Mapping[str, float]]

    @classmethod
    def from_text(cls, text: str, source: str = "model") -> StructuralCausalModel:
        """Read a model; see the docstring of this module for the syntax. Errors call the text `source`.

        Raises:
            UndertowError: a line cannot be parsed, a name is unknown or defined twice, equations form a cycle, or selection or comparison
                is missing; the message names the place.
        """
        reading = _ModelReader(source)
        for number, line in enumerate(split_lines(text), 1):
            reading.read_line(line, number)
        return reading.model()

    def constants(self, settings: Mapping[str, float] | None = None) -> dict[str, float]:
        """The value of every parameter, with these settings instead of the file's.

        Raises:
            UndertowError: a setting is not a parameter, or a parameter is not finite.
        """
        changed = settings or {}
        for name, number in changed.items():
            if name not in self.parameters:
                raise UndertowError(f"{self.source}: there is no parameter {name!r}{closest(name, self.parameters)}")
            if not math.isfinite(number):
                raise UndertowError(f"{self.source}: {name} cannot be {number:g}; set it to a finite number")
        values: dict[str, float] = {}
        for name, equation in self.parameters.items():
            values[name] = changed[name] if name in changed else float(evaluate(equation.expression, values, _no_noise))
            if not math.isfinite(values[name]):
                raise UndertowError(f"{self.where(name)}: {name} is not a finite number; look for a division by 0")
        return values

    def where(self, name: str) -> str:
        """The place of a definition, for errors."""
        return f"{self.source}, line {(self.variables.get(name) or self.parameters[name]).line}"


def implied_graph(model: StructuralCausalModel, settings: Mapping[str, float] | None = None) -> str:
    """The causal graph that the equations imply, as `undertow graph` reads it: `G -> S; W -> S; W -> X; [S]`.

    A cause that a parameter removes, such as `gamma * G` with gamma = 0, has no arrow. Only single operations are simplified: terms that
    cancel keep their arrows.

    `settings` replace parameters of the model.

    Raises:
        UndertowError: a setting is not a parameter, or a parameter is not finite.
    """
    constants = model.constants(settings)
    causes = {
        name: [cause for cause in names(simplify(equation.expression, constants)) if cause not in constants]
        for name, equation in model.variables.items()
    }
    written = sorted(model.variables, key=lambda name: model.variables[name].line)
    arrows = [(cause, effect) for cause in written for effect in written if cause in causes[effect]]
    linked = {name for arrow in arrows for name in arrow} | {model.selection}
    alone = [name for name in written if name not in linked]
    return "; ".join([*(f"{cause} -> {effect}" for cause, effect in arrows), *alone, f"[{model.selection}]"])


class _ModelReader:
    """Parser of a model, line by line."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._parameters: dict[str, Equation] = {}
        self._variables: dict[str, Equation] = {}
        self._selection: tuple[str, int] | None = None
        self._pairs: dict[tuple[str, str], int] = {}
        self._cases: dict[str, tuple[dict[str, float], int]] = {}

    def read_line(self, line: str, number: int) -> None:
        """Parse one line of the file."""
        statement = unicodedata.normalize("NFKC", line.partition("#")[0]).strip()  # as Python does with names
        if not statement:
            return
        try:
            if definition := _DEFINITION.fullmatch(statement):
                name, sign, text = definition.groups()
                self._define(name, sign, text, number)
            elif match := _STATEMENT.fullmatch(statement):
                word, rest = match.groups()
                {SELECT: self._select, COMPARE: self._compare, CASE: self._case}[word](rest, number)
            else:
                cut = statement if len(statement) <= _QUOTED_LENGTH else f"{statement[: _QUOTED_LENGTH - 3]}..."
                raise UndertowError(
                    f"{cut!r} is not a statement: name = number, name := expression, select S, compare X, Y or case name: "
                    "parameter = number"
                )
        except UndertowError as error:
            raise UndertowError(f"{self._source}, line {number}: {error}") from error

    def _define(self, name: str, sign: str, text: str, number: int) -> None:
        if name in _NOT_A_NAME or keyword.iskeyword(name) or not name.isidentifier():
            raise UndertowError(f"{name!r} cannot be the name of a parameter or variable; choose another one")
        earlier = self._parameters.get(name) or self._variables.get(name)
        if earlier:
            raise UndertowError(f"{name} is already defined in line {earlier.line}; remove one of the two")
        if len(self._parameters) + len(self._variables) >= MAX_NAMES:
            raise UndertowError(f"at most {MAX_NAMES} parameters and variables are read; leave some out")
        equation = Equation(name, read_expression(text), number)
        if sign == "=":
            if any(isinstance(part, Noise) for part in subexpressions(equation.expression)):
                raise UndertowError(f"{name} is a parameter, one number without noise; write {name} := {text}")
            self._parameters[name] = equation
        else:
            self._variables[name] = equation

    def _select(self, rest: str, number: int) -> None:
        if not re.fullmatch(r"\w+", rest):
            raise UndertowError("select takes the name of one variable, as in select S")
        if self._selection:
            raise UndertowError(f"line {self._selection[1]} selects already; make one variable of the two")
        self._selection = rest, number

    def _compare(self, rest: str, number: int) -> None:
        for statement in rest.split(";"):
            pair = _PAIR.fullmatch(statement)
            if pair is None:
                raise UndertowError(f"{statement.strip()!r} is not a pair; write compare W, G; X, Y")
            if pair[1] == pair[2]:
                raise UndertowError(f"{pair[1]} is compared with itself; name two variables")
            self._pairs.setdefault((pair[1], pair[2]), number)

    def _case(self, rest: str, number: int) -> None:
        name, colon, settings = rest.partition(":")
        name = " ".join(name.split())
        if not (name and colon):
            raise UndertowError("a case is written as case name: parameter = number, parameter = number")
        if name in self._cases:
            raise UndertowError(f"case {name!r} is in line {self._cases[name][1]} already; choose another name")
        changed: dict[str, float] = {}
        for statement in settings.split(","):
            setting = _SETTING.fullmatch(statement)
            if setting is None:
                raise UndertowError(f"{statement.strip()!r} sets no parameter; write case {name}: parameter = number")
            if setting[1] in changed:
                raise UndertowError(f"case {name} sets {setting[1]} twice; leave one of the two out")
            expression = read_expression(setting[2])
            if names(expression) or any(isinstance(part, Noise) for part in subexpressions(expression)):
                raise UndertowError(f"{setting[2].strip()!r} is not a number; a case sets parameters to numbers")
            changed[setting[1]] = float(evaluate(expression, {}, _no_noise))
        self._cases[name] = changed, number

    def model(self) -> StructuralCausalModel:
        """The model, checked."""
        for equation in self._parameters.values():
            self._check_names(
                equation, self._parameters, "a parameter is made of parameters alone; := makes it a variable"
            )
        for equation in self._variables.values():
            self._check_names(equation, self._parameters | self._variables, "")
        if self._selection is None:
            raise UndertowError(f"{self._source}: there is no selection; add a line select S")
        if not self._pairs:
            raise UndertowError(f"{self._source}: there is no comparison; add a line compare X, Y")
        self._check_variable(*self._selection)
        for pair, number in self._pairs.items():
            for name in pair:
                self._check_variable(name, number)
        model = StructuralCausalModel(
            source=self._source,
            parameters=self._sort(self._parameters),
            variables=self._sort(self._variables),
            selection=self._selection[0],
            pairs=tuple(self._pairs),
            cases={name: changed for name, (changed, _) in self._cases.items()} or {"": {}},
        )
        model.constants()
        for changed, number in self._cases.values():
            for name in changed:
                if name not in self._parameters:
                    self._fail(number, f"there is no parameter {name!r} to set{closest(name, self._parameters)}")
            try:
                model.constants(changed)
            except UndertowError as error:
                raise UndertowError(f"{self._source}, line {number}: in this case, {error}") from error
        return model

    def _check_names(self, equation: Equation, known: Mapping[str, Equation], advice: str) -> None:
        for name in names(equation.expression):
            if name in known:
                continue
            of_others = f"{name} is a variable, and {advice}" if name in self._variables else ""
            unknown = f"nothing defines {name!r}{closest(name, known)}; add a line {name} = or {name} :="
            self._fail(equation.line, of_others or unknown)

    def _check_variable(self, name: str, number: int) -> None:
        if name in self._parameters:
            self._fail(number, f"{name} is a parameter and the same for everyone; name a variable, which := defines")
        if name not in self._variables:
            self._fail(number, f"there is no variable {name!r}{closest(name, self._variables)}; define it with :=")

    def _sort(self, equations: Mapping[str, Equation]) -> dict[str, Equation]:
        uses = {
            name: [one for one in names(equation.expression) if one in equations]
            for name, equation in equations.items()
        }
        try:
            return {name: equations[name] for name in graphlib.TopologicalSorter(uses).static_order()}
        except graphlib.CycleError as error:
            circle: list[str] = error.args[1]
            self._fail(
                equations[circle[-1]].line,
                f"{' -> '.join(circle)} is a circle, and a cause cannot come after its effect; take one of these names out of an equation",
            )

    def _fail(self, number: int, message: str) -> NoReturn:
        raise UndertowError(f"{self._source}, line {number}: {message}")


def _no_noise(noise: Noise) -> Floats:
    raise AssertionError(f"a {noise.kind} noise is refused where parameters are read")
