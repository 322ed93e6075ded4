"""Which precision ``precision="auto"`` takes."""

import numpy as np
import oracle
from statistics_helpers import make_features

import tgpfast as tgp
from tgpfast import kernels
from tgpfast.data.blocks import Blocks
from tgpfast.statistics.precision_choice import predict_change


def make_data(n, d, seed=1):
    return np.random.default_rng(seed).standard_normal((n, d))


def test_auto_precision_is_float64_in_low_dimension():
    stats = tgp.accumulate(make_data(20_000, 3), make_features(50, 3))
    assert stats.provenance["precision"] == "float64"
    assert "d <= 3" in stats.provenance["precision_reason"]


def test_auto_precision_takes_mixed_where_the_trial_allows():
    x, features = make_data(20_000, 6), make_features(60, 6, gamma=1.0)
    stats = tgp.accumulate(x, features)
    assert stats.provenance["precision"] == "mixed"
    assert "below 0.001" in stats.provenance["precision_reason"]


def test_auto_precision_refuses_mixed_for_an_ill_conditioned_system():
    """Data on a line in four dimensions: the FD system is as singular as in one."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((20_000, 1)) * np.ones(4) + 1e-3 * rng.standard_normal((20_000, 4))
    stats = tgp.accumulate(x, make_features(300, 4, gamma=2.0))
    assert stats.provenance["precision"] == "float64"
    assert "above 0.001" in stats.provenance["precision_reason"]


def test_the_prediction_bounds_the_real_change():
    """What mixed precision does to log q on all rows is below what the trial predicted."""
    x, features = make_data(20_000, 6), make_features(60, 6, gamma=1.0)
    trial = Blocks(x).pilot(2_500)
    predicted = predict_change(trial, len(x), features, kernels.load(), 1)
    base = tgp.GaussianBase.from_data(x)
    thetas = [
        tgp.solve(tgp.accumulate(x, features, precision=p), base, "fd", lam=0.1).theta
        for p in ("float64", "mixed")
    ]
    phi = oracle.phi(x[:500], features.frequencies, features.phases, features.bandwidth)
    change = np.abs(phi @ (thetas[1] - thetas[0])).max()
    assert 0.0 < change < predicted < np.inf


def test_streams_and_small_sets_are_float64():
    features = make_features(10, 6)
    stream = tgp.accumulate(iter([make_data(9_000, 6)]), features)
    assert "stream" in stream.provenance["precision_reason"]
    few = tgp.accumulate(make_data(100, 6), features)
    assert "too few rows" in few.provenance["precision_reason"]
    assert stream.provenance["precision"] == few.provenance["precision"] == "float64"


def test_a_degenerate_trial_is_float64():
    x = make_data(20_000, 5)
    x[:, 2] = 1.0
    stats = tgp.accumulate(x, make_features(10, 5))
    assert stats.provenance["precision"] == "float64"
