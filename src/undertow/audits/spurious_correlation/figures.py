"""Figures of spurious correlation: the papers' curve for every model, challenge, prompt and W, models compared, and detectable changes.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), figures 3b and 3c, and the panels of figures 8 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undertow.audits.base import Observations
from undertow.audits.shared.model_comparison import draw_trajectories, is_ordered, is_shared
from undertow.audits.spurious_correlation.drift_findings import ALL_PROMPTS, gaps_by_pair
from undertow.errors import UndertowError
from undertow.report.page_data import Drawing
from undertow.report.sentence_templates import described
from undertow.types import LIKELIHOOD, Result

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audits.spurious_correlation.power_plan import PowerPlan
    from undertow.report.figures.covariate_curve import FittedLine
    from undertow.report.figures.model_sizes import ModelPoint

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
    from undertow.metrics.drift.covariate_association import ADJUSTED, STEP, with_adjusted_means
    from undertow.report.figures.covariate_curve import describe_spectrum, spectrum
    from undertow.report.figures.surface import describe_surface, surface

    frame, design, groups = observations.frame, observations.design, list(observations.design["groups"])
    yield from _draw_sizes(observations, results)
    yield from draw_trajectories(observations, results, TRAJECTORIES, "pronoun")
    yield from _draw_grid(observations, groups)
    for levels, facet in frame.groupby(["model", "challenge", "prompt", "w_name"], sort=False):
        if not any(facet[group].notna().any() for group in groups):
            continue
        model, challenge, prompt, w_name = (str(level) for level in levels)
        title = " · ".join(filter(None, [model, challenge, prompt and f"prompt {prompt}", w_name]))
        name = "_".join(filter(None, [w_name, challenge, model, prompt and f"prompt-{prompt}"]))
        mean, measured = _mean_and_label(design, [model])
        covariate = design.get("covariates", {}).get(w_name, {})
        of = {"model": model, "challenge": challenge, "w_name": w_name}
        n_answered = int(facet[groups].notna().any(axis=1).sum())
        texts = f"{n_answered:,} {f'of {len(facet):,} ' if n_answered < len(facet) else ''}texts"
        if "parts" in covariate:  # two crossed lists: a heat map for each word group
            parts = covariate["parts"]
            figure = surface(facet, groups, parts, title=title, measured=measured)
            caption = (
                f"{mean} of each word group for every combination of {parts[0]['name']} and {parts[1]['name']}, in percent, "
                f"{texts}. Each panel has its own scale. Without an interaction, all rows change equally from left to right."
            )
            yield Drawing(f"surface_{name}", figure, caption, describe_surface(facet, groups, parts, mean), of)
            continue
        lines = _fitted_lines(facet, groups, design, n_points=100)
        order = str(covariate.get("order", ""))
        x_label = f"{w_name} ({order})" if order and order != "as listed" else w_name
        adjusted = with_adjusted_means(facet, groups)
        figure = spectrum(adjusted, groups, title=title, lines=lines, x_label=x_label, measured=measured)
        caption = f"{mean} of each word group at every {w_name}, in percent, {texts}.{f' {ADJUSTED}' * (adjusted is not facet)}"
        if lines:
            over = "the index of the value in its list" if lines[0].step == STEP else "the value"
            caption += f" Lines are least-squares fits over {over}, shaded with the 95% band of the line alone."
        yield Drawing(name, figure, caption, describe_spectrum(adjusted, groups, lines, mean), of)


def _fitted_lines(
    rows: pd.DataFrame, groups: Sequence[str], design: Mapping[str, Any], n_points: int
) -> list[FittedLine]:
    """The lines and bands of one W list over its values; [] without an order."""
    import numpy as np

    from undertow.metrics.drift.covariate_association import STEP, line_of
    from undertow.report.figures.covariate_curve import FittedLine

    w_name = str(rows["w_name"].iloc[0])
    covariate = design.get("covariates", {}).get(w_name, {})
    step = str(covariate.get("unit") or "unit") if covariate.get("scale") == "value" else STEP
    at = rows["w_value" if "w_value" in rows else "w_index"]
    x, lines = np.linspace(float(at.min()), float(at.max()), n_points), []
    for group in groups if is_ordered(design, w_name) else ():
        line = line_of(rows, group)
        lines.append(FittedLine(group, line.slope, line.r, x, line.at(x), *line.band(x), step))
    return lines


def _mean_and_label(design: Mapping[str, Any], models: Iterable[str]) -> tuple[str, str]:
    """Name of a mean over the masses of these models (shares of the listed words, or probabilities), and label of its axis."""
    names = {
        (True,): ("Mean share", "Share of the listed words in percent"),
        (False,): ("Mean probability", "Probability in percent"),
        (False, True): ("Mean share or probability", "Share of the listed words, or probability, in percent"),
    }
    return names[tuple(sorted({is_shared(design, model) for model in models}))]


def points(results: Sequence[Result], design: Mapping[str, Any]) -> dict[tuple[str, str, str], list[ModelPoint]]:
    """A point for each model by challenge, W and pair of groups; with several prompts, from the averaged masses."""
    from undertow.metrics.drift.covariate_association import STEP
    from undertow.report.figures.model_sizes import ModelPoint

    groups_of = {"-".join(pair): tuple(pair) for pair in design.get("gaps", [])}
    by_pair: dict[tuple[str, str, str], list[ModelPoint]] = {}
    for pair, models in gaps_by_pair(results).items():
        for model, gaps in models.items():
            known, of_prompts = design.get("models", {}).get(model, {}), [g for g in gaps if g.measure != ALL_PROMPTS]
            facets = [{**gap.group, "pronoun": group} for gap in of_prompts for group in groups_of.get(pair[2], ())]
            squares = [
                one.value**2
                for one in results
                if one.measure == "pearson_r" and dict(one.group) in facets and not math.isnan(one.value)
            ]
            unit = gaps[0].unit.partition(" per ")[2]
            point = ModelPoint(
                name=model,
                parameters=float(known.get("parameters", math.nan)),
                objective=str(known.get("objective", "")),
                post_training=str(known.get("post_training", "")),
                gap=gaps[0].value,
                low=gaps[0].low,
                high=gaps[0].high,
                r_squared=sum(squares) / len(squares) if squares else math.nan,
                n_prompts=sum(bool(one.group["prompt"]) for one in of_prompts),
                step="step of W" if unit in ("", STEP) else unit,
            )
            by_pair.setdefault(pair, []).append(point)
    return by_pair


def _draw_sizes(observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
    """Draw figure 3b for every challenge, W and pair of groups with several models."""
    from undertow.report.figures.model_sizes import describe_slope_against_size, slope_against_size

    design, methods = observations.design, observations.design.get("scoring_methods", {})
    if observations.frame["model"].nunique() < 2:
        return
    leads = {f"{first}-{second}": f"{first} less {second}" for first, second in design.get("gaps", [])}
    for (challenge, w_name, pair), of_models in points(results, design).items():
        name = f"{leads.get(pair, pair)} by {w_name}"
        prompted = any(point.n_prompts > 1 for point in of_models)
        caption = (
            f"Slope gap of each model against its number of parameters{', averaged over prompts' if prompted else ''}, with "
            "its 95% interval; 0 is no drift. The larger the marker, the closer the means follow a straight line (r squared)."
        )
        shared = [point.name for point in of_models if methods.get(point.name) == LIKELIHOOD]
        if 0 < len(shared) < len(of_models):
            caption += (
                f" Masses of {', '.join(shared)} are shares of the listed words and add up to 100%; the others are "
                "probabilities, which may be small. The two are not on one scale."
            )
        yield Drawing(
            name=f"models_{w_name}_{challenge}_{pair}",
            figure=slope_against_size(of_models, title=f"Slope gap against size · {name} · {challenge}", gap=name),
            caption=caption,
            alt=describe_slope_against_size(of_models, name),
            of={"challenge": challenge, "w_name": w_name, "pronoun": pair},
        )


def _draw_grid(observations: Observations, groups: Sequence[str]) -> Iterator[Drawing]:
    """Draw every model by every prompt, for every challenge and W with several of either."""
    from undertow.metrics.drift.covariate_association import ADJUSTED, with_adjusted_means
    from undertow.report.figures.model_grid import describe_model_grid, model_grid

    design = observations.design
    for (challenge, w_name), part in observations.frame.groupby(["challenge", "w_name"], sort=False):
        if "parts" in design.get("covariates", {}).get(str(w_name), {}):
            continue
        rows_of = {(str(model), str(prompt)): rows for (model, prompt), rows in part.groupby(["model", "prompt"])}
        models, prompts = (list(dict.fromkeys(part[name].astype(str))) for name in ("model", "prompt"))
        prompts.sort(key=bool)  # sentences without a prompt first
        panels = {
            (model, f"prompt {prompt}" if prompt else ""): rows_of[model, prompt]
            for model in models
            for prompt in prompts
            if (model, prompt) in rows_of
        }
        if len(panels) < 2:
            continue
        lines = {key: _fitted_lines(rows, groups, design, n_points=50) for key, rows in panels.items()}
        mean, measured = _mean_and_label(design, models)
        adjusted = {key: with_adjusted_means(rows, groups) for key, rows in panels.items()}
        is_adjusted = any(adjusted[key] is not rows for key, rows in panels.items())
        yield Drawing(
            name=f"grid_{w_name}_{challenge}",
            figure=model_grid(adjusted, groups, lines, title=f"{mean} by {w_name} · {challenge}", measured=measured),
            caption=f"{mean} of each word group at every {w_name}, with fitted lines; the same axes in every panel."
            + f" {ADJUSTED}" * is_adjusted,
            alt=describe_model_grid(adjusted, groups, lines, mean),
            of={"challenge": str(challenge), "w_name": str(w_name)},
        )


POWER_LEAD = (
    "Smallest change from the first value of a list to the last, in percentage points, that is significant (p < .05) in 8 of 10 runs; "
    "one line for each number of values. Ring: the current design."
)


def draw_power(plan: PowerPlan) -> Drawing:
    """Draw one panel for each ordered list, with one line for each number of values; this is not in the papers.

    Raises:
        UndertowError: there is no change to draw.
    """
    from matplotlib.ticker import NullLocator

    from undertow.report.sheet import Sheet, even_ticks, fitted
    from undertow.report.style import INK, TEXT_SIZE, lettering, style_of

    name, curves = plan.challenge, [curve for curve in plan.curves if curve.designs]
    changes = [one.change for curve in curves for one in curve.designs if math.isfinite(one.change)]
    if not changes:
        raise UndertowError("the curve cannot be drawn: no design can detect a change")
    title = f"What {name} can find"
    with lettering("".join([title, *(curve.title for curve in curves)])):
        sheet = Sheet(title, POWER_LEAD)
        numbers = sorted({one.n_values for curve in curves for one in curve.designs})
        sheet.key_of_groups([f"{values} values" for values in numbers])
        (column,) = sheet.subplots(len(curves), sharey=True, squeeze=False).T
        for axes, curve in zip(column, curves, strict=True):
            sentences = sorted({one.n_sentences for one in curve.designs})
            for values in sorted({one.n_values for one in curve.designs}):
                along = [one.change for one in curve.designs if one.n_values == values]
                axes.plot(sentences, along, linewidth=1.5, zorder=3, **style_of(numbers.index(values)))
            ring = {"s": 120, "facecolor": "none", "edgecolor": INK, "linewidth": 1.2, "zorder": 4}
            axes.scatter([curve.own.n_sentences], [curve.own.change], **ring)
            axes.set_title(fitted(curve.title, sheet.inner_in - 0.5, TEXT_SIZE, "bold"))
            axes.set_xscale("log")
            axes.set_xticks(sentences, [str(at) for at in sentences])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.grid(axis="y")
        column[0].set_ylim(0.0, 1.08 * max(changes))
        column[0].yaxis.set_major_locator(even_ticks(5))
        column[-1].set_xlabel("sentences")
        sheet.finish(column, 2.4 * len(curves))
    return Drawing(name, sheet, POWER_LEAD, f"{POWER_LEAD} {described('power', curves)}")
