"""Prompts to models behind a server: what is asked, how every shape of response is read, and what happens when servers fail.

Quick tests talk to a scripted server over real sockets; those marked `model` to llama.cpp's server with the default model.
"""

from __future__ import annotations

import json
import math
import secrets
import signal
import sys
import traceback
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.answering import n_stored
from helpers.command_line import started
from helpers.faulty_proxy import GUARD_S, NEVER_S, Asked, Reply, serving, wait_until
from helpers.sampled_cases import briefly
from helpers.served_models import (
    MODEL,
    answer_to,
    answers_of,
    llama_server,  # noqa: F401  # a fixture
    model_at,
    one_sentence,
    probs,
    quick,  # noqa: F401  # a fixture
    real_at,
    refusal,
    saying,
    stored,
)
from undertow.errors import UndertowError
from undertow.models import registry
from undertow.models.base import ModelRequest, UnsupportedQueryError
from undertow.models.families.openai import resolve
from undertow.models.openai import client as http
from undertow.report.formatting import at_revision
from undertow.types import EXACT, PAPER, TEXT, Answer, GenerateQuery, Option

pytest.importorskip("openai", reason="the api extra is not installed")

OPTIONS = (Option("female", ("she",)), Option("male", ("he",)), Option("neutral", ("they",)))
XE = (Option("neo", ("xe",)), Option("neo", ("xyr",)), Option("female", ("she",)))
PAPER_B = "The gendered pronoun missing in this sentence: 'In 1953, <mask> was a teenager.', is"
SHE = {"she": 0.41, "he": 0.33, " she": 0.05, "the": 0.02}
"""The step of the module's own example: 0.19 is not shown, and no token of it is above 0.02; "the" may begin *they*."""


def prompt(text: str = PAPER_B, *, chat: bool = False, options: tuple[Option, ...] = OPTIONS) -> GenerateQuery:
    return GenerateQuery(text, options, max_tokens=4, chat=chat)


def prompts(n: int) -> list[GenerateQuery]:
    return [prompt(f"prompt {number}") for number in range(n)]


Steps = Sequence[tuple[str, Mapping[str, float]]]


def legacy(steps: Steps, text: str | None = None, finish: str = "length") -> dict[str, Any]:
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


def completion(steps: Steps, text: str | None = None, finish: str = "length") -> dict[str, Any]:
    def entry(token: str, prob: float) -> dict[str, Any]:
        return {"token": token, "logprob": math.log(prob), "bytes": list(token.encode())}

    content = [
        entry(token, top[token]) | {"top_logprobs": [entry(other, prob) for other, prob in top.items()]}
        for token, top in steps
    ]
    body = legacy(steps, text, finish)
    body["choices"][0]["logprobs"] = {"content": content, "refusal": None}
    return body


def chat_completion(steps: Steps, text: str | None = None, finish: str = "length") -> dict[str, Any]:
    body = completion(steps, text, finish)
    choice = body["choices"][0]
    choice["message"] = {"role": "assistant", "content": choice.pop("text"), "refusal": None}
    return body | {"object": "chat.completion", "system_fingerprint": "fp_1234"}


def error(status: int, message: str = "", **more: str) -> Reply:
    return Reply({"error": {"message": message, "type": "some_error"} | more}, status)


def with_choice(choice: Any) -> dict[str, Any]:
    return GOOD | {"choices": [choice]}


GOOD = legacy([(" she", {" she": 0.5, " he": 0.25, " the": 0.05, " a": 0.03, " it": 0.02})])


def request_body(asked: GenerateQuery, model: str) -> dict[str, Any]:
    common = {"model": model, "max_tokens": asked.max_tokens, "temperature": 0, "seed": 0}
    if not asked.chat:
        return common | {"prompt": asked.prompt, "logprobs": 20}
    messages = [{"role": "user", "content": asked.prompt}]
    return common | {"messages": messages, "logprobs": True, "top_logprobs": 20}


@pytest.mark.parametrize(("chat", "key"), [(False, ""), (True, "sk-of-a-test")])
def test_request_of_each_endpoint(monkeypatch: pytest.MonkeyPatch, *, chat: bool, key: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with serving(saying(chat_completion([("she", SHE)]) if chat else GOOD)) as seen:
        answers_of(model_at(seen.url), [prompt(chat=chat)])
    (asked,) = seen.requests
    assert asked.path == ("/v1/chat/completions" if chat else "/v1/completions")
    assert asked.body == request_body(prompt(chat=chat), "some-model")
    assert asked.headers.get("authorization") == (f"Bearer {key}" if key else None)


def test_concurrency_is_kept_and_answers_are_yielded_as_they_arrive() -> None:
    def reply(asked: Asked) -> Reply:
        if int(asked.prompt.split()[1]) < 3:
            wait_until(lambda: seen.most_at_once == 3)
        if asked.prompt == "prompt 0":
            wait_until(lambda: len(seen.requests) == 12)
        return Reply(GOOD)

    with serving(reply) as seen:
        arrived = model_at(seen.url, concurrency=3).open().answer(prompts(12), EXACT)
        places = [place for some in arrived for place in some]
    assert sorted(places) == list(range(12))
    assert places.index(0) >= 9  # as the last request was sent, two others may have been under way
    assert seen.most_at_once == 3


def fields(*names: str) -> dict[str, Any]:
    """Refused fields as FastAPI lists them."""
    return {"detail": [{"type": "extra_forbidden", "loc": ["body", name], "msg": "not permitted"} for name in names]}


@pytest.mark.parametrize(
    ("refuse", "n_steps"),  # OpenAI, Mistral, FastAPI, Gemini, and xAI, which name one or all of them
    [
        (lambda names: error(400, f"Unsupported parameter: '{names[0]}'", param=names[0]), 3),
        (lambda names: Reply({"object": "error", "message": fields(*names), "param": None}, 422), 1),
        (lambda names: Reply(fields(*names), 422), 1),
        (lambda names: Reply([{"error": {"code": 400, "message": f'Unknown name "{names[0]}"'}}], 400), 3),
        (lambda names: Reply({"error": f"`{names[0]}` is not supported on this model"}, 400), 3),
    ],
)
def test_refused_parameter_is_renamed_or_left_out(refuse: Callable[[list[str]], Reply], n_steps: int) -> None:
    def reply(asked: Asked) -> Reply:
        named = [name for name in ("max_tokens", "seed", "temperature") if name in asked.body]
        return refuse(named) if named else Reply(chat_completion([("she", SHE)]))

    queries = [prompt(f"prompt {number}", chat=True) for number in range(12)]
    with serving(reply) as seen:
        model = model_at(seen.url, retries=0).open()
        answers = [answer for some in model.answer(queries, TEXT) for answer in some.values()]
        assert [isinstance(answer, Answer) for answer in answers] == [True] * 12
        assert seen.requests[-1].body["max_completion_tokens"] == 4
        assert len(seen.requests) <= 12 + n_steps * 8  # what was under way when it was learnt, and no more
        assert any("not at temperature 0" in note for note in model.notes)
        if n_steps > 1:  # steps of an answer are those of the most probable one
            refusal(model_at(seen.url, retries=0), queries, "temperature")


SHAPES = [(legacy, False), (completion, False), (chat_completion, True)]
Shape = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(("shape", "chat"), SHAPES)
def test_step_by_hand_with_what_was_not_shown(shape: Shape, *, chat: bool) -> None:
    """Of *she* both spellings were seen, of *he* one, of *they* none: 0, 1 and 2 times 0.02 may be hidden.

    And "the", with 0.02, may be the first token of *they*. A number like -9999 says that a token is not shown.
    """
    body = shape([("she", SHE)])
    if chat:
        body["choices"][0]["logprobs"]["content"][0]["top_logprobs"].append({"token": "they", "logprob": -9999.0})
    answer = answer_to(prompt(chat=chat), body, top_logprobs=4)
    assert probs(answer) == pytest.approx([0.46, 0.33, 0.0])
    assert answer.upper_bound_prob == pytest.approx((0.0, 0.02, 0.06))
    assert answer.truncated_prob == pytest.approx(0.19 + 0.02)
    assert answer.other_prob == pytest.approx(1 - 0.79)
    assert answer.text == "she"


@pytest.mark.parametrize(("shape", "chat"), SHAPES)
def test_protocol_paper_reads_the_five_most_probable_tokens_alone(shape: Shape, *, chat: bool) -> None:
    top = {"they": 0.05, "she": 0.4, "a": 0.2, "the": 0.1, "it": 0.08, "he": 0.06}
    answer = answer_to(prompt(chat=chat), shape([("she", top)]), PAPER)
    assert probs(answer) == pytest.approx([0.4, 0.06, 0.0])
    assert answer.logprobs_nats[2] == -math.inf
    assert (answer.upper_bound_prob, answer.truncated_prob) == ((), 0.0)


@pytest.mark.parametrize(
    ("end", "text", "prob"),  # an empty token, a special one, and a real one, which is kept
    [("", "Well", 0.25), ("<|im_end|>", "Well", 0.25), (".\n", "Well.", 0.15)],
)
def test_token_that_ends_an_answer_is_no_step(end: str, text: str, prob: float) -> None:
    steps = [("Well", {"Well": 0.5, "she": 0.25}), (end, {end: 0.9, "she": 0.05})]
    answer = answer_to(prompt(chat=True), chat_completion(steps, text=text, finish="stop"))
    assert probs(answer)[0] == pytest.approx(prob)


NULL = {"choices": [{"text": None, "logprobs": None, "finish_reason": "stop"}]}


@pytest.mark.parametrize("body", [completion([("", {"": 0.9, "she": 0.1})], "", "stop"), legacy([], "", "stop"), NULL])
def test_answer_that_ends_before_its_first_word_is_missing(body: dict[str, Any]) -> None:
    assert "empty" in answer_to(prompt(), body).missing_reason


def test_decoded_token_outside_the_most_probable_ones_is_added_and_bounds_nothing() -> None:
    """Between it and the last of the most probable, others may be hidden: the bound stays that of the last one."""
    body = completion([("she", {"of": 0.5, "a": 0.3, "she": 0.04})])
    step = body["choices"][0]["logprobs"]["content"][0]
    step["top_logprobs"] = step["top_logprobs"][:2]
    for given in (body, legacy([("she", {"of": 0.5, "a": 0.3, "she": 0.04})])):
        answer = answer_to(prompt(), given, top_logprobs=2)
        assert probs(answer)[0] == pytest.approx(0.04)
        assert answer.truncated_prob == pytest.approx(0.16)
        assert answer.upper_bound_prob == pytest.approx((0.16, 0.16, 0.16))  # two tokens up to 0.3 each, 0.16 in all


def test_rounded_numbers_never_say_that_nothing_is_hidden() -> None:
    answer = answer_to(prompt(), completion([("she", {"she": 0.9999999, " a": 0.0000004})]))
    assert all(0 < ceiling <= 1e-6 for ceiling in answer.upper_bound_prob)


def test_shown_token_may_be_the_first_of_several_of_a_word() -> None:
    """The ceilings by hand: what is hidden, and " x" and "xy"; *she* was shown whole, so "s" is no piece of it."""
    top = {" x": 0.2, "xy": 0.1, " she": 0.3, "s": 0.05, " ": 0.04, "shed": 0.03, "Xe": 0.02}  # 0.26 is hidden
    answer = answer_to(prompt(options=XE), completion([(" she", top)]))
    assert probs(answer) == pytest.approx([0.0, 0.0, 0.3])
    assert answer.upper_bound_prob == pytest.approx((0.04 + 0.2, 0.04 + 0.2 + 0.1, 0.02))
    assert answer.truncated_prob == pytest.approx(0.26 + 0.2 + 0.1)


def replying(replies: Mapping[str, dict[str, Any]]) -> Callable[[Asked], Reply]:
    return lambda asked: Reply(replies[asked.prompt])


HE_HER = (Option("female", ("Her",)), Option("male", ("He",)))
HE, SHE_ALONE = {"He": 0.8, "She": 0.1, "I": 0.01}, {"She": 0.8, "He": 0.15, "I": 0.01}
""".09 and .04 are hidden, no token of them above .01."""


def test_word_that_may_begin_another_of_its_group_is_sure_for_the_group() -> None:
    words = (("female", "her"), ("female", "herself"), ("male", "him"), ("male", "himself"))
    options = tuple(Option(group, (word,)) for group, word in words)
    body = chat_completion([("her", {"her": 0.3, "him": 0.2, "the": 0.45})])
    with serving(saying(body)) as seen:
        (answer,) = stored(model_at(seen.url), [prompt(chat=True, options=options)]).scores.answers
    assert probs(answer) == pytest.approx([0.3, 0, 0.2, 0])


@pytest.mark.parametrize(
    ("steps", "finish", "he", "shared"),
    [
        ([("He", HE)], "length", 0.0, 0.8),  # nothing is known of what goes on
        ([("He", HE)], "stop", 0.4, 0.4),  # the end was at least as probable as "r"
        ([("He", HE), ("", {"": 0.9, "r": 0.05})], "stop", 0.76, 0.04),
        ([("He", HE), (".", {".": 0.7, "!": 0.2})], "length", 0.72, 0.08),  # 0.1 is hidden
        ([("She", SHE_ALONE), (".", {".": 0.7, "!": 0.2})], "length", 0.0, 0.15 / 2),  # of two steps
    ],
)
def test_word_that_may_begin_another_is_sure_only_as_far_as_the_next_step_tells(
    steps: Steps, finish: str, he: float, shared: float
) -> None:
    """Bounds by hand of *He*, which is one token, and of *Her*, whose tokens are not known before an answer shows it as one."""
    body = chat_completion(steps, finish=finish)
    whole = chat_completion([("Her", {"Her": 0.5, "I": 0.2})])
    queries = [prompt(text, chat=True, options=HE_HER) for text in ("prompt 0", "prompt 1")]
    for known in (False, True):
        replies = {"prompt 0": body, "prompt 1": whole if known else body}
        with serving(replying(replies)) as seen:
            answer = stored(model_at(seen.url, concurrency=1), queries).scores.answers[0]
        sure, hidden = (he, shared) if not known else (he + shared, 0.0)
        assert probs(answer)[1] == pytest.approx(sure)
        assert probs(answer)[0] == 0.0
        least = 0.02 if len(steps) == 1 or steps[0][0] == "He" else (0.02 + 0.1) / 2
        assert answer.upper_bound_prob[0] == pytest.approx(least + hidden)


@pytest.mark.parametrize(
    ("shape", "asked_for", "ceilings"),
    [(legacy, 5, (0.25,) * 3), (legacy, 4, (0.0, 0.05, 0.1)), (completion, 5, (0.0, 0.05, 0.1))],
)
def test_tokens_of_equal_text_that_became_one_leave_every_ceiling_open(
    shape: Shape, asked_for: int, ceilings: tuple[float, ...]
) -> None:
    """Fewer than were asked for came back by text, so one is lost, and may be any word's with all that is not shown."""
    given = {"she": 0.4, " she": 0.2, "he": 0.1, "a": 0.05}
    answer = answer_to(prompt(), shape([("she", given)]), top_logprobs=asked_for)
    assert answer.upper_bound_prob == pytest.approx(ceilings)
    assert answer.truncated_prob == pytest.approx(0.25)


def test_space_that_a_server_strips_from_its_tokens_is_that_of_the_text() -> None:
    """Without it "was" and "she" would be pieces of a longer word, and no step would be the pronoun's."""
    steps = [("was", {"was": 0.6, "he": 0.1}), ("she", {"she": 0.5, "he": 0.2}), (".", {".": 0.8, "he": 0.05})]
    for body, prob in (
        (completion(steps, "was she."), 0.5),
        (completion([*steps, ("</s>", {"</s>": 0.9})], "was she.", "stop"), 0.5),
        (completion(steps, "wasshe."), 0.5 / 3),
    ):
        assert probs(answer_to(prompt(), body))[0] == pytest.approx(prob)


WORD, DOT = ("She", {"She": 0.6, "He": 0.25}), (".", {".": 0.9, "He": 0.05})
THOUGHT = [("Hmm", {"Hmm": 0.9}), (" he", {" he": 0.7, " she": 0.2}), ("</think>", {"</think>": 0.9})]
NUMBERED = chat_completion([("token_id:7941", {"token_id:7941": 0.6, "token_id:1": 0.25})], "She")
CAPITALS = (Option("female", ("She",)), Option("male", ("He",)))


@pytest.mark.parametrize(
    ("steps", "text", "words"),
    [
        ([WORD], "She.", ""),  # only the first tokens are shown
        ([WORD], "She was.", ""),
        ([WORD], "She or He.", "first tokens only"),
        ([WORD], "Shelf", "first tokens only"),
        ([("The", {"The": 0.9})], "The word is She.", "first tokens only"),
        ([("<s>", {"<s>": 0.9}), WORD], "She", ""),
        ([("<s>", {"<s>": 0.9}), ("<b>", {"<b>": 0.9}), WORD, ("</b>", {"</b>": 0.9})], "<b>She</b>", ""),
        ([*THOUGHT, WORD], "She", "other tokens"),
        ([*THOUGHT, ("Someone", {"Someone": 0.9})], "Someone", "other tokens"),
        ([("bytes:\\x53\\x68\\x65", {"bytes:\\x53\\x68\\x65": 0.6, "bytes:He": 0.1}), DOT], "She.", ""),
        ([WORD, ("\N{REPLACEMENT CHARACTER}", {"\N{REPLACEMENT CHARACTER}": 0.9})], "She \N{SNOWMAN}", ""),
    ],
)
def test_answer_is_read_only_in_tokens_that_spell_it(steps: Steps, text: str, words: str) -> None:
    for shape, chat in SHAPES:
        good, body = shape([WORD], finish="stop"), shape(steps, text, "stop")
        queries = [prompt(name, chat=chat, options=CAPITALS) for name in ("prompt 0", "prompt 1")]
        with serving(replying({"prompt 0": good, "prompt 1": body})) as seen:
            first, second = answers_of(model_at(seen.url, concurrency=1), queries)
            if words == "other tokens":  # as of all answers
                refusal(model_at(seen.url), queries[1:], words, "--protocol text")
        assert probs(first) == pytest.approx([0.6, 0.25])
        if words:
            assert words in one_sentence(second)
            assert "--protocol text" in str(second)
        else:
            assert probs(second)[0] == pytest.approx(0.6)
            assert second.text == text


def test_options_that_are_equal_or_several_words_have_no_number_and_ambiguous_ones_are_missing() -> None:
    twice = (Option("female", ("she",)), Option("female", ("she",)), Option("male", ("grown up",)))
    clash = (Option("female", ("she",)), Option("male", ("she",)))
    with serving(saying(completion([("she", SHE)]))) as seen:
        first, second = answers_of(model_at(seen.url), [prompt(options=twice), prompt(options=clash)])
    assert math.exp(first.logprobs_nats[0]) == pytest.approx(0.46)
    assert all(math.isnan(nats) for nats in first.logprobs_nats[1:])
    assert isinstance(second, UnsupportedQueryError)
    assert "'she'" in str(second)
    assert len(seen.requests) == 1


@pytest.mark.parametrize("protocol", [EXACT, PAPER])
def test_notes_say_what_was_served_and_what_it_never_showed(protocol: str) -> None:
    """Of the whole run: what one answer shows need not be shown by another, and pieces are no words."""
    she = {" she": 0.4, " x": 0.2, " a": 0.1, " I": 0.05, " of": 0.04, " in": 0.03}
    many = {f" {chr(ord('a') + number)}x": 0.04 for number in range(20)}
    steps: dict[str, Steps] = {
        "prompt 0": [(" ax", many)], "prompt 1": [(" she", she)], "prompt 2": [(" a", she | {" xyr": 0.01})]
    }  # fmt: skip
    with serving(lambda asked: Reply(chat_completion(steps[asked.prompt]))) as seen:
        model = model_at(seen.url).open()
        notes = []
        for text in steps:
            assert len(list(model.answer([prompt(text, chat=True, options=XE)], protocol))) == 1
            notes.append(" | ".join(model.notes))
    never = [note.partition("never shown as one token")[2] for note in notes]
    assert [[word for word in ("she", "xe", "xyr") if word in text] for text in never] == [
        ["she", "xe", "xyr"], ["xe", "xyr"], ["xe"]
    ]  # fmt: skip
    assert ["as few as" in note for note in notes] == [False, True, True]
    assert "as few as 6" in notes[1]
    for word in (seen.url.removeprefix("http://").removesuffix("/v1"), "some-model-0613", "fp_1234"):
        assert word in notes[0]
    assert model.facts == {}


def test_card_names_host_path_and_model_and_every_setting_that_changes_answers() -> None:
    address = {"base_url": "https://api.example.org:8443/v1/"}
    found = registry.resolve(ModelRequest("openai:org/some-model", settings=address))
    card = found.identity
    assert card.source + at_revision(card.revision) == "api.example.org:8443/v1 org/some-model"
    assert (card.family, card.revision, card.dtype) == ("openai", "as served", "as served")
    assert found.capabilities == {"generation": (EXACT, PAPER, TEXT), "choice": (EXACT,), "writing": (EXACT,)}
    url = "https://api.example.org/v1"
    cards = [
        model_at(url, top_logprobs=5).identity,
        model_at(url, "other", top_logprobs=5).identity,
        model_at(url).identity,
        model_at("https://example.net/v1").identity,
        model_at("").identity,  # the service shows fewer in completions
    ]
    assert len({card.key(EXACT) for card in cards}) == len(cards)
    assert model_at(url, mode="answer").identity == model_at(url).identity  # a setting of another family
    assert resolve(ModelRequest("openai/gpt-oss-20b")) is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"concurrency": 0}, "--concurrency"),
        ({"max_requests": -5}, "--max-requests"),
        ({"timeout_s": math.nan}, "--timeout-s"),
        ({"grammar": "sglang"}, "--grammar"),
        ({"base_url": "ftp://example.org/v1"}, "base URL"),
        *(({"base_url": f"http://{host}/v1"}, "base URL") for host in ("", "127.0.0.1:port", "hunter2@a.org")),
    ],
)
def test_bad_setting_is_refused_without_a_secret(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UndertowError) as caught:
        resolve(ModelRequest("openai:some-model", settings=settings))
    assert words in one_sentence(caught.value)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for request in (ModelRequest("openai:"), ModelRequest("openai:some-model", dtype="bfloat16")):
        with pytest.raises(UndertowError, match="openai:"):
            registry.resolve(request)
    refusal(model_at(""), prompts(1), "api.openai.com", "OPENAI_API_KEY")
    with monkeypatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "hunter2 hunter2\u00e9")
        assert "hunter2" not in refusal(model_at("https://example.org/v1"), prompts(1), "OPENAI_API_KEY")
    monkeypatch.setitem(sys.modules, "openai", None)
    refusal(model_at("http://127.0.0.1:9/v1"), prompts(1), "undertow[api]")


@pytest.mark.parametrize(
    ("url", "is_sent"),
    [
        ("http://10.0.0.1:8080/v1", False),
        ("http://localhost.example.org/v1", False),
        ("https://example.org/v1", True),
        ("http://127.8.8.8/v1", True),
        ("http://[::1]:8080/v1", True),
    ],
)
def test_key_is_not_sent_over_plain_http_but_to_this_machine(
    monkeypatch: pytest.MonkeyPatch, url: str, *, is_sent: bool
) -> None:
    key = secrets.token_urlsafe(24)
    for variable, value in (("OPENAI_API_KEY", key), ("OPENAI_CUSTOM_HEADERS", f"X-Key: {key}")):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            if is_sent:
                assert answers_of(model_at(url), []) == []
            else:
                assert key not in refusal(model_at(url), [], variable)
    assert answers_of(model_at(url), []) == []


def test_key_takes_no_way_over_a_proxy_and_follows_no_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    with serving(saying(GOOD)) as elsewhere:
        monkeypatch.setenv("HTTP_PROXY", elsewhere.url.removesuffix("/v1"))
        monkeypatch.setenv("ALL_PROXY", elsewhere.url.removesuffix("/v1"))
        with serving(saying(Reply(b"", 307, {"Location": f"{elsewhere.url}/completions"}))) as seen:
            refusal(model_at(seen.url), prompts(3), "status 307")
        assert len(seen.requests) > 0
    assert elsewhere.requests == []


def test_version_of_azures_interface_is_sent_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with serving(saying(GOOD)) as seen:
        with pytest.raises(UndertowError, match=r"other than \?api-version=DATE"):
            model_at(f"{seen.url}?api-version=2024-10-21&key=x")
        found = model_at(f"{seen.url}?api-version=2024-10-21")
        assert isinstance(answers_of(found, [prompt()])[0], Answer)
        (asked,) = seen.requests
    assert asked.path.endswith("/completions?api-version=2024-10-21")
    assert (asked.headers.get("api-key"), asked.headers.get("authorization")) == ("a-key", None)
    assert "?api-version=2024-10-21" in found.identity.source


def test_secrets_are_keys_and_headers_that_no_answer_holds_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = (
        "api-key: azure-key\nX-Title: a-long-title\nCookie: session=1; password\nX-Auth: Bearer verylongsecretword"
    )
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", headers)
    assert http.secrets_of("sk-short") == ["verylongsecretword", "azure-key", "session=1", "sk-short"]


@pytest.mark.parametrize("is_the_service", [False, True])
def test_account_is_told_to_the_openai_service_alone(monkeypatch: pytest.MonkeyPatch, *, is_the_service: bool) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-a-test")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-a-test")
    with serving(saying(GOOD)) as seen:
        if is_the_service:
            monkeypatch.setattr(http, "OPENAI_URL", seen.url)
            monkeypatch.setenv("OPENAI_API_KEY", "a-key")
        answers_of(model_at(seen.url), [prompt()])
    account = {name: value for name, value in seen.requests[0].headers.items() if "of-a-test" in value}
    told = {"openai-organization": "org-of-a-test", "openai-project": "project-of-a-test"}
    assert account == (told if is_the_service else {})


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (error(401, "Incorrect API key"), ["401", "OPENAI_API_KEY"]),
        (error(403, "Your account was flagged by moderation"), ["403", "OPENAI_API_KEY"]),
        (error(404, "no such model"), ["some-model", "--chat"]),
        (error(405, "Method Not Allowed"), ["405", "--chat"]),
        (error(400, "This is a chat model"), ["400", "give undertow run --chat"]),
        (error(400, "omni-moderation-latest is not a chat model"), ["400", "give undertow run --chat"]),
        (error(400, "Maximum value for logprobs is 5"), ["400", "logprobs is 5", "--top-logprobs 5"]),
        (error(422, "x" * 999), ["422", "x" * 200 + '"']),
        (Reply([{"error": {"code": 400, "message": "no such field"}}], 400), ['"no such field"']),
        (Reply({"detail": "no such field"}, 422), ['"no such field"']),
        (Reply(b"<html>", 400), ["400"]),
        (error(402, "pay\n\x1b[31mnow"), ["402", '"pay [31mnow"']),
        (error(429, "You exceeded your quota", code="insufficient_quota"), ["429"]),
        (legacy([("<think>", {"<think>": 1.0}), (" she", {" she": 0.9, " he": 0.1})]), ["<think>", "--protocol text"]),
        (GOOD | {"choices": [{"text": "she", "logprobs": None, "finish_reason": "length"}]}, ["--protocol text"]),
        (NUMBERED, ["by number", "--protocol text"]),
    ],
)
def test_refusal_is_one_sentence_after_one_request_each(reply: Any, words: list[str]) -> None:
    with serving(saying(reply)) as seen:
        refusal(model_at(seen.url, concurrency=2), prompts(9), "127.0.0.1", *words)
        assert len(seen.requests) <= 2
        refusal(model_at(seen.url, retries=0), [prompt(chat=True)], *words[:1])


def test_server_that_shows_fewer_than_five_is_refused_under_protocol_paper() -> None:
    with serving(saying(completion([("she", SHE)]))) as seen:
        refusal(model_at(seen.url), prompts(3), "--protocol exact", protocol=PAPER)
        n_requests = len(seen.requests)
        refusal(model_at(seen.url, top_logprobs=4), prompts(3), "--top-logprobs", protocol=PAPER)
    assert len(seen.requests) == n_requests


@pytest.mark.parametrize(
    "reply",
    [
        error(400, "no", code="content_filter"),
        error(400, "litellm.ContentPolicyViolationError: AzureException - The response was filtered"),
        Reply({"error": {"code": 403, "message": "no", "metadata": {"flagged_input": "x"}}}, 403),
        Reply({"code": "no permission", "error": "Content violates usage guidelines. Team: x, API key ID: y"}, 403),
        Reply({"error": {"code": 403, "message": "Your input was flagged"}}, 200),
        Reply({"error": {"code": "content_filter", "message": "no"}}, 200),
        error(400, "Your request was flagged: it needs access to private data"),
        error(400, "too long", code="context_length_exceeded"),
        Reply(with_choice({"text": "sh", "logprobs": None, "finish_reason": "content_filter"})),
        Reply(with_choice({"finish_reason": "content_filter: PROHIBITED_CONTENT"})),
        Reply(with_choice({"text": "", "finish_reason": "SAFETY"})),
    ],
)
def test_prompt_that_is_refused_for_itself_is_missing_and_not_asked_again(reply: Reply) -> None:
    with serving(lambda asked: reply if asked.prompt == "prompt 1" else Reply(GOOD)) as seen:
        asked = stored(model_at(seen.url), prompts(3))
        assert [bool(answer.missing_reason) for answer in asked.scores.answers] == [False, True, False]
        assert asked.n_lost == 0
        stored(model_at(seen.url), prompts(3))
    assert len(seen.requests) == 3


CHOICE, STEP = GOOD["choices"][0], {"token": "she", "logprob": math.log(0.41)}
FAILURES = {
    "server error": Reply(b"oops", 500),
    "error of status 200": Reply({"error": {"message": "no provider", "code": 502}}),
    "error in a choice": Reply(with_choice(CHOICE | {"text": "sh", "error": {"code": 502}})),
    "cut body": Reply(json.dumps(GOOD).encode()[:99], short_by=50),
    "no text": Reply(with_choice({"text": 7})),
    "no top": Reply(with_choice(CHOICE | {"logprobs": CHOICE["logprobs"] | {"top_logprobs": [None]}})),
    "half a list": Reply(with_choice({"text": "she", "logprobs": {"content": [STEP]}})),
    "all null": Reply(with_choice({"text": None, "logprobs": None, "finish_reason": None})),
    "a tool call": Reply(with_choice({"text": "", "finish_reason": "tool_calls"})),
    "an empty message": Reply(
        with_choice({"message": {"role": "assistant", "content": None}, "logprobs": {"content": None}})
    ),
    "late": Reply(GOOD, after_s=NEVER_S),
}
"""Other faults, of which a run is asked again, are those of tests/reliability/test_network.py."""


@pytest.mark.parametrize("name", FAILURES)
def test_failure_is_tried_again_and_then_answered(name: str) -> None:
    late, failure = name == "late", FAILURES[name]
    limits = {"timeout_s": 0.7, "retries": 60} if late else {"retries": 2}
    with serving(saying(failure, *[failure] * (not late), GOOD)) as seen:
        (answer,) = answers_of(model_at(seen.url, **limits), [prompt()])
    assert probs(answer)[0] == pytest.approx(0.5)
    assert len(seen.requests) >= 2 if late else len(seen.requests) == 3


def test_lost_prompt_has_a_reason_and_is_asked_again_next_time() -> None:
    """Which is true of a failing server and of half an answer; nothing of either is stored."""
    bad = {f"prompt {at}": FAILURES[name] for at, name in ((1, "server error"), (3, "cut body"), (4, "a tool call"))}
    with serving(lambda asked: bad.get(asked.prompt, Reply(GOOD))) as seen:
        found = model_at(seen.url, retries=2)
        first = stored(found, prompts(6))
        reasons = [answer.missing_reason for answer in first.scores.answers]
        assert [bool(reason) for reason in reasons] == [False, True, False, True, True, False]
        assert "status 500" in reasons[1]
        assert (first.n_lost, n_stored()) == (3, 3)
        assert seen.prompts["prompt 1"] == 3
        bad.clear()
        second = stored(found, prompts(6))
    assert second.n_computed == 3
    assert not any(answer.missing_reason for answer in second.scores.answers)
    assert seen.prompts == {f"prompt {n}": 4 if n in (1, 3, 4) else 1 for n in range(6)}


def test_wait_is_as_long_as_the_server_says_and_an_hour_is_too_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits: list[float] = []

    async def no_wait(wait_s: float) -> None:
        waits.append(wait_s)

    monkeypatch.setattr("openai._base_client.anyio.sleep", no_wait)
    busy, closed = (Reply({}, 429, {"Retry-After": wait}) for wait in ("60", "3600"))
    reported = Reply({"error": {"code": 429, "message": "no provider"}}, 200, {"Retry-After": "60"})
    with serving(saying(busy, reported, busy, busy, GOOD)) as seen:
        answers_of(model_at(seen.url), [prompt()])
    assert waits == [60.0] * 4
    assert capsys.readouterr().err.count("limits the rate of requests (Retry-After: 60)") == 1
    assert "the last of 1 attempts" in str(answer_to(prompt(), closed))
    assert waits == [60.0] * 4
    assert 'status 429 in a response of status 200: it said "no provider"' in str(
        answer_to(prompt(), reported, retries=0)
    )


def test_server_that_never_answers_is_given_up_when_as_many_as_run_at_once_are_lost() -> None:
    with serving(saying(Reply({}, 503))) as seen:
        said = refusal(model_at(seen.url, concurrency=4, retries=1), prompts(40), "(127.0.0.1:", "status 503")
    assert said.startswith("4 prompts in a row")
    assert len(seen.requests) <= 2 * (4 + 3)  # two attempts of those, and of those that took their places


def test_server_that_has_answered_is_given_up_after_twenty_in_a_row() -> None:
    def reply(asked: Asked) -> Reply:
        return Reply(GOOD) if int(asked.prompt.split()[1]) in (0, 15) else Reply({}, 500)

    with serving(reply) as seen:
        with pytest.raises(UndertowError, match="20 prompts in a row"):
            stored(model_at(seen.url, concurrency=1, retries=0), prompts(60))
        assert len(seen.requests) == 16 + 20
    assert n_stored() == 2


def test_refusal_ends_every_wait_for_another_attempt() -> None:
    def reply(asked: Asked) -> Reply:
        if asked.prompt == "prompt 0":
            return Reply({}, 429, {"Retry-After": "100"})
        wait_until(lambda: "prompt 0" in seen.prompts)
        return Reply({}, 400, after_s=0.1)

    with serving(reply) as seen:
        refusal(model_at(seen.url, concurrency=2), prompts(9), "status 400")
        assert seen.prompts == {"prompt 0": 1, "prompt 1": 1}


def test_request_under_way_when_the_server_refuses_is_waited_for_and_kept() -> None:
    def reply(asked: Asked) -> Reply:
        if asked.prompt == "prompt 1":
            return Reply({}, 400)
        wait_until(lambda: "prompt 1" in seen.prompts)
        return Reply(GOOD, after_s=0.3)

    with serving(reply) as seen, pytest.raises(UndertowError, match="status 400"):
        stored(model_at(seen.url, concurrency=2), prompts(2))
    assert n_stored() == 1


def test_model_that_spent_its_tokens_before_it_wrote_is_missing() -> None:
    """Whether the server lists what it thought or not: that is no answer."""
    thought = chat_completion([("She", {"She": 0.9, "she": 0.05}), (" or", {" or": 0.8, " he": 0.1})])
    silent: dict[str, Any] = {"choices": [{"message": {}, "logprobs": None, "finish_reason": "length"}]}
    for body in (thought, silent):
        body["choices"][0]["message"]["content"] = None
        with serving(saying(body)) as seen:
            asked = stored(model_at(seen.url), [prompt(chat=True)])
            stored(model_at(seen.url), [prompt(chat=True)])
        assert "tokens" in asked.scores.answers[0].missing_reason
        assert asked.n_lost == 0
        assert len(seen.requests) == 1


SURE = completion([(" she", {" she": 1.0}), (" was", {" was": 1 - 1e-7, " is": 1e-8})])
"""As after sampling at temperature 0, or as of a model that is sure."""


def one_hot(hidden_nats: float) -> dict[str, Any]:
    """Beside the tokens that were chosen, others that cannot be."""
    body = completion([(" she", {" she": 1.0}), (" was", {" was": 1.0})])
    for step in body["choices"][0]["logprobs"]["content"]:
        step["top_logprobs"] += [{"token": f" {number}", "logprob": hidden_nats} for number in range(19)]
    return body


@pytest.mark.parametrize(
    ("body", "protocol"),
    [
        (legacy([(" she", {" she": 1.0}), (" was", {" was": 1.0})]), EXACT),
        (SURE, EXACT),
        (SURE, PAPER),
        (one_hot(-9999.0), EXACT),
        (one_hot(-math.inf), PAPER),
    ],
)
def test_answer_that_shows_nothing_but_what_was_chosen_is_lost(body: dict[str, Any], protocol: str) -> None:
    with serving(saying(body)) as seen:
        asked = stored(model_at(seen.url), prompts(1), protocol)
        assert (asked.n_lost, asked.n_computed) == (1, 0)
        assert asked.scores.answers[0].missing_reason
        stored(model_at(seen.url), prompts(1), protocol)
    assert len(seen.requests) == 2


@pytest.mark.parametrize(("n_prompts", "n_asked"), [(9, 9), (25, 20)])
def test_server_that_shows_only_what_was_chosen_ends_the_run(n_prompts: int, n_asked: int) -> None:
    with serving(saying(SURE)) as seen:
        with pytest.raises(UndertowError, match="--logprobs-mode raw_logprobs"):
            stored(model_at(seen.url, concurrency=1), prompts(n_prompts))
        assert len(seen.requests) == n_asked
    assert n_stored() == 0


def test_server_that_shows_more_elsewhere_is_believed_of_a_model_that_is_sure() -> None:
    """Answers that came before are kept back until then, and none is asked for again; one sure step is an answer."""
    one = completion([(" she", {" she": 1.0})])
    with serving(lambda asked: Reply({"prompt 0": one, "prompt 4": GOOD}.get(asked.prompt, SURE))) as seen:
        asked = stored(model_at(seen.url, concurrency=1), prompts(6))
        assert len(seen.requests) == 6
    assert (asked.n_lost, n_stored()) == (0, 6)
    assert probs(asked.scores.answers[5])[0] == pytest.approx(1.0)


@pytest.mark.parametrize("failing", [0, 1])
def test_budget_of_requests_counts_every_attempt_and_keeps_the_answers(failing: int) -> None:
    with serving(saying(*[Reply({}, 500)] * failing, GOOD)) as seen:
        found = model_at(seen.url, max_requests=6, concurrency=4)
        for _ in range(2):  # it is the run's, not that of one asking
            with pytest.raises(UndertowError, match="--max-requests"):
                stored(found, prompts(20))
            assert len(seen.requests) == 6
            good = sum(asked.attempt > failing for asked in seen.requests)
            assert n_stored() == good > 0
        stored(model_at(seen.url), prompts(20))
    assert sum(asked.attempt > failing for asked in seen.requests) == 20


@pytest.mark.parametrize(
    ("usage", "budget", "n_requests"),
    [
        (GOOD["usage"], 100, 4),  # 25 for each
        (None, 30, 5),  # estimated: two tokens of prompt and four of answer
        ({"prompt_tokens": -20, "completion_tokens": 5}, 30, 5),
        ("late", 12, 2),  # each attempt that times out
    ],
)
def test_budget_of_tokens_is_what_the_server_counts_or_an_estimate(usage: Any, budget: int, n_requests: int) -> None:
    late = usage == "late"
    with serving(saying(FAILURES["late"] if late else GOOD | {"usage": usage})) as seen:
        limits: dict[str, Any] = {"retries": 60, "timeout_s": 0.7} if late else {}
        with pytest.raises(UndertowError, match="--max-api-tokens"):
            stored(model_at(seen.url, max_api_tokens=budget, concurrency=1, **limits), prompts(20))
        assert len(seen.requests) == n_requests


@pytest.mark.parametrize("stop", briefly([signal.SIGINT, signal.SIGKILL]))
def test_stopped_process_ends_at_once_and_keeps_what_had_arrived(stop: signal.Signals, tmp_path: Path) -> None:
    """Two replies never come, and neither they nor their threads are waited for."""
    with serving(lambda asked: Reply(GOOD, after_s=0.0 if len(seen.prompts) <= 4 else NEVER_S)) as seen:
        limits = ("--prompts", "A", "--retries", "0", "--concurrency", "2", "--timeout-s", str(NEVER_S))
        words = ("run", "spurious-correlation", "-m", "openai:some-model", "--base-url", seen.url, *limits)
        with started(tmp_path, *words) as process:
            wait_until(lambda: process.poll() is not None or (len(seen.requests) == 6 and n_stored() == 4))
            process.send_signal(stop)
            process.communicate(timeout=GUARD_S)
        assert process.returncode == (130 if stop == signal.SIGINT else -stop)
    assert (len(seen.requests), n_stored()) == (6, 4)


VISIBLE_PROB = 0.01
NOISE_NATS = 0.2
"""How far 8-bit activations may move log-probabilities above `VISIBLE_PROB`, as a root mean square.

llama.cpp's matrix products round activations in blocks of 32 to steps of max/127, so by max/440, which is near 0.7% of a
typical one. Over 30 layers of 7 products, each adding a part of the residual stream, independent errors grow to between
2% and 10% of the final state, and logits that spread over 3 nats move by 0.06 to 0.3; 0.11 was measured.
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


def raw_answer(url: str, asked: GenerateQuery) -> dict[str, Any]:
    """The server's own words, with the numbers of its tokens, past everything under test."""
    path, body = "/chat/completions" if asked.chat else "/completions", json.dumps(request_body(asked, MODEL))
    request = urllib.request.Request(url + path, body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=GUARD_S) as response:
        read: dict[str, Any] = json.load(response)
    return read


def prompt_tokens(tokenizer: Any, asked: GenerateQuery) -> list[int]:
    if not asked.chat:
        return list(tokenizer(asked.prompt)["input_ids"])
    messages = [{"role": "user", "content": asked.prompt}]
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"])


def own_probs(model: Any, before: list[int], written: list[int]) -> list[Any]:
    """The whole distribution at each step of what the server wrote, by the plainest means [step][token]."""
    import torch

    with torch.inference_mode():
        logits = model.network(torch.tensor([before + written])).logits[0].double()
    return list(logits.softmax(-1)[len(before) - 1 : -1])


def tokens_of(tokenizer: Any, word: str) -> list[int]:
    spelled = [tokenizer.convert_tokens_to_ids(token) for token in (word, f"\u0120{word}")]
    assert [tokenizer.decode([token]).strip() for token in spelled] == [word, word]
    return spelled


@pytest.mark.model
@pytest.mark.slow
def test_answers_of_the_real_server_agree_with_our_own_network(llama_server: str, smollm2: Any) -> None:  # noqa: F811
    """Tokens differ as rounding does. Pronouns above 1% agree; of others, what is shown and may be hidden holds the truth.

    The steps that count are chosen by hand.
    """
    queries = [GenerateQuery(text, WORD_OPTIONS, max_tokens=6, chat=chat) for text, chat in REAL]
    found = stored(real_at(llama_server), queries)
    assert found.n_lost == 0
    assert any(MODEL in note for note in found.notes)
    most, tokenizer = MOST_OF_MANY * NOISE_NATS, smollm2.tokenizer
    differences: list[float] = []
    n_visible = n_tail = 0
    for query, answer in zip(queries, found.scores.answers, strict=True):
        raw = raw_answer(llama_server, query)
        choice, before = raw["choices"][0], prompt_tokens(tokenizer, query)
        assert raw["usage"]["prompt_tokens"] == len(before)
        assert answer.text == (choice["message"]["content"] if query.chat else choice["text"])
        steps = choice["logprobs"]["content"]
        own = own_probs(smollm2, before, [step["id"] for step in steps])
        differences += [
            shown["logprob"] - math.log(probs_here[shown["id"]])
            for step, probs_here in zip(steps, own, strict=True)
            for shown in step["top_logprobs"]
            if probs_here[shown["id"]] > VISIBLE_PROB
        ]
        written = [step["token"].strip() for step in steps if step["token"]]
        said = [place for place, token in enumerate(written) if token in WORDS]
        counted = said if len(said) == 1 else range(len(written))
        for word, prob, hidden in zip(WORDS, probs(answer), answer.upper_bound_prob, strict=True):
            expected = sum(float(own[step][tokens_of(tokenizer, word)].sum()) for step in counted) / len(counted)
            if expected > VISIBLE_PROB:
                assert math.log(prob) == pytest.approx(math.log(expected), abs=most)
                n_visible += 1
            else:
                tail_prob = VISIBLE_PROB * math.expm1(most)
                assert prob - tail_prob < expected < prob + hidden + tail_prob
                n_tail += 1
    assert len(differences) > 100
    assert math.sqrt(sum(value**2 for value in differences) / len(differences)) < NOISE_NATS
    assert max(map(abs, differences)) < most
    assert n_visible >= 8
    assert n_tail >= 20
