"""What is exported, and what a format must offer. A format is one file in this folder; its name, with dashes, is what users call it.

Knows the shape of an export; knows nothing about any one format, about models, or about what answers are measured by.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from undertow.errors import on_one_line
from undertow.types import Item


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The questions of an audit, as a run would ask them.

    Attributes:
        audit: its name.
        options: of the audit, those that are not at their defaults.
        seed, limit: which of its questions these are.
        items: the questions, in the order of a run.
        design: what the measures need beside the answers.
        challenge_sha256: over the items; equal for equal questions.
        command: the command line that exports the same again.
    """

    audit: str
    options: Mapping[str, Any]
    seed: int
    limit: int
    items: Sequence[Item]
    design: Mapping[str, Any]
    challenge_sha256: str
    command: str


@dataclass(frozen=True, slots=True)
class ExportedFiles:
    """What a format says of what it wrote.

    Attributes:
        names: tasks or splits, by which the other tool calls them.
        next_steps: command lines that use the folder, in order.
    """

    names: Sequence[str]
    next_steps: Sequence[str]


class Format(Protocol):
    """One form in which questions leave.

    Attributes:
        SUMMARY: one line for `undertow export --help`.
        HOLDS: kinds of query that it can hold; see `undertow.types.kind_of`.
        REFUSAL: why it holds no others, and what to do; what is refused stands before it.
    """

    SUMMARY: str
    HOLDS: tuple[str, ...]
    REFUSAL: str

    def write(self, asked: ExportRequest, draft: Path, folder: Path) -> ExportedFiles:
        """Write into `draft`, which will lie at `folder`."""
        ...


def in_markdown(text: str) -> str:
    """A text within a line or cell of Markdown, shown as it is: it ends neither, and marks nothing."""
    line = html.escape(on_one_line(text.strip()), quote=False)
    marked = re.sub(r"([\\`*\[\]|#~]|(?<!\w)_|_(?!\w))", r"\\\1", line)
    return re.sub(r"^(\d*)(?=[-+=.)])", r"\1\\", marked)


def code(text: str) -> str:
    """The same as code, between more backticks than stand in it."""
    line = on_one_line(text)
    ticks = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    return f"{ticks}{line}{ticks}" if len(ticks) == 1 else f"{ticks} {line} {ticks}"


def named_files(options: Mapping[str, Any]) -> list[str]:
    """Files and folders that options name, alone or in a list with commas, where they exist."""
    texts = [value for value in options.values() if isinstance(value, str)]
    parts = [part.strip().removeprefix("simplified:") for text in texts for part in text.split(",")]
    return [part for part in parts if part and _exists(part)]


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):
        return False  # too long for a name: a text, such as how W goes into a sentence


@dataclass(frozen=True, slots=True)
class Exported:
    """A folder that another tool reads.

    Attributes:
        folder: where it is.
        format: the form.
        audit: whose questions it holds.
        names: tasks or splits, by which the other tool calls them.
        n_items: questions.
        next_steps: command lines that use it, in order.
    """

    folder: Path
    format: str
    audit: str
    names: Sequence[str]
    n_items: int
    next_steps: Sequence[str]

    def _repr_html_(self) -> str:
        """What a notebook shows; every text in it is shown as text."""
        rows = {
            "folder": str(self.folder),
            "format": self.format,
            "audit": self.audit,
            "named": ", ".join(self.names),
            "items": f"{self.n_items:,}",
        }
        shown = [(name, html.escape(on_one_line(text))) for name, text in rows.items()]
        cells = "".join(f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in shown)
        steps = "".join(f"<pre>{html.escape(on_one_line(step))}</pre>" for step in self.next_steps)
        return f"<table>{cells}</table>{steps}"
