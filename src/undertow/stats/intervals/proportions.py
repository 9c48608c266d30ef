"""Wilson's score interval of a proportion."""

from __future__ import annotations

import math

Z_95 = 1.959963984540054
"""The standard normal quantile of a two-sided 95% interval."""


def wilson_interval(rate: float, n: float, quantile: float = Z_95) -> tuple[float, float]:
    """Wilson's score interval (Wilson 1927), which stays within 0 and 1 and is of use at 0 and 1 too.

    Args:
        rate: the share that was seen, in 0 to 1.
        n: independent items that it is of, above 0; an effective number of them may be a fraction.
        quantile: of the normal distribution, or of Student's where the variance itself is estimated; 0 or more.

    Returns:
        Its ends, low and high, in 0 to 1; the rate lies between them.

    Raises:
        ValueError: the rate is not in 0 to 1, or there are no items.
    """
    if not (0 <= rate <= 1 and n > 0):
        raise ValueError(f"a rate is in 0 to 1 and of more than 0 items; got {rate} of {n}")
    middle = (rate + quantile**2 / (2 * n)) / (1 + quantile**2 / n)
    half = quantile / (1 + quantile**2 / n) * math.sqrt(rate * (1 - rate) / n + quantile**2 / (4 * n**2))
    # Next to 0 and 1 the limit equals the rate on paper.
    return max(0.0, min(middle - half, rate)), min(1.0, max(middle + half, rate))
