"""Figures of task specification: movement by occupation, ROC curves, and one occupation over all dates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from undertow import data
from undertow.audits.base import Observations
from undertow.audits.shared.model_comparison import draw_trajectories
from undertow.audits.task_specification.findings import score_sentences
from undertow.audits.task_specification.items import TRACE
from undertow.report.page_data import Drawing
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd


TRAJECTORIES = {"auroc": "Area under the ROC curve", "balanced_accuracy": "Balanced accuracy"}
MAX_COLUMNS = 3
"""Models side by side in one figure."""
MAX_ROWS = 90
"""Maximum number of occupations in a figure."""


def draw(observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
    """Draw figure 5 and ROC curves of every model and set, and figure 4 for a traced occupation."""
    from undertow.report.figures.specification import occupation_panels

    yield from draw_trajectories(observations, results, TRAJECTORIES, "score")
    table, design = score_sentences(observations), observations.design
    lead, threshold = design["groups"][0], float(design["threshold"])

    def movements(panels: Mapping[str, pd.DataFrame], name: Sequence[str], title: str, caption: str) -> Drawing:
        alts = []
        for head, rows in panels.items():
            decided, above = rows["well_specified"].astype(bool), rows[f"delta_{lead}"] > threshold
            alts.append(
                f"{head + ': ' if head else ''}Movement of {lead} mass by occupation. Of {int((~decided).sum())} underspecified "
                f"sentences, {int((above & ~decided).sum())} lie above {threshold:g} points; of {int(decided.sum())} specified ones, "
                f"{int((above & decided).sum())}."
            )
        unit = f"movement of {lead} mass, percentage points"
        figure = occupation_panels(panels, f"delta_{lead}", threshold, title=title, unit=unit)
        return Drawing("_".join(name), figure, f"Movement of the {lead} mass{caption}", " ".join(alts))

    side_by_side: dict[tuple[str, str], dict[str, pd.DataFrame]] = {}
    for levels, part in table.groupby(["model", "challenge", "prompt", "w_name"], sort=False):
        name = [str(level) for level in levels if level]
        known = part[part["missing_reason"] == ""]
        if "well_specified" not in part or known.empty:
            continue
        if known["cluster"].nunique() <= MAX_ROWS:
            model, challenge, prompt, w_name = map(str, levels)
            column = " · ".join(filter(None, [model, prompt and f"prompt {prompt}"]))
            side_by_side.setdefault((challenge, w_name), {})[column] = known
            if split := _by_coreferent(known):
                caption = ", (a) if the pronoun refers to the professional (underspecified) and (b) if it refers to the participant."
                yield movements(split, ["occupations-coreferent", *name], " · ".join(name), caption)
            has_shares = "percent_female" in known and known["percent_female"].notna().any()
            caption = (
                f" in each of {len(known):,} sentences, a row for each "
                f"{'occupation in order of its share of women' if has_shares else 'group of sentences'}. With perfect detection, all "
                "blue marks (specified sentences) lie left of the dashed line, and all orange ones (underspecified) right of it. The "
                "scale is linear up to the line and logarithmic beyond."
            )
            yield movements({"": known}, ["occupations", *name], " · ".join(name), caption)
        keys = dict(zip(("model", "set", "prompt", "w_name"), map(str, levels), strict=True))
        areas = [one for one in results if one.measure == "auroc"]
        areas = [one for one in areas if all(one.group.get(key, level) == level for key, level in keys.items())]
        yield from _draw_curves(known, name, areas)
    for (challenge, w_name), columns in side_by_side.items():
        names = list(columns)
        for start in range(0, len(names) if len(names) > 1 else 0, MAX_COLUMNS):
            some = {one: columns[one] for one in names[start : start + MAX_COLUMNS]}
            further = [str(start // MAX_COLUMNS + 1)] if start else []
            caption = " in each sentence, models side by side with the same rows and axis."
            name = ["occupations-models", challenge, w_name, *further]
            yield movements(some, name, f"{challenge} · {w_name}", caption)
    yield from _draw_followed(observations)


def _by_coreferent(known: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The sentences by the referent of the pronoun; {} if they are all of one kind or unlabelled."""
    if "coreferent" not in known:
        return {}
    whose = known["coreferent"].fillna(-1).astype(int)
    parts = {"(a) the professional's pronoun": known[whose == 0], "(b) the participant's pronoun": known[whose == 1]}
    return {} if any(part.empty for part in parts.values()) else parts


def _draw_curves(known: pd.DataFrame, name: Sequence[str], areas: Sequence[Result]) -> Iterator[Drawing]:
    from undertow.report.figures.specification import Curve, roc
    from undertow.stats.classification.roc import roc_points

    curves = []
    for area in areas:
        if math.isfinite(area.value):
            score = area.group["score"]
            part = known[np.isfinite(known[score].to_numpy(dtype=np.float64))]
            rates = roc_points(part[score], ~part["well_specified"].astype(bool))
            curves.append(Curve(score, *rates, area.value, area.low, area.high))
    if curves:
        best = max(curves, key=lambda curve: curve.area)
        yield Drawing(
            name="_".join(["roc", *name]),
            figure=roc(curves, title=" · ".join(name)),
            caption="True and false positive rate at every threshold of every score. Entropy, which needs no W, is the baseline of "
            "the movements.",
            alt=f"ROC curves of {len(curves)} scores; the largest area is {best.area:.2f}, of {best.name.replace('_', ' ')}.",
        )


def followed_sentences(observations: Observations) -> pd.DataFrame:
    """Rows of one occupation's sentences over W: of `--trace-occupation`, else with a range of dates of the doctor or the first one."""
    frame = observations.frame
    injected = frame[frame["w_name"] != data.NO_W]
    followed = injected[injected["part"] == TRACE]
    if followed.empty and "occupation" in injected and injected["w_index"].nunique() > 2:
        first = injected["occupation"].astype(str)
        followed = injected[first == ("doctor" if (first == "doctor").any() else first.iloc[0])]
    return followed


def _draw_followed(observations: Observations) -> Iterator[Drawing]:
    from undertow.report.figures.specification import over_w

    groups, followed = list(observations.design["groups"]), followed_sentences(observations)
    followed = followed[followed["missing_reason"] == ""]
    followed = followed.assign(**followed[groups].mul(100 / followed[groups].sum(axis=1), axis=0))
    for levels, rows in followed.groupby(["model", "challenge", "w_name", "cluster"], sort=False):
        name = [str(level) for level in levels]
        yield Drawing(
            name="_".join(["over-w", *name]),
            figure=over_w(rows, groups[0], title=" · ".join(name)),
            caption=(
                f"The share of {groups[0]} words in every sentence of one occupation. Distances between lines at one {name[2]} are "
                f"effects of the sentence; the slope of a line is an effect of the {name[2]} alone, and should be 0 if the sentence "
                "determines its blank."
            ),
            alt=f"Share of {groups[0]} words by {name[2]} in {rows['sentence'].nunique()} sentences about one occupation ({name[3]}).",
        )
