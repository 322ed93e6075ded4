"""Bases of lattice densities: which kinds are compared, and how each is made from the sample."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from ..bases.base import Base
from ..bases.bounded import BoundedMixtureBase, UniformBase, confine_base
from ..bases.confined_gaussian import confine_gaussian
from ..bases.expectation_maximization import measure_columns
from ..bases.gaussian import GaussianBase
from ..bases.mixture import MixtureBase, average_mixtures
from ..bases.mixture_growth import GrownMixture, grow_mixture
from ..bases.product import ProductBase
from ..bases.student import StudentBase
from ..bases.von_mises import VonMisesBase, confine_to_circles
from ..runtime.records import record
from ..selection.sample_split import narrow_guard
from ..validation import Array
from .axes import Axes
from .lattice_inputs import LatticeInputs

# Rows from which a mixture is tried; more than the most are not needed.
LEAST_MIXTURE_ROWS = {1: 500, 2: 50, 3: 50}
MOST_MIXTURE_ROWS = {1: 5_000, 2: 5_000, 3: 20_000}
# components of a base, by dimension: in one and two columns the tilt adds what is missing
MIXTURE_COMPONENTS = {1: 8, 2: 8, 3: 160}
MIXTURE_WORK = {1: 1e8, 2: 1e8, 3: 8e9}  # operations that growing one may take; 1e9 is 0.5 s
# Mixtures, each grown without another fold, whose average is the base. On 100 and 300 rows of six
# kinds in one to three columns it had 0.01 to 0.14 nats more on fresh rows than one of them; five
# had 0.02 more at most.
N_AVERAGED = 3
STUDENT_TOLERANCE = 1e-6  # nats a row: what is left the tilt adds
LATTICE_BASES = ("student", "empirical", "mixture")
CONFINED = (UniformBase, BoundedMixtureBase, VonMisesBase, ProductBase)  # bases on a domain


def check_base_fits(base: Any, axes: Axes) -> None:
    """ValueError for a base that cannot be confined to the domain."""
    known = (*CONFINED, GaussianBase, MixtureBase)
    if axes.is_open or isinstance(base, known) or (isinstance(base, str) and base != "student"):
        return
    name = base if isinstance(base, str) else type(base).__name__
    raise ValueError(
        f"base {name!r} cannot be cut off at walls or wrapped around a period; use "
        'base="empirical", base="mixture" or a GaussianBase'
    )


def list_base_kinds(inputs: LatticeInputs) -> list[str]:
    """Names of the bases that are compared; settings are searched with the first."""
    settings, rows, axes = inputs.settings, inputs.rows, inputs.axes
    if isinstance(settings.base, Base):
        return ["given"]
    if settings.base != "auto":
        return [settings.base]
    if axes.domain.periodic.any():
        return ["von_mises", "empirical"]
    if not axes.is_open:
        return ["empirical", "uniform"] if axes.domain.is_bounded else ["empirical"]
    left_out = set()
    if rows.n < LEAST_MIXTURE_ROWS[rows.dimension]:
        left_out.add("mixture")
    if rows.scaling.maps_walls:  # tails of a Student density would have no mean after the map
        left_out.add("student")
    return [kind for kind in LATTICE_BASES if kind not in left_out]


@record
class BaseLearner:
    """Learns bases from rows of the sample, on the domain of the fit; grows each mixture once.

    Attributes
    ----------
    inputs : LatticeInputs
    """

    inputs: LatticeInputs
    _known: dict[tuple[str, int], Base] = field(default_factory=dict)
    _grown: list[GrownMixture] = field(default_factory=list)

    def learn_without(self, kind: str, fold: int) -> Base:
        """A base learned without the rows of a fold."""
        if (kind, fold) not in self._known:
            try:
                base = self.learn(kind, *self.inputs.sample.without(fold))
            except ValueError:  # without the fold a column has one value
                base = self.learn_from_all(kind)
            self._known[kind, fold] = base
        return self._known[kind, fold]

    def learn_from_all(self, kind: str, *, averages: bool = True) -> Base:
        """A base learned from the whole sample, or of the moments where it has too few values.

        averages : whether a mixture is the average of those grown without some fold, if several are
        """
        rows, sample = self.inputs.rows, self.inputs.sample
        x, weights = sample.x, sample.weights
        if kind == "mixture" and averages and len(self._grown) >= N_AVERAGED:
            standards, grown = measure_columns(x, weights), self._grown[:N_AVERAGED]
            members = [mixture.refit(x, weights, standards) for mixture in grown]
            return self._confine(average_mixtures(members))
        try:
            return self.learn(kind, x, weights)
        except ValueError:
            return confine_base(GaussianBase(rows.mean, rows.covariance), self.inputs.axes.domain)

    def learn(self, kind: str, x: Array, weights: Array) -> Base:
        """A base of this kind for some rows."""
        given, domain = self.inputs.settings.base, self.inputs.axes.domain
        if isinstance(given, Base):
            return self._confine(given.rescaled(self.inputs.rows.scaling))
        if kind == "uniform":
            return UniformBase(**domain.parameters())
        if kind == "von_mises":
            return confine_to_circles(x, weights, domain)
        if kind == "student":
            # a base of most of the same rows, if there is one: where EM begins does not change
            # where it ends
            students = (base for base in self._known.values() if isinstance(base, StudentBase))
            start = next(students, None)
            return self._confine(
                StudentBase.by_em(x, weights, start=start, tolerance=STUDENT_TOLERANCE)
            )
        if kind == "mixture":
            self._grown.append(_grow_small_mixture(x, weights, self.inputs.settings.seed))
            return self._confine(self._grown[-1].refit(x, weights))
        return confine_gaussian(x, weights, domain)

    def _confine(self, base: Base) -> Base:
        """The base on the domain of the fit."""
        scaling = self.inputs.rows.scaling
        if scaling.maps_walls:
            base = narrow_guard(base, scaling.mapped_walls)
        return base if isinstance(base, CONFINED) else confine_base(base, self.inputs.axes.domain)


def _grow_small_mixture(x: Array, weights: Array, seed: int) -> GrownMixture:
    """A mixture grown on some of the rows, one in five of them held out."""
    some = np.random.default_rng(0).permutation(len(x))[: MOST_MIXTURE_ROWS[x.shape[1]]]
    kept, held, d = some[len(some) // 5 :], some[: len(some) // 5], x.shape[1]
    return grow_mixture(
        x[kept], weights[kept], x[held], weights[held], seed=seed,
        max_components=MIXTURE_COMPONENTS[d], max_work=MIXTURE_WORK[d], covariances=("full",),
    )  # fmt: skip
