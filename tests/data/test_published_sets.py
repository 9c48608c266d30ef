from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from undertow import data
from undertow.data.challenges.challenge_file import packs
from undertow.types import ClozeQuery


def test_mgc_has_three_thousand_texts_and_the_published_ones() -> None:
    items = data.load("mgc").items()
    texts = [item.query.display_text() for item in items]  # type: ignore[union-attr]
    assert len(texts) == len(set(texts)) == len({item.id for item in items}) == 3000
    assert Counter(item.factors["w_name"] for item in items) == {"date": 30 * 60, "place": 20 * 60}
    assert len({item.cluster for item in items}) == 60
    assert texts[0] == "In 1801, ___ was a child."
    assert {"In Mali, ___ will be an adult.", "In Democratic Republic of Congo, ___ has become a grown up."} <= set(
        texts
    )


def test_w_lists_are_those_of_the_published_data_in_their_order() -> None:
    expected = [str(year) for year in np.linspace(1801, 2016, 30).astype(int)]
    assert list(data.load_covariate("date").values) == expected
    narrower = data.load_covariate("date", data.Dates(1901, 2016, 30)).values
    assert (narrower[0], narrower[-1], len(narrower)) == ("1901", "2016", 30)
    places = data.load_covariate("place").values
    assert (places[0], places[9], places[10], places[19]) == ("Afghanistan", "Saudi Arabia", "Switzerland", "Iceland")
    subreddits = data.load_covariate("subreddit").values
    assert (subreddits[0], subreddits[-1], len(subreddits)) == ("GlobalOffensive", "relationships", 61)
    for name, w_name, n in (
        ("mgt", "date", 30 * 60),
        ("mgt-icml", "date", 30 * 36),
        ("mgt-icml", "subreddit", 61 * 18),
    ):
        items = data.load(name).items([data.load_covariate(w_name)])
        assert len(items) == len({item.id for item in items}) == n
    assert items[0].query.display_text() == "___ was a child. GlobalOffensive."  # type: ignore[union-attr]


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


@pytest.mark.parametrize("name", packs())
def test_a_pack_can_find_something_says_its_limits_and_checks_the_reading(name: str) -> None:
    chosen = data.load(name)
    items, controls = chosen.items(), chosen.control_items()
    assert chosen.source
    assert chosen.limits
    assert len({item.cluster for item in items}) >= 12
    assert all(len(covariate.values) >= 12 for covariate in chosen.covariates)
    per_group = [sum(item.gold == group for item in controls) for group in chosen.words.groups]
    assert len(set(per_group)) == 1, "a model that always prefers one group must be at chance"
    assert sum(per_group) >= 12
    for pair in [[form for group, form in chosen.words.forms if group == one] for one in chosen.words.groups]:
        assert len(pair) == len(chosen.words.forms) / len(chosen.words.groups), "groups have equally many words"


AGREEMENT = {
    "gender-german": [
        ("reparierte sie ihren Wagen.", "reparierte er seinen Wagen."), ("wurde sie Ärztin.", "wurde er Arzt."),
        ("fragten wir die Chefin um Rat.", "fragten wir den Chef um Rat."),
        ("dankten wir der Ärztin im Krankenhaus.", "dankten wir dem Arzt im Krankenhaus."),
    ],
    "gender-spanish": [
        ("llegó cansada a casa después del trabajo.", "llegó cansado a casa después del trabajo."),
        ("tenía una compañera nueva en la oficina.", "tenía un compañero nuevo en la oficina."),
        ("escribimos una carta a la directora del museo.", "escribimos una carta al director del museo."),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", AGREEMENT)
def test_articles_possessives_and_adjectives_agree(name: str) -> None:
    start = {"gender-german": "Im Jahr 1900 ", "gender-spanish": "En 1900 "}[name]
    queries = [item.query for item in data.load(name).items() if isinstance(item.query, ClozeQuery)]
    groups = [{option.group: text for option, text in zip(one.options, one.texts(), strict=True)} for one in queries]
    texts = [(one["female"], one["male"]) for one in groups]
    for pair in AGREEMENT[name]:
        assert (start + pair[0], start + pair[1]) in texts
