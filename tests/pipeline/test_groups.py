"""Many small densities: every group as if alone, whatever its neighbours, batches and threads."""

import datetime
import warnings
from collections import deque, namedtuple
from enum import Enum

import numpy as np
import oracle
import pytest
from conftest import doctored, slow

import tgpfast as tgp
from tgpfast.density import grouped
from tgpfast.density.normalizing.group_normalizers import GroupNormalizers
from tgpfast.density.normalizing.integration import Integrator
from tgpfast.pipeline import group_bases, group_solver, groups
from tgpfast.pipeline.group_solver import GroupSolver, padded_length
from tgpfast.statistics.fisher import fd_system


@pytest.fixture(autouse=True)
def float64_unless_asked_otherwise(monkeypatch):
    """Tests compare to rounding; what "auto" takes has tests of its own."""
    monkeypatch.setattr(groups, "MIXED_ERROR", np.inf)

# as in test_solve: sums err by some 1e-15 of their largest terms, solutions by condition times that
FACTOR = 30e-15
SMALL = {"n_features": 24, "backend": "numpy"}


def made(sizes=(60, 75, 128, 60), d=2, seed=0, *, apart=3.0):
    """Rows of several groups of unlike shape, shuffled; and their labels 0, 1, ..."""
    rng = np.random.default_rng(seed)
    parts = []
    for n in sizes:
        half = rng.standard_normal((d, d)) / np.sqrt(d) + np.eye(d)
        parts.append(rng.standard_normal((n, d)) @ half + rng.normal(0.0, apart, d))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    order = rng.permutation(len(labels))
    return np.concatenate(parts)[order], labels[order]


def scaled(result, x, label):
    """Rows in the coordinates of a group."""
    return (x - result.means[label]) / result.scale


def condition(result, u, weights=None):
    """Of the group's system, from statistics."""
    stats = tgp.accumulate(
        u, result.features, sample_weight=weights, engine="direct", precision="float64"
    )
    base = tgp.GaussianBase(np.zeros(u.shape[1]), np.eye(u.shape[1]))
    system, _ = fd_system(stats, base)
    gamma, lam = result.features.bandwidth, result.settings["lam"]
    return np.linalg.cond(system + lam * gamma**2 * np.eye(len(system)))


def relative(found, expected):
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def same_bits(a, b):
    for name in ("theta", "means", "covariances", "n", "scale", "shrinkage", "condition"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


# -- every group as if alone ----------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "numba", "cython"])
@pytest.mark.parametrize("weighted", [False, True])
def test_each_group_is_what_solve_gives_for_its_rows(backend, weighted):
    """theta of every group, of several lengths of lane, is that of accumulate and solve."""
    if backend not in tgp.kernels.available():
        pytest.skip(backend)
    x, labels = made(d=3)
    w = np.random.default_rng(5).uniform(0.5, 1.5, len(x)) if weighted else None
    result = tgp.fit_groups(
        x, labels, n_features=30, sample_weight=w, normalize_weights=False, backend=backend
    )
    for g, label in enumerate(result):
        rows = labels == label
        u = scaled(result, x[rows], g)
        weights = None if w is None else w[rows]
        stats = tgp.accumulate(
            u, result.features, sample_weight=weights, origin=np.zeros(3), engine="direct",
            precision="float64",
        )  # fmt: skip
        alone = tgp.solve(stats, result[label].base, "fd", lam=10.0)
        bound = FACTOR * condition(result, u, weights)
        assert bound < 1e-9
        assert relative(result[label].theta, alone.theta) <= bound
        y = x[rows][:20]
        want = alone.log_density(scaled(result, y, g), normalized=False)
        want = want - np.log(result.scale).sum()
        got = result[label].log_density(y, normalized=False)
        assert np.abs(got - want).max() <= 30 * bound


@pytest.mark.parametrize("d", [1, 2, 4])
def test_each_group_equals_the_oracle(d):
    """Algorithm 2 written out plainly, with moments by numpy, gives the same theta and log q."""
    x, labels = made((80, 90, 100), d)
    result = tgp.fit_groups(x, labels, lam=2.0, gamma=0.9, **SMALL)
    f = result.features
    args = (f.frequencies, f.phases, f.bandwidth)
    for g in range(3):
        rows = x[labels == g]
        np.testing.assert_allclose(result.means[g], rows.mean(axis=0), rtol=1e-13)
        want = np.cov(rows.T, bias=True).reshape(d, d)
        np.testing.assert_allclose(result.covariances[g], want, rtol=1e-12, atol=1e-13)
        u = (rows - rows.mean(axis=0)) / result.scale
        C = want / np.outer(result.scale, result.scale)
        theta = oracle.theta_fd(u, *args, 2.0, np.zeros(d), C)
        bound = FACTOR * condition(result, u)
        assert bound < 1e-9
        assert relative(result.theta[g], theta) <= bound
        log_q = oracle.log_q(u[:9], theta, *args, np.zeros(d), C) - np.log(result.scale).sum()
        got = result.log_density(rows[:9], g, normalized=False)
        assert np.abs(got - log_q).max() <= 100 * bound


def test_one_group_is_fit_with_the_pooled_scale():
    """One group, centred only: fit with the same settings gives the same density."""
    x, _ = made((300,))
    settings = {"gamma": 0.7, "lam": 3.0, "n_features": 30, "scale": "center", "seed": 4}
    result = tgp.fit_groups(x, np.zeros(300, int), **settings)
    alone = tgp.fit(
        x, method="fd", base="empirical", frequency_covariance="identity", engine="direct",
        precision="float64", **settings,
    )  # fmt: skip
    bound = FACTOR * condition(result, scaled(result, x, 0))
    assert result.features == alone.features
    assert relative(result.theta[0], alone.theta) <= bound
    assert np.abs(result.log_density(x[:9], 0) - alone.log_density(x[:9])).max() <= 1e-9


@pytest.mark.parametrize("lam", [10.0, 1e-4])
def test_mixed_precision_is_taken_where_it_is_safe(lam, monkeypatch):
    """By the bound for the largest group, which is not below the condition that the result has;
    what is taken is what would have been asked for by name."""
    monkeypatch.setattr(groups, "MIXED_ERROR", 1e-7)
    rng = np.random.default_rng(3)
    x, labels = rng.standard_normal((120, 2)), np.repeat([0, 1, 1], 40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # at the small lambda
        found = tgp.fit_groups(x, labels, n_features=24, lam=lam)
        taken = "mixed" if lam == 10.0 else "float64"
        named = tgp.fit_groups(x, labels, n_features=24, lam=lam, precision=taken)
    assert found.settings["provenance"]["precision"] == taken
    np.testing.assert_array_equal(found.theta, named.theta)
    z = found.features.frequencies
    bound = 1.0 + 2.0 * 80 * (z**2).sum() / 24 / (lam * found.features.bandwidth**2)
    assert found.condition.max() <= bound
    assert (1e-7 * bound < 1e-3) == (taken == "mixed")
    text = found.settings["provenance"]["precision_reason"]
    assert ("below" in text) == (taken == "mixed")


@pytest.mark.parametrize("large", [False, True])
def test_mixed_precision_errs_by_what_it_says(large, monkeypatch):
    """float32 products move log densities, by less than 1e-7 times the condition's bound."""
    if large:
        monkeypatch.setattr(group_solver, "LARGE_GROUP_ROWS", 10)
    x, labels = made((100, 120), 4)
    exact = tgp.fit_groups(x, labels, n_features=24)
    mixed = tgp.fit_groups(x, labels, n_features=24, precision="mixed")
    assert mixed.settings["provenance"]["precision"] == "mixed"
    change = mixed.log_density(x, labels, False) - exact.log_density(x, labels, False)
    assert 0 < np.abs(change).max() <= 1e-7 * exact.condition.max()


def test_a_large_group_is_a_pass_of_its_own(monkeypatch):
    """Large groups go through the direct engine; the result is the same to rounding."""
    x, labels = made((300, 60, 70))
    plain = tgp.fit_groups(x, labels, **SMALL)
    monkeypatch.setattr(group_solver, "LARGE_GROUP_ROWS", 100)
    seen = []
    real = GroupSolver._accumulate_alone
    monkeypatch.setattr(
        GroupSolver, "_accumulate_alone",
        lambda self, rows, g: seen.append(g) or real(self, rows, g),
    )  # fmt: skip
    split = tgp.fit_groups(x, labels, **SMALL)
    assert seen == [0]
    bound = FACTOR * condition(plain, scaled(plain, x[labels == 0], 0))
    assert relative(split.theta[0], plain.theta[0]) <= bound
    np.testing.assert_array_equal(split.theta[1:], plain.theta[1:])


def test_pooled_settings_are_those_documented():
    """Pooled covariance, scale, Scott's rule and frequency covariances, by their formulas."""
    x, labels = made((50, 70, 90), 3)
    parts = [x[labels == g] for g in range(3)]
    scatter = sum((p - p.mean(axis=0)).T @ (p - p.mean(axis=0)) for p in parts)
    V = scatter / (50 + 70 + 90 - 3)
    result = tgp.fit_groups(x, labels, scale="center", frequency_covariance="data", **SMALL)
    np.testing.assert_array_equal(result.scale, np.ones(3))
    want = 70 ** (-1 / 7) * np.sqrt(np.trace(V) / 3)
    assert result.features.bandwidth == pytest.approx(want, rel=1e-13)
    np.testing.assert_allclose(result.features.covariance, 3 * V / np.trace(V), rtol=1e-12)
    standard = tgp.fit_groups(x, labels, frequency_covariance="precision", base="pooled", **SMALL)
    np.testing.assert_allclose(standard.scale, np.sqrt(np.diag(V)), rtol=1e-13)
    assert standard.settings["gamma"] == pytest.approx(70 ** (-1 / 7), rel=1e-13)
    np.testing.assert_allclose(standard.covariances, np.array([V] * 3), rtol=1e-12)
    given = tgp.fit_groups(x, labels, frequency_covariance=np.eye(3), gamma=0.5, **SMALL)
    assert given.settings["frequency_covariance"] == given.settings["gamma_rule"] == "given"


# -- what must not matter --------------------------------------------------------------------------


def test_the_order_of_rows_does_not_matter():
    """A permutation of the rows changes theta by rounding alone."""
    x, labels = made(d=3)
    order = np.random.default_rng(1).permutation(len(x))
    a = tgp.fit_groups(x, labels, gamma=0.8, **SMALL)
    b = tgp.fit_groups(x[order], labels[order], gamma=0.8, **SMALL)
    for g in range(len(a)):
        bound = FACTOR * condition(a, scaled(a, x[labels == g], g))
        assert relative(a.theta[g], b.theta[g]) <= bound


def test_neighbours_do_not_matter():
    """With scale and bandwidth given, a group learned among others is what it is alone."""
    x, labels = made((80, 61, 200, 64))
    settings = {"gamma": 0.7, "scale": "center", **SMALL}
    among = tgp.fit_groups(x, labels, **settings)
    for g in range(4):
        alone = tgp.fit_groups(x[labels == g], labels[labels == g], **settings)
        bound = FACTOR * condition(among, scaled(among, x[labels == g], g))
        assert relative(alone.theta[0], among.theta[g]) <= bound


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numba", "cython"])
def test_bits_do_not_depend_on_threads(backend):
    if backend not in tgp.kernels.available():
        pytest.skip(backend)
    x, labels = made((60, 64, 75, 128, 300), 3)
    runs = []
    for count in (1, 2):
        result = tgp.fit_groups(
            x, labels, n_features=30, gamma=1.2, backend=backend, n_threads=count
        )
        runs.append((result, result.log_density(x, labels)))
    same_bits(runs[0][0], runs[1][0])
    np.testing.assert_array_equal(runs[0][1], runs[1][1])


def test_bits_do_not_depend_on_the_budget(monkeypatch):
    """A budget for one group at a time, and one that is no limit, give the same bits."""
    x, labels = made((60,) * 6 + (75,) * 3 + (130,), 2)
    sizes = []
    real = GroupSolver._accumulate_batch
    monkeypatch.setattr(
        GroupSolver, "_accumulate_batch",
        lambda self, rows, roots, length, which: sizes.append(len(which))
        or real(self, rows, roots, length, which),
    )  # fmt: skip
    wide = tgp.fit_groups(x, labels, **SMALL)
    assert sorted(sizes) == [1, 3, 6]
    sizes.clear()
    narrow = tgp.fit_groups(x, labels, budget="138KB", **SMALL)
    assert sizes == [1] * 10
    same_bits(wide, narrow)
    with pytest.raises(ValueError, match=r"budget of 48\.8 KiB does not hold one group"):
        tgp.fit_groups(x, labels, budget=50_000, **SMALL)


def test_padding_depends_on_the_group_alone():
    """At most an eighth more rows, never fewer; short groups have none."""
    lengths = [padded_length(n) for n in range(1, 3000)]
    for n, length in enumerate(lengths, 1):
        assert n <= length <= n + n // 8
    assert lengths[:16] == list(range(1, 17))
    assert padded_length(500) == 512


def test_padding_with_weight_is_seen(monkeypatch):
    """Negative control: were padded rows to count, the comparison with solve would see it."""
    x, labels = made((61, 67))
    good = tgp.fit_groups(x, labels, gamma=0.8, **SMALL)
    kernel = tgp.kernels.load("numpy")
    real = kernel.lane_rank_k
    monkeypatch.setattr(
        kernel, "lane_rank_k", lambda x, root, *rest: real(x, np.ones_like(root), *rest)
    )
    bad = tgp.fit_groups(x, labels, gamma=0.8, **SMALL)
    bound = FACTOR * condition(good, scaled(good, x[labels == 0], 0))
    assert relative(bad.theta[0], good.theta[0]) > 1e3 * bound


@pytest.mark.parametrize("normalize", [False, True])
def test_weights_are_repetitions(normalize):
    """Weight 2 is two rows; normalised, weights count up to a factor for each group."""
    x, labels = made((60, 70))
    w = np.random.default_rng(2).integers(0, 3, len(x))
    options = {"gamma": 0.8, "scale": "center", **SMALL}
    weighted = tgp.fit_groups(x, labels, sample_weight=w, normalize_weights=normalize, **options)
    if normalize:
        factor = np.where(labels == 0, 7.0, 0.5)
        other = tgp.fit_groups(x, labels, sample_weight=w * factor, **options)
        kish = [w[labels == g].sum() ** 2 / (w[labels == g] ** 2).sum() for g in (0, 1)]
        np.testing.assert_allclose(weighted.n, kish, rtol=1e-14)
    else:
        other = tgp.fit_groups(np.repeat(x, w, axis=0), np.repeat(labels, w), **options)
        np.testing.assert_array_equal(weighted.n_rows, [(w[labels == g] > 0).sum() for g in (0, 1)])
    np.testing.assert_allclose(weighted.n, other.n, rtol=1e-14)
    for g in (0, 1):
        keep = (labels == g) & (w > 0)
        bound = FACTOR * condition(weighted, scaled(weighted, x[keep], g))
        assert relative(weighted.theta[g], other.theta[g]) <= bound
    assert weighted.settings["weights"] == ("Kish" if normalize else "as given")


@pytest.mark.parametrize("power", [-1060, -538, -500, 460])
def test_normalised_weights_of_any_size(power):
    """Weights of one group times a power of two, whose squares may vanish, change no bit."""
    x, labels = made((60, 70))
    w = np.random.default_rng(2).integers(1, 9, len(x))
    other = np.ldexp(w, np.where(labels == 0, power, 0))
    same_bits(
        tgp.fit_groups(x, labels, sample_weight=other, **SMALL),
        tgp.fit_groups(x, labels, sample_weight=w, **SMALL),
    )


@pytest.mark.parametrize("weight", [1 / 60, 1e-3, 1e-100])
def test_small_weights_that_are_not_normalised(weight):
    """Groups of one row by their weights, or less, have the pooled covariance of their rows."""
    x, labels = made((60, 60, 60))
    w = np.full(len(x), weight)
    with pytest.warns(RuntimeWarning, match="3 of 3 groups have fewer than"):
        result = tgp.fit_groups(x, labels, sample_weight=w, normalize_weights=False, **SMALL)
    plain = tgp.fit_groups(x, labels, base="pooled", **SMALL)
    np.testing.assert_allclose(result.scale, plain.scale, rtol=1e-13)
    np.testing.assert_allclose(result.covariances, plain.covariances, rtol=1e-12)
    np.testing.assert_allclose(result.n, 60 * weight, rtol=1e-13)


def test_one_row_that_outweighs_all_others():
    x, labels = made((60, 60))
    w = np.full(len(x), 1e-30)
    w[[np.argmax(labels == 0), np.argmax(labels == 1)]] = 1.0
    with pytest.raises(ValueError, match="no group has two rows of similar weight"):
        tgp.fit_groups(x, labels, sample_weight=w, **SMALL)


def test_far_groups_lose_no_digits():
    """Groups a million deviations apart are learned as well as near ones: rows are centred."""
    rng = np.random.default_rng(3)
    x = rng.integers(-512, 512, (200, 2)) / 256.0  # exact in floating point after the shift
    labels = np.repeat([0, 1], 100)
    near = tgp.fit_groups(x, labels, **SMALL)
    far = tgp.fit_groups(x + 2.0**22 * labels[:, None], labels, **SMALL)
    # the mean itself is rounded, to 2^-31 where the group is far
    assert np.abs(far.theta - near.theta).max() <= 1e-8 * np.abs(near.theta).max()
    np.testing.assert_allclose(far.covariances, near.covariances, rtol=1e-12)


# -- small groups ----------------------------------------------------------------------------------


def test_small_groups_borrow_the_pooled_covariance():
    """The documented share of the pooled covariance, told once and kept."""
    x, labels = made((200, 1, 2, 3, 5, 12, 29, 30), 2)
    with pytest.warns(RuntimeWarning, match="6 of 8 groups have fewer than .* 30 rows"):
        result = tgp.fit_groups(x, labels, **SMALL)
    n = np.array([200, 1, 2, 3, 5, 12, 29, 30])
    want = np.clip((3 / n - 0.1) / 0.9, 0, 1)
    np.testing.assert_allclose(result.shrinkage, want, rtol=1e-12, atol=1e-16)
    assert (result.shrinkage[:4] == [0, 1, 1, 1]).all()
    assert result.shrinkage[7] == 0
    np.testing.assert_array_equal(result.covariances[1], result.covariances[2])
    np.testing.assert_allclose(result.means[1], x[labels == 1][0], rtol=1e-15)
    own = np.cov(x[labels == 5].T, bias=True)
    mixed = (1 - want[5]) * own + want[5] * result.covariances[1]
    np.testing.assert_allclose(result.covariances[5], mixed, rtol=1e-11)
    assert result.settings["n_shrunk"] == 6
    assert result[5].settings["base_shrinkage"] == pytest.approx(want[5])
    values = result.log_density(x, labels)
    assert np.isfinite(values).all()
    u = scaled(result, x[labels == 3], 3)
    C = result[3].base.covariance
    f = result.features
    theta = oracle.theta_fd(u, f.frequencies, f.phases, f.bandwidth, 10.0, np.zeros(2), C)
    assert relative(result.theta[3], theta) <= FACTOR * condition(result, u)


def test_a_column_that_is_constant_in_one_group():
    """Its base keeps a millionth of the pooled variance; a column constant in all is refused."""
    x, labels = made((100, 120), 2)
    x[labels == 0, 1] = 7.25
    with pytest.warns(RuntimeWarning, match="1 of 2 groups .* almost no spread"):
        result = tgp.fit_groups(x, labels, **SMALL)
    assert 0 < result.shrinkage[0] <= 1.1e-6
    assert result.shrinkage[1] == 0
    assert result.covariances[0][1, 1] == pytest.approx(1e-6 * result.scale[1] ** 2, rel=0.3)
    assert np.isfinite(result.log_density(x, labels)).all()
    x[:, 1] = np.where(labels == 0, 7.25, 0.1)
    with pytest.raises(ValueError, match="column 1 is constant within every group"):
        tgp.fit_groups(x, labels, **SMALL)
    x[:, 1] = 2 * x[:, 0]
    with pytest.raises(ValueError, match="columns 0, 1 are linearly dependent"):
        tgp.fit_groups(x, labels, **SMALL)


def test_without_shrinkage_a_small_group_fails(monkeypatch):
    """Negative control: the covariance of two rows is singular, and the base would refuse it."""
    x, labels = made((200, 2), 2)
    monkeypatch.setattr(
        group_bases, "shrink_covariances", lambda own, pooled, n: (own, np.zeros(len(n)))
    )
    with pytest.raises((ValueError, np.linalg.LinAlgError)):
        tgp.fit_groups(x, labels, **SMALL).log_density(x, labels)


def test_single_rows_alone_have_no_spread():
    x, _ = made((30,))
    with pytest.raises(ValueError, match="no group has two different rows"):
        tgp.fit_groups(x, np.arange(30), **SMALL)


def test_added_diagonals_are_told_once():
    """Systems that rounding leaves not positive definite get more on their diagonals, and a sound
    one in the same batch keeps its bits."""
    x, labels = made((60, 60, 60))
    x[labels == 1] *= 300.0
    options = {"gamma": 20.0, "lam": 1e-30, "scale": "center", **SMALL}
    with pytest.warns(RuntimeWarning, match="systems of 2 of 3 groups are not positive definite"):
        result = tgp.fit_groups(x, labels, **options)
    assert (result.added > 0).tolist() == [True, False, True]
    assert np.isfinite(result.theta).all()
    assert result[0].diagnostics["added_to_diagonal"] == result.added[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # now ill-conditioned only
        alone = tgp.fit_groups(x[labels == 1], labels[labels == 1], **options)
    np.testing.assert_array_equal(alone.theta[0], result.theta[1])


# -- labels ----------------------------------------------------------------------------------------


def variants(labels):
    import pandas
    import polars

    names = np.array(["b", "a", "ä"])
    text = names[labels]
    return {
        "integers": (labels, [0, 1, 2]),
        "list": (labels.tolist(), [0, 1, 2]),
        "unsigned": (labels.astype(np.uint8), [0, 1, 2]),
        "floats": (labels + 0.5, [0.5, 1.5, 2.5]),
        "text": (text, ["a", "b", "ä"]),
        "list of text": (text.tolist(), ["a", "b", "ä"]),
        "objects": (text.astype(object), ["a", "b", "ä"]),
        "pandas": (pandas.Series(text), ["a", "b", "ä"]),
        "categorical": (pandas.Categorical(text, categories=["ä", "b", "a", "z"]), ["a", "b", "ä"]),
        "polars": (polars.Series(text), ["a", "b", "ä"]),
        "tuples": ([(int(i), "x") for i in labels], [(0, "x"), (1, "x"), (2, "x")]),
        "dates": (np.datetime64("2020-01-01") + labels, None),
        "unlike": ([("a", 1, 2.5)[i] for i in labels], None),
    }


KINDS = (
    "integers", "list", "unsigned", "floats", "text", "list of text", "objects", "pandas",
    "categorical", "polars", "tuples", "dates", "unlike",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_any_kind(kind):
    """Labels are sorted where they can be; each finds its own rows, alone and mixed."""
    for package in ("pandas", "polars"):
        pytest.importorskip(package)
    x, labels = made((60, 70, 80))
    given, want = variants(labels)[kind]
    result = tgp.fit_groups(x, given, gamma=0.8, **SMALL)
    plain = tgp.fit_groups(x, labels, gamma=0.8, **SMALL)
    if want is not None:
        assert result.labels == want
        assert {type(label) for label in result} == {type(want[0])}
    values = list(given)
    for row in (0, 5, 17):
        label = values[row]
        assert label in result
        np.testing.assert_array_equal(result[label].theta, plain.theta[labels[row]])
    got = result.log_density(x, given, normalized=False)
    np.testing.assert_array_equal(got, plain.log_density(x, labels, normalized=False))


class Colour(str, Enum):
    RED = "red"
    REDDISH = "reddish"


Pair = namedtuple("Pair", "a b")
ALIKE = {  # labels that an array of them would change; whether a file holds them
    "unsigned": ([7, 2**63 + 1, 2**63 + 2], True),
    "more than 64 bits": ([2**70, 2**70 + 1], False),
    "both signs": ([-1, 2**63], False),
    "enumeration": ([Colour.RED, Colour.REDDISH], False),
    "text and NUL": (["a", "a\0"], False),
    "bytes and NUL": ([b"a", b"a\0"], False),
    "named tuples": ([Pair(1, 2), Pair(1, 3)], False),
    "sets": ([frozenset({1}), frozenset({2})], False),
    "ranges": ([range(2), range(3)], False),
    "text of numpy": ([np.str_("a"), np.str_("b")], True),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALIKE)
@pytest.mark.parametrize("container", [list, tuple, deque])
def test_labels_that_differ_are_kept_apart(kind, container, tmp_path):
    """Each finds its own rows, alone and mixed, also out of a file, or no file is written."""
    distinct, can_be_saved = ALIKE[kind]
    x, labels = made((60, 70, 80)[: len(distinct)])
    given = container(distinct[i] for i in labels)
    result = tgp.fit_groups(x, given, gamma=0.8, **SMALL)
    plain = tgp.fit_groups(x, labels, gamma=0.8, **SMALL)
    path = tmp_path / "many.npz"
    if can_be_saved:
        result.save(path)
        found = [result, tgp.load(path)]
        found[1].threads = result.threads
        assert found[1].labels == result.labels == distinct
    else:
        found = [result]
        with pytest.raises(TypeError, match="cannot be saved: all must be integers, all text"):
            result.save(path)
    for one in found:
        assert len(one) == len(distinct)
        got = one.log_density(x, given, normalized=False)
        np.testing.assert_array_equal(got, plain.log_density(x, labels, normalized=False))
        for g, label in enumerate(distinct):
            assert label in one
            np.testing.assert_array_equal(one[label].theta, plain.theta[g])
            got = one.log_density(x, label, normalized=False)
            np.testing.assert_array_equal(got, plain.log_density(x, g, normalized=False))


def test_one_label_for_all_rows():
    """May be an array of no dimension; one that is not there is named."""
    x, labels = made((60, 70))
    result = tgp.fit_groups(x, labels, **SMALL)
    want = result.log_density(x, 1, normalized=False)
    np.testing.assert_array_equal(result.log_density(x, np.array(1), normalized=False), want)
    with pytest.raises(ValueError, match=r"groups: no group frozenset\(\{1\}\) among 2"):
        result.log_density(x, frozenset({1}))


def times(labels):
    import pandas
    import polars

    day = datetime.date(2020, 1, 1)
    noon = datetime.datetime(2020, 1, 1, 12, 0, 0, 7)
    hours = [datetime.timedelta(hours=int(i)) for i in range(3)]
    days = [day + 24 * h for h in hours]
    series = pandas.Series([noon + hours[i] for i in labels])
    return {
        "polars dates": (polars.Series([days[i] for i in labels]), days),
        "polars times": (polars.Series([noon + hours[i] for i in labels]), [noon + hours[0]]),
        "polars durations": (polars.Series([hours[i] for i in labels]), hours),
        "pandas ns": (series.astype("M8[ns]"), [noon + h for h in hours]),
        "pandas us": (series.astype("M8[us]"), [noon + h for h in hours]),
        "pandas durations": ((series - noon).astype("m8[ns]"), hours),
        "nanoseconds": (series.astype("M8[ns]") + pandas.Timedelta(7, "ns"), []),
    }


@pytest.mark.parametrize("kind", ["polars dates", "polars times", "polars durations", "pandas ns",
                                  "pandas us", "pandas durations", "nanoseconds"])  # fmt: skip
def test_times_are_found_by_those_of_python(kind, tmp_path):
    """By what the column itself gives, by the equal time of Python, and in a list of these; also
    out of a file."""
    for package in ("pandas", "polars"):
        pytest.importorskip(package)
    x, labels = made((60, 70, 80))
    given, python = times(labels)[kind]
    result = tgp.fit_groups(x, given, gamma=0.8, **SMALL)
    assert len(result) == 3
    for g, label in enumerate(python):
        np.testing.assert_array_equal(result[label].theta, result.theta[g])
    assert given[0] in result
    assert given[0] + datetime.timedelta(days=99) not in result
    got = result.log_density(x, given, normalized=False)
    np.testing.assert_array_equal(result.log_density(x, list(given), normalized=False), got)
    with pytest.raises(ValueError, match="groups, row 1: no group"):
        result.log_density(x[:2], [given[0], given[0] + datetime.timedelta(days=99)])
    result.save(tmp_path / "many.npz")
    back = tgp.load(tmp_path / "many.npz")
    back.threads = result.threads
    assert (back.labels, back.labels[0].dtype) == (result.labels, result.labels[0].dtype)
    np.testing.assert_array_equal(back.log_density(x, given, normalized=False), got)
    for label in python:
        assert label in back


def test_times_that_python_does_not_hold():
    x, labels = made((60, 70))
    for first, unit in (("2020-01-01", "ps"), ("20000-01-01", "D"), ("2020", "Y")):
        given = np.datetime64(first, unit) + labels
        result = tgp.fit_groups(x, given, **SMALL)
        assert given[0] in result
        assert int(given[0].astype(np.int64)) not in result
    assert np.timedelta64(1, "Y") in tgp.fit_groups(x, labels.astype("m8[Y]"), **SMALL)


@pytest.mark.parametrize(
    ("labels", "row"),
    [
        ([1.0, 2.0, np.nan], 2),
        (["a", None, "b"], 1),
        (np.array(["a", "b", float("nan")], object), 2),
        (np.array(["2020-01-01", "NaT", "2020-01-02"], "M8[D]"), 1),
        (np.ma.array([1, 2, 3], mask=[0, 0, 1]), 2),
        (np.array([[], "a", None], object), 2),
    ],
)
def test_missing_labels_are_named(labels, row):
    with pytest.raises(ValueError, match=f"groups has no label at row {row}"):
        tgp.fit_groups(np.zeros((3, 2)), labels)


def test_missing_labels_of_frames_are_named():
    pandas = pytest.importorskip("pandas")
    for series in (
        pandas.Series([1, None, 2], dtype="Int64"),
        pandas.Series(["a", None, "b"], dtype="string"),
        pandas.Series(pandas.Categorical(["a", None, "b"])),
    ):
        with pytest.raises(ValueError, match="groups has no label at row 1"):
            tgp.fit_groups(np.zeros((3, 2)), series)


X3 = np.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize(
    ("kind", "words", "args", "options"),
    [
        (ValueError, "precision='half': expected one of", (X3, [0] * 3), {"precision": "half"}),
        (ValueError, "groups has 2 entries, but X has 3 rows", (X3, [0, 1]), {}),
        (ValueError, "groups has 2 entries, but X has more rows", ([X3], [0, 1]), {}),
        (ValueError, "groups has 4 entries, but X has 3 rows", ([X3], [0] * 4), {}),
        (ValueError, "one label per row, shape \\(n,\\)", (X3, np.zeros((3, 1))), {}),
        (ValueError, "groups is empty", (X3, []), {}),
        (TypeError, "expected one label per row; to group by a column", (X3, "city"), {}),
        (TypeError, "expected one label per row", (X3, 3), {}),
        (TypeError, "label at row 1 of groups is not hashable", (X3, [(1,), [2], (3,)]), {}),
        (TypeError, "unexpected keyword argument 'method'", (X3, [0] * 3), {"method": "fvpd"}),
        (TypeError, "normalize_weights='no': expected True or False", (X3, [0] * 3),
         {"normalize_weights": "no"}),
        (ValueError, "scale='none': expected one of", (X3, [0] * 3), {"scale": "none"}),
        (ValueError, "base='student': expected one of", (X3, [0] * 3), {"base": "student"}),
        (ValueError, "covariance='auto'", (X3, [0] * 3), {"frequency_covariance": "auto"}),
        (ValueError, "n_features=0: expected", (X3, [0] * 3), {"n_features": 0}),
        (ValueError, "lam=-1: expected", (X3, [0] * 3), {"lam": -1}),
        (TypeError, "gamma='wide': expected a number or 'scott'", (X3, [0] * 3), {"gamma": "wide"}),
        (TypeError, r"gamma=array\(\[1., 2.\]\): expected a number or 'scott'", (X3, [0] * 3),
         {"gamma": np.array([1.0, 2.0])}),
        (ValueError, "is not an amount of memory", (X3, [0] * 3), {"budget": "much"}),
        (ValueError, "group 1 are all zero", (X3, [0, 0, 1]), {"sample_weight": [1, 1, 0]}),
        (ValueError, "sample_weight has 2 entries", (X3, [0] * 3), {"sample_weight": [1, 1]}),
        (ValueError, "X holds nan at row 1", (X3 * [[1], [np.nan], [1]], [0] * 3), {}),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(kind, words, args, options):
    with pytest.raises(kind, match=words):
        tgp.fit_groups(*args, **options)


def test_rows_too_far_for_the_bandwidth():
    x, labels = made((60, 60))
    far = np.where(labels == 1, 1e150, 1.0)[:, None]
    with pytest.raises(ValueError, match=r"bandwidth=1e-159: expected a number from 1e-153"):
        tgp.fit_groups(x * far, labels, scale="center", base="pooled", gamma=1e-159, **SMALL)
    with pytest.raises(ValueError, match='squares of some rows overflow; use scale="standardize"'):
        tgp.fit_groups(x * far * far, labels, scale="center", **SMALL)


@pytest.mark.parametrize(
    ("gamma", "lam"), [(1e-200, 10.0), (1e200, 10.0), (1e-170, 1e300), (1e160, 1e-300)]
)
def test_bandwidths_whose_squares_are_no_numbers(gamma, lam):
    x, labels = made((60, 60))
    with pytest.raises(ValueError, match=r"lam gamma\^2, .* is not a positive float"):
        tgp.fit_groups(x, labels, gamma=gamma, lam=lam, **SMALL)


def test_rows_too_near_each_other():
    """Where their squares vanish they cannot be taken as they are; in units of their own they can,
    with no bit changed."""
    x, labels = made((60, 60))
    tiny = np.ldexp(x, -600)
    with pytest.raises(ValueError, match='columns underflow; use scale="standardize"'):
        tgp.fit_groups(tiny, labels, scale="center", **SMALL)
    found, plain = tgp.fit_groups(tiny, labels, **SMALL), tgp.fit_groups(x, labels, **SMALL)
    np.testing.assert_array_equal(found.theta, plain.theta)


# -- the result ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result():
    x, labels = made((60, 70, 80, 90))
    return tgp.fit_groups(x, np.array(["a", "b", "c", "d"])[labels], n_features=24)


def test_a_mapping(result):
    assert len(result) == 4
    assert list(result) == ["a", "b", "c", "d"]
    assert "a" in result
    assert "e" not in result
    assert [] not in result
    assert isinstance(result["b"], tgp.Density)
    assert result.get("e") is None
    assert len(list(result.items())) == 4
    assert result == result
    assert hash(result) == hash(result)
    assert repr(result).startswith("GroupedDensity(n_groups=4, method='fd', d=2, n_features=24")
    assert "rows      300; a group has 60 to 90" in result.summary()
    assert "<td" in result._repr_html_()
    assert result.settings["n_groups"] == 4
    assert result.settings["median_n"] == 75.0
    one = result["c"].settings
    assert (one["group"], one["n"], one["n_rows"], one["lam"]) == ("c", 80.0, 80, 10.0)
    assert result["c"].features is result.features


def test_unknown_labels_are_answered_with_near_ones(result):
    x, labels = made((60, 70))
    numbers = tgp.fit_groups(x, labels * 10, **SMALL)
    with pytest.raises(KeyError, match="no group 11 among 2; similar labels: 10, 0"):
        numbers[11]
    words = tgp.fit_groups(x, np.array(["Berlin", "Bern"])[labels], **SMALL)
    with pytest.raises(KeyError, match="no group 'Berlyn' among 2; similar labels: 'Berlin'"):
        words.sample("Berlyn", 3)
    with pytest.raises(ValueError, match=r"groups, row 1: no group 'Brn' .* labels: 'Bern'"):
        words.log_density(x[:2], ["Bern", "Brn"])
    with pytest.raises(ValueError, match="groups, row 2: no group 7"):
        numbers.log_density(x[:3], [0, 10, 7])
    with pytest.raises(KeyError, match="no group None"):
        result[None]
    with pytest.raises(ValueError, match="groups has 2 entries, but Y has 3 rows"):
        result.log_density(x[:3], ["a", "b"])
    with pytest.raises(ValueError, match="another number of rows"):
        result.log_density([x[:3]], ["a", "b"])
    with pytest.raises(ValueError, match="another number of rows"):
        result.log_density([x[:3]], ["a"] * 4)
    for blocks in ([x[:3], x[3:9]], iter([x[:3], x[3:9]])):
        with pytest.raises(ValueError, match="groups has 3 entries, but Y has another number"):
            result.log_density(blocks, ["a"] * 3)
    with pytest.raises(ValueError, match="Y has 1 columns, expected 2"):
        result.log_density(x[:3, :1], "a")


@pytest.mark.parametrize("d", [1, slow(2), slow(3)])
def test_mixed_rows_are_evaluated_each_by_its_own_group(d, monkeypatch):
    """log_density of mixed rows is that of the single densities, across blocks."""
    monkeypatch.setattr(grouped, "FEATURE_ROWS", 64)
    x, labels = made((60, 70, 80), d)
    found = tgp.fit_groups(x, labels, n_features=24)
    for normalized in (False, True):
        got = found.log_density(x, labels, normalized=normalized)
        want = np.empty(len(x))
        for g in range(3):
            want[labels == g] = found[g].log_density(x[labels == g], normalized=normalized)
        # angles of some tens, and a quadratic form of the base
        assert np.abs(got - want).max() <= 1e-12 * (1 + np.abs(want).max())
        blocks = found.log_density([x[:100], x[100:]], labels, normalized=normalized)
        np.testing.assert_allclose(blocks, got, rtol=0, atol=1e-13 * (1 + np.abs(want).max()))


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_normalisers_agree_with_those_of_single_densities(d):
    """By quadrature to rounding; by fewer Sobol points within the errors that both state."""
    x, labels = made((200, 220), d)
    found = tgp.fit_groups(x, labels, n_features=24)
    values = found.log_density(x, labels) - found.log_density(x, labels, normalized=False)
    for g in range(2):
        model = found[g]
        mine = model.log_normalizer
        full = Integrator(model.tilt, model.base, model.threads).log_normalizer
        assert np.abs(values[labels == g] + mine.value).max() <= 1e-13 * (1 + np.abs(values).max())
        assert mine == found.log_normalizer(g)
        assert mine.method == full.method == ("quadrature" if d < 4 else "importance")
        allowed = 1e-11
        if d > 3:
            assert mine.n_points <= full.n_points
            allowed = 5 * np.hypot(mine.standard_error, full.standard_error)
        assert abs(mine.value - full.value) <= allowed
        assert mine.effective_sample_size == pytest.approx(
            full.effective_sample_size, rel=1e-9 if d < 4 else 0.05
        )


def test_normalisers_are_computed_for_groups_that_occur_and_kept(monkeypatch):
    x, labels = made((60, 70, 80))
    found = tgp.fit_groups(x, labels, **SMALL)
    asked = []
    real = GroupNormalizers._integrate_grids
    monkeypatch.setattr(
        GroupNormalizers, "_integrate_grids",
        lambda self, which, *rest: asked.append(which) or real(self, which, *rest),
    )  # fmt: skip
    found.log_density(x[:50], labels[:50] * 0 + 1)
    found.log_density(x, labels)
    found.log_density(x, labels)
    assert found[2].log_normalizer == found.log_normalizer(2)
    assert asked == [[1], [0, 2]]


def test_an_integral_of_one():
    """The normalised density of each group, summed over a grid in its own units, is 1."""
    x, labels = made((100, 120), 1)
    found = tgp.fit_groups(x * 40.0, labels, n_features=24)
    for g in range(2):
        deviation = np.sqrt(found.covariances[g, 0, 0])
        grid = found.means[g] + deviation * np.linspace(-12, 12, 4001)[:, None]
        mass = np.exp(found.log_density(grid, g)).sum() * (grid[1, 0] - grid[0, 0])
        assert mass == pytest.approx(1.0, abs=1e-5)  # Grid stops at 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 3])
def test_poor_normalisers_are_told_in_sum(d):
    """One warning for all groups; result.poor lists them."""
    x, labels = made((60,) * 4, d)
    found = tgp.fit_groups(x, labels, lam=1e-6, gamma=0.3, base="pooled", n_features=60, seed=1)
    assert found.poor == []
    with pytest.warns(RuntimeWarning, match="normalizers of . of 4 groups") as caught:
        found.log_density(x, labels)
    assert len(caught) == 1
    assert len(found.poor) >= 2
    assert all(found.log_normalizer(g).is_poor for g in found.poor)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.log_density(x, labels)  # told once


def test_samples_are_those_of_the_density(result):
    np.testing.assert_array_equal(result.sample("b", 50, 3), result["b"].sample(50, 3))
    many = result.sample("b", 4000, seed=0, method="grid")
    assert not np.array_equal(result.sample("b", 50), result.sample("b", 50))  # seed=None
    assert np.abs(many.mean(axis=0) - result.means[1]).max() < 0.5


def test_frames_come_back_as_frames():
    pandas = pytest.importorskip("pandas")
    x, labels = made((60, 70))
    frame = pandas.DataFrame(x, columns=["u", "v"], index=np.arange(len(x)) + 7)
    names = pandas.Series(np.array(["p", "q"])[labels], index=frame.index)
    found = tgp.fit_groups(frame, names, **SMALL)
    values = found.log_density(frame[["v", "u"]], names)
    assert values.index.equals(frame.index)
    assert values.name == "log_density"
    plain = tgp.fit_groups(x, labels, **SMALL)
    np.testing.assert_array_equal(values.to_numpy(), plain.log_density(x, labels))
    assert list(found.sample("p", 3).columns) == ["u", "v"]
    with pytest.raises(ValueError, match="lacks the columns"):
        found.log_density(frame[["u"]], names)
    polars = pytest.importorskip("polars")
    other = tgp.fit_groups(polars.DataFrame(x, schema=["u", "v"]), labels, **SMALL)
    same_bits(other, plain)
    assert isinstance(other.log_density(polars.DataFrame(x, schema=["u", "v"]), labels),
                      polars.Series)  # fmt: skip


def test_blocks_are_taken_whole():
    """An iterator of blocks with weights, and one array, give the same bits."""
    x, labels = made((60, 70))
    w = np.random.default_rng(1).uniform(0.5, 1.5, len(x))
    blocks = ((x[i : i + 50], w[i : i + 50]) for i in range(0, len(x), 50))
    same_bits(
        tgp.fit_groups(blocks, labels, **SMALL),
        tgp.fit_groups(x, labels, sample_weight=w, **SMALL),
    )


def test_progress_is_shown(capsys):
    x, labels = made((60, 70))
    tgp.fit_groups(x, labels, progress=True, **SMALL)
    assert "groups/s" in capsys.readouterr().err


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["integers", "text", "floats", "pandas"])
@pytest.mark.parametrize("known", [False, True])
def test_round_trip(tmp_path, kind, known):
    """Every array, label and known normaliser comes back bit by bit, as one file."""
    for package in ("pandas", "polars"):
        pytest.importorskip(package)
    x, labels = made((60, 70, 80))
    given, _ = variants(labels)[kind]
    found = tgp.fit_groups(x, given, **SMALL)
    if known:
        found.log_density(x[:1], given[:1])
    path = tmp_path / "many.npz"
    found.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["many.npz"]
    again = tgp.load(path)
    assert again.labels == found.labels
    assert {type(label) for label in again} == {type(label) for label in found}
    same_bits(again, found)
    assert again.settings == found.settings
    assert again.features == found.features
    np.testing.assert_array_equal(again._normalizers.known, found._normalizers.known)
    assert (~np.isnan(again._normalizers.known[:, 0])).sum() == int(known)
    again.threads = found.threads
    np.testing.assert_array_equal(again.log_density(x, given), found.log_density(x, given))
    first = found.labels[0]
    found[first].save(tmp_path / "one.npz")
    one = tgp.load(tmp_path / "one.npz")
    np.testing.assert_allclose(one.log_density(x[:5]), found.log_density(x[:5], first), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize("known", ["before", "after", "not"])
def test_one_density_of_many_keeps_its_normaliser_in_a_file(tmp_path, d, known):
    """Bit by bit, though a density alone would find another one, from more points."""
    x, labels = made((60, 70), d)
    found = tgp.fit_groups(x, labels, n_features=24)
    if known == "before":
        found.log_density(x, labels)
    one = found[1]
    if known == "after":
        found.log_density(x, labels)
    one.save(tmp_path / "one.npz")
    again = tgp.load(tmp_path / "one.npz")
    assert again.log_normalizer == one.log_normalizer == found.log_normalizer(1)
    np.testing.assert_array_equal(again.log_density(x), one.log_density(x))


def test_a_condition_beyond_all_numbers_is_saved(tmp_path):
    x, labels = made((60, 70))
    with pytest.warns(RuntimeWarning, match="systems of 2 of 2 groups"):
        found = tgp.fit_groups(x, labels, lam=1e-300, gamma=1e-9, **SMALL)
    assert (found.condition == np.finfo(float).max).all()
    found.save(tmp_path / "many.npz")
    same_bits(tgp.load(tmp_path / "many.npz"), found)


@pytest.mark.parametrize(
    "labels", [[("a", 1), ("b", 2)], ["a", 1], [np.datetime64("2020-01-01"), np.datetime64("NaT")]]
)
def test_labels_that_a_file_cannot_hold(tmp_path, labels):
    x, codes = made((60, 70))
    found = tgp.fit_groups(x, codes, **SMALL)
    found.labels = labels
    with pytest.raises(TypeError, match="cannot be saved: all must be integers, all text"):
        found.save(tmp_path / "many.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"theta": None}, "lacks 'theta'"),
        ({"theta": lambda a: a[:, :-1]}, "'theta' is float64"),
        ({"theta": lambda a: a * np.nan}, "theta must be finite"),
        ({"labels": lambda a: a * 0}, "labels must be distinct"),
        ({"labels": None}, "labels must be a list of at least one"),
        ({"scale": lambda a: -a}, "scale must be positive"),
        ({"n_rows": lambda a: a * 1.0}, "n_rows must be integers"),
        ({"base_covariances": lambda a: -a}, "is damaged"),
        ({"base_covariances": lambda a: np.triu(a) + np.eye(2)}, "must be symmetric"),
        ({"normalizers": lambda a: a + np.array([0, np.inf, 0, 0])}, "is damaged|finite"),
        ({"extra": np.zeros(1)}, "unexpected members"),
        ({"header.bandwidth": -1.0}, "bandwidth=-1.0"),
        ({"header.columns": ["a"]}, "columns must be 2 names"),
        ({"header.settings": {"method": "map"}}, "method 'map' is not known"),
    ],
)
def test_doctored_files_are_refused(tmp_path, changes, words):
    x, labels = made((60, 70))
    found = tgp.fit_groups(x, labels, **SMALL)
    found.log_density(x, labels)
    path = tmp_path / "many.npz"
    found.save(path)
    doctored(path, changes)
    with pytest.raises(ValueError, match=words):
        tgp.load(path)
