"""What the page says of a run in reduced precision: once in a section of its own, and beside the findings that could change."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest

from undertow.precision import precision_told
from undertow.records import Record
from undertow.report import Page, render_page
from undertow.report.page import PagePrecision
from undertow.types import Finding, Result, Shown

FINDINGS = (Finding("it drifts", True, 9.0), Finding("it rises", True, 5.0), Finding("nothing moved", False, 1.0))
SAID = [
    "m was asked in bfloat16; 20 of 200 items were read again.",
    "Warning: in float32 2 findings could turn out otherwise.",
]
CAUTION = "In float32 this could turn out otherwise."


def page(found: PagePrecision | None, *findings: Finding) -> str:
    results = [Result("slope", {"model": "m"}, 0.5, n=3)]
    return render_page(
        Page(title="An audit", lead="It moved.", findings=findings or FINDINGS, results=results, precision=found)
    )


def section(html: str, name: str) -> str:
    (found,) = re.findall(rf'<section id="{name}".*?</section>\n', html, re.DOTALL)
    return str(found)


def costs(**parts: Any) -> PagePrecision:
    shown = Shown("The 1 result", ("result", "error"), [["Slope: date", "0.02"]], about="Of the sample alone.")
    return PagePrecision(**{"said": SAID, "could_change": ["it drifts", "nothing moved"], "table": shown, **parts})


def test_the_section_says_all_of_it_before_the_numbers() -> None:
    html = page(costs())
    told = section(html, "precision")
    assert html.index('<section id="precision">') < html.index('<section id="numbers">')
    assert re.findall(r"<p>(.*?)</p>", told) == SAID
    assert re.findall(r"<li>(.*?)</li>", told) == ["it drifts", "nothing moved"]
    assert "<h3>The 1 result</h3>" in told
    assert "Of the sample alone." in told
    assert re.findall(r"<td[^>]*>(.*?)</td>", told) == ["Slope: date", "0.02"]


def test_findings_that_could_change_carry_a_caution_and_no_others() -> None:
    items = re.findall(r"<li>(.*?)</li>", section(page(costs()), "findings"), re.DOTALL)
    assert [re.sub("<span.*|<[^>]+>", "", item, flags=re.DOTALL).strip() for item in items] == [
        "it drifts", "it rises", "nothing moved",
    ]  # fmt: skip
    assert [CAUTION in item for item in items] == [True, False, True]
    assert items[0].count('href="#precision"') == 1


def test_a_caution_finds_its_sentence_whose_numbers_are_below_zero() -> None:
    of = (Result("slope", {"model": "m"}, -2.52),)
    html = page(costs(could_change=["It falls by -2.5."]), Finding("It falls by -2.5.", True, 1.0, of=of))
    assert html.count("It falls by −2.5.") == 2
    assert html.count(CAUTION) == 1


def test_where_nothing_could_change_there_is_no_caution() -> None:
    html = page(costs(could_change=[], table=None))
    assert CAUTION not in html
    assert "<table" not in section(html, "precision")


def test_a_page_in_float32_is_what_is_left_without_it() -> None:
    html = page(costs(could_change=[]))
    html = html.replace(section(html, "precision"), "").replace('<li><a href="#precision">Precision</a></li>\n', "")
    style = html.partition("<style>")[2].partition("</style>")[0]
    plain = page(None)
    before = plain.partition("<style>")[2].partition("</style>")[0]
    assert style.startswith(before)
    assert html.replace(style, before) == plain
    assert "float32" not in plain


@pytest.mark.parametrize("payload", ["<script>alert(1)</script>", "{{7*7}}", '"><img src=x onerror=alert(1)>'])
def test_what_is_said_is_text(payload: str) -> None:
    html = page(costs(said=[payload], could_change=[payload]), Finding(payload, True, 1.0))
    assert html.count("<script>") == 1, "the page's own"
    assert "<img src=x" not in html
    assert html.count(CAUTION) == 1


def record(table: pd.DataFrame | None, **block: Any) -> Record:
    manifest = {"precision": {"said": SAID, "could_change": [], **block}} if block else {}
    return Record(manifest, pd.DataFrame(), (), table)


def rows(n: int, **more: Any) -> pd.DataFrame:
    numbers = {"reduced": 1.25, "float32": 1.0, "low": 0.2, "high": 0.3, "could_change": False}
    return pd.DataFrame(
        [
            {
                "model": "m",
                "measure": "slope",
                "w_name": f"w{at}",
                "error": 0.25,
                "of_half_interval": at / 10,
                **numbers,
                **more,
            }
            for at in range(n)
        ]
    )


def test_the_table_has_the_results_that_move_most() -> None:
    told = precision_told(record(rows(12), models=[]))
    assert told is not None
    assert told.table is not None
    assert [row[0] for row in told.table.rows] == [f"Slope: w{at}" for at in range(11, 3, -1)]
    assert told.table.rows[0][1:] == ["1.25", "1.00", "0.25", "[0.20, 0.30]", "110%"]
    assert "12" in told.table.title


def test_runs_without_the_block_say_nothing() -> None:
    assert precision_told(record(None)) is None
    told = precision_told(record(None, models=[]))
    assert told is not None
    assert told.table is None
    missing = precision_told(record(rows(2, of_half_interval=float("nan")), models=[]))
    assert missing is not None
    assert missing.table is None
