"""Files of densities: every number comes back bit by bit, and damaged files are refused."""

import pickle
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
from conftest import doctored, fixed_fit, slow

import tgpfast as tgp

METHODS = ("fd", "ncfd", "fvpd", slow("map"))
UNITS = np.array([3.0, 0.02])


def rows(n=300, seed=0):
    """Two clusters, correlated."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2))
    x[: n // 3] = 0.4 * x[: n // 3] + 1.8
    return x @ [[1.0, 0.0], [0.3, 1.0]]



@pytest.mark.parametrize("frame", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_round_trip_is_exact(method, known, frame, tmp_path):
    """Every number comes back bit by bit, and so every result."""
    x = rows() * UNITS
    x = pd.DataFrame(x, columns=["u", "v"]) if frame else x
    model = fixed_fit(x, method=method, n_features=20)
    if known:
        assert model.log_normalizer.value != 0
    path = tmp_path / "model.npz"
    model.save(path)
    other = tgp.load(path)
    assert isinstance(other, tgp.Density)
    assert (other.integrator.known_normalizer is not None) == known
    if method == "fvpd":
        assert np.array_equal(model.tilt.factor, other.tilt.factor)
        assert np.array_equal(model.m, other.m)
        assert np.array_equal(model.M, other.M)
    else:
        assert np.array_equal(model.theta, other.theta)
    for name in ("frequencies", "phases", "bandwidth", "covariance", "seed"):
        assert np.array_equal(getattr(model.features, name), getattr(other.features, name)), name
    for name in ("mean", "covariance", "cholesky"):
        assert np.array_equal(getattr(model.base, name), getattr(other.base, name)), name
    assert np.array_equal(model.tilt.origin, other.tilt.origin)
    assert np.array_equal(model.scaling.shift, other.scaling.shift)
    assert np.array_equal(model.scaling.scale, other.scaling.scale)
    assert other.method == method
    assert other.settings == model.settings
    assert other.diagnostics == model.diagnostics
    assert other.table.columns == model.table.columns == (["u", "v"] if frame else None)
    assert other.table.kind == model.table.kind
    assert other.log_normalizer == model.log_normalizer
    assert np.array_equal(other.log_density(x), model.log_density(x))
    draws, again = model.sample(20, seed=1), other.sample(20, seed=1)
    assert type(draws) is type(again)
    assert np.array_equal(draws, again)
    twice = tmp_path / "twice.npz"
    other.save(twice)
    assert np.array_equal(tgp.load(twice).log_density(x), model.log_density(x))


@pytest.mark.parametrize("base", ["learned", slow("scaled")])
def test_models_of_other_bases_and_solved_ones_are_saved_too(base, tmp_path):
    path = tmp_path / "m.npz"
    model = fixed_fit(rows(), n_features=15, base=base)
    model.save(path)
    assert tgp.load(path).settings == model.settings
    x = rows()
    features, center = tgp.Features.draw(6, 0.7, np.eye(2), seed=1), tgp.GaussianBase.from_data(x)
    stats = tgp.accumulate(x, features, noise_levels=(0.0, 0.3, 0.6), origin=center.mean)
    noisy = tgp.solve(stats, center, "ncfd", lam=1.0).at_noise(0.5)
    noisy.save(path)
    assert np.array_equal(tgp.load(path).log_density(x), noisy.log_density(x))


def test_a_file_of_statistics_is_loaded_as_statistics(tmp_path):
    path = tmp_path / "s.npz"
    features = tgp.Features.draw(5, 1.0, np.eye(2), seed=0)
    tgp.accumulate(rows(), features).save(path)
    assert isinstance(tgp.load(path), tgp.Statistics)


def spoiled(index, value):
    def change(array):
        array = array.copy()
        array[index] = value
        return array

    return change


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Files of a point model and of an FVPD model."""
    folder = tmp_path_factory.mktemp("models")
    paths = {}
    for method in ("fd", "fvpd"):
        paths[method] = folder / f"{method}.npz"
        fixed_fit(rows(), method=method, n_features=6).save(paths[method])
    return paths


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "changes", "words"),
    [
        ("fd", {"theta": spoiled(2, np.nan)}, "theta must be finite"),
        ("fd", {"theta": np.zeros(5)}, "'theta' is float64"),
        ("fd", {"theta": lambda a: a.astype(np.float32)}, "'theta' is float32"),
        ("fd", {"theta": None}, "lacks 'theta'"),
        ("fd", {"frequencies": lambda a: a.ravel()}, "frequencies"),
        ("fd", {"frequencies": spoiled((0, 0), np.inf)}, "finite"),
        ("fd", {"phases": lambda a: a[:-1]}, "'phases'"),
        ("fd", {"scale": spoiled(0, -1.0)}, "scale positive"),
        ("fd", {"scale": spoiled(0, 0.0)}, "scale positive"),
        ("fd", {"scale": spoiled(0, np.nan)}, "scale positive"),
        ("fd", {"shift": spoiled(1, np.nan)}, "finite"),
        ("fd", {"origin": spoiled(1, np.inf)}, "finite"),
        ("fd", {"mean": spoiled(0, np.nan)}, "mean must be finite"),
        ("fd", {"base_covariance": lambda a: -a}, "positive definite"),
        ("fd", {"base_covariance": spoiled((0, 1), 0.9)}, "symmetric"),
        ("fd", {"extra": np.zeros(2)}, r"unexpected members \['extra'\]"),
        ("fd", {"factor": np.zeros(21)}, "unexpected members"),
        ("fd", {"header.bandwidth": -1.0}, "bandwidth"),
        ("fd", {"header.bandwidth": None}, "bandwidth"),
        ("fd", {"header.settings": 3}, "damaged"),
        ("fd", {"header.normalizer": {"value": 1.0}}, "damaged"),
        ("fd", {"header.method": "fvpd"}, "lacks 'm'"),
        ("fd", {"header.kind": "statistics"}, "lacks"),
        ("fd", {"header.kind": "forest"}, "'forest', which this tgpfast does not know"),
        ("fd", {"header.version": 2}, "format version 2.*upgrade"),
        ("fd", {"header.version": "new"}, "damaged header"),
        ("fd", {"header.version": 0}, "damaged header"),
        ("fd", {"header.method": "forest"}, "'forest' is not known"),
        ("fd", {"scale": spoiled(0, np.inf)}, "scale positive"),
        ("fd", {"header.columns": ["a"]}, "2 names"),
        ("fd", {"header.columns": "ab"}, "2 names"),
        ("fd", {"header.kind_of_table": "os"}, "kind of table 'os'"),
        ("fd", {"header.seed": "seven"}, "seed"),
        ("fd", {"header.normalizer": {
            "value": "high", "standard_error": 0.1, "effective_sample_size": 9.0,
            "method": "sobol", "n_points": 3}}, "not a number"),
        ("fvpd", {"m": spoiled(0, np.nan)}, "m must be finite"),
        ("fvpd", {"factor": spoiled(0, 0.0)}, "positive diagonal"),
        ("fvpd", {"factor": spoiled(3, np.nan)}, "finite"),
        ("fvpd", {"factor": lambda a: a[:-1]}, "'factor'"),
        ("fvpd", {"m": lambda a: a[:-1]}, "'m'"),
        ("fvpd", {"header.method": "fd"}, "lacks 'theta'"),
    ],
)
def test_doctored_files_are_refused(method, changes, words, saved, tmp_path):
    path = tmp_path / "doctored.npz"
    path.write_bytes(saved[method].read_bytes())
    doctored(path, {})
    assert tgp.load(path).method == method  # rewriting alone does no harm
    doctored(path, changes)
    with pytest.raises(ValueError, match=words) as caught:
        tgp.load(path)
    assert "doctored.npz" in str(caught.value)


def test_truncated_and_foreign_files_are_refused(saved, tmp_path):
    path, whole = tmp_path / "x.npz", saved["fvpd"].read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"x\.npz"):
            tgp.load(path)
    np.savez(path, a=np.zeros(3))
    with pytest.raises(ValueError, match="no header"):
        tgp.load(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="not a file saved by tgpfast"):
        tgp.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", b"no array")
    with pytest.raises(ValueError, match="damaged"):
        tgp.load(path)
    with pytest.raises(FileNotFoundError):
        tgp.load(tmp_path / "absent.npz")


def test_a_flipped_bit_never_gives_another_model(saved, tmp_path):
    """Whatever byte of a member is changed, the file is refused or the model is the same."""
    whole = saved["fd"].read_bytes()
    path = tmp_path / "flipped.npz"
    y = rows()[:5]
    expected = tgp.load(saved["fd"]).log_density(y, normalized=False)
    refused = 0
    for place in np.random.default_rng(0).integers(0, whole.index(b"PK\x01\x02"), 40):
        changed = bytearray(whole)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        try:
            got = tgp.load(path).log_density(y, normalized=False)
        except ValueError:
            refused += 1
        else:
            assert np.array_equal(got, expected)
    assert refused > 20


@pytest.mark.slow
def test_modes_are_saved_so_that_samples_stay_the_same(tmp_path):
    """In more than three columns draws depend on the modes that `fit` found from the rows."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((600, 5)) * 0.3
    x[:300] += 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        model = tgp.fit(x, base="empirical", method="fd", n_features=100)
        assert model.log_normalizer.n_modes > 0
        want = model.sample(200, seed=3)
        model.save(tmp_path / "m.npz")
        for again in (tgp.load(tmp_path / "m.npz"), pickle.loads(pickle.dumps(model))):
            np.testing.assert_array_equal(again.sample(200, seed=3), want)
