"""Regular grids in whitened coordinates, on which the trapezoidal rule converges exponentially."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.records import record
from ...validation import Array

# angular frequency, in radians per standard deviation, up to which a standard Gaussian has a
# spectrum that a grid must resolve: e^-18 is left at 6
GAUSSIAN_BAND = 6.0
LEAST_AXIS_NODES = 5  # nodes of an axis, however long its step


@record
class WhitenedGrid:
    """Nodes w = steps * m for all index vectors m with |m_k| <= halves_k.

    Parameters
    ----------
    steps : array, (d,)
        Distance of neighbors along each axis, in standard deviations.
    halves : sequence of int, (d,)
        Nodes on either side of the center along each axis.
    """

    steps: Array
    halves: list[int]

    @property
    def axes(self) -> list[Array]:
        """Nodes along each axis."""
        return [h * np.arange(-k, k + 1) for h, k in zip(self.steps, self.halves, strict=True)]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of nodes along each axis."""
        return tuple(2 * k + 1 for k in self.halves)

    @property
    def log_cell(self) -> float:
        """Log of the volume of a cell."""
        return float(np.log(self.steps).sum())

    @property
    def log_mass(self) -> Array:
        """Log of the standard normal density times the volume of a cell, of the grid's shape."""
        log_mass: Array = np.zeros(())
        for axis, h in zip(self.axes, self.steps, strict=True):
            part = -0.5 * axis**2 + np.log(h) - 0.5 * np.log(2.0 * np.pi)
            log_mass = log_mass[..., None] + part
        return log_mass

    def nodes_within(self, radius: float) -> tuple[Array, Array]:
        """Nodes (n, d) in a ball about the center, and the log of their standard normal mass."""
        d = len(self.steps)
        nodes = np.stack(np.meshgrid(*self.axes, indexing="ij"), axis=-1).reshape(-1, d)
        square = np.einsum("ij,ij->i", nodes, nodes)
        log_mass = -0.5 * square + self.log_cell - 0.5 * d * np.log(2.0 * np.pi)
        inside = square <= radius**2
        return nodes[inside], log_mass[inside]


def rotation_to(unit: Array) -> Array:
    """An orthonormal (d, d) matrix whose first row is a unit vector: axes of a turned grid."""
    rotation = np.linalg.qr(np.column_stack([unit, np.eye(len(unit))]))[0].T
    rotation[0] = unit  # the same up to its sign
    return rotation


def resolving_steps(band: Array) -> Array:
    """Steps of a grid that resolves a Gaussian times a function of this angular band limit."""
    return np.asarray(np.pi / (band + GAUSSIAN_BAND))


def even_halves(steps: Array, reach: float) -> list[int]:
    """Even numbers of nodes on either side: the grid of every second node ends there too."""
    return [2 * int(np.ceil(0.5 * min(reach / h, 2.0**40))) for h in steps]


def count_nodes(steps: Array, reach: float) -> int:
    """Number of nodes of a grid; as a Python integer, which does not overflow."""
    return math.prod(2 * k + 1 for k in even_halves(steps, reach))


def affordable_reach(steps: Array, most: float) -> float:
    """The reach at which a grid of given steps has about ``most`` nodes."""
    ordered = np.sort(np.asarray(steps, dtype=float))
    d = len(ordered)
    for used in range(d, 0, -1):  # axes that are longer than the least
        rest = float(LEAST_AXIS_NODES) ** (d - used)
        reach = 0.5 * (most / rest * float(np.prod(ordered[:used]))) ** (1.0 / used)
        if used == 1 or reach >= 2.0 * ordered[used - 1]:
            return float(reach)
    raise AssertionError
