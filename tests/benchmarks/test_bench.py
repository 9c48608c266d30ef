"""The benchmark small and from end to end, in this process; and its gate, which decides whether a time counts."""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

import bench
import contenders
import limit
import networks
import worker
from rows import LIKELIHOOD, WORDINGS
from undertow.types import Choice

pytestmark = pytest.mark.slow
PEERS_NOT_HERE = ("lm_eval", "minicons")
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


class InThread(ThreadPoolExecutor):
    """Stands in for a worker's process; one computes at a time, since transformers cannot load two models at once."""

    def __init__(self, n_workers: int, _context: object) -> None:
        super().__init__(n_workers)

    def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
        future = super().submit(*arguments, **options)
        wait([future])
        return future


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Options of a small run of the benchmark, on random networks, with the peers that the tests have."""
    pytest.importorskip("torch", reason="the model extra is not installed")
    for module in (worker, networks):
        monkeypatch.setattr(module, "ProcessPoolExecutor", InThread)
    for row, of_row in contenders.CONTENDERS.items():
        here = tuple(one for one in of_row if one.package not in PEERS_NOT_HERE)
        monkeypatch.setitem(contenders.CONTENDERS, row, here)
    for name, value in {"ROWS": (4, 8), "SQUARES": (16,), "LEAST_SECONDS": 0.0}.items():
        monkeypatch.setattr(limit, name, value)
    labels = {label for item in WORDINGS.items() if isinstance(item.query, Choice) for label in item.query.labels}
    texts = worker.texts_of(LIKELIHOOD.items())
    causal = networks.random_llama([*texts, *labels], SMALL, 1000)
    masked = networks.random_bert(texts, SMALL)
    options = ["--rounds", "1", "--sample", "1", "--search-sample", "1", "--batch-sizes", "16"]
    return [*options, "--model", causal, "--masked-model", masked, "--results", str(tmp_path / "results"), "--rows"]


@pytest.mark.soak
def test_races_are_measured_into_one_page_unless_numbers_differ(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    races = ["likelihood", "masked", "prompts", "wordings"]
    bench.main([*command, ",".join(races)])
    bench.main([*command, "growth"])  # beside the races, which stay
    record = json.loads((tmp_path / "results" / "bench.json").read_text())
    page = (tmp_path / "results" / "bench.md").read_text()
    assert set(record) == {*races, "growth"}
    assert all(f"\n## {part}\n" in page for part in record)
    assert all(compared["rate ratio"][0] > 0 for race in races for compared in record[race]["tables"][1])
    (sizes,) = record["growth"]["tables"]
    assert [size["items"] for size in sizes] == [60, 120, 240, 480]
    assert sizes[0]["distinct tokens"] < sizes[1]["distinct tokens"] < 2 * sizes[0]["distinct tokens"]
    right = contenders._nats_behind  # the one place where this peer's numbers are made
    monkeypatch.setattr(contenders, "_nats_behind", lambda *given: [nats - 0.01 for nats in right(*given)])
    with pytest.raises(SystemExit, match=r"batched at batch size 16: is off by up to 0\.01 nats"):
        bench.main([*command, "likelihood"])
    assert json.loads((tmp_path / "results" / "bench.json").read_text()) == record


def test_page_in_the_repository_is_made_of_its_record() -> None:
    record = json.loads((bench.RESULTS / bench.RECORD).read_text())
    assert bench.page(record) == (bench.RESULTS / bench.PAGE).read_text()
