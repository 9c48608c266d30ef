"""Models that are made on the spot, once, in the folder `benchmarks` of the cache: a process makes each, and ends.

Knows folders and processes; knows nothing about what a model is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Any

from undertow.places import cache_folder
from undertow.types import UndertowError, digest


def made_once(
    kind: str, recipe: Mapping[str, Any], save: Callable[..., None], arguments: tuple[Any, ...], needs: str
) -> Path:
    """The folder of the model of this recipe, made if it is not there yet.

    Args:
        kind: what its name begins with.
        recipe: all that it depends on.
        save: writes it, called with a folder and the arguments.
        arguments: for `save`.
        needs: what making it takes, for the reader of an error.

    Raises:
        UndertowError: it could not be made.
    """
    folder = cache_folder() / "benchmarks" / f"{kind}-{digest(dict(recipe))[:12]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        # In a process of its own: the memory of this one is counted in that of every worker it starts.
        made = get_context("spawn").Process(target=save, args=(Path(unfinished) / "model", *arguments))
        made.start()
        made.join()
        if made.exitcode != 0:
            raise UndertowError(
                f"the model {kind} could not be made in {folder.parent}: what its process said is above; it needs {needs}"
            )
        (Path(unfinished) / "model").rename(folder)
    return folder


def made_up_words(n_letters: int) -> Iterator[str]:
    """All of so many letters and digits."""
    return map("".join, product(ascii_lowercase + digits, repeat=n_letters))
