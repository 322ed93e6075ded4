"""`Spectrum`: rows spread on a grid, from which the statistics of any features are read (d <= 3).

The grid depends on no feature, bandwidth or noise level. It is filled once, chunk by chunk; grids
add and can be saved. A grid then gives the statistics of all features whose frequencies lie below
its band limit; `spread_grid` says how it is filled and read.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from .. import kernels
from ..data import storage
from ..data.blocks import Blocks, as_blocks
from ..data.moments import Moments
from ..data.scaling import Scaling
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime import memory
from ..runtime.progress import Progress
from ..validation import Array, positive
from .chunks import Rows, place_grid
from .direct import accumulate_direct
from .fourier_sums import (
    FourierSums,
    bandwidths_of,
    statistics_from_fourier_sums,
    target_memory,
    without_moments,
)
from .grid_box import choose_grid, sample_for_box
from .moment_sums import MomentSums
from .spread_grid import GridFiller, OutsideError, SpreadGrid
from .statistics import Statistics, check_features, check_levels, check_moments, check_origin
from .transforms import TRANSFORM_DIMENSIONS, eps_for, load_finufft

SPECTRUM_KIND = "spectrum"  # of a saved file
MOST_OUTSIDE = 1_000_000  # rows outside the box that are kept as they are: 24 MB of three columns


@dataclass(eq=False)
class Spectrum:
    """Rows spread on one grid, and the rows outside its box as they are; ``from_data`` makes it.

    Spectra with the same band limit, box and tolerance add: ``a + b`` is the spectrum of the rows
    of both.

    Attributes
    ----------
    bandlimit : (d,) array
        Radians per unit of x; frequencies |w_k| up to it can be read.
    low, high : (d,) array
        Corners of the box.
    tolerance : float
        Largest error of F(w) / n, where F(w) = sum_i w_i e^{i w . x_i}.
    grid : array
        The spread weights.
    n, sum_w2 : float
        Sums of the weights and of their squares.
    n_rows : int
    sum_x, sum_xx : (d,) and (d, d) array
        Sums over all rows about the center of the box.
    outside, outside_weights : (m, d) and (m,) array
        Rows outside the box.

    Examples
    --------
    >>> import numpy as np
    >>> import tgpfast as tgp
    >>> x = np.random.default_rng(0).standard_normal((1000, 2))
    >>> features = tgp.Features.draw(50, bandwidth=0.5, covariance=np.eye(2), seed=0)
    >>> spectrum = tgp.Spectrum.from_data(x, features.bandlimit)
    >>> spectrum.statistics(features).n_rows
    1000
    """

    bandlimit: Array
    low: Array
    high: Array
    tolerance: float
    grid: Array
    n: float
    n_rows: int
    sum_w2: float
    sum_x: Array
    sum_xx: Array
    outside: Array
    outside_weights: Array

    @classmethod
    def from_data(
        cls,
        X: Any,
        bandlimit: Any,
        *,
        box: Any = None,
        sample_weight: Any = None,
        tolerance: float = 1e-9,
        budget: Any = None,
        backend: str = "auto",
        n_threads: int | None = None,
        progress: bool = False,
    ) -> Spectrum:
        """Spread the rows of X, in one pass.

        Parameters
        ----------
        X : array, memmap, data frame, path or iterable
            Rows, as for ``accumulate``; at most three columns.
        bandlimit : float or (d,) array
            Radians per unit of x: ``features.bandlimit`` of the features with the smallest
            bandwidth to be asked for.
        box : pair of (d,) array, or None, default None
            Corners (low, high) of the box of the grid; rows outside are kept as they are. None
            chooses it from random rows of X, or from the first two million of a stream. Spectra
            that are to be added need the same box.
        sample_weight : (n,) array or None, default None
        tolerance : float, default 1e-9
            Largest error of F(w) / n.
        budget : int, str or None, default None
            Bytes, or text such as "2GB", that the grid may take; as for ``accumulate``.
        backend, n_threads, progress
            As for ``accumulate``.

        Raises
        ------
        ValueError
            If no grid fits the budget, or more than a million rows lie outside the box.
        """
        tolerance = positive("tolerance", tolerance)
        load_finufft()
        blocks = as_blocks(X, sample_weight=sample_weight)
        module = kernels.load(backend)
        count = kernels.resolve_threads(module, n_threads)
        limit = memory.budget(blocks.budget if budget is None else budget)
        if blocks.in_parts:
            if box is None:
                sample = sample_for_box(blocks)
                box = cls.box_for(sample, bandlimit, tolerance, limit, blocks.n_rows)
            part = functools.partial(
                _spread_partition, bandlimit=bandlimit, box=box, tolerance=tolerance, budget=limit
            )
            return blocks.reduce(part, backend, n_threads, progress)
        with (
            np.errstate(over="ignore", invalid="ignore"),  # overflow is explained at the end
            Progress(progress, "rows", blocks.n_rows) as bar,
        ):
            place, chunks = place_grid(
                blocks, lambda sample, n: choose_grid(sample, bandlimit, box, tolerance, limit, n)
            )
            return _fill(place, tolerance, chunks, module, count, bar)

    @classmethod
    def box_for(
        cls, sample: Array, bandlimit: Any, tolerance: float, budget: int,
        n_rows: int | None = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """The box that ``from_data`` would choose.

        Parameters
        ----------
        sample : (m, d) array
            Rows, spread over all.
        bandlimit : float or (d,) array
        tolerance : float
        budget : int
            Bytes that the grid may take.
        n_rows : int or None, default None
            Number of all rows; None where it is not known.

        Returns
        -------
        low, high : (d,) array

        Raises
        ------
        ValueError
            If no grid fits the budget.
        """
        grid = choose_grid(sample, bandlimit, None, tolerance, budget, n_rows)
        return grid.low, grid.high

    @property
    def dimension(self) -> int:
        """d."""
        return self._place.dimension

    @property
    def center(self) -> Array:
        """(d,) center of the box, about which sums of x are taken."""
        return self._place.center

    centre = center  # the spelling of earlier versions

    @property
    def spacing(self) -> Array:
        """(d,) distance between neighboring nodes along each axis."""
        return self._place.spacing

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes along each axis: the box, and finufft's kernel beyond its edges."""
        return self._place.shape

    @property
    def _place(self) -> SpreadGrid:
        return SpreadGrid(self.bandlimit, self.low, self.high, eps_for(self.tolerance))

    def statistics(
        self,
        features: Features,
        noise_levels: Any = (),
        *,
        origin: Any = None,
        gram_phi: bool = False,
        backend: str = "auto",
        n_threads: int | None = None,
    ) -> Statistics:
        """The statistics of these rows for any features below the band limit, without the data.

        Parameters
        ----------
        features, noise_levels, origin, gram_phi, backend, n_threads
            As for ``accumulate``.

        Raises
        ------
        ValueError
            If the features reach above the band limit; the message names a bandwidth that fits.
        """
        return self.scaled_statistics(
            features, noise_levels, Scaling.identity(self.dimension), origin=origin,
            gram_phi=gram_phi, backend=backend, n_threads=n_threads,
        )  # fmt: skip

    def scaled_statistics(
        self, features: Features, noise_levels: Any, scaling: Scaling, *, origin: Any = None,
        gram_phi: bool = False, backend: str = "auto", n_threads: int | None = None,
        weight: float = 1.0,
    ) -> Statistics:  # fmt: skip
        """``statistics`` of the rows (x - shift) / scale, with all weights multiplied.

        Parameters
        ----------
        features, noise_levels, origin, gram_phi, backend, n_threads
            As for ``accumulate``; features and origin live in scaled coordinates.
        scaling : Scaling
        weight : float, default 1.0
        """
        self._check_bandlimit(check_features(features), scaling)
        levels, about = check_levels(noise_levels), check_origin(origin, self.dimension)
        module = kernels.load(backend)
        count = kernels.resolve_threads(module, n_threads)
        sums = self._read(features, levels, scaling, weight, count)
        moments = self._scaled_moments(scaling, weight, about, module, count)
        provenance = {
            "engine": "spectrum", "backend": module.NAME, "precision": "float64",
            "tolerance": self.tolerance, "threads": count, "rows_outside": len(self.outside),
        }  # fmt: skip
        stats = statistics_from_fourier_sums(sums, moments, levels, gram_phi, provenance)
        if not len(self.outside):
            return stats
        rest = accumulate_direct(
            Blocks(scaling.apply(self.outside), sample_weight=weight * self.outside_weights),
            features, levels, about,
            gram_phi=gram_phi, precision="float64", backend=module, n_threads=count,
        )  # fmt: skip
        return replace(stats + without_moments(rest), provenance=provenance)

    def _check_bandlimit(self, features: Features, scaling: Scaling) -> None:
        if features.dimension != self.dimension:
            raise ValueError(
                f"features have dimension {features.dimension}, the spectrum {self.dimension}"
            )
        over = float((features.bandlimit / (self.bandlimit * scaling.scale)).max())
        if over > 1.0 + 1e-12:  # rounding of the quotient
            wanted = features.bandlimit / scaling.scale
            raise ValueError(
                f"the features reach {over:.4g} times the band limit of this spectrum; the same "
                f"frequencies fit with a bandwidth of {_round_up(features.bandwidth * over)} or "
                f"more, and this bandwidth with bandlimit={wanted.tolist()}"
            )

    def _read(
        self, features: Features, levels: Array, scaling: Scaling, weight: float, n_threads: int
    ) -> FourierSums:
        """Fourier sums of the scaled rows inside the box."""
        bandwidths = bandwidths_of(features, levels)
        memory.check(
            target_memory(features.n_features, len(bandwidths), self.dimension),
            f"reading {features.n_features:,} features at {len(bandwidths)} bandwidths",
            "use fewer features or noise levels",
        )
        sums = FourierSums(features, bandwidths, scaling.apply(self.center[None])[0])
        return sums.read(
            self._place, self.grid, n_threads, scale=scaling.scale, factor=weight,
            weight=self.n - float(self.outside_weights.sum()),
        )  # fmt: skip

    def _scaled_moments(
        self, scaling: Scaling, weight: float, origin: Array, module: ModuleType, n_threads: int
    ) -> MomentSums:
        """Sums of the scaled rows about the origin."""
        moments = MomentSums(origin)
        shift = scaling.apply(self.center[None])[0] - origin
        moments.n, moments.n_rows = weight * self.n, self.n_rows
        moments.sum_w2 = weight**2 * self.sum_w2
        sum_x = weight * self.sum_x / scaling.scale
        with np.errstate(over="ignore", invalid="ignore"):  # explained where they are assembled
            moments.sum_x = sum_x + moments.n * shift
            cross = np.outer(sum_x, shift)
            units = np.outer(scaling.scale, scaling.scale)
            moments.sum_xx = weight * self.sum_xx / units + cross + cross.T
            moments.sum_xx += moments.n * np.outer(shift, shift)
        return moments

    def moments(self) -> Moments:
        """Count, mean and covariance of all rows."""
        shift = self.sum_x / self.n
        scatter = self.sum_xx / self.n - np.outer(shift, shift)
        root = np.sqrt(np.maximum(np.diag(scatter), 0.0))
        safe = np.where(root > 0, root, 1.0)
        correlation = scatter / np.outer(safe, safe)
        return Moments(self.n, self.n**2 / self.sum_w2, self.center + shift, root, correlation)

    def __add__(self, other: object) -> Spectrum:
        if not isinstance(other, Spectrum):
            return NotImplemented
        for name in ("bandlimit", "low", "high", "tolerance"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if not np.array_equal(mine, theirs):
                raise ValueError(
                    f"these spectra cannot be added: {name} is {np.asarray(mine).tolist()} and "
                    f"{np.asarray(theirs).tolist()}; make both with the same bandlimit=, box= and "
                    "tolerance="
                )
        _check_outside(len(self.outside) + len(other.outside))
        return replace(
            self, grid=self.grid + other.grid, n=self.n + other.n,
            n_rows=self.n_rows + other.n_rows, sum_w2=self.sum_w2 + other.sum_w2,
            sum_x=self.sum_x + other.sum_x, sum_xx=self.sum_xx + other.sum_xx,
            outside=np.concatenate([self.outside, other.outside]),
            outside_weights=np.concatenate([self.outside_weights, other.outside_weights]),
        )  # fmt: skip

    def __radd__(self, other: object) -> Spectrum:
        if isinstance(other, int) and other == 0:  # so that sum(list_of_spectra) works
            return self
        return NotImplemented

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to an npz file without pickles; ``tgpfast.load`` reads it.

        Parameters
        ----------
        path : str or path
        """
        names = ("bandlimit", "low", "high", "sum_x", "sum_xx", "outside", "outside_weights")
        arrays = {name: getattr(self, name) for name in names}
        facts = {
            "tolerance": self.tolerance, "n": self.n, "n_rows": self.n_rows, "sum_w2": self.sum_w2,
        }  # fmt: skip
        storage.write(path, SPECTRUM_KIND, facts, {**arrays, "grid": self.grid})

    @classmethod
    def _from_file(cls, path: Any, facts: dict[str, Any], arrays: dict[str, Any]) -> Spectrum:
        band = storage.take(arrays, "bandlimit", None, path)
        d = band.size
        shapes = {"low": (d,), "high": (d,), "sum_x": (d,), "sum_xx": (d, d)}
        values: dict[str, Any] = {k: storage.take(arrays, k, v, path) for k, v in shapes.items()}
        weights = storage.take(arrays, "outside_weights", None, path)
        values["outside"] = storage.take(arrays, "outside", (weights.size, d), path)
        grid = storage.take(arrays, "grid", None, path)
        try:
            made = cls(
                bandlimit=band, tolerance=positive("tolerance", facts["tolerance"]), grid=grid,
                n=float(facts["n"]), n_rows=int(facts["n_rows"]), sum_w2=float(facts["sum_w2"]),
                outside_weights=weights, **values,
            )  # fmt: skip
            if arrays or not made._is_sound():
                raise ValueError("its members do not go together")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(path)!r} is damaged: {error}") from error
        return made

    def _is_sound(self) -> bool:
        """Whether the parts of a spectrum that was read from a file are consistent."""
        weights, d = self.outside_weights, self.bandlimit.size
        arrays = (
            self.bandlimit, self.grid, weights, self.low, self.high, self.sum_x, self.sum_xx,
            self.outside,
        )  # fmt: skip
        return bool(
            1 <= d <= TRANSFORM_DIMENSIONS and self.bandlimit.ndim == 1 and weights.ndim == 1
            and all(np.isfinite(a).all() for a in arrays) and (self.bandlimit > 0).all()
            and (self.low < self.high).all() and (weights >= 0).all() and 0 < self.n < np.inf
            and self.n_rows >= len(weights) and 0 < self.sum_w2 < np.inf
            and self.grid.shape == self.shape
        )  # fmt: skip

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        return f"Spectrum({self.n_rows:,} rows, d={self.dimension}, grid {size})"


def _fill(
    place: SpreadGrid, tolerance: float, chunks: Iterable[Rows], module: ModuleType, n_threads: int,
    bar: Progress,
) -> Spectrum:  # fmt: skip
    """The spectrum of all chunks."""
    filler = GridFiller(place, n_threads)
    moments = MomentSums(place.center)
    rows, weights = [np.zeros((0, place.dimension))], [np.zeros(0)]
    for x, w in chunks:
        moments.add(x, w)
        outside, own = filler.add(x, w)
        if len(outside):
            known = np.ones(len(outside)) if own is None else own
            rows.append(outside[known > 0.0])
            weights.append(known[known > 0.0])
            _check_outside(sum(map(len, rows)))
        bar.add(len(x))
    check_moments(moments.sum_x, moments.sum_xx)
    return Spectrum(
        bandlimit=np.array(place.bandlimit), low=place.low, high=place.high, tolerance=tolerance,
        grid=filler.grid, n=moments.n, n_rows=moments.n_rows, sum_w2=moments.sum_w2,
        sum_x=moments.sum_x, sum_xx=moments.sum_xx, outside=np.concatenate(rows),
        outside_weights=np.concatenate(weights),
    )  # fmt: skip


def _spread_partition(
    blocks: Blocks, threads: Threads, bandlimit: Any, **options: Any
) -> Spectrum:
    return Spectrum.from_data(
        blocks, bandlimit, **threads.options, **options
    )


def _round_up(value: float) -> str:
    """Six digits, never below the value."""
    text = f"{value:.6g}"
    return text if float(text) >= value else f"{value * (1.0 + 1e-5):.6g}"


def _check_outside(count: int) -> None:
    if count > MOST_OUTSIDE:
        raise OutsideError(
            f"{count:,} rows lie outside the box of this spectrum, which keeps at most "
            f"{MOST_OUTSIDE:,} as they are; give a wider box=(low, high)"
        )


storage.register_reader(SPECTRUM_KIND, Spectrum._from_file)
