"""Types of an export, and the protocol that a format module implements."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from undertow.errors import on_one_line
from undertow.report.formatting import in_markdown
from undertow.report.sentence_templates import text_templates
from undertow.types import Item, as_json

if TYPE_CHECKING:
    from undertow.audits.base import Observations


@dataclass(frozen=True, slots=True)
class Origin:
    """An export, as each of its items names it.

    Attributes:
        options: options of the audit that differ from their defaults.
        design: data for the metrics in addition to the answers.
    """

    audit: str
    options: dict[str, Any]
    seed: int
    limit: int
    challenge_sha256: str
    design: dict[str, Any]
    n_items: int


@dataclass(frozen=True, slots=True)
class ExportRequest(Origin):
    """The items of an audit, in the order of a run, and the command line that repeats the export."""

    items: Sequence[Item]
    command: str


@dataclass(frozen=True, slots=True)
class AnswerLog:
    """The contents of another tool's log, ready to be measured.

    Attributes:
        warnings: sentences that a reader needs before the findings.
        dtypes: precision of each model in reduced precision.
    """

    audit: str
    observations: Observations
    seed: int
    notes: Sequence[str]
    sha256: str
    warnings: Sequence[str] = ()
    dtypes: Mapping[str, str] = field(default_factory=dict)


class Format(Protocol):
    """An export format.

    Attributes:
        SUMMARY: one line for `undertow export --help`.
        HOLDS: supported kinds of query; see `undertow.types.query_kind`.
        TEXTS_ONLY: whether the export only holds texts, so that it may lack queries that depend on answers.
        REFUSAL: end of the error message for other kinds, with reason and remedy.
    """

    SUMMARY: str
    HOLDS: tuple[str, ...]
    TEXTS_ONLY: bool
    REFUSAL: str

    def write(self, request: ExportRequest, draft: Path, folder: Path) -> tuple[Sequence[str], Sequence[str]]:
        """Write the export into `draft`, which is moved to `folder` afterwards.

        Returns:
            Names of tasks or splits in the other tool, and command lines that use the folder, in order.
        """


def code(text: str) -> str:
    """Text as Markdown code, with more backticks than it contains."""
    line = on_one_line(text)
    ticks = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    return f"{ticks}{line}{ticks}" if len(ticks) == 1 else f"{ticks} {line} {ticks}"


def render(template: str, request: ExportRequest, **facts: Any) -> str:
    """Render a template of `templates/` for the items of a request."""
    environment = text_templates("undertow.integrations", "templates")
    environment.keep_trailing_newline = True
    environment.filters |= {"md": in_markdown, "code": code, "json": as_json}
    return environment.get_template(template).render(request=request, **facts)


def named_files(options: Mapping[str, Any]) -> list[str]:
    """Existing files and folders in options, also in comma-separated lists."""
    texts = [value for value in options.values() if isinstance(value, str)]
    parts = [part.strip().removeprefix("simplified:") for text in texts for part in text.split(",")]
    return [part for part in parts if part and os.path.exists(part)]  # noqa: PTH110 - a part may be too long for a path


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported folder, names of its tasks or splits in the other tool, and command lines that use it, in order."""

    folder: Path
    format: str
    audit: str
    names: Sequence[str]
    n_items: int
    next_steps: Sequence[str]

    def _repr_html_(self) -> str:
        """HTML for notebooks; every text is escaped."""
        rows = {
            "folder": str(self.folder),
            "format": self.format,
            "audit": self.audit,
            "named": ", ".join(self.names),
            "items": f"{self.n_items:,}",
        }
        escaped = [(name, html.escape(on_one_line(text))) for name, text in rows.items()]
        cells = "".join(f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in escaped)
        steps = "".join(f"<pre>{html.escape(on_one_line(step))}</pre>" for step in self.next_steps)
        return f"<table>{cells}</table>{steps}"
