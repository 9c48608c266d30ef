from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import undertow
from conftest import Cli
from helpers.file_refusal import assert_refused
from undertow.report.citation import bibliography
from undertow.report.page_data import ReportTable
from undertow.report.paper_table import paper_tables
from undertow.types import Result

ROOT = Path(__file__).parents[2]
MINUS = "\N{MINUS SIGN}"


@pytest.fixture
def drift(finished_run: Callable[..., Path]) -> Path:
    return finished_run("spurious-correlation", ["toy:slope=-1", "toy:slope=-3"], w="date")


def test_table_is_the_results_with_r_beside_the_slope(drift: Path) -> None:
    run = undertow.load_run(drift)
    table = run.table()
    assert list(table["model"].unique()) == ["toy:slope=-1", "toy:slope=-3"]
    for result in run.record.results:
        if result.measure in ("slope", "pearson_r"):
            is_row = (table["model"] == result.group["model"]) & (table["pronoun"] == result.group["pronoun"])
            (told,) = table.loc[is_row, "value" if result.measure == "slope" else "pearson_r"]
            assert told == pytest.approx(result.value, nan_ok=True)
    assert set(run.table("slope")["measure"]) == {"slope"}
    assert_refused(("no table 'slop' (did you mean 'slope'",), run.table, "slop")


def test_latex_and_markdown_have_a_cell_for_each_column_and_escape_names() -> None:
    results = [
        Result("slope", {"model": f"a_{at}|&"}, -0.5 - at, -0.9 - at, -0.1 - at, n=9, p=0.001, q=0.01) for at in (0, 1)
    ]
    table = paper_tables(results, (), [], "About 9% of it.")["slope"]
    latex = table.to_latex()
    body = latex.split("\\midrule\n")[1].split("\n\\bottomrule")[0].split("\n")
    assert body[0] == r"a\_0\textbar{}\& & \textbf{$-$0.50} & [$-$0.90, $-$0.10] & .001 & .010 & 9 \\"
    assert latex.count("{") == latex.count("}")
    assert r"About 9\% of it. 95\% intervals" in latex
    heads, rule, first, *_ = table.to_markdown().split("\n")
    assert len(re.findall(r"(?<!\\)\|", heads)) == len(re.findall(r"(?<!\\)\|", first)) == rule.count("|")
    assert rf"| a_0\|&amp; | **{MINUS}0.50** |" in first


def test_table_in_a_paper_s_layout_has_numbers_where_its_cells_are_numbers() -> None:
    given = ReportTable("T", ["name", "x", "y"], [["a", f"{MINUS}1.5", "1.0 ± 2.0"], ["b", "", "3.0"]])
    frame = paper_tables([], (), [given], "A run.")["paper-1"].frame
    assert frame["x"].tolist()[0] == -1.5
    assert frame["x"].isna().tolist() == [False, True]
    assert frame["y"].tolist() == ["1.0 ± 2.0", "3.0"]


def test_figure_has_the_width_and_the_format_that_a_paper_needs(drift: Path) -> None:
    run = undertow.load_run(drift)
    figure = run.figure(width=3.3, title=False)
    assert figure.get_figwidth() == 3.3
    assert not any("toy" in text.get_text() and text.get_fontweight() == "bold" for text in figure.texts)
    pdf = run.figure(width=3.3, format="pdf", title=False)
    assert pdf.startswith(b"%PDF")
    assert b"/FontFile2" in pdf  # its text is text, in an embedded TrueType font
    assert pdf == run.figure(width=3.3, format="pdf", title=False)
    assert run.figure(run.figure_names[1])._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert_refused(("has no figure 99",), run.figure, 99)
    assert_refused(("cannot be drawn",), run.figure, width=0.5)


def test_methods_paragraph_holds_the_numbers_of_the_run_and_cites_what_it_rests_on(drift: Path) -> None:
    run = undertow.load_run(drift)
    cited = run.cite()
    n_tests = max(one.n_tests for one in run.findings)
    for number in (
        f"{len(run.observations):,} items",
        "60 clusters",
        f"{n_tests} tests",
        "30 values from 1801 to 2016",
        "seed 0",
    ):
        assert number in cited.methods
    keys = re.findall(r"^@\w+\{([^,]+),", cited.bibtex, re.MULTILINE)
    assert keys == ["undertow", "mcmilin2024underspecification", "mcmilin2022selection"]
    assert rf"\cite{{{','.join(keys)}}}" in cited.latex
    assert r"spurious-correlation" in cited.latex
    assert "[undertow" not in cited.latex


def test_methods_of_a_recorded_table_say_nothing_of_a_model_that_was_not_loaded(tmp_path: Path) -> None:
    rows = [f"{m},date,{w},{1900 + w},{s},{40 + w},{30 - w}" for m in "mn" for s in range(6) for w in range(8)]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["model,w_name,w_index,w,cluster,female,male", *rows]), encoding="utf-8")
    methods = undertow.score(table, audit="spurious-correlation", out=tmp_path / "run").cite().methods
    assert "on 2 models: m; n. It uses recorded outputs (t.csv): 96 items" in methods


def test_bibliography_agrees_with_the_citation_file() -> None:
    listed = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"version: {project['version']}" in listed
    for entry in bibliography().values():
        (title,) = re.findall(r"^  title = \{(.*)\},", entry, re.MULTILINE)
        assert title.replace("{", "").replace("}", "") in listed
    from undertow import audits

    for name in audits.AUDITS:
        assert audits.load(name).references
        assert set(audits.load(name).references) <= set(bibliography())


def test_commands_print_tables_figures_and_citations(cli: Cli, drift: Path, tmp_path: Path) -> None:
    text = cli("table", str(drift))
    assert text.stdout.startswith("model\tword group\tSlope")
    assert "--list names them" in text.stderr
    titles = [line.split("\t")[1] for line in cli("table", str(drift), "--list").stdout.splitlines()[1:]]
    assert len(set(titles)) == len(titles)
    assert r"\begin{tabular}" in cli("table", str(drift), "--format", "latex").stdout
    assert cli("table", str(drift), "--format", "csv", "--table", "slope").stdout.startswith(
        "model,pronoun,measure,value"
    )
    assert "did you mean" in cli("table", str(drift), "--table", "slop").stderr
    listed = cli("figure", str(drift), "--list").stdout.split()
    assert listed == undertow.load_run(drift).figure_names
    drawn = cli("figure", str(drift), "--name", listed[-1], "--out", "one.pdf")
    assert drawn.stdout.startswith("one.pdf: 3.30 x ")
    assert (tmp_path / "one.pdf").read_bytes().startswith(b"%PDF")
    assert "exists already" in cli("figure", str(drift), "--name", listed[-1], "--out", "one.pdf").stderr
    assert r"\cite{undertow,mcmilin" in cli("cite", str(drift), "--latex").stdout


def test_label_names_the_model_everywhere_and_changes_no_number(tmp_path: Path) -> None:
    options: dict[str, Any] = {"w": "date", "limit": 90}
    plain = undertow.audit("spurious-correlation", model="toy:slope=-2", out=tmp_path / "plain", **options)
    run = undertow.audit(
        "spurious-correlation", model=["base=toy", "tuned=toy:slope=-2"], out=tmp_path / "run", **options
    )
    assert [part["name"] for part in run.manifest["models"]] == ["base", "tuned"]
    assert run.manifest["models"][1]["counts"]["computed"] == 0
    assert {*run.observations["model"]} == {"base", "tuned"} == {*run.table()["model"]}
    assert "toy:slope=-2" not in " ".join(one.text for one in run.findings)
    assert run.manifest["command"].endswith("-m base=toy -m tuned=toy:slope=-2 --w date --limit 90")
    slopes, again = ([one.value for one in of.record.results if one.measure == "slope"] for of in (plain, run))
    assert again[len(slopes) :] == slopes
    for wrong, message in (
        (["a=toy", "a=toy:slope=-2"], "have the name 'a'"),
        (["a=*/checkpoint-*"], "no folder matches"),
    ):
        assert_refused((message,), undertow.audit, "spurious-correlation", model=wrong, **options)
