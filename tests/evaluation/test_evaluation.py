"""KS, WD, log-likelihood and Fisher score against plain computations, for models and rivals."""

import numpy as np
import oracle
import pytest
from conftest import fixed_fit, load_backend, slow
from scipy.stats import ks_2samp, multivariate_normal, wasserstein_distance

import tgpfast as tgp
from tgpfast.evaluation import evaluation
from tgpfast.evaluation.evaluation import evaluate
from tgpfast.evaluation.marginals import ProjectedCDFs
from tgpfast.evaluation.model_draws import draw_from_model

# -- evaluate -------------------------------------------------------------------------------------


class Rival:
    """Anything with sample(n, seed)."""

    def __init__(self, shift=0.0, spread=1.0, d=3):
        self.shift, self.spread, self.d = shift, spread, d

    def sample(self, n, seed):
        rng = np.random.default_rng(seed + 1_000)
        return self.shift + self.spread * rng.standard_normal((n, self.d))


def largest_jump(x, v, points, x_weights, points_weights, n_grid):
    """What KS may change by where every point moves by a step of the grid: the largest share of
    weight within one, of both."""
    a, b = x @ v, points @ v
    low, high = min(a.min(), b.min()), max(a.max(), b.max())
    found = 0.0
    for projection, weights in ((a, x_weights), (b, points_weights)):
        cell = np.floor((projection - low) / (high - low) * (n_grid - 1)).astype(int)
        mass = np.bincount(cell, weights, n_grid + 1)
        found += (mass[:-1] + mass[1:]).max() / mass.sum()
    return found


class Weighted(Rival):
    """Draws that carry weights, as the models' do."""

    def weighted_sample(self, n, seed):
        rng = np.random.default_rng(seed)
        return rng.standard_normal((n, self.d)), rng.uniform(0.1, 1.0, n)


def weighted_deviation(x, w=None):
    return np.sqrt(np.average((x - np.average(x, 0, w)) ** 2, 0, w))


@pytest.mark.parametrize("name", ["numpy", "numba", "cython"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("rival", "units"), [(Rival, "data"), (Rival, "standardized"), (Weighted, "standardized")]
)
def test_ks_and_wd_equal_the_sorted_oracle(rival, units, weighted, tied, name):
    """A grid of step h changes KS by what lies within h, and WD by h for either sample."""
    backend = load_backend(name).NAME
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 3)) * [1.0, 2.0, 0.5] + [0.3, 0.0, 0.0]
    x = np.round(x, 1) if tied else x
    w = rng.uniform(0, 2, 300) if weighted else None
    result = evaluate(
        rival(), x, n_directions=12, n_grid=20_000, n_samples=400, seed=3, sample_weight=w,
        backend=backend, n_threads=2, units=units,
    )  # fmt: skip
    drawn = draw_from_model(rival(), None, 400, 3)
    draws, weights = drawn.points, drawn.weights
    if units == "standardized":
        scale = weighted_deviation(x, w)
        np.testing.assert_allclose(result.scale, scale, rtol=1e-12)
        x, draws = x / scale, draws / scale
    assert result.ks.shape == result.wd.shape == (12,)
    assert np.allclose(np.linalg.norm(result.directions, axis=1), 1.0, rtol=1e-15)
    assert result.effective_sample_size == pytest.approx(weights.sum() ** 2 / (weights @ weights))
    along = list(zip(result.directions, result.ks, result.wd, strict=True))
    by_column = zip(np.eye(3), result.by_column, strict=True)
    for v, ks, wd in along + [(axis, column.ks, column.wd) for axis, column in by_column]:
        exact_ks, exact_wd = oracle.marginal_distances(x, draws, v, w, weights)
        a, b = x @ v, draws @ v
        step = (max(a.max(), b.max()) - min(a.min(), b.min())) / 19_999
        assert abs(ks - exact_ks) <= largest_jump(x, v, draws, w, weights, 20_000)
        assert ks <= exact_ks + 1e-12  # a grid sees no more than all points
        assert abs(wd - exact_wd) <= 2 * step
        # and scipy agrees with the oracle
        assert exact_wd == pytest.approx(wasserstein_distance(a, b, w, weights), rel=1e-9)
        if rival is Rival and not weighted:
            assert exact_ks == pytest.approx(ks_2samp(a, b).statistic, rel=1e-12)


@pytest.mark.parametrize("n_grid", [2, 50])
def test_values_on_a_lattice_are_exact(n_grid):
    """Rows on the nodes of the grid: no discretisation is left."""

    class Lattice:
        def sample(self, n, seed):
            return np.array([[0.0], [n_grid - 1.0]])

    x = np.arange(n_grid, dtype=float)[:, None]
    result = evaluate(Lattice(), x, n_directions=1, n_grid=n_grid, n_samples=2, units="data")
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
    result = evaluate(Rival(shift), x, 30, 4_000, 4_000, seed=1, units="data")
    expected = np.abs(result.directions @ shift)
    # the means of the samples err by sqrt(1/2000 + 1/4000) = 0.027; four of them, and the spread's
    assert np.abs(result.wd - expected).max() < 0.15
    zero = evaluate(Rival(x[:1] * 0), x * 100, 5, 1_000, 500, units="data")
    assert zero.wd.min() > 50  # in the units of the data
    zero = evaluate(Rival(x[:1] * 0), x * 100, 5, 1_000, 500)
    assert zero.wd.max() < 1.0  # in standard deviations


@pytest.mark.parametrize("method", [slow("map"), "fvpd"])
def test_models_are_measured_by_their_draws(method):
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.normal(size=(500, 2)), 0.4 * rng.normal(size=(500, 2)) + 3]) * [5, 0.1]
    model = fixed_fit(x, method=method, n_features=60)
    result = evaluate(model, x, 20, 2_000, 20_000)
    assert result.effective_sample_size == 20_000  # from grids: all count alike
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
    points, weights = model.weighted_sample(500, 0)
    assert points.shape == (500, 2)
    assert (weights == 1.0).all()


@pytest.mark.slow
def test_in_many_columns_models_are_measured_by_weighted_draws():
    x = np.random.default_rng(2).normal(size=(500, 4))
    x[:250] = 0.4 * x[:250] + 3.0
    model = fixed_fit(x, method="map", n_features=60)
    points, weights = model.weighted_sample(500, 0)
    assert points.shape == (500, 4)
    assert weights.max() == 1.0
    tilt = model.log_density(points, normalized=False)
    u = (points - model.scaling.shift) / model.scaling.scale
    tilt = tilt - model.base.log_density(u) + model.integrator.proposal.log_ratio(u)
    assert np.allclose(np.log(weights), tilt - tilt.max(), atol=1e-10)
    assert evaluate(model, x, 20, 2_000, 20_000).effective_sample_size < 20_000


def test_the_seed_decides_directions_and_draws():
    x = np.random.default_rng(5).standard_normal((200, 3))
    a, b, c = (evaluate(Rival(), x, 5, 500, 300, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(a.ks, b.ks)
    assert np.array_equal(a.wd, b.wd)
    assert not np.array_equal(a.directions, c.directions)


def test_the_worst_direction_is_the_one_that_is_wrong():
    """One column of four is off: the worst of 200 directions lies nearest to it."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3_000, 4)) + np.array([0.0, 0.0, 0.8, 0.0])
    worst = evaluate(Rival(d=4), x, 200, 1_000, 5_000).worst(1)[0]
    assert max(worst.vector, key=lambda k: abs(worst.vector[k])) == "x3"
    columns = evaluate(Rival(d=4), x, n_grid=1_000, n_samples=5_000, directions=np.eye(4) * 3)
    assert np.argmax(columns.ks) == 2
    np.testing.assert_array_equal(columns.directions, np.eye(4))


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("n_directions", [1, 3, 20])
def test_errors_that_are_not_known_are_left_out_of_the_text(rows, n_directions):
    """One direction, one row, a log density of -inf: no "nan" is printed."""
    x = np.random.default_rng(rows).standard_normal((rows, 2))

    class Everything(Normal):
        sample = Rival(d=2).sample

    result = evaluate(Everything(), x, n_directions, 100, 50)
    assert "nan" not in str(result)
    assert str(result).count("±") >= (0 if rows == 1 else 5)
    for worst in (*result.worst(3), *result.by_column):
        assert ("±" in str(worst)) == (rows > 1)
    assert "(1 row)" in str(result) or rows > 1
    Everything.log_density = lambda self, Y: np.full(len(Y), -np.inf)
    lost = evaluate(Everything(), x, n_directions, 100, 50)
    assert "log-likelihood  -inf (" in str(lost)
    one_draw = evaluate(Rival(d=2), x, n_directions, 100, 1)
    assert "nan" not in str(one_draw)


# -- units ----------------------------------------------------------------------------------------

SCALES = np.array([1_000.0, 1.0, 0.001])


class Narrow(Rival):
    """Wrong in the last column only, whose scale is the smallest."""

    def sample(self, n, seed):
        return (super().sample(n, seed) + np.array([0.0, 0.0, 1.0])) * SCALES


@pytest.mark.slow
def test_one_column_has_one_line():
    """All directions of one column are alike, so that the text has no worst one and no median."""
    rows = np.random.default_rng(0).normal(size=(200, 1))
    model = fixed_fit(rows)
    text = str(tgp.evaluate(model, rows, n_directions=5))
    assert sum("KS" in line for line in text.splitlines()) == 2  # of the column, and of noise
    assert "worst" not in text
    assert "worst" in str(tgp.evaluate(fixed_fit(rows.reshape(-1, 2)), rows.reshape(-1, 2),
                                       n_directions=5))  # fmt: skip


def test_a_column_of_a_small_scale_counts_as_much_as_the_others():
    x = np.random.default_rng(3).standard_normal((2_000, 3)) * SCALES
    options = {"n_directions": 50, "n_grid": 1_000, "n_samples": 4_000}
    fair, paper = (evaluate(Narrow(), x, **options, units=u) for u in ("standardized", "data"))
    assert fair.median[0] > 0.1  # a shift of one deviation: KS 0.38 along the column itself
    assert paper.median[0] < 3 * paper.noise_floor  # the widest column hides it
    worst = fair.worst(1)[0].vector
    assert max(worst, key=lambda name: abs(worst[name])) == "x3"
    for result in (fair, paper):  # the columns are measured in either case
        assert [c.name for c in result.by_column] == ["x1", "x2", "x3"]
        assert [c.ks > 0.3 for c in result.by_column] == [False, False, True]
    assert fair.by_column[2].wd == pytest.approx(1.0, rel=0.1)
    assert paper.by_column[2].wd == pytest.approx(0.001, rel=0.1)
    assert (fair.scale_source, paper.scale_source) == ("data", "none")
    np.testing.assert_array_equal(paper.scale, 1.0)


def test_standardized_results_do_not_depend_on_the_units_of_the_columns():
    """Powers of two scale without rounding."""
    x = np.random.default_rng(3).standard_normal((500, 3))
    factor = np.array([2.0**20, 1.0, 2.0**-30])

    class Scaled(Rival):
        def sample(self, n, seed):
            return super().sample(n, seed) * factor

    options = {"n_directions": 10, "n_grid": 300, "n_samples": 400}
    here, there = evaluate(Rival(), x, **options), evaluate(Scaled(), x * factor, **options)
    for name in ("ks", "wd", "ks_error", "wd_error", "directions"):
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=1e-9)
    assert [c.ks for c in here.by_column] == pytest.approx([c.ks for c in there.by_column])


def test_a_far_offset_changes_nothing():
    x = np.random.default_rng(3).standard_normal((500, 2))
    far = np.array([2.0**40, 0.0])

    class Far(Rival):
        def sample(self, n, seed):
            return super().sample(n, seed) + far

    options = {"n_directions": 10, "n_grid": 300, "n_samples": 400}
    here, there = evaluate(Rival(d=2), x, **options), evaluate(Far(d=2), x + far, **options)
    # 2^-12 is the spacing of floats at 2^40: rows move by that much, and few pass a grid point
    assert np.abs(here.wd - there.wd).max() < 1e-3
    assert np.abs(here.ks - there.ks).max() < 0.02


def test_where_the_scale_comes_from():
    """Rows where they can be read beforehand; else the model's scaling, or its draws."""
    x = np.random.default_rng(5).standard_normal((900, 2)) * [5.0, 0.1] + 3.0
    x[450:] *= 2.0
    options = {"n_directions": 4, "n_grid": 200, "n_samples": 500}
    rival = Rival(spread=np.array([7.0, 0.2]), d=2)
    for rows in (x, [x[:400], x[400:]], lambda: iter([x])):
        found = evaluate(rival, rows, **options)
        assert found.scale_source == "data"
        np.testing.assert_allclose(found.scale, x.std(axis=0), rtol=1e-12)
    drawn = evaluate(rival, iter([x]), **options)
    assert drawn.scale_source == "draws"
    np.testing.assert_allclose(drawn.scale, rival.sample(500, 0).std(axis=0), rtol=1e-12)
    model = fixed_fit(x, n_features=10)
    fitted = evaluate(model, iter([x]), **options)
    assert fitted.scale_source == "model"
    np.testing.assert_allclose(fitted.scale, x.std(axis=0), rtol=1e-12)
    same = evaluate(model, x, **options)  # the grids differ: the range of a stream is not known
    np.testing.assert_allclose(fitted.wd, same.wd, atol=0.1)
    centred = fixed_fit(x, n_features=10, scale="center")
    assert evaluate(centred, iter([x]), **options).scale_source == "draws"


def test_a_constant_column_has_the_scale_of_the_draws():
    x = np.random.default_rng(5).standard_normal((300, 2)) * [1.0, 0.0]
    rival = Rival(spread=np.array([1.0, 50.0]), d=2)
    found = evaluate(rival, x, 4, 200, 500)
    assert found.scale[1] == pytest.approx(rival.sample(500, 0)[:, 1].std())
    # E|z| of a normal is 0.8 deviations
    assert found.by_column[1].wd == pytest.approx(0.8, abs=0.1)


# -- log-likelihood and Fisher score --------------------------------------------------------------


class Normal:
    """A normal law with everything that is scored, and no sampler."""

    def __init__(self, spread=1.0):
        self.spread = spread

    def log_density(self, Y):
        return multivariate_normal(np.zeros(2), self.spread**2 * np.eye(2)).logpdf(Y)

    def grad_log_density(self, Y):
        return -Y / self.spread**2

    def laplacian_log_density(self, Y):
        return np.full(len(Y), -2.0 / self.spread**2)


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_means_over_the_rows(weighted):
    rng = np.random.default_rng(2)
    x, model = rng.standard_normal((700, 2)), Normal(1.2)
    w = rng.uniform(0, 2, 700) if weighted else None
    result = evaluate(model, x, 5, 500, 2_000, sample_weight=w, n_scored=10_000)
    values = model.log_density(x)
    assert result.log_likelihood.value == pytest.approx(np.average(values, weights=w), rel=1e-13)
    expected = oracle.fisher_score(model.grad_log_density(x), model.laplacian_log_density(x), w)
    assert result.fisher_score.value == pytest.approx(expected, rel=1e-13)
    assert result.log_likelihood.n_rows == result.fisher_score.n_rows == 700
    if not weighted:
        error = values.std(ddof=1) / np.sqrt(700)
        assert result.log_likelihood.standard_error == pytest.approx(error, rel=1e-12)
    # the law itself: -log(2 pi e) a row, and -1 for the Fisher score, within five errors
    right = evaluate(Normal(), x, 5, 500, 2_000)
    gap = abs(right.log_likelihood.value + np.log(2 * np.pi * np.e))
    assert gap < 5 * right.log_likelihood.standard_error
    assert abs(right.fisher_score.value + 1.0) < 5 * right.fisher_score.standard_error


def test_the_normaliser_is_part_of_the_error(monkeypatch):
    x = np.random.default_rng(0).standard_normal((400, 2))
    model = fixed_fit(x, n_features=20)
    plain = evaluate(model, x, 3, 100, 2_000)
    values = np.asarray(model.log_density(x))
    of_rows = values.std(ddof=1) / np.sqrt(400)
    known = model.log_normalizer.standard_error
    assert plain.log_likelihood.standard_error == pytest.approx(np.hypot(of_rows, known))
    assert plain.fisher_score.n_rows == 400
    score = oracle.fisher_score(model.grad_log_density(x), model.laplacian_log_density(x))
    assert plain.fisher_score.value == pytest.approx(score, rel=1e-12)


def test_n_scored_bounds_the_rows_and_zero_leaves_them_out():
    x = np.random.default_rng(0).standard_normal((900, 2))
    some = evaluate(Normal(), x, 3, 100, 2_000, n_scored=200)
    assert (some.log_likelihood.n_rows, some.fisher_score.n_rows) == (200, 20)
    none = evaluate(Normal(), x, 3, 100, 2_000, n_scored=0)
    assert none.log_likelihood is None
    assert none.fisher_score is None
    assert evaluate(Rival(d=2), x, 3, 100, 2_000).log_likelihood is None


# -- any object -----------------------------------------------------------------------------------


def test_a_log_density_alone_is_measured_by_weighted_draws():
    """The same law by its density and by its draws: the distances agree within their errors."""
    x = np.random.default_rng(4).standard_normal((4_000, 2)) * 1.5
    by_density = evaluate(Normal(), x, 20, 2_000, 40_000)
    by_draws = evaluate(Rival(d=2), x, 20, 2_000, 40_000, directions=by_density.directions)
    noise = np.hypot(by_density.ks_error, by_draws.ks_error)
    assert (np.abs(by_density.ks - by_draws.ks) < 5 * noise).all()
    assert 10_000 < by_density.effective_sample_size < 40_000

    class ScikitStyle:
        score_samples = staticmethod(Normal().log_density)

    again = evaluate(ScikitStyle(), x, 20, 2_000, 40_000)
    np.testing.assert_array_equal(again.ks, by_density.ks)


@pytest.mark.parametrize("style", ["random_state", "none", "tuple", "keywords"])
def test_samplers_of_other_libraries(style):
    rows = np.random.default_rng(9).standard_normal((500, 2))

    class Sampler:
        if style == "random_state":
            def sample(self, n_samples=1, random_state=None):
                assert (n_samples, random_state) == (500, 4)
                return rows
        elif style == "none":
            def sample(self, n_samples=1):
                return rows
        elif style == "tuple":
            def sample(self, n_samples=1):
                return rows, np.zeros(500, int)
        else:
            def sample(self, n, *, seed):
                assert seed == 4
                return rows.astype(np.float32).astype(float)

    result = evaluate(Sampler(), rows, 4, 1_000, 500, seed=4)
    assert result.ks.max() < 1e-6 if style != "keywords" else result.ks.max() < 0.01


def test_a_one_shot_stream_is_read_once_and_gives_the_same():
    x = np.random.default_rng(5).standard_normal((900, 3))
    once = evaluate(Rival(), iter([x[:400], x[400:]]), 6, 500, 800, units="data")
    again = evaluate(Rival(), lambda: [x[:400], x[400:]], 6, 500, 800, units="data")
    np.testing.assert_array_equal(once.ks, again.ks)
    np.testing.assert_array_equal(once.wd, again.wd)
    whole = evaluate(Rival(), x, 6, 500, 800, units="data")  # a finer grid, as its range is known
    assert np.abs(whole.wd - once.wd).max() < 2 * 10 / 499
    assert once.n_rows == 900
    with pytest.raises(ValueError, match="needs its moments"):
        evaluate(Normal(), iter([x[:, :2]]), 6, 500, 800)


def test_memory_bounds_the_directions_held_at_once(monkeypatch):
    """More directions take further passes, with the same result; a stream has only one."""
    x = np.random.default_rng(5).standard_normal((300, 3))
    want = evaluate(Rival(), x, 11, 200, 400)
    held = []
    init = ProjectedCDFs.__init__

    def watched(self, grids, *options):
        held.append(len(grids.directions))
        init(self, grids, *options)

    monkeypatch.setattr(ProjectedCDFs, "__init__", watched)
    monkeypatch.setattr(evaluation, "CDF_BYTES", 4 * 8 * 201)
    got = evaluate(Rival(), x, 11, 200, 400)
    assert max(held) == 4
    for name in ("ks", "wd", "ks_error", "wd_error"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
    assert got.n_rows == 300
    evaluate(Rival(), iter([x]), 11, 200, 400)
    assert max(held) == 11 + 3  # the columns are directions as well


def test_few_effective_draws_are_told():
    x = np.random.default_rng(0).standard_normal((500, 2))
    with pytest.warns(RuntimeWarning, match="of 20,000 draws only"):
        evaluate(Normal(0.1), x, 3, 100, 20_000)


def test_progress_is_shown(capsys):
    evaluate(Rival(), np.zeros((5, 3)), 2, 10, 20, progress=True)
    assert "100%" in capsys.readouterr().err


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
        ({"n_scored": -1}, "n_scored=-1"),
        ({"units": "standardised"}, "units='standardised': expected one of 'standardized', 'data'"),
        ({"directions": np.eye(2)}, r"shape \(2, 2\); expected \(V, 3\)"),
        ({"directions": np.zeros((2, 3))}, "length 0 at row 0"),
        ({"X": np.zeros((4, 2))}, "X has 2 columns, and the model's draws have 3"),
        ({"X": np.full((4, 3), np.nan)}, "nan at row 0"),
        ({"sample_weight": np.ones(3)}, "3 entries"),
    ],
)
def test_evaluate_errors(options, words):
    options = {"X": np.zeros((4, 3)), "n_directions": 3, "n_grid": 10, "n_samples": 20} | options
    with pytest.raises(ValueError, match=words):
        evaluate(Rival(), **options)


def test_evaluate_needs_something_to_sample():
    with pytest.raises(TypeError, match=r"str has neither sample\(n, seed\) nor log_density"):
        evaluate("model", np.zeros((4, 3)))

    class Nowhere:
        def log_density(self, Y):
            return np.full(len(Y), -np.inf)

    with pytest.raises(ValueError, match="-inf wherever"):
        evaluate(Nowhere(), np.random.default_rng(0).standard_normal((50, 2)))
    with pytest.raises(ValueError, match="column 1 is constant"):
        evaluate(Normal(), np.array([[0.0, 1.0], [1.0, 1.0], [3.0, 1.0]]))


def test_evaluate_reads_frames_by_name_and_names_a_wrong_number_of_columns():
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(0).standard_normal((300, 2)) * [1.0, 5.0] + [0.0, 9.0]
    frame = pandas.DataFrame(x, columns=["a", "b"])
    model = fixed_fit(frame, n_features=10)
    options = {"n_directions": 5, "n_grid": 200, "n_samples": 2_000}
    want = tgp.evaluate(model, frame, **options)
    assert np.array_equal(tgp.evaluate(model, frame[["b", "a"]], **options).ks, want.ks)
    with pytest.raises(ValueError, match="3 columns, expected 2"):
        tgp.evaluate(model, np.zeros((5, 3)), **options)
