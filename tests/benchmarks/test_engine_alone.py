"""What is measured of the engine alone: growth, memory, start-up, and bfloat16."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again where they are asked for
from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from stand_ins import InThisProcess, Script, asked, command, script

from tiny import saved, tiny_llama

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

import bench
import bfloat16
import growth
import memory
import peak
import startup
import work
from parts import PARTS
from summary import table
from undertow.types import UndertowError
from worker import Answered, Memory

TAKEN = {"rounds": 1}


def test_the_slope_is_the_power_of_growth() -> None:
    sizes = [10, 20, 40, 80]
    for power in (1.0, 1.5, 2.0):
        assert growth.log_slope(sizes, [3.0 * size**power for size in sizes]) == pytest.approx(power)
    assert growth.log_slope(sizes, [5.0] * 4) == pytest.approx(0.0)


def test_a_small_part_that_grows_with_the_square_is_noticed() -> None:
    # As the reason of the tolerance says: one thirtieth of the smallest work's time.
    times = [size + size**2 / 29 for size in growth.FACTORS]
    last = times[-1] / times[0] / growth.FACTORS[-1]
    assert last == pytest.approx(8**0.1, abs=0.02)
    assert growth.log_slope(growth.FACTORS, [size + size**2 / 20 for size in growth.FACTORS]) > growth.PROMISED_SLOPE


def test_growth_of_a_real_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the model extra is not installed")
    monkeypatch.setattr(work, "Worker", InThisProcess)
    monkeypatch.setattr(growth, "FACTORS", (1, 2))
    entry = growth.measure(asked(model=saved(tmp_path, tiny_llama()), rounds=1))
    small, large = entry["sizes"]
    assert (small["n_items"], large["n_items"]) == (60, 120)
    assert small["n_tokens"] < large["n_tokens"] < 2.2 * small["n_tokens"]
    assert [len(one["seconds"]) for one in entry["sizes"]] == [1, 1]
    per_token = [one["seconds"][0] / one["n_tokens"] for one in entry["sizes"]]
    expected = 1 + math.log(per_token[1] / per_token[0]) / math.log(large["n_tokens"] / small["n_tokens"])
    assert entry["slope"] == pytest.approx(expected)
    assert f"| 60 | 1 | {small['n_tokens']:,} |" in growth.section(entry | {"taken": TAKEN}, {})


def test_sizes_take_turns_and_are_nested(script: type[Script], monkeypatch: pytest.MonkeyPatch) -> None:
    entry = growth.measure(asked(sample=2))
    assert [one["n_items"] for one in entry["sizes"]] == [120, 240, 480, 960]
    assert [n_items for _, _, n_items in script.log] == [60, *[120, 240, 480, 960] * 2]
    assert entry["sizes"][3]["n_tokens"] == 5 * 960
    assert growth.measure(asked(full=True))["sizes"][3]["n_units"] == 48


def test_an_item_has_the_same_numbers_in_every_size(script: type[Script], monkeypatch: pytest.MonkeyPatch) -> None:
    right = script.score

    def other_in_large_works(self: Script, places: tuple[int, ...], batch_size: int) -> Answered:
        self.off["undertow", 0] = 0.01 if len(places) > 240 else 0.0
        return right(self, places, batch_size)

    monkeypatch.setattr(script, "score", other_in_large_works)
    with pytest.raises(UndertowError, match="growth: 8 times the items: is off"):
        growth.measure(asked())


@pytest.mark.parametrize(("slope", "verdict"), [(1.1, "yes"), (1.11, "no")])
def test_growth_is_promised_to_be_linear(slope: float, verdict: str) -> None:
    (promise,) = growth.promises({"slope": slope, "promised_slope": growth.PROMISED_SLOPE})
    assert (promise.measured, promise.verdict) == (f"{slope:.2f}", verdict)


def test_memory_is_told_in_millions_of_bytes_beyond_the_weights() -> None:
    found = memory.sizes(Memory(100.0, 300.0, 2000.0, 1000.0), weights_bytes=500 * 10**6)
    assert found["peak_mb"] == pytest.approx(1048.576)
    assert found["beyond_mb"] == pytest.approx(548.576)
    assert found["libraries_mb"] == pytest.approx(104.8576)


def test_memory_is_promised_of_every_vocabulary(script: type[Script]) -> None:
    entry = memory.measure(asked())
    assert script.models == {"smollm2", "a random llama", "a random bert"}
    kept = [promise.verdict for promise in memory.promises(entry)]
    assert kept == ["yes"] * 3  # 1050 MiB less 600 MB
    entry["works"][1]["beyond_mb"] = 600.1
    assert [promise.verdict for promise in memory.promises(entry)] == ["yes", "no", "yes"]
    page = memory.section(entry | {"taken": TAKEN}, {})
    assert "| likelihood | weights of likelihood | 1,000 | 419 | 600 | 1049 | 1101 | 501 |" in page


class Commands:
    """Stands in for subprocess and a clock: each command takes as long as it is told to."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.now = fails, 0.0
        self.ran: list[tuple[list[str], Path, str]] = []

    def perf_counter(self) -> float:
        return self.now

    def run(self, line: list[str], **options: Any) -> Any:
        self.ran.append((line[1:], options["cwd"], options["env"]["UNDERTOW_CACHE"]))
        cache = Path(options["env"]["UNDERTOW_CACHE"])
        assert (cache / "models").is_symlink()
        first = not (cache / "answers.sqlite").exists()
        (cache / "answers.sqlite").touch()
        self.now += 0.2 if line[1] == "--help" else 20.0 if first else 1.5
        failed = line[1] == self.fails
        return type("Done", (), {"returncode": int(failed), "stderr": "why it failed\n"})


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Commands:
    cache.mkdir(exist_ok=True)
    commands = Commands()
    monkeypatch.setattr(startup, "subprocess", commands)
    monkeypatch.setattr(startup, "time", commands)
    return commands


def test_startup_is_of_whole_processes_with_a_store_of_their_own(commands: Commands, cache: Path) -> None:
    entry = startup.measure(asked(sample=0))
    run = ["run", "spurious-correlation", "-m", "smollm2", "--limit", "300"]
    assert [line for line, _, _ in commands.ran] == [["--help"]] * 11 + [run] * 6
    assert len({(folder, own) for _, folder, own in commands.ran}) == 1
    assert list(cache.glob("bench-*")) == []
    assert (len(entry["help_s"]), len(entry["repeat_s"])) == (10, 5)
    assert [promise.verdict for promise in startup.promises(entry)] == ["yes", "yes"]
    assert "| `undertow --help` | 10 | 0.20 | 0.20 to 0.20 |" in startup.section(entry, {})
    entry["help_s"], entry["repeat_s"] = [0.3] * 10, [2.0] * 5
    assert [promise.verdict for promise in startup.promises(entry)] == ["no", "no"]


def test_a_command_that_fails_is_said(commands: Commands) -> None:
    commands.fails = "run"
    with pytest.raises(UndertowError, match="ended with 1: why it failed"):
        startup.measure(asked())


def test_help_is_really_run(cache: Path) -> None:
    cache.mkdir(exist_ok=True)
    place = startup._Place.of(cache)
    assert 0 < place.seconds(["--help"]) < 60
    with pytest.raises(UndertowError, match="ended with"):
        place.seconds(["no-such-command"])


def test_errors_are_over_all_items_and_options() -> None:
    found = bfloat16.errors([(-1.0, -2.0), (-3.0,)], [(-1.1, -2.0), (-2.8,)])
    assert found["largest"] == pytest.approx(0.2)
    assert found["root_mean_square"] == pytest.approx(math.sqrt((0.01 + 0.04) / 3))


def test_bfloat16_takes_turns_with_float32(script: type[Script], monkeypatch: pytest.MonkeyPatch) -> None:
    entry = bfloat16.measure(asked(sample=1))
    assert [n_items for _, _, n_items in script.log] == [60] * (2 + 2 * 3)
    assert entry["rate_ratios"] == pytest.approx([2.5] * 3)
    assert entry["peak_ratio"] == pytest.approx(3.0)
    assert entry["error_nats"]["largest"] == pytest.approx(0.1)
    (promise,) = bfloat16.promises(entry)
    assert (promise.measured, promise.verdict) == ("2.50 (2.50 to 2.50) times; the machine 3.00 times", "yes")
    (promise,) = bfloat16.promises(entry | {"rate_ratios": [1.9]})
    assert promise.verdict == "no"
    (promise,) = bfloat16.promises(entry | {"peak_ratio": 2.4})
    assert promise.verdict == "does not apply"
    assert "| bfloat16 | 150.0 | 3000 | fast |" in bfloat16.section(entry, {})


def test_bfloat16_of_a_real_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the model extra is not installed")
    monkeypatch.setattr(work, "Worker", InThisProcess)
    monkeypatch.setattr(peak, "products_of", lambda _shape: [(4, 8, 8)])
    entry = bfloat16.measure(asked(model=saved(tmp_path, tiny_llama()), rounds=1))
    assert [one["model"]["dtype"] for one in entry["precisions"]] == ["float32", "bfloat16"]
    assert 0 < entry["error_nats"]["root_mean_square"] < entry["error_nats"]["largest"] < 5


def test_every_part_stands_in_one_page(
    script: type[Script], commands: Commands, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--rows", ",".join(PARTS)])
    bench.main()
    record = json.loads((Path(command[-1]) / "bench.json").read_text())
    assert list(record["parts"]) == list(PARTS)
    page = table(record)
    assert page == (Path(command[-1]) / "bench.md").read_text()
    assert [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")] == list(PARTS)
    assert {promise["kept"] for promise in record["promises"]} == {True}
    assert len(record["promises"]) == 10 + 1 + 1 + 3 + 2 + 1
