"""Options of `undertow run`: the probe's own, those of model families, and several models."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import undertow
from conftest import Cli
from refusal import refused
from undertow import audit, models, probes
from undertow import cli as command_line
from undertow.cli import outcome
from undertow.cli import run as run_command
from undertow.models.base import Found, Request
from undertow.models.openai import Settings
from undertow.scoring.ask import Estimate

PROBE = "spurious-correlation"
SMALL = ["--w", "date", "--date-count", "4", "--limit", "8"]
TINY: dict[str, Any] = {"w": "date", "date_count": 4, "limit": 8}


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures and page are no matter here, and take most of the time."""
    monkeypatch.setattr(audit, "tell_with", lambda *_: lambda folder: None)


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Every request that a model was looked for by; each finds the toy."""
    seen: list[Request] = []
    own = models.find

    def find(request: Request) -> Found:
        seen.append(request)
        return own(Request("toy"))

    monkeypatch.setattr(models, "find", find)
    monkeypatch.setattr(models, "takers", lambda _: ["toy"])  # else the toy is not one to be told any of this
    return seen


def main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit status of a command, run in this process."""
    monkeypatch.setattr("sys.argv", ["undertow", *arguments])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    return int(ended.value.code or 0)


# Help.


@pytest.mark.parametrize("probe", ["spurious-correlation", "task-specification"])
def test_help_lists_the_options_of_probe_and_families(
    probe: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(monkeypatch, "run", probe, "--help") == 0
    said = capsys.readouterr().out
    named = [line.split()[0].rstrip(",") for line in said.splitlines() if line.lstrip().startswith("--")]
    common = ["--revision", "--dtype", "--device", "--about", "--protocol", "--seed", "--limit", "--out"]
    own = [option.name for option in fields(probes.load(probe).Settings)]
    for name in [*own, *models.settings()]:
        assert named.count(f"--{name.replace('_', '-')}") == 1, name
    assert set(common) <= set(named)
    assert {"--base-url", "--mode", "--concurrency", "--timeout-s", "--max-requests"} <= set(named)
    assert "may be repeated" in " ".join(said.split())
    for option in fields(Settings):
        assert option.metadata["help"].split()[0] in said


def test_help_loads_neither_torch_nor_a_client() -> None:
    code = """
import sys
sys.argv = ["undertow", "run", "spurious-correlation", "--help"]
from undertow.cli import main
try:
    main()
except SystemExit:
    pass
print([name for name in ("torch", "transformers", "httpx", "matplotlib", "pandas") if name in sys.modules])
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[]"


# Options of families.


def test_a_familys_option_reaches_the_model_with_its_type(
    asked_for: list[Request], untold: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--base-url", "http://localhost:1/v1", "--concurrency", "3", "--timeout-s", "5", "--mode", "NLG"]
    more = ["--device", "cpu", "--dtype", "bfloat16", "--revision", "main"]
    assert main(monkeypatch, "run", PROBE, "-m", "any", *SMALL, *given, *more, "--out", str(tmp_path / "run")) == 0
    settings: dict[str, str | int | float | bool] = {
        "base_url": "http://localhost:1/v1",
        "concurrency": 3,
        "timeout_s": 5.0,
        "mode": "NLG",
    }
    (request,) = asked_for
    assert request == Request("any", "main", "bfloat16", "cpu", settings)
    assert {name: type(value) for name, value in request.settings.items()} == {
        "base_url": str, "concurrency": int, "timeout_s": float, "mode": str,
    }  # fmt: skip
    command = undertow.open_run(tmp_path / "run").manifest["command"].split()
    for flag, value in zip(given[::2], given[1::2], strict=True):
        at = command.index(flag)
        assert command[at + 1] in (value, f"{value}.0")


def test_options_at_their_defaults_are_not_said(
    asked_for: list[Request], untold: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        main(monkeypatch, "run", PROBE, "-m", "any", *SMALL, "--concurrency", "8", "--out", str(tmp_path / "run")) == 0
    )
    assert asked_for == [Request("any")]
    assert "concurrency" not in undertow.open_run(tmp_path / "run").manifest["command"]


def test_a_family_refuses_its_own_options(cli: Cli) -> None:
    refused(
        cli("run", PROBE, "-m", "openai:x", *SMALL, "--concurrency", "0"),
        "openai: --concurrency must be 1 or more, not 0",
    )


@pytest.mark.parametrize(
    "more", [["--concurrency", "many"], ["--timeout-s", "soon"], ["--limit", "few"], ["--nosuch", "1"]]
)
def test_an_option_of_another_type_or_name_is_a_misuse(
    more: Sequence[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, "run", PROBE, "-m", "toy", *more) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("Usage: ")
    (said,) = [line for line in printed.err.splitlines() if line.startswith("Error: ")]
    assert more[0] in said
    assert printed.err.splitlines()[-1] == said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"concurrency": "8"}, "option concurrency must be of type int, not '8'"),
        ({"concurrency": 2.5}, "option concurrency must be of type int, not 2.5"),
        ({"concurrency": True}, "option concurrency must be of type int, not True"),
        ({"timeout_s": "60"}, "option timeout_s must be of type float, not '60'"),
        ({"base_url": 8080}, "option base_url must be of type str, not 8080"),
        ({"base_url": None}, "option base_url must be of type str, not None"),
        ({"prompts": 3}, "option prompts must be of type str, not 3"),
        ({"chat": "yes"}, "option chat must be of type bool, not 'yes'"),
        ({"base_uri": "x"}, "has no option 'base_uri'; it has challenge, w"),
        ({"concurrency": 0, "model": "openai:x"}, "openai: --concurrency must be 1 or more"),
        ({"base_url": "ftp://x", "model": "openai:x"}, "the base URL is no http or https address"),
    ],
)
def test_a_caller_in_python_is_refused_in_one_sentence(
    options: dict[str, Any], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for asking in (undertow.run, audit.dry_run):
        with pytest.raises(undertow.UndertowError) as error:
            asking(PROBE, **{"model": "toy", **TINY, **options})
        assert expected in str(error.value)
        assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_password_in_an_address_is_never_written(untold: None, tmp_path: Path) -> None:
    """Though no model that is asked looks at the address."""
    with suppress(undertow.UndertowError):
        undertow.run(PROBE, model="toy", base_url="http://me:secret@localhost/v1", out=tmp_path / "run", **TINY)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]


def test_an_option_that_no_model_of_the_run_takes_is_refused(cli: Cli, tmp_path: Path) -> None:
    """Whoever forgets the family's name would audit something else."""
    done = cli("run", PROBE, "-m", "toy", *SMALL, "--base-url", "http://localhost:1/v1")
    refused(done, "--base-url is for models of the family openai", "none of toy is")
    assert not (tmp_path / "runs").exists()


def test_an_unknown_option_is_answered_with_those_there_are() -> None:
    with pytest.raises(undertow.UndertowError) as error:
        undertow.run(PROBE, model="toy", nosuch=1)
    for name in ("challenge", "prompts", "base_url", "mode"):
        assert name in str(error.value)


def test_a_whole_number_will_do_for_a_length_of_time(asked_for: list[Request], untold: None, tmp_path: Path) -> None:
    undertow.run(PROBE, model="any", timeout_s=5, out=tmp_path / "run", **TINY)
    assert asked_for[0].settings == {"timeout_s": 5.0}
    assert isinstance(asked_for[0].settings["timeout_s"], float)


# Several models.


def test_a_model_may_be_named_several_times(
    untold: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = str(tmp_path / "run")
    assert main(monkeypatch, "run", PROBE, "-m", "toy", "--model", "toy:slope=-5", *SMALL, "--out", out, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["counts"]["items"] == 16
    who = {finding["text"].partition(": ")[0] for finding in said["findings"]}
    assert {"toy", "toy:slope=-5"} < who
    (both,) = who - {"toy", "toy:slope=-5"}
    assert both.startswith("Over 2 models, female less male by date (mgc) drifts most in toy ")
    assert main(monkeypatch, "run", PROBE, "-m", "toy", "--model", "toy:slope=-5", *SMALL, "--dry-run", "--json") == 0
    estimate = json.loads(capsys.readouterr().out)
    assert (estimate["n_queries"], estimate["n_stored"], estimate["n_tokens"]) == (16, 16, 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "toy", "-m", "toy"], ["model 'toy' is named twice"]),
        (["-m", "toy", "-m", "nosuch/*"], ["nosuch/*: no folder matches this pattern"]),
        (["-m", "toy", "-m", ""], ["the model has no name"]),
        (["-m", "toy", "-m", "toy:slope=1", "--revision", "main"], ["revision 'main'", "ask them one by one"]),
        (["-m", "toy", "--about", "nosuch.toml"], ["nosuch.toml: cannot be read", "check the path"]),
        (["-m", "toy", "--about", "bad.toml"], ["bad.toml, model 'toy'", "'size' is not known", "parameters"]),
    ],
)
def test_what_is_wrong_with_models_is_said_before_anything_is_asked(
    arguments: list[str],
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text("[models.toy]\nsize = 3\n")
    assert main(monkeypatch, "run", PROBE, *arguments, *SMALL) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("undertow: ")
    assert printed.err.count("\n") == 1
    for word in words:
        assert word in printed.err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.toml"]


def test_a_file_about_models_that_is_missing_is_refused_by_the_process(cli: Cli) -> None:
    refused(cli("run", PROBE, "-m", "toy", *SMALL, "--about", "nosuch.toml"), "nosuch.toml: cannot be read")
    refused(cli("score", "run", "--about", "nosuch.toml"), "nosuch.toml: cannot be read")


def test_a_dry_run_refuses_what_the_run_would(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, "run", PROBE, "-m", "toy", *SMALL, "--about", "nosuch.toml", "--dry-run") == 1
    assert "nosuch.toml: cannot be read" in capsys.readouterr().err


def test_a_command_of_the_manual_is_taken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """docs/models.md: a served model with --chat and no --prompts. Nothing listens there, which is what must be said."""
    pytest.importorskip("openai", reason="the api extra is not installed")
    monkeypatch.chdir(tmp_path)
    given = ["-m", "openai:x", "--base-url", "http://127.0.0.1:9/v1", "--retries", "0", "--chat", *SMALL]
    assert main(monkeypatch, "run", PROBE, *given, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["n_queries"] > 0
    assert main(monkeypatch, "run", PROBE, *given) == 1
    said = capsys.readouterr().err
    assert "--chat is for prompts" not in said
    assert "127.0.0.1:9" in said


def test_a_pattern_that_the_shell_wrote_out_is_to_be_put_in_quotes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("checkpoint-1", "checkpoint-2"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, "run", PROBE, "-m", "checkpoint-1", "checkpoint-2") == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("Error: 'checkpoint-2' belongs to no option")
    assert "in quotes, as in -m 'run/checkpoint-*'" in said
    assert main(monkeypatch, "run", PROBE, "-m", "checkpoint-1", "nosuch") == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "'nosuch', which belongs to no option" in said
    assert "quotes" not in said


def test_reasons_of_unscored_items_are_said(
    untold: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    undertow.run(PROBE, model="toy", out="first", **TINY | {"limit": 4})
    assert main(monkeypatch, "run", PROBE, "-m", "recorded:first", *SMALL, "--out", "again") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Asked 8 items")
    assert "4 unscored" in lines[0]
    assert lines[1] == "  4 unscored: the run first: toy was not asked this"
    assert "unscored" not in lines[2]


def test_the_usual_reasons_are_said_first() -> None:
    reasons = [reason for number in range(1, 8) for reason in [f"reason {number}"] * number]
    run = SimpleNamespace(observations=pd.DataFrame({"unscored": ["", *reasons, ""]}))
    assert outcome._reasons(run) == [(f"reason {number}", number) for number in (7, 6, 5, 4, 3)]  # type: ignore[arg-type]
    assert outcome._reasons(SimpleNamespace(observations=pd.DataFrame())) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("n_stored", "n_passes", "expected"),
    [
        (30, 0, "Nothing is left to ask"),
        (10, 0, "The 20 that are left cannot be asked"),
        (10, 2, "To ask: 99 tokens in 2 "),
    ],
)
def test_what_cannot_be_asked_is_told_from_what_is_stored(
    n_stored: int, n_passes: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    estimate = Estimate(40, 30, n_stored, 99 if n_passes else 0, n_passes, 0.0, 0)
    run_command._say_estimate(estimate, as_json=False)
    assert capsys.readouterr().out.splitlines()[1].startswith(expected)


def test_a_run_needs_a_model(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(monkeypatch, "run", PROBE) == 2
    assert "--model" in capsys.readouterr().err
