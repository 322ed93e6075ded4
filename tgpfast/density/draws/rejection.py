"""Independent draws from a density by rejection of weighted draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...runtime.progress import Progress
from ...validation import Array

BOUND_DRAWS = 2**14  # draws from which the bound of the weights is taken
MOST_EXCESS = 0.002  # share of the mass by which weights may exceed the bound: rows that repeat
LEAST_BATCH, MOST_BATCH = 1_024, 2**17  # draws made together: 100 MB for 100 columns
SPARE_DRAWS = 1.1  # times as many draws are made as are expected to be needed
LEAST_WEIGHT = 1e-300  # of a bound, by which weights are divided: it must not be zero

Propose = Callable[[int, np.random.Generator], tuple[Array, Array]]  # n -> rows, log weights


def sample_by_rejection(
    propose: Propose, n: int, rng: np.random.Generator, *, excess: float = MOST_EXCESS,
    least_rate: float = 0.0, progress: bool = False,
) -> tuple[Array, float, float] | None:  # fmt: skip
    """Rows kept from fresh draws in proportion to their weights.

    A draw of weight w is kept w / c times, rounded up or down at random, so that the expected
    number is exact. The weights exceed c by a share ``excess`` of their sum only, so that almost
    all draws are kept at most once.

    Parameters
    ----------
    propose : callable
        Makes n draws: rows (n, d) and log weights (n,).
    n : int
        Number of rows.
    rng : Generator
    excess : float, default MOST_EXCESS
    least_rate : float, default 0.0
        Gives up where a smaller share of the draws would be kept.
    progress : bool, default False

    Returns
    -------
    (rows, effective number of independent rows, share of draws that was kept), or None
    """
    rows, log_weights = propose(BOUND_DRAWS, rng)
    top = float(log_weights.max())
    if not np.isfinite(top):
        return None
    log_c = top + math.log(_find_bound(np.exp(log_weights - top), excess))
    rate = float(np.exp(log_weights - log_c).mean())
    if rate < least_rate:
        return None
    kept, counts, have, tried = [], [], 0, 0
    with Progress(progress, "rows drawn", n) as bar:
        while True:
            copies = np.floor(np.exp(log_weights - log_c) + rng.uniform(size=len(rows)))
            copies = copies.astype(np.int64)
            tried += len(rows)
            chosen = copies > 0
            kept.append(rows[chosen])
            counts.append(copies[chosen])
            new = int(copies.sum())
            bar.add(min(new, max(n - have, 0)))
            have += new
            if have >= n:
                break
            missing = SPARE_DRAWS * (n - have) / max(have / tried, rate / 10.0)
            rows, log_weights = propose(int(min(max(missing, LEAST_BATCH), MOST_BATCH)), rng)
    number = np.concatenate(counts)
    index = rng.permutation(np.repeat(np.arange(len(number)), number))[:n]
    effective = n**2 / float(np.square(np.bincount(index)).sum())
    return np.concatenate(kept)[index], effective, have / tried


def draw_by_rejection(
    propose: Propose, n: int, rng: np.random.Generator
) -> tuple[Array, float]:
    """n rows, and the effective number of independent rows.

    The proposal must be so close to the density that weights exceed their bound by chance only.
    """
    found = sample_by_rejection(propose, n, rng, excess=0.0)
    assert found is not None
    return found[0], found[1]


def shuffle_parts(
    parts: Sequence[tuple[Array, float]], rng: np.random.Generator
) -> tuple[Array, float]:
    """The rows of all parts in random order, and the effective number of independent rows.

    parts : rows and effective number of each
    """
    rows = np.concatenate([part for part, _ in parts])
    repeats = sum(len(part) ** 2 / effective for part, effective in parts)
    return rows[rng.permutation(len(rows))], len(rows) ** 2 / repeats


def _find_bound(weights: Array, excess: float) -> float:
    """The least c that weights exceed by a share ``excess`` of their sum.

    With no excess a little more than the largest, since draws to come may exceed it.
    """
    if excess == 0.0:
        return 1.1 * float(weights.max())
    ordered = np.sort(weights)[::-1]
    # excess over the k-th largest: the sum of those above it, less k times that
    over = np.cumsum(ordered) - np.arange(1, len(ordered) + 1) * ordered
    k = int(np.searchsorted(over, excess * ordered.sum(), side="right")) - 1
    return float(max(ordered[max(k, 0)], LEAST_WEIGHT))
