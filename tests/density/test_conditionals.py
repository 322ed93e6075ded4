"""Conditionals: exact in form, of every tilt and base, and for whole tables."""

import math

import numpy as np
import pandas as pd
import pytest
from answer_models import SHIFT, Product, covariance, mixture, of_base, tilted
from conftest import fixed_fit

import tgpfast as tgp
from tgpfast.bases.bounded import UniformBase
from tgpfast.density.columns.restriction import restrict_tilt
from tgpfast.density.exponents.lattice_exponent import LatticeTilt
from tgpfast.features.lattice import LatticeFeatures
from tgpfast.kernels.thread_choice import Threads


def gap_of(model, given, n=6):
    """log joint - log conditional at some rows, neither normalized: the same at all."""
    conditional = model.conditional(given)
    y = np.random.default_rng(0).normal(SHIFT, 1.0, size=(n, conditional.dimension))
    rows = np.empty((n, model.dimension))
    free = [k for k in range(model.dimension) if k not in given]
    rows[:, free] = y
    for k, value in given.items():
        rows[:, k] = value
    return model.log_density(rows, normalized=False) - conditional.log_density(y, normalized=False)


@pytest.mark.parametrize("d", [2, 3, 5, 8])
def test_a_conditional_is_the_joint_up_to_a_constant(d):
    for base in (mixture(d), tgp.StudentBase(np.zeros(d), covariance(d), 4.0)):
        gaps = gap_of(tilted(d, base, size=0.4), {0: SHIFT - 1.0})
        assert np.ptp(gaps) < 1e-10


@pytest.mark.parametrize("method", ["fd", "ncfd", "fvpd", "map"])
def test_every_method_has_conditionals(method):
    x = np.random.default_rng(0).normal(size=(300, 3)) * 2.0 + 5.0
    model = fixed_fit(x, method=method, n_features=20)
    assert np.ptp(gap_of(model, {0: 5.5, 2: 4.3})) < 1e-9


@pytest.mark.parametrize("d", [2, 3])
def test_a_conditional_of_a_gaussian(d):
    C = covariance(d)
    conditional = of_base(tgp.GaussianBase(np.zeros(d), C)).conditional({0: 1.5})
    mean, rest = C[1:, 0] / C[0, 0] * 1.5, C[1:, 1:] - np.outer(C[1:, 0], C[0, 1:]) / C[0, 0]
    assert np.abs(conditional.base.mean - mean).max() < 1e-12
    assert np.abs(conditional.base.covariance - rest).max() < 1e-12


def test_an_independent_column_does_not_matter():
    """The conditional of the tilted column given the others is its marginal."""
    product = Product(3, ["a", "b", "c"])
    conditional = product.model.conditional({"b": 3.0, "c": 9.0})
    assert conditional.table.columns == ["a"]
    assert abs(conditional.cdf([6.0])[0] - product.cdf(6.0)) < 1e-6


def test_conditionals_of_conditionals_and_files(tmp_path):
    model = tilted(3, mixture(3))
    at_once = model.conditional({0: 4.0, 2: 6.0})
    in_turn = model.conditional({0: 4.0}).conditional({1: 6.0})
    y = np.linspace(0.0, 10.0, 7)[:, None]
    assert np.abs(at_once.log_density(y) - in_turn.log_density(y)).max() < 1e-9
    at_once.save(tmp_path / "c.npz")
    again = tgp.load(tmp_path / "c.npz")
    assert (again.log_density(y) == at_once.log_density(y)).all()
    assert again.settings["given"] == {"0": 4.0, "2": 6.0}


@pytest.mark.parametrize(
    "walls", [("open", "period", "wall"), ("wall", "wall", "open"), ("wall", "wall_below", "wall")]
)
@pytest.mark.parametrize("fixed", [[1], [0, 2], [2]])
def test_lattices_are_restricted(walls, fixed):
    rng = np.random.default_rng(0)
    features = LatticeFeatures([3.0, 4.0, 5.0], (3, 4, 2), [-1.0, -2.0, 0.0], walls=walls)
    shape = features.grid_shape()
    theta = features.from_grid(rng.normal(size=shape)) / math.prod(shape)
    tilt = LatticeTilt(features, theta)
    u = rng.uniform([-0.9, -1.9, 0.1], [1.9, 1.9, 4.9], (9, 3))
    u[:, fixed] = u[0, fixed]
    free = [k for k in range(3) if k not in fixed]
    restricted = restrict_tilt(tilt, fixed, u[0, fixed])
    there = restricted.value(np.ascontiguousarray(u[:, free]), Threads())
    assert np.abs(there - tilt.value(u, Threads())).max() < 1e-6 * max(tilt.bound, 1.0)


# -- tables ----------------------------------------------------------------------------------------


def test_a_table_of_a_gaussian():
    """Mean, deviation and quantiles of y given x are those of regression."""
    C = np.array([[2.0, 1.2], [1.2, 1.5]])
    model = of_base(tgp.GaussianBase([1.0, -1.0], C), ["x", "y"])
    x = np.linspace(-4.0, 6.0, 30)
    table = model.conditional(pd.DataFrame({"x": x}))
    mean, deviation = -1.0 + 0.6 * (x - 1.0), math.sqrt(1.5 - 1.2 * 0.6)
    assert table.column == "y"
    assert np.abs(table.mean - mean).max() < 1e-9
    assert np.abs(table.standard_deviation - deviation).max() < 1e-9
    truth = mean[:, None] + deviation * np.array([-1.6448536269514722, 1.6448536269514722])
    assert np.abs(table.band(0.9) - truth).max() < 1e-5
    assert np.abs(table.median() - mean).max() < 1e-5


@pytest.mark.parametrize("heavy", [False, True])
def test_a_table_agrees_with_single_conditionals(heavy):
    base = tgp.StudentBase(np.zeros(3), covariance(3), 4.0) if heavy else mixture(3)
    model = tilted(3, base)
    values = {0: [3.0, 6.0], 2: [5.0, 9.0]}
    table = model.conditional(values)
    for row in range(2):
        one = model.conditional({0: values[0][row], 2: values[2][row]})
        q = [0.05, 0.5, 0.8]
        unit = table.standard_deviation[row]
        assert np.abs(one.quantile(q) - table.quantile(q)[row]).max() < 1e-4 * unit
        mean = one.expectation(lambda y: y[:, 0])
        assert abs(mean - table.mean[row]) < (1e-3 if heavy else 1e-6) * unit


def test_impossible_and_bad_values_are_named():
    model = of_base(tgp.GaussianBase(np.zeros(3), np.eye(3)), ["a", "b", "c"])
    flat = of_base(UniformBase([0.0, 0.0], [1.0, 1.0]))
    cases = [
        (lambda: model.conditional({"z": 1.0}), ValueError, "'z'.*no such column"),
        (lambda: model.conditional({}), ValueError, "0 of 3 columns"),
        (lambda: model.conditional({"a": 1, "b": 1, "c": 1}), ValueError, "3 of 3 columns"),
        (lambda: model.conditional({"a": 1, 0: 1}), ValueError, "given twice"),
        (lambda: model.conditional({"a": float("inf")}), ValueError, "finite"),
        (lambda: model.conditional({"a": "one"}), TypeError, "'one'"),
        (lambda: model.conditional(3.0), TypeError, "mapping"),
        (lambda: model.conditional({"a": 1e200}), ValueError, r"zero with column 0 \('a'\) at 1e"),
        (lambda: flat.conditional({1: 2.0}), ValueError, "zero with column 1 at 2"),
        (lambda: model.conditional({"a": [1.0, 2.0]}), ValueError, "all 3 columns"),
        (lambda: model.conditional({"a": [1.0, 2.0], "b": [1.0] * 3}), ValueError, "lengths"),
        (lambda: flat.conditional({1: [0.5, 2.0]}), ValueError, "row 1 of given"),
        (lambda: flat.conditional({1: [0.5]}).band(1.5), ValueError, "level=1.5"),
    ]
    for ask, kind, text in cases:
        with pytest.raises(kind, match=text):
            ask()
