"""Cases of a test of which `make test` runs a few, and `make soak` all others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def briefly(cases: Iterable[Any], n: int = 1) -> list[Any]:
    """The first `n` cases as they are, and the others for the soak."""
    cases = list(cases)
    others = [pytest.param(*(case if type(case) is tuple else (case,)), marks=pytest.mark.soak) for case in cases[n:]]
    return [*cases[:n], *others]


def paired(cases: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    """Pairs in which each case and each of the others is once or more; the soak has all other pairs."""
    rows, columns = list(cases), list(others)
    n = max(len(rows), len(columns))
    chosen = {(rows[at % len(rows)], columns[at % len(columns)]) for at in range(n)}
    return [
        pytest.param(row, column, marks=[] if (row, column) in chosen else [pytest.mark.soak])
        for row in rows
        for column in columns
    ]
