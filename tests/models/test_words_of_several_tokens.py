"""Words of several tokens in answers to prompts, and forms with a space at the start of a text, by plain forward passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import answering
from helpers.answering import TOLERANCE_NATS, answers, blank
from helpers.sampled_cases import paired
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import run_queries
from undertow.models.base import PAPER_TOP
from undertow.models.families import causal, masked, seq2seq
from undertow.models.generation.step_readout import EMPTY
from undertow.types import EXACT, NOT_SEEN, PAPER, ClozeQuery, GenerateQuery, Option

torch = pytest.importorskip("torch", reason="the model extra is not installed")

GROUPS = {"female": ("she", "her"), "male": ("he",), "neo": ("ze", "xir", "herself")}
OPTIONS = tuple(Option(group, (word,)) for group, words in GROUPS.items() for word in words)
PROMPTS = ("In 1801, _ was a child. The missing word is", "In Peru, _ was a kid. Answer:")
N_TOKENS = 4


class ByHand:
    """One model by full forward passes, without a cache."""

    def __init__(self, model: Any, prompt: str, top: int) -> None:
        self.model, self.tokenizer, self.top = model, model.tokenizer, top
        self.prompt = list(self.tokenizer(prompt)["input_ids"])
        self.known: dict[tuple[int, ...], Any] = {}

    def probs(self, written: list[int]) -> Any:
        """Of the next token [token]; once for each text."""
        if tuple(written) not in self.known:
            self.known[tuple(written)] = self._probs(written)
        return self.known[tuple(written)]

    def _probs(self, written: list[int]) -> Any:
        ids = torch.tensor([self.prompt + written])
        with torch.inference_mode():
            if self.model.network.config.is_encoder_decoder:
                decoder = torch.tensor([[self.model.opening, *written]])
                logits = self.model.network(input_ids=ids[:, : len(self.prompt)], decoder_input_ids=decoder).logits[
                    0, -1
                ]
            else:
                logits = self.model.network(ids).logits[0, -1]
        probs = logits.double().softmax(-1)
        if self.top:
            probs[probs.argsort(descending=True)[self.top :]] = 0.0
        return probs

    def written(self) -> list[int]:
        tokens: list[int] = []
        ends = self.model.stops.ends
        while len(tokens) < N_TOKENS:
            best = int(self.probs(tokens).argmax())
            if best in ends:
                break
            tokens.append(best)
        return tokens

    def spellings(self, word: str) -> list[list[int]]:
        """Single tokens of the word; where there are none, its tokens with and without a space."""
        unknown = self.tokenizer.unk_token_id
        vocabulary = self.tokenizer.get_vocab().values()
        special = self.tokenizer.all_special_ids
        single = [
            [token] for token in vocabulary if token not in special and self.tokenizer.decode([token]).strip() == word
        ]
        both = [list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (word, f" {word}")]
        return single or [one for at, one in enumerate(both) if unknown not in one and one not in both[:at]]

    def chain(self, before: list[int], spelling: list[int]) -> float:
        return math.prod(float(self.probs(before + spelling[:at])[token]) for at, token in enumerate(spelling))

    def masses(self, place: int, written: list[int]) -> list[float]:
        """Of each option at one step; a word is less what longer words that begin with its tokens have."""
        before = written[:place]
        own = {
            (at, tuple(one)): self.chain(before, one)
            for at, option in enumerate(OPTIONS)
            for one in self.spellings(option.fills[0])
        }
        masses = [sum(prob for (number, _), prob in own.items() if number == at) for at in range(len(OPTIONS))]
        for (_, tokens), prob in own.items():
            inside = [key for key in own if len(key[1]) < len(tokens) and tokens[: len(key[1])] == key[1]]
            if inside:
                masses[max(inside, key=lambda key: len(key[1]))[0]] -= prob
        return masses


@pytest.mark.parametrize(
    ("built", "protocol"),
    paired(
        [(causal, "tiny_gpt2"), (causal, "tiny_bloom"), (seq2seq, "trained_t5"), (seq2seq, "trained_bart")],
        [EXACT, PAPER],
    ),
)
def test_a_word_of_several_tokens_is_read_whole(
    built: tuple[Any, str], protocol: str, network: Callable[[str], str], tmp_path: Path
) -> None:
    model = answering.opened(built[0], network(built[1]))
    queries = [GenerateQuery(prompt, OPTIONS, N_TOKENS) for prompt in PROMPTS]
    found = answers(model, queries, tmp_path / "s", protocol)
    for prompt, answer in zip(PROMPTS, found, strict=True):
        hand = ByHand(model, prompt, PAPER_TOP if protocol == PAPER else 0)
        written = hand.written()
        if not written:
            assert answer.missing_reason == EMPTY
            continue
        assert max(len(one) for option in OPTIONS for one in hand.spellings(option.fills[0])) > 1
        spelled = [one for option in OPTIONS for one in hand.spellings(option.fills[0])]
        said = [at for at in range(len(written)) if any(written[at : at + len(one)] == one for one in spelled)]
        steps = [hand.masses(place, written) for place in (said if len(said) == 1 else range(len(written)))]
        expected = [sum(column) / len(steps) for column in zip(*steps, strict=True)]
        readable = [bool(hand.spellings(option.fills[0])) for option in OPTIONS]
        assert sum(readable) >= 4
        for nats, mass, known in zip(answer.logprobs_nats, expected, readable, strict=True):
            if known:
                assert math.exp(nats) == pytest.approx(mass, abs=1e-6, rel=1e-3)
            else:
                assert math.isnan(nats)
        assert answer.other_prob == pytest.approx(1 - sum(expected), abs=1e-5)


# What a tokenizer does not know leaves the other words their numbers.


@pytest.mark.parametrize(("family", "name"), [(masked, "trained_bert"), (seq2seq, "trained_t5")])
def test_an_unknown_word_at_a_blank_leaves_the_others_scored_and_is_named(
    family: Any, name: str, network: Callable[[str], str], tmp_path: Path
) -> None:
    model = answering.opened(family, network(name))
    known = blank("In 1801, ", " was a child, \u03a9.", "she", "he")  # what stands around a blank may be unknown
    some = ClozeQuery(known.pieces, (*known.options, Option("other", ("\u03a9e",))))
    none = blank("In 1801, ", " was a child.", "\u03a9e", "\u03a9r")
    with AnswerCache(tmp_path / "s") as store:
        result = run_queries(answering.found_as(model), [known, some, none], store, EXACT, lambda done, total: None)
    both, with_unknown, without = result.scores.answers
    assert with_unknown.logprobs_nats[:2] == pytest.approx(both.logprobs_nats, abs=TOLERANCE_NATS)
    assert math.isnan(with_unknown.logprobs_nats[2])
    assert with_unknown.other_prob == pytest.approx(both.other_prob, abs=1e-6)
    said = "an option holds a character or word that this tokenizer does not know: '\u03a9e', '\u03a9r'"
    assert without.missing_reason == said
    assert f"{NOT_SEEN}: \u03a9e" in result.notes


@pytest.mark.parametrize("protocol", [EXACT, PAPER])
def test_at_the_start_of_a_text_both_forms_count_as_in_fill_mask(
    protocol: str, network: Callable[[str], str], tmp_path: Path
) -> None:
    from transformers import pipeline

    folder = network("trained_roberta")
    model = answering.opened(masked, folder)
    words = ("She", "she", "He", "his", "They", "their", "Peru", "A")
    query = blank("", " was a child in 1825.", *words)
    (answer,) = answers(model, [query], tmp_path / "s", protocol)
    top = PAPER_TOP if protocol == PAPER else len(model.tokenizer)
    listed = pipeline("fill-mask", model=folder, device="cpu", top_k=top)(
        query.display_text(model.tokenizer.mask_token)
    )
    plain, spaced = dict.fromkeys(words, 0.0), dict.fromkeys(words, 0.0)
    for choice in listed:
        text = model.tokenizer.decode([choice["token"]])
        if text.strip() in plain:
            (spaced if text.startswith(" ") else plain)[text.strip()] += choice["score"]
    n_tokens = {
        text: len(model.tokenizer(text, add_special_tokens=False)["input_ids"])
        for word in words
        for text in (word, f" {word}")
    }
    checked = [0, 0]
    for at, word in enumerate(words):
        if n_tokens[f" {word}"] == 1:
            assert math.exp(answer.spaced_nats[at]) == pytest.approx(spaced[word], abs=1e-6)
            checked[0] += spaced[word] > 0
        if n_tokens[f" {word}"] == n_tokens[word] == 1:
            assert math.exp(answer.logprobs_nats[at]) == pytest.approx(plain[word] + spaced[word], abs=1e-6)
            checked[1] += 1
    assert protocol == PAPER or all(checked)
    (inside,) = answers(model, [blank("In 1825, ", " was a child.", "she", "he")], tmp_path / "s", protocol)
    assert inside.spaced_nats == ()


def test_at_the_start_of_a_text_a_decoder_that_writes_it_whole_writes_both_forms(
    network: Callable[[str], str], tmp_path: Path
) -> None:
    model = answering.opened(seq2seq, network("trained_bart"))
    query = blank("", " was a child in 1825.", "they", "she")
    (answer,) = answers(model, [query], tmp_path / "s")
    ids = model.tokenizer(query.display_text(model.tokenizer.mask_token))["input_ids"]
    start = ids.index(model.tokenizer.mask_token_id)
    with torch.inference_mode():
        logits = model.network(
            torch.tensor([ids]), decoder_input_ids=torch.tensor([[model.opening, *ids[:start]]])
        ).logits
    probs = logits[0, -1].double().softmax(-1)
    for word, nats, spaced in zip(("they", "she"), answer.logprobs_nats, answer.spaced_nats, strict=True):
        own, with_space = (model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in (word, f" {word}"))
        assert (len(own), len(with_space)) == (1, 1)
        assert math.exp(nats) == pytest.approx(float(probs[own[0]] + probs[with_space[0]]), abs=1e-6)
        assert math.exp(spaced) == pytest.approx(float(probs[with_space[0]]), abs=1e-6)
