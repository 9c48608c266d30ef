"""One generated answer, token by token: the constraint, the choice of the next token, and what is recorded at each step.

logits of a step   ->  the allowed tokens  ->  the most probable, or a sample  ->  the next state of the constraint
                   ->  the recorder: probability of the options' tokens
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.models.backend.execution import in_top_k
from undertow.models.base import NOT_A_NUMBER, Outcome, UnsupportedQueryError, sampling_seed
from undertow.models.generation.constraints import END, PassageSpan, TokenSet
from undertow.models.generation.prompt_encoder import EncodedPrompt
from undertow.models.generation.step_readout import Step, answer_of
from undertow.models.tokens.option_tokens import Vocabulary
from undertow.types import SPAN, UNCONSTRAINED, Answer, ConstrainedGenerateQuery, Floats, GeneratedQuery, GenerateQuery

if TYPE_CHECKING:
    import torch


@dataclass
class Stops:
    """Tokens that end a generated answer: the model's own, and line breaks where a query ends with its line."""

    ends: frozenset[int]
    vocabulary: Vocabulary

    @cached_property
    def _ends_and_breaks(self) -> frozenset[int]:
        return self.ends | self.vocabulary.line_breaks

    def end_tokens(self, query: GeneratedQuery) -> frozenset[int]:
        """Tokens that end the answer and are not part of it."""
        return self._ends_and_breaks if _line_ends(query) else self.ends

    def last_tokens(self, query: GeneratedQuery) -> frozenset[int]:
        """Tokens that end the answer and are part of it: text before a line break."""
        return self.vocabulary.line_ends if _line_ends(query) else frozenset()


def _line_ends(query: GeneratedQuery) -> bool:
    return isinstance(query, ConstrainedGenerateQuery) and query.line_ends


def end_logits(logits: torch.Tensor, ends: frozenset[int]) -> torch.Tensor:
    """Logit of an end, summed over all end tokens [row]."""
    import torch

    return logits[:, sorted(ends)].logsumexp(-1) if ends else torch.full_like(logits[:, 0], -torch.inf)


class StepRecorder:
    """Records, at every step of some answers, the probability of the options' tokens.

    Attributes:
        tokens: the tokens of each answer's options, padded [answer, token].
        top: how many most probable tokens count at all; 0 for all of them.
    """

    def __init__(self, prompts: Sequence[EncodedPrompt], top: int, device: Any) -> None:
        import torch

        tokens = ([token for ids in prompt.options.ids for token in ids] for prompt in prompts)
        rows = [torch.tensor(own, dtype=torch.int64) for own in tokens]
        self.tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
        self.top = top

    def probs(self, logits: torch.Tensor, norms: torch.Tensor, rows: Sequence[int]) -> Floats:
        """Probabilities at one step of the answers `rows`, from their logits and normalisers [row, token]."""
        tokens = self.tokens if len(rows) == len(self.tokens) else self.tokens[list(rows)]
        probs = (logits.gather(1, tokens) - norms[:, None]).exp()
        if self.top:
            probs = probs.masked_fill(~in_top_k(logits, tokens, self.top), 0.0)
        recorded: Floats = probs.double().cpu().numpy()
        return recorded


@dataclass(slots=True)
class GenerationState:
    """The state of one generated answer.

    Attributes:
        number: index among the answers that are generated together.
        state: state of the constraint.
        draws: random generator of a sampled answer.
        tokens, nats: tokens so far, and their log-probability.
        probs: what the recorder saw at each of them.
        chain_probs: probability of each spelling of several tokens at the places that count [place][chain].
    """

    prompt: EncodedPrompt
    number: int
    state: TokenSet | PassageSpan
    draws: np.random.Generator | None
    tokens: list[int] = field(default_factory=list)
    nats: float = 0.0
    probs: list[Floats] = field(default_factory=list)
    chain_probs: dict[int, list[float]] = field(default_factory=dict)
    done: bool = False

    @classmethod
    def from_prompt(cls, prompt: EncodedPrompt, number: int) -> GenerationState:
        """Start an answer."""
        query, constraint = prompt.query, getattr(prompt.query, "constraint", UNCONSTRAINED)
        state: TokenSet | PassageSpan = TokenSet()
        if constraint != UNCONSTRAINED:
            kind = PassageSpan if constraint == SPAN else TokenSet
            state = kind.from_passage(prompt.passage.tokens)
        if not isinstance(query, ConstrainedGenerateQuery) or not query.temperature:
            return cls(prompt, number, state, None)
        return cls(prompt, number, state, np.random.default_rng(list(sampling_seed(query))))

    def advance(self, logits: torch.Tensor, best: int, norm: float, end_logit: float, ends: frozenset[int]) -> None:
        """Choose the next token or the end from the logits of a step [vocabulary].

        `best` is the most probable token, `norm` the logarithm of the sum of their exponentials, and `end_logit` that of all end tokens.
        """
        query = self.prompt.query
        if isinstance(query, GenerateQuery):
            chosen = best  # as in the network's own greedy search, end tokens compete one by one
        elif isinstance(query, ConstrainedGenerateQuery) and self.draws is not None:
            chosen = self._sample(query, self.draws, logits, ends)
        else:
            allowed = None if self.state.allowed is None else [one for one in self.state.allowed if one not in ends]
            if allowed:
                best = allowed[int(logits[allowed].argmax())]
            # All end tokens count as one.
            ends_here = allowed == [] or (self.state.may_end and end_logit > float(logits[best]))
            chosen = END if ends_here else best
        ended = chosen in ends or chosen == END
        if not isinstance(query, GenerateQuery):
            self.nats += (end_logit if ended else float(logits[chosen])) - norm
        if not ended:
            self.tokens.append(chosen)
            self.state = self.state.after(chosen)
        spent = len(self.tokens) >= self.prompt.max_tokens
        self.done = ended or spent or (self.state.allowed is not None and not self.state.allowed)

    def _sample(
        self, query: ConstrainedGenerateQuery, draws: np.random.Generator, logits: torch.Tensor, ends: frozenset[int]
    ) -> int:
        """Sample from the `top_k` most probable allowed tokens at the temperature."""
        tokens: list[int] | None = None
        if self.state.allowed is not None:
            allowed = set(self.state.allowed)
            tokens = sorted(allowed | ends if self.state.may_end else allowed - ends)
            if not tokens:
                return END
        among = logits if tokens is None else logits[tokens]
        n_kept = min(query.top_k or len(among), len(among))
        values, places = among.double().topk(n_kept)
        shares = (values / query.temperature).softmax(-1).cpu().numpy()
        place = int(np.searchsorted(np.cumsum(shares), draws.random() * shares.sum(), side="right"))
        chosen = int(places[min(place, n_kept - 1)])
        return chosen if tokens is None else tokens[chosen]

    def answer(self, tokenizer: Any, vocabulary: Vocabulary) -> Outcome:
        """The answer."""
        text = tokenizer.decode(self.tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        query = self.prompt.query
        if isinstance(query, GenerateQuery):
            cut_at_tokens = len(self.tokens) if len(self.tokens) >= self.prompt.max_tokens else 0
            return replace(answer_of(query, self.steps(vocabulary), text), cut_at_tokens=cut_at_tokens)
        if math.isnan(self.nats):
            return UnsupportedQueryError(NOT_A_NUMBER)
        if isinstance(self.state, PassageSpan) and self.tokens:
            text = self.prompt.passage.text_of_span(self.tokens)
        return written_answer(self.prompt, self.nats, text)

    def steps(self, vocabulary: Vocabulary) -> list[Step]:
        """Each token with the probability of each option; NaN for an option that cannot be read.

        An option is less what a longer one that begins with it has: *her* is not *herself*.
        """
        options = self.prompt.options
        starts = np.cumsum([0, *map(len, options.ids)])
        steps = []
        for at, (token, probs) in enumerate(zip(self.tokens, self.probs, strict=True)):
            sums = [float(probs[start:end].sum()) if end > start else math.nan for start, end in pairwise(starts)]
            for chain, prob in zip(options.chains, self.chain_probs.get(at, ()), strict=False):
                sums[chain.option] = prob + (0.0 if math.isnan(sums[chain.option]) else sums[chain.option])
            for chain, prob in zip(options.chains, self.chain_probs.get(at, ()), strict=False):
                if chain.inside >= 0:
                    sums[chain.inside] = max(sums[chain.inside] - prob, 0.0)
            steps.append(Step(vocabulary.text_of(token), tuple(sums), spells=options.size_at(self.tokens, at)))
        return steps


def written_answer(prompt: EncodedPrompt, nats: float, text: str) -> Answer:
    """An answer with one log-probability, its own; up to a line break if that ends it."""
    if _line_ends(prompt.query):
        text = re.split("[\r\n]", text, maxsplit=1)[0]
    return Answer((nats,), math.nan, text=text, n_dropped_shots=prompt.n_dropped_shots)


def decode_step(
    states: Sequence[GenerationState], logits: torch.Tensor, stops: Stops, recorder: StepRecorder | None
) -> None:
    """Choose the next token of each answer from the logits of a step [answer, vocabulary]."""
    norms = logits.logsumexp(-1)
    best, ends = logits.argmax(-1).tolist(), [stops.end_tokens(state.prompt.query) for state in states]
    ends_at = {own: end_logits(logits, own).tolist() for own in set(ends)}
    probs = recorder.probs(logits, norms, [state.number for state in states]) if recorder else None
    for row, (state, norm) in enumerate(zip(states, norms.tolist(), strict=True)):
        n_before = len(state.tokens)
        state.advance(logits[row], best[row], norm, ends_at[ends[row]][row], ends[row])
        if len(state.tokens) > n_before:
            state.done |= state.tokens[-1] in stops.last_tokens(state.prompt.query)
            if probs is not None:
                state.probs.append(probs[row])
