"""Measure a table, and the table without each group of clusters; results by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from undertow.audits.base import Audit, Observations
from undertow.runs.compare.pairing import ANSWERED_BEFORE
from undertow.runs.folder.storage import CELLS, CorruptRunError
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""What a result is: its measure, and its group without empty levels."""


def key_of(result: Result) -> Key:
    """The key of a result. An empty level counts as none, since a table cannot tell them apart."""
    return result.measure, tuple(sorted((name, level) for name, level in result.group.items() if level))


def point_results(audit: Audit, observations: Observations, seed: int) -> list[Result]:
    """The results of an audit without the work that only intervals and tests need.

    An audit that ignores `undertow.stats.point_estimates` gives the same values, but takes longer.
    """
    from undertow.stats.point_estimates import only_points, point_estimates

    if only_points():
        return list(audit.measure(observations, seed))
    with point_estimates():
        return list(audit.measure(observations, seed))


def columns_known(audit: str, runs: Sequence[Observations]) -> Set[str]:
    """The columns that runs of an audit may have: those of the audit's schema, and those of these runs.

    Args:
        audit: the audit's name.
        runs: runs of it.
    """
    ours = next((cells for audits, cells in CELLS.items() if audit in audits), {})
    columns = {str(name) for run in runs for name in run.frame}
    if not ours:
        return columns
    groups = {str(group) for run in runs for group in run.design.get("groups", ())}
    return {*ours, *groups, "other_words", *ANSWERED_BEFORE, *columns}


@contextmanager
def require_columns(observations: Observations, name: str, columns: Set[str]) -> Iterator[None]:
    """Turn a KeyError of pandas about a missing column of this run into a `CorruptRunError`; other errors propagate.

    Args:
        observations: of the run.
        name: name of the run.
        columns: columns that runs of its audit have.

    Raises:
        CorruptRunError: the run lacks a column that its audit needs.
    """
    lacking = sorted(columns - set(map(str, observations.frame)))
    try:
        yield
    except KeyError as error:
        missing = [column for column in lacking if _names_column(column, error)]
        if not missing or not _is_of_a_table(error):
            raise
        raise CorruptRunError(
            f"{name}: the run is corrupt or of another version (its observations have no column {missing[0]!r}, which its audit needs); "
            "run the audit again"
        ) from error


def _names_column(column: str, error: KeyError) -> bool:
    """Whether an error of pandas names this column."""
    said = str(error.args[0]) if error.args else ""
    return said in (column, f"Column not found: {column}") or repr(column) in said


def _is_of_a_table(error: KeyError) -> bool:
    """Whether pandas raised it."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and str(place.tb_frame.f_globals.get("__name__", "")).startswith("pandas.")


def by_key(results: Sequence[Result]) -> dict[Key, Result]:
    """Results by key; the last of several with one key."""
    return {key_of(result): result for result in results}


def quick(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with texts as plain objects, which halves the time to slice it."""
    import pandas as pd

    texts = [name for name in frame if pd.api.types.is_string_dtype(frame[name])]
    return frame.astype(dict.fromkeys(texts, object))


def without_each(frame: pd.DataFrame, group: Sequence[int] | NDArray[Any], n_groups: int) -> Iterator[pd.DataFrame]:
    """The table without each group of rows.

    Args:
        frame: rows.
        group: of each row, from 0 on [row].
        n_groups: how many there are.
    """
    import numpy as np

    numbers = np.asarray(group)
    for number in range(n_groups):
        yield frame[numbers != number].reset_index(drop=True)


def groups_of(labels: Sequence[str], n_most: int, seed: int) -> tuple[NDArray[Any], int]:
    """The group of each row: one per cluster, or `n_most` random groups of clusters.

    Returns:
        Groups from 0 on [row], and how many there are.
    """
    import numpy as np

    from undertow.stats.intervals.jackknife import random_groups

    number: Mapping[str, int] = {name: at for at, name in enumerate(dict.fromkeys(labels))}
    of_row = np.array([number[name] for name in labels], dtype=np.int64)
    if len(number) <= n_most:
        return of_row, len(number)
    return random_groups(len(number), n_most, np.random.default_rng(seed))[of_row], n_most
