"""Prompts answered from a tree of prompts say what one prompt at a time says, step by step, on every architecture."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers import answering
from helpers.answering import answers, change_json
from helpers.tiny_models import saved, tiny_gpt_neo
from undertow.errors import UndertowError
from undertow.models.base import PAPER_TOP
from undertow.models.families import causal
from undertow.models.generation import backends
from undertow.models.generation.prompt_encoder import encode_chat
from undertow.models.generation.step_readout import EMPTY
from undertow.types import EXACT, PAPER, GenerateQuery, Option, Query

TOLERANCE_NATS = 1e-3
WORDS = {"female": ["she", "her", "She"], "male": ["he", "him", "He"], "neutral": ["they", "They"]}


def options(words: dict[str, list[str]] = WORDS) -> tuple[Option, ...]:
    return tuple(Option(group, (word,)) for group, forms in words.items() for word in forms)


SINGLES = options({"one": ["a", "c"], "other": ["n", "s"]})
"""Single letters: tokens of any byte-level vocabulary."""


def prompts(n_tokens: int = 5, wanted: tuple[Option, ...] = SINGLES) -> list[Query]:
    """Prompts that share beginnings, of several lengths."""
    texts = [f"In {year}, _ was {what}." for year in (1801, 1953, 2001) for what in ("a child", "an adult", "a")]
    return [GenerateQuery(f"Fill in: {text} It is", wanted, n_tokens) for text in texts]


Network = Callable[[str], str]


opened = partial(answering.opened, causal)


@pytest.fixture
def model(network: Network) -> Any:
    """A llama, opened again, to be tampered with."""
    return opened(network("tiny_llama"))


def by_hand(model: Any, query: GenerateQuery, top: int = 0) -> tuple[str, list[float]]:
    """One prompt, no cache, all recomputed at each step: the text, and the mean or the step that counts, by option."""
    tokenizer, network = model.tokenizer, model.network
    ids = [query.options.index(option) for option in query.options]
    words = [option.fills[0] for option in query.options]
    spelled = {
        at: [token for token in range(len(tokenizer)) if tokenizer.decode([token]).strip() == words[at]] for at in ids
    }
    fed = tokenizer(query.prompt)["input_ids"]
    said: list[int] = []
    steps = []
    for _ in range(query.max_tokens):
        with torch.no_grad():
            logits = network(torch.tensor([fed + said]), use_cache=False).logits[0, -1].float()
        probs = logits.softmax(-1)
        if top:
            probs = probs * (logits >= logits.topk(top).values[-1])
        token = int(logits.argmax())
        if token in model.stops.ends:
            break
        steps.append([float(probs[spelled[at]].sum()) for at in ids])
        said.append(token)
    hits = [at for at, token in enumerate(said) if tokenizer.decode([token]).strip() in words]
    counted = [steps[hits[0]]] if len(hits) == 1 else steps
    return tokenizer.decode(said), np.mean(counted, axis=0).tolist()


@pytest.mark.parametrize(
    ("builder", "protocol", "in_tree"),
    [
        ("tiny_llama", EXACT, True),
        ("tiny_llama", PAPER, True),
        ("tiny_gpt2", EXACT, True),
        ("tiny_gemma2", PAPER, True),
        ("tiny_mamba", EXACT, False),
        ("tiny_mamba", PAPER, False),
    ],
)
def test_every_architecture_answers_as_one_prompt_at_a_time(
    builder: str, protocol: str, in_tree: bool, network: Network, tmp_path: Path
) -> None:
    model = opened(network(builder))
    queries = prompts()
    found = answers(model, queries, tmp_path / "s", protocol)
    assert (not model.refusal) == in_tree
    assert any("plain batches" in note for note in model.prompt_notes) == (not in_tree)
    for query, answer in zip(queries, found, strict=True):
        assert isinstance(query, GenerateQuery)
        text, probs = by_hand(model, query, PAPER_TOP if protocol == PAPER else 0)
        assert answer.text == text
        assert np.exp(answer.logprobs_nats) == pytest.approx(probs, abs=1e-4)
        assert answer.other_prob == pytest.approx(1 - sum(probs), abs=1e-4)


def test_answers_of_different_lengths_and_words_go_together(tmp_path: Path, model: Any) -> None:
    more = options({"one": ["b"], "other": ["d"]})
    queries = [*prompts(3), *prompts(6), *prompts(4, more)]
    found = answers(model, queries, tmp_path / "s")
    for query, answer in zip(queries, found, strict=True):
        assert isinstance(query, GenerateQuery)
        text, probs = by_hand(model, query)
        assert (answer.text, len(answer.logprobs_nats)) == (text, len(query.options))
        assert np.exp(answer.logprobs_nats) == pytest.approx(probs, abs=1e-4)


def test_an_answer_ends_with_its_end_and_an_empty_one_is_missing(tmp_path: Path, model: Any) -> None:
    with torch.no_grad():
        logits = model.network(
            torch.tensor([model.tokenizer("Fill in: In 1801, _ was a child. It is")["input_ids"]])
        ).logits
    model.stops.ends = frozenset({*model.stops.ends, int(logits[0, -1].argmax())})
    found = answers(model, prompts(6), tmp_path / "s")
    empty = [answer for answer in found if answer.missing_reason]
    assert empty
    assert {answer.missing_reason for answer in empty} == {EMPTY}
    for query, answer in zip(prompts(6), found, strict=True):
        assert isinstance(query, GenerateQuery)
        if not answer.missing_reason:
            assert answer.text == by_hand(model, query)[0]


def test_a_checkpoint_that_bends_its_distributions_is_read_straight(network: Network, tmp_path: Path) -> None:
    folder = shutil.copytree(network("tiny_llama"), tmp_path / "m")
    change_json(folder / "generation_config.json", repetition_penalty=5.0, min_new_tokens=4)
    bent = opened(str(folder))
    bent._refusal = "told so"
    straight = opened(network("tiny_llama"))
    for left, right in zip(
        answers(bent, prompts(), tmp_path / "a"), answers(straight, prompts(), tmp_path / "b"), strict=True
    ):
        assert left.text == right.text
        assert left.logprobs_nats == pytest.approx(right.logprobs_nats, abs=TOLERANCE_NATS)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (GenerateQuery("It is", SINGLES, 5, chat=True), "chat template"),
        (GenerateQuery("It is " * 40, SINGLES, 5), "64 tokens"),
        (GenerateQuery("It is", options({"x": [" "], "y": [" "]}), 5), "none of the words"),
        (GenerateQuery("", SINGLES, 5), "empty"),
    ],
    ids=["chat", "long", "words", "nothing"],
)
def test_what_cannot_be_asked_has_a_reason(query: GenerateQuery, reason: str, tmp_path: Path, model: Any) -> None:
    refused, asked = answers(model, [query, prompts()[0]], tmp_path / "s")
    assert reason in refused.missing_reason
    assert not asked.missing_reason


def test_a_word_that_cannot_be_read_is_missing_beside_the_others(tmp_path: Path, model: Any) -> None:
    queries = [GenerateQuery("It is", wanted, 3) for wanted in (SINGLES, (*SINGLES, Option("x", (" ",))))]
    alone, beside = answers(model, queries, tmp_path / "s")
    assert beside.logprobs_nats == pytest.approx((*alone.logprobs_nats, np.nan), nan_ok=True)


def test_a_chat_template_goes_around_the_prompt(tmp_path: Path, model: Any) -> None:
    template = "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}it:{% endif %}"
    model.tokenizer.chat_template = template
    chatted = [
        GenerateQuery(query.prompt, SINGLES, 5, chat=True) for query in prompts() if isinstance(query, GenerateQuery)
    ]
    written_out = [GenerateQuery(f"<s>user: {query.prompt}\nit:", SINGLES, 5) for query in chatted]
    as_chat, as_text = (answers(model, queries, tmp_path / "s") for queries in (chatted, written_out))
    assert as_chat == as_text
    assert model.facts["post_training"]


class _Masked:
    """A network whose mask is tampered with on its way in."""

    def __init__(self, network: Any, tamper: Callable[[Any], Any]) -> None:
        self._network, self._tamper = network, tamper

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def __call__(self, **inputs: Any) -> Any:
        return self._network(**inputs | {"attention_mask": self._tamper(inputs["attention_mask"])})


@pytest.mark.parametrize("tamper", [torch.zeros_like, lambda mask: mask.clone().fill_(0).triu_(1)], ids=["all", "none"])
def test_a_network_that_sees_other_than_it_is_told_is_found_out(
    tamper: Callable[[Any], Any], tmp_path: Path, model: Any
) -> None:
    model.tree.network = _Masked(model.network, tamper)
    assert "differently" in model._check_tree()


def test_a_window_in_places_of_the_cache_is_found_out_however_wide(tmp_path: Path) -> None:
    """GPT-Neo's local layers look back over places, not over a path; a pack is wider than their window."""
    model = opened(saved(tmp_path / "m", tiny_gpt_neo(2048)))
    network = model.network
    for block in network.transformer.h:
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


def test_a_template_that_asks_for_the_date_is_told_one_and_one_that_fails_has_a_reason(
    tmp_path: Path, model: Any
) -> None:
    model.tokenizer.chat_template = "{{ strftime_now('%d %b %Y') }} {{ messages[0]['content'] }}"
    (query,) = [GenerateQuery("it is", SINGLES, 3, chat=True)]
    asked = encode_chat(model.tokenizer, query.prompt)
    assert model.tokenizer.decode(asked) == "26 Jul 2024 it is"
    answers(model, [query], tmp_path / "s")
    assert any("writes a date into each prompt" in note for note in model.prompt_notes)
    model.tokenizer.chat_template = "{{ raise_exception('no user may speak') }}"
    (answer,) = answers(model, [GenerateQuery("it was", SINGLES, 3, chat=True)], tmp_path / "s")
    assert "cannot take the prompt (no user may speak)" in answer.missing_reason
