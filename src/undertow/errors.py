"""Errors that a user can fix. Each message is one sentence: what failed, where, and how to fix it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
else:
    # numpy takes longer to load than everything else that `undertow --help` needs.
    Floats: TypeAlias = Any


MAX_MESSAGE_CHARS = 600
"""Letters of an error's message, at most."""


class UndertowError(Exception):
    r"""Something a user can fix. The message is one sentence: what, where, how to fix it.

    What it quotes may be anything that a file holds. So the message is kept on one line, signs that cannot be shown are written
    out (`\u202e`), and of one that is too long the middle is left out: where stands at its beginning, how to fix it at its end.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(_shortened(on_one_line(message.strip())))


_Parameters = ParamSpec("_Parameters")
_Returned = TypeVar("_Returned")


def short_traceback(function: Callable[_Parameters, _Returned]) -> Callable[_Parameters, _Returned]:
    """A function of the public API, whose `UndertowError`s show the caller's line and no frame or cause inside Undertow.

    The error of a library that was the cause stays in `__context__`.
    """

    @wraps(function)
    def public(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Returned:
        try:
            return function(*args, **kwargs)
        except UndertowError as error:
            raise error.with_traceback(None) from None

    return public


_JOINING = "\u200c\u200d\u200e\u200f"
"""Signs that cannot be seen, and that words of many languages and emoji are written with."""


def on_one_line(text: str) -> str:
    r"""A text that begins no line and turns none around: line ends become spaces, signs that cannot be shown are written out."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign in _JOINING else " " if sign.isspace() else ascii(sign)[1:-1]
        for sign in text
    )


def _shortened(text: str) -> str:
    half = (MAX_MESSAGE_CHARS - len(" ... ")) // 2
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[:half]} ... {text[-half:]}"
