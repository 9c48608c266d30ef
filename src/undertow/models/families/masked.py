"""Masked language models from the Hugging Face hub or a local folder, read at the mask.

    In  1953  ,  [MASK]  was  a  teenager  .
                   ^ log P(she), log P(he), log P(they), from one forward pass; the head sees this row only

A word of several tokens is read whole, left to right: as many masks as it has tokens, then its first token put in, and so on
(a chain, so that its probability is one of a whole word). Several blanks are chained in the same way.

        [MASK] [MASK]   log P(ze)
          ze   [MASK]   log P(##r | ze)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import UndertowError
from undertow.models.backend.device import logits_at_once, to_device, tokens_per_pass
from undertow.models.backend.execution import context_tokens, list_duplicate_options, oom_errors, unknown_words
from undertow.models.backend.lm_head import (
    flat_positions,
    head_is_position_wise,
    in_slices,
    patched_body_output,
    read_at,
)
from undertow.models.backend.onednn import weight_bytes
from undertow.models.base import (  # fmt: skip
    EXACT,
    PAPER,
    BatchLimits,
    EncodedQuery,
    Ints,
    ModelHandle,
    ModelRequest,
    PackedTree,
    TokenBatch,
    TokenPath,
    UnsupportedQueryError,
)
from undertow.models.loading.library_contexts import loading_errors
from undertow.models.loading.load_network import load_checked, load_tokenizer
from undertow.models.loading.resolve_weights import WeightFiles, resolve_weights
from undertow.models.tokens.fill_spans import FillSpan, fill_offsets, locate_fills
from undertow.types import BLANK, ClozeQuery, Floats, ModelIdentity, ScoredQuery

if TYPE_CHECKING:
    import torch

SUMMARY = "any AutoModelForMaskedLM: a hub id or a folder; read at its mask"
ARCHITECTURES = ("ForMaskedLM",)
CPU_BUDGET_TOKENS = 512
"""Up to 1,024 tokens at once take the same processor time, and more memory."""
GPU_BUDGET_TOKENS = 32_768
SCORING_METHOD = "mask"


def resolve(request: ModelRequest) -> ModelHandle | None:
    """The model, if the request names a masked one.

    Raises:
        UndertowError: it cannot be found, or is of another family.
    """
    weights = resolve_weights(request, ARCHITECTURES)
    if weights is None:
        return None
    identity = weights.identity(request, "masked", SCORING_METHOD)
    return ModelHandle(
        identity, partial(_open, identity, weights, request.device), capabilities={BLANK: (EXACT, PAPER)}
    )


def _open(identity: ModelIdentity, weights: WeightFiles, device: str) -> MaskedModel:
    with loading_errors(identity.name):
        from transformers import AutoModelForMaskedLM

        tokenizer = load_tokenizer(identity.name, weights)
        if tokenizer.mask_token_id is None:
            raise UndertowError(f"{identity.name}: its tokenizer has no mask token, so nothing can be masked")
        if not tokenizer.is_fast:
            raise UndertowError(
                f"{identity.name}: its tokenizer does not say which characters a token stands for; save a fast one (tokenizer.json)"
            )
        return load_checked(
            identity,
            weights,
            device,
            kind=AutoModelForMaskedLM,
            trained_to="fill masks",
            tokenizer=tokenizer,
            wrap=partial(MaskedModel.from_network, identity, tokenizer=tokenizer),
        )


@dataclass(slots=True)
class MaskedModel:
    """A loaded masked model; see `undertow.models.base.TokenModel`."""

    identity: ModelIdentity
    network: Any
    tokenizer: Any
    limits: BatchLimits
    notes: tuple[str, ...]
    context_tokens: int
    head_apart: bool = True

    @classmethod
    def from_network(cls, identity: ModelIdentity, network: Any, tokenizer: Any) -> MaskedModel:
        """Wrap a network and its tokenizer, and find out whether its head can be applied to single rows."""
        model = cls(
            identity, network, tokenizer, BatchLimits(CPU_BUDGET_TOKENS, 0), (), context_tokens(network, tokenizer)
        )
        budget = tokens_per_pass(network, model.memory_bytes, processor=CPU_BUDGET_TOKENS, gpu=GPU_BUDGET_TOKENS)
        model.limits = BatchLimits(budget, 0)
        model.head_apart = _head_stands_alone(model)
        model.notes = ("read at the mask: probabilities are of the word in its place, not of the whole sentence",)
        return model

    def encode(self, queries: Sequence[ScoredQuery]) -> list[EncodedQuery | UnsupportedQueryError]:
        """Each query as masked texts; see `undertow.models.base.TokenModel`."""
        texts = [text for query in queries if isinstance(query, ClozeQuery) for text in query.texts()]
        places = [
            fill_offsets(query, number)
            for query in queries
            if isinstance(query, ClozeQuery)
            for number in range(len(query.options))
        ]
        filled = iter(self._fill_spans(texts, places))
        return [
            self._encode_query(query, [next(filled) for _ in query.options])
            if isinstance(query, ClozeQuery)
            else UnsupportedQueryError("a masked model fills blanks; it cannot go on with a text")
            for query in queries
        ]

    def _fill_spans(
        self, texts: Sequence[str], places: Sequence[list[tuple[int, int]]]
    ) -> Iterator[FillSpan | UnsupportedQueryError]:
        if not texts:
            return
        coded = self.tokenizer(list(texts), return_offsets_mapping=True, return_special_tokens_mask=True)
        for row, (text, own) in enumerate(zip(texts, places, strict=True)):
            special, offsets = coded["special_tokens_mask"][row], coded["offset_mapping"][row]
            ids = tuple(coded["input_ids"][row])
            yield locate_fills(
                text, own, ids, [None if mark else span for mark, span in zip(special, offsets, strict=True)]
            )

    def _encode_query(
        self, query: ClozeQuery, filled: Sequence[FillSpan | UnsupportedQueryError]
    ) -> EncodedQuery | UnsupportedQueryError:
        whole: list[FillSpan] = []
        for one in filled:
            if isinstance(one, UnsupportedQueryError):
                return one
            if len(one.tokens) > self.context_tokens:
                return UnsupportedQueryError(
                    f"the text is longer than the {self.context_tokens} tokens that the model reads"
                )
            whole.append(one)
        unknown = [
            option
            for option, one in enumerate(whole)
            if any(one.tokens[place] == self.tokenizer.unk_token_id for place in one.places)
        ]
        if unknown:
            return unknown_words(query, unknown)
        repeats = list_duplicate_options(query, [one.tokens for one in whole])
        if isinstance(repeats, UnsupportedQueryError):
            return repeats
        paths: list[TokenPath] = []
        options = []
        for one in whole:
            chain = _chain(one, self.tokenizer.mask_token_id)
            options.append(tuple(range(len(paths), len(paths) + len(chain))))
            paths += chain
        return EncodedQuery(tuple(paths), repeats, tuple(options), bidirectional=True)

    def read_tree(self, tree: PackedTree) -> Floats:
        """Not supported: a masked model sees the whole text, so texts share no prefix."""
        raise NotImplementedError("masked models are read in batches")

    def read_batch(self, batch: TokenBatch) -> Floats:
        """One forward over texts of one length; the head at the places that are read [read]."""
        return self.read_top(batch, 0)

    def read_top(self, batch: TokenBatch, top: int) -> Floats:
        """The same, minus infinity for what is not among so many most probable tokens; 0 for all of them [read]."""
        import torch

        tokens = to_device(batch.tokens, self.network.device)
        with torch.inference_mode(), oom_errors():
            return read_at(flat_positions(batch), batch.read_tokens, partial(self._logits, tokens), tokens.device, top)

    def _logits(self, tokens: torch.Tensor, places: Ints) -> Iterator[torch.Tensor]:
        """Logits at the places, a few rows at a time [row, vocabulary], in float32."""
        from transformers.modeling_outputs import BaseModelOutput

        kept = to_device(places, tokens.device)
        if not self.head_apart:
            yield self.network(input_ids=tokens).logits.flatten(0, 1)[kept].float()
            return
        hidden = self.network.base_model(input_ids=tokens)[0].flatten(0, 1)[kept]
        body = self.network.base_model

        def head(rows: torch.Tensor) -> torch.Tensor:
            with patched_body_output(body, BaseModelOutput(last_hidden_state=rows[None])):
                logits: torch.Tensor = self.network(input_ids=tokens[:1, :1]).logits[0]
            return logits

        yield from in_slices(hidden, int(self.network.config.vocab_size), head)

    @property
    def facts(self) -> Mapping[str, str | float]:
        """Facts for model comparison."""
        return {"parameters": float(self.network.num_parameters()), "objective": "masked", "post_training": ""}

    def memory_bytes(self, budget_tokens: int) -> int:
        """Weights, one forward pass and one slice of logits with what its normaliser needs, in bytes."""
        weights = weight_bytes(self.network)
        config = self.network.config.get_text_config()
        hidden = int(getattr(config, "hidden_size", 0) or getattr(config, "dim", 0) or getattr(config, "d_model", 768))
        activations = 4 * budget_tokens * 8 * 4 * hidden
        at_once = min(logits_at_once(self.network.device), budget_tokens * int(config.vocab_size))
        return int(weights + activations + 2 * 4 * at_once)


def _chain(filled: FillSpan, mask: int) -> list[TokenPath]:
    """All tokens of the fills masked; then the first one put in and the rest masked; and so on."""
    masked = list(filled.tokens)
    for place in filled.places:
        masked[place] = mask
    chain = []
    for place in filled.places:
        chain.append(TokenPath(tuple(masked), ((place, filled.tokens[place]),)))
        masked[place] = filled.tokens[place]
    return chain


def _head_stands_alone(model: MaskedModel) -> bool:
    """Whether the head says of single rows what it says of them in the whole text; some look at their neighbours."""
    import torch

    vocabulary = int(model.network.config.vocab_size)
    draws = np.random.default_rng(0).integers(vocabulary // 4, max(vocabulary // 2, 2), size=(2, 9))
    tokens = torch.from_numpy(draws).to(model.network.device)
    places = np.array([3, 12])
    with torch.inference_mode():
        expected = model.network(input_ids=tokens).logits.flatten(0, 1)[torch.from_numpy(places)].float()
        return head_is_position_wise(
            model.identity.name, model.identity.dtype, expected, lambda: model._logits(tokens, places)
        )
