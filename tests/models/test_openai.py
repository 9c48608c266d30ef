"""Models behind a server: what is asked, how every shape of response is read, and what happens when servers fail.

Quick tests talk to a scripted server over real sockets; those marked `model` to llama.cpp's server with the default model.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import signal
import socket
import subprocess
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from faulty_proxy import FAULTS, Asked, Plan, Reply, Seen, faulty_proxy, serving
from llama_server import MODEL, SLOTS, llama_server  # noqa: F401  # a fixture
from undertow.models import _openai_connection as connection
from undertow.models import _openai_http as http
from undertow.models import catalog
from undertow.models._openai_steps import Wanted, answer_in, shown_of, step_of, text_of, without_end
from undertow.models.base import EXACT, PAPER, Found, LostError, Request, UnscorableError
from undertow.models.openai import Settings, find
from undertow.places import store_file
from undertow.scoring.ask import Asked as Answers
from undertow.scoring.ask import ask, estimate
from undertow.scoring.store import AnswerStore
from undertow.types import Answer, Generation, Option, UndertowError

pytest.importorskip("openai", reason="the api extra is not installed")

OPTIONS = (Option("female", ("she",)), Option("male", ("he",)), Option("neutral", ("they",)))
PAPER_B = "The gendered pronoun missing in this sentence: 'In 1953, <mask> was a teenager.', is"
SHE = {"she": 0.41, "he": 0.33, " she": 0.05, "the": 0.02}
"""The step of the module's own example: 0.19 is not shown, and no token of it is above 0.02; "the" may begin *they*."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key of the user's in a test, and no waiting where the length of the wait is not the subject."""
    for name in ("OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS", "OPENAI_BASE_URL", "OPENAI_LOG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(http, "FIRST_WAIT_S", 0.01)


def prompt(text: str = PAPER_B, *, chat: bool = False, options: tuple[Option, ...] = OPTIONS) -> Generation:
    return Generation(text, options, max_tokens=4, chat=chat)


def prompts(n: int) -> list[Generation]:
    return [prompt(f"prompt {number}") for number in range(n)]


def model_at(url: str, **settings: str | int | float | bool) -> Found:
    found = find(Request("openai:some-model", settings={"base_url": url} | settings))
    assert found is not None
    return found


def answers_of(found: Found, queries: Sequence[Generation], protocol: str = EXACT) -> dict[int, Any]:
    arrived: dict[int, Any] = {}
    for some in found.open().answer(queries, protocol):
        arrived |= some
    return arrived


def asked_and_stored(found: Found, queries: Sequence[Generation], protocol: str = EXACT) -> Answers:
    with AnswerStore(store_file()) as store:
        return ask(found, queries, store, protocol, lambda done, total: None)


def n_stored(found: Found) -> int:
    with AnswerStore(store_file()) as store:
        return sum(shelf.n_answers for shelf in store.shelves() if shelf.key == found.card.key(EXACT))


def refused(found: Found, *words: str, queries: Sequence[Generation] | None = None, protocol: str = EXACT) -> str:
    """The one sentence that asking ends with."""
    with pytest.raises(UndertowError) as caught:
        answers_of(found, prompts(3) if queries is None else queries, protocol)
    said = str(caught.value)
    assert "\n" not in said
    for word in words:
        assert word in said
    return said


# Responses in the shapes that servers give.

Probs = Mapping[str, float]


def legacy(steps: Sequence[tuple[str, Probs]], text: str | None = None, finish: str = "length") -> dict[str, Any]:
    logprobs = {
        "tokens": [token for token, _ in steps],
        "token_logprobs": [math.log(top[token]) for token, top in steps],
        "top_logprobs": [{token: math.log(prob) for token, prob in top.items()} for _, top in steps],
        "text_offset": [0 for _ in steps],
    }
    written = "".join(token for token, _ in steps) if text is None else text
    choice = {"text": written, "index": 0, "logprobs": logprobs, "finish_reason": finish}
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    return {"object": "text_completion", "model": "some-model-0613", "choices": [choice], "usage": usage}


def listed(steps: Sequence[tuple[str, Probs]]) -> dict[str, Any]:
    def entry(token: str, prob: float) -> dict[str, Any]:
        return {"token": token, "logprob": math.log(prob), "bytes": list(token.encode())}

    content = [
        entry(token, top[token]) | {"top_logprobs": [entry(other, prob) for other, prob in top.items()]}
        for token, top in steps
    ]
    return {"content": content, "refusal": None}


def completion(steps: Sequence[tuple[str, Probs]], text: str | None = None, finish: str = "length") -> dict[str, Any]:
    body = legacy(steps, text, finish)
    body["choices"][0]["logprobs"] = listed(steps)
    return body


def chat_completion(
    steps: Sequence[tuple[str, Probs]], text: str | None = None, finish: str = "length"
) -> dict[str, Any]:
    body = completion(steps, text, finish)
    choice = body["choices"][0]
    choice["message"] = {"role": "assistant", "content": choice.pop("text"), "refusal": None}
    return body | {"object": "chat.completion", "system_fingerprint": "fp_1234"}


def error(status: int, message: str = "", **more: str) -> Reply:
    return Reply({"error": {"message": message, "type": "some_error"} | more}, status)


def saying(*replies: Any) -> Callable[[Asked], Reply]:
    """The first reply to the first attempt with a prompt, and so on; the last one to all that follow."""

    def reply(asked: Asked) -> Reply:
        given = replies[min(asked.attempt, len(replies)) - 1]
        return given if isinstance(given, Reply) else Reply(given)

    return reply


GOOD = legacy([(" she", {" she": 0.5, " he": 0.25, " the": 0.05, " a": 0.03, " it": 0.02})])


# What is asked.


@pytest.mark.parametrize("chat", [False, True])
def test_the_request_of_each_endpoint(monkeypatch: pytest.MonkeyPatch, *, chat: bool) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    with serving(saying(chat_completion([("she", SHE)]) if chat else GOOD)) as seen:
        answers_of(model_at(seen.url), [prompt(chat=chat)])
    (asked,) = seen.requests
    common = {"model": "some-model", "max_tokens": 4, "temperature": 0, "seed": 0}
    if chat:
        assert asked.path == "/v1/chat/completions"
        messages = [{"role": "user", "content": PAPER_B}]
        assert asked.body == common | {"messages": messages, "logprobs": True, "top_logprobs": 20}
    else:
        assert asked.path == "/v1/completions"
        assert asked.body == common | {"prompt": PAPER_B, "logprobs": 20}
    assert asked.headers["authorization"] == "Bearer sk-of-a-test"


def test_a_local_server_wants_no_key_and_gets_none() -> None:
    with serving(saying(GOOD)) as seen:
        answers_of(model_at(seen.url), [prompt()])
    assert "authorization" not in seen.requests[0].headers


def test_so_many_at_a_time_and_each_yielded_as_it_arrives() -> None:
    def reply(asked: Asked) -> Reply:
        return Reply(GOOD, after_s=0.6 if asked.prompt == "prompt 0" else 0.02)

    with serving(reply) as seen:
        places = list(answers_of(model_at(seen.url, concurrency=3), prompts(12)))
    assert sorted(places) == list(range(12))
    assert places[-1] == 0
    assert seen.most_at_once == 3


def test_a_parameter_that_a_model_calls_otherwise_is_called_so() -> None:
    def reply(asked: Asked) -> Reply:
        for name in ("max_tokens", "seed"):
            if name in asked.body:
                return error(400, f"Unsupported parameter: '{name}'", param=name, code="unsupported_parameter")
        return Reply(chat_completion([("she", SHE)]))

    queries = [prompt(f"prompt {number}", chat=True) for number in range(12)]
    with serving(reply) as seen:
        arrived = answers_of(model_at(seen.url, retries=0), queries)
    assert all(isinstance(answer, Answer) for answer in arrived.values())
    assert seen.requests[-1].body["max_completion_tokens"] == 4
    assert len(seen.requests) <= 12 + 2 * 8  # what was under way when it was learnt, and no more


def test_effort_sends_nothing() -> None:
    with serving(saying(GOOD)) as seen, AnswerStore(store_file()) as store:
        told = estimate(model_at(seen.url), prompts(5), store, EXACT)
    assert seen.requests == []
    assert (told.n_passes, told.passes, told.n_tokens) == (5, "requests", 5 * (2 + 4))
    assert math.isnan(told.seconds)


# What is read.

SHAPES = [(legacy, False), (completion, False), (chat_completion, True)]


@pytest.mark.parametrize(("shape", "chat"), SHAPES)
def test_a_step_by_hand_with_what_was_not_shown(shape: Callable[..., dict[str, Any]], *, chat: bool) -> None:
    """Of *she* both spellings were seen, of *he* one, of *they* none: 0, 1 and 2 times 0.02 may be hidden.

    And "the", with 0.02, may be the first token of *they*.
    """
    with serving(saying(shape([("she", SHE)]))) as seen:
        (answer,) = answers_of(model_at(seen.url, top_logprobs=4), [prompt(chat=chat)]).values()
    assert [math.exp(nats) for nats in answer.logprobs_nats] == pytest.approx([0.46, 0.33, 0.0])
    assert answer.ceilings_prob == pytest.approx((0.0, 0.02, 0.06))
    assert answer.unseen_prob == pytest.approx(0.19 + 0.02)
    assert answer.unclaimed_prob == pytest.approx(1 - 0.79)
    assert answer.text == "she"


@pytest.mark.parametrize(("shape", "chat"), SHAPES)
def test_protocol_paper_reads_the_five_most_probable_and_nothing_else(
    shape: Callable[..., dict[str, Any]], *, chat: bool
) -> None:
    top = {"they": 0.05, "she": 0.4, "a": 0.2, "the": 0.1, "it": 0.08, "he": 0.06}
    with serving(saying(shape([("she", top)]))) as seen:
        (answer,) = answers_of(model_at(seen.url), [prompt(chat=chat)], PAPER).values()
    assert [math.exp(nats) for nats in answer.logprobs_nats] == pytest.approx([0.4, 0.06, 0.0])
    assert answer.logprobs_nats[2] == -math.inf
    assert (answer.ceilings_prob, answer.unseen_prob) == ((), 0.0)


def test_the_notes_of_protocol_paper_claim_no_bounds() -> None:
    top = {"she": 0.4, "a": 0.2, "the": 0.1, "it": 0.08, "he": 0.06}
    with serving(saying(completion([("she", top)]))) as seen:
        model = model_at(seen.url).open()
        assert len(list(model.answer([prompt()], PAPER))) == 1
    assert "all but the first 5 count as nothing" in model.notes[0]


def test_one_pronoun_decoded_counts_alone_and_none_is_the_mean_of_all() -> None:
    she, no = {" she": 0.5, " he": 0.2, " x": 0.1}, {" was": 0.7, " he": 0.1, " x": 0.05}
    with serving(saying(completion([(" was", no), (" she", she)]))) as seen:
        (alone,) = answers_of(model_at(seen.url), [prompt()]).values()
    assert math.exp(alone.logprobs_nats[0]) == pytest.approx(0.5)
    with serving(saying(completion([(" was", no), (" was", no | {" she": 0.08})]))) as seen:
        (mean,) = answers_of(model_at(seen.url), [prompt()]).values()
    assert [math.exp(nats) for nats in mean.logprobs_nats] == pytest.approx([0.04, 0.1, 0.0])
    assert mean.unseen_prob == pytest.approx((0.15 + 0.07) / 2)


@pytest.mark.parametrize("end", ["", "<|im_end|>"])
def test_the_token_that_ends_an_answer_is_no_step(end: str) -> None:
    steps = [("Well", {"Well": 0.5, "she": 0.25}), (end, {end: 0.9, "she": 0.05})]
    with serving(saying(chat_completion(steps, text="Well", finish="stop"))) as seen:
        (answer,) = answers_of(model_at(seen.url), [prompt(chat=True)]).values()
    assert math.exp(answer.logprobs_nats[0]) == pytest.approx(0.25)


def test_an_answer_that_stops_at_a_real_token_keeps_it() -> None:
    steps = [("Well", {"Well": 0.5, "she": 0.25}), (".\n", {".\n": 0.9, "she": 0.05})]
    with serving(saying(chat_completion(steps, text="Well.", finish="stop"))) as seen:
        (answer,) = answers_of(model_at(seen.url), [prompt(chat=True)]).values()
    assert math.exp(answer.logprobs_nats[0]) == pytest.approx(0.15)


@pytest.mark.parametrize("body", [completion([("", {"": 0.9, "she": 0.1})], "", "stop"), legacy([], "", "stop")])
def test_an_answer_that_ends_before_its_first_word_is_unscored(body: dict[str, Any]) -> None:
    with serving(saying(body)) as seen:
        (answer,) = answers_of(model_at(seen.url), [prompt()]).values()
    assert "empty" in answer.unscored


def test_a_decoded_token_outside_the_most_probable_ones_is_added_and_bounds_nothing() -> None:
    """Between it and the last of the most probable, others may be hidden: the bound stays that of the last one."""
    body = completion([("she", {"of": 0.5, "a": 0.3, "she": 0.04})])
    step = body["choices"][0]["logprobs"]["content"][0]
    step["top_logprobs"] = step["top_logprobs"][:2]
    for given in (body, legacy([("she", {"of": 0.5, "a": 0.3, "she": 0.04})])):
        with serving(saying(given)) as seen:
            (answer,) = answers_of(model_at(seen.url, top_logprobs=2), [prompt()]).values()
        assert math.exp(answer.logprobs_nats[0]) == pytest.approx(0.04)
        assert answer.unseen_prob == pytest.approx(0.16)
        assert answer.ceilings_prob == pytest.approx((0.16, 0.16, 0.16))  # two tokens up to 0.3 each, 0.16 in all


def test_what_stands_for_not_shown_is_not_shown() -> None:
    """A number like -9999 says that a token is not among the most probable ones, not that it cannot be."""
    body = chat_completion([("she", SHE)])
    body["choices"][0]["logprobs"]["content"][0]["top_logprobs"].append({"token": "they", "logprob": -9999.0})
    with serving(saying(body)) as seen:
        model = model_at(seen.url).open()
        ((answer,),) = (arrived.values() for arrived in model.answer([prompt(chat=True)], EXACT))
    assert isinstance(answer, Answer)
    assert answer.ceilings_prob == pytest.approx((0.0, 0.02, 0.06))
    assert "of 20 tokens that were asked for, the server shows as few as 4 of a step" in model.notes


def test_numbers_that_were_rounded_never_say_that_nothing_is_hidden() -> None:
    with serving(saying(completion([("she", {"she": 0.9999999, " a": 0.0000004})]))) as seen:
        (answer,) = answers_of(model_at(seen.url), [prompt()]).values()
    assert all(0 < ceiling <= 1e-6 for ceiling in answer.ceilings_prob)


XE = (Option("neo", ("xe",)), Option("neo", ("xyr",)), Option("female", ("she",)))


def test_a_shown_token_may_be_the_first_of_several_of_a_word() -> None:
    """The ceilings by hand: what is hidden, and " x" and "xy", each piece once; *she* was shown whole, so "s" is no piece of it."""
    top = {" x": 0.2, "xy": 0.1, " she": 0.3, "s": 0.05, " ": 0.04, "shed": 0.03, "Xe": 0.02}  # 0.26 is hidden
    with serving(saying(completion([(" she", top)]))) as seen:
        (answer,) = answers_of(model_at(seen.url), [prompt(options=XE)]).values()
    assert [math.exp(nats) for nats in answer.logprobs_nats] == pytest.approx([0.0, 0.0, 0.3])
    assert answer.ceilings_prob == pytest.approx((0.04 + 0.2, 0.04 + 0.2 + 0.1, 0.02))
    assert answer.unseen_prob == pytest.approx(0.26 + 0.2 + 0.1 + 0.05)  # of all words together, whichever were shown


def test_pieces_are_those_of_the_steps_that_count() -> None:
    first, second = {" I": 0.5, " x": 0.2, " of": 0.1}, {" she": 0.6, " x": 0.1, " a": 0.05}
    with serving(saying(completion([(" I", first), (" she", second)]))) as seen:
        (alone,) = answers_of(model_at(seen.url), [prompt(options=XE)]).values()
    assert alone.ceilings_prob == pytest.approx((0.1 + 0.1, 0.1 + 0.1, 0.05))
    assert alone.unseen_prob == pytest.approx(0.25 + 0.1)
    with serving(saying(completion([(" I", first), (" a", second)]))) as seen:
        (mean,) = answers_of(model_at(seen.url), [prompt(options=XE)]).values()
    hidden = (0.2 + 0.1) / 2
    assert mean.ceilings_prob == pytest.approx((hidden + 0.15, hidden + 0.15, (0.2 + 0.05) / 2))


@pytest.mark.parametrize("protocol", [EXACT, PAPER])
def test_words_never_shown_as_one_token_are_named(protocol: str) -> None:
    """Of the whole run: what one answer shows need not be shown by another, and pieces are no words."""
    she = {" she": 0.4, " x": 0.2, " a": 0.1, " I": 0.05, " of": 0.04, " in": 0.03}
    bodies = {"prompt 0": completion([(" she", she)]), "prompt 1": completion([(" a", she | {" xyr": 0.01})])}
    queries = [prompt(text, options=XE) for text in bodies]
    with serving(lambda asked: Reply(bodies[asked.prompt])) as seen:
        model = model_at(seen.url).open()
        assert sum(len(some) for some in model.answer(queries[:1], protocol)) == 1
        assert model.notes[-1] == "never shown as one token, so possibly several: xe, xyr"
        assert sum(len(some) for some in model.answer(queries[1:], protocol)) == 1
        assert model.notes[-1] == "never shown as one token, so possibly several: xe"
        assert len(model.notes) == len(set(model.notes)) == 5
        whole = model_at(seen.url).open()
        assert len(list(whole.answer([prompt("prompt 0", options=OPTIONS[:1])], protocol))) == 1
    assert not any("never shown" in note for note in whole.notes)


def test_tokens_of_equal_text_that_became_one_leave_every_ceiling_open() -> None:
    """Fewer than were asked for came back by text, so one is lost, and may be any word's with all that is not shown."""
    given = {"she": 0.4, " she": 0.2, "he": 0.1, "a": 0.05}
    for shape, ceilings in ((legacy, (0.25,) * 3), (completion, (0.0, 0.05, 0.1))):
        with serving(saying(shape([("she", given)]))) as seen:
            (answer,) = answers_of(model_at(seen.url, top_logprobs=5), [prompt()]).values()
        assert answer.ceilings_prob == pytest.approx(ceilings)
        assert answer.unseen_prob == pytest.approx(0.25)
    with serving(saying(legacy([("she", given)]))) as seen:  # as many as were asked for
        (answer,) = answers_of(model_at(seen.url, top_logprobs=4), [prompt()]).values()
    assert answer.ceilings_prob == pytest.approx((0.0, 0.05, 0.1))


def test_the_fewest_tokens_that_were_shown_are_noted_where_they_are_fewer_than_asked_for() -> None:
    many = {chr(ord("a") + number): 0.04 for number in range(20)}
    bodies = {"prompt 0": completion([("a", many)]), "prompt 1": completion([("a", many), ("she", SHE)])}
    with serving(lambda asked: Reply(bodies[asked.prompt])) as seen:
        model = model_at(seen.url).open()
        assert len(list(model.answer([prompt("prompt 0")], EXACT))) == 1
        assert not any("as few as" in note for note in model.notes)
        assert len(list(model.answer([prompt("prompt 1")], EXACT))) == 1
    assert "of 20 tokens that were asked for, the server shows as few as 4 of a step" in model.notes


def test_space_that_a_server_strips_from_its_tokens_is_that_of_the_text() -> None:
    """Without it "was" and "she" would be pieces of a longer word, and no step would be the pronoun's."""
    steps = [("was", {"was": 0.6, "he": 0.1}), ("she", {"she": 0.5, "he": 0.2}), (".", {".": 0.8, "he": 0.05})]
    for body, prob in (
        (completion(steps, "was she."), 0.5),
        (completion([*steps, ("</s>", {"</s>": 0.9})], "was she.", "stop"), 0.5),
        (completion(steps, "wasshe."), 0.5 / 3),
        (completion(steps, "something else"), 0.5 / 3),
    ):
        with serving(saying(body)) as seen:
            (answer,) = answers_of(model_at(seen.url), [prompt()]).values()
        assert math.exp(answer.logprobs_nats[0]) == pytest.approx(prob)


def test_options_that_are_one_word_or_several() -> None:
    twice = (Option("female", ("she",)), Option("female", ("she",)), Option("male", ("grown up",)))
    clash = (Option("female", ("she",)), Option("male", ("she",)))
    with serving(saying(completion([("she", SHE)]))) as seen:
        first, second = answers_of(model_at(seen.url), [prompt(options=twice), prompt(options=clash)]).values()
    if isinstance(first, UnscorableError):
        first, second = second, first
    assert math.exp(first.logprobs_nats[0]) == pytest.approx(0.46)
    assert all(math.isnan(nats) for nats in first.logprobs_nats[1:])
    assert isinstance(second, UnscorableError)
    assert "'she' is an option of female and one of male" in str(second)
    assert len(seen.requests) == 1


def test_notes_say_what_was_served_and_where() -> None:
    with serving(saying(chat_completion([("she", SHE)]))) as seen:
        model = model_at(seen.url).open()
        assert len(list(model.answer([prompt(chat=True)], EXACT))) == 1
        host = seen.url.removeprefix("http://").removesuffix("/v1")
    notes = " | ".join(model.notes)
    assert "20 most probable tokens that the server shows of each step; what it hides is bounded" in notes
    assert host in notes
    assert "some-model-0613 (fingerprint fp_1234)" in notes
    assert model.facts == {}


# Who it is.


def test_the_card_says_host_and_path_and_model_and_nothing_secret() -> None:
    found = catalog.find(Request("openai:org/some-model", settings={"base_url": "https://api.example.org:8443/v1/"}))
    assert found.card.source == "api.example.org:8443/v1 org/some-model"
    assert (found.card.family, found.card.revision, found.card.dtype) == ("openai", "as served", "as served")
    assert found.asks == {"generation": (EXACT, PAPER), "choice": (EXACT,), "writing": (EXACT,)}
    five = model_at("https://api.example.org/v1", top_logprobs=5).card
    other = find(Request("openai:other", settings={"base_url": "https://api.example.org/v1", "top_logprobs": 5}))
    assert other is not None
    cards = (five, other.card, model_at("https://api.example.org/v1").card, model_at("https://example.net/v1").card)
    assert len({card.key(EXACT) for card in cards}) == len(cards)


def test_the_service_shows_fewer_in_completions() -> None:
    assert "20 in chat, 5 else" in model_at("").card.readout
    assert model_at("https://example.org/v1").card.readout == "top log-probabilities, 20"


def test_settings_of_other_families_are_let_be() -> None:
    url = "https://example.org/v1"
    assert model_at(url, mode="answer").card == model_at(url).card


def test_other_names_are_of_other_families() -> None:
    assert find(Request("openai/gpt-oss-20b")) is None
    assert find(Request("gpt2")) is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"concurrency": 0}, "--concurrency must be 1 or more"),
        ({"retries": -1}, "--retries must be 0 or more"),
        ({"max_requests": -5}, "--max-requests"),
        ({"max_api_tokens": -5}, "--max-api-tokens"),
        ({"top_logprobs": -1}, "--top-logprobs"),
        ({"timeout_s": 0.0}, "--timeout-s"),
        ({"timeout_s": math.inf}, "--timeout-s"),
        ({"timeout_s": math.nan}, "--timeout-s"),
        ({"retries": "many"}, "--retries must be a number"),
        ({"base_url": "ftp://example.org/v1"}, "no http or https address"),
        ({"base_url": "example.org/v1"}, "no http or https address"),
        ({"base_url": "http:///v1"}, "no http or https address"),
        ({"base_url": "http://exa mple.org/v1"}, "no http or https address"),
        ({"base_url": "http://127.0.0.1:port/v1"}, "the base URL is not one"),
        ({"base_url": "https://me:hunter2hunter2@example.org/v1"}, "user name or a password"),
        ({"base_url": "https://hunter2hunter2@example.org/v1"}, "user name or a password"),
        ({"base_url": "https://example.org/v1?api-key=hunter2hunter2"}, "after its path"),
        ({"base_url": "https://example.org/v1#hunter2hunter2"}, "after its path"),
    ],
)
def test_bad_settings_are_one_sentence_that_tells_no_secret(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UndertowError, match=words) as caught:
        find(Request("openai:some-model", settings=settings))
    assert "\n" not in str(caught.value)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_no_model_and_no_dtype() -> None:
    with pytest.raises(UndertowError, match="the model's name after the colon"):
        catalog.find(Request("openai:"))
    with pytest.raises(UndertowError, match="leave --dtype out"):
        catalog.find(Request("openai:some-model", dtype="bfloat16"))


def test_every_setting_has_a_default_and_its_help() -> None:
    from dataclasses import MISSING, fields

    for one in fields(Settings):
        assert one.default is not MISSING
        assert one.metadata["help"]


def test_without_the_client_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    refused(model_at("http://127.0.0.1:9/v1"), "pip install 'undertow[api]'")


# The key.


def test_the_service_wants_a_key() -> None:
    refused(model_at(""), "api.openai.com: wants a key; set OPENAI_API_KEY")


@pytest.mark.parametrize(
    ("url", "is_sent"),
    [
        ("http://example.org/v1", False),
        ("http://10.0.0.1:8080/v1", False),
        ("http://localhost.example.org/v1", False),
        ("https://example.org/v1", True),
        ("http://localhost:8080/v1", True),
        ("http://127.8.8.8/v1", True),
        ("http://[::1]:8080/v1", True),
    ],
)
def test_no_key_over_plain_http_but_to_this_machine(
    monkeypatch: pytest.MonkeyPatch, url: str, *, is_sent: bool
) -> None:
    from undertow.models._openai_address import address_of, key_for

    key = secrets.token_urlsafe(24)
    monkeypatch.setenv("OPENAI_API_KEY", key)
    if is_sent:
        assert key_for(address_of(url)) == key
        return
    assert key not in refused(model_at(url), "the key is not sent over plain http")
    monkeypatch.delenv("OPENAI_API_KEY")
    assert key_for(address_of(url)) == ""
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Key: {key}")
    assert key not in refused(model_at(url), "unset OPENAI_CUSTOM_HEADERS")


def test_a_key_that_cannot_be_sent_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "hunter2 hunter2\u00e9")
    assert "hunter2" not in refused(model_at("https://example.org/v1"), "OPENAI_API_KEY holds a letter")


def test_the_key_takes_no_way_over_a_proxy_and_follows_no_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    with serving(saying(GOOD)) as elsewhere:
        monkeypatch.setenv("HTTP_PROXY", elsewhere.url.removesuffix("/v1"))
        monkeypatch.setenv("ALL_PROXY", elsewhere.url.removesuffix("/v1"))
        to = {"Location": f"{elsewhere.url}/completions"}
        with serving(saying(Reply(b"", 307, to))) as seen:
            refused(model_at(seen.url), "refused the request (status 307)")
        assert len(seen.requests) > 0
    assert elsewhere.requests == []


@pytest.mark.parametrize("is_the_service", [False, True])
def test_the_account_is_told_to_the_openai_service_alone(
    monkeypatch: pytest.MonkeyPatch, *, is_the_service: bool
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-a-test")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-a-test")
    with serving(saying(GOOD)) as seen:
        if is_the_service:
            monkeypatch.setattr(connection, "OPENAI_URL", seen.url)
        answers_of(model_at(seen.url), [prompt()])
    headers = seen.requests[0].headers
    account = {name: value for name, value in headers.items() if "of-a-test" in value}
    told = {"openai-organization": "org-of-a-test", "openai-project": "project-of-a-test"}
    assert account == (told if is_the_service else {})


def test_the_loggers_speak_again_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    with serving(saying(GOOD)) as seen, caplog.at_level(logging.DEBUG, "openai"):
        answers_of(model_at(seen.url), [prompt()])
        assert caplog.records == []
        logging.getLogger("openai").debug("heard")
    assert [record.message for record in caplog.records] == ["heard"]


# Servers that refuse.


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (error(401, "Incorrect API key"), ["wants a key (status 401)", "OPENAI_API_KEY"]),
        (error(403), ["wants a key (status 403)"]),
        (error(404, "no such model"), ["has no model some-model", "--chat"]),
        (error(400, "Maximum value for logprobs is 5"), ["status 400", "logprobs is 5", "--top-logprobs 5"]),
        (error(422, "x" * 999), ["status 422", "x" * 200 + '"']),
        (Reply({"detail": [{"msg": "no"}]}, 422), ["status 422", "check -m"]),
        (Reply(b"<html>", 400), ["status 400", "check -m"]),
        (error(402, "pay\n\x1b[31mnow"), ["status 402", 'it said "pay [31mnow"']),
        (error(429, "You exceeded your quota", code="insufficient_quota"), ["nothing left to spend"]),
        (GOOD | {"choices": [{"text": "she", "logprobs": None, "finish_reason": "length"}]}, ["log-probabilities"]),
        (GOOD | {"choices": [{"text": "she", "finish_reason": "length"}]}, ["log-probabilities", "choose a server"]),
    ],
)
def test_a_refusal_is_one_sentence_after_one_request_each(reply: Any, words: list[str]) -> None:
    with serving(saying(reply)) as seen:
        refused(model_at(seen.url, concurrency=2), *words, queries=prompts(9))
    assert len(seen.requests) <= 2


def test_a_wrong_key_and_the_hint_of_the_other_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(saying(error(404))) as seen:
        refused(model_at(seen.url), "leave --chat out", queries=[prompt(chat=True)])
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    with serving(saying(error(401))) as seen:
        refused(model_at(seen.url), "refused the key (status 401)", "OPENAI_API_KEY")


def test_fewer_than_five_under_protocol_paper() -> None:
    with serving(saying(completion([("she", SHE)]))) as seen:
        refused(model_at(seen.url), "shows fewer than the 5", "--protocol exact", protocol=PAPER)
        n_requests = len(seen.requests)
        refused(model_at(seen.url, top_logprobs=4), "--top-logprobs 5 or more", protocol=PAPER)
    assert len(seen.requests) == n_requests


@pytest.mark.parametrize(
    "reply",
    [
        error(400, "no", code="content_filter"),
        error(400, "too long", code="context_length_exceeded"),
        Reply(GOOD | {"choices": [{"text": "sh", "logprobs": None, "finish_reason": "content_filter"}]}),
    ],
)
def test_a_prompt_that_is_refused_for_itself_is_unscored_and_not_asked_again(reply: Reply) -> None:
    def some(asked: Asked) -> Reply:
        return reply if asked.prompt == "prompt 1" else Reply(GOOD)

    with serving(some) as seen:
        found = model_at(seen.url)
        asked = asked_and_stored(found, prompts(3))
        assert [bool(answer.unscored) for answer in asked.scores.answers] == [False, True, False]
        assert asked.n_lost == 0
        asked_and_stored(found, prompts(3))
    assert len(seen.requests) == 3


# Servers that fail.

NO_TOP = json.loads(json.dumps(GOOD))
NO_TOP["choices"][0]["logprobs"]["top_logprobs"] = [None]
RAGGED = json.loads(json.dumps(GOOD))
RAGGED["choices"][0]["logprobs"]["token_logprobs"] = []
NO_NUMBER = json.loads(json.dumps(GOOD))
NO_NUMBER["choices"][0]["logprobs"]["token_logprobs"] = [math.nan]
LISTED_HALF = completion([("she", SHE)])
del LISTED_HALF["choices"][0]["logprobs"]["content"][0]["top_logprobs"]

FAILURES = {
    "timeout": Reply({}, 408),
    "conflict": Reply({}, 409),
    "too many": Reply({}, 429),
    "server error": Reply(b"oops", 500),
    "overloaded": Reply({}, 529),
    "late": Reply(GOOD, after_s=30.0),
    "byte by byte": Reply(GOOD, trickle_s=0.2),
    "dropped": Reply(GOOD, drop=True),
    "cut JSON": Reply(json.dumps(GOOD).encode()[:99]),
    "cut body": Reply(json.dumps(GOOD).encode()[:99], short_by=50),
    "no JSON": Reply(b"\xff\xfe"),
    "a list": Reply([]),
    "no choices": Reply({"choices": []}),
    "no text": Reply(GOOD | {"choices": [{"text": 7}]}),
    "no top": Reply(NO_TOP),
    "ragged": Reply(RAGGED),
    "no number": Reply(NO_NUMBER),
    "half a list": Reply(LISTED_HALF),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=list(FAILURES))
def test_a_failure_is_tried_again_and_then_answered(failure: Reply) -> None:
    with serving(saying(failure, failure, GOOD)) as seen:
        (answer,) = answers_of(model_at(seen.url, timeout_s=0.5, retries=2), [prompt()]).values()
    assert math.exp(answer.logprobs_nats[0]) == pytest.approx(0.5)
    assert len(seen.requests) == 3


def test_what_fails_to_the_last_is_lost_with_a_reason_and_asked_again_next_time() -> None:
    """Which is true of a failing server and of half an answer; nothing of either is stored."""
    bad = {"prompt 1": FAILURES["server error"], "prompt 3": FAILURES["cut body"], "prompt 4": FAILURES["ragged"]}
    with serving(lambda asked: bad.get(asked.prompt, Reply(GOOD))) as seen:
        found = model_at(seen.url, retries=2)
        first = asked_and_stored(found, prompts(6))
        reasons = [answer.unscored for answer in first.scores.answers]
        assert [bool(reason) for reason in reasons] == [False, True, False, True, True, False]
        assert "status 500, at the last of 3 attempts" in reasons[1]
        assert "dropped" in reasons[3]
        assert "pieces missing" in reasons[4]
        assert (first.n_lost, n_stored(found)) == (3, 3)
        assert seen.prompts["prompt 1"] == 3
        bad.clear()
        second = asked_and_stored(found, prompts(6))
    assert second.n_computed == 3
    assert not any(answer.unscored for answer in second.scores.answers)
    assert seen.prompts == {f"prompt {n}": 4 if n in (1, 3, 4) else 1 for n in range(6)}


def test_retry_after_is_honoured_and_waits_grow_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(saying(Reply({}, 429, {"Retry-After": "1"}), GOOD)) as seen:
        answers_of(model_at(seen.url), [prompt()])
    first, second = seen.requests
    assert second.at - first.at > 1.0
    monkeypatch.setattr(http, "FIRST_WAIT_S", 0.1)
    with serving(saying(*[Reply({}, 503)] * 3, GOOD)) as seen:
        answers_of(model_at(seen.url), [prompt()])
    gaps = [later.at - sooner.at for sooner, later in zip(seen.requests, seen.requests[1:], strict=False)]
    assert gaps[0] > 0.07
    assert gaps[2] > 0.29  # 0.4 s, less a quarter at most


def test_a_server_that_asks_for_an_hour_is_not_waited_for() -> None:
    with serving(saying(Reply({}, 429, {"Retry-After": "3600"}))) as seen:
        (lost,) = answers_of(model_at(seen.url), [prompt()]).values()
    assert isinstance(lost, LostError)
    assert len(seen.requests) == 1


def test_a_server_that_never_answers_is_given_up_when_as_many_as_run_at_once_are_lost() -> None:
    with serving(saying(Reply({}, 503))) as seen:
        said = refused(model_at(seen.url, concurrency=4, retries=1), "(127.0.0.1:", "status 503", queries=prompts(40))
    assert said.startswith("4 prompts in a row got no answer")
    assert len(seen.requests) <= 2 * (4 + 3)  # two attempts of those, and of those that took their places


def test_later_twenty_in_a_row_are_lost_before_it_is_given_up() -> None:
    def reply(asked: Asked) -> Reply:
        return Reply(GOOD) if int(asked.prompt.split()[1]) in (0, 15) else Reply({}, 500)

    with serving(reply) as seen:
        found = model_at(seen.url, concurrency=1, retries=0)
        with pytest.raises(UndertowError, match="20 prompts in a row"):
            asked_and_stored(found, prompts(60))
        assert len(seen.requests) == 16 + 20
    assert n_stored(found) == 2


def test_nothing_new_begins_after_a_refusal_and_nobody_waits_for_another_attempt() -> None:
    def reply(asked: Asked) -> Reply:
        if asked.prompt == "prompt 0":
            return Reply({}, 429, {"Retry-After": "30"})
        return Reply({}, 400, after_s=0.3)

    started = time.monotonic()
    with serving(reply) as seen:
        refused(model_at(seen.url, concurrency=2), "status 400", queries=prompts(9))
    assert time.monotonic() - started < 10
    assert seen.prompts == {"prompt 0": 1, "prompt 1": 1}


def test_what_is_under_way_when_the_server_refuses_is_waited_for_and_kept() -> None:
    replies = {"prompt 0": Reply(GOOD, after_s=0.5), "prompt 1": Reply({}, 400, after_s=0.1)}
    with serving(lambda asked: replies[asked.prompt]) as seen:
        found = model_at(seen.url, concurrency=2)
        with pytest.raises(UndertowError, match="status 400"):
            asked_and_stored(found, prompts(2))
    assert n_stored(found) == 1


def test_a_closed_port_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can be there
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        refused(model_at(url, concurrency=2), "cannot be reached", "is the right server", queries=prompts(9))
        model = model_at(url).open()
        with pytest.raises(UndertowError, match=r"the prompt got no answer.*cannot be reached"):
            list(model.answer(prompts(1), EXACT))
    assert model.budget.requests == 3  # and not the six that a server gets which was there before


def test_an_answer_without_log_probabilities_among_others_with_them_is_half_an_answer() -> None:
    none = Reply(GOOD | {"choices": [{"text": "she", "logprobs": None}]})
    with serving(lambda asked: none if asked.prompt == "prompt 1" else Reply(GOOD)) as seen:
        arrived = answers_of(model_at(seen.url, concurrency=1, retries=1), prompts(3))
    assert isinstance(arrived[1], LostError)
    assert isinstance(arrived[2], Answer)


NOTHING: list[dict[str, Any]] = [
    {},
    {"text": None, "logprobs": None, "finish_reason": None},
    {"text": "", "finish_reason": "tool_calls"},
    {"message": {"role": "assistant", "content": None}, "logprobs": {"content": None}},
]


@pytest.mark.parametrize("choice", NOTHING)
def test_a_response_with_nothing_in_it_is_half_an_answer(choice: dict[str, Any]) -> None:
    nothing = {"choices": [choice]}
    with serving(saying(nothing, GOOD)) as seen:
        (answer,) = answers_of(model_at(seen.url), [prompt()]).values()
    assert math.exp(answer.logprobs_nats[0]) == pytest.approx(0.5)
    with serving(lambda asked: Reply(nothing if asked.prompt == "prompt 1" else GOOD)) as seen:
        found = model_at(seen.url, retries=2)
        asked = asked_and_stored(found, prompts(3))
        assert seen.prompts["prompt 1"] == 3
    assert "a response with nothing in it, at the last of 3 attempts" in asked.scores.answers[1].unscored
    assert (asked.n_lost, n_stored(found)) == (1, 2)


@pytest.mark.parametrize("choice", NOTHING)
def test_nothing_is_an_empty_answer_where_the_model_stopped(choice: dict[str, Any]) -> None:
    with serving(saying({"choices": [choice | {"finish_reason": "stop"}]})) as seen:
        (answer,) = answers_of(model_at(seen.url), [prompt()]).values()
    assert "the answer is empty" in answer.unscored
    assert len(seen.requests) == 1


def test_a_model_that_spent_its_tokens_before_it_wrote_is_unscored_for_that() -> None:
    """Whether the server lists what it thought or not: that is no answer."""
    thought = chat_completion([("She", {"She": 0.9, "she": 0.05}), (" or", {" or": 0.8, " he": 0.1})])
    thought["choices"][0]["message"]["content"] = None
    silent = {"choices": [{"message": {"content": None}, "logprobs": None, "finish_reason": "length"}]}
    for body in (thought, silent):
        with serving(saying(body)) as seen:
            found = model_at(seen.url)
            asked = asked_and_stored(found, [prompt(chat=True)])
            asked_and_stored(found, [prompt(chat=True)])
        assert "spent all its tokens before it wrote any" in asked.scores.answers[0].unscored
        assert asked.n_lost == 0
        assert len(seen.requests) == 1


# Servers that show what was sampled.

SURE = completion([(" she", {" she": 1.0}), (" was", {" was": 1 - 1e-7, " is": 1e-8})])
"""As after sampling at temperature 0, or as of a model that is sure."""


@pytest.mark.parametrize("protocol", [EXACT, PAPER])
@pytest.mark.parametrize("shape", [legacy, completion])
def test_an_answer_that_shows_nothing_but_what_was_chosen_is_lost(
    shape: Callable[..., dict[str, Any]], protocol: str
) -> None:
    one_hot = shape([(" she", {" she": 1.0}), (" was", {" was": 1.0})])
    with serving(saying(one_hot)) as seen:
        found = model_at(seen.url)
        asked = asked_and_stored(found, prompts(1), protocol)
        assert (asked.n_lost, asked.n_computed) == (1, 0)
        assert "shows only the token that it chose" in asked.scores.answers[0].unscored
        asked_and_stored(found, prompts(1), protocol)
    assert len(seen.requests) == 2


@pytest.mark.parametrize("hidden_nats", [-9999.0, -math.inf])
def test_tokens_that_cannot_be_are_nothing_else(hidden_nats: float) -> None:
    body = completion([(" she", {" she": 1.0}), (" was", {" was": 1.0})])
    for step in body["choices"][0]["logprobs"]["content"]:
        step["top_logprobs"] += [{"token": f" {number}", "logprob": hidden_nats} for number in range(19)]
    with serving(saying(body)) as seen:
        (lost,) = answers_of(model_at(seen.url), prompts(1)).values()
    assert isinstance(lost, LostError)


@pytest.mark.parametrize(("n_prompts", "n_asked"), [(9, 9), (60, 20)])
def test_a_server_that_goes_on_so_ends_the_run_in_one_sentence(n_prompts: int, n_asked: int) -> None:
    with serving(saying(SURE)) as seen:
        found = model_at(seen.url, concurrency=1)
        with pytest.raises(UndertowError, match="shows only the token that it chose") as caught:
            asked_and_stored(found, prompts(n_prompts))
        assert len(seen.requests) == n_asked
    assert "before sampling (vLLM: --logprobs-mode raw_logprobs)" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert n_stored(found) == 0


@pytest.mark.parametrize("place", [0, 4])
def test_a_server_that_shows_more_elsewhere_is_believed_of_a_model_that_is_sure(place: int) -> None:
    """Answers that came before are kept back until then, and none is asked for again."""
    with serving(lambda asked: Reply(GOOD if asked.prompt == f"prompt {place}" else SURE)) as seen:
        found = model_at(seen.url, concurrency=1)
        asked = asked_and_stored(found, prompts(6))
        assert len(seen.requests) == 6
    assert (asked.n_lost, n_stored(found)) == (0, 6)
    assert math.exp(asked.scores.answers[5].logprobs_nats[0]) == pytest.approx(1.0)


def test_one_sure_step_is_an_answer_and_shows_nothing_else() -> None:
    one = completion([(" she", {" she": 1.0})])
    with serving(lambda asked: Reply(one if asked.prompt == "prompt 0" else SURE)) as seen:
        arrived = answers_of(model_at(seen.url, concurrency=1), prompts(2))
    assert isinstance(arrived[0], Answer)
    assert isinstance(arrived[1], LostError)


# Budgets, and being stopped.


@pytest.mark.parametrize("failing", [0, 1])
def test_the_budget_of_requests_counts_every_attempt_and_keeps_the_answers(failing: int) -> None:
    with serving(saying(*[Reply({}, 500)] * failing, GOOD)) as seen:
        found = model_at(seen.url, max_requests=6, concurrency=4)
        with pytest.raises(UndertowError, match="the budget of 6 requests is spent; answers so far are kept"):
            asked_and_stored(found, prompts(20))
        assert len(seen.requests) == 6
        good = sum(asked.attempt > failing for asked in seen.requests)
        assert n_stored(found) == good > 0
        # It is the run's, not that of one asking.
        with pytest.raises(UndertowError, match="--max-requests"):
            asked_and_stored(found, prompts(20))
        assert len(seen.requests) == 6
        asked_and_stored(model_at(seen.url), prompts(20))
    assert sum(asked.attempt > failing for asked in seen.requests) == 20


def test_the_budget_of_tokens_is_what_the_server_counts() -> None:
    with serving(saying(GOOD)) as seen:  # which counts 25 for each
        found = model_at(seen.url, max_api_tokens=100, concurrency=1)
        with pytest.raises(UndertowError, match=r"the budget of 100 API tokens is spent.*--max-api-tokens"):
            asked_and_stored(found, prompts(20))
        assert len(seen.requests) == 4
    uncounted = {name: value for name, value in GOOD.items() if name != "usage"}
    with serving(saying(uncounted)) as seen:  # two tokens of prompt and four of answer, estimated
        found = model_at(seen.url, max_api_tokens=30, concurrency=1)
        with pytest.raises(UndertowError, match="30 API tokens"):
            asked_and_stored(found, prompts(20))
        assert len(seen.requests) == 5


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -20, "completion_tokens": 5},
        {"prompt_tokens": 5, "completion_tokens": -1000},
        {"prompt_tokens": True, "completion_tokens": False},
        {"prompt_tokens": "20", "completion_tokens": None},
    ],
)
def test_counts_that_cannot_be_are_estimated_and_give_nothing_back(usage: dict[str, Any]) -> None:
    with serving(saying(GOOD | {"usage": usage})) as seen:
        found = model_at(seen.url, max_api_tokens=30, concurrency=1)
        with pytest.raises(UndertowError, match="30 API tokens"):
            asked_and_stored(found, prompts(20))
        assert len(seen.requests) == 5  # two tokens of prompt and four of answer each


def test_prompts_that_are_not_latin_are_estimated_by_their_bytes() -> None:
    """Four letters, of three bytes each: three tokens and the four of the answer."""
    with AnswerStore(store_file()) as store:
        told = estimate(model_at("http://127.0.0.1:9/v1"), [prompt("\u5973\u5b69\u5b50\u3002")], store, EXACT)
    assert told.n_tokens == 3 + 4


ASKING = """
import sys
from undertow.models.base import Request
from undertow.models.openai import find
from undertow.places import store_file
from undertow.scoring.ask import ask
from undertow.scoring.store import AnswerStore
from undertow.types import Generation, Option
found = find(Request("openai:some-model", settings={"base_url": sys.argv[1], "retries": 0, "concurrency": 2}))
options = (Option("f", ("she",)), Option("m", ("he",)))
queries = [Generation(f"prompt {n}", options) for n in range(9)]
with AnswerStore(store_file()) as store:
    ask(found, queries, store, "exact", lambda done, total: None)
"""


def asking(url: str) -> subprocess.Popen[str]:
    """A process of its own that asks a server nine prompts, two at a time."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", ASKING, url], stdout=pipe, stderr=pipe, text=True)


def test_ctrl_c_ends_at_once_in_the_middle_of_requests() -> None:
    """The server would take a minute; the answers that arrived before are stored, and no thread is waited for."""
    done = [f"prompt {n}" for n in range(4)]
    with serving(lambda asked: Reply(GOOD, after_s=0.0 if asked.prompt in done else 60.0)) as seen:
        process = asking(seen.url)
        arrived_in_time(seen, 6)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        _, complained = process.communicate(timeout=30)
        assert time.monotonic() - started < 3.0
        assert process.returncode != 0
        assert complained.rstrip().endswith("KeyboardInterrupt")
    assert n_stored_anywhere() == 4


def test_a_kill_loses_what_was_under_way_and_nothing_else() -> None:
    done = [f"prompt {n}" for n in range(5)]
    with serving(lambda asked: Reply(GOOD, after_s=0.0 if asked.prompt in done else 60.0)) as seen:
        process = asking(seen.url)
        arrived_in_time(seen, 7)
        process.kill()
        process.communicate(timeout=30)
        assert n_stored_anywhere() == 5
        found = model_at(seen.url, concurrency=2, retries=0)
        queries = [Generation(f"prompt {n}", (Option("f", ("she",)), Option("m", ("he",)))) for n in range(5)]
        asked = asked_and_stored(found, queries)
    assert asked.n_computed == 0
    assert len(seen.requests) == 7


def arrived_in_time(seen: Seen, n: int) -> None:
    """Wait until so many requests are there, and a moment for the answers before them to be stored."""
    until = time.monotonic() + 30
    while len(seen.requests) < n and time.monotonic() < until:
        time.sleep(0.02)
    assert len(seen.requests) == n
    time.sleep(0.3)


def n_stored_anywhere() -> int:
    with AnswerStore(store_file()) as store:
        return sum(shelf.n_answers for shelf in store.shelves())


# The real server.

VISIBLE_PROB = 0.01
NOISE_NATS = (0.02, 0.3)
"""How far 8-bit activations may move log-probabilities above `VISIBLE_PROB`, as a root mean square.

llama.cpp's matrix products round activations in blocks of 32 to steps of max/127, so by max/440, which is near 0.7% of a
typical one. Over 30 layers of 7 products, each adding a part of the residual stream, independent errors grow to between
2% and 10% of the final state, and logits that spread over 3 nats move by 0.06 to 0.3; half of that may cancel between a
token and its rivals. The direction is chance, so the same rounding in our own network gives the size and not the
numbers: it is measured there, without the server, and the server is held to it.
"""
MOST_OF_MANY = 5.0
"""The largest of some hundred such differences, in root mean squares. A step read one place off, a spelling forgotten or
a logarithm to another base is several nats."""
WORDS = ("she", "he", "they", "She", "He", "They", "her", "him")
WORD_OPTIONS = tuple(Option(word, (word,)) for word in WORDS)
REAL = [
    (PAPER_B, False),
    ("In 1953, Mary was a teenager. After school,", False),
    ("Fill in the blank with she or he: 'In 1953, ___ was a teenager.' The blank is", False),
    (PAPER_B, True),
    ("Complete the sentence with one word, she or he: 'In 1953, ___ was a teenager.'", True),
    ("Answer with one word, she or he. In 1953, ___ was a teenager.", True),
]
"""Prompts, and whether in chat; at some step of all but the paper's own, a pronoun has more than 1%."""


def real_prompts() -> list[Generation]:
    return [Generation(text, WORD_OPTIONS, max_tokens=6, chat=chat) for text, chat in REAL]


def real_at(url: str, **settings: str | int | float | bool) -> Found:
    given: dict[str, str | int | float | bool] = {"base_url": url, "concurrency": SLOTS}
    found = find(Request(f"openai:{MODEL}", settings=given | settings))
    assert found is not None
    return found


def raw_answer(url: str, asked: Generation) -> dict[str, Any]:
    """The server's own words, with the numbers of its tokens, past everything under test."""
    body: dict[str, Any] = {"model": MODEL, "max_tokens": asked.max_tokens, "temperature": 0, "seed": 0}
    if asked.chat:
        body |= {"messages": [{"role": "user", "content": asked.prompt}], "logprobs": True, "top_logprobs": 20}
    else:
        body |= {"prompt": asked.prompt, "logprobs": 20}
    path = "/chat/completions" if asked.chat else "/completions"
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        read: dict[str, Any] = json.load(response)
    return read


def prompt_tokens(tokenizer: Any, asked: Generation) -> list[int]:
    if not asked.chat:
        return list(tokenizer(asked.prompt)["input_ids"])
    messages = [{"role": "user", "content": asked.prompt}]
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"])


def own_probs(model: Any, asked: Generation, written: list[int]) -> list[Any]:
    """The whole distribution at each step of what the server wrote, by the plainest means [step][token]."""
    import torch

    before = prompt_tokens(model.tokenizer, asked)
    with torch.inference_mode():
        logits = model.network(torch.tensor([before + written])).logits[0].double()
    return list(logits.softmax(-1)[len(before) - 1 : -1])


def tokens_of(tokenizer: Any, word: str) -> list[int]:
    spelled = [tokenizer.convert_tokens_to_ids(token) for token in (word, f"\u0120{word}")]
    assert [tokenizer.decode([token]).strip() for token in spelled] == [word, word]
    return spelled


def rounded_to_8_bits(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The input of a matrix product as llama.cpp has it: whole numbers up to 127, and one scale for 32 of them."""
    blocks = inputs[0].unflatten(-1, (-1, 32))
    scale = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 127
    return ((blocks / scale).round().mul(scale).flatten(-2),)


@dataclass(frozen=True)
class Compared:
    """A prompt, what the server said in its own words, and our network's distributions of the same steps [step][token]."""

    asked: Generation
    raw: dict[str, Any]
    own: list[Any]
    rounded: list[Any]
    tokenizer: Any

    @property
    def content(self) -> list[dict[str, Any]]:
        content: list[dict[str, Any]] = self.raw["choices"][0]["logprobs"]["content"]
        return content

    def own_prob(self, step: int, word: str) -> float:
        return float(self.own[step][tokens_of(self.tokenizer, word)].sum())

    def differences(self) -> tuple[list[float], list[float]]:
        """Of the server, and of our own rounding, from our network: in nats, for each visible token that was shown."""
        pairs = [
            (shown["logprob"] - math.log(own[shown["id"]]), math.log(rounded[shown["id"]] / own[shown["id"]]))
            for step, own, rounded in zip(self.content, self.own, self.rounded, strict=True)
            for shown in step["top_logprobs"]
            if own[shown["id"]] > VISIBLE_PROB
        ]
        return [server for server, _ in pairs], [noise for _, noise in pairs]


def rms(values: Sequence[float]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values))


@pytest.fixture(scope="session")
def compared(llama_server: str, smollm2: Any) -> list[Compared]:  # noqa: F811
    import torch

    rows = []
    for asked in real_prompts():
        raw = raw_answer(llama_server, asked)
        assert raw["usage"]["prompt_tokens"] == len(prompt_tokens(smollm2.tokenizer, asked))
        written = [step["id"] for step in raw["choices"][0]["logprobs"]["content"]]
        own = own_probs(smollm2, asked, written)
        products = [part for part in smollm2.network.modules() if isinstance(part, torch.nn.Linear)]
        hooks = [part.register_forward_pre_hook(rounded_to_8_bits) for part in products]
        try:
            rounded = own_probs(smollm2, asked, written)
        finally:
            for hook in hooks:
                hook.remove()
        rows.append(Compared(asked, raw, own, rounded, smollm2.tokenizer))
    return rows


@pytest.fixture(scope="session")
def noise_nats(compared: list[Compared]) -> float:
    """What rounding alone does to our own network's log-probabilities, on these prompts."""
    noise = rms([difference for row in compared for difference in row.differences()[1]])
    assert NOISE_NATS[0] < noise < NOISE_NATS[1]
    return noise


@pytest.mark.model
@pytest.mark.slow
def test_the_real_server_differs_from_our_own_network_as_rounding_does(
    compared: list[Compared], noise_nats: float
) -> None:
    differences = [difference for row in compared for difference in row.differences()[0]]
    assert len(differences) > 100
    assert rms(differences) < 1.5 * noise_nats
    assert max(map(abs, differences)) < MOST_OF_MANY * noise_nats


@pytest.mark.model
@pytest.mark.slow
def test_every_step_of_the_real_server_agrees_with_our_own_reading(compared: list[Compared], noise_nats: float) -> None:
    """Pronouns above 1% agree by their numbers; below, what was shown and what may be hidden hold what there is."""
    most = MOST_OF_MANY * noise_nats
    tail_prob = VISIBLE_PROB * math.expm1(most)
    n_visible = n_tail = 0
    for row in compared:
        choice = answer_in(row.raw)
        steps = without_end(shown_of(choice), text_of(choice), choice["finish_reason"])
        assert "".join(step.token for step in steps).strip() == text_of(choice).strip()
        for place, shown in enumerate(steps):
            step = step_of(shown, Wanted(WORDS, 20, EXACT))
            for word, prob, n_seen in zip(WORDS, step.probs, step.n_seen, strict=True):
                expected = row.own_prob(place, word)
                hidden = min((2 - n_seen) * step.least_prob, step.unseen_prob)
                if expected > VISIBLE_PROB:
                    assert prob * math.exp(-most) < expected < (prob + hidden) * math.exp(most)
                    n_visible += 1
                else:
                    assert prob - tail_prob < expected < prob + hidden + tail_prob
                    n_tail += 1
    assert n_visible >= 15
    assert n_tail >= 100


@pytest.mark.model
@pytest.mark.slow
def test_answers_of_the_real_server_through_the_store(
    compared: list[Compared],
    noise_nats: float,
    llama_server: str,  # noqa: F811
) -> None:
    """The steps that count, chosen by hand, have in our own network what the answers say."""
    asked = asked_and_stored(real_at(llama_server), [row.asked for row in compared])
    assert asked.n_lost == 0
    n_visible = 0
    for answer, row in zip(asked.scores.answers, compared, strict=True):
        assert answer.text == text_of(answer_in(row.raw))
        written = [step["token"].strip() for step in row.content if step["token"]]
        said = [place for place, token in enumerate(written) if token in WORDS]
        counted = said if len(said) == 1 else range(len(written))
        for place, word in enumerate(WORDS):
            expected = sum(row.own_prob(step, word) for step in counted) / len(counted)
            if expected > VISIBLE_PROB:
                within = MOST_OF_MANY * noise_nats
                assert answer.logprobs_nats[place] == pytest.approx(math.log(expected), abs=within)
                n_visible += 1
    assert n_visible >= 8
    assert any("served as smollm2" in note for note in asked.notes)


PLAN_SEED = 26  # by which every fault happens, one prompt is never answered, and all others are in the end
RETRIES = 3


@pytest.mark.soak
@pytest.mark.model
@pytest.mark.slow
def test_the_real_server_behind_a_faulty_proxy(
    compared: list[Compared],
    noise_nats: float,
    llama_server: str,  # noqa: F811
) -> None:
    """Every prompt is answered, as without faults, or lost with a reason; a second pass asks for the lost ones only."""
    queries = [row.asked for row in compared]
    hopeless = queries[1].prompt
    plan = Plan(PLAN_SEED, 0.4, frozenset({hopeless}))
    straight = asked_and_stored(real_at(llama_server), queries).scores.answers
    with faulty_proxy(llama_server, plan) as seen:
        found = real_at(seen.url, timeout_s=6.0, retries=RETRIES)
        first = asked_and_stored(found, queries)
        happened = {plan.fault(asked.prompt, asked.attempt) for asked in seen.requests}
        assert happened == {"", *FAULTS}
        assert first.n_lost == 1
        assert f"at the last of {RETRIES + 1} attempts" in first.scores.answers[1].unscored
        seen.requests.clear()
        plan.share, plan.hopeless = 0.0, frozenset()
        second = asked_and_stored(found, queries)
    assert set(seen.prompts) == {hopeless}
    assert (second.n_lost, second.n_computed) == (0, 1)
    for answer, expected in zip(second.scores.answers, straight, strict=True):
        assert answer.text == expected.text
        for one, other in zip(answer.logprobs_nats, expected.logprobs_nats, strict=True):
            if other > math.log(VISIBLE_PROB):
                assert one == pytest.approx(other, abs=MOST_OF_MANY * noise_nats)
