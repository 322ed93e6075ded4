"""Random features: their distributions, and what they refuse."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.special
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


# -- kernels --------------------------------------------------------------------------------------

SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
COVARIANCE_OF_FOUR = np.array(
    [[1.0, 0.3, 0.0, 0.1], [0.3, 2.0, -0.4, 0.0], [0.0, -0.4, 0.5, 0.2], [0.1, 0.0, 0.2, 1.5]]
)


def kernel_value(kernel, r):
    """exp(-r^2 / 2), or the Matern kernel by its Bessel function."""
    if kernel == "gaussian":
        return np.exp(-0.5 * r**2)
    nu = SMOOTHNESS[kernel]
    s = np.sqrt(2 * nu) * r
    return 2 ** (1 - nu) / scipy.special.gamma(nu) * s**nu * scipy.special.kv(nu, s)


def mean_cosine(features, difference):
    """Mean over the features of cos(z . (x - y) / gamma), and five standard errors of it."""
    values = np.cos(features.frequencies @ difference / features.bandwidth)
    return values.mean(), 5 * values.std() / np.sqrt(len(values))


@pytest.mark.parametrize("kernel", ["gaussian", *SMOOTHNESS])
@pytest.mark.parametrize("scale", [0.1, 0.5, 2.0])
def test_the_mean_over_many_features_is_the_kernel(kernel, scale):
    features = tgp.Features.draw(100_000, 0.7, COVARIANCE_OF_FOUR, seed=2, kernel=kernel)
    difference = scale * np.array([0.5, -0.3, 0.8, 0.2])
    r = np.sqrt(difference @ COVARIANCE_OF_FOUR @ difference) / 0.7
    mean, error = mean_cosine(features, difference)
    assert abs(mean - kernel_value(kernel, r)) < error
    others = [kernel_value(k, r) for k in ("gaussian", *SMOOTHNESS) if k != kernel]
    if scale == 0.5:  # negative control: it is no other kernel
        assert min(abs(mean - value) for value in others) > error


@pytest.mark.parametrize("kernel", ["gaussian", "matern32"])
@pytest.mark.parametrize("interactions", [1, 2, 3])
def test_interactions_average_the_kernels_of_some_columns(kernel, interactions):
    """Over all subsets of so many columns, each with its part of the covariance."""
    features = tgp.Features.draw(
        200_000, 0.7, COVARIANCE_OF_FOUR, seed=3, kernel=kernel, interactions=interactions
    )
    difference = np.array([0.5, -0.3, 0.8, 0.2])
    values = []
    for subset in itertools.combinations(range(4), interactions):
        part = difference[list(subset)]
        matrix = COVARIANCE_OF_FOUR[np.ix_(subset, subset)]
        values.append(kernel_value(kernel, np.sqrt(part @ matrix @ part) / 0.7))
    mean, error = mean_cosine(features, difference)
    assert abs(mean - np.mean(values)) < error


@pytest.mark.parametrize("interactions", [1, 2, 3])
def test_a_frequency_involves_exactly_so_many_columns(interactions):
    """Every subset of columns equally often."""
    features = tgp.Features.draw(30_000, 0.5, COVARIANCE_OF_FOUR, interactions=interactions)
    involved = features.frequencies != 0.0
    assert (involved.sum(axis=1) == interactions).all()
    counts = np.unique(involved @ [1, 2, 4, 8], return_counts=True)[1]
    assert len(counts) == math.comb(4, interactions)
    assert scipy_stats.chisquare(counts).pvalue > 1e-3


def test_the_default_is_the_dense_gaussian_of_earlier_versions():
    """The same bits as before kernels were introduced; other kernels scale the same draws."""
    plain = tgp.Features.draw(6, 0.5, np.eye(3), seed=4)
    rng = np.random.default_rng(4)
    np.testing.assert_array_equal(plain.frequencies, rng.standard_normal((6, 3)))
    np.testing.assert_array_equal(plain.phases, rng.uniform(0.0, 2.0 * np.pi, 6))
    assert (plain.kernel, plain.interactions) == ("gaussian", None)
    heavy = tgp.Features.draw(6, 0.5, np.eye(3), seed=4, kernel="matern12")
    ratio = heavy.frequencies / plain.frequencies
    np.testing.assert_allclose(ratio, ratio[:, :1] * np.ones(3), rtol=1e-14)
    np.testing.assert_array_equal(heavy.phases, plain.phases)


def test_kernel_and_interactions_are_kept(tmp_path):
    """By parts, copies, texts and files."""
    features = tgp.Features.draw(5, 0.5, np.eye(3), seed=1, kernel="matern52", interactions=2)
    x = np.random.default_rng(0).standard_normal((50, 3))
    stats = tgp.accumulate(x, features)
    stats.save(tmp_path / "stats.npz")
    model = tgp.solve(stats, tgp.GaussianBase(np.zeros(3), np.eye(3)), "fd", lam=10.0)
    model.save(tmp_path / "model.npz")
    for kept in (
        features.first(3), tgp.load(tmp_path / "stats.npz").features,
        tgp.load(tmp_path / "model.npz").features,
    ):  # fmt: skip
        assert (kept.kernel, kept.interactions, kept.seed) == ("matern52", 2, 1)
    assert "kernel='matern52', interactions=2" in repr(features)


def test_features_of_old_files_are_gaussian():
    for name in ("statistics", "density_fd_empirical"):
        path = Path(__file__).parents[1] / "saved_files" / f"{name}.npz"
        features = tgp.load(path).features
        assert (features.kernel, features.interactions) == ("gaussian", None)


def test_seeds_are_integers_none_or_generators():
    """The integer that was used is kept, and repeats the draw."""
    generator = np.random.default_rng(5)
    drawn = [
        tgp.Features.draw(4, 1.0, np.eye(2), seed) for seed in (7, None, None, generator, generator)
    ]
    assert drawn[0].seed == 7
    assert len({features.seed for features in drawn}) == 5
    for features in drawn:
        assert tgp.Features.draw(4, 1.0, np.eye(2), features.seed) == features


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
        (lambda: tgp.Features(np.ones((3, 2)), np.zeros(4), 1.0), ValueError, "phases must have"),
        (lambda: tgp.Features(np.ones((0, 2)), np.zeros(0), 1.0), ValueError, "at least one"),
        (lambda: tgp.Features(np.ones((3, 2)), np.zeros(3), 0.0), ValueError, "above 0"),
        (lambda: tgp.Features(np.ones((3, 2)), np.zeros(3), -1.0), ValueError, "above 0"),
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
        (lambda: tgp.Features.draw(2, 1.0, np.eye(2), 1.5), ValueError, "seed=1.5"),
        (lambda: tgp.Features.draw(2, 1.0, np.eye(2), kernel="rbf"), ValueError, "kernel='rbf'"),
        (lambda: tgp.Features.draw(2, 1.0, np.eye(2), interactions=0), ValueError, "interactions"),
        (lambda: tgp.Features.draw(2, 1.0, np.eye(2), interactions=3), ValueError, "at most 2"),
        (
            lambda: tgp.Features([[1.0]], [0.0], 1.0, interactions=1.5),
            ValueError,
            "interactions=1.5",
        ),
        (lambda: tgp.Features.draw(2, 1.0, np.ones((2, 3))), ValueError, "square"),
        (lambda: tgp.Features.draw(2, 1.0, [[1.0, 0.5], [0.0, 1.0]]), ValueError, "symmetric"),
        (lambda: tgp.Features.draw(2, 1.0, [[1.0, 2.0], [2.0, 1.0]]), ValueError, "semi-definite"),
    ],
)
def test_bad_features(make, error, words):
    with pytest.raises(error, match=words):
        make()
