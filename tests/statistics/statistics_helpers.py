"""What tests of the engines share: features, statistics from the oracle, and wrong ones."""

import numpy as np
import oracle
import pytest
from conftest import assert_statistics

import tgpfast as tgp


def make_features(S, d, seed=0, gamma=0.7):
    rng = np.random.default_rng(seed)
    return tgp.Features(rng.standard_normal((S, d)), rng.uniform(0, 2 * np.pi, S), gamma)


def expected(x, features, levels=(), weights=None, origin=None):
    """Every field, from the oracle."""
    z, c, gamma = features.frequencies, features.phases, features.bandwidth
    values = dict(oracle.statistics(x, z, c, gamma, weights, origin))
    values["gram_phi"] = oracle.gram_phi(x, z, c, gamma, weights)
    if len(levels):
        values["noise_gram"] = oracle.noise_gram(x, z, c, gamma, levels, weights)
        values["noise_sum_phi"] = oracle.noise_sum_phi(x, z, c, gamma, levels, weights)
        values["noise_sum_dphi"] = oracle.noise_sum_dphi(x, z, c, gamma, levels, weights)
        values["noise_sum_dphi_x"] = oracle.noise_sum_dphi_x(
            x, z, c, gamma, levels, weights, origin
        )
    return values


def assert_only_right_fields_pass(stats, x, features, bound):
    """The statistics of x with a noise level of 0.3 pass; a lost row, weight, origin or level does
    not."""
    assert_statistics(stats, expected(x, features, (0.3,)), bound)
    for wrong in (
        expected(x[1:], features, (0.3,)),
        expected(x, features, (0.3,), weights=np.append(np.ones(len(x) - 1), 1.0 + 1e-9)),
        expected(x, features, (0.3,), origin=np.full(x.shape[1], 1e-9)),
        expected(x, features, (0.3 + 1e-9,)),
    ):
        with pytest.raises(AssertionError):
            assert_statistics(stats, wrong, bound)
