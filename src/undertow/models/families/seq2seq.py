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
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from undertow.errors import UndertowError
from undertow.models.backend.device import to_device
from undertow.models.backend.execution import end_tokens_of, list_duplicate_options, unknown_words
from undertow.models.backend.lm_head import in_slices, patched_body_output
from undertow.models.base import (
    EXACT,
    PAPER,
    Capabilities,
    EncodedQuery,
    Ints,
    ModelHandle,
    ModelRequest,
    TokenBatch,
    TokenPath,
    UnsupportedQueryError,
    attempt,
)
from undertow.models.generation.backends import EncoderDecoderTexts
from undertow.models.generation.generation_state import Stops
from undertow.models.generation.generator import Generator, PromptModel
from undertow.models.generation.prompt_encoder import PromptEncoder
from undertow.models.huggingface import BatchReader
from undertow.models.loading.resolve_weights import WeightFiles
from undertow.models.tokens.fill_spans import (
    FillSpan,
    TextWithOffsets,
    fill_offsets,
    locate_fills,
    tokenize_with_offsets,
    with_space,
)
from undertow.models.tokens.option_tokens import Vocabulary
from undertow.types import BLANK, CHOICE, GENERATION, WRITING, ClozeQuery, ModelIdentity, ScoredQuery

if TYPE_CHECKING:
    import torch

SUMMARY = "any AutoModelForSeq2SeqLM that fills gaps (T5, UL2, BART): a hub id or a folder; read in its decoder, or by prompts"
SENTINEL = "<extra_id_{}>"
AUTO, NONE = "auto", "none"
MODES = ("NLU", "NLG", "S2S")
SENTINEL_FIRST = ("NLU", "NLG")
"""Modes in which UL2 writes the sentinel of a gap before its content; in the other mode it continues the text."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What this family lets a user choose."""

    mode: str = field(
        default=AUTO,
        metadata={
            "help": "Mode token of UL2: NLU, NLG, S2S or none; auto: NLU for blanks, S2S for prompts, none for other models."
        },
    )


@dataclass(frozen=True, slots=True)
class Modes:
    """The modes before sentences with blanks and before prompts; "" for none."""

    blanks: str = ""
    prompts: str = ""

    @classmethod
    def from_request(cls, request: ModelRequest, source: str) -> Modes:
        """UL2 was trained with modes, Flan-UL2 to do without.

        Raises:
            UndertowError: there is no such mode.
        """
        mode = request.settings.get("mode", AUTO)
        if mode not in (AUTO, NONE, *MODES):
            raise UndertowError(f"mode {mode!r} is not known; use {', '.join((AUTO, NONE, *MODES))}")
        if mode in MODES:
            return cls(str(mode), str(mode))
        words = re.findall(r"[a-z0-9]+", source.lower())
        return cls("NLU", "S2S") if mode == AUTO and "ul2" in words and "flan" not in words else cls()

    @property
    def scoring_method(self) -> str:
        """How the model is read, for its identity."""
        used = list(dict.fromkeys(mode for mode in (self.blanks, self.prompts) if mode))
        method = Seq2SeqModel.SCORING_METHOD
        return f"{method}, mode{'s' * (len(used) > 1)} {' and '.join(used)}" if used else method

    @property
    def notes(self) -> tuple[str, ...]:
        """A note on the modes."""
        if not self.blanks:
            return ()
        return (
            f"UL2's modes, by its name or as requested: [{self.blanks}] before sentences with blanks, [{self.prompts}] before prompts",
        )


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks of a blank in the encoder's text.

    Attributes:
        tokens: one for each blank, in order (sentinels); or the one mask.
        sentinels: which of the two. With sentinels the decoder writes the fills alone, each after its own; with a mask it
            writes the whole text again.
    """

    tokens: tuple[int, ...]
    sentinels: bool

    def of_blanks(self, n_blanks: int) -> tuple[int, ...]:
        """One for each blank of a sentence.

        Raises:
            UnsupportedQueryError: there are more blanks.
        """
        if not self.sentinels:
            return self.tokens * n_blanks
        if n_blanks > len(self.tokens):
            raise UnsupportedQueryError(
                f"the sentence has more blanks than the model has sentinels ({len(self.tokens)})"
            )
        return self.tokens[:n_blanks]


def _marks(name: str, config: Any, tokenizer: Any) -> Marks:
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
        f"{name}: has neither sentinels ({SENTINEL.format(0)}) nor a mask token that it was trained to fill, so it can fill "
        "no blank; name a model such as T5, UL2 or BART"
    )


def _single(tokenizer: Any, text: str) -> int | None:
    """The one token that a text is, if it is one that the tokenizer knows."""
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    return int(tokens[0]) if len(tokens) == 1 and tokens[0] != tokenizer.unk_token_id else None


class Seq2SeqModel(PromptModel, BatchReader):
    """A loaded encoder-decoder; see `undertow.models.base.TokenModel` and `AnsweringModel`."""

    FAMILY, SCORING_METHOD, OBJECTIVE = "seq2seq", "denoising", "denoising"
    ARCHITECTURES = ("ForConditionalGeneration", "BartModel")
    """The second is what the original BART's files are called, which hold all of its weights."""
    AUTO_CLASS, TRAINED_TO = "AutoModelForSeq2SeqLM", "fill gaps"
    CAPABILITIES: ClassVar[Capabilities] = {
        BLANK: (EXACT, PAPER),
        GENERATION: (EXACT, PAPER),
        CHOICE: (EXACT, PAPER),
        WRITING: (EXACT,),
    }
    NEEDS_OFFSETS = True

    def __init__(self, identity: ModelIdentity, network: Any, tokenizer: Any, modes: Modes = Modes()) -> None:
        super().__init__(identity, network, tokenizer)
        self.modes, self.marks = modes, _marks(identity.name, network.config, tokenizer)
        if modes.blanks and not self.marks.sentinels:
            raise UndertowError(f"{identity.name}: has no modes, which are UL2's; use mode {AUTO} or {NONE}")
        self.opening = _opening(identity, network, tokenizer)
        self.test_head()
        how = "after its sentinel" if self.marks.sentinels else "after the text before it"
        blanks = f"read in the decoder, {how}: probabilities are of the word in its place, not of the whole sentence"
        self.notes = (blanks, *modes.notes)
        self.own_notes = self.prompt_notes = modes.notes
        # What the decoder was trained to write before a text: what the tokenizer puts there, and a gap's sentinel.
        coded = tokenizer("a", return_special_tokens_mask=True)
        before = coded["input_ids"][: coded["special_tokens_mask"].index(0)]
        sentinel = self.marks.tokens[:1] if modes.prompts in SENTINEL_FIRST else ()
        given, vocabulary = (self.opening, *before, *sentinel), Vocabulary(tokenizer)
        encoder = PromptEncoder(
            tokenizer,
            lambda text: list(tokenizer(text)["input_ids"]),
            self.context_tokens,
            vocabulary,
            frame=self._add_mode,
            n_given=len(given),
        )
        self.generator = Generator(
            self, encoder, EncoderDecoderTexts(self, Stops(end_tokens_of(network, tokenizer), vocabulary), given)
        )

    @classmethod
    def handle(cls, request: ModelRequest, weights: WeightFiles) -> ModelHandle:
        """The model with these weights, in its modes."""
        modes = Modes.from_request(request, weights.source)
        identity = weights.identity(request, cls.FAMILY, modes.scoring_method)
        return ModelHandle(
            identity, partial(cls.load, identity, weights, request.device, modes=modes), cls.CAPABILITIES
        )

    @classmethod
    def check_config(cls, name: str, config: Any) -> None:
        """Refuse what is no text encoder-decoder."""
        from transformers import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING

        if type(config) not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING or not config.is_encoder_decoder:
            raise UndertowError(
                f"{name}: is a model of the kind {config.model_type}, which is not a text encoder-decoder; name one such as "
                "T5, UL2 or BART"
            )

    @classmethod
    def adjust_network(cls, network: Any, weights: WeightFiles) -> None:
        """Do not scale what goes into a head of its own; transformers 5 forgets this of umT5."""
        from transformers import PreTrainedConfig

        said, _ = PreTrainedConfig.get_config_dict(weights.location, **weights.options)
        if said.get("tie_word_embeddings") is False:
            network.config.tie_word_embeddings = False

    @property
    def facts(self) -> Mapping[str, str | float]:
        """Facts for model comparison."""
        return {
            **super().facts,
            "objective": f"denoising ({'span corruption' if self.marks.sentinels else 'text infilling'})",
        }

    def _add_mode(self, text: str) -> str:
        """A prompt as its mode wants it."""
        return f"[{self.modes.prompts}] {text} {SENTINEL.format(0)}" if self.modes.prompts else text

    # Sentences with blanks.

    def encode(self, queries: Sequence[ScoredQuery]) -> list[EncodedQuery | UnsupportedQueryError]:
        """Each query as one text for the encoder and one beginning for the decoder per option; see `TokenModel`."""
        prefix = f"[{self.modes.blanks}] " if self.modes.blanks else ""
        texts = [prefix + text for query in queries if isinstance(query, ClozeQuery) for text in query.texts()]
        rows = tokenize_with_offsets(self.tokenizer, texts)
        return [
            attempt(self._encode_query, query, [next(rows) for _ in query.options], len(prefix))
            if isinstance(query, ClozeQuery)
            else UnsupportedQueryError("a model that fills gaps cannot be read going on with a text")
            for query in queries
        ]

    def _encode_query(self, query: ClozeQuery, rows: Sequence[TextWithOffsets], n_before: int) -> EncodedQuery:
        marks = self.marks.of_blanks(len(query.pieces) - 1)
        paths: list[TokenPath] = []
        options: list[tuple[int, ...]] = []
        spaced: list[tuple[int, ...]] = []
        unknown = []
        for number, (text, ids, offsets) in enumerate(rows):
            spans = [(n_before + first, n_before + end) for first, end in fill_offsets(query, number)]
            fills = [locate_fills(text, ids, offsets, [span]).places for span in spans]
            if any(ids[place] == self.tokenizer.unk_token_id for places in fills for place in places):
                unknown.append(number)
                options.append(())
                spaced.append(())
                continue
            if set(marks) & set(ids):
                raise UnsupportedQueryError("the text contains this model's mark of a blank")
            source, written, places = (_fills_alone if self.marks.sentinels else _whole_text)(ids, fills, marks)
            path = self._path(source, written, places)
            if max(len(source), len(written)) > self.context_tokens:
                raise UnsupportedQueryError(
                    f"the text is longer than the {self.context_tokens} tokens that the model reads"
                )
            if paths and source != paths[0].source:
                raise UnsupportedQueryError(
                    "this tokenizer splits the text around an option otherwise than around another"
                )
            options.append((len(paths),))
            paths.append(path)
            initial = self._with_space(query, number, ids, fills)
            spaced.append((len(paths),) if initial else ())
            paths += initial
        if len(unknown) == len(rows):
            raise unknown_words(query, unknown)
        repeats = list_duplicate_options(
            query, [(*paths[one[0]].tokens, paths[one[0]].reads[-1][1]) if one else () for one in options]
        )
        # Rows of one length share a batch, and so the one pass of the encoder. What is fed after the last read changes nothing.
        longest = max(len(path.tokens) for path in paths)
        padded = [replace(one, tokens=one.tokens + (self.opening,) * (longest - len(one.tokens))) for one in paths]
        return EncodedQuery(tuple(padded), repeats, tuple(options), tuple(spaced) if any(spaced) else ())

    def _path(self, source: tuple[int, ...], written: tuple[int, ...], places: tuple[int, ...]) -> TokenPath:
        # The last token is read, not fed.
        return TokenPath((self.opening, *written[:-1]), tuple((at, written[at]) for at in places), source)

    def _with_space(
        self, query: ClozeQuery, number: int, ids: Sequence[int], fills: Sequence[Sequence[int]]
    ) -> list[TokenPath]:
        """An option at the start of a text with a space before it, where the model writes whole texts."""
        if self.marks.sentinels:
            return []
        filled = FillSpan(tuple(ids), tuple(place for fill in fills for place in fill))
        other = with_space(self.tokenizer, query, number, filled)
        if other is None:
            return []
        left, parts = list(other.places), []
        for size in (len(fill) for fill in reversed(fills[1:])):
            parts.append(left[len(left) - size :])
            del left[len(left) - size :]
        return [self._path(*_whole_text(other.tokens, [left, *reversed(parts)], self.marks.of_blanks(len(fills))))]

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
        from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

        fed, kept = (to_device(one, self.network.device) for one in (tokens, places))
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

        yield from in_slices(hidden, self._n_logits(), head)


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
