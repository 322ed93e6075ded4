"""Scrambled Sobol points against those of scipy: other code, the same published table."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import qmc

from tgpfast.bases import quasirandom


def place(directions):
    """The points of these direction numbers, without a shift."""
    points = np.zeros((1, directions.shape[1]), np.uint64)
    for direction in directions:
        points = np.concatenate([points, points ^ direction])
    return points * 2.0**-quasirandom.SOBOL_BITS


def ordered(points):
    return np.array(sorted(map(tuple, points)))


@pytest.mark.parametrize("d", [1, 2, 3, 12, quasirandom.MOST_TABLED])
@pytest.mark.parametrize("log2_n", [0, 1, 6, 11])
def test_directions_give_the_points_of_scipy(d, log2_n):
    got = place(quasirandom.sobol_directions(d, log2_n))
    want = qmc.Sobol(d, scramble=False).random_base2(log2_n)
    np.testing.assert_array_equal(ordered(got), ordered(want))
    if log2_n > 1:  # negative control
        wrong = quasirandom.sobol_directions(d, log2_n)
        wrong[0] ^= np.uint64(1 << (quasirandom.SOBOL_BITS - 1 - log2_n))
        assert not np.array_equal(ordered(place(wrong)), ordered(want))


@pytest.mark.parametrize("d", [1, 5, quasirandom.MOST_TABLED, quasirandom.MOST_TABLED + 1])
def test_points_are_inside_and_in_every_cell_of_every_axis(d):
    points = quasirandom.sobol_uniforms(d, 8, 3)
    assert points.shape == (256, d)
    margin = quasirandom.SOBOL_MARGIN
    assert (points >= margin).all()
    assert (points <= 1.0 - margin).all()
    assert np.isfinite(quasirandom.to_normals(np.array([margin, 1.0 - margin]))).all()
    cells = np.sort(np.floor(points * 256), axis=0)
    np.testing.assert_array_equal(cells, np.tile(np.arange(256)[:, None], d))


def test_each_seed_scrambles_anew_and_means_are_unbiased():
    def mean(seed):
        return np.exp(quasirandom.sobol_uniforms(4, 6, seed).sum(axis=1)).mean()

    means = np.array([mean(seed) for seed in range(200)])
    assert len(np.unique(means)) == 200
    assert mean(7) == means[7]
    exact = (np.e - 1.0) ** 4
    assert abs(means.mean() - exact) < 4.0 * means.std() / np.sqrt(200)
    independent = np.sqrt((((np.e**2 - 1.0) / 2.0) ** 4 - exact**2) / 64)
    assert means.std() < 0.2 * independent


@pytest.mark.slow
def test_points_do_not_import_scipy_stats():
    """Up to the tabled number of columns; more need scipy.stats."""
    code = f"""
import sys
from tgpfast.bases.quasirandom import sobol_uniforms
sobol_uniforms({quasirandom.MOST_TABLED}, 3, 0)
assert "scipy.stats" not in sys.modules
sobol_uniforms({quasirandom.MOST_TABLED + 1}, 3, 0)
assert "scipy.stats" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
