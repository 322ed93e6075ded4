"""`Spectrum`: a grid filled once gives the statistics of any features below its band limit."""

import json
import re
import zipfile

import numpy as np
import pytest
from conftest import assert_statistics, doctored, slow, with_noise_bounds
from statistics_helpers import make_features

pytest.importorskip("finufft")

import tgpfast as tgp
from tgpfast import kernels
from tgpfast.data.scaling import Scaling
from tgpfast.runtime import memory
from tgpfast.statistics import chunks, spectrum
from tgpfast.statistics.spread_grid import SpreadGrid

EPS = np.finfo(np.float64).eps
LADDER = (0.0, 0.3, 0.9)
FIELDS = ("bandlimit", "low", "high", "tolerance", "grid", "n", "n_rows", "sum_w2", "sum_x",
          "sum_xx", "outside", "outside_weights")  # fmt: skip


@pytest.fixture(autouse=True)
def small_work(monkeypatch):
    """No budget from the environment; one thread unless a test asks for more."""
    monkeypatch.delenv(memory.BUDGET_VARIABLE, raising=False)
    resolve = kernels.resolve_threads
    monkeypatch.setattr(kernels, "resolve_threads", lambda m, n=None: resolve(m, n or 1))


def make_data(d, n=800, seed=1):
    x = np.random.default_rng(seed).standard_normal((n, d))
    x[: n // 3] = 0.3 * x[: n // 3] + 1.5
    return x


def make_weights(n, seed=2):
    return np.random.default_rng(seed).uniform(0.2, 3.0, n)


def direct(x, features, levels=(), **options):
    return tgp.accumulate(
        x, features, noise_levels=levels, engine="direct", precision="float64", **options
    )


def bounds(x, features, tolerance, levels=(), weights=None, origin=None, box=None):
    """Largest error of every field: that of F/n is the tolerance, and rounding adds to it.

    A sum of x phi' errs by the tolerance times the extent of the box. Moments are taken about its
    middle and moved to the origin: they round as sums of the largest terms of both.
    """
    S, d = features.frequencies.shape
    n = float(len(x)) if weights is None else float(np.sum(weights))
    point = np.zeros(d) if origin is None else np.asarray(origin)
    low, high = (x.min(axis=0), x.max(axis=0)) if box is None else map(np.asarray, box)
    middle, extent = 0.5 * (low + high), (high - low).max()
    reach = np.abs(middle - point).max() + extent
    widest = np.abs(x - middle).max() + np.abs(middle - point).max()
    size = np.abs(features.frequencies).max() * d * (reach + np.abs(point).max())
    angle = (d + 4) * EPS * (size / features.bandwidth + 2 * np.pi)
    plain = 6 * np.sqrt(len(x)) * EPS + 4 * EPS
    error, amplitude = tolerance + 2 * angle + plain, np.sqrt(2 / S)
    bound = {
        "n": n * plain, "sum_w2": 9 * n * plain, "n_rows": 0.0,
        "sum_x": n * widest * plain, "sum_xx": n * widest**2 * 4 * plain,
        "sum_phi": n * amplitude * error, "sum_dphi": n * amplitude * error,
        "sum_dphi_x": n * amplitude * (error * reach + plain * widest),
        "gram": 2 * n / S * error, "gram_phi": 2 * n / S * error,
    }  # fmt: skip
    return with_noise_bounds(bound, features, levels, n, error)


def box_of(s):
    return s.low, s.high


# -- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("d", [1, 2, slow(3)])
def test_one_grid_serves_every_choice_of_features(d, tolerance):
    """Two bandwidths, two sizes, noise levels, an origin, gram_phi, weights: one grid."""
    x, fine = make_data(d), make_features(20, d, gamma=1.2 if d == 3 else 0.7)
    for weights in (None, make_weights(len(x))):
        made = tgp.Spectrum.from_data(
            x, fine.bandlimit, sample_weight=weights, tolerance=tolerance
        )
        for features, levels, origin in (
            (fine, (), None),
            (fine, LADDER, np.full(d, 0.4)),
            (tgp.Features(fine.frequencies[:7], fine.phases[:7], 1.9), (0.5,), np.full(d, -3.0)),
        ):
            stats = made.statistics(features, levels, origin=origin, gram_phi=True)
            want = direct(
                x, features, levels, sample_weight=weights, origin=origin, gram_phi=True
            )
            bound = bounds(x, features, tolerance, levels, weights, origin, box_of(made))
            assert_statistics(stats, want, bound)
            assert stats.fingerprint == want.fingerprint
            assert stats.provenance["engine"] == "spectrum"
            assert stats.provenance["tolerance"] == tolerance
            for matrix in (stats.gram, stats.gram_phi):
                assert np.array_equal(matrix, matrix.T)
    assert made.statistics(fine).gram_phi is None
    assert made.statistics(fine).noise_gram is None


def test_comparison_catches_a_lost_row():
    """Negative control: a change of one row of 800, or of its weight, is detected."""
    x, features = make_data(2), make_features(20, 2)
    made = tgp.Spectrum.from_data(x, features.bandlimit)
    bound = bounds(x, features, 1e-9, box=box_of(made))
    assert_statistics(made.statistics(features), direct(x, features), bound)
    heavy = np.r_[np.ones(799), 1.0 + 1e-4]
    for wrong in (direct(x[1:], features), direct(x, features, sample_weight=heavy)):
        for name in ("sum_phi", "sum_dphi_x", "gram"):
            with pytest.raises(AssertionError, match=name):
                assert_statistics(made.statistics(features), wrong, {name: bound[name]})


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_outliers_are_kept_beside_the_grid(d, weighted):
    """Rows at 1e7 do not enlarge the grid; the direct engine sums them."""
    x, features = make_data(d, n=2400), make_features(12, d)
    x[[5, 700]] = 1e7
    w = make_weights(len(x)) if weighted else None
    made = tgp.Spectrum.from_data(x, features.bandlimit, sample_weight=w)
    assert 2 <= len(made.outside) <= 0.01 * len(x)
    assert max(made.shape) < 200
    kept = (x < made.low).any(axis=1) | (x > made.high).any(axis=1)
    assert np.array_equal(made.outside, x[kept])
    assert np.array_equal(made.outside_weights, np.ones(kept.sum()) if w is None else w[kept])
    stats = made.statistics(features, LADDER, gram_phi=True)
    assert stats.provenance["rows_outside"] == len(made.outside)
    want = direct(x, features, LADDER, sample_weight=w, gram_phi=True)
    assert_statistics(stats, want, bounds(x, features, 1e-9, LADDER, w, box=box_of(made)))


@pytest.mark.parametrize("x", [np.full((40, 2), 0.3), np.array([[2.0, -7.0]])])
def test_rows_without_extent(x):
    """Equal rows, or one row: the box still has some width."""
    features = make_features(12, 2)
    made = tgp.Spectrum.from_data(x, features.bandlimit)
    assert (made.low < made.high).all()
    bound = bounds(x, features, 1e-9, box=box_of(made))
    assert_statistics(made.statistics(features), direct(x, features), bound)


def test_rows_on_the_edges_of_the_box_belong_to_it():
    features = make_features(12, 2)
    x = np.array([[-1.0, -2.0], [3.0, 2.0], [-1.0, 2.0], [0.0, 0.0]])
    made = tgp.Spectrum.from_data(x, features.bandlimit, box=([-1.0, -2.0], [3.0, 2.0]))
    assert len(made.outside) == 0
    bound = bounds(x, features, 1e-9, box=box_of(made))
    assert_statistics(made.statistics(features), direct(x, features), bound)


def test_every_row_may_lie_outside():
    features, x = make_features(12, 2), make_data(2)
    made = tgp.Spectrum.from_data(x, features.bandlimit, box=([50.0, 50.0], [51.0, 51.0]))
    assert len(made.outside) == len(x)
    assert not made.grid.any()
    bound = bounds(x, features, 1e-9, box=box_of(made))
    assert_statistics(made.statistics(features), direct(x, features), bound)


def test_far_from_zero_the_origin_keeps_the_digits():
    x, features = make_data(2) + 1e6, make_features(12, 2)
    made = tgp.Spectrum.from_data(x, features.bandlimit)
    origin = x.mean(axis=0)
    stats = made.statistics(features, origin=origin)
    covariance = stats.sum_xx / stats.n - np.outer(stats.sum_x, stats.sum_x) / stats.n**2
    assert np.allclose(covariance, np.cov((x - origin).T, bias=True), rtol=1e-12, atol=1e-13)
    bound = bounds(x, features, 1e-9, origin=origin, box=box_of(made))
    assert_statistics(stats, direct(x, features, origin=origin), bound)


def test_models_from_a_spectrum():
    """Two bandwidths from one grid, as from two passes."""
    x, features = make_data(2), make_features(15, 2)
    made, base = tgp.Spectrum.from_data(x, features.bandlimit), tgp.GaussianBase.from_data(x)
    for gamma in (0.7, 1.3):
        f = tgp.Features(features.frequencies, features.phases, gamma)
        a, b = (
            tgp.solve(s, base, "fd", lam=1.0)
            for s in (made.statistics(f, origin=base.mean), direct(x, f, origin=base.mean))
        )
        z = f.frequencies
        cond = np.linalg.cond(gamma**2 * np.eye(15) + (z @ z.T) * direct(x, f).gram)
        allowed = cond * (1e-9 + 10 * EPS) * np.linalg.norm(b.theta)
        assert np.abs(a.theta - b.theta).max() <= allowed


@pytest.mark.parametrize("outliers", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_statistics_in_scaled_coordinates(d, outliers):
    """Those of (x - shift) / scale with all weights multiplied, as `fit` of a stream needs them."""
    scale, shift = np.array([2.0, 0.5, 3.0])[:d], np.array([1.0, -2.0, 7.0])[:d]
    u, w = make_data(d), make_weights(800)
    if outliers:
        u[:3] = 30.0
    x, features = u * scale + shift, make_features(12, d, gamma=1.2)
    box = (np.full(d, -4.0) * scale + shift, np.full(d, 4.0) * scale + shift)
    made = tgp.Spectrum.from_data(x, features.bandlimit / scale, box=box, sample_weight=w)
    assert (len(made.outside) >= 3) == outliers
    origin = np.full(d, 0.2)
    stats = made.scaled_statistics(
        features, LADDER, Scaling(shift, scale), origin=origin, gram_phi=True, weight=0.25
    )
    y = (x - shift) / scale
    want = direct(y, features, LADDER, sample_weight=0.25 * w, origin=origin, gram_phi=True)
    box = (np.full(d, -4.0), np.full(d, 4.0))
    assert_statistics(stats, want, bounds(y, features, 1e-9, LADDER, 0.25 * w, origin, box))
    with pytest.raises(ValueError, match="the band limit of this spectrum"):
        made.scaled_statistics(features, (), Scaling(shift, 0.5 * scale))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_moments_are_those_of_the_rows(offset):
    """Count, mean and covariance of all rows, outliers too, wherever they lie."""
    x, w = make_data(2) + offset, make_weights(800)
    x[0] += 50.0
    box = (np.full(2, offset - 3.0), np.full(2, offset + 3.0))
    moments = tgp.Spectrum.from_data(x, 4.0, box=box, sample_weight=w).moments()
    y = x - offset
    mean = w @ y / w.sum()
    covariance = np.cov(y.T, aweights=w, bias=True)
    assert np.allclose(moments.mean - offset, mean, rtol=0, atol=1e-13 + 4 * EPS * offset)
    root = np.sqrt(np.diag(covariance))
    assert np.allclose(moments.deviation, root, rtol=1e-12, atol=0)
    assert np.allclose(moments.correlation, covariance / np.outer(root, root), atol=1e-12)
    assert moments.n == pytest.approx(w.sum(), rel=1e-13)
    assert moments.n_effective == pytest.approx(w.sum() ** 2 / (w @ w), rel=1e-12)


# -- streams and sums -----------------------------------------------------------------------------


def test_streams(monkeypatch, tmp_path):
    """An iterator of unknown length is read once, and then the data are not needed."""
    x, features = make_data(2), make_features(12, 2)
    w = make_weights(len(x))
    path = tmp_path / "x.npy"
    np.save(path, x)
    box = ([-3.0, -3.0], [3.0, 3.0])
    for size in (chunks.CHUNK_NUMBERS, 2 * 130):
        monkeypatch.setattr(chunks, "CHUNK_NUMBERS", size)
        for value, weights in (
            (iter([x[:100], x[100:]]), None),
            (lambda: (x[i : i + 90] for i in range(0, 800, 90)), None),
            (np.load(path, mmap_mode="r"), None),
            (iter([(x[:300], w[:300]), (x[300:], w[300:])]), w),
        ):
            made = tgp.Spectrum.from_data(value, features.bandlimit, box=box)
            assert made.n_rows == len(x)
            stats = made.statistics(features, LADDER)
            want = direct(x, features, LADDER, sample_weight=weights)
            assert_statistics(
                stats, want, bounds(x, features, 1e-9, LADDER, weights, box=box_of(made))
            )


def test_the_box_of_a_stream_is_that_of_its_first_chunk(monkeypatch):
    """Later rows outside it are kept as they are."""
    monkeypatch.setattr(chunks, "CHUNK_NUMBERS", 2 * 100)
    x, features = make_data(2, n=300), make_features(12, 2)
    x[200:] += 40.0
    made = tgp.Spectrum.from_data(iter([x[:100], x[100:200], x[200:]]), features.bandlimit)
    assert len(made.outside) >= 100
    bound = bounds(x, features, 1e-9, box=box_of(made))
    assert_statistics(made.statistics(features), direct(x, features), bound)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_sum_of_parts_is_the_whole(d):
    x, features = make_data(d), make_features(12, d)
    x[3] = 100.0
    w = make_weights(len(x))
    box = (np.full(d, -3.0), np.full(d, 4.0))
    whole = tgp.Spectrum.from_data(x, features.bandlimit, box=box, sample_weight=w)
    parts = [
        tgp.Spectrum.from_data(x[i::3], features.bandlimit, box=box, sample_weight=w[i::3])
        for i in range(3)
    ]
    for total in (parts[0] + parts[1] + parts[2], sum(parts)):
        assert total.n_rows == whole.n_rows
        assert len(total.outside) == len(whole.outside)
        top = np.abs(whole.grid).max()
        # a node adds at most n terms, each at most the largest
        assert np.abs(total.grid - whole.grid).max() <= 6 * np.sqrt(len(x)) * EPS * top
        bound = bounds(x, features, 1e-9, LADDER, w, box=box)
        stats = total.statistics(features, LADDER)
        assert_statistics(stats, whole.statistics(features, LADDER), bound)
        assert_statistics(stats, direct(x, features, LADDER, sample_weight=w), bound)
    before = parts[0].grid.copy()
    parts[0] + parts[1]
    assert np.array_equal(parts[0].grid, before)  # adding changes neither operand


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"bandlimit": 5.0}, "bandlimit"),
        ({"box": ([-3.0, -3.0], [3.0, 4.0])}, "high"),
        ({"box": ([-4.0, -3.0], [3.0, 3.0])}, "low"),
        ({"tolerance": 1e-8}, "tolerance"),
    ],
)
def test_what_differs_is_named(change, name):
    options = {"bandlimit": 4.0, "box": ([-3.0, -3.0], [3.0, 3.0])}
    x = make_data(2)
    mine, theirs = (tgp.Spectrum.from_data(x, **o) for o in (options, options | change))
    assert (mine + mine).n_rows == 1600
    with pytest.raises(ValueError, match=rf"cannot be added: {name} is .* and .*same bandlimit="):
        mine + theirs


def test_only_spectra_are_added():
    made = tgp.Spectrum.from_data(make_data(2), 4.0)
    for other in (1, None, "a", made.statistics(make_features(3, 2, gamma=5.0))):
        with pytest.raises(TypeError):
            made + other
    with pytest.raises(TypeError):
        1 + made


def test_outliers_have_a_limit(monkeypatch):
    monkeypatch.setattr(spectrum, "MOST_OUTSIDE", 100)
    x, box = make_data(2), ([-9.0, -9.0], [9.0, 9.0])
    far = np.full((60, 2), 50.0)
    made = tgp.Spectrum.from_data(np.concatenate([x, far]), 4.0, box=box)
    with pytest.raises(ValueError, match=r"120 rows lie outside .* at most 100 .*wider box"):
        made + made
    with pytest.raises(ValueError, match="wider box"):
        tgp.Spectrum.from_data(np.concatenate([x, far, far]), 4.0, box=box)


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
def test_above_the_band_limit_the_bandwidth_that_fits_is_named(axis):
    """One axis above the limit is enough. The bandwidth that the error names works."""
    z = np.array([[1.0, 0.25], [-0.5, 1.0]])[:, :: 1 if axis == 0 else -1]
    features = tgp.Features(z, np.zeros(2), 0.5)
    x = make_data(2)
    limit = np.full(2, 8.0)
    limit[axis] = 2.0
    made = tgp.Spectrum.from_data(x, limit)
    with pytest.raises(ValueError, match="the band limit of this spectrum") as caught:
        made.statistics(features)
    text = str(caught.value)
    assert "2 times" in text
    gamma = float(re.search(r"a bandwidth of (\S+) or more", text).group(1))
    assert gamma == 1.0
    fits = tgp.Features(z, np.zeros(2), gamma)
    bound = bounds(x, fits, 1e-9, box=box_of(made))
    assert_statistics(made.statistics(fits), direct(x, fits), bound)
    wide = json.loads(re.search(r"bandlimit=(\[.*\])", text).group(1))
    again = tgp.Spectrum.from_data(x, wide)
    bound = bounds(x, features, 1e-9, box=box_of(again))
    assert_statistics(again.statistics(features), direct(x, features), bound)


def test_at_the_band_limit_itself_nothing_is_lost():
    """The highest frequency sits on the limit of every axis."""
    features = tgp.Features([[1.0, 1.0], [1.0, -1.0]], [0.3, 1.1], 0.25)
    x = make_data(2)
    made = tgp.Spectrum.from_data(x, features.bandlimit)
    assert np.array_equal(made.bandlimit, [8.0, 8.0])
    above = tgp.Features(features.frequencies, features.phases, 0.25 * (1 - 1e-6))
    with pytest.raises(ValueError, match="the band limit of this spectrum"):
        made.statistics(above)
    bound = bounds(x, features, 1e-9, box=box_of(made))
    assert_statistics(made.statistics(features), direct(x, features), bound)


def test_without_the_check_of_the_band_limit_results_are_wrong(monkeypatch):
    """Negative control: read far above the limit, F is wrong."""
    features, x = make_features(12, 2), make_data(2)
    made = tgp.Spectrum.from_data(x, features.bandlimit / 3.0)
    box = box_of(made)
    monkeypatch.setattr(
        tgp.Features, "bandlimit", property(lambda self: np.full(self.dimension, 1e-3))
    )
    stats = made.statistics(features)
    with pytest.raises(AssertionError):
        assert_statistics(stats, direct(x, features), bounds(x, features, 1e-9, box=box))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bandlimit": 0.0}, "bandlimit must be positive"),
        ({"bandlimit": -1.0}, "bandlimit must be positive"),
        ({"bandlimit": [1.0, 0.0]}, "bandlimit must be positive"),
        ({"bandlimit": [1.0, 2.0, 3.0]}, "bandlimit must be positive"),
        ({"bandlimit": [[1.0, 2.0]]}, "bandlimit must have shape"),
        ({"bandlimit": np.nan}, "bandlimit must be finite"),
        ({"bandlimit": np.inf}, "bandlimit must be finite"),
        ({"box": 5}, r"box must be a pair \(low, high\)"),
        ({"box": ([1.0, 1.0], [0.0, 2.0])}, "low below high"),
        ({"box": ([1.0, 1.0], [1.0, 2.0])}, "low below high"),
        ({"box": ([0.0], [1.0])}, "low below high"),
        ({"box": (np.zeros(3), np.ones(3))}, "low below high"),
        ({"box": ([0.0, 0.0], [1.0, np.nan])}, "box must be finite"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": np.nan}, "tolerance"),
        ({"budget": "lots"}, "amount of memory"),
        ({"budget": "10KB"}, r"a grid of \d+ x \d+ nodes would take .* budget is .*raise budget="),
        ({"bandlimit": 1e8}, "nodes would take .*lower bandlimit"),
        ({"sample_weight": np.ones(3)}, "3 entries"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        tgp.Spectrum.from_data(make_data(2), **({"bandlimit": 4.0} | options))


def test_the_budget_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv(memory.BUDGET_VARIABLE, "10KB")
    with pytest.raises(ValueError, match="the budget is"):
        tgp.Spectrum.from_data(make_data(2), 4.0)
    assert tgp.Spectrum.from_data(make_data(2), 4.0, budget="1GB").n_rows == 800


def test_bad_data():
    with pytest.raises(ValueError, match="at most 3 dimensions, X has 4"):
        tgp.Spectrum.from_data(make_data(4), 4.0)
    x = make_data(2)
    x[7, 1] = np.nan
    with pytest.raises(ValueError, match="row 7, column 1"):
        tgp.Spectrum.from_data(x, 4.0)
    with pytest.raises(ValueError, match="no rows"):
        tgp.Spectrum.from_data(iter([]), 4.0)


def test_bad_requests():
    made = tgp.Spectrum.from_data(make_data(2), 4.0)
    features = make_features(3, 2, gamma=5.0)
    with pytest.raises(TypeError, match="features must be"):
        made.statistics("features")
    with pytest.raises(ValueError, match="dimension 3, the spectrum 2"):
        made.statistics(make_features(3, 3))
    with pytest.raises(ValueError, match="not be negative"):
        made.statistics(features, (-1.0,))
    with pytest.raises(ValueError, match="origin"):
        made.statistics(features, origin=[1.0])


def test_repr_says_the_size():
    made = tgp.Spectrum.from_data(make_data(2, n=1200), 4.0, box=([-3.0, -3.0], [3.0, 3.0]))
    assert re.fullmatch(r"Spectrum\(1,200 rows, d=2, grid \d+ x \d+\)", repr(made))
    assert repr(made).endswith(f"grid {made.grid.shape[0]} x {made.grid.shape[1]})")


def test_same_threads_same_bits():
    x, features = make_data(3), make_features(12, 3)
    x = x[:, :2]
    features = tgp.Features(features.frequencies[:, :2], features.phases, 0.7)
    one, again, two = (
        tgp.Spectrum.from_data(x, features.bandlimit, n_threads=k) for k in (1, 1, 2)
    )
    assert np.array_equal(one.grid, again.grid)
    a, b = one.statistics(features, LADDER), again.statistics(features, LADDER)
    bound = bounds(x, features, 1e-9, LADDER, box=box_of(one))
    for name in bound:
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert_statistics(a, two.statistics(features, LADDER), bound)


# -- files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A spectrum with outliers, and its file."""
    x = make_data(2)
    x[:4] = 60.0
    box = ([-3.0, -3.0], [3.0, 3.0])
    made = tgp.Spectrum.from_data(x, 4.0, box=box, sample_weight=make_weights(len(x)))
    assert len(made.outside) >= 4
    path = tmp_path_factory.mktemp("spectra") / "s.npz"
    made.save(path)
    return made, path


def test_round_trip_is_exact(saved, tmp_path):
    made, path = saved
    back = tgp.load(path)
    assert isinstance(back, tgp.Spectrum)
    for name in FIELDS:
        assert np.array_equal(getattr(back, name), getattr(made, name)), name
    features = make_features(6, 2, gamma=2.5)
    a, b = made.statistics(features, LADDER), back.statistics(features, LADDER)
    bound = bounds(make_data(2), features, 1e-9, LADDER, box=box_of(made))
    assert_statistics(a, b, bound)
    assert (back + made).n_rows == 1600
    (back + made).save(tmp_path / "twice.npz")
    assert tgp.load(tmp_path / "twice.npz").n == 2 * made.n


def test_a_file_is_about_the_size_of_its_grid(saved):
    made, path = saved
    assert path.stat().st_size < made.grid.nbytes + made.outside.nbytes + 6_000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grid": None}, "lacks 'grid'"),
        ({"grid": lambda a: a[:-1]}, "do not go together"),
        ({"grid": lambda a: a.T[:, :5]}, "do not go together"),
        ({"grid": lambda a: a.astype(np.float32)}, "'grid' is float32"),
        ({"bandlimit": None}, "lacks 'bandlimit'"),
        ({"bandlimit": lambda a: -a}, "do not go together"),
        ({"bandlimit": lambda a: 2 * a}, "do not go together"),
        ({"bandlimit": lambda a: a * np.nan}, "damaged"),
        ({"bandlimit": lambda a: a[:1]}, "'low' is float64"),
        ({"low": lambda a: a + 1e3}, "do not go together"),
        ({"low": lambda a: a * np.nan}, "damaged"),
        ({"high": lambda a: a + 5.0}, "do not go together"),
        ({"sum_x": lambda a: a[:1]}, "'sum_x'"),
        ({"sum_xx": None}, "lacks 'sum_xx'"),
        ({"outside": lambda a: a[:-1]}, "'outside'"),
        ({"outside_weights": lambda a: a[:-1]}, "'outside'"),
        ({"extra": np.zeros(2)}, "do not go together"),
        ({"header.tolerance": -1.0}, "tolerance"),
        ({"header.tolerance": "fine"}, "tolerance"),
        ({"header.tolerance": 1e-3}, "do not go together"),  # another kernel, another grid
        ({"header.n": None}, "damaged"),
        ({"header.n_rows": "many"}, "damaged"),
        ({"header.version": 2}, "upgrade"),
        ({"header.kind": "statistics"}, "lacks"),
    ],
)
def test_doctored_files_are_refused(changes, words, saved, tmp_path):
    path = tmp_path / "doctored.npz"
    path.write_bytes(saved[1].read_bytes())
    doctored(path, {})
    assert tgp.load(path).n_rows == 800  # control: rewriting changes nothing
    doctored(path, changes)
    with pytest.raises(ValueError, match=words) as caught:
        tgp.load(path)
    assert "doctored.npz" in str(caught.value)


@pytest.mark.parametrize("name", ["tolerance", "n", "n_rows", "sum_w2"])
def test_a_header_that_lacks_a_fact_is_refused(name, saved, tmp_path):
    path = tmp_path / "doctored.npz"
    with np.load(saved[1]) as file:
        members = dict(file)
    header = json.loads(str(members["header"]))
    del header[name], header["checksum"]
    np.savez(path, **(members | {"header": np.array(json.dumps(header))}))
    with pytest.raises(ValueError, match=rf"doctored\.npz.*damaged.*{name}"):
        tgp.load(path)


def test_truncated_files_are_refused(saved, tmp_path):
    path, whole = tmp_path / "x.npz", saved[1].read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"x\.npz"):
            tgp.load(path)


def test_a_flipped_bit_never_gives_another_grid(saved, tmp_path):
    """Whatever byte of a member is changed, the file is refused or the spectrum is the same."""
    made, source = saved
    whole, path = source.read_bytes(), tmp_path / "flipped.npz"
    refused = 0
    for place in np.random.default_rng(0).integers(0, whole.index(b"PK\x01\x02"), 40):
        changed = bytearray(whole)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        try:
            back = tgp.load(path)
        except ValueError:
            refused += 1
        else:
            for name in FIELDS:
                assert np.array_equal(getattr(back, name), getattr(made, name)), name
    assert refused > 20


def test_no_pickles_inside(saved):
    with zipfile.ZipFile(saved[1]) as archive, np.load(saved[1], allow_pickle=False) as file:
        assert {file[name].dtype.kind for name in file.files} <= {"f", "U"}
        assert len(archive.namelist()) == 9


def test_the_bandwidth_that_an_error_names_works():
    """Rounded up, never down."""
    x = np.random.default_rng(0).standard_normal((50, 1))
    for seed in range(20):
        features = tgp.Features.draw(8, 0.3, np.eye(1), seed=seed)
        spectrum = tgp.Spectrum.from_data(x, features.bandlimit / 1.7321)
        with pytest.raises(ValueError, match="bandwidth of") as caught:
            spectrum.statistics(features)
        named = float(str(caught.value).split("a bandwidth of ")[1].split(" ")[0])
        fitting = tgp.Features(features.frequencies, features.phases, named)
        assert spectrum.statistics(fitting).n_rows == 50


def test_a_lone_outlier_stays_outside_the_box_of_few_rows():
    x = np.random.default_rng(0).standard_normal((500, 2))
    x[17] = 1e6
    spectrum = tgp.Spectrum.from_data(x, 8.0)
    assert len(spectrum.outside) >= 1
    assert max(spectrum.shape) < 500


@pytest.mark.parametrize("box", [([0.0, 0.0],), 3.0, "ab", [1, 2, 3]])
def test_a_box_must_be_a_pair(box):
    with pytest.raises((ValueError, TypeError), match="box"):
        tgp.Spectrum.from_data(np.zeros((3, 2)), 1.0, box=box)


def test_a_band_limit_must_be_a_number():
    with pytest.raises(TypeError, match="bandlimit"):
        tgp.Spectrum.from_data(np.zeros((3, 2)), "a")


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("given", ["array", "stream"])
def test_outliers_do_not_stretch_the_grid(d, given):
    """Heavy tails: the grid stays small, and the sums are right."""
    x = np.random.default_rng(0).standard_cauchy((400, d))
    features = tgp.Features.draw(20, 0.3, np.eye(d), seed=0)
    rows = x if given == "array" else iter([x[:150], x[150:]])
    found = tgp.Spectrum.from_data(rows, features.bandlimit)
    least = SpreadGrid(features.bandlimit, -np.ones(d), np.ones(d), 1e-9).nodes
    assert found.grid.size <= max(2**17, 2 * least)
    assert 0 <= len(found.outside) < 400
    got, want = found.statistics(features), tgp.accumulate(x, features, engine="direct")
    for name in ("sum_phi", "sum_dphi", "gram"):
        assert np.abs(getattr(got, name) - getattr(want, name)).max() < 1e-9 * 400
    assert got.n_rows == 400


def test_of_many_rows_few_stay_outside():
    x = np.random.default_rng(0).standard_cauchy((20_000, 1))
    found = tgp.Spectrum.from_data(x, [10.0])
    assert len(found.outside) <= 25  # 0.1 %, of boxes that are 1.25 times as wide


def test_one_outlier_far_away_is_kept_as_it_is():
    x = np.random.default_rng(0).standard_normal((500, 2))
    x[7] = [1e9, -1e9]
    found = tgp.Spectrum.from_data(x, [20.0, 20.0])
    assert len(found.outside) < 400
    assert found.grid.size < 2**18
    assert (found.outside == x[7]).all(axis=1).any()
