"""Ordinary least squares of y on x: one line with classical intervals, or many lines at once.

Points are independent, with equal variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from undertow.stats.arrays import ROUNDING_SHARE, Floats, as_floats, is_constant, t_quantile


@dataclass(frozen=True, slots=True)
class Line:
    """A fitted line with its classical intervals, all at `level`.

    Attributes:
        level: confidence level of every interval, in 0 to 1.
        slope, intercept: least squares estimates; NaN where x is constant.
        r: Pearson correlation; NaN where x or y is constant.
        slope_low, slope_high: t interval of the slope; NaN below three points.
        r_low, r_high: Fisher z interval of r, which is (-1, 1) for three points and NaN below.
        residual_sd: residual standard error, in units of y; NaN below three points.
        mean_x, sum_squares_x: the design, as far as the band needs it.
    """

    n: int
    level: float
    slope: float = math.nan
    intercept: float = math.nan
    r: float = math.nan
    slope_low: float = math.nan
    slope_high: float = math.nan
    r_low: float = math.nan
    r_high: float = math.nan
    residual_sd: float = math.nan
    mean_x: float = math.nan
    sum_squares_x: float = math.nan

    def at(self, x: ArrayLike) -> Floats:
        """Fitted values at x [point]."""
        return self.intercept + self.slope * as_floats(x)

    def band(self, x: ArrayLike) -> tuple[Floats, Floats]:
        """Pointwise confidence band of the mean line at x: (low, high), each [point]; NaN below three points.

        This is the band that McMilin 2024 ("Underspecification in Language Modeling Tasks") shades.
        """
        from_mean = as_floats(x) - self.mean_x
        quantile = t_quantile(self.n - 2, self.level) if self.n > 2 else math.nan
        half = quantile * self.residual_sd * np.sqrt(1 / max(self.n, 1) + from_mean**2 / self.sum_squares_x)
        return self.at(x) - half, self.at(x) + half


def fit_line(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> Line:
    """The least-squares line of y [point] on x [point], without points that have NaN or overflow.

    A constant y has slope 0 and no r; two points have a line but no interval; with a constant x everything is NaN.
    """
    xs, ys = as_floats(x), as_floats(y)
    seen = np.isfinite(xs) & np.isfinite(ys)
    xs, ys, n = xs[seen], ys[seen], int(seen.sum())
    if n < 2 or is_constant(xs):
        return Line(n, level)
    mean_x = float(xs.mean())
    sum_squares_x = float(np.sum((xs - mean_x) ** 2))
    slope, intercept, r, residual_sd = 0.0, float(ys.mean()), math.nan, 0.0
    r_low, r_high = math.nan, math.nan
    if not is_constant(ys):
        from scipy import stats

        fit = stats.linregress(xs, ys)
        slope, intercept, r = float(fit.slope), float(fit.intercept), float(fit.rvalue)
        residual_sd = float(fit.stderr) * math.sqrt(sum_squares_x)
        if n == 3:  # Fisher's z of three points has no standard error
            r_low, r_high = -1.0, 1.0
        elif n > 3:
            r_low, r_high = map(float, stats.pearsonr(xs, ys).confidence_interval(level))
    half = math.nan
    if n == 2:
        residual_sd = math.nan
    else:
        half = t_quantile(n - 2, level) * residual_sd / math.sqrt(sum_squares_x)
    return Line(
        n, level, slope, intercept, r, slope - half, slope + half, r_low, r_high, residual_sd, mean_x, sum_squares_x
    )


def fit_rows(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """Slope and Pearson r of every row of y [row, point] on one x [point]: two arrays [row].

    A NaN excludes its point from its own row only. Rows with fewer than three points or a constant x are
    NaN, because two points always lie on a line; a constant row has slope 0 and no r.
    """
    xs, ys = as_floats(x), as_floats(y)
    seen = np.isfinite(ys)
    n = np.count_nonzero(seen, axis=1)
    points = np.maximum(n, 1)
    known = np.where(seen, ys, 0.0)
    # Centre each row on its own points, because a missing point changes the mean of x too.
    from_mean_x = np.where(seen, xs - (seen @ xs / points)[:, np.newaxis], 0.0)  # [row, point]
    from_mean_y = np.where(seen, known - (known.sum(axis=1) / points)[:, np.newaxis], 0.0)
    pairs = ((from_mean_x, from_mean_x), (from_mean_y, from_mean_y), (from_mean_x, from_mean_y))
    squares_x, squares_y, products = (np.einsum("rp,rp->r", a, b) for a, b in pairs)
    flat = squares_y <= ROUNDING_SHARE**2 * np.einsum("rp,rp->r", known, known)
    squares_x[(n < 3) | (squares_x == 0)] = math.nan
    slope = np.where(flat, 0.0, products) / squares_x
    r = products / np.sqrt(squares_x) / np.sqrt(np.where(flat, math.nan, squares_y))
    return slope, np.clip(r, -1.0, 1.0)
