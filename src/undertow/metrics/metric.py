"""Metric objects: name, title, unit and meaning of each measure of a run, for results, reports, tables and comparisons.

Another package adds a metric with the decorator and an entry point of the group `undertow.metrics`:

    @metric("spread", title="Spread", meaning="largest minus smallest mean", unit="percentage points", audits=["spurious-correlation"])
    def spread(frame, design):
        for model, rows in frame.groupby("model"):
            yield Result("spread", {"model": model}, value=...)
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from undertow._files import toml_text
from undertow._folders import notify
from undertow._plugins import plugins
from undertow.errors import UndertowError, on_one_line
from undertow.metrics.groups import WOMAN_AND_MAN, Groups
from undertow.types import ALPHA_TEXT, Result, digest

if TYPE_CHECKING:
    import pandas as pd

ENTRY_POINTS = "undertow.metrics"
HIGHER, LOWER, NEITHER = "higher is better", "lower is better", ""
OVER_PROMPTS = "_over_prompts"
"""Suffix of metrics of masses averaged over all prompts."""

Group: TypeAlias = Mapping[str, str]
"""The keys of a result: model, set, word group, ..."""
Compute: TypeAlias = "Callable[[pd.DataFrame, Mapping[str, Any]], Iterable[Result]]"
"""Results from the observations of a run and its design."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A measure that a run reports.

    Attributes:
        name: its name in results.csv, gates and exports.
        title: its name for people, for example "Slope".
        unit: of its values; "" if each result has its own (the unit of a slope depends on W).
        null_value: the value without bias; NaN if there is none, or if each result has its own.
        direction: `HIGHER`, `LOWER` or `NEITHER`.
        meaning: completes "TITLE: ..." in a glossary.
        citation: the paper that defines it; "" without one.
        audits: for a metric of another package, the audits that it extends.
        compute: for a metric of another package, its function; None otherwise.
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


def read_catalog(path: Path, groups: Groups = WOMAN_AND_MAN) -> tuple[dict[str, Metric], dict[str, str]]:
    """Metrics of a TOML file by name, and meanings of further columns of their results.

    In its texts, `{alpha}` stands for `ALPHA`, and `{first}` and other `Groups.words` for the groups of a checklist.
    """
    words = {name: toml_text(word)[1:-1] for name, word in {"alpha": ALPHA_TEXT, **groups.words}.items()}
    text = re.sub(r"\{(\w+)\}", lambda match: words.get(match[1], match[0]), path.read_text(encoding="utf-8"))
    given = tomllib.loads(text)
    return {groups.name(one["name"]): Metric(**one) for one in given["metrics"]}, given["columns"]


_of_groups = cache(partial(read_catalog, Path(__file__).with_name("catalog.toml")))
METRICS = _of_groups(WOMAN_AND_MAN)[0]
"""The metrics of the package by name."""


def column_meanings(group: Group) -> Mapping[str, str]:
    """Meanings of group keys and of `Result.extras` by name, with the names of the groups of a result."""
    return _of_groups(Groups.of(group))[1]


def make_result(measure: str, group: Group, value: float = math.nan, **others: Any) -> Result:
    """A result with the unit and the null value of its metric; `others` are further fields, which may replace these."""
    known = METRICS[measure]
    fields: dict[str, Any] = {"unit": known.unit, "null_value": known.null_value} | others
    return Result(measure, group, value, **fields)


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
    """Decorate a function as a metric of these audits; register it by an entry point of the group `undertow.metrics`."""

    def decorate(compute: Compute) -> Metric:
        return Metric(name, title, unit, null_value, direction, meaning, citation, tuple(audits), compute)

    return decorate


def added_metrics() -> list[Metric]:
    """Metrics of installed packages; a broken one is reported on standard error and skipped."""

    def check(value: str, one: object) -> Metric:
        if isinstance(one, Metric) and one.compute is not None:
            return one
        raise UndertowError(
            f"{value} is not a metric; put the decorator undertow.metrics.metric.metric before the function"
        )

    return [one for _, one in plugins(ENTRY_POINTS, check)]


def added_versions(audit: str) -> dict[str, str]:
    """For each metric of installed packages for an audit, a digest of its function's code, without functions that it calls."""
    versions = {}
    for one in added_metrics():
        if audit in one.audits:
            versions[one.name] = digest(_constant_text(getattr(one.compute, "__code__", None)))
    return versions


def _constant_text(constant: object) -> str:
    """A constant of a function, or its code with that of inner functions, as text that is the same in every process."""
    if isinstance(constant, CodeType):
        return f"code {constant.co_code.hex()} {constant.co_names} {_constant_text(constant.co_consts)}"
    if isinstance(constant, frozenset):  # its order depends on the hash seed
        return f"frozenset {sorted(map(_constant_text, constant))}"
    return f"tuple {[*map(_constant_text, constant)]}" if isinstance(constant, tuple) else repr(constant)


def compute_added(audit: str, frame: pd.DataFrame, design: Mapping[str, Any]) -> list[Result]:
    """Results of the metrics of installed packages for an audit, from the observations of a run and its design.

    A metric that fails has no results, and a line on standard error.
    """
    results: list[Result] = []
    for one in added_metrics():
        if audit not in one.audits or one.compute is None:
            continue
        try:
            computed = list(one.compute(frame, design))
        except Exception as error:  # noqa: BLE001 - code of another package, which may raise anything
            reason = f"{type(error).__name__}: {on_one_line(str(error))}"
            notify(f"the metric {one.name} of another package is skipped: it failed ({reason})")
            continue
        for result in computed:
            null = one.null_value if math.isnan(result.null_value) else result.null_value
            results.append(replace(result, measure=one.name, unit=result.unit or one.unit, null_value=null))
    return results


def get_metric(name: str, group: Group = MappingProxyType({})) -> Metric:
    """The metric of this name; with the suffix of averages over prompts, a metric with "over prompts" in its title.

    An unknown name becomes its own title, without a meaning. The keys of a result name the groups of a checklist.
    """
    metrics = _of_groups(Groups.of(group))[0]
    if name in metrics:
        return metrics[name]
    if name.endswith(OVER_PROMPTS) and name.removesuffix(OVER_PROMPTS) in METRICS:
        one = METRICS[name.removesuffix(OVER_PROMPTS)]
        meaning = f"{one.meaning}, for masses averaged over all prompts; with several prompts, only this is tested"
        return replace(one, name=name, title=f"{one.title} over prompts", meaning=meaning)
    added = {one.name: one for one in added_metrics()}
    return added.get(name) or Metric(name, name.replace("_", " ").capitalize())
