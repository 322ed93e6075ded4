"""`fit_groups`: one density per group; thousands of small groups are fitted together."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import kernels
from ..data.labels import factorize
from ..data.table import Table
from ..density.grouped import GroupedDensity
from ..features.random import Features, covariance_of_frequencies
from ..kernels.thread_choice import Threads
from ..runtime import memory
from ..runtime.warnings import DataWarning, PrecisionWarning, warn
from ..selection.candidates import scott_bandwidth
from ..solvers.linear_systems import ILL_CONDITIONED
from ..statistics.pass_options import PRECISIONS
from ..statistics.precision_choice import MIXED_TOLERANCE
from ..validation import Seed, as_seed, check_choice, check_flag, positive, whole
from .group_bases import OWN_COVARIANCE_ROWS, estimate_bases
from .group_rows import sort_rows
from .group_solver import GroupSolver

GROUP_SCALES = ("standardize", "center")
GROUP_BASES = ("empirical", "pooled")
GROUP_FREQUENCIES = ("identity", "data", "precision")
MIXED_ERROR = 1e-7  # error of a log density by mixed precision, per unit of the condition number


def fit_groups(
    X: Any,
    groups: Any,
    *,
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
    seed: Seed = 0,
    budget: Any = None,
    progress: bool = False,
) -> GroupedDensity:
    """Learn one density per group of rows by FD, for thousands of groups at once.

    Group g with mean m_g is learned from u = (x - m_g) / scale. All groups share the scale and the
    features; the base of group g is N(0, C_g). The result equals ``solve(accumulate(u, features),
    base, "fd", lam)`` for every group and takes a fraction of the time. It is the same to the bit
    for any number of threads and any budget. Unlike ``fit``, it does not choose settings from the
    data.

    Parameters
    ----------
    X : rows of shape (n, d)
        Of any kind that ``fit`` takes, except dask collections (pass ``X.compute()``). The rows
        are copied into memory.
    groups : sequence of n labels
        Integers, text, a pandas or polars column, or any hashable values.
    n_features : int, default 128
        Number of random features S.
    lam : float, default 10.0
        Precision of the prior, positive. A larger value gives smoother densities.
    gamma : float or "scott", default "scott"
        Bandwidth of the features in scaled coordinates. "scott" is m^(-1/(d+4)) sqrt(tr V / d),
        with the median m of the groups' sizes and the pooled covariance V.
    scale : {"standardize", "center"}, default "standardize"
        "standardize" divides by the pooled within-group standard deviation of each column, so that
        distances between groups have no effect. "center" divides by 1. Either way rows are
        centered at the mean of their group.
    frequency_covariance : {"identity", "data", "precision"} or array of shape (d, d)
        Covariance of the frequencies in scaled coordinates, default "identity". "data" is
        d V / tr V, "precision" is d V^-1 / tr V^-1.
    base : {"empirical", "pooled"}, default "empirical"
        "empirical" takes mean and covariance of each group; the covariance is shrunk (see Notes).
        "pooled" takes the mean of the group and the pooled covariance.
    sample_weight : array of shape (n,), default None
        Non-negative weights of the rows. Rows of weight 0 are left out.
    normalize_weights : bool, default True
        Rescale the weights of each group to sum to Kish's effective number of rows. Otherwise a
        weight of 2 means two rows.
    precision : {"auto", "float64", "mixed"}, default "auto"
        "mixed" uses float32 products (see ``accumulate``). It is faster, and log densities then
        err by up to about 1e-7 times ``result.condition``. "auto" takes "mixed" if that error is
        below 1e-3 for the largest group.
    backend : str, default "auto"
        See ``accumulate``.
    n_threads : int, default None
        See ``accumulate``.
    seed : int, None or numpy.random.Generator, default 0
        Seed of the features.
    budget : int or str, default None
        Working memory in bytes, or text such as "2GB", beside the sorted rows and the result. By
        default TGPFAST_MEMORY_BUDGET, or 40 % of the free memory.
    progress : bool, default False
        Show a progress bar on standard error.

    Returns
    -------
    GroupedDensity
        ``result[label]`` is a `Density`.

    Raises
    ------
    ValueError, TypeError
        If an option is wrong, ``groups`` does not have one label for each row, or the rows have no
        density: no group has two different rows, or a column is constant within every group.

    Notes
    -----
    The pooled covariance is V = sum_g n_g S_g / sum_g (n_g - 1), with the covariance S_g of a group
    divided by n_g. If weights are not normalized and sum w^2 < sum w, their ratio replaces the 1.
    The base of a group has C_g = (1 - a) S_g + a V with a = ((d + 1) / n_g - 0.1) / 0.9, clipped to
    [0, 1]: all V up to d + 1 rows, all S_g from 10 (d + 1) rows on. If the variance in some
    direction would be less than 1e-6 of that of V, for example in a column that is constant in the
    group, a is raised as far as necessary. ``result.shrinkage`` keeps every a, and one warning
    gives the number of shrunk groups.

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
    check_choice("scale", scale, GROUP_SCALES)
    check_choice("base", base, GROUP_BASES)
    check_choice("precision", precision, PRECISIONS)
    if isinstance(frequency_covariance, str):
        check_choice("frequency_covariance", frequency_covariance, GROUP_FREQUENCIES)
    check_flag("normalize_weights", normalize_weights)
    n_features, seed, lam = whole("n_features", n_features), as_seed(seed), positive("lam", lam)
    gamma_rule = "scott" if isinstance(gamma, str) and gamma == "scott" else "given"
    if gamma_rule == "given":
        gamma = positive("gamma", gamma, "scott")
    threads, working_memory = Threads(backend, n_threads), memory.budget(budget)
    module, count = threads.resolve()
    labels, codes = factorize(groups)

    with kernels.threads(module, count):
        rows = sort_rows(X, sample_weight, labels, codes, normalize_weights)
        bases = estimate_bases(rows, scale, base)
        d, median_n = len(rows.x), float(np.median(rows.n))
        if gamma_rule == "scott":
            gamma = scott_bandwidth(median_n, d, np.trace(bases.pooled) / d)
        _check_ridge(lam, gamma)
        shape = covariance_of_frequencies(frequency_covariance, bases.pooled)
        features = Features.draw(n_features, gamma, shape, seed)
        precision, reason = _choose_precision(precision, features, lam, float(rows.n.max()))
        solver = GroupSolver(features, lam, bases.covariances, precision, threads, working_memory)
        solutions = solver.solve(rows, progress)

    not_finite = np.flatnonzero(~np.isfinite(solutions.theta).all(axis=1))
    if len(not_finite):
        raise ValueError(
            f"the features of some rows of group {labels[int(not_finite[0])]!r} are not finite: "
            "|x| / bandwidth overflows. Drop rows that far away, or raise gamma"
        )
    weights = "Kish" if normalize_weights else "as given"
    settings = {
        "method": "fd", "n_features": n_features, "lam": lam, "gamma": gamma,
        "gamma_rule": gamma_rule, "scale": scale, "base": base,
        "frequency_covariance": frequency_covariance
        if isinstance(frequency_covariance, str) else "given",
        "weights": weights if sample_weight is not None or rows.weighted else "none",
        "seed": seed, "n_groups": len(labels), "n_rows": rows.x.shape[1], "median_n": median_n,
        "dimension": d, "n_shrunk": int((bases.shrinkage > 0).sum()) if base == "empirical" else 0,
        "provenance": {
            "engine": "direct", "backend": module.NAME, "precision": precision, "tolerance": 0.0,
            "precision_reason": reason, "threads": count,
        },
    }  # fmt: skip
    result = GroupedDensity(
        labels, features, solutions.theta, bases.means, bases.covariances, rows.n, rows.counts,
        bases.scale, shrinkage=bases.shrinkage, condition=solutions.condition,
        added=solutions.added, settings=settings,
        table=Table(rows.table.columns, rows.table.kind), threads=threads,
    )  # fmt: skip
    _warn_about_groups(result)
    return result


def _check_ridge(lam: float, gamma: float) -> None:
    if not 0.0 < lam * (gamma * gamma) < np.inf:
        raise ValueError(
            f"gamma={gamma:.6g}, lam={lam:.6g}: lam gamma^2, the diagonal of every system, is not "
            "a positive float; expected a gamma of about 1 in scaled coordinates"
        )


def _choose_precision(
    asked: str, features: Features, lam: float, largest_n: float
) -> tuple[str, str]:
    """("float64" or "mixed", reason). The system of n rows has a trace of at most 2 n E|z|^2."""
    if asked != "auto":
        return asked, "asked for"
    z = features.frequencies
    trace = 2.0 * largest_n * float(np.einsum("sk,sk->", z, z)) / features.n_features
    change = MIXED_ERROR * (1.0 + trace / (lam * features.bandwidth**2))
    is_small = change < MIXED_TOLERANCE
    verdict = "below" if is_small else "above"
    reason = f"log densities would change by up to {change:.1e}, {verdict} {MIXED_TOLERANCE:g}"
    return ("mixed" if is_small else "float64"), reason


def _warn_about_groups(result: GroupedDensity) -> None:
    """One warning for all groups with shrunk bases, and one for unreliable solutions."""
    G, rows = len(result), OWN_COVARIANCE_ROWS * (result.dimension + 1)
    if result.settings["n_shrunk"]:
        warn(
            f"{result.settings['n_shrunk']:,} of {G:,} groups have fewer than "
            f"{OWN_COVARIANCE_ROWS:.0f} (d + 1) = {rows:.0f} rows, or almost no spread in some "
            "direction: the covariance of their base is shrunk towards the pooled covariance; "
            "result.shrinkage has the share of the pooled covariance in each",
            DataWarning,
        )
    raised, poor = result.added > 0, result.condition > ILL_CONDITIONED
    if raised.any():
        warn(
            f"the systems of {int(raised.sum()):,} of {G:,} groups are not positive definite in "
            f"floating point: up to {result.added.max():.1e} was added to their diagonals; raise "
            "lam",
            PrecisionWarning,
        )
    elif poor.any():
        warn(
            f"the systems of {int(poor.sum()):,} of {G:,} groups are ill-conditioned (up to "
            f"{result.condition.max():.1e}), so their solutions have few correct digits; raise "
            "lam or gamma",
            PrecisionWarning,
        )
