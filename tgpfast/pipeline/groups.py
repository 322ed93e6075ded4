"""`fit_groups`: many small densities that share their features, learned together.

Rows are sorted by group once. Groups of like size are lanes of one kernel call, which gives a Gram
matrix for each; the small systems are then solved in turn. A group is padded with rows of no
weight to a length that depends on its own size alone, so that neither batches nor threads change a
bit of the result.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from scipy.linalg.lapack import dposv

from .. import kernels
from ..data.blocks import Blocks, Table
from ..data.labels import Ints, factorize
from ..data.scaling import Moments, check_full_rank, column_name
from ..density.grouped import GroupedDensity
from ..features.random import Features, covariance_of_frequencies
from ..kernels.thread_choice import Threads
from ..runtime import memory
from ..runtime.progress import Progress
from ..runtime.warnings import DataWarning, PrecisionWarning, warn
from ..selection.candidates import scott_bandwidth
from ..solvers.linear_systems import ILL_CONDITIONED
from ..statistics.accumulation import MIXED_TOLERANCE, PRECISIONS
from ..statistics.direct import DTYPES, accumulate_direct, required_memory
from ..statistics.spectral import memory_budget
from ..validation import Array, positive, whole

SCALES = ("standardize", "center")
BASES = ("empirical", "pooled")
MIXED_ERROR = 1e-7  # of a log density by mixed precision, times the condition
FREQUENCIES = ("identity", "data", "precision")
AMPLE = 10.0  # times d + 1 rows: from here on a group's covariance is its own
FLOOR = 1e-6  # least variance of a base, in any direction, relative to the pooled one
BATCH, BATCH_ROWS = 16, 2**18  # groups (four a thread, if that is more) and rows of a batch
LEAST = 1e-290  # least variance of a column: FLOOR of it, and of its eigenvalues, does not vanish
LARGE = 8_192  # rows from which a group is a pass of its own, its rows shared between threads


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
    precision: str = "auto",
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
    X : (n, d) rows, of any kind that ``fit`` takes but those of dask (pass ``X.compute()``): they
        are copied into memory once, sorted
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
    precision : "float64"; "mixed" (float32 products, see ``accumulate``): quicker, and log
        densities then err by up to some 1e-7 times ``result.condition``; "auto" takes mixed where
        that is below 1e-3 for the largest group
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
    n_g; where weights are not normalised and sum w^2 < sum w, their ratio stands for that 1. The
    base of a group has C_g = (1 - a) S_g + a V with a = ((d + 1) / n_g - 0.1) / 0.9, kept
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
    _check(method, scale, base, frequency_covariance, precision)
    n_features, seed = whole("n_features", n_features), whole("seed", seed, 0)
    lam = positive("lam", lam)
    by_rule = isinstance(gamma, str) and gamma == "scott"
    gamma = gamma if by_rule else positive("gamma", gamma, "scott")
    threads = Threads(backend, n_threads)
    module, count = threads.resolve()
    limit = memory_budget(budget)
    labels, codes = factorize(groups)
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
        if np.diag(pooled).min() < LEAST:
            raise ValueError('the squares of some columns underflow; use scale="standardize"')
        covariances, shrinkage = _bases(own, pooled, rows.n, base)
        n_typical = float(np.median(rows.n))
        width = float(scott_bandwidth(n_typical, d, np.trace(pooled) / d) if by_rule else gamma)
        if not 0.0 < lam * (width * width) < np.inf:
            raise ValueError(
                f"gamma={width:.6g}, lam={lam:.6g}: lam gamma^2, which is added to the diagonal of "
                "every system, is no positive number that a float holds; expected a gamma of about "
                "1 in scaled coordinates"
            )
        shape = covariance_of_frequencies(frequency_covariance, pooled)
        features = Features.draw(n_features, width, shape, seed)
        rows.x /= (factor / unit)[:, None]
        precision, reason = _precision(precision, features, lam, float(rows.n.max()))
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
        "gamma_rule": "scott" if by_rule else "given", "scale": scale, "base": base,
        "frequency_covariance": frequency_covariance
        if isinstance(frequency_covariance, str) else "given",
        "weights": "none" if sample_weight is None and not rows.weighted
        else "Kish" if normalize_weights else "as given",
        "seed": seed, "n_groups": len(labels), "n_rows": rows.x.shape[1], "median_n": n_typical,
        "dimension": d, "n_shrunk": int((shrinkage > 0).sum()) if base == "empirical" else 0,
        "provenance": {
            "engine": "direct", "backend": module.NAME, "precision": precision, "tolerance": 0.0,
            "precision_reason": reason,
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
        warn(
            f"{result.settings['n_shrunk']:,} of {G:,} groups have fewer than {AMPLE:.0f} (d + 1) "
            f"= {AMPLE * (d + 1):.0f} rows, or no spread to speak of in some direction: the "
            "covariance of their base is shrunk towards the pooled one; result.shrinkage says how "
            "far",
            DataWarning,
        )
    if (result.added > 0).any():
        warn(
            f"the systems of {int((result.added > 0).sum()):,} of {G:,} groups are not positive "
            f"definite in floating point: up to {result.added.max():.1e} was added to their "
            "diagonals; raise lam",
            PrecisionWarning,
        )
    elif (result.condition > ILL_CONDITIONED).any():
        warn(
            f"the systems of {int((result.condition > ILL_CONDITIONED).sum()):,} of {G:,} groups "
            f"are ill-conditioned (up to {result.condition.max():.1e}): few digits of their "
            "solutions are certain; raise lam or gamma",
            PrecisionWarning,
        )


# -- options --------------------------------------------------------------------------


def _check(
    method: Any, scale: Any, base: Any, frequencies: Any, precision: Any
) -> None:
    if method != "fd":
        raise ValueError(
            f'method={method!r}: fit_groups learns by "fd" only; use fit for each group otherwise'
        )
    if not isinstance(frequencies, str):
        frequencies = "identity"  # an array, judged later
    for name, value, choices in (
        ("scale", scale, SCALES), ("base", base, BASES), ("precision", precision, PRECISIONS),
        ("frequency_covariance", frequencies, FREQUENCIES),
    ):  # fmt: skip
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(repr, choices))}")


# -- rows, sorted --------------------------------------------------------------------------------


class _Rows:
    """The rows of each group one after the other, by columns: x (d, n), w (n,); group g is
    starts[g]:stops[g]. ``n`` is the sum of a group's weights, ``counts`` its rows, ``spent`` what
    its mean takes of its degrees of freedom.
    """

    def __init__(
        self, x: Array, w: Array, counts: Ints, table: Table, weighted: bool, spent: Array
    ) -> None:
        self.x, self.w, self.counts, self.table, self.weighted = x, w, counts, table, weighted
        self.spent = spent
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
    counts, spent = np.bincount(codes, minlength=len(labels)), np.ones(len(labels))
    if weighted:
        sorted_codes = codes[order]
        top = np.maximum.reduceat(w, np.cumsum(counts) - counts)
        if (top <= 0).any():
            empty = labels[int(np.flatnonzero(top <= 0)[0])]
            raise ValueError(f"the weights of group {empty!r} are all zero; drop its rows")
        # largest weights near 1, by powers of two: squares stay in range, no bit changes
        power = np.frexp(top)[1]
        v = np.ldexp(w, -power[sorted_codes])
        total, square = (np.bincount(sorted_codes, u, len(labels)) for u in (v, v * v))
        if normalize:
            w = v * (total / square)[sorted_codes]
        else:
            spent = np.minimum(np.ldexp(square / total, power), 1.0)
        keep = w > 0
        if not keep.all():
            x, w = x[keep], w[keep]
            counts = np.bincount(sorted_codes[keep], minlength=len(labels))
    x, counts = np.ascontiguousarray(x.T), counts.astype(np.int64)
    return _Rows(x, w, counts, blocks.table, weighted, spent)


def _precision(
    asked: str, features: Features, lam: float, most: float
) -> tuple[str, str]:
    """("float64" or "mixed", why). A group of n rows has a system of trace 2 n E|z|^2 at most."""
    if asked != "auto":
        return asked, "asked for"
    z = features.frequencies
    trace = 2.0 * most * float(np.einsum("sk,sk->", z, z)) / features.n_features
    change = MIXED_ERROR * (1.0 + trace / (lam * features.bandwidth**2))
    verdict = "below" if change < MIXED_TOLERANCE else "above"
    reason = f"log densities would change by up to {change:.1e}, {verdict} {MIXED_TOLERANCE:g}"
    return ("mixed" if change < MIXED_TOLERANCE else "float64"), reason


# -- covariances ---------------------------------------------------------------------------------


def _pooled(rows: _Rows, scatter: Array, unit: Array, means: Array) -> tuple[Array, Array]:
    """Deviations (d,) and correlations (d, d) of V = sum n_g S_g / sum (n_g - spent_g)."""
    columns = rows.table.columns
    freedom = float(np.maximum(rows.n - rows.spent, 0.0).sum())
    total = np.einsum("g,gij->ij", rows.n, scatter)
    if freedom <= 0 and total.any():
        raise ValueError(
            "no group has two rows of like weight, and so no density can be learned: all but one "
            "of each count for next to nothing"
        )
    if not total.any():
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
        self.gram, self.system = np.empty((0, 0, 0)), np.empty((len(z), len(z)))

    def run(self, rows: _Rows, progress: bool) -> tuple[Array, Array, Array]:
        """theta (G, S), condition (G,) and what was added to the diagonal, (G,)."""
        G, S = len(rows.counts), self.features.n_features
        self.theta = np.empty((G, S))
        self.condition, self.added = np.empty(G), np.zeros(G)
        batches = self._batches(rows)
        self.roots = np.sqrt(rows.w)
        with (
            np.errstate(over="ignore", invalid="ignore", divide="ignore"),  # judged by the caller
            Progress(progress, "groups", G) as bar,
        ):
            for length, which in batches:
                if length == 0:
                    self._large(rows, int(which[0]))
                else:
                    self._lanes(rows, length, which)
                bar.add(len(which))
        return self.theta, self.condition, self.added

    def _batches(self, rows: _Rows) -> list[tuple[int, Ints]]:
        """(length of the lanes, groups); length 0 for a group that is a pass of its own."""
        S, d = self.features.frequencies.shape
        large = np.flatnonzero(rows.counts > LARGE)
        small = np.flatnonzero(rows.counts <= LARGE)
        lengths = np.array([padded(n) for n in rows.counts[small].tolist()], np.int64)
        fixed = 8 * (2 * self.count * S * kernels.ROW_TILE + (3 + 2 * self.count) * S * (S + d))
        batches, least = [], 0
        if len(large):
            least = fixed + required_memory(self.features, 0, False, self.precision, self.count)
        for length in np.unique(lengths).tolist():
            which = small[lengths == length]
            one = 8 * (S * (S + 4 * d + 4) + length * (2 * d + 2))
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

    def _lanes(self, rows: _Rows, length: int, which: Ints) -> None:
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
        self._solve(which, gram, self._right(which, sum_phi, sum_dphi_x))

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
        self._solve(which, stats.gram[None], right)

    def _right(self, which: Ints, sum_phi: Array, sum_dphi_x: Array) -> Array:
        """b = gamma psi' + |Z|^2 psi of Algorithm 2, (B, S); the means are at 0."""
        pull = np.linalg.solve(self.covariances[which], sum_dphi_x.transpose(0, 2, 1))
        psi_prime = np.einsum("sk,bks->bs", self.features.frequencies, pull)
        right: Array = self.features.bandwidth * psi_prime + self.norms * sum_phi
        return right

    def _solve(self, which: Ints, gram: Array, right: Array) -> None:
        """theta of some groups from lam gamma^2 I + ZZ^T * Phi', (B, S, S), of which only the upper
        triangles are read. One after the other: LAPACK holds Python's lock here, and in memory that
        is used again it takes less than half as long as NumPy's factors of a stack."""
        trace = np.einsum("bii,i->b", gram, self.norms) + len(self.norms) * self.shift
        self.condition[which] = np.minimum(trace / self.shift, np.finfo(np.float64).max)
        good = np.isfinite(trace) & np.isfinite(right).all(axis=1)
        self.theta[which[~good]] = np.nan  # fit_groups says which
        diagonal = self.system.reshape(-1)[:: len(self.system) + 1]
        for k in np.flatnonzero(good).tolist():
            np.multiply(gram[k], self.outer, out=self.system)
            diagonal += self.shift
            _, theta, info = dposv(self.system.T, right[k], lower=1, overwrite_a=1)
            self.theta[which[k]] = theta if info == 0 else self._raised(which[k], gram[k], right[k])

    def _raised(self, g: int, gram: Array, right: Array) -> Array:
        """theta where rounding leaves no Cholesky factor: more is added to the diagonal."""
        S, step = len(gram), 0.0
        matrix = gram * self.outer + self.shift * np.eye(S)
        top = float(np.diag(matrix).max())
        while True:
            step = 10.0 * step if step else S * np.finfo(float).eps * top
            if not step < 1e-2 * top:
                raise ValueError("the system of a group is far from positive definite; raise lam")
            _, theta, info = dposv((matrix + step * np.eye(S)).T, right, lower=1)
            if info == 0:
                self.added[g] = step
                return np.asarray(theta, np.float64)
