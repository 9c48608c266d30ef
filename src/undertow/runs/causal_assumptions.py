"""The causal graph that an audit names: its manifest entry, and the assumptions of the findings under it."""

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
    """The manifest's entry of the graph that an audit names; {} without a graph.

    Raises:
        UndertowError: the graph is invalid, or no finding of the audit rests on one.
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
    """The kind of an audit's findings; "" if they rest on no graph."""
    return str(getattr(audits.load(audit), "RESTS_ON", ""))


def grounds_of(record: Record) -> Grounds | None:
    """The assumptions of a run's findings under its graph; None without a graph.

    Raises:
        UndertowError: the graph in the manifest is corrupt.
    """
    if "graph" not in record.manifest:
        return None
    from undertow.causal.finding_assumptions import grounds

    frame = record.observations
    varied = [str(name) for name in frame["w_name"].unique() if name != NO_W] if "w_name" in frame else []
    return grounds(record.manifest["graph"], _rests_on(str(record.manifest["audit"])), varied)


def grounds_text(record: Record) -> tuple[PageGrounds, Drawing] | None:
    """The assumptions as plain values for the page, and a drawing of the graph."""
    stated = grounds_of(record)
    if stated is None:
        return None
    from undertow.causal.describe import GRANTED, graph_view
    from undertow.report.figures.causal_graph import GraphShape, draw_graph
    from undertow.report.page import PageAssumption, PageGrounds

    named = stated.named
    rows = [PageAssumption(row.claim, row.holds, GRANTED[row.holds], row.because) for row in stated.assumptions]
    grounds = PageGrounds(
        kind=stated.kind,
        graph=named.graph.text(),
        about=[stated.about, stated.about_w],
        tally=stated.tally,
        assumptions=rows,
        doubt=stated.doubt,
    )
    drawing = draw_graph(
        GraphShape(**graph_view(named.graph)), named.title or Path(named.name).name or "The graph named"
    )
    return grounds, replace(drawing, name="graph")
