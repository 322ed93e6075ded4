"""`DiscreteDensity`: a density some of whose columns take discrete values only."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...bases.quasirandom import logsumexp
from ...data import storage
from ...data.blocks import Blocks, as_blocks
from ...data.jitter import OFF_GRID, Jitter
from ...data.missing_rows import MISSING_ROWS
from ...data.table import Table, column_name, find_column
from ...validation import Array, Seed, as_seed, check_choice, check_flag, whole
from ..answers.answer import Answer
from ..answers.column_choice import check_level, find_columns, read_values
from ..answers.expectations import EXPECTATION_METHODS
from ..answers.local_modes import Modes
from ..answers.probabilities import invert_cdf
from ..answers.questions import DerivedDensity
from ..answers.regions import HighestDensityRegion, LogDensities, region_of_draws
from ..draws.replicates import error_of_mean
from ..normalizing.integration import ANSWER_REPLICATES
from .bin_masses import MASS_TOLERANCE, evaluate_around, integrate_bins, make_rule, merge_equal_rows
from .conditionals import choose_names, is_table_of_values
from .marginal_rules import average_logs
from .marginals import MarginalDensity
from .missing_values import MISSING_POLICIES, score_incomplete_rows

DISCRETE_KIND = "discrete"  # of a saved file
SLOPE_NODES = {1: 12, 2: 6, 3: 4}  # nodes along each column for gradients
PART_NODES = {1: 5, 2: 4, 3: 3}  # the same for given bins, each of which takes a normalizer
MEAN_TOLERANCE = 1e-3  # difference of two log masses that is good enough where they are averaged
MEAN_ROWS = 2_048  # draws behind entropy, divergence and information
DISCRETE_REGION_ROWS = 4_096  # draws behind the threshold of a region, and as many to check it


class _Part(NamedTuple):
    """A density with given columns at one node of their bin, and its share."""

    share: float
    density: DiscreteDensity


@dataclass(eq=False)
class DiscreteDensity(DerivedDensity):
    """Rows some of whose columns take discrete values only; ``fit(..., discrete=...)`` makes it.

    The values of a discrete column are multiples of a step. ``fit`` learns a density of rows with
    uniform noise, one step wide, in these columns. The probability of a value is the integral of
    that density over the step around it. So ``log_density`` is the log of a probability in discrete
    columns and of a density in the others; samples have values on the grid.

    Parameters
    ----------
    inner : Density or MarginalDensity
        The density of rows with noise.
    steps : dict
        Number of a column of ``inner`` -> step of its values.
    bins : dict, default {}
        Number of a column -> value that it is held at, for conditional densities. Such columns are
        no columns of this density.

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> x = np.random.default_rng(0).poisson(4.0, size=(1000, 1))
    >>> model = tgpfast.fit(x, discrete=[0], support={0: (0, None)})
    >>> bool(abs(np.exp(model.log_density(np.arange(40.0)[:, None])).sum() - 1.0) < 1e-4)
    True
    >>> bool(np.isneginf(model.log_density([[2.5]])[0]))
    True
    """

    inner: Any
    steps: dict[int, float]
    bins: dict[int, float] = field(default_factory=dict)
    table: Table = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.steps, self.bins = dict(sorted(self.steps.items())), dict(sorted(self.bins.items()))
        if self.table is None:
            self.table = choose_names(self.inner.table, self.columns)

    # -- what it is made of ------------------------------------------------------------------------

    @property
    def columns(self) -> list[int]:
        """Numbers of the columns of ``inner`` that are not held fixed."""
        return [k for k in range(self.inner.dimension) if k not in self.bins]

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return self.inner.dimension - len(self.bins)

    @property
    def discrete(self) -> dict[Any, float]:
        """Step of every discrete column, by its name, or its number where columns have no names."""
        names = self.table.columns
        return {i if names is None else names[i]: s for i, s in self.own_steps.items()}

    @property
    def joint(self) -> Any:
        """The density of rows with noise in all columns."""
        return getattr(self.inner, "joint", self.inner)

    diagnostics = property(
        attrgetter("joint.diagnostics"), doc="What the solver and the checks of the rows found."
    )
    selection = property(
        attrgetter("joint.selection"),
        doc="The candidates that ``fit`` compared, best first; None where every setting was given.",
    )
    features = property(
        attrgetter("joint.features"), doc="The Fourier features of the exponent."
    )
    base = property(attrgetter("joint.base"), doc="The density that is tilted.")
    threads = property(
        attrgetter("joint.threads"), doc="Backend and number of threads of evaluations."
    )
    integrator = property(
        attrgetter("joint.integrator"), doc="Mass and draws of the density of rows with noise."
    )

    @functools.cached_property
    def own_steps(self) -> dict[int, float]:
        """Steps by the numbers of the columns of this density."""
        return {i: self.steps[k] for i, k in enumerate(self.columns) if k in self.steps}

    # -- evaluation --------------------------------------------------------------------------------

    def log_density(
        self, Y: Any, *, missing: str = "error", return_error: bool = False
    ) -> Any:
        """Log of the probability of the discrete values of every row, times the density of the
        others.

        Parameters
        ----------
        Y : array-like, data frame, path or iterable of blocks
            Rows (n, d) in the units of the data.
        missing : {"error", "marginal"}, default "error"
            As for ``Density.log_density``.
        return_error : bool, default False
            Return the errors of the values too: for at most three discrete columns the difference
            of two rules, at most 1e-8 unless the density is very rough; for more columns a standard
            error.

        Returns
        -------
        array, (n,); a Series where Y is a data frame
            -inf where a discrete value is not a multiple of its step. With ``return_error`` a pair:
            the values, and their errors (n,).

        Raises
        ------
        ValueError
            Y has other columns, or values that are not finite.
        """
        with_error = check_flag("return_error", return_error)
        if check_choice("missing", missing, MISSING_POLICIES) == "marginal":
            _refuse_errors(with_error, 'missing="marginal"')
            return score_incomplete_rows(self, Y)
        blocks = as_blocks(Y, dimension=self.dimension, columns=self.table.columns, name="Y")
        if blocks.in_parts:
            _refuse_errors(with_error, "rows in parts, such as dask's")
            return blocks.evaluated(self, "log_density")
        values, errors = self._evaluate(blocks.whole())
        answer = blocks.table.series(values, "log_density")
        return (answer, errors) if with_error else answer

    def _evaluate(self, y: Array, *, is_rough: bool = False) -> tuple[Array, Array]:
        """Log densities of rows (n, d), and their errors.

        is_rough : whether the values are averaged, which needs less precision
        """
        values, errors = np.full(len(y), -np.inf), np.zeros(len(y))
        on_grid = np.flatnonzero(~self._is_off_grid(y))
        if not len(on_grid):
            return values, errors
        rows = self._fill_rows(self._to_grid(y[on_grid]))
        owners = np.arange(len(rows))
        if len(self.steps) == self.inner.dimension:  # values repeat
            rows, owners = merge_equal_rows(rows)
        found, gaps = self._log_masses(rows, is_rough)
        values[on_grid], errors[on_grid] = found[owners] - self._log_given, gaps[owners]
        return values, errors

    def _rough(self, y: Array) -> Array:
        """Log densities of rows (n, d) that are averaged."""
        return self._evaluate(y, is_rough=True)[0]

    def _log_masses(self, rows: Array, is_rough: bool) -> tuple[Array, Array]:
        """Logs of integrals over the steps around rows of all columns of ``inner``, and errors."""
        columns, steps = list(self.steps), np.array(list(self.steps.values()))
        if self._draws_over_bins(is_rough):
            values, errors = self.inner.log_masses(rows, columns, steps, is_rough=is_rough)
            return np.asarray(values), np.asarray(errors)
        tolerance = MEAN_TOLERANCE if is_rough else MASS_TOLERANCE
        return integrate_bins(self._inner_log_density, rows, columns, steps, tolerance)

    def _draws_over_bins(self, is_rough: bool) -> bool:
        if not isinstance(self.inner, MarginalDensity):
            return False
        return self.inner.draws_over_bins(len(self.steps), is_rough=is_rough)

    def _rough_sets(self, y: Array, seed: int) -> tuple[Array, Array]:
        """Log densities of rows of a sample (n, d) that are averaged, and those by each set of the
        points behind them, (R, n), which are equal where rules integrate."""
        if not self._draws_over_bins(is_rough=True):
            values = self._rough(y)
            return values, values[None]
        rows, owners = self._fill_rows(y), np.arange(len(y))
        if len(self.steps) == self.inner.dimension:
            rows, owners = merge_equal_rows(rows)
        columns, steps = list(self.steps), np.array(list(self.steps.values()))
        sets = self.inner.log_mass_sets(rows, columns, steps, seed)[:, owners]
        values = average_logs(sets)[0] - self.log_normalizer.value - self._log_given
        return values, sets

    def _inner_log_density(self, rows: Array) -> Array:
        return np.asarray(self.inner.log_density(rows), dtype=float)

    def _is_off_grid(self, y: Array) -> NDArray[np.bool_]:
        off = np.zeros(len(y), bool)
        for i, step in self.own_steps.items():
            off |= np.abs(y[:, i] / step - np.rint(y[:, i] / step)) > OFF_GRID
        return off

    def _to_grid(self, y: Array) -> Array:
        """Rows (n, d) with discrete columns rounded to their grids."""
        rounded = np.array(y)
        for i, step in self.own_steps.items():
            rounded[:, i] = np.rint(y[:, i] / step) * step + 0.0  # no -0.0
        return rounded

    def _fill_rows(self, y: Array) -> Array:
        """Rows of all columns of ``inner``, those that are given at their values."""
        rows = np.empty((len(y), self.inner.dimension))
        rows[:, self.columns] = y
        for k, value in self.bins.items():
            rows[:, k] = value
        return rows

    @functools.cached_property
    def _log_given(self) -> float:
        """Log of the probability of the values that are given."""
        if not self.bins:
            return 0.0
        given = list(self.bins)
        part = DiscreteDensity(
            self.inner.marginal(given), {i: self.steps[k] for i, k in enumerate(given)}
        )
        return float(part._evaluate(np.array([list(self.bins.values())]))[0][0])

    def grad_log_density(self, Y: Any) -> Any:
        """Gradient of the log density with respect to the columns that are not discrete.

        Parameters
        ----------
        Y : array-like or data frame
            Rows (n, d) in the units of the data; discrete values are rounded to their grid.

        Returns
        -------
        array, (n, d); a frame where Y is one
            nan in discrete columns, which have no derivative.
        """
        blocks = self._read_rows(Y)
        m, columns = len(self.steps), list(self.steps)
        if m not in SLOPE_NODES:
            raise ValueError(
                f"gradients support at most 3 discrete columns; this density has {m}"
            )
        nodes, log_weights = make_rule(m, SLOPE_NODES[m])
        rows = self._fill_rows(self._to_grid(blocks.whole()))
        offsets = nodes * np.array(list(self.steps.values()))
        log_q = evaluate_around(self._inner_log_density, rows, columns, offsets) + log_weights
        shares = np.exp(log_q - logsumexp(log_q, axis=1)[:, None])
        slopes = evaluate_around(self.inner.grad_log_density, rows, columns, offsets)
        slope = np.einsum("nq,nqk->nk", shares, slopes)[:, self.columns]
        slope[:, list(self.own_steps)] = np.nan
        return blocks.table.frame(slope)

    # -- densities with given columns at nodes of their bins ---------------------------------------

    @functools.cached_property
    def _parts(self) -> list[_Part]:
        """The density as a mixture, over the nodes of a rule, of conditionals at single values."""
        given = list(self.bins)
        if len(given) not in PART_NODES:
            raise ValueError(
                f"{len(given)} discrete columns are fixed; at most {max(PART_NODES)} are supported"
            )
        nodes, log_weights = make_rule(len(given), PART_NODES[len(given)])
        steps = np.array([self.steps[k] for k in given])
        places = np.array(list(self.bins.values())) + nodes * steps
        log_p = np.asarray(self.inner.marginal(given).log_density(places)) + log_weights
        shares = np.exp(log_p - logsumexp(log_p))
        kept = np.flatnonzero(shares > 1e-12 * shares.max())
        parts = []
        for q in kept:
            inner = self.inner.conditional(dict(zip(given, places[q], strict=True)))
            density = replace(self, inner=inner, steps=self.own_steps, bins={})
            parts.append(_Part(float(shares[q]), density))
        return parts

    @property
    def dequantized(self) -> Any:
        """The density of rows with noise; given columns are held at the centers of their steps."""
        return self.inner.conditional(self.bins) if self.bins else self.inner

    def _mix(self, question: Callable[[DiscreteDensity], Answer]) -> Answer:
        """An answer of the mixture over the parts; errors add."""
        found = [(share, question(density)) for share, density in self._parts]
        value = sum(share * answer.value for share, answer in found)
        error = sum(share * answer.standard_error for share, answer in found)
        return Answer(value, error, found[0][1].method)

    # -- draws and probabilities -------------------------------------------------------------------

    def sample(
        self, n: int, seed: Seed = None, *, method: str = "auto", progress: bool = False
    ) -> Any:
        """Rows drawn from the density, with discrete values on their grids.

        Parameters
        ----------
        n, seed, method, progress
            As for ``Density.sample``.

        Returns
        -------
        array or frame, (n, d)
        """
        options = {"method": method, "progress": progress}
        return self.table.frame(self._to_grid(self._draw(whole("n", n), as_seed(seed), options)))

    @property
    def sampling(self) -> Any:
        """How the last call of ``sample`` drew; None before."""
        return self._parts[0].density.sampling if self.bins else self.joint.sampling

    def _draw(self, n: int, seed: int, options: dict[str, Any]) -> Array:
        """Rows with noise (n, d)."""
        if not self.bins:
            return Blocks(self.inner.sample(n, seed, **options)).whole()
        rng = np.random.default_rng(seed)
        shares = np.array([part.share for part in self._parts])
        counts = rng.multinomial(n, shares / shares.sum())
        drawn = [
            part.density._draw(int(count), int(rng.integers(2**63)), options)
            for part, count in zip(self._parts, counts, strict=True) if count
        ]  # fmt: skip
        return np.concatenate(drawn)[rng.permutation(n)]

    def weighted_sample(self, n: int, seed: Seed = None) -> tuple[Array, Array]:
        """Draws and their weights, for quantiles of scores.

        Parameters
        ----------
        n, seed
            As for ``Density.weighted_sample``.

        Returns
        -------
        rows : (n, d) array
            In the units of the data, with discrete values on their grids.
        weights : (n,) array
        """
        n, seed = whole("n", n), as_seed(seed)
        if not self.bins and hasattr(self.inner, "weighted_sample"):
            rows, weights = self.inner.weighted_sample(n, seed)
            return self._to_grid(rows), weights
        return self._to_grid(self._draw(n, seed, {})), np.ones(n)

    def _find_probability(self, low: Array, high: Array, seed: int) -> Answer:
        for i, step in self.own_steps.items():
            low[i] = (np.ceil(low[i] / step - OFF_GRID) - 0.5) * step
            high[i] = self._upper_edge(high[i], step)
        if (low > high).any():
            return Answer(0.0, 0.0, "exact")  # no value lies between the bounds
        if self.bins:
            return self._mix(lambda part: part.inner._find_probability(low, high, seed))
        return self.inner._find_probability(low, high, seed)

    @staticmethod
    def _upper_edge(value: Any, step: float) -> Any:
        """Upper end of the step of the largest value on the grid that is at most ``value``."""
        return (np.floor(value / step + OFF_GRID) + 0.5) * step

    def _evaluate_cdf(
        self, values: Array, chosen: list[int], seed: int, with_error: bool
    ) -> tuple[Array, Array]:
        return self._cdf_of_noisy(self._upper_edges(values, chosen), chosen, seed)

    def _upper_edges(self, values: Array, chosen: list[int]) -> Array:
        edges = np.array(values)
        for place, i in enumerate(chosen):
            if i in self.own_steps:
                edges[:, place] = self._upper_edge(values[:, place], self.own_steps[i])
        return edges

    def _cdf_of_noisy(self, values: Array, chosen: list[int], seed: int) -> tuple[Array, Array]:
        """Distribution function of rows with noise at values (n, k) of some columns, and errors."""
        if not self.bins:
            return self.inner._evaluate_cdf(values, chosen, seed, True)
        pairs = [part.density._cdf_of_noisy(values, chosen, seed) for part in self._parts]
        shares = np.array([part.share for part in self._parts])
        return (
            np.einsum("q,qn->n", shares, np.stack([value for value, _ in pairs])),
            np.einsum("q,qn->n", shares, np.stack([error for _, error in pairs])),
        )

    def _find_quantiles(self, column: int, levels: Array, seed: int) -> Array:
        found = self._quantiles_of_noisy(levels, column, seed)
        if column not in self.own_steps:
            return found
        step = self.own_steps[column]
        return np.ceil(found / step - 0.5 - OFF_GRID) * step + 0.0

    def _quantiles_of_noisy(self, levels: Array, i: int, seed: int) -> Array:
        if not self.bins:
            return self.inner._find_quantiles(i, levels, seed)
        low, middle, high = (
            float(np.mean([part.density._quantiles_of_noisy(np.array([q]), i, seed)
                           for part in self._parts])) for q in (0.16, 0.5, 0.84)
        )  # fmt: skip
        return invert_cdf(
            lambda x: self._cdf_of_noisy(x[:, None], [i], seed)[0], levels, middle,
            0.5 * (high - low),
        )  # fmt: skip

    # -- expectations ------------------------------------------------------------------------------

    def expectation(
        self, function: Callable[[Any], Any], *, method: str = "auto", seed: Seed = 0
    ) -> Answer:
        """Mean of a function of rows.

        Parameters
        ----------
        function, seed
            As for ``Density.expectation``. The function gets rows with discrete values.
        method : {"auto", "draws"}, default "auto"
            Both are means over draws: a function of discrete values has jumps.

        Returns
        -------
        Answer
        """
        if check_choice("method", method, EXPECTATION_METHODS) == "quadrature":
            raise ValueError('method="quadrature": discrete columns need "draws"')
        seed = as_seed(seed)

        def of_rows(rows: Any) -> Any:
            return function(self.table.frame(self._to_grid(Blocks(rows).whole())))

        def ask(density: DiscreteDensity) -> Answer:
            return density.inner.expectation(of_rows, method="draws", seed=seed)

        return self._mix(ask) if self.bins else ask(self)

    def _mean_of_logs(
        self, terms: list[tuple[float, DiscreteDensity, list[int]]], seed: Seed,
        others: Callable[[Array], Array] | None = None,
    ) -> Answer:  # fmt: skip
        """The mean over 2,048 draws of a sum of log densities of some columns, times signs, and of
        another function of rows.

        Its error has the spread of the draws, that of the sets of points behind the log densities,
        and the error of log Z.
        """
        seed = as_seed(seed)
        rows = Blocks(self.sample(MEAN_ROWS, seed)).whole()
        values = np.zeros(len(rows)) if others is None else others(rows)
        means = np.zeros(1)  # over the rows, by each set
        for sign, density, columns in terms:
            found, sets = density._rough_sets(rows[:, columns], seed)
            values = values + sign * found
            means = means + sign * sets.mean(axis=1)
        of_sets = float(error_of_mean(means)) if len(means) > 1 else 0.0
        of_rows = float(values.std(ddof=1)) / MEAN_ROWS**0.5
        error = math.hypot(of_rows, of_sets, self.log_normalizer.standard_error)
        return Answer(float(values.mean()), error, "draws")

    def entropy(self, *, seed: Seed = 0) -> Answer:
        """Entropy E[-log p] in nats, from 2,048 draws; a sum over discrete values.

        Parameters
        ----------
        seed : int, None or numpy.random.Generator, default 0
            Of the draws.

        Returns
        -------
        Answer
        """
        return self._mean_of_logs([(-1.0, self, list(range(self.dimension)))], seed)

    def _find_divergence(self, other: Any, seed: int) -> Answer:
        def of_other(rows: Array) -> Array:
            if isinstance(other, DiscreteDensity):
                return -other._rough(rows)
            return -np.asarray(other.log_density(self.table.frame(rows)), dtype=float)

        return self._mean_of_logs([(1.0, self, list(range(self.dimension)))], seed, of_other)

    def _find_information(self, one: list[int], two: list[int], seed: int) -> Answer:
        both, first, second = (self.marginal(some) for some in (one + two, one, two))
        terms = [(1.0, both, one + two), (-1.0, first, one), (-1.0, second, two)]
        return self._mean_of_logs(terms, seed)

    # -- regions and modes -------------------------------------------------------------------------

    def highest_density_region(self, level: float, *, seed: Seed = 0) -> HighestDensityRegion:
        """The smallest set of rows that holds at least a share of the probability.

        Parameters
        ----------
        level, seed
            As for ``Density.highest_density_region``; the threshold comes from 4,096 draws.

        Returns
        -------
        HighestDensityRegion
            Its volume counts discrete values. Values of equal probability are in or out together,
            so that ``probability`` may exceed ``level``.
        """
        share, seed = check_level("level", level), as_seed(seed)

        def draw(number: int) -> LogDensities:
            rows = Blocks(self.sample(DISCRETE_REGION_ROWS, number)).whole()
            # a value at the edge is one or the other: `contains` must find the same value for it
            is_rough = len(self.steps) < self.inner.dimension
            values, errors = (
                found.reshape(ANSWER_REPLICATES, -1)
                for found in self._evaluate(rows, is_rough=is_rough)
            )
            return LogDensities(values, np.ones(values.shape), errors)

        return region_of_draws(self, share, draw, seed)

    def mode(self, *, min_share: float = 0.01, seed: Seed = 0) -> Modes:
        """Local maxima of the density of rows with noise, rounded to the grids.

        Parameters
        ----------
        min_share, seed
            As for ``Density.mode``.

        Returns
        -------
        Modes
            Given columns are held at the centers of their steps.
        """
        found = self.dequantized.mode(min_share=min_share, seed=seed)
        places, owners = merge_equal_rows(self._to_grid(Blocks(found.value).whole()))
        heights = self._evaluate(places)[0]
        order = np.argsort(-heights)
        share = np.bincount(owners, found.share, len(places)).astype(float)[order]
        error = np.sqrt(np.bincount(owners, np.square(found.standard_error), len(places)))[order]
        return Modes(self.table.frame(places[order]), heights[order], share, error)

    def explain(self, Y: Any) -> Any:
        """Which columns make rows unlikely, by the density of rows with noise at the values.

        Parameters
        ----------
        Y : array-like or data frame
            Rows (n, d) in the units of the data.

        Returns
        -------
        array, (n, d); a frame where Y is one
            As for ``Density.explain``. Given columns are held at the centers of their steps.
        """
        blocks = self._read_rows(Y)
        return blocks.table.frame(np.asarray(self.dequantized.explain(blocks.whole())))

    # -- marginals and conditionals ----------------------------------------------------------------

    def marginal(self, columns: Any) -> DiscreteDensity:
        """The density of some columns, whatever the others are.

        Parameters
        ----------
        columns : str, int or sequence of them
            Columns to keep, in the order wanted.

        Returns
        -------
        DiscreteDensity
        """
        names, d = self.table.columns, self.dimension
        chosen = find_columns(columns, names, d)
        inner = [self.columns[i] for i in chosen] + list(self.bins)
        return DiscreteDensity(
            self.inner.marginal(inner),
            {i: self.steps[k] for i, k in enumerate(inner) if k in self.steps},
            {i: self.bins[k] for i, k in enumerate(inner) if k in self.bins},
            choose_names(self.table, chosen),
        )

    def conditional(self, given: Any) -> Any:
        """The density of the other columns, given values of some.

        A discrete value is given as such: the density is the mean over the step around it, so that
        log p(x, k) = log P(k) + log p(x | k).

        Parameters
        ----------
        given : mapping or data frame
            As for ``Density.conditional``. For many rows at once, discrete columns are held at the
            centers of their steps, and the column that is left has noise if it is discrete.

        Returns
        -------
        DiscreteDensity or ConditionalTable

        Raises
        ------
        ValueError
            A discrete value is not on its grid, or the density is zero at the values.
        """
        if is_table_of_values(given):
            if self.bins:
                raise ValueError("many rows at once need a density without given columns")
            self._check_table(given)
            return self.inner.conditional(given)
        names, d = self.table.columns, self.dimension
        values = read_values(given, names, d, "given")
        for i, step in self.own_steps.items():
            if i in values:
                _check_grid(np.array([values[i]]), step, column_name(i, names))
        exact = {self.columns[i]: v for i, v in values.items() if i not in self.own_steps}
        bins = self.bins | {self.columns[i]: v for i, v in values.items() if i in self.own_steps}
        left = [k for k in range(self.inner.dimension) if k not in exact]
        found = DiscreteDensity(
            self.inner.conditional(exact) if exact else self.inner,
            {i: self.steps[k] for i, k in enumerate(left) if k in self.steps},
            {i: bins[k] for i, k in enumerate(left) if k in bins},
            choose_names(self.table, [i for i in range(d) if i not in values]),
        )
        if not np.isfinite(found._log_given):
            raise ValueError(f"the probability of {given} is zero, so that nothing follows from it")
        return found

    def _check_table(self, given: Any) -> None:
        """ValueError for values of discrete columns that are not on their grids."""
        names, d = self.table.columns, self.dimension
        for key in given:
            i = find_column(key, names, d)
            if i in self.own_steps:
                values = np.atleast_1d(np.asarray(given[key], dtype=float))
                _check_grid(values, self.own_steps[i], column_name(i, names))

    # -- new rows, files, descriptions -------------------------------------------------------------

    def update(
        self, X: Any, *, sample_weight: Any = None, decay: float = 1.0, missing: str = "error",
        progress: bool = False,
    ) -> DiscreteDensity:
        """The model learned from the rows so far and those of X: a new one; this one stays.

        Parameters
        ----------
        X, sample_weight, decay, missing, progress
            As for ``Density.update``.

        Returns
        -------
        DiscreteDensity
        """
        noise = Jitter(dict(self.steps), self.settings.get("seed") or 0)
        blocks = as_blocks(
            X, sample_weight=sample_weight, dimension=self.dimension, columns=self.table.columns,
            jitter=noise, drop_missing=check_choice("missing", missing, MISSING_ROWS) == "drop",
        )  # fmt: skip
        blocks.first_row = self.settings.get("n_rows", 0)  # noise of its own for new rows
        inner = self.inner.update(blocks, decay=decay, progress=progress)
        return replace(self, inner=inner)

    def save(self, path: str | os.PathLike[str], *, statistics: bool = False) -> None:
        """Write to an npz file without pickles; ``tgpfast.load`` reads it back.

        Parameters
        ----------
        path : str or path
        statistics : bool, default False
            Include the statistics that ``update`` needs.
        """
        facts, arrays = self.inner.members(statistics=statistics)
        storage.write(path, DISCRETE_KIND, {
            "steps": list(self.steps.items()), "bins": list(self.bins.items()),
            "columns": self.table.columns, "kind_of_table": self.table.kind,
            "inner_kind": self.inner.file_kind, "inner": facts,
        }, arrays)  # fmt: skip

    @classmethod
    def _from_file(
        cls, path: Any, facts: dict[str, Any], arrays: dict[str, Any]
    ) -> DiscreteDensity:
        inner = storage.restore(facts["inner_kind"], path, facts["inner"], arrays)
        steps, bins = ({int(k): float(v) for k, v in facts[name]} for name in ("steps", "bins"))
        is_known = set(bins) <= set(steps) <= set(range(inner.dimension))
        if not (is_known and all(step > 0.0 for step in steps.values())):
            raise ValueError("steps and bins of discrete columns do not go with the density")
        d = inner.dimension - len(bins)
        table = Table.from_facts(facts["columns"], facts["kind_of_table"], d)
        return cls(inner, steps, bins, table)

    def _collect_facts(self) -> dict[str, str]:
        facts = self.inner._collect_facts()
        kind = next(iter(facts))
        d, names = self.dimension, self.table.columns
        words = f"of {d} column{'s' * (d != 1)}" + (f": {', '.join(names)}" if names else "")
        steps = ", ".join(f"{name} in steps of {step:g}" for name, step in self.discrete.items())
        own = {kind: words, "discrete": steps, "given": self._given_text()}
        return {name: text for name, text in {**own, **facts, kind: words}.items() if text}

    def _given_text(self) -> str:
        names = self.inner.table.columns
        held = {str(k if names is None else names[k]): v for k, v in self.bins.items()}
        earlier = self.settings.get("given", {})
        return ", ".join(f"{name} {value:g}" for name, value in {**earlier, **held}.items())

    def __repr__(self) -> str:
        parts = [f"discrete={self.discrete}"] if self.discrete else []
        if self.bins:
            parts.append(f"given=({self._given_text()})")
        elif not parts:
            parts.append("discrete columns are integrated out")
        return f"DiscreteDensity({', '.join([*parts, repr(self.inner)])})"


storage.register_reader(DISCRETE_KIND, DiscreteDensity._from_file)


def _check_grid(values: Array, step: float, name: str) -> None:
    """ValueError for a value that is not a multiple of the step."""
    with np.errstate(invalid="ignore"):
        off = np.abs(values / step - np.rint(values / step)) > OFF_GRID
    if off.any():
        raise ValueError(
            f"the density is zero with column {name} at {values[off][0]:g}, which is not a "
            f"multiple of its step {step:g}"
        )


def _refuse_errors(is_asked: bool, why: str) -> None:
    if is_asked:
        raise ValueError(f"return_error does not go with {why}; leave it out")
