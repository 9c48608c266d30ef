"""The figures of a verification: readings against the truth, power and false alarms, the training's proof, the detector.

The papers have no such figures: none of them knows the truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, PercentFormatter

from undertow.errors import UndertowError, counted
from undertow.lab.verification.metrics import ALL, STEPS, UNBIASED, get_result, levels_of
from undertow.lab.verification.paragraphs import paragraphs
from undertow.report.formatting import DEFAULT_DECIMALS, correlation, interval, named, number, plain, significant
from undertow.report.page_data import Drawing
from undertow.report.sheet import DASHED, HALO, Sheet, empty_panel, even_ticks, fitted, mark, padded, write_above
from undertow.report.style import COLOURS, GREY, INK, PALE, SMALL_SIZE, TEXT_SIZE, lettering, style_of
from undertow.types import Result, has_width, interval_decimals

if TYPE_CHECKING:
    import pandas as pd

_CROSS: dict[str, Any] = {"linestyle": "none", "marker": "x", "color": INK, "markersize": 5.0, "markeredgewidth": 1.3}
_READING = ["measured_slope", "low", "high", "seed_low", "seed_high"]


def draw_calibration(rows: pd.DataFrame, lines: pd.DataFrame, results: Sequence[Result]) -> Drawing:
    """Measured against planted slopes, a panel for each architecture, with both intervals, the identity and the fitted line.

    Args:
        rows: one for each model and W: `architecture`, `w_name`, `planted_slope`, `measured_slope`, `low`, `high` (95%, over
            sentences), `seed_low`, `seed_high` (with the training seed; NaN if unknown), `unbiased`, `left_out` ("" if the
            row counts).
        lines: points of the fitted lines: `architecture`, `planted_slope`, `fitted`, `low`, `high`.
        results: `calibration_slope` and `calibration_intercept`, printed above the panels.
    """
    names, w_names, counting = _levels(rows, "architecture"), _levels(rows, "w_name"), rows[rows["left_out"] == ""]
    words = {}
    for name in names:
        line = {what: get_result(results, f"calibration_{what}", name) for what in ("slope", "intercept")}
        known = [f"{what} {_with_interval(one)}" for what, one in line.items() if one and math.isfinite(one.value)]
        words[name] = known or ["no line"]
    uncounted = [
        f"{counted(len(part), 'slope')} left out: {plain(str(reason))}."
        for reason, part in rows[rows["left_out"] != ""].groupby("left_out", sort=False)
    ]
    lead, caption = _lead_and_caption("calibration")
    unbiased = counting[counting["unbiased"]]
    with lettering("".join([*words, *w_names])):
        sheet = Sheet("Measured against planted slope", lead, uncounted)
        key: list[tuple[str, Any]] = [
            (f"W is {named(name)}", mark(linestyle="none", **style_of(at))) for at, name in enumerate(w_names)
        ]
        key += [
            ("audit's own 95% interval (over sentences)", mark(color=GREY, linewidth=3.2, alpha=0.7)),
            ("95% interval, training seed included", mark(color=GREY, linewidth=1.0)),
            ("measured = planted", mark(color=INK, linewidth=1.0, linestyle=DASHED)),
            ("fitted line with 95% band", Patch(facecolor="#cfcfcf", edgecolor=INK, linewidth=0.8)),
        ]
        key += [("does not count: training did not converge", mark(**_CROSS))] if uncounted else []
        sheet.add_key(key)
        kinds = 2 if len(unbiased) else 1
        grid, across = _grid(sheet, len(names), kinds, [3.2, 1.1])
        side = sheet.inner_in / across - 0.55
        ends = padded([*rows[["planted_slope", "measured_slope"]].stack(), *counting[_READING].stack(), 0.0], 0.04)
        errors = unbiased[_READING].sub(unbiased["planted_slope"], axis=0)
        most = 1.1 * float(np.nanmax(np.abs(errors.to_numpy(dtype=np.float64)), initial=0.0)) or 1.0
        for name, panels in zip(names, grid, strict=False):
            axes, own = panels[0], rows[rows["architecture"] == name]
            heads: list[tuple[str, dict[str, Any]]] = [(fitted(named(name), side, TEXT_SIZE, "bold"), {})]
            heads += [
                (fitted(line, side), {"size": SMALL_SIZE, "color": GREY, "weight": "normal"}) for line in words[name]
            ]
            write_above(axes, heads)
            axes.set(xlim=ends, ylim=ends, aspect="equal", xlabel="planted slope", ylabel="measured slope")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_locator(even_ticks())
            axes.grid()
            axes.plot(ends, ends, color=INK, linewidth=1.0, linestyle=DASHED, zorder=2)
            fit = lines[lines["architecture"] == name]
            look: dict[str, Any] = {"color": "#8a8a8a", "alpha": 0.3, "linewidth": 0, "zorder": 1.5}
            axes.fill_between(fit["planted_slope"], fit["low"], fit["high"], **look)
            axes.plot(fit["planted_slope"], fit["fitted"], color=INK, linewidth=1.2, zorder=2.5)
            for at, w_name in enumerate(w_names):
                part = own[(own["w_name"] == w_name) & (own["left_out"] == "")]
                for small, chosen in ((True, part["unbiased"]), (False, ~part["unbiased"])):
                    _draw_readings(axes, part[chosen].set_index("planted_slope"), at, small=small)
            lost = own[own["left_out"] != ""]
            axes.plot(lost["planted_slope"], lost["measured_slope"], zorder=5, **_CROSS)
            if len(unbiased):
                panels[1].set_title(
                    fitted("no bias planted: measured less planted slope, by size", side, lines=2), **heads[-1][1]
                )
                _draw_errors(panels[1], errors[unbiased["architecture"] == name], unbiased["w_name"], w_names, most)
        height = math.ceil(len(names) / across) * (side + 1.1 * (kinds > 1))
        sheet.finish([axes for row in grid[::across] for axes in row], height)
    sentences = ["Measured against planted slopes with the line of equality."]
    for name, labels in words.items():
        planted = counting.loc[counting["architecture"] == name, "planted_slope"]
        extremes = map(significant, (planted.min(), planted.max()))
        span = f", planted slopes from {' to '.join(extremes)}" if len(planted) else ""
        sentences.append(f"{named(name)}: {counted(len(planted), 'slope')}{span}; {', '.join(labels)}.")
    return Drawing("calibration", sheet, caption, " ".join([*sentences, *uncounted]))


def _draw_readings(axes: Axes, readings: pd.DataFrame, place: int, *, small: bool) -> None:
    look, x = style_of(place) | ({"markersize": 3.4, "markeredgewidth": 0.0} if small else {}), readings.index
    axes.vlines(
        x, readings["seed_low"], readings["seed_high"], color=look["color"], linewidth=0.9, alpha=0.55, zorder=3
    )
    axes.vlines(x, readings["low"], readings["high"], color=look["color"], linewidth=3.0, alpha=0.4, zorder=3)
    axes.plot(x, readings["measured_slope"], linestyle="none", zorder=4, **look)


def _draw_errors(
    axes: Axes, errors: pd.DataFrame, w_names_of: pd.Series[str], w_names: Sequence[str], most: float
) -> None:
    """Errors of an architecture's unbiased readings side by side, the least first, where the plot above has one heap."""
    axes.set(xticks=[], ylim=(-most, most))
    axes.yaxis.set_major_locator(even_ticks(4))
    axes.grid(axis="y")
    axes.axhline(0, color=INK, linewidth=1.0, linestyle=DASHED, zorder=2)
    if not len(errors):
        empty_panel(axes, "no unbiased model")
        return
    ordered = errors.assign(w_name=w_names_of).sort_values("measured_slope", kind="stable").reset_index(drop=True)
    axes.set_xlim(-1, len(ordered))
    for place, w_name in enumerate(w_names):
        _draw_readings(axes, ordered[ordered["w_name"] == w_name], place, small=len(ordered) > 12)


def draw_power(results: Sequence[Result]) -> Drawing:
    """Share of slopes that the audit finds: in unbiased models (false alarms), and in biased ones by strength (power).

    Args:
        results: `false_alarms` and `power` by architecture and strength, with intervals; `power` has the mean size of the planted
            slopes as `planted` in its detail. Strengths are in ascending order, "0" (unbiased) first.
    """
    shares = {}
    for result in results:
        architecture, w_name, strength = levels_of(result)
        if result.measure in ("false_alarms", "power") and w_name == ALL and ALL not in (architecture, strength):
            shares[architecture, strength] = result
    if not shares:
        raise UndertowError("power cannot be drawn: there is neither a biased nor an unbiased model, so build some")
    names = list(dict.fromkeys(name for name, _ in shares))
    strengths = sorted({strength for _, strength in shares}, key=_size)
    planted = {
        r.group["strength"]: r.extras["planted"] for r in results if r.measure == "power" and levels_of(r)[0] == ALL
    }
    has_unbiased, has_biased = UNBIASED in strengths, strengths != [UNBIASED]
    lead, caption = _lead_and_caption("power", has_unbiased=has_unbiased, has_biased=has_biased)
    with lettering("".join(names)):
        sheet = Sheet("How often the audit finds a bias", lead)
        sheet.key_of_groups(names)
        axes = sheet.add_subplot()
        axes.set(xlim=(-0.5, len(strengths) - 0.4), ylim=(-0.03, 1.08))
        below = {one: "no bias" if one == UNBIASED else number(planted.get(one, math.nan)) for one in strengths}
        axes.set_xticks(range(len(strengths)), [f"{one}\n{below[one]}" for one in strengths])
        axes.set_yticks(np.linspace(0, 1, 6))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.grid(axis="y")
        label = f"size of the planted strength; below it the mean size of the planted slope, {STEPS}"
        axes.set_xlabel(fitted(label, 0.85 * sheet.inner_in, lines=3))
        first_biased = 0.5 if has_unbiased else -0.5  # without bias is the smallest size, and comes first
        if has_unbiased:
            axes.axvspan(-0.5, 0.5, color=PALE, zorder=0)
            axes.plot([-0.5, 0.5], [0.05, 0.05], color=INK, linewidth=1.0, linestyle=DASHED, zorder=2)
            axes.text(-0.48, 0.065, "5%", va="bottom", zorder=6)
        axes.plot(
            [first_biased, len(strengths) - 0.4], [0.8, 0.8], color=INK, linewidth=1.0, linestyle=DASHED, zorder=2
        )
        step = min(0.8 / len(names), 0.3)
        for (name, strength), result in shares.items():
            if math.isfinite(result.value):
                place = names.index(name)
                look, x = style_of(place), strengths.index(strength) + (place - (len(names) - 1) / 2) * step
                axes.vlines(x, result.low, result.high, color=look["color"], linewidth=1.4, alpha=0.8, zorder=3)
                axes.plot([x], [result.value], zorder=4, clip_on=False, **look)
                narrow = sheet.width_in < 5  # then counts of neighbours are turned, or they would touch
                beside: dict[str, Any] = {"xytext": (5, 8) if narrow else (6, 5), "rotation": 90 if narrow else 0}
                beside |= {"textcoords": "offset points", "annotation_clip": False, "path_effects": HALO, "zorder": 6}
                axes.annotate(f"{round(result.value * result.n)}/{result.n}", (x, result.value), va="center", **beside)
        sheet.finish([axes], 2.6)
    sentences = []
    for strength in strengths:
        parts = [
            f"{named(name)} {number(100 * one.value, 0)}% of {one.n:,} ({number(100 * one.low, 0)}% to {number(100 * one.high, 0)}%)"
            for (name, of), one in shares.items()
            if of == strength and math.isfinite(one.value)
        ]
        what = "False alarms without bias" if strength == UNBIASED else f"Found at strength {strength}"
        sentences.append(f"{what}: {'; '.join(parts) or 'no number'}.")
    return Drawing("power", sheet, caption, " ".join(sentences))


class _TrainedModel(NamedTuple):
    name: str
    architecture: str
    above_floor: float  # nats
    ignorant: float  # nats above the floor
    converged: bool


def draw_training(rows: pd.DataFrame) -> Drawing:
    """Each model's pronoun loss above its minimum, beside that of a predictor that ignores W.

    Args:
        rows: `model`, `architecture`, `w_name`, `strength`, `pronoun_loss_nats`, `floor_nats`, `ignorant_nats`, `converged`; rows
            of a model with equal losses are drawn once.
    """
    names, models = _levels(rows, "architecture"), list(_read_models(rows))
    of = {name: [model for model in models if model.architecture == name] for name in names}
    lead, caption = _lead_and_caption("training")
    lost = [model.name for model in models if not math.isfinite(model.above_floor)]
    with lettering("".join(model.name for model in models)):
        sheet = Sheet("Did training converge?", lead, [f"No loss is known of: {', '.join(lost)}."] if lost else [])
        tick = mark(color=INK, marker="|", markersize=8, linestyle="none")
        key = [("pronoun loss of a model that counts", mark(linestyle="none", **style_of(0)))]
        sheet.add_key([*key, ("of one that does not", mark(**_CROSS)), ("loss of one who ignores W", tick)])
        across = 2 if sheet.width_in > 5 and len(names) > 1 else 1
        lines = [names[start : start + across] for start in range(0, len(names), across)]
        heights = [max(len(of[name]) for name in line) * 0.14 + 0.06 for line in lines]
        grid = sheet.subplots(len(lines), across, height_ratios=heights, sharex=True, squeeze=False)
        ends = padded([0.0, *(value for model in models for value in (model.above_floor, model.ignorant))], 0.05)
        for row, line in enumerate(lines):
            most = max(len(of[name]) for name in line)
            for axes, name in zip(grid[row], [*line, ""], strict=False):
                own = of.get(name, [])
                axes.set(xlim=ends, ylim=(most - 0.3, -0.7))
                if not own:
                    axes.set_axis_off()
                    continue
                axes.set_title(fitted(named(name), 0.3 * sheet.inner_in, TEXT_SIZE, "bold"))
                axes.set_yticks(range(len(own)), [fitted(model.name, 1.4, 7.0) for model in own], size=7.0)
                axes.xaxis.set_major_locator(even_ticks(4))
                axes.tick_params(labelbottom=True)
                axes.set_xlabel("nats above the floor")
                axes.grid(axis="x")
                for at, model in enumerate(own):
                    axes.plot([0, model.ignorant], [at, at], color="#c4c4c4", linewidth=1.0, zorder=2)
                    axes.plot([model.ignorant], [at], color=INK, marker="|", markersize=7, linestyle="none", zorder=3)
                    proof = style_of(0) | {"linestyle": "none"} if model.converged else _CROSS
                    axes.plot([model.above_floor], [at], zorder=4, **proof)
        sheet.finish(list(grid[:, 0]), sum(heights))
    sentences = ["Pronoun loss above its floor, by model."]
    for name, own in of.items():
        good = [model for model in own if model.converged]
        known = [model.above_floor for model in good if math.isfinite(model.above_floor)]
        at_most = f", {significant(max(known))} nats above the floor at most" if known else ""
        sentences.append(f"{named(name)}: {len(good)} of {counted(len(own), 'model')} converged{at_most}.")
    failed = [
        f"{model.name} ({significant(model.above_floor)} nats, {significant(model.ignorant)} if W is ignored)"
        for model in models
        if not model.converged
    ]
    sentences += [f"Not converged: {'; '.join(failed)}."] if failed else []
    return Drawing("training", sheet, caption, " ".join(sentences))


def _read_models(rows: pd.DataFrame) -> Iterator[_TrainedModel]:
    losses = ["pronoun_loss_nats", "floor_nats", "ignorant_nats"]
    sized = rows.assign(size=rows["strength"].abs())
    ordered = sized.sort_values("size", ascending=False, kind="stable").drop_duplicates(["model", *losses])
    ordered = ordered.sort_index().sort_values("size", kind="stable")
    several = ordered.duplicated("model", keep=False)
    for row, twice in zip(ordered.to_dict("records"), several, strict=True):
        name = f"{row['model']}, {row['w_name']}" if twice else str(row["model"])
        loss, floor, ignorant = (float(row[loss]) for loss in losses)
        yield _TrainedModel(
            named(name), str(row["architecture"]), loss - floor, ignorant - floor, bool(row["converged"])
        )


_SCORES = (
    ("auroc_delta", "detector", "detector: how far W moves the answer", COLOURS[0], "o", -0.09),
    ("auroc_entropy", "entropy", "entropy of the answer, the baseline", COLOURS[4], "s", 0.09),
)
"""Name, short and long words, colour, marker, and offset of each mean."""


def draw_detectors(rows: pd.DataFrame, results: Sequence[Result]) -> Drawing:
    """AUROC of the specification detector and of entropy in each model, and their means, by architecture and strength.

    Args:
        rows: `model`, `architecture`, `planted_strength` (text), `auroc_delta`, `auroc_entropy`, `left_out`, `converged`; a model is
            drawn once, at the largest strength of its rows.
        results: `auroc_delta` and `auroc_entropy` by architecture and strength.
    """
    known = rows[rows["converged"] & rows[["auroc_delta", "auroc_entropy"]].notna().any(axis=1)]
    size = known["planted_strength"].astype(float).abs()
    models = known.assign(size=size).sort_values("size", ascending=False, kind="stable").drop_duplicates("model")
    names, strengths = _levels(rows, "architecture"), sorted(set(models["planted_strength"]), key=_size)
    means = {(r.measure, *levels_of(r)): r for r in results if math.isfinite(r.value)}
    lead, caption = _lead_and_caption("detector")
    with lettering("".join(names)):
        sheet = Sheet("Does the detector know which sentences decide their pronoun?", lead)
        look: dict[str, Any] = {
            "linestyle": "none",
            "markersize": 6.4,
            "markeredgecolor": "white",
            "markeredgewidth": 0.6,
        }
        marks = {score: {**look, "marker": marker, "color": colour} for score, _, _, colour, marker, _ in _SCORES}
        sheet.add_key((words, mark(**marks[score])) for score, _, words, *_ in _SCORES)
        grid, across = _grid(sheet, len(names), 1, [2.2])
        for name, (axes,) in zip(names, grid, strict=False):
            axes.set_title(fitted(named(name), sheet.inner_in / across - 0.5, TEXT_SIZE, "bold"))
            low = min(0.4, float(models[["auroc_delta", "auroc_entropy"]].min().min()) - 0.03)
            axes.set(xlim=(-0.5, len(strengths) - 0.5), ylim=(low, 1.03))
            axes.set_xticks(range(len(strengths)), strengths)
            axes.set_yticks([tick for tick in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0) if tick >= low])
            axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: correlation(tick) if tick else "0"))
            axes.set_xlabel(fitted("size of the planted strength (0: no bias)", sheet.inner_in / across - 0.4, lines=2))
            axes.grid(axis="y")
            axes.axhline(0.5, color=INK, linewidth=1.0, linestyle=DASHED, zorder=2)
            own = models[models["architecture"] == name]
            if not len(own):
                empty_panel(axes, "no model")
            for at, strength in enumerate(strengths):
                for score, _, _, colour, marker, aside in _SCORES:
                    values = own.loc[own["planted_strength"] == strength, score].to_numpy(dtype=np.float64)
                    spread = (np.arange(len(values)) - (len(values) - 1) / 2) * min(0.03, 0.2 / max(len(values), 1))
                    small: dict[str, Any] = {"marker": marker, "markersize": 2.6, "color": colour, "markeredgewidth": 0}
                    axes.plot(at + 3 * aside + spread, values, linestyle="none", zorder=3, alpha=0.45, **small)
                    if mean := means.get((score, name, ALL, strength)):
                        axes.vlines(at + aside, mean.low, mean.high, color=colour, linewidth=1.6, zorder=4)
                        axes.plot([at + aside], [mean.value], zorder=5, **marks[score])
        sheet.finish([row[0] for row in grid[::across]], 2.2 * math.ceil(len(names) / across))
    sentences = ["Mean AUROC of detector and of entropy, by architecture and strength."]
    for name in names:
        for strength in strengths:
            scored = [(short, means.get((score, name, ALL, strength))) for score, short, *_ in _SCORES]
            parts = [f"{short} {_with_interval(mean)}" for short, mean in scored if mean]
            sentences += [f"{named(name)}, strength {strength}: {', '.join(parts)}."] if parts else []
    return Drawing("detector", sheet, caption, " ".join(sentences))


def _grid(sheet: Sheet, n_panels: int, kinds: int, ratios: Sequence[float]) -> tuple[list[list[Axes]], int]:
    """Two panels side by side if they fit, each with further ones below it: [panel][kind], and the number per row."""
    across = 2 if sheet.width_in > 5 else 1
    down = math.ceil(n_panels / across)
    grid = sheet.subplots(down * kinds, across, squeeze=False, height_ratios=list(ratios[:kinds]) * down)
    panels = [list(grid[row * kinds : (row + 1) * kinds, column]) for row in range(down) for column in range(across)]
    for axes in (axes for panel in panels[n_panels:] for axes in panel):
        axes.set_axis_off()
    return panels, across


def _levels(rows: pd.DataFrame, name: str) -> list[str]:
    return list(dict.fromkeys(rows[name].astype(str)))


def _size(strength: str) -> float:
    return abs(float(strength))


def _with_interval(result: Result) -> str:
    if not (math.isfinite(result.low) and math.isfinite(result.high)):
        return number(result.value)
    places = interval_decimals(result.low, result.high) if has_width(result.low, result.high) else DEFAULT_DECIMALS
    return f"{number(result.value, places)} ({interval(result.low, result.high)})"


def _lead_and_caption(figure: str, *, has_unbiased: bool = True, has_biased: bool = True) -> list[str]:
    return paragraphs("figures.txt.j2", steps=STEPS, has_unbiased=has_unbiased, has_biased=has_biased)[figure]
