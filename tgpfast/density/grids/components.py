"""The components of a base, each in coordinates that whiten it, for integrals on grids.

A mixture has one component for each of its Gaussians; every other base is one component.
"""

from __future__ import annotations

import math

import numpy as np

from ...bases.base import Base
from ...bases.gaussian import GaussianBase, whitening_gaussian
from ...bases.mixture import MixtureBase
from ...bases.quasirandom import sobol_uniforms, to_normals
from ...bases.student import StudentBase
from ...runtime.records import record
from ...validation import Array

FARTHEST_DRAW = 1e100  # whitened units: draws of heavy tails from farther out are moved there
LEAST_PROBABILITY = 1e-300  # stands for smaller ones where a logarithm is taken


@record
class Component:
    """One weighted term of a base.

    Parameters
    ----------
    log_weight : float
    gaussian : GaussianBase
        Its coordinates w = L^-1 (x - mean) whiten the term.
    base : Base, default None
        Density of the term; None where it is the Gaussian.
    """

    log_weight: float
    gaussian: GaussianBase
    base: Base | None = None

    @property
    def dimension(self) -> int:
        """Number of columns d."""
        return self.gaussian.dimension

    def log_density(self, w: Array) -> Array:
        """Log of weight times density, in whitened coordinates, at every row of w, (n,)."""
        if self.base is None:
            return self.log_gaussian(np.einsum("ij,ij->i", w, w))
        log_volume = float(np.log(np.diag(self.gaussian.cholesky)).sum())
        values = self.base.log_density_at(self.gaussian.unwhiten(w))
        return np.asarray(self.log_weight + log_volume + values)

    def log_gaussian(self, squares: Array) -> Array:
        """Log of weight times the standard Gaussian, from squared distances."""
        constant = self.log_weight - 0.5 * self.dimension * math.log(2.0 * math.pi)
        return constant - 0.5 * squares

    def draw_outside(self, radius: float, log2_n: int, seed: int) -> tuple[Array, float]:
        """Quasi-random draws from outside a ball of whitened coordinates.

        Returns
        -------
        w : array, (n, d)
            2^log2_n draws; of a base without a rule for its tails, those of 2^log2_n draws that
            lie outside.
        log_probability : float
            Log of the share of the term's mass that lies outside.
        """
        d = self.dimension
        if self.base is not None and not isinstance(self.base, StudentBase):
            w = self.gaussian.whiten(self.base.draw_sobol(log2_n, seed))
            outside = w[np.einsum("ij,ij->i", w, w) > radius**2]
            return outside, float(np.log(max(len(outside), LEAST_PROBABILITY) / len(w)))
        u = sobol_uniforms(d + 1, log2_n, seed)
        if self.base is None:
            probability, squares = _gaussian_radii(d, radius, u[:, 0])
        else:
            probability, squares = _student_radii(self.base, radius, u[:, 0])
        squares = np.minimum(squares, FARTHEST_DRAW**2)
        normals = to_normals(u[:, 1:])
        normals /= np.linalg.norm(normals, axis=1)[:, None]
        log_probability = float(np.log(max(probability, LEAST_PROBABILITY)))
        return normals * np.sqrt(squares)[:, None], log_probability

    def find_reach(self, log_excess: float) -> float:
        """Radius outside which the term's mass is below e^-log_excess.

        It is inf where the tails are not known.
        """
        from scipy.special import gammainccinv

        if self.base is not None and not isinstance(self.base, StudentBase):
            return math.inf
        target = log_excess + self.log_weight
        d = self.dimension
        if isinstance(self.base, StudentBase):
            # the tail is (nu / r^2)^(nu / 2), up to a factor near 1
            nu = self.base.degrees
            return math.sqrt(nu) * math.exp(min(max(target, 0.0) / nu, 300.0))
        if target > 600.0:  # out of the range of gammainccinv: r^2 / 2 is close to the target
            return math.sqrt(2.0 * target + 4.0 * d * math.log(target))
        return math.sqrt(2.0 * float(gammainccinv(0.5 * d, math.exp(-max(target, 0.1)))))


def split_base(base: Base) -> list[Component]:
    """The components of a base."""
    if isinstance(base, MixtureBase):
        return [
            Component(float(np.log(weight)), gaussian)
            for weight, gaussian in zip(base.weights, base.parts, strict=True)
        ]
    gaussian = whitening_gaussian(base)
    return [Component(0.0, gaussian, None if gaussian is base else base)]


def _gaussian_radii(d: int, radius: float, uniforms: Array) -> tuple[float, Array]:
    """P(|w| > radius) of a standard Gaussian, and squared radii drawn from there, (n,)."""
    from scipy.special import gammaincc, gammainccinv

    probability = float(gammaincc(0.5 * d, 0.5 * radius**2))
    return probability, 2.0 * gammainccinv(0.5 * d, uniforms * probability)


def _student_radii(base: StudentBase, radius: float, uniforms: Array) -> tuple[float, Array]:
    """P(|w| > radius) of a Student t, and squared radii drawn from there, (n,).

    nu / (nu + r^2) has a beta distribution, r in units of the scale matrix.
    """
    from scipy.special import betainc, betaincinv

    d, nu = base.dimension, base.degrees
    unit = base.scale_matrix[0, 0] / base.covariance[0, 0]
    probability = float(betainc(0.5 * nu, 0.5 * d, nu / (nu + radius**2 / unit)))
    ratio = betaincinv(0.5 * nu, 0.5 * d, uniforms * probability)
    return probability, unit * nu * (1.0 / np.maximum(ratio, LEAST_PROBABILITY) - 1.0)
