"""The spectral engine against the direct one and the oracle: every field, to the tolerance."""

import importlib.util
import sys
import warnings

import numpy as np
import pytest
from conftest import assert_statistics, set_costs, slow, with_noise_bounds
from statistics_helpers import assert_only_right_fields_pass, expected, make_features

pytest.importorskip("finufft")

import tgpfast as tgp
from tgpfast import kernels
from tgpfast.data.blocks import Blocks
from tgpfast.density.exponents.exponent import PointTilt
from tgpfast.runtime import memory
from tgpfast.statistics import chunks, costs, spectral, transforms
from tgpfast.statistics.fourier_sums import FourierSums, bandwidths_of
from tgpfast.statistics.spectral_work import SpectralWork
from tgpfast.statistics.spread_grid import GridFiller, SpreadGrid

EPS = np.finfo(np.float64).eps
FAR = 2.0**40  # coordinate of the distant row of "one far": about 1e12
LADDER = tuple(np.linspace(0.0, 1.2, 10))


@pytest.fixture(autouse=True)
def small_work(monkeypatch):
    """No budget from the environment; one thread unless a test asks for more."""
    monkeypatch.delenv(memory.BUDGET_VARIABLE, raising=False)
    resolve = kernels.resolve_threads
    monkeypatch.setattr(kernels, "resolve_threads", lambda m, n=None: resolve(m, n or 1))


def exact_features(S, d):
    """Frequencies and phases of few bits, a bandwidth of one: angles at FAR are exact, in whatever
    order a backend adds them up, and so comparisons mean something there."""
    features = make_features(S, d)
    z, c = (np.round(part * 256) / 256 for part in (features.frequencies, features.phases))
    return tgp.Features(z, c, 0.5)


KINDS = ("normal", "skewed", "clustered", "lattice", "cauchy", "one far", "all equal", "one row",
         "few rows", "far offset")  # fmt: skip


def make_data(kind, d, n=600, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    if kind == "skewed":
        return np.exp(x)
    if kind == "clustered":
        return 0.01 * x + rng.integers(0, 3, (n, 1)) * 1.5
    if kind == "lattice":
        return 0.25 * rng.integers(0, 6, (n, d))
    if kind == "cauchy":
        return rng.standard_cauchy((n, d))
    if kind == "one far":
        return np.concatenate([x[1:], np.full((1, d), FAR)])
    if kind == "all equal":
        return np.full((n, d), 0.3)
    if kind == "one row":
        return np.full((1, d), -1.7)
    if kind == "few rows":
        return x[:2]  # a tenth of the features
    return x + 1e4 if kind == "far offset" else x


def make_weights(n, seed=2):
    w = np.random.default_rng(seed).uniform(0.0, 3.0, n)
    w[: n // 4] = 0.0
    w[n // 2] = 1.5  # a single row needs a weight above zero
    return w


def direct(x, features, **options):
    return tgp.accumulate(x, features, engine="direct", precision="float64", **options)


def by_transform(x, features, **options):
    return tgp.accumulate(x, features, engine="spectral", **options)


def bounds(x, features, tolerance, levels=(), weights=None, origin=None, far=FAR):
    """Largest error of every field: that of F/n is the tolerance, and rounding adds to it.

    Rounding as in the tests of the direct engine: an angle is a sum of d + 2 terms of size
    |z| |x| / gamma, at most twice that for a pair, and a sum of n terms errs by six sqrt(n) units.
    A sum of x phi' errs by the tolerance times the extent of the rows that are transformed; rows
    at ``far`` are not among them, and only their rounding counts.
    """
    S, d = features.frequencies.shape
    n = float(len(x)) if weights is None else float(np.sum(weights))
    point = np.zeros(d) if origin is None else np.asarray(origin)
    near = x[np.abs(x).max(axis=1) < far]
    reach, widest = np.abs(near - point).max(), np.abs(x - point).max()
    angle = (d + 4) * EPS * (
        np.abs(features.frequencies).max() * d * (reach + np.abs(near).max()) / features.bandwidth
        + 2 * np.pi
    )
    plain = 6 * np.sqrt(len(x)) * EPS + 4 * EPS
    error, amplitude = tolerance + 2 * angle + plain, np.sqrt(2 / S)
    x_error = n * amplitude * error * (reach + np.ptp(near, axis=0).max())
    bound = {
        "n": n * plain, "sum_w2": 9 * n * plain, "n_rows": 0.0,
        "sum_x": n * widest * plain, "sum_xx": n * widest**2 * 2 * plain,
        "sum_phi": n * amplitude * error, "sum_dphi": n * amplitude * error,
        "sum_dphi_x": x_error + amplitude * widest * plain * n,
        "gram": 2 * n / S * error, "gram_phi": 2 * n / S * error,
    }  # fmt: skip
    return with_noise_bounds(bound, features, levels, n, error)


# -- every field ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("d", [1, 2, slow(3)])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_direct_engine(kind, d, tolerance):
    """Every field, for every kind of data; weights and an origin in turn."""
    x, features, levels = make_data(kind, d), make_features(20, d), (0.0, 0.5)
    origin = None if d == 2 else x.mean(axis=0) + 0.3
    if kind == "one far":
        features, levels = exact_features(20, d), (0.0, np.sqrt(0.75))  # 0.5 and 1
        origin = None if d == 2 else np.full(d, 0.25)
    for weights in (None, make_weights(len(x))):
        options = {
            "sample_weight": weights, "origin": origin, "gram_phi": True, "noise_levels": levels
        }
        stats = by_transform(x, features, tolerance=tolerance, **options)
        bound = bounds(x, features, tolerance, levels, weights, origin)
        assert_statistics(stats, direct(x, features, **options), bound)
        assert stats.provenance["engine"] == "spectral"
        assert stats.provenance["tolerance"] == tolerance
        assert stats.provenance["precision"] == "float64"
        for matrix in (stats.gram, stats.gram_phi, stats.noise_gram):
            assert np.array_equal(matrix, matrix.T)


@pytest.mark.parametrize("tolerance", [1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize(
    ("d", "S", "levels"), [(1, 40, (0.0,)), (2, 8, LADDER), slow(3, 8, LADDER)]
)
def test_equals_the_oracle(d, S, levels, tolerance):
    x, features = make_data("normal", d, n=250), make_features(S, d)
    origin = np.full(d, 0.3)
    for weights in (None, make_weights(len(x))):
        stats = by_transform(
            x, features, noise_levels=levels, sample_weight=weights, origin=origin, gram_phi=True,
            tolerance=tolerance,
        )  # fmt: skip
        want = expected(x, features, levels, weights, origin)
        assert_statistics(stats, want, bounds(x, features, tolerance, levels, weights, origin))


def test_levels_in_any_order_and_none_of_them_zero():
    x, features = make_data("normal", 2), make_features(20, 2)
    for levels in ((0.8, 0.0, 0.3), (0.4,), (0.0,)):
        stats = by_transform(x, features, noise_levels=levels)
        want = direct(x, features, noise_levels=levels)
        assert_statistics(stats, want, bounds(x, features, 1e-9, levels))
        assert stats.gram_phi is None


def test_one_feature_has_no_pairs():
    x, features = make_data("normal", 2), make_features(1, 2)
    stats = by_transform(x, features, noise_levels=(0.0, 0.5), gram_phi=True)
    want = direct(x, features, noise_levels=(0.0, 0.5), gram_phi=True)
    assert_statistics(stats, want, bounds(x, features, 1e-9, (0.0, 0.5)))


def test_comparison_catches_a_wrong_field():
    """Negative control: a lost row, weight, origin or level is seen at the tolerance."""
    features, x = make_features(9, 2), make_data("normal", 2, n=50)
    bound = bounds(x, features, 1e-12, (0.3,))
    stats = by_transform(x, features, noise_levels=(0.3,), gram_phi=True, tolerance=1e-12)
    assert_only_right_fields_pass(stats, x, features, bound)


def test_errors_above_the_tolerance_fail(monkeypatch):
    """Negative control: transforms that err by more than the tolerance are detected."""
    features, x = make_features(9, 2), make_data("normal", 2, n=50)
    run = SpreadGrid.sums

    def spoilt(*args):
        F, G = run(*args)
        return F + 3e-9 * 50 * np.exp(1j * np.arange(len(F))), G

    monkeypatch.setattr(SpreadGrid, "sums", spoilt)
    stats = by_transform(x, features, tolerance=1e-9)
    with pytest.raises(AssertionError, match="error"):
        assert_statistics(stats, direct(x, features), bounds(x, features, 1e-9))


def test_a_distant_row_is_summed_by_the_direct_engine():
    """The error does not depend on its distance."""
    features, x = exact_features(20, 2), make_data("one far", 2, n=3000)
    stats = by_transform(x, features)
    assert 1 <= stats.provenance["rows_outside"] <= 0.2 * len(x)
    near = x[:-1]
    gap = stats.gram - direct(x[-1:], features).gram - direct(near, features).gram
    assert np.abs(gap).max() <= bounds(near, features, 1e-9)["gram"]
    assert stats.sum_xx[0, 0] >= FAR**2  # moments are of every row


def test_rows_outside_are_none_where_the_grid_is_small():
    x, features = make_data("lattice", 1), make_features(20, 1)
    assert by_transform(x, features).provenance["rows_outside"] == 0


@pytest.mark.parametrize("d", [1, 2, 3])
def test_densities_of_both_engines_agree(d):
    """An error e of F/n moves a log density by about cond * e."""
    x, features = make_data("clustered", d) + make_data("normal", d), make_features(30, d)
    base = tgp.GaussianBase.from_data(x)
    tolerance = 1e-9
    fine, fast = (
        tgp.solve(run(x, features, origin=base.mean), base, "fd", lam=1.0)
        for run in (direct, by_transform)
    )
    y = np.concatenate([x[:200], base.sample(200, seed=0)])
    z = features.frequencies
    matrix = features.bandwidth**2 * np.eye(30) + (z @ z.T) * direct(x, features).gram
    cond = np.linalg.cond(matrix)
    a, b = (m.log_density(y, normalized=False) for m in (fine, fast))
    tilt = PointTilt(features, fine.theta, base.mean).value(y, fine.threads)
    allowed = cond * (tolerance + 10 * EPS)
    assert np.abs(a - b).max() <= allowed * max(1.0, np.abs(tilt).max())
    assert np.abs(fine.theta - fast.theta).max() <= allowed * np.linalg.norm(fine.theta)
    rough = tgp.solve(
        by_transform(x, features, origin=base.mean, tolerance=1e-2), base, "fd", lam=1.0
    )
    assert np.abs(rough.theta - fine.theta).max() > np.abs(fast.theta - fine.theta).max()


# -- input ----------------------------------------------------------------------------------------


def test_every_kind_of_input(tmp_path, monkeypatch):
    """Streams of unknown length, callables, memmaps: the same within the tolerance."""
    features = make_features(12, 2)
    x = make_data("normal", 2, n=1000).astype(np.float32).astype(float)
    w = make_weights(1000)
    path = tmp_path / "x.npy"
    np.save(path, x.astype(np.float32))
    cuts = [x[:300], x[300:310], x[310:]]
    pairs = [(x[:300], w[:300]), (x[300:], w[300:])]
    kinds = {
        "memmap": (np.load(path, mmap_mode="r"), None), "iterator": (iter(cuts), None),
        "generator": ((part for part in cuts), None), "callable": (lambda: iter(cuts), None),
        "list": (cuts, None), "pairs": (iter(pairs), w), "empty blocks": ([x[:0], x, x[:0]], None),
    }  # fmt: skip
    wants = {weighted: direct(x, features, sample_weight=w if weighted else None, gram_phi=True)
             for weighted in (False, True)}  # fmt: skip
    for size in (chunks.CHUNK_NUMBERS, 2 * 170):
        monkeypatch.setattr(chunks, "CHUNK_NUMBERS", size)
        for kind, (value, weights) in kinds.items():
            if kind == "iterator":
                value = iter(cuts)
            elif kind == "generator":
                value = (part for part in cuts)
            elif kind == "pairs":
                value = iter(pairs)
            stats = by_transform(value, features, gram_phi=True)
            bound = bounds(x, features, 1e-9, weights=weights)
            assert_statistics(stats, wants[weights is not None], bound)


def test_blocks_with_and_without_weights_share_a_chunk():
    x, features = make_data("normal", 2, n=300), make_features(12, 2)
    w = make_weights(100)
    blocks = [x[:100], (x[100:200], w), x[200:]]
    weights = np.concatenate([np.ones(100), w, np.ones(100)])
    want = direct(x, features, sample_weight=weights)
    assert_statistics(
        by_transform(blocks, features), want, bounds(x, features, 1e-9, weights=weights)
    )


@pytest.mark.parametrize("d", [1, 2, 3])
def test_chunks_add_up(d, monkeypatch):
    """Chunks that lie apart, with outliers, about one center."""
    monkeypatch.setattr(chunks, "CHUNK_NUMBERS", 200 * d)
    x, features = make_data("normal", d, n=900), make_features(15, d)
    x += np.repeat(np.arange(5), 180)[:, None] * 3.0
    x[[3, 500]] = 1e6
    w = make_weights(len(x))
    options = {"noise_levels": (0.0, 0.4), "sample_weight": w, "origin": np.full(d, 5.0)}
    stats = by_transform(x, features, **options)
    bound = bounds(x, features, 1e-9, (0.0, 0.4), w, options["origin"], far=1e6)
    assert_statistics(stats, direct(x, features, **options), bound)


@pytest.mark.parametrize("place", [(0, 0), (777, 1)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_named(place, value, monkeypatch):
    x, features = make_data("normal", 2, n=1000), make_features(5, 2)
    x[place] = value
    for size in (chunks.CHUNK_NUMBERS, 600):
        monkeypatch.setattr(chunks, "CHUNK_NUMBERS", size)
        for run in (direct, by_transform):
            with pytest.raises(ValueError, match=f"row {place[0]}, column {place[1]}"):
                run(x, features)


@pytest.mark.parametrize(
    ("weights", "words"),
    [(np.zeros(50), "all zero"), (np.ones(49), "49 entries"), (-np.ones(50), "not negative")],
)
def test_bad_weights_are_refused(weights, words):
    with pytest.raises(ValueError, match=words):
        by_transform(make_data("normal", 2, n=50), make_features(5, 2), sample_weight=weights)


def test_an_empty_stream_is_refused():
    with pytest.raises(ValueError, match="no rows"):
        by_transform(iter([]), make_features(5, 2))


# -- inside ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3])
def test_targets_are_every_pair_once(d):
    """F at f_s, f_s - f_t (s < t) and f_s + f_t (s <= t), as sums term by term; and G."""
    features, x, w = make_features(7, d), make_data("skewed", d, n=80), make_weights(80)
    bandwidths = bandwidths_of(features, np.array([0.0, 0.5]))
    assert bandwidths == [0.7, float(np.hypot(0.7, 0.5))]
    eps = 1e-13
    place = SpreadGrid(features.bandlimit, x.min(axis=0) - 0.1, x.max(axis=0) + 0.2, eps)
    filler, center = GridFiller(place, 1), place.center
    left, _ = filler.add(x, w)
    assert len(left) == 0
    sums = FourierSums(features, bandwidths, center)
    sums.read(place, filler.grid, 1, weight=filler.weight)
    y = x - center
    error = 10 * eps * w.sum()
    z, S = features.frequencies, 7
    i, j = np.triu_indices(S, 1)
    k, m = np.triu_indices(S)
    assert sums.level_size == S + len(i) + len(k)
    for h, gamma in enumerate(bandwidths):
        parts = sums.level(h)
        for got, f in zip(parts, (z, z[i] - z[j], z[k] + z[m]), strict=True):
            assert np.abs(got - w @ np.exp(1j * y @ f.T / gamma)).max() <= error
            turned = w @ np.exp(-1j * y @ f.T / gamma)
            assert np.abs(np.conj(got) - turned).max() <= error
        moved = (w[:, None] * y).T @ np.exp(1j * y @ z.T / gamma)
        got = sums.G[:, h * S : (h + 1) * S]
        assert np.abs(got - moved).max() <= error * (np.abs(y).max() + np.ptp(y, axis=0).max())
    reach = np.array([np.abs(axis).max() for axis in sums.axes])
    assert reach == pytest.approx(features.bandlimit, rel=1e-14)
    assert sums.weight == pytest.approx(w.sum(), rel=1e-14)


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["much", "", "GB", "2XB", "-1", 0, "nan", "inf", True, [], "1 2"])
def test_bad_amounts_of_memory_are_refused(text, monkeypatch):
    x, features = make_data("normal", 2, n=10), make_features(5, 2)
    with pytest.raises(ValueError, match="amount of memory"):
        tgp.accumulate(x, features, budget=text)
    monkeypatch.setenv(memory.BUDGET_VARIABLE, str(text))
    with pytest.raises(ValueError, match="amount of memory"):
        tgp.accumulate(x, features)


def spread_out(n=400):
    """Rows so far apart in three dimensions that no box of a small grid holds most of them."""
    return np.random.default_rng(0).uniform(-1e4, 1e4, (n, 3))


@pytest.mark.parametrize("by", ["int", "text", "environment"])
@pytest.mark.parametrize("cause", ["grid", "targets"])
def test_a_small_budget_falls_back_to_the_direct_engine(cause, by, monkeypatch):
    """One warning that names the budget; provenance keeps it; the statistics are the direct ones'
    bit by bit."""
    x, features = spread_out(), make_features(12, 3)
    size = 20_000_000 if cause == "grid" else 5_000
    budget = {"int": size, "text": f"{size // 1000}KB", "environment": None}[by]
    if by == "environment":
        monkeypatch.setenv(memory.BUDGET_VARIABLE, str(size))
    with pytest.warns(RuntimeWarning, match="exceed the budget") as caught:
        stats = by_transform(x, features, budget=budget, noise_levels=(0.0, 0.4))
    assert len(caught) == 1
    assert memory.format_bytes(size) in str(caught[0].message)
    assert memory.BUDGET_VARIABLE in str(caught[0].message)
    assert caught[0].filename == __file__
    assert memory.format_bytes(size) in stats.provenance["fallback"]
    assert stats.provenance["engine"] == "direct"
    want = direct(x, features, noise_levels=(0.0, 0.4))
    for name in ("sum_x", "sum_xx", "sum_dphi_x", "gram", "noise_gram"):
        assert np.array_equal(getattr(stats, name), getattr(want, name)), name


def test_a_stream_that_was_read_cannot_fall_back():
    x, features = spread_out(), make_features(12, 3)
    with pytest.raises(ValueError, match=r'exceed the budget.*only once.*engine="direct"'):
        by_transform(iter([x]), features, budget="20MB")
    for again in (lambda: iter([x]), [x[:50], x[50:]]):
        with pytest.warns(RuntimeWarning, match="exceed the budget"):
            stats = by_transform(again, features, budget="20MB")
        assert stats.n_rows == len(x)


def test_the_budget_is_kept_by_leaving_rows_outside():
    """A grid of the whole would not fit: a smaller box serves, to the same tolerance."""
    features, x = make_features(12, 3), make_data("normal", 3, n=2000)
    x[:20] *= 40.0
    grids = []
    for budget in ("2GB", "15MB"):
        stats = by_transform(x, features, budget=budget)
        grids.append(stats.provenance["grid_bytes"])
        assert grids[-1] < memory.parse_bytes(budget)
        assert_statistics(stats, direct(x, features), bounds(x, features, 1e-9))
    assert stats.provenance["rows_outside"] >= 10


# -- choice ---------------------------------------------------------------------------------------


def test_four_dimensions_are_refused_by_name():
    x, features = make_data("normal", 4, n=50), make_features(5, 4)
    with pytest.raises(ValueError, match=r'engine="spectral" serves up to 3.* 4; use'):
        by_transform(x, features)
    assert tgp.accumulate(x, features).provenance["engine"] == "direct"


def test_mixed_precision_is_refused():
    with pytest.raises(ValueError, match='"mixed" needs the direct engine'):
        by_transform(make_data("normal", 2, n=50), make_features(5, 2), precision="mixed")


@pytest.mark.parametrize("tolerance", [0, -1e-9, np.nan, np.inf, True, 1e-20, "fine", None])
def test_bad_tolerances(tolerance):
    with pytest.raises((ValueError, TypeError), match="tolerance="):
        by_transform(make_data("normal", 2, n=50), make_features(5, 2), tolerance=tolerance)


def test_tiny_data_need_no_estimate():
    stats = tgp.accumulate(make_data("normal", 2, n=50), make_features(5, 2))
    assert stats.provenance["engine"] == "direct"
    assert "estimated_spectral" not in stats.provenance


def test_auto_follows_its_estimates(monkeypatch):
    """Both estimates are recorded where there was a choice."""
    x, features = make_data("normal", 2), make_features(20, 2)
    set_costs(monkeypatch, flop=1e-4)
    stats = tgp.accumulate(x, features)
    facts = stats.provenance
    assert facts["engine"] == "spectral"
    assert 0 < facts["estimated_spectral"] < facts["estimated_direct"]
    assert facts["estimated_direct"] == pytest.approx(600 * 20 * 21 * 1e-4, rel=0.01)
    assert_statistics(stats, direct(x, features), bounds(x, features, 1e-9))
    set_costs(monkeypatch, flop=1e-4, start=0.9, target=0.5)
    facts = tgp.accumulate(x, features).provenance
    assert facts["engine"] == "direct"
    assert facts["estimated_spectral"] > facts["estimated_direct"]


def test_auto_does_not_try_what_the_budget_forbids(monkeypatch):
    """No warning: "auto" may choose freely."""
    set_costs(monkeypatch, flop=1e-4)
    facts = tgp.accumulate(spread_out(), make_features(12, 3), budget="20MB").provenance
    assert facts["engine"] == "direct"
    assert facts["estimated_spectral"] is None
    assert "fallback" not in facts


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(("flop", "engine"), [(1e-4, "spectral"), (1e-9, "direct")])
def test_auto_looks_at_the_first_rows_of_a_stream(monkeypatch, flop, engine, again):
    """The engine that is faster for the rows seen runs; no block is read twice."""
    set_costs(monkeypatch, flop=flop)
    x, features, read = make_data("normal", 2), make_features(20, 2), []

    def blocks():
        for start in range(0, len(x), 50):
            read.append(start)
            yield x[start : start + 50]

    stats = tgp.accumulate(blocks if again else blocks(), features)
    assert stats.provenance["engine"] == engine
    assert read == list(range(0, len(x), 50))
    assert stats.n_rows == len(x)
    assert_statistics(stats, direct(x, features), bounds(x, features, 1e-9))


@pytest.mark.parametrize("fill", [0.02, 1e-9])
def test_a_stream_becomes_spectral_once_transforms_pay(monkeypatch, fill):
    """With one row fewer the direct engine runs, and gives its usual bits."""
    monkeypatch.setattr(costs, "NEGLIGIBLE_SECONDS", fill)
    set_costs(monkeypatch, flop=1e-6, start=0.05)
    x, features = make_data("normal", 2), make_features(20, 2)
    pays = SpectralWork(features, np.zeros(0), False, 1e-9, 2**30).rows_that_pay(x[:50])
    assert 50 < pays <= 10 * len(x)
    rows = np.tile(x, (pays // len(x) + 1, 1))
    for n, engine in ((pays - 1, "direct"), (pays, "spectral")):
        stream = iter(np.array_split(rows[:n], np.arange(50, n, 50)))
        monkeypatch.setattr(SpectralWork, "rows_that_pay", lambda *args: pays)
        stats = tgp.accumulate(stream, features, budget=2**30)
        assert stats.provenance["engine"] == engine
    few = tgp.accumulate(iter([rows[:100]]), features)
    assert np.array_equal(few.gram, direct(iter([rows[:100]]), features).gram)


@pytest.mark.parametrize("flop", [1e-4, 1e-9])
@pytest.mark.parametrize("engine", ["auto", "spectral"])
def test_a_generator_may_fill_one_array_again_and_again(monkeypatch, engine, flop):
    set_costs(monkeypatch, flop=flop)
    x, features = make_data("normal", 2), make_features(20, 2)
    w = make_weights(len(x))

    def blocks():
        rows, weights = np.empty((100, 2)), np.empty(100)
        for start in range(0, len(x), 100):
            rows[:], weights[:] = x[start : start + 100], w[start : start + 100]
            yield rows, weights

    assert len(x) % 100 == 0
    rows = Blocks(blocks()).mapped(lambda x: x)  # as fit passes them on
    want = direct(x, features, sample_weight=w)
    for stream in (blocks(), rows):
        stats = tgp.accumulate(stream, features, engine=engine)
        assert_statistics(stats, want, bounds(x, features, 1e-9, weights=w))


def test_blocks_that_are_not_copied_are_overwritten(monkeypatch):
    """Negative control of the test above."""
    monkeypatch.setattr(Blocks, "blocks_stay_valid", True)
    x, features, rows = make_data("normal", 2), make_features(20, 2), np.empty((100, 2))

    def blocks():
        for start in range(0, len(x), 100):
            rows[:] = x[start : start + 100]
            yield rows

    stats = by_transform(blocks(), features)
    assert np.abs(stats.gram - direct(x, features).gram).max() > 1.0


def test_a_stream_that_outgrows_the_budget_continues_directly(monkeypatch):
    """If "auto" chose the spectral engine by the first rows; the user did not ask for it."""
    set_costs(monkeypatch, flop=1e-4)
    near, far, features = make_data("normal", 3), spread_out(), make_features(12, 3)
    monkeypatch.setattr(chunks, "FIRST_NUMBERS", 3 * len(near))  # distant rows come later
    stream = iter([near, *(far[i : i + 100] for i in range(0, len(far), 100))])
    stats = tgp.accumulate(stream, features, budget="20MB")
    assert stats.provenance["engine"] == "spectral"
    assert stats.provenance["rows_outside"] > 0
    x = np.concatenate([near, far])
    assert_statistics(stats, direct(x, features), bounds(x, features, 1e-9))


def test_costs_decide_which_rows_stay_outside(monkeypatch):
    """Rows that cost nothing by the direct engine stay outside the grid."""
    x, features = make_data("normal", 2), make_features(20, 2)
    x[:5] *= 20.0
    run = {
        "gram_phi": False, "tolerance": 1e-9, "budget": 2**30, "backend": kernels.load("numpy"),
        "n_threads": 1,
    }  # fmt: skip

    def outside(**seconds):
        set_costs(monkeypatch, **seconds)
        stats = spectral.accumulate_spectral(
            Blocks(x), features, np.zeros(0), np.zeros(2), **run
        )
        return stats.provenance["rows_outside"]

    assert outside(flop=1.0, node=1e-30) == 0 < outside(flop=1e-30, feature=1e-30, node=1e-2)


@pytest.mark.parametrize("kind", ["normal", "cauchy", "one far", "all equal", "one row"])
def test_estimates_are_finite_and_grow(kind):
    """With features, levels and tolerance; a stream has none."""
    x = make_data(kind, 2)

    def seconds(S=20, levels=(), tolerance=1e-9):
        work = SpectralWork(make_features(S, 2), np.array(levels), False, tolerance, 2**32)
        return work.seconds(Blocks(x))

    assert 0 < seconds() < seconds(S=200)
    assert seconds() < seconds(levels=(0.0, 0.3, 0.6))
    assert seconds(tolerance=1e-6) <= seconds(tolerance=1e-12)
    stream = Blocks(iter([x]))
    work = SpectralWork(make_features(5, 2), np.zeros(0), False, 1e-9, 2**32)
    assert work.seconds(stream) is None


@pytest.mark.parametrize("d", [1, slow(2), slow(3)])
def test_threads(d, monkeypatch):
    """The same bits every time on one thread; two threads, which add in any order, stay within the
    tolerance."""
    monkeypatch.setattr(transforms, "SERIAL_SIZE", 0)  # else small work gets one thread
    x, features = make_data("cauchy", d, n=2000), make_features(20, d)
    x = x[np.abs(x).max(axis=1) < 30]
    one, again, two = (
        by_transform(x, features, noise_levels=(0.0, 0.5), n_threads=k) for k in (1, 1, 2)
    )
    bound = bounds(x, features, 1e-9, (0.0, 0.5))
    for name in bound:
        assert np.array_equal(getattr(one, name), getattr(again, name)), name
    assert_statistics(one, two, bound)
    assert one.provenance["threads"] == 1


# -- what follows ---------------------------------------------------------------------------------


def test_statistics_of_both_engines_add(tmp_path):
    x, features = make_data("skewed", 2), make_features(12, 2)
    options = {"noise_levels": (0.0, 0.5), "gram_phi": True, "origin": np.ones(2)}
    stats = by_transform(x[:250], features, **options) + direct(x[250:], features, **options)
    assert stats.provenance["engine"] == ["direct", "spectral"]
    bound = bounds(x, features, 1e-9, (0.0, 0.5), origin=np.ones(2))
    assert_statistics(stats, direct(x, features, **options), bound)
    path = tmp_path / "s.npz"
    stats.save(path)
    back = tgp.load(path)
    assert back.provenance == stats.provenance
    assert back.fingerprint == direct(x, features, **options).fingerprint
    for name in bound:
        assert np.array_equal(getattr(back, name), getattr(stats, name)), name


def test_statistics_are_read_only_and_own_their_levels():
    stats = by_transform(make_data("normal", 2), make_features(5, 2), noise_levels=(0.0, 0.5))
    for name in ("gram", "sum_phi", "noise_gram", "noise_sum_dphi_x", "origin"):
        assert not getattr(stats, name).flags.writeable, name
    assert not np.shares_memory(stats.noise_sum_phi, stats.sum_phi)


@pytest.mark.parametrize("how", ["absent", "hidden"])
def test_without_finufft_auto_is_direct(how, monkeypatch):
    """However much faster the transform would be."""
    set_costs(monkeypatch, flop=1e-4)
    x, features = make_data("normal", 2), make_features(20, 2)
    assert tgp.accumulate(x, features).provenance["engine"] == "spectral"
    if how == "hidden":
        monkeypatch.setitem(sys.modules, "finufft", None)
    else:
        find = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *a: None if name == "finufft" else find(name)
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tgp.accumulate(x, features).provenance["engine"] == "direct"
    if how == "hidden":
        with pytest.raises(ImportError, match="finufft"):
            by_transform(x, features)


def test_distant_rows_of_weight_zero_are_ignored():
    """Weights of zero mask rows."""
    x, features = make_data("normal", 2, n=400), make_features(10, 2)
    x[5] = 1e12
    w = (np.abs(x).max(axis=1) < 2.5).astype(float)
    stats = by_transform(x, features, sample_weight=w)
    bound = bounds(x[w > 0], features, 1e-9)
    plain = direct(x, features, sample_weight=w)
    for name in ("sum_phi", "sum_dphi", "gram"):
        gap = np.abs(getattr(stats, name) - getattr(plain, name)).max()
        assert gap <= np.max(bound[name])
    spectrum = tgp.Spectrum.from_data(x, features.bandlimit, sample_weight=w)
    assert len(spectrum.outside) == 0


@pytest.mark.parametrize("value", [1e200, 1.7e308])
def test_overflow_is_explained(value):
    features = make_features(5, 2)
    with pytest.raises(ValueError, match=r"overflows|not finite"):
        by_transform(np.full((5, 2), value), features)


def test_a_spectrum_of_rows_that_overflow_is_refused():
    """Its squares are small about its own center, and overflow about zero."""
    features = make_features(5, 2)
    spectrum = tgp.Spectrum.from_data(np.full((5, 2), 1e200), features.bandlimit)
    with pytest.raises(ValueError, match="overflows"):
        spectrum.statistics(features)
    assert np.isfinite(spectrum.statistics(features, origin=[1e200, 1e200]).gram).all()


def test_points_outside_are_summed_in_portions(monkeypatch):
    x, features = make_data("normal", 2, n=600), make_features(10, 2)
    x[::12] += 1e5 * np.arange(50)[:, None]
    monkeypatch.setattr(spectral, "OUTSIDE_ROWS", 20)
    monkeypatch.setattr(chunks, "CHUNK_NUMBERS", 200)
    stats = by_transform(x, features)
    assert stats.provenance["rows_outside"] >= 40
    gap = np.abs(stats.gram - direct(x, features).gram).max()
    assert gap <= 2 * len(x) / 10 * 1e-8  # angles of 1e7 err by 1e-9 in either engine


@pytest.mark.parametrize("wish", [{"precision": "mixed"}, {"tolerance": 1e-14}])
def test_auto_takes_the_direct_engine_where_only_that_serves(wish, monkeypatch):
    """Even where the spectral engine is faster, which runs without that option."""
    monkeypatch.setattr(costs, "NEGLIGIBLE_SECONDS", 0.0)
    monkeypatch.setattr(SpectralWork, "seconds", lambda *args: 0.0)
    x, features = make_data("normal", 2, n=100), make_features(5, 2)
    assert tgp.accumulate(x, features).provenance["engine"] == "spectral"
    assert tgp.accumulate(x, features, **wish).provenance["engine"] == "direct"
