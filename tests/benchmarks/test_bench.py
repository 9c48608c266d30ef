"""The page of the benchmark in the repository is made of its record."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

import bench
import texts


def test_page_in_the_repository_is_made_of_its_record() -> None:
    record = json.loads((bench.RESULTS / bench.RECORD).read_text())
    assert bench.page(record) == (bench.RESULTS / bench.PAGE).read_text()


def test_a_sample_of_texts_counts_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {"ms of a text outside the model": 0.1, "peak memory MB": 1.0}
    monkeypatch.setattr(texts, "_measured", lambda size: cost | {"seconds outside the model": float(size)})
    (rows,) = texts.texts(Namespace(sample=3, rounds=1))["tables"]
    assert [row["texts"] for row in rows] == [600, 1200, 2400]
