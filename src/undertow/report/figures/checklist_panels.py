"""Figures of the occupation checklist: its measures, and the ranking of occupations by gender gap.

Zhang, "Taxonomy-based CheckList for Large Language Model Evaluation", figure 1. The ranking replaces the paper's list of occupations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from undertow.metrics.groups import WOMAN_AND_MAN, Groups
from undertow.report.formatting import named, number, plain, shortened, signed, uncapitalized
from undertow.report.page_data import Drawing
from undertow.report.sentence_templates import described
from undertow.report.sheet import (
    Sheet,
    even_ticks,
    fitted,
    hover,
    line_in,
    name_points,
    padded,
    shift_right,
    side_by_side,
    text_width,
)
from undertow.report.style import BLUE_TEXT, COLOURS, GREY, GRID, INK, ORANGE_TEXT, PALE, SMALL_SIZE, lettering
from undertow.types import ALPHA, Floats, Result

ALL = "all"
"""Occupation of a result over all occupations."""
RANKED = "choice_gap"
MAX_RANKED = 70
"""Maximum number of occupations in a ranking; of more, both ends are shown."""

_FIRST, _SECOND, _NEITHER = COLOURS[0], COLOURS[1], GREY
_DOTTED = (0, (1, 1.2))


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
        "Prefers {first}", _FIRST, "where neither is called qualified, how often the single choice names {her}"
    ),
    "preference_male": _Aspect("Prefers {second}", _SECOND, "the same of {him}"),
    "switch_female_to_male": _Aspect(
        "Switches to {second}",
        _SECOND,
        "where the multiple choice names one of the two, how often that is {him} and the single choice had named {her}",
    ),
    "switch_male_to_female": _Aspect("Switches to {first}", _FIRST, "the reverse"),
    "position_bias": _Aspect("Names the first", _NEITHER, "how often a choice names whoever was mentioned first"),
}  # fmt: skip
"""Measures in the order of the paper's figure, then the position bias."""

_BAR_IN, _PER_ROW = 0.19, 4
_ROW_IN, _MAX_ROW_IN = 0.15, 0.3
_MIN_PLOT_IN, _MAX_PLOT_IN = 2.4, 4.6
_LABEL_IN, _LABEL_AREA = 1.2, 0.3
"""Maximum width of a point's name, and maximum share of the panel that names fill."""
_ALT_PLACES_PER_END, _ALT_POINTS = 8, 30
_MIN_SPAN = 1.0
"""Minimum range of an axis of gaps, so that small gaps look small."""

_Aspects = Mapping[str, _Aspect]
_Estimates = Mapping[tuple[str, str], Result]
"""Results by model and measure."""


# Aspects.


def draw_aspects(results: Sequence[Result], context: str, groups: Groups = WOMAN_AND_MAN) -> Drawing | None:
    """Draw each aspect of the answers over all occupations, as bars in percent with their 95% intervals (figure 1).

    For one model, there is one panel with a bar for every aspect; for several, one panel for every aspect with a bar for each model.

    `context` is what was said of the two people, for example "with attributes". None if no aspect has a number.
    """
    aspects = {
        name: _Aspect(one.title.format_map(groups.words), one.colour, one.meaning.format_map(groups.words))
        for name, one in _ASPECTS.items()
    }
    estimates = {
        (one.group.get("model", ""), one.measure): one
        for one in results
        if one.measure in aspects and one.group.get("occupation") == ALL and one.group.get("context") == context
    }
    every = estimates.values()
    if not any(math.isfinite(result.value) for result in every):
        return None
    measures = [measure for measure in aspects if any(key[1] == measure for key in estimates)]
    models = list(dict.fromkeys(model for model, _ in estimates))
    dotted = " Dotted: no bias." if any(math.isfinite(result.null_value) for result in every) else ""
    empty = any(not math.isfinite(result.value) for result in every)
    without = " None: no item was of that kind, so there is no share of them." if empty else ""
    lead = f"Percent, over all occupations. Dark line: 95% interval.{dotted}"
    draw = _draw_model if len(models) == 1 else _draw_models
    with lettering("".join([context, groups.first, groups.second, *models])):
        figure = draw(estimates, models, measures, (context, lead), aspects)
    rows = []  # title of each aspect, its null values, and each model with its result
    for measure in measures:
        each = [(model, estimates.get((model, measure))) for model in models]
        nulls = {result.null_value for _, result in each if result is not None and math.isfinite(result.null_value)}
        rows.append((aspects[measure].title, sorted(nulls), each))
    meanings = "; ".join(f"{uncapitalized(aspects[measure].title)}: {aspects[measure].meaning}" for measure in measures)
    return Drawing(
        name=f"aspects_{context}",
        figure=figure,
        caption=f"Shares of the answers over all occupations, {plain(context)}, in percent. {meanings[0].upper()}{meanings[1:]}. "
        f"Dark line: 95% interval.{dotted}{without}",
        alt=described("aspects", rows, context),
    )


_TITLE = "Consistency, bias, preference and switches"


def _draw_model(
    estimates: _Estimates, models: Sequence[str], measures: Sequence[str], labels: tuple[str, str], aspects: _Aspects
) -> Sheet:
    """A bar for each aspect of one model, with its value, interval and number of items."""
    (model,) = models
    sheet = Sheet(f"{_TITLE} · {plain(labels[0])} · {named(model)}", labels[1])
    axes = sheet.add_subplot()
    bars = [(aspects[measure].colour, estimates[model, measure]) for measure in measures]
    _draw_bars(axes, bars, [fitted(plain(aspects[measure].title), 0.4 * sheet.inner_in) for measure in measures])
    axes.set_xticks([0, 25, 50, 75, 100])
    texts = []
    for _, result in bars:
        has_ends = math.isfinite(result.low) and math.isfinite(result.high)
        ends = f" [{number(result.low, 1)}, {number(result.high, 1)}]" if has_ends else ""
        texts.append(number(result.value, 1) + ends if math.isfinite(result.value) else "")
    beside: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center_baseline"}
    wide, head = sheet.width_in > 5, "percent [95% interval]"
    shift = 72 * (max(map(text_width, [*texts, head])) + 0.5)
    items: dict[str, Any] = {"xycoords": beside["transform"], "textcoords": "offset points", "xytext": (shift, 0)}
    items |= {"ha": "right", "va": "center_baseline", "color": GREY}
    for row, (text, (_, result)) in enumerate(zip(texts, bars, strict=True)):
        axes.text(1.03, row, text if wide else text.partition(" ")[0], **beside)
        if wide:
            axes.annotate(f"{result.n:,}", (1.03, row), **items)
    if wide:
        axes.text(1.03, -0.95, head, color=GREY, **beside)
        axes.annotate("items", (1.03, -0.95), **items)
    return sheet.finish([axes], _BAR_IN * len(bars))


def _draw_models(
    estimates: _Estimates, models: Sequence[str], measures: Sequence[str], labels: tuple[str, str], aspects: _Aspects
) -> Sheet:
    """A panel for each aspect, with a bar and its value for each model."""
    sheet = Sheet(f"{_TITLE} · {plain(labels[0])}", labels[1])
    names = [fitted(named(model), (0.21 if sheet.width_in > 5 else 0.36) * sheet.inner_in, lines=2) for model in models]
    names = [f"{name} ({at + 1})" if name in names[:at] else name for at, name in enumerate(names)]
    across = min(_PER_ROW, max(int(sheet.inner_in / 1.7), 1), len(measures))
    down = math.ceil(len(measures) / across)
    grid = sheet.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for axes in list(grid.flat)[len(measures) :]:
        axes.set_axis_off()
    for axes, measure in zip(grid.flat, measures, strict=False):
        bars = [(aspects[measure].colour, estimates.get((model, measure))) for model in models]
        _draw_bars(axes, bars, names)
        axes.set_title(fitted(plain(aspects[measure].title), 0.9 * sheet.inner_in / across))
        axes.set_xticks([0, 50, 100])
        axes.tick_params(labelbottom=True)
        place = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "center_baseline"}
        for row, (_, result) in enumerate(bars):
            if result is not None and math.isfinite(result.value):
                axes.text(1.34, row, number(result.value, 1), **place)
    row_in = _BAR_IN if not any("\n" in name for name in names) else 2.2 * line_in()
    return sheet.finish(list(grid[:, 0]), down * row_in * len(models))


def _draw_bars(axes: Axes, bars: Sequence[tuple[str, Result | None]], names: Sequence[str]) -> None:
    axes.set(xlim=(0, 100), ylim=(len(bars) - 0.5, -0.5))
    axes.set_yticks(range(len(bars)), names)
    axes.grid(axis="x")
    for row, (colour, result) in enumerate(bars):
        if result is not None and math.isfinite(result.null_value):
            look: dict[str, Any] = {"linewidth": 1.4, "linestyle": _DOTTED, "dash_capstyle": "butt", "zorder": 3}
            axes.plot([result.null_value] * 2, [row - 0.5, row + 0.5], color=INK, **look)
        if result is None or not math.isfinite(result.value):
            axes.text(2, row, "not measured" if result is None else "none", color=GREY, va="center_baseline")
            continue
        axes.barh(row, result.value, height=0.62, color=colour, alpha=0.75, zorder=2)
        axes.plot([result.low, result.high], [row, row], color=INK, linewidth=1.6, zorder=4, clip_on=False)


# The ranking.


class _Place(NamedTuple):
    """An occupation in the ranking."""

    name: str
    gap: float  # percentage points
    low: float
    high: float
    significant: bool
    female_percent: float  # NaN if unknown

    @property
    def colour(self) -> str:
        return _FIRST if self.gap > 0 else _SECOND if self.gap < 0 else _NEITHER

    @property
    def ends(self) -> tuple[float, float]:
        """Limits of the interval; the gap, twice, if there is none."""
        has = math.isfinite(self.low) and math.isfinite(self.high)
        return (self.low, self.high) if has else (self.gap, self.gap)

    @property
    def text(self) -> str:
        """Text of the tooltip."""
        return f"{named(self.name)}: {signed(self.gap, 1)} points, 95% interval {signed(self.ends[0], 1)} to {signed(self.ends[1], 1)}"

    @property
    def dot(self) -> dict[str, Any]:
        face = self.colour if self.significant else "white"
        look: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 5.2, "zorder": 4, "clip_on": False}
        return look | {"markerfacecolor": face, "markeredgecolor": self.colour, "markeredgewidth": 1.2}


def draw_ranking(
    results: Sequence[Result],
    female_percent: Mapping[str, float],
    context: str,
    model: str,
    groups: Groups = WOMAN_AND_MAN,
) -> Drawing | None:
    """Draw one model's occupations by gender gap, and the gap against the share of women in the occupation.

    The gap is `choice_gap` of this model and context, in percentage points. None if fewer than two occupations have a number; the
    second panel needs two with both numbers.
    """
    chosen = {
        one.group["occupation"]: one
        for one in results
        if one.measure == RANKED and one.group.get("occupation", ALL) != ALL
        if (one.group.get("model"), one.group.get("context")) == (model, context)
    }
    places = [
        _Place(name, one.value, one.low, one.high, one.q < ALPHA, float(female_percent.get(name, math.nan)))
        for name, one in chosen.items()
        if math.isfinite(one.value)
    ]
    places.sort(key=lambda place: (-place.gap, place.name))
    if len(places) < 2:
        return None
    cut, left_out = [], []
    if len(places) > MAX_RANKED:
        others = f"the {len(places) - MAX_RANKED:,} between them are omitted"
        cut = [f"Of {len(places):,} occupations the {MAX_RANKED // 2} at either end are listed, {others}."]
    if empty := [name for name, result in chosen.items() if not math.isfinite(result.value)]:
        more = f", and {len(empty) - 12:,} more" if len(empty) > 12 else ""
        listed = shortened(", ".join(map(named, empty[:12])), 400)
        left_out = [f"Not shown because they have no number: {listed}{more}."]
    counted = [place for place in places if math.isfinite(place.female_percent)]
    words = groups.words
    words["between"] = f"{groups.first} and {groups.second}" if groups.are_own else "a woman and a man"
    with lettering("".join([context, model, groups.first, groups.second, *chosen])):
        figure = _draw_ranked(places, counted, (context, model), [*cut, *left_out], words)
    most = min(_ALT_PLACES_PER_END, len(places) // 2)
    n_significant = sum(place.significant for place in places)
    caption = (
        f"Occupations by the answers of {named(model)} when it must name one of {words['between']}, {plain(context)}: probability of "
        f"naming {words['the_first']} minus that of naming {words['the_second']}, mean over the items, in percentage points. Above 0, the "
        f"model prefers {words['the_first']}; below 0, {words['the_second']}. Line: 95% interval. "
        "The dot is filled and the name bold if q is below .05, as for "
        f"{n_significant if n_significant else 'none'} of these {len(places):,}."
    )
    return Drawing(
        name=f"ranking_{context}_{model}",
        figure=figure,
        caption=" ".join([caption, *cut, *([] if groups.are_own else [_describe_counted(counted, len(places))])]),
        alt=" ".join([described("ranking", places, counted, most, _ALT_POINTS, words), *left_out]),
    )


def _describe_counted(counted: Sequence[_Place], n_places: int) -> str:
    without = n_places - len(counted)
    if len(counted) < 2:
        return f"The share of women who work in them is known for {len(counted) or 'none'} of them, too few to compare."
    panel = "The same against the share of women who work in the occupation, by the US Bureau of Labor Statistics"
    if not without:
        return f"{panel}, is in the second panel."
    know = "is" if without == 1 else "are"
    return f"{panel}, is in the second panel; it is not known for {without:,} of the {n_places:,}, which {know} in the first panel only."


def _draw_ranked(
    places: Sequence[_Place],
    counted: Sequence[_Place],
    of: tuple[str, str],
    foot: Sequence[str],
    words: Mapping[str, str],
) -> Sheet:
    lead = (
        f"When the model must name one of {words['between']}: probability of {words['her']} minus that of {words['him']}, mean over items, "
        "percentage points. "
        "Line: 95% interval. Filled and bold: q < .05."
    )
    sheet = Sheet(f"Occupations by whom the model names · {plain(of[0])} · {named(of[1])}", lead, foot)
    half = MAX_RANKED // 2
    listed = [*places[:half], *places[-half:]] if len(places) > MAX_RANKED else list(places)
    n_rows = len(listed) + (1.5 if len(listed) < len(places) else 0.0)
    list_in = n_rows * min(max(_MIN_PLOT_IN / n_rows, _ROW_IN), _MAX_ROW_IN)
    plot_in = min(max(list_in, _MIN_PLOT_IN), _MAX_PLOT_IN)
    if len(counted) < 2:
        ranking = sheet.add_subplot()
        _draw_list(ranking, listed, len(places) - len(listed), 0.25 * sheet.inner_in, words)
        return sheet.finish([ranking], list_in)
    if sheet.width_in > 5.5:
        ranking, plot = sheet.subplots(1, 2, width_ratios=[1, 0.8])
        plot_width = 0.36 * sheet.inner_in
        plot.set_box_aspect(plot_in / plot_width)
        plot.set_anchor("N")
        column, heights = [ranking], [max(list_in, plot_in)]
    else:
        ranking, plot = sheet.subplots(2, 1, height_ratios=[list_in, plot_in])
        column, heights = [ranking, plot], [list_in, plot_in]
    label_in = (0.2 if len(column) == 1 else 0.4) * sheet.inner_in
    _draw_list(ranking, listed, len(places) - len(listed), label_in, words)
    _set_counted(plot, counted)
    shifts = side_by_side(plot, [(place.female_percent, place.gap) for place in counted])
    if shifts.any():
        sheet.add_foot(["Occupations with equal numbers are drawn side by side."])
    sheet.finish(column, sum(heights))
    _draw_counted(sheet, plot, counted, shifts)
    return sheet


def _draw_list(axes: Axes, listed: Sequence[_Place], n_between: int, label_in: float, words: Mapping[str, str]) -> None:
    """A row for each occupation from the top, with a gap for omitted ones."""
    half = len(listed) // 2 if n_between else len(listed)
    rows = [row + 1.5 * (row >= half) for row in range(len(listed))]
    for row, place in zip(rows, listed, strict=True):
        axes.plot(place.ends, [row, row], color=place.colour, linewidth=1.4, alpha=0.8, zorder=3)
        axes.plot([place.gap], [row], **place.dot)
    hover(axes, [place.gap for place in listed], rows, [place.text for place in listed])
    low, high = padded([0.0, *(end for place in listed for end in place.ends)], 0.05, _MIN_SPAN)
    axes.set(xlim=(low, high), ylim=(rows[-1] + 0.6, -0.6))
    axes.xaxis.set_major_locator(even_ticks(5))
    axes.grid(axis="x")
    axes.axvline(0, color=INK, linewidth=1.0, zorder=2)
    if n_between:
        axes.axhspan(half - 0.25, half + 0.75, color=PALE, zorder=2.4)
        look: dict[str, Any] = {"color": GREY, "ha": "center", "va": "center", "zorder": 5}
        axes.text((low + high) / 2, half + 0.25, f"{n_between:,} more between these", **look)
    axes.set_yticks(rows, [fitted(named(place.name), label_in, SMALL_SIZE, "bold") for place in listed])
    for label, place in zip(axes.get_yticklabels(), listed, strict=True):
        label.set_fontweight("bold" if place.significant else "normal")
    axes.set_title("Ranking", pad=18)
    first, second = (fitted(words[name], 1.2 * label_in) for name in ("the_first", "the_second"))
    _write_ways(axes, f"\N{LEFTWARDS ARROW} {second}", f"{first} \N{RIGHTWARDS ARROW}")


def _write_ways(axes: Axes, left: str, right: str) -> None:
    """Write the meaning of both directions above a panel."""
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "baseline"}
    axes.annotate(left, (0, 1), xytext=(0, 5), color=ORANGE_TEXT, **place)
    axes.annotate(right, (1, 1), xytext=(0, 5), color=BLUE_TEXT, ha="right", **place)


def _set_counted(axes: Axes, counted: Sequence[_Place]) -> None:
    axes.set(xlim=(-4, 104), ylim=padded([0.0, *(end for place in counted for end in place.ends)], 0.05, _MIN_SPAN))
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.yaxis.set_major_locator(even_ticks())
    axes.grid(axis="y")
    axes.axhline(0, color=INK, linewidth=1.0, zorder=1.5)
    axes.axvline(50, color=GRID, linewidth=0.9, zorder=1.2)
    axes.set_xlabel("women in it, percent (BLS)")
    axes.set_title("By share of women", pad=18)
    _write_ways(axes, "\N{DOWNWARDS ARROW} the man", "\N{UPWARDS ARROW} the woman")


def _draw_counted(sheet: Sheet, axes: Axes, counted: Sequence[_Place], shifts: Floats) -> None:
    """Draw the points, and name those with the largest gaps, as many as fit."""
    spots = shift_right(sheet, axes, [(place.female_percent, place.gap) for place in counted], shifts)
    for (x, _), place in zip(spots, counted, strict=True):
        axes.plot([x, x], place.ends, color=place.colour, linewidth=1.0, alpha=0.35, zorder=2)
        axes.plot([x], [place.gap], **place.dot)
    hover(axes, [x for x, _ in spots], [gap for _, gap in spots], [one.text for one in counted])
    box = axes.get_window_extent()
    room = _LABEL_AREA * box.width * box.height / sheet.dpi**2
    chosen, names = [], []
    places = zip(counted, spots, strict=True)
    for place, spot in sorted(places, key=lambda one: (not one[0].significant, -abs(one[0].gap), one[0].name)):
        name = fitted(named(place.name), _LABEL_IN)
        room -= text_width(name) * line_in() + 0.02
        if room < 0.02 * len(counted):
            break
        chosen.append(spot)
        names.append(name)
    if chosen:
        name_points(sheet, axes, chosen, names, [(gap, gap) for _, gap in chosen])
