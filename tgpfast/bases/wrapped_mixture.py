"""Gaussian mixtures wrapped around periodic columns: growth and expectation maximization.

Rows are cut open where they are sparse, and a mixture is grown there as if no column had a period.
Steps of EM follow in which every component stands for all of its images, whole periods apart, so
that the place of the cut does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..kernels.thread_choice import Threads
from ..validation import Array
from .bounded import BoundedMixtureBase
from .domain import Domain
from .expectation_maximization import (
    Components,
    Learner,
    Moments,
    Rows,
    measure_columns,
)
from .mixture import MixtureBase, components_of, mixture_of
from .mixture_growth import REFIT_STEPS, GrownMixture, grow_mixture

CUT_BINS = 48  # bins of a period among whose smoothed counts the least one is cut
CUT_SMOOTHING = 5  # bins that a smoothed count is the mean of
# Periods that a component is wide, at most. One of 0.5 periods is uniform to 1.4 %, and has ten
# images; those of three and more columns multiply, and the guard of four has 10,000 of them.
WIDEST_ON_CIRCLE, WIDEST_ON_TORUS = 0.5, 0.2
CIRCLE_COLUMNS = 2  # periodic columns up to which components may have the first width
IMAGE_REACH = 5.0  # deviations: beyond them an image explains e^-12 of what its component does
WRAPPED_STEPS = 5  # of EM after growth: what crosses the cut is joined again


@dataclass(frozen=True, eq=False)
class GrownWrappedMixture:
    """Result of `grow_wrapped_mixture`.

    Attributes
    ----------
    grown : GrownMixture
        Grown on the rows that were cut open.
    mixture : MixtureBase
        The components before they are wrapped, with a guard unless there is one component.
    domain : Domain
        The periods, which begin at the cuts.
    """

    grown: GrownMixture
    mixture: MixtureBase
    domain: Domain

    def refit(self, x: Array, w: Array) -> MixtureBase:
        """The components after some steps of EM on other rows, with a guard of these rows.

        Parameters
        ----------
        x : (n, d) array
        w : (n,) array
            Rows that each row counts as.
        """
        return refine_wrapped(self.mixture, self.grown, x, w, self.domain, REFIT_STEPS)


def grow_wrapped_mixture(
    x: Array, w: Array, held_x: Array, held_w: Array, domain: Domain, *, max_work: float,
    seed: int = 0, threads: Threads | None = None,
) -> GrownWrappedMixture:  # fmt: skip
    """A mixture on periodic and open columns, of the size that held-out rows prefer.

    Parameters
    ----------
    x : (n, d) array
    w : (n,) array
        Rows that each row counts as.
    held_x, held_w : (m, d) and (m,) arrays
        Rows that decide on the size.
    domain : Domain
        With periods and without walls; they begin at the cuts (`cut_open`).
    max_work : float
        Floating-point operations that growth may take.
    seed : int, default 0
    threads : Threads, default None

    Raises
    ------
    ValueError
        If a column is constant, or columns are linearly dependent.
    """
    cut, held = domain.wrap(x), domain.wrap(held_x)
    grown = grow_mixture(cut, w, held, held_w, max_work=max_work, seed=seed, threads=threads)
    first = limit_widths(grown.mixture, domain)
    refined = refine_wrapped(first, grown, x, w, domain, WRAPPED_STEPS)
    scores = [
        held_w @ BoundedMixtureBase.confine(mixture, domain).log_density_at(held)
        for mixture in (first, refined)
    ]
    return GrownWrappedMixture(grown, refined if scores[1] >= scores[0] else first, domain)


def refine_wrapped(
    mixture: MixtureBase, grown: GrownMixture, x: Array, w: Array, domain: Domain, n_steps: int
) -> MixtureBase:
    """A mixture after steps of EM with images, with a guard of these rows.

    Tied covariances take steps without images, on the rows that are cut open.

    Parameters
    ----------
    mixture : MixtureBase
    grown : GrownMixture
        How covariances are shrunk.
    x, w : (n, d) and (n,) arrays
    domain : Domain
    n_steps : int
    """
    cut = domain.wrap(x)
    if grown.covariances == "tied":
        return limit_widths(GrownMixture(mixture, "tied", 0.0, 0.0).refit(cut, w), domain)
    standards = measure_columns(cut, w)
    scaling = standards.scaling
    rows = Rows.from_data(cut, w, scaling, Threads())
    learner = Learner(
        standards.floor, grown.covariances, strength=grown.strength,
        correction=x.shape[1] + 1.0,
    )  # fmt: skip
    components, within = components_of(mixture, scaling), domain.rescaled(scaling)
    for _ in range(n_steps):
        components = _step(rows, learner, components, within)
    return limit_widths(mixture_of(components, scaling).with_guard(cut, w), domain)


def _step(rows: Rows, learner: Learner, components: Components, domain: Domain) -> Components:
    """One step of EM in which a component explains what any of its images does."""
    parent, shifts = _find_images(components, domain)
    images = components.take(parent)
    images = images._replace(means=images.means + shifts)
    _, moments = learner.sum_moments(rows, images)
    joined = _join_images(moments, parent, shifts, len(components.weights))
    if learner.covariances == "diagonal":
        joined = joined._replace(scatters=joined.scatters * np.eye(domain.dimension))
    return learner.maximize(rows, joined, learner.find_targets(joined))[0]


def _find_images(components: Components, domain: Domain) -> tuple[NDArray[np.int64], Array]:
    """Numbers of the components (m,) and shifts (m, d) of all images that reach into the domain."""
    parent = np.arange(len(components.weights), dtype=np.int64)
    shifts = np.zeros((len(parent), domain.dimension))
    for k in np.flatnonzero(domain.periodic).tolist():
        period = float(domain.periods[k])
        reach = IMAGE_REACH * np.sqrt(components.covariances[parent, k, k])
        reach = np.maximum(reach, 0.5 * period)
        means = components.means[parent, k]
        first = np.ceil((domain.low[k] - reach - means) / period).astype(int)
        counts = np.floor((domain.high[k] + reach - means) / period).astype(int) - first + 1
        index = np.repeat(np.arange(len(parent)), counts)
        step = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
        parent, shifts = parent[index], shifts[index]
        shifts[:, k] = (first[index] + step) * period
    return parent, shifts


def _join_images(
    moments: Moments, parent: NDArray[np.int64], shifts: Array, K: int
) -> Moments:
    """Counts, means and scatters of components from those of their images."""
    d = shifts.shape[1]
    counts, means, scatters = np.zeros(K), np.zeros((K, d)), np.zeros((K, d, d))
    places = moments.means - shifts
    np.add.at(counts, parent, moments.counts)
    np.add.at(means, parent, moments.counts[:, None] * places)
    means /= np.maximum(counts, np.finfo(float).tiny)[:, None]
    about = places - means[parent]
    parts = moments.scatters + about[:, :, None] * about[:, None, :]
    np.add.at(scatters, parent, moments.counts[:, None, None] * parts)
    scatters /= np.maximum(counts, np.finfo(float).tiny)[:, None, None]
    return Moments(counts, means, scatters)


def limit_widths(mixture: MixtureBase, domain: Domain) -> MixtureBase:
    """The mixture with components at most WIDEST_ON_CIRCLE periods wide, or WIDEST_ON_TORUS with
    more than CIRCLE_COLUMNS periodic columns, with the same correlations.

    Parameters
    ----------
    mixture : MixtureBase
    domain : Domain
    """
    is_torus = int(domain.periodic.sum()) > CIRCLE_COLUMNS
    widest = WIDEST_ON_TORUS if is_torus else WIDEST_ON_CIRCLE
    widths = np.sqrt(np.einsum("kii->ki", mixture.covariances))
    factors = np.minimum(1.0, widest * domain.periods / widths)
    covariances = mixture.covariances * factors[:, :, None] * factors[:, None, :]
    return MixtureBase(
        mixture.weights, mixture.means, covariances, has_guard=mixture.has_guard
    )


def cut_open(x: Array, weights: Array, domain: Domain) -> Domain:
    """The domain whose periods begin where the rows are sparsest.

    Parameters
    ----------
    x : (n, d) array
    weights : (n,) array
    domain : Domain

    Examples
    --------
    >>> hours = np.array([[22.0], [23.5], [23.0], [0.5], [1.0], [2.5], [4.0]])
    >>> cut = cut_open(hours, np.ones(7), Domain([0.0], [24.0], [True]))
    >>> 4.0 < float(cut.low[0]) < 22.0
    True
    """
    low, high = domain.low.copy(), domain.high.copy()
    for k in np.flatnonzero(domain.periodic).tolist():
        period = domain.high[k] - domain.low[k]
        turns = (x[:, k] - domain.low[k]) / period
        bins = np.floor(CUT_BINS * (turns % 1.0)).astype(int) % CUT_BINS
        counts = np.bincount(bins, weights, CUT_BINS)
        reach = range(-(CUT_SMOOTHING // 2), CUT_SMOOTHING // 2 + 1)
        smooth = sum(np.roll(counts, step) for step in reach)
        low[k] += period * (int(np.argmin(smooth)) + 0.5) / CUT_BINS
        high[k] = low[k] + period
    return Domain(low, high, domain.periodic)
