"""Figures of task specification: movement by occupation, ROC curves, and one occupation over all dates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow import data
from undertow.audits.base import Observations
from undertow.audits.shared.model_comparison import draw_trajectories
from undertow.audits.task_specification.items import TRACE
from undertow.audits.task_specification.scores import score_sentences
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

    from undertow.report.style import Drawing

TRAJECTORIES = {"auroc": "Area under the ROC curve", "balanced_accuracy": "Balanced accuracy"}
MAX_COLUMNS = 3
"""Models side by side in one figure."""
MAX_ROWS = 90
"""Maximum number of occupations in a figure."""


def draw(observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
    """Draw figure 5 and ROC curves of every model and set, and figure 4 for a traced occupation."""
    from undertow.report.figures.specification import occupation_panels, occupations, over_w, roc
    from undertow.report.style import Drawing

    yield from draw_trajectories(observations, results, TRAJECTORIES, "score")
    table, design = score_sentences(observations), observations.design
    lead, threshold = design["groups"][0], float(design["threshold"])
    by = ["model", "challenge", "prompt", "w_name"]
    side_by_side: dict[tuple[str, str], dict[str, pd.DataFrame]] = {}
    for levels, part in table.groupby(by, sort=False):
        name = [str(level) for level in levels if level]
        known = part[part["missing_reason"] == ""]
        if "well_specified" not in part or known.empty:
            continue
        score = f"delta_{lead}"
        if known["cluster"].nunique() <= MAX_ROWS:
            model, challenge, prompt, w_name = map(str, levels)
            column = " · ".join(filter(None, [model, prompt and f"prompt {prompt}"]))
            side_by_side.setdefault((challenge, w_name), {})[column] = known
            if split := _by_coreferent(known):
                yield Drawing(
                    name="_".join(["occupations-coreferent", *name]),
                    figure=occupation_panels(
                        split,
                        score,
                        threshold,
                        title=" · ".join(name),
                        unit=f"movement of {lead} mass, percentage points",
                    ),
                    caption=(
                        f"Movement of the {lead} mass, (a) if the pronoun refers to the professional (underspecified) and "
                        "(b) if it refers to the participant."
                    ),
                    alt=" ".join(f"{part}: {_describe(rows, score, threshold, lead)}" for part, rows in split.items()),
                )
            row = (
                "a row for each occupation in order of its share of women"
                if "percent_female" in known and known["percent_female"].notna().any()
                else "a row for each group of sentences"
            )
            yield Drawing(
                name="_".join(["occupations", *name]),
                figure=occupations(
                    known, score, threshold, title=" · ".join(name), unit=f"movement of {lead} mass, percentage points"
                ),
                caption=(
                    f"Movement of the {lead} mass in each of {len(known):,} sentences, {row}. With perfect detection, all blue marks "
                    "(specified sentences) lie left of the dashed line, and all orange ones (underspecified) right of it. The scale is "
                    "linear up to the line and logarithmic beyond."
                ),
                alt=_describe(known, score, threshold, lead),
            )
        areas = [result for result in results if result.measure == "auroc" and _is_of(result, levels)]
        curves = [_curve(known, result) for result in areas if math.isfinite(result.value)]
        if curves:
            best = max(curves, key=lambda curve: curve.area)
            yield Drawing(
                name="_".join(["roc", *name]),
                figure=roc(curves, title=" · ".join(name)),
                caption=(
                    "True and false positive rate at every threshold of every score. Entropy, which needs no W, is the baseline of "
                    "the movements."
                ),
                alt=f"ROC curves of {len(curves)} scores; the largest area is {best.area:.2f}, of {best.name.replace('_', ' ')}.",
            )
    for (challenge, w_name), columns in side_by_side.items():
        names = list(columns)
        for start in range(0, len(names) if len(names) > 1 else 0, MAX_COLUMNS):
            some = {one: columns[one] for one in names[start : start + MAX_COLUMNS]}
            yield Drawing(
                name="_".join(
                    ["occupations-models", challenge, w_name, *([str(start // MAX_COLUMNS + 1)] if start else [])]
                ),
                figure=occupation_panels(
                    some,
                    f"delta_{lead}",
                    threshold,
                    title=f"{challenge} · {w_name}",
                    unit=f"movement of {lead} mass, percentage points",
                ),
                caption=f"Movement of the {lead} mass in each sentence, models side by side with the same rows and axis.",
                alt=" ".join(
                    f"{one}: {_describe(rows, f'delta_{lead}', threshold, lead)}" for one, rows in some.items()
                ),
            )
    yield from _followed_drawings(observations, over_w, Drawing)


def _by_coreferent(known: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The sentences by the referent of the pronoun; {} if they are all of one kind or unlabelled."""
    if "coreferent" not in known:
        return {}
    whose = known["coreferent"].fillna(-1).astype(int)
    parts = {"(a) the professional's pronoun": known[whose == 0], "(b) the participant's pronoun": known[whose == 1]}
    return {} if any(part.empty for part in parts.values()) else parts


def _is_of(result: Result, levels: Sequence[object]) -> bool:
    given = dict(zip(("model", "set", "prompt", "w_name"), map(str, levels), strict=True))
    return all(result.group[key] == given[key] for key in given if key in result.group)


def _curve(known: pd.DataFrame, result: Result) -> Any:
    from undertow.report.figures.specification import Curve
    from undertow.stats.classification.roc import roc_points

    part = known[np.isfinite(known[result.group["score"]].to_numpy(dtype=np.float64))]
    false_positive, true_positive = roc_points(part[result.group["score"]], ~part["well_specified"].astype(bool))
    return Curve(result.group["score"], false_positive, true_positive, result.value, result.low, result.high)


def _describe(known: pd.DataFrame, score: str, threshold: float, lead: str) -> str:
    decided = known["well_specified"].astype(bool)
    above = known[score] > threshold
    return (
        f"Movement of {lead} mass by occupation. Of {int((~decided).sum())} underspecified sentences, {int((above & ~decided).sum())} "
        f"lie above {threshold:g} points; of {int(decided.sum())} specified ones, {int((above & decided).sum())}."
    )


def _followed_drawings(observations: Observations, over_w: Any, drawing: Any) -> Iterator[Drawing]:
    frame, lead = observations.frame, observations.design["groups"][0]
    injected = frame[frame["w_name"] != data.NO_W]
    followed = injected[injected["part"] == TRACE]
    if followed.empty and "occupation" in injected and injected["w_index"].nunique() > 2:
        # With a range of dates, an occupation can be drawn without --trace-occupation.
        first = injected["occupation"].astype(str)
        followed = injected[first == ("doctor" if (first == "doctor").any() else first.iloc[0])]
    followed = followed[followed["missing_reason"] == ""]
    groups = list(observations.design["groups"])
    followed = followed.assign(**followed[groups].mul(100 / followed[groups].sum(axis=1), axis=0))
    for levels, rows in followed.groupby(["model", "challenge", "w_name", "cluster"], sort=False):
        name = [str(level) for level in levels]
        yield drawing(
            name="_".join(["over-w", *name]),
            figure=over_w(rows, lead, title=" · ".join(name)),
            caption=(
                f"The share of {lead} words in every sentence of one occupation. Distances between lines at one {name[2]} are effects "
                f"of the sentence; the slope of a line is an effect of the {name[2]} alone, and should be 0 if the sentence determines "
                "its blank."
            ),
            alt=f"Share of {lead} words by {name[2]} in {rows['sentence'].nunique()} sentences about one occupation ({name[3]}).",
        )
