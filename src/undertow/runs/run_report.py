"""Write the tables, figures and page of a run folder."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.audits.base import SentenceTable
from undertow.report.formatting import NOTES, amount, number, spaced
from undertow.report.page import render_page
from undertow.report.page_data import Drawing, Page, ReportTable, ReportText, by_strength
from undertow.report.sentence_templates import sentences
from undertow.runs.folder.storage import Record, csv_of
from undertow.types import Finding

if TYPE_CHECKING:
    import pandas as pd

    from undertow.report.page_data import PageAssumptions, PagePrecision


def write_tables(folder: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write `tables/` into a run folder, if there are any."""
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
    draw: Callable[[], Iterable[Drawing]],
    *,
    causal_assumptions: tuple[PageAssumptions, Drawing] | None = None,
    precision: PagePrecision | None = None,
    sentences_table: tuple[SentenceTable, pd.DataFrame] | None = None,
) -> None:
    """Write `figures/` and `report.html` into a run folder.

    `draw` draws the figures, in order; `causal_assumptions` has a drawing of the graph, and `sentences_table` is
    `Audit.sentence_table` with `Audit.sentences`.
    """
    from undertow.report.inline_svg import page_figures
    from undertow.report.style import save_drawing

    shutil.rmtree(folder / "figures", ignore_errors=True)
    (folder / "figures").mkdir()
    drawings = list(draw())
    for drawing in [*drawings, *([causal_assumptions[1]] if causal_assumptions else [])]:
        save_drawing(drawing, folder / "figures")
    main, figures = page_figures(draw, drawings, _place_of_main(drawings, findings))
    manifest = record.manifest
    # Findings that an audit puts before its significant ones are needed to interpret those.
    leading = [one.text for one in takewhile(lambda one: not one.significant, findings)]
    page = Page(
        title=f"{text.title}: {manifest['model']}",
        lead=text.lead,
        facts=_facts(record),
        caveats=[
            *answer_caveats(manifest),
            *(leading if len(leading) < len(findings) else ()),
            *manifest.get("design", {}).get("limitations", ()),
            *text.caveats,
        ],
        main=main,
        findings=findings,
        results=record.results,
        figures=figures,
        sentences=_sentences(*sentences_table) if sentences_table else None,
        sentences_title=f"{sentences_table[0].unit.capitalize()}s" if sentences_table else "",
        questions=text.questions,
        examples=text.examples,
        identity=_model_rows(manifest),
        notes=[*answer_caveats(manifest), *text.notes, *(NOTES if text.of_words else NOTES[:1])],
        command=str(manifest["command"]),
        python=str(manifest["python"]),
        provenance=provenance_rows(manifest),
        files=_files(folder, manifest),
        glossary=text.glossary,
        null_prefix=text.null_prefix,
        tables=text.tables,
        matrices=text.matrices,
        causal_assumptions=causal_assumptions[0] if causal_assumptions else None,
        precision=precision,
        basis=_basis(record, findings, "listed words" if text.of_words else "possible answers"),
    )
    (folder / "report.html").write_text(render_page(page), encoding="utf-8")


MAX_SENTENCES = 200
"""Of the table on the page; a file of `tables/` has all."""
CONSTANTS = {"model", "prompt", "w_name", "first", "last", "shots", "sampling", "decoding", "context", "wording"}
"""Columns of that table that are left out where they hold one value."""


def _place_of_main(drawings: Sequence[Drawing], findings: Sequence[Finding]) -> int:
    """Index of the drawing of the first finding; 0 if unknown."""
    group = next((one.results[0].group for some in by_strength(findings) for one in some if one.results), {})
    shows = [at for at, one in enumerate(drawings) if one.of and all(group.get(key) == one.of[key] for key in one.of)]
    return min(shows, default=0)


def _facts(record: Record) -> dict[str, str]:
    """Facts about models and items."""
    manifest, text = record.manifest, sentences("run")
    models = manifest.get("models") or [{"name": manifest["model"], "identity": manifest.get("model_identity", {})}]
    return {
        "Model" if len(models) == 1 else "Models": text.who(models),
        "Asked": text.sample(record.observations),
        "When": str(manifest["created"])[:10],
    }


def _sentences(of: SentenceTable, table: pd.DataFrame) -> ReportTable | None:
    """The first rows of the sentences, as a table."""
    if table.empty:
        return None
    words, rows = sentences("run"), sentence_rows(of, table, MAX_SENTENCES)
    title, about = words.sentences_title(of, len(rows), table), words.sentences_about(of)
    return ReportTable(title, list(rows[0]), [list(row.values()) for row in rows], about, of.warning)


def sentence_rows(of: SentenceTable, table: pd.DataFrame, n_rows: int) -> list[dict[str, str]]:
    """The first rows of the sentences as text by head, without the columns that tell nothing apart."""
    heads = {name: of.unit if name == "text" else sentences("run").heads.get(name, spaced(str(name))) for name in table}
    left_out = {"cluster", "sentence", "slope"}
    left_out |= {key for key in CONSTANTS if key in table and table[key].nunique() < 2}
    left_out |= {str(key) for key in table if not table[key].astype(str).any()}
    return [
        {
            heads[name]: amount(cell) if isinstance(cell, float) else str(cell)
            for name, cell in row.items()
            if name not in left_out
        }
        for row in table.head(n_rows).to_dict("records")
    ]


def _files(folder: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Files of the run folder with their descriptions."""
    given = {str(manifest["challenge_file"]): "the challenge file"} if "challenge_file" in manifest else {}
    tables = {f"tables/{path.name}": "a table" for path in sorted((folder / "tables").glob("*.csv"))}
    return {**given, **sentences("run").files, **tables}


def answer_caveats(manifest: Mapping[str, Any]) -> list[str]:
    """The sanity check of each model that fails it, the control sentences of a challenge file, and warnings on the answers."""
    checks, words = manifest.get("sanity_check", {}).items(), sentences("run")
    controls = manifest.get("design", {}).get("controls", {})
    texts = []
    for model, one in checks:
        if "chance_percent" in one:
            answered = [row for row in controls.get(model, ()) if not row["missing_reason"]]
            wrong = [row for row in answered if row.get("gold") != row.get("preferred")]
            texts.append(words.control_sentences(model, one, wrong))
        else:
            texts.append(words.sanity_caveat(model, one["right"], one["of"]))
    return [sentence for sentence in (*texts, *manifest.get("warnings", ())) if sentence]


# The sample, protocol and scoring method of each finding.

FACETS = {
    **{key: key for key in ("model", "challenge", "prompt", "w_name", "context", "shots", "sampling", "decoding")},
    "set": "challenge",
}
"""Group keys of results that select observations, with their columns."""


def _basis(record: Record, findings: Sequence[Finding], options: str) -> dict[str, dict[str, str]]:
    """For each finding with results: sample, mass of other words, protocol and scoring method."""
    facts = cache(lambda facet: sample_facts(record, dict(facet), options))
    basis = {}
    for finding in findings:
        facets = dict.fromkeys(
            tuple((FACETS[key], level) for key, level in result.group.items() if key in FACETS)
            for result in finding.results
        )
        if facets:
            basis[finding.text] = beside_each_other([(dict(one).get("model", ""), facts(one)) for one in facets])
    return basis


def beside_each_other(parts: Sequence[tuple[str, Mapping[str, str]]]) -> dict[str, str]:
    """Join rows of several facets: once if they are equal, else with the name of the model or run."""
    rows = {}
    for name in dict.fromkeys(name for _, part in parts for name in part):
        texts = list(dict.fromkeys((model, part[name]) for model, part in parts if name in part))
        same = len({text for _, text in texts}) == 1
        rows[name] = texts[0][1] if same else "; ".join(f"{model}: {text}" for model, text in texts)
    return rows


def sample_facts(record: Record, facet: Mapping[str, str], options: str) -> dict[str, str]:
    """Number of texts and clusters of a facet, mass of other words, and scoring method.

    Args:
        record: of the run.
        facet: columns of the observations and their levels; a level that its column does not contain is ignored.
        options: words for the options, such as "listed words".
    """
    text, manifest, rows = sentences("run"), record.manifest, record.observations
    for column, level in facet.items():
        own = rows[column].astype(str) == level if column in rows else None
        if own is not None and own.any():
            rows = rows[own]
    facts = {"asked": text.sample(rows)}
    if "other_words" in rows:
        facts["mass on other words"] = text.other_mass(_other_percent(rows, manifest.get("design", {})), options)
    identities = {part["name"]: part["identity"] for part in manifest.get("models", [])}
    scoring = text.scoring(identities.get(facet.get("model", ""), manifest.get("model_identity")))
    return facts | {"protocol": "; ".join(filter(None, [_protocol(manifest), scoring]))}


def _other_percent(rows: pd.DataFrame, design: Mapping[str, Any]) -> str:
    """Mean mass of other words in percent, or its bounds; "" if unknown. All values of W weigh the same, as in the table of means."""

    def mean_of(column: str) -> float:
        means = rows.groupby("w_index")[column].mean() if "w_index" in rows else rows[column]
        return float(means.mean())

    low, high = (mean_of(name if name in rows else "other_words") for name in ("other_words.low", "other_words.high"))
    if not math.isfinite(low + high):
        return ""
    if "model" in rows and set(rows["model"].astype(str)) & set(design.get("lower_bounds", ())):
        return f"at most {number(high, 1)}"
    ends = number(low, 1), number(high, 1)
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _model_rows(manifest: Mapping[str, Any]) -> dict[str, str]:
    rows = {name.replace("_", " "): str(value) for name, value in manifest.get("model_identity", {}).items() if value}
    rows |= {part["name"]: sentences("run").model(part) for part in manifest.get("models", [])}
    recorded = {"models": str(manifest["model"]), "recorded in": str(manifest.get("recorded", ""))}
    return (rows or recorded) | {"protocol": _protocol(manifest)}


def _protocol(manifest: Mapping[str, Any]) -> str:
    """The protocol of a run, with the rules of its answer reader."""
    protocol, reader = str(manifest["protocol"]), manifest.get("design", {}).get("answer_reader", "")
    return f"{protocol}: free replies, parsed by the answer reader ({reader})" if reader else protocol


def provenance_rows(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Date, machine, seed and versions of a run or a comparison, as far as known."""
    counts, timing = manifest.get("counts", {}), manifest.get("timing", {})
    parts = (f"{n:,} {name}" for name, n in counts.items() if n or name in ("items", "missing"))
    rows = {
        "created": str(manifest["created"]),
        "seed": str(manifest["seed"]),
        "challenge (SHA-256)": str(manifest.get("challenge_sha256", "")),
        "asked": ", ".join(parts),
        "time": ", ".join(f"{name.removesuffix('_s')} {seconds:.1f} s" for name, seconds in timing.items()),
        "versions": ", ".join(f"{name} {number}" for name, number in manifest["versions"].items()),
        "machine": ", ".join(f"{name} {value}" for name, value in manifest["machine"].items()),
        "limit": f"about {manifest['limit']:,} items" if manifest.get("limit") else "",
        "notes": "; ".join(manifest.get("notes", [])),
    }
    return {name: value for name, value in rows.items() if value}
