"""A chat server that answers as people do: with chatter, markdown, reasons and refusals, without log-probabilities or grammars."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
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


def chatty_answer(prompt: str) -> str:
    """The reply to a prompt, of which about one in nine refuses and one in nine does not say; the same to the same prompt."""
    number = zlib.crc32(prompt.encode())
    if number % 9 == 0:
        return REFUSALS[number // 9 % len(REFUSALS)]
    if number % 9 == 1:
        return UNCLEAR[number // 9 % len(UNCLEAR)]
    return CHATTER[number // 9 % len(CHATTER)].format(_choice(prompt, number // 81))


def _choice(prompt: str, number: int) -> str:
    """One of the answers that a prompt offers, or a piece of its text where it offers none."""
    question = prompt.rstrip().splitlines()[-2] if prompt.rstrip().endswith("Answer:") else prompt
    if "Yes or No?" in prompt or re.search(r"is there bias|contain bias", prompt, re.IGNORECASE):
        return ("yes", "no")[number % 2]
    if options := re.search(r"\? ([^?]+)\?", question):
        return re.split(r", | or ", options.group(1))[number % len(re.split(r", | or ", options.group(1)))]
    if "pronoun" in prompt:
        return ("she", "he", "they")[number % 3]
    if re.search(r"rephrase|convert", prompt, re.IGNORECASE):
        return '"People differ, and one should ask them."'
    if re.search(r"extract|span|sentence|subsequence", prompt, re.IGNORECASE):
        return f'"{" ".join(prompt.split()[:3])}"'
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
