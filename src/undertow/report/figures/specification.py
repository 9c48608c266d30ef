"""Figures of task specification: scores of occupations, one occupation over all dates, and ROC curves.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI),
figures 4 and 5; the ROC curves are not in the papers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from undertow.report.formatting import correlation, number, plain, signed, spaced
from undertow.report.sheet import DASHED, Sheet, fitted, hover, mark
from undertow.report.style import COLOURS, GREY, INK, MARKERS, SMALL_SIZE, TEXT_SIZE, lettering
from undertow.types import Floats

if TYPE_CHECKING:
    import pandas as pd

DECIDED, UNDECIDED = COLOURS[0], COLOURS[1]
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
PARTICIPANTS = {"man": "s", "woman": "o", "someone": "^", "other": "D", "male": "s", "female": "o", "unspecified": "D"}
_PARTICIPANTS = {"other": "own participant", "unspecified": "neither"}
_ROW_IN = 0.16
_MARK_IN = 0.35
"""Width of a number below the axis."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One ROC curve.

    Attributes:
        false_positive, true_positive: points of the curve, from (0, 0) to (1, 1) [corner].
        area: area under the curve, in 0 to 1.
        low, high: its 95% interval; NaN where there is none.
    """

    name: str
    false_positive: Floats
    true_positive: Floats
    area: float
    low: float
    high: float


def occupation_panels(
    panels: Mapping[str, pd.DataFrame], score: str, threshold_percent: float, *, title: str, unit: str
) -> Figure:
    """Draw every sentence's score, with a row for each occupation in order of its share of women (figures 5 and 6).

    Several models, or parts of the sentences, are side by side with the same rows and axis.

    Args:
        panels: a row per sentence, with `cluster`, `well_specified` and the score in percent, and optionally `percent_female`,
            `participant_class` and `coreferent`; by title of the panel.
        score: the column to draw.
        threshold_percent: where the line stands that a flagged sentence is beyond.
        title: broken into lines where it is too long.
        unit: what the axis says.
    """
    import pandas as pd

    scored = pd.concat(list(panels.values()), ignore_index=True)
    rows = occupation_order(scored)
    place = {name: index for index, name in enumerate(rows)}
    with lettering(title + unit + "".join([*rows, *panels])):
        sheet = Sheet(title)
        sheet.add_key((_kind_label(kind), mark(linestyle="none", **_look(kind))) for kind in _kinds(scored))
        all_axes = sheet.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        # Linear from 0 to the threshold, logarithmic above it.
        threshold = threshold_percent if threshold_percent > 0 else 0.5
        largest = max(float(np.nanmax(scored[score].to_numpy(dtype=np.float64), initial=1.0)), 2 * threshold_percent)
        marks = {0.0, *(mark for mark in (threshold, 1, 2, 5, 10, 20, 50, 100) if threshold <= mark <= largest * 1.15)}
        if len(panels) * len(marks) > sheet.inner_in / _MARK_IN:
            marks = {0.0, threshold, *(mark for mark in (10, 100) if mark <= largest * 1.15)}
        column_in = 0.7 * sheet.inner_in / len(panels)
        for axes, (head, of_panel) in zip(all_axes, panels.items(), strict=True):
            for kind, chosen in _kinds(of_panel).items():
                part = of_panel[chosen]
                at = [place[cluster] for cluster in part["cluster"].astype(str)]
                axes.plot(part[score], at, linestyle="none", clip_on=False, **_look(kind))
                names = part["text" if "text" in part else "cluster"].astype(str)
                labels = [f"{name}: {number(value, 1)}" for name, value in zip(names, part[score], strict=True)]
                hover(axes, part[score], at, labels)
            axes.set_xscale("symlog", linthresh=threshold, linscale=0.6)
            axes.xaxis.set_major_locator(FixedLocator(sorted(marks)))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda mark, _: f"{mark:g}"))
            axes.axvline(threshold_percent, color=INK, linewidth=1.0, linestyle=DASHED, zorder=2)
            axes.set(xlim=(-0.03 * threshold, largest * 1.15), ylim=(len(rows) - 0.4, -0.6))
            axes.grid(axis="y")
            if head:
                axes.set_title(fitted(plain(head), column_in - 0.1, TEXT_SIZE, "bold", lines=2))
        unit_text = f"{plain(unit)}; right of the dashed line ({threshold_percent:g}): flagged"
        label = fitted(unit_text, 0.7 * sheet.inner_in, lines=3)
        if len(panels) > 1:
            sheet.supxlabel(label, fontsize=SMALL_SIZE, color=INK)
        else:
            all_axes[0].set_xlabel(label)
        labels = [fitted(name, 0.3 * sheet.inner_in, 7.5) for name in rows.values()]
        all_axes[0].set_yticks(range(len(rows)), labels, size=7.5)
        return sheet.finish([all_axes[0]], _ROW_IN * (len(rows) + 0.2))


def occupation_order(scored: pd.DataFrame) -> dict[str, str]:
    """Labels of clusters, from the most male to the most female occupation; without shares, in the given order."""
    names = dict.fromkeys(scored["cluster"].astype(str))
    if "percent_female" not in scored or scored["percent_female"].isna().all():
        return {name: name for name in names}
    share = scored.groupby(scored["cluster"].astype(str))["percent_female"].first()
    ordered = sorted(names, key=lambda name: (math.isnan(share[name]), share[name]))
    return {name: f"{name} · {share[name]:.0f}%" if math.isfinite(share[name]) else name for name in ordered}


_Kind = tuple[bool, str, int]
"""Whether the sentence is specified, the participant's class, and whose the pronoun is (-1 if unknown)."""


def _kinds(scored: pd.DataFrame) -> Mapping[_Kind, Any]:
    """Rows of each kind of sentence; specified ones last, so that their dots are on top."""
    decided = scored["well_specified"].astype(bool)
    nobody = decided.map(lambda _: "")
    participant = scored["participant_class"].astype(str) if "participant_class" in scored else nobody
    whose = scored["coreferent"].fillna(-1).astype(int) if "coreferent" in scored else decided.map(lambda _: -1)
    kinds = sorted(set(zip(decided, participant, whose, strict=True)), key=lambda kind: (kind[0], kind[2], kind[1]))
    return {kind: (decided == kind[0]) & (participant == kind[1]) & (whose == kind[2]) for kind in kinds}


def _look(kind: _Kind) -> dict[str, Any]:
    decided, participant, whose = kind
    colour = DECIDED if decided else UNDECIDED
    return {
        "marker": PARTICIPANTS.get(participant, "o"),
        "markersize": 4.4,
        "color": colour,
        "markerfacecolor": "white" if whose == 0 and not decided else colour,
        "markeredgecolor": colour,
        "markeredgewidth": 0.8,
        "alpha": 0.85,
        "zorder": 4 if decided else 3,
    }


def _kind_label(kind: _Kind) -> str:
    decided, participant, whose = kind
    label = "decides the blank" if decided else "does not decide"
    if participant in ("male", "female", "unspecified"):
        return f"{participant if participant != 'unspecified' else 'nothing'} before the occupation: {label}"
    who = _PARTICIPANTS.get(participant, participant)
    whose_is_it = {0: "pronoun the professional's", 1: "pronoun the participant's"}.get(whose, "")
    people = ", ".join(filter(None, [who, whose_is_it]))
    return f"{people}: specified" if people and decided else people or label


def over_w(rows: pd.DataFrame, group: str, *, title: str) -> Figure:
    """Draw the mass of one word group in every sentence of one occupation, over all values of W (figure 4).

    Args:
        rows: a row per sentence and W value, with `sentence`, `text`, `w`, `w_index`, `well_specified` if known, and the group's mass
            in percent.
        group: the column to draw.
        title: broken into lines where it is too long.
    """
    with lettering("".join([title, group, *rows["text"].astype(str).unique(), *map(str, rows.get("w_name", ()))])):
        lines, fits, texts = [], [], []
        for index, name in enumerate(dict.fromkeys(rows["sentence"].astype(str))):
            part = rows[rows["sentence"] == name].sort_values("w_index")
            decided = bool(part["well_specified"].iloc[0]) if "well_specified" in part else False
            colour, dash = DECIDED if decided else UNDECIDED, DASHES[index % len(DASHES)]
            look = {"linestyle": dash, "marker": MARKERS[index % len(MARKERS)], "markersize": 3.2}
            at, shares = part["w_index"].to_numpy(dtype=np.float64), part[group].to_numpy(dtype=np.float64)
            lines.append(Line2D(at, shares, color=colour, linewidth=0.8, alpha=0.6, **look))
            first = part.iloc[0]
            text = str(first["text"]).replace(str(first["w"]), f"[{first.get('w_name', 'W')}]", 1)
            if len(at) > 1:
                slope, start = np.polyfit(at, shares, 1)
                fits.append(Line2D(at, start + slope * at, color=colour, linewidth=1.6, linestyle=dash))
                text += f" ({signed(slope, 2)} per step)"
            texts.append(text)
        about = "Blue: specified sentences. Orange: underspecified sentences. Straight lines are least-squares fits."
        sheet = Sheet(title, f"{plain(group)} words, percent of all groups. {about}")
        sheet.add_key(zip(texts, lines, strict=True), columns=1, handlelength=3)
        axes = sheet.add_subplot()
        for line in [*lines, *fits]:
            axes.add_line(line)
        labels = [f"{w}: {number(share, 1)}%" for w, share in zip(rows["w"], rows[group], strict=True)]
        hover(axes, rows["w_index"], rows[group], labels)
        values = rows.drop_duplicates("w_index").sort_values("w_index")
        n_ticks = max(2, min(len(values), int(1.5 * sheet.inner_in)))
        ticks = values.iloc[np.unique(np.linspace(0, len(values) - 1, n_ticks).round().astype(int))]
        tick_in = (sheet.inner_in - 0.5) / n_ticks
        axes.set_xticks(ticks["w_index"], [fitted(str(value), tick_in) for value in ticks["w"]])
        axes.autoscale_view()
        axes.set_ylim(-2, 102)
        axes.grid(axis="y")
        return sheet.finish([axes], 3.0)


def roc(curves: Sequence[Curve], *, title: str) -> Figure:
    """Draw ROC curves of all scores on the same sentences, in descending order of area."""
    looks = {curve.name: (COLOURS[at % len(COLOURS)], DASHES[at % len(DASHES)]) for at, curve in enumerate(curves)}
    with lettering(title + "".join(curve.name for curve in curves)):
        lead = "Area under the curve (95% interval) of each score on the same sentences, the largest first."
        sheet, lines = Sheet(title, lead), []
        for curve in sorted(curves, key=lambda curve: -curve.area):
            colour, dash = looks[curve.name]
            ends = f" ({correlation(curve.low)} to {correlation(curve.high)})" if math.isfinite(curve.low) else ""
            label = f"{spaced(curve.name)} {correlation(curve.area)}{ends}"
            look: dict[str, Any] = {"color": colour, "linestyle": dash, "linewidth": 1.5, "label": label}
            lines.append(Line2D(curve.false_positive, curve.true_positive, **look))
        lines.append(Line2D([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=(0, (2, 2)), label="chance .50"))
        sheet.add_key((str(line.get_label()), line) for line in lines)
        axes = sheet.add_subplot()
        for line in lines:
            axes.add_line(line)
        even = np.linspace(0, 1, 6)
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xticks=even, yticks=even, aspect="equal", anchor="W")
        axes.set_xlabel("share of specified sentences flagged (1 \N{MINUS SIGN} TNR)")
        axes.set_ylabel("share of underspecified sentences flagged (TPR)")
        axes.grid()
        return sheet.finish([axes], min(4.0, sheet.inner_in - 0.6))
