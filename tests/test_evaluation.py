"""Marginal CDFs against sorting, for every backend; KS and WD against plain computations."""

import numpy as np
import oracle
import pytest
from conftest import load_backend
from scipy.stats import ks_2samp, wasserstein_distance

import tgpfast as tgp
from tgpfast.evaluation import Evaluation, evaluate, marginal_cdfs


@pytest.mark.parametrize("name", ["numpy", "numba", "cython"])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_sorted_oracle(name, weighted):
    backend = load_backend(name).NAME
    rng = np.random.default_rng(0)
    # eighths, and directions of integers: projections and grid are exact, ties and all
    x = rng.integers(-40, 40, (3000, 3)) / 8.0
    w = rng.integers(0, 5, 3000).astype(float) if weighted else None
    directions = np.array([[1.0, 0.0, 0.0], [1.0, -2.0, 1.0], [0.0, 3.0, 1.0]])
    low, step = np.array([-4.0, -10.0, 2.0]), np.array([0.125, 0.25, 0.5])
    got = marginal_cdfs(
        x, directions, low, step, 50, sample_weight=w, backend=backend, n_threads=2
    )
    for v in range(3):
        grid = low[v] + step[v] * np.arange(50)
        assert np.allclose(got[v], oracle.marginal_cdf(x, directions[v], grid, w), rtol=1e-14)
    again = marginal_cdfs(
        iter([x[:1000], x[1000:]]) if w is None else x, directions, low, step, 50,
        sample_weight=w, backend=backend, n_threads=1,
    )  # fmt: skip
    assert np.array_equal(got, again)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"directions": np.zeros((0, 2))}, "empty"),
        ({"directions": np.eye(3), "low": np.zeros(3), "step": np.ones(3)}, "expected 3"),
        ({"low": [0.0]}, "one entry"),
        ({"step": [1.0, 0.0]}, "positive"),
        ({"n_grid": 0}, "n_grid"),
    ],
)
def test_bad_grids(options, words):
    arguments = {"directions": np.eye(2), "low": [0.0, 0.0], "step": [1.0, 1.0], "n_grid": 4}
    with pytest.raises(ValueError, match=words):
        marginal_cdfs(np.zeros((5, 2)), **(arguments | options))


# -- evaluate -------------------------------------------------------------------------------------


class Rival:
    """Anything with sample(n, seed)."""

    def __init__(self, shift=0.0, spread=1.0, d=3):
        self.shift, self.spread, self.d = shift, spread, d

    def sample(self, n, seed):
        rng = np.random.default_rng(seed + 1_000)
        return self.shift + self.spread * rng.standard_normal((n, self.d))


def jump(projection, low, high, n_grid, weights=None):
    """The largest share of weight within one step of the grid."""
    step = (high - low) / (n_grid - 1)
    cell = np.floor((projection - low) / step).astype(int)
    mass = np.bincount(cell, weights)
    return (mass[:-1] + mass[1:]).max() / mass.sum() if len(mass) > 1 else 1.0


@pytest.mark.parametrize("name", ["numpy", "numba", "cython"])
@pytest.mark.parametrize("weighted", [False, True])
def test_ks_and_wd_equal_a_plain_computation(weighted, name):
    """Sorting gives both exactly; a grid of step h changes KS by a jump within h, WD by h."""
    backend = load_backend(name).NAME
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 3)) * [1.0, 2.0, 0.5] + [0.3, 0.0, 0.0]
    w = rng.uniform(0, 2, 300) if weighted else None
    result = evaluate(
        Rival(), x, n_directions=12, n_grid=20_000, n_samples=400, seed=3, sample_weight=w,
        backend=backend, n_threads=2,
    )  # fmt: skip
    draws = Rival().sample(400, 3)
    assert result.ks.shape == result.wd.shape == (12,)
    assert np.allclose(np.linalg.norm(result.directions, axis=1), 1.0, rtol=1e-15)
    assert result.effective_sample_size == 400
    for v, ks, wd in zip(result.directions, result.ks, result.wd, strict=True):
        a, b = x @ v, draws @ v
        low, high = min(a.min(), b.min()), max(a.max(), b.max())
        both = np.sort(np.concatenate([a, b]))
        gap = oracle.marginal_cdf(x, v, both, w) - oracle.marginal_cdf(draws, v, both)
        exact_wd = wasserstein_distance(a, b, w)
        step = (high - low) / 19_999
        most = jump(a, low, high, 20_000, w) + jump(b, low, high, 20_000)
        assert abs(ks - np.abs(gap).max()) <= most
        assert ks <= np.abs(gap).max() + 1e-12  # a grid sees no more than all points
        # every row moves up to the next node, by a step at most
        assert abs(wd - exact_wd) <= 2 * step
        if not weighted:
            assert abs(ks - ks_2samp(a, b).statistic) <= most


@pytest.mark.parametrize("n_grid", [2, 50])
def test_values_on_a_lattice_are_exact(n_grid):
    """Rows on the nodes of the grid: no discretisation is left."""

    class Lattice:
        def sample(self, n, seed):
            return np.array([[0.0], [n_grid - 1.0]])

    x = np.arange(n_grid, dtype=float)[:, None]
    result = evaluate(Lattice(), x, n_directions=1, n_grid=n_grid, n_samples=2)
    if n_grid == 2:
        assert result.median == (0.0, 0.0)
    else:
        exact = wasserstein_distance(x[:, 0], [0.0, n_grid - 1.0])
        # a projection may fall an ulp beyond its node, and so one node further
        assert abs(result.wd[0] - exact) <= 1.0
        assert abs(result.ks[0] - (0.5 - 1 / n_grid)) <= 2 / n_grid


def test_the_same_law_gives_small_values_and_another_does_not():
    x = np.random.default_rng(5).standard_normal((2_000, 3))
    same = evaluate(Rival(), x, 20, 2_000, 4_000)
    # KS of two samples: below 1.95 sqrt(1/2000 + 1/4000) at a level of 1e-3
    assert same.ks.max() < 1.95 * np.sqrt(1 / 2_000 + 1 / 4_000)
    assert same.wd.max() < 0.15
    other = evaluate(Rival(spread=1.5), x, 20, 2_000, 4_000)
    assert other.ks.min() > same.ks.max()
    assert other.wd.min() > same.wd.max()


def test_a_shift_gives_its_length_along_each_direction():
    shift = np.array([3.0, -4.0, 2.0])
    x = np.random.default_rng(5).standard_normal((2_000, 3))
    result = evaluate(Rival(shift), x, 30, 4_000, 4_000, seed=1)
    expected = np.abs(result.directions @ shift)
    # the means of the samples err by sqrt(1/2000 + 1/4000) = 0.027; four of them, and the spread's
    assert np.abs(result.wd - expected).max() < 0.15
    zero = evaluate(Rival(x[:1] * 0), x * 100, 5, 1_000, 500)
    assert zero.wd.min() > 50  # in the units of the data


@pytest.mark.parametrize("method", ["map", "fvpd"])
def test_models_are_measured_by_weighted_base_draws(method):
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.normal(size=(500, 2)), 0.4 * rng.normal(size=(500, 2)) + 3]) * [5, 0.1]
    model = tgp.fit(x, method=method, n_features=60)
    result = evaluate(model, x, 20, 2_000, 20_000)
    assert 0 < result.effective_sample_size < 20_000
    base = tgp.GaussianBase.from_data(x)  # has sample(n, seed): the untilted rival
    rival = evaluate(base, x, 20, 2_000, 20_000)
    if method == "map":  # score matching may weigh modes that lie apart wrongly
        assert result.median[0] < 0.6 * rival.median[0]
        assert result.median[1] < 0.6 * rival.median[1]

    class Sampled:  # the same model by its own sampler
        def sample(self, n, seed):
            return model.sample(n, seed)

    sampled = evaluate(Sampled(), x, 20, 2_000, 20_000)
    noise = 4 * 0.5 * np.sqrt(1 / result.effective_sample_size + 1 / 20_000)
    assert np.abs(sampled.ks - result.ks).max() < noise
    points, weights = model._weighted_sample(500, 0)
    assert points.shape == (500, 2)
    assert weights.max() == 1.0
    tilt = model.log_density(points, normalized=False)
    u = (points - model.scaling.shift) / model.scaling.scale
    tilt = tilt - model.base.log_density(u)
    assert np.allclose(np.log(weights), tilt - tilt.max(), atol=1e-10)


def test_the_seed_decides_directions_and_draws():
    x = np.random.default_rng(5).standard_normal((200, 3))
    a, b, c = (evaluate(Rival(), x, 5, 500, 300, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(a.ks, b.ks)
    assert np.array_equal(a.wd, b.wd)
    assert not np.array_equal(a.directions, c.directions)
    blocks = evaluate(Rival(), [x[:90], x[90:]], 5, 500, 300)
    assert np.array_equal(a.ks, blocks.ks)


def test_summary_median_and_mean():
    result = Evaluation(np.array([0.1, 0.2, 0.6]), np.array([1.0, 2.0, 6.0]), np.eye(3), 10.0)
    assert result.median == (0.2, 2.0)
    assert result.mean == (pytest.approx(0.3), pytest.approx(3.0))
    lines = result.summary().splitlines()
    assert lines == ["median  KS 0.2000  WD 2.0000", "mean    KS 0.3000  WD 3.0000"]


def test_constant_data_and_rivals_are_measured():
    """No range along any direction: distances of zero, not a division by it."""

    class Constant:
        def sample(self, n, seed):
            return np.full((n, 2), 7.0)

    result = evaluate(Constant(), np.full((5, 2), 7.0), 4, 100, 50)
    assert result.ks.max() < 1e-12
    assert result.wd.max() < 1e-9


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_directions": 0}, "n_directions=0"),
        ({"n_grid": -1}, "n_grid=-1"),
        ({"n_samples": 2.5}, "n_samples=2.5"),
        ({"n_samples": True}, "n_samples=True"),
        ({"X": np.zeros((0, 3))}, "no rows"),
        ({"X": iter([np.zeros((4, 3))])}, "read only once"),
        ({"X": np.full((4, 3), np.nan)}, "nan at row 0"),
        ({"sample_weight": np.ones(3)}, "3 entries"),
    ],
)
def test_evaluate_errors(options, words):
    options = {"X": np.zeros((4, 3)), "n_directions": 3, "n_grid": 10, "n_samples": 20} | options
    with pytest.raises(ValueError, match=words):
        evaluate(Rival(), **options)


def test_evaluate_needs_something_to_sample():
    with pytest.raises(TypeError, match=r"str has no sample\(n, seed\)"):
        evaluate("model", np.zeros((4, 3)))


def test_evaluate_reads_frames_by_name_and_names_a_wrong_number_of_columns():
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(0).standard_normal((300, 2)) * [1.0, 5.0] + [0.0, 9.0]
    frame = pandas.DataFrame(x, columns=["a", "b"])
    model = tgp.fit(frame, n_features=10)
    options = {"n_directions": 5, "n_grid": 200, "n_samples": 2_000}
    want = tgp.evaluate(model, frame, **options)
    assert np.array_equal(tgp.evaluate(model, frame[["b", "a"]], **options).ks, want.ks)
    with pytest.raises(ValueError, match="3 columns, expected 2"):
        tgp.evaluate(model, np.zeros((5, 3)), **options)
