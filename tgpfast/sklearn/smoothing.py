"""Densities convolved with Gaussian noise, for outliers that lie in small clusters.

A mixture follows a cluster of a few outliers as closely as one of usual rows, and in many columns a
narrow component makes its rows likelier than most others. Noise bounds how much narrower than the
others a component can be, so that the number of its rows counts more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..bases.mixture import MixtureBase
from ..density.density import Density
from ..density.exponents.exponent import PointTilt
from ..selection.candidates import scott_bandwidth
from ..validation import Array


def scott_noise(X: Array) -> float:
    """Scott's bandwidth of the rows that differ, in standard deviations of the columns."""
    return scott_bandwidth(len(np.unique(X, axis=0)), X.shape[1], 1.0)


def smooth_density(model: Density, deviations: Array) -> Density:
    """The base of a model convolved with Gaussian noise, as a density of its own.

    Parameters
    ----------
    model : Density
        Its base is a Gaussian or a mixture.
    deviations : (d,) array
        Standard deviations of the noise, in the model's coordinates.

    Returns
    -------
    Density
        Without a tilt, and without statistics.
    """
    base = convolve(model.base, np.diag(np.square(deviations)))
    tilt = PointTilt(model.features, np.zeros(model.features.n_features), base.mean)  # type: ignore[arg-type]
    settings = model.settings | {"method": "base"}
    return replace(
        model, method="base", tilt=tilt, base=base, settings=settings, statistics=None
    )


def convolve(base: Base, covariance: Array) -> Base:
    """The distribution of a draw from a base plus Gaussian noise of this covariance.

    Parameters
    ----------
    base : GaussianBase or MixtureBase
    covariance : (d, d) array
    """
    if isinstance(base, MixtureBase):
        return MixtureBase(
            base.weights, base.means, base.covariances + covariance, has_guard=base.has_guard
        )
    return GaussianBase(base.mean, base.covariance + covariance)
