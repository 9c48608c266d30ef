"""The causal graph that an audit names: what the manifest keeps of it, and what the findings rest on under it.

Knows audits by what their findings rest on, and graphs; asks and measures nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from undertow import audits
from undertow.data import NO_W
from undertow.errors import UndertowError
from undertow.runs.folder.storage import Record

if TYPE_CHECKING:
    from undertow.causal.finding_assumptions import Grounds
    from undertow.report.page import PageGrounds
    from undertow.report.style import Drawing


def named_graph(audit: str, graph: str) -> dict[str, str]:
    """What the manifest keeps of the graph that an audit names; nothing where it names none.

    Raises:
        UndertowError: it is no graph, or no finding of the audit rests on one.
    """
    if not graph:
        return {}
    kind = _rests_on(audit)
    if not kind:
        known = ", ".join(name for name in audits.names() if _rests_on(name))
        raise UndertowError(
            f"{audit}: a graph says nothing of what this audit finds; leave --graph out, which is for {known}"
        )
    from undertow.causal.finding_assumptions import grounds, kept
    from undertow.causal.published import find_graph

    entry = kept(find_graph(graph))
    grounds(entry, kind, ())  # an audit of another package may name a kind that is none
    return entry


def _rests_on(audit: str) -> str:
    """Which kind the findings of an audit are; "" where a graph says nothing of them."""
    return str(getattr(audits.load(audit), "RESTS_ON", ""))


def grounds_of(record: Record) -> Grounds | None:
    """What the findings of a run rest on under the graph that it names; None where it names none.

    Raises:
        UndertowError: what the manifest keeps of the graph is damaged.
    """
    if "graph" not in record.manifest:
        return None
    from undertow.causal.finding_assumptions import grounds

    frame = record.observations
    varied = [str(name) for name in frame["w_name"].unique() if name != NO_W] if "w_name" in frame else []
    return grounds(record.manifest["graph"], _rests_on(str(record.manifest["audit"])), varied)


def grounds_text(record: Record) -> tuple[PageGrounds, Drawing] | None:
    """The same as plain values for the page, and the graph drawn."""
    found = grounds_of(record)
    if found is None:
        return None
    from undertow.causal.describe import GRANTED, graph_view
    from undertow.report.figures.causal_graph import GraphShape, draw_graph
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
    drawing = draw_graph(
        GraphShape(**graph_view(named.graph)), named.title or Path(named.name).name or "The graph named"
    )
    return grounds, replace(drawing, name="graph")
