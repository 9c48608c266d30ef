"""The Inspect task: what is written, how its scorer reads an answer, and, where Inspect is installed, that it runs."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import undertow
from undertow import integrations

WORDS = {"female": ["she", "She"], "male": ["he"]}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspect") / "out"
    integrations.export("inspect", "spurious-correlation", folder, w="date", date_count=3, limit=18)
    return folder


def stand_in_modules() -> dict[str, ModuleType]:
    """As much of Inspect as the file names when it is read; the functions that are tested here use none of it."""
    names = {
        "inspect_ai": ("Task", "task"),
        "inspect_ai.dataset": ("MemoryDataset", "json_dataset"),
        "inspect_ai.model": ("GenerateConfig",),
        "inspect_ai.scorer": ("Score", "mean", "scorer"),
        "inspect_ai.solver": ("generate",),
    }
    modules = {}
    for name, members in names.items():
        modules[name] = ModuleType(name)
        for member in members:
            setattr(modules[name], member, _decorator)
    return modules


def _decorator(*given: Any, **named: Any) -> Any:
    return given[0] if given and callable(given[0]) else lambda one: one


@pytest.fixture
def task(exported: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The written file, read as a module, without Inspect."""
    for name, module in stand_in_modules().items():
        monkeypatch.setitem(sys.modules, name, module)
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
