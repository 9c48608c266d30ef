"""Rows of wordings for figures."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from undertow.report.figures.wording_sensitivity import draw_sensitivity, draw_slots
from undertow.report.page_data import Drawing

NAN = math.nan


def row(name: str, wording: str, score: float, level: str = "", **other: Any) -> dict[str, Any]:
    made = {"model": "m", "shots": 0, "description_class": name, "wording": wording, "score": score, "level": level}
    return made | {"slot": "target" if level else "", "baseline": 51.0} | other


def drawn(table: pd.DataFrame, *said: str) -> list[Drawing]:
    return list(draw_sensitivity(table, "Exact match", "percent", *said))


def effects(**other: Any) -> pd.DataFrame:
    table = pd.DataFrame(
        [
            ("statement", "target", "bias", 60.0, NAN, NAN),
            ("statement", "target", "toxicity", 40.0, -25.0, -15.0),
            ("statement", "text_reference", "text", 50.0, NAN, NAN),
            ("statement", "text_reference", "previous text", 52.0, -3.0, 7.0),
            ("statement", "text_reference", "(none)", 51.0, NAN, NAN),
            ("question", "target", "bias", 55.0, NAN, NAN),
            ("question", "target", "toxicity", 58.0, 1.0, 5.0),
        ],
        columns=["description_class", "slot", "level", "mean", "low", "high"],
    )
    return table.assign(**other)


def slots(table: pd.DataFrame) -> list[Drawing]:
    return list(draw_slots(table, "Exact match", about="cad"))
