"""Marginals: against products, the chain rule, differences, and files; mutual information; rows
with missing entries."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from answer_models import SCALE, SHIFT, Product, covariance, mixture, of_base, tilted
from conftest import slow
from scipy import stats

import tgpfast as tgp
from tgpfast.bases.bounded import BoundedMixtureBase
from tgpfast.bases.gaussian import whitening_gaussian
from tgpfast.density.answers.local_modes import merge_modes
from tgpfast.density.columns.marginals import MarginalDensity
from tgpfast.density.density import Density

POINTS = np.array([3.0, 5.0, 8.5])


@pytest.mark.parametrize("d", [2, 3, 5, 8])
def test_the_tilted_column_of_a_product(d):
    """Its marginal is the density of one column, and the others' are Gaussians."""
    product = Product(d)
    first, last = product.model.marginal([0]), product.model.marginal([d - 1])
    truth = np.log(np.interp((POINTS - SHIFT) / SCALE, product.line, product.p) / SCALE)
    values, errors = first.log_density(POINTS, return_error=True)
    assert (np.abs(values - truth) <= 5 * errors + 1e-7).all()
    truth = -0.5 * ((POINTS - SHIFT) / SCALE) ** 2 - math.log(SCALE * math.sqrt(2.0 * math.pi))
    values, errors = last.log_density(POINTS, return_error=True)
    assert (np.abs(values - truth) <= 5 * errors + 1e-7).all()
    assert errors.max() < (1e-6 if d == 2 else 1e-3 if d == 3 else 0.1)


@pytest.mark.parametrize(
    ("kept", "kind"), [([0], "mixture"), ([2, 0], "mixture"), slow([2, 0], "student")]
)
def test_the_chain_rule(kept, kind):
    """log q(x, y) = log q(x) + log q(y | x), with a normalizer of each."""
    base = mixture(3) if kind == "mixture" else tgp.StudentBase(np.zeros(3), covariance(3), 4.0)
    model = tilted(3, base, size=0.5)
    x = np.array([4.0, 6.0, 5.0])
    free = [k for k in range(3) if k not in kept]
    conditional = model.conditional({k: x[k] for k in kept})
    total = model.marginal(kept).log_density(x[None, kept])[0]
    total += conditional.log_density(x[None, free])[0]
    assert abs(total - model.log_density(x[None])[0]) < 1e-6


@pytest.mark.parametrize("degrees", [2.5, 30.0, 200.0])
@pytest.mark.slow
def test_marginals_of_a_student_base_hold_the_whole_mass(degrees):
    """Against a sum over the column that is left out; many degrees are close to a Gaussian."""
    model = tilted(2, tgp.StudentBase(np.zeros(2), covariance(2), degrees), size=0.5)
    v = np.linspace(-12.0, 12.0, 20_001)
    line, weights = SHIFT + SCALE * np.sinh(v), SCALE * np.cosh(v) * (v[1] - v[0])
    log_q = model.log_density(np.column_stack([np.full(len(v), 6.0), line]))
    truth = math.log(np.exp(log_q) @ weights)
    value, error = model.marginal(0).log_density([[6.0]], return_error=True)
    assert abs(value[0] - truth) < 1e-7 + error[0]
    assert error[0] < 1e-6


@pytest.mark.slow
def test_a_bounded_base_is_integrated_between_its_walls():
    base = BoundedMixtureBase([1.0], [[0.2, 0.0]], [np.diag([0.5, 1.0])], [0.0, -np.inf],
                              [np.inf, np.inf])  # fmt: skip
    joint = tilted(2)
    model = Density("fd", joint.tilt, base)
    line = np.linspace(0.0, 8.0, 4001)
    rows = np.column_stack([line, np.full_like(line, 0.3)])
    density = np.exp(model.log_density(rows, normalized=False) - model.log_normalizer.value)
    truth = math.log(np.sum(0.5 * (density[1:] + density[:-1])) * line[1])
    assert abs(model.marginal([1]).log_density([[0.3]])[0] - truth) < 1e-5


@pytest.mark.parametrize("d", [2, 3])
def test_gradients_are_slopes(d):
    part = tilted(d, mixture(d), size=0.5, S=6).marginal(list(range(d))[::-1][: d - 1])
    y = np.random.default_rng(0).normal(SHIFT, 1.0, size=(4, d - 1))
    slopes = part.grad_log_density(y)
    for k in range(d - 1):
        step = 1e-3 * np.eye(d - 1)[k]  # values err by 1e-9
        rise = part.log_density(y + step) - part.log_density(y - step)
        assert np.abs(slopes[:, k] - rise / 2e-3).max() < 3e-6


def test_many_rows_of_one_column_come_from_a_table():
    part = tilted(2, mixture(2)).marginal([1])
    y = np.random.default_rng(0).normal(SHIFT, 2.0, size=(3000, 1))
    values, errors = part.log_density(y, return_error=True)
    few = part.log_density(y[:40])
    assert np.abs(values[:40] - few).max() <= errors.max() + 1e-9
    assert errors.max() < 1e-6


def test_draws_probabilities_and_files(tmp_path):
    """They are those of the joint density."""
    product = Product(3, ["a", "b", "c"])
    part = product.model.marginal(["c", "a"])
    assert isinstance(part, MarginalDensity)
    rows = part.sample(20_000, seed=0)
    assert abs((rows[:, 1] <= 6.0).mean() - product.cdf(6.0)) < 5 * 0.5 / math.sqrt(20_000)
    assert abs(part.cdf([6.0], columns="a")[0] - product.cdf(6.0)) < 1e-6
    assert abs(part.probability({"a": 6.0}) - (1.0 - product.cdf(6.0))) < 1e-6
    assert part.marginal("a").columns == [0]
    part.save(tmp_path / "part.npz")
    again = tgp.load(tmp_path / "part.npz")
    frame = pd.DataFrame({"a": [5.0, 6.0], "c": [4.0, 5.0]}, index=[5, 6])
    assert again.log_density(frame).equals(part.log_density(frame))
    assert again.table.columns == ["c", "a"]


def test_quantiles_and_expectations_are_those_of_the_joint_density():
    product = Product(2)
    part = product.model.marginal(0)
    assert abs(part.cdf([part.quantile(0.3)])[0] - 0.3) < 1e-8
    assert abs(part.median()[0] - product.model.quantile(0.5, column=0)) < 1e-12
    mean = SHIFT + SCALE * product.integral(product.line)
    assert abs(part.expectation(lambda x: x[:, 0]) - mean) < 1e-7
    entropy = product.integral(-np.log(product.p)) + math.log(SCALE)
    assert abs(part.entropy() - entropy) < 5 * part.entropy().standard_error


def test_a_base_alone_has_exact_marginals():
    model = of_base(mixture(8), list("abcdefgh"))
    part = model.marginal(["g", "b"])
    assert isinstance(part, Density)
    assert part.table.columns == ["g", "b"]
    joint, two = mixture(8), [6, 1]
    covariances = joint.covariances[:, two][:, :, two]
    other = tgp.MixtureBase(joint.weights, joint.means[:, two], covariances)
    rows = np.array([[0.0, 1.0], [2.0, -1.0]])
    assert np.abs(part.log_density(rows) - other.log_density(rows)).max() < 1e-12
    assert model.marginal(list("abcdefgh")) is model


# -- information -----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 3])
def test_independent_columns_share_no_information(d):
    answer = Product(d).model.mutual_information(0, 1)
    assert abs(answer) <= 4 * answer.standard_error + 1e-9


def test_information_of_gaussians():
    C = covariance(3)
    exact = of_base(tgp.GaussianBase(np.zeros(3), C)).mutual_information([0], [1, 2])
    truth = 0.5 * math.log(C[0, 0] * np.linalg.det(C[1:, 1:]) / np.linalg.det(C))
    assert abs(exact - truth) < 1e-12
    twice = tgp.MixtureBase([0.4, 0.6], np.zeros((2, 3)), [C] * 2)
    answer = of_base(twice).mutual_information([2, 1], [0])
    assert abs(answer - truth) < 1e-8
    assert answer.method == "quadrature"
    answer = of_base(twice).mutual_information([0], [2])  # a third column is summed out
    truth = 0.5 * math.log(C[0, 0] * C[2, 2] / np.linalg.det(C[np.ix_([0, 2], [0, 2])]))
    assert abs(answer - truth) < 1e-8
    pair = tgp.MixtureBase([0.4, 0.6], np.zeros((2, 2)), [C[:2, :2]] * 2)
    answer = of_base(pair).mutual_information(0, 1)
    truth = 0.5 * math.log(C[0, 0] * C[1, 1] / np.linalg.det(C[:2, :2]))
    assert abs(answer - truth) < 1e-8


def test_information_of_a_narrow_ridge_and_of_heavy_tails():
    C = np.array([[1.0, 0.9999], [0.9999, 1.0]])
    ridge = of_base(tgp.MixtureBase([0.4, 0.6], np.zeros((2, 2)), [C] * 2))
    answer = ridge.mutual_information(0, 1)
    assert abs(answer + 0.5 * math.log(1.0 - 0.9999**2)) < 5 * answer.standard_error
    shape = np.array([[1.0, 0.6], [0.6, 1.0]])
    answer = of_base(tgp.StudentBase(np.zeros(2), shape, 4.0)).mutual_information(0, 1)
    joint = stats.multivariate_t(np.zeros(2), shape, 4.0)
    line = np.sinh(np.linspace(-9.0, 9.0, 1_501))
    weights = np.sqrt(1.0 + line**2) * 18.0 / 1_500
    log_p = joint.logpdf(np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1))
    log_one = stats.t(4.0).logpdf(line)
    truth = weights @ (np.exp(log_p) * (log_p - log_one - log_one[:, None])) @ weights
    assert abs(answer - truth) < 1e-8
    assert answer.standard_error < 1e-8


@pytest.mark.slow
def test_information_of_draws_has_standard_errors():
    """Of five columns, two are correlated, and the tilt changes another one: the information is
    that of two Gaussians."""
    model = Product(5).model
    correlated = np.eye(5)
    correlated[1, 2] = correlated[2, 1] = 0.6
    model = dataclasses.replace(model, base=tgp.GaussianBase(np.zeros(5), correlated))
    truth = -0.5 * math.log(1.0 - 0.6**2)
    answers = [model.mutual_information([0, 1], 2, seed=seed) for seed in range(2)]
    z = [(answer - truth) / answer.standard_error for answer in answers]
    assert max(map(abs, z)) < 3.5
    assert all(1e-4 < answer.standard_error < 0.05 for answer in answers)


# -- modes -----------------------------------------------------------------------------------------


def test_shares_of_modes_go_around_the_seam():
    """Two von Mises peaks in each of two columns, one peak of the first at the seam: shares are
    those of the components, wherever the period begins."""
    shares, centers = np.array([0.3, 0.7]), np.array([23.9, 10.0])
    for low in (0.0, -12.0, 5.0):
        base = BoundedMixtureBase(shares, np.c_[centers, [0.0, 1.0]], [np.diag([1.5, 1.0])] * 2,
                                  [low, -np.inf], [low + 24.0, np.inf], [True, False])  # fmt: skip
        model = of_base(base)
        model = dataclasses.replace(model, tilt=tilted(2, size=1e-12).tilt)  # no closed form
        found = model.marginal(0).mode()
        assert np.abs(found.share - [0.7, 0.3]).max() < 1e-3
        gaps = (found.value[:, 0] - [10.0, 23.9] + 12.0) % 24.0 - 12.0
        assert np.abs(gaps).max() < 0.01
        found = model.mode()
        assert len(found) == 2  # those beside the seam are one
        assert np.abs(found.share - [0.7, 0.3]).max() < 0.1


def test_places_on_both_sides_of_a_seam_are_one_mode():
    base = BoundedMixtureBase([1.0], [[0.0]], [[[1.0]]], [0.0], [24.0], [True])
    x = np.array([[1e-9], [24.0 - 1e-9], [12.0]])
    heights = np.array([0.0, 0.0, -1.0])
    places, counts = merge_modes(x, heights, whitening_gaussian(base), base.domain)
    assert len(places) == 2
    assert counts.tolist() == [2.0, 1.0]


# -- missing entries -------------------------------------------------------------------------------


def test_rows_with_missing_entries_are_scored_by_what_is_there():
    model = Product(3, ["a", "b", "c"]).model
    nan = math.nan
    frame = pd.DataFrame(
        {"c": [5.0, nan, 4.0, nan], "a": [6.0, 6.0, nan, nan], "b": [5.0, 5.0, 5.0, nan]},
        index=[1, 2, 3, 4],
    )
    values = model.log_density(frame, missing="marginal")
    assert values.index.tolist() == [1, 2, 3, 4]
    complete = frame.iloc[:1]
    assert abs(values[1] - model.log_density(complete)[1]) < 1e-12
    assert abs(values[2] - model.marginal(["a", "b"]).log_density([[6.0, 5.0]])[0]) < 1e-12
    assert abs(values[3] - model.marginal(["b", "c"]).log_density([[5.0, 4.0]])[0]) < 1e-12
    assert values[4] == 0.0


def test_bad_marginals_are_named():
    model = Product(2, ["a", "b"]).model
    nan_row = [[math.nan, 1.0]]
    cases = [
        (lambda: model.marginal("z"), ValueError, "'z'.*no such column"),
        (lambda: model.marginal(["a", "a"]), ValueError, "each one once"),
        (lambda: model.mutual_information("a", ["a"]), ValueError, "different columns"),
        (lambda: model.log_density(nan_row), ValueError, "nan at row 0"),
        (lambda: model.log_density(nan_row, missing="drop"), ValueError, "missing='drop'"),
        (lambda: model.log_density(nan_row, False, missing="marginal"), ValueError, "normalized"),
        (lambda: model.log_density([[math.inf, 1.0]], missing="marginal"), ValueError, "inf at"),
        (lambda: model.log_density("rows.csv", missing="marginal"), FileNotFoundError, "rows.csv"),
    ]
    for ask, kind, text in cases:
        with pytest.raises(kind, match=text):
            ask()
