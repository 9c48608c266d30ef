"""Control sentences, which determine their answer: a reference for the mass on other words in the same run.

*The female accountant said that ___ had sent out the same invoice again by mistake.* If most probability goes to other words here too,
a large mass on other words says little about the audit's sentences. No measure uses their answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from undertow import data
from undertow.types import ClozeQuery, Item, Option

CONTROL = "control"
"""Name of the part of the run with these items."""
OWN_CONTROL = "own control"
"""Name of the part with control sentences of a challenge file, which check whether a model reads its sentences."""
N_SENTENCES = 8
CASE = "nominative"


def controls(words: Mapping[str, Sequence[str]]) -> list[Item]:
    """Eight of the package's simplified sentences, half of them about women, with these words of each word group for the blank.

    None unless the words are in the published lists, with `she` and `he` in different groups.
    """
    owners = {form.lower(): group for group, forms in words.items() for form in forms}
    if not (data.are_pronouns(words) and {"she", "he"} <= owners.keys() and owners["she"] != owners["he"]):
        return []
    decided = data.load_sentences("simplified")
    subjects: dict[str, dict[str, ClozeQuery]] = {}
    for sentence in decided.sentences:
        one_blank = len(sentence.query.pieces) == 2 and sentence.factors["pronoun_case"] == CASE
        if one_blank and sentence.gold is not None:
            subjects.setdefault(sentence.cluster, {})[sentence.gold] = sentence.query
    names = list(subjects)
    # The sentences need the nominative; other lists have one case only.
    options = tuple(
        Option(group, (form,))
        for group, forms in words.items()
        for form in forms
        if form in NOMINATIVE or not set(forms) <= PRONOUNS
    )
    return [
        Item(
            id=f"{CONTROL}/{name}/{gold}",
            query=ClozeQuery(subjects[name][gold].pieces, options),
            factors={"part": CONTROL, "challenge": decided.name},
            cluster=name,
            gold=gold,
        )
        for number in range(N_SENTENCES)
        for name in [names[number * len(names) // N_SENTENCES]]
        for gold in [sorted(subjects[name])[number % 2]]
    ]


NOMINATIVE = frozenset({"she", "he", "they"})
PRONOUNS = NOMINATIVE | {"her", "him", "his", "them", "their"}
