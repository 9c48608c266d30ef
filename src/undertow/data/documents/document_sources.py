"""Finding documents by name: the package's own statements, a user's table, or CAD."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from undertow._files import is_folder, is_plain_file
from undertow.data.documents import cad
from undertow.data.documents.document_set import (
    OWN,
    Document,
    DocumentSet,
    own_set,
    read_documents,
    read_rephrase_pairs,
)
from undertow.data.text_files import ENDINGS, header
from undertow.errors import UndertowError, closest

NAMED: Mapping[str, Callable[[], DocumentSet]] = {OWN: own_set, cad.NAME: cad.load_published}
"""The sets that have a name."""
DOCUMENT_SUMMARIES: Mapping[str, str] = {
    OWN: "mild statements, biased on eleven dimensions or not, with spans and rephrasings",
    cad.NAME: "Contextual Abuse Dataset: abusive texts, fetched on first use",
}
"""Descriptions of the named sets."""


def is_documents(name: str) -> bool:
    """Whether a name, file or folder is of documents, and not of sentences with blanks."""
    path = Path(name)
    if name in NAMED or is_folder(path):
        return True
    if not is_plain_file(path) or not name.lower().endswith(ENDINGS):
        return False
    return _reader_of(header(path)) is not None


def may_offend(name: str) -> bool:
    """Whether these are texts of CAD, which need a warning."""
    path = Path(name)
    if name == cad.NAME or is_folder(path):
        return True
    columns = header(path) if is_plain_file(path) else ()
    return cad.is_full(columns) or cad.is_split(columns)


def documents_table(name: str) -> list[dict[str, str]]:
    """Documents as rows, for printing."""
    loaded = load_documents(name)
    return [
        {
            "id": one.id, "split": split, "biased": "yes" if one.biased else "no", "dimension": one.dimension,
            "span": one.span, "rephrasing": one.rephrasing, "text": one.text,
        }
        for split, documents in (("evaluation", loaded.evaluation), ("train", loaded.training))
        for one in documents
    ]  # fmt: skip


def load_documents(name: str, rephrasings: str = "") -> DocumentSet:
    """Documents by name, from a table (.tsv, .csv, gzipped or not), or from a folder with the files of CAD.

    The columns of a table show whether it is CAD's full file, one of its split files, rephrase pairs, or documents in the package's
    format. `rephrasings` is the path of rephrase pairs, matched to documents by span and, if given, dimension.
    """
    path = Path(name)
    if name in NAMED:
        documents = NAMED[name]()
    elif is_folder(path):
        documents = cad.read_folder(path)
    elif is_plain_file(path) or name.lower().endswith(ENDINGS):
        documents = (_reader_of(header(path)) or read_documents)(path)
    else:
        raise UndertowError(
            f"there are no documents called {name!r} and no such file: use {', '.join(NAMED)}, a file that ends in"
            f" {', '.join(ENDINGS)}, or a folder with the files of CAD{closest(name, NAMED)}"
        )
    return _with_rephrasings(documents, Path(rephrasings)) if rephrasings else documents


def _reader_of(columns: Collection[str]) -> Callable[[Path], DocumentSet] | None:
    """What reads a table of documents with these columns; None for another table."""
    if cad.is_full(columns):
        return cad.read_cad
    if cad.is_split(columns):
        return lambda path: cad.read_splits([path])
    if {"span", "rephrasing"} <= {*columns}:
        return read_documents if "biased" in columns else read_rephrase_pairs
    return read_documents if {"text", "biased"} <= {*columns} else None


def _with_rephrasings(documents: DocumentSet, path: Path) -> DocumentSet:
    """The documents with the rephrasings of a table of pairs; matches of span and dimension precede matches of the span alone."""
    given = read_rephrase_pairs(path)
    # By span, with normalised white space, and dimension, "" for any.
    pairs: dict[tuple[str, str], str] = {}
    for pair in (*given.evaluation, *given.training):
        if pairs.setdefault((normalize_space(pair.span), pair.dimension), pair.rephrasing) != pair.rephrasing:
            raise UndertowError(f"{path}: has two rephrasings of one span, the second of {pair.id!r}; keep one")
    used = set[tuple[str, str]]()
    parts: list[tuple[Document, ...]] = []
    n_matched = []
    for part in (documents.evaluation, documents.training):
        spans = [normalize_space(one.span) for one in part]
        keys = [
            next((key for key in ((span, one.dimension), (span, "")) if span and key in pairs), None)
            for span, one in zip(spans, part, strict=True)
        ]
        matched = [key for key in keys if key]
        used.update(matched)
        n_matched.append(len(matched))
        parts.append(
            tuple(replace(one, rephrasing=pairs[key]) if key else one for one, key in zip(part, keys, strict=True))
        )
    if not used:
        raise UndertowError(
            f"{path}: none of its {len(pairs):,} spans is one of {documents.name}; give pairs of this set"
        )
    note = (
        f"rephrasings of {path.name}: {len(used):,} of {len(pairs):,} have their span here, in {n_matched[0]:,}"
        f" evaluation and {n_matched[1]:,} training documents"
    )
    return replace(documents, evaluation=parts[0], training=parts[1], notes=(*documents.notes, note))


def normalize_space(span: str) -> str:
    """A span with single spaces in place of white space and CAD's marks of line breaks."""
    return " ".join(re.sub(r"\[linebreak\]", " ", span, flags=re.IGNORECASE).split())
