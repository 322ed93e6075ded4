"""Densities against the oracle, finite differences, grids of their own, and frames."""

import numpy as np
import oracle
import pandas as pd
import polars as pl
import pytest
from conftest import fixed_fit, load_backend, slow

import tgpfast as tgp
from tgpfast.data.scaling import Scaling
from tgpfast.density.exponents.exponent import PointTilt

METHODS = ("fd", "ncfd", "fvpd", slow("map"))
SCALES = ("standardize", "center", "none")
UNITS = np.array([3.0, 0.02, 50.0])  # of the columns of scaled models
EPS = np.finfo(float).eps


def rows(d, n=300, seed=0):
    """Two clusters, correlated."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    x[: n // 3] = 0.4 * x[: n // 3] + 1.8
    return x @ (np.eye(d) + 0.3 * np.tri(d, k=-1))


def solved(method, d=2, S=24, offset=0.0, lam=1.0, gamma=0.7, seed=1, **options):
    """A model of ``solve``: nothing is scaled."""
    x = rows(d) + offset
    covariance = np.eye(d) + 0.2
    features = tgp.Features.draw(S, gamma, covariance, seed=seed)
    levels = (0.0, 0.3, 0.6) if method == "ncfd" else ()
    base = tgp.GaussianBase.from_data(x)
    stats = tgp.accumulate(x, features, noise_levels=levels, origin=base.mean, engine="direct")
    return tgp.solve(stats, base, method, lam=lam, n_draws=5_000, **options), x


def fitted(method="fd", d=2, scale="standardize", offset=7.0, **options):
    """A model of ``fit`` on columns of very unequal units."""
    x = rows(d) * UNITS[:d] + offset * UNITS[:d]
    options = {"n_features": 24, "lam": 1.0, "engine": "direct"} | options
    if scale != "standardize":  # one bandwidth for all columns: frequencies that suit each
        variance = x.var(axis=0)
        unit = {"gamma": 0.7, "frequency_covariance": np.diag(1 / variance), "lam": 1e4}
        options = options | unit
    return fixed_fit(x, method=method, scale=scale, **options), x


def model_rows(model, y):
    """y in the model's coordinates."""
    return (y - model.scaling.shift) / model.scaling.scale


def oracle_log_q(model, u):
    """The oracle's unnormalised log density at rows u of the model's coordinates."""
    f, base = model.features, model.base
    where = (f.frequencies, f.phases, f.bandwidth, base.mean, base.covariance)
    if model.method == "fvpd":
        return oracle.log_q_fvpd(u, model.M, model.m, *where)
    return oracle.log_q(u, model.theta, *where)


def slopes(model, u):
    """|d tilt / d angle_s| summed over s, at every row: what an error of an angle costs."""
    f = model.features
    amplitude = np.sqrt(2 / f.n_features)
    if model.method != "fvpd":
        return np.full(len(u), amplitude * np.abs(model.theta).sum())
    phi = oracle.phi(u, f.frequencies, f.phases, f.bandwidth)
    return amplitude * np.abs(np.linalg.solve(model.M, phi.T - model.m[:, None])).sum(axis=0)


def rounding(model, u):
    """Bound of the rounding error of the unnormalised log density, (n,)."""
    f, base, d = model.features, model.base, model.dimension
    # an angle is a sum of d products, each off by half an ulp, times three roundings each way
    angle = (np.abs(f.frequencies) @ np.abs(u).T).max() / f.bandwidth + 2 * np.pi
    bound = 3 * d * EPS * angle * slopes(model, u)
    centred = np.abs(u - base.mean).max(axis=1)
    quadratic = d * centred**2 * np.abs(np.linalg.inv(base.covariance)).max()
    bound += 4 * d * EPS * np.linalg.cond(base.covariance) * (quadratic + 1.0)
    if model.method == "fvpd":
        phi = oracle.phi(u, f.frequencies, f.phases, f.bandwidth)
        size = np.abs(np.linalg.solve(model.M, phi.T - model.m[:, None])).max(axis=0)
        bound += 4 * f.n_features * EPS * np.linalg.cond(model.M) * (1.0 + size)
    return bound + 8 * EPS * np.abs(oracle_log_q(model, u))


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("method", METHODS)
def test_unnormalised_log_density_equals_the_oracle(method, d, offset):
    model, x = solved(method, d, offset=offset)
    y = np.concatenate([x[:40], x.mean(axis=0) + 5 * np.random.default_rng(1).normal(size=(20, d))])
    error = np.abs(model.log_density(y, normalized=False) - oracle_log_q(model, y))
    bound = rounding(model, y)
    assert (error <= bound).all()
    assert bound.max() < (1e-10 if offset == 0 else 1e-5)  # the bound is worth something
    # negative control: the same angles from a bandwidth that is off by 1e-6 are refused
    f, base = model.features, model.base
    if offset and method != "fvpd":
        other = oracle.log_q(
            y, model.theta, f.frequencies, f.phases, f.bandwidth * 1.000001, base.mean,
            base.covariance,
        )  # fmt: skip
        assert (np.abs(model.log_density(y, normalized=False) - other) > bound).any()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("method", METHODS)
def test_fit_models_are_densities_per_unit_of_the_data(method, scale):
    """log q in the units of X is the oracle's in the model's, minus sum log scale."""
    model, x = fitted(method, scale=scale, offset=1e6 if scale == "standardize" else 7.0)
    u = model_rows(model, x[:50])
    jacobian = np.log(model.scaling.scale).sum()
    expected = oracle_log_q(model, u) - jacobian
    got = model.log_density(x[:50], normalized=False)
    assert (np.abs(got - expected) <= rounding(model, u) + 4 * EPS * abs(jacobian)).all()
    assert (abs(jacobian) > 0.5) == (scale == "standardize")  # the term is not an idle one


@pytest.mark.slow
@pytest.mark.parametrize("scale", [None, *SCALES])
@pytest.mark.parametrize("method", METHODS)
def test_normalised_minus_unnormalised_is_minus_log_z(method, scale):
    model, x = solved(method) if scale is None else fitted(method, scale=scale)
    gap = model.log_density(x[:30]) - model.log_density(x[:30], normalized=False)
    size = np.abs(model.log_density(x[:30], normalized=False)).max() + abs(gap[0])
    assert np.abs(gap + model.log_normalizer.value).max() <= 4 * EPS * size


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_change_of_units_changes_the_log_density_by_its_jacobian(method):
    """Data in other units give the same density of the same points, by change of variables."""
    x, units, shift = rows(2), np.array([4.0, 0.125]), np.array([16.0, -3.0])
    options = {"method": method, "n_features": 24, "engine": "direct"}
    a, b = fixed_fit(x, **options), fixed_fit(x * units + shift, **options)
    gap = a.log_density(x) - b.log_density(x * units + shift)
    # scaled data differ by rounding, which the solve amplifies by its condition number
    condition = a.diagnostics.get("condition", 1e4)
    size = 1.0 + np.abs(a.log_density(x)).max()
    assert np.abs(gap - np.log(units).sum()).max() <= 1e3 * EPS * condition * size
    gradient = a.grad_log_density(x) - b.grad_log_density(x * units + shift) * units
    assert np.abs(gradient).max() <= 1e4 * EPS * condition * size


@pytest.mark.parametrize("name", ["numba", "cython"])
@pytest.mark.parametrize("method", ["fd", "fvpd"])
def test_backends_agree_to_rounding(method, name):
    backend = load_backend(name).NAME
    model, x = fitted(method, d=3, backend="numpy")
    other = tgp.Density(
        method, model.tilt, model.base, scaling=model.scaling,
        threads=type(model.threads)(backend, 2),
    )  # fmt: skip
    u = model_rows(model, x)
    bound = rounding(model, u)
    w = np.abs(model.features.frequencies / model.features.bandwidth).max() / UNITS.min()
    for call, factor in (
        (lambda m: m.log_density(x, normalized=False)[:, None], 1.0),
        (lambda m: m.grad_log_density(x), w),
        (lambda m: m.laplacian_log_density(x)[:, None], 3 * w**2),
    ):
        gap = np.abs(call(model) - call(other)).max(axis=1)
        assert (gap <= 2 * bound * max(factor, 1.0)).all()
    assert abs(model.log_normalizer.value - other.log_normalizer.value) < 1e-11


@pytest.mark.parametrize("method", ["fd", slow("fvpd")])
def test_any_number_of_rows_and_single_rows(method):
    """Block edges of the kernels change nothing but rounding; a row alone is as among others."""
    model, _ = solved(method, d=2, S=7)
    y = np.random.default_rng(3).normal(size=(2_500, 2))
    whole = model.log_density(y, normalized=False), model.grad_log_density(y)
    bound = 2 * rounding(model, y)
    for i in (0, 1, 511, 2047, 2048, 2499):
        assert abs(model.log_density(y[i : i + 1], normalized=False)[0] - whole[0][i]) <= bound[i]
        assert np.abs(model.grad_log_density(y[i : i + 1])[0] - whole[1][i]).max() < 1e-10
    assert model.log_density([[0.0, 1.0]]).shape == (1,)
    one, x = solved(method, d=1)
    assert np.array_equal(one.log_density(x[:, 0]), one.log_density(x))  # a vector is a column


def test_rows_that_do_not_fit_are_refused():
    model, _ = fitted("fd", d=2)
    with pytest.raises(ValueError, match="Y has 3 columns, expected 2"):
        model.log_density(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="Y holds nan at row 1"):
        model.grad_log_density([[0.0, 1.0], [np.nan, 1.0]])
    model.scaling = Scaling(np.zeros(2), np.array([1e-10, 1.0]))
    assert model.log_density([[1e300, 0.0]], normalized=False) == -np.inf  # overflows when scaled


def test_parameters_belong_to_their_methods():
    point, _ = solved("fd")
    predictive, _ = solved("fvpd")
    assert point.theta.shape == predictive.m.shape == (24,)
    assert predictive.M.shape == (24, 24)
    with pytest.raises(AttributeError, match="M and m"):
        _ = predictive.theta
    for name in ("M", "m"):
        with pytest.raises(AttributeError, match="it has theta"):
            getattr(point, name)
    assert repr(point).startswith("Density(method='fd', d=2, n_features=24")


# -- derivatives ----------------------------------------------------------------------------------


def derivative_bound(model, order, k):
    """Bound of the order-th derivative of the tilt along column k, in the units of the data."""
    f = model.features
    w = np.abs(f.frequencies[:, k]) / f.bandwidth / model.scaling.scale[k]
    amplitude = np.sqrt(2 / f.n_features)
    if model.method != "fvpd":
        return amplitude * np.abs(model.theta) @ w**order
    inverse = np.linalg.inv(model.M)
    pairs = (w[:, None] + w[None, :]) ** order  # a product of cosines has the sum of frequencies
    linear = amplitude * np.abs(inverse @ model.m) @ w**order
    return 0.5 * amplitude**2 * float((np.abs(inverse) * pairs).sum()) + linear


def stencil(function, y, k, h):
    """Fourth-order central difference along column k: its error is h^4/30 times f'''''."""
    step = np.zeros(y.shape[1])
    step[k] = h
    near = function(y + step) - function(y - step)
    far = function(y + 2 * step) - function(y - 2 * step)
    return (8 * near - far) / (12 * h)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("method", ["fd", slow("fvpd")])
def test_gradient_and_laplacian_equal_finite_differences(method, d, scaled):
    model, x = fitted(method, d) if scaled else solved(method, d)
    y = x[::10]
    gradient, laplacian = model.grad_log_density(y), model.laplacian_log_density(y)
    assert gradient.shape == y.shape
    assert laplacian.shape == (len(y),)
    noise = rounding(model, model_rows(model, y)).max() + 16 * EPS * np.abs(y).max(axis=0) * np.abs(
        gradient
    ).max(axis=0)  # y + h is rounded too
    trace, error = np.zeros(len(y)), 0.0
    for k in range(d):
        fifth, sixth = derivative_bound(model, 5, k), derivative_bound(model, 6, k)
        h = (noise[k] / fifth) ** 0.2
        got = stencil(lambda z: model.log_density(z, normalized=False), y, k, h)
        bound = fifth * h**4 / 30 + 1.5 * noise[k] / h
        assert np.abs(got - gradient[:, k]).max() <= bound
        assert bound < 1e-4 * np.abs(gradient[:, k]).max()
        slope = noise[k] * (sixth / fifth)  # of the gradient: one more frequency
        slope += 16 * EPS * np.abs(gradient[:, k]).max()
        h = (slope / sixth) ** 0.2
        trace += stencil(lambda z, k=k: model.grad_log_density(z)[:, k], y, k, h)
        error += sixth * h**4 / 30 + 1.5 * slope / h
    assert np.abs(trace - laplacian).max() <= error
    assert error < 1e-3 * np.abs(laplacian).max()


@pytest.mark.parametrize("method", ["fd", "fvpd"])
def test_the_value_that_comes_with_the_gradient_is_the_value(method):
    """Chains take both from one call; log_density takes the other kernel."""
    model, x = solved(method, d=3)
    value, _ = model.tilt.gradient(x, model.threads)
    gap = np.abs(value - model.tilt.value(x, model.threads))
    assert (gap <= 2 * rounding(model, x)).all()


@pytest.mark.parametrize("method", ["fd", "ncfd", "map"])
def test_derivatives_of_point_models_equal_the_oracle(method):
    model, x = solved(method, d=3)
    f, base = model.features, model.base
    where = (model.theta, f.frequencies, f.phases, f.bandwidth, base.mean, base.covariance)
    bound = rounding(model, x).max() * (1 + np.abs(f.frequencies / f.bandwidth).max() ** 2 * 3)
    assert np.abs(model.grad_log_density(x) - oracle.grad_log_q(x, *where)).max() <= bound
    assert np.abs(model.laplacian_log_density(x) - oracle.laplacian_log_q(x, *where)).max() <= bound


# -- mass -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("scale", [None, "standardize"])
@pytest.mark.parametrize("method", METHODS)
def test_the_mass_is_one_on_a_grid_of_its_own(method, scale, d):
    model, x = solved(method, d) if scale is None else fitted(method, d)
    centre, spread = x.mean(axis=0), x.std(axis=0)
    n = 4001 if d == 1 else 241
    axes = [centre[k] + np.linspace(-11, 11, n) * spread[k] for k in range(d)]
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d)
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    mass = np.exp(model.log_density(nodes)).sum() * cell
    assert abs(mass - 1) < 1e-4
    # negative control: the unnormalised one has another mass
    assert abs(np.exp(model.log_density(nodes, normalized=False)).sum() * cell - 1) > 1e-2


# -- noise ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("sigma", [0.0, 0.35, 2.0])
def test_at_noise_is_the_density_of_that_level(sigma, scaled):
    """gamma_sigma in the features and Sigma + sigma^2 I in the base, the rest unchanged."""
    model, x = fitted("ncfd") if scaled else solved("ncfd")
    noisy = model.at_noise(sigma)
    f, base = model.features, model.base
    expected = oracle.log_q(
        model_rows(model, x), model.theta, f.frequencies, f.phases,
        oracle.gamma_sigma(f.bandwidth, sigma), base.mean, base.covariance + sigma**2 * np.eye(2),
    ) - np.log(model.scaling.scale).sum()  # fmt: skip
    got = noisy.log_density(x, normalized=False)
    assert (np.abs(got - expected) <= 2 * rounding(noisy, model_rows(model, x))).all()
    assert noisy.settings["sigma"] == sigma
    assert "sigma" not in model.settings
    if sigma == 0:
        assert np.array_equal(noisy.log_density(x), model.log_density(x))
    else:
        assert noisy.log_normalizer.value != model.log_normalizer.value  # not the cached one
        assert noisy.sample(50).std() > 0


def test_at_noise_errors():
    for method in ("fd", "fvpd", "map"):
        model, _ = solved(method, S=5)
        with pytest.raises(ValueError, match=f'method="ncfd"; this one is "{method}"'):
            model.at_noise(0.1)
    model, _ = solved("ncfd", S=5)
    with pytest.raises(ValueError, match=r"sigma=-0\.1"):
        model.at_noise(-0.1)
    with pytest.raises(ValueError, match="sigma must be finite"):
        model.at_noise(np.nan)
    with pytest.raises(ValueError, match=r"sigma=1e\+200: expected .* of a finite square"):
        model.at_noise(1e200)


def test_noise_upon_noise_adds_by_squares():
    model, x = solved("ncfd", S=5)
    twice, once = model.at_noise(0.3).at_noise(0.4), model.at_noise(0.5)
    assert twice.settings["sigma"] == once.settings["sigma"] == 0.5
    np.testing.assert_allclose(
        twice.log_density(x, normalized=False), once.log_density(x, normalized=False), rtol=1e-12
    )


# -- marginal CDF ---------------------------------------------------------------------------------


def integrated_cdf(model, x, direction, places):
    """P(x . direction <= place), by the trapezoidal rule along a rotated grid in units of X."""
    d, spread = model.dimension, x.std(axis=0)
    v = direction * spread  # along columns of unit spread
    length = np.linalg.norm(v)
    first = v / length
    rotation = first[None] if d == 1 else np.array([first, [-first[1], first[0]]])
    across = np.linspace(-11, 11, 201 if d == 2 else 1)
    result = []
    for place in places:
        end = (place - direction @ x.mean(axis=0)) / length
        # Gauss-Legendre in pieces up to the end: the integrand is cut off there
        nodes, weights = np.polynomial.legendre.leggauss(10)
        edges = np.linspace(-11, end, 26)
        half = 0.5 * np.diff(edges)[:, None]
        along = (edges[:-1, None] + half + half * nodes).ravel()
        share = (half * weights).ravel()
        if d == 1:
            w, cell = along[:, None] @ rotation, share
        else:
            w = np.stack(np.meshgrid(along, across, indexing="ij"), -1).reshape(-1, 2) @ rotation
            cell = np.repeat(share * (across[1] - across[0]), len(across))
        density = np.exp(model.log_density(x.mean(axis=0) + w * spread))
        result.append(float(density @ cell) * np.prod(spread))
    return np.array(result)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "method", "scaled"),
    [
        ([1.0], "fd", False), ([-2.5], "fvpd", True), ([1.0, 0.0], "fvpd", False),
        ([0.3, -4.0], "fd", True), ([-0.01, -0.02], "map", True), ([0.0, -3.0], "ncfd", False),
    ],
)  # fmt: skip
def test_marginal_cdf_equals_integration(direction, method, scaled):
    """Any direction, of any length; the grid in any order; in the units of the data."""
    v = np.array(direction)
    d = len(v)
    model, x = fitted(method, d) if scaled else solved(method, d)
    if scaled:
        v = v / UNITS[:d]
    centre, spread = float(v @ x.mean(axis=0)), float((x @ v).std())
    places = centre + spread * np.array([0.2, -1.5, 3.0, -0.4, 1.1])
    got = model.marginal_cdf(v, places)
    assert np.abs(got - integrated_cdf(model, x, v, places)).max() < 1e-6
    ends = model.marginal_cdf(v, centre + spread * np.array([-1e9, 1e9]))
    assert np.array_equal(ends, [0.0, 1.0])


def test_marginal_cdf_of_the_base_alone_is_the_normal_one():
    from scipy.stats import norm

    for d in (1, 2, 4):
        _, x = solved("fd", d, S=5)
        features = tgp.Features.draw(5, 0.7, np.eye(d), seed=0)
        base = tgp.GaussianBase.from_data(x)
        model = tgp.Density("fd", PointTilt(features, np.zeros(5), base.mean), base)
        v = np.arange(1.0, d + 1)
        places = np.linspace(-8, 8, 9)
        exact = norm.cdf(places, v @ base.mean, np.sqrt(v @ base.covariance @ v))
        error = np.abs(model.marginal_cdf(v, places) - exact).max()
        assert error < (1e-8 if d <= 2 else 1e-3)  # Sobol points: better than 0.5 / sqrt(131072)


@pytest.mark.slow
def test_marginal_cdf_agrees_with_samples_in_four_dimensions():
    model, x = fitted("fd", d=3, n_features=30)
    draws = model.sample(20_000, seed=3)
    for v in np.random.default_rng(0).normal(size=(4, 3)) / UNITS:
        places = np.quantile(x @ v, [0.1, 0.4, 0.6, 0.95])
        share = oracle.marginal_cdf(draws, v, places)
        # 4.5 standard errors of a share of 20,000 draws, and of the 131,072 behind the CDF
        assert np.abs(share - model.marginal_cdf(v, places)).max() < 4.5 * 0.5 / np.sqrt(17_000)
    four, y = solved("map", d=4, S=30)
    draws = four.sample(20_000, seed=4)
    v = np.array([1.0, -1.0, 2.0, 0.5])
    places = np.quantile(y @ v, [0.1, 0.4, 0.6, 0.95])
    share = oracle.marginal_cdf(draws, v, places)
    assert np.abs(share - four.marginal_cdf(v, places)).max() < 4.5 * 0.5 / np.sqrt(17_000)


@pytest.mark.parametrize("base", ["empirical", slow("mixture")])
def test_marginal_cdf_in_units_of_any_size(base):
    """Of the data and of the direction: squares of neither may overflow or vanish."""
    x = rows(2)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    places = np.array([-1.0, 0.0, 1.0])
    options = {"n_features": 20, "base": base, "method": "map"}
    model = fixed_fit(x, **options)
    want = model.marginal_cdf([1.0, 0.5], places)
    for unit in (2.0**1000, 2.0**-1000):  # powers of two: the same model, bit by bit
        got = fixed_fit(x * unit, **options).marginal_cdf([1.0, 0.5], places * unit)
        np.testing.assert_allclose(got, want, rtol=1e-9)
    for length in (2.0**1020, 2.0**-1020):
        got = model.marginal_cdf([length, 0.5 * length], places * length)
        np.testing.assert_array_equal(got, want)
    assert np.array_equal(model.marginal_cdf([1e-300, 0.0], [-1e300, 1e300]), [0.0, 1.0])


@pytest.mark.parametrize("method", METHODS)
def test_rows_beyond_all_measure_have_no_density(method):
    """Where phases or distances overflow; a row far away, but not so far, has a finite one."""
    model, _ = solved(method, S=8)
    with np.errstate(all="ignore"):
        values = model.log_density([[-1e308, 1.0], [1e308, -1e308], [1e6, 1.0]])
    assert np.array_equal(values[:2], [-np.inf, -np.inf])
    assert np.isfinite(values[2])


@pytest.mark.parametrize(
    ("direction", "grid", "words"),
    [
        ([1.0], [0.0], r"shape \(2,\)"),
        ([0.0, 0.0], [0.0], "not be zero"),
        ([[1.0, 0.0]], [0.0], "direction must have shape"),
        ([1.0, np.nan], [0.0], "finite"),
        ([1.0, 0.0], 0.0, "grid must have shape"),
        ([1.0, 0.0], [np.inf], "finite"),
    ],
)
def test_marginal_cdf_errors(direction, grid, words):
    model, _ = solved("fd", S=5)
    with pytest.raises(ValueError, match=words):
        model.marginal_cdf(direction, grid)


# -- frames ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize("method", ["fd", "fvpd"])
def test_frames_in_frames_out(kind, method):
    x = rows(3) * UNITS
    names = ["long", "b c", "height"]
    if kind == "pandas":
        frame = pd.DataFrame(x, columns=names, index=pd.Index(np.arange(300) * 7 + 3, name="id"))
        shuffled, short = frame[["height", "long", "b c"]], frame[["height", "long"]]
    else:
        frame = pl.DataFrame(x, schema=names)
        shuffled, short = frame.select(["height", "long", "b c"]), frame.select(["height", "long"])
    options = {"method": method, "n_features": 20}
    model, plain = fixed_fit(frame, **options), fixed_fit(x, **options)
    series_kind = pd.Series if kind == "pandas" else pl.Series
    for name in ("log_density", "laplacian_log_density"):
        got = getattr(model, name)(frame)
        assert isinstance(got, series_kind)
        assert np.array_equal(got.to_numpy(), getattr(plain, name)(x))
        assert np.array_equal(getattr(model, name)(shuffled).to_numpy(), got.to_numpy())
        if kind == "pandas":
            assert got.index.equals(frame.index)
    gradient = model.grad_log_density(shuffled)
    assert isinstance(gradient, type(frame))
    assert list(gradient.columns) == names
    assert np.array_equal(gradient.to_numpy(), plain.grad_log_density(x))
    if kind == "pandas":
        assert gradient.index.equals(frame.index)
    draws = model.sample(11, seed=2)
    assert isinstance(draws, type(frame))
    assert list(draws.columns) == names
    assert np.array_equal(draws.to_numpy(), plain.sample(11, seed=2))
    assert np.array_equal(model.log_density(x), plain.log_density(x))  # an array gives an array
    assert isinstance(plain.log_density(frame), series_kind)  # a frame a series, by position
    with pytest.raises(ValueError, match=r"Y lacks the columns \['b c'\]; it has"):
        model.log_density(short)


def test_files_with_shuffled_columns_are_read_by_name(tmp_path):
    x = rows(2)
    for name, order in (("a", [0, 1]), ("b", [1, 0])):
        header = ",".join("uv"[k] for k in order)
        np.savetxt(tmp_path / f"{name}.csv", x[:, order], delimiter=",", header=header,
                   comments="", fmt="%.17g")  # fmt: skip
    model = fixed_fit(tmp_path / "a.csv", n_features=10)
    want = model.log_density(tmp_path / "a.csv")
    assert np.array_equal(model.log_density(tmp_path / "b.csv"), want)
    assert not np.allclose(model.log_density(x[:, [1, 0]]), want)  # control: arrays have no names


def test_a_sample_does_not_take_the_index_of_the_training_frame():
    pandas = pytest.importorskip("pandas")
    x = rows(2)
    frame = pandas.DataFrame(x, columns=["a", "b"], index=np.arange(len(x)) + 1000)
    sample = fixed_fit(frame, n_features=10).sample(len(x))
    assert sample.index[0] == 0
