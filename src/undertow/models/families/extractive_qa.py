"""Models that answer a question with a span of a passage; its start and its end are scored separately.

    [CLS] Who met James ? [SEP] Mary  met  James .  [SEP]
    start  .1  -   -    -  -     .8   .02   .06  .02  -       log P(Mary met) = log .8 + log .2
    end    .1  -   -    -  -     .6   .2    .08  .02  -       log P(no answer) = log .1 + log .1, at the opening token

The numbers are those of the question-answering pipeline that transformers had until 5.0: a softmax over the tokens of the passage
and the opening one, spans of at most 15 tokens, and windows on long passages; the probability of no answer is its minimum over the
windows. From 4.53 on that pipeline adds up spans with the same words; here, as before, the best one counts.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from undertow.errors import UndertowError
from undertow.models.backend.execution import oom_errors
from undertow.models.base import NOT_A_NUMBER, Capabilities, CostEstimate, Outcome, UnsupportedQueryError
from undertow.models.huggingface import PackedAnswers, group_by_length
from undertow.models.loading.resolve_weights import WeightFiles
from undertow.models.tokens.qa_windows import EncodedQuestion, QAEncoder, Window
from undertow.types import EXACT, EXTRACTION, Answer, Floats, ModelIdentity, Query, SpanQuery

SUMMARY = "any AutoModelForQuestionAnswering: a hub id or a folder; answers from a passage"
MAX_PIECE_TOKENS = 15
"""Tokens of the best piece, at most: the pipeline's own default. A candidate counts whatever its length."""
FEEDS = ("input_ids", "attention_mask", "token_type_ids")
"""Supported inputs of a model; one with positions on a page reads images."""
NO_NULL = "its texts do not open with a token that stands for no answer, so the probability of no answer is missing"
IN_WINDOWS = "passages longer than {} tokens, question and all, were read in windows that overlap"


class ExtractiveQAModel(PackedAnswers[EncodedQuestion]):
    """A loaded model that answers from passages; see `undertow.models.base.AnsweringModel`.

    An answer's log-probabilities are those of each candidate, of no answer, and of the best span. Its text has whole words, even if
    the span ends within one. No answer is NaN if the model cannot express it.
    """

    FAMILY, SCORING_METHOD, OBJECTIVE = "extractive_qa", "span", "extractive question answering"
    ARCHITECTURES, AUTO_CLASS = ("ForQuestionAnswering",), "AutoModelForQuestionAnswering"
    TRAINED_TO = "answer from passages"
    CAPABILITIES: ClassVar[Capabilities] = {EXTRACTION: (EXACT,)}
    TEXT_MAPPING = "MODEL_FOR_QUESTION_ANSWERING_MAPPING"
    WRONG_KIND = "which does not answer from a text; name one such as BERT or RoBERTa, trained on SQuAD"
    NEEDS_OFFSETS = True
    NOTES = (
        "a piece of the passage is as probable as that an answer begins where it begins, and ends where it ends; the two are apart, so "
        "that all pieces together need not come to 1",
        "nothing in a checkpoint says whether it was trained with questions that have no answer (SQuAD 2): if it was not, the "
        "probability of no answer means nothing",
    )

    def __init__(self, identity: ModelIdentity, network: Any, tokenizer: Any) -> None:
        super().__init__(identity, network, tokenizer)
        inputs = inspect.signature(network.forward).parameters
        self.feeds = tuple(name for name in FEEDS if name in tokenizer.model_input_names and name in inputs)
        self.qa_encoder = QAEncoder(tokenizer, self.context_tokens)
        (trial,) = self.qa_encoder.encode([SpanQuery("Mary met James.", "Who met James?")])
        if isinstance(trial, EncodedQuestion):
            self._logits(trial.windows)
            if not trial.windows[0].has_null:
                self.notes += (NO_NULL,)

    @classmethod
    def adjust_tokenizer(cls, tokenizer: Any, weights: WeightFiles) -> None:
        """Pass token types where the model was trained with them.

        Until transformers 5.0 a tokenizer without a class of its own used them by default, and wrote an older class name into its files.
        """
        from transformers.models.auto.tokenization_auto import get_tokenizer_config

        config = get_tokenizer_config(weights.location, **weights.options)
        plain = config.get("tokenizer_class") in ("PreTrainedTokenizer", "PreTrainedTokenizerFast")
        if plain and "model_input_names" not in config and "token_type_ids" not in tokenizer.model_input_names:
            tokenizer.model_input_names = [*tokenizer.model_input_names, "token_type_ids"]

    @classmethod
    def check_tokenizer(cls, name: str, tokenizer: Any) -> None:
        """Refuse a tokenizer that needs more than texts."""
        super().check_tokenizer(name, tokenizer)
        unknown = ", ".join(one for one in tokenizer.model_input_names if one not in FEEDS)
        if unknown:
            raise UndertowError(f"{name}: needs more inputs than a text ({unknown}); name a model that reads text only")

    def encode_queries(self, queries: Sequence[Query]) -> list[EncodedQuestion | UnsupportedQueryError]:
        """Questions in tokens."""
        return self.qa_encoder.encode(queries)

    def cut_packs(self, encoded: Sequence[EncodedQuestion]) -> list[list[EncodedQuestion]]:
        """Questions whose windows have the same lengths; those about one text are in one pack, which reads it once."""
        budget = self.limits.budget_tokens
        return group_by_length(
            encoded, lambda one: one.network_input, lambda text: [len(one[0]) for one in text], budget
        )

    def _passes(self, pack: Sequence[EncodedQuestion]) -> list[list[Window]]:
        """The distinct windows of a pack, those of one length together, as many as there is room for [pass][row]."""
        distinct = {window.network_input: window for one in pack for window in one.windows}.values()
        budget = self.limits.budget_tokens
        return group_by_length(distinct, lambda one: one.network_input, lambda text: [len(text[0])], budget)

    def pack_cost(self, pack: Sequence[EncodedQuestion]) -> CostEstimate:
        """One pass over the windows of each length."""
        passes = [len(rows) * len(rows[0].tokens) for rows in self._passes(pack)]
        return CostEstimate(sum(passes), len(passes), 0.0, self.memory_bytes(max(passes)))

    def answer_pack(self, pack: Sequence[EncodedQuestion], protocol: str) -> dict[int, Outcome]:
        """Read all windows, and answer each question from its own."""
        if any(len(one.windows) > 1 for one in pack):
            self.notes = tuple(dict.fromkeys((*self.notes, IN_WINDOWS.format(self.qa_encoder.context_tokens))))
        logits: dict[Any, Floats] = {}
        for rows in self._passes(pack):
            logits |= dict(zip([window.network_input for window in rows], self._logits(rows), strict=True))
        return {one.place: _answer(one, logits) for one in pack}

    def _logits(self, rows: Sequence[Window]) -> Floats:
        """Of where an answer begins and where it ends, over texts of one length [row, side, position]."""
        import torch

        device = self.network.device
        tokens = torch.tensor([window.tokens for window in rows], device=device)
        types = torch.tensor([window.types for window in rows], device=device)
        given = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "token_type_ids": types}
        with torch.inference_mode(), oom_errors():
            output = self.network(**{name: given[name] for name in self.feeds})
            both = torch.stack([output.start_logits, output.end_logits], 1)
            logits: Floats = both.float().cpu().numpy().astype(np.float64)
        return logits


def _span_nats(window: Window, logits: Floats) -> tuple[Floats, Floats, float]:
    """Log-probabilities that an answer begins, or ends, with each token of the passage [token], and of no answer; NaN if unknown.

    `logits` are those of both [side, position].
    """
    own = slice(window.first, window.first + len(window.offsets))
    kept = np.zeros(logits.shape[1], dtype=bool)
    kept[own] = kept[list(window.marks)] = True
    seen = logits[:, kept]
    peaks = seen.max(1, keepdims=True)
    nats = logits - peaks - np.log(np.exp(seen - peaks).sum(1, keepdims=True))
    return nats[0, own], nats[1, own], float(nats[:, 0].sum()) if window.has_null else math.nan


def _best_piece(starts: Floats, ends: Floats) -> tuple[float, int, int]:
    """The most probable piece: its log-probability, its first and its last token; of equal ones the first."""
    beyond = np.full(MAX_PIECE_TOKENS - 1, -np.inf)
    lengths = np.lib.stride_tricks.sliding_window_view(np.concatenate([ends, beyond]), MAX_PIECE_TOKENS)
    nats = starts[:, None] + lengths  # [first token, length - 1]
    start, further = divmod(int(nats.argmax()), MAX_PIECE_TOKENS)
    return float(nats[start, further]), start, start + further


def _answer(question: EncodedQuestion, logits: Mapping[Any, Floats]) -> Outcome:
    """The best place of each candidate; no answer where that is least probable; the best piece of all windows."""
    reads = (_span_nats(window, logits[window.network_input]) for window in question.windows)
    starts, ends, nulls = zip(*reads, strict=True)
    candidates = [
        max(float(starts[window][start] + ends[window][end]) for window, start, end in pieces)
        for pieces in question.candidates
    ]
    bests = list(map(_best_piece, starts, ends))
    number = max(range(len(bests)), key=lambda number: bests[number][0])
    best, start, end = bests[number]
    if any(math.isnan(nats) for nats in (*candidates, best)):
        return UnsupportedQueryError(NOT_A_NUMBER)
    first, past = question.windows[number].words_at(start, end)
    text = question.query.passage[first:past].strip()
    return Answer((*candidates, min(nulls), best), math.nan, text=text)


MODEL = ExtractiveQAModel
resolve = MODEL.resolve
