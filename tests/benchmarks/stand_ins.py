"""What tests of the benchmark share: workers and processes that are none, tiny models, the command line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

import bench
import made
import needed
import race
import random_llama
import work
from contenders import open_undertow
from gate import Chosen, Written
from needed import Needed, Shape
from rows import ROWS
from undertow.models.base import Found, Request
from work import Plan
from worker import Answered, Loaded, Memory, Order, Ready

SECONDS = {
    ("undertow", 0): 1.0,
    ("lm-eval HF", 4): 6.0,
    ("lm-eval HF", 8): 5.0,
    ("minicons", 4): 7.0,
    ("minicons", 8): 8.0,
}
BFLOAT16_TIMES = 0.4
OTHERS_SECONDS = {1: 8.0, 4: 2.0, 8: 3.0}
TINY_BERT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "initializer_range": 0.2,
}


class Script:
    """Stands in for a worker's process: fixed times, and numbers that may be off."""

    log: ClassVar[list[tuple[str, int, int]]] = []
    off: ClassVar[dict[tuple[str, int], float]] = {}
    models: ClassVar[set[str]] = set()

    def __init__(self, order: Order) -> None:
        self.name, self.row = order.contender, order.row
        self.models.add(order.model)
        self.ready = Ready(threads=2, source=f"weights of {order.row}", revision=order.row, dtype=order.dtype)

    def score(self, places: tuple[int, ...], batch_size: int) -> Answered:
        self.log.append((self.name, batch_size, len(places)))
        reduced = self.ready.dtype == "bfloat16"
        off = self.off.get((self.name, batch_size), 0.1 if reduced else 0.0)
        seconds = SECONDS.get((self.name, batch_size)) or OTHERS_SECONDS[batch_size]
        seconds *= BFLOAT16_TIMES if reduced else 1.0
        said: dict[str, Any] = {
            "prompts": written(" she", prob=0.5 + off),
            "wordings": Chosen("race", (-1.0, -2.0 + off)),
        }
        return Answered([said.get(self.row, (-1.0, -2.0, -3.0 + off))] * len(places), seconds)

    def do(self, what: Callable[..., Any], *arguments: Any) -> Any:
        """The work is five tokens an item at 5 GFLOP each; the machine multiplies 1000 GFLOP/s, thrice that in bfloat16."""
        if what is needed.shape_of:
            return Shape(((8, 8),), ((8, 1000),), n_layers=1, width=8, weights_bytes=600 * 10**6, at_reads=0)
        if what is needed.needed_by:
            n_items = len(arguments[0])
            return Needed(5 * n_items, 6 * n_items, 30 * n_items, n_items, 6 * n_items, layers_flop=5 * 10**9 * n_items)
        return {"slow": [4e11, 6e11], "fast": [3e12 if self.ready.dtype == "bfloat16" else 1e12] * 3}

    def close(self) -> Memory:
        scoring = 1050.0 if self.name == "undertow" else 1200.0
        return Memory(before_mib=400.0, loaded_mib=1000.0, loading_peak_mib=1100.0, scoring_peak_mib=scoring)


def written(*tokens: str, prob: float = 0.5, ties: tuple[tuple[str | None, ...], ...] = ()) -> Written:
    """An answer that says the same of its one option at every step."""
    return Written("".join(tokens), (prob,) if tokens else (), tokens, ((prob,),) * len(tokens), ties)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> type[Script]:
    about = {"created": "2024-01-01", "versions": {"undertow": "1"}, "code_sha256": "0123456789abcdef"}
    machine = {"system": "Linux", "processor": "a processor", "cores": 2, "memory_gib": 8.0}
    monkeypatch.setattr(Script, "log", [])
    monkeypatch.setattr(Script, "off", {})
    monkeypatch.setattr(Script, "models", set())
    for module in (race, work):
        monkeypatch.setattr(module, "Worker", Script)
    monkeypatch.setattr(bench, "describe", lambda _packages: about | {"machine": machine})
    monkeypatch.setattr(work, "prepared", lambda _texts: Path("a random bert"))
    monkeypatch.setattr(random_llama, "prepared", lambda _texts: Path("a random llama"))
    return Script


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    line = ["bench.py", "--batch-sizes", "4", "8", "--rounds", "2", "--rows", "likelihood"]
    line += ["--results", str(tmp_path / "results")]
    monkeypatch.setattr(sys, "argv", line)
    return line


class Here:
    """Stands in for multiprocessing: what would be a process runs here, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.started = fails, 0
        self.exitcode = 1 if fails else 0

    def Process(self, target: Callable[..., None], args: tuple[Any, ...]) -> Here:  # noqa: N802 - as multiprocessing has it
        self.asked = target, args
        return self

    def start(self) -> None:
        self.started += 1
        target, args = self.asked
        if not self.fails:
            target(*args)

    def join(self) -> None:
        """Nothing is left to wait for."""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    pytest.importorskip("torch", reason="the model extra is not installed")
    process = Here()
    monkeypatch.setattr(made, "get_context", lambda _kind: process)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    return process


def loaded(row: Any, folder: Path) -> Found:
    found: Found | None = import_module(f"undertow.models.{row.family}").find(Request(str(folder), device="cpu"))
    assert found is not None
    model = found.open()
    return replace(found, open=lambda: model)


def masked_texts() -> list[str]:
    return [text for item in ROWS["masked"].items() for text in item.query.texts()]  # type: ignore[union-attr]


class InThisProcess:
    """A worker of the engine whose process is this one, for models that are loaded in no time."""

    def __init__(self, order: Order) -> None:
        family = import_module(f"undertow.models.{ROWS[order.row].family}")
        found: Found | None = family.find(Request(order.model, dtype=order.dtype, device="cpu"))
        assert found is not None
        model = found.open()
        queries = [item.query for item in ROWS[order.row].items()]
        self.loaded = Loaded(model, queries)
        self.prepare = open_undertow(replace(found, open=lambda: model))
        self.ready = Ready(1, model.card.source, model.card.revision, model.card.dtype)

    def score(self, places: tuple[int, ...], batch_size: int) -> Answered:
        started = time.perf_counter()
        numbers = self.prepare([self.loaded.queries[place] for place in places], batch_size)()
        return Answered(numbers, time.perf_counter() - started)

    def do(self, what: Callable[..., Any], *arguments: Any) -> Any:
        return what(self.loaded, *arguments)

    def close(self) -> Memory:
        return Memory(400.0, 500.0, 500.0, 600.0)


def asked(**changed: Any) -> Plan:
    """What a user asks for who wants little."""
    little = Plan(
        full=False, rounds=2, sample=1, search_sample=1, batch_sizes=(4, 8), seed=0, model="smollm2", masked_model="",
        threads=0,
    )  # fmt: skip
    return replace(little, **changed)
