"""What is measured of the engine alone: growth, memory, start-up, and bfloat16."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again where they are asked for
from __future__ import annotations

import json
import math
import os
import sys
import time
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


def test_an_item_has_the_same_numbers_in_every_round(script: type[Script], monkeypatch: pytest.MonkeyPatch) -> None:
    right = script.score

    def other_in_the_second_round(self: Script, places: tuple[int, ...], batch_size: int) -> Answered:
        second = len(self.log) in range(5, 9)  # a warm-up, and rounds of four sizes
        self.off["undertow", 0] = 0.01 if second else 0.0
        return right(self, places, batch_size)

    monkeypatch.setattr(script, "score", other_in_the_second_round)
    with pytest.raises(UndertowError, match="growth: 1 times the items: is off"):
        growth.measure(asked(rounds=3))


@pytest.mark.parametrize(("slope", "verdict"), [(1.1, "yes"), (1.11, "missed")])
def test_growth_is_promised_to_be_linear(slope: float, verdict: str) -> None:
    (promise,) = growth.promises({"slope": slope, "promised_slope": growth.PROMISED_SLOPE})
    assert (promise.measured, promise.verdict) == (f"{slope:.2f}", verdict)


def test_memory_is_told_in_millions_of_bytes_beyond_the_weights() -> None:
    found = memory.sizes(Memory(100.0, 300.0, 2000.0, 1000.0), weights_bytes=500 * 10**6)
    assert found["peak_mb"] == pytest.approx(1048.576)
    assert found["beyond_mb"] == pytest.approx(548.576)
    assert found["loading_peak_mb"] == pytest.approx(2097.152)  # told, and not what the promise is about
    assert found["libraries_mb"] == pytest.approx(104.8576)


def test_memory_is_promised_of_every_vocabulary(script: type[Script]) -> None:
    entry = memory.measure(asked())
    assert script.models == {"smollm2", "a random llama", "a random bert"}
    kept = [promise.verdict for promise in memory.promises(entry)]
    assert kept == ["yes"] * 3  # 1050 MiB less 600 MB
    entry["works"][1]["beyond_mb"] = 600.1
    assert [promise.verdict for promise in memory.promises(entry)] == ["yes", "missed", "yes"]
    page = memory.section(entry | {"taken": TAKEN}, {})
    assert "| likelihood | weights of likelihood | 1,000 | 419 | 600 | 1153 | 1049 | 1101 | 501 |" in page
    assert "| libraries MB | weights MB | peak while loading MB | loaded MB | peak while scoring MB |" in page
    assert "The promise is judged on scoring alone" in page


@pytest.mark.parametrize("n_items", [60, 240, 1, 4])
def test_memory_is_of_numbers_that_are_there_and_the_same(
    n_items: int, script: type[Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = script.score

    def other_in_one_work(self: Script, places: tuple[int, ...], batch_size: int) -> Answered:
        self.off["undertow", 0] = 0.01 if len(places) == n_items else 0.0
        return right(self, places, batch_size)

    monkeypatch.setattr(script, "score", other_in_one_work)
    with pytest.raises(UndertowError, match=r"memory: (likelihood|masked): is off"):
        memory.measure(asked(sample=4))


@pytest.mark.parametrize("part", [growth, memory])
def test_missing_numbers_are_refused_in_a_single_round(part: Any, script: type[Script]) -> None:
    script.off["undertow", 0] = math.nan
    with pytest.raises(UndertowError, match=f"{part.NAME}: .* is missing numbers"):
        part.measure(asked(rounds=1))


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
    assert [promise.verdict for promise in startup.promises(entry)] == ["missed", "missed"]


def test_a_command_that_fails_is_said(commands: Commands) -> None:
    commands.fails = "run"
    with pytest.raises(UndertowError, match="ended with 1: why it failed"):
        startup.measure(asked())


def test_help_is_really_run(cache: Path) -> None:
    cache.mkdir(exist_ok=True)
    place = startup._Place.of(cache)
    started = time.perf_counter()
    seconds = place.seconds(["--help"])
    assert 0 < seconds <= time.perf_counter() - started
    with pytest.raises(UndertowError, match=r"(?s)ended with 2: .*No such command"):
        place.seconds(["no-such-command"])


@pytest.mark.skipif(os.name != "posix", reason="the command that stands in is a script of the shell")
def test_a_command_is_timed_to_its_end_in_its_own_place(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir(exist_ok=True)
    script = tmp_path / "undertow"
    script.write_text('#!/bin/sh\nsleep "$1"\necho "$PWD $UNDERTOW_CACHE" > said\necho why >&2\nexit "$2"\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    place = startup._Place.of(cache)
    started = time.perf_counter()
    seconds = place.seconds(["0.3", "0"])
    assert 0.3 <= seconds <= time.perf_counter() - started
    assert (cache / "said").read_text().split() == [str(cache), str(cache / "cache")]
    with pytest.raises(UndertowError, match=r"undertow 0 3: ended with 3: why"):
        place.seconds(["0", "3"])
    script.unlink()
    with pytest.raises(UndertowError, match="cannot be started"):
        place.seconds(["0", "0"])


def test_errors_are_over_all_items_and_options() -> None:
    found = bfloat16.errors([(-1.0, -2.0), (-3.0,)], [(-1.1, -2.0), (-2.8,)])
    assert found["largest"] == pytest.approx(0.2)
    assert found["root_mean_square"] == pytest.approx(math.sqrt((0.01 + 0.04) / 3))


@pytest.mark.parametrize("at", [0, 1])
def test_numbers_that_are_missing_or_far_off_have_no_rate(at: int) -> None:
    exact = [(-1.0, -2.0), (-3.0,)]
    for missing in (math.nan, -math.inf):
        reduced = [*exact]
        reduced[at] = tuple(missing for _ in exact[at])
        with pytest.raises(UndertowError, match="no rate is told"):
            bfloat16.errors(exact, reduced)
    with pytest.raises(UndertowError, match="2 of 3 numbers are missing" if at == 0 else "1 of 3 numbers are missing"):
        bfloat16.errors(exact, [*exact[:at], (math.nan,) * len(exact[at]), *exact[at + 1 :]])
    with pytest.raises(UndertowError, match="numbers are missing"):
        bfloat16.errors(exact, exact[:1])
    assert bfloat16.errors([(-1.0,)], [(-1.299,)])["root_mean_square"] == pytest.approx(0.299)
    with pytest.raises(UndertowError, match=r"differ from float32's by 0\.31 nats"):
        bfloat16.errors([(-1.0,)], [(-1.31,)])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_precision_says_the_same_in_every_round(
    dtype: str, script: type[Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = script.score

    def other_in_the_last_round(self: Script, places: tuple[int, ...], batch_size: int) -> Answered:
        usual = 0.1 if self.ready.dtype == "bfloat16" else 0.0
        self.off["undertow", 0] = usual + (0.01 if len(self.log) >= 6 and self.ready.dtype == dtype else 0.0)
        return right(self, places, batch_size)

    monkeypatch.setattr(script, "score", other_in_the_last_round)
    with pytest.raises(UndertowError, match=f"bfloat16: likelihood in {dtype}: is off"):
        bfloat16.measure(asked())


def test_bfloat16_takes_turns_with_float32(script: type[Script], monkeypatch: pytest.MonkeyPatch) -> None:
    of_auto = {("auto", "causal", "cpu"): "bfloat16"}
    monkeypatch.setattr(bfloat16, "dtype_here", lambda *asked_for: of_auto[asked_for])
    entry = bfloat16.measure(asked(sample=1))
    assert [n_items for _, _, n_items in script.log] == [60] * (2 + 2 * 3)
    assert entry["rate_ratios"] == pytest.approx([2.5] * 3)
    assert entry["error_nats"]["largest"] == pytest.approx(0.1)
    (promise,) = bfloat16.promises(entry)
    assert (promise.measured, promise.verdict) == (
        "2.50 (2.50 to 2.50) times; this processor's own products 3.00 times (3000 and 1000 GFLOP/s)",
        "yes",
    )
    (promise,) = bfloat16.promises(entry | {"rate_ratios": [1.9]})
    assert promise.verdict == "missed"
    (promise,) = bfloat16.promises(entry | {"auto": "float32"})
    assert promise.verdict == "does not apply"
    page = bfloat16.section(entry, {})
    assert "| bfloat16 | 150.0 | 3000 | fast |" in page
    assert "a root mean square of 0.3 is allowed" in page


@pytest.mark.parametrize(
    ("ratio", "reduced", "auto", "said"),
    [
        (
            1.6,
            195.0,
            "bfloat16",
            "Missed: 1.60 times, since this processor's own products are only 1.95 times as fast in ",
        ),
        (1.6, 210.0, "bfloat16", "Missed: 1.60 times, while this processor's own products are 2.10 times as fast in "),
        (2.0, 210.0, "bfloat16", "Kept: 2.00 times; this processor's own products are 2.10 times as fast in "),
        (
            0.5,
            60.0,
            "float32",
            "The promise does not apply, since `--dtype auto` is float32 here: 0.50 times, and this ",
        ),
    ],
)
def test_a_miss_is_told_beside_what_the_processor_can_do(ratio: float, reduced: float, auto: str, said: str) -> None:
    precisions = [{"peak": {"flop_per_s": one * 1e9}} for one in (100.0, reduced)]
    verdict = bfloat16._verdict(
        {"rate_ratios": [ratio], "precisions": precisions, "auto": auto, "promised_ratio": bfloat16.PROMISED_RATIO}
    )
    assert verdict.startswith(said)
    assert f"({reduced:.0f} GFLOP/s, and 100 in float32)" in verdict


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
    monkeypatch.setattr(bfloat16, "dtype_here", lambda *_: "bfloat16")
    bench.main()
    record = json.loads((Path(command[-1]) / "bench.json").read_text())
    assert list(record["parts"]) == list(PARTS)
    page = table(record)
    assert page == (Path(command[-1]) / "bench.md").read_text()
    assert [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")] == list(PARTS)
    assert {promise["kept"] for promise in record["promises"]} == {True}
    assert len(record["promises"]) == 10 + 1 + 1 + 3 + 2 + 1
