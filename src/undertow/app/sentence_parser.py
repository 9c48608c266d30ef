"""Parser of a typed sentence: opens its pronouns or its blank, and replaces the placeholder by the values.

    In DATE, she was a child.       ->  In | W |, | she, he, they | was a child.
    In DATE, ___ was a child.       ->  the same, with every form of the pronouns

The typed sentence is split and joined again, so that any markup in it stays text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from undertow.data.sentences.sentence_set import FEMALE, MALE, NEUTRAL, PRONOUNS, UNKNOWN_CASE
from undertow.data.sentences.sentence_sources import MARKS
from undertow.data.templates.template import starts_sentence
from undertow.errors import UndertowError
from undertow.types import ClozeQuery, Option

MAX_SENTENCE_CHARS = 400
MAX_PLACEHOLDER_CHARS = 24
MAX_VALUES, MAX_VALUE_CHARS = 100, 60
MAX_LIST_CHARS = MAX_VALUES * (MAX_VALUE_CHARS + 2)
MAX_PRONOUNS = 4
"""Pronouns that are left open together: every one makes what follows likelier or less."""
GROUPS = (FEMALE, MALE, NEUTRAL)
BLANK_TEXT = "___"

_OWN, _REFLEXIVE, _NOMINATIVE, _ACCUSATIVE, _POSSESSIVE = "own", "reflexive", "nominative", "accusative", "possessive"
_FORMS: Mapping[str, tuple[str, str, str]] = {
    **{case: (PRONOUNS[case][FEMALE][0], PRONOUNS[case][MALE][0], PRONOUNS[case][NEUTRAL][0])
       for case in (_NOMINATIVE, _ACCUSATIVE, _POSSESSIVE)},
    _OWN: ("hers", "his", "theirs"),
    _REFLEXIVE: ("herself", "himself", "themselves"),
}  # fmt: skip
"""What each case of a pronoun is in each of `GROUPS`."""
_CASES: Mapping[str, str] = {
    "she": _NOMINATIVE, "he": _NOMINATIVE, "they": _NOMINATIVE, "him": _ACCUSATIVE, "them": _ACCUSATIVE,
    "their": _POSSESSIVE, "hers": _OWN, "theirs": _OWN, "herself": _REFLEXIVE, "himself": _REFLEXIVE,
    "themselves": _REFLEXIVE, "themself": _REFLEXIVE,
}  # fmt: skip
"""Pronouns that are of one case; *her* and *his* may be of two."""
_NO_NOUNS = frozenset(
    re.findall(
        r"\w+",
        """
        a an the this that these those and or but nor so yet if when while because as than then though although until since after
        before to at in on of for from with without by about into onto over under up down out off away back again
        is was are were be been has had have did does do will would can could should may might must not now yesterday today
        tomorrow later soon once twice too also alone well home here there who whom which what how why where
        """,
    )
)
"""What stands behind an object and never behind *her* before what she has: *gave her a book*, and *gave her book*."""
_BLANKS = MARKS.pattern
_PRONOUN_WORDS = "|".join(sorted([*_CASES, "her", "his"], key=len, reverse=True))


@dataclass(frozen=True, slots=True)
class Pattern:
    """A sentence with open places, and places for a value.

    Attributes:
        pieces: the texts around the open places [piece], each in parts between which the value goes [piece][part].
        n_values: how often the value stands in it.
    """

    pieces: tuple[tuple[str, ...], ...]
    options: tuple[Option, ...]
    words: Mapping[str, tuple[str, ...]]
    n_values: int

    def with_value(self, value: str) -> ClozeQuery:
        """The question with a value in its places."""
        return ClozeQuery(tuple(value.join(parts) for parts in self.pieces), self.options)

    def in_front(self, before: str, after: str) -> Pattern:
        """The same with `before`, a place for the value and `after` in front of it."""
        first, *rest = self.pieces
        return Pattern(((before, after + first[0], *first[1:]), *rest), self.options, self.words, self.n_values + 1)


def read_sentence(text: str, placeholder: str) -> Pattern:
    """The pattern of a typed sentence.

    A blank (`___`, `[MASK]`, `MASK`, `<mask>` or `{blank}`) is what is left open, and pronouns beside it stay as they are; without a
    blank, every pronoun is. *her* is taken for an object where a word follows that nobody owns.

    Raises:
        UndertowError: it has nothing to leave open, or too much, or is too long; or the place-holder cannot be one.
    """
    sentence = checked_text(text, "sentence", MAX_SENTENCE_CHARS)
    token = checked_text(placeholder, "place-holder", MAX_PLACEHOLDER_CHARS)
    if re.fullmatch(_BLANKS, token) or token.lower() in (*_CASES, "her", "his"):
        raise UndertowError(
            f"The place-holder cannot be {token!r}, which stands for what the model decides; use another word."
        )
    value = rf"(?P<value>(?<!\w){re.escape(token)}(?!\w))|" if token else ""
    pattern = rf"{value}(?P<blank>{_BLANKS})|(?P<pronoun>(?<!\w)(?i:{_PRONOUN_WORDS})(?!\w))"
    marks = list(re.finditer(pattern, sentence))
    blanks = [mark for mark in marks if mark.lastgroup == "blank"]
    open_ = blanks or [mark for mark in marks if mark.lastgroup == "pronoun"]
    if len(blanks) > 1:
        raise UndertowError(
            f"The sentence has {len(blanks)} blanks; leave one open, or write pronouns, which may be several."
        )
    if not open_:
        raise UndertowError(
            "The sentence has neither a pronoun, such as she or their, nor a blank ___, so there is nothing for the model to decide."
        )
    if len(open_) > MAX_PRONOUNS:
        raise UndertowError(
            f"The sentence has {len(open_)} pronouns, and {MAX_PRONOUNS} can be left open; mark the one that you mean with a blank ___."
        )
    pieces: list[list[str]] = [[]]
    at = 0
    for mark in marks:
        if mark.lastgroup == "value" or mark in open_:
            pieces[-1].append(sentence[at : mark.start()])
            at = mark.end()
            if mark.lastgroup != "value":
                pieces.append([])
    pieces[-1].append(sentence[at:])
    if blanks:
        like = "A" if starts_sentence(sentence[: blanks[0].start()], first=True) else "a"
        words = PRONOUNS[UNKNOWN_CASE]
        options = [Option(group, (_like(like, form),)) for group in GROUPS for form in words[group]]
    else:
        forms = dict(zip(GROUPS, zip(*(_forms_of(mark, sentence) for mark in open_), strict=True), strict=True))
        options = [Option(group, fills) for group, fills in forms.items()]
        words = {group: tuple(dict.fromkeys(map(str.lower, fills))) for group, fills in forms.items()}
    n_values = sum(mark.lastgroup == "value" for mark in marks)
    return Pattern(tuple(map(tuple, pieces)), tuple(options), {group: words[group] for group in GROUPS}, n_values)


def _forms_of(mark: re.Match[str], sentence: str) -> list[str]:
    """The pronoun in each group, with capitals as it was typed."""
    typed, follows = mark.group(), re.match(r"\s+([\w'’-]+)", sentence[mark.end() :])
    owns = follows is not None and follows[1].lower() not in _NO_NOUNS
    case = _CASES.get(typed.lower()) or (_POSSESSIVE if owns else _OWN if typed.lower() == "his" else _ACCUSATIVE)
    return [_like(typed, form) for form in _FORMS[case]]


def _like(typed: str, word: str) -> str:
    if len(typed) > 1 and typed.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if typed[:1].isupper() else word


def read_values(text: str, least: int) -> tuple[str, ...]:
    """Values that were typed with commas between them, or one a line, in their order.

    Raises:
        UndertowError: there are too few or too many, one is too long, or one stands there twice.
    """
    if len(text) > MAX_LIST_CHARS:
        raise UndertowError(
            f"The list of values has {len(text):,} characters, and {MAX_LIST_CHARS:,} are the most; shorten it."
        )
    values = [checked_text(value, "value", MAX_VALUE_CHARS) for value in re.split(r"[,\n]", text) if value.strip()]
    if len(values) < least:
        raise UndertowError(
            f"The list has {len(values)} value{'' if len(values) == 1 else 's'}, and {least} are the least for this; "
            "write more, with commas between them."
        )
    if len(values) > MAX_VALUES:
        raise UndertowError(f"The list has {len(values)} values, and {MAX_VALUES} are the most; leave some out.")
    repeated = next((value for value in values if values.count(value) > 1), None)
    if repeated is not None:
        raise UndertowError(f"The value {repeated!r} stands in the list more than once; write each value once.")
    return tuple(values)


def checked_text(text: str, what: str, most_signs: int) -> str:
    """A typed text on one line, its spaces one each.

    Raises:
        UndertowError: it is too long, or holds what no model can read and no page can show.
    """
    plain = " ".join(text[: 2 * most_signs + 1].split())
    if len(text) > 2 * most_signs or len(plain) > most_signs:
        raise UndertowError(f"The {what} has {len(text):,} characters, and {most_signs:,} are the most; shorten it.")
    odd = next((sign for sign in plain if unicodedata.category(sign) in {"Cc", "Cs"}), None)
    if odd is not None:
        raise UndertowError(f"The {what} holds a character that cannot be shown (U+{ord(odd):04X}); take it out.")
    return plain
