"""The checklist on the page: every test is in its cell, says in words how often it failed, and opens what it failed on."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from undertow.records import Record
from undertow.report import Page, PageFigure, render_page
from undertow.report.telling import tell_run
from undertow.types import Check, Finding, Matrix, Result, Shown, Told

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}"/>'
COLUMNS = ("minimum functionality", "invariance", "directional expectation")
SWAP = Check("swap", "Order does not matter.", 400, 50, ["Amy, Bob.\n  Who?", "Bob <b>&amp;</b> Amy"])
CELLS = {
    ("symmetry", "invariance"): [SWAP, Check("answers", "Nor that of the answers.", 1200, 0)],
    ("negation", "directional expectation"): [Check("less", "It turns round.", 380, 290, ["one"])],
    ("negation", "minimum functionality"): [Check("three names", "A chain holds.", 0, 0)],
}
MATRIX = Matrix("By type", ("symmetry", "negation"), COLUMNS, CELLS, about="Over pairs.")
PAYLOADS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}{% for x in y %}{# c #}",
    "</li></ol></summary></details></table><svg onload=alert(1)>",
]


class Table(HTMLParser):
    """The cells of a page's checklists by row, the texts of what opens, and the elements in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.rows: list[list[list[str]]] = []  # [row][cell][text]
        self.opened: list[list[str]] = []  # [details][text], whitespace kept
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open += [tag] if tag not in ("img", "meta") else []
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append([])
        elif tag == "details":
            self.opened.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "details" in self.open and data.strip():
            self.opened[-1].append(data)
        elif ("td" in self.open or "th" in self.open) and data.strip():
            self.rows[-1][-1].append(data.strip())


def page(*matrices: Matrix) -> Page:
    return Page(
        title="An audit",
        lead="It moved.",
        findings=[Finding("found", True, 1.0)],
        results=[Result("bias", {"model": "m"}, 0.5, n=3)],
        figures=[PageFigure("one", SVG.format(8, 4), "A caption.", "What it shows.")],
        shown=[Shown("T", ["a"], [["b"]])],
        matrices=matrices,
    )


def section(html: str) -> str:
    (found,) = re.findall(r'<section id="checklist".*?</section>\n', html, re.DOTALL)
    return str(found)


def read(*matrices: Matrix) -> Table:
    table = Table()
    table.feed(section(render_page(page(*matrices))))
    table.close()
    assert table.open == [], "every element is closed"
    return table


def said(**of_swap: Any) -> str:
    """How often it says that a test failed."""
    check = dataclasses.replace(SWAP, **of_swap)
    (cell,) = [cell for cell in read(Matrix("T", ["r"], ["c"], {("r", "c"): [check]})).rows[1] if "swap" in cell]
    return cell[2]


def test_it_stands_between_figures_and_shown_tables() -> None:
    html = render_page(page(MATRIX))
    at = [html.index(f'<section id="{name}"') for name in ("figures", "checklist", "shown", "numbers")]
    assert at == sorted(at)


def test_a_page_without_one_does_not_speak_of_it() -> None:
    whole, without = render_page(page(MATRIX)), render_page(page())
    assert "checklist" not in without
    rules = re.search(r"^:root \{ --passes.*?(?=^</style>)", whole, re.DOTALL | re.MULTILINE)
    assert rules is not None
    listed = '<li><a href="#checklist">Checklist</a></li>\n'
    assert whole.replace(section(whole), "").replace(rules[0], "").replace(listed, "") == without


def test_every_test_is_in_the_cell_of_its_capability_and_type() -> None:
    rows = read(MATRIX).rows
    assert rows == [
        [["capability"], *([name] for name in COLUMNS)],
        [
            ["symmetry"],
            ["no test"],
            [
                "invariance",
                *("swap", "fails in 12.5% of 400", "Order does not matter."),
                *("answers", "passes in all 1,200", "Nor that of the answers."),
            ],
            ["no test"],
        ],
        [
            ["negation"],
            ["minimum functionality", "three names", "no case", "A chain holds."],
            ["no test"],
            ["directional expectation", "less", "fails in 76.3% of 380", "It turns round."],
        ],
    ]  # fmt: skip


def test_heads_are_heads_of_their_rows_and_columns() -> None:
    html = section(render_page(page(MATRIX)))
    assert re.findall(r'<th scope="(\w+)">([^<]*)<', html) == [
        ("col", "capability"), *(("col", name) for name in COLUMNS), ("row", "symmetry"), ("row", "negation"),
    ]  # fmt: skip
    assert '<div class="scroll" role="region" tabindex="0" aria-label="Checklist: By type">' in html


def test_only_failures_open_and_their_lines_are_kept() -> None:
    table = read(MATRIX)
    assert table.opened == [
        ["Show 2 of 50 failures", "Amy, Bob.\n  Who?", "Bob <b>&amp;</b> Amy"],
        ["Show 1 of 290 failures", "one"],
    ]
    html = section(render_page(page(MATRIX)))
    assert html.count("<details>") == 2, "closed until the reader opens them"
    assert "Bob &lt;b&gt;&amp;amp;&lt;/b&gt; Amy" in html
    assert re.search(r"^\.checklist ol li \{[^}]*white-space: pre-wrap", render_page(page(MATRIX)), re.MULTILINE)


@pytest.mark.parametrize(
    ("n", "failed", "examples", "opener"),
    [
        (9, 1, ["a"], "Show the failure"),
        (9, 2, ["a", "b"], "Show all 2 failures"),
        (9000, 1200, ["a"], "Show 1 of 1,200 failures"),
        (9, 2, [], None),
        (9, 0, ["a"], None),
        (0, 0, ["a"], None),
    ],
)
def test_what_opens_says_how_many_there_are(n: int, failed: int, examples: list[str], opener: str | None) -> None:
    check = Check("swap", "", n, failed, examples)
    opened = read(Matrix("T", ["r"], ["c"], {("r", "c"): [check]})).opened
    assert [texts[0] for texts in opened] == ([opener] if opener else [])


@pytest.mark.parametrize(
    ("n", "failed", "text"),
    [
        (400, 50, "fails in 12.5% of 400"),
        (4, 2, "fails in 50% of 4"),
        (62, 62, "fails in 100% of 62"),
        (10_000, 3, "fails in less than 0.1% of 10,000"),
        (10_000, 9_999, "fails in more than 99.9% of 10,000"),
        (7, 0, "passes in all 7"),
        (1, 0, "passes in its one case"),
        (0, 0, "no case"),
    ],
)
def test_none_is_never_said_of_some_nor_all_of_less(n: int, failed: int, text: str) -> None:
    assert said(n=n, failed=failed) == text


@pytest.mark.parametrize(
    ("failed", "look"),
    [(0, "passes"), (1, "fails-1"), (50, "fails-1"), (51, "fails-2"), (200, "fails-2"), (500, "fails-3"), (501, "fails-4")],
)  # fmt: skip
def test_colour_follows_the_rate(failed: int, look: str) -> None:
    html = section(render_page(page(Matrix("T", ["r"], ["c"], {("r", "c"): [Check("k", "", 1000, failed)]}))))
    assert re.findall(r'class="rate ([^"]*)"', html) == [look]


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def palettes(html: str) -> list[dict[str, str]]:
    """Colours of the light, dark and printed page."""
    roots = [
        dict(re.findall(r"--([\w-]+): (#\w{6,});", f"{root};")) for root in re.findall(r":root \{(.*?)\}", html, re.S)
    ]
    light, dark, printed, *marks = roots
    assert [len(mark) for mark in marks] == [5, 5, 5]
    whole = {"ink": "#000000", "soft": "#444444", "paper": "#ffffff"}
    assert printed == {}, "three digits each, spelled out above"
    return [light | marks[0], light | dark | marks[1], whole | marks[2]]


def test_words_on_every_colour_have_the_contrast_that_wcag_asks_for() -> None:
    for palette in palettes(render_page(page(MATRIX))):
        for ground in ("passes", "fails-1", "fails-2", "fails-3", "fails-4"):
            low, high = sorted([luminance(palette["ink"]), luminance(palette[ground])])
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ground, palette)
        low, high = sorted([luminance(palette["soft"]), luminance(palette["paper"])])
        assert (high + 0.05) / (low + 0.05) >= 4.5


def test_more_failures_stand_out_more_without_any_hue() -> None:
    for palette in palettes(render_page(page(MATRIX))):
        away = [abs(luminance(palette[f"fails-{step}"]) - luminance(palette["paper"])) for step in range(1, 5)]
        assert away == sorted(away)
        assert len(set(away)) == 4


def test_types_of_test_are_explained_once() -> None:
    html = section(render_page(page(MATRIX, dataclasses.replace(MATRIX, title="Another"))))
    for name in ("Minimum functionality", "Invariance", "Directional expectation"):
        assert html.count(f"<strong>{name}</strong>:") == 1
    assert "Ribeiro et al. 2020" in html
    assert re.findall(r"<h3>(.*?)</h3>", html) == ["By type", "Another"]
    assert html.count('<p class="every">Over pairs.</p>') == 2


@pytest.mark.parametrize("payload", PAYLOADS)
def test_all_text_is_text(payload: str) -> None:
    def made(text: str) -> Matrix:
        checks = [Check(text, text, 9, 2, [text, text])]
        return Matrix(text, [text, "r"], [text, "c"], {(text, text): checks}, about=text)

    hostile, plain = read(made(payload)), read(made("T"))
    assert hostile.tags == plain.tags
    assert hostile.opened == [["Show all 2 failures", payload, payload]]
    assert hostile.rows[1][:2] == [[payload], [payload, payload, "fails in 22.2% of 9", payload]]


def test_nothing_runs_and_nothing_is_fetched() -> None:
    html = section(render_page(page(MATRIX)))
    assert set(re.findall(r"<([a-z0-9]+)", html)) == {
        "section", "h2", "h3", "p", "ul", "ol", "li", "strong", "span", "div", "details", "summary",
        "table", "thead", "tbody", "tr", "th", "td",
    }  # fmt: skip
    assert not re.search(r"\b(?:style|on\w+|href|src)=", html)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({("symmetry", "other"): [SWAP]}, "none of its rows and columns"),
        ({("other", "invariance"): [SWAP]}, "none of its rows and columns"),
        ({("symmetry", "invariance"): [Check("k", "", 3, 4)]}, "'k' failed in 4 of 3 cases"),
        ({("symmetry", "invariance"): [Check("k", "", 3, -1)]}, "'k' failed in -1 of 3 cases"),
    ],
)
def test_what_cannot_be_told_is_refused(cells: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render_page(page(Matrix("T", ["symmetry"], ["invariance"], cells)))


def test_a_told_run_has_its_checklists_on_its_page(tmp_path: Path) -> None:
    manifest: dict[str, Any] = json.loads(
        '{"model": "m", "protocol": "exact", "command": "c", "python": "p", "created": "now", "seed": 7,'
        ' "versions": {}, "machine": {}}'
    )
    told = Told("T", "lead", asked=["Q?"], examples=[], matrices=(MATRIX,))
    tell_run(tmp_path, Record(manifest, pd.DataFrame(), []), told, [], [])
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert section(html) == section(render_page(page(MATRIX)))


@pytest.mark.parametrize(("width", "height", "tall"), [(800, 400, False), (800, 960, False), (576.5, 700.25, True)])
def test_a_tall_figure_is_not_printed_too_small_to_be_read(width: float, height: float, tall: bool) -> None:
    figure = PageFigure("one", SVG.format(width, height), "A caption.", "What it shows.")
    html = render_page(dataclasses.replace(page(), figures=[figure]))
    assert ('<img class="tall" src=' in html) is tall
    assert ".sheet img.tall { max-height:" in html
