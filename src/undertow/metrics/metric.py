"""Metric objects: what each number of a run means. Results, pages, tables, comparisons and exports read them by name.

A package adds a metric of its own with the decorator and an entry point of the group `undertow.metrics`:

    @metric("spread", title="Spread", meaning="largest less smallest mean", unit="percentage points", audits=["spurious-correlation"])
    def spread(frame, design):
        for model, rows in frame.groupby("model"):
            yield Result("spread", {"model": model}, value=...)
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from undertow._folders import notify
from undertow._plugins import plugins
from undertow.errors import UndertowError, on_one_line
from undertow.types import ALPHA_TEXT

if TYPE_CHECKING:
    import pandas as pd

    from undertow.types import Result

ENTRY_POINTS = "undertow.metrics"
HIGHER, LOWER, NEITHER = "higher is better", "lower is better", ""
OVER_PROMPTS = "_over_prompts"
"""End of the name of a metric of masses averaged over all prompts."""

Compute: TypeAlias = "Callable[[pd.DataFrame, Mapping[str, Any]], Iterable[Result]]"
"""Results from the observations of a run and its design."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a run reports.

    Attributes:
        name: in results.csv, gates and exports.
        title: for a person, for example "Slope".
        unit: of its values; "" where each result has its own (a slope has that of its covariate).
        null_value: the value that no bias would give; NaN where there is none, or where each result has its own.
        direction: `HIGHER`, `LOWER` or `NEITHER`.
        meaning: completes "TITLE: ..." in a glossary.
        citation: the paper that defines it; "" where none does.
        audits: names of the audits that it is added to, of a metric from another package.
        compute: computes it, of a metric from another package; None where an audit does.
    """

    name: str
    title: str
    unit: str = ""
    null_value: float = math.nan
    direction: str = NEITHER
    meaning: str = ""
    citation: str = ""
    audits: tuple[str, ...] = ()
    compute: Compute | None = None


def read_catalog(path: Path) -> tuple[dict[str, Metric], dict[str, str]]:
    """The metrics of a TOML file by name, and what the further columns of their results mean; `{alpha}` stands for `ALPHA`."""
    given = tomllib.loads(path.read_text(encoding="utf-8").replace("{alpha}", ALPHA_TEXT))
    for one in given["metrics"]:
        if one.get("direction", NEITHER) not in (HIGHER, LOWER, NEITHER):
            raise ValueError(f"{path}: unknown direction of {one['name']}")
    return {one["name"]: Metric(**one) for one in given["metrics"]}, given["columns"]


METRICS, COLUMNS = read_catalog(Path(__file__).with_name("catalog.toml"))
"""The metrics of the package by name; meanings of group keys and of further numbers (`Result.extras`), by name."""


def metric(  # noqa: PLR0913 - the fields of a Metric
    name: str,
    *,
    title: str,
    meaning: str,
    audits: Iterable[str],
    unit: str = "",
    null_value: float = math.nan,
    direction: str = NEITHER,
    citation: str = "",
) -> Callable[[Compute], Metric]:
    """Make a function a metric of these audits; name it in an entry point of the group `undertow.metrics`."""

    def made(compute: Compute) -> Metric:
        return Metric(name, title, unit, null_value, direction, meaning, citation, tuple(audits), compute)

    return made


def added_metrics() -> list[Metric]:
    """Metrics of installed packages; one that cannot be used is named on standard error and left out."""
    return [one for _, one in plugins(ENTRY_POINTS, _checked)]


def _checked(entry: EntryPoint, one: object) -> Metric:
    if not isinstance(one, Metric) or one.compute is None:
        raise UndertowError(
            f"{entry.value} is not a metric; put the decorator undertow.metrics.metric.metric before the function"
        )
    return one


def compute_added(audit: str, frame: pd.DataFrame, design: Mapping[str, Any]) -> list[Result]:
    """Results of the metrics that installed packages add to an audit, with the unit and null value of their metric.

    Args:
        audit: name of the audit.
        frame: observations of the run.
        design: its design.
    """
    results = []
    for one in added_metrics():
        if audit in one.audits and one.compute is not None:
            for result in _computed(one, frame, design):
                null = one.null_value if math.isnan(result.null_value) else result.null_value
                results.append(replace(result, measure=one.name, unit=result.unit or one.unit, null_value=null))
    return results


def _computed(one: Metric, frame: pd.DataFrame, design: Mapping[str, Any]) -> list[Result]:
    """The results of a metric of another package; none, and a line on standard error, where it fails."""
    assert one.compute is not None
    try:
        return list(one.compute(frame, design))
    except Exception as error:  # noqa: BLE001 - code of another package, which may raise anything
        notify(
            f"the metric {one.name} of another package is left out: it failed ({type(error).__name__}: {on_one_line(str(error))})"
        )
        return []


def get_metric(name: str) -> Metric:
    """The metric of this name; of masses over all prompts, that of one prompt with "over prompts" added.

    A name that neither the package nor an installed one has a metric for becomes its own title and has no meaning.
    """
    if name in METRICS:
        return METRICS[name]
    if name.endswith(OVER_PROMPTS) and name.removesuffix(OVER_PROMPTS) in METRICS:
        one = METRICS[name.removesuffix(OVER_PROMPTS)]
        return replace(
            one,
            name=name,
            title=f"{one.title} over prompts",
            meaning=f"{one.meaning}, for masses averaged over all prompts; of several prompts this decides what is claimed",
        )
    added = {one.name: one for one in added_metrics()}
    return added.get(name) or Metric(name, name.replace("_", " ").capitalize())
