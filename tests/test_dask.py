"""Dask: the same statistics and models from partitions, whatever runs them, and whatever fails.

The cluster is a real one: a scheduler and two workers in processes of their own.
"""

import contextlib
import importlib
import os
import pickle
import re
import signal
import subprocess
import sys
import warnings

import cloudpickle
import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pytest
from conftest import fixed_fit

import tgpfast as tgp
import tgpfast.dask as tgp_dask
import tgpfast.statistics.spectrum as tgp_spectrum
from tgpfast.dask import partitions, task_graph, tasks
from tgpfast.dask.partitions import Partitions
from tgpfast.data.blocks import Blocks, as_blocks
from tgpfast.data.moments import compute_moments
from tgpfast.kernels.thread_choice import Threads
from tgpfast.statistics import grid_box
from tgpfast.statistics.statistics import pack_triangle

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file

ROWS, PARTITIONS = 1900, 19  # of 100 rows: the tree of sums has two levels
SUMS = (
    "n", "n_rows", "sum_w2", "sum_x", "sum_xx", "sum_phi", "sum_dphi", "sum_dphi_x", "gram",
    "gram_phi", "noise_gram", "noise_sum_phi", "noise_sum_dphi", "noise_sum_dphi_x",
)  # fmt: skip
QUIET = {"precision": "float64", "engine": "direct"}
CLUSTER = pytest.param("cluster", marks=pytest.mark.slow)


def rows(d=4, n=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)


def features(d=4, S=24, bandwidth=1.5):
    return tgp.Features.draw(S, bandwidth, np.eye(d), 0)


def chunked(x, size=100):
    return da.from_array(x, chunks=(size, *x.shape[1:]))


def frame(x, parts=PARTITIONS):
    table = pd.DataFrame(x, columns=[f"c{k}" for k in range(x.shape[1])])
    return dd.from_pandas(table, npartitions=parts)


def tree(parts):
    """Sums of FAN_IN neighbours, then of those, until one is left."""
    while len(parts) > 1:
        parts = [
            sum(parts[i + 1 : i + partitions.FAN_IN], parts[i])
            for i in range(0, len(parts), partitions.FAN_IN)
        ]
    return parts[0]


def assert_equal(a, b):
    for name in SUMS:
        assert np.array_equal(getattr(a, name), getattr(b, name)), name


def assert_close(a, b, share=1e-12):
    for name in SUMS:
        mine, theirs = getattr(a, name), getattr(b, name)
        assert (mine is None) == (theirs is None), name
        if mine is not None and np.size(mine):
            scale = max(np.abs(theirs).max(), a.n / a.features.n_features)
            assert np.abs(np.subtract(mine, theirs)).max() <= share * scale, name


@pytest.fixture(scope="module")
def cluster():
    with warnings.catch_warnings():
        # the port of the dashboard, which nobody asked for, may be taken; sockets close late
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        with (
            dask.config.set({
                "distributed.worker.memory.target": 0.005, "distributed.worker.memory.spill": False,
                "distributed.worker.memory.pause": False,
                # a worker killed twice within this is given up, and not started again
                "distributed.deploy.lost-worker-timeout": "1 hour",
            }),
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
                memory_limit="2GiB",
            ) as made,
        ):  # fmt: skip
            yield made


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as made:
        made.wait_for_workers(2, timeout=60)
        yield made


# -- the same statistics --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64", "mixed"])
@pytest.mark.parametrize("weighted", [False, True])
def test_equal_partitions_give_the_bits_of_the_local_tree(client, precision, weighted):
    """Direct engine, with noise levels and gram_phi: `accumulate` of each partition here, added by
    the same tree, is the same bit by bit."""
    x, f = rows(), features()
    w = np.random.default_rng(1).uniform(0.5, 2.0, ROWS) if weighted else None
    options = {
        "noise_levels": [0.0, 0.4], "gram_phi": True, "origin": x[0], "engine": "direct",
        "precision": precision,
    }  # fmt: skip
    parts = [
        tgp.accumulate(
            x[i : i + 100], f, sample_weight=None if w is None else w[i : i + 100], **options
        )
        for i in range(0, ROWS, 100)
    ]
    weights = None if w is None else chunked(w)
    found = tgp.accumulate(chunked(x), f, sample_weight=weights, **options)
    assert_equal(found, tree(parts))
    assert found.provenance["threads"] == 1


def test_another_tree_gives_other_bits(monkeypatch):
    """So that the equality above means something."""
    x, f = rows(), features()
    want = tgp.accumulate(chunked(x), f, **QUIET)
    monkeypatch.setattr(partitions, "FAN_IN", 3)
    found = tgp.accumulate(chunked(x), f, **QUIET)
    assert not np.array_equal(found.gram, want.gram)
    assert_close(found, want)


@pytest.mark.slow
def test_numpy_memmap_iterator_array_and_frame_agree(client, tmp_path):
    """To 1e-12 of numpy; those with the same partitions bit by bit."""
    x, f = rows(), features()
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = {
        "numpy": x, "memmap": mapped, "iterator": iter(np.split(x, PARTITIONS)),
        "path": tmp_path / "x.npy", "dask array": chunked(x), "dask frame": frame(x),
        "dask memmap": chunked(mapped), "unknown lengths": frame(x).to_dask_array(),
        "by columns": da.from_array(x, chunks=(100, 1)),
    }  # fmt: skip
    for name, X in found.items():
        found[name] = tgp.accumulate(X, f, noise_levels=[0.0, 0.4], gram_phi=True, **QUIET)
        assert_close(found[name], found["numpy"])
    for name in ("dask frame", "dask memmap", "unknown lengths", "by columns"):
        assert_equal(found[name], found["dask array"])


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3])
def test_spectral_engine_agrees_within_its_tolerance(client, d):
    """One grid for all partitions; its error is that of F/n, of which an entry of Phi' has 2n/S."""
    x, f = rows(d, 900), features(d, 12)
    exact = tgp.accumulate(x, f, engine="direct", noise_levels=[0.0, 0.5], gram_phi=True)
    found = tgp.accumulate(
        chunked(x), f, engine="spectral", noise_levels=[0.0, 0.5], gram_phi=True, tolerance=1e-10
    )
    assert found.provenance["engine"] == "spectral"
    for name in ("gram", "gram_phi", "sum_phi", "noise_sum_phi"):
        error = np.abs(getattr(found, name) - getattr(exact, name)).max()
        assert error <= 2 * 900 * 1e-10, name
    assert found.n_rows == 900


@pytest.mark.slow
def test_spectra_of_partitions_are_one_spectrum(client):
    """Equal to those of the partitions here, on the same box, added by the tree."""
    x, f = rows(2), features(2)
    box = ([-9.0, -9.0], [9.0, 9.0])
    found = tgp.Spectrum.from_data(chunked(x), f.bandlimit, box=box)
    parts = [
        tgp.Spectrum.from_data(part, f.bandlimit, box=box, n_threads=1)
        for part in np.split(x, PARTITIONS)
    ]
    assert np.array_equal(found.grid, tree(parts).grid)
    assert (found.n_rows, found.n) == (ROWS, ROWS)


def test_where_no_grid_fits_each_partition_is_transformed(monkeypatch):
    """A budget too small for the grid of all rows: partitions by transforms of their own; one too
    small for those as well: the direct engine, and the user is told."""
    x, f = rows(2, 600), features(2, 12, 0.5)
    exact = tgp.accumulate(x, f, engine="direct")

    def refuse(*args, **options):
        raise tgp_spectrum.OutsideError

    with monkeypatch.context() as patch:
        patch.setattr(tgp.Spectrum, "box_for", refuse)
        found = tgp.accumulate(chunked(x), f, engine="spectral")
    assert found.provenance["engine"] == "spectral"
    assert "grid_bytes" in found.provenance  # the mark of a type-3 transform
    assert np.abs(found.gram - exact.gram).max() <= 2 * 600 / 12 * 1e-9
    with pytest.warns(RuntimeWarning, match="direct engine runs instead"):
        direct = tgp.accumulate(chunked(x), f, engine="spectral", budget=20_000)
    assert_close(direct, exact)


@pytest.mark.slow
def test_moments_of_partitions(client):
    """Those of all rows: far offsets, scales of any size, a partition of no weight."""
    x = rows(3) * [1.0, 1e120, 1e-120] + [1e7, 0.0, 0.0]
    w = np.random.default_rng(2).uniform(size=ROWS)
    w[100:200] = 0.0
    want = compute_moments(Blocks(x, sample_weight=w))
    found = compute_moments(as_blocks(chunked(x), sample_weight=chunked(w)))
    # x - centre errs by half an ulp of 1e7, a share of 1e-9 of a spread of about one
    assert np.allclose(found.mean, want.mean, rtol=1e-13, atol=0)
    assert np.allclose(found.deviation, want.deviation, rtol=1e-9, atol=0)
    assert np.allclose(found.correlation, want.correlation, rtol=0, atol=1e-9)
    assert found.n == pytest.approx(want.n, rel=1e-14)
    assert found.n_effective == pytest.approx(want.n_effective, rel=1e-13)


def test_constant_column_is_seen_across_partitions():
    x = rows(3)
    x[:, 1] = 0.1
    with pytest.raises(ValueError, match=r"column 1 is constant at 0\.1"):
        tgp.fit(chunked(x))


@pytest.mark.parametrize("kind", ["dask", "numpy", "series"])
def test_weights(kind):
    """As dask array, as an array, as a series of the frame; other chunks are put right."""
    x, f = rows(), features()
    w = np.random.default_rng(1).uniform(size=ROWS)
    want = tgp.accumulate(x, f, sample_weight=w, **QUIET)
    X = chunked(x) if kind != "series" else frame(np.column_stack([x, w]))
    weights = chunked(w, 77) if kind == "dask" else w
    if kind == "series":
        weights, X = X["c4"], X[["c0", "c1", "c2", "c3"]]
    assert_close(tgp.accumulate(X, f, sample_weight=weights, **QUIET), want)


def split(table):
    return [table[i : i + 100] for i in range(0, ROWS, 100)]


def weighted_frame(tmp_path, source):
    """(pandas frame of a, b, k and w = e^a, the same of dask); from files of few rows dask would
    join some, and others for other columns."""
    x = rows(2)
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "k": np.arange(ROWS) % 7})
    table["w"] = np.exp(0.1 * table.a)
    made = dd.from_pandas(table, npartitions=PARTITIONS)
    if source == "parquet":
        for i, part in enumerate(split(table)):
            part.to_parquet(tmp_path / f"{i:02}.parquet")
        made = dd.read_parquet(tmp_path / "*.parquet")
    return table, made


REARRANGED = {
    "as it is": lambda q: q,
    "set_index": lambda q: q.set_index("k"),
    "sort_values": lambda q: q.sort_values("k"),
    "shuffle": lambda q: q.shuffle("k"),
    "merge": lambda q: q.merge(
        dd.from_pandas(pd.DataFrame({"k": range(7)}), npartitions=2), on="k"
    ),
    "repartition": lambda q: q.repartition(npartitions=5),
    "filter": lambda q: q[q.k < 9],
    "arithmetic": lambda q: q * 1.0,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pandas, at dask's sorting
@pytest.mark.parametrize("where", [CLUSTER, "threads", "sync"])
@pytest.mark.parametrize("source", ["memory", "parquet"])
def test_weights_are_a_column_of_a_frame_whatever_became_of_it(request, tmp_path, source, where):
    """Each row keeps its weight. Where dask shuffles, rows and weights by themselves would be two
    shuffles, and the rows of a partition in two orders."""
    if where == "cluster":
        request.getfixturevalue("client")
    with contextlib.nullcontext() if where == "cluster" else dask.config.set(scheduler=where):
        table, made = weighted_frame(tmp_path, source)
        f = features(2)
        want = tgp.accumulate(table[["a", "b"]], f, sample_weight=table["w"], **QUIET)
        for name, change in REARRANGED.items():
            q = change(made)
            found = tgp.accumulate(q[["a", "b"]], f, sample_weight=q["w"], **QUIET)
            assert_close(found, want)
            kept = as_blocks(q[["a", "b"]], sample_weight=q["w"])
            assert len(kept._parts) == q.npartitions, name
            x, w = kept.pilot(500)
            assert np.array_equal(w, np.exp(0.1 * x[:, 0])), name


def test_partitions_stay_as_they_are(tmp_path, monkeypatch):
    """Lengths are counted of one column, the pass is of all: the same partitions, though dask
    would join more files the fewer columns are asked for."""
    table, made = weighted_frame(tmp_path, "parquet")
    X = made[["a", "b"]] * 2.0
    want = tgp.accumulate(2.0 * table[["a", "b"]], features(2), **QUIET)
    for options in ({}, {"sample_weight": np.ones(ROWS)}):
        assert_close(tgp.accumulate(X, features(2), **options, **QUIET), want)
    assert as_blocks(X).lengths == [100] * PARTITIONS
    assert np.array_equal(as_blocks(X).pilot(300)[0], Blocks(2.0 * table[["a", "b"]]).pilot(300)[0])
    assert_equal(  # also bit by bit
        tgp.accumulate(X, features(2), noise_levels=[0.0], gram_phi=True, **QUIET),
        tree([
            tgp.accumulate(2.0 * part[["a", "b"]], features(2), noise_levels=[0.0], gram_phi=True,
                           **QUIET)
            for part in split(table)
        ]),
    )  # fmt: skip
    monkeypatch.setattr(task_graph, "KEEP_PARTITIONS", {})
    assert len(as_blocks(X)._parts) < PARTITIONS  # so that the above means something


def test_an_array_of_a_frame_with_weights_of_that_frame(tmp_path):
    """dask joins partitions when it makes an array of them; the series follows."""
    table, made = weighted_frame(tmp_path, "parquet")
    x = made["a"].to_dask_array()
    assert x.numblocks[0] < made.npartitions  # so that this means something
    want = tgp.accumulate(table["a"], features(1), sample_weight=table["w"], **QUIET)
    assert_close(tgp.accumulate(x, features(1), sample_weight=made["w"], **QUIET), want)
    with pytest.raises(ValueError, match="give both the same, best as columns of one frame"):
        tgp.accumulate(x.blocks[:2], features(1), sample_weight=made["w"], **QUIET)


def test_weights_in_another_order_are_refused():
    """As far as an index tells; numbers of another index are weights by their place."""
    x, f = rows(2), features(2)
    w = pd.Series(np.random.default_rng(1).uniform(size=ROWS))
    want = tgp.accumulate(x, f, sample_weight=w, **QUIET)
    X, weights = frame(x), dd.from_pandas(w, npartitions=PARTITIONS)
    turned = weights.map_partitions(lambda part: part[::-1], meta=w.iloc[:0])
    with pytest.raises(ValueError, match=r"partition \d+ of X: sample_weight has .* another order"):
        tgp.accumulate(X, f, sample_weight=turned, **QUIET)
    with pytest.raises(ValueError, match="in another order"):
        as_blocks(X, sample_weight=turned).pilot(100)
    other = weights.map_partitions(lambda part: part.reset_index(drop=True), meta=w.iloc[:0])
    for given in (other, weights.to_dask_array(), chunked(w.to_numpy())):
        assert_close(tgp.accumulate(X, f, sample_weight=given, **QUIET), want)
        assert_close(tgp.accumulate(chunked(x), f, sample_weight=given, **QUIET), want)


def test_empty_partitions_and_one_without_weight():
    """They change nothing, and count nothing but rows."""
    x, f = rows(), features()
    w = np.ones(ROWS)
    w[200:300] = 0.0
    X = chunked(x)
    some = X[X[:, 0] < np.inf]  # of unknown lengths
    none = X[X[:, 0] > np.inf]  # and no rows
    padded = da.concatenate([none, some, none], allow_unknown_chunksizes=True)
    assert_equal(
        tgp.accumulate(some, f, noise_levels=[0.0], gram_phi=True, **QUIET),
        tgp.accumulate(X, f, noise_levels=[0.0], gram_phi=True, **QUIET),
    )
    found = tgp.accumulate(padded, f, **QUIET)
    assert_close(found, tgp.accumulate(x, f, **QUIET))
    weighted = tgp.accumulate(X, f, sample_weight=chunked(w), **QUIET)
    assert_close(weighted, tgp.accumulate(x, f, sample_weight=w, **QUIET))
    assert weighted.n_rows == ROWS
    with pytest.raises(ValueError, match="X has no rows"):
        tgp.accumulate(none, f, **QUIET)
    with pytest.raises(ValueError, match="must not be all zero"):
        tgp.accumulate(X, f, sample_weight=da.zeros(ROWS, chunks=100), **QUIET)


def test_rows_with_missing_values_are_dropped_on_the_workers():
    """Partitions of missing values alone count nothing but rows."""
    x = rows()
    x[100:200, 1] = np.nan  # all of the second partition
    x[450, 0] = np.nan
    complete = ~np.isnan(x).any(axis=1)
    with pytest.warns(tgp.DataWarning, match="dropped 101 of 1,900 rows .* column 1"):
        model = fixed_fit(chunked(x), missing="drop", n_features=20)
    want = fixed_fit(x[complete], n_features=20)
    assert (model.settings["n_missing"], model.settings["n_rows"]) == (101, 1799)
    np.testing.assert_allclose(model.theta, want.theta, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match="no complete rows"):
        fixed_fit(chunked(np.full_like(x, np.nan)), missing="drop", n_features=20)
    with pytest.raises(ValueError, match="holds nan at row"):
        fixed_fit(chunked(x), n_features=20)


def test_discrete_columns_have_the_noise_of_the_whole():
    """Whether lengths of partitions are known or not, and in lazy evaluation."""
    x = np.random.default_rng(0).poisson(4.0, (1_000, 1)).astype(float)
    X, values = chunked(x), np.arange(12.0)[:, None]
    options = {"discrete": [0], "method": "map", "features": "lattice", "lam": 1.0, "gamma": 0.5,
               "kernel": "matern52", "base": "empirical"}  # fmt: skip
    want = tgp.fit(x, **options)
    for source in (X, X[X[:, 0] < np.inf]):
        found = tgp.fit(source, **options)
        np.testing.assert_allclose(found.log_density(values), want.log_density(values), atol=1e-4)
    np.testing.assert_allclose(want.log_density(X).compute(), want.log_density(x), atol=1e-9)


def test_one_dimension_is_one_column():
    x, f = rows(1), features(1)
    want = tgp.accumulate(x, f, **QUIET)
    assert_close(tgp.accumulate(chunked(x[:, 0]), f, **QUIET), want)
    assert_close(tgp.accumulate(frame(x)["c0"], f, **QUIET), want)


@pytest.mark.slow
def test_a_series_wherever_its_length_is_asked_for():
    x, f = rows(1), features(1, bandwidth=0.7)
    w = np.random.default_rng(1).uniform(size=ROWS)
    series, plain = frame(x)["c0"], pd.Series(x[:, 0], name="c0")
    assert_close(tgp.accumulate(series, f, precision="float64"), tgp.accumulate(x, f), 1e-9)
    weighted = tgp.accumulate(series, f, sample_weight=w, **QUIET)
    assert_close(weighted, tgp.accumulate(x, f, sample_weight=w, **QUIET))
    box = ([-9.0], [9.0])
    here, there = (
        tgp.Spectrum.from_data(X, f.bandlimit, box=box, n_threads=1) for X in (plain, series)
    )
    np.testing.assert_allclose(there.grid, here.grid, atol=1e-12 * np.abs(here.grid).max())
    moments = (ROWS, x.mean(axis=0), np.cov(x.T).reshape(1, 1))
    model = fixed_fit(series, n_features=10, moments=moments)
    assert model.update(series).statistics.n_rows == 2 * ROWS
    here, there = (tgp.evaluate(model, X, n_directions=2, n_samples=500) for X in (plain, series))
    np.testing.assert_allclose(there.ks, here.ks, rtol=1e-9)


@pytest.mark.parametrize("n", [37, 500, 6000])
def test_pilot_is_that_of_the_whole(n):
    """The rows that `Blocks.pilot` takes, for known lengths and unknown; mapped alike."""
    x = rows()
    w = np.arange(1.0, ROWS + 1)
    want, want_w = Blocks(x, sample_weight=w).mapped(np.exp, 2.0).pilot(n)
    for X in (chunked(x, 170), frame(x, 7)):
        got, got_w = as_blocks(X, sample_weight=w).mapped(np.exp, 2.0).pilot(n)
        assert np.array_equal(got, want)
        assert np.array_equal(got_w, want_w)


def test_mixed_precision_is_chosen_from_the_same_pilot():
    x, f = rows(5, 9000), features(5, 16, 3.0)
    here = tgp.accumulate(x, f)
    there = tgp.accumulate(chunked(x, 1000), f)
    for name in ("precision", "precision_reason", "engine"):
        assert here.provenance[name] == there.provenance[name]
    assert here.provenance["precision"] == "mixed"


# -- the same models ------------------------------------------------------------------------------


@pytest.mark.slow
def test_fit_chooses_the_settings_of_the_whole(client):
    """Base, lambda, gamma and eta automatic: the same from an array of dask as from numpy."""
    x = np.concatenate([rows(2, 300), rows(2, 300, seed=5) + 4.0])
    x = x[np.random.default_rng(0).permutation(600)]
    given = {"n_features": 20, "method": "fd", "frequency_covariance": "data", "base": "empirical"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # its samples are judged elsewhere
        here, there = tgp.fit(x, **given), tgp.fit(chunked(x), **given)
    assert here.settings["selected"]
    for name in ("method", "base", "frequency_covariance", "n_rows"):
        assert here.settings[name] == there.settings[name]
    assert here.method == "fd"  # not the base alone, which has none of these
    for name in ("lam", "gamma", "eta"):
        assert here.settings[name] == pytest.approx(there.settings[name], rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fd", "ncfd", "fvpd", "map"])
@pytest.mark.parametrize("kind", ["array", "frame"])
def test_fitted_density_is_that_of_numpy(client, method, kind):
    """Up to rounding times the condition of the system, which lambda holds below 1e4 here."""
    x = rows(2, 600)
    here = fixed_fit(x, method=method, n_features=20)
    X = chunked(x) if kind == "array" else frame(x, 6)
    there = fixed_fit(X, method=method, n_features=20)
    gap = there.log_density(x) - here.log_density(x)
    assert np.abs(gap).max() < 1e-7
    assert isinstance(there.sample(3), np.ndarray if kind == "array" else pd.DataFrame)


@pytest.mark.parametrize("base", ["mixture", "student"])
def test_other_bases(base):
    """Their scores are summed in a pass of their own."""
    x = rows(2, 600)
    here, there = (
        fixed_fit(X, n_features=15, base=base) for X in (x, chunked(x))
    )
    assert np.abs(there.log_density(x) - here.log_density(x)).max() < 1e-7


def test_moments_given_save_the_first_pass(monkeypatch):
    x = rows()
    passes = []
    reduce = Partitions.reduce
    monkeypatch.setattr(
        Partitions, "reduce", lambda *a, **k: passes.append(a) or reduce(*a, **k)
    )
    fixed_fit(chunked(x), n_features=10)
    assert len(passes) == 2
    fixed_fit(chunked(x), n_features=10, moments=(ROWS, x.mean(axis=0), np.cov(x.T)))
    assert len(passes) == 3


@pytest.mark.parametrize("kind", [chunked, frame])
def test_bases_and_estimates_are_made_of_partitions(kind, monkeypatch):
    """As of the rows here: moments to rounding, EM from the same pilot, which is all that comes."""
    x, f = rows(2), features(2)
    w = np.random.default_rng(1).uniform(0.5, 2.0, ROWS)
    monkeypatch.setattr(Partitions, "__iter__", None)  # would bring them
    for made, options in (
        (tgp.GaussianBase, {}), (tgp.MixtureBase, {"n_components": 2}), (tgp.StudentBase, {}),
    ):  # fmt: skip
        here = made.from_data(x, sample_weight=w, **options)
        there = made.from_data(kind(x), sample_weight=w, **options)
        assert np.abs(there.log_density(x) - here.log_density(x)).max() < 1e-10
    here, there = (tgp.FourierKDE.from_data(X, f, sample_weight=w) for X in (x, kind(x)))
    assert np.abs(there.density(x) - here.density(x)).max() < 1e-9 * here.density(x).max()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [chunked, frame])
def test_evaluate_takes_partitions_one_after_the_other(kind):
    """The CDFs, and the rows that are scored, are those of the rows here."""
    x = rows(2)
    w = np.random.default_rng(1).uniform(0.5, 2.0, ROWS)
    options = {"n_directions": 5, "n_grid": 200, "n_samples": 500, "sample_weight": w}
    model = tgp.GaussianBase.from_data(x)
    here, there = (tgp.evaluate(model, X, n_scored=ROWS, **options) for X in (x, kind(x)))
    assert np.abs(there.ks - here.ks).max() < 1e-12
    assert np.abs(there.wd - here.wd).max() < 1e-12 * np.abs(x).max()
    assert there.n_rows == ROWS
    assert there.log_likelihood.value == pytest.approx(here.log_likelihood.value, rel=1e-12)


@pytest.mark.parametrize("kind", [chunked, frame])
def test_what_needs_the_rows_here_says_so(kind):
    """Rather than bring them all without a word, or fail on a part of dask's."""
    x = rows(2, 200)
    model = tgp.fit_groups(x, np.arange(200) % 2, n_features=8, gamma=1.0)
    for call in (
        lambda: tgp.ExactKDE(kind(x)), lambda: tgp.fit_groups(kind(x), np.arange(200) % 2),
        lambda: tgp.GaussianBase.from_data(x).log_density(kind(x)),
        lambda: tgp.ExactKDE(x).log_density(kind(x)), lambda: model.log_density(kind(x), 0),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"[XY] is dask's .*\.compute\(\)"):
            call()


# -- evaluation -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    return fixed_fit(rows(2, 600), n_features=20)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["log_density", "grad_log_density", "laplacian_log_density"])
def test_evaluation_is_lazy_and_keeps_partitions(client, model, method):
    """Nothing runs until computed; then rows are those of numpy, chunks and index those of Y."""
    y = rows(2, 500, seed=3)
    want = getattr(model, method)(y)

    def refuse(*args, **options):
        raise AssertionError("computed too early")

    named = fixed_fit(pd.DataFrame(rows(2, 600), columns=["c0", "c1"]), n_features=20)
    with dask.config.set(scheduler=refuse):
        array = getattr(model, method)(da.from_array(y, chunks=(100, 1)))
        table = getattr(named, method)(frame(y, 5)[["c1", "c0"]])
        with pytest.raises(AssertionError, match="too early"):  # the guard works
            array.compute()
    assert array.chunks[0] == (100,) * 5
    assert np.allclose(array.compute(), want, rtol=1e-12, atol=1e-12)
    assert table.divisions == frame(y, 5).divisions
    found = table.compute()
    assert np.allclose(found.to_numpy(), want, rtol=1e-12, atol=1e-12)
    assert np.array_equal(found.index, np.arange(500))
    if method == "grad_log_density":
        assert list(table.columns) == list(found.columns) == ["c0", "c1"]
    else:
        assert table.name == found.name


def test_model_is_in_the_graph_once(model):
    """However many partitions there are."""
    sizes = {}
    for parts in (2, 50):
        lazy = model.log_density(chunked(rows(2, 500), 500 // parts))
        graph = dict(lazy.__dask_graph__())
        held = [key for key in graph if "tgpfast-model" in str(key)]
        assert len(held) == 1
        sizes[parts] = sum(len(cloudpickle.dumps(graph[key])) for key in graph if key not in held)
    assert sizes[50] - sizes[2] < 48 * 10_000  # a task; the model has features of 20 x 2 and more


def test_evaluation_of_empty_and_unknown_partitions(model):
    y = rows(2, 300)
    X = chunked(y)
    none = X[X[:, 0] > np.inf]
    assert model.log_density(none).compute().shape == (0,)
    assert model.grad_log_density(none).compute().shape == (0, 2)
    table = frame(y, 3)
    assert len(model.log_density(table[table.c0 > np.inf]).compute()) == 0
    some = model.log_density(table.to_dask_array()).compute()
    assert np.allclose(some, model.log_density(y), rtol=1e-12, atol=1e-12)


def test_evaluation_names_partition_row_and_column(model):
    y = rows(2, 500)
    y[207, 1] = np.nan
    with pytest.raises(ValueError, match=r"partition 2 of Y.*nan at row 7, column 1"):
        model.log_density(chunked(y)).compute()
    with pytest.raises(ValueError, match=r"partition 2 of Y.*nan at row 7, column 1"):
        model.log_density(frame(y, 5)).compute()
    with pytest.raises(ValueError, match="Y has 3 columns, expected 2"):
        model.log_density(chunked(rows(3)))


# -- what fails -----------------------------------------------------------------------------------


def kill_own_worker(part, marker, at, block_info=None):
    """Once: the first process that comes to this partition dies as if the machine had."""
    if block_info[0]["chunk-location"][0] == at and not os.path.exists(marker):
        with open(marker, "w"):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return part


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "engine", "precision"),
    [(0, "direct", "float64"), (11, "direct", "float64"), (PARTITIONS - 1, "direct", "float64"),
     (11, "direct", "mixed"), (11, "spectral", "float64")],
)  # fmt: skip
def test_a_worker_killed_in_the_pass_changes_nothing(client, tmp_path, at, engine, precision):
    """SIGKILL when a partition comes up; what was lost runs again: the same bits."""
    x, f = rows(2), features(2)
    marker = str(tmp_path / "killed")
    options = {
        "noise_levels": [0.0, 0.4], "gram_phi": True, "engine": engine, "precision": precision,
        "backend": "numpy",  # which a worker started anew has soonest
    }  # fmt: skip
    want = tgp.accumulate(chunked(x), f, **options)
    doomed = chunked(x).map_blocks(kill_own_worker, marker, at, dtype=float, meta=np.empty((0, 0)))
    found = tgp.accumulate(doomed, f, **options)
    assert os.path.exists(marker)
    assert_equal(found, want)


def fail_at(part, at, block_info=None):
    if block_info and block_info[0]["chunk-location"][0] == at:
        raise ZeroDivisionError("unreadable")
    return part


@pytest.mark.slow
@pytest.mark.parametrize("where", [CLUSTER, "here"])
def test_a_partition_that_raises_is_named(request, where):
    """With its own error as the cause; the cluster serves the next pass."""
    if where == "cluster":
        request.getfixturevalue("client")
    x, f = rows(), features()
    X = chunked(x).map_blocks(fail_at, 12, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(
        RuntimeError, match="partition 12 of X could not be computed: ZeroDivisionError: unread"
    ) as caught:
        tgp.accumulate(X, f, **QUIET)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert tgp.accumulate(chunked(x), f, **QUIET).n_rows == ROWS


def fail_once(part, place):
    """The first time that it is asked for."""
    with contextlib.suppress(FileExistsError), open(place, "x"):
        raise ZeroDivisionError("not now")
    return part


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_a_partition_of_weights_that_raises_is_named(kind):
    """Beside an array as its own, within a frame as that of its rows."""
    x, w = rows(), np.ones(ROWS)
    weights = chunked(w).map_blocks(fail_at, 12, dtype=float, meta=np.empty(0))
    X = chunked(x) if kind == "array" else frame(x)
    name = "sample_weight" if kind == "array" else "X"
    with pytest.raises(RuntimeError, match=f"partition 12 of {name} could not be computed: Zero"):
        tgp.accumulate(X, features(), sample_weight=weights, **QUIET)


def test_the_search_for_a_partition_is_not_one_by_one(monkeypatch):
    """Some at a time, and no further than the first that fails; an error that does not come again
    arrives as it was."""
    runs, compute = [], task_graph.compute
    monkeypatch.setattr(task_graph, "compute", lambda *a: runs.append(1) or compute(*a))
    monkeypatch.setattr(task_graph, "PROBED_PARTITIONS", 5)
    X = chunked(rows()).map_blocks(fail_at, 12, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(RuntimeError, match="partition 12 of X"):
        tgp.accumulate(X, features(), **QUIET)
    assert len(runs) == 1 + 3 + 3  # the pass; 0-4, 5-9, 10-14; 10, 11, 12


def test_an_error_that_does_not_come_again(tmp_path):
    X = chunked(rows()).map_blocks(
        fail_once, str(tmp_path / "x"), dtype=float, meta=np.empty((0, 0))
    )
    with pytest.raises(ZeroDivisionError, match="not now"):
        tgp.accumulate(X, features(), **QUIET)


def raise_other(blocks, threads):
    raise KeyError("what")


@pytest.mark.parametrize("where", [CLUSTER, "here"])
def test_errors_of_any_kind_arrive(request, where):
    """As they are, with their partition: were one its own cause, distributed would follow causes
    for ever, in a worker whose memory grows."""
    if where == "cluster":
        request.getfixturevalue("client")
    X = chunked(rows(2, 300))
    with pytest.raises(KeyError, match="what") as caught:
        as_blocks(X).reduce(raise_other)
    assert caught.value.partition in range(3)
    assert caught.value.__cause__ is not caught.value
    with pytest.raises(tgp_spectrum.OutsideError, match="budget"):
        tgp.Spectrum.from_data(X, 1e9, box=([-9.0] * 2, [9.0] * 2))


@pytest.mark.parametrize("where", [CLUSTER, "here"])
def test_bad_rows_are_named(request, where):
    """Partition, row within it, row of all where lengths are known, column."""
    if where == "cluster":
        request.getfixturevalue("client")
    x, f = rows(), features()
    x[1207, 2] = np.inf
    with pytest.raises(
        ValueError, match=r"partition 12 of X holds inf at row 7, column 2; .*\(row 1207 of all\)"
    ):
        tgp.accumulate(chunked(x), f, **QUIET)
    with pytest.raises(ValueError, match=r"partition 12 of X holds inf at row 7, column 2 \('c2"):
        tgp.accumulate(frame(x), f, **QUIET)
    with pytest.raises(ValueError, match="partition 12 of X holds inf at row 7"):
        tgp.fit(chunked(x))
    w = np.ones(ROWS)
    w[305] = -1.0
    x = rows()
    x[310] = np.nan  # comes later, and is not what is complained of
    with pytest.raises(
        ValueError,
        match=r"partition 3 of X: sample_weight .* got -1\.0 at row 5 \(row 305 of all\)",
    ):
        tgp.accumulate(chunked(x), f, sample_weight=chunked(w), **QUIET)
    with pytest.raises(ValueError, match="partition 3 of X: sample_weight") as caught:
        as_blocks(chunked(rows()), sample_weight=chunked(w)).pilot(100)
    assert caught.value.partition == 3


def test_partitions_whose_columns_stand_in_another_order():
    """Each is put in the order of the collection, in a pass and in a sample; one that has more
    columns gives those that were named."""
    x = rows(2, 600)
    table = pd.DataFrame(x, columns=["a", "b"])
    parts = [table[:200], table[200:400][["b", "a"]], table[400:].assign(c=1.0)[["c", "b", "a"]]]
    X = dd.from_map(lambda i: parts[i], range(3), meta=table.iloc[:0])
    np.testing.assert_array_equal(np.sort(as_blocks(X).pilot(600)[0], 0), np.sort(x, 0))
    f = features(2)
    assert_close(tgp.accumulate(X, f, **QUIET), tgp.accumulate(x, f, **QUIET))


def test_a_series_is_one_column_also_when_evaluated():
    x = rows(1, 500)
    series = dd.from_pandas(pd.Series(x[:, 0], name="a"), npartitions=3)
    model = fixed_fit(series, n_features=10)
    for method in ("log_density", "grad_log_density"):
        found = np.asarray(getattr(model, method)(series).compute())
        np.testing.assert_allclose(found, getattr(model, method)(x), rtol=1e-12)


def test_columns_that_are_no_numbers_are_named():
    table = pd.DataFrame({"a": np.arange(6.0), "b": list("uvwxyz")})
    with pytest.raises(TypeError, match=r"partition [01] of X: column 1 \('b'\) has dtype"):
        tgp.accumulate(dd.from_pandas(table, npartitions=2), features(2), **QUIET)
    with pytest.raises(TypeError, match="X has dtype complex128"):
        tgp.accumulate(da.ones((6, 2), dtype=complex), features(2), **QUIET)


@pytest.mark.parametrize(
    ("X", "weights", "message"),
    [
        (lambda: da.ones((6, 3)), None, "X has 3 columns, expected 2"),
        (lambda: frame(rows(3), 3), None, "X has 3 columns, expected 2"),
        (lambda: frame(rows(1), 3), None, "X has 1 columns, expected 2"),
        (lambda: da.ones((6, 3, 2)), None, "must have two dimensions"),
        (lambda: da.ones((0, 2)), None, "X has no rows"),
        (lambda: da.ones((6, 2)), lambda: da.ones(5), "sample_weight has 5 entries, but X has 6"),
        (lambda: da.ones((6, 2)), lambda: np.ones(5), "sample_weight has 5 entries, but X has 6"),
        (lambda: da.ones((6, 2)), lambda: da.ones((6, 2)), "must have one dimension"),
        (lambda: frame(rows(2), 3), lambda: da.ones(ROWS, chunks=100), "has 19 partitions, but X"),
        (
            lambda: frame(rows(2), 2), lambda: da.ones(ROWS, chunks=(1000, 900)),
            "partition [01] of X has 950 rows, but sample_weight has (1000|900)",
        ),
        (
            lambda: da.concatenate([da.ones((6, 2)), da.ones((3, 2))[da.ones(3) < 0]]),
            lambda: da.concatenate([da.ones(6), da.ones(2)[da.ones(2) > 0]]),
            "partition 1 of X has 0 rows, but sample_weight has 2 there",
        ),
    ],
)  # fmt: skip
def test_input_that_cannot_be_used(X, weights, message):
    with pytest.raises(ValueError, match=message):
        tgp.accumulate(X(), features(2), sample_weight=weights and weights(), **QUIET)


def test_other_collections_are_refused():
    with pytest.raises(TypeError, match="X is a Delayed of dask; an array or a data frame"):
        tgp.fit(dask.delayed(np.ones)((3, 2)))
    with pytest.raises(TypeError, match="X is a Bag of dask; an array or a data frame"):
        tgp.fit(dask.bag.from_sequence([1, 2]))
    with pytest.raises(TypeError, match="X is a Index of dask; an array or a data frame"):
        tgp.fit(frame(rows(2), 3).index)
    with pytest.raises(TypeError, match="must be a dask array or data frame, got ndarray"):
        tgp_dask.fit(np.ones((3, 2)))
    with pytest.raises(TypeError, match="must be a dask array or data frame, got ndarray"):
        tgp_dask.accumulate(np.ones((3, 2)), features(2))


def wait_for_release(part):
    distributed.Event("started").set()
    assert distributed.Event("released").wait(60)
    return part


def forgets(client, name):
    """Whether the scheduler drops all tasks of a name within a minute."""

    async def forgotten(dask_scheduler):
        import asyncio

        for _ in range(6_000):
            if not any(name in str(key) for key in dask_scheduler.tasks):
                return True
            await asyncio.sleep(0.01)
        return False

    return client.run_on_scheduler(forgotten)


@pytest.mark.slow
@pytest.mark.parametrize("progress", [False, True])
@pytest.mark.parametrize("stop", ["interrupt", "cancel"])
def test_stopped_pass_leaves_nothing_behind(client, monkeypatch, stop, progress):
    """Ctrl-C, or a cancellation by anyone who holds the futures, in the middle of a pass: made
    where the client waits, so that no signal can be lost. The error is the scheduler's own and
    blames no partition, the tasks are forgotten, and the next pass runs."""
    x, f = rows(), features()
    started, released = distributed.Event("started"), distributed.Event("released")
    started.clear(), released.clear()
    owner, name = (distributed, "progress") if progress else (distributed.Client, "gather")
    real, held = getattr(owner, name), []

    def stopped(*args, **options):
        assert started.wait(60)
        if stop == "interrupt":
            raise KeyboardInterrupt
        future = args[0] if progress else args[1]
        held.append(future)  # a reference of the canceller's own
        client.cancel(future)
        return None if progress else real(*args, **options)

    # with meta, or dask calls the function here to see what it returns
    lazy = chunked(x).map_blocks(wait_for_release, dtype=float, meta=np.empty((0, 0)))
    expected = KeyboardInterrupt if stop == "interrupt" else distributed.client.FutureCancelledError
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, stopped)
        with pytest.raises(expected):
            tgp.accumulate(lazy, f, progress=progress, **QUIET)
    released.set()
    held.clear()
    assert forgets(client, "wait_for_release")
    assert tgp.accumulate(chunked(x), f, **QUIET).n_rows == ROWS


# -- what runs where ------------------------------------------------------------------------------


@pytest.mark.slow
def test_workers_that_spill_give_the_same_bits(client):
    """40 MB of rows kept by workers that may hold 10 MB in memory: the rest is on disk."""
    X = da.random.default_rng(0).normal(size=(1_250_000, 4), chunks=(62_500, 4))
    f = features(4, 8)
    want = tgp.accumulate(X, f, **QUIET)
    kept = X.persist()
    distributed.wait(kept)
    spilled = client.run(lambda dask_worker: dask_worker.data.spilled_total.disk)
    assert sum(spilled.values()) > 15e6
    assert_equal(tgp.accumulate(kept, f, **QUIET), want)


@pytest.mark.slow
def test_any_number_of_workers_gives_the_same_bits(cluster, client):
    """Two processes, one, threads here, and one thread: direct and spectral."""
    x, f = rows(2), features(2)

    def both():
        options = {"noise_levels": [0.0, 0.4], "gram_phi": True}
        return [tgp.accumulate(chunked(x), f, engine=e, **options) for e in ("direct", "spectral")]

    found = {"two": both()}
    cluster.scale(1)
    client.sync(cluster._correct_state)
    assert len(client.run(os.getpid)) == 1
    found["one"] = both()
    cluster.scale(2)
    with dask.config.set(scheduler="threads", num_workers=4):
        found["threads"] = both()
    with dask.config.set(scheduler="synchronous"):
        found["synchronous"] = both()
    for other in ("one", "threads", "synchronous"):
        for mine, theirs in zip(found["two"], found[other], strict=True):
            assert_equal(mine, theirs)
    client.wait_for_workers(2, timeout=60)


def count_threads(blocks, threads):
    """[threads of Numba, most threads of any BLAS, 1] of a task."""
    import numba
    import threadpoolctl

    info = threadpoolctl.threadpool_info()
    most = max(library["num_threads"] for library in info if library["user_api"] == "blas")
    return np.array([[numba.get_num_threads(), most, 1]])


class Stacked(np.ndarray):
    """Adds by stacking, so that every task is seen."""

    def __add__(self, other):
        return np.concatenate([self, other]).view(Stacked)


def stacked_threads(blocks, threads):
    return count_threads(blocks, threads).view(Stacked)


@pytest.mark.slow
@pytest.mark.parametrize("where", [CLUSTER, "here"])
def test_tasks_are_held_to_their_threads(request, where):
    """One by default: a worker, or the pool here, runs as many tasks as it has threads."""
    if where == "cluster":
        request.getfixturevalue("client")
    found = as_blocks(chunked(rows())).reduce(stacked_threads, backend="numba")
    assert np.array_equal(found, np.ones((PARTITIONS, 3)))


def test_without_the_hold_tasks_would_take_all_threads(monkeypatch):
    import numba

    monkeypatch.setattr(tasks, "hold_threads", lambda threads: contextlib.nullcontext())
    with dask.config.set(scheduler="synchronous"):
        found = as_blocks(chunked(rows())).reduce(stacked_threads, backend="numba")
    assert (found[:, 0] == numba.config.NUMBA_NUM_THREADS).all()


@pytest.mark.parametrize(("n_threads", "most"), [(None, 1), (2, 2)])
@pytest.mark.parametrize("one_grid", [True, False])
def test_transforms_are_held_to_their_threads(monkeypatch, n_threads, most, one_grid):
    """finufft's own, in the tasks: spread on one grid, or transformed partition by partition. Two,
    where two are asked for, show that the count of one is the task's."""
    finufft = pytest.importorskip("finufft")
    x, f = rows(2, 40_000), features(2, 12, 0.5)
    plan, run, within, seen = finufft.Plan, tasks.run_partition, [], []

    def counted(*args, nthreads, **options):
        if within:
            seen.append(nthreads)
        return plan(*args, nthreads=nthreads, **options)

    def watched(*args, **options):
        within.append(True)
        try:
            return run(*args, **options)
        finally:
            within.pop()

    def refuse(*args, **options):
        raise tgp_spectrum.OutsideError

    monkeypatch.setattr(finufft, "Plan", counted)
    monkeypatch.setattr(tasks, "run_partition", watched)
    if not one_grid:
        monkeypatch.setattr(tgp.Spectrum, "box_for", refuse)
    with dask.config.set(scheduler="synchronous"):
        tgp.accumulate(chunked(x, 40_000), f, engine="spectral", n_threads=n_threads)
    assert seen
    assert max(seen) == most


def test_one_task_at_a_time_where_numba_demands_it(monkeypatch):
    """Its "workqueue" layer ends the process when two threads enter it."""
    import numba

    threads = Threads("numba", 1)
    for layer, locked in (("workqueue", True), ("omp", False)):
        monkeypatch.setattr(numba, "threading_layer", lambda layer=layer: layer)
        with tasks.hold_threads(threads):
            assert tasks._workqueue_lock.locked() == locked
        assert not tasks._workqueue_lock.locked()


def test_n_threads_is_judged_and_passed_on():
    x, f = rows(), features()
    found = tgp.accumulate(chunked(x), f, n_threads=2, **QUIET)
    assert found.provenance["threads"] == 2
    assert_equal(
        tgp.accumulate(chunked(x), f, noise_levels=[0.0], gram_phi=True, n_threads=2, **QUIET),
        tgp.accumulate(chunked(x), f, noise_levels=[0.0], gram_phi=True, **QUIET),
    )
    with pytest.raises(ValueError, match="n_threads=0"):
        tgp.accumulate(chunked(x), f, n_threads=0, **QUIET)


# -- what travels ---------------------------------------------------------------------------------


def test_half_a_matrix_travels():
    """A task returns triangles, and a worker is told their size."""
    x, S = rows(), 60
    facts = tasks.CollectionFacts(Blocks(x).table, "X", 4)
    task = tasks.PassTask(_accumulated, Threads("numpy", 1), None, 1.0, facts)
    small, large = (tasks.run_partition(task, x[:n], None, 0, 0) for n in (100, ROWS))
    assert small.value.gram.shape == (S * (S + 1) // 2,)
    sizes = [len(pickle.dumps(result)) for result in (small, large)]
    assert sizes[1] - sizes[0] < 8  # a larger number of rows
    arrays = 8 * (2 * S * (S + 1) // 2 + S * (2 * 4 + 4 + 2 + 4))
    assert sizes[0] < arrays + 4_000 < 2 * 8 * S * S
    assert sys.getsizeof(small) > 2 * small.value.gram.nbytes
    whole = _accumulated(Blocks(x), None)
    assert np.array_equal(large.value.gram, pack_triangle(whole.gram))
    merged = tasks.merge_sums([small, large]).value
    assert_equal(tasks.unpack_sum(merged), tasks.unpack_sum(small.value) + whole)


def _accumulated(blocks, threads):
    return tgp.accumulate(
        blocks, features(4, 60), gram_phi=True, backend="numpy", engine="direct",
        precision="float64",
    )  # fmt: skip


@pytest.mark.parametrize("engine", ["direct", "spectral"])
def test_what_the_client_gets_does_not_grow_with_the_rows(monkeypatch, engine):
    """Sums, and samples of rows no larger than those of the whole: the data stay where they are."""
    received = []
    compute = task_graph.compute

    def weigh(*task):
        result = compute(*task)
        received.append(len(pickle.dumps(result)))
        return result

    monkeypatch.setattr(task_graph, "compute", weigh)
    monkeypatch.setattr(partitions, "SAMPLE_ROWS", 500)
    monkeypatch.setattr(grid_box, "BOX_ROWS", 500)
    totals = []
    for n in (2_000, 20_000):
        received.clear()
        x = np.random.default_rng(0).uniform(-1.0, 1.0, size=(n, 2))
        tgp.accumulate(chunked(x, n // 10), features(2), engine=engine, precision="float64")
        totals.append(sum(received))
    assert totals[1] < 1.5 * totals[0]
    assert totals[1] < 20_000 * 2 * 8 / 2


# -- the rest -------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [CLUSTER, "here"])
def test_progress_is_dasks_own_bar(request, capsys, where):
    if where == "cluster":
        request.getfixturevalue("client")
    tgp.accumulate(chunked(rows()), features(), progress=False, **QUIET)
    assert capsys.readouterr().out == ""
    tgp.accumulate(chunked(rows()), features(), progress=True, **QUIET)
    assert "Completed" in capsys.readouterr().out
    fixed_fit(chunked(rows()), n_features=10, progress=True)
    ended = re.findall("100% Completed", capsys.readouterr().out)
    assert len(ended) >= 2  # of moments and of statistics


@pytest.mark.slow
def test_public_functions_are_the_same(client):
    x, f = rows(), features()
    options = {"noise_levels": [0.0], "gram_phi": True, **QUIET}
    assert_equal(
        tgp_dask.accumulate(chunked(x), f, **options), tgp.accumulate(chunked(x), f, **options)
    )
    a = tgp_dask.fit(chunked(x), method="fd", lam=10.0, gamma=1.0, base="empirical",
                     frequency_covariance="data", n_features=10)  # fmt: skip
    assert a.settings["n_rows"] == ROWS


def test_partitions_can_be_read_one_by_one():
    """For what has no pass of its own."""
    x = rows()
    blocks = as_blocks(chunked(x), sample_weight=np.arange(1.0, ROWS + 1))
    assert np.array_equal(np.concatenate([part for part, _ in blocks]), x)
    assert np.array_equal(np.concatenate([w for _, w in blocks]), np.arange(1.0, ROWS + 1))


def test_missing_dask_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.delitem(sys.modules, "tgpfast.dask")
    with pytest.raises(ImportError, match=r'pip install "tgpfast\[dask\]"'):
        importlib.import_module("tgpfast.dask")


def test_the_core_does_not_import_dask():
    code = "import sys, tgpfast; sys.exit('dask' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
