"""Draws of some columns given values of the others, against closed forms and sums on grids."""

import itertools
import math

import numpy as np
import pytest
from answer_models import covariance
from scipy import stats

import tgpfast as tgp
from tgpfast.bases.bounded import BoundedMixtureBase, UniformBase
from tgpfast.bases.product import ProductBase
from tgpfast.bases.von_mises import VonMisesBase
from tgpfast.density.columns.conditional_draws import (
    PointSets,
    draw_along_line,
    draw_given,
    is_known_for_rows,
)
from tgpfast.density.columns.discrete import DiscreteDensity
from tgpfast.density.density import Density
from tgpfast.density.exponents.exponent import PointTilt
from tgpfast.density.grids.base_marginals import base_cdf

MEANS = np.array([[-1.0, 0.0], [1.0, 0.5]])
COVARIANCES = np.array([[[0.6, 0.3], [0.3, 0.8]], [[0.3, -0.1], [-0.1, 0.5]]])
SHARES = np.array([0.4, 0.6])
STEPS = {0: 0.5, 1: 0.7}


@pytest.mark.parametrize("paired", [False, True])
def test_draws_of_a_product_follow_the_conditional(paired):
    """A circle, a mixture whose columns are apart, and a uniform column; the mixture is given one
    of its columns: means and variances of its other column, and no correlation of the factors."""
    mixture = tgp.MixtureBase(SHARES, MEANS, COVARIANCES)
    base = ProductBase(
        [VonMisesBase(0.3, 2.0, -1.0, 1.0), mixture, UniformBase([0.0], [1.0])], [[2], [3, 1], [0]]
    )
    points, at = PointSets([5, 6], 14), 0.4
    y = np.full((1, points.n_points if paired else 1, 1), at)
    log_density, draws = draw_given(base, [1], y, points)
    weights = SHARES * stats.norm(MEANS[:, 1], np.sqrt(COVARIANCES[:, 1, 1])).pdf(at)
    assert np.abs(log_density - math.log(weights.sum())).max() < 1e-12
    slopes = COVARIANCES[:, 0, 1] / COVARIANCES[:, 1, 1]
    centers = MEANS[:, 0] + slopes * (at - MEANS[:, 1])
    spreads = COVARIANCES[:, 0, 0] - slopes * COVARIANCES[:, 0, 1]
    share = weights / weights.sum()
    mean = share @ centers
    square = share @ (spreads + centers**2)
    uniform, turned, other = draws[0].T  # columns 0, 2 and 3
    assert abs(other.mean() - mean) < 2e-3
    assert abs(np.square(other).mean() - square) < 5e-3
    assert abs(uniform.mean() - 0.5) < 1e-3
    assert abs(np.cos(np.pi * (turned - 0.3)).mean() - 0.6978) < 1e-3  # I_1(2) / I_0(2)
    correlation = np.corrcoef([uniform, turned, other])
    assert np.abs(correlation[np.triu_indices(3, 1)]).max() < 0.02


@pytest.mark.parametrize("turning", [[0], [1], [0, 1]], ids=["given", "drawn", "both"])
@pytest.mark.parametrize("paired", [False, True])
def test_draws_of_a_wrapped_mixture_follow_the_conditional(turning, paired):
    """Of a mixture of two columns with periods of 1.5, one of them given: sums on a grid."""
    low, high = np.full(2, -np.inf), np.full(2, np.inf)
    low[turning], high[turning] = -0.5, 1.0
    periodic = np.isin([0, 1], turning)
    base = BoundedMixtureBase(SHARES, MEANS, COVARIANCES, low, high, periodic)
    points, at = PointSets([5, 6], 14), 0.4
    y = np.full((1, points.n_points if paired else 1, 1), at + 3.0 * periodic[0])
    log_density, draws = draw_given(base, [0], y, points)
    line = np.arange(-0.5, 1.0, 0.001) if periodic[1] else np.arange(-7.0, 7.0, 0.001)
    joint = np.exp(base.log_density(np.c_[np.full(len(line), at), line])) * 0.001
    assert np.abs(log_density - math.log(joint.sum())).max() < 1e-6
    assert is_known_for_rows(base)
    expected = joint @ np.exp(2j * np.pi * line / 1.5) / joint.sum()
    assert abs(np.exp(2j * np.pi * draws[0, :, 0] / 1.5).mean() - expected) < 2e-3
    assert draws.min() >= line[0]
    assert draws.max() <= 1.0 or not periodic[1]
    assert base_cdf(base, np.array([0.0, 1.0]), line[-1:] + 0.001)[0] == pytest.approx(1.0)


def test_strata_of_a_wrapped_mixture_sum_to_its_margin():
    """The weights of the draws along a line, in any period, against a sum over the other column."""
    base = BoundedMixtureBase(
        SHARES, MEANS, COVARIANCES, [-0.5, -np.inf], [1.0, np.inf], [True, False]
    )
    line, other = np.array([-0.4, 0.1, 0.7]), np.arange(-7.0, 7.0, 0.001)
    found = np.full(3, -np.inf)
    for block in draw_along_line(base, 0, line + 1.5, PointSets([0], 8)):
        found[block.places] = np.logaddexp(found[block.places], block.log_density)
    for place, value in zip(line, found, strict=True):
        rows = np.c_[np.full(len(other), place), other]
        assert value == pytest.approx(math.log(np.exp(base.log_density(rows)).sum() * 0.001))


def test_draws_of_a_large_mixture_invert_its_running_shares():
    """Component by component of the same points, by plain NumPy."""
    rng, K = np.random.default_rng(3), 40
    means, roots = rng.normal(size=(K, 3)), 0.3 * rng.normal(size=(K, 3, 3)) + 0.5 * np.eye(3)
    covariances = roots @ roots.transpose(0, 2, 1)
    base = tgp.MixtureBase(rng.dirichlet(np.ones(K)), means, covariances)
    points, y = PointSets([5, 6], 5), np.array([-0.7, 0.2, 1.5])
    log_density, draws = draw_given(base, [1], y[:, None, None], points)
    uniforms = points.uniforms(3)
    normals = stats.norm.ppf(uniforms[:, 1:])
    for value, density, some in zip(y, log_density, draws, strict=True):
        joint = base.weights * stats.norm(
            means[:, 1], np.sqrt(covariances[:, 1, 1])).pdf(value)  # fmt: skip
        assert density[0] == pytest.approx(math.log(joint.sum()))
        ends = np.cumsum(joint) / joint.sum()
        for u, z, draw in zip(uniforms[:, 0], normals, some, strict=True):
            k = int((ends < u).sum())
            slope = covariances[k, [0, 2], 1] / covariances[k, 1, 1]
            rest = covariances[k][np.ix_([0, 2], [0, 2])] - np.outer(
                slope, covariances[k, 1, [0, 2]])  # fmt: skip
            wanted = means[k, [0, 2]] + slope * (value - means[k, 1]) + np.linalg.cholesky(rest) @ z
            np.testing.assert_allclose(draw, wanted, atol=1e-9)


class Counts:
    """Five columns: a mixture of the first two times e^f, and three of no account; the first two
    are discrete. ``with_hour`` makes the third one a circle, so that the base is a product."""

    def __init__(self, *, with_hour, S=12):
        rng = np.random.default_rng(5)
        z, phases = np.zeros((S, 5)), rng.uniform(0.0, 6.0, S)
        z[:, :2] = rng.normal(size=(S, 2))
        theta = 0.5 * rng.normal(size=S) * math.sqrt(S / 2.0)
        d = 4 if with_hour else 5
        means, covariances = np.zeros((2, d)), np.tile(np.eye(d), (2, 1, 1))
        means[:, :2], covariances[:, :2, :2] = MEANS, COVARIANCES
        base = tgp.MixtureBase(SHARES, means, covariances)
        if with_hour:
            circle = VonMisesBase(0.3, 2.0, -1.0, 1.0)
            base = ProductBase([circle, base], [[2], [0, 1, 3, 4]])
        tilt = PointTilt(tgp.Features(z, phases, 1.0), theta, np.zeros(5))
        self.model = DiscreteDensity(Density("fd", tilt, base), STEPS)
        # 20 x 20 midpoints in each cell of the grid
        cells = [np.arange(-16, 17) * STEPS[0], np.arange(-12, 13) * STEPS[1]]
        lines = [
            (c[:, None] + s * ((np.arange(20) + 0.5) / 20 - 0.5)).ravel()
            for c, s in zip(cells, STEPS.values(), strict=True)
        ]
        u = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1)
        p = np.exp(np.cos(u @ z[:, :2].T + phases) @ theta * math.sqrt(2.0 / S)) * sum(
            share * stats.multivariate_normal(mean, C).pdf(u)
            for share, mean, C in zip(SHARES, MEANS, COVARIANCES, strict=True)
        )
        p = p.reshape(33, 20, 25, 20).sum(axis=(1, 3))
        self.p = p / p.sum()
        self.rows = np.array(list(itertools.product(*cells)))


@pytest.fixture(scope="module", params=[False, True], ids=["mixture", "product"])
def counts(request):
    return Counts(with_hour=request.param)


def test_masses_of_steps_by_draws(counts):
    """Of both discrete columns, of one, and beside a column that is not discrete."""
    likely = np.flatnonzero(counts.p.ravel() > 1e-4)
    values, errors = counts.model.marginal([0, 1]).log_density(
        counts.rows[likely], return_error=True
    )
    gaps = values - np.log(counts.p.ravel()[likely])
    assert (np.abs(gaps) < 5.0 * errors).all()
    assert errors.max() < 0.03
    one = counts.p.sum(axis=1)[12:21]
    values, errors = counts.model.marginal([0]).log_density(
        counts.rows[::25][12:21, :1], return_error=True
    )
    assert (np.abs(values - np.log(one)) < 5.0 * errors).all()
    row = counts.rows[[16 * 25 + 12]]
    values, errors = counts.model.marginal([4, 0, 1]).log_density(
        np.c_[[0.3], row], return_error=True
    )
    truth = math.log(counts.p[16, 12]) + stats.norm().logpdf(0.3)
    assert abs(values[0] - truth) < 5.0 * errors[0]


@pytest.mark.slow
def test_means_over_discrete_rows_know_their_errors(counts):
    """Standard scores of entropy and information over 12 seeds: of size one, in both directions."""
    p, rest = counts.p, counts.model.marginal([0, 1])
    logs = np.log(np.maximum(p, 1e-300))
    entropy = -(p * logs).sum()
    margins = np.log(p.sum(axis=1))[:, None] + np.log(p.sum(axis=0))
    information = (p * (logs - margins)).sum()
    scores = []
    for seed in range(12):
        for answer, truth in (
            (rest.entropy(seed=seed), entropy),
            (counts.model.mutual_information(0, 1, seed=seed), information),
        ):
            scores.append((answer.value - truth) / answer.standard_error)
    assert np.abs(scores).max() < 4.0
    assert 0.5 < np.sqrt(np.mean(np.square(scores))) < 1.6


def test_points_outside_of_walls_have_no_mass():
    """A step that a wall cuts in half has the mass of the half inside."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.exponential(1.0, 400), rng.normal(size=(400, 3))])
    inner = tgp.fit(rows, support={0: (0, None)}, base="empirical", lam=1.0, n_features=20)
    found = DiscreteDensity(inner.marginal([0, 1]), {0: 0.5, 1: 1.0})
    value, error = found.log_density([[0.0, 0.0]], return_error=True)
    truth = inner.probability({0: 0.0, 1: -0.5}, {0: 0.25, 1: 0.5})
    assert abs(math.exp(value[0]) / truth - 1.0) < 5.0 * error[0] + 0.01


def test_draws_of_a_student_and_of_a_base_row_by_row():
    """Both have the conditional mean of a Gaussian of the same shape."""
    C = covariance(3)
    points, y = PointSets([1], 12), np.array([[[0.7]], [[-1.0]]])
    slope = C[[0, 2], 1] / C[1, 1]
    student = tgp.StudentBase(np.zeros(3), C, 6.0)
    log_density, draws = draw_given(student, [1], y, points)
    truth = stats.t(6.0, scale=math.sqrt(C[1, 1])).logpdf([0.7, -1.0])
    assert np.abs(log_density[:, 0] - truth).max() < 1e-12
    assert np.abs(draws.mean(axis=1) - np.outer([0.7, -1.0], slope)).max() < 0.02
