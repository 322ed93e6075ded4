"""Marginal CDFs against sorting, for every backend."""

import numpy as np
import oracle
import pytest
from conftest import load_backend

from tgpfast.evaluation import marginal_cdfs


@pytest.mark.parametrize("name", ["numpy", "numba", "cython"])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_sorted_oracle(name, weighted):
    backend = load_backend(name).NAME
    rng = np.random.default_rng(0)
    # eighths, and directions of integers: projections and grid are exact, ties and all
    x = rng.integers(-40, 40, (3000, 3)) / 8.0
    w = rng.integers(0, 5, 3000).astype(float) if weighted else None
    directions = np.array([[1.0, 0.0, 0.0], [1.0, -2.0, 1.0], [0.0, 3.0, 1.0]])
    low, step = np.array([-4.0, -10.0, 2.0]), np.array([0.125, 0.25, 0.5])
    got = marginal_cdfs(
        x, directions, low, step, 50, sample_weight=w, backend=backend, n_threads=2
    )
    for v in range(3):
        grid = low[v] + step[v] * np.arange(50)
        assert np.allclose(got[v], oracle.marginal_cdf(x, directions[v], grid, w), rtol=1e-14)
    again = marginal_cdfs(
        iter([x[:1000], x[1000:]]) if w is None else x, directions, low, step, 50,
        sample_weight=w, backend=backend, n_threads=1,
    )  # fmt: skip
    assert np.array_equal(got, again)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"directions": np.zeros((0, 2))}, "empty"),
        ({"directions": np.eye(3), "low": np.zeros(3), "step": np.ones(3)}, "expected 3"),
        ({"low": [0.0]}, "one entry"),
        ({"step": [1.0, 0.0]}, "positive"),
        ({"n_grid": 0}, "n_grid"),
    ],
)
def test_bad_grids(options, words):
    arguments = {"directions": np.eye(2), "low": [0.0, 0.0], "step": [1.0, 1.0], "n_grid": 4}
    with pytest.raises(ValueError, match=words):
        marginal_cdfs(np.zeros((5, 2)), **(arguments | options))
