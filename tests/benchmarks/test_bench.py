"""The page of the benchmark in the repository is made of its record."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

import bench


def test_page_in_the_repository_is_made_of_its_record() -> None:
    record = json.loads((bench.RESULTS / bench.RECORD).read_text())
    assert bench.page(record) == (bench.RESULTS / bench.PAGE).read_text()
