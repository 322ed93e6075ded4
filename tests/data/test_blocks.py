"""Rows as users have them: frames of any dtype, streams of frames, arrays that are filled again."""

import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow
import pytest
from conftest import fixed_fit, slow

import tgpfast as tgp
from tgpfast.data.blocks import Blocks
from tgpfast.data.prefetch import ReadAhead
from tgpfast.data.row_sample import choose_rows

LIBRARIES = {"pandas": pd, "polars": pl}
EXACT = {"engine": "direct", "precision": "float64"}


def make_data(n=600, d=2, seed=1):
    return np.random.default_rng(seed).standard_normal((n, d)) * [1.0, 5.0] + [0.0, 3.0]


def make_features(S=12, d=2, gamma=0.7):
    rng = np.random.default_rng(0)
    return tgp.Features(rng.standard_normal((S, d)), rng.uniform(0, 2 * np.pi, S), gamma)


def rows_of(X, **options):
    return np.concatenate([x for x, _ in Blocks(X, **options)])


def refilled(x, weights=None, size=100):
    """Blocks in one array, which the next one overwrites."""
    rows, own = np.empty((size, x.shape[1])), np.empty(size)
    assert len(x) % size == 0
    for start in range(0, len(x), size):
        rows[:] = x[start : start + size]
        if weights is not None:
            own[:] = weights[start : start + size]
        yield rows if weights is None else (rows, own)


# -- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_frames_are_read_by_blocks_and_errors_name_the_column(library):
    make, x, features = LIBRARIES[library].DataFrame, make_data(20_000), make_features(4)
    want = tgp.accumulate(x, features)
    found = tgp.accumulate(make({"a": x[:, 0], "b": x[:, 1]}), features)
    assert np.array_equal(found.gram, want.gram)
    x[16_400, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 16400, column 1 \('b'\)"):
        tgp.accumulate(make({"a": x[:, 0], "b": x[:, 1]}), features)
    with pytest.raises(TypeError, match=r"column 0 \('a'\) has dtype .*real numbers"):
        tgp.accumulate(make({"a": ["x", "y"], "b": [1.0, 2.0]}), features)


def test_pilot_of_a_frame():
    x = np.random.default_rng(1).standard_normal((20_000, 6))
    features = tgp.Features.draw(60, 1.0, np.eye(6), 0)
    w = np.random.default_rng(8).uniform(0.5, 1.0, 20_000)
    a = tgp.accumulate(x, features, sample_weight=w)
    b = tgp.accumulate(pd.DataFrame(x), features, sample_weight=w)
    assert np.array_equal(a.gram, b.gram)
    assert a.provenance == b.provenance
    assert a.provenance["precision"] == "mixed"


NUMBERS = {
    "Int64": lambda: pd.array([1, 2], "Int64"),
    "Float64": lambda: pd.array([1.0, 2.0], "Float64"),
    "boolean": lambda: pd.array([True, False], "boolean"),
    "arrow": lambda: pd.array([1.0, 2.0], "double[pyarrow]"),
    "bool": lambda: np.array([True, False]),
    "sparse": lambda: pd.arrays.SparseArray([0.0, 1.0]),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_columns_of_numbers_of_every_kind(kind):
    """Beside plain floats, where pandas gives objects."""
    column = NUMBERS[kind]()
    found = rows_of(pd.DataFrame({"a": column, "b": [0.5, 1.5]}))
    np.testing.assert_array_equal(found, np.column_stack([np.asarray(column, float), [0.5, 1.5]]))


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "boolean", "double[pyarrow]"])
def test_values_that_lack_are_named(dtype):
    table = pd.DataFrame({"b": [0.5, 1.5], "a": pd.array([1, None], dtype)})
    with pytest.raises(ValueError, match=r"holds nan at row 1, column 1 \('a'\)"):
        rows_of(table)


def test_columns_of_polars():
    table = pl.DataFrame({"a": [True, False], "b": [decimal.Decimal("1.5"), decimal.Decimal(2)]})
    np.testing.assert_array_equal(rows_of(table), [[1.0, 1.5], [0.0, 2.0]])
    with pytest.raises(ValueError, match=r"holds nan at row 1, column 0 \('a'\)"):
        rows_of(pl.DataFrame({"a": [1, None], "b": [1.0, 2.0]}))


TIMES = [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2)]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("column", [TIMES, ["1", "2"], [t - TIMES[0] for t in TIMES], [[1], [2]]])
def test_columns_that_hold_no_numbers(library, column):
    """Times would be numbers to polars, of nanoseconds or of microseconds."""
    table = LIBRARIES[library].DataFrame({"b": [1.0, 2.0], "a": column})
    with pytest.raises(TypeError, match=r"column 1 \('a'\) has dtype .*; real numbers are"):
        rows_of(table)


# -- rows that come in turns ----------------------------------------------------------------------


def arrow_forms(x):
    """Kind -> maker of rows: tables cut in chunks, batches, and streams of these."""
    table = pyarrow.table({"a": x[:, 0], "b": x[:, 1]})
    cut = pyarrow.concat_tables([table[:100], table[100:101], table[101:]])
    return {
        "table": lambda: table, "table in chunks": lambda: cut,
        "batch": lambda: table.to_batches()[0],
        "list": lambda: table.to_batches(max_chunksize=77),
        "reader": lambda: table.to_reader(77),
        "callable": lambda: lambda: iter(cut.to_batches()),
        "read ahead": lambda: ReadAhead(table.to_batches(max_chunksize=77)),
    }  # fmt: skip


@pytest.mark.parametrize("kind", arrow_forms(np.zeros((200, 2))))
def test_arrow_tables_and_batches(kind):
    """The rows, and the names, of each; nothing but blocks of them is made into an array."""
    x = make_data()
    blocks = Blocks(arrow_forms(x)[kind](), block_rows=64)
    assert np.array_equal(np.concatenate([part.copy() for part, _ in blocks]), x)
    assert blocks.table.columns == ["a", "b"]


def test_a_model_of_an_arrow_table_answers_in_kind(tmp_path):
    """Columns are found by name; samples are tables, log densities arrays of arrow; also when the
    model comes from a file."""
    x = make_data()
    table = arrow_forms(x)["table"]()
    model, plain = fixed_fit(table, n_features=10), fixed_fit(x, n_features=10)
    assert np.array_equal(model.theta, plain.theta)
    model.save(tmp_path / "m.npz")
    for one in (model, tgp.load(tmp_path / "m.npz")):
        values = one.log_density(table.select(["b", "a"]))
        assert isinstance(values, pyarrow.Array)
        np.testing.assert_allclose(values.to_numpy(), plain.log_density(x), rtol=1e-12)
        draws = one.sample(20, seed=3)
        assert draws.column_names == one.grad_log_density(table).column_names == ["a", "b"]
        assert np.array_equal(draws["b"].to_numpy(), plain.sample(20, seed=3)[:, 1])
    got, want = Blocks(table).pilot(50)[0], Blocks(x).pilot(50)[0]
    assert np.array_equal(got, want)
    with pytest.raises(ValueError, match=r"Y lacks the columns \['b'\]; it has \['a', 'c'\]"):
        model.log_density(table.rename_columns(["a", "c"]))


def test_columns_of_arrow():
    """Numbers of any kind, truth values; what is missing or no number is named."""
    kinds = (pyarrow.int8(), pyarrow.uint64(), pyarrow.float32(), pyarrow.float16())
    values = pyarrow.array([1, 0, 2])
    table = pyarrow.table({str(kind): values.cast(kind) for kind in kinds})
    table = table.append_column("truth", pyarrow.array([True, False, True]))
    assert np.array_equal(rows_of(table), [[1, 1, 1, 1, 1], [0] * 5, [2, 2, 2, 2, 1]])
    with pytest.raises(ValueError, match=r"X holds nan at row 1, column 0 \('a'\)"):
        rows_of(pyarrow.table({"a": [1, None, 3]}))
    for odd in (["x", "y"], [[1.0], [2.0]], [datetime.date(2020, 1, 1)] * 2, [b"x", b"y"]):
        with pytest.raises(TypeError, match=r"column 1 \('odd'\) has dtype .*: encode it"):
            rows_of(pyarrow.table({"a": [1.0, 2.0], "odd": odd}))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_may_be_named_like_methods(library):
    """A frame of pandas has its columns as attributes."""
    x = make_data()
    made = {"pandas": pd.DataFrame, "polars": pl.DataFrame}[library]
    assert np.array_equal(rows_of(made({"collect": x[:, 0], "toarray": x[:, 1]})), x)


def test_columns_of_one_name_keep_their_order():
    """The second stays the second, wherever it stands."""
    x = np.column_stack([make_data(100), make_data(100, seed=2)[:, 0]])
    frame = pd.DataFrame(x, columns=["a", "a", "b"])
    model = fixed_fit(frame, n_features=5)
    want = model.log_density(frame).to_numpy()
    for order in ([2, 0, 1], [0, 2, 1]):  # the first match twice would give others
        np.testing.assert_array_equal(model.log_density(frame.iloc[:, order]).to_numpy(), want)
    with pytest.raises(ValueError, match=r"Y lacks the columns \['a'\]; it has \['b', 'a'\]"):
        model.log_density(frame.iloc[:, [2, 1]])


@pytest.mark.filterwarnings("error")
def test_rows_that_are_not_held_as_they_are():
    """Sparse matrices and lazy frames: what to pass instead."""
    from scipy import sparse

    for made in (sparse.csr_matrix, sparse.csr_array, sparse.coo_array):
        with pytest.raises(TypeError, match=r"X is scipy's \w+, .*: pass X\.toarray\(\)"):
            Blocks(made(make_data()))
    with pytest.raises(TypeError, match=r"X is polars's LazyFrame, .*: pass X\.collect\(\)"):
        Blocks(pl.DataFrame(make_data()).lazy())


@pytest.mark.parametrize("period", [2, 5, 10, 20])
def test_samples_of_rows_that_come_in_turns_have_every_kind(period):
    """In about equal shares, as in the whole: every k-th row would be of one kind, or a few."""
    n, size = 20_000, 1_000
    kind = np.arange(n) % period
    rows, _ = Blocks(np.column_stack([kind, np.ones(n)])).pilot(size)
    assert len(rows) == size
    shares = np.bincount(rows[:, 0].astype(int), minlength=period) * period / size
    # binomial counts of size / period and more: five of their standard deviations
    assert np.abs(shares - 1.0).max() < 5.0 * np.sqrt(period / size)
    assert len(np.unique(kind[:: n // size])) == 1  # what a regular sample would have


# -- streams of frames ----------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", [list, iter])
def test_frames_of_a_stream_are_put_in_one_order(library, kind):
    """That of the first: else columns would change places within a sum."""
    make, x = LIBRARIES[library].DataFrame, make_data()
    tables = [make({"a": p[:, 0], "b": p[:, 1]}) for p in np.split(x, 6)]
    tables[1::2] = [t[["b", "a"]] for t in tables[1::2]]
    blocks = Blocks(kind(tables))
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in blocks]), x)
    assert blocks.table.columns == ["a", "b"]
    with pytest.raises(ValueError, match=r"block 1 of X lacks the columns \['b'\]"):
        rows_of(kind([tables[0], tables[1].rename(columns={"b": "c"})
                      if library == "pandas" else tables[1].rename({"b": "c"})]))  # fmt: skip


def test_a_model_takes_the_columns_of_a_stream_by_name():
    x = make_data()
    table = pd.DataFrame(x, columns=["a", "b"])
    turned = table[["b", "a"]]
    model = fixed_fit(table, n_features=20, lam=5.0)
    np.testing.assert_array_equal(model.log_density(iter([turned])), model.log_density(x))
    new, want = model.update(iter([turned])), model.update(turned)
    np.testing.assert_array_equal(new.theta, want.theta)
    streamed = fixed_fit(lambda: iter([table[:300], turned[300:]]), n_features=20, lam=5.0)
    assert streamed.table.columns == ["a", "b"]
    np.testing.assert_allclose(streamed.log_density(turned), model.log_density(x), rtol=1e-9)
    with pytest.raises(ValueError, match=r"block 0 of Y lacks the columns \['a'\]"):
        model.log_density(iter([table.rename(columns={"a": "c"})]))


# -- arrays that are filled again -----------------------------------------------------------------


@pytest.mark.parametrize("read_ahead", [False, True])
def test_an_array_that_is_filled_again_gives_the_same_sums(read_ahead):
    """Also where another thread fills it while a block is in use."""
    x, features = make_data(6_000), make_features()
    w = np.random.default_rng(2).uniform(0.5, 2.0, len(x))
    want = tgp.accumulate(
        ((x[i : i + 100], w[i : i + 100]) for i in range(0, 6_000, 100)), features, **EXACT
    )
    stream = refilled(x, w)
    found = tgp.accumulate(ReadAhead(stream) if read_ahead else stream, features, **EXACT)
    for name in ("n", "sum_w2", "sum_phi", "gram", "sum_xx"):
        assert np.array_equal(getattr(found, name), getattr(want, name)), name


@pytest.mark.parametrize("read_ahead", [False, True])
@pytest.mark.parametrize("n", [50, 100, 250, 600, 1_000])
def test_rows_that_are_kept_are_copies(n, read_ahead):
    """Of what a generator overwrites: a sample of a stream, and the whole of it."""
    x, w = make_data(), np.arange(1.0, 601.0)
    source = lambda: refilled(x, w)  # noqa: E731
    blocks = Blocks(ReadAhead(source) if read_ahead else source)
    blocks.draw_sample()
    list(blocks)  # another pass, which fills the array again
    rows, weights = blocks.pilot(n)
    np.testing.assert_array_equal(rows, x[choose_rows(600, n)])
    np.testing.assert_array_equal(weights, w[choose_rows(600, n)])
    np.testing.assert_array_equal(blocks.whole(), x)


def test_views_would_be_overwritten(monkeypatch):
    """Negative control of the two tests above."""
    x = make_data()
    monkeypatch.setattr(Blocks, "blocks_stay_valid", True)
    assert not np.array_equal(Blocks(lambda: refilled(x)).whole(), x)


@pytest.mark.slow
def test_settings_are_those_of_arrays_that_last():
    x = make_data(1_000)
    want = tgp.fit(lambda: iter(np.split(x, 10)), scale="none", method="fd")
    found = tgp.fit(lambda: refilled(x), scale="none", method="fd")
    assert found.settings == want.settings


# -- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-200, 1e-160, 1e160, 1e300])
def test_weights_whose_squares_are_beyond_floats(size):
    with pytest.raises(ValueError, match=r"sample_weight is .* at most, and its squares"):
        tgp.fit(make_data(), sample_weight=np.full(600, size))


@pytest.mark.parametrize("size", [1e-130, 1.0, 1e130])
def test_the_size_of_weights_does_not_matter(size):
    x, w = make_data(), np.random.default_rng(3).uniform(0.5, 2.0, 600)
    want, found = (fixed_fit(x, n_features=20, sample_weight=v) for v in (w, size * w))
    np.testing.assert_allclose(found.log_density(x), want.log_density(x), rtol=1e-9)


def test_moments_that_are_given_do_not_change_what_weights_count():
    """Kish's number of rows comes from the weights, of which it was known before."""
    x, w = make_data(), np.random.default_rng(3).uniform(0.0, 2.0, 600)
    mean = w @ x / w.sum()
    covariance = (x - mean).T @ ((x - mean) * w[:, None]) / w.sum()
    options = {"n_features": 20, "sample_weight": w}
    want = fixed_fit(x, **options)
    found = fixed_fit(x, moments=(w.sum(), mean, covariance), **options)
    assert found.settings["n"] == pytest.approx(w.sum() ** 2 / (w @ w), rel=1e-13)
    assert found.settings["weights"] == want.settings["weights"] == "Kish"
    np.testing.assert_allclose(found.log_density(x), want.log_density(x), rtol=1e-8)


@pytest.mark.parametrize("normalize", [True, False])
def test_weights_of_a_stream_with_given_moments_count_as_they_are(normalize, recwarn):
    """And that is told where Kish's rule was asked for."""
    x, w = make_data(), np.random.default_rng(3).uniform(0.0, 2.0, 600)
    moments = (w.sum(), x.mean(axis=0), np.cov(x.T))
    model = fixed_fit(
        iter([(x, w)]), n_features=20, moments=moments, normalize_weights=normalize
    )
    assert model.settings["weights"] == "as given"
    assert model.statistics.n == pytest.approx(w.sum(), rel=1e-13)
    told = [str(w.message) for w in recwarn if "weights that come with" in str(w.message)]
    assert len(told) == normalize


# -- streams that are read once -------------------------------------------------------------------


@pytest.mark.parametrize("first", [slow(1), slow(2), 3])
@pytest.mark.slow
def test_a_short_first_block_does_not_stop_a_stream(first):
    x = make_data()
    model = tgp.fit(iter([x[:first], x[first:]]))
    want = tgp.fit(iter([x]))
    np.testing.assert_allclose(model.log_density(x), want.log_density(x), rtol=1e-6)


@pytest.mark.slow
def test_a_stream_is_spread_with_the_threads_that_were_asked_for(monkeypatch):
    from tgpfast.statistics import spectrum

    counts, real = [], spectrum.GridFiller

    def watched(place, count):
        counts.append(count)
        return real(place, count)

    monkeypatch.setattr(spectrum, "GridFiller", watched)
    for n_threads in (1, 2):
        tgp.fit(iter([make_data()]), n_threads=n_threads)
    assert counts == [1, 2]
