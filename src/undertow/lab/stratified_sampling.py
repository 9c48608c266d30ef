"""Drawing by quota: chance decides which member, and not how many of each kind.

Arrays in, arrays out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def stratified_uniform(group: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Numbers from 0 to 1, uniform each, that are spread evenly within each group: one in each of as many equal parts as it has members.

    Sorted by them, any stretch of all members holds each group in proportion; cut at a share, each group is cut at it, but for one
    member.

    Args:
        group: which group each is of, from 0 on [member].
        rng: source of randomness.

    Returns:
        The numbers [member].
    """
    order = np.lexsort((rng.random(len(group)), group))
    sizes = np.bincount(group)
    first = np.cumsum(sizes) - sizes
    part = np.empty(len(group))
    part[order] = np.arange(len(group)) - first[group[order]]
    numbers: NDArray[np.float64] = (part + rng.random(len(group))) / sizes[group]
    return numbers
