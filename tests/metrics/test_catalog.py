from __future__ import annotations

import csv
from pathlib import Path

import pytest

from undertow.metrics.metric import HIGHER, LOWER, METRICS, NEITHER, get_metric

TABLES = Path(__file__).parents[1] / "golden/tables"


@pytest.mark.parametrize("table", sorted(path.name for path in TABLES.glob("*_*.csv")))
def test_every_measure_of_a_run_has_an_entry(table: str) -> None:
    with (TABLES / table).open(encoding="utf-8", newline="") as file:
        measures = {row["measure"] for row in csv.DictReader(file)}
    assert measures
    assert not [name for name in measures if not get_metric(name).meaning]


def test_names_and_titles_are_unique_and_directions_are_known() -> None:
    assert all(one.name == name for name, one in METRICS.items())
    titles = [one.title for one in METRICS.values()]
    assert not {title for title in titles if titles.count(title) > 1}
    assert {one.direction for one in METRICS.values()} == {HIGHER, LOWER, NEITHER}
