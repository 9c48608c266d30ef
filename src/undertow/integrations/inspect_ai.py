"""A task of Inspect: a Python file with its scorer, and a file of prompts.

Chat models answer instruction prompts (McMilin 2024, appendix A.1), so sentences are exported in prompts A, B and C, or in the
prompts of the options. `inspect_task.txt` is the template of the Python file.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from undertow.errors import on_one_line
from undertow.integrations.export_format import ExportRequest, render
from undertow.integrations.item_codec import COLUMN, carried_texts
from undertow.types import GENERATION, GenerateQuery, Item, as_json

SUMMARY = "a task of Inspect for chat models with the prompts A, B and C"
HOLDS = (GENERATION,)
TEXTS_ONLY = False
REFUSAL = (
    "an Inspect task scores the words of an answer to a prompt; it supports spurious-correlation and task-specification; "
    "use undertow export datasets for the others"
)
TASK, DATA = "task.py", "items.jsonl"
NAMES = ("undertow_prompts",)


def write(request: ExportRequest, draft: Path, folder: Path) -> tuple[Sequence[str], Sequence[str]]:
    """Write the task, its prompts and a README."""
    lines = [as_json(_row(item, text)) for item, text in zip(request.items, carried_texts(request), strict=True)]
    (draft / DATA).write_text("\n".join([*lines, ""]), encoding="utf-8")
    code = resources.files("undertow.integrations").joinpath("inspect_task.txt").read_text(encoding="utf-8")
    (draft / TASK).write_text(code, encoding="utf-8")
    # Inspect accepts an absolute path only with the name of a task.
    steps = [shlex.join(["inspect", "eval", f"{folder / TASK}@{NAMES[0]}", "--model", "MODEL"])]
    if request.audit == "spurious-correlation":
        steps.append("undertow score logs")
    (draft / "README.md").write_text(
        render("inspect_readme.md.j2", request, steps=list(map(on_one_line, steps))), encoding="utf-8"
    )
    return NAMES, steps


def _row(item: Item, carried: str) -> dict[str, Any]:
    """A sample in Inspect's JSON format: id, input, target and metadata."""
    query = item.query
    if not isinstance(query, GenerateQuery):
        raise TypeError(f"{type(query).__name__} is not a prompt")
    factors = {name: level for name, level in item.factors.items() if name not in ("w", "w_index", "w_value")}
    words: dict[str, list[str]] = {}
    for option in query.options:
        words.setdefault(option.group, []).append(option.fills[0])
    return {
        "id": item.id,
        "input": query.prompt,
        "target": "",
        "metadata": {
            "words": words,
            "max_tokens": query.max_tokens,
            "w": item.factors["w"],
            "w_index": item.factors["w_index"],
            "sentence": " | ".join(str(level) for level in factors.values()),
            "factors": dict(item.factors),
            COLUMN: carried,
        },
    }
