"""`fit_groups`: many small densities that share their features, learned together.

Rows are sorted by group once. Groups of like size are lanes of one kernel call, which gives a Gram
matrix for each; the small systems are then solved side by side. A group is padded with rows of no
weight to a length that depends on its own size alone, so that neither batches nor threads change a
bit of the result.
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrs

from . import kernels, memory, storage
from .base import GaussianBase
from .blocks import Blocks, Table
from .density import Density, _table_from
from .direct import DTYPES, accumulate_direct, required_memory
from .features import Array, Features, positive
from .fit import _frequency_covariance
from .linear_systems import ILL_CONDITIONED
from .normalizer import (
    DRAWS,
    QUADRATURE_DIMENSIONS,
    REPLICATES,
    Grid,
    Normalizer,
    _by_sobol,
    log_normalizer,
)
from .normals import logsumexp, sobol_normals
from .notices import tell
from .progress import Progress
from .scaling import Moments, Scaling, check_full_rank, column_name
from .selection import scott
from .spectral import memory_budget
from .threads import Threads
from .tilt import PointTilt

KIND = "groups"
SCALES = ("standardize", "center")
BASES = ("empirical", "pooled")
FREQUENCIES = ("identity", "data", "precision")
AMPLE = 10.0  # times d + 1 rows: from here on a group's covariance is its own
FLOOR = 1e-6  # least variance of a base, in any direction, relative to the pooled one
BATCH, BATCH_ROWS = 16, 2**18  # groups (four a thread, if that is more) and rows of a batch
LARGE = 8_192  # rows from which a group is a pass of its own, its rows shared between threads
BLOCK = 2_048  # rows whose features are evaluated together
LOG2_POINTS = 11  # of each replicate of Sobol points, at first
ENOUGH = 0.01  # standard error of log Z above which the replicates are made longer
GRID_BYTES = 2**29  # that the largest grid behind a normaliser takes while it is summed
POOR_NAMED = 5  # groups that a message names

Ints = NDArray[np.int64]


def fit_groups(
    X: Any,
    groups: Any,
    *,
    method: str = "fd",
    n_features: int = 128,
    lam: float = 10.0,
    gamma: Any = "scott",
    scale: str = "standardize",
    frequency_covariance: Any = "identity",
    base: str = "empirical",
    sample_weight: Any = None,
    normalize_weights: bool = True,
    precision: str = "float64",
    backend: str = "auto",
    n_threads: int | None = None,
    seed: int = 0,
    budget: Any = None,
    progress: bool = False,
) -> GroupedDensity:
    """Learn one density for each group of rows; thousands of groups at once.

    Group g, of mean m_g, is learned from u = (x - m_g) / scale, with one scale and one set of
    features for all groups; its base is N(0, C_g). That is ``solve(accumulate(u, features), base,
    "fd", lam)`` for every group, in a fraction of the time; the same bits for any number of threads
    and any budget. Settings are not chosen from the data, as ``fit`` does.

    Parameters
    ----------
    X : (n, d) rows, of any kind that ``fit`` takes; they are copied into memory once, sorted
    groups : (n,) labels: integers, text, a pandas or polars column, or any values that hash
    method : "fd" only: FVPD would keep a matrix, and MAP iterate, for each group
    n_features : S
    lam : precision of the prior, > 0: more is smoother
    gamma : bandwidth of the features, in scaled coordinates; "scott" is m^(-1/(d+4)) sqrt(tr V / d)
        with m the median of the groups' numbers of rows and V the pooled covariance
    scale : "standardize": the pooled within-group standard deviation of each column, so that
        distances between groups do not matter; or "center": 1. Rows are taken about the mean of
        their group in either case
    frequency_covariance : "identity", "data" (d V / tr V), "precision" (d V^-1 / tr V^-1) or a
        (d, d) array; in scaled coordinates
    base : "empirical": mean and covariance of each group, the latter shrunk (see below); "pooled":
        its own mean and the pooled covariance
    sample_weight : (n,) non-negative; rescaled within each group to sum to Kish's effective number
        of rows, unless normalize_weights=False: then a weight of 2 is two rows. Rows of weight 0
        are left out
    precision : "float64"; or "mixed" (float32 products, see ``accumulate``): quicker, and log
        densities then err by up to some 1e-7 times ``result.condition``
    backend, n_threads : as for ``accumulate``
    seed : of the features
    budget : bytes, or text like "2GB", for what is worked on at a time, beside the sorted rows and
        the result; by default TGPFAST_MEMORY_BUDGET, or 40 % of the memory that is free
    progress : show a bar on standard error

    Returns
    -------
    GroupedDensity ; ``result[label]`` is a `Density`

    Notes
    -----
    The pooled covariance is V = sum_g n_g S_g / sum_g (n_g - 1), S_g that of a group divided by
    n_g. The base of a group has C_g = (1 - a) S_g + a V with a = ((d + 1) / n_g - 0.1) / 0.9, kept
    between 0 and 1: all V up to d + 1 rows, all its own from 10 (d + 1). Where its variance in some
    direction would be less than 1e-6 of that of V, as for a column that is constant in the group, a
    is as much larger as that takes. ``result.shrinkage`` keeps every a, and a warning says once how
    many groups are concerned.

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> rng = np.random.default_rng(0)
    >>> city = np.repeat(["Bonn", "Ulm"], 300)
    >>> x = rng.normal(np.where(city == "Ulm", 5.0, -5.0), 1.0)
    >>> result = tgpfast.fit_groups(x, city, n_features=50)
    >>> list(result)
    ['Bonn', 'Ulm']
    >>> at = result.log_density([-5.0, -5.0], ["Bonn", "Ulm"])
    >>> bool(at[0] > at[1])
    True
    """
    _check(method, scale, base, frequency_covariance, precision, n_features)
    n_features, seed = int(n_features), operator.index(seed)
    lam = positive("lam", lam)
    gamma = gamma if gamma == "scott" else positive("gamma", gamma, "scott")
    threads = Threads(backend, n_threads)
    module, count = threads.resolve()
    limit = memory_budget(budget)
    labels, codes = _factorize(groups)
    with kernels.threads(module, count):
        rows = _sorted_rows(X, sample_weight, labels, codes, normalize_weights)
        d = len(rows.x)
        means, scatter, unit = rows.centre()
        deviation, correlation = _pooled(rows, scatter, unit, means)
        factor = deviation if scale == "standardize" else np.ones(d)
        with np.errstate(over="ignore", invalid="ignore"):
            pooled = correlation * np.outer(deviation / factor, deviation / factor)
            own = scatter * np.outer(unit / factor, unit / factor)
        if not (np.isfinite(pooled).all() and np.isfinite(own).all()):
            raise ValueError('the squares of some rows overflow; use scale="standardize"')
        covariances, shrinkage = _bases(own, pooled, rows.n, base)
        n_typical = float(np.median(rows.n))
        width = scott(n_typical, d, np.trace(pooled) / d) if gamma == "scott" else gamma
        shape = _frequency_covariance(frequency_covariance, pooled)
        features = Features.draw(n_features, width, shape, seed)
        rows.x /= (factor / unit)[:, None]
        work = _Work(features, lam, covariances, precision, module, count, limit)
        theta, condition, added = work.run(rows, progress)
    if not np.isfinite(theta).all():
        bad = labels[int(np.flatnonzero(~np.isfinite(theta).all(axis=1))[0])]
        raise ValueError(
            f"the features of some rows of group {bad!r} are not finite: |x| / bandwidth "
            "overflows. Drop rows that far away, or raise gamma"
        )
    settings = {
        "method": method, "n_features": n_features, "lam": lam, "gamma": width,
        "gamma_rule": "scott" if gamma == "scott" else "given", "scale": scale, "base": base,
        "frequency_covariance": frequency_covariance
        if isinstance(frequency_covariance, str) else "given",
        "weights": "none" if sample_weight is None and not rows.weighted
        else "Kish" if normalize_weights else "as given",
        "seed": seed, "n_groups": len(labels), "n_rows": rows.x.shape[1], "median_n": n_typical,
        "dimension": d, "n_shrunk": int((shrinkage > 0).sum()) if base == "empirical" else 0,
        "provenance": {
            "engine": "direct", "backend": module.NAME, "precision": precision, "tolerance": 0.0,
            "threads": count,
        },
    }  # fmt: skip
    result = GroupedDensity(
        labels, features, theta, means, covariances, rows.n, rows.counts, factor,
        shrinkage=shrinkage, condition=condition, added=added, settings=settings,
        table=Table(rows.table.columns, rows.table.kind), threads=threads,
    )  # fmt: skip
    _tell(result)
    return result


def _tell(result: GroupedDensity) -> None:
    """What the user must know of all groups, once."""
    G, d = len(result), result.dimension
    if result.settings["n_shrunk"]:
        tell(
            f"{result.settings['n_shrunk']:,} of {G:,} groups have fewer than {AMPLE:.0f} (d + 1) "
            f"= {AMPLE * (d + 1):.0f} rows, or no spread to speak of in some direction: the "
            "covariance of their base is shrunk towards the pooled one; result.shrinkage says how "
            "far"
        )
    if (result.added > 0).any():
        tell(
            f"the systems of {int((result.added > 0).sum()):,} of {G:,} groups are not positive "
            f"definite in floating point: up to {result.added.max():.1e} was added to their "
            "diagonals; raise lam"
        )
    elif (result.condition > ILL_CONDITIONED).any():
        tell(
            f"the systems of {int((result.condition > ILL_CONDITIONED).sum()):,} of {G:,} groups "
            f"are ill-conditioned (up to {result.condition.max():.1e}): few digits of their "
            "solutions are certain; raise lam or gamma"
        )


# -- options and labels --------------------------------------------------------------------------


def _check(
    method: Any, scale: Any, base: Any, frequencies: Any, precision: Any, n_features: Any
) -> None:
    if method != "fd":
        raise ValueError(
            f'method={method!r}: fit_groups learns by "fd" only; use fit for each group otherwise'
        )
    if not isinstance(frequencies, str):
        frequencies = "identity"  # an array, judged later
    for name, value, choices in (
        ("scale", scale, SCALES), ("base", base, BASES), ("precision", precision, tuple(DTYPES)),
        ("frequency_covariance", frequencies, FREQUENCIES),
    ):  # fmt: skip
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(repr, choices))}")
    if isinstance(n_features, bool) or not hasattr(n_features, "__index__") or n_features < 1:
        raise ValueError(f"n_features={n_features!r}: expected an integer of at least 1")


def _values(groups: Any, name: str = "groups") -> Any:
    """The labels as a one-dimensional array of numbers, or as a list; none is missing."""
    if isinstance(groups, (str, bytes)) or not hasattr(groups, "__len__"):
        raise TypeError(
            f"{name}={groups!r}: expected one label a row; to group by a column of a frame, pass "
            "X.drop(columns=[name]) and X[name]"
        )
    if isinstance(groups, np.ma.MaskedArray) and np.ma.getmaskarray(groups).any():
        row = int(np.flatnonzero(np.ma.getmaskarray(groups))[0])
        raise ValueError(f"{name} has no label at row {row} (masked); drop such rows first")
    if isinstance(groups, (list, tuple)) and _is_mixed(groups):
        array: Any = np.empty(len(groups), object)  # numpy would make text of 1 beside "a"
        array[:] = list(groups)
    else:
        array = np.asarray(groups)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one label a row, shape (n,), got {array.shape}")
    if array.dtype.kind in "iub":
        return array
    if array.dtype.kind == "f":
        missing = np.flatnonzero(np.isnan(array))
    elif array.dtype.kind in "Mm":
        missing, array = np.flatnonzero(np.isnat(array)), list(array)
    else:
        array = array.tolist()
        missing = np.array([], np.int64)
        # the distinct ones are few: looked at once each
        try:
            odd = {v for v in set(array) if _is_missing(v)}
        except TypeError:
            odd = set()  # some do not hash; said by the caller
        if odd or any(v is None for v in array):
            missing = np.array([i for i, v in enumerate(array) if _is_missing(v)], np.int64)
    if len(missing):
        row = int(missing[0])
        raise ValueError(
            f"{name} has no label at row {row} ({array[row]!r}); {len(missing):,} rows lack one: "
            "drop them or give them a label first"
        )
    return array


def _is_mixed(labels: Any) -> bool:
    kinds = {type(label) for label in labels}
    return len(kinds) > 1 or bool(kinds & {tuple, list})


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and bool(value != value)


def _factorize(groups: Any) -> tuple[list[Any], Ints]:
    """Distinct labels, sorted where that is possible, else as they appear; and one index a row."""
    values = _values(groups)
    if len(values) == 0:
        raise ValueError("groups is empty; at least one row is needed")
    if isinstance(values, np.ndarray):
        distinct, codes = _distinct(values)
        return distinct.tolist(), codes
    index: dict[Any, int] = {}
    codes = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        try:
            codes[row] = index.setdefault(value, len(index))
        except TypeError:
            kind = type(value).__name__
            raise TypeError(f"the label at row {row} of groups does not hash: {kind}") from None
    labels = list(index)
    try:
        order = sorted(range(len(labels)), key=labels.__getitem__)
    except TypeError:
        return labels, codes
    rank = np.empty(len(labels), np.int64)
    rank[order] = np.arange(len(labels))
    return [labels[i] for i in order], rank[codes]


def _distinct(values: NDArray[Any]) -> tuple[NDArray[Any], Ints]:
    """np.unique with its inverse; by counting where integers lie close, which is far quicker."""
    if values.dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        if high - low < 4 * len(values) and high < 2**62 and low > -(2**62):
            offsets = values.astype(np.int64) - low
            present = np.bincount(offsets) > 0
            rank = np.cumsum(present) - 1
            return (np.flatnonzero(present) + low), np.asarray(rank[offsets], np.int64)
    distinct, inverse = np.unique(values, return_inverse=True)
    return distinct, inverse.astype(np.int64, copy=False)


# -- rows, sorted --------------------------------------------------------------------------------


class _Rows:
    """The rows of each group one after the other, by columns: x (d, n), w (n,); group g is
    starts[g]:stops[g]. ``n`` is the sum of a group's weights, ``counts`` its rows.
    """

    def __init__(self, x: Array, w: Array, counts: Ints, table: Table, weighted: bool) -> None:
        self.x, self.w, self.counts, self.table, self.weighted = x, w, counts, table, weighted
        stops = np.cumsum(counts)
        self.n: Array = np.add.reduceat(w, stops - counts)
        self.spans = list(zip((stops - counts).tolist(), stops.tolist(), strict=True))

    def centre(self) -> tuple[Array, Array, Array]:
        """Means (G, d); covariances (G, d, d), divided by n, in units (d,) that are powers of two.
        From then on x is about the mean of its group, in those units."""
        x, w = self.x, self.w
        starts = [start for start, _ in self.spans]
        means = np.add.reduceat(x * w if self.weighted else x, starts, axis=1).T / self.n[:, None]
        for (start, stop), mean, n in zip(self.spans, means, self.n.tolist(), strict=True):
            part = x[:, start:stop]
            part -= mean[:, None]
            better = mean + part @ w[start:stop] / n
            part -= (better - mean)[:, None]
            mean[:] = better
        spread = np.maximum(x.max(axis=1), -x.min(axis=1))
        unit = np.exp2(np.round(np.log2(np.where(spread > 0, spread, 1.0))))
        x /= unit[:, None]
        scatter = np.empty((len(means), len(x), len(x)))
        for g, (start, stop) in enumerate(self.spans):
            part = x[:, start:stop]
            scatter[g] = (part * w[start:stop] if self.weighted else part) @ part.T
        scatter /= self.n[:, None, None]
        return means, 0.5 * (scatter + scatter.transpose(0, 2, 1)), unit


def _sorted_rows(
    X: Any, sample_weight: Any, labels: list[Any], codes: Ints, normalize: bool
) -> _Rows:
    blocks = Blocks(X, sample_weight=sample_weight)
    n = len(codes)
    wrong = "groups has {} entries, but X has {} rows"
    if blocks.n_rows is not None and blocks.n_rows != n:
        raise ValueError(wrong.format(f"{n:,}", f"{blocks.n_rows:,}"))
    # numpy sorts two bytes by counting, eight by merging
    short = codes.astype(np.uint16) if len(labels) <= 2**16 else codes
    order = np.argsort(short, kind="stable")
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    x, w, at, weighted = np.zeros((0, 0)), np.ones(n), 0, False
    for part, weights in blocks:
        if at + len(part) > n:
            raise ValueError(wrong.format(f"{n:,}", "more"))
        if at == 0:
            x = np.empty((n, part.shape[1]))
        here = place[at : at + len(part)]
        x[here] = part  # whole rows: one miss of the cache each
        if weights is not None:
            w[here], weighted = weights, True
        at += len(part)
    if at != n:
        raise ValueError(wrong.format(f"{n:,}", f"{at:,}"))
    counts = np.bincount(codes, minlength=len(labels))
    if weighted:
        sorted_codes = codes[order]
        total, square = (np.bincount(sorted_codes, v, len(labels)) for v in (w, w * w))
        if (total <= 0).any():
            empty = labels[int(np.flatnonzero(total <= 0)[0])]
            raise ValueError(f"the weights of group {empty!r} are all zero; drop its rows")
        if normalize:
            w *= (total / square)[sorted_codes]
        keep = w > 0
        if not keep.all():
            x, w = x[keep], w[keep]
            counts = np.bincount(sorted_codes[keep], minlength=len(labels))
    return _Rows(np.ascontiguousarray(x.T), w, counts.astype(np.int64), blocks.table, weighted)


# -- covariances ---------------------------------------------------------------------------------


def _pooled(rows: _Rows, scatter: Array, unit: Array, means: Array) -> tuple[Array, Array]:
    """Deviations (d,) and correlations (d, d) of V = sum n_g S_g / sum (n_g - 1)."""
    columns = rows.table.columns
    freedom = float(np.maximum(rows.n - 1.0, 0.0).sum())
    total = np.einsum("g,gij->ij", rows.n, scatter)
    if freedom <= 0 or not total.any():
        raise ValueError(
            "no group has two rows that differ, and so no density can be learned; are the labels "
            "of groups those of rows?"
        )
    root = np.sqrt(np.diag(total) / freedom)
    typical = np.median(np.abs(means), axis=0)
    constant = np.flatnonzero(unit * root <= typical * 2.0**-50)  # no more than rounding
    if len(constant):
        name = column_name(int(constant[0]), columns)
        raise ValueError(
            f"column {name} is constant within every group, so the data have no density in it; "
            "drop it"
        )
    correlation = total / freedom / np.outer(root, root)
    np.fill_diagonal(correlation, 1.0)
    facts = Moments(
        float(rows.n.sum()), max(freedom, 2.0), np.median(means, axis=0), unit * root, correlation
    )
    check_full_rank(facts, columns)
    return facts.deviation, correlation


def _bases(own: Array, pooled: Array, n: Array, base: str) -> tuple[Array, Array]:
    """C_g (G, d, d) and the share a of the pooled covariance in each, (G,)."""
    if base == "pooled":
        return np.repeat(pooled[None], len(n), axis=0), np.ones(len(n))
    d = len(pooled)
    share = np.clip(((d + 1) / n - 1.0 / AMPLE) / (1.0 - 1.0 / AMPLE), 0.0, 1.0)
    inverse = np.linalg.inv(np.linalg.cholesky(pooled))
    least = np.linalg.eigvalsh(inverse @ own @ inverse.T)[:, 0]
    share = np.where(least < FLOOR, np.maximum(share, (FLOOR - least) / (1.0 - least)), share)
    mixed = share[:, None, None]
    return (1.0 - mixed) * own + mixed * pooled, share


# -- the systems of all groups -------------------------------------------------------------------


def padded(rows: int) -> int:
    """The length of the lane of a group of so many rows: at most an eighth more."""
    step = 1 << max(int(rows).bit_length() - 4, 0)
    return -(-rows // step) * step


class _Work:
    """Buffers and constants of the pass over all groups."""

    def __init__(
        self, features: Features, lam: float, covariances: Array, precision: str,
        module: ModuleType, count: int, limit: int,
    ) -> None:  # fmt: skip
        self.features, self.covariances, self.precision = features, covariances, precision
        self.module, self.count, self.limit = module, count, limit
        z, gamma = features.frequencies, features.bandwidth
        self.outer, self.norms, self.shift = z @ z.T, np.einsum("sk,sk->s", z, z), lam * gamma**2
        self.frequencies, self.phases = z / gamma, features.phases.copy()
        self.amplitude = float(np.sqrt(2.0 / len(z)))
        self.gram = np.empty((0, 0, 0))

    def run(self, rows: _Rows, progress: bool) -> tuple[Array, Array, Array]:
        """theta (G, S), condition (G,) and what was added to the diagonal, (G,)."""
        G, S = len(rows.counts), self.features.n_features
        self.theta = np.empty((G, S))
        self.condition, self.added = np.empty(G), np.zeros(G)
        batches = self._batches(rows)
        self.roots = np.sqrt(rows.w)
        with (
            ThreadPoolExecutor(self.count) as pool,
            np.errstate(over="ignore", invalid="ignore"),  # judged by the caller
            Progress(progress, "groups", G) as bar,
        ):
            for length, which in batches:
                if length == 0:
                    self._large(rows, int(which[0]))
                else:
                    self._lanes(rows, length, which, pool)
                bar.add(len(which))
        return self.theta, self.condition, self.added

    def _batches(self, rows: _Rows) -> list[tuple[int, Ints]]:
        """(length of the lanes, groups); length 0 for a group that is a pass of its own."""
        S, d = self.features.frequencies.shape
        large = np.flatnonzero(rows.counts > LARGE)
        small = np.flatnonzero(rows.counts <= LARGE)
        lengths = np.array([padded(n) for n in rows.counts[small].tolist()], np.int64)
        fixed = 8 * (2 * self.count * S * kernels.ROW_TILE + (4 + self.count) * S * (S + d))
        batches, least = [], 0
        if len(large):
            least = fixed + required_memory(self.features, 0, False, self.precision, self.count)
        for length in np.unique(lengths).tolist():
            which = small[lengths == length]
            one = 8 * (2 * S * (S + 2 * d + 4) + length * (2 * d + 2))
            least = max(least, fixed + one)
            size = min(max(BATCH, 4 * self.count), (self.limit - fixed) // one)
            size = min(size, max(BATCH_ROWS // length, self.count))
            size = max(size, 1)
            batches += [(length, which[at : at + size]) for at in range(0, len(which), size)]
        if least > self.limit:
            raise ValueError(
                f"a budget of {memory.human(self.limit)} does not hold one group with {S:,} "
                f"features, which takes {memory.human(least)}; raise it or use fewer features"
            )
        return batches + [(0, large[i : i + 1]) for i in range(len(large))]

    def _lanes(self, rows: _Rows, length: int, which: Ints, pool: ThreadPoolExecutor) -> None:
        """A batch of groups of like size: one kernel call, then their systems."""
        roots, dtype = self.roots, DTYPES[self.precision]
        side = 1 if dtype == np.float64 else self.features.n_features
        B, (S, d) = len(which), self.features.frequencies.shape
        x, root = np.zeros((B * length, d)), np.zeros(B * length)
        for lane, g in enumerate(which.tolist()):
            start, stop = rows.spans[g]
            part = slice(lane * length, lane * length + stop - start)
            x[part] = rows.x[:, start:stop].T
            root[part] = roots[start:stop]
        x.flags.writeable = root.flags.writeable = False  # as those of the direct engine
        sum_phi, sum_dphi = np.zeros((B, S)), np.zeros((B, S))
        sum_dphi_x, gram = np.zeros((B, S, d)), self._zero_gram(B)
        self.module.lane_rank_k(
            x, root, np.zeros(d), self.frequencies, self.phases, self.amplitude, length,
            sum_phi, sum_dphi, sum_dphi_x, gram, np.zeros((0, 0, 0)),
            np.empty((self.count, 2, S, kernels.ROW_TILE), dtype),
            np.empty((self.count, 2, side, side), dtype), self.count,
        )  # fmt: skip
        right = self._right(which, sum_phi, sum_dphi_x)
        share = -(-B // self.count)
        parts = [slice(at, min(at + share, B)) for at in range(0, B, share)]
        factors = pool.map(lambda part: self._factors(which[part], gram[part]), parts)
        for part, found in zip(parts, factors, strict=True):
            self._solve(which[part], found, right[part])

    def _zero_gram(self, B: int) -> Array:
        """(B, S, S) zeros in memory that is used again: new pages cost as much as a solve."""
        S = self.features.n_features
        if len(self.gram) < B:
            self.gram = np.empty((B, S, S))
        part = self.gram[:B]
        part.fill(0.0)
        return part

    def _large(self, rows: _Rows, g: int) -> None:
        part = slice(*rows.spans[g])
        blocks = Blocks(rows.x[:, part].T, sample_weight=rows.w[part])
        stats = accumulate_direct(
            blocks, self.features, np.zeros(0), np.zeros(len(rows.x)), gram_phi=False,
            precision=self.precision, backend=self.module, n_threads=self.count,
        )  # fmt: skip
        which = np.array([g])
        right = self._right(which, stats.sum_phi[None], stats.sum_dphi_x[None])
        self._solve(which, self._factors(which, stats.gram[None].copy()), right)

    def _right(self, which: Ints, sum_phi: Array, sum_dphi_x: Array) -> Array:
        """b = gamma psi' + |Z|^2 psi of Algorithm 2, (B, S); the means are at 0."""
        pull = np.linalg.solve(self.covariances[which], sum_dphi_x.transpose(0, 2, 1))
        psi_prime = np.einsum("sk,bks->bs", self.features.frequencies, pull)
        right: Array = self.features.bandwidth * psi_prime + self.norms * sum_phi
        return right

    def _factors(self, which: Ints, gram: Array) -> Array | None:
        """Cholesky factors of lam gamma^2 I + ZZ^T * Phi', (B, S, S); None where some features are
        not finite. Overwrites gram, of which only the upper triangles are read."""
        diagonal = np.einsum("bii->bi", gram)  # a view
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            gram *= self.outer
            diagonal += self.shift
            trace = diagonal.sum(axis=1)
            self.condition[which] = trace / self.shift
        if not np.isfinite(trace).all():
            return None
        lower = gram.transpose(0, 2, 1)
        try:
            return np.asarray(np.linalg.cholesky(lower), np.float64)
        except np.linalg.LinAlgError:
            return np.array([self._factor(g, m) for g, m in zip(which, lower, strict=True)])

    def _solve(self, which: Ints, factors: Array | None, right: Array) -> None:
        """theta of some groups. LAPACK holds Python's lock here: threads would only wait."""
        if factors is None:
            bad = ~np.isfinite(right).all(axis=1)
            self.theta[which] = np.where(bad, np.nan, 0.0)[:, None]  # fit_groups says which
            return
        for g, factor, b in zip(which.tolist(), factors, right, strict=True):
            self.theta[g], _ = dpotrs(factor.T, b, lower=0)

    def _factor(self, g: int, matrix: Array) -> Array:
        """Cholesky factor; where rounding leaves none, more is added to the diagonal."""
        top, step = float(np.abs(np.diag(matrix)).max()), 0.0
        while True:
            try:
                factor = np.linalg.cholesky(matrix + step * np.eye(len(matrix)))
            except np.linalg.LinAlgError:
                step = 10.0 * step if step else len(matrix) * np.finfo(float).eps * top
                if not step < 1e-2 * top:
                    raise ValueError(
                        "the system of a group is far from positive definite; raise lam"
                    ) from None
                continue
            self.added[g] = step
            return np.asarray(factor, np.float64)


# -- the result ----------------------------------------------------------------------------------


class _OneOfMany(Density):
    """A `Density` whose normaliser is that of its group."""

    find: Any = None

    @functools.cached_property
    def log_normalizer(self) -> Normalizer:
        """log Z with standard error and effective sample size; see `Normalizer`."""
        if self.find is None:
            return log_normalizer(self.tilt, self.base, self.threads)
        found: Normalizer = self.find()
        return found


class GroupedDensity(Mapping[Any, Density]):
    """Densities of many groups that share features and scale; made by ``fit_groups``.

    A mapping from labels to `Density`, which are made when asked for.

    Attributes
    ----------
    features : the `Features` of all groups, of u = (x - mean) / scale
    labels : of the groups, in the order of the arrays below
    theta : (G, S) coefficients
    means, covariances : (G, d), (G, d, d) of the bases, in the units of the data
    n : (G,) effective numbers of rows; n_rows : (G,) rows
    shrinkage : (G,) share of the pooled covariance in each base
    condition : (G,) bounds of the condition numbers, trace over lam gamma^2
    added : (G,) what rounding made add to the diagonals
    scale : (d,); settings : every choice that was made
    """

    def __init__(
        self, labels: list[Any], features: Features, theta: Array, means: Array,
        covariances: Array, n: Array, n_rows: Ints, scale: Array, *, shrinkage: Array,
        condition: Array, added: Array, settings: dict[str, Any], table: Table | None = None,
        threads: Threads | None = None, normalizers: Array | None = None,
    ) -> None:  # fmt: skip
        self.labels, self.features, self.theta, self.means = labels, features, theta, means
        self.n, self.n_rows, self.scale = n, n_rows, scale
        self.shrinkage, self.condition, self.added = shrinkage, condition, added
        self.settings, self.table = settings, table or Table()
        self.threads = threads or Threads()
        self._scaled = covariances  # of u
        self._index = {label: i for i, label in enumerate(labels)}
        # value, standard error, effective sample size, points; NaN where not computed
        self._normalizers = np.full((len(labels), 4), np.nan)
        if normalizers is not None:
            self._normalizers[:] = normalizers

    @property
    def dimension(self) -> int:
        """d."""
        return self.features.dimension

    @property
    def covariances(self) -> Array:
        """(G, d, d), in the units of the data."""
        covariances: Array = self._scaled * np.outer(self.scale, self.scale)
        return covariances

    # -- a mapping -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.labels)

    def __contains__(self, label: object) -> bool:
        try:
            return label in self._index
        except TypeError:
            return False

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, label: Any) -> Density:
        g = self._place(label)
        model = _OneOfMany(
            self.settings["method"], self._tilt(g), self._base(g),
            settings=self._settings_of(g), table=self.table, threads=self.threads,
            diagnostics={
                "solver": "cholesky", "condition_bound": float(self.condition[g]),
                "added_to_diagonal": float(self.added[g]),
            },
            scaling=Scaling(self.means[g].copy(), self.scale),
        )  # fmt: skip
        model.find = functools.partial(self.log_normalizer, label)
        return model

    def _settings_of(self, g: int) -> dict[str, Any]:
        label = self.labels[g]
        skip = ("n_groups", "n_rows", "median_n", "n_shrunk")
        return {
            **{k: v for k, v in self.settings.items() if k not in skip},
            "group": label if isinstance(label, (str, int, float, bool)) else str(label),
            "n": float(self.n[g]), "n_rows": int(self.n_rows[g]),
            "base_shrinkage": float(self.shrinkage[g]),
        }  # fmt: skip

    def _place(self, label: Any) -> int:
        if label in self:
            return self._index[label]
        raise KeyError(self._unknown(label))

    def _unknown(self, label: Any) -> str:
        """'no group ...', with the labels nearest to it."""
        import difflib

        if isinstance(label, str):
            texts = {str(known): known for known in self.labels}
            near = [texts[t] for t in difflib.get_close_matches(label, texts, 3)]
        else:
            try:
                near = sorted(self.labels, key=lambda known: abs(known - label))[:3]
            except TypeError:
                near = []
        hint = f"; near it: {', '.join(map(repr, near))}" if near else ""
        return f"no group {label!r} among {len(self):,}{hint}"

    def _tilt(self, g: int) -> PointTilt:
        return PointTilt(self.features, self.theta[g].copy(), np.zeros(self.dimension))

    def _base(self, g: int) -> GaussianBase:
        return GaussianBase(np.zeros(self.dimension), self._scaled[g])

    # -- evaluation ------------------------------------------------------------------------------

    def log_density(self, Y: Any, groups: Any, normalized: bool = True) -> Any:
        """Log density of every row of Y under its own group, (n,); a Series where Y is a frame.

        Parameters
        ----------
        Y : (n, d) rows in the units of the data, as for ``fit_groups``
        groups : (n,) their labels, or one label for all
        normalized : subtract log Z, which is estimated on first use for the groups that occur
        """
        blocks = Blocks(Y, dimension=self.dimension, columns=self.table.columns, name="Y")
        codes = self._codes(groups, blocks.n_rows)
        constants = self._log_constants
        if normalized:
            constants = constants - self._found(np.unique(codes))[:, 0]
        parts, at = [], 0
        for y, _ in blocks:
            here = codes if codes.ndim == 0 else codes[at : at + len(y)]
            if codes.ndim and len(here) < len(y):
                break
            parts += self._log_values(y, np.broadcast_to(here, len(y)), constants)
            at += len(y)
        if codes.ndim and (at != len(codes) or blocks.n_rows not in (None, at)):
            raise ValueError(f"groups has {len(codes):,} entries, but Y has another number of rows")
        return blocks.table.series(np.concatenate(parts), "log_density")

    def _codes(self, groups: Any, n_rows: int | None) -> Ints:
        """One index a row; of no dimension where there is one label for all rows."""
        scalar = isinstance(groups, (str, bytes)) or not hasattr(groups, "__len__")
        if scalar or (isinstance(groups, tuple) and groups in self):
            return np.array(self._place(groups))
        values = _values(groups)
        if n_rows is not None and len(values) != n_rows:
            raise ValueError(f"groups has {len(values):,} entries, but Y has {n_rows:,} rows")
        index = self._index
        try:
            if isinstance(values, np.ndarray):
                distinct, inverse = _distinct(values)
                places = np.array([index[v] for v in distinct.tolist()], np.int64)
                return np.asarray(places[inverse])
            return np.array([index[v] for v in values], np.int64)
        except (KeyError, TypeError):
            plain = values.tolist() if isinstance(values, np.ndarray) else values
            row = next(i for i, v in enumerate(plain) if v not in self)
            raise ValueError(f"groups, row {row}: {self._unknown(plain[row])}") from None

    @functools.cached_property
    def _whitening(self) -> Array:
        """L^-1 of every base, (G, d, d)."""
        return np.linalg.inv(np.linalg.cholesky(self._scaled))

    @functools.cached_property
    def _log_constants(self) -> Array:
        """Of the normal densities, in the units of the data, (G,)."""
        whitening = np.einsum("gii->gi", self._whitening)
        volume = 0.5 * self.dimension * np.log(2.0 * np.pi) + np.log(self.scale).sum()
        constants: Array = np.log(whitening).sum(axis=1) - volume
        return constants

    def _log_values(self, y: Array, codes: Ints, constants: Array) -> list[Array]:
        """theta_g . phi(u) - |L_g^-1 u|^2 / 2 + constants_g, block by block."""
        module, count = self.threads.resolve()
        S, d = self.features.frequencies.shape
        f, amplitude = self.features.frequencies / self.features.bandwidth, float(np.sqrt(2.0 / S))
        phi, dphi = np.empty((S, BLOCK)), np.empty((S, BLOCK))
        none = np.zeros(0)
        none.flags.writeable = False
        values = []
        with kernels.threads(module, count):
            for start in range(0, len(y), BLOCK):
                g = codes[start : start + BLOCK]
                with np.errstate(over="ignore"):
                    u = (y[start : start + BLOCK] - self.means[g]) / self.scale
                if not np.isfinite(u).all():
                    raise ValueError(
                        "rows of Y overflow in the model's units: they are too far away"
                    )
                u.flags.writeable = False
                module.feature_block(
                    u, none, np.zeros(d), f, self.features.phases.copy(), amplitude, dphi, phi,
                    np.zeros(S), np.zeros(S), np.zeros((S, d)), count,
                )  # fmt: skip
                tilt = np.einsum("si,is->i", phi[:, : len(u)], self.theta[g])
                white = np.einsum("ijk,ik->ij", self._whitening[g], u)
                values.append(tilt - 0.5 * np.einsum("ij,ij->i", white, white) + constants[g])
        return values

    def sample(self, label: Any, n: int, seed: int = 0, **options: Any) -> Any:
        """n rows drawn from the density of one group; see ``Density.sample``."""
        return self[label].sample(n, seed, **options)

    # -- normalisers -----------------------------------------------------------------------------

    def log_normalizer(self, label: Any) -> Normalizer:
        """log Z of one group, with its error; estimated once and kept."""
        value, error, sample, points = self._found(np.array([self._place(label)]), label)
        method = "quadrature" if self.dimension <= QUADRATURE_DIMENSIONS else "sobol"
        return Normalizer(float(value), float(error), float(sample), method, int(points))

    @property
    def poor(self) -> list[Any]:
        """Labels of the groups whose normalisers, as far as known, are not to be trusted."""
        return [self.labels[g] for g in np.flatnonzero(self._poor)]

    @property
    def _poor(self) -> NDArray[np.bool_]:
        known = self._normalizers
        return np.array([
            not np.isnan(v) and Normalizer(v, e, s, "", 0).is_poor for v, e, s, _ in known.tolist()
        ])  # fmt: skip

    def _found(self, which: Ints, *one: Any) -> Array:
        """Normalisers, those of the groups asked for among them, (G, 4); of one group, (4,)."""
        unknown = which[np.isnan(self._normalizers[which, 0])]
        if len(unknown):
            self._find(unknown)
            poor = unknown[self._poor[unknown]]
            if len(poor):
                named = ", ".join(repr(self.labels[g]) for g in poor[:POOR_NAMED])
                more = ", ..." if len(poor) > POOR_NAMED else ""
                tell(
                    f"the normalisers of {len(poor):,} of {len(self):,} groups ({named}{more}) "
                    f"rest on too few effective samples of {DRAWS:,}: nearly all of their mass "
                    "lies where the base has almost none, so that their normalised densities and "
                    "samples are not to be trusted; result.poor lists them. Raise lam (10 times, "
                    "say) or gamma"
                )
        found: Array = self._normalizers[which[0]] if one else self._normalizers
        return found

    def _find(self, which: Ints) -> None:
        module, count = self.threads.resolve()
        with kernels.threads(module, count):
            if self.dimension <= QUADRATURE_DIMENSIONS:
                most = max(memory_budget() // GRID_BYTES, 1)
                with ThreadPoolExecutor(min(count, most)) as pool:
                    found = list(pool.map(self._by_grid, which.tolist()))
            else:
                points = [sobol_normals(self.dimension, LOG2_POINTS, r) for r in range(REPLICATES)]
                draws = np.concatenate(points)
                draws.flags.writeable = False
                found = [self._by_sobol(g, draws, module, count) for g in which.tolist()]
        for g, result in zip(which.tolist(), found, strict=True):
            self._normalizers[g] = (
                result.value, result.standard_error, result.effective_sample_size, result.n_points
            )  # fmt: skip

    def _by_grid(self, g: int) -> Normalizer:
        return _TensorGrid(self._tilt(g), self._base(g), self.threads).normalizer

    def _by_sobol(self, g: int, draws: Array, module: ModuleType, count: int) -> Normalizer:
        """As for one density, with an eighth of the draws where these are enough; the draws are the
        same for all groups, whose frequencies are whitened instead."""
        tilt, base = self._tilt(g), self._base(g)
        f = np.ascontiguousarray(self.features.frequencies @ base._cholesky)
        f /= self.features.bandwidth
        values = np.empty(len(draws))
        module.tilt(
            draws, np.zeros(self.dimension), f, self.features.phases.copy(),
            tilt.amplitude * tilt.theta, values, count,
        )  # fmt: skip
        found = _from_replicates(values.reshape(REPLICATES, -1))
        if found.is_poor or found.standard_error > ENOUGH:
            found = _by_sobol(tilt, base, self.threads)
        return found

    # -- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all groups to one npz file without pickles; ``tgpfast.load`` reads it back."""
        labels = np.array(self.labels) if not _has_parts(self.labels) else np.array([], object)
        if labels.dtype.kind not in "iubfU" or labels.tolist() != self.labels:
            kinds = ", ".join(sorted({type(label).__name__ for label in self.labels}))
            raise TypeError(
                f"labels of kind {kinds} cannot be saved: all must be integers, or all text; "
                "give the groups such labels, by str() say"
            )
        f = self.features
        arrays: dict[str, Any] = {
            "labels": labels, "frequencies": f.frequencies, "phases": f.phases,
            "theta": self.theta, "means": self.means, "base_covariances": self._scaled,
            "n": self.n, "n_rows": self.n_rows, "scale": self.scale,
            "shrinkage": self.shrinkage, "condition": self.condition, "added": self.added,
            "normalizers": self._normalizers,
        }  # fmt: skip
        if f.covariance is not None:
            arrays["covariance"] = f.covariance
        facts = {
            "bandwidth": f.bandwidth, "seed": f.seed, "settings": self.settings,
            "columns": self.table.columns, "kind_of_table": self.table.kind,
        }  # fmt: skip
        storage.write(path, KIND, facts, arrays)

    @classmethod
    def _from_file(
        cls, path: Any, facts: dict[str, Any], arrays: dict[str, Any]
    ) -> GroupedDensity:
        name = os.fspath(path)
        take = functools.partial(storage.take, arrays, path=path)
        z = take("frequencies", None)
        labels, n_rows = arrays.pop("labels", None), arrays.pop("n_rows", None)
        if z.ndim != 2 or labels is None or labels.ndim != 1 or len(labels) == 0:
            raise ValueError(f"{name!r} is damaged: frequencies or labels")
        (S, d), G = z.shape, len(labels)
        shapes = {
            "phases": (S,), "theta": (G, S), "means": (G, d), "base_covariances": (G, d, d),
            "n": (G,), "scale": (d,), "shrinkage": (G,), "condition": (G,), "added": (G,),
        }  # fmt: skip
        if "covariance" in arrays:
            shapes["covariance"] = (d, d)
        got = {key: take(key, shape) for key, shape in shapes.items()}
        normalizers = take("normalizers", (G, 4))
        try:
            for key, array in got.items():
                if not np.isfinite(array).all():
                    raise ValueError(f"{key} must be finite")
            if not (got["scale"] > 0).all():
                raise ValueError("scale must be positive")
            if n_rows is None or n_rows.dtype.kind not in "iu" or n_rows.shape != (G,):
                raise ValueError("n_rows must be integers, one a group")
            known = ~np.isnan(normalizers).all(axis=1)
            if not np.isfinite(normalizers[known]).all():
                raise ValueError("normalizers must be finite, or lacking")
            C = got["base_covariances"]
            if not np.allclose(C, C.transpose(0, 2, 1), rtol=1e-8, atol=0.0):
                raise ValueError("base_covariances must be symmetric")
            np.linalg.cholesky(C)
            if arrays:
                raise ValueError(f"unexpected members {sorted(arrays)}")
            names = labels.tolist()
            if len(set(names)) != G:
                raise ValueError("labels must be distinct")
            settings = dict(facts["settings"])
            if settings["method"] != "fd":
                raise ValueError(f"method {settings['method']!r} is not known")
            features = Features(
                z, got["phases"], facts["bandwidth"], covariance=got.get("covariance"),
                seed=facts["seed"],
            )  # fmt: skip
            return cls(
                names, features, got["theta"], got["means"], C, got["n"],
                n_rows.astype(np.int64), got["scale"], shrinkage=got["shrinkage"],
                condition=got["condition"], added=got["added"], settings=settings,
                table=_table_from(facts["columns"], facts["kind_of_table"], d),
                normalizers=normalizers,
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, np.linalg.LinAlgError) as error:
            raise ValueError(f"{name!r} is damaged: {error}") from error

    def __repr__(self) -> str:
        return (
            f"GroupedDensity(n_groups={len(self):,}, method={self.settings['method']!r}, "
            f"d={self.dimension}, n_features={self.features.n_features}, "
            f"bandwidth={self.features.bandwidth:.6g})"
        )


def _has_parts(labels: list[Any]) -> bool:
    """Whether an array of the labels would not have one dimension."""
    return any(isinstance(label, (tuple, frozenset)) for label in labels)


class _TensorGrid(Grid):
    """The grid of a point model whose mean is 0, evaluated as a product of two matrices.

    cos(v . w + c) over a tensor of nodes w is Re of e^{ic} times one factor an axis.
    """

    def __init__(self, tilt: PointTilt, base: GaussianBase, threads: Threads) -> None:
        v = tilt.features.frequencies @ base._cholesky
        self._v: Array = v / tilt.features.bandwidth
        self._strengths = tilt.amplitude * tilt.theta * np.exp(1j * tilt.features.phases)
        super().__init__(tilt, base, threads)

    def _evaluate(self, exponent: Any, step: Array) -> Array:
        first = np.exp(1j * np.outer(self.axes[0], self._v[:, 0])) * self._strengths
        if len(self.axes) == 1:
            value = first.real.sum(axis=1)
        else:
            second = np.exp(1j * np.outer(self.axes[1], self._v[:, 1]))
            value = first.real @ second.real.T - first.imag @ second.imag.T
        return np.asarray(value + self._log_gaussian(step))


def _from_replicates(values: Array) -> Normalizer:
    """log Z of exponents at independent replicates of Sobol points, (replicates, points)."""
    parts = logsumexp(values, axis=1) - np.log(values.shape[1])
    value = float(logsumexp(parts) - np.log(len(parts)))
    error = float(np.std(np.exp(parts - value), ddof=1) / np.sqrt(len(parts)))
    square = float(logsumexp(2.0 * values.ravel())) - np.log(values.size)
    sample = DRAWS * float(np.exp(min(2.0 * value - square, 0.0)))
    return Normalizer(value, error, sample, "sobol", values.size)
