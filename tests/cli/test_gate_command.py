from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conftest import ROOT, Cli
from helpers.cli_refusal import refused
from helpers.gate_runs import gap_rule, parsed, run_folder
from helpers.workplace import Workplace, shared
from undertow.runs.folder.storage import MANIFEST

PAGE = (ROOT / "docs/gates.md").read_text(encoding="utf-8")
RUN = ["run", "spurious-correlation", "--challenge", "mgt", "--w", "date", "--limit", "600"]
RULES = ["--rules", "rules.toml"]


@pytest.fixture(scope="module")
def work(shared_base: Path) -> Workplace:
    """Two runs, of a toy and of one that was made worse, and the rules of the page."""

    def make(work: Workplace) -> None:
        for name, slope in (("before", 1), ("after", 6)):
            work(*RUN, "-m", f"toy:slope={slope}", "--out", f"runs/{name}")
        (text,) = re.findall(r"^Write, as `rules.toml`:\n\n```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
        (work.folder / "rules.toml").write_text(text, encoding="utf-8")

    return shared(shared_base, "check", make)


@pytest.mark.slow
def test_better_model_passes_and_a_rule_without_its_baseline_is_skipped(work: Workplace) -> None:
    lines = work("gate", "runs/before", *RULES).stdout.splitlines()
    assert any(line.startswith("skipped: rules.toml, rule 3 ('no gap becomes wider')") for line in lines)
    n_gaps = len([one for one in work.results("runs/before") if one["measure"] == "slope_gap"])
    assert lines[-1] == f"{n_gaps + 1} passed, 1 skipped (3 rules)"
    assert len([line for line in lines if line.startswith("passed: ")]) == n_gaps + 1
    for baseline in ("runs/after", "runs/before"):
        work("gate", "runs/before", "--rules", str(ROOT / "examples/rules.toml"), "--baseline", baseline)


@pytest.mark.slow
def test_planted_worse_model_fails_with_exit_1_and_a_junit_file(work: Workplace) -> None:
    done = work.attempt("gate", "runs/after", *RULES, "--baseline", "runs/before", "--junit", "out/gate.xml")
    assert (done.returncode, done.stderr) == (1, "")
    lines = [line for line in done.stdout.splitlines() if not line.startswith("passed: ")]
    assert lines[0].startswith("failed: slope gap (date, female-male) of toy:slope=6 ")
    assert "'she and he hardly move with the date'" in lines[0]
    assert any("than in runs/before" in line for line in lines)
    assert lines[-1] == "JUnit: out/gate.xml"
    root = parsed(work.folder / "out/gate.xml")
    failed = [case.attrib["name"] for case in root.iter("testcase") if case.find("failure") is not None]
    assert failed[0] == "she and he hardly move with the date[date-female-male]"
    assert "no gap becomes wider[date-female-male]" in failed
    assert root.attrib["failures"] == str(len(failed))


@pytest.mark.slow
def test_json_has_every_outcome_and_markdown_a_table(work: Workplace) -> None:
    done = work.attempt("gate", "runs/before", "runs/after", *RULES, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    said = json.loads(done.stdout)
    assert [run["model"] for run in said["runs"]] == ["toy:slope=1", "toy:slope=6"]
    assert sum(said["counts"].values()) == sum(len(run["outcomes"]) for run in said["runs"])
    (failed,) = (one for run in said["runs"] for one in run["outcomes"] if one["outcome"] == "failed")
    assert [failed[name] for name in ("of", "at_most", "at_least")] == ["magnitude_high", 0.5, None]
    assert failed["group"]["pronoun"] == "female-male"
    table = work.attempt("gate", "runs/before", *RULES, "--format", "markdown").stdout.splitlines()
    assert table[0] == "**Undertow: all rules hold** (2 passed, 1 skipped)"
    assert table[2] == "| outcome | rule | number | value | allowed | run |"
    assert any(line.startswith("| passed | ") and "| at most 0.5 | runs/before |" in line for line in table)


@pytest.mark.parametrize(
    ("runs", "rules", "words"),
    [
        (["run"], '[[rule]]\nname = "x"\nmeasure = "slope"\n', ["rules.toml, rule 1 ('x')"]),
        (["run", "run"], gap_rule(), ["run: is named twice"]),
        (["run"], gap_rule(against="baseline"), ["rules.toml, rule 1", "--baseline"]),
        (["corrupt"], gap_rule(), [f"corrupt/{MANIFEST}"]),
    ],
)
def test_what_cannot_be_judged_is_refused_with_exit_2_and_a_junit_error(
    runs: list[str], rules: str, words: list[str], cli: Cli, tmp_path: Path
) -> None:
    run_folder(tmp_path / "run")
    (run_folder(tmp_path / "corrupt") / MANIFEST).write_text("{", encoding="utf-8")
    (tmp_path / "rules.toml").write_text(rules, encoding="utf-8")
    (tmp_path / "gate.xml").write_text("all passed", encoding="utf-8")
    done = cli("gate", *runs, *RULES, "--junit", "gate.xml")
    refused(done, *words)
    assert done.returncode == 2
    (case,) = parsed(tmp_path / "gate.xml").iter("testcase")
    error = case.find("error")
    assert error is not None
    assert done.stderr == f"undertow: {error.attrib['message']}\n"
