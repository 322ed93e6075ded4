"""`LatticeTilt` against the sum over its waves, written out, and the taper's own derivatives."""

import functools
import pickle

import conftest
import lattice_oracle
import numpy as np
import pytest
from scipy import special
from scipy.integrate import quad

from tgpfast.density.exponents.lattice_exponent import CACHED_NODES, OVERSAMPLINGS, LatticeTilt
from tgpfast.density.exponents.lattice_window import (
    bessel_i1,
    wave_errors,
    window_pieces,
    window_transform,
)
from tgpfast.features.lattice import LatticeFeatures
from tgpfast.kernels.thread_choice import Threads

DOMAINS = [
    ("open",), ("wall",), ("period",), ("open", "open"), ("wall", "period"),
    ("wall_below", "wall_above"), ("open", "period", "wall"), ("open", "open", "open"),
]  # fmt: skip
STATED = 1e-6  # error of values and gradients relative to their scale
PLAIN = Threads("numpy")


def random_tilt(walls, seed=0, kernel="matern12"):
    """A rough function: coefficients of a Matern 1/2 process up to the highest frequency."""
    rng, d = np.random.default_rng(seed), len(walls)
    features = LatticeFeatures(
        rng.uniform(2.0, 5.0, d), (24, 9, 4)[:d] if d > 1 else (60,), rng.normal(size=d), kernel,
        0.2, walls,
    )  # fmt: skip
    white = rng.normal(size=features.grid_shape(2.0))
    theta = features.from_grid(white) / np.sqrt(white.size)
    return LatticeTilt(features, theta * np.sqrt(features.prior_variance))


def rows_of(features, n=300, seed=1):
    """Rows in the core, in the taper, outside, at the corners, and beside every end."""
    rng, low = np.random.default_rng(seed), features.origin
    length, d = features.lengths, features.dimension
    wide = rng.uniform(low - 0.4 * length, low + 1.4 * length, (n, d))
    ends = low + length * rng.integers(0, 2, (40, d))
    near = ends + 1e-7 * rng.choice([-1.0, 1.0], ends.shape)
    middle = np.where(rng.uniform(size=ends.shape) < 0.5, ends, low + 0.37 * length)
    return np.concatenate([wide, ends, near, middle])


class Exact:
    """Value, gradient and Laplacian by the sum over all waves, and the product rule."""

    def __init__(self, tilt, x, stretch):
        features = tilt.features
        d = features.dimension
        waves = self._waves(tilt, x)
        tapers = [lattice_oracle.taper_along(x[:, k], features, k) for k in range(d)]
        outside = np.zeros(len(x), bool)
        for k, kind in enumerate(features.walls):
            if kind != "period":
                share = (x[:, k] - features.origin[k]) / features.lengths[k]
                outside |= (share < -1e-12) | (share > 1.0 + 1e-12)  # ends belong to the box
        zero = (0,) * d
        self.value = np.where(outside, 0.0, waves(zero) * self._taper(tapers, zero))
        self.gradient, self.laplacian = np.zeros((len(x), d)), np.zeros(len(x))
        for k in range(d):
            once, twice = (tuple(p if j == k else 0 for j in range(d)) for p in (1, 2))
            flat, rise, curve = (self._taper(tapers, powers) for powers in (zero, once, twice))
            slope = waves(once) * flat + waves(zero) * rise
            self.gradient[:, k] = np.where(outside, 0.0, slope)
            bend = waves(twice) * flat + 2.0 * waves(once) * rise + waves(zero) * curve
            self.laplacian += np.where(outside, 0.0, stretch[k] ** 2 * bend)

    @staticmethod
    def _taper(tapers, powers):
        return functools.reduce(np.multiply, [t[p] for t, p in zip(tapers, powers, strict=True)])

    @staticmethod
    def _waves(tilt, x):
        features = tilt.features

        @functools.cache
        def total(powers):
            parts = []
            for k, power in enumerate(powers):
                w = features.frequencies[k]
                phase = np.multiply.outer(x[:, k] - features.origin[k], w)
                if features.cosine[k]:
                    parts.append(w**power * np.cos(phase + 0.5 * np.pi * power))
                else:
                    parts.append((1j * w) ** power * np.exp(1j * phase))
            theta, letters = features.multiplicity * tilt.theta, "abc"[: len(powers)]
            rule = ",".join(f"n{letter}" for letter in letters) + f",{letters}->n"
            return np.real(np.einsum(rule, *parts, theta, optimize=True))

        return total


def scales(tilt):
    """Root mean squares of the sum of waves, its gradient and its Laplacian, in the box."""
    features = tilt.features
    squares = features.multiplicity * np.square(np.abs(tilt.theta))
    w = features.squared_frequencies
    return [float(np.sqrt((squares * w**power).sum())) for power in (0, 1, 2)]


@pytest.fixture(scope="module", params=DOMAINS, ids="-".join)
def case(request):
    tilt = random_tilt(request.param)
    x, stretch = rows_of(tilt.features), np.array([1.0, 0.5, 2.0])[: len(request.param)]
    return tilt, x, stretch, Exact(tilt, x, stretch)


@pytest.fixture(params=conftest.BACKENDS)
def threads(request):
    conftest.load_backend(request.param)
    return Threads(request.param, 1)


def test_values_are_within_the_stated_error_of_the_exact_sum(case, threads):
    tilt, x, _, exact = case
    error = np.abs(tilt.value(x, threads) - exact.value)
    assert error.max() < STATED * scales(tilt)[0]
    assert np.sqrt(np.mean(np.square(error))) < 2.0 * tilt.interpolation_error
    assert (exact.value != 0.0).sum() > 20


def test_derivatives_are_within_the_stated_error_of_the_exact_sum(case, threads):
    tilt, x, stretch, exact = case
    _, slope, bend = scales(tilt)
    value, gradient = tilt.gradient(x, threads)
    np.testing.assert_allclose(value, tilt.value(x, threads), rtol=0, atol=1e-12)
    assert np.abs(gradient - exact.gradient).max() < STATED * slope
    laplacian = tilt.laplacian(x, stretch, threads)
    # second derivatives lose two powers of the oversampling; tapers are as steep as the waves
    assert np.abs(laplacian - exact.laplacian).max() < 20.0 * STATED * 4.0 * bend


@pytest.mark.parametrize("backend", ["numba", "cython"])
def test_backends_agree_to_rounding(case, backend):
    conftest.load_backend(backend)
    tilt, x, stretch, _ = case
    other = Threads(backend, 1)
    pairs = [
        (tilt.value(x, PLAIN), tilt.value(x, other)),
        (tilt.gradient(x, PLAIN)[1], tilt.gradient(x, other)[1]),
        (tilt.laplacian(x, stretch, PLAIN), tilt.laplacian(x, stretch, other)),
    ]
    for plain, compiled in pairs:
        np.testing.assert_allclose(compiled, plain, rtol=0, atol=1e-12 * np.abs(plain).max())


@pytest.mark.parametrize("place", ["core", "corner"])
def test_a_large_lattice_takes_a_coarser_grid_and_keeps_the_stated_error(place):
    features = LatticeFeatures([3.0, 4.0], 180, [-1.0, 0.5], "matern12", 0.2, ("period", "period"))
    theta = np.zeros(features.mode_shape, complex)
    theta[(180, 180) if place == "corner" else (3, 5)] = 0.5  # a single wave, of size 1
    tilt = LatticeTilt(features, theta)
    assert tilt.oversampling == OVERSAMPLINGS[-1]
    assert np.prod(features.grid_shape(OVERSAMPLINGS[-2])) > CACHED_NODES
    x = rows_of(features)
    error = np.abs(tilt.value(x, Threads()) - Exact(tilt, x, np.ones(2)).value).max()
    assert error < STATED
    assert error <= tilt.interpolation_error * np.sqrt(2.0) + 1e-12


def test_the_tilt_and_its_slope_are_continuous_at_the_ends_of_the_box():
    tilt = random_tilt(("open", "wall"))
    features, steps = tilt.features, np.array([1e-3, 1e-4, 1e-5, 1e-6])
    y = features.origin[1] + 0.4 * features.lengths[1]
    for end, outwards in ((0.0, -1.0), (1.0, 1.0)):
        place = features.origin[0] + end * features.lengths[0]
        for sign in (-1.0, 1.0):
            rows = np.column_stack([place + sign * outwards * steps, np.full(4, y)])
            value, gradient = tilt.gradient(rows, PLAIN)
            assert (np.abs(value) <= 1e-6 * steps).all()  # all derivatives are zero there
            assert (np.abs(gradient) <= 1e-6 * steps[:, None]).all()


def test_periodic_axes_repeat_and_walls_mirror():
    tilt = random_tilt(("period", "wall"))
    features = tilt.features
    x = rows_of(features)
    x = x[(x[:, 1] > features.origin[1]) & (x[:, 1] < features.origin[1] + features.lengths[1])]
    moved = x + 3.0 * features.lengths * [1.0, 0.0]
    np.testing.assert_allclose(tilt.value(moved, PLAIN), tilt.value(x, PLAIN), rtol=0, atol=1e-9)
    wall = x.copy()
    wall[:, 1] = features.origin[1]
    slope = tilt.gradient(wall, PLAIN)[1][:, 1]
    assert np.abs(slope).max() < STATED * scales(tilt)[1]  # normal derivatives are zero at a wall


def test_a_lattice_of_points_is_the_points():
    tilt = random_tilt(("open", "period"))
    corner, steps = tilt.origin - 0.2, np.array([[0.21, 0.03], [-0.02, 0.17]])
    index = np.stack(np.meshgrid(np.arange(11), np.arange(7), indexing="ij"), axis=-1)
    expected = tilt.value((corner + index @ steps).reshape(-1, 2), PLAIN)
    np.testing.assert_array_equal(tilt.on_lattice(corner, steps, (11, 7), PLAIN).ravel(), expected)


@pytest.mark.parametrize("walls", DOMAINS, ids="-".join)
def test_bound_and_variance(walls):
    tilt = random_tilt(walls)
    features = tilt.features
    grid = features.to_grid(tilt.theta, features.grid_shape(2.0))
    assert np.abs(grid).max() <= tilt.bound
    assert tilt.variance == pytest.approx(np.var(grid), rel=1e-9)


def test_no_tilt():
    features = LatticeFeatures([1.0, 1.0], 2, [0.0, 0.0])
    tilt = LatticeTilt(features, np.zeros(features.mode_shape))
    assert tilt.is_zero
    assert not random_tilt(("open",)).is_zero
    assert not tilt.value(np.full((3, 2), 0.5), PLAIN).any()
    assert not tilt.gradient(np.full((3, 2), 0.5), PLAIN)[1].any()
    np.testing.assert_array_equal(tilt.origin, features.origin)


def test_a_copy_by_pickle_leaves_the_grid_behind():
    tilt = random_tilt(("open", "wall"))
    x = rows_of(tilt.features)
    values = tilt.value(x, PLAIN)
    text = pickle.dumps(tilt)
    assert len(text) < 2 * tilt.theta.nbytes + 4_000
    np.testing.assert_array_equal(pickle.loads(text).value(x, PLAIN), values)


def test_theta_of_another_shape_is_refused():
    features = LatticeFeatures([1.0], 3, [0.0])
    with pytest.raises(ValueError, match=r"theta must have shape \(4,\), got \(5,\)"):
        LatticeTilt(features, np.zeros(5))


# -- the window -----------------------------------------------------------------------------------


@pytest.mark.parametrize("oversampling", OVERSAMPLINGS)
def test_the_transform_of_the_window_is_its_integral(oversampling):
    pieces = window_pieces(oversampling)

    def window(t):
        piece = min(int(t + 4.0), 7)
        return np.polyval(pieces[::-1, piece], t + 4.0 - piece)

    for angle in (0.0, 0.3, np.pi / (2.0 * oversampling)):
        integral = sum(
            quad(lambda t, a=angle: window(t) * np.cos(a * t), k, k + 1.0 - 1e-15)[0]
            for k in range(-4, 4)
        )
        assert window_transform(pieces, np.array([angle]))[0] == pytest.approx(integral, rel=1e-10)


def test_the_bessel_function_is_that_of_scipy():
    x = np.linspace(0.01, 30.0, 300)
    np.testing.assert_allclose(bessel_i1(x), special.i1(x), rtol=1e-14)
    assert bessel_i1(np.zeros(1)) == 0.0


def test_the_window_is_continuous_and_vanishes_at_its_ends():
    for oversampling in OVERSAMPLINGS:
        pieces = window_pieces(oversampling)
        ends = pieces.sum(axis=0)  # at z = 1
        np.testing.assert_allclose(ends[:-1], pieces[0, 1:], rtol=0, atol=1e-12)
        np.testing.assert_allclose([pieces[0, 0], ends[-1]], 0.0, atol=1e-12)


def test_errors_of_waves_are_as_stated():
    for oversampling, stated in zip(OVERSAMPLINGS, (3e-8, 6e-8, 4e-7), strict=True):
        angles = np.linspace(0.0, np.pi / oversampling, 50)
        errors = wave_errors(window_pieces(oversampling), angles)
        assert errors.max() < stated
        # negative control: a wave beyond those that the grid is made for
        assert wave_errors(window_pieces(oversampling), np.array([2.0 * np.pi / 3.0]))[0] > stated
