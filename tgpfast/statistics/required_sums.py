"""The sums over all rows that a method needs, for features whose bandwidth is still to be chosen.

MAP needs the sum of the features alone; the other methods need `Statistics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..data.blocks import Blocks
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime.records import record
from ..validation import Array
from .accumulation import accumulate
from .feature_means import (
    FeatureMeans,
    accumulate_feature_means,
    accumulate_feature_means_of_each,
)
from .lattice_statistics import LatticeStatistics
from .statistics import Statistics
from .transforms import TRANSFORM_DIMENSIONS, has_finufft

if TYPE_CHECKING:
    from .spectrum import Spectrum

MANY_ROWS = 50_000  # from here on a further pass over the rows is not cheap
FEATURE_MEAN_TOLERANCE = 1e-9  # largest error of a mean of features: far below its sampling error

RowSums = Statistics | FeatureMeans


@record
class RequiredSums:
    """Call it with features to get their sums over all rows.

    The sums come from where they are cheapest: those already made, a `Spectrum`, or a pass.

    Attributes
    ----------
    rows : Blocks
    base : Base
        The base that is tilted.
    method : str
        "fd", "ncfd", "fvpd" or "map".
    origin : (d,) array
        Point near the data, about which sums of x are taken.
    noise_levels : (H,) array or tuple
    means_only : bool
        Whether the sum of the features is all that is needed.
    engine, precision, tolerance
        As for ``accumulate``.
    threads : Threads
    progress : bool
    spectrum : Spectrum or None, default None
        Grid from which statistics are read.
    known : tuple of FeatureMeans, default ()
        Sums that a pass has already made.
    """

    rows: Blocks
    base: Base
    method: str
    origin: Array
    noise_levels: Any
    means_only: bool
    engine: str
    precision: str
    tolerance: float
    threads: Threads
    progress: bool
    spectrum: Spectrum | None = None
    known: tuple[FeatureMeans, ...] = ()

    def __call__(self, features: Features) -> RowSums:
        """The sums of these features."""
        for means in self.known:
            if means.features == features:
                return means
        if self.means_only:
            return accumulate_feature_means(
                self.rows, features, self.origin, tolerance=FEATURE_MEAN_TOLERANCE,
                progress=self.progress, **self.threads.options,
            )  # fmt: skip
        if self.spectrum is not None:
            return self.spectrum.statistics(features, origin=self.origin, **self.threads.options)
        return accumulate(
            self.rows, features, noise_levels=self.noise_levels, origin=self.origin,
            engine=self.engine, precision=self.precision, base=self.base,
            tolerance=self.tolerance, progress=self.progress, **self.threads.options,
        )  # fmt: skip

    @property
    def are_cheap(self) -> bool:
        """Whether sums for several bandwidths may be asked for."""
        return self.means_only or self.spectrum is not None

    def for_bandwidths(self, features: Features, candidates: Sequence[Features]) -> RequiredSums:
        """The same after one pass that prepares several bandwidths, where that is possible.

        The pass sums the features of all candidates, or spreads the rows on a grid. From the grid
        the statistics of ``features`` with any bandwidth of a candidate, or a larger one, are read.

        Parameters
        ----------
        features : Features
        candidates : sequence of Features
            Some of the features, with the bandwidths that are to be compared.
        """
        from .spectrum import Spectrum
        from .spread_grid import OutsideError

        if self.means_only:
            known = accumulate_feature_means_of_each(
                self.rows, candidates, self.origin, tolerance=FEATURE_MEAN_TOLERANCE,
                progress=self.progress, **self.threads.options,
            )  # fmt: skip
            return replace(self, known=tuple(known))
        if not self._can_use_spectrum(features):
            return self
        narrowest = replace(features, bandwidth=min(few.bandwidth for few in candidates))
        try:
            spectrum = Spectrum.from_data(
                self.rows, narrowest.bandlimit, tolerance=self.tolerance, progress=self.progress,
                **self.threads.options,
            )  # fmt: skip
        except OutsideError:
            return self
        return replace(self, spectrum=spectrum)

    def _can_use_spectrum(self, features: Features) -> bool:
        """Whether a grid holds what the method needs, nothing else was asked for, and it pays."""
        return (
            self.method in ("fd", "fvpd") and self.engine != "direct"
            and isinstance(self.base, GaussianBase) and self.precision != "mixed"
            and features.dimension <= TRANSFORM_DIMENSIONS
            and (self.rows.n_rows or 0) >= MANY_ROWS and has_finufft()
        )  # fmt: skip


def accumulate_like(
    stats: RowSums | LatticeStatistics, rows: Blocks, base: Base, **options: Any
) -> Any:
    """The same kind of sums, with the same features and accuracy, over other rows.

    Parameters
    ----------
    stats : Statistics, FeatureMeans or LatticeStatistics
    rows : Blocks
    base : Base
        The base whose score the statistics hold, if they hold one.
    options
        ``backend``, ``n_threads`` and ``progress``.
    """
    if isinstance(stats, LatticeStatistics):
        return accumulate(
            rows, stats.features, noise_levels=stats.noise_levels,
            base=base if stats.scores_of else None, **options,
        )  # fmt: skip
    if isinstance(stats, FeatureMeans):
        return accumulate_feature_means(
            rows, stats.features, base.mean, tolerance=FEATURE_MEAN_TOLERANCE, **options
        )
    return accumulate(
        rows, stats.features, noise_levels=stats.noise_levels, origin=stats.origin,
        gram_phi=stats.gram_phi is not None, base=base if stats.score_base else None,
        **stats.accuracy_options(), **options,
    )  # fmt: skip
