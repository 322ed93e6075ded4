"""Walls, periods and discrete columns together; and the coordinates that held-out rows prefer."""

import numpy as np
import pytest
from scipy import integrate, stats

import tgpfast as tgp

FIXED = {"method": "fd", "lam": 30.0, "n_features": 40, "base": "empirical", "gamma": 1.0}
DOMAIN = {
    "support": {0: (0.0, None), 2: (0.0, 1.0), 3: (0, None)}, "period": {1: 24.0},
    "discrete": [3],
}  # fmt: skip


def mixed_rows(n, seed=0):
    """A positive column that depends on the hour, the hour, a share, a count, and a normal one."""
    rng = np.random.default_rng(seed)
    angle = rng.vonmises(0.0, 1.0, n)
    wait = rng.gamma(2.0, 1.0, n) * np.exp(0.5 * np.cos(angle))
    hour = angle / (2.0 * np.pi) * 24.0 % 24.0
    return np.c_[wait, hour, rng.beta(0.5, 0.5, n), rng.poisson(3.0, n), rng.normal(size=n)]


@pytest.fixture(scope="module")
def mixed():
    return tgp.fit(mixed_rows(800), **DOMAIN, **FIXED)


def hellinger(model, law):
    """Distance to a law on (0, 1), by the midpoint rule in its quantiles."""
    x = law.ppf((np.arange(20_000) + 0.5) / 20_000)
    ratios = np.exp(0.5 * (model.log_density(x[:, None]) - law.logpdf(x)))
    return np.sqrt(max(1.0 - ratios.mean(), 0.0))


# -- more than three columns ----------------------------------------------------------------------


def test_the_mass_of_mixed_columns_is_one_by_importance_sampling(mixed):
    n, laws = 20_000, [
        stats.gamma(2.0, scale=1.7), stats.uniform(0.0, 24.0), stats.beta(0.4, 0.4),
        stats.nbinom(6, 0.6), stats.t(5.0),
    ]  # fmt: skip
    rows = np.column_stack([law.rvs(n, random_state=k) for k, law in enumerate(laws)])
    proposed = sum(
        law.logpmf(rows[:, k]) if k == 3 else law.logpdf(rows[:, k]) for k, law in enumerate(laws)
    )
    ratios = np.exp(mixed.log_density(rows) - proposed)
    error = ratios.std() / np.sqrt(n)
    assert error < 0.02
    assert ratios.mean() == pytest.approx(1.0, abs=4.0 * error)


def test_mixed_columns_have_no_mass_outside_and_the_same_at_any_hour(mixed):
    draws = mixed.sample(2_000, seed=0)
    assert (draws[:, [0, 2, 3]] >= 0.0).all()
    assert draws[:, 2].max() <= 1.0
    assert (draws[:, 3] == np.rint(draws[:, 3])).all()
    assert draws[:, 1].min() >= 0.0
    assert draws[:, 1].max() < 24.0
    inside = [1.0, 3.0, 0.5, 2.0, 0.0]
    beyond = np.array([inside] * 4)
    beyond[0, 0], beyond[1, 2], beyond[2, 3], beyond[3, 3] = -0.1, 1.1, -1.0, 2.5
    assert np.isneginf(mixed.log_density(beyond)).all()
    day = np.array([inside, inside])
    day[1, 1] += 48.0
    assert np.diff(mixed.log_density(day))[0] == pytest.approx(0.0, abs=1e-9)
    rows = mixed_rows(2_000, seed=1)
    night = np.mean((rows[:, 1] > 22.0) | (rows[:, 1] < 2.0))
    assert mixed.probability({1: 22.0}, {1: 26.0}) == pytest.approx(night, abs=0.06)
    assert mixed.cdf([2.0], columns=0)[0] == pytest.approx(np.mean(rows[:, 0] <= 2.0), abs=0.06)
    assert mixed.settings["support"] == {"0": [0.0, np.inf], "2": [0.0, 1.0], "3": [0.0, np.inf]}
    free = tgp.fit(mixed_rows(800), discrete=[3], **FIXED)
    assert (free.sample(2_000, seed=0)[:, 2] > 1.0).any()  # without walls there is mass beyond


def test_slopes_are_those_of_the_log_density(mixed):
    row, step = np.array([[1.0, 3.0, 0.4, 2.0, 0.1]]), 1e-5
    slopes = mixed.grad_log_density(row)[0]
    for k in (0, 1, 2, 4):
        move = step * np.eye(5)[k]
        rise = np.diff(mixed.log_density(np.concatenate([row - move, row + move])))[0]
        assert slopes[k] == pytest.approx(rise / (2.0 * step), rel=1e-3, abs=1e-3)


def test_files_and_new_rows_keep_the_domain(mixed, tmp_path):
    mixed.save(tmp_path / "mixed.npz", statistics=True)
    again, rows = tgp.load(tmp_path / "mixed.npz"), mixed_rows(60, seed=2)
    np.testing.assert_array_equal(again.log_density(rows), mixed.log_density(rows))
    later = rows + np.array([0.0, 240.0, 0.0, 0.0, 0.0])
    both = [again.update(new).log_density(rows) for new in (rows, later)]
    np.testing.assert_allclose(both[0], both[1], atol=1e-9)
    rows[7, 0] = -1.0
    with pytest.raises(ValueError, match="row 7, column 0 lies outside of its support"):
        again.update(rows)


def test_new_counts_beyond_a_wall_are_refused_with_the_wall_that_was_given(mixed):
    rows = mixed_rows(60, seed=2)
    rows[5, 3] = -1.0
    with pytest.raises(ValueError, match=r"row 5, column 3 lies outside .* \(0, inf\)"):
        mixed.update(rows)
    counts = mixed_rows(200)[:, [3]]
    lattice = tgp.fit(counts, support={0: (0, None)}, discrete=[0], base="empirical")
    with pytest.raises(ValueError, match=r"row 1, column 0 lies outside .* \(0, inf\)"):
        lattice.update([[2.0], [-1.0]])


def test_hours_of_many_days_beside_walls_give_the_same_model(mixed):
    rows = mixed_rows(800)
    rows[:, 1] += 24.0 * np.random.default_rng(3).integers(0, 300, 800)
    many, held = tgp.fit(rows, **DOMAIN, **FIXED), mixed_rows(500, seed=4)
    assert many.log_density(held).mean() == pytest.approx(
        mixed.log_density(held).mean(), abs=0.05
    )


@pytest.mark.parametrize(
    ("columns", "options"),
    [([0], {"support": {0: (0, None)}}), ([1, 4], {"period": {0: 24.0}}),
     ([0, 1, 2, 4], {"support": {0: (0, None)}})],
)  # fmt: skip
def test_noise_levels_take_no_domain(columns, options):
    with pytest.raises(ValueError, match='method="ncfd"'):
        tgp.fit(mixed_rows(100)[:, columns], method="ncfd", **options)


# -- up to three columns --------------------------------------------------------------------------


@pytest.mark.slow
def test_poles_at_walls_are_bent_and_a_uniform_column_is_not():
    law = stats.beta(0.5, 0.5)
    rows = law.rvs((500, 1), random_state=0)
    model = tgp.fit(rows, support={0: (0, 1)})
    assert model.settings["coordinates"] == "bent at walls"
    assert hellinger(model, law) < 0.4 * hellinger(tgp.fit(rows), law)
    flat = tgp.fit(np.random.default_rng(0).random((500, 1)), support={0: (0, 1)})
    assert flat.settings["coordinates"] == "plain"
    assert flat.log_density([[0.3]])[0] == pytest.approx(0.0, abs=0.05)
    assert "bent at walls" in model.summary()


@pytest.mark.slow
def test_the_mass_of_bent_columns_is_one_and_many_rows_choose_alike():
    rows = stats.gamma(0.5).rvs((6_000, 1), random_state=1)  # more than are compared
    model = tgp.fit(rows, support={0: (0, None)})
    assert model.settings["coordinates"] == "bent at walls"

    def mass(y):
        return float(np.exp(model.log_density([[np.exp(y)]])[0] + y))

    assert integrate.quad(mass, -60.0, 6.0, limit=400)[0] == pytest.approx(1.0, abs=1e-5)
    assert model.settings["coordinate_scores"]["bent at walls"] == max(
        model.settings["coordinate_scores"].values()
    )


@pytest.mark.slow
def test_a_skewed_column_beside_a_period_is_bent():
    rng = np.random.default_rng(0)
    angle = rng.vonmises(0.0, 1.0, 1_500)
    wait = np.exp(3.0 + 0.6 * rng.normal(size=1_500) + 0.4 * np.cos(angle))
    warm = 15.0 + 8.0 * np.sin(angle) + 3.0 * rng.normal(size=1_500)
    rows = np.c_[angle / (2.0 * np.pi) * 24.0 % 24.0, wait, warm]
    model = tgp.fit(rows, period={0: 24.0})
    assert model.settings["coordinates"] == "gaussianized"
    found = model.marginal([1]).quantile(0.01)
    assert found == pytest.approx(np.quantile(wait, 0.01), rel=0.15)
    np.testing.assert_allclose(
        model.log_density(rows[:5]), model.log_density(rows[:5] + np.array([24.0, 0.0, 0.0])),
    )
    draws = model.sample(1_000, seed=0)[:, 0]
    assert draws.min() >= 0.0
    assert draws.max() < 24.0
    share = np.mean((rows < [23.0, 20.0, 15.0]).all(axis=1))
    assert model.cdf([[23.0, 20.0, 15.0]])[0] == pytest.approx(share, abs=0.03)


@pytest.mark.slow
def test_repeated_rows_are_compared_as_rows_with_weights():
    """All coordinates are judged by the same held-out rows, also where rows are repeated."""
    x, counts = stats.gamma(0.5).rvs((400, 1), random_state=0), np.arange(400) % 2 + 1
    with pytest.warns(tgp.DataWarning, match="repeats values"):
        repeated = tgp.fit(np.repeat(x, counts, axis=0), support={0: (0, None)})
    options = {"sample_weight": counts.astype(float), "normalize_weights": False}
    weighted = tgp.fit(x, support={0: (0, None)}, **options)
    found = [model.settings["coordinate_scores"] for model in (repeated, weighted)]
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert repeated.settings["coordinates"] == weighted.settings["coordinates"] == "bent at walls"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [204, 207])
def test_a_gain_of_luck_bends_no_column(seed):
    """Uniform samples for which a map gains 0.001 nats a row on held-out rows: the density stays
    uniform. The negative control is a pole at both walls."""
    x = np.random.default_rng(0).beta(0.5, 0.5, 500)[:, None]
    assert tgp.fit(x, support={0: (0, 1)}).settings["coordinates"] == "bent at walls"
    x = stats.uniform().rvs(500, random_state=seed)[:, None]
    model = tgp.fit(x, support={0: (0, 1)})
    assert model.settings["coordinates"] == "plain"
    assert model.settings["coordinate_scores"]["gaussianized"] > 0.0  # by luck
    line = np.linspace(0.005, 0.995, 100)[:, None]
    assert np.abs(np.exp(model.log_density(line)) - 1.0).max() < 0.05
