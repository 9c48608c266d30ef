"""The rules of the answer reader, compiled from `answer_rules.toml`."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

Pattern = re.Pattern[str]
FILE = "answer_rules.toml"
FLAGS = re.IGNORECASE | re.DOTALL


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one version.

    Attributes:
        version: version number of the file.
        digest: SHA-256 of the file.
        patterns: by table and key, joined by a dot; a key outside of tables by its name.
        templates: patterns with places to fill, likewise.
        synonyms: other words for labels.
    """

    version: int
    digest: str
    patterns: Mapping[str, Pattern]
    templates: Mapping[str, str]
    synonyms: Mapping[str, Pattern]

    @property
    def identity(self) -> str:
        """Version and digest in words, for manifests."""
        return f"version {self.version}, SHA-256 {self.digest[:12]}"

    def has(self, name: str, text: str) -> bool:
        """Whether a pattern occurs in a text."""
        return self.patterns[name].search(text) is not None

    def starts(self, name: str, text: str) -> bool:
        """Whether a text begins with a pattern."""
        return self.patterns[name].match(text) is not None

    def cut(self, name: str, text: str) -> str:
        """The text without what the pattern matches, where anything remains."""
        rest = self.patterns[name].sub(" ", text).strip(" ,;:")
        return rest if re.search(r"\w", rest) else text

    def fill(self, name: str, **places: str) -> Pattern:
        """A template with its places filled."""
        text = self.templates[name]
        for place, pattern in places.items():
            text = text.replace(f"{{{place}}}", pattern)
        return re.compile(text, FLAGS)


@cache
def rules() -> Rules:
    """The rules of the package, read once."""
    content = resources.files("undertow.data").joinpath("resources", FILE).read_bytes()
    table: dict[str, Any] = tomllib.loads(content.decode())
    synonyms = {label: _words(words) for label, words in table.pop("synonyms").items()}
    flat = {name: entry for name, entry in table.items() if isinstance(entry, list)}
    for name, entry in table.items():
        flat |= {f"{name}.{key}": one for key, one in entry.items()} if isinstance(entry, dict) else {}
    joined = {name: one if isinstance(one, str) else _join(one) for name, one in flat.items()}
    templates = {name: one for name, one in joined.items() if re.search(r"\{[a-z]+\}", one)}
    patterns = {name: re.compile(one, FLAGS) for name, one in joined.items() if name not in templates}
    return Rules(int(table["version"]), hashlib.sha256(content).hexdigest(), patterns, templates, synonyms)


def _join(patterns: Sequence[str]) -> str:
    """Alternatives: whole words where the first one is a word, or else as they are."""
    if re.match(r"[\w(]", patterns[0]) and not patterns[0].startswith("(?"):
        return _words(patterns).pattern
    return "|".join(f"(?:{one})" for one in patterns)


def _words(patterns: Sequence[str]) -> Pattern:
    """Whole words; the longest is tried first."""
    ranked = sorted(patterns, key=len, reverse=True)
    return re.compile(
        "|".join(rf"{one}(?!\w)" if one.startswith("n't") else rf"(?<![\w']){one}(?!\w)" for one in ranked), FLAGS
    )
