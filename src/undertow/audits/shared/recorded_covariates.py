"""The W lists of a recorded table: where each value stands on its axis, and what the design says of each list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from undertow.data.templates.covariate_scales import INDEX, VALUE, direction, evenly_spaced, numbers_of
from undertow.data.templates.covariates import Covariate, order_by_size, published_order, uneven_steps

if TYPE_CHECKING:
    from undertow.types import Floats

BY_AXIS = "w_value, smallest first"


def axis_of(frame: pd.DataFrame, given: pd.Series[float]) -> Floats:
    """Where each row's W value stands on its axis [row]: as it is given; else its number; else its place in the list.

    Numbers that are evenly spaced in a list called `date` stand at their places, as those of the package's own list do.

    Args:
        frame: `w_name`, `w_index` and `w` [row].
        given: the column `w_value`; NaN in all rows of a list that has none [row].
    """
    axis: Floats = np.array(given, dtype=np.float64)
    for name, rows in frame.groupby("w_name", sort=False):
        at = frame.index.get_indexer(rows.index)
        if not np.isnan(axis[at]).all():
            continue
        values, places = _list_values(rows)
        numbers = numbers_of(values)
        by_index = not numbers or (name == "date" and _is_even(values, places))
        place_of = dict(zip(places, places if by_index else numbers, strict=True))
        axis[at] = rows["w_index"].map(place_of).to_numpy(dtype=np.float64)
    return axis


def covariates_of(frame: pd.DataFrame) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """What the design says of each W list, as `undertow.data.Covariate.design_entry` does, and notes on them.

    Args:
        frame: `w_name`, `w_index`, `w_value` and `w` [row].
    """
    covariates, notes = {}, []
    for name, rows in frame.groupby("w_name", sort=False):
        values, places = _list_values(rows)
        numbers = numbers_of(values)
        scale = INDEX if (rows["w_value"] == rows["w_index"]).all() else VALUE
        if scale == VALUE:
            order = order_by_size(str(name), 1) if numbers else BY_AXIS
        else:
            way = direction(numbers) if numbers else 0
            order = order_by_size(str(name), way) if way else published_order(str(name), values)
        uneven = bool(numbers) and not _is_even(values, places)
        covariate = Covariate(str(name), tuple(values), order, scale, numbers)
        covariates[str(name)] = {**covariate.design_entry(), "uneven": uneven}
        if uneven and scale == INDEX:
            notes.append(uneven_steps(str(name), numbers))
    return covariates, notes


def _list_values(rows: pd.DataFrame) -> tuple[list[str], list[int]]:
    distinct = rows.drop_duplicates("w_index").sort_values("w_index")
    return distinct["w"].astype(str).tolist(), distinct["w_index"].tolist()


def _is_even(values: Sequence[str], places: Sequence[int]) -> bool:
    return bool(direction(numbers_of(values))) and evenly_spaced(values, places)
