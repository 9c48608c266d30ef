from __future__ import annotations

import json
from pathlib import Path

import pytest

import undertow
from conftest import Cli
from helpers.file_refusal import assert_refused
from undertow.runs import suite as suite_module
from undertow.runs.pipeline import dry_run

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
    assert "| passed |" in cli("suite", "night.toml", "--junit", "gate.xml", "--format", "markdown").stdout
    assert "<testsuites" in (file.parent / "gate.xml").read_text(encoding="utf-8")
    (file.parent / "rules.toml").write_text("[[rule]]\n", encoding="utf-8")
    assert cli("suite", "night.toml").returncode == 2


def test_a_dry_run_estimates_each_run_and_writes_nothing(file: Path, cli: Cli) -> None:
    done = cli("suite", "night.toml", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    estimates = json.loads(done.stdout)
    assert list(estimates) == ["spurious-correlation", "guesses"]
    alone = dry_run("spurious-correlation", ["base=toy", "tuned=toy:slope=-3"], w="date", limit=150)
    assert estimates["spurious-correlation"]["n_queries"] == alone.n_queries
    assert not (file.parent / "night").exists()
    (file.parent / "rules.toml").write_text("[[rule]]\n", encoding="utf-8")
    assert cli("suite", "night.toml", "--dry-run").returncode == 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('w = "date"', 'w_lists = "date"', "audit 1: spurious-correlation has no option 'w_lists'"),
        ('w = "date"', 'seed = "3"', "audit 1: spurious-correlation: option seed must be of type int, not '3'"),
        ('folder = "guesses"', 'folder = "../x"', "audit 2"),
        ('models = ["base=toy", "tuned=toy:slope=-3"]', "", "audit 1: has no models"),
        ('name = "task-specification"', 'name = "task"', "no audit called 'task'"),
        ("[[audit]]", "[[audits]]", "audit"),
        ('rules = "rules.toml"', 'baseline = "approved"', "names a baseline, and no rules"),
        ("options =", 'baseline = "approved"\noptions =', "no rule judges a change"),
    ],
)
def test_wrong_suite_file_is_refused_before_anything_runs(file: Path, old: str, new: str, words: str) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    assert_refused((words,), undertow.suite, file)
    assert not (file.parent / "night").exists()


def test_the_page_of_a_suite_that_cannot_be_finished_says_so(file: Path) -> None:
    undertow.suite(file)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('models = ["toy"]', 'models = ["./no-such-model"]'), encoding="utf-8")
    assert_refused(("no-such-model",), undertow.suite, file)
    page = (file.parent / "night" / "index.html").read_text(encoding="utf-8")
    assert "Not finished" in page
    assert 'href="spurious-correlation/report.html"' in page
    assert "guesses/report.html" not in page


def test_a_baseline_is_that_of_the_runs_of_its_audit(file: Path) -> None:
    approved = undertow.suite(file).runs["spurious-correlation"].folder
    rule = RULES.format("0.01") + 'against = "baseline"\n'
    (file.parent / "rules.toml").write_text(rule, encoding="utf-8")
    text = file.read_text(encoding="utf-8").replace("options =", f'baseline = "{approved}"\noptions =')
    file.write_text(text, encoding="utf-8")
    judged = undertow.suite(file).gate
    assert judged is not None
    assert [len(run.judged) for run in judged.runs] == [2, 0]
    assert judged.status == 0
    # A rule that names another audit than the baseline's, and a baseline of an audit that the suite has not.
    (file.parent / "rules.toml").write_text(
        rule.replace("spurious-correlation", "task-specification"), encoding="utf-8"
    )
    assert_refused(("judges the change of 'task-specification'",), suite_module.dry_run, file)
    file.write_text(
        text.replace('name = "spurious-correlation"\nw =', 'name = "task-specification"\nw ='), encoding="utf-8"
    )
    assert_refused(
        ("is a run of 'spurious-correlation', and the runs to judge are of 'task-specification'",),
        suite_module.dry_run,
        file,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: [toy\n", "is not valid YAML"),
        ("models: [toy]\nmodels: [toy]\n", "'models' is given twice"),
        ("- toy\n", "has no keys with values"),
        ("models: !!python/object/apply:os.getcwd []\n", "is not valid YAML"),
        ("models: [toy]\n", "audit"),
    ],
)
def test_wrong_yaml_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "night.yml").write_text(text, encoding="utf-8")
    assert_refused((words,), undertow.suite, tmp_path / "night.yml")


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ci = tmp_path / "ci"
    for name in ("net", "run/checkpoint-1"):
        (ci / name).mkdir(parents=True)
    for name in ("towns.txt", "tiny.gguf"):
        (ci / name).touch()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    file = Path("ci/night.toml")
    for text, located in {
        "net": "ci/net",
        "tuned=net": "tuned=ci/net",
        "./net": "ci/net",
        "run/checkpoint-*": "ci/run/checkpoint-*",
        "gguf:tiny.gguf": "gguf:ci/tiny.gguf",
        "replay:net@toy": "replay:ci/net@toy",
        "gpt2": "gpt2",
        "org/name": "org/name",
        "toy:slope=-3": "toy:slope=-3",
        str(ci / "net"): str(ci / "net"),
    }.items():
        assert suite_module._resolve_model(text, file, "here") == located
    assert suite_module._resolve_option("date,towns.txt", file, "here") == "date,ci/towns.txt"
    for option in ("{text} It was {w}.", 3, "...", "~x."):
        assert suite_module._resolve_option(option, file, "here") == option
    for folder in (tmp_path, ci):  # a known name wins over a folder
        (folder / "smollm2").mkdir()
        assert suite_module._resolve_model("small=smollm2", file, "here") == "small=smollm2"
    with pytest.raises(undertow.UndertowError, match="elsewhere is not a path from the folder of this file"):
        suite_module._resolve_model("elsewhere", file, "here")


def test_a_label_ends_no_line_and_turns_no_text_of_the_index(tmp_path: Path) -> None:
    signs = "\n\r\x1b\u2028\u202e"
    models = json.dumps(["toy", f"a{signs}<b>=toy:slope=2"])
    (tmp_path / "s.toml").write_text(
        f'models = {models}\n[options]\nlimit = 60\n[[audit]]\nname = "spurious-correlation"\nw = "date"\n',
        encoding="utf-8",
    )
    undertow.suite(tmp_path / "s.toml", out=tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "\\u202e&lt;b&gt;" in page
    assert not set(signs[1:]) & set(page)


@pytest.mark.parametrize("option", [("--junit", "x.xml"), ("--format", "markdown")])
def test_a_suite_without_rules_has_no_gate_to_report_and_runs_nothing(
    option: tuple[str, ...], tmp_path: Path, cli: Cli
) -> None:
    (tmp_path / "night.yaml").write_text(
        "models: [toy]\naudit:\n  - {name: spurious-correlation, limit: 60}\n", encoding="utf-8"
    )
    done = cli("suite", "night.yaml", *option)
    assert "has no rules, so there is no gate to report" in done.stderr
    assert not (tmp_path / "night").exists()
    assert "--dry-run runs nothing" in cli("suite", "night.yaml", "--dry-run", *option).stderr
