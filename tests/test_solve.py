"""The FD system that the pilot of precision="auto" is judged by."""

import numpy as np
import oracle
import pytest

import tgpfast as tgp
from tgpfast.solve import fd_system, fd_theta


@pytest.mark.parametrize("origin", [None, [0.2, -0.4, 1.0]])
@pytest.mark.parametrize("weighted", [False, True])
def test_theta_equals_the_oracle(origin, weighted):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 3)) + 0.5
    w = rng.uniform(0.5, 1.5, 400) if weighted else None
    base = tgp.GaussianBase([0.3, 0.1, -0.2], [[1.2, 0.3, 0.0], [0.3, 0.9, 0.1], [0.0, 0.1, 1.5]])
    f = tgp.Features.draw(25, 0.9, np.eye(3), seed=2)
    stats = tgp.accumulate(x, f, sample_weight=w, origin=origin, precision="float64")
    theta = fd_theta(stats, base, lam=0.5)
    args = (f.frequencies, f.phases, f.bandwidth, 0.5, base.mean, base.covariance)
    want = oracle.theta_fd(x, *args, weights=w)
    system, _ = fd_system(stats, base)
    condition = np.linalg.cond(system + 0.5 * f.bandwidth**2 * np.eye(25))
    assert np.abs(theta - want).max() <= 1e-14 * condition * np.abs(want).max()
