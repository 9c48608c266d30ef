"""The running correlation: the textbook's r whatever the pieces, and intervals that cover where Fisher's do not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from undertow.stats import correlation
from undertow.stats.correlation import MAX_KEPT, Pearson, RunningPearson

Floats = NDArray[np.float64]


def found(x: Sequence[float] | Floats, y: Sequence[float] | Floats, pieces: int = 1) -> Pearson:
    running = RunningPearson()
    for part_x, part_y in zip(np.array_split(x, pieces), np.array_split(y, pieces), strict=True):
        running.add(part_x, part_y)
    return running.result()


def correlated(n: int, seed: int = 0) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(n)
    return x, 0.5 * x + generator.standard_normal(n)


@pytest.mark.parametrize("n", [4, 75, 3000, 40_000])
@pytest.mark.parametrize("pieces", [1, 3, 7])
@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-9, 5.0), (1e90, -3.0), (1e-90, 0.0)])
def test_r_is_that_of_the_textbook(n: int, pieces: int, scale: float, shift: float) -> None:
    x, y = correlated(n)
    kept = scale * x + shift
    assert found(kept, y, pieces).r == pytest.approx(np.corrcoef((kept - shift) / scale, y)[0, 1], abs=1e-6)
    assert found(kept, y, pieces).n == n


def test_pieces_far_apart_make_no_difference() -> None:
    x, y = correlated(50_000)
    x = np.sort(x) + 1000
    one, many = found(x, y), found(x, y, pieces=25)
    assert many == pytest.approx(one, abs=1e-9)


def test_the_moments_agree_with_the_jackknife(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing jumps where one takes over from the other."""
    x, y = correlated(MAX_KEPT)
    y = y * (1 + x * x)
    kept = found(x, y, pieces=4)
    monkeypatch.setattr(correlation, "MAX_KEPT", 0)
    by_moments = found(x, y, pieces=4)
    assert by_moments.r == kept.r
    assert by_moments.high - by_moments.low == pytest.approx(kept.high - kept.low, rel=0.005)
    assert by_moments.high - by_moments.low != kept.high - kept.low


def test_the_jackknife_leaves_out_one_pair_after_the_other() -> None:
    x, y = correlated(12)
    z = [math.atanh(np.corrcoef(np.delete(x, one), np.delete(y, one))[0, 1]) for one in range(12)]
    error = math.sqrt(11 / 12 * float(np.sum((np.array(z) - np.mean(z)) ** 2)))
    r, low, high, _ = found(x, y)
    half = float(stats.t.ppf(0.975, 10)) * error
    assert [low, high] == pytest.approx([math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)])


def test_of_normal_pairs_the_interval_is_fishers() -> None:
    r, low, high, n = found(*correlated(200_000))
    half = 1.959964 / math.sqrt(n - 3)
    assert [low, high] == pytest.approx([math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)], abs=1e-4)


@pytest.mark.parametrize(("n", "least"), [(75, 0.91), (12_000, 0.93)])
def test_it_covers_where_the_spread_of_y_grows_with_x(n: int, least: float) -> None:
    """r of x and y = x / 2 + x e, with standard normal x and e, is .5 / sqrt(1.25)."""
    truth, runs = 0.5 / math.sqrt(1.25), 300
    covered = fishers = 0
    for seed in range(runs):
        x, noise = np.random.default_rng(seed).standard_normal((2, n))
        r, low, high, _ = found(x, 0.5 * x + x * noise)
        covered += low <= truth <= high
        fishers += abs(math.atanh(r) - math.atanh(truth)) <= 1.96 / math.sqrt(n - 3)
    assert least <= covered / runs <= 0.98
    assert fishers / runs < 0.85


def test_what_the_pairs_cannot_say_is_not_said() -> None:
    assert found([], []).n == 0
    assert math.isnan(found([], []).r)
    assert math.isnan(found([1.0], [2.0]).r)
    for x, y in (([3.3] * 9, range(9)), (range(9), [0.0] * 9)):
        constant = found(np.array(x, dtype=float), np.array(y, dtype=float), pieces=2)
        assert all(map(math.isnan, constant[:3]))
    assert found([0.0, 1.0, 2.0], [0.0, 1.0, 1.0])[1:] == (-1.0, 1.0, 3)
    assert found([0.0] * 8 + [1.0], list(range(9)))[1:] == (-1.0, 1.0, 9), "one pair alone makes x vary"
    assert found(np.arange(9.0), -2 * np.arange(9.0))[:3] == (-1.0, -1.0, -1.0)


def test_vectors_of_two_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        RunningPearson().add([1.0, 2.0], [1.0])


def test_the_share_of_the_heaviest_pair_is_that_of_its_influence() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_t(3, 500)
    y = x + rng.standard_t(3, 500)
    running = RunningPearson()
    for piece in np.split(np.arange(500), [200, 350]):
        running.add(x[piece], y[piece])
    by_x, by_y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    influences = by_x * by_y - running.result().r * (by_x**2 + by_y**2) / 2
    assert running.heaviest_share() == pytest.approx((influences**2).max() / (influences**2).sum())
    assert math.isnan(RunningPearson().heaviest_share())
