r"""Grammars in GBNF for constrained answers, which llama.cpp and vLLM's xgrammar both support.

    labels     root ::= " gender" | " race"
    a passage  root ::= " " (w0 | w1 | w2)              the cats sleep
    (span)     w0 ::= "the" (" " w1)?                   a piece begins at any word, and goes on
               w1 ::= "cats" (" " w2)?                  word by word, with the space that stands there
               w2 ::= "sleep"

Under a grammar of letters a model may begin *animals* with its token for *a*, which has more probability than the whole label.
llama.cpp also reads grammars of tokens, by their numbers:

    labels     root ::= <[6283]> | <[5096]> <[284]>
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LLAMA_CPP, VLLM, NO_GRAMMAR = "llama.cpp", "vllm", "none"
SERVERS = (LLAMA_CPP, VLLM, NO_GRAMMAR)
OWNERS: Mapping[str, str] = {"llamacpp": LLAMA_CPP, "vllm": VLLM}
"""Servers with grammars, by the owner of their models."""

APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}"
JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""Scripts without spaces between words, by the first word of their characters' names; each character counts as a word."""
PIECE = re.compile("(s*)(w[wm]*(?:a[wm]+)*|[law]m*|pm*|m+)")
"""A word or a mark behind white space, by the kinds of its characters."""
ESCAPES: Mapping[str, str] = {'"': r"\"", "\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def owner_in(models: Mapping[str, Any], model: str) -> str:
    """The owner of a model in the server's list of models; "" if unknown."""
    listed = models.get("data")
    entries = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    own = [one for one in entries if one.get("id") == model] or entries
    owners = {str(one.get("owned_by") or "") for one in own}
    return owners.pop() if len(owners) == 1 else ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A word or a punctuation mark of a passage.

    Attributes:
        before: white space between it and the piece before.
        text: without it.
        start: where the text begins in the passage.
    """

    before: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """One past its last character in the passage."""
        return self.start + len(self.text)


def pieces_of(passage: str) -> tuple[Piece, ...]:
    """Words and punctuation marks of a passage, in order."""
    kinds = "".join(map(_kind, passage))
    return tuple(
        Piece(passage[slice(*match.span(1))], passage[slice(*match.span(2))], match.start(2))
        for match in PIECE.finditer(kinds)
    )


def _kind(letter: str) -> str:
    """A character's kind, in one letter: space, of a word, a word of its own, mark on another, apostrophe, punctuation."""
    if letter.isspace():
        return "s"
    if letter in APOSTROPHES:
        return "a"
    if letter in JOINERS or unicodedata.category(letter).startswith("M"):
        return "m"
    if letter.isalnum() or letter == "_":
        return "l" if unicodedata.name(letter, "").startswith(WITHOUT_SPACES) else "w"
    return "p"


def literal(text: str) -> str:
    """A text as a GBNF terminal."""
    return f'"{"".join(map(_escape, text))}"'


def _escape(letter: str) -> str:
    if letter in ESCAPES or letter.isprintable():
        return ESCAPES.get(letter, letter)
    return f"\\u{ord(letter):04x}" if ord(letter) <= 0xFFFF else f"\\U{ord(letter):08x}"


def choice_grammar(labels: Sequence[str]) -> str:
    """A grammar for one of the labels."""
    return f"root ::= {_any_of(labels)}"


def _any_of(texts: Iterable[str]) -> str:
    return " | ".join(map(literal, dict.fromkeys(texts)))


def span_grammar(pieces: Sequence[Piece], lead: str) -> str:
    """Contiguous pieces, one at least, behind `lead`; as many rules as there are pieces.

    Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language", section 3.3, "span-based".
    """
    return _chain([literal(piece.text) for piece in pieces], [piece.before for piece in pieces], lead)


def _chain(terminals: Sequence[str], befores: Sequence[str], lead: str, starts: Iterable[int] | None = None) -> str:
    begins = " | ".join(f"w{at}" for at in (range(len(terminals)) if starts is None else starts))
    rules = [f"root ::= {literal(lead)} ({begins})" if lead else f"root ::= {begins}"]
    for at, terminal in enumerate(terminals):
        goes_on = ""
        if at + 1 < len(terminals):
            goes_on = f" ({literal(befores[at + 1])} w{at + 1})?" if befores[at + 1] else f" (w{at + 1})?"
        rules.append(f"w{at} ::= {terminal}{goes_on}")
    return "\n".join(rules)


@dataclass(frozen=True, slots=True)
class Spelling:
    """A text in a server's tokens.

    Attributes:
        numbers: of the tokens.
        texts: of the tokens, which make up the text; () where the server does not tell.
    """

    numbers: tuple[int, ...]
    texts: tuple[str, ...] = ()

    @classmethod
    def from_reply(cls, opening: str, text: str, reply: Mapping[str, Any]) -> Spelling:
        """Parse the tokens in a server's reply: of the text alone (vLLM), or of an opening and the text together (llama.cpp).

        A text has other tokens at its beginning. Without texts where one token is the end of the opening and the beginning of the
        text, or a piece of a character; empty where the reply holds anything but tokens.
        """
        given = reply.get("tokens")
        tokens = given if isinstance(given, list) else []
        numbers: list[Any] = [one.get("id") if isinstance(one, Mapping) else one for one in tokens]
        if not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in numbers):
            return cls(())
        if not opening or not numbers:
            return cls(tuple(numbers))
        texts = [str(one["piece"]) for one in tokens if isinstance(one, Mapping) and isinstance(one.get("piece"), str)]
        for at in range(1, len(texts)) if len(texts) == len(numbers) else ():
            # Some tokenizers begin every text with a space.
            if "".join(texts[:at]).strip(" ") == opening and "".join(texts[at:]) == text:
                return cls(tuple(numbers[at:]), tuple(texts[at:]))
        return cls(tuple(numbers[1:]))


def token_choice_grammar(labels: Sequence[Spelling]) -> str:
    """A grammar for one of the labels in these tokens."""
    return f"root ::= {' | '.join(' '.join(map(_token, label.numbers)) for label in labels)}"


def token_span_grammar(passage: Spelling) -> str:
    """Contiguous tokens of a passage, one at least, of which the first is no mere white space."""
    starts = [at for at, text in enumerate(passage.texts) if text.strip()]
    return _chain(list(map(_token, passage.numbers)), [""] * len(passage.numbers), "", starts)


def token_shuffle_grammar(passage: Spelling) -> str:
    """A grammar for any number of tokens of a passage in any order."""
    return f"root ::= piece*\npiece ::= {' | '.join(map(_token, dict.fromkeys(passage.numbers)))}"


def _token(number: int) -> str:
    return f"<[{number}]>"


@dataclass(frozen=True, slots=True)
class ShuffledGrammar:
    """Pieces of a passage in any order, none among them; Bauer et al. 2022, section 3.3, "constrained".

    An answer is one of `first` and any of `rest`, each with its preceding white space in the passage.
    """

    first: tuple[str, ...]
    rest: tuple[str, ...]

    @classmethod
    def from_pieces(cls, pieces: Sequence[Piece], lead: str) -> ShuffledGrammar:
        """Of a passage, for an answer behind `lead`. Its first word gets a space, without which nothing could come before it."""
        head, *others = pieces
        spaced = head.before or (" " if _kind(head.text[0]) == "w" else "")
        rest = [spaced + head.text, *(piece.before + piece.text for piece in others)]
        first = (lead + piece.text for piece in pieces)
        return cls(tuple(dict.fromkeys(first)), tuple(dict.fromkeys(rest)))

    @property
    def grammar(self) -> str:
        """The grammar of such answers."""
        return f"root ::= (first rest*)?\nfirst ::= {_any_of(self.first)}\nrest ::= {_any_of(self.rest)}"

    def whole_in(self, text: str, *, cut: bool) -> str | None:
        """The text, of one that was cut off its whole pieces; None if it is not made of pieces."""
        wanted = len(text.rstrip())
        made = {0}
        left = [0]
        while left:
            at = left.pop()
            ends = {at + len(one) for one in (self.rest if at else self.first) if text.startswith(one, at)}
            left += ends - made
            made |= ends
        if max(made) >= wanted:
            return text
        broken = any(one.startswith(text[at:]) for at in made for one in (self.rest if at else self.first))
        return text[: max(made)] if cut and broken else None


def span_in(passage: str, text: str, *, cut: bool) -> str | None:
    """The span of the passage that equals a text (for a truncated text, its whole words); None if there is none."""
    span = text.strip()
    starts = [match.start() for match in re.finditer(f"(?={re.escape(span)})", passage)] if span else []
    if not starts:
        return None
    ends = [piece.end for piece in pieces_of(passage)]
    if not cut or any(start + len(span) in ends for start in starts):
        return span
    whole = [end for end in ends if starts[0] < end < starts[0] + len(span)]
    return passage[starts[0] : whole[-1]].strip() if whole else ""
