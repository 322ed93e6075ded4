"""Conditional densities: of one set of values, and of one column for a whole table of values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...bases.base import Base
from ...bases.conditioning import condition_base, condition_mixture, split_columns
from ...bases.domain import domain_of
from ...bases.gaussian import GaussianBase
from ...bases.mixture import MixtureBase, as_mixture
from ...data.column_maps import MappedScaling
from ...data.table import Table, column_name, find_column
from ...validation import Array
from ..answers.column_choice import check_level, check_levels
from ..answers.tilted_density import TiltedDensity
from ..grids.base_marginals import base_cdf, find_ends
from .restriction import restrict_tilt

SEARCH_DEVIATIONS = np.linspace(-8.0, 8.0, 65)  # places around a component at first
SEARCHED_COMPONENTS = 6  # of a mixture, for each row: those with the largest shares
HEAVY_PLACES = np.sinh(np.linspace(-9.0, 9.0, 385))  # deviations, for tails that are not Gaussian
LINE_CELLS = 512  # even, for Simpson's rule
BULK_LOG_DENSITY = -3.0  # below the peak of a row, up to which places are dense
LEAST_LOG_DENSITY = -32.0  # below the peak of a row, at which its line ends
# Share of the base between a wall and the nearest place to it that a value is taken at. For 1,000
# rows with x exponential, y = 2 x and y = log x plus noise, means of y given the least 1 % of x
# then err by 0.22 and 0.56; 1 % would err by 0.18 and 1.0, 0.1 % by 0.24 and 0.21, but given x = 0
# a median would err by 0.5 in some samples, rather than by 0.3.
WALL_SHARE = 5e-3
LIMIT_PLACES, LIMIT_ROUNDS = 65, 5  # of that place: each round divides its bracket by 64
LIMIT_REACH = 40.0  # deviations from the mean of the base to the end of the first bracket
PLACES_AT_A_TIME = 2**19  # evaluated together


def choose_names(table: Table, columns: Sequence[int]) -> Table:
    """The table of some columns."""
    names = table.columns
    return Table(None if names is None else [names[k] for k in columns], table.kind)


def conditional_fields(model: TiltedDensity, values: dict[int, float]) -> dict[str, Any]:
    """What differs between a density and its conditional: tilt, base, scaling, table.

    Parameters
    ----------
    model : Density
    values : dict
        Values by the number of their column, in order, in the units of the data.

    Raises
    ------
    ValueError
        The density is zero at these values.
    """
    given, free = split_columns(model.dimension, list(values))
    at = _place_values(model, given, np.array([list(values.values())]))[0]
    base = _condition(model, given, at, values)
    return {
        "tilt": restrict_tilt(model.tilt, given, at), "base": base,
        "scaling": model.scaling.choose(free), "table": choose_names(model.table, free),
    }  # fmt: skip


def _place_values(model: TiltedDensity, columns: list[int], values: Array) -> Array:
    """Values (n, a) of some columns in the model's coordinates, those of periodic columns in the
    first period. Those next to walls of bent columns are taken where WALL_SHARE of the base lies
    nearer to the wall: maps take walls to infinity, where a conditional would be an
    extrapolation."""
    domain, scaling = domain_of(model.base).choose(columns), model.scaling.choose(columns)
    at = domain.wrap(scaling.apply(values))
    if isinstance(scaling, MappedScaling):
        inside = (values >= scaling.maps.low) & (values <= scaling.maps.high)
        for j, column in enumerate(columns):
            low, high = _find_wall_limits(model, column)
            at[:, j] = np.where(inside[:, j], np.clip(at[:, j], low, high), at[:, j])
    return at


def _find_wall_limits(model: TiltedDensity, column: int) -> tuple[float, float]:
    """Places beyond which WALL_SHARE of the base lies nearer to a wall of a bent column; infinite
    where it has no wall."""
    one, limits = model.scaling.choose([column]), [-np.inf, np.inf]
    assert isinstance(one, MappedScaling)
    base, direction = model.base, np.eye(model.dimension)[column]
    reach = LIMIT_REACH * math.sqrt(float(base.covariance[column, column]))
    center = float(base.mean[column])
    for side, (wall, level) in enumerate(
        [(one.maps.low[0], WALL_SHARE), (one.maps.high[0], 1.0 - WALL_SHARE)]
    ):
        if not math.isfinite(wall):
            continue
        places = np.linspace(center - reach, center + reach, LIMIT_PLACES)
        for _ in range(LIMIT_ROUNDS):
            k = int(np.searchsorted(base_cdf(base, direction, places), level))
            k = min(max(k, 1), LIMIT_PLACES - 1)
            places = np.linspace(places[k - 1], places[k], LIMIT_PLACES)
        limits[side] = float(places[LIMIT_PLACES // 2])
    return limits[0], limits[1]


def _condition(
    model: TiltedDensity, given: list[int], at: Array, values: dict[int, float]
) -> Base:
    """The base given values; ValueError where it has no density there."""
    row = np.array(model.base.mean, dtype=float)
    row[given] = at
    base: Base | None = None
    with np.errstate(all="ignore"):
        if np.isfinite(at).all() and np.isfinite(_margin_log_density(model.base, given, at)):
            base = condition_base(model.base, given, at)
            row[[k for k in range(len(row)) if k not in given]] = base.mean
    if base is None or not np.isfinite(model.base.log_density_at(row[None])[0]):
        named = ", ".join(
            f"column {column_name(k, model.table.columns)} at {v:g}" for k, v in values.items()
        )
        raise ValueError(
            f"the density is zero with {named}, so that nothing follows from it; expected values "
            "within the support of the model and not very far from its data"
        )
    return base


def _margin_log_density(base: Base, given: list[int], at: Array) -> float:
    """Log density of given values under a Gaussian or a mixture; 0 for other bases."""
    if isinstance(base, (GaussianBase, MixtureBase)):
        return float(condition_mixture(as_mixture(base), given, at[None]).log_density[0])
    return 0.0


# -- one column for a table of values --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ConditionalTable:
    """One column given all others, for every row of a table of values.

    Attributes
    ----------
    column : str or int
        The column that is not given.
    mean, standard_deviation : (n,) arrays
        Of the column given each row, in the units of the data. Of a periodic column, they are those
        of its values in the period that samples lie in.
    places : (n, G) array
        Places along the column that cover all of its mass, for each row.
    density : (n, G) array
        Conditional density there.
    cumulative : (n, G) array
        Conditional distribution function there.
    """

    column: Any
    mean: Array
    standard_deviation: Array
    places: Array = field(repr=False)
    density: Array = field(repr=False)
    cumulative: Array = field(repr=False)

    def __len__(self) -> int:
        return len(self.mean)

    def quantile(self, q: Any) -> Array:
        """Values of the column below which shares of its probability lie, given each row.

        Parameters
        ----------
        q : float or array-like, (Q,)
            Shares in (0, 1).

        Returns
        -------
        array, (n,), or (n, Q) for several shares
            In the units of the data, to about 1e-5 of the conditional standard deviation.
        """
        found = np.stack([self._invert(level) for level in check_levels("q", q)], axis=1)
        return found[:, 0] if np.ndim(q) == 0 else found

    def _invert(self, level: float) -> Array:
        """Within a cell the density is linear, so that the level is the root of a quadratic."""
        rows = np.arange(len(self))
        k = np.clip((self.cumulative <= level).sum(axis=1) - 1, 0, LINE_CELLS - 1)
        a, b = self.density[rows, k], self.density[rows, k + 1]
        low, high = self.cumulative[rows, k], self.cumulative[rows, k + 1]
        length = self.places[rows, k + 1] - self.places[rows, k]
        # shares of the cell's own mass, so that both ends fit
        part = np.clip((level - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
        mass = part * 0.5 * (a + b)
        root = np.sqrt(np.maximum(a * a + 2.0 * (b - a) * mass, 0.0))
        inside = np.where(a + root > 0.0, 2.0 * mass / np.maximum(a + root, 1e-300), 0.5)
        return np.asarray(self.places[rows, k] + length * inside)

    def median(self) -> Array:
        """Median of the column given each row, (n,)."""
        return self.quantile(0.5)

    def band(self, level: float = 0.9) -> Array:
        """Ends of the interval with equal tails that holds a share of the probability, (n, 2).

        Parameters
        ----------
        level : float, default 0.9
            In (0, 1).
        """
        half = 0.5 * check_level("level", level)
        return self.quantile([0.5 - half, 0.5 + half])


def is_table_of_values(given: Any) -> bool:
    """Whether values are those of many rows: a frame, or a mapping to sequences."""
    if hasattr(given, "columns"):
        return True
    return isinstance(given, Mapping) and any(np.ndim(v) == 1 for v in given.values())


def condition_on_table(model: TiltedDensity, given: Any) -> ConditionalTable:
    """The one column that is not given, for every row of a table of the others."""
    columns, values = _read_table(model, given)
    (target,) = split_columns(model.dimension, columns)[1]
    order = np.argsort(columns)
    columns, values = [columns[k] for k in order], values[:, order]
    at = _place_values(model, columns, values)
    rows = max(1, PLACES_AT_A_TIME // (LINE_CELLS + 1))
    parts = [
        _lines_of(model, columns, target, at[start : start + rows], start)
        for start in range(0, len(at), rows)
    ]
    places, density, cumulative, mean, deviation = map(np.concatenate, zip(*parts, strict=True))
    names = model.table.columns
    name = target if names is None else names[target]
    return ConditionalTable(name, mean, deviation, places, density, cumulative)


def _read_table(model: TiltedDensity, given: Any) -> tuple[list[int], Array]:
    """Numbers of the columns that are given, and their values (n, d - 1)."""
    names = list(given.columns) if hasattr(given, "columns") else list(given)
    columns = [find_column(name, model.table.columns, model.dimension, "given") for name in names]
    if len(columns) != model.dimension - 1 or len(set(columns)) < len(columns):
        raise ValueError(
            f"given has the columns {names}: for many rows at once, expected all "
            f"{model.dimension} columns of the model but one"
        )
    series = [np.asarray(given[name], dtype=float) for name in names]
    length = max(np.size(one) for one in series)
    try:
        table = np.stack([np.broadcast_to(one, (length,)) for one in series], axis=1)
    except ValueError:
        sizes = {str(name): np.shape(one) for name, one in zip(names, series, strict=True)}
        raise ValueError(f"given has columns of different lengths: {sizes}") from None
    if not np.isfinite(table).all():
        row, k = (int(i) for i in np.argwhere(~np.isfinite(table))[0])
        raise ValueError(f"given: {names[k]!r} is {table[row, k]} in row {row}; expected numbers")
    return columns, table


def _lines_of(
    model: TiltedDensity, columns: list[int], target: int, at: Array, first: int
) -> tuple[Array, ...]:
    """Places (n, G), density and distribution function there, mean and standard deviation (n,), in
    the units of the data."""
    places = search_places(model, columns, target, at)
    log_q = evaluate_along(model, columns, target, at, places)
    peak = log_q.max(axis=1)
    lost = np.flatnonzero(~np.isfinite(peak))
    if len(lost):
        raise ValueError(
            f"the density is zero at the values of row {first + int(lost[0])} of given; expected "
            "values within the support of the model and not very far from its data"
        )
    inside = log_q > (peak + LEAST_LOG_DENSITY)[:, None]
    count, rows = places.shape[1], np.arange(len(at))
    # one place beyond the first and the last that count
    low = places[rows, np.maximum(inside.argmax(axis=1) - 1, 0)]
    last = np.minimum(count - inside[:, ::-1].argmax(axis=1), count - 1)
    ends = find_ends(model.base)
    high = places[rows, last]
    if ends is not None:
        low, high = np.maximum(low, ends[0][target]), np.minimum(high, ends[1][target])
    t = np.linspace(0.0, 1.0, LINE_CELLS + 1)
    if ends is not None:
        u = low[:, None] + (high - low)[:, None] * t
        stretch = np.broadcast_to((high - low)[:, None], u.shape)
    else:
        u, stretch = _spread_places(places, log_q, low, high, t)
    log_q = evaluate_along(model, columns, target, at, u)
    density = np.exp(log_q - log_q.max(axis=1)[:, None])
    cumulative = _integrate_along(t, density * stretch)
    weights = np.tile([2.0, 4.0], LINE_CELLS // 2 + 1)[: LINE_CELLS + 1]  # Simpson's rule
    weights[[0, -1]] = 1.0
    shares = density * stretch * weights
    shares /= shares.sum(axis=1)[:, None]
    column = model.scaling.choose([target])
    x = column.invert(u.reshape(-1, 1))
    slope = np.exp(column.log_slope(x))
    x, total = x.reshape(u.shape), cumulative[:, -1:]
    mean = (shares * x).sum(axis=1)
    deviation = np.sqrt((shares * np.square(x - mean[:, None])).sum(axis=1))
    density = density / total * np.reshape(slope, (-1, u.shape[1]) if np.ndim(slope) else ())
    return x, density, cumulative / total, mean, deviation


def _spread_places(
    places: Array, log_q: Array, low: Array, high: Array, t: Array
) -> tuple[Array, Array]:
    """Places that are dense around the bulk of each row and sparse in heavy tails, (n, G), and
    their derivatives in t."""
    bulk = log_q > log_q.max(axis=1)[:, None] + BULK_LOG_DENSITY
    center = (places * bulk).sum(axis=1) / bulk.sum(axis=1)
    first = np.where(bulk, places, np.inf).min(axis=1)
    last = np.where(bulk, places, -np.inf).max(axis=1)
    width = np.maximum(0.5 * (last - first), (high - low) / places.shape[1] ** 2)
    a, b = np.arcsinh((low - center) / width), np.arcsinh((high - center) / width)
    v = a[:, None] + (b - a)[:, None] * t
    u = center[:, None] + width[:, None] * np.sinh(v)
    return u, (width * (b - a))[:, None] * np.cosh(v)


def _integrate_along(t: Array, density: Array) -> Array:
    """Integrals of each row from the first place to every place, by cubic splines, (n, G)."""
    from scipy.interpolate import make_interp_spline

    running = make_interp_spline(t, density.T, k=3).antiderivative()(t).T
    return np.asarray(np.maximum.accumulate(np.maximum(running - running[:, :1], 0.0), axis=1))


def search_places(model: TiltedDensity, columns: list[int], target: int, at: Array) -> Array:
    """Increasing places (n, G) among which all mass of each row is found."""
    base = model.base
    if isinstance(base, (GaussianBase, MixtureBase)):
        with np.errstate(all="ignore"):
            parts = condition_mixture(as_mixture(base), columns, at)
        count = min(SEARCHED_COMPONENTS, parts.log_shares.shape[1])
        shares = np.where(np.isnan(parts.log_shares), -np.inf, parts.log_shares)
        best = np.argsort(-shares, axis=1)[:, :count]
        means = np.take_along_axis(parts.means[:, :, 0], best, axis=1)
        widths = parts.cholesky[best, 0, 0]
        around = means[:, :, None] + widths[:, :, None] * SEARCH_DEVIATIONS
        return np.sort(around.reshape(len(at), -1), axis=1)
    ends = find_ends(base)
    if ends is not None:
        line = np.linspace(ends[0][target], ends[1][target], 2 * LINE_CELLS + 1)
    else:
        line = base.mean[target] + math.sqrt(base.covariance[target, target]) * HEAVY_PLACES
    return np.broadcast_to(line, (len(at), len(line)))


def evaluate_along(
    model: TiltedDensity, columns: list[int], target: int, at: Array, places: Array
) -> Array:
    """Log of the density, not normalized, at every place of every row, (n, G)."""
    n, count = places.shape
    u = np.empty((n, count, model.dimension))
    u[:, :, columns] = at[:, None, :]
    u[:, :, target] = places
    flat = u.reshape(-1, model.dimension)
    with np.errstate(over="ignore", invalid="ignore"):
        values = model.base.log_density_at(flat) + model.tilt.value(flat, model.threads)
    return np.where(np.isnan(values), -np.inf, values).reshape(n, count)
