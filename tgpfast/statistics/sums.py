"""What `fit` needs of all rows, for features whose bandwidth may still change; and the same of
others."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..bases.gaussian import Base, GaussianBase
from ..data.blocks import Blocks
from ..features.random import Features
from ..validation import Array
from .accumulation import accumulate
from .feature_sums import FeatureSums, sum_features, sum_features_of_each
from .spectral import DIMENSIONS
from .spectrum import OutsideError, Spectrum
from .statistics import Statistics

MANY_ROWS = 50_000  # from here on a further pass over the rows is not cheap
TOLERANCE = 1e-9  # of sums of features

Summed = Statistics | FeatureSums


@dataclass(frozen=True, eq=False)
class Sums:
    """features -> sums over the rows: those of the features alone where these do, else statistics,
    which are read off a spectrum where there is one, and else take a pass.

    tolerance : of the spectral engine
    summed : sums of features that a pass has already made
    """

    rows: Blocks
    base: Base
    method: str
    centre: Array
    levels: Any
    by_features: bool
    engine: str
    precision: str
    tolerance: float
    progress: bool
    run: dict[str, Any]
    spectrum: Spectrum | None = None
    summed: tuple[FeatureSums, ...] = ()

    def __call__(self, features: Features) -> Summed:
        for known in self.summed:
            if known.features == features:
                return known
        if self.by_features:
            return sum_features(
                self.rows, features, self.centre, tolerance=TOLERANCE, progress=self.progress,
                **self.run,
            )  # fmt: skip
        if self.spectrum is not None:
            return self.spectrum.statistics(features, origin=self.centre, **self.run)
        return accumulate(
            self.rows, features, noise_levels=self.levels, origin=self.centre, engine=self.engine,
            precision=self.precision, base=self.base, tolerance=self.tolerance,
            progress=self.progress, **self.run,
        )  # fmt: skip

    @property
    def are_cheap(self) -> bool:
        """Whether several bandwidths may be asked for."""
        return self.by_features or self.spectrum is not None

    def for_bandwidths(self, features: Features, candidates: Sequence[Features]) -> Sums:
        """The same after one pass in which all candidates were summed, or in which the rows were
        spread on a grid, if that serves and the grid fits. The statistics of the candidates and of
        all features, with any bandwidth of a candidate, are then read off the grid.

        candidates : some of the features, with bandwidths that are to be compared
        """
        if self.by_features:
            summed = sum_features_of_each(
                self.rows, candidates, self.centre, tolerance=TOLERANCE, progress=self.progress,
                **self.run,
            )  # fmt: skip
            return replace(self, summed=tuple(summed))
        serves = (
            self.method in ("fd", "fvpd") and self.engine != "direct"
            and isinstance(self.base, GaussianBase) and self.precision != "mixed"
            and features.dimension <= DIMENSIONS and (self.rows.n_rows or 0) >= MANY_ROWS
            and importlib.util.find_spec("finufft") is not None
        )  # fmt: skip
        if not serves:
            return self
        narrow = replace(features, bandwidth=min(few.bandwidth for few in candidates))
        try:
            spectrum = Spectrum.from_data(
                self.rows, narrow.bandlimit, tolerance=self.tolerance, progress=self.progress,
                **self.run,
            )  # fmt: skip
        except OutsideError:
            return self
        return replace(self, spectrum=spectrum)


def sums_like(stats: Summed, rows: Blocks, base: Base, **options: Any) -> Summed:
    """The same sums over other rows. base : the one that statistics know the score of, if any"""
    if isinstance(stats, FeatureSums):
        return sum_features(rows, stats.features, base.mean, tolerance=TOLERANCE, **options)
    return accumulate(
        rows, stats.features, noise_levels=stats.noise_levels, origin=stats.origin,
        gram_phi=stats.gram_phi is not None, base=base if stats.score_base else None,
        **stats._accuracy(), **options,
    )  # fmt: skip
