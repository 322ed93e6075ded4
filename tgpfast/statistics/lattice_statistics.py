"""`LatticeStatistics`: sums over rows of the waves of a lattice, which add, nest and save."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..data import storage
from ..features.lattice import LatticeFeatures
from ..features.lattice_transform import Modes
from ..validation import Array
from .mergeable_sums import Comparisons, MergeableSums, read_counts
from .statistics import check_levels

KIND = "lattice"  # of a saved file
POSITIONS = "positions"  # mark of sums weighted by x, which serve every Gaussian base


@dataclass(frozen=True, eq=False)
class LatticeStatistics(MergeableSums):
    """Weighted sums over rows of the waves of a lattice. ``a + b`` is those of both sets of rows,
    ``total - part`` those of the rows left over.

    Attributes
    ----------
    features : LatticeFeatures
        Its kernel and bandwidth do not matter for the sums, except for those of noise levels.
    n : float
        Sum of the weights.
    n_rows : int
    sum_w2 : float
        Sum of the squared weights.
    modes : array
        sum_i w_i T(x_i) e^{-i w_k . (x_i - origin)}, |k_j| <= m_j; cosines on wall axes. Where a
        base was given, |k_j| <= 2 m_j, as score matching needs.
    sum_log_bases : (B,) array
        sum_i w_i log base(x_i) for each of the bases given to the pass.
    core_modes : array of the doubled mode shape, or None
        As ``modes``, over the rows in the core, where T = 1. None unless a base was given.
    core_scores : (d, mode shape) array, or None
        Sums over the rows in the core, weighted by a component of the position about the center of
        the box, or of the base's score; with sines along the wall axis of that component.
    scores_of : str or None
        "positions", or the fingerprint of the base.
    noise_levels : (H,) array
        The sigmas.
    noise_modes : array of the doubled mode shape, or None
        Sum over levels of r^2 exp(-sigma^2 |r w_k|^2 / 2) times the sums of e^{-i r w_k . x},
        r = bandwidth / sqrt(bandwidth^2 + sigma^2).
    noise_core_modes : (H, mode shape) array, or None
        The sums of e^{-i r w_k . x} of every level.
    noise_core_scores : (H, d, mode shape) array, or None
        The same weighted by position.
    provenance : dict
        How the sums were made.
    """

    not_added = ("features", "scores_of", "noise_levels", "provenance")

    features: LatticeFeatures
    modes: Modes
    sum_log_bases: Array = field(default_factory=lambda: np.zeros(0))
    core_modes: Modes | None = None
    core_scores: Modes | None = None
    scores_of: str | None = None
    noise_levels: Array = field(default_factory=lambda: np.zeros(0))
    noise_modes: Modes | None = None
    noise_core_modes: Modes | None = None
    noise_core_scores: Modes | None = None

    @property
    def band(self) -> LatticeFeatures:
        """The lattice of ``modes``: for score matching twice as many along each axis."""
        return band_of(self.features, has_scores=self.scores_of is not None)

    @functools.cached_property
    def sum_waves(self) -> Modes:
        """``modes`` with |k_j| <= m_j: all that MAP needs of the rows."""
        return self.band.resize_modes(self.modes, self.features.n_modes)

    def _compared(self, other: LatticeStatistics) -> Comparisons:
        mine, theirs = self.features, other.features
        has_levels = len(self.noise_levels) > 0  # their sums depend on the bandwidth
        return (
            (
                mine.box_fingerprint, theirs.box_fingerprint,
                "their lattices differ in box, modes or walls",
            ),
            (self.scores_of, other.scores_of, "they were made with different bases"),
            (
                self.noise_levels.tolist(), other.noise_levels.tolist(),
                "their noise levels are {} and {}",
            ),
            (
                has_levels and mine.bandwidth, has_levels and theirs.bandwidth,
                "they have noise levels and different bandwidths",
            ),
            (
                len(self.sum_log_bases), len(other.sum_log_bases),
                "they have sums of different numbers of bases",
            ),
        )  # fmt: skip

    def with_kernel(self, kernel: str, bandwidth: float) -> LatticeStatistics:
        """The same sums for another prior.

        Raises
        ------
        ValueError
            If there are noise levels: their sums depend on the bandwidth.
        """
        if len(self.noise_levels) and bandwidth != self.features.bandwidth:
            raise ValueError(
                "sums of noise levels belong to one bandwidth; accumulate them again with the other"
            )
        return replace(self, features=self.features.with_kernel(kernel, bandwidth))

    def corner(self, n_modes: int | Sequence[int]) -> LatticeStatistics:
        """The sums of a lattice with fewer modes in the same box.

        Parameters
        ----------
        n_modes : int or (d,) ints
            At most those of these statistics.

        Returns
        -------
        LatticeStatistics
        """
        smaller = self.features.with_modes(n_modes)
        if any(a > b for a, b in zip(smaller.n_modes, self.features.n_modes, strict=True)):
            raise ValueError(
                f"n_modes={smaller.n_modes}: these sums reach {self.features.n_modes} only"
            )
        parts: dict[str, Any] = {}
        for lattice, names in (
            (self.band, ("modes", "core_modes", "noise_modes")),
            (self.features, ("core_scores", "noise_core_modes", "noise_core_scores")),
        ):
            has_scores = lattice is not self.features and self.scores_of is not None
            aim = band_of(smaller, has_scores=has_scores)
            for name in names:
                value = getattr(self, name)
                if value is not None:
                    parts[name] = lattice.resize_modes(value, aim.n_modes)
        return replace(self, features=smaller, **parts)

    # -- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to an npz file without pickles; ``tgpfast.load`` reads it."""
        storage.write(path, KIND, *self.to_members())

    def to_members(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Facts and arrays to save, those of the features included."""
        facts, arrays = self.features.members
        counts, sums = super().to_members()
        return facts | counts, arrays | sums

    @classmethod
    def from_members(
        cls, path: Any, facts: dict[str, Any], arrays: dict[str, Any]
    ) -> LatticeStatistics:
        """What ``to_members`` returned, read from a file, whose path is for error messages."""
        box = ("lengths", "origin", "margin")
        features = LatticeFeatures.from_members(
            facts, {name: storage.take(arrays, name, None, path) for name in box}
        )
        levels = check_levels(storage.take(arrays, "noise_levels", None, path))
        shapes = shapes_of_sums(features, len(levels), facts["scores_of"] is not None)
        logs = storage.take(arrays, "sum_log_bases", None, path)
        sums: dict[str, Any] = {"sum_log_bases": logs.reshape(-1)}
        for name, shape in shapes.items():
            sums[name] = take_modes(arrays, name, shape, features, path)
        storage.check_all_taken(arrays, path)
        return cls(
            features=features, scores_of=facts["scores_of"], noise_levels=levels,
            **read_counts(facts), **sums,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"LatticeStatistics(n_rows={self.n_rows:,}, n={self.n:.6g}, {self.features!r})"


def doubled(features: LatticeFeatures) -> LatticeFeatures:
    """The lattice with twice as many modes along each axis."""
    return features.with_modes([2 * m for m in features.n_modes])


def band_of(features: LatticeFeatures, *, has_scores: bool) -> LatticeFeatures:
    """The lattice whose sums a pass makes: score matching needs those of products of waves."""
    return doubled(features) if has_scores else features


def scores_kind(base: Base | None, features: LatticeFeatures) -> str | None:
    """What score sums of a base are marked by: "positions" of a Gaussian on a lattice of waves,
    which serve every Gaussian, else the fingerprint of the base; None without one."""
    if base is None:
        return None
    is_free = isinstance(base, GaussianBase) and not any(features.cosine)
    return POSITIONS if is_free else base.fingerprint


def shapes_of_sums(
    features: LatticeFeatures, n_levels: int, has_scores: bool
) -> dict[str, tuple[int, ...]]:
    """Shapes of the sums that statistics have."""
    d, narrow = features.dimension, features.mode_shape
    wide = band_of(features, has_scores=has_scores).mode_shape
    shapes: dict[str, tuple[int, ...]] = {"modes": wide}
    if has_scores:
        shapes |= {"core_modes": wide, "core_scores": (d, *narrow)}
    if n_levels:
        shapes |= {
            "noise_modes": wide, "noise_core_modes": (n_levels, *narrow),
            "noise_core_scores": (n_levels, d, *narrow),
        }  # fmt: skip
    return shapes


def take_modes(
    arrays: dict[str, Any], name: str, shape: tuple[int, ...], features: LatticeFeatures, path: Any
) -> Modes:
    """Modes of a file, complex or real as those of the features are."""
    saved_shape = shape if features.mode_dtype is np.float64 else (*shape, 2)
    return storage.from_reals(storage.take(arrays, name, saved_shape, path), features.mode_dtype)


storage.register_reader(KIND, LatticeStatistics.from_members)
