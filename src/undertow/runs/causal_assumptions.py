"""The causal graph of an audit: its manifest entry, and the assumptions of the findings under it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from undertow import audits
from undertow.data import NO_W
from undertow.errors import UndertowError
from undertow.report.page_data import Drawing
from undertow.runs.folder.storage import Record

if TYPE_CHECKING:
    from undertow.causal.assumptions import FindingAssumptions
    from undertow.report.page_data import PageAssumptions


def named_graph(audit: str, graph: str) -> dict[str, str]:
    """The manifest's entry of a causal graph; {} without one. Refuses an invalid graph, and an audit that does not use graphs."""
    if not graph:
        return {}
    kind = audits.load(audit).causal_claim
    if not kind:
        known = ", ".join(name for name in audits.names() if audits.load(name).causal_claim)
        raise UndertowError(
            f"{audit}: causal graphs do not apply to this audit; leave --graph out; they apply to {known}"
        )
    from undertow.causal.assumptions import FindingAssumptions, graph_entry
    from undertow.causal.published import load_graph

    entry = graph_entry(load_graph(graph))
    FindingAssumptions.from_manifest(entry, kind, ())  # an audit of another package may have an invalid kind
    return entry


def assumptions_of(record: Record) -> FindingAssumptions | None:
    """The assumptions of a run's findings under the graph in its manifest, which is refused if corrupt; None without a graph."""
    if "graph" not in record.manifest:
        return None
    from undertow.causal.assumptions import FindingAssumptions

    frame = record.observations
    w_names = [str(name) for name in frame["w_name"].unique() if name != NO_W] if "w_name" in frame else []
    claim = audits.load(str(record.manifest["audit"])).causal_claim
    return FindingAssumptions.from_manifest(record.manifest["graph"], claim, w_names)


def assumptions_text(record: Record) -> tuple[PageAssumptions, Drawing] | None:
    """The assumptions for the page, whose figure of the graph has a version for phones, and a drawing of the graph."""
    stated = assumptions_of(record)
    if stated is None:
        return None
    from undertow.causal.describe import graph_shape
    from undertow.report.figures.causal_graph import draw_graph
    from undertow.report.inline_svg import PHONE_IN, page_figure
    from undertow.report.page_data import PageAssumptions
    from undertow.report.style import figure_width

    named = stated.named_graph
    shape, title = graph_shape(named.graph), named.title or Path(named.name).name or "The graph named"
    drawing = replace(draw_graph(shape, title), name="graph")
    with figure_width(PHONE_IN):
        figure = page_figure(drawing, draw_graph(shape, title))
    causal_assumptions = PageAssumptions(
        kind=stated.kind,
        graph=named.graph.text(),
        about=[stated.about, stated.about_w],
        summary=stated.summary,
        assumptions=stated.assumptions,
        caveat=stated.caveat,
        figure=figure,
    )
    return causal_assumptions, drawing
