"""Masked language models from the Hugging Face hub or a local folder, scored at the mask.

    In  1953  ,  [MASK]  was  a  teenager  .
                   ^ log P(she), log P(he), log P(they), from one forward pass; the head sees this row only

At the start of a text a byte-level vocabulary has two tokens for a word, with and without a space; both count, as they do in a
list of the most probable tokens.

A word of several tokens is read whole, left to right: as many masks as it has tokens, then its first token put in, and so on
(a chain, so that its probability is one of a whole word). Several blanks are chained in the same way.

        [MASK] [MASK]   log P(ze)
          ze   [MASK]   log P(##r | ze)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow.models.backend.execution import check_length, list_duplicate_options, to_device
from undertow.models.backend.lm_head import apply_head, last_attention_output, rows_only
from undertow.models.base import Capabilities, EncodedQuery, Ints, TokenBatch, TokenPath
from undertow.models.huggingface import BatchReader
from undertow.models.tokens.fill_spans import FillSpan, TextWithOffsets, fill_offsets, locate_fills, with_space
from undertow.types import BLANK, EXACT, PAPER, ClozeQuery, ModelIdentity

if TYPE_CHECKING:
    import torch

SUMMARY = "any AutoModelForMaskedLM: a hub id or a folder; scored at its mask"


class MaskedModel(BatchReader):
    """A loaded masked model; see `undertow.models.base.TokenModel`."""

    FAMILY, SCORING_METHOD, OBJECTIVE = "masked", "mask", "masked"
    ARCHITECTURES, AUTO_CLASS, TRAINED_TO = ("ForMaskedLM",), "AutoModelForMaskedLM", "fill masks"
    CAPABILITIES: ClassVar[Capabilities] = {BLANK: (EXACT, PAPER)}
    NOTES = ("read at the mask: probabilities are of the word in its place, not of the whole sentence",)
    NEEDS_MASK = NEEDS_OFFSETS = True
    CPU_BUDGET_TOKENS = 512
    """Up to 1,024 tokens at once take the same processor time, and more memory."""

    def __init__(self, identity: ModelIdentity, network: Any, tokenizer: Any) -> None:
        super().__init__(identity, network, tokenizer)
        self.last_output = last_attention_output(network)
        self.test_head()
        if self.last_output is not None and not self.head_apart:
            self.last_output = None
            self.test_head()

    def _encode_query(self, query: ClozeQuery, rows: Sequence[TextWithOffsets]) -> EncodedQuery:
        spans = [locate_fills(*row, fill_offsets(query, number)) for number, row in enumerate(rows)]
        check_length(max(len(one.tokens) for one in spans), self.context_tokens)
        known = [None if self.tokenizer.unk_token_id in one.fill_tokens else one for one in spans]
        duplicates = list_duplicate_options(query, [one.tokens if one else () for one in known])
        paths: list[TokenPath] = []

        def add(one: FillSpan | None) -> tuple[int, ...]:
            """All tokens of the fills masked; then the first one put in and the rest masked; and so on."""
            if one is None:
                return ()
            start, masked = len(paths), list(one.tokens)
            for place in one.places:
                masked[place] = self.tokenizer.mask_token_id
            for place in one.places:
                paths.append(TokenPath(tuple(masked), ((place, one.tokens[place]),)))
                masked[place] = one.tokens[place]
            return tuple(range(start, len(paths)))

        options = tuple(map(add, known))
        initial = [
            with_space(self.tokenizer, query, at, one) if one and at not in duplicates else None
            for at, one in enumerate(known)
        ]
        spaced = tuple(map(add, initial)) if any(initial) else ()
        return EncodedQuery(tuple(paths), duplicates, options, spaced, bidirectional=True)

    def _whole_logits(self, batch: TokenBatch) -> torch.Tensor:
        logits: torch.Tensor = self.network(input_ids=to_device(batch.tokens, self.network.device)).logits
        return logits

    def _logits(self, batch: TokenBatch, places: Ints) -> Iterator[torch.Tensor]:
        kept = to_device(places, self.network.device)
        if not self.head_apart:
            yield self._whole_logits(batch).flatten(0, 1)[kept].float()
            return
        tokens, body = to_device(batch.tokens, self.network.device), self.network.base_model
        if self.last_output is None:
            hidden = body(input_ids=tokens)[0].flatten(0, 1)[kept]
        else:
            with rows_only(self.last_output, kept):
                hidden = body(input_ids=tokens)[0][0]
        yield from apply_head(self.network, body, hidden, self._n_logits(), input_ids=tokens[:1, :1])


MODEL = MaskedModel
resolve = MODEL.resolve
