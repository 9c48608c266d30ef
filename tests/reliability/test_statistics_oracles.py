"""Statistics against those of scipy and statsmodels, and against formulas in closed form, on random data.

What `tests/stats` compares already (multiplicity, power, the band of a line, polynomials) is not repeated here.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from statsmodels.regression.linear_model import GLS, OLS
from statsmodels.tools import add_constant

from undertow.stats import calibration
from undertow.stats.classification import roc
from undertow.stats.intervals import cluster_errors
from undertow.stats.regression import trend

pytestmark = pytest.mark.resamples

Floats = NDArray[np.float64]


@pytest.fixture(params=range(4))
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_uneven_error_of_a_calibration_is_hc3(seed: int) -> None:
    x = np.repeat([0.0, 1, 2, 3], 5)
    y = x + rng(seed).normal(0, 0.05 + 0.4 * x)
    ours = calibration.calibrate(x, y, np.zeros(20), np.full(20, math.inf)).slope
    theirs = OLS(y, add_constant(x)).fit()
    error = max(theirs.bse[1], theirs.get_robustcov_results("HC3").bse[1])
    assert (ours.high - ours.low) / 2 == pytest.approx(stats.t.ppf(0.975, 18) * error)


def test_a_trend_is_no_surer_than_where_its_noise_is_known(seed: int) -> None:
    """Where neighbours share nothing and the size of the noise is known well: generalised least squares of known variance."""
    x = np.arange(12.0)
    y = rng(seed).normal(0, 2, 12) + 0.3 * x
    white, spread = 4.0, 4.0 / ((x - x.mean()) ** 2).sum()
    least = trend.trend(x, trend.ClusterSummary(y[None], *np.array([[white], [spread], [1e9], [1e9]])))
    theirs = GLS(y, add_constant(x), sigma=white).fit(cov_type="fixed scale")
    assert least.slope[0] == pytest.approx(theirs.params[1])
    # Noise of the values may be there besides, so that the interval is no narrower.
    assert least.high[0] - least.slope[0] >= stats.norm.ppf(0.975) * theirs.bse[1] * (1 - 1e-6)


# Detection.


def delong(scores: Floats, positive: NDArray[np.bool_]) -> tuple[float, float]:
    """AUROC and its variance by DeLong, DeLong and Clarke-Pearson 1988, from placements."""
    won = (scores[positive][:, None] > scores[~positive]) + 0.5 * (scores[positive][:, None] == scores[~positive])
    variance = won.mean(axis=1).var(ddof=1) / positive.sum() + won.mean(axis=0).var(ddof=1) / (~positive).sum()
    return float(won.mean()), float(variance)


def test_the_area_is_mann_whitneys_and_its_bootstrap_delongs(seed: int) -> None:
    """Sentences that are clusters of their own: the interval is DeLong's, within what a bootstrap of both kinds adds."""
    positive = np.arange(160) % 2 == 0
    scores = np.round(rng(seed).normal(0, 1, 160) + 0.8 * positive, 1)
    area, variance = delong(scores, positive)
    assert roc.auroc(scores, positive) == pytest.approx(area)
    u = stats.mannwhitneyu(scores[positive], scores[~positive]).statistic
    assert area == pytest.approx(u / (80 * 80))
    weights = cluster_errors.cluster_weights(160, 4000, rng(1))
    draws = roc.auroc_draws(scores, positive, np.arange(160), weights)
    assert draws.std() == pytest.approx(math.sqrt(variance), rel=0.08)
