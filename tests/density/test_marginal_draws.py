"""Marginals of many columns, by draws, against integrals on a plane; NumPy alone."""

import math

import numpy as np
import pytest
from answer_models import of_base

import tgpfast as tgp
from tgpfast.density.density import Density
from tgpfast.density.exponents.exponent import PointTilt

MEANS = np.array([[-1.0, 0.0], [1.0, 0.5]])  # of the components, in the first two columns
COVARIANCE = np.array([[0.6, 0.3], [0.3, 0.8]])


class Pair:
    """Five columns: the first two have a mixture times e^f, f(u) = sum a_s cos(z_s . u + c_s); the
    other three are independent standard normals."""

    def __init__(self, S=12):
        rng = np.random.default_rng(5)
        z, phases = np.zeros((S, 5)), rng.uniform(0.0, 6.0, S)
        z[:, :2] = rng.normal(size=(S, 2))
        theta = 0.5 * rng.normal(size=S) * math.sqrt(S / 2.0)
        means, covariance = np.zeros((2, 5)), np.eye(5)
        means[:, :2], covariance[:2, :2] = MEANS, COVARIANCE
        self.model = Density(
            "fd", PointTilt(tgp.Features(z, phases, 1.0), theta, np.zeros(5)),
            tgp.MixtureBase([0.4, 0.6], means, np.array([covariance, covariance])),
        )  # fmt: skip
        self.line = np.linspace(-7.0, 7.0, 401)
        self.step = self.line[1] - self.line[0]
        u = np.stack(np.meshgrid(self.line, self.line, indexing="ij"), axis=-1)
        log_p = np.cos(u @ z[:, :2].T + phases) @ theta * math.sqrt(2.0 / S)
        gaps = u[..., None, :] - MEANS
        squares = np.einsum("xyki,ij,xykj->xyk", gaps, np.linalg.inv(COVARIANCE), gaps)
        masses = np.exp(log_p) * (np.exp(-0.5 * squares) @ [0.4, 0.6])
        self.masses = masses / masses.sum()
        self.first, self.second = self.masses.sum(axis=1), self.masses.sum(axis=0)

    def entropy(self, masses):
        known = masses[masses > 0.0]
        return -(known * np.log(known)).sum() + masses.ndim * math.log(self.step)


@pytest.fixture(scope="module")
def pair():
    return Pair()


def is_near(answer, truth):
    """Within four standard errors, of which the size is stated too."""
    return abs(answer.value - truth) < 4.0 * answer.standard_error


def test_marginal_of_one_column_row_by_row_and_from_a_table(pair):
    """Both agree with the integral within their errors; many rows come from a smooth table."""
    marginal = pair.model.marginal(0)
    places = pair.line[100:301:4]
    truth = np.log(pair.first[100:301:4] / pair.step)
    few, errors = marginal.log_density(places[:, None], return_error=True)
    assert (np.abs(few - truth) < 5.0 * errors).all()
    assert errors.max() < 0.02
    many, errors = marginal.log_density(np.tile(places, 20)[:, None], return_error=True)
    assert (np.abs(many - np.tile(truth, 20)) < 5.0 * errors).all()
    assert errors.max() < 0.005
    line = marginal._line.fine(np.linspace(-2.0, 2.0, 2_001))
    assert np.abs(np.diff(line, 3)).max() < 1e-4  # no jumps from draw to draw


def test_a_spike_that_no_table_resolves():
    """A few hundred places around a component that is narrower than the steps of a table have the
    density of the mixture, in any order."""
    means, covariances = np.zeros((2, 5)), np.array([np.eye(5), np.eye(5)])
    covariances[1, 0, 0] = 1e-8
    others = np.array([[0.0, 1.0, 1.0, 0.0, 0.0]])  # the tilt leaves the first column alone
    tilt = PointTilt(tgp.Features(others, np.zeros(1), 1.0), np.full(1, 0.3), np.zeros(5))
    model = Density("fd", tilt, tgp.MixtureBase([0.9, 0.1], means, covariances))
    line = np.random.default_rng(0).permutation(np.linspace(-2e-4, 2e-4, 400))
    values, errors = model.marginal(0).log_density(line[:, None], return_error=True)
    density = np.exp(-0.5 * line**2) * 0.9 + np.exp(-0.5 * line**2 / 1e-8) * 0.1 / 1e-4
    wanted = np.log(density / math.sqrt(2.0 * math.pi))
    assert (np.abs(values - wanted) <= errors + 1e-9).all()
    assert errors.max() < 0.05


def test_pictures_of_marginals_take_rough_values(pair):
    """Within a few percent of the density of a sum on a plane, and zero for rows far away."""
    marginal = pair.model.marginal([0, 1])
    places = np.stack(np.meshgrid(np.arange(100, 300, 20), np.arange(100, 300, 20)), -1)
    i, j = places.reshape(-1, 2).T
    rows = np.column_stack([pair.line[i], pair.line[j]])
    found = np.exp(marginal.rough_log_density(rows))
    np.testing.assert_allclose(found, pair.masses[i, j] / pair.step**2, rtol=0.1)
    assert marginal.rough_log_density([[1e30, 0.0]])[0] < -1e30
    alone = pair.model.marginal(0)
    assert alone.rough_log_density([[0.5]])[0] == alone.log_density([[0.5]])[0]


@pytest.mark.slow
def test_entropy_and_information_of_marginals(pair):
    joint = pair.entropy(pair.masses)
    first, second = pair.entropy(pair.first), pair.entropy(pair.second)
    found = pair.model.marginal(0).entropy(seed=1)
    assert is_near(found, first)
    assert found.standard_error < 0.01
    found = pair.model.marginal([0, 1]).entropy(seed=1)
    assert is_near(found, joint)
    assert found.standard_error < 0.005  # the exponent of a row says nearly all of it
    information = first + second - joint
    found = pair.model.mutual_information(0, 1, seed=1)
    assert is_near(found, information)
    assert found.standard_error < 0.01
    assert is_near(pair.model.mutual_information([0, 2], [1, 3, 4], seed=1), information)
    assert is_near(pair.model.mutual_information(0, 2, seed=1), 0.0)


@pytest.mark.slow
def test_region_of_a_marginal_of_many_columns(pair):
    region = pair.model.marginal([0, 1]).highest_density_region(0.8)
    ordered = np.sort(pair.masses, axis=None)[::-1]
    k = int(np.searchsorted(np.cumsum(ordered), 0.8))
    assert abs(region.threshold - math.log(ordered[k] / pair.step**2)) < 0.05
    assert abs(region.probability - 0.8) < 5.0 * region.standard_error
    assert abs(region.volume - (k + 1) * pair.step**2) < 5.0 * region.volume.standard_error + 0.1


def test_entropy_of_a_marginal_of_two_columns_is_an_integral():
    """A Gaussian tilted along its first column alone: the second one stays normal."""
    features = tgp.Features([[1.3, 0.0]], [0.4], 1.0)
    tilt = PointTilt(features, np.array([0.9]), np.zeros(2))
    model = Density("fd", tilt, tgp.GaussianBase(np.zeros(2), np.diag([1.0, 4.0])))
    found = model.marginal(1).entropy()
    assert found.method == "quadrature"
    assert abs(found.value - 0.5 * math.log(2.0 * math.pi * math.e * 4.0)) < 1e-8


def test_information_of_two_columns_of_a_large_mixture_is_an_integral():
    """A base alone is reduced to the columns asked for, whose grid is small."""
    means = np.zeros((2, 6))
    means[1, :2] = 3.0
    model = of_base(tgp.MixtureBase([0.5, 0.5], means, np.array([np.eye(6)] * 2)))
    found = model.mutual_information(0, 1)
    line = np.linspace(-9.0, 12.0, 701)
    normal = np.exp(-0.5 * np.square(line)), np.exp(-0.5 * np.square(line - 3.0))
    plane = np.outer(normal[0], normal[0]) + np.outer(normal[1], normal[1])
    plane /= plane.sum()
    ratio = plane / np.outer(plane.sum(axis=1), plane.sum(axis=0))
    assert found.method == "quadrature"
    assert abs(found.value - (plane * np.log(ratio)).sum()) < 1e-8


def test_the_highest_mode_is_given_even_if_its_share_is_small():
    base = tgp.MixtureBase([0.5, 0.5], [[-4.0], [4.0]], [[[1.0]], [[0.5]]])
    found = of_base(base).mode(min_share=0.9)
    assert len(found) == 1
    assert abs(found.value[0, 0] - 4.0) < 1e-3
