"""Bases that live between walls or on a period, for tests of lattices."""

import numpy as np

from tgpfast.bases.base import Base


class BoxBase(Base):
    """Along every axis: uniform, exponential from a wall on, or Gaussian."""

    kind = "box of a test"

    def __init__(self, *axes):
        """axes : ("uniform", low, high), ("exponential", low, high or inf, rate) or
        ("gaussian", mean, deviation)"""
        self.axes = axes
        self.mean = np.array([self._moments(a)[0] for a in axes])
        self.covariance = np.diag([self._moments(a)[1] for a in axes])

    @staticmethod
    def _moments(axis):
        if axis[0] == "gaussian":
            return axis[1], axis[2] ** 2
        if axis[0] == "uniform":
            return (axis[1] + axis[2]) / 2, (axis[2] - axis[1]) ** 2 / 12
        return axis[1] + 1 / axis[3], 1 / axis[3] ** 2

    def log_density_at(self, x):
        total = np.zeros(len(x))
        for column, axis in zip(x.T, self.axes, strict=True):
            if axis[0] == "gaussian":
                _, mean, deviation = axis
                total += -0.5 * ((column - mean) / deviation) ** 2
                total -= np.log(deviation) + 0.5 * np.log(2 * np.pi)
            elif axis[0] == "uniform":
                total -= np.log(axis[2] - axis[1])
            else:
                _, low, high, rate = axis
                total += np.log(rate) - rate * (column - low)
                total -= np.log(-np.expm1(-rate * (high - low)))
        return total

    def score_at(self, x):
        score = np.zeros_like(x)
        for k, axis in enumerate(self.axes):
            if axis[0] == "gaussian":
                score[:, k] = -(x[:, k] - axis[1]) / axis[2] ** 2
            elif axis[0] == "exponential":
                score[:, k] = -axis[3]
        return score

    def parameters(self):
        return {"mean": self.mean, "covariance": self.covariance}

    def draw(self, n, rng):
        raise NotImplementedError("the tests of solvers draw nothing")
