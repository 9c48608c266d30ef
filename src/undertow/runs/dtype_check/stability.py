"""Flag findings that could change in float32, given the error of each result.

Each result is shifted by both ends of its error, and the audit recomputes its findings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from undertow.audits.base import Audit, Observations
from undertow.metrics.metric import get_metric
from undertow.report.formatting import number, significant_decimals
from undertow.report.page_data import PagePrecision, ReportTable
from undertow.report.sentence_templates import sentences
from undertow.runs.compare.resampling import Key, key_of
from undertow.runs.dtype_check.rescore_sample import Float32Check
from undertow.runs.folder.storage import PRECISION_FLAG, PRECISION_NUMBERS, Record
from undertow.types import Finding, Result

if TYPE_CHECKING:
    import pandas as pd

MOVE_WITH_VALUE = re.compile(r"above_baseline|(above|claim|corrected|sentences|values|bound|ols)_(low|high)")
"""Extras of a result that shift with its value, such as ends of its intervals."""
STANDARD_DEVIATIONS = frozenset({"w_effect", "w_effect_over_prompts"})
"""Measures that cannot be below 0."""
OTHER_TEST = "values"
"""Prefix of p and q of a further test of the same value."""
HALF_WIDTH_SDS = 1.96
"""Half-width of an interval in standard errors, with many clusters or for intervals that agree with their test; with few clusters see
`_half_width_sds` (docs/decisions/029)."""
OF_ITS_TEST = "sentences_df"
"""An extra of results whose interval agrees with their test."""
HALF_WIDTH_SDS_OF_FEW = {6: 2.41, 7: 2.35, 8: 2.30, 9: 2.26}
"""Mean half-width of `percentile_interval` in standard errors over normal samples, by number of clusters; smaller than Student's
quantile, because draws of few clusters are less extreme."""
NO_WIDTH = 1e-9
"""Relative width below which an interval is a point up to rounding."""
NOT_OF_GROUP = ("measure", *PRECISION_NUMBERS, PRECISION_FLAG)
NUMBER = re.compile(r"(?<![^\s(\[])(< )?[+-]?[\d,]*\.?\d+(?=[\s%)\],;.:]|$)")
"""Pattern of a number that is not part of a name."""


def table_of(checks: Iterable[Float32Check]) -> pd.DataFrame | None:
    """The results of all float32 samples; None without samples."""
    import pandas as pd

    rows = [row for check in checks for row in check.rows]
    names = list(dict.fromkeys(name for row in rows for name in row if name not in PRECISION_NUMBERS))
    return pd.DataFrame([dict.fromkeys(names, "") | dict(row) for row in rows]) if rows else None


def block_of(checks: Iterable[Float32Check]) -> dict[str, Any]:
    """The `precision` entry of the manifest; {} in float32."""
    parts = [dict(check.facts) for check in checks]
    return {"precision": {"models": parts}} if parts else {}


def unknown_effects(checks: Iterable[Float32Check]) -> list[str]:
    """Notes on models whose effect of precision is unknown."""
    return [
        f"{facts['model']} ran in {facts['dtype']}, and the effect on the results is unknown: {facts['unknown']}"
        for facts in (check.facts for check in checks)
        if facts.get("unknown")
    ]


def flag_unstable(
    audit: Audit,
    observations: Observations,
    results: Sequence[Result],
    manifest: Mapping[str, Any],
    table: pd.DataFrame | None,
) -> tuple[dict[str, Any], pd.DataFrame | None]:
    """Manifest and table with the findings and results of the whole run that could change; unchanged in float32.

    The manifest has a `precision` entry for each model, and the table a row for each result of the samples.
    """
    if "precision" not in manifest:
        return dict(manifest), table
    block = {**manifest["precision"], "unstable": [], "beyond_interval": 0, "unknown_results": 0}
    if table is not None:
        rows = table.to_dict("records")
        error_of, findings = _error_ranges(rows), audit.findings(observations, results)
        halves = {
            key_of(one): (one.high - one.low) / 2
            for one in results
            if _has_interval(one) and one.high - one.low > NO_WIDTH * max(abs(one.value), 1.0)
        }
        could: dict[Key, list[str]] = {}
        for at, result in enumerate(results):
            for error in set(error_of(result) or ()) - {0.0}:
                moved = moved_by(result, error)
                others = audit.findings(observations, [*results[:at], moved, *results[at + 1 :]])
                could.setdefault(key_of(result), []).extend(_changed(findings, others, result, moved))
        # The end of each error farther from 0; NaN for a result without an interval or a null value.
        shares = [max(abs(row["low"]), abs(row["high"])) / halves.get(_key_of_row(row), math.nan) for row in rows]
        flags = [bool(could.get(_key_of_row(row))) for row in rows]
        table = table.assign(difference_over_halfwidth=shares, unstable=flags)
        named = {text for texts in could.values() for text in texts}
        known = [finding.text for finding in findings if finding.text in named]
        tested = [one for one in results if _has_interval(one) and one.group.get("model") in set(table["model"])]
        largest = table.groupby("model")["difference_over_halfwidth"].max().to_dict()
        block |= {
            "unstable": [*known, *sorted(named - set(known))],  # possible new findings come last
            "beyond_interval": sum(abs(row["difference"]) > halves.get(_key_of_row(row), math.inf) for row in rows),
            "unknown_results": sum(error_of(one) is None for one in tested),
            "models": [
                part | ({"difference_over_halfwidth": largest[part["model"]]} if part["model"] in largest else {})
                for part in block["models"]
            ],
        }
    return {**manifest, "precision": block | {"sentences": summary(block)}}, table


def _has_interval(result: Result) -> bool:
    """Whether a result has a null value and an interval."""
    return all(map(math.isfinite, (result.null_value, result.value, result.low, result.high)))


def _key_of_row(row: Mapping[Any, Any]) -> Key:
    group = {str(name): str(level) for name, level in row.items() if name not in NOT_OF_GROUP and level}
    return str(row["measure"]), tuple(sorted(group.items()))


def _error_ranges(rows: Sequence[Mapping[Any, Any]]) -> Callable[[Result], tuple[float, float] | None]:
    """A function from a result to both ends of its error: its own, or the widest of its model and metric; None if unknown."""
    own: dict[Key, tuple[float, float]] = {}
    widest: dict[tuple[str, str], tuple[float, float]] = {}
    for row in rows:
        ends = float(row["low"]), float(row["high"])
        known = [end for end in (*ends, float(row["difference"])) if math.isfinite(end)]
        if all(map(math.isfinite, ends)):
            own[_key_of_row(row)] = ends
        if known:
            measure = str(row["model"]), str(row["measure"])
            low, high = widest.get(measure, (0.0, 0.0))
            widest[measure] = min([low, *known]), max([high, *known])
    return lambda result: own.get(key_of(result)) or widest.get((result.group.get("model", ""), result.measure))


def moved_by(result: Result, error: float) -> Result:
    """The result without an error: value and interval shift, p and q follow with the same standard error."""
    extras = {
        key: number - error if MOVE_WITH_VALUE.fullmatch(key) else number for key, number in result.extras.items()
    }
    value, low, high = result.value - error, result.low - error, result.high - error
    if result.measure in STANDARD_DEVIATIONS:
        value, low, high = (max(end, 0.0) if math.isfinite(end) else end for end in (value, low, high))
    if "last" in extras and result.value:
        extras["last"] = extras["first"] + (extras["last"] - extras["first"]) * value / result.value
    p, q = _moved_test((result.p, result.q), result, value)
    if f"{OTHER_TEST}_p" in extras:
        names = f"{OTHER_TEST}_p", f"{OTHER_TEST}_q"
        other = extras[names[0]], extras.get(names[1], math.nan)
        extras |= zip(names, _moved_test(other, result, value), strict=True)
    return replace(result, value=value, low=low, high=high, p=p, q=q, extras=extras)


def _moved_test(test: tuple[float, float], result: Result, value: float) -> tuple[float, float]:
    """Recompute p from the distance to the null value with the same standard error; scale q as p."""
    from scipy.stats import norm

    p, q = test
    if not 0 < p <= 1 or not math.isfinite(result.null_value):
        return test
    before, after = abs(result.value - result.null_value), abs(value - result.null_value)
    distance = float(norm.isf(p / 2))
    sd = before / distance if before > 0 and distance > 0 else (result.high - result.low) / 2 / _half_width_sds(result)
    moved = float(2 * norm.sf(after / sd)) if sd > 0 else p
    return moved, min(1.0, q * moved / p)


def _half_width_sds(result: Result) -> float:
    """Standard errors in the half-width of an interval, by the number of clusters.

    A result without that number counts as one over many clusters: with few, its standard error is overestimated.
    """
    from scipy.stats import t

    n_clusters = result.extras.get("n_clusters", math.nan)
    if math.isnan(n_clusters) or OF_ITS_TEST in result.extras:
        return HALF_WIDTH_SDS
    return HALF_WIDTH_SDS_OF_FEW.get(int(n_clusters)) or float(t.ppf(0.975, n_clusters - 1))


def _changed(findings: Sequence[Finding], others: Sequence[Finding], result: Result, moved: Result) -> list[str]:
    """Findings that appear, vanish or change when a result is moved."""
    before, after = ({finding.text for finding in some} for some in (findings, others))
    gone = [finding for finding in findings if finding.text not in after]
    come = [finding for finding in others if finding.text not in before]
    n_gone, n_come = (sum(finding.significant for finding in some) for some in (gone, come))
    if n_gone < n_come:
        weak = [finding.text for finding in gone if not finding.significant]
        return weak or [f"{result.measure.replace('_', ' ')} ({', '.join(filter(None, result.group.values()))})"]
    null_value = result.null_value if math.isfinite(result.null_value) else 0.0
    other_way = (result.value - null_value) * (moved.value - null_value) < 0
    claimed = [finding.text for finding in gone if finding.significant]
    still = {_wording(finding.text) for finding in come if finding.significant}
    others_now = [text for text in claimed if _wording(text) not in still]
    return others_now or (claimed if n_gone > n_come or other_way else [])


def _wording(text: str) -> str:
    """A finding without its numbers, so that one about another model or dimension is another finding."""
    return NUMBER.sub("#", text)


def summary(block: Mapping[str, Any]) -> list[str]:
    """Sentences on the manifest's `precision` entry: one for each model, then on results and findings."""
    words = sentences("precision")
    lines = [words.model(part, percent) for part in block["models"]]
    n_beyond, n_others, n_unknown = block["beyond_interval"], len(block["unstable"]), block["unknown_results"]
    if n_beyond:
        lines.append(words.beyond(n_beyond))
    if n_others:
        lines.append(words.changed(n_others))
    elif not n_unknown and not any(part.get("unknown") for part in block["models"]):
        lines.append(words.unchanged)
    return [*lines, words.unmeasured(n_unknown)] if n_unknown else lines


def percent(value: float) -> str:
    """A percentage with two significant digits."""
    return f"{value:,.0f}%" if value >= 10 else f"{value:.2g}%"


# The section of the page.

MAX_ROWS = 8
COLUMNS = (
    "result",
    "reduced precision",
    "float32",
    "difference",
    "95% interval of the difference",
    "% of the half-width of the run's interval",
)


def precision_text(record: Record) -> PagePrecision | None:
    """The page's section on reduced precision; None in float32.

    A run without a float32 sample has no section.
    """
    block = record.manifest.get("precision")
    if block is None:
        return None
    return PagePrecision(sentences=block["sentences"], unstable=block["unstable"], table=_table(record))


def _table(record: Record) -> ReportTable | None:
    """The results with the largest errors, in half-widths of their intervals."""
    table = record.precision
    if table is None or table.empty or table["difference_over_halfwidth"].isna().all():
        return None
    several = table["model"].nunique() > 1
    worst = table[table["difference_over_halfwidth"].notna()].nlargest(MAX_ROWS, "difference_over_halfwidth")
    groups = [name for name in table.columns if name not in NOT_OF_GROUP and (several or name != "model")]

    def row(of: Mapping[Any, Any]) -> list[str]:
        levels = [str(of[name]) for name in groups if of[name]]
        size = max(abs(of["low"]), abs(of["high"]), abs(of["difference"]))
        places = significant_decimals(size) if math.isfinite(size) else 2
        first, second, error, low, high = (
            number(of[name], places) for name in ("reduced_value", "float32_value", "difference", "low", "high")
        )
        title = get_metric(of["measure"], of).title
        title = f"{title}: {', '.join(levels)}" if levels else title
        return [title, first, second, error, f"[{low}, {high}]", percent(100 * of["difference_over_halfwidth"])]

    return ReportTable(
        f"The {len(worst)} results with the largest errors, of {len(table):,}",
        COLUMNS,
        [row(of) for of in worst.to_dict("records")],
        about="Both values are those of the sample, which is smaller than the run. All results are in precision.csv.",
    )
