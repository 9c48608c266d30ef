"""The benchmark small and from end to end, in this process; and its gate, which decides whether a time is told at all."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

import bench
import command_line
import contenders
import engine
import limit
import networks
import worker
from gate import END, Gate, Said
from rows import LIKELIHOOD, MASKED, SCHEMAS, WORDINGS
from undertow.types import Choice, UndertowError

pytestmark = pytest.mark.slow
PEERS_NOT_HERE = ("lm_eval", "minicons")
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


class InThisProcess:
    """Stands in for a context of multiprocessing: what would be a process is a thread."""

    Pipe = staticmethod(Pipe)

    def __init__(self, _kind: str) -> None: ...

    def Process(self, target: Callable[..., None], args: tuple[Any, ...], **_: Any) -> Thread:  # noqa: N802
        own = [Connection(os.dup(one.fileno())) if isinstance(one, Connection) else one for one in args]

        def run() -> None:
            try:
                with suppress(EOFError):  # its other end was left
                    target(*own)
            finally:
                for pipe in own:
                    if isinstance(pipe, Connection):
                        pipe.close()

        thread = Thread(target=run, daemon=True)
        thread.exitcode = 0  # type: ignore[attr-defined]
        return thread


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Options of a small run of the benchmark, on random networks, with the peers that the tests have."""
    pytest.importorskip("torch", reason="the model extra is not installed")
    for module in (worker, networks):
        monkeypatch.setattr(module, "get_context", InThisProcess)
    starts = worker.Worker.__init__

    def starts_alone(self: worker.Worker, order: worker.Order) -> None:
        starts(self, order)
        _ = self.ready  # transformers cannot load two models at once in one process

    monkeypatch.setattr(worker.Worker, "__init__", starts_alone)
    for row, of_row in contenders.CONTENDERS.items():
        here = tuple(one for one in of_row if one.package not in PEERS_NOT_HERE)
        monkeypatch.setitem(contenders.CONTENDERS, row, here)
    for name, value in {"ROWS": (4, 8), "SQUARES": (16,), "LEAST_SECONDS": 0.0}.items():
        monkeypatch.setattr(limit, name, value)
    labels = {label for item in WORDINGS.items() if isinstance(item.query, Choice) for label in item.query.labels}
    texts = [*worker.texts_of([*LIKELIHOOD.items(), *SCHEMAS.items()]), *labels]
    causal = networks.random_llama(texts, SMALL | {"max_position_embeddings": 512}, 3000)
    masked = networks.random_bert(worker.texts_of(MASKED.items()), SMALL)
    monkeypatch.setattr(engine, "random_llama", lambda _texts: causal)
    options = ["--rounds", "1", "--sample", "1", "--search-sample", "1", "--batch-sizes", "4", "16"]
    return [*options, "--model", causal, "--masked-model", masked, "--results", str(tmp_path / "results"), "--rows"]


def test_every_part_but_startup_is_measured_and_told(command: list[str], tmp_path: Path) -> None:
    parts = ["likelihood", "masked", "wordings", "prompts", "share", "growth", "memory", "bfloat16"]
    bench.main([*command, "likelihood,masked,wordings,prompts"])
    bench.main([*command, "share,growth,memory,bfloat16"])  # beside the races, which stay
    record = json.loads((tmp_path / "results" / "bench.json").read_text())
    assert set(record["parts"]) == set(parts)
    page = (tmp_path / "results" / "bench.md").read_text()
    assert all(f"\n## {part}\n" in page for part in parts)
    assert "| likelihood: at least 80% of the machine's limit on needed work |" in page
    races = [record["parts"][name] for name in parts[:4]]
    assert all(compared["rate_ratio"]["min"] > 0 for race in races for compared in race["comparisons"])
    sizes = record["parts"]["growth"]["sizes"]
    assert [one["n_items"] for one in sizes] == [60, 120, 240, 480]
    assert sizes[0]["n_tokens"] < sizes[1]["n_tokens"] < 2 * sizes[0]["n_tokens"]


def test_startup_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(command: list[str], *, cwd: str, env: dict[str, str], **_: Any) -> command_line.Done:
        return command_line.in_process(Path(cwd), *command[1:], env=env)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(engine, "HELP_RUNS", 1)
    monkeypatch.setattr(engine, "REPEATS", 1)
    bench.main(["--rows", "startup", "--model", "toy", "--sample", "2", "--results", str(tmp_path)])
    assert "run spurious-correlation -m toy --limit 2" in (tmp_path / "bench.md").read_text()


def test_contender_with_other_numbers_has_no_time(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = contenders._nats_behind  # the one place where a peer's numbers are made
    monkeypatch.setattr(contenders, "_nats_behind", lambda *given: [nats - 0.01 for nats in right(*given)])
    with pytest.raises(SystemExit, match=r"batched at batch size 4: is off by up to 0\.01 nats"):
        bench.main([*command, "likelihood"])
    assert not (tmp_path / "results").exists()


def test_page_in_the_repository_is_made_of_its_record() -> None:
    record = json.loads((bench.RESULTS / bench.RECORD).read_text())
    assert bench.page(record) == (bench.RESULTS / bench.PAGE).read_text()


SHE = Said(((0.5,), (0.1,)), (" she", " is", END))
NUMBERS = Said(((-1.0, -2.0),))


@pytest.mark.parametrize(
    ("reference", "other", "refusal"),
    [
        (NUMBERS, Said(((-1.0, -2.001),)), ""),
        (NUMBERS, Said(((-1.0, -2.1),)), "is off by up to 0.1"),
        (NUMBERS, Said(((-1.0, math.nan),)), "missing"),
        (NUMBERS, Said(((-1.0,),)), "missing"),
        (SHE, Said(((0.5,),), (" she", END)), "at step 2"),
        (SHE, Said(((0.5,), (0.1,)), (" she", " was", END), (9.0, 0.0005, 9.0)), ""),  # a tie
        (SHE, Said(((0.5,), (0.2,)), (" she", " was", END), (9.0, 0.0005, 9.0)), "is off"),
        (Said(((-1.0, -2.0),), ("race",)), Said(((-1.0, math.nan),), ("race",), (1.0,)), ""),  # one not looked at
        (Said(((-1.0, -2.0),), ("race",)), Said(((math.nan, math.nan),), ("race",)), "missing"),
        (Said(((-1.0, -2.0),), ("race",)), Said(((-1.0, -2.0),), ("age",), (1.0,)), "chooses 'age'"),
    ],
)
def test_gate_lets_equal_numbers_and_ties_through(reference: Said, other: Said, refusal: str) -> None:
    gate = Gate(2e-3, tie_percent=2 if reference.tokens else 0)
    if not refusal:
        gate.require([reference], [other], "a peer")
        return
    with pytest.raises(UndertowError, match=f"^a peer: .*{refusal}"):
        gate.require([reference], [other], "a peer")


def test_gate_lets_few_ties_through() -> None:
    parted = Said(((0.5,), (0.1,)), (" she", " was", END), (9.0, 0.0005, 9.0))
    gate = Gate(2e-3, tie_percent=2)
    assert gate.require([SHE] * 100, [SHE] * 98 + [parted] * 2, "a peer").n_ties == 2
    with pytest.raises(UndertowError, match="tie in 3 of 100"):
        gate.require([SHE] * 100, [SHE] * 97 + [parted] * 3, "a peer")
