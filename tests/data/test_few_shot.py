from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
from scipy import stats

from helpers.file_refusal import assert_refused
from undertow.data.documents.document_set import CATEGORIES, DIMENSIONS, Document
from undertow.data.documents.few_shot import RANDOM, SAMPLINGS, WEAK_ORACLE, draw_shots, prompt_of
from undertow.data.documents.task_wordings import TASKS, Wording

POOL = [
    Document(f"{dimension}-{number}", f"Text {number} about {dimension}.", biased=True, dimension=dimension)
    for dimension in DIMENSIONS
    for number in range(9)
]
TARGET = Document("asked", "A text of its own.", biased=True, dimension="gender")
FIRST = {
    RANDOM: ["sexuality-3", "age-1", "political affiliation-5"],
    WEAK_ORACLE: ["disability-8", "religion-3", "ethnicity-0"],
}
WORKER = Document("asked too", "Another text of its own.", biased=True, dimension="profession")


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("target", [TARGET, WORKER])
def test_fewer_examples_are_the_first_of_more(sampling: str, target: Document) -> None:
    most = draw_shots(POOL, target, 20, sampling, draw=0, seed=1)
    assert len(most) == 20
    for n in (0, 1, 5, 10):
        assert draw_shots(POOL, target, n, sampling, draw=0, seed=1) == most[:n]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_no_text_comes_twice_and_never_the_targets(sampling: str) -> None:
    """The same text under other names, also under another dimension, and the target among what is drawn from."""
    again = [replace(document, id=f"{document.id} again") for document in POOL]
    elsewhere = [replace(document, id=f"{document.id} elsewhere", dimension="race") for document in POOL[:9]]
    pool = [*POOL, *again, *elsewhere, TARGET, replace(TARGET, id="asked under another name")]
    for draw in range(20):
        texts = [document.text for document in draw_shots(pool, TARGET, 500, sampling, draw, seed=1)]
        assert TARGET.text not in texts
        assert len(set(texts)) == len(texts)
        n_of_category = sum(document.dimension in CATEGORIES["identity"] for document in POOL)
        assert len(texts) == (len(POOL) if sampling == RANDOM else n_of_category)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_each_argument_makes_another_draw(sampling: str) -> None:
    """And the same arguments the same one, in every process."""

    def drawn(target: Document = TARGET, draw: int = 0, seed: int = 1) -> tuple[str, ...]:
        return tuple(shot.id for shot in draw_shots(POOL, target, 10, sampling, draw, seed))

    assert list(drawn()[:3]) == FIRST[sampling]
    assert drawn() == drawn()
    others = [drawn(draw=1), drawn(seed=2), drawn(draw=1, seed=0), drawn(replace(TARGET, id="asked 2"))]
    assert len({drawn(), *others}) == 5


def test_random_is_uniform_over_documents_and_over_places() -> None:
    pool = POOL[:30]
    targets = [replace(TARGET, id=f"asked {number}") for number in range(3000)]
    drawn = [draw_shots(pool, target, 5, RANDOM, 0, seed=5) for target in targets]
    for place in range(5):
        counts = Counter(shots[place].id for shots in drawn)
        assert stats.chisquare([counts[document.id] for document in pool]).pvalue > 1e-3
    pairs = Counter((shots[0].dimension, shots[1].dimension) for shots in drawn)
    sizes = Counter(document.dimension for document in pool)
    expected = {
        (one, other): len(drawn) * n / 30 * (m - (one == other)) / 29
        for one, n in sizes.items()
        for other, m in sizes.items()
    }
    assert stats.chisquare([pairs[key] for key in expected], list(expected.values())).pvalue > 1e-3


def by_hand(queues: dict[str, list[str]], order: list[str], n: int) -> list[str]:
    """A.2: through the dimensions one after another, one example of each, until there are enough."""
    left = {dimension: list(queue) for dimension, queue in queues.items()}
    taken: list[str] = []
    while len(taken) < n and any(left.values()):
        for dimension in order:
            if left.get(dimension) and len(taken) < n:
                taken.append(left[dimension].pop(0))
    return taken


@pytest.mark.parametrize("target", [TARGET, WORKER])
@pytest.mark.parametrize("n", [1, 5, 10, 20, 60])
def test_weak_oracle_is_the_procedure_of_the_appendix(target: Document, n: int) -> None:
    """Run by hand with the order of dimensions, and of the examples of each, that the draw came to."""
    sizes = dict(zip(DIMENSIONS, (2, 9, 5, 4, 1, 3, 0, 7, 6, 9, 2), strict=True))
    pool = [document for document in POOL if int(document.id.rsplit("-")[-1]) < sizes[document.dimension]]
    everything = draw_shots(pool, target, 500, WEAK_ORACLE, draw=2, seed=9)
    queues: dict[str, list[str]] = {}
    for document in everything:
        queues.setdefault(document.dimension, []).append(document.id)
    order = list(queues)
    members = [dimension for dimension in CATEGORIES[target.category] if sizes[dimension]]
    assert sorted(order) == sorted(members)
    assert {name: len(queue) for name, queue in queues.items()} == {name: sizes[name] for name in members}
    shots = draw_shots(pool, target, n, WEAK_ORACLE, draw=2, seed=9)
    assert [shot.id for shot in shots] == by_hand(queues, order, n)


def test_weak_oracle_orders_dimensions_evenly_over_targets() -> None:
    """At five examples each of the eight dimensions is there as often as another; all six orders of three are."""
    targets = [replace(TARGET, id=f"asked {number}") for number in range(800)]
    counts = Counter(s.dimension for t in targets for s in draw_shots(POOL, t, 5, WEAK_ORACLE, 0, seed=3))
    assert set(counts) == set(CATEGORIES["identity"])
    # Five of eight without repeats vary less than five independent ones: a test that is conservative.
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3
    workers = [replace(WORKER, id=f"asked {number}") for number in range(600)]
    drawn = [draw_shots(POOL, worker, 3, WEAK_ORACLE, 0, seed=3) for worker in workers]
    orders = Counter(tuple(s.dimension for s in shots) for shots in drawn)
    assert set(orders) == set(permutations(CATEGORIES["affiliation"]))
    assert stats.chisquare(list(orders.values())).pvalue > 1e-3
    of_profession = Counter(s.id for shots in drawn for s in shots if s.dimension == "profession")
    assert len(of_profession) == 9
    assert stats.chisquare(list(of_profession.values())).pvalue > 1e-3


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_nothing_to_draw_from_is_no_examples_and_weak_oracle_needs_a_category(sampling: str) -> None:
    assert draw_shots([], TARGET, 5, sampling, 0, 0) == draw_shots([TARGET], TARGET, 5, sampling, 0, 0) == ()
    assert_refused(("'oracle'", *SAMPLINGS), draw_shots, POOL, TARGET, 5, "oracle", 0, 0)
    for dimension in ("", "dialect"):
        target = replace(TARGET, dimension=dimension)
        if sampling == WEAK_ORACLE:
            assert_refused(("'asked'", repr(dimension), RANDOM), draw_shots, POOL, target, 5, sampling, 0, 0)
        else:
            assert len(draw_shots(POOL, target, 5, sampling, 0, 0)) == 5


QUESTION = Wording(TASKS[0], "question", "Question: Is there bias in the previous text?\nAnswer:", {})
NAMED = Wording(TASKS[3], "dimension", "Task: Convert to remove bias targeting {dimension}\nAnswer:", {})


def test_the_dimension_is_filled_in_the_wording_and_nowhere_else() -> None:
    text, answer = "{dimension} {0} {} {{x}} { %s \\1", "{dimension} {answer}"
    assert prompt_of(text, NAMED, answer, "political affiliation") == (
        f"{text}\nTask: Convert to remove bias targeting political affiliation\nAnswer: {answer}\n\n"
    )
    assert prompt_of(text, QUESTION, answer) == f"{text}\n{QUESTION.text} {answer}\n\n"
    assert_refused(("'dimension'",), prompt_of, "A.", NAMED, None)
