"""Finding sentences by name, to put any W into: the package's own, published ones, or a user's file."""

from __future__ import annotations

from pathlib import Path

from undertow._files import is_plain_file
from undertow.data.sentences import schemas, winogender
from undertow.data.sentences.sentence_set import SentenceSet
from undertow.data.sentences.user_table import ENDINGS, is_schema_file, parse_options, read_schemas, read_sentences
from undertow.data.templates import challenge_file
from undertow.data.text_files import closest
from undertow.errors import UndertowError

OWN = "undertow-schemas"
SIMPLIFIED = "simplified"
SUMMARIES = {
    OWN: "Undertow schemas: 60 occupations, two sentences each, four participants",
    SIMPLIFIED: "the same with one person only; also simplified-winogender",
    winogender.NAME: "Winogender schemas with four participants; fetched once, or read with --data-dir",
}
"""What each named set is; had without reading or fetching any."""


def names() -> list[str]:
    """The sets that have a name."""
    return [*SUMMARIES, f"{SIMPLIFIED}-{winogender.NAME}"]


def is_sentences(name: str) -> bool:
    """Whether a name is one of these, rather than that of a challenge set with its own place for W."""
    return name in names() or name.lower().endswith(ENDINGS) or name.startswith(f"{SIMPLIFIED}:")


def load_sentences(name: str, data_dir: str = "", options: str = "") -> SentenceSet:
    """Sentences by name, or from a file: a table (`.csv`, `.tsv`), or a challenge set (`.toml`) without `{w}`.

    Args:
        name: one of `names()`, a challenge set, or the path of a file; `simplified:FILE` for schemas of a file, one person only.
        data_dir: folder with the published files of winogender.
        options: word groups for a table, such as `female: she; male: he`; pronouns if not given.
    """
    if data_dir and winogender.NAME not in name:
        raise UndertowError(f"challenge {name!r}: leave --data-dir out, which is for {winogender.NAME}")
    if options and not name.lower().endswith(ENDINGS):
        raise UndertowError(f"challenge {name!r} has word groups of its own; leave --options out, or name a table")
    one_person, _, file = name.partition(":")
    if name in (OWN, SIMPLIFIED):
        return (schemas.extend if name == OWN else schemas.simplify)(schemas.own())
    if name in names():
        source = winogender.read_winogender(data_dir)
        return (schemas.extend if name == winogender.NAME else schemas.simplify)(source)
    if one_person == SIMPLIFIED:
        return schemas.simplify(read_schemas(_file(file)))
    if name.lower().endswith(ENDINGS):
        return _table(_file(name), options)
    if name in challenge_file.names() or is_plain_file(Path(name)):
        return challenge_file.load(name).sentences()
    raise UndertowError(
        f"there is no challenge called {name!r} and no such file: use {', '.join(names())}"
        f", or a .csv, .tsv or .toml file{closest(name, names())}"
    )


def _table(path: Path, options: str) -> SentenceSet:
    if is_schema_file(path):
        return schemas.extend(read_schemas(path))
    return read_sentences(path, parse_options(options) if options else ())


def _file(name: str) -> Path:
    path = Path(name)
    if not is_plain_file(path):
        raise UndertowError(f"{path}: there is no such file of sentences; check the path")
    return path
