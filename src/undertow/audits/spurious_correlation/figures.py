"""Figures of spurious correlation: the papers' curve for every model, challenge, prompt and W, and models compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from undertow.audits.base import Observations
from undertow.audits.shared.model_comparison import (
    axis_label,
    draw_grid,
    draw_sizes,
    draw_trajectories,
    is_ordered,
    line_points,
    mass_label,
    mean_of,
    step_of,
)
from undertow.audits.spurious_correlation.drift_findings import FACETS
from undertow.errors import UndertowError
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

    from undertow.report.style import Drawing

TRAJECTORIES = {
    "slope_gap": "Slope gap",
    "slope": "Slope",
    "pearson_r": "Pearson r",
    "mean_mass": "Mean mass",
    "w_effect": "Effect of W",
    "slope_gap_over_prompts": "Slope gap over prompts",
}


def draw(observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
    """The papers' figure for every model, challenge, prompt and W."""
    from undertow.metrics.covariate_association import line_of
    from undertow.report.figures.covariate_curve import FittedLine, describe_spectrum, spectrum
    from undertow.report.style import Drawing

    frame, groups = observations.frame, list(observations.design["groups"])
    missing = [name for name in (*FACETS, *groups) if name not in frame]
    if missing:
        raise UndertowError(f"the observations have no column {missing[0]!r}; run the audit again")
    yield from draw_sizes(observations, results)
    yield from draw_trajectories(observations, results, TRAJECTORIES, "pronoun")
    yield from draw_grid(observations, groups)
    for levels, facet in frame.groupby(list(FACETS), sort=False):
        if not any(facet[group].notna().any() for group in groups):
            continue
        model, name, prompt, w_name = (str(level) for level in levels)
        if "parts" in observations.design.get("covariates", {}).get(w_name, {}):
            yield _surface(observations, facet, groups, (model, name, prompt, w_name))
            continue
        lines = []
        for group in groups if is_ordered(observations.design, w_name) else ():
            line = line_of(facet, group)
            lines.append(FittedLine(group, line.slope, line.r, *line_points(facet, line, 100)))
        covariate = observations.design.get("covariates", {}).get(w_name, {})
        over = "the index of the value in its list" if step_of(covariate) == "step" else "the value"
        yield Drawing(
            name="_".join(filter(None, [w_name, name, model, prompt and f"prompt-{prompt}"])),
            figure=spectrum(
                facet,
                groups,
                title=" · ".join(filter(None, [model, name, prompt and f"prompt {prompt}", w_name])),
                lines=lines,
                x_label=axis_label(w_name, covariate),
                measured=mass_label(observations.design, [model]),
                step=step_of(covariate),
            ),
            caption=(
                f"{mean_of(observations.design, [model])} of each word group at every {w_name}, in percent, {len(facet):,} texts."
                + (
                    f" Lines are least-squares fits over {over}, shaded with the 95% band of the line alone."
                    if lines
                    else ""
                )
            ),
            alt=describe_spectrum(facet, groups, lines, mean_of(observations.design, [model])),
            of={"model": model, "challenge": name, "w_name": w_name},
        )


def _surface(
    observations: Observations, facet: pd.DataFrame, groups: Sequence[str], about: tuple[str, str, str, str]
) -> Drawing:
    """Heat maps of two crossed W lists, one for each word group."""
    from undertow.report.figures.surface import describe_surface, surface
    from undertow.report.style import Drawing

    model, challenge, prompt, w_name = about
    parts = observations.design["covariates"][w_name]["parts"]
    mean, measured = mean_of(observations.design, [model]), mass_label(observations.design, [model])
    return Drawing(
        name="_".join(filter(None, ["surface", w_name, challenge, model, prompt and f"prompt-{prompt}"])),
        figure=surface(
            facet,
            groups,
            parts,
            title=" · ".join(filter(None, [model, challenge, prompt and f"prompt {prompt}", w_name])),
            measured=measured,
        ),
        caption=(
            f"{mean} of each word group for every combination of {parts[0]['name']} and {parts[1]['name']}, in percent, "
            f"{len(facet):,} texts. Each panel has its own scale. Without an interaction, all rows change equally from left to right."
        ),
        alt=describe_surface(facet, groups, parts, mean),
        of={"model": model, "challenge": challenge, "w_name": w_name},
    )
