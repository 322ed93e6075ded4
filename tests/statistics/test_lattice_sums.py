"""Sums over the waves of a lattice: against sums term by term, and their algebra."""

import itertools

import lattice_oracle as oracle
import numpy as np
import pytest
from conftest import doctored

import tgpfast as tgp
from tgpfast.bases.gaussian import GaussianBase
from tgpfast.bases.mixture import MixtureBase
from tgpfast.data.blocks import Blocks
from tgpfast.data.row_sample import row_keys
from tgpfast.features.lattice import LatticeFeatures
from tgpfast.statistics import lattice_sums, wave_sums
from tgpfast.statistics.lattice_statistics import LatticeStatistics
from tgpfast.statistics.lattice_sums import (
    accumulate_lattice,
    accumulate_lattice_folds,
    check_memory,
)
from tgpfast.statistics.value_folds import Folds

WALLS = [("open",), ("wall",), ("open", "open"), ("period", "wall_below"), ("open", "wall", "open")]


def make_lattice(walls, modes=(4, 3, 2)):
    d = len(walls)
    return LatticeFeatures(np.array([4.0, 3.0, 5.0])[:d], modes[:d], np.full(d, -0.5), walls=walls)


def make_rows(lattice, n=300, seed=0):
    """Rows in the core, in the margins, and, on open axes, outside of the box."""
    rng = np.random.default_rng(seed)
    x = lattice.origin + lattice.lengths * rng.uniform(size=(n, lattice.dimension))
    for axis, kind in enumerate(lattice.walls):
        if kind in ("open", "period"):
            x[:5, axis] = lattice.origin[axis] + 3.0 * lattice.lengths[axis]
            x[5, axis] = -1e9 if kind == "open" else x[5, axis]
    return x, rng.uniform(0.1, 2.0, n)


def mixture(d):
    return MixtureBase(
        np.array([0.3, 0.7]), np.stack([np.zeros(d), np.ones(d)]),
        np.stack([np.eye(d), 0.5 * np.eye(d)]),
    )  # fmt: skip


def stored_numbers(lattice, factor=1):
    half = max((j for j, c in enumerate(lattice.cosine) if not c), default=None)
    ranges = [
        range(factor * m + 1) if c or j == half
        else [*range(factor * m + 1), *range(-factor * m, 0)]
        for j, (m, c) in enumerate(zip(lattice.n_modes, lattice.cosine, strict=True))
    ]  # fmt: skip
    return list(itertools.product(*ranges))


def sums_by_term(x, w, lattice, factor):
    return np.array([oracle.wave_sum(x, w, lattice, k) for k in stored_numbers(lattice, factor)])


@pytest.fixture(params=["finufft", "exact"])
def engine(request, monkeypatch):
    if request.param == "exact":
        for module in (wave_sums, lattice_sums):
            monkeypatch.setattr(module, "has_finufft", lambda: False)
    else:
        pytest.importorskip("finufft")
        monkeypatch.setattr(wave_sums, "SHORT_NUMBERS", 0)  # few modes of one axis too
    return request.param


@pytest.mark.parametrize("walls", WALLS)
def test_sums_are_those_of_the_oracle(walls, engine):
    lattice = make_lattice(walls)
    x, w = make_rows(lattice)
    stats = accumulate_lattice(x, lattice, sample_weight=w, tolerance=1e-12)
    want = sums_by_term(x, w * oracle.taper(x, lattice), lattice, 1)
    assert np.abs(stats.modes.ravel() - want).max() < 1e-10 * w.sum()
    assert stats.n == pytest.approx(w.sum())
    assert stats.sum_w2 == pytest.approx(w @ w)
    assert stats.n_rows == len(x)
    # score matching takes products of two waves
    base = mixture(len(walls))
    wide = accumulate_lattice(x, lattice, sample_weight=w, tolerance=1e-12, base=base)
    want = sums_by_term(x, w * oracle.taper(x, lattice), lattice, 2)
    assert np.abs(wide.modes.ravel() - want).max() < 1e-10 * w.sum()
    assert np.abs(wide.sum_waves - stats.sum_waves).max() < 1e-10 * w.sum()
    assert engine in stats.provenance["engine"]


@pytest.mark.parametrize("walls", WALLS)
def test_score_sums_are_those_of_rows_in_the_core(walls):
    lattice = make_lattice(walls)
    x, w = make_rows(lattice)
    base = mixture(len(walls))
    stats = accumulate_lattice(x, lattice, sample_weight=w, base=base, tolerance=1e-12)
    inside = oracle.in_core(x, lattice)
    assert 0 < inside.sum() < len(x) or set(walls) <= {"wall", "period"}
    core = sums_by_term(x[inside], w[inside], lattice, 2)
    assert np.abs(stats.core_modes.ravel() - core).max() < 1e-10 * w.sum()
    plain = accumulate_lattice(x, lattice, sample_weight=w, tolerance=1e-12)
    assert np.abs(stats.sum_waves - plain.modes).max() < 1e-10 * w.sum()
    assert stats.scores_of == base.fingerprint
    # sum of grad f . score, by the basis of the oracle and by the sums
    rng = np.random.default_rng(1)
    theta = lattice.from_grid(rng.standard_normal(lattice.grid_shape())) / 100
    score = base.score_at(x[inside]) * w[inside, None]
    step, total = 1e-5, 0.0
    for axis in range(len(walls)):
        frequency = lattice.frequencies[axis].reshape(
            [-1 if j == axis else 1 for j in range(len(walls))]
        )
        factor = -frequency if lattice.cosine[axis] else 1j * frequency
        total += lattice.inner(factor * theta, stats.core_scores[axis])
    want = 0.0
    for axis in range(len(walls)):
        move = step * np.eye(len(walls))[axis]
        up, down = (_values(lattice, theta, x[inside] + s * move) for s in (1, -1))
        want += score[:, axis] @ (up - down) / (2 * step)
    assert total == pytest.approx(want, rel=1e-5, abs=1e-6)


def _values(lattice, theta, x):
    """f term by term."""
    total = np.zeros(len(x))
    times = lattice.multiplicity.ravel()
    for k, coefficient, m in zip(stored_numbers(lattice), theta.ravel(), times, strict=True):
        waves = oracle.waves(x, lattice, k)
        total += m * (coefficient * np.conj(waves)).real
    return total


def test_sums_of_a_gaussian_base_are_weighted_by_position():
    lattice = make_lattice(("open", "open"))
    x, w = make_rows(lattice)
    base = GaussianBase(np.zeros(2), np.eye(2))
    stats = accumulate_lattice(x, lattice, sample_weight=w, base=base, tolerance=1e-12)
    inside = oracle.in_core(x, lattice)
    center = lattice.origin + 0.5 * lattice.lengths
    for axis in range(2):
        strength = (w * (x[:, axis] - center[axis]))[inside]
        want = sums_by_term(x[inside], strength, lattice, 1)
        assert np.abs(stats.core_scores[axis].ravel() - want).max() < 1e-10 * w.sum()
    assert stats.scores_of == "positions"


def test_noise_sums_are_those_of_scaled_and_damped_waves():
    lattice = make_lattice(("open", "open"))
    x, w = make_rows(lattice)
    base = GaussianBase(np.zeros(2), np.eye(2))
    levels = (0.0, 0.4, 0.9)
    stats = accumulate_lattice(
        x, lattice, sample_weight=w, base=base, noise_levels=levels, tolerance=1e-12
    )
    inside = oracle.in_core(x, lattice)
    x, w = x[inside], w[inside]
    center = lattice.origin + 0.5 * lattice.lengths
    numbers = np.array(stored_numbers(lattice, 2))
    squares = np.square(2 * np.pi * numbers / lattice.lengths).sum(axis=1)
    folded = np.zeros(len(numbers), complex)
    for h, sigma in enumerate(levels):
        ratio = lattice.bandwidth / np.hypot(lattice.bandwidth, sigma)
        y = center + ratio * (x - center)
        folded += ratio**2 * np.exp(-0.5 * (sigma * ratio) ** 2 * squares) * sums_by_term(
            y, w, lattice, 2
        )  # fmt: skip
        level = sums_by_term(y, w, lattice, 1)
        assert np.abs(stats.noise_core_modes[h].ravel() - level).max() < 1e-10 * w.sum()
        moved = sums_by_term(y, w * (x - center)[:, 1], lattice, 1)
        assert np.abs(stats.noise_core_scores[h, 1].ravel() - moved).max() < 1e-10 * w.sum()
    assert np.abs(stats.noise_modes.ravel() - folded).max() < 1e-10 * w.sum()


@pytest.mark.parametrize("m", [1, 2, 15, 16, 1000])
def test_few_modes_of_one_axis_are_summed_exactly(m, monkeypatch):
    """In blocks of rows, with or without finufft; more rows are left to finufft."""
    lattice = LatticeFeatures(np.array([4.0]), (m,), np.array([-0.5]), walls=("period",))
    x, w = make_rows(lattice, 120)
    want = np.array([oracle.wave_sum(x, w, lattice, (k,)) for k in range(m + 1)])
    monkeypatch.setattr(wave_sums, "EXACT_NUMBERS", 500)
    called = []
    monkeypatch.setattr(wave_sums, "quiet_finufft", lambda: called.append("finufft"))
    sums = wave_sums.WaveSums(lattice, 1e-3, 1)
    assert np.abs(sums.sums(x, np.stack([w, 2.0 * w]))[1] - 2.0 * want).max() < 1e-11 * w.sum()
    assert not called
    if wave_sums.has_finufft():
        monkeypatch.setattr(wave_sums, "SHORT_NUMBERS", 120 * m - 1)
        with pytest.raises((AttributeError, TypeError)):  # None is no context manager
            sums.sums(x, w[None])
        assert called


def test_the_error_stays_below_the_tolerance():
    pytest.importorskip("finufft")
    lattice = make_lattice(("open", "period"), (20, 17))
    x, _ = make_rows(lattice, 2000)
    exact = accumulate_lattice(x, lattice, tolerance=1e-14).modes
    for tolerance in (1e-3, 1e-6, 1e-9):
        got = accumulate_lattice(x, lattice, tolerance=tolerance).modes
        assert np.abs(got - exact).max() < tolerance * len(x)
    assert np.abs(accumulate_lattice(x, lattice, tolerance=1e-3).modes - exact).max() > 1e-9


# -- algebra --------------------------------------------------------------------------------------


def assert_same(a, b, bound=1e-9):
    for name in LatticeStatistics.sum_names():
        mine, theirs = getattr(a, name), getattr(b, name)
        assert (mine is None) == (theirs is None), name
        if mine is not None:
            scale = max(a.n, np.abs(theirs).max(initial=0.0))
            assert np.abs(np.asarray(mine) - theirs).max(initial=0.0) <= bound * scale, name


OPTIONS = {"base": GaussianBase(np.zeros(2), np.eye(2)), "noise_levels": (0.0, 0.5)}


def test_weights_are_repetitions():
    lattice = make_lattice(("open", "open"))
    x, _ = make_rows(lattice, 60)
    counts = np.random.default_rng(2).integers(0, 3, len(x))
    weighted = accumulate_lattice(x, lattice, sample_weight=counts.astype(float), **OPTIONS)
    repeated = accumulate_lattice(np.repeat(x, counts, axis=0), lattice, **OPTIONS)
    for name in ("n", "modes", "core_modes", "core_scores", "noise_modes"):
        got, want = getattr(weighted, name), getattr(repeated, name)
        assert np.abs(got - want).max() < 1e-8 * weighted.n


def test_merged_parts_streams_and_one_pass_agree():
    lattice = make_lattice(("open", "open"))
    x, w = make_rows(lattice)
    options = {**OPTIONS, "bases": [mixture(2)]}
    whole = accumulate_lattice(x, lattice, sample_weight=w, **options)
    parts = [accumulate_lattice(x[i::3], lattice, sample_weight=w[i::3], **options)
             for i in range(3)]  # fmt: skip
    assert_same(sum(parts), whole)
    assert_same(whole - parts[0], parts[1] + parts[2])
    stream = accumulate_lattice(((x[i : i + 50], w[i : i + 50]) for i in range(0, 300, 50)),
                                lattice, **options)  # fmt: skip
    assert_same(stream, whole)
    assert_same(accumulate_lattice(Blocks(x, sample_weight=w, block_rows=37), lattice, **options),
                whole)  # fmt: skip
    assert_same(2.0 * whole, accumulate_lattice(x, lattice, sample_weight=2 * w, **options))
    assert_same(whole.decay(0.5) * 2.0, whole)
    assert whole.sum_log_bases[0] == pytest.approx(w @ mixture(2).log_density_at(x))


@pytest.mark.parametrize("labels", ["rule", "given"])
def test_folds_of_one_pass_are_those_of_their_rows(labels, monkeypatch):
    monkeypatch.setattr(lattice_sums, "LATTICE_CHUNK_ROWS", 64)
    lattice = make_lattice(("open", "wall"))
    x, w = make_rows(lattice)
    rule = Folds.for_sample(4, x)
    given = rule.of_rows(x, row_keys(0, len(x)))
    bases = [[mixture(2)], [mixture(2)] * 2, [], [mixture(2)]]
    folds = accumulate_lattice_folds(
        Blocks(x, sample_weight=w, block_rows=50), lattice, rule if labels == "rule" else given,
        bases=bases,
    )  # fmt: skip
    assert len(folds) == 4
    assert np.bincount(given).min() > 40
    for fold, part in enumerate(folds):
        rows = given == fold
        want = accumulate_lattice(
            x[rows], lattice, sample_weight=w[rows], bases=bases[fold]
        )
        assert_same(part, want)
        assert len(part.sum_log_bases) == len(bases[fold])
    with pytest.raises(ValueError, match="more rows"):
        accumulate_lattice_folds(x, lattice, given[:-1])
    with pytest.raises(ValueError, match="folds"):
        accumulate_lattice_folds(x, lattice, given - 1)
    with pytest.raises(ValueError, match="folds"):
        accumulate_lattice_folds(x, lattice, 0)


def test_equal_rows_share_a_fold_unless_they_are_many():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(500, 2))
    twice = np.concatenate([x, x])
    fold = Folds.for_sample(5, twice).of_rows(twice, row_keys(0, 1000))
    assert (fold[:500] == fold[500:]).all()
    assert np.bincount(fold).min() > 120
    # one row in ten has the same values: without them a fold would have none of these
    x[:50] = 0.0
    fold = Folds.for_sample(5, x).of_rows(x, row_keys(0, 500))
    assert len(np.unique(fold[:50])) == 5
    few = Folds(5, np.full(2, 1e-6))
    x[:25] = -1e-9
    assert len(np.unique(few.of_rows(x, row_keys(0, 500))[:50])) == 1


@pytest.mark.parametrize("walls", WALLS)
def test_a_smaller_lattice_is_a_corner_of_a_larger(walls):
    lattice = make_lattice(walls)
    x, w = make_rows(lattice)
    base = mixture(len(walls))
    small = lattice.with_modes([m - 1 for m in lattice.n_modes])
    got = accumulate_lattice(x, lattice, sample_weight=w, base=base).corner(small.n_modes)
    assert_same(got, accumulate_lattice(x, small, sample_weight=w, base=base))
    assert got.features == small
    with pytest.raises(ValueError, match="reach"):
        got.corner(lattice.n_modes)


def test_corners_keep_noise_sums():
    lattice = make_lattice(("open", "open"))
    x, _ = make_rows(lattice)
    got = accumulate_lattice(x, lattice, **OPTIONS).corner(2)
    assert_same(got, accumulate_lattice(x, lattice.with_modes(2), **OPTIONS))


@pytest.mark.parametrize("walls", [("open", "open"), ("wall", "wall")])
def test_saved_statistics_come_back(tmp_path, walls):
    lattice = make_lattice(walls)
    x, w = make_rows(lattice)
    options = OPTIONS if walls == ("open", "open") else {"base": mixture(2)}
    stats = accumulate_lattice(x, lattice, sample_weight=w, bases=[mixture(2)], **options)
    stats.save(tmp_path / "stats.npz")
    back = tgp.load(tmp_path / "stats.npz")
    assert_same(back, stats, 0.0)
    assert back.features == stats.features
    assert back.provenance == stats.provenance
    assert back.scores_of == stats.scores_of
    assert_same(back + stats, stats + stats, 0.0)
    doctored(tmp_path / "stats.npz", {"modes": lambda a: a[:-1]})
    with pytest.raises(ValueError, match="modes"):
        tgp.load(tmp_path / "stats.npz")


def test_statistics_that_do_not_fit_are_not_added():
    lattice = make_lattice(("open", "open"))
    x, _ = make_rows(lattice)
    stats = accumulate_lattice(x, lattice, **OPTIONS)
    for other, message in (
        (accumulate_lattice(x, lattice.with_modes(2), **OPTIONS), "box, modes or walls"),
        (accumulate_lattice(x, lattice), "different bases"),
        (accumulate_lattice(x, lattice, base=OPTIONS["base"]), "noise levels"),
        (accumulate_lattice(x, lattice.with_kernel("gaussian", 0.3), **OPTIONS), "bandwidths"),
        (accumulate_lattice(x, lattice, bases=[mixture(2)], **OPTIONS), "numbers of bases"),
    ):
        with pytest.raises(ValueError, match=message):
            _ = stats + other
    with pytest.raises(ValueError, match="cannot be subtracted"):
        _ = accumulate_lattice(x[:10], lattice) - accumulate_lattice(x, lattice)
    with pytest.raises(TypeError):
        _ = stats + 1
    with pytest.raises(TypeError):
        _ = stats - 1
    with pytest.raises(ValueError, match="one bandwidth"):
        stats.with_kernel("gaussian", 0.3)
    plain = accumulate_lattice(x, lattice).with_kernel("matern12", 0.3)
    assert plain.features.kernel == "matern12"
    assert "300" in repr(plain)


# -- guards ---------------------------------------------------------------------------------------


def test_bad_input_is_refused():
    lattice = make_lattice(("open", "wall"))
    x, _ = make_rows(lattice)
    base = GaussianBase(np.zeros(2), np.eye(2))
    with pytest.raises(TypeError, match="LatticeFeatures"):
        accumulate_lattice(x, tgp.Features.draw(5, 1.0, np.eye(2)))
    with pytest.raises(ValueError, match="base has dimension 1"):
        accumulate_lattice(x, lattice, base=GaussianBase(np.zeros(1), np.eye(1)))
    with pytest.raises(ValueError, match="open axes"):
        accumulate_lattice(x, lattice, base=base, noise_levels=(0.0, 0.1))
    with pytest.raises(ValueError, match="Gaussian base"):
        accumulate_lattice(x, make_lattice(("open", "open")), noise_levels=(0.0, 0.1))
    bad = x.copy()
    bad[17, 1] = lattice.origin[1] - 0.01
    with pytest.raises(ValueError, match=r"row 17 .* column 1"):
        accumulate_lattice(bad, lattice)
    bad[17, 1] = lattice.origin[1] - 1e-12  # rounding
    accumulate_lattice(bad, lattice)


def test_one_wall_leaves_the_other_end_open():
    x = np.array([[0.5], [100.0]])
    lattice = LatticeFeatures([4.0], 3, [0.0], walls=("wall_below",))
    assert accumulate_lattice(x, lattice).n == 2.0
    with pytest.raises(ValueError, match="row 0"):
        accumulate_lattice(-x, lattice)
    flipped = LatticeFeatures([4.0], 3, [-4.0], walls=("wall_above",))
    assert accumulate_lattice(-x, flipped).n == 2.0
    with pytest.raises(ValueError, match="row 0"):
        accumulate_lattice(x, flipped)


def test_a_lattice_that_exceeds_the_budget_says_what_would_fit():
    lattice = LatticeFeatures([1.0] * 3, 100, [0.0] * 3)
    with pytest.raises(ValueError, match=r"n_modes=\((\d+), \1, \1\) would fit") as caught:
        accumulate_lattice(np.zeros((3, 3)), lattice, budget="10MB")
    fitting = int(str(caught.value).split("n_modes=(")[2].split(",")[0])
    assert fitting > 4
    check_memory(lattice.with_modes(fitting), 1, 10**7)
    with pytest.raises(ValueError, match="would fit"):
        check_memory(lattice.with_modes(2 * fitting), 1, 10**7)


def test_rows_without_any_in_the_box_give_zero_sums():
    lattice = LatticeFeatures([1.0], 3, [0.0])
    base = GaussianBase(np.zeros(1), np.eye(1))
    stats = accumulate_lattice(np.full((4, 1), 50.0), lattice, base=base)
    assert stats.n == 4.0
    assert not stats.modes.any()
    assert not stats.core_modes.any()


def test_partitions_of_dask_add_up_to_one_pass():
    dask_array = pytest.importorskip("dask.array")
    lattice = make_lattice(("open", "open"))
    x, w = make_rows(lattice)
    parts = dask_array.from_array(x, chunks=(70, 2))
    weights = dask_array.from_array(w, chunks=70)
    options = {**OPTIONS, "bases": [mixture(2)]}
    got = accumulate_lattice(parts, lattice, sample_weight=weights, **options)
    assert_same(got, accumulate_lattice(x, lattice, sample_weight=w, **options))
    folds = accumulate_lattice_folds(parts, lattice, Folds.for_sample(3, x), sample_weight=weights)
    assert len(folds) == 3
    assert_same(sum(folds), accumulate_lattice(x, lattice, sample_weight=w))
