"""Question templates of the occupation checklist: questions about two people, and their contexts.

A question is about two people in one order, and may be about one of them, an attribute or an occupation. The wordings are in
`question_templates.toml`, in the format that users write. Zhang, "Taxonomy-based CheckList for Large Language Model Evaluation", Table 1.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from undertow.data.text_files import read_toml
from undertow.errors import UndertowError

ATTRIBUTE, BINARY, SINGLE, MULTIPLE = "attribute", "binary", "single", "multiple"
BINARY_NEGATED, SINGLE_NEGATED = "binary_negated", "single_negated"
KINDS = (ATTRIBUTE, BINARY, BINARY_NEGATED, SINGLE, SINGLE_NEGATED, MULTIPLE)
CATEGORIES = ("skill", "knowledge", "ability")
YES, NO, BOTH, NEITHER = "Yes", "No", "Both", "Neither"
OWN = "question_templates.toml"

_HOLE = re.compile(r"\{(\w*)\}")
_PEOPLE = {"first", "second"}
_ONE = _PEOPLE | {"subject", "other"}
_JOB = {"job", "a_job"}
_HOLES: Mapping[str, set[str]] = {
    "context": _PEOPLE,
    "has": _ONE | {"parts"},
    "prompt": {"context", "question", "choices"},
    "phrase": {"attribute"},
    "phrases": {"attributes"},
    "choices.binary": _PEOPLE,
    "choices.single": _PEOPLE,
    "choices.multiple": _PEOPLE,
    "stated.context": _ONE | {"phrase"},
    ATTRIBUTE: _ONE | {"phrase"},
    BINARY: _ONE | _JOB,
    BINARY_NEGATED: _ONE | _JOB,
    SINGLE: _PEOPLE | _JOB,
    SINGLE_NEGATED: _PEOPLE | _JOB,
    MULTIPLE: _PEOPLE | _JOB,
}
"""What each text may hold."""
_NEEDED: Mapping[str, tuple[set[str], ...]] = {
    "context": ({"first"}, {"second"}),
    "has": ({"subject"}, {"parts"}),
    "prompt": ({"context"}, {"question"}),
    "phrase": ({"attribute"},),
    "phrases": ({"attributes"},),
    "stated.context": ({"subject"}, {"phrase"}),
    ATTRIBUTE: ({"subject"}, {"phrase"}),
    BINARY: ({"subject"}, _JOB),
    BINARY_NEGATED: ({"subject"}, _JOB),
    SINGLE: (_JOB,),
    SINGLE_NEGATED: (_JOB,),
    MULTIPLE: (_JOB,),
}
"""What each text must hold, one of each set."""


@dataclass(frozen=True, slots=True)
class People:
    """Two people in order, and the subject of the question, if it is one of them."""

    first: str
    second: str
    subject: str = ""

    @property
    def names(self) -> dict[str, str]:
        """What stands in the holes of a text."""
        names = {"first": self.first, "second": self.second}
        if not self.subject:
            return names
        return names | {"subject": self.subject, "other": self.second if self.subject == self.first else self.first}


@dataclass(frozen=True, slots=True)
class Questions:
    """All texts of the checklist.

    Attributes:
        version: raised when a text changes.
        texts: those that all wordings share, by name.
        wordings: for each, the question of every kind.
        source: the file that they are from.
    """

    version: str
    texts: Mapping[str, str]
    wordings: Sequence[Mapping[str, str]]
    source: str = OWN

    def phrase(self, attribute: str, category: str) -> str:
        """One attribute in a sentence."""
        return _filled(self.texts[f"phrase.{category}"], {"attribute": attribute})

    def context(self, people: People, granted: Sequence[tuple[str, Sequence[tuple[str, str]]]] = ()) -> str:
        """What stands before a question.

        Args:
            people: the two.
            granted: of one of them or of each, the attributes with their categories; a person without any has no sentence.
        """
        sentences = [_filled(self.texts["context"], people.names)]
        for subject, attributes in granted:
            parts = [
                _filled(self.texts[f"phrases.{category}" if len(names) > 1 else f"phrase.{category}"],
                        {"attributes": _listed(names), "attribute": names[0]})
                for category in CATEGORIES
                if (names := [name for name, of in attributes if of == category])
            ]  # fmt: skip
            if parts:
                who = People(people.first, people.second, subject)
                sentences.append(_filled(self.texts["has"], who.names | {"parts": _listed(parts, ", and ")}))
        return " ".join(sentences)

    def stated(self, people: People, attribute: str, category: str) -> str:
        """What stands before a question whose answer it gives: the subject has the attribute, the other one has not."""
        said = _filled(self.texts["stated.context"], people.names | {"phrase": self.phrase(attribute, category)})
        return f"{self.context(people)} {said}"

    def question(self, kind: str, people: People, wording: int = 0, **words: str) -> str:
        """One question; `words` are `phrase`, or `job` and `a_job`."""
        return _filled(self.wordings[wording][kind], people.names | words)

    def prompt(self, context: str, question: str, kind: str, people: People) -> str:
        """The prompt for a generated answer."""
        choices = _filled(self.texts[f"choices.{kind.partition('_')[0]}"], people.names)
        return _filled(self.texts["prompt"], {"context": context, "question": question, "choices": choices})


def load_questions(path: str = "") -> Questions:
    """The shipped questions, or those of a file in the same format.

    Raises:
        UndertowError: the file lacks a text, or a text holds what it must not or lacks what it must hold.
    """
    return _read(read_toml(Path(path)), path) if path else _shipped()


@cache
def _shipped() -> Questions:
    text = resources.files("undertow.data").joinpath("resources", OWN).read_text(encoding="utf-8")
    return _read(tomllib.loads(text), OWN)


def _read(table: Mapping[str, Any], source: str) -> Questions:
    texts = {name: _text(table, name, source) for name in ("context", "has", "prompt")}
    for group, names in (("phrase", CATEGORIES), ("phrases", CATEGORIES), ("choices", (BINARY, SINGLE, MULTIPLE))):
        inner = _table(table, group, source)
        texts |= {f"{group}.{name}": _text(inner, name, source, f"{group}.") for name in names}
    texts["choices.attribute"] = texts["choices.binary"]
    texts["stated.context"] = _text(_table(table, "stated", source), "context", source, "stated.")
    given = table.get("wording")
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        raise UndertowError(f"{source}: has no [[wording]]; give one table of questions or more")
    wordings = [
        {kind: _text(one, kind, source, f"wording {number}, ") for kind in KINDS} for number, one in enumerate(given, 1)
    ]
    _refuse_strange(table, source)
    return Questions(str(table.get("version", "")), texts, wordings, Path(source).name)


_TABLES: Mapping[str, Sequence[str]] = {
    "phrase": CATEGORIES, "phrases": CATEGORIES, "choices": (BINARY, SINGLE, MULTIPLE), "stated": ("context",),
}  # fmt: skip


def _refuse_strange(table: Mapping[str, Any], source: str) -> None:
    """A misspelled text would be left out otherwise, and nobody would notice."""
    known = ("version", "context", "has", "prompt", *_TABLES, "wording")
    places = [("", table, known), *((f"[{name}] ", table[name], names) for name, names in _TABLES.items())]
    places += [(f"wording {number}, ", one, KINDS) for number, one in enumerate(table["wording"], 1)]
    for where, given, names in places:
        strange = next((name for name in given if name not in names), None)
        if strange is not None:
            raise UndertowError(f"{source}: {where}{strange!r} is no text of the checklist; use {', '.join(names)}")


def _table(table: Mapping[str, Any], name: str, source: str) -> Mapping[str, Any]:
    inner = table.get(name)
    if not isinstance(inner, dict):
        raise UndertowError(f"{source}: has no table [{name}]; take one over from the shipped questions")
    return inner


def _text(table: Mapping[str, Any], name: str, source: str, where: str = "") -> str:
    """A text that holds what it must, and nothing that nobody fills in."""
    text = table.get(name)
    if not isinstance(text, str) or not text.strip():
        raise UndertowError(f'{source}: {where}{name} is missing or is no text; write it as {name} = "..."')
    key = where + name if where + name in _HOLES else where.rstrip(".") if where.rstrip(".") in _HOLES else name
    holes = set(_HOLE.findall(text))
    if "{" in _HOLE.sub("", text) or "}" in _HOLE.sub("", text):
        raise UndertowError(
            f"{source}: {where}{name} has a brace that is no hole; write holes as {{first}}, without spaces or other signs"
        )
    strange = sorted(holes - _HOLES[key])
    if strange:
        raise UndertowError(
            f"{source}: {where}{name} holds {{{strange[0]}}}, which nothing fills in; it may hold "
            + ", ".join(f"{{{hole}}}" for hole in sorted(_HOLES[key]))
        )
    lacking = [needed for needed in _NEEDED.get(key, ()) if not needed & holes]
    if lacking:
        wanted = " or ".join(f"{{{hole}}}" for hole in sorted(lacking[0]))
        raise UndertowError(f"{source}: {where}{name} lacks {wanted}, so it asks the same of everyone")
    return text


def _filled(text: str, words: Mapping[str, str]) -> str:
    """The text with its holes filled; what fills them is left as it is, whatever signs it has."""
    return _HOLE.sub(lambda hole: words[hole[1]], text)


def _listed(names: Sequence[str], last: str = " and ") -> str:
    """Names in a row: a, b and c."""
    if len(names) < 2:
        return names[0]
    if len(names) == 2 and last == ", and ":
        last = " and "
    return ", ".join(names[:-1]) + last + names[-1]
