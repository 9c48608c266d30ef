"""Templates of the verification as paragraphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.report.formatting import interval, number
from undertow.report.sentence_templates import text_templates
from undertow.types import format_interval, has_width


def paragraphs(template: str, **data: Any) -> dict[str, list[str]]:
    """The paragraphs of a template, each on one line, by section (`== name`); "" before the first."""
    environment = text_templates("undertow.lab.verification", "templates")
    filters: dict[str, Callable[..., Any]] = {
        "number": number,
        "interval": lambda result: interval(result.low, result.high),
        "percent": lambda value: f"{number(100 * value, 0)}%",
        "in_words": lambda result: format_interval(result.low, result.high),
        "has_width": lambda result: has_width(result.low, result.high),
    }
    environment.filters |= filters
    sections: dict[str, list[str]] = {"": []}
    for block in environment.get_template(template).render(data).split("\n\n"):
        line = " ".join(block.split())
        if line.startswith("== "):
            sections[line.removeprefix("== ")] = []
        elif line:
            sections[[*sections][-1]].append(line)
    return sections
