"""Conditionals and marginals of bases: their product is the base."""

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast.bases.base import RescaledBase
from tgpfast.bases.bounded import BoundedMixtureBase, UniformBase
from tgpfast.bases.conditioning import condition_base, marginal_base
from tgpfast.bases.product import ProductBase
from tgpfast.data.scaling import Scaling

ROOTS = np.random.default_rng(0).normal(size=(3, 3, 3))
COVARIANCES = ROOTS @ ROOTS.transpose(0, 2, 1) + np.eye(3)
MEANS = np.random.default_rng(1).normal(size=(3, 3))
GAUSSIAN = tgp.GaussianBase(MEANS[0], COVARIANCES[0])
BOUNDED = BoundedMixtureBase(
    [0.4, 0.6], [[1.0, 0.5], [2.0, 0.2]], [np.diag([0.5, 0.02]), np.diag([0.3, 0.03])],
    [0.0, 0.0], [np.inf, 1.0], [False, True],
)  # fmt: skip
BASES = {
    "gaussian": (GAUSSIAN, [1], [0.3]),
    "mixture": (tgp.MixtureBase([0.2, 0.3, 0.5], MEANS, COVARIANCES), [0, 2], [0.3, -1.0]),
    "student": (tgp.StudentBase(MEANS[0], COVARIANCES[0], 2.5), [0, 2], [0.3, -1.0]),
    "uniform": (UniformBase([0.0, 1.0], [2.0, 4.0]), [1], [2.0]),
    "periodic": (BOUNDED, [1], [1.3]),
    "wall": (BOUNDED, [0], [0.7]),
    "product": (ProductBase([GAUSSIAN, BOUNDED]), [1, 3], [0.3, 0.7]),
    "whole factor": (ProductBase([GAUSSIAN, BOUNDED]), [3, 4], [0.7, 0.4]),
    "rescaled": (RescaledBase(GAUSSIAN, Scaling(np.ones(3), np.full(3, 2.0))), [0], [0.4]),
}


@pytest.mark.parametrize("name", BASES)
def test_conditional_times_marginal_is_the_base(name):
    base, given, values = BASES[name]
    conditional = condition_base(base, given, np.array(values))
    free = [k for k in range(base.dimension) if k not in given]
    y = conditional.sample(6, seed=0)
    rows = np.empty((6, base.dimension))
    rows[:, free], rows[:, given] = y, values
    gap = base.log_density_at(rows) - conditional.log_density_at(y)
    assert np.ptp(gap) < 1e-12
    margin = marginal_base(base, given)
    if margin is not None:
        assert np.abs(gap - margin.log_density_at(np.array([values]))).max() < 1e-12


def test_margins_cut_off_by_walls_are_not_known():
    assert marginal_base(BOUNDED, [1]) is None
    assert marginal_base(BOUNDED, [0]) is not None


def test_components_far_from_the_values_are_left_out():
    base = tgp.MixtureBase([0.5, 0.5], [[0.0, 0.0], [90.0, 1.0]], [np.eye(2)] * 2)
    assert condition_base(base, [0], np.array([0.0])).n_components == 1


def test_an_unknown_base_says_what_to_do():
    class Logistic(tgp.Base):
        mean, covariance = np.zeros(2), np.eye(2)
        log_density_at = score_at = draw = None

    base = Logistic.__new__(Logistic)
    assert marginal_base(base, [0]) is None
    with pytest.raises(TypeError, match=r"Logistic are not known.*register"):
        condition_base(base, [0], np.zeros(1))
