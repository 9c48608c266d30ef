"""Rows of task specification for figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from undertow.report.figures.specification import Curve, occupation_panels

SCORE = "delta_female"
SHARES = {"nurse": 89.6, "judge": 34.5, "plumber": 0.7, "painter": 5.7, "librarian": 81.0}


def scored(names: Sequence[str] = tuple(SHARES), shares: Sequence[float] | None = None) -> pd.DataFrame:
    """Eight sentences of each occupation, in the design of the schemas; no two scores are equal."""
    rows: list[dict[str, Any]] = [
        {"cluster": name, "participant_class": participant, "coreferent": whose}
        | {"well_specified": whose == 1 and participant in ("man", "woman")}
        | {"percent_female": SHARES.get(name, math.nan) if shares is None else shares[index]}
        for index, name in enumerate(names)
        for participant, whose in itertools.product(("man", "woman", "someone", "other"), (0, 1))
    ]
    return pd.DataFrame(rows).assign(**{SCORE: np.geomspace(0.01, 60, len(rows))})


def drawn(table: pd.DataFrame, threshold: float = 0.5, title: str = "toy · own") -> Figure:
    unit = "movement of female mass, percentage points"
    return occupation_panels({"": table}, SCORE, threshold, title=title, unit=unit)


def followed(
    sentences: dict[str, tuple[str, bool]],
    values: Sequence[str] = ("1901", "1939", "1978", "2016"),
    form: str = "In {w}: ",
) -> pd.DataFrame:
    """A row per value and sentence, in that order; the k-th sentence has k + 10 times the place of the value."""
    rows = [
        {"sentence": name, "text": form.replace("{w}", value) + text, "w": value, "w_index": place}
        | {"well_specified": decided, "female": 10.0 * place + number}
        for place, value in enumerate(values)
        for number, (name, (text, decided)) in enumerate(sentences.items())
    ]
    return pd.DataFrame(rows)


def curve(name: str, area: float, low: float = math.nan, high: float = math.nan) -> Curve:
    corner = np.array([0.0, 1 - area, 1.0])
    return Curve(name, corner, np.array([0.0, area, 1.0]), area, low, high)
