"""What `--limit` leaves of a design: how many sentences and values, and which."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from undertow.challenge import NONE

FEWEST_SENTENCES, FEWEST_VALUES = 6, 8
"""Below either nothing can be claimed: `undertow.stats.FEWEST_CLUSTERS`, and `undertow.stats.trend.FEWEST_VALUES`."""
GOOD_SENTENCES, GOOD_VALUES = 8, 12
"""What a limit should have before it has more of one; beyond, both grow in this proportion."""
NEAR_BALANCE, NEARLY_ALL = 0.85, 0.99
FEWEST_OF_A_LINE = 3
COUNTS: Mapping[str, str] = {
    "spurious-correlation": (
        "Ask so many items at most, one for each sentence, W value and prompt; sentences and values are kept in balance, and 48 for "
        "each W list and prompt (6 sentences x 8 values) are the least that can find anything. 0 for all."
    ),
    "task-specification": (
        "Ask about so many items, one for each sentence, W value and prompt; sentences are asked with every value. 0 for all."
    ),
    **dict.fromkeys(
        ("bias-diagnosis", "bias-identification", "bias-extraction", "bias-rephrasing"),
        "Ask about so many items, one for each document, wording, number of examples and draw; documents are asked in every such way. "
        "0 for all.",
    ),
    "occupation-checklist": (
        "Ask about so many items, one for each question about a pair of names, in every wording and order; first pairs are left out, "
        "then occupations. 0 for all."
    ),
}
"""What `--limit` counts, by audit."""


def balanced(limit: int, n_sentences: int, n_values: int) -> tuple[int, int]:
    """How many of the sentences and of the values are asked, each sentence with each value.

    The smaller of sentences / 8 and values / 12 is made as large as it can be; of the pairs that come near to that, it is the one
    that asks most. So a limit of 48 or more asks at least 6 sentences with 8 values, one of 96 or more at least 8 with 12, and what
    one side lacks goes to the other.

    Args:
        limit: the most items.
        n_sentences: how many sentences there are, at least one.
        n_values: how many values there are, at least one.

    Returns:
        Sentences and values. At least one sentence and three values (or all, where there are fewer), whatever the limit.
    """
    least = min(FEWEST_OF_A_LINE, n_values)
    most = max(1, min(n_sentences, limit // least))
    pairs = [(sentences, max(least, min(limit // sentences, n_values))) for sentences in range(1, most + 1)]

    def balance(pair: tuple[int, int]) -> float:
        return min(pair[0] / GOOD_SENTENCES, pair[1] / GOOD_VALUES)

    def has(pair: tuple[int, int]) -> tuple[bool, ...]:
        levels = ((FEWEST_SENTENCES, FEWEST_VALUES), (GOOD_SENTENCES, GOOD_VALUES))
        return tuple(pair[0] >= min(level[0], n_sentences) and pair[1] >= min(level[1], n_values) for level in levels)

    near = NEAR_BALANCE * max(map(balance, pairs))
    most_of = max(map(has, pairs))
    kept = [pair for pair in pairs if balance(pair) >= near and has(pair) == most_of]
    n_items = max(sentences * values for sentences, values in kept)
    return max(
        (pair for pair in kept if pair[0] * pair[1] >= NEARLY_ALL * n_items), key=lambda pair: (balance(pair), pair)
    )


def shares(limit: int, sizes: Sequence[int]) -> list[int]:
    """A limit divided among parts of a design [part]: alike, and what a small part does not need goes to the others.

    Args:
        limit: the most items of all parts together.
        sizes: how many items each part has [part].
    """
    left, given = limit, dict.fromkeys(range(len(sizes)), 0)
    for n_done, part in enumerate(sorted(given, key=lambda part: sizes[part])):
        given[part] = min(sizes[part], left // (len(sizes) - n_done))
        left -= given[part]
    return list(given.values())


def evenly(count: int, n: int) -> list[int]:
    """`count` places out of 0 to n - 1, evenly spread, the first and the last among them [count]."""
    return [int(place) for place in np.linspace(0, n - 1, min(count, n)).round()]


def spread(strata: Sequence[Hashable], count: int, seed: int) -> list[int]:
    """`count` units drawn at random, as evenly over the strata as they allow; places in `strata`, rising [count].

    No stratum gives a second unit before each has given one. A larger count with the same seed adds units and keeps all others.

    Args:
        strata: the stratum of each unit [unit], for example its cluster or its dimension.
        count: how many units.
        seed: of the draw.
    """
    rng = np.random.default_rng(seed)
    order = [int(unit) for unit in rng.permutation(len(strata))]
    turns: dict[Hashable, int] = {}
    turn_of = {}
    for unit in order:
        turn_of[unit] = turns[strata[unit]] = turns.get(strata[unit], -1) + 1
    return sorted(sorted(order, key=turn_of.__getitem__)[:count])


def smallest_useful(n_lists: int, n_prompts: int = 1) -> int:
    """The smallest limit with which something can be claimed: 6 sentences with 8 values of each list, by each prompt."""
    return FEWEST_SENTENCES * FEWEST_VALUES * n_lists * n_prompts


def fewest_values(scale: str) -> int:
    """The fewest values of a W list that a claim needs: 8 for a trend, 3 for a difference between values without order."""
    return FEWEST_OF_A_LINE if scale == NONE else FEWEST_VALUES


def too_few(asked: str, smallest: int, claims: str = "") -> str:
    """The sentence on a limit with which nothing can be claimed.

    Args:
        asked: what the limit leaves, for example "5 x 6 sentences and values of date".
        smallest: the smallest limit that would do.
        claims: of what nothing can be claimed, where it is not of the whole run, for example "of place".
    """
    nothing = f"nothing can be claimed {claims}" if claims else "this run can claim nothing"
    return f"--limit leaves {asked}, so {nothing}; the smallest useful limit is {smallest:,}."
