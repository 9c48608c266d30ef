"""What a design could have found, so that "nothing found" means something. Knows nothing about what was measured."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

from undertow.stats.doubles import usable


def detectable_slope(x: ArrayLike, residual_sd: float, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest |slope| that the two-sided t test finds with the given power.

    Args:
        x: the design, NaN left out [point].
        residual_sd: residual standard error of y around its line, in units of y.
        power: probability of finding a slope of this size, above `alpha`.
        alpha: two-sided level of the test.

    Returns:
        |slope| in units of y per unit of x; NaN below three points, for a constant x or an unknown residual.

    Raises:
        ValueError: not 0 < alpha < power < 1.
    """
    if not 0 < alpha < power < 1:
        raise ValueError(f"need 0 < alpha < power < 1; got alpha {alpha} and power {power}")
    xs = usable(x)
    xs, sd = xs[~np.isnan(xs)], float(usable(residual_sd))
    if len(xs) < 3 or np.ptp(xs) == 0 or math.isnan(sd):
        return math.nan
    # slope / (residual_sd / sqrt(sum of squares of x)) is the noncentrality of its t statistic.
    standard_error = sd / math.sqrt(float(np.sum((xs - xs.mean()) ** 2)))
    return _noncentrality(len(xs) - 2, power, alpha) * standard_error


@cache
def _noncentrality(degrees: int, power: float, alpha: float) -> float:
    """The noncentrality at which a two-sided t test reaches the power."""
    threshold = float(stats.t.isf(alpha / 2, degrees))

    def shortfall(noncentrality: float) -> float:
        above = float(stats.nct.sf(threshold, degrees, noncentrality))
        below = float(stats.nct.cdf(-threshold, degrees, noncentrality))
        # scipy gives NaN for the far tail where it is too small to represent.
        return power - above - (0.0 if math.isnan(below) else below)

    upper = 1.0
    while shortfall(upper) > 0:
        upper *= 2
    return float(optimize.brentq(shortfall, 0.0, upper))
