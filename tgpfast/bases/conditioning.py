"""Bases of some columns: marginals, and conditionals given values of the other columns.

Both are closed forms where there is one. Register a function for a class of your own:
``marginal_base.register`` and ``condition_base.register``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..validation import Array
from .base import Base, RescaledBase
from .bounded import BoundedMixtureBase, UniformBase, confine_base
from .gaussian import GaussianBase
from .mixture import MixtureBase, as_mixture
from .product import ProductBase
from .quasirandom import logsumexp
from .student import StudentBase
from .von_mises import VonMisesBase

LEAST_LOG_SHARE = -60.0  # log of the share of a component below which a conditional leaves it out


class MixtureParts(NamedTuple):
    """Columns B of a Gaussian mixture given values of columns A, for n rows of values.

    Attributes
    ----------
    log_density : (n,) array
        Log density of the values.
    log_shares : (n, K) array
        Logs of the weights of the components given the values.
    means : (n, K, b) array
        Of the components given the values.
    cholesky : (K, b, b) array
        Roots of the covariances given the values, which are the same for all values.
    """

    log_density: Array
    log_shares: Array
    means: Array
    cholesky: Array


def split_columns(d: int, fixed: Sequence[int]) -> tuple[list[int], list[int]]:
    """Columns that are given, in order, and the others.

    Examples
    --------
    >>> split_columns(4, [2, 0])
    ([0, 2], [1, 3])
    """
    given = sorted(fixed)
    return given, [k for k in range(d) if k not in given]


class SplitMixture:
    """A Gaussian mixture as a density of some columns, A, and of the others, B, given them.

    Parameters
    ----------
    mixture : MixtureBase
    fixed : sequence of int
        Columns A.

    Attributes
    ----------
    means : (K, b) array
        Of columns B of the components.
    slopes : (K, a, b) array
        By which these means rise with columns A.
    cholesky : (K, b, b) array
        Roots of the covariances of columns B given A.
    """

    def __init__(self, mixture: MixtureBase, fixed: Sequence[int]) -> None:
        given, free = split_columns(mixture.dimension, fixed)
        of_given = mixture.covariances[:, given][:, :, given]
        cross = mixture.covariances[:, given][:, :, free]
        roots = np.linalg.cholesky(of_given)
        self._centers = mixture.means[:, given]
        self._inverse_roots = np.linalg.inv(roots)  # (K, a, a)
        self._constants = (
            np.log(mixture.weights) - np.log(np.einsum("kii->ki", roots)).sum(axis=1)
            - 0.5 * len(given) * np.log(2.0 * np.pi)
        )  # fmt: skip
        self.means = mixture.means[:, free]
        self.slopes = np.linalg.solve(of_given, cross)
        rest = mixture.covariances[:, free][:, :, free] - cross.transpose(0, 2, 1) @ self.slopes
        rest = 0.5 * (rest + rest.transpose(0, 2, 1))
        self.cholesky = np.asarray(np.linalg.cholesky(rest), float)

    def log_joint(self, values: Array) -> Array:
        """Logs of weights times densities of rows (n, a) of columns A, by component, (n, K)."""
        total = np.zeros((len(values), len(self._constants)))
        for j in range(values.shape[1]):
            root = self._inverse_roots[:, j, : j + 1]
            whitened = values[:, : j + 1] @ root.T
            whitened -= np.einsum("ki,ki->k", self._centers[:, : j + 1], root)
            total += np.square(whitened, out=whitened)
        total *= -0.5
        total += self._constants
        return total

    def means_given(self, values: Array) -> Array:
        """Means of columns B of the components given rows (n, a), (n, K, b)."""
        gaps = values[:, None, :] - self._centers
        return np.asarray(self.means + np.matmul(gaps[:, :, None, :], self.slopes)[:, :, 0])

    def means_of(self, values: Array, index: Any) -> Array:
        """The same of one component for each row, (n, b)."""
        gaps = values - self._centers[index]
        return np.asarray(self.means[index] + np.einsum("na,nab->nb", gaps, self.slopes[index]))


def condition_mixture(mixture: MixtureBase, fixed: Sequence[int], values: Array) -> MixtureParts:
    """A mixture given n rows of values of some columns.

    Parameters
    ----------
    mixture : MixtureBase
    fixed : sequence of int
        Columns that are given, increasing.
    values : (n, a) array
        Their values.
    """
    split = SplitMixture(mixture, fixed)
    log_joint = split.log_joint(values)
    log_density = logsumexp(log_joint, axis=1)
    with np.errstate(invalid="ignore"):
        log_shares = log_joint - log_density[:, None]
    return MixtureParts(log_density, log_shares, split.means_given(values), split.cholesky)


# -- marginals -------------------------------------------------------------------------------------


@functools.singledispatch
def marginal_base(base: Base, columns: Sequence[int]) -> Base | None:
    """The base of some columns, where it has a closed form.

    Parameters
    ----------
    base : Base
    columns : sequence of int
        In the order wanted.

    Returns
    -------
    Base or None
        None where there is no closed form.

    Examples
    --------
    >>> base = GaussianBase([0.0, 1.0], [[2.0, 0.5], [0.5, 1.0]])
    >>> marginal_base(base, [1])
    GaussianBase(mean=[1.0], covariance=[[1.0]])
    """
    return None


@marginal_base.register
def _(base: GaussianBase, columns: Sequence[int]) -> Base | None:
    return GaussianBase(base.mean[columns], base.covariance[np.ix_(columns, columns)])


@marginal_base.register
def _(base: MixtureBase, columns: Sequence[int]) -> Base | None:
    covariances = base.covariances[:, columns][:, :, columns]
    return MixtureBase(base.weights, base.means[:, columns], covariances)


@marginal_base.register
def _(base: StudentBase, columns: Sequence[int]) -> Base | None:
    matrix = base.scale_matrix[np.ix_(columns, columns)]
    return StudentBase(base.centre[columns], matrix, base.degrees)


@marginal_base.register
def _(base: UniformBase, columns: Sequence[int]) -> Base | None:
    return UniformBase(**base.domain.choose(columns).parameters())


@marginal_base.register
def _(base: BoundedMixtureBase, columns: Sequence[int]) -> Base | None:
    """Known where the columns that are left out have no walls: only walls cut mass off."""
    left_out = split_columns(base.dimension, columns)[1]
    if base.domain.is_walled[left_out].any():
        return None
    known = marginal_base(base.mixture, columns)
    assert isinstance(known, MixtureBase)
    return confine_base(known, base.domain.choose(columns))


@marginal_base.register
def _(base: VonMisesBase, columns: Sequence[int]) -> Base | None:
    return base


@marginal_base.register
def _(base: ProductBase, columns: Sequence[int]) -> Base | None:
    place, parts, places = {k: j for j, k in enumerate(columns)}, [], []
    for factor, mine in base.each:
        kept = [k for k in mine if k in place]
        known: Base | None = factor
        if 0 < len(kept) < len(mine):
            known = marginal_base(factor, [mine.index(k) for k in kept])
        if known is None:
            return None
        if kept:
            parts.append(known)
            places.append([place[k] for k in kept])
    return _multiply(parts, places)


@marginal_base.register
def _(base: RescaledBase, columns: Sequence[int]) -> Base | None:
    known = marginal_base(base.original, columns)
    return None if known is None else known.rescaled(base.scaling.choose(columns))


# -- conditionals ----------------------------------------------------------------------------------


@functools.singledispatch
def condition_base(base: Base, fixed: Sequence[int], values: Array) -> Base:
    """The base of the other columns, given values of some columns.

    Parameters
    ----------
    base : Base
    fixed : sequence of int
        Columns that are given, increasing.
    values : (a,) array
        Their values, where the base has a density.

    Raises
    ------
    TypeError
        The conditionals of a base of this class are not known.

    Examples
    --------
    >>> base = GaussianBase([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]])
    >>> condition_base(base, [0], np.array([2.0])).covariance.round(6).tolist()
    [[0.75]]
    """
    raise TypeError(
        f"conditionals of a {type(base).__name__} are not known: register a function with "
        "tgpfast.bases.conditioning.condition_base.register, or fit with a Gaussian, mixture or "
        "Student base"
    )


@condition_base.register
def _(base: GaussianBase, fixed: Sequence[int], values: Array) -> Base:
    parts = condition_mixture(as_mixture(base), fixed, values[None])
    return GaussianBase(parts.means[0, 0], parts.cholesky[0] @ parts.cholesky[0].T)


@condition_base.register
def _(base: MixtureBase, fixed: Sequence[int], values: Array) -> MixtureBase:
    parts = condition_mixture(base, fixed, values[None])
    kept = parts.log_shares[0] > LEAST_LOG_SHARE
    covariances = parts.cholesky @ parts.cholesky.transpose(0, 2, 1)
    return MixtureBase(
        np.exp(parts.log_shares[0, kept]), parts.means[0, kept], covariances[kept]
    )


@condition_base.register
def _(base: StudentBase, fixed: Sequence[int], values: Array) -> Base:
    given, _ = split_columns(base.dimension, fixed)
    gaussian = condition_base(GaussianBase(base.centre, base.scale_matrix), given, values)
    gap = values - base.centre[given]
    distance = float(gap @ np.linalg.solve(base.scale_matrix[np.ix_(given, given)], gap))
    degrees = base.degrees + len(given)
    factor = (base.degrees + distance) / degrees
    return StudentBase(gaussian.mean, factor * gaussian.covariance, degrees)


@condition_base.register
def _(base: UniformBase, fixed: Sequence[int], values: Array) -> Base:
    return UniformBase(**base.domain.choose(split_columns(base.dimension, fixed)[1]).parameters())


@condition_base.register
def _(base: BoundedMixtureBase, fixed: Sequence[int], values: Array) -> Base:
    """The images along periodic axes that are given are components of their own."""
    given, free = split_columns(base.dimension, fixed)
    domain = base.domain
    inside = domain.choose(given).wrap(values[None])[0]
    images, _ = base.with_images(domain.periodic & np.isin(np.arange(base.dimension), given))
    conditioned = condition_base(images, given, inside)
    assert isinstance(conditioned, MixtureBase)
    return confine_base(conditioned, domain.choose(free))


@condition_base.register
def _(base: ProductBase, fixed: Sequence[int], values: Array) -> Base:
    value, parts, places = dict(zip(fixed, values, strict=True)), [], []
    free = split_columns(base.dimension, fixed)[1]
    for factor, mine in base.each:
        given = [k for k in mine if k in value]
        if len(given) == len(mine):
            continue
        if given:
            chosen = np.array([value[k] for k in given])
            factor = condition_base(factor, [mine.index(k) for k in given], chosen)
        parts.append(factor)
        places.append([free.index(k) for k in mine if k not in value])
    return _multiply(parts, places)


@condition_base.register
def _(base: RescaledBase, fixed: Sequence[int], values: Array) -> Base:
    given, free = split_columns(base.dimension, fixed)
    there = base.scaling.choose(given).invert(values[None])[0]
    return condition_base(base.original, given, there).rescaled(base.scaling.choose(free))


def _multiply(factors: Sequence[Base], columns: Sequence[Sequence[int]]) -> Base:
    """The product of bases of these columns; a base alone where it has them in order."""
    if len(factors) == 1 and list(columns[0]) == sorted(columns[0]):
        return factors[0]
    return ProductBase(factors, columns)
