"""Answers of densities with walls, periods and discrete columns together."""

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast.density.columns import conditionals


def make_rows(d=4, n=600):
    rng = np.random.default_rng(0)
    return np.column_stack([rng.poisson(1.5, n).astype(float), rng.normal(size=(n, d - 1))])


@pytest.fixture(scope="module")
def walled():
    options = {"base": "empirical", "lam": 1.0, "n_features": 50}
    with pytest.warns(tgp.DataWarning, match="whole numbers"):
        return tgp.fit(make_rows(), support={0: (0, None)}, **options)


def test_a_bound_at_a_wall_holds_everything(walled):
    """Rows on the wall count as half a step inside; bounds do not."""
    assert walled.probability({0: 0.0}, {}) == pytest.approx(1.0, abs=1e-9)
    assert walled.probability({0: 0.3}, {}) < 0.999  # the negative control
    values = walled.cdf([[0.0], [0.1], [0.5], [2.0]], columns=[0])
    assert values[0] == 0.0
    assert (np.diff(values) >= 0.0).all()


def test_values_on_both_walls_leave_them_apart():
    rows = make_rows()
    rows[:, 0] = np.random.default_rng(1).integers(0, 2, len(rows))
    with pytest.warns(tgp.DataWarning, match="whole numbers"):
        model = tgp.fit(rows, support={0: (0, 1)}, base="empirical", lam=1.0, n_features=50)
    assert np.isfinite(model.log_density(rows)).all()


def test_hours_from_0_to_23_stay_so():
    hours = np.random.default_rng(0).integers(0, 24, 300).astype(float)
    model = tgp.fit(hours[:, None], discrete=[0], period={0: 24})
    assert model.probability({0: 0}, {}) == pytest.approx(1.0, abs=1e-6)
    assert model.cdf([[23.0]])[0] == pytest.approx(1.0, abs=1e-6)
    drawn = np.asarray(model.sample(5000, seed=0))
    assert (drawn.min(), drawn.max()) == (0.0, 23.0)
    with pytest.raises(ValueError, match=r"23\.5 is not a multiple of its step 1"):
        tgp.fit(hours[:, None], discrete=[0], period={0: 23.5})


def test_months_from_1_to_12_stay_so():
    months = np.random.default_rng(0).integers(1, 13, 300).astype(float)
    drawn = tgp.fit(months[:, None], discrete=[0], period={0: 12}).sample(3000, seed=0)
    assert (np.min(drawn), np.max(drawn)) == (1.0, 12.0)


@pytest.fixture(scope="module")
def counts():
    rows = make_rows(d=2)
    return rows, tgp.fit(rows, discrete=[0], support={0: (0, None)})


def test_tables_of_values_must_lie_on_the_grid(counts):
    _, model = counts
    assert len(model.conditional({0: np.array([0.0, 2.0])}).mean) == 2
    with pytest.raises(ValueError, match=r"2\.5, which is not a multiple of its step 1"):
        model.conditional({0: np.array([0.0, 2.5])})


def test_errors_are_refused_where_there_are_none(counts):
    rows, model = counts
    with pytest.raises(ValueError, match="return_error does not go with missing"):
        model.log_density(rows, missing="marginal", return_error=True)


def test_weighted_draws_of_discrete_columns_are_whole(counts):
    drawn, weights = counts[1].weighted_sample(500, 0)
    assert (drawn[:, 0] == np.rint(drawn[:, 0])).all()
    assert len(weights) == 500


def test_update_names_rows_beyond_a_wall_in_units_of_the_data(counts):
    _, model = counts
    with pytest.raises(ValueError, match=r"row 1, column 0 .* \(0, inf\)"):
        model.update(np.array([[1.0, 0.0], [-20.0, 0.0]]))


def test_update_warns_of_rows_beyond_its_lattice():
    rows = np.random.default_rng(0).normal(size=(500, 2))
    model = tgp.fit(rows, lam=0.1)
    model.update(rows[::-1])  # the negative control: no warning
    with pytest.warns(tgp.DataWarning, match="beyond the ends of the lattice"):
        model.update(rows + 12.0)


def test_bounds_in_the_wrong_order_name_the_column(counts):
    with pytest.raises(ValueError, match="column 1: lower=3 is above upper=2"):
        counts[1].probability({1: 3.0}, {1: 2.0})


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 4])
def test_given_a_value_on_a_wall_nothing_is_extrapolated(d, monkeypatch):
    """y = 2 x + noise with x exponential: given x = 0, y has mean 0; also above a wall turned
    around, and given values next to the wall."""
    rng = np.random.default_rng(0)
    x = rng.exponential(size=1_000)
    rest = rng.normal(size=(1_000, d - 2))
    for sign, wall in ((1.0, (0, None)), (-1.0, (None, 0))):
        rows = np.c_[sign * x, 2.0 * x + rng.normal(size=1_000), rest]
        model = tgp.fit(rows, support={0: wall}, effort="fast", scale="gaussianize")
        values = {0: 0.0} | dict.fromkeys(range(2, d), 0.0)
        assert abs(model.conditional(values).median()[0]) < 0.4
        table = model.conditional({k: [v] for k, v in values.items()})
        assert abs(table.mean[0]) < 0.4
        near, places = values | {0: sign * 1e-12}, np.array([[-1.0], [0.5]])
        for next_to in (near, values | {0: sign * 1e-9}):
            np.testing.assert_array_equal(
                model.conditional(next_to).log_density(places),
                model.conditional(values).log_density(places),
            )
        near_table = model.conditional({k: [v] for k, v in near.items()})
        np.testing.assert_array_equal(near_table.mean, table.mean)
        # values where the rows are stay as they are: joint less marginal, by a sum over y
        inner, line = values | {0: sign * 0.01}, np.linspace(-9.0, 9.0, 2_001)
        joint = np.tile([inner.get(k, 0.0) for k in range(d)], (len(line), 1))
        joint[:, 1] = line
        log_joint = model.log_density(joint)
        expected = log_joint - np.log(np.exp(log_joint).sum() * (line[1] - line[0]))
        found = model.conditional(inner).log_density(line[:, None])
        np.testing.assert_allclose(found[expected > -9.0], expected[expected > -9.0], atol=1e-3)
        with monkeypatch.context() as patch:  # negative control: the map takes it far out
            patch.setattr(conditionals, "WALL_SHARE", 1e-300)
            assert abs(model.conditional(near).median()[0]) > 1.0
