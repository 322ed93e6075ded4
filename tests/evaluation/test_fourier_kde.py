"""The Fourier kernel density estimate against its formula and the exact estimate."""

import tracemalloc

import numpy as np
import oracle
import pandas as pd
import pytest
from conftest import clustered_rows, set_costs
from scipy.stats import kstest

import tgpfast as tgp
from tgpfast.data.blocks import Blocks
from tgpfast.evaluation import fourier_kde
from tgpfast.evaluation.fourier_kde import TRANSFORM_TOLERANCE

EPS = np.finfo(float).eps


# -- Fourier --------------------------------------------------------------------------------------


def fourier(d=2, S=50, gamma=0.8, covariance=None, weights=None, offset=0.0, n=200):
    x = clustered_rows(d, n) + offset
    covariance = np.eye(d) + 0.3 if covariance is None else covariance
    features = tgp.Features.draw(S, gamma, covariance, seed=3)
    stats = tgp.accumulate(
        x, features, sample_weight=weights, origin=x.mean(axis=0), engine="direct"
    )
    return tgp.FourierKDE(stats), x, features


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_fourier_equals_its_formula(offset, weighted):
    """phi(y)^T (sum phi / n) |V|^(1/2) / (2 pi gamma^2)^(d/2), V the covariance of the z_s."""
    w = np.random.default_rng(0).uniform(0, 2, 200) if weighted else None
    kde, x, f = fourier(3, weights=w, offset=offset)
    y = x[:40] + 0.1
    where = (f.frequencies, f.phases, f.bandwidth)
    mean = oracle.sum_phi(x, *where, weights=w) / oracle.total_weight(x, w)
    constant = np.sqrt(np.linalg.det(f.covariance)) / (2 * np.pi * f.bandwidth**2) ** 1.5
    expected = constant * (oracle.phi(y, *where) @ mean)
    angle = np.abs(f.frequencies).sum(axis=1).max() * (offset + 10) / f.bandwidth
    # both the sums and the features see angles rounded to a few ulp; phi^T phi is at most 2
    assert np.abs(kde.density(y) - expected).max() <= 16 * EPS * angle * 2 * constant
    positive = expected > 1e-6
    got = kde.log_density(y[positive])
    assert np.allclose(got, np.log(expected[positive]), atol=32 * EPS * angle * constant / 1e-6)


@pytest.mark.slow
def test_fourier_tends_to_the_exact_estimate():
    """The kernel of frequencies with covariance V has shape gamma^2 V^-1; error 1/sqrt(S)."""
    covariance = np.array([[1.0, 0.4], [0.4, 2.0]])
    errors = []
    for S in (100, 10_000):
        x = clustered_rows(2)
        features = tgp.Features.draw(S, 0.8, covariance, seed=3)
        # sum phi alone, by the oracle: the S x S sums are not needed here
        where = (features.frequencies, features.phases, features.bandwidth)
        stats = tgp.accumulate(x, tgp.Features.draw(3, 0.8, covariance, seed=3))
        kde = tgp.FourierKDE(stats)
        kde._tilt = type(kde._tilt)(
            features, oracle.sum_phi(x, *where) / len(x), x.mean(axis=0)
        )
        exact = tgp.ExactKDE(x, bandwidth=0.8, covariance=np.linalg.inv(covariance))
        errors.append(np.abs(kde.density(x) - np.exp(exact.log_density(x))).max())
        # each term is a mean of S bounded products, of size at most 2 kernel heights
        assert errors[-1] < 5 * 2 * kde._constant / np.sqrt(S)
    assert errors[1] < 0.3 * errors[0]


def test_fourier_shows_its_negative_values():
    kde, x, _ = fourier(2, S=20)
    y = np.random.default_rng(0).normal(size=(200, 2)) * 6
    values = kde.density(y)
    assert (values < 0).any()
    with pytest.warns(RuntimeWarning, match="not positive at [0-9]+ of 200 rows.*ExactKDE"):
        logs = kde.log_density(y)
    assert np.array_equal(np.isneginf(logs), values <= 0)
    assert np.array_equal(logs[values > 0], np.log(values[values > 0]))
    assert np.isfinite(kde.log_density(x[kde.density(x) > 0])).all()  # and no warning


def test_fourier_samples_follow_its_positive_part():
    kde, x, _ = fourier(1, S=400, gamma=0.5)
    draws = kde.sample(2_000, seed=1)
    assert np.array_equal(draws, kde.sample(2_000, seed=1))
    # the draws come from a Gaussian of the mean and twice the variance: the grid covers it
    wide = np.sqrt(2 * (x.var() + 0.25 / kde.features.covariance[0, 0]))
    grid = x.mean() + wide * np.linspace(-5, 5, 4_001)
    running = np.cumsum(np.maximum(kde.density(grid), 0.0))
    running /= running[-1]
    assert kstest(draws[:, 0], lambda t: np.interp(t, grid, running)).pvalue > 1e-3
    other = x.mean() + wide * np.random.default_rng(0).standard_normal(2_000)
    assert kstest(other, lambda t: np.interp(t, grid, running)).pvalue < 1e-3


def test_fourier_errors():
    x = clustered_rows(2)
    with pytest.raises(TypeError, match=r"tgpfast\.Statistics, got ndarray"):
        tgp.FourierKDE(x)
    plain = tgp.Features(np.ones((3, 2)), np.zeros(3), 1.0)
    with pytest.raises(ValueError, match=r"Features\.draw"):
        tgp.FourierKDE(tgp.accumulate(x, plain))
    drawn = tgp.Features.draw(3, 1.0, np.eye(2), seed=0)
    with pytest.raises(ValueError, match="no rows"):
        tgp.FourierKDE(tgp.Statistics.zero(drawn))
    kde = tgp.FourierKDE(tgp.accumulate(x, drawn))
    for n in (0, True, 1.5):
        with pytest.raises(ValueError, match="n="):
            kde.sample(n)
    with pytest.raises(ValueError, match="expected 2"):
        kde.density(np.zeros((3, 1)))
    assert repr(kde).startswith("FourierKDE(Features(")


# -- Fourier, from rows ---------------------------------------------------------------------------


def drawn(S, d=2, gamma=0.8, seed=3):
    return tgp.Features.draw(S, gamma, np.eye(d) + 0.3, seed=seed)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("d", "offset"), [(1, 0.0), (2, 0.0), (2, 1e4), (3, 0.0), (5, 0.0)])
def test_from_data_equals_from_statistics(d, offset, weighted):
    """The same sums, term by term or by a transform; at most phi(y)^T phi(x) <= 2 kernel heights
    times the transform's tolerance, and rounded angles beside it."""
    x = clustered_rows(d) + offset
    w = np.random.default_rng(0).uniform(0, 2, len(x)) if weighted else None
    f = drawn(40, d)
    stats = tgp.accumulate(x, f, sample_weight=w, origin=x.mean(axis=0), engine="direct")
    expected, got = tgp.FourierKDE(stats), tgp.FourierKDE.from_data(x, f, sample_weight=w)
    y = x[:50] + 0.1
    angle = np.abs(f.frequencies).sum(axis=1).max() * (offset + 10) / f.bandwidth
    allowed = (2 * TRANSFORM_TOLERANCE + 32 * EPS * angle) * got._constant
    assert np.abs(got.density(y) - expected.density(y)).max() <= allowed
    spread = np.abs(expected._spread).max()
    # the statistics hold moments about the mean of the rows, which is not that of weighted ones
    assert np.allclose(got._spread, expected._spread, atol=1e-12 * (1 + spread))
    assert np.allclose(got._center, expected._center, rtol=1e-14, atol=1e-13)
    assert got.features is f
    assert got.dimension == d


@pytest.mark.parametrize("weighted", [False, True])
def test_from_data_by_a_transform_keeps_the_tolerance(weighted, monkeypatch):
    """Where the sums are surely a transform's, terms being dear; compared with the oracle's."""
    set_costs(monkeypatch, feature=1e-3)
    seen = []
    true = fourier_kde.accumulate_feature_means

    def spy(*args, **options):
        seen.append(true(*args, **options))
        return seen[-1]

    monkeypatch.setattr(fourier_kde, "accumulate_feature_means", spy)
    x = clustered_rows(2, 400)
    w = np.random.default_rng(0).uniform(0, 2, len(x)) if weighted else None
    f = drawn(500)
    got = tgp.FourierKDE.from_data(x, f, sample_weight=w)
    (sums,) = seen
    assert sums.provenance["engine"] == "spectral"
    assert sums.provenance["tolerance"] == TRANSFORM_TOLERANCE == 1e-10
    where = (f.frequencies, f.phases, f.bandwidth)
    mean = oracle.sum_phi(x, *where, weights=w) / oracle.total_weight(x, w)
    y = x[:30]
    expected = got._constant * (oracle.phi(y, *where) @ mean)
    assert np.abs(got.density(y) - expected).max() <= 2 * TRANSFORM_TOLERANCE * got._constant
    coarse = true(
        Blocks(x, sample_weight=w), f, x.mean(axis=0), tolerance=1e-3
    ).sum_phi / oracle.total_weight(x, w)  # negative control: a coarser transform is seen
    error = got._constant * np.abs(oracle.phi(y, *where) @ (coarse - mean)).max()
    assert error > 2 * TRANSFORM_TOLERANCE * got._constant


def test_from_data_weights_are_repetitions():
    x = clustered_rows(2, 40)
    w = np.arange(40) % 3
    f = drawn(30)
    weighted = tgp.FourierKDE.from_data(x, f, sample_weight=w)
    repeated = tgp.FourierKDE.from_data(np.repeat(x, w, axis=0), f)
    assert np.allclose(weighted.density(x), repeated.density(x), rtol=1e-11, atol=1e-13)
    plain = tgp.FourierKDE.from_data(x, f)
    assert np.abs(plain.density(x) - repeated.density(x)).max() > 1e-3  # negative control


def test_from_data_takes_whatever_can_be_read_twice(tmp_path):
    """Blocks in a list, with weights or from a callable, a frame, a file: all the same estimate."""
    x, w, f = clustered_rows(2, 90), np.linspace(0.5, 2.0, 90), drawn(30)
    np.save(tmp_path / "x.npy", x)
    expected = tgp.FourierKDE.from_data(x, f).density(x)
    blocks = [x[:20], x[20:70], x[70:]]
    frame = pd.DataFrame(x, columns=["a", "b"])
    for source in (blocks, lambda: iter(blocks), frame, tmp_path / "x.npy"):
        assert np.allclose(
            tgp.FourierKDE.from_data(source, f).density(x), expected, rtol=1e-11, atol=1e-13
        )
    weighted = tgp.FourierKDE.from_data(x, f, sample_weight=w).density(x)
    for source, weights in (
        ([(x[:20], w[:20]), (x[20:], w[20:])], None), (blocks, w),
    ):  # fmt: skip
        got = tgp.FourierKDE.from_data(source, f, sample_weight=weights).density(x)
        assert np.allclose(got, weighted, rtol=1e-11, atol=1e-13)


def test_from_data_refuses_what_can_be_read_once():
    """Before it is begun; it would be empty at the second pass."""
    x, f = clustered_rows(2, 60), drawn(10)
    stream = iter([x[:30], x[30:]])
    with pytest.raises(ValueError, match="read only once, and is read twice; pass a list"):
        tgp.FourierKDE.from_data(stream, f)
    assert len(list(stream)) == 2
    with pytest.raises(ValueError, match="read only once"):
        tgp.FourierKDE.from_data((block for block in [x]), f)


def test_from_data_errors():
    x = clustered_rows(2)
    with pytest.raises(ValueError, match="2 columns, expected 3"):
        tgp.FourierKDE.from_data(x, drawn(5, 3))
    with pytest.raises(ValueError, match=r"Features\.draw"):
        tgp.FourierKDE.from_data(x, tgp.Features(np.ones((3, 2)), np.zeros(3), 1.0))
    with pytest.raises(ValueError, match="not negative"):
        tgp.FourierKDE.from_data(x, drawn(5), sample_weight=-np.ones(len(x)))
    with pytest.raises(ValueError, match="holds nan at row 3"):
        tgp.FourierKDE.from_data(np.where(np.arange(200)[:, None] == 3, np.nan, x), drawn(5))


def test_from_data_with_many_features():
    """20,000 of them without their S x S matrix of 3.2 GB, and nearer to the exact estimate.

    phi(x)^T phi(y) is a mean of S independent terms 2 cos cos, whose variance is at most 4/2: an
    error of sqrt(2/S) kernel heights, of which five are allowed.
    """
    x = clustered_rows(2)
    gamma, covariance = 0.8, np.eye(2) + 0.3
    exact = tgp.ExactKDE(x, bandwidth=gamma, covariance=np.linalg.inv(covariance))
    y = np.array([[0.0, 0.0], [2.0, 2.8], [-1.0, 1.0], [1.0, 1.5]])
    expected = np.exp(exact.log_density(y))
    tgp.FourierKDE.from_data(x, drawn(10)).density(y)  # compiles, which takes memory of its own
    errors = {}
    for S in (200, 20_000):
        f = tgp.Features.draw(S, gamma, covariance, seed=3)
        tracemalloc.start()
        try:
            got = tgp.FourierKDE.from_data(x, f)
            values = got.density(y)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if S == 20_000:
            assert peak < S * S * 8 / 4  # blocks of a few thousand rows by S are well below this
        errors[S] = np.abs(values - expected).max()
        assert errors[S] <= 5 * np.sqrt(2 / S) * got._constant
    assert errors[20_000] < errors[200]


def test_from_data_samples_and_repr():
    """Draws repeat with their seed, and have the mean of the rows."""
    x, f = clustered_rows(1), drawn(300, 1, 0.5)
    got = tgp.FourierKDE.from_data(x, f)
    draws = got.sample(1_000, seed=1)
    assert np.array_equal(draws, got.sample(1_000, seed=1))
    assert draws.shape == (1_000, 1)
    kernel = 0.25 / f.covariance[0, 0]
    error = np.sqrt((x.var() + kernel) / 1_000)
    assert abs(draws.mean() - x.mean()) < 5 * error
    assert repr(got).startswith("FourierKDE(Features(")
