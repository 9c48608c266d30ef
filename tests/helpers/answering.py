"""Ask models in tests, by way of a store or without one, and compare what they answer."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undertow._folders import cache_file
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import run_queries
from undertow.models.base import ModelHandle, ModelRequest, TokenBatch
from undertow.models.families import causal, extractive_qa, masked, seq2seq, token_classifier, toy
from undertow.types import EXACT, GENERATION, PAPER, PROMPT, Answer, ClozeQuery, Option, Query

TOLERANCE_NATS = 1e-4
CAPABILITIES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    family.MODEL.FAMILY: family.MODEL.CAPABILITIES
    for family in (causal, extractive_qa, masked, seq2seq, token_classifier)
}


def found_as(model: Any) -> ModelHandle:
    """A loaded model as its family finds it."""
    return ModelHandle(model.identity, lambda: model, capabilities=CAPABILITIES[model.identity.family])


def answers_only(request: ModelRequest) -> ModelHandle:
    """The toy, as a server would offer it: it answers prompts, and shows no tokens."""
    found = toy.resolve(dataclasses.replace(request, name="toy"))
    assert found is not None
    card = dataclasses.replace(found.identity, name=request.name, scoring_method=PROMPT)
    return ModelHandle(card, found.open, {GENERATION: (EXACT, PAPER)})


def opened(family: Any, folder: str, dtype: str = "float32", device: str = "cpu", **settings: Any) -> Any:
    """The model in a folder, as its family opens it."""
    found = family.resolve(ModelRequest(folder, dtype=dtype, device=device, settings=settings))
    assert found is not None
    return found.open()


def answers(model: Any, queries: Sequence[Query], store: Path, protocol: str = EXACT) -> tuple[Answer, ...]:
    """Answers by way of a store."""
    with AnswerCache(store) as kept:
        return run_queries(found_as(model), list(queries), kept, protocol, lambda done, total: None).scores.answers


def n_stored() -> int:
    """Number of answers in the cache."""
    if not cache_file().is_file():
        return 0
    with AnswerCache(cache_file()) as store:
        return sum(shelf.n_answers for shelf in store.summary())


def told(model: Any, queries: Sequence[Query], protocol: str = EXACT) -> list[Answer]:
    """Answers of a model that answers by itself, in order, without a store; an error is a missing answer with its reason."""
    found: dict[int, Answer] = {}
    for some in model.answer(queries, protocol):
        assert not found.keys() & some.keys()
        found |= {
            place: answer if isinstance(answer, Answer) else Answer.missing(str(answer))
            for place, answer in some.items()
        }
    return [found[place] for place in range(len(queries))]


def alike(some: Sequence[Answer], others: Sequence[Answer], nats: float = TOLERANCE_NATS) -> None:
    """The same answers, but for the rounding of their log-probabilities."""
    for one, other in zip(some, others, strict=True):
        for name in ("text", "missing_reason", "n_dropped_shots"):
            assert getattr(one, name) == getattr(other, name)
        assert one.logprobs_nats == pytest.approx(other.logprobs_nats, abs=nats, nan_ok=True)
        assert one.other_prob == pytest.approx(other.other_prob, abs=nats, nan_ok=True)


def blank(before: str, after: str, *words: str) -> ClozeQuery:
    """Each word a group of its own."""
    return ClozeQuery((before, after), tuple(Option(word, (word,)) for word in words))


def some_batch(model: Any, n_sources: int = 0) -> TokenBatch:
    """Reads at random places of random texts, behind random sources where the model has an encoder."""
    generator = np.random.default_rng(1)
    n_rows, length, n_reads = 6, 7, 40
    tokens = generator.integers(5, 100, (n_rows, length))
    rows, positions, reads = (generator.integers(n, size=n_reads) for n in (n_rows, length, len(model.tokenizer)))
    if not n_sources:
        return TokenBatch(tokens, rows, positions, reads)
    sources = generator.integers(5, 100, (n_sources, 11))
    return TokenBatch(tokens, rows, positions, reads, sources, generator.integers(n_sources, size=n_rows))


def whole(model: Any, batch: TokenBatch) -> Any:
    """What the whole forward says of the reads of a batch [read]."""
    import torch

    tokens = torch.from_numpy(batch.tokens)
    fed = {"input_ids": tokens}
    if model.network.config.is_encoder_decoder:
        fed = {"input_ids": torch.from_numpy(batch.sources[batch.source_of_row]), "decoder_input_ids": tokens}
    with torch.inference_mode():
        logprobs = model.network(**fed).logits.double().log_softmax(-1).numpy()
    return logprobs[batch.read_rows, batch.read_positions, batch.read_tokens]


def check_the_head(model: Any, batch: TokenBatch, body: Any) -> None:
    """Read apart, it says of single rows what the network says of whole texts, and the body answers for itself again."""
    assert model.head_apart
    expected = whole(model, batch)
    assert model.read_batch(batch) == pytest.approx(expected, abs=TOLERANCE_NATS)
    top = model.read_top(batch, 30)
    among = np.isfinite(top)
    assert 0 < among.sum() < len(top)
    assert top[among] == pytest.approx(expected[among], abs=TOLERANCE_NATS)
    assert "forward" not in vars(body)


def other_head(head: Any, name: str) -> Any:
    """A head that needs the text: it adds each row's neighbour, or refuses a text that is too short."""
    import torch

    class Other(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = head

        def __getattr__(self, name: str) -> Any:
            return super().__getattr__(name) if name == "head" else getattr(self.head, name)

        def forward(self, hidden: Any) -> Any:
            if name == "neighbours":
                return self.head(hidden + hidden.roll(1, dims=1))
            if hidden.shape[1] < 5:
                raise ValueError("too short")
            return self.head(hidden)

    return Other()


@contextmanager
def encoder_inputs(model: Any) -> Iterator[list[tuple[int, ...]]]:
    """Every text that the encoder reads meanwhile."""
    seen: list[tuple[int, ...]] = []
    hook = model.network.get_encoder().register_forward_pre_hook(
        lambda _, arguments, keywords: seen.extend(map(tuple, keywords["input_ids"].tolist())), with_kwargs=True
    )
    try:
        yield seen
    finally:
        hook.remove()


def change_json(file: Path, **changed: Any) -> None:
    """Change what a JSON object in a file says; None takes a key away."""
    said = json.loads(file.read_text(encoding="utf-8")) | changed
    file.write_text(
        json.dumps({name: value for name, value in said.items() if name not in changed or value is not None}),
        encoding="utf-8",
    )
