"""A suite file: several audits, one page, one verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import undertow
from conftest import Cli

FILE = """
models = ["base=toy", "tuned=toy:slope=-3"]
rules = "rules.toml"
options = {limit = 150}

[[audit]]
name = "spurious-correlation"
w = "date"

[[audit]]
name = "task-specification"
folder = "guesses"
models = ["toy"]
"""
RULES = (
    '[[rule]]\nname = "no gap"\nmeasure = "slope_gap"\naudit = "spurious-correlation"\nof = "magnitude"\nat_most = {}\n'
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "rules.toml").write_text(RULES.format("0.01"), encoding="utf-8")
    (tmp_path / "night.toml").write_text(FILE, encoding="utf-8")
    return tmp_path / "night.toml"


def test_suite_runs_each_audit_and_judges_it(file: Path, cli: Cli) -> None:
    done = cli("suite", "night.toml", "--json")
    said = json.loads(done.stdout)
    assert done.returncode == 1
    assert [row["run"] for row in said["runs"]] == ["spurious-correlation", "guesses"]
    run = undertow.load_run(file.parent / "night" / "spurious-correlation")
    assert (run.manifest["model"], run.manifest["limit"]) == ("base, tuned", 150)
    assert {one["outcome"] for one in said["gate"]["runs"][0]["outcomes"]} == {"failed"}
    page = (file.parent / "night" / "index.html").read_text(encoding="utf-8")
    assert 'href="guesses/report.html"' in page
    assert page.count('class="failed"') == said["gate"]["counts"]["failed"]
    (file.parent / "rules.toml").write_text(RULES.format("90"), encoding="utf-8")
    again = cli("suite", "night.toml")
    assert again.returncode == 0
    assert again.stdout.splitlines()[-1] == "Index: night/index.html"
    assert "passed: " in again.stdout
    (file.parent / "rules.toml").write_text("[[rule]]\n", encoding="utf-8")
    assert cli("suite", "night.toml").returncode == 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('w = "date"', 'w_lists = "date"', "no option 'w_lists'"),
        ('folder = "guesses"', 'folder = "../x"', "audit 2"),
        ('models = ["base=toy", "tuned=toy:slope=-3"]', "", "audit 1: has no models"),
        ('name = "task-specification"', 'name = "task"', "no audit called 'task'"),
        ("[[audit]]", "[[audits]]", "audit"),
    ],
)
def test_wrong_suite_file_is_refused_before_anything_runs(file: Path, old: str, new: str, words: str) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(undertow.UndertowError, match=words):
        undertow.suite(file)
    assert not (file.parent / "night").exists()
