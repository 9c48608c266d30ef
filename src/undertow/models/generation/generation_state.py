"""From logits to answers: choose labels, and generate text under constraints.

    logits of a step   ->  the allowed tokens  ->  the most probable, or a sample  ->  the next state of the constraint

The family computes the logits: from a causal network's tree, or from a decoder's rows.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.models.base import PAPER, UnsupportedQueryError
from undertow.models.generation.constraints import (
    END,
    AnyText,
    Constraint,
    LabelTrie,
    PassageSpan,
    PassageTokens,
    SpanSearch,
    greedy_label,
    label_nats,
)
from undertow.models.generation.prompt_encoder import EncodedPrompt, Passage, PromptEncoder
from undertow.types import (
    BEST_SPAN,
    PASSAGE_TOKENS,
    UNCONSTRAINED,
    Answer,
    ConstrainedGenerateQuery,
    MultipleChoiceQuery,
)

if TYPE_CHECKING:
    import torch

MAX_SEQUENCES = 64
"""Sequences or spans of one forward pass, at most."""
Nats = dict[tuple[int, ...], dict[int, float]]
"""Log-probabilities of the next tokens and `END`, by path: prompt and generated tokens."""
Open = tuple[int, tuple[int, ...], tuple[int, ...]]
"""An open span: index of its prompt in the pack, its tokens, and the allowed next tokens."""


def sort_of(prompt: EncodedPrompt) -> str:
    """How a prompt is decoded: `choice`, `writing` or `search`."""
    if prompt.trie is not None:
        return "choice"
    return "search" if query_of(prompt).constraint == BEST_SPAN else "writing"


def query_of(prompt: EncodedPrompt) -> ConstrainedGenerateQuery:
    """The query of a prompt for constrained generation."""
    if not isinstance(prompt.query, ConstrainedGenerateQuery):
        raise TypeError("a multiple choice query has no constraint")
    return prompt.query


def passage_of(prompt: EncodedPrompt) -> Passage:
    """The passage of a prompt for constrained generation."""
    if prompt.passage is None:
        raise TypeError("a multiple choice query has no passage")
    return prompt.passage


@dataclass(frozen=True, slots=True)
class Stops:
    """Tokens that end a generated answer.

    Attributes:
        ends: the model's own end tokens.
        prompt_encoder: knows which tokens break a line.
    """

    ends: frozenset[int]
    prompt_encoder: PromptEncoder

    def end_tokens(self, query: ConstrainedGenerateQuery) -> frozenset[int]:
        """Tokens that end the answer and are not part of it."""
        return self.ends | self.prompt_encoder.line_breaks if query.line_ends else self.ends

    def last(self, query: ConstrainedGenerateQuery) -> frozenset[int]:
        """Tokens that end the answer and are part of it."""
        return self.prompt_encoder.line_ends if query.line_ends else frozenset()


# Choices.


def reads_of(pack: Sequence[EncodedPrompt]) -> dict[tuple[int, ...], list[int]]:
    """Tokens to read after each path, for all choices of a pack."""
    reads: dict[tuple[int, ...], set[int]] = {}
    for prompt in pack:
        for prefix in prompt.prefixes:
            state: LabelTrie = prompt.trie or LabelTrie()
            for token in prefix:
                state = state.children[token]
            reads.setdefault((*prompt.tokens, *prefix), set()).update(state.children)
    return {path: sorted(tokens) for path, tokens in reads.items()}


def nexts(
    logits: torch.Tensor, reads: Sequence[tuple[tuple[int, ...], int, Sequence[int]]], ends: frozenset[int]
) -> Nats:
    """Log-probabilities of some tokens, and of an end, by path.

    Args:
        logits: [row, vocabulary].
        reads: path, row, and the tokens to read there.
        ends: tokens that end the answer.
    """
    import torch

    norms = logits.logsumexp(-1)
    end = end_nats(logits, norms, ends).tolist()
    flat = [(row, token) for _, row, tokens in reads for token in tokens]
    at = torch.tensor(flat, device=logits.device, dtype=torch.int64).reshape(-1, 2)
    values = iter((logits[at[:, 0], at[:, 1]] - norms[at[:, 0]]).double().tolist())
    return {path: {token: next(values) for token in tokens} | {END: end[row]} for path, row, tokens in reads}


def end_nats(logits: torch.Tensor, norms: torch.Tensor, ends: frozenset[int]) -> torch.Tensor:
    """Log-probability of the end, summed over all end tokens [row]."""
    import torch

    if not ends:
        return torch.full_like(norms, -torch.inf).double()
    return (logits[:, sorted(ends)].logsumexp(-1) - norms).double()


def choose_label(prompt: EncodedPrompt, nats: Nats, tokenizer: Any, protocol: str) -> Answer | UnsupportedQueryError:
    """The greedily decoded label and the log-probabilities of all; under protocol `paper` it may be part of a label."""
    trie, query = prompt.trie, prompt.query
    if trie is None or not isinstance(query, MultipleChoiceQuery):
        raise TypeError("the query is not a multiple choice")
    by_prefix = {prefix: nats[*prompt.tokens, *prefix] for prefix in prompt.prefixes}
    values = label_nats(trie, by_prefix)
    if any(math.isnan(value) or value == math.inf for value in values):
        return UnsupportedQueryError("the model gave a probability that is not a number")
    claimed = sum(math.exp(by_prefix[()][token]) for token in trie.children)
    written, label = greedy_label(trie, by_prefix, ends_early=protocol == PAPER)
    text = tokenizer.decode(list(written)) if label is None else query.labels[label]
    return Answer(tuple(values), max(0.0, 1.0 - claimed), text=text.strip(), n_dropped_shots=prompt.n_dropped)


# Search.


def span_nexts(
    pack: Sequence[EncodedPrompt], wanted: Sequence[Open], logits: torch.Tensor, stops: Stops
) -> list[dict[int, float]]:
    """Log-probabilities after each span, from the logits there [span, vocabulary]."""
    norms = logits.logsumexp(-1)
    by_span = []
    for row, (at, written, allowed) in enumerate(wanted):
        ends, last = stops.end_tokens(query_of(pack[at])), stops.last(query_of(pack[at]))
        if last.intersection(written[-1:]):
            by_span.append(dict.fromkeys(allowed, -math.inf) | {END: 0.0})
            continue
        nats = dict(zip(allowed, (logits[row, list(allowed)] - norms[row]).double().tolist(), strict=True))
        nats |= dict.fromkeys(ends.intersection(allowed), -math.inf)  # an end token is not part of a span
        end = end_nats(logits[row : row + 1], norms[row : row + 1], ends)
        by_span.append(nats | {END: float(end[0])})
    return by_span


def search_spans(
    pack: Sequence[EncodedPrompt], expand: Callable[[Sequence[Open]], Sequence[Mapping[int, float]]]
) -> dict[int, Answer | UnsupportedQueryError]:
    """The most probable span of each passage, by index of the prompt; all searches of a pack run together.

    Args:
        pack: prompts.
        expand: returns log-probabilities after each span; the first call is for the empty spans.
    """
    searches = [SpanSearch.from_passage(passage_of(prompt).tokens) for prompt in pack]
    while True:
        share = max(1, MAX_SEQUENCES // max(1, sum(search.running for search in searches)))
        open_ones = [(at, *one) for at, search in enumerate(searches) for one in search.next_spans(share)]
        if not open_ones:
            break
        next_nats = expand([(at, written, state.allowed) for at, written, state in open_ones])
        for (at, written, _), nats in zip(open_ones, next_nats, strict=True):
            searches[at].extend(written, nats)
    return {prompt.place: _span_answer(prompt, search) for prompt, search in zip(pack, searches, strict=True)}


def _span_answer(prompt: EncodedPrompt, search: SpanSearch) -> Answer | UnsupportedQueryError:
    if not search.best:
        return UnsupportedQueryError("the model gave a probability that is not a number")
    text = _cut_at_line_break(prompt, passage_of(prompt).text_of_span(search.best))
    return Answer((search.best_nats,), math.nan, text=text, n_dropped_shots=prompt.n_dropped)


# Writing.


def _cut_at_line_break(prompt: EncodedPrompt, text: str) -> str:
    """The text, up to a line break if that ends it."""
    return re.split("[\r\n]", text, maxsplit=1)[0] if query_of(prompt).line_ends else text


@dataclass(slots=True)
class GenerationState:
    """The state of one generated answer.

    Attributes:
        prompt: the prompt.
        state: state of the constraint.
        draws: random generator of a sampled answer.
        tokens, nats: tokens so far, and their log-probability.
        done: whether the answer has ended.
    """

    prompt: EncodedPrompt
    state: Constraint
    draws: np.random.Generator
    tokens: list[int] = field(default_factory=list)
    nats: float = 0.0
    done: bool = False

    @classmethod
    def from_prompt(cls, prompt: EncodedPrompt) -> GenerationState:
        """Start an answer."""
        query, passage = query_of(prompt), passage_of(prompt).tokens
        state: Constraint = AnyText()
        if query.constraint != UNCONSTRAINED:
            state = (
                PassageTokens.from_passage(passage)
                if query.constraint == PASSAGE_TOKENS
                else PassageSpan.from_passage(passage)
            )
        # The seed depends on the query only, not on the batch.
        seed_digest = hashlib.sha256(f"{query.seed}\n{query.display_text()}".encode("utf-8", "replace")).digest()
        return cls(prompt, state, np.random.default_rng(list(seed_digest)))

    @property
    def query(self) -> ConstrainedGenerateQuery:
        """The query."""
        return query_of(self.prompt)

    def advance(self, logits: torch.Tensor, norm: float, ends: frozenset[int]) -> None:
        """Choose the next token or the end from the logits of one step [vocabulary]."""
        chosen = self._sample(logits, ends) if self.query.temperature else self._most_probable(logits, ends)
        if chosen in ends or chosen == END:
            nats = float(logits[sorted(ends)].logsumexp(-1)) if ends else -math.inf
            self.done = True
        else:
            nats = float(logits[chosen])
            self.tokens.append(chosen)
            self.state = self.state.after(chosen)
            spent = len(self.tokens) >= self.prompt.max_tokens
            self.done = spent or (self.state.allowed is not None and not self.state.allowed)
        self.nats += nats - norm

    def _most_probable(self, logits: torch.Tensor, ends: frozenset[int]) -> int:
        """The most probable allowed token; all end tokens count as one."""
        import torch

        tokens = self._tokens(ends)
        if tokens is None:
            others = logits.clone()
            others[sorted(ends)] = -torch.inf
            best = int(others.argmax())
        elif tokens:
            best = tokens[int(logits[tokens].argmax())]
        else:
            return END
        if not self.state.may_end or not ends:
            return best
        return END if float(logits[sorted(ends)].logsumexp(-1)) > float(logits[best]) else best

    def _sample(self, logits: torch.Tensor, ends: frozenset[int]) -> int:
        """Sample from the `top_k` most probable allowed tokens at the temperature."""
        tokens = self._tokens(frozenset() if self.state.may_end else ends)
        if tokens is not None and self.state.may_end:
            tokens = sorted({*tokens, *ends})
        if tokens == []:
            return END
        among = logits if tokens is None else logits[tokens]
        n_kept = min(self.query.top_k or len(among), len(among))
        values, places = among.double().topk(n_kept)
        shares = (values / self.query.temperature).softmax(-1).cpu().numpy()
        place = int(np.searchsorted(np.cumsum(shares), self.draws.random() * shares.sum(), side="right"))
        chosen = int(places[min(place, n_kept - 1)])
        return chosen if tokens is None else tokens[chosen]

    def _tokens(self, without: frozenset[int]) -> list[int] | None:
        """Allowed tokens without these; None for all."""
        allowed = self.state.allowed
        return None if allowed is None else [token for token in allowed if token not in without]

    def answer(self, tokenizer: Any) -> Answer | UnsupportedQueryError:
        """The answer."""
        if math.isnan(self.nats):
            return UnsupportedQueryError("the model gave a probability that is not a number")
        if isinstance(self.state, PassageSpan) and self.tokens:
            text = passage_of(self.prompt).text_of_span(tuple(self.tokens))
        else:
            text = tokenizer.decode(self.tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        text = _cut_at_line_break(self.prompt, text)
        return Answer((self.nats,), math.nan, text=text, n_dropped_shots=self.prompt.n_dropped)


def decode_step(sequences: Sequence[GenerationState], logits: torch.Tensor, stops: Stops) -> None:
    """Choose the next token of each answer from the logits of a step [sequence, vocabulary]."""
    norms = logits.logsumexp(-1)
    for sequence, row, norm in zip(sequences, logits, norms.tolist(), strict=True):
        sequence.advance(row, norm, stops.end_tokens(sequence.query))
        # A token may hold text before its line break.
        sequence.done |= sequence.tokens[-1:] != [] and sequence.tokens[-1] in stops.last(sequence.query)


def forced_generate_kwargs(sequences: Sequence[GenerationState], stops: Stops) -> dict[str, Any]:
    """Keywords of the network's `generate` that force the tokens chosen here, one row per sequence."""
    import torch
    from transformers import GenerationConfig, LogitsProcessorList

    end = min(stops.ends, default=0)

    def choose(_: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        going = [at for at, sequence in enumerate(sequences) if not sequence.done]
        decode_step([sequences[at] for at in going], logits.float()[going], stops)
        forced = torch.full_like(logits, -torch.inf)
        for at, sequence in enumerate(sequences):
            forced[at, end if sequence.done else sequence.tokens[-1]] = 0.0
        return forced

    config = GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=max(sequence.prompt.max_tokens for sequence in sequences),
        pad_token_id=end,
        eos_token_id=[end] if stops.ends else None,
    )
    return {"generation_config": config, "logits_processor": LogitsProcessorList([choose])}
