"""Exponents by a transform against the same exponents term by term."""

import dataclasses
import sys

import numpy as np
import pytest
from conftest import fixed_fit, set_costs, slow

pytest.importorskip("finufft")

import tgpfast as tgp
from tgpfast import kernels
from tgpfast.density.exponents import plane_waves
from tgpfast.kernels.thread_choice import Threads

THREADS = Threads(n_threads=1)
PROMISE = 1e-9  # of an exponent, relative to its largest value
KINDS = ("fd", "fvpd")


@pytest.fixture(autouse=True)
def small_work(monkeypatch):
    """No budget of the caller's; one thread unless a test asks for more."""
    monkeypatch.delenv("TGPFAST_MEMORY_BUDGET", raising=False)
    resolve = kernels.resolve_threads
    monkeypatch.setattr(kernels, "resolve_threads", lambda m, n=None: resolve(m, n or 1))


@pytest.fixture
def transforms(monkeypatch):
    """Rows term by term cost a fortune, and large grids more: the transform is chosen, for all but
    outliers. A list of those that ran, by their number of points."""
    set_costs(monkeypatch, flop=1e-5, feature=1e-3, tilt=1e-3, node=1e-7)
    monkeypatch.setattr(plane_waves, "LEAST_TRANSFORM_ROWS", 1)
    seen, run = [], plane_waves.transform

    def record(*args):
        seen.append(len(args[2][0]))
        return run(*args)

    monkeypatch.setattr(plane_waves, "transform", record)
    return seen


def rows(d, n=600, seed=0):
    x = np.random.default_rng(seed).standard_normal((n, d))
    x[: n // 3] = 0.4 * x[: n // 3] + 1.8
    return x


def solved(method, d=2, S=30, offset=0.0, gamma=0.7, lam=1.0):
    x = rows(d) + offset
    features, base = tgp.Features.draw(S, gamma, np.eye(d), seed=1), tgp.GaussianBase.from_data(x)
    stats = tgp.accumulate(x, features, origin=base.mean, engine="direct", precision="float64")
    return tgp.solve(stats, base, method, lam=lam)


def term_by_term(exponent, u):
    """The exponent's own sums: no transform is considered."""
    return exponent.value_directly(u, THREADS)


def points(d, n=700, offset=0.0, outliers=False):
    u = 1.5 * np.random.default_rng(5).standard_normal((n, d))
    if outliers:
        u[[0, 7, n // 2, n - 1]] = [[1e4], [9e3], [-2e4], [3e4]]
    return u + offset


def waves_at(w, y):
    """Re sum_j strength_j e^{i w_j . y} + constant."""
    return (np.exp(1j * y @ w.frequencies.T) @ w.strengths).real + w.constant


# -- the same numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_waves_are_the_exponent(d, method):
    """S waves of a point model, S^2 + S of FVPD, about the origin, and its constant."""
    model = solved(method, d)
    w, u, S = model.tilt.waves, points(d), 30
    assert len(w.strengths) == (S if method == "fd" else S + S * (S - 1) // 2 + S * (S + 1) // 2)
    want = term_by_term(model.tilt, u)
    size = np.abs(w.strengths).sum() + abs(w.constant)
    assert np.abs(waves_at(w, u - model.tilt.origin) - want).max() <= 1e-13 * size
    assert np.array_equal(w.reach, np.abs(w.frequencies).max(axis=0))
    assert w.dimension == d


@pytest.mark.parametrize("outliers", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_values_agree(d, method, offset, outliers, transforms):
    """To 1e-9 of the largest value, with rows far outside, and far from zero."""
    exponent = solved(method, d, offset=offset).tilt
    u = points(d, offset=offset, outliers=outliers)
    got = exponent.value(u, THREADS)
    assert len(transforms) == 1
    assert transforms[0] <= len(u) - 4 * outliers
    want = term_by_term(exponent, u)
    assert got.shape == want.shape
    assert not np.array_equal(got, want)  # the transform was not thrown away
    assert np.abs(got - want).max() <= PROMISE * max(np.abs(want).max(), 1.0)


@pytest.mark.parametrize("outliers", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("d", [1, 2, slow(3)])
def test_gradients_agree(d, method, offset, outliers, transforms):
    """To 1e-9 of what a gradient can be: the band limit times the largest value (Bernstein)."""
    exponent = solved(method, d, offset=offset).tilt
    u = points(d, offset=offset, outliers=outliers)
    value, gradient = exponent.gradient(u, THREADS)
    assert len(transforms) == (d + 2) // 2  # two real functions share one
    plain, slope = exponent.gradient_directly(u, THREADS)
    assert gradient.shape == slope.shape
    assert not np.array_equal(gradient, slope)
    assert gradient.flags.c_contiguous
    scale = max(np.abs(plain).max(), 1.0) * max(exponent.waves.reach.max(), 1.0)
    assert np.abs(value - plain).max() <= PROMISE * scale
    assert np.abs(gradient - slope).max() <= PROMISE * scale


def test_chunks_of_points(transforms, monkeypatch):
    """Each with a box of its own; outliers of every chunk go back to their places."""
    monkeypatch.setattr(plane_waves, "TRANSFORM_CHUNK_ROWS", 150)
    exponent = solved("fvpd").tilt
    u = points(2, outliers=True)
    u[300:450] += 9.0
    got = exponent.value(u, THREADS)
    assert len(transforms) == 5
    want = term_by_term(exponent, u)
    assert not np.array_equal(got, want)
    assert np.abs(got - want).max() <= PROMISE * max(np.abs(want).max(), 1.0)
    transforms.clear()
    value, gradient = exponent.gradient(u, THREADS)
    assert len(transforms) == 10
    plain, slope = exponent.gradient_directly(u, THREADS)
    scale = max(np.abs(plain).max(), 1.0) * exponent.waves.reach.max()
    assert np.abs(np.column_stack([value - plain, gradient - slope])).max() <= PROMISE * scale


@pytest.mark.parametrize("n", [1, 2, 17])
def test_few_points_and_equal_ones(n, transforms):
    exponent = solved("fd").tilt
    for u in (points(2, n=20)[:n], np.full((n, 2), 0.4)):
        want = term_by_term(exponent, u)
        assert np.abs(exponent.value(u, THREADS) - want).max() <= PROMISE
    assert len(transforms) == 2


def test_the_waves_of_fvpd_are_made_once(transforms):
    exponent = solved("fvpd").tilt
    exponent.value(points(2), THREADS)
    first = exponent.__dict__["waves"]
    exponent.gradient(points(2), THREADS)
    assert exponent.waves is first


# -- where it is refused --------------------------------------------------------------------------


def ask(exponent, u, row_cost=1.0, **options):
    """evaluate_waves for values, with the exponent's own sums for what is left over."""
    found = plane_waves.evaluate_waves(
        exponent.waves, u - exponent.origin, THREADS, row_cost,
        lambda i: term_by_term(exponent, u[i])[:, None], **options,
    )  # fmt: skip
    return None if found is None else found[:, 0]


def test_asked_plainly_it_answers(transforms):
    """Control of the refusals below."""
    exponent, u = solved("fd").tilt, points(2)
    assert np.abs(ask(exponent, u) - term_by_term(exponent, u)).max() <= PROMISE * 10
    assert transforms == [len(u)]


def test_strengths_too_large_for_the_accuracy_are_refused(transforms):
    """Rounding alone would exceed it: term by term instead, and the same numbers."""
    model = solved("fd")
    large = dataclasses.replace(model.tilt, theta=1e6 * model.tilt.theta)
    u = points(2)
    assert ask(large, u) is None
    assert np.array_equal(large.value(u, THREADS), term_by_term(large, u))
    assert np.array_equal(large.gradient(u, THREADS)[1], large.gradient_directly(u, THREADS)[1])
    assert transforms == []


def test_it_is_refused_where_it_does_not_pay(transforms):
    exponent, u = solved("fd").tilt, points(2)
    assert ask(exponent, u, row_cost=1e-9) is None
    assert transforms == []
    wide = np.random.default_rng(0).uniform(-300.0, 300.0, (700, 2))
    assert ask(exponent, wide, row_cost=1e-3) is None  # a grid of millions costs more than rows
    assert transforms == []
    assert ask(exponent, wide, row_cost=10.0) is not None


def test_it_is_refused_where_no_grid_fits_the_budget(transforms, monkeypatch):
    monkeypatch.setenv("TGPFAST_MEMORY_BUDGET", "100")
    exponent, u = solved("fd").tilt, points(2)
    assert ask(exponent, u) is None
    assert np.array_equal(exponent.value(u, THREADS), term_by_term(exponent, u))
    assert transforms == []


def test_what_is_usable(monkeypatch):
    usable = {d: plane_waves.transform_is_usable(d, 10**6) for d in (1, 2, 3, 4, 10)}
    assert usable == {1: True, 2: True, 3: True, 4: False, 10: False}
    assert plane_waves.transform_is_usable(2, plane_waves.LEAST_TRANSFORM_ROWS)
    assert not plane_waves.transform_is_usable(2, plane_waves.LEAST_TRANSFORM_ROWS - 1)
    monkeypatch.setitem(sys.modules, "finufft", None)
    assert not plane_waves.transform_is_usable(2, 10**6)


@pytest.mark.parametrize("method", KINDS)
def test_four_dimensions_and_a_missing_finufft_go_term_by_term(method, transforms, monkeypatch):
    four, two = solved(method, 4).tilt, solved(method).tilt
    assert np.array_equal(four.value(points(4), THREADS), term_by_term(four, points(4)))
    monkeypatch.setitem(sys.modules, "finufft", None)
    assert np.array_equal(two.value(points(2), THREADS), term_by_term(two, points(2)))
    assert np.array_equal(
        two.gradient(points(2), THREADS)[1], two.gradient_directly(points(2), THREADS)[1]
    )
    assert transforms == []


@pytest.mark.parametrize("method", KINDS)
def test_few_rows_are_not_looked_at(method):
    """As shipped: bits of the plain form below LEAST_TRANSFORM_ROWS."""
    exponent = solved(method).tilt
    u = points(2, n=plane_waves.LEAST_TRANSFORM_ROWS - 1)
    assert np.array_equal(exponent.value(u, THREADS), term_by_term(exponent, u))


def test_fvpd_makes_no_waves_where_they_do_not_pay(monkeypatch):
    monkeypatch.setattr(plane_waves, "LEAST_TRANSFORM_ROWS", 1)
    exponent = solved("fvpd").tilt
    exponent.value(points(2, n=5), THREADS)
    assert "waves" not in exponent.__dict__


@pytest.mark.parametrize("noise", [1e-6, 1e-11])
@pytest.mark.parametrize("method", KINDS)
def test_a_wrong_transform_is_caught(method, noise, transforms, monkeypatch):
    """Some points are checked term by term; what errs is thrown away, and small errors are not."""
    run = plane_waves.transform

    def spoilt(*args):
        result = run(*args)
        return result + noise * np.exp(1j * np.arange(len(result)))

    monkeypatch.setattr(plane_waves, "transform", spoilt)
    exponent, u = solved(method).tilt, points(2)
    caught = noise > PROMISE
    assert (ask(exponent, u) is None) == caught
    want = term_by_term(exponent, u)
    assert np.array_equal(exponent.value(u, THREADS), want) == caught
    slope = exponent.gradient_directly(u, THREADS)[1]
    assert np.array_equal(exponent.gradient(u, THREADS)[1], slope) == caught


def test_without_its_check_a_wrong_transform_would_pass(transforms, monkeypatch):
    """Negative control of the one above."""
    run = plane_waves.transform
    monkeypatch.setattr(plane_waves, "transform", lambda *args: run(*args) + 1e-6)
    monkeypatch.setattr(plane_waves, "ALLOWED_ERROR", 1.0)
    exponent, u = solved("fd").tilt, points(2)
    gap = np.abs(exponent.value(u, THREADS) - term_by_term(exponent, u)).max()
    assert gap == pytest.approx(1e-6, rel=0.01)


# -- densities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("d", [1, 2, slow(3)])
def test_densities_are_the_same_with_and_without(d, method, transforms, monkeypatch):
    """Normaliser, log density, gradient and marginal CDF; a model each, as results are kept."""
    fast = solved(method, d, S=16)
    plain = dataclasses.replace(fast, tilt=dataclasses.replace(fast.tilt))
    y, v = points(d), np.arange(1.0, d + 1)
    places = np.linspace(-6.0, 8.0, 15)

    def results(model):
        return (
            model.log_density(y), model.grad_log_density(y), model.marginal_cdf(v, places),
            model.log_normalizer.value,
        )  # fmt: skip

    got = results(fast)
    assert len(transforms) >= 3
    ran = len(transforms)
    monkeypatch.setattr(plane_waves, "transform_is_usable", lambda d, n: False)
    want = results(plain)
    assert len(transforms) == ran
    size = max(np.abs(term_by_term(fast.tilt, y)).max(), 1.0)
    reach = max(fast.features.bandlimit.max(), 1.0)
    # log q and log Z err by 1e-9 of the exponent each; a CDF by as much, above and below
    for a, b, scale in zip(got, want, (2.0, reach, 2.0, 1.0), strict=True):
        assert np.abs(a - b).max() <= scale * PROMISE * size


def test_frames_and_units_go_through_the_transform(transforms):
    """A fitted model: scaled coordinates, the Jacobian, the caller's columns."""
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame(rows(2) * [3.0, 0.02] + [50.0, 7.0], columns=["a", "b"])
    model = fixed_fit(x, n_features=20, engine="direct")
    got = model.log_density(x)
    assert transforms
    assert isinstance(got, pandas.Series)
    u = (x.to_numpy() - model.scaling.shift) / model.scaling.scale
    want = term_by_term(model.tilt, u) + model.base.log_density(u)
    want -= np.log(model.scaling.scale).sum() + model.log_normalizer.value
    assert np.abs(got.to_numpy() - want).max() <= PROMISE * max(np.abs(want).max(), 1.0)
