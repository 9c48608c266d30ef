"""Planted corpora: what is known of them by hand, that the texts say what was drawn, and that held-out frames are held out."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from helpers.file_refusal import assert_refused
from undertow.lab.planted_corpus import (
    Sentence,
    drift_challenge,
    exact_losses,
    judged_sentences,
    realised_slopes,
    sentence_challenge,
    write_about,
)
from undertow.lab.planted_population import Access, People, PlantedTruth, World, draw_people
from undertow.lab.settings import SentenceOptions

WORLD = World(tuple(str(year) for year in range(1801, 1831)), tuple(f"Town{number}" for number in range(20)))
SMALL = World(("1801", "1802", "1803"), ("Ayr", "Bam", "Cork"))


def sentences(access: Access, n_people: int = 2_000, seed: int = 1, **how: object) -> list[Sentence]:
    return write_about(draw_people(access, WORLD, n_people, seed), WORLD, SentenceOptions(seed, **how))  # type: ignore[arg-type]


def realised(people: People) -> PlantedTruth:
    """The shares as they came out among these people; who was not selected is not among them."""
    joint = np.zeros((len(WORLD.dates), len(WORLD.places), 2))
    np.add.at(joint, (people.date, people.place, np.where(people.female, 0, 1)), 1)
    return PlantedTruth(joint / joint.sum(), np.nan)


def test_the_linear_access_plants_its_strength() -> None:
    known = PlantedTruth.from_world(Access(strength=0.58), WORLD)
    assert known.by_date == pytest.approx(0.5 + 0.58 * (np.arange(30) / 29 - 0.5))
    assert known.by_place == pytest.approx(np.full(20, 0.5))
    assert known.overall == pytest.approx(0.5)
    assert known.selected_share == pytest.approx(0.5)
    assert known.slopes() == pytest.approx({"date": 100 * 0.58 / 29, "place": 0.0})


def test_bayes_by_hand() -> None:
    # Women are kept always at the last date and half the time before, men a quarter of the time: 2/3, 2/3, 4/5.
    access = Access("where(gender > 0, where(date > 0.9, 1, 0.5), 0.25)")
    known = PlantedTruth.from_world(access, SMALL)
    assert known.by_date == pytest.approx([2 / 3, 2 / 3, 4 / 5])
    assert known.by_both == pytest.approx(np.repeat([[2 / 3], [2 / 3], [4 / 5]], 3, axis=1))
    kept = np.array([0.75, 0.75, 1.25])
    assert known.overall == pytest.approx((0.5 + 0.5 + 1.0) / kept.sum())
    assert known.selected_share == pytest.approx(kept.mean() / 2)
    assert known.slopes()["date"] == pytest.approx(100 * (4 / 5 - 2 / 3) / 2)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("0.5 + age", "there is no 'age'"), ("2 * date", "comes to 1.0"), ("0.5 * normal()", "leave the noise out"),
        ("0 * date", "keeps nobody"), ("log(date)", "not a probability"), ("0.5 +", "is not an expression"),
    ],
)  # fmt: skip
def test_what_is_no_access_is_refused(expression: str, said: str) -> None:
    assert_refused((said,), PlantedTruth.from_world, Access(expression), WORLD)


@pytest.mark.parametrize("strength", [-0.65, 0.0, 0.65])
def test_people_and_their_sentences_are_drawn_by_quota(strength: float) -> None:
    """So that no texts lean by chance: of 6,000 drawn independently, slopes would be some 0.07 from what they should be."""
    access = Access(strength=strength)
    people = draw_people(access, WORLD, 6_000, 3)
    known = PlantedTruth.from_world(access, WORLD)
    exact, drawn = known.slopes(), realised(people).slopes()
    assert np.abs(realised(people).by_date - known.by_date).max() < 0.03
    assert drawn["date"] == pytest.approx(exact["date"], abs=0.01)
    assert drawn["place"] == pytest.approx(exact["place"], abs=0.03)
    said = realised_slopes(write_about(people, WORLD, SentenceOptions(3)), WORLD)
    assert said["date"] == pytest.approx(exact["date"], abs=0.04)
    assert said["place"] == pytest.approx(exact["place"], abs=0.03)
    # In random order all the same: a tokenizer is trained on the first of them.
    assert len(set(people.date[:200])) > 25
    assert people.female[:1_000].mean() == pytest.approx(0.5, abs=0.06)


def test_texts_say_what_was_drawn() -> None:
    people = draw_people(Access(strength=0.5), WORLD, 1_000, 2)
    said = write_about(people, WORLD, SentenceOptions(2))
    assert len(said) == 4_000
    assert [one.person for one in said] == np.repeat(np.arange(1_000), 4).tolist()
    for one in said:
        date, place = WORLD.dates[people.date[one.person]], WORLD.places[people.place[one.person]]
        assert (one.date >= 0) == (date in one.text)
        assert (one.place >= 0) == bool(re.search(rf"\b{place}\b", one.text))
        subject = one.text[slice(*one.subject)].lower()
        assert one.pronoun == (subject in ("she", "he"))
        if one.pronoun:
            assert subject == ("she" if people.female[one.person] else "he")
        assert one.masked.count("___") == 1
        assert one.masked.replace("___", one.text[slice(*one.subject)]) == one.text
        assert one.cues_first == all(
            one.text.index(shown) < one.subject[0] for shown in (date, place) if re.search(rf"\b{shown}\b", one.text)
        )
    assert not {hole for one in said for hole in re.findall(r"[{}]", one.text)}


def test_a_gendered_noun_decides_and_a_bystander_does_not() -> None:
    said = [one for one in sentences(Access(strength=0.5), 4_000) if one.pronoun]
    feminine = re.compile(r"\b(woman|girl|lady|mother|daughter)\b")
    masculine = re.compile(r"\b(man|boy|gentleman|father|son)\b")
    decided = [one for one in said if one.decided]
    assert decided
    assert all(bool(feminine.search(one.text)) == one.female != bool(masculine.search(one.text)) for one in decided)
    beside = [one for one in said if not one.decided and (feminine.search(one.text) or masculine.search(one.text))]
    alike = np.mean([bool(feminine.search(one.text)) == one.female for one in beside])
    assert len(beside) > 300
    assert abs(alike - 0.5) < 0.1


def test_a_seed_gives_the_same_texts_and_another_gives_others() -> None:
    once, again, other = (sentences(Access(strength=0.5), 50, seed) for seed in (1, 1, 2))
    assert once == again != other


def test_losses_by_hand() -> None:
    people = draw_people(Access(strength=0.8), SMALL, 3_000, 1)
    said = write_about(people, SMALL, SentenceOptions(1))
    known = PlantedTruth.from_world(Access(strength=0.8), SMALL)
    losses = exact_losses(said, known)
    asked = judged_sentences(said)
    assert losses.n == len(asked) > 500
    assert all(one.pronoun and not one.decided and one.cues_first for one in asked)
    by_hand = []
    for one in asked:
        share = 0.5 + 0.8 * (one.date / 2 - 0.5) if one.date >= 0 else 0.5
        by_hand.append(-np.log(share if one.female else 1 - share))
    assert losses.floor == pytest.approx(np.mean(by_hand))
    assert losses.ignorant == pytest.approx(np.log(2))
    assert losses.floor < losses.ignorant


@pytest.mark.parametrize("challenge", [drift_challenge, sentence_challenge])
def test_held_out_frames_are_in_no_corpus_and_hold_no_new_word(challenge: Callable[[], str]) -> None:
    said = sentences(Access(), 8_000)
    corpus = {re.sub(r"\b(18\d\d|Town\d+)\b", "W", one.masked).lower() for one in said}
    words = {word for text in corpus for word in re.findall(r"[a-z]+", text)}
    table = tomllib.loads(challenge())
    slots: dict[str, list[str]] = table["slots"]
    templates = [entry if isinstance(entry, str) else f"In {{w}}, {entry['text']}" for entry in table["templates"]]
    assert len(templates) == len(set(templates)) >= 6
    for template in templates:
        used = {slot: levels for slot, levels in slots.items() if f"{{{slot}}}" in template}
        for filling in product(*used.values()):
            text = template.format(w="W", blank="___", **dict(zip(used, filling, strict=True))).lower()
            assert text not in corpus
            assert set(re.findall(r"[a-z]+", text)) <= words
    # The same search finds what is not held out.
    assert "in w, a friend tells that ___ kept bees." in corpus or "in w, ___ lost a coat." in corpus


def test_sentences_of_known_specification() -> None:
    rows = tomllib.loads(sentence_challenge())["templates"]
    decided = [row["factors"]["well_specified"] for row in rows]
    assert 0 < sum(decided) < len(rows)
    for row in rows:
        gold, text = row["factors"]["gold"], row["text"]
        assert (gold != "") == row["factors"]["well_specified"]
        if gold:
            assert text.startswith(f"the {{{gold}_noun}} ")
    assert any("_noun}" in row["text"] and not row["factors"]["well_specified"] for row in rows)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SentenceOptions(decided=0.8, trade=0.4), "at most 1 together"),
        (lambda: SentenceOptions(trades="random"), "got 'random'"),
    ],
)
def test_settings_that_make_no_corpus_are_refused(make: Callable[[], object], said: str) -> None:
    assert_refused((said,), make)
