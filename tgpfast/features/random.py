"""Random Fourier features: frozen frequencies, phases and bandwidth, with a fingerprint."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..data import storage
from ..runtime import memory
from ..validation import (
    LEAST_BANDWIDTH,
    MOST_BANDWIDTH,
    Array,
    Seed,
    as_floats,
    as_seed,
    check_choice,
    whole,
)
from .spectral_density import KERNELS, draw_frequency_scales

SYMMETRY_TOLERANCE = 1e-8  # relative difference of entries that should be equal
# of the frequencies, that must not be constant for these to replace the others
LEAST_USEFUL_SHARE = 0.05
NEGATIVE_SHARE = 1e-10  # of the largest eigenvalue; a smaller negative one is rounding
# In a set of mixed kinds gamma is the bandwidth of features of so many columns. Those of k columns
# have sqrt(k / MIXED_COLUMNS) gamma: distances between rows grow with the root of k.
MIXED_COLUMNS = 2

# one for all features, or a tuple whose elements the features take in turns
Kernel: TypeAlias = str | tuple[str, ...]
Interactions: TypeAlias = int | tuple[int | None, ...] | None


@dataclass(frozen=True, eq=False)
class Features:
    """Random Fourier features of rows, S in number.

    phi_s(x) = sqrt(2/S) cos(z_s . x / gamma + c_s), s = 1 .. S.

    ``Features.draw`` draws them. Two `Features` are equal if their frequencies, phases and
    bandwidth are equal bit by bit.

    Parameters
    ----------
    frequencies : (S, d) array
        The z_s.
    phases : (S,) array
        The c_s.
    bandwidth : float
        gamma > 0.
    covariance : (d, d) array or None, default None
        Covariance of the Gaussian from which the frequencies were drawn.
    seed : int or None, default None
        Seed with which they were drawn.
    kernel : str or tuple of str, default "gaussian"
        Kernel whose spectral density they were drawn from: "gaussian", "matern12", "matern32" or
        "matern52". A tuple for mixed kinds, see `draw`.
    interactions : int, None or tuple of these, default None
        Columns that each frequency involves; None is all. A tuple for mixed kinds.

    References
    ----------
    Definition 2 of the paper.

    Examples
    --------
    >>> import numpy as np
    >>> import tgpfast as tgp
    >>> tgp.Features.draw(100, bandwidth=0.5, covariance=np.eye(3), seed=1, kernel="matern32")
    Features(n_features=100, dimension=3, bandwidth=0.5, seed=1, kernel='matern32')
    """

    frequencies: Array
    phases: Array
    bandwidth: float
    covariance: Array | None = field(default=None, kw_only=True)
    seed: int | None = field(default=None, kw_only=True)
    kernel: Kernel = field(default="gaussian", kw_only=True)
    interactions: Interactions = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        z = as_floats(self.frequencies, "frequencies", "(S, d)", 2)
        if z.size == 0:
            raise ValueError(f"frequencies must have at least one row and column, got {z.shape}")
        object.__setattr__(self, "frequencies", z)
        object.__setattr__(self, "phases", as_floats(self.phases, "phases", (len(z),)))
        object.__setattr__(self, "bandwidth", _check_bandwidth(self.bandwidth, z))
        for name, each in zip(
            ("kernel", "interactions"),
            _check_kinds(self.kernel, self.interactions, z.shape[1]), strict=True,
        ):  # fmt: skip
            object.__setattr__(self, name, each[0] if len(set(each)) == 1 else each)
        if self.seed is not None and not hasattr(self.seed, "__index__"):
            raise TypeError(f"seed={self.seed!r}: expected an integer or None")
        if self.seed is not None:
            object.__setattr__(self, "seed", int(self.seed))  # files cannot hold one of numpy
        if self.covariance is not None:
            v = as_floats(self.covariance, "covariance", (z.shape[1],) * 2)
            object.__setattr__(self, "covariance", v)

    @classmethod
    def draw(
        cls,
        n_features: int,
        bandwidth: float,
        covariance: ArrayLike,
        seed: Seed = 0,
        kernel: Kernel = "gaussian",
        interactions: Interactions = None,
        periods: ArrayLike | None = None,
        steps: ArrayLike | None = None,
    ) -> Features:
        """Draw frequencies from the spectral density of a kernel, and phases from U(0, 2 pi).

        With g_s ~ N(0, covariance): the Gaussian kernel has z_s = g_s, a Matern kernel of
        smoothness nu has z_s = g_s sqrt(2 nu / chi^2), with a chi^2 of 2 nu degrees of freedom.
        That is a multivariate t: it adds high frequencies, for densities with many scales.

        Parameters
        ----------
        n_features : int
            S, at least 1.
        bandwidth : float
            gamma > 0.
        covariance : (d, d) array
            Symmetric and positive semi-definite; ``np.eye(d)`` for a plain kernel.
        seed : int, None or numpy Generator, default 0
            The same integer gives the same features; None draws a new seed. The integer that was
            used is kept as ``features.seed``.
        kernel : str or tuple of str, default "gaussian"
            "gaussian", "matern12", "matern32" or "matern52". The features take the elements of a
            tuple in turns, so that the first n are as mixed as all of them. Tuples of kernels and
            of interactions are of equal length.
        interactions : int, None or tuple of these, default None
            Columns that each frequency involves: chosen at random, the other entries are exactly
            zero. Then f is a sum of functions of so many columns each. None involves all columns.
            Where a tuple has several numbers, features of k columns have a bandwidth of
            sqrt(k / 2) gamma.
        periods : (d,) array or None, default None
            Period of each column, infinite where it has none. Frequencies z / gamma of periodic
            columns are rounded to whole multiples of 2 pi / period, so that the features repeat
            themselves exactly. Another frequency of the draw replaces one that is zero in all
            columns, which is a constant.
        steps : (d,) array or None, default None
            Step that the values of each column are multiples of, 0 where it has none. No wave is
            shorter than two steps: a shorter one is replaced by the one with the same values at
            multiples of the step. The kernel stays as it is between such rows.

        Returns
        -------
        Features

        Examples
        --------
        >>> import numpy as np
        >>> import tgpfast as tgp
        >>> pairs = tgp.Features.draw(200, 0.5, np.eye(10), seed=0, interactions=2)
        >>> bool(((pairs.frequencies != 0).sum(axis=1) == 2).all())
        True
        >>> mixed = tgp.Features.draw(200, 0.5, np.eye(10), seed=0, interactions=(2, 3))
        >>> (mixed.frequencies != 0).sum(axis=1)[:4].tolist()
        [2, 3, 2, 3]
        """
        n_features, seed = whole("n_features", n_features), as_seed(seed)
        v = as_floats(covariance, "covariance", "(d, d)", 2)
        root = _square_root(v)
        d = len(v)
        kernels, columns = _check_kinds(kernel, interactions, d)
        memory.check(
            3 * 8 * n_features * (d + 1), f"n_features={n_features:,}", "use fewer features"
        )
        rng = np.random.default_rng(seed)
        z = rng.standard_normal((n_features, d)) @ root
        c = rng.uniform(0.0, 2.0 * np.pi, n_features)
        for k, name in enumerate(kernels):
            if name != "gaussian":
                mine = z[k :: len(kernels)]
                mine *= draw_frequency_scales(name, len(mine), rng)[:, None]
        if set(columns) != {None}:
            # some entries of a Gaussian vector are Gaussian with that part of the covariance
            order = rng.permuted(np.tile(np.arange(d), (n_features, 1)), axis=1)
            involved = np.resize([count or d for count in columns], n_features)[:, None]
            z[order >= involved] = 0.0
            if len(set(columns)) > 1:
                z /= np.sqrt(involved / MIXED_COLUMNS)
        longest = np.full(d, np.inf)
        if steps is not None:
            longest = _lengthen_short_waves(z, float(bandwidth), np.asarray(steps, float))
        if periods is not None:
            _make_periodic(z, float(bandwidth), np.asarray(periods, float), longest, rng)
        return cls(
            z, c, bandwidth, covariance=v, seed=seed, kernel=kernel, interactions=interactions
        )

    def first(self, n: int) -> Features:
        """The first n features, which are n draws of the same kinds.

        Parameters
        ----------
        n : int
            At most ``n_features``.

        Returns
        -------
        Features
        """
        return replace(self, frequencies=self.frequencies[:n], phases=self.phases[:n])

    @property
    def n_features(self) -> int:
        """S."""
        return len(self.frequencies)

    @property
    def dimension(self) -> int:
        """d."""
        return self.frequencies.shape[1]

    @property
    def bandlimit(self) -> Array:
        """(d,) largest |z_s +- z_t| / gamma along each axis, in radians per unit of x."""
        return 2.0 * np.abs(self.frequencies).max(axis=0) / self.bandwidth

    @property
    def fingerprint(self) -> str:
        """Hash of frequencies, phases and bandwidth; equal where they are equal bit by bit."""
        digest = hashlib.sha256(repr(self.frequencies.shape).encode())
        for part in (self.frequencies, self.phases, np.float64(self.bandwidth)):
            digest.update(np.asarray(part).astype("<f8").tobytes())
        return digest.hexdigest()

    @property
    def members(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Facts and arrays of a file; ``from_members`` reads them."""
        facts = {
            "bandwidth": self.bandwidth, "seed": self.seed, "kernel": self.kernel,
            "interactions": self.interactions,
        }  # fmt: skip
        known = {} if self.covariance is None else {"covariance": self.covariance}
        return facts, {"frequencies": self.frequencies, "phases": self.phases, **known}

    @classmethod
    def from_members(
        cls, path: Any, facts: Mapping[str, Any], arrays: dict[str, Any]
    ) -> Features:
        """Features of a file. Files of version 0.1 name no kernel: theirs is Gaussian.

        Parameters
        ----------
        path : str or path
            The file, for error messages.
        facts : mapping
        arrays : dict
            Those of the features are taken out of it.

        Returns
        -------
        Features

        Raises
        ------
        KeyError, TypeError, ValueError
            If the file is damaged.
        """
        z = storage.take(arrays, "frequencies", None, path)
        if z.ndim != 2:
            raise ValueError(
                f"{os.fspath(path)!r} is damaged: frequencies must have two dimensions"
            )
        S, d = z.shape
        has_covariance = "covariance" in arrays
        return cls(
            z, storage.take(arrays, "phases", (S,), path), facts["bandwidth"],
            covariance=storage.take(arrays, "covariance", (d, d), path) if has_covariance else None,
            seed=facts["seed"], kernel=_as_tuple(facts.get("kernel", "gaussian")),
            interactions=_as_tuple(facts.get("interactions")),
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Features):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        drawn = "" if self.seed is None else f", seed={self.seed}"
        if self.kernel != "gaussian":
            drawn += f", kernel={self.kernel!r}"
        if self.interactions is not None:
            drawn += f", interactions={self.interactions}"
        return (
            f"Features(n_features={self.n_features}, dimension={self.dimension}, "
            f"bandwidth={self.bandwidth:.6g}{drawn})"
        )


def _lengthen_short_waves(z: Array, gamma: float, steps: Array) -> Array:
    """Replace frequencies above pi gamma / step of a column, in place, by those of the waves with
    the same values at multiples of the step; (d,) these largest frequencies."""
    with np.errstate(divide="ignore", over="ignore"):
        largest = np.pi * gamma / steps
    short = np.flatnonzero(np.abs(z).max(axis=0) > largest)
    turns = 2.0 * largest[short]
    z[:, short] -= turns * np.round(z[:, short] / turns)
    return np.asarray(largest)


def _make_periodic(
    z: Array, gamma: float, periods: Array, largest: Array, rng: np.random.Generator
) -> None:
    """Round frequencies of periodic columns, in place, to whole multiples of 2 pi gamma / period,
    of which none exceeds the largest frequency of its column (d,).

    Others of the draw replace frequencies that are zero in all columns. Where almost all are zero,
    since the bandwidth is far above the periods, these have one wave around one period.
    """
    turning = np.flatnonzero(np.isfinite(periods))
    if not len(turning):
        return
    steps = 2.0 * np.pi * gamma / periods[turning]
    drawn = z.copy()
    waves = np.round(z[:, turning] / steps)
    waves -= np.sign(waves) * (np.abs(waves) * steps > largest[turning])
    z[:, turning] = steps * waves
    useful = np.flatnonzero(z.any(axis=1))
    constant = np.flatnonzero(~z.any(axis=1))
    if len(useful) >= len(z) * LEAST_USEFUL_SHARE:
        z[constant] = z[rng.choice(useful, len(constant))]
        return
    along = np.abs(drawn[constant][:, turning]).argmax(axis=1)
    z[constant, turning[along]] = steps[along] * rng.choice([-1.0, 1.0], len(constant))


def covariance_of_frequencies(kind: Any, covariance: Array) -> Array:
    """Covariance from which frequencies are drawn, for data with covariance V.

    Parameters
    ----------
    kind : str or (d, d) array
        "identity" is I, "data" is d V / tr V, "precision" is d V^-1 / tr V^-1; an array is itself.
    covariance : (d, d) array
        V.
    """
    d = len(covariance)
    if not isinstance(kind, str):
        return as_floats(kind, "frequency_covariance", (d, d))
    if kind == "identity":
        return np.eye(d)
    unit = covariance / (np.trace(covariance) / d)
    if kind == "data":
        return np.asarray(unit)
    precision = np.linalg.inv(unit)
    precision = 0.5 * (precision + precision.T)
    return np.asarray(precision * (d / np.trace(precision)))


def _check_bandwidth(bandwidth: Any, frequencies: Array) -> float:
    gamma = float(as_floats(bandwidth, "bandwidth", "()", 0))
    if not gamma > 0:
        raise ValueError(f"bandwidth must be positive, got {gamma}")
    if not LEAST_BANDWIDTH <= gamma <= MOST_BANDWIDTH:
        raise ValueError(
            f"bandwidth={gamma:.6g}: expected a number from {LEAST_BANDWIDTH:g} to "
            f"{MOST_BANDWIDTH:g}; beyond, its square overflows or vanishes in float64. Give "
            'the rows other units, as scale="standardize" does'
        )
    with np.errstate(over="ignore"):
        if not np.isfinite(frequencies / gamma).all():
            raise ValueError(f"frequencies / bandwidth overflows: bandwidth={gamma}")
    return gamma


def as_listed(value: Any) -> Any:
    """A list for a tuple, as files give it back; other values as they are."""
    return list(value) if isinstance(value, tuple) else value


def name_kernels(kernel: str | Sequence[str]) -> str:
    """The names of one kernel or several, each once.

    Examples
    --------
    >>> name_kernels(("matern32", "gaussian", "matern32"))
    'matern32 and gaussian'
    """
    return kernel if isinstance(kernel, str) else " and ".join(dict.fromkeys(kernel))


def _as_tuple(value: Any) -> Any:
    """A tuple for a list, which files hold in its place; other values as they are."""
    return tuple(value) if isinstance(value, list) else value


def _check_kinds(
    kernel: Kernel, interactions: Interactions, d: int
) -> tuple[tuple[str, ...], tuple[int | None, ...]]:
    """Kernel and number of columns of the features in turn, two tuples of equal length."""
    kernels = kernel if isinstance(kernel, tuple) else (kernel,)
    columns = interactions if isinstance(interactions, tuple) else (interactions,)
    for name in kernels:
        check_choice("kernel", name, KERNELS)
    if len(columns) == 1:
        columns = columns * len(kernels)
    if len(kernels) == 1:
        kernels = kernels * len(columns)
    if len(kernels) != len(columns) or not kernels:
        raise ValueError(
            f"kernel={kernel!r} and interactions={interactions!r}: expected tuples of equal length"
        )
    return kernels, tuple(_check_interactions(count, d) for count in columns)


def _check_interactions(interactions: Any, d: int) -> int | None:
    if interactions is None:
        return None
    columns = whole("interactions", interactions)
    if columns > d:
        raise ValueError(f"interactions={columns}: expected None, or at most {d}, the columns")
    return columns


def _square_root(covariance: Array) -> Array:
    """The symmetric square root; ValueError unless positive semi-definite."""
    v = covariance
    if v.shape[0] != v.shape[1] or v.size == 0:
        raise ValueError(f"covariance must be square, got shape {v.shape}")
    if not np.allclose(v, v.T, rtol=SYMMETRY_TOLERANCE, atol=1e-12 * np.abs(v).max()):
        raise ValueError("covariance must be symmetric")
    values, vectors = np.linalg.eigh(v)
    if values[0] < -NEGATIVE_SHARE * max(values[-1], 0.0):
        raise ValueError(
            f"covariance must be positive semi-definite; its least eigenvalue is {values[0]:g}"
        )
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
