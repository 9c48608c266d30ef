"""The section of the page on reduced precision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from undertow.report.page_data import ReportTable
from undertow.runs.dtype_check.stability import NOT_OF_GROUP, percent
from undertow.runs.folder.storage import Record

if TYPE_CHECKING:
    from undertow.report.page_data import PagePrecision

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
    from undertow.report.page_data import PagePrecision

    return PagePrecision(sentences=block["sentences"], could_change=block["could_change"], table=_table(record))


def _table(record: Record) -> ReportTable | None:
    """The results that precision moves most, in half-widths of their intervals."""
    table = record.precision
    if table is None or table.empty or table["difference_over_halfwidth"].isna().all():
        return None
    from undertow.report.formatting import measure_title, number, significant_decimals

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
        title = f"{measure_title(of['measure'])}: {', '.join(levels)}" if levels else measure_title(of["measure"])
        return [title, first, second, error, f"[{low}, {high}]", percent(100 * of["difference_over_halfwidth"])]

    return ReportTable(
        f"The {len(worst)} results that it moves most, of {len(table):,}",
        COLUMNS,
        [row(of) for of in worst.to_dict("records")],
        about="Both values are those of the sample alone, which is smaller than the run. All results are in precision.csv.",
    )
