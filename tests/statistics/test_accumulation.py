"""`accumulate` against the oracle, for every backend, precision, kind of input and thread count."""

import os
import threading
import tracemalloc

import numpy as np
import pytest
import threadpoolctl
from conftest import assert_statistics, load_backend, slow
from statistics_helpers import assert_only_right_fields_pass, expected, make_features

import tgpfast as tgp
from tgpfast import kernels
from tgpfast.data.table import BLOCK_ROWS
from tgpfast.statistics import direct

EPS = np.finfo(np.float64).eps
FIELDS = ("sum_x", "sum_xx", "sum_phi", "sum_dphi", "sum_dphi_x", "gram", "gram_phi", "noise_gram",
          "noise_sum_phi", "noise_sum_dphi", "noise_sum_dphi_x")  # fmt: skip


@pytest.fixture(params=["numpy", "numba", "cython"])
def backend(request):
    chosen = os.environ.get("TGPFAST_BACKEND")
    if chosen and chosen != request.param:
        # CI runs this file once a backend; the parameter then only repeats what "auto" resolves to
        return "auto"
    return load_backend(request.param).NAME


def make_data(n, d, seed=1, offset=0.0):
    return np.random.default_rng(seed).standard_normal((n, d)) + offset


def bounds(x, features, precision, levels=(), weights=None, origin=None):
    """Largest error of every field that the arithmetic allows.

    A feature errs by the rounding of its angle, a sum of d + 2 terms of size |z| |x| / gamma + |c|,
    taken about the origin (so |origin| adds to the size), plus that of sine or cosine. A sum of n
    rounded terms then adds sqrt(n) units at six standard deviations (Higham and Mary 2019): float32
    products are summed in float32 over at most 2,048 rows here, everything else in float64.
    """
    S, d = features.frequencies.shape
    w = np.ones(len(x)) if weights is None else np.asarray(weights, float)
    n = w.sum()
    point = np.zeros(d) if origin is None else origin
    size = d * (np.abs(x - point).max() + np.abs(point).max()) / features.bandwidth
    angle = (d + 4) * EPS * (np.abs(features.frequencies).max() * size + 2 * np.pi)
    unit = EPS if precision == "float64" else 2.0**-23
    value = angle + 2 * unit
    rows = len(x) if precision == "float64" else min(len(x), 2048)
    product = 2 * value + 6 * np.sqrt(rows) * unit + 6 * np.sqrt(len(x)) * EPS
    single = value + 6 * np.sqrt(len(x)) * EPS
    centred = np.abs(x - point).max()
    plain = 6 * np.sqrt(len(x)) * EPS + 4 * EPS
    amplitude = np.sqrt(2 / S)
    bound = {
        "sum_x": n * centred * plain, "sum_xx": n * centred**2 * 2 * plain,
        "sum_phi": n * amplitude * single, "sum_dphi": n * amplitude * single,
        "sum_dphi_x": n * amplitude * centred * (single + plain),
        "gram": n * amplitude**2 * product, "gram_phi": n * amplitude**2 * product,
    }  # fmt: skip
    if len(levels):
        # each level adds Phi' and Phi with weights at most 1 / gamma_sigma^2; a Delta errs by a few
        # units and by that of its exponent, |u|^2 at most |z|^2
        scale = np.sum(1.0 / (features.bandwidth**2 + np.square(levels)))
        delta = (d + 8) * EPS * (1 + np.square(features.frequencies).sum(axis=1).max())
        bound["noise_gram"] = n * amplitude**2 * scale * (2 * product + 2 * delta)
        for name in ("sum_phi", "sum_dphi", "sum_dphi_x"):
            bound[f"noise_{name}"] = bound[name]
    return bound


@pytest.mark.parametrize("precision", ["float64", "mixed"])
@pytest.mark.parametrize(
    ("n", "S", "d"), [(1, 7, 1), (40, 1, 2), (700, 33, 3), slow(3000, 48, 10), slow(513, 130, 4)]
)
def test_equals_the_oracle(backend, precision, n, S, d):
    features, x = make_features(S, d), make_data(n, d)
    levels, origin = (0.0, 0.4, 1.1), np.full(d, 0.3)
    w = np.random.default_rng(2).uniform(0.0, 3.0, n)
    w[: n // 3] = 0.0
    for weights in (None, w):
        stats = tgp.accumulate(
            x, features, noise_levels=levels, sample_weight=weights, origin=origin, gram_phi=True,
            precision=precision, backend=backend,
        )  # fmt: skip
        want = expected(x, features, levels, weights, origin)
        assert_statistics(stats, want, bounds(x, features, precision, levels, weights, origin))
        total = n if weights is None else w.sum()
        assert stats.n == pytest.approx(total, rel=1e-13)
        assert stats.n_rows == n
        assert stats.sum_w2 == pytest.approx(n if weights is None else (w**2).sum(), rel=1e-13)
        for matrix in (stats.gram, stats.gram_phi, stats.noise_gram):
            assert np.array_equal(matrix, matrix.T)


@pytest.mark.parametrize("precision", ["float64", "mixed"])
def test_tiles_equal_the_oracle(backend, precision, monkeypatch):
    """Above LANE_FEATURES other kernels run; the limit is lowered to keep the test small."""
    monkeypatch.setattr(direct, "LANE_FEATURES", 20)
    monkeypatch.setattr(direct, "GRAM_TILE", 16)
    monkeypatch.setattr(direct, "TILE_ROWS", 200)
    features, x = make_features(45, 3), make_data(777, 3)
    levels, w = (0.0, 0.5), np.random.default_rng(3).uniform(0.5, 2.0, 777)
    stats = tgp.accumulate(
        x, features, noise_levels=levels, sample_weight=w, gram_phi=True, precision=precision,
        backend=backend,
    )  # fmt: skip
    assert_statistics(
        stats, expected(x, features, levels, w), bounds(x, features, precision, levels, w)
    )


def test_the_real_limit_between_lanes_and_tiles(backend):
    """One feature more than LANE_FEATURES: the first S columns must agree across the two shapes."""
    S = direct.LANE_FEATURES
    wide, x = make_features(S + 1, 2), make_data(300, 2)
    narrow = tgp.Features(wide.frequencies[:S], wide.phases[:S], wide.bandwidth)
    a = tgp.accumulate(x, wide, precision="float64", backend=backend)
    b = tgp.accumulate(x, narrow, precision="float64", backend=backend)
    scale = S / (S + 1)
    bound = bounds(x, narrow, "float64")["gram"]
    assert np.abs(a.gram[:S, :S] - b.gram * scale).max() <= 2 * bound


def test_comparison_catches_a_wrong_field(backend):
    """Negative control: the bounds are tight enough to see a lost row, weight, origin or level."""
    features, x = make_features(9, 2), make_data(50, 2)
    bound = bounds(x, features, "float64", (0.3,))
    stats = tgp.accumulate(
        x, features, noise_levels=(0.3,), gram_phi=True, backend=backend, precision="float64"
    )
    assert_only_right_fields_pass(stats, x, features, bound)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64", "mixed"])
def test_bit_identical_for_any_thread_count(backend, precision, monkeypatch):
    features, x = make_features(40, 3), make_data(5000, 3)
    w = np.random.default_rng(4).uniform(0.1, 1.0, len(x))
    runs = {}
    for limit in (direct.LANE_FEATURES, 10):  # lanes, then tiles
        monkeypatch.setattr(direct, "LANE_FEATURES", limit)
        for n_threads in (1, 2, None, 64, 2, 1):
            stats = tgp.accumulate(
                x, features, noise_levels=(0.0, 0.5), sample_weight=w, gram_phi=True,
                n_threads=n_threads, precision=precision, backend=backend,
            )  # fmt: skip
            first = runs.setdefault(limit, stats)
            for name in FIELDS:
                assert np.array_equal(getattr(stats, name), getattr(first, name)), name
        assert stats.provenance["threads"] == 1


@pytest.mark.slow
def test_backends_agree(monkeypatch):
    features, x = make_features(60, 5), make_data(2000, 5)
    names = kernels.available()
    for precision in ("float64", "mixed"):
        bound = bounds(x, features, precision, (0.5,))
        runs = [
            tgp.accumulate(
                x, features, noise_levels=(0.5,), gram_phi=True, backend=b, precision=precision
            )
            for b in names
        ]
        for stats in runs:
            for name in FIELDS:
                gap = np.abs(getattr(stats, name) - getattr(runs[0], name)).max()
                assert gap <= 2 * bound[name], name
        assert [s.provenance["backend"] for s in runs] == names


def test_far_from_the_origin_needs_an_origin(backend):
    """At an offset of 1e7 raw moments cancel; about an origin they keep their digits."""
    x = make_data(4000, 2, offset=1e7)
    origin = x.mean(axis=0)
    features = make_features(5, 2)
    stats = tgp.accumulate(x, features, origin=origin, backend=backend, precision="float64")
    centred = x - origin
    covariance = stats.sum_xx / stats.n - np.outer(stats.sum_x, stats.sum_x) / stats.n**2
    assert np.allclose(covariance, np.cov(centred.T, bias=True), rtol=1e-9, atol=1e-12)
    raw = tgp.accumulate(x, features, backend=backend, precision="float64")
    spoilt = raw.sum_xx / raw.n - np.outer(raw.sum_x, raw.sum_x) / raw.n**2
    assert not np.allclose(spoilt, np.cov(centred.T, bias=True), rtol=1e-3)


# -- kinds of input -------------------------------------------------------------------------------


def assert_same(a, b, kind=""):
    for name in ("n", "n_rows", "sum_w2", *FIELDS):
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None and y is None) or np.array_equal(x, y), f"{kind} {name}"


@pytest.mark.slow
def test_every_kind_of_array_gives_the_same_bits(backend, tmp_path):
    features, x = make_features(12, 3), make_data(40_000, 3).astype(np.float32).astype(float)
    want = tgp.accumulate(x, features, backend=backend, precision="float64")
    path = tmp_path / "x.npy"
    np.save(path, x)
    read_only = x.copy()
    read_only.setflags(write=False)
    kinds = {
        "memmap": np.load(path, mmap_mode="r"), "read-only": read_only,
        "fortran": np.asfortranarray(x), "strided": np.repeat(x, 2, axis=0)[::2],
        "reversed twice": x[::-1][::-1], "float32": x.astype(np.float32),
        "big-endian": x.astype(">f8"), "blocks": iter([x[:16_384], x[16_384:32_768], x[32_768:]]),
        "callable": lambda: iter([x[:32_768], x[32_768:]]),
        "list of blocks": [x[:32_768], x[32_768:]],
    }  # fmt: skip
    for kind, value in kinds.items():
        got = tgp.accumulate(value, features, backend=backend, precision="float64")
        assert_same(got, want, kind)


def test_integers_bools_and_one_dimension(backend):
    features = make_features(5, 1)
    x = np.array([0, 1, 1, 0, 1])
    want = tgp.accumulate(x.astype(float)[:, None], features, backend=backend)
    for value in (x, x.astype(bool), x.tolist(), x.astype(np.uint8), x.astype(np.float16)):
        assert_same(tgp.accumulate(value, features, backend=backend), want)


def test_weights_are_repetitions(backend):
    features, x = make_features(20, 2), make_data(500, 2)
    counts = np.random.default_rng(5).integers(0, 4, 500)
    weighted = tgp.accumulate(
        x, features, sample_weight=counts, noise_levels=(0.0, 0.3), gram_phi=True, backend=backend,
        precision="float64",
    )  # fmt: skip
    repeated = tgp.accumulate(
        np.repeat(x, counts, axis=0), features, noise_levels=(0.0, 0.3), gram_phi=True,
        backend=backend, precision="float64",
    )  # fmt: skip
    assert weighted.n == repeated.n == counts.sum()
    bound = bounds(x, features, "float64", (0.0, 0.3), counts)
    for name in FIELDS:
        gap = np.abs(getattr(weighted, name) - getattr(repeated, name)).max()
        assert gap <= 3 * bound[name], name


def test_weights_of_a_stream(backend):
    features, x = make_features(6, 2), make_data(100, 2)
    w = np.random.default_rng(6).uniform(size=100)
    want = tgp.accumulate(x, features, sample_weight=w, backend=backend)
    got = tgp.accumulate(iter([x]), features, sample_weight=w, backend=backend)
    assert_same(got, want)
    assert_same(tgp.accumulate(iter([(x, w)]), features, backend=backend), want)


def test_empty_blocks_of_a_stream_are_skipped(backend):
    features, x = make_features(6, 2), make_data(10, 2)
    got = tgp.accumulate(iter([x[:0], x, x[:0]]), features, backend=backend)
    assert_same(got, tgp.accumulate(x, features, backend=backend))


def traced_peak(x, features):
    tracemalloc.start()
    try:
        tgp.accumulate(x, features, precision="float64")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_does_not_grow_with_rows(tmp_path):
    """A pass over a memmap needs the memory of a pass over few rows, plus the blocks that are read
    ahead. The bound allows as many as can wait, since timing decides how many do."""
    features, n = make_features(20, 4), 800_000
    np.save(tmp_path / "x.npy", make_data(n, 4).astype(np.float32))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    few = np.array(x[: 2 * BLOCK_ROWS], dtype=np.float64)
    traced_peak(few, features)  # caches filled by the first pass are not counted
    block = BLOCK_ROWS * 4 * 8
    waiting = 8 + 2  # MOST_DEPTH, one in use, and one that is about to be freed
    bound = traced_peak(few, features) + waiting * block + 100_000
    assert bound < n * 4 * 4  # fewer bytes than the data as float32: holding them would fail
    assert traced_peak(x, features) < bound


# -- threads --------------------------------------------------------------------------------------


def blas_threads():
    """Thread count of each BLAS in the process."""
    info = threadpoolctl.threadpool_info()
    return [library["num_threads"] for library in info if library["user_api"] == "blas"]


def test_blas_threads_are_held_and_restored(backend):
    before, seen = blas_threads(), []
    assert before, "no BLAS thread control found: the hold cannot be tested"

    def blocks():
        seen.append(blas_threads())
        yield make_data(300, 2)

    tgp.accumulate(blocks(), make_features(4, 2), backend=backend)
    assert seen == [[1] * len(before)]
    assert blas_threads() == before
    with pytest.raises(ValueError, match="row 0"):
        tgp.accumulate([np.full((1, 2), np.nan)], make_features(4, 2), backend=backend)
    assert blas_threads() == before


def test_concurrent_passes_restore_blas_once_all_are_done():
    backend = kernels.load().NAME
    before = blas_threads()
    features, x = make_features(30, 2), make_data(2000, 2)
    want = tgp.accumulate(x, features, backend=backend)
    results = []
    workers = [
        threading.Thread(
            target=lambda: results.append(tgp.accumulate(x, features, backend=backend))
        )
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 4
    for got in results:
        assert_same(got, want)
    assert blas_threads() == before


@pytest.mark.slow
def test_numba_threads_are_restored():
    load_backend("numba")
    import numba

    before = numba.get_num_threads()
    tgp.accumulate(make_data(10, 2), make_features(4, 2), backend="numba", n_threads=1)
    assert numba.get_num_threads() == before


@pytest.mark.parametrize("bad", [0, -1, 1.5, "2", True])
def test_bad_thread_counts(bad):
    with pytest.raises(ValueError, match="n_threads"):
        tgp.accumulate(make_data(10, 2), make_features(4, 2), n_threads=bad)


# -- bad input ------------------------------------------------------------------------------------


class Marker:
    def __array__(self, dtype=None, copy=None):
        return np.array([["a", "b"]])


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (np.zeros((3, 4)), ValueError, "4 columns, expected 2"),
        (np.zeros(2), ValueError, r"shape \(1, 2\)"),
        (np.zeros((2, 2, 2)), ValueError, "two dimensions"),
        (np.float64(1.0), ValueError, "two dimensions"),
        (np.zeros((0, 2)), ValueError, "no rows"),
        (np.zeros((3, 0)), ValueError, "no columns"),
        ([], ValueError, "no rows|columns"),
        (iter([]), ValueError, "no rows"),
        (np.array([[1.0, 2.0], [np.nan, 0.0]]), ValueError, "nan at row 1, column 0"),
        (np.array([[1.0, np.inf]]), ValueError, "inf at row 0, column 1"),
        (np.array([[1.0, -np.inf]]), ValueError, "-inf at row 0, column 1"),
        (np.ma.masked_array(np.zeros((2, 2)), mask=[[0, 1], [0, 0]]), TypeError, "masked"),
        (np.zeros((2, 2), complex), TypeError, "complex"),
        (np.zeros((2, 2), object), TypeError, "object"),
        (np.zeros((2, 2), "U3"), TypeError, "real numbers"),
        (np.zeros((2, 2), "M8[s]"), TypeError, "datetime"),
        ([[1.0, 2.0], [3.0]], ValueError, "table"),
        ("data.csv", FileNotFoundError, "data.csv"),
        (None, TypeError, "NoneType"),
        ({"a": [1.0]}, TypeError, "dict"),
        (Marker(), TypeError, "real numbers"),
        (iter([np.zeros((2, 2)), np.zeros((2, 3))]), ValueError, "block 1 of X has 3 columns"),
        (iter([np.zeros((2, 2)), np.full((1, 2), np.nan)]), ValueError, "row 2"),
        (iter([(np.zeros((2, 2)),) * 3]), ValueError, "tuple of 3"),
        (3, ValueError, "two dimensions"),
    ],
)
def test_bad_rows(x, error, words):
    with pytest.raises(error, match=words):
        tgp.accumulate(x, make_features(4, 2))


def test_nan_deep_in_a_memmap_names_its_row(tmp_path):
    x = make_data(50_000, 2)
    x[43_210, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(ValueError, match="nan at row 43210, column 1"):
        tgp.accumulate(np.load(tmp_path / "x.npy", mmap_mode="r"), make_features(4, 2))


def test_large_values_are_not_called_infinite(backend):
    x = np.full((4, 2), 1e150) * [1.0, 1e-150]
    features = tgp.Features(np.ones((3, 2)), np.zeros(3), 1e140)
    stats = tgp.accumulate(x, features, backend=backend)
    assert stats.sum_xx[0, 0] == pytest.approx(4e300)
    x[:, 0] = 1.5e308
    with pytest.raises(ValueError, match="squares of column 0 overflows; scale"):
        tgp.accumulate(x, features, backend=backend)
    assert tgp.accumulate(x, features, backend=backend, origin=[1.5e308, 0.0]).sum_xx[0, 0] == 0.0


def test_features_that_overflow_are_an_error(backend):
    features = tgp.Features(np.full((3, 1), 9.0), np.zeros(3), 1e-3)
    with pytest.raises(ValueError, match="bandwidth overflows"):
        tgp.accumulate(np.full((4, 1), 1e308), features, backend=backend)


@pytest.mark.parametrize(
    ("w", "error", "words"),
    [
        (np.array([1.0, -1.0, 1.0]), ValueError, "-1.0 at row 1"),
        (np.array([1.0, np.nan, 1.0]), ValueError, "nan at row 1"),
        (np.array([1.0, np.inf, 1.0]), ValueError, "inf at row 1"),
        (np.ones(2), ValueError, "2 entries, but X has 3 rows"),
        (np.ones((3, 1)), ValueError, "one dimension"),
        (np.zeros(3), ValueError, "all zero"),
        (np.ones(3, complex), TypeError, "complex"),
        (np.ma.masked_array(np.ones(3)), TypeError, "real numbers"),
        (["a", "b", "c"], TypeError, "real numbers"),
    ],
)
def test_bad_weights(w, error, words):
    with pytest.raises(error, match=words):
        tgp.accumulate(make_data(3, 2), make_features(4, 2), sample_weight=w)


def test_bad_weights_of_a_stream():
    features, x = make_features(4, 2), make_data(3, 2)
    with pytest.raises(ValueError, match="5 entries, but X has 3 rows"):
        tgp.accumulate(iter([x]), features, sample_weight=np.ones(5))
    with pytest.raises(ValueError, match="more rows"):
        tgp.accumulate(iter([x, x]), features, sample_weight=np.ones(5))
    with pytest.raises(ValueError, match="as well"):
        tgp.accumulate(iter([(x, np.ones(3))]), features, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match="all zero"):
        tgp.accumulate(iter([(x, np.zeros(3))]), features)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"engine": "fast"}, ValueError, "engine='fast'"),
        ({"precision": "float16"}, ValueError, "precision='float16'"),
        ({"backend": "cuda"}, ValueError, "backend='cuda'"),
        ({"tolerance": 0.0}, ValueError, "tolerance"),
        ({"noise_levels": [-1.0]}, ValueError, "negative"),
        ({"noise_levels": [0.1, 0.1]}, ValueError, "distinct"),
        ({"noise_levels": [np.nan]}, ValueError, "finite"),
        ({"noise_levels": ["a"]}, TypeError, "real numbers"),
        ({"origin": np.zeros(3)}, ValueError, "origin"),
        ({"origin": [np.inf, 0.0]}, ValueError, "origin"),
    ],
)
def test_bad_options(options, error, words):
    with pytest.raises(error, match=words):
        tgp.accumulate(make_data(3, 2), make_features(4, 2), **options)


def test_features_of_another_kind():
    with pytest.raises(TypeError, match="Features"):
        tgp.accumulate(make_data(3, 2), "features")


def test_too_many_features_says_how_much_memory(monkeypatch):
    features = tgp.Features(np.ones((300_000, 1)), np.zeros(300_000), 1.0)
    read = []

    def blocks():
        read.append(1)
        yield np.zeros((1, 1))

    with pytest.raises(ValueError, match=r"300,000 features would take [\d.]+ GiB") as caught:
        tgp.accumulate(blocks(), features)
    assert "available" in str(caught.value)
    assert not read, "the data were touched before the check"


def test_statistics_survive_a_failed_pass():
    features, x = make_features(4, 2), make_data(30, 2)
    stats = tgp.accumulate(x, features)
    before = stats.gram.copy()
    with pytest.raises(ValueError, match="nan"):
        stats + tgp.accumulate([x, np.full((1, 2), np.nan)], features)
    assert np.array_equal(stats.gram, before)
    with pytest.raises(ValueError, match="read-only"):
        stats.gram[0, 0] = 1.0


def test_progress_bar_on_request(capsys):
    features, x = make_features(4, 2), make_data(30_000, 2)
    tgp.accumulate(x, features)
    assert capsys.readouterr().err == ""
    tgp.accumulate(x, features, progress=True)
    assert "100%" in capsys.readouterr().err
    tgp.accumulate(iter([x]), features, progress=True)
    assert "30000 rows" in capsys.readouterr().err


def test_gram_phi_is_true_or_false():
    for value in (None, 1, "yes"):
        with pytest.raises(TypeError, match=r"gram_phi=.*: expected True or False"):
            tgp.accumulate(make_data(10, 2), make_features(4, 2), gram_phi=value)


def test_a_memoryview_is_taken_as_an_array():
    x, features = make_data(50, 2), make_features(4, 2)
    assert_same(tgp.accumulate(memoryview(x), features), tgp.accumulate(x, features))
