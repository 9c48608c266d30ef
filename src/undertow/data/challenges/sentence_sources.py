"""Find sentence sets by name: built-in, published, or from a user's file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from undertow._files import LONE_SURROGATE, is_encodable, is_plain_file
from undertow.data.challenges import challenge_file
from undertow.data.sentences import schemas, winogender
from undertow.data.sentences.sentence_set import (
    FEMALE,
    MALE,
    PRONOUNS,
    UNKNOWN_CASE,
    Sentence,
    SentenceSet,
    group_blank,
    pronoun_blank,
)
from undertow.data.text_files import add_group, error_place, header, number_between, read_records, read_rows
from undertow.errors import UndertowError, closest
from undertow.types import RESERVED_COLUMNS, ClozeQuery, Factor

ENDINGS = (".csv", ".tsv")
SENTENCE = "sentence"
ID_COLUMNS = ("id", "sentid")
MARKS = re.compile(r"\[MASK\]|<mask>|\bMASK\b|_{2,}|\{blank\}")
"""Marks of a blank."""
CLASSES = (schemas.MAN, schemas.WOMAN, schemas.SOMEONE, schemas.OTHER, FEMALE, MALE, schemas.UNSPECIFIED)
Words = Sequence[tuple[str, str]]
"""(group, word) pairs."""


def parse_options(text: str) -> Words:
    """Word groups from one line, such as `female: she, her; male: he, him`: two or more, each with words of its own."""
    table: dict[str, list[str]] = {}
    if not text.strip(" ;"):
        raise UndertowError(f"options {text!r}: have no groups; write them as in 'yes: is; no: is not'")
    for part in filter(str.strip, text.split(";")):
        try:
            add_group(table, part)
        except UndertowError as error:
            raise UndertowError(f"options {text!r}: {error}; separate groups by ;") from error
    return option_pairs(table)


def option_pairs(table: Mapping[str, Iterable[str]]) -> Words:
    """(group, word) pairs of a table of words; none for an empty table.

    The words of a group are a list, tuple, one-dimensional array, or column or index of a table.

    Raises:
        UndertowError: there is only one group, a group without words or with other content, or a word in two groups.
    """
    # Words of other types may be unordered or infinite.
    listed = {
        group: list(words) if isinstance(words, (list, tuple)) or getattr(words, "ndim", 0) == 1 else None
        for group, words in table.items()
    }
    text = "; ".join(
        f"{group}: {table[group] if words is None else ', '.join(map(str, words))}" for group, words in listed.items()
    )
    pairs: list[tuple[str, str]] = []
    owners: dict[str, str] = {}
    for group, words in listed.items():
        if not words or not all(isinstance(word, str) and word.strip() for word in words):
            raise UndertowError(f"options {text!r}: group {group!r} needs a list of words")
        for word in map(str, words):  # arrays have their own string type
            if owners.setdefault(word, group) != group:
                raise UndertowError(f"options {text!r}: {word!r} is in two groups; choose one")
            pairs.append((group, word))
    if not table:
        return []
    if len({group for group, _ in pairs}) < 2:
        raise UndertowError(f"options {text!r}: needs two groups or more, as in 'yes: is; no: is not'")
    return list(dict.fromkeys(pairs))


def mark_blank(text: str) -> str:
    """The text with its blank marked as `{blank}`."""
    marks = MARKS.findall(text)
    if len(marks) != 1:
        raise UndertowError(f"{text!r}: has {len(marks) or 'no'} blanks; mark one, as {{blank}}, [MASK] or ___")
    return MARKS.sub("{blank}", text)


def cloze_query(text: str, options: Words = (), case: str = UNKNOWN_CASE) -> ClozeQuery:
    """The query of one marked sentence, with the user's options or pronouns."""
    opened = mark_blank(text)
    if options:
        return group_blank(opened, list(options))
    if case == UNKNOWN_CASE and "{verb:" in opened:
        case = "nominative"
    return pronoun_blank(opened, case)


def single(
    name: str, text: str, options: str | Mapping[str, Iterable[str]] = "", case: str = UNKNOWN_CASE
) -> SentenceSet:
    """A set of one marked sentence of unknown specification, with the sentence as title and `name` as its id.

    Options are word groups as text or as a table; by default pronouns of this case.
    """
    given = parse_options(options) if options and isinstance(options, str) else option_pairs(options or {})
    if not all(map(is_encodable, [text, *(part for pair in given for part in pair)])):
        raise UndertowError(f"the sentence {LONE_SURROGATE}, which no model can read; replace it")
    sentence = Sentence(name, cloze_query(text, given, case), {}, cluster=name)
    return SentenceSet("text", mark_blank(text), "", _words(given, case), (sentence,))


def read_sentences(path: Path, options: Words = ()) -> SentenceSet:
    """A table of sentences."""
    rows = read_rows(path, (SENTENCE,), ENDINGS)
    columns = list(rows[0][1])
    for name in columns:
        if name in RESERVED_COLUMNS - {"cluster", SENTENCE} or (name not in ID_COLUMNS and not name.isidentifier()):
            raise UndertowError(
                f"{path}: the column name {name!r} is reserved or not a word of letters, digits and underscores; use another name"
            )
    ids = next((name for name in ID_COLUMNS if name in columns), "")
    published = columns == ["sentid", SENTENCE]
    sentences = []
    seen: dict[str, int] = {}
    for line, cells in rows:
        row = {name: cell.strip() for name, cell in cells.items()}
        with error_place(f"{path}, line {line}"):
            name = row[ids] if ids else f"line {line}"
            if seen.setdefault(name, line) != line:
                raise UndertowError(f"repeats the id {name!r} of line {seen[name]}; give each sentence its own")
            given = {column: cell for column, cell in row.items() if column not in (ids, SENTENCE)}
            if published:
                # `doctor_female_0`: occupation, class, and referent of the pronoun.
                parts = name.split("_")
                if len(parts) != 3 or parts[1] not in (FEMALE, MALE, schemas.UNSPECIFIED) or not parts[0]:
                    raise UndertowError(f"sentid {name!r} should be like doctor_female_0; or add columns")
                names = ("occupation", "participant", "participant_class", "coreferent")
                given = dict(zip(names, (parts[0], parts[1], parts[1], parts[2]), strict=True))
            sentences.append(_sentence(name, row[SENTENCE], given, options))
    name = "simplified" if published else path.stem
    return SentenceSet(name, f"sentences of {path.name}", path.name, _words(options), tuple(sentences))


def read_schemas(path: Path) -> schemas.SchemaSource:
    """Schemas from a user's table: occupation, participant (with its article), coreferent, case, template.

    `percent_female` is optional; known occupations have the built-in value.
    """
    shares: dict[str, float] = {}
    by_name: dict[tuple[str, str], schemas.Schema] = {}
    for line, row in read_records(path, schemas.Schema, ENDINGS):
        share = schemas.own_shares().get(row.occupation) if row.percent_female is None else row.percent_female
        shares |= {} if share is None else {row.occupation: share}
        key = row.occupation, row.coreferent
        if key in by_name:
            raise UndertowError(f"{path}, line {line}: repeats the schema of {key[0]!r} with coreferent {key[1]}")
        by_name[key] = row
    return schemas.SchemaSource(path.stem, f"schemas of {path.name}", path.name, tuple(by_name.values()), shares)


def _words(options: Words, case: str = UNKNOWN_CASE) -> dict[str, tuple[str, ...]]:
    if not options:
        return dict(PRONOUNS[case])
    groups = dict.fromkeys(group for group, _ in options)
    return {group: tuple(word for owner, word in options if owner == group) for group in groups}


def _sentence(name: str, text: str, given: Mapping[str, str], options: Words) -> Sentence:
    if (case := given.get("pronoun_case") or UNKNOWN_CASE) not in PRONOUNS:
        raise UndertowError(f"pronoun_case {case!r} is not known; use {', '.join(PRONOUNS)}")
    query = cloze_query(text, options, case)
    unused = ("cluster", "gold", "well_specified")
    factors: dict[str, Factor] = {key: value for key, value in given.items() if key not in unused}
    decided = is_decided(given)
    if decided is not None:
        factors["well_specified"] = decided
    if "coreferent" in given:
        factors["coreferent"] = _coreferent(given)
    share = schemas.own_shares().get(given.get("occupation", ""))
    if given.get("percent_female"):
        share = number_between(0, 100, given["percent_female"])
        if math.isnan(share):
            raise UndertowError(f"percent_female {given['percent_female']!r} is not a number from 0 to 100")
    if share is not None:
        factors["percent_female"] = share
    gold = given.get("gold") or (decided_group(given) if decided else None)
    groups = {option.group for option in query.options}
    if given.get("gold") and gold not in groups:
        raise UndertowError(f"gold {gold!r} is not one of the groups {', '.join(sorted(groups))}")
    cluster = given.get("cluster") or given.get("occupation") or name
    return Sentence(name, query, factors, cluster, gold if gold in groups else None)


def is_decided(given: Mapping[str, str]) -> bool | None:
    """Whether a sentence determines its blank, by the cells of its row; None if unknown.

    The source is the column `well_specified` or the participant's class: *female* and *male* before a single
    occupation determine the blank, and so do *man* and *woman* if the pronoun is theirs (`coreferent` 1).
    """
    if "well_specified" in given:
        if given["well_specified"].lower() not in ("yes", "true", "1", "no", "false", "0"):
            raise UndertowError(f"well_specified is {given['well_specified']!r}; write yes or no")
        return given["well_specified"].lower() in ("yes", "true", "1")
    participant = given.get("participant_class")
    if participant is not None and participant not in CLASSES:
        raise UndertowError(f"participant_class {participant!r} is not known; use {', '.join(CLASSES)}")
    if participant in (FEMALE, MALE, schemas.UNSPECIFIED):
        return participant != schemas.UNSPECIFIED
    if participant is not None and "coreferent" in given:
        return participant in schemas.DECIDED and _coreferent(given) == 1
    return None


def decided_group(given: Mapping[str, str]) -> str:
    """The word group that the participant's class determines; the class itself for others."""
    participant = given.get("participant_class", "")
    return schemas.DECIDED.get(participant, participant)


def _coreferent(given: Mapping[str, str]) -> int:
    if given["coreferent"] not in ("0", "1"):
        raise UndertowError(
            f"coreferent is {given['coreferent']!r}; it must be 0 (the professional) or 1 (the participant)"
        )
    return int(given["coreferent"])


OWN = "undertow-schemas"
SIMPLIFIED = "simplified"
SUMMARIES = {
    OWN: "Undertow schemas: 60 occupations, two sentences each, four participants",
    SIMPLIFIED: "the same with one person only; also simplified-winogender",
    winogender.NAME: "Winogender schemas with four participants; fetched once, or read with --data-dir",
}
"""Descriptions of the named sets."""


def names() -> list[str]:
    """Names of sentence sets."""
    return [*SUMMARIES, f"{SIMPLIFIED}-{winogender.NAME}"]


def is_sentences(name: str) -> bool:
    """Whether a name is a sentence set, not a challenge set with its own place for W."""
    return name in names() or name.lower().endswith(ENDINGS) or name.startswith(f"{SIMPLIFIED}:")


def load_sentences(name: str, data_dir: str = "", options: str = "") -> SentenceSet:
    """Sentences by name, or from a file: a table (`.csv`, `.tsv`), or a challenge set (`.toml`) without `{w}`.

    A name is one of `names()`, or a path, or `simplified:FILE` for schemas of a file, one person only. `data_dir` has the published files
    of winogender. Options are word groups for a table, such as `female: she; male: he`; by default pronouns.
    """
    if data_dir and winogender.NAME not in name:
        raise UndertowError(f"challenge {name!r}: omit --data-dir, which is for {winogender.NAME}")
    if options and not name.lower().endswith(ENDINGS):
        raise UndertowError(f"challenge {name!r} has its own word groups; omit --options, or name a table")
    one_person, _, file = name.partition(":")
    if name in (OWN, SIMPLIFIED):
        return _own_sentences(name)
    if name in names():
        source = winogender.read_winogender(data_dir)
        return (schemas.extend if name == winogender.NAME else schemas.simplify)(source)
    if one_person == SIMPLIFIED:
        return schemas.simplify(read_schemas(_file(file)))
    if name.lower().endswith(ENDINGS):
        path = _file(name)
        if {"occupation", "participant", "coreferent", "case", "template"} <= set(header(path)):
            return schemas.extend(read_schemas(path))
        return read_sentences(path, parse_options(options) if options else ())
    if name in challenge_file.names() or is_plain_file(Path(name)):
        return challenge_file.load(name).sentences()
    raise UndertowError(
        f"there is no challenge called {name!r} and no such file: use {', '.join(names())}"
        f", or a .csv, .tsv or .toml file{closest(name, names())}"
    )


@cache
def _own_sentences(name: str) -> SentenceSet:
    return (schemas.extend if name == OWN else schemas.simplify)(schemas.own())


def _file(name: str) -> Path:
    path = Path(name)
    if not is_plain_file(path):
        raise UndertowError(f"{path}: there is no such file of sentences; check the path")
    return path
