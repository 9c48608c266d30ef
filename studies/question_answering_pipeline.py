"""The span scores of a question-answering model beside those of Hugging Face's pipeline, which transformers had until 5.0.

    pip install --target older "transformers==4.57.6"
    PYTHONPATH=older python studies/question_answering_pipeline.py MODEL [PASSAGE QUESTION]

From 4.53 on the pipeline adds up what the windows of a long passage say, and pieces that are the same words: give it a passage of
one window that repeats no word. Prints the score of the best piece and of no answer, as the pipeline and as Undertow give them, and
the largest relative difference.
"""

from __future__ import annotations

import math
import sys

from transformers import pipeline

from undertow import models
from undertow.models.base import EXACT, Request
from undertow.types import Answer, Extraction

CASE = ("Mary met James. Susan has skills in cooking.", "Who has skills in cooking?")


def main(name: str, *given: str) -> float:
    """Compare them; returns the largest relative difference."""
    model = models.find(Request(name, device="cpu")).open()
    piped = pipeline("question-answering", name, tokenizer=model.poser.tokenizer, device="cpu")
    largest = 0.0
    for passage, question in [(given[0], given[1]) if given else CASE]:
        asked = {"question": question, "context": passage}
        many = piped(**asked, top_k=500, align_to_words=False, handle_impossible_answer=True)
        null = next((one["score"] for one in many if not one["answer"]), math.nan)  # NaN where 500 pieces are better
        best = piped(**asked, align_to_words=False)["score"]
        (arrived,) = list(model.answer([Extraction(passage, question)], EXACT))
        answer = arrived[0]
        assert isinstance(answer, Answer)
        ours = [math.exp(nats) for nats in answer.logprobs_nats]
        for what, pipes, own in (("no answer", null, ours[0]), ("best piece", best, ours[1])):
            largest = max(largest, 0.0 if math.isnan(pipes) else abs(own / pipes - 1))
            print(f"{what}: pipeline {pipes:.9f}, Undertow {own:.9f}")
    print(f"largest relative difference: {largest:.1e}")
    return largest


if __name__ == "__main__":
    main(*sys.argv[1:])
