"""The sentences of findings: Jinja templates under `templates/findings/`, one file per room."""

from __future__ import annotations

import math
from functools import cache
from importlib import resources
from typing import Any

from undertow.report.formatting import FILTERS

ALPHA = 0.05
"""False discovery rate below which a result is significant."""


@cache
def sentences(name: str) -> Any:
    """The macros and texts of `templates/findings/NAME.j2`, as attributes; a macro returns a sentence.

    Text of a run is not escaped here, but where a page prints it.
    """
    import jinja2

    folder = resources.files("undertow.report").joinpath("templates", "findings")
    environment = jinja2.Environment(  # noqa: S701 - plain text
        loader=jinja2.FunctionLoader(lambda file: folder.joinpath(file).read_text(encoding="utf-8")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.tests.update(finite=math.isfinite, significant=lambda result: result.q < ALPHA)
    return environment.get_template(f"{name}.j2").module
