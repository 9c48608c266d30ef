from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import undertow
from conftest import Cli
from helpers.faulty_proxy import Reply, serving
from undertow.errors import UndertowError
from undertow.runs import pipeline
from undertow.types import TEXT

PROBE = "spurious-correlation"


def test_run_of_toy_finds_the_planted_drift_and_nothing_else(finished_run: Callable[..., Path]) -> None:
    run = undertow.load_run(finished_run(PROBE, "toy"))
    results = run.results
    slopes = {(row["w_name"], row["pronoun"]): row for row in results[results["measure"] == "slope"].to_dict("records")}
    # Ten points a century of 0.80, over 29 steps of 215 years.
    planted = 10 / 100 / 0.80 * 215 / 29
    assert slopes["date", "female"]["value"] == pytest.approx(planted, abs=0.03)
    assert slopes["date", "male"]["value"] == pytest.approx(-planted, abs=0.03)
    assert float(slopes["place", "female"]["q"]) > 0.05
    (found,) = [finding for finding in run.findings if finding.significant]
    assert "date" in found.text
    moved = {one.group["pronoun"] for one in found.results if one.measure.startswith("slope") and one.q < 0.05}
    assert moved == {"female", "male", "female-male"}
    other_words = results[(results["measure"] == "mean_mass") & (results["pronoun"] == "other_words")]
    assert other_words["value"].to_numpy() == pytest.approx([20.0, 20.0])


@pytest.mark.parametrize(
    ("model", "w"), [("toy:slope=-4", ["date", "place"]), ("toy:slope=-4", "file"), (["toy", "toy:slope=-5"], "date")]
)
def test_printed_command_and_call_repeat_the_run(
    model: str | list[str], w: str | list[str], cli: Cli, tmp_path: Path
) -> None:
    towns = tmp_path / "my towns.txt"
    towns.write_text("Rome\nParis\nOslo\nBern\n")
    run = undertow.audit(PROBE, model, w=towns if w == "file" else w, limit=60, seed=1, out=tmp_path / "run")
    again = undertow.score(run.folder, seed=9, out=tmp_path / "other seed")
    exec(f"{str(run.manifest['python'])[:-1]}, out={str(tmp_path / 'called')!r})", {"undertow": undertow})
    for made, out in ((run, "repeated"), (again, "scored")):
        words = shlex.split(str(made.manifest["command"]))
        assert cli(*words[1:], "--out", str(tmp_path / out)).returncode == 0
    for made, out in ((run, "called"), (run, "repeated"), (again, "scored")):
        assert (tmp_path / out / "results.json").read_bytes() == (made.folder / "results.json").read_bytes()
        manifest = undertow.load_run(tmp_path / out).manifest
        assert [manifest[name] == made.manifest[name] for name in ("command", "python", "run_key", "design")] == [
            True
        ] * 4


def test_a_second_run_computes_nothing_and_another_seed_asks_the_same(tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": "toy", "w": "date", "date_count": 8}
    few = undertow.audit(PROBE, limit=96, out=tmp_path / "few", **options)
    first = undertow.audit(PROBE, out=tmp_path / "a", **options)
    second = undertow.audit(PROBE, out=tmp_path / "b", **options)
    other = undertow.audit(PROBE, seed=5, out=tmp_path / "c", **options)
    computed = [run.manifest["counts"]["computed"] for run in (first, second, other)]
    assert computed == [len(first.observations) - len(few.observations), 0, 0]
    assert pipeline.dry_run(PROBE, **options).n_tokens == 0
    assert (tmp_path / "a/results.json").read_bytes() == (tmp_path / "b/results.json").read_bytes()
    assert other.results["value"].equals(first.results["value"])


def test_estimate_counts_every_request_and_a_small_budget_is_named_before_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("openai", reason="the api extra is not installed")
    message = {"role": "assistant", "content": "She"}
    answer = Reply({"model": "m", "choices": [{"message": message, "finish_reason": "stop"}]})
    with serving(lambda asked: answer) as seen:
        options: dict[str, Any] = {"base_url": seen.url, "protocol": TEXT, "chat": True, "limit": 12, "prompts": "A"}
        estimate = pipeline.dry_run(PROBE, "openai:m", w="date", max_requests=20, **options)
        assert seen.requests == []
        with pytest.raises(UndertowError, match="the budget of 20 requests is spent"):
            undertow.audit(PROBE, "openai:m", w="date", max_requests=20, out=tmp_path / "run", **options)
        undertow.audit(PROBE, "openai:m", w="date", out=tmp_path / "run", **options)
        assert len(seen.requests) == estimate.n_passes == estimate.n_distinct + estimate.n_controls == 25
        assert pipeline.dry_run(PROBE, "openai:m", w="date", max_requests=20, **options).n_passes == 0
    told = "openai:m: the run needs 25 requests, so that --max-requests 20 ends it early"
    assert told in estimate.notes[-1]
    assert capsys.readouterr().err.count(told) == 1


HELP = """
import sys
sys.argv = ["undertow", "run", "spurious-correlation", "--help"]
from undertow.cli import main
try:
    main()
except SystemExit:
    pass
"""
IN_EVERY_SESSION = "numpy pandas pytest tomllib undertow.runs.gates undertow.runs.folder.storage xml"


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        # They would raise the peak while the weights of a model are unpacked.
        (
            "from undertow import audits; from undertow.runs import pipeline; [*map(audits.load, audits.names())]",
            "pandas",
        ),
        (HELP, "torch transformers httpx matplotlib pandas"),
        ("import undertow.pytest_plugin", IN_EVERY_SESSION),
        ("import undertow", "torch transformers matplotlib pandas"),
    ],
    ids=["audits", "help", "plugin", "library"],
)
def test_nothing_is_imported_before_it_is_needed(code: str, heavy: str, tmp_path: Path) -> None:
    code += f"\nimport sys\nprint([name for name in {heavy.split()} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
