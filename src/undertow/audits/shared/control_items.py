"""Control sentences: a few that decide their answer, in the same run, as a reference for the probability of other words.

*The female accountant said that ___ had sent out the same invoice again by mistake.* Where even there most of the probability goes to
other words, a large mass of other words says little. No measure uses their answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from undertow import data
from undertow.types import ClozeQuery, Item, Option

CONTROL = "control"
"""Part of the run that these items are."""
OWN_CONTROL = "own control"
"""The part that control sentences of a challenge file are: their answers show whether a model reads its sentences."""
N_SENTENCES = 8
CASE = "nominative"
SHE, HE = "she", "he"


def controls(words: Mapping[str, Sequence[str]]) -> list[Item]:
    """Eight of the package's simplified sentences, half of them of women, with these words to fill the blank.

    Args:
        words: forms of each word group of the audit.

    Returns:
        The items; none where the words are not the English pronouns, of which these sentences decide one.
    """
    if not _are_english_pronouns(words):
        return []
    decided = data.load_sentences("simplified")
    subjects: dict[str, dict[str, ClozeQuery]] = {}
    for sentence in decided.sentences:
        one_blank = len(sentence.query.pieces) == 2 and sentence.factors["pronoun_case"] == CASE
        if one_blank and sentence.gold is not None:
            subjects.setdefault(sentence.cluster, {})[sentence.gold] = sentence.query
    names = list(subjects)
    # Of pronouns in several cases the nominative fits the sentences; of other lists all words do.
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


def _are_english_pronouns(words: Mapping[str, Sequence[str]]) -> bool:
    """Whether she is of one group and he of another, and all other words are among the published lists too."""
    owners = {form.lower(): group for group, forms in words.items() for form in forms}
    return data.are_pronouns(words) and owners.get(SHE, "") != owners.get(HE, "") and {SHE, HE} <= owners.keys()


NOMINATIVE = frozenset({"she", "he", "they"})
PRONOUNS = NOMINATIVE | {"her", "him", "his", "them", "their"}
