"""Multiple choice and constrained generation with a causal network, for many prompts at once.

Prompts are sorted by prefix and cut into packs. Prefixes within a pack are fed once; those shared with the previous pack stay in
the cache. So a document is read once for all its task descriptions, and a few-shot example once for all prompts behind it. A
choice takes no decoding step: its labels are branches of the prompt, and one pass reads them all.

    pack 1   a document   Task: Identify ... Answer:   → gender | race | political → affiliation
                          Task: Generate ... Answer:   → gender | race | political → affiliation
    pack 2   (kept)       Question: What ... Answer:   → ...

Networks without support for a tree run plain batches of one length.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.models.backend.execution import AGREEMENT_NATS, FORWARD_ERRORS, is_oom, oom_errors
from undertow.models.backend.tree_kv_cache import TreeKVCache, ancestor_mask
from undertow.models.base import EXACT, CostEstimate, Ints, PrefixTree, UnsupportedQueryError, common_prefix_length
from undertow.models.generation.generation_state import (
    MAX_SEQUENCES,
    GenerationState,
    Nats,
    Open,
    Stops,
    choose_label,
    decode_step,
    forced_generate_kwargs,
    nexts,
    reads_of,
    search_spans,
    sort_of,
    span_nexts,
)
from undertow.models.generation.greedy_decoder import GreedyDecoder
from undertow.models.generation.prompt_encoder import EncodedPrompt, PromptEncoder
from undertow.types import BEST_SPAN, Answer, ConstrainedGenerateQuery, MultipleChoiceQuery

if TYPE_CHECKING:
    import torch

CPU_FORWARD_TOKENS = 512
GPU_FORWARD_TOKENS = 8192
"""New tokens of one forward pass; with more, attention over the tree costs more than larger products save."""
BLOCK = 4096
"""Prompts to tokenize before the first answer."""
PLAIN_ROWS = 16

LogitsAt = Callable[[Any, Ints], "Iterator[torch.Tensor]"]
"""Returns logits of texts of one length at flat positions, in slices of rows, without mask or cache."""


@dataclass(frozen=True, slots=True)
class _GrowingTree:
    """A tree of paths in the cache.

    Attributes:
        trunk: the cache, with a column for each node.
        branches: the tree.
        rows: row in `logits` by path.
        logits: logits after these paths [row, vocabulary].
    """

    trunk: TreeKVCache
    branches: PrefixTree
    rows: Mapping[tuple[int, ...], int]
    logits: torch.Tensor

    def logits_of(self, paths: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """Logits after each path [path, vocabulary]."""
        return self.logits[[self.rows[path] for path in paths]]


@dataclass(slots=True)
class ConstrainedDecoder:
    """Multiple choice and constrained generation with one causal network.

    Attributes:
        decoder: the greedy decoder, with the network and its end tokens.
        prompt_encoder: encodes prompts.
        logits_at: plain reading of the network.
        trunk: cache of the last pack, for the prefix that the next one shares.
    """

    decoder: GreedyDecoder
    prompt_encoder: PromptEncoder
    logits_at: LogitsAt
    trunk: TreeKVCache | None = None
    _refusal: str | None = None

    def answers(
        self, queries: Sequence[MultipleChoiceQuery | ConstrainedGenerateQuery], protocol: str = EXACT
    ) -> Iterator[Mapping[int, Answer | UnsupportedQueryError]]:
        """Answers by index, pack by pack; unsupported queries first."""
        prompts, refused = self.prompt_encoder.prompts(queries)
        if refused:
            yield refused
        for pack in self._packs(prompts, warm=True):
            yield self._answer_pack(pack, protocol)

    def packs(self, queries: Sequence[MultipleChoiceQuery | ConstrainedGenerateQuery]) -> Iterator[list[int]]:
        """Indices of the queries of each pack, unsupported ones first.

        Prompts are tokenized in blocks of neighbours, so the first answers do not wait for all prompts.
        """
        order = sorted(range(len(queries)), key=lambda place: queries[place].display_text())
        for start in range(0, len(order), BLOCK):
            block = order[start : start + BLOCK]
            prompts, refused = self.prompt_encoder.prompts([queries[place] for place in block])
            if refused:
                yield [block[at] for at in refused]
            for pack in self._packs(prompts):
                yield [block[prompt.place] for prompt in pack]

    def estimate_cost(
        self, queries: Sequence[MultipleChoiceQuery | ConstrainedGenerateQuery], weights_bytes: int
    ) -> CostEstimate:
        """The estimated cost, from one timed pack."""
        prompts, _ = self.prompt_encoder.prompts(queries)
        packs = list(self._packs(prompts))
        if not packs:
            return CostEstimate(0, 0, 0.0, weights_bytes)
        sizes = [_size(pack) for pack in packs]
        timed = len(packs) // 2
        self._answer_pack(packs[timed])  # the first pass also sets up kernels and threads
        self.trunk = None
        started = time.perf_counter()
        self._answer_pack(packs[timed])
        seconds = (time.perf_counter() - started) * sum(sizes) / sizes[timed]
        passes = sum(1 if pack[0].trie else max(prompt.max_tokens for prompt in pack) for pack in packs)
        return CostEstimate(
            sum(sizes), passes, seconds, weights_bytes + self.decoder.pack_bytes(max(sizes), MAX_SEQUENCES)
        )

    @property
    def refusal(self) -> str:
        """Why the tree is not used; "" if it is."""
        if self._refusal is None:
            with oom_errors():
                self._refusal = self.decoder.tree_refusal() or self._check()
        return self._refusal

    @property
    def stops(self) -> Stops:
        """Tokens that end a generated answer."""
        return Stops(self.decoder.ends, self.prompt_encoder)

    # Packs.

    def _packs(self, prompts: Sequence[EncodedPrompt], *, warm: bool = False) -> Iterator[list[EncodedPrompt]]:
        """Packs of prompts of one mode, neighbours in the tree, as many as fit.

        A plan (`warm` False) depends on the prompts only. When a planned pack runs (`warm` True), the prefix that the previous
        pack left in the cache is free, so it is not cut again.
        """
        sorts: dict[tuple[str, bool], list[EncodedPrompt]] = {}
        for prompt in prompts:
            in_tree = not self.refusal and len(prompt.tokens) + prompt.max_tokens <= self.decoder.tree_depth
            sorts.setdefault((sort_of(prompt), in_tree), []).append(prompt)
        for (sort, in_tree), members in sorts.items():
            if in_tree:
                before = self.trunk.path if warm and self.trunk is not None else ()
                yield from self._cut(sorted(members, key=lambda prompt: prompt.tokens), _ROWS[sort], before)
            else:
                by_length: dict[int, list[EncodedPrompt]] = {}
                for prompt in members:
                    by_length.setdefault(len(prompt.tokens), []).append(prompt)
                for _, rows in sorted(by_length.items(), reverse=True):
                    yield from (rows[start : start + PLAIN_ROWS] for start in range(0, len(rows), PLAIN_ROWS))

    def _cut(
        self, prompts: Sequence[EncodedPrompt], max_rows: int, before: tuple[int, ...]
    ) -> Iterator[list[EncodedPrompt]]:
        """Fill packs prompt by prompt; a prefix shared with the previous prompt costs nothing."""
        room = self._forward_tokens if sort_of(prompts[0]) == "choice" else self.decoder.tree_tokens
        pack: list[EncodedPrompt] = []
        n_tokens = n_reads = 0
        for prompt in prompts:
            own = len(prompt.tokens) - common_prefix_length(before, prompt.tokens) + prompt.own_tokens
            full = n_tokens + own > room or n_reads + prompt.n_reads > self.decoder.max_rows or len(pack) == max_rows
            if pack and full:
                yield pack
                pack, n_tokens, n_reads = [], 0, 0
            pack.append(prompt)
            n_tokens, n_reads, before = n_tokens + own, n_reads + prompt.n_reads, prompt.tokens
        if pack:
            yield pack

    @property
    def _forward_tokens(self) -> int:
        return GPU_FORWARD_TOKENS if self.decoder.network.device.type == "cuda" else CPU_FORWARD_TOKENS

    def _answer_pack(
        self, pack: Sequence[EncodedPrompt], protocol: str = EXACT
    ) -> dict[int, Answer | UnsupportedQueryError]:
        import torch

        in_tree = not self.refusal and max(len(one.tokens) + one.max_tokens for one in pack) <= self.decoder.tree_depth
        with torch.inference_mode(), oom_errors():
            if pack[0].trie is not None:
                nats = self._nexts(pack) if in_tree else self._nexts_plain(pack)
                return {
                    prompt.place: choose_label(prompt, nats, self.prompt_encoder.tokenizer, protocol) for prompt in pack
                }
            if isinstance(pack[0].query, ConstrainedGenerateQuery) and pack[0].query.constraint == BEST_SPAN:
                return self._search_pack(pack, in_tree=in_tree)
            sequences = [GenerationState.from_prompt(prompt) for prompt in pack]
            if in_tree:
                self._write(sequences)
            else:
                self._write_plain(sequences)
            return {sequence.prompt.place: sequence.answer(self.prompt_encoder.tokenizer) for sequence in sequences}

    # The tree.

    def _grown(self, paths: Sequence[tuple[int, ...]]) -> _GrowingTree:
        """Feed paths without their cached prefix, and read their ends."""
        import torch

        device = self.decoder.network.device
        first = min(paths)
        trunk = self.trunk if self.trunk is not None else TreeKVCache(self.decoder.network)
        # Feed the last token of the first path again for its logits; no other path ends before it.
        n_known = min(common_prefix_length(trunk.path, first), len(first) - 1)
        trunk.keep_path(first[:n_known], torch.arange(n_known, device=device))
        branches = PrefixTree.from_paths(paths)
        nodes = {path: branches.nodes_of[path][-1] for path in paths}
        order = sorted(set(nodes.values()))
        pieces = trunk.feed_branches(branches, n_known, torch.tensor(order, device=device), self._forward_tokens)
        rows = {node: row for row, node in enumerate(order)}
        return _GrowingTree(trunk, branches, {path: rows[node] for path, node in nodes.items()}, torch.cat(pieces))

    def _leave(self, trunk: TreeKVCache, branches: PrefixTree, last: tuple[int, ...]) -> None:
        """Keep the path of the last prompt for the next pack."""
        import torch

        trunk.keep_path(last, torch.tensor(branches.nodes_of[last], device=self.decoder.network.device))
        self.trunk = trunk

    def _nexts(self, pack: Sequence[EncodedPrompt]) -> Nats:
        """Log-probabilities at every inner node of every choice, by path."""
        read_at = reads_of(pack)
        grown = self._grown(list(read_at))
        reads = [(path, grown.rows[path], tokens) for path, tokens in read_at.items()]
        nats = nexts(grown.logits, reads, self.decoder.ends)
        self._leave(grown.trunk, grown.branches, max(prompt.tokens for prompt in pack))
        return nats

    def _nexts_plain(self, pack: Sequence[EncodedPrompt]) -> Nats:
        """The same from whole texts of one length, without a cache."""
        import torch

        nats: Nats = {}
        by_length: dict[int, list[tuple[int, ...]]] = {}
        read_at = reads_of(pack)
        for path in read_at:
            by_length.setdefault(len(path), []).append(path)
        for length, paths in by_length.items():
            inputs = {"input_ids": torch.tensor(paths, device=self.decoder.network.device)}
            places = np.arange(len(paths)) * length + length - 1
            logits = torch.cat(list(self.logits_at(inputs, places)))
            nats |= nexts(logits, [(path, row, read_at[path]) for row, path in enumerate(paths)], self.decoder.ends)
        return nats

    # Writing.

    def _write(self, sequences: Sequence[GenerationState]) -> None:
        """Generate all answers of a pack, one step of all at a time, over the cache of their prompts."""
        import torch

        paths = [sequence.prompt.tokens for sequence in sequences]
        grown = self._grown(paths)
        trunk, branches, logits, device = grown.trunk, grown.branches, grown.logits_of(paths), grown.logits.device
        leaves = torch.tensor([branches.nodes_of[path][-1] for path in paths], device=device)
        sees = ancestor_mask(torch.from_numpy(branches.ends).to(device), leaves)  # [sequence, column]
        depths = torch.from_numpy(branches.depths).to(device)[leaves]
        going = list(sequences)
        while going:
            decode_step(going, logits, self.stops)
            kept = torch.tensor([not sequence.done for sequence in going], device=device)
            going = [sequence for sequence in going if not sequence.done]
            if not going:
                break
            sees, depths = sees[kept], depths[kept] + 1
            sees = torch.cat([sees, torch.eye(len(going), dtype=torch.bool, device=device)], dim=1)
            tokens = torch.tensor([sequence.tokens[-1] for sequence in going], device=device)
            logits = trunk.feed(tokens, depths, sees, torch.arange(len(going), device=device))
        self._leave(trunk, branches, max(paths))

    def _write_plain(self, sequences: Sequence[GenerationState]) -> None:
        """Generate answers to prompts of one length with the network's `generate`, which gets each chosen token."""
        import torch

        fed = torch.tensor([sequence.prompt.tokens for sequence in sequences], device=self.decoder.network.device)
        self.decoder.network.generate(
            fed,
            attention_mask=torch.ones_like(fed),
            **forced_generate_kwargs(sequences, self.stops),
        )

    # Search.

    def _search_pack(
        self, pack: Sequence[EncodedPrompt], *, in_tree: bool
    ) -> dict[int, Answer | UnsupportedQueryError]:
        """The most probable span of each passage, with or without a cache."""
        paths = [prompt.tokens for prompt in pack]
        grown = self._grown(paths) if in_tree else None
        answers = search_spans(pack, self._searching(pack, grown) if grown is not None else self._searching_plain(pack))
        if grown is not None:
            self._leave(grown.trunk, grown.branches, max(paths))
        return answers

    def _searching(self, pack: Sequence[EncodedPrompt], grown: _GrowingTree) -> _Expand:
        """Expand spans over one cache: first the prompts, then a column for each span."""
        import torch

        paths = [prompt.tokens for prompt in pack]
        trunk, first, device = grown.trunk, grown.logits_of(paths), grown.logits.device
        ancestors = [list(grown.branches.nodes_of[path]) for path in paths]
        columns: dict[tuple[int, tuple[int, ...]], int] = {}

        def expand(wanted: Sequence[Open]) -> list[dict[int, float]]:
            if not wanted[0][1]:
                logits = first[[at for at, _, _ in wanted]]
            else:
                n_before = trunk.n_columns
                sees = torch.zeros(len(wanted), n_before + len(wanted), dtype=torch.bool, device=device)
                for row, (at, written, _) in enumerate(wanted):
                    sees[row, ancestors[at]] = True
                    sees[row, [columns[at, written[:end]] for end in range(1, len(written))]] = True
                    sees[row, n_before + row] = True
                    columns[at, written] = n_before + row
                tokens = torch.tensor([written[-1] for _, written, _ in wanted], device=device)
                depths = torch.tensor([len(paths[at]) + len(written) - 1 for at, written, _ in wanted], device=device)
                logits = trunk.feed(tokens, depths, sees, torch.arange(len(wanted), device=device))
            return span_nexts(pack, wanted, logits, self.stops)

        return expand

    def _searching_plain(self, pack: Sequence[EncodedPrompt]) -> _Expand:
        """The same from whole texts."""
        import torch

        def expand(wanted: Sequence[Open]) -> list[dict[int, float]]:
            nexts: list[dict[int, float]] = []
            for one in wanted:
                text = (*pack[one[0]].tokens, *one[1])
                inputs = {"input_ids": torch.tensor([text], device=self.decoder.network.device)}
                logits = torch.cat(list(self.logits_at(inputs, np.array([len(text) - 1]))))
                nexts += span_nexts(pack, [one], logits, self.stops)
            return nexts

        return expand

    def _check(self) -> str:
        """Compare a prompt read behind a cached prefix with the prompt alone; "" or why the tree must not be used.

        one     a a a a b b b b b b b b
        two     a a a a c c c c c c c c         cached, but not in the first columns
        other   a a a a c c c c d d d d
        """
        import torch

        length = min(12, self.decoder.tree_depth)
        if length < 4:
            return "it looks back over a few tokens only"
        network = self.decoder.network
        vocabulary = int(network.get_output_embeddings().weight.shape[0])
        draws = np.random.default_rng(1).integers(vocabulary // 4, vocabulary // 2, size=(3, length))
        for row, shared in ((1, length // 3), (2, 2 * length // 3)):
            draws[row, :shared] = draws[row - 1, :shared]
            draws[row, shared] = draws[row - 1, shared] + 1
        one, two, other = (tuple(map(int, row)) for row in draws)
        self.trunk = None
        try:
            with torch.inference_mode():
                places = np.array([length - 1])
                inputs = {"input_ids": torch.tensor([other], device=network.device)}
                expected = torch.cat(list(self.logits_at(inputs, places)))
                grown = self._grown([one, two])
                self._leave(grown.trunk, grown.branches, two)
                actual = self._grown([other]).logits_of([other])[0]
        except FORWARD_ERRORS as error:
            if is_oom(error):
                raise
            return f"its cache cannot be reused for the next prompt ({type(error).__name__})"
        finally:
            self.trunk = None
        gap = (actual.log_softmax(-1) - expected[0].log_softmax(-1)).abs().max()
        agrees = bool(gap <= AGREEMENT_NATS[str(network.dtype).removeprefix("torch.")])
        return "" if agrees else "its answers change behind the cached prefix of another prompt"


_Expand = Callable[[Sequence[Open]], list[dict[int, float]]]
_ROWS = {"choice": 2**30, "writing": MAX_SEQUENCES, "search": 8}
"""Maximum prompts of one pack, by mode."""


def _size(pack: Sequence[EncodedPrompt]) -> int:
    return len(PrefixTree.from_paths(prompt.tokens for prompt in pack).tokens) + sum(
        prompt.own_tokens for prompt in pack
    )
