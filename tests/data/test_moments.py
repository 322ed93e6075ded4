"""Moments: against numpy in extended precision, at any offset and scale, in any cut."""

import numpy as np
import pytest

from tgpfast.data.blocks import Blocks
from tgpfast.data.moments import (
    check_full_rank,
    check_given_moments,
    compute_moments,
    moments_and_sample,
)


def make_rows(n=500, seed=0, offset=0.0, scale=1.0):
    rng = np.random.default_rng(seed)
    mixing = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, -0.3], [0.0, 0.0, 0.1]])
    return (rng.standard_normal((n, 3)) @ mixing) * scale + offset


def expected(x, w):
    """(n, Kish's n, mean, covariance / n) in long double."""
    x, w = x.astype(np.longdouble), w.astype(np.longdouble)
    mean = w @ x / w.sum()
    centered = x - mean
    covariance = (centered * w[:, None]).T @ centered / w.sum()
    return w.sum(), w.sum() ** 2 / (w @ w), mean, covariance


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("offset", "scale"), [(0, 1), (1e6, 1), (-3e-100, 1e-100), (1e100, 1e99)])
@pytest.mark.parametrize("block_rows", [1, 37, 1000])
def test_moments_of_any_offset_scale_and_cut(weighted, offset, scale, block_rows):
    x = make_rows(offset=offset, scale=scale)
    w = np.random.default_rng(1).uniform(0.0, 2.0, len(x)) if weighted else np.ones(len(x))
    found = compute_moments(
        Blocks(x, sample_weight=w if weighted else None, block_rows=block_rows)
    )
    n, effective, mean, covariance = expected(x, w)
    deviation = np.sqrt(np.diag(covariance))
    assert found.n == pytest.approx(float(n), rel=1e-14)
    assert found.n_effective == pytest.approx(float(effective), rel=1e-13)
    # x itself is rounded to 2^-53 of the offset, which is seen in units of the deviation
    error = 1e-12 + 2.0**-50 * np.abs(mean / deviation).max()
    assert np.abs((found.mean - mean) / deviation).max() < error
    assert np.abs(found.deviation / deviation - 1.0).max() < error
    correlation = covariance / np.outer(deviation, deviation)
    assert np.abs(found.correlation - correlation).max() < error


def test_a_dropped_block_is_noticed():
    """Negative control of the comparison above."""
    x = make_rows()
    found = compute_moments(Blocks([x[:250]]))
    assert np.abs(found.mean - x.mean(axis=0)).max() > 1e-3


def test_sums_of_parts_add():
    """Also of a part of weight zero, and of parts that lie far apart."""
    from tgpfast.data import moments as module

    x = make_rows(offset=5.0)
    x[300:] += 1e4
    w = np.ones(500)
    w[100:120] = 0.0
    cuts = [(0, 100), (100, 120), (120, 300), (300, 500)]
    sums = [
        module._sum_moments(Blocks(x[a:b], sample_weight=w[a:b], is_part=True), None)
        for a, b in cuts
    ]
    total = (sums[0] + sums[1] + (sums[2] + sums[3])).moments()
    n, _, mean, covariance = expected(x, w)
    assert total.n == n
    np.testing.assert_allclose(total.mean, mean.astype(float), rtol=1e-13)
    np.testing.assert_allclose(total.covariance, covariance.astype(float), rtol=1e-11)


def test_the_sample_comes_with_the_moments():
    x = make_rows()
    moments, sample = moments_and_sample(Blocks(x), size=50)
    np.testing.assert_allclose(moments.mean, x.mean(axis=0), rtol=1e-12)
    assert sample.x.shape == (50, 3)
    assert (sample.x[:, None] == x).all(axis=2).any(axis=1).all()


def test_given_moments():
    x = make_rows()
    covariance = np.cov(x.T, bias=True)
    found = check_given_moments((500, x.mean(axis=0), covariance), 3)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-14)
    assert (found.n, found.n_effective) == (500.0, 500.0)
    one = check_given_moments((3.0, 1.0, 4.0), None)
    assert (one.mean.tolist(), one.deviation.tolist()) == ([1.0], [2.0])


@pytest.mark.parametrize(
    ("moments", "kind", "message"),
    [
        ((1.0, [0.0]), ValueError, "must be a tuple"), (3, ValueError, "must be a tuple"),
        ((0, [0.0], [[1.0]]), ValueError, "n=0: expected a finite number above 0"),
        (("5", [0.0], [[1.0]]), TypeError, "n='5': expected a number"),
        ((5, [0.0, 0.0], [[1.0]]), ValueError, "do not go with 2 columns"),
        ((5, [0.0], [[-1.0]]), ValueError, "negative variance"),
        ((5, [np.nan], [[1.0]]), ValueError, "mean must be finite"),
    ],
)  # fmt: skip
def test_given_moments_that_are_wrong(moments, kind, message):
    with pytest.raises(kind, match=message):
        check_given_moments(moments, None)


def test_columns_without_a_density_are_named():
    x = make_rows()
    names = ["a", "b", "c"]
    check_full_rank(compute_moments(Blocks(x)), names)
    y = x.copy()
    y[:, 1] = 3.0
    with pytest.raises(ValueError, match=r"column 1 \('b'\) is constant at 3"):
        check_full_rank(compute_moments(Blocks(y)), names)
    y[:, 1] = x[:, 0] - 2.0 * x[:, 2]
    with pytest.raises(ValueError, match=r"columns 0 \('a'\), 1 \('b'\), 2 \('c'\) are linearly"):
        check_full_rank(compute_moments(Blocks(y)), names)
    with pytest.raises(ValueError, match="2 rows do not span 3 columns"):
        check_full_rank(compute_moments(Blocks(x[:2])), None)
    with pytest.raises(ValueError, match=r"one row .* has no spread"):
        check_full_rank(compute_moments(Blocks(x[:1])), None)


def test_covariances_beyond_float64():
    moments = compute_moments(Blocks(make_rows(scale=1e160)))
    with pytest.raises(ValueError, match=r"column 0 has a standard deviation of .*float64"):
        moments.covariance  # noqa: B018
