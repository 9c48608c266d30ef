"""Measure a table and its jackknife replicates; results by key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from undertow.audits.base import Audit, Observations
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""Measure and group (without empty levels) of a result."""


def key_of(result: Result) -> Key:
    """The key of a result. Empty levels are dropped, because a table cannot distinguish them from missing ones."""
    return result.measure, tuple(sorted((name, level) for name, level in result.group.items() if level))


def point_results(audit: Audit, observations: Observations, seed: int) -> list[Result]:
    """The results of an audit without intervals and tests.

    An audit that ignores `undertow.stats.context` gives the same values, but takes longer.
    """
    from undertow.stats.context import point_estimates

    with point_estimates():
        return list(audit.measure(observations, seed))


def results_with_rates(audit: Audit, observations: Observations, seed: int) -> list[Result]:
    """`point_results`, and the rates of free replies over all rows, with or without an answer."""
    from undertow.stats.context import point_estimates

    with point_estimates():
        return [*audit.measure(observations, seed), *audit.reply_rates(observations)]


def by_key(results: Sequence[Result]) -> dict[Key, Result]:
    """Results by key; the last of several with one key."""
    return {key_of(result): result for result in results}


def with_object_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with texts as plain objects and columns of one type in one block, which halves the time to slice it."""
    import pandas as pd

    texts = [name for name in frame if pd.api.types.is_string_dtype(frame[name])]
    return frame.astype(dict.fromkeys(texts, object)).copy()


def without_each(frame: pd.DataFrame, group: Sequence[int] | NDArray[Any], n_groups: int) -> Iterator[pd.DataFrame]:
    """The table without each of the groups of rows; `group` is that of each row, from 0 on [row]."""
    import numpy as np

    numbers = np.asarray(group)
    for number in range(n_groups):
        yield frame[numbers != number].reset_index(drop=True)


def groups_of(labels: Sequence[str], n_most: int, seed: int) -> tuple[NDArray[Any], int]:
    """The group of each row, from 0 on [row], and their number: one per cluster, or `n_most` random groups of clusters."""
    import numpy as np
    import pandas as pd

    from undertow.stats.intervals.cluster_errors import random_groups

    of_row, names = pd.factorize(np.asarray(labels, dtype=object))
    if len(names) <= n_most:
        return of_row, len(names)
    return random_groups(len(names), n_most, np.random.default_rng(seed))[of_row], n_most
