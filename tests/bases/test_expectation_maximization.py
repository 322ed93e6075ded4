"""Standard coordinates, floors, and steps of EM against formulas written out row by row."""

import math

import numpy as np
import oracle
import pytest
from example_bases import make_rows, matrices

from tgpfast.bases import expectation_maximization as em
from tgpfast.bases.expectation_maximization import Components, Learner, Rows, run_em
from tgpfast.data.scaling import Scaling
from tgpfast.kernels import thread_choice
from tgpfast.kernels.thread_choice import Threads

FORMS = ("full", "diagonal", "tied")


def prepare(y, w=None, threads=None):
    """Rows that are taken as standard already."""
    w = np.ones(len(y)) if w is None else w
    return Rows.from_data(y, w, Scaling.identity(y.shape[1]), threads or Threads())


def make_start(y, K, form="full", seed=0):
    """Components about some rows."""
    rng, d = np.random.default_rng(seed), y.shape[1]
    means = y[rng.choice(len(y), K, replace=False)]
    covariances = matrices(rng, K, d)
    if form == "diagonal":
        covariances = covariances * np.eye(d)
    if form == "tied":
        covariances = np.stack([covariances[0]] * K)
    return Components(rng.dirichlet(np.full(K, 5.0)), means, covariances)


# -- a step ---------------------------------------------------------------------------------------


def blurred_terms(y, components, floor):
    """log weight_k N_k - trace(C_k^-1 F) / 2, (n, K), one component at a time."""
    columns = []
    for weight, mean, covariance in zip(*components, strict=True):
        one = oracle.mixture_log_density(y, [1.0], [mean], [covariance])
        noise = np.trace(np.linalg.inv(covariance) @ np.diag(floor**2))
        columns.append(math.log(weight) + one - 0.5 * noise)
    return np.stack(columns, axis=1)


def naive_step(y, w, components, learner, targets):
    """The next components, from responsibilities and weighted covariances row by row."""
    terms = blurred_terms(y, components, learner.floor)
    r = np.exp(terms - np.logaddexp.reduce(terms, axis=1, keepdims=True)) * w[:, None]
    n, (K, d), noise = w.sum(), components.means.shape, np.diag(learner.floor**2)
    counts = r.sum(axis=0)
    means = np.array([np.average(y, axis=0, weights=r[:, k]) for k in range(K)])
    scatters = np.array([np.cov(y.T, aweights=r[:, k], ddof=0).reshape(d, d) for k in range(K)])
    if learner.covariances == "tied":
        within = np.einsum("k,kij->ij", counts, scatters) / n + noise
        covariances = np.stack([n / (n - K) * within] * K)
    else:
        if learner.covariances == "diagonal":
            scatters = scatters * np.eye(d)
        N, nu = counts[:, None, None], learner.strength
        covariances = (N * (scatters + noise) + nu * targets) / (N + nu - learner.correction)
    return Components(counts / n, means, covariances)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("d", [1, 3])
def test_a_step_is_that_of_the_formula(d, form, weighted):
    y = make_rows(300, d)
    w = np.random.default_rng(2).uniform(0.2, 2.0, 300) if weighted else np.ones(300)
    learner = Learner(np.linspace(0.1, 0.3, d), form, strength=7.0, correction=d + 1.0)
    components, rows = make_start(y, 3, form), prepare(y, w)
    targets = matrices(np.random.default_rng(5), 3, d)
    if form == "diagonal":
        targets = targets * np.eye(d)
    for _ in range(3):
        mean, moments = learner.sum_moments(rows, components)
        terms = blurred_terms(y, components, learner.floor)
        want = np.average(np.logaddexp.reduce(terms, axis=1), weights=w)
        assert mean == pytest.approx(want, abs=1e-11)
        expected = naive_step(y, w, components, learner, targets)
        components, keep = learner.maximize(rows, moments, targets)
        assert keep.all()
        for got, wanted in zip(components, expected, strict=True):
            # entries of order 1, second moments below 30, responsibilities to 1e-13
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-11)


def test_a_step_without_floor_is_the_oracles():
    y, w = make_rows(200, 3), np.random.default_rng(2).uniform(0.2, 2.0, 200)
    learner, components = Learner(np.zeros(3)), make_start(y, 4)
    want = oracle.em_step(y, w, *components, 0.0)
    _, moments = learner.sum_moments(prepare(y, w), components)
    found, _ = learner.maximize(prepare(y, w), moments, np.zeros((4, 3, 3)))
    for got, expected in zip(found, want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("form", FORMS)
def test_log_densities_are_the_oracles(form):
    y = make_rows(500, 4)
    components = make_start(y, 5, form)
    got = Learner(np.full(4, 0.1), form).log_density(prepare(y), components)
    np.testing.assert_allclose(got, oracle.mixture_log_density(y, *components), rtol=0, atol=1e-11)


def test_every_backend_finds_the_same(kernels, monkeypatch):
    monkeypatch.setattr(thread_choice, "SMALL_WORK", 0.0)  # or one thread would do it all
    y = make_rows(2_500, 3)
    learner, components = Learner(np.full(3, 0.01)), make_start(y, 6)
    results = [
        run_em(prepare(y, threads=Threads(name, count)), learner, components, max_steps=3)
        for name, count in ((kernels.NAME, 1), (kernels.NAME, 2), ("numpy", 1))
    ]
    for a, b, c in zip(*(run.components for run in results), strict=True):
        np.testing.assert_array_equal(a, b)  # bit by bit for any number of threads
        np.testing.assert_allclose(a, c, rtol=0, atol=1e-11)


# -- runs -----------------------------------------------------------------------------------------


def naive_penalty(y, components, learner, targets):
    """The penalized likelihood by determinants and inverses of one matrix at a time."""
    terms = blurred_terms(y, components, learner.floor)
    value = np.logaddexp.reduce(terms, axis=1).sum()
    for k, covariance in enumerate(components.covariances):
        log_det = math.log(np.linalg.det(covariance))
        if learner.covariances == "tied":
            value += 0.5 * log_det
            continue
        trace = np.trace(np.linalg.inv(covariance) @ targets[k])
        value -= 0.5 * (learner.strength - learner.correction) * log_det
        value -= 0.5 * learner.strength * trace
    return value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("strength", "correction"), [(0.0, 0.0), (6.0, 0.0), (6.0, 4.0)])
@pytest.mark.parametrize("floor", [1e-3, 0.2])
def test_no_step_lowers_the_penalized_likelihood(form, strength, correction, floor):
    y = make_rows(300, 3)
    learner = Learner(np.full(3, floor), form, strength, correction)
    rows, components = prepare(y), make_start(y, 4, form)
    run = run_em(rows, learner, components, max_steps=60, tolerance=1e-9)
    assert len(run.history) > 5
    assert len(run.components.weights) == 4
    assert (np.diff(run.history) >= -1e-9).all()
    assert run.history[-1] > run.history[0] + 1.0
    _, moments = learner.sum_moments(rows, components)
    targets = learner.find_targets(moments)
    want = naive_penalty(y, components, learner, targets)
    assert run.history[0] == pytest.approx(want, abs=1e-9)


def test_a_wrong_step_is_seen():
    """Negative control: with a divisor that does not belong to the penalty the value falls."""
    y = make_rows(300, 3)
    learner, wrong = Learner(np.full(3, 0.2), strength=6.0), Learner(np.full(3, 0.2), strength=60.0)
    rows = prepare(y)
    run = run_em(rows, learner, make_start(y, 4), max_steps=100, tolerance=1e-9)
    mean, moments = learner.sum_moments(rows, run.components)
    targets = learner.find_targets(moments)
    before = learner.penalized_likelihood(mean, rows.count, run.components, targets)
    other, _ = wrong.maximize(rows, moments, targets)
    mean, _ = learner.sum_moments(rows, other)
    assert learner.penalized_likelihood(mean, rows.count, other, targets) < before - 0.1


def test_components_without_rows_are_dropped_and_the_run_goes_on():
    y = np.concatenate([make_rows(100), np.full((1, 2), 50.0)])
    means = np.array([[0.0, 0.0], [2.0, 2.0], [50.0, 50.0], [-80.0, 0.0]])
    start = Components(np.full(4, 0.25), means, np.stack([np.eye(2)] * 4))
    run = run_em(prepare(y), Learner(np.full(2, 1e-3)), start, max_steps=300, tolerance=1e-5)
    assert run.converged
    assert len(run.components.weights) == 2
    assert run.components.weights.sum() == pytest.approx(1.0, abs=1e-14)


def test_shrinkage_keeps_components_of_few_rows():
    """Three rows are too few for a covariance in five columns, unless a target helps."""
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(size=(200, 5)), 30 + rng.normal(size=(3, 5))])
    start = Components(np.array([0.9, 0.1]), np.stack([np.zeros(5), np.full(5, 30.0)]),
                       np.stack([np.eye(5)] * 2))  # fmt: skip
    kept = [
        len(run_em(prepare(y), Learner(np.full(5, 1e-3), strength=s), start, max_steps=5)
            .components.weights)
        for s in (0.0, 5.0)
    ]  # fmt: skip
    assert kept == [1, 2]


def test_one_component_is_left_where_all_have_few_rows():
    y = make_rows(8, 3)
    learner = Learner(np.full(3, 0.1))
    run = run_em(prepare(y), learner, make_start(y, 4), max_steps=50, tolerance=1e-6)
    assert len(run.components.weights) == 1
    assert np.isfinite(run.components.covariances).all()


# -- targets --------------------------------------------------------------------------------------


def test_targets_have_pooled_correlations_and_widths_of_their_own():
    rng = np.random.default_rng(0)
    learner, scatters = Learner(np.full(3, 0.1)), matrices(rng, 4, 3)
    moments = em.Moments(np.array([500.0, 40.0, 3.0, 1e-9]), np.zeros((4, 3)), scatters)
    targets = learner.find_targets(moments)
    blurred = scatters + 0.01 * np.eye(3)
    pooled = np.average(blurred, axis=0, weights=moments.counts)
    spread = np.sqrt(np.diag(pooled))
    usual = 1 / np.average([1 / np.diag(b) for b in blurred], axis=0, weights=moments.counts)
    for count, own, target in zip(moments.counts, blurred, targets, strict=True):
        width = np.sqrt(np.diag(target))
        np.testing.assert_allclose(
            target / np.outer(width, width), pooled / np.outer(spread, spread), rtol=1e-12
        )
        share = count / (count + em.BORROWED_ROWS)
        want = np.diag(own) ** share * usual ** (1 - share)
        np.testing.assert_allclose(width**2, want, rtol=1e-12)


# -- standard coordinates and the floor -----------------------------------------------------------


def test_columns_get_median_0_and_a_robust_spread_of_1():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4_000, 3)) * [1e6, 1e-6, 1.0] + [5.0, 0.0, 1e3]
    x[:5, 2] = 5e3  # outliers hardly move it
    found = em.measure_columns(x, np.ones(4_000))
    y = found.scaling.apply(x)
    np.testing.assert_allclose(np.median(y, axis=0), 0.0, atol=2e-3)
    low, high = np.quantile(y, [0.25, 0.75], axis=0)
    assert (np.abs(high - low - 1.349) < 0.1).all()
    np.testing.assert_array_equal(found.floor, em.NARROWEST_COMPONENT)


def test_far_rows_are_at_most_so_many_spreads_away():
    x = np.append(np.random.default_rng(0).normal(size=300), 1e9)[:, None]
    y = em.measure_columns(x, np.ones(301)).scaling.apply(x)
    assert np.abs(y).max() == pytest.approx(em.LARGEST_COORDINATE, rel=1e-9)


@pytest.mark.parametrize("step", [1.0, 0.01, 250.0])
def test_the_floor_of_a_rounded_column_is_the_width_of_a_step(step):
    x = step * np.round(np.random.default_rng(0).normal(0, 10, (500, 1)))
    found = em.measure_columns(x, np.ones(500))
    width = found.floor * found.scaling.scale
    assert width == pytest.approx(step / 4, rel=1e-9)
    # a component of this width on one value has 95 % of its mass within half a step
    assert math.erf(step / 2 / width[0] / math.sqrt(2)) == pytest.approx(0.954, abs=1e-3)


@pytest.mark.parametrize(
    ("make", "step"),
    [
        (lambda rng: rng.integers(0, 2, 500), 1.0),
        (lambda rng: rng.integers(0, 2, 500) + rng.choice([0.0, 1e-7], 500), 1.0),
        (lambda rng: np.where(rng.uniform(size=500) < 0.9, 3.0, rng.integers(0, 9, 500)), 1.0),
    ],
    ids=["binary", "binary with rounding errors", "nine in ten equal"],
)
def test_the_step_of_discrete_columns(make, step):
    x = make(np.random.default_rng(0)).astype(float)[:, None]
    found = em.measure_columns(x, np.ones(500))
    assert found.floor * found.scaling.scale == pytest.approx(step / 4, rel=1e-5)


TAG = np.array([0.0, 1.08653808, 2.17307615])


def in_two_accuracies(x, few, many, rng):
    """Some values with few decimals, the others with many."""
    return np.where(rng.uniform(size=len(x)) < 0.5, np.round(x, few), np.round(x, many))


@pytest.mark.parametrize(
    ("make", "step"),
    [
        (lambda rng: in_two_accuracies(rng.choice(TAG, 500), 3, 8, rng), TAG[1]),
        (lambda rng: in_two_accuracies(rng.choice(TAG, 500), 3, 8, rng) / 0.7 - 3, TAG[1] / 0.7),
        (lambda rng: rng.choice([0.0, 1.0, 2.0, 998.0, 999.0], 500), 1.0),
        (lambda rng: rng.choice([0.0, 1.0, 999.0], 500), 1.0),
    ],
    ids=["twins", "twins in other units", "codes of unknown", "a code of unknown"],
)
def test_the_step_of_values_of_different_accuracy(make, step):
    x = make(np.random.default_rng(0))[:, None]
    found = em.measure_columns(x, np.ones(500))
    assert found.resolution == pytest.approx(step, rel=1e-3)
    again = em.measure_columns(x[:100], np.full(100, 5.0))
    assert again.resolution == pytest.approx(step, rel=1e-3)


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: rng.integers(0, 5, 500) + 1e-4 * rng.normal(size=500),
        lambda rng: rng.integers(0, 5, 500) + 1e-4 * rng.uniform(size=500),
        lambda rng: in_two_accuracies(rng.normal(size=500), 2, 6, rng),
        lambda rng: np.where(rng.uniform(size=500) < 0.5, 0.0, rng.exponential(size=500)),
    ],
    ids=["narrow clusters", "a grid with noise", "rounded in half of the rows", "spike at 0"],
)
def test_columns_that_are_continuous_in_part_have_next_to_no_step(make):
    x = make(np.random.default_rng(0))[:, None]
    found = em.measure_columns(x, np.ones(500))
    assert found.resolution < 1e-3 * x.std()
    # the negative control: the same clusters without their width
    if (np.abs(x - np.rint(x)) < 1e-3).all():
        assert em.measure_columns(np.rint(x), np.ones(500)).resolution == 1.0


@pytest.mark.parametrize("n", [20, 300, 20_000])
def test_continuous_columns_have_next_to_no_step(n):
    x = np.random.default_rng(0).normal(size=(n, 1))
    floor = em.measure_columns(x, np.ones(n)).floor
    assert em.NARROWEST_COMPONENT <= floor <= max(em.NARROWEST_COMPONENT, 1 / n)


def test_components_may_be_as_narrow_as_clusters_far_apart():
    rng = np.random.default_rng(0)
    far = np.concatenate([rng.normal(0.0, 1.0, 500), rng.normal(1e4, 1.0, 500)])[:, None]
    found = em.measure_columns(far, np.ones(1000))
    assert found.floor * found.scaling.scale < 0.05  # 1e-3 spreads would be 7
    one = em.measure_columns(far[:500], np.ones(500))  # the negative control: one cluster
    assert one.floor == em.NARROWEST_COMPONENT
    repeated = em.measure_columns(np.repeat([[0.0], [1e4]], 500, axis=0), np.ones(1000))
    assert repeated.floor >= em.NARROWEST_COMPONENT


def test_a_constant_column_does_not_divide_by_zero():
    found = em.measure_columns(np.full((10, 1), 7.0), np.ones(10))
    assert found.scaling.scale == 1.0
    assert found.floor == em.NARROWEST_COMPONENT


def test_weights_are_repetition_in_standard_coordinates():
    rng = np.random.default_rng(1)
    x, counts = np.round(rng.normal(0, 5, (200, 2)), 1), rng.integers(0, 4, 200)
    a = em.measure_columns(x, counts.astype(float))
    b = em.measure_columns(np.repeat(x, counts, axis=0), np.ones(counts.sum()))
    np.testing.assert_array_equal(a.scaling.shift, b.scaling.shift)
    np.testing.assert_allclose(a.scaling.scale, b.scaling.scale, rtol=1e-13)
    np.testing.assert_allclose(a.floor, b.floor, rtol=1e-13)


# -- pieces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("few", [0, 12])
@pytest.mark.parametrize("d", [1, 2, 7, 11])
def test_inverse_cholesky_factors_are_those_of_numpy(d, few, monkeypatch):
    """By LAPACK where matrices are few or large, else all at once."""
    monkeypatch.setattr(em, "FEW_MATRICES", few)
    covariances = matrices(np.random.default_rng(0), 12, d).reshape(3, 4, d, d)
    want = np.linalg.inv(np.linalg.cholesky(covariances)).reshape(12, d, d)
    got = em.invert_cholesky(covariances)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)


@pytest.mark.parametrize("form", em.COVARIANCES)
def test_coefficients_do_not_depend_on_how_many_are_made_at_once(form, monkeypatch):
    rng, d = np.random.default_rng(0), 4
    covariances = matrices(rng, 12, d)
    if form != "full":
        covariances = np.stack([covariances[0]] * 12) * (np.eye(d) if form == "diagonal" else 1.0)
    components = em.Components(rng.uniform(0.1, 1.0, 12), rng.normal(size=(12, d)), covariances)
    learner = em.Learner(np.full(d, 0.1), form)
    want = learner.find_coefficients(components, blurred=True)
    monkeypatch.setattr(em, "CACHED_NUMBERS", 5 * d**2)
    got = learner.find_coefficients(components, blurred=True)
    np.testing.assert_allclose(got, want, rtol=1e-13)


def test_rows_by_label_come_in_lanes():
    y, w = make_rows(50, 2), np.arange(1.0, 51.0)
    labels = np.random.default_rng(0).integers(0, 4, 50)
    labels[labels == 2] = 3  # one lane stays empty
    rows = prepare(y, w).by_label(labels, 4)
    sums = rows.sum_by_lane(rows.y[:, 0])
    for k in range(4):
        mine = labels == k
        part = slice(rows.bounds[k], rows.bounds[k + 1])
        np.testing.assert_array_equal(rows.y[part], y[mine])
        assert sums[k] == pytest.approx((w * y[:, 0])[mine].sum(), abs=1e-11)
