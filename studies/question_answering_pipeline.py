"""The span scores of a question-answering model beside those of Hugging Face's pipeline, which transformers had until 5.0.

    pip install --target older "transformers==4.57.6"
    PYTHONPATH=older python studies/question_answering_pipeline.py MODEL [PASSAGE QUESTION]...

Without passages of your own it asks a few short ones. Prints for each the scores of no answer and of the best piece, as the
pipeline and as Undertow give them, and compares every piece that the pipeline lists with the same words as a candidate; then the
largest relative difference of all.

From 4.53 on the pipeline adds up what the windows of a long passage say, and pieces that are the same words. So a passage must fit
into one window, and a piece whose words stand there twice is not compared; nor is one that begins or ends within a word, which
cannot be a candidate.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import pipeline

from undertow import models
from undertow.models.base import EXACT, Request
from undertow.models.extractive import ExtractiveModel
from undertow.models.passages import Posed, places_of
from undertow.types import Answer, Extraction, UndertowError

CASES = (
    ("Mary met James; Susan has skills in cooking.", "Who has skills in cooking?"),
    ("Paul lives in the house, and Ruth is coding.", "Where does Paul live?"),
    ("Alice and Frank met Diane.", "Who is Oscar?"),
    ("Karen has painting skills", "Who does painting?"),
    ("Brian.", "Who met Emma?"),
)
"""Passages that repeat no word, with a question each; they fit into 64 tokens even where a model reads most words letter by letter."""
ALL_PIECES = 10_000
"""More than a window has: 384 tokens, and 15 pieces that begin with each."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One number, as both give it."""

    what: str
    pipeline: float
    own: float

    @property
    def difference(self) -> float:
        """Relative to the pipeline's."""
        return abs(self.own / self.pipeline - 1)


def stands_once(passage: str, piece: str) -> bool:
    """Whether no other piece can be the same words to the pipeline, which ignores case."""
    return passage.lower().find(piece.lower()) == passage.lower().rfind(piece.lower())


def is_candidate(passage: str, entry: dict[str, Any]) -> bool:
    """Whether an entry of the pipeline is whole words that stand once."""
    words = entry["answer"].strip()
    return bool(words) and entry["score"] > 0 and stands_once(passage, words) and len(places_of(passage, words)) == 1


def compared(model: ExtractiveModel, piped: Any, passage: str, question: str) -> Iterator[Compared]:
    """No answer, the best piece, and each candidate.

    Raises:
        UndertowError: the passage does not fit into one window, or Undertow cannot ask the question.
    """
    (posed,) = model.poser.posed([Extraction(passage, question)])
    if isinstance(posed, Posed) and len(posed.windows) > 1:
        raise UndertowError(
            f"{passage[:40]!r}...: is longer than the {model.poser.context_tokens} tokens of a window; shorten it"
        )
    entries = piped(
        question=question, context=passage, top_k=ALL_PIECES, align_to_words=False, handle_impossible_answer=True
    )
    pieces = [entry for entry in entries if entry["answer"]]
    candidates = {entry["answer"].strip(): entry["score"] for entry in pieces if is_candidate(passage, entry)}
    *shares, null, best = asked(model, Extraction(passage, question, tuple(candidates)))
    # The pipeline sorts by score, and what it lists beside no answer without words has a score of 0.
    yield Compared("no answer", next(entry["score"] for entry in entries if not entry["answer"]), null)
    if stands_once(passage, pieces[0]["answer"]):
        yield Compared(f"best piece {pieces[0]['answer']!r}", pieces[0]["score"], best)
    for (words, score), share in zip(candidates.items(), shares, strict=True):
        yield Compared(f"candidate {words!r}", score, share)


def asked(model: ExtractiveModel, query: Extraction) -> list[float]:
    """Probability of each candidate, of no answer and of the best piece."""
    (arrived,) = model.answer([query], EXACT)
    answer = arrived[0]
    if not isinstance(answer, Answer):
        raise UndertowError(f"{query.passage[:40]!r}: cannot be asked, since {answer}; give another passage")
    return [math.exp(nats) for nats in answer.logprobs_nats]


def cases_of(given: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Passages with their questions, as they stand on the command line.

    Raises:
        UndertowError: a passage has no question.
    """
    if len(given) % 2:
        raise UndertowError(f"{given[-1]!r}: this passage has no question; give one after each passage")
    return list(zip(given[::2], given[1::2], strict=True)) or CASES


def main(name: str, *given: str) -> float:
    """Compare them; returns the largest relative difference."""
    cases = cases_of(given)
    model = models.find(Request(name, device="cpu")).open()
    if not isinstance(model, ExtractiveModel):
        raise UndertowError(
            f"{name}: does not answer from passages; name a model whose class ends in ForQuestionAnswering"
        )
    piped = pipeline("question-answering", name, tokenizer=model.poser.tokenizer, device="cpu")
    largest = 0.0
    for passage, question in cases:
        print(f"{passage} {question}")
        numbers = list(compared(model, piped, passage, question))
        candidates = [one for one in numbers if one.what.startswith("candidate")]
        others = [one for one in numbers if one not in candidates]
        for one in others:
            print(f"  {one.what}: pipeline {one.pipeline:.9f}, Undertow {one.own:.9f}")
        if len(others) < 2:
            print("  best piece: not compared, since its words stand in the passage more than once")
        apart = max((one.difference for one in candidates), default=0.0)
        print(f"  {len(candidates)} candidates: largest relative difference {apart:.1e}")
        largest = max(largest, *(one.difference for one in numbers))
    print(f"largest relative difference: {largest:.1e}")
    return largest


if __name__ == "__main__":
    try:
        if len(sys.argv) < 2:
            raise UndertowError("no model is named; give a hub id or a folder, as in deepset/tinyroberta-squad2")
        main(*sys.argv[1:])
    except UndertowError as error:
        sys.exit(str(error))
