"""Sums of strengths times the waves of a lattice over points: a type-1 non-uniform FFT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ..features.lattice import LatticeFeatures
from ..features.lattice_transform import Modes
from ..validation import Array
from .transforms import (
    SERIAL_SIZE,
    UPSAMPLING,
    Complex,
    eps_for,
    has_finufft,
    quiet_finufft,
)

EXACT_NUMBERS = 2**22  # complex numbers of a block of waves where the sums are exact: 64 MB
# Rows times modes of one axis up to which exact sums take about as long as a transform, 1 ms or
# less. Without the import of finufft, and its first plan, a first fit takes 10 ms less.
SHORT_NUMBERS = 2**18


def required_memory(features: LatticeFeatures) -> int:
    """Bytes of a transform: its upsampled grid and its result."""
    sizes = [4 * m + 2 if c else 2 * m + 1
             for m, c in zip(features.n_modes, features.cosine, strict=True)]  # fmt: skip
    nodes = math.prod(float(n) for n in sizes)
    return int(min(16 * nodes * (UPSAMPLING**features.dimension + 1.0), 2.0**62))


class WaveSums:
    """sum_i strengths_i e^{-i w_k . (x_i - origin)}, cosines along wall axes, for all modes.

    By finufft where that is installed, else exactly, term by term. Few modes of one axis at few
    points are summed exactly in any case.

    Parameters
    ----------
    features : LatticeFeatures
    tolerance : float
        Largest error of a sum over the sum of absolute strengths.
    n_threads : int
    """

    def __init__(self, features: LatticeFeatures, tolerance: float, n_threads: int) -> None:
        self.features, self.n_threads = features, n_threads
        self._sizes = [2 * m + 1 for m in features.n_modes]
        self._eps = eps_for(tolerance)
        self._is_fast = has_finufft()
        self._plans: dict[tuple[int, int], Any] = {}

    @property
    def n_nodes(self) -> int:
        """Nodes of the transform's grid."""
        return int(math.prod(self._sizes) * UPSAMPLING**self.features.dimension)

    def sums(
        self, x: Array, strengths: Array, sines: Sequence[int | None] | None = None
    ) -> Modes:
        """The sums over points.

        Parameters
        ----------
        x : (n, d) array
            The points.
        strengths : (t, n) array
            Sets of strengths.
        sines : list of int or None, default None
            For each set of strengths, the wall axis along which sines take the place of cosines.

        Returns
        -------
        (t, mode shape) array
        """
        steps = self.features.frequency_steps
        phases = [
            (x[:, axis] - self.features.origin[axis]) * steps[axis] for axis in range(x.shape[1])
        ]
        idle = np.flatnonzero(~strengths.any(axis=0))
        for phase in phases:
            phase[idle] = 0.0  # far rows, which do not count, have angles that lose all digits
        full = self._sum(phases, strengths)
        axes = sines or [None] * len(strengths)
        return np.stack([self._stored(part, axis) for part, axis in zip(full, axes, strict=True)])

    def _sum(self, phases: list[Array], strengths: Array) -> Complex:
        if len(phases) == 1:
            m = self.features.n_modes[0]
            if not self._is_fast or strengths.size * m <= SHORT_NUMBERS:
                return _sum_one_axis(phases[0], strengths, m)
        elif not self._is_fast:
            return self._exact(phases, strengths)
        return self._transform(phases, strengths)

    def _transform(self, phases: list[Array], strengths: Array) -> Complex:
        n_threads = 1 if strengths.size < SERIAL_SIZE else self.n_threads
        with quiet_finufft() as finufft:
            plan = self._plan(finufft, len(strengths), n_threads)
            plan.setpts(*phases)
            full: Complex = plan.execute(strengths.astype(np.complex128, order="C"))
        return full.reshape(len(strengths), *self._sizes)

    def _plan(self, finufft: ModuleType, n_sets: int, n_threads: int) -> Any:
        key = (n_sets, n_threads)
        if key not in self._plans:
            self._plans[key] = finufft.Plan(
                1, tuple(self._sizes), n_sets, self._eps, -1, nthreads=n_threads, modeord=1,
                upsampfac=UPSAMPLING, showwarn=0,
            )  # fmt: skip
        return self._plans[key]

    def _exact(self, phases: list[Array], strengths: Array) -> Complex:
        total = np.zeros((len(strengths), math.prod(self._sizes)), np.complex128)
        rest = math.prod(self._sizes[1:])
        rows = max(1, EXACT_NUMBERS // (rest + len(strengths) * self._sizes[0]))
        numbers = [np.fft.fftfreq(n, 1.0 / n) for n in self._sizes]
        for start in range(0, strengths.shape[1], rows):
            part = slice(start, start + rows)
            first, *others = [
                np.exp(-1j * np.outer(phase[part], k))
                for phase, k in zip(phases, numbers, strict=True)
            ]
            waves = np.ones((len(first), 1))
            for other in others:
                waves = (waves[:, :, None] * other[:, None, :]).reshape(len(first), -1)
            for t, strength in enumerate(strengths):
                total[t] += ((first * strength[part, None]).T @ waves).ravel()
        return total.reshape(len(strengths), *self._sizes)

    def _stored(self, full: Complex, sine: int | None) -> Modes:
        """Sums of cosines, or sines, along wall axes; half of the rest."""
        for axis, is_cosine in enumerate(self.features.cosine):
            if is_cosine:
                k = np.arange(self.features.n_modes[axis] + 1)
                up, down = np.take(full, k, axis), np.take(full, -k, axis)
                full = 0.5j * (up - down) if axis == sine else 0.5 * (up + down)
        half = full[tuple(slice(0, n) for n in self.features.mode_shape)]
        return half.real if all(self.features.cosine) else half


def _sum_one_axis(phase: Array, strengths: Array, m: int) -> Complex:
    """sum_i strengths_i e^{-i k phase_i} for k = 0 .. m, -m .. -1, exactly, (t, 2 m + 1).

    With k = a B + b, B about sqrt(m), the sums are a product of two matrices, of about sqrt(m)
    waves each.
    """
    width = math.isqrt(m) + 1
    steps = np.arange(width), width * np.arange(m // width + 1)
    total = np.zeros((len(strengths), len(steps[1]), width), np.complex128)
    rows = max(1, EXACT_NUMBERS // (2 * width))
    for start in range(0, len(phase), rows):
        part = slice(start, start + rows)
        fine, coarse = (np.exp(-1j * np.outer(phase[part], k)) for k in steps)
        for t, strength in enumerate(strengths):
            total[t] += (coarse * strength[part, None]).T @ fine
    half: Complex = total.reshape(len(strengths), -1)[:, : m + 1]
    return np.concatenate([half, half[:, :0:-1].conj()], axis=1)
