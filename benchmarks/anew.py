"""Prompting each anew: the network reads every prompt whole, with a cache of its own, and decodes a label behind it.

Greedily along the trie of the labels' tokens, as in Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias
in Language" (Findings of EMNLP), section 3.2. Knows torch and a network of transformers; shares with the engine the trie alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from gate import Chosen
from undertow.models.constraints import END, Trie, best_of
from undertow.types import Choice


def labels_anew(model: Any, choices: Sequence[Choice], batch_size: int) -> list[Chosen]:
    """The labels, in the order of the choices.

    Args:
        model: its network, tokenizer and the tokens that end an answer.
        choices: without examples or chat, between whole labels.
        batch_size: of prompts that have one length; 1 for one after another.
    """
    coded: list[list[int]] = model.tokenizer([query.shown() for query in choices])["input_ids"]
    tries = {labels: _trie(model, labels) for labels in dict.fromkeys(query.labels for query in choices)}
    paths = [_LabelPath.of(tries[query.labels]) for query in choices]
    texts = [[*tokens, *path.written] for tokens, path in zip(coded, paths, strict=True)]
    for batch in _of_one_length(texts, batch_size):
        _decode_labels(model, [texts[place] for place in batch], [paths[place] for place in batch])
    return [path.chosen(query.labels) for query, path in zip(choices, paths, strict=True)]


def _trie(model: Any, labels: Sequence[str]) -> Trie:
    return Trie.of(model.tokenizer(list(labels), add_special_tokens=False)["input_ids"])


def _of_one_length(texts: Sequence[Sequence[int]], batch_size: int) -> Iterator[list[int]]:
    """Places of texts that are read together, at most so many."""
    by_length: dict[int, list[int]] = {}
    for place, tokens in enumerate(texts):
        by_length.setdefault(len(tokens), []).append(place)
    for places in by_length.values():
        yield from (places[start : start + batch_size] for start in range(0, len(places), batch_size))


def _decode_labels(model: Any, texts: Sequence[Sequence[int]], paths: Sequence[_LabelPath]) -> None:
    """Texts of one length, and the most probable token that a label allows, step by step; what is forced needs no pass.

    Those that came equally far are fed together again, so that nothing is padded.
    """
    import torch

    ends = sorted(model.decoder.ends)
    waiting: list[tuple[Sequence[Sequence[int]], Sequence[_LabelPath], Any]] = [(texts, paths, None)]
    with torch.inference_mode():
        while waiting:
            fed, going, cache = waiting.pop()
            out = model.network(input_ids=torch.tensor(fed), past_key_values=cache, use_cache=True, logits_to_keep=1)
            own: dict[int, list[int]] = {}
            for row, (path, nats) in enumerate(zip(going, out.logits[:, -1].log_softmax(-1), strict=True)):
                n_read = len(path.written)
                path.go_on(_ways_nats(path, nats, ends))
                if not path.done:
                    own.setdefault(len(path.written) - n_read, []).append(row)
            for n_tokens, rows in own.items():
                left = [going[row] for row in rows]
                kept = deepcopy(out.past_key_values) if len(own) > 1 else out.past_key_values
                if len(rows) < len(going):
                    kept.batch_select_indices(torch.tensor(rows))
                waiting.append(([path.written[-n_tokens:] for path in left], left, kept))


def _ways_nats(path: _LabelPath, nats: Any, ends: Sequence[int]) -> dict[int, float]:
    """Log-probabilities of the tokens that a label allows next, and of its end."""
    allowed = list(path.state.allowed)
    ended = {END: float(nats[ends].logsumexp(-1))} if path.state.may_end else {}
    return dict(zip(allowed, nats[allowed].tolist(), strict=True)) | ended


@dataclass(slots=True)
class _LabelPath:
    """A way through the trie of the labels, as far as it was gone.

    Attributes:
        state: what may come next.
        written: the tokens so far.
        so_far_nats: their log-probability; NaN once one was forced, since no pass says how probable that was.
        nats: log-probabilities of labels that were looked at to their ends, by their places.
        gap_nats: by how much the tokens taken led where it was closest.
        done: whether a label is whole.
    """

    state: Trie
    written: tuple[int, ...] = ()
    so_far_nats: float = 0.0
    nats: dict[int, float] = field(default_factory=dict)
    gap_nats: float = math.inf
    done: bool = False

    @classmethod
    def of(cls, trie: Trie) -> _LabelPath:
        """At the first place with more than one way on."""
        path = cls(trie)
        path._follow()
        return path

    @property
    def ways(self) -> tuple[int, ...]:
        """What may come next, the end last."""
        return (*self.state.allowed, *([END] if self.state.may_end else []))

    def chosen(self, labels: Sequence[str]) -> Chosen:
        """The label that was come to."""
        if not self.done or self.state.label is None:
            raise ValueError("no label ends here")
        nats = tuple(self.nats.get(place, math.nan) for place in range(len(labels)))
        return Chosen(labels[self.state.label].strip(), nats, self.gap_nats)

    def go_on(self, nats: Mapping[int, float]) -> None:
        """Decide here, and go on to the next place with more than one way."""
        for way in self.ways:
            there = self.state if way == END else self.state.after(way)
            if there.label is not None and (way == END or not there.children):
                self.nats[there.label] = self.so_far_nats + nats[way]
        best, second = sorted((nats[way] for way in self.ways), reverse=True)[:2]
        self.gap_nats = min(self.gap_nats, best - second)
        taken = best_of(self.state, nats)
        self.so_far_nats += nats[taken]
        self._take(taken)
        self._follow()

    def _follow(self) -> None:
        while not self.done and len(self.ways) == 1:
            self.so_far_nats = math.nan
            self._take(self.ways[0])

    def _take(self, way: int) -> None:
        if way != END:
            self.written, self.state = (*self.written, way), self.state.after(way)
        self.done = way == END or not self.state.children
