"""CAD, the Contextual Abuse Dataset: the documents of Bauer et al. 2022, read from its published file.

Vidgen, Nguyen, Margetts, Rossini and Tromble 2021, "Introducing CAD: the Contextual Abuse Dataset"; CC BY 4.0. Its texts are
abusive, and none of them is part of this project.

The public address is Zenodo record 4881008: `data.zip`, which holds `cad_v1_1.tsv` (all annotations, 23 columns) and
`cad_v1_1_train.tsv`, `_dev`, `_test` (id, text, labels) in its folder `data`, and version 1 of each, of which 95 entries were
corrected. How it is fetched, and what of it can be checked, is in `cad_download`.

One row is one annotation, and one annotation that passes the paper's filters is one document, with the one span that it marks: a
text with two annotations is two documents. For diagnosis a text counts once (`documents.distinct_texts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from undertow.data.documents import cad_download
from undertow.data.documents.cad_notes import left_out_note, stranger_note, task_notes
from undertow.data.documents.cad_splits import NEITHER, NO_TEXT, SPLIT_COLUMNS, TOO_LONG, Ids, is_too_long, read_splits
from undertow.data.documents.cad_values import (
    COARSE,
    EXCLUDED,
    NEUTRAL,
    cad_rows,
    clean,
    dimension_of,
    find_span,
    is_na,
    primary_of,
    split_of,
)
from undertow.data.documents.document_set import (
    CATEGORIES,
    ENDINGS,
    EVALUATION,
    TRAINING,
    Document,
    DocumentSet,
    header,
)
from undertow.errors import UndertowError

NAME = cad_download.NAME
FULL_COLUMNS = (
    "id", "split", "annotation_Primary", "annotation_Target_top.level.category", "annotation_highlighted", "meta_text",
)  # fmt: skip
"""The columns that are read, of 23."""
MARKS = ("annotation_Primary", "meta_text")
"""The columns that a full file is known by."""
NEWEST = "v1_1"
"""In the names of the corrected files, which stand beside those of version 1."""

_NO_DIMENSION = "biased on none of the eleven dimensions"


def published() -> DocumentSet:
    """CAD by its name alone: the full file of version 1.1 from the cache, or else fetched from its public address and checked.

    The notes say how far it could be checked. Targets and rationales are trusted on first use: no checksum of the full file is
    known, so its own is written beside it when it is first fetched, and compared from then on.

    Raises:
        UndertowError: the files cannot be had or kept, or are not what they should be.
    """
    cad_files = cad_download.fetch_cad()
    documents = read_cad(cad_files.path)
    return replace(documents, notes=(*documents.notes, *cad_files.notes))


def is_full(columns: Collection[str]) -> bool:
    """Whether a table of these columns is CAD's full file."""
    return set(MARKS) <= {name.strip('"') for name in columns}


def is_split(columns: Collection[str]) -> bool:
    """Whether a table of these columns is one of CAD's split files."""
    names = {name.strip('"') for name in columns}
    return set(SPLIT_COLUMNS) <= names and "biased" not in names


def read_cad(path: Path) -> DocumentSet:
    """The documents of CAD's full file that pass the filters of Bauer et al., section 4.1, and all its neutral ones.

    Raises:
        UndertowError: the file cannot be read, or a row is not what it must be; names the line.
    """
    annotations = [_annotation(row, where) for where, row in cad_rows(path, FULL_COLUMNS)]
    reasons = [_reason(annotation) for annotation in annotations]
    kept = [annotation for annotation, reason in zip(annotations, reasons, strict=True) if not reason]
    strangers = Counter(
        annotation.target
        for annotation, reason in zip(annotations, reasons, strict=True)
        if reason == _NO_DIMENSION and not is_na(annotation.target)
    )
    ids = Ids()
    documents = [(annotation.split, _document(annotation, ids)) for annotation in kept]
    evaluation = tuple(document for split, document in documents if split == EVALUATION)
    training = tuple(document for split, document in documents if split == TRAINING)
    return DocumentSet(
        name=NAME,
        title="Contextual Abuse Dataset",
        source=f"Vidgen et al. 2021 (CC BY 4.0), {path.name}",
        evaluation=evaluation,
        training=training,
        notes=(
            *task_notes(evaluation, training),
            *left_out_note({reason: reasons.count(reason) for reason in _REASONS}),
            *stranger_note(strangers),
            *_mixed_note(kept),
        ),
    )


def read_folder(folder: Path) -> DocumentSet:
    """The full file of a folder, or else its three split files; the corrected version where both are there.

    Raises:
        UndertowError: the folder holds neither, or more than one of a kind.
    """
    columns = {
        path: header(path)
        for path in sorted(folder.iterdir())
        if path.name.lower().endswith(ENDINGS) and path.is_file()
    }
    full = [path for path, names in columns.items() if is_full(names)]
    if full:
        return read_cad(_only(full, f"{folder}: holds several full files of CAD"))
    splits = [path for path, names in columns.items() if is_split(names) and not is_full(names)]
    chosen = []
    for part in ("train", "dev", "test"):
        matches = [path for path in splits if f"_{part}" in path.name.lower()]
        if not matches:
            raise UndertowError(
                f"{folder}: holds neither a full file of CAD nor a split file named like cad_v1_1_{part}.tsv; name the folder with"
                " the unpacked files, or one of them"
            )
        chosen.append(_only(matches, f"{folder}: holds several files of the split {part}"))
    return read_splits(chosen)


@dataclass(frozen=True, slots=True)
class _Annotation:
    """One row, with what its target and its rationale come to."""

    id: str
    split: str
    primary: str
    text: str
    target: str
    dimension: str
    rationale: str
    span: str


def _annotation(row: Mapping[str, str], where: str) -> _Annotation:
    text, rationale = clean(row["meta_text"]), row["annotation_highlighted"]
    target = row["annotation_Target_top.level.category"].strip()
    return _Annotation(
        id=row["id"].strip(),
        split=split_of(row["split"], where),
        primary=primary_of(row["annotation_Primary"], where),
        text=text,
        target=target,
        dimension=dimension_of(target),
        rationale=clean(rationale),
        span=find_span(rationale, text),
    )


_REASONS: Mapping[str, Callable[[_Annotation], bool]] = {
    "in the splits that CAD's authors exclude": lambda row: row.split == EXCLUDED,
    NEITHER: lambda row: row.primary not in (NEUTRAL, *COARSE),
    f"neutral {NO_TEXT}": lambda row: row.primary == NEUTRAL and not row.text,
    "biased without a rationale": lambda row: row.primary in COARSE and not row.rationale,
    "biased with a rationale that does not stand in the text": lambda row: row.primary in COARSE and not row.span,
    _NO_DIMENSION: lambda row: row.primary in COARSE and not row.dimension,
    TOO_LONG: lambda row: is_too_long(row.text, row.split),
}
"""Why a row is no document of ours, in the order of the filters: the first that holds counts."""


def _reason(row: _Annotation) -> str:
    return next((reason for reason, holds in _REASONS.items() if holds(row)), "")


def _document(row: _Annotation, ids: Ids) -> Document:
    if row.primary == NEUTRAL:
        return Document(ids.unique(row.id), row.text, biased=False)
    return Document(ids.unique(row.id), row.text, biased=True, dimension=row.dimension, span=row.span)


def _mixed_note(kept: Sequence[_Annotation]) -> tuple[str, ...]:
    """On rows whose dimension is of the other coarse category than their primary one."""
    n = sum(row.primary in COARSE and row.dimension not in CATEGORIES[COARSE[row.primary]] for row in kept)
    return (
        (f"{n:,} biased documents have a dimension of the other coarse category than CAD's own; they are kept",)
        if n
        else ()
    )


def _only(paths: Sequence[Path], problem: str) -> Path:
    """The one path, or the one of the corrected version."""
    newest = [path for path in paths if NEWEST in path.name.lower()] or list(paths)
    if len(newest) > 1:
        raise UndertowError(f"{problem}: {', '.join(path.name for path in newest)}; name the one to read by its path")
    return newest[0]
