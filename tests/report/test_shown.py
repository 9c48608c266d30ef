"""An audit's own tables on the page: where they stand, what is folded away, and that every cell is text."""

from __future__ import annotations

import dataclasses
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from undertow.records import Record
from undertow.report import Page, PageFigure, render_page
from undertow.report.page import LONG_TABLE_ROWS
from undertow.report.telling import tell_run
from undertow.types import Finding, Result, Shown, Told

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>'
PAYLOADS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}{% for x in y %}{# c #}",
    "</summary></details></table><svg onload=alert(1)>",
]
SCORES = Shown("Exact match", ["class", "0 shots", "5 shots"], [["statement", "42.1 ± 0.8", "0"], ["null", "", "–"]])
EXAMPLES = Shown("Answers", ["span", "answer"], [["a", "one\ntwo"]], warning="It quotes abuse.")


def page(*shown: Shown) -> Page:
    return Page(
        title="An audit",
        lead="It moved.",
        findings=[Finding("found", True, 1.0)],
        results=[Result("slope", {"model": "m"}, 0.5, n=3)],
        figures=[PageFigure("dates", SVG, "A caption.", "What it shows.")],
        shown=shown,
    )


def section(html: str) -> str:
    (found,) = re.findall(r'<section id="shown".*?</section>\n', html, re.DOTALL)
    return str(found)


def cells(html: str, tag: str) -> list[tuple[str, str]]:
    """Class and content of every cell."""
    return re.findall(rf'<{tag}(?: scope="col")?(?: class="([^"]*)")?>(.*?)</{tag}>', html, re.DOTALL)


def test_tables_stand_between_figures_and_numbers() -> None:
    html = render_page(page(SCORES))
    at = [html.index(f'<section id="{name}"') for name in ("figures", "shown", "numbers")]
    assert at == sorted(at)


def test_a_page_without_own_tables_is_what_is_left_when_they_are_taken_out() -> None:
    html = render_page(page(SCORES, EXAMPLES)).replace(section(render_page(page(SCORES, EXAMPLES))), "")
    html = html.replace('<li><a href="#shown">Tables and examples</a></li>\n', "")
    rules = re.findall(r"^ *\.(?:shown|warned|every)[^\n]*|^ *details\.warned[^\n]*", html, re.MULTILINE)
    own = [rule for rule in rules if "shown" in rule or "warned" in rule]
    assert own
    for rule in own:
        html = html.replace(f"{rule}\n", "", 1)
    assert html == render_page(page())
    assert 'id="shown"' not in render_page(page())


def test_every_cell_is_there_and_numbers_stand_to_the_right() -> None:
    html = section(render_page(page(SCORES)))
    assert cells(html, "th") == [("", "class"), ("number", "0 shots"), ("number", "5 shots")]
    assert cells(html, "td") == [
        ("", "statement"), ("number", "42.1 ± 0.8"), ("number", "0"), ("", "null"), ("number", ""), ("number", "–"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "numeric"),
    [
        (["42.1 ± 0.8", "\N{MINUS SIGN}3", "1,234"], True),
        (["[1.0, 2.0]", "12/40", "33%", "< .001"], True),
        (["0", "gender"], False),
        (["", "–"], False),
        (["(...)", "?"], False),
        (["3 of 4"], False),
        ([], False),
    ],
)
def test_a_column_is_of_numbers_where_all_that_is_said_is_a_number(column: list[str], numeric: bool) -> None:
    html = section(render_page(page(Shown("T", ["head"], [[cell] for cell in column]))))
    assert cells(html, "th") == [("number" if numeric else "", "head")]


def test_a_table_with_a_warning_is_closed_and_says_why() -> None:
    html = section(render_page(page(EXAMPLES)))
    assert re.search(
        r'<details class="warned">\s*<summary><strong>Answers</strong> <span>It quotes abuse.</span></summary>.*<table class="data">',
        html,
        re.DOTALL,
    )
    assert html.count("<table") == 1
    assert "<h3>" not in html


def test_a_table_without_one_is_open_unless_it_is_long() -> None:
    short, long = (
        Shown("T", ["n"], [[str(n)] for n in range(size)]) for size in (LONG_TABLE_ROWS, LONG_TABLE_ROWS + 1)
    )
    assert "<details" not in section(render_page(page(short)))
    html = section(render_page(page(long)))
    assert f"<summary>Show all {LONG_TABLE_ROWS + 1} rows</summary>" in html
    assert "<h3>T</h3>" in html


def test_what_to_keep_in_mind_stands_before_its_table() -> None:
    html = section(render_page(page(dataclasses.replace(SCORES, about="Mean and sd over wordings."), EXAMPLES)))
    assert html.index('<p class="every">Mean and sd over wordings.</p>') < html.index("<table")
    assert html.count('class="every"') == 1


def test_each_table_scrolls_in_a_box_that_is_named() -> None:
    html = section(render_page(page(SCORES, EXAMPLES)))
    assert re.findall(r'<div class="scroll" role="region" tabindex="0" aria-label="Table: ([^"]*)">', html) == [
        "Exact match",
        "Answers",
    ]


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("warning", ["", "w "])
def test_all_text_is_text(payload: str, warning: str) -> None:
    shown = Shown(payload, [payload], [[payload]], about=payload, warning=warning and warning + payload)
    plain = Shown("T", ["T"], [["T"]], about="T", warning=warning and f"{warning}T")
    html = section(render_page(page(shown)))
    assert re.findall(r"</?[a-z0-9]+", html) == re.findall(r"</?[a-z0-9]+", section(render_page(page(plain))))
    assert unescape(html).count(payload) == 5 + bool(warning), "title twice, head, cell, note, and the warning"


def test_a_row_with_too_few_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="'T' has a cell for each of its 2 columns"):
        render_page(page(Shown("T", ["a", "b"], [["1"]])))


def test_a_told_run_has_its_own_tables_on_its_page(tmp_path: Path) -> None:
    manifest: dict[str, Any] = json.loads(
        '{"model": "m", "protocol": "exact", "command": "c", "python": "p", "created": "now", "seed": 7,'
        ' "versions": {}, "machine": {}}'
    )
    told = Told("T", "lead", asked=["Q?"], examples=[], shown=(SCORES, EXAMPLES))
    tell_run(tmp_path, Record(manifest, pd.DataFrame(), []), told, [], [])
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert section(html) == section(render_page(page(SCORES, EXAMPLES)))
