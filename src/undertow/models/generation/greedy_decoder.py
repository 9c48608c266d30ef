"""Greedy answers to many prompts at once, from one cache: the prompts as a prefix tree, the answers as its new leaves.

Shared beginnings (the instruction, the date) are read once; then each step feeds one token of every unfinished answer in one
forward pass over the cache of the whole tree. A mask lets each sequence see its own ancestors.

    prompts   Fill in : In 1801 _ was a child        cache   [ tree of all prompts | step 1 | step 2 | ... ]
                              └ In 1953 _ was ...            every answer sees its own path in it, and nothing else

Networks without support for such a mask decode plain batches of prompts of one length.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.models.backend.execution import (
    AGREEMENT_NATS,
    FORWARD_ERRORS,
    end_tokens_of,
    in_top_k,
    is_oom,
    oom_errors,
)
from undertow.models.backend.tree_kv_cache import TreeKVCache, ancestor_mask
from undertow.models.base import PAPER, PAPER_TOP, CostEstimate, PrefixTree, UnsupportedQueryError, common_prefix_length
from undertow.models.generation.step_readout import Step, answer_of
from undertow.models.tokens.chat_template import encode_chat, template_notes
from undertow.models.tokens.option_tokens import OptionTokens, Vocabulary
from undertow.types import Answer, GenerateQuery

if TYPE_CHECKING:
    import torch

CPU_TREE_TOKENS = 2048
GPU_TREE_TOKENS = 16_384
"""Columns in the cache of one pack: its prompt tree, and its answers at maximum length."""
LOGITS_OF_A_STEP = 2**24
"""Logits of one step of all answers of a pack: 64 MiB in float32."""
PLAIN_ROWS = 16
CHECK_STEPS = 3


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A query in tokens.

    Attributes:
        place: index in the list of queries.
        query: the query.
        tokens: tokens of the prompt.
        options: the tokens of its options.
    """

    place: int
    query: GenerateQuery
    tokens: tuple[int, ...]
    options: OptionTokens


@dataclass(slots=True)
class _DecodedPrompt:
    """Tokens and option probabilities of one prompt so far."""

    tokens: list[int] = field(default_factory=list)
    probs: list[tuple[float, ...]] = field(default_factory=list)


@dataclass(slots=True)
class GreedyDecoder:
    """Greedy decoding of one causal network.

    Attributes:
        network, tokenizer: the model's.
        vocabulary: the tokenizer's.
        context_tokens: maximum length of prompt and answer together.
        tree_depth: longest path that a tree of prompts reads exactly; 0 for plain batches.
        ends: tokens that end an answer.
    """

    network: Any
    tokenizer: Any
    vocabulary: Vocabulary
    context_tokens: int
    tree_depth: int
    ends: frozenset[int]
    refusal: str | None = None

    @classmethod
    def from_network(cls, network: Any, tokenizer: Any, context_tokens: int, tree_depth: int) -> GreedyDecoder:
        """Wrap a network; the first prompts test whether its cache supports a tree."""
        from transformers import GenerationConfig

        ends = end_tokens_of(network, tokenizer)
        # A checkpoint's generation settings (repetition penalty, minimum length) would change the distributions.
        network.generation_config = GenerationConfig()
        return cls(network, tokenizer, Vocabulary.from_tokenizer(tokenizer), context_tokens, tree_depth, ends)

    def answers(
        self, queries: Sequence[GenerateQuery], protocol: str, tokens_of: Callable[[str], list[int]]
    ) -> Iterator[Mapping[int, Answer | UnsupportedQueryError]]:
        """Answers by index, pack by pack; unsupported queries first.

        Args:
            queries: prompts.
            protocol: `paper` counts a token only if it is among the five most probable.
            tokens_of: tokenizes a prompt's text with the model's opening tokens.
        """
        prompts, refused = self._prompts(queries, tokens_of)
        if refused:
            yield refused
        for pack in self._packs(prompts):
            written = self._decode_pack(pack, PAPER_TOP if protocol == PAPER else 0)
            yield {prompt.place: self._answer(prompt, one) for prompt, one in zip(pack, written, strict=True)}

    def packs(self, queries: Sequence[GenerateQuery], tokens_of: Callable[[str], list[int]]) -> list[list[int]]:
        """Indices of the queries of each pack; unsupported ones first."""
        prompts, refused = self._prompts(queries, tokens_of)
        packs = [[prompt.place for prompt in pack] for pack in self._packs(prompts)]
        return [list(refused), *packs] if refused else packs

    def estimate_cost(
        self, queries: Sequence[GenerateQuery], tokens_of: Callable[[str], list[int]], weights_bytes: int
    ) -> CostEstimate:
        """The estimated cost, from one timed pack."""
        prompts, _ = self._prompts(queries, tokens_of)
        packs = list(self._packs(prompts))
        if not packs:
            return CostEstimate(0, 0, 0.0, weights_bytes)
        sizes = [_size(pack) for pack in packs]
        timed = packs[len(packs) // 2]
        started = time.perf_counter()
        self._decode_pack(timed, 0)
        seconds = (time.perf_counter() - started) * sum(sizes) / sizes[len(packs) // 2]
        passes = sum(1 + max(prompt.query.max_tokens for prompt in pack) for pack in packs)
        return CostEstimate(
            sum(sizes), passes, seconds, weights_bytes + self.pack_bytes(max(sizes), max(map(len, packs)))
        )

    def pack_bytes(self, n_places: int, n_rows: int) -> int:
        """Estimated memory of a pack: cache, mask and logits."""
        config = self.network.config.get_text_config()
        heads = int(getattr(config, "num_attention_heads", 1) or 1)
        kept = int(getattr(config, "num_key_value_heads", 0) or heads)
        width = int(getattr(config, "head_dim", 0) or int(config.hidden_size) // heads)
        a_number = int(self.network.dtype.itemsize)
        cache = 2 * a_number * n_places * int(config.num_hidden_layers) * kept * width
        logits = 3 * 4 * n_rows * int(self.network.get_output_embeddings().weight.shape[0])
        return cache + logits + a_number * n_places * n_places

    def notes_on(self, queries: Sequence[Any]) -> list[str]:
        """Notes on plain batches and on chat templates."""
        notes = [f"prompts were answered in plain batches, since {self.refusal}"] if self.refusal else []
        chatted = any(getattr(query, "chat", False) for query in queries)
        return notes + (template_notes(self.tokenizer) if chatted else [])

    def _prompts(
        self, queries: Sequence[GenerateQuery], tokens_of: Callable[[str], list[int]]
    ) -> tuple[list[_Prompt], dict[int, UnsupportedQueryError]]:
        prompts, refused = [], {}
        for place, query in enumerate(queries):
            options, tokens = self.vocabulary.of_options(query.options), self._tokens(query, tokens_of)
            if isinstance(options, UnsupportedQueryError):
                refused[place] = options
            elif isinstance(tokens, UnsupportedQueryError):
                refused[place] = tokens
            else:
                prompts.append(_Prompt(place, query, tokens, options))
        return prompts, refused

    def _tokens(
        self, query: GenerateQuery, tokens_of: Callable[[str], list[int]]
    ) -> tuple[int, ...] | UnsupportedQueryError:
        tokens = encode_chat(self.tokenizer, query.prompt) if query.chat else tuple(tokens_of(query.prompt))
        if isinstance(tokens, UnsupportedQueryError):
            return tokens
        if not tokens:
            return UnsupportedQueryError("the prompt is empty")
        if len(tokens) + query.max_tokens > self.context_tokens:
            return UnsupportedQueryError(
                f"prompt and answer are longer than the {self.context_tokens} tokens that the model reads"
            )
        return tokens

    def _packs(self, prompts: Sequence[_Prompt]) -> Iterator[list[_Prompt]]:
        """Packs of prompts with equal options and answer length, neighbours in the tree together."""
        self.tree_refusal()
        alike: dict[tuple[OptionTokens, int], list[_Prompt]] = {}
        for prompt in prompts:
            alike.setdefault((prompt.options, prompt.query.max_tokens), []).append(prompt)
        for (_, max_tokens), members in alike.items():
            in_tree = [prompt for prompt in members if self._takes(len(prompt.tokens) + max_tokens)]
            yield from _cut(sorted(in_tree, key=lambda prompt: prompt.tokens), self.tree_tokens, self.max_rows)
            by_length: dict[int, list[_Prompt]] = {}
            for prompt in members:
                if not self._takes(len(prompt.tokens) + max_tokens):
                    by_length.setdefault(len(prompt.tokens), []).append(prompt)
            for _, rows in sorted(by_length.items(), reverse=True):
                yield from (rows[start : start + PLAIN_ROWS] for start in range(0, len(rows), PLAIN_ROWS))

    def tree_refusal(self) -> str:
        """Why the tree is not used; "" if it is. Tested on first use."""
        if self.refusal is None:
            with oom_errors():
                self.refusal = self._check() if self.tree_depth else "its attention takes no tree"
        return self.refusal

    def _takes(self, length: int) -> bool:
        """Whether a tree may hold a path of this length."""
        return not self.refusal and length <= self.tree_depth

    @property
    def max_rows(self) -> int:
        """Maximum answers of one pack: each holds a row of logits at every step."""
        return max(1, LOGITS_OF_A_STEP // int(self.network.get_output_embeddings().weight.shape[0]))

    @property
    def tree_tokens(self) -> int:
        """Maximum columns in the cache of one pack."""
        return GPU_TREE_TOKENS if self.network.device.type == "cuda" else CPU_TREE_TOKENS

    def _decode_pack(self, pack: Sequence[_Prompt], top: int) -> list[_DecodedPrompt]:
        import torch

        max_tokens = pack[0].query.max_tokens
        in_tree = self._takes(max(len(prompt.tokens) for prompt in pack) + max_tokens)
        reader = _Reader(pack[0].options, top, self.network.device)
        with torch.inference_mode(), oom_errors():
            if in_tree:
                return self._in_tree([prompt.tokens for prompt in pack], max_tokens, reader)
            return self._plain([prompt.tokens for prompt in pack], max_tokens, reader)

    def _in_tree(self, prompts: Sequence[tuple[int, ...]], max_tokens: int, reader: _Reader) -> list[_DecodedPrompt]:
        """Decode all prompts of a tree, one step of all at a time."""
        import torch

        device = self.network.device
        branches = PrefixTree.from_paths(prompts)
        leaves = torch.tensor([branches.nodes_of[tokens][-1] for tokens in prompts], device=device)
        ends = torch.from_numpy(branches.ends).to(device)
        sees = ancestor_mask(ends, torch.arange(len(ends), device=device))  # [node, node]
        cache = TreeKVCache(self.network)
        fed = torch.from_numpy(branches.tokens).to(device), torch.from_numpy(branches.depths).to(device)
        logits = cache.feed(*fed, sees, leaves)
        depths = torch.from_numpy(branches.depths).to(device)[leaves]
        sees = sees[leaves]  # [answer, place in the cache]
        written = [_DecodedPrompt() for _ in prompts]
        going = torch.arange(len(prompts), device=device)
        for step in range(max_tokens):
            chosen = self._note(logits, reader, [written[at] for at in going.tolist()])
            kept = torch.tensor([token not in self.ends for token in chosen.tolist()], device=device)
            going, chosen, sees, depths = going[kept], chosen[kept], sees[kept], depths[kept] + 1
            if not len(going) or step == max_tokens - 1:
                break
            sees = torch.cat([sees, torch.eye(len(going), dtype=torch.bool, device=device)], dim=1)
            logits = cache.feed(chosen, depths, sees, torch.arange(len(chosen), device=device))
        return written

    def _note(self, logits: torch.Tensor, reader: _Reader, written: Sequence[_DecodedPrompt]) -> torch.Tensor:
        chosen = logits.argmax(-1)
        for one, token, probs in zip(written, chosen.tolist(), reader.probs(logits), strict=True):
            if token not in self.ends:
                one.tokens.append(token)
                one.probs.append(tuple(probs))
        return chosen

    def _plain(self, prompts: Sequence[tuple[int, ...]], max_tokens: int, reader: _Reader) -> list[_DecodedPrompt]:
        """Decode prompts of one length with the network's `generate`; a logits processor records probabilities."""
        import torch
        from transformers import GenerationConfig, LogitsProcessorList

        written = [_DecodedPrompt() for _ in prompts]
        ended = [False] * len(prompts)

        def note(_: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
            going = [at for at, over in enumerate(ended) if not over]
            chosen = self._note(logits.float()[going], reader, [written[at] for at in going])
            for at, token in zip(going, chosen.tolist(), strict=True):
                ended[at] = token in self.ends
            return logits

        pad = min(self.ends, default=0)
        config = GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=max_tokens,
            pad_token_id=pad,
            eos_token_id=sorted(self.ends) or None,
        )
        fed = torch.tensor(prompts, device=self.network.device)
        self.network.generate(
            fed,
            attention_mask=torch.ones_like(fed),
            generation_config=config,
            logits_processor=LogitsProcessorList([note]),
        )
        return written

    def _answer(self, prompt: _Prompt, written: _DecodedPrompt) -> Answer:
        words = {token for tokens in prompt.options.ids for token in tokens}
        steps = [
            Step(self.vocabulary.text_of(token), probs, spells=token in words)
            for token, probs in zip(written.tokens, written.probs, strict=True)
        ]
        return answer_of(prompt.query, steps, self.tokenizer.decode(written.tokens))

    def _check(self) -> str:
        """Decode a pack of full width from its tree and by `generate`; "" or why the tree must not be used.

        Distributions are compared at every step up to the first where the answers differ. End tokens are ignored, so that there
        are steps to compare.
        """
        import torch

        length = min(8, self.tree_depth - CHECK_STEPS)
        if length < 2:
            return "it looks back over a few tokens only"
        vocabulary = int(self.network.get_output_embeddings().weight.shape[0])
        own = length - length // 2
        n_rows = min(self.max_rows, max(2, (self.tree_tokens - length // 2) // (own + CHECK_STEPS)))
        draws = np.random.default_rng(0).integers(vocabulary // 4, vocabulary // 2, size=(n_rows, length))
        draws[:, : length // 2] = draws[0, : length // 2]
        prompts = [tuple(map(int, row)) for row in draws]
        some = tuple((int(token),) for token in np.unique(draws)[:64])
        reader = _Reader(OptionTokens(some), 0, self.network.device)
        compared = (0, n_rows // 2, n_rows - 1)
        ends, self.ends = self.ends, frozenset()
        try:
            with torch.inference_mode():
                expected = self._plain([prompts[row] for row in compared], CHECK_STEPS, reader)
                actual = self._in_tree(prompts, CHECK_STEPS, reader)
        except FORWARD_ERRORS as error:
            if is_oom(error):
                raise
            return f"its cache takes no tree of prompts ({type(error).__name__})"
        finally:
            self.ends = ends
        limit = AGREEMENT_NATS[_dtype(self.network)]
        if all(_agree(one, actual[row], limit) for one, row in zip(expected, compared, strict=True)):
            return ""
        return "it answers a tree of prompts differently from the prompts one by one"


def _agree(one: _DecodedPrompt, other: _DecodedPrompt, limit_nats: float) -> bool:
    """Whether two decodings give the same distributions while their tokens are equal."""
    shared = next(
        (at for at, (left, right) in enumerate(zip(one.tokens, other.tokens, strict=True)) if left != right),
        len(one.tokens) - 1,
    )
    near = (np.log(np.array(written.probs[: shared + 1])) for written in (one, other))
    return bool(np.abs(np.subtract(*near)).max() <= limit_nats)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads option probabilities from a step's distribution.

    Attributes:
        options: tokens of the options.
        top: number of most probable tokens that count; 0 for all.
        device: device of the logits.
    """

    options: OptionTokens
    top: int
    device: Any

    def probs(self, logits: torch.Tensor) -> list[list[float]]:
        """Probability of each option [row][option]; NaN for one without tokens of its own."""
        import torch

        flat = [(option, token) for option, tokens in enumerate(self.options.ids) for token in tokens]
        n_options = len(self.options.ids)
        tokens = torch.tensor([token for _, token in flat], device=logits.device, dtype=torch.int64)
        owners = torch.tensor([option for option, _ in flat], device=logits.device, dtype=torch.int64)
        probs = (logits[:, tokens] - logits.logsumexp(-1, keepdim=True)).exp()
        if self.top:
            probs = probs.masked_fill(~in_top_k(logits, tokens, self.top), 0.0)
        sums = torch.zeros(len(logits), n_options, device=logits.device).index_add_(1, owners, probs)
        without = torch.tensor([not tokens for tokens in self.options.ids], device=logits.device)
        by_option: list[list[float]] = sums.masked_fill(without, torch.nan).double().cpu().tolist()
        return by_option


def _size(pack: Sequence[_Prompt]) -> int:
    return len(PrefixTree.from_paths(prompt.tokens for prompt in pack).tokens) + sum(
        prompt.query.max_tokens for prompt in pack
    )


def _cut(prompts: Sequence[_Prompt], budget_tokens: int, max_rows: int) -> Iterator[list[_Prompt]]:
    """Fill packs prompt by prompt, each with its maximum answer; a prefix shared with the previous prompt costs nothing."""
    pack: list[_Prompt] = []
    n_tokens = 0
    for prompt in prompts:
        shared = common_prefix_length(pack[-1].tokens, prompt.tokens) if pack else 0
        own = len(prompt.tokens) + prompt.query.max_tokens
        if pack and (n_tokens + own - shared > budget_tokens or len(pack) == max_rows):
            yield pack
            pack, n_tokens, shared = [], 0, 0
        pack.append(prompt)
        n_tokens += own - shared
    if pack:
        yield pack


def _dtype(network: Any) -> str:
    return str(network.dtype).removeprefix("torch.")
