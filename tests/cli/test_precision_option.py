"""`--dtype auto` and `--recheck` as a user types them, and what the terminal says of a run in reduced precision."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from planted_precision import Planted, moved, unit, year_of
from test_checking import planted_table
from undertow import cli as command_line
from undertow import models
from undertow.types import Answer, Blank, Query

RUN = ["run", "spurious-correlation", "--w", "date", "--date-count", "6", "--limit", "72"]


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Planted:
    """A model whose drift is lost in bfloat16."""
    model, before = Planted(lost), models.find
    monkeypatch.setattr(
        models, "find", lambda request: model.find(request) if request.name == "planted" else before(request)
    )
    return model


def lost(query: Query, answer: Answer) -> Answer:
    """Ten points a century, which are all there is, and chance instead."""
    assert isinstance(query, Blank)
    text = query.shown()
    return moved(query, answer, -0.1 * (year_of(text) - 1801) + 4 * unit(text))


def main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit status of a command, run in this process."""
    monkeypatch.setattr("sys.argv", ["undertow", *arguments])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    return int(ended.value.code or 0)


@pytest.mark.usefixtures("untold")
def test_the_terminal_says_what_precision_costs(
    planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*RUN, "-m", "planted", "--dtype", "bfloat16", "--recheck", "36", "--out", str(tmp_path / "run")]
    assert main(monkeypatch, *given) == 0
    said = capsys.readouterr().out.splitlines()
    cautions = [at for at, line in enumerate(said) if line == "  In float32 this could turn out otherwise."]
    (warning,) = [line for line in said if line.startswith("Warning: in float32")]
    assert len(planted.asked["float32"]) == 36
    assert cautions
    assert warning == f"Warning: in float32 {len(cautions)} findings could turn out otherwise."
    assert all(said[at - 1].startswith(("* ", "- ")) for at in cautions)
    assert any("36 of 72 items, drawn at random, were read again in float32" in line for line in said)
    command = json.loads((tmp_path / "run" / "manifest.json").read_text())["command"]
    assert "--dtype bfloat16" in command
    assert "--recheck 36" in command

    # The command that the manifest has opens the run; as JSON it says the same.
    assert main(monkeypatch, *shlex.split(command)[1:], "--out", str(tmp_path / "run"), "--json") == 0
    told = json.loads(capsys.readouterr().out)["precision"]
    assert told["said"][-1] == warning
    assert len(told["could_change"]) == len(cautions)


@pytest.mark.usefixtures("untold")
def test_auto_is_kept_in_the_command_and_not_in_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(monkeypatch, *RUN, "-m", "toy", "--dtype", "auto", "--out", str(tmp_path / "run")) == 0
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["model_card"]["dtype"] == "float32"
    assert "--dtype auto" in manifest["command"]
    assert "dtype='auto'" in manifest["python"]
    assert "precision" not in manifest
    assert "float32" not in capsys.readouterr().out


@pytest.mark.usefixtures("planted")
def test_verdicts_on_sentences_say_that_nobody_checked_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "The cook said that {blank} was late."
    lines, challenge = tmp_path / "s.jsonl", planted_table(tmp_path)
    lines.write_text(f"{json.dumps({'text': text})}\n" * 2, encoding="utf-8")
    asked = ["check-text", "-m", "planted", "--challenge", str(challenge), "--dtype"]
    note = "planted was asked in bfloat16; verdicts in reduced precision are not checked against float32."
    assert main(monkeypatch, *asked, "bfloat16", text) == 0
    assert capsys.readouterr().out.splitlines()[-1] == note
    assert main(monkeypatch, *asked, "bfloat16", "--file", str(lines)) == 0
    said = capsys.readouterr()
    assert said.err.count(note) == 1
    assert [json.loads(line)["verdict"]["notes"] for line in said.out.splitlines()] == [[note]] * 2
    assert main(monkeypatch, *asked, "float32", text) == 0
    assert "float32" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--dtype", "int3"], "dtype 'int3' is not known; use float32, bfloat16, float16, or auto"),
        (["--recheck", "5"], "--recheck is for runs in reduced precision"),
        (["--dtype", "auto", "--recheck", "-5"], "recheck -5 is negative"),
        (["--dtype", "auto", "--recheck", "-5", "--dry-run"], "recheck -5 is negative"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    options: list[str],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, *RUN, "-m", "toy", *options) == 1
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_auto_needs_no_torch_where_no_model_does(tmp_path: Path) -> None:
    """On Linux the system says what the processor can do; a toy is not asked at all."""
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            raise ModuleNotFoundError(f"No module named {{name!r}}")
sys.meta_path.insert(0, Absent())
from undertow.models import precision
import undertow
run = undertow.run("spurious-correlation", model="toy", w="date", limit=90, dtype="auto", out={str(tmp_path / "run")!r})
print(run.manifest["model_card"]["dtype"], precision.dtype_here("auto", "causal", "cpu") in ("float32", "bfloat16"))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "float32 True"
