"""How models of a run compare: their masses, W lists with an order, and checkpoints over training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undertow.report.page_data import Drawing
from undertow.types import LIKELIHOOD, Result

if TYPE_CHECKING:
    from undertow.audits.base import Observations


def is_ordered(design: Mapping[str, Any], w_name: str) -> bool:
    """Whether a W list has an order that a line can follow."""
    return bool(design.get("covariates", {}).get(w_name, {}).get("scale", "index") != "none")


def is_shared(design: Mapping[str, Any], model: str) -> bool:
    """Whether a model's masses are shares of the listed words instead of probabilities."""
    if model in design.get("scoring_methods", {}):
        return bool(design["scoring_methods"][model] == LIKELIHOOD)
    return bool(design.get("scoring_method", LIKELIHOOD) == LIKELIHOOD and design.get("normalised", True))


def draw_trajectories(
    observations: Observations, results: Sequence[Result], titles: Mapping[str, str], line_key: str
) -> Iterator[Drawing]:
    """Draw each measure against the training step, for every set of checkpoints and other group keys.

    Args:
        observations: their models have a `step` and a `trajectory`.
        results: of the run.
        titles: of the measures to draw, by name.
        line_key: the group key whose levels are lines of a panel.
    """
    import pandas as pd

    from undertow.report.figures.checkpoints import draw_trajectory

    known = {name: facts for name, facts in observations.design.get("models", {}).items() if "step" in facts}
    rows = [
        {
            "of": str(known[result.group["model"]]["trajectory"]),
            "about": " · ".join(
                f"prompt {level}" if name == "prompt" else level
                for name, level in result.group.items()
                if level and name not in ("model", line_key)
            ),
            "step": int(known[result.group["model"]]["step"]),
            "measure": titles[result.measure],
            "group": result.group.get(line_key, ""),
            "value": result.value,
            "low": result.low,
            "high": result.high,
            "unit": result.unit.replace("per step", "per step of W"),
            "null_value": result.null_value,
        }
        for result in results
        if result.measure in titles and result.group.get("model") in known
    ]
    if not rows:
        return
    for (of, about), part in pd.DataFrame(rows).groupby(["of", "about"], sort=False):
        if part["step"].nunique() < 2:
            continue
        title = " · ".join(filter(None, [str(of), str(about)]))
        yield draw_trajectory(f"training_{of}_{about}", part, title)
