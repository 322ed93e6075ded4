"""Delta^- and Delta^+ of the paper, which weight products of features under Gaussian noise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..validation import Array
from .random import Features

DELTA_ROWS = 256  # rows of the weights that are held at a time: 2 MB for 1,000 features


def delta_weights(u: Array) -> Iterator[tuple[slice, Array, Array]]:
    """Yield which rows s, and Delta^-+ = exp(-|u_s -+ u_t|^2 / 2) of these s and all t.

    Parameters
    ----------
    u : (S, d) array

    References
    ----------
    Eqs. del2 and del3 of the paper.

    Examples
    --------
    >>> import numpy as np
    >>> [(rows, minus, plus)] = delta_weights(np.array([[0.0], [1.0]]))
    >>> minus.round(3).tolist()
    [[1.0, 0.607], [0.607, 1.0]]
    """
    half = 0.5 * np.einsum("sk,sk->s", u, u)
    for start in range(0, len(u), DELTA_ROWS):
        rows = slice(start, start + DELTA_ROWS)
        inner, level = u[rows] @ u.T, half[rows, None] + half
        minus = np.exp(np.minimum(inner - level, 0.0))  # rounding may leave more than 0
        yield rows, minus, np.exp(np.minimum(-inner - level, 0.0))


def add_noise_level(
    features: Features, sigma: float, gram: Array, gram_phi: Array, noise_gram: Array
) -> None:
    """Add one noise level to the matrix A of Algorithm 3, without its factor ZZ^T::

        noise_gram += [(Delta^- + Delta^+) * Phi' + (Delta^- - Delta^+) * Phi] / (2 gamma_sigma^2)

    Parameters
    ----------
    features : Features
    sigma : float
        Standard deviation of the noise.
    gram, gram_phi : (S, S) array
        Phi' and Phi of the features with the bandwidth gamma_sigma = sqrt(gamma^2 + sigma^2).
    noise_gram : (S, S) array
    """
    gamma = float(np.hypot(features.bandwidth, sigma))
    for rows, minus, plus in delta_weights(features.frequencies * (sigma / gamma)):
        level = (minus + plus) * gram[rows] + (minus - plus) * gram_phi[rows]
        noise_gram[rows] += level / (2.0 * gamma**2)
