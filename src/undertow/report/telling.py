"""From a record to the files that tell it: figures and the page, in a run folder.

Knows the manifest's entries and the page's parts; knows nothing about how anything was measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.records import Record
from undertow.report.page import Page, PageFigure, PageGrounds, PagePrecision, render_page
from undertow.report.words import NOTES
from undertow.types import Finding, Told

if TYPE_CHECKING:
    import pandas as pd

    from undertow.report.drawing import Drawing


def write_tables(folder: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write `tables/` into a run folder, where there are any."""
    place = folder / "tables"
    shutil.rmtree(place, ignore_errors=True)
    if tables:
        place.mkdir()
    for name, table in tables.items():
        table.to_csv(place / f"{name}.csv", index=False, lineterminator="\n")


def tell_run(  # noqa: PLR0913 - each is a part of the page
    folder: Path,
    record: Record,
    told: Told,
    findings: Sequence[Finding],
    drawings: Sequence[Drawing],
    *,
    grounds: tuple[PageGrounds, Drawing] | None = None,
    precision: PagePrecision | None = None,
) -> None:
    """Write `figures/` and `report.html` into a run folder.

    Args:
        folder: of the run.
        record: of the run.
        told: the words of its page.
        findings: in any order.
        drawings: in the order to be shown.
        grounds: what the findings rest on, and the graph that says so, drawn; None where the run names no graph.
        precision: what the run's precision costs; None where it costs nothing.
    """
    figures = folder / "figures"
    shutil.rmtree(figures, ignore_errors=True)
    figures.mkdir()
    pictures = [_picture(drawing, figures) for drawing in drawings]
    page = Page(
        title=f"{told.title}: {record.manifest['model']}",
        lead=told.lead,
        findings=findings,
        results=record.results,
        figures=pictures,
        asked=told.asked,
        examples=told.examples,
        asked_of=_card(record.manifest),
        notes=[*told.notes, *(NOTES if told.of_words else NOTES[:1])],
        command=str(record.manifest["command"]),
        python=str(record.manifest["python"]),
        provenance=_provenance(record.manifest),
        titles=told.titles,
        glossary=told.glossary,
        neutral=told.neutral,
        shown=told.shown,
        matrices=told.matrices,
        grounds=replace(grounds[0], figure=_picture(grounds[1], figures)) if grounds else None,
        precision=precision,
    )
    (folder / "report.html").write_text(render_page(page), encoding="utf-8")


def _picture(drawing: Drawing, figures: Path) -> PageFigure:
    """A drawing, saved, as the page holds it."""
    from undertow.report.drawing import file_stem, save_drawing

    save_drawing(drawing, figures)
    svg = (figures / f"{file_stem(drawing.name)}.svg").read_text(encoding="utf-8")
    return PageFigure(drawing.name, svg, drawing.caption, drawing.alt)


def _card(manifest: Mapping[str, Any]) -> dict[str, str]:
    card = {name.replace("_", " "): str(value) for name, value in manifest.get("model_card", {}).items() if value}
    for part in manifest.get("models", []):
        of = part["card"]
        card[part["name"]] = (
            f"{of['family']}, read by {part['readout']}, {of['dtype']}, {of['source']} at {of['revision'][:16]}"
        )
    if not card:
        card = {"models": str(manifest["model"]), "recorded in": str(manifest.get("recorded", ""))}
    return card | {"protocol": str(manifest["protocol"])}


def _provenance(manifest: Mapping[str, Any]) -> dict[str, str]:
    counts, timing = manifest.get("counts", {}), manifest.get("timing", {})
    rows = {
        "made": str(manifest["created"]),
        "seed": str(manifest["seed"]),
        "challenge (SHA-256)": str(manifest.get("challenge_sha256", "")),
        "asked": ", ".join(
            f"{count:,} {name}" for name, count in counts.items() if count or name in ("items", "unscored")
        ),
        "time": ", ".join(f"{name.removesuffix('_s')} {seconds:.1f} s" for name, seconds in timing.items()),
        "versions": ", ".join(f"{name} {number}" for name, number in manifest["versions"].items()),
        "machine": ", ".join(f"{name} {value}" for name, value in manifest["machine"].items()),
        "limit": f"about {manifest['limit']:,} items" if manifest.get("limit") else "",
        "notes": "; ".join(manifest.get("notes", [])),
    }
    return {name: value for name, value in rows.items() if value}
