"""Token classifiers that label a masked word: the head of models that are fine-tuned on masked words.

    In  1953  ,  [MASK]  was  a  teenager  .
                   ^ log P(female), log P(male): a softmax over the labels, at the mask

A label is the word group of its name. Its probability is divided equally among the options of that group, since such a head has no
probabilities of single words. McMilin 2022 (ICML workshop), section 4.4.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from undertow.models.backend.execution import check_length, oom_errors
from undertow.models.base import NOT_A_NUMBER, CostEstimate, IndexedQuery, Outcome, UnsupportedQueryError, attempt
from undertow.models.huggingface import PackedAnswers, group_by_length
from undertow.types import BLANK, EXACT, Answer, ClozeQuery, Floats, ModelIdentity, Query

SUMMARY = "any AutoModelForTokenClassification whose labels are word groups: a hub id or a folder; read at its mask"


@dataclass(frozen=True, slots=True)
class _EncodedSentence(IndexedQuery):
    """A sentence with a masked blank in tokens, its index among the queries, and the group of each option [option]."""

    tokens: tuple[int, ...]
    groups: tuple[str, ...]


class TokenClassifierModel(PackedAnswers[_EncodedSentence]):
    """A loaded model that labels words; see `undertow.models.base.AnsweringModel`."""

    FAMILY, SCORING_METHOD, OBJECTIVE = "token_classifier", "labels", "masked, then labels of words"
    ARCHITECTURES, AUTO_CLASS = ("ForTokenClassification",), "AutoModelForTokenClassification"
    TRAINED_TO = "label words"
    CAPABILITIES: ClassVar = {BLANK: (EXACT,)}
    NEEDS_MASK = True
    NOTES = (
        "read as labels at the mask: a group's probability is its label's, whichever words it has; probabilities of all labels come to 1, "
        "so that with two of them what one gains the other loses",
    )

    def __init__(self, identity: ModelIdentity, network: Any, tokenizer: Any) -> None:
        super().__init__(identity, network, tokenizer)
        names = network.config.id2label
        self.labels = tuple(str(names[number]) for number in range(network.config.num_labels))
        self._nats(self._tokens([ClozeQuery(("Here, ", " was."), ())]))

    @property
    def facts(self) -> Mapping[str, str | float]:
        """Facts for model comparison."""
        post_training = f"fine-tuned to tell {' from '.join(self.labels)}" if len(self.labels) == 2 else ""
        return {**super().facts, "post_training": post_training}

    def encode_queries(self, queries: Sequence[Query]) -> list[_EncodedSentence | UnsupportedQueryError]:
        """Sentences in tokens."""
        blanks = cast(Sequence[ClozeQuery], queries)  # the runner refuses others
        texts = enumerate(zip(blanks, self._tokens(blanks), strict=True))
        return [attempt(self._encode_sentence, place, *text) for place, text in texts]

    def _encode_sentence(self, place: int, query: ClozeQuery, tokens: tuple[int, ...]) -> _EncodedSentence:
        if len(query.pieces) > 2:
            raise UnsupportedQueryError("the sentence has several blanks, and a label is of one word")
        groups = tuple(option.group for option in query.options)
        if not set(groups) & set(self.labels):
            named = ", ".join(dict.fromkeys(groups))
            raise UnsupportedQueryError(
                f"none of the groups {named} is a label of this model, which has {', '.join(self.labels)}"
            )
        check_length(len(tokens), self.context_tokens)
        if tokens.count(self.tokenizer.mask_token_id) != 1:
            raise UnsupportedQueryError("the text holds the model's own mask token beside its blank")
        return _EncodedSentence(place, tokens, groups)

    def _tokens(self, queries: Sequence[ClozeQuery]) -> list[tuple[int, ...]]:
        coded = self.tokenizer([query.display_text(self.tokenizer.mask_token) for query in queries])
        return [tuple(row) for row in coded["input_ids"]]

    def cut_packs(self, encoded: Sequence[_EncodedSentence]) -> list[list[_EncodedSentence]]:
        """Sentences of one length; queries about one text are in one pack, which reads it once."""
        return group_by_length(encoded, lambda one: one.tokens, lambda tokens: [len(tokens)], self.limits.budget_tokens)

    def pack_cost(self, pack: Sequence[_EncodedSentence]) -> CostEstimate:
        """One pass over the distinct texts."""
        n_tokens = sum(map(len, {one.tokens for one in pack}))
        return CostEstimate(n_tokens, 1, 0.0, self.memory_bytes(n_tokens))

    def answer_pack(self, pack: Sequence[_EncodedSentence], protocol: str) -> dict[int, Outcome]:
        """A label's probability, shared out among the options of its group; labels without a group are other words."""
        missing = dict.fromkeys(group for one in pack for group in one.groups if group not in self.labels)
        notes = [
            f"{group} is not a label of this model ({', '.join(self.labels)}), so the probability of its words is 0"
            for group in missing
        ]
        self.notes = tuple(dict.fromkeys((*self.notes, *notes)))
        distinct = list(dict.fromkeys(one.tokens for one in pack))
        nats = dict(zip(distinct, self._nats(distinct), strict=True))
        return {one.place: _answer(one.groups, self.labels, nats[one.tokens]) for one in pack}

    def _nats(self, texts: Sequence[tuple[int, ...]]) -> Floats:
        """Log-probability of every label at the mask, over texts of one length [text, label].

        The softmax is taken in float64, so that the probabilities of all labels come to 1 within its rounding.
        """
        import torch

        tokens = torch.tensor(texts, device=self.network.device)
        with torch.inference_mode(), oom_errors():
            logits = self.network(input_ids=tokens).logits  # [text, position, label]
            masked = logits[tokens == self.tokenizer.mask_token_id]  # one in each text
            nats: Floats = masked.float().cpu().double().log_softmax(-1).numpy()
        return nats


def _answer(groups: Sequence[str], labels: Sequence[str], nats: Floats) -> Outcome:
    if np.isnan(nats).any():
        return UnsupportedQueryError(NOT_A_NUMBER)
    n_options = Counter(groups)
    # Of no label at all the sum is empty, and its logarithm minus infinity.
    of_group = {
        group: float(np.logaddexp.reduce(nats[[label == group for label in labels]])) - math.log(n_options[group])
        for group in n_options
    }
    others = nats[[label not in n_options for label in labels]]
    return Answer(tuple(of_group[group] for group in groups), float(np.exp(others).sum()))


MODEL = TokenClassifierModel
resolve = MODEL.resolve
