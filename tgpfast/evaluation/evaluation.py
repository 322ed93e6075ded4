"""`evaluate`: distances between a density and data along directions, and scores of the rows.

It works with any model that has ``log_density`` or ``sample``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from .. import kernels
from ..data.blocks import Blocks, as_blocks
from ..data.missing_rows import MISSING_ROWS, warn_if_dropped
from ..data.moments import compute_moments
from ..data.scaling import Scaling
from ..kernels.thread_choice import Threads
from ..runtime.progress import Progress
from ..runtime.warnings import PoorSampleWarning, warn
from ..validation import Array, Seed, as_floats, as_seed, check_choice, whole
from .marginals import Grids, ProjectedCDFs, block_rows, distance
from .model_draws import ModelDraws, draw_from_model, log_density_of
from .result import ColumnDistance, Distance, Evaluation
from .scores import ScoredRows, score_rows

# bytes of the CDFs of the data held at once, beside those of the draws; more directions take
# further passes
CDF_BYTES = 2**26
RANGE_ROWS = 50_000  # rows that give the ends of the grids and the scales of the columns
FEW_DRAWS = 1_000  # with fewer effective draws the distances are mostly noise
LEAST_EFFECTIVE = 1.5  # with fewer effective rows or draws no error can be estimated
DISTANCE_UNITS = ("standardized", "data")

RowsAndWeights = tuple[Array, Array | None]


def evaluate(
    model: Any,
    X: Any,
    n_directions: int = 500,
    n_grid: int = 10_000,
    n_samples: int = 250_000,
    seed: Seed = 0,
    *,
    directions: Any = None,
    units: str = "standardized",
    n_scored: int = 100_000,
    sample_weight: Any = None,
    missing: str = "error",
    backend: str = "auto",
    n_threads: int | None = None,
    progress: bool = False,
) -> Evaluation:
    """Measure how well a density fits data.

    Compares the marginal CDFs of model and data along random directions and in every column, and
    computes the mean log-likelihood and the Fisher score of the rows.

    X is read once. Memory depends neither on the number of rows nor on the number of directions.
    With units="standardized" a list of blocks, or a callable, is read a second time for the scales
    of the columns.

    Parameters
    ----------
    model : object
        A density of tgpfast; or any object with ``sample(n, seed)`` (or ``random_state``, or no
        seed); or any object with ``log_density(Y)`` (or ``score_samples``). The last kind is
        measured by weighted draws from a Gaussian with the moments of X.
    X : rows
        As for ``fit``; best rows that the model has not seen. Partitions of dask are read one
        after the other.
    n_directions : int, default 500
        Number of random directions, uniform on the unit sphere in the coordinates that ``units``
        names. Every single column is measured as well.
    n_grid : int, default 10_000
        Grid points along each direction, over the range of data and draws.
    n_samples : int, default 250_000
        Draws from the model.
    seed : int, None or numpy.random.Generator, default 0
        Seed of the directions, of the draws, and of the choice of scored rows.
    directions : array of shape (V, d), default None
        Vectors to use instead of random ones, in the coordinates that ``units`` names.
    units : {"standardized", "data"}, default "standardized"
        "standardized" divides every column by its standard deviation, so that all columns count
        equally. The standard deviations come from at most 50,000 rows spread over X. An iterator
        that can be read only once has none beforehand: then the scaling of the fitted model is
        used, or else the standard deviations of the model's draws. "data" keeps the units of X, as
        in the paper; columns with a large scale then dominate. Log-likelihood and Fisher score are
        always in the units of X.
    n_scored : int, default 100_000
        Number of randomly chosen rows for the log-likelihood; one in ten of them also enters the
        Fisher score. 0 skips both.
    sample_weight : array of shape (n,), default None
        Non-negative weights of the rows.
    missing : {"error", "drop"}, default "error"
        What to do with rows that have missing entries: "drop" leaves them out; a warning and
        ``n_missing`` of the result say how many.
    backend : str, default "auto"
        See ``accumulate``.
    n_threads : int, default None
        See ``accumulate``.
    progress : bool, default False
        Show a progress bar on standard error.

    Returns
    -------
    Evaluation

    Raises
    ------
    TypeError
        If the model has neither ``sample`` nor ``log_density``.
    ValueError
        If an option is wrong, or the columns of model and data differ in number.

    References
    ----------
    Section 4 of the paper (arXiv 2504.03485): KS and WD along 500 random directions.

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> x = np.random.default_rng(0).normal(size=(2000, 2))
    >>> result = tgpfast.evaluate(tgpfast.GaussianBase.from_data(x[:1000]), x[1000:], 50)
    >>> result.median[0] < 0.05
    True
    """
    n_directions, n_grid = whole("n_directions", n_directions), whole("n_grid", n_grid)
    n_samples, n_scored = whole("n_samples", n_samples), whole("n_scored", n_scored, 0)
    check_choice("units", units, DISTANCE_UNITS)
    seed, threads = as_seed(seed), Threads(backend, n_threads)
    rng = np.random.default_rng(seed)

    blocks = as_blocks(
        X, sample_weight=sample_weight, dimension=getattr(model, "dimension", None),
        columns=getattr(getattr(model, "table", None), "columns", None),
        drop_missing=check_choice("missing", missing, MISSING_ROWS) == "drop",
    )  # fmt: skip
    draws = draw_from_model(model, blocks, n_samples, seed)
    d = _match_columns(blocks, draws)
    pilot = blocks.pilot(RANGE_ROWS)
    scaling, scale_source = _choose_scaling(units, model, blocks, pilot, draws)
    vectors = choose_directions(directions, n_directions, d, rng)
    scored = ScoredRows(0 if log_density_of(model) is None else n_scored, rng)

    module, count = threads.resolve()
    with kernels.threads(module, count):  # idle BLAS threads would occupy the cores
        scaled_draws = draws.scaled(scaling)
        grids = _place_grids(np.concatenate([vectors, np.eye(d)]), n_grid, scaled_draws, pilot,
                             scaling)  # fmt: skip
        del pilot
        distances = list(
            _measure_distances(grids, blocks, scaling, scored, scaled_draws, threads, progress)
        )
    distances = _drop_unknown_errors(distances, scored, draws)
    _warn_of_few_draws(draws, n_samples)
    warn_if_dropped(blocks)
    likelihood, fisher = score_rows(model, scored)

    along, in_columns = distances[:-d], distances[-d:]
    names = blocks.table.columns or [f"x{k + 1}" for k in range(d)]
    return Evaluation(
        ks=np.array([found.ks for found in along]),
        wd=np.array([found.wd for found in along]),
        ks_error=np.array([found.ks_error for found in along]),
        wd_error=np.array([found.wd_error for found in along]),
        directions=vectors,
        columns=names,
        n_rows=scored.seen,
        n_effective=scored.n_effective,
        effective_sample_size=draws.n_effective,
        by_column=[
            ColumnDistance(**asdict(found), name=name)
            for name, found in zip(names, in_columns, strict=True)
        ],
        units=units,
        scale=scaling.scale,
        scale_source=scale_source,
        log_likelihood=likelihood,
        fisher_score=fisher,
        n_missing=blocks.missing.n_missing,
    )


def _match_columns(blocks: Blocks, draws: ModelDraws) -> int:
    """The common number of columns of data and draws; sets the block length for it."""
    d = draws.points.shape[1]
    if blocks.dimension is not None and blocks.dimension != d:
        raise ValueError(f"X has {blocks.dimension} columns, and the model's draws have {d}")
    blocks.dimension, blocks.block_rows = d, block_rows(d)
    return d


def _choose_scaling(
    units: str, model: Any, blocks: Blocks, pilot: RowsAndWeights | None, draws: ModelDraws
) -> tuple[Scaling, str]:
    """(map to the coordinates of the directions, ``scale_source``). Its center has no effect."""
    if units == "data":
        return Scaling.identity(draws.points.shape[1]), "none"
    if pilot is not None:
        rows, weights = pilot
        w = weights if weights is not None and weights.any() else None
        moments, source = compute_moments(Blocks(rows, sample_weight=w)), "data"
    elif blocks.can_repeat:
        moments, source = compute_moments(blocks), "data"
    else:
        known = getattr(model, "scaling", None)
        if isinstance(known, Scaling) and known.is_affine and (known.scale != 1.0).any():
            return known, "model"
        moments, source = draws.moments(), "draws"
    scale = moments.deviation
    if not (scale > 0).all():  # a constant column takes the scale of the draws, or 1
        of_draws = draws.moments().deviation
        scale = np.where(scale > 0, scale, np.where(of_draws > 0, of_draws, 1.0))
    return Scaling(moments.mean, scale), source


def choose_directions(given: Any, n: int, d: int, rng: np.random.Generator) -> Array:
    """Unit vectors (V, d): those given, else n random ones.

    Raises
    ------
    ValueError
        If the given ones do not have d columns, or one of them has length 0.
    """
    v: Array = rng.standard_normal((n, d))
    if given is not None:
        v = as_floats(given, "directions", "(V, d)", 2)
    if v.shape[1] != d or not len(v):
        raise ValueError(f"directions has shape {v.shape}; expected (V, {d}) with V >= 1")
    length = np.linalg.norm(v, axis=1, keepdims=True)
    if not (length > 0).all():
        raise ValueError(f"directions has a vector of length 0 at row {int(np.argmin(length))}")
    return np.ascontiguousarray(v / length)


def _place_grids(
    vectors: Array, n_grid: int, draws: ModelDraws, pilot: RowsAndWeights | None, scaling: Scaling
) -> Grids:
    """Grids over the common range of a part of either sample.

    A few draws in 100,000 lie beyond the range of such parts; distances account for them.
    """
    if pilot is None:
        return Grids.between(vectors, n_grid, draws.points, None)
    return Grids.between(vectors, n_grid, draws.points[:RANGE_ROWS], scaling.apply(pilot[0]))


def _measure_distances(
    grids: Grids, blocks: Blocks, scaling: Scaling, scored: ScoredRows, draws: ModelDraws,
    threads: Threads, progress: bool,
) -> Iterator[Distance]:  # fmt: skip
    """Distances along every direction, in one pass over the rows unless memory demands more.

    The first pass also fills ``scored``.
    """
    n, group = len(grids.directions), max(1, CDF_BYTES // (8 * (grids.n_grid + 1)))
    starts = range(0, n, group if blocks.can_repeat else n)
    total = None if blocks.n_rows is None else blocks.n_rows * len(starts)
    with Progress(progress, "rows", total) as bar:
        for start in starts:
            of_data = ProjectedCDFs(grids.part(start, start + starts.step), threads)
            for x, w in blocks:
                of_data.add(scaling.apply(x), w)
                if start == 0:
                    scored.add(x, w)
                bar.add(len(x))
            yield from _compare_with_draws(of_data, draws, threads)
            del of_data  # before the next pass allocates as much


def _compare_with_draws(
    of_data: ProjectedCDFs, draws: ModelDraws, threads: Threads
) -> Iterator[Distance]:
    """Distances between CDFs of the data and of the draws."""
    unweighted = bool((draws.weights == 1.0).all())
    size = block_rows(draws.points.shape[1])
    of_model = ProjectedCDFs(of_data.grids, threads)
    for start in range(0, len(draws.points), size):
        rows = slice(start, start + size)
        of_model.add(draws.points[rows], None if unweighted else draws.weights[rows])
    for v in range(len(of_data.grids.directions)):
        yield distance(of_data, of_model, v)


def _drop_unknown_errors(
    distances: list[Distance], scored: ScoredRows, draws: ModelDraws
) -> list[Distance]:
    """Errors become nan where one effective row or draw does not give any."""
    if min(scored.n_effective, draws.n_effective) >= LEAST_EFFECTIVE:
        return distances
    return [replace(found, ks_error=np.nan, wd_error=np.nan) for found in distances]


def _warn_of_few_draws(draws: ModelDraws, n_samples: int) -> None:
    if draws.n_effective < FEW_DRAWS <= n_samples:
        warn(
            f"KS and WD are unreliable: of {n_samples:,} draws only {draws.n_effective:,.0f} are "
            f"effective, so KS has an error of about {0.5 / np.sqrt(draws.n_effective):.2g}. The "
            "density is far from the density that the draws come from. Raise n_samples",
            PoorSampleWarning,
        )
