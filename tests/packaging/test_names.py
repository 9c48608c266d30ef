from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "undertow"
MAX_ENTRIES = 14
RETIRED = [
    "asked", "asker", "asks", "card", "damaged", "door", "evidence", "foreseen", "found",
    "hands", "neutral", "portion", "portions", "probe", "probes", "retell", "rounds", "said", "shelves",
    "shown", "suited", "telling", "told", "turns", "unclaimed", "unscored",
]  # fmt: skip
"""Left columns of the design's table of names, and what came from them."""
ALLOWED = {
    "NEUTRAL": "a pronoun without gender; a category of CAD",
    "NEUTRAL_CHOICE": "a category of CAD",
    "neutral": "the word group of pronouns without gender",
    "_dataset_card": "the README of a dataset, as Hugging Face calls it",
    "dataset_card.md": "its template",
    "NOT_FOUND": "an HTTP status",
}
"""Names in which a retired word is the word of the field; errors of libraries end in NotFoundError."""
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""A word of a snake_case, CamelCase or UPPER_CASE name."""


def identifiers(text: str) -> list[str]:
    """All names in a module's code, each time that they occur; strings and comments are not looked at."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.NAME and not keyword.iskeyword(token.string)]


def template_names(text: str) -> list[str]:
    """All names in the expressions and statements of a Jinja template."""
    code = " ".join("".join(pair) for pair in re.findall(r"\{%(.*?)%\}|\{\{(.*?)\}\}", text, re.DOTALL))
    return re.findall(r"[A-Za-z_]\w*", re.sub(r'"[^"]*"', "", code))


def test_no_name_has_a_retired_word() -> None:
    """Neither identifiers and file names, nor names in templates."""
    files: dict[str, list[str]] = {}
    for path in sorted(one for one in SOURCE.rglob("*.*") if one.suffix in (".py", ".j2")):
        names_of = identifiers if path.suffix == ".py" else template_names
        for name in sorted({path.stem, *names_of(path.read_text(encoding="utf-8"))}):
            words = {word.lower() for word in WORD.findall(name)}
            if words & set(RETIRED) and name not in ALLOWED and not name.endswith("NotFoundError"):
                files.setdefault(name, []).append(str(path.relative_to(SOURCE)))
    assert files == {}, "use the noun of the field"


def test_folders_are_small() -> None:
    folders = [path for path in SOURCE.rglob("*") if path.is_dir() and path.name != "__pycache__"]
    assert len(folders) > 20
    entries = {folder: [one for one in folder.iterdir() if one.name != "__pycache__"] for folder in folders}
    assert not {
        str(folder.relative_to(SOURCE)): len(held) for folder, held in entries.items() if len(held) > MAX_ENTRIES
    }


SHARED_NAMES = {
    "audit": "the module of an audit with a package of its own",
    "base": "what audits define, and what model families define",
    "causal": "causal language models in models, causal graphs in cli",
    "figures": "of each audit, and of the verification of the lab",
    "findings": "of each audit with a package of its own",
    "guard": "the judge of sentences in runs, its command in cli",
    "items": "of each audit with a package of its own",
    "record_schema": "what a run holds: of audits in general, and of each audit with a package of its own",
    "report": "of each audit, and of the verification of the lab",
    "score": "scoring of recorded answers in runs, its command in cli",
    "tasks": "metrics of the four tasks, and the tasks themselves in their audit",
}
"""Module names that occur more than once, each with the reason."""


def test_module_names_that_occur_twice_are_documented() -> None:
    counts = Counter(path.stem for path in SOURCE.rglob("*.py") if path.stem != "__init__")
    assert {name for name, n in counts.items() if n > 1} == set(SHARED_NAMES)
