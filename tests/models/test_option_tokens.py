from __future__ import annotations

from typing import Any

import pytest

from helpers.tiny_models import byte_level_tokenizer, sentencepiece_tokenizer, wordpiece_tokenizer
from undertow.models.base import UnsupportedQueryError, attempt
from undertow.models.tokens.option_tokens import OptionTokens, Vocabulary
from undertow.types import Option

pytest.importorskip("torch", reason="the model extra is not installed")


class Spelling:
    """A tokenizer of a few tokens, which reads a text that is one of them, lower case if it has to."""

    unk_token_id = 0
    all_special_ids = (0, 1)

    def __init__(self, *tokens: str, uncased: bool = False) -> None:
        self.texts = ["<unk>", "she", *tokens]  # the second looks like a word, but is special
        self.uncased = uncased

    def get_vocab(self) -> dict[str, int]:
        return {f"{text} {number}": number for number, text in enumerate(self.texts)}

    def batch_decode(self, rows: list[list[int]], clean_up_tokenization_spaces: bool) -> list[str]:
        assert not clean_up_tokenization_spaces
        return [self.texts[token] for (token,) in rows]

    def convert_ids_to_tokens(self, numbers: list[int]) -> list[str]:
        return [self.texts[number] for number in numbers]

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        read = text.strip().lower() if self.uncased else text
        if read in self.texts[2:]:
            return {"input_ids": [self.texts.index(read, 2)]}
        return {"input_ids": [0] if len(read) < 2 else [0] * len(read)}


def options(**words: str) -> tuple[Option, ...]:
    """Groups, each with its words separated by spaces."""
    return tuple(Option(group, (word,)) for group, all_words in words.items() for word in all_words.split(" "))


def tokens_of(tokenizer: Any, *asked: Option) -> OptionTokens:
    found = Vocabulary(tokenizer).of_options(asked)
    assert isinstance(found, OptionTokens)
    return found


def test_forms_that_become_one_token_count_with_the_earlier_one() -> None:
    uncased = Spelling("she", " she", "he", uncased=True)
    assert tokens_of(uncased, *options(f="She she", m="he He")).ids == ((2, 3), (), (4,), ())
    assert tokens_of(uncased, *options(f="she She", m="He")).ids == ((2, 3), (), (4,))
    assert tokens_of(Spelling("she"), *options(f="she she")) == OptionTokens(((2,), ()))


def test_options_of_two_groups_cannot_be_one_token() -> None:
    with pytest.raises(UnsupportedQueryError, match="polite and one of she"):
        tokens_of(Spelling("sie", "er", uncased=True), *options(polite="Sie", she="sie"))
    cased = tokens_of(Spelling("sie", "Sie"), *options(polite="Sie", she="sie"))
    assert cased.ids == ((3,), (2,))


def test_a_group_that_cannot_be_seen_has_no_token_and_leaves_the_others_theirs() -> None:
    assert tokens_of(Spelling("she", "he"), *options(f="she", x="xe ze", m="he")).ids == ((2,), (), (), (3,))
    for word in (" ", "Ω"):  # an unknown token is no spelling, though it is one token
        with pytest.raises(UnsupportedQueryError):
            Vocabulary(Spelling("she")).of_options([Option("f", (word,))])


def test_real_tokenizers() -> None:
    asked = options(f="she She", m="he", k="tea)")
    for build, spelled in (
        (byte_level_tokenizer, (("Ġshe", "she"), ("ĠShe", "She"), ("Ġhe", "he"))),
        (sentencepiece_tokenizer, (("▁she", "she"), ("▁She", "She"), ("▁he", "he"))),
        (wordpiece_tokenizer, (("she",), (), ("he",))),
    ):
        tokenizer = build()
        found = tokens_of(tokenizer, *asked[:3])
        present = set(tokenizer.get_vocab())
        for ids, names in zip(found.ids, spelled, strict=True):
            assert set(tokenizer.convert_ids_to_tokens(list(ids))) == set(names) & present
        assert found.ids[0]
        whole = attempt(Vocabulary(tokenizer).of_options, asked[3:])
        assert isinstance(whole, UnsupportedQueryError) or (whole.ids == ((),) and whole.chains)
