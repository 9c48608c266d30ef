"""Comparison of models: slope gaps against model size, every model by every prompt, checkpoints over training.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), figure 3b, and the panels of its figures 8 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undertow.report.sentence_templates import sentences
from undertow.types import ALPHA, LIKELIHOOD, Finding, Result

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audits.base import Observations
    from undertow.report.figures.model_sizes import ModelPoint
    from undertow.report.style import Drawing

ALL_PROMPTS = "slope_gap_over_prompts"
"""The slope gap of the masses averaged over prompts."""
TIE = 1e-9
"""Relative difference below which slopes are equal."""


def gaps_by_pair(results: Sequence[Result]) -> dict[tuple[str, str, str], dict[str, list[Result]]]:
    """Slope gaps of each model by challenge, W and pair of groups, the average over prompts first."""
    by_pair: dict[tuple[str, str, str], dict[str, list[Result]]] = {}
    for result in results:
        if result.measure in ("slope_gap", ALL_PROMPTS):
            key = result.group["challenge"], result.group["w_name"], result.group["pronoun"]
            gaps = by_pair.setdefault(key, {}).setdefault(result.group["model"], [])
            gaps.insert(0 if result.measure == ALL_PROMPTS else len(gaps), result)
    return by_pair


def points(results: Sequence[Result], design: Mapping[str, Any]) -> dict[tuple[str, str, str], list[ModelPoint]]:
    """A point for each model by challenge, W and pair of groups; with several prompts, from the averaged masses."""
    from undertow.report.figures.model_sizes import ModelPoint

    def point(model: str, gaps: Sequence[Result]) -> ModelPoint:
        known, of_prompts = design.get("models", {}).get(model, {}), [one for one in gaps if one.measure != ALL_PROMPTS]
        return ModelPoint(
            name=model,
            parameters=float(known.get("parameters", math.nan)),
            objective=str(known.get("objective", "")),
            post_training=str(known.get("post_training", "")),
            gap=gaps[0].value,
            low=gaps[0].low,
            high=gaps[0].high,
            r_squared=_mean_r_squared(results, of_prompts, design.get("gaps", [])),
            n_prompts=sum(bool(one.group["prompt"]) for one in of_prompts),
        )

    return {pair: [point(*one) for one in models.items()] for pair, models in gaps_by_pair(results).items()}


def _mean_r_squared(results: Sequence[Result], gaps: Sequence[Result], pairs: Sequence[Sequence[str]]) -> float:
    """Mean of Pearson r squared over the two groups of a gap and over prompts."""
    groups_of = {"-".join(pair): tuple(pair) for pair in pairs}
    facets = [({**gap.group, "pronoun": group}) for gap in gaps for group in groups_of.get(gap.group["pronoun"], ())]
    squares = [
        result.value**2
        for result in results
        if result.measure == "pearson_r" and dict(result.group) in facets and not math.isnan(result.value)
    ]
    return sum(squares) / len(squares) if squares else math.nan


def draw_sizes(observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
    """Draw figure 3b for every challenge, W and pair of groups with several models."""
    from undertow.report.figures.model_sizes import describe_slope_against_size, slope_against_size
    from undertow.report.style import Drawing

    if observations.frame["model"].nunique() < 2:
        return
    for (challenge, w_name, pair), of_models in points(results, observations.design).items():
        name = f"{_lead(pair, observations.design)} by {w_name}"
        prompted = any(point.n_prompts > 1 for point in of_models)
        yield Drawing(
            name=f"models_{w_name}_{challenge}_{pair}",
            figure=slope_against_size(of_models, title=f"Slope gap against size · {name} · {challenge}", gap=name),
            caption=(
                f"Slope gap of each model against its number of parameters{', averaged over prompts' if prompted else ''}, with "
                "its 95% interval; 0 is no drift. The larger the marker, the closer the means follow a straight line (r squared)."
                + _scales(observations.design, of_models)
            ),
            alt=describe_slope_against_size(of_models, name),
            of={"challenge": challenge, "w_name": w_name, "pronoun": pair},
        )


def _scales(design: Mapping[str, Any], of_models: Sequence[ModelPoint]) -> str:
    """A caveat if some masses are shares and others probabilities."""
    scoring_methods = design.get("scoring_methods", {})
    shared = [point.name for point in of_models if scoring_methods.get(point.name) == LIKELIHOOD]
    if not shared or len(shared) == len(of_models):
        return ""
    return (
        f" Masses of {', '.join(shared)} are shares of the listed words and add up to 100%; the others are "
        "probabilities, which may be small. The two are not on one scale."
    )


def comparison_findings(results: Sequence[Result], frame: pd.DataFrame, design: Mapping[str, Any]) -> list[Finding]:
    """One finding for each challenge, W and pair of groups with several models: the largest and the smallest drift.

    With several prompts, a model's value is their average, as in the figure.
    """
    if frame["model"].nunique() < 2:
        return []
    words, claims = sentences("drift"), []
    by_pair = gaps_by_pair(results)
    n_challenges = len({challenge for challenge, _, _ in by_pair})
    for (challenge, w_name, pair), models in by_pair.items():
        known = [[one for one in gaps if not math.isnan(one.value)] for gaps in models.values()]
        ranked = sorted((gaps[0] for gaps in known if gaps), key=lambda gap: -abs(gap.value))
        if len(ranked) > 1:
            n_claimed = sum(gap.q < ALPHA for gap in ranked)
            over_prompts = any(gap.measure == ALL_PROMPTS for gap in ranked)
            most, least = ([one for one in ranked if _alike(one, end)] for end in (ranked[0], ranked[-1]))
            lead = next((one for one in design.get("gaps", []) if "-".join(one) == pair), None)
            what = f"the lead of {lead[0]} over {lead[1]} words" if lead else pair
            what += f" ({challenge})" if n_challenges > 1 else ""
            text = words.models(what, w_name, ranked, over_prompts, n_claimed, (most, least))
            rank = 1000.0 + abs(ranked[0].value)
            claims.append(Finding(text, n_claimed > 0, rank, results=tuple(ranked), decision_rule=words.models_rule))
    return claims


def _alike(one: Result, other: Result) -> bool:
    """Whether two slopes have the same size."""
    return abs(abs(one.value) - abs(other.value)) <= TIE * abs(other.value)


def is_ordered(design: Mapping[str, Any], w_name: str) -> bool:
    """Whether a W list has an order that a line can follow."""
    return bool(design.get("covariates", {}).get(w_name, {}).get("scale", "index") != "none")


def step_of(covariate: Mapping[str, Any]) -> str:
    """What a slope is per."""
    return str(covariate.get("unit") or "unit") if covariate.get("scale") == "value" else "step"


def axis_label(w_name: str, covariate: Mapping[str, Any]) -> str:
    """Label of the x axis: the list and its order."""
    order = str(covariate.get("order", ""))
    return f"{w_name} ({order})" if order and order != "as listed" else w_name


def mass_label(design: Mapping[str, Any], models: Iterable[str]) -> str:
    """Label of the masses of these models: shares of the listed words, or probabilities."""
    are_shares = {is_shared(design, model) for model in models}
    if len(are_shares) > 1:
        return "Share of the listed words, or probability, in percent"
    return "Share of the listed words in percent" if True in are_shares else "Probability in percent"


def mean_of(design: Mapping[str, Any], models: Iterable[str]) -> str:
    """Name of a mean over the masses of these models."""
    names = {True: "share", False: "probability"}
    are_shares = sorted({is_shared(design, model) for model in models}, reverse=True)
    return f"Mean {' or '.join(names[one] for one in are_shares)}"


def is_shared(design: Mapping[str, Any], model: str) -> bool:
    """Whether a model's masses are shares of the listed words instead of probabilities."""
    if model in design.get("scoring_methods", {}):
        return bool(design["scoring_methods"][model] == LIKELIHOOD)
    return bool(design.get("scoring_method", LIKELIHOOD) == LIKELIHOOD and design.get("normalised", True))


def _lead(pair: str, design: Mapping[str, Any]) -> str:
    for first, second in design.get("gaps", []):
        if f"{first}-{second}" == pair:
            return f"{first} less {second}"
    return pair


def draw_grid(observations: Observations, groups: Sequence[str]) -> Iterator[Drawing]:
    """Draw every model by every prompt, for every challenge and W with several of either."""
    from undertow.metrics.covariate_association import line_of
    from undertow.report.figures.covariate_curve import FittedLine
    from undertow.report.figures.model_grid import describe_model_grid, model_grid
    from undertow.report.style import Drawing

    frame = observations.frame
    for (challenge, w_name), part in frame.groupby(["challenge", "w_name"], sort=False):
        if "parts" in observations.design.get("covariates", {}).get(str(w_name), {}):
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
        lines: dict[tuple[str, str], list[FittedLine]] = {}
        for key, rows in panels.items():
            fitted = [(group, line_of(rows, group)) for group in groups if is_ordered(observations.design, str(w_name))]
            step = step_of(observations.design.get("covariates", {}).get(str(w_name), {}))
            lines[key] = [
                FittedLine(group, line.slope, line.r, *line_points(rows, line), step) for group, line in fitted
            ]
        mean = mean_of(observations.design, models)
        yield Drawing(
            name=f"grid_{w_name}_{challenge}",
            figure=model_grid(
                panels,
                groups,
                lines,
                title=f"{mean} by {w_name} · {challenge}",
                measured=mass_label(observations.design, models),
            ),
            caption=(f"{mean} of each word group at every {w_name}, with fitted lines; the same axes in every panel."),
            alt=describe_model_grid(panels, groups, lines, mean),
            of={"challenge": str(challenge), "w_name": str(w_name)},
        )


def line_points(rows: pd.DataFrame, line: Any, n_points: int = 50) -> tuple[Any, Any, Any, Any]:
    """Positions, values and band of a fitted line over the W values of its rows."""
    import numpy as np

    at = rows["w_value" if "w_value" in rows else "w_index"]
    x = np.linspace(float(at.min()), float(at.max()), n_points)
    low, high = line.band(x)
    return x, line.at(x), low, high


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

    from undertow.report.figures.checkpoints import describe_trajectory, trajectory
    from undertow.report.style import Drawing

    known = {name: facts for name, facts in observations.design.get("models", {}).items() if "step" in facts}
    rows = [
        {
            "of": str(known[result.group["model"]]["trajectory"]),
            "about": _about(result, line_key),
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
        yield Drawing(
            name=f"training_{of}_{about}",
            figure=trajectory(part, title=" · ".join(filter(None, [str(of), str(about)]))),
            caption="Each measure at every checkpoint, with its 95% interval; the dotted line is the null value.",
            alt=describe_trajectory(part),
        )


def _about(result: Result, line_key: str) -> str:
    others = {name: level for name, level in result.group.items() if name not in ("model", line_key)}
    return " · ".join(f"prompt {level}" if name == "prompt" else level for name, level in others.items() if level)
