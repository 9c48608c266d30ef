"""Greedy answers to many prompts at once, from one cache: the prompts as a prefix tree, the answers as its new leaves.

What prompts share (the instruction, the date) is read once; then each step feeds one token of every answer that is still
going on, in one forward pass over the cache of the whole tree. A mask lets each sequence see its own ancestors.

    prompts   Fill in : In 1801 _ was a child        cache   [ tree of all prompts | step 1 | step 2 | ... ]
                              └ In 1953 _ was ...            every answer sees its own path in it, and nothing else

Networks whose cache takes no such mask are decoded in plain batches of prompts of one length. Knows torch and
transformers; knows nothing about what the prompts say or what is made of the answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.models.base import PAPER, PAPER_TOP, Branches, Effort, UnscorableError, shared_length
from undertow.models.running import AGREEMENT_NATS, REFUSALS, explain_memory
from undertow.models.steps import Step, answer_of
from undertow.models.vocabulary import OptionTokens, Vocabulary
from undertow.types import Answer, Generation

if TYPE_CHECKING:
    import torch

CPU_TREE_TOKENS = 1024
GPU_TREE_TOKENS = 8192
"""Tokens of the prompts of one pack; every answer of the pack is a row of each further pass."""
PLAIN_ROWS = 16
CHECK_STEPS = 3


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A query in tokens.

    Attributes:
        place: in the list that was asked.
        query: as it was asked.
        tokens: of the prompt.
        options: the tokens of its options.
    """

    place: int
    query: Generation
    tokens: tuple[int, ...]
    options: OptionTokens


@dataclass(slots=True)
class _Written:
    """What was decoded for one prompt, so far."""

    tokens: list[int] = field(default_factory=list)
    probs: list[tuple[float, ...]] = field(default_factory=list)


@dataclass(slots=True)
class Decoder:
    """Greedy decoding of one causal network.

    Attributes:
        network, tokenizer: of the model.
        vocabulary: the tokenizer's.
        context_tokens: prompt and answer together.
        tree_depth: longest path over which a tree of prompts is read exactly; 0 for plain batches.
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
    def of(cls, network: Any, tokenizer: Any, context_tokens: int, tree_depth: int) -> Decoder:
        """Wrap a network; whether its cache takes a tree is found out when the first prompts come."""
        from transformers import GenerationConfig

        ends = _ends(network, tokenizer)
        # A checkpoint's own settings (a penalty for repeating, a least length) would bend the distributions.
        network.generation_config = GenerationConfig()
        return cls(network, tokenizer, Vocabulary.of(tokenizer), context_tokens, tree_depth, ends)

    def answers(
        self, queries: Sequence[Generation], protocol: str, tokens_of: Callable[[str], list[int]]
    ) -> Iterator[Mapping[int, Answer | UnscorableError]]:
        """Answers by their places, pack by pack; first those that cannot be asked.

        Args:
            queries: prompts.
            protocol: `paper` counts a token only where it is among the five most probable.
            tokens_of: a prompt's text in tokens, as this model begins a text.
        """
        prompts, refused = self._prompts(queries, tokens_of)
        if refused:
            yield refused
        for pack in self._packs(prompts):
            written = self._written(pack, PAPER_TOP if protocol == PAPER else 0)
            yield {prompt.place: self._answer(prompt, one) for prompt, one in zip(pack, written, strict=True)}

    def effort(
        self, queries: Sequence[Generation], tokens_of: Callable[[str], list[int]], weights_bytes: int
    ) -> Effort:
        """What answering takes, from one timed pack."""
        prompts, _ = self._prompts(queries, tokens_of)
        packs = list(self._packs(prompts))
        if not packs:
            return Effort(0, 0, 0.0, weights_bytes)
        sizes = [_size(pack) for pack in packs]
        timed = packs[len(packs) // 2]
        started = time.perf_counter()
        self._written(timed, 0)
        seconds = (time.perf_counter() - started) * sum(sizes) / sizes[len(packs) // 2]
        passes = sum(1 + max(prompt.query.max_tokens for prompt in pack) for pack in packs)
        config = self.network.config.get_text_config()
        cache = 2 * 4 * max(sizes) * int(config.num_hidden_layers) * int(config.hidden_size)
        return Effort(sum(sizes), passes, seconds, weights_bytes + cache)

    def notes_on(self, queries: Sequence[Any]) -> list[str]:
        """How prompts were decoded where it was not the usual way, and what could not be seen in them."""
        notes = [f"prompts were answered in plain batches, since {self.refusal}"] if self.refusal else []
        options = {query.options for query in queries if isinstance(query, Generation)}
        known = [self.vocabulary.of_options(one) for one in options]
        unread = sorted({word for one in known if isinstance(one, OptionTokens) for word in one.unread})
        if unread:
            notes.append(f"not seen in answers to prompts, since they are several tokens: {', '.join(unread)}")
        return notes

    def _prompts(
        self, queries: Sequence[Generation], tokens_of: Callable[[str], list[int]]
    ) -> tuple[list[_Prompt], dict[int, UnscorableError]]:
        prompts, refused = [], {}
        for place, query in enumerate(queries):
            try:
                options = self.vocabulary.of_options(query.options)
                if isinstance(options, UnscorableError):
                    raise options
                prompts.append(_Prompt(place, query, self._tokens(query, tokens_of), options))
            except UnscorableError as error:
                refused[place] = error
        return prompts, refused

    def _tokens(self, query: Generation, tokens_of: Callable[[str], list[int]]) -> tuple[int, ...]:
        if query.chat:
            if not self.tokenizer.chat_template:
                raise UnscorableError("this model has no chat template; leave --chat out")
            said = [{"role": "user", "content": query.prompt}]
            coded = self.tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=True)
            tokens = tuple(coded["input_ids"])
        else:
            tokens = tuple(tokens_of(query.prompt))
        if not tokens:
            raise UnscorableError("the prompt is empty")
        if len(tokens) + query.max_tokens > self.context_tokens:
            raise UnscorableError(
                f"prompt and answer are longer than the {self.context_tokens} tokens that the model reads"
            )
        return tokens

    def _packs(self, prompts: Sequence[_Prompt]) -> Iterator[list[_Prompt]]:
        """Prompts with equal options and length of answer, neighbours in the tree together."""
        if self.refusal is None:
            self.refusal = self._check() if self.tree_depth else "its attention takes no tree"
        alike: dict[tuple[OptionTokens, int], list[_Prompt]] = {}
        for prompt in prompts:
            alike.setdefault((prompt.options, prompt.query.max_tokens), []).append(prompt)
        for (_, max_tokens), members in alike.items():
            in_tree = [prompt for prompt in members if self._takes(len(prompt.tokens) + max_tokens)]
            yield from _cut(sorted(in_tree, key=lambda prompt: prompt.tokens), self._tree_tokens)
            by_length: dict[int, list[_Prompt]] = {}
            for prompt in members:
                if not self._takes(len(prompt.tokens) + max_tokens):
                    by_length.setdefault(len(prompt.tokens), []).append(prompt)
            for _, rows in sorted(by_length.items(), reverse=True):
                yield from (rows[start : start + PLAIN_ROWS] for start in range(0, len(rows), PLAIN_ROWS))

    def _takes(self, length: int) -> bool:
        """Whether a path of so many tokens goes into a tree."""
        return not self.refusal and length <= self.tree_depth

    @property
    def _tree_tokens(self) -> int:
        return GPU_TREE_TOKENS if self.network.device.type == "cuda" else CPU_TREE_TOKENS

    def _written(self, pack: Sequence[_Prompt], top: int) -> list[_Written]:
        import torch

        max_tokens = pack[0].query.max_tokens
        in_tree = self._takes(max(len(prompt.tokens) for prompt in pack) + max_tokens)
        reader = _Reader(pack[0].options, top, self.network.device)
        with torch.inference_mode(), explain_memory():
            if in_tree:
                return self._in_tree([prompt.tokens for prompt in pack], max_tokens, reader)
            return self._plain([prompt.tokens for prompt in pack], max_tokens, reader)

    def _in_tree(self, prompts: Sequence[tuple[int, ...]], max_tokens: int, reader: _Reader) -> list[_Written]:
        """Every prompt of a tree answered, a step of all of them at a time."""
        import torch
        from transformers import DynamicCache

        device = self.network.device
        branches = Branches.of(prompts)
        leaves = torch.tensor([branches.nodes_of[tokens][-1] for tokens in prompts], device=device)
        node = torch.arange(len(branches.tokens), device=device)
        ends = torch.from_numpy(branches.ends).to(device)
        sees = (node[None, :] <= node[:, None]) & (node[:, None] < ends[None, :])  # [node j, node i]
        cache = DynamicCache()
        fed = torch.from_numpy(branches.tokens).to(device), torch.from_numpy(branches.depths).to(device)
        logits = self._forward(*fed, sees, cache, leaves)
        depths = torch.from_numpy(branches.depths).to(device)[leaves]
        sees = sees[leaves]  # [answer, place in the cache]
        written = [_Written() for _ in prompts]
        going = torch.arange(len(prompts), device=device)
        for step in range(max_tokens):
            chosen = self._note(logits, reader, [written[at] for at in going.tolist()])
            kept = torch.tensor([token not in self.ends for token in chosen.tolist()], device=device)
            going, chosen, sees, depths = going[kept], chosen[kept], sees[kept], depths[kept] + 1
            if not len(going) or step == max_tokens - 1:
                break
            sees = torch.cat([sees, torch.eye(len(going), dtype=torch.bool, device=device)], dim=1)
            logits = self._forward(chosen, depths, sees, cache, torch.arange(len(chosen), device=device))
        return written

    def _forward(
        self, tokens: torch.Tensor, depths: torch.Tensor, sees: torch.Tensor, cache: Any, rows: torch.Tensor
    ) -> torch.Tensor:
        """Logits after some of the new tokens [row, vocabulary]; each token sees some of what is in the cache, and itself."""
        import torch

        mask = torch.zeros(sees.shape, dtype=self.network.dtype, device=sees.device)
        mask.masked_fill_(~sees, torch.finfo(mask.dtype).min)
        out = self.network(
            input_ids=tokens[None],
            position_ids=depths[None],
            attention_mask=mask[None, None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=rows,
        )
        logits: torch.Tensor = out.logits[0].float()
        return logits

    def _note(self, logits: torch.Tensor, reader: _Reader, written: Sequence[_Written]) -> torch.Tensor:
        chosen = logits.argmax(-1)
        for one, token, probs in zip(written, chosen.tolist(), reader.probs(logits), strict=True):
            if token not in self.ends:
                one.tokens.append(token)
                one.probs.append(tuple(probs))
        return chosen

    def _plain(self, prompts: Sequence[tuple[int, ...]], max_tokens: int, reader: _Reader) -> list[_Written]:
        """Prompts of one length by the network's own greedy search; logits are noted as they pass."""
        import torch
        from transformers import GenerationConfig, LogitsProcessorList

        written = [_Written() for _ in prompts]
        ended = [False] * len(prompts)

        def note(_: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
            logits_nats = logits.float()
            going = [at for at, over in enumerate(ended) if not over]
            chosen = self._note(logits_nats[going], reader, [written[at] for at in going])
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

    def _answer(self, prompt: _Prompt, written: _Written) -> Answer:
        steps = [
            Step(self.vocabulary.text_of(token), probs)
            for token, probs in zip(written.tokens, written.probs, strict=True)
        ]
        return answer_of(prompt.query, steps, self.tokenizer.decode(written.tokens))

    def _check(self) -> str:
        """Two made-up prompts answered from the tree and by the network itself; "" or why the tree must not be used."""
        import torch

        length = min(8, self.tree_depth - CHECK_STEPS)
        if length < 2:
            return "it looks back over a few tokens only"
        vocabulary = int(self.network.get_output_embeddings().weight.shape[0])
        draws = np.random.default_rng(0).integers(vocabulary // 4, vocabulary // 2, size=(24, length))
        draws[:, : length // 2] = draws[0, : length // 2]
        prompts = [tuple(map(int, row)) for row in draws]
        some = tuple((int(token),) for token in draws[0, length // 2 :])
        reader = _Reader(OptionTokens(some), 0, self.network.device)
        with torch.inference_mode():
            expected = self._plain([prompts[0], prompts[-1]], CHECK_STEPS, reader)
            try:
                found = self._in_tree(prompts, CHECK_STEPS, reader)
            except REFUSALS as error:
                return f"its cache takes no tree of prompts ({type(error).__name__})"
        for one, other in zip(expected, (found[0], found[-1]), strict=True):
            shared = min(len(one.tokens), len(other.tokens))
            near = np.array(one.probs[:shared]), np.array(other.probs[:shared])
            same = one.tokens[: shared - 1] == other.tokens[: shared - 1]
            if (
                same
                and np.abs(np.log(near[0]) - np.log(near[1])).max(initial=0.0) > AGREEMENT_NATS[_dtype(self.network)]
            ):
                return "it answers a tree of prompts differently from the prompts one by one"
        return ""


@dataclass(frozen=True, slots=True)
class _Reader:
    """What is read off a step's distribution.

    Attributes:
        options: tokens of the options.
        top: how many most probable tokens count; 0 for all.
        device: where logits are.
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
            least = logits.topk(min(self.top, logits.shape[-1])).values[:, -1:]
            probs = probs.masked_fill(logits[:, tokens] < least, 0.0)
        sums = torch.zeros(len(logits), n_options, device=logits.device).index_add_(1, owners, probs)
        without = torch.tensor([not tokens for tokens in self.options.ids], device=logits.device)
        found: list[list[float]] = sums.masked_fill(without, torch.nan).double().cpu().tolist()
        return found


def _size(pack: Sequence[_Prompt]) -> int:
    return len(Branches.of(prompt.tokens for prompt in pack).tokens) + sum(prompt.query.max_tokens for prompt in pack)


def _cut(prompts: Sequence[_Prompt], budget_tokens: int) -> Iterator[list[_Prompt]]:
    """Fill a pack prompt by prompt; what one shares with the one before costs nothing."""
    pack: list[_Prompt] = []
    n_tokens = 0
    for prompt in prompts:
        shared = shared_length(pack[-1].tokens, prompt.tokens) if pack else 0
        if pack and n_tokens + len(prompt.tokens) - shared > budget_tokens:
            yield pack
            pack, n_tokens, shared = [], 0, 0
        pack.append(prompt)
        n_tokens += len(prompt.tokens) - shared
    if pack:
        yield pack


def _ends(network: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end an answer, as the checkpoint and its tokenizer say."""
    said = [
        getattr(getattr(network, "generation_config", None), "eos_token_id", None),
        getattr(network.config, "eos_token_id", None),
        tokenizer.eos_token_id,
    ]
    return frozenset(
        int(token) for one in said if one is not None for token in (one if isinstance(one, list) else [one])
    )


def _dtype(network: Any) -> str:
    return str(network.dtype).removeprefix("torch.")
