from __future__ import annotations

from functools import cache
from itertools import combinations, takewhile
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers.tiny_tokenizers import KINDS, byte_level, unigram, word_pieces
from undertow.models.base import UnsupportedQueryError
from undertow.models.generation.constraints import LabelTrie
from undertow.models.generation.prompt_encoder import EncodedPrompt, PromptEncoder
from undertow.models.tokens.option_tokens import Vocabulary
from undertow.types import SPAN, UNCONSTRAINED, ConstrainedGenerateQuery, GenerateQuery, MultipleChoiceQuery, Option

pytest.importorskip("torch", reason="the model extra is not installed")

DIMENSIONS = (" gender", " race", " political", " political affiliation", " religion")
SMILE = "\N{GRINNING FACE}"
FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}"


@cache
def tokenizer_of(kind: str) -> Any:
    return KINDS[kind]()


def prompt_encoder(tokenizer: Any, context_tokens: int = 10_000) -> PromptEncoder:
    n_closing = len(tokenizer("")["input_ids"]) // 2  # one of a pair around every text

    def tokens_of(text: str) -> list[int]:
        tokens: list[int] = tokenizer(text)["input_ids"]
        return tokens[: len(tokens) - n_closing] if n_closing and tokenizer.cls_token else tokens

    return PromptEncoder(tokenizer, tokens_of, context_tokens, Vocabulary(tokenizer))


def prompted(asked: PromptEncoder, query: MultipleChoiceQuery | ConstrainedGenerateQuery) -> EncodedPrompt:
    (one,) = asked.encode([query])
    assert isinstance(one, EncodedPrompt)
    return one


def refusal(asked: PromptEncoder, query: MultipleChoiceQuery | ConstrainedGenerateQuery) -> str:
    (error,) = asked.encode([query])
    assert isinstance(error, UnsupportedQueryError)
    return str(error)


def labels_of(one: EncodedPrompt) -> dict[int, tuple[int, ...]]:
    """The labels' tokens, by their places."""
    found: dict[int, tuple[int, ...]] = {}
    states: list[tuple[tuple[int, ...], LabelTrie]] = [((), one.nodes[()])]
    for written, state in states:
        if state.label is not None:
            found[state.label] = written
        states += [((*written, token), child) for token, child in state.children.items()]
    return found


PROMPTS = [
    "The cats of the house sat.\nTask: What is said?\nAnswer:",
    "Question: What is it about?\nAnswer: ",
    "Question: What is it about?\nAnswer:\n",
    f"The sea {SMILE}",
    "It is what they said, p",
    "race",
]


def check_labels(asked: PromptEncoder, text: str, labels: tuple[str, ...]) -> None:
    one = prompted(asked, MultipleChoiceQuery(text, labels))
    whole = [asked.tokens_of(text + label) for label in labels]
    found = labels_of(one)
    assert [[*one.tokens, *found[at]] for at in range(len(labels))] == whole
    alike = takewhile(lambda column: len(set(column)) == 1, zip(asked.tokens_of(text), *whole, strict=False))
    assert len(one.tokens) == len(list(alike))


@pytest.mark.parametrize("text", PROMPTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_label_is_spelled_as_in_the_whole_text(kind: str, text: str) -> None:
    asked = prompt_encoder(tokenizer_of(kind))
    for labels in (DIMENSIONS, ("olitical", "ast", " race"), (" cats", " the cats", " the")):
        check_labels(asked, text, labels)
        # From what is remembered of the end of the prompt, behind other texts of the same end.
        for before in ("They said no. ", "The cats\n\n", "yes yes yes yes yes yes yes yes "):
            check_labels(asked, before + text, labels)


WORDS = ["Answer:", "the", "cats", "p", "said", "political", "e", SMILE, ".", "aa", "caf\u00e9"]
TEXTS = st.lists(st.tuples(st.sampled_from([" ", "", "", "\n"]), st.sampled_from(WORDS)), min_size=1, max_size=12).map(
    lambda pairs: "".join(space + word for space, word in pairs)
)


@settings(max_examples=60)
@given(st.sampled_from(sorted(KINDS)), TEXTS, st.lists(TEXTS, min_size=1, max_size=3), st.data())
def test_what_is_remembered_of_a_prompts_end_is_what_a_whole_text_says(
    kind: str, end: str, befores: list[str], data: st.DataObject
) -> None:
    asked = prompt_encoder(tokenizer_of(kind))
    labels = data.draw(st.sampled_from([DIMENSIONS, ("olitical", " said", "a"), ("a", "aa", " the"), (".", " cats")]))
    for before in befores:
        query = MultipleChoiceQuery(before + end, labels)
        ((found,), (fresh,)) = (each.encode([query]) for each in (asked, prompt_encoder(tokenizer_of(kind))))
        assert found == fresh or (isinstance(found, UnsupportedQueryError) and str(found) == str(fresh))


@pytest.mark.parametrize(
    ("vocabulary", "merges", "byte_level_too", "texts", "labels"),
    [
        (["a", "aa", "b", "\u0120"], [("a", "a")], True, ["b " + n * "a" for n in (40, 41, 43, 42, 44)], ("a", "ba")),
        (["a", " ", "a ", "a a ", "b"], [("a", " "), ("a ", "a ")], False, ["b" + n * "a " for n in (20, 21, 23, 22)], ("a ", "b")),
        (["a", " ", "a ", "a a ", "b"], [("a", " "), ("a ", "a ")], False, ["b" + n * "a " for n in (21, 20, 22)], ("a ", "b")),
    ],
    ids=["a word longer than what is remembered", "words that are joined", "in another order"],
)  # fmt: skip
def test_pairs_that_are_joined_from_the_left_depend_on_how_many_there_are(
    vocabulary: list[str], merges: Any, byte_level_too: bool, texts: list[str], labels: tuple[str, ...]
) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pairs = Tokenizer(models.BPE({piece: at for at, piece in enumerate(vocabulary)}, merges))
    if byte_level_too:
        pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    asked = prompt_encoder(PreTrainedTokenizerFast(tokenizer_object=pairs))
    for text in texts:
        check_labels(asked, text, labels)


def shouted() -> Any:
    """In small letters alone, without exclamation marks."""
    from tokenizers import normalizers

    tokenizer = word_pieces()
    tokenizer._tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace("!", "")])
    return tokenizer


ZHE = "\N{CYRILLIC SMALL LETTER ZHE}"


@pytest.mark.parametrize(
    ("build", "prompt", "labels", "words"),
    [
        (byte_level, " ", ("race", "gender"), ("whole prompt",)),
        (word_pieces, "Answer:", (" race", f" {ZHE}"), ("cannot spell", ZHE)),
        (unigram, "Answer:", (" race", f" {ZHE}"), ("cannot spell", ZHE)),
        (shouted, "it is:", (" race", " Race"), ("'Race'",)),
        (shouted, "it is:", (" race", " !"), ("'!'",)),
        (byte_level, "Answer:", DIMENSIONS, ("'political'", "'political affiliation'")),
    ],
    ids=["behind nothing", "no piece", "no unigram", "spelled alike", "spelled as nothing", "one first token"],
)
def test_labels_that_cannot_be_asked_are_refused(
    build: Any, prompt: str, labels: tuple[str, ...], words: tuple[str, ...]
) -> None:
    query = MultipleChoiceQuery(prompt, labels, first_token=labels is DIMENSIONS)
    reason = refusal(prompt_encoder(build()), query)
    assert all(word in reason for word in words)


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(KINDS)),
    st.text(st.sampled_from(f"the cats\n\r\t  .,{SMILE}{FAMILY}\N{COMBINING ACUTE ACCENT}e\N{CYRILLIC SMALL LETTER ZHE}"), max_size=20),
    st.sampled_from(["Answer:", "Answer:\n"]),
)  # fmt: skip
def test_every_span_spells_a_piece_of_its_passage(kind: str, passage: str, text: str) -> None:
    asked = prompt_encoder(tokenizer_of(kind))
    query = ConstrainedGenerateQuery(text, passage, SPAN)
    if not passage.strip():
        assert "passage that the answer is to be made of is empty" in refusal(asked, query)
        return
    (found,) = asked.encode([query])
    assume(isinstance(found, EncodedPrompt))
    spelled = found.passage  # type: ignore[union-attr]
    for start, end in combinations(range(len(spelled.tokens) + 1), 2):
        piece = spelled.text_of_span(spelled.tokens[start:end])
        assert piece in passage
        assert piece == piece.strip()


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["The sea. Answer: race\n", "No. Answer: political\n", "cats\n"]), max_size=6),
    st.integers(5, 80),
    st.booleans(),
    st.sampled_from(sorted(KINDS)),
)
def test_examples_are_left_out_from_the_front_and_no_more_than_must(
    shots: list[str], context_tokens: int, chosen: bool, kind: str
) -> None:
    def query(kept: int) -> MultipleChoiceQuery | ConstrainedGenerateQuery:
        some = tuple(shots[len(shots) - kept :])
        if chosen:
            return MultipleChoiceQuery("They said no. Answer:", DIMENSIONS, some)
        return ConstrainedGenerateQuery("They said no. Answer:", "They said no.", UNCONSTRAINED, shots=some)

    asked, roomy = prompt_encoder(tokenizer_of(kind), context_tokens), prompt_encoder(tokenizer_of(kind))
    whole = [prompted(roomy, query(kept)) for kept in range(len(shots) + 1)]
    fits = [len(one.tokens) + one.max_tokens <= context_tokens for one in whole]
    if not fits[0]:
        reason = refusal(asked, query(len(shots)))
        without = ", without any example" if shots else ""
        assert f"longer than the {context_tokens} tokens that the model reads{without}" in reason
        return
    n_kept = max(kept for kept, fit in enumerate(fits) if fit)
    one = prompted(asked, query(len(shots)))
    assert one.n_dropped_shots == len(shots) - n_kept
    assert one.tokens == whole[n_kept].tokens


def test_words_that_are_read_behind_an_answer_take_room_too() -> None:
    """All tokens of the longest but its last, behind an answer of three."""
    tokenizer = tokenizer_of("byte-level")
    query = GenerateQuery("The cats", (Option("p", ("political affiliation",)), Option("r", ("race",))), 3)
    n_read = max(len(chain.tokens) for chain in Vocabulary(tokenizer).of_options(query.options).chains)
    room = len(tokenizer(query.prompt)["input_ids"]) + 3 + n_read - 1
    for context_tokens, kind in ((room, EncodedPrompt), (room - 1, UnsupportedQueryError)):
        assert isinstance(prompt_encoder(tokenizer, context_tokens).encode([query])[0], kind)
