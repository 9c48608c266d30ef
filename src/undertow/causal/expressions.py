"""The right side of an equation: an expression tree that is parsed from text and evaluated on arrays, never run as code.

It has numbers, names, noises and functions of a fixed list.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from undertow.errors import UndertowError, closest
from undertow.types import Floats

MAX_LENGTH = 1000
"""Characters of one expression."""
MAX_DEPTH = 100
"""Maximum nesting of an expression; each level is an array during evaluation."""
_QUOTED_LENGTH = 40

Values: TypeAlias = "Floats | float"


@dataclass(frozen=True, slots=True)
class Number:
    """A number."""

    value: float


@dataclass(frozen=True, slots=True)
class Name:
    """A parameter or a variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Noise:
    """An independent noise, of a kind of `NOISES`; its place in the expression selects its random stream."""

    kind: str
    place: int
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Application:
    """A function or an operator, a key of `OPERATORS` or `FUNCTIONS`, of its arguments."""

    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = Number | Name | Noise | Application
Draw: TypeAlias = Callable[[Noise], Floats]
"""Maps a noise to its standard draws [draw]."""


def _as_number(test: Callable[..., Any]) -> Callable[..., Any]:
    """A comparison that returns 1 or 0 instead of a boolean."""
    return lambda *values: np.asarray(test(*values), dtype=np.float64)


def _variadic(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: functools.reduce(function, values)


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "**": np.power,
    "minus": np.negative,
    "<": _as_number(np.less),
    "<=": _as_number(np.less_equal),
    ">": _as_number(np.greater),
    ">=": _as_number(np.greater_equal),
    "==": _as_number(np.equal),
    "!=": _as_number(np.not_equal),
    "and": _as_number(np.logical_and),
    "or": _as_number(np.logical_or),
    "not": _as_number(np.logical_not),
}

FUNCTIONS: Mapping[str, tuple[Callable[..., Any], int, int]] = {
    "exp": (np.exp, 1, 1),
    "log": (np.log, 1, 1),
    "sqrt": (np.sqrt, 1, 1),
    "abs": (np.abs, 1, 1),
    "sigmoid": (lambda x: 0.5 + 0.5 * np.tanh(np.divide(x, 2)), 1, 1),  # exp(-x) overflows for large negative x
    "where": (lambda condition, one, other: np.where(np.not_equal(condition, 0), one, other), 3, 3),
    "min": (_variadic(np.minimum), 2, 20),
    "max": (_variadic(np.maximum), 2, 20),
}
"""Functions of equations, with their minimum and maximum number of arguments."""

NOISES: Mapping[str, tuple[int, ...]] = {"normal": (0, 2), "uniform": (0, 2), "bernoulli": (1,)}
"""Kinds of noise, with their possible numbers of arguments."""

_NODES: Mapping[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
    ast.USub: "minus",
    ast.Not: "not",
    ast.And: "and",
    ast.Or: "or",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}

_SYNTAX = f"there are + - * / **, comparisons, and, or, not, the noises {', '.join(NOISES)} and the functions {', '.join(FUNCTIONS)}"
_ADVICE: Mapping[type[ast.AST], str] = {
    ast.BitXor: "write ** for a power",
    ast.BitAnd: "write `and`",
    ast.BitOr: "write `or`",
    ast.Invert: "write `not`",
    ast.IfExp: "write where(condition, this, that)",
    ast.NamedExpr: "write one equation on a line",
    ast.Constant: "write a number, 1 for true and 0 for false",
}


def read_expression(text: str) -> Expression:
    """Read an expression.

    Raises:
        UndertowError: the text is not an expression, or has something that equations do not allow; without its place.
    """
    if len(text) > MAX_LENGTH:
        raise UndertowError(f"an expression of {len(text):,} characters is too long; divide it into several variables")
    if not text.strip():
        raise UndertowError("an expression is missing; write what the name on the left is, as in 2 * W + normal()")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # text that Python parses with a warning (`1and 2`) is a mistake
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UndertowError(f"{_quote(text)} is not an expression; write one as in 2 * W + normal()") from error
    return _Parser(text.strip()).parse(tree, 0)


class _Parser:
    """Converts Python's syntax tree of one expression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._places = itertools.count()

    def parse(self, node: ast.expr, depth: int) -> Expression:  # noqa: PLR0911 - a kind of node, a return
        if depth > MAX_DEPTH:
            raise UndertowError(f"{_quote(self._text)} is too deep; divide it into several variables")
        inner = depth + 1
        match node:
            case ast.Constant(value=value) if isinstance(value, int | float) and not isinstance(value, bool):
                try:
                    number = float(value)
                except OverflowError:
                    number = math.inf
                if not math.isfinite(number):
                    raise UndertowError(f"{self._source(node)} is too large a number; the largest is about 1e308")
                return Number(number)
            case ast.Name(id=name):
                if name in FUNCTIONS or name in NOISES:
                    raise UndertowError(f"{name!r} is called with brackets behind it: write {name}(...)")
                return Name(name)
            case ast.Call():
                return self._call(node, inner)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.parse(operand, inner)
            case ast.UnaryOp(op=operator, operand=operand):
                return Application(self._operator(operator, node), (self.parse(operand, inner),))
            case ast.BinOp(left=left, op=operator, right=right):
                function = self._operator(operator, node)
                return Application(function, (self.parse(left, inner), self.parse(right, inner)))
            case ast.BoolOp(op=operator, values=values):
                return self._chain(self._operator(operator, node), [self.parse(one, inner) for one in values])
            case ast.Compare(left=left, ops=operators, comparators=others):
                # `a < b < c` is `a < b and b < c`; a noise `b` is the same noise in both, because it has the same place.
                terms = itertools.pairwise([self.parse(one, inner) for one in (left, *others)])
                tests = zip(operators, terms, strict=True)
                return self._chain("and", [Application(self._operator(test, node), pair) for test, pair in tests])
        raise self._unsupported(node)

    def _operator(self, operator: ast.AST, node: ast.expr) -> str:
        if type(operator) not in _NODES:
            raise self._unsupported(node, operator)
        return _NODES[type(operator)]

    def _chain(self, function: str, parts: Sequence[Expression]) -> Expression:
        return functools.reduce(lambda one, other: Application(function, (one, other)), parts)

    def _call(self, node: ast.Call, inner: int) -> Expression:
        if not isinstance(node.func, ast.Name):
            raise self._unsupported(node)
        name = node.func.id
        if node.keywords:
            raise UndertowError(f"{self._source(node)}: arguments have no names here; write them in their order")
        if name in NOISES:
            place = next(self._places)
            given = tuple(self.parse(one, inner) for one in node.args)
            if len(given) not in NOISES[name]:
                raise UndertowError(
                    f"{self._source(node)}: {name} takes {' or '.join(map(str, NOISES[name]))} arguments"
                )
            return Noise(name, place, given)
        if name not in FUNCTIONS:
            raise UndertowError(f"{name!r} is not a function here{closest(name, [*NOISES, *FUNCTIONS])}; {_SYNTAX}")
        _, least, most = FUNCTIONS[name]
        given = tuple(self.parse(one, inner) for one in node.args)
        if not least <= len(given) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise UndertowError(f"{self._source(node)}: {name} takes {wanted} argument{'s' if most > 1 else ''}")
        return Application(name, given)

    def _unsupported(self, node: ast.expr, part: ast.AST | None = None) -> UndertowError:
        return UndertowError(f"{self._source(node)} is not for equations; {_ADVICE.get(type(part or node), _SYNTAX)}")

    def _source(self, node: ast.expr) -> str:
        return _quote(ast.get_source_segment(self._text, node) or self._text)


def evaluate(expression: Expression, values: Mapping[str, Values], draw: Draw) -> Values:
    """Evaluate an expression for values by name, each a number or an array [draw].

    Undefined values are NaN or infinite, without a warning.

    Raises:
        UndertowError: in some draw, a probability is not within 0 and 1, a standard deviation is negative, or the ends of a range
            are reversed.
    """
    with np.errstate(all="ignore"):
        return _evaluate(expression, values, draw)


def _evaluate(expression: Expression, values: Mapping[str, Values], draw: Draw) -> Values:
    if isinstance(expression, Number):
        return expression.value
    if isinstance(expression, Name):
        return values[expression.name]
    arguments = [_evaluate(one, values, draw) for one in expression.arguments]
    if isinstance(expression, Noise):
        return _scale_draws(expression.kind, draw(expression), arguments)
    result: Values = _function(expression.function)(*arguments)
    return result


def _function(name: str) -> Callable[..., Any]:
    return OPERATORS[name] if name in OPERATORS else FUNCTIONS[name][0]


def _scale_draws(kind: str, standard: Floats, arguments: list[Values]) -> Values:
    """Transform standard draws [draw] to a distribution."""
    if kind == "bernoulli":
        (probability,) = arguments
        if not np.all((np.asarray(probability) >= 0) & (np.asarray(probability) <= 1)):
            raise UndertowError("bernoulli takes a probability, within 0 and 1; sigmoid(...) makes one of any number")
        return np.asarray(standard < probability, dtype=np.float64)
    if not arguments:
        return standard
    first, second = arguments
    if kind == "normal":
        if np.any(np.asarray(second) < 0):
            raise UndertowError("normal takes a mean and a standard deviation of 0 or more")
        return first + second * standard
    if np.any(np.asarray(second) < np.asarray(first)):
        raise UndertowError("uniform takes its lower end first, as in uniform(1, 3)")
    return first + (second - first) * standard


def standard_draws(noise: Noise, generator: np.random.Generator, n_draws: int) -> Floats:
    """The next standard draws [draw] of a noise: standard normal, or uniform from 0 to 1."""
    return generator.standard_normal(n_draws) if noise.kind == "normal" else generator.random(n_draws)


def subexpressions(expression: Expression) -> Iterator[Expression]:
    """An expression and all its parts, in the order of the text."""
    yield expression
    if isinstance(expression, Noise | Application):
        for one in expression.arguments:
            yield from subexpressions(one)


def names(expression: Expression) -> tuple[str, ...]:
    """The names that an expression has, in the order of their first use."""
    return tuple(dict.fromkeys(part.name for part in subexpressions(expression) if isinstance(part, Name)))


def simplify(  # noqa: PLR0911 - a rule, a return
    expression: Expression, constants: Mapping[str, float]
) -> Expression:
    """The expression without parts that these constants remove, such as `0 * G`.

    It simplifies single operations only; terms that cancel, as in `G - G`, remain.
    """
    if isinstance(expression, Number):
        return expression
    if isinstance(expression, Name):
        return Number(constants[expression.name]) if expression.name in constants else expression
    arguments = tuple(simplify(one, constants) for one in expression.arguments)
    if isinstance(expression, Noise):
        return Noise(expression.kind, expression.place, arguments)
    function, known = expression.function, [one.value if isinstance(one, Number) else None for one in arguments]
    # One argument may determine the result, such as 0 times anything.
    if function == "where" and known[0] is not None:
        return arguments[1] if known[0] else arguments[2]
    if (function in ("*", "and") and 0 in known) or (function == "/" and known[0] == 0):
        return Number(0.0)
    if (function == "or" and any(known)) or (function == "**" and known[1] == 0):
        return Number(1.0)
    numbers = [value for value in known if value is not None]
    if len(numbers) == len(known):
        with np.errstate(all="ignore"):
            return Number(float(_function(function)(*numbers)))
    return Application(function, arguments)


def _quote(text: str) -> str:
    words = " ".join(text.split())
    return repr(words if len(words) <= _QUOTED_LENGTH else f"{words[: _QUOTED_LENGTH - 3]}...")
