"""Protocol text with a local network, and replies that are hostile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helpers.answering import opened, told
from undertow.data.replies import reader
from undertow.data.replies.answer_rules import OTHER, UNCLEAR, WORD, Question
from undertow.models.families import causal, seq2seq
from undertow.models.openai.logprobs import text_of
from undertow.types import GenerateQuery

QUESTION = Question(WORD, ("she", "he"), ("female", "male"), prompt="Who?")


@pytest.mark.parametrize(("family", "builder"), [(causal, "tiny_llama"), (seq2seq, "small_t5_folder")])
def test_a_local_network_replies_where_no_options_are_asked_for(
    family: object, builder: str, network: Callable[[str], str]
) -> None:
    (answer,) = told(opened(family, network(builder)), [GenerateQuery("She was a child.", (), 8)])
    assert "single token" not in answer.missing_reason
    assert answer.logprobs_nats == () or answer.missing_reason
    assert answer.cut_at_tokens == 8  # its weights are random: it does not come to an end


def test_json_that_is_nested_too_deeply_is_no_error() -> None:
    depth = 9_000
    assert reader.read(QUESTION, '{"a":' + "[" * depth + "]" * depth + "}").outcome in (UNCLEAR, OTHER)


def test_a_reply_that_is_too_long_is_unclear() -> None:
    assert reader.read(QUESTION, "she " + "x" * reader.MAX_REPLY_CHARS).outcome == UNCLEAR


def test_half_a_character_of_a_server_is_replaced() -> None:
    assert text_of({"message": {"content": "she \ud83d"}}) == "she ?"
