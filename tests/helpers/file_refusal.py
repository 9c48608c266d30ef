"""What every refusal of a user's file or choice looks like: one line, which names what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from undertow.errors import UndertowError


def refusal(read: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """The one line that refuses these arguments."""
    with pytest.raises(UndertowError) as caught:
        read(*arguments, **options)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


def assert_refused(names: tuple[object, ...], read: Callable[..., object], *arguments: Any, **options: Any) -> None:
    """The line names all of this: the file, and the key, the line or the value that is wrong."""
    message = refusal(read, *arguments, **options)
    for name in names:
        assert str(name) in message, message
