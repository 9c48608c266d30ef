"""Every metric of the package, and what the further columns of its results mean; `catalog.toml` holds both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from undertow.metrics.metric import OVER_PROMPTS, Metric, added_metrics, read_catalog

METRICS, COLUMNS = read_catalog(Path(__file__).with_suffix(".toml"))
"""The metrics of the package by name; meanings of group keys and of further numbers (`Result.extras`), by name."""


def get_metric(name: str) -> Metric:
    """The metric of this name; of masses over all prompts, that of one prompt with "over prompts" added.

    A name that neither the package nor an installed one has a metric for becomes its own title and has no meaning.
    """
    if name in METRICS:
        return METRICS[name]
    if name.endswith(OVER_PROMPTS) and name.removesuffix(OVER_PROMPTS) in METRICS:
        one = METRICS[name.removesuffix(OVER_PROMPTS)]
        return replace(
            one,
            name=name,
            title=f"{one.title} over prompts",
            meaning=f"{one.meaning}, for masses averaged over all prompts; of several prompts this decides what is claimed",
        )
    added = {one.name: one for one in added_metrics()}
    return added.get(name) or Metric(name, name.replace("_", " ").capitalize())
