"""Text encoder-decoders that were trained to fill gaps (T5, mT5, UL2, BART and their kin), and the answers that they give.

    T5     encoder   In 1801 , <extra_id_0> was a child . </s>          BART   encoder   <s> In 1801 , <mask> was a child . </s>
           decoder   <pad> <extra_id_0>                                        decoder   </s> <s> In 1801 ,
                                ^ log P(she), log P(he)                                                  ^ log P(she), log P(he)

A word of several tokens is read whole, each token after those before it; so is a second blank, after the first one's fill.
The encoder reads a sentence once, whatever the number of options.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import UndertowError
from undertow.models.backend.device import logits_at_once, tokens_per_pass
from undertow.models.backend.execution import (
    UNKNOWN,
    end_tokens_of,
    in_top_k,
    list_duplicate_options,
    oom_errors,
    unknown_words,
)
from undertow.models.backend.lm_head import (
    flat_positions,
    head_is_position_wise,
    in_slices,
    patched_body_output,
    read_at,
)
from undertow.models.backend.onednn import weight_bytes
from undertow.models.base import (
    CHAT_TRAINED,
    EXACT,
    PAPER,
    PAPER_TOP,
    BatchLimits,
    CostEstimate,
    EncodedQuery,
    Ints,
    ModelHandle,
    ModelRequest,
    PackedTree,
    TokenBatch,
    TokenPath,
    UnsupportedQueryError,
)
from undertow.models.generation.seq2seq_decoder import Seq2SeqDecoder, SourceEncoder, batches_of
from undertow.models.generation.step_readout import Step, answer_of
from undertow.models.loading.library_contexts import loading_errors
from undertow.models.loading.load_network import load_checked, load_tokenizer
from undertow.models.loading.resolve_weights import WeightFiles, resolve_weights
from undertow.models.tokens.chat_template import encode_chat, template_notes
from undertow.models.tokens.fill_spans import fill_offsets, locate_fills
from undertow.models.tokens.option_tokens import OptionTokens, Vocabulary
from undertow.types import (
    BLANK,
    CHOICE,
    GENERATION,
    WRITING,
    Answer,
    ClozeQuery,
    ConstrainedGenerateQuery,
    Floats,
    GenerateQuery,
    ModelIdentity,
    MultipleChoiceQuery,
    Query,
    ScoredQuery,
)

if TYPE_CHECKING:
    import torch

SUMMARY = "any AutoModelForSeq2SeqLM that fills gaps (T5, UL2, BART): a hub id or a folder; read in its decoder, or by prompts"
ARCHITECTURES = ("ForConditionalGeneration", "BartModel")
"""The second is what the original BART's files are called, which hold all of its weights."""
CPU_BUDGET_TOKENS = 1024
GPU_BUDGET_TOKENS = 32_768
SCORING_METHOD = "denoising"
SENTINEL = "<extra_id_{}>"
AUTO, NONE = "auto", "none"
MODES = ("NLU", "NLG", "S2S")
SENTINEL_FIRST = ("NLU", "NLG")
"""Modes in which UL2 writes the sentinel of a gap before what stands there; in the other it goes on with the text."""
CAPABILITIES = {BLANK: (EXACT, PAPER), GENERATION: (EXACT, PAPER), CHOICE: (EXACT, PAPER), WRITING: (EXACT,)}


@dataclass(frozen=True, slots=True)
class Settings:
    """What this family lets a user choose."""

    mode: str = field(
        default=AUTO,
        metadata={
            "help": "UL2's mode before a text: NLU, NLG, S2S or none; auto is NLU for blanks and S2S for prompts with UL2, else none"
        },
    )


@dataclass(frozen=True, slots=True)
class _Modes:
    """The modes before sentences with blanks and before prompts; "" for none."""

    blanks: str = ""
    prompts: str = ""

    @property
    def scoring_method(self) -> str:
        used = list(dict.fromkeys(mode for mode in (self.blanks, self.prompts) if mode))
        return f"{SCORING_METHOD}, mode{'s' * (len(used) > 1)} {' and '.join(used)}" if used else SCORING_METHOD

    @property
    def note(self) -> str:
        if not self.blanks:
            return ""
        return f"UL2's modes, by its name or as requested: [{self.blanks}] before sentences with blanks, [{self.prompts}] before prompts"


def resolve(request: ModelRequest) -> ModelHandle | None:
    """The model, if the request names an encoder-decoder.

    Raises:
        UndertowError: the model cannot be found, is of another family, or the mode does not exist.
    """
    weights = resolve_weights(request, ARCHITECTURES)
    if weights is None:
        return None
    modes = _modes(request.settings.get("mode", AUTO), weights.source)
    identity = weights.identity(request, "seq2seq", modes.scoring_method)
    return ModelHandle(identity, partial(_open, identity, weights, request.device, modes), CAPABILITIES)


def _modes(wanted: object, source: str) -> _Modes:
    """UL2 was trained with modes, Flan-UL2 to do without."""
    if wanted not in (AUTO, NONE, *MODES):
        raise UndertowError(f"mode {wanted!r} is not known; use {', '.join((AUTO, NONE, *MODES))}")
    if wanted in MODES:
        return _Modes(str(wanted), str(wanted))
    words = re.findall(r"[a-z0-9]+", source.lower())
    return _Modes("NLU", "S2S") if wanted == AUTO and "ul2" in words and "flan" not in words else _Modes()


def _open(identity: ModelIdentity, weights: WeightFiles, device: str, modes: _Modes) -> Seq2SeqModel:
    with loading_errors(identity.name):
        from transformers import (
            MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
            AutoConfig,
            AutoModelForSeq2SeqLM,
            PreTrainedConfig,
        )

        config = AutoConfig.from_pretrained(weights.location, **weights.options)
        if type(config) not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING or not config.is_encoder_decoder:
            raise UndertowError(
                f"{identity.name}: is a model of the kind {config.model_type}, which is no text encoder-decoder; name one such as "
                "T5, UL2 or BART"
            )
        tokenizer = load_tokenizer(identity.name, weights)
        if not tokenizer.is_fast:
            raise UndertowError(
                f"{identity.name}: its tokenizer does not say which characters a token stands for; save a fast one (tokenizer.json)"
            )
        marks = _marks(identity, config, tokenizer)
        if modes.blanks and not marks.sentinels:
            raise UndertowError(f"{identity.name}: has no modes, which are UL2's; use mode {AUTO} or {NONE}")
        said, _ = PreTrainedConfig.get_config_dict(weights.location, **weights.options)

        def wrap(network: Any) -> Seq2SeqModel:
            if said.get("tie_word_embeddings") is False:
                # A head of its own: what goes into it is not scaled. transformers 5 forgets this of umT5.
                network.config.tie_word_embeddings = False
            return Seq2SeqModel.from_network(identity, network, tokenizer, marks, modes)

        kind, what = AutoModelForSeq2SeqLM, "fill gaps"
        return load_checked(identity, weights, device, kind=kind, trained_to=what, tokenizer=tokenizer, wrap=wrap)


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands for a blank in the text that the encoder reads.

    Attributes:
        tokens: one for each blank, in order (sentinels); or the one mask.
        sentinels: which of the two. With sentinels the decoder writes the fills alone, each after its own; with a mask it
            writes the whole text again.
    """

    tokens: tuple[int, ...]
    sentinels: bool

    def of_blanks(self, n_blanks: int) -> tuple[int, ...] | UnsupportedQueryError:
        """One for each blank of a sentence."""
        if not self.sentinels:
            return self.tokens * n_blanks
        if n_blanks > len(self.tokens):
            return UnsupportedQueryError(
                f"the sentence has more blanks than the model has sentinels ({len(self.tokens)})"
            )
        return self.tokens[:n_blanks]


def _marks(identity: ModelIdentity, config: Any, tokenizer: Any) -> Marks:
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    sentinels: list[int] = []
    # Look up sentinels by text: mT5 stores them under another name.
    while (token := _single(tokenizer, SENTINEL.format(len(sentinels)))) is not None and token not in sentinels:
        sentinels.append(token)
    if sentinels:
        return Marks(tuple(sentinels), sentinels=True)
    if tokenizer.mask_token_id is not None and type(config) in MODEL_FOR_MASKED_LM_MAPPING:
        return Marks((int(tokenizer.mask_token_id),), sentinels=False)
    raise UndertowError(
        f"{identity.name}: has neither sentinels ({SENTINEL.format(0)}) nor a mask token that it was trained to fill, so it can fill "
        "no blank; name a model such as T5, UL2 or BART"
    )


def _single(tokenizer: Any, text: str) -> int | None:
    """The one token that a text is, if it is one that the tokenizer knows."""
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    return int(tokens[0]) if len(tokens) == 1 and tokens[0] != tokenizer.unk_token_id else None


@dataclass(frozen=True, slots=True)
class _Target:
    """What the decoder writes for one option, and where its fills are read.

    Attributes:
        source: what the encoder reads.
        tokens: the decoder's, from its opening to the last token of the last fill.
        reads: (position, token) pairs, as in `TokenPath`.
    """

    source: tuple[int, ...]
    tokens: tuple[int, ...]
    reads: tuple[tuple[int, int], ...]

    def path(self, length: int, padding: int) -> TokenPath:
        """Its last token is read, never fed. What is fed after the last read changes nothing: a decoder looks back only."""
        fed = self.tokens[:-1]
        return TokenPath(fed + (padding,) * (length - len(fed)), self.reads, self.source)


class _UnknownError(UnsupportedQueryError):
    """An option holds what the tokenizer has no token for."""


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt to be answered.

    Attributes:
        place: in the list of queries.
        query: the query.
        source: what the encoder reads.
        options: the tokens of its options.
    """

    place: int
    query: GenerateQuery
    source: tuple[int, ...]
    options: OptionTokens


@dataclass(slots=True)
class _Recorder:
    """Records the probabilities of some tokens at each decoding step.

    Attributes:
        wanted: tokens whose probability is kept [token].
        top: how many most probable tokens count at all; 0 for all of them.
        steps: their probabilities [step][row, token].
    """

    wanted: torch.Tensor
    top: int
    steps: list[torch.Tensor] = field(default_factory=list)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Called by `generate` with the logits of a step [row, vocabulary], which it gets back as they are."""
        logits = scores.float()
        kept = logits[:, self.wanted]
        probs = (kept - logits.logsumexp(-1, keepdim=True)).exp()
        if self.top:
            probs = probs.masked_fill(~in_top_k(logits, self.wanted, self.top), 0.0)
        self.steps.append(probs)
        return scores


@dataclass(slots=True)
class Seq2SeqModel:
    """A loaded encoder-decoder; see `undertow.models.base.TokenModel` and `AnsweringModel`."""

    identity: ModelIdentity
    network: Any
    tokenizer: Any
    marks: Marks
    modes: _Modes
    limits: BatchLimits
    notes: tuple[str, ...]
    context_tokens: int
    opening: int
    greedy: dict[str, Any]
    vocabulary: Vocabulary
    facts: Mapping[str, str | float]
    head_apart: bool = True
    prompt_notes: tuple[str, ...] = ()
    _writer: Seq2SeqDecoder | None = None

    @classmethod
    def from_network(
        cls, identity: ModelIdentity, network: Any, tokenizer: Any, marks: Marks, modes: _Modes
    ) -> Seq2SeqModel:
        """Wrap a network and its tokenizer, and find out whether its head can be applied to single rows."""
        from transformers import GenerationConfig

        opening = _opening(identity, network, tokenizer)
        greedy = _greedy(network, tokenizer, opening)
        # What a checkpoint says of generation (penalties, forced tokens) would fill in what a call leaves open.
        network.generation_config = GenerationConfig(**greedy)
        model = cls(
            identity,
            network,
            tokenizer,
            marks,
            modes,
            BatchLimits(CPU_BUDGET_TOKENS, 0),
            _notes(marks, modes),
            _longest(network.config, tokenizer),
            opening,
            greedy,
            Vocabulary.from_tokenizer(tokenizer),
            _facts(network, tokenizer, marks),
        )
        model.head_apart = _head_stands_alone(model)
        budget = tokens_per_pass(network, model.memory_bytes, processor=CPU_BUDGET_TOKENS, gpu=GPU_BUDGET_TOKENS)
        model.limits = BatchLimits(budget, 0)
        model.prompt_notes = (modes.note,) if modes.note else ()
        return model

    # Sentences with blanks.

    def encode(self, queries: Sequence[ScoredQuery]) -> list[EncodedQuery | UnsupportedQueryError]:
        """Each query as one text for the encoder and one beginning for the decoder per option; see `TokenModel`."""
        prefix = f"[{self.modes.blanks}] " if self.modes.blanks else ""
        texts = [prefix + text for query in queries if isinstance(query, ClozeQuery) for text in query.texts()]
        rows = self._tokenize(texts)
        encoded: list[EncodedQuery | UnsupportedQueryError] = []
        for query in queries:
            if not isinstance(query, ClozeQuery):
                encoded.append(UnsupportedQueryError("a model that fills gaps cannot be read going on with a text"))
                continue
            targets = []
            for number in range(len(query.options)):
                text, ids, offsets = next(rows)
                own = [(len(prefix) + first, len(prefix) + end) for first, end in fill_offsets(query, number)]
                targets.append(self._target(text, ids, offsets, own))
            encoded.append(self._encode_query(query, targets))
        return encoded

    def _tokenize(self, texts: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...], list[tuple[int, int] | None]]]:
        """Each text, its tokens, and the characters that each stands for; None for those that begin and end a text."""
        if not texts:
            return
        coded = self.tokenizer(list(texts), return_offsets_mapping=True, return_special_tokens_mask=True)
        for text, ids, offsets, special in zip(
            texts, coded["input_ids"], coded["offset_mapping"], coded["special_tokens_mask"], strict=True
        ):
            yield text, tuple(ids), [None if mark else span for mark, span in zip(special, offsets, strict=True)]

    def _target(
        self,
        text: str,
        ids: tuple[int, ...],
        offsets: Sequence[tuple[int, int] | None],
        spans: Sequence[tuple[int, int]],
    ) -> _Target | UnsupportedQueryError:
        """The text with its fills taken out, and put where the decoder writes them."""
        marks = self.marks.of_blanks(len(spans))
        if isinstance(marks, UnsupportedQueryError):
            return marks
        fills: list[tuple[int, ...]] = []
        for span in spans:
            filled = locate_fills(text, [span], ids, offsets)
            if isinstance(filled, UnsupportedQueryError):
                return filled
            fills.append(filled.places)
        if any(ids[place] == self.tokenizer.unk_token_id for places in fills for place in places):
            return _UnknownError(UNKNOWN)
        if set(marks) & set(ids):
            return UnsupportedQueryError("the text holds what stands for a blank in this model's texts")
        target = _fills_alone(ids, fills, marks) if self.marks.sentinels else _whole_text(ids, fills, marks)
        source, written, places = target
        reads = tuple((place, written[place]) for place in places)
        return _Target(source, (self.opening, *written), reads)

    def _encode_query(
        self, query: ClozeQuery, targets: Sequence[_Target | UnsupportedQueryError]
    ) -> EncodedQuery | UnsupportedQueryError:
        whole: list[_Target] = []
        for target in targets:
            if isinstance(target, _UnknownError):
                return unknown_words(query, [at for at, one in enumerate(targets) if isinstance(one, _UnknownError)])
            if isinstance(target, UnsupportedQueryError):
                return target
            if max(len(target.source), len(target.tokens) - 1) > self.context_tokens:
                return UnsupportedQueryError(
                    f"the text is longer than the {self.context_tokens} tokens that the model reads"
                )
            if whole and target.source != whole[0].source:
                return UnsupportedQueryError(
                    "this tokenizer splits the text around an option otherwise than around another"
                )
            whole.append(target)
        repeats = list_duplicate_options(query, [target.tokens for target in whole])
        if isinstance(repeats, UnsupportedQueryError):
            return repeats
        # Rows of one length share a batch, and so the one pass of the encoder.
        length = max(len(target.tokens) - 1 for target in whole)
        return EncodedQuery(tuple(target.path(length, self.opening) for target in whole), repeats)

    def read_tree(self, tree: PackedTree) -> Floats:
        """Not supported: a tree cannot hold encoder inputs."""
        raise NotImplementedError("encoder-decoders are read in batches")

    def read_batch(self, batch: TokenBatch) -> Floats:
        """One pass of the encoder over distinct texts, one of the decoder; the head at the places that are read [read]."""
        return self.read_top(batch, 0)

    def read_top(self, batch: TokenBatch, top: int) -> Floats:
        """The same, minus infinity for what is not among so many most probable tokens; 0 for all of them [read]."""
        import torch

        with torch.inference_mode(), oom_errors():
            return read_at(
                flat_positions(batch), batch.read_tokens, partial(self._logits, batch), self.network.device, top
            )

    def _logits(self, batch: TokenBatch, places: Ints) -> Iterator[torch.Tensor]:
        """Logits at the places, a few rows at a time [row, vocabulary], in float32."""
        import torch

        of_row = torch.from_numpy(batch.source_of_row).to(self.network.device)
        yield from self.logits_at(self.encode_sources(batch.sources)[of_row], batch.tokens, places)

    def encode_sources(self, sources: Ints) -> torch.Tensor:
        """What the encoder makes of texts of one length [source, position, width]."""
        import torch

        fed = torch.from_numpy(sources).to(self.network.device)
        states: torch.Tensor = self.network.get_encoder()(input_ids=fed)[0]
        return states

    def logits_at(self, states: torch.Tensor, tokens: Ints, places: Ints) -> Iterator[torch.Tensor]:
        """Logits at the places of the decoder's rows; see `undertow.models.generation.seq2seq_decoder.EncoderDecoder`."""
        import torch
        from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

        fed, kept = (torch.from_numpy(one).to(self.network.device) for one in (tokens, places))
        if not self.head_apart:
            whole = self.network(encoder_outputs=(states,), decoder_input_ids=fed, use_cache=False)
            yield whole.logits.flatten(0, 1)[kept].float()
            return
        decoder = self.network.get_decoder()
        hidden = decoder(input_ids=fed, encoder_hidden_states=states, use_cache=False)[0].flatten(0, 1)[kept]

        def head(rows: torch.Tensor) -> torch.Tensor:
            with patched_body_output(decoder, BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=rows[None])):
                out = self.network(encoder_outputs=(states[:1],), decoder_input_ids=fed[:1, :1])
            logits: torch.Tensor = out.logits[0]
            return logits

        yield from in_slices(hidden, _n_logits(self.network), head)

    # Prompts.

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Answer | UnsupportedQueryError]]:
        """Prompts answered in batches of one exact length; see `undertow.models.base.AnsweringModel`."""
        if any(getattr(query, "chat", False) for query in queries):
            self.prompt_notes = tuple(dict.fromkeys((*self.prompt_notes, *template_notes(self.tokenizer))))
        others = _others(queries)
        for some in self.writer.answers([query for _, query in others], protocol) if others else ():
            yield {others[at][0]: answer for at, answer in some.items()}
        prompts, refused = self._prompts(queries)
        if refused:
            yield refused
        for batch in self._batches(prompts):
            yield self._answer_batch(batch, protocol)

    def packs(self, queries: Sequence[Query]) -> list[list[int]]:
        """Indices of the prompts of each pack."""
        others = _others(queries)
        packs = self.writer.packs([query for _, query in others]) if others else []
        prompts, refused = self._prompts(queries)
        batches = [[prompt.place for row in batch for prompt in row] for batch in self._batches(prompts)]
        return [*([others[at][0] for at in pack] for pack in packs), *([list(refused)] if refused else []), *batches]

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        """The estimated cost, from one timed batch of each kind."""
        others = _others(queries)
        own = self._estimate_cost(self._prompts(queries)[0], protocol)
        if not others:
            return own
        written = self.writer.estimate_cost([query for _, query in others])
        return CostEstimate(
            own.n_tokens + written.n_tokens,
            own.n_passes + written.n_passes,
            own.seconds + written.seconds,
            max(own.memory_bytes, written.memory_bytes),
        )

    @property
    def writer(self) -> Seq2SeqDecoder:
        """The decoder of choices and constrained answers."""
        if self._writer is None:
            given = (self.opening, *self._forced_prefix())
            prompt_encoder = SourceEncoder(
                self.tokenizer,
                lambda text: list(self.tokenizer(text)["input_ids"]),
                self.context_tokens,
                self.vocabulary,
                frame=self._add_mode,
                n_given=len(given),
            )
            self._writer = Seq2SeqDecoder(self, prompt_encoder, given, frozenset(self.greedy["eos_token_id"]))
        return self._writer

    def _forced_prefix(self) -> tuple[int, ...]:
        """What the decoder was trained to write before a text: what the tokenizer puts there, and a gap's sentinel."""
        coded = self.tokenizer("a", return_special_tokens_mask=True)
        before = coded["input_ids"][: coded["special_tokens_mask"].index(0)]
        return (*before, *(self.marks.tokens[:1] if self.modes.prompts in SENTINEL_FIRST else ()))

    def _add_mode(self, text: str) -> str:
        """A prompt as its mode wants it."""
        return f"[{self.modes.prompts}] {text} {SENTINEL.format(0)}" if self.modes.prompts else text

    def _estimate_cost(self, prompts: Sequence[_Prompt], protocol: str) -> CostEstimate:
        batches = self._batches(prompts)
        n_tokens = [sum(len(row[0].source) + _n_steps(row) for row in batch) for batch in batches]
        seconds = 0.0
        if batches:
            middle = len(batches) // 2
            timed = batches[middle][:8]
            self._generate(timed[:1], 1, protocol)  # the first pass also sets up kernels and threads
            started = time.perf_counter()
            self._answer_batch(timed, protocol)
            n_timed = sum(len(row[0].source) + _n_steps(row) for row in timed)
            seconds = (time.perf_counter() - started) * sum(n_tokens) / n_timed
        # Each batch goes through the encoder once, and through the decoder once a step.
        n_passes = sum(1 + max(map(_n_steps, batch)) for batch in batches)
        return CostEstimate(sum(n_tokens), n_passes, seconds, self.memory_bytes(max(n_tokens, default=1)))

    def _prompts(self, queries: Sequence[Query]) -> tuple[list[_Prompt], dict[int, Answer | UnsupportedQueryError]]:
        """Encoded prompts for greedy decoding, and errors for unsupported ones by index; without the writer's queries."""
        prompts: list[_Prompt] = []
        refused: dict[int, Answer | UnsupportedQueryError] = {}
        for place, query in enumerate(queries):
            if isinstance(query, MultipleChoiceQuery | ConstrainedGenerateQuery):
                continue
            prompt = self._prompt(place, query)
            if isinstance(prompt, UnsupportedQueryError):
                refused[place] = prompt
            else:
                prompts.append(prompt)
        return prompts, refused

    def _prompt(self, place: int, query: Query) -> _Prompt | UnsupportedQueryError:
        if not isinstance(query, GenerateQuery):
            return UnsupportedQueryError("a text with a blank is read, not answered")
        options = self.vocabulary.of_options(query.options)
        if isinstance(options, UnsupportedQueryError):
            return options
        text = self._add_mode(query.prompt)
        if not query.chat:
            source = tuple(self.tokenizer(text)["input_ids"])
        else:
            chat = encode_chat(self.tokenizer, text)
            if isinstance(chat, UnsupportedQueryError):
                return chat
            source = chat
        if max(len(source), query.max_tokens) > self.context_tokens:
            return UnsupportedQueryError(
                f"the prompt or its answer is longer than the {self.context_tokens} tokens that the model reads"
            )
        return _Prompt(place, query, source, options)

    def _batches(self, prompts: Sequence[_Prompt]) -> list[list[list[_Prompt]]]:
        """Prompts that are one text in one row, rows of one exact length in a batch, the longest first [batch][row][prompt]."""
        rows: dict[tuple[int, ...], list[_Prompt]] = {}
        for prompt in prompts:
            rows.setdefault(prompt.source, []).append(prompt)
        return batches_of(rows, _n_steps, self.limits.budget_tokens)

    def _answer_batch(
        self, batch: Sequence[Sequence[_Prompt]], protocol: str
    ) -> dict[int, Answer | UnsupportedQueryError]:
        written, wanted, probs = self._generate(batch, max(map(_n_steps, batch)), protocol)
        column = {token: at for at, token in enumerate(wanted)}
        answers: dict[int, Answer | UnsupportedQueryError] = {}
        for row, (prompts, tokens) in enumerate(zip(batch, written, strict=True)):
            for prompt in prompts:
                columns = [[column[token] for token in ids] for ids in prompt.options.ids]
                own = tokens[: prompt.query.max_tokens]
                words = {token for ids in prompt.options.ids for token in ids}
                steps = [
                    Step(self.vocabulary.text_of(token), _of_options(probs[at, row], columns), spells=token in words)
                    for at, token in enumerate(own)
                ]
                text = self.tokenizer.decode(own, skip_special_tokens=True, clean_up_tokenization_spaces=False)
                answers[prompt.place] = answer_of(prompt.query, steps, text)
        return answers

    def _generate(
        self, batch: Sequence[Sequence[_Prompt]], n_steps: int, protocol: str
    ) -> tuple[list[list[int]], list[int], Floats]:
        """What the model writes: tokens up to its end [row][step], the tokens that are read [token], and their probabilities.

        Returns:
            The third is [step, row, token].
        """
        import torch
        from transformers import GenerationConfig

        wanted = sorted({token for row in batch for prompt in row for ids in prompt.options.ids for token in ids})
        device = self.network.device
        recorder = _Recorder(torch.tensor(wanted, device=device), PAPER_TOP if protocol == PAPER else 0)
        sources = torch.tensor([row[0].source for row in batch], device=device)
        with torch.inference_mode(), oom_errors():
            rows = self.network.generate(
                input_ids=sources,
                attention_mask=torch.ones_like(sources),
                generation_config=GenerationConfig(**self.greedy, max_new_tokens=n_steps),
                logits_processor=[recorder],
            )[:, 1:].tolist()  # the first is the decoder's opening
            probs = torch.stack(recorder.steps).cpu().numpy().astype(np.float64)
        return [_until(row, self.greedy["eos_token_id"]) for row in rows], wanted, probs

    def memory_bytes(self, budget_tokens: int) -> int:
        """Weights, one forward pass and one slice of logits with what its normaliser needs, in bytes."""
        weights = weight_bytes(self.network)
        config = self.network.config
        width = max(
            int(getattr(config, name, 0) or 0) for name in ("d_ff", "encoder_ffn_dim", "hidden_size", "d_model")
        )
        activations = 4 * budget_tokens * 8 * width
        logits = 2 * 4 * min(logits_at_once(self.network.device), budget_tokens * _n_logits(self.network))
        return int(weights + activations + logits)


_Fed = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""What the encoder reads; what the decoder writes after its opening; the places of the fills' tokens in that."""


def _fills_alone(ids: Sequence[int], fills: Sequence[Sequence[int]], marks: Sequence[int]) -> _Fed:
    """As T5 was trained: each fill after its sentinel.

    ids       In 1801 , she was a child and lost her keys .        written   <0> she <1> her
    source    In 1801 , <0> was a child and lost <1> keys .        places        1       3
    """
    written: list[int] = []
    places: list[int] = []
    for fill, mark in zip(fills, marks, strict=True):
        written.append(mark)
        places += range(len(written), len(written) + len(fill))
        written += [ids[place] for place in fill]
    return _replace_fills(ids, fills, marks), tuple(written), tuple(places)


def _whole_text(ids: Sequence[int], fills: Sequence[Sequence[int]], marks: Sequence[int]) -> _Fed:
    """As BART was trained: the whole text, of which what comes after the last fill need not be written."""
    return (
        _replace_fills(ids, fills, marks),
        tuple(ids[: fills[-1][-1] + 1]),
        tuple(place for fill in fills for place in fill),
    )


def _replace_fills(ids: Sequence[int], fills: Sequence[Sequence[int]], marks: Sequence[int]) -> tuple[int, ...]:
    """The text with one mark in the place of each fill."""
    first = {fill[0]: mark for fill, mark in zip(fills, marks, strict=True)}
    inside = {place for fill in fills for place in fill}
    return tuple(first.get(at, token) for at, token in enumerate(ids) if at in first or at not in inside)


def _others(queries: Sequence[Query]) -> list[tuple[int, MultipleChoiceQuery | ConstrainedGenerateQuery]]:
    """Prompts to be answered with a choice, or in writing within limits, each with its place."""
    return [
        (place, query)
        for place, query in enumerate(queries)
        if isinstance(query, MultipleChoiceQuery | ConstrainedGenerateQuery)
    ]


def _n_steps(row: Sequence[_Prompt]) -> int:
    """Steps that the prompts of one text are answered in, at most."""
    return max(prompt.query.max_tokens for prompt in row)


def _of_options(probs: Floats, columns: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """Probability of each option [option], NaN for one without tokens of its own, from that of each token [token]."""
    return tuple(float(probs[own].sum()) if own else math.nan for own in map(list, columns))


def _until(tokens: Sequence[int], ends: Sequence[int]) -> list[int]:
    """What comes before the end of the answer."""
    end = next((at for at, token in enumerate(tokens) if token in ends), len(tokens))
    return list(tokens[:end])


def _opening(identity: ModelIdentity, network: Any, tokenizer: Any) -> int:
    """The token that the decoder is fed first: as the network shifts its own targets (mBART begins with a language)."""
    import torch

    try:
        labels = torch.tensor([tokenizer("a")["input_ids"]], device=network.device)
        return int(network.prepare_decoder_input_ids_from_labels(labels)[0, 0])
    except (AttributeError, TypeError, ValueError) as error:
        opening = getattr(network.config, "decoder_start_token_id", None)
        if opening is None:
            raise UndertowError(
                f"{identity.name}: does not say what its decoder begins with; set decoder_start_token_id in its config.json"
            ) from error
        return int(opening)


def _greedy(network: Any, tokenizer: Any, opening: int) -> dict[str, Any]:
    """How answers are written: the most probable token at each step, and nothing that changes probabilities."""
    said = [network.generation_config, network.config, tokenizer]
    ends = sorted(end_tokens_of(network, tokenizer))
    padding = next(
        (one for one in (getattr(place, "pad_token_id", None) for place in said) if one is not None), opening
    )
    return {
        "do_sample": False,
        "num_beams": 1,
        "decoder_start_token_id": opening,
        "eos_token_id": ends,
        "pad_token_id": padding,
    }


def _longest(config: Any, tokenizer: Any) -> int:
    """Tokens that fit into the encoder and into the decoder; T5's kind has no places that could run out."""
    names = ("max_position_embeddings", "max_encoder_position_embeddings", "max_decoder_position_embeddings")
    said = [int(getattr(config, name, 0) or 2**20) for name in names]
    return min(*said, int(getattr(tokenizer, "model_max_length", 0) or 2**20))


def _n_logits(network: Any) -> int:
    return int(network.get_output_embeddings().weight.shape[0])


def _notes(marks: Marks, modes: _Modes) -> tuple[str, ...]:
    how = "after its sentinel" if marks.sentinels else "after the text before it"
    blanks = f"read in the decoder, {how}: probabilities are of the word in its place, not of the whole sentence"
    return tuple(note for note in (blanks, modes.note) if note)


def _facts(network: Any, tokenizer: Any, marks: Marks) -> Mapping[str, str | float]:
    return {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "objective": f"denoising ({'span corruption' if marks.sentinels else 'text infilling'})",
        "post_training": CHAT_TRAINED if tokenizer.chat_template is not None else "",
    }


def _head_stands_alone(model: Seq2SeqModel) -> bool:
    """Whether encoder, decoder and head one by one say what the network says in one go."""
    import torch

    vocabulary = _n_logits(model.network)
    draws = np.random.default_rng(0).integers(vocabulary // 4, max(vocabulary // 2, 2), size=33)
    nothing = np.zeros(0, dtype=np.int64)
    rows, sources = draws[:15].reshape(3, 5), draws[15:].reshape(2, 9)
    batch = TokenBatch(rows, nothing, nothing, nothing, sources, np.array([0, 1, 0]))
    places = np.array([3, 6, 14])
    with torch.inference_mode():
        fed, tokens = (torch.from_numpy(one).to(model.network.device) for one in (sources[batch.source_of_row], rows))
        whole = model.network(input_ids=fed, decoder_input_ids=tokens, use_cache=False)
        expected = whole.logits.flatten(0, 1)[torch.from_numpy(places)].float()
        return head_is_position_wise(
            model.identity.name, model.identity.dtype, expected, lambda: model._logits(batch, places)
        )
