"""The base of the families from Hugging Face: find the files, load, check, wrap and describe a network of transformers.

resolve(request)   files and identity    no weights yet
load(...)          network, tokenizer    every weight checked, on its device, packed for oneDNN
from_network(...)  model                 how it can be read is tested on the network itself; also for a network in memory
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np

from undertow.errors import UndertowError
from undertow.models.backend.execution import (
    AGREEMENT_NATS,
    FORWARD_ERRORS,
    chosen_device,
    context_tokens,
    is_oom,
    logits_at_once,
    oom_errors,
    tokens_per_pass,
)
from undertow.models.backend.lm_head import flat_positions, read_at
from undertow.models.backend.onednn import accelerated, weight_bytes
from undertow.models.base import (
    CHAT_TRAINED,
    IN_MEMORY,
    BatchLimits,
    Capabilities,
    CostEstimate,
    EncodedQuery,
    IndexedQuery,
    Ints,
    ModelHandle,
    ModelRequest,
    Outcome,
    PackedTree,
    TokenBatch,
    UnsupportedQueryError,
    attempt,
)
from undertow.models.loading.check_weights import check_finite, check_tokens
from undertow.models.loading.library_contexts import loading_errors
from undertow.models.loading.load_network import (
    adapters_of,
    fingerprint,
    load_network,
    load_tokenizer,
    settings_of,
    spelling_of,
)
from undertow.models.loading.resolve_weights import WeightFiles, read_gguf, resolve_weights
from undertow.models.tokens.fill_spans import TextWithOffsets, tokenize_with_offsets
from undertow.types import ClozeQuery, Floats, ModelIdentity, Query, ScoredQuery, digest

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


class HuggingFaceModel:
    """A network of transformers with its tokenizer.

    Attributes:
        ARCHITECTURES, AUTO_CLASS: endings of the class names of its networks, and the class of transformers that loads them.
        TRAINED_TO: what the head is needed for, as in *trained to fill masks*.
        SCORING_METHOD, OBJECTIVE: parts of the model's identity and of its facts.
        TEXT_MAPPING, WRONG_KIND: the mapping of transformers that has its kinds of network, and what to say of any other kind.
        NEEDS_ENCODER, NEEDS_MASK, NEEDS_OFFSETS: whether the network must have an encoder and a decoder, and the tokenizer a mask token,
            or offsets of tokens.
        CPU_BUDGET_TOKENS, GPU_BUDGET_TOKENS: efficient number of tokens of a pass.
    """

    FAMILY: ClassVar[str]
    ARCHITECTURES: ClassVar[tuple[str, ...]]
    AUTO_CLASS: ClassVar[str]
    TRAINED_TO: ClassVar[str]
    SCORING_METHOD: ClassVar[str]
    OBJECTIVE: ClassVar[str]
    CAPABILITIES: ClassVar[Capabilities]
    NOTES: ClassVar[tuple[str, ...]] = ()
    TEXT_MAPPING: ClassVar[str] = ""
    WRONG_KIND: ClassVar[str] = ""
    NEEDS_ENCODER: ClassVar[bool] = False
    NEEDS_MASK: ClassVar[bool] = False
    NEEDS_OFFSETS: ClassVar[bool] = False
    CPU_BUDGET_TOKENS: ClassVar[int] = 1024
    GPU_BUDGET_TOKENS: ClassVar[int] = 32_768

    def __init__(self, identity: ModelIdentity, network: Any, tokenizer: Any) -> None:
        self.identity, self.network, self.tokenizer = identity, network, tokenizer
        self.notes = self.NOTES
        self.context_tokens = context_tokens(network, tokenizer)
        cpu, gpu = self.CPU_BUDGET_TOKENS, self.GPU_BUDGET_TOKENS
        self.limits = BatchLimits(tokens_per_pass(network, self.memory_bytes, processor=cpu, gpu=gpu), 0)

    @classmethod
    def resolve(cls, request: ModelRequest) -> ModelHandle | None:
        """The model, if the request names one of this family."""
        weights = resolve_weights(request, cls.ARCHITECTURES)
        return None if weights is None else cls.handle(request, weights)

    @classmethod
    def handle(cls, request: ModelRequest, weights: WeightFiles) -> ModelHandle:
        """The model with these weights."""
        identity = weights.identity(request, cls.FAMILY, cls.SCORING_METHOD)
        return ModelHandle(identity, partial(cls.load, identity, weights, request.device), cls.CAPABILITIES)

    @classmethod
    def load(cls, identity: ModelIdentity, weights: WeightFiles, device: str, **settings: Any) -> Self:
        """Load network and tokenizer, check them, and wrap them.

        Raises:
            UndertowError: names the file, the weight or the token that is missing.
        """
        if weights.gguf is not None:
            read_gguf(weights)  # before torch is imported
        with loading_errors(identity.name):
            import torch
            import transformers
            from transformers import AutoConfig

            tokenizer = load_tokenizer(identity.name, weights)
            if weights.gguf is None:
                config = AutoConfig.from_pretrained(weights.location, **weights.options)
                cls.check_config(identity.name, config)
            cls.adjust_tokenizer(tokenizer, weights)
            cls.check_tokenizer(identity.name, tokenizer)
            chosen = chosen_device(device)
            kind, dtype = getattr(transformers, cls.AUTO_CLASS), getattr(torch, identity.dtype)
            network, notes = load_network(identity.name, weights, kind, cls.TRAINED_TO, dtype=dtype)
            check_tokens(identity.name, network, tokenizer, from_gguf=weights.gguf is not None)
            check_finite(identity.name, network)
            network.weights_digest = fingerprint(network)
            network = network.eval().to(chosen)
            cls.adjust_network(network, weights)
            model = accelerated(network, lambda packed: cls.from_network(packed, tokenizer, identity, **settings))
            model.notes = (*notes, *model.notes)
            return model

    @classmethod
    def adjust_tokenizer(cls, tokenizer: Any, weights: WeightFiles) -> None:
        """Set what transformers does not read from the tokenizer's files."""

    @classmethod
    def adjust_network(cls, network: Any, weights: WeightFiles) -> None:
        """Set what transformers does not read from the files."""

    @classmethod
    def check_config(cls, name: str, config: Any) -> None:
        """Refuse a kind of network that this family cannot read, before it is loaded."""
        import transformers

        known = not cls.TEXT_MAPPING or type(config) in getattr(transformers, cls.TEXT_MAPPING)
        if not known or (cls.NEEDS_ENCODER and not config.is_encoder_decoder):
            raise UndertowError(f"{name}: is a model of the kind {config.model_type}, {cls.WRONG_KIND}")

    @classmethod
    def check_tokenizer(cls, name: str, tokenizer: Any) -> None:
        """Refuse a tokenizer that lacks what this family needs."""
        if cls.NEEDS_MASK and tokenizer.mask_token_id is None:
            raise UndertowError(
                f"{name}: its tokenizer has no mask token, so no word can be hidden; name a model that was trained on masked words"
            )
        if cls.NEEDS_OFFSETS and not tokenizer.is_fast:
            raise UndertowError(
                f"{name}: its tokenizer has no character offsets of tokens; save a fast one (tokenizer.json)"
            )

    @classmethod
    def from_network(cls, network: Any, tokenizer: Any, identity: ModelIdentity, **settings: Any) -> Self:
        """Wrap a network that is loaded already and on its device, and test how it can be read.

        The network is in evaluation mode from then on, and a causal one may have attention that takes blocks; its weights are not
        changed. `undertow.models.backend.execution.preserve` undoes both.

        Raises:
            UndertowError: the tokenizer lacks what the family needs, or the network does not give probabilities.
        """
        cls.check_config(identity.name, network.config)
        cls.check_tokenizer(identity.name, tokenizer)
        if identity.source == IN_MEMORY:
            check_tokens(identity.name, network, tokenizer, from_gguf=False)
            check_finite(identity.name, network)
        network.eval()
        return cls(identity, network, tokenizer, **settings)

    @classmethod
    def identify(cls, network: Any, tokenizer: Any, name: str) -> ModelIdentity:
        """The identity of a network in memory: other weights, adapters, settings or another tokenizer are another model."""
        weights, dtype = fingerprint(network, whole=True), str(network.dtype).removeprefix("torch.")
        parts = [weights, settings_of(network.config), adapters_of(network), spelling_of(tokenizer)]
        return ModelIdentity(name, cls.FAMILY, IN_MEMORY, digest(parts), dtype, cls.SCORING_METHOD)

    @property
    def facts(self) -> Mapping[str, str | float]:
        """Facts for model comparison; a chat template implies instruction tuning."""
        return {
            "parameters": float(self.network.num_parameters()),
            "objective": self.OBJECTIVE,
            "post_training": CHAT_TRAINED if self.tokenizer.chat_template else "",
        }

    def memory_bytes(self, budget_tokens: int) -> int:
        """Weights, activations of one forward pass, and one slice of logits with what its normaliser needs, in bytes."""
        config = self.network.config.get_text_config()
        dims = (int(getattr(config, name, 0) or 0) for name in ("hidden_size", "dim", "d_model"))
        wide = (int(getattr(config, name, 0) or 0) for name in ("intermediate_size", "d_ff", "encoder_ffn_dim"))
        width = max(4 * (max(dims) or 768), *wide)
        logits = min(logits_at_once(self.network.device), budget_tokens * self._n_logits())
        return int(weight_bytes(self.network) + 4 * budget_tokens * 8 * width + 2 * 4 * logits)

    def _n_logits(self) -> int:
        """Tokens that the head gives a logit; 0 without a head over the vocabulary."""
        head = self.network.get_output_embeddings()
        return 0 if head is None else int(head.weight.shape[0])


class BatchReader(HuggingFaceModel, ABC):
    """A model that is read in batches of texts of one length; see `undertow.models.base.TokenModel`."""

    head_apart: bool = True
    prefix: str = ""
    """Text before every sentence."""

    def encode(self, queries: Sequence[ScoredQuery]) -> list[EncodedQuery | UnsupportedQueryError]:
        """Each query in tokens, one text per option; see `undertow.models.base.TokenModel`."""
        blanks = cast(Sequence[ClozeQuery], queries)  # the runner refuses others
        rows = tokenize_with_offsets(self.tokenizer, [self.prefix + text for query in blanks for text in query.texts()])
        return [attempt(self._encode_query, query, [next(rows) for _ in query.options]) for query in blanks]

    @abstractmethod
    def _encode_query(self, query: ClozeQuery, rows: Sequence[TextWithOffsets]) -> EncodedQuery:
        """A query from its tokenized texts [option]."""

    @abstractmethod
    def _logits(self, batch: TokenBatch, places: Ints) -> Iterator[torch.Tensor]:
        """Logits at flat positions of a batch, a few rows at a time [row, vocabulary], in float32."""

    @abstractmethod
    def _whole_logits(self, batch: TokenBatch) -> torch.Tensor:
        """Logits of one forward pass of the whole network [row, position, vocabulary]."""

    def read_tree(self, tree: PackedTree) -> Floats:
        """Not supported: such a model sees more than what precedes a word, so texts share no prefix."""
        raise NotImplementedError(f"{self.FAMILY} models are read in batches")

    def read_batch(self, batch: TokenBatch) -> Floats:
        """One forward over texts of one length; the head at the places that are read [read]."""
        return self.read_top(batch, 0)

    def read_top(self, batch: TokenBatch, top: int) -> Floats:
        """The same, minus infinity for what is not among so many most probable tokens; 0 for all of them [read]."""
        import torch

        with torch.inference_mode(), oom_errors():
            logits = partial(self._logits, batch)
            return read_at(flat_positions(batch), batch.read_tokens, logits, self.network.device, top)

    def test_head(self) -> None:
        """Find out whether the head can be applied to single rows; some heads look at their neighbours.

        Raises:
            UndertowError: the network's probabilities are not numbers.
        """
        import torch

        self.head_apart, n_tokens = True, self._n_logits()
        draws = np.random.default_rng(0).integers(n_tokens // 4, max(n_tokens // 2, 2), size=33)
        nothing, sources = np.zeros(0, dtype=np.int64), draws[15:].reshape(2, 9)
        batch = TokenBatch(draws[:15].reshape(3, 5), nothing, nothing, nothing, sources, np.array([0, 1, 0]))
        places = np.array([3, 6, 14])
        with torch.inference_mode():
            expected = self._whole_logits(batch).flatten(0, 1)[torch.from_numpy(places)].float()
            if not torch.isfinite(expected).all():
                fix = "use other weights" if self.identity.dtype != "float16" else "choose --dtype bfloat16 or float32"
                raise UndertowError(f"{self.identity.name}: its weights give probabilities that are not numbers; {fix}")
            try:
                actual = torch.cat(list(self._logits(batch, places)))
            except FORWARD_ERRORS as error:
                if is_oom(error):
                    raise
                self.head_apart = False
                return
        nats, tolerance = (actual.log_softmax(-1), expected.log_softmax(-1)), AGREEMENT_NATS[self.identity.dtype]
        self.head_apart = actual.shape == expected.shape and torch.allclose(*nats, rtol=0.0, atol=tolerance)


Encoded = TypeVar("Encoded", bound=IndexedQuery)


class PackedAnswers(HuggingFaceModel, ABC, Generic[Encoded]):
    """Answers whole queries, pack by pack; see `undertow.models.base.AnsweringModel`."""

    @abstractmethod
    def encode_queries(self, queries: Sequence[Query]) -> Sequence[Encoded | UnsupportedQueryError]:
        """Each query in tokens, with its `place`, or why it is not supported, in order."""

    def split_queries(self, queries: Sequence[Query]) -> tuple[list[Encoded], dict[int, UnsupportedQueryError]]:
        """Encoded queries, and errors for unsupported ones by index."""
        encoded = self.encode_queries(queries)
        refused = {place: one for place, one in enumerate(encoded) if isinstance(one, UnsupportedQueryError)}
        return [one for one in encoded if not isinstance(one, UnsupportedQueryError)], refused

    @abstractmethod
    def cut_packs(self, encoded: Sequence[Encoded]) -> Iterable[list[Encoded]]:
        """Packs of queries that are answered together, equal for equal queries."""

    @abstractmethod
    def answer_pack(self, pack: Sequence[Encoded], protocol: str) -> dict[int, Outcome]:
        """Answers of a pack by index of the query."""

    @abstractmethod
    def pack_cost(self, pack: Sequence[Encoded]) -> CostEstimate:
        """Tokens, passes and memory of a pack."""

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Outcome]]:
        """Answers pack by pack; unsupported queries first."""
        encoded, refused = self.split_queries(queries)
        if refused:
            yield refused
        for pack in self.cut_packs(encoded):
            yield self.answer_pack(pack, protocol)

    def packs(self, queries: Sequence[Query]) -> Iterable[list[int]]:
        """Indices of the queries of each pack; unsupported ones first."""
        encoded, refused = self.split_queries(queries)
        packs = [[one.place for one in pack] for pack in self.cut_packs(encoded)]
        return [list(refused), *packs] if refused else packs

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        """The estimated cost, from one timed pack."""
        packs = list(self.cut_packs(self.split_queries(queries)[0]))
        costs = [self.pack_cost(pack) for pack in packs]
        n_tokens, seconds = sum(cost.n_tokens for cost in costs), 0.0
        if packs:
            timed = len(packs) // 2
            self.answer_pack(packs[timed][:1], protocol)  # the first pass also sets up kernels and threads
            started = time.perf_counter()
            self.answer_pack(packs[timed], protocol)
            seconds = (time.perf_counter() - started) * n_tokens / costs[timed].n_tokens
        memory = max([cost.memory_bytes for cost in costs], default=self.memory_bytes(1))
        return CostEstimate(n_tokens, sum(cost.n_passes for cost in costs), seconds, memory)


def group_by_length(
    rows: Iterable[T], text_of: Callable[[T], Any], lengths: Callable[[Any], list[int]], budget_tokens: int
) -> list[list[T]]:
    """Packs of queries whose texts are as long as each other's, so that nothing is padded, the longest first.

    `text_of` returns what the network reads of a query, once for all that have the same, and `lengths` those of a text's parts, which
    are equal in a pack.
    """
    by_text: dict[Any, list[T]] = {}
    for row in rows:
        by_text.setdefault(text_of(row), []).append(row)
    packs: list[list[T]] = []
    before: list[int] = []
    n_tokens = 0
    for text in sorted(by_text, key=lambda text: ([-n for n in lengths(text)], text)):
        own = lengths(text)
        if own != before or n_tokens + sum(own) > budget_tokens:
            packs.append([])
            before, n_tokens = own, 0
        packs[-1] += by_text[text]
        n_tokens += sum(own)
    return packs
