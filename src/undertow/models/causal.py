"""Causal language models from Hugging Face, a local folder or a GGUF file, read by likelihood.

The hot path: one forward over a packed prefix tree, a mask that lets each node see its own ancestors only, positions
equal to depth, and the head applied a slice of rows at a time, so that [tokens, vocabulary] is never held whole.

    node     0   1   2    3    4     5    6      ends of subtrees: 7 7 5 4 5 7 7
             In  X   she  was  is    he   was
    sees     0  01  012 0123 012,4 01,5 01,56    node j sees i  iff  i <= j < ends[i]
    depth    0   1   2    3    3     2    3

Knows torch and transformers; both are imported when a model is opened, not before. Knows nothing about what is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.models.base import (
    Encoded,
    Found,
    Ints,
    Limits,
    Request,
    TokenBatch,
    TokenPath,
    TokenTree,
    UnscorableError,
)
from undertow.models.weights import Weights, explain_loading, find_weights
from undertow.types import Blank, Floats, ModelCard, Query, UndertowError

if TYPE_CHECKING:
    import torch

SUMMARY = "any AutoModelForCausalLM: a hub id, a folder, or a GGUF file; read by sentence likelihood"
ARCHITECTURES = ("ForCausalLM", "LMHeadModel")
CPU_BUDGET_TOKENS = 400
"""Beyond this the tree's attention, which grows with the square, costs more than larger matrices save."""
GPU_BUDGET_TOKENS = 8192
LOGITS_AT_ONCE = 2**22
"""Logits held at a time: 16 MiB in float32, whatever the vocabulary. Four times as many were no faster."""
AGREEMENT_NATS = {"float32": 1e-3, "bfloat16": 0.5, "float16": 0.1}
"""How far the tree reading may be from plain batches before it is given up: rounding, not another attention."""


def find(request: Request) -> Found | None:
    """The model, if the request names a causal one.

    Raises:
        UndertowError: it cannot be found, or is of another family.
    """
    weights = find_weights(request, ARCHITECTURES)
    if weights is None:
        return None
    card = ModelCard(
        name=request.name,
        family="causal",
        source=weights.source,
        revision=weights.revision,
        dtype=request.dtype,
        readout="likelihood",
    )
    return Found(card, partial(_open, card, weights, request.device))


def _open(card: ModelCard, weights: Weights, device: str) -> CausalModel:
    with explain_loading(card.name):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        chosen = _device(device)
        tokenizer = AutoTokenizer.from_pretrained(weights.location, **weights.options)
        network = AutoModelForCausalLM.from_pretrained(
            weights.location, dtype=getattr(torch, card.dtype), use_safetensors=True, **weights.options
        )
        return CausalModel.of(card, network.eval().to(chosen), tokenizer)


def _device(wanted: str) -> str:
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=wanted)
    except (RuntimeError, AssertionError) as error:
        raise UndertowError(f"device {wanted!r} cannot be used here ({str(error).splitlines()[0]}); try cpu") from error
    return wanted


@dataclass(slots=True)
class CausalModel:
    """A loaded causal model; see `undertow.models.base.TokenModel`."""

    card: ModelCard
    network: Any
    tokenizer: Any
    limits: Limits
    notes: tuple[str, ...]
    context_tokens: int
    head_apart: bool = True

    @classmethod
    def of(cls, card: ModelCard, network: Any, tokenizer: Any) -> CausalModel:
        """Wrap a network and its tokenizer, and find out whether its attention can take a tree."""
        config = network.config.get_text_config()
        context = int(getattr(config, "max_position_embeddings", 0) or 2**20)
        budget = GPU_BUDGET_TOKENS if network.device.type == "cuda" else CPU_BUDGET_TOKENS
        model = cls(card, network, tokenizer, Limits(budget, context), (), context)
        refusal = _check_reading(model)
        depth = 0 if refusal else min(context, _window(config))
        model.limits = Limits(budget, depth)
        if refusal:
            model.notes += (f"read in plain batches, since {refusal}",)
        model.notes += (_start_note(tokenizer),)
        return model

    def encode(self, queries: Sequence[Query]) -> list[Encoded | UnscorableError]:
        """Each query as one token path per option; see `undertow.models.base.TokenModel`."""
        contexts = [query.pieces[0].rstrip() if isinstance(query, Blank) else query.context for query in queries]
        texts = [_texts(query) for query in queries]
        before = self._tokens(contexts)
        whole = iter(self._tokens([text for options in texts for text in options]))
        return [
            self._paths(context, [next(whole) for _ in options]) for context, options in zip(before, texts, strict=True)
        ]

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        ids: list[list[int]] = self.tokenizer(list(texts), return_attention_mask=False)["input_ids"]
        ends = self.tokenizer.eos_token_id
        # Some tokenizers close every text; what is scored is the text, not its end.
        closes = bool(ids) and ends is not None and self.tokenizer("a")["input_ids"][-1] == ends
        return [tokens[:-1] if closes and tokens and tokens[-1] == ends else tokens for tokens in ids]

    def _paths(self, context: list[int], options: list[list[int]]) -> Encoded | UnscorableError:
        # Where a token spans the end of the context, all options are read from before it, so that
        # they stay conditioned on the same tokens.
        start = min(_common(context, tokens) for tokens in options)
        if start == 0:
            opening = self._opening()
            if opening is None:
                return UnscorableError(
                    "the sentence begins with its blank, and this tokenizer has no token that begins a text"
                )
            options, start = [[opening, *tokens] for tokens in options], 1
        for tokens in options:
            if len(tokens) <= start:
                return UnscorableError("an option adds nothing to the text before it")
            if len(tokens) - 1 > self.context_tokens:
                return UnscorableError(f"the text is longer than the {self.context_tokens} tokens that the model reads")
            unknown = self.tokenizer.unk_token_id
            if unknown is not None and unknown in tokens[start:]:
                return UnscorableError("an option holds a character that this tokenizer cannot spell")
        return Encoded(tuple(_path(tokens, start) for tokens in options))

    def _opening(self) -> int | None:
        for token in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        return None

    def read_tree(self, tree: TokenTree) -> Floats:
        """One forward over the whole tree [read]."""
        import torch

        device = self.network.device
        with torch.inference_mode(), _explain_memory():
            node = torch.arange(len(tree.tokens), device=device)
            ends = torch.from_numpy(tree.ends).to(device)
            sees = (node[None, :] <= node[:, None]) & (node[:, None] < ends[None, :])  # [node j, node i]
            mask = torch.zeros(sees.shape, dtype=self.network.dtype, device=device)
            mask.masked_fill_(~sees, torch.finfo(mask.dtype).min)
            inputs = {
                "input_ids": torch.from_numpy(tree.tokens).to(device)[None],
                "position_ids": torch.from_numpy(tree.depths).to(device)[None],
                "attention_mask": mask[None, None],
            }
            return self._read(inputs, tree.read_nodes, tree.read_tokens)

    def read_batch(self, batch: TokenBatch) -> Floats:
        """One forward over texts of one length, without mask or padding [read]."""
        import torch

        length = batch.tokens.shape[1]
        with torch.inference_mode(), _explain_memory():
            inputs = {"input_ids": torch.from_numpy(batch.tokens).to(self.network.device)}
            return self._read(inputs, batch.read_rows * length + batch.read_positions, batch.read_tokens)

    def _read(self, inputs: dict[str, torch.Tensor], places: Ints, tokens: Ints) -> Floats:
        """Log P(token) after each place, a place being row x length + position; the head sees these places only."""
        import torch

        device = self.network.device
        distinct, place_of_read = np.unique(places, return_inverse=True)
        at, wanted = torch.from_numpy(place_of_read).to(device), torch.from_numpy(tokens).to(device)
        kept = torch.from_numpy(distinct).to(device)
        logprobs = torch.empty(len(tokens), dtype=torch.float32, device=device)
        if self.head_apart:
            body = self.network.base_model(**inputs, use_cache=False)[0].flatten(0, 1)[kept]
            slices = self._head_slices(body)
        else:
            slices = iter([self.network(**inputs, use_cache=False).logits.flatten(0, 1)[kept].float()])
        start = 0
        for logits in slices:
            stop = start + len(logits)
            here = (at >= start) & (at < stop)
            rows = at[here] - start
            logprobs[here] = logits[rows, wanted[here]] - logits.logsumexp(-1)[rows]
            start = stop
        return logprobs.cpu().numpy().astype(np.float64)

    def _head_slices(self, hidden: torch.Tensor) -> Iterator[torch.Tensor]:
        """Logits of a few rows at a time [row, vocabulary], in float32."""
        head = self.network.get_output_embeddings()
        at_once = max(1, LOGITS_AT_ONCE // head.weight.shape[0])
        for start in range(0, len(hidden), at_once):
            yield head(hidden[start : start + at_once]).float()

    def memory_bytes(self, budget_tokens: int) -> int:
        """Weights, one forward pass and one slice of logits with what its normaliser needs, in bytes."""
        weights = sum(parameter.nbytes for parameter in self.network.parameters())
        config = self.network.config.get_text_config()
        width = max(int(getattr(config, "intermediate_size", 0) or 0), 4 * int(config.hidden_size))
        activations = 4 * budget_tokens * (8 * width + budget_tokens * int(config.num_attention_heads))
        vocabulary = self.network.get_output_embeddings().weight.shape[0]
        logits = 2 * 4 * min(LOGITS_AT_ONCE, budget_tokens * vocabulary)
        return int(weights + activations + logits)


@contextmanager
def _explain_memory() -> Iterator[None]:
    """Torch says in many words that memory ran out; a user needs one sentence."""
    try:
        yield
    except RuntimeError as error:
        if "memory" not in str(error).lower():
            raise
        raise UndertowError(
            "memory ran out while the model was reading; all answers so far are kept, so free some and run the same "
            "command again, or choose --dtype bfloat16 or a smaller model"
        ) from error


def _texts(query: Query) -> list[str]:
    if isinstance(query, Blank):
        return [query.text(option.fills) for option in query.options]
    return [query.context + continuation for continuation in query.continuations]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts share from the start."""
    return next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )


def _path(tokens: Sequence[int], start: int) -> TokenPath:
    return TokenPath(tuple(tokens[:-1]), tuple((at - 1, tokens[at]) for at in range(start, len(tokens))))


def _window(config: Any) -> int:
    """The longest path over which every layer attends to all that came before."""
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return min([window for window in windows if isinstance(window, int) and window > 0], default=2**30)


def _check_reading(model: CausalModel) -> str:
    """Read two texts in every way and compare with the network's plain forward; "" or why the tree must not be used.

    text 0   p p p p a a a a          tree   p p p p a a a a b b b b
    text 1   p p p p b b b b
    """
    import torch

    shared, own, next_token = 4, 4, 8
    vocabulary = model.network.get_output_embeddings().weight.shape[0]
    texts = np.random.default_rng(0).integers(vocabulary // 4, vocabulary // 2, size=(2, shared + own + 1))
    texts[1, :shared] = texts[0, :shared]
    fed, last = texts[:, :next_token], texts[:, next_token]
    with torch.inference_mode():
        logits = model.network(input_ids=torch.from_numpy(fed).to(model.network.device), use_cache=False).logits
        expected = logits[:, -1].float().log_softmax(-1).cpu().numpy()[[0, 1], last]
    batch = TokenBatch(fed, np.array([0, 1]), np.array([next_token - 1, next_token - 1]), last)
    tree = TokenTree(
        tokens=np.concatenate([fed[0], fed[1, shared:]]),
        depths=np.array([*range(next_token), *range(shared, next_token)]),
        ends=np.array([next_token + own] * shared + [next_token] * own + [next_token + own] * own),
        read_nodes=np.array([next_token - 1, next_token + own - 1]),
        read_tokens=last,
    )

    def agrees(logprobs: Floats) -> bool:
        return bool(np.abs(logprobs - expected).max() <= AGREEMENT_NATS[model.card.dtype])

    try:
        model.head_apart = agrees(model.read_batch(batch))
        return "" if agrees(model.read_tree(tree)) else "it reads a tree of texts differently from the texts one by one"
    except (TypeError, ValueError, RuntimeError, IndexError, KeyError, AttributeError, NotImplementedError) as error:
        return f"its attention takes no tree ({type(error).__name__})"


def _start_note(tokenizer: Any) -> str:
    if tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]:
        return f"the tokenizer begins every text with {tokenizer.bos_token}"
    opening = tokenizer.bos_token or tokenizer.eos_token
    return f"no token is added before a text, but {opening} before one that begins with its blank"
