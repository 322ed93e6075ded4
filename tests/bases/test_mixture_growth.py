"""Mixtures grown by splits: the path, its choice, refits, degenerate rows."""

import math

import numpy as np
import pytest
from example_bases import clusters, make_mixture, make_rows

import tgpfast as tgp
from tgpfast.bases import mixture_growth
from tgpfast.bases.expectation_maximization import WIDTH_OF_A_STEP, measure_columns
from tgpfast.bases.mixture_growth import grow_mixture
from tgpfast.kernels import thread_choice
from tgpfast.kernels.thread_choice import Threads


def grow(x, held=0.2, **options):
    """Grown from the rows, of which the last fifth is held out."""
    n = round(len(x) * (1 - held))
    return grow_mixture(x[:n], np.ones(n), x[n:], np.ones(len(x) - n), **options)


def rings(n=1_500, seed=0):
    """A ring in the plane: no small mixture has it."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * math.pi, n)
    radius = 3 + 0.1 * rng.standard_normal(n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def log_density_of_ring(x):
    radius = np.linalg.norm(x, axis=1)
    return (-0.5 * np.square((radius - 3) / 0.1) - math.log(0.1 * math.sqrt(2 * math.pi))
            - np.log(2 * math.pi * radius))  # fmt: skip


# -- the path -------------------------------------------------------------------------------------


def test_a_ring_is_learned_to_a_small_part_of_a_nat():
    x = rings()
    grown = grow(x)
    fresh = rings(4_000, seed=1)
    best = log_density_of_ring(fresh).mean()
    mixture = grown.refit(x, np.ones(len(x)))
    bic = tgp.MixtureBase.from_data(x).log_density(fresh).mean()
    assert grown.mixture.n_components > 12
    assert best - 0.12 < mixture.log_density(fresh).mean() < best
    assert mixture.log_density(fresh).mean() > bic - 0.01


def test_one_gaussian_stays_one():
    """Or next to it: held-out rows decide, by chance, on what gains next to nothing."""
    x = np.random.default_rng(0).standard_normal((2_000, 3))
    fresh = np.random.default_rng(1).standard_normal((5_000, 3))
    grown = grow(x)
    lost = tgp.GaussianBase(np.zeros(3), np.eye(3)).log_density(fresh).mean()
    assert lost - grown.mixture.log_density(fresh).mean() < 0.02
    assert grown.mixture.n_components <= 5


def test_clusters_are_found():
    truth, x, _ = clusters(2_000)
    fresh = clusters(5_000, seed=9)[1]
    lost = truth.log_density(fresh) - grow(x).mixture.log_density(fresh)
    assert lost.mean() < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("form", ["full", "diagonal", "tied"])
def test_forms_of_covariances(form):
    grown = grow(rings(800), covariances=(form,))
    assert grown.covariances == form
    found = grown.mixture.without_guard().covariances
    if form == "tied":
        np.testing.assert_array_equal(found, np.broadcast_to(found[0], found.shape))
    off = np.abs(found[:, 0, 1]).max()
    assert (off < 1e-13) == (form == "diagonal")
    fresh = rings(2_000, seed=3)
    mixture = grown.refit(rings(800), np.ones(800))
    assert mixture.log_density(fresh).mean() > log_density_of_ring(fresh).mean() - 0.3


@pytest.mark.slow
def test_other_forms_are_tried_only_where_components_have_few_rows(monkeypatch):
    ample = np.random.default_rng(0).standard_normal((600, 2))
    assert grow(ample).work == grow(ample, covariances=("full",)).work
    monkeypatch.setattr(mixture_growth, "FEW_ROWS_PER_COLUMN", 1e3)
    assert grow(ample).work > grow(ample, covariances=("full",)).work


@pytest.mark.slow
def test_full_covariances_are_kept_unless_others_gain_more_than_an_error(monkeypatch):
    x = rings(800)
    full, diagonal = (grow(x, covariances=(form,)) for form in ("full", "diagonal"))
    # components of a ring have few rows only beside a larger share of them
    monkeypatch.setattr(mixture_growth, "FEW_ROWS_PER_COLUMN", 1e3)
    chosen = grow(x, covariances=("diagonal", "full"))
    gain = diagonal.mixture.log_density(x[640:]) - full.mixture.log_density(x[640:])
    wins = gain.mean() > gain.std() / math.sqrt(160)
    assert chosen.covariances == ("diagonal" if wins else "full")
    monkeypatch.setattr(mixture_growth, "weighted_mean", lambda values, share: (1.0, 0.5))
    assert grow(x, covariances=("diagonal", "full")).covariances == (
        "diagonal" if gain.mean() > 0.0 else "full"
    )


@pytest.mark.parametrize("limit", [1, 4, 10])
def test_no_more_components_than_asked_for_besides_the_guard(limit):
    grown = grow(rings(), max_components=limit)
    assert grown.mixture.without_guard().n_components == limit
    assert grown.mixture.has_guard == (limit > 1)


def test_work_is_bounded_and_decides_the_result():
    x = rings()
    all_of_it = grow(x, covariances=("full",))
    half = grow(x, covariances=("full",), max_work=0.3 * all_of_it.work)
    assert half.work <= 0.3 * all_of_it.work
    assert half.mixture.n_components < all_of_it.mixture.n_components


# -- what does not matter -------------------------------------------------------------------------


@pytest.mark.slow
def test_growth_repeats_bit_by_bit_for_any_number_of_threads(kernels, monkeypatch):
    monkeypatch.setattr(thread_choice, "SMALL_WORK", 0.0)  # or one thread would do
    x = make_mixture(3, 6).sample(1_500, seed=0)
    once, twice = (
        grow(x, max_components=12, threads=Threads(kernels.NAME, count)) for count in (1, 2)
    )
    assert once.mixture.fingerprint == twice.mixture.fingerprint


@pytest.mark.slow
def test_seeds_and_row_orders_differ_by_less_than_the_error():
    x, held = rings(1_200), rings(600, seed=2)
    ones = np.ones(1_200)
    results = [
        grow_mixture(rows, ones, held, np.ones(600), seed=seed).mixture.log_density(held)
        for rows, seed in ((x, 0), (x, 1), (x[::-1], 0), (x[::-1], 2))
    ]
    error = results[0].std() / math.sqrt(600)
    assert np.ptp([values.mean() for values in results]) < error


def test_weights_are_repetition():
    x, counts = make_rows(300, 2), np.random.default_rng(0).integers(1, 4, 300)
    held, held_counts = make_rows(100, 2, seed=4), np.random.default_rng(1).integers(1, 3, 100)
    options = {"max_components": 6, "covariances": ("full",)}
    a = grow_mixture(x, counts, held, held_counts, **options)
    b = grow_mixture(
        np.repeat(x, counts, axis=0), np.ones(counts.sum()),
        np.repeat(held, held_counts, axis=0), np.ones(held_counts.sum()), **options,
    )  # fmt: skip
    assert a.mixture.n_components == b.mixture.n_components
    np.testing.assert_allclose(
        a.mixture.log_density(held), b.mixture.log_density(held), rtol=0, atol=1e-8
    )


@pytest.mark.parametrize("unit", [1e-20, 1e20])
def test_units_do_not_matter(unit):
    x = make_rows(500, 2)
    a, b = grow(x, max_components=5), grow(unit * x + 3.0 * unit, max_components=5)
    moved = b.mixture.log_density(unit * x + 3.0 * unit) + 2 * math.log(unit)
    np.testing.assert_allclose(moved, a.mixture.log_density(x), rtol=0, atol=1e-6)


# -- refits ---------------------------------------------------------------------------------------


def test_a_refit_takes_the_start_to_other_rows():
    x = rings(3_000)
    grown = grow(x[:1_000])
    before = grown.mixture.log_density(x).mean()
    after = grown.refit(x, np.ones(3_000))
    assert after.n_components == grown.mixture.n_components
    assert after.has_guard
    assert after.log_density(x).mean() > before


def test_a_refit_replaces_the_guard():
    x = rings(1_000)
    grown = grow(x)
    moved = grown.refit(x + 7.0, np.ones(1_000))
    np.testing.assert_allclose(moved.means[-1], (x + 7.0).mean(axis=0), rtol=1e-12)
    assert moved.weights[-1] == pytest.approx(0.25 / 1_000.25, rel=1e-12)


# -- rows that are not kind -----------------------------------------------------------------------


def hard_rows():
    rng = np.random.default_rng(0)
    smooth = rng.standard_normal((400, 2))
    return {
        "rounded": np.round(smooth, 1),
        "integers": rng.poisson(3.0, (400, 2)).astype(float),
        "binary beside smooth": np.stack([rng.integers(0, 2, 400), smooth[:, 0]], axis=1),
        "a column squared": np.stack([smooth[:, 0], smooth[:, 0] ** 2], axis=1),
        "three in four zero": np.where(rng.uniform(size=(400, 2)) < 0.75, 0.0, smooth),
        "repeated rows": np.repeat(smooth[:40], 10, axis=0),
        "Cauchy": rng.standard_cauchy((400, 2)),
        "20 rows of 10 columns": rng.standard_normal((25, 10)),
        "one far row": np.concatenate([smooth, [[1e6, 0.0]]]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", hard_rows())
def test_hard_rows_neither_crash_nor_win_by_spikes(name):
    """Every width is at least the floor, and the density at most that of as narrow a component."""
    x = hard_rows()[name][np.random.default_rng(1).permutation(len(hard_rows()[name]))]
    grown = grow(x)
    standards = measure_columns(x[: round(0.8 * len(x))], np.ones(round(0.8 * len(x))))
    floor = standards.floor * standards.scaling.scale
    assert (floor > 0).all()
    values = np.linalg.eigvalsh(grown.mixture.covariances / np.outer(floor, floor))
    assert values.min() >= 1.0 - 1e-6
    d = x.shape[1]
    peak = -np.log(floor).sum() - 0.5 * d * math.log(2 * math.pi)
    assert grown.mixture.log_density(x).max() <= peak + 1e-9
    assert np.isfinite(grown.refit(x, np.ones(len(x))).log_density(x)).all()


def test_the_cells_of_a_grid_keep_their_probability():
    """All points of a grid, equally often. Each cell has a probability of 1 / 144, and little of it
    is lost between components; spikes are bounded by the least width of components."""
    axis = np.arange(12.0)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    rng = np.random.default_rng(0)
    grown = grow(np.concatenate([rng.permutation(points) for _ in range(8)]))
    spike = 1.0 / (2.0 * np.pi * WIDTH_OF_A_STEP**2)  # the peak of one component a cell
    at_points = grown.mixture.log_density(points)
    assert at_points.mean() < -math.log(144) + math.log(spike) + 0.05
    nodes = np.stack(np.meshgrid(*2 * [(np.arange(9) - 4) / 9.0]), axis=-1).reshape(-1, 2)
    rows = (points[:, None] + nodes).reshape(-1, 2)
    cells = np.exp(grown.mixture.log_density(rows)).reshape(144, -1).mean(axis=1)
    assert np.log(cells).mean() > -math.log(144) - 0.05
    assert cells.max() < 1.3 / 144


def test_an_outlier_among_new_rows_costs_what_the_guard_costs():
    x = rings()
    guarded = grow(x).mixture
    far = np.array([[40.0, -40.0]])
    assert guarded.log_density(far)[0] > -40.0
    assert guarded.without_guard().log_density(far)[0] < -1e3  # negative control


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (lambda x: np.stack([x[:, 0], x[:, 0]], axis=1), "linearly dependent"),
        (lambda x: np.stack([x[:, 0], np.ones(len(x))], axis=1), "column 1 is constant"),
    ],
)
def test_rows_without_a_density_are_named(columns, message):
    with pytest.raises(ValueError, match=message):
        grow(columns(make_rows(100)))
