"""The figures of a verification: readings against the truth, power and false alarms, the training's proof, the detector.

Knows how to place dots, bars and words; knows nothing about how models were trained, or how numbers were got. The papers have no
such figures: none of them knows the truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from undertow.errors import UndertowError
from undertow.report.figures.covariate_curve import COLOURS, style_of, text_width_px
from undertow.report.formatting import DEFAULT_DECIMALS, correlation, interval, number, plain, significant
from undertow.report.layout import (
    EDGE_PX,
    GREY,
    GRID,
    PALE,
    SMALL_SIZE,
    TEXT_SIZE,
    Sheet,
    distinct_labels,
    even_ticks,
    height_px,
    line_px,
    named,
    say,
)
from undertow.report.style import Drawing, as_ink, lettering
from undertow.types import Result, has_width, interval_decimals

if TYPE_CHECKING:
    import pandas as pd

ALL, UNBIASED = "all", "0"
STEPS = "percentage points per step of W"
DETECTOR, ENTROPY = COLOURS[0], COLOURS[4]
_INK = "#333333"
_PANELS_ACROSS = 2
_PANEL_GAP_PX = 26.0
_ROW_PX, _NAME_PX = 13.0, 150.0
_STRIP_PX = 110.0
"""Height of the panel of unbiased models."""
_TICKS_PX = 20.0
"""From a panel down to below its tick labels."""


def draw_calibration(rows: pd.DataFrame, lines: pd.DataFrame, results: Sequence[Result]) -> Drawing:
    """Measured against planted slopes, a panel for each architecture, with both intervals, the identity and the fitted line.

    Args:
        rows: one for each model and W: `architecture`, `w_name`, `planted_slope`, `measured_slope`, `low`, `high` (95%, over
            sentences), `seed_low`, `seed_high` (with the training seed; NaN where there is none), `unbiased`, `left_out` ("" where
            it counts).
        lines: points of the fitted lines: `architecture`, `planted_slope`, `fitted`, `low`, `high`.
        results: `calibration_slope` and `calibration_intercept`, said above the panels.

    Raises:
        UndertowError: there is no row.
    """
    _refuse_nothing(rows)
    words = _said_of_lines(rows, results)
    with lettering("".join([*words, *_levels(rows, "w_name")])):
        sheet = Sheet("Measured against planted slope", _CALIBRATION_LEAD, _uncounted(rows))
        legend = sheet.legend(_calibration_looks(sheet, rows), columns=2)
        _draw_square_panels(sheet, _Readings(rows, lines, words), legend)
    caption = (
        "Each dot is one model and W. On the dashed line the audit reads exactly what was planted; a flatter fitted line loses "
        "some of it, a steeper one adds to it. The thin bar should reach the dashed line for about 19 of 20 dots; the thick bar, "
        "which leaves out that models of other seeds differ, will do so for fewer. Models without bias have small dots, and are "
        "shown again below, side by side."
    )
    return Drawing("calibration", sheet.figure, caption, _describe_calibration(rows, words))


_CALIBRATION_LEAD = (
    "Slope of P(female) over W as the audit reads it from each trained model, against the slope in the texts that the model was "
    f"trained on, both in {STEPS}."
)


def _said_of_lines(rows: pd.DataFrame, results: Sequence[Result]) -> dict[str, list[str]]:
    """The lines that stand above each architecture's panel."""
    said = {}
    for architecture in _levels(rows, "architecture"):
        parts = [
            f"{name} {_with_interval(result)}"
            for name in ("slope", "intercept")
            for result in [_result(results, f"calibration_{name}", architecture)]
            if result is not None and math.isfinite(result.value)
        ]
        said[architecture] = parts or ["no line"]
    return said


def _calibration_looks(sheet: Sheet, rows: pd.DataFrame) -> dict[str, Any]:
    names = [(f"W is {sheet.fit(named(name), 180)}", _dot(place)) for place, name in enumerate(_levels(rows, "w_name"))]
    looks = [
        *names,
        ("audit's own 95% interval (over sentences)", Line2D([], [], color=GREY, linewidth=3.2, alpha=0.7)),
        ("95% interval, training seed included", Line2D([], [], color=GREY, linewidth=1.0)),
        ("measured = planted", Line2D([], [], color=_INK, linewidth=1.0, linestyle=(0, (4, 2)))),
        ("fitted line with 95% band", Patch(facecolor="#cfcfcf", edgecolor=_INK, linewidth=0.8)),
    ]
    if (rows["left_out"] != "").any():
        looks.append(("does not count: training did not converge", _cross()))
    return distinct_labels(looks)


class _Readings(NamedTuple):
    """What the panels of the calibration plot show."""

    rows: pd.DataFrame
    lines: pd.DataFrame
    words: dict[str, list[str]]


def _draw_square_panels(sheet: Sheet, readings: _Readings, legend: Any) -> None:
    names = _levels(readings.rows, "architecture")
    low, high = _ends(readings)
    ticks, strip = even_ticks(low, high), _Strip.from_rows(readings.rows)
    marks = [*ticks.values(), *strip.ticks.values()]
    gutter = 2 * line_px(SMALL_SIZE) + max(text_width_px(sheet.figure, text, SMALL_SIZE) for text in marks)
    side = (sheet.width_px - 2 * EDGE_PX - _PANEL_GAP_PX) / _PANELS_ACROSS - gutter
    head, below = line_px(TEXT_SIZE) + 2 * line_px(SMALL_SIZE) + 6, _TICKS_PX + line_px(SMALL_SIZE) + 8
    strip_px = line_px(SMALL_SIZE) + 6 + _STRIP_PX + 14 if strip.height else 0.0
    pitch = head + side + below + strip_px
    n_lines = math.ceil(len(names) / _PANELS_ACROSS)
    top = sheet.settle(n_lines * pitch + height_px(legend) + 10)
    for place, name in enumerate(names):
        row, column = divmod(place, _PANELS_ACROSS)
        left = EDGE_PX + gutter + column * (side + gutter + _PANEL_GAP_PX)
        upper = top - row * pitch
        title = sheet.fit(named(name), side, TEXT_SIZE, "bold")
        sheet.write(left, upper, title, size=TEXT_SIZE, weight="bold", va="top")
        said = "\n".join(sheet.fit(line, side) for line in readings.words[name])
        sheet.write(left, upper - line_px(TEXT_SIZE), said, size=SMALL_SIZE, color=GREY, va="top")
        axes = sheet.axes(left, upper - head - side, side, side)
        axes.set(xlim=(low, high), ylim=(low, high))
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.set_yticks(list(ticks), list(ticks.values()))
        axes.grid(visible=True, color=GRID, linewidth=0.7)
        _draw_readings(axes, name, readings)
        look: dict[str, Any] = {"size": SMALL_SIZE, "ha": "center"}
        sheet.write(left + side / 2, upper - head - side - _TICKS_PX, "planted slope", va="top", **look)
        if column == 0:
            turned = EDGE_PX + line_px(SMALL_SIZE) / 2
            sheet.write(turned, upper - head - side / 2, "measured slope", va="center", rotation=90, **look)
        if strip.height:
            under = upper - head - side - below
            said = sheet.fit("no bias planted: measured less planted slope, by size", side)
            sheet.write(left, under, said, size=SMALL_SIZE, color=GREY, va="top")
            box = (left, under - line_px(SMALL_SIZE) - 6 - _STRIP_PX, side, _STRIP_PX)
            _draw_strip(sheet.axes(*box), name, readings.rows, strip)
    sheet.put(legend, EDGE_PX, top - n_lines * pitch)


class _Strip(NamedTuple):
    """The y axis of the panels of unbiased models."""

    height: float  # of its upper end above 0; 0 where there is none of them
    ticks: dict[float, str]

    @classmethod
    def from_rows(cls, rows: pd.DataFrame) -> _Strip:
        """One that holds every interval, the same above and below 0."""
        own = _unbiased(rows)
        ends = (
            own[["low", "high", "seed_low", "seed_high"]].sub(own["planted_slope"], axis=0).to_numpy(dtype=np.float64)
        )
        most = float(np.abs(ends[np.isfinite(ends)]).max(initial=0.0)) * 1.1
        return cls(most, even_ticks(-most, most, most=4) if most else {})


def _unbiased(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["unbiased"] & (rows["left_out"] == "")]


def _draw_strip(axes: Axes, architecture: str, rows: pd.DataFrame, strip: _Strip) -> None:
    """Errors of the architecture's unbiased readings side by side, the least first, where the plot above has one heap."""
    axes.set_xticks([])
    axes.set_ylim(-strip.height, strip.height)
    axes.set_yticks(list(strip.ticks), list(strip.ticks.values()))
    axes.yaxis.grid(visible=True, color=GRID, linewidth=0.7)
    axes.axhline(0, color=_INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=2)
    own = _unbiased(rows)
    own = own[own["architecture"] == architecture]
    if not len(own):
        say(axes, "no unbiased model")
        return
    errors = own[["measured_slope", "low", "high", "seed_low", "seed_high"]].sub(own["planted_slope"], axis=0)
    errors = errors.assign(w_name=own["w_name"]).sort_values("measured_slope", kind="stable").reset_index(drop=True)
    axes.set_xlim(-1, len(errors))
    for place, w_name in enumerate(_levels(rows, "w_name")):
        _draw_dots(axes, errors[errors["w_name"] == w_name], place, small=len(errors) > 12)


def _ends(readings: _Readings) -> tuple[float, float]:
    """Ends of both axes: around every dot and every interval, 0 included."""
    rows = readings.rows
    counting = rows[rows["left_out"] == ""]
    dots = rows[["planted_slope", "measured_slope"]].to_numpy(dtype=np.float64)
    bars = counting[["low", "high", "seed_low", "seed_high"]].to_numpy(dtype=np.float64)
    ends = np.concatenate([dots.ravel(), bars.ravel(), [0.0]])
    ends = ends[np.isfinite(ends)]
    air = 0.04 * float(np.ptp(ends)) or 0.5
    return float(ends.min()) - air, float(ends.max()) + air


def _draw_readings(axes: Axes, architecture: str, readings: _Readings) -> None:
    own = readings.lines[readings.lines["architecture"] == architecture]
    ends = axes.get_xlim()
    axes.plot(ends, ends, color=_INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=2)
    if len(own):
        x = own["planted_slope"]
        axes.fill_between(x, own["low"], own["high"], color="#8a8a8a", alpha=0.3, linewidth=0, zorder=1.5)
        axes.plot(x, own["fitted"], color=_INK, linewidth=1.2, zorder=2.5)
    rows = readings.rows[readings.rows["architecture"] == architecture]
    for place, w_name in enumerate(_levels(readings.rows, "w_name")):
        part = rows[(rows["w_name"] == w_name) & (rows["left_out"] == "")]
        for small, chosen in ((True, part["unbiased"]), (False, ~part["unbiased"])):
            _draw_dots(axes, part[chosen].set_index("planted_slope"), place, small=small)
    lost = rows[rows["left_out"] != ""]
    axes.plot(lost["planted_slope"], lost["measured_slope"], zorder=5, **_cross_look())


def _draw_dots(axes: Axes, readings: pd.DataFrame, place: int, *, small: bool) -> None:
    """Dots with both bars, at x as the index has it, in the colour of a place."""
    look, x = style_of(place), readings.index
    if small:
        look |= {"markersize": 3.4, "markeredgewidth": 0.0}
    colour = look["color"]
    axes.vlines(x, readings["seed_low"], readings["seed_high"], color=colour, linewidth=0.9, alpha=0.55, zorder=3)
    axes.vlines(x, readings["low"], readings["high"], color=colour, linewidth=3.0, alpha=0.4, zorder=3)
    axes.plot(x, readings["measured_slope"], linestyle="none", zorder=4, **look)


def _describe_calibration(rows: pd.DataFrame, words: dict[str, list[str]]) -> str:
    sentences = []
    for name, said in words.items():
        part = rows[(rows["architecture"] == name) & (rows["left_out"] == "")]
        span = ""
        if len(part):
            least, most = part["planted_slope"].min(), part["planted_slope"].max()
            span = f", planted slopes from {significant(least)} to {significant(most)}"
        sentences.append(f"{named(name)}: {_amount(len(part), 'slope')}{span}; {', '.join(said)}.")
    return " ".join(["Measured against planted slopes with the line of equality.", *sentences, *_uncounted(rows)])


def draw_power(results: Sequence[Result]) -> Drawing:
    """Share of slopes that the audit finds: in unbiased models (false alarms), and in biased ones by strength (power).

    Args:
        results: `false_alarms` and `power` by architecture and strength, with intervals; `power` has the mean size of the planted
            slopes as `planted` in its detail. Strengths stand by their size, "0" (unbiased) first.

    Raises:
        UndertowError: there is neither.
    """
    shares = _shares(results)
    if not shares:
        raise UndertowError("power cannot be drawn: there is neither a biased nor an unbiased model, so build some")
    names = list(dict.fromkeys(name for name, _ in shares))
    strengths = sorted({strength for _, strength in shares}, key=_size)
    with lettering("".join(names)):
        sheet = Sheet(
            "How often the audit finds a bias", " ".join([_POWER_LEAD, *([_GROUND] if UNBIASED in strengths else [])])
        )
        _draw_shares(sheet, shares, names, _Strengths(strengths, _planted(results, strengths)))
    said = [_ALARM_CAPTION] if UNBIASED in strengths else []
    said += [_POWER_CAPTION] if set(strengths) != {UNBIASED} else []
    return Drawing("power", sheet.figure, " ".join(said), _describe_power(shares, strengths))


_POWER_LEAD = (
    "Share of slopes found (q below .05, on the planted side), with its 95% interval; beside each dot, how many were found, of how "
    "many."
)
_GROUND = "Grey ground: models without any bias."
_ALARM_CAPTION = "What is found on grey ground is a false alarm: no more than 1 in 20 (dashed) should be."
_POWER_CAPTION = "Where a bias was planted it should be found, the larger the surer; at least 4 of 5 (dashed) are asked for of the largest."


class _Strengths(NamedTuple):
    """The places of the x axis."""

    names: Sequence[str]
    planted: Sequence[float]  # mean size of the planted slopes


def _shares(results: Sequence[Result]) -> dict[tuple[str, str], Result]:
    """False alarms and power, by architecture and strength."""
    shares = {}
    for result in results:
        architecture, w_name, strength = (result.group.get(key, ALL) for key in ("architecture", "w_name", "strength"))
        if result.measure in ("false_alarms", "power") and w_name == ALL and ALL not in (architecture, strength):
            shares[architecture, strength] = result
    return shares


def _planted(results: Sequence[Result], strengths: Sequence[str]) -> list[float]:
    of = {r.group["strength"]: r for r in results if r.measure == "power" and r.group["architecture"] == ALL}
    return [of[name].extras["planted"] if name in of else math.nan for name in strengths]


def _draw_shares(
    sheet: Sheet, shares: dict[tuple[str, str], Result], names: Sequence[str], strengths: _Strengths
) -> None:
    legend = sheet.group_legend(names)
    legend_px, height, below = height_px(legend) + 12, 260.0, 2 * line_px(SMALL_SIZE) + line_px(TEXT_SIZE) + 16
    top = sheet.settle(legend_px + height + below)
    sheet.put(legend, EDGE_PX, top)
    left, right = EDGE_PX + 46, 40.0
    axes = sheet.axes(left, top - legend_px - height, sheet.width_px - left - right, height)
    n = len(strengths.names)
    axes.set(xlim=(-0.5, n - 0.5), ylim=(-0.03, 1.08))
    first_biased = 0.5 if UNBIASED in strengths.names else -0.5  # without bias is the smallest size, and comes first
    if first_biased > 0:
        axes.axvspan(-0.5, first_biased, color=PALE, zorder=0)
    axes.set_xticks(range(n), [_tick(*one) for one in zip(strengths.names, strengths.planted, strict=True)])
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0], ["0%", "20%", "40%", "60%", "80%", "100%"])
    axes.yaxis.grid(visible=True, color=GRID, linewidth=0.7)
    axes.set_xlabel(
        f"size of the planted strength; below it the mean size of the planted slope, {STEPS}", size=TEXT_SIZE
    )
    for aim, start, end in ((0.05, -0.5, first_biased), (0.8, first_biased, n - 0.5)):
        if start < end:
            axes.plot([start, end], [aim, aim], color=_INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=2)
    if first_biased > 0:
        axes.text(-0.48, 0.065, "5%", size=SMALL_SIZE, color=_INK, va="bottom", zorder=6)
    step = min(0.8 / len(names), 0.3)
    for place, name in enumerate(names):
        look = style_of(place)
        for at, strength in enumerate(strengths.names):
            result = shares.get((name, strength))
            if result is None or not math.isfinite(result.value):
                continue
            x = at + (place - (len(names) - 1) / 2) * step
            axes.vlines(x, result.low, result.high, color=look["color"], linewidth=1.4, alpha=0.8, zorder=3)
            axes.plot([x], [result.value], zorder=4, clip_on=False, **look)
            said = f"{round(result.value * result.n)}/{result.n}"
            axes.annotate(
                said, (x, result.value), xytext=(6, 5), textcoords="offset points",
                size=SMALL_SIZE, color=as_ink(look["color"]), va="center", annotation_clip=False,
            )  # fmt: skip


def _tick(strength: str, planted: float) -> str:
    if strength == UNBIASED:
        return f"{strength}\nno bias"
    return f"{strength}\n{number(planted)}"


def _describe_power(shares: dict[tuple[str, str], Result], strengths: Sequence[str]) -> str:
    sentences = []
    for strength in strengths:
        parts = [
            f"{named(name)} {_percent(result)}"
            for (name, of), result in shares.items()
            if of == strength and math.isfinite(result.value)
        ]
        what = "False alarms without bias" if strength == UNBIASED else f"Found at strength {strength}"
        sentences.append(f"{what}: {'; '.join(parts) or 'no number'}.")
    return " ".join(sentences)


def _percent(result: Result) -> str:
    interval = f"{number(100 * result.low, 0)}% to {number(100 * result.high, 0)}%"
    return f"{number(100 * result.value, 0)}% of {result.n:,} ({interval})"


class _Trained(NamedTuple):
    """One model's proof."""

    name: str
    architecture: str
    above_floor: float  # nats
    ignorant: float  # nats above the floor
    converged: bool


def draw_training(rows: pd.DataFrame) -> Drawing:
    """Each model's pronoun loss above the least that is possible, beside that of one who ignores W.

    Args:
        rows: `model`, `architecture`, `w_name`, `strength`, `pronoun_loss_nats`, `floor_nats`, `ignorant_nats`, `converged`; rows
            of a model with equal losses are drawn once.

    Raises:
        UndertowError: there is no row.
    """
    _refuse_nothing(rows)
    names, models = _levels(rows, "architecture"), _trained(rows)
    with lettering("".join(model.name for model in models)):
        sheet = Sheet("Did training converge?", _TRAINING_LEAD, _without_loss(models))
        looks = {
            "pronoun loss of a model that counts": _dot(0),
            "of one that does not": _cross(),
            "loss of one who ignores W": Line2D([], [], color=_INK, marker="|", markersize=8, linestyle="none"),
        }
        _draw_losses(sheet, names, models, sheet.legend(looks, columns=3))
    caption = (
        "A model whose dot is at 0 predicts pronouns as well as the texts allow; one at the tick has learned nothing from W, and "
        "auditing it would measure the training instead of the audit. Models with a cross did not converge, by this loss or by the "
        "slope of what they learned, and are left out of every other number. "
        "Where nothing was planted the tick is at 0 too."
    )
    return Drawing("training", sheet.figure, caption, _describe_training(names, models))


_TRAINING_LEAD = (
    "Pronoun loss of each model less the least that its texts allow (0 nats). The line runs to the loss of one who knows how "
    "often each pronoun occurs but ignores W."
)


def _trained(rows: pd.DataFrame) -> list[_Trained]:
    """Models by the size of their strength, the weakest first, those of equal strength as they come."""
    losses = ["pronoun_loss_nats", "floor_nats", "ignorant_nats"]
    sized = rows.assign(size=rows["strength"].abs())
    ordered = sized.sort_values("size", ascending=False, kind="stable").drop_duplicates(["model", *losses])
    ordered = ordered.sort_index().sort_values("size", kind="stable")
    several = ordered.duplicated("model", keep=False)
    trained = []
    for row, twice in zip(ordered.to_dict("records"), several, strict=True):
        name = f"{row['model']}, {row['w_name']}" if twice else str(row["model"])
        floor = float(row["floor_nats"])
        above, ignorant = float(row["pronoun_loss_nats"]) - floor, float(row["ignorant_nats"]) - floor
        trained.append(_Trained(named(name), str(row["architecture"]), above, ignorant, bool(row["converged"])))
    return trained


def _without_loss(models: Sequence[_Trained]) -> list[str]:
    names = [model.name for model in models if not math.isfinite(model.above_floor)]
    return [f"No loss is known of: {', '.join(names)}."] if names else []


def _draw_losses(sheet: Sheet, names: Sequence[str], models: Sequence[_Trained], legend: Any) -> None:
    ends = np.array([value for model in models for value in (model.above_floor, model.ignorant, 0.0)])
    ends = ends[np.isfinite(ends)]
    span = float(np.ptp(ends)) or 1.0
    low, high = float(ends.min()) - 0.04 * span, float(ends.max()) + 0.06 * span
    ticks = even_ticks(low, high, most=4)
    across = min(len(names), _PANELS_ACROSS)
    width = (sheet.width_px - 2 * EDGE_PX - (across - 1) * _PANEL_GAP_PX) / across - _NAME_PX
    head, below = line_px(TEXT_SIZE) + 6, _TICKS_PX + line_px(SMALL_SIZE) + 10
    of = {name: [model for model in models if model.architecture == name] for name in names}
    lines = [names[start : start + across] for start in range(0, len(names), across)]
    heights = [max(len(of[name]) for name in line) * _ROW_PX + 6 for line in lines]
    legend_px = height_px(legend) + 12
    top = sheet.settle(legend_px + sum(heights) + len(lines) * (head + below))
    sheet.put(legend, EDGE_PX, top)
    top -= legend_px
    for line, height in zip(lines, heights, strict=True):
        for column, name in enumerate(line):
            left = EDGE_PX + _NAME_PX + column * (width + _NAME_PX + _PANEL_GAP_PX)
            title = sheet.fit(named(name), width, TEXT_SIZE, "bold")
            sheet.write(left, top, title, size=TEXT_SIZE, weight="bold", va="top")
            own = len(of[name]) * _ROW_PX + 6
            axes = sheet.axes(left, top - head - own, width, own)
            axes.set(xlim=(low, high), ylim=(len(of[name]) - 0.5 + 3 / _ROW_PX, -0.5 - 3 / _ROW_PX))
            axes.set_xticks(list(ticks), list(ticks.values()))
            said = [sheet.fit(model.name, _NAME_PX - 8, 7.0) for model in of[name]]
            axes.set_yticks(range(len(said)), said)
            axes.tick_params(axis="y", labelsize=7.0)
            axes.xaxis.grid(visible=True, color=GRID, linewidth=0.7)
            _draw_proofs(axes, of[name])
            middle = left + width / 2
            sheet.write(
                middle, top - head - own - _TICKS_PX, "nats above the floor", size=SMALL_SIZE, ha="center", va="top"
            )
        top -= head + height + below


def _draw_proofs(axes: Axes, models: Sequence[_Trained]) -> None:
    for at, model in enumerate(models):
        axes.plot([0, model.ignorant], [at, at], color="#c4c4c4", linewidth=1.0, zorder=2)
        axes.plot([model.ignorant], [at], color=_INK, marker="|", markersize=7, linestyle="none", zorder=3)
        look = style_of(0) | {"linestyle": "none"} if model.converged else _cross_look()
        axes.plot([model.above_floor], [at], zorder=4, **look)


def _describe_training(names: Sequence[str], models: Sequence[_Trained]) -> str:
    sentences = ["Pronoun loss above its floor, by model."]
    for name in names:
        own = [model for model in models if model.architecture == name]
        good = [model for model in own if model.converged]
        known = [model.above_floor for model in good if math.isfinite(model.above_floor)]
        most = f", {significant(max(known))} nats above the floor at most" if known else ""
        sentences.append(f"{named(name)}: {len(good)} of {_amount(len(own), 'model')} converged{most}.")
    failed = [
        f"{model.name} ({significant(model.above_floor)} nats, {significant(model.ignorant)} if W is ignored)"
        for model in models
        if not model.converged
    ]
    return " ".join([*sentences, *([f"Not converged: {'; '.join(failed)}."] if failed else [])])


def draw_detectors(rows: pd.DataFrame, results: Sequence[Result]) -> Drawing:
    """AUROC of the specification detector and of entropy in each model, and their means, by architecture and strength.

    Args:
        rows: `model`, `architecture`, `planted_strength` (text), `auroc_delta`, `auroc_entropy`, `left_out`, `converged`; a model is
            drawn once, at the largest strength of its rows.
        results: `auroc_delta` and `auroc_entropy` by architecture and strength.

    Raises:
        UndertowError: no model that counts has either number.
    """
    known = rows[rows["converged"] & rows[["auroc_delta", "auroc_entropy"]].notna().any(axis=1)]
    if not len(known):
        raise UndertowError("the detector cannot be drawn: no model that converged has an AUROC")
    place = known["planted_strength"].astype(float).abs()
    models = known.assign(place=place).sort_values("place", ascending=False, kind="stable").drop_duplicates("model")
    names = _levels(rows, "architecture")
    with lettering("".join(names)):
        sheet = Sheet("Does the detector know which sentences decide their pronoun?", _DETECTOR_LEAD)
        looks = {
            "detector: how far W moves the answer": _dot_of(DETECTOR, "o"),
            "entropy of the answer, the baseline": _dot_of(ENTROPY, "s"),
        }
        _draw_areas(sheet, _Areas(names, models, results), sheet.legend(looks, columns=2))
    caption = (
        "AUROC is the chance that a sentence which does not decide its pronoun scores above one that does: 1 tells them apart "
        "without fail, .5 (dashed) is guessing. The detector needs a model that learned something from W, so it should guess "
        "where nothing was planted, and improve with the strength."
    )
    return Drawing("detector", sheet.figure, caption, _describe_areas(_Areas(names, models, results)))


_DETECTOR_LEAD = (
    "Area under the ROC curve on sentences whose specification is known by construction. Small dots: models. Large dots with "
    "bars: their mean, with its 95% interval over models."
)
_SCORES = (("auroc_delta", DETECTOR, "o", -0.09), ("auroc_entropy", ENTROPY, "s", 0.09))
"""Name, colour, marker and how far from the middle of its place each mean stands; its models stand further out."""


class _Areas(NamedTuple):
    """What the figure of the detector shows."""

    names: Sequence[str]  # of the architectures
    models: pd.DataFrame  # one row each
    results: Sequence[Result]

    @property
    def strengths(self) -> list[str]:
        return sorted(set(self.models["planted_strength"]), key=_size)


def _draw_areas(sheet: Sheet, areas: _Areas, legend: Any) -> None:
    names, strengths, models = areas.names, areas.strengths, areas.models
    across = min(len(names), _PANELS_ACROSS)
    gutter, height, head = 34.0, 220.0, line_px(TEXT_SIZE) + 8
    below = _TICKS_PX + line_px(SMALL_SIZE) + 10
    width = (sheet.width_px - 2 * EDGE_PX - (across - 1) * _PANEL_GAP_PX) / across - gutter
    n_lines, legend_px = math.ceil(len(names) / across), height_px(legend) + 12
    top = sheet.settle(legend_px + n_lines * (head + height + below))
    sheet.put(legend, EDGE_PX, top)
    low = min(0.4, float(models[["auroc_delta", "auroc_entropy"]].min().min()) - 0.03)
    ticks = [tick for tick in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0) if tick >= low]
    for place, name in enumerate(names):
        row, column = divmod(place, across)
        left = EDGE_PX + gutter + column * (width + gutter + _PANEL_GAP_PX)
        upper = top - legend_px - row * (head + height + below)
        title = sheet.fit(named(name), width, TEXT_SIZE, "bold")
        sheet.write(left, upper, title, size=TEXT_SIZE, weight="bold", va="top")
        axes = sheet.axes(left, upper - head - height, width, height)
        axes.set(xlim=(-0.5, len(strengths) - 0.5), ylim=(low, 1.03))
        axes.set_xticks(range(len(strengths)), strengths)
        axes.set_yticks(ticks, [correlation(tick) if tick else "0" for tick in ticks])
        axes.yaxis.grid(visible=True, color=GRID, linewidth=0.7)
        axes.axhline(0.5, color=_INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=2)
        own = models[models["architecture"] == name]
        if not len(own):
            say(axes, "no model")
        for at, strength in enumerate(strengths):
            _draw_one_place(axes, at, own[own["planted_strength"] == strength], _means(areas.results, name, strength))
        said = "size of the planted strength (0: no bias)"
        sheet.write(left + width / 2, upper - head - height - _TICKS_PX, said, size=SMALL_SIZE, ha="center", va="top")


def _draw_one_place(axes: Axes, at: int, models: pd.DataFrame, means: dict[str, Result]) -> None:
    for score, colour, marker, aside in _SCORES:
        values = models[score].to_numpy(dtype=np.float64)
        spread = (np.arange(len(values)) - (len(values) - 1) / 2) * min(0.03, 0.2 / max(len(values), 1))
        x = at + aside
        axes.plot(
            x + 2 * aside + spread, values, linestyle="none", marker=marker, markersize=2.6, color=colour, alpha=0.45, zorder=3,
            markeredgewidth=0,
        )  # fmt: skip
        mean = means.get(score)
        if mean is None or not math.isfinite(mean.value):
            continue
        if math.isfinite(mean.low):
            axes.vlines(x, mean.low, mean.high, color=colour, linewidth=1.6, zorder=4)
        axes.plot([x], [mean.value], **_dot_look(colour, marker), zorder=5)


def _means(results: Sequence[Result], architecture: str, strength: str) -> dict[str, Result]:
    wanted = (architecture, ALL, strength)
    return {r.measure: r for r in results if r.measure.startswith("auroc_") and _place(r) == wanted}


def _describe_areas(areas: _Areas) -> str:
    sentences = ["Mean AUROC of detector and of entropy, by architecture and strength."]
    for name in areas.names:
        for strength in areas.strengths:
            means = _means(areas.results, name, strength)
            parts = [
                f"{said} {_with_interval(means[score])}"
                for score, said in (("auroc_delta", "detector"), ("auroc_entropy", "entropy"))
                if score in means and math.isfinite(means[score].value)
            ]
            if parts:
                sentences.append(f"{named(name)}, strength {strength}: {', '.join(parts)}.")
    return " ".join(sentences)


def _refuse_nothing(rows: pd.DataFrame) -> None:
    if not len(rows):
        raise UndertowError("the verification cannot be drawn: there is no model in its table, so build some")


def _levels(rows: pd.DataFrame, name: str) -> list[str]:
    return list(dict.fromkeys(rows[name].astype(str)))


def _size(strength: str) -> float:
    return abs(float(strength))


def _place(result: Result) -> tuple[str, str, str]:
    architecture, w_name, strength = (result.group.get(key, ALL) for key in ("architecture", "w_name", "strength"))
    return architecture, w_name, strength


def _result(results: Sequence[Result], measure: str, architecture: str) -> Result | None:
    wanted = (architecture, ALL, ALL)
    return next((r for r in results if r.measure == measure and _place(r) == wanted), None)


def _with_interval(result: Result) -> str:
    if not (math.isfinite(result.low) and math.isfinite(result.high)):
        return number(result.value)
    places = interval_decimals(result.low, result.high) if has_width(result.low, result.high) else DEFAULT_DECIMALS
    return f"{number(result.value, places)} ({interval(result.low, result.high)})"


def _amount(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _uncounted(rows: pd.DataFrame) -> list[str]:
    """How many rows are drawn as crosses, and how many cannot be drawn."""
    said = []
    for reason, part in rows[rows["left_out"] != ""].groupby("left_out", sort=False):
        said.append(f"{_amount(len(part), 'slope')} left out: {plain(str(reason))}.")
    return said


def _dot(place: int) -> Line2D:
    return Line2D([], [], linestyle="none", **style_of(place))


def _dot_look(colour: str, marker: str) -> dict[str, Any]:
    return {
        "linestyle": "none", "marker": marker, "color": colour, "markersize": 6.4,
        "markeredgecolor": "white", "markeredgewidth": 0.6,
    }  # fmt: skip


def _dot_of(colour: str, marker: str) -> Line2D:
    return Line2D([], [], **_dot_look(colour, marker))


def _cross_look() -> dict[str, Any]:
    return {"linestyle": "none", "marker": "x", "color": _INK, "markersize": 5.0, "markeredgewidth": 1.3}


def _cross() -> Line2D:
    return Line2D([], [], **_cross_look())
