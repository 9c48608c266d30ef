"""Token classifiers that label a masked word: the head of models that are fine-tuned on masked words.

    In  1953  ,  [MASK]  was  a  teenager  .
                   ^ log P(female), log P(male): a softmax over the labels, at the mask

A label stands for the word group of its name. Its probability is divided equally among the options of that group, whose sum is then
exactly the group's; which word of a group it would be, such a head does not say. McMilin 2022 (ICML workshop), section 4.4.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from undertow.errors import UndertowError
from undertow.models.backend.device import tokens_per_pass
from undertow.models.backend.execution import context_tokens, oom_errors
from undertow.models.backend.onednn import weight_bytes
from undertow.models.base import EXACT, CostEstimate, ModelHandle, ModelRequest, UnsupportedQueryError
from undertow.models.loading.library_contexts import loading_errors
from undertow.models.loading.load_network import load_checked, load_tokenizer
from undertow.models.loading.resolve_weights import WeightFiles, resolve_weights
from undertow.types import BLANK, Answer, ClozeQuery, Floats, ModelIdentity, Query

SUMMARY = "any AutoModelForTokenClassification whose labels are word groups: a hub id or a folder; read at its mask"
ARCHITECTURES = ("ForTokenClassification",)
CPU_BUDGET_TOKENS = 1024
GPU_BUDGET_TOKENS = 32_768
SCORING_METHOD = "labels"
CAPABILITIES = {BLANK: (EXACT,)}
HOW_READ = (
    "read as labels at the mask: a group's probability is its label's, whichever words it has; probabilities of all labels come to 1, "
    "so that with two of them what one gains the other loses"
)
TRIAL_QUERY = ClozeQuery(("Here, ", " was."), ())


def resolve(request: ModelRequest) -> ModelHandle | None:
    """The model, if the request names one that labels words.

    Raises:
        UndertowError: it cannot be found, or is of another family.
    """
    weights = resolve_weights(request, ARCHITECTURES)
    if weights is None:
        return None
    identity = weights.identity(request, "token_classifier", SCORING_METHOD)
    return ModelHandle(identity, partial(_open, identity, weights, request.device), CAPABILITIES)


def _open(identity: ModelIdentity, weights: WeightFiles, device: str) -> TokenClassifierModel:
    with loading_errors(identity.name):
        from transformers import AutoModelForTokenClassification

        tokenizer = load_tokenizer(identity.name, weights)
        if tokenizer.mask_token_id is None:
            raise UndertowError(
                f"{identity.name}: its tokenizer has no mask token, so no word can be hidden; name a model that was fine-tuned "
                "on masked words"
            )
        return load_checked(
            identity,
            weights,
            device,
            kind=AutoModelForTokenClassification,
            trained_to="label words",
            tokenizer=tokenizer,
            wrap=partial(TokenClassifierModel.from_network, identity, tokenizer=tokenizer),
        )


@dataclass(frozen=True, slots=True)
class _EncodedSentence:
    """A sentence as the model reads it.

    Attributes:
        place: among the queries.
        tokens: of the sentence, its blank masked.
        at: position of the mask.
        groups: the group of each option [option].
    """

    place: int
    tokens: tuple[int, ...]
    at: int
    groups: tuple[str, ...]


@dataclass(slots=True)
class TokenClassifierModel:
    """A loaded model that labels words; see `undertow.models.base.AnsweringModel`."""

    identity: ModelIdentity
    network: Any
    tokenizer: Any
    labels: tuple[str, ...]
    context_tokens: int
    budget_tokens: int
    notes: tuple[str, ...]

    @classmethod
    def from_network(cls, identity: ModelIdentity, network: Any, tokenizer: Any) -> TokenClassifierModel:
        """Wrap a network and its tokenizer, and try whether it can be read."""
        names = network.config.id2label
        labels = tuple(str(names[number]) for number in range(network.config.num_labels))
        model = cls(
            identity, network, tokenizer, labels, context_tokens(network, tokenizer), CPU_BUDGET_TOKENS, (HOW_READ,)
        )
        model.budget_tokens = tokens_per_pass(
            network, model.memory_bytes, processor=CPU_BUDGET_TOKENS, gpu=GPU_BUDGET_TOKENS
        )
        (tokens,) = model._tokens([TRIAL_QUERY])
        model._nats([_EncodedSentence(0, tokens, tokens.index(tokenizer.mask_token_id), ())])
        return model

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Answer | UnsupportedQueryError]]:
        """Sentences answered in packs; see `undertow.models.base.AnsweringModel`.

        An option's probability is that of its group's label over the number of the group's options; that of a group which is no
        label is 0. Labels that were not asked about count as other words.
        """
        posed, refused = self._encode_queries(queries)
        if refused:
            yield refused
        missing = dict.fromkeys(group for one in posed for group in one.groups if group not in self.labels)
        said = [
            f"{group} is no label of this model ({', '.join(self.labels)}), so the probability of its words is 0"
            for group in missing
        ]
        self.notes = tuple(dict.fromkeys((*self.notes, *said)))
        for pack in self._packs(posed):
            yield self._answer_pack(pack)

    def packs(self, queries: Sequence[Query]) -> list[list[int]]:
        """Indices of the queries of each pack; unsupported ones first."""
        posed, refused = self._encode_queries(queries)
        packs = [[one.place for one in pack] for pack in self._packs(posed)]
        return [list(refused), *packs] if refused else packs

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        """The estimated cost, from one timed pack."""
        packs = self._packs(self._encode_queries(queries)[0])
        sizes = [len({one.tokens for one in pack}) * len(pack[0].tokens) for pack in packs]
        seconds = 0.0
        if packs:
            timed = len(packs) // 2
            self._answer_pack(packs[timed])  # the first pass also sets up kernels and threads
            started = time.perf_counter()
            self._answer_pack(packs[timed])
            seconds = (time.perf_counter() - started) * sum(sizes) / sizes[timed]
        return CostEstimate(sum(sizes), len(packs), seconds, self.memory_bytes(max(sizes, default=1)))

    @property
    def facts(self) -> Mapping[str, str | float]:
        """Facts for model comparison."""
        return {
            "parameters": float(self.network.num_parameters()),
            "objective": "masked, then labels of words",
            "post_training": f"fine-tuned to tell {' from '.join(self.labels)}" if len(self.labels) == 2 else "",
        }

    def memory_bytes(self, budget_tokens: int) -> int:
        """Weights and one forward pass, in bytes."""
        config = self.network.config.get_text_config()
        hidden = int(getattr(config, "hidden_size", 0) or getattr(config, "dim", 0) or getattr(config, "d_model", 768))
        return int(weight_bytes(self.network) + 4 * budget_tokens * 8 * 4 * hidden)

    # Sentences in tokens.

    def _encode_queries(
        self, queries: Sequence[Query]
    ) -> tuple[list[_EncodedSentence], dict[int, UnsupportedQueryError]]:
        """Encoded queries, and errors for unsupported ones by index."""
        reasons = {place: self._refusal(query) for place, query in enumerate(queries)}
        blanks = {
            place: query for place, query in enumerate(queries) if isinstance(query, ClozeQuery) and not reasons[place]
        }
        posed = []
        for (place, query), tokens in zip(blanks.items(), self._tokens(list(blanks.values())), strict=True):
            reasons[place] = self._fault(tokens)
            if not reasons[place]:
                groups = tuple(option.group for option in query.options)
                posed.append(_EncodedSentence(place, tokens, tokens.index(self.tokenizer.mask_token_id), groups))
        return posed, {place: UnsupportedQueryError(reason) for place, reason in reasons.items() if reason}

    def _refusal(self, query: Query) -> str:
        """Why a query is not supported; "" if it is."""
        if not isinstance(query, ClozeQuery):
            return "a model that labels words fills blanks; it supports no other query"
        if len(query.pieces) > 2:
            return "the sentence has several blanks, and a label is of one word"
        groups = dict.fromkeys(option.group for option in query.options)
        if not set(groups) & set(self.labels):
            return (
                f"none of the groups {', '.join(groups)} is a label of this model, which has {', '.join(self.labels)}"
            )
        return ""

    def _fault(self, tokens: tuple[int, ...]) -> str:
        """Why a text cannot be read; "" if it can."""
        if len(tokens) > self.context_tokens:
            return f"the text is longer than the {self.context_tokens} tokens that the model reads"
        if tokens.count(self.tokenizer.mask_token_id) != 1:
            return "the text holds the model's own mask token beside its blank"
        return ""

    def _tokens(self, queries: Sequence[ClozeQuery]) -> list[tuple[int, ...]]:
        if not queries:
            return []
        coded = self.tokenizer([query.display_text(self.tokenizer.mask_token) for query in queries])
        return [tuple(row) for row in coded["input_ids"]]

    # Answers.

    def _packs(self, posed: Sequence[_EncodedSentence]) -> list[list[_EncodedSentence]]:
        """Sentences as long as each other, so that nothing is padded, the longest first [pack][sentence].

        Queries about one text are in one pack, which reads it once.
        """
        alike: dict[tuple[int, ...], list[_EncodedSentence]] = {}
        for one in posed:
            alike.setdefault(one.tokens, []).append(one)
        packs: list[list[_EncodedSentence]] = []
        n_texts = 0
        for tokens in sorted(alike, key=lambda tokens: (-len(tokens), tokens)):
            if not packs or len(packs[-1][0].tokens) != len(tokens) or (n_texts + 1) * len(tokens) > self.budget_tokens:
                packs.append([])
                n_texts = 0
            packs[-1] += alike[tokens]
            n_texts += 1
        return packs

    def _answer_pack(self, pack: Sequence[_EncodedSentence]) -> dict[int, Answer | UnsupportedQueryError]:
        distinct = list({one.tokens: one for one in pack}.values())
        nats = dict(zip([one.tokens for one in distinct], self._nats(distinct), strict=True))
        return {one.place: _answer(one.groups, self.labels, nats[one.tokens]) for one in pack}

    def _nats(self, rows: Sequence[_EncodedSentence]) -> Floats:
        """Log-probability of every label at the mask, over texts of one length [row, label].

        The softmax is taken in float64, so that the probabilities of all labels come to 1 within its rounding.
        """
        import torch

        tokens = torch.tensor([one.tokens for one in rows], device=self.network.device)
        at = torch.tensor([one.at for one in rows], device=self.network.device)
        with torch.inference_mode(), oom_errors():
            logits = self.network(input_ids=tokens).logits  # [row, position, label]
            kept = logits[torch.arange(len(rows), device=at.device), at].float().cpu().double()
            nats: Floats = kept.log_softmax(-1).numpy()
        return nats


def _answer(groups: Sequence[str], labels: Sequence[str], nats: Floats) -> Answer | UnsupportedQueryError:
    """A label's probability, shared out among the options of its group."""
    if np.isnan(nats).any():
        return UnsupportedQueryError("the model gave a probability that is not a number")
    n_options = Counter(groups)
    # Of no label at all the sum is empty, and its logarithm minus infinity.
    of_group = {
        group: float(np.logaddexp.reduce(nats[[label == group for label in labels]])) - math.log(n_options[group])
        for group in n_options
    }
    others = nats[[label not in n_options for label in labels]]
    return Answer(tuple(of_group[group] for group in groups), float(np.exp(others).sum()))
