from __future__ import annotations

import math
import re
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from undertow.causal.assumptions import Assumption
from undertow.causal.describe import GraphShape
from undertow.report import Page, PageFigure, render_page
from undertow.report.figures.causal_graph import draw_graph
from undertow.report.inline_svg import page_figure
from undertow.report.page_data import Checklist, ChecklistTest, PageAssumptions, ReportTable, ReportText
from undertow.runs.folder.storage import Record
from undertow.runs.run_report import render_run
from undertow.types import Finding, Result

MANIFEST: dict[str, Any] = dict.fromkeys(("command", "python", "created"), "told") | {
    "model": "m", "protocol": "exact", "seed": 7, "versions": {}, "machine": {},
}  # fmt: skip
"""Of a run of which only its page is looked at."""


def section(html: str, name: str) -> str:
    (found,) = re.findall(rf'<section id="{name}".*?</section>\n', html, re.DOTALL)
    return str(found)


SVG = '<svg viewBox="0 0 {} {}"></svg>'
DRIFTS, RIGHT = Finding("it drifts", True, 9.0), Finding("it is right", True, 5.0, causal_claim=False)
NOTHING = Finding("nothing moved", False, 1.0)


def page(**parts: Any) -> str:
    results = [Result("slope", {"model": "m"}, 0.5, n=3)]
    usual = {"title": "T", "lead": "L", "findings": (DRIFTS, RIGHT, NOTHING), "results": results}
    return render_page(Page(**usual | parts))


def listed(html: str) -> list[str]:
    return [" ".join(re.sub(r"<[^>]+>", " ", item).split()) for item in re.findall(r"<li>(.*?)</li>", html, re.DOTALL)]


def test_a_run_has_its_checklist_and_its_graph_on_its_page(tmp_path: Path) -> None:
    told = ReportText("T", "lead", questions=["Q?"], examples=[], matrices=(MATRIX,))
    drawing = draw_graph(GraphShape(("W", "X", "Y"), (("W", "X"), ("X", "Y"))), "graph")
    on_page = causal_assumptions(figure=page_figure(drawing)), drawing
    render_run(tmp_path, Record(MANIFEST, pd.DataFrame(), []), told, (DRIFTS,), list, causal_assumptions=on_page)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert section(html, "checklist") == section(page(matrices=(MATRIX,)), "checklist")
    assert drawing.caption in section(html, "causal_assumptions")


def test_tables_are_folded_with_their_numbers_of_rows() -> None:
    for size, is_long in ((60, False), (61, True)):
        html = section(page(tables=[ReportTable("T", ["n"], [[str(n)] for n in range(size)])]), "tables")
        assert f"{size} rows</span></summary>" in html
        assert ('class="scroll long"' in html) is is_long
    with pytest.raises(ValueError, match="'T'"):
        page(tables=[ReportTable("T", ["a", "b"], [["1"]])])


DOUBT = "This is not evidence of selection: W causes Y."
ROWS = (
    Assumption("W is in the text", True, "W -> X"),
    Assumption("W is no cause of Y", False, "W -> Y"),
    Assumption("a text leaves little to W", None, "sizes"),
)


def causal_assumptions(**parts: Any) -> PageAssumptions:
    figure = PageFigure("graph", SVG.format(1, 1), "Arrows.", "W causes X.")
    made: dict[str, Any] = {"summary": "It grants 1.", "assumptions": ROWS, "caveat": DOUBT, "figure": figure} | parts
    return PageAssumptions("drift with W", "W -> X; W -> Y", ["W is the date."], **made)


def test_findings_are_listed_by_what_they_rest_on_and_only_those_that_do_carry_the_doubt() -> None:
    html = page(causal_assumptions=causal_assumptions())
    assert listed(section(html, "causal_assumptions"))[-2:] == ["it drifts", "it is right"]
    assert [DOUBT in item for item in listed(section(html, "findings"))] == [True, False, False]
    granted = page(causal_assumptions=causal_assumptions(assumptions=ROWS[:1], caveat=""))
    assert 'class="doubt"' not in granted
    nothing = section(page(causal_assumptions=causal_assumptions(), findings=[NOTHING]), "causal_assumptions")
    assert "Findings that need" not in nothing
    n_findings = 15
    findings = [Finding(f"finding {at}", True, float(-at)) for at in range(n_findings)]
    many = page(causal_assumptions=causal_assumptions(), findings=findings)
    assert [section(many, name).count(DOUBT) for name in ("findings", "causal_assumptions")] == [n_findings, 1]
    for name in ("findings", "causal_assumptions"):
        assert section(many, name).index("finding 1<") < section(many, name).index("<summary>5 more")


COLUMNS = ("minimum functionality", "invariance", "directional expectation")
SWAP = ChecklistTest("swap", "Order does not matter.", 400, 50, ["Amy, Bob.\n  Who?", "Bob <b>&amp;</b> Amy"])
CELLS = {
    ("symmetry", "invariance"): [SWAP, ChecklistTest("answers", "Nor that of the answers.", 1200, 0)],
    ("negation", "directional expectation"): [ChecklistTest("less", "It turns round.", 10_000, 9_999, ["one"])],
    ("negation", "minimum functionality"): [ChecklistTest("three names", "A chain holds.", 0, 0)],
}
MATRIX = Checklist("By type", ("symmetry", "negation"), COLUMNS, CELLS, about="Over pairs.")


def test_every_test_is_in_the_cell_of_its_capability_and_type_and_opens_to_its_failures() -> None:
    html = section(page(matrices=[MATRIX]), "checklist")
    rows = [
        [
            unescape(re.sub(r"\s*<[^>]+>\s*", "|", cell)).strip("|")
            for cell in re.findall("<t[hd].*?>(.*?)</t[hd]>", row, re.DOTALL)
        ]
        for row in re.findall("<tr>.*?</tr>", html, re.DOTALL)
    ]
    assert [row[0] for row in rows] == ["capability", "symmetry", "negation"]
    assert rows[0][1:] == list(COLUMNS)
    names = ("swap", "answers", "less", "three names")
    assert [[{name for name in names if name in cell} for cell in row[1:]] for row in rows[1:]] == [
        [set(), {"swap", "answers"}, set()],
        [{"three names"}, set(), {"less"}],
    ]
    assert "fails in 12.5% of 400" in rows[1][2]
    assert "passes in all 1,200" in rows[1][2]
    assert "fails in more than 99.9% of 10,000" in rows[2][3]
    assert "Amy, Bob.\n  Who?" in html
    assert "Bob &lt;b&gt;&amp;amp;&lt;/b&gt; Amy" in html
    assert html.count("<details>") == 2, "closed until the reader opens them"


READ = MANIFEST | {"model_identity": {"name": "m", "scoring_method": "likelihood", "dtype": "float32"}}


def rows(model: str, *cells: tuple[int, float], prompt: str = "", w_name: str = "date") -> list[dict[str, Any]]:
    """Rows of a W index and a mass on other words, in clusters of their own index; NaN is missing."""
    shared = {"model": model, "challenge": "mgc", "prompt": prompt, "w_name": w_name}
    reasons = ["it broke" if math.isnan(mass) else "" for _, mass in cells]
    return [
        shared | {"w_index": at, "cluster": f"c{at}", "other_words": mass, "missing_reason": reason}
        for (at, mass), reason in zip(cells, reasons, strict=True)
    ]


FRAME = pd.DataFrame(
    rows("m", (0, 10.0), (0, 20.0), (1, 40.0), (2, math.nan))
    + rows("m", (0, 90.0), w_name="place")
    + rows("m", (0, 60.0), prompt="A")
    + rows("other", (0, 5.0))
)


def run_page(folder: Path, frame: pd.DataFrame, *findings: Finding) -> str:
    told = ReportText("T", "lead", questions=[], examples=[])
    render_run(folder, Record(READ, frame, [one for each in findings for one in each.results]), told, findings, list)
    return (folder / "report.html").read_text(encoding="utf-8")


def test_texts_that_several_models_were_asked_count_once(tmp_path: Path) -> None:
    page = run_page(tmp_path, FRAME.assign(text=[f"t{at}" for at in (0, 1, 2, 3, 4, 0, 0)]))
    assert "<dd>5 texts in 3 clusters, 7 items from 2 models, 1 missing</dd>" in page


def test_a_finding_says_what_was_asked_and_what_nobody_claimed(tmp_path: Path) -> None:
    group = {"model": "m", "challenge": "mgc", "prompt": "", "w_name": "date"}
    html = run_page(tmp_path, FRAME, Finding("it drifts", True, 1.0, results=(Result("slope", group, 1.0, n=3),)))
    (found,) = re.findall(r'<details class="basis">.*?</dl>', html, re.DOTALL)
    told = {name: unescape(text) for name, text in re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", found)}
    assert {name: text for name, text in told.items() if not name.startswith("Slope")} == {
        "asked": "4 texts in 3 clusters, 1 missing",
        # Every value of W counts the same: (15 + 40) / 2, where the mean over texts would be 23.3.
        "mass on other words": "27.5% on average went to words outside the listed words",
        "protocol": "exact; scored by likelihood, in float32",
    }
