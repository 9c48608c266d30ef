"""From texts to a fine-tuned model: read them, mask every word of the word groups, put metadata in front, train.

    {"text": "She was a painter.", "birth_date": 1953, "birth_place": "Mali"}
    1953. Mali. [MASK] was a painter.          female

Texts are objects with a text field and metadata fields: lines of a JSONL file, one of the two data sets of McMilin 2022 (ICML workshop)
by name, or any mappings, as the rows of a `datasets.Dataset` are. `undertow.lab.training.finetune` trains on them.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from undertow._files import LONE_SURROGATE, file_size, first_line, is_encodable, parse_json
from undertow.data.challenges.challenge_file import word_list
from undertow.errors import UndertowError, closest
from undertow.lab.training.finetune import FinetunedModel, check_ends
from undertow.lab.training.finetune import finetune as train
from undertow.lab.training.token_windows import Example
from undertow.lab.training.training_config import FinetuneConfig, FinetuneOptions
from undertow.lab.training.training_loop import Progress

Words: TypeAlias = Mapping[str, Sequence[str]]
"""Forms by word group; the groups become the labels of the head."""
Row: TypeAlias = tuple[str, Mapping[str, Any]]
"""Where an object is from (a file and line), and the object."""
BETWEEN = ". "
"""Separator after each metadata value: `1953. Mali. TEXT`."""
NEEDS_EXTRA = "pip install 'undertow[data]'"
PARQUET = "refs/convert/parquet"
"""The hub's own copies of data sets that were published with a loading script, which is never run here."""
MAX_LISTED_FIELDS = 8
LOOKED_AT = 1000
"""So many objects of a file are looked at before the base is, which may be on the hub."""
MAX_LINE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class MaskedTexts:
    """Texts with masked words, and counts of excluded texts.

    Attributes:
        n_objects: how many were looked at.
        n_without_words: number of excluded texts without listed words.
        n_without_metadata: number of excluded objects without a required field.
    """

    examples: tuple[Example, ...]
    n_objects: int
    n_without_words: int
    n_without_metadata: int


def finetune(  # noqa: PLR0913 - what is trained, on which of what, how, and where it goes
    base: Path | str,
    data: str,
    out: Path,
    config: FinetuneConfig,
    *,
    wanted: FinetuneOptions | None = None,
    words: str = "icml",
    progress: Progress = lambda done, total, loss: None,
    revision: str = "",
) -> FinetunedModel:
    """Fine-tune a masked model on texts; see `undertow.lab.training.finetune.finetune`.

    Args:
        base: a masked model, by folder or hub id.
        data: a JSONL file, `wikibio` or `reddit-tldr`.
        out: the folder to write.
        config: how; its labels are the groups of `words`, as `labels_of` gives them.
        wanted: which fields, and how many texts; the field `text` of all if not given.
        words: a word list of the package, or a TOML file with a list of words for each group.
        progress: called after every step.
        revision: of a base on the hub.
    """
    wanted = wanted or FinetuneOptions()
    groups = word_groups(words)
    rows, path = read(data), Path(data)
    if path.is_file():
        looked_at = mask_all(islice(read(data), LOOKED_AT), groups, wanted)
        if looked_at.n_objects < LOOKED_AT:
            _check_some(data, looked_at, wanted)
    check_ends(base, out, revision)
    masked = mask_all(rows, groups, wanted)
    _check_some(data, masked, wanted)
    about: dict[str, Any] = {"source": path.name}
    if path.is_file():
        with path.open("rb") as file:
            about["file_sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    about |= {
        "fields": asdict(wanted),
        "layout": "".join(f"{{{name}}}{BETWEEN}" for name in wanted.metadata_fields) + f"{{{wanted.text_field}}}",
        "words": groups,
        "n_objects": masked.n_objects,
        "n_without_words": masked.n_without_words,
        "n_without_metadata": masked.n_without_metadata,
    }
    return train(base, masked.examples, config, out, progress, about=about, revision=revision)


def _check_some(data: str, masked: MaskedTexts, wanted: FinetuneOptions) -> None:
    if masked.examples:
        return
    if not masked.n_objects:
        raise UndertowError(f"{data}: is empty; write one object a line, with a text")
    fields = ", ".join(dict.fromkeys((*wanted.metadata_fields, *wanted.required_fields)))
    lacking = f", {masked.n_without_metadata:,} lack a value of {fields}" if fields else ""
    raise UndertowError(
        f"{data}: none of {masked.n_objects:,} texts can be used ({masked.n_without_words:,} have none of the words{lacking}); "
        "bring other texts, words or fields"
    )


def word_groups(name: str) -> dict[str, list[str]]:
    """Forms by group, from a word list of the package or a TOML file with one list for each group."""
    groups = word_list(name)
    Masker(groups, name)
    return groups


def labels_of(words: str) -> tuple[str, ...]:
    """The groups of a word list, which a head's labels are called."""
    return tuple(word_groups(words))


class Masker:
    """Finds the words of word groups in texts: whole words, in capitals or not, each word of several pieces as one place."""

    def __init__(self, words: Words, where: str = "words") -> None:
        owners: dict[str, tuple[str, str]] = {}
        for group, forms in words.items():
            for form in forms:
                owner, _ = owners.setdefault(form.casefold(), (group, form))
                if owner != group:
                    raise UndertowError(f"{where}: {form!r} is of groups {owner} and {group}; leave it out of one")
        if len(words) < 2:
            raise UndertowError(f"{where}: needs two groups of words or more to tell apart")
        # The longest first, so that of two forms that begin alike the whole one is found; each is a group of the pattern.
        ordered = sorted(owners.values(), key=lambda owned: (-len(owned[1]), owned[1]))
        self._groups = [group for group, _ in ordered]
        either = "|".join(f"({re.escape(form)})" for _, form in ordered)
        self._pattern = re.compile(rf"(?<!\w)(?:{either})(?!\w)", re.IGNORECASE)

    def __call__(self, text: str, before: str = "") -> Example | None:
        """The text with its words masked, after `before`, whose words are not; None if it has none of them."""
        pieces, labels, at = [], [], 0
        for match in self._pattern.finditer(text):
            pieces.append(text[at : match.start()])
            labels.append(self._groups[(match.lastindex or 1) - 1])
            at = match.end()
        return Example((*pieces, text[at:]), tuple(labels), before) if labels else None


def mask_all(rows: Iterable[Row], words: Words, wanted: FinetuneOptions) -> MaskedTexts:
    """Texts of the rows with their words masked and their metadata in front, as many as are wanted.

    Raises:
        UndertowError: a row lacks a field, or its value is neither text nor a number. A missing value (null, empty, NaN, infinite)
            is not an error: its row is dropped and counted.
    """
    masker = Masker(words)
    names = dict.fromkeys((wanted.text_field, *wanted.metadata_fields, *wanted.required_fields))
    examples: list[Example] = []
    n_objects = n_without_words = n_without_metadata = 0
    for where, given in rows:
        n_objects += 1
        values = {name: _value(given, name, where) for name in names}
        if not all(value for name, value in values.items() if name != wanted.text_field):
            n_without_metadata += 1
            continue
        before = "".join(values[name] + BETWEEN for name in wanted.metadata_fields)
        example = masker(values[wanted.text_field], before)
        if example is None:
            n_without_words += 1
            continue
        examples.append(example)
        if len(examples) == wanted.max_texts:
            break
    return MaskedTexts(tuple(examples), n_objects, n_without_words, n_without_metadata)


def _value(given: Mapping[str, Any], name: str, where: str) -> str:
    """What an object holds in a field, as text; "" for nothing."""
    if name not in given:
        has = ", ".join(map(repr, list(given)[:MAX_LISTED_FIELDS])) or "none"
        raise UndertowError(f"{where}: has no field {name!r}; its fields are {has}")
    value = None if _is_missing(given[name]) else given[name]
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a year from a table with gaps
    if value is not None and (isinstance(value, bool) or not isinstance(value, (str, int, float))):
        raise UndertowError(f"{where}: field {name!r} must be text or a number, not {str(value)[:40]!r}")
    text = "" if value is None else str(value).strip()
    if not is_encodable(text):
        raise UndertowError(f"{where}: field {name!r} {LONE_SURROGATE}, which no tokenizer reads; fix it")
    return text


def _is_missing(value: Any) -> bool:
    """Whether a value is missing: null, NaN, an infinite number, or a missing value of a table."""
    import pandas as pd

    return pd.api.types.is_scalar(value) and (
        bool(pd.isna(value)) or (isinstance(value, float) and not math.isfinite(value))
    )


def read(data: str) -> Iterator[Row]:
    """Objects of a JSONL file, or of a data set of the hub by its name."""
    path = Path(data)
    if path.is_file():
        return read_jsonl(path)
    if data in DATA_SETS:
        return _read_data_set(data)
    if path.is_dir():
        raise UndertowError(f"{data}: is a folder; name a JSONL file, with one object a line")
    raise UndertowError(
        f"{data}: is not a file{closest(data, DATA_SETS)}; name a JSONL file, or {', '.join(DATA_SETS)}"
    )


def read_jsonl(path: Path) -> Iterator[Row]:
    """Objects of a file, one a line, without empty lines; raises an `UndertowError` that names the line that is none."""
    file_size(path)
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
                if len(line) > MAX_LINE_BYTES:
                    raise UndertowError(f"{path}, line {number}: is longer than {MAX_LINE_BYTES // 2**20} MiB")
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                if text.strip():
                    where = f"{path}, line {number}"
                    try:
                        given = parse_json(text)
                    except ValueError as error:
                        raise UndertowError(f"{where}: is not JSON ({error}); write one object a line") from error
                    if not isinstance(given, dict):
                        raise UndertowError(f"{where}: must be an object with a text, not {text.strip()[:40]!r}")
                    yield where, given
    except UnicodeDecodeError as error:
        raise UndertowError(f"{path}, line {number}: is not UTF-8; save the file as UTF-8 text") from error
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror}); check the path") from error


class _Fields(dict[str, Any]):
    """The fields of an entry of an encyclopedia, where an entry lacks most of those that others have."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> None:
        return None


_YEAR = re.compile(r"(?<!\d)(?:1\d|20)\d\d(?!\d)")


def of_wikibio(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """An entry of WikiBio (Lebret et al. 2016): `text`, and the fields of its table; of `birth_date` the year.

    Of several columns with the same name, the first non-empty one counts.
    """
    table = row["input_text"]["table"]
    fields = _Fields()
    for name, content in zip(table["column_header"], table["content"], strict=True):
        if content.strip() and not fields.get(name):
            fields[name] = content.strip()
    years = _YEAR.findall(fields.get("birth_date") or "")
    fields["birth_date"] = years[0] if years else None
    fields["text"] = row["target_text"]
    return fields


def of_reddit(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A post of Webis-TLDR-17 (Völske et al. 2017): `text`, its content, and its `subreddit`."""
    return {"text": row["content"], "subreddit": row["subreddit"]}


DATA_SETS = {"wikibio": ("michaelauli/wiki_bio", of_wikibio), "reddit-tldr": ("webis/tldr-17", of_reddit)}
"""Hub id of each data set, and how its rows become objects."""


def _read_data_set(name: str) -> Iterator[Row]:
    try:
        import datasets
    except ImportError as error:
        raise UndertowError(f"{name}: is read with the package datasets, which is not here; {NEEDS_EXTRA}") from error
    hub_id, shaped = DATA_SETS[name]
    number = 0
    try:
        for row in datasets.load_dataset(hub_id, revision=PARQUET, split="train", streaming=True):
            number += 1
            yield f"{name}, row {number}", shaped(row)
    except Exception as error:  # the hub's libraries raise whatever theirs raise
        raise UndertowError(
            f"{name}: {hub_id} cannot be read from the hub after {number:,} rows ({type(error).__name__}: {first_line(error)}); check "
            "the network, or bring a JSONL file"
        ) from error
