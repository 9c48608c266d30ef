"""Least squares of y on a polynomial in x: a curve with its classical band, and a test.

A polynomial of degree 1 is the line of `stats.regression.least_squares`. Points are independent, with
equal variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike

from undertow.stats.arrays import Floats, as_floats, is_constant, t_quantile


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A fitted polynomial with its classical band at `level`.

    Attributes:
        r_squared: share of the variance of y that the curve explains; NaN if y is constant, or there is no curve.
        residual_sd: residual standard error, in units of y; NaN without residual degrees of freedom.
        level: confidence level of the band, in 0 to 1.
        centre, half_width: of the fitted x, which are scaled to -1 to 1.
        weights: of the Legendre polynomials of degree 0 to `degree` [term]; empty without a curve.
        root: R of the QR decomposition of the design matrix [term, term].
    """

    degree: int
    n: int
    r_squared: float
    residual_sd: float
    level: float
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
        half = t_quantile(self.n - self.degree - 1, self.level) * self.residual_sd * reach
        return self.at(x_new) - half, self.at(x_new) + half

    def _terms(self, x: Floats) -> Floats:
        """Legendre polynomials at x [point, term]; powers of x would be nearly collinear for a narrow range of years."""
        return np.asarray(legendre.legvander((x - self.centre) / self.half_width, self.degree), dtype=np.float64)


def fit_polynomial(x: ArrayLike, y: ArrayLike, degree: int, level: float = 0.95) -> Polynomial:
    """The least-squares polynomial of y [point] on x [point], without points that have NaN.

    It needs more distinct x than its degree (1 or more), and one point more for a band.
    """
    xs, ys = as_floats(x), as_floats(y)
    seen = np.isfinite(xs) & np.isfinite(ys)
    xs, ys = xs[seen], ys[seen]
    none = np.zeros(0)
    if len(np.unique(xs)) <= degree:
        return Polynomial(degree, len(xs), math.nan, math.nan, level, 0.0, 1.0, none, none)
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
        level=level,
        centre=centre,
        half_width=half_width,
        weights=np.linalg.solve(root, on_basis),
        root=root,
    )
