"""Exponents as sums of plane waves, evaluated by a non-uniform FFT where that is faster.

A learned exponent is a real function Re sum_j strength_j e^{i w_j . x}: S waves for a point model,
S^2 for FVPD, since phi_s phi_t = [cos(a_s - a_t) + cos(a_s + a_t)] / S. For d <= 3 a non-uniform
FFT gives it at M points in O(waves + M + grid), term by term it takes O(waves M).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...features.random import Features
from ...kernels.thread_choice import Threads
from ...runtime import memory
from ...statistics import costs
from ...statistics.transform_plan import TransformPlan, plan_transform
from ...statistics.transforms import (
    TRANSFORM_DIMENSIONS,
    Complex,
    has_finufft,
    kernel_width,
    quiet_finufft,
    transform,
)
from ...validation import Array

WAVE_ACCURACY = 1e-10  # absolute error of an exponent that a transform is asked for
COARSEST_WAVE_EPS = 1e-9  # relative error of a transform at most
FINEST_WAVE_EPS = 3e-14  # smaller relative errors drown in rounding: term by term instead
ALLOWED_ERROR = 1e-9  # relative to the largest value; a transform that errs more is not used
CHECKED_POINTS = 16  # points at which a transform is compared with the sum term by term
LEAST_TRANSFORM_ROWS = 2_000  # below, a transform cannot be faster
MOST_SECONDS = 0.8  # cost of a transform, as a share of that term by term, for which it is used
TRANSFORM_CHUNK_ROWS = 2**21  # points of one transform: 100 MB of coordinates and values


@dataclass(frozen=True, eq=False)
class PlaneWaves:
    """The function Re sum_j strengths_j e^{i w_j . y} + constant.

    Parameters
    ----------
    frequencies : array, (m, d)
        Angular frequencies w_j.
    strengths : complex array, (m,)
    constant : float, default 0.0
    """

    frequencies: Array
    strengths: Complex
    constant: float = 0.0

    @functools.cached_property
    def reach(self) -> Array:
        """Largest |frequency| along each axis, (d,)."""
        return np.asarray(np.abs(self.frequencies).max(axis=0))

    @property
    def dimension(self) -> int:
        """Number of columns d."""
        return self.frequencies.shape[1]

    @functools.cached_property
    def transform_eps(self) -> float | None:
        """Relative error to ask of a transform; None where rounding forbids the accuracy."""
        size = float(np.linalg.norm(self.strengths))
        eps = min(WAVE_ACCURACY / max(size, 1e-300), COARSEST_WAVE_EPS)
        return None if eps < FINEST_WAVE_EPS else eps


def waves_of_point(features: Features, theta: Array, origin: Array) -> PlaneWaves:
    """theta^T phi(x) as waves of y = x - origin."""
    f = features.frequencies / features.bandwidth
    turn = np.exp(1j * (features.phases + f @ origin))
    return PlaneWaves(f, np.sqrt(2.0 / features.n_features) * theta * turn)


def waves_of_quadratic(
    features: Features, inverse: Array, linear: Array, origin: Array
) -> PlaneWaves:
    """phi^T inverse phi / 2 + linear^T phi as waves of y = x - origin.

    inverse : symmetric array, (S, S)
    """
    f, S = features.frequencies / features.bandwidth, features.n_features
    turn = np.exp(1j * (features.phases + f @ origin))
    i, j = np.triu_indices(S, 1)
    k, m = np.triu_indices(S)
    twice = np.where(k == m, 0.5, 1.0) * inverse[k, m] / S
    frequencies = np.concatenate([f, f[i] - f[j], f[k] + f[m]])
    strengths = np.concatenate([
        np.sqrt(2.0 / S) * linear * turn, inverse[i, j] / S * turn[i] * np.conj(turn[j]),
        twice * turn[k] * turn[m],
    ])  # fmt: skip
    return PlaneWaves(frequencies, strengths, 0.5 * float(np.trace(inverse)) / S)


def transform_is_usable(d: int, n_points: int) -> bool:
    """Whether a transform should be considered for so many columns and points."""
    return d <= TRANSFORM_DIMENSIONS and n_points >= LEAST_TRANSFORM_ROWS and has_finufft()


# -- at any points --------------------------------------------------------------------------------


def evaluate_waves(
    waves: PlaneWaves,
    y: Array,
    threads: Threads,
    row_seconds: float,
    evaluate_directly: Callable[[Any], Array],
    *,
    gradient: bool = False,
) -> Array | None:
    """Values, and gradients where asked for, by transforms.

    Parameters
    ----------
    waves : PlaneWaves
    y : array, (n, d)
    threads : Threads
    row_seconds : float
        Time of ``evaluate_directly`` for one row.
    evaluate_directly : callable
        Takes row indices of y and returns the result term by term: for points outside the box of a
        transform, and to check it.
    gradient : bool, default False

    Returns
    -------
    array, (n, 1), or (n, 1 + d) with the gradient; or None
        None where a transform is not faster or not accurate enough.
    """
    eps = waves.transform_eps
    if eps is None:
        return None
    functions = _real_functions(waves, gradient=gradient)
    plans = _plan_chunks(waves, y, len(functions), eps, row_seconds)
    if plans is None:
        return None
    _, count = threads.resolve()
    out = np.empty((len(y), len(functions)))
    for start, plan in zip(range(0, len(y), TRANSFORM_CHUNK_ROWS), plans, strict=True):
        part = y[start : start + TRANSFORM_CHUNK_ROWS]
        inside = np.ones(len(part), bool) if plan.whole else plan.inside(part)
        rows = np.flatnonzero(inside)
        out[start + rows] = _transform(waves, functions, part[rows], plan, eps, count)
        if len(rows) < len(part):
            others = start + np.flatnonzero(~inside)
            out[others] = evaluate_directly(others)
            out[others, 0] -= waves.constant
    out[:, 0] += waves.constant
    some = np.linspace(0, len(y) - 1, CHECKED_POINTS).astype(int)
    return out if _agree(out[some], evaluate_directly(some)) else None


def _real_functions(waves: PlaneWaves, *, gradient: bool) -> list[Complex]:
    """Strengths of the value, and of the derivatives along each axis over the reach: in these
    units the value, which shares a transform with a derivative, keeps its accuracy."""
    if not gradient:
        return [waves.strengths]
    unit = 1j * waves.frequencies / waves.reach
    return [waves.strengths, *(column * waves.strengths for column in unit.T)]


def _plan_chunks(
    waves: PlaneWaves, y: Array, n_functions: int, eps: float, row_seconds: float
) -> list[TransformPlan] | None:
    """How each chunk of points is transformed; None where that is not faster than term by term."""
    # two real functions share a transform, made of waves of both signs
    n_transforms = (n_functions + 1) // 2
    n_waves = len(waves.strengths) * (2 if n_functions > 1 else 1)
    budget = memory.budget()
    least = costs.COSTS.transform(
        len(y), n_waves, 2.0, kernel_width(eps), waves.dimension, n_transforms
    )
    if least > MOST_SECONDS * row_seconds * len(y):
        return None
    plans = []
    for start in range(0, len(y), TRANSFORM_CHUNK_ROWS):
        part = y[start : start + TRANSFORM_CHUNK_ROWS]
        plan = plan_transform(
            part, waves.reach, n_waves, row_seconds, eps, budget, spreads=n_transforms
        )
        if plan is None or plan.seconds > MOST_SECONDS * row_seconds * len(part):
            return None
        plans.append(plan)
    return plans


def _transform(
    waves: PlaneWaves, functions: list[Complex], y: Array, plan: TransformPlan, eps: float,
    n_threads: int,
) -> Array:  # fmt: skip
    """The functions at points inside the box of a plan, (n, functions), in pairs."""
    out = np.empty((len(y), len(functions)))
    turn = np.exp(1j * (waves.frequencies @ plan.middle))
    points = [y[:, k] - middle for k, middle in enumerate(plan.middle)]
    for first in range(0, len(functions), 2):
        frequencies = waves.frequencies
        strengths = functions[first] * turn
        is_pair = first + 1 < len(functions)
        if is_pair:
            second = functions[first + 1] * turn
            strengths = np.concatenate([
                strengths + 1j * second, np.conj(strengths) + 1j * np.conj(second)
            ])  # fmt: skip
            strengths *= 0.5
            frequencies = np.concatenate([frequencies, -frequencies])
        axes = [np.ascontiguousarray(column) for column in frequencies.T]
        values = transform(axes, strengths, points, eps, n_threads)
        out[:, first] = values.real
        if is_pair:
            out[:, first + 1] = values.imag
    out[:, 1:] *= waves.reach[: len(functions) - 1]
    return out


def _agree(values: Array, exact: Array) -> bool:
    """Whether each column of values errs by at most ALLOWED_ERROR of its largest exact value."""
    allowed = ALLOWED_ERROR * np.maximum(np.abs(exact).max(axis=0), 1.0)
    return not (np.abs(values - exact) > allowed).any()


# -- on a regular lattice -------------------------------------------------------------------------


def evaluate_waves_on_lattice(
    waves: PlaneWaves, corner: Array, steps: Array, shape: tuple[int, ...]
) -> Array | None:
    """Values at corner + m @ steps for all index vectors m of a box, by one type-1 transform.

    Parameters
    ----------
    waves : PlaneWaves
    corner : array, (d,)
        The node of index 0.
    steps : array, (d, d)
        Row k is the difference between nodes whose k-th indices differ by 1.
    shape : tuple of int
        Number of nodes along each index.

    Returns
    -------
    array of the given shape, or None
        None where finufft is absent or not accurate enough.
    """
    eps, nodes = waves.transform_eps, math.prod(shape)
    if eps is None or not transform_is_usable(waves.dimension, nodes):
        return None
    middle = corner + np.array([n // 2 for n in shape]) @ steps
    turned = waves.strengths * np.exp(1j * (waves.frequencies @ middle))
    # finufft loses digits where phases are more than a few turns
    phases = np.remainder(waves.frequencies @ steps.T + np.pi, 2.0 * np.pi) - np.pi
    with quiet_finufft() as finufft:
        # on one thread: another number would give other bits, and with them other samples
        plan = finufft.Plan(1, shape, 1, eps, 1, nthreads=1, showwarn=0)
        plan.setpts(*(np.ascontiguousarray(column) for column in phases.T))
        values = plan.execute(turned).real + waves.constant
    some = np.linspace(0, nodes - 1, CHECKED_POINTS).astype(int)
    index = np.stack(np.unravel_index(some, shape), -1)
    angles = (corner + index @ steps) @ waves.frequencies.T
    exact = (np.exp(1j * angles) @ waves.strengths).real + waves.constant
    return np.ascontiguousarray(values) if _agree(values[tuple(index.T)], exact) else None
