"""The contenders. A new one is one function and one line of `CONTENDERS`.

Every contender of a row has a network of the same weights and its tokenizer. It makes of queries a call that takes no argument:
that call alone is timed.
"""

from __future__ import annotations

import logging
import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

from gate import END, Output
from rows import requests
from undertow._folders import cache_folder
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import run_queries
from undertow.models.generation import generation_state
from undertow.models.generation.step_readout import Step, answer_of
from undertow.types import Answer, ClozeQuery, GenerateQuery, MultipleChoiceQuery, Query

Scoring: TypeAlias = Callable[[], list[Output]]
Prepare: TypeAlias = Callable[[Any, int], Scoring]
"""Queries and a batch size to what is timed."""
ITS_OWN, ONE_BY_ONE = 0, 1
"""Batch sizes of contenders for which none is looked for."""
ENGINE = "undertow"
LABEL_END = -1
"""Stands for the token that ends a label."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to score.

    `open` imports the package and wraps the loaded model (for the engine: what `undertow.models` finds). A batch size of None
    must be searched for; `target_ratio` is how many times its rate the engine promises, 0 for no promise.
    """

    name: str
    package: str
    open: Callable[[Any], Prepare]
    batch_size: int | None
    target_ratio: float = 0.0
    no_more_memory: bool = False


def open_undertow(found: Any) -> Prepare:
    """The engine by its real path: plan, tokens, passes, and a new answer store on the disk that holds the user's own.

    Steps of written answers are read as they pass, since answers keep their outcome alone.
    """

    def prepare(queries: Sequence[Query], _: int) -> Scoring:
        def score() -> list[Output]:
            steps_of: dict[GenerateQuery, Sequence[Step]] = {}

            def seen(query: GenerateQuery, steps: Sequence[Step], text: str) -> Answer:
                steps_of[query] = steps
                return answer_of(query, steps, text)

            with (
                patch.object(generation_state, "answer_of", seen),
                tempfile.TemporaryDirectory(prefix="bench-", dir=cache_folder()) as folder,
                AnswerCache(Path(folder) / "answers.sqlite") as store,
            ):
                answers = run_queries(found, queries, store, "exact", lambda _done, _all: None).scores.answers
            return [_output(query, answer, steps_of) for query, answer in zip(queries, answers, strict=True)]

        return score

    return prepare


def _output(query: Query, answer: Answer, steps_of: Mapping[GenerateQuery, Sequence[Step]]) -> Output:
    if isinstance(query, GenerateQuery):
        return _written(steps_of.get(query, ()))
    return Output((answer.logprobs_nats,), (answer.text,) if isinstance(query, MultipleChoiceQuery) else ())


def _written(steps: Iterable[Step], gaps: Sequence[float] = ()) -> Output:
    steps = list(steps)
    return Output(tuple(step.probs for step in steps), (*(step.token for step in steps), END), tuple(gaps))


def _by_pairs(score_pairs: Callable[[list[tuple[str, str]], int], Iterable[float]]) -> Prepare:
    """A peer that scores (context, continuation) pairs, as many to each query as it has options."""

    def prepare(queries: Sequence[Query], batch_size: int) -> Scoring:
        options = [requests(query) for query in queries]
        pairs = [pair for of_query in options for pair in of_query]

        def score() -> list[Output]:
            nats = iter(score_pairs(pairs, batch_size))
            return [Output((tuple(float(next(nats)) for _ in of_query),)) for of_query in options]

        return score

    return prepare


def open_lm_eval(model: Any) -> Prepare:
    """lm-evaluation-harness's Hugging Face backend, asked for log-likelihoods as its tasks ask it."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    # It warns that a network which is loaded already cannot be spread over devices.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)

    def score(pairs: list[tuple[str, str]], batch_size: int) -> Iterable[float]:
        backend = HFLM(pretrained=model.network, tokenizer=model.tokenizer, batch_size=batch_size)
        instances = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
        return [nats for nats, _ in backend.loglikelihood(instances, disable_tqdm=True)]

    return _by_pairs(score)


def open_minicons(model: Any) -> Prepare:
    """Minicons' scores of continuations, summed over their tokens."""
    from minicons.scorer import IncrementalLMScorer

    scorer = IncrementalLMScorer(model.network, str(model.network.device), tokenizer=model.tokenizer)

    def score(pairs: list[tuple[str, str]], batch_size: int) -> Iterable[float]:
        for start in range(0, len(pairs), batch_size):
            contexts, continuations = map(list, zip(*pairs[start : start + batch_size], strict=True))
            yield from scorer.conditional_score(
                contexts, continuations, separator="", reduction=lambda nats: nats.sum().item()
            )

    return _by_pairs(score)


def open_whole(model: Any) -> Prepare:
    """The network itself, reading each option's whole text: one text and one call, or padded batches sorted by length."""

    def score(pairs: list[tuple[str, str]], batch_size: int) -> Iterable[float]:
        tokens = [model.tokenizer(context + continuation)["input_ids"] for context, continuation in pairs]
        starts = [len(model.tokenizer(context)["input_ids"]) for context, _ in pairs]
        order = list(range(len(pairs)))
        if batch_size > ONE_BY_ONE:
            order.sort(key=lambda place: len(tokens[place]))
        nats = dict[int, float]()
        for first in range(0, len(order), batch_size):
            places = order[first : first + batch_size]
            found = _nats_behind(model, [tokens[place] for place in places], [starts[place] for place in places])
            nats |= zip(places, found, strict=True)
        return [nats[place] for place in range(len(pairs))]

    return _by_pairs(score)


def _nats_behind(model: Any, texts: Sequence[Sequence[int]], starts: Sequence[int]) -> list[float]:
    """One forward. Logits after a token are of the next one: those at start - 1 read the token at start."""
    import torch

    fed = torch.nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
    sees = torch.nn.utils.rnn.pad_sequence(
        [torch.ones(len(text), dtype=torch.int64) for text in texts], batch_first=True
    )
    fed, sees = fed.to(model.network.device), sees.to(model.network.device)
    padded = {"attention_mask": sees} if len(texts) > 1 else {}
    with torch.inference_mode():
        logits = model.network(input_ids=fed, use_cache=False, **padded).logits
        nats = []
        for row, (text, start) in enumerate(zip(texts, starts, strict=True)):
            read = logits[row, start - 1 : len(text) - 1].float().log_softmax(-1)
            nats.append(float(read.gather(-1, fed[row, start : len(text), None]).sum()))
        return nats


def open_pipeline(model: Any) -> Prepare:
    """The fill-mask pipeline of transformers; at batch size 1 it is called with one text after another, as the papers do."""
    from transformers import pipeline

    def prepare(queries: Sequence[ClozeQuery], batch_size: int) -> Scoring:
        (words,) = {tuple(option.fills[0] for option in query.options) for query in queries}
        texts = [query.display_text(model.tokenizer.mask_token) for query in queries]
        tokens: list[int] = model.tokenizer.convert_tokens_to_ids(list(words))
        # Named here and not in each call, where the pipeline would go through its vocabulary again.
        own = {"targets": list(words), "top_k": len(words), "device": model.network.device}
        fill = pipeline("fill-mask", model=model.network, tokenizer=model.tokenizer, **own)

        def score() -> list[Output]:
            # What it gives for a list of one text is not in a list.
            together = batch_size > ONE_BY_ONE and len(texts) > 1
            filled = fill(texts, batch_size=batch_size) if together else [fill(text) for text in texts]
            probs = [{one["token"]: one["score"] for one in found} for found in filled]
            return [
                Output((tuple(math.log(of[token]) if of[token] else -math.inf for token in tokens),)) for of in probs
            ]

        return score

    return prepare


def open_generate(model: Any) -> Prepare:
    """The network's own greedy search, one prompt at a time, with the listed words read off each step's logits."""

    def prepare(queries: Sequence[GenerateQuery], _: int) -> Scoring:
        words = [model.stops.vocabulary.of_options(query.options) for query in queries]
        return lambda: [_generated(model, query, tokens.ids) for query, tokens in zip(queries, words, strict=True)]

    return prepare


def _generated(model: Any, query: GenerateQuery, words: Sequence[Sequence[int]]) -> Output:
    import torch

    ends = sorted(model.stops.ends)
    fed = model.tokenizer(query.prompt, return_tensors="pt").to(model.network.device)
    settings = {"do_sample": False, "max_new_tokens": query.max_tokens, "eos_token_id": ends, "pad_token_id": ends[0]}
    out = model.network.generate(**fed, **settings, output_logits=True, return_dict_in_generate=True)
    chosen: list[int] = out.sequences[0, fed["input_ids"].shape[1] :].tolist()
    logits = torch.cat(out.logits).float()  # [step, vocabulary]
    probs, best = logits.softmax(-1), logits.topk(2).values
    read = [probs[:, list(ids)].sum(-1).tolist() if ids else [math.nan] * len(chosen) for ids in words]
    texts = [model.stops.vocabulary.text_of(token) for token in chosen if token not in ends]
    steps = [Step(text, at) for text, at in zip(texts, zip(*read, strict=True), strict=False)]
    return _written(steps, (best[:, 0] - best[:, 1]).tolist())


def open_labels(model: Any) -> Prepare:
    """The network itself, label by label: each prompt is read whole, one after another or those of one length together.

    Greedily along the labels' tokens, as in Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in
    Language" (Findings of EMNLP), section 3.2. A token that is the only way on is taken without a pass; nothing is padded.
    """
    return lambda queries, batch_size: lambda: _labelled(model, queries, batch_size)


@dataclass(slots=True)
class _Labelling:
    """A prompt, what was written behind it of the labels' tokens, and the log-probability of each label, NaN if not followed."""

    prompt: list[int]
    labels: Sequence[list[int]]
    nats: list[float]
    written: list[int] = field(default_factory=list)
    lead: float = math.inf

    def ways(self) -> dict[int, list[int]]:
        """The labels behind each token that may come next, or behind an end."""
        n, found = len(self.written), defaultdict[int, list[int]](list)
        for place, tokens in enumerate(self.labels):
            if tokens[:n] == self.written:
                found[tokens[n] if n < len(tokens) else LABEL_END].append(place)
        return found

    def has_choice(self) -> bool:
        """Whether a pass must decide, after the tokens that are the only way on."""
        while len(ways := self.ways()) == 1 and LABEL_END not in ways:
            ((way, places),) = ways.items()
            self.written.append(way)
            for place in places:
                self.nats[place] = math.nan
        return len(ways) > 1

    def choose(self, logprobs: Any, ends: list[int]) -> None:
        """Write the most probable of what may come next."""
        ways = self.ways()
        nats = {way: float(logprobs[ends].logsumexp(-1) if way == LABEL_END else logprobs[way]) for way in ways}
        best, second = sorted(nats, key=nats.__getitem__, reverse=True)[:2]
        for way, places in ways.items():
            for place in places:
                ended = len(places) == 1 and len(self.labels[place]) <= len(self.written) + 1
                self.nats[place] += nats[way] if way == best or ended else math.nan
        self.lead = min(self.lead, nats[best] - nats[second])
        self.written.append(best)


def _labelled(model: Any, queries: Sequence[MultipleChoiceQuery], batch_size: int) -> list[Output]:
    import torch

    distinct = {query.labels for query in queries}
    tokens = {labels: model.tokenizer(list(labels), add_special_tokens=False)["input_ids"] for labels in distinct}
    prompts = model.tokenizer([query.display_text() for query in queries])["input_ids"]
    answers = [
        _Labelling(prompt, tokens[query.labels], [0.0] * len(query.labels))
        for query, prompt in zip(queries, prompts, strict=True)
    ]
    ends = sorted(model.stops.ends)
    while waiting := [answer for answer in answers if answer.has_choice()]:
        same_length = defaultdict[int, list[_Labelling]](list)
        for answer in waiting:
            same_length[len(answer.prompt) + len(answer.written)].append(answer)
        for same in same_length.values():
            for batch in (same[start : start + batch_size] for start in range(0, len(same), batch_size)):
                fed = torch.tensor([answer.prompt + answer.written for answer in batch], device=model.network.device)
                with torch.inference_mode():
                    logits = model.network(input_ids=fed, use_cache=False, logits_to_keep=1).logits[:, -1]
                    for answer, logprobs in zip(batch, logits.float().log_softmax(-1), strict=True):
                        answer.choose(logprobs, ends)
    outputs = []
    for query, answer in zip(queries, answers, strict=True):
        chosen = answer.labels.index([token for token in answer.written if token != LABEL_END])
        outputs.append(Output((tuple(answer.nats),), (query.labels[chosen].strip(),), (answer.lead,)))
    return outputs


_UNDERTOW = Contender(ENGINE, "undertow", open_undertow, ITS_OWN)
_LIKELIHOOD = (
    _UNDERTOW,
    Contender("lm-eval HF", "lm_eval", open_lm_eval, None, target_ratio=5, no_more_memory=True),
    Contender("minicons", "minicons", open_minicons, None, target_ratio=6),
    Contender("transformers, one by one", "transformers", open_whole, ONE_BY_ONE),
    Contender("transformers, batched", "transformers", open_whole, None),
)
CONTENDERS: Mapping[str, tuple[Contender, ...]] = {
    "likelihood": _LIKELIHOOD,
    "schemas": _LIKELIHOOD,
    "masked": (
        _UNDERTOW,
        Contender("fill-mask, one by one", "transformers", open_pipeline, ONE_BY_ONE, target_ratio=8),
        Contender("fill-mask, batched", "transformers", open_pipeline, None, target_ratio=1.25),
    ),
    "prompts": (
        _UNDERTOW,
        Contender("generate, one by one", "transformers", open_generate, ONE_BY_ONE, target_ratio=5),
    ),
    "wordings": (
        _UNDERTOW,
        Contender("whole prompts, one by one", "transformers", open_labels, ONE_BY_ONE, target_ratio=5),
        Contender("whole prompts, batched", "transformers", open_labels, None),
    ),
}
"""By row. The first of each is the one that the others are compared with."""
