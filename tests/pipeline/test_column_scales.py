"""`fit` with bent columns: walls in more than three columns, and the choice of coordinates."""

import numpy as np
import pytest

import tgpfast
from tgpfast.data.column_maps import MappedScaling
from tgpfast.data.row_sample import SAMPLE_ROWS
from tgpfast.selection import sample_split
from tgpfast.selection.scale_choice import ScaleScores, compare_scales

FIXED = {"method": "fd", "lam": 30.0, "n_features": 30, "base": "empirical", "gamma": 1.0}
SUPPORT = {0: (0.0, None), 1: (0.0, 1.0), 2: (None, 0.0)}


def make_rows(n, seed=0, d=4):
    """A half-normal column, a uniform one, an exponential one that is negative, and normals."""
    rng = np.random.default_rng(seed)
    columns = [np.abs(rng.normal(size=n)), rng.random(n), -rng.exponential(size=n)]
    return np.column_stack([*columns, rng.normal(size=(n, d - 3))])


def make_skewed(n, seed=0):
    rng = np.random.default_rng(seed)
    return np.exp(rng.normal(size=(n, 4))) @ np.diag([1.0, 3.0, 10.0, 0.1])


@pytest.mark.parametrize(("d", "scale"), [(4, "standardize"), (5, "gaussianize")])
@pytest.mark.slow
def test_walls_gain_on_held_out_rows_and_hold_all_mass(d, scale):
    held = make_rows(2_000, seed=1, d=d)
    rows = make_rows(700, d=d)
    options = {"base": "mixture", "method": "fd", "lam": 100.0, "n_features": 30, "gamma": 1.0}
    walled = tgpfast.fit(rows, support=SUPPORT, scale=scale, **options)
    free = tgpfast.fit(rows, scale="standardize", **options)
    assert walled.log_density(held).mean() > free.log_density(held).mean() + 0.1
    draws = walled.sample(2_000, seed=0)
    assert (draws[:, 0] >= 0.0).all()
    assert (draws[:, 2] <= 0.0).all()
    assert ((draws[:, 1] >= 0.0) & (draws[:, 1] <= 1.0)).all()
    assert (free.sample(2_000, seed=0)[:, 0] < 0.0).any()  # without walls there is mass beyond
    beyond = held[:3].copy()
    beyond[0, 0], beyond[1, 1], beyond[2, 2] = -0.1, 1.5, 0.2
    assert np.isneginf(walled.log_density(beyond)).all()
    assert np.isfinite(free.log_density(beyond)).all()
    assert walled.settings["support"]["1"] == [0.0, 1.0]


def test_rows_on_a_wall_are_legal_and_rows_beyond_are_named():
    rows = make_rows(500)
    rows[7, 0], rows[8, 1], rows[9, 2] = 0.0, 1.0, 0.0
    model = tgpfast.fit(rows, support=SUPPORT, **FIXED)
    assert np.isfinite(model.log_density(rows[7:10])).all()
    rows[123, 1] = 1.01
    with pytest.raises(ValueError, match=r"row 123, column 1 lies outside of its support \(0, 1\)"):
        tgpfast.fit(rows, support=SUPPORT, **FIXED)


@pytest.mark.slow
def test_a_row_beyond_that_is_not_in_the_sample_is_named_too():
    rows = make_rows(25_000)
    sampled = tgpfast.data.row_sample.choose_rows(25_000, 20_000)
    row = int(np.setdiff1d(np.arange(25_000), sampled)[-1])
    rows[row, 0] = -1.0
    with pytest.raises(ValueError, match=f"row {row}, column 0 lies outside"):
        tgpfast.fit([rows[:9_000], rows[9_000:]], support=SUPPORT, **FIXED)


def test_sources_of_the_same_rows_give_the_same_model(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = make_rows(600)
    options = {**FIXED, "scale": "gaussianize", "support": SUPPORT}
    whole = tgpfast.fit(rows, **options)
    frame = pandas.DataFrame(rows, columns=list("abcd"))
    named = tgpfast.fit(frame, **{**options, "support": {"a": (0, None), "b": (0, 1),
                                                         "c": (None, 0)}})  # fmt: skip
    np.save(tmp_path / "rows.npy", rows)
    for other in (
        tgpfast.fit([rows[:100], rows[100:]], **options),
        tgpfast.fit(lambda: iter([rows[:400], rows[400:]]), **options),
        tgpfast.fit(tmp_path / "rows.npy", **options),
    ):
        np.testing.assert_allclose(other.log_density(rows), whole.log_density(rows), atol=1e-6)
    np.testing.assert_allclose(named.log_density(frame), whole.log_density(rows), atol=1e-6)
    assert list(named.sample(3, seed=0).columns) == list("abcd")


def test_a_dask_array_gives_the_same_model():
    array = pytest.importorskip("dask.array")
    rows = make_rows(600)
    options = {**FIXED, "scale": "gaussianize", "support": SUPPORT}
    whole = tgpfast.fit(rows, **options)
    there = tgpfast.fit(array.from_array(rows, chunks=(200, 4)), **options)
    np.testing.assert_allclose(there.log_density(rows), whole.log_density(rows), atol=1e-6)
    rows[450, 0] = -2.0
    with pytest.raises(ValueError, match="row 450, column 0"):
        tgpfast.fit(array.from_array(rows, chunks=(200, 4)), **options)


def test_weights_of_two_are_rows_given_twice():
    rows, weights = make_rows(300), np.ones(300)
    weights[:100] = 2.0
    options = {**FIXED, "scale": "gaussianize", "normalize_weights": False}
    weighted = tgpfast.fit(rows, sample_weight=weights, **options)
    twice = tgpfast.fit(np.concatenate([rows, rows[:100]]), **options)
    np.testing.assert_allclose(weighted.log_density(rows), twice.log_density(rows), atol=1e-6)
    assert weighted.settings["n"] == 400.0


@pytest.mark.parametrize(
    ("options", "words"),
    [({"support": SUPPORT, "method": "ncfd"}, "ncfd"),
     ({"scale": "gaussianize", "base": tgpfast.GaussianBase(np.zeros(4), np.eye(4))}, "base"),
     ({"support": SUPPORT, "base": tgpfast.GaussianBase(np.zeros(4), np.eye(4))}, "base"),
     ({"support": {7: (0, 1)}}, "no column 7"),
     ({"scale": "gaussianise"}, "gaussianize")],
)  # fmt: skip
def test_what_does_not_go_with_bent_columns_is_refused_by_name(options, words):
    with pytest.raises(ValueError, match=words):
        tgpfast.fit(make_rows(200), **options)


def test_discrete_and_periodic_columns_are_not_bent():
    rows = make_skewed(200)
    rows[:, 1] = np.ceil(rows[:, 1])
    options = {**FIXED, "scale": "gaussianize"}
    scaling = tgpfast.fit(rows, discrete=[1], period={2: 50.0}, **options).inner.scaling
    assert [scaling.bends(k) for k in range(4)] == [True, False, False, True]
    walled = tgpfast.fit(rows, discrete=[1], support={1: (1, None)}, **options).inner.scaling
    assert walled.maps.low[1] == 0.5  # the noise reaches half a step below the wall
    assert walled.bends(1)


def test_rows_that_can_be_read_only_once_are_refused():
    rows = make_rows(300)
    moments = 300.0, rows.mean(axis=0), np.cov(rows.T)
    with pytest.raises(ValueError, match="only once"):
        tgpfast.fit(iter([rows]), scale="gaussianize", moments=moments, **FIXED)


def test_groups_refuse_to_gaussianize():
    with pytest.raises(ValueError, match="scale='gaussianize'"):
        tgpfast.fit_groups(make_rows(100), np.arange(100) % 2, scale="gaussianize")


# -- the choice -----------------------------------------------------------------------------------


def compare(x):
    d = x.shape[1]
    ends = np.full(d, -np.inf), np.full(d, np.inf)
    options = {"seed": 0, "threads": tgpfast.kernels.thread_choice.Threads()}
    return compare_scales(x, np.ones(len(x)), *ends, np.ones(d, bool), **options)


def test_skewed_columns_are_better_bent_and_a_rotated_mixture_is_not():
    skewed = compare(make_skewed(1_000))
    assert skewed.prefers_gaussianize
    # the truth: independent lognormal columns
    fresh = make_skewed(100_000, seed=1)
    scales = np.array([1.0, 3.0, 10.0, 0.1])
    logs = np.log(fresh / scales)
    truth = (-0.5 * logs**2 - 0.5 * np.log(2 * np.pi) - np.log(fresh)).sum(axis=1).mean()
    assert skewed.gaussianize == pytest.approx(truth, abs=0.5)
    rng = np.random.default_rng(0)
    spots = rng.normal(size=(3, 4))[rng.integers(0, 3, 1_000)]
    blobs = (5.0 * spots + 0.3 * rng.normal(size=(1_000, 4))) @ rng.normal(size=(4, 4))
    assert not compare(blobs).prefers_gaussianize
    assert compare(make_skewed(30)) is None
    assert not ScaleScores(1.0, 1.1, 0.2).prefers_gaussianize


@pytest.mark.slow
def test_auto_bends_skewed_columns_and_records_both_scores():
    model = tgpfast.fit(make_skewed(400), effort="fast")
    scores = model.settings["scale_scores"]
    assert model.settings["scale"] == "gaussianize"
    assert scores["gaussianize"] > scores["standardize"] + scores["gain_error"]
    held = make_skewed(1_000, seed=1)
    plain = tgpfast.fit(make_skewed(400), effort="fast", scale="standardize")
    assert plain.settings["scale"] == "standardize"
    assert "scale_scores" not in plain.settings
    assert model.log_density(held).mean() > plain.log_density(held).mean() + 0.2


@pytest.mark.parametrize(
    "given",
    [{"gamma": 1.0}, {"frequency_covariance": "identity"}, {"base": "empirical"},
     {"base": tgpfast.GaussianBase(np.full(4, 3.0), 9.0 * np.eye(4))}],
)  # fmt: skip
def test_auto_does_not_bend_where_something_is_given_in_other_coordinates(given):
    model = tgpfast.fit(make_skewed(200), effort="fast", method="fd", lam=10.0, n_features=30,
                        **given)  # fmt: skip
    assert model.settings["scale"] == "standardize"
    assert model.scaling.is_affine


@pytest.mark.slow
def test_auto_does_not_bend_up_to_three_columns_and_steps():
    few = tgpfast.fit(make_skewed(200)[:, :2], features="random", lam=10.0, n_features=30)
    assert few.scaling.is_affine
    rows = make_skewed(400)
    rows[:, 1] = np.ceil(rows[:, 1])
    with pytest.warns(tgpfast.DataWarning, match="column 1"):
        model = tgpfast.fit(rows, lam=10.0, n_features=30, effort="fast")
    assert isinstance(model.scaling, MappedScaling)
    maps = model.scaling.maps.maps
    assert len(maps[1].knots) == 2
    assert len(maps[0].knots) > 5


@pytest.mark.parametrize("base", ["empirical", "student"])
def test_bent_columns_take_no_pass_of_their_own(base):
    x, calls = np.random.default_rng(0).gamma(2.0, size=(1_500, 4)), []

    def source():
        calls.append(None)
        return iter(np.array_split(x, 3))

    options = {"method": "fd", "lam": 10.0, "gamma": 1.0, "n_features": 30}
    options |= {"base": base, "frequency_covariance": "data"}
    model = tgpfast.fit(source, scale="gaussianize", **options)
    assert model.settings["n_passes"] == len(calls) == (2 if base == "empirical" else 3)


def test_walls_take_no_pass_of_their_own_where_the_sample_is_a_part_of_the_rows():
    x, calls = np.random.default_rng(0).gamma(2.0, size=(SAMPLE_ROWS + 500, 4)), []

    def source():
        calls.append(None)
        return iter(np.array_split(x, 3))

    model = tgpfast.fit(
        source, method="fd", lam=10.0, gamma=1.0, n_features=10, base="empirical",
        frequency_covariance="data", support={0: (0.0, None)},
    )  # fmt: skip
    assert model.settings["n_passes"] == len(calls) == 2


@pytest.mark.slow
def test_tails_stay_near_the_rows_after_maps_of_walls(monkeypatch):
    """Student bases and wide guards gave a price of 4.6e7 where the largest was 217."""
    rng = np.random.default_rng(0)
    n = 600
    x = np.column_stack([
        np.exp(rng.normal(3.0, 0.7, n)), rng.beta(2.0, 3.0, n), rng.normal(size=(n, 2))
    ])  # fmt: skip
    x[:, 2] += (rng.random(n) < 0.5) * 4.0  # two clusters: mixtures have a guard
    model = tgpfast.fit(x, support={0: (0, None), 1: (0, 1)})
    drawn = model.sample(40_000, seed=1)
    assert drawn[:, 0].max() < 20.0 * x[:, 0].max()
    assert drawn[:, 0].mean() == pytest.approx(x[:, 0].mean(), rel=0.1)
    # beta(2, 3) has 6e-8 of its mass below 1e-4
    assert (drawn[:, 1] > 1e-5).all()
    near_wall = np.tile(x[:1], (7, 1))
    near_wall[:, 1] = 0.4, 1e-2, 1e-3, 1e-5, 1e-8, 1e-15, 1e-30
    assert (np.diff(model.log_density(near_wall)) < -1.0).all()  # beta(2, 3) is 0 at the wall
    # negative control: a guard of twice the deviation has a pole there
    with monkeypatch.context() as patch:
        patch.setattr(sample_split, "MAPPED_GUARD", 0.4)
        wide = tgpfast.fit(x, support={0: (0, None), 1: (0, 1)})
    assert (np.diff(wide.log_density(near_wall)) > 0.0).any()
