"""The benchmark without its peers: equality before times, turns, whole W values, the table, the environment it makes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

import bench
from contenders import open_undertow
from gate import TOLERANCE_NATS, largest_difference, require_equal
from jobs import JOBS, draw, requests
from summary import compare, table
from undertow.models import toy
from undertow.models.base import Request
from undertow.types import Continuations, UndertowError
from worker import Answered, Memory, Order, Ready, Worker

ROOT = Path(__file__).parents[2]
SECONDS = {("undertow", 0): 1.0, ("lm-eval HF", 4): 6.0, ("lm-eval HF", 8): 5.0}


class Script:
    """Stands in for a worker's process: fixed times, and numbers that may be off."""

    log: ClassVar[list[tuple[str, int, int]]] = []
    off_nats: ClassVar[dict[tuple[str, int], float]] = {}

    def __init__(self, order: Order) -> None:
        self.name = order.contender
        self.ready = Ready(threads=2, source="a file", revision="abc", dtype="float32")

    def score(self, places: tuple[int, ...], batch_size: int) -> Answered:
        self.log.append((self.name, batch_size, len(places)))
        off = self.off_nats.get((self.name, batch_size), 0.0)
        return Answered([(-1.0, -2.0, -3.0 + off)] * len(places), SECONDS[self.name, batch_size])

    def close(self) -> Memory:
        scoring = 1050.0 if self.name == "undertow" else 1200.0
        return Memory(loaded_mib=1000.0, loading_peak_mib=1100.0, scoring_peak_mib=scoring)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> type[Script]:
    about = {"created": "2024-01-01", "versions": {"undertow": "1"}}
    machine = {"system": "Linux", "processor": "a processor", "cores": 2, "memory_gib": 8.0}
    monkeypatch.setattr(Script, "log", [])
    monkeypatch.setattr(Script, "off_nats", {})
    monkeypatch.setattr(bench, "Worker", Script)
    monkeypatch.setattr(bench, "describe", lambda _packages: about | {"machine": machine})
    return Script


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    line = ["bench.py", "--batch-sizes", "4", "8", "--rounds", "2", "--results", str(tmp_path / "results")]
    monkeypatch.setattr(sys, "argv", line)
    return line


def test_equal_numbers_pass_with_their_difference() -> None:
    assert require_equal([(-1.0, -2.0), (-3.0,)], [(-1.0, -2.001), (-3.0,)], "a peer") == pytest.approx(1e-3)


@pytest.mark.parametrize(
    "other",
    [
        [(-1.0, -2.0 - 1.1 * TOLERANCE_NATS), (-3.0,)],
        [(-1.0, -2.0), (3.0,)],
        [(-1.0, math.nan), (-3.0,)],
        [(-1.0, -math.inf), (-3.0,)],
        [(-1.0,), (-3.0,)],
        [(-1.0, -2.0), ()],
        [(-1.0, -2.0)],
    ],
)
def test_unequal_or_missing_numbers_are_refused(other: list[tuple[float, ...]]) -> None:
    with pytest.raises(UndertowError, match=r"a peer: .* no time is reported"):
        require_equal([(-1.0, -2.0), (-3.0,)], other, "a peer")


def test_two_contenders_without_numbers_are_not_equal() -> None:
    assert largest_difference([(), ()], [(), ()]) == math.inf
    assert largest_difference([], []) == math.inf


@pytest.mark.parametrize("where", [("lm-eval HF", 4), ("lm-eval HF", 8)])
def test_no_time_is_told_where_numbers_differ(
    where: tuple[str, int],
    script: type[Script],
    command: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    script.off_nats[where] = 0.01
    with pytest.raises(SystemExit) as ended:
        bench.main()
    assert "lm-eval HF" in str(ended.value.code)  # a text as exit code is printed, and exits with 1
    assert capsys.readouterr().out == ""
    assert not Path(command[-1]).exists()


def test_numbers_that_differ_in_the_rounds_alone_are_refused(
    script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = script.score

    def wrong_in_the_end(self: Script, places: tuple[int, ...], batch_size: int) -> Answered:
        answered = right(self, places, batch_size)
        last = len(self.log) == 11  # 1 engine, 4 search, 1 warm-up, then 2 rounds of 2 and a last one
        return Answered([(0.0, 0.0, 0.0)] * len(places), 1.0) if last else answered

    monkeypatch.setattr(script, "score", wrong_in_the_end)
    monkeypatch.setattr(sys, "argv", [*command, "--rounds", "3"])
    with pytest.raises(SystemExit, match="undertow: is off"):
        bench.main()


def test_contenders_take_turns_at_the_best_batch_size(script: type[Script], command: list[str]) -> None:
    bench.main()
    search = [("lm-eval HF", size, 240) for size in (4, 8, 8, 4)]
    rounds = [("undertow", 0, 360), ("lm-eval HF", 8, 360)] * 2
    assert script.log == [("undertow", 0, 240), *search, ("lm-eval HF", 8, 240), *rounds]


def test_full_takes_every_item(script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--full"])
    bench.main()
    assert script.log[-2:] == [("undertow", 0, 1800), ("lm-eval HF", 8, 1800)]
    page = (Path(command[-1]) / "bench.md").read_text()
    assert "1,800 items (5,400 log-likelihood requests), all of the set" in page


def test_the_record_on_disk_makes_the_table(script: type[Script], command: list[str]) -> None:
    bench.main()
    record = json.loads((Path(command[-1]) / "bench.json").read_text())
    page = table(record)
    assert page == (Path(command[-1]) / "bench.md").read_text()
    assert "| undertow | its own | 360.0 | 360.0 to 360.0 | 1100 | 1000 | 1050 | 50 |" in page
    assert "| lm-eval HF | 8 | 72.0 | 72.0 to 72.0 | 1200 | 1000 | 1200 | 200 |" in page
    assert "| lm-eval HF | 5.00 | 5.00 to 5.00 | 0.88 | 0.0e+00 |" in page
    assert "4 times the rate (median): kept; no more memory: kept" in page
    assert "4: 40.0, 8: 48.0. Best: 8" in page
    assert len(record["load_average"]["before"]) == len(record["load_average"]["after"]) == 3


def test_a_promise_that_is_not_kept_is_told(script: type[Script], command: list[str]) -> None:
    bench.main()
    record = json.loads((Path(command[-1]) / "bench.json").read_text())
    record["jobs"][0]["comparisons"][0] |= {"memory_ratio": 1.01, "rate_ratio": {"min": 3, "median": 3.99, "max": 9}}
    assert "4 times the rate (median): not kept; no more memory: not kept" in table(record)


def test_ratios_are_taken_round_by_round() -> None:
    def entry(rates: list[float], peak: float) -> dict[str, Any]:
        return {"name": "x", "items_per_s": rates, "memory": {"scoring_peak_mib": peak}}

    compared = compare(entry([100.0, 80.0, 90.0], 500.0), entry([20.0, 10.0, 30.0], 1000.0))
    assert compared["rate_ratio"] == {"min": 3.0, "median": 5.0, "max": 8.0}
    assert compared["memory_ratio"] == 0.5


def test_samples_are_whole_w_values_and_nested() -> None:
    items = JOBS[0].items()
    small, large = draw(items, 4, seed=0), draw(items, 6, seed=0)
    assert (len(small.places), len(large.places)) == (240, 360)
    assert set(small.places) < set(large.places)
    assert {str(items[place].factors["w"]) for place in large.places} == set(large.w_values)
    assert draw(items, 4, seed=1).w_values != small.w_values
    assert len(draw(items, len(items), seed=0).places) == len(items) == 1800


def test_requests_split_a_sentence_at_its_blank() -> None:
    pairs = requests(JOBS[0].items()[0].query)
    assert pairs == [("In 1801,", f" {word} was a child.") for word in ("she", "he", "they")]
    assert requests(Continuations("It is", (" hot.", " cold."))) == [("It is", " hot."), ("It is", " cold.")]


def test_the_engine_is_asked_anew_each_time(cache: Path) -> None:
    found = toy.find(Request("toy"))
    assert found is not None
    model = found.open()
    passes: list[int] = []

    class Counted:
        """The toy model, its passes counted."""

        card, notes, limits, encode = model.card, model.notes, model.limits, staticmethod(model.encode)
        read_batch, memory_bytes = staticmethod(model.read_batch), staticmethod(model.memory_bytes)

        @staticmethod
        def read_tree(tree: Any) -> Any:
            passes.append(len(tree.tokens))
            return model.read_tree(tree)

    score = open_undertow(Counted())([item.query for item in JOBS[0].items()[:60]], 0)
    first, n_passes = score(), len(passes)
    assert score() == first
    assert len(passes) == 2 * n_passes > 0
    assert {len(options) for options in first} == {3}
    assert list(cache.glob("bench-*")) == []


def test_a_worker_that_cannot_load_says_why(tmp_path: Path) -> None:
    with pytest.raises(UndertowError, match=r"there is no such GGUF file"):
        Worker(Order("undertow", "mgc-date", str(tmp_path / "none.gguf"), threads=0))


def test_peers_are_pinned_beside_the_constraints() -> None:
    def pins(path: str) -> dict[str, str]:
        lines = [line for line in (ROOT / path).read_text().splitlines() if line and not line.startswith("#")]
        return dict(line.lower().split("==") for line in lines)

    peers, own = pins("benchmarks/requirements.txt"), pins("constraints.txt")
    assert "lm_eval" in peers
    assert peers.keys().isdisjoint(own)


# Behaves like Python as far as run.sh can see: logs its calls, makes an environment of copies of itself.
STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> "{home}/calls"
case "$*" in
  "-m venv"*) mkdir -p .venv-bench/bin && cp "$0" .venv-bench/bin/python && cp "$0" .venv-bench/bin/undertow ;;
  *"pip install"*) if [ -e "{home}/cut-off" ]; then exit 1; fi ;;
esac
"""


class Checkout:
    """A folder with what run.sh reads, and what its stand-in Python was called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "a checkout"
        self.home = folder / "home"
        self.home.mkdir()
        for name in ("pyproject.toml", "constraints.txt", "benchmarks/run.sh", "benchmarks/requirements.txt"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes((ROOT / name).read_bytes())
        self.python = self.home / "python"
        self.python.write_text(STAND_IN.format(home=self.home))
        self.python.chmod(0o755)

    def run(self, *arguments: str) -> int:
        """Exit code of run.sh."""
        line = ["sh", str(self.folder / "benchmarks" / "run.sh"), *arguments]
        return subprocess.run(line, env={"PATH": "/usr/bin:/bin", "PYTHON": str(self.python)}, check=False).returncode

    def calls(self) -> list[str]:
        return (self.home / "calls").read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_environment_is_made_once(checkout: Checkout) -> None:
    assert checkout.run() == checkout.run() == 0
    installs = [call for call in checkout.calls() if "pip install" in call]
    assert [call.split("-c constraints.txt ")[1] for call in installs] == [
        "torch",
        "-e .[models]",
        "-r benchmarks/requirements.txt",
    ]


def test_an_install_cut_short_is_done_again(checkout: Checkout) -> None:
    (checkout.home / "cut-off").touch()
    assert checkout.run() != 0
    assert not any("bench.py" in call for call in checkout.calls())
    (checkout.home / "cut-off").unlink()
    assert checkout.run() == 0
    assert checkout.calls()[-1] == "python benchmarks/bench.py"


def test_changed_pins_are_installed(checkout: Checkout) -> None:
    checkout.run()
    with (checkout.folder / "benchmarks" / "requirements.txt").open("a") as file:
        file.write("another==1.0\n")
    before = len(checkout.calls())
    assert checkout.run() == 0
    assert sum("pip install" in call for call in checkout.calls()[before:]) == 3


def test_arguments_reach_the_benchmark_as_they_are(checkout: Checkout) -> None:
    checkout.run("--full", "--results", "a folder")
    assert checkout.calls()[-2:] == ["undertow pull smollm2", "python benchmarks/bench.py --full --results a folder"]
