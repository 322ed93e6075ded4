"""Uniform noise on columns of discrete values, the same in every pass and for every source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..runtime.records import record
from ..validation import Array, Ints, positive
from .row_sample import keys_of
from .table import column_name, find_column

OFF_GRID = 1e-6  # distance from a multiple of the step, in steps, that rounding may cause


@record
class Jitter:
    """Adds noise to discrete columns: uniform, one step wide, by the number of the row and a seed.

    Rows then have a density, and its integral over a step around a value is the probability of
    that value (uniform dequantization).

    Attributes
    ----------
    steps : dict
        Column, by name or number, -> distance of its values, which are multiples of it.
    seed : int
    """

    steps: dict[Any, float]
    seed: int

    @classmethod
    def of(cls, discrete: Any, seed: int) -> Jitter | None:
        """The jitter that ``discrete`` of `fit` asks for; None where no column is discrete.

        Parameters
        ----------
        discrete : None, str, int, sequence of them, or mapping from them to steps
        seed : int

        Raises
        ------
        TypeError, ValueError
            A step is not a positive number, or ``discrete`` is of another kind.
        """
        if discrete is None:
            return None
        if isinstance(discrete, Mapping):
            pairs = dict(discrete)
        elif isinstance(discrete, str) or hasattr(discrete, "__index__"):
            pairs = {discrete: 1.0}
        elif isinstance(discrete, (list, tuple, set, frozenset)):
            pairs = dict.fromkeys(discrete, 1.0)
        else:
            raise TypeError(
                f"discrete={discrete!r}: expected names or numbers of columns, or a mapping from "
                "them to the steps of their values"
            )
        steps = {key: positive(f"discrete: step of {key!r}", step) for key, step in pairs.items()}
        return cls(steps, seed) if steps else None

    def find_steps(self, columns: list[str] | None, d: int) -> dict[int, float]:
        """Steps by the number of the column, in order.

        Parameters
        ----------
        columns : list of str, or None
        d : int
            Number of columns.

        Raises
        ------
        ValueError
            There is no such column, or it is named twice.
        """
        found = {find_column(key, columns, d, "discrete"): s for key, s in self.steps.items()}
        if len(found) < len(self.steps):
            raise ValueError(f"discrete names a column twice: {list(self.steps)}")
        return dict(sorted(found.items()))

    def apply(self, x: Array, numbers: Any, shown: Any, columns: list[str] | None) -> Array:
        """Rows (n, d) with noise.

        Parameters
        ----------
        x : (n, d) array
        numbers : int or (n,) array
            Number of the first row, or of every row, which decides the noise.
        shown : int or (n,) array
            The same for messages.
        columns : list of str, or None

        Raises
        ------
        ValueError
            Names the first value that is not a multiple of its step.
        """
        noisy = np.array(x)
        if not isinstance(numbers, np.ndarray):
            numbers = np.arange(numbers, numbers + len(x))
        for k, step in self.find_steps(columns, x.shape[1]).items():
            multiples = np.rint(x[:, k] / step)
            off = np.abs(x[:, k] / step - multiples) > OFF_GRID
            if off.any():
                row = int(np.flatnonzero(off)[0])
                number = shown[row] if isinstance(shown, np.ndarray) else shown + row
                raise ValueError(
                    f"column {column_name(k, columns)} is discrete with a step of {step:g}, but "
                    f"holds {x[row, k]:.10g} at row {number}; leave it out of discrete, or give "
                    "the step that its values are multiples of"
                )
            noisy[:, k] = (multiples + draw_noise(numbers, k, self.seed)) * step
        noisy.flags.writeable = False
        return noisy


def draw_noise(numbers: Ints, column: int, seed: int) -> Array:
    """Uniform numbers in (-1/2, 1/2), by the numbers of rows, the column and a seed."""
    salt = keys_of(np.array([seed & (2**63 - 1), column]))
    keys = keys_of((keys_of(numbers) ^ salt[0]).view(np.int64) + salt[1].view(np.int64))
    return ((keys >> np.uint64(11)).astype(float) + 0.5) * 2.0**-53 - 0.5
