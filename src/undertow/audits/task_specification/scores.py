"""The scores of every sentence of task specification, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow.audits.base import Observations
from undertow.audits.task_specification.items import TRACE
from undertow.errors import UndertowError

if TYPE_CHECKING:
    import pandas as pd


def score_sentences(observations: Observations) -> pd.DataFrame:
    """One row for each sentence with its scores; see `undertow.metrics.sentence_scores`."""
    from undertow.metrics.sentence_scores import sentence_scores
    from undertow.metrics.specification_detection import with_combined

    frame = observations.frame
    needed = ["part", "w_name", "sentence", "missing_reason", *observations.design["groups"]]
    missing = [name for name in needed if name not in frame]
    if missing:
        raise UndertowError(f"the observations have no column {missing[0]!r}; run the audit again")
    groups = observations.design["groups"]
    return with_combined(
        sentence_scores(frame[frame["part"] != TRACE], groups, int(observations.design["endpoint_window"])), groups
    )
