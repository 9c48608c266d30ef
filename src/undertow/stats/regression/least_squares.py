"""Ordinary least squares of y on x: one line with classical intervals, many lines at once, or a polynomial.

Points are independent, with equal variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike

from undertow.stats.arrays import ROUNDING_SHARE, Floats, as_floats, is_constant, t_quantile


@dataclass(frozen=True, slots=True)
class Line:
    """A fitted line with its classical 95% intervals.

    Attributes:
        slope, intercept: least squares estimates; NaN where x is constant.
        r: Pearson correlation; NaN where x or y is constant.
        slope_low, slope_high: t interval of the slope; NaN below three points.
        residual_sd: residual standard error, in units of y; NaN below three points.
        mean_x, sum_squares_x: the design, as far as the band needs it.
    """

    n: int
    slope: float = math.nan
    intercept: float = math.nan
    r: float = math.nan
    slope_low: float = math.nan
    slope_high: float = math.nan
    residual_sd: float = math.nan
    mean_x: float = math.nan
    sum_squares_x: float = math.nan

    def at(self, x: ArrayLike) -> Floats:
        """Fitted values at x [point]."""
        return self.intercept + self.slope * as_floats(x)

    def band(self, x: ArrayLike) -> tuple[Floats, Floats]:
        """Pointwise 95% band of the mean line at x: (low, high), each [point]; NaN below three points.

        This is the band that McMilin 2024 ("Underspecification in Language Modeling Tasks") shades.
        """
        from_mean = as_floats(x) - self.mean_x
        quantile = t_quantile(self.n - 2) if self.n > 2 else math.nan
        half = quantile * self.residual_sd * np.sqrt(1 / max(self.n, 1) + from_mean**2 / self.sum_squares_x)
        return self.at(x) - half, self.at(x) + half


def fit_line(x: ArrayLike, y: ArrayLike) -> Line:
    """The least-squares line of y [point] on x [point], without points that have NaN or overflow.

    A constant y has slope 0 and no r; two points have a line but no interval; with a constant x everything is NaN.
    """
    xs, ys = as_floats(x), as_floats(y)
    seen = np.isfinite(xs) & np.isfinite(ys)
    xs, ys, n = xs[seen], ys[seen], int(seen.sum())
    if n < 2 or is_constant(xs):
        return Line(n)
    mean_x = float(xs.mean())
    sum_squares_x = float(np.sum((xs - mean_x) ** 2))
    slope, intercept, r, residual_sd = 0.0, float(ys.mean()), math.nan, 0.0
    if not is_constant(ys):
        # The formulas of scipy.stats.linregress, without its checks and its p, which take most of its time.
        squares_x, products, _, squares_y = np.cov(xs, ys, bias=True).flat
        if squares_x and squares_y:
            r = min(max(float(products / np.sqrt(squares_x * squares_y)), -1.0), 1.0)
        slope = float(products / squares_x)
        intercept = float(ys.mean() - slope * xs.mean())
        if n > 2:
            residual_sd = float(np.sqrt((1 - r**2) * squares_y / squares_x / (n - 2))) * math.sqrt(sum_squares_x)
    residual_sd = residual_sd if n > 2 else math.nan
    half = t_quantile(n - 2) * residual_sd / math.sqrt(sum_squares_x) if n > 2 else math.nan
    return Line(n, slope, intercept, r, slope - half, slope + half, residual_sd, mean_x, sum_squares_x)


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


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A fitted polynomial with its classical 95% band.

    Attributes:
        r_squared: share of the variance of y that the curve explains; NaN if y is constant, or there is no curve.
        residual_sd: residual standard error, in units of y; NaN without residual degrees of freedom.
        centre, half_width: of the fitted x, which are scaled to -1 to 1.
        weights: of the Legendre polynomials of degree 0 to `degree` [term]; empty without a curve.
        root: R of the QR decomposition of the design matrix [term, term].
    """

    degree: int
    n: int
    r_squared: float
    residual_sd: float
    centre: float
    half_width: float
    weights: Floats
    root: Floats

    def at(self, x: ArrayLike) -> Floats:
        """Fitted values at x [point]; NaN without a curve."""
        x_new = as_floats(x)
        if not len(self.weights):
            return np.full_like(x_new, math.nan)
        return np.asarray(self._terms(x_new) @ self.weights, dtype=np.float64)

    def band(self, x: ArrayLike) -> tuple[Floats, Floats]:
        """Pointwise confidence band of the mean curve at x: (low, high), each [point].

        NaN without residual degrees of freedom.
        """
        x_new = as_floats(x)
        if not len(self.weights) or math.isnan(self.residual_sd):
            return np.full_like(x_new, math.nan), np.full_like(x_new, math.nan)
        # The variance of the curve at x is s^2 v' (V'V)^-1 v = s^2 |R^-T v|^2, with v the terms at x and V = QR the design matrix.
        reach = np.linalg.norm(np.linalg.solve(self.root.T, self._terms(x_new).T), axis=0)
        half = t_quantile(self.n - self.degree - 1) * self.residual_sd * reach
        return self.at(x_new) - half, self.at(x_new) + half

    def _terms(self, x: Floats) -> Floats:
        """Legendre polynomials at x [point, term]; powers of x would be nearly collinear for a narrow range of years."""
        return np.asarray(legendre.legvander((x - self.centre) / self.half_width, self.degree), dtype=np.float64)


def fit_polynomial(x: ArrayLike, y: ArrayLike, degree: int) -> Polynomial:
    """The least-squares polynomial of y [point] on x [point], without points that have NaN.

    It needs more distinct x than its degree (1 or more), and one point more for a band.
    """
    xs, ys = as_floats(x), as_floats(y)
    seen = np.isfinite(xs) & np.isfinite(ys)
    xs, ys = xs[seen], ys[seen]
    none = np.zeros(0)
    if len(np.unique(xs)) <= degree:
        return Polynomial(degree, len(xs), math.nan, math.nan, 0.0, 1.0, none, none)
    centre, half_width = float(xs.min() + xs.max()) / 2, float(np.ptp(xs)) / 2
    basis, root = np.linalg.qr(legendre.legvander((xs - centre) / half_width, degree))
    on_basis = basis.T @ ys
    left = ys - basis @ on_basis
    n_free = len(xs) - degree - 1
    spread = float(np.sum((ys - ys.mean()) ** 2))
    flat = is_constant(ys)
    squares_left = 0.0 if flat else float(left @ left)
    return Polynomial(
        degree=degree,
        n=len(xs),
        r_squared=math.nan if flat else 1 - squares_left / spread,
        residual_sd=math.sqrt(squares_left / n_free) if n_free else math.nan,
        centre=centre,
        half_width=half_width,
        weights=np.linalg.solve(root, on_basis),
        root=root,
    )
