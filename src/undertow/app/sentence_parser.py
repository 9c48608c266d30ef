"""Parser of a typed sentence: opens its pronouns or its blank, and replaces the placeholder by the values.

    In DATE, she was a child.       ->  In | W |, | she, he, they | was a child.
    In DATE, ___ was a child.       ->  the same, with every form of the pronouns

The typed sentence is split and joined again, so that any markup in it stays text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from undertow.data.sentences.sentence_set import FEMALE, MALE, NEUTRAL, PRONOUNS, UNKNOWN_CASE
from undertow.data.sentences.user_table import MARKS
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
        options: what may fill the open places.
        words: the words of each group, for a reader.
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
    if not sentence:
        raise UndertowError("Write a sentence with a pronoun such as she, or with a blank ___ in its place.")
    if re.fullmatch(_BLANKS, token) or token.lower() in (*_CASES, "her", "his"):
        raise UndertowError(
            f"The place-holder cannot be {token!r}, which stands for what the model decides; use another word."
        )
    marks = list(_marks(sentence, token))
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
    n_values = sum(mark.lastgroup == "value" for mark in marks)
    pieces = _pieces(sentence, marks, open_)
    if blanks:
        first = starts_sentence(sentence[: blanks[0].start()], first=True)
        words = PRONOUNS[UNKNOWN_CASE]
        options = tuple(
            Option(group, (_like("A" if first else "a", form),)) for group in GROUPS for form in words[group]
        )
        return Pattern(pieces, options, {group: words[group] for group in GROUPS}, n_values)
    forms = [_forms_of(mark, sentence) for mark in open_]  # [open place][group]
    options = tuple(Option(group, tuple(three[place] for three in forms)) for place, group in enumerate(GROUPS))
    words = {group: tuple(dict.fromkeys(three[place].lower() for three in forms)) for place, group in enumerate(GROUPS)}
    return Pattern(pieces, options, words, n_values)


def _marks(sentence: str, token: str) -> Sequence[re.Match[str]]:
    """Place-holders, blanks and pronouns, in reading order."""
    value = rf"(?P<value>(?<!\w){re.escape(token)}(?!\w))|" if token else ""
    pattern = rf"{value}(?P<blank>{_BLANKS})|(?P<pronoun>(?<!\w)(?i:{_PRONOUN_WORDS})(?!\w))"
    return list(re.finditer(pattern, sentence))


def _pieces(
    sentence: str, marks: Sequence[re.Match[str]], open_: Sequence[re.Match[str]]
) -> tuple[tuple[str, ...], ...]:
    pieces: list[list[str]] = [[""]]
    at = 0
    for mark in marks:
        if mark.lastgroup != "value" and mark not in open_:
            continue
        pieces[-1][-1] += sentence[at : mark.start()]
        at = mark.end()
        if mark.lastgroup == "value":
            pieces[-1].append("")
        else:
            pieces.append([""])
    pieces[-1][-1] += sentence[at:]
    return tuple(map(tuple, pieces))


def _forms_of(mark: re.Match[str], sentence: str) -> tuple[str, str, str]:
    """The pronoun in each group, with capitals as it was typed."""
    typed = mark.group()
    first, second, third = _FORMS[_case_of(typed.lower(), sentence[mark.end() :])]
    return _like(typed, first), _like(typed, second), _like(typed, third)


def _case_of(pronoun: str, behind: str) -> str:
    if pronoun in _CASES:
        return _CASES[pronoun]
    follows = re.match(r"\s+([\w'’-]+)", behind)
    owns = follows is not None and follows[1].lower() not in _NO_NOUNS
    if pronoun == "his":
        return _POSSESSIVE if owns else _OWN
    return _POSSESSIVE if owns else _ACCUSATIVE


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
    values = [" ".join(value.split()) for value in re.split(r"[,\n]", text)]
    values = [checked_text(value, "value", MAX_VALUE_CHARS) for value in values if value]
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
    if len(text) > most_signs * 2:
        raise UndertowError(f"The {what} has {len(text):,} characters, and {most_signs} are the most; shorten it.")
    plain = " ".join(text.split())
    if len(plain) > most_signs:
        raise UndertowError(f"The {what} has {len(plain)} characters, and {most_signs} are the most; shorten it.")
    odd = next((sign for sign in plain if unicodedata.category(sign) in {"Cc", "Cs"}), None)
    if odd is not None:
        raise UndertowError(f"The {what} holds a character that cannot be shown (U+{ord(odd):04X}); take it out.")
    return plain
