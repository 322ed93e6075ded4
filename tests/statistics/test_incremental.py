"""Streams: rows added to statistics and models, decay, and files that survive a crash."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
from conftest import FIXED, doctored, fixed_fit, slow

import tgpfast as tgp
from tgpfast.data import storage
from tgpfast.statistics import statistics
from tgpfast.statistics.feature_means import FeatureMeans

EPS = np.finfo(np.float64).eps
LEVELS = (0.0, 0.5)
SUMS = ("n", "sum_w2", "sum_x", "sum_xx", "sum_phi", "sum_dphi", "sum_dphi_x", "gram", "gram_phi",
        "noise_gram", "noise_sum_phi", "noise_sum_dphi", "noise_sum_dphi_x")  # fmt: skip
OPTIONS = {"noise_levels": LEVELS, "gram_phi": True, "origin": [0.5, 0.5, 0.5, 0.5]}


def make_data(n=300, d=4, seed=0):
    x = np.random.default_rng(seed).standard_normal((n, d))
    x[: n // 3] = 0.4 * x[: n // 3] + 1.0
    return x


def make_weights(n, seed=5):
    return np.random.default_rng(seed).uniform(0.1, 2.0, n)


FEATURES = tgp.Features.draw(12, 0.9, np.eye(4), seed=0)


def accumulated(x, **options):
    return tgp.accumulate(x, FEATURES, precision="float64", **{**OPTIONS, **options})


def assert_close(a, b, rows=1000):
    """Sums of up to ``rows`` terms taken in another order, each of a few roundings."""
    assert a.fingerprint == b.fingerprint
    for name in SUMS:
        got, want = np.asarray(getattr(a, name)), np.asarray(getattr(b, name))
        scale = max(1.0, float(b.n)) * (10.0 if "x" in name else 4.0)  # terms are below 10
        assert np.abs(got - want).max() <= 10 * EPS * np.sqrt(rows) * scale, name


# -- stats += rows --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["array", "frame", "pair", "blocks", "statistics", "path", "text"])
def test_rows_are_added_to_statistics(kind, tmp_path):
    """In every form that ``accumulate`` takes, with the features and options of the statistics."""
    x, w = make_data(), None
    stats = before = accumulated(x[:200])
    if kind == "array":
        stats += x[200:]
    elif kind == "frame":
        stats += pytest.importorskip("pandas").DataFrame(x[200:], columns=list("abcd"))
    elif kind == "pair":
        w = make_weights(100)
        stats += (x[200:], w)
    elif kind == "blocks":
        stats += iter([x[200:250], x[250:]])
    elif kind in ("path", "text"):
        np.save(tmp_path / "x.npy", x[200:])
        stats += tmp_path / "x.npy" if kind == "path" else str(tmp_path / "x.npy")
    else:
        stats += accumulated(x[200:])
    weights = None if w is None else np.concatenate([np.ones(200), w])
    assert_close(stats, accumulated(x, sample_weight=weights))
    assert stats.n_rows == 300
    assert before.n_rows == 200  # models may hold the old ones


def test_a_stream_of_blocks_is_the_whole():
    x = make_data()
    stats = tgp.Statistics.zero(FEATURES, **OPTIONS)
    for start in range(0, 300, 37):
        stats += x[start : start + 37]
    assert_close(stats, accumulated(x))


def test_added_rows_keep_the_best_accuracy_so_far(monkeypatch):
    """Rows are added with the best precision and tolerance of the statistics."""
    asked = []
    def spy(*args, **options):
        asked.append((options["precision"], options.get("tolerance")))
        return tgp.accumulate(*args, **options)

    monkeypatch.setattr(statistics, "_accumulators", [spy])
    x = make_data(60)
    mixed = tgp.accumulate(x, FEATURES, precision="mixed")
    mixed += x
    both = tgp.accumulate(x, FEATURES, precision="float64") + tgp.accumulate(
        x, FEATURES, precision="mixed"
    )
    both += x
    assert asked == [("mixed", None), ("float64", None)]


@pytest.mark.parametrize("other", [1, 0.0, None, {}, {1}])
def test_only_rows_and_statistics_are_added(other):
    stats = accumulated(make_data(20))
    with pytest.raises(TypeError):
        stats += other


def test_bad_rows_are_named():
    stats = before = accumulated(make_data(20))
    with pytest.raises(ValueError, match="has 3 columns, expected 4"):
        stats += np.zeros((5, 3))
    bad = make_data(20)
    bad[7, 2] = np.nan
    with pytest.raises(ValueError, match="row 7, column 2"):
        stats += bad
    assert stats is before


def test_statistics_with_a_base_say_how_to_add_rows():
    x = make_data(100)
    base = tgp.MixtureBase([0.5, 0.5], np.zeros((2, 4)), [np.eye(4), 2 * np.eye(4)])
    stats = tgp.accumulate(x, FEATURES, base=base)
    with pytest.raises(ValueError, match=r"add accumulate\(rows, features, base=base\)"):
        stats += x
    stats += tgp.accumulate(x, FEATURES, base=base)
    assert stats.n_rows == 200


# -- decay ----------------------------------------------------------------------------------------


def test_decay_gives_powers_as_weights():
    """The k-th block before the last has weight 0.9^k."""
    x = make_data()
    stats = tgp.Statistics.zero(FEATURES, **OPTIONS)
    for start in range(0, 300, 50):
        stats = stats.decay(0.9)
        stats += x[start : start + 50]
    weights = np.repeat(0.9 ** np.arange(5, -1, -1), 50)
    want = accumulated(x, sample_weight=weights)
    assert_close(stats, want)
    assert stats.n == pytest.approx(weights.sum(), rel=1e-14)
    assert stats.sum_w2 == pytest.approx((weights**2).sum(), rel=1e-14)
    assert stats.n_rows == 300


def test_a_wrong_power_fails():
    """Negative control of the comparison above: sum_w2 times the factor, not its square."""
    a = accumulated(make_data())
    b = a.decay(0.9)
    object.__setattr__(b, "sum_w2", 0.9 * a.sum_w2)
    with pytest.raises(AssertionError):
        assert_close(b, accumulated(make_data(), sample_weight=np.full(300, 0.9)))


def test_decay_of_optional_sums():
    """Sums that are None stay None; the sums of a base's scores decay like the others."""
    base = tgp.MixtureBase([0.5, 0.5], np.zeros((2, 4)), [np.eye(4), 2 * np.eye(4)])
    stats = tgp.accumulate(make_data(50), FEATURES, base=base)
    faded = stats.decay(0.5)
    assert faded.gram_phi is None
    assert faded.noise_gram is None
    assert np.array_equal(faded.sum_dphi_score, 0.5 * stats.sum_dphi_score)
    assert faded.score_base == stats.score_base
    assert stats.decay(1.0) is stats


@pytest.mark.parametrize("factor", [0.0, -0.5, 1.1, np.nan, np.inf, "x", [0.5]])
def test_bad_decay_is_refused(factor):
    stats = accumulated(make_data(20))
    model = tgp.solve(stats, tgp.GaussianBase(np.zeros(4), np.eye(4)))
    for run in (lambda: stats.decay(factor), lambda: model.update(make_data(5), decay=factor)):
        with pytest.raises((ValueError, TypeError), match="decay"):
            run()


def test_a_fold_can_be_subtracted():
    """Total minus fold, after more rows were added."""
    x = make_data()
    fold = accumulated(x[:50])
    stats = fold + accumulated(x[50:200])
    stats += x[200:]
    assert_close(stats - fold, accumulated(x[50:]))


# -- models ---------------------------------------------------------------------------------------

SETTINGS = {"n_features": 12, "gamma": 0.9, "lam": 1.0, "scale": "none", "engine": "direct",
            "frequency_covariance": "identity", "precision": "float64"}  # fmt: skip


def agreement(model, stats):
    """Largest difference of theta (or m): condition of the system times rounding of its sums."""
    return 100 * EPS * np.sqrt(stats.n) * model.diagnostics["condition"]


@pytest.mark.parametrize("method", ["fd", "ncfd", "fvpd", "map"])
def test_an_updated_model_is_that_of_all_rows(method):
    """Coefficients and base are those of a fit to all rows; the old model does not change."""
    x = make_data(d=2)
    settings = {**SETTINGS, "method": method, "sigma_max": 0.5, "n_noise_levels": 2}
    model, whole = fixed_fit(x[:200], **settings), fixed_fit(x, **settings)
    before = model.base.mean.copy()
    new = model.update(x[200:])
    assert np.abs(new.base.mean - whole.base.mean).max() < 1e-13
    assert np.abs(new.base.covariance - whole.base.covariance).max() < 1e-13
    if method == "fvpd":
        assert new.m == pytest.approx(whole.m, rel=1e-10, abs=1e-11)
        np.testing.assert_allclose(new.M, whole.M, rtol=1e-10, atol=1e-9)
    elif method == "map":  # both iterate until the gradient is small
        assert new.theta == pytest.approx(whole.theta, rel=1e-6, abs=1e-7)
    else:
        gap = np.linalg.norm(new.theta - whole.theta) / np.linalg.norm(whole.theta)
        assert gap <= agreement(whole, new.statistics)
        assert np.linalg.norm(new.theta - model.theta) > 1e-3 * np.linalg.norm(whole.theta)
    assert (new.statistics.n_rows, new.settings["n"], new.settings["n_rows"]) == (300, 300.0, 300)
    assert new.settings["updates"] == 1
    assert new.method == method
    assert model.statistics.n_rows == 200
    assert np.array_equal(model.base.mean, before)


def test_updates_keep_scaling_and_names_of_columns():
    """New rows are given in the units of the data, and frames by the names of their columns."""
    pandas = pytest.importorskip("pandas")
    x = 100.0 + 20.0 * make_data(d=2)
    frame = pandas.DataFrame(x, columns=["a", "b"])
    model = fixed_fit(frame[:200], n_features=12)
    new = model.update(frame[200:][["b", "a"]])
    u = model.scaling.apply(x)
    stats = tgp.accumulate(u, model.features, origin=model.statistics.origin)
    base = tgp.GaussianBase.from_data(u)
    want = tgp.solve(stats, base, lam=model.settings["lam"])
    gap = np.linalg.norm(new.theta - want.theta) / np.linalg.norm(want.theta)
    assert gap <= agreement(want, stats)
    assert new.scaling is model.scaling
    assert list(new.sample(3).columns) == ["a", "b"]
    assert new.settings["scale"] == "standardize"
    values = new.log_density(frame[:5])
    assert np.isfinite(values).all()


def test_decay_in_an_update():
    """Twice 0.5: the first rows weigh a quarter."""
    x = make_data()
    model = fixed_fit(x[:100], **SETTINGS)
    new = model.update(x[100:200], decay=0.5).update(x[200:], decay=0.5)
    weights = np.repeat([0.25, 0.5, 1.0], 100)
    assert new.statistics.n == pytest.approx(175.0, rel=1e-14)
    base = tgp.GaussianBase.from_data(x, sample_weight=weights)
    stats = tgp.accumulate(
        x, model.features, sample_weight=weights, origin=model.statistics.origin
    )
    want = tgp.solve(stats, base, lam=1.0)
    gap = np.linalg.norm(new.theta - want.theta) / np.linalg.norm(want.theta)
    assert gap <= agreement(want, stats)
    assert (new.settings["updates"], new.settings["decay"]) == (2, 0.5)


def test_the_number_of_rows_that_count_converges():
    """m / (1 - decay), as the docstring says."""
    model = fixed_fit(make_data(100), **SETTINGS)
    for k in range(60):
        model = model.update(make_data(100, seed=k), decay=0.8)
    assert model.statistics.n == pytest.approx(500.0, rel=0.8**60)
    assert model.statistics.n_rows == 6_100


@pytest.mark.slow
@pytest.mark.parametrize("normalize", [True, False])
def test_weights_of_an_update_are_those_of_fit(normalize):
    """Rescaled so that all weights sum to Kish's number of rows, unless ``fit`` was told not to:
    however the rows are cut, and whether the first had weights or not."""
    x, weights = make_data(), 7.0 * make_weights(300)
    options = {"normalize_weights": normalize, **SETTINGS}
    for first in (None, weights[:200]):
        known = np.concatenate([np.ones(200) if first is None else first, weights[200:]])
        n = known.sum() ** 2 / (known @ known) if normalize else known.sum()
        for cut in (100, 10, 1):
            model = fixed_fit(x[:200], sample_weight=first, **options)
            for start in range(200, 300, cut):
                part = slice(start, start + cut)
                model = model.update(x[part], sample_weight=weights[part])
            assert model.statistics.n == pytest.approx(n, rel=1e-12)
            assert model.settings["weights"] == ("Kish" if normalize else "as given")
            assert model.settings["updates"] == 100 // cut
    assert fixed_fit(x, sample_weight=known, **options).settings["n"] == pytest.approx(n, rel=1e-13)


def test_decayed_rows_are_not_rescaled():
    """Kish's rule applies to given weights, not to decay."""
    x = make_data()
    model = fixed_fit(x[:200], **SETTINGS).update(x[200:], decay=0.5)
    assert model.statistics.n == 200.0
    assert model.settings["weights"] == "none"
    assert model.settings["weight_factor"] == 1.0


def test_a_given_base_is_kept():
    x = make_data()
    base = tgp.GaussianBase(np.zeros(4), 2.0 * np.eye(4))
    assert fixed_fit(x[:200], **{**SETTINGS, "base": base}).update(x[200:]).base.mean.any() == 0
    model = tgp.solve(accumulated(x[:200]), base)
    assert model.update(x[200:]).base is base


@pytest.mark.parametrize("kind", ["mixture", "student"])
def test_a_base_of_another_kind_is_kept_with_its_scores(kind):
    x = make_data(400)
    model = fixed_fit(x[:300], **{**SETTINGS, "base": kind})
    new = model.update(x[300:])
    assert new.base is model.base
    stats = tgp.accumulate(
        x, model.features, origin=model.statistics.origin, base=model.base, precision="float64"
    )
    want = tgp.solve(stats, model.base, lam=1.0)
    gap = np.linalg.norm(new.theta - want.theta) / np.linalg.norm(want.theta)
    assert gap <= agreement(want, stats)


def test_models_without_statistics_cannot_be_updated():
    x = make_data()
    model = fixed_fit(x, **SETTINGS)
    model.statistics = None
    with pytest.raises(ValueError, match=r"save\(path, statistics=True\)"):
        model.update(x)
    with pytest.raises(ValueError, match="does not hold its statistics"):
        model.save("nowhere.npz", statistics=True)


def test_an_update_of_a_base_alone():
    """A mixture is kept, with a warning; a Gaussian is computed again from all moments."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-3.0, 0.3, (150, 2)), rng.normal(3.0, 0.3, (150, 2))])
    normal = rng.normal(size=x.shape)
    for base, rows, is_kept in (("mixture", x, True), ("empirical", normal, False)):
        model = fixed_fit(rows, base=base, n_features=10, lam="auto")
        assert model.method == "base"
        if is_kept:
            with pytest.warns(RuntimeWarning, match="base alone, .* Fit again"):
                new = model.update(x + 20.0)
        else:
            new = model.update(x + 20.0)
        assert (new.base is model.base) == is_kept
        assert new.settings["n"] == 600
    tilted = fixed_fit(x, base="mixture", n_features=10, lam=1.0)
    assert not np.array_equal(tilted.update(x[:50] + 0.1).theta, tilted.theta)  # and no warning


def test_map_keeps_its_nodes(tmp_path):
    """Other nodes would move the optimum by more than a few rows do."""
    x = make_data(400)
    base = tgp.GaussianBase.from_data(x)
    stats = tgp.accumulate(x, FEATURES, precision="float64")
    model = tgp.solve(stats, base, "map", lam=10.0, n_draws=700)
    assert model.diagnostics["n_nodes"] == 700
    assert model.update(x[:1]).diagnostics["n_nodes"] == 700
    given = tgp.solve(stats, base, "map", lam=10.0, n_draws=np.int64(700))
    given.save(tmp_path / "m.npz", statistics=True)
    assert tgp.load(tmp_path / "m.npz").update(x[:1]).diagnostics["n_nodes"] == 700


@pytest.mark.slow
def test_map_from_sums_of_features_is_updated_by_them(tmp_path):
    """The base stays; theta is that of the sums over all rows, those before decayed; and the sums
    are saved and loaded with the model."""
    x = make_data()
    quick = fixed_fit(x[:200], **{**SETTINGS, "method": "map", "engine": "auto"})
    assert isinstance(quick.statistics, FeatureMeans)
    quick.save(tmp_path / "model.npz", statistics=True)
    again = tgp.load(tmp_path / "model.npz")
    assert again.statistics.sum_phi.tobytes() == quick.statistics.sum_phi.tobytes()
    assert again.statistics.n_rows == 200
    new, same = (m.update(x[200:], decay=0.5) for m in (quick, again))
    assert new.base is quick.base
    assert np.array_equal(new.theta, same.theta)
    u = quick.scaling.apply(x)
    old, late = oracle_phi(quick.features, u[:200]), oracle_phi(quick.features, u[200:])
    want = 0.5 * old.sum(axis=0) + late.sum(axis=0)
    np.testing.assert_allclose(new.statistics.sum_phi, want, rtol=0, atol=1e-12 * len(x))
    assert new.statistics.n == 0.5 * 200 + len(x) - 200
    assert np.abs(new.theta - quick.theta).max() > 1e-3  # control: the update has an effect


def oracle_phi(features, u):
    """sqrt(2 / S) cos(z . u / gamma + c), (n, S)."""
    angles = u @ features.frequencies.T / features.bandwidth + features.phases
    return np.sqrt(2.0 / features.n_features) * np.cos(angles)


def test_bad_rows_leave_the_model_as_it_was():
    x = make_data()
    model = fixed_fit(x, **SETTINGS)
    theta = model.theta.copy()
    bad = x[:10].copy()
    bad[3, 1] = np.inf
    with pytest.raises(ValueError, match="row 3, column 1"):
        model.update(bad)
    with pytest.raises(ValueError, match="has 2 columns, expected 4"):
        model.update(x[:, :2])
    assert np.array_equal(model.theta, theta)
    assert model.statistics.n_rows == 300


# -- conjugate gradients --------------------------------------------------------------------------


def cg_case():
    """Statistics before and after a few more rows, ill-conditioned enough for many steps."""
    x = make_data(3_000, 2)
    features = tgp.Features.draw(60, 0.4, np.eye(2), seed=0)
    base = tgp.GaussianBase.from_data(x)
    parts = (x[:2_990], x[2_990:])
    first, more = (tgp.accumulate(part, features, engine="direct") for part in parts)
    return first, first + more, base


def test_a_good_start_saves_steps():
    first, total, base = cg_case()
    before = tgp.solve(first, base, lam=0.1, solver="cg")
    cold = tgp.solve(total, base, lam=0.1, solver="cg")
    warm = tgp.solve(total, base, lam=0.1, solver="cg", start=before.theta)
    there = tgp.solve(total, base, lam=0.1, solver="cg", start=cold.theta)
    steps = [m.diagnostics["steps"] for m in (cold, warm, there)]
    assert steps[2] <= 1 < steps[1] < steps[0]
    gap = np.linalg.norm(warm.theta - cold.theta) / np.linalg.norm(cold.theta)
    assert gap <= 4e-12 * cold.diagnostics["condition"]  # both stop at a residual of 1e-12


def test_an_update_starts_at_the_old_theta():
    """It takes fewer steps than an update that starts at zero."""
    x = make_data(3_000, 2)
    settings = {**SETTINGS, "n_features": 60, "gamma": 0.4, "lam": 0.1, "solver": "cg",
                "base": tgp.GaussianBase.from_data(x)}  # fmt: skip
    model = fixed_fit(x[:2_990], **settings)
    new = model.update(x[2_990:])
    model.tilt.theta[:] = 0.0
    forgetful = model.update(x[2_990:])
    assert new.diagnostics["solver"] == "cg"
    assert new.diagnostics["steps"] < forgetful.diagnostics["steps"]


@pytest.mark.parametrize("start", [np.zeros(3), np.full(12, np.nan), np.zeros((12, 1)), "x"])
def test_a_bad_start_is_named(start):
    with pytest.raises((ValueError, TypeError), match="start"):
        tgp.solve(accumulated(make_data(20)), tgp.GaussianBase(np.zeros(4), np.eye(4)), start=start)


# -- snapshots ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fd", "ncfd", "fvpd"])
def test_a_model_saved_with_its_statistics_can_be_updated(method, tmp_path):
    """The same bits as without saving; a file without statistics is smaller, and is not updated."""
    x = make_data()
    model = fixed_fit(x[:200], method=method, n_features=12)
    model.save(tmp_path / "with.npz", statistics=True)
    model.save(tmp_path / "without.npz")
    again = tgp.load(tmp_path / "with.npz")
    for name in SUMS:
        mine, theirs = getattr(model.statistics, name), getattr(again.statistics, name)
        assert (mine is None) == (theirs is None)
        assert mine is None or np.array_equal(mine, theirs), name
    assert np.array_equal(
        again.update(x[200:]).log_density(x, normalized=False),
        model.update(x[200:]).log_density(x, normalized=False),
    )
    bare = tgp.load(tmp_path / "without.npz")
    assert bare.statistics is None
    assert os.path.getsize(tmp_path / "without.npz") < os.path.getsize(tmp_path / "with.npz")
    with pytest.raises(ValueError, match="does not hold the statistics"):
        bare.update(x)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"statistics_gram": None}, "lacks 'gram'"),
        ({"statistics_gram": lambda a: a[:-1]}, "'gram'"),
        ({"statistics_other": np.zeros(2)}, "unexpected"),
        ({"header.statistics": {"n": 1.0}}, "damaged"),
        ({"header.statistics": 3}, "damaged"),
    ],
)
def test_doctored_statistics_of_a_model_are_refused(changes, words, tmp_path):
    fixed_fit(make_data(), n_features=12).save(tmp_path / "model.npz", statistics=True)
    doctored(tmp_path / "model.npz", changes)
    with pytest.raises(ValueError, match=words):
        tgp.load(tmp_path / "model.npz")


def things():
    """One of each kind that is saved."""
    x = make_data(100, 2)
    model = tgp.fit(x, **{**FIXED, "n_features": 8})
    made = {"model": model, "statistics": model.statistics}
    if importlib.util.find_spec("finufft") is not None:
        made["spectrum"] = tgp.Spectrum.from_data(x, 5.0)
    return made


class Broken:
    """A file that fails after some bytes: by an error, or by the end of the process."""

    def __init__(self, file, limit, act):
        self.file, self.left, self.act = file, limit, act

    def write(self, data):
        size = len(memoryview(data).cast("B"))
        if size >= self.left:
            self.file.write(memoryview(data).cast("B")[: self.left])
            self.file.flush()
            self.act()
        self.left -= size
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()


def full():
    raise OSError("no space left on device")


@pytest.mark.parametrize("limit", [1, 300, 1_500])
def test_a_write_that_fails_half_way_leaves_the_old_file(limit, tmp_path, monkeypatch):
    """The old file is complete, and what had been written is removed."""
    real = os.fdopen
    for kind, thing in things().items():
        path = tmp_path / f"{kind}.npz"
        thing.save(path)
        before = path.read_bytes()
        assert limit < len(before)
        monkeypatch.setattr(
            storage.os, "fdopen", lambda fd, mode: Broken(real(fd, mode), limit, full)
        )
        with pytest.raises(OSError, match="no space left"):
            thing.save(path)
        monkeypatch.undo()
        assert path.read_bytes() == before
        assert not list(tmp_path.glob("*.part"))
        tgp.load(path)


CHILD = """
import os, signal, sys
sys.path[:0] = os.environ["TESTS"].split(os.pathsep)
import numpy as np, tgpfast as tgp
from tgpfast.data import storage
from test_incremental import Broken
stats = tgp.load(sys.argv[1])
stats += np.zeros((5, 4))
real = os.fdopen
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
storage.os.fdopen = lambda fd, mode: Broken(real(fd, mode), int(sys.argv[2]), die)
stats.save(sys.argv[1])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")
def test_a_process_killed_while_it_writes_leaves_the_old_file(tmp_path):
    """It kills itself in the middle of the bytes, so that nothing can be cleaned up."""
    path = tmp_path / "stats.npz"
    accumulated(make_data(20)).save(path)
    before = path.read_bytes()
    folder = os.path.dirname(os.path.abspath(__file__))
    environment = {**os.environ, "TESTS": os.pathsep.join([folder, os.path.dirname(folder)])}
    environment["PYTHONPATH"] = os.pathsep.join(
        [os.path.dirname(os.path.dirname(tgp.__file__)), environment.get("PYTHONPATH", "")]
    )
    run = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), str(len(before) // 2)], env=environment,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert path.read_bytes() == before
    (rest,) = tmp_path.glob("*.part")  # control: the process died while writing
    assert 0 < rest.stat().st_size < len(before)
    stats = tgp.load(path)
    stats += make_data(10)
    stats.save(path)
    assert tgp.load(path).n_rows == 30


def test_writing_in_place_fails_this_test(tmp_path, monkeypatch):
    """Negative control: a save that opens the file itself loses it."""

    @contextlib.contextmanager
    def in_place(target):
        with open(target, "wb") as file:
            yield Broken(file, 500, full)

    stats = accumulated(make_data(20))
    path = tmp_path / "stats.npz"
    stats.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(storage, "replacing", in_place)
    with pytest.raises(OSError, match="no space left"):
        stats.save(path)
    assert path.read_bytes() != before
    with pytest.raises(ValueError, match="damaged"):
        tgp.load(path)


@pytest.mark.parametrize("size", [slow(1e5), 1e9])
def test_an_update_with_an_outlier_ends(size):
    """The base's covariance, and with it the normalizer's grid, follow the outlier: the nodes stay
    within their number, or the update says what is wrong."""
    x = np.random.default_rng(0).standard_normal((400, 2))
    model = fixed_fit(x, n_features=20)
    row = np.array([[size, 0.0]])
    if size > 1e6:
        with pytest.raises(ValueError, match=r"cannot update.*gamma=.*Remove outliers, or fit"):
            model.update(row)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the normalizer may be poor
        normalizer = model.update(row).log_normalizer
    assert np.isfinite(normalizer.value)
    assert normalizer.n_points <= 2**23
