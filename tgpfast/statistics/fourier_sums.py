"""The Fourier sums that the spectral engine collects, and the `Statistics` made of them.

With F(w) = sum_i w_i e^{i w . x_i}, E_s = e^{i c_s} and f = z / gamma, since
sin a sin b = (cos(a - b) - cos(a + b)) / 2,

    Phi'_st = Re[E_s conj(E_t) F(f_s - f_t) - E_s E_t F(f_s + f_t)] / S

and Phi with a plus sign. The sums of phi and phi' are F at the f_s; those of phi' x its gradient.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..features.delta_weights import add_noise_level
from ..features.random import Features
from ..validation import Array
from .moment_sums import MomentSums
from .spread_grid import SpreadGrid
from .statistics import LevelSums, Statistics, make_statistics
from .transforms import Complex


def bandwidths_of(features: Features, noise_levels: Array) -> list[float]:
    """gamma, and gamma_sigma = sqrt(gamma^2 + sigma^2) of every noise level above zero."""
    gamma = features.bandwidth
    return [gamma, *(float(np.hypot(gamma, s)) for s in noise_levels if s > 0.0)]


def target_memory(n_features: int, n_levels: int, d: int) -> int:
    """Bytes of the frequencies at which F is needed, of F twice, and of the transform's copies."""
    return n_levels * n_features * (n_features + 1) * (8 * d * 2 + 16 * 2 + 8)


class FourierSums:
    """F at all frequencies that statistics need; points are taken about ``center``.

    For every bandwidth these are f_s, then f_s - f_t (s < t), then f_s + f_t (s <= t). F at the
    negative of a frequency is the complex conjugate.

    Parameters
    ----------
    features : Features
    bandwidths : list of float
    center : (d,) array

    Attributes
    ----------
    axes : list of array
        The frequencies, one array for each axis.
    F : (targets,) complex array
        sum_i w_i e^{i w . y_i}.
    G : (d, bandwidths * S) complex array
        sum_i w_i y_ik e^{i f_s . y_i}.
    weight : float
        F(0), the sum of the weights.
    """

    def __init__(self, features: Features, bandwidths: list[float], center: Array) -> None:
        self.features, self.bandwidths, self.center = features, bandwidths, center
        S = features.n_features
        self.level_size = S * (S + 1)
        self.axes = []
        for z in features.frequencies.T:
            differences = [z[s] - z[s + 1 :] for s in range(S)]
            unit = np.concatenate([z, *differences, *(z[s] + z[s:] for s in range(S))])
            self.axes.append(np.concatenate([unit / gamma for gamma in bandwidths]))

    def read(
        self, place: SpreadGrid, grid: Array, n_threads: int, *, weight: float,
        scale: Array | float = 1.0, factor: float = 1.0,
    ) -> FourierSums:  # fmt: skip
        """Read F and G off a grid of points, whose weights have the sum ``weight``; positions are
        divided by ``scale``, and weights multiplied by ``factor``."""
        scales = np.broadcast_to(scale, self.features.dimension)
        axes = [axis / s for axis, s in zip(self.axes, scales, strict=True)]
        levels = self.level_size * np.arange(len(self.bandwidths))[:, None]
        base = (levels + np.arange(self.features.n_features)).ravel()
        self.F, self.G = place.sums(grid, axes, base, n_threads)
        self.F *= factor
        self.G *= factor / scales[:, None]
        self.weight = factor * weight
        return self

    def level(self, h: int) -> tuple[Complex, Complex, Complex]:
        """F(f_s), F of the differences and F of the sums, for bandwidth number h."""
        S, first = self.features.n_features, h * self.level_size
        cut = first + S + S * (S - 1) // 2
        return (
            self.F[first : first + S], self.F[first + S : cut],
            self.F[cut : first + self.level_size],
        )  # fmt: skip


def statistics_from_fourier_sums(
    sums: FourierSums, moments: MomentSums, noise_levels: Array, gram_phi: bool,
    provenance: dict[str, Any],
) -> Statistics:  # fmt: skip
    """The statistics whose sums over features are in ``sums``, and over rows in ``moments``.

    Raises
    ------
    ValueError
        If rows were so large that their squares or features overflow.
    """
    features, S = sums.features, sums.features.n_features
    levels = [_level_sums(sums, h, moments.origin) for h in range(len(sums.bandwidths))]
    gram, cosines = _grams(sums, 0)
    noise_gram = np.zeros((S, S) if len(noise_levels) else (0, 0))
    for h, sigma in enumerate(noise_levels[noise_levels > 0.0], 1):
        add_noise_level(features, sigma, *_grams(sums, h), noise_gram)
    return make_statistics(
        features, moments, levels, noise_levels, gram, cosines if gram_phi else None, noise_gram,
        dict(provenance),
    )  # fmt: skip


def without_moments(stats: Statistics) -> Statistics:
    """The sums over features alone: those of x and of the weights are zero."""
    d = stats.features.dimension
    return replace(
        stats, n=0.0, n_rows=0, sum_w2=0.0, sum_x=np.zeros(d), sum_xx=np.zeros((d, d))
    )


def _phase_factors(sums: FourierSums, h: int) -> Any:
    """E_s for rows that are taken about the center, (S,) complex."""
    features, gamma = sums.features, sums.bandwidths[h]
    return np.exp(1j * (features.phases + features.frequencies @ sums.center / gamma))


def _level_sums(sums: FourierSums, h: int, origin: Array) -> LevelSums:
    S = sums.features.n_features
    amplitude, E = np.sqrt(2.0 / S), _phase_factors(sums, h)
    base = E * sums.level(h)[0]
    weighted = E * sums.G[:, h * S : (h + 1) * S]
    total = -amplitude * base.imag
    about_origin = -amplitude * weighted.imag.T + np.outer(total, sums.center - origin)
    return amplitude * base.real, total, about_origin


def _grams(sums: FourierSums, h: int) -> tuple[Array, Array]:
    """Phi' and Phi, row by row, from Re[E_s conj(E_t) F(f_s - f_t)] and Re[E_s E_t F(f_s + f_t)]
    for t = s .. S - 1."""
    E = _phase_factors(sums, h)
    _, differences, totals = sums.level(h)
    S, at, to = sums.features.n_features, 0, 0
    gram, gram_phi = np.empty((2, S, S))
    minus = np.empty(S)
    for s in range(S):
        count = S - s
        minus[0] = sums.weight  # F(0)
        minus[1:count] = (E[s] * np.conj(E[s + 1 :]) * differences[at : at + count - 1]).real
        plus = (E[s] * E[s:] * totals[to : to + count]).real
        gram[s, s:] = gram[s:, s] = (minus[:count] - plus) / S
        gram_phi[s, s:] = gram_phi[s:, s] = (minus[:count] + plus) / S
        at += count - 1
        to += count
    return gram, gram_phi
