"""Jinja templates of sentences; those of findings are in `templates/findings/`, one file per package."""

from __future__ import annotations

import math
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from undertow.report.formatting import FILTERS, spaced
from undertow.types import ALPHA, ALPHA_TEXT

if TYPE_CHECKING:
    import jinja2


@cache
def sentences(name: str) -> Any:
    """Macros and texts of `templates/findings/NAME.j2` as attributes; a macro returns a sentence.

    The page escapes text of a run, not the macro.
    """
    return text_templates("undertow.report", "templates/findings").get_template(f"{name}.j2").module


def column_head(key: str) -> str:
    """The title of a column, by its group key or the name of a further number."""
    head: str = sentences("columns").heads.get(key) or spaced(key)
    return head


def template_text(name: str) -> str:
    """The text of a file of `templates/`."""
    return resources.files("undertow.report").joinpath("templates", name).read_text(encoding="utf-8")


def described(figure: str, *facts: Any) -> str:
    """The alternative text of a figure: `text` of `templates/findings/figures/FIGURE.j2`, on one line."""
    return " ".join(sentences(f"figures/{figure}").text(*facts).split())


def lines(text: str) -> list[str]:
    """The lines of a template's text, each as a note."""
    return [line for line in text.split("\n") if line]


def text_templates(package: str, folder: str = "") -> jinja2.Environment:
    """The text templates in a folder of a package, with the filters of `formatting`; nothing is escaped."""
    import jinja2

    environment = jinja2.Environment(  # noqa: S701 - plain text
        loader=jinja2.PackageLoader(package, folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.globals.update(ALPHA=ALPHA, alpha=ALPHA_TEXT)
    environment.tests.update(finite=math.isfinite, significant=lambda result: result.q < ALPHA)
    return environment
