"""Text encoder-decoders that were trained to fill gaps (T5, mT5, UL2, BART and their kin), and the answers that they give.

    T5     encoder   In 1801 , <extra_id_0> was a child . </s>          BART   encoder   <s> In 1801 , <mask> was a child . </s>
           decoder   <pad> <extra_id_0>                                        decoder   </s> <s> In 1801 ,
                                ^ log P(she), log P(he)                                                  ^ log P(she), log P(he)

A word of several tokens is read whole, each token after those before it; so is a second blank, after the first one's fill.
The encoder reads a sentence once, whatever the number of options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from undertow.errors import UndertowError
from undertow.models.backend.execution import check_length, end_tokens_of, list_duplicate_options, to_device
from undertow.models.backend.lm_head import apply_head
from undertow.models.base import (
    PROMPT_CAPABILITIES,
    Capabilities,
    EncodedQuery,
    Ints,
    ModelHandle,
    ModelRequest,
    TokenBatch,
    TokenPath,
    UnsupportedQueryError,
)
from undertow.models.generation.backends import MAX_SEQUENCES, GenerateBackend, Text
from undertow.models.generation.generation_state import GenerationState, Stops
from undertow.models.generation.generator import PromptModel
from undertow.models.generation.prompt_encoder import EncodedPrompt, PromptEncoder, Tokens
from undertow.models.huggingface import BatchReader
from undertow.models.loading.resolve_weights import WeightFiles
from undertow.models.tokens.fill_spans import FillSpan, TextWithOffsets, fill_offsets, locate_fills, with_space
from undertow.models.tokens.option_tokens import Vocabulary
from undertow.types import BLANK, EXACT, GENERATION, PAPER, ClozeQuery, ModelIdentity, option

if TYPE_CHECKING:
    import torch

SUMMARY = "any AutoModelForSeq2SeqLM that fills gaps (T5, UL2, BART): a hub id or a folder; read in its decoder, or by prompts"
SENTINEL = "<extra_id_{}>"
AUTO, NONE = "auto", "none"
MODES = ("NLU", "NLG", "S2S")


@dataclass(frozen=True, slots=True)
class Settings:
    """What this family lets a user choose."""

    mode: str = option(
        AUTO, "Mode token of UL2: NLU, NLG, S2S or none; auto: NLU for blanks, S2S for prompts, none for other models."
    )


@dataclass(frozen=True, slots=True)
class Modes:
    """The modes before sentences with blanks and before prompts; "" for none."""

    blanks: str = ""
    prompts: str = ""


def _modes(request: ModelRequest, source: str) -> Modes:
    """UL2 was trained with modes, Flan-UL2 to do without.

    Raises:
        UndertowError: there is no such mode.
    """
    mode = request.settings.get("mode", AUTO)
    if mode not in (AUTO, NONE, *MODES):
        raise UndertowError(f"mode {mode!r} is not known; use {', '.join((AUTO, NONE, *MODES))}")
    if mode in MODES:
        return Modes(str(mode), str(mode))
    words = re.findall(r"[a-z0-9]+", source.lower())
    return Modes("NLU", "S2S") if mode == AUTO and "ul2" in words and "flan" not in words else Modes()


def _marks(config: Any, tokenizer: Any) -> tuple[tuple[int, ...], bool]:
    """Marks of a blank in the encoder's text, and whether they are sentinels; none of a model that fills no blanks.

    There is a sentinel for each blank, and the decoder writes the fills alone, each after its own. With the one mask it writes the
    whole text again.
    """
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    sentinels: list[int] = []
    # Look up sentinels by text: mT5 stores them under another name. Each is one token that the tokenizer knows.
    while True:
        tokens = tokenizer(SENTINEL.format(len(sentinels)), add_special_tokens=False)["input_ids"]
        if len(tokens) != 1 or tokens[0] == tokenizer.unk_token_id or int(tokens[0]) in sentinels:
            break
        sentinels.append(int(tokens[0]))
    if sentinels:
        return tuple(sentinels), True
    has_mask = tokenizer.mask_token_id is not None and type(config) in MODEL_FOR_MASKED_LM_MAPPING
    return ((int(tokenizer.mask_token_id),) if has_mask else ()), False


class Seq2SeqModel(PromptModel, BatchReader):
    """A loaded encoder-decoder; see `undertow.models.base.TokenModel` and `AnsweringModel`."""

    FAMILY, SCORING_METHOD, OBJECTIVE = "seq2seq", "denoising", "denoising"
    ARCHITECTURES = ("ForConditionalGeneration", "BartModel")
    """The second is what the original BART's files are called, which hold all of its weights."""
    AUTO_CLASS, TRAINED_TO = "AutoModelForSeq2SeqLM", "fill gaps"
    CAPABILITIES: ClassVar[Capabilities] = {BLANK: (EXACT, PAPER), **PROMPT_CAPABILITIES}
    TEXT_MAPPING = "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING"
    WRONG_KIND = "which is not a text encoder-decoder; name one such as T5, UL2 or BART"
    NEEDS_ENCODER = NEEDS_OFFSETS = True

    def __init__(self, identity: ModelIdentity, network: Any, tokenizer: Any, modes: Modes = Modes()) -> None:
        super().__init__(identity, network, tokenizer)
        self.modes = modes
        self.marks, self.has_sentinels = _marks(network.config, tokenizer)
        if modes.blanks and not self.has_sentinels:
            raise UndertowError(f"{identity.name}: has no modes, which are UL2's; use mode {AUTO} or {NONE}")
        self.prefix = f"[{modes.blanks}] " if modes.blanks else ""
        self.opening = _opening(identity, network, tokenizer)
        self.test_head()
        how = "after its sentinel" if self.has_sentinels else "after the text before it"
        blanks = f"read in the decoder, {how}: probabilities are of the word in its place, not of the whole sentence"
        used = f"[{modes.blanks}] before sentences with blanks, [{modes.prompts}] before prompts"
        modes_note = f"UL2's modes, by its name or as requested: {used}"
        self.own_notes = self.prompt_notes = (modes_note,) if modes.blanks else ()
        self.notes = (blanks, *self.own_notes)
        # What the decoder was trained to write before a text: what the tokenizer puts there, and a gap's sentinel.
        coded = tokenizer("a", return_special_tokens_mask=True)
        before = coded["input_ids"][: coded["special_tokens_mask"].index(0)]
        # In mode S2S UL2 goes on with the text, without a sentinel.
        sentinel = self.marks[:1] if modes.prompts in ("NLU", "NLG") else ()
        given, vocabulary = (self.opening, *before, *sentinel), Vocabulary(tokenizer)

        def add_mode(text: str) -> str:
            return f"[{modes.prompts}] {text} {SENTINEL.format(0)}" if modes.prompts else text

        encoder = PromptEncoder(
            tokenizer,
            lambda text: list(tokenizer(text)["input_ids"]),
            self.context_tokens,
            vocabulary,
            frame=add_mode,
            n_given=len(given),
        )
        stops = Stops(end_tokens_of(network, tokenizer), vocabulary)
        self.answer_with(encoder, EncoderDecoderTexts(self, stops, given))

    @classmethod
    def handle(cls, request: ModelRequest, weights: WeightFiles) -> ModelHandle:
        """The model with these weights, in its modes."""
        modes = _modes(request, weights.source)
        used = list(dict.fromkeys(filter(None, (modes.blanks, modes.prompts))))
        how = f", mode{'s' * (len(used) > 1)} {' and '.join(used)}" if used else ""
        identity = weights.identity(request, cls.FAMILY, cls.SCORING_METHOD + how)
        load = partial(cls.load, identity, weights, request.device, modes=modes)
        return ModelHandle(identity, load, cls.CAPABILITIES)

    @classmethod
    def adjust_network(cls, network: Any, weights: WeightFiles) -> None:
        """Do not scale what goes into a head of its own; transformers 5 forgets this of umT5."""
        from transformers import PreTrainedConfig

        config, _ = PreTrainedConfig.get_config_dict(weights.location, **weights.options)
        if config.get("tie_word_embeddings") is False:
            network.config.tie_word_embeddings = False

    @property
    def facts(self) -> Mapping[str, str | float]:
        """Facts for model comparison."""
        filled = "span corruption" if self.has_sentinels else "text infilling"
        return {**super().facts, "objective": f"denoising ({filled})" if self.marks else "text to text"}

    # Sentences with blanks.

    def _encode_query(self, query: ClozeQuery, rows: Sequence[TextWithOffsets]) -> EncodedQuery:
        if not self.marks:
            raise UnsupportedQueryError(
                f"{self.identity.name}: has neither sentinels ({SENTINEL.format(0)}) nor a mask token that it was trained to fill, "
                "so it can fill no blank; add --prompts, or name a model such as T5, UL2 or BART"
            )
        n_before, n_blanks, marks = len(self.prefix), len(query.pieces) - 1, self.marks
        if self.has_sentinels and n_blanks > len(marks):
            raise UnsupportedQueryError(f"the sentence has more blanks than the model has sentinels ({len(marks)})")
        marks = marks[:n_blanks] if self.has_sentinels else marks * n_blanks
        paths: list[TokenPath] = []
        options: list[tuple[int, ...]] = []
        spaced: list[tuple[int, ...]] = []
        for number, (text, ids, offsets) in enumerate(rows):
            spans = [(n_before + first, n_before + end) for first, end in fill_offsets(query, number)]
            filled = locate_fills(text, ids, offsets, spans)
            if self.tokenizer.unk_token_id in filled.fill_tokens:
                options.append(())
                spaced.append(())
                continue
            if set(marks) & set(ids):
                raise UnsupportedQueryError("the text contains this model's mark of a blank")
            path = self._path(filled, marks)
            check_length(max(len(path.source), len(path.tokens)), self.context_tokens)
            if paths and path.source != paths[0].source:
                raise UnsupportedQueryError(
                    "this tokenizer splits the text around an option otherwise than around another"
                )
            options.append((len(paths),))
            paths.append(path)
            # At the start of a text also with a space before it, where the model writes whole texts.
            initial = None if self.has_sentinels else with_space(self.tokenizer, query, number, filled)
            spaced.append((len(paths),) if initial else ())
            paths += [self._path(initial, marks)] if initial else []
        duplicates = list_duplicate_options(
            query, [(*paths[one[0]].tokens, paths[one[0]].reads[-1][1]) if one else () for one in options]
        )
        # Rows of one length share a batch, and so the one pass of the encoder. What is fed after the last read changes nothing.
        longest = max(len(path.tokens) for path in paths)
        padded = [replace(one, tokens=one.tokens + (self.opening,) * (longest - len(one.tokens))) for one in paths]
        return EncodedQuery(tuple(padded), duplicates, tuple(options), tuple(spaced) if any(spaced) else ())

    def _path(self, filled: FillSpan, marks: Sequence[int]) -> TokenPath:
        """A text with one mark in the place of each fill, and what the decoder writes.

        With sentinels each fill after its own, as T5 was trained. With a mask the whole text, as BART was trained, of which what
        comes after the last fill need not be written.

        ids       In 1801 , she was a child and lost her keys .        written   <0> she <1> her
        source    In 1801 , <0> was a child and lost <1> keys .        places        1       3
        """
        ids, places = filled.tokens, list(filled.places)
        first, inside = {fill[0]: mark for fill, mark in zip(filled.fills, marks, strict=True)}, set(places)
        source = tuple(first.get(at, token) for at, token in enumerate(ids) if at in first or at not in inside)
        written = list(ids[: places[-1] + 1])
        if self.has_sentinels:
            written, places = [], []
            for fill, mark in zip(filled.fills, marks, strict=True):
                written.append(mark)
                places += range(len(written), len(written) + len(fill))
                written += [ids[place] for place in fill]
        # The last token is read, not fed.
        return TokenPath((self.opening, *written[:-1]), tuple((at, written[at]) for at in places), source)

    def _whole_logits(self, batch: TokenBatch) -> torch.Tensor:
        sources = to_device(batch.sources[batch.source_of_row], self.network.device)
        tokens = to_device(batch.tokens, self.network.device)
        logits: torch.Tensor = self.network(input_ids=sources, decoder_input_ids=tokens, use_cache=False).logits
        return logits

    def _logits(self, batch: TokenBatch, places: Ints) -> Iterator[torch.Tensor]:
        of_row = to_device(batch.source_of_row, self.network.device)
        yield from self.logits_at(self.encode_sources(batch.sources)[of_row], batch.tokens, places)

    def encode_sources(self, sources: Ints) -> torch.Tensor:
        """What the encoder makes of texts of one length [source, position, width]."""
        states: torch.Tensor = self.network.get_encoder()(input_ids=to_device(sources, self.network.device))[0]
        return states

    def logits_at(self, states: torch.Tensor, tokens: Ints, places: Ints) -> Iterator[torch.Tensor]:
        """Logits at flat positions of the decoder's rows, in slices [place, vocabulary], in float32.

        Args:
            states: encoder states of each row [row, position, width].
            tokens: [row, position].
            places: row x length + position [place].
        """
        fed, kept = (to_device(one, self.network.device) for one in (tokens, places))
        if not self.head_apart:
            whole = self.network(encoder_outputs=(states,), decoder_input_ids=fed, use_cache=False)
            yield whole.logits.flatten(0, 1)[kept].float()
            return
        decoder = self.network.get_decoder()
        hidden = decoder(input_ids=fed, encoder_hidden_states=states, use_cache=False)[0].flatten(0, 1)[kept]
        inputs = {"encoder_outputs": (states[:1],), "decoder_input_ids": fed[:1, :1]}
        yield from apply_head(self.network, decoder, hidden, self._n_logits(), **inputs)


class EncoderDecoderTexts(GenerateBackend):
    """Texts that a decoder writes; the encoder reads each prompt of a pack once.

        encoder   Task: What is it about? Text: ... </s>
        decoder   <pad>                  -> gender | race | political       the labels as texts of their own
                  <pad> political        -> affiliation | end               in the same row: a decoder looks back only

    `given` are the tokens that a decoder is given before an answer, its opening first.
    """

    def __init__(self, reader: Seq2SeqModel, stops: Stops, given: Tokens) -> None:
        super().__init__(reader.network, stops, decoder_start_token_id=given[0])
        self._reader, self._given, self._before = reader, given, given

    def packs(self, prompts: Sequence[EncodedPrompt], before: Tokens) -> Iterator[list[EncodedPrompt]]:
        """Prompts of one length, the longest first; those of one text are together, and are read once."""
        by_text: dict[Tokens, list[EncodedPrompt]] = {}
        for prompt in prompts:
            by_text.setdefault(prompt.tokens, []).append(prompt)
        pack: list[EncodedPrompt] = []
        n_rows = longest = 0
        for tokens in sorted(by_text, key=lambda tokens: (-len(tokens), tokens)):
            own = sum(len(self._given) + prompt.own_tokens for prompt in by_text[tokens])
            full = (n_rows + 1) * (len(tokens) + max(longest, own)) > self._reader.limits.budget_tokens
            if pack and (full or len(tokens) != len(pack[0].tokens)):
                yield pack
                pack, n_rows, longest = [], 0, 0
            pack = pack + by_text[tokens]
            n_rows, longest = n_rows + 1, max(longest, own)
        if pack:
            yield pack

    def start(self, prompts: Sequence[Tokens], mode: str) -> None:
        """Read the prompts of a pack; an answer whose steps are recorded begins with the opening alone."""
        self.prompts, self._before = prompts, self._given[:1] if mode == GENERATION else self._given
        distinct = {tokens: row for row, tokens in enumerate(dict.fromkeys(prompts))}
        self._row_of = [distinct[tokens] for tokens in prompts]
        self._states = self._reader.encode_sources(np.array(list(distinct), dtype=np.int64))

    def logits_after(self, texts: Sequence[Text]) -> Iterator[tuple[Sequence[int], torch.Tensor]]:
        """Texts that begin one another are read in one row; padding is fed, but never read."""
        rows: list[list[int]] = []
        for number, (at, written) in enumerate(texts):
            last = texts[rows[-1][-1]] if rows else (-1, ())
            if last[0] == at and written[: len(last[1])] == last[1]:
                rows[-1].append(number)
            else:
                rows.append([number])
        for start in range(0, len(rows), MAX_SEQUENCES):
            some = rows[start : start + MAX_SEQUENCES]
            fed_rows = [(*self._before, *texts[numbers[-1]][1]) for numbers in some]
            length = max(map(len, fed_rows))
            fed = np.array([(*row, *self._given[:1] * (length - len(row))) for row in fed_rows], dtype=np.int64)
            read = [(number, row) for row, numbers in enumerate(some) for number in numbers]
            places = np.array([row * length + len(self._before) - 1 + len(texts[number][1]) for number, row in read])
            states = self._states[[self._row_of[texts[numbers[-1]][0]] for numbers in some]]
            left = iter(read)
            for logits in self._reader.logits_at(states, fed, places):
                yield [next(left)[0] for _ in logits], logits

    def inputs(self, states: Sequence[GenerationState]) -> dict[str, Any]:
        """Encoder states, and what the decoder is given."""
        import torch
        from transformers.modeling_outputs import BaseModelOutput

        encoded = self._states[[self._row_of[state.number] for state in states]]
        return {
            "encoder_outputs": BaseModelOutput(last_hidden_state=encoded),
            "attention_mask": torch.ones(encoded.shape[:2], dtype=torch.int64, device=encoded.device),
            "decoder_input_ids": torch.tensor([self._before] * len(states), device=encoded.device),
        }


def _opening(identity: ModelIdentity, network: Any, tokenizer: Any) -> int:
    """The token that the decoder is fed first: as the network shifts its own targets (mBART begins with a language)."""
    import torch

    try:
        labels = torch.tensor([tokenizer("a")["input_ids"]], device=network.device)
        opening: Any = int(network.prepare_decoder_input_ids_from_labels(labels)[0, 0])
    except (AttributeError, OverflowError, RuntimeError, TypeError, ValueError):
        opening = getattr(network.config, "decoder_start_token_id", None)
    n_embeddings = int(network.get_input_embeddings().weight.shape[0])
    if not isinstance(opening, int) or not 0 <= opening < n_embeddings:
        raise UndertowError(
            f"{identity.name}: does not say which of its {n_embeddings:,} tokens its decoder begins with; "
            "set decoder_start_token_id in its config.json"
        )
    return opening


MODEL = Seq2SeqModel
resolve = MODEL.resolve
