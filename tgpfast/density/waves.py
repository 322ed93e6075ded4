"""Sums of plane waves at many points by one transform, where that is cheaper than term by term.

A learned exponent is a real function Re sum_j strength_j e^{i w_j . x}: S waves for a point model,
S^2 for FVPD, since phi_s phi_t = [cos(a_s - a_t) + cos(a_s + a_t)] / S. For d <= 3 a non-uniform
FFT gives it at M points in O(waves + M + grid).
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime import memory
from ..statistics import costs
from ..statistics.transform_plan import plan_transform
from ..statistics.transforms import (
    TRANSFORM_DIMENSIONS,
    Complex,
    kernel_width,
    load_finufft,
    transform,
)
from ..validation import Array

ACCURACY = 1e-10  # absolute, of an exponent
PROMISE, CHECKS = 1e-9, 16  # relative to the largest; checked at some points, term by term
LEAST_EPS = 3e-14  # below it rounding rules: term by term instead
LEAST_ROWS = 2_000  # fewer points are not worth a look
CHUNK_ROWS = 2**21


@dataclass(frozen=True, eq=False)
class Waves:
    """Re sum_j strengths_j e^{i w_j . y} + constant, y about an origin."""

    frequencies: Array  # (m, d)
    strengths: Complex  # (m,)
    constant: float = 0.0
    size: float = field(init=False)
    reach: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", float(np.linalg.norm(self.strengths)))
        object.__setattr__(self, "reach", np.abs(self.frequencies).max(axis=0))

    @property
    def dimension(self) -> int:
        """d."""
        return self.frequencies.shape[1]


def point_waves(features: Features, theta: Array, origin: Array) -> Waves:
    """theta^T phi(x), about the origin."""
    f = features.frequencies / features.bandwidth
    turn = np.exp(1j * (features.phases + f @ origin))
    return Waves(f, np.sqrt(2.0 / features.n_features) * theta * turn)


def quadratic_waves(features: Features, inverse: Array, linear: Array, origin: Array) -> Waves:
    """phi^T inverse phi / 2 + linear^T phi, about the origin; inverse symmetric (S, S)."""
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
    return Waves(frequencies, strengths, 0.5 * float(np.trace(inverse)) / S)


def usable(d: int, n_points: int) -> bool:
    """Whether a transform is to be considered at all."""
    return d <= TRANSFORM_DIMENSIONS and n_points >= LEAST_ROWS and (
        importlib.util.find_spec("finufft") is not None
    )


def at_points(
    waves: Waves,
    y: Array,
    threads: Threads,
    row_cost: float,
    direct: Callable[[Any], Array],
    *,
    gradient: bool = False,
) -> Array | None:
    """Values (n,), or with their gradient (n, 1 + d), at points about the origin.

    row_cost : seconds of ``direct`` for one row; ``direct`` takes row indices of y and gives what
    is wanted term by term: for points outside the core box. None where a transform does not pay,
    or cannot give the accuracy.
    """
    d = waves.dimension
    sets = [waves.strengths]
    if gradient:
        # in units of the reach, so that the value, which shares a transform with one, keeps its
        # accuracy
        unit = 1j * waves.frequencies / waves.reach
        sets += [unit[:, k] * waves.strengths for k in range(d)]
    eps = min(ACCURACY / max(waves.size, 1e-300), 1e-9)
    if eps < LEAST_EPS:
        return None
    _, count = threads.resolve()
    # two real functions share a transform, made of waves of both signs
    sources = len(waves.strengths) * (2 if len(sets) > 1 else 1)
    least = costs.COSTS.transform(
        len(y), sources, 2.0, kernel_width(eps, 2.0), d, (len(sets) + 1) // 2
    )
    if least > 0.8 * row_cost * len(y):
        return None
    out = np.empty((len(y), len(sets)))
    budget = memory.budget()
    for start in range(0, len(y), CHUNK_ROWS):
        part = y[start : start + CHUNK_ROWS]
        plan = plan_transform(
            part, waves.reach, sources, row_cost, eps, budget,
            spreads=(len(sets) + 1) // 2,
        )  # fmt: skip
        if plan is None or plan.seconds > 0.8 * row_cost * len(part):
            return None
        inside = np.ones(len(part), bool) if plan.whole else plan.inside(part)
        rows = np.flatnonzero(inside)
        turn = np.exp(1j * (waves.frequencies @ plan.middle))
        for k in range(0, len(sets), 2):
            pair = sets[k : k + 2]
            axes = [part[rows, a] - plan.middle[a] for a in range(d)]
            pair = [s * turn for s in pair]
            frequencies, strengths = waves.frequencies, pair[0]
            if len(pair) == 2:
                strengths = np.concatenate([
                    pair[0] + 1j * pair[1], np.conj(pair[0]) + 1j * np.conj(pair[1])
                ])  # fmt: skip
                strengths *= 0.5
                frequencies = np.concatenate([frequencies, -frequencies])
            at = [np.ascontiguousarray(frequencies[:, a]) for a in range(d)]
            values = transform(at, strengths, axes, eps, plan.upsampling, count)
            out[start + rows, k] = values.real
            if len(pair) == 2:
                out[start + rows, k + 1] = values.imag
        if gradient:
            out[np.ix_(start + rows, np.arange(1, d + 1))] *= waves.reach
        if len(rows) < len(part):
            others = start + np.flatnonzero(~inside)
            out[others] = direct(others)
            out[others, 0] -= waves.constant
    out[:, 0] += waves.constant
    some = np.linspace(0, len(y) - 1, CHECKS).astype(int)
    check = direct(some)
    allowed = PROMISE * np.maximum(np.abs(check).max(axis=0), 1.0)
    if (np.abs(out[some] - check) > allowed).any():
        return None
    return out if gradient else out[:, 0]


def on_lattice(
    waves: Waves, corner: Array, steps: Array, shape: tuple[int, ...]
) -> Array | None:
    """Values at corner + m @ steps for all m in a box of indices: one type-1 transform.

    Parameters
    ----------
    corner : (d,) the node of index 0, about the origin of the waves
    steps : (d, d), one row for each index: the way from a node to the next
    shape : number of nodes along each index

    Returns
    -------
    array of the given shape, or None where finufft is absent or cannot give the accuracy
    """
    d = waves.dimension
    nodes = math.prod(shape)
    if not usable(d, nodes):
        return None
    eps = min(ACCURACY / max(waves.size, 1e-300), 1e-9)
    if eps < LEAST_EPS:
        return None
    finufft = load_finufft()
    middle = corner + np.array([n // 2 for n in shape]) @ steps
    turned = waves.strengths * np.exp(1j * (waves.frequencies @ middle))
    # finufft wants phases near zero: more than a few turns would cost it digits
    phases = np.remainder(waves.frequencies @ steps.T + np.pi, 2.0 * np.pi) - np.pi
    columns = [np.ascontiguousarray(phases[:, k]) for k in range(d)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tolerance near rounding; the result is checked
        # on one thread: another number would give other bits, and with them other samples
        plan = finufft.Plan(1, shape, 1, eps, 1, nthreads=1, showwarn=0)
        plan.setpts(*columns)
        values = plan.execute(turned).real + waves.constant
    index = np.stack(np.unravel_index(np.linspace(0, nodes - 1, CHECKS).astype(int), shape), -1)
    angles = (corner + index @ steps) @ waves.frequencies.T
    check = (np.exp(1j * angles) @ waves.strengths).real + waves.constant
    allowed = PROMISE * max(float(np.abs(check).max()), 1.0)
    if np.abs(values[tuple(index.T)] - check).max() > allowed:
        return None
    return np.ascontiguousarray(values)
