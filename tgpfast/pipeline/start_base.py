"""The base that a fit starts from, in the model's coordinates."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..data.row_sample import SAMPLE_ROWS
from ..density.density import Density
from ..runtime.warnings import PoorFitWarning, warn
from ..selection.candidates import BASE_ALONE
from ..selection.folds import Split, assign_folds, distinct_rows
from .rows import Rows
from .settings import EM_BASES, Settings

BASE_SCALES = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)  # of the covariance, tried by base="scaled"
SCALED_FOLDS = 5  # base="scaled" holds out 1/5 of the rows
SPREAD_DRAWS = 2**14  # of a density with base="learned", to measure how wide it is
MOST_SPREAD = 4.0  # mean squares over the variances of the rows, above which the user is warned


def make_start_base(settings: Settings, rows: Rows) -> Base:
    """The base as given, fitted to the sample, or of the moments."""
    kind = settings.base
    if isinstance(kind, Base):
        return kind.rescaled(rows.scaling)
    of_sample = rows.split is not None and (
        rows.split.domain is not None or (kind == "empirical" and rows.split.guards_gaussian)
    )
    if kind not in EM_BASES and not of_sample:
        return GaussianBase(rows.mean, rows.covariance)
    if rows.split is None:
        raise ValueError(
            f'X can be read only once, but base="{kind}" must be fitted before the statistics are '
            "summed; pass a list of blocks, a callable that returns a fresh iterator, or a base "
            "object"
        )
    # a base of moments fits no row too closely, and a base alone has no tilt: in both cases no row
    # needs to be held out of it
    return rows.split.fit_base(kind, use_all=kind not in EM_BASES or settings.lam == BASE_ALONE)


def check_base_serves(base: Base, method: str, *, from_spectrum: bool) -> None:
    """ValueError where a base that is not Gaussian does not go with the method or the source.

    from_spectrum : whether the rows can be read only once
    """
    if isinstance(base, GaussianBase):
        return
    name = type(base).__name__
    if method == "ncfd" or (method == "fvpd" and not base.has_feature_moments):
        raise ValueError(f'method="{method}" cannot tilt a {name}; use "fd" or "map"')
    if from_spectrum and method != "map":
        raise ValueError(
            f"X can be read only once, but a {name} needs a second pass; pass a list of blocks or "
            "a callable that returns a fresh iterator"
        )


class ScaledBase(NamedTuple):
    """The base that base="scaled" takes, its factor of the covariance, and the scores of all.

    scores : factor as text -> mean held-out log density; factors whose normalizer is poor are not
        in it
    """

    base: GaussianBase
    factor: float
    scores: dict[str, float]


def split_for_scales(rows: Rows) -> Split:
    """Rows of the sample, one in SCALED_FOLDS of them held out, that base="scaled" compares."""
    pilot = rows.blocks.pilot(SAMPLE_ROWS)
    if pilot is None:
        raise ValueError(
            'X can be read only once, but base="scaled" needs a second pass for held-out rows; '
            "pass a list of blocks, a callable that returns a fresh iterator, or "
            'base="empirical"'
        )
    x, weights = distinct_rows(pilot)
    held = assign_folds(len(x), SCALED_FOLDS) == 0
    if held.sum() < 2:
        raise ValueError(
            f'base="scaled" needs at least {2 * SCALED_FOLDS} different rows, got {len(x)}'
        )
    return Split.at(x, weights, held)


def scale_base(
    base: GaussianBase, split: Split, solve: Callable[[GaussianBase], Density]
) -> ScaledBase:
    """The base whose covariance, times one of BASE_SCALES, gives rows held out the highest log
    density.

    Parameters
    ----------
    base : GaussianBase
        Of the moments.
    split : Split
    solve : callable
        Base -> the density learned from the rows that are kept.
    """
    scores: dict[float, float] = {}
    bases = {factor: GaussianBase(base.mean, factor * base.covariance) for factor in BASE_SCALES}
    for factor, candidate in bases.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of candidates that will lose
            model = solve(candidate)
            score = float(split.held_weights @ model.log_density(split.held))
            if np.isfinite(score) and not model.log_normalizer.is_poor:
                scores[factor] = score
    best = max(scores, key=lambda factor: scores[factor], default=1.0)
    return ScaledBase(bases[best], best, {str(factor): s for factor, s in scores.items()})


def measure_spread(model: Density, rows: Rows) -> float:
    """Mean square of a density about the mean of the rows over their variance, the largest of the
    columns; warns where it is large.

    A base learned by scores may be so wide that most of the mass is far from all rows, in ripples
    of the tilt that no score sees, with effective draws enough to look sound.
    """
    points, weights = model.integrator.weighted_draws(SPREAD_DRAWS, 0)
    squares = np.square(points - rows.mean) / np.diag(rows.covariance)
    spread = float((weights @ squares / weights.sum()).max())
    if not spread <= MOST_SPREAD:
        warn(
            f'the density with base="learned" spreads {spread:.3g} times as far as the rows in '
            "some column (mean squares about the mean): much of its mass lies far from the rows. "
            'Raise lam or gamma, or use base="empirical"',
            PoorFitWarning,
        )
    return spread
