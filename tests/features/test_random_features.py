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


def test_a_mixed_set_averages_the_kernels_of_its_kinds():
    """In equal parts; with k columns the bandwidth is sqrt(k / 2) times as large. The negative
    control has the same bandwidth for all."""
    kinds = (("gaussian", 1), ("matern32", 2), ("matern52", None))
    kernels, columns = zip(*kinds, strict=True)
    features = tgp.Features.draw(
        300_000, 0.7, COVARIANCE_OF_FOUR, seed=3, kernel=kernels, interactions=columns
    )
    difference = np.array([0.5, -0.3, 0.8, 0.2])

    def average(reference):
        values = []
        for kernel, count in kinds:
            k = count or 4
            width = 0.7 * np.sqrt(k / (reference or k))
            for subset in itertools.combinations(range(4), k):
                part, rows = difference[list(subset)], np.ix_(subset, subset)
                r = np.sqrt(part @ COVARIANCE_OF_FOUR[rows] @ part) / width
                values.append(kernel_value(kernel, r) / math.comb(4, k) / len(kinds))
        return sum(values)

    mean, error = mean_cosine(features, difference)
    assert abs(mean - average(2)) < error < abs(mean - average(None))


@pytest.mark.parametrize("interactions", [None, 2])
def test_no_wave_is_shorter_than_two_steps(interactions):
    """Between rows on the grid the kernel stays; columns without a step keep their frequencies."""
    steps, gamma = np.array([0.8, 0.0, 1.1, 0.0]), 0.4
    options = {"seed": 3, "kernel": "matern32", "interactions": interactions}
    plain = tgp.Features.draw(100_000, gamma, COVARIANCE_OF_FOUR, **options)
    features = tgp.Features.draw(100_000, gamma, COVARIANCE_OF_FOUR, **options, steps=steps)
    z = np.abs(features.frequencies) / gamma * steps
    assert (z <= np.pi * (1.0 + 1e-12)).all()
    assert ((np.abs(plain.frequencies) / gamma * steps).max(axis=0)[[0, 2]] > np.pi).all()
    np.testing.assert_array_equal(features.frequencies[:, [1, 3]], plain.frequencies[:, [1, 3]])
    np.testing.assert_array_equal(features.frequencies == 0.0, plain.frequencies == 0.0)
    on_grid = np.array([2.0 * steps[0], 0.05, -steps[2], -0.1])
    beside = np.array([0.4, 0.0, 0.0, 0.0]) + on_grid  # negative control
    means = [[mean_cosine(f, at)[0] for f in (plain, features)] for at in (on_grid, beside)]
    assert abs(means[0][0] - means[0][1]) < 1e-10 < abs(means[1][0] - means[1][1])


def test_waves_of_periodic_columns_are_whole_and_no_shorter_than_two_steps():
    """A period of seven steps has no wave of two steps: three waves around it are the most."""
    options = {"seed": 3, "kernel": "matern12", "periods": [7.0, np.inf]}
    features = tgp.Features.draw(200, 0.5, np.eye(2), **options, steps=[1.0, 0.0])
    waves = features.frequencies[:, 0] / 0.5 / (2.0 * np.pi / 7.0)
    np.testing.assert_allclose(waves, np.round(waves), atol=1e-9)
    assert set(np.abs(np.round(waves))) == {0.0, 1.0, 2.0, 3.0}
    free = tgp.Features.draw(200, 0.5, np.eye(2), **options)
    assert np.abs(free.frequencies[:, 0]).max() / 0.5 > np.pi


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


def test_mixed_kinds_are_kept(tmp_path):
    """Also by the first of the features, which are as mixed, and by files, as tuples."""
    kinds = {"kernel": ("matern52", "gaussian"), "interactions": (1, None)}
    features = tgp.Features.draw(6, 0.5, np.eye(3), seed=1, **kinds)
    stats = tgp.accumulate(np.random.default_rng(0).standard_normal((50, 3)), features)
    model = tgp.solve(stats, tgp.GaussianBase(np.zeros(3), np.eye(3)), "fd", lam=10.0)
    model.save(tmp_path / "model.npz")
    loaded = tgp.load(tmp_path / "model.npz")
    assert loaded.settings["kernel"] == model.settings["kernel"] == ["matern52", "gaussian"]
    assert "matern52 and gaussian kernel" in loaded._repr_html_()
    for kept in (features, features.first(3), loaded.features):
        assert (kept.kernel, kept.interactions) == (kinds["kernel"], kinds["interactions"])
        assert ((kept.frequencies != 0.0).sum(axis=1)[:3] == [1, 3, 1]).all()
    assert "kernel=('matern52', 'gaussian'), interactions=(1, None)" in repr(features)
    same = tgp.Features.draw(6, 0.5, np.eye(3), kernel=("matern32", "matern32"))
    assert (same.kernel, same.interactions) == ("matern32", None)


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
        (lambda: tgp.Features.draw(2, 1.0, np.eye(2), 1.5), ValueError, "seed=1.5"),
        (lambda: tgp.Features.draw(2, 1.0, np.eye(2), kernel="rbf"), ValueError, "kernel='rbf'"),
        (lambda: tgp.Features.draw(2, 1.0, np.eye(2), interactions=0), ValueError, "interactions"),
        (lambda: tgp.Features.draw(2, 1.0, np.eye(2), interactions=3), ValueError, "at most 2"),
        (lambda: tgp.Features.draw(2, 1.0, np.eye(2), interactions=()), ValueError, "equal length"),
        (
            lambda: tgp.Features.draw(
                2, 1.0, np.eye(2), kernel=("gaussian",) * 3, interactions=(1, 2)
            ),
            ValueError,
            "equal length",
        ),
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
