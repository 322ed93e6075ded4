"""One random sample of rows for every kind of source, and the passes that a fit makes."""

import functools
import pickle
import warnings

import numpy as np
import pytest
from conftest import slow
from scipy import stats

import tgpfast as tgp
from tgpfast.data import row_sample
from tgpfast.data.blocks import Blocks, as_blocks
from tgpfast.data.files import write_rows
from tgpfast.data.moments import compute_moments, moments_and_sample
from tgpfast.data.prefetch import ReadAhead
from tgpfast.data.row_sample import Reservoir, choose_rows, draw_sample, row_keys
from tgpfast.data.started_pass import StartedPass
from tgpfast.selection.effort import Budget
from tgpfast.statistics.required_sums import RequiredSums

AGREE = 1e-6  # log densities: sums of other blocks round otherwise, and EM magnifies that
LATTICE_AGREE = 0.03  # of mean log densities of lattices


def numbered(n):
    """Rows that know their number."""
    return np.arange(float(n))[:, None]


def filled(n, size, step, first=0, weights=None):
    made = Reservoir(size)
    x = numbered(n)
    for at in range(0, n, step):
        w = None if weights is None else weights[at : at + step]
        made.add(first + at, x[at : at + step], w)
    return made


# -- the sample ------------------------------------------------------------------------------------


def test_keys_are_those_of_splitmix64():
    """The first outputs of the reference implementation for the seed 0; none repeats."""
    want = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert row_keys(0, 4).tolist() == want
    assert row_keys(2, 2).tolist() == want[2:]
    assert len(np.unique(row_keys(5, 100_000))) == 100_000


@pytest.mark.parametrize(("n", "size"), [(1, 5), (5, 5), (6, 5), (997, 50), (997, 996), (997, 1)])
@pytest.mark.parametrize("step", [1, 7, 64, 1_000])
def test_a_reservoir_keeps_the_rows_with_the_smallest_keys(n, size, step):
    """In the order of the source; smaller samples are part of larger ones."""
    order = np.argsort(row_keys(0, n))
    found = filled(n, size, step).sample()
    np.testing.assert_array_equal(found.x.ravel(), np.sort(order[:size]))
    np.testing.assert_array_equal(choose_rows(n, size), np.sort(order[:size]))
    for few in (1, 3, size, size + 1):
        rows, weights = found.take(few)
        np.testing.assert_array_equal(rows.ravel(), np.sort(order[: min(few, size)]))
        assert weights is None
        assert not rows.flags.writeable


def included(draw, n, trials):
    """How often each of n rows was drawn; draw : trial -> numbers of rows."""
    counts = np.zeros(n)
    for trial in range(trials):
        counts[draw(trial)] += 1
    return counts


def test_every_row_is_as_likely_as_any_other():
    """Chi-square of the inclusions, over keys that differ from trial to trial; likewise of a few
    of the rows of a sample. The first rows, and every k-th, fail."""
    n, size, trials = 200, 40, 2_000

    def p_value(counts, share):
        # inclusions without replacement: the variance is less than Poisson's by this factor
        expected = trials * share
        statistic = np.square(counts - expected).sum() / (expected * (1.0 - share))
        return stats.chi2.sf(statistic * (n - 1) / n, n - 1)

    def draw(k):
        return lambda trial: (
            filled(n, size, 64, first=n * trial).sample().take(k)[0].ravel().astype(int)
        )

    for k in (size, 5):
        assert p_value(included(draw(k), n, trials), k / n) > 1e-3
    assert p_value(included(lambda trial: np.arange(size), n, trials), size / n) < 1e-12
    assert p_value(included(lambda trial: np.arange(0, n, 5), n, trials), size / n) < 1e-12


def test_pairs_of_neighbours_are_drawn_independently():
    """As often as chance has it: 2,000 of 20,000 rows hold about 2,000 x 0.1 neighbours."""
    found = np.sort(choose_rows(20_000, 2_000))
    pairs = int((np.diff(found) == 1).sum())
    assert abs(pairs - 200) < 5 * np.sqrt(200)


def test_reservoirs_add():
    """In any cut, and grouped in any way, within the memory of one and a half samples."""
    n, size = 1_000, 60
    want = filled(n, size, 100).sample().x
    x, parts = numbered(n), []
    for start, stop in ((0, 10), (10, 480), (480, 481), (481, 1_000)):
        part = Reservoir(size)
        part.add(start, x[start:stop], None)
        parts.append(pickle.loads(pickle.dumps(part)))
    before = [part.sample().x.copy() for part in parts]
    a, b, c, d = parts
    for total in (((a + b) + c) + d, (a + b) + (c + d), a + (b + (c + d))):
        assert total.nbytes <= size * 16
        np.testing.assert_array_equal(total.sample().x, want)
    for part, rows in zip(parts, before, strict=True):  # a task that runs again finds its inputs
        np.testing.assert_array_equal(part.sample().x, rows)


def test_memory_of_a_reservoir():
    """It does not grow with the rows."""
    made, x = Reservoir(100), np.zeros((500, 3))
    for k in range(200):
        made.add(500 * k, x, None)
        assert made.nbytes <= (150 + 100) * 32


def test_rows_of_weight_zero_are_not_drawn():
    """Of many such rows a sample of all would have few others."""
    n = 5_000
    w = np.where(np.arange(n) % 50 == 7, 2.0, 0.0)
    found = filled(n, 80, 300, weights=w).sample()
    assert len(found.x) == 80
    assert (found.x.ravel().astype(int) % 50 == 7).all()
    np.testing.assert_array_equal(found.weights, 2.0)
    np.testing.assert_array_equal(choose_rows(n, 80, w), found.x.ravel())
    np.testing.assert_array_equal(Blocks(numbered(n), sample_weight=w).pilot(80)[0], found.x)
    # all rows of a block, and of a partition
    empty = Reservoir(80)
    empty.add(0, numbered(10), np.zeros(10))
    assert empty.sample().x.shape == (0, 1)
    np.testing.assert_array_equal((empty + filled(n, 80, 300, weights=w)).sample().x, found.x)


def test_blocks_without_weights_count_once_a_row():
    x, w = numbered(30), np.full(10, 3.0)
    blocks = Blocks([x[:10], (x[10:20], w), x[20:]])
    blocks.draw_sample()
    rows, weights = blocks.pilot(30)
    number = rows.ravel()
    np.testing.assert_array_equal(weights, np.where((number >= 10) & (number < 20), 3.0, 1.0))


# -- sources ---------------------------------------------------------------------------------------


def two_clusters(n, d, in_order=True, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) * 0.5
    x[: n // 2] += 2.0
    x[n // 2 :, 0] *= 3.0
    return x if in_order else rng.permutation(x)


def cut(x, size=700):
    return [x[at : at + size] for at in range(0, len(x), size)]


def write_parquet(path, x):
    polars = pytest.importorskip("polars")
    polars.DataFrame(x, schema=[f"c{k}" for k in range(x.shape[1])]).write_parquet(path)
    return path


def write(path, x):
    write_rows(path, x, [f"c{k}" for k in range(x.shape[1])])
    return path


def memmap(path, x):
    np.save(path, x)
    return np.load(path, mmap_mode="r")


def savez(path, x):
    np.savez(path, X=x)
    return path


def frame(library, x):
    module = pytest.importorskip(library)
    names = [f"c{k}" for k in range(x.shape[1])]
    if library == "pyarrow":
        return module.Table.from_arrays(list(map(module.array, x.T)), names=names)
    return module.DataFrame(x, **{"columns" if library == "pandas" else "schema": names})


def dask_array(x):
    return pytest.importorskip("dask.array").from_array(x, chunks=(-(-len(x) // 3), -1))


SOURCES = {
    "float_list": lambda path, x: x.tolist(),
    "fortran": lambda path, x: np.asfortranarray(x),
    "memmap": lambda path, x: memmap(path / "m.npy", x),
    "npy": lambda path, x: write(path / "x.npy", x),
    "npz": lambda path, x: savez(path / "x.npz", x),
    "csv": lambda path, x: write(path / "x.csv", x),
    "tsv": lambda path, x: write(path / "x.tsv", x),
    "parquet": lambda path, x: write_parquet(path / "x.parquet", x),
    "pandas": lambda path, x: frame("pandas", x),
    "polars": lambda path, x: frame("polars", x),
    "pyarrow": lambda path, x: frame("pyarrow", x),
    "blocks": lambda path, x: cut(x),
    "frames": lambda path, x: [frame("pandas", part) for part in cut(x)],
    "factory": lambda path, x: lambda: iter(cut(x, 333)),
    "read_ahead": lambda path, x: ReadAhead(lambda: iter(cut(x, 500))),
    "dask": lambda path, x: dask_array(x),
}


@pytest.mark.parametrize("size", [50, 2_900])
@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_same_sample(tmp_path, kind, size):
    """By a pass, and where rows are at hand by their numbers."""
    x = two_clusters(3_000, 3)
    want = x[choose_rows(3_000, size)]
    blocks = as_blocks(SOURCES[kind](tmp_path, x))
    moments, sample = moments_and_sample(blocks, size=size)
    assert blocks.n_passes == 1
    np.testing.assert_array_equal(sample.x, want)
    np.testing.assert_array_equal(draw_sample(blocks, size).x, want)
    np.testing.assert_allclose(moments.mean, compute_moments(Blocks(x)).mean, atol=1e-14)
    blocks.draw_sample()
    np.testing.assert_array_equal(blocks.pilot(size)[0], want)


@pytest.mark.parametrize("kind", ["npy", "csv", "parquet", "polars", "dask"])
@pytest.mark.parametrize("drawn", [False, True])
def test_a_pilot_is_mapped_with_its_weights(tmp_path, kind, drawn):
    """As the blocks are."""
    x = two_clusters(600, 2)
    w = np.arange(1.0, 601.0)
    blocks = as_blocks(SOURCES[kind](tmp_path, x), sample_weight=w)
    if drawn:
        blocks.draw_sample()
    order = choose_rows(600, 40)
    found = blocks.mapped(np.exp, 2.0).pilot(40)
    if kind == "csv" and not drawn:
        assert found is None  # that would take a pass
        return
    np.testing.assert_array_equal(found[0], np.exp(x[order]))
    np.testing.assert_array_equal(found[1], 2.0 * w[order])


def test_large_parquet_files_are_sampled_in_a_pass(tmp_path, monkeypatch):
    from tgpfast.data import parquet as parquet_rows

    monkeypatch.setattr(parquet_rows, "HELD_BYTES", 0)
    x = two_clusters(900, 2)
    blocks = Blocks(write_parquet(tmp_path / "x.parquet", x))
    blocks.draw_sample()
    assert blocks.n_passes == 1
    np.testing.assert_array_equal(blocks.pilot(50)[0], x[choose_rows(900, 50)])


def test_partitions_of_unknown_length():
    """Their keys go by partition and row in it: the same each time, and no row twice."""
    dask_array_module = pytest.importorskip("dask.array")
    x = numbered(900)
    X = dask_array_module.from_array(x, chunks=(300, 1))
    X = X[X[:, 0] >= 0]
    samples = [moments_and_sample(as_blocks(X), size=200)[1].x.ravel() for _ in range(2)]
    np.testing.assert_array_equal(*samples)
    assert len(set(samples[0].tolist())) == 200
    keys = np.concatenate([row_keys(k * 2**40, 300) for k in range(3)])
    np.testing.assert_array_equal(samples[0], np.sort(np.argsort(keys)[:200]))


# -- the default fit -------------------------------------------------------------------------------


def agree(model, want, points, most_passes=3):
    values, expected = (np.asarray(m.log_density(points)) for m in (model, want))
    assert model.settings["n_rows"] == want.settings["n_rows"]
    if model.settings.get("features") == "lattice":
        # roundings of the sums may decide between settings that are equally good
        assert abs(values.mean() - expected.mean()) < LATTICE_AGREE
    else:
        assert np.abs(values - expected).max() < AGREE
        for name in ("method", "base", "n_features", "frequency_covariance"):
            assert model.settings[name] == want.settings[name]
    assert 2 <= model.settings["n_passes"] <= most_passes


@pytest.fixture(scope="module")
def of_array():
    """(d, n, in order) -> rows, and the default fit of them as an array; made once each."""
    made = {}

    def get(d, n, in_order):
        if (d, n, in_order) not in made:
            x = two_clusters(n, d, in_order)
            made[d, n, in_order] = x, tgp.fit(x, n_threads=1)
        return made[d, n, in_order]

    return get


# Fewer rows, features and draws in every stage of a fit: which rows reach a stage does not depend
# on how many of them it takes. Rows are many from 501 on.
QUICK = {
    "pipeline.choosing": {"FEW_ROWS": 500, "FEATURE_COUNTS": (10, 20, 40)},
    "pipeline.random_features": {"FEATURE_COUNTS": (10, 20, 40)},
    "selection.candidates": {
        "GAMMA_MULTIPLES": (0.7, 1.8),
        "PILOT_LAMS": (1.0, 100.0), "FVPD_LAMS": (10.0,), "MAP_LAMS": (10.0, 1.0),
    },
    "selection.refinement": {
        "REFINEMENT_LOG2_DRAWS": 9, "COMPARED_FEATURES": 20
    },
    "selection.sample_split": {"EM_ROWS": 1_000, "FEW_ROWS": 500},
    "selection.verification": {"VERIFIED_DRAWS": 2**11},
}  # fmt: skip


def quick_fit(X):
    """The default fit with the constants of QUICK, quietly: samples of few draws differ more."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", tgp.PoorFitWarning)
        patch.setattr(Budget, "for_rows", lambda effort, n_rows, d: Budget(
            screen_features=16, log2_draws=9, map_draws=2**10, n_brief=1 if d > 3 else None,
            most_features=20,
        ))  # fmt: skip
        for module, constants in QUICK.items():
            for name, value in constants.items():
                patch.setattr(f"tgpfast.{module}.{name}", value)
        return tgp.fit(X, n_threads=1)


@functools.cache
def quick_fit_of_array(d, n, in_order):
    x = two_clusters(n, d, in_order)
    return x, quick_fit(x)


# every number of rows in both orders, every number of columns
@pytest.mark.parametrize(
    ("n", "d", "in_order"),
    [
        (50, 2, True), slow(50, 4, False),
        slow(4_000, 1, True), slow(4_000, 6, False),
        slow(20_000, 4, True), slow(20_000, 2, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_and_order_gives_the_model_of_the_array(tmp_path, kind, n, d, in_order):
    x, want = quick_fit_of_array(d, n, in_order)
    agree(quick_fit(SOURCES[kind](tmp_path, x)), want, two_clusters(500, d, seed=1))


# with the constants as they are: kinds, columns, rows, in order
CASES = [
    (("csv", "dask"), 2, 4_000, True),
    (("factory",), 4, 4_000, True),
    (("parquet",), 1, 20_000, True),
    (("blocks",), 6, 20_000, True),
    (("frames",), 2, 50, True),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "d", "n", "in_order"),
    [(kind, d, n, in_order) for kinds, d, n, in_order in CASES for kind in kinds],
)
def test_the_default_fit_of_every_source_is_that_of_the_array(
    tmp_path, of_array, kind, d, n, in_order
):
    x, want = of_array(d, n, in_order)
    model = tgp.fit(SOURCES[kind](tmp_path, x), n_threads=1)
    held_out = two_clusters(500, d, seed=1)
    agree(model, want, held_out)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_command_line_gives_the_same_model(tmp_path, of_array, suffix):
    from tgpfast import cli

    x, want = of_array(2, 4_000, True)
    source, output = SOURCES[suffix](tmp_path, x), tmp_path / "model.npz"
    command = ["fit", str(source), "-o", str(output), "--threads", "1", "--quiet"]
    assert cli.main(command) == 0
    agree(tgp.load(output), want, two_clusters(500, 2, seed=1))


@pytest.mark.slow
def test_weights_reach_the_sample(tmp_path):
    """Weights of a stream, of an array and of partitions: the same model."""
    x = two_clusters(4_000, 2)
    w = np.random.default_rng(3).uniform(0.0, 2.0, 4_000)
    w[::9] = 0.0
    options = {"method": "fd", "base": "mixture", "n_features": 100, "n_threads": 1}
    want = tgp.fit(x, sample_weight=w, **options)
    pairs = [(x[:100], w[:100]), (x[100:], w[100:])]
    for source, given in (
        (pairs, None), (SOURCES["csv"](tmp_path, x), w), (SOURCES["dask"](tmp_path, x), w)
    ):  # fmt: skip
        agree(tgp.fit(source, sample_weight=given, **options), want, x[::50])


@pytest.mark.slow
def test_a_sample_of_the_first_rows_would_fail(tmp_path, of_array, monkeypatch):
    """Negative control: the rows of one cluster only, as streams gave them once."""
    x, want = of_array(4, 4_000, True)
    monkeypatch.setattr(row_sample, "keys_of", lambda numbers: numbers.astype(np.uint64))
    monkeypatch.setattr(
        "tgpfast.pipeline.rows.moments_and_sample",
        lambda *a, **k: moments_and_sample(*a, **k, size=1_500),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # it may see that something is wrong
        model = tgp.fit(cut(x), n_threads=1)
    points = two_clusters(500, 4, seed=1)
    assert model.log_density(points).mean() < want.log_density(points).mean() - 0.1


# -- precision -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fd", slow("fvpd"), slow("ncfd")])
@pytest.mark.parametrize("kind", ["csv", "blocks", "factory"])
def test_streams_of_many_rows_choose_their_precision(tmp_path, kind, method):
    """From the sample, as arrays do."""
    x = np.random.default_rng(0).standard_normal((8_000, 4))
    options = {"method": method, "lam": 10.0, "gamma": "scott", "base": "empirical",
               "frequency_covariance": "data", "n_features": 100, "n_threads": 1}  # fmt: skip
    model, want = (tgp.fit(s, **options) for s in (SOURCES[kind](tmp_path, x), x))
    for name in ("precision", "precision_reason"):
        assert model.statistics.provenance[name] == want.statistics.provenance[name]
    assert "predicted change" in want.statistics.provenance["precision_reason"]
    assert model.settings["n_passes"] == want.settings["n_passes"] == 2
    np.testing.assert_allclose(model.log_density(x[:50]), want.log_density(x[:50]), rtol=1e-5)


@pytest.mark.parametrize("kind", ["csv", "blocks", "factory"])
def test_accumulate_of_a_stream_is_float64(tmp_path, kind):
    """With the reason; also of blocks that were read before, whose number of rows is known."""
    x = np.random.default_rng(0).standard_normal((8_000, 4))
    features = tgp.Features.draw(20, 1.0, np.eye(4), seed=0)
    blocks = Blocks(SOURCES[kind](tmp_path, x))
    for _ in range(2):
        found = tgp.accumulate(blocks, features, n_threads=1)
        assert found.provenance["precision"] == "float64"
        assert found.provenance["precision_reason"] == "rows of a stream cannot be sampled ahead"


# -- passes ----------------------------------------------------------------------------------------


COMPARED = 50  # features with which bandwidths are compared


class Counted:
    """A factory of blocks that counts its calls."""

    def __init__(self, x):
        self.x, self.calls = x, 0

    def __call__(self):
        self.calls += 1
        return iter(cut(self.x))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "d", "passes"),
    [
        ({}, 2, None), ({}, 4, None),
        ({"method": "map", "base": "empirical"}, 2, 3),
        ({"method": "map", "base": "empirical", "n_features": COMPARED}, 2, 2),
        ({"method": "map", "base": "mixture"}, 4, 2),
        ({"method": "fd", "base": "empirical"}, 2, 2),  # one grid for all bandwidths
        ({"method": "fvpd", "base": "empirical"}, 2, 2),
        ({"method": "fd", "base": "empirical"}, 4, 2),  # bandwidths are not compared on all rows
        ({"method": "fd", "base": "mixture"}, 4, 3),  # scores of the mixture
        ({"method": "fd", "base": "student", "gamma": 0.5}, 2, 3),
        ({"method": "fd", "base": "scaled", "gamma": 0.5}, 2, 2),
    ],
    ids=str,
)  # fmt: skip
def test_a_fit_reads_its_rows_at_most_three_times(monkeypatch, options, d, passes):
    """Counted by the factory and recorded; bandwidths share one pass."""
    monkeypatch.setattr("tgpfast.statistics.required_sums.MANY_ROWS", 3_000)
    monkeypatch.setattr("tgpfast.selection.refinement.COMPARED_FEATURES", COMPARED)
    x = two_clusters(3_500, d, in_order=False)
    x[:, 0] = np.sin(3.0 * x[:, 0]) + 0.3 * x[:, 0]  # so that a tilt gains
    source = Counted(x)
    fixed = {"n_features": 60, "frequency_covariance": "identity", "lam": 10.0, "eta": "1/gamma2"}
    model = tgp.fit(source, n_threads=1, **(fixed | options if options else {}))
    assert model.settings["n_passes"] == source.calls <= 3
    if passes is not None:
        assert source.calls == passes


def test_bandwidths_of_map_are_compared_in_one_pass(monkeypatch):
    """More than one of them, so that the test above counts what it should."""
    monkeypatch.setattr("tgpfast.selection.refinement.COMPARED_FEATURES", COMPARED)
    x = two_clusters(3_500, 2, in_order=False)
    options = {"method": "map", "base": "empirical", "n_features": 60, "n_threads": 1,
               "frequency_covariance": "identity", "lam": 1.0}  # fmt: skip
    source = Counted(x)
    model = tgp.fit(source, **options)
    widths = {row["gamma"] for row in model.settings["lam_tried"]}
    assert len(widths) > 1
    assert source.calls == 3
    # negative control: without the joint pass each bandwidth takes its own
    monkeypatch.setattr(RequiredSums, "for_bandwidths", lambda self, *rest: self)
    source = Counted(x)
    tgp.fit(source, **options)
    assert source.calls > 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "passes"),
    [({"lam": 10.0, "gamma": 0.5, "base": "empirical"}, 1),
     ({"lam": 10.0, "gamma": "auto", "base": "empirical"}, 2),
     ({"lam": 10.0, "gamma": 0.5, "base": "mixture"}, 3)],
    ids=str,
)  # fmt: skip
def test_moments_that_are_given_save_a_pass(options, passes):
    """Unless a sample is needed, which streams give in a pass, and arrays by numbers of rows."""
    x = two_clusters(2_000, 4)
    options = {"method": "fd", "n_features": 50, "frequency_covariance": "identity",
               "moments": (2_000, x.mean(axis=0), np.cov(x.T, bias=True)), "n_threads": 1,
               **options}  # fmt: skip
    source = Counted(x)
    model, of_array = tgp.fit(source, **options), tgp.fit(x, **options)
    needed = passes > 1
    assert model.settings["n_passes"] == source.calls == passes
    assert of_array.settings["n_passes"] == passes - needed
    agree_on = two_clusters(200, 4, seed=1)
    np.testing.assert_allclose(
        model.log_density(agree_on), of_array.log_density(agree_on), atol=AGREE
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_can_be_read_only_once(weighted):
    """Fixed settings, one pass; with moments in more than three columns."""
    for d in (2, 5):
        x = two_clusters(9_000, d)
        parts = [(p, np.full(len(p), 2.0)) if weighted else p for p in cut(x)]
        weight = 2.0 if weighted else 1.0
        moments = (9_000 * weight, x.mean(axis=0), np.cov(x.T, bias=True)) if d > 3 else None
        options = {"normalize_weights": False} if weighted else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # one Gaussian does not suit clusters
            model = tgp.fit(iter(parts), n_features=60, moments=moments, n_threads=1, **options)
        assert model.settings["n_passes"] == 1
        assert ("verification" in model.settings) == (d == 2)  # a sample is kept where that serves
        assert model.settings["selected"] is False
        assert np.isfinite(model.log_density(x[:20])).all()


def test_passes_are_counted_of_every_copy():
    x = numbered(100)
    blocks = Blocks(x)
    other = blocks.mapped(np.negative)
    list(blocks)
    list(other)
    started = StartedPass(other)
    started.read(10)
    list(started.blocks)  # goes on with the pass that was begun
    assert blocks.n_passes == other.n_passes == 3
    blocks.draw_sample()  # by numbers of rows
    assert blocks.n_passes == 3
