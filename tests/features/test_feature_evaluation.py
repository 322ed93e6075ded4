"""Features at rows: every helper against the formula, for every backend."""

import numpy as np
import oracle
import pytest
from conftest import load_backend

import tgpfast as tgp
from tgpfast.features import evaluation
from tgpfast.features.evaluation import Angles, evaluate_features, feature_blocks, sum_features
from tgpfast.kernels.thread_choice import Threads

EPS = np.finfo(np.float64).eps


@pytest.fixture(params=["numpy", "numba", "cython"])
def threads(request):
    return Threads(load_backend(request.param).NAME, 1)


def make(n=300, d=3, S=20, offset=5.0):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d)) + offset
    return x, tgp.Features.draw(S, 0.7, np.eye(d), seed=1)


def want(x, features):
    """phi and phi' of the oracle, (S, n) each."""
    arguments = (x, features.frequencies, features.phases, features.bandwidth)
    return oracle.phi(*arguments).T, oracle.dphi(*arguments).T


def bound(x, features):
    """A sum of d + 2 terms of size |z| |x| / gamma, then a sine of amplitude sqrt(2/S)."""
    d = x.shape[1]
    size = np.abs(features.frequencies).max() * d * 2 * np.abs(x).max() / features.bandwidth
    return np.sqrt(2 / features.n_features) * ((d + 4) * EPS * (size + 2 * np.pi) + 4 * EPS)


@pytest.mark.parametrize("about", ["zero", "mean"])
def test_features_equal_the_oracle(threads, about):
    x, features = make()
    origin = None if about == "zero" else x.mean(axis=0)
    found = evaluate_features(features, x, origin=origin, threads=threads)
    for got, expected in zip(found, want(x, features), strict=True):
        assert got.shape == (20, 300)
        assert np.abs(got - expected).max() <= bound(x, features)


def test_a_wrong_origin_is_seen(threads):
    """Negative control: angles about another point, with the phases of the first, are wrong."""
    x, features = make()
    angles = Angles.of(features, np.zeros(3))._replace(origin=np.full(3, 1e-6))
    phi, dphi = np.empty((20, 300)), np.empty((20, 300))
    evaluation._fill(angles, x, evaluation.NO_WEIGHTS, phi, dphi, threads)
    assert np.abs(phi - want(x, features)[0]).max() > bound(x, features)


def test_buffers_are_filled(threads):
    """The results are views of the buffers; an empty buffer skips phi."""
    x, features = make(n=40)
    buffers = np.full((20, 64), np.nan), np.full((20, 64), np.nan)
    phi, dphi = evaluate_features(features, x, threads=threads, out=buffers)
    assert np.shares_memory(phi, buffers[0])
    assert np.isnan(buffers[0][:, 40:]).all()
    again = np.empty((20, 64))
    _, alone = evaluate_features(features, x, threads=threads, out=(np.empty((0, 0)), again))
    np.testing.assert_array_equal(alone, dphi)


def test_blocks_are_the_whole(threads):
    """To a rounding, whatever the size of a block."""
    x, features = make()
    whole = evaluate_features(features, x, origin=x[0], threads=threads)
    seen = 0
    for part, phi, dphi in feature_blocks(
        features, x, origin=x[0], threads=threads, block_rows=64
    ):
        np.testing.assert_allclose(phi, whole[0][:, part], rtol=0, atol=4 * EPS)
        np.testing.assert_allclose(dphi, whole[1][:, part], rtol=0, atol=4 * EPS)
        seen += phi.shape[1]
    assert seen == len(x)
    assert list(feature_blocks(features, x[:0], threads=threads)) == []


def test_weighted_sums_equal_the_oracle(threads, monkeypatch):
    monkeypatch.setattr(evaluation, "FEATURE_BLOCK_ROWS", 64)
    x, features = make()
    w = np.random.default_rng(2).uniform(0.0, 2.0, len(x))
    found = sum_features(features, x, w, origin=x.mean(axis=0), threads=threads)
    expected = oracle.sum_phi(x, features.frequencies, features.phases, features.bandwidth, w)
    assert np.abs(found - expected).max() <= 2 * w.sum() * bound(x, features)


def test_rows_of_any_order_and_the_default_threads():
    x, features = make(n=30)
    plain = evaluate_features(features, x)
    for rows in (np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2]):
        for got, expected in zip(evaluate_features(features, rows), plain, strict=True):
            np.testing.assert_array_equal(got, expected)


def test_angles_of_another_bandwidth():
    """As noise levels need them."""
    x, features = make()
    wide = tgp.Features(features.frequencies, features.phases, 2.0)
    for got, expected in zip(Angles.of(features, x[0], 2.0), Angles.of(wide, x[0]), strict=True):
        np.testing.assert_array_equal(got, expected)
