"""A dataset folder for `datasets.load_dataset`: one Parquet file and a dataset card, no code."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undertow import audits, types
from undertow.audits.base import Licence
from undertow.integrations.export_format import ExportRequest, named_files, render
from undertow.report.formatting import in_markdown

SUMMARY = "a Hugging Face dataset folder with a row for every query and factors as columns"
HOLDS = (types.BLANK, types.CONTINUATIONS, types.GENERATION, types.CHOICE, types.WRITING, types.EXTRACTION)
TEXTS_ONLY = True
REFUSAL = "a dataset folder contains texts only; run the audit instead"
SPLIT, DATA = "test", "data/test.parquet"
FIRST = ("item", "kind", "text", "options", "groups")
"""First columns, before the factors."""
OWN = (*FIRST, "cluster", "gold")
"""All columns that are not factors; the last two come last."""
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))
"""The hub's size categories, and the number of items below which each holds."""
COLUMNS = {
    "item": "unique name of the query",
    "kind": "kind of query: `blank`, `generation` (a prompt whose answer is scored step by step), `choice`, `writing`, ...",
    "text": "text of the query, `___` for the blank; for prompts with instructions and examples",
    "options": "texts or words that are compared; for a blank, the whole sentence with each word",
    "groups": "word group of each option; empty if there are none",
    "w_name, w_index, w_value, w": "name of the W list, index in it from 0, position of the value on its axis, and the value",
    "cluster": "queries of the same cluster are not independent: intervals and tests treat them as one unit",
    "gold": "correct answer; empty if there is none, as for underspecified sentences",
}


def write(request: ExportRequest, draft: Path, folder: Path) -> tuple[Sequence[str], Sequence[str]]:
    """Write the items as Parquet, with a dataset card."""
    import pandas as pd

    frame = pd.DataFrame([_row(item) for item in request.items])
    order = [*FIRST, *(str(name) for name in frame if name not in OWN), "cluster", "gold"]
    (draft / DATA).parent.mkdir()
    frame[order].to_parquet(draft / DATA, index=False)
    step = f"python -c {shlex.quote(f'import datasets; print(datasets.load_dataset({str(folder)!r}))')}"
    (draft / "README.md").write_text(_dataset_card(request, order), encoding="utf-8")
    return (SPLIT,), (step,)


def _row(item: types.Item) -> dict[str, Any]:
    options, groups = _options(item.query)
    # A factor of the same name would be overwritten: documents also have their text as a factor.
    factors = {f"factor_{name}" if name in OWN else name: level for name, level in item.factors.items()}
    return {
        "item": item.id,
        "kind": types.query_kind(item.query),
        "text": item.query.context if isinstance(item.query, types.ContinuationQuery) else item.query.display_text(),
        "options": options,
        "groups": groups,
        **factors,
        "cluster": item.cluster,
        "gold": item.gold or "",
    }


def _options(query: types.Query) -> tuple[list[str], list[str]]:
    if isinstance(query, types.ClozeQuery):
        return query.texts(), [option.group for option in query.options]
    if isinstance(query, types.GenerateQuery):
        return [option.fills[0] for option in query.options], [option.group for option in query.options]
    if isinstance(query, types.ContinuationQuery):
        return list(query.continuations), []
    if isinstance(query, types.MultipleChoiceQuery):
        return list(query.labels), []
    return (list(query.candidates) if isinstance(query, types.SpanQuery) else []), []


def _licence(request: ExportRequest) -> Licence:
    files = [part for part in named_files(request.options) if Path(part).is_file()]
    if files or request.design.get("source") == "":
        return Licence(
            "unknown",
            f"Some or all texts are from {', '.join(map(in_markdown, files)) or 'a file'}: state their owner and licence before "
            "you distribute them.",
        )
    if "winogender" in str(request.options.get("challenge", "")):
        return Licence(
            "mit",
            "The sentences are the Winogender schemas of Rudinger, Naradowsky, Leonard and Van Durme 2018, *Gender Bias in "
            "Coreference Resolution* (winogender-schemas, MIT licence), with participants and W values inserted by Undertow.",
        )
    return audits.load(request.audit).licence


def _dataset_card(request: ExportRequest, columns: Sequence[str]) -> str:
    licence = _licence(request)
    title = str(request.design.get("title") or request.audit)
    head = {
        "license": licence.name,
        "pretty_name": f"{title} ({request.audit})",
        "tags": ["bias", "underspecification", "undertow"],
        "size_categories": [next((name for limit, name in SIZES if request.n_items < limit), "100K<n<1M")],
    }
    rest = [name for name in columns if name not in (*OWN, "w_name", "w_index", "w_value", "w")]
    rows = {name: means for name, means in COLUMNS.items() if name.split(",")[0] in columns}
    rows |= {", ".join(map(in_markdown, rest)): "factors of the design"} if rest else {}
    facts = {"head": head, "title": title, "rows": rows, "owner": licence.owner, "split": SPLIT, "data": DATA}
    facts |= {"words": request.design.get("words", {}), "notes": request.design.get("notes", [])}
    return render("dataset_card.md.j2", request, **facts)
