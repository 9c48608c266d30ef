"""The rules of the answer reader, compiled from `answer_rules.toml`; the questions and readings of replies."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

Pattern = re.Pattern[str]
FLAGS = re.IGNORECASE | re.DOTALL
PLACEHOLDER = r"\{([a-z]+)\}"
"""A placeholder in a pattern, for a class of words or another pattern."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one version: its number, which a change of the code of `data/replies` raises too, and the SHA-256 of the file.

    `patterns`, and `templates` with placeholders, have keys `table.key`. `synonyms` are other words for labels,
    `groups` the groups that they cover, and `contractions` full forms of contractions.
    """

    version: int
    digest: str
    patterns: Mapping[str, Pattern]
    templates: Mapping[str, str]
    synonyms: Mapping[str, Pattern]
    groups: Mapping[str, Pattern]
    contractions: Mapping[Pattern, str]

    @property
    def identity(self) -> str:
        """Version and digest in words, for manifests."""
        return f"version {self.version}, SHA-256 {self.digest[:12]}"

    def has(self, name: str, text: str) -> bool:
        """Whether a pattern occurs in a text."""
        return _occurs(self.patterns[name].search, text)

    def starts(self, name: str, text: str) -> bool:
        """Whether a text begins with a pattern."""
        return self.patterns[name].match(text) is not None

    def cut(self, name: str, text: str) -> str:
        """The text without matches of the pattern, unless nothing remains."""
        rest = self.patterns[name].sub(" ", text).strip(" ,;:")
        return rest if re.search(r"\w", rest) else text

    def spell_out(self, text: str, prompt: str = "") -> str:
        """The text without contractions; a name in the prompt, like "Em", is none."""
        names = {one.casefold() for one in re.findall(r"(?<=[a-z,?] )[A-Z]\w+", prompt)}

        def full(hit: re.Match[str]) -> str:
            is_name = hit.group().strip(" ,.!").casefold() in names
            return hit.group() if is_name else hit.expand(self.contractions[hit.re])

        for pattern in self.contractions:
            text = pattern.sub(full, text)
        return text

    def fill(self, name: str, **places: str) -> Pattern:
        """A template with its placeholders replaced."""
        return _filled(self.templates[name], *places.items())


@lru_cache(maxsize=4096)
def _occurs(search: Callable[[str], re.Match[str] | None], text: str) -> bool:
    """Cached, since a text meets a pattern several times. The key has the method, because the hash of a pattern reads all of its code."""
    return search(text) is not None


@lru_cache(maxsize=4096)
def _filled(template: str, *places: tuple[str, str]) -> Pattern:
    for place, pattern in places:
        template = template.replace(f"{{{place}}}", pattern)
    return re.compile(template, FLAGS)


@cache
def rules() -> Rules:
    """The rules of the package, read once."""
    content = resources.files("undertow.data").joinpath("resources", "answer_rules.toml").read_bytes()
    table: dict[str, Any] = tomllib.loads(content.decode())
    classes: dict[str, str] = {}
    for name, one in table.pop("classes").items():
        classes[name] = _expand(one, classes)
    contractions = {re.compile(one, FLAGS): words for one, words in table.pop("contractions").items()}
    synonyms, groups = (
        {label: _words(words) for label, words in table.pop(name).items()} for name in ("synonyms", "groups")
    )
    joined = {
        f"{section}.{key}": _expand(one if isinstance(one, str) else _join(one), classes)
        for section, entries in table.items()
        if isinstance(entries, dict)
        for key, one in entries.items()
    }
    templates = {name: one for name, one in joined.items() if re.search(PLACEHOLDER, one)}
    patterns = {name: re.compile(one, FLAGS) for name, one in joined.items() if name not in templates}
    digest = hashlib.sha256(content).hexdigest()
    return Rules(int(table["version"]), digest, patterns, templates, synonyms, groups, contractions)


def _expand(pattern: str, classes: Mapping[str, str]) -> str:
    """A pattern with its classes of words expanded; other placeholders remain."""
    return re.sub(PLACEHOLDER, lambda place: classes.get(place.group(1), place.group()), pattern)


def _join(patterns: Sequence[str]) -> str:
    """Alternatives: whole words if the first one is a word, else literal patterns."""
    if re.match(r"\w", patterns[0]):
        return _words(patterns).pattern
    return "|".join(f"(?:{one})" for one in patterns)


def _words(patterns: Sequence[str]) -> Pattern:
    """Whole words; the longest is tried first."""
    ranked = sorted(patterns, key=len, reverse=True)
    return re.compile("|".join(rf"(?<![\w']){one}(?!\w)" for one in ranked), FLAGS)


YES_NO, CHOICE, WORD, SPAN, REWRITE = "yes-no", "choice", "word", "span", "rewrite"
ANSWER, BOTH, NEITHER, OTHER, REFUSAL, UNCLEAR = "answer", "both", "neither", "other", "refusal", "unclear"
YES, NO = "yes", "no"


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a reply.

    Attributes:
        kind: `YES_NO`, `CHOICE`, `WORD`, `SPAN` or `REWRITE`.
        answers: possible answers: "Yes" and "No", names (with "both" and "neither" where these are answers), labels, or words.
        groups: for a word question, the group of each word; two words of a group are one answer.
        prompt: the prompt, which shows whether the question is negated, and the sentence around a blank.
        passage: the text of the span, or the text to rewrite.
    """

    kind: str
    answers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    prompt: str = ""
    passage: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """The reading of a reply.

    Attributes:
        outcome: `ANSWER`; `BOTH` or `NEITHER`, if these are not answers; `OTHER`, an unlisted word; `REFUSAL`; `UNCLEAR`.
        text: the answer as the question spells it, the span, or the rewritten text; "" otherwise.
    """

    outcome: str
    text: str = ""


def declines(text: str) -> bool:
    """Whether a text declines to answer for another reason than missing information."""
    known = rules()
    lacks = known.has("unclear.lacks", text) or known.has("unclear.untold", text)
    return declines_firmly(text) or (known.has("refusal.soft", text) and not lacks)


def is_unclear(text: str, *, of_text: bool = False) -> bool:
    """Whether a text says that it cannot tell, or what is left untold; the latter is no doubt about a question `of_text`."""
    known = rules()
    declines_for_lack = (
        known.has("refusal.soft", text) and known.has("unclear.lacks", text) and not declines_firmly(text)
    )
    return declines_for_lack or known.has("unclear.cues", text) or (not of_text and known.has("unclear.untold", text))


def declines_firmly(text: str) -> bool:
    """Whether a text declines on principle, whatever information there is."""
    known = rules()
    return known.has("refusal.hard", text) or (
        known.has("refusal.improper", text) and not known.has("refusal.without_facts", text)
    )


def stem(word: str) -> str:
    """The beginning of a word, which its forms share: "driv" of *drive*, *drivers* and *driving*."""
    return re.sub(r"(?<=...)(?:ings?|ers?|ed|es?|s)$", "", word.lower())[:5]


def stems(text: str) -> set[str]:
    """The beginnings of the words of a text that have four letters or more."""
    return {stem(one) for one in re.findall(r"[^\W\d_]{4,}", text)}
