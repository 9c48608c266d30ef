"""Figures of wordings: how much a score depends on the wording of a task, and on which part of it.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language"
(Findings of EMNLP), section 5.2, report it in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from undertow.errors import UndertowError
from undertow.report.figures.covariate_curve import COLOURS, style_of, text_width_px
from undertow.report.formatting import number, plain, spaced
from undertow.report.layout import (
    EDGE_PX,
    GREY,
    GRID,
    SMALL_SIZE,
    TEXT_SIZE,
    Sheet,
    distinct_labels,
    even_ticks,
    height_px,
    line_px,
    named,
)
from undertow.report.style import Drawing, lettering
from undertow.types import Floats

if TYPE_CHECKING:
    import pandas as pd

MAX_PANELS = 6
CLASSES = ("statement", "question", "completion", "null")
"""Classes of task descriptions in the order of the paper's tables, but for the last: a user's own come before it."""
_POINTS = ("model", "shots", "description_class", "wording", "score", "level", "slot", "baseline")
_EFFECTS = ("description_class", "slot", "level", "mean", "low", "high")
_INK = "#222222"
_LANE_PX, _MEAN_PX, _NAME_PX, _AIR_PX = 16.0, 18.0, 17.0, 9.0
"""Heights of a level's dots, of a class's mean, of its name, and of what lies between two classes."""
_SPREAD_PX = 9.0
"""How far apart the dots of a lane are moved, so that equal scores do not hide one another."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_GAP_PX, _LABEL_PX = 16.0, 190.0
_MIN_SPAN = 5.0
"""The x axis spans this much at the least, so that a hair's breadth does not look like a gulf."""
_ROW_PX, _SLOT_PX, _EFFECT_PX = 17.0, 130.0, 150.0
TOGETHER = " + "
"""Between the names of slots whose words never change alone."""

Level = tuple[str, str]
"""Slot and level."""
_NO_LEVEL: Level = ("", "")


class _Lanes(NamedTuple):
    """One class of descriptions, as all panels lay it out."""

    name: str
    levels: list[Level]  # from the top
    averaged: bool  # whether some panel has more than one wording

    @property
    def name_px(self) -> float:
        """What the name takes for itself: nothing where it can stand beside the only lane."""
        return 0.0 if self.levels == [_NO_LEVEL] else _NAME_PX

    @property
    def mean_px(self) -> float:
        return _MEAN_PX if self.averaged else 0.0

    @property
    def height_px(self) -> float:
        return self.name_px + _LANE_PX * len(self.levels) + self.mean_px + _AIR_PX

    def lane_px(self, row: int) -> float:
        """From the top to the middle of a level's lane."""
        return self.name_px + (row + 0.5) * _LANE_PX


def draw_sensitivity(
    points: pd.DataFrame, measure_title: str, unit: str, about: str = "", baseline_title: str = "baseline"
) -> Iterator[Drawing]:
    """Draw every wording's score, a panel for each model and number of shots, in figures of six panels at most.

    A panel has its classes of descriptions from top to bottom, each with a lane of dots for every level of the slot that the
    caller chose, and below them their mean with one standard deviation (of the population) to either side.

    Args:
        points: a row per model, shots, class and wording, with `model`, `shots`, `description_class`, `wording`, `score` in
            percent (NaN where missing), `slot` and `level` ("" where the class has none), and `baseline` in percent (NaN for none).
        measure_title: what the scores are.
        unit: of the scores.
        about: what else the title says, for example the challenge set.
        baseline_title: what the dashed line is, for example "always the same label".

    Raises:
        UndertowError: a column is missing, no wording has a score, or one has two in the same panel.
    """
    table = _checked_points(points)
    pairs = list(dict.fromkeys(zip(table["model"], table["shots"], strict=True)))
    looks = {level: style_of(place) for place, level in enumerate(_levels(table))}
    parts = [pairs[start : start + MAX_PANELS] for start in range(0, len(pairs), MAX_PANELS)]
    for place, part in enumerate(parts, 1):
        of_many = f"{place} of {len(parts)}" if len(parts) > 1 else ""
        title = " · ".join(filter(None, [f"{plain(measure_title)} by wording", plain(about), of_many]))
        dashed = f" Dashed: {plain(baseline_title)}." if table["baseline"].notna().any() else ""
        rows = table[[key in part for key in zip(table["model"], table["shots"], strict=True)]]
        with lettering(
            "".join([title, unit, baseline_title, *map(str, rows[["model", "wording"]].to_numpy().ravel())])
        ):
            figure = _draw_panels(rows, looks, title, (unit, baseline_title)).figure
        yield Drawing(
            name="_".join(filter(None, ["wordings", measure_title, about, str(place) if len(parts) > 1 else ""])),
            figure=figure,
            caption=f"{title}. Each dot is one wording of the task, in the colour and lane of the slot's level that stands beside it. "
            f"Below each class: its mean over wordings, and one standard deviation to either side.{dashed} "
            "Where the dots of two levels lie apart, a choice of words alone changes the score.",
            alt=_describe_panels(rows, unit),
        )


def _checked_points(points: pd.DataFrame) -> pd.DataFrame:
    _need(points, _POINTS)
    keys = ["model", "shots", "description_class", "wording"]
    twice = points.duplicated(keys)
    if twice.any():
        raise UndertowError(
            f"the figure of wordings cannot be drawn: {points.loc[twice, 'wording'].iloc[0]!r} has two scores in one panel; "
            "average over draws of examples, and choose one measure, before drawing them"
        )
    table = points.copy()
    for name in ("model", "description_class", "wording", "slot", "level"):
        table[name] = table[name].fillna("").astype(str)
    for name in ("score", "baseline"):
        table[name] = table[name].astype(np.float64)
    if not np.isfinite(table["score"]).any():
        raise UndertowError("the figure of wordings cannot be drawn: no wording has a score, so score at least one")
    return table


def _need(table: pd.DataFrame, columns: Sequence[str]) -> None:
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise UndertowError(f"the figure of wordings cannot be drawn: its table lacks the column {missing[0]!r}")


def _classes(table: pd.DataFrame) -> list[str]:
    """In the paper's order, with a user's own before the empty description."""
    names = list(dict.fromkeys(table["description_class"].astype(str)))
    own = [name for name in names if name not in CLASSES]
    return [name for name in (*CLASSES[:-1], *own, CLASSES[-1]) if name in names]


def _levels(table: pd.DataFrame) -> list[Level]:
    """Levels that have a colour, in the order they come."""
    return [level for level in dict.fromkeys(zip(table["slot"], table["level"], strict=True)) if level[1]]


def _draw_panels(
    table: pd.DataFrame, looks: Mapping[Level, dict[str, Any]], title: str, said: tuple[str, str]
) -> Sheet:
    lanes = [_lanes_of(name, table[table["description_class"] == name]) for name in _classes(table)]
    lead = (
        f"Each dot is one wording of the task; score in {plain(said[0])}. Bar: mean over the wordings of a class, "
        "one standard deviation to either side."
    )
    sheet = Sheet(title, lead, _left_out(table))
    legend = _legend(sheet, looks, _levels(table), plain(said[1]) if table["baseline"].notna().any() else "")
    pairs = list(dict.fromkeys(zip(table["model"], table["shots"], strict=True)))
    columns = _n_columns(pairs)
    n_rows = math.ceil(len(pairs) / columns)
    labels_px = min(max(_label_widths(sheet, lanes)), _LABEL_PX)
    left = EDGE_PX + labels_px + 12
    width = (sheet.width_px - left - EDGE_PX - 6 - (columns - 1) * _GAP_PX) / columns
    panel_px = sum(one.height_px for one in lanes)
    head_px, foot_px = line_px(TEXT_SIZE) + line_px(SMALL_SIZE) + 8, line_px(SMALL_SIZE) + 24
    top = sheet.settle(height_px(legend) + 14 + n_rows * (head_px + panel_px + foot_px))
    sheet.put(legend, EDGE_PX, top)
    top -= height_px(legend) + 14
    low, high = _range(np.concatenate([table["score"].to_numpy(), table["baseline"].to_numpy()]))
    ticks = even_ticks(low, high, most=4 if columns > 2 else 6)
    for place, (model, shots) in enumerate(pairs):
        x = left + place % columns * (width + _GAP_PX)
        upper = top - place // columns * (head_px + panel_px + foot_px)
        name = sheet.fit(named(model), width, TEXT_SIZE, "bold")
        sheet.write(x, upper - 2, name, size=TEXT_SIZE, weight="bold", va="top")
        sheet.write(x, upper - 2 - line_px(TEXT_SIZE), _shots(shots), size=SMALL_SIZE, color=GREY, va="top")
        axes = sheet.axes(x, upper - head_px - panel_px, width, panel_px)
        axes.set(xlim=(low, high), ylim=(0, panel_px), yticks=[])
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.xaxis.grid(visible=True, color=GRID, linewidth=0.7)
        rows = table[(table["model"] == model) & (table["shots"] == shots)]
        _draw_panel(axes, rows, lanes, looks)
        if place % columns == 0:
            _write_lanes(sheet, lanes, left - 12, upper - head_px, labels_px)
    return sheet


def _lanes_of(name: str, rows: pd.DataFrame) -> _Lanes:
    levels = dict.fromkeys(zip(rows["slot"], rows["level"], strict=True))
    named_levels = dict.fromkeys(level if level[1] else _NO_LEVEL for level in levels)
    return _Lanes(name, list(named_levels), bool(rows.groupby(["model", "shots"])["wording"].size().max() > 1))


def _n_columns(pairs: Sequence[tuple[str, Any]]) -> int:
    """A row of panels for each model where they have the same shots, else as square as it gets."""
    by_model: dict[str, list[Any]] = {}
    for model, shots in pairs:
        by_model.setdefault(model, []).append(shots)
    each = list(by_model.values())
    if len(each) > 1 and all(shots == each[0] for shots in each) and len(each[0]) in (2, 3):
        return len(each[0])
    return 2 if len(pairs) == 4 else min(len(pairs), 3)


def _left_out(table: pd.DataFrame) -> list[str]:
    count = int(table["score"].isna().sum())
    return [f"{count:,} wording{'s have' if count > 1 else ' has'} no score, and no dot."] if count else []


def _legend(sheet: Sheet, looks: Mapping[Level, dict[str, Any]], levels: Sequence[Level], baseline: str) -> Any:
    handles: list[tuple[str, Any]] = [
        (sheet.fit(_level_name(level), 230), Line2D([], [], linestyle="none", **looks[level])) for level in levels
    ]
    bar = Line2D([], [], color=_INK, linewidth=1.6, marker="|", markersize=10, markeredgewidth=2)
    handles.append(("mean ± sd of the class", bar))
    if baseline:
        handles.append((sheet.fit(baseline, 230), Line2D([], [], color=_INK, linewidth=1.1, linestyle=(0, (4, 2)))))
    widest = max(text_width_px(sheet.figure, name, SMALL_SIZE) for name, _ in handles)
    columns = max(int((sheet.width_px - 2 * EDGE_PX) // (widest + 50)), 1)
    return sheet.legend(distinct_labels(handles), columns=min(columns, len(handles)))


def _level_name(level: Level) -> str:
    slot, name = level
    return f"{plain(spaced(slot))}: {plain(name)}" if slot else plain(name)


def _label_widths(sheet: Sheet, lanes: Sequence[_Lanes]) -> list[float]:
    names = [text_width_px(sheet.figure, named(one.name), SMALL_SIZE) for one in lanes]
    levels = [
        text_width_px(sheet.figure, _level_name(level), SMALL_SIZE, "normal") for one in lanes for level in one.levels
    ]
    return [*names, *levels, text_width_px(sheet.figure, "mean ± sd", SMALL_SIZE, "normal")]


def _write_lanes(sheet: Sheet, lanes: Sequence[_Lanes], right: float, top: float, width_px: float) -> None:
    """Names of classes and levels, to the left of a row of panels."""
    for one in lanes:
        name = sheet.fit(named(one.name), width_px, SMALL_SIZE, "bold")
        at = top - (one.name_px / 2 or one.lane_px(0))
        sheet.write(right, at, name, size=SMALL_SIZE, weight="bold", ha="right", va="center_baseline")
        for row, level in enumerate(one.levels):
            text = sheet.fit(_level_name(level), width_px)
            sheet.write(right, top - one.lane_px(row), text, size=SMALL_SIZE, ha="right", va="center_baseline")
        if one.averaged:
            at = top - one.height_px + _AIR_PX + _MEAN_PX / 2
            sheet.write(right, at, "mean ± sd", size=SMALL_SIZE, color=GREY, ha="right", va="center_baseline")
        top -= one.height_px


def _range(values: Floats) -> tuple[float, float]:
    """Ends of the x axis: around every value, spanning 5 at the least."""
    seen = values[np.isfinite(values)]
    low, high = float(seen.min()), float(seen.max())
    wanting = max(_MIN_SPAN - (high - low), 0.0) / 2
    air = 0.05 * max(high - low, _MIN_SPAN)
    return low - wanting - air, high + wanting + air


def _shots(shots: Any) -> str:
    return f"{shots} shot" if str(shots) == "1" else f"{shots} shots"


def _draw_panel(axes: Axes, rows: pd.DataFrame, lanes: Sequence[_Lanes], looks: Mapping[Level, dict[str, Any]]) -> None:
    top = float(axes.get_ylim()[1])
    baselines = rows["baseline"].unique()
    shared = len(baselines) == 1  # then one line, or its dashes would start again at every class
    if shared:
        _draw_baselines(axes, baselines, 0, top)
    for one in lanes:
        part = rows[rows["description_class"] == one.name]
        bottom = top - one.height_px
        if not shared:
            _draw_baselines(axes, part["baseline"].unique(), bottom, top)
        for row, level in enumerate(one.levels):
            of_level = (part["level"] == level[1]) & ((part["slot"] == level[0]) | (level == _NO_LEVEL))
            seen = part[of_level].sort_values(["score", "wording"])["score"].dropna().to_numpy(dtype=np.float64)
            moved = (np.arange(len(seen)) * _GOLDEN % 1 - _GOLDEN / 2) * _SPREAD_PX * (len(seen) > 1)
            at = top - one.lane_px(row) + moved
            axes.plot(seen, at, linestyle="none", alpha=0.8, zorder=4, clip_on=False, **_dot(looks.get(level)))
        if one.averaged:
            _draw_mean(axes, part["score"].dropna().to_numpy(dtype=np.float64), bottom + _AIR_PX + _MEAN_PX / 2)
        if one is not lanes[-1]:
            axes.axhline(bottom + 2, color=GRID, linewidth=0.9, zorder=1)
        top = bottom


def _draw_baselines(axes: Axes, values: Floats, low_px: float, high_px: float) -> None:
    for value in values[np.isfinite(values)]:
        axes.plot([value] * 2, [low_px, high_px], color=_INK, linewidth=1.1, linestyle=(0, (4, 2)), zorder=2)


def _dot(look: dict[str, Any] | None) -> dict[str, Any]:
    if look is None:
        return {"color": GREY, "marker": "o", "markersize": 4.4, "markeredgecolor": "white", "markeredgewidth": 0.4}
    return look | {"markersize": 0.76 * look["markersize"], "markeredgewidth": 0.4}


def _draw_mean(axes: Axes, scores: Floats, at: float) -> None:
    if not scores.size:
        return
    mean, sd = float(scores.mean()), float(scores.std())
    axes.plot([mean - sd, mean + sd], [at, at], color=_INK, linewidth=1.6, solid_capstyle="butt", zorder=3)
    axes.plot([mean, mean], [at - 6, at + 6], color=_INK, linewidth=2.2, solid_capstyle="butt", zorder=5)


def _describe_panels(table: pd.DataFrame, unit: str) -> str:
    said = []
    for (model, shots), rows in table.groupby(["model", "shots"], sort=False):
        classes = [_describe_class(name, rows[rows["description_class"] == name]) for name in _classes(rows)]
        said.append(f"{named(str(model))}, {_shots(shots)}: {'; '.join(classes)}.")
    return " ".join([f"Scores in {plain(unit)} by wording.", *said, *_left_out(table)])


def _describe_class(name: str, rows: pd.DataFrame) -> str:
    seen = rows["score"].dropna()
    if seen.empty:
        return f"{named(name)} no score"
    spread = (
        f", sd {number(seen.std(ddof=0), 1)}, {number(seen.min(), 1)} to {number(seen.max(), 1)}"
        if len(seen) > 1
        else ""
    )
    wordings = f"{len(seen)} wording{'s' if len(seen) > 1 else ''}"
    levels = [
        f"{_level_name((str(slot), str(level)))} {number(part.mean(), 1)}"
        for (slot, level), part in rows.dropna(subset="score").groupby(["slot", "level"], sort=False)["score"]
        if level
    ]
    by_level = f" ({', '.join(levels)})" if levels else ""
    return f"{named(name)} mean {number(seen.mean(), 1)}{spread}, {wordings}{by_level}"


# Slots: a row for each level, and what it differs from the first level of its slot.


def draw_slots(effects: pd.DataFrame, measure_title: str, unit: str = "percent", about: str = "") -> Iterator[Drawing]:
    """Draw the mean score of each level of each slot, and how it differs from that of the slot's first level.

    Args:
        effects: a row per class, slot and level, the first level first, with `description_class`, `slot`, `level`, `mean` in
            percent, and `low` and `high`, the interval of the difference to the first level that decides whether there is one (NaN for
            the first, and where there is none). With the columns `model` or `shots`, there is a figure for each of their values.
        measure_title: what the scores are.
        unit: of the scores.
        about: what else the title says, for example the challenge set.

    Raises:
        UndertowError: a column is missing, no level has a mean, or one has two.
    """
    _need(effects, _EFFECTS)
    keys = [name for name in ("model", "shots") if name in effects.columns]
    if not np.isfinite(effects["mean"].to_numpy(dtype=np.float64)).any():
        raise UndertowError(
            "the figure of slots cannot be drawn: no level has a mean score, so score at least one wording"
        )
    twice = effects.duplicated([*keys, "description_class", "slot", "level"])
    if twice.any():
        raise UndertowError(
            f"the figure of slots cannot be drawn: the level {effects.loc[twice, 'level'].iloc[0]!r} has two means; "
            "choose the rows of one measure before drawing them"
        )
    parts = effects.groupby(keys, sort=False) if keys else [((), effects)]
    for key, rows in parts:
        labels = [
            _shots(value) if name == "shots" else named(str(value)) for name, value in zip(keys, key, strict=True)
        ]
        title = " · ".join(filter(None, [f"{plain(measure_title)} by slot", plain(about), *labels]))
        with lettering(
            "".join([title, unit, *map(str, rows[["description_class", "slot", "level"]].to_numpy().ravel())])
        ):
            figure = _draw_slots(rows, title, unit).figure
        yield Drawing(
            name="_".join(filter(None, ["slots", measure_title, about, *map(str, key)])),
            figure=figure,
            caption=f"{title}. Each row is one level of a slot: the mean score of the wordings that have it, the other slots held equal, "
            "joined to the other levels of its slot. Pale bar: the interval of the difference to the first level, as wide as all tests of "
            "the run need, counted from that level's dotted line; a dot is filled where it leaves 0 out. Slots with + between their names "
            "never change alone: it cannot be told which of them moves the score.",
            alt=_describe_slots(rows, unit),
        )


class _Slot(NamedTuple):
    """The levels of one slot in one class."""

    name: str
    levels: list[str]
    means: Floats  # [level]
    low: Floats  # [level], NaN for the first
    high: Floats

    @property
    def gaps(self) -> Floats:
        """Differences to the first level [level]."""
        return np.asarray(self.means - self.means[0], dtype=np.float64)

    @property
    def apart(self) -> list[bool]:
        """Whether the interval of a difference leaves 0 out [level]."""
        return [bool(low > 0 or high < 0) for low, high in zip(self.low, self.high, strict=True)]


def _slots(rows: pd.DataFrame) -> dict[str, list[_Slot]]:
    """Group slots by class, in the order of the figure."""
    return {
        name: [
            _Slot(
                str(slot),
                [str(level) for level in part["level"]],
                *part[["mean", "low", "high"]].to_numpy(dtype=np.float64).T,
            )
            for slot, part in rows[rows["description_class"] == name].groupby("slot", sort=False)
        ]
        for name in _classes(rows)
    }


def _draw_slots(rows: pd.DataFrame, title: str, unit: str) -> Sheet:
    classes = _slots(rows)
    lead = (
        f"Mean score in {plain(unit)} at each level; dotted: the first level of the slot. Pale bar: interval of the difference to it, as "
        "wide as all tests of the run need; the dot is filled where that leaves 0 out."
    )
    sheet = Sheet(title, lead)
    every = [slot for slots in classes.values() for slot in slots]
    names_px = _widest(sheet, [_slot_name(sheet, slot) for slot in every], _SLOT_PX)
    levels_px = _widest(sheet, [plain(level) for slot in every for level in slot.levels], _LABEL_PX)
    left = EDGE_PX + names_px + 14 + levels_px + 12
    width = sheet.width_px - left - _EFFECT_PX - EDGE_PX
    class_px, slot_air_px = line_px(SMALL_SIZE) + 8, 7.0
    body_px = sum(
        class_px + sum(_ROW_PX * len(slot.levels) + slot_air_px for slot in slots) for slots in classes.values()
    )
    top = sheet.settle(line_px(SMALL_SIZE) + 6 + body_px + line_px(SMALL_SIZE) + 12)
    sheet.write(left + width + 14, top, "difference [interval]", size=SMALL_SIZE, color=GREY, va="top")
    top -= line_px(SMALL_SIZE) + 6
    axes = sheet.axes(left, top - body_px, width, body_px)
    low, high = _range(np.concatenate([np.concatenate([slot.means, *_ends(slot)]) for slot in every]))
    ticks = even_ticks(low, high)
    axes.set(xlim=(low, high), ylim=(0, body_px), yticks=[])
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.xaxis.grid(visible=True, color=GRID, linewidth=0.7)
    at = body_px
    for name, slots in classes.items():
        sheet.write(EDGE_PX, top - body_px + at - 4, named(name), size=SMALL_SIZE, weight="bold", va="top")
        if at < body_px:
            axes.axhline(at, color=GRID, linewidth=0.9, zorder=1)
        at -= class_px
        for slot in slots:
            rows_at = np.array([at - _ROW_PX * (place + 0.5) for place in range(len(slot.levels))])
            _draw_slot(axes, slot, rows_at)
            _write_slot(sheet, slot, top - body_px + rows_at, (left - 12, levels_px, left + width + 14))
            at -= _ROW_PX * len(slot.levels) + slot_air_px
    return sheet


def _widest(sheet: Sheet, texts: Sequence[str], most_px: float) -> float:
    return min(max(text_width_px(sheet.figure, text, SMALL_SIZE, "normal") for text in texts), most_px) + 2


def _ends(slot: _Slot) -> tuple[Floats, Floats]:
    """Ends of the bars, on the axis of scores [level]."""
    return slot.means[0] + slot.low, slot.means[0] + slot.high


def _draw_slot(axes: Axes, slot: _Slot, at: Floats) -> None:
    blue, red = COLOURS[0], COLOURS[1]
    axes.plot([slot.means[0]] * 2, [at[0], at[-1] - 7], color=_INK, linewidth=1.0, linestyle=":", zorder=2)
    axes.plot(slot.means, at, color="#9a9a9a", linewidth=1.0, zorder=2.5)
    for place, (low, high) in enumerate(zip(*_ends(slot), strict=True)):
        colour = GREY if place == 0 else red if slot.apart[place] else blue
        face = colour if place == 0 or slot.apart[place] else "white"
        axes.plot([low, high], [at[place]] * 2, color=colour, linewidth=6, alpha=0.28, solid_capstyle="butt", zorder=3)
        dot: dict[str, Any] = {"marker": "o", "markersize": 5.8, "markerfacecolor": face, "markeredgecolor": colour}
        axes.plot(slot.means[place], at[place], linestyle="none", zorder=4, clip_on=False, **dot)


def _write_slot(sheet: Sheet, slot: _Slot, at: Floats, places: tuple[float, float, float]) -> None:
    """Words of a slot: its name and levels on the left, differences on the right."""
    right, levels_px, beyond = places
    name = sheet.fit(_slot_name(sheet, slot), _SLOT_PX)
    sheet.write(EDGE_PX, at[0], name, size=SMALL_SIZE, color=GREY, va="center_baseline")
    for place, level in enumerate(slot.levels):
        text = sheet.fit(plain(level), levels_px)
        sheet.write(right, at[place], text, size=SMALL_SIZE, ha="right", va="center_baseline")
        gap = "first level" if place == 0 else _gap(slot, place)
        look = {"color": GREY} if place == 0 else {"weight": "bold" if slot.apart[place] else "normal"}
        sheet.write(beyond, at[place], gap, size=SMALL_SIZE, va="center_baseline", **look)


def _slot_name(sheet: Sheet, slot: _Slot) -> str:
    """Label of a slot, or of slots that change only together; their number if the names do not fit."""
    name = plain(spaced(slot.name))
    n_slots = len(slot.name.split(TOGETHER))
    wide = text_width_px(sheet.figure, name, SMALL_SIZE, "normal") > _SLOT_PX
    return f"{n_slots} slots together" if n_slots > 1 and wide else name


def _gap(slot: _Slot, place: int) -> str:
    gap, low, high = slot.gaps[place], slot.low[place], slot.high[place]
    signed = f"{'+' if gap > 0 else ''}{number(gap, 1)}"
    return f"{signed} [{number(low, 1)}, {number(high, 1)}]" if math.isfinite(low) and math.isfinite(high) else signed


def _describe_slots(rows: pd.DataFrame, unit: str) -> str:
    said = []
    for name, slots in _slots(rows).items():
        for slot in slots:
            levels = [
                f"{plain(level)} {number(slot.means[place], 1)}" + (f" ({_gap(slot, place)})" if place else "")
                for place, level in enumerate(slot.levels)
            ]
            said.append(f"{named(name)}, {plain(spaced(slot.name))}: {', '.join(levels)}.")
    return " ".join([f"Mean scores in {plain(unit)}, with difference to the first level and its interval.", *said])
