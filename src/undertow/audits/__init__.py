"""The audits that a user can name, each a sub-package. Listing them imports none."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from undertow._plugins import plugins
from undertow.audits.base import Audit
from undertow.errors import UndertowError, closest

if TYPE_CHECKING:
    from undertow.audits.record_schema import RecordSchema

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
    return sorted({*AUDITS, *_added()})


def load(name: str) -> Audit:
    """Load an audit by name."""
    if name in AUDITS:
        module, _, class_name = AUDITS[name].partition(":")
        return create(AUDITS[name], getattr(import_module(f"{__name__}.{module}"), class_name))
    added = _added()
    if name not in added:
        raise UndertowError(f"there is no audit called {name!r}; there is {', '.join(names())}{closest(name, names())}")
    return added[name]


def schema_of(name: str) -> RecordSchema:
    """What a run of an audit holds; of an audit of this package, without loading it, and nothing of an unknown one."""
    from undertow.audits.record_schema import RecordSchema

    if name in AUDITS:
        schema: RecordSchema = import_module(f"{__name__}.{AUDITS[name].partition('.')[0]}.record_schema").SCHEMA
        return schema
    added = _added().get(name)
    return (added.record_schema if added else None) or RecordSchema()


def _added() -> dict[str, Audit]:
    """The audits of installed packages; a broken one is reported on standard error and skipped."""
    return dict(plugins(ENTRY_POINTS, create, tuple(AUDITS)))


def create(value: str, audit: object) -> Audit:
    """The one audit of a class, which `value` names in errors."""
    if not (isinstance(audit, type) and issubclass(audit, Audit)):
        raise UndertowError(f"{value}: an audit must be a subclass of undertow.audits.base.Audit")
    missing = [name for name in ("name", "summary", "Settings") if not hasattr(audit, name)]
    missing += sorted(audit.__abstractmethods__)
    if missing:
        raise UndertowError(
            f"{value}: the audit has no {', '.join(missing)}; define them, as undertow.audits.base.Audit says"
        )
    return _instance(audit)


@cache
def _instance(audit: type[Audit]) -> Audit:
    return audit()
