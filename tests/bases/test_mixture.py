"""Gaussian mixtures: formulas, what is refused, and their fit by EM."""

import math
import types
import warnings

import numpy as np
import oracle
import pytest
import scipy.stats
from example_bases import (
    assert_monte_carlo,
    clusters,
    make_features,
    make_mixture,
    make_rows,
    matrices,
)

import tgpfast as tgp
from tgpfast.bases import expectation_maximization
from tgpfast.bases import mixture as mixture_base
from tgpfast.bases.mixture import fit_mixture
from tgpfast.data.scaling import Scaling
from tgpfast.kernels.thread_choice import Threads

MixtureBase, GaussianBase = tgp.MixtureBase, tgp.GaussianBase


# -- the formulas --------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 5])
def test_mixture_log_density_is_that_of_scipy(d):
    base, x = make_mixture(d), make_rows(50, d)
    parts = [
        p * scipy.stats.multivariate_normal(m, C).pdf(x)
        for p, m, C in zip(base.weights, base.means, base.covariances, strict=True)
    ]
    # eigenvalues from 0.5 up and rows within 10 of the means: squared distances below 200
    np.testing.assert_allclose(base.log_density(x), np.log(sum(parts)), rtol=0, atol=1e-12)


def test_one_component_is_the_gaussian():
    gaussian, x = make_mixture(3, 1), make_rows(40, 3)
    one = GaussianBase(gaussian.means[0], gaussian.covariances[0])
    # squared distances below 200 and scores below 30, each after some 20 roundings
    for name in ("log_density", "score"):
        got, want = getattr(gaussian, name)(x), getattr(one, name)(x)
        np.testing.assert_allclose(got, want, rtol=0, atol=200 * 20e-16)
    stretch = np.array([0.5, 1.0, 3.0])
    np.testing.assert_allclose(
        gaussian.laplacian_at(x, stretch), one.laplacian_at(x, stretch), rtol=1e-14
    )
    np.testing.assert_array_equal(gaussian.mean, one.mean)
    np.testing.assert_array_equal(gaussian.covariance, one.covariance)
    features = make_features(3)
    for a, b in zip(gaussian.feature_moments(features), one.feature_moments(features), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-16)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_mixtures_are_evaluated_in_pieces_and_far_from_zero(offset, monkeypatch):
    """The Laplacian of seven rows at a time. Coordinates are multiples of 2^-20, so that a shift of
    1e6 loses nothing of them and the oracle without it says what is right."""
    near = make_mixture(3)
    at, x = (np.round(a * 2**20) / 2**20 for a in (near.means, make_rows(50, 3)))
    base = MixtureBase(near.weights, at + offset, near.covariances)
    monkeypatch.setattr(mixture_base, "PIECE", 7 * 3 * 3)
    stretch, args = np.array([0.5, 1.0, 3.0]), (x, near.weights, at, near.covariances)
    curved = np.einsum("nii,i->n", oracle.mixture_hessian(*args), stretch**2)
    away = x + offset
    found = base.log_density(away), base.score(away), base.laplacian_at(away, stretch)
    want = oracle.mixture_log_density(*args), oracle.mixture_score(*args), curved
    for got, expected, atol in zip(found, want, (1e-12, 1e-12, 1e-10), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=atol)


def test_the_laplacian_of_a_mixture_does_not_cancel_far_out():
    """At a million deviations one component is left, whose curvature is that of a Gaussian; squares
    of slopes taken apart would lose 1e12 times 1e-16 of it."""
    base = MixtureBase([0.5, 0.5], [[0.0, 0.0], [1.0, 0.0]], [np.eye(2), 4.0 * np.eye(2)])
    got = base.laplacian_at(np.array([[3e6, 1e6]]), np.ones(2))
    np.testing.assert_allclose(got, [-0.5], rtol=1e-14)
    tight = MixtureBase([0.5, 0.5], np.zeros((2, 2)), [1e-10 * np.eye(2), np.eye(2)])
    got = tight.laplacian_at(np.array([[1e150, 0.0]]), np.ones(2))  # a slope whose square overflows
    np.testing.assert_allclose(got, [-2.0], rtol=1e-14)


@pytest.mark.parametrize("K", [1, 150])
def test_many_components_at_many_rows_are_the_oracles(K):
    """Enough work for two threads; components of a hundredth of the spread beside wide ones."""
    rng = np.random.default_rng(0)
    scale = 10.0 ** rng.uniform(-2, 0, K)
    base = MixtureBase(
        rng.dirichlet(np.ones(K)), rng.normal(size=(K, 3)),
        matrices(rng, K, 3) * np.square(scale)[:, None, None],
    )  # fmt: skip
    x = base.sample(5_000, seed=1)
    args, stretch = (x, base.weights, base.means, base.covariances), np.array([0.5, 1.0, 3.0])
    np.testing.assert_allclose(
        base.log_density(x), oracle.mixture_log_density(*args), rtol=0, atol=1e-9
    )
    # slopes of up to 100 / width, which is 1e4: differences of far means over small widths
    np.testing.assert_allclose(base.score(x), oracle.mixture_score(*args), rtol=0, atol=1e-7)
    curved = np.einsum("nii,i->n", oracle.mixture_hessian(*(a[:50] if a is x else a for a in args)),
                       stretch**2)  # fmt: skip
    np.testing.assert_allclose(base.laplacian_at(x[:50], stretch), curved, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_every_backend_evaluates_alike(kernels, n_threads):
    base, x = make_mixture(3, 5), make_rows(700, 3)
    threads = Threads(kernels.NAME, n_threads)
    value, score = base.evaluate_at(x, score=True, threads=threads)
    np.testing.assert_allclose(value, base.log_density(x), rtol=0, atol=1e-12)
    np.testing.assert_allclose(score, base.score(x), rtol=0, atol=1e-12)


def test_a_guard_costs_a_quarter_of_a_row_and_catches_outliers():
    """Its share, mean and width are those of all rows; away from them it is all that counts."""
    x = make_rows(400, 2)
    mixture = make_mixture(2, 3)
    guarded = mixture.with_guard(x, np.ones(400))
    share = 0.25 / 400.25
    np.testing.assert_allclose(guarded.weights[-1], share, rtol=1e-14)
    np.testing.assert_allclose(guarded.means[-1], x.mean(axis=0), rtol=0, atol=1e-14)
    want = mixture_base.GUARD_WIDTH**2 * np.cov(x.T, bias=True)
    np.testing.assert_allclose(guarded.covariances[-1], want, rtol=1e-12)
    # where the mixture is, log(1 - share) is all that it loses
    lost = mixture.log_density_at(mixture.means) - guarded.log_density_at(mixture.means)
    assert (lost <= -np.log1p(-share) + 1e-14).all()
    far = x.mean(axis=0) + 30.0 * x.std(axis=0)
    alone = np.log(share) + GaussianBase(guarded.means[-1], want).log_density_at(far[None])
    np.testing.assert_allclose(guarded.log_density_at(far[None]), alone, rtol=1e-12)
    assert mixture.log_density_at(far[None]) < alone - 50.0  # what a row there would have cost
    one = make_mixture(2, 1)
    assert one.with_guard(x, np.ones(400)) is one
    assert guarded.has_guard
    bare = guarded.without_guard()
    np.testing.assert_allclose(bare.weights, mixture.weights, rtol=1e-15)
    np.testing.assert_array_equal(bare.means, mixture.means)
    assert mixture.without_guard() is mixture
    assert guarded.rescaled(Scaling(np.ones(2), np.full(2, 3.0))).has_guard


def z_c_gamma(features):
    return features.frequencies, features.phases, features.bandwidth


def test_feature_moments_of_a_mixture():
    base, features = make_mixture(3), make_features(3)
    parameters = base.weights, base.means, base.covariances
    want = oracle.mixture_feature_moments(*z_c_gamma(features), *parameters)
    for got, expected in zip(base.feature_moments(features), want, strict=True):
        # entries of at most 2/S; angles below 30, wrong by some 1e-15 of themselves
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-14)
    draws = oracle.phi(base.sample(20_000, seed=5), *z_c_gamma(features))
    assert_monte_carlo(draws, want[0])
    about = draws - want[0]
    assert_monte_carlo(np.einsum("ns,nt->nst", about[:, :6], about[:, :6]), want[1][:6, :6])


def test_draws_of_wrong_weights_are_seen(monkeypatch):
    base = make_mixture()
    wrong = MixtureBase(np.ones(3), base.means, base.covariances)
    monkeypatch.setattr(MixtureBase, "sample", lambda self, n, seed: wrong.draw(
        n, np.random.default_rng(seed)))  # fmt: skip
    with pytest.raises(AssertionError, match="standard errors"):
        assert_monte_carlo(base.sample(40_000, seed=4), base.mean)


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], np.zeros((2, 2)), np.stack([np.eye(2)] * 2)), "do not go together"),
        (([1.0, 1.0], np.zeros((2, 2)), np.stack([np.eye(3)] * 2)), "do not go together"),
        (([1.0, 0.0], np.zeros((2, 2)), np.stack([np.eye(2)] * 2)), "weights must be positive"),
        (([1.0, 1.0], np.zeros((2, 2)), np.stack([np.eye(2), -np.eye(2)])), "component 1: .*defin"),
        (([1.0], np.zeros((1, 2)), [[[1.0, 0.5], [0.0, 1.0]]]), "component 0: .*symmetric"),
        (([1.0], [[np.nan, 0.0]], [np.eye(2)]), "means"),
        (([1.0], np.zeros(2), [np.eye(2)]), "means"),
    ],
)
def test_mixtures_that_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        MixtureBase(*arguments)


def test_weights_are_rescaled_once_and_then_kept_bit_by_bit():
    rng = np.random.default_rng(0)
    for K in (3, 5, 20):
        for _ in range(20):
            weights = rng.uniform(0.1, 3.0, K)
            once = MixtureBase(weights, np.zeros((K, 1)), np.ones((K, 1, 1)))
            np.testing.assert_allclose(once.weights, weights / weights.sum(), rtol=1e-15)
            again = MixtureBase(once.weights, once.means, once.covariances)
            np.testing.assert_array_equal(once.weights, again.weights)


@pytest.mark.parametrize("K", [0, -1, 1.5, True, "3"])
def test_numbers_of_components_that_are_refused(K):
    with pytest.raises(ValueError, match=r"n_components=.*expected an integer of at least 1"):
        MixtureBase.from_data(make_rows(20), K)


# -- from scikit-learn ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_from_sklearn_reads_every_covariance_type(kind):
    """A stand-in with the attributes, of the shapes that scikit-learn documents."""
    rng, K, d = np.random.default_rng(6), 3, 2
    full = matrices(rng, K, d)
    given, want = {
        "full": (full, full),
        "tied": (full[0], np.stack([full[0]] * K)),
        "diag": (np.array([np.diag(C) for C in full]),
                 np.array([np.diag(np.diag(C)) for C in full])),
        "spherical": (full[:, 0, 0], np.array([C[0, 0] * np.eye(d) for C in full])),
    }[kind]  # fmt: skip
    means = rng.normal(size=(K, d))
    fitted = types.SimpleNamespace(
        weights_=np.array([0.5, 0.3, 0.2]), means_=means, covariances_=given, covariance_type=kind
    )
    base = MixtureBase.from_sklearn(fitted)
    np.testing.assert_array_equal(base.covariances, want)
    np.testing.assert_array_equal(base.means, means)
    np.testing.assert_allclose(base.weights, [0.5, 0.3, 0.2], rtol=1e-15)
    x = make_rows(10)
    np.testing.assert_allclose(
        base.log_density(x), oracle.mixture_log_density(x, [0.5, 0.3, 0.2], means, want), rtol=1e-12
    )


def test_from_sklearn_wants_a_fitted_mixture():
    with pytest.raises(TypeError, match=r"fitted GaussianMixture.*SimpleNamespace.*weights_"):
        MixtureBase.from_sklearn(types.SimpleNamespace(covariance_type="full"))


# -- fits by EM ----------------------------------------------------------------------------------


def test_successive_lengths_of_em_never_lower_the_likelihood(monkeypatch):
    """The whole fit, stopped after 1, 2, 3 ... steps; each stop is told."""
    x, values = make_rows(200, 2), []
    for steps in range(1, 12):
        monkeypatch.setattr(mixture_base, "EM_STEPS", steps)
        monkeypatch.setattr(mixture_base, "EM_TOLERANCE", -1e9)
        with pytest.warns(RuntimeWarning, match=f"stopped after {steps} steps"):
            base = MixtureBase.from_data(x, 3)
        values.append(base.log_density(x).mean())
    assert (np.diff(values) >= -1e-6).all()  # the floor is 1e-3 of the spread, its square 1e-6
    assert values[-1] > values[0]


def test_the_likelihood_that_em_returns_is_that_of_its_mixture():
    """In the units of X, whose spread is not 1."""
    x, w = make_rows(300, 2) * [50.0, 0.01], np.random.default_rng(0).uniform(0.1, 2.0, 300)
    found = fit_mixture(x, w, 3)
    want = np.average(found.mixture.log_density(x), weights=w)
    assert found.mean == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_em_finds_separated_components(seed):
    """What it finds is the share, mean and covariance of each cluster's rows, up to the floor
    and the overlap, below e^-18; those are within 5 standard errors of the truth."""
    truth, x, index = clusters(seed=seed)
    base = MixtureBase.from_data(x, 3, seed=seed)
    order = [int(np.argmin(np.square(base.means - m).sum(axis=1))) for m in truth.means]
    assert sorted(order) == [0, 1, 2]
    floor = 1e-6 * x.var(axis=0).max()
    for j, k in enumerate(order):
        rows = x[index == j]
        assert base.weights[k] == pytest.approx(len(rows) / len(x), abs=1e-5)
        np.testing.assert_allclose(base.means[k], rows.mean(axis=0), rtol=0, atol=1e-3)
        np.testing.assert_allclose(
            base.covariances[k], np.cov(rows.T, bias=True), rtol=0, atol=2 * floor + 5e-3
        )
        # variances of a covariance's entries are at most 2 over the rows
        assert np.abs(base.means[k] - truth.means[j]).max() < 5 / math.sqrt(len(rows))
        gap = np.abs(base.covariances[k] - truth.covariances[j]).max()
        assert gap < 5 * math.sqrt(2 / len(rows)) + 2 * floor


@pytest.mark.slow
def test_splits_find_what_scikit_learn_finds_from_several_starts():
    """Overlapping clusters in four dimensions: at least as likely as the best of three k-means."""
    mixture = pytest.importorskip("sklearn.mixture")
    x = make_mixture(4, 8, seed=3).sample(2_000, seed=0)
    found = fit_mixture(x, np.ones(2_000), 8)
    rival = mixture.GaussianMixture(8, n_init=3, random_state=0, tol=3e-5, max_iter=300).fit(x)
    assert found.mean >= rival.score(x) - 0.01





def test_bic_takes_one_component_for_a_gaussian_and_three_for_three_clusters():
    rng = np.random.default_rng(0)
    assert MixtureBase.from_data(rng.standard_normal((1_000, 2))).n_components == 1
    assert MixtureBase.from_data(clusters()[1]).n_components == 3
    assert MixtureBase.from_data(rng.standard_normal((12, 3))).n_components == 1  # few rows


def watch_sizes(monkeypatch):
    """What EM ends with at every size that BIC tries, in order."""
    finish, tried = mixture_base._GrowingMixture.finish, []

    def watched(self):
        tried.append(finish(self))
        return tried[-1]

    monkeypatch.setattr(mixture_base._GrowingMixture, "finish", watched)
    return tried


@pytest.mark.slow
def test_bic_is_that_of_the_formula(monkeypatch):
    """-2 log L + (K (1 + d + d (d + 1) / 2) - 1) log n, K being the components that are kept, least
    among those tried. As a control, a penalty without the logarithm would choose otherwise for some
    of these."""
    tried, differs = watch_sizes(monkeypatch), []
    for seed, n, d in [*((seed, 300, 2) for seed in range(6)), (0, 60, 1), (1, 60, 1)]:
        tried.clear()
        x = np.random.default_rng(seed).standard_t(6.0, (n, d))
        base = MixtureBase.from_data(x)
        loss = [-2 * found.mixture.log_density(x).sum() for found in tried]
        free = [found.mixture.n_components * (1 + d + d * (d + 1) / 2) - 1 for found in tried]
        bic = [a + b * math.log(n) for a, b in zip(loss, free, strict=True)]
        assert len(tried) >= 3
        assert base is tried[int(np.argmin(bic))].mixture
        aic = [a + b for a, b in zip(loss, free, strict=True)]
        differs.append(np.argmin(bic) != np.argmin(aic))
    assert any(differs)


def test_of_all_runs_of_em_only_the_one_that_is_taken_is_told(monkeypatch):
    monkeypatch.setattr(mixture_base, "EM_STEPS", 1)
    tried = watch_sizes(monkeypatch)
    with pytest.warns(RuntimeWarning, match="stopped after 1 steps") as caught:
        MixtureBase.from_data(clusters(300)[1])
    assert len(caught) == 1
    assert sum(not found.converged for found in tried) > 2


@pytest.mark.parametrize(
    ("n", "d", "sizes"), [(12, 3, [1]), (20, 2, [1, 2, 3])]
)
def test_numbers_of_components_that_are_tried(n, d, sizes, monkeypatch):
    """Up to as many parameters as rows: K (1 + d (d + 3) / 2) - 1."""
    grow, asked = mixture_base._GrowingMixture.grow, []
    monkeypatch.setattr(
        mixture_base._GrowingMixture, "grow",
        lambda self, size: asked.append(size) or grow(self, size),
    )
    monkeypatch.setattr(mixture_base, "SIZES", (1, 2, 3, 4, 6, 7))
    MixtureBase.from_data(make_rows(n, d))
    assert asked == sizes


def test_fits_repeat_bit_by_bit_and_other_row_orders_change_roundings_only():
    _, x, _ = clusters(600)
    base = MixtureBase.from_data(x, 3, seed=4)
    assert MixtureBase.from_data(x, 3, seed=4).fingerprint == base.fingerprint
    other = fit_mixture(x[::-1], np.ones(600), 3, seed=4).mixture
    np.testing.assert_allclose(other.log_density(x), base.log_density(x), rtol=0, atol=1e-8)


def test_weights_count_as_rows_do():
    x, counts = make_rows(200), np.random.default_rng(3).integers(1, 4, 200)
    for K, seed in ((1, 0), (3, 0), (3, 1)):  # the splits are the same
        options = {"n_components": K, "seed": seed}
        weighted = MixtureBase.from_data(x, sample_weight=counts, **options)
        repeated = MixtureBase.from_data(np.repeat(x, counts, axis=0), **options)
        # roundings of order 1e-15, over a hundred steps at most
        np.testing.assert_allclose(weighted.means, repeated.means, rtol=0, atol=1e-11)
        np.testing.assert_allclose(weighted.covariances, repeated.covariances, rtol=0, atol=1e-11)
    weighted = MixtureBase.from_data(x, 1, sample_weight=counts)
    two = MixtureBase.from_data(x, 2, sample_weight=counts)
    huge = MixtureBase.from_data(x, 2, sample_weight=counts * 1e6)
    np.testing.assert_allclose(two.means, huge.means, rtol=1e-9)
    # rows without weight do not count, wherever they are
    far = np.concatenate([x, np.full((50, 2), 1e3)])
    with_none = MixtureBase.from_data(far, 1, sample_weight=np.r_[counts, np.zeros(50)])
    np.testing.assert_allclose(with_none.means, weighted.means, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "K"),
    [
        (np.repeat(make_rows(4), 3, axis=0), 8),
        (np.concatenate([make_rows(100), np.zeros((100, 2))]), 4),
        (make_rows(5), 3),
        (make_rows(60, 3), 20),
        (np.round(make_rows(200, 3)), 10),
        (np.random.default_rng(0).integers(0, 2, (200, 3)).astype(float), 8),
        (make_rows(20, 10), 2),
        (make_rows(200, 1) ** [1, 2], 10),
    ],
    ids=[
        "more than distinct rows", "half the rows equal", "few rows", "three rows each", "rounded",
        "binary", "20 rows of 10 columns", "a column squared",
    ],
)  # fmt: skip
def test_no_component_collapses(rows, K):
    """Every width is at least the floor, along any direction, and the likelihood is above that of
    one component."""
    with warnings.catch_warnings(record=True, action="always") as told:
        base = MixtureBase.from_data(rows, K)
    assert 1 <= base.n_components <= K
    assert len(told) == (base.n_components < K)  # of components that were dropped
    standards = expectation_maximization.measure_columns(rows, np.ones(len(rows)))
    floor = standards.floor * standards.scaling.scale
    assert (floor > 0.0).all()
    values = np.linalg.eigvalsh(base.covariances / np.outer(floor, floor))
    # covariances are what means leave of second moments, to some roundings of the farthest square
    far = np.square((rows - np.median(rows, axis=0)) / floor).max()
    assert values.min() >= 1.0 - 64 * 2.0**-52 * far
    one = MixtureBase.from_data(rows, 1)
    assert base.log_density(rows).mean() >= one.log_density(rows).mean() - 1e-9
    assert np.isfinite(base.log_density(rows)).all()


@pytest.mark.parametrize("seed", range(3))
def test_em_goes_on_where_a_component_is_dropped(seed):
    """Dropping lowers the likelihood, which must not be taken for convergence: one more run from
    the result gains nothing to speak of."""
    y, w = np.random.default_rng(seed).standard_normal((60, 3)), np.ones(60)
    wide = MixtureBase(np.full(20, 0.05), y[:20], np.stack([0.3 * np.eye(3)] * 20))
    fit = mixture_base._GrowingMixture(y, w, seed)
    fit.components = mixture_base.components_of(wide, fit.scaling)
    found = fit.finish()
    assert found.mixture.n_components < 20
    assert found.converged
    again = fit.finish()
    assert again.mixture.n_components == found.mixture.n_components
    assert abs(again.mean - found.mean) < 3 * mixture_base.EM_TOLERANCE


def test_components_that_are_dropped_are_told_of():
    x = np.random.default_rng(0).standard_normal((100, 2))
    with pytest.warns(RuntimeWarning, match=r"\d+ of 40 components are left"):
        assert tgp.MixtureBase.from_data(x, 40).n_components < 40


def test_em_without_its_floor_collapses(monkeypatch):
    rows = np.concatenate([make_rows(100), np.zeros((100, 2))])
    monkeypatch.setattr(expectation_maximization, "NARROWEST_COMPONENT", 0.0)
    monkeypatch.setattr(expectation_maximization, "WIDTH_OF_A_STEP", 0.0)
    with pytest.raises((ValueError, np.linalg.LinAlgError, RuntimeWarning)):
        MixtureBase.from_data(rows, 4)
