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
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from undertow.report.formatting import number, plain, shortened
from undertow.report.style import lettering
from undertow.types import Floats

if TYPE_CHECKING:
    import pandas as pd

DPI = 100
WIDTH_IN = 8.0
DECIDED, UNDECIDED = "#0072B2", "#D55E00"
"""Okabe and Ito's blue and vermilion, told apart without full colour vision."""
CURVES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A8A")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
PARTICIPANTS = {"man": "s", "woman": "o", "someone": "^", "other": "D", "male": "s", "female": "o", "unspecified": "D"}
_SAID = {"other": "own participant", "unspecified": "neither"}
_ROW_IN = 0.16
_GREY = "#8a8a8a"
_LABEL_CHARACTERS = 28
_TITLE_CHARACTERS = 80
_NAME_CHARACTERS = 30


@dataclass(frozen=True, slots=True)
class Curve:
    """One ROC curve.

    Attributes:
        name: of the score.
        false_positive, true_positive: the corners, from (0, 0) to (1, 1) [corner].
        area: under the curve, in 0 to 1.
        low, high: its 95% interval; NaN where there is none.
    """

    name: str
    false_positive: Floats
    true_positive: Floats
    area: float
    low: float
    high: float


def occupations(scored: pd.DataFrame, score: str, threshold_percent: float, *, title: str, unit: str) -> Figure:
    """Every sentence's score, a row for each occupation in order of its share of women (figure 5).

    Args:
        scored: a row per sentence, with `cluster`, `well_specified` and the score in percent; `percent_female`,
            `participant_class` and `coreferent` where there are such.
        score: the column to draw.
        threshold_percent: where the line stands that a flagged sentence is beyond.
        title: of the figure.
        unit: what the axis says.
    """
    rows = occupation_order(scored)
    place = {name: index for index, name in enumerate(rows)}
    with lettering(title + unit + "".join(rows)):
        figure = Figure(figsize=(WIDTH_IN, 1.6 + _ROW_IN * len(rows)), dpi=DPI, layout="constrained")
        axes = figure.add_subplot()
        kinds = _kinds(scored)
        for kind, chosen in kinds.items():
            part = scored[chosen]
            at = [place[name] for name in part["cluster"].astype(str)]
            axes.plot(part[score], at, linestyle="none", clip_on=False, **_look(kind))
        _score_axis(axes, scored[score].to_numpy(dtype=np.float64), threshold_percent, plain(unit))
        axes.set_yticks(
            range(len(rows)), [shortened(plain(name), _LABEL_CHARACTERS) for name in rows.values()], size=7.5
        )
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.yaxis.grid(visible=True, color="#ececec", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines["left"].set_visible(False)
        handles = [Line2D([], [], linestyle="none", label=_kind_label(kind), **_look(kind)) for kind in kinds]
        figure.legend(
            handles=handles,
            loc="outside upper left",
            ncols=2,
            frameon=False,
            fontsize=7.8,
            title=shortened(plain(title), _TITLE_CHARACTERS),
            alignment="left",
        )
        figure.legends[0].get_title().set(size=11, weight="bold")
    return figure


def occupation_order(scored: pd.DataFrame) -> dict[str, str]:
    """Clusters from the most male to the most female occupation, or as asked, each with what its row says."""
    names = dict.fromkeys(scored["cluster"].astype(str))
    if "percent_female" not in scored or scored["percent_female"].isna().all():
        return {name: name for name in names}
    share = scored.groupby(scored["cluster"].astype(str))["percent_female"].first()
    ordered = sorted(names, key=lambda name: (math.isnan(share[name]), share[name]))
    return {name: f"{name} · {share[name]:.0f}%" if math.isfinite(share[name]) else name for name in ordered}


_Kind = tuple[bool, str, int]
"""Whether the sentence decides, the participant's class, whose the pronoun is (-1 where nobody said)."""


def _kinds(scored: pd.DataFrame) -> Mapping[_Kind, Any]:
    """Which rows are of each kind of sentence, those that decide last, so that their dots are on top."""
    decided = scored["well_specified"].astype(bool)
    participant = (
        scored["participant_class"].astype(str) if "participant_class" in scored else decided.map(lambda _: "")
    )
    whose = scored["coreferent"].fillna(-1).astype(int) if "coreferent" in scored else decided.map(lambda _: -1)
    kinds = sorted(set(zip(decided, participant, whose, strict=True)), key=lambda kind: (kind[0], kind[2], kind[1]))
    return {kind: (decided == kind[0]) & (participant == kind[1]) & (whose == kind[2]) for kind in kinds}


def _look(kind: _Kind) -> dict[str, Any]:
    decided, participant, whose = kind
    colour = DECIDED if decided else UNDECIDED
    hollow = whose == 0 and not decided
    return {
        "marker": PARTICIPANTS.get(participant, "o"),
        "markersize": 4.4,
        "color": colour,
        "markerfacecolor": "white" if hollow else colour,
        "markeredgecolor": colour,
        "markeredgewidth": 0.8,
        "alpha": 0.85,
        "zorder": 4 if decided else 3,
    }


def _kind_label(kind: _Kind) -> str:
    decided, participant, whose = kind
    said = "decides the blank" if decided else "does not decide"
    if participant in ("male", "female", "unspecified"):
        return f"{participant if participant != 'unspecified' else 'nothing'} before the occupation: {said}"
    who = _SAID.get(participant, participant)
    whose_is_it = {0: "pronoun the professional's", 1: "pronoun the participant's"}.get(whose, "")
    people = ", ".join(filter(None, [who, whose_is_it]))
    return f"{people}: decides" if people and decided else people or said


def _score_axis(axes: Axes, values: Floats, threshold: float, unit: str) -> None:
    """From 0 over the threshold to the largest, in even steps below the threshold and by factors beyond it."""
    largest = max(float(np.nanmax(values, initial=1.0)), 2 * threshold)
    linear = threshold if threshold > 0 else 0.5
    axes.set_xscale("symlog", linthresh=linear, linscale=0.6)
    axes.set_xlim(-0.03 * linear, largest * 1.15)
    marks = [0.0, *(mark for mark in (linear, 1, 2, 5, 10, 20, 50, 100) if linear <= mark <= largest * 1.15)]
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(marks))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda mark, _: f"{mark:g}"))
    axes.axvline(threshold, color="#333333", linewidth=1.0, linestyle=(0, (4, 2)), zorder=2)
    axes.set_xlabel(f"{shortened(unit, 60)}; right of the dashed line ({threshold:g}): flagged")


def over_w(rows: pd.DataFrame, group: str, *, title: str) -> Figure:
    """The mass of one word group in every sentence of one occupation, over all values of W (figure 4).

    Args:
        rows: a row per sentence and W value, with `sentence`, `text`, `w`, `w_index`, `well_specified` where that is known, and
            the group's mass in percent.
        group: the column to draw.
        title: of the figure.
    """
    sentences = list(dict.fromkeys(rows["sentence"].astype(str)))
    texts = [_with_w_named(rows[rows["sentence"] == name]) for name in sentences]
    with lettering(title + group + "".join(texts)):
        figure = Figure(figsize=(WIDTH_IN, 4.4 + 0.19 * len(sentences)), dpi=DPI, layout="constrained")
        axes = figure.add_subplot()
        lines = []
        for index, name in enumerate(sentences):
            part = rows[rows["sentence"] == name].sort_values("w_index")
            decided = bool(part["well_specified"].iloc[0]) if "well_specified" in part else False
            colour = DECIDED if decided else UNDECIDED
            (line,) = axes.plot(
                part["w_index"],
                part[group],
                color=colour,
                linewidth=1.5,
                linestyle=DASHES[index % len(DASHES)],
                marker=("o", "s", "^", "D", "v", "P", "X", "*")[index % 8],
                markersize=3.2,
            )
            lines.append(line)
        values = rows.drop_duplicates("w_index").sort_values("w_index")
        every = max(1, math.ceil(len(values) / 12))
        axes.set_xticks(values["w_index"].iloc[::every], [plain(str(value)) for value in values["w"].iloc[::every]])
        axes.set_ylim(-2, 102)
        axes.yaxis.grid(visible=True, color="#ececec", linewidth=0.6)
        axes.set_ylabel(f"{shortened(plain(group), 40)} words, percent of all groups")
        axes.set_title(shortened(plain(title), _TITLE_CHARACTERS), loc="left", fontsize=11, fontweight="bold")
        figure.legend(
            lines,
            [shortened(plain(text), 118) for text in texts],
            loc="outside lower left",
            frameon=False,
            fontsize=7.4,
            title="Blue: the sentence decides its blank. Orange: it does not.",
            title_fontsize=7.8,
            alignment="left",
        )
    return figure


def _with_w_named(rows: pd.DataFrame) -> str:
    """A sentence with the name of W where its value stood."""
    first = rows.iloc[0]
    return str(first["text"]).replace(str(first["w"]), f"[{first.get('w_name', 'W')}]", 1)


def roc(curves: Sequence[Curve], *, title: str) -> Figure:
    """ROC curves of all scores on the same sentences, the best named first."""
    ordered = sorted(curves, key=lambda curve: -curve.area)
    look = {
        curve.name: (CURVES[index % len(CURVES)], DASHES[index % len(DASHES)]) for index, curve in enumerate(curves)
    }
    with lettering(title + "".join(curve.name for curve in curves)):
        figure = Figure(figsize=(7.2, 4.4), dpi=DPI, layout="constrained")
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=_GREY, linewidth=0.8, linestyle=(0, (2, 2)), label="chance  .50")
        for curve in ordered:
            colour, dash = look[curve.name]
            interval = f" ({_share(curve.low)} to {_share(curve.high)})" if math.isfinite(curve.low) else ""
            named = shortened(plain(curve.name.replace("_", " ")), _NAME_CHARACTERS)
            name = f"{named}  {_share(curve.area)}{interval}"
            axes.plot(
                curve.false_positive, curve.true_positive, color=colour, linestyle=dash, linewidth=1.5, label=name
            )
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
        axes.set_xlabel("share of deciding sentences flagged (1 - TNR)")
        axes.set_ylabel("share of undecided sentences flagged (TPR)")
        axes.set_title(shortened(plain(title), _TITLE_CHARACTERS), loc="left", fontsize=11, fontweight="bold")
        axes.grid(visible=True, color="#ececec", linewidth=0.6)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(
            [*handles[1:], handles[0]],
            [*labels[1:], labels[0]],
            loc="outside right center",
            frameon=False,
            fontsize=7.8,
            title="Area under the curve (95% interval)",
            title_fontsize=7.8,
            alignment="left",
        )
    return figure


def _share(value: float) -> str:
    return number(value).replace("0.", ".", 1) if value < 0.995 else number(value)
