"""The three published challenge sets hold what the papers print."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from undertow import data
from undertow.types import ClozeQuery


def cloze_query(item: object) -> ClozeQuery:
    query = item.query  # type: ignore[attr-defined]
    assert isinstance(query, ClozeQuery)
    return query


@pytest.mark.parametrize(
    ("name", "w_name", "n_values", "texts_per_value"),
    [
        ("mgc", "date", 30, 60),
        ("mgc", "place", 20, 60),
        ("mgt", "date", 30, 60),
        ("mgt-icml", "date", 30, 36),
        ("mgt-icml", "subreddit", 61, 18),
    ],
)
def test_sizes(name: str, w_name: str, n_values: int, texts_per_value: int) -> None:
    items = data.load(name).items([data.load_covariate(w_name)])
    per_value = Counter(item.factors["w_index"] for item in items)
    assert sorted(per_value) == list(range(n_values))
    assert set(per_value.values()) == {texts_per_value}
    assert len({item.id for item in items}) == len(items)
    assert len({item.cluster for item in items}) == texts_per_value


def test_mgc_has_three_thousand_texts_and_the_published_ones() -> None:
    items = data.load("mgc").items()
    texts = [cloze_query(item).display_text() for item in items]
    assert len(texts) == len(set(texts)) == 3000
    assert texts[0] == "In 1801, ___ was a child."
    assert "In Mali, ___ will be an adult." in texts
    assert "In Democratic Republic of Congo, ___ has become a grown up." in texts


def test_w_lists_are_those_of_the_published_data_in_their_order() -> None:
    expected = [str(year) for year in np.linspace(1801, 2016, 30).astype(int)]
    assert list(data.load_covariate("date").values) == expected
    narrower = data.load_covariate("date", data.Dates(1901, 2016, 30)).values
    assert (narrower[0], narrower[-1], len(narrower)) == ("1901", "2016", 30)
    places = data.load_covariate("place").values
    assert (places[0], places[9], places[10], places[19]) == ("Afghanistan", "Saudi Arabia", "Switzerland", "Iceland")
    subreddits = data.load_covariate("subreddit").values
    assert (subreddits[0], subreddits[-1], len(subreddits)) == ("GlobalOffensive", "relationships", 61)
    items = data.load("mgt-icml").items([data.load_covariate("subreddit")])
    assert cloze_query(items[0]).display_text() == "___ was a child. GlobalOffensive."


def test_word_lists_are_the_papers() -> None:
    words = data.load("mgc", words="aaai").words
    forms = {group: [form[0] for name, form in words.forms if name == group] for group in words.groups}
    assert forms == {
        "female": ["She", "Her", "Female", "she", "her", "female"],
        "male": ["He", "Him", "His", "Male", "he", "him", "his", "male"],
        "neutral": ["They", "they"],
    }
    icml = data.load("mgc", words="icml").words
    assert len(icml.forms) == 11 + 12  # `her` answers both `him` and `his`
    assert icml.groups == ("female", "male")
