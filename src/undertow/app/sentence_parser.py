"""Parser of typed sentences: finds pronouns or the blank, and replaces the placeholder by the values.

    In DATE, she was a child.       ->  In | W |, | she, he, they | was a child.
    In DATE, ___ was a child.       ->  the same, with every form of the pronouns, or with words of the user's own

A typed sentence is split and joined again, so that any markup in it stays text. Text that cannot be used raises an UndertowError that
says how to correct it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace

from undertow.data.challenges.sentence_sources import MARKS
from undertow.data.sentences.sentence_set import FEMALE, MALE, NEUTRAL, PRONOUNS, UNKNOWN_CASE, SentenceSet
from undertow.data.templates.template import starts_sentence
from undertow.data.text_files import add_group
from undertow.errors import UndertowError, counted
from undertow.types import ClozeQuery, Option

MAX_SENTENCE_CHARS, MAX_SENTENCES = 400, 20
MAX_TEXT_CHARS = MAX_SENTENCES * (MAX_SENTENCE_CHARS + 1)
MAX_PLACEHOLDER_CHARS = 24
MAX_VALUES, MAX_VALUE_CHARS = 100, 60
MAX_LIST_CHARS = MAX_VALUES * (MAX_VALUE_CHARS + 2)
MAX_PRONOUNS = 4
"""Maximum number of pronouns that become blanks together."""
GROUPS = (FEMALE, MALE, NEUTRAL)
MAX_GROUPS, MAX_WORDS, MAX_WORD_CHARS = 6, 12, 40
MAX_WORDS_CHARS = MAX_GROUPS * (MAX_WORDS + 1) * (MAX_WORD_CHARS + 2)
BLANK_TEXT, BLANK = "___", "blank"

_OWN, _REFLEXIVE, _NOMINATIVE, _ACCUSATIVE, _POSSESSIVE = "own", "reflexive", "nominative", "accusative", "possessive"
_FORMS: Mapping[str, tuple[str, str, str]] = {
    **{case: (PRONOUNS[case][FEMALE][0], PRONOUNS[case][MALE][0], PRONOUNS[case][NEUTRAL][0])
       for case in (_NOMINATIVE, _ACCUSATIVE, _POSSESSIVE)},
    _OWN: ("hers", "his", "theirs"),
    _REFLEXIVE: ("herself", "himself", "themselves"),
}  # fmt: skip
"""Form of each case in each of `GROUPS`."""
_CASES: Mapping[str, tuple[str, ...]] = {
    form: tuple(case for case, forms in _FORMS.items() if form in forms)
    for form in dict.fromkeys(form for forms in _FORMS.values() for form in forms)
} | {"themself": (_REFLEXIVE,)}
"""Possible cases of each pronoun; *her* and *his* have two, *her/him* and *her/his* one."""
_NO_NOUNS = frozenset(
    re.findall(
        r"\w+",
        """
        a an the this that these those and or but nor so yet if when while because as than then though although until since after
        before to at in on of for from with without by about into onto over under up down out off away back again
        is was are were be been has had have did does do will would can could should may might must not now yesterday today
        tomorrow later soon once twice too also alone well home here there who whom which what how why where
        my your his her its our their i you he she it we they him them us me some any each no another
        """,
    )
)
"""Words that follow *her* only as an object: *gave her a book*, but not *gave her book*."""
_BLANKS = MARKS.pattern
_PRONOUN = f"(?:{'|'.join(sorted(_CASES, key=len, reverse=True))})"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A sentence with blanks and places for a value.

    Attributes:
        pieces: the texts around the blanks [piece], each split at the places of the value [piece][part].
        words: words for the blanks, by group.
        n_values: number of places for the value.
        places: the case of each blanked pronoun, or `BLANK`.
    """

    pieces: tuple[tuple[str, ...], ...]
    options: tuple[Option, ...]
    words: Mapping[str, tuple[str, ...]]
    n_values: int
    places: tuple[str, ...]

    def with_value(self, value: str) -> ClozeQuery:
        """The query with a value in its places."""
        return ClozeQuery(tuple(value.join(parts) for parts in self.pieces), self.options)

    def in_front(self, before: str, after: str) -> Pattern:
        """The same with `before`, a place for the value and `after` in front of it."""
        first, *rest = self.pieces
        return replace(self, pieces=((before, after + first[0], *first[1:]), *rest), n_values=self.n_values + 1)

    def template(self) -> str:
        """The sentence as a template of a challenge file: `{w}` for the value, and the name of each blank in braces."""
        pieces = ["{w}".join(re.sub(r"([{}])", r"\1\1", part) for part in parts) for parts in self.pieces]
        return pieces[0] + "".join(f"{{{place}}}{piece}" for place, piece in zip(self.places, pieces[1:], strict=True))

    def forms(self) -> dict[str, dict[str, list[str]]]:
        """The words of each blank in the format of a challenge file: by blank, then by group."""
        if self.places[0] == BLANK:
            return {BLANK: {group: list(words) for group, words in self.words.items()}}
        return {
            place: {group: [form] for group, form in zip(GROUPS, _FORMS[place], strict=True)} for place in self.places
        }

    def reading(self, value: str) -> str:
        """The sentence as parsed, for the visitor."""
        query = self.with_value(value)
        marks = [
            BLANK_TEXT if BLANK in self.places else f"[{'/'.join(forms)}]"
            for forms in zip(*(one.fills for one in self.options), strict=True)
        ]
        return query.pieces[0] + "".join(mark + piece for mark, piece in zip(marks, query.pieces[1:], strict=True))


def read_sentences(text: str, placeholder: str, words: Mapping[str, tuple[str, ...]] | None = None) -> list[Pattern]:
    """The patterns of typed sentences, one per line; arguments and errors as for `read_sentence`."""
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    if len(lines) > MAX_SENTENCES:
        raise UndertowError(
            f"There are {len(lines)} sentences; the limit here is {MAX_SENTENCES}; use a challenge file for more."
        )
    if len(set(lines)) < len(lines):
        raise UndertowError("A sentence is repeated; write each once.")
    return [read_sentence(line, placeholder, words) for line in lines]


def read_sentence(text: str, placeholder: str, words: Mapping[str, tuple[str, ...]] | None = None) -> Pattern:
    """The pattern of a typed sentence.

    If there is a blank (`___`, `[MASK]`, `MASK`, `<mask>` or `{blank}`), only it is open; otherwise every pronoun becomes a blank. *her*
    is an object if the next word cannot be possessed; *her/him* and *her/his* are explicit.

    `placeholder` is the word in it that the values replace, "" for none; `words` are words of the user's own for the blank, by group.
    """
    sentence = checked_text(text, "sentence", MAX_SENTENCE_CHARS)
    token = checked_text(placeholder, "placeholder", MAX_PLACEHOLDER_CHARS)
    if re.fullmatch(_BLANKS, token) or token.lower() in _CASES:
        raise UndertowError(f"The placeholder cannot be {token!r}, which marks a blank; use another word.")
    value = rf"(?P<value>(?<!\w){re.escape(token)}(?!\w))|" if token else ""
    pattern = rf"{value}(?P<blank>{_BLANKS})|(?P<pronoun>(?<!\w)(?i:{_PRONOUN}(?:/{_PRONOUN})*)(?!\w))"
    marks = list(re.finditer(pattern, sentence))
    blanks = [mark for mark in marks if mark.lastgroup == "blank"]
    open_ = blanks or [mark for mark in marks if mark.lastgroup == "pronoun"]
    if words and not blanks:
        raise UndertowError("The sentence has no blank for words of your own; write ___ where they go.")
    if len(blanks) > 1:
        raise UndertowError(
            f"The sentence has {len(blanks)} blanks; write one, or use pronouns, of which several are possible."
        )
    if not open_:
        raise UndertowError("The sentence has neither a pronoun, such as she or their, nor a blank ___; write one.")
    if len(open_) > MAX_PRONOUNS:
        raise UndertowError(
            f"The sentence has {len(open_)} pronouns; the limit is {MAX_PRONOUNS}; mark one with a blank ___."
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
    n_values = sum(mark.lastgroup == "value" for mark in marks)
    places: tuple[str, ...] = (BLANK,)
    if blanks:
        like = "A" if starts_sentence(sentence[: blanks[0].start()], first=True) else "a"
        words = words or PRONOUNS[UNKNOWN_CASE]
        options = [Option(group, (_like(like, form),)) for group, forms in words.items() for form in forms]
    else:
        places = tuple(_case_of(mark, sentence) for mark in open_)
        typed = [mark.group().partition("/")[0] for mark in open_]
        options = [
            Option(
                group, tuple(_like(as_typed, _FORMS[case][at]) for as_typed, case in zip(typed, places, strict=True))
            )
            for at, group in enumerate(GROUPS)
        ]
        words = {one.group: tuple(dict.fromkeys(map(str.lower, one.fills))) for one in options}
    return Pattern(tuple(map(tuple, pieces)), tuple(options), dict(words), n_values, places)


def _case_of(mark: re.Match[str], sentence: str) -> str:
    """The case of a pronoun, by its form, by alternative forms, or by the next word."""
    first, *others = mark.group().lower().split("/")
    if not (cases := [case for case in _CASES[first] if all(case in _CASES[other] for other in others)]):
        raise UndertowError(f"{mark.group()!r} are forms of different cases; write for example her/him or her/his.")
    follows = re.match(r"\s+([\w'’-]+)", sentence[mark.end() :])
    owns = follows is not None and follows[1].lower() not in _NO_NOUNS
    return cases[0] if len(cases) == 1 else next(case for case in cases if owns == (case == _POSSESSIVE))


def _like(typed: str, word: str) -> str:
    if len(typed) > 1 and typed.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if typed[:1].isupper() else word


def read_words(text: str) -> dict[str, tuple[str, ...]]:
    """Parse word groups, one `name: word, word` per line; {} for none."""
    listed: dict[str, list[str]] = {}
    for line in filter(str.strip, re.split(r"[\n;]", text)):
        try:
            name = add_group(listed, checked_text(line, "line of the word groups", MAX_WORDS_CHARS))
        except UndertowError as error:
            raise UndertowError(f"Word groups, one a line: {str(error).removesuffix('.')}.") from error
        checked_text(name, "name of the word group", MAX_PLACEHOLDER_CHARS)
        if len(listed[name]) > MAX_WORDS:
            raise UndertowError(f"The word group {name!r} has {len(listed[name])} words; the limit is {MAX_WORDS}.")
    groups = {
        name: tuple(checked_text(word, "word", MAX_WORD_CHARS) for word in words) for name, words in listed.items()
    }
    if groups and not 2 <= len(groups) <= MAX_GROUPS:
        raise UndertowError(
            f"There is {len(groups)} word group; write 2 to {MAX_GROUPS}, one a line."
            if len(groups) < 2
            else f"There are {len(groups)} word groups; the limit is {MAX_GROUPS}."
        )
    every = [word for words in groups.values() for word in words]
    if (repeated := next((word for word in every if every.count(word) > 1), None)) is not None:
        raise UndertowError(f"The word {repeated!r} is in the word groups more than once; write it once.")
    SentenceSet("word groups", "", "", groups, ())  # refuses a name that a column of the results has
    return groups


def read_values(text: str, least: int) -> tuple[str, ...]:
    """Parse values, comma-separated or one per line, in their order."""
    values = [checked_text(value, "value", MAX_VALUE_CHARS) for value in re.split(r"[,\n]", text) if value.strip()]
    if len(values) < least:
        raise UndertowError(
            f"The list has {counted(len(values), 'value')}; at least {least} are needed; write more, separated by commas."
        )
    if len(values) > MAX_VALUES:
        raise UndertowError(f"The list has {len(values)} values; the limit is {MAX_VALUES}.")
    if (repeated := next((value for value in values if values.count(value) > 1), None)) is not None:
        raise UndertowError(f"The value {repeated!r} is in the list more than once; write each value once.")
    return tuple(values)


def checked_text(text: str, what: str, most_signs: int) -> str:
    """A typed text on one line with single spaces."""
    plain = " ".join(text[: 2 * most_signs + 1].split())
    if len(text) > 2 * most_signs or len(plain) > most_signs:
        raise UndertowError(f"The {what} has {len(text):,} characters; the limit is {most_signs:,}.")
    if (odd := next((sign for sign in plain if unicodedata.category(sign) in {"Cc", "Cs"}), None)) is not None:
        raise UndertowError(f"The {what} has a character that cannot be shown (U+{ord(odd):04X}); remove it.")
    return plain
