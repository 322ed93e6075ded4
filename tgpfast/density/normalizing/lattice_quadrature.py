"""The mass of a density with lattice features, and its marginal distribution functions.

The exponent is zero outside a box, where the base alone holds, so that

    Z = 1 + integral over the box of (e^f - 1) base,

an integrand that vanishes smoothly at open ends. Along open and periodic axes the trapezoidal rule
converges exponentially; between walls, where the base may have a slope, Gauss-Legendre panels do.
Two rules, one 1.5 times as fine as the other, give the error; rules are refined until it is small
enough. Gaussian components that are narrower than the steps of the rule are integrated by
themselves, in coordinates that whiten them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...bases.base import Base
from ...bases.gaussian import GaussianBase
from ...bases.mixture import MixtureBase, as_mixture
from ...bases.part_widths import part_widths
from ...features.lattice import LatticeFeatures
from ...features.lattice_box import tapered_sides
from ...kernels.thread_choice import Threads
from ...validation import Array
from ..draws.box_sampling import draw_beyond_box, make_box_cells
from ..draws.grid_sampling import GridCells
from ..draws.rejection import draw_by_rejection, shuffle_parts
from ..exponents.lattice_exponent import LatticeTilt
from ..grids.base_marginals import base_cdf
from ..grids.box_rule import PANEL_WASTE, BoxRule, integrate_to
from ..grids.marginal_cdf import RecentDirections
from ..grids.narrow_part import FINER_ALONG_LINE, RULE_REFINEMENT, NarrowPart

LATTICE_TOLERANCE = {1: 1e-8, 2: 1e-8, 3: 1e-4}  # error of log Z at which refining stops
LATTICE_NODES = {1: 2**20, 2: 2**23, 3: 2**24}  # of a rule, at most: some seconds of work
FIRST_OVERSAMPLING = 4.0 / 3.0  # nodes of the first rule for each one that the waves need
NARROW = 2.25  # steps: Gaussians with a smaller deviation are integrated by themselves
RESOLVED = 1.5  # steps: deviations that a rule must have at least along each axis
LINE_NODES = 2**12  # of a marginal density, at most


@dataclass(eq=False)
class LatticeQuadrature:
    """A density with lattice features on rules over its box.

    Parameters
    ----------
    tilt : LatticeTilt
    base : Base
        Has no mass beyond the walls of the lattice, and is periodic where the lattice is.
    threads : Threads, default Threads()

    Attributes
    ----------
    value : float
        Log of the mass of e^tilt base.
    error : float
        Bound on the error of the value: its change from the rule before, and the share of the base
        in parts that no affordable rule resolves.
    log_square : float
        log E[e^(2 tilt)] under the base.
    n_nodes : int
        Nodes of the last rules.
    counts : tuple of int
        Equal steps along each axis that the last rule resolves as much as.

    Examples
    --------
    A constant tilt of 1 between walls:

    >>> import numpy as np
    >>> from tgpfast.bases.bounded import UniformBase
    >>> features = LatticeFeatures([1.0], (1,), [0.0], walls=("wall",))
    >>> tilt = LatticeTilt(features, np.array([1.0, 0.0]))
    >>> round(LatticeQuadrature(tilt, UniformBase([0.0], [1.0])).value, 6)
    1.0
    """

    tilt: LatticeTilt
    base: Base
    threads: Threads = field(default_factory=Threads)
    value: float = field(init=False)
    error: float = field(init=False)
    log_square: float = field(init=False)
    n_nodes: int = field(init=False)
    counts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.d = self.base.dimension
        if self.features.dimension != self.d:
            raise ValueError(
                f"features of dimension {self.features.dimension} do not go with a base of "
                f"dimension {self.d}"
            )
        grid = self.features.to_grid(self.tilt.theta, self.features.grid_shape())
        # numbers are divided by e^peak, so that none overflows; where the base alone holds, f is 0
        self.peak = max(float(grid.max()), 0.0 if self.is_open else -math.inf)
        self._known_parts: dict[int, NarrowPart] = {}
        self._recent = RecentDirections()
        self._refine()

    @property
    def features(self) -> LatticeFeatures:
        """The lattice."""
        return self.tilt.features

    @property
    def is_open(self) -> bool:
        """Whether the base alone holds somewhere."""
        return any(any(tapered_sides(kind)) for kind in self.features.walls)

    @property
    def _floor(self) -> float:
        """e^-peak where the base alone holds somewhere, else 0."""
        return math.exp(-self.peak) if self.is_open else 0.0

    # -- mass ------------------------------------------------------------------------------------

    def _refine(self) -> None:
        """Refine the rule until two agree."""
        tolerance, most = LATTICE_TOLERANCE[self.d], LATTICE_NODES[self.d]
        oversampling, last, self.error = FIRST_OVERSAMPLING, math.inf, math.inf
        sizes = np.zeros(self.d)
        while not self.error <= tolerance:
            counts = self._counts(oversampling)
            rule = self._rule(counts)
            if rule.size > most and np.isfinite(last):
                break
            finer = np.array([len(nodes) for nodes in rule.nodes])
            if (finer <= sizes).any():  # panels come whole: the same nodes would show no error
                oversampling *= RULE_REFINEMENT
                continue
            sizes = finer
            self._split(counts)
            self._evaluate(rule, tolerance)
            self.error = abs(math.expm1(min(last - self.value, 700.0)))
            self.error += self._narrow_error + self._unresolved(counts)
            last = self.value
            oversampling *= RULE_REFINEMENT

    def _rule(self, counts: Sequence[int]) -> BoxRule:
        """The rule over the box; trapezoidal where the integrand continues smoothly."""
        features = self.features
        periodic = [not is_cosine for is_cosine in features.cosine]
        high = features.origin + features.lengths
        return BoxRule.of_axes(features.origin, high, counts, periodic)

    def _counts(self, oversampling: float) -> tuple[int, ...]:
        """Nodes along each axis; more where a base that cannot be split has narrow parts."""
        shape = np.array(self.features.grid_shape(oversampling), dtype=float)
        if not self._can_split:
            needed = RESOLVED * self.features.lengths / self._parts[1].min(axis=0)
            grown = np.maximum(self.features.grid_shape(FIRST_OVERSAMPLING), needed)
            # two rules must fit, and panels have more nodes
            most = LATTICE_NODES[self.d] / RULE_REFINEMENT**self.d
            most /= (1.1 * PANEL_WASTE) ** sum(self.features.cosine)
            grown *= min(1.0, most / grown.prod()) ** (1.0 / self.d)
            shape = np.maximum(shape, oversampling / FIRST_OVERSAMPLING * grown)
        return tuple(int(n) for n in shape)

    def _unresolved(self, counts: Sequence[int]) -> float:
        """Share of the base in parts that the rule steps over, which two rules would not notice."""
        if self._can_split:
            return 0.0
        steps = self.features.lengths / np.array(counts)
        shares, widths = self._parts
        return float(shares[(widths < 0.99 * RESOLVED * steps).any(axis=1)].sum())

    @property
    def _can_split(self) -> bool:
        """Whether the base has Gaussian components, and no walls or periods cut them."""
        is_gaussian = isinstance(self.base, (GaussianBase, MixtureBase))
        return is_gaussian and all(kind == "open" for kind in self.features.walls)

    @functools.cached_property
    def _parts(self) -> tuple[Array, Array]:
        """Shares of the base's parts (K,), and their deviations along each axis, the other columns
        held fixed, (K, d)."""
        return part_widths(self.base)

    def _split(self, counts: Sequence[int]) -> None:
        """Divide the base into what the rule resolves and narrow Gaussians."""
        self.shared: Base | None = self.base
        self.shared_share, self.narrow = 1.0, list[NarrowPart]()
        if not (isinstance(self.base, (GaussianBase, MixtureBase)) and self._can_split):
            return
        steps = self.features.lengths / np.array(counts)
        mixture = as_mixture(self.base)
        in_steps = mixture.covariances / np.outer(steps, steps)
        wide = np.linalg.eigvalsh(in_steps)[:, 0] >= NARROW**2
        for k in np.flatnonzero(~wide).tolist():
            if k not in self._known_parts:
                self._known_parts[k] = NarrowPart(
                    float(mixture.weights[k]), mixture.parts[k], self.tilt, self.threads,
                    self.peak,
                )  # fmt: skip
            self.narrow.append(self._known_parts[k])
        if wide.all():
            return
        self.shared_share, self.shared = float(mixture.weights[wide].sum()), None
        if wide.any():
            self.shared = MixtureBase(
                mixture.weights[wide], mixture.means[wide], mixture.covariances[wide]
            )

    def _evaluate(self, rule: BoxRule, tolerance: float) -> None:
        """value, log_square and n_nodes by a rule and by the grids of the narrow components."""
        mass, square = self._sum_box(rule)
        self.shared_mass = mass + self.shared_share * self._floor
        square += self.shared_share * self._floor**2
        total, self.n_nodes = self.shared_mass, rule.size if self.shared is not None else 0
        for part in self.narrow:
            part.refine(tolerance, LATTICE_NODES[self.d])
            total += part.mass
            square += part.square
            self.n_nodes += part.n_nodes
        self.counts = rule.counts
        self._narrow_error = sum(part.error for part in self.narrow) / max(total, 1e-300)
        self.value = self.peak + math.log(max(total, 1e-300))
        self.log_square = 2.0 * self.peak + math.log(max(square, 1e-300))

    def _sum_box(self, rule: BoxRule) -> tuple[float, float]:
        """Integrals over the box of e^f and e^{2 f} times the shared part of the base, divided by
        e^peak and e^{2 peak}; where the domain is open, without that of the base alone."""
        if self.shared is None:
            return 0.0, 0.0
        floor, mass, square = self._floor, 0.0, 0.0
        for x, weights in rule.slabs():
            growth = np.exp(self.tilt.value(x, self.threads) - self.peak)
            base = weights * np.exp(self.shared.log_density_at(x))
            mass += float(base @ (growth - floor))
            square += float(base @ (np.square(growth) - floor**2))
        return self.shared_share * mass, self.shared_share * square

    @functools.cached_property
    def mass_in_box(self) -> float:
        """Integral of e^f times the shared part of the base over the box, divided by e^peak: all of
        it without the base beyond the box, where f is 0."""
        if not self.is_open or self.shared is None:
            return self.shared_mass
        features, of_base = self.features, 0.0
        periodic = [kind == "period" for kind in features.walls]  # other ends are sharp here
        high = features.origin + features.lengths
        for x, weights in BoxRule.of_axes(features.origin, high, self.counts, periodic).slabs():
            of_base += float(weights @ np.exp(self.shared.log_density_at(x)))
        return self.shared_mass - self.shared_share * max(1.0 - of_base, 0.0) * self._floor

    # -- marginals -------------------------------------------------------------------------------

    def marginal_cdf(self, direction: Array, places: Array) -> Array:
        """P(x . direction <= place) for every place, x in the model's coordinates.

        Parameters
        ----------
        direction : (d,) array, not zero
        places : (G,) array, in any order

        Returns
        -------
        (G,) array
            Rows of periodic axes count within their first period.
        """
        v, places = np.asarray(direction, dtype=np.float64), np.asarray(places, dtype=np.float64)
        total = np.zeros(len(places))
        if self.shared is not None:
            shared = self.shared
            line, density = self._recent.find(v, lambda: self._marginal_density(shared, v))
            running = integrate_to(line, density, places)
            if self.is_open:
                running += (self.shared_share * self._floor) * base_cdf(self.shared, v, places)
            else:
                running *= self.shared_mass / integrate_to(line, density, line[-1:])[0]
            total += running
        for part in self.narrow:
            total += part.cdf(v, places)
        return np.clip(total / math.exp(self.value - self.peak), 0.0, 1.0)

    def _marginal_density(self, base: Base, v: Array) -> tuple[Array, Array]:
        """Places along a direction, and the density of x . direction there, divided by e^peak: of
        (e^f - 1) base where the domain is open, else of e^f base."""

        def density(x: Array) -> Array:
            growth = np.exp(self.tilt.value(x, self.threads) - self.peak) - self._floor
            return np.asarray(self.shared_share * growth * np.exp(base.log_density_at(x)))

        axis = int(np.argmax(np.abs(v) * self.features.lengths))
        count = min(int(FINER_ALONG_LINE * self.counts[axis]), LINE_NODES)
        return self._rule(self._line_counts(axis)).project(density, v, count)

    def _line_counts(self, axis: int) -> list[int]:
        """Steps along the other axes: those of the last rule, or fewer, for the sake of time."""
        counts = [1 if k == axis else n for k, n in enumerate(self.counts)]
        excess = math.prod(counts) * LINE_NODES / LATTICE_NODES[self.d]
        if self.d > 1 and excess > 1.0:
            counts = [max(8, int(n * excess ** (-1.0 / (self.d - 1)))) for n in counts]
        return counts

    # -- draws -----------------------------------------------------------------------------------

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Array, float]:
        """n rows, and the effective number of independent rows.

        Three parts are drawn in proportion to their masses: in the box, from the cells of a grid;
        beyond the box, where the density is the base, from draws of the base; and narrow
        components, from their own draws. Rejection corrects the first and the last to the density.

        Parameters
        ----------
        n : int
        rng : numpy Generator

        Returns
        -------
        rows : (n, d) array
            In the model's coordinates; periodic columns in their first period.
        effective : float
            Below n where a draw had to be repeated.
        """
        in_box = self.mass_in_box
        masses = [in_box, self.shared_mass - in_box, *(part.mass for part in self.narrow)]
        shares = np.maximum(masses, 0.0)
        inside, beyond, *of_narrow = rng.multinomial(n, shares / shares.sum()).tolist()
        found = []
        if self.shared is not None and beyond:
            rows = draw_beyond_box(self.features, self.shared, beyond, rng)
            inside += beyond - len(rows)  # those that are too rare to be found
            if len(rows):
                found.append((rows, float(len(rows))))
        if self.shared is not None and inside:
            found.append(draw_by_rejection(self._cells(self.shared).propose, inside, rng))
        for part, count in zip(self.narrow, of_narrow, strict=True):
            if count:
                found.append(draw_by_rejection(part.propose, count, rng))
        return shuffle_parts(found, rng)

    def _cells(self, base: Base) -> GridCells:
        low = self.features.origin
        return make_box_cells(
            low, low + self.features.lengths, self.counts,
            lambda x: np.asarray(self.tilt.value(x, self.threads) + base.log_density_at(x)),
        )  # fmt: skip
