"""What sharing the work out rests on, without Ray: portions that stand alone, a cluster's division, choices that are refused."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import undertow
from undertow import audit, challenge
from undertow.models import toy
from undertow.models.base import EXACT, Found, Request
from undertow.scoring import distributed
from undertow.scoring.ask import Arrived, Asker, Opened, Portion, ask, here
from undertow.scoring.distributed import MOST_FREE, Cluster, Shares, Worker, check_address, shares
from undertow.scoring.store import AnswerStore
from undertow.types import GENERATION, Answer, Generation, ModelCard, Option, Query, UndertowError, query_digest

PROBE = "spurious-correlation"
SHE = (Option("female", ("she",)),)


def toy_found() -> Found:
    found = toy.find(Request("toy"))
    assert found is not None
    return found


def by_digest(queries: Sequence[Query]) -> dict[str, Query]:
    return {query_digest(query): query for query in queries}


def sentences(n_items: int = 600) -> dict[str, Query]:
    items = challenge.load("mgc").items([challenge.spectrum("date")])
    return by_digest([item.query for item in items[:n_items]])


# Portions.


def test_a_portion_has_the_same_answers_wherever_it_is_asked() -> None:
    distinct = sentences()
    alone = {digest: answer for said in here(toy_found(), distinct, {}, EXACT) if isinstance(said, Arrived)
             for digest, answer in said.answers.items()}  # fmt: skip
    planner, other = (Asker(toy_found().open(), distinct, EXACT) for _ in range(2))
    portions = [portion for portion in planner.portions(frozenset()) if isinstance(portion, Portion)]
    assert len(portions) > 4
    assert [portion.n_tokens for portion in portions] == sorted((one.n_tokens for one in portions), reverse=True)
    random.Random(0).shuffle(portions)
    shared: dict[str, Answer] = {}
    for number, portion in enumerate(portions):
        for said in (planner, other)[number % 2].answers(portion):
            shared |= said.answers
            assert said.n_tokens == portion.n_tokens
    assert shared == alone


def test_the_plan_is_that_of_all_queries_whatever_is_stored() -> None:
    distinct = sentences()
    whole = [
        one for one in Asker(toy_found().open(), distinct, EXACT).portions(frozenset()) if isinstance(one, Portion)
    ]
    kept = frozenset([*whole[1].packs[0], *whole[2].packs[0][:3]])
    rest = list(Asker(toy_found().open(), distinct, EXACT).portions(kept))
    assert rest == [whole[0], Portion((whole[2].packs[0][3:],), whole[2].n_tokens, whole[2].as_tree), *whole[3:]]


def test_prompts_that_matter_to_no_other_are_shared_out_evenly() -> None:
    distinct = by_digest([Generation(f"{number}: who?", SHE) for number in range(2 * MOST_FREE + 5)])
    asker = Asker(toy_found().open(), distinct, EXACT)
    portions = [one for one in asker.portions(frozenset(), MOST_FREE) if isinstance(one, Portion)]
    assert [one.n_queries for one in portions] == [MOST_FREE, MOST_FREE, 5]
    (whole,) = asker.portions(frozenset())
    assert isinstance(whole, Portion)
    assert whole.packs == (tuple(distinct),)


class Remembering:
    """Answers a prompt by its number and by how many it was asked since it was last told to forget."""

    card = ModelCard("remembering", "tests", "the tests", "1", "float32", "prompt")
    notes: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.n_asked = 0

    def sections(self, queries: Sequence[Query]) -> Iterator[list[list[int]]]:
        places = list(range(len(queries)))
        packs = [places[start : start + 2] for start in range(0, len(places), 2)]
        yield from (packs[start : start + 3] for start in range(0, len(packs), 3))

    def forget(self) -> None:
        self.n_asked = 0

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Answer]]:
        for place, query in enumerate(queries):
            assert isinstance(query, Generation)
            self.n_asked += 1
            yield {place: Answer((-float(query.prompt.partition(":")[0]) - self.n_asked / 100,), 0.5)}


def test_what_a_pack_leaves_to_the_next_is_the_same_in_every_order_and_after_a_stop(tmp_path: Path) -> None:
    queries = [Generation(f"{number}: who?", SHE) for number in range(20)]
    found = Found(Remembering.card, Remembering, {GENERATION: (EXACT,)})

    def stop(done: int, total: int) -> None:
        if done == 9:
            raise KeyboardInterrupt

    def asked(place: str, progress: Any = lambda done, total: None) -> tuple[Answer, ...]:
        with AnswerStore(tmp_path / place) as store:
            return ask(found, queries, store, EXACT, progress).scores.answers

    whole = asked("whole")
    assert len({round(answer.logprobs_nats[0] % 1, 2) for answer in whole}) == 6
    with pytest.raises(KeyboardInterrupt):
        asked("cut", stop)
    assert asked("cut") == whole
    distinct = by_digest(queries)
    portions = list(Asker(Remembering(), distinct, EXACT).portions(frozenset()))
    assert len(portions) == 4
    asker, answers = Asker(Remembering(), distinct, EXACT), dict[str, Answer]()
    for portion in reversed(portions):
        assert isinstance(portion, Portion)
        for said in asker.answers(portion):
            answers |= said.answers
    assert tuple(answers[digest] for digest in distinct) == whole


def test_an_engine_of_ones_own_is_used_and_only_asked_for_what_is_missing(tmp_path: Path) -> None:
    queries = list(sentences(30).values())
    missing: list[int] = []

    def engine(
        found: Found, distinct: dict[str, Query], stored: Mapping[str, Answer], protocol: str
    ) -> Iterator[Opened | Arrived]:
        missing.append(len(distinct) - len(stored))
        yield Opened({"parameters": 5.0})
        for digest in reversed(distinct):
            yield Arrived({digest: Answer((-1.0, -2.0, -3.0), 0.1)}, n_tokens=2, notes=("elsewhere",))

    with AnswerStore(tmp_path / "s") as store:
        ask(toy_found(), queries[:10], store, EXACT, lambda done, total: None)
        asked = ask(toy_found(), queries, store, EXACT, lambda done, total: None, engine=engine)
    assert missing == [20]
    assert (asked.n_computed, asked.n_tokens, asked.notes) == (20, 60, ("elsewhere",))
    assert dict(asked.facts) == {"parameters": 5.0}


# A worker, in this process.


def test_a_worker_says_where_it_is_before_it_opens_the_model_and_refuses_another(tmp_path: Path) -> None:
    worker = Worker(str(tmp_path / "not there"), "")
    key = toy_found().card.key(EXACT)
    placed, opened = worker.open(toy_found, key)
    assert isinstance(placed, distributed.Placed)
    assert isinstance(opened, Opened)
    _, refused = worker.open(toy_found, "0" * 64)
    assert isinstance(refused, distributed.Refused)
    assert refused.sentence.startswith("toy: on ")
    list(worker.hear(sentences(60), EXACT))
    (portion,) = worker.plan(frozenset())
    assert isinstance(portion, Portion)
    (arrived,) = worker.answer(portion)
    assert isinstance(arrived, Arrived)
    assert len(arrived.answers) == 60


# A cluster, divided.

LAPTOP = [{"CPU": 8.0, "memory": 1e9}]
RACK = [{"CPU": 16.0}, {"CPU": 16.0}, {"CPU": 8.0}]
GPUS = [{"CPU": 4.0}, {"CPU": 48.0, "GPU": 4.0}, {"CPU": 16.0, "GPU": 2.0}]


@pytest.mark.parametrize(
    ("nodes", "n_workers", "on_gpu", "expected"),
    [
        (LAPTOP, 0, True, Shares(1, 8, 0, 8)),
        (LAPTOP, 2, True, Shares(2, 4, 0, 4)),
        (LAPTOP, 3, True, Shares(3, 2, 0, 2)),
        (LAPTOP, 8, True, Shares(8, 1, 0, 1)),
        (RACK, 0, True, Shares(3, 8, 0, 8)),
        (RACK, 2, True, Shares(2, 16, 0, 16)),
        (RACK, 4, True, Shares(4, 8, 0, 8)),
        (RACK, 6, True, Shares(6, 5, 0, 5)),
        (GPUS, 0, True, Shares(6, 1, 1, 8)),
        (GPUS, 3, True, Shares(3, 1, 1, 8)),
        (GPUS, 0, False, Shares(3, 16, 0, 16)),
        ([{"CPU": 0.0, "GPU": 1.0}], 0, True, Shares(1, 0, 1, 1)),
    ],
)
def test_a_cluster_is_divided(nodes: list[dict[str, float]], n_workers: int, on_gpu: bool, expected: Shares) -> None:
    assert shares(nodes, n_workers, on_gpu=on_gpu) == expected


@pytest.mark.parametrize(
    ("nodes", "n_workers", "on_gpu", "words"),
    [
        (LAPTOP, 9, True, "9 workers are more than the 8 processors of the cluster; give --workers 8 or fewer"),
        (
            GPUS,
            7,
            True,
            "7 workers are more than the 6 GPUs of the cluster; give --workers 6 or fewer, or --device cpu",
        ),
        ([{"GPU": 1.0, "CPU": 1.0}], 2, True, "2 workers are more than the 1 GPU of the cluster"),
        ([{"memory": 1.0}], 0, True, "the cluster has no processor"),
    ],
)
def test_more_workers_than_places_are_refused(
    nodes: list[dict[str, float]], n_workers: int, on_gpu: bool, words: str
) -> None:
    with pytest.raises(UndertowError) as error:
        shares(nodes, n_workers, on_gpu=on_gpu)
    assert words in str(error.value)


@pytest.mark.parametrize("address", ["", "auto", "10.0.0.1:6379", "head.example.org:1"])
def test_addresses(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize(
    "address", ["head", ":6379", "head:", "head:port", "head:0", "head:65536", "http://head:6379/"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UndertowError, match="is no address; write auto, or HOST:PORT"):
        check_address(address)


def test_the_reason_that_ray_gives_is_found_on_its_page() -> None:
    page = (
        "The actor died unexpectedly before finishing this task.\n\tclass_name: Worker\nThe actor is dead because its worker "
        "process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error "
        "code 2. End of file. Some common causes include: (1) the process was killed by the OOM killer"
    )
    assert (
        distributed._reason(Exception(page)) == "Worker unexpectedly exits with a connection error code 2. End of file"
    )
    assert distributed._reason(Exception("The actor died.\n  at work\n\nImportError: no such module.")) == (
        "The actor died. ImportError: no such module"
    )
    assert distributed._reason(Exception("")) == "no reason given"


# Choices that are refused before anything is asked.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "spark"}, "engine 'spark' is not known; use here or ray"),
        ({"address": "auto"}, "--address is for --engine ray; add that, or leave it out"),
        ({"workers": 2}, "--workers is for --engine ray; add that, or leave it out"),
        ({"engine": "ray", "workers": -1}, "workers -1 is negative; leave it out to have one on every GPU or machine"),
        (
            {"engine": "ray", "address": "ray://head:10001"},
            "cannot stream answers; run the command on a machine of the cluster",
        ),
        ({"engine": "ray", "device": "cuda:1"}, "device 'cuda:1' cannot be that of every worker"),
    ],
)
@pytest.mark.parametrize("call", [undertow.run, audit.dry_run])
def test_choices_that_cannot_be(
    call: Any, options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    with pytest.raises(UndertowError) as error:
        call(PROBE, "toy", w="date", limit=90, **options)
    assert words in str(error.value)


def test_a_model_that_a_server_runs_is_not_shared_out() -> None:
    pytest.importorskip("ray")
    with pytest.raises(
        UndertowError, match=r"openai:m is run by its server, so workers would gain nothing; .*raise --concurrency"
    ):
        undertow.run(PROBE, "openai:m", base_url="http://localhost:1/v1", prompts="A", w="date", limit=90, engine="ray")


def test_without_ray_the_command_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UndertowError, match=r"--engine ray needs Ray: run `pip install 'undertow\[ray\]'`"):
        undertow.run(PROBE, "toy", w="date", limit=90, engine="ray")


def test_a_cluster_that_is_not_joined_ends_without_ray() -> None:
    with Cluster(n_workers=2) as cluster:
        assert cluster.workers == []
    assert cluster.told() == {"name": "ray", "workers": 0, "replaced": 0}
