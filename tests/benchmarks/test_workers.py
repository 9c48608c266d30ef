"""Workers: a contender in a process of its own, which does what it is told and says why it cannot."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again where they are asked for
from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from stand_ins import TINY_BERT, Here, here, loaded, masked_texts

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

import random_bert
from contenders import open_undertow
from gate import FILLED_MASKS
from needed import shape_of
from rows import ROWS
from undertow.types import UndertowError
from worker import Order, Worker

MASKED = ROWS["masked"]


@pytest.mark.soak
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
    assert worker.do(shape_of).head == ((32, 32), (32, random_bert.N_TOKENS))
    assert worker.close().scoring_peak_mib > 0


def test_a_worker_that_cannot_load_says_why(tmp_path: Path) -> None:
    with pytest.raises(UndertowError, match=r"there is no such GGUF file"):
        _ = Worker(Order("undertow", "likelihood", str(tmp_path / "none.gguf"), threads=0)).ready


def test_a_worker_is_not_given_a_model_of_another_family(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["GPT2LMHeadModel"]}))
    with pytest.raises(UndertowError, match=r"is no masked model"):
        _ = Worker(Order("undertow", "masked", str(tmp_path), threads=0)).ready
