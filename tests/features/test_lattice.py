"""Lattice features: layout, transforms, prior, taper, box."""

import itertools
import pickle

import lattice_oracle as oracle
import numpy as np
import pytest
import scipy.fft
import scipy.special

from tgpfast.bases.gaussian import GaussianBase
from tgpfast.features import lattice_transform
from tgpfast.features.lattice import LatticeFeatures
from tgpfast.features.lattice_box import taper_step
from tgpfast.features.spectral_density import (
    KERNELS,
    draw_frequency_scales,
    spectral_density,
)

WALLS = [
    ("open",), ("wall",), ("open", "period"), ("open", "wall"), ("wall_below", "open"),
    ("wall", "wall_above"), ("open", "wall", "period"), ("period", "open", "wall_below"),
    ("wall", "wall", "wall"),
]  # fmt: skip


def make_lattice(walls, modes=(3, 2, 4), kernel="matern32", bandwidth=0.4):
    d = len(walls)
    return LatticeFeatures(
        np.array([2.0, 3.0, 1.5])[:d], modes[:d], np.array([-0.7, 0.2, 5.0])[:d], kernel, bandwidth,
        walls,
    )  # fmt: skip


def random_modes(lattice, seed=0):
    """Modes of a random real function."""
    values = np.random.default_rng(seed).standard_normal(lattice.grid_shape())
    return lattice.from_grid(values) / values.size


def points(lattice, n=40, seed=1):
    rng = np.random.default_rng(seed)
    return lattice.origin + lattice.lengths * rng.uniform(size=(n, lattice.dimension))


def all_modes(lattice):
    """k of every stored mode, in the order of the layout."""
    half = max((j for j, c in enumerate(lattice.cosine) if not c), default=None)
    ranges = [
        range(m + 1) if c or j == half else [*range(m + 1), *range(-m, 0)]
        for j, (m, c) in enumerate(zip(lattice.n_modes, lattice.cosine, strict=True))
    ]
    return list(itertools.product(*ranges))


def evaluate(lattice, theta, x):
    """The sum over all modes, term by term."""
    total = np.zeros(len(x))
    for k, coefficient, times in zip(
        all_modes(lattice), theta.ravel(), lattice.multiplicity.ravel(), strict=True
    ):
        waves = oracle.waves(x, lattice, k)
        total += times * (coefficient * np.conj(waves)).real
    return total


@pytest.fixture(params=["matrices", "FFTs"])
def way(request, monkeypatch):
    """Transforms by matrices, which small lattices take, and by FFTs."""
    limit = np.inf if request.param == "matrices" else 0.0
    monkeypatch.setattr(lattice_transform, "MOST_MULTIPLICATIONS", limit)
    return request.param


@pytest.mark.parametrize("walls", WALLS)
@pytest.mark.usefixtures("way")
def test_to_grid_is_the_sum_over_modes_at_the_nodes(walls):
    lattice = make_lattice(walls)
    theta, shape = random_modes(lattice), lattice.grid_shape(1.5)
    grid = np.stack(np.meshgrid(*lattice.nodes(shape), indexing="ij"), axis=-1)
    some = np.random.default_rng(2).choice(grid.size // len(walls), 20)
    x = grid.reshape(-1, len(walls))[some]
    got = lattice.to_grid(theta, shape).ravel()[some]
    assert np.abs(got - evaluate(lattice, theta, x)).max() < 1e-12


@pytest.mark.parametrize("walls", WALLS)
@pytest.mark.usefixtures("way")
def test_from_grid_is_the_adjoint_of_to_grid(walls):
    lattice = make_lattice(walls)
    shape, rng = lattice.grid_shape(), np.random.default_rng(3)
    transform = lattice.transform(shape)
    theta = random_modes(lattice, 4)
    for axis in (None, *range(len(walls))):
        values = rng.standard_normal(shape)
        left = lattice.inner(theta, transform.from_grid(values, axis))
        right = float(np.sum(transform.to_grid(theta, axis) * values))
        assert abs(left - right) <= 1e-12 * np.abs(values).sum()


@pytest.mark.parametrize("walls", WALLS)
@pytest.mark.usefixtures("way")
def test_several_functions_are_transformed_at_once(walls):
    lattice = make_lattice(walls)
    transform = lattice.transform(lattice.grid_shape())
    several = np.stack([random_modes(lattice, seed) for seed in range(3)])
    values = transform.to_grid(several)
    for theta, grid in zip(several, values, strict=True):
        assert np.abs(transform.to_grid(theta) - grid).max() < 1e-13
    back = transform.from_grid(values)
    assert np.abs(back[1] - transform.from_grid(values[1])).max() < 1e-12


@pytest.mark.parametrize("walls", WALLS)
@pytest.mark.usefixtures("way")
def test_derivatives_on_the_grid_match_differences(walls):
    lattice = make_lattice(walls)
    theta, shape, step = random_modes(lattice), lattice.grid_shape(), 1e-5
    grid = np.stack(np.meshgrid(*lattice.nodes(shape), indexing="ij"), axis=-1)
    some = np.random.default_rng(5).choice(grid.size // len(walls), 10)
    x = grid.reshape(-1, len(walls))[some]
    for axis in range(len(walls)):
        move = step * np.eye(len(walls))[axis]
        want = (evaluate(lattice, theta, x + move) - evaluate(lattice, theta, x - move)) / step / 2
        got = lattice.transform(shape).to_grid(theta, axis).ravel()[some]
        assert np.abs(got - want).max() < 1e-7


def test_small_lattices_take_matrices_and_large_ones_ffts():
    small, large = make_lattice(("open", "open"), (8, 8)), make_lattice(("open", "open"), (64, 64))
    assert small.transform(small.grid_shape())._multiplications() < 80
    assert large.transform(large.grid_shape())._multiplications() > 80


@pytest.mark.parametrize("walls", WALLS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_prior_variances_sum_to_one_and_match_the_dense_prior(walls, kernel):
    lattice = make_lattice(walls, kernel=kernel)
    assert abs(np.sum(lattice.multiplicity * lattice.prior_variance) - 1.0) < 1e-12
    dense = oracle.prior_variances(lattice)
    assert lattice.n_features == len(dense)
    # the variance of f at a point, from the modes and from the real basis
    x = points(lattice, 5)
    values = oracle.basis_values(x, lattice)
    variance = np.zeros(len(x))
    for k, s, times in zip(
        all_modes(lattice), lattice.prior_variance.ravel(), lattice.multiplicity.ravel(),
        strict=True,
    ):  # fmt: skip
        waves = oracle.waves(x, lattice, k)
        variance += times * s * np.abs(waves) ** 2
    assert np.abs(variance - np.square(values) @ dense).max() < 1e-12


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_prior_of_a_wide_lattice_has_the_kernel_as_correlation(kernel):
    lattice = LatticeFeatures([40.0], 6000, [0.0], kernel, 1.0)
    r = np.linspace(0.0, 4.0, 9)
    waves = np.cos(np.outer(r, lattice.frequencies[0]))
    got = waves @ (lattice.multiplicity * lattice.prior_variance)
    # the cut-off of the rough kernel's frequencies costs most
    assert np.abs(got - oracle.kernel_correlation(kernel, r, 1.0)).max() < 2e-3


def test_random_frequencies_of_a_matern_kernel_have_its_correlation():
    rng = np.random.default_rng(7)
    for kernel in KERNELS:
        scales = draw_frequency_scales(kernel, 200_000, rng)
        z = rng.standard_normal((200_000, 2)) * scales[:, None]
        r = np.array([0.3, 1.0, 2.5])
        got = np.cos(np.outer(r, z[:, 0])).mean(axis=1)
        want = oracle.kernel_correlation(kernel, r, 1.0)
        assert np.abs(got - want).max() < 6 / np.sqrt(2 * 200_000)


def test_spectral_densities_fall_from_one_and_unknown_kernels_are_refused():
    squares = np.array([0.0, 1.0, 4.0])
    assert spectral_density("gaussian", squares, 2.0, 3)[1] == pytest.approx(np.exp(-2.0))
    assert spectral_density("matern52", squares, 2.0, 3)[2] == pytest.approx((1 + 16 / 5) ** -4)
    with pytest.raises(ValueError, match="kernel='cubic'"):
        spectral_density("cubic", squares, 1.0, 1)


@pytest.mark.parametrize("walls", WALLS)
def test_taper_matches_the_oracle_and_differences_match_its_derivatives(walls):
    lattice = make_lattice(walls)
    x = lattice.origin + lattice.lengths * np.random.default_rng(8).uniform(
        -0.1 * np.array([k in ("open",) for k in walls]), 1.0, (300, len(walls))
    )
    assert np.abs(lattice.taper(x) - oracle.taper(x, lattice)).max() < 1e-14
    step = 1e-5
    for axis in range(len(walls)):
        column = x[:, axis]
        value, first, second = oracle.taper_along(column, lattice, axis)
        assert np.abs(lattice.taper_along(axis, column) - value).max() < 1e-14
        up, down = (lattice.taper_along(axis, column + s) for s in (step, -step))
        assert np.abs((up - down) / (2 * step) - first).max() < 1e-6 * max(np.abs(first).max(), 1)
        assert np.abs((up - 2 * value + down) / step**2 - second).max() < (
            1e-4 * max(np.abs(second).max(), 1)
        )


def test_taper_is_one_in_the_core_zero_outside_and_continuous():
    lattice = make_lattice(("open", "wall_below"))
    low, high = lattice.core
    assert (lattice.taper(np.array([low, high])) == 1.0).all()
    assert low[1] == lattice.origin[1]
    ends = lattice.origin + lattice.lengths
    assert (lattice.taper(np.array([lattice.origin - 1e-9, ends + 1e-9, ends + 1e9])) == 0.0).all()
    t = np.linspace(-0.1, 1.1, 100_001)
    assert np.abs(np.diff(taper_step(t))).max() < 3e-5  # slope at most 2 or so
    inside = t[(t > 0.001) & (t < 0.999)]
    step = scipy.special.expit(1.0 / (1.0 - inside) - 1.0 / inside)
    np.testing.assert_allclose(taper_step(inside), step, rtol=1e-12, atol=1e-300)
    # the same on a grid
    axes = lattice.nodes((7, 5))
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    assert np.array_equal(lattice.taper_on(axes).ravel(), lattice.taper(grid))


@pytest.mark.parametrize("walls", WALLS)
def test_resizing_modes_keeps_the_function(walls):
    lattice = make_lattice(walls)
    theta, x = random_modes(lattice), points(lattice, 5)
    larger = [m + 2 for m in lattice.n_modes]
    grown = lattice.resize_modes(theta, larger)
    wide = lattice.with_modes(larger)
    assert grown.shape == wide.mode_shape
    assert np.abs(evaluate(wide, grown, x) - evaluate(lattice, theta, x)).max() < 1e-12
    assert np.array_equal(wide.resize_modes(grown, lattice.n_modes), theta)
    stacked = np.stack([theta, 2 * theta])
    assert np.array_equal(lattice.resize_modes(stacked, larger)[1], 2 * grown)


@pytest.mark.parametrize("walls", WALLS)
def test_weights_of_a_grid_give_back_the_sums(walls):
    lattice = make_lattice(walls)
    theta, shape = random_modes(lattice), lattice.grid_shape(1.0)
    assert np.abs(lattice.from_grid(lattice.grid_weights(theta, shape)) - theta).max() < 1e-13


def test_fingerprints_tell_what_differs():
    lattice = make_lattice(("open", "wall"))
    other = lattice.with_kernel("gaussian", 0.3)
    assert lattice == make_lattice(("open", "wall"))
    assert hash(lattice) == hash(make_lattice(("open", "wall")))
    assert lattice != other
    assert lattice.box_fingerprint == other.box_fingerprint
    assert lattice.box_fingerprint != lattice.with_modes([3, 3]).box_fingerprint
    assert "matern32" in repr(lattice)


def test_a_copy_by_pickle_is_small_and_equal():
    lattice = make_lattice(("open", "wall"), (60, 60))
    assert lattice.prior_variance.nbytes > 20_000
    copied = pickle.loads(pickle.dumps(lattice))
    assert copied == lattice
    assert len(pickle.dumps(lattice)) < 2_000
    assert np.array_equal(copied.prior_variance, lattice.prior_variance)


def test_bad_parameters_are_refused():
    good = {"lengths": [1.0, 1.0], "n_modes": (2, 2), "origin": [0.0, 0.0]}
    for change, message in (
        ({"lengths": [1.0] * 4, "origin": [0.0] * 4, "n_modes": 2}, "serve 1 to 3 columns.* are 4"),
        ({"lengths": [1.0, -1.0]}, "must be positive"),
        ({"origin": [0.0]}, "origin has 1 entries"),
        ({"n_modes": (2, 0)}, "n_modes=0"),
        ({"walls": ("open", "door")}, "walls='door'"),
        ({"kernel": "cubic"}, "kernel='cubic'"),
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"bandwidth": 1e200}, "bandwidth"),
        ({"margin": [0.5, 0.1]}, "margin"),
        ({"margin": [0.1]}, "margin"),
        ({"margin": [0.0, 0.1]}, "margin"),
    ):
        with pytest.raises(ValueError, match=message):
            LatticeFeatures(**{**good, **change})
    with pytest.raises(ValueError, match="a grid of 4 nodes does not resolve 2 modes"):
        LatticeFeatures(**good).to_grid(np.zeros((5, 3), complex), (5, 4))
    assert LatticeFeatures(**good, walls=("wall", "open"), margin=[0.9, 0.2]).margin[0] == 0.0


# -- boxes ----------------------------------------------------------------------------------------


def test_the_core_covers_all_rows_and_the_bulk_of_the_base():
    rows = np.random.default_rng(9).exponential(size=(3000, 2))
    base = GaussianBase(rows.mean(axis=0), np.cov(rows.T))
    lattice = LatticeFeatures.for_data(rows, 20, "gaussian", 0.2, base=base)
    low, high = lattice.core
    assert (low <= rows.min(axis=0)).all()
    assert (low < 1 - 2.5).all()  # three deviations below the mean, within the limit
    assert (high >= np.quantile(rows, 0.995, axis=0) * 1.2).all()
    assert (lattice.taper(rows) == 1.0).mean() > 0.999
    assert max(lattice.n_modes) == 20


@pytest.mark.parametrize("far", [1e3, 1e12])
def test_outliers_do_not_stretch_the_box(far):
    rows = np.random.default_rng(10).standard_normal((2000, 1))
    plain = LatticeFeatures.for_data(rows, 20)
    rows[:4] = far
    base = GaussianBase(rows.mean(axis=0), np.atleast_2d(np.cov(rows.T)))
    lattice = LatticeFeatures.for_data(rows, 20, base=base)
    assert lattice.lengths[0] < 2.0 * plain.lengths[0]
    assert (lattice.taper(rows) == 1.0).mean() >= 0.98
    assert lattice.taper(rows[:4]).max() == 0.0


def test_rows_far_apart_in_two_clusters_are_all_covered():
    rng = np.random.default_rng(11)
    rows = np.concatenate([0.01 * rng.standard_normal((950, 1)), 10 + rng.standard_normal((50, 1))])
    assert (LatticeFeatures.for_data(rows, 20).taper(rows) == 1.0).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_ends_of_the_core_are_nearly_independent_around_the_period(kernel):
    stated = {"gaussian": 4e-6, "matern52": 8e-4, "matern32": 2e-3, "matern12": 7e-3}[kernel]
    rows = np.random.default_rng(12).standard_normal((500, 1))
    for bandwidth in (0.05, 0.5, 3.0):
        lattice = LatticeFeatures.for_data(rows, 400, kernel, bandwidth)
        low, high = lattice.core
        waves = np.cos((high - low)[0] * lattice.frequencies[0])
        around = waves @ (lattice.multiplicity * lattice.prior_variance)
        straight = oracle.kernel_correlation(kernel, high - low, bandwidth)[0]
        assert around - straight < stated * 1.05
        # negative control: without the margin the two ends are one point
        full = np.cos(lattice.lengths[0] * lattice.frequencies[0])
        assert full @ (lattice.multiplicity * lattice.prior_variance) > 0.99


def test_walls_and_periods_make_the_box():
    rows = np.random.default_rng(13).uniform(size=(300, 3))
    lattice = LatticeFeatures.for_data(
        rows, 10, support=[(0.0, 1.0), (None, 1.5), None], period=[None, None, 2.0]
    )
    assert lattice.walls == ("wall", "wall_above", "period")
    assert lattice.origin[0] == 0.0
    assert lattice.lengths[0] == 1.0
    assert lattice.origin[1] + lattice.lengths[1] == pytest.approx(1.5)
    assert lattice.lengths[2] == 2.0
    half = LatticeFeatures.for_data(rows[:, :1], 10, support=[(0.0, None)])
    assert half.walls == ("wall_below",)
    assert half.origin[0] == 0.0
    for options, message in (
        ({"support": [(0.2, 1.0)]}, "rows outside of its support"),
        ({"support": [(1.0, 0.0)]}, "ascending"),
        ({"support": [(0.0, None)], "period": [1.0]}, "both a period and a support"),
        ({"period": [-1.0]}, "period must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            LatticeFeatures.for_data(rows[:, :1], 10, **options)
    with pytest.raises(ValueError, match="serve 1 to 3 columns"):
        LatticeFeatures.for_data(np.zeros((5, 4)), 3)


def test_rows_that_are_all_equal_have_a_box():
    lattice = LatticeFeatures.for_data(np.full((5, 1), 7.0), 4)
    assert lattice.taper(np.array([[7.0]]))[0] == 1.0


def test_fast_lengths_are_those_of_scipy():
    for n in [*range(1, 3_000), *np.random.default_rng(0).integers(1, 2**40, 500).tolist()]:
        assert lattice_transform.fast_length(n) == scipy.fft.next_fast_len(n, real=True)
