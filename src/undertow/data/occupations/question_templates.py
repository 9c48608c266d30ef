"""Question templates of the occupation checklist: questions about two people, and their contexts; both as tables to print.

A question is about two people in one order, and may be about one of them, an attribute or an occupation. The wordings are in
`question_templates.toml`, in the format that users write. Zhang, "Taxonomy-based CheckList for Large Language Model Evaluation", Table 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, Field

from undertow._schemas import Schema, check
from undertow.data.occupations.occupation_set import CATEGORIES, load_occupations, load_pairs
from undertow.data.text_files import RESOURCES, read_toml

ATTRIBUTE, BINARY, SINGLE, MULTIPLE = "attribute", "binary", "single", "multiple"
BINARY_NEGATED, SINGLE_NEGATED = "binary_negated", "single_negated"
KINDS = (ATTRIBUTE, BINARY, BINARY_NEGATED, SINGLE, SINGLE_NEGATED, MULTIPLE)
YES, NO, BOTH, NEITHER = "Yes", "No", "Both", "Neither"
OWN = "question_templates.toml"

Text = TypeVar("Text")
_HOLE = re.compile(r"\{(\w*)\}")
_PEOPLE = "first second"
_ONE = f"{_PEOPLE} subject other"
_JOB = "job a_job"


def _holes(may: str, *needed: str) -> AfterValidator:
    """A text with only these placeholders, and with one of each `needed` group; names are separated by spaces."""

    def check_text(text: str) -> str:
        if not text.strip():
            raise ValueError("is empty; write a text")
        holes, rest = set(_HOLE.findall(text)), _HOLE.sub("", text)
        if "{" in rest or "}" in rest:
            raise ValueError(
                "has a brace that is not a placeholder; write placeholders as {first}, without spaces or other characters"
            )
        if strange := sorted(holes - set(may.split())):
            raise ValueError(f"has the unknown placeholder {{{strange[0]}}}; use {_in_braces(may, ', ')}")
        if lacking := next((group for group in needed if not holes & set(group.split())), ""):
            raise ValueError(f"lacks {_in_braces(lacking, ' or ')}, so the question is the same for everyone")
        return text

    return AfterValidator(check_text)


def _in_braces(names: str, between: str) -> str:
    return between.join(f"{{{name}}}" for name in sorted(names.split()))


class PhraseTexts(Schema, Generic[Text]):
    """One attribute, or several, of each category in a sentence."""

    skill: Text
    knowledge: Text
    ability: Text


class ChoicesTexts(Schema):
    """Possible answers."""

    binary: Annotated[str, _holes(_PEOPLE)]
    single: Annotated[str, _holes(_PEOPLE)]
    multiple: Annotated[str, _holes(_PEOPLE)]


class StatedTexts(Schema):
    """An answer stated in the text."""

    context: Annotated[str, _holes(f"{_ONE} phrase", "subject", "phrase")]


class WordingTexts(Schema):
    """The question of every kind, in one wording."""

    attribute: Annotated[str, _holes(f"{_ONE} phrase", "subject", "phrase")]
    binary: Annotated[str, _holes(f"{_ONE} {_JOB}", "subject", _JOB)]
    binary_negated: Annotated[str, _holes(f"{_ONE} {_JOB}", "subject", _JOB)]
    single: Annotated[str, _holes(f"{_PEOPLE} {_JOB}", _JOB)]
    single_negated: Annotated[str, _holes(f"{_PEOPLE} {_JOB}", _JOB)]
    multiple: Annotated[str, _holes(f"{_PEOPLE} {_JOB}", _JOB)]


class QuestionsFile(Schema):
    """A file of questions."""

    version: Any = ""
    context: Annotated[str, _holes(_PEOPLE, "first", "second")]
    has: Annotated[str, _holes(f"{_ONE} parts", "subject", "parts")]
    prompt: Annotated[str, _holes("context question choices", "context", "question")]
    phrase: PhraseTexts[Annotated[str, _holes("attribute", "attribute")]]
    phrases: PhraseTexts[Annotated[str, _holes("attributes", "attributes")]]
    choices: ChoicesTexts
    stated: StatedTexts
    wording: Annotated[list[WordingTexts], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class People:
    """Two people in order, and the subject of the question, if it is one of them."""

    first: str
    second: str
    subject: str = ""

    @property
    def names(self) -> dict[str, str]:
        """Values of the placeholders of a text."""
        names = {"first": self.first, "second": self.second}
        if not self.subject:
            return names
        return names | {"subject": self.subject, "other": self.second if self.subject == self.first else self.first}


@dataclass(frozen=True, slots=True)
class Questions:
    """All texts of the checklist."""

    version: str
    texts: Mapping[str, str]
    wordings: Sequence[Mapping[str, str]]
    source: str = OWN

    def phrase(self, attribute: str, category: str) -> str:
        """One attribute in a sentence."""
        return _fill(self.texts[f"phrase.{category}"], {"attribute": attribute})

    def context(self, people: People, granted: Sequence[tuple[str, Sequence[tuple[str, str]]]] = ()) -> str:
        """The text before a question, with the granted attributes of one or both people, by category; none, no sentence."""
        sentences = [_fill(self.texts["context"], people.names)]
        for subject, attributes in granted:
            parts = [
                _fill(self.texts[f"phrases.{category}" if len(names) > 1 else f"phrase.{category}"],
                        {"attributes": _join_names(names), "attribute": names[0]})
                for category in CATEGORIES
                if (names := [name for name, of in attributes if of == category])
            ]  # fmt: skip
            if parts:
                who = People(people.first, people.second, subject)
                sentences.append(_fill(self.texts["has"], who.names | {"parts": _join_names(parts, ", and ")}))
        return " ".join(sentences)

    def state(self, people: People, attribute: str, category: str) -> str:
        """The text before a question whose answer it states: the subject has the attribute, the other person does not."""
        statement = _fill(self.texts["stated.context"], people.names | {"phrase": self.phrase(attribute, category)})
        return f"{self.context(people)} {statement}"

    def question(self, kind: str, people: People, wording: int = 0, **words: str) -> str:
        """One question; `words` are `phrase`, or `job` and `a_job`."""
        return _fill(self.wordings[wording][kind], people.names | words)

    def prompt(self, context: str, question: str, kind: str, people: People) -> str:
        """The prompt for a generated answer."""
        choices = _fill(self.texts[f"choices.{kind.partition('_')[0]}"], people.names)
        return _fill(self.texts["prompt"], {"context": context, "question": question, "choices": choices})


def load_questions(path: str = "") -> Questions:
    """The shipped questions, or those of a file in the same format."""
    return _read(Path(path)) if path else _load_shipped()


@cache
def _load_shipped() -> Questions:
    return _read(RESOURCES / OWN)


def _read(path: Path) -> Questions:
    given = check(QuestionsFile, read_toml(path), str(path)).model_dump()
    texts = {name: given[name] for name in ("context", "has", "prompt")}
    for group in ("phrase", "phrases", "choices", "stated"):
        texts |= {f"{group}.{name}": text for name, text in given[group].items()}
    texts["choices.attribute"] = texts["choices.binary"]
    return Questions(str(given["version"]), texts, given["wording"], path.name)


def _fill(text: str, words: Mapping[str, str]) -> str:
    """The text with its placeholders replaced by literal texts."""
    return _HOLE.sub(lambda hole: words[hole[1]], text)


def _join_names(names: Sequence[str], last: str = " and ") -> str:
    """An enumeration: a, b and c."""
    if len(names) < 2:
        return names[0]
    if len(names) == 2 and last == ", and ":
        last = " and "
    return ", ".join(names[:-1]) + last + names[-1]


CHECKLIST_SUMMARIES: Mapping[str, str] = {
    "occupation-checklist": "the questions of the occupation checklist, in every wording",
    "occupations": "62 occupations with the skills, knowledge and abilities that O*NET 30.2 calls most important",
    "name-pairs": "70 pairs of a woman's and a man's given name",
}
"""Descriptions of the tables, by name."""


def checklist_table(name: str) -> list[dict[str, str]]:
    """One of `CHECKLIST_SUMMARIES`, row by row."""
    if name == "name-pairs":
        return [asdict(pair) for pair in load_pairs()]
    if name == "occupations":
        return [
            {
                "occupation": one.name,
                "soc_code": one.soc_code,
                "female_percent": f"{one.female_percent:g}" if math.isfinite(one.female_percent) else "",
                **{kind: "; ".join(of.name for of in one.attributes if of.category == kind) for kind in CATEGORIES},
            }
            for one in load_occupations().occupations
        ]
    questions = load_questions()
    parts = [("all", name, text) for name, text in questions.texts.items()]
    parts += [(str(n), kind, texts[kind]) for n, texts in enumerate(questions.wordings, 1) for kind in KINDS]
    return [dict(zip(("wording", "part", "text"), part, strict=True)) for part in parts]
