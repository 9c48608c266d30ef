"""Figures of the occupation checklist: its measures, and the ranking of occupations by gender gap.

Zhang, "Taxonomy-based CheckList for Large Language Model Evaluation", figure 1; the paper lists occupations in a sentence, and the
ranking replaces it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from undertow.errors import UndertowError
from undertow.report.figures.covariate_curve import COLOURS, DPI, text_width_px
from undertow.report.formatting import number, plain, shortened
from undertow.report.label_placement import Spot, draw_names
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
    line_px,
    named,
)
from undertow.report.style import Drawing, as_ink, lettering
from undertow.types import Floats, Result

ALL = "all"
"""The occupation of a result that is over all of them."""
RANKED = "choice_gap"
MAX_RANKED = 70
"""More occupations than these are shown by both ends of their ranking."""

_WOMAN, _MAN, _NEITHER = COLOURS[0], COLOURS[1], GREY
_INK = "#222222"


class _Aspect(NamedTuple):
    title: str
    colour: str
    meaning: str


_ASPECTS: Mapping[str, _Aspect] = {
    "consistency": _Aspect(
        "Consistency", _NEITHER, "where one of the two alone is called qualified, how often the single choice names that one"
    ),
    "bias": _Aspect("Bias", _NEITHER, "how often the single and the multiple choice name the same one of the two"),
    "preference_female": _Aspect(
        "Prefers woman", _WOMAN, "where neither is called qualified, how often the single choice names her"
    ),
    "preference_male": _Aspect("Prefers man", _MAN, "the same of him"),
    "switch_female_to_male": _Aspect(
        "Switches to man",
        _MAN,
        "where the multiple choice names one of the two, how often that is him and the single choice had named her",
    ),
    "switch_male_to_female": _Aspect("Switches to woman", _WOMAN, "the reverse"),
    "position_bias": _Aspect("Names the first", _NEITHER, "how often a choice names whoever was mentioned first"),
}  # fmt: skip
"""Measures in the order of the paper's figure, and after them one of ours."""

_BAR_ROW_PX, _TWO_LINES_PX = 19.0, 34.0
"""Of a row, and of one whose name takes two lines."""
_NAME_PX = 170.0
_VALUE_PX, _INTERVAL_PX, _COUNT_PX = 40.0, 150.0, 46.0
_COLUMNS = 4
_FOOT_PX = 26.0
"""Below a panel, for its ticks."""

_ROW_PX = 15.0
_OCCUPATION_PX = 150.0
_MAX_ROW_PX = 30.0
_SCATTER_PX, _SCATTER_HIGH_PX = 300.0, (240.0, 460.0)
_LABEL_PX, _LABEL_AREA, _POINT_PX2 = 120.0, 0.3, 200.0
"""Of a point's name, at the most; the share of the panel that points and names may fill; and what a point takes of it."""
_ALT_PLACES_PER_END, _ALT_POINTS = 8, 30
_TO_MAN, _TO_WOMAN = "\N{LEFTWARDS ARROW} the man", "the woman \N{RIGHTWARDS ARROW}"
_DOWN_TO_MAN, _UP_TO_WOMAN = "\N{DOWNWARDS ARROW} the man", "\N{UPWARDS ARROW} the woman"
_MIN_SPAN = 1.0
"""An axis of gaps spans this much at the least, so that a hair's breadth does not look like a gulf."""


# Aspects.


class _Bar(NamedTuple):
    """A row of a panel; no result where the measure was not taken."""

    label: str
    colour: str
    result: Result | None


class _Panel(NamedTuple):
    title: str  # "" for none
    bars: Sequence[_Bar]

    @property
    def row_px(self) -> float:
        return _TWO_LINES_PX if any("\n" in bar.label for bar in self.bars) else _BAR_ROW_PX

    def rows_below(self, top_px: float) -> list[tuple[float, _Bar]]:
        """The middle of each bar's row, in pixels, and the bar."""
        return [(top_px - (row + 0.5) * self.row_px, bar) for row, bar in enumerate(self.bars)]


def draw_aspects(results: Sequence[Result], context: str) -> Drawing | None:
    """Draw each aspect of the answers over all occupations, as bars in percent with their 95% intervals (figure 1).

    One model has a panel, with a bar for every aspect; several have a panel for every aspect, with a bar for each of them.

    Args:
        results: of any measures; those that are aspects, of occupation "all" and this context, are drawn.
        context: what was said of the two people, for example "with attributes".

    Returns:
        A drawing 800 pixels wide at 100 dots per inch; None where no aspect has a number.

    Raises:
        UndertowError: a model has two numbers of one measure.
    """
    estimates = _aspects(results, context)
    if not any(math.isfinite(result.value) for result in estimates.values()):
        return None
    measures = [measure for measure in _ASPECTS if any(key[1] == measure for key in estimates)]
    models = list(dict.fromkeys(model for model, _ in estimates))
    with lettering("".join([context, *models])):
        figure = _drawn_aspects(estimates, models, measures, context).figure
    meanings = "; ".join(f"{_ASPECTS[measure].title.lower()}: {_ASPECTS[measure].meaning}" for measure in measures)
    return Drawing(
        name=f"aspects_{context}",
        figure=figure,
        caption=f"Shares of the answers over all occupations, {plain(context)}, in percent. {meanings[0].upper()}{meanings[1:]}. "
        f"Dark line: 95% interval.{_dotted(estimates.values())} {_without(estimates.values())}".strip(),
        alt=_describe_aspects(estimates, models, measures, context),
    )


def _aspects(results: Sequence[Result], context: str) -> dict[tuple[str, str], Result]:
    """Index results by model and measure."""
    estimates: dict[tuple[str, str], Result] = {}
    for result in results:
        group = result.group
        if result.measure not in _ASPECTS or group.get("occupation") != ALL or group.get("context") != context:
            continue
        key = group.get("model", ""), result.measure
        if key in estimates:
            raise UndertowError(
                f"the figure of aspects cannot be drawn: model {key[0]!r} has two numbers of {key[1]!r}; give one for each context"
            )
        estimates[key] = result
    return estimates


def _dotted(results: Iterable[Result]) -> str:
    return " Dotted: the neutral value." if any(math.isfinite(result.null_value) for result in results) else ""


def _without(results: Iterable[Result]) -> str:
    empty = any(not math.isfinite(result.value) for result in results)
    return "None: no item was of that kind, so there is no share of them." if empty else ""


def _drawn_aspects(
    estimates: Mapping[tuple[str, str], Result], models: Sequence[str], measures: Sequence[str], context: str
) -> Sheet:
    alone = len(models) == 1
    about = f"{plain(context)} · {named(models[0])}" if alone else plain(context)
    lead = f"Percent, over all occupations. Dark line: 95% interval.{_dotted(estimates.values())}"
    sheet = Sheet(f"Consistency, bias, preference and switches · {about}", lead)
    panels = _panels(sheet, estimates, models, measures)
    labels_px = max(
        text_width_px(sheet.figure, line, SMALL_SIZE, "normal")
        for bar in panels[0].bars
        for line in bar.label.split("\n")
    )
    beside_px = _INTERVAL_PX + _COUNT_PX if alone else _VALUE_PX
    left, columns = EDGE_PX + labels_px + 10, min(len(panels), _COLUMNS)
    pitch_px = (sheet.width_px - EDGE_PX + 12 - left) / columns
    head_px, high_px = line_px(TEXT_SIZE) + 6, panels[0].row_px * len(panels[0].bars)
    row_px = head_px + high_px + _FOOT_PX
    top = sheet.settle(row_px * math.ceil(len(panels) / columns))
    for place, panel in enumerate(panels):
        x, upper = left + place % columns * pitch_px, top - place // columns * row_px
        width = pitch_px - 12 - beside_px
        axes = sheet.axes(x, upper - head_px - high_px, width, high_px)
        _draw_panel(axes, panel.bars, [0, 25, 50, 75, 100] if alone else [0, 50, 100])
        # A title may reach over the numbers beside its bars, but not over the next panel's.
        title = sheet.fit(panel.title, pitch_px - 14, TEXT_SIZE, "bold")
        sheet.write(x, upper - 2, title, size=TEXT_SIZE, weight="bold", va="top")
        _write_numbers(sheet, panel, (x + width, upper - head_px), in_full=alone)
        if place % columns == 0:
            _write_labels(sheet, panel, (left - 10, upper - head_px))
    return sheet


def _panels(
    sheet: Sheet, estimates: Mapping[tuple[str, str], Result], models: Sequence[str], measures: Sequence[str]
) -> list[_Panel]:
    aspects = [(measure, _ASPECTS[measure]) for measure in measures]
    if len(models) == 1:
        return [_Panel("", [_Bar(look.title, look.colour, estimates.get((models[0], name))) for name, look in aspects])]
    labels = list(distinct_labels((_in_two_lines(sheet, named(model)), None) for model in models))
    return [
        _Panel(
            look.title,
            [
                _Bar(label, look.colour, estimates.get((model, name)))
                for label, model in zip(labels, models, strict=True)
            ],
        )
        for name, look in aspects
    ]


def _in_two_lines(sheet: Sheet, name: str) -> str:
    """The name as it is, or in two lines of even width, shortened where these do not hold it."""
    width_px = text_width_px(sheet.figure, name, SMALL_SIZE, "normal")
    if width_px <= _NAME_PX:
        return name
    whole = sheet.fit(name, 1.9 * _NAME_PX)
    half = len(whole) // 2
    breaks = [place for place in range(1, len(whole)) if not (whole[place - 1].isalnum() and whole[place].isalnum())]
    at = min(
        [place for place in breaks if abs(place - half) <= len(whole) // 8] or [half],
        key=lambda place: abs(place - half),
    )
    return "\n".join(sheet.fit(part, _NAME_PX + 20) for part in (whole[:at].strip(), whole[at:].strip()))


def _draw_panel(axes: Axes, bars: Sequence[_Bar], ticks: Sequence[float]) -> None:
    axes.set(xlim=(0, 100), ylim=(len(bars) - 0.5, -0.5), yticks=[])
    axes.set_xticks(ticks)
    axes.xaxis.grid(visible=True, color=GRID, linewidth=0.7)
    for row, bar in enumerate(bars):
        if bar.result is not None:
            _draw_null_value(axes, bar.result, row)
        if bar.result is None or not math.isfinite(bar.result.value):
            words = "not measured" if bar.result is None else "none"
            axes.text(2, row, words, size=SMALL_SIZE, color=GREY, va="center_baseline")
            continue
        axes.barh(row, bar.result.value, height=0.62, color=bar.colour, alpha=0.75, zorder=2)
        ends = [bar.result.low, bar.result.high]
        axes.plot(ends, [row, row], color=_INK, linewidth=1.6, solid_capstyle="butt", zorder=4, clip_on=False)


def _draw_null_value(axes: Axes, result: Result, row: int) -> None:
    """A piece of a line, which those of the rows above and below go on."""
    if math.isfinite(result.null_value):
        look: dict[str, Any] = {"linestyle": (0, (1, 1.2)), "dash_capstyle": "butt", "zorder": 3}
        axes.plot([result.null_value] * 2, [row - 0.5, row + 0.5], color=_INK, linewidth=1.4, clip_on=False, **look)


def _write_labels(sheet: Sheet, panel: _Panel, corner: tuple[float, float]) -> None:
    right, top = corner
    for at, bar in panel.rows_below(top):
        middle = "center" if "\n" in bar.label else "center_baseline"
        sheet.write(right, at, bar.label, size=SMALL_SIZE, ha="right", va=middle)


def _write_numbers(sheet: Sheet, panel: _Panel, corner: tuple[float, float], *, in_full: bool) -> None:
    """Write values beside the bars, with intervals and counts where they fit."""
    left, top = corner
    end = left + (_INTERVAL_PX + _COUNT_PX if in_full else _VALUE_PX)
    small: dict[str, Any] = {"size": SMALL_SIZE, "va": "center_baseline"}
    if in_full:
        sheet.write(left + 14, top + 4, "percent [95% interval]", size=SMALL_SIZE, color=GREY, va="baseline")
        sheet.write(end, top + 4, "items", size=SMALL_SIZE, color=GREY, ha="right", va="baseline")
    for at, bar in panel.rows_below(top):
        if bar.result is None:
            continue
        has_value = math.isfinite(bar.result.value)
        if in_full:
            sheet.write(left + 14, at, _format_value(bar.result) if has_value else "", **small)
            sheet.write(end, at, f"{bar.result.n:,}", color=GREY, ha="right", **small)
        elif has_value:
            sheet.write(end, at, number(bar.result.value, 1), ha="right", **small)


def _format_value(result: Result) -> str:
    value = number(result.value, 1)
    has_ends = math.isfinite(result.low) and math.isfinite(result.high)
    return f"{value} [{number(result.low, 1)}, {number(result.high, 1)}]" if has_ends else value


def _describe_aspects(
    estimates: Mapping[tuple[str, str], Result], models: Sequence[str], measures: Sequence[str], context: str
) -> str:
    said = [f"Shares in percent over all occupations, {plain(context)}, with 95% intervals."]
    for measure in measures:
        each = [_describe_bar(named(model), estimates.get((model, measure))) for model in models]
        neutrals = {estimates[model, measure].null_value for model in models if (model, measure) in estimates}
        marks = sorted(value for value in neutrals if math.isfinite(value))
        beside = f" (no bias: {', '.join(f'{mark:g}' for mark in marks)})" if marks else ""
        said.append(f"{_ASPECTS[measure].title}{beside}: {'; '.join(each)}.")
    return " ".join(said)


def _describe_bar(model: str, result: Result | None) -> str:
    if result is None:
        return f"{model} not measured"
    if not math.isfinite(result.value):
        return f"{model} none"
    return f"{model} {_format_value(result)} of {result.n:,} items"


# The ranking.


class _Place(NamedTuple):
    """An occupation in the ranking."""

    name: str
    gap: float  # percentage points
    low: float
    high: float
    significant: bool
    female_percent: float  # NaN where nobody counted

    @property
    def colour(self) -> str:
        return _WOMAN if self.gap > 0 else _MAN if self.gap < 0 else _NEITHER

    @property
    def ends(self) -> tuple[float, float]:
        """Of the interval; both the gap itself where there is none."""
        has = math.isfinite(self.low) and math.isfinite(self.high)
        return (self.low, self.high) if has else (self.gap, self.gap)


def draw_ranking(
    results: Sequence[Result], female_percent: Mapping[str, float], context: str, model: str
) -> Drawing | None:
    """Draw one model's occupations by how much sooner it names the woman than the man, and beside it against who works there.

    Args:
        results: of any measures; `choice_gap` of this model and context is drawn, in percentage points.
        female_percent: women among those who have the occupation, in percent, for the occupations that somebody counted.
        context: what was said of the two people, for example "with attributes".
        model: its name.

    Returns:
        A drawing 800 pixels wide at 100 dots per inch; None where fewer than two occupations have a number. Without a second
        panel where fewer than two occupations have both.

    Raises:
        UndertowError: an occupation has two numbers.
    """
    chosen = _gaps(results, context, model)
    places = _ranked(chosen, female_percent)
    if len(places) < 2:
        return None
    empty = [name for name, result in chosen.items() if not math.isfinite(result.value)]
    counted = [place for place in places if math.isfinite(place.female_percent)]
    with lettering("".join([context, model, *chosen])):
        figure = _drawn_ranking(places, empty, (context, model)).figure
    return Drawing(
        name=f"ranking_{context}_{model}",
        figure=figure,
        caption=" ".join([_ranking_caption(places, context, model), *_cut(places), _describe_counted(counted, places)]),
        alt=" ".join([*_describe_ranking(places), *_describe_empty(empty)]),
    )


def _gaps(results: Sequence[Result], context: str, model: str) -> dict[str, Result]:
    """Index results by occupation."""
    by_occupation: dict[str, Result] = {}
    for result in results:
        occupation = result.group.get("occupation", ALL)
        of_it = result.group.get("model") == model and result.group.get("context") == context
        if result.measure != RANKED or occupation == ALL or not of_it:
            continue
        if occupation in by_occupation:
            raise UndertowError(
                f"the ranking cannot be drawn: occupation {occupation!r} has two numbers of {RANKED!r}; "
                "give one for each model and context"
            )
        by_occupation[occupation] = result
    return by_occupation


def _ranked(chosen: Mapping[str, Result], female_percent: Mapping[str, float]) -> list[_Place]:
    """Sort occupations from the woman's end to the man's."""
    places = [
        _Place(name, one.value, one.low, one.high, one.q < 0.05, float(female_percent.get(name, math.nan)))
        for name, one in chosen.items()
        if math.isfinite(one.value)
    ]
    return sorted(places, key=lambda place: (-place.gap, place.name))


class _Rows(NamedTuple):
    """Listed occupations from the top, in two parts if some are omitted between them."""

    upper: Sequence[_Place]
    lower: Sequence[_Place]
    row_px: float

    @property
    def places(self) -> list[_Place]:
        return [*self.upper, *self.lower]

    @property
    def high_px(self) -> float:
        return self.row_px * (len(self.places) + (1.5 if self.lower else 0.0))

    @property
    def cut_px(self) -> float:
        """Where others are left out, above the foot of the panel."""
        return self.row_px * (len(self.lower) + 0.75)

    @property
    def heights_px(self) -> Floats:
        """Of the middle of each row above the foot of the panel [row]."""
        rows = np.arange(len(self.places)) + 0.5
        return self.high_px - self.row_px * np.where(rows > len(self.upper), rows + 1.5, rows)


def _rows(places: Sequence[_Place]) -> _Rows:
    if len(places) > MAX_RANKED:
        return _Rows(places[: MAX_RANKED // 2], places[-(MAX_RANKED // 2) :], _ROW_PX)
    return _Rows(places, (), min(max(_SCATTER_HIGH_PX[0] / len(places), _ROW_PX), _MAX_ROW_PX))


def _cut(places: Sequence[_Place]) -> list[str]:
    if len(places) <= MAX_RANKED:
        return []
    return [
        f"Of {len(places):,} occupations the {MAX_RANKED // 2} at either end are listed, "
        f"and the {len(places) - MAX_RANKED:,} between them are not."
    ]


def _describe_empty(empty: Sequence[str]) -> list[str]:
    if not empty:
        return []
    names = ", ".join(named(name) for name in empty[:12])
    more = f", and {len(empty) - 12:,} more" if len(empty) > 12 else ""
    return [f"Left out, for want of a number: {shortened(names, 400)}{more}."]


def _ranking_caption(places: Sequence[_Place], context: str, model: str) -> str:
    n_significant = sum(place.significant for place in places)
    return (
        f"Occupations by what {named(model)} answers when it must name one of a woman and a man, {plain(context)}: probability of "
        "naming her less that of naming him, mean over the items, in percentage points. To the right of 0 it names the woman sooner, "
        "to the left the man. Line: 95% interval. The dot is filled, and the name bold, where q is below .05, as for "
        f"{n_significant if n_significant else 'none'} of these {len(places):,}."
    )


def _describe_counted(counted: Sequence[_Place], places: Sequence[_Place]) -> str:
    without = len(places) - len(counted)
    if len(counted) < 2:
        return f"The share of women who work in them is known for {len(counted) or 'none'} of them, too few to compare."
    panel = (
        "Right: the same against the share of women who work in the occupation, by the US Bureau of Labor Statistics"
    )
    if not without:
        return f"{panel}."
    know = "is" if without == 1 else "are"
    return f"{panel}; it is not known for {without:,} of the {len(places):,}, which {know} in the left panel only."


def _drawn_ranking(places: Sequence[_Place], empty: Sequence[str], of: tuple[str, str]) -> Sheet:
    context, model = of
    lead = (
        "When it must name one of a woman and a man: probability of her less that of him, mean over items, percentage points. "
        "Line: 95% interval. Filled and bold: q < .05."
    )
    title = f"Occupations by whom the model names · {plain(context)} · {named(model)}"
    sheet = Sheet(title, lead, [*_cut(places), *_describe_empty(empty)])
    counted = [place for place in places if math.isfinite(place.female_percent)]
    rows, beside = _rows(places), len(counted) > 1
    names = [_occupation(sheet, place) for place in rows.places]
    left = EDGE_PX + 8 + max(text_width_px(sheet.figure, name, SMALL_SIZE) for name in names)
    scatter_left = sheet.width_px - EDGE_PX - 4 - _SCATTER_PX
    width = (scatter_left - 58 if beside else sheet.width_px - EDGE_PX - 4) - left
    head_px = line_px(TEXT_SIZE) + line_px(SMALL_SIZE) + 8
    scatter_px = min(max(rows.high_px, _SCATTER_HIGH_PX[0]), _SCATTER_HIGH_PX[1]) if beside else 0.0
    body_px = max(rows.high_px, scatter_px + line_px(SMALL_SIZE) if beside else 0.0)
    top = sheet.settle(head_px + body_px + _FOOT_PX)
    _write_heads(sheet, (left, left + width), top, ("Ranking", _TO_MAN, _TO_WOMAN))
    bottom = top - head_px - rows.high_px
    _draw_gaps(sheet.axes(left, bottom, width, rows.high_px), rows, len(places) - len(rows.places))
    for name, place, at in zip(names, rows.places, bottom + rows.heights_px, strict=True):
        look: dict[str, Any] = {"weight": "bold" if place.significant else "normal", "size": SMALL_SIZE}
        sheet.write(left - 8, at, name, ha="right", va="center_baseline", **look)
    if beside:
        says = "By the share of women who work in them", _DOWN_TO_MAN, _UP_TO_WOMAN
        _write_heads(sheet, (scatter_left, scatter_left + _SCATTER_PX), top, says)
        _draw_scatter(sheet, counted, (scatter_left, top - head_px - scatter_px, _SCATTER_PX, scatter_px))
    return sheet


def _occupation(sheet: Sheet, place: _Place) -> str:
    return sheet.fit(named(place.name), _OCCUPATION_PX, SMALL_SIZE, "bold")


def _gap_range(places: Sequence[_Place]) -> tuple[float, float]:
    """Ends of an axis of gaps: around 0 and every interval."""
    ends = [0.0, *(end for place in places for end in place.ends)]
    low, high = min(ends), max(ends)
    wanting = max(_MIN_SPAN - (high - low), 0.0) / 2
    air = 0.05 * max(high - low, _MIN_SPAN)
    return low - wanting - air, high + wanting + air


def _dot(place: _Place, size: float) -> dict[str, Any]:
    face = place.colour if place.significant else "white"
    return {
        "linestyle": "none",
        "marker": "o",
        "markersize": size,
        "markerfacecolor": face,
        "markeredgecolor": place.colour,
        "markeredgewidth": 1.2,
    }


def _draw_gaps(axes: Axes, rows: _Rows, n_between: int) -> None:
    low, high = _gap_range(rows.places)
    ticks = even_ticks(low, high, most=5)
    axes.set(xlim=(low, high), ylim=(0, rows.high_px), yticks=[])
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.xaxis.grid(visible=True, color=GRID, linewidth=0.7)
    axes.axvline(0, color="#333333", linewidth=1.0, zorder=2)
    for place, at in zip(rows.places, rows.heights_px, strict=True):
        axes.plot(place.ends, [at, at], color=place.colour, linewidth=1.4, alpha=0.8, solid_capstyle="butt", zorder=3)
        axes.plot([place.gap], [at], zorder=4, clip_on=False, **_dot(place, 5.2))
    if n_between:
        axes.axhspan(rows.cut_px - rows.row_px / 2, rows.cut_px + rows.row_px / 2, color=PALE, zorder=2.4)
        look: dict[str, Any] = {"size": SMALL_SIZE, "color": GREY, "ha": "center", "va": "center_baseline", "zorder": 5}
        axes.text((low + high) / 2, rows.cut_px, f"{n_between:,} more between these", **look)


def _write_heads(sheet: Sheet, ends: tuple[float, float], top: float, says: tuple[str, str, str]) -> None:
    """Write the title and the directions above a panel."""
    title, man, woman = says
    sheet.write(ends[0], top, title, size=TEXT_SIZE, weight="bold", va="top")
    at = top - line_px(TEXT_SIZE) - 2
    sheet.write(ends[0], at, man, size=SMALL_SIZE, color=as_ink(_MAN), va="top")
    sheet.write(ends[1], at, woman, size=SMALL_SIZE, color=as_ink(_WOMAN), ha="right", va="top")


def _draw_scatter(sheet: Sheet, places: Sequence[_Place], box: tuple[float, float, float, float]) -> None:
    left, bottom, width = box[:3]
    axes = sheet.axes(*box)
    low, high = _gap_range(places)
    ticks = even_ticks(low, high)
    axes.set(xlim=(-4, 104), ylim=(low, high))
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.yaxis.grid(visible=True, color=GRID, linewidth=0.7)
    axes.axhline(0, color="#333333", linewidth=1.0, zorder=1.5)
    axes.axvline(50, color=GRID, linewidth=0.9, zorder=1.2)
    for place in places:
        x = place.female_percent
        axes.plot([x, x], place.ends, color=place.colour, linewidth=1.0, alpha=0.35, solid_capstyle="butt", zorder=2)
        axes.plot([x], [place.gap], zorder=4, clip_on=False, **_dot(place, 5.2))
    words = "women who work in the occupation, percent (BLS)"
    sheet.write(left + width / 2, bottom - _FOOT_PX - 2, words, size=SMALL_SIZE, ha="center", va="top")
    spots = _spots(sheet, axes, places)
    if spots:
        draw_names(sheet, spots, float(axes.transData.transform((0, 0))[1]))


def _spots(sheet: Sheet, axes: Axes, places: Sequence[_Place]) -> list[Spot]:
    """Choose the points to label: those with the largest gaps, as many as fit."""
    box = axes.get_window_extent()
    room = (box.x0 + 2, box.y0 + 2, box.x1 - 2, box.y1 - 2)
    by_gap = sorted(places, key=lambda place: (not place.significant, -abs(place.gap), place.name))
    spots: list[Spot] = []
    area_px2 = _POINT_PX2 * len(places)
    for place in by_gap:
        name = sheet.fit(named(place.name), _LABEL_PX)
        width = text_width_px(sheet.figure, name, SMALL_SIZE, "normal") + 2
        area_px2 += width * line_px(SMALL_SIZE)
        if area_px2 > _LABEL_AREA * box.width * box.height:
            break
        x, y = (float(at) for at in axes.transData.transform((place.female_percent, place.gap)))
        bar = [float(axes.transData.transform((0, end))[1]) for end in place.ends]
        spots.append(Spot(x=x, y=y, radius=2.6 * DPI / 72, bar=(bar[0], bar[1]), room=room, name=name, width=width))
    return spots


def _describe_ranking(places: Sequence[_Place]) -> list[str]:
    """Alt text of both ends of the ranking."""
    most = min(_ALT_PLACES_PER_END, len(places) // 2)
    said = [
        f"{len(places):,} occupations by the probability of naming the woman less that of naming the man, in percentage points.",
        f"Furthest towards the woman: {'; '.join(map(_describe_place, places[:most]))}.",
        f"Furthest towards the man: {'; '.join(map(_describe_place, reversed(places[-most:])))}.",
    ]
    counted = [place for place in places if math.isfinite(place.female_percent)]
    if len(counted) > 1:
        each = [
            f"{named(place.name)} {number(place.female_percent, 0)}%, {_signed(place.gap)}"
            for place in sorted(counted, key=lambda place: place.female_percent)[:_ALT_POINTS]
        ]
        more = f"; and {len(counted) - _ALT_POINTS:,} more" if len(counted) > _ALT_POINTS else ""
        said.append(f"By the share of women who work in them: {'; '.join(each)}{more}.")
    return said


def _describe_place(place: _Place) -> str:
    text = f"{named(place.name)} {_signed(place.gap)}"
    if place.ends[0] < place.ends[1]:
        text += f" [{number(place.low, 1)}, {number(place.high, 1)}]"
    return f"{text}, q below .05" if place.significant else text


def _signed(gap: float) -> str:
    text = number(gap, 1)
    return f"+{text}" if gap > 0 and text != "0.0" else text
