"""The causal graph that an audit names: what the manifest keeps of it, and what the findings rest on under it.

Knows probes by what their findings rest on, and graphs; asks and measures nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from undertow import probes
from undertow.challenge import NO_W
from undertow.records import Record
from undertow.types import UndertowError

if TYPE_CHECKING:
    from undertow.causal.grounds import Grounds
    from undertow.report.drawing import Drawing
    from undertow.report.page import PageGrounds


def named_graph(probe: str, graph: str) -> dict[str, str]:
    """What the manifest keeps of the graph that an audit names; nothing where it names none.

    Raises:
        UndertowError: it is no graph, or no finding of the audit rests on one.
    """
    if not graph:
        return {}
    kind = _rests_on(probe)
    if not kind:
        known = ", ".join(name for name in probes.names() if _rests_on(name))
        raise UndertowError(
            f"{probe}: a graph says nothing of what this audit finds; leave --graph out, which is for {known}"
        )
    from undertow.causal.grounds import grounds, kept
    from undertow.causal.published import find_graph

    entry = kept(find_graph(graph))
    grounds(entry, kind, ())  # a probe of another package may name a kind that is none
    return entry


def _rests_on(probe: str) -> str:
    """Which kind the findings of a probe are; "" where a graph says nothing of them."""
    return str(getattr(probes.load(probe), "RESTS_ON", ""))


def grounds_of(record: Record) -> Grounds | None:
    """What the findings of a run rest on under the graph that it names; None where it names none.

    Raises:
        UndertowError: what the manifest keeps of the graph is damaged.
    """
    if "graph" not in record.manifest:
        return None
    from undertow.causal.grounds import grounds

    frame = record.observations
    varied = [str(name) for name in frame["w_name"].unique() if name != NO_W] if "w_name" in frame else []
    return grounds(record.manifest["graph"], _rests_on(str(record.manifest["probe"])), varied)


def grounds_told(record: Record) -> tuple[PageGrounds, Drawing] | None:
    """The same as plain values for the page, and the graph drawn."""
    found = grounds_of(record)
    if found is None:
        return None
    from undertow.causal.in_words import GRANTED, drawn
    from undertow.report.graph import GraphShape, draw_graph
    from undertow.report.page import PageAssumption, PageGrounds

    named = found.named
    rows = [PageAssumption(row.claim, row.holds, GRANTED[row.holds], row.because) for row in found.assumptions]
    grounds = PageGrounds(
        kind=found.kind,
        graph=named.graph.text(),
        about=[found.about, found.about_w],
        tally=found.tally,
        assumptions=rows,
        doubt=found.doubt,
    )
    drawing = draw_graph(GraphShape(**drawn(named.graph)), named.title or Path(named.name).name or "The graph named")
    return grounds, replace(drawing, name="graph")
