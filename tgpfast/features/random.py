"""Random Fourier features: frozen frequencies, phases and bandwidth, with a fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..runtime import memory
from ..validation import LEAST_BANDWIDTH, MOST_BANDWIDTH, Array, as_floats, whole


@dataclass(frozen=True, eq=False)
class Features:
    """phi_s(x) = sqrt(2/S) cos(z_s . x / gamma + c_s), s = 1 .. S (Definition 2 of the paper).

    Parameters
    ----------
    frequencies : (S, d) array, the z_s
    phases : (S,) array, the c_s
    bandwidth : float > 0, gamma
    covariance : (d, d) array, optional: that of the distribution the frequencies were drawn from
    seed : int, optional: the seed they were drawn with
    """

    frequencies: Array
    phases: Array
    bandwidth: float
    covariance: Array | None = field(default=None, kw_only=True)
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        z = as_floats(self.frequencies, "frequencies", "(S, d)", 2)
        c = as_floats(self.phases, "phases", "(S,)", 1)
        if z.size == 0:
            raise ValueError(f"frequencies must have at least one row and column, got {z.shape}")
        if len(c) != len(z):
            raise ValueError(f"phases must have one entry a frequency: {len(z)}, got {len(c)}")
        gamma = as_floats(self.bandwidth, "bandwidth", "()", 0)
        if not gamma > 0:
            raise ValueError(f"bandwidth must be positive, got {float(gamma)}")
        if not LEAST_BANDWIDTH <= gamma <= MOST_BANDWIDTH:
            raise ValueError(
                f"bandwidth={float(gamma):.6g}: expected a number from {LEAST_BANDWIDTH:g} to "
                f"{MOST_BANDWIDTH:g}; beyond, its square overflows or vanishes in float64. Give "
                "the rows other units, as scale=\"standardize\" does"
            )
        with np.errstate(over="ignore"):
            if not np.isfinite(z / gamma).all():
                raise ValueError(f"frequencies / bandwidth overflows: bandwidth={float(gamma)}")
        object.__setattr__(self, "frequencies", z)
        object.__setattr__(self, "phases", c)
        object.__setattr__(self, "bandwidth", float(gamma))
        if self.seed is not None and not hasattr(self.seed, "__index__"):
            raise TypeError(f"seed={self.seed!r}: expected an integer or None")
        if self.seed is not None:
            object.__setattr__(self, "seed", int(self.seed))  # one of numpy is not written as text
        if self.covariance is not None:
            v = as_floats(self.covariance, "covariance", "(d, d)", 2)
            if v.shape != (z.shape[1], z.shape[1]):
                raise ValueError(f"covariance must be {(z.shape[1],) * 2}, got {v.shape}")
            object.__setattr__(self, "covariance", v)

    @classmethod
    def draw(
        cls, n_features: int, bandwidth: float, covariance: ArrayLike, seed: int = 0
    ) -> Features:
        """Draw z_s ~ N(0, covariance) and c_s ~ Uniform(0, 2 pi).

        Parameters
        ----------
        n_features : S, at least 1
        bandwidth : gamma > 0
        covariance : (d, d), symmetric and positive semi-definite; ``np.eye(d)`` for a plain kernel
        seed : for numpy's default generator; the same seed gives the same features
        """
        n_features, seed = whole("n_features", n_features), whole("seed", seed, 0)
        v = as_floats(covariance, "covariance", "(d, d)", 2)
        if v.shape[0] != v.shape[1] or v.size == 0:
            raise ValueError(f"covariance must be square, got shape {v.shape}")
        if not np.allclose(v, v.T, rtol=1e-8, atol=1e-12 * np.abs(v).max()):
            raise ValueError("covariance must be symmetric")
        memory.check(
            3 * 8 * n_features * (len(v) + 1), f"n_features={n_features:,}", "use fewer features"
        )
        values, vectors = np.linalg.eigh(v)
        if values[0] < -1e-10 * max(values[-1], 0.0):
            raise ValueError(
                f"covariance must be positive semi-definite; its least eigenvalue is {values[0]:g}"
            )
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        rng = np.random.default_rng(seed)
        z = rng.standard_normal((n_features, len(v))) @ root
        c = rng.uniform(0.0, 2.0 * np.pi, n_features)
        return cls(z, c, bandwidth, covariance=v, seed=seed)

    def first(self, n: int) -> Features:
        """The first n of them: what was drawn is in no order, so that they serve as fewer draws."""
        return Features(
            self.frequencies[:n], self.phases[:n], self.bandwidth, covariance=self.covariance,
            seed=self.seed,
        )  # fmt: skip

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
        """max over s, t of |z_s +- z_t| / gamma along each axis, (d,): radians per unit of x."""
        limit: Array = 2.0 * np.abs(self.frequencies).max(axis=0) / self.bandwidth
        return limit

    @property
    def fingerprint(self) -> str:
        """Hash of frequencies, phases and bandwidth; equal where they are equal bit by bit."""
        digest = hashlib.sha256(repr(self.frequencies.shape).encode())
        for part in (self.frequencies, self.phases, np.float64(self.bandwidth)):
            digest.update(np.asarray(part).astype("<f8").tobytes())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Features):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        drawn = "" if self.seed is None else f", seed={self.seed}"
        return (
            f"Features(n_features={self.n_features}, dimension={self.dimension}, "
            f"bandwidth={self.bandwidth:.6g}{drawn})"
        )


def covariance_of_frequencies(kind: Any, covariance: Array) -> Array:
    """Of the data's covariance V: I, "data" d V / tr V or "precision" d V^-1 / tr V^-1; or the
    array that was given."""
    d = len(covariance)
    if not isinstance(kind, str):
        given = as_floats(kind, "frequency_covariance", f"({d}, {d})", 2)
        if given.shape != (d, d):
            raise ValueError(f"frequency_covariance must be ({d}, {d}), got {given.shape}")
        return given
    if kind == "identity":
        return np.eye(d)
    unit = covariance / (np.trace(covariance) / d)
    if kind == "data":
        return np.asarray(unit)
    precision = np.linalg.inv(unit)
    precision = 0.5 * (precision + precision.T)
    return np.asarray(precision * (d / np.trace(precision)))
