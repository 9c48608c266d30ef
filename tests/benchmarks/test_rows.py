"""What is timed: samples drawn whole, nested and evenly, and no item twice."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

from rows import ROWS, requests
from undertow.types import Choice, Continuations, query_digest

LIKELIHOOD, SCHEMAS, MASKED, PROMPTS, WORDINGS = ROWS.values()


def test_samples_are_whole_w_values_nested_and_even_over_lists() -> None:
    items = LIKELIHOOD.items()
    small, large = LIKELIHOOD.draw(items, 4, seed=0), LIKELIHOOD.draw(items, 6, seed=0)
    assert (len(small.places), len(large.places)) == (240, 360)
    assert set(small.places) < set(large.places)
    drawn = [items[place].factors for place in large.places]
    assert {str(one["w"]) for one in drawn} == set(large.levels)
    assert Counter(one["w_name"] for one in drawn) == {"date": 180, "place": 180}
    assert LIKELIHOOD.draw(items, 4, seed=1).levels != small.levels
    assert len(LIKELIHOOD.draw(items, len(items), seed=0).places) == len(items) == 3000
    assert LIKELIHOOD.n_units(items) == 50


def test_samples_of_schemas_are_whole_occupations_at_both_dates() -> None:
    items = SCHEMAS.items()
    drawn = SCHEMAS.draw(items, 3, seed=0)
    asked = [items[place].factors for place in drawn.places]
    assert Counter(one["occupation"] for one in asked) == dict.fromkeys(drawn.levels, 16)
    assert Counter(one["w"] for one in asked) == {"1901": 24, "2016": 24}
    assert SCHEMAS.n_units(items) == 60


def test_samples_of_sentences_are_spread_and_hold_every_prompt() -> None:
    masked, prompts = MASKED.items(), PROMPTS.items()
    drawn = MASKED.draw(masked, 240, seed=0)
    assert (len(drawn.places), drawn.n_units) == (240, 240)
    assert len(drawn.levels) > 40
    asked = [prompts[place] for place in PROMPTS.draw(prompts, 16, seed=0).places]
    sentences = {(item.factors["w"], item.cluster) for item in asked}
    assert len(sentences) == 16
    assert sorted((item.factors["w"], item.cluster) for item in asked) == sorted([*sentences] * 3)
    assert {item.factors["prompt"] for item in asked} == {"A", "B", "C"}


def test_samples_of_documents_are_even_over_dimensions_and_hold_every_wording() -> None:
    items = WORDINGS.items()
    small, large = WORDINGS.draw(items, 6, seed=0), WORDINGS.draw(items, 13, seed=0)
    assert set(small.places) < set(large.places)
    assert (len(small.places), len(small.levels), len(large.levels)) == (6 * 108, 6, 11)
    asked = [items[place] for place in large.places]
    kinds = Counter((item.cluster, item.factors["description_class"]) for item in asked)
    assert len({document for document, _ in kinds}) == 13
    assert {(kind, n) for (_, kind), n in kinds.items()} == {("statement", 24), ("question", 12), ("completion", 72)}
    per_dimension = Counter(item.factors["dimension"] for item in asked if item.factors["shots"] == 0)
    assert sorted(per_dimension.values()) == [108] * 9 + [216] * 2
    assert WORDINGS.draw(items, 6, seed=1).places != small.places
    assert all(isinstance(item.query, Choice) and len(item.query.labels) == 11 for item in asked)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_no_item_is_counted_twice(row: Any) -> None:
    items = row.items()
    assert len({query_digest(item.query) for item in items}) == len(items)


def test_requests_split_a_sentence_at_its_blank() -> None:
    pairs = requests(LIKELIHOOD.items()[0].query)
    assert pairs == [("In 1801,", f" {word} was a child.") for word in ("she", "he", "they")]
    assert requests(Continuations("It is", (" hot.", " cold."))) == [("It is", " hot."), ("It is", " cold.")]
    with pytest.raises(TypeError, match="no continuations"):
        requests(WORDINGS.items()[0].query)
