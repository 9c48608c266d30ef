from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

import undertow
from conftest import ROOT, Cli
from undertow import data, models
from undertow.runs.folder.model_info import read_model_info

PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
)
COMMAND = re.compile(r"^(?:\$ | *(?:- )?run: )?undertow ([^#`|>\n]+)", re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_files_of_the_pages_load(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    for text in blocks(ROOT / "docs/challenge-files.md", "toml")[:2]:
        own.write_text(text, encoding="utf-8")
        assert data.load(str(own)).items()
    prompt, about = blocks(ROOT / "docs/models.md", "toml")
    own.rename(tmp_path / "mine.toml").write_text(prompt, encoding="utf-8")
    assert [one.name for one in data.load_prompts(f"A,{tmp_path / 'mine.toml'}")] == ["A", "plain"]
    own.write_text(about, encoding="utf-8")
    assert read_model_info(own)["openai:my-model"]["parameters"] == 175e9
    assert set(read_model_info(ROOT / "examples/about.toml")) >= {"davinci", "roberta-base"}


def test_every_family_has_a_line_on_the_page() -> None:
    page = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    for name in models.families():
        assert f"| `{name}` |" in page, name


def test_commands_exist_with_their_options(cli: Cli) -> None:
    commands = {
        part.strip().removeprefix("undertow ")
        for page in PAGES
        if page.name != "architecture.md"  # runs an audit of its own: test_architecture.py
        for language in ("sh", "yaml")
        for block in blocks(page, language)
        for match in COMMAND.findall(block)
        for part in match.split("&&")
    }
    assert len(commands) >= 8
    helps: dict[tuple[str, ...], str] = {}
    for command in sorted(commands):
        words = command.split()
        path = tuple(words[: {"export": 3, "lab": 2, "list": 2, "run": 2, "cache": 2}.get(words[0], 1)])
        if path not in helps:
            shown = cli(*path, "--help")
            assert shown.returncode == 0, command
            helps[path] = shown.stdout
        for option in (word for word in words if re.match("--?[a-z]", word)):
            assert re.search(rf"(?<![\w-]){re.escape(option)}\b", helps[path]), f"{command}: {option}"


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
            if target.startswith(("https://", "http://")):
                continue
            other = page.parent / target if target else page
            assert other.exists(), f"{page.relative_to(ROOT)}: {target}"
            assert not anchor or anchor in anchors(other), f"{page.relative_to(ROOT)}: {target}#{anchor}"


def rows_of(heading: str, page: str = "development/published-outputs.md") -> list[list[str]]:
    section = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(heading)[2].partition("\n## ")[0]
    table = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in table[2:]]


@pytest.mark.slow
def test_published_numbers_of_the_page_are_printed(published_drift: Path) -> None:
    run = undertow.load_run(published_drift)
    results = run.results
    rows = rows_of("## Published outputs")
    told, decided = ([row for row in rows if len(row) == cells] for cells in (6, 9))
    assert len(told) == 5
    for model, prompt, w_name, pronoun, slope, r in told:
        where = (results[["model", "prompt", "w_name", "pronoun"]] == [model, prompt, w_name, pronoun]).all(axis=1)
        for measure, value in (("slope", slope), ("pearson_r", r)):
            (found,) = results[where & (results["measure"] == measure)]["value"]
            assert found == pytest.approx(float(value), abs=0.001), (model, w_name, pronoun, measure)
    measures = {"gap": ("slope_gap", "slope_gap_over_prompts"), "group": ("slope", "slope_over_prompts")}
    assert len(decided) == 2 + 24
    for model, w_name, pronoun, *cells in decided[2:]:
        kind = measures["gap" if " - " in pronoun else "group"]
        where = (results[["model", "w_name", "pronoun"]] == [model, w_name, pronoun.replace(" - ", "-")]).all(axis=1)
        ours = results[where & results["measure"].isin(kind) & results["q"].notna()]
        effect = results[where & results["measure"].isin(("w_effect", "w_effect_over_prompts")) & results["q"].notna()]
        (row,), (of_effect,) = ours.to_dict("records"), effect.to_dict("records")
        printed = [float(one) for cell in cells[:3] for one in re.findall(r"[-+]?\d*\.\d+", cell)]
        assert printed == pytest.approx([row[name] for name in ("value", "low", "high", "autocorrelation")], abs=0.006)
        for cell, q in zip(cells[3:], (of_effect["q"], row["q"], row["values_q"]), strict=True):
            assert (cell == "< .001") == (q < 0.001)
            assert cell == "< .001" or float(cell) == pytest.approx(q, abs=0.0006)
    assert isinstance(run.observations, pd.DataFrame)
    assert len(run.observations) == 24_000


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.resamples
def test_the_table_of_the_paper_is_printed(reference_data: Path, tmp_path: Path) -> None:
    """Rates of every pronoun group under protocol paper, and areas with their intervals under the default one."""
    recorded = reference_data / "recorded/specification_pronoun_mass.csv.gz"
    rows = rows_of("## Task specification: the published Table 3")
    rates, areas = ([row for row in rows if ("/" in row[3]) is kind and row[0] in SETS] for kind in (True, False))
    assert len(rates) == len(areas) == 8
    paper = undertow.score(recorded, audit="task-specification", protocol="paper", out=tmp_path / "paper").results
    for name, model, _, *groups in rates:
        for group, cell in zip(("female", "male", "neutral"), groups, strict=True):
            for measure, told in zip(("tpr", "tnr", "balanced_accuracy"), cell.split(" / "), strict=True):
                found = result_of(paper, name, model, f"delta_{group}", measure)["value"]
                assert found == pytest.approx(float(told), abs=0.0006), (name, model, group, measure)
    default = undertow.score(recorded, audit="task-specification", out=tmp_path / "default").results
    for name, model, *cells in areas:
        for score, cell in zip(("delta_female", "total_variation", "entropy", "combined"), cells, strict=True):
            numbers = [float(number) for number in re.findall(r"[01]?\.\d+", cell)]
            area = result_of(default, name, model, score, "auroc")
            assert list(area.values()) == pytest.approx(numbers, abs=0.0006), (name, model, score)


SETS = ("winogender", "simplified")


def result_of(results: pd.DataFrame, name: str, model: str, score: str, measure: str) -> dict[str, float]:
    keys = {"set": name, "model": model, "score": score, "measure": measure}
    (index,) = results.index[(results[list(keys)] == list(keys.values())).all(axis=1)]
    return {name: float(results[name][index]) for name in ("value", "low", "high")}


@pytest.mark.soak
@pytest.mark.model
@pytest.mark.slow
def test_numbers_of_the_default_model_are_printed(smollm2_found: object, cli_process: Cli, tmp_path: Path) -> None:
    """The main job, through the command line as a user runs it."""
    shown = cli_process("run", "spurious-correlation", "-q", "-m", "smollm2", "--out", str(tmp_path / "run"))
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == ""
    results = undertow.load_run(tmp_path / "run").results
    told = [row for row in rows_of("## The default model", "reproduction.md") if len(row) == 4]
    assert len(told) == 6
    for w_name, pronoun, slope, r in told:
        where = (results[["w_name", "pronoun"]] == [w_name, pronoun]).all(axis=1)
        for measure, value in (("slope", slope), ("pearson_r", r)):
            (found,) = results[where & (results["measure"] == measure)]["value"]
            assert found == pytest.approx(float(value), abs=0.01), (w_name, pronoun, measure)
