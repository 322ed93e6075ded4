"""``interpolate_lattice`` of every backend against a sum written out in extended precision.

The window of these tests is the B-spline of degree 7: it has 8 pieces, its values at the nodes sum
to 1, and it is smooth enough for its derivatives to be checked by differences.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.interpolate import BSpline

OPEN, WALL, PERIOD, BELOW, ABOVE = "open", "wall", "period", "wall_below", "wall_above"
KINDS = [
    (OPEN,), (WALL,), (PERIOD,), (OPEN, OPEN), (WALL, PERIOD), (PERIOD, OPEN), (OPEN, WALL, PERIOD),
    (OPEN, OPEN, OPEN), (BELOW,), (ABOVE, BELOW),
]  # fmt: skip
TOLERANCE = 1e-12  # of the largest coefficient: some hundred roundings
every_domain = pytest.mark.parametrize("kinds", KINDS, ids="-".join)


def spline_pieces():
    """(10, 8): pieces[q, l] is the coefficient of z^q of the spline at l - 4 + z."""
    spline, z = BSpline.basis_element(np.arange(9.0)), (np.arange(8) + 0.5) / 8.0
    powers = np.vander(z, 8, increasing=True)
    pieces = np.zeros((10, 8))
    for piece in range(8):
        pieces[:8, piece] = np.linalg.solve(powers, spline(piece + z))
    return pieces


class Grid:
    """A random function of some kinds of axes, and rows that reach every corner of its domain."""

    def __init__(self, kinds):
        rng = np.random.default_rng(len(kinds) + 10 * len(KINDS) + sum(map(len, kinds)))
        self.kinds, d = kinds, len(kinds)
        nodes = np.array([9, 7, 6])[:d]
        self.low, self.length = rng.normal(size=d), rng.uniform(1.0, 3.0, d)
        step = self.length / nodes
        first = [0.5 if kind.startswith(WALL) else 0.0 for kind in kinds]
        lower = 0.3 * self.length * [kind in (OPEN, ABOVE) for kind in kinds]
        upper = 0.4 * self.length * [kind in (OPEN, BELOW) for kind in kinds]
        periodic = [float(kind == PERIOD) for kind in kinds]
        self.axes = np.stack([self.low, step, nodes, first, lower, upper, periodic], axis=1)
        shape = (1,) * (3 - d) + tuple(int(n) + 8 for n in nodes)
        # what a kernel reads beside the coefficients shows
        around = np.full(math.prod(shape) + 2 * 64, np.nan)
        self.coefficients = around[64:-64].reshape(shape)
        self.coefficients[...] = rng.normal(size=shape)
        for k, kind in enumerate(kinds):  # periods repeat
            if kind == PERIOD:
                line = np.moveaxis(self.coefficients, 3 - d + k, 0)
                line[:4], line[-4:] = line[-8:-4], line[4:8]
        self.pieces, self.stretch = spline_pieces(), rng.uniform(0.5, 2.0, d)
        self.rows = self._rows(rng)

    def _rows(self, rng):
        d, high = len(self.low), self.low + self.length
        inside = rng.uniform(self.low - 0.2 * self.length, high + 0.2 * self.length, (600, d))
        corners = np.array(list(itertools.product(*zip(self.low, high, strict=True))))
        nodes = self.low + self.length * rng.integers(0, 30, (40, d)) / 30.0
        near = corners + 1e-9 * rng.choice([-1.0, 1.0], corners.shape)
        far = self.low + 1e3 * self.length * rng.normal(size=(20, d))
        return np.concatenate([inside, corners, nodes, near, far])

    def evaluate(self, kernels, order, rows=None, n_threads=1):
        """value, gradient and laplacian of a backend, those beyond ``order`` empty."""
        x = np.ascontiguousarray(self.rows if rows is None else rows)
        n, d = x.shape
        value, gradient = np.full(n, 7.0), np.full((n if order > 0 else 0, d), 7.0)
        laplacian = np.full(n if order > 1 else 0, 7.0)
        kernels.interpolate_lattice(
            x, self.axes, self.pieces, self.coefficients, self.stretch, value, gradient, laplacian,
            n_threads,
        )  # fmt: skip
        return value, gradient, laplacian

    def exact(self, row):
        """The sum at one row in extended precision, every node visited."""
        total, windows = np.longdouble(0.0), []
        for x, (low, step, nodes, first, _, _, periodic) in zip(row, self.axes, strict=True):
            s = (np.longdouble(x) - np.longdouble(low)) / np.longdouble(step)
            if periodic:
                s -= nodes * np.floor(s / nodes)
            elif not -1e-9 <= s <= nodes + 1e-9:
                return total
            s = min(max(s, np.longdouble(0.0)), np.longdouble(nodes))
            windows.append([self.window(j - 4 + first - s) for j in range(int(nodes) + 8)])
        block = self.coefficients.reshape(self.coefficients.shape[3 - len(row) :])
        for index in np.ndindex(*block.shape):
            weight = np.longdouble(1.0)
            for k, j in enumerate(index):
                weight *= windows[k][j]
            if weight:
                total += weight * np.longdouble(block[index])
        return total * self.taper(row)

    def window(self, place):
        piece = int(np.floor(place + 4.0))
        if not 0 <= piece < 8:
            return np.longdouble(0.0)
        z = place + 4.0 - piece
        return sum(np.longdouble(c) * z**q for q, c in enumerate(self.pieces[:, piece]))

    def taper(self, row):
        product = np.longdouble(1.0)
        for x, (low, step, nodes, _, lower, upper, _) in zip(row, self.axes, strict=True):
            below = np.longdouble(x) - np.longdouble(low)
            above = np.longdouble(step) * nodes - below
            for distance, margin in ((below, lower), (above, upper)):
                t = distance / margin if margin else np.longdouble(1.0)
                if t <= 0.0:
                    return np.longdouble(0.0)
                if t < 1.0:
                    up, down = np.exp(-1.0 / t), np.exp(-1.0 / (1.0 - t))
                    product *= up / (up + down)
        return product

    def difference(self, row, k, power):
        """First or second derivative along axis k by differences of fourth order."""
        h = np.longdouble(2e-4) * np.longdouble(self.length[k])
        values = []
        for m in (-2, -1, 0, 1, 2):
            moved = np.array(row, dtype=np.longdouble)
            moved[k] += m * h
            values.append(self.exact(moved))
        first, second = (1.0, -8.0, 0.0, 8.0, -1.0), (-1.0, 16.0, -30.0, 16.0, -1.0)
        weights = first if power == 1 else second
        return sum(w * v for w, v in zip(weights, values, strict=True)) / (12.0 * h**power)


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def grid(request):
    return Grid(request.param)


def some(rows, count):
    """Every so many rows, those at the ends of the list included."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, count).astype(int))]


def test_values_are_the_sum_over_all_nodes_times_the_taper(kernels, grid):
    rows = some(grid.rows, 60 if len(grid.kinds) < 3 else 30)
    expected = np.array([float(grid.exact(row)) for row in rows])
    value, _, _ = grid.evaluate(kernels, 0, rows)
    np.testing.assert_allclose(value, expected, rtol=0, atol=TOLERANCE)
    assert (value != 0.0).sum() > 5


@pytest.mark.slow
def test_derivatives_are_those_of_the_value(kernels, grid):
    margin = 1e-3 * grid.length  # differences do not reach over the ends of the box
    inside = (grid.rows > grid.low + margin) & (grid.rows < grid.low + grid.length - margin)
    rows = some(grid.rows[inside.all(axis=1)], 12 if len(grid.kinds) < 3 else 4)
    _, gradient, laplacian = grid.evaluate(kernels, 2, rows)
    d = len(grid.kinds)
    for row, slope, bend in zip(rows, gradient, laplacian, strict=True):
        slopes = [float(grid.difference(row, k, 1)) for k in range(d)]
        bends = [float(grid.difference(row, k, 2)) for k in range(d)]
        np.testing.assert_allclose(slope, slopes, rtol=1e-7, atol=1e-7)
        assert bend == pytest.approx(np.square(grid.stretch) @ bends, rel=1e-6, abs=1e-5)


def test_outputs_can_be_left_out(kernels, grid):
    value, gradient, laplacian = grid.evaluate(kernels, 2)
    alone, none, neither = grid.evaluate(kernels, 0)
    beside, slopes, nothing = grid.evaluate(kernels, 1)
    assert len(none) == len(neither) == len(nothing) == 0
    np.testing.assert_allclose(alone, value, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(beside, value, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(slopes, gradient, rtol=0, atol=TOLERANCE * np.abs(gradient).max())
    assert np.isfinite(laplacian).all()


@pytest.mark.parametrize("kernels", ["numba", "cython"], indirect=True)
def test_compiled_backends_agree_with_numpy(kernels, grid):
    from tgpfast.kernels import _numpy

    for ours, plain in zip(grid.evaluate(kernels, 2), grid.evaluate(_numpy, 2), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=0, atol=TOLERANCE * np.abs(plain).max())


@pytest.mark.parametrize("kernels", ["numba", "cython"], indirect=True)
def test_results_do_not_depend_on_the_number_of_threads(kernels, grid):
    rows = np.tile(grid.rows, (3, 1))
    for one, two in zip(
        grid.evaluate(kernels, 2, rows), grid.evaluate(kernels, 2, rows, 2), strict=True
    ):
        np.testing.assert_array_equal(one, two)


@every_domain
def test_constant_coefficients_give_the_taper(kernels, kinds):
    grid = Grid(kinds)
    grid.coefficients[...] = 1.0
    value, _, _ = grid.evaluate(kernels, 0)
    bounded = np.array(kinds) != PERIOD
    high = grid.low + grid.length
    slack = 1e-10 * grid.length  # what is rounded beyond an end belongs to it
    inside = ~bounded | ((grid.rows >= grid.low - slack) & (grid.rows <= high + slack))
    expected = [float(grid.taper(row)) for row in grid.rows] * inside.all(axis=1)
    np.testing.assert_allclose(value, expected, rtol=0, atol=TOLERANCE)


@every_domain
def test_rows_that_are_not_finite_give_zero(kernels, kinds):
    grid = Grid(kinds)
    rows = np.repeat(grid.low[None] + 0.5 * grid.length, 4, axis=0)
    rows[1, 0], rows[2, -1], rows[3, 0] = np.nan, np.inf, -np.inf
    for output in grid.evaluate(kernels, 2, rows):
        assert (output[0] != 0.0).all()
        assert (output[1:] == 0.0).all()


def test_no_rows(kernels, grid):
    value, gradient, laplacian = grid.evaluate(kernels, 0, np.empty((0, len(grid.kinds))))
    assert len(value) == len(gradient) == len(laplacian) == 0


def test_a_wrong_window_is_noticed(kernels):
    """Negative control of the oracle: one coefficient of the pieces off by 1e-9."""
    grid = Grid((OPEN, OPEN))
    rows = some(grid.rows, 30)
    expected = np.array([float(grid.exact(row)) for row in rows])
    grid.pieces[3, 2] += 1e-9
    value, _, _ = grid.evaluate(kernels, 0, rows)
    assert np.abs(value - expected).max() > TOLERANCE
