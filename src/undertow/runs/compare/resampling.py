"""Measuring over and over: results by what they are, of a table and of the table without each group of its clusters."""

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
    """What a result is. An empty level says as much as none, and a table has no other way to write it."""
    return result.measure, tuple(sorted((name, level) for name, level in result.group.items() if level))


def point_results(audit: Audit, observations: Observations, seed: int) -> list[Result]:
    """What an audit measures, with the values that it always has and without what only errors need.

    An audit that does not know of `undertow.stats.intervals.point_estimates` gives the same values, and takes its time.
    """
    from undertow.stats.intervals.point_estimates import only_points, point_estimates

    if only_points():
        return list(audit.measure(observations, seed))
    with point_estimates():
        return list(audit.measure(observations, seed))


def columns_known(audit: str, runs: Sequence[Observations]) -> Set[str]:
    """The columns that runs of an audit have: of one of ours all of them, of any those of these runs.

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
    """Tell of a column that this run lacks as such, whatever is made of its table before it is asked for.

    Any other fault stays what it is: a label that a table of ours lacks is no column of the run.

    Args:
        observations: what is measured, or told.
        name: of the run.
        columns: that runs of its audit have.

    Raises:
        DamagedRunError: the run has not what its audit is measured and told by.
    """
    lacking = sorted(columns - set(map(str, observations.frame)))
    try:
        yield
    except KeyError as error:
        missing = [column for column in lacking if _names_column(column, error)]
        if not missing or not _is_of_a_table(error):
            raise
        raise CorruptRunError(
            f"{name}: the run is damaged or of another version (its observations have no column {missing[0]!r}, which its audit needs); "
            "run the audit again"
        ) from error


def _names_column(column: str, error: KeyError) -> bool:
    """Whether an error of pandas is about this column: alone, or in one of the sentences that it has for several."""
    said = str(error.args[0]) if error.args else ""
    return said in (column, f"Column not found: {column}") or repr(column) in said


def _is_of_a_table(error: KeyError) -> bool:
    """Whether pandas raised it."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and str(place.tb_frame.f_globals.get("__name__", "")).startswith("pandas.")


def by_key(results: Sequence[Result]) -> dict[Key, Result]:
    """Results by what they are; of several that are alike the last."""
    return {key_of(result): result for result in results}


def quick(frame: pd.DataFrame) -> pd.DataFrame:
    """The same table, its texts as plain objects: parts of it are taken and gone through in half the time."""
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
    """Which group each row is in, by the labels of its cluster: a group for each cluster, or as many as may be, dealt at random.

    Returns:
        Groups from 0 on [row], and how many there are.
    """
    import numpy as np

    from undertow.stats.intervals.jackknife import dealt_groups

    number: Mapping[str, int] = {name: at for at, name in enumerate(dict.fromkeys(labels))}
    of_row = np.array([number[name] for name in labels], dtype=np.int64)
    if len(number) <= n_most:
        return of_row, len(number)
    return dealt_groups(len(number), n_most, np.random.default_rng(seed))[of_row], n_most
