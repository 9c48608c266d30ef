"""From a record to the files that tell it: figures and the page, in a run folder.

Knows the manifest's entries and the page's parts; knows nothing about how anything was measured.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.report.formatting import NOTES, number, reading_caveats
from undertow.report.model import ReportText
from undertow.report.page import Page, PageFigure, PageGrounds, PagePrecision, render_page
from undertow.runs.folder.storage import Record, csv_of
from undertow.types import Finding, Result

if TYPE_CHECKING:
    import pandas as pd

    from undertow.report.style import Drawing


def write_tables(folder: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write `tables/` into a run folder, where there are any."""
    place = folder / "tables"
    shutil.rmtree(place, ignore_errors=True)
    if tables:
        place.mkdir()
    for name, table in tables.items():
        (place / f"{name}.csv").write_text(csv_of(table), encoding="utf-8", newline="")


def render_run(  # noqa: PLR0913 - each is a part of the page
    folder: Path,
    record: Record,
    told: ReportText,
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
        notes=[*reading_caveats(record.manifest), *told.notes, *(NOTES if told.of_words else NOTES[:1])],
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
        basis=_basis(record, findings, "listed words" if told.of_words else "possible answers"),
    )
    (folder / "report.html").write_text(render_page(page), encoding="utf-8")


def _picture(drawing: Drawing, figures: Path) -> PageFigure:
    """A drawing, saved, as the page holds it."""
    from undertow.report.style import file_stem, save_drawing

    save_drawing(drawing, figures)
    svg = (figures / f"{file_stem(drawing.name)}.svg").read_text(encoding="utf-8")
    return PageFigure(drawing.name, svg, drawing.caption, drawing.alt)


# What a finding rests on, beside the results that it tells.

FACETS = {
    **{key: key for key in ("model", "challenge", "prompt", "w_name", "context", "shots", "sampling", "decoding")},
    "set": "challenge",
}
"""Group keys of results that say how somebody was asked, and the columns of the observations that hold their levels."""


def _basis(record: Record, findings: Sequence[Finding], claimants: str) -> dict[str, dict[str, str]]:
    """Rows for each finding that names its results: what was asked, the mass that no answer took, protocol and read-out."""
    told: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    basis = {}
    for finding in findings:
        facets = list(dict.fromkeys(_facet(result) for result in finding.results))
        for facet in facets:
            if facet not in told:
                told[facet] = asked_of(record, dict(facet), claimants)
        if facets:
            basis[finding.text] = beside_each_other([(dict(facet).get("model", ""), told[facet]) for facet in facets])
    return basis


def _facet(result: Result) -> tuple[tuple[str, str], ...]:
    """Who was asked what, as columns and levels of the observations."""
    return tuple((FACETS[key], level) for key, level in result.group.items() if key in FACETS)


def beside_each_other(parts: Sequence[tuple[str, Mapping[str, str]]]) -> dict[str, str]:
    """Rows of several facets as one: said once where they are the same, else by name, as of a model or a run."""
    rows = {}
    for name in dict.fromkeys(name for _, part in parts for name in part):
        said = list(dict.fromkeys((model, part[name]) for model, part in parts if name in part))
        texts = {text for _, text in said}
        rows[name] = said[0][1] if len(texts) == 1 else "; ".join(f"{model}: {text}" for model, text in said)
    return rows


def asked_of(record: Record, facet: Mapping[str, str], claimants: str) -> dict[str, str]:
    """How many texts and clusters a run has of a facet, the mass that none of the claimants took, and how it was read.

    Args:
        record: of the run.
        facet: columns of the observations and their levels; of others nothing is asked.
        claimants: what could have taken the mass, in words.
    """
    rows = _rows_of(record.observations, facet)
    asked = _count(len(rows), "text")
    if "cluster" in rows:
        asked += f" in {_count(rows['cluster'].nunique(), 'cluster')}"
    if "missing_reason" in rows:
        asked += f", {(rows['missing_reason'] != '').sum():,} unscored"
    return {
        "asked": asked,
        **({"unclaimed mass": _unclaimed(rows, claimants)} if "other_words" in rows else {}),
        "protocol": "; ".join(filter(None, [str(record.manifest["protocol"]), _reading(record.manifest, facet)])),
    }


def _count(of: int, what: str) -> str:
    return f"{of:,} {what}{'' if of == 1 else 's'}"


def _rows_of(frame: pd.DataFrame, facet: Mapping[str, str]) -> pd.DataFrame:
    """Observations of a facet; a level that no row has says something else than its column."""
    rows = frame
    for column, level in facet.items():
        own = rows[column].astype(str) == level if column in rows else None
        if own is not None and own.any():
            rows = rows[own]
    return rows


def _unclaimed(rows: pd.DataFrame, claimants: str) -> str:
    """The mean of what none of the options took, every value of W counting the same, as in the table of means."""
    means = rows.groupby("w_index")["other_words"].mean() if "w_index" in rows else rows["other_words"]
    mean = float(means.mean())
    return f"{number(mean, 1)}% on average went to none of the {claimants}" if math.isfinite(mean) else "not known"


def _reading(manifest: Mapping[str, Any], facet: Mapping[str, str]) -> str:
    """How a model was read, and in which arithmetic; "" where that is not known, as of a recorded table."""
    parts = {part["name"]: part["card"] for part in manifest.get("models", [])}
    card = parts.get(facet.get("model", ""), manifest.get("model_card", {}))
    return f"read by {card['scoring_method']}, in {card['dtype']}" if card else ""


def _card(manifest: Mapping[str, Any]) -> dict[str, str]:
    card = {name.replace("_", " "): str(value) for name, value in manifest.get("model_card", {}).items() if value}
    for part in manifest.get("models", []):
        of = part["card"]
        card[part["name"]] = (
            f"{of['family']}, read by {part['scoring_method']}, {of['dtype']}, {of['source']} at {of['revision'][:16]}"
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
            f"{count:,} {name}" for name, count in counts.items() if count or name in ("items", "missing")
        ),
        "time": ", ".join(f"{name.removesuffix('_s')} {seconds:.1f} s" for name, seconds in timing.items()),
        "versions": ", ".join(f"{name} {number}" for name, number in manifest["versions"].items()),
        "machine": ", ".join(f"{name} {value}" for name, value in manifest["machine"].items()),
        "limit": f"about {manifest['limit']:,} items" if manifest.get("limit") else "",
        "notes": "; ".join(manifest.get("notes", [])),
    }
    return {name: value for name, value in rows.items() if value}
