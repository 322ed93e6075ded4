"""The exponent of a density as a function of some columns, the others held at given values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...bases.conditioning import split_columns
from ...features.lattice import LatticeFeatures
from ...features.lattice_transform import Modes, half_axis
from ...features.random import Features
from ...validation import Array
from ..exponents.exponent import PointTilt, PredictiveTilt, Tilt
from ..exponents.lattice_exponent import LatticeTilt


def restrict_tilt(tilt: Tilt, fixed: Sequence[int], values: Array) -> Any:
    """The exponent in the free columns: again a sum of cosines, of waves, or a quadratic form.

    Random features keep their frequencies in the free columns, and the given part of an angle joins
    its phase. The waves of a lattice are summed over the given axes, taper included.

    Parameters
    ----------
    tilt : Tilt
    fixed : sequence of int
        Columns that are given, increasing.
    values : (a,) array
        Their values, in the model's coordinates.

    Returns
    -------
    Tilt
        Of the same class.

    Examples
    --------
    >>> features = Features([[1.0, 2.0]], [0.0], 1.0)  # sqrt(2) cos(x + 2 y)
    >>> tilt = restrict_tilt(PointTilt(features, np.ones(1), np.zeros(2)), [0], np.array([0.5]))
    >>> tilt.features.frequencies.tolist(), tilt.features.phases.tolist()
    ([[2.0]], [0.5])
    """
    if isinstance(tilt, LatticeTilt):
        return _restrict_lattice(tilt, fixed, values)
    f = tilt.features
    given, free = split_columns(f.dimension, fixed)
    phases = f.phases + f.frequencies[:, given] @ values / f.bandwidth
    restricted = Features(f.frequencies[:, free], phases, f.bandwidth, kernel=f.kernel)
    if isinstance(tilt, PredictiveTilt):
        return PredictiveTilt(restricted, tilt.factor, tilt.m, tilt.origin[free])
    return PointTilt(restricted, tilt.theta, tilt.origin[free])


def _restrict_lattice(tilt: LatticeTilt, fixed: Sequence[int], values: Array) -> LatticeTilt:
    f = tilt.features
    given, free = split_columns(f.dimension, fixed)
    modes = _all_modes(f, tilt.theta)
    for axis, value in sorted(zip(given, values, strict=True), reverse=True):
        angles = f.frequency_steps[axis] * (value - f.origin[axis]) * _numbers(f, axis)
        waves = np.cos(angles) if f.cosine[axis] else np.exp(1j * angles)
        taper = float(f.taper_along(axis, np.array([value]))[0])
        modes = np.tensordot(modes, taper * waves, axes=(axis, 0))
    restricted = replace(
        f, lengths=f.lengths[free], n_modes=tuple(f.n_modes[k] for k in free),
        origin=f.origin[free], walls=tuple(f.walls[k] for k in free),
        margin=np.asarray(f.margin)[free],
    )  # fmt: skip
    half = half_axis(restricted.cosine)
    if half is None:
        return LatticeTilt(restricted, modes.real)
    kept = np.arange(restricted.n_modes[half] + 1)
    return LatticeTilt(restricted, np.take(modes, kept, axis=half))


def _numbers(f: LatticeFeatures, axis: int) -> Array:
    """k of all modes along an axis: 0..m, and along waves also -m..-1."""
    m = f.n_modes[axis]
    positive = np.arange(m + 1.0)
    return positive if f.cosine[axis] else np.concatenate([positive, np.arange(-m, 0.0)])


def _all_modes(f: LatticeFeatures, theta: Modes) -> Modes:
    """Modes with those that are not stored: theta_-k is the conjugate of theta_k."""
    half = half_axis(f.cosine)
    if half is None:
        return theta
    mirrored = np.conj(np.take(theta, np.arange(f.n_modes[half], 0, -1), axis=half))
    for axis, is_cosine in enumerate(f.cosine):
        if axis != half and not is_cosine:  # -k of 0..m, -m..-1
            mirrored = np.take(mirrored, -np.arange(mirrored.shape[axis]), axis=axis, mode="wrap")
    return np.concatenate([theta, mirrored], axis=half)
