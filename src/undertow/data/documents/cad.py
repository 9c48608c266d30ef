"""CAD, the Contextual Abuse Dataset: documents of Bauer et al. 2022, from its published files or downloaded once.

Vidgen, Nguyen, Margetts, Rossini and Tromble 2021, "Introducing CAD: the Contextual Abuse Dataset"; CC BY 4.0. Its texts are
abusive and are not part of this project.

Zenodo record 4881008 has `data.zip`; its folder `data` holds `cad_v1_1.tsv` (all annotations, 23 columns), the split files
`cad_v1_1_train.tsv`, `_dev` and `_test` (id, text, labels), and version 1 of each, of which 95 entries were corrected. The split files
have no rationales, so they can be used for diagnosis only; they label a text annotated only as a slur as neutral.

Each row of the full file is an annotation. An annotation that passes the filters of Bauer et al., section 4.1, is a document with one
span. For diagnosis, equal texts count once (`document_set.distinct_texts`).

The code of CAD's authors (dongpng/cad_naacl2021) documents the cells: primary categories (ConvoKit's page spells some differently);
splits train, dev, test, exclude_empty, exclude_bot, exclude_lang and exclude_image; "NA" with its quotes. Only one target is documented,
`ableness/disability`; the others are the names of Bauer et al. and their likely spellings. Unknown targets are counted and reported.
The published files quote no cell, so quotes are part of the text.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from undertow._files import sha256_of
from undertow._folders import data_folder
from undertow.data.documents.document_set import (
    CATEGORIES,
    DIMENSIONS,
    EVALUATION,
    TRAINING,
    Document,
    DocumentSet,
    distinct_texts,
    seen_in_training,
)
from undertow.data.fetch import fetch, save_download
from undertow.data.text_files import ENDINGS, MAX_TABLE_BYTES, header, read_rows
from undertow.errors import UndertowError, closest

NAME = "cad"
SOURCE_URL = "https://zenodo.org/records/4881008/files/data.zip?download=1"
FULL = "cad_v1_1.tsv"
SPLITS: Mapping[str, str] = {
    "cad_v1_1_train.tsv": "139b4d21be0f6b6c372dbfc8015eb18753e11025e3251f92eebd2ffb9d27fe17",
    "cad_v1_1_dev.tsv": "71f84da6ed1d52ec0e8e478e5428167c86bbb3686c34a54b81c222185ff7ec59",
    "cad_v1_1_test.tsv": "191113e50174b21fe30497e42028f3539e7efb1825b05df0f2ca3854985250e4",
}
"""SHA-256 of the split files; none is published for the full file."""
MAX_ARCHIVE_BYTES = 200 * 2**20
FULL_COLUMNS = (
    "id", "split", "annotation_Primary", "annotation_Target_top.level.category", "annotation_highlighted", "meta_text",
)  # fmt: skip
"""The used columns, of 23."""
SPLIT_COLUMNS = ("id", "text", "labels")
MAX_TRAINING_WORDS = 150
"""Bauer et al., section 4.1, filter iv."""

NEUTRAL, IDENTITY, AFFILIATION = "Neutral", "IdentityDirectedAbuse", "AffiliationDirectedAbuse"
PERSON, COUNTER, SLUR = "PersonDirectedAbuse", "CounterSpeech", "Slur"
PRIMARY = (NEUTRAL, IDENTITY, AFFILIATION, PERSON, COUNTER, SLUR)
COARSE: Mapping[str, str] = {IDENTITY: "identity", AFFILIATION: "affiliation"}
"""Our names of the primary categories of bias."""

_PRIMARY_OF = {name.lower(): name for name in PRIMARY} | {
    "identitydirected": IDENTITY, "affiliationdirected": AFFILIATION, "persondirected": PERSON, "slurs": SLUR,
    "nonhatefulslur": SLUR, "nonhatefulslurs": SLUR,
}  # fmt: skip
_TARGETS: Mapping[str, str] = {
    "sexuality": "sexual orientation|sexualities",
    "gender": "sex|gender identity|genders",
    "race": "races",
    "religion": "religions|religious belief|religious beliefs|belief",
    "age": "ages",
    "nationality": "nationalities|national origin",
    "ethnicity": "ethnicities|ethnic group|ethnic origin",
    "disability": "disabilities|ableness|ability|able bodiedness",
    "profession": "professions|occupation|job",
    "political affiliation": "political affiliations|politics|political|political group|political groups|political party"
    "|political ideology|political view|political views",
    "perceived negative groups": "perceived negative group|perceived negatively|negative groups|negative group"
    "|negatively perceived groups|negatively perceived group|negatively viewed groups|negatively viewed group",
}
_DIMENSION_OF = {name: dimension for dimension, names in _TARGETS.items() for name in [dimension, *names.split("|")]}
_SPLIT_OF = {"train": TRAINING, "dev": EVALUATION, "test": EVALUATION}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_LINE_BREAK = re.compile(r" *\[linebreak\] *", re.IGNORECASE)
NEITHER = "neither neutral nor directed at an identity or an affiliation"
TOO_LONG = f"training documents of more than {MAX_TRAINING_WORDS} words"

# The paper's counts: documents of each task, biased and not (table A1), and by dimension (table A2, in the order of `DIMENSIONS`).
PAPER_TASKS: Mapping[str, int] = {"identification": 580, "extraction": 496, "rephrasing": 437}
PAPER_YES_NO: Mapping[str, tuple[int, int]] = {"evaluation": (596, 613), "training": (892, 891)}
PAPER_DIMENSIONS: Mapping[str, tuple[int, ...]] = {
    "evaluation": (19, 101, 72, 45, 1, 31, 8, 81, 59, 138, 25),
    "training": (13, 233, 82, 70, 16, 41, 10, 185, 63, 267, 28),
}


def load_published() -> DocumentSet:
    """The full file of version 1.1 from the cache, or downloaded from its public address.

    The archive is verified by its split files, since no checksum of the full file is published.
    """
    path = data_folder(NAME) / Path(FULL).stem / FULL
    if not path.is_file():
        save_download(_fetch_full_file(), path)
    documents = read_cad(path)
    note = (
        f"{FULL} was fetched from {SOURCE_URL}, in an archive whose split files have the SHA-256 of version 1.1; no checksum of {FULL}"
        f" itself is published (here SHA-256 {sha256_of(path)})"
    )
    return replace(documents, notes=(*documents.notes, note))


def _fetch_full_file() -> bytes:
    by_hand = f"download data.zip yourself, unpack it, and give the path of its {FULL} in place of the name {NAME}"
    archive = fetch(SOURCE_URL, MAX_ARCHIVE_BYTES, NAME, by_hand)
    try:
        if len(archive) > MAX_ARCHIVE_BYTES:
            raise ValueError(f"it is larger than {MAX_ARCHIVE_BYTES // 2**20} MiB")
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            members = {name: opened.getinfo(f"data/{name}") for name in (*SPLITS, FULL)}
            if large := next((one.filename for one in members.values() if one.file_size > MAX_TABLE_BYTES), ""):
                raise ValueError(f"{large} is larger than {MAX_TABLE_BYTES // 2**20} MiB")
            files = {name: opened.read(member) for name, member in members.items()}
        changed = next((name for name in SPLITS if hashlib.sha256(files[name]).hexdigest() != SPLITS[name]), "")
        if changed:
            raise ValueError(f"{changed} is not that of version 1.1: its SHA-256 differs")
    # Further exceptions of zipfile for corrupt headers.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, KeyError) as error:
        raise UndertowError(f"{NAME}: {SOURCE_URL} is not CAD's archive ({error}); try again, or {by_hand}") from error
    return files[FULL]


def is_full(columns: Collection[str]) -> bool:
    """Whether a table of these columns is CAD's full file."""
    return {"annotation_Primary", "meta_text"} <= {name.strip('"') for name in columns}


def is_split(columns: Collection[str]) -> bool:
    """Whether a table of these columns is one of CAD's split files."""
    names = {name.strip('"') for name in columns}
    return set(SPLIT_COLUMNS) <= names and "biased" not in names


def read_cad(path: Path) -> DocumentSet:
    """Documents of CAD's full file that pass the filters of Bauer et al., section 4.1, and all neutral ones."""
    taken, left_out, strangers = set[str](), Counter[str](), Counter[str]()
    parts: dict[str, list[Document]] = {EVALUATION: [], TRAINING: []}
    n_mixed = 0
    for where, row in _rows(path, FULL_COLUMNS):
        cell = row["split"]
        split_name = cell.strip().lower()
        if split_name not in _SPLIT_OF and not split_name.startswith("exclude"):
            raise UndertowError(
                f"{where}: split is {cell[:40]!r}; use train, dev, test or one that begins with exclude"
            )
        split, primary = _SPLIT_OF.get(split_name, ""), _primary_of(row["annotation_Primary"], where)
        text, target = _clean(row["meta_text"]), row["annotation_Target_top.level.category"].strip()
        rationale, dimension = row["annotation_highlighted"], _dimension_of(target)
        span, biased = _locate_span(rationale, text), primary in COARSE
        # In the order of the filters; the first that applies counts.
        filters = {
            "in the splits that CAD's authors exclude": not split,
            NEITHER: primary != NEUTRAL and not biased,
            "neutral without a text": primary == NEUTRAL and not text,
            "biased without a rationale": biased and not _clean(rationale),
            "biased with a rationale that is not in the text": biased and not span,
            "biased on none of the eleven dimensions": biased and not dimension,
            TOO_LONG: split == TRAINING and len(text.split()) > MAX_TRAINING_WORDS,
        }
        reason = next((reason for reason, it_holds in filters.items() if it_holds), "")
        if not reason:
            n_mixed += biased and dimension not in CATEGORIES[COARSE[primary]]
            of_bias = {"dimension": dimension, "span": span} if biased else {}
            parts[split].append(Document(_unique(row["id"].strip(), taken), text, biased, **of_bias))
        elif reason.startswith("biased on none") and not _is_na(target):
            strangers[target] += 1
        left_out[reason] += 1
    unknown = ", ".join(f"{name!r} {n:,}" for name, n in strangers.most_common())
    seen = seen_in_training(parts[EVALUATION], parts[TRAINING])
    notes = [*_count_notes(parts, full=True), *seen, *_left_out_note(left_out, filters)]
    if unknown:
        notes.append(f"targets that are not known to be on one of the eleven dimensions: {unknown}")
    if n_mixed:
        notes.append(
            f"{n_mixed:,} biased documents have a dimension of the other coarse category than CAD's own; they are kept"
        )
    return _document_set(NAME, "Contextual Abuse Dataset", [path], parts, notes)


def read_splits(paths: Sequence[Path]) -> DocumentSet:
    """The documents of split files. A file with *train* in its name is for training, any other for evaluation."""
    taken, left_out = set[str](), Counter[str]()
    parts: dict[str, list[Document]] = {EVALUATION: [], TRAINING: []}
    for path in paths:
        split = TRAINING if "train" in path.name.lower() else EVALUATION
        for where, row in _rows(path, SPLIT_COLUMNS):
            text, labels = _clean(row["text"]), {_primary_of(label, where) for label in row["labels"].split(",")}
            biased = not labels.isdisjoint(COARSE)
            is_long = split == TRAINING and len(text.split()) > MAX_TRAINING_WORDS
            unusable = NEITHER if not biased and labels != {NEUTRAL} else TOO_LONG if is_long else ""
            reason = unusable if text else "without a text"
            left_out[reason] += 1
            if not reason:
                parts[split].append(Document(_unique(row["id"].strip(), taken), text, biased))
    notes = [
        "these files have neither dimensions nor spans: they can be used for diagnosis only, without the paper's filters that need"
        " a rationale",
        *_count_notes(parts, full=False),
        *_left_out_note(left_out, left_out),
        *seen_in_training(parts[EVALUATION], parts[TRAINING]),
    ]
    return _document_set("cad-splits", "Contextual Abuse Dataset, texts and labels", paths, parts, notes)


def read_folder(folder: Path) -> DocumentSet:
    """The full file of a folder, or else its three split files; of several versions, the corrected one."""
    tables = [path for path in sorted(folder.iterdir()) if path.name.lower().endswith(ENDINGS) and path.is_file()]
    columns = {path: header(path) for path in tables}
    if full := [path for path, names in columns.items() if is_full(names)]:
        return read_cad(_only(full, f"{folder}: has several full files of CAD"))
    chosen = []
    for part in ("train", "dev", "test"):
        matches = [path for path, names in columns.items() if is_split(names) and f"_{part}" in path.name.lower()]
        if not matches:
            named = next((path for path in columns if f"_{part}" in path.name.lower()), None)
            if named is not None:
                raise UndertowError(
                    f"{named}: has not the columns of CAD's split files, {', '.join(SPLIT_COLUMNS)}; download it again"
                )
            raise UndertowError(f"{folder}: has neither CAD's full file nor its split {part}; name the unpacked folder")
        chosen.append(_only(matches, f"{folder}: has several files of the split {part}"))
    return read_splits(chosen)


def _only(paths: Sequence[Path], problem: str) -> Path:
    """The only path, or that of the corrected version if version 1 is also there."""
    newest = [path for path in paths if "v1_1" in path.name.lower()] or list(paths)
    if len(newest) > 1:
        raise UndertowError(f"{problem}: {', '.join(path.name for path in newest)}; give the path of one of them")
    return newest[0]


def _document_set(
    name: str, title: str, paths: Sequence[Path], parts: Mapping[str, Sequence[Document]], notes: Iterable[str]
) -> DocumentSet:
    source = f"Vidgen et al. 2021 (CC BY 4.0), {', '.join(path.name for path in paths)}"
    return DocumentSet(name, title, source, tuple(parts[EVALUATION]), tuple(parts[TRAINING]), tuple(notes))


def _rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The place of each row, and its cells by column.

    R quotes column names if it quotes any cell. A file with unquoted names has literal quotes, unless every quote within a cell is doubled.
    """
    names = {_bare(name): name for name in header(path)}
    is_quoted = any(bare != name for bare, name in names.items())
    for line, row in read_rows(path, [names.get(name, name) for name in needed], may_hold_controls=True):
        yield (
            f"{path}, line {line}",
            {
                _bare(name): _bare(cell)
                if is_quoted or ('""' in cell[1:-1] and '"' not in cell[1:-1].replace('""', ""))
                else cell
                for name, cell in row.items()
            },
        )


def _bare(cell: str) -> str:
    """A cell without surrounding quotes and with doubled inner quotes restored."""
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _primary_of(cell: str, where: str) -> str:
    if (known := _PRIMARY_OF.get(re.sub(r"[^a-z]", "", cell.lower()))) is None:
        raise UndertowError(
            f"{where}: the primary category {cell[:40]!r} is not one of CAD's{closest(cell, PRIMARY)}; use {', '.join(PRIMARY)}"
        )
    return known


def _dimension_of(cell: str) -> str:
    """The dimension of a target, one of eleven; "" if it is unknown or ambiguous."""

    def dimension(name: str) -> str:
        return _DIMENSION_OF.get(" ".join(re.sub(r"[^a-z]", " ", name.lower()).split()), "")

    dimensions = {dimension(part) for part in cell.split("/")}
    return dimension(cell) or (dimensions.pop() if len(dimensions) == 1 else "")


def _is_na(cell: str) -> bool:
    return cell.strip() in ("", '""', "NA", '"NA"')


def _clean(cell: str) -> str:
    """A text or rationale with its line breaks; "" if there is none."""
    return "" if _is_na(cell) else _CONTROL.sub(" ", _LINE_BREAK.sub("\n", cell)).strip()


def _locate_span(cell: str, text: str) -> str:
    """The substring of a text that its rationale marks; "" if it is not found.

    The search tries the rationale as it is, without surrounding quotes, with other white space, and in other case, as CAD's check does.
    """
    ways = [way for way in (_clean(cell), _clean(_bare(cell.strip()))) if way]
    spaced = [r"\s+".join(map(re.escape, way.split())) for way in ways]
    patterns = [(re.escape(way), 0) for way in ways] + [(way, flag) for flag in (0, re.IGNORECASE) for way in spaced]
    return next((match.group() for pattern, flag in patterns if (match := re.search(pattern, text, flag))), "")


def _unique(name: str, taken: set[str]) -> str:
    """The id; the second document of an id becomes `id#2`."""
    unique, number = name, 1
    while unique in taken:
        number += 1
        unique = f"{name}#{number}"
    taken.add(unique)
    return unique


def _count_notes(parts: Mapping[str, Sequence[Document]], *, full: bool) -> Iterator[str]:
    """Numbers of documents for each task, compared with the paper's tables A1 and A2; for split files, diagnosis only."""
    for (name, (n_yes, n_no)), part in zip(PAPER_YES_NO.items(), parts.values(), strict=True):
        texts = distinct_texts(part)
        yes = sum(document.biased for document in texts)
        if texts:
            yield (
                f"diagnosis: {len(texts):,} distinct {name} texts, {yes:,} biased and {len(texts) - yes:,} not"
                f" (the paper has {n_yes + n_no:,}: {n_yes} and {n_no})"
            )
        if both := {d.text for d in part if d.biased} & {d.text for d in part if not d.biased}:
            yield f"{len(both):,} {name} texts are labelled both biased and not biased; diagnosis counts them as biased"
    yield (
        "the paper does not say which of CAD's neutral documents it used; all of them are included,"
        " so a balanced set must be sampled"
    )
    if not full:
        return
    n_biased = {name: sum(document.biased for document in part) for name, part in parts.items()}
    yield (
        f"identification: {n_biased[EVALUATION]:,} documents of the evaluation splits pass the filters (the paper has"
        f" {PAPER_TASKS['identification']}), {n_biased[TRAINING]:,} of the training split (the paper has"
        f" {sum(PAPER_DIMENSIONS['training']):,})"
    )
    for name, part in zip(PAPER_DIMENSIONS, parts.values(), strict=True):
        counts = Counter(document.dimension for document in part)
        pairs = zip(DIMENSIONS, PAPER_DIMENSIONS[name], strict=True)
        counts_text = ", ".join(f"{dimension} {counts[dimension]:,} ({n})" for dimension, n in pairs)
        yield f"identification, {name} (the paper): {counts_text}"
    n_spans = sum(bool(document.span) for document in parts[EVALUATION])
    yield f"extraction: {n_spans:,} documents of the evaluation splits have a span (the paper has {PAPER_TASKS['extraction']})"
    yield f"rephrasing: CAD has no rephrasings (the paper has {PAPER_TASKS['rephrasing']}, collected by hand)"


def _left_out_note(left_out: Mapping[str, int], reasons: Iterable[str]) -> list[str]:
    counts = ", ".join(f"{left_out[reason]:,} {reason}" for reason in reasons if reason and left_out[reason])
    return [f"excluded: {counts}"] if counts else []
