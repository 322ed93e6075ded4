"""`Statistics`: mergeable sufficient statistics, sums over rows that serve every estimator."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..data import storage
from ..features.random import Features
from ..validation import LEAST_SCALE, MOST_SCALE, Array, as_floats, check_flag
from .mergeable_sums import Comparisons, MergeableSums, as_list, read_counts
from .moment_sums import MomentSums

LevelSums = tuple[Array, Array, Array]  # sum phi (S,), sum phi' (S,), sum phi' x^T (S, d)

STATISTICS_KIND = "statistics"  # of a saved file
SYMMETRIC = ("gram", "gram_phi", "noise_gram")  # sums that are saved and sent as triangles


def check_features(features: Any) -> Features:
    """The features, or TypeError for anything else."""
    if not isinstance(features, Features):
        raise TypeError(f"features must be tgpfast.Features, got {type(features).__name__}")
    return features


def check_levels(noise_levels: Any) -> Array:
    """The noise levels as (H,) float64: finite, not negative, distinct, in the order given."""
    levels = np.zeros(0)
    if np.size(noise_levels):
        levels = as_floats(noise_levels, "noise_levels", "(H,)", 1)
    if (levels < 0).any():
        raise ValueError(f"noise_levels must not be negative, got {levels.min()}")
    bad = levels[(levels > 0) & ((levels < LEAST_SCALE) | (levels > MOST_SCALE))]
    if len(bad):
        raise ValueError(
            f"noise_levels has {bad[0]:.6g}; expected 0, or numbers from {LEAST_SCALE:g} to "
            f"{MOST_SCALE:g}, whose squares float64 holds"
        )
    if len(np.unique(levels)) != len(levels):
        raise ValueError(f"noise_levels must be distinct, got {levels.tolist()}")
    return levels


def check_origin(origin: Any, d: int) -> Array:
    """The origin as (d,) float64; None is zero."""
    return np.zeros(d) if origin is None else as_floats(origin, "origin", (d,))


def check_feature_sums(sum_phi: Array) -> None:
    """ValueError where the angles of some rows overflowed."""
    if not np.isfinite(sum_phi).all():
        raise ValueError(
            "the features of some rows are not finite: |x| / bandwidth overflows. "
            "Scale the data or raise the bandwidth"
        )


def check_moments(sum_x: Array, sum_xx: Array) -> None:
    """ValueError where the squares of some rows overflowed; it names the column."""
    if not (np.isfinite(sum_x).all() and np.isfinite(sum_xx).all()):
        column = int(np.flatnonzero(~np.isfinite(np.diag(sum_xx)))[0])
        raise ValueError(
            f"the sum of squares of column {column} overflows; scale the data, or give an "
            "origin near them"
        )


def pack_triangle(matrix: Array) -> Array:
    """The upper triangle of a symmetric matrix, row by row: half the bytes.

    Examples
    --------
    >>> import numpy as np
    >>> pack_triangle(np.array([[1.0, 2.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    """
    return np.concatenate([row[i:] for i, row in enumerate(matrix)])


def unpack_triangle(triangle: Array, n: int) -> Array:
    """The symmetric (n, n) matrix whose upper triangle ``pack_triangle`` returned."""
    matrix, at = np.empty((n, n)), 0
    for i in range(n):
        matrix[i, i:] = matrix[i:, i] = triangle[at : at + n - i]
        at += n - i
    return matrix


@dataclass(frozen=True, eq=False)
class Statistics(MergeableSums):
    """Weighted sums over the rows of a data set, from which every estimator is solved.

    With phi_s(x) = sqrt(2/S) cos(z_s . x / gamma + c_s) and phi' the same with -sin:

    - ``a + b`` is the statistics of both data sets, ``total - part`` that of the remaining rows.
      Both need equal features, origin, noise levels and parts; else ValueError says what differs.
    - ``stats += rows`` accumulates rows with the same features and options.
    - ``stats.decay(0.99)`` reduces the weight of old rows.

    All of these return new statistics, since models hold the old ones.

    Attributes
    ----------
    features : Features
        The features that were evaluated.
    n : float
        Sum of the weights.
    n_rows : int
        Number of rows.
    sum_w2 : float
        Sum of the squared weights.
    origin : (d,) array
        Point about which the sums of x are taken.
    sum_x, sum_xx : (d,) and (d, d) array
        Sums of x and of x x^T.
    sum_phi, sum_dphi : (S,) array
        Sums of phi and of phi'.
    sum_dphi_x : (S, d) array
        Sum of phi' x^T.
    gram : (S, S) array
        Phi' = sum of phi' phi'^T.
    gram_phi : (S, S) array or None
        Phi = sum of phi phi^T.
    noise_levels : (H,) array
    noise_gram : (S, S) array or None
        The matrix A of Algorithm 3 without the factor ZZ^T.
    noise_sum_phi, noise_sum_dphi : (H, S) array
        The sums of phi and phi' with the bandwidth of every noise level.
    noise_sum_dphi_x : (H, S, d) array
    provenance : dict
        Engine, backend, precision, tolerance and threads that made the sums.
    sum_dphi_score : (S, d) array or None
        Sum of phi' s0(x)^T, where s0 is the score of the base that was given to ``accumulate``. The
        only part that depends on a base.
    score_base : str or None
        Fingerprint of that base.

    References
    ----------
    The sums of Algorithms 2 (FD) and 3 (NCFD) of the paper.

    Examples
    --------
    >>> import numpy as np
    >>> import tgpfast as tgp
    >>> x = np.random.default_rng(0).standard_normal((1000, 2))
    >>> features = tgp.Features.draw(50, bandwidth=0.5, covariance=np.eye(2), seed=0)
    >>> stats = tgp.Statistics.zero(features)
    >>> for block in np.array_split(x, 4):
    ...     stats += block
    >>> stats.n_rows
    1000
    """

    not_added = ("features", "origin", "noise_levels", "provenance", "score_base")

    features: Features
    origin: Array
    sum_x: Array
    sum_xx: Array
    sum_phi: Array
    sum_dphi: Array
    sum_dphi_x: Array
    gram: Array
    gram_phi: Array | None
    noise_levels: Array
    noise_gram: Array | None
    noise_sum_phi: Array
    noise_sum_dphi: Array
    noise_sum_dphi_x: Array
    sum_dphi_score: Array | None = None
    score_base: str | None = None

    @classmethod
    def zero(
        cls,
        features: Features,
        *,
        noise_levels: Any = (),
        origin: Any = None,
        gram_phi: bool = False,
        base: Any = None,
    ) -> Statistics:
        """The statistics of no rows, to which the rows of a stream are added.

        Parameters
        ----------
        features, noise_levels, origin, gram_phi, base
            As for ``accumulate``.
        """
        levels, gram_phi = check_levels(noise_levels), check_flag("gram_phi", gram_phi)
        S, d, H = features.n_features, features.dimension, len(levels)
        return cls(
            features=features, n=0.0, n_rows=0, sum_w2=0.0, origin=check_origin(origin, d),
            sum_x=np.zeros(d), sum_xx=np.zeros((d, d)),
            sum_phi=np.zeros(S), sum_dphi=np.zeros(S), sum_dphi_x=np.zeros((S, d)),
            gram=np.zeros((S, S)), gram_phi=np.zeros((S, S)) if gram_phi else None,
            noise_levels=levels, noise_gram=np.zeros((S, S)) if H else None,
            noise_sum_phi=np.zeros((H, S)), noise_sum_dphi=np.zeros((H, S)),
            noise_sum_dphi_x=np.zeros((H, S, d)),
            sum_dphi_score=None if base is None else np.zeros((S, d)),
            score_base=None if base is None else base.fingerprint,
        )  # fmt: skip

    def first_features(self, n: int) -> Statistics:
        """The statistics of the first n features, whose amplitude sqrt(2 / n) is larger.

        Parameters
        ----------
        n : int
            At most the number of features.

        Returns
        -------
        Statistics
        """
        factor = float(np.sqrt(self.features.n_features / n))
        parts: dict[str, Any] = {}
        for name in ("sum_phi", "sum_dphi", "sum_dphi_x", "sum_dphi_score"):
            value = getattr(self, name)
            parts[name] = None if value is None else factor * value[:n]
        for name in ("gram", "gram_phi", "noise_gram"):
            value = getattr(self, name)
            parts[name] = None if value is None else factor**2 * value[:n, :n]
        for name in ("noise_sum_phi", "noise_sum_dphi", "noise_sum_dphi_x"):
            parts[name] = factor * getattr(self, name)[:, :n]
        return replace(self, features=self.features.first(n), **parts)

    def __iadd__(self, other: Any) -> Statistics:  # type: ignore[misc]  # takes more than ``+``
        """Add statistics, or rows as for ``accumulate``; a pair is (rows, weights)."""
        if isinstance(other, Statistics):
            return self + other
        is_number = np.isscalar(other) and not isinstance(other, str)  # a str is a path
        if other is None or isinstance(other, (dict, set)) or is_number:
            return NotImplemented
        if self.score_base is not None:
            raise ValueError(
                "these statistics hold the score of a base, which rows alone do not give; add "
                "accumulate(rows, features, base=base) with the same options"
            )
        rows, weights = other if (isinstance(other, tuple) and len(other) == 2) else (other, None)
        return self + _accumulators[0](
            rows, self.features, sample_weight=weights, noise_levels=self.noise_levels,
            origin=self.origin, gram_phi=self.gram_phi is not None, **self.accuracy_options(),
        )  # fmt: skip

    def accuracy_options(self) -> dict[str, Any]:
        """``precision`` and ``tolerance`` for rows to add: the best that was used so far."""
        tolerances = as_list(self.provenance.get("tolerance"))
        kept = [t for t in tolerances if isinstance(t, float) and t > 0.0]
        is_mixed = as_list(self.provenance.get("precision")) == ["mixed"]
        precision = "mixed" if is_mixed else "float64"
        return {"precision": precision, **({"tolerance": min(kept)} if kept else {})}

    @property
    def fingerprint(self) -> str:
        """Hash of what must be equal so that two statistics can be added."""
        digest = hashlib.sha256(self.features.fingerprint.encode())
        for part in (self.origin, self.noise_levels):
            digest.update(part.astype("<f8").tobytes())
        digest.update(repr(self.gram_phi is not None).encode())
        if self.score_base is not None:
            digest.update(self.score_base.encode())
        return digest.hexdigest()

    def _compared(self, other: Statistics) -> Comparisons:
        a, b = self.features, other.features
        part = "phases" if np.array_equal(a.frequencies, b.frequencies) else "frequencies"
        seeds = "" if a.seed == b.seed else f" (seeds {a.seed} and {b.seed})"
        return (
            (a.dimension, b.dimension, "their features have dimensions {} and {}"),
            (a.n_features, b.n_features, "they have {} and {} features"),
            (a.bandwidth, b.bandwidth, "their bandwidths are {!r} and {!r}"),
            (a.fingerprint, b.fingerprint, f"their features have different {part}{seeds}"),
            (self.origin.tolist(), other.origin.tolist(), "their origins are {} and {}"),
            (
                self.noise_levels.tolist(), other.noise_levels.tolist(),
                "their noise levels are {} and {}",
            ),
            (
                self.gram_phi is None, other.gram_phi is None,
                "one has gram_phi and the other not; accumulate both with the same gram_phi",
            ),
            (
                self.score_base, other.score_base,
                "they were accumulated with different bases; use the same base for both",
            ),
        )  # fmt: skip

    def pack(self) -> Statistics:
        """The same with upper triangles instead of symmetric matrices; these add as well."""
        return self._reshaped(pack_triangle)

    def unpack(self) -> Statistics:
        """The inverse of ``pack``."""
        return self._reshaped(functools.partial(unpack_triangle, n=self.features.n_features))

    def _reshaped(self, function: Callable[[Array], Array]) -> Statistics:
        matrices = {name: getattr(self, name) for name in SYMMETRIC}
        made: Any = {name: function(m) for name, m in matrices.items() if m is not None}
        return replace(self, **made)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to an npz file without pickles; ``tgpfast.load`` reads it.

        Parameters
        ----------
        path : str or path
        """
        (facts, sums), (of_features, arrays) = self.to_members(), self.features.members
        storage.write(path, STATISTICS_KIND, {**facts, **of_features}, {**arrays, **sums})

    def to_members(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Facts and arrays to save, without those of the features."""
        return MergeableSums.to_members(self.pack())

    @classmethod
    def _from_file(cls, path: Any, facts: dict[str, Any], arrays: dict[str, Any]) -> Statistics:
        return cls.from_members(path, Features.from_members(path, facts, arrays), facts, arrays)

    @classmethod
    def from_members(
        cls, path: Any, features: Features, facts: dict[str, Any], arrays: dict[str, Any]
    ) -> Statistics:
        """What ``to_members`` returned, read from a file.

        Parameters
        ----------
        path : str or path
            The file, for error messages.
        features : Features
        facts : dict
        arrays : dict
            Emptied: each array is taken out of it.

        Returns
        -------
        Statistics

        Raises
        ------
        ValueError
            If the file is damaged.
        """
        levels = check_levels(storage.take(arrays, "noise_levels", None, path))
        (S, d), H = features.frequencies.shape, len(levels)
        shapes = {
            "origin": (d,), "sum_x": (d,), "sum_xx": (d, d), "sum_phi": (S,), "sum_dphi": (S,),
            "sum_dphi_x": (S, d), "noise_sum_phi": (H, S), "noise_sum_dphi": (H, S),
            "noise_sum_dphi_x": (H, S, d),
        }  # fmt: skip
        values: dict[str, Any] = {k: storage.take(arrays, k, v, path) for k, v in shapes.items()}
        for name in SYMMETRIC:
            wanted = name == "gram" or (name in arrays if name == "gram_phi" else H > 0)
            triangle = (S * (S + 1) // 2,)
            values[name] = storage.take(arrays, name, triangle, path) if wanted else None
        if facts.get("score_base") is not None:
            values["sum_dphi_score"] = storage.take(arrays, "sum_dphi_score", (S, d), path)
        storage.check_all_taken(arrays, path)
        packed = cls(
            features=features, noise_levels=levels,
            score_base=facts.get("score_base"), **read_counts(facts), **values,
        )  # fmt: skip
        return packed.unpack()

    def __repr__(self) -> str:
        noise = f", {len(self.noise_levels)} noise levels" if len(self.noise_levels) else ""
        made = "/".join(str(self.provenance[k]) for k in ("engine", "backend", "precision")
                        if k in self.provenance)
        return (
            f"Statistics({self.n_rows} rows, n={self.n:.6g}, {self.features.n_features} features, "
            f"d={self.features.dimension}{noise}{', ' + made if made else ''})"
        )


def make_statistics(
    features: Features, moments: MomentSums, levels: Sequence[LevelSums], noise_levels: Array,
    gram: Array, gram_phi: Array | None, noise_gram: Array, provenance: dict[str, Any],
) -> Statistics:  # fmt: skip
    """The statistics of the sums that an engine has made.

    Parameters
    ----------
    features : Features
    moments : MomentSums
    levels : sequence of LevelSums
        Those of the data, then those of every noise level above zero.
    noise_levels : (H,) array
    gram : (S, S) array
    gram_phi : (S, S) array or None
    noise_gram : (S, S) array, or (0, 0) without noise levels
        The sum over the noise levels above zero; that of zero is added to it.
    provenance : dict

    Raises
    ------
    ValueError
        If rows were so large that their squares or features overflow.
    """
    check_feature_sums(levels[0][0])
    check_moments(moments.sum_x, moments.sum_xx)
    above = iter(levels[1:])
    noisy = [levels[0] if sigma == 0.0 else next(above) for sigma in noise_levels]
    if 0.0 in noise_levels:  # Delta = 1: Phi drops out, and Phi' is that of the data
        noise_gram += gram / features.bandwidth**2
    noise = [
        np.array([sums[k] for sums in noisy]).reshape(-1, *of_data.shape)
        for k, of_data in enumerate(levels[0])
    ]
    return Statistics(
        features=features, n=float(moments.n), n_rows=moments.n_rows,
        sum_w2=float(moments.sum_w2), origin=moments.origin, sum_x=moments.sum_x,
        sum_xx=moments.sum_xx, sum_phi=levels[0][0], sum_dphi=levels[0][1],
        sum_dphi_x=levels[0][2], gram=gram, gram_phi=gram_phi, noise_levels=noise_levels,
        noise_gram=noise_gram if len(noise_levels) else None, noise_sum_phi=noise[0],
        noise_sum_dphi=noise[1], noise_sum_dphi_x=noise[2], provenance=provenance,
    )  # fmt: skip


_accumulators: list[Callable[..., Statistics]] = []


def register_accumulator(accumulate: Callable[..., Statistics]) -> None:
    """Set the function by which ``stats += rows`` turns rows into statistics."""
    _accumulators[:] = [accumulate]


storage.register_reader(STATISTICS_KIND, Statistics._from_file)
