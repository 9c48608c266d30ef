"""Races and their page without the peers: equality before times, turns, promises, and what a run leaves of earlier ones."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again where they are asked for
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from stand_ins import Script, command, script

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

import bench
from race_told import compare
from rows import ROWS
from summary import table
from worker import Answered


@pytest.mark.parametrize("where", [("lm-eval HF", 4), ("lm-eval HF", 8), ("minicons", 4)])
def test_no_time_is_told_where_numbers_differ(
    where: tuple[str, int],
    script: type[Script],
    command: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    script.off[where] = 0.01
    with pytest.raises(SystemExit) as ended:
        bench.main()
    assert where[0] in str(ended.value.code)  # a text as exit code is printed, and exits with 1
    assert capsys.readouterr().out == ""
    assert not Path(command[-1]).exists()


@pytest.mark.parametrize(
    ("row", "where"),
    [
        ("likelihood", ("minicons", 4)),
        ("likelihood", ("transformers, one by one", 1)),
        ("schemas", ("transformers, batched", 8)),
        ("masked", ("fill-mask, one by one", 1)),
        ("masked", ("fill-mask, batched", 8)),
        ("prompts", ("generate, one by one", 1)),
        ("wordings", ("each prompt anew, one by one", 1)),
        ("wordings", ("each prompt anew, batched", 8)),
    ],
)
def test_every_row_has_its_gate(
    row: str, where: tuple[str, int], script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--rows", row])
    script.off[where] = 2 * ROWS[row].gate.tolerance
    with pytest.raises(SystemExit, match=f"{where[0]}.* is off"):
        bench.main()


def test_numbers_that_differ_in_the_rounds_alone_are_refused(
    script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = script.score

    def wrong_in_the_end(self: Script, places: tuple[int, ...], batch_size: int) -> Answered:
        answered = right(self, places, batch_size)
        last = len(self.log) == 28  # 1 engine, 12 search, 4 warm-ups, then 2 rounds of 5 and a last one
        return Answered([(0.0, 0.0, 0.0)] * len(places), 1.0) if last else answered

    monkeypatch.setattr(script, "score", wrong_in_the_end)
    monkeypatch.setattr(sys, "argv", [*command, "--rounds", "3"])
    with pytest.raises(SystemExit, match="undertow: is off"):
        bench.main()


@pytest.mark.parametrize(("row", "n_items"), [("likelihood", (60, 240)), ("schemas", (32, 64))])
def test_contenders_take_turns_at_the_best_batch_size(
    row: str, n_items: tuple[int, int], script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = n_items
    monkeypatch.setattr(sys, "argv", [*command, "--rows", row])
    bench.main()
    searched = ("lm-eval HF", "minicons", "transformers, batched")
    search = [(peer, size, few) for peer in searched for size in (4, 8, 8, 4)]
    best = [("lm-eval HF", 8), ("minicons", 4), ("transformers, one by one", 1), ("transformers, batched", 4)]
    warm = [(peer, size, few) for peer, size in best]
    rounds = [("undertow", 0, many), *((peer, size, many) for peer, size in best)] * 2
    assert script.log == [("undertow", 0, few), *search, *warm, *rounds]
    assert script.models == {"smollm2"}


def test_masks_are_filled_one_by_one_and_in_batches(
    script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--rows", "masked"])
    bench.main()
    one, batched = "fill-mask, one by one", "fill-mask, batched"
    search = [(batched, size, 120) for size in (4, 8, 8, 4)]
    rounds = [("undertow", 0, 240), (one, 1, 240), (batched, 4, 240)] * 2
    assert script.log == [("undertow", 0, 120), *search, (one, 1, 120), (batched, 4, 120), *rounds]
    assert script.models == {"a random bert"}


def test_prompts_are_answered_one_by_one(
    script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--rows", "prompts", "--sample", "5"])
    bench.main()
    one = "generate, one by one"
    rounds = [("undertow", 0, 15), (one, 1, 15)] * 2
    assert script.log == [("undertow", 0, 6), (one, 1, 6), *rounds]


def test_wordings_are_asked_one_by_one_and_in_batches(
    script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--rows", "wordings", "--sample", "2", "--search-sample", "1"])
    bench.main()
    one, batched = "each prompt anew, one by one", "each prompt anew, batched"
    search = [(batched, size, 108) for size in (4, 8, 8, 4)]
    rounds = [("undertow", 0, 216), (one, 1, 216), (batched, 4, 216)] * 2
    assert script.log == [("undertow", 0, 108), *search, (one, 1, 108), (batched, 4, 108), *rounds]


def test_full_takes_every_item(script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--full"])
    bench.main()
    assert script.log[-2:] == [("transformers, one by one", 1, 3000), ("transformers, batched", 4, 3000)]
    page = (Path(command[-1]) / "bench.md").read_text()
    assert "3,000 items, all of the set." in page


def test_a_masked_model_can_be_named(script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--rows", "masked,prompts", "--masked-model", "mine"])
    bench.main()
    assert script.models == {"mine", "smollm2"}


def test_a_part_that_is_not_there_is_refused(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--rows", "masked,mask"])
    with pytest.raises(SystemExit):
        bench.main()
    said = " ".join(capsys.readouterr().err.split())
    assert "there is no part 'mask'; use likelihood, schemas, masked, prompts, wordings, share, growth," in said


def record_of(command: list[str]) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((Path(command[-1]) / "bench.json").read_text())
    return record


def test_the_record_on_disk_makes_the_table(script: type[Script], command: list[str]) -> None:
    bench.main()
    record = record_of(command)
    page = table(record)
    assert page == (Path(command[-1]) / "bench.md").read_text()
    assert "| undertow | its own | 240.0 | 240.0 to 240.0 | 1100 | 1000 | 1050 | 50 |" in page
    assert "| lm-eval HF | 8 | 48.0 | 48.0 to 48.0 | 1200 | 1000 | 1200 | 200 |" in page
    assert "| lm-eval HF | 5.00 | 5.00 to 5.00 | 0.88 | 0.0e+00 | 0 |" in page
    assert "4: 10.0, 8: 12.0. Best: 8" in page
    (part,) = record["parts"].values()
    assert len(part["taken"]["load_average"]["before"]) == len(part["taken"]["load_average"]["after"]) == 3
    assert "2 torch threads in each process" in page


def test_promises_come_first(script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--rows", "wordings,prompts,likelihood,masked,schemas"])
    bench.main()
    record = record_of(command)
    assert list(record["parts"]) == ["likelihood", "schemas", "masked", "prompts", "wordings"]
    page = table(record)
    promised = page.split("\n\n")[1].splitlines()
    assert promised[0] == "| promise | measured | kept |"
    assert promised[2:] == [
        "| likelihood: at least 5 times the rate of lm-eval HF | 5.00 (5.00 to 5.00) times | yes |",
        "| likelihood: no more memory than lm-eval HF | 0.88 times | yes |",
        "| likelihood: at least 6 times the rate of minicons | 7.00 (7.00 to 7.00) times | yes |",
        "| schemas: at least 5 times the rate of lm-eval HF | 5.00 (5.00 to 5.00) times | yes |",
        "| schemas: no more memory than lm-eval HF | 0.88 times | yes |",
        "| schemas: at least 6 times the rate of minicons | 7.00 (7.00 to 7.00) times | yes |",
        "| masked: at least 8 times the rate of fill-mask, one by one | 8.00 (8.00 to 8.00) times | yes |",
        "| masked: at least 1.25 times the rate of fill-mask, batched | 2.00 (2.00 to 2.00) times | yes |",
        "| prompts: at least 5 times the rate of generate, one by one | 8.00 (8.00 to 8.00) times | yes |",
        "| wordings: at least 5 times the rate of each prompt anew, one by one | 8.00 (8.00 to 8.00) times | yes |",
    ]
    assert [one["what"] for one in record["promises"]] == [
        line.split(" | ")[0].removeprefix("| ") for line in promised[2:]
    ]
    assert "Model: weights of masked, float32" in page
    assert "| fill-mask, one by one | 1 | 30.0 |" in page
    assert "240 items, of 3,000: a sample (seed 0) of 240 sentences, over 50 W values." in page
    assert page.count("may part where rounding turns a tie") == 2
    assert "At most 1 of the 48 items (2%, one in any case) may part where rounding turns a tie." in page
    assert "At most 4 of the 216 items (2%, one in any case) may part where rounding turns a tie." in page
    assert "48 items, of 9,000: a sample (seed 0) of 16 sentences" in page
    assert "64 items, of 960: a sample (seed 0) of 4 occupations, " in page
    assert "216 items, of 7,128: a sample (seed 0) of 2 documents, over 2 dimensions." in page


def test_a_promise_that_is_not_kept_is_told(script: type[Script], command: list[str]) -> None:
    bench.main()
    record = record_of(command)
    comparison = record["parts"]["likelihood"]["comparisons"][0]
    comparison |= {"memory_ratio": 1.01, "rate_ratio": {"min": 3, "median": 4.99, "max": 9}}
    page = table(record)
    assert "times the rate of lm-eval HF | 4.99 (3.00 to 9.00) times | missed |" in page
    assert "no more memory than lm-eval HF | 1.01 times | missed |" in page


def test_parts_that_are_not_run_stay(script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    bench.main()
    before = record_of(command)["parts"]["likelihood"]
    monkeypatch.setattr(sys, "argv", [*command, "--rows", "masked", "--rounds", "1"])
    bench.main()
    parts = record_of(command)["parts"]
    assert list(parts) == ["likelihood", "masked"]
    assert parts["likelihood"] == before
    assert [parts[name]["taken"]["rounds"] for name in parts] == [2, 1]
    script.off["fill-mask, batched", 4] = 1.0
    with pytest.raises(SystemExit):
        bench.main()
    assert record_of(command)["parts"] == parts


def test_what_parts_were_taken_on_is_told_where_they_differ(
    script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--rows", "likelihood,masked"])
    bench.main()
    record = record_of(command)
    page = table(record)
    assert "- Machine: a processor, 2 cores, 8.0 GiB, Linux.\n- Versions: undertow 1.\n" in page
    assert "- Undertow's code (SHA-256): 0123456789ab.\n" in page
    taken = record["parts"]["masked"]["taken"]
    taken |= {"versions": {"undertow": "2"}, "code_sha256": "f" * 64}
    page = table(record)
    assert "- Versions: undertow 1/2." in page
    assert "(SHA-256): 0123456789ab (likelihood); ffffffffffff (masked)." in page


@pytest.mark.parametrize("there", ["{}", '{"rows": []}'])
def test_a_record_of_another_layout_is_replaced(there: str, script: type[Script], command: list[str]) -> None:
    Path(command[-1]).mkdir()
    (Path(command[-1]) / "bench.json").write_text(there)
    bench.main()
    assert list(record_of(command)["parts"]) == ["likelihood"]


def test_a_record_that_is_none_is_left_alone(script: type[Script], command: list[str]) -> None:
    Path(command[-1]).mkdir()
    (Path(command[-1]) / "bench.json").write_text("no record")
    with pytest.raises(SystemExit, match="is no JSON"):
        bench.main()
    assert script.log == []
    assert (Path(command[-1]) / "bench.json").read_text() == "no record"


def test_ratios_are_taken_round_by_round() -> None:
    def entry(rates: list[float], peak: float) -> dict[str, Any]:
        return {"name": "x", "items_per_s": rates, "memory": {"scoring_peak_mib": peak}}

    compared = compare(entry([100.0, 80.0, 90.0], 500.0), entry([20.0, 10.0, 30.0], 1000.0))
    assert compared["rate_ratio"] == {"min": 3.0, "median": 5.0, "max": 8.0}
    assert compared["memory_ratio"] == 0.5
