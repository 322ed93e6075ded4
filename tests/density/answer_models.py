"""Densities whose probabilities are known: bases alone, and tilts of one column, with their oracle.

The oracle uses NumPy alone: sums of cosines on a fine grid of one column.
"""

import math

import numpy as np

import tgpfast as tgp
from tgpfast.data.scaling import Scaling
from tgpfast.data.table import Table
from tgpfast.density.density import Density
from tgpfast.density.exponents.exponent import PointTilt

SHIFT, SCALE = 5.0, 2.0  # between the units of the data and the model's coordinates


def covariance(d, seed=0):
    """A covariance with correlations."""
    root = np.random.default_rng(seed).normal(size=(d, d))
    return root @ root.T / d + np.eye(d)


def of_base(base, names=None):
    """A density that is its base alone."""
    d = base.dimension
    features = tgp.Features(np.zeros((1, d)), np.zeros(1), 1.0)
    tilt = PointTilt(features, np.zeros(1), np.zeros(d))
    return Density("base", tilt, base, table=Table(names))


def mixture(d, seed=3):
    """Two correlated components."""
    means = np.array([np.full(d, -1.0), np.linspace(0.5, 1.5, d)])
    return tgp.MixtureBase([0.3, 0.7], means, [covariance(d, seed), 0.5 * covariance(d, seed + 1)])


def tilted(d, base=None, size=0.9, S=10, seed=0):
    """A density with all columns in every feature, and scaled columns."""
    rng = np.random.default_rng(seed)
    features = tgp.Features(rng.normal(size=(S, d)), rng.uniform(0, 6, S), 0.8)
    base = base or tgp.GaussianBase(np.zeros(d), covariance(d))
    tilt = PointTilt(features, size * rng.normal(size=S) * math.sqrt(S / 2.0) / 2.0, np.zeros(d))
    return Density("fd", tilt, base, scaling=Scaling(np.full(d, SHIFT), np.full(d, SCALE)))


class Product:
    """d independent columns, of which the first is tilted: f(u) = sum a_s cos(z_s u_0 + c_s)."""

    def __init__(self, d, names=None, S=6, seed=1):
        rng = np.random.default_rng(seed)
        z = np.zeros((S, d))
        z[:, 0] = 1.5 * rng.normal(size=S)
        phases, self.d = rng.uniform(0, 6, S), d
        features = tgp.Features(z, phases, 1.0)
        theta = 0.6 * rng.normal(size=S) * math.sqrt(S / 2.0)
        base = tgp.GaussianBase(np.zeros(d), np.eye(d))
        self.model = Density(
            "fd", PointTilt(features, theta, np.zeros(d)), base, table=Table(names),
            scaling=Scaling(np.full(d, SHIFT), np.full(d, SCALE)),
        )  # fmt: skip
        self.line = np.linspace(-10.0, 10.0, 40_001)
        f = math.sqrt(2.0 / S) * np.cos(np.outer(self.line, z[:, 0]) + phases) @ theta
        p = np.exp(f - 0.5 * self.line**2)
        self.p = p / (p.sum() * (self.line[1] - self.line[0]))

    def integral(self, values):
        """Of values on the line times the density of the first column, by the trapezoidal rule."""
        terms = values * self.p
        return float((terms[1:] + terms[:-1]).sum() * 0.5 * (self.line[1] - self.line[0]))

    def cdf(self, x):
        """Of the first column, in the units of the data; the trapezoidal rule up to x."""
        u = (x - SHIFT) / SCALE
        line = np.append(self.line[self.line < u], u)
        p = np.append(self.p[self.line < u], np.interp(u, self.line, self.p))
        return float(((p[1:] + p[:-1]) * 0.5 * np.diff(line)).sum())


def normal_cdf(z):
    """Of the standard normal."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))
