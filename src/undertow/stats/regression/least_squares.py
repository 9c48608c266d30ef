"""Ordinary least squares of y on x: one line with classical intervals, or many lines at once.

Points are independent, with equal variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from undertow.stats.numeric_range import usable

Floats = NDArray[np.float64]

# Means of equal numbers, summed in another order, differ by some 1e-16 of their size. Below this share the
# spread of y is taken for rounding: the line is flat, and no correlation is read out of noise in the last digit.
ROUNDING_SHARE = 1e-12


@dataclass(frozen=True, slots=True)
class Line:
    """A fitted line with its classical intervals, all at `level`.

    Attributes:
        slope, intercept: least squares estimates; NaN where x is constant.
        r: Pearson correlation; NaN where x or y is constant.
        slope_low, slope_high: t interval of the slope; NaN below three points.
        r_low, r_high: Fisher z interval of r, which is (-1, 1) for three points and NaN below.
        residual_sd: residual standard error, in units of y; NaN below three points.
        n: points behind the line.
        mean_x, sum_squares_x: the design, as far as the band needs it.
        level: confidence level of every interval, in 0 to 1.
    """

    slope: float
    intercept: float
    r: float
    slope_low: float
    slope_high: float
    r_low: float
    r_high: float
    residual_sd: float
    n: int
    mean_x: float
    sum_squares_x: float
    level: float

    def at(self, x: ArrayLike) -> Floats:
        """Fitted values at x [point]."""
        return self.intercept + self.slope * usable(x)

    def band(self, x: ArrayLike) -> tuple[Floats, Floats]:
        """Pointwise confidence band of the mean line at x: (low, high), each [point]; NaN below three points.

        This is the band that McMilin 2024 ("Underspecification in Language Modeling Tasks") shades.
        """
        x_new = usable(x)
        if math.isnan(self.residual_sd):
            return np.full_like(x_new, math.nan), np.full_like(x_new, math.nan)
        share = 1 / self.n + (x_new - self.mean_x) ** 2 / self.sum_squares_x
        half = _t_quantile(self.n, self.level) * self.residual_sd * np.sqrt(share)
        return self.at(x_new) - half, self.at(x_new) + half


def fit_line(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> Line:
    """The least squares line of y [point] on x [point], points with a NaN left out, or one too large to compute with.

    A constant y has slope 0 and no r; two points have a line but no interval; a constant x has nothing.

    Raises:
        ValueError: x and y are not two vectors of one length.
    """
    xs, ys = _seen_points(x, y)
    n = len(xs)
    if n < 2 or _is_constant(xs):
        return _no_line(n, level)
    mean_x = float(xs.mean())
    sum_squares_x = float(np.sum((xs - mean_x) ** 2))
    if _is_constant(ys):
        slope, intercept, r, residual_sd = 0.0, float(ys.mean()), math.nan, 0.0
    else:
        fit = stats.linregress(xs, ys)
        slope, intercept, r = float(fit.slope), float(fit.intercept), float(fit.rvalue)
        residual_sd = float(fit.stderr) * math.sqrt(sum_squares_x)
    if n == 2:
        residual_sd = math.nan
    half = _t_quantile(n, level) * residual_sd / math.sqrt(sum_squares_x)
    r_low, r_high = _fisher_interval(r, n, level)
    return Line(
        slope=slope,
        intercept=intercept,
        r=r,
        slope_low=slope - half,
        slope_high=slope + half,
        r_low=r_low,
        r_high=r_high,
        residual_sd=residual_sd,
        n=n,
        mean_x=mean_x,
        sum_squares_x=sum_squares_x,
        level=level,
    )


def fit_rows(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """Slope and Pearson r of every row of y [row, point] on one x [point]: two arrays [row].

    A NaN leaves its point out of its own row only. Rows with fewer than three points or a constant x are
    NaN, since two points always lie on a line; a constant row has slope 0 and no r.

    Raises:
        ValueError: the last axis of y is not as long as x.
    """
    xs, ys = usable(x), usable(y)
    if xs.ndim != 1 or ys.ndim != 2 or ys.shape[1] != len(xs):
        raise ValueError(f"x must be [point] and y [row, point]; got shapes {xs.shape} and {ys.shape}")
    seen = np.isfinite(ys)
    n = np.count_nonzero(seen, axis=1)
    points = np.maximum(n, 1)
    known = np.where(seen, ys, 0.0)
    # Every row is centred on the points that it saw, since a left-out point moves the mean of x too.
    from_mean_x = np.where(seen, xs - (seen @ xs / points)[:, np.newaxis], 0.0)  # [row, point]
    from_mean_y = np.where(seen, known - (known.sum(axis=1) / points)[:, np.newaxis], 0.0)
    squares_x, squares_y, products = _row_products(from_mean_x, from_mean_y)
    flat = squares_y <= ROUNDING_SHARE**2 * np.einsum("rp,rp->r", known, known)
    squares_x[(n < 3) | (squares_x == 0)] = math.nan
    slope = np.where(flat, 0.0, products) / squares_x
    r = products / np.sqrt(squares_x) / np.sqrt(np.where(flat, math.nan, squares_y))
    return slope, np.clip(r, -1.0, 1.0)


def _row_products(a: Floats, b: Floats) -> tuple[Floats, Floats, Floats]:
    """Row sums of a*a, b*b and a*b, each [row]."""
    return np.einsum("rp,rp->r", a, a), np.einsum("rp,rp->r", b, b), np.einsum("rp,rp->r", a, b)


def _seen_points(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    xs, ys = usable(x), usable(y)
    if xs.ndim != 1 or xs.shape != ys.shape:
        raise ValueError(f"x and y must be vectors of one length; got shapes {xs.shape} and {ys.shape}")
    seen = np.isfinite(xs) & np.isfinite(ys)
    return xs[seen], ys[seen]


def _no_line(n: int, level: float) -> Line:
    nan = math.nan
    return Line(nan, nan, nan, nan, nan, nan, nan, nan, n=n, mean_x=nan, sum_squares_x=nan, level=level)


def _is_constant(values: Floats) -> bool:
    """Whether values [point] differ by no more than rounding."""
    return float(np.ptp(values)) <= ROUNDING_SHARE * float(np.abs(values).max())


def _t_quantile(n: int, level: float) -> float:
    return float(stats.t.ppf((1 + level) / 2, n - 2)) if n > 2 else math.nan


def _fisher_interval(r: float, n: int, level: float) -> tuple[float, float]:
    """Interval of r by Fisher's z, whose standard error is 1 / sqrt(n - 3)."""
    if n < 3 or math.isnan(r):
        return math.nan, math.nan
    if n == 3:
        return -1.0, 1.0
    if abs(r) == 1:
        return r, r
    half = float(stats.norm.ppf((1 + level) / 2)) / math.sqrt(n - 3)
    z = math.atanh(r)
    return math.tanh(z - half), math.tanh(z + half)
