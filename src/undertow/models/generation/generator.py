"""Answer prompts: written answers, free or constrained, whose steps may be recorded, labels, and the most probable span.

Prompts are sorted by prefix or length and cut into packs. A written answer, greedy or sampled, takes a step for each token. A choice
takes none: its labels are branches of the prompt, and one pass reads them all. The most probable span is searched for.

    pack 1   a document   Task: Identify ... Answer:   → gender | race | political → affiliation
                          Task: Generate ... Answer:   → gender | race | political → affiliation
    pack 2   (kept)       Question: What ... Answer:   → ...
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice, product
from typing import TYPE_CHECKING, cast

import numpy as np

from undertow.models.backend.execution import AGREEMENT_NATS, FORWARD_ERRORS, in_top_k, is_oom, oom_errors
from undertow.models.backend.tree_attention import TreeKVCache
from undertow.models.base import NOT_A_NUMBER, PAPER_TOP, CostEstimate, Outcome, PrefixTree, UnsupportedQueryError
from undertow.models.generation.backends import MAX_SEQUENCES, Backend, GenerateBackend, Text, TreeBackend
from undertow.models.generation.constraints import END, SpanSearch, greedy_label, label_nats
from undertow.models.generation.generation_state import (
    GenerationState,
    StepRecorder,
    decode_step,
    end_logits,
    written_answer,
)
from undertow.models.generation.prompt_encoder import SEARCH, EncodedPrompt, PromptEncoder, check_system_role
from undertow.models.generation.step_readout import places_that_count
from undertow.models.huggingface import PackedAnswers
from undertow.models.tokens.option_tokens import Chain
from undertow.types import CHOICE, GENERATION, PAPER, Answer, GeneratedQuery, GenerateQuery, MultipleChoiceQuery, Query

if TYPE_CHECKING:
    import torch

BLOCK = 4096
"""Prompts to tokenize before the first answer."""
SECTION = 16
"""Packs of choices and of writing that share a cache: what they begin with is read again for the next sixteen."""
CHECK_STEPS = 3
CHAIN_LOGITS = 2**24
"""Logits of one pass that reads words of several tokens: 64 MiB in float32."""
Answers = dict[int, Outcome]


class PromptModel(PackedAnswers[EncodedPrompt]):
    """A model that answers prompts with one network; see `undertow.models.base.AnsweringModel`.

    Attributes:
        plain: runs whole texts.
        tree: runs a tree of prompts; None for an encoder-decoder.
        prompt_depth: longest path that a tree of prompts reads exactly; 0 for plain batches.
        own_notes: notes on every prompt.
        prompt_notes: these, and notes on how prompts were answered.
    """

    SYSTEM_PROMPTS = True
    own_notes: tuple[str, ...] = ()
    prompt_notes: tuple[str, ...] = ()

    def answer_with(
        self, encoder: PromptEncoder, plain: GenerateBackend, tree: TreeBackend | None = None, depth: int = 0
    ) -> None:
        """Set what encodes prompts and what runs them; call it at the end of the constructor."""
        self.encoder, self.plain, self.tree, self.prompt_depth = encoder, plain, tree, depth
        self.stops, self.n_logits = plain.stops, self._n_logits()
        self._refusal: str | None = None if tree else ""

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Outcome]]:
        """Answers pack by pack; unsupported queries first."""
        template = self.encoder.template_notes() if any(getattr(query, "chat", False) for query in queries) else []
        for answers in super().answer(queries, protocol):
            plain = [f"prompts were answered in plain batches, since {self._refusal}"] if self._refusal else []
            self.prompt_notes = (*self.own_notes, *plain, *self.plain.notes, *template)
            yield answers

    # Packs.

    def encode_queries(self, queries: Sequence[Query]) -> list[EncodedPrompt | UnsupportedQueryError]:
        """Prompts in tokens."""
        if self.encoder.system_prompt != self.identity.system_prompt:
            check_system_role(self.tokenizer, self.identity.system_prompt)
            self.encoder.system_prompt = self.identity.system_prompt
        return self.encoder.encode(queries)

    def sections(self, queries: Sequence[Query]) -> Iterator[list[list[int]]]:
        """Packs that may share a cache, as indices; unsupported queries are packs of their own.

        Prompts are tokenized in blocks of neighbours, so the first answers do not wait for all prompts.
        """
        order = sorted(range(len(queries)), key=lambda place: cast(GeneratedQuery, queries[place]).display_text())
        for start in range(0, len(order), BLOCK):
            block = order[start : start + BLOCK]
            prompts, refused = self.split_queries([queries[place] for place in block])
            if refused:
                yield [[block[at] for at in refused]]
            for (mode, in_tree), packs in groupby(
                self.cut_packs(prompts, ()), lambda pack: (pack[0].mode, self._in_tree(pack[0]))
            ):
                # A greedy pack takes many steps, and one that is interrupted is computed again.
                size = SECTION if in_tree and mode != GENERATION else 1
                while section := list(islice(packs, size)):
                    yield [[block[prompt.place] for prompt in pack] for pack in section]

    def reset_cache(self) -> None:
        """Drop the cache of earlier prompts."""
        if self.tree is not None:
            self.tree.trunk = TreeKVCache(self.network)

    def cut_packs(
        self, encoded: Sequence[EncodedPrompt], before: tuple[int, ...] | None = None
    ) -> Iterator[list[EncodedPrompt]]:
        """Packs of prompts of one mode; the prefix `before` is free, by default what the last pack left in the cache."""
        if before is None:
            before = self.tree.trunk.path if self.tree is not None else ()
        groups: dict[tuple[str, bool], list[EncodedPrompt]] = {}
        for prompt in encoded:
            groups.setdefault((prompt.mode, self._in_tree(prompt)), []).append(prompt)
        for (_, in_tree), members in sorted(groups.items()):
            yield from (self.tree if in_tree and self.tree else self.plain).packs(members, before)

    @property
    def refusal(self) -> str:
        """Why the tree is not used; "" if it is. Tested on first use."""
        if self._refusal is None:
            with oom_errors():
                self._refusal = self._check_tree() if self.prompt_depth else "its attention takes no tree"
        return self._refusal

    def _in_tree(self, prompt: EncodedPrompt) -> bool:
        return self.tree is not None and not self.refusal and len(prompt.tokens) + prompt.reach <= self.prompt_depth

    def pack_cost(self, pack: Sequence[EncodedPrompt]) -> CostEstimate:
        """The distinct tokens of the prompts, and what is written; a pass of the prompts, and one for each step."""
        own = sum(prompt.own_tokens for prompt in pack)
        if self._in_tree(pack[0]):
            n_tokens = len(PrefixTree.from_paths([prompt.tokens for prompt in pack]).tokens) + own
        else:
            n_tokens = sum(map(len, {prompt.tokens for prompt in pack})) + own
        steps = 0 if pack[0].mode == CHOICE else max(prompt.max_tokens for prompt in pack)
        n_passes = steps + (1 if self.tree else 2)  # an encoder's and a decoder's
        # Weights, the cache of a pack with its mask, and the logits of a step.
        config, size = self.network.config.get_text_config(), int(self.network.dtype.itemsize)
        heads = int(getattr(config, "num_attention_heads", 1) or 1)
        kept = int(getattr(config, "num_key_value_heads", 0) or heads)
        width = int(getattr(config, "head_dim", 0) or int(config.hidden_size) // heads)
        cache = 2 * size * n_tokens * int(config.num_hidden_layers) * kept * width
        step = 3 * 4 * len(pack) * self.n_logits + size * n_tokens**2
        memory = self.memory_bytes(n_tokens if self.tree is None else 1) + cache + step
        return CostEstimate(n_tokens, n_passes, 0.0, memory)

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        """The estimated cost, from one timed pack of each kind of query."""
        kinds: dict[type, list[Query]] = {}
        for query in queries:
            kinds.setdefault(type(query), []).append(query)
        costs = []
        for some in kinds.values():
            self.reset_cache()
            costs.append(super().estimate_cost(some, protocol))
        return CostEstimate.total(costs)

    # Answers.

    def answer_pack(self, pack: Sequence[EncodedPrompt], protocol: str) -> Answers:
        """Answers of a pack by index of the query; under protocol `paper` only the most probable tokens of a step count."""
        import torch

        in_tree = all(map(self._in_tree, pack))
        backend: Backend = self.tree if in_tree and self.tree else self.plain
        with torch.inference_mode(), oom_errors():
            backend.start([prompt.tokens for prompt in pack], pack[0].mode)
            if pack[0].mode == CHOICE:
                answers = self._choose(pack, backend, ends_early=protocol == PAPER)
            elif pack[0].mode == SEARCH:
                answers = self._search(pack, backend)
            else:
                answers = self._write(pack, backend, PAPER_TOP if protocol == PAPER else 0)
            backend.finish()
        return answers

    def _write(self, pack: Sequence[EncodedPrompt], backend: Backend, top: int) -> Answers:
        states = [GenerationState.from_prompt(prompt, number) for number, prompt in enumerate(pack)]
        recorder = StepRecorder(pack, top, self.network.device) if pack[0].mode == GENERATION else None
        backend.write(states, partial(decode_step, stops=self.stops, recorder=recorder))
        chained = [state for state in states if state.prompt.options.chains and state.tokens]
        if chained:
            self._read_chains(pack, chained, backend, top)
        answers = (state.answer(self.encoder.tokenizer, self.encoder.vocabulary) for state in states)
        return {state.prompt.place: answer for state, answer in zip(states, answers, strict=True)}

    def _read_chains(
        self, pack: Sequence[EncodedPrompt], states: Sequence[GenerationState], backend: Backend, top: int
    ) -> None:
        """Read words of several tokens behind the beginnings of written answers, at the places that count.

        answer   The word is she          " z" and "e" are read here, one after the other
                            ^
        """
        vocabulary = self.encoder.vocabulary
        places = {
            state.number: places_that_count(state.steps(vocabulary), cast(GenerateQuery, state.prompt.query).options)
            for state in states
        }

        def reads(state: GenerationState, at: int, chain: Chain) -> list[tuple[Text, int]]:
            """The tokens of a chain at a place, each with the text that it is read behind."""
            sizes = enumerate(chain.tokens)
            return [((state.number, (*state.tokens[:at], *chain.tokens[:size])), token) for size, token in sizes]

        wanted: dict[Text, set[int]] = {}
        for state in states:
            for at, chain in product(places[state.number], state.prompt.options.chains):
                for text, token in reads(state, at, chain):
                    wanted.setdefault(text, set()).add(token)
        texts = sorted(wanted, key=lambda text: (pack[text[0]].tokens, *text))
        probs: dict[Text, dict[int, float]] = {}
        size = max(1, CHAIN_LOGITS // self.n_logits)
        last = max(range(len(pack)), key=lambda number: pack[number].tokens), ()  # what `finish` keeps is read too
        backend.finish()
        for start in range(0, len(texts), size):
            some = list(dict.fromkeys([*texts[start : start + size], last]))
            backend.start([prompt.tokens for prompt in pack], GENERATION)
            for numbers, logits in backend.logits_after(some):
                of_slice = [some[number] for number in numbers]
                probs |= _token_probs(logits, of_slice, [sorted(wanted.get(text, ())) for text in of_slice], top)
            backend.finish()
        for state in states:
            chains = state.prompt.options.chains
            state.chain_probs = {
                at: [math.prod(probs[text][token] for text, token in reads(state, at, chain)) for chain in chains]
                for at in places[state.number]
            }

    def _choose(self, pack: Sequence[EncodedPrompt], backend: Backend, *, ends_early: bool) -> Answers:
        """The greedily decoded label and the log-probabilities of all; it may be part of a label if an end may come early."""
        reads = {(at, path): state.allowed for at, prompt in enumerate(pack) for path, state in prompt.nodes.items()}
        nats = self._nats_after(backend, pack, reads)
        answers: Answers = {}
        for at, prompt in enumerate(pack):
            trie, labels = prompt.nodes[()], cast(MultipleChoiceQuery, prompt.query).labels
            nexts = {path: nats[at, path] for path in prompt.nodes}
            values = label_nats(trie, nexts)
            if any(math.isnan(value) or value == math.inf for value in values):
                answers[prompt.place] = UnsupportedQueryError(NOT_A_NUMBER)
                continue
            written, label = greedy_label(trie, nexts, ends_early=ends_early)
            text = self.encoder.tokenizer.decode(list(written)) if label is None else labels[label]
            other = max(0.0, 1.0 - sum(math.exp(nexts[()][token]) for token in trie.children))
            answers[prompt.place] = Answer(
                tuple(values), other, text=text.strip(), n_dropped_shots=prompt.n_dropped_shots
            )
        return answers

    def _search(self, pack: Sequence[EncodedPrompt], backend: Backend) -> Answers:
        """The most probable span of each passage; all searches of a pack run together."""
        searches = [SpanSearch.from_passage(prompt.passage.tokens) for prompt in pack]
        while any(search.running for search in searches):
            share = max(1, MAX_SEQUENCES // sum(search.running for search in searches))
            spans = {
                (at, written): span.allowed
                for at, search in enumerate(searches)
                for written, span in search.next_spans(share)
            }
            for (at, written), nats in self._nats_after(backend, pack, spans).items():
                searches[at].extend(written, nats)
        return {
            prompt.place: written_answer(prompt, search.best_nats, prompt.passage.text_of_span(search.best))
            if search.best
            else UnsupportedQueryError(NOT_A_NUMBER)
            for prompt, search in zip(pack, searches, strict=True)
        }

    def _nats_after(
        self, backend: Backend, pack: Sequence[EncodedPrompt], allowed: dict[Text, tuple[int, ...]]
    ) -> dict[Text, dict[int, float]]:
        """Log-probabilities after some texts, of the allowed next tokens and of an end."""
        import torch

        nats: dict[Text, dict[int, float]] = {}
        texts = sorted(allowed, key=lambda text: (pack[text[0]].tokens, *text))
        for numbers, logits in backend.logits_after(texts):
            some = [texts[number] for number in numbers]
            norms = logits.logsumexp(-1)
            flat = [(row, token) for row, text in enumerate(some) for token in allowed[text]]
            at = torch.tensor(flat, device=logits.device, dtype=torch.int64).reshape(-1, 2)
            values = iter((logits[at[:, 0], at[:, 1]] - norms[at[:, 0]]).double().tolist())
            ends = [self.stops.end_tokens(pack[number].query) for number, _ in some]
            end_nats = {own: (end_logits(logits, own) - norms).double().tolist() for own in set(ends)}
            for row, text in enumerate(some):
                own = {token: next(values) for token in allowed[text]} | {END: end_nats[ends[row]][row]}
                prompt = pack[text[0]]
                if prompt.mode == SEARCH:  # a span goes on with no end token, nor behind a token that ends a line
                    is_over = self.stops.last_tokens(prompt.query).intersection(text[1][-1:])
                    closed = own if is_over else ends[row].intersection(own)
                    own |= dict.fromkeys(closed, -math.inf) | ({END: 0.0} if is_over else {})
                nats[text] = own
        return nats

    # The tree.

    def _check_tree(self) -> str:
        """Read a pack of full width from its tree, some steps of it, and a text behind the prefix that it leaves in the cache.

            texts    a a a a b b b b | b b b        compared with the same texts read whole, at every step
                     a a a a c c c c | c c c
            after    a a a a c c c d                behind what was kept of the last text

        Returns:
            "", or why the tree must not be used.
        """
        import torch

        tree = self.tree
        length = min(8, self.prompt_depth - CHECK_STEPS)
        if length < 4 or tree is None:
            return "it looks back over a few tokens only"
        shared = length // 2
        n_rows = min(tree.max_reads, max(2, (tree.tree_tokens - shared) // (length - shared + CHECK_STEPS)))
        shape = n_rows, length + CHECK_STEPS
        draws = np.random.default_rng(0).integers(self.n_logits // 4, self.n_logits // 2, size=shape)
        draws[:, :shared] = draws[0, :shared]
        draws = draws[np.lexsort(draws.T[::-1])]
        prompts = [tuple(row[:length].tolist()) for row in draws]
        after = (*prompts[-1][:-2], prompts[-1][-2] + 1, prompts[-1][-1])

        def gap(texts: Sequence[Text], compared: Sequence[int]) -> float:
            ((_, actual),) = tree.logits_after(texts)
            ((_, expected),) = self.plain.logits_after([texts[at] for at in compared])
            return float((actual[list(compared)].log_softmax(-1) - expected.log_softmax(-1)).abs().max())

        try:
            with torch.inference_mode():
                gaps = []
                tree.start(prompts, CHOICE)
                self.plain.start(prompts, CHOICE)
                for n in range(CHECK_STEPS + 1):
                    texts = [(at, tuple(row[length : length + n].tolist())) for at, row in enumerate(draws)]
                    gaps.append(gap(texts, (0, n_rows // 2, n_rows - 1)))
                tree.finish()
                tree.start([after], CHOICE)
                self.plain.start([after], CHOICE)
                gaps.append(gap([(0, ())], (0,)))
        except FORWARD_ERRORS as error:
            if is_oom(error):
                raise
            return f"its cache takes no tree of prompts ({type(error).__name__})"
        finally:
            self.reset_cache()
        limit = AGREEMENT_NATS[str(self.network.dtype).removeprefix("torch.")]
        agrees = all(one <= limit for one in gaps)
        return "" if agrees else "it answers a tree of prompts differently from the prompts one by one"


def _token_probs(
    logits: torch.Tensor, texts: Sequence[Text], wanted: Sequence[Sequence[int]], top: int
) -> dict[Text, dict[int, float]]:
    """Probabilities of the wanted next tokens of each text; 0 for one that is not among the `top` most probable, if that is not 0."""
    import torch

    flat = [(row, token) for row, own in enumerate(wanted) for token in own]
    at = torch.tensor(flat, device=logits.device, dtype=torch.int64).reshape(-1, 2)
    rows, tokens = at[:, 0], at[:, 1]
    probs = (logits[rows, tokens] - logits.logsumexp(-1)[rows]).exp()
    if top:
        probs = probs.masked_fill(~in_top_k(logits[rows], tokens, top), 0.0)
    values = iter(probs.double().tolist())
    return {text: {token: next(values) for token in own} for text, own in zip(texts, wanted, strict=True)}
