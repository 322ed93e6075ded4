"""Densities of bent columns: mass, derivatives, answers, files, all in the units of the data."""

import os
import pickle
from dataclasses import replace

import numpy as np
import pytest

import tgpfast
from tgpfast.data.column_maps import MappedScaling

OPTIONS = {"method": "fd", "lam": 30.0, "n_features": 30, "base": "empirical", "gamma": 1.0}


def make_rows(n, d, seed=0):
    """Skewed columns that depend on each other."""
    rng = np.random.default_rng(seed)
    x = np.exp(0.5 * rng.normal(size=(n, d)))
    x[:, 1:] += 0.4 * x[:, :1]
    return x


@pytest.fixture(scope="module")
def four():
    return tgpfast.fit(make_rows(800, 4), scale="gaussianize", **OPTIONS)


@pytest.fixture(scope="module")
def walled():
    support = {0: (0.0, None), 1: (0.0, 30.0)}
    return tgpfast.fit(make_rows(800, 4), scale="gaussianize", support=support, **OPTIONS)


@pytest.fixture(scope="module")
def plane():
    return tgpfast.fit(make_rows(600, 2), scale="gaussianize", features="random", **OPTIONS)


def test_one_column_integrates_to_one():
    model = tgpfast.fit(make_rows(500, 1), scale="gaussianize", **OPTIONS)
    assert isinstance(model.scaling, MappedScaling)
    x = np.linspace(-20.0, 60.0, 40_001)
    mass = np.trapezoid(np.exp(model.log_density(x[:, None])), x)
    assert mass == pytest.approx(1.0, abs=1e-4)
    assert model.cdf([[1.0]])[0] == pytest.approx(
        np.trapezoid(np.exp(model.log_density(x[x <= 1.0, None])), x[x <= 1.0]), abs=1e-3
    )


@pytest.mark.slow
def test_two_columns_integrate_to_one(plane):
    lines = np.linspace(-4.0, 14.0, 451)
    grid = np.stack(np.meshgrid(lines, lines, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(plane.log_density(grid)).reshape(451, 451)
    mass = np.trapezoid(np.trapezoid(density, lines), lines)
    assert mass == pytest.approx(1.0, abs=2e-3)
    box = density[:151, :151]  # up to 2.0 in both columns
    inside = np.trapezoid(np.trapezoid(box, lines[:151]), lines[:151])
    assert plane.probability(None, [2.0, 2.0]) == pytest.approx(inside, abs=2e-3)
    assert plane.cdf([[2.0, 2.0]])[0] == pytest.approx(inside, abs=2e-3)
    entropy = -np.trapezoid(np.trapezoid(density * np.log(density + 1e-300), lines), lines)
    assert plane.entropy() == pytest.approx(entropy, abs=5e-3)


@pytest.mark.parametrize("name", ["four", "walled"])
def test_four_columns_integrate_to_one_by_importance_sampling(name, request):
    model = request.getfixturevalue(name)
    x = make_rows(4_000, 4)
    logs = np.log(x)
    mean, root = logs.mean(axis=0), np.linalg.cholesky(1.6 * np.cov(logs.T))
    z = np.random.default_rng(1).standard_t(5, size=(50_000, 4))
    draws = np.exp(mean + z @ root.T)  # positive rows carry nearly all of the mass
    from scipy import stats

    log_q = stats.t(5).logpdf(z).sum(axis=1) - np.log(np.diag(root)).sum()
    weights = np.exp(model.log_density(draws) - (log_q - np.log(draws).sum(axis=1)))
    error = weights.std() / np.sqrt(len(weights))
    # without walls, some of the mass is at rows that are not positive
    outside = 0.0 if name == "walled" else 1.0 - model.probability([0.0] * 4)
    assert abs(weights.mean() + outside - 1.0) < 4.0 * error + 0.005


@pytest.mark.parametrize("name", ["four", "walled", "plane"])
def test_gradient_and_laplacian_are_those_of_differences(name, request):
    model, h = request.getfixturevalue(name), 1e-4
    x = make_rows(20, model.dimension, seed=5)
    steps = h * np.eye(model.dimension)
    sides = [(model.log_density(x + step), model.log_density(x - step)) for step in steps]
    differences = np.stack([(a - b) / (2.0 * h) for a, b in sides], axis=1)
    np.testing.assert_allclose(model.grad_log_density(x), differences, rtol=1e-3, atol=1e-3)
    gradients = [
        (model.grad_log_density(x + s)[:, k] - model.grad_log_density(x - s)[:, k]) / (2.0 * h)
        for k, s in enumerate(steps)
    ]
    close = np.abs(sum(gradients) - model.laplacian_log_density(x))
    scale = 1.0 + np.abs(model.laplacian_log_density(x))
    assert np.median(close / scale) < 1e-5  # at a knot the third derivative jumps
    assert (close / scale < 0.2).all()


def test_chain_rule_of_conditional_and_marginal(plane):
    marginal, at = plane.marginal([0]), np.array([[1.2, 1.5], [0.8, 2.0]])
    for row in at:
        joint = plane.log_density(row[None])[0]
        rest = plane.conditional({0: row[0]}).log_density(row[None, 1:])[0]
        assert joint == pytest.approx(marginal.log_density(row[None, :1])[0] + rest, abs=1e-5)
    table = plane.conditional({0: at[:, 0]})
    one = plane.conditional({0: at[0, 0]})
    assert table.median()[0] == pytest.approx(one.quantile(0.5), abs=1e-3)
    assert table.mean[0] == pytest.approx(one.expectation(lambda rows: rows[:, 0]), abs=2e-3)


def test_gradient_of_a_marginal_is_that_of_differences(four):
    marginal, y = four.marginal([2, 0]), np.array([[1.3, 1.0], [2.0, 0.7]])
    steps = 1e-4 * np.eye(2)
    differences = [
        (marginal.log_density(y + s) - marginal.log_density(y - s)) / 2e-4 for s in steps
    ]
    np.testing.assert_allclose(
        marginal.grad_log_density(y), np.stack(differences, axis=1), atol=1e-3
    )


@pytest.mark.parametrize("name", ["four", "walled"])
def test_quantiles_and_samples_agree_with_the_distribution_function(name, request):
    model = request.getfixturevalue(name)
    levels = np.array([0.05, 0.5, 0.9])
    for k in (0, 1):
        found = model.quantile(levels, column=k)
        np.testing.assert_allclose(model.cdf(found[:, None], columns=k), levels, atol=2e-5)
    draws = model.sample(4_000, seed=0)
    below = (draws <= model.quantile(0.3)).mean(axis=0)
    np.testing.assert_allclose(below, 0.3, atol=0.03)
    direction = model.marginal_cdf(np.array([1.0, -1.0, 0.5, 0.0]), [0.0])
    share = (draws @ [1.0, -1.0, 0.5, 0.0] <= 0.0).mean()
    assert direction[0] == pytest.approx(share, abs=0.03)


def test_marginal_cdf_of_two_bent_columns_along_axes_and_obliquely(plane):
    draws = plane.sample(20_000, seed=1)
    for v in ([1.0, 0.0], [0.0, -2.0], [1.0, 1.0]):
        places = np.quantile(draws @ v, [0.2, 0.6])
        np.testing.assert_allclose(plane.marginal_cdf(v, places), [0.2, 0.6], atol=0.02)


@pytest.mark.slow
def test_region_mode_and_information_are_in_the_units_of_the_data(plane):
    region = plane.highest_density_region(0.8)
    inside = region.contains(plane.sample(5_000, seed=2)).mean()
    assert inside == pytest.approx(0.8, abs=0.03)
    lines = np.linspace(-2.0, 6.0, 401)
    grid = np.stack(np.meshgrid(lines, lines, indexing="ij"), axis=-1).reshape(-1, 2)
    values = plane.log_density(grid)
    area = (values >= region.threshold).sum() * 0.02**2
    assert region.volume == pytest.approx(area, rel=0.05)
    modes = plane.mode()
    assert values.max() <= modes.log_density[0] < values.max() + 0.02
    np.testing.assert_allclose(modes.value[0], grid[values.argmax()], atol=0.03)
    np.testing.assert_allclose(plane.log_density(modes.value), modes.log_density, atol=1e-8)
    np.testing.assert_allclose(plane.grad_log_density(modes.value), 0.0, atol=1e-4)
    assert plane.mutual_information(0, 1) > 0.0


def test_divergence_from_an_unbent_model_and_from_itself(four):
    plain = tgpfast.fit(make_rows(800, 4), scale="standardize", **OPTIONS)
    assert four.kl_divergence(four) == pytest.approx(0.0, abs=1e-9)
    draws = four.sample(20_000, seed=3)
    gap = four.log_density(draws) - plain.log_density(draws)
    found = four.kl_divergence(plain)
    assert found == pytest.approx(gap.mean(), abs=6.0 * gap.std() / np.sqrt(len(gap)))


def test_explain_names_the_column_that_is_off(plane, four):
    for model in (plane, four):
        row = np.array(model.median())[None]
        row[0, 1] = 40.0
        found = model.explain(row)
        assert found.shape == row.shape
        assert int(found.argmin()) == 1
        assert (found <= 0.0).all()
    top = plane.explain(plane.mode().value[:1])
    np.testing.assert_allclose(top, 0.0, atol=1e-3)


def test_missing_values_are_scored_by_the_marginal(four):
    row = np.array([[1.0, np.nan, 1.5, np.nan]])
    assert four.log_density(row, missing="marginal")[0] == pytest.approx(
        four.marginal([0, 2]).log_density(row[:, [0, 2]])[0], abs=1e-9
    )


@pytest.mark.slow
def test_a_band_surrounds_the_log_density():
    options = {**OPTIONS, "method": "fvpd"}
    model = tgpfast.fit(make_rows(400, 2), scale="gaussianize", features="random", **options)
    rows = make_rows(10, 2, seed=7)
    band = model.credible_band(rows)
    np.testing.assert_allclose(band.median, model.log_density(rows), atol=0.5)


def test_walls_hold(walled):
    draws = walled.sample(3_000, seed=0)
    assert (draws[:, :2] >= 0.0).all()
    assert (draws[:, 1] <= 30.0).all()
    rows = np.tile(walled.median(), (5, 1))
    rows[0, 0], rows[1, 1], rows[2, 1] = -1e-9, 30.001, -5.0
    rows[3, 0], rows[4, 1] = 0.0, 30.0
    values = walled.log_density(rows)
    assert np.isneginf(values[:3]).all()
    assert np.isfinite(values[3:]).all()
    assert walled.probability({0: -5.0}, {0: 0.0}) == 0.0
    assert walled.cdf([[-1.0]], columns=0)[0] == 0.0
    with pytest.raises(ValueError, match="the density is zero"):
        walled.conditional({0: -1.0})
    with pytest.raises(ValueError, match="row 0"):
        walled.grad_log_density(rows[:1])


def test_files_pickles_and_copies_give_the_same_densities(walled, tmp_path):
    path, rows = tmp_path / "model.npz", make_rows(30, 4, seed=9)
    walled.save(path)
    for again in (tgpfast.load(path), pickle.loads(pickle.dumps(walled)), replace(walled)):
        np.testing.assert_array_equal(again.log_density(rows), walled.log_density(rows))
        np.testing.assert_array_equal(again.sample(5, seed=0), walled.sample(5, seed=0))
    marginal = walled.marginal([1, 3])
    marginal.save(tmp_path / "marginal.npz")
    again = tgpfast.load(tmp_path / "marginal.npz")
    np.testing.assert_array_equal(
        again.log_density(rows[:, [1, 3]]), marginal.log_density(rows[:, [1, 3]])
    )


@pytest.mark.parametrize("change", ["falls", "lacks", "too few"])
def test_a_file_with_damaged_maps_is_refused(walled, tmp_path, change):
    path = tmp_path / "model.npz"
    walled.save(path)
    with np.load(path) as file:
        members = {name: file[name] for name in file.files}
    if change == "falls":
        members["maps_heights"] = -members["maps_heights"]
    elif change == "lacks":
        del members["maps_slopes"]
    else:
        members["maps_sizes"] = members["maps_sizes"][:-1]
    os.remove(path)
    np.savez(path, **members)
    with pytest.raises(ValueError, match="damaged"):
        tgpfast.load(path)


def test_an_update_maps_new_rows_and_refuses_those_outside(walled):
    new = walled.update(make_rows(200, 4, seed=11))
    assert new.settings["n_rows"] == 1_000
    assert new.scaling is walled.scaling
    rows = make_rows(5, 4, seed=12)
    assert np.abs(new.log_density(rows) - walled.log_density(rows)).max() > 0.0
    rows[2, 0] = -1.0
    with pytest.raises(ValueError, match="row 2, column 0 lies outside"):
        walled.update(rows)


def test_the_model_describes_itself(four):
    assert "gaussianize" in four.summary()
    assert "gaussianize" in four._repr_html_()
    assert "n_rows=800" in repr(four)
