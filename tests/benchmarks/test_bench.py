"""The benchmark without its peers: equality before times, turns, samples, the table, the environment it makes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tiny import saved, tiny_llama

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

import bench
import random_bert
from contenders import (
    CONTENDERS,
    open_anew,
    open_generate,
    open_pipeline,
    open_undertow,
    open_undertow_choices,
    open_undertow_prompts,
)
from gate import ANSWERS, CHOICES, END, FILLED_MASKS, LIKELIHOODS, Chosen, Written
from rows import ROWS, requests
from summary import compare, table
from undertow.models import decoding, toy
from undertow.models.base import Found, Request
from undertow.models.steps import answer_of
from undertow.types import Choice, Continuations, Generation, Option, UndertowError, query_digest
from worker import Answered, Memory, Order, Ready, Worker

ROOT = Path(__file__).parents[2]
LIKELIHOOD, MASKED, PROMPTS, WORDINGS = ROWS["likelihood"], ROWS["masked"], ROWS["prompts"], ROWS["wordings"]
SECONDS = {("undertow", 0): 1.0, ("lm-eval HF", 4): 6.0, ("lm-eval HF", 8): 5.0}
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
        self.ready = Ready(threads=2, source=f"weights of {order.row}", revision=order.row, dtype="float32")

    def score(self, places: tuple[int, ...], batch_size: int) -> Answered:
        self.log.append((self.name, batch_size, len(places)))
        off = self.off.get((self.name, batch_size), 0.0)
        seconds = SECONDS.get((self.name, batch_size)) or OTHERS_SECONDS[batch_size]
        said: dict[str, Any] = {
            "prompts": written(" she", prob=0.5 + off),
            "wordings": Chosen("race", (-1.0, -2.0 + off)),
        }
        return Answered([said.get(self.row, (-1.0, -2.0, -3.0 + off))] * len(places), seconds)

    def close(self) -> Memory:
        scoring = 1050.0 if self.name == "undertow" else 1200.0
        return Memory(loaded_mib=1000.0, loading_peak_mib=1100.0, scoring_peak_mib=scoring)


def written(*tokens: str, prob: float = 0.5, ties: tuple[tuple[str | None, ...], ...] = ()) -> Written:
    """An answer that says the same of its one option at every step."""
    return Written("".join(tokens), (prob,) if tokens else (), tokens, ((prob,),) * len(tokens), ties)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> type[Script]:
    about = {"created": "2024-01-01", "versions": {"undertow": "1"}}
    machine = {"system": "Linux", "processor": "a processor", "cores": 2, "memory_gib": 8.0}
    monkeypatch.setattr(Script, "log", [])
    monkeypatch.setattr(Script, "off", {})
    monkeypatch.setattr(Script, "models", set())
    monkeypatch.setattr(bench, "Worker", Script)
    monkeypatch.setattr(bench, "describe", lambda _packages: about | {"machine": machine})
    monkeypatch.setattr(bench, "prepared", lambda _texts: Path("a random bert"))
    return Script


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    line = ["bench.py", "--batch-sizes", "4", "8", "--rounds", "2", "--rows", "likelihood"]
    line += ["--results", str(tmp_path / "results")]
    monkeypatch.setattr(sys, "argv", line)
    return line


def test_equal_numbers_pass_with_their_difference() -> None:
    agreed = LIKELIHOODS.require([(-1.0, -2.0), (-3.0,)], [(-1.0, -2.001), (-3.0,)], "a peer")
    assert agreed.difference == pytest.approx(1e-3)


@pytest.mark.parametrize(
    "other",
    [
        [(-1.0, -2.0 - 1.1 * LIKELIHOODS.tolerance), (-3.0,)],
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
        LIKELIHOODS.require([(-1.0, -2.0), (-3.0,)], other, "a peer")


@pytest.mark.parametrize("numbers", [[(), ()], []])
def test_two_contenders_without_numbers_are_not_equal(numbers: list[tuple[float, ...]]) -> None:
    assert LIKELIHOODS.compare(numbers, numbers).difference == math.inf
    assert ANSWERS.compare([written()] * len(numbers), [written()] * len(numbers)).difference == math.inf


def test_masks_and_prompts_are_held_to_a_tenth_of_a_thousandth() -> None:
    assert FILLED_MASKS.tolerance == ANSWERS.tolerance == 1e-4


def test_equal_answers_pass_with_their_difference() -> None:
    agreed = ANSWERS.require(
        [written(" she", "."), written()], [written(" she", ".", prob=0.50005), written()], "a peer"
    )
    assert agreed.difference == pytest.approx(5e-5)
    assert agreed.n_ties == 0


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (written(" she", ".", prob=0.5002), "is off by up to 0.0002"),
        (written(" she", ".", prob=math.nan), "is missing numbers"),
        (replace(written(" she", "."), step_probs=((0.5,), (0.5, 0.1))), "is missing numbers"),
        (replace(written(" she", "."), probs=(0.6,)), "is off by up to 0.1"),
        (replace(written(" she", "."), text="She."), "the same tokens make another text"),
        (written(" she", "!"), "answer 1: writes '!' at step 2, where the engine writes '.'"),
        (written(" she", "!", ties=((" she",), ("!", "?"))), "writes '!' at step 2"),
        (written(" she"), "ends at step 2"),
        (written(" she", ties=((" she",), (END,))), "ends at step 2"),
        (written(" she", ".", " "), "writes ' ' at step 3"),
    ],
)
def test_unequal_answers_are_refused(other: Written, why: str) -> None:
    with pytest.raises(UndertowError, match=r"a peer: .* no time is reported") as refused:
        ANSWERS.require([written(" she", ".")], [other], "a peer")
    assert why in str(refused.value)


@pytest.mark.parametrize(
    "other",
    [
        written(" she", "!", ties=((" she",), (".", "!"))),
        written(" she", "!", " and", " so", ties=((" she",), ("!", "."), (" and",), (" so",))),
        written(" she", ties=((" she",), (END, "."))),
    ],
)
def test_a_tie_may_go_either_way_and_is_counted(other: Written) -> None:
    same = written(" he")
    agreed = ANSWERS.require([written(" she", "."), same], [other, same], "a peer")
    assert (agreed.difference, agreed.n_ties) == (0.0, 1)


def test_the_distribution_at_a_tie_is_compared_and_those_after_it_are_not() -> None:
    ties = ((" she", " he"), (" is",))
    later = replace(written(" he", " is", ties=ties), step_probs=((0.5,), (0.9,)), probs=(0.7,))
    assert ANSWERS.require([written(" she", " was")], [later], "a peer").n_ties == 1
    here = replace(later, step_probs=((0.4,), (0.9,)))
    with pytest.raises(UndertowError, match=r"off by up to 0\.1"):
        ANSWERS.require([written(" she", " was")], [here], "a peer")


def test_equal_labels_pass_with_their_difference() -> None:
    engine = [Chosen("race", (-1.0, -2.0, -9.0)), Chosen("age", (-3.0, -1.0, -9.0))]
    partly = [Chosen("race", (-1.0, -2.0005, math.nan), 1.0), Chosen("age", (math.nan, math.nan, math.nan), 2.0)]
    agreed = CHOICES.require(engine, partly, "a peer")
    assert agreed.difference == pytest.approx(5e-4)
    assert agreed.n_ties == 0
    assert CHOICES.require(engine, engine, "the engine").difference == 0.0


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (Chosen("age", (-1.0, -2.0), 0.9), "answer 1: chooses 'age', where the engine chooses 'race'"),
        (Chosen("race", (-1.0, -2.002), 1.0), "is off by up to 0.002 nats"),
        (Chosen("race", (-1.0, -math.inf), 1.0), "is missing numbers"),
        (Chosen("race", (math.nan, math.nan), 1.0), "is missing numbers"),
        (Chosen("race", (-1.0,), 1.0), "is missing numbers"),
        (Chosen("", ()), "is missing numbers"),
    ],
)
def test_unequal_labels_are_refused(other: Chosen, why: str) -> None:
    with pytest.raises(UndertowError, match=r"a peer: .* no time is reported") as refused:
        CHOICES.require([Chosen("race", (-1.0, -2.0))], [other], "a peer")
    assert why in str(refused.value)


def test_labels_without_numbers_are_not_equal() -> None:
    unscored, number = Chosen("", ()), Chosen("race", (-1.0, -2.0))
    assert CHOICES.compare([unscored], [unscored]).difference == math.inf
    assert CHOICES.compare([Chosen("race", (math.nan, -2.0))], [number]).difference == math.inf
    assert CHOICES.compare([number], [number] * 2).difference == math.inf


def test_a_label_at_a_tie_may_go_either_way_and_is_counted() -> None:
    engine, peer = Chosen("race", (-1.0, -1.0005)), Chosen("age", (-1.0, -1.0005), 5e-4)
    agreed = CHOICES.require([engine], [peer], "a peer")
    assert (agreed.difference, agreed.n_ties) == (0.0, 1)


@pytest.mark.parametrize("where", [("lm-eval HF", 4), ("lm-eval HF", 8)])
def test_no_time_is_told_where_numbers_differ(
    where: tuple[str, int],
    script: type[Script],
    command: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    script.off[where] = 0.01
    with pytest.raises(SystemExit) as ended:
        bench.main()
    assert "lm-eval HF" in str(ended.value.code)  # a text as exit code is printed, and exits with 1
    assert capsys.readouterr().out == ""
    assert not Path(command[-1]).exists()


@pytest.mark.parametrize(
    ("row", "where"),
    [
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
        last = len(self.log) == 11  # 1 engine, 4 search, 1 warm-up, then 2 rounds of 2 and a last one
        return Answered([(0.0, 0.0, 0.0)] * len(places), 1.0) if last else answered

    monkeypatch.setattr(script, "score", wrong_in_the_end)
    monkeypatch.setattr(sys, "argv", [*command, "--rounds", "3"])
    with pytest.raises(SystemExit, match="undertow: is off"):
        bench.main()


def test_contenders_take_turns_at_the_best_batch_size(script: type[Script], command: list[str]) -> None:
    bench.main()
    search = [("lm-eval HF", size, 180) for size in (4, 8, 8, 4)]
    rounds = [("undertow", 0, 360), ("lm-eval HF", 8, 360)] * 2
    assert script.log == [("undertow", 0, 180), *search, ("lm-eval HF", 8, 180), *rounds]
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
    assert script.log[-2:] == [("undertow", 0, 1800), ("lm-eval HF", 8, 1800)]
    page = (Path(command[-1]) / "bench.md").read_text()
    assert "1,800 items, all of the set." in page


def test_a_masked_model_can_be_named(script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--rows", "masked,prompts", "--masked-model", "mine"])
    bench.main()
    assert script.models == {"mine", "smollm2"}


def test_a_row_that_is_not_there_is_refused(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--rows", "masked,mask"])
    with pytest.raises(SystemExit):
        bench.main()
    assert "there is no row 'mask'; use likelihood, masked, prompts, wordings" in capsys.readouterr().err


def test_the_record_on_disk_makes_the_table(script: type[Script], command: list[str]) -> None:
    bench.main()
    record = json.loads((Path(command[-1]) / "bench.json").read_text())
    page = table(record)
    assert page == (Path(command[-1]) / "bench.md").read_text()
    assert "| undertow | its own | 360.0 | 360.0 to 360.0 | 1100 | 1000 | 1050 | 50 |" in page
    assert "| lm-eval HF | 8 | 72.0 | 72.0 to 72.0 | 1200 | 1000 | 1200 | 200 |" in page
    assert "| lm-eval HF | 5.00 | 5.00 to 5.00 | 0.88 | 0.0e+00 | 0 |" in page
    assert "4 times the rate (median): kept; no more memory: kept" in page
    assert "4: 30.0, 8: 36.0. Best: 8" in page
    assert len(record["load_average"]["before"]) == len(record["load_average"]["after"]) == 3


def test_all_rows_stand_in_one_page(script: type[Script], command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [*command, "--rows", "wordings,prompts,likelihood,masked"])
    bench.main()
    record = json.loads((Path(command[-1]) / "bench.json").read_text())
    assert [row["row"] for row in record["rows"]] == ["likelihood", "masked", "prompts", "wordings"]
    page = table(record)
    assert "| likelihood | lm-eval HF | 5.00 | 5.00 to 5.00 | 4 | kept |" in page
    assert "| masked | fill-mask, one by one | 8.00 | 8.00 to 8.00 | 7 | kept |" in page
    assert "| masked | fill-mask, batched | 2.00 | 2.00 to 2.00 | 1.25 | kept |" in page
    assert "| prompts | generate, one by one | 8.00 | 8.00 to 8.00 | 4 | kept |" in page
    assert "| wordings | each prompt anew, one by one | 8.00 | 8.00 to 8.00 | 5 | kept |" in page
    assert "| wordings | each prompt anew, batched | 2.00 | 2.00 to 2.00 |  |  |" in page
    assert "Model: weights of masked, float32" in page
    assert "| fill-mask, one by one | 1 | 30.0 |" in page
    assert "240 items, of 3,000: a sample (seed 0) of 240 sentences, over 50 W values." in page
    assert "48 items, of 9,000: a sample (seed 0) of 16 sentences" in page
    assert "648 items, of 7,128: a sample (seed 0) of 6 documents, over 6 dimensions." in page
    assert page.count("Promised beside each prompt anew") == 1
    assert page.count("no more memory") == 1


def test_a_promise_that_is_not_kept_is_told(script: type[Script], command: list[str]) -> None:
    bench.main()
    record = json.loads((Path(command[-1]) / "bench.json").read_text())
    record["rows"][0]["comparisons"][0] |= {"memory_ratio": 1.01, "rate_ratio": {"min": 3, "median": 3.99, "max": 9}}
    page = table(record)
    assert "4 times the rate (median): not kept; no more memory: not kept" in page
    assert "| likelihood | lm-eval HF | 3.99 | 3.00 to 9.00 | 4 | not kept |" in page


def test_ratios_are_taken_round_by_round() -> None:
    def entry(rates: list[float], peak: float) -> dict[str, Any]:
        return {"name": "x", "items_per_s": rates, "memory": {"scoring_peak_mib": peak}}

    compared = compare(entry([100.0, 80.0, 90.0], 500.0), entry([20.0, 10.0, 30.0], 1000.0))
    assert compared["rate_ratio"] == {"min": 3.0, "median": 5.0, "max": 8.0}
    assert compared["memory_ratio"] == 0.5


def test_samples_are_whole_w_values_and_nested() -> None:
    items = LIKELIHOOD.items()
    small, large = LIKELIHOOD.draw(items, 4, seed=0), LIKELIHOOD.draw(items, 6, seed=0)
    assert (len(small.places), len(large.places)) == (240, 360)
    assert set(small.places) < set(large.places)
    assert {str(items[place].factors["w"]) for place in large.places} == set(large.levels)
    assert LIKELIHOOD.draw(items, 4, seed=1).levels != small.levels
    assert len(LIKELIHOOD.draw(items, len(items), seed=0).places) == len(items) == 1800


def test_samples_of_sentences_are_spread_and_hold_every_prompt() -> None:
    masked, prompts = MASKED.items(), PROMPTS.items()
    drawn = MASKED.draw(masked, 240, seed=0)
    assert (len(drawn.places), drawn.n_units) == (240, 240)
    assert len(drawn.levels) > 40
    asked = [prompts[place] for place in PROMPTS.draw(prompts, 16, seed=0).places]
    sentences = {(item.factors["w"], item.cluster) for item in asked}
    assert len(sentences) == 16
    assert sorted((item.factors["w"], item.cluster) for item in asked) == sorted([*sentences] * 3)
    assert {item.factors["prompt"] for item in asked} == {"A", "B", "C"}


def test_samples_of_documents_are_even_over_dimensions_and_hold_every_wording() -> None:
    items = WORDINGS.items()
    small, large = WORDINGS.draw(items, 6, seed=0), WORDINGS.draw(items, 13, seed=0)
    assert set(small.places) < set(large.places)
    assert (len(small.places), len(small.levels), len(large.levels)) == (6 * 108, 6, 11)
    asked = [items[place] for place in large.places]
    kinds = Counter((item.cluster, item.factors["description_class"]) for item in asked)
    assert len({document for document, _ in kinds}) == 13
    assert {(kind, n) for (_, kind), n in kinds.items()} == {("statement", 24), ("question", 12), ("completion", 72)}
    per_dimension = Counter(item.factors["dimension"] for item in asked if item.factors["shots"] == 0)
    assert sorted(per_dimension.values()) == [108] * 9 + [216] * 2
    assert WORDINGS.draw(items, 6, seed=1).places != small.places
    assert all(isinstance(item.query, Choice) and len(item.query.labels) == 11 for item in asked)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_no_item_is_counted_twice(row: Any) -> None:
    items = row.items()
    assert len({query_digest(item.query) for item in items}) == len(items)


def test_requests_split_a_sentence_at_its_blank() -> None:
    pairs = requests(LIKELIHOOD.items()[0].query)
    assert pairs == [("In 1801,", f" {word} was a child.") for word in ("she", "he", "they")]
    assert requests(Continuations("It is", (" hot.", " cold."))) == [("It is", " hot."), ("It is", " cold.")]
    with pytest.raises(TypeError, match="no continuations"):
        requests(WORDINGS.items()[0].query)


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

    loaded = Found(model.card, Counted)
    score = open_undertow(loaded)([item.query for item in LIKELIHOOD.items()[:60]], 0)
    first, n_passes = score(), len(passes)
    assert score() == first
    assert len(passes) == 2 * n_passes > 0
    assert {len(options) for options in first} == {3}
    assert list(cache.glob("bench-*")) == []


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
    monkeypatch.setattr(random_bert, "get_context", lambda _kind: process)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    return process


def loaded(row: Any, folder: Path) -> Found:
    from importlib import import_module

    found: Found | None = import_module(f"undertow.models.{row.family}").find(Request(str(folder), device="cpu"))
    assert found is not None
    model = found.open()
    return replace(found, open=lambda: model)


def masked_texts() -> list[str]:
    return [text for item in MASKED.items() for text in item.query.texts()]  # type: ignore[union-attr]


def test_the_random_bert_is_made_once_and_spells_every_word_as_one_token(here: Here) -> None:
    from transformers import AutoTokenizer

    folder = random_bert.prepared(masked_texts(), TINY_BERT)
    assert random_bert.prepared(masked_texts(), TINY_BERT) == folder
    assert here.started == 1
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == random_bert.N_TOKENS
    assert tokenizer.tokenize("In 1801, she was an adolescent.") == [
        "in",
        "1801",
        ",",
        "she",
        "was",
        "an",
        "adolescent",
        ".",
    ]
    coded = tokenizer(masked_texts(), add_special_tokens=False)["input_ids"]
    tokens = tokenizer.convert_ids_to_tokens(sorted({token for text in coded for token in text}))
    assert [token for token in tokens if token.startswith(("##", "["))] == []


def test_the_shape_of_the_random_bert_is_bert_bases() -> None:
    transformers = pytest.importorskip("transformers", reason="the model extra is not installed")
    usual = transformers.BertConfig()
    assert {name: getattr(usual, name) for name in random_bert.BERT_BASE} == random_bert.BERT_BASE
    assert usual.vocab_size == random_bert.N_TOKENS


def test_a_random_bert_that_cannot_be_made_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_bert, "get_context", lambda _kind: Here(fails=True))
    with pytest.raises(UndertowError, match="could not be made"):
        random_bert.prepared(["she"], TINY_BERT)
    assert list((cache / "benchmarks").iterdir()) == []


def test_masks_are_filled_alike_by_all(here: Here) -> None:
    found = loaded(MASKED, random_bert.prepared(masked_texts(), TINY_BERT))
    items = MASKED.items()
    queries = [items[place].query for place in MASKED.draw(items, 12, seed=0).places]
    reference = open_undertow(found)(queries, 0)()
    for batch_size in (1, 5):
        assert (
            FILLED_MASKS.require(reference, open_pipeline(found)(queries, batch_size)(), "a pipeline").difference < 1e-5
        )
    # Another sentence's numbers would be noticed.
    gaps = [FILLED_MASKS.compare([one], [other]).difference for one, other in pairwise(reference)]
    assert min(gaps) > 10 * FILLED_MASKS.tolerance


WORDS = tuple(Option(group, (word,)) for group, word in (("female", "she"), ("male", "he"), ("neutral", "they")))
PROMPTED = [
    Generation(text, WORDS, max_tokens=6)
    for text in ("In 1801, she was", "In 1953, he was", "In 1801, they were", "a child")
]


@pytest.fixture
def writer(tmp_path: Path) -> Found:
    """A tiny causal model that writes no token which reads like another: pieces of letters, and numbers without a text."""
    torch = pytest.importorskip("torch", reason="the model extra is not installed")
    found = loaded(PROMPTS, Path(saved(tmp_path, tiny_llama())))
    model = found.open()
    pieces = [at for at in range(320) if model.tokenizer.decode([at]).strip("\ufffd") == ""]
    with torch.no_grad():
        model.network.lm_head.weight[pieces] = 0.0
    return found


def test_prompts_are_answered_alike_by_all(writer: Found) -> None:
    ours, theirs = open_undertow_prompts(writer)(PROMPTED, 0)(), open_generate(writer)(PROMPTED, 1)()
    agreed = ANSWERS.require(ours, theirs, "one by one")
    assert agreed.difference < 1e-5
    assert agreed.n_ties == 0
    assert all(len(one.step_probs) == len(one.tokens) > 0 for one in ours)
    assert all(one.at(0) in other.ties[0] for one, other in zip(ours, theirs, strict=True))
    # Another prompt's answer would be noticed, and nothing is left of the look at the steps.
    assert all(ANSWERS.compare([one], [other]).trouble for one, other in pairwise(ours))
    assert vars(decoding)["answer_of"] is answer_of


@pytest.mark.parametrize("step", [0, 2])
def test_an_answer_that_ends_is_read_up_to_its_end(writer: Found, step: int) -> None:
    model = writer.open()
    whole = open_generate(writer)(PROMPTED, 1)()
    last = whole[0].tokens[step]
    model.decoder.ends = frozenset(at for at in range(320) if model.tokenizer.decode([at]) == last)
    ours, theirs = open_undertow_prompts(writer)(PROMPTED, 0)(), open_generate(writer)(PROMPTED, 1)()
    assert ANSWERS.require(ours, theirs, "one by one").n_ties == 0
    n_steps = len(theirs[0].tokens)
    assert theirs[0].tokens == whole[0].tokens[:n_steps]
    assert n_steps <= step
    assert theirs[0].ties[n_steps:] == ((END,),)


# Labels that share beginnings, that are beginnings of others, and (behind " not") that all begin alike.
LABELS = (
    " she",
    " she was",
    " she was not",
    " he was",
    " he was an",
    " he an",
    " they were an",
    " they were not",
    " child",
)
CHOSEN = [
    Choice(f"In {year}, {word} was{rest}", labels)
    for year in ("1801", "1953")
    for word in ("she", "he", "they", "a child")
    for rest, labels in (("", LABELS), (" an adult.", LABELS), (" a", tuple(f" not{label}" for label in LABELS)))
]


def test_labels_are_chosen_alike_by_all(writer: Found) -> None:
    ours = open_undertow_choices(writer)(CHOSEN, 0)()
    for batch_size in (1, 3, 16):
        theirs = open_anew(writer)(CHOSEN, batch_size)()
        agreed = CHOICES.require(ours, theirs, "anew")
        assert agreed.difference < 1e-5
        assert agreed.n_ties == 0
        assert any(not math.isnan(nats) for one in theirs for nats in one.nats)
    assert len({one.label for one in ours}) >= 3  # so that ways part, and later ones are gone too
    # Another prompt's numbers would be noticed.
    gaps = [CHOICES.compare([one], [other]) for one, other in pairwise(ours)]
    assert all(gap.trouble or gap.difference > 10 * CHOICES.tolerance for gap in gaps)


def test_each_prompt_is_read_whole_and_forced_tokens_are_not(writer: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    network = writer.open().network
    forward, fed = network.forward, []

    def seen(*args: Any, **named: Any) -> Any:
        fed.append((tuple(named["input_ids"].shape), named["past_key_values"] is None))
        return forward(*args, **named)

    monkeypatch.setattr(network, "forward", seen)
    one_token_each = replace(CHOSEN[0], labels=(" she", " he"))
    n_tokens = len(writer.open().tokenizer(CHOSEN[0].prompt)["input_ids"])
    (one,) = open_anew(writer)([one_token_each], 1)()
    assert fed == [((1, n_tokens), True)]
    assert all(map(math.isfinite, one.nats))
    fed.clear()
    open_anew(writer)(CHOSEN, 1)()
    assert [first for _, first in fed].count(True) == len(CHOSEN)
    n_alone = len(fed)
    assert n_alone > len(CHOSEN)
    fed.clear()
    open_anew(writer)(CHOSEN, 16)()
    assert sum(rows for (rows, _), _ in fed) == n_alone
    assert len(fed) < n_alone


def test_every_row_has_contenders_and_its_promises() -> None:
    assert list(CONTENDERS) == list(ROWS)
    promised = {(row, peer.name): peer.target_ratio for row, (_, *peers) in CONTENDERS.items() for peer in peers}
    assert promised == {
        ("likelihood", "lm-eval HF"): 4,
        ("masked", "fill-mask, one by one"): 7,
        ("masked", "fill-mask, batched"): 1.25,
        ("prompts", "generate, one by one"): 4,
        ("wordings", "each prompt anew, one by one"): 5,
        ("wordings", "each prompt anew, batched"): 0,
    }


@pytest.mark.slow
def test_a_worker_scores_what_it_is_told_to(here: Here) -> None:
    folder = random_bert.prepared(masked_texts(), TINY_BERT)
    worker = Worker(Order("fill-mask, batched", "masked", str(folder), threads=1))
    assert (worker.ready.threads, worker.ready.dtype) == (1, "float32")
    places = (3, 700, 2500)
    answered = worker.score(places, 2)
    items = MASKED.items()
    expected = open_undertow(loaded(MASKED, folder))([items[place].query for place in places], 0)()
    FILLED_MASKS.require(expected, answered.numbers, "the worker")
    assert answered.seconds > 0
    assert worker.close().scoring_peak_mib > 0


def test_a_worker_that_cannot_load_says_why(tmp_path: Path) -> None:
    with pytest.raises(UndertowError, match=r"there is no such GGUF file"):
        Worker(Order("undertow", "likelihood", str(tmp_path / "none.gguf"), threads=0))


def test_a_worker_is_not_given_a_model_of_another_family(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["GPT2LMHeadModel"]}))
    with pytest.raises(UndertowError, match=r"is no masked model"):
        Worker(Order("undertow", "masked", str(tmp_path), threads=0))


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
