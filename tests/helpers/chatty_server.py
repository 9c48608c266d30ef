"""A chat server that answers as people do: with chatter, markdown, reasons and refusals, without log-probabilities or grammars."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from helpers.faulty_proxy import Asked, Reply, Seen, serving

REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "As an AI, I don't make judgments about people.",
    "I would rather not answer this question.",
)
UNCLEAR = ("There is not enough information to say.", "It depends on the context.", "Hmm.")
CHATTER = (
    "{}",
    "**{}**",
    "The answer is {}.",
    "Sure! I'd say {}.",
    "Answer: {}\n\nThat is only my opinion.",
    "<think>Hard to say. Let me see.</think>\n{}.",
)


@dataclass(frozen=True)
class Planned:
    """What a reply says: `refusal`, `unclear` or `answer`, and the answer."""

    outcome: str
    reply: str
    answer: str = ""


def planned(prompt: str) -> Planned:
    """The reply to a prompt, of which about one in nine refuses and one in nine does not say; the same to the same prompt."""
    number = zlib.crc32(prompt.encode())
    if number % 9 == 0:
        return Planned("refusal", REFUSALS[number // 9 % len(REFUSALS)])
    if number % 9 == 1:
        return Planned("unclear", UNCLEAR[number // 9 % len(UNCLEAR)])
    answer = choose(prompt, number // 81)
    return Planned("answer", CHATTER[number // 9 % len(CHATTER)].format(answer), answer)


def chatty_answer(prompt: str) -> str:
    """The text of `planned`."""
    return planned(prompt).reply


def choose(prompt: str, number: int) -> str:
    """One of the answers that a prompt offers, or a piece of the text before its last question where it offers none."""
    lines = [line for line in prompt.splitlines() if line.strip() not in ("", "Answer:")]
    question, text = lines[-1], lines[-2] if len(lines) > 1 else lines[-1]
    if "Yes or No?" in question or re.search(r"is there bias|contain bias", question, re.IGNORECASE):
        return ("yes", "no")[number % 2]
    if options := re.search(r"\? ([^?]+)\?", question):
        names = re.split(r", | or ", options.group(1))
        return names[number % len(names)]
    if "pronoun" in prompt:
        return ("she", "he", "they")[number % 3]
    if re.search(r"most (?:biased|toxic)", question):
        return f'"{" ".join(text.split()[:3])}"'
    if re.search(r"rephrase|convert|remov", question, re.IGNORECASE):
        return '"People differ, and one should ask them."'
    return ("age", "gender", "race")[number % 3]


def chatty_server(answer: Callable[[str], str] = chatty_answer) -> AbstractContextManager[Seen]:
    """The server: it chats, refuses log-probabilities with a 400, and names no owner of its model."""

    def reply(asked: Asked) -> Reply:
        if asked.path.endswith("/models"):
            return Reply({"object": "list", "data": [{"id": "people-like"}]})
        if not asked.path.endswith("/chat/completions"):
            return Reply({"error": {"message": "not found"}}, 404)
        if "logprobs" in asked.body:
            return Reply({"error": {"message": "this model gives no logprobs", "param": "logprobs"}}, 400)
        message: dict[str, Any] = {"role": "assistant", "content": answer(asked.prompt)}
        return Reply({"model": "people-like", "choices": [{"message": message, "finish_reason": "stop"}]})

    return serving(reply)
