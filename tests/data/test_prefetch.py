"""Reading ahead: the same bits as without, bounded memory, errors and early ends that arrive."""

import gc
import os
import sqlite3
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from conftest import assert_statistics, slow

import tgpfast as tgp
from tgpfast.data import blocks as blocks_module
from tgpfast.data import csv as text_rows
from tgpfast.data import files
from tgpfast.data import parquet as parquet_rows
from tgpfast.data import prefetch as prefetch_module
from tgpfast.data.blocks import Blocks
from tgpfast.data.prefetch import ReadAhead, prefetch
from tgpfast.statistics import chunks, spread_grid
from tgpfast.statistics.spectral_work import SpectralWork


def readers():
    return [t for t in threading.enumerate() if t.name.startswith("tgpfast-read-ahead")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """Every test ends without a reader: each names what it leaves behind."""
    yield
    if readers():  # those of generators that are garbage end when they are collected
        gc.collect()
    assert readers() == []


def make_data(n=500, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def make_features(S=8, d=3, gamma=0.9):
    rng = np.random.default_rng(1)
    return tgp.Features(rng.standard_normal((S, d)), rng.uniform(0, 2 * np.pi, S), gamma)


def fields(stats):
    names = ("n", "n_rows", "sum_w2", "sum_x", "sum_xx", "sum_phi", "sum_dphi", "sum_dphi_x",
             "gram")  # fmt: skip
    return {name: getattr(stats, name) for name in names}


def assert_same_bits(a, b):
    for name, value in fields(a).items():
        assert np.array_equal(value, getattr(b, name)), name


# -- the thread ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 50])
def test_items_come_in_order(depth, n):
    assert list(prefetch(iter(range(n)), depth)) == list(range(n))


def test_items_are_made_in_another_thread_before_they_are_asked_for():
    """The second is made while the first is in use: the consumer waits for it to be so."""
    made, seen = threading.Event(), []

    def items():
        for k in range(3):
            seen.append(threading.current_thread().name)
            if k == 1:
                made.set()
            yield k

    for k in prefetch(items()):
        if k == 0:
            assert made.wait(60.0)
    assert set(seen) == {"tgpfast-read-ahead_0"}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_no_more_than_depth_items_wait(depth):
    """Beside the one in use, counted when the reader has stopped for want of room."""
    made = []
    full = threading.Semaphore(0)

    def items():
        for k in range(20):
            made.append(k)
            full.release()
            yield k

    for k in prefetch(items(), depth):
        for _ in range(min(depth + 1, 20) if k == 0 else 1 if k + depth < 20 else 0):
            assert full.acquire(timeout=60.0)  # the reader has come this far
        assert len(made) == min(k + 1 + depth, 20)


def test_items_are_let_go():
    """A block that was used is not held while the next one is in use."""

    class Block:
        pass

    gone = []
    for block in prefetch(Block() for _ in range(6)):
        assert all(reference() is None for reference in gone[:-1])
        gone.append(weakref.ref(block))


def test_an_error_comes_after_the_items_before_it():
    def items():
        yield 1
        yield 2
        raise KeyError("third")

    got = []
    with pytest.raises(KeyError, match="third") as caught:
        got.extend(prefetch(items(), 4))
    assert got == [1, 2]
    assert any(entry.name == "items" for entry in caught.traceback)  # where it was raised


@pytest.mark.parametrize("stop", ["break", "error", "close", "drop"])
def test_a_consumer_that_stops_ends_the_thread(stop):
    """Also where the items never end; the source is closed, in the reader's thread."""
    closed = []

    def items():
        try:
            while True:
                yield 0
        finally:
            closed.append(threading.current_thread().name)

    source = prefetch(items())
    if stop == "break":
        for _ in source:
            break
        source.close()
    elif stop == "error":
        with pytest.raises(ZeroDivisionError):
            [1 // k for k in source]
        source.close()
    elif stop == "close":
        next(source)
        source.close()
    else:
        next(source)
        del source
    assert closed == ["tgpfast-read-ahead_0"]
    assert readers() == []


def test_a_generator_that_is_not_started_has_no_thread():
    prefetch(iter(range(3)))
    assert readers() == []


def test_floating_point_warnings_are_as_the_consumer_set_them():
    """numpy keeps them for each thread; here warnings are errors."""

    def items():
        yield np.float64(1e300) * np.array([1e300])

    with np.errstate(over="ignore"):
        assert np.isinf(next(prefetch(items()))).all()
    with pytest.raises(RuntimeWarning, match="overflow"):
        next(prefetch(items()))


# -- blocks --------------------------------------------------------------------------------------


def sources(tmp_path, x):
    """What is read ahead: kind -> a maker of X."""
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "x32.npy", x.astype(np.float32))
    np.savetxt(tmp_path / "x.csv", x, delimiter=",", fmt="%.17g")
    cuts = [x[:130], x[130:131], x[131:]]
    return {
        "memmap": lambda: np.load(tmp_path / "x.npy", mmap_mode="r"),
        "view of a memmap": lambda: np.asarray(np.load(tmp_path / "x.npy", mmap_mode="r"))[:],
        "float32": lambda: np.load(tmp_path / "x32.npy", mmap_mode="r"),
        "npy": lambda: tmp_path / "x.npy",
        "csv": lambda: tmp_path / "x.csv",
        "generator": lambda: ReadAhead(part for part in cuts),
        "callable": lambda: ReadAhead(lambda: iter(cuts)),
        "list": lambda: ReadAhead(cuts),
    }


def test_blocks_of_few_columns_wait_in_greater_number(tmp_path):
    """As many as eight where they are small; two where they are large, or not known to be small."""
    for columns, depth in ((1, 8), (6, 8), (16, 4), (32, 2), (1000, 2)):
        np.save(tmp_path / "x.npy", np.zeros((3, columns)))
        assert Blocks(tmp_path / "x.npy")._prefetch_depth() == depth
        (tmp_path / "x.csv").write_text(",".join(["1"] * columns) + "\n")
        assert Blocks(tmp_path / "x.csv")._prefetch_depth() == depth
    assert Blocks(files.Columns(tmp_path / "x.csv", [3, 5]))._prefetch_depth() == 8
    assert Blocks(ReadAhead(iter([np.zeros((3, 1))])))._prefetch_depth() == 2
    source = type("Own", (list,), {"n_columns": lambda self: 1})([np.zeros((3, 1))])
    assert Blocks(ReadAhead(source))._prefetch_depth() == 2


KINDS = ("memmap", "view of a memmap", "float32", "npy", "csv", "generator", "callable", "list")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_with_and_without(kind, tmp_path, monkeypatch):
    """Blocks are equal one by one, and so are the statistics of both engines."""
    monkeypatch.setattr(text_rows, "BLOCK_ROWS", 100)
    make = sources(tmp_path, make_data())[kind]
    ran = []
    monkeypatch.setattr(blocks_module, "prefetch", lambda *args: ran.append(1) or prefetch(*args))
    with_thread = list(Blocks(make(), block_rows=64))
    assert ran == [1]
    features, runs = make_features(), []
    options = {"precision": "float64", "n_threads": 1}
    monkeypatch.setattr(blocks_module, "BLOCK_ROWS", 64)
    for _ in range(2):
        part = Blocks(make(), block_rows=64)
        runs.append([
            tgp.accumulate(part, features, engine="direct", **options),
            tgp.accumulate(Blocks(make()), features, engine="spectral", **options),
        ])  # fmt: skip
        monkeypatch.setattr(blocks_module, "prefetch", lambda items, depth: items)
    without = list(Blocks(make(), block_rows=64))
    assert len(with_thread) == len(without) > 3
    for (x, _), (y, _) in zip(with_thread, without, strict=True):
        assert np.array_equal(x, y)
    for a, b in zip(*runs, strict=True):
        assert_same_bits(a, b)


def test_what_is_in_memory_is_not_read_ahead(monkeypatch):
    """Nor is a user's own iterator that was not wrapped, nor a memmap of one block."""
    monkeypatch.setattr(blocks_module, "prefetch", None)  # would raise
    x = make_data()
    for value in (x, x.astype(np.float32), [x[:100], x[100:]], iter([x]), lambda: iter([x])):
        assert sum(len(part) for part, _ in Blocks(value, block_rows=64)) == 500


def test_a_small_memmap_needs_no_thread(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks_module, "prefetch", None)
    np.save(tmp_path / "x.npy", make_data())
    assert len(list(Blocks(tmp_path / "x.npy", block_rows=500))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_errors_name_row_and_column(kind, tmp_path, monkeypatch):
    """A bad value far into the data is named as it is without a thread."""
    monkeypatch.setattr(text_rows, "BLOCK_ROWS", 100)
    x = make_data()
    x[431, 2] = np.nan
    make = sources(tmp_path, x)[kind]
    words = "line 432, column 2" if kind == "csv" else "row 431, column 2"
    with pytest.raises(ValueError, match=words):
        list(Blocks(make(), block_rows=64))
    with pytest.raises(ValueError, match=words):
        tgp.accumulate(make(), make_features(), engine="direct")


def test_weights_come_along(tmp_path):
    x, w = make_data(), np.random.default_rng(3).uniform(0, 2, 500)
    np.save(tmp_path / "x.npy", x)
    want = tgp.accumulate(x, make_features(), sample_weight=w)
    got = tgp.accumulate(tmp_path / "x.npy", make_features(), sample_weight=w)
    assert_same_bits(got, want)
    pairs = ReadAhead([(x[:200], w[:200]), (x[200:], w[200:])])
    assert tgp.accumulate(pairs, make_features()).n == pytest.approx(w.sum(), rel=1e-14)


def test_a_one_shot_iterator_stays_one():
    """Wrapping changes where it runs, not how often it can be read."""
    x = make_data()
    once = Blocks(ReadAhead(iter([x])))
    assert not once.can_repeat
    assert once.pilot(10) is None
    assert len(list(once)) == 1
    with pytest.raises(ValueError, match="already used up"):
        list(once)
    again = Blocks(ReadAhead(lambda: iter([x])))
    assert again.can_repeat
    assert len(list(again)) == len(list(again)) == 1


def test_an_error_in_the_consumer_does_not_hang(tmp_path):
    """While its traceback keeps the pass alive the reader waits; with it, it ends."""
    np.save(tmp_path / "x.npy", make_data())
    with pytest.raises(ZeroDivisionError):
        [len(x) // 0 for x, _ in Blocks(tmp_path / "x.npy", block_rows=10)]


def test_python_ends_though_a_pass_was_left_half_way(tmp_path):
    """As after an error whose traceback is kept: the thread that waits is not waited for."""
    np.save(tmp_path / "x.npy", make_data())
    code = (
        "import sys; from tgpfast.data.blocks import Blocks\n"
        "rows = iter(Blocks(sys.argv[1], block_rows=10)); next(rows)\nprint('done')"
    )
    folder = os.path.dirname(os.path.dirname(tgp.__file__))
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.npy")], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": folder}, timeout=60, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (0, "done\n", "")


def test_only_an_iterable_is_wrapped():
    with pytest.raises(TypeError, match="takes an iterable of blocks, or a callable, got int"):
        ReadAhead(3)


def test_an_iterator_bound_to_its_thread_works_unless_it_is_wrapped():
    """A database connection: why a user's iterator is not read ahead unasked."""
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (a real, b real)")
    connection.executemany("insert into t values (?, ?)", make_data(100, 2).tolist())

    def rows():
        cursor = connection.execute("select a, b from t")
        while part := cursor.fetchmany(30):
            yield np.array(part)

    assert sum(len(x) for x, _ in Blocks(rows)) == 100
    with pytest.raises(sqlite3.ProgrammingError):
        list(Blocks(ReadAhead(rows)))
    connection.close()


# -- parquet -------------------------------------------------------------------------------------


@pytest.fixture
def large_parquet(tmp_path, monkeypatch):
    """(path, rows) of a file that counts as large, with several groups of rows."""
    polars = pytest.importorskip("polars")
    pytest.importorskip("pyarrow.parquet")
    x = make_data(500, 3)
    path = tmp_path / "x.parquet"
    frame = polars.DataFrame({"a": x[:, 0], "id": ["p"] * 500, "b": x[:, 1], "c": x[:, 2]})
    frame.write_parquet(path, row_group_size=120)
    monkeypatch.setattr(parquet_rows, "HELD_BYTES", 0)
    monkeypatch.setattr(blocks_module, "PAGE_ROWS", 150)
    return files.Columns(path, ["a", "b", "c"]), x


def decoding(monkeypatch, rows, note):
    """Have ``note`` called with the number of rows decoded so far in a pass, at every step."""
    original, done = type(rows)._numbers, []

    def seen(self, *args):
        found = original(self, *args)
        done.append(len(found))
        note(sum(done))
        return found

    monkeypatch.setattr(type(rows), "_numbers", seen)


def test_a_large_parquet_file_is_read_in_pieces(large_parquet, monkeypatch):
    """Each row is decoded once a pass; rows, names and their number are as ever."""
    path, x = large_parquet
    blocks = Blocks(path, block_rows=64)
    assert (blocks.n_rows, blocks.dimension, blocks.table.columns) == (500, 3, ["a", "b", "c"])
    assert blocks.is_prefetched
    decoded = []
    decoding(monkeypatch, blocks._source, decoded.append)
    found = [part for part, _ in blocks]
    assert [len(part) for part in found] == [64] * 7 + [52]  # whatever the file's groups are
    assert np.array_equal(np.concatenate(found), x)
    assert len(decoded) >= 4
    assert decoded[-1] == 500


@pytest.mark.parametrize("first", ["pass", "pilot"])
def test_a_small_parquet_file_is_decoded_once(large_parquet, monkeypatch, first):
    """In the first pass, or for a pilot; then its rows are held."""
    monkeypatch.setattr(parquet_rows, "HELD_BYTES", 2**25)
    path, x = large_parquet
    blocks = Blocks(path, block_rows=10)
    assert blocks.is_prefetched
    if first == "pass":
        assert np.array_equal(np.concatenate([part for part, _ in blocks]), x)
    else:
        assert len(blocks.pilot(100)[0]) == 100
    assert not blocks.is_prefetched
    monkeypatch.delattr(parquet_rows.ParquetRows, "iterate")
    for _ in range(2):
        found = [part for part, _ in blocks]
        assert [len(part) for part in found] == [10] * 50
        assert np.array_equal(np.concatenate(found), x)
    assert np.array_equal(blocks.pilot(500)[0], x)


def test_memory_for_a_parquet_file_of_one_large_group(tmp_path, monkeypatch):
    """Some blocks and a buffer for each column, neither the group's rows nor its bytes."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(parquet_rows, "HELD_BYTES", 0)
    x = np.random.default_rng(0).standard_normal((1_000_000, 3))
    table = arrow.table({name: x[:, k] for k, name in enumerate("abc")})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=len(x))
    rows, most = Blocks(tmp_path / "x.parquet")._source, 0
    del table
    before = arrow.total_allocated_bytes()
    for batch in rows._batches(16_384):
        most = max(most, arrow.total_allocated_bytes() - before)
        del batch
    assert (tmp_path / "x.parquet").stat().st_size > 20e6
    assert most < 16e6  # of each column a buffer, a page as it is and decoded, of 1 MB each


def test_the_next_piece_is_decoded_while_one_is_used(large_parquet, monkeypatch):
    """Many rows are decoded at once, for several blocks: two blocks ahead would leave the pass
    waiting for all of the next."""
    blocks, decoded = Blocks(large_parquet[0], block_rows=30), threading.Event()
    decoding(monkeypatch, blocks._source, lambda rows: decoded.set() if rows > 150 else None)
    found = iter(blocks)
    next(found)  # of five in the first piece
    assert decoded.wait(60)
    found.close()


@pytest.mark.parametrize("n", [1, 7, 100, 499, 500, 5000])
def test_a_pilot_of_a_large_parquet_file(large_parquet, n):
    """Rows from all over it, no more than asked for, each with its weight."""
    path, x = large_parquet
    w = np.arange(500.0) + 1.0
    rows, weights = Blocks(path, sample_weight=w).pilot(n)
    assert 1 <= len(rows) <= n
    numbers = (weights - 1).astype(int)
    assert len(set(numbers)) == len(numbers)
    assert np.array_equal(rows, x[numbers])
    if n >= 100:
        assert numbers.min() < 50
        assert numbers.max() >= 450


def test_other_columns_of_a_large_parquet_file_are_named(large_parquet):
    """A column of text that was not left out, and what the file holds."""
    path, _ = large_parquet
    with pytest.raises(TypeError, match=r"x\.parquet: column 'id' is of type large_string"):
        Blocks(path.path)
    assert files.columns_of(path.path) == (["a", "id", "b", "c"], 4)


def test_an_index_is_no_column(tmp_path, monkeypatch):
    """A pandas frame's, in a file that pyarrow reads; without polars results are frames of it."""
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    monkeypatch.setitem(sys.modules, "polars", None)
    x = make_data(20, 2)
    frame = pandas.DataFrame(x, columns=["a", "b"], index=pandas.Index(np.arange(20) * 2, name="k"))
    frame.to_parquet(tmp_path / "x.parquet")
    for size in (parquet_rows.HELD_BYTES, 0):
        monkeypatch.setattr(parquet_rows, "HELD_BYTES", size)
        blocks = Blocks(tmp_path / "x.parquet")
        assert (blocks.table.columns, blocks.table.kind) == (["a", "b"], "pandas")
        assert np.array_equal(blocks.whole(), x)


def test_a_parquet_file_without_rows(tmp_path):
    polars = pytest.importorskip("polars")
    polars.DataFrame({"a": np.zeros(0)}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"x\.parquet has no rows"):
        Blocks(tmp_path / "x.parquet")


def test_columns_of_a_large_parquet_file_in_another_order(large_parquet):
    path, x = large_parquet
    blocks = Blocks(path, columns=["c", "a", "b"], block_rows=64)
    assert np.array_equal(blocks.whole(), x[:, [2, 0, 1]])


def test_bad_values_in_a_large_parquet_file(tmp_path, monkeypatch):
    """By row and column, in a pass and in a pilot."""
    polars = pytest.importorskip("polars")
    monkeypatch.setattr(parquet_rows, "HELD_BYTES", 0)
    x = make_data(500, 2)
    x[431, 1] = np.inf
    polars.DataFrame(x, schema=["a", "b"]).write_parquet(tmp_path / "x.parquet")
    blocks = Blocks(tmp_path / "x.parquet", block_rows=64)
    for run in (lambda: list(blocks), lambda: blocks.pilot(500)):
        with pytest.raises(ValueError, match=r"inf at row 431, column 1 \('b'\)"):
            run()


def test_a_model_of_a_large_parquet_file_returns_its_frames(large_parquet):
    path, x = large_parquet
    options = {"method": "fd", "lam": 1.0, "gamma": 1.0, "base": "empirical", "n_features": 10,
               "frequency_covariance": "identity", "eta": "1/gamma2"}  # fmt: skip
    model, want = tgp.fit(path, **options), tgp.fit(x, **options)
    assert np.array_equal(model.theta, want.theta)
    assert list(model.sample(5).columns) == ["a", "b", "c"]


# -- one grid for many chunks ---------------------------------------------------------------------


def many_chunks(monkeypatch, numbers):
    """Chunks so small that there are many."""
    monkeypatch.setattr(chunks, "CHUNK_NUMBERS", numbers)
    monkeypatch.setattr(chunks, "FIRST_NUMBERS", numbers)


@pytest.mark.parametrize("d", [1, slow(2), slow(3)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_many_chunks_go_to_one_grid(d, weighted, stream, monkeypatch):
    """The sums are read once, at the end, and are those of the direct engine to the tolerance."""
    pytest.importorskip("finufft")
    many_chunks(monkeypatch, 100 * d)
    reads = []
    original = spread_grid.SpreadGrid.sums
    monkeypatch.setattr(
        spread_grid.SpreadGrid, "sums", lambda *args: reads.append(1) or original(*args)
    )
    x, features = make_data(700, d), make_features(8, d)
    x[[5, 600]] = 1e4  # outside any grid worth having
    w = np.random.default_rng(4).uniform(0, 2, 700) if weighted else None
    value = x
    if stream:
        cuts = [slice(i, i + 90) for i in range(0, 700, 90)]
        value = iter([x[cut] if w is None else (x[cut], w[cut]) for cut in cuts])
    options = {"noise_levels": (0.0, 0.5), "gram_phi": True, "origin": np.full(d, 0.5)}
    got = tgp.accumulate(
        value, features, engine="spectral", sample_weight=None if stream else w, **options
    )
    want = tgp.accumulate(x, features, engine="direct", sample_weight=w, **options)
    assert reads == [1]
    assert got.provenance["rows_outside"] >= (2 if d > 1 else 0)  # a line of 1e4 is no large grid
    n, S = want.n, 8
    # F / n errs by 1e-9; angles of 1e4 / 0.9 round to 2e-12 each, and their rows weigh 2 at most
    phi = n * np.sqrt(2 / S) * 1e-9
    box = 2 * 1.25 * 4.5 + 1 if d > 1 else 1.25e4  # the grid's extent
    assert_statistics(got, want, {
        "gram": 2 * n / S * 1e-9, "gram_phi": 2 * n / S * 1e-9, "sum_phi": phi, "sum_dphi": phi,
        "sum_dphi_x": box * phi + 4e4 * 2e-11, "sum_x": 1e-15 * 700 * 4e4,
        "sum_xx": 1e-15 * 700 * 4e8, "noise_gram": 2 * n / S * 1e-9 * 2 / 0.81,
        "noise_sum_phi": phi, "noise_sum_dphi": phi, "noise_sum_dphi_x": box * phi + 4e4 * 2e-11,
        "n": 1e-12, "sum_w2": 1e-12,
    })  # fmt: skip


def test_a_lost_chunk_is_noticed(monkeypatch):
    """Negative control of the comparison above."""
    pytest.importorskip("finufft")
    many_chunks(monkeypatch, 200)
    x, features = make_data(700, 2), make_features(8, 2)
    original, calls = spread_grid.GridFiller.add, []

    def once_not(self, x, w):
        calls.append(1)
        return original(self, x, w) if len(calls) != 2 else (x[:0], w)

    monkeypatch.setattr(spread_grid.GridFiller, "add", once_not)
    got = tgp.accumulate(x, features, engine="spectral")
    want = tgp.accumulate(x, features, engine="direct")
    assert np.abs(got.gram - want.gram).max() > 1e-3 * len(x)


def test_a_grid_holds_the_rows_and_fits_the_budget():
    """Where none fits, none is taken."""
    x, features = make_data(2000, 2), tgp.Features.draw(300, 0.07, np.eye(2), seed=0)
    work = SpectralWork(features, np.zeros(0), False, 1e-8, 2**31)
    n = 100_000_000
    place, seconds = work.one_grid(x, n)
    assert 0 < seconds < n * work.row_cost
    assert (place.low < x.min(axis=0)).all()
    assert (place.high > x.max(axis=0)).all()
    assert place.memory <= work.room
    poor = SpectralWork(features, np.zeros(0), False, 1e-8, 20 * 2**20)
    assert poor.one_grid(x, n) == (None, np.inf)


def test_read_ahead_holds_few_rows_where_chunks_are_large(tmp_path):
    """Chunks of a memmap are gathered from blocks of AHEAD_ROWS, not read ahead whole."""
    np.save(tmp_path / "x.npy", make_data(1000, 2))
    rows = np.load(tmp_path / "x.npy", mmap_mode="r")
    gathered = chunks.Chunks(Blocks(rows), 400)
    assert gathered.blocks.block_rows == min(400, chunks.AHEAD_ROWS)
    assert [len(x) for x, _ in gathered] == [400, 400, 200]
    assert chunks.AHEAD_ROWS * 3 * 8 * (prefetch_module.LEAST_DEPTH + 1) < 2**25
