"""Export an audit's items for other tools, with one module per format; names() imports none of them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from undertow import audits, data
from undertow.errors import UndertowError, closest
from undertow.inference.runner import KIND_WORDS
from undertow.integrations.export_format import Exported, ExportRequest, Format
from undertow.runs.config import RunConfig
from undertow.runs.folder.provenance import command_line
from undertow.runs.folder.storage import write_json
from undertow.runs.folder.whole_folder import Kind, check_place, write_folder
from undertow.types import CHOICE, EXACT, GENERATION, query_kind

__all__ = ["Exported", "export", "export_request", "load", "names"]

MARK = "undertow-export.json"
"""File that marks and describes an exported folder; a folder without it is not replaced."""
EXPORT = Kind(
    noun="export",
    last=MARK,
    parts=(MARK,),
    key=lambda _: "another",
    replace=", or replace it with --overwrite (in Python: out=..., overwrite=True)",
    whole=True,
)
FORMATS = {"datasets": "hf_datasets", "inspect": "inspect_ai", "lm-eval": "lm_eval"}
"""Export formats: name and module."""


def names() -> list[str]:
    """The export formats."""
    return sorted(FORMATS)


def load(name: str) -> Format:
    """A format by name; raises `UndertowError` if there is no such format."""
    if name not in names():
        raise UndertowError(
            f"there is no export format called {name!r}; there is {', '.join(names())}{closest(name, names())}"
        )
    return cast(Format, importlib.import_module(f"{__name__}.{FORMATS[name]}"))


def supported_audits(chosen: Format) -> list[str]:
    """Audits that a format supports."""
    of_documents = () if CHOICE in chosen.HOLDS else data.TASKS
    return [
        one
        for one in audits.names()
        if one not in of_documents and (chosen.TEXTS_ONLY or not audits.load(one).adaptive)
    ]


def export(  # noqa: PLR0913 - a keyword for each choice a user has
    format: str,  # noqa: A002 - what users call it
    audit: str,
    out: str | Path,
    *,
    seed: int = 0,
    limit: int = 0,
    overwrite: bool = False,
    **options: Any,
) -> Exported:
    """Export the items of an audit for another tool.

    Args:
        format: `lm-eval`, `inspect` or `datasets`.
        audit: name of the audit, for example `spurious-correlation`.
        out: the folder to write.
        seed: seed of sampling if there is a limit.
        limit: approximate number of items, counted as in `undertow run AUDIT --help`; 0 for all.
        overwrite: replace a folder that holds another export.
        options: options of the audit, for example `challenge="mgc", w="date,place"`.

    Raises:
        UndertowError: the format does not support the audit's items, an option is invalid, or the folder exists.
    """
    chosen, folder = load(format), Path(out)
    check_place(folder, "", EXPORT, overwrite=overwrite)
    request = export_request(chosen, format, RunConfig(audit=audit, options=options, seed=seed, limit=limit), folder)
    names: Sequence[str] = ()
    next_steps: Sequence[str] = ()

    def fill(draft: Path) -> None:
        nonlocal names, next_steps
        names, next_steps = chosen.write(request, draft, folder.absolute())
        facts = {name: getattr(request, name) for name in ("audit", "options", "seed", "limit")}
        facts |= {"names": list(names), "items": request.n_items}
        facts |= {name: getattr(request, name) for name in ("challenge_sha256", "command")}
        write_json(draft / MARK, {"format": format, **facts, "undertow": version("undertow")})

    write_folder(folder, "", fill, EXPORT, overwrite=overwrite)
    return Exported(folder, format, audit, names, request.n_items, next_steps)


def export_request(chosen: Format, format_name: str, job: RunConfig, folder: Path) -> ExportRequest:
    """The items of an audit; raises `UndertowError` if an option is invalid, or the format does not support the items."""
    audit, settings, protocol = job.resolve()
    if audit.adaptive and not chosen.TEXTS_ONLY:
        raise UndertowError(
            f"{job.audit} chooses later queries by the answers to earlier ones, so no other tool can ask them; "
            f"run it with undertow run {job.audit}, or export the first queries with undertow export datasets {job.audit}"
        )
    documents = str(getattr(settings, "challenge", ""))
    if job.audit in data.TASKS and data.may_offend(documents):
        raise UndertowError(
            f"the texts of {documents} are abusive and belong to their publisher, so they cannot be exported; "
            f"run the audit with undertow run {job.audit}, or export another challenge"
        )
    given = changed(settings)
    settings = audit.adapt_settings(settings, dict.fromkeys(chosen.HOLDS, (EXACT,)))
    if given.get("prompts") and not getattr(settings, "prompts", ""):
        raise UndertowError(f"{job.audit} has {KIND_WORDS[GENERATION]} with --prompts, and {chosen.REFUSAL}")
    items = next(audit.items(settings, job.sampling))
    kinds = dict.fromkeys(query_kind(item.query) for item in items)
    if strange := [kind for kind in kinds if kind not in chosen.HOLDS]:
        raise UndertowError(f"{job.audit} has {KIND_WORDS[strange[0]]} here, and {chosen.REFUSAL}")
    design = {**audit.design(settings), "protocol": protocol}
    if audit.adaptive:
        note = "These are the first queries; a run adds queries that depend on their answers."
        design["notes"] = [*design.get("notes", []), note]
    common = {name: value for name, value in (("seed", job.seed), ("limit", job.limit)) if value}
    return ExportRequest(
        audit=job.audit,
        options=changed(settings),
        seed=job.seed,
        limit=job.limit,
        challenge_sha256=data.challenge_digest(items),
        design=design,
        n_items=len(items),
        items=items,
        command=command_line(["export", format_name, job.audit], {**common, **given, "out": folder}),
    )


def changed(settings: Any) -> dict[str, Any]:
    """The options that differ from their defaults."""
    given = asdict(settings)
    return {option.name: given[option.name] for option in fields(settings) if given[option.name] != option.default}
