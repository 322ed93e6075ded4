"""The exact kernel density estimate against scipy."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import clustered_rows, load_backend
from scipy.stats import gaussian_kde, kstest, norm

import tgpfast as tgp

EPS = np.finfo(float).eps


@pytest.mark.parametrize("name", ["numpy", "numba", "cython"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_exact_equals_scipy(d, weighted, name):
    """scipy divides the covariance by n - 1 (weighted: by its like), we by n: its own is passed."""
    backend = load_backend(name).NAME
    x = clustered_rows(d)
    w = np.random.default_rng(1).uniform(0.2, 3.0, len(x)) if weighted else None
    y = np.concatenate([x[:30], clustered_rows(d, 40, seed=2) * 1.5])
    theirs = gaussian_kde(x.T, weights=w)
    kde = tgp.ExactKDE(
        x, bandwidth=theirs.factor, covariance=np.atleast_2d(theirs._data_covariance),
        sample_weight=w, backend=backend, n_threads=2,
    )  # fmt: skip
    expected = theirs.logpdf(y.T)
    assert np.abs(kde.log_density(y) - expected).max() < 1e-10 * (1 + np.abs(expected).max())
    scott = tgp.ExactKDE(x, sample_weight=w)
    assert scott.bandwidth == pytest.approx(theirs.factor, rel=1e-14)
    assert np.allclose(scott.covariance, np.cov(x.T, ddof=0, aweights=w), rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_identity_kernel_equals_a_plain_loop(weighted):
    """The paper's kernel: width gamma, the same in every direction, any offset."""
    x = clustered_rows(3, 60) + np.array([1e6, 0.0, -5.0])
    w = np.arange(60.0) % 4 if weighted else np.ones(60)
    gamma = 0.5
    kde = tgp.ExactKDE(
        x, bandwidth=gamma, covariance="identity", sample_weight=w if weighted else None
    )
    y = x[:7] + 0.3
    for row, got in zip(y, kde.log_density(y), strict=True):
        total = 0.0
        for point, weight in zip(x, w, strict=True):
            total += weight * np.exp(-((row - point) ** 2).sum() / (2 * gamma**2))
        expected = np.log(total / w.sum()) - 1.5 * np.log(2 * np.pi * gamma**2)
        # whitened coordinates near 1e6 are centred first: an ulp of 1e6 times the slope
        assert abs(got - expected) < 1e-8


def test_far_away_points_are_finite():
    """Log-sum-exp: where every kernel underflows, the nearest row decides."""
    x = clustered_rows(2)
    kde = tgp.ExactKDE(x, bandwidth=0.2, covariance="identity")
    far = np.array([[1e3, 0.0], [-1e5, 1e5], [0.0, 1e8]])
    got = kde.log_density(far)
    nearest = ((far[:, None] - x[None]) ** 2).sum(axis=2).min(axis=1)
    lower = -nearest / 0.08 - np.log(2 * np.pi * 0.04) - np.log(len(x))
    assert np.isfinite(got).all()
    slack = 64 * EPS * np.abs(lower)
    assert (got >= lower - slack).all()
    assert (got <= lower + np.log(len(x)) + slack).all()
    assert (np.exp(got) == 0).all()  # a density taken without logarithms would be zero


def test_weights_are_repetitions_and_zero_weights_are_absent():
    x = clustered_rows(2, 40)
    w = np.arange(40) % 3
    options = {"bandwidth": 0.3, "covariance": "identity"}
    weighted = tgp.ExactKDE(x, sample_weight=w, **options)
    repeated = tgp.ExactKDE(np.repeat(x, w, axis=0), **options)
    assert np.allclose(weighted.log_density(x), repeated.log_density(x), rtol=1e-12, atol=1e-12)


def test_exact_mass_is_one():
    kde = tgp.ExactKDE(clustered_rows(1))
    grid = np.linspace(-8, 10, 3001)
    assert abs(np.exp(kde.log_density(grid)).sum() * (grid[1] - grid[0]) - 1) < 1e-10


@pytest.mark.parametrize("weighted", [False, True])
def test_exact_samples_follow_the_estimate(weighted):
    x = clustered_rows(2)
    w = np.where(x[:, 0] > 1, 4.0, 1.0) if weighted else None
    kde = tgp.ExactKDE(x, sample_weight=w)
    draws = kde.sample(2_000, seed=3)
    assert np.array_equal(draws, kde.sample(2_000, seed=3))
    assert not np.array_equal(draws, kde.sample(2_000, seed=4))
    assert not np.array_equal(kde.sample(5), kde.sample(5))  # seed=None draws anew
    share = np.ones(len(x)) if w is None else w
    for v in np.array([[1.0, 0.0], [0.3, -2.0]]):
        width = kde.bandwidth * np.sqrt(v @ kde.covariance @ v)

        def cdf(t, v=v, width=width):
            return norm.cdf((t[:, None] - x @ v) / width) @ share / share.sum()

        assert kstest(draws @ v, cdf).pvalue > 1e-3
        assert kstest(x @ v * 1.3, cdf).pvalue < 1e-3  # negative control


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_exact_keeps_frames(kind):
    x = clustered_rows(2, 50)
    frame = pd.DataFrame(x, columns=["a", "b"]) if kind == "pandas" else pl.DataFrame(x, ["a", "b"])
    kde = tgp.ExactKDE(frame)
    plain = tgp.ExactKDE(x)
    assert np.array_equal(kde.log_density(frame[["b", "a"]]).to_numpy(), plain.log_density(x))
    draws = kde.sample(5)
    assert isinstance(draws, type(frame))
    assert list(draws.columns) == ["a", "b"]
    assert repr(kde).startswith("ExactKDE(50 rows, d=2, bandwidth=")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"bandwidth": -1.0}, "bandwidth"),
        ({"covariance": "full"}, "covariance='full'"),
        ({"covariance": np.eye(3)}, r"\(2, 2\)"),
        ({"covariance": -np.eye(2)}, "positive definite"),
        ({"sample_weight": -np.ones(200)}, "not negative"),
        ({"sample_weight": np.zeros(200)}, "all zero"),
    ],
)
def test_exact_errors(options, words):
    with pytest.raises(ValueError, match=words):
        tgp.ExactKDE(clustered_rows(2), **options)


def test_exact_refuses_rules_it_does_not_know():
    with pytest.raises(TypeError, match=r"bandwidth='silverman'.*'scott'"):
        tgp.ExactKDE(clustered_rows(2), bandwidth="silverman")


def test_exact_refuses_what_has_no_density():
    x = clustered_rows(2)
    x[:, 1] = 3.0
    with pytest.raises(ValueError, match="column 1 is constant"):
        tgp.ExactKDE(x)
    assert np.isfinite(tgp.ExactKDE(x, covariance="identity").log_density(x)).all()
    kde = tgp.ExactKDE(clustered_rows(2))
    for n in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="n="):
            kde.sample(n)
    with pytest.raises(ValueError, match="expected 2"):
        kde.log_density(np.zeros((3, 4)))
