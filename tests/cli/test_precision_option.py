"""`--dtype auto` and `--float32-sample` as a user types them, and what the terminal says of a run in reduced precision."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from conftest import Cli
from helpers.planted_precision import Planted, moved, unit, year_of
from undertow import models
from undertow.types import Answer, ClozeQuery, Query

RUN = ["run", "spurious-correlation", "--w", "date", "--date-count", "12", "--limit", "120"]


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Planted:
    """A model whose drift is lost in bfloat16."""
    model, before = Planted(lost), models.resolve
    monkeypatch.setattr(
        models, "resolve", lambda request: model.resolve(request) if request.name == "planted" else before(request)
    )
    return model


def lost(query: Query, answer: Answer) -> Answer:
    """Ten points a century, which are all there is, and chance instead."""
    assert isinstance(query, ClozeQuery)
    text = query.display_text()
    return moved(query, answer, -0.1 * (year_of(text) - 1801) + 4 * unit(text))


def test_the_terminal_says_what_precision_costs(planted: Planted, tmp_path: Path, cli: Cli) -> None:
    done = cli(*RUN, "-m", "planted", "--dtype", "bfloat16", "--float32-sample", "36", "--out", "run")
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
