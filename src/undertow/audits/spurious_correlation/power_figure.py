"""Smallest detectable change along a W list, by number of sentences and of values. Not in the papers."""

from __future__ import annotations

import math

from matplotlib.ticker import NullLocator

from undertow.audits.spurious_correlation.power_plan import PowerPlan
from undertow.errors import UndertowError
from undertow.report.page_data import Drawing
from undertow.report.sentence_templates import described
from undertow.report.sheet import Sheet, even_ticks, fitted
from undertow.report.style import INK, TEXT_SIZE, lettering, style_of

LEAD = (
    "Smallest change from the first value of a list to the last, in percentage points, that is significant (p < .05) in 8 of 10 runs; "
    "one line for each number of values. Ring: the current design."
)


def draw_power(plan: PowerPlan) -> Drawing:
    """Draw one panel for each ordered list, with one line for each number of values.

    Raises:
        UndertowError: there is no change to draw.
    """
    name, curves = plan.challenge, [curve for curve in plan.curves if curve.designs]
    changes = [one.change for curve in curves for one in curve.designs if math.isfinite(one.change)]
    if not changes:
        raise UndertowError("the curve cannot be drawn: no design can detect a change")
    title = f"What {name} can find"
    with lettering("".join([title, *(curve.title for curve in curves)])):
        sheet = Sheet(title, LEAD)
        numbers = sorted({one.n_values for curve in curves for one in curve.designs})
        sheet.key_of_groups([f"{values} values" for values in numbers])
        (column,) = sheet.subplots(len(curves), sharey=True, squeeze=False).T
        for axes, curve in zip(column, curves, strict=True):
            sentences = sorted({one.n_sentences for one in curve.designs})
            for values in sorted({one.n_values for one in curve.designs}):
                along = [one.change for one in curve.designs if one.n_values == values]
                axes.plot(sentences, along, linewidth=1.5, zorder=3, **style_of(numbers.index(values)))
            ring = {"s": 120, "facecolor": "none", "edgecolor": INK, "linewidth": 1.2, "zorder": 4}
            axes.scatter([curve.own.n_sentences], [curve.own.change], **ring)
            axes.set_title(fitted(curve.title, sheet.inner_in - 0.5, TEXT_SIZE, "bold"))
            axes.set_xscale("log")
            axes.set_xticks(sentences, [str(at) for at in sentences])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.grid(axis="y")
        column[0].set_ylim(0.0, 1.08 * max(changes))
        column[0].yaxis.set_major_locator(even_ticks(5))
        column[-1].set_xlabel("sentences")
        sheet.finish(column, 2.4 * len(curves))
    return Drawing(name, sheet, LEAD, f"{LEAD} {described('power', curves)}")
