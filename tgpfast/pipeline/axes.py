"""`Axes`: where rows may lie. Walls and periods of columns, as `fit` was given them."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..bases.base import Base
from ..bases.domain import Domain, domain_of
from ..data.blocks import Blocks
from ..data.jitter import OFF_GRID
from ..data.scaling import Scaling
from ..data.table import column_name
from ..features.lattice import LATTICE_DIMENSIONS
from ..runtime.records import record
from ..statistics.lattice_sums import WallError
from ..validation import Array, positive
from .discrete_columns import find_discrete
from .rows import Rows, make_scaling
from .settings import GRAM_BASES, STANDARD_SCALES, Settings


@record
class Axes:
    """Walls and periods of every column.

    Attributes
    ----------
    domain : Domain
        In the model's coordinates.
    given : Domain
        In the units of the data.
    columns : list of str or None
        Names of the columns.
    steps : dict
        Number of a discrete column -> step of its values. Half of it lies between the walls that
        the user has given and those of ``given``.
    """

    domain: Domain
    given: Domain
    columns: list[str] | None
    steps: dict[int, float]

    @classmethod
    def of(cls, settings: Settings, rows: Rows) -> Axes:
        """The axes that ``support`` and ``period`` of a fit describe.

        Raises
        ------
        TypeError, ValueError
            For a column that is not there, or ends that make no interval.
        """
        d, columns, steps = rows.dimension, rows.table.columns, find_discrete(settings, rows)
        low, high, periodic = np.full(d, -np.inf), np.full(d, np.inf), np.zeros(d, bool)
        for key, pair in _as_mapping("support", settings.support).items():
            k = _find_column("support", key, columns, d)
            if np.isfinite(low[k]) or np.isfinite(high[k]):
                raise ValueError(f"support names column {column_name(k, columns)} twice")
            low[k], high[k] = _as_ends(pair, column_name(k, columns), 0.5 * steps.get(k, 0.0))
        for key, length in _as_mapping("period", settings.period).items():
            k = _find_column("period", key, columns, d)
            name = column_name(k, columns)
            if np.isfinite(low[k]) or np.isfinite(high[k]):
                raise ValueError(f"column {name} has both a period and a support; give one")
            value, step = positive(f"period of column {name}", length), steps.get(k, 0.0)
            _check_steps(value, step, name)
            low[k], periodic[k] = _first_period(value, k, rows, step), True
            high[k] = low[k] + value
        given = Domain(low, high, periodic)
        return cls(given.rescaled(rows.scaling), given, columns, steps)

    @property
    def is_open(self) -> bool:
        """Whether no column has a wall or a period."""
        return self.domain.is_open

    @property
    def support(self) -> list[tuple[float | None, float | None]]:
        """Walls of every axis, None where there is none."""
        low, high = self.domain.walls
        return [
            (None if math.isinf(a) else float(a), None if math.isinf(b) else float(b))
            for a, b in zip(low, high, strict=True)
        ]

    @property
    def periods(self) -> list[float | None]:
        """Period of every axis, None where there is none."""
        return [None if math.isinf(p) else float(p) for p in self.domain.periods]

    def move_inside(self, x: Array) -> Array:
        """Rows moved into the first period, and to the walls where they are beyond."""
        return np.clip(self.domain.wrap(x), *self.domain.walls)

    def are_beyond(self, x: Array) -> bool:
        """Whether a row in the units of the data lies beyond a wall."""
        low, high = self.given.walls
        return bool(((x < low) | (x > high)).any())

    @contextlib.contextmanager
    def name_rows_beyond(self) -> Iterator[None]:
        """A block with a pass over the rows; a row beyond a wall is named in the units of the data.

        Raises
        ------
        ValueError
            Names the row and its column.
        """
        try:
            yield
        except WallError as error:
            name, (low, high) = column_name(error.axis, self.columns), self._asked(error.axis)
            raise ValueError(
                f"row {error.row}, column {name} lies outside of its support ({low:g}, {high:g}); "
                "remove such rows, or widen the support"
            ) from error

    def record(self) -> dict[str, Any]:
        """Plain numbers for ``model.settings``; nothing where all axes are open."""
        if self.is_open:
            return {}
        return self.record_support() | {
            "period": {
                column_name(int(k), self.columns): float(self.given.high[k] - self.given.low[k])
                for k in np.flatnonzero(self.given.periodic)
            },
        }

    def record_support(self) -> dict[str, Any]:
        """The walls as they were given, for ``model.settings``."""
        walls = np.flatnonzero(self.given.is_walled).tolist()
        return {"support": {column_name(k, self.columns): self._asked(k) for k in walls}}

    def _asked(self, k: int) -> list[float]:
        """The walls of a column as the user has given them."""
        half = 0.5 * self.steps.get(k, 0.0)
        return [float(self.given.low[k] + half), float(self.given.high[k] - half)]

    def find_row_outside(self, blocks: Blocks) -> None:
        """Read blocks in the units of the data up to the first row beyond a wall.

        Raises
        ------
        ValueError
            Names that row and its column.
        """
        low, high = self.given.walls
        search = functools.partial(_search_outside, low=low, high=high, start=blocks.first_row)
        with self.name_rows_beyond():
            blocks.mapped(_keep_units).reduce(search)


def confine_rows(rows: Rows, settings: Settings) -> Rows:
    """The rows of a fit with walls or periods: the sample in the first period, and periodic columns
    scaled by the deviation within a period, which rows from many periods do not change.

    Parameters
    ----------
    rows : Rows
    settings : Settings
    """
    axes = Axes.of(settings, rows)
    if axes.is_open:
        return rows
    is_random, of_sample = has_periodic_features(settings, rows), rows.scaling
    if is_random:
        rows = _wrap_moments(rows, axes.given, settings)
    scaling = rows.scaling
    if settings.scale in STANDARD_SCALES:
        with np.errstate(invalid="ignore"):
            within = (axes.given.high - axes.given.low) / math.sqrt(12.0)
        most = np.where(axes.given.periodic, within, np.inf)
        scaling = replace(scaling, scale=np.minimum(scaling.scale, most))
    moved = replace(axes, domain=axes.given.rescaled(scaling))
    # the pass of a lattice moves rows itself, after it has checked them
    place = scaling.apply_inside
    if is_random:
        place = functools.partial(place_rows, scaling, moved.domain)
    blocks = rows.blocks.mapped(place, rows.weight_factor)
    split = rows.split
    if split is not None:
        x = scaling.apply(of_sample.invert(split.x))
        split = replace(split, x=moved.move_inside(x), domain=moved.domain)
    return replace(rows, scaling=scaling, blocks=blocks, split=split)


def place_rows(scaling: Scaling, domain: Domain, x: Array) -> Array:
    """Rows of the data in the model's coordinates, those of periodic columns in the first period.

    Parameters
    ----------
    scaling : Scaling
    domain : Domain
        In the model's coordinates.
    x : (n, d) array
    """
    return domain.wrap(scaling.apply_inside(x))


def has_periodic_features(settings: Settings, rows: Rows) -> bool:
    """Whether periods are those of random features: more columns than a lattice serves.

    Parameters
    ----------
    settings : Settings
    rows : Rows
    """
    return (
        settings.has_period and settings.features != "lattice"
        and rows.dimension > LATTICE_DIMENSIONS
    )  # fmt: skip


def check_periodic_settings(settings: Settings, domain: Domain | None, rows: Rows) -> None:
    """ValueError for settings that do not go with the periods of random features.

    Parameters
    ----------
    settings : Settings
    domain : Domain or None
        In the model's coordinates; None where rows can be read only once.
    rows : Rows
    """
    base = settings.base
    if domain is None:
        raise ValueError(
            "period: X can be read only once, but fit must first find the period in which the rows "
            "lie; pass a list of blocks, or a callable that returns a fresh iterator"
        )
    if settings.method == "fvpd":
        raise ValueError(
            'method="fvpd" has no period with more than three columns: the moments of features '
            'under a periodic base have no closed form here; use "map" or "fd"'
        )
    if isinstance(base, str) and base in GRAM_BASES:
        raise ValueError(f'base="{base}" is a Gaussian, and has no period; use base="empirical"')
    if isinstance(base, Base):
        own = domain_of(base.rescaled(rows.scaling)).periods
        if not np.allclose(own, domain.periods, rtol=1e-9):
            raise ValueError(
                f"base {type(base).__name__} does not have the periods of the columns; use "
                'base="empirical", "mixture" or "student", or a tgpfast.bases.product.ProductBase '
                "with a tgpfast.bases.von_mises.VonMisesBase for each periodic column"
            )


def _wrap_moments(rows: Rows, domain: Domain, settings: Settings) -> Rows:
    """Rows with the moments of their values in the first period, from the sample.

    domain : in the units of the data
    """
    sample = rows.blocks.sample
    if sample is None or np.array_equal(domain.wrap(sample.x), sample.x):
        return rows
    scaling = rows.scaling.unscaled
    moments = rows.measure_sample(lambda x: scaling.apply_inside(domain.wrap(x)))
    units = make_scaling(settings.scale, moments)
    scaling = replace(scaling, shift=units.shift, scale=units.scale)
    return replace(rows, moments=moments, scaling=scaling)


def _keep_units(x: Array) -> Array:
    """The rows themselves: a map that takes the place of another one."""
    return x


def _search_outside(
    blocks: Blocks, threads: Any, low: Array, high: Array, start: int
) -> int:
    """A pass over the rows that raises WallError at the first one outside of the walls.

    start : number of the first row of all
    """
    first = blocks.first_row - start
    for x, _ in blocks:
        outside = (x < low) | (x > high)
        if outside.any():
            row, k = (int(i) for i in np.argwhere(outside)[0])
            raise WallError(first + row, k, "outside of the support")
        first += len(x)
    return 0


def _as_mapping(name: str, value: Any) -> Mapping[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(
            f"{name} must be a dictionary from columns to values, such as "
            f"{_EXAMPLES[name]}, got {type(value).__name__}"
        )
    return value


_EXAMPLES = {"support": '{"price": (0, None)}', "period": '{"hour": 24}'}


def _find_column(name: str, key: Any, columns: Sequence[str] | None, d: int) -> int:
    """Number of a column that is given by its name or number."""
    if columns is not None and str(key) in columns:
        return list(columns).index(str(key))
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and -d <= key < d:
        return int(key) % d
    known = f"0 to {d - 1}" if columns is None else ", ".join(map(repr, columns))
    raise ValueError(f"{name}: there is no column {key!r}; the columns are {known}")


def _as_ends(pair: Any, name: str, half_step: float) -> tuple[float, float]:
    """(low, high), infinite where there is no wall; half a step of a discrete column outwards,
    where the noise on its values ends."""
    try:
        first, second = pair
        low = -np.inf if first is None else float(first) - half_step
        high = np.inf if second is None else float(second) + half_step
    except (TypeError, ValueError):
        raise ValueError(
            f"support of column {name}: expected a pair (low, high), either of them None where "
            f"there is no wall, got {pair!r}"
        ) from None
    if not low < high:
        raise ValueError(f"support of column {name}: {low:g} must be below {high:g}")
    return low, high


def _check_steps(length: float, step: float, name: str) -> None:
    """ValueError where a period is not a whole number of steps of a discrete column."""
    if step and abs(length / step - round(length / step)) > OFF_GRID:
        raise ValueError(
            f"period of column {name}: {length:g} is not a multiple of its step {step:g}"
        )


def _first_period(length: float, k: int, rows: Rows, step: float) -> float:
    """Where the period begins that samples lie in: at 0, or half a period below, if the rows are
    there; else at the least row. Half a step below for discrete columns, whose noise reaches so
    far."""
    sample = rows.blocks.sample
    if sample is None:
        return 0.0
    low, high = float(sample.x[:, k].min()), float(sample.x[:, k].max())
    for start in (-0.5 * step, -0.5 * length - 0.5 * step):
        if start <= low and high <= start + length:
            return start
    return low if step == 0.0 else (round(low / step) - 0.5) * step
