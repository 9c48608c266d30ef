"""Causal language models from Hugging Face, a local folder or a GGUF file, read by likelihood.

The hot path: one forward over a packed prefix tree, a mask that lets each node see its own ancestors only, positions
equal to depth, and the head applied a slice of rows at a time, so that [tokens, vocabulary] is never held whole.

    node     0   1   2    3    4     5    6      ends of subtrees: 7 7 5 4 5 7 7
             In  X   she  was  is    he   was
    sees     0  01  012 0123 012,4 01,5 01,56    node j sees i  iff  i <= j < ends[i]
    depth    0   1   2    3    3     2    3
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from undertow.errors import UndertowError
from undertow.models.backend.execution import (
    AGREEMENT_NATS,
    FORWARD_ERRORS,
    check_length,
    end_tokens_of,
    is_oom,
    list_duplicate_options,
    oom_errors,
    to_device,
    tokens_per_pass,
    unknown_words,
)
from undertow.models.backend.lm_head import flat_positions, in_slices, read_at, read_in_columns, takes_columns
from undertow.models.backend.tree_attention import KEYWORD, MAX_BLOCK, AttentionBlocks, ancestor_mask, attend_in_blocks
from undertow.models.base import (
    PROMPT_CAPABILITIES,
    TOKEN_CAPABILITIES,
    BatchLimits,
    Capabilities,
    EncodedQuery,
    Ints,
    OutOfMemoryError,
    PackedTree,
    TokenBatch,
    TokenPath,
    UnsupportedQueryError,
    attempt,
    common_prefix_length,
)
from undertow.models.generation.backends import CausalTexts, TreeBackend
from undertow.models.generation.generation_state import Stops
from undertow.models.generation.generator import PromptModel
from undertow.models.generation.prompt_encoder import PromptEncoder
from undertow.models.tokens.option_tokens import Vocabulary
from undertow.types import ClozeQuery, Floats, ModelIdentity, ScoredQuery

if TYPE_CHECKING:
    import torch

SUMMARY = "any AutoModelForCausalLM: a hub id, a folder, or a GGUF file; read by sentence likelihood"
CPU_BUDGET_TOKENS = 400
"""Beyond this the tree's attention, where it grows with the square, costs more than larger matrices save."""
BLOCK_BUDGET_TOKENS, BLOCK_BUDGET_PRODUCTS = 1152, 3 * 10**11
"""In blocks it does not. What bounds a pass then is how much is lost with one: some seconds."""
SHARED, OWN = 4, 4
LENGTH = SHARED + OWN
"""Tokens of the texts that a network is tried with: what all share, what is each one's own, both."""
N_TRIED = 16
"""Texts that a tree is compared at."""


class CausalModel(PromptModel):
    """A loaded causal model; see `undertow.models.base.TokenModel` and `AnsweringModel`."""

    FAMILY, SCORING_METHOD, OBJECTIVE = "causal", "likelihood", "autoregressive"
    ARCHITECTURES, AUTO_CLASS = ("ForCausalLM", "LMHeadModel"), "AutoModelForCausalLM"
    TRAINED_TO = "continue texts"
    CAPABILITIES: ClassVar[Capabilities] = {**TOKEN_CAPABILITIES, **PROMPT_CAPABILITIES}
    CPU_BUDGET_TOKENS, GPU_BUDGET_TOKENS = CPU_BUDGET_TOKENS, 8192

    def __init__(self, identity: ModelIdentity, network: Any, tokenizer: Any) -> None:
        self.head_apart, self.in_blocks = True, False
        super().__init__(identity, network, tokenizer)
        config = network.config.get_text_config()
        self.context_tokens = int(getattr(config, "max_position_embeddings", 0) or 2**20)
        self.closing_tokens, start_note = _start_of_texts(tokenizer)
        refusal = _check_reading(self)
        # The longest path over which every layer attends to all that came before.
        windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
        depths = [self.context_tokens, *(window for window in windows if isinstance(window, int) and window > 0)]
        depth = 0 if refusal else min(depths)
        self.limits = BatchLimits(self.limits.budget_tokens, depth)
        self.notes = (f"read in plain batches, since {refusal}",) if refusal else ()
        self.notes += (start_note,)
        vocabulary = Vocabulary(tokenizer)
        encoder = PromptEncoder(tokenizer, lambda text: self._tokens([text])[0], self.context_tokens, vocabulary)
        texts = CausalTexts(network, Stops(end_tokens_of(network, tokenizer), vocabulary), self._logits)
        self.answer_with(encoder, texts, TreeBackend(network, self._n_logits()), depth)

    # Sentences.

    def encode(self, queries: Sequence[ScoredQuery]) -> list[EncodedQuery | UnsupportedQueryError]:
        """Each query as one token path per option; see `undertow.models.base.TokenModel`."""
        befores = [query.pieces[0] if isinstance(query, ClozeQuery) else query.context for query in queries]
        texts = [query.texts() for query in queries]
        bare, spaced = self._tokens([before.rstrip() for before in befores]), self._tokens(befores)
        whole = iter(self._tokens([text for options in texts for text in options]))
        return [
            attempt(self._encode_query, query, contexts, [next(whole) for _ in options])
            for query, options, contexts in zip(queries, texts, zip(bare, spaced, strict=True), strict=True)
        ]

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self.tokenizer(list(texts), return_attention_mask=False)["input_ids"]
        # Some tokenizers close every text with a token; what is scored is the text, not its end.
        return [tokens[: len(tokens) - self.closing_tokens] for tokens in ids]

    def _encode_query(
        self, query: ScoredQuery, contexts: Sequence[list[int]], options: list[list[int]]
    ) -> EncodedQuery:
        # Where a token spans the end of the context, all options are read from before it, so that they stay
        # conditioned on the same tokens; a space that is a token of its own belongs to the context.
        start = max(min(common_prefix_length(context, tokens) for tokens in options) for context in contexts)
        if start == 0:
            opening = self.tokenizer.bos_token_id
            opening = self.tokenizer.eos_token_id if opening is None else opening
            if opening is None:
                raise UnsupportedQueryError(
                    "the sentence begins with its blank, and this tokenizer has no token that begins a text"
                )
            options, start = [[int(opening), *tokens] for tokens in options], 1
        for tokens in options:
            if len(tokens) <= start:
                raise UnsupportedQueryError("an option adds nothing to the text before it")
            check_length(len(tokens) - 1, self.context_tokens)
        unk = self.tokenizer.unk_token_id
        spelled = [() if unk in tokens[start:] else tuple(tokens) for tokens in options]
        unknown = [option for option, tokens in enumerate(spelled) if not tokens]
        if len(unknown) == len(options):  # what all of them hold is in the text behind the blank
            raise UnsupportedQueryError("the text behind the blank holds a character that this tokenizer does not know")
        if unknown and not isinstance(query, ClozeQuery):
            raise unknown_words(query, unknown)
        paths = [
            TokenPath(tokens[:-1], tuple((at - 1, tokens[at]) for at in range(start, len(tokens))))
            for tokens in filter(None, spelled)
        ]
        numbers = count()
        parts = tuple((next(numbers),) if tokens else () for tokens in spelled) if unknown else ()
        return EncodedQuery(tuple(paths), list_duplicate_options(query, spelled), parts)

    def read_tree(self, tree: PackedTree) -> Floats:
        """One forward over the whole tree [read]."""
        import torch

        device, dtype = self.network.device, self.network.dtype
        with torch.inference_mode(), oom_errors():
            blocks = AttentionBlocks.from_subtree_ends(tree.ends, dtype, device) if self.in_blocks else None
            # What each node sees [1, 1, node, node]; one number that looks as large, if blocks say it.
            n_nodes = len(tree.tokens)
            size = 1 if blocks else n_nodes
            mask = torch.zeros((1, 1, size, size), dtype=dtype, device=device)
            if not blocks:
                sees = ancestor_mask(to_device(tree.ends, device), torch.arange(n_nodes, device=device))
                mask.masked_fill_(~sees, torch.finfo(dtype).min)
            inputs: dict[str, Any] = {
                "input_ids": to_device(tree.tokens, device)[None],
                "position_ids": to_device(tree.depths, device)[None],
                "attention_mask": mask.expand(1, 1, n_nodes, n_nodes),
                **({KEYWORD: blocks} if blocks else {}),
            }
            return self._read(inputs, tree.read_nodes, tree.read_tokens)

    def read_batch(self, batch: TokenBatch) -> Floats:
        """One forward over texts of one length, without mask or padding [read]."""
        import torch

        with torch.inference_mode(), oom_errors():
            inputs = {"input_ids": to_device(batch.tokens, self.network.device)}
            return self._read(inputs, flat_positions(batch), batch.read_tokens)

    def _read(self, inputs: dict[str, Any], places: Ints, tokens: Ints) -> Floats:
        """Log P(token) after each place, a place being row x length + position; the head sees these places only."""
        distinct, place_of_read = np.unique(places, return_inverse=True)
        head = self.network.get_output_embeddings()
        if self.head_apart and takes_columns(head, len(distinct)):
            return read_in_columns(self._hidden(inputs, distinct), place_of_read, tokens, head)
        return read_at(places, tokens, partial(self._logits, inputs), self.network.device)

    def _logits(self, inputs: dict[str, Any], places: Ints) -> Iterator[torch.Tensor]:
        """Logits after the places, a few rows at a time [row, vocabulary], in float32."""
        if not self.head_apart:
            kept = to_device(places, self.network.device)
            yield self.network(**inputs, use_cache=False).logits.flatten(0, 1)[kept].float()
            return
        head = self.network.get_output_embeddings()
        yield from in_slices(self._hidden(inputs, places), int(head.weight.shape[0]), head)

    def _hidden(self, inputs: dict[str, Any], places: Ints) -> torch.Tensor:
        """Hidden states of the network at the places [place, dim]."""
        hidden: torch.Tensor = self.network.base_model(**inputs, use_cache=False)[0]
        return hidden.flatten(0, 1)[to_device(places, hidden.device)]

    def memory_bytes(self, budget_tokens: int) -> int:
        """Weights, one forward pass and one slice of logits with what its normaliser needs, in bytes.

        In blocks, of trees no deeper than a few hundred tokens; what takes more and has no room is read in halves.
        """
        heads = int(getattr(self.network.config.get_text_config(), "num_attention_heads", 1) or 1)
        seen = min(budget_tokens, 4 * MAX_BLOCK) if self.in_blocks else budget_tokens
        return super().memory_bytes(budget_tokens) + 4 * budget_tokens * seen * heads


def _budget(model: CausalModel, *, in_blocks: bool) -> int:
    """Tokens of a pass that use the machine well; on a processor in blocks, few enough to lose little with one."""
    affordable = BLOCK_BUDGET_PRODUCTS // max(1, int(model.network.num_parameters()))
    processor = max(CPU_BUDGET_TOKENS, min(BLOCK_BUDGET_TOKENS, affordable)) if in_blocks else CPU_BUDGET_TOKENS
    return tokens_per_pass(model.network, model.memory_bytes, processor=processor, gpu=model.GPU_BUDGET_TOKENS)


def _check_reading(model: CausalModel) -> str:
    """Read some texts in every way and compare with the network's plain forward; "" or why the tree must not be used.

        text 0   p p p p a a a a          tree   p p p p a a a a  x x x x  ...  x x x x  b b b b
        text 1   p p p p b b b b

    The tree is filled up to the width of a real one, since some networks attend by the place in the pack, and read at the end of
    each branch, so that the head is applied as it will be. Several branches are compared: after some tokens a network
    predicts nearly the same in any context. Sets the result, and the width of a pack, on the model.

    Raises:
        UndertowError: the network looks at what comes after, so it is no causal model.
    """
    import torch

    name, tolerance = model.identity.name, AGREEMENT_NATS[model.identity.dtype]
    # Random texts that begin alike, and what comes after each [text, LENGTH + 1].
    head = model.network.get_output_embeddings()
    vocabulary = head.weight.shape[0]
    shape = _n_branches(_budget(model, in_blocks=True)), LENGTH + 1
    draws = np.random.default_rng(0).integers(vocabulary // 4, vocabulary // 2, size=shape)
    draws[:, :SHARED] = draws[0, :SHARED]
    # Some of those that the narrowest tree has, and the last.
    tried = [*np.linspace(0, _n_branches(CPU_BUDGET_TOKENS) - 2, N_TRIED - 1).round().astype(int).tolist(), -1]
    fed, last = draws[tried, :LENGTH], draws[tried, LENGTH]
    of_head: list[torch.Tensor] = []
    with torch.inference_mode(), head.register_forward_hook(lambda *called: of_head.append(called[-1].clone())):
        logits = model.network(input_ids=torch.from_numpy(fed).to(model.network.device), use_cache=False).logits.float()
        shared_logits = logits[:, SHARED - 1]
        if not torch.isfinite(logits[:, -1]).all():
            raise UndertowError(f"{name}: its weights give probabilities that are not numbers; use other weights")
        if (shared_logits[0] - shared_logits[-1]).abs().max() > tolerance:
            raise UndertowError(
                f"{name}: its probabilities of a token depend on later tokens, so it is not a causal model"
            )
        expected = logits[:, -1].log_softmax(-1).cpu().numpy()[range(len(last)), last]

    def trouble(read: Callable[[], Floats]) -> str:
        try:
            differs = not np.abs(read() - expected).max() <= tolerance
        except FORWARD_ERRORS as error:
            if is_oom(error):
                raise
            return f"its attention takes no tree ({type(error).__name__})"
        return "it reads a tree of texts differently from single texts" if differs else ""

    batch = TokenBatch(fed, np.arange(len(fed)), np.full(len(fed), LENGTH - 1), last)
    # A network may scale or cap what its head returns, by less than the tolerance of a reduced precision.
    model.head_apart = all(torch.equal(one.float(), logits) for one in of_head)
    model.head_apart = model.head_apart and not trouble(lambda: model.read_batch(batch))
    problem = ""
    # A network that does not hand on what it does not know would let each node see all others.
    for in_blocks in [True, False] if attend_in_blocks(model.network) else [False]:
        model.in_blocks = in_blocks
        model.limits = BatchLimits(_budget(model, in_blocks=in_blocks), 0)
        problem = trouble(lambda: _read_ends(model, draws)[tried])
        if not problem:
            break
    return problem


def _read_ends(model: CausalModel, draws: Ints) -> Floats:
    """Read a tree as wide as the model's passes; narrower ones from then on, if that has no room."""
    while True:
        budget = model.limits.budget_tokens
        texts = np.concatenate([draws[: _n_branches(budget) - 1], draws[-1:]])
        starts = SHARED + OWN * np.arange(len(texts))
        tree = PackedTree(
            tokens=np.concatenate([texts[0, :SHARED], texts[:, SHARED:LENGTH].ravel()]),
            depths=np.concatenate([np.arange(SHARED), np.tile(np.arange(SHARED, LENGTH), len(texts))]),
            ends=np.concatenate([np.full(SHARED, starts[-1] + OWN), np.repeat(starts + OWN, OWN)]),
            read_nodes=starts + OWN - 1,
            read_tokens=texts[:, LENGTH],
        )
        try:
            return model.read_tree(tree)
        except OutOfMemoryError:
            if budget <= CPU_BUDGET_TOKENS:
                raise
        model.limits = BatchLimits(max(budget // 2, CPU_BUDGET_TOKENS), 0)


def _n_branches(budget: int) -> int:
    """Texts that fill a tree."""
    return max(2, (budget - SHARED) // OWN)


def _start_of_texts(tokenizer: Any) -> tuple[int, str]:
    """How many tokens the tokenizer puts after every text; and a note on those before it."""
    plain, added = (list(tokenizer("a", add_special_tokens=special)["input_ids"]) for special in (False, True))
    places = [at for at in range(len(added) - len(plain) + 1) if added[at : at + len(plain)] == plain]
    n_before = places[0] if places else 0
    n_after = len(added) - len(plain) - n_before if places else 0
    if n_before:
        before = " ".join(tokenizer.convert_ids_to_tokens(added[:n_before]))
        return n_after, f"the tokenizer begins every text with {before}"
    opening = tokenizer.bos_token or tokenizer.eos_token
    if opening is None:
        return n_after, "no token is added before a text, and the tokenizer has none to begin one with its blank"
    return n_after, f"no token is added before a text, but {opening} before one that begins with its blank"


MODEL = CausalModel
resolve = MODEL.resolve
