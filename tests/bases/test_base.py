"""Bases of one's own: what they must define, what they get, from their formulas to files."""

import copy
import math
import pickle
import warnings

import numpy as np
import pytest
from conftest import fixed_fit, slow
from scipy.stats import kstest, laplace, logistic

import tgpfast as tgp
from tgpfast.bases import base as bases
from tgpfast.bases.base import Base, RescaledBase, describe_base, load_base, register_base
from tgpfast.data.scaling import Scaling

SCALING = Scaling(np.array([3.0, -1.0]), np.array([0.1, 20.0]))


@register_base
class LaplaceBase(Base):
    """Independent Laplace columns; it can be saved."""

    kind = "test laplace"

    def __init__(self, center, widths):
        self.center, self.widths = np.asarray(center, float), np.asarray(widths, float)
        self.mean, self.covariance = self.center, np.diag(2 * self.widths**2)

    def log_density_at(self, x):
        return (-np.abs(x - self.center) / self.widths - np.log(2 * self.widths)).sum(axis=1)

    def score_at(self, x):
        return -np.sign(x - self.center) / self.widths

    def draw(self, n, rng):
        return rng.laplace(self.center, self.widths, size=(n, self.dimension))

    def parameters(self):
        return {"center": self.center, "widths": self.widths}


class LogisticBase(Base):
    """Independent logistic columns; the least that a base can define."""

    def __init__(self, center, widths):
        self.center, self.widths = np.asarray(center, float), np.asarray(widths, float)
        self.mean, self.covariance = self.center, np.diag(self.widths**2 * np.pi**2 / 3)

    def log_density_at(self, x):
        z = (x - self.center) / self.widths
        return -(z + 2 * np.logaddexp(0.0, -z) + np.log(self.widths)).sum(axis=1)

    def score_at(self, x):
        return -np.tanh(0.5 * (x - self.center) / self.widths) / self.widths

    def draw(self, n, rng):
        return rng.logistic(self.center, self.widths, size=(n, self.dimension))


class OwnGaussian(Base):
    """A Gaussian written again from NumPy alone."""

    def __init__(self, mean, covariance):
        self.mean, self.covariance = np.asarray(mean, float), np.asarray(covariance, float)

    def log_density_at(self, x):
        y = x - self.mean
        square = np.einsum("ij,ij->i", y @ np.linalg.inv(self.covariance), y)
        return -0.5 * (square + np.linalg.slogdet(2 * np.pi * self.covariance)[1])

    def score_at(self, x):
        return -(x - self.mean) @ np.linalg.inv(self.covariance)

    def draw(self, n, rng):
        return rng.multivariate_normal(self.mean, self.covariance, size=n)


KINDS = {"laplace": LaplaceBase, "logistic": LogisticBase}


def make(kind, d=2):
    return KINDS[kind](np.linspace(0.5, 1.0, d), np.linspace(0.7, 1.3, d))


def make_rows(d=2, n=400, seed=1):
    """Two clusters of unequal spread."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d))
    rows[: n // 3] = 0.4 * rows[: n // 3] + 2.0
    return rows


def nodes_of(center, width, n):
    """Gauss-Legendre panels of 8 nodes that end at the center, where a Laplace density bends."""
    places, weights = np.polynomial.legendre.leggauss(8)
    edges = center + width * np.linspace(-1.0, 1.0, 2 * n + 1)
    half = 0.5 * np.diff(edges)[:, None]
    return (edges[:-1, None] + half + half * places).ravel(), (half * weights).ravel()


# -- what a base gets without defining it ---------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_log_density_and_score_are_those_of_scipy(kind):
    base, x = make(kind), make_rows()
    law = {"laplace": laplace, "logistic": logistic}[kind](base.center, base.widths)
    np.testing.assert_allclose(base.log_density(x), law.logpdf(x).sum(axis=1), rtol=1e-13)
    step = 1e-6 * np.eye(2)
    away = x[np.abs(x - base.center).min(axis=1) > 1e-5]  # a Laplace density bends at its center
    for k in range(2):
        slope = (base.log_density(away + step[k]) - base.log_density(away - step[k])) / 2e-6
        np.testing.assert_allclose(base.score(away)[:, k], slope, rtol=0, atol=1e-8)


def test_laplacian_falls_back_to_differences_of_the_score():
    base, x, stretch = make("logistic"), make_rows(), np.array([0.5, 3.0])
    z = (x - base.center) / base.widths
    exact = -0.5 / np.cosh(0.5 * z) ** 2 / base.widths**2 @ stretch**2
    # h^2/6 of third derivatives of the score, below 1, and rounding of 1e-16 over h, with h near
    # 6e-6 deviations of about 2, stretched by 9
    np.testing.assert_allclose(base.laplacian_at(x, stretch), exact, rtol=0, atol=1e-9)
    assert np.abs(exact).max() > 1.0


def test_sobol_draws_fall_back_to_seeded_draws():
    base = make("laplace")
    want = base.draw(32, np.random.default_rng(7))
    np.testing.assert_array_equal(base.draw_sobol(5, 7), want)
    assert not np.array_equal(base.draw_sobol(5, 8), want)


@pytest.mark.parametrize("kind", KINDS)
def test_rescaled_is_the_density_of_rescaled_rows(kind):
    base, x = make(kind), make_rows()
    there, u = base.rescaled(SCALING), SCALING.apply(x)
    assert isinstance(there, RescaledBase)
    np.testing.assert_allclose(
        there.log_density(u) - SCALING.log_volume, base.log_density(x), rtol=0, atol=1e-11
    )
    np.testing.assert_allclose(there.score(u), base.score(x) * SCALING.scale, rtol=1e-9)
    if kind == "logistic":
        curvature = base.laplacian_at(x, SCALING.scale)
        np.testing.assert_allclose(there.laplacian_at(u, np.ones(2)), curvature, rtol=1e-6)
    np.testing.assert_allclose(there.mean, (base.mean - SCALING.shift) / SCALING.scale, rtol=1e-14)
    draws = SCALING.invert(there.draw(9, np.random.default_rng(0)))
    np.testing.assert_allclose(draws, base.draw(9, np.random.default_rng(0)), rtol=1e-12)
    again = there.rescaled(Scaling(-SCALING.shift / SCALING.scale, 1.0 / SCALING.scale))
    np.testing.assert_allclose(again.log_density(x), base.log_density(x), rtol=0, atol=1e-11)
    assert base.rescaled(Scaling.identity(2)) is base


def test_fvpd_says_that_it_needs_moments_of_features():
    base, features = make("laplace"), tgp.Features.draw(5, 1.0, np.eye(2), seed=0)
    with pytest.raises(ValueError, match=r'LaplaceBase has no closed form.*"fd" or "map"'):
        base.feature_moments(features)


# -- what is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["log_density_at", "score_at", "draw"])
def test_a_base_that_lacks_a_method_names_it(missing):
    methods = {name: getattr(LogisticBase, name) for name in ("log_density_at", "score_at", "draw")}
    methods.pop(missing)
    with pytest.raises(TypeError, match=missing):
        type("Half", (Base,), methods)()
    with pytest.raises(TypeError, match="abstract"):
        Base()


def test_a_base_that_lacks_its_mean_says_so():
    class Nowhere(LogisticBase):
        def __init__(self):
            pass

    for use in (lambda b: b.log_density([[0.0]]), lambda b: tgp.fit(make_rows(1), base=b)):
        with pytest.raises(TypeError, match=r"Nowhere must set mean, \(d,\), and covariance"):
            use(Nowhere())


# -- fitted, evaluated, drawn ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "method", "d"),
    [
        slow("laplace", "fd", 1), slow("laplace", "map", 1), ("logistic", "fd", 1),
        slow("logistic", "fd", 2), slow("logistic", "map", 2),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_a_density_on_ones_own_base(kind, method, d):
    """In units of the data: its mass, gradient, Laplacian and draws."""
    units = np.array([3.0, 0.05])[:d]
    x = make_rows(d) * units + 5.0 * units
    base = KINDS[kind](5.5 * units, 1.2 * units)
    model = fixed_fit(x, base=base, method=method, n_features=25, engine="direct")
    assert model.settings["base"] == "given"
    axes = [nodes_of(base.center[k], 60.0 * units[k], 200 if d == 1 else 50) for k in range(d)]
    nodes = np.stack(np.meshgrid(*[a for a, _ in axes], indexing="ij"), -1).reshape(-1, d)
    weights = axes[0][1] if d == 1 else np.outer(axes[0][1], axes[1][1]).ravel()
    mass = float(np.exp(model.log_density(nodes)) @ weights)
    assert abs(math.log(mass)) < 1e-6 + model.log_normalizer.standard_error < 1e-4
    unnormalized = float(np.exp(model.log_density(nodes, normalized=False)) @ weights)
    assert abs(unnormalized - 1.0) > 1e-2  # negative control
    y, trace = x[:50], np.zeros(50)
    for k in range(d):
        h = np.zeros(d)
        h[k] = 1e-4 * units[k]
        slope = (model.log_density(y + h) - model.log_density(y - h)) / (2 * h[k])
        np.testing.assert_allclose(
            model.grad_log_density(y)[:, k], slope, rtol=0, atol=1e-5 / units[k]
        )
        rise = model.grad_log_density(y + h)[:, k] - model.grad_log_density(y - h)[:, k]
        trace += rise / (2 * h[k])
    if kind == "logistic":
        np.testing.assert_allclose(
            model.laplacian_log_density(y), trace, rtol=0, atol=1e-4 / units.min() ** 2
        )
    draws, v = model.sample(1_500, seed=3), np.array([1.0, 0.4])[:d] / units
    assert kstest(draws @ v, lambda t: model.marginal_cdf(v, t)).pvalue > 1e-3
    alone = base.sample(6_000, seed=3)  # negative control
    assert kstest(alone @ v, lambda t: model.marginal_cdf(v, t)).pvalue < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fd", "map"])
def test_a_gaussian_written_by_hand_gives_what_the_gaussian_gives(method):
    x, features = make_rows(), tgp.Features.draw(20, 0.8, np.eye(2), seed=3)
    theirs = tgp.GaussianBase.from_data(x)
    mine = OwnGaussian(theirs.mean, theirs.covariance)
    models = []
    for base in (theirs, mine):
        stats = tgp.accumulate(x, features, origin=theirs.mean, engine="direct", base=base)
        models.append(tgp.solve(stats, base, method, lam=1.0, n_draws=2**15))
    if method == "fd":
        np.testing.assert_allclose(models[1].theta, models[0].theta, rtol=0, atol=1e-10)
        gap = models[1].log_normalizer.value - models[0].log_normalizer.value
        assert abs(gap) < 1e-6
    else:  # one takes quadrature for its expectations, the other 32,768 draws
        gap = models[1].log_density(x) - models[0].log_density(x)
        assert np.abs(gap).max() < 0.1


class MomentGaussian(OwnGaussian):
    """With moments of features from the characteristic function, one pair at a time."""

    def feature_moments(self, features, *, backend="auto", n_threads=None):
        f, c = features.frequencies / features.bandwidth, features.phases
        mean_cos = lambda w, p: np.exp(-0.5 * w @ self.covariance @ w) * np.cos(w @ self.mean + p)  # noqa: E731
        S = len(c)
        mean = np.sqrt(2 / S) * np.array([mean_cos(f[s], c[s]) for s in range(S)])
        second = np.array([
            [
                (mean_cos(f[s] - f[t], c[s] - c[t]) + mean_cos(f[s] + f[t], c[s] + c[t])) / S
                for t in range(S)
            ]
            for s in range(S)
        ])  # fmt: skip
        return mean, second - np.outer(mean, mean)


@pytest.mark.parametrize("scale", ["standardize", "none"])
def test_a_base_with_moments_of_features_serves_fvpd(scale):
    x = make_rows() * [3.0, 0.5] + [10.0, -1.0]
    theirs = tgp.GaussianBase.from_data(x)
    mine = MomentGaussian(theirs.mean, theirs.covariance)
    assert mine.has_feature_moments
    options = {"method": "fvpd", "n_features": 12, "engine": "direct", "gamma": 0.9, "scale": scale}
    want, got = fixed_fit(x, base=theirs, **options), fixed_fit(x, base=mine, **options)
    np.testing.assert_allclose(got.m, want.m, rtol=0, atol=1e-9 * np.abs(want.m).max())
    np.testing.assert_allclose(got.M, want.M, rtol=0, atol=1e-9 * np.abs(want.M).max())
    assert not make("logistic").has_feature_moments
    with pytest.raises(ValueError, match="cannot tilt a RescaledBase"):
        fixed_fit(make_rows(), base=make("logistic"), method="fvpd", n_features=5)


@pytest.mark.slow
def test_draws_in_four_dimensions():
    """Importance sampling with draws of one's own base, which are not quasi-random."""
    x = make_rows(4)
    model = fixed_fit(x, base=make("logistic", 4), n_features=20, engine="direct")
    assert model.log_normalizer.method == "importance"
    draws = model.sample(2_000, seed=0)
    for v in np.eye(4)[:2]:
        assert kstest(draws @ v, lambda t, v=v: model.marginal_cdf(v, t)).pvalue > 1e-3


def test_statistics_of_another_base_are_refused():
    x, features = make_rows(), tgp.Features.draw(10, 0.8, np.eye(2), seed=3)
    stats = tgp.accumulate(x, features, base=make("laplace"))
    with pytest.raises(ValueError, match="lack the score of this LogisticBase"):
        tgp.solve(stats, make("logistic"), "fd")
    assert tgp.solve(stats, make("laplace"), "fd").method == "fd"


@pytest.mark.slow
def test_settings_are_chosen_for_ones_own_base():
    """`fit` with nothing else given: it verifies the result against the rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = tgp.fit(make_rows(1), base=make("logistic", 1), n_features=60)
    assert model.settings["verification"]["passed"]
    new = make_rows(1, seed=2)
    found = tgp.evaluate(model, new, n_samples=2_000)
    assert found.log_likelihood.value > make("logistic", 1).log_density(new).mean()


# -- fingerprints ---------------------------------------------------------------------------------


def test_fingerprints_tell_bases_apart():
    same = {"laplace": make("laplace"), "logistic": make("logistic")}
    for kind, base in same.items():
        assert base.fingerprint == make(kind).fingerprint
        assert base.fingerprint != KINDS[kind](base.center, 1.1 * base.widths).fingerprint
        there = base.rescaled(SCALING)
        assert there.fingerprint == make(kind).rescaled(SCALING).fingerprint
        assert there.fingerprint != base.fingerprint
        assert there.fingerprint != base.rescaled(Scaling(np.zeros(2), np.ones(2) * 2)).fingerprint
    assert len({b.rescaled(SCALING).fingerprint for b in same.values()}) == 2


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["standardize", "none"])
def test_a_registered_base_is_saved_and_loaded(scale, tmp_path):
    """With `scale="standardize"` the model holds it in other units."""
    x, path = make_rows() * [3.0, 0.5] + 1.0, tmp_path / "model.npz"
    base = LaplaceBase([2.0, 1.2], [3.0, 0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tgp.TGPWarning)
        model = fixed_fit(x, base=base, n_features=15, engine="direct", scale=scale, gamma=1.0)
    assert isinstance(model.base, RescaledBase if scale == "standardize" else LaplaceBase)
    model.save(path)
    again = tgp.load(path)
    assert again.base.fingerprint == model.base.fingerprint
    np.testing.assert_array_equal(
        again.log_density(x, normalized=False), model.log_density(x, normalized=False)
    )
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        np.testing.assert_array_equal(
            other.log_density(x, normalized=False), model.log_density(x, normalized=False)
        )


def test_a_class_that_is_not_registered_is_not_saved(tmp_path):
    model = fixed_fit(make_rows(), base=make("logistic"), n_features=5, engine="direct")
    with pytest.raises(TypeError, match=r"tgpfast\.register_base\(LogisticBase\)"):
        model.save(tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())


def test_a_file_of_a_class_that_is_not_registered_names_it(tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    base = make("laplace", 1)
    fixed_fit(make_rows(1), base=base, n_features=5, engine="direct", scale="none").save(path)
    monkeypatch.delitem(bases._classes, "test laplace")
    with pytest.raises(ValueError, match=r"'test laplace' is not registered.*register_base") as e:
        tgp.load(path)
    assert "damaged" not in str(e.value)  # the file is sound
    monkeypatch.undo()
    assert tgp.load(path).dimension == 1


def test_what_register_base_refuses():
    with pytest.raises(TypeError, match="LogisticBase cannot be registered: it lacks kind"):
        register_base(LogisticBase)
    with pytest.raises(TypeError, match=r"it lacks parameters\(\), draw\(\)"):
        register_base(type("Half", (Base,), {
            "kind": "test half", "log_density_at": None, "score_at": None
        }))  # fmt: skip
    with pytest.raises(TypeError, match=r"takes a subclass of tgpfast\.Base"):
        register_base(make("laplace"))
    with pytest.raises(ValueError, match="kind='gaussian' of Other is that of GaussianBase"):
        register_base(type("Other", (LaplaceBase,), {"kind": "gaussian"}))


def test_a_class_that_is_defined_again_replaces_itself(monkeypatch):
    """As when a cell of a notebook runs twice."""
    names = {"__module__": __name__, "__qualname__": "LaplaceBase"}
    again = type("LaplaceBase", (LaplaceBase,), names)
    monkeypatch.setitem(bases._classes, "test laplace", LaplaceBase)
    assert register_base(again) is again
    assert type(load_base("test laplace", make("laplace").parameters())) is again


def test_parameters_that_do_not_suit_are_named():
    kind, parameters = describe_base(make("laplace"))
    assert kind == "test laplace"
    with pytest.raises(ValueError, match=r"parameters \['center'\].*widths"):
        load_base(kind, {"center": parameters["center"]})
    rescaled = make("laplace").rescaled(SCALING).parameters()
    assert load_base("rescaled", rescaled).fingerprint == make("laplace").rescaled(
        SCALING
    ).fingerprint
    with pytest.raises(ValueError, match="scale must be positive"):
        load_base("rescaled", {**rescaled, "scale": -rescaled["scale"]})
    with pytest.raises(NotImplementedError, match=r"does not define parameters\(\)"):
        make("logistic").parameters()


def test_base_is_public():
    assert tgp.Base is Base
    assert tgp.register_base is register_base
    for cls in (tgp.GaussianBase, tgp.MixtureBase, tgp.StudentBase):
        assert issubclass(cls, tgp.Base)
