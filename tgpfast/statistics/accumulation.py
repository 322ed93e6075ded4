"""`accumulate`: rows -> Statistics. Judges options, chooses engine and precision, runs the pass."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from .. import kernels
from ..bases.gaussian import Base, GaussianBase
from ..data.blocks import Blocks, as_blocks
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime import memory
from ..runtime.warnings import FallbackWarning, warn
from ..validation import Array, positive
from .costs import load_costs
from .direct import DTYPES, accumulate_direct, required_memory
from .fisher import fd_system
from .score_sums import sum_scores
from .spectral import (
    DIMENSIONS,
    SAMPLE_ROWS,
    accumulate_spectral,
    estimate,
    fits,
    memory_budget,
    rows_that_pay,
)
from .spectral import PILOT_ROWS as ENGINE_ROWS
from .spectrum import MOST_OUTSIDE, OutsideError, Spectrum
from .statistics import Statistics, check_levels, check_origin, register_accumulator

ENGINES = ("auto", "direct", "spectral")
PRECISIONS = ("auto", *DTYPES)

MIXED_TOLERANCE = 1e-3  # largest predicted change of a log density that precision="auto" accepts
NOT_WORTH_A_LOOK = 0.02  # seconds of the direct engine below which no other is considered
LEAST_TOLERANCE = 1e-13  # of the spectral engine
PILOT_ROWS = 5_000
PILOT_SHARE = 8  # the pilot takes at most one row in eight, or it would cost more than it saves
PILOT_LEAST = 1_000  # with fewer pilot rows than this float64 is as quick
PILOT_LAM = 0.1  # the paper's lambda: the smallest in use, and so the worst conditioned


def accumulate(
    X: Any,
    features: Features,
    *,
    noise_levels: Any = (),
    sample_weight: Any = None,
    origin: Any = None,
    gram_phi: bool = False,
    base: Base | None = None,
    tolerance: float = 1e-9,
    engine: str = "auto",
    precision: str = "auto",
    backend: str = "auto",
    n_threads: int | None = None,
    budget: Any = None,
    progress: bool = False,
) -> Statistics:
    """One pass over the rows of X: the sums from which every estimator is solved.

    The sums are listed under `Statistics`. Memory does not grow with the number of rows. The direct
    engine gives the same bits for any ``n_threads``; the spectral one gives them again for the same
    number, and differs by less than its tolerance for another.

    Parameters
    ----------
    X : (n, d) array, memmap or data frame, or an iterable of such blocks; items of an iterable
        may be tuples (block, weights). One-dimensional arrays are one column. A dask array or data
        frame is summed where its partitions are (see ``tgpfast.dask``)
    features : the `Features` to evaluate
    noise_levels : sigmas of noise-conditional score matching, in the paper 0 among them; none
        by default
    sample_weight : (n,) non-negative; a weight of 2 is the same as two equal rows
    origin : (d,) point about which sums of x are taken; near the data it avoids cancellation
    gram_phi : also sum phi phi^T, which held-out likelihoods of FVPD need
    base : a `MixtureBase` or `StudentBase` that method="fd" or "fvpd" is to tilt: its score enters
        the statistics, in a second pass over the rows. A Gaussian needs none
    tolerance : largest error of F(w) / n of the spectral engine; the direct one is exact
    engine : "direct", O(n S^2) at the speed of BLAS; "spectral", for d <= 3, O(n + S^2) by
        non-uniform FFT; "auto" takes the faster by a model of their costs (see
        ``tgpfast calibrate``), which `provenance` keeps. Of a stream it looks at the first rows,
        up to as many as would make the spectral one pay
    precision : "float64"; "mixed" (float32 sines, cosines and products, float64 sums; about twice
        as fast); "auto" takes mixed only where d > 3 and a pilot of at most 5,000 rows, solved
        both ways at lambda = 0.1, predicts that log densities change by less than 1e-3 at the
        full n; `provenance` keeps the choice and the reason
    backend : "auto", "numba", "cython" or "numpy"
    n_threads : threads to use; by default all of the backend's
    budget : bytes, or text like "2GB", that the spectral engine may take for its grids; by default
        TGPFAST_MEMORY_BUDGET, or 40 % of the memory that is free. Where they need more, the direct
        engine takes over, with a warning
    progress : show a bar on standard error

    Raises
    ------
    TypeError, ValueError : for input that cannot be used, naming row and column; nothing is changed
    ImportError : for a backend asked for by name that is not installed
    """
    if not isinstance(features, Features):
        raise TypeError(f"features must be tgpfast.Features, got {type(features).__name__}")
    _one_of("engine", engine, ENGINES)
    _one_of("precision", precision, PRECISIONS)
    if not isinstance(gram_phi, (bool, np.bool_)):
        raise TypeError(f"gram_phi={gram_phi!r}: expected True or False")
    tolerance = positive("tolerance", tolerance)
    levels = check_levels(noise_levels)
    centre = check_origin(origin, features.dimension)
    module = kernels.load(backend)
    count = kernels.resolve_threads(module, n_threads)
    memory.check(
        required_memory(features, len(levels), gram_phi, "float64", count),
        f"a pass with {features.n_features:,} features",
        "use fewer features",
    )
    blocks = X  # from fit, which has judged them
    if not isinstance(X, Blocks):
        blocks = as_blocks(X, sample_weight=sample_weight, dimension=features.dimension)
    limit = memory_budget(blocks.budget if budget is None else budget)
    if base is not None:
        _check_base(base, features, blocks)
    if base is not None and not isinstance(base, GaussianBase):
        options: dict[str, Any] = {"backend": backend, "n_threads": n_threads}
        plain = accumulate(
            blocks, features, noise_levels=levels, origin=centre, gram_phi=gram_phi,
            tolerance=tolerance, engine=engine, precision=precision, budget=budget,
            progress=progress, **options,
        )  # fmt: skip
        scores = sum_scores(
            blocks, features, base, tolerance=tolerance, progress=progress, **options
        )
        return replace(plain, sum_dphi_score=scores, score_base=base.fingerprint)
    if engine == "spectral":
        _check_spectral(features, precision, tolerance)
    asked = engine
    engine, facts, blocks = _choose_engine(
        engine, blocks, features, levels, gram_phi, tolerance, limit, precision, (module, count)
    )
    if engine == "spectral":
        found = _spectral(
            blocks, features, levels, centre, gram_phi=gram_phi, tolerance=tolerance, budget=limit,
            backend=module, n_threads=n_threads if blocks.in_parts else count, progress=progress,
            must_fit=asked == "spectral" or blocks.can_repeat,
        )  # fmt: skip
        if found is not None:
            found.provenance.update(facts, precision_reason="spectral: float64 throughout")
            return found
        facts["fallback"] = f"spectral grids exceed the budget of {memory.human(limit)}"
    reason = "asked for"
    if precision == "auto":
        precision, reason = _choose_precision(blocks, features, module, count)
    part = functools.partial(
        _pass, engine=accumulate_direct, inputs=(features, levels, centre), gram_phi=gram_phi,
        precision=precision,
    )  # fmt: skip
    stats: Statistics = blocks.reduce(part, module.NAME, n_threads, progress)
    stats.provenance.update(facts, precision_reason=reason)
    return stats


def _check_base(base: Any, features: Features, blocks: Blocks) -> None:
    if not isinstance(base, Base):
        raise TypeError(f"base must be a base of tgpfast, got {type(base).__name__}")
    if base.dimension != features.dimension:
        raise ValueError(
            f"base has dimension {base.dimension}, the features have {features.dimension}"
        )
    if not blocks.can_repeat and not isinstance(base, GaussianBase):
        raise ValueError(
            f"X can be read only once, and with a {type(base).__name__} it is read twice; pass a "
            "list of blocks, or a callable"
        )


def _check_spectral(features: Features, precision: str, tolerance: float) -> None:
    """ValueError where engine="spectral", asked for by name, cannot serve."""
    if features.dimension > DIMENSIONS:
        raise ValueError(
            f'engine="spectral" serves up to {DIMENSIONS} dimensions, and these features have '
            f'{features.dimension}; use engine="direct" or "auto"'
        )
    if precision == "mixed":
        raise ValueError('precision="mixed" is of the direct engine; drop it or engine="spectral"')
    if tolerance < LEAST_TOLERANCE:
        raise ValueError(
            f"tolerance={tolerance:g}: float64 keeps {LEAST_TOLERANCE:g} at best; use that, or "
            'engine="direct"'
        )


def _spectral(
    blocks: Blocks, features: Features, levels: Array, centre: Array, *, gram_phi: bool,
    budget: int, must_fit: bool, **options: Any,
) -> Statistics | None:  # fmt: skip
    """The statistics by transforms; None, and the user is told, where the budget does not allow."""
    try:
        if not fits(features, levels, gram_phi, budget):
            raise MemoryError
        run = (
            _spectral_parts if blocks.in_parts
            else functools.partial(accumulate_spectral, must_fit=must_fit)
        )  # fmt: skip
        return run(blocks, features, levels, centre, gram_phi=gram_phi, budget=budget, **options)
    except MemoryError:
        spent = fits(features, levels, gram_phi, budget) and not blocks.can_repeat
        if spent:
            raise ValueError(
                f"the grids of the spectral engine exceed the budget of {memory.human(budget)}, "
                "and X, which can be read only once, is used up; raise budget=, or pass "
                'engine="direct"'
            ) from None
    warn(
        f"the grids of the spectral engine exceed the budget of {memory.human(budget)}; the direct "
        "engine runs instead. Raise budget= or TGPFAST_MEMORY_BUDGET, or the bandwidth",
        FallbackWarning,
    )
    return None


def _spectral_parts(
    blocks: Any, features: Features, levels: Array, centre: Array, *, gram_phi: bool,
    tolerance: float, budget: int, backend: ModuleType, n_threads: int | None, progress: bool,
) -> Statistics:  # fmt: skip
    """Partitions spread on equal grids, whose sum is read off once. Where such a grid exceeds the
    budget, or leaves too many rows outside: transforms of each partition, and a sum of those."""
    run: dict[str, Any] = {"tolerance": tolerance, "budget": budget}
    sample = blocks.pilot(SAMPLE_ROWS)[0]
    try:
        box = Spectrum.box_for(sample, features.bandlimit, **run, n_rows=blocks.n_rows)
        out = 1.0 - float(((sample >= box[0]) & (sample <= box[1])).all(axis=1).mean())
        if out * blocks.n_rows > MOST_OUTSIDE / 4:
            raise OutsideError
        spectrum = Spectrum.from_data(
            blocks, features.bandlimit, box=box, backend=backend.NAME, n_threads=n_threads,
            progress=progress, **run,
        )  # fmt: skip
    except OutsideError:
        part = functools.partial(
            _pass, engine=accumulate_spectral, inputs=(features, levels, centre),
            gram_phi=gram_phi, costs=load_costs(), **run,
        )  # fmt: skip
        stats: Statistics = blocks.reduce(part, backend.NAME, n_threads, progress)
        return stats
    stats = spectrum.statistics(
        features, levels, origin=centre, gram_phi=gram_phi, backend=backend.NAME,
        n_threads=n_threads,
    )  # fmt: skip
    stats.provenance["engine"] = "spectral"
    return stats


def _pass(
    blocks: Blocks, threads: Threads, engine: Any, inputs: tuple[Any, ...], **options: Any
) -> Statistics:
    """All rows, or one partition, by either engine."""
    module, count = threads.resolve()
    stats: Statistics = engine(blocks, *inputs, backend=module, n_threads=count, **options)
    return stats


def _choose_engine(
    engine: str, blocks: Blocks, features: Features, levels: Any, gram_phi: bool, tolerance: float,
    limit: int, precision: str, hold: tuple[ModuleType, int],
) -> tuple[str, dict[str, Any], Blocks]:  # fmt: skip
    """("direct" or "spectral", the estimates in seconds where there was a choice, the blocks to
    read)."""
    if engine != "auto":
        return engine, {}, blocks
    S, d = features.n_features, features.dimension
    if d > DIMENSIONS or importlib.util.find_spec("finufft") is None:
        return "direct", {}, blocks
    if tolerance < LEAST_TOLERANCE or precision == "mixed":  # what only the direct engine gives
        return "direct", {}, blocks
    if blocks.n_rows is None:
        with kernels.threads(*hold):  # as the pass itself: the caller's code makes the blocks
            return _engine_of_stream(blocks, features, levels, gram_phi, tolerance, limit)
    direct = load_costs().direct(blocks.n_rows, S, d, len(levels), gram_phi)
    if direct < NOT_WORTH_A_LOOK:
        return "direct", {"estimated_direct": direct}, blocks
    with np.errstate(over="ignore", invalid="ignore"):  # rows whose squares overflow
        spectral = estimate(blocks, features, levels, gram_phi, tolerance, limit)
    facts = {"estimated_direct": direct, "estimated_spectral": spectral}
    return ("spectral" if spectral is not None and spectral < direct else "direct"), facts, blocks


def _engine_of_stream(
    blocks: Blocks, features: Features, levels: Any, gram_phi: bool, tolerance: float, limit: int
) -> tuple[str, dict[str, Any], Blocks]:
    """As ``_choose_engine``, for rows of unknown number: spectral as soon as so many are seen that
    it is the quicker for these alone. They are held until then, in an eighth of the budget."""
    S, d = features.n_features, features.dimension
    row = load_costs().direct_row(S, d, len(levels), gram_phi)
    few, most = int(NOT_WORTH_A_LOOK / row) + 1, limit // (8 * 8 * d)
    if few > most:
        return "direct", {}, blocks
    begun = blocks.begun()
    begun.read(few)
    if begun.n_rows < few:
        return "direct", {}, begun.blocks
    with np.errstate(over="ignore", invalid="ignore"):  # rows whose squares overflow
        enough = rows_that_pay(
            begun.sample(ENGINE_ROWS), features, levels, gram_phi, tolerance, limit
        )
    if enough is None or enough > most:
        return "direct", {}, begun.blocks
    begun.read(enough)
    facts = {"rows_looked_at": begun.n_rows}
    return ("spectral" if begun.n_rows >= enough else "direct"), facts, begun.blocks


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        expected = ", ".join(repr(c) for c in choices)
        raise ValueError(f"{name}={value!r}: expected one of {expected}")


def _choose_precision(
    blocks: Blocks, features: Features, module: ModuleType, n_threads: int
) -> tuple[str, str]:
    """("float64" or "mixed", why)."""
    if features.dimension <= 3:
        return "float64", "d <= 3: float32 products spoil ill-conditioned systems"
    n_rows = blocks.n_rows
    if n_rows is not None and n_rows // PILOT_SHARE < PILOT_LEAST:
        return "float64", "too few rows for mixed precision to pay"
    pilot = None if n_rows is None else blocks.pilot(min(PILOT_ROWS, n_rows // PILOT_SHARE))
    if n_rows is None or pilot is None:
        return "float64", "rows of a stream cannot be sampled ahead"
    change = _predicted_change(pilot, n_rows, features, module, n_threads)
    verdict = "below" if change < MIXED_TOLERANCE else "above"
    reason = f"predicted change of log density {change:.1e}, {verdict} {MIXED_TOLERANCE:g}"
    return ("mixed" if change < MIXED_TOLERANCE else "float64"), reason


def _predicted_change(
    pilot: tuple[Array, Array | None], n_rows: int, features: Features, module: ModuleType,
    n_threads: int,
) -> float:  # fmt: skip
    """Largest change of the log density on pilot rows and base samples, scaled up to all rows.

    The condition of the FD system, and with it the effect of a rounding error, grows at most in
    proportion to n at a fixed lambda.
    """
    x, w = pilot
    try:
        base = GaussianBase.from_data(x, sample_weight=w)
    except ValueError:  # degenerate pilot: no base to judge by
        return float("inf")
    thetas = []
    for precision in DTYPES:
        stats = accumulate_direct(
            Blocks(x, sample_weight=w), features, np.zeros(0), base.mean, gram_phi=False,
            precision=precision, backend=module, n_threads=n_threads,
        )  # fmt: skip
        try:
            thetas.append(_solve_fd(stats, base, PILOT_LAM))
        except np.linalg.LinAlgError:  # not positive definite in this precision
            return float("inf")
    some = x[:: max(1, len(x) // 500)]  # in the order of the source, which may be sorted
    points = np.concatenate([some, base.sample(500, seed=0)])
    angles = points @ features.frequencies.T / features.bandwidth + features.phases
    change = np.cos(angles) @ (np.sqrt(2.0 / features.n_features) * (thetas[1] - thetas[0]))
    return float(np.abs(change).max() * n_rows / len(x))


def _solve_fd(stats: Statistics, base: GaussianBase, lam: float) -> Array:
    """theta of FD; LinAlgError where rounding has left the system indefinite."""
    system, b = fd_system(stats, base)
    system[np.diag_indices_from(system)] += lam * stats.features.bandwidth**2
    return np.asarray(cho_solve(cho_factor(system, lower=True, overwrite_a=True), b))


register_accumulator(accumulate)
