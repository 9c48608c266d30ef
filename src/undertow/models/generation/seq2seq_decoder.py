"""Choices among labels and answers written within limits, by an encoder-decoder, for many prompts at once.

    encoder   Task: What is it about? Text: ... </s>                    read once, whatever is asked of it
    decoder   <pad>                  -> gender | race | political       the labels as texts of their own
              <pad> political        -> affiliation | end

Prompts of one exact length are answered in one go, without padding. A label's beginnings are read in one row: a decoder looks
back only, so each place says what a row that ends there would say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from undertow.models.backend.execution import oom_errors
from undertow.models.base import EXACT, BatchLimits, CostEstimate, Ints, UnsupportedQueryError
from undertow.models.generation.decoding_state import (
    MAX_SEQUENCES,
    DecodingState,
    Nats,
    Open,
    Stops,
    chosen,
    forced_generate_kwargs,
    nexts,
    reads_of,
    search_spans,
    sort_of,
    span_nexts,
)
from undertow.models.generation.prompt_encoder import EncodedPrompt, PromptEncoder
from undertow.models.tokens.chat_template import in_template
from undertow.types import Answer, ConstrainedGenerateQuery, MultipleChoiceQuery

if TYPE_CHECKING:
    import torch

Row = TypeVar("Row", bound=Sequence[Any])
Source = tuple[int, ...]


def batches_of(rows: Mapping[Source, Row], n_written: Callable[[Row], int], budget: int) -> list[list[Row]]:
    """Rows whose encoder inputs have one exact length, the longest first, as many as there is room for [batch][row].

    Args:
        rows: what is asked of each encoder input.
        n_written: tokens of the decoder that a row takes, at most.
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
    """Prompts as an encoder reads them; the answer begins a text of its own, and each has the whole context to itself.

    Attributes:
        framed: a prompt with what goes around it, as the mode that a model is told.
        n_given: tokens that the decoder is given before it answers.
    """

    framed: Callable[[str], str] = str
    n_given: int = 1

    def _prompted(
        self, place: int, query: MultipleChoiceQuery | ConstrainedGenerateQuery
    ) -> EncodedPrompt | UnsupportedQueryError:
        """The query with as many of its last examples as there is room for."""
        for n_dropped in range(len(query.shots) + 1):
            text = self.framed("".join((*query.shots[n_dropped:], query.prompt)))
            tokens = in_template(self.tokenizer, text) if query.chat else tuple(self.tokens_of(text))
            if isinstance(tokens, UnsupportedQueryError):
                return tokens
            # A chat's answer begins again, too.
            whole = self._whole(place, replace(query, chat=True), (text, tokens), n_dropped)
            if isinstance(whole, UnsupportedQueryError):
                return whole
            if max(len(whole.tokens), self.n_given + whole.most_tokens) <= self.context_tokens:
                return replace(whole, query=query)
        return UnsupportedQueryError(
            f"the prompt or its answer is longer than the {self.context_tokens} tokens that the model reads, without any example"
        )


class EncoderDecoder(Protocol):
    """The network as a family reads it."""

    network: Any
    limits: BatchLimits

    def seen(self, sources: Ints) -> torch.Tensor:
        """What the encoder makes of texts of one length [source, position, width]."""
        ...

    def logits_at(self, seen: torch.Tensor, tokens: Ints, places: Ints) -> Iterator[torch.Tensor]:
        """Logits at some places of the decoder's rows, a few at a time [place, vocabulary], in float32.

        Args:
            seen: for each row [row, position, width].
            tokens: [row, position].
            places: row x length + position [place].
        """
        ...

    def memory_bytes(self, budget_tokens: int) -> int:
        """What a pass over so many tokens takes, weights and all."""
        ...


@dataclass(slots=True)
class Seq2SeqDecoder:
    """What an encoder-decoder is asked beside greedy answers.

    Attributes:
        reader: the network.
        prompter: prompts in tokens.
        given: what the decoder begins with before it answers.
        ends: tokens that end an answer.
    """

    reader: EncoderDecoder
    prompter: SourceEncoder
    given: tuple[int, ...]
    ends: frozenset[int]

    def answers(
        self, queries: Sequence[MultipleChoiceQuery | ConstrainedGenerateQuery], protocol: str = EXACT
    ) -> Iterator[Mapping[int, Answer | UnsupportedQueryError]]:
        """Answers by their places, pack by pack; first those that cannot be asked."""
        prompts, refused = self.prompter.prompts(queries)
        if refused:
            yield refused
        for pack in self._packs(prompts):
            yield self._answered(pack, protocol)

    def packs(self, queries: Sequence[MultipleChoiceQuery | ConstrainedGenerateQuery]) -> list[list[int]]:
        """Places of the queries that are answered in one go; those that cannot be asked come first."""
        prompts, refused = self.prompter.prompts(queries)
        packs = [[prompt.place for row in pack for prompt in row] for pack in self._packs(prompts)]
        return [list(refused), *packs] if refused else packs

    def estimate_cost(self, queries: Sequence[MultipleChoiceQuery | ConstrainedGenerateQuery]) -> CostEstimate:
        """What answering takes, from one timed pack."""
        prompts, _ = self.prompter.prompts(queries)
        packs = self._packs(prompts)
        sizes = [sum(len(row[0].tokens) + self._n_written(row) for row in pack) for pack in packs]
        seconds = 0.0
        if packs:
            timed = len(packs) // 2
            self._answered(packs[timed])  # the first pass also sets up kernels and threads
            started = time.perf_counter()
            self._answered(packs[timed])
            seconds = (time.perf_counter() - started) * sum(sizes) / sizes[timed]
        n_passes = sum(map(_n_passes, packs))
        return CostEstimate(sum(sizes), n_passes, seconds, self.reader.memory_bytes(max(sizes, default=1)))

    @property
    def stops(self) -> Stops:
        """What ends a written answer."""
        return Stops(self.ends, self.prompter)

    # Packs.

    def _packs(self, prompts: Sequence[EncodedPrompt]) -> list[list[list[EncodedPrompt]]]:
        """All that is asked of one text in one row, rows of one exact length in a pack [pack][row][prompt]."""
        rows: dict[Source, list[EncodedPrompt]] = {}
        for prompt in prompts:
            rows.setdefault(prompt.tokens, []).append(prompt)
        return batches_of(rows, self._n_written, self.reader.limits.budget_tokens)

    def _n_written(self, row: Sequence[EncodedPrompt]) -> int:
        return sum(len(self.given) + prompt.own_tokens for prompt in row)

    def _answered(
        self, pack: Sequence[Sequence[EncodedPrompt]], protocol: str = EXACT
    ) -> dict[int, Answer | UnsupportedQueryError]:
        import torch

        sorts: dict[str, list[EncodedPrompt]] = {"choice": [], "writing": [], "search": []}
        for prompt in (prompt for row in pack for prompt in row):
            sorts[sort_of(prompt)].append(prompt)
        with torch.inference_mode(), oom_errors():
            seen = _SourceStates(
                {row[0].tokens: at for at, row in enumerate(pack)},
                self.reader.seen(np.array([row[0].tokens for row in pack], dtype=np.int64)),
            )
            nats = self._nexts(sorts["choice"], seen)
            answers = {
                prompt.place: chosen(prompt, nats, self.prompter.tokenizer, protocol) for prompt in sorts["choice"]
            }
            sequences = [DecodingState.of(prompt) for prompt in sorts["writing"]]
            for start in range(0, len(sequences), MAX_SEQUENCES):
                self._write(sequences[start : start + MAX_SEQUENCES], seen)
            answers |= {sequence.prompt.place: sequence.answer(self.prompter.tokenizer) for sequence in sequences}
            return answers | search_spans(sorts["search"], self._searching(sorts["search"], seen))

    # Choices.

    def _nexts(self, prompts: Sequence[EncodedPrompt], seen: _SourceStates) -> Nats:
        """What may come next at every state of every choice, by the encoder's input and what was written."""
        reads = reads_of(prompts)
        nats: Nats = {}
        rows = _rows_of(sorted(reads))
        for start in range(0, len(rows), MAX_SEQUENCES):
            at_once = rows[start : start + MAX_SEQUENCES]
            sources = [row[-1][: seen.length] for row in at_once]
            written = [row[-1][seen.length :] for row in at_once]
            paths = [(number, path) for number, row in enumerate(at_once) for path in row]
            places = [(number, len(path) - seen.length) for number, path in paths]
            left = iter([path for _, path in paths])
            for logits in self._read(seen.of(sources), written, places):
                read_paths = [next(left) for _ in logits]
                nats |= nexts(logits, [(path, row, reads[path]) for row, path in enumerate(read_paths)], self.ends)
        return nats

    def _read(
        self, seen: torch.Tensor, written: Sequence[tuple[int, ...]], places: Sequence[tuple[int, int]]
    ) -> Iterator[torch.Tensor]:
        """Logits where so many tokens were written in a row, a few places at a time [place, vocabulary].

        given     <pad>                  n_written   0          1
        written   political              row         <pad>      political    what fills it up is fed, and never read
        """
        n_given, longest = len(self.given), max(map(len, written))
        fill = self.given[:1]
        rows = [(*self.given, *tokens, *fill * (longest - len(tokens))) for tokens in written]
        at = [row * (n_given + longest) + n_given - 1 + n_written for row, n_written in places]
        return self.reader.logits_at(seen, np.array(rows, dtype=np.int64), np.array(at, dtype=np.int64))

    # Writing.

    def _write(self, sequences: Sequence[DecodingState], seen: _SourceStates) -> None:
        """Answers by the network's own search, over its cache, which is told each token that was chosen here."""
        import torch
        from transformers.modeling_outputs import BaseModelOutput

        states = seen.of([sequence.prompt.tokens for sequence in sequences])
        self.reader.network.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=torch.ones(states.shape[:2], dtype=torch.int64, device=states.device),
            decoder_input_ids=torch.tensor([self.given] * len(sequences), device=states.device),
            **forced_generate_kwargs(sequences, self.stops),
        )

    # Search.

    def _searching(
        self, prompts: Sequence[EncodedPrompt], seen: _SourceStates
    ) -> Callable[[Sequence[Open]], list[dict[int, float]]]:
        """What may come next after spans, each a row of the decoder."""
        import torch

        def expand(wanted: Sequence[Open]) -> list[dict[int, float]]:
            states = seen.of([prompts[at].tokens for at, _, _ in wanted])
            written = [tokens for _, tokens, _ in wanted]
            ends_of_rows = [(row, len(tokens)) for row, tokens in enumerate(written)]
            logits = torch.cat(list(self._read(states, written, ends_of_rows)))
            return span_nexts(prompts, wanted, logits, self.stops)

        return expand


@dataclass(frozen=True, slots=True)
class _SourceStates:
    """What the encoder made of the texts of a pack.

    Attributes:
        row_of: of each text.
        states: [row, position, width].
    """

    row_of: Mapping[Source, int]
    states: torch.Tensor

    @property
    def length(self) -> int:
        """Tokens of each text."""
        return int(self.states.shape[1])

    def of(self, sources: Sequence[Source]) -> torch.Tensor:
        """Of these [source, position, width]."""
        return self.states[[self.row_of[source] for source in sources]]


def _rows_of(paths: Sequence[Source]) -> list[list[Source]]:
    """Paths in ascending order, each with its own beginnings before it, so that all are read in the row of the last."""
    rows: list[list[Source]] = []
    for path in paths:
        if rows and path[: len(rows[-1][-1])] == rows[-1][-1]:
            rows[-1].append(path)
        else:
            rows.append([path])
    return rows


def _n_passes(pack: Sequence[Sequence[EncodedPrompt]]) -> int:
    """One of the encoder, one for all choices, one for each step of what is written."""
    prompts = [prompt for row in pack for prompt in row]
    n_steps = max((prompt.most_tokens for prompt in prompts if prompt.passage is not None), default=0)
    return 1 + any(prompt.trie is not None for prompt in prompts) + n_steps
