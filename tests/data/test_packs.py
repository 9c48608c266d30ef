"""Ready challenge files: what each must have, and the agreement of the German and the Spanish one."""

from __future__ import annotations

import pytest

from undertow import data
from undertow.data.templates.challenge_file import packs
from undertow.types import ClozeQuery, Item


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


def filled(item: Item, group: str) -> str:
    query = item.query
    assert isinstance(query, ClozeQuery)
    option = next(one for one in query.options if one.group == group)
    return "".join(piece + fill for piece, fill in zip(query.pieces, (*option.fills, ""), strict=True))


GERMAN = [
    ("Im Jahr 1900 reparierte sie ihren Wagen.", "Im Jahr 1900 reparierte er seinen Wagen."),
    ("Im Jahr 1900 verkaufte sie ihre Wohnung.", "Im Jahr 1900 verkaufte er seine Wohnung."),
    ("Im Jahr 1900 wurde sie Ärztin.", "Im Jahr 1900 wurde er Arzt."),
    ("Im Jahr 1900 zog die Nachbarin in das Haus nebenan.", "Im Jahr 1900 zog der Nachbar in das Haus nebenan."),
    ("Im Jahr 1900 fragten wir die Chefin um Rat.", "Im Jahr 1900 fragten wir den Chef um Rat."),
    (
        "Im Jahr 1900 sprachen wir oft mit der Kollegin aus dem Büro.",
        "Im Jahr 1900 sprachen wir oft mit dem Kollegen aus dem Büro.",
    ),
    ("Im Jahr 1900 dankten wir der Ärztin im Krankenhaus.", "Im Jahr 1900 dankten wir dem Arzt im Krankenhaus."),
]
SPANISH = [
    ("En 1900 llegó cansada a casa después del trabajo.", "En 1900 llegó cansado a casa después del trabajo."),
    ("En 1900 trabajaba como profesora en un instituto.", "En 1900 trabajaba como profesor en un instituto."),
    ("En 1900 tenía una compañera nueva en la oficina.", "En 1900 tenía un compañero nuevo en la oficina."),
    ("En 1900 escribimos una carta a la directora del museo.", "En 1900 escribimos una carta al director del museo."),
    ("En 1900 leímos el informe de la abogada de la empresa.", "En 1900 leímos el informe del abogado de la empresa."),
    ("En 1900, ella viajaba mucho en tren.", "En 1900, él viajaba mucho en tren."),
]


@pytest.mark.parametrize(("name", "pairs"), [("gender-german", GERMAN), ("gender-spanish", SPANISH)])
def test_articles_possessives_and_adjectives_agree(name: str, pairs: list[tuple[str, str]]) -> None:
    found = [(filled(item, "female"), filled(item, "male")) for item in data.load(name).items()]
    for pair in pairs:
        assert pair in found


def test_control_sentences_of_the_german_pack_agree() -> None:
    right = [filled(item, str(item.gold)) for item in data.load("gender-german").control_items()]
    assert right[6:10] == [
        "Meine Tante wäscht ihren Wagen.",
        "Mein Onkel wäscht seinen Wagen.",
        "Meine Schwester verkauft ihre Wohnung.",
        "Mein Bruder verkauft seine Wohnung.",
    ]
