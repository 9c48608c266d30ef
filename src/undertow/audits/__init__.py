"""The audits that a user can name, each a sub-package. Listing them imports none."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from undertow.audits.base import Audit
from undertow.data.text_files import closest
from undertow.errors import UndertowError

ENTRY_POINTS = "undertow.audits"
AUDITS = {
    "bias-diagnosis": "bias_in_text.audit:BiasDiagnosis",
    "bias-extraction": "bias_in_text.audit:BiasExtraction",
    "bias-identification": "bias_in_text.audit:BiasIdentification",
    "bias-rephrasing": "bias_in_text.audit:BiasRephrasing",
    "occupation-checklist": "occupation_checklist.audit:OccupationChecklist",
    "spurious-correlation": "spurious_correlation.audit:SpuriousCorrelation",
    "task-specification": "task_specification.audit:TaskSpecification",
}
"""The audits of the package: name, module and class."""


def names() -> list[str]:
    """Names of the audits of this package and of installed packages (by entry point)."""
    return sorted({*AUDITS, *(entry.name for entry in entry_points(group=ENTRY_POINTS))})


def load(name: str) -> Audit:
    """Load an audit by name."""
    if name in AUDITS:
        return _create(f"{__name__}.{AUDITS[name]}")
    if name not in names():
        raise UndertowError(f"there is no audit called {name!r}; there is {', '.join(names())}{closest(name, names())}")
    (entry,) = entry_points(group=ENTRY_POINTS, name=name)
    return _create(entry.value)


@cache
def _create(value: str) -> Audit:
    """The audit of a class, named as entry points name it."""
    audit = EntryPoint(name="", value=value, group=ENTRY_POINTS).load()
    if not (isinstance(audit, type) and issubclass(audit, Audit)):
        raise UndertowError(f"{value}: an audit must be a subclass of undertow.audits.base.Audit")
    missing = ", ".join(sorted(audit.__abstractmethods__))
    if missing:
        raise UndertowError(f"{value}: the audit has no {missing}; define them, as undertow.audits.base.Audit says")
    return audit()
