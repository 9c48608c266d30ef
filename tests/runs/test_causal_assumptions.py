from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import undertow
from conftest import make_quick
from helpers.file_refusal import assert_refused
from undertow import audits, models
from undertow.causal.assumptions import DRIFT, SPECIFICATION
from undertow.causal.graph import read_graph
from undertow.causal.published import published
from undertow.runs import pipeline
from undertow.runs.causal_assumptions import named_graph
from undertow.runs.pipeline import Run

AUDIT, OTHER = "spurious-correlation", "task-specification"
TINY: dict[str, Any] = {"w": "date", "date_count": 8, "limit": 16}
MINE = (
    "birth -> text; birth -> pronoun; gender -> pronoun\nfeatures text; label pronoun; cause gender; covariate birth\n"
)


def run(folder: Path, graph: str | Path = "", **options: Any) -> Run:
    return undertow.audit(AUDIT, model="toy:slope=20", graph=graph, out=folder, **TINY | options)


def page(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def manifest(folder: Path) -> dict[str, Any]:
    held: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return held


@pytest.fixture(autouse=True)
def no_other_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the audits have tests of their own, and take most of the time."""
    for name in (AUDIT, OTHER):
        monkeypatch.setattr(audits.load(name), "draw", lambda *_: iter(()))


@pytest.fixture
def nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for a model fails the test."""

    def resolve(request: object) -> None:
        pytest.fail(f"{request} was looked for")

    monkeypatch.setattr(models, "resolve", resolve)


def test_a_graph_is_kept_and_told_and_changes_nothing_that_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(tmp_path / "plain")
    make_quick(monkeypatch, page=True)
    named = run(tmp_path / "named", "unspecified")
    assert named.manifest["run_key"] == plain.manifest["run_key"]
    for name in ("results.json", "results.csv", "observations.parquet"):
        assert (named.folder / name).read_bytes() == (plain.folder / name).read_bytes(), name
    known = published()["unspecified"]
    assert manifest(named.folder)["graph"] == {
        "name": "unspecified", "title": known.title, "source": known.source, "text": known.graph.text(),
    }  # fmt: skip
    assert named.manifest["command"].endswith(" --graph unspecified")
    assert named.manifest["python"].endswith(", graph='unspecified')")
    assert 'id="causal_assumptions"' in page(named.folder)
    for suffix in ("svg", "png"):
        assert (named.folder / f"figures/graph.{suffix}").stat().st_size > 0
    rests = named.causal_assumptions
    assert rests is not None
    assert (rests.kind, rests.w_names, rests.caveat) == (DRIFT, ("date",), "")
    assert [row.holds for row in rests.assumptions] == [True] * 6


def test_a_run_is_opened_with_its_graph_and_told_anew_with_another(tmp_path: Path) -> None:
    folder, mine = tmp_path / "run", tmp_path / "mine.txt"
    mine.write_text(MINE, encoding="utf-8")

    def told_anew(graph: str | Path) -> bool:
        before = (folder / "manifest.json").stat().st_ino if folder.exists() else 0
        made = run(folder, graph).manifest
        assert made["counts"]["computed"] == (0 if before else 16)
        assert made["command"].count(" --graph ") == made["python"].count(", graph=") == bool(graph)
        return (folder / "manifest.json").stat().st_ino != before

    assert [told_anew(graph) for graph in ("", "", "unspecified", "unspecified", mine, mine)] == [
        True, False, True, False, True, False,
    ]  # fmt: skip
    key = manifest(folder)["run_key"]
    mine.write_text(MINE.replace("birth -> pronoun;", ""), encoding="utf-8")
    assert told_anew(mine), "the same file, but another graph in it"
    assert "birth -> pronoun" not in page(folder)
    assert told_anew("")
    assert "graph" not in manifest(folder)
    assert manifest(folder)["run_key"] == key


@pytest.mark.page
def test_a_run_is_told_and_measured_again_without_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text(MINE, encoding="utf-8")
    first = run(tmp_path / "run", mine)
    mine.unlink()
    told = page(first.folder)
    (first.folder / "report.html").unlink()
    assert undertow.render_report(first.folder).read_text(encoding="utf-8") == told
    again = undertow.score(first.folder, out=tmp_path / "again")
    assert page(again.folder) == told
    make_quick(monkeypatch)
    other = undertow.score(first.folder, seed=5, out=tmp_path / "other")
    both = undertow.score(first.folder, seed=5, graph="W -> X; W -> Y", out=tmp_path / "both")
    assert both.manifest["command"] == f"undertow score {first.folder} --seed 5 --graph 'W -> X; W -> Y'"
    for made in (undertow.load_run(first.folder), again, other):
        assert made.causal_assumptions is not None
        assert made.causal_assumptions.named_graph.graph == read_graph(MINE)
        assert made.manifest["graph"]["name"] == str(mine)


def test_a_damaged_graph_is_refused_and_can_be_named_again(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", "access").folder
    whole, nameless = manifest(folder), {"name": "", "title": "", "source": ""}
    for entry in ("unspecified", nameless, nameless | {"text": 3}, nameless | {"text": "W ->"}):
        (folder / "manifest.json").write_text(json.dumps(whole | {"graph": entry}), encoding="utf-8")
        assert_refused(("graph",), undertow.render_report, folder)
    undertow.render_report(folder, "access")
    assert [manifest(folder)[name] == whole[name] for name in ("graph", "command", "python")] == [True] * 3
    (folder / "manifest.json").write_text(json.dumps(whole | {"python": "undertow.audit("}), encoding="utf-8")
    assert_refused(("manifest.json",), undertow.render_report, folder, "unspecified")


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ("nosuch.txt", ["nosuch.txt", "well-specified, unspecified, access, access-masked"]),
        ("W -> X -> W", ["line 1", "cycle"]),
        ("A -> B", ["X"]),
        (Path("folder"), ["folder: "]),
    ],
)
@pytest.mark.usefixtures("nobody_is_asked")
def test_a_graph_that_is_none_is_refused_before_any_model_is_looked_for(
    graph: str | Path, words: list[str], in_folder: Path
) -> None:
    Path("folder").mkdir()
    for asking in (undertow.audit, pipeline.dry_run):
        assert_refused(tuple(words), asking, AUDIT, model="toy", graph=graph, **TINY)
    assert [path.name for path in in_folder.iterdir()] == ["folder"]


@pytest.mark.parametrize("name", audits.names())
@pytest.mark.usefixtures("nobody_is_asked")
def test_every_audit_says_what_it_rests_on_or_takes_no_graph(name: str, tmp_path: Path) -> None:
    kind = audits.load(name).causal_claim
    assert kind == {AUDIT: DRIFT, OTHER: SPECIFICATION}.get(name, "")
    if kind:
        assert named_graph(name, "unspecified")["text"] == published()["unspecified"].graph.text()
        return
    with pytest.raises(undertow.UndertowError, match=f"{name}: .*--graph.* {AUDIT}, {OTHER}"):
        undertow.audit(name, model="toy", graph="unspecified", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.page
def test_what_a_sentence_decides_rests_on_no_w(tmp_path: Path) -> None:
    """Where sentences decide, the model is right whatever the date; where they do not, the date moves it."""
    head = "model,occupation,participant_class,coreferent,w_first_female,w_first_male,w_last_female,w_last_male"
    rows = [
        row
        for at in range(12)
        for row in (
            f"m,job {at},woman,1,95,5,95,5",
            f"m,job {at},man,1,5,95,5,95",
            f"m,job {at},woman,0,{30 + at},{70 - at},{60 + 2 * at},{40 - 2 * at}",
        )
    ]
    (tmp_path / "ends.csv").write_text("\n".join([head, *rows, ""]), encoding="utf-8")
    made = undertow.score(tmp_path / "ends.csv", audit=OTHER, graph="W -> X; W -> Y", out=tmp_path / "run")
    by_rest = {
        rests: [one.text for one in made.findings if one.significant and one.causal_claim is rests]
        for rests in (True, False)
    }
    assert ["right word" in text for text in by_rest[False]] == [True]
    assert len(by_rest[True]) >= 2
    told = page(made.folder)
    assert told.count('<span class="doubt">') == len(by_rest[True])
    assert made.causal_assumptions is not None
    assert "W causes Y other than through the features" in made.causal_assumptions.caveat
