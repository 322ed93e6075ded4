"""Bases on domains: against scipy.stats, sums of images, numerical integrals and derivatives."""

import functools
import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.interpolate import make_interp_spline

from tgpfast.bases.bounded import BoundedMixtureBase, UniformBase
from tgpfast.bases.confined_gaussian import fit_truncated
from tgpfast.bases.domain import Domain
from tgpfast.bases.gaussian import GaussianBase
from tgpfast.bases.mixture import MixtureBase
from tgpfast.bases.product import ProductBase
from tgpfast.bases.student import StudentBase
from tgpfast.data.scaling import Scaling

INF = np.inf
SAMPLES = 4_000
LEAST_P = 1e-4  # of Kolmogorov-Smirnov tests with a fixed seed


def covariance(*deviations, correlation=0.0):
    d = len(deviations)
    matrix = np.full((d, d), correlation) + (1.0 - correlation) * np.eye(d)
    return matrix * np.outer(deviations, deviations)


def mixture(d, correlation=0.0):
    """Two components near the middle of [0, 1]^d, the wider one cut off by walls."""
    means = np.array([[0.3, 0.5, 0.6], [0.8, 0.1, 0.4]])[:, :d]
    return (
        [0.4, 0.6], means,
        [covariance(*[0.1, 0.2, 0.15][:d], correlation=correlation),
         covariance(*[0.4, 0.3, 0.5][:d], correlation=-0.5 * correlation if d < 3 else 0.0)],
    )  # fmt: skip


BASES = {
    "uniform": UniformBase([0.0, -1.0], [2.0, 3.0]),
    "uniform on a circle": UniformBase([-1.0], [1.0], [True]),
    "truncated": BoundedMixtureBase([1.0], [[0.2]], [[[0.25]]], [0.0], [1.0]),
    "half-normal": BoundedMixtureBase([1.0], [[-1.0]], [[[1.0]]], [0.0], [INF]),
    "far out": BoundedMixtureBase([1.0], [[-12.0]], [[[1.0]]], [0.0], [INF]),
    "wrapped": BoundedMixtureBase([1.0], [[0.9]], [[[0.09]]], [0.0], [1.0], [True]),
    "mixture": BoundedMixtureBase(*mixture(2), [0.0, 0.0], [1.0, 1.0]),
    "correlated": BoundedMixtureBase(*mixture(2, 0.8), [0.0, 0.0], [1.0, 1.0]),
    "wall and period": BoundedMixtureBase(
        *mixture(2, 0.8), [0.0, 0.0], [1.0, 1.0], [False, True]
    ),
    "period and open": BoundedMixtureBase(
        *mixture(2, 0.8), [0.0, -INF], [1.0, INF], [True, False]
    ),
    "torus": BoundedMixtureBase(*mixture(2, 0.5), [0.0, 0.0], [1.0, 1.0], [True, True]),
    "wall and open": BoundedMixtureBase(*mixture(2, 0.8), [0.0, -INF], [1.0, INF]),
    "three": BoundedMixtureBase(
        *mixture(3, 0.5), [0.0, 0.0, -INF], [1.0, 1.0, 0.9], [False, True, False]
    ),
    "product": ProductBase([
        GaussianBase([0.5], [[0.04]]), UniformBase([0.0], [2.0]),
        BoundedMixtureBase([1.0], [[0.1]], [[[0.01]]], [0.0], [1.0], [True]),
    ]),
}  # fmt: skip
every_base = pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())


class Rule:
    """Gauss-Legendre in two panels along every axis of the domain, far into the tails where an axis
    is open. Independent of how the base computes its mass."""

    def __init__(self, base):
        t, w = np.polynomial.legendre.leggauss(128 if base.dimension < 3 else 28)
        self.axes, self.weights = [], []
        for low, high in zip(*ends(base), strict=True):
            half = 0.5 * (high - low)
            places = np.concatenate([0.5 * t - 0.5, 0.5 * t + 0.5])
            self.axes.append(0.5 * (low + high) + half * places)
            self.weights.append(0.5 * half * np.concatenate([w, w]))
        grid = np.meshgrid(*self.axes, indexing="ij")
        self.x = np.stack(grid, axis=-1).reshape(-1, base.dimension)
        volume = functools.reduce(np.multiply.outer, self.weights)
        self.mass = (volume * np.exp(base.log_density_at(self.x)).reshape(volume.shape)).ravel()

    def cdf(self, k):
        """The margin of a column, as a function."""
        block = self.mass.reshape([len(axis) for axis in self.axes])
        margin = block.sum(axis=tuple(j for j in range(block.ndim) if j != k)) / self.weights[k]
        running = make_interp_spline(self.axes[k], margin, k=5).antiderivative()
        return lambda places: np.clip(running(places) - running(self.axes[k][0]), 0.0, 1.0)


def ends(base):
    if isinstance(base, ProductBase):
        parts = [ends(factor) for factor in base.factors]
        return [np.concatenate(side) for side in zip(*parts, strict=True)]
    # tails fall as a Gaussian's, or beside a far wall as an exponential's
    spread = (25.0 if base is BASES["far out"] else 14.0) * np.sqrt(np.diag(base.covariance))
    low, high = base.mean - spread, base.mean + spread
    domain = getattr(base, "domain", None)
    if domain is None:
        return low, high
    return (
        np.where(np.isfinite(domain.low), domain.low, low),
        np.where(np.isfinite(domain.high), domain.high, high),
    )


@every_base
def test_mass_and_moments(base):
    rule = Rule(base)
    assert rule.mass.sum() == pytest.approx(1.0, abs=1e-9 if base.dimension < 3 else 1e-6)
    close = {"rtol": 0, "atol": 1e-8 if base.dimension < 3 else 1e-5}
    np.testing.assert_allclose(rule.mass @ rule.x, base.mean, **close)
    about = rule.x - base.mean
    np.testing.assert_allclose((about.T * rule.mass) @ about, base.covariance, **close)


@every_base
def test_scores_and_laplacians_are_derivatives(base):
    rng, stretch = np.random.default_rng(0), np.array([1.0, 0.5, 2.0])[: base.dimension]
    low, high = ends(base)
    x = rng.uniform(low + 0.05 * (high - low), low + 0.6 * (high - low), (50, base.dimension))
    score, bends = base.score_at(x), np.zeros(len(x))
    for k in range(base.dimension):
        h = 1e-5 * (high - low)[k] * np.eye(base.dimension)[k]
        slope = (base.log_density_at(x + h) - base.log_density_at(x - h)) / (2.0 * h[k])
        np.testing.assert_allclose(score[:, k], slope, rtol=1e-6, atol=1e-6)
        bends += stretch[k] ** 2 * (base.score_at(x + h) - base.score_at(x - h))[:, k] / (2 * h[k])
    np.testing.assert_allclose(base.laplacian_at(x, stretch), bends, rtol=1e-5, atol=1e-4)


@every_base
def test_draws_have_the_margins_of_the_density(base):
    rule = Rule(base)
    for draws in (base.draw(SAMPLES, np.random.default_rng(3)), base.draw_sobol(12, 3)):
        assert np.isfinite(base.log_density_at(draws)).all()
        for k in range(base.dimension):
            assert stats.kstest(draws[:, k], rule.cdf(k)).pvalue > LEAST_P
    assert len(base.draw_sobol(5, 0)) == 32
    np.testing.assert_array_equal(base.draw_sobol(5, 1), base.draw_sobol(5, 1))
    assert len(base.draw(0, np.random.default_rng(0))) == 0


@every_base
def test_other_units(base):
    rng, d = np.random.default_rng(1), base.dimension
    scaling = Scaling(rng.normal(size=d), rng.uniform(0.5, 2.0, d))
    x = base.draw(200, rng)
    other = base.rescaled(scaling)
    expected = base.log_density_at(x) + np.log(scaling.scale).sum()
    np.testing.assert_allclose(
        other.log_density_at(scaling.apply(x)), expected, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(other.mean, scaling.apply(base.mean[None])[0], atol=3e-3)


@every_base
def test_a_base_is_its_parameters(base):
    numbers = base.parameters()
    assert all(np.asarray(array).dtype.kind in "fU" for array in numbers.values())
    assert base.fingerprint != BASES["uniform" if base.kind != "uniform" else "mixture"].fingerprint
    again = type(base).from_parameters(numbers)
    x = base.draw(50, np.random.default_rng(2))
    np.testing.assert_array_equal(again.log_density_at(x), base.log_density_at(x))
    assert again.fingerprint == base.fingerprint
    assert type(base).__name__ in repr(base)


def test_a_product_with_an_unknown_factor_is_not_loaded():
    parameters = ProductBase([StudentBase([0.0], [[1.0]], 3.0), BASES["uniform"]]).parameters()
    renamed = {name.replace("student", "cauchy"): array for name, array in parameters.items()}
    with pytest.raises(ValueError, match="cauchy"):
        ProductBase.from_parameters(renamed)
    again = ProductBase.from_parameters(parameters)
    x = np.full((1, again.dimension), 0.3)
    assert again.log_density(x) == ProductBase(
        [StudentBase([0.0], [[1.0]], 3.0), BASES["uniform"]]
    ).log_density(x)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (0.5, 2.0), (-1.0, 1.0)])
@pytest.mark.parametrize(("low", "high"), [(0.0, INF), (-0.5, 1.5), (-INF, 0.3)])
def test_truncated_gaussians_are_found_from_their_moments(mean, deviation, low, high):
    law = stats.truncnorm((low - mean) / deviation, (high - mean) / deviation, mean, deviation)
    found = fit_truncated(law.mean(), law.std(), low, high)

    def loss(m, s):
        return law.expect(lambda x: -stats.truncnorm.logpdf(x, (low - m) / s, (high - m) / s, m, s))

    # at least as likely as the law itself, up to the limits of its mean and width
    assert loss(*found) <= loss(mean, deviation) + 0.02
    assert loss(*found) < loss(law.mean(), law.std())


# -- closed forms ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mean", "deviation", "low", "high"),
    [(0.2, 0.5, 0.0, 1.0), (-1.0, 1.0, 0.0, INF), (3.0, 0.7, -INF, 2.0), (-12.0, 1.0, 0.0, INF),
     (0.0, 1.0, -0.01, 0.01), (40.0, 2.0, 1.0, 3.0)],
)  # fmt: skip
def test_one_truncated_gaussian_is_that_of_scipy(mean, deviation, low, high):
    base = BoundedMixtureBase([1.0], [[mean]], [[[deviation**2]]], [low], [high])
    a, b = (low - mean) / deviation, (high - mean) / deviation
    exact = stats.truncnorm(a, b, mean, deviation)
    x = exact.ppf(np.linspace(0.01, 0.99, 25))
    found = base.log_density_at(x[:, None])
    np.testing.assert_allclose(found, exact.logpdf(x), rtol=1e-9, atol=1e-9)
    assert base.mean[0] == pytest.approx(exact.mean(), rel=1e-8)
    assert base.covariance[0, 0] == pytest.approx(exact.var(), rel=1e-6)
    draws = base.draw(SAMPLES, np.random.default_rng(0))[:, 0]
    assert stats.kstest(draws, exact.cdf).pvalue > LEAST_P
    outside = [v for v in (low - 0.1, high + 0.1) if np.isfinite(v)]
    assert np.isneginf(base.log_density_at(np.array(outside)[:, None])).all()


@pytest.mark.parametrize("deviation", [0.02, 0.3, 0.9])
def test_a_wrapped_gaussian_is_the_sum_of_its_images(deviation):
    base = BoundedMixtureBase([1.0], [[0.2]], [[[deviation**2]]], [-0.5], [0.5], [True])
    x = np.linspace(-0.5, 0.5, 41)
    images = stats.norm(0.2 + np.arange(-30, 31)[:, None], deviation).pdf(x).sum(axis=0)
    np.testing.assert_allclose(base.log_density_at(x[:, None]), np.log(images), atol=1e-10)
    np.testing.assert_allclose(base.log_density_at(x[:, None] + 7.0), np.log(images), atol=1e-9)
    draws = base.draw(SAMPLES, np.random.default_rng(0))[:, 0]
    assert (draws >= -0.5).all()
    assert (draws < 0.5).all()

    def cdf(places):
        above = stats.norm(0.2 + np.arange(-30, 31)[:, None], deviation)
        return (above.cdf(places) - above.cdf(-0.5)).sum(axis=0)

    assert stats.kstest(draws, cdf).pvalue > LEAST_P


def test_the_mass_between_walls_is_that_of_scipy():
    base = BASES["correlated"]
    masses = [
        stats.multivariate_normal(m, c).cdf([1.0, 1.0], lower_limit=[0.0, 0.0])
        for m, c in zip(base.mixture.means, base.mixture.covariances, strict=True)
    ]
    assert np.exp(base.log_mass) == pytest.approx(base.mixture.weights @ masses, abs=1e-5)
    assert np.exp(base.log_mass) < 0.9  # the walls do cut


def test_wrapped_columns_of_many():
    """Five columns, two of them periodic: sums of Gaussians of scipy over images."""
    rng = np.random.default_rng(4)
    roots = 0.25 * rng.normal(size=(3, 5, 5)) + 0.4 * np.eye(5)
    shares, means = np.array([0.2, 0.5, 0.3]), rng.uniform(-0.5, 1.5, (3, 5))
    covariances = roots @ roots.transpose(0, 2, 1)
    periodic = np.array([False, True, False, True, False])
    low, high = np.where(periodic, 0.0, -INF), np.where(periodic, [1, 2.0, 1, 3.0, 1], INF)
    base = BoundedMixtureBase(shares, means, covariances, low, high, periodic)
    x, expected = rng.normal(size=(40, 5)), 0.0
    for j, k in itertools.product(range(-8, 9), repeat=2):
        image = x + np.array([0.0, 2.0 * j, 0.0, 3.0 * k, 0.0])
        for share, mean, square in zip(shares, means, covariances, strict=True):
            expected = expected + share * stats.multivariate_normal(mean, square).pdf(image)
    np.testing.assert_allclose(base.log_density(x), np.log(expected), rtol=1e-10)
    moved = x + np.array([0.0, 4.0, 0.0, -3.0, 0.0])
    np.testing.assert_allclose(base.log_density(moved), np.log(expected), rtol=1e-10)
    draws = base.draw(200_000, rng)
    np.testing.assert_allclose(base.mean, draws.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(base.covariance, np.cov(draws.T), atol=0.01)
    with pytest.raises(AssertionError):  # the moments without wrapping are others
        np.testing.assert_allclose(base.mixture.covariance, np.cov(draws.T), atol=0.01)


def test_far_from_walls_nothing_changes():
    gaussian = GaussianBase([0.1, 0.2], covariance(0.1, 0.2, correlation=0.3))
    base = BoundedMixtureBase.confine(gaussian, Domain([-9.0, -9.0], [9.0, 9.0]))
    x = gaussian.draw(100, np.random.default_rng(0))
    np.testing.assert_allclose(base.log_density_at(x), gaussian.log_density_at(x), atol=1e-12)
    assert base.log_mass == 0.0
    np.testing.assert_array_equal(base.mean, gaussian.mean)


def test_confine_takes_gaussians_and_mixtures_alone():
    domain = Domain([0.0], [1.0])
    of_mixture = BoundedMixtureBase.confine(MixtureBase(*mixture(1)), domain)
    assert of_mixture.mixture.n_components == 2
    with pytest.raises(TypeError, match="GaussianBase or a MixtureBase, got StudentBase"):
        BoundedMixtureBase.confine(StudentBase([0.0], [[1.0]], 3.0), domain)


# -- domains --------------------------------------------------------------------------------------


def test_rows_are_moved_by_whole_periods():
    domain = Domain([0.0, 0.0], [24.0, 1.0], [True, False])
    x = np.array([[25.0, 0.5], [-1e-18, 3.0], [24.0, 0.0]])
    np.testing.assert_array_equal(domain.wrap(x), [[1.0, 0.5], [0.0, 3.0], [0.0, 0.0]])
    np.testing.assert_array_equal(domain.contains(x), [True, False, True])


def test_a_row_rounded_beyond_a_wall_is_inside():
    base = UniformBase([0.1], [0.7])
    x = np.array([np.nextafter(0.7, 1.0), np.nextafter(0.1, 0.0), 0.7 + 1e-9])
    np.testing.assert_array_equal(np.isfinite(base.log_density_at(x[:, None])), [True, True, False])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Domain([1.0], [0.0]), "must be below"),
        (lambda: Domain([0.0], [INF], [True]), "two finite ends"),
        (lambda: Domain([0.0], [1.0, 2.0]), "expected the same"),
        (lambda: Domain([np.nan], [1.0]), "low must be"),
        (lambda: UniformBase([0.0], [INF]), "finite low and high"),
        (lambda: ProductBase([]), "at least one"),
        (lambda: BoundedMixtureBase(*mixture(2), [0.0], [1.0]), "1 entries"),
        (
            lambda: BoundedMixtureBase([1.0], np.zeros((1, 4)), [np.eye(4)], [-9.0] * 4, [9.0] * 4),
            "at most 3 columns",
        ),
        (
            lambda: BoundedMixtureBase([1.0], [[0.0]], [[[4.0]]], [0.0], [1.0], [True]),
            "wider than a period",
        ),
        (
            lambda: BoundedMixtureBase(
                [1.0], [[-9.0, 0.0]], [covariance(1.0, 1.0, correlation=0.5)], [0.0] * 2, [1.0] * 2
            ),
            "component 0 has a share",
        ),
    ],
)
def test_bad_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_rule_notices_a_wrong_density():
    """Negative control of the integrals above: a mass that is off by 1e-6."""
    base = BASES["truncated"]
    assert abs(Rule(base).mass.sum() * np.exp(1e-6) - 1.0) > 1e-7
    exact = quad(lambda t: float(np.exp(base.log_density_at(np.array([[t]]))[0])), 0.0, 1.0)[0]
    assert exact == pytest.approx(1.0, abs=1e-9)
