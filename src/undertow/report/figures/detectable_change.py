"""Smallest detectable change along a W list, by number of sentences and of values. Not in the papers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.ticker import NullLocator

from undertow.errors import UndertowError
from undertow.report.sentence_templates import described
from undertow.report.sheet import Sheet, even_ticks, fitted
from undertow.report.style import INK, TEXT_SIZE, Drawing, lettering, style_of

_PANEL_IN = 2.4
LEAD = (
    "Smallest change from the first value of a list to the last, in percentage points, that is significant (p < .05) in 8 of 10 runs; "
    "one line for each number of values. Ring: the current design."
)


@dataclass(frozen=True, slots=True)
class Curve:
    """Detectable changes along one W list.

    Attributes:
        changes: changes in percentage points, by numbers of sentences and of values; NaN if no test is possible.
        own: numbers of sentences and values of the current design.
    """

    title: str
    changes: Mapping[tuple[int, int], float]
    own: tuple[int, int]

    def extremes(self) -> list[tuple[int, int, float]]:
        """Numbers of sentences and of values with the largest and the smallest change, and these changes."""
        finite = [(*design, change) for design, change in self.changes.items() if math.isfinite(change)]
        return [chosen(finite, key=lambda one: one[2]) for chosen in (max, min)] if finite else []


def draw_power(name: str, curves: Sequence[Curve]) -> Drawing:
    """Draw one panel for each list, with one line for each number of values.

    Raises:
        UndertowError: there is no change to draw.
    """
    changes = [change for curve in curves for change in curve.changes.values() if math.isfinite(change)]
    if not changes:
        raise UndertowError("the curve cannot be drawn: no design can detect a change")
    title = f"What {name} can find"
    with lettering("".join([title, *(curve.title for curve in curves)])):
        sheet = Sheet(title, LEAD)
        numbers = sorted({values for curve in curves for _, values in curve.changes})
        sheet.key_of_groups([f"{values} values" for values in numbers])
        (column,) = sheet.subplots(len(curves), sharey=True, squeeze=False).T
        for axes, curve in zip(column, curves, strict=True):
            sentences = sorted({design[0] for design in curve.changes})
            for values in sorted({design[1] for design in curve.changes}):
                along = [curve.changes[at, values] for at in sentences]
                axes.plot(sentences, along, linewidth=1.5, zorder=3, **style_of(numbers.index(values)))
            axes.scatter(
                [curve.own[0]],
                [curve.changes[curve.own]],
                s=120,
                facecolor="none",
                edgecolor=INK,
                linewidth=1.2,
                zorder=4,
            )
            axes.set_title(fitted(curve.title, sheet.inner_in - 0.5, TEXT_SIZE, "bold"))
            axes.set_xscale("log")
            axes.set_xticks(sentences, [str(at) for at in sentences])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.grid(axis="y")
        column[0].set_ylim(0.0, 1.08 * max(changes))
        column[0].yaxis.set_major_locator(even_ticks(5))
        column[-1].set_xlabel("sentences")
        sheet.finish(column, len(curves) * _PANEL_IN)
    return Drawing(name, sheet, LEAD, f"{LEAD} {described('power', curves)}")
