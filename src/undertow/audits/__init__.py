"""One file, one audit that a user can name. Listing the audits imports none of them."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import cast

from undertow.audits.base import Audit
from undertow.data.text_files import closest
from undertow.errors import UndertowError

ENTRY_POINTS = "undertow.audits"


def names() -> list[str]:
    """Names of the audits of this package and of installed packages (by entry point)."""
    return sorted({*AUDITS, *(entry.name for entry in entry_points(group=ENTRY_POINTS))})


AUDITS = {
    "bias-diagnosis": "bias_in_text.diagnosis",
    "bias-extraction": "bias_in_text.extraction",
    "bias-identification": "bias_in_text.identification",
    "bias-rephrasing": "bias_in_text.rephrasing",
    "occupation-checklist": "occupation_checklist.audit",
    "spurious-correlation": "spurious_correlation.audit",
    "task-specification": "task_specification.audit",
}
"""The audits of the package: name and module."""


def load(name: str) -> Audit:
    """Load an audit by name.

    Raises:
        UndertowError: there is no such audit.
    """
    if name in AUDITS:
        return cast(Audit, importlib.import_module(f"{__name__}.{AUDITS[name]}"))
    if name not in names():
        raise UndertowError(f"there is no audit called {name!r}; there is {', '.join(names())}{closest(name, names())}")
    (entry,) = entry_points(group=ENTRY_POINTS, name=name)
    return cast(Audit, entry.load())
