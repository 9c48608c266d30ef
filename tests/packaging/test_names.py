"""Words that the design replaced do not come back into the names of src, and folders stay small.

python tests/packaging/test_names.py      counts the words again and writes `retired_words.tsv`
"""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "undertow"
COUNTS = Path(__file__).with_name("retired_words.tsv")
MAX_ENTRIES = 14
RETIRED = [
    "asked",
    "asker",
    "asks",
    "card",
    "damaged",
    "door",
    "evidence",
    "foreseen",
    "found",
    "hands",
    "neutral",
    "portion",
    "portions",
    "probe",
    "probes",
    "retell",
    "rounds",
    "shelves",
    "shown",
    "suited",
    "telling",
    "told",
    "turns",
    "unclaimed",
    "unscored",
]
"""Left columns of the design's table of names, and what came from them."""
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def words_of(name: str) -> list[str]:
    """The words of a snake_case, CamelCase or UPPER_CASE name, in lower case."""
    return [word.lower() for word in WORD.findall(name)]


def identifiers(text: str) -> list[str]:
    """All names in a module's code, each time that they occur; strings and comments are not looked at."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.NAME and not keyword.iskeyword(token.string)]


def retired_in(source: Path) -> Counter[str]:
    """How often each retired word occurs among the identifiers and file names of a package."""
    counts: Counter[str] = Counter()
    for path in sorted(source.rglob("*.py")):
        for name in [path.stem, *identifiers(path.read_text(encoding="utf-8"))]:
            counts.update(word for word in words_of(name) if word in RETIRED)
    return counts


def recorded() -> dict[str, int]:
    lines = COUNTS.read_text(encoding="utf-8").splitlines()[1:]
    return {word: int(count) for word, count in (line.split("\t") for line in lines)}


def record() -> None:
    counts = retired_in(SOURCE)
    lines = ["word\tcount", *(f"{word}\t{counts[word]}" for word in sorted(RETIRED))]
    COUNTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_retired_words_do_not_come_back() -> None:
    counts, known = retired_in(SOURCE), recorded()
    assert sorted(known) == sorted(RETIRED), "run python tests/packaging/test_names.py"
    risen = {word: f"{known[word]} -> {counts[word]}" for word in RETIRED if counts[word] > known[word]}
    assert not risen, f"retired words are used more often in names of src; use the field's noun: {risen}"
    fallen = {word: f"{known[word]} -> {counts[word]}" for word in RETIRED if counts[word] < known[word]}
    assert not fallen, f"lower the numbers with python tests/packaging/test_names.py: {fallen}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("what_is_told", ["what", "is", "told"]),
        ("ToldTable", ["told", "table"]),
        ("N_UNSCORED", ["n", "unscored"]),
        ("HTTPAsker", ["http", "asker"]),
        ("hold", ["hold"]),
        ("profound", ["profound"]),
    ],
)
def test_words_of_a_name(name: str, words: list[str]) -> None:
    assert words_of(name) == words


def test_retired_words_are_found_in_names_alone(tmp_path: Path) -> None:
    (tmp_path / "door.py").write_text('told = "asked"  # evidence\nclass NotToldYet: ...\n', encoding="utf-8")
    assert retired_in(tmp_path) == {"door": 1, "told": 2}


def entries(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name != "__pycache__"]


def test_folders_are_small() -> None:
    folders = [path for path in SOURCE.rglob("*") if path.is_dir() and path.name != "__pycache__"]
    assert len(folders) > 20
    large = {str(folder.relative_to(SOURCE)): len(entries(folder)) for folder in folders}
    assert not {folder: n for folder, n in large.items() if n > MAX_ENTRIES}


SHARED_NAMES = {
    "audit": "the module of an audit with a package of its own",
    "base": "what audits define, and what model families define",
    "causal": "causal language models in models, causal graphs in cli",
    "findings": "of each audit with a package of its own",
    "guard": "the judge of sentences in runs, its command in cli",
    "identification": "an audit of biased text, and identification of causal effects: the terms of two literatures",
    "items": "of each audit with a package of its own",
    "score": "scoring of recorded answers in runs, its command in cli",
}
"""Module names that occur more than once, each with the reason."""


def test_module_names_that_occur_twice_are_documented() -> None:
    counts = Counter(path.stem for path in SOURCE.rglob("*.py") if path.stem != "__init__")
    assert {name for name, n in counts.items() if n > 1} == set(SHARED_NAMES)


if __name__ == "__main__":
    record()
