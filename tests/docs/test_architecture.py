from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

import undertow
from conftest import ROOT, Cli, make_quick

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src/undertow"
FILE = re.compile(r"Write,\s+as\s+`([\w./]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    table = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in table[2:]]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_files_hold_what_the_tables_name() -> None:
    steps = rows(section("The data flow"))
    questions = rows(section("Where is ...?"))
    assert len(steps) >= 7
    assert len(questions) == 12
    for _, file, look_for in [*steps, *questions]:
        text = (SOURCE / file.strip("`")).read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", look_for):
            assert re.search(rf"\b{name}\b", text), f"{file}: {name}"


def test_every_file_that_the_page_names_exists() -> None:
    own = {name for name, _ in FILE.findall(PAGE)}
    prose = re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    for name in re.findall(r"`([\w./]+(?:\.py|/))`", prose):
        if name not in own and name != "src/undertow/":
            places = [SOURCE, SOURCE / "models/families", SOURCE / "metrics"]
            assert any((place / name).exists() for place in places), name


def test_rooms_are_those_of_the_contract_in_its_order() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    named = [set(re.findall(r"`(\w+)`", room)) for room, _ in rows(section("The rooms"))]
    assert named == [set(layer.split(" | ")) for layer in layers]
    on_disk = {
        path.stem
        for path in SOURCE.iterdir()
        if path.name not in ("__pycache__", "py.typed", "__init__.py", "pytest_plugin.py")
    }
    assert set.union(*named) == on_disk


@pytest.mark.slow
def test_the_code_of_the_page_runs(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = dict(FILE.findall(PAGE))
    modules = {f"tense/{name}.py" for name in ("mean_share", "spread", "audit", "family")}
    assert {*modules, "pyproject.toml", "school.toml"} == set(files)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    groups = tomllib.loads(files["pyproject.toml"])["project"]["entry-points"]
    installed = tmp_path / "tense-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tense\nVersion: 1\n", encoding="utf-8")
    lines = [f"[{group}]\n{name} = {module}\n" for group, names in groups.items() for name, module in names.items()]
    (installed / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)

    adding = section("Adding to it")
    commands = [line.split()[1:] for block in blocks(adding, "sh") for line in block.splitlines()]
    assert len(commands) == 4
    for command in commands:
        done = cli(*command)
        assert done.returncode == 0, f"{command}: {done.stderr}"
    (script,) = (block for block in blocks(adding, "python") if block.startswith("import undertow\n"))
    exec(compile(script, "architecture.md", "exec"), {})
    assert "mean_share" in capsys.readouterr().out

    run = undertow.load_run(tmp_path / "runs/tense")
    (result,) = run.results.to_dict("records")
    assert (result["value"], result["n"]) == (pytest.approx(60.0), 8)
    assert [finding.text for finding in run.findings] == ["first-option gives the present tense 60% of the two tenses."]
    assert run.findings[0].significant
    assert len(undertow.load_run(tmp_path / "runs/toy").observations) == 2
    make_quick(monkeypatch, page=True)
    added = undertow.audit("spurious-correlation", "toy", w="date", date_count=6, limit=60, out=tmp_path / "added")
    (spread,) = [one for one in added.record.results if one.measure == "group_spread"]
    means = added.observations[["female", "male", "neutral"]].mean()
    assert spread.unit == "percentage points"
    assert spread.value == pytest.approx(means.max() - means.min())
    page = added.report.read_text(encoding="utf-8")
    assert "Spread of groups" in page
    assert "largest less smallest mean share of the word groups" in page
    for module in [name for name in sys.modules if name.partition(".")[0] == "tense"]:
        del sys.modules[module]
