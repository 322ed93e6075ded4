"""GaussianBase: what it computes, and what it refuses."""

import numpy as np
import oracle
import pytest
from conftest import load_backend
from scipy import stats as scipy_stats

import tgpfast as tgp

MEAN = np.array([0.5, -1.0])
COVARIANCE = np.array([[1.5, 0.4], [0.4, 0.6]])


def test_log_density_and_score_equal_scipy():
    base = tgp.GaussianBase(MEAN, COVARIANCE)
    y = np.random.default_rng(0).standard_normal((20, 2)) * 3
    want = scipy_stats.multivariate_normal(MEAN, COVARIANCE).logpdf(y)
    assert np.allclose(base.log_density(y), want, rtol=1e-13, atol=1e-13)
    h = 1e-6
    for k in range(2):
        step = np.eye(2)[k] * h
        slope = (base.log_density(y + step) - base.log_density(y - step)) / (2 * h)
        # central differences: h^2 is exact for a quadratic, so rounding of log q over 2 h is left
        assert np.allclose(base.score(y)[:, k], slope, atol=1e-14 * np.abs(want).max() / h)


def test_samples_have_the_base_moments():
    base = tgp.GaussianBase(MEAN, COVARIANCE)
    y = base.sample(50_000, seed=1)
    assert np.array_equal(y, base.sample(50_000, seed=1))
    whitened = np.linalg.solve(np.linalg.cholesky(COVARIANCE), (y - MEAN).T)
    for row in whitened:
        assert scipy_stats.kstest(row, "norm").pvalue > 1e-3


@pytest.mark.parametrize("weighted", [False, True])
def test_from_data_is_the_weighted_moments(weighted):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((40_000, 3)) @ rng.standard_normal((3, 3)) + 1e6
    w = rng.uniform(0, 2, len(x)) if weighted else None
    if weighted:
        w[:20_000] = 0.0
    base = tgp.GaussianBase.from_data(x, sample_weight=w)
    mean = np.average(x, axis=0, weights=w)
    # an offset of 1e6 costs six of sixteen digits of the mean, and of nothing else
    assert np.allclose(base.mean, mean, rtol=1e-14)
    centred = x - mean
    covariance = np.cov(centred.T, aweights=w, bias=True)
    assert np.allclose(base.covariance, covariance, rtol=1e-8, atol=1e-9)
    w = np.ones(len(x)) if w is None else w
    again = tgp.GaussianBase.from_data(iter([(x[:100], w[:100]), (x[100:], w[100:])]))
    assert np.allclose(again.covariance, base.covariance, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["numpy", "numba", "cython"])
def test_feature_moments_equal_the_oracle(name):
    backend = load_backend(name).NAME
    base = tgp.GaussianBase(MEAN, COVARIANCE)
    for S in (1, 7, 300):
        f = tgp.Features.draw(S, 0.6, np.eye(2), seed=S)
        mu, sigma = base.feature_moments(f, backend=backend)
        args = (f.frequencies, f.phases, f.bandwidth, MEAN, COVARIANCE)
        # exponents z^T Sigma z / gamma^2 of up to E err by a few units of E, features by one
        exponent = np.einsum("sk,kl,sl->s", f.frequencies, COVARIANCE, f.frequencies).max() / 0.36
        bound = 2 / S * 8 * np.finfo(float).eps * (4 + 2 * exponent)
        assert np.abs(sigma - oracle.sigma_phi(*args)).max() <= bound
        assert np.abs(mu - oracle.mu_phi(*args)).max() <= np.sqrt(S / 2) * bound


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: tgp.GaussianBase([0.0], np.eye(2)), ValueError, r"\(1, 1\)"),
        (lambda: tgp.GaussianBase([], np.zeros((0, 0))), ValueError, "covariance"),
        (lambda: tgp.GaussianBase([0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]]), ValueError, "symmetric"),
        (lambda: tgp.GaussianBase([0.0, 0.0], np.ones((2, 2))), ValueError, "positive definite"),
        (lambda: tgp.GaussianBase([np.nan], [[1.0]]), ValueError, "finite"),
        (lambda: tgp.GaussianBase.from_data(np.ones((5, 2))), ValueError, "column 0 is constant"),
        (
            lambda: tgp.GaussianBase([0.0], [[1.0]]).feature_moments(
                tgp.Features.draw(2, 1.0, np.eye(2))
            ),
            ValueError,
            "dimension 2",
        ),
        (lambda: tgp.GaussianBase([0.0], [[1.0]]).score(np.zeros((2, 3))), ValueError, "3 columns"),
    ],
)
def test_bad_bases(make, error, words):
    with pytest.raises(error, match=words):
        make()
