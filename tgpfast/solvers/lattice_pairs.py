"""Products of the features of a lattice: dense matrices from one transform.

A wave times the conjugate of another is a wave, and two cosines are two cosines of the doubled
lattice. So the matrix of all products, summed over rows or integrated over a grid, has few numbers
that differ: it is Toeplitz along axes of waves, and Toeplitz plus Hankel along those of cosines.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from ..features.lattice import LatticeFeatures
from ..features.lattice_transform import Modes
from ..statistics.lattice_statistics import doubled


class FeaturePairs:
    """Products of two features of a lattice, with the modes of both signs in one list."""

    def __init__(self, f: LatticeFeatures) -> None:
        self.features = f
        self._numbers = [
            np.arange(m + 1) if c else np.fft.fftfreq(2 * m + 1, 1.0 / (2 * m + 1)).astype(int)
            for m, c in zip(f.n_modes, f.cosine, strict=True)
        ]
        self._shape = tuple(len(k) for k in self._numbers)
        self._k = [part.ravel() for part in np.meshgrid(*self._numbers, indexing="ij")]

    def to_vector(self, stored: Modes) -> Modes:
        """All modes of a real function, (S,)."""
        return all_signs(stored, self.features).ravel()

    def from_vector(self, vector: Modes) -> Modes:
        """The modes that are stored, of all of them."""
        return vector.reshape(self._shape)[tuple(slice(0, n) for n in self.features.mode_shape)]

    def sum_products(self, sums: Modes, sine: int | None = None) -> Modes:
        """sum of conj(phi_k) phi_l, (S, S), from the sums of the waves of the doubled lattice.

        sine : the wall axis along which both are sines, if there is one
        """
        full = all_signs(sums, doubled(self.features))
        return np.asarray(sum(sign * full[places] for places, sign in self._places(sine)))

    def sum_slope_products(self, sums: Modes) -> Modes:
        """sum of conj(grad phi_k) . grad phi_l, (S, S)."""
        sines = [axis if c else None for axis, c in enumerate(self.features.cosine)]
        parts = zip(self._k, self.features.frequency_steps, sines, strict=True)
        return np.asarray(
            sum(step**2 * np.outer(k, k) * self.sum_products(sums, sine) for k, step, sine in parts)
        )

    def quadratic_form(self, matrix: Modes) -> Modes:
        """Stored modes, on the doubled lattice, of the function sum_kl phi_k matrix_kl conj(phi_l).
        """
        wide = doubled(self.features)
        full = np.zeros(all_signs(np.zeros(wide.mode_shape), wide).shape, matrix.dtype)
        for places, sign in self._places(None):
            np.add.at(full, places, sign * matrix)
        return full[tuple(slice(0, n) for n in wide.mode_shape)]

    @functools.cache  # noqa: B019 - pairs live as long as one solve
    def _places(self, sine: int | None) -> list[tuple[tuple[Any, ...], float]]:
        """Pairs (indices of every product among the modes of the doubled lattice, factor): a wave
        times a conjugate is one wave, two cosines or sines are two cosines."""
        choices: list[list[tuple[Any, float]]] = []
        for axis, k in enumerate(self._k):
            difference = k[:, None] - k
            if not self.features.cosine[axis]:
                choices.append([(difference, 1.0)])
                continue
            second = -0.5 if axis == sine else 0.5
            choices.append([(np.abs(difference), 0.5), (k[:, None] + k, second)])
        return [
            (tuple(place for place, _ in choice), float(np.prod([sign for _, sign in choice])))
            for choice in itertools.product(*choices)
        ]


def all_signs(stored: Modes, f: LatticeFeatures) -> Modes:
    """Modes of both signs along every wave axis, in FFT order."""
    axes = [axis for axis, is_cosine in enumerate(f.cosine) if not is_cosine]
    if not axes:
        return stored
    other = stored
    for axis in axes[:-1]:
        other = np.roll(np.flip(other, axis), 1, axis)  # k -> -k
    half = axes[-1]
    other = np.delete(other, 0, half)
    return np.concatenate([stored, np.conj(np.flip(other, half))], axis=half)

