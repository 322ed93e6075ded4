"""Bases beyond one Gaussian: mixtures and heavy tails, from their formulas to `fit`."""

import dataclasses
import functools
import importlib
import math

import numpy as np
import oracle
import pytest
import scipy.special
import scipy.stats
from conftest import doctored, set_costs, slow
from example_bases import (
    assert_monte_carlo,
    clusters,
    make_features,
    make_mixture,
    make_rows,
    make_student,
)
from scipy.stats import kstest

import tgpfast as tgp
from tgpfast.bases import quasirandom as normals
from tgpfast.bases import student as student_base
from tgpfast.bases.mixture_growth import grow_mixture
from tgpfast.data.blocks import Blocks
from tgpfast.data.scaling import Scaling
from tgpfast.statistics import feature_means
from tgpfast.statistics.base_scores import accumulate_base_scores

MixtureBase, StudentBase, GaussianBase = tgp.MixtureBase, tgp.StudentBase, tgp.GaussianBase
KINDS = ("mixture", "student")
PAIRS = [(kind, method) for kind in KINDS for method in ("fd", "map")] + [("mixture", "fvpd")]
# sums of n terms err by some 1e-15 of their size, solutions by condition times that; 30 is for
# the length of the sums and for cancellation between the two terms of b
FACTOR = 30e-15


def make(kind, d=2, seed=0):
    return make_mixture(d, seed=seed) if kind == "mixture" else make_student(d, seed=seed)


def parameters(base):
    if base.kind == "mixture":
        return base.weights, base.means, base.covariances
    return base.centre, base.scale_matrix, base.degrees


def of_oracle(base, what):
    """log_density, score or hessian of the oracle as a function of rows."""
    function = getattr(oracle, f"{base.kind}_{what}")
    return lambda x: function(x, *parameters(base))


def z_c_gamma(features):
    return features.frequencies, features.phases, features.bandwidth


# -- the formulas --------------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", [0.5, 3.0, 1e3])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_student_log_density_is_that_of_scipy(d, degrees):
    base, x = make_student(d, degrees), make_rows(50, d)
    want = scipy.stats.multivariate_t(base.centre, base.scale_matrix, df=degrees).logpdf(x)
    # its gammaln(500) is 2,600: 1e-13 of it is lost
    np.testing.assert_allclose(base.log_density(x), np.atleast_1d(want), rtol=0, atol=3e-12)


@pytest.mark.parametrize("degrees", [1e7, 1e12, 1e15])
def test_student_of_many_degrees_is_a_gaussian(degrees):
    """log density = Gaussian + (q^2 - 2 (d + 2) q + d (d + 2)) / (4 nu) + O(nu^-2): with q below
    100 and d of 3 less than 2,700 / nu. A constant of cancelling gammas would be off by 1e-8, 1e-3
    and 1."""
    base, x = make_student(3, degrees), make_rows(50, 3)
    normal = GaussianBase(base.centre, base.scale_matrix)
    gap = np.abs(base.log_density(x) - normal.log_density(x)).max()
    q = np.square(normal.whiten(x)).sum(axis=1)
    assert q.max() < 100
    assert gap <= 3e3 / degrees + 1e-13
    # each component of the score: (q - d) / nu of it
    limit = (110 / degrees + 1e-14) * np.abs(normal.score(x)).max()
    assert np.abs(base.score(x) - normal.score(x)).max() <= limit


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_score_and_stretched_laplacian(kind, d):
    """Gradient and trace of the stretched Hessian of the oracle, which is checked numerically."""
    base, x = make(kind, d), make_rows(60, d)
    stretch = np.linspace(0.5, 3.0, d)
    np.testing.assert_allclose(base.score(x), of_oracle(base, "score")(x), rtol=0, atol=1e-12)
    want = np.einsum("nii,i->n", of_oracle(base, "hessian")(x), stretch**2)
    # products of two scores of up to 30, stretched by up to 9
    np.testing.assert_allclose(base.laplacian_at(x, stretch), want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_score_is_the_slope_of_the_log_density(kind):
    # h^2/6 times third derivatives below 1e3, and rounding of 1e-14 over h
    base, x, h = make(kind), make_rows(60), 1e-5
    for k, step in enumerate(h * np.eye(2)):
        slope = (base.log_density(x + step) - base.log_density(x - step)) / (2 * h)
        np.testing.assert_allclose(base.score(x)[:, k], slope, rtol=0, atol=2e-8)


@pytest.mark.parametrize("kind", ["gaussian", *KINDS])
def test_rows_too_far_for_their_squares_have_no_density_and_give_no_nan(kind):
    base = GaussianBase(np.zeros(2), np.eye(2)) if kind == "gaussian" else make(kind)
    x = np.array([[1e200, 0.0], [0.3, 0.1]])
    log_density = base.log_density(x)
    assert log_density[0] == -np.inf
    assert np.isfinite(log_density[1])
    assert np.isfinite(base.score(x)).all()
    assert not np.isnan(base.laplacian_at(x, np.ones(2))).any()


@pytest.mark.parametrize("kind", ["gaussian", *KINDS])
def test_scores_that_overflow_name_their_row(kind):
    base = GaussianBase(np.zeros(2), [[1.0, 0.9], [0.9, 1.0]]) if kind == "gaussian" else make(kind)
    base = base.rescaled(Scaling(np.zeros(2), np.full(2, 1e3)))
    x = np.array([[0.3, 0.1], [1.7e308, -1.7e308]])
    assert base.log_density(x)[1] == -np.inf
    with pytest.raises(ValueError, match=r"row 1: the score is not finite .*drop rows"):
        base.score(x)


def test_logsumexp_of_nothing_but_minus_infinity():
    values = np.array([[-np.inf, -np.inf], [0.0, -np.inf], [1e4, 1e4]])
    np.testing.assert_array_equal(
        normals.logsumexp(values, axis=1), [-np.inf, 0.0, 1e4 + math.log(2)]
    )
    assert normals.logsumexp(np.array([-1e5, -1e5])) == -1e5 + math.log(2)


# -- draws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_moments_and_marginals_of_the_base(kind):
    base = make_mixture() if kind == "mixture" else make_student(degrees=9.0)  # 4th moments exist
    x = base.sample(40_000, seed=4)
    if kind == "mixture":
        mean, covariance = oracle.mixture_moments(*parameters(base))
    else:
        mean, covariance = base.centre, base.scale_matrix * 9.0 / 7.0
    np.testing.assert_allclose(base.mean, mean, rtol=0, atol=1e-14)
    np.testing.assert_allclose(base.covariance, covariance, rtol=0, atol=1e-14)
    assert_monte_carlo(x, mean)
    assert_monte_carlo(np.einsum("ni,nj->nij", x - mean, x - mean), covariance)
    grid = np.linspace(-3.0, 3.0, 9)
    below = ((x @ [1.0, -0.5])[:, None] <= grid).astype(float)
    assert_monte_carlo(below, marginal_cdf(base, np.array([1.0, -0.5]), grid))


def marginal_cdf(base, v, grid):
    """Of the untilted base."""
    if base.kind == "mixture":
        return oracle.mixture_marginal_cdf(v, grid, *parameters(base))
    width = math.sqrt(v @ base.scale_matrix @ v)
    return scipy.stats.t.cdf((grid - v @ base.centre) / width, df=base.degrees)


@pytest.mark.parametrize("kind", KINDS)
def test_sobol_draws_have_the_marginals_of_the_base(kind):
    """Independent scrambles are unbiased; their spread over 16 is the error, and with it Student's
    quantile (15 degrees) at 2e-6 is 7.2. It is far below that of independent draws."""
    base, grid, v = make(kind), np.linspace(-3.0, 3.0, 7), np.array([0.4, 1.0])
    parts = np.array([
        ((base.draw_sobol(10, seed) @ v)[:, None] <= grid).mean(axis=0) for seed in range(16)
    ])  # fmt: skip
    want = marginal_cdf(base, v, grid)
    assert_monte_carlo(parts, want, n_errors=7.2)
    independent = np.sqrt(want * (1 - want) / 1024)
    assert (parts.std(axis=0, ddof=1) < 0.6 * independent).all()


@pytest.mark.parametrize("kind", KINDS)
def test_draws_follow_the_seed(kind):
    base = make(kind)
    np.testing.assert_array_equal(base.sample(50, seed=1), base.sample(50, seed=1))
    np.testing.assert_array_equal(base.draw_sobol(5, 1), base.draw_sobol(5, 1))
    assert not np.array_equal(base.sample(50, seed=1), base.sample(50, seed=2))
    assert not np.array_equal(base.draw_sobol(5, 1), base.draw_sobol(5, 2))
    assert base.sample(50).shape == (50, 2)
    assert not np.array_equal(base.sample(50), base.sample(50))  # anew each time
    generator = np.random.default_rng(4)
    first, second = base.sample(50, generator), base.sample(50, seed=generator)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, base.sample(50, np.random.default_rng(4)))


# -- moments of features -------------------------------------------------------------------------


def test_a_student_has_no_feature_moments():
    with pytest.raises(ValueError, match=r'StudentBase has no closed form.*"fd" or "map"'):
        make_student().feature_moments(make_features())


# -- what is refused, and what they say of themselves ---------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(2), np.eye(2), 0.0), "degrees"),
        ((np.zeros(2), np.eye(2), np.inf), "degrees"),
        ((np.zeros(2), np.eye(3), 3.0), "scale_matrix must have shape"),
        ((np.zeros(2), -np.eye(2), 3.0), "scale_matrix must be positive definite"),
        ((np.zeros(2), [[1.0, 0.5], [0.0, 1.0]], 3.0), "scale_matrix must be symmetric"),
    ],
)
def test_students_that_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        StudentBase(*arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_fingerprints_tell_parameters(kind):
    base = make(kind)
    field = "weights" if kind == "mixture" else "degrees"
    changed = base.parameters() | {field: np.square(base.parameters()[field])}
    other = type(base).from_parameters(changed)
    assert base.fingerprint == make(kind).fingerprint
    assert base.fingerprint != other.fingerprint
    assert base.fingerprint != make(kind, seed=1).fingerprint
    one = make_mixture(2, 1)
    assert one.fingerprint != GaussianBase(one.means[0], one.covariances[0]).fingerprint


@pytest.mark.parametrize("kind", ["gaussian", *KINDS])
def test_rescaled_is_the_density_of_rescaled_rows(kind):
    base = GaussianBase(np.ones(2), np.diag([1.0, 2.0])) if kind == "gaussian" else make(kind)
    scaling = Scaling(np.array([3.0, -1.0]), np.array([0.1, 20.0]))
    x = make_rows(30)
    got = base.rescaled(scaling).log_density(scaling.apply(x)) - scaling.log_volume
    # the shift costs rows some 30 / 0.1 units in the last place
    np.testing.assert_allclose(got, base.log_density(x), rtol=0, atol=1e-11)


def test_what_they_print():
    assert repr(make_mixture(2, 3)) == "MixtureBase(3 components, d=2)"
    assert repr(make_student(2, 4.0)) == "StudentBase(degrees=4, d=2)"


# -- rows in any form ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MixtureBase, StudentBase])
def test_data_without_a_density_are_named(kind):
    pandas = pytest.importorskip("pandas")
    x = make_rows(50, 3)
    x[:, 2] = x[:, 0] - 2 * x[:, 1]
    with pytest.raises(ValueError, match="columns 0, 1, 2 are linearly dependent"):
        kind.from_data(x)
    x[:, 2] = 7.0
    with pytest.raises(ValueError, match=r"column 2 \('c'\) is constant"):
        kind.from_data(pandas.DataFrame(x, columns=list("abc")))
    with pytest.raises(ValueError, match="2 rows do not span 3 columns"):
        kind.from_data(make_rows(2, 3))


@pytest.mark.parametrize("kind", [MixtureBase, StudentBase])
def test_from_data_reads_frames_lists_and_callables(kind):
    pandas = pytest.importorskip("pandas")
    x = make_rows(200)
    want = kind.from_data(x)
    for rows in (pandas.DataFrame(x, columns=["a", "b"]), [x], lambda: iter([x]), iter([x])):
        assert kind.from_data(rows).fingerprint == want.fingerprint


def test_rises_of_the_log_gamma_function():
    for a in np.geomspace(1e-3, 1e3, 25):
        for step in (0.5, 1.0, 3.5, 50.0):
            value, slope = student_base.log_gamma_rise(a, step)
            want = scipy.special.gammaln(a + step) - scipy.special.gammaln(a)
            assert value == pytest.approx(want, rel=1e-11, abs=1e-11)
            want = scipy.special.digamma(a + step) - scipy.special.digamma(a)
            assert slope == pytest.approx(want, rel=1e-11)
    for a in (0.3, 20.0, 1e8):  # Gamma(a + 3) is a (a + 1) (a + 2) Gamma(a)
        value, slope = student_base.log_gamma_rise(a, 3.0)
        assert value == pytest.approx(sum(math.log(a + k) for k in range(3)), rel=1e-14)
        assert slope == pytest.approx(sum(1.0 / (a + k) for k in range(3)), rel=1e-7)


# -- EM of Student -------------------------------------------------------------------------------


def student_errors(base, x):
    """Standard errors of log degrees and of the centre, by the Fisher information at the truth:
    numerical second derivative of the profile in log nu, Cramer and Rao for the centre."""
    h = 1e-3

    def at(shift):
        return oracle.student_log_density(
            x, base.centre, base.scale_matrix, base.degrees * math.exp(shift)
        ).mean()

    # other parameters free: an information about one half of it at worst is what is left
    information = -(at(h) - 2 * at(0.0) + at(-h)) / h**2
    d, nu = base.dimension, base.degrees
    centre = np.sqrt(np.diag(base.scale_matrix) * (nu + d + 2) / (nu + d) / len(x))
    return 1 / math.sqrt(0.5 * information * len(x)), centre


@pytest.mark.parametrize("seed", range(2))
def test_student_em_recovers_three_degrees(seed):
    truth = make_student(2, 3.0)
    x = truth.sample(4_000, seed=seed)
    base = StudentBase.from_data(x)
    of_degrees, of_centre = student_errors(truth, x)
    assert abs(math.log(base.degrees / 3.0)) < 5 * of_degrees
    assert of_degrees < 0.15  # else the test could not fail
    assert (np.abs(base.centre - truth.centre) < 5 * of_centre).all()
    # the scale's entries have errors of about sqrt((nu + d + 2) / (nu + d) 2 / n) of the diagonal
    allowed = 5 * math.sqrt(2 * 7 / 5 / 4_000) * np.diag(truth.scale_matrix).max() * 1.5
    assert np.abs(base.scale_matrix - truth.scale_matrix).max() < allowed
    assert base.log_density(x).mean() > truth.log_density(x).mean()


def test_student_em_is_where_the_likelihood_is_flat():
    """Derivatives in centre, scale and log degrees, numerical; a stop at a gain of 1e-8 a step
    leaves the likelihood some 1e-6 below the top, and slopes of up to some 1e-3."""
    x = make_student(2, 3.0).sample(1_000, seed=5)
    base = StudentBase.from_data(x)

    def at(centre=0.0, scale=0.0, degrees=0.0):
        return oracle.student_log_density(
            x, base.centre + centre, base.scale_matrix * math.exp(scale),
            base.degrees * math.exp(degrees),
        ).mean()  # fmt: skip

    for name in ("centre", "scale", "degrees"):
        slope = (at(**{name: 1e-4}) - at(**{name: -1e-4})) / 2e-4
        assert abs(slope) < 1e-3, name
        assert at(**{name: 0.1}) < at() > at(**{name: -0.1})


def test_student_em_takes_many_degrees_for_normal_rows():
    """The likelihood gains (excess kurtosis of order 1 / nu) nothing below 30 degrees: 1 / nu is
    estimated to some sqrt(1 / (n d (d + 2) / ...)) < 0.008 here, four errors of which are 1/30."""
    x = np.random.default_rng(7).standard_normal((4_000, 3)) * [1.0, 10.0, 0.1] + 5.0
    base = StudentBase.from_data(x)
    assert 30.0 < base.degrees <= student_base.MOST_DEGREES * (1 + 1e-9)
    normal = GaussianBase.from_data(x)
    assert base.log_density(x).mean() > normal.log_density(x).mean() - 1e-3


def test_student_em_never_lowers_the_likelihood(monkeypatch):
    x, values = make_student(2, 2.0).sample(500, seed=1), []
    monkeypatch.setattr(student_base, "STUDENT_EM_TOLERANCE", -1.0)
    for steps in range(1, 15):
        monkeypatch.setattr(student_base, "STUDENT_EM_STEPS", steps)
        values.append(StudentBase.from_data(x).log_density(x).mean())
    # degrees are found to 1e-5 of their logarithm; the ridge moves the scale by 1e-6 of it
    assert (np.diff(values) >= -1e-9).all()
    assert values[-1] > values[0] + 0.01


@pytest.mark.parametrize("degrees", [0.6, 0.7])
def test_the_ridge_of_student_does_not_follow_the_tails(degrees):
    """Variances of such rows are dominated by their farthest; scale and degrees are found."""
    truth = StudentBase(np.zeros(1), np.eye(1), degrees)
    x = truth.sample(4_000, seed=2)
    assert student_base.STUDENT_RIDGE * x.var() > 1.0  # of the variance it would swamp the scale
    base = StudentBase.from_data(x)
    of_degrees, _ = student_errors(truth, x)
    assert abs(math.log(base.degrees / degrees)) < 5 * of_degrees
    assert abs(math.log(base.scale_matrix[0, 0])) < 0.4  # error about sqrt(4 (nu + 3) / nu / n)


@pytest.mark.parametrize("share", [0.6, 0.95])
def test_student_em_does_not_collapse_on_repeated_rows(share):
    n = 500
    x = make_rows(n)
    x[: int(share * n)] = 1.5
    base = StudentBase.from_data(x)
    assert np.linalg.eigvalsh(base.scale_matrix).min() > 1e-9
    assert np.isfinite(base.log_density(x)).all()
    assert base.degrees >= student_base.LEAST_DEGREES * (1 - 1e-9)


def test_student_weights_count_as_rows_do():
    x, counts = make_rows(200), np.random.default_rng(3).integers(1, 4, 200)
    weighted = StudentBase.from_data(x, sample_weight=counts)
    repeated = StudentBase.from_data(np.repeat(x, counts, axis=0))
    # the ridge comes from the rows' quantiles, which repeats move: 1e-6 of the scale, and a stop
    np.testing.assert_allclose(weighted.centre, repeated.centre, rtol=0, atol=1e-4)
    np.testing.assert_allclose(weighted.scale_matrix, repeated.scale_matrix, rtol=0, atol=1e-3)


# -- statistics ----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_scores_are_the_oracles(kernels, kind, weighted):
    base, features, x = make(kind, 3), make_features(3), make_rows(300, 3)
    w = np.random.default_rng(1).uniform(0.2, 2.0, 300) if weighted else None
    want = oracle.sum_dphi_score(
        x, *z_c_gamma(features), of_oracle(base, "score")(x), w
    )
    rows = Blocks(x, sample_weight=w)
    got = accumulate_base_scores(rows, features, base, backend=kernels.__name__.rsplit("_", 1)[1])
    # 300 terms of at most sqrt(2/S) times a score of 30, each to 1e-14
    np.testing.assert_allclose(got, want, rtol=0, atol=300 * 0.4 * 30 * 1e-14)


def test_sums_of_scores_over_blocks_that_do_not_divide():
    base, features, x = make("mixture"), make_features(), make_rows(9_001)
    whole = accumulate_base_scores(Blocks(x), features, base)
    parts = accumulate_base_scores(Blocks([x[:10], x[10:4_107], x[4_107:]]), features, base)
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-13 * 9_001)
    for threads in (1, 2):
        again = accumulate_base_scores(Blocks(x), features, base, n_threads=threads)
        np.testing.assert_allclose(again, whole, rtol=0, atol=1e-13 * 9_001)


def transforms(monkeypatch):
    """Features so dear that transforms are taken wherever they can; the list grows with each."""
    pytest.importorskip("finufft")
    done, plain = [], feature_means.transform

    def watched(columns, *args):
        done.append(len(columns[0]))
        return plain(columns, *args)

    set_costs(monkeypatch, feature=1e-3)
    monkeypatch.setattr(feature_means, "transform", watched)
    return done


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_sums_of_scores_by_transforms_keep_their_tolerance(d, kind, far, monkeypatch):
    """1e-9 of sum w |score| times the features' amplitude, one transform for each coordinate; rows
    far outside are left to the terms, and so are all rows of four coordinates."""
    done = transforms(monkeypatch)
    base, features, x = make(kind, d), make_features(d), make_rows(300, d)
    if far:
        x[3], x[7] = 1e9, -1e5
    w = np.random.default_rng(1).uniform(0.2, 2.0, 300)
    score = of_oracle(base, "score")(x)
    got = accumulate_base_scores(Blocks(x, sample_weight=w), features, base)
    want = oracle.sum_dphi_score(x, *z_c_gamma(features), score, w)
    size = w[:, None] * np.abs(score)
    # angles of below 10 |x| are rounded a few times over
    rounding = 4 * 2.0**-52 * (10 * np.abs(x).max(axis=1) + 100) @ size
    allowed = math.sqrt(2 / 20) * (1e-9 * size.sum(axis=0) + rounding)
    if far and kind == "mixture":  # a score of 1e9 drowns the rest
        assert np.isfinite(got).all()
    else:
        assert (np.abs(got - want) <= allowed).all()
    assert len(done) == (0 if d == 4 else d)
    assert all(n < 300 if far else n == 300 for n in done)


def test_the_tolerance_reaches_the_transform_of_scores(monkeypatch):
    base, features, x = make("student"), make_features(), make_rows()
    plain = accumulate_base_scores(Blocks(x), features, base)
    done = transforms(monkeypatch)
    rough = tgp.accumulate(x, features, base=base, tolerance=1e-3).sum_dphi_score
    want = accumulate_base_scores(Blocks(x), features, base, tolerance=1e-3)
    np.testing.assert_array_equal(rough, want)
    assert len(done) == 4
    error = np.abs(rough - plain).max(axis=0)
    assert (error > 1e-11).all()
    assert (error <= math.sqrt(2 / 20) * 1e-3 * np.abs(base.score(x)).sum(axis=0)).all()


@pytest.mark.parametrize("engine", ["direct", "spectral"])
@pytest.mark.parametrize("kind", KINDS)
def test_statistics_know_the_base_and_nothing_else_changes(kind, engine):
    if engine == "spectral":
        pytest.importorskip("finufft")
    base, features, x = make(kind), make_features(), make_rows()
    plain = tgp.accumulate(x, features, engine=engine)
    stats = tgp.accumulate(x, features, base=base, engine=engine)
    assert (plain.sum_dphi_score, plain.score_base) == (None, None)
    assert stats.score_base == base.fingerprint
    np.testing.assert_array_equal(stats.gram, plain.gram)
    np.testing.assert_array_equal(stats.sum_phi, plain.sum_phi)
    assert not stats.sum_dphi_score.flags.writeable
    gaussian = GaussianBase(np.zeros(2), np.eye(2))
    assert tgp.accumulate(x, features, base=gaussian).score_base is None


def test_statistics_with_a_base_add():
    base, features, x = make("mixture"), make_features(), make_rows()
    w = np.linspace(0.5, 2.0, len(x))
    of = functools.partial(tgp.accumulate, features=features, base=base, precision="float64")
    whole = of(x, sample_weight=w)
    both = of(x[:100], sample_weight=w[:100]) + of(x[100:], sample_weight=w[100:])
    assert both.score_base == base.fingerprint
    for name in ("sum_dphi_score", "gram", "sum_phi"):
        np.testing.assert_allclose(getattr(both, name), getattr(whole, name), rtol=0, atol=1e-11)
    assert both.fingerprint == whole.fingerprint
    plain = tgp.accumulate(x, features)
    for other in (tgp.accumulate(x, features, base=make("mixture", seed=1)), plain):
        assert other.fingerprint != whole.fingerprint
        for pair in ((whole, other), (other, whole)):
            with pytest.raises(ValueError, match=r"cannot be added: .*different bases"):
                pair[0] + pair[1]


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_with_a_base_are_saved_and_loaded(tmp_path, kind):
    base, features, x = make(kind), make_features(), make_rows()
    stats = tgp.accumulate(x, features, base=base)
    path = tmp_path / "stats.npz"
    stats.save(path)
    back = tgp.load(path)
    np.testing.assert_array_equal(back.sum_dphi_score, stats.sum_dphi_score)
    assert (back.score_base, back.fingerprint) == (stats.score_base, stats.fingerprint)
    np.testing.assert_array_equal(tgp.solve(back, base).theta, tgp.solve(stats, base).theta)
    doctored(path, {"sum_dphi_score": None})
    with pytest.raises(ValueError, match="sum_dphi_score"):
        tgp.load(path)


@pytest.mark.parametrize("method", ["fd", "fvpd"])
def test_solve_says_how_to_make_statistics_for_a_base(method):
    features, x = make_features(), make_rows()
    message = r"score of this MixtureBase.*accumulate\(.*base=base"
    for known in (None, make("mixture", seed=1), make("student")):
        stats = tgp.accumulate(x, features, base=known)
        with pytest.raises(ValueError, match=message):
            tgp.solve(stats, make("mixture"), method)


def test_accumulate_refuses_what_is_no_base():
    features, x = make_features(), make_rows()
    with pytest.raises(TypeError, match="base must be a base of tgpfast, got str"):
        tgp.accumulate(x, features, base="mixture")
    with pytest.raises(ValueError, match="base has dimension 3, the features have 2"):
        tgp.accumulate(x, features, base=make("mixture", 3))
    with pytest.raises(ValueError, match=r"read only once.*MixtureBase it is read twice"):
        tgp.accumulate(iter([x]), features, base=make("mixture"))


# -- Fisher divergence ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_fd_minimises_the_fisher_objective(kind, d, weighted):
    """Against the oracle's solution, and by the slope of the oracle's objective at theta."""
    base, features, x, lam = make(kind, d), make_features(d), make_rows(300, d), 0.4
    w = np.random.default_rng(1).uniform(0.2, 2.0, 300) if weighted else None
    stats = tgp.accumulate(x, features, base=base, sample_weight=w, precision="float64")
    model = tgp.solve(stats, base, "fd", lam)
    score = of_oracle(base, "score")(x)
    trace = np.trace(of_oracle(base, "hessian")(x), axis1=1, axis2=2)
    want = oracle.theta_fd_any(x, *z_c_gamma(features), lam, score, w)
    condition = float(model.diagnostics["condition"])
    allowed = FACTOR * condition * np.abs(want).max()
    assert np.abs(model.theta - want).max() <= allowed

    def at(theta):
        return oracle.fisher_objective_any(
            x, theta, *z_c_gamma(features), lam, score, trace, w
        )

    # quadratic: central differences of any step are exact, but for 1e-15 of the values
    scale = max(abs(at(model.theta)), 1.0)
    largest = np.abs(np.linalg.eigvalsh(
        (features.frequencies @ features.frequencies.T) * stats.gram / features.bandwidth**2
    )).max() + lam  # fmt: skip
    for step in np.eye(20)[::4]:
        up, down = at(model.theta + step), at(model.theta - step)
        assert abs(up - down) / 2 <= largest * allowed * math.sqrt(20) + 1e-14 * scale
        assert min(up, down) > at(model.theta)


def test_fd_with_another_score_is_not_the_minimum():
    """Negative control: with the score of another base the objective has a slope at theta."""
    base, features, x = make("mixture"), make_features(), make_rows()
    other = make("mixture", seed=1)
    stats = tgp.accumulate(x, features, base=other)
    theta = tgp.solve(dataclasses.replace(stats, score_base=base.fingerprint), base).theta
    want = oracle.theta_fd_any(x, *z_c_gamma(features), 0.1, of_oracle(base, "score")(x))
    assert np.abs(theta - want).max() > 0.01 * np.abs(want).max()


@pytest.mark.parametrize("method", ["fd", "fvpd"])
def test_a_mixture_of_one_is_solved_like_the_gaussian(method):
    mixture, features, x = make_mixture(2, 1), make_features(), make_rows()
    gaussian = GaussianBase(mixture.means[0], mixture.covariances[0])
    stats = tgp.accumulate(x, features, base=mixture, precision="float64")
    a, b = (tgp.solve(stats, base, method, 0.4) for base in (mixture, gaussian))
    if method == "fvpd":
        np.testing.assert_allclose(a.M, b.M, rtol=0, atol=1e-13 * np.abs(b.M).max())
        np.testing.assert_allclose(a.m, b.m, rtol=0, atol=FACTOR * 300)
        condition = np.linalg.cond(b.M)
        scale = np.abs(b.log_density(x, normalized=False)).max()
    else:
        condition, scale = float(b.diagnostics["condition"]), 1 + np.abs(b.theta).sum()
        gap = np.abs(a.theta - b.theta).max()
        assert gap <= FACTOR * condition * np.abs(b.theta).max()
    gap = a.log_density(x, normalized=False) - b.log_density(x, normalized=False)
    assert np.abs(gap).max() <= FACTOR * condition * scale


def test_fd_with_a_student_of_many_degrees_is_that_of_the_gaussian():
    """Scores differ by (q - d) / nu of themselves, q below 60 here, so b by 60 / nu of the sum of
    its terms' sizes, and theta by the norm of the inverse times that."""
    nu, features, x, lam = 1e7, make_features(), make_rows(), 0.4
    student = make_student(2, nu)
    gaussian = GaussianBase(student.centre, student.scale_matrix)
    assert np.square(gaussian.whiten(x)).sum(axis=1).max() < 60
    stats = tgp.accumulate(x, features, base=student, precision="float64")
    a, b = (tgp.solve(stats, base, "fd", lam).theta for base in (student, gaussian))
    z, _, gamma = z_c_gamma(features)
    size = np.abs(gaussian.score(x) @ z.T).sum(axis=0) * math.sqrt(2 / 20) / gamma
    allowed = 60 / nu * np.linalg.norm(size) / lam
    assert 0 < np.linalg.norm(a - b) <= allowed
    # not less than the expansion says: few degrees are another model
    few = StudentBase(student.centre, student.scale_matrix, 3.0)
    other = tgp.solve(tgp.accumulate(x, features, base=few), few, "fd", lam).theta
    assert np.linalg.norm(other - b) > 1e-3 * np.linalg.norm(b)


def test_fvpd_with_a_mixture_is_algorithm_4():
    """M = Sigma_phi + lam I + A / (gamma^2 eta), m = mu_phi - b / (gamma^2 eta), by the oracle."""
    base, features, x, lam, eta = make("mixture"), make_features(), make_rows(), 0.4, 1.7
    z, c, gamma = z_c_gamma(features)
    model = tgp.solve(tgp.accumulate(x, features, base=base), base, "fvpd", lam, eta)
    mean, spread = oracle.mixture_feature_moments(z, c, gamma, *parameters(base))
    A = (z @ z.T) * oracle.gram(x, z, c, gamma)
    scores = oracle.sum_dphi_score(x, z, c, gamma, of_oracle(base, "score")(x))
    b = (z**2).sum(axis=1) * oracle.sum_phi(x, z, c, gamma) - gamma * (z * scores).sum(axis=1)
    M = spread + lam * np.eye(20) + A / (gamma**2 * eta)
    m = mean - b / (gamma**2 * eta)
    np.testing.assert_allclose(model.M, M, rtol=0, atol=FACTOR * np.abs(M).max())
    size = np.abs(scores * z).sum(axis=1).max() + np.abs(b).max()
    np.testing.assert_allclose(model.m, m, rtol=0, atol=FACTOR * 30 * size)


@pytest.mark.parametrize(
    ("method", "kind", "message"),
    [
        ("ncfd", "mixture", 'method="ncfd" .*MixtureBase'),
        ("ncfd", "student", 'method="ncfd" .*StudentBase'),
        ("fvpd", "student", 'StudentBase has no closed form.*method="fvpd"'),
    ],
)
def test_methods_that_solve_refuses(method, kind, message):
    base, features = make(kind), make_features()
    stats = tgp.accumulate(make_rows(), features, base=base, noise_levels=(0.0, 0.3))
    with pytest.raises(ValueError, match=message):
        tgp.solve(stats, base, method)


def test_learn_base_refuses_them():
    stats = tgp.accumulate(make_rows(), make_features())
    for kind, name in (("mixture", "MixtureBase"), ("student", "StudentBase")):
        with pytest.raises(TypeError, match=f"learns a GaussianBase, and this is a {name}"):
            tgp.learn_base(stats, make(kind))


# -- maximum a posteriori ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("solver", "lam"), [("newton", 2.0), ("gradient", 60.0)])
@pytest.mark.parametrize("kind", KINDS)
def test_map_is_flat_at_its_nodes(kind, solver, lam):
    """The oracle's gradient over the base's Sobol points, to the 1e-6 of |sum phi| it promises."""
    base, features, x = make(kind), make_features(), make_rows()
    stats = tgp.accumulate(x, features)  # MAP needs no score
    model = tgp.solve(stats, base, "map", lam, solver=solver, n_draws=2_000, seed=5)
    assert model.diagnostics["nodes"] == "sobol"
    assert model.diagnostics["n_nodes"] == 2_000
    nodes = base.draw_sobol(11, 5)[:2_000]
    weights = np.full(2_000, 1 / 2_000)
    gradient = oracle.map_gradient(x, model.theta, nodes, weights, *z_c_gamma(features), lam)
    size = np.linalg.norm(stats.sum_phi)
    assert np.linalg.norm(gradient) <= 1.01e-6 * size
    # negative control: the nodes of another base give another optimum
    other = make(kind, seed=1).draw_sobol(11, 5)[:2_000]
    elsewhere = oracle.map_gradient(x, model.theta, other, weights, *z_c_gamma(features), lam)
    assert np.linalg.norm(elsewhere) > 1e-2 * size


def test_map_with_a_mixture_of_one_is_close_to_the_gaussians_by_quadrature():
    """Sobol points of 2^15 draws know expectations of phi to some 1e-4; the strong convexity lam
    turns n times that into the error of theta."""
    mixture, features, x, lam = make_mixture(2, 1), make_features(), make_rows(), 5.0
    gaussian = GaussianBase(mixture.means[0], mixture.covariances[0])
    stats = tgp.accumulate(x, features)
    a = tgp.solve(stats, mixture, "map", lam, n_draws=2**15).theta
    b = tgp.solve(stats, gaussian, "map", lam).theta
    assert np.linalg.norm(a - b) <= 300 * 1e-4 * math.sqrt(20) / lam
    assert np.linalg.norm(b) > 0.3


# -- densities -----------------------------------------------------------------------------------


def tilted(kind, d=2, method="fd", lam=5.0):
    base, features = make(kind, d), make_features(d, gamma=1.5)
    stats = tgp.accumulate(make_rows(300, d), features, base=base)
    return tgp.solve(stats, base, method, lam, n_draws=2**13)


@pytest.mark.parametrize(("kind", "method"), PAIRS)
def test_log_density_gradient_and_laplacian(kind, method):
    model, x, h = tilted(kind, method=method), make_rows(30), 1e-4
    base = of_oracle(model.base, "log_density")
    untilted = model.log_density(x, normalized=False) - base(x)
    if method != "fvpd":
        want = oracle.phi(x, *z_c_gamma(model.features)) @ model.theta
        np.testing.assert_allclose(untilted, want, rtol=0, atol=1e-11)
    # differences of step h: h^2 / 6 times third derivatives below 1e3; rounding 1e-13 over h^2
    slopes, bend = [], -4.0 * model.log_density(x)
    for step in h * np.eye(2):
        up, down = model.log_density(x + step), model.log_density(x - step)
        slopes.append((up - down) / (2 * h))
        bend += up + down
    np.testing.assert_allclose(model.grad_log_density(x).T, slopes, rtol=0, atol=2e-6)
    np.testing.assert_allclose(model.laplacian_log_density(x), bend / h**2, rtol=0, atol=1e-4)


def grid_integral(model, low, high, n=400):
    """Sum of the density over the cells of a 2-D grid, whose integrand is smooth."""
    axes = [np.linspace(a, b, n) for a, b in zip(low, high, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    cell = math.prod(axis[1] - axis[0] for axis in axes)
    return points, np.exp(model.log_density(points)) * cell


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_densities_integrate_to_one(kind):
    """Up to the error of the normaliser, and the tails beyond the grid: with four degrees about
    (nu / r^2)^2 of the mass is farther than r scales."""
    model = tilted(kind)
    assert model.log_normalizer.method == "quadrature"
    reach = 12.0 if kind == "mixture" else 60.0
    beyond = 1e-10 if kind == "mixture" else 3 * (4.0 / 50.0**2) ** 2
    n = 200 if kind == "mixture" else 800
    _, mass = grid_integral(model, [-reach] * 2, [reach] * 2, n)
    error = model.log_normalizer.standard_error
    assert error < 1e-6
    assert abs(mass.sum() - 1.0) <= beyond + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_marginals_and_draws_follow_the_density(kind, monkeypatch):
    for name in ("MOST_SAMPLING_CHAINS", "LEAST_SAMPLING_CHAINS"):
        monkeypatch.setattr(f"tgpfast.density.sampling.{name}", 1_000)
    monkeypatch.setattr("tgpfast.density.sampling.BURN_IN_STEPS", 30)
    model = tilted(kind)
    v, at = np.array([1.0, 0.6]), np.array([-2.0, -0.5, 0.4, 1.5, 3.0])
    points, mass = grid_integral(model, [-40.0] * 2, [40.0] * 2, 600)
    # smooth the steps of the sum over cells: half a cell's shadow either side
    width = 80 / 599 * np.abs(v).sum() / 2
    projection = points @ v
    want = np.array([mass @ np.clip((g - projection) / (2 * width) + 0.5, 0, 1) for g in at])
    # 131,072 Sobol points err by less than as many independent ones: 5 errors of 0.5 / 362
    assert np.abs(model.marginal_cdf(v, at) - want).max() < 5 * 0.5 / math.sqrt(2**17) + 2e-3
    for method, n in (("importance", 4_000), ("mala", 1_000)):
        x = model.sample(n, seed=3, method=method)
        assert model.sampling.method == method
        below = ((x @ v)[:, None] <= at).mean(axis=0)
        # systematic resampling of 20 effective draws a row; chains of their own: independent rows
        assert np.abs(below - want).max() < 5 * 0.5 / math.sqrt(n) + 2e-3, method
    np.testing.assert_array_equal(
        model.sample(50, seed=3, method="importance"), model.sample(50, seed=3, method="importance")
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_samples_come_from_grids_of_every_base(kind):
    """Judged by the marginal CDFs; draws of the base itself are refused."""
    model = tilted(kind)
    draws = model.sample(4_000, seed=2)
    assert model.sampling.method == "grid"
    base = model.base.sample(4_000, seed=2)
    for v in ([1.0, 0.0], [0.6, -0.8]):
        law = lambda t, v=v: model.marginal_cdf(v, t)  # noqa: E731
        assert kstest(draws @ v, law).pvalue > 1e-3
    assert kstest(base @ [1.0, 0.0], lambda t: model.marginal_cdf([1.0, 0.0], t)).pvalue < 1e-3


@pytest.mark.parametrize("d", [slow(1), 2])
@pytest.mark.parametrize("kind", KINDS)
def test_saved_densities_come_back_bit_by_bit(tmp_path, kind, d):
    model, x = tilted(kind, d), make_rows(50, d)
    path = tmp_path / "model.npz"
    for known in (False, True):  # the normaliser, which a file keeps where it is known
        want = model.log_density(x, normalized=known)
        model.save(path)
        back = tgp.load(path)
        np.testing.assert_array_equal(back.log_density(x, normalized=known), want)
        assert back.base.fingerprint == model.base.fingerprint
    np.testing.assert_array_equal(back.sample(20, seed=1), model.sample(20, seed=1))


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("mixture", {"header.base": "cauchy"}, "base 'cauchy' is not registered"),
        ("mixture", {"base_means": None}, "'means'"),
        ("mixture", {"base_weights": lambda w: -w}, "weights must be positive"),
        ("student", {"base_degrees": np.array([-1.0])}, "degrees"),
        ("student", {"base_scale_matrix": -np.eye(2)}, "positive definite"),
        ("student", {"header.base": "mixture"}, "base 'mixture' with parameters"),
    ],
)
def test_damaged_files_are_named(tmp_path, kind, changes, message):
    path = tmp_path / "model.npz"
    tilted(kind).save(path)
    doctored(path, changes)
    with pytest.raises(ValueError, match=message):
        tgp.load(path)


# -- fit -----------------------------------------------------------------------------------------


def with_few_draws(monkeypatch):
    """MAP's optimum follows its nodes: with the same few of them two fits agree as with many."""
    few = functools.partial(tgp.solve, n_draws=2**13)
    monkeypatch.setattr(importlib.import_module("tgpfast.pipeline.random_features"), "solve", few)
    return few


def small(x, **options):
    """Nothing but the base is left to be chosen from the data."""
    fixed = {
        "n_features": 30, "lam": 5.0, "method": "fd", "gamma": "scott", "eta": "1/gamma2",
        "frequency_covariance": "data", "base": "empirical",
    }  # fmt: skip
    return tgp.fit(x, **{**fixed, **options})


def far_rows(n=300):
    """Clusters in unlike units, away from zero."""
    return make_rows(n) * [0.01, 300.0] + [5.0, -1_000.0]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "method"), PAIRS)
def test_fit_is_the_pipeline_by_hand(kind, method, monkeypatch):
    x, solve = far_rows(), with_few_draws(monkeypatch)
    model = small(x, base=kind, method=method)
    u = (x - x.mean(axis=0)) / x.std(axis=0)
    base = StudentBase.from_data(u)
    if kind == "mixture":
        out = np.random.default_rng(0).permutation(300) % 5 == 0
        judging = out & (np.cumsum(out) % 2 == 1)  # decide on the size; the others score it
        grown = grow_mixture(u[~out], np.ones(240), u[judging], np.ones(30))
        base = grown.refit(u, np.ones(300))
    gamma = 300 ** (-1 / 6)
    features = tgp.Features.draw(30, gamma, np.cov(u.T, bias=True), seed=0)
    by_hand = solve(tgp.accumulate(u, features, base=base), base, method, 5.0)
    want = by_hand.log_density(u, normalized=False) - np.log(x.std(axis=0)).sum()
    got = model.log_density(x, normalized=False)
    # standardised rows agree to 1e-13 (the offset), and so do moments, features and EM's steps;
    # MAP stops at 1e-6 of its gradient
    condition = float(by_hand.diagnostics.get("condition", 1e4))
    allowed = 1e-12 * condition if method != "map" else 1e-5
    assert np.abs(got - want).max() <= allowed * max(np.abs(want).max(), 1.0)
    assert model.settings["base"] == kind
    assert model.settings["base_facts"] == repr(model.base)
    assert type(model.base) is type(base)
    np.testing.assert_allclose(model.base.mean, base.mean, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_base_in_the_units_of_the_data_is_the_one_fitted_in_the_models(kind):
    x = far_rows()
    fitted = small(x, base=kind)
    scaling = fitted.scaling
    back = Scaling(-scaling.shift / scaling.scale, 1 / scaling.scale)  # u -> x
    given = small(x, base=fitted.base.rescaled(back))
    assert given.settings["base"] == "given"
    assert given.settings["base_facts"] == repr(given.base)
    condition = float(fitted.diagnostics["condition"])
    gap = given.log_density(x) - fitted.log_density(x)
    assert np.abs(gap).max() <= 1e-12 * condition


@pytest.mark.parametrize("scale", [slow("standardize"), "center", slow("none")])
@pytest.mark.parametrize("kind", KINDS)
def test_the_density_follows_the_units(kind, scale):
    """With rows in other units the density is divided by the volume; the normaliser's error is
    the same, since the model in its own coordinates is."""
    x = make_rows()
    model = small(x, base=kind, scale=scale)
    _, mass = grid_integral(model, [-8.0] * 2, [8.0] * 2, 200)
    assert abs(mass.sum() - 1.0) < 5 * model.log_normalizer.standard_error + 0.02
    if scale == "standardize":
        unit, shift = np.array([0.01, 300.0]), np.array([5.0, -1_000.0])
        other = small(x * unit + shift, base=kind)
        gap = other.log_density(x * unit + shift) + np.log(unit).sum() - model.log_density(x)
        # rows to 1e-12; EM and FD carry that on by their condition
        assert np.abs(gap).max() <= 1e-11 * float(model.diagnostics["condition"])


def test_the_tails_of_a_student_are_kept():
    """At 40 deviations a Gaussian has e^-800, a tilt of it no more; three degrees have r^-5."""
    x = make_student(2, 3.0).sample(1_000, seed=3)
    far = np.array([[40.0, 40.0]])
    by_student, by_gaussian = (
        small(x, base=base, gamma=1.0, scale="none").log_density(far, normalized=False)[0]
        for base in ("student", "empirical")
    )
    assert by_student > -40.0
    assert by_gaussian < -100.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_streams_that_can_be_repeated(kind):
    """The first block is what EM reads, so that it is given all of the rows."""
    x = make_rows()
    want = small(x, base=kind).log_density(x)
    for rows in ([x], lambda: iter([x])):
        np.testing.assert_array_equal(small(rows, base=kind).log_density(x), want)
    base = StudentBase(np.zeros(2), np.eye(2), 5.0)
    whole = small(x, base=base)
    parts = small([x[:50], x[50:170], x[170:]], base=base)
    gap = np.abs(parts.log_density(x) - whole.log_density(x)).max()
    assert gap <= 1e-12 * float(whole.diagnostics["condition"])


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_streams_that_are_used_up_are_refused(kind, given):
    x = make_rows()
    base = make(kind) if given else kind
    moments = 300, x.mean(axis=0), np.cov(x.T, bias=True)
    for options in ({}, {"moments": moments}):
        with pytest.raises(ValueError, match=r"X can be read only once.*list of blocks"):
            small(iter([x]), base=base, **options)
    with pytest.raises(ValueError, match="X can be read only once"):
        small(iter([make_rows(300, 4)]), base=make(kind, 4) if given else kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_map_of_a_given_base_reads_a_stream_once(kind, monkeypatch):
    with_few_draws(monkeypatch)
    x = make_rows()
    moments = 300, x.mean(axis=0), np.cov(x.T, bias=True)
    base = make(kind)
    want = small(x, base=base, method="map").log_density(x)
    got = small(iter([x]), base=base, method="map", moments=moments).log_density(x)
    # sums of features to 1e-9 of n; the optimum to 1e-6 of the gradient's size
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_fit_with_weights(kind):
    """Only their proportions count; without weight rows do not."""
    x = make_rows()
    w = np.random.default_rng(4).uniform(0.5, 2.0, 300)
    model = small(x, base=kind, sample_weight=w)
    heavy = small(x, base=kind, sample_weight=4.0 * w)
    np.testing.assert_allclose(heavy.log_density(x), model.log_density(x), rtol=0, atol=1e-7)
    assert model.settings["weights"] == "Kish"
    plain = small(x, base=kind)
    assert np.abs(plain.log_density(x) - model.log_density(x)).max() > 1e-3
    base = make(kind)
    counts = np.random.default_rng(5).integers(1, 3, 300)
    twice = np.repeat(x, counts, axis=0)
    options = {"base": base, "gamma": 0.7, "frequency_covariance": "identity", "scale": "none"}
    a = small(x, sample_weight=counts, normalize_weights=False, **options)
    b = small(twice, **options)
    gap = np.abs(a.theta - b.theta).max()
    assert gap <= FACTOR * float(b.diagnostics["condition"]) * np.abs(b.theta).max()


@pytest.mark.parametrize("kind", KINDS)
def test_fit_of_frames(kind):
    pandas = pytest.importorskip("pandas")
    x = make_rows()
    frame = pandas.DataFrame(x, columns=["a", "b"])
    model = small(frame, base=kind)
    values = model.log_density(frame[["b", "a"]])
    assert isinstance(values, pandas.Series)
    np.testing.assert_array_equal(values.to_numpy(), small(x, base=kind).log_density(x))
    draws = model.sample(5)
    assert list(draws.columns) == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base": "mixture", "method": "ncfd"}, '"ncfd" cannot tilt a MixtureBase; use "fd" or'),
        ({"base": "student", "method": "ncfd"}, '"ncfd" cannot tilt a StudentBase; use "fd" or'),
        ({"base": "student", "method": "fvpd"}, '"fvpd" cannot tilt a StudentBase; use "fd" or'),
        ({"base": make("student"), "method": "fvpd"}, '"fvpd" cannot tilt a StudentBase'),
        ({"base": make("mixture", 3)}, "base has dimension 3, X has 2 columns"),
        ({"base": "mixtures"}, "base='mixtures': expected .*'mixture', 'student'"),
    ],
)
def test_what_fit_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        small(make_rows(), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_fitted_models_come_back_bit_by_bit(tmp_path, kind):
    x = far_rows()
    model = small(x, base=kind)
    want = model.log_density(x)
    path = tmp_path / "model.npz"
    model.save(path)
    back = tgp.load(path)
    np.testing.assert_array_equal(back.log_density(x), want)
    assert back.settings == model.settings


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_evaluate_takes_them(kind):
    x = make_rows(600)
    model = small(x[:400], base=kind)
    report = tgp.evaluate(model, x[400:])
    want = model.log_density(x[400:]).mean()
    assert report.log_likelihood.value == pytest.approx(want, abs=1e-10)
    want = oracle.fisher_score(
        model.grad_log_density(x[400:]), model.laplacian_log_density(x[400:])
    )
    assert report.fisher_score.value == pytest.approx(want, rel=1e-8, abs=1e-8)
    assert 0 < np.median(report.ks) < 0.2  # 200 rows of the truth: 0.096 once in twenty


def test_a_mixture_carries_what_one_gaussian_cannot():
    """Clusters 12 deviations apart: held-out rows gain by the base alone."""
    _, x, _ = clusters(1_200)
    gain = small(x[:800], base="mixture").log_density(x[800:])
    gain = gain - small(x[:800]).log_density(x[800:])
    assert gain.mean() > 3 * gain.std() / math.sqrt(400)


# -- negative controls: what the tests above would miss if they could not fail ---------------------


def test_sums_of_a_wrong_score_are_seen(monkeypatch):
    base, features, x = make("student"), make_features(), make_rows()
    monkeypatch.setattr(StudentBase, "score_at", lambda self, x: self._gaussian.score_at(x))
    stats = tgp.accumulate(x, features, base=base)
    want = oracle.sum_dphi_score(x, *z_c_gamma(features), of_oracle(base, "score")(x))
    assert np.abs(stats.sum_dphi_score - want).max() > 1.0


def test_no_rows_with_a_base_change_nothing():
    """Statistics.zero takes the base too; a sum over no block at all is of that kind."""
    x = np.random.default_rng(0).standard_normal((30, 2))
    base = tgp.StudentBase(np.zeros(2), np.eye(2), 4.0)
    features = tgp.Features.draw(5, 1.0, np.eye(2), seed=0)
    stats = tgp.accumulate(x, features, base=base)
    total = tgp.Statistics.zero(features, base=base) + stats
    np.testing.assert_array_equal(total.sum_dphi_score, stats.sum_dphi_score)
    assert total.fingerprint == stats.fingerprint
    with pytest.raises(ValueError, match="different bases"):
        tgp.Statistics.zero(features) + stats


def test_covariances_are_symmetric_up_to_rounding():
    """Entries are measured by the roots of their diagonals: off the diagonal there may be rounding
    alone, of either sign; what is more is refused."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        scale = np.diag(10.0 ** rng.uniform(-6, 6, 3))
        tgp.GaussianBase(np.zeros(3), scale @ (turn @ (3 * np.eye(3)) @ turn.T) @ scale)
    with pytest.raises(ValueError, match="covariance must be symmetric"):
        tgp.GaussianBase([0, 0], [[1e6, 1e-3], [0.0, 1e-6]])


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_squares_beyond_floats_are_refused_in_words(unit):
    """By all that needs covariances in the units of the data; ``fit`` needs them standardised."""
    x = unit * np.random.default_rng(0).standard_normal((100, 2))
    for call in (
        lambda: tgp.GaussianBase.from_data(x), lambda: MixtureBase.from_data(x, 2),
        lambda: StudentBase.from_data(x), lambda: tgp.ExactKDE(x),
        lambda: tgp.fit(x, scale="center"), lambda: tgp.fit(x, scale="none", gamma=1.0),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"column 0 has a standard deviation .*; divide"):
            call()
    options = {"method": "fd", "lam": 1.0, "gamma": "scott", "base": "empirical", "n_features": 10}
    assert np.isfinite(tgp.fit(x, **options).log_density(x)).all()
