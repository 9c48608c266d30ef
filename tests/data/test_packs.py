"""Ready challenge files: what each must have, and the agreement of the German and the Spanish one."""

from __future__ import annotations

import pytest

from undertow import data
from undertow.data.challenges.challenge_file import packs
from undertow.types import ClozeQuery


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
