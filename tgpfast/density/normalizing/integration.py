"""Integrals of a density in the model's coordinates: its mass, marginals and weighted draws."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...bases.base import Base
from ...bases.domain import domain_of
from ...data.scaling import Scaling
from ...kernels.thread_choice import Threads
from ...validation import Array
from ..draws.proposal import QUADRATURE_DIMENSIONS, Proposal
from ..draws.replicates import AddedTerm
from ..exponents.exponent import Tilt
from ..exponents.lattice_exponent import LatticeTilt
from .normalizer import (
    UNTILTED,
    Normalizer,
    estimate_by_importance,
    normalizer_of_quadrature,
    warn_if_poor,
)

if TYPE_CHECKING:
    from .lattice_quadrature import LatticeQuadrature
    from .periodic_quadrature import PeriodicQuadrature
    from .quadrature import Quadrature

MARGINAL_LOG2_POINTS = 17  # base-2 logarithm of the points behind marginals of many columns
ANSWER_REPLICATES, ANSWER_LOG2_POINTS = 16, 13  # independent sets of points behind answers
NOT_PICKLED = ("quadrature", "marginal_points", "_replicates")  # large, and made again when needed


class Integrator:
    """Integrals of exp{tilt} base: by quadrature in one to three dimensions, else by draws.

    Everything is computed at first use and kept.

    Parameters
    ----------
    tilt : Tilt
    base : Base
    threads : Threads
    proposal : Proposal, default None
        Draws that are known to cover the density.
    normalizer : Normalizer, default None
        The normalizer, where it is known.
    """

    def __init__(
        self, tilt: Tilt, base: Base, threads: Threads, *, proposal: Proposal | None = None,
        normalizer: Normalizer | None = None,
    ) -> None:  # fmt: skip
        self.tilt, self.base, self.threads = tilt, base, threads
        if proposal is not None:
            self.proposal = proposal
        if normalizer is not None:
            self.log_normalizer = normalizer

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in NOT_PICKLED}

    @property
    def uses_quadrature(self) -> bool:
        """Whether integrals are taken on grids."""
        if self.base.dimension > QUADRATURE_DIMENSIONS or not self._has_random_waves_of_periods:
            return self.base.dimension <= QUADRATURE_DIMENSIONS
        from .periodic_quadrature import can_integrate

        return can_integrate(self.base)

    @property
    def _has_random_waves_of_periods(self) -> bool:
        """Whether columns are periodic, and the features are not those of a lattice."""
        return bool(domain_of(self.base).periodic.any()) and not isinstance(self.tilt, LatticeTilt)

    @functools.cached_property
    def quadrature(self) -> Quadrature | LatticeQuadrature | PeriodicQuadrature:
        """The density on grids, in one to three dimensions."""
        if isinstance(self.tilt, LatticeTilt):
            from .lattice_quadrature import LatticeQuadrature

            return LatticeQuadrature(self.tilt, self.base, self.threads)
        if self._has_random_waves_of_periods:
            from .periodic_quadrature import PeriodicQuadrature

            return PeriodicQuadrature(self.tilt, self.base, self.threads)
        from .quadrature import Quadrature

        return Quadrature(self.tilt, self.base, self.threads)

    @functools.cached_property
    def proposal(self) -> Proposal:
        """Draws for importance sampling; in more than three dimensions those at modes too."""
        if self.uses_quadrature:
            return Proposal(self.base)
        from ..draws.modes import find_modes

        return Proposal(self.base, find_modes(self.tilt, self.base, self.threads))

    def with_mode_starts(self, rows: Array) -> Integrator:
        """The same, with modes that ascent from some rows of the data finds as well.

        rows : array, (n, d), in the model's coordinates
        """
        if self.uses_quadrature or self.tilt.is_zero:
            return self
        from ..draws.modes import find_modes

        modes = find_modes(self.tilt, self.base, self.threads, rows)
        return Integrator(
            self.tilt, self.base, self.threads, proposal=Proposal(self.base, modes)
        )

    # -- the mass ---------------------------------------------------------------------------------

    @property
    def known_normalizer(self) -> Normalizer | None:
        """The normalizer if it has been computed, else None."""
        return self.__dict__.get("log_normalizer")

    @property
    def known_proposal(self) -> Proposal | None:
        """The proposal if it has been computed, else None."""
        return self.__dict__.get("proposal")

    @functools.cached_property
    def log_normalizer(self) -> Normalizer:
        """log Z with its error; warns once where it is not reliable."""
        if self.tilt.is_zero:
            return UNTILTED
        if self.uses_quadrature:
            found = normalizer_of_quadrature(self.quadrature)
        else:
            found = estimate_by_importance(self.tilt, self.proposal, self.threads)
        warn_if_poor(found)
        return found

    # -- marginals and weighted draws -------------------------------------------------------------

    def weighted_draws(self, n: int, seed: int) -> tuple[Array, Array]:
        """n independent draws (n, d) and their weights (n,); all 1 where draws are exact."""
        rng = np.random.default_rng(seed)
        if self.tilt.is_zero:
            return self.base.draw(n, rng), np.ones(n)
        if self.uses_quadrature:
            return self.quadrature.draw(n, rng)[0], np.ones(n)
        u = self.proposal.draw(n, rng)
        return u, self._weigh(u)[0]

    def marginal_cdf(self, direction: Array, places: Array, scaling: Scaling) -> Array:
        """P(x . direction <= place) for every place, (G,), x in the units of the data.

        scaling : between the units of the data and the model's coordinates
        """
        from ..grids.marginal_cdf import weighted_cdf

        # Powers of two change no bit, and keep squares of directions and scales in range. A place
        # that overflows is as good as infinite.
        power = np.frexp(np.abs(direction).max())[1]
        with np.errstate(over="ignore"):
            v, places = np.ldexp(direction, -power), np.ldexp(places, -power)
        if not self.uses_quadrature:
            u, weights = self.marginal_points
            return weighted_cdf(scaling.invert(u) @ v, weights, places)
        if not scaling.is_affine:
            if np.count_nonzero(v) > 1:
                u, weights = self.weighted_draws(2**MARGINAL_LOG2_POINTS, 0)
                return weighted_cdf(scaling.invert(u) @ v, weights, places)
            k = int(np.flatnonzero(v)[0])
            places, v = np.sign(v[k]) * scaling.to_line(k, places / v[k]), np.sign(v)
            scaling = scaling.affine
        power = np.frexp(scaling.scale.max())[1]
        along = v * np.ldexp(scaling.scale, -power)  # v . x = v . shift + (v * scale) . u
        offset = float(v @ scaling.shift)
        with np.errstate(over="ignore"):
            return self.quadrature.marginal_cdf(along, np.ldexp(places - offset, -power))

    @functools.cached_property
    def marginal_points(self) -> tuple[Array, Array]:
        """131,072 quasi-random points and their weights, for marginals of many columns."""
        u = self.proposal.sobol(MARGINAL_LOG2_POINTS, seed=0)
        return u, self._weigh(u)[0]

    def replicates(self, seed: int) -> tuple[Array, Array]:
        """Points (R, n, d) and weights (R, n): R independent sets of quasi-random draws, whose
        spread gives the error of what is computed from all."""
        u, weights, _ = self._known_replicates(seed)
        shape = ANSWER_REPLICATES, -1
        return u.reshape(*shape, self.base.dimension), weights.reshape(shape)

    def log_z_of_replicates(self, seed: int) -> AddedTerm:
        """log Z by the draws of `replicates`.

        Answers that contain log Z take this one: its error is that of their own draws, so that it
        differs between seeds, and the spread of the sets shows it together with the other errors.
        """
        _, weights, top = self._known_replicates(seed)
        masses = np.asarray(weights.reshape(ANSWER_REPLICATES, -1).mean(axis=1))
        mass = float(masses.mean())
        return AddedTerm(top + math.log(mass), masses / mass - 1.0)

    def _known_replicates(self, seed: int) -> tuple[Array, Array, float]:
        """Draws (R n, d), their weights (R n,), and the log of what the weights are divided by."""
        known = self.__dict__.get("_replicates")
        if known is None or known[0] != seed:
            seeds = range(seed * ANSWER_REPLICATES, (seed + 1) * ANSWER_REPLICATES)
            u = np.concatenate([self.proposal.sobol(ANSWER_LOG2_POINTS, one) for one in seeds])
            self._replicates = known = seed, (u, *self._weigh(u))
        return known[1]

    def _weigh(self, u: Array) -> tuple[Array, float]:
        """Weights of draws, the largest is 1, and the log of what they are divided by."""
        log_weights = self.proposal.log_weights(self.tilt, u, self.threads)
        top = float(log_weights.max())
        return np.exp(log_weights - top), top
