"""Ready challenge files: what each must have, and the agreement of the German and the Spanish one."""

from __future__ import annotations

import pytest

from undertow import data
from undertow.data.templates.challenge_file import packs


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
