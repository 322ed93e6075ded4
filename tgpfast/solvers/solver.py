"""Statistics and a base -> density (Algorithms 2, 3 and 4; MAP in `maximum_posterior`). No data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import cho_solve

from ..bases.gaussian import Base
from ..density.density import Density
from ..density.exponent import PointTilt, PredictiveTilt
from ..kernels.thread_choice import Threads
from ..statistics.feature_means import FeatureMeans
from ..statistics.fisher import fd_system, ncfd_system
from ..statistics.statistics import Statistics
from ..validation import Array, as_floats, check_bandwidth, positive, whole
from .linear_systems import CG_STEPS, cholesky, factorize, solve_system
from .maximum_posterior import map_theta

METHODS = ("fd", "ncfd", "fvpd", "map")
CG_FEATURES = 6_000  # above it "auto" takes conjugate gradients: O(S^2 rank), not O(S^3)
LEAST_TEMPERED = 1e-290  # of gamma^2 eta, by which FVPD divides sums over the rows


def solve(
    stats: Statistics,
    base: Base,
    method: str = "fd",
    lam: float = 0.1,
    eta: float | None = None,
    solver: str = "auto",
    *,
    n_draws: int = 100_000,
    n_steps: int | None = None,
    seed: int = 0,
    start: Array | None = None,
    backend: str = "auto",
    n_threads: int | None = None,
    progress: bool = False,
) -> Density:
    """Learn a density from statistics alone.

    Parameters
    ----------
    stats : from ``accumulate``; method="ncfd" needs some with noise levels
    base : what is tilted, in the same coordinates: a `GaussianBase` for every method; a
        `MixtureBase` for "fd", "fvpd" and "map", a `StudentBase` for "fd" and "map". For "fd" and
        "fvpd" these need statistics that know them: ``accumulate(..., base=base)``
    method : "fd" (Fisher divergence, Algorithm 2), "ncfd" (noise conditional, Algorithm 3),
        "fvpd" (Fisher variational predictive distribution, Algorithm 4), "map" (Algorithm 1)
    lam : precision of the prior on theta, > 0
    eta : tempering of FVPD, > 0; None is 1 / gamma^2
    solver : "cholesky"; "cg" (preconditioned conjugate gradients; fd and ncfd); "auto": cholesky up
        to 6,000 features. For method="map": "newton" (also "auto"), or "gradient", the paper's
    n_draws : map: draws from the base behind its expectations, where quadrature does not serve
    n_steps : iterations at most: of cg (2,000), of newton (100), of the gradient iteration (10,000)
    seed : of the draws of map and of the preconditioner of cg
    start : (S,) theta at which cg starts, as one that was learned from most of these rows; by
        default zero
    backend, n_threads : for map's passes and for evaluating the result
    progress : show a bar on standard error for method="map"

    Returns
    -------
    Density ; it holds ``stats`` as its ``statistics``; its ``diagnostics`` hold the solver, the
    condition number, the residual and what, if anything, was added to the diagonal
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r}: expected one of {', '.join(map(repr, METHODS))}")
    check_pair(stats, base, sums_serve=method == "map")
    lam = positive("lam", lam)
    gamma = stats.features.bandwidth
    check_bandwidth(gamma, float(np.trace(base.covariance)) / base.dimension, lam, np.inf)
    eta = 1.0 / gamma**2 if eta is None else positive("eta", eta)
    if method == "fvpd" and not LEAST_TEMPERED <= gamma**2 * eta < np.inf:
        least = LEAST_TEMPERED / gamma**2
        raise ValueError(
            f"eta={eta:.6g}: gamma^2 eta is beyond the range of float64; with gamma={gamma:.6g} "
            f"expected eta from {least:.3g} to {min(1e307, 1e307 / gamma**2):.3g}"
        )
    solver = _check_solver(solver, method, stats.features.n_features)
    if n_steps is not None:
        n_steps = whole("n_steps", n_steps)
    n_draws, seed = whole("n_draws", n_draws), whole("seed", seed, 0)
    if start is not None:
        start = as_floats(start, "start", f"({stats.features.n_features},)", 1)
        if len(start) != stats.features.n_features:
            raise ValueError(
                f"start must have shape ({stats.features.n_features},), got {start.shape}"
            )
    threads = Threads(backend, n_threads)
    threads.resolve()  # errors before any work
    settings: dict[str, Any] = {
        "method": method, "lam": lam, "gamma": gamma, "n_features": stats.features.n_features,
        "seed": stats.features.seed, "n": stats.n, "provenance": dict(stats.provenance),
    }  # fmt: skip
    diagnostics: dict[str, Any]
    if method == "map":
        settings["n_draws"] = n_draws
        theta, diagnostics = map_theta(
            stats, base, lam, solver=solver, n_draws=n_draws, n_steps=n_steps, seed=seed,
            threads=threads, progress=progress,
        )  # fmt: skip
        tilt: Any = PointTilt(stats.features, theta, base.mean)
    elif method == "fvpd":
        settings["eta"] = eta
        factor, m, diagnostics = fvpd_parameters(stats, base, lam, eta, threads)
        tilt = PredictiveTilt(stats.features, factor, m, base.mean)
    else:
        if method == "ncfd":
            settings["noise_levels"] = stats.noise_levels.tolist()
            shift = lam * len(stats.noise_levels)
            system, b = ncfd_system(stats, base)
        else:
            shift = lam * gamma**2
            system, b = fd_system(stats, base)
        theta, diagnostics = solve_system(
            system, b, shift, solver, n_steps or CG_STEPS, seed, start
        )
        tilt = PointTilt(stats.features, theta, base.mean)
    model = Density(method, tilt, base, settings, diagnostics, threads=threads)
    model.statistics = stats
    return model


def base_alone(stats: Any, base: Base, threads: Threads) -> Density:
    """The base as a density of its own, with a tilt of zero; it holds the statistics, which
    ``update`` adds to, without the scores of a base, which may be another one."""
    if isinstance(stats, Statistics) and stats.score_base is not None:
        stats = replace(stats, sum_dphi_score=None, score_base=None)
    tilt = PointTilt(stats.features, np.zeros(stats.features.n_features), base.mean)
    settings: dict[str, Any] = {
        "method": "base", "lam": None, "gamma": None, "eta": None, "n_features": 0,
        "seed": stats.features.seed, "n": stats.n, "provenance": dict(stats.provenance),
    }  # fmt: skip
    model = Density("base", tilt, base, settings, {"solver": "none"}, threads=threads)
    model.statistics = stats
    return model


def check_pair(stats: Any, base: Any, *, sums_serve: bool = False) -> None:
    """TypeError or ValueError unless these are statistics of some rows and a base for them;
    sums_serve : the sums of features alone, which `fit` makes for MAP, will do."""
    if not isinstance(stats, Statistics) and not (sums_serve and isinstance(stats, FeatureMeans)):
        raise TypeError(f"stats must be tgpfast.Statistics, got {type(stats).__name__}")
    if not isinstance(base, Base):
        raise TypeError(f"base must be tgpfast.GaussianBase, got {type(base).__name__}")
    if base.dimension != stats.features.dimension:
        raise ValueError(
            f"base has dimension {base.dimension}, the statistics have {stats.features.dimension}"
        )
    if stats.n <= 0:
        raise ValueError("the statistics are of no rows")


def _check_solver(solver: str, method: str, n_features: int) -> str:
    choices = {
        "fd": ("cholesky", "cg"), "ncfd": ("cholesky", "cg"), "fvpd": ("cholesky",),
        "map": ("newton", "gradient"),
    }[method]  # fmt: skip
    if solver == "auto":
        return "cg" if "cg" in choices and n_features > CG_FEATURES else choices[0]
    if solver not in choices:
        expected = ", ".join(repr(c) for c in ("auto", *choices))
        raise ValueError(f"solver={solver!r}: method={method!r} takes one of {expected}")
    return solver


def fd_theta(stats: Statistics, base: Base, lam: float) -> Array:
    """theta of Fisher-divergence score matching (Algorithm 2); LinAlgError where it is singular."""
    system, b = fd_system(stats, base)
    system[np.diag_indices_from(system)] += lam * stats.features.bandwidth**2
    factor, _ = cholesky(system)
    theta: Array = cho_solve((factor, True), b, check_finite=False)
    return theta


def fvpd_parameters(
    stats: Statistics, base: Base, lam: float, eta: float, threads: Threads
) -> tuple[Array, Array, dict[str, Any]]:
    """Cholesky factor of M, and m, of Algorithm 4.

    Sigma-hat^-1 = lam I + A / (gamma^2 eta), and Sigma-hat^-1 mu-hat = b / (gamma^2 eta), so that
    neither Sigma-hat nor mu-hat is formed: M = Sigma_phi + Sigma-hat^-1, m = mu_phi - b / ...
    """
    scale = 1.0 / (stats.features.bandwidth**2 * eta)
    mu_phi, matrix = base.feature_moments(
        stats.features, backend=threads.backend, n_threads=threads.n_threads
    )
    system, b = fd_system(stats, base)
    system *= scale
    matrix += system
    del system
    factor, report = factorize(matrix, lam)
    return factor, mu_phi - scale * b, report
