"""Wrapped mixtures: EM against its formulas, and growth that does not depend on the cut of rows."""

import itertools

import numpy as np
import pytest
from scipy import stats

from tgpfast.bases.bounded import BoundedMixtureBase
from tgpfast.bases.domain import Domain
from tgpfast.bases.expectation_maximization import Components, Learner, Rows
from tgpfast.bases.mixture import MixtureBase
from tgpfast.bases.wrapped_mixture import (
    WIDEST_ON_CIRCLE,
    WIDEST_ON_TORUS,
    _find_images,
    _step,
    cut_open,
    grow_wrapped_mixture,
    limit_widths,
)
from tgpfast.data.scaling import Scaling
from tgpfast.kernels.thread_choice import Threads

INF = np.inf
DAY = Domain([0.0, -INF], [24.0, INF], [True, False])


def night_rows(n, seed=0):
    """Hours around midnight and around noon, and a column that rises with the hour within each."""
    rng = np.random.default_rng(seed)
    about, noon = 1.5 * rng.normal(size=n), rng.random(n) < 0.5
    height = np.where(noon, -1.0, 1.0) * about + 0.3 * rng.normal(size=n)
    return np.c_[(about + 12.0 * noon) % 24.0, height]


@pytest.mark.parametrize("covariances", ["full", "diagonal"])
def test_a_step_is_that_of_em_with_images(covariances):
    """Responsibilities and moments by scipy, over five images of each of two periodic columns."""
    rng, floor = np.random.default_rng(1), np.array([0.05, 0.04, 0.03])
    y, w = rng.uniform(0.0, [2.0, 1.0, 3.0], (60, 3)), rng.uniform(0.5, 2.0, 60)
    domain = Domain([0.0, -INF, 0.0], [2.0, INF, 3.0], [True, False, True])
    roots = 0.1 * rng.normal(size=(2, 3, 3)) + 0.3 * np.eye(3)
    squares = roots @ roots.transpose(0, 2, 1)
    if covariances == "diagonal":
        squares = squares * np.eye(3)
    start = Components(np.array([0.3, 0.7]), np.array([[0.1, 0.5, 2.9], [1.7, 0.2, 1.0]]), squares)
    rows = Rows.from_data(y, w, Scaling(np.zeros(3), np.ones(3)), Threads())
    found = _step(rows, Learner(floor, covariances), start, domain)

    turns = itertools.product(range(-2, 3), repeat=2)
    shifts = [np.array([2.0 * j, 0.0, 3.0 * k]) for j, k in turns]
    terms = np.array([
        [
            # the mean of the log density over noise of the floor's widths
            np.log(share) + stats.multivariate_normal(mean, square).logpdf(y + shift)
            - 0.5 * np.square(floor) @ np.diag(np.linalg.inv(square))
            for shift in shifts
        ]
        for share, mean, square in zip(*start, strict=True)
    ])  # (2, images, n)
    shares = np.exp(terms - np.log(np.exp(terms).sum(axis=(0, 1)))) * w / w.sum()
    for k in range(2):
        total = shares[k].sum()
        mean = sum(s @ (y + shift) for s, shift in zip(shares[k], shifts, strict=True)) / total
        gaps = [y + shift - mean for shift in shifts]
        square = sum((g.T * s) @ g for s, g in zip(shares[k], gaps, strict=True)) / total
        square += np.diag(floor**2)
        if covariances == "diagonal":
            square = square * np.eye(3)
        assert found.weights[k] == pytest.approx(total, rel=1e-5)
        np.testing.assert_allclose(found.means[k], mean, atol=1e-5)
        np.testing.assert_allclose(found.covariances[k], square, atol=1e-5)


def test_images_reach_into_the_domain():
    one = Components(np.ones(1), np.array([[23.0, 0.0]]), np.diag([1.0, 4.0])[None])
    parent, shifts = _find_images(one, DAY)
    assert sorted(shifts[:, 0]) == [-24.0, 0.0]
    assert not parent.any()
    assert not shifts[:, 1].any()


@pytest.mark.parametrize("start", [0.0, 6.5, 12.0])
def test_mixtures_do_not_depend_on_the_cut(start):
    """Also one in the middle of a peak, where growth alone leaves two halves of it."""
    x, held, fresh = night_rows(800, 1), night_rows(200, 2), night_rows(4000, 3)
    ones, domain = np.ones(800), Domain([start, -INF], [start + 24.0, INF], [True, False])
    grown = grow_wrapped_mixture(x, ones, held, np.ones(200) / 200, domain, max_work=1e9)
    base = BoundedMixtureBase.confine(grown.mixture, DAY)
    about = [
        sum(
            stats.norm(0, 1.5).pdf(gap) * stats.norm(sign * gap, 0.3).pdf(fresh[:, 1])
            for turn in (-24.0, 0.0, 24.0) for gap in [fresh[:, 0] - center + turn]
        )
        for center, sign in ((0.0, 1.0), (12.0, -1.0))
    ]
    loss = np.log(0.5 * about[0] + 0.5 * about[1]) - base.log_density(fresh)
    assert loss.mean() < 0.05
    again = BoundedMixtureBase.confine(grown.refit(x, ones), DAY)
    assert (again.log_density(fresh) - base.log_density(fresh)).mean() > -0.02
    # negative control: without images the density is too low after midnight
    if start == 6.5:
        bare = MixtureBase(grown.mixture.weights, grown.mixture.means, grown.mixture.covariances)
        seam = fresh[np.abs(fresh[:, 0] - 12.0) > 10.0]
        inside = DAY.wrap(seam)
        assert (base.log_density(seam) - bare.log_density(inside)).mean() > 0.3


def test_rows_are_cut_where_they_are_sparse():
    hours = np.random.default_rng(0).normal(1.0, 2.0, 300) % 24.0
    cut = cut_open(hours[:, None], np.ones(300), DAY.choose([0]))
    assert 8.0 < cut.low[0] % 24.0 < 18.0
    assert cut.high[0] - cut.low[0] == 24.0


def test_wide_components_keep_their_correlations():
    wide = MixtureBase([0.5, 0.5], np.zeros((2, 2)), [[[900.0, 12.0], [12.0, 1.0]], np.eye(2)])
    found = limit_widths(wide, DAY)
    assert np.sqrt(found.covariances[0, 0, 0]) == pytest.approx(24.0 * WIDEST_ON_CIRCLE)
    correlation = found.covariances[0, 0, 1] / np.sqrt(found.covariances[0, 0, 0])
    assert correlation == pytest.approx(0.4)
    np.testing.assert_array_equal(found.covariances[1], np.eye(2))
    torus = Domain([0.0] * 3, [24.0] * 3, [True] * 3)
    three = limit_widths(MixtureBase([1.0], np.zeros((1, 3)), [900.0 * np.eye(3)]), torus)
    np.testing.assert_allclose(three.covariances[0], np.square(24.0 * WIDEST_ON_TORUS) * np.eye(3))
