"""Texts read whole: the network itself, one forward for each option's whole sentence, or for a padded batch of them.

What the papers do, one text and one call, and what a script does that has outgrown that. Knows torch and a network of transformers;
shares nothing with the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ONE = 1


def nats_of_continuations(model: Any, pairs: Sequence[tuple[str, str]], batch_size: int) -> list[float]:
    """Log-probability of each continuation after its context, in nats, in the order of the pairs [pair].

    Args:
        model: its network and tokenizer.
        pairs: (context, continuation); the continuation is what comes after the tokens that the context alone has.
        batch_size: texts of one forward, sorted by length, so that little is padding; 1 for one after another, as they come.
    """
    tokens = [model.tokenizer(context + continuation)["input_ids"] for context, continuation in pairs]
    starts = [len(model.tokenizer(context)["input_ids"]) for context, _ in pairs]
    order = list(range(len(pairs)))
    if batch_size > ONE:
        order.sort(key=lambda place: len(tokens[place]))
    nats = [0.0] * len(pairs)
    for first in range(0, len(order), batch_size):
        places = order[first : first + batch_size]
        found = _read(model, [tokens[place] for place in places], [starts[place] for place in places])
        for place, one in zip(places, found, strict=True):
            nats[place] = one
    return nats


def _read(model: Any, texts: Sequence[Sequence[int]], starts: Sequence[int]) -> list[float]:
    """One forward. Logits after a token are of the next one: those at start - 1 read the token at start."""
    import torch

    longest = max(map(len, texts))
    fed = torch.zeros(len(texts), longest, dtype=torch.int64)
    sees = torch.zeros(len(texts), longest, dtype=torch.int64)
    for row, tokens in enumerate(texts):
        fed[row, : len(tokens)] = torch.tensor(tokens)
        sees[row, : len(tokens)] = 1
    with torch.inference_mode():
        padded = {"attention_mask": sees} if len(texts) > ONE else {}
        logits = model.network(input_ids=fed, use_cache=False, **padded).logits
        return [
            float(
                logits[row, start - 1 : len(tokens) - 1]
                .float()
                .log_softmax(-1)
                .gather(-1, fed[row, start : len(tokens), None])
                .sum()
            )
            for row, (tokens, start) in enumerate(zip(texts, starts, strict=True))
        ]
