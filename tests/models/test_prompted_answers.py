from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.answering import answers, change_json, opened
from helpers.tiny_models import saved, tiny_gpt_neo
from undertow.errors import UndertowError
from undertow.models.base import PAPER_TOP
from undertow.models.families import causal, seq2seq
from undertow.models.generation import backends
from undertow.models.generation.prompt_encoder import encode_chat
from undertow.models.generation.step_readout import EMPTY
from undertow.types import EXACT, PAPER, Answer, GenerateQuery, Option

torch = pytest.importorskip("torch", reason="the model extra is not installed")


def options(**words: str) -> tuple[Option, ...]:
    """Groups, each with its words separated by spaces."""
    return tuple(Option(group, (word,)) for group, all_words in words.items() for word in all_words.split(" "))


Tokens = tuple[int, ...]
LETTERS = options(one="a c", other="n s")
WORDS = options(female="she She her", male="he his", neutral="they They", neo="ze xir herself")
BEGUN = [
    f"Fill in: In {year}, _ was {what}. It is" for year in (1801, 1953, 2001) for what in ("a child", "an adult", "a")
]
"""Prompts that share beginnings, of several lengths."""
GAPPED = (
    "In 1801, {} was a child and lost her keys.",
    "In 1801, she was a child and lost {} keys.",
    "The weaver ({} had {} tea) went to Kenya.",
    'The baker of Peru said "{} lost {} prize."',
    "He was an adult in 1873 and had",
)


def prompts(n_tokens: int = 5, wanted: tuple[Option, ...] = LETTERS) -> list[GenerateQuery]:
    return [GenerateQuery(text, wanted, n_tokens) for text in BEGUN]


def mixture(model: Any) -> list[GenerateQuery]:
    """Answers of several lengths and other words; encoder-decoders have something to write at marks of their own."""
    mask = model.tokenizer.mask_token
    gapped = [text.replace("{}", mask) if mask else text.format("<extra_id_0>", "<extra_id_1>") for text in GAPPED]
    is_causal = not model.network.config.is_encoder_decoder
    unseen = (*LETTERS, Option("nothing", (" ",)))
    return [
        *prompts(),
        *prompts(3, unseen)[::4],
        *(
            GenerateQuery(text, WORDS, n)
            for text in (BEGUN[:2] if is_causal else gapped)
            for n in (2, 4 if is_causal else 20)
        ),
    ]


@cache
def probs_after(model: Any, prompt: Tokens, written: Tokens) -> Any:
    """Of the next token [token], by a full forward pass without a cache."""
    fed = {"input_ids": torch.tensor([[*prompt, *written]])}
    if model.network.config.is_encoder_decoder:
        fed = {"input_ids": torch.tensor([prompt]), "decoder_input_ids": torch.tensor([[model.opening, *written]])}
    with torch.inference_mode():
        return model.network(**fed, use_cache=False).logits[0, -1].double().softmax(-1)


class ByHand:
    """The answer to one prompt, whose probabilities are read one token at a time."""

    def __init__(self, model: Any, query: GenerateQuery, protocol: str) -> None:
        self.model, self.tokenizer, self.query = model, model.tokenizer, query
        self.top = PAPER_TOP if protocol == PAPER else 0
        self.prompt = tuple(self.tokenizer(query.prompt)["input_ids"])
        self.spelled = [self.spellings(option.fills[0]) for option in query.options]

    def shown(self, written: Sequence[int], top: int = 0) -> Any:
        """Probabilities of the next token [token], of which a protocol may let the most probable through."""
        probs = probs_after(self.model, self.prompt, tuple(written))
        return probs * (probs >= probs.topk(top).values[-1]) if top else probs

    def written(self) -> list[int]:
        tokens: list[int] = []
        while len(tokens) < self.query.max_tokens:
            best = int(self.shown(tokens).argmax())
            if best in self.model.stops.ends:
                break
            tokens.append(best)
        return tokens

    def spellings(self, word: str) -> list[list[int]]:
        """Single tokens of the word; where there are none, its tokens with and without a space."""
        special, unknown = self.tokenizer.all_special_ids, self.tokenizer.unk_token_id
        single = [
            [token] for token in self.tokenizer.get_vocab().values()
            if token not in special and self.tokenizer.decode([token]).strip() == word
        ]  # fmt: skip
        both = [list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (word, f" {word}")]
        several = [one for at, one in enumerate(both) if unknown not in one and one not in both[:at]]
        return single or (several if word.strip() else [])

    def chain(self, before: list[int], spelling: list[int]) -> float:
        return math.prod(
            float(self.shown(before + spelling[:at], self.top)[token]) for at, token in enumerate(spelling)
        )

    def masses(self, before: list[int]) -> list[float]:
        """Of each option behind what was written; a word is less what longer words that begin with its tokens have."""
        own = {(at, tuple(one)): self.chain(before, one) for at, some in enumerate(self.spelled) for one in some}
        masses = [sum(prob for (number, _), prob in own.items() if number == at) for at in range(len(self.spelled))]
        for (_, tokens), prob in own.items():
            inside = [key for key in own if len(key[1]) < len(tokens) and tokens[: len(key[1])] == key[1]]
            if inside:
                masses[max(inside, key=lambda key: len(key[1]))[0]] -= prob
        return masses

    def places(self, written: list[int]) -> list[int]:
        """Where a word is said."""
        spelled = [one for some in self.spelled for one in some]
        return [at for at in range(len(written)) if any(written[at : at + len(one)] == one for one in spelled)]

    def check(self, answer: Answer) -> list[int]:
        """The answer is by the rule of the paper's appendix B.3; gives what was written."""
        written = self.written()
        if not written:
            assert answer.missing_reason == EMPTY
            return written
        said = self.places(written)
        steps = [self.masses(written[:at]) for at in (said if len(said) == 1 else range(len(written)))]
        expected = [sum(column) / len(steps) for column in zip(*steps, strict=True)]
        assert answer.text == self.tokenizer.decode(written, skip_special_tokens=True)
        known = [mass if some else math.nan for mass, some in zip(expected, self.spelled, strict=True)]
        assert np.exp(answer.logprobs_nats) == pytest.approx(known, abs=1e-6, rel=1e-3, nan_ok=True)
        assert answer.other_prob == pytest.approx(1 - sum(expected), abs=1e-5)
        return written


def check(model: Any, queries: Sequence[GenerateQuery], store: Path, protocol: str = EXACT) -> list[ByHand]:
    """Ask, and compare with the reference, which is given."""
    hands = [ByHand(model, query, protocol) for query in queries]
    for hand, answer in zip(hands, answers(model, queries, store, protocol), strict=True):
        hand.check(answer)
    return hands


Network = Callable[[str], str]
NO_TREES = ("tiny_mamba", "tiny_bloom", "tiny_rwkv")
ENCODER_DECODERS = ("trained_t5", "trained_bart")
some_families = pytest.mark.parametrize(
    ("family", "builder"), [(causal, "tiny_llama"), *((seq2seq, name) for name in ENCODER_DECODERS)]
)


@pytest.fixture
def model(network: Network) -> Any:
    """A llama, opened again, to be tampered with."""
    return opened(causal, network("tiny_llama"))


@pytest.mark.parametrize("protocol", [EXACT, PAPER])
@pytest.mark.parametrize("builder", ["tiny_llama", "tiny_gpt2", "tiny_gemma2", *NO_TREES])
def test_every_architecture_answers_as_one_prompt_at_a_time(
    builder: str, protocol: str, network: Network, tmp_path: Path
) -> None:
    model = opened(causal, network(builder))
    check(model, mixture(model), tmp_path / "s", protocol)
    assert bool(model.refusal) == (builder in NO_TREES)
    assert any("plain batches" in note for note in model.prompt_notes) == (builder in NO_TREES)


@pytest.mark.parametrize("protocol", [EXACT, PAPER])
@pytest.mark.parametrize("builder", ENCODER_DECODERS)
def test_encoder_decoders_answer_as_one_prompt_at_a_time(
    builder: str, protocol: str, network: Network, tmp_path: Path
) -> None:
    model = opened(seq2seq, network(builder))
    hands = check(model, mixture(model), tmp_path / "s", protocol)
    n_said = {len(hand.places(hand.written())) for hand in hands}
    assert 1 in n_said  # one step counts
    assert max(n_said) > 1  # all of them do
    assert {len(hand.written()) < hand.query.max_tokens for hand in hands} == {True, False}
    assert {1, 3} <= {len(one) for hand in hands for some in hand.spelled for one in some}


@some_families
def test_an_answer_ends_with_its_end_and_an_empty_one_is_missing(
    family: Any, builder: str, network: Network, tmp_path: Path
) -> None:
    model = opened(family, network(builder))
    queries = mixture(model)[-4:]
    first = ByHand(model, queries[0], EXACT).written()[0]
    model.stops.ends = frozenset({*model.stops.ends, first})
    hands = check(model, queries, tmp_path / "s")
    assert hands[0].written() == []


@some_families
def test_a_checkpoint_that_bends_its_distributions_is_read_straight(
    family: Any, builder: str, network: Network, tmp_path: Path
) -> None:
    folder = shutil.copytree(network(builder), tmp_path / "m")
    change_json(
        folder / "generation_config.json", num_beams=4, repetition_penalty=3.0, no_repeat_ngram_size=1, min_length=15,
        forced_bos_token_id=7, forced_eos_token_id=8, do_sample=True, temperature=3.0, length_penalty=2.0,
        early_stopping=True, suppress_tokens=[9, 10], max_length=4, top_k=2, min_new_tokens=4,
    )  # fmt: skip
    model = opened(family, str(folder))
    if family is causal:
        model._refusal = "told so"  # a tree has no need of `generate`
    check(model, mixture(model), tmp_path / "s")


@some_families
def test_what_cannot_be_asked_has_a_reason(family: Any, builder: str, network: Network, tmp_path: Path) -> None:
    model = opened(family, network(builder))
    fine = mixture(model)[-1]
    too_long = f"longer than the {model.context_tokens} tokens"
    refused = [
        ("has no chat template", replace(fine, chat=True)),
        (too_long, replace(fine, prompt="was " * 65)),
        (too_long, replace(fine, max_tokens=model.context_tokens + 1)),
        ("knows none of the words", replace(fine, options=options(x="\t", y="\n"))),
    ]
    if family is causal:
        refused.append(("empty", replace(fine, prompt="")))
    *found, asked = answers(model, [*(query for _, query in refused), fine], tmp_path / "s")
    for (reason, _), answer in zip(refused, found, strict=True):
        assert reason in answer.missing_reason
    assert asked.missing_reason == ""


@pytest.mark.parametrize(("family", "builder"), [(causal, "tiny_llama"), (seq2seq, "small_t5_folder")])
def test_a_reply_is_written_where_no_options_are_asked_for(
    family: Any, builder: str, network: Network, tmp_path: Path
) -> None:
    (answer,) = answers(opened(family, network(builder)), [GenerateQuery("She was a child.", (), 8)], tmp_path / "s")
    assert "single token" not in answer.missing_reason
    assert answer.logprobs_nats == () or answer.missing_reason
    assert answer.cut_at_tokens == 8  # its weights are random: it does not come to an end


def test_a_chat_template_goes_around_the_prompt(tmp_path: Path, model: Any) -> None:
    template = "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}it:{% endif %}"
    model.tokenizer.chat_template = template
    chatted = [replace(query, chat=True) for query in prompts()]
    written_out = [replace(query, prompt=f"<s>user: {query.prompt}\nit:") for query in prompts()]
    as_chat, as_text = (answers(model, queries, tmp_path / "s") for queries in (chatted, written_out))
    assert as_chat == as_text
    assert model.facts["post_training"]


@pytest.mark.parametrize("tamper", [torch.zeros_like, lambda mask: mask.clone().fill_(0).triu_(1)], ids=["all", "none"])
def test_a_network_that_sees_other_than_it_is_told_is_found_out(tamper: Callable[[Any], Any], model: Any) -> None:
    forward = model.network.forward

    def tampered(**inputs: Any) -> Any:
        mask = inputs.get("attention_mask")
        return forward(**inputs if mask is None or mask.ndim < 4 else inputs | {"attention_mask": tamper(mask)})

    model.network.forward = tampered
    assert "differently" in model._check_tree()


def test_a_window_in_places_of_the_cache_is_found_out_however_wide(tmp_path: Path) -> None:
    """GPT-Neo's local layers look back over places, not over a path; a pack is wider than their window."""
    model = opened(causal, saved(tmp_path / "m", tiny_gpt_neo(2048)))
    for block in model.network.transformer.h:
        attention = block.attn.attention
        if block.attn.attention_type == "local":
            reach = torch.tril(torch.ones(2048, 2048, dtype=torch.bool))
            attention.bias = (reach ^ torch.tril(reach, -512))[None, None]
    model.prompt_depth = 64
    assert model._check_tree()


def test_memory_that_runs_out_is_no_property_of_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Any
) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(backends.TreeBackend, "logits_after", full)
    with pytest.raises(UndertowError, match="out of memory in a forward pass"):
        answers(model, prompts(), tmp_path / "s")
    assert model._refusal is None


def test_a_template_that_asks_for_the_date_is_told_one(tmp_path: Path, model: Any) -> None:
    model.tokenizer.chat_template = "{{ strftime_now('%d %b %Y') }} {{ messages[0]['content'] }}"
    query = GenerateQuery("it is", LETTERS, 3, chat=True)
    asked = encode_chat(model.tokenizer, query.prompt)
    assert model.tokenizer.decode(asked) == "26 Jul 2024 it is"
    answers(model, [query], tmp_path / "s")
    assert any("writes a date into each prompt" in note for note in model.prompt_notes)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('no user may speak') }}", "cannot take the prompt (no user may speak)"),
        ("{% for m in messages %}{{ m['content'][0]['text'] }}{% endfor %}<s>", "leaves the prompt out"),
        ("{{ messages[0]['content'] }}<think>\n", "begins each answer with <think>"),
        ("{{ messages[0]['content'] }}{% if enable_thinking %}<think>{% endif %}", ""),
    ],
)
def test_a_template_that_takes_no_prompt_or_thinks_first_has_a_reason(
    template: str, reason: str, tmp_path: Path, model: Any
) -> None:
    model.tokenizer.chat_template = template
    queries = [GenerateQuery("it was", words, 3, chat=True) for words in (LETTERS, ())]
    answer, reply = answers(model, queries, tmp_path / "s")
    assert reason in answer.missing_reason
    assert bool(reason) == bool(answer.missing_reason)
    if "think" in template:  # a free reply may think
        assert reply.missing_reason == ""
    assert any("without thinking" in note for note in model.prompt_notes) == ("enable_thinking" in template)
