"""Greedy answers step by step: those of a network's own search, with the listed words read off each step's logits.

Knows torch and a network of transformers; shares with the engine the texts of its tokens and the rule that makes an answer of steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gate import END, TIE_LOGITS, Written
from undertow.models.base import UnscorableError
from undertow.models.steps import Step, answer_of
from undertow.types import Answer, Generation

TOP = 5
"""The most probable tokens, among which ties are looked for."""


def written(answer: Answer, steps: Sequence[Step], ties: Sequence[tuple[str | None, ...]] = ()) -> Written:
    """An answer and the steps that made it, as they are compared."""
    probs = tuple(map(math.exp, answer.logprobs_nats))
    return Written(
        answer.text, probs, tuple(step.token for step in steps), tuple(step.probs for step in steps), tuple(ties)
    )


def tokens_of(model: Any, query: Generation) -> tuple[tuple[int, ...], ...]:
    """The tokens that each option's word may be [option][token]."""
    tokens = model.decoder.vocabulary.of_options(query.options)
    if isinstance(tokens, UnscorableError):
        raise tokens
    ids: tuple[tuple[int, ...], ...] = tokens.ids
    return ids


def generated(model: Any, query: Generation, words: Sequence[tuple[int, ...]]) -> Written:
    """One prompt, answered by the network's own greedy search.

    Args:
        model: its network, tokenizer, vocabulary and the tokens that end an answer.
        query: the prompt.
        words: as `tokens_of` gives them.
    """
    import torch

    ends = sorted(model.decoder.ends)
    fed = model.tokenizer(query.prompt, return_tensors="pt")
    out = model.network.generate(
        **fed,
        do_sample=False,
        max_new_tokens=query.max_tokens,
        output_logits=True,
        return_dict_in_generate=True,
        eos_token_id=ends,
        pad_token_id=ends[0],
    )
    chosen: list[int] = out.sequences[0, fed["input_ids"].shape[1] :].tolist()
    tokens = [token for token in chosen if token not in ends]
    logits = torch.cat(out.logits).float()  # [step, vocabulary]
    probs = logits.softmax(-1)
    read = [probs[:, list(ids)].sum(-1).tolist() if ids else [math.nan] * len(chosen) for ids in words]
    texts = [model.decoder.vocabulary.text_of(token) for token in tokens]  # tokens are compared by one name for both
    steps = [Step(text, at) for text, at in zip(texts, zip(*read, strict=True), strict=False)]
    return written(answer_of(query, steps, model.tokenizer.decode(tokens)), steps, _ties(model, logits))


def _ties(model: Any, logits: Any) -> list[tuple[str | None, ...]]:
    """Tokens that rounding might have put first, at each step."""
    values, tokens = logits.topk(TOP)
    near = (values >= values[:, :1] - TIE_LOGITS).tolist()
    return [
        tuple(
            END if token in model.decoder.ends else model.decoder.vocabulary.text_of(token)
            for token, tied in zip(row, marks, strict=True)
            if tied
        )
        for row, marks in zip(tokens.tolist(), near, strict=True)
    ]
