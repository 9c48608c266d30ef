"""Find the tokens that spell each option, to read its probability where an answer may say it.

word     tokens whose text is the word      read at a decoding step
she      "she"  " she"                      P(she) = P("she") + P(" she")
ze       none: it is several tokens         P(ze) = P("z") P("e" | "z") + P(" z") P("e" | " z")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from undertow.models.base import UnsupportedQueryError
from undertow.types import Option

PIECE_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""SentencePiece's space, which decoding a single token drops, and some servers pass on."""

CONTINUES = "##"
"""Prefix of WordPiece tokens that continue a word."""
LINE_BREAKS = ("\n", "\r")


@dataclass(frozen=True, slots=True)
class Chain:
    """Two tokens or more that spell an option; `inside` is the option whose tokens they begin with (*her* of *herself*), or -1."""

    option: int
    tokens: tuple[int, ...]
    inside: int = -1


@dataclass(frozen=True, slots=True)
class OptionTokens:
    """The tokens to read from a step's distribution, and those to read behind it.

    Attributes:
        ids: token ids [option][token]; () for an option of several tokens, one that the tokenizer does not know, and one that counts
            with an earlier option.
        chains: spellings of the options that no single token spells.
    """

    ids: tuple[tuple[int, ...], ...] = ()
    chains: tuple[Chain, ...] = ()

    def size_at(self, tokens: Sequence[int], at: int) -> int:
        """Number of tokens of the longest option that begins at a place of an answer; 0 for none."""
        chained = [len(one.tokens) for one in self.chains if tuple(tokens[at : at + len(one.tokens)]) == one.tokens]
        return max([*chained, int(any(tokens[at] in own for own in self.ids))])


class Vocabulary:
    """A tokenizer's vocabulary by the words that its tokens spell; decoded on first use."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._known: dict[tuple[Option, ...], OptionTokens] = {}

    def of_options(self, options: Sequence[Option]) -> OptionTokens:
        """The tokens of each option's word.

        Raises:
            UnsupportedQueryError: the tokenizer spells options of two groups alike, or knows none of them.
        """
        known = self._known.get(tuple(options))
        if known is not None:
            return known
        ids: list[tuple[int, ...]] = []
        owner: dict[tuple[int, ...], int] = {}
        for number, option in enumerate(options):
            word = option.fills[0].strip()
            spellings = [(token,) for token in self._of_word(word)] or self._chains_of(word)
            for spelling in spellings:
                group = options[owner.get(spelling, number)].group
                if group != option.group:
                    raise UnsupportedQueryError(
                        f"this tokenizer spells an option of {group} and one of {option.group} alike"
                    )
            fresh = [spelling for spelling in spellings if spelling not in owner]
            ids.append(tuple(spelling[0] for spelling in fresh if len(spelling) == 1))
            owner |= dict.fromkeys(fresh, number)
        if options and not owner:
            words = ", ".join(option.fills[0] for option in options)
            raise UnsupportedQueryError(f"this tokenizer knows none of the words: {words}")

        def inside(spelling: tuple[int, ...]) -> int:
            """The option with the longest spelling that this one begins with; -1 for none."""
            shorter = (spelling[:size] for size in range(len(spelling) - 1, 0, -1))
            return next((owner[one] for one in shorter if one in owner), -1)

        chains = (Chain(number, one, inside(one)) for one, number in owner.items() if len(one) > 1)
        self._known[tuple(options)] = read = OptionTokens(tuple(ids), tuple(chains))
        return read

    def text_of(self, token: int) -> str:
        """The text of a token, with its leading space where the tokenizer marks it."""
        return self._texts.get(token, "")

    @cached_property
    def line_breaks(self) -> frozenset[int]:
        """Tokens that begin with a line break."""
        return frozenset(token for token, text in self._texts.items() if text.lstrip(" ").startswith(LINE_BREAKS))

    @cached_property
    def line_ends(self) -> frozenset[int]:
        """Tokens with a line break after other text, such as a full stop."""
        breaking = frozenset(token for token, text in self._texts.items() if any(sign in text for sign in LINE_BREAKS))
        return breaking - self.line_breaks

    def _of_word(self, word: str) -> tuple[int, ...]:
        """Tokens that spell the word, or the single token that an uncased tokenizer gives it."""
        if word in self._tokens or not word:
            return self._tokens.get(word, ())
        for spelled in (word, f" {word}"):
            tokens = self.tokenizer(spelled, add_special_tokens=False)["input_ids"]
            if len(tokens) == 1 and tokens[0] != self.tokenizer.unk_token_id:
                return self._tokens.get(self._texts[tokens[0]].strip(), ())
        return ()

    def _chains_of(self, word: str) -> list[tuple[int, ...]]:
        """The tokens of a word that no single token spells, without and with a space before it; none if it holds an unknown one."""
        chains: list[tuple[int, ...]] = []
        for spelled in (word, f" {word}") if word else ():
            tokens = tuple(self.tokenizer(spelled, add_special_tokens=False)["input_ids"])
            text = "".join(map(self.text_of, tokens))
            unknown = self.tokenizer.unk_token_id in tokens or not text.strip() or text.startswith("  ")
            if len(tokens) > 1 and not unknown and tokens not in chains:
                chains.append(tokens)
        return chains

    @cached_property
    def _pieces(self) -> dict[int, str]:
        """Tokens as the tokenizer stores them."""
        numbers = sorted(set(self.tokenizer.get_vocab().values()))
        return dict(zip(numbers, self.tokenizer.convert_ids_to_tokens(numbers), strict=True))

    @cached_property
    def _has_word_pieces(self) -> bool:
        """Whether ## continues a word; in other vocabularies it is a heading of Markdown."""
        model = getattr(getattr(self.tokenizer, "backend_tokenizer", None), "model", None)
        return type(model).__name__ == "WordPiece"

    @cached_property
    def _texts(self) -> dict[int, str]:
        """The text of each token, with a space before it if it begins a word."""
        numbers = [[number] for number in self._pieces]
        decoded = self.tokenizer.batch_decode(numbers, clean_up_tokenization_spaces=False)
        pieced, texts = self._has_word_pieces, {}
        for (number, piece), text in zip(self._pieces.items(), decoded, strict=True):
            begins = (pieced and text[:1].isalnum()) or piece.startswith(PIECE_SPACE)
            if pieced and piece.startswith(CONTINUES):
                texts[number] = text.removeprefix(CONTINUES)
            else:
                texts[number] = f" {text}" if begins and not text.startswith(" ") else text
        return texts

    @cached_property
    def _tokens(self) -> dict[str, tuple[int, ...]]:
        """The tokens of each word. *mask* is a word and <mask> is not; nor is the end of a word."""
        special = set(self.tokenizer.all_special_ids)
        if self._has_word_pieces:
            special |= {number for number, piece in self._pieces.items() if piece.startswith(CONTINUES)}
        spelled: dict[str, list[int]] = {}
        for number, text in self._texts.items():
            if number not in special:
                spelled.setdefault(text.strip(), []).append(number)
        return {word: tuple(tokens) for word, tokens in spelled.items() if word}
