"""The sum of features, all that MAP needs of the data, term by term and by a transform."""

import numpy as np
import oracle
import pytest
from conftest import set_costs

import tgpfast as tgp
from tgpfast.data.blocks import Blocks
from tgpfast.statistics import feature_means
from tgpfast.statistics.feature_means import accumulate_feature_means

TOLERANCE = 1e-9


def run(x, features, w=None, centre=None, tolerance=TOLERANCE):
    centre = np.zeros(features.dimension) if centre is None else centre
    return accumulate_feature_means(
        Blocks(x, sample_weight=w), features, centre, tolerance=tolerance, n_threads=2
    )


def make(d, n=700, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) + 3.0
    return x, rng.uniform(0.0, 2.0, n), tgp.Features.draw(40, 0.5, np.eye(d), seed=1)


def want(x, features, w):
    return oracle.sum_phi(x, features.frequencies, features.phases, features.bandwidth, w)


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_term_by_term_equals_the_oracle(d, weighted):
    x, w, features = make(d)
    w = w if weighted else None
    found = run(x, features, w, centre=x.mean(axis=0))
    assert found.provenance["engine"] == "direct"
    # angles of size 10 to 100 round to 1e-14; n cosines of amplitude sqrt(2/S) are summed
    bound = np.sqrt(2 / 40) * len(x) * 1e-13
    assert np.abs(found.sum_phi - want(x, features, w)).max() < bound
    assert found.n == pytest.approx(len(x) if w is None else w.sum(), rel=1e-14)
    assert found.n_rows == len(x)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("far", [False, True])
def test_a_transform_keeps_its_tolerance(d, far, monkeypatch):
    """Also with distant points, which are summed term by term."""
    pytest.importorskip("finufft")
    set_costs(monkeypatch, feature=1e-3)
    x, w, features = make(d)
    if far:
        x[3], x[7] = 1e9, -1e5
    found = run(x, features, w)
    assert found.provenance["engine"] == "spectral"
    error = np.abs(found.sum_phi - want(x, features, w)).max()
    # the oracle and the kernel both round angles of 1e9 to 1e-7, in two rows of seven hundred
    slack = 4 * 2e-7 if far else 0.0
    assert error <= np.sqrt(2 / 40) * (w.sum() * TOLERANCE + slack)
    if not far:
        exact = run(x, features, w, tolerance=1e-12).sum_phi
        assert np.abs(exact - found.sum_phi).max() > 0  # control: the tolerance is used


def test_fit_by_map_sums_no_matrix(monkeypatch):
    """No array of S x S numbers is allocated."""
    x, _, _ = make(2, 300)
    seen = []
    plain = np.zeros

    def zeros(shape, *args, **kwargs):
        seen.append(int(np.prod(shape)))
        return plain(shape, *args, **kwargs)

    monkeypatch.setattr(feature_means.np, "zeros", zeros)
    sums = run(x, tgp.Features.draw(3_000, 0.5, np.eye(2), seed=0))
    monkeypatch.undo()
    assert len(sums.sum_phi) == 3_000
    assert max(seen) < 3_000**2 // 10


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_add_subtract_and_keep_their_first_features(weighted):
    """Each within rounding."""
    x, w, features = make(2)
    w = w if weighted else None
    a, b = (run(x[rows], features, None if w is None else w[rows], centre=np.zeros(2))
            for rows in (slice(500), slice(500, None)))  # fmt: skip
    both, whole = a + b, run(x, features, w)
    # 700 features of amplitude sqrt(2/40)
    rounding = np.sqrt(2 / 40) * 700 * 2.0**-52 * 10
    assert np.abs(both.sum_phi - whole.sum_phi).max() <= rounding
    assert (both.n_rows, whole.n_rows) == (700, 700)
    rest = both - b
    assert (rest.n_rows, rest.features) == (500, features)
    for name in ("n", "sum_w2", "sum_phi"):
        gap = np.abs(getattr(rest, name) - getattr(a, name)).max()
        assert gap <= 2.0**-52 * np.abs(getattr(both, name)).max()
    first = whole.first_features(7)
    assert first.features == features.first(7)
    want = run(x, features.first(7), w)
    assert np.abs(first.sum_phi - want.sum_phi).max() <= np.sqrt(40 / 7) * rounding
    assert (first.n, first.n_rows, first.sum_w2) == (want.n, want.n_rows, want.sum_w2)


def test_overflow_is_an_error():
    features = tgp.Features.draw(5, 1e-149, np.eye(1), seed=0)
    with pytest.raises(ValueError, match="overflows"), np.errstate(all="ignore"):
        run(np.full((3, 1), 1e200), features)
