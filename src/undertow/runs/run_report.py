"""Write the tables, figures and page of a run folder."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.report.formatting import NOTES, number, sanity_check_caveats
from undertow.report.model import ReportText
from undertow.report.page import Page, PageAssumptions, PageFigure, PagePrecision, render_page
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
    text: ReportText,
    findings: Sequence[Finding],
    drawings: Sequence[Drawing],
    *,
    causal_assumptions: tuple[PageAssumptions, Drawing] | None = None,
    precision: PagePrecision | None = None,
) -> None:
    """Write `figures/` and `report.html` into a run folder.

    Args:
        folder: of the run.
        record: of the run.
        text: the audit's texts and tables for the page.
        findings: in any order.
        drawings: in the order to be shown.
        causal_assumptions: assumptions of the findings and a drawing of the graph; None without a graph.
        precision: effects of reduced precision; None in float32.
    """
    figures = folder / "figures"
    shutil.rmtree(figures, ignore_errors=True)
    figures.mkdir()
    pictures = [_picture(drawing, figures) for drawing in drawings]
    page = Page(
        title=f"{text.title}: {record.manifest['model']}",
        lead=text.lead,
        findings=findings,
        results=record.results,
        figures=pictures,
        questions=text.questions,
        examples=text.examples,
        identity=_model_rows(record.manifest),
        notes=[*sanity_check_caveats(record.manifest), *text.notes, *(NOTES if text.of_words else NOTES[:1])],
        command=str(record.manifest["command"]),
        python=str(record.manifest["python"]),
        provenance=_provenance(record.manifest),
        titles=text.titles,
        glossary=text.glossary,
        null_prefix=text.null_prefix,
        tables=text.tables,
        matrices=text.matrices,
        causal_assumptions=replace(causal_assumptions[0], figure=_picture(causal_assumptions[1], figures))
        if causal_assumptions
        else None,
        precision=precision,
        basis=_basis(record, findings, "listed words" if text.of_words else "possible answers"),
    )
    (folder / "report.html").write_text(render_page(page), encoding="utf-8")


def _picture(drawing: Drawing, figures: Path) -> PageFigure:
    """Save a drawing; returns its entry for the page."""
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
    """For each finding with results: sample, mass of other words, protocol and scoring method."""
    by_facet: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    basis = {}
    for finding in findings:
        facets = list(dict.fromkeys(_facet(result) for result in finding.results))
        for facet in facets:
            if facet not in by_facet:
                by_facet[facet] = sample_facts(record, dict(facet), claimants)
        if facets:
            basis[finding.text] = beside_each_other(
                [(dict(facet).get("model", ""), by_facet[facet]) for facet in facets]
            )
    return basis


def _facet(result: Result) -> tuple[tuple[str, str], ...]:
    """The columns and levels of a finding's results."""
    return tuple((FACETS[key], level) for key, level in result.group.items() if key in FACETS)


def beside_each_other(parts: Sequence[tuple[str, Mapping[str, str]]]) -> dict[str, str]:
    """Join rows of several facets: once where they are equal, else by the name of the model or run."""
    rows = {}
    for name in dict.fromkeys(name for _, part in parts for name in part):
        said = list(dict.fromkeys((model, part[name]) for model, part in parts if name in part))
        texts = {text for _, text in said}
        rows[name] = said[0][1] if len(texts) == 1 else "; ".join(f"{model}: {text}" for model, text in said)
    return rows


def sample_facts(record: Record, facet: Mapping[str, str], claimants: str) -> dict[str, str]:
    """Number of texts and clusters of a facet, mass of other words, and scoring method.

    Args:
        record: of the run.
        facet: columns of the observations and their levels.
        claimants: words for the options, such as "listed words".
    """
    rows = _rows_of(record.observations, facet)
    sample = _count(len(rows), "text")
    if "cluster" in rows:
        sample += f" in {_count(rows['cluster'].nunique(), 'cluster')}"
    if "missing_reason" in rows:
        sample += f", {(rows['missing_reason'] != '').sum():,} missing"
    return {
        "asked": sample,
        **({"mass on other words": _other_mass(rows, claimants)} if "other_words" in rows else {}),
        "protocol": "; ".join(filter(None, [str(record.manifest["protocol"]), _reading(record.manifest, facet)])),
    }


def _count(of: int, what: str) -> str:
    return f"{of:,} {what}{'' if of == 1 else 's'}"


def _rows_of(frame: pd.DataFrame, facet: Mapping[str, str]) -> pd.DataFrame:
    """Observations of a facet; ignores a level that its column does not contain."""
    rows = frame
    for column, level in facet.items():
        own = rows[column].astype(str) == level if column in rows else None
        if own is not None and own.any():
            rows = rows[own]
    return rows


def _other_mass(rows: pd.DataFrame, claimants: str) -> str:
    """Mean mass of other words, with equal weight for every value of W, as in the table of means."""
    means = rows.groupby("w_index")["other_words"].mean() if "w_index" in rows else rows["other_words"]
    mean = float(means.mean())
    return f"{number(mean, 1)}% on average went to none of the {claimants}" if math.isfinite(mean) else "not known"


def _reading(manifest: Mapping[str, Any], facet: Mapping[str, str]) -> str:
    """Scoring method and dtype of a model; "" where unknown, as for a recorded table."""
    parts = {part["name"]: part["identity"] for part in manifest.get("models", [])}
    identity = parts.get(facet.get("model", ""), manifest.get("model_identity", {}))
    return f"read by {identity['scoring_method']}, in {identity['dtype']}" if identity else ""


def _model_rows(manifest: Mapping[str, Any]) -> dict[str, str]:
    rows = {name.replace("_", " "): str(value) for name, value in manifest.get("model_identity", {}).items() if value}
    for part in manifest.get("models", []):
        of = part["identity"]
        rows[part["name"]] = (
            f"{of['family']}, read by {part['scoring_method']}, {of['dtype']}, {of['source']} at {of['revision'][:16]}"
        )
    if not rows:
        rows = {"models": str(manifest["model"]), "recorded in": str(manifest.get("recorded", ""))}
    return rows | {"protocol": str(manifest["protocol"])}


def _provenance(manifest: Mapping[str, Any]) -> dict[str, str]:
    counts, timing = manifest.get("counts", {}), manifest.get("timing", {})
    rows = {
        "created": str(manifest["created"]),
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
