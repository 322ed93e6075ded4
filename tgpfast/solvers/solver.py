"""`solve`: statistics and a base -> density (Algorithms 1 to 4). No data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..bases.base import Base
from ..density.density import Density
from ..density.exponent import PointTilt, PredictiveTilt, Tilt
from ..density.lattice_exponent import LatticeTilt
from ..features.lattice import LatticeFeatures
from ..features.random import Kernel, as_listed
from ..features.spectral_density import SMOOTH_KERNELS
from ..kernels.thread_choice import Threads
from ..statistics.fisher import fd_system, ncfd_system
from ..statistics.lattice_statistics import LatticeStatistics, doubled
from ..statistics.statistics import Statistics
from ..validation import (
    Array,
    Seed,
    as_floats,
    as_seed,
    check_bandwidth,
    check_choice,
    check_flag,
    positive,
    whole,
)
from .closed_form import fd_shift, fvpd_system
from .lattice_map import solve_lattice_map
from .linear_systems import SYSTEM_CG_STEPS, factorize, solve_system
from .problem_checks import check_pair

# Method -> its solvers, the default first.
SOLVERS = {
    "fd": ("cholesky", "cg"), "ncfd": ("cholesky", "cg"), "fvpd": ("cholesky",),
    "map": ("newton", "gradient"),
}  # fmt: skip
METHODS = tuple(SOLVERS)
CG_FEATURES = 6_000  # above it "auto" takes conjugate gradients: O(S^2 rank), not O(S^3)
LEAST_TEMPERED = 1e-290  # of gamma^2 eta, by which FVPD divides sums over the rows


class Options(NamedTuple):
    """Options of `solve`, checked."""

    lam: float
    eta: float
    solver: str
    n_draws: int
    n_steps: int | None
    seed: int
    start: Array | None
    threads: Threads
    progress: bool


class Solution(NamedTuple):
    """What a method learns: the exponent, settings of that method alone, solver diagnostics."""

    tilt: Tilt
    settings: dict[str, Any]
    diagnostics: dict[str, Any]


def solve(
    stats: Statistics | LatticeStatistics,
    base: Base,
    method: str = "fd",
    lam: float = 0.1,
    eta: float | None = None,
    solver: str = "auto",
    *,
    n_draws: int = 100_000,
    n_steps: int | None = None,
    seed: Seed = 0,
    start: Array | None = None,
    backend: str = "auto",
    n_threads: int | None = None,
    progress: bool = False,
) -> Density:
    """Learn a density from statistics alone.

    Parameters
    ----------
    stats : Statistics or LatticeStatistics
        From ``accumulate``; method="ncfd" needs some with noise levels.
    base : Base
        The density that is tilted, in the same coordinates: a `GaussianBase` for every method; a
        `MixtureBase` for "fd", "fvpd" and "map"; a `StudentBase` for "fd" and "map". For "fd" and
        "fvpd" the last two need statistics made with ``accumulate(..., base=base)``.
    method : {"fd", "ncfd", "fvpd", "map"}, default "fd"
        Fisher divergence (Algorithm 2), noise conditional (Algorithm 3), Fisher variational
        predictive distribution (Algorithm 4), maximum a posteriori (Algorithm 1).
    lam : float, default 0.1
        Precision of the prior on theta, > 0.
    eta : float, default 1 / gamma^2
        Tempering of FVPD, > 0.
    solver : {"auto", "cholesky", "cg", "newton", "gradient"}, default "auto"
        "cholesky"; "cg" (preconditioned conjugate gradients; fd and ncfd); "auto" is "cholesky" up
        to 6,000 features. For method="map": "newton" (also "auto"), or "gradient", the paper's.
    n_draws : int, default 100_000
        Draws from the base behind the expectations of "map", where no quadrature grid serves.
        Lattice features need none; ``solver``, ``n_steps`` and ``seed`` do not concern them.
    n_steps : int, default 2,000 of cg, 100 of newton, 10,000 of gradient
        Iterations at most.
    seed : int, None or numpy.random.Generator, default 0
        Of the draws of "map" and of the preconditioner of "cg".
    start : (S,) array, default zero
        theta at which "cg", and every solver of lattice features, starts, such as one learned from
        most of the same rows.
    backend, n_threads : see ``accumulate``
        For the passes of "map" and for evaluating the result.
    progress : bool, default False
        Show a bar on standard error for method="map".

    Returns
    -------
    Density
        It holds ``stats`` as its ``statistics``. Its ``diagnostics`` hold the solver, the condition
        number, the residual and what was added to the diagonal.

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> x = np.random.default_rng(0).normal(size=(500, 1))
    >>> features = tgpfast.Features.draw(50, 0.5, np.eye(1))
    >>> base = tgpfast.GaussianBase.from_data(x)
    >>> model = tgpfast.solve(tgpfast.accumulate(x, features), base, "fd", lam=1.0)
    >>> model.theta.shape
    (50,)
    """
    check_choice("method", method, METHODS)
    lam, threads = positive("lam", lam), Threads(backend, n_threads)
    threads.resolve()  # errors before any work
    check_pair(stats, base, sums_serve=method == "map")
    gamma = stats.features.bandwidth
    if isinstance(stats, LatticeStatistics):
        tilt, of_method, diagnostics = _solve_lattice(stats, base, method, lam, eta, start, threads)
    else:
        check_kernel(stats.features.kernel, method)
        check_bandwidth(gamma, float(np.trace(base.covariance)) / base.dimension, lam, np.inf)
        options = Options(
            lam, _check_eta(eta, gamma, method), _resolve_solver(solver, method, stats.features),
            whole("n_draws", n_draws), None if n_steps is None else whole("n_steps", n_steps),
            as_seed(seed),
            None if start is None else as_floats(start, "start", (stats.features.n_features,)),
            threads, check_flag("progress", progress),
        )  # fmt: skip
        learn = {"map": _solve_map, "fvpd": _solve_fvpd}.get(method, _solve_score_matching)
        tilt, of_method, diagnostics = learn(stats, base, method, options)
    settings = {"method": method, "lam": lam, "gamma": gamma, **_facts_of(stats), **of_method}
    return Density(
        method, tilt, base, settings, diagnostics, threads=threads, statistics=stats
    )


def _solve_map(stats: Any, base: Base, method: str, options: Options) -> Solution:
    """Algorithm 1."""
    from .maximum_posterior import map_theta

    theta, report = map_theta(
        stats, base, options.lam, solver=options.solver, n_draws=options.n_draws,
        n_steps=options.n_steps, seed=options.seed, threads=options.threads,
        progress=options.progress,
    )  # fmt: skip
    return Solution(
        PointTilt(stats.features, theta, base.mean), {"n_draws": options.n_draws}, report
    )


def _solve_fvpd(stats: Statistics, base: Base, method: str, options: Options) -> Solution:
    """Algorithm 4."""
    moments = base.feature_moments(stats.features, **options.threads.options)
    matrix, m = fvpd_system(
        *fd_system(stats, base), moments, stats.features.bandwidth, options.eta, overwrite=True
    )
    factor, report = factorize(matrix, options.lam)
    return Solution(
        PredictiveTilt(stats.features, factor, m, base.mean), {"eta": options.eta}, report
    )


def _solve_score_matching(
    stats: Statistics, base: Base, method: str, options: Options
) -> Solution:
    """Algorithms 2 and 3."""
    if method == "ncfd":
        system, b = ncfd_system(stats, base)
        shift = options.lam * len(stats.noise_levels)
        settings = {"noise_levels": stats.noise_levels.tolist()}
    else:
        system, b = fd_system(stats, base)
        shift, settings = fd_shift(options.lam, stats.features.bandwidth), {}
    theta, report = solve_system(
        system, b, shift, options.solver, options.n_steps or SYSTEM_CG_STEPS, options.seed,
        options.start,
    )  # fmt: skip
    return Solution(PointTilt(stats.features, theta, base.mean), settings, report)


def _solve_lattice(
    stats: LatticeStatistics, base: Base, method: str, lam: float, eta: float | None,
    start: Any, threads: Threads,
) -> Solution:  # fmt: skip
    """Algorithms 1 to 4 with lattice features."""
    workers, features = threads.resolve()[1], stats.features
    of_method: dict[str, Any] = {}
    if method == "map":
        theta, report = solve_lattice_map(stats, base, lam, start=start, workers=workers)
    elif method == "fvpd":
        from .lattice_score_matching import solve_lattice_fvpd

        eta = _check_eta(eta, features.bandwidth, method)
        theta, report = solve_lattice_fvpd(stats, base, lam, eta=eta, workers=workers)
        features, of_method = doubled(features), {"eta": eta}
    else:
        from .lattice_score_matching import solve_lattice_fd, solve_lattice_ncfd

        learn = solve_lattice_fd if method == "fd" else solve_lattice_ncfd
        theta, report = learn(stats, base, lam, start=start, workers=workers)
        if method == "ncfd":
            of_method = {"noise_levels": stats.noise_levels.tolist()}
    return Solution(LatticeTilt(features, theta), of_method, report)


def base_alone(stats: Any, base: Base, threads: Threads) -> Density:
    """The base as a density of its own, with a tilt of zero.

    It holds the statistics, which ``update`` adds to, without scores of a base, which may be those
    of another one.
    """
    if isinstance(stats, Statistics) and stats.score_base is not None:
        stats = replace(stats, sum_dphi_score=None, score_base=None)
    features = stats.features
    tilt: Tilt
    if isinstance(features, LatticeFeatures):
        tilt = LatticeTilt(features, np.zeros(features.mode_shape, features.mode_dtype))
    else:
        tilt = PointTilt(features, np.zeros(features.n_features), base.mean)
    settings = {
        "method": "base", "lam": None, "gamma": None, "eta": None, **_facts_of(stats),
        "n_features": 0,
    }  # fmt: skip
    return Density(
        "base", tilt, base, settings, {"solver": "none"}, threads=threads, statistics=stats
    )


def _facts_of(stats: Any) -> dict[str, Any]:
    """What settings record of the statistics."""
    features = stats.features
    kind: dict[str, Any]
    if isinstance(features, LatticeFeatures):
        kind = {"features": "lattice", "n_modes": list(features.n_modes)}
    else:
        kind = {"features": "random", "seed": features.seed}
    return kind | {
        "kernel": as_listed(features.kernel), "n_features": features.n_features, "n": stats.n,
        "provenance": dict(stats.provenance),
    }  # fmt: skip


def check_solver(solver: str, method: str) -> None:
    """ValueError unless the solver is "auto" or one of the method's."""
    if solver not in ("auto", *SOLVERS[method]):
        expected = ", ".join(repr(c) for c in ("auto", *SOLVERS[method]))
        raise ValueError(f"solver={solver!r}: method={method!r} takes one of {expected}")


def check_kernel(kernel: Kernel, method: str) -> None:
    """ValueError where a method needs the Laplacian of functions that have none."""
    kernels = {kernel} if isinstance(kernel, str) else set(kernel)
    if method != "map" and not kernels <= set(SMOOTH_KERNELS):
        expected = ", ".join(map(repr, SMOOTH_KERNELS))
        raise ValueError(
            f'kernel={kernel!r}: method={method!r} takes one of {expected}, whose functions have a '
            'Laplacian; method="map" takes every kernel'
        )


def _resolve_solver(solver: str, method: str, features: Any) -> str:
    """The solver that "auto" stands for, or the given one."""
    check_solver(solver, method)
    choices = SOLVERS[method]
    if solver == "auto":
        return "cg" if "cg" in choices and features.n_features > CG_FEATURES else choices[0]
    return solver


def _check_eta(eta: float | None, gamma: float, method: str) -> float:
    """The tempering, 1 / gamma^2 by default; ValueError where gamma^2 eta overflows in FVPD."""
    eta = 1.0 / gamma**2 if eta is None else positive("eta", eta)
    if method == "fvpd" and not LEAST_TEMPERED <= gamma**2 * eta < np.inf:
        least = LEAST_TEMPERED / gamma**2
        raise ValueError(
            f"eta={eta:.6g}: gamma^2 eta is beyond the range of float64; with gamma={gamma:.6g} "
            f"expected eta from {least:.3g} to {min(1e307, 1e307 / gamma**2):.3g}"
        )
    return eta
