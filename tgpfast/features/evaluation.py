"""Features at rows: the one place that turns rows into blocks of phi and phi'.

With a_si = z_s . x_i / gamma + c_s, for S features and n rows,

    phi[s, i] = sqrt(2/S) cos(a_si),    phi'[s, i] = -sqrt(2/S) sin(a_si).

The compiled kernels do the work; `kernels._numpy.feature_block` states what they compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .. import kernels
from ..kernels import read_only
from ..kernels.thread_choice import COSINE_WORK, Threads
from ..validation import Array
from .random import Features

FEATURE_BLOCK_ROWS = 2_048  # rows of an (S, rows) block: 16 MB for 1,000 features
NO_WEIGHTS = np.zeros(0)  # what the kernels take for rows of weight 1
NO_WEIGHTS.flags.writeable = False


class Angles(NamedTuple):
    """What the kernels take of features: angles are frequencies . (x - origin) + phases.

    Angles about a point near the data keep their digits where the data are far from zero.

    Attributes
    ----------
    origin : (d,) array
    frequencies : (S, d) array
        z / gamma.
    phases : (S,) array
        c + z . origin / gamma.
    amplitude : float
        sqrt(2/S).
    """

    origin: Array
    frequencies: Array
    phases: Array
    amplitude: float

    @classmethod
    def of(
        cls, features: Features, origin: Array | None = None, bandwidth: float | None = None
    ) -> Angles:
        """The angles of features about an origin.

        Parameters
        ----------
        features : Features
        origin : (d,) array or None, default None
            None is zero.
        bandwidth : float or None, default None
            gamma in place of the features' own.
        """
        point = np.zeros(features.dimension) if origin is None else origin
        gamma = features.bandwidth if bandwidth is None else bandwidth
        frequencies = features.frequencies / gamma
        phases = features.phases + frequencies @ point
        # a copy, which can be written: Numba compiles a kernel again for a read-only argument
        return cls(np.array(point), frequencies, phases, float(np.sqrt(2.0 / len(phases))))


def evaluate_features(
    features: Features, rows: Array, *, origin: Array | None = None, threads: Threads | None = None,
    out: tuple[Array, Array] | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """phi and phi' at rows.

    Parameters
    ----------
    features : Features
    rows : (n, d) array
    origin : (d,) array or None, default None
        Point near the rows, about which angles are taken; None is zero.
    threads : Threads or None, default None
        Backend and number of threads; None is all threads of the default backend.
    out : pair of (S, >= n) array, or None, default None
        Buffers for phi and phi'. An empty buffer for phi, of shape (0, 0), skips phi.

    Returns
    -------
    phi, dphi : (S, n) array
        Views of the buffers, where these are given.

    Examples
    --------
    >>> import numpy as np
    >>> from tgpfast.features.random import Features
    >>> features = Features(np.array([[1.0], [2.0]]), np.zeros(2), 1.0)
    >>> phi, dphi = evaluate_features(features, np.array([[0.0], [np.pi / 2]]))
    >>> phi.round(12) + 0.0
    array([[ 1.,  0.],
           [ 1., -1.]])
    """
    shape = (features.n_features, len(rows))
    phi, dphi = (np.empty(shape), np.empty(shape)) if out is None else out
    _fill(Angles.of(features, origin), rows, NO_WEIGHTS, phi, dphi, threads or Threads())
    return phi[:, : len(rows)], dphi[:, : len(rows)]


def feature_blocks(
    features: Features, rows: Array, *, origin: Array | None = None, threads: Threads | None = None,
    block_rows: int = FEATURE_BLOCK_ROWS,
) -> Iterator[tuple[slice, Array, Array]]:  # fmt: skip
    """``evaluate_features`` block by block: yields which rows, phi and phi'.

    The next block overwrites the arrays. Parameters are those of ``evaluate_features``, and
    ``block_rows``, the number of rows of a block.
    """
    size = min(block_rows, len(rows))
    buffers = np.empty((features.n_features, size)), np.empty((features.n_features, size))
    for start in range(0, len(rows), block_rows):
        part = slice(start, min(start + block_rows, len(rows)))
        yield part, *evaluate_features(
            features, rows[part], origin=origin, threads=threads, out=buffers
        )


def sum_features(
    features: Features, rows: Array, weights: Array, *, origin: Array | None = None,
    threads: Threads | None = None,
) -> Array:  # fmt: skip
    """Sum over the rows of weights_i phi(x_i), (S,).

    Parameters
    ----------
    features : Features
    rows : (n, d) array
    weights : (n,) array
        Not negative.
    origin, threads
        As for ``evaluate_features``.
    """
    angles, total = Angles.of(features, origin), np.zeros(features.n_features)
    root = read_only(np.sqrt(weights))
    dphi = np.empty((features.n_features, min(FEATURE_BLOCK_ROWS, len(rows))))
    for start in range(0, len(rows), FEATURE_BLOCK_ROWS):
        part = slice(start, start + FEATURE_BLOCK_ROWS)
        total += _fill(
            angles, rows[part], root[part], dphi[:0, :0], dphi, threads or Threads()
        )
    return total


def _fill(
    angles: Angles, rows: Array, root_weights: Array, phi: Array, dphi: Array, threads: Threads
) -> Array:
    """Run the kernel on one block; returns the weighted sum of phi."""
    S, d = angles.frequencies.shape
    sum_phi = np.zeros(S)
    module, count = threads.resolve(len(rows) * S * (COSINE_WORK + 4.0 * d))
    with kernels.threads(module, count):
        module.feature_block(
            read_only(rows), root_weights, *angles, dphi, phi, sum_phi, np.zeros(S),
            np.empty((0, d)), count,
        )  # fmt: skip
    return sum_phi
