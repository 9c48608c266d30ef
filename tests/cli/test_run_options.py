from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from conftest import Cli
from helpers.planted_precision import Plant, moved, unit, year_of
from undertow import audits, models
from undertow.cli import COMMAND_SECTIONS
from undertow.types import Answer, ClozeQuery, Query

AUDIT = "spurious-correlation"


@pytest.mark.parametrize("audit", ["spurious-correlation", "task-specification"])
def test_help_lists_the_options_of_audit_and_families(audit: str, cli: Cli) -> None:
    said = cli("run", audit, "--help").stdout
    named = [line.split()[0].rstrip(",") for line in said.splitlines() if line.lstrip().startswith("--")]
    own = [option.name for option in fields(audits.load(audit).Settings)]
    for name in [*own, *models.settings()]:
        assert named.count(f"--{name.replace('_', '-')}") == 1, name
    common = {"--revision", "--dtype", "--device", "--model-info", "--protocol", "--seed", "--limit", "--out"}
    assert common | {"--base-url", "--mode", "--concurrency", "--timeout-s", "--max-requests"} <= set(named)
    others = cli("run", "bias-diagnosis", "--help").stdout
    assert "--limit" in others
    assert "--graph" not in others
    # Servers fill no blanks.
    guard = cli("guard", "--help").stdout
    assert "--mode" in guard
    assert not [name for name in ("--base-url", "--concurrency", "Servers") if name in guard]


def test_help_lists_run_first(cli: Cli) -> None:
    lines = cli("--help").stdout.partition("Audits:")[2].splitlines()
    names = [line.split()[0] for line in lines if re.match(r"  \w", line)]  # a long summary goes on further in
    assert names[0] == "run"
    assert names == [name for commands in COMMAND_SECTIONS.values() for name in commands]


DATED = ["run", AUDIT, "--w", "date", "--date-count", "12", "--limit", "120"]


def lost(query: Query, answer: Answer) -> Answer:
    """Ten points a century, which are all there is, and chance instead."""
    assert isinstance(query, ClozeQuery)
    text = query.display_text()
    return moved(query, answer, -0.1 * (year_of(text) - 1801) + 4 * unit(text))


@pytest.mark.slow
def test_the_terminal_says_what_precision_costs(plant: Plant, tmp_path: Path, cli: Cli) -> None:
    planted = plant(lost)
    done = cli(*DATED, "-m", "planted", "--dtype", "bfloat16", "--float32-sample", "36", "--out", "run")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    cautions = [at for at, line in enumerate(said) if line == "  In float32 this could change."]
    (warning,) = [line for line in said if line.startswith("Warning: in float32")]
    assert len(planted.asked["float32"]) == 36
    assert cautions
    assert f"{len(cautions)} finding" in warning
    assert all(said[at - 1].startswith(("* ", "- ", "  ")) for at in cautions)  # a finding, or what stands beside it
    assert any("36 of 120 items" in line for line in said)
    command = json.loads((tmp_path / "run" / "manifest.json").read_text())["command"]
    assert "--dtype bfloat16" in command
    assert "--float32-sample 36" in command

    # The command that the manifest has opens the run; as JSON it says the same.
    again = cli(*shlex.split(command)[1:], "--out", "run", "--json")
    told = json.loads(again.stdout)["precision"]
    assert told["sentences"][-1] == warning
    assert len(told["unstable"]) == len(cautions)
