"""One template: a sentence with named holes, and what becomes of it when they are filled.

In {w}, {blank} {verb} {stage}.
    |      |       |      `-- slots: crossed with each other, part of the design
    |      |       `--------- slot
    |      `----------------- blank: what the model decides; stays open in the query
    `------------------------ w: the injected value
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from undertow.errors import UndertowError
from undertow.types import ClozeQuery, Factor, Option

OPENING_SIGNS = " \"'“‘„‚(«¿¡"
MAX_TEMPLATES = 2**16
"""Templates whose parts are kept: a design goes through all of them for each value of W."""
SENTENCE_ENDS = (".", "!", "?", "\n", "。", "！", "？")


@dataclass(frozen=True, slots=True)
class Template:
    """A sentence with named holes.

    Attributes:
        text: with `{w}`, slots and blanks in braces; `{{` and `}}` are literal braces.
        only_w: the W lists that it serves; empty for all.
        not_w: the W lists that it does not serve.
        factors: further levels of the design that this template carries.
    """

    text: str
    only_w: tuple[str, ...] = ()
    not_w: tuple[str, ...] = ()
    factors: Mapping[str, Factor] = field(default_factory=dict)

    def serves(self, w_name: str) -> bool:
        """Whether sentences for this W are made from it."""
        return w_name not in self.not_w and (not self.only_w or w_name in self.only_w)

    def holes(self) -> list[str]:
        """Names of the holes in reading order, repeats kept; refuses an open brace, and a hole that is no plain name."""
        return [name for _, name in self.parts() if name is not None]

    def text_with(self, values: Mapping[str, str]) -> str:
        """The text with every hole filled from `values`."""
        return "".join(literal + ("" if name is None else values[name]) for literal, name in self.parts())

    def fill(
        self, values: Mapping[str, str], blanks: Sequence[str], forms: Sequence[tuple[str, tuple[str, ...]]]
    ) -> ClozeQuery:
        """The query: slots and W filled from `values`, blanks left open, one option for each distinct form.

        `forms` are (group, words) pairs, one word for each name in `blanks`.
        """
        pieces, options = [""], _options_of(self.text, tuple(blanks), tuple(forms))
        for literal, name in self.parts():
            pieces[-1] += literal
            if name in blanks:
                pieces.append("")
            elif name is not None:
                pieces[-1] += values[name]
        return ClozeQuery(tuple(pieces), options)

    def parts(self) -> list[tuple[str, str | None]]:
        """Literal text and the hole behind it, in reading order; the last text has none."""
        return _parts_of(self.text)


@lru_cache(MAX_TEMPLATES)
def _parts_of(text: str) -> list[tuple[str, str | None]]:
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise UndertowError(f"template {text!r}: {error}; write {{{{ and }}}} for literal braces") from error
    for _, name, spec, conversion in parsed:
        if name is not None and (not name.isidentifier() or spec or conversion):
            raise UndertowError(f"template {text!r}: a placeholder must be a plain name such as {{w}}, not {{{name}}}")
    return [(literal, name) for literal, name, _, _ in parsed]


@lru_cache(MAX_TEMPLATES)
def _options_of(
    text: str, blanks: tuple[str, ...], forms: tuple[tuple[str, tuple[str, ...]], ...]
) -> tuple[Option, ...]:
    """One for each distinct form, as it is written in these places of the text."""
    holes = [
        # Decided by the template's own text, so that no W value makes a capital that another does not.
        (blanks.index(name), starts_sentence(literal, first=at == 0))
        for at, (literal, name) in enumerate(Template(text).parts())
        if name in blanks
    ]
    options = dict.fromkeys(
        Option(
            group,
            tuple((words[blank][:1].upper() + words[blank][1:]) if start else words[blank] for blank, start in holes),
        )
        for group, words in forms
    )
    owners: dict[tuple[str, ...], str] = {}
    for option in options:
        if owners.setdefault(option.fills, option.group) != option.group:
            raise UndertowError(
                f"template {text!r}: {' '.join(option.fills)!r} would count for {owners[option.fills]!r} and for "
                f"{option.group!r}; give the groups words that differ in this sentence"
            )
    return tuple(options)


def starts_sentence(literal: str, *, first: bool) -> bool:
    """Whether the text between the hole before and this one, if any, ends a sentence or begins the text."""
    bare = literal.rstrip(OPENING_SIGNS)
    return bare.endswith(SENTENCE_ENDS) if bare else first
