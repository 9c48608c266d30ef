"""Figures of the sensitivity of a score to the wording of a task and to each part of it.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language"
(Findings of EMNLP), section 5.2, report it in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from undertow.report.formatting import named, number, plain, signed, spaced
from undertow.report.page_data import Drawing
from undertow.report.sentence_templates import described
from undertow.report.sheet import DASHED, Sheet, even_ticks, fitted, hover, mark, padded, write_above
from undertow.report.style import COLOURS, GREY, GRID, INK, SMALL_SIZE, TEXT_SIZE, lettering, style_of
from undertow.types import Floats

if TYPE_CHECKING:
    import pandas as pd

MAX_PANELS = 6
CLASSES = ("statement", "question", "completion", "null")
"""Classes of task descriptions in the order of the paper's tables; a user's own classes precede "null"."""
_MIN_SPAN = 5.0
"""Minimum range of the x axis, so that small differences look small."""
_LANE_IN, _ROW_IN = 0.16, 0.17
_GOLDEN = (math.sqrt(5) - 1) / 2
TOGETHER = " + "
"""Separator between names of slots that only change together."""

Level = tuple[str, str]
"""Slot and level."""
_NO_LEVEL: Level = ("", "")


class _Lane(NamedTuple):
    """A lane of dots, or the row of a class's name or mean."""

    kind: str  # "class", "level" or "mean"
    description_class: str
    level: Level
    at: float  # from the top, in lanes

    @property
    def words(self) -> str:
        """Label of the lane."""
        if self.kind == "mean":
            return "mean ± sd"
        return _level_name(self.level) or named(self.description_class)


def draw_sensitivity(
    points: pd.DataFrame, measure_title: str, unit: str, about: str = "", baseline_title: str = "baseline"
) -> Iterator[Drawing]:
    """Draw every wording's score, with a panel for each model and number of shots and at most six panels per figure.

    A panel has its classes of descriptions from top to bottom, each with a lane of dots for every level of the selected slot, and
    below them their mean ± one standard deviation (of the population).

    Args:
        points: a row per model, shots, class and wording, with `model`, `shots`, `description_class`, `wording`, `score` in
            percent (NaN if missing), `slot` and `level` ("" if the class has none), and `baseline` in percent (NaN for none).
        measure_title: name of the scores.
        unit: unit of the scores.
        about: addition to the title, for example the challenge set.
        baseline_title: name of the dashed line, for example "always the same label".
    """
    names = ["model", "description_class", "wording", "slot", "level"]
    table = points.assign(**points[names].fillna("").astype(str)).astype({"score": np.float64, "baseline": np.float64})
    pairs = list(dict.fromkeys(zip(table["model"], table["shots"], strict=True)))
    levels = [level for level in dict.fromkeys(zip(table["slot"], table["level"], strict=True)) if level[1]]
    looks = {level: style_of(place) for place, level in enumerate(levels)}
    parts = [pairs[start : start + MAX_PANELS] for start in range(0, len(pairs), MAX_PANELS)]
    for place, part in enumerate(parts, 1):
        of_many = f"{place} of {len(parts)}" if len(parts) > 1 else ""
        title = " · ".join(filter(None, [f"{plain(measure_title)} by wording", plain(about), of_many]))
        dashed = f" Dashed: {plain(baseline_title)}." if table["baseline"].notna().any() else ""
        rows = table[[key in part for key in zip(table["model"], table["shots"], strict=True)]]
        with lettering("".join([title, unit, baseline_title, *rows[names].to_numpy().ravel()])):
            figure = _draw_panels(rows, looks, title, unit, baseline_title)
        yield Drawing(
            name="_".join(filter(None, ["wordings", measure_title, about, str(place) if len(parts) > 1 else ""])),
            figure=figure,
            caption=f"{title}. Each dot is one wording of the task, in the colour and lane of the slot's level named beside it. "
            f"Below each class: its mean over wordings ± one standard deviation.{dashed} "
            "If the dots of two levels are separated, the choice of words alone changes the score.",
            alt=_describe_panels(rows, unit),
        )


def _classes(table: pd.DataFrame) -> list[str]:
    """Classes in the paper's order, with a user's own before the empty description."""
    names = list(dict.fromkeys(table["description_class"].astype(str)))
    own = [name for name in names if name not in CLASSES]
    return [name for name in (*CLASSES[:-1], *own, CLASSES[-1]) if name in names]


def _lanes(table: pd.DataFrame) -> list[_Lane]:
    """Lanes that all panels share, from the top."""
    lanes, at = [], 0.0
    for name in _classes(table):
        rows = table[table["description_class"] == name]
        pairs = zip(rows["slot"], rows["level"], strict=True)
        levels = list(dict.fromkeys(level if level[1] else _NO_LEVEL for level in pairs))
        if levels != [_NO_LEVEL]:  # else the name is beside the only lane
            lanes.append(_Lane("class", name, _NO_LEVEL, at))
            at += 1.1
        for level in levels:
            lanes.append(_Lane("level", name, level, at))
            at += 1
        if rows.groupby(["model", "shots"])["wording"].size().max() > 1:
            lanes.append(_Lane("mean", name, _NO_LEVEL, at + 0.1))
            at += 1.1
        at += 0.6
    return lanes


def _draw_panels(
    table: pd.DataFrame, looks: Mapping[Level, dict[str, Any]], title: str, unit: str, baseline: str
) -> Sheet:
    lead = (
        f"Each dot is one wording of the task; score in {plain(unit)}. Bar: mean over the wordings of a class "
        "± one standard deviation."
    )
    lanes, sheet = _lanes(table), Sheet(title, lead, _left_out(table))
    in_table = [level for level in dict.fromkeys(zip(table["slot"], table["level"], strict=True)) if level[1]]
    key: list[tuple[str, Any]] = [(_level_name(at), mark(linestyle="none", **looks[at])) for at in in_table]
    key.append(("mean ± sd of the class", mark(color=INK, linewidth=1.6, marker="|", markersize=10, markeredgewidth=2)))
    if table["baseline"].notna().any():
        key.append((plain(baseline), mark(color=INK, linewidth=1.1, linestyle=DASHED)))
    sheet.add_key(key)
    pairs = list(dict.fromkeys(zip(table["model"], table["shots"], strict=True)))
    columns = min(_n_columns(pairs), max(int(sheet.inner_in / 2.0), 1))
    n_rows = math.ceil(len(pairs) / columns)
    grid = sheet.subplots(n_rows, columns, sharex=True, sharey=True, squeeze=False)
    label_in = 0.25 * sheet.inner_in
    width = (sheet.inner_in - label_in) / columns - 0.15
    for axes, pair in zip(grid.flat, pairs, strict=False):
        shots = (_shots(pair[1]), {"size": SMALL_SIZE, "color": GREY})
        write_above(axes, [(fitted(named(pair[0]), width, TEXT_SIZE, "bold"), {}), shots])
        _draw_panel(axes, table[(table["model"] == pair[0]) & (table["shots"] == pair[1])], lanes, looks)
    for axes in list(grid.flat)[len(pairs) :]:
        axes.set_axis_off()
    last = lanes[-1].at + 0.6
    first = grid[0, 0]
    first.set(ylim=(last, -0.7), xlim=padded([*table["score"], *table["baseline"]], 0.05, _MIN_SPAN))
    first.xaxis.set_major_locator(even_ticks(4 if columns > 2 else 6))
    for row in grid[:, 0]:
        row.set_yticks([lane.at for lane in lanes], [fitted(lane.words, label_in) for lane in lanes])
        for lane, label in zip(lanes, row.get_yticklabels(), strict=True):
            is_name = lane.kind == "class" or (lane.kind == "level" and lane.level == _NO_LEVEL)
            label.set(weight="bold" if is_name else "normal", color=GREY if lane.kind == "mean" else INK)
    return sheet.finish(list(grid[:, 0]), n_rows * _LANE_IN * (last + 0.7))


def _n_columns(pairs: Sequence[tuple[str, Any]]) -> int:
    """Number of columns: one row per model if all models have the same shots, else a nearly square grid."""
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


def _level_name(level: Level) -> str:
    slot, name = level
    return f"{plain(spaced(slot))}: {plain(name)}" if slot else plain(name)


def _shots(shots: Any) -> str:
    return f"{shots} shot" if str(shots) == "1" else f"{shots} shots"


def _draw_panel(axes: Axes, rows: pd.DataFrame, lanes: Sequence[_Lane], looks: Mapping[Level, dict[str, Any]]) -> None:
    axes.grid(axis="x")
    shared = rows["baseline"].nunique(dropna=False) == 1  # as one line, so that dashes continue across classes
    if shared and rows["baseline"].notna().all():
        axes.axvline(rows["baseline"].iloc[0], color=INK, linewidth=1.1, linestyle=DASHED, zorder=2)
    for name in _classes(rows):
        part = rows[rows["description_class"] == name]
        own = [lane for lane in lanes if lane.description_class == name]
        top, bottom = own[0].at - 0.8, own[-1].at + 0.8
        if own[-1] is not lanes[-1]:
            axes.axhline(bottom, color=GRID, linewidth=0.9, zorder=1)
        for value in () if shared else part["baseline"].dropna().unique():
            axes.plot([value] * 2, [top, bottom], color=INK, linewidth=1.1, linestyle=DASHED, zorder=2)
        for lane in own:
            if lane.kind == "level":
                of_slot = (part["slot"] == lane.level[0]) | (lane.level == _NO_LEVEL)
                of_level = part[(part["level"] == lane.level[1]) & of_slot]
                scored = of_level.dropna(subset="score").sort_values(["score", "wording"])
                seen = scored["score"].to_numpy(dtype=np.float64)
                # Jitter, so that equal scores do not hide one another.
                moved = (np.arange(len(seen)) * _GOLDEN % 1 - _GOLDEN / 2) * 0.56 * (len(seen) > 1)
                plain_look = {"color": GREY, "marker": "o", "markersize": 5.8, "markeredgecolor": "white"}
                look = looks.get(lane.level, plain_look)
                look = look | {"markersize": 0.76 * look["markersize"], "markeredgewidth": 0.4}
                axes.plot(seen, lane.at + moved, linestyle="none", alpha=0.8, zorder=4, clip_on=False, **look)
                pairs = zip(seen, scored["wording"], strict=True)
                hover(axes, seen, lane.at + moved, [f"{number(score, 1)}: {wording}" for score, wording in pairs])
            scores = part["score"].dropna().to_numpy(dtype=np.float64)
            if lane.kind == "mean" and scores.size:
                mean, sd = float(scores.mean()), float(scores.std())
                axes.plot([mean - sd, mean + sd], [lane.at] * 2, color=INK, linewidth=1.6, zorder=3)
                axes.plot([mean, mean], [lane.at - 0.38, lane.at + 0.38], color=INK, linewidth=2.2, zorder=5)


def _describe_panels(table: pd.DataFrame, unit: str) -> str:
    panels = []
    for (model, shots), rows in table.groupby(["model", "shots"], sort=False):
        classes = []
        for name in _classes(rows):
            seen = rows[rows["description_class"] == name].dropna(subset="score")
            score = seen["score"]
            summary = {"n": len(score), "mean": score.mean(), "sd": score.std(ddof=0)}
            summary |= {"low": score.min(), "high": score.max()}
            levels = [
                (_level_name((str(slot), str(level))), part.mean())
                for (slot, level), part in seen.groupby(["slot", "level"], sort=False)["score"]
                if level
            ]
            classes.append((name, summary if len(score) else None, levels))
        panels.append((str(model), _shots(shots), classes))
    return described("wordings", panels, unit, _left_out(table))


# Slots: a row for each level, with its difference from the first level of its slot.


def draw_slots(effects: pd.DataFrame, measure_title: str, unit: str = "percent", about: str = "") -> Iterator[Drawing]:
    """Draw the mean score of each level of each slot, and its difference from that of the slot's first level.

    Args:
        effects: a row per class, slot and level, the first level first, with `description_class`, `slot`, `level`, `mean` in
            percent, and `low` and `high`, the interval of the difference from the first level after correction for multiple tests (NaN for
            the first, and if there is none). With the columns `model` or `shots`, there is a figure for each of their values.
        measure_title: name of the scores.
        unit: unit of the scores.
        about: addition to the title, for example the challenge set.
    """
    keys = [name for name in ("model", "shots") if name in effects.columns]
    for key, rows in effects.groupby(keys, sort=False) if keys else [((), effects)]:
        labels = [_shots(one) if name == "shots" else named(str(one)) for name, one in zip(keys, key, strict=True)]
        title = " · ".join(filter(None, [f"{plain(measure_title)} by slot", plain(about), *labels]))
        slots = _slots(rows)
        names = rows[["description_class", "slot", "level"]].to_numpy().ravel()
        with lettering("".join([title, unit, *map(str, names)])):
            figure = _draw_slots(slots, title, unit)
        yield Drawing(
            name="_".join(filter(None, ["slots", measure_title, about, *map(str, key)])),
            figure=figure,
            caption=f"{title}. Each row is one level of a slot: the mean score of its wordings with the other slots held equal, "
            "joined to the other levels of its slot. Pale bar: interval of the difference from the first level, corrected for all tests of "
            "the run and drawn from that level's dotted line; a dot is filled if the interval excludes 0. Slots with + between their names "
            "only change together, so their effects cannot be separated.",
            alt=described("slots", slots, unit),
        )


class _Slot(NamedTuple):
    """The levels of one slot in one class."""

    description_class: str
    name: str
    levels: list[str]
    means: Floats  # [level]
    low: Floats  # [level], NaN for the first level
    high: Floats

    @property
    def apart(self) -> list[bool]:
        """Whether the interval of a difference excludes 0 [level]."""
        return [bool(low > 0 or high < 0) for low, high in zip(self.low, self.high, strict=True)]

    def difference(self, place: int) -> str:
        """Difference of a level from the first, with its interval."""
        low, high = self.low[place], self.high[place]
        ends = f" [{number(low, 1)}, {number(high, 1)}]" if math.isfinite(low) and math.isfinite(high) else ""
        return signed(self.means[place] - self.means[0], 1) + ends


def _slots(rows: pd.DataFrame) -> list[_Slot]:
    """The slots of each class, in the order of the figure."""
    slots = []
    for name in _classes(rows):
        for slot, part in rows[rows["description_class"] == name].groupby("slot", sort=False):
            numbers = part[["mean", "low", "high"]].to_numpy(dtype=np.float64).T
            slots.append(_Slot(name, str(slot), list(map(str, part["level"])), *numbers))
    return slots


def _draw_slots(slots: Sequence[_Slot], title: str, unit: str) -> Sheet:
    lead = (
        f"Mean score in {plain(unit)} at each level; dotted: first level of the slot. Pale bar: interval of the difference from it, "
        "corrected for all tests of the run; the dot is filled if it excludes 0."
    )
    sheet = Sheet(title, lead)
    axes = sheet.add_subplot()
    label_in, wide = 0.24 * sheet.inner_in, sheet.width_in > 5
    ticks: list[tuple[float, str, dict[str, Any]]] = []
    beside = axes.get_yaxis_transform()
    at, before = 0.0, ""
    for slot in slots:
        if slot.description_class != before:
            if before:
                axes.axhline(at - 0.2, color=GRID, linewidth=0.9, zorder=1)
                at += 0.6
            ticks.append((at, fitted(named(slot.description_class), 1.5 * label_in, weight="bold"), {"weight": "bold"}))
            at, before = at + 1.1, slot.description_class
        name = plain(spaced(slot.name))
        n_slots = len(slot.name.split(TOGETHER))
        if n_slots > 1 and fitted(name, 1.5 * label_in) != name:
            name = f"{n_slots} slots together"
        ticks.append((at, fitted(name, 1.5 * label_in), {"color": GREY}))
        rows = at + 1 + np.arange(len(slot.levels), dtype=np.float64)
        _draw_slot(axes, slot, rows)
        for place, (row, level) in enumerate(zip(rows, slot.levels, strict=True)):
            ticks.append((float(row), fitted(level, label_in), {}))
            text = slot.difference(place) if place else "first level"
            text = text if wide or not place else text.partition(" ")[0]
            look: dict[str, Any] = {"weight": "bold" if slot.apart[place] else "normal"} if place else {"color": GREY}
            axes.text(1.03, row, text, transform=beside, va="center_baseline", **look)
        at = float(rows[-1]) + 1.3
    axes.text(1.03, -0.1, "difference\n[interval]" if wide else "difference", color=GREY, va="center", transform=beside)
    ends = [slot.means[0] + np.concatenate([slot.low, slot.high]) for slot in slots]
    drawn = np.concatenate([*(slot.means for slot in slots), *ends])
    axes.set(xlim=padded(drawn, 0.05, _MIN_SPAN), ylim=(at - 0.4, -0.7))
    axes.xaxis.set_major_locator(even_ticks(6 if wide else 3))
    axes.grid(axis="x")
    axes.set_yticks([place for place, _, _ in ticks], [text for _, text, _ in ticks])
    for label, (_, _, look) in zip(axes.get_yticklabels(), ticks, strict=True):
        label.set(**look)
    return sheet.finish([axes], _ROW_IN * (at + 0.3))


def _draw_slot(axes: Axes, slot: _Slot, at: Floats) -> None:
    axes.plot([slot.means[0]] * 2, [at[0], at[-1] + 0.4], color=INK, linewidth=1.0, linestyle=":", zorder=2)
    axes.plot(slot.means, at, color="#9a9a9a", linewidth=1.0, zorder=2.5)
    for place, apart in enumerate(slot.apart):
        colour = GREY if place == 0 else COLOURS[1] if apart else COLOURS[0]
        ends = slot.means[0] + np.array([slot.low[place], slot.high[place]])
        axes.plot(ends, [at[place]] * 2, color=colour, linewidth=6, alpha=0.28, zorder=3)
        face = colour if place == 0 or apart else "white"
        look: dict[str, Any] = {"marker": "o", "markersize": 5.8, "markerfacecolor": face, "markeredgecolor": colour}
        axes.plot(slot.means[place], at[place], linestyle="none", zorder=4, clip_on=False, **look)
    labels = [f"{level}: {number(mean, 1)}" for level, mean in zip(slot.levels, slot.means, strict=True)]
    hover(axes, slot.means, at, labels)
