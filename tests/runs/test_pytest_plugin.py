from __future__ import annotations

import shutil
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import undertow.runs.gates.pytest_items  # noqa: F401 - see `finished`
from helpers.gate_runs import FOUR, parsed, run_folder
from undertow.runs.gates.evaluate import gate
from undertow.runs.gates.junit import write_junit

pytest_plugins = ["pytester"]
IN_ORDER = ["-p", "no:randomly"]
LOADED = IN_ORDER if entry_points(group="pytest11", name="undertow") else [*IN_ORDER, "-p", "undertow.pytest_plugin"]
"""An installation that is older than the entry point has to be told; one that has it must not load the plugin twice."""
ASKED = ["--undertow-rules", "rules.toml", "--undertow-run", "run"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, judged once: `pytester` forgets whatever is imported first during a test, and pyarrow cannot be read twice."""
    run = run_folder(tmp_path_factory.mktemp("finished") / "run")
    rules = run.parent / "rules.toml"
    rules.write_text(FOUR, encoding="utf-8")
    gate([run], rules)
    return run.parent


@pytest.fixture
def place(finished: Path, pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with a run and four rules: one passes, one fails, one errs and one is skipped."""
    shutil.copytree(finished, pytester.path, dirs_exist_ok=True)
    return pytester


def inside(place: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return place.runpytest_inprocess(*LOADED, "-p", "no:cacheprovider", *arguments)


def test_rules_are_tests(place: pytest.Pytester) -> None:
    done = inside(place, *ASKED, "-v", "-rA")
    done.assert_outcomes(passed=1, failed=1, errors=1, skipped=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    outcomes = ("passes[[]date-female-male] PASSED", "fails[[]date-female-male] FAILED", "errs ERROR", "skips SKIPPED")
    done.stdout.fnmatch_lines(["*collected 4 items", *(f"undertow::{one}*" for one in outcomes)])


def test_a_failure_and_an_error_are_sentences_without_a_traceback(place: pytest.Pytester) -> None:
    shown = inside(place, *ASKED, "-k", "fails or errs").stdout.str()
    for word in ("1.25 percent per step", "Because\nwe said so.", "rule 3 ('errs'): ", "no measure 'nosuch'"):
        assert word in shown
    for word in ("Traceback", "pytest_items.py", "Failed:", "def runtest", "def setup"):
        assert word not in shown.partition("short test summary")[0]


def test_the_junit_file_of_pytest_has_them_with_the_counts_of_the_gate(place: pytest.Pytester) -> None:
    write_junit(gate([place.path / "run"], place.path / "rules.toml"), place.path / "gate.xml")
    inside(place, *ASKED, "--junitxml", "out.xml")
    (suite,) = (one.attrib for one in ET.parse(place.path / "out.xml").getroot().iter("testsuite"))
    own = parsed(place.path / "gate.xml").attrib
    for name in ("tests", "failures", "errors", "skipped"):
        assert suite[name] == own[name] == ("4" if name == "tests" else "1")
    text = (place.path / "out.xml").read_text(encoding="utf-8")
    assert 'classname="undertow"' in text
    assert '<property name="measure" value="slope_gap"' in text
    assert '<property name="number" value="1.25"' in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--undertow-rules", "rules.toml"], "--undertow-run"), ([*ASKED, "--undertow-baseline", "run"], "baseline")],
)
def test_wrong_usage_is_a_sentence(arguments: list[str], words: str, place: pytest.Pytester) -> None:
    done = inside(place, *arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    (said,) = (line for line in done.errlines if line)
    assert said.startswith("ERROR: ")
    assert words in said
    assert "Traceback" not in done.stdout.str() + done.stderr.str()


def test_nothing_happens_until_rules_are_named(place: pytest.Pytester) -> None:
    place.makepyfile(
        test_own="import sys\n\ndef test_own(request):\n    assert not request.config.pluginmanager.hasplugin('undertow-gate')\n"
    )
    inside(place).assert_outcomes(passed=1)
