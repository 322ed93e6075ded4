"""Credible bands of a density learned by FVPD, from its posterior of theta."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...bases.quasirandom import logsumexp
from ...features.evaluation import feature_blocks
from ...validation import Array
from ..exponents.exponent import PredictiveTilt
from .expectations import log_density_at
from .tilted_density import TiltedDensity

BAND_DRAWS = 400  # of theta; ends of a band of 0.9 err by about a tenth of its half width
NORMALIZER_ROWS = 8_192  # of the base, and as many of the density, behind the mass of each draw
LEAST_EIGENVALUE = 1e-12  # share of the largest below which the posterior's precision is rounding


@dataclass(frozen=True, eq=False)
class CredibleBand:
    """Pointwise band of a log density.

    Attributes
    ----------
    level : float
        Posterior probability between the ends, at each row by itself.
    lower, median, upper : (n,) arrays
        Of the log density, in the units of the data.
    """

    level: float
    lower: Array
    median: Array
    upper: Array


def find_band(model: TiltedDensity, u: Array, level: float, seed: int) -> CredibleBand:
    """The band at rows u (n, d) of the model's coordinates.

    Every draw of theta from q(theta) (Eq. posterior of the paper) gives a density, normalized by
    itself; the band has the quantiles of their logs.
    """
    tilt = model.tilt
    assert isinstance(tilt, PredictiveTilt)
    thetas = _draw_thetas(model, tilt, np.random.default_rng(seed))
    rows, log_weights = _normalizer_rows(model, seed)
    log_z = logsumexp(_exponents(model, tilt, rows, thetas) + log_weights[:, None], axis=0)
    log_z -= math.log(len(rows))
    values = _exponents(model, tilt, u, thetas) - log_z
    ends = np.quantile(values, [0.5 - 0.5 * level, 0.5, 0.5 + 0.5 * level], axis=1)
    constant = model.base.log_density_at(u) + model.scaling.log_slope_at(u)
    return CredibleBand(level, *(ends + constant))


def _draw_thetas(
    model: TiltedDensity, tilt: PredictiveTilt, rng: np.random.Generator
) -> Array:
    """Draws of theta, (S, T): precision M - Sigma_phi, mean (M - Sigma_phi)^-1 (mu_phi - m)."""
    mu_phi, sigma_phi = model.base.feature_moments(tilt.features)
    precision = tilt.M - sigma_phi
    values, vectors = np.linalg.eigh(0.5 * (precision + precision.T))
    values = np.maximum(values, LEAST_EIGENVALUE * values[-1])
    mean = vectors @ ((vectors.T @ (mu_phi - tilt.m)) / values)
    normals = rng.standard_normal((len(values), BAND_DRAWS))
    return np.asarray(mean[:, None] + vectors @ (normals / np.sqrt(values)[:, None]))


def _normalizer_rows(model: TiltedDensity, seed: int) -> tuple[Array, Array]:
    """Rows of the base and of the density, and logs of base over the mixture of both."""
    rng = np.random.default_rng([seed, 1])
    drawn, weights = model.integrator.weighted_draws(NORMALIZER_ROWS, seed)
    chosen = rng.choice(NORMALIZER_ROWS, NORMALIZER_ROWS, p=weights / weights.sum())
    rows = np.concatenate([model.base.draw(NORMALIZER_ROWS, rng), drawn[chosen]])
    log_base = model.base.log_density_at(rows)
    both = np.logaddexp(log_base, log_density_at(model, rows)) - math.log(2.0)
    return rows, log_base - both


def _exponents(model: TiltedDensity, tilt: PredictiveTilt, u: Array, thetas: Array) -> Array:
    """theta^T phi at every row for every draw, (n, T)."""
    values = np.empty((len(u), thetas.shape[1]))
    for rows, phi, _ in feature_blocks(tilt.features, u, origin=tilt.origin, threads=model.threads):
        values[rows] = phi.T @ thetas
    return values


def check_band(model: Any) -> None:
    """ValueError unless a density has a posterior of theta."""
    if not isinstance(model.tilt, PredictiveTilt):
        found, remedy = f'this one is "{model.method}"', 'fit again with method="fvpd"'
        if model.method == "base":
            found, remedy = "this one is its base alone", f"{remedy} and a value of lam, such as 10"
        raise ValueError(
            'credible_band needs a model learned with method="fvpd", which has a posterior of '
            f"theta; {found}: {remedy}"
        )
    if "given" in model.settings:
        raise ValueError(
            "credible_band is not known for a conditional: its base differs from the one that "
            "theta was learned with; ask the joint model"
        )
