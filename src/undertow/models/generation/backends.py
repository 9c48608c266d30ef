"""Two ways to run a network that generates: a tree of prompts over one KV cache, and whole texts with the network's `generate`.

    tree       Fill in : In 1801 _ was a child      cache   [ tree of all prompts | step 1 | step 2 | ... ]
                             └ In 1953 _ was ...            every answer sees its own path in it, and nothing else
    generate   prompts of one length in a batch, without padding; a logits processor chooses each token

Prefixes within a pack are fed to the tree once; the prefix that the next pack shares stays in the cache. So an instruction or a
document is read once for all that follows it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.models.backend.execution import AGREEMENT_NATS, to_device
from undertow.models.backend.tree_attention import TreeKVCache, ancestor_mask
from undertow.models.base import Ints, PrefixTree, common_prefix_length
from undertow.models.generation.generation_state import GenerationState, Stops
from undertow.models.generation.prompt_encoder import SEARCH, EncodedPrompt, Tokens
from undertow.types import CHOICE, GENERATION

if TYPE_CHECKING:
    import torch

Text = tuple[int, Tokens]
"""A text to go on with: index of its prompt in the pack, and the tokens behind the prompt."""
Step = Callable[[Sequence[GenerationState], "torch.Tensor"], None]
"""Chooses the next token of some answers from the logits of a step [answer, vocabulary]."""
CPU_FORWARD_TOKENS, GPU_FORWARD_TOKENS = 512, 8192
"""New tokens of one forward pass; with more, attention over the tree costs more than larger products save."""
CPU_TREE_TOKENS, GPU_TREE_TOKENS = 2048, 16_384
"""Columns in the cache of one pack: its prompt tree, and its answers at maximum length."""
STEP_LOGITS = 2**24
"""Logits of one step of all answers of a pack: 64 MiB in float32."""
MAX_ROWS = {GENERATION: 2**30, CHOICE: 2**30, SEARCH: 8}
MAX_SEQUENCES = 64
"""Written answers, spans or rows of one forward pass, at most."""
PLAIN_ROWS = 16
CHECKED_TOKENS = 3
"""Tokens that are written through the network's cache to check it."""


class Backend(ABC):
    """Runs the prompts of one pack at a time."""

    prompts: Sequence[Tokens] = ()

    @abstractmethod
    def packs(self, prompts: Sequence[EncodedPrompt], before: Tokens) -> Iterator[list[EncodedPrompt]]:
        """Packs of prompts of one mode, as many as fit; the prefix shared with the prompt `before` is free."""

    def start(self, prompts: Sequence[Tokens], mode: str) -> None:
        """Begin a pack of prompts of one mode."""
        self.prompts = prompts

    @abstractmethod
    def logits_after(self, texts: Sequence[Text]) -> Iterator[tuple[Sequence[int], torch.Tensor]]:
        """Logits after texts of the pack, in slices: their indices, and [text, vocabulary] in float32."""

    @abstractmethod
    def write(self, states: Sequence[GenerationState], step: Step) -> None:
        """Generate answers until all are done."""

    def finish(self) -> None:
        """End a pack."""
        self.prompts = ()


class TreeBackend(Backend):
    """The prompts of a pack as one tree in a KV cache, and what is written behind them as its new leaves.

    Attributes:
        network: a causal network that accepts a four-dimensional mask.
        trunk: cache of the last pack, for the prefix that the next one shares.
        tree_tokens: maximum columns in the cache of one pack.
        forward_tokens: maximum new tokens of one forward pass.
        max_reads: maximum distributions of one step.
    """

    def __init__(self, network: Any, n_logits: int) -> None:
        self.network, self.trunk = network, TreeKVCache(network)
        on_gpu = network.device.type == "cuda"
        self.tree_tokens = GPU_TREE_TOKENS if on_gpu else CPU_TREE_TOKENS
        self.forward_tokens = GPU_FORWARD_TOKENS if on_gpu else CPU_FORWARD_TOKENS
        self.max_reads = max(1, STEP_LOGITS // n_logits)
        self._nodes_of: dict[Tokens, Ints] = {}
        self._sees: dict[Text, np.ndarray] = {}

    def packs(self, prompts: Sequence[EncodedPrompt], before: Tokens) -> Iterator[list[EncodedPrompt]]:
        """Neighbours in the tree; a prefix shared with the previous prompt costs nothing."""
        mode = prompts[0].mode
        room = self.forward_tokens if mode == CHOICE else self.tree_tokens
        max_rows = MAX_ROWS.get(mode, MAX_SEQUENCES)
        pack: list[EncodedPrompt] = []
        n_tokens = n_reads = 0
        for prompt in sorted(prompts, key=lambda prompt: prompt.tokens):
            own = len(prompt.tokens) - common_prefix_length(before, prompt.tokens) + prompt.own_tokens
            reads = max(1, len(prompt.nodes))
            if pack and (n_tokens + own > room or n_reads + reads > self.max_reads or len(pack) == max_rows):
                yield pack
                pack, n_tokens, n_reads = [], 0, 0
                if mode == GENERATION:  # such a pack is a section of its own, whose cache is empty
                    own = len(prompt.tokens) + prompt.own_tokens
            pack.append(prompt)
            n_tokens, n_reads, before = n_tokens + own, n_reads + reads, prompt.tokens
        if pack:
            yield pack

    def start(self, prompts: Sequence[Tokens], mode: str) -> None:
        """Begin a pack with the prefix that the last one left."""
        self.prompts, self._nodes_of, self._sees = prompts, {}, {}

    def logits_after(self, texts: Sequence[Text]) -> Iterator[tuple[Sequence[int], torch.Tensor]]:
        """One slice: the first texts of a pack grow its tree, and later ones are leaves behind earlier ones."""
        yield range(len(texts)), self._extend(texts) if self._nodes_of else self._grow(texts)

    def _grow(self, texts: Sequence[Text]) -> torch.Tensor:
        """Feed texts without their cached prefix; logits after each [text, vocabulary]."""
        import torch

        trunk = self.trunk
        paths = [(*self.prompts[at], *written) for at, written in texts]
        first = min(paths)
        # Feed the last token of the first path again for its logits; no other path ends before it.
        n_known = min(common_prefix_length(trunk.path, first), len(first) - 1)
        trunk.keep_path(first[:n_known], range(n_known))
        tree = PrefixTree.from_paths(paths)
        self._nodes_of = {path: nodes[: len(path)] for path, nodes in zip(paths, tree.nodes, strict=True)}
        distinct, rows = np.unique([self._nodes_of[path][-1] for path in paths], return_inverse=True)
        ends, parts = to_device(tree.ends, self.network.device), []
        for start in range(n_known, len(tree.tokens), self.forward_tokens):
            stop = min(start + self.forward_tokens, len(tree.tokens))
            sees = ancestor_mask(ends[:stop], torch.arange(start, stop, device=ends.device))
            read = distinct[(distinct >= start) & (distinct < stop)] - start
            # `logits_to_keep` of length 0 would mean all logits.
            kept = read if len(read) else np.zeros(1, dtype=np.int64)
            logits = trunk.feed(tree.tokens[start:stop], tree.depths[start:stop], sees, kept)
            parts += [logits] if len(read) else []
        logits = torch.cat(parts) if len(parts) > 1 else parts[0]
        return logits if np.array_equal(rows, np.arange(len(distinct))) else logits[rows]

    def _extend(self, texts: Sequence[Text]) -> torch.Tensor:
        """Feed the last token of texts whose beginnings are in the cache; logits after each [text, vocabulary]."""
        trunk, n = self.trunk, len(texts)
        sees = np.zeros((n, trunk.n_columns + n), dtype=bool)
        for row, (at, written) in enumerate(texts):
            parent = self._sees.get((at, written[:-1]))
            if parent is not None:
                sees[row, : len(parent)] = parent
            else:
                sees[row, self._nodes_of[*self.prompts[at], *written[:-1]]] = True
            sees[row, trunk.n_columns + row] = True
            self._sees[at, written] = sees[row]
        tokens = np.array([written[-1] for _, written in texts])
        depths = np.array([len(self.prompts[at]) + len(written) - 1 for at, written in texts])
        return trunk.feed(tokens, depths, to_device(sees, self.network.device), np.arange(n))

    def write(self, states: Sequence[GenerationState], step: Step) -> None:
        """One token of every unfinished answer in each forward pass."""
        going = list(states)
        while going:
            texts = [(state.number, tuple(state.tokens)) for state in going]
            ((_, logits),) = self.logits_after(texts)
            self._sees = {text: self._sees[text] for text in texts if text in self._sees}  # earlier steps are over
            step(going, logits)
            going = [state for state in going if not state.done]

    def finish(self) -> None:
        """Keep the path of the last prompt for the next pack."""
        last = max(self.prompts)
        if self._nodes_of:
            self.trunk.keep_path(last, self._nodes_of[last])
        self._nodes_of, self._sees = {}, {}


class GenerateBackend(Backend):
    """Whole texts, without a cache of ours; answers are written by the network's `generate` with these settings, one row each.

    Attributes:
        max_rows: maximum answers of one forward pass.
        notes: notes on how answers were written.
    """

    def __init__(self, network: Any, stops: Stops, **settings: Any) -> None:
        self.network, self.stops, self._settings = network, stops, settings
        self.max_rows = MAX_SEQUENCES
        self.notes: tuple[str, ...] = ()

    @abstractmethod
    def inputs(self, states: Sequence[GenerationState]) -> dict[str, Any]:
        """What `generate` is given of some prompts of the pack."""

    def write(self, states: Sequence[GenerationState], step: Step) -> None:
        """Generate answers; a logits processor chooses each token."""
        from transformers import LogitsProcessorList

        ends = self.stops.ends
        for start in range(0, len(states), self.max_rows):
            some = states[start : start + self.max_rows]
            self._generate(
                some,
                max_new_tokens=max(state.prompt.max_tokens for state in some),
                eos_token_id=[min(ends)] if ends else None,
                logits_processor=LogitsProcessorList([partial(self._choose, some, step)]),
            )

    def _generate(self, states: Sequence[GenerationState], **options: Any) -> Any:
        """Call `generate`, greedily. The checkpoint's own settings (penalties, forced tokens) would change the distributions."""
        from transformers import GenerationConfig

        pad = min(self.stops.ends, default=0)
        config = GenerationConfig(do_sample=False, num_beams=1, pad_token_id=pad, **self._settings)
        own, self.network.generation_config = self.network.generation_config, GenerationConfig()
        try:
            return self.network.generate(**self.inputs(states), generation_config=config, **options)
        finally:
            self.network.generation_config = own

    def _choose(
        self, states: Sequence[GenerationState], step: Step, _: torch.Tensor, logits: torch.Tensor
    ) -> torch.Tensor:
        """Called by `generate` with the logits of a step [row, vocabulary]; leaves it one token in each row."""
        going = [at for at, state in enumerate(states) if not state.done]
        step([states[at] for at in going], logits.float()[going] if len(going) < len(states) else logits.float())
        end = min(self.stops.ends, default=0)
        chosen = [end if state.done else state.tokens[-1] for state in states]
        logits.fill_(-math.inf)
        logits[list(range(len(states))), chosen] = 0.0
        return logits


class CausalTexts(GenerateBackend):
    """Whole texts of a causal network that takes no tree, or not of this depth.

    `logits_at` returns logits of texts of one length at flat positions, in slices of rows.
    """

    def __init__(
        self, network: Any, stops: Stops, logits_at: Callable[[dict[str, Any], Ints], Iterator[torch.Tensor]]
    ) -> None:
        super().__init__(network, stops)
        self._logits_at, self._n_checked = logits_at, 0

    def packs(self, prompts: Sequence[EncodedPrompt], before: Tokens) -> Iterator[list[EncodedPrompt]]:
        """A few prompts of one length, the longest first."""
        by_length: dict[int, list[EncodedPrompt]] = {}
        for prompt in prompts:
            by_length.setdefault(len(prompt.tokens), []).append(prompt)
        for _, rows in sorted(by_length.items(), reverse=True):
            yield from (rows[start : start + PLAIN_ROWS] for start in range(0, len(rows), PLAIN_ROWS))

    def logits_after(self, texts: Sequence[Text]) -> Iterator[tuple[Sequence[int], torch.Tensor]]:
        """One forward pass over the texts of each length."""
        import torch

        by_length: dict[int, list[int]] = {}
        for row, (at, written) in enumerate(texts):
            by_length.setdefault(len(self.prompts[at]) + len(written), []).append(row)
        for length, rows in by_length.items():
            tokens = [(*self.prompts[texts[row][0]], *texts[row][1]) for row in rows]
            inputs = {"input_ids": torch.tensor(tokens, device=self.network.device)}
            yield rows, torch.cat(list(self._logits_at(inputs, np.arange(1, len(rows) + 1) * length - 1)))

    def write(self, states: Sequence[GenerationState], step: Step) -> None:
        """Generate answers, one at a time or without the network's cache if that is wrong (RWKV's in batches)."""
        # No more than they may write, which has room; the first token needs no cache.
        n_tokens = min([CHECKED_TOKENS, *(state.prompt.max_tokens for state in states[:2])])
        n_texts = min(len(states), 2)  # the cache of one text can be wrong, or only that of several
        if n_texts > self._n_checked and n_tokens > 1:
            if not self._cache_agrees(states[:n_texts], n_tokens):
                if n_texts > 1 and self._cache_agrees(states[:1], n_tokens):
                    self.max_rows = 1
                    self.notes = (
                        "answers were written one at a time, since the cache of this network is wrong in batches",
                    )
                else:
                    self._settings["use_cache"] = False
                    self.notes = ("answers were written without the cache of this network, which is wrong",)
            self._n_checked = n_texts
        super().write(states, step)

    def _cache_agrees(self, states: Sequence[GenerationState], n_tokens: int) -> bool:
        """Whether tokens that are written through the network's cache have the probabilities that whole texts have."""
        import torch

        written = self._generate(states, max_new_tokens=n_tokens, output_logits=True, return_dict_in_generate=True)
        rows = written.sequences[:, -n_tokens:].tolist()
        texts = [
            (state.number, tuple(row[:n])) for n in range(n_tokens) for state, row in zip(states, rows, strict=True)
        ]
        tolerance = AGREEMENT_NATS[str(self.network.dtype).removeprefix("torch.")]
        for numbers, logits in self.logits_after(texts):
            for number, own in zip(numbers, logits, strict=True):
                n, row = divmod(number, len(states))
                cached, whole = written.logits[n][row].float().log_softmax(-1), own.log_softmax(-1)
                if not torch.allclose(cached, whole, rtol=0.0, atol=tolerance):  # both may be -inf; NaN is wrong
                    return False
        return True

    def inputs(self, states: Sequence[GenerationState]) -> dict[str, Any]:
        """The prompts."""
        import torch

        tokens = torch.tensor([state.prompt.tokens for state in states], device=self.network.device)
        return {"inputs": tokens, "attention_mask": torch.ones_like(tokens)}
