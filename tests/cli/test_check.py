"""`undertow check` as a build uses it: a worse model fails, with exit status 1 and a JUnit file; a refusal has a status of its own."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_commands import Workplace

from conftest import ROOT, Cli
from refusal import refused
from test_gates import FOUR, RESULTS, gap_rule, parsed, run_folder
from undertow.records import MANIFEST
from warm import warm

slow = pytest.mark.slow
PAGE = (ROOT / "docs/gates.md").read_text(encoding="utf-8")
RUN = ["run", "spurious-correlation", "--challenge", "mgt", "--w", "date", "--limit", "600"]
SHARE_OF_LISTED = 0.8
"""Of the toy: what all pronouns have between them."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """Two runs, of a toy and of one that was made worse, and the rules of the page."""
    work = Workplace(tmp_path_factory.mktemp("work"))
    for name, slope in (("before", 1), ("after", 6)):
        work(*RUN, "-m", f"toy:slope={slope}", "--out", f"runs/{name}")
    (text,) = re.findall(r"^Write, as `rules.toml`:\n\n```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (work.folder / "rules.toml").write_text(text, encoding="utf-8")
    return work


def test_the_better_model_passes(work: Workplace) -> None:
    lines = work("check", "runs/before", "--rules", "rules.toml").stdout.splitlines()
    assert lines[0].startswith(
        "skipped: rules.toml, rule 3 ('no gap becomes wider'): judges the change against a baseline"
    )
    n_gaps = len([one for one in work.results("runs/before") if one["measure"] == "slope_gap"])
    assert lines[1:] == [f"{n_gaps + 1} passed, 1 skipped (3 rules)"]


def test_a_planted_worse_model_fails_with_exit_1_and_a_junit_file(work: Workplace) -> None:
    given = ["check", "runs/after", "--rules", "rules.toml", "--baseline", "runs/before", "--junit", "out/gate.xml"]
    done = warm(work.folder, *given)
    assert (done.returncode, done.stderr) == (1, "")
    texts = pd.read_parquet(work.folder / "runs/after/observations.parquet")
    step_years = np.polyfit(texts["w_index"], texts["w"].astype(int), 1)[0]
    # Planted: 6 points a century in sentences that show the date before the pronoun, and what she gains he loses.
    planted = 2 * 6 / 100 * step_years * texts["text"].str.startswith("In ").mean() / SHARE_OF_LISTED
    (gap,) = (one for one in work.results("runs/after") if one["measure"] == "slope_gap")
    assert gap["value"] == pytest.approx(planted, abs=0.05)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("failed: slope gap (date, female-male) of toy:slope=6 is up to ")
    assert lines[0].endswith("and rule 'she and he hardly move with the date' allows at most 0.5")
    assert any("farther from neutral (0) than in runs/before" in line for line in lines)
    assert lines[-1] == "JUnit: out/gate.xml"
    root = parsed(work.folder / "out/gate.xml")
    failed = [case.attrib["name"] for case in root.iter("testcase") if case.find("failure") is not None]
    assert failed[0] == "she and he hardly move with the date[date-female-male]"
    assert "no gap becomes wider[date-female-male]" in failed
    assert root.attrib["failures"] == str(len(failed))


def test_a_model_is_not_worse_than_itself(work: Workplace) -> None:
    shutil.copytree(work.folder / "runs/before", work.folder / "runs/again", dirs_exist_ok=True)
    work("check", "runs/again", "--rules", "rules.toml", "--baseline", "runs/before")


@slow
def test_a_model_that_was_mended_passes(work: Workplace) -> None:
    given = ["check", "runs/before", "--rules", "rules.toml", "--baseline", "runs/after"]
    assert warm(work.folder, *given).returncode == 0


def test_the_example_can_be_asked_of_any_run_of_its_audit(work: Workplace) -> None:
    (work.folder / "example.toml").write_text((ROOT / "examples/rules.toml").read_text("utf-8"), encoding="utf-8")
    assert work.json("check", "runs/before", "--rules", "example.toml", "--baseline", "runs/before")["status"] == 0


def test_json_has_every_outcome(work: Workplace) -> None:
    done = warm(work.folder, "check", "runs/before", "runs/after", "--rules", "rules.toml", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    said = json.loads(done.stdout)
    assert [run["model"] for run in said["runs"]] == ["toy:slope=1", "toy:slope=6"]
    assert sum(said["counts"].values()) == sum(len(run["outcomes"]) for run in said["runs"])
    (failed,) = (one for run in said["runs"] for one in run["outcomes"] if one["outcome"] == "failed")
    assert (failed["rule"], failed["of"], failed["at_most"], failed["at_least"]) == (
        "she and he hardly move with the date",
        "magnitude_high",
        0.5,
        None,
    )
    assert failed["group"]["pronoun"] == "female-male"


def test_of_many_failures_some_are_told(cli: Cli, tmp_path: Path) -> None:
    results = [RESULTS[0]] * 8
    run_folder(tmp_path / "run", results)
    (tmp_path / "rules.toml").write_text(gap_rule(at_most=1, why="We said so."), encoding="utf-8")
    done = cli("check", "run", "--rules", "rules.toml")
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert len(lines) == 7
    assert lines[0].endswith("allows at most 1 (We said so.)")
    assert lines[5:] == [
        "failed: 3 more results by rule 1; --json and --junit have all of them",
        "0 passed, 8 failed (1 rule)",
    ]


def test_every_outcome_has_a_line_but_what_passed(cli: Cli, tmp_path: Path) -> None:
    run_folder(tmp_path / "a")
    run_folder(tmp_path / "b")
    (tmp_path / "rules.toml").write_text(FOUR, encoding="utf-8")
    done = cli("check", "a", "b", "--rules", "rules.toml")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines[:-1]] == ["failed", "error", "skipped"] * 2
    assert [line.partition(": ")[2][:3] for line in lines[:-1]] == ["a: "] * 3 + ["b: "] * 3
    assert lines[-1] == "2 passed, 2 failed, 2 skipped, 2 error (4 rules, 2 runs)"


def test_nothing_is_obeyed_that_a_run_holds(cli: Cli, tmp_path: Path) -> None:
    run_folder(tmp_path / "run", [RESULTS[3]], model="\x1b[2J")
    manifest = tmp_path / "run" / "results.json"
    manifest.write_text(
        manifest.read_text("utf-8").replace('"mgc"', '"\\u001b[2J<b>"').replace('"date"', '"\\u001b[31m"')
    )
    (tmp_path / "rules.toml").write_text(gap_rule(measure="mean_mass", where={}, at_most=1), encoding="utf-8")
    done = cli("check", "run", "--rules", "rules.toml")
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "\ufffd[31m" in done.stdout


def test_the_workflow_of_the_page_has_commands_that_exist(cli: Cli) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    commands = re.findall(r"run: undertow (.+)", text)
    assert [command.split()[0] for command in commands] == ["run", "check"]
    for command in commands:
        words = command.split()
        shown = cli(*(words[:2] if words[0] == "run" else words[:1]), "--help").stdout
        assert all(option in shown for option in words if option.startswith("-"))
    yaml = pytest.importorskip("yaml")
    steps = yaml.safe_load(text)["jobs"]["gate"]["steps"]
    kept = steps[-1]
    assert kept["if"] == "always()"
    assert kept["with"]["path"].split() == ["gate.xml", "runs/new/report.html", "runs/new/results.csv"]


# What cannot be judged: exit status 2, and no file of an earlier check is left.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch", "--rules", "rules.toml"], ["nosuch: there is no such run folder"]),
        (["run", "--rules", "nosuch.toml"], ["nosuch.toml: cannot be read", "check the path"]),
        pytest.param(["run", "--rules", "bad.toml"], ["bad.toml, rule 1 ('x'): sets no threshold"], marks=slow),
        pytest.param(["run", "run", "--rules", "rules.toml"], ["run: is named twice"], marks=slow),
        pytest.param(
            ["run", "--rules", "rules.toml", "--baseline", "run"], ["no rule judges a change", "--baseline"], marks=slow
        ),
        pytest.param(["run", "--rules", "change.toml"], ["change.toml, rule 1", "--baseline"], marks=slow),
        pytest.param(["damaged", "--rules", "rules.toml"], [f"damaged/{MANIFEST}: is damaged"], marks=slow),
    ],
)
def test_what_cannot_be_judged_is_refused_with_exit_2(
    arguments: list[str], words: list[str], cli: Cli, tmp_path: Path
) -> None:
    run_folder(tmp_path / "run")
    run_folder(tmp_path / "damaged")
    (tmp_path / "damaged" / MANIFEST).write_text("{", encoding="utf-8")
    for name, text in {
        "rules": gap_rule(),
        "bad": '[[rule]]\nname = "x"\nmeasure = "slope"\n',
        "change": gap_rule(against="baseline"),
    }.items():
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    (tmp_path / "gate.xml").write_text("all passed", encoding="utf-8")
    done = cli("check", *arguments, "--junit", "gate.xml")
    refused(done, *words)
    assert done.returncode == 2
    (case,) = parsed(tmp_path / "gate.xml").iter("testcase")
    error = case.find("error")
    assert error is not None
    assert done.stderr == f"undertow: {error.attrib['message']}\n"


def test_a_rule_that_could_not_be_asked_exits_with_2(cli: Cli, tmp_path: Path) -> None:
    run_folder(tmp_path / "run")
    (tmp_path / "rules.toml").write_text(gap_rule(measure="slope_gp"), encoding="utf-8")
    done = cli("check", "run", "--rules", "rules.toml", "--junit", "gate.xml")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith(
        "error: rules.toml, rule 1 ('gap'): run has no measure 'slope_gp' (did you mean 'slope_gap'?)"
    )
    assert parsed(tmp_path / "gate.xml").attrib["errors"] == "1"


@slow
def test_a_junit_file_that_cannot_be_written_is_refused(cli: Cli, tmp_path: Path) -> None:
    run_folder(tmp_path / "run")
    (tmp_path / "rules.toml").write_text(gap_rule(), encoding="utf-8")
    done = cli("check", "run", "--rules", "rules.toml", "--junit", "run")
    refused(done, "run: cannot be written", "--junit")
    assert done.returncode == 2


@slow
def test_runs_of_different_questions_are_not_compared(work: Workplace) -> None:
    work("run", "spurious-correlation", "-m", "toy", "--w", "place", "--limit", "100", "--out", "runs/places")
    given = ["check", "runs/after", "--rules", "rules.toml", "--baseline", "runs/places"]
    done = warm(work.folder, *given)
    refused(done, "runs/")
    assert done.returncode == 2


def test_names_of_any_kind_leave_the_terminal_as_it_is(tmp_path: Path) -> None:
    hostile = "\x1b[2J\x9b31m\u202ename"
    run = run_folder(
        tmp_path / "run", [replace(RESULTS[0], group={**RESULTS[0].group, "model": hostile})], model=hostile
    )
    run.rename(tmp_path / hostile)
    (tmp_path / "rules.toml").write_text(gap_rule(at_most=0.5, why=hostile), encoding="utf-8")
    for name, status in ((hostile, 1), (f"no {hostile}", 2)):
        done = warm(tmp_path, "check", name, "--rules", "rules.toml")
        assert done.returncode == status
        said = done.stdout + done.stderr
        assert re.search(r"\[2J.+31m.+name", said)
        assert not set("\x1b\x9b\u202e").intersection(said)
