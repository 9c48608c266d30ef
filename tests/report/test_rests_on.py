"""What findings rest on, as the page tells it: assumptions once, findings with what a graph refuses them, all of it text."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from undertow.records import Record
from undertow.report import Page, PageFigure, render_page
from undertow.report.graph import GraphShape, draw_graph
from undertow.report.page import UNFOLDED_FINDINGS, PageAssumption, PageGrounds
from undertow.report.telling import tell_run
from undertow.types import Finding, Result, Told

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>'
PAYLOADS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}{% for x in y %}{# c #}",
    "</code></pre></table><svg onload=alert(1)>",
    "&lt;b&gt; &amp; W -> X <- Z",
]
DOUBT = "This is not evidence of selection: W causes Y."
FINDINGS = (
    Finding("it drifts", True, 9.0),
    Finding("it is right", True, 5.0, rests=False),
    Finding("nothing moved", False, 1.0),
)
ROWS = (
    PageAssumption("W is in the text", True, "granted", "W -> X"),
    PageAssumption("W is no cause of Y", False, "not granted", "W -> Y"),
    PageAssumption("a text leaves little to W", None, "not for a graph to say", "sizes"),
)


def grounds(**parts: Any) -> PageGrounds:
    made: dict[str, Any] = {
        "kind": "drift with W",
        "graph": "W -> X; W -> Y",
        "about": ["A graph is named.", "W is the date."],
        "tally": "It grants 1.",
        "assumptions": ROWS,
        "doubt": DOUBT,
        "figure": PageFigure("graph", SVG, "Arrows.", "W causes X."),
    }
    return PageGrounds(**made | parts)


def page(found: PageGrounds | None, *findings: Finding) -> str:
    return render_page(
        Page(
            title="An audit",
            lead="It moved.",
            findings=findings or FINDINGS,
            results=[Result("slope", {"model": "m"}, 0.5, n=3)],
            figures=[PageFigure("dates", SVG, "A caption.", "What it shows.")],
            grounds=found,
        )
    )


def section(html: str, name: str = "grounds") -> str:
    (found,) = re.findall(rf'<section id="{name}".*?</section>\n', html, re.DOTALL)
    return str(found)


def listed(html: str, heading: str) -> list[str]:
    """The items of the lists between a heading and the next."""
    (part,) = re.findall(rf"<h[23]>{heading}</h[23]>(.*?)(?=<h[23]|</section>)", html, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", item).split()) for item in re.findall(r"<li>(.*?)</li>", part, re.DOTALL)]


def test_the_section_stands_between_figures_and_numbers() -> None:
    html = page(grounds())
    at = [html.index(f'<section id="{name}"') for name in ("findings", "figures", "grounds", "numbers")]
    assert at == sorted(at)
    assert html.count('href="#grounds"') == 2, "the contents and the sentence under the finding lead there"


def test_a_page_without_a_graph_is_what_is_left_when_the_section_is_taken_out() -> None:
    html = page(grounds(doubt=""))
    html = html.replace(section(html), "").replace('<li><a href="#grounds">What they rest on</a></li>\n', "")
    style = html.partition("<style>")[2].partition("</style>")[0]
    plain = page(None)
    before = plain.partition("<style>")[2].partition("</style>")[0]
    assert style.startswith(before)
    assert html.replace(style, before) == plain
    assert not any(word in plain for word in ("grounds", "doubt", "assumption"))


def test_every_assumption_has_a_row_that_says_whether_it_is_granted() -> None:
    cells = re.findall(r"<td>(.*?)</td>", section(page(grounds())))
    assert cells == [
        "W is in the text", '<strong class="granted">granted</strong>', "W -&gt; X",
        "W is no cause of Y", '<strong class="refused">not granted</strong>', "W -&gt; Y",
        "a text leaves little to W", '<strong class="unsaid">not for a graph to say</strong>', "sizes",
    ]  # fmt: skip


def test_findings_stand_by_what_they_rest_on() -> None:
    html = page(grounds())
    assert listed(section(html), "Findings that rest on these") == ["it drifts"]
    assert listed(section(html), "Findings that rest on none of these") == ["it is right"]
    assert "nothing moved" not in section(html)
    assert "Where nothing was found" in section(html)


def test_only_what_is_found_and_rests_on_them_carries_the_doubt() -> None:
    told = section(page(grounds()), "findings")
    assert listed(told, "What was found") == [f"it drifts {DOUBT} What it rests on", "it is right"]
    assert listed(told, "Where nothing was found") == ["nothing moved"]


def test_nothing_is_doubted_where_all_is_granted() -> None:
    html = page(grounds(assumptions=ROWS[:1], doubt=""))
    assert not re.findall(r'class="doubt"', html)
    assert listed(section(html), "Findings that rest on these") == ["it drifts"]


def test_where_nothing_is_found_nothing_is_listed() -> None:
    html = section(page(grounds(), Finding("nothing moved", False, 1.0)))
    assert "Findings that rest on" not in html
    assert "That selection left nothing to find would rest on the same assumptions." in html
    assert "Where nothing was found" not in section(page(grounds(), FINDINGS[0]))


def test_many_findings_are_folded_and_each_carries_the_doubt() -> None:
    n_findings = UNFOLDED_FINDINGS + 5
    html = page(grounds(), *(Finding(f"finding {at}", True, float(-at)) for at in range(n_findings)))
    assert section(html, "findings").count(DOUBT) == n_findings
    assert section(html).count(DOUBT) == 1
    assert section(html).count("<summary>5 more, weaker ones</summary>") == 1


@pytest.mark.parametrize("payload", PAYLOADS)
def test_all_text_is_text(payload: str) -> None:
    def whole(text: str) -> str:
        rows = [PageAssumption(text, holds, text, text) for holds in (True, False, None)]
        figure = PageFigure(text, SVG, text, text)
        told = grounds(kind=text, graph=text, about=[text], tally=text, assumptions=rows, doubt=text, figure=figure)
        return page(told, Finding(text, True, 1.0), Finding(text, True, 2.0, rests=False))

    html, plain = whole(payload), whole("T")
    tags = re.compile(r"</?[a-z0-9]+")
    assert tags.findall(html) == tags.findall(plain)
    # Who, graph, kind, tally, nine cells, doubt, two findings, caption, alt and the same in words, name of the figure.
    assert unescape(section(html)).count(payload) == 20
    assert unescape(section(html, "findings")).count(payload) == 3


def test_a_told_run_holds_its_graph_as_a_figure_and_on_its_page(tmp_path: Path) -> None:
    manifest: dict[str, Any] = json.loads(
        '{"model": "m", "protocol": "exact", "command": "c", "python": "p", "created": "now", "seed": 7,'
        ' "versions": {}, "machine": {}}'
    )
    told = Told("T", "lead", asked=["Q?"], examples=[])
    drawing = draw_graph(GraphShape(("W", "X", "Y"), (("W", "X"), ("X", "Y"))), "graph")
    record = Record(manifest, pd.DataFrame(), [])
    tell_run(tmp_path, record, told, FINDINGS, [], grounds=(grounds(figure=None), drawing))
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["graph.png", "graph.svg"]
    html = section((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert f'alt="{drawing.alt}"' in html
    assert drawing.caption in html
    tell_run(tmp_path, record, told, FINDINGS, [])
    assert not list((tmp_path / "figures").iterdir())
    assert 'id="grounds"' not in (tmp_path / "report.html").read_text(encoding="utf-8")
