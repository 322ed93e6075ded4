"""`accumulate`: rows -> `Statistics`."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import replace
from typing import Any

from ..bases.base import Base, check_base
from ..bases.gaussian import GaussianBase
from ..data.blocks import Blocks, as_blocks
from ..features.lattice import LatticeFeatures
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime import memory
from ..runtime.warnings import FallbackWarning, warn
from ..validation import check_flag
from .base_scores import accumulate_base_scores
from .direct import accumulate_direct
from .engine_choice import choose_engine
from .lattice_sums import accumulate_lattice
from .pass_options import PassOptions
from .precision_choice import choose_precision
from .statistics import Statistics, register_accumulator


def accumulate(
    X: Any,
    features: Features | LatticeFeatures,
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
) -> Any:
    """Sum over the rows of X, in one pass, what every estimator is solved from.

    `Statistics` lists the sums. Memory does not grow with the number of rows. The direct engine
    gives the same bits for any ``n_threads``. The spectral one, and sums of a lattice, give the
    same bits every time with ``n_threads=1``; with more threads, whose sums are added as they come,
    they differ in the last digits, by less than the tolerance.

    Parameters
    ----------
    X : array, memmap, data frame, path or iterable
        (n, d) rows, or an iterable of blocks of rows, whose items may be tuples (block, weights).
        One-dimensional arrays are one column. The partitions of a dask array or data frame are
        summed where they are (see ``tgpfast.dask``).
    features : Features or LatticeFeatures
        The features to evaluate. Sums of a lattice (up to three columns) serve every kernel and
        bandwidth; ``origin``, ``gram_phi``, ``engine`` and ``precision`` do not concern them.
    noise_levels : sequence of float, default ()
        Sigmas of noise-conditional score matching (Algorithm 3 of the paper); the paper has 0 among
        them.
    sample_weight : (n,) array or None, default None
        Non-negative weights; a weight of 2 is the same as two equal rows.
    origin : (d,) array or None, default None
        Point about which sums of x are taken; near the data it avoids cancellation. None is zero.
    gram_phi : bool, default False
        Whether to sum phi phi^T too, which held-out likelihoods of FVPD need.
    base : Base or None, default None
        A `MixtureBase` or `StudentBase` that method="fd" or "fvpd" is to tilt. Its score enters the
        statistics, in a second pass over the rows. A Gaussian base needs no such pass. Score
        matching on a lattice needs every base, also a Gaussian one.
    tolerance : float, default 1e-9
        Largest error of F(w) / n of the spectral engine; the direct engine has none.
    engine : str, default "auto"
        "direct" takes O(n S^2) at the speed of BLAS; "spectral", for d <= 3, takes O(n + S^2) by
        non-uniform FFTs; "auto" takes the faster by a model of their costs, whose estimates
        ``provenance`` keeps. Of a stream it looks at the first rows, up to as many as would make
        the spectral engine faster.
    precision : str, default "auto"
        "float64"; "mixed" (float32 sines, cosines and products, float64 sums; about twice as fast);
        "auto" takes mixed only where d > 3 and a trial predicts that log densities change by less
        than 1e-3: at most 5,000 rows are solved both ways at lambda = 0.1. ``provenance`` keeps the
        choice and the reason.
    backend : str, default "auto"
        "auto", "numba", "cython" or "numpy".
    n_threads : int or None, default None
        Threads to use; None is all of the backend's.
    budget : int, str or None, default None
        Bytes, or text such as "2GB", that the grids of the spectral engine may take. None is
        TGPFAST_MEMORY_BUDGET, or 40 % of the memory that is available. Where the grids need more,
        the direct engine runs instead, with a warning.
    progress : bool, default False
        Whether to show a progress bar on standard error.

    Returns
    -------
    Statistics or LatticeStatistics
        By the kind of features.

    Raises
    ------
    TypeError, ValueError
        For input that cannot be used; the message names row and column.
    ImportError
        For a backend that is asked for by name and not installed.

    References
    ----------
    The sums of Algorithms 2 and 3 of the paper; see `Statistics`.

    Examples
    --------
    >>> import numpy as np
    >>> import tgpfast as tgp
    >>> x = np.random.default_rng(0).standard_normal((1000, 2))
    >>> features = tgp.Features.draw(50, bandwidth=0.5, covariance=np.eye(2), seed=0)
    >>> stats = tgp.accumulate(x[:600], features) + tgp.accumulate(x[600:], features)
    >>> stats.n_rows, stats.gram.shape
    (1000, (50, 50))
    """
    if isinstance(features, LatticeFeatures):
        return accumulate_lattice(
            X, features, sample_weight=sample_weight, base=base, noise_levels=noise_levels,
            tolerance=tolerance, budget=budget, threads=Threads(backend, n_threads),
            progress=check_flag("progress", progress),
        )  # fmt: skip
    options = PassOptions.check(
        features, noise_levels=noise_levels, origin=origin, gram_phi=gram_phi,
        tolerance=tolerance, engine=engine, precision=precision, backend=backend,
        n_threads=n_threads, progress=progress,
    )  # fmt: skip
    blocks = as_blocks(X, sample_weight=sample_weight, dimension=features.dimension)
    limit = memory.budget(blocks.budget if budget is None else budget)
    if base is None:
        return _run_pass(blocks, options, limit)
    _check_base(base, features, blocks)
    stats = _run_pass(blocks, options, limit)
    if isinstance(base, GaussianBase):
        return stats
    scores = accumulate_base_scores(
        blocks, features, base, tolerance=options.tolerance, backend=backend,
        n_threads=n_threads, progress=progress,
    )  # fmt: skip
    return replace(stats, sum_dphi_score=scores, score_base=base.fingerprint)


def _check_base(base: Any, features: Features, blocks: Blocks) -> None:
    check_base(base, features.dimension, "the features have")
    if not blocks.can_repeat and not isinstance(base, GaussianBase):
        raise ValueError(
            f"X can be read only once, and with a {type(base).__name__} it is read twice; pass a "
            "list of blocks, or a callable"
        )


def _run_pass(blocks: Blocks, options: PassOptions, budget: int) -> Statistics:
    """Choose the engine, then the precision, and run the pass."""
    choice = choose_engine(blocks, options, budget)
    facts = dict(choice.facts)
    if choice.engine == "spectral":
        found = _run_spectral(choice.blocks, options, budget)
        if found is not None:
            facts["precision_reason"] = "spectral: float64 throughout"
            return replace(found, provenance={**found.provenance, **facts})
        facts["fallback"] = f"spectral grids exceed the budget of {memory.format_bytes(budget)}"
    precision, facts["precision_reason"] = choose_precision(choice.blocks, options)
    run = functools.partial(
        _run_engine, engine=accumulate_direct, sums=options.sums, gram_phi=options.gram_phi,
        precision=precision,
    )  # fmt: skip
    stats: Statistics = choice.blocks.reduce(
        run, options.backend.NAME, options.asked_threads, options.progress
    )
    return replace(stats, provenance={**stats.provenance, **facts})


def _run_engine(
    blocks: Blocks, threads: Threads, engine: Any, sums: tuple[Any, ...], **options: Any
) -> Statistics:
    """The statistics of all rows, or of one partition, by either engine."""
    module, count = threads.resolve()
    return engine(blocks, *sums, backend=module, n_threads=count, **options)


def _run_spectral(blocks: Blocks, options: PassOptions, budget: int) -> Statistics | None:
    """The statistics by transforms; None, with a warning, where the budget does not allow it.

    Raises
    ------
    ValueError
        If the grids exceed the budget after rows that can be read only once have been read.
    """
    from .spectral import accumulate_spectral
    from .spread_grid import OutsideError

    run = functools.partial(
        _run_engine, engine=accumulate_spectral, sums=options.sums, gram_phi=options.gram_phi,
        tolerance=options.tolerance, budget=budget,
        must_fit=options.engine == "spectral" or blocks.can_repeat,
    )  # fmt: skip
    if options.work(budget).fits:
        try:
            if blocks.in_parts:
                with contextlib.suppress(OutsideError):  # then each partition has its own transform
                    return _spread_partitions(blocks, options, budget)
            stats: Statistics = blocks.reduce(
                run, options.backend.NAME, options.asked_threads, options.progress
            )
            return stats
        except MemoryError:
            if not blocks.can_repeat:
                raise ValueError(
                    f"the grids of the spectral engine exceed the budget of "
                    f"{memory.format_bytes(budget)}, and X, which can be read only once, is used "
                    'up; raise budget=, or pass engine="direct"'
                ) from None
    warn(
        f"the grids of the spectral engine exceed the budget of {memory.format_bytes(budget)}; the "
        f"direct engine runs instead. Raise budget= or {memory.BUDGET_VARIABLE}, or the bandwidth",
        FallbackWarning,
    )
    return None


def _spread_partitions(blocks: Any, options: PassOptions, budget: int) -> Statistics:
    """Spread each partition on an equal grid, and read the sum of the grids once.

    Raises
    ------
    OutsideError
        If such a grid exceeds the budget, or leaves too many rows outside.
    """
    from .spectrum import Spectrum

    threads: Any = {"backend": options.backend.NAME, "n_threads": options.asked_threads}
    spectrum = Spectrum.from_data(
        blocks, options.features.bandlimit, box=_box_of_partitions(blocks, options, budget),
        tolerance=options.tolerance, budget=budget, progress=options.progress, **threads,
    )  # fmt: skip
    stats = spectrum.statistics(
        options.features, options.noise_levels, origin=options.origin, gram_phi=options.gram_phi,
        **threads,
    )  # fmt: skip
    return replace(stats, provenance={**stats.provenance, "engine": "spectral"})


def _box_of_partitions(blocks: Any, options: PassOptions, budget: int) -> Any:
    """The box of the grid for all partitions; `OutsideError` where it would leave more than a
    quarter of the most rows that a `Spectrum` keeps outside."""
    from .grid_box import sample_for_box
    from .spectrum import MOST_OUTSIDE, Spectrum
    from .spread_grid import OutsideError

    sample = sample_for_box(blocks)
    low, high = Spectrum.box_for(
        sample, options.features.bandlimit, options.tolerance, budget, blocks.n_rows
    )
    outside = 1.0 - float(((sample >= low) & (sample <= high)).all(axis=1).mean())
    if outside * blocks.n_rows > MOST_OUTSIDE / 4:
        raise OutsideError
    return low, high


register_accumulator(accumulate)
