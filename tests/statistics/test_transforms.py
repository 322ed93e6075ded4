"""Fourier sums of points, by a transform and term by term."""

import numpy as np
import pytest

from tgpfast import kernels
from tgpfast.statistics import transforms

EPS = np.finfo(np.float64).eps


def test_sums_of_waves_term_by_term():
    rng = np.random.default_rng(0)
    y, f, w = rng.standard_normal((9000, 2)), rng.standard_normal((5, 2)), rng.uniform(0, 3, 9000)
    for weights in (None, w):
        total = np.ones(9000) if weights is None else weights
        got = transforms.sum_waves(f, y, weights, kernels.load("numpy"), 1)
        want = total @ np.exp(1j * y @ f.T)
        assert np.abs(got - want).max() < 6 * np.sqrt(9000) * EPS * total.sum()


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_transform_is_the_sum_of_its_terms(d):
    """To the error that is asked for, relative to the sum of the strengths."""
    pytest.importorskip("finufft")
    rng = np.random.default_rng(d)
    y, f = rng.standard_normal((500, d)), rng.standard_normal((70, d))
    strengths = rng.uniform(0, 1, 500) + 0j
    got = transforms.transform(
        list(y.T.copy()), strengths, list(f.T.copy()), transforms.eps_for(1e-6), 1
    )
    want = strengths @ np.exp(1j * y @ f.T)
    assert np.abs(got - want).max() <= 1e-6 * strengths.real.sum()
    rough = transforms.transform(
        list(y.T.copy()), strengths, list(f.T.copy()), 1e-2, 1
    )
    assert np.abs(rough - want).max() > np.abs(got - want).max()  # control: the error is obeyed
