"""Models that answer a question with a piece of a passage: where it begins, and where it ends, as the two are scored apart.

    [CLS] Who met James ? [SEP] Mary  met  James .  [SEP]
    start  .1  -   -    -  -     .8   .02   .06  .02  -       log P(Mary met) = log .8 + log .2
    end    .1  -   -    -  -     .6   .2    .08  .02  -       log P(no answer) = log .1 + log .1, at the opening token

The numbers are those of the question-answering pipeline that transformers had until 5.0: a softmax over the tokens of the passage
and the opening one, pieces of no more than 15 tokens, windows on long passages, of which the one that is least sure that
there is no answer says how probable none is. From 4.53 on that pipeline adds up the pieces that are the same words; here, as before,
the best one counts.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import UndertowError
from undertow.models.backend.device import tokens_per_pass
from undertow.models.backend.execution import context_tokens, oom_errors
from undertow.models.backend.onednn import weight_bytes
from undertow.models.base import EXACT, CostEstimate, ModelHandle, ModelRequest, UnsupportedQueryError
from undertow.models.loading.library_contexts import loading_errors
from undertow.models.loading.load_network import load_checked, load_tokenizer
from undertow.models.loading.resolve_weights import WeightFiles, resolve_weights
from undertow.models.tokens.qa_windows import EncodedQuestion, QAEncoder, Window
from undertow.types import EXTRACTION, Answer, Floats, ModelIdentity, Query, SpanQuery

if TYPE_CHECKING:
    import torch

SUMMARY = "any AutoModelForQuestionAnswering: a hub id or a folder; answers from a passage"
ARCHITECTURES = ("ForQuestionAnswering",)
CPU_BUDGET_TOKENS = 1024
GPU_BUDGET_TOKENS = 32_768
MAX_PIECE_TOKENS = 15
"""Tokens of the best piece, at most: the pipeline's own default. A candidate counts whatever its length."""
SCORING_METHOD = "span"
CAPABILITIES = {EXTRACTION: (EXACT,)}
FEEDS = ("input_ids", "attention_mask", "token_type_ids")
"""Supported inputs of a model; one with positions on a page reads images."""
OLDER_CLASSES = ("PreTrainedTokenizer", "PreTrainedTokenizerFast")
HOW_READ = (
    "a piece of the passage is as probable as that an answer begins where it begins, and ends where it ends; the two are apart, so that "
    "all pieces together need not come to 1"
)
UNKNOWN_TRAINING = (
    "nothing in a checkpoint says whether it was trained with questions that have no answer (SQuAD 2): if it was not, the "
    "probability of no answer means nothing"
)
NO_NULL = "its texts do not open with a token that stands for no answer, so the probability of no answer is missing"
IN_WINDOWS = "passages longer than {} tokens, question and all, were read in windows that overlap"
TRIAL_QUERY = SpanQuery("Mary met James.", "Who met James?")


def resolve(request: ModelRequest) -> ModelHandle | None:
    """The model, if the request names one that answers from passages.

    Raises:
        UndertowError: it cannot be found, or is of another family.
    """
    weights = resolve_weights(request, ARCHITECTURES)
    if weights is None:
        return None
    identity = weights.identity(request, "extractive_qa", SCORING_METHOD)
    return ModelHandle(identity, partial(_open, identity, weights, request.device), CAPABILITIES)


def _open(identity: ModelIdentity, weights: WeightFiles, device: str) -> ExtractiveQAModel:
    with loading_errors(identity.name):
        from transformers import (
            MODEL_FOR_QUESTION_ANSWERING_MAPPING,
            AutoConfig,
            AutoModelForQuestionAnswering,
        )
        from transformers.models.auto.tokenization_auto import get_tokenizer_config

        config = AutoConfig.from_pretrained(weights.location, **weights.options)
        if type(config) not in MODEL_FOR_QUESTION_ANSWERING_MAPPING:
            raise UndertowError(
                f"{identity.name}: is a model of the kind {config.model_type}, which does not answer from a text; name one such as BERT "
                "or RoBERTa, trained on SQuAD"
            )
        tokenizer = load_tokenizer(identity.name, weights)
        if not tokenizer.is_fast:
            raise UndertowError(
                f"{identity.name}: its tokenizer does not say which characters a token stands for; save a fast one (tokenizer.json)"
            )
        if _needs_token_types(tokenizer, get_tokenizer_config(weights.location, **weights.options)):
            tokenizer.model_input_names = [*tokenizer.model_input_names, "token_type_ids"]
        strange = [name for name in tokenizer.model_input_names if name not in FEEDS]
        if strange:
            raise UndertowError(
                f"{identity.name}: needs more inputs than a text ({', '.join(strange)}); name a model that reads text only"
            )
        return load_checked(
            identity,
            weights,
            device,
            kind=AutoModelForQuestionAnswering,
            trained_to="answer from passages",
            tokenizer=tokenizer,
            wrap=partial(ExtractiveQAModel.from_network, identity, tokenizer=tokenizer),
        )


def _needs_token_types(tokenizer: Any, said: Mapping[str, Any]) -> bool:
    """Whether a model was trained with token types, though transformers 5 would not pass them.

    Until 5.0 a tokenizer without a class of its own used them by default, and wrote an older class name into its files.
    """
    older = said.get("tokenizer_class") in OLDER_CLASSES and "model_input_names" not in said
    return older and "token_type_ids" not in tokenizer.model_input_names


@dataclass(frozen=True, slots=True)
class _SpanScores:
    """What a model says of a window.

    Attributes:
        starts, ends: log-probability that the answer begins, or ends, with each token of the passage [token].
        null: log-probability of no answer; NaN where it cannot be said.
    """

    starts: Floats
    ends: Floats
    null: float

    @classmethod
    def from_logits(cls, window: Window, logits: Floats) -> _SpanScores:
        """From the logits of both [side, position]."""
        own = slice(window.first, window.first + len(window.offsets))
        kept = np.zeros(logits.shape[1], dtype=bool)
        kept[own] = kept[list(window.marks)] = True
        seen = logits[:, kept]
        peaks = seen.max(1, keepdims=True)
        nats = logits - peaks - np.log(np.exp(seen - peaks).sum(1, keepdims=True))
        return cls(nats[0, own], nats[1, own], float(nats[:, 0].sum()) if window.has_null else math.nan)

    def best(self) -> tuple[float, int, int]:
        """The most probable piece: its log-probability, its first and its last token; of equal ones the first."""
        beyond = np.full(MAX_PIECE_TOKENS - 1, -np.inf)
        ends = np.lib.stride_tricks.sliding_window_view(np.concatenate([self.ends, beyond]), MAX_PIECE_TOKENS)
        nats = self.starts[:, None] + ends  # [first token, length - 1]
        start, further = divmod(int(nats.argmax()), MAX_PIECE_TOKENS)
        return float(nats[start, further]), start, start + further


@dataclass(slots=True)
class ExtractiveQAModel:
    """A loaded model that answers from passages; see `undertow.models.base.AnsweringModel`."""

    identity: ModelIdentity
    network: Any
    qa_encoder: QAEncoder
    feeds: tuple[str, ...]
    budget_tokens: int
    notes: tuple[str, ...]

    @classmethod
    def from_network(cls, identity: ModelIdentity, network: Any, tokenizer: Any) -> ExtractiveQAModel:
        """Wrap a network and its tokenizer, and find out whether it can be read."""
        takes = inspect.signature(network.forward).parameters
        feeds = tuple(name for name in FEEDS if name in tokenizer.model_input_names and name in takes)
        model = cls(
            identity,
            network,
            QAEncoder(tokenizer, context_tokens(network, tokenizer)),
            feeds,
            CPU_BUDGET_TOKENS,
            (HOW_READ, UNKNOWN_TRAINING),
        )
        model.budget_tokens = tokens_per_pass(
            network, model.memory_bytes, processor=CPU_BUDGET_TOKENS, gpu=GPU_BUDGET_TOKENS
        )
        (tried,) = model.qa_encoder.encode([TRIAL_QUERY])
        if isinstance(tried, EncodedQuestion):
            model._logits(tried.windows)
            if not tried.windows[0].has_null:
                model.notes += (NO_NULL,)
        return model

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Answer | UnsupportedQueryError]]:
        """Questions answered in packs; see `undertow.models.base.AnsweringModel`.

        An answer's log-probabilities are those of each candidate, of no answer, and of the best piece, whose words are its text,
        whole words even where a model ends within one. No answer is NaN where a model has nothing that stands for it.
        """
        posed, refused = self._encode_queries(queries)
        if refused:
            yield refused
        if any(len(one.windows) > 1 for one in posed):
            self.notes = tuple(dict.fromkeys((*self.notes, IN_WINDOWS.format(self.qa_encoder.context_tokens))))
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
        passes = [self._passes(pack) for pack in packs]
        sizes = [sum(len(window.tokens) for rows in some for window in rows) for some in passes]
        seconds = 0.0
        if packs:
            timed = len(packs) // 2
            self._answer_pack(packs[timed])  # the first pass also sets up kernels and threads
            started = time.perf_counter()
            self._answer_pack(packs[timed])
            seconds = (time.perf_counter() - started) * sum(sizes) / sizes[timed]
        largest = max((len(rows) * len(rows[0].tokens) for some in passes for rows in some), default=1)
        return CostEstimate(sum(sizes), sum(map(len, passes)), seconds, self.memory_bytes(largest))

    @property
    def facts(self) -> Mapping[str, str | float]:
        """Facts for model comparison."""
        return {
            "parameters": float(self.network.num_parameters()),
            "objective": "extractive question answering",
            "post_training": "",
        }

    def memory_bytes(self, budget_tokens: int) -> int:
        """Weights and one forward pass, in bytes."""
        config = self.network.config.get_text_config()
        hidden = int(getattr(config, "hidden_size", 0) or getattr(config, "dim", 0) or getattr(config, "d_model", 768))
        return int(weight_bytes(self.network) + 4 * budget_tokens * 8 * 4 * hidden)

    # Packs.

    def _encode_queries(
        self, queries: Sequence[Query]
    ) -> tuple[list[EncodedQuestion], dict[int, UnsupportedQueryError]]:
        """Encoded queries, and errors for unsupported ones by index."""
        answerable = [place for place, query in enumerate(queries) if isinstance(query, SpanQuery)]
        refused = {
            place: UnsupportedQueryError("a model that answers from a passage supports no other query")
            for place in set(range(len(queries))).difference(answerable)
        }
        posed = []
        extractions = [query for query in queries if isinstance(query, SpanQuery)]
        for place, one in zip(answerable, self.qa_encoder.encode(extractions), strict=True):
            if isinstance(one, UnsupportedQueryError):
                refused[place] = one
            else:
                posed.append(replace(one, place=place))
        return posed, refused

    def _packs(self, posed: Sequence[EncodedQuestion]) -> list[list[EncodedQuestion]]:
        """Queries whose texts are as long as each other's, so that nothing is padded, the longest first [pack][query].

        Queries about one text are in one pack, which reads it once.
        """
        alike: dict[Any, list[EncodedQuestion]] = {}
        for one in posed:
            alike.setdefault(one.network_input, []).append(one)
        packs: list[list[EncodedQuestion]] = []
        before: list[int] = []
        n_tokens = 0
        for fed in sorted(alike, key=lambda fed: ([-len(tokens) for tokens, _ in fed], fed)):
            lengths = [len(tokens) for tokens, _ in fed]
            if lengths != before or n_tokens + sum(lengths) > self.budget_tokens:
                packs.append([])
                before, n_tokens = lengths, 0
            packs[-1] += alike[fed]
            n_tokens += sum(lengths)
        return packs

    def _passes(self, pack: Sequence[EncodedQuestion]) -> list[list[Window]]:
        """The distinct windows of a pack, those of one exact length together, as many as there is room for [pass][row]."""
        distinct = {window.network_input: window for one in pack for window in one.windows}
        passes: list[list[Window]] = []
        for window in sorted(distinct.values(), key=lambda window: -len(window.tokens)):
            length = len(window.tokens)
            before = passes[-1] if passes else []
            if not before or len(before[0].tokens) != length or (len(before) + 1) * length > self.budget_tokens:
                passes.append([])
            passes[-1].append(window)
        return passes

    # Answers.

    def _answer_pack(self, pack: Sequence[EncodedQuestion]) -> dict[int, Answer | UnsupportedQueryError]:
        logits: dict[Any, Floats] = {}
        for rows in self._passes(pack):
            logits |= dict(zip([window.network_input for window in rows], self._logits(rows), strict=True))
        return {
            one.place: _answer(
                one, [_SpanScores.from_logits(window, logits[window.network_input]) for window in one.windows]
            )
            for one in pack
        }

    def _logits(self, rows: Sequence[Window]) -> Floats:
        """Of where an answer begins and where it ends, over texts of one length [row, side, position]."""
        import torch

        def tensor(values: Sequence[Sequence[int]]) -> torch.Tensor:
            return torch.tensor(values, device=self.network.device)

        tokens = tensor([window.tokens for window in rows])
        given = {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "token_type_ids": tensor([window.types for window in rows]),
        }
        with torch.inference_mode(), oom_errors():
            said = self.network(**{name: given[name] for name in self.feeds})
            both = torch.stack([said.start_logits, said.end_logits], 1)
            logits: Floats = both.float().cpu().numpy().astype(np.float64)
        return logits


def _answer(posed: EncodedQuestion, reads: Sequence[_SpanScores]) -> Answer | UnsupportedQueryError:
    """The best place of each candidate; no answer where that is least probable; the best piece of all windows."""
    candidates = [
        max(float(reads[piece.window].starts[piece.start] + reads[piece.window].ends[piece.end]) for piece in pieces)
        for pieces in posed.candidates
    ]
    nulls = [read.null for read in reads]
    bests = [read.best() for read in reads]
    number = max(range(len(bests)), key=lambda number: bests[number][0])
    best, start, end = bests[number]
    if any(math.isnan(nats) for nats in (*candidates, best)):
        return UnsupportedQueryError("the model gave a probability that is not a number")
    first, past = posed.windows[number].words_at(start, end)
    text = posed.query.passage[first:past].strip()
    return Answer((*candidates, min(nulls), best), math.nan, text=text)
