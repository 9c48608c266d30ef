"""Errors that a user can fix. Each message is one sentence: what failed, where, and how to fix it."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable
from functools import wraps
from typing import ParamSpec, TypeVar

MAX_MESSAGE_CHARS = 600
"""Length of an error message."""
MAX_MISSPELT = 100
"""Longer words are not compared, since comparing takes quadratic time."""

LOGGER = logging.getLogger("undertow")
"""Logs the start of each phase (INFO); silent without a handler."""
LOGGER.addHandler(logging.NullHandler())


class UndertowError(Exception):
    r"""An error that the user can fix. The message is one sentence: what failed, where, and how to fix it.

    A message may quote any file content, so it is put on one line, and unprintable characters are escaped (`\u202e`). A long message
    loses its middle, because the place is at the beginning and the fix at the end.
    """

    def __init__(self, message: str = "") -> None:
        text = on_one_line(message.strip())
        half = (MAX_MESSAGE_CHARS - len(" ... ")) // 2
        super().__init__(text if len(text) <= MAX_MESSAGE_CHARS else f"{text[:half]} ... {text[-half:]}")


_Parameters = ParamSpec("_Parameters")
_Returned = TypeVar("_Returned")


def short_traceback(function: Callable[_Parameters, _Returned]) -> Callable[_Parameters, _Returned]:
    """Decorate a public function: its `UndertowError`s show the caller's line and no frame inside Undertow.

    The original error stays in `__context__`.
    """

    @wraps(function)
    def public(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Returned:
        try:
            return function(*args, **kwargs)
        except UndertowError as error:
            raise error.with_traceback(None) from None

    return public


_JOINERS = "\u200c\u200d\u200e\u200f"
"""Invisible characters that many languages and emoji need."""


def on_one_line(text: str) -> str:
    r"""Replace white space by spaces and escape unprintable characters, such as line ends and direction marks."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign in _JOINERS else " " if sign.isspace() else ascii(sign)[1:-1]
        for sign in text
    )


def counted(count: int, noun: str) -> str:
    """A number of things in words: 1 pair, 1,234 pairs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shorten_list(names: Iterable[str], most: int) -> str:
    """The first names of a list, and how many more there are; "none" if it is empty."""
    texts = [name or "''" for name in names]
    return (", ".join(texts[:most]) or "none") + (f" and {len(texts) - most} more" if len(texts) > most else "")


def closest(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name, to append to a sentence; "" if no name is similar."""
    if len(word) > MAX_MISSPELT:
        return ""
    by_folded = {name.casefold(): name for name in known if len(name) <= MAX_MISSPELT}
    near = difflib.get_close_matches(word.casefold(), by_folded, n=1)
    return f" (did you mean {by_folded[near[0]]!r}?)" if near else ""
