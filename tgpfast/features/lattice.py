"""Lattice features: waves at equispaced frequencies in a box, for one to three columns.

In low dimension a regular lattice of frequencies resolves a kernel far better than random ones, and
every sum over features is a fast Fourier transform.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..validation import (
    Array,
    as_bandwidth,
    as_floats,
    check_choice,
    positive,
    whole,
)
from .lattice_box import AXIS_KINDS, choose_box, taper_step, tapered_sides
from .lattice_transform import (
    LatticeTransform,
    Modes,
    fast_length,
    half_axis,
    wave_numbers,
)
from .spectral_density import KERNELS, spectral_density

LATTICE_DIMENSIONS = 3  # columns: the nodes of a lattice in four are too many
DEFAULT_MARGIN = 1.0 / 8.0  # of an axis' length, at each tapered side
OVERSAMPLING = 2  # grid nodes for each one that the waves themselves need: exp(f) is sharper than f
# cached properties that depend neither on the kernel nor on the bandwidth
FACTS_OF_MODES = ("frequencies", "squared_frequencies", "multiplicity", "mean_squares")


@dataclass(frozen=True, eq=False)
class LatticeFeatures:
    """Waves at equispaced frequencies, for one to three columns.

    f(x) = T(x) sum_k theta_k e^{i w_k . (x - origin)}, w_k = 2 pi k / lengths, |k_j| <= m_j.

    The prior is that of a Gaussian process with the given kernel: theta_k ~ N(0, s(w_k) / lambda),
    s the kernel's spectral density, which sums to 1 over all modes, so that var f = 1 / lambda.
    Axes differ in kind:

    - "open": waves of period ``lengths``. The taper T is 1 in the core of the box, falls smoothly
      to 0 within ``margin`` of either end, and is 0 beyond: there the base alone holds.
    - "period": waves of period ``lengths``; T is 1.
    - "wall": cosines cos(pi k (x - origin) / length), k = 0..m, between two walls; T is 1. The
      normal derivative of every feature is zero at the walls.
    - "wall_below", "wall_above": cosines with one wall, at the lower or the upper end of the box;
      the other end is tapered.

    Parameters
    ----------
    lengths : (d,) array
        Sides of the box, d <= 3.
    n_modes : int or (d,) ints
        m, the largest k along each axis.
    origin : (d,) array
        Lower corner of the box.
    kernel : {"gaussian", "matern12", "matern32", "matern52"}, default "gaussian"
    bandwidth : float, default 1.0
    walls : tuple of str, default all "open"
        Kinds of the axes.
    margin : (d,) array, default an eighth of the lengths
        Widths over which T falls from 1 to 0. Axes without a tapered side have none: 0.

    Raises
    ------
    ValueError
        For more than three dimensions, or parameters that make no box.

    Examples
    --------
    >>> import numpy as np
    >>> lattice = LatticeFeatures([8.0], 4, [-4.0], "matern32", 0.5)
    >>> lattice.n_features
    9
    >>> float((lattice.multiplicity * lattice.prior_variance).sum().round(12))
    1.0
    """

    lengths: Array
    n_modes: tuple[int, ...]
    origin: Array
    kernel: str = "gaussian"
    bandwidth: float = 1.0
    walls: tuple[str, ...] = ()
    margin: Array | None = None

    def __post_init__(self) -> None:
        lengths = as_floats(self.lengths, "lengths", "(d,)", 1)
        d = len(lengths)
        check_lattice_dimension(d)
        if not (lengths > 0.0).all():
            raise ValueError(f"lengths must be positive, got {lengths.tolist()}")
        origin = as_floats(self.origin, "origin", f"({d},)", 1)
        walls = tuple(self.walls) or ("open",) * d
        given = (self.n_modes,) * d if np.ndim(self.n_modes) == 0 else tuple(self.n_modes)
        for name, size in (("origin", len(origin)), ("walls", len(walls)), ("n_modes", len(given))):
            if size != d:
                raise ValueError(f"{name} has {size} entries, lengths has {d}")
        for kind in walls:
            check_choice("walls", kind, AXIS_KINDS)
        check_choice("kernel", self.kernel, KERNELS)
        checked: dict[str, Any] = {
            "lengths": lengths, "origin": origin, "walls": walls,
            "bandwidth": as_bandwidth(self.bandwidth),
            "n_modes": tuple(whole("n_modes", m) for m in given),
            "margin": _check_margin(self.margin, lengths, walls),
        }  # fmt: skip
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def for_data(
        cls,
        rows: Array,
        n_modes: int | Sequence[int],
        kernel: str = "gaussian",
        bandwidth: float = 1.0,
        *,
        base: Any = None,
        support: Sequence[tuple[float | None, float | None] | None] | None = None,
        period: Sequence[float | None] | None = None,
    ) -> LatticeFeatures:
        """A lattice whose box is chosen from a sample of the rows; see `choose_box`.

        Parameters
        ----------
        rows : (n, d) array
            A sample of the rows in the model's coordinates.
        n_modes : int or (d,) ints
            Largest k along each axis. One int is that of the longest axis; the others have as many
            as give the same resolution.
        kernel, bandwidth
            As for `LatticeFeatures`. A wider bandwidth makes a larger box.
        base : Base, default None
            With ``mean`` and ``covariance``: the box also covers its bulk.
        support : list of (low, high) or None, default None
            Walls of each axis; None, alone or in a pair, where there is none.
        period : list of float or None, default None
            Period of each axis; None where there is none.

        Returns
        -------
        LatticeFeatures
        """
        check_lattice_dimension(np.shape(rows)[1])
        origin, lengths, margin, walls = choose_box(
            rows, positive("bandwidth", bandwidth), base, support, period
        )
        counts = n_modes
        if isinstance(n_modes, int | np.integer):
            # cosines have twice the period of the box, so that k = 1 is half the frequency
            waves = np.where([kind in ("open", "period") for kind in walls], lengths, 2.0 * lengths)
            counts = [math.ceil(n_modes * share) for share in waves / waves.max()]
        return cls(lengths, counts, origin, kernel, bandwidth, walls, margin)  # type: ignore[arg-type]

    # -- sizes -----------------------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        """d."""
        return len(self.lengths)

    @property
    def cosine(self) -> tuple[bool, ...]:
        """Whether each axis has cosines instead of waves."""
        return tuple(kind.startswith("wall") for kind in self.walls)

    @property
    def n_features(self) -> int:
        """Real degrees of freedom of f."""
        return math.prod(
            m + 1 if c else 2 * m + 1 for m, c in zip(self.n_modes, self.cosine, strict=True)
        )

    @property
    def mode_shape(self) -> tuple[int, ...]:
        """Shape of theta: FFT order along wave axes, k = 0..m along the last of them and along
        cosine axes."""
        return tuple(len(k) for k in wave_numbers(self.n_modes, self.cosine))

    @property
    def mode_dtype(self) -> type:
        """dtype of theta: complex, or float where every axis has cosines."""
        return np.float64 if half_axis(self.cosine) is None else np.complex128

    @property
    def frequency_steps(self) -> Array:
        """Angular frequency of k = 1 along each axis, (d,)."""
        return np.where(self.cosine, np.pi, 2.0 * np.pi) / self.lengths

    @functools.cached_property
    def frequencies(self) -> list[Array]:
        """Angular frequencies of the stored modes along each axis."""
        numbers = wave_numbers(self.n_modes, self.cosine)
        return [step * k for step, k in zip(self.frequency_steps, numbers, strict=True)]

    @property
    def bandlimit(self) -> Array:
        """Highest angular frequency of a product of two features along each axis, (d,)."""
        return 2.0 * np.array(self.n_modes) * self.frequency_steps

    @property
    def fingerprint(self) -> str:
        """Hash of all parameters."""
        facts = f"{self.box_fingerprint} {self.kernel} {self.bandwidth!r}"
        return hashlib.sha256(facts.encode()).hexdigest()

    @property
    def box_fingerprint(self) -> str:
        """Hash of box and modes, which sums over rows depend on; not of kernel and bandwidth."""
        digest = hashlib.sha256(repr((self.n_modes, self.walls)).encode())
        for part in (self.lengths, self.origin, np.asarray(self.margin)):
            digest.update(part.astype("<f8").tobytes())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LatticeFeatures):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __getstate__(self) -> dict[str, Any]:
        """The parameters: what else is known of a lattice follows from them."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __repr__(self) -> str:
        modes = " x ".join(str(m) for m in self.n_modes)
        return (
            f"LatticeFeatures({modes} modes, {self.kernel}, bandwidth={self.bandwidth:.6g}, "
            f"walls={self.walls})"
        )

    @property
    def members(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Facts and arrays of a file; ``from_members`` reads them."""
        facts = {
            "n_modes": list(self.n_modes), "kernel": self.kernel, "bandwidth": self.bandwidth,
            "walls": list(self.walls),
        }  # fmt: skip
        arrays = {"lengths": self.lengths, "origin": self.origin}
        return facts, {**arrays, "margin": np.asarray(self.margin)}

    @classmethod
    def from_members(cls, facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> LatticeFeatures:
        """What ``members`` returned, read from a file.

        Parameters
        ----------
        facts : mapping
        arrays : mapping
            By name.
        """
        return cls(
            n_modes=tuple(facts["n_modes"]), kernel=facts["kernel"], bandwidth=facts["bandwidth"],
            walls=tuple(facts["walls"]), **{k: arrays[k] for k in ("lengths", "origin", "margin")},
        )  # fmt: skip

    def with_modes(self, n_modes: int | Sequence[int]) -> LatticeFeatures:
        """The same box and kernel with other modes.

        Parameters
        ----------
        n_modes : int or (d,) ints
        """
        return replace(self, n_modes=n_modes)  # type: ignore[arg-type]  # checked there

    def with_kernel(self, kernel: str, bandwidth: float) -> LatticeFeatures:
        """The same box and modes with another prior.

        Parameters
        ----------
        kernel : str
        bandwidth : float
        """
        other = replace(self, kernel=kernel, bandwidth=bandwidth)
        for name in FACTS_OF_MODES:
            other.__dict__[name] = getattr(self, name)
        return other

    # -- prior -----------------------------------------------------------------------------------

    @functools.cached_property
    def squared_frequencies(self) -> Array:
        """|w_k|^2, of the mode shape."""
        return functools.reduce(np.add.outer, [np.square(w) for w in self.frequencies])

    @functools.cached_property
    def multiplicity(self) -> Array:
        """How many modes of f a stored one stands for, of the mode shape: 2 where its conjugate is
        not stored."""
        half = half_axis(self.cosine)
        parts = [
            np.where((w > 0.0) & (axis == half), 2.0, 1.0)
            for axis, w in enumerate(self.frequencies)
        ]
        return functools.reduce(np.multiply.outer, parts)

    @functools.cached_property
    def prior_variance(self) -> Array:
        """E|theta_k|^2 at lambda = 1, of the mode shape: the spectral density, which sums to 1 over
        the modes of both signs; twice that for each axis with a cosine of k > 0."""
        density = spectral_density(
            self.kernel, self.squared_frequencies, self.bandwidth, self.dimension
        )
        density = density * (self.multiplicity / self.mean_squares)
        return density / float((self.multiplicity * density).sum())

    @functools.cached_property
    def mean_squares(self) -> Array:
        """Mean over the box of the square of the function that each stored mode stands for: its
        multiplicity, halved for each axis with a cosine of k > 0."""
        parts = [
            np.where((w > 0.0) & is_cosine, 0.5, 1.0)
            for w, is_cosine in zip(self.frequencies, self.cosine, strict=True)
        ]
        return self.multiplicity * functools.reduce(np.multiply.outer, parts)

    def inner(self, a: Modes, b: Modes) -> float:
        """Inner product of two real functions' modes: the real part of the sum of conj(a_k) b_k
        over all modes, those that are not stored included.

        Parameters
        ----------
        a, b : arrays of the mode shape
        """
        return float(np.real(np.sum(self.multiplicity * np.conj(a) * b)))

    # -- taper -----------------------------------------------------------------------------------

    def taper(self, x: Array) -> Array:
        """T at every row of x, (n,): 1 in the core of the box, 0 outside.

        Parameters
        ----------
        x : (n, d) array
        """
        factors = [self.taper_along(axis, column) for axis, column in enumerate(np.asarray(x).T)]
        return np.asarray(np.prod(factors, axis=0))

    def taper_along(self, axis: int, x: Array) -> Array:
        """The factor of T that belongs to one axis, (n,).

        Parameters
        ----------
        axis : int
        x : (n,) coordinates along that axis
        """
        value, low = np.ones(len(x)), self.origin[axis]
        distances = (x - low, low + self.lengths[axis] - x)
        for is_tapered, distance in zip(tapered_sides(self.walls[axis]), distances, strict=True):
            if is_tapered:
                value *= taper_step(distance / np.asarray(self.margin)[axis])
        return value

    def taper_on(self, axes: Sequence[Array]) -> Array:
        """T on the tensor grid of coordinates along each axis, as from ``nodes``.

        Parameters
        ----------
        axes : list of arrays
        """
        return functools.reduce(
            np.multiply.outer, [self.taper_along(axis, x) for axis, x in enumerate(axes)]
        )

    @property
    def core(self) -> tuple[Array, Array]:
        """(low, high), (d,) each: the box where T is 1."""
        sides = np.array([tapered_sides(kind) for kind in self.walls], dtype=float)
        margin = np.asarray(self.margin)
        low, high = self.origin, self.origin + self.lengths
        return low + sides[:, 0] * margin, high - sides[:, 1] * margin

    # -- grids -----------------------------------------------------------------------------------

    def grid_shape(self, oversampling: float = OVERSAMPLING) -> tuple[int, ...]:
        """Nodes along each axis, ``oversampling`` for each that the waves need, rounded up to sizes
        that FFTs are fast at.

        Parameters
        ----------
        oversampling : float, default 2
        """
        needed = [m if c else 2 * m for m, c in zip(self.n_modes, self.cosine, strict=True)]
        return tuple(
            fast_length(max(math.ceil(oversampling * n), n + 1)) for n in needed
        )

    def nodes(self, shape: Sequence[int]) -> list[Array]:
        """Coordinates of a regular grid along each axis: origin + length j / N, and with cosines
        origin + length (j + 1/2) / N.

        Parameters
        ----------
        shape : (d,) ints
        """
        return [
            o + length * (np.arange(n) + (0.5 if c else 0.0)) / n
            for o, length, n, c in zip(self.origin, self.lengths, shape, self.cosine, strict=True)
        ]

    def cell_volume(self, shape: Sequence[int]) -> float:
        """Volume that each node of a regular grid stands for.

        Parameters
        ----------
        shape : (d,) ints
            Nodes along each axis.
        """
        return float(np.prod(self.lengths / np.array(shape)))

    def transform(self, shape: Sequence[int], workers: int = 1) -> LatticeTransform:
        """Transforms between modes and a grid, with buffers that are used again.

        Parameters
        ----------
        shape : (d,) ints
            Nodes along each axis.
        workers : int, default 1
            Threads.
        """
        return LatticeTransform(
            self.n_modes, self.cosine, self.frequency_steps.tolist(), shape, workers
        )

    def to_grid(self, theta: Modes, shape: Sequence[int], workers: int = 1) -> Array:
        """sum_k theta_k e^{i w_k . (x - origin)}, without taper, at the nodes of a regular grid.

        Parameters
        ----------
        theta : array of the mode shape
        shape : (d,) ints
            More than 2 m nodes along wave axes, more than m along cosine axes.
        workers : int, default 1
            Threads.

        Returns
        -------
        real array of this shape
        """
        return self.transform(shape, workers).to_grid(theta)

    def from_grid(self, values: Array, workers: int = 1) -> Modes:
        """sum_j values_j e^{-i w_k . (x_j - origin)} over the nodes of a regular grid: the adjoint
        of ``to_grid``, inner(theta, from_grid(v)) = sum(to_grid(theta) * v).

        Parameters
        ----------
        values : real array, one value a node
        workers : int, default 1
            Threads.

        Returns
        -------
        array of the mode shape
        """
        return self.transform(np.shape(values), workers).from_grid(values)

    def grid_weights(self, sums: Modes, shape: Sequence[int], workers: int = 1) -> Array:
        """Weights of the nodes of a grid whose sums over the nodes are these: the inverse of
        ``from_grid``, without any mode that is not in ``sums``.

        Parameters
        ----------
        sums : array of the mode shape
        shape, workers : as for ``to_grid``

        Returns
        -------
        real array of this shape ; some may be negative
        """
        scale = self.multiplicity / (math.prod(shape) * self.mean_squares)
        return self.to_grid(scale * sums, shape, workers)

    def resize_modes(self, theta: Modes, n_modes: Sequence[int]) -> Modes:
        """Modes of the same function with other largest k: cut, or filled up with zeros.

        Parameters
        ----------
        theta : array of the mode shape
            Leading axes, if there are more, are kept.
        n_modes : (d,) ints

        Returns
        -------
        array of the mode shape of ``with_modes(n_modes)``
        """
        target = wave_numbers(n_modes, self.cosine)
        lead = theta.shape[: theta.ndim - self.dimension]
        result = np.zeros(lead + tuple(len(k) for k in target), theta.dtype)
        # negative k count from the end in both layouts
        kept = [k[np.abs(k) <= m] for k, m in zip(target, self.n_modes, strict=True)]
        places: tuple[Any, ...] = (..., *np.ix_(*kept))
        result[places] = theta[places]
        return result


def check_lattice_dimension(d: int) -> None:
    """ValueError unless a lattice serves this many columns."""
    if not 1 <= d <= LATTICE_DIMENSIONS:
        raise ValueError(
            f"lattice features serve 1 to {LATTICE_DIMENSIONS} columns, and there are {d}; use "
            "random features"
        )


def _check_margin(margin: Any, lengths: Array, walls: Sequence[str]) -> Array:
    n_sides = np.array([sum(tapered_sides(kind)) for kind in walls])
    width = as_floats(
        DEFAULT_MARGIN * lengths if margin is None else margin, "margin", lengths.shape
    )
    width = np.where(n_sides > 0, width, 0.0)
    room = n_sides * width
    if not ((width > 0.0) | (n_sides == 0)).all() or not (room < lengths).all():
        raise ValueError(
            f"margin={width.tolist()}: expected positive widths that leave a core in a box of "
            f"lengths {lengths.tolist()}"
        )
    width.setflags(write=False)
    return width
