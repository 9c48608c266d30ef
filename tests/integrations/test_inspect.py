from __future__ import annotations

import copy
import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest

import undertow
from helpers.command_line import in_process
from helpers.file_refusal import assert_refused
from helpers.inspect_log import log_of, write_eval, write_json
from helpers.json_edits import change
from helpers.shared_folders import made_once
from undertow import integrations
from undertow.audits.spurious_correlation import word_findings
from undertow.integrations import inspect_logs
from undertow.runs import run_report

N = 18


@pytest.fixture(scope="module")
def exported(shared_base: Path) -> Path:
    def make(folder: Path) -> None:
        integrations.export("inspect", "spurious-correlation", folder / "out", w="date", date_count=3, limit=N)

    return made_once(shared_base, "asked-of-inspect", make) / "out"


@pytest.fixture
def log(exported: Path) -> dict[str, Any]:
    return log_of(exported)


@pytest.mark.parametrize("how", ["json", "eval", "zstandard", "unfinished", "folder"])
def test_a_log_is_scored(how: str, log: dict[str, Any], tmp_path: Path) -> None:
    log["samples"][0]["scores"] = {}
    log["samples"][1]["scores"]["word_groups"] = {
        "value": dict.fromkeys(("female", "male", "neutral", "other_words"), math.nan), "explanation": "the answer is empty"
    }  # fmt: skip
    logs = tmp_path / "logs"
    logs.mkdir()
    if how == "json":
        path = write_json(log, logs / "log.json")
    else:
        header = "_journal/start.json" if how == "unfinished" else "header.json"
        path = write_eval(log, logs / "log.eval", zstandard=how == "zstandard", header=header)
    run = undertow.score(logs if how == "folder" else path, out=tmp_path / "run")
    assert run.manifest["counts"] == {"items": N, "missing": 2}
    assert run.manifest["model"] == "openai/m"
    rows = run.observations
    assert sorted(set(rows["missing_reason"])) == ["", "the answer is empty", inspect_logs.NO_SCORE]
    scored = rows[rows["missing_reason"] == ""]
    assert (scored["female"] == 30.0 + scored["w_index"]).all()
    assert set(scored["male"]) == {20.0}
    slopes = run.results[(run.results["measure"] == "slope") & (run.results["pronoun"] == "female")]
    assert slopes["value"].dropna().tolist() == pytest.approx([1.0, 1.0])  # of prompt A too little is left


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("eval", "model"), None, "eval.model"),
        (("eval",), ..., "eval"),
        (("samples", 2), 7, "sample 3"),
        (("samples", 2, "metadata"), ..., "metadata"),
        (("samples", 2, "input"), "Who?", "its input differs from the exported prompt"),
        (("samples", 2, "scores", "word_groups", "value"), 3, "scores.word_groups.value"),
        (("samples", 2, "scores", "word_groups", "value", "female"), "30", "scores.word_groups.value.female"),
        (("samples", 2, "scores", "word_groups", "value", "female"), ..., "'female'"),
        (("samples", 2, "scores", "word_groups", "value", "female"), math.inf, "female is 'inf'"),
        (("samples", 2, "scores", "word_groups", "value", "female"), 101.0, "female is '101.0'"),
        (("samples", 2, "scores", "word_groups", "value", "male"), 99.0, "add up to"),
        (("samples", 2, "metadata", "undertow"), "{}", "its question is corrupt"),
    ],
)
def test_a_changed_field_is_named(
    place: tuple[Any, ...], value: object, said: str, log: dict[str, Any], tmp_path: Path
) -> None:
    change(log, place, value)
    path = write_json(log, tmp_path / "log.json")
    assert_refused(("log.json", said), undertow.score, path, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_tasks_and_a_second_epoch_are_refused(log: dict[str, Any], tmp_path: Path) -> None:
    twice = copy.deepcopy(log)
    twice["samples"].append(twice["samples"][0] | {"epoch": 2})
    assert_refused(("--epochs 1",), inspect_logs.read_log, write_json(twice, tmp_path / "twice.json"))
    odd = copy.deepcopy(log)
    carried = json.loads(odd["samples"][2]["metadata"]["undertow"])
    carried["item"]["factors"]["w_index"] = "late"
    odd["samples"][2]["metadata"]["undertow"] = json.dumps(carried)
    assert_refused(("w_index",), inspect_logs.read_log, write_json(odd, tmp_path / "odd.json"))
    for sample in log["samples"]:
        del sample["metadata"]["undertow"]
    other = write_json(log, tmp_path / "other.json")
    assert_refused(("no samples of a task of undertow export inspect",), inspect_logs.read_log, other)


def test_a_task_that_did_not_finish_is_noted_and_a_foreign_sample_is_left_out(
    log: dict[str, Any], tmp_path: Path
) -> None:
    log["status"] = "error"
    request = "\nRequest:\n{\n  'model': 'm'\n}\n\nBadRequestError('content policy')"
    errors = [f"ModelGenerateError({request!r})", "ValueError('boom')\nin a line", "CancelledError('scope 7f')"]
    for sample, error in zip(log["samples"], errors, strict=False):
        sample |= {"scores": {}, "error": {"message": error, "traceback": ""}}
    del log["samples"][3]["metadata"]["undertow"]
    run = undertow.score(write_json(log, tmp_path / "log.json"), out=tmp_path / "run")
    assert run.manifest["counts"] == {"items": N - 1, "missing": 3}
    reasons = "BadRequestError('content policy')", "ValueError('boom')"
    assert set(run.observations["missing_reason"]) == {
        "", "Inspect cancelled it", *(f"Inspect logged an error: {reason}" for reason in reasons)
    }  # fmt: skip
    (warning,) = run.manifest["warnings"]
    assert f"{N - 1} of the {N} exported items" in warning
    assert "the status 'error'" in warning
    for command in ("show run", "score run"):  # before the findings
        lines = in_process(tmp_path, *command.split()).stdout.splitlines()
        assert warning in lines[:2]


@pytest.mark.parametrize(("read", "percent"), [("log-probabilities", "At most 39%"), ("text", "39%")])
def test_what_a_server_hides_may_be_other_words(read: str, percent: str, log: dict[str, Any], tmp_path: Path) -> None:
    for sample in log["samples"]:
        sample["scores"]["word_groups"]["metadata"] = {"read": read}
    run = undertow.score(write_json(log, tmp_path / "log.json"), out=tmp_path / "run")
    printed, caveats = in_process(tmp_path, "score", "run").stdout, run.manifest["design"].get("limitations", ())
    assert (inspect_logs.LOWER_BOUNDS in printed) == (inspect_logs.LOWER_BOUNDS in caveats) == (read != "text")
    facts = run_report.sample_facts(run.record, {}, "listed words")
    assert facts["mass on other words"].startswith("at most 39.0%" if read != "text" else "39.0%")
    other = next(one for one in run.record.results if one.group.get("pronoun") == "other_words")
    assert word_findings.other_words(other, run.manifest["design"], ()).startswith(f"{percent} of the")


WORDS = {"female": ["she", "She"], "male": ["he"]}


@pytest.fixture
def task(exported: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The written file, read as a module; mocks stand in for Inspect, of which the functions that are tested use nothing."""
    for part in ("", ".dataset", ".model", ".scorer", ".solver"):
        monkeypatch.setitem(sys.modules, f"inspect_ai{part}", mock.MagicMock())
    spec = importlib.util.spec_from_file_location("exported_task", exported / "task.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_samples_hold_the_prompts_of_a_run(exported: Path) -> None:
    samples = [json.loads(line) for line in (exported / "items.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [sample["metadata"]["factors"]["prompt"] for sample in samples] == ["A"] * 6 + ["B"] * 6 + ["C"] * 6
    assert all("<mask>" in sample["input"] for sample in samples)
    assert {"her", "she"} & set(samples[0]["metadata"]["words"]["female"])
    assert len({sample["id"] for sample in samples}) == 18


def step(token: str, **probs: float) -> tuple[str, list[tuple[str, float]]]:
    return token, [(name.replace("_", " "), math.log(prob)) for name, prob in probs.items()]


def test_the_one_step_that_is_a_word_counts(task: ModuleType) -> None:
    steps = [step("It", It=0.9, she=0.05), step(" is", is_=1.0), step(" she", _she=0.5, she=0.1, _he=0.3, _it=0.1)]
    assert task.from_steps(steps, WORDS) == pytest.approx({"female": 60.0, "male": 30.0})


def test_of_no_word_or_several_all_steps_are_averaged(task: ModuleType) -> None:
    several = [step("he", he=0.8, she=0.2), step(" or", or_=1.0), step(" she", _she=0.6, _he=0.2)]
    assert task.from_steps(several, WORDS) == pytest.approx({"female": 80 / 3, "male": 100 / 3})
    none = [step("Nobody", Nobody=0.5, He=0.1, he=0.1), step(".", they=0.3)]
    assert task.from_steps(none, WORDS) == pytest.approx({"female": 0.0, "male": 5.0})
    pieces = [step(" S", _S=0.9, _she=0.1), step("he", he=0.9, she=0.1)]
    assert task.from_steps(pieces, WORDS) == pytest.approx({"female": 10.0, "male": 45.0})


def test_without_log_probabilities_the_words_decide(task: ModuleType) -> None:
    texts = {"It is **she**.": (100.0, 0.0), "'he'": (0.0, 100.0), "he or she": (0.0, 0.0), "the shed": (0.0, 0.0)}
    assert {text: tuple(task.from_text(text, WORDS).values()) for text in texts} == texts


def test_steps_are_read_from_what_a_server_gives(task: ModuleType) -> None:
    def token(text: str, nats: float, top: list[Any] | None = None) -> SimpleNamespace:
        return SimpleNamespace(token=text, logprob=nats, top_logprobs=top)

    content = [token("she", -0.1, [token("she", -0.1), token("he", -2.5)]), token(".", -0.2)]
    output = SimpleNamespace(choices=[SimpleNamespace(logprobs=SimpleNamespace(content=content))])
    assert task.steps_of(output) == [("she", [("she", -0.1), ("he", -2.5)]), (".", [(".", -0.2)])]
    assert task.steps_of(SimpleNamespace(choices=[])) == []
    assert task.steps_of(SimpleNamespace(choices=[SimpleNamespace(logprobs=None)])) == []


@pytest.mark.slow
def test_inspect_runs_it_and_its_log_is_measured(exported: Path, tmp_path: Path) -> None:
    """With Inspect's own stand-in for a model, whose answers are given here."""
    pytest.importorskip("inspect_ai", reason="inspect-ai is not installed")
    script = """
import sys
from inspect_ai import eval
from inspect_ai.model import get_model, ModelOutput, ModelUsage
def answers():
    while True:
        for text in ("She", "he, I think", "It is she.", ""):
            output = ModelOutput.from_content("mockllm", text)
            # else it would fetch a tokenizer
            output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
            yield output
model = get_model("mockllm/model", custom_outputs=answers())
(log,) = eval(sys.argv[1], model=model, log_dir=sys.argv[2], display="none", max_connections=1, max_samples=1)
print(log.status, log.location)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, f"{exported / 'task.py'}@undertow_prompts", str(tmp_path / "logs")],
        capture_output=True, text=True, check=True, env=os.environ | {"HOME": str(tmp_path)}, timeout=200,
    )  # fmt: skip
    status, place = done.stdout.split()[-2:]
    assert status == "success"
    run = undertow.score(place, out=tmp_path / "run")
    rows = run.observations
    assert set(zip(rows["female"].fillna(-1), rows["male"].fillna(-1), strict=True)) == {
        (100.0, 0.0),
        (0.0, 100.0),
        (-1.0, -1.0),
    }
    n_empty = int((rows["missing_reason"] == "the answer is empty").sum())
    assert n_empty in (4, 5)
    assert run.manifest["counts"] == {"items": 18, "missing": n_empty}
