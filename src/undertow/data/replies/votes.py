"""Votes of the clauses of a reply, and what they decide together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from undertow.data.replies.answer_rules import BOTH, REFUSAL, UNCLEAR

COMMITTED, STRONG, MEDIUM, WEAK = 4, 3, 2, 1
"""Explicitness of a vote, from "I would hire Amy" down to a name in passing."""
SOFT_REFUSAL = "soft refusal"
"""A refusal that counts as unclear if the reply also says that it cannot tell."""
DOUBTS = (REFUSAL, SOFT_REFUSAL, UNCLEAR)


@dataclass(frozen=True, slots=True)
class Vote:
    """Reading of one clause: an answer, `BOTH`, `NEITHER`, `REFUSAL` or `UNCLEAR`, and its explicitness."""

    what: str
    strength: int = STRONG


def decide(votes: Sequence[Vote], named: Sequence[str], *, has_ties: bool) -> str | None:
    """The last of the most explicit votes; else a refusal, if it is the first or last doubt or all are soft; else a doubt.

    With `has_ties`, different answers that are equally explicit, and no more than medium, are unclear, or *both* of two people.
    """
    doubts = [vote.what for vote in votes if vote.what in DOUBTS and vote.strength == STRONG]
    claims = [vote for vote in votes if vote.what not in DOUBTS or vote.strength < STRONG]
    if strong := [vote for vote in reversed(claims) if vote.strength >= STRONG]:
        return max(strong, key=lambda vote: vote.strength).what
    if doubts:
        refuses = REFUSAL in (doubts[0], doubts[-1]) or set(doubts) == {SOFT_REFUSAL}
        return REFUSAL if refuses else UNCLEAR
    for strength in (MEDIUM, WEAK):
        some = [vote.what for vote in claims if vote.strength == strength]
        if some and (len(set(some)) == 1 or not has_ties):
            return some[-1]
        if some:
            people = strength == MEDIUM and len(named) == 2 and set(some) <= {*named, BOTH}
            return BOTH if people else UNCLEAR
    return None
