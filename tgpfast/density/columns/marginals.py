"""`MarginalDensity`: some columns of a density, the others integrated out."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...bases.conditioning import marginal_base
from ...bases.domain import domain_of
from ...data import storage
from ...data.blocks import Blocks
from ...data.table import Table
from ...validation import (
    Array,
    Seed,
    as_seed,
    check_choice,
    check_derivative,
    check_flag,
    without_far,
)
from ..answers.answer import Answer
from ..answers.column_choice import check_level, find_columns, read_values
from ..answers.draw_means import mean_over_draws
from ..answers.expectations import draw_replicates, expect, find_log_z_error
from ..answers.local_modes import Modes
from ..answers.questions import DerivedDensity
from ..answers.regions import HighestDensityRegion, LogDensities, measure_line, region_of_draws
from ..draws.proposal import QUADRATURE_DIMENSIONS
from ..grids.base_marginals import find_ends
from ..normalizing.integration import ANSWER_REPLICATES
from .conditional_draws import is_known_for_rows
from .conditionals import choose_names, is_table_of_values
from .explaining import climb_lines, compare_with_best
from .information import mean_log_marginals
from .marginal_rules import (
    RowBins,
    bin_log_masses,
    line_log_density,
    marginal_gradient,
    marginal_log_density,
    rough_bin_sets,
    rough_log_density,
    uses_draws,
)
from .missing_values import MISSING_POLICIES, score_incomplete_rows

MARGINAL_KIND = "marginal"  # of a saved file
TABLE_ROWS = 700  # rows of one column from which on a table of values is interpolated
FIRST_TABLE, MOST_TABLE = 257, 4_097  # places of that table
TABLE_REACH = 8.0  # standard deviations of the base that a table covers at least
TABLE_TOLERANCE = 1e-6  # error of an interpolated log density
TABLE_GAIN = 4.0  # factor by which twice as many entries must reduce the error of a table
DIRECT_ROWS = 4_096  # with more rows, the largest table serves whatever its error
REGION_ROWS = 4_096  # draws of several columns behind the threshold of a region; as many check it
MODE_LEVELS = (1e-4, 1.0 - 1e-4)  # quantiles between which modes and best values are sought
# Places between them, and quantiles that are places too: spikes lie between equispaced ones.
MODE_PLACES, MODE_QUANTILES = 301, np.linspace(0.01, 0.99, 99)
SAME_PLACE = 1e-6  # of the range: between nearer places roundings would look like modes
# places on each side of a mode, on so many lines one after another
MODE_HALF_LINE, MODE_LINES = 5, 3
SEARCH_PLACES, SEARCH_ROUNDS = 33, 3  # of a line of places, and finer lines around the best place
GRADIENT_ROWS = 64  # rows whose gradients are computed together
DIVERGENCE_LOG2_DRAWS = 11  # base-2 logarithm of the draws behind a divergence


class _Line(NamedTuple):
    """Log density of one column, less that of its base where it is known, as splines of all entries
    of a table and of every second one."""

    places: Array
    errors: Array  # of the entries
    fine: Any
    coarse: Any


@dataclass(eq=False)
class MarginalDensity(DerivedDensity):
    """The density of some columns of a model; ``model.marginal(columns)`` makes it.

    Values are integrals over the columns that are left out: by rules for one or two of them, by
    quasi-random draws for more. Each has an error.

    Parameters
    ----------
    joint : Density
        The density of all columns.
    columns : sequence of int
        Numbers of the columns that are kept, in order.

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 3))
    >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
    >>> model.marginal([0, 2])
    MarginalDensity(columns [0, 2] of Density(method='fd', d=3, ...))
    """

    joint: Any
    columns: list[int]
    table: Table = field(init=False)
    file_kind: ClassVar[str] = MARGINAL_KIND
    _line: _Line | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        self.columns = find_columns(self.columns, None, self.joint.dimension)
        self.table = choose_names(self.joint.table, self.columns)

    @property
    def dimension(self) -> int:
        """Number of columns that are kept."""
        return len(self.columns)

    # -- evaluation --------------------------------------------------------------------------------

    def log_density(self, Y: Any, *, missing: str = "error", return_error: bool = False) -> Any:
        """Log density of every row of Y.

        Parameters
        ----------
        Y : array-like or data frame
            Rows (n, k) in the units of the data, of the columns that are kept.
        missing : {"error", "marginal"}, default "error"
            As for ``Density.log_density``.
        return_error : bool, default False
            Return the errors of the values too.

        Returns
        -------
        array, (n,); a Series where Y is a data frame
            With ``return_error`` a pair: the values, and their errors (n,).

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 2))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> values, errors = model.marginal([1]).log_density([[5.0]], return_error=True)
        >>> bool(errors[0] < 1e-6)
        True
        """
        if check_choice("missing", missing, MISSING_POLICIES) == "marginal":
            return score_incomplete_rows(self, Y)
        blocks, x, u, far = self._read(Y)
        values, errors = self._values(u)
        values = np.where(far, -np.inf, values + self._scaling.log_slope(x))
        answer = blocks.table.series(values, "log_density")
        return (answer, errors) if check_flag("return_error", return_error) else answer

    def grad_log_density(self, Y: Any) -> Any:
        """Gradient of the log density at every row of Y.

        Parameters
        ----------
        Y : array-like or data frame
            Rows (n, k) in the units of the data.

        Returns
        -------
        array, (n, k); a frame where Y is one
        """
        blocks, x, u, far = self._read(Y)
        slope = np.concatenate([
            marginal_gradient(self.joint, self._kept, u[start : start + GRADIENT_ROWS])
            for start in range(0, len(u), GRADIENT_ROWS)
        ])  # fmt: skip
        slope = self._scaling.pull_score(x, slope[:, self._order])
        check_derivative("gradient", slope, far, 0)
        return blocks.table.frame(slope)

    @property
    def _kept(self) -> list[int]:
        return sorted(self.columns)

    @property
    def _order(self) -> NDArray[np.int64]:
        """Places of the columns among those in order."""
        return np.argsort(np.argsort(self.columns))

    @property
    def _scaling(self) -> Any:
        return self.joint.scaling.choose(self.columns)

    def _read(self, Y: Any) -> tuple[Blocks, Array, Array, NDArray[np.bool_]]:
        """Blocks of Y, its rows, these in the model's coordinates with columns in order, and which
        of them are too far away to have a density."""
        blocks = self._read_rows(Y)
        base, order = self.joint.base, np.argsort(self.columns)
        x = blocks.whole()
        with np.errstate(over="ignore"):
            u, far = without_far(
                self._scaling.apply(x)[:, order], base.mean[self._kept],
                np.diag(base.covariance)[self._kept],
            )  # fmt: skip
        return blocks, x, np.ascontiguousarray(u), far

    def _values(self, u: Array) -> tuple[Array, Array]:
        """Log densities in the model's coordinates, and their errors."""
        # draws that differ from row to row give a rough curve: pictures get the table
        least = FIRST_TABLE if uses_draws(self.joint, self._kept) else TABLE_ROWS
        if self.dimension == 1 and len(u) > least:
            found = self._interpolate(u[:, 0])
            if found is not None:
                return found
        return marginal_log_density(self.joint, self._kept, u)

    def _interpolate(self, places: Array) -> tuple[Array, Array] | None:
        """Values from a table that every second entry gives too. Without such a table they come
        from draws along the line, and are None where no draws integrate."""
        low, high = float(places.min()), float(places.max())
        known = self._line
        if known is None or low < known.places[0] or high > known.places[-1]:
            known = self._line = self._tabulate(low, high, len(places))
        if known is not None:
            values, errors = known.fine(places), np.interp(places, known.places, known.errors)
            # the error of splines of this order falls by 64 where the steps are halved
            gaps = np.abs(values - known.coarse(places)) / 16.0
            is_good = (gaps < np.maximum(TABLE_TOLERANCE, errors)).all()
            if is_good or len(places) > DIRECT_ROWS:
                return values + self._of_base(places), gaps + errors
        return self._along_line(places) if uses_draws(self.joint, self._kept) else None

    def _along_line(self, places: Array) -> tuple[Array, Array]:
        """Values at places in any order, as smooth as the density."""
        line, index = np.unique(places, return_inverse=True)
        values, errors = line_log_density(self.joint, self.columns[0], line)
        return values[index], errors[index]

    def _of_base(self, places: Array) -> Array:
        """Log density of the column of the base; zero where it is not known."""
        margin = marginal_base(self.joint.base, self.columns)
        return np.zeros(len(places)) if margin is None else margin.log_density_at(places[:, None])

    def _tabulate(self, low: float, high: float, n_asked: int) -> _Line | None:
        """A table from low to high, and over most of the base; refined until it resolves the
        density. None where the density is zero in between, and where a table for a few values does
        not resolve it: with more entries than these values, or where more entries do not help."""
        from scipy.interpolate import make_interp_spline

        (k,), base = self.columns, self.joint.base
        reach = TABLE_REACH * math.sqrt(float(base.covariance[k, k]))
        ends = find_ends(base)
        around = base.mean[k] - reach, base.mean[k] + reach
        if ends is None or (ends[0][k] < around[0] and around[1] < ends[1][k]):
            low, high = min(low, around[0]), max(high, around[1])
        if low == high:
            return None
        line = np.linspace(low, high, FIRST_TABLE)
        values, errors = self._entries(line)
        worst = math.inf
        while np.isfinite(values).all():
            fine, coarse = (make_interp_spline(line[::k], values[::k], k=5) for k in (1, 2))
            middle = 0.5 * (line[1:] + line[:-1])
            gaps = np.abs(fine(middle) - coarse(middle)) / 16.0
            is_good = (gaps < np.maximum(TABLE_TOLERANCE, 0.5 * errors[1:])).all()
            if is_good or 2 * len(line) > MOST_TABLE:
                return _Line(line, errors, fine, coarse)
            last, worst = worst, float(gaps.max())
            if n_asked <= DIRECT_ROWS and (
                len(line) + len(middle) > n_asked or worst > last / TABLE_GAIN
            ):
                return None
            more = self._entries(middle)
            at = np.arange(1, len(line))
            line = np.insert(line, at, middle)
            values, errors = np.insert(values, at, more[0]), np.insert(errors, at, more[1])
        return None

    def _entries(self, line: Array) -> tuple[Array, Array]:
        """Log density at places, less that of the base, and its errors."""
        values, errors = line_log_density(self.joint, self.columns[0], line)
        with np.errstate(invalid="ignore"):
            return values - self._of_base(line), errors

    # -- draws and probabilities -------------------------------------------------------------------

    def sample(
        self, n: int, seed: Seed = None, *, method: str = "auto", progress: bool = False
    ) -> Any:
        """Rows drawn from the density: those of the joint density without the other columns.

        Parameters
        ----------
        n, seed, method, progress
            As for ``Density.sample``.

        Returns
        -------
        array or frame, (n, k)
        """
        rows = Blocks(self.joint.sample(n, seed, method=method, progress=progress)).whole()
        return self.table.frame(np.ascontiguousarray(rows[:, self.columns]))

    def _find_probability(self, low: Array, high: Array, seed: int) -> Answer:
        box = np.tile([[-np.inf], [np.inf]], self.joint.dimension)
        box[:, self.columns] = low, high
        return self.joint._find_probability(*box, seed)

    def _evaluate_cdf(
        self, values: Array, chosen: list[int], seed: int, with_error: bool
    ) -> tuple[Array, Array]:
        columns = [self.columns[k] for k in chosen]
        return self.joint._evaluate_cdf(values, columns, seed, with_error)

    def _find_quantiles(self, column: int, levels: Array, seed: int) -> Array:
        return self.joint._find_quantiles(self.columns[column], levels, seed)

    def expectation(
        self, function: Callable[[Any], Any], *, method: str = "auto", seed: Seed = 0
    ) -> Answer:
        """Mean of a function of rows of the columns that are kept.

        Parameters
        ----------
        function, method, seed
            As for ``Density.expectation``.

        Returns
        -------
        Answer
        """

        def of_kept(rows: Any) -> Any:
            x = Blocks(rows).whole()[:, self.columns]
            return function(self.table.frame(np.ascontiguousarray(x)))

        return self.joint.expectation(of_kept, method=method, seed=seed)

    def entropy(self, *, seed: Seed = 0) -> Answer:
        """Differential entropy E[-log q] in nats: on a grid where the joint density has up to three
        columns, else from draws.

        Parameters
        ----------
        seed : int, None or numpy.random.Generator, default 0
            Of the draws.

        Returns
        -------
        Answer
        """
        joint, seed, scaling = self.joint, as_seed(seed), self._scaling
        found = mean_log_marginals(joint, [(-1.0, self._kept)], seed)
        if scaling.is_affine:
            return Answer(found.value + scaling.log_volume, found.standard_error, found.method)
        slope = expect(
            joint, lambda u, _: -scaling.log_slope_at(u[:, self.columns]), "auto", seed
        )  # fmt: skip
        error = math.hypot(found.standard_error, slope.standard_error)
        return Answer(found.value + slope.value, error, found.method)

    def _find_divergence(self, other: Any, seed: int) -> Answer:
        x, weights = self.joint.weighted_sample(2**DIVERGENCE_LOG2_DRAWS, seed)
        rows = np.ascontiguousarray(x[:, self.columns])
        theirs = np.asarray(other.log_density(self.table.frame(rows)), dtype=float)
        values = np.where(weights > 0.0, self._rough_log_density(rows)[0] - theirs, 0.0)
        shape = ANSWER_REPLICATES, -1
        found = mean_over_draws(values.reshape(shape), weights.reshape(shape))
        errors = (
            found.standard_error, self.log_normalizer.standard_error, find_log_z_error(other)
        )  # fmt: skip
        return Answer(found.value, math.hypot(*errors), found.method)

    def rough_log_density(self, Y: Any) -> Array:
        """Log density of many rows for a picture, from as many draws as take about a second.

        Parameters
        ----------
        Y : array-like or data frame
            Rows (n, k) in the units of the data.

        Returns
        -------
        array, (n,)
            Where draws integrate, with errors of a few percent of the density; else, and of one
            column, as ``log_density``.
        """
        if self.dimension == 1 or not uses_draws(self.joint, self._kept):
            return np.asarray(self.log_density(Y), dtype=float)
        _, x, u, far = self._read(Y)
        values = rough_log_density(self.joint, self._kept, u)[0] + self._scaling.log_slope(x)
        return np.where(far | np.isnan(values), -np.inf, values)

    def _rough_log_density(self, rows: Array) -> tuple[Array, Array]:
        """Log densities of rows (n, k) that are averaged, which needs fewer draws for each, and
        their errors."""
        _, x, u, _ = self._read(rows)
        if self.dimension == 1:
            values, errors = self._values(u)
        else:
            values, errors = rough_log_density(self.joint, self._kept, u)
        return values + self._scaling.log_slope(x), errors

    # -- steps of discrete columns -----------------------------------------------------------------

    def draws_over_bins(self, count: int, *, is_rough: bool = False) -> bool:
        """Whether draws integrate over the steps of discrete columns too: where they integrate over
        the columns that are left out, where a rule would have several columns of both kinds, and
        where values are averaged.

        count : discrete columns
        """
        if is_rough and is_known_for_rows(self.joint.base):
            return count > 0
        is_large = self.joint.dimension > QUADRATURE_DIMENSIONS
        return (count > 1 and is_large) or (count > 0 and uses_draws(self.joint, self._kept))

    def log_masses(
        self, rows: Array, columns: list[int], steps: Array, *, is_rough: bool = False
    ) -> tuple[Array, Array]:
        """Log of the integral over steps of some columns around rows (n, k), and its error, by
        draws; fewer of them where ``is_rough``, for values that are averaged."""
        bins = self._bins(rows, columns, steps)
        return bin_log_masses(self.joint, self._kept, bins, is_rough=is_rough)

    def log_mass_sets(
        self, rows: Array, columns: list[int], steps: Array, seed: int
    ) -> Array:
        """Log masses as `log_masses` gives them, not normalized, one row for each set of draws,
        (R, n)."""
        return rough_bin_sets(self.joint, self._kept, self._bins(rows, columns, steps), seed)

    def _bins(self, rows: Array, columns: list[int], steps: Array) -> RowBins:
        order = np.argsort(self.columns)
        places = [int(self._order[k]) for k in columns]
        scaling = self.joint.scaling.choose(self._kept)
        return RowBins(np.ascontiguousarray(rows[:, order]), places, steps, scaling)

    def _find_information(self, one: list[int], two: list[int], seed: int) -> Answer:
        columns = np.array(self.columns)
        return self.joint._find_information(columns[one].tolist(), columns[two].tolist(), seed)

    # -- regions, modes, unlikely rows -------------------------------------------------------------

    def highest_density_region(self, level: float, *, seed: Seed = 0) -> HighestDensityRegion:
        """The smallest set of rows that holds a share of the probability.

        Parameters
        ----------
        level, seed
            As for ``Density.highest_density_region``; the threshold of several columns comes from
            4,096 draws.

        Returns
        -------
        HighestDensityRegion
        """
        share = check_level("level", level)

        def draw(number: int) -> LogDensities:
            if self.dimension == 1:
                u, weights = draw_replicates(self.joint, number)
            else:
                u, weights = self.joint.integrator.weighted_draws(REGION_ROWS, number)
                weights = weights.reshape(ANSWER_REPLICATES, -1)
            rows = np.ascontiguousarray(self.joint.scaling.invert(u)[:, self.columns])
            values, errors = self._rough_log_density(rows)
            values = np.where(weights.ravel() > 0.0, values, -np.inf)
            return LogDensities(
                values.reshape(weights.shape), weights, errors.reshape(weights.shape)
            )

        measure = None if self.dimension > 1 else partial(measure_line, self, share)
        return region_of_draws(self, share, draw, as_seed(seed), measure=measure)

    def mode(self, *, min_share: float = 0.01, seed: Seed = 0) -> Modes:
        """All local maxima of the density of one column that carry a share of the probability.

        Parameters
        ----------
        min_share : float, default 0.01
            Modes with a smaller share are left out; the share of a mode is the probability between
            the minima on its sides.
        seed : int, None or numpy.random.Generator, default 0
            Of the draws behind the distribution function, in more than three columns.

        Returns
        -------
        Modes
            Those of a periodic column go around its seam.

        Raises
        ------
        ValueError
            The density has several columns.
        """
        least = check_level("min_share", min_share)
        seed = as_seed(seed)
        if self.dimension > 1:
            raise ValueError(
                "modes of a marginal density are found for one column only; model.mode() gives "
                "those of all columns"
            )
        domain = domain_of(self.joint.base).choose(self.columns)
        is_turning = bool(domain.periodic[0])
        if is_turning:
            low, high = domain.low[0], domain.high[0]
        else:
            low, high = self._to_line(self.quantile(MODE_LEVELS, seed=seed))
        places = np.linspace(low, high, MODE_PLACES)[: -1 if is_turning else None]
        of_draws = self._to_line(self.quantile(MODE_QUANTILES, seed=seed))
        places = np.sort(np.append(places, of_draws))
        cells = np.floor((places - low) / (SAME_PLACE * (high - low)))
        places = places[np.unique(cells, return_index=True)[1]]
        log_p = self._smooth_log_density(places)
        peaks, valleys = find_peaks(log_p, is_turning=is_turning)
        edges = errors = np.zeros(0)
        if len(valleys):
            x = self._scaling.invert(places[valleys, None])
            edges, errors = self.cdf(x, return_error=True, seed=seed)
        if is_turning:  # from one valley to the next, around the circle
            shares = np.diff(edges, append=edges[:1]) % 1.0 if len(peaks) > 1 else np.ones(1)
            errors = np.hypot(errors, np.roll(errors, -1)) * (len(peaks) > 1)
        else:
            shares = np.diff(np.concatenate([[0.0], edges, [1.0]]))
            errors = np.concatenate([[0.0], errors, [0.0]])
            errors = np.hypot(errors[1:], errors[:-1])
        kept = np.flatnonzero(shares >= least)
        x = self._scaling.invert(self._climb_line(places, peaks[kept])[:, None])
        top = np.asarray(self.log_density(x))
        order = np.argsort(-top)
        kept, x = kept[order], x[order]
        return Modes(self.table.frame(x), top[order], shares[kept], errors[kept], "grid")

    def _to_line(self, x: Array) -> Array:
        """Values (n,) of one column in the model's coordinates."""
        return np.asarray(self._scaling.apply(x[:, None])[:, 0])

    def _smooth_log_density(self, u: Array) -> Array:
        """Rough log densities of one column at places (n,) of the model's coordinates, as smooth as
        the density."""
        found = line_log_density(self.joint, self.columns[0], u, is_rough=True)[0]
        return found + self._scaling.log_slope_at(u[:, None])

    def _climb_line(self, line: Array, at: NDArray[np.int64]) -> Array:
        """The maxima (k,) next to some places ``line[at]``: the best of places around them, on
        finer and finer lines."""
        rows, last = np.arange(len(at)), len(line) - 1
        low, best, high = (line[np.clip(at + step, 0, last)] for step in (-1, 0, 1))
        for _ in range(MODE_LINES):
            lines = [np.linspace(a, b, MODE_HALF_LINE) for a, b in ((low, best), (best, high))]
            places = np.concatenate([lines[0], lines[1][1:]]).T
            log_p = self._smooth_log_density(places.ravel()).reshape(places.shape)
            top = log_p.argmax(axis=1)
            low, best, high = (
                places[rows, np.clip(top + step, 0, places.shape[1] - 1)] for step in (-1, 0, 1)
            )
        return best

    def explain(self, Y: Any) -> Any:
        """Which columns make rows unlikely.

        Parameters
        ----------
        Y : array-like or data frame
            Rows (n, k) in the units of the data. Each row takes about 100 integrals for a column.

        Returns
        -------
        array, (n, k); a frame where Y is one
            As for ``Density.explain``, within the columns that are kept.
        """
        blocks = self._read_rows(Y)
        rows = blocks.whole()
        own = np.asarray(self.log_density(rows))
        best = [self._find_best(rows, k) for k in range(self.dimension)]
        return blocks.table.frame(compare_with_best(own, best))

    def _find_best(self, rows: Array, k: int) -> Array:
        """Highest log density of every row, (n,), with column k anywhere."""
        low, high = self.quantile(MODE_LEVELS, column=k)

        def log_density(places: Array) -> Array:
            moved = np.repeat(rows[:, None, :], places.shape[1], axis=1)
            moved[:, :, k] = places
            log_p = np.asarray(self.log_density(moved.reshape(-1, self.dimension)))
            return log_p.reshape(places.shape)

        places = np.tile(np.linspace(low, high, SEARCH_PLACES), (len(rows), 1))
        return climb_lines(log_density, places, SEARCH_ROUNDS, SEARCH_PLACES)

    # -- other densities, files --------------------------------------------------------------------

    def marginal(self, columns: Any) -> Any:
        """The density of some of the columns that are kept.

        Parameters
        ----------
        columns : str, int or sequence of them

        Returns
        -------
        MarginalDensity or Density
        """
        chosen = find_columns(columns, self.table.columns, self.dimension)
        return self.joint.marginal([self.columns[k] for k in chosen])

    def conditional(self, given: Any) -> Any:
        """The density of the other columns that are kept, given values of some.

        Parameters
        ----------
        given : mapping
            One value for each column that is given: at least one, and not all.

        Returns
        -------
        MarginalDensity or Density

        Raises
        ------
        ValueError
            A column is not known, or the density is zero at the values.
        """
        if is_table_of_values(given):
            raise ValueError(
                "a marginal density takes one value for each given column; for many rows at once "
                "condition the joint density"
            )
        values = read_values(given, self.table.columns, self.dimension, "given")
        found = self.joint.conditional({self.columns[k]: v for k, v in values.items()})
        held = {self.columns[k] for k in values}
        left = [k for k in range(self.joint.dimension) if k not in held]
        rest = [k for i, k in enumerate(self.columns) if i not in values]
        return found.marginal([left.index(k) for k in rest])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file; ``tgpfast.load`` reads it. It holds the joint density and the columns.

        Parameters
        ----------
        path : str or path
        """
        storage.write(path, self.file_kind, *self.members())

    def members(self, *, statistics: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
        """Facts and arrays of a file that holds the density.

        Parameters
        ----------
        statistics : bool, default False
            Whether to include the statistics of the joint density.
        """
        facts, arrays = self.joint.members(statistics=statistics)
        return {"columns": self.columns, "joint": facts}, arrays

    def __repr__(self) -> str:
        names = self.columns if self.table.columns is None else self.table.columns
        return f"MarginalDensity(columns {names} of {self.joint!r})"


def find_peaks(
    values: Array, *, is_turning: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the local maxima of values along a line, and of the minima between them.

    Parameters
    ----------
    values : (n,) array
    is_turning : bool
        Whether the line is a circle: then the i-th minimum lies before the i-th maximum, the first
        one beyond the seam if need be; else one lies between each two maxima.

    Examples
    --------
    >>> values = np.array([3.0, 1.0, 2.0, 0.0])
    >>> [found.tolist() for found in find_peaks(values, is_turning=True)]
    [[0, 2], [3, 1]]
    >>> [found.tolist() for found in find_peaks(values, is_turning=False)]
    [[0, 2], [1]]
    """
    before, after = np.roll(values, 1), np.roll(values, -1)
    if not is_turning:  # an end may be a maximum: at a wall
        before[0] = after[-1] = -np.inf
    is_peak = (values > before) & (values >= after)
    peaks = np.flatnonzero(is_peak)
    if not len(peaks):  # flat
        peaks = np.array([int(np.argmax(values))])
    pairs = [(a, b) for a, b in itertools.pairwise(peaks.tolist())]
    if is_turning:
        pairs.insert(0, (int(peaks[-1]) - len(values), int(peaks[0])))
    valleys = [
        a + int(np.argmin(values[np.arange(a, b + 1) % len(values)])) for a, b in pairs
    ]
    return peaks, np.array(valleys, dtype=np.int64) % len(values)
