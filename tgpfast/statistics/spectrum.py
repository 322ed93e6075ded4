"""`Spectrum`: data spread on a grid, from which the statistics of any features are read (d <= 3).

The grid knows no feature, bandwidth or noise level. It is filled once, chunk by chunk, adds, saves,
and then answers for every choice of features whose frequencies lie below its band limit; how it is
filled and read is in `spread_grid`.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, replace
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
from ..validation import Array, as_floats, positive
from .direct import accumulate_direct, check_sums
from .spectral import (
    DIMENSIONS,
    MARGIN,
    SAFETY,
    SAMPLE_ROWS,
    Chunks,
    SmallSums,
    Targets,
    Transforms,
    assemble,
    bandwidths_of,
    memory_budget,
    without_moments,
)
from .spread_grid import LEAST_EPS, Filling, SpreadGrid, load_finufft
from .statistics import Statistics, check_levels, check_origin

KIND = "spectrum"
CORES = (0.999, 0.99, 0.97, 0.9)  # share of the rows in the core: the first that fits
SMALL_CORES = (0.75, 0.5)  # tried where a grid has far more nodes than there are rows
FEW_NODES = 2**17  # a grid up to this size, or up to the number of rows, is never worth a look
ROW_NODES = 16  # nodes that take as long to read as one row outside the grid
FIRST_NUMBERS = 2**22  # of a stream, from which its box is made
MOST_OUTSIDE = 1_000_000  # points beyond the box that are kept as they are


@dataclass(eq=False)
class Spectrum:
    """Rows spread on one real grid, and those outside its box as they are. Made by ``from_data``.

    bandlimit : (d,) radians per unit of x; frequencies |w_k| up to it can be read
    low, high : (d,) the box
    tolerance : error of F(w) / n
    grid : the spread weights; ``n``, ``n_rows``, ``sum_w2``, ``sum_x``, ``sum_xx``: sums over all
        rows, those of x about the middle of the box
    outside, outside_weights : rows beyond the box
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
        X : rows, as for ``accumulate``; at most three columns
        bandlimit : radians per unit of x, a number or (d,); ``features.bandlimit`` of the features
            with the smallest bandwidth to be asked for
        box : (low, high), each (d,): where the grid lies. By default around rows spread evenly over
            X, or the first two million of a stream; spectra that are to be added need the same.
            Rows outside are kept as they are
        tolerance : error of F(w) / n
        budget : bytes or "2GB", as for ``accumulate``
        """
        tolerance = positive("tolerance", tolerance)
        load_finufft()
        blocks = X  # from a pass over partitions, which has judged them
        if not isinstance(X, Blocks):
            blocks = as_blocks(X, sample_weight=sample_weight)
        module = kernels.load(backend)
        count = kernels.resolve_threads(module, n_threads)
        limit = memory_budget(blocks.budget if budget is None else budget)
        if blocks.in_parts:
            if box is None:
                sample = blocks.pilot(SAMPLE_ROWS)[0]
                box = cls.box_for(sample, bandlimit, tolerance, limit, blocks.n_rows)
            part = functools.partial(
                _part, bandlimit=bandlimit, box=box, tolerance=tolerance, budget=limit
            )
            total: Spectrum = blocks.reduce(part, backend, n_threads, progress)
            return total
        spectrum: Spectrum | None = None
        left: list[tuple[Array, Array]] = []
        with (
            np.errstate(over="ignore", invalid="ignore"),  # overflow is explained at the end
            Progress(progress, "rows", blocks.n_rows) as bar,
        ):
            sample = blocks.pilot(SAMPLE_ROWS)
            if sample is not None:
                spectrum = cls._empty(sample[0], bandlimit, box, tolerance, limit, blocks.n_rows)
            first = FIRST_NUMBERS // max(blocks.dimension or 1, 1)
            chunks = Chunks(blocks, first if spectrum is None else spectrum._place.fill_rows)
            for x, w in chunks:
                if spectrum is None:  # a stream: a chunk that is not full is all of it
                    n_rows = len(x) if len(x) < first else None
                    spectrum = cls._empty(x, bandlimit, box, tolerance, limit, n_rows)
                if not spectrum.grid.size:
                    filling = Filling(spectrum._place, count)
                    chunks.rows = filling.place.fill_rows
                    spectrum.grid = filling.grid
                    small = SmallSums(x.shape[1], spectrum.centre, module, count)
                small.add(x, w)
                outside = filling.add(x, w)
                if outside is not None:
                    weights = np.ones(len(x)) if w is None else w
                    counts = outside & (weights > 0.0)
                    left.append((x[counts], weights[counts]))
                    _check_outside(sum(len(part) for part, _ in left))
                bar.add(len(x))
        assert spectrum is not None
        spectrum.n, spectrum.n_rows, spectrum.sum_w2 = small.n, small.n_rows, small.sum_w2
        spectrum.sum_x, spectrum.sum_xx = small.sum_x, small.sum_xx
        check_sums(np.zeros(1), small.sum_x, small.sum_xx)
        if left:
            spectrum.outside = np.concatenate([part for part, _ in left])
            spectrum.outside_weights = np.concatenate([part for _, part in left])
        return spectrum

    @classmethod
    def box_for(
        cls, sample: Array, bandlimit: Any, tolerance: float, budget: int,
        n_rows: int | None = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """(low, high) around rows of which these are some; `OutsideError` where no grid fits.

        Parameters
        ----------
        sample : (n, d) rows, spread over all
        bandlimit, tolerance : as for ``from_data``
        budget : bytes that the grid may take
        n_rows : number of all rows; None where there are more than can be counted
        """
        made = cls._empty(sample, bandlimit, None, tolerance, budget, n_rows)
        return made.low, made.high

    @classmethod
    def _empty(
        cls, x: Array, bandlimit: Any, box: Any, tolerance: float, limit: int, n_rows: int | None
    ) -> Spectrum:
        """One of no rows, whose grid fits the budget and is not much larger than n_rows need: a few
        outliers would else stretch it to millions of nodes, when rows outside are summed directly.
        x : some of the rows."""
        d = x.shape[1]
        if d > DIMENSIONS:
            raise ValueError(f"a Spectrum has at most {DIMENSIONS} dimensions, X has {d} columns")
        given = np.asarray(bandlimit)
        band = as_floats(np.full(d, given) if given.ndim == 0 else given, "bandlimit", f"({d},)", 1)
        if len(band) != d or not (band > 0).all():
            raise ValueError(f"bandlimit must be positive, a number or ({d},), got {bandlimit!r}")
        for core in CORES:
            low, high = _box(x, box, band, core)
            made = cls._of(band, low, high, tolerance)
            need = made._place.memory
            if need <= limit:
                nodes = made._place.nodes
                if box is not None or n_rows is None or nodes <= max(FEW_NODES, n_rows):
                    return made
                smaller = [c for c in (*CORES, *SMALL_CORES) if c <= core]
                grids = [cls._of(band, *_box(x, None, band, c), tolerance) for c in smaller]
                return min(grids, key=lambda grid: grid._work(x, n_rows))
            if box is not None:
                break
        shape = " x ".join(f"{float(m):.6g}" for m in made.shape)
        raise OutsideError(
            f"a grid of {shape} nodes would take {memory.human(need)}, "
            f"and the budget is {memory.human(limit)}; lower bandlimit (a larger bandwidth), give "
            "a smaller box, or raise budget="
        )

    @classmethod
    def _of(cls, band: Array, low: Array, high: Array, tolerance: float) -> Spectrum:
        """One of no rows, and without its grid."""
        d = len(band)
        return cls(
            bandlimit=np.array(band), low=low, high=high, tolerance=tolerance, grid=np.zeros(0),
            n=0.0, n_rows=0, sum_w2=0.0, sum_x=np.zeros(d), sum_xx=np.zeros((d, d)),
            outside=np.zeros((0, d)), outside_weights=np.zeros(0),
        )  # fmt: skip

    def _work(self, x: Array, n_rows: int) -> float:
        """What reading this grid takes, in nodes, for n_rows of which x are some."""
        inside = ((x >= self.low) & (x <= self.high)).all(axis=1)
        return self._place.nodes + ROW_NODES * n_rows * (1.0 - float(np.mean(inside)))

    @property
    def dimension(self) -> int:
        """d."""
        return self._place.dimension

    @property
    def centre(self) -> Array:
        """The middle of the box, about which positions are taken."""
        return self._place.centre

    @property
    def spacing(self) -> Array:
        """Distance of the grid's nodes along each axis."""
        return self._place.spacing

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes along each axis: the box, and the kernel beyond its edges."""
        return self._place.shape

    @property
    def _place(self) -> SpreadGrid:
        eps = max(SAFETY * self.tolerance, LEAST_EPS)
        return SpreadGrid(self.bandlimit, self.low, self.high, eps)

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
        features, noise_levels, origin, gram_phi, backend, n_threads : as for ``accumulate``
        """
        return self._scaled_statistics(
            features, noise_levels, Scaling.identity(self.dimension), origin=origin,
            gram_phi=gram_phi, backend=backend, n_threads=n_threads,
        )  # fmt: skip

    def moments(self) -> Moments:
        """Count, mean and covariance of all rows."""
        shift = self.sum_x / self.n
        scatter = self.sum_xx / self.n - np.outer(shift, shift)
        root = np.sqrt(np.maximum(np.diag(scatter), 0.0))
        safe = np.where(root > 0, root, 1.0)
        correlation = scatter / np.outer(safe, safe)
        kish = self.n**2 / self.sum_w2
        return Moments(self.n, kish, self.centre + shift, root, correlation)

    def _scaled_statistics(
        self,
        features: Features,
        noise_levels: Any,
        scaling: Scaling,
        *,
        origin: Any = None,
        gram_phi: bool = False,
        backend: str = "auto",
        n_threads: int | None = None,
        weight: float = 1.0,
    ) -> Statistics:
        """The statistics of (x - shift) / scale with all weights multiplied: of features that live
        in scaled coordinates, and in which origin is given."""
        if not isinstance(features, Features):
            raise TypeError(f"features must be tgpfast.Features, got {type(features).__name__}")
        if features.dimension != self.dimension:
            raise ValueError(
                f"features have dimension {features.dimension}, the spectrum {self.dimension}"
            )
        over = float((features.bandlimit / (self.bandlimit * scaling.scale)).max())
        if over > 1.0 + 1e-12:
            wanted = features.bandlimit / scaling.scale
            raise ValueError(
                f"the features reach {over:.4g} times the band limit of this spectrum; the same "
                f"frequencies fit with a bandwidth of {_rounded_up(features.bandwidth * over)} or "
                f"more, and this bandwidth with bandlimit={wanted.tolist()}"
            )
        levels, about = check_levels(noise_levels), check_origin(origin, self.dimension)
        module = kernels.load(backend)
        count = kernels.resolve_threads(module, n_threads)
        bandwidths = bandwidths_of(features, levels)
        memory.check(
            Targets.memory(features.n_features, len(bandwidths), self.dimension),
            f"reading {features.n_features:,} features at {len(bandwidths)} bandwidths",
            "use fewer features or noise levels",
        )
        middle = scaling.apply(self.centre[None])[0]
        sums = Transforms(features, bandwidths, middle)
        axes = [axis / s for axis, s in zip(sums.targets.axes, scaling.scale, strict=True)]
        base = list((sums.base / scaling.scale).T)
        F, G = self._place.sums(self.grid, axes, base, count)
        sums.F, sums.G = weight * F, weight * G / scaling.scale[:, None]
        sums.weight = weight * (self.n - float(self.outside_weights.sum()))
        provenance = {
            "engine": "spectrum", "backend": module.NAME, "precision": "float64",
            "tolerance": self.tolerance, "threads": count, "rows_outside": len(self.outside),
        }  # fmt: skip
        small = SmallSums(self.dimension, about, module, count)
        shift, units = middle - about, np.outer(scaling.scale, scaling.scale)
        small.n, small.n_rows = weight * self.n, self.n_rows
        small.sum_w2 = weight**2 * self.sum_w2
        sum_x = weight * self.sum_x / scaling.scale
        with np.errstate(over="ignore", invalid="ignore"):  # explained by assemble
            small.sum_x = sum_x + small.n * shift
            cross = np.outer(sum_x, shift)
            small.sum_xx = weight * self.sum_xx / units + cross + cross.T
            small.sum_xx += small.n * np.outer(shift, shift)
        stats = assemble(sums, small, levels, about, gram_phi, provenance)
        if not len(self.outside):
            return stats
        rest = accumulate_direct(
            Blocks(scaling.apply(self.outside), sample_weight=weight * self.outside_weights),
            features, levels, about,
            gram_phi=gram_phi, precision="float64", backend=module, n_threads=count,
        )  # fmt: skip
        whole = stats + without_moments(rest)
        return replace(whole, provenance=provenance)

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
        """Write to an npz file without pickles; ``tgpfast.load`` reads it."""
        names = ("bandlimit", "low", "high", "sum_x", "sum_xx", "outside", "outside_weights")
        arrays = {name: getattr(self, name) for name in names}
        facts = {
            "tolerance": self.tolerance, "n": self.n, "n_rows": self.n_rows, "sum_w2": self.sum_w2,
        }  # fmt: skip
        storage.write(path, KIND, facts, {**arrays, "grid": self.grid})

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
            fields = (band, grid, weights, *values.values())
            sound = [
                1 <= d <= DIMENSIONS, band.ndim == 1, weights.ndim == 1,
                all(np.isfinite(a).all() for a in fields), (band > 0).all(),
                (made.low < made.high).all(), (weights >= 0).all(), 0 < made.n < np.inf,
                made.n_rows >= len(weights), 0 < made.sum_w2 < np.inf,
            ]  # fmt: skip
            if arrays or not all(sound) or grid.shape != made.shape:
                raise ValueError("its members do not go together")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(path)!r} is damaged: {error}") from error
        return made

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        return f"Spectrum({self.n_rows:,} rows, d={self.dimension}, grid {size})"


def _box(x: Array, box: Any, band: Array, core: float) -> tuple[Array, Array]:
    d = x.shape[1]
    least = 1.0 / band  # a box needs some width, or constant columns would have none
    if box is not None:
        if not isinstance(box, (tuple, list, np.ndarray)) or len(box) != 2:
            raise ValueError(f"box must be a pair (low, high), got {box!r}")
        low, high = (as_floats(np.atleast_1d(side), "box", f"({d},)", 1) for side in box)
        if len(low) != d or len(high) != d or not (low < high).all():
            raise ValueError(f"box must be (low, high), each ({d},), with low below high")
        return np.array(low), np.array(high)
    middle = np.median(x, axis=0)
    reach = np.quantile(np.abs(x - middle), core, axis=0, method="lower")
    reach = MARGIN * np.maximum(reach, least)
    return middle - reach, middle + reach


def _rounded_up(value: float) -> str:
    """Six digits, never below the value."""
    text = f"{value:.6g}"
    return text if float(text) >= value else f"{value * (1.0 + 1e-5):.6g}"


def _part(blocks: Blocks, threads: Threads, bandlimit: Any, **options: Any) -> Spectrum:
    return Spectrum.from_data(
        blocks, bandlimit, backend=threads.backend, n_threads=threads.n_threads, **options
    )


class OutsideError(ValueError):
    """No grid within the budget holds the rows, or too many lie outside its box."""


def _check_outside(count: int) -> None:
    if count > MOST_OUTSIDE:
        raise OutsideError(
            f"{count:,} rows lie outside the box of this spectrum, which keeps at most "
            f"{MOST_OUTSIDE:,} as they are; give a wider box=(low, high)"
        )


storage.register_reader(KIND, Spectrum._from_file)
