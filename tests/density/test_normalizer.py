"""log Z against scipy's integrals, analytic cases and plain Monte Carlo; its error and warnings."""

import warnings

import numpy as np
import pytest
from conftest import slow
from scipy import integrate
from scipy.stats import norm

import tgpfast as tgp
from tgpfast.density.draws.proposal import Proposal
from tgpfast.density.exponents.exponent import PointTilt
from tgpfast.density.grids.components import Component
from tgpfast.density.normalizing import normalizer as normalizers
from tgpfast.density.normalizing import quadrature
from tgpfast.solvers.node_posterior import make_nodes

DRAWS = 131_072  # what effective sample sizes are counted of


def one_feature(w, theta, c=0.3, mean=None, covariance=None):
    """exp{theta sqrt(2) cos(w . x + c)} N(x | mean, covariance)."""
    w = np.atleast_1d(np.asarray(w, dtype=float))
    d = len(w)
    mean = np.zeros(d) if mean is None else np.asarray(mean, dtype=float)
    covariance = np.eye(d) if covariance is None else covariance
    features = tgp.Features(w[None], [c], 1.0)
    tilt = PointTilt(features, np.array([theta]), mean)
    return tgp.Density("fd", tilt, tgp.GaussianBase(mean, covariance))


def one_feature_log_moment(model, power=1.0):
    """log E[exp(power tilt)] by a fine trapezoidal rule along w . x alone, in log space."""
    w, c = model.features.frequencies[0], model.features.phases[0]
    mean, variance = w @ model.base.mean, w @ model.base.covariance @ w
    theta = power * model.theta[0] * np.sqrt(2.0)
    z = np.linspace(-40, 40, 40_001)
    terms = theta * np.cos(mean + np.sqrt(variance) * z + c) + norm.logpdf(z)
    return np.logaddexp.reduce(terms) + np.log(z[1] - z[0])


def random_model(d, S=20, size=1.0, gamma=0.8, seed=0):
    rng = np.random.default_rng(seed)
    features = tgp.Features.draw(S, gamma, np.eye(d), seed=seed)
    root = rng.normal(size=(d, d)) * 0.3 + np.eye(d)
    base = tgp.GaussianBase(rng.normal(size=d) * 3, root @ root.T)
    theta = size * rng.standard_normal(S)
    return tgp.Density("fd", PointTilt(features, theta, base.mean), base)


def predictive(d, S=20, seed=0):
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(size=(100, d)), 0.4 * rng.normal(size=(100, d)) + 2.0])
    features = tgp.Features.draw(S, 0.8, np.eye(d), seed=seed)
    stats = tgp.accumulate(x, features, engine="direct")
    return tgp.solve(stats, tgp.GaussianBase.from_data(x), "fvpd", lam=1.0)


# -- quadrature -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [random_model, predictive])
def test_quadrature_equals_scipy_in_one_dimension(make):
    model = make(1)
    z = model.log_normalizer
    assert z.method == "quadrature"

    x, step = np.linspace(-11, 11, 2**13 + 1, retstep=True)
    spread = np.sqrt(model.base.covariance[0, 0])
    values = np.exp(model.log_density(model.base.mean[0] + spread * x, normalized=False))
    total = integrate.romb(values, dx=step * spread)
    # Romberg's rule is good to 1e-10; the grid's own estimate is that of the doubled step
    assert abs(z.value - np.log(total)) < max(1e-8, z.standard_error)
    assert 0 <= z.standard_error <= quadrature.LOG_Z_TOLERANCE[1]


@pytest.mark.parametrize("make", [random_model, predictive])
def test_quadrature_equals_gauss_legendre_in_two_dimensions(make):
    """Gauss-Legendre panels, a rule that shares nothing with the trapezoidal one."""
    model = make(2)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    edges = np.linspace(-10, 10, 17)
    half = 0.5 * np.diff(edges)[:, None]
    axis, share = (edges[:-1, None] + half + half * nodes).ravel(), (half * weights).ravel()
    w = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    root = np.linalg.cholesky(model.base.covariance)
    values = model.log_density(model.base.mean + w @ root.T, normalized=False)
    total = np.exp(values) @ np.outer(share, share).ravel() * np.linalg.det(root)
    assert abs(model.log_normalizer.value - np.log(total)) < max(
        1e-8, model.log_normalizer.standard_error
    )


@pytest.mark.slow
@pytest.mark.parametrize("theta", [0.0, 0.5, -3.0, 20.0])
@pytest.mark.parametrize("w", [[2.5], [0.5, -1.5]])
def test_effective_sample_size_is_that_of_base_draws(w, theta):
    """131,072 Z^2 / E[e^(2 tilt)], whatever the number of nodes."""
    d = len(w)
    model = one_feature(w, theta, mean=np.arange(1.0, d + 1), covariance=np.eye(d) + 0.5)
    log_z, log_square = one_feature_log_moment(model), one_feature_log_moment(model, 2.0)
    z = model.log_normalizer
    assert abs(z.value - log_z) <= 1e-6
    expected = DRAWS * np.exp(2 * log_z - log_square)
    assert z.effective_sample_size == pytest.approx(expected, rel=1e-4)
    assert z.effective_sample_size <= DRAWS * (1 + 1e-12)
    assert z.effective_share == z.effective_sample_size / DRAWS


@pytest.mark.parametrize("d", [1, 2])
def test_the_grid_grows_to_where_the_mass_is(d):
    """A slow wave with a large coefficient pulls the mass some twenty deviations away."""
    w = np.full(d, 0.05)
    model = one_feature(w, 700.0, c=-1.1)
    with pytest.warns(RuntimeWarning, match="test points"):
        z = model.log_normalizer
    exact = one_feature_log_moment(model)
    assert abs(z.value - exact) < 1e-6 * max(1.0, abs(exact))
    (grid,) = model.integrator.quadrature.grids
    top = np.unravel_index(np.argmax(grid.log_mass), grid.log_mass.shape)
    place = np.array([axis[i] for axis, i in zip(grid.axes, top, strict=True)])
    assert np.linalg.norm(place) > 10  # the mode is far out
    median = model.marginal_cdf(w / np.linalg.norm(w), [np.linalg.norm(place)])[0]
    assert 0.4 < median < 0.6


@pytest.mark.slow
def test_without_its_reach_the_grid_would_miss_it(monkeypatch):
    """Negative control of the test above."""
    monkeypatch.setattr(Component, "find_reach", lambda self, log_excess: 0.0)
    model = one_feature([0.05], 700.0, c=-1.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = model.log_normalizer.value
    assert abs(value - one_feature_log_moment(model)) > 1.0


def test_a_coarse_start_is_refined():
    """A tilt that makes the density far narrower than its features' wave length."""
    model = one_feature([1.0], 4000.0, c=0.0)
    z = model.log_normalizer
    assert abs(z.value - one_feature_log_moment(model)) < 1e-6
    assert z.standard_error <= quadrature.LOG_Z_TOLERANCE[1]


# -- Sobol ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("theta", [0.5, 2.0])
@pytest.mark.parametrize("d", [4, 7])
def test_sobol_is_within_its_error_of_the_analytic_value(d, theta):
    rng = np.random.default_rng(d)
    model = one_feature(rng.normal(size=d), theta, mean=rng.normal(size=d))
    z = model.log_normalizer
    assert z.method == "importance"
    assert z.n_points in (DRAWS, DRAWS // 4)
    # eight replicates: Student's t with 7 degrees of freedom is below 6 but once in 2,000
    assert abs(z.value - one_feature_log_moment(model)) < 6 * z.standard_error
    assert z.standard_error < 1e-3
    share = np.exp(2 * one_feature_log_moment(model) - one_feature_log_moment(model, 2.0))
    assert z.effective_sample_size == pytest.approx(DRAWS * share, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("d", [3, 4])
@pytest.mark.parametrize("make", [random_model, predictive])
def test_it_agrees_with_plain_monte_carlo(d, make):
    model = make(d)
    z = model.log_normalizer
    draws = model.base.sample(40_000, seed=9)
    values = model.log_density(draws, normalized=False) - model.base.log_density(draws)
    weights = np.exp(values - z.value)  # mean 1
    error = np.hypot(weights.std() / np.sqrt(len(weights)), z.standard_error)
    assert abs(weights.mean() - 1) < 4 * error


@pytest.mark.slow
@pytest.mark.parametrize("close", [1.0, 0.0])
@pytest.mark.parametrize("make", [predictive, random_model])
def test_fewer_points_are_taken_where_they_do(make, close, monkeypatch):
    """A quarter, if their error is below FIRST_ERROR. Effective samples are counted of as many
    draws in every case."""
    monkeypatch.setattr(normalizers, "FIRST_ERROR", close)
    model, sizes, plain = make(4), [], normalizers._average_points

    def watched(tilt, proposal, threads, log2_points):
        sizes.append(log2_points)
        return plain(tilt, proposal, threads, log2_points)

    monkeypatch.setattr(normalizers, "_average_points", watched)
    z = model.log_normalizer
    log2 = [10] if close else [10, 12]
    assert sizes == log2
    assert z.n_points == normalizers.REPLICATES * 2 ** log2[-1]
    proposal = Proposal(model.base)
    few, most = (plain(model.tilt, proposal, model.threads, size) for size in (10, 12))
    assert most.n_points == DRAWS == 4 * few.n_points
    if z.n_modes == 0:
        assert z.value == pytest.approx((few if log2 == [10] else most).value, abs=1e-12)
    # t of 31 degrees, twice
    assert abs(few.value - most.value) < 6 * np.hypot(few.standard_error, most.standard_error)
    assert few.effective_sample_size == pytest.approx(most.effective_sample_size, rel=0.02)
    assert 0.05 * DRAWS < few.effective_sample_size < DRAWS


@pytest.mark.slow
def test_standard_error_is_calibrated():
    """Over many tilts, (estimate - truth) / standard error spreads as Student's t should."""
    ratios = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        model = one_feature(rng.normal(size=4) * 1.5, rng.normal() * 2, c=rng.uniform(0, 6))
        z = model.log_normalizer
        ratios.append((z.value - one_feature_log_moment(model)) / z.standard_error)
    # the root mean square of t_31 is 1.03; of 16 of them it is in (0.6, 1.7) all but surely
    assert 0.6 < np.sqrt(np.mean(np.square(ratios))) < 1.7


@pytest.mark.slow
def test_standard_errors_hardly_depend_on_the_draws(monkeypatch):
    """Those of R sets of draws spread by 1 / sqrt(2 (R - 1)) of their size: 0.13 for 32 sets."""
    model = one_feature([1.0, 0.5, 0.2, 0.1], 2.0)
    monkeypatch.setattr(normalizers, "FIRST_ERROR", 1.0)

    def spread():
        errors = []
        for seed in range(60):
            monkeypatch.setattr(normalizers, "FIRST_SEED", 10_000 * seed)
            proposal = Proposal(model.base)
            z = normalizers.estimate_by_importance(
                model.tilt, proposal, model.threads, annealed=False
            )
            errors.append(z.standard_error)
        return np.std(errors) / np.mean(errors)

    assert spread() < 0.19
    monkeypatch.setattr(normalizers, "REPLICATES", 8)
    monkeypatch.setattr(normalizers, "FIRST_LOG2_POINTS", 12)
    assert spread() > 0.19  # negative control: as many draws in 8 sets


def test_huge_tilts_stay_in_log_space():
    """Exponents beyond the range of exp: finite, and right where they are constant."""
    for d in (1, 3):
        model = one_feature(np.full(d, 1e-9), 1e5, c=0.0)  # cos = 1 over the whole base
        z = model.log_normalizer
        assert z.value == pytest.approx(1e5 * np.sqrt(2), rel=1e-12)
        assert np.isfinite(model.log_density(np.zeros((1, d)))).all()


# -- trust ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2])
def test_a_poor_normaliser_warns_once_and_says_what_to_try(d):
    """An artefact: nearly all the mass in a spot where the base has next to none."""
    model = one_feature(np.full(d, 0.3 / np.sqrt(d)), 200.0, c=-0.3 * 8.0)  # 8 deviations away
    y = np.zeros((1, d))
    with pytest.warns(RuntimeWarning) as caught:
        model.log_density(y)
    assert len(caught) == 1
    assert caught[0].filename == __file__  # though a cached property stands between
    words = str(caught[0].message)
    assert "unreliable" in words
    for advice in ("Raise lam", "gamma", 'method="map"'):
        assert advice in words
    assert model.log_normalizer.is_poor
    model.log_density(y)  # warnings are errors here: a second one would fail


@pytest.mark.parametrize("d", [1, 2, slow(4)])
def test_a_mild_tilt_does_not_warn(d):
    z = one_feature(np.full(d, 0.7), 1.0).log_normalizer
    assert not z.is_poor
    assert z.effective_sample_size > 1000


def test_unnormalised_values_need_no_normaliser(monkeypatch):
    monkeypatch.setattr("tgpfast.density.normalizing.integration.normalizer_of_quadrature", None)
    model = one_feature([0.4, 0.2], 60.0)
    assert np.isfinite(model.log_density(np.zeros((3, 2)), normalized=False)).all()
    assert np.isfinite(model.grad_log_density(np.zeros((3, 2)))).all()
    with pytest.raises(TypeError):  # negative control
        model.log_density(np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("sample", "error", "poor"),
    [(999.0, 0.0, True), (1001.0, 0.0, False), (1e5, 0.2, True), (1e5, np.nan, True)],
)
def test_what_counts_as_poor(sample, error, poor):
    assert normalizers.Normalizer(0.0, error, sample, "importance", DRAWS).is_poor is poor


def test_logsumexp_equals_scipy():
    from scipy.special import logsumexp

    values = np.random.default_rng(0).normal(size=(5, 7)) * 800
    for axis in (None, 0, 1):
        got = normalizers.logsumexp(values, axis=axis)
        assert np.allclose(got, logsumexp(values, axis=axis), rtol=1e-14)


def test_points_of_the_normalizer_are_not_those_that_map_learned_from(monkeypatch):
    """MAP lowers the mass at its own nodes, which it draws with the seed of the fit."""
    model = one_feature([1.0, 0.5, 0.2, 0.1], 0.7)
    nodes = make_nodes(model.features, model.base, 2**12, 0, finer=1.0).points
    seen, plain = [], Proposal.sobol

    def record(proposal, log2_n, seed):
        seen.append(plain(proposal, log2_n, seed))
        return seen[-1]

    monkeypatch.setattr(Proposal, "sobol", record)
    proposal = Proposal(model.base)
    normalizers.estimate_by_importance(model.tilt, proposal, model.threads, annealed=False)
    assert len(seen) >= normalizers.REPLICATES
    learned_from = set(map(tuple, nodes))
    assert all(learned_from.isdisjoint(map(tuple, points)) for points in seen)
    # negative control: with the seed of the fit they are the same points
    assert learned_from == set(map(tuple, plain(proposal, 12, 0)))
