from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from undertow.stats.classification.roc import auroc
from undertow.stats.regression import logistic
from undertow.stats.regression.logistic import fit_logistic, held_out_draws, held_out_log_odds


def sample(seed: int, n: int = 60, n_features: int = 3, share: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Features of unlike scales, of which the first and the last say something: [observation, feature], [observation]."""
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < share
    features = rng.normal(0, 1, (n, n_features))
    features[:, 0] += positive
    features[:, -1] -= 0.5 * positive
    return features * 10.0 ** np.arange(n_features) + 7, positive


def best_coefficients(features: np.ndarray, positive: np.ndarray, penalty: float) -> np.ndarray:
    """Intercept, then a slope for each standardised feature, by a minimiser that knows nothing of the problem."""
    standard = (features - features.mean(axis=0)) / features.std(axis=0)
    signs = np.where(positive, 1.0, -1.0)
    # Each kind weighs one half of all.
    weights = np.where(positive, len(positive) / (2 * positive.sum()), len(positive) / (2 * (~positive).sum()))

    def loss(coefficients: np.ndarray) -> float:
        odds = coefficients[0] + standard @ coefficients[1:]
        log_loss = weights @ np.logaddexp(0, -signs * odds)
        return float(log_loss + penalty / 2 * (coefficients[1:] ** 2).sum())

    start = np.zeros(features.shape[1] + 1)
    return np.asarray(minimize(loss, start, method="BFGS", options={"gtol": 1e-7, "maxiter": 1000}).x)


@pytest.mark.parametrize("penalty", [1.0, 0.05, 30.0])
@pytest.mark.parametrize(("seed", "share"), [(0, 0.3), (1, 0.5), (2, 0.85)])
def test_the_fit_is_the_least_penalised_loss(seed: int, share: float, penalty: float) -> None:
    features, positive = sample(seed, share=share)
    fit = fit_logistic(features, positive, penalty)
    expected = best_coefficients(features, positive, penalty)
    np.testing.assert_allclose([fit.intercept, *fit.slopes], expected, atol=2e-5)
    standard = (features - features.mean(axis=0)) / features.std(axis=0)
    np.testing.assert_allclose(fit.log_odds(features), expected[0] + standard @ expected[1:], atol=1e-4)


def test_a_constant_feature_changes_nothing() -> None:
    features, positive = sample(5)
    with_constant = np.column_stack([features, np.full(len(features), 4.0)])
    fit = fit_logistic(with_constant, positive)
    assert fit.slopes[-1] == 0
    np.testing.assert_allclose(fit.log_odds(with_constant), fit_logistic(features, positive).log_odds(features))


@pytest.mark.parametrize("penalty", [1.0, 1e-4])
@pytest.mark.parametrize("farthest", [3, 3000])
def test_separable_data_stay_finite(farthest: float, penalty: float) -> None:
    x = np.concatenate([np.linspace(-3, -1, 10), np.linspace(1, farthest, 10)])[:, np.newaxis]
    positive = x[:, 0] > 0
    fit = fit_logistic(x, positive, penalty)
    assert np.isfinite([fit.intercept, *fit.slopes]).all()
    odds = fit.log_odds(x)
    if farthest == 3:
        assert (np.sign(odds) == np.where(positive, 1, -1)).all()
    # It is the minimum and not where the steps ran out: the gradient of the loss is nil there.
    standard = (x[:, 0] - fit.centre[0]) / fit.scale[0]
    residual = 1 / (1 + np.exp(-odds)) - positive
    assert abs(residual.sum()) < 1e-6
    assert abs(residual @ standard + penalty * fit.slopes[0]) < 1e-6


def test_held_out_scores_are_those_of_the_fit_to_the_others() -> None:
    features, positive = sample(6)
    cluster = np.array([f"k{number % 7}" for number in range(60)])
    odds = held_out_log_odds(features, positive, cluster)
    for name in np.unique(cluster):
        others = cluster != name
        fit = fit_logistic(features[others], positive[others])
        np.testing.assert_allclose(odds[~others], fit.log_odds(features[~others]))


def test_scores_that_nothing_could_be_learned_for_are_nan() -> None:
    """Without the first cluster there are no positives left."""
    odds = held_out_log_odds([[1.0], [2.0], [3.0], [4.0]], [True, False, False, False], ["a", "a", "b", "c"])
    assert np.isnan(odds).tolist() == [True, True, False, False]
    assert np.isnan(held_out_log_odds([[1.0], [2.0]], [True, False], [0, 0])).all()


@pytest.mark.parametrize("kind", [True, False])
def test_what_cannot_be_fitted_is_refused(kind: bool) -> None:
    with pytest.raises(ValueError, match="both kinds"):
        fit_logistic([[1.0], [2.0]], [kind, kind])


def test_a_draw_is_the_held_out_fit_to_the_drawn_clusters() -> None:
    """Twelve clusters of six: a cluster that was drawn twice stands twice, and both of its copies are left out."""
    features, positive = sample(8, n=72)
    cluster = np.random.default_rng(8).permutation(np.arange(72) % 12)
    weights = np.vstack([np.ones(12), np.random.default_rng(9).multinomial(12, np.full(12, 1 / 12), size=8)])
    draws = held_out_draws(features, positive, cluster, weights)
    for odds, counts in zip(draws, weights.astype(int), strict=True):
        repeated = np.repeat(np.arange(72), counts[cluster])
        expected = held_out_log_odds(features[repeated], positive[repeated], cluster[repeated])
        np.testing.assert_allclose(odds[repeated], expected, atol=0.05)
        of_draw, expected_area = (auroc(scores, positive[repeated]) for scores in (odds[repeated], expected))
        assert of_draw == pytest.approx(expected_area, abs=0.005)


def test_marks_of_each_draw_are_fitted_by_themselves() -> None:
    features, positive = sample(10, n=160)
    cluster = np.arange(160) // 8
    rng = np.random.default_rng(10)
    marks = np.stack([positive, *(rng.permutation(positive) for _ in range(5))])
    for odds, mark in zip(held_out_draws(features, marks, cluster), marks, strict=True):
        expected = held_out_log_odds(features, mark, cluster)
        np.testing.assert_allclose(odds, expected, atol=0.05)
        assert auroc(odds, mark) == pytest.approx(auroc(expected, mark), abs=0.005)


def test_clusters_of_a_fold_are_left_out_together() -> None:
    features, positive = sample(11, n=80)
    cluster, fold = np.arange(80) // 4, np.arange(20) // 2
    (odds,) = held_out_draws(features, positive, cluster, fold=fold)
    (expected,) = held_out_draws(features, positive, cluster // 2)
    np.testing.assert_allclose(odds, expected)


@pytest.mark.parametrize("cells", [1, 3000])
def test_chunks_do_not_matter(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    features, positive = sample(12)
    weights = np.random.default_rng(0).multinomial(6, np.full(6, 1 / 6), size=7)
    whole = held_out_draws(features, positive, np.arange(60) % 6, weights)
    monkeypatch.setattr(logistic, "CHUNK_CELLS", cells)
    np.testing.assert_allclose(held_out_draws(features, positive, np.arange(60) % 6, weights), whole, atol=1e-8)


def test_a_constant_feature_and_one_kind_in_draws() -> None:
    features, positive = sample(13)
    with_constant = np.column_stack([features, np.full(60, 0.1)])
    np.testing.assert_allclose(
        held_out_draws(with_constant, positive, np.arange(60) % 6),
        held_out_draws(features, positive, np.arange(60) % 6),
        atol=1e-8,
    )
    odds = held_out_draws([[1.0], [2.0], [3.0], [4.0]], [True, False, False, False], [0, 0, 1, 2])
    assert np.isnan(odds).tolist() == [[True, True, False, False]]
