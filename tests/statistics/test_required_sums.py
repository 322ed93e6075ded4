"""The sums that a method needs: means of features, statistics by a pass, or from a spectrum."""

import dataclasses
import importlib.util

import numpy as np
import oracle
import pytest
from conftest import assert_statistics

import tgpfast as tgp
from tgpfast.data.blocks import Blocks
from tgpfast.kernels.thread_choice import Threads
from tgpfast.runtime.memory import BUDGET_VARIABLE
from tgpfast.statistics import required_sums
from tgpfast.statistics.feature_means import FeatureMeans
from tgpfast.statistics.required_sums import RequiredSums

TOLERANCE = 1e-9
FACTORS = (1.0, 0.7, 0.5)
FIELDS = ("n", "n_rows", "sum_w2", "sum_x", "sum_xx", "sum_phi", "sum_dphi", "sum_dphi_x", "gram",
          "sum_dphi_score", "noise_gram")  # fmt: skip


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    """From a hundred rows on a pass counts as slow."""
    monkeypatch.setattr(required_sums, "MANY_ROWS", 100)
    monkeypatch.delenv(BUDGET_VARIABLE, raising=False)


def make(d=2, n=300, **options):
    """Rows, weights, features and `RequiredSums` over them."""
    rng = np.random.default_rng(d)
    x, w = rng.standard_normal((n, d)) + 0.5, rng.uniform(0.5, 2.0, n)
    base = tgp.GaussianBase.from_data(x, sample_weight=w)
    made = {
        "base": base, "method": "fd", "origin": x.mean(axis=0), "noise_levels": (),
        "means_only": False, "engine": "auto", "precision": "auto", "tolerance": TOLERANCE,
        "threads": Threads("auto", 1), "progress": False,
    } | options  # fmt: skip
    features = tgp.Features.draw(25, 0.8 if d < 3 else 1.6, np.eye(d), seed=1)
    return x, w, features, RequiredSums(Blocks(x, sample_weight=w), **made)


def candidates(features):
    return [dataclasses.replace(features, bandwidth=f * features.bandwidth) for f in FACTORS]


def same(found, want, bound):
    assert_statistics(found, want, dict.fromkeys(FIELDS, bound))


@pytest.mark.parametrize("d", [1, 3, 5])
def test_means_of_features(d):
    """What MAP needs; several bandwidths are cheap."""
    x, w, features, made = make(d, method="map", means_only=True)
    assert made.are_cheap
    for width in (0.8, 0.3):
        few = tgp.Features(features.frequencies[:9], features.phases[:9], width)
        found = made(few)
        assert isinstance(found, FeatureMeans)
        assert found.features == few
        want = oracle.sum_phi(x, few.frequencies, few.phases, width, w)
        # sums of n terms of size sqrt(2 / S), each to 1e-9 by a transform at most
        assert np.abs(found.sum_phi - want).max() <= np.sqrt(2 / 9) * w.sum() * TOLERANCE
    assert made.rows.n_passes == 2


@pytest.mark.parametrize("d", [1, 4])
def test_candidates_are_summed_in_one_pass(d):
    """Of any number of features; other features take another pass."""
    x, w, features, made = make(d, method="map", means_only=True)
    several = [*candidates(features), tgp.Features.draw(7, 0.3, np.eye(d), seed=4)]
    many = made.for_bandwidths(features, several)
    assert made.rows.n_passes == 1
    for few in several:
        found = many(few)
        assert found.features == few
        S = few.n_features
        want = oracle.sum_phi(x, few.frequencies, few.phases, few.bandwidth, w)
        assert np.abs(found.sum_phi - want).max() <= np.sqrt(2 / S) * w.sum() * TOLERANCE
        assert (found.n_rows, found.n) == (len(x), pytest.approx(w.sum()))
    assert made.rows.n_passes == 1
    other = dataclasses.replace(features, bandwidth=0.123)
    assert many(other).features == other
    assert made.rows.n_passes == 2
    made(several[0])  # negative control: without the joint pass each takes one
    assert made.rows.n_passes == 3


@pytest.mark.parametrize(
    ("kind", "method"),
    [("gaussian", "fd"), ("gaussian", "ncfd"), ("mixture", "fd"), ("mixture", "fvpd")],
)
def test_a_pass_is_that_of_accumulate(method, kind):
    """With noise levels, base and origin: the same bits."""
    options = {"method": method, "noise_levels": (0.0, 0.4) if method == "ncfd" else ()}
    if kind == "mixture":
        options["base"] = tgp.MixtureBase(
            [0.4, 0.6], [[0.0, 0.0], [1.0, 1.0]], np.array([np.eye(2), 2.0 * np.eye(2)])
        )
    x, w, features, made = make(n=90, **options)
    assert made.for_bandwidths(features, candidates(features)) is made  # rows are few
    assert not made.are_cheap
    want = tgp.accumulate(
        x, features, sample_weight=w, origin=x.mean(axis=0), noise_levels=options["noise_levels"],
        base=made.base, n_threads=1,
    )  # fmt: skip
    found = made(features)
    same(found, want, 0.0)
    assert found.score_base == want.score_base
    assert found.provenance == want.provenance


@pytest.mark.parametrize(("d", "method"), [(1, "fd"), (2, "fvpd"), (3, "fd")])
def test_bandwidths_are_read_off_a_spectrum(d, method):
    """Down to the smallest candidate they equal those of a pass, to the tolerance."""
    pytest.importorskip("finufft")
    x, w, features, made = make(d, method=method)
    assert not made.are_cheap
    many = made.for_bandwidths(features, candidates(features))
    assert many.are_cheap
    assert made.spectrum is None
    reach = np.abs(x - made.origin).max()
    for factor in FACTORS:
        narrow = tgp.Features(features.frequencies, features.phases, factor * features.bandwidth)
        found = many(narrow)
        assert found.provenance["engine"] == "spectrum"
        want = tgp.accumulate(
            x, narrow, sample_weight=w, origin=made.origin, engine="direct", n_threads=1
        )
        # F / n errs by the tolerance, sums of x by that times the extent of the grid, which is
        # at most some reaches; entries are of size sqrt(2 / S) or 2 / S; rounding adds to it
        same(found, want, w.sum() * (TOLERANCE + 1e-13) * (1.0 + 4.0 * reach) * np.sqrt(2 / 25)
             + 1e-12 * w.sum() * reach**2)  # fmt: skip
    with pytest.raises(ValueError, match=r"band limit|bandlimit"):
        many(tgp.Features(features.frequencies, features.phases, 0.4 * features.bandwidth))


@pytest.mark.parametrize(
    "other",
    [
        {"method": "ncfd"}, {"method": "map"}, {"engine": "direct"}, {"precision": "mixed"},
        {"d": 4}, {"n": 99}, {"base": "student"},
    ],
    ids=str,
)  # fmt: skip
def test_a_spectrum_is_made_only_where_it_is_of_use(other, monkeypatch):
    """NCFD and MAP need other sums, other engines were asked for, or a grid does not pay."""
    if other.get("base") == "student":
        other = {"base": tgp.StudentBase(np.zeros(2), np.eye(2), 5.0)}
    _, _, features, made = make(**other)

    def never(*args, **options):
        raise AssertionError("no spectrum")

    monkeypatch.setattr(tgp.Spectrum, "from_data", never)
    assert made.for_bandwidths(features, candidates(features)) is made
    # negative control
    _, _, plain, usual = make()
    if importlib.util.find_spec("finufft"):
        with pytest.raises(AssertionError, match="no spectrum"):
            usual.for_bandwidths(plain, candidates(plain))


def test_no_spectrum_without_finufft(monkeypatch):
    """And no error: finufft is optional."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    _, _, features, made = make()
    assert made.for_bandwidths(features, candidates(features)) is made


def test_no_spectrum_beyond_the_budget(monkeypatch):
    """Then several bandwidths are not cheap."""
    pytest.importorskip("finufft")
    monkeypatch.setenv(BUDGET_VARIABLE, "100")
    _, _, features, made = make(3, engine="auto")
    assert made.for_bandwidths(features, candidates(features)) is made
    assert not made.are_cheap


def test_no_spectrum_for_rows_of_unknown_number():
    """They may be few."""
    x, _, features, made = make()
    stream = RequiredSums(**{**vars(made), "rows": Blocks([x[:100], x[100:]])})
    assert stream.for_bandwidths(features, candidates(features)) is stream
