"""Multiple choice and constrained generation with an encoder-decoder, for many prompts at once.

    encoder   Task: What is it about? Text: ... </s>                    read once for all queries
    decoder   <pad>                  -> gender | race | political       the labels as texts of their own
              <pad> political        -> affiliation | end

Prompts of one length form a batch without padding. All prefixes of a label are read in one row, since a decoder looks back only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from undertow.models.backend.execution import oom_errors
from undertow.models.base import EXACT, BatchLimits, CostEstimate, Ints, UnsupportedQueryError
from undertow.models.generation.generation_state import (
    MAX_SEQUENCES,
    GenerationState,
    Nats,
    Open,
    Stops,
    choose_label,
    forced_generate_kwargs,
    nexts,
    reads_of,
    search_spans,
    sort_of,
    span_nexts,
)
from undertow.models.generation.prompt_encoder import EncodedPrompt, PromptEncoder
from undertow.models.tokens.chat_template import encode_chat
from undertow.types import Answer, ConstrainedGenerateQuery, MultipleChoiceQuery

if TYPE_CHECKING:
    import torch

Row = TypeVar("Row", bound=Sequence[Any])
Source = tuple[int, ...]


def batches_of(rows: Mapping[Source, Row], n_written: Callable[[Row], int], budget: int) -> list[list[Row]]:
    """Batches of rows whose encoder inputs have one length, the longest first [batch][row].

    Args:
        rows: queries of each encoder input.
        n_written: returns the maximum decoder tokens of a row.
        budget: tokens of encoder and decoder in a batch.
    """
    batches: list[list[Row]] = []
    n_before, most = 0, 0
    for source in sorted(rows, key=lambda source: (-len(source), source)):
        n_own = n_written(rows[source])
        has_room = bool(batches) and n_before == len(source)
        if not has_room or (len(batches[-1]) + 1) * (len(source) + max(most, n_own)) > budget:
            batches.append([])
            n_before, most = len(source), 0
        batches[-1].append(rows[source])
        most = max(most, n_own)
    return batches


@dataclass(slots=True)
class SourceEncoder(PromptEncoder):
    """Encodes prompts for an encoder; the answer is a text of its own, and each has the whole context.

    Attributes:
        frame: adds the mode's prefix and suffix to a prompt.
        n_given: number of forced decoder tokens before the answer.
    """

    frame: Callable[[str], str] = str
    n_given: int = 1

    def _encode_prompt(
        self, place: int, query: MultipleChoiceQuery | ConstrainedGenerateQuery
    ) -> EncodedPrompt | UnsupportedQueryError:
        """The query with as many of its last examples as fit."""
        for n_dropped in range(len(query.shots) + 1):
            text = self.frame("".join((*query.shots[n_dropped:], query.prompt)))
            tokens = encode_chat(self.tokenizer, text) if query.chat else tuple(self.tokens_of(text))
            if isinstance(tokens, UnsupportedQueryError):
                return tokens
            # A chat answer is a text of its own, too.
            whole = self._whole(place, replace(query, chat=True), (text, tokens), n_dropped)
            if isinstance(whole, UnsupportedQueryError):
                return whole
            if max(len(whole.tokens), self.n_given + whole.max_tokens) <= self.context_tokens:
                return replace(whole, query=query)
        return UnsupportedQueryError(
            f"the prompt or its answer is longer than the {self.context_tokens} tokens that the model reads, without any example"
        )


class EncoderDecoder(Protocol):
    """The interface of the network."""

    network: Any
    limits: BatchLimits

    def encode_sources(self, sources: Ints) -> torch.Tensor:
        """Encoder states of texts of one length [source, position, width]."""
        ...

    def logits_at(self, states: torch.Tensor, tokens: Ints, places: Ints) -> Iterator[torch.Tensor]:
        """Logits at some positions of the decoder's rows, in slices [place, vocabulary], in float32.

        Args:
            states: encoder states of each row [row, position, width].
            tokens: [row, position].
            places: flat positions, row x length + position [place].
        """
        ...

    def memory_bytes(self, budget_tokens: int) -> int:
        """Estimated memory of weights and a pass over this many tokens."""
        ...


@dataclass(slots=True)
class Seq2SeqDecoder:
    """Multiple choice and constrained generation with one encoder-decoder.

    Attributes:
        reader: the network.
        prompt_encoder: encodes prompts.
        given: forced decoder tokens before the answer.
        ends: tokens that end an answer.
    """

    reader: EncoderDecoder
    prompt_encoder: SourceEncoder
    given: tuple[int, ...]
    ends: frozenset[int]

    def answers(
        self, queries: Sequence[MultipleChoiceQuery | ConstrainedGenerateQuery], protocol: str = EXACT
    ) -> Iterator[Mapping[int, Answer | UnsupportedQueryError]]:
        """Answers by index, pack by pack; unsupported queries first."""
        prompts, refused = self.prompt_encoder.prompts(queries)
        if refused:
            yield refused
        for pack in self._packs(prompts):
            yield self._answer_pack(pack, protocol)

    def packs(self, queries: Sequence[MultipleChoiceQuery | ConstrainedGenerateQuery]) -> list[list[int]]:
        """Indices of the queries of each pack; unsupported ones first."""
        prompts, refused = self.prompt_encoder.prompts(queries)
        packs = [[prompt.place for row in pack for prompt in row] for pack in self._packs(prompts)]
        return [list(refused), *packs] if refused else packs

    def estimate_cost(self, queries: Sequence[MultipleChoiceQuery | ConstrainedGenerateQuery]) -> CostEstimate:
        """The estimated cost, from one timed pack."""
        prompts, _ = self.prompt_encoder.prompts(queries)
        packs = self._packs(prompts)
        sizes = [sum(len(row[0].tokens) + self._n_decoder_tokens(row) for row in pack) for pack in packs]
        seconds = 0.0
        if packs:
            timed = len(packs) // 2
            self._answer_pack(packs[timed])  # the first pass also sets up kernels and threads
            started = time.perf_counter()
            self._answer_pack(packs[timed])
            seconds = (time.perf_counter() - started) * sum(sizes) / sizes[timed]
        n_passes = sum(map(_n_passes, packs))
        return CostEstimate(sum(sizes), n_passes, seconds, self.reader.memory_bytes(max(sizes, default=1)))

    @property
    def stops(self) -> Stops:
        """Tokens that end a generated answer."""
        return Stops(self.ends, self.prompt_encoder)

    # Packs.

    def _packs(self, prompts: Sequence[EncodedPrompt]) -> list[list[list[EncodedPrompt]]]:
        """Prompts of one text in one row, rows of one length in a pack [pack][row][prompt]."""
        rows: dict[Source, list[EncodedPrompt]] = {}
        for prompt in prompts:
            rows.setdefault(prompt.tokens, []).append(prompt)
        return batches_of(rows, self._n_decoder_tokens, self.reader.limits.budget_tokens)

    def _n_decoder_tokens(self, row: Sequence[EncodedPrompt]) -> int:
        return sum(len(self.given) + prompt.own_tokens for prompt in row)

    def _answer_pack(
        self, pack: Sequence[Sequence[EncodedPrompt]], protocol: str = EXACT
    ) -> dict[int, Answer | UnsupportedQueryError]:
        import torch

        sorts: dict[str, list[EncodedPrompt]] = {"choice": [], "writing": [], "search": []}
        for prompt in (prompt for row in pack for prompt in row):
            sorts[sort_of(prompt)].append(prompt)
        with torch.inference_mode(), oom_errors():
            source_states = _SourceStates(
                {row[0].tokens: at for at, row in enumerate(pack)},
                self.reader.encode_sources(np.array([row[0].tokens for row in pack], dtype=np.int64)),
            )
            nats = self._nexts(sorts["choice"], source_states)
            answers = {
                prompt.place: choose_label(prompt, nats, self.prompt_encoder.tokenizer, protocol)
                for prompt in sorts["choice"]
            }
            sequences = [GenerationState.from_prompt(prompt) for prompt in sorts["writing"]]
            for start in range(0, len(sequences), MAX_SEQUENCES):
                self._write(sequences[start : start + MAX_SEQUENCES], source_states)
            answers |= {sequence.prompt.place: sequence.answer(self.prompt_encoder.tokenizer) for sequence in sequences}
            return answers | search_spans(sorts["search"], self._searching(sorts["search"], source_states))

    # Choices.

    def _nexts(self, prompts: Sequence[EncodedPrompt], source_states: _SourceStates) -> Nats:
        """Log-probabilities at every inner node of every choice, by encoder input and path."""
        reads = reads_of(prompts)
        nats: Nats = {}
        rows = _rows_of(sorted(reads))
        for start in range(0, len(rows), MAX_SEQUENCES):
            at_once = rows[start : start + MAX_SEQUENCES]
            sources = [row[-1][: source_states.length] for row in at_once]
            written = [row[-1][source_states.length :] for row in at_once]
            paths = [(number, path) for number, row in enumerate(at_once) for path in row]
            places = [(number, len(path) - source_states.length) for number, path in paths]
            left = iter([path for _, path in paths])
            for logits in self._read(source_states.rows(sources), written, places):
                read_paths = [next(left) for _ in logits]
                nats |= nexts(logits, [(path, row, reads[path]) for row, path in enumerate(read_paths)], self.ends)
        return nats

    def _read(
        self, states: torch.Tensor, written: Sequence[tuple[int, ...]], places: Sequence[tuple[int, int]]
    ) -> Iterator[torch.Tensor]:
        """Logits after `n_written` tokens of a row, in slices [place, vocabulary].

        given     <pad>                  n_written   0          1
        written   political              row         <pad>      political    padding is fed, but never read
        """
        n_given, longest = len(self.given), max(map(len, written))
        fill = self.given[:1]
        rows = [(*self.given, *tokens, *fill * (longest - len(tokens))) for tokens in written]
        at = [row * (n_given + longest) + n_given - 1 + n_written for row, n_written in places]
        return self.reader.logits_at(states, np.array(rows, dtype=np.int64), np.array(at, dtype=np.int64))

    # Writing.

    def _write(self, sequences: Sequence[GenerationState], source_states: _SourceStates) -> None:
        """Generate answers with the network's `generate`, which gets each chosen token."""
        import torch
        from transformers.modeling_outputs import BaseModelOutput

        states = source_states.rows([sequence.prompt.tokens for sequence in sequences])
        self.reader.network.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=torch.ones(states.shape[:2], dtype=torch.int64, device=states.device),
            decoder_input_ids=torch.tensor([self.given] * len(sequences), device=states.device),
            **forced_generate_kwargs(sequences, self.stops),
        )

    # Search.

    def _searching(
        self, prompts: Sequence[EncodedPrompt], source_states: _SourceStates
    ) -> Callable[[Sequence[Open]], list[dict[int, float]]]:
        """Expand spans, each as a row of the decoder."""
        import torch

        def expand(wanted: Sequence[Open]) -> list[dict[int, float]]:
            states = source_states.rows([prompts[at].tokens for at, _, _ in wanted])
            written = [tokens for _, tokens, _ in wanted]
            ends_of_rows = [(row, len(tokens)) for row, tokens in enumerate(written)]
            logits = torch.cat(list(self._read(states, written, ends_of_rows)))
            return span_nexts(prompts, wanted, logits, self.stops)

        return expand


@dataclass(frozen=True, slots=True)
class _SourceStates:
    """Encoder states of the texts of a pack.

    Attributes:
        row_of: row of each text.
        states: [row, position, width].
    """

    row_of: Mapping[Source, int]
    states: torch.Tensor

    @property
    def length(self) -> int:
        """Tokens of each text."""
        return int(self.states.shape[1])

    def rows(self, sources: Sequence[Source]) -> torch.Tensor:
        """Encoder states of these texts [source, position, width]."""
        return self.states[[self.row_of[source] for source in sources]]


def _rows_of(paths: Sequence[Source]) -> list[list[Source]]:
    """Groups of paths that are prefixes of the last one, which is read as one row."""
    rows: list[list[Source]] = []
    for path in paths:
        if rows and path[: len(rows[-1][-1])] == rows[-1][-1]:
            rows[-1].append(path)
        else:
            rows.append([path])
    return rows


def _n_passes(pack: Sequence[Sequence[EncodedPrompt]]) -> int:
    """One pass of the encoder, one for all choices, one for each generated token."""
    prompts = [prompt for row in pack for prompt in row]
    n_steps = max((prompt.max_tokens for prompt in prompts if prompt.passage is not None), default=0)
    return 1 + any(prompt.trie is not None for prompt in prompts) + n_steps
