"""Features and GaussianBase: what they compute, and what they refuse."""

import numpy as np
import oracle
import pytest
from conftest import load_backend
from scipy import stats as scipy_stats

import tgpfast as tgp


def test_draw_repeats_and_depends_on_the_seed():
    a, b = (tgp.Features.draw(50, 0.5, np.eye(3), seed=3) for _ in range(2))
    assert a == b
    assert hash(a) == hash(b)
    assert a.fingerprint == b.fingerprint
    assert a != tgp.Features.draw(50, 0.5, np.eye(3), seed=4)
    assert a != "features"
    assert (a.n_features, a.dimension, a.bandwidth, a.seed) == (50, 3, 0.5, 3)
    assert "n_features=50" in repr(a)


def test_draw_has_the_covariance_it_was_asked_for():
    covariance = np.array([[2.0, 0.6], [0.6, 0.5]])
    features = tgp.Features.draw(40_000, 1.0, covariance, seed=0)
    # 5 standard errors of a second moment of a Gaussian, sqrt((v_ii v_jj + v_ij^2) / S)
    v = np.diag(covariance)
    error = 5 * np.sqrt((np.outer(v, v) + covariance**2) / 40_000)
    z = features.frequencies
    assert (np.abs(z.T @ z / 40_000 - covariance) < error).all()
    assert scipy_stats.kstest(features.phases, "uniform", (0, 2 * np.pi)).pvalue > 1e-3
    assert np.array_equal(features.covariance, covariance)


def test_draw_takes_a_singular_covariance():
    features = tgp.Features.draw(10, 1.0, np.diag([1.0, 0.0]))
    assert np.abs(features.frequencies[:, 1]).max() < 1e-12


def test_the_first_features_are_features():
    features = tgp.Features.draw(20, 0.5, np.diag([1.0, 4.0]), seed=1)
    few = features.first(6)
    np.testing.assert_array_equal(few.frequencies, features.frequencies[:6])
    np.testing.assert_array_equal(few.phases, features.phases[:6])
    np.testing.assert_array_equal(few.covariance, features.covariance)
    assert (few.n_features, few.bandwidth, few.seed) == (6, 0.5, 1)
    assert features.first(20) == features
    assert few.fingerprint != features.fingerprint


def test_arrays_are_copied_and_frozen():
    z = np.ones((3, 2))
    features = tgp.Features(z, np.zeros(3), 1.0)
    z[0, 0] = 5.0
    assert features.frequencies[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        features.frequencies[0, 0] = 2.0
    with pytest.raises(AttributeError):
        features.bandwidth = 2.0


def test_bandlimit_is_the_largest_sum_or_difference():
    features = tgp.Features.draw(20, 0.5, np.eye(2), seed=1)
    z = features.frequencies
    pairs = np.concatenate([z[:, None] - z, z[:, None] + z]).reshape(-1, 2)
    assert np.allclose(features.bandlimit, np.abs(pairs).max(axis=0) / 0.5)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: tgp.Features(np.ones(3), np.zeros(3), 1.0), ValueError, "frequencies"),
        (lambda: tgp.Features(np.ones((3, 2)), np.zeros(4), 1.0), ValueError, "3, got 4"),
        (lambda: tgp.Features(np.ones((0, 2)), np.zeros(0), 1.0), ValueError, "at least one"),
        (lambda: tgp.Features(np.ones((3, 2)), np.zeros(3), 0.0), ValueError, "positive"),
        (lambda: tgp.Features(np.ones((3, 2)), np.zeros(3), -1.0), ValueError, "positive"),
        (lambda: tgp.Features(np.ones((3, 2)), np.zeros(3), np.nan), ValueError, "bandwidth"),
        (lambda: tgp.Features(np.ones((3, 2)), np.zeros(3), "a"), TypeError, "bandwidth"),
        (lambda: tgp.Features(np.ones((3, 2)), np.zeros(3), 1e-310), ValueError, "overflow"),
        (lambda: tgp.Features([[np.inf]], [0.0], 1.0), ValueError, r"inf at index \(0, 0\)"),
        (lambda: tgp.Features([[1j]], [0.0], 1.0), TypeError, "complex"),
        (
            lambda: tgp.Features([[1.0]], [0.0], 1.0, covariance=np.eye(2)),
            ValueError,
            "covariance",
        ),
        (lambda: tgp.Features.draw(0, 1.0, np.eye(2)), ValueError, "n_features=0"),
        (lambda: tgp.Features.draw(2.5, 1.0, np.eye(2)), ValueError, "n_features"),
        (lambda: tgp.Features.draw(2, 1.0, np.ones((2, 3))), ValueError, "square"),
        (lambda: tgp.Features.draw(2, 1.0, [[1.0, 0.5], [0.0, 1.0]]), ValueError, "symmetric"),
        (lambda: tgp.Features.draw(2, 1.0, [[1.0, 2.0], [2.0, 1.0]]), ValueError, "semi-definite"),
    ],
)
def test_bad_features(make, error, words):
    with pytest.raises(error, match=words):
        make()


# -- the base -------------------------------------------------------------------------------------

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
