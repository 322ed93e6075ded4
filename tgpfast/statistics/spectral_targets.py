"""The frequencies at which the spectral engine needs F, and the sums that it collects there.

With F(w) = sum_i w_i e^{i w . x_i} and f = z / gamma, the Gram matrices are made of F(f_s - f_t)
and F(f_s + f_t), and the sums of phi and phi' of F(f_s).
"""

from __future__ import annotations

import numpy as np

from ..features.random import Features
from ..validation import Array
from .transforms import Complex


def bandwidths_of(features: Features, noise_levels: Array) -> list[float]:
    """gamma, and gamma_sigma = sqrt(gamma^2 + sigma^2) of every noise level above zero."""
    gamma = features.bandwidth
    return [gamma, *(float(np.hypot(gamma, s)) for s in noise_levels if s > 0.0)]


class Targets:
    """Frequencies at which F is needed, as one array for each axis.

    For every bandwidth: f_s, then f_s - f_t (s < t), then f_s + f_t (s <= t). F at the negative of
    a frequency is the complex conjugate.

    Parameters
    ----------
    features : Features
    bandwidths : list of float
    """

    def __init__(self, features: Features, bandwidths: list[float]) -> None:
        z, S = features.frequencies, features.n_features
        self.n_features, self.bandwidths = S, bandwidths
        pairs = S * (S - 1) // 2
        self.level_size = S + pairs + pairs + S
        self.axes = [np.empty(len(bandwidths) * self.level_size) for _ in range(z.shape[1])]
        for k, axis in enumerate(self.axes):
            unit = axis[: self.level_size]
            unit[:S] = z[:, k]
            at = S
            for s in range(S - 1):
                unit[at : at + S - 1 - s] = z[s, k] - z[s + 1 :, k]
                at += S - 1 - s
            for s in range(S):
                unit[at : at + S - s] = z[s, k] + z[s:, k]
                at += S - s
            for h, gamma in reversed(list(enumerate(bandwidths))):
                axis[h * self.level_size : (h + 1) * self.level_size] = unit / gamma
        self.reach = np.array([np.abs(axis).max() for axis in self.axes])

    def level(self, F: Complex, h: int) -> tuple[Complex, Complex, Complex]:
        """F(f_s), F of the differences and F of the sums, for bandwidth number h."""
        S, first = self.n_features, h * self.level_size
        cut = first + S + S * (S - 1) // 2
        return F[first : first + S], F[first + S : cut], F[cut : first + self.level_size]

    @staticmethod
    def memory(n_features: int, n_levels: int, d: int) -> int:
        """Bytes of the targets, of F twice, and of the transform's own copies."""
        return n_levels * n_features * (n_features + 1) * (8 * d * 2 + 16 * 2 + 8)


class FourierSums:
    """F at all targets, and the x_k-weighted F at the f_s; points are taken about ``center``.

    Attributes
    ----------
    F : (targets,) complex array
        sum_i w_i e^{i w . y_i}.
    G : (d, bandwidths * S) complex array
        sum_i w_i y_ik e^{i f_s . y_i}.
    weight : float
        F(0), the sum of the weights.
    base : (bandwidths * S, d) array
        The f_s of every bandwidth.
    """

    def __init__(self, features: Features, bandwidths: list[float], center: Array) -> None:
        self.features, self.bandwidths, self.center = features, bandwidths, center
        self.targets = Targets(features, bandwidths)
        self.base = np.concatenate([features.frequencies / gamma for gamma in bandwidths])
        self.F = np.zeros(len(self.targets.axes[0]), np.complex128)
        self.G = np.zeros((features.dimension, len(self.base)), np.complex128)
        self.weight = 0.0

    def at_base(self, F: Complex) -> Complex:
        """F at the f_s of every bandwidth, taken from F at all targets."""
        size, S = self.targets.level_size, self.features.n_features
        levels = range(len(self.bandwidths))
        return np.concatenate([F[h * size : h * size + S] for h in levels])
