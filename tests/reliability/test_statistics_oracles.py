"""Statistics against those of scipy and statsmodels, and against formulas in closed form, on random data.

What `tests/stats` compares already (multiplicity, power, the band of a line, polynomials) is not repeated here.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import sacrebleu
import statsmodels.api as sm
from numpy.typing import NDArray
from scipy import optimize, stats
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.sandwich_covariance import cov_cluster

from undertow.stats import calibration
from undertow.stats.anova import one_way
from undertow.stats.classification import agreement, roc
from undertow.stats.intervals import cluster_bootstrap, jackknife, multiway_cluster
from undertow.stats.intervals.bounded_mean import wilson_interval
from undertow.stats.regression import least_squares, logistic, trend
from undertow.stats.significance import paired_differences, sign_flip

pytestmark = pytest.mark.resamples

Floats = NDArray[np.float64]


@pytest.fixture(params=range(4))
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# Lines and correlations.


def test_a_line_is_that_of_ordinary_least_squares(seed: int) -> None:
    x = rng(seed).normal(1900, 40, 25)
    y = 0.3 * x + rng(seed + 10).normal(0, 20, 25)
    ours = least_squares.fit_line(x, y)
    theirs = sm.OLS(y, sm.add_constant(x)).fit()
    assert (ours.intercept, ours.slope) == pytest.approx(tuple(theirs.params))
    assert (ours.slope_low, ours.slope_high) == pytest.approx(tuple(theirs.conf_int()[1]))
    assert ours.residual_sd == pytest.approx(math.sqrt(theirs.mse_resid))
    assert ours.r**2 == pytest.approx(theirs.rsquared)
    correlated = stats.pearsonr(x, y)
    assert (ours.r_low, ours.r_high) == pytest.approx(tuple(correlated.confidence_interval()))
    slopes, rs = least_squares.fit_rows(x, y[np.newaxis])
    assert (slopes[0], rs[0]) == pytest.approx((ours.slope, correlated.statistic))


def test_the_uneven_error_of_a_calibration_is_hc3(seed: int) -> None:
    x = np.repeat([0.0, 1, 2, 3], 5)
    y = x + rng(seed).normal(0, 0.05 + 0.4 * x)
    ours = calibration.calibrate(x, y, np.zeros(20), np.full(20, math.inf)).slope
    theirs = sm.OLS(y, sm.add_constant(x)).fit()
    error = max(theirs.bse[1], theirs.get_robustcov_results("HC3").bse[1])
    assert (ours.high - ours.low) / 2 == pytest.approx(stats.t.ppf(0.975, 18) * error)


def test_the_error_of_a_slope_over_sentences_is_the_cluster_robust_error(seed: int) -> None:
    """Of a balanced design: that of the sandwich, which has no correction for the number of clusters."""
    n_clusters, n_w = 40, 8
    x = np.arange(n_w)
    y = rng(seed).normal(0, 3, (n_clusters, 1)) + rng(seed + 1).normal(0.5, 0.7, (n_clusters, 1)) * x
    y = y + rng(seed + 2).normal(0, 2, y.shape)
    found = trend.cluster_summary(x, y[None], np.ones((1, *y.shape)))
    fitted = sm.OLS(y.ravel(), sm.add_constant(np.tile(x, n_clusters))).fit()
    sandwich = cov_cluster(fitted, np.repeat(np.arange(n_clusters), n_w), use_correction=False)
    assert found.slope_variance[0] == pytest.approx(sandwich[1, 1] * n_clusters / (n_clusters - 1))


def test_a_trend_is_no_surer_than_where_its_noise_is_known(seed: int) -> None:
    """Where neighbours share nothing and the size of the noise is known well: generalised least squares of known variance."""
    x = np.arange(12.0)
    y = rng(seed).normal(0, 2, 12) + 0.3 * x
    white, spread = 4.0, 4.0 / ((x - x.mean()) ** 2).sum()
    least = trend.trend(x, trend.ClusterSummary(y[None], *np.array([[white], [spread], [1e9], [1e9]])))
    theirs = sm.GLS(y, sm.add_constant(x), sigma=white).fit(cov_type="fixed scale")
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
    weights = cluster_bootstrap.cluster_weights(160, 4000, rng(1))
    draws = roc.auroc_draws(scores, positive, np.arange(160), weights)
    assert draws.std() == pytest.approx(math.sqrt(variance), rel=0.08)


def test_the_p_of_an_area_is_mann_whitneys_where_all_is_one_cluster(seed: int) -> None:
    positive = np.arange(16) < 8
    scores = rng(seed).normal(0, 1, 16) + 0.9 * positive
    ours = roc.auroc_p_value(scores, positive, np.zeros(16), 20_000, rng(2))
    exact = stats.mannwhitneyu(scores[positive], scores[~positive], method="exact").pvalue
    assert ours == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000) + 1e-4)


def test_a_penalised_logistic_fit_minimises_what_it_says(seed: int) -> None:
    x = rng(seed).normal(0, [1, 50, 0.01], (60, 3))
    y = rng(seed + 1).random(60) < 1 / (1 + np.exp(-x[:, 0] - x[:, 1] / 50))
    ours = logistic.fit_logistic(x, y)
    standard = sm.add_constant((x - x.mean(axis=0)) / x.std(axis=0))
    weights = np.where(y, 0.5 / y.mean(), 0.5 / (1 - y.mean()))

    def loss(coefficients: Floats) -> float:
        odds = standard @ coefficients
        return float(weights @ (np.logaddexp(0, odds) - y * odds) + coefficients[1:] @ coefficients[1:] / 2)

    found = optimize.minimize(loss, np.zeros(4), tol=1e-12).x
    assert [ours.intercept, *ours.slopes] == pytest.approx(found.tolist(), abs=1e-4)


# Rates, means and groups.


@pytest.mark.parametrize(("hits", "n"), [(0, 5), (1, 7), (13, 40), (40, 40), (999, 1000)])
def test_intervals_of_rates(hits: int, n: int) -> None:
    assert wilson_interval(hits / n, n) == pytest.approx(proportion_confint(hits, n, method="wilson"))
    exact = calibration.share([True] * hits + [False] * (n - hits))
    assert (exact.low, exact.high) == pytest.approx(proportion_confint(hits, n, method="beta"), abs=1e-12)


def test_the_mean_over_models_is_students(seed: int) -> None:
    values = rng(seed).normal(3, 2, 9)
    found = calibration.mean_over_models(values)
    expected = stats.t.interval(0.95, 8, loc=values.mean(), scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected)


def test_one_way_is_an_analysis_of_variance(seed: int) -> None:
    group = rng(seed).integers(0, 4, 40)
    y = rng(seed + 1).normal(0, 1, 40) + 0.4 * group
    ours = one_way(y, group)
    theirs = stats.f_oneway(*[y[group == one] for one in range(4)])
    assert ours.p == pytest.approx(theirs.pvalue)
    table = anova_lm(sm.OLS.from_formula("y ~ C(group)", pd.DataFrame({"y": y, "group": group})).fit())
    assert ours.share == pytest.approx(table["sum_sq"].iloc[0] / table["sum_sq"].sum())


def test_a_mean_of_a_crossed_design_has_the_two_way_sandwich(seed: int) -> None:
    """Where rows and columns both matter, the variance is that of the analysis of variance, about the mean of the sample."""
    n_rows, n_columns = 12, 15
    y = rng(seed).normal(0, 2, (n_rows, 1)) + rng(seed + 1).normal(0, 2, (1, n_columns))
    y = y + rng(seed + 2).normal(0, 1, (n_rows, n_columns))
    rows, columns = np.indices(y.shape)
    found = multiway_cluster.ratio_interval(y.ravel(), np.ones(y.size), rows.ravel(), columns.ravel(), bounded=False)
    by_row, by_column = (stats.sem(y.mean(axis=axis)) ** 2 for axis in (1, 0))
    by_cell = y.var(ddof=1) / y.size
    variance = by_cell + (by_row - by_cell) / (1 - 1 / n_columns) + (by_column - by_cell) / (1 - 1 / n_rows)
    parts = [(by_row, n_rows - 1), (by_column, n_columns - 1), (by_cell, y.size - 1)]
    df = variance**2 / sum(part**2 / free for part, free in parts)
    assert found.value == pytest.approx(y.mean())
    assert (found.high - found.low) / 2 == pytest.approx(stats.t.ppf(0.975, df) * math.sqrt(variance), rel=1e-6)


# Differences.


def test_the_jackknife_of_a_mean_is_its_standard_error(seed: int) -> None:
    values = rng(seed).normal(0, 1, 14)
    without = (values.sum() - values) / 13
    variance, _ = jackknife.jackknife_variance([values.mean()], without[:, None])
    assert math.sqrt(variance[0]) == pytest.approx(stats.sem(values))
    low, high = jackknife.jackknife_interval([values.mean()], without[:, None])
    assert (low[0], high[0]) == pytest.approx(stats.t.interval(0.95, 13, loc=values.mean(), scale=stats.sem(values)))


def test_a_paired_difference_of_means_is_students_and_its_p_that_of_flipped_signs(seed: int) -> None:
    one, other = rng(seed).normal(0, 1, (2, 10))
    gap = other - one + 0.6
    without = (gap.sum() - gap) / 9
    found = paired_differences.paired_errors(
        [gap.mean()], [paired_differences.JackknifeReplicates(without[:, None], np.ones((10, 1), dtype=bool))]
    )
    assert (found.low[0], found.high[0]) == pytest.approx(tuple(stats.ttest_1samp(gap, 0).confidence_interval()))
    flipped = stats.permutation_test((gap, np.zeros(10)), lambda a, b: (a - b).mean(), permutation_type="samples",
                                     n_resamples=10_000)  # fmt: skip
    assert found.p[0] == pytest.approx(flipped.pvalue)
    sides = [(side[:, None], np.ones((10, 1))) for side in (gap, np.zeros(10))]
    assert sign_flip.sign_flip_pvalues(sides[0], sides[1])[0] == pytest.approx(flipped.pvalue)


def test_the_bootstrap_of_a_mean_over_documents_is_its_standard_error(seed: int) -> None:
    values = (rng(seed).random((120, 1)) < 0.3).astype(float)
    found = agreement.mean_over_cells(values, seed)
    ends = values.mean() + np.array([-1.96, 1.96]) * values.std() / math.sqrt(120)
    assert (found.low, found.high) == pytest.approx(tuple(ends), abs=0.012)


# Agreement.


def test_f1_is_the_harmonic_mean_of_precision_and_recall(seed: int) -> None:
    gold, said = rng(seed).integers(0, 3, (2, 50))
    found = agreement.f1_over_cells(gold, said[:, None], 3, None, seed).value
    each = []
    for label in range(3):
        hit = np.sum((gold == label) & (said == label))
        each.append(stats.hmean([hit / np.sum(said == label), hit / np.sum(gold == label)]))
    assert found == pytest.approx(np.mean(each))
    counts = agreement.confusion(gold, said[:, None], 3)
    assert counts[:, :3].tolist() == pd.crosstab(gold, said).to_numpy().tolist()


def test_corpus_bleu_is_sacrebleus(seed: int) -> None:
    words = np.array(["the", "tea", "was", "cold", "and", "nobody", "minded", "but", "baker", "who", "made", "it"])
    drawn = rng(seed)
    answers = [" ".join(drawn.choice(words, drawn.integers(4, 12))) for _ in range(8)]
    references = [" ".join(drawn.choice(words, drawn.integers(4, 12))) for _ in range(8)]
    theirs = sacrebleu.corpus_bleu(answers, [references])
    totals = [theirs.sys_len, theirs.ref_len, *theirs.counts, *theirs.totals]
    assert float(agreement.corpus_bleu(totals)) == pytest.approx(theirs.score)
