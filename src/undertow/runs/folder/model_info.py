"""The models of a run: expand patterns of names, and read facts about models from a file."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from undertow._files import path_exists
from undertow._schemas import Schema, check
from undertow.data.text_files import first_repeat, read_toml
from undertow.errors import UndertowError

Facts: TypeAlias = Mapping[str, str | float]
"""`parameters` (a number), `objective`, `post_training` (words); `step` and `trajectory` of a checkpoint."""
_STEP = re.compile(r"(?:checkpoint|step|ckpt)[-_]?(\d+)$", re.IGNORECASE)


def expand_patterns(names: Sequence[str]) -> list[str]:
    """Names, with the folders that a pattern matches in its place, in order of training step; refuses none, and a repeated one."""
    expanded: list[str] = []
    for name in names:
        if not has_magic(name) or path_exists(Path(name)):
            expanded.append(name)
            continue
        folders = _matching(name)
        if not folders:
            raise UndertowError(f"{name}: no folder matches this pattern; check the path")
        expanded += sorted(folders, key=lambda folder: (checkpoint(folder).get("step", math.inf), folder))
    if not expanded:
        raise UndertowError("no model is named; give one with -m, for example -m smollm2")
    if (twice := first_repeat(expanded)) is not None:
        raise UndertowError(f"model {twice!r} is named twice; name each once")
    return expanded


def _matching(pattern: str) -> list[str]:
    """The folders that a pattern matches, with ~ expanded, because the shell does not expand it in quotes."""
    parts = Path(pattern).parts
    first = next(at for at, part in enumerate(parts) if has_magic(part))
    if ".." in parts[first:]:
        raise UndertowError(
            f"{pattern}: has a .. after a wildcard, which could match a folder many times; write it without"
        )
    matches = dict.fromkeys(map(Path, glob(os.path.expanduser(pattern), recursive=True)))  # noqa: PTH111, PTH207
    return [str(place) for place in matches if place.is_dir()]


def checkpoint(name: str) -> dict[str, str | float]:
    """`step` and `trajectory` (the training) of a folder such as `run/checkpoint-500`; {} for other names."""
    path = Path(name)
    match = _STEP.search(path.name)
    return {"step": float(match[1]), "trajectory": str(path.parent)} if match and path.is_dir() else {}


class _Facts(Schema):
    """Facts about a model in a file."""

    parameters: Annotated[float, Field(gt=0, le=sys.float_info.max)] = 1.0
    objective: str = ""
    post_training: str = ""


def read_model_info(path: Path | None) -> dict[str, dict[str, str | float]]:
    """Facts about models by name: `[models.NAME]` with parameters, objective and post_training. Errors name the entry."""
    if path is None:
        return {}
    table = read_toml(path)
    models: dict[str, dict[str, Any]] = table.get("models", {})
    if set(table) != {"models"} or not isinstance(models, dict):
        raise UndertowError(f"{path}: needs one table for each model, as in [models.smollm2]")
    for model, entry in models.items():
        where = f"{path}, model {model!r}"
        for name, inner in entry.items() if isinstance(entry, dict) else ():
            if isinstance(inner, dict) and name not in _Facts.model_fields:
                dotted = _dotted(f"{model}.{name}", inner)
                raise UndertowError(
                    f"{where}: {name!r} is a table; if the model is called {dotted!r}, put its name in quotes: [models.{dotted!r}]"
                )
        check(_Facts, entry, where)
    return models


def _dotted(name: str, table: Mapping[str, object]) -> str:
    """Rejoin a name that TOML split at its dots: [models.A-1.7B] is a table `7B` in a table `A-1`."""
    inner = [(key, value) for key, value in table.items() if isinstance(value, dict)]
    return _dotted(f"{name}.{inner[0][0]}", inner[0][1]) if inner else name
