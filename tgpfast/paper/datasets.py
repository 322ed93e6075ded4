"""Toy data: two-dimensional shapes for trying out densities.

Every generator is ``name(n, *, seed=0, ...)``. It returns an (n, 2) float64 array with its rows in
random order. `GENERATORS` maps the name of every generator to its function. The same arguments give
the same rows, unless ``seed`` is None or a Generator.
A ValueError or TypeError names the argument that is wrong.

Examples
--------
>>> from tgpfast import datasets
>>> datasets.two_moons(1_000).shape
(1000, 2)
>>> sorted(datasets.GENERATORS)[:3]
['banana', 'checkerboard', 'eight_gaussians']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..validation import Array, Seed, as_floats, as_seed, whole

__all__ = [
    "GENERATORS",
    "banana",
    "checkerboard",
    "eight_gaussians",
    "heavy_tails",
    "pinwheel",
    "rings",
    "smile",
    "spirals",
    "two_moons",
    "xo",
]


def two_moons(n: int, *, seed: Seed = 0, noise: float = 0.08) -> Array:
    """Draw rows on two interleaved half circles.

    Both circles have radius 1. The upper half circle has its center at (0, 0), the lower one at
    (1, 0.5).

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int, None or numpy.random.Generator, default 0
        None draws new rows at every call.
    noise : float, default 0.08
        Standard deviation of Gaussian noise on both coordinates.

    Returns
    -------
    ndarray of shape (n, 2)

    Examples
    --------
    >>> x = two_moons(1000, noise=0.0)
    >>> x.min(axis=0).round(1).tolist(), x.max(axis=0).round(1).tolist()
    ([-1.0, -0.5], [2.0, 1.0])
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    t = rng.uniform(0.0, np.pi, n)
    lower = rng.integers(0, 2, n).astype(bool)
    x = np.where(lower, 1.0 - np.cos(t), np.cos(t))
    y = np.where(lower, 0.5 - np.sin(t), np.sin(t))
    return _add_noise(x, y, noise, rng)


def banana(n: int, *, seed: Seed = 0, curvature: float = 0.5, noise: float = 0.3) -> Array:
    """Draw rows of a bent Gaussian: x from N(0, 1), y = curvature (x^2 - 1) plus noise.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int, None or numpy.random.Generator, default 0
        None draws new rows at every call.
    curvature : float, default 0.5
        0 gives a straight Gaussian; a negative number bends it downwards.
    noise : float, default 0.3
        Standard deviation of y around the parabola.

    Returns
    -------
    ndarray of shape (n, 2)

    Examples
    --------
    >>> x = banana(1000, noise=0.0)
    >>> np.allclose(x[:, 1], 0.5 * (x[:, 0] ** 2 - 1.0))
    True
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    curvature = _number("curvature", curvature, "")
    x = rng.standard_normal(n)
    return np.column_stack([x, curvature * (x**2 - 1.0) + noise * rng.standard_normal(n)])


def rings(
    n: int,
    *,
    seed: Seed = 0,
    radii: Sequence[float] = (1.0, 2.0, 3.0),
    centres: Sequence[Sequence[float]] | None = None,
    noise: float = 0.08,
) -> Array:
    """Draw rows on rings. The probability of a ring is proportional to its radius.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int, None or numpy.random.Generator, default 0
        None draws new rows at every call.
    radii : sequence of float, default (1.0, 2.0, 3.0)
        One positive number per ring.
    centres : sequence of (x, y), default None
        One center per ring; by default every ring is centered at the origin.
    noise : float, default 0.08
        Standard deviation of Gaussian noise on both coordinates.

    Returns
    -------
    ndarray of shape (n, 2)

    Examples
    --------
    >>> x = rings(1000, radii=(1.0, 2.0), noise=0.0)
    >>> np.unique(np.hypot(*x.T).round(6)).tolist()
    [1.0, 2.0]
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    if isinstance(radii, str) or not isinstance(radii, (Sequence, np.ndarray)) or not len(radii):
        raise ValueError(f"radii={radii!r}: expected at least one positive number")
    r = np.array([_number(f"radii[{k}]", v, "above 0") for k, v in enumerate(radii)])
    centers = np.zeros((len(r), 2))
    if centres is not None:
        centers = as_floats(centres, "centres", (len(r), 2))
    ring = rng.choice(len(r), size=n, p=r / r.sum())
    t = rng.uniform(0.0, 2.0 * np.pi, n)
    x, y = centers[ring].T
    return _add_noise(x + r[ring] * np.cos(t), y + r[ring] * np.sin(t), noise, rng)


def heavy_tails(n: int, *, seed: Seed = 0, dimension: int = 2, degrees: float = 3.0) -> Array:
    """Draw rows of a spherical Student t distribution in any dimension.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int, None or numpy.random.Generator, default 0
        None draws new rows at every call.
    dimension : int, default 2
        Number of columns.
    degrees : float, default 3.0
        Degrees of freedom. Fewer give heavier tails: there is no variance at 2 or below, and no
        mean at 1 or below.

    Returns
    -------
    ndarray of shape (n, dimension)

    Examples
    --------
    >>> x = heavy_tails(1000, dimension=3, degrees=2.0)
    >>> x.shape, bool(np.abs(x).max() > 10.0)
    ((1000, 3), True)
    """
    n, rng, d = whole("n", n), _generator(seed), whole("dimension", dimension)
    degrees = _number("degrees", degrees, "above 0")
    normal = rng.standard_normal((n, d))
    # a chi-squared draw with few degrees of freedom may round to 0; rows must be finite
    spread = np.maximum(rng.chisquare(degrees, (n, 1)), np.finfo(float).tiny) / degrees
    return normal / np.sqrt(spread)


def xo(n: int, *, seed: Seed = 0, noise: float = 0.08) -> Array:
    """Draw rows on the letters X and O side by side, with equal probability.

    X consists of the diagonals of the square of side 2 with its center at (-1.5, 0). O is the
    circle of radius 1 with its center at (1.5, 0). It resembles the paper's set XO.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int, None or numpy.random.Generator, default 0
        None draws new rows at every call.
    noise : float, default 0.08
        Standard deviation of Gaussian noise on both coordinates.

    Returns
    -------
    ndarray of shape (n, 2)

    Examples
    --------
    >>> x = xo(1000, noise=0.0)
    >>> is_o = x[:, 0] > 0.0
    >>> np.allclose(np.hypot(x[is_o, 0] - 1.5, x[is_o, 1]), 1.0)
    True
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    is_o = rng.integers(0, 2, n).astype(bool)
    slope = np.where(rng.integers(0, 2, n), 1.0, -1.0)
    along = rng.uniform(-1.0, 1.0, n)
    x = np.where(is_o, 1.5 + np.cos(np.pi * along), along - 1.5)
    y = np.where(is_o, np.sin(np.pi * along), slope * along)
    return _add_noise(x, y, noise, rng)


def smile(n: int, *, seed: Seed = 0, noise: float = 0.08) -> Array:
    """Draw rows on a smiling face. It resembles the paper's set Smile.

    Half of the rows are on the outline of the face, a circle of radius 2 at the origin. One eighth
    is in each eye, a disc of radius 0.25 at (-0.7, 0.7) or (0.7, 0.7). One quarter is on the mouth,
    an arc of radius 1.1 around the origin from 210 to 330 degrees.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int, None or numpy.random.Generator, default 0
        None draws new rows at every call.
    noise : float, default 0.08
        Standard deviation of Gaussian noise on both coordinates.

    Returns
    -------
    ndarray of shape (n, 2)

    Examples
    --------
    >>> radius = np.hypot(*smile(1000, noise=0.0).T)
    >>> round(float((radius > 1.9).mean()), 1)  # half of the rows are on the outline
    0.5
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    part = rng.choice(4, size=n, p=[0.5, 0.125, 0.125, 0.25])  # face, left eye, right eye, mouth
    u = rng.uniform(0.0, 1.0, n)
    eye = (part == 1) | (part == 2)
    radius = np.select([part == 0, eye], [2.0, 0.25 * np.sqrt(rng.uniform(0.0, 1.0, n))], 1.1)
    angle = np.where(part == 3, np.pi * (7.0 + 4.0 * u) / 6.0, 2.0 * np.pi * u)
    x = radius * np.cos(angle) + np.select([part == 1, part == 2], [-0.7, 0.7], 0.0)
    y = radius * np.sin(angle) + np.where(eye, 0.7, 0.0)
    return _add_noise(x, y, noise, rng)


def pinwheel(
    n: int,
    *,
    seed: Seed = 0,
    arms: int = 5,
    radial: float = 0.3,
    tangential: float = 0.05,
    rate: float = 0.25,
) -> Array:
    """Draw rows of Gaussians that are placed on a circle and bent into arms.

    A point (a, b) is drawn around (1, 0), then rotated by the angle of its arm plus rate e^a.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int, None or numpy.random.Generator, default 0
        None draws new rows at every call.
    arms : int, default 5
        Number of arms, all equally likely.
    radial, tangential : float, default 0.3 and 0.05
        Standard deviations of a and b.
    rate : float, default 0.25
        How strongly the arms bend.

    Returns
    -------
    ndarray of shape (n, 2)

    Examples
    --------
    >>> x = pinwheel(1000, arms=3, radial=0.0, tangential=0.0)  # the centers of the arms
    >>> len(np.unique(x.round(6), axis=0))
    3
    """
    n, rng, arms = whole("n", n), _generator(seed), whole("arms", arms)
    radial, tangential = _number("radial", radial), _number("tangential", tangential)
    rate = _number("rate", rate, "")
    a, b = (rng.standard_normal((n, 2)) * [radial, tangential] + [1.0, 0.0]).T
    angle = 2.0 * np.pi / arms * rng.integers(0, arms, n) + rate * np.exp(a)
    c, s = np.cos(angle), np.sin(angle)
    return np.column_stack([c * a - s * b, s * a + c * b])


def checkerboard(n: int, *, seed: Seed = 0, squares: int = 4) -> Array:
    """Draw rows uniformly on the dark squares of a board of unit squares, centered at the origin.

    The square in the lower left corner is dark.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int, None or numpy.random.Generator, default 0
        None draws new rows at every call.
    squares : int, default 4
        Number of squares along a side.

    Returns
    -------
    ndarray of shape (n, 2)

    Examples
    --------
    >>> x = checkerboard(1000)
    >>> np.unique(np.floor(x).sum(axis=1) % 2.0).tolist()  # dark squares only
    [0.0]
    """
    n, rng, squares = whole("n", n), _generator(seed), whole("squares", squares)
    column, row = np.nonzero(np.add.outer(np.arange(squares), np.arange(squares)) % 2 == 0)
    cell = rng.integers(0, len(row), n)
    corner = np.column_stack([column[cell], row[cell]]) - 0.5 * squares
    return corner + rng.uniform(0.0, 1.0, (n, 2))


def spirals(
    n: int, *, seed: Seed = 0, arms: int = 2, turns: float = 1.5, noise: float = 0.08
) -> Array:
    """Draw rows on interleaved Archimedean spirals from the origin to radius 3.

    The radius is 3 sqrt(u) with u uniform, so that rows are spread about evenly along an arm.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int, None or numpy.random.Generator, default 0
        None draws new rows at every call.
    arms : int, default 2
        Number of arms, all equally likely.
    turns : float, default 1.5
        Number of turns of each arm, positive.
    noise : float, default 0.08
        Standard deviation of Gaussian noise on both coordinates.

    Returns
    -------
    ndarray of shape (n, 2)

    Examples
    --------
    >>> x = spirals(1000, noise=0.0)
    >>> bool(np.hypot(*x.T).max() <= 3.0)
    True
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    arms, turns = whole("arms", arms), _number("turns", turns, "above 0")
    share = np.sqrt(rng.uniform(0.0, 1.0, n))
    angle = 2.0 * np.pi * (turns * share + rng.integers(0, arms, n) / arms)
    return _add_noise(3.0 * share * np.cos(angle), 3.0 * share * np.sin(angle), noise, rng)


def eight_gaussians(n: int, *, seed: Seed = 0, radius: float = 2.0, noise: float = 0.2) -> Array:
    """Draw rows of eight equally likely spherical Gaussians, every 45 degrees on a circle.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int, None or numpy.random.Generator, default 0
        None draws new rows at every call.
    radius : float, default 2.0
        Radius of the circle, positive.
    noise : float, default 0.2
        Standard deviation of each Gaussian.

    Returns
    -------
    ndarray of shape (n, 2)

    Examples
    --------
    >>> x = eight_gaussians(1000, radius=2.0, noise=0.0)
    >>> np.allclose(np.hypot(*x.T), 2.0)
    True
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    radius = _number("radius", radius, "above 0")
    angle = 0.25 * np.pi * rng.integers(0, 8, n)
    return _add_noise(radius * np.cos(angle), radius * np.sin(angle), noise, rng)


GENERATORS: dict[str, Callable[..., Array]] = {
    f.__name__: f
    for f in (
        two_moons, banana, rings, heavy_tails, xo, smile, pinwheel, checkerboard, spirals,
        eight_gaussians,
    )
}  # fmt: skip


def _add_noise(x: Array, y: Array, noise: float, rng: np.random.Generator) -> Array:
    return np.column_stack([x, y]) + noise * rng.standard_normal((len(x), 2))


def _generator(seed: Seed) -> np.random.Generator:
    return np.random.default_rng(as_seed(seed))


def _number(name: str, value: Any, wanted: str = "of at least 0") -> float:
    """A finite number; ``wanted`` is "of at least 0", "above 0", or "" for any sign."""
    try:
        number = math.nan if isinstance(value, (str, bytes, bool)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    fits = {"of at least 0": number >= 0.0, "above 0": number > 0.0, "": True}[wanted]
    if not (fits and math.isfinite(number)):
        raise ValueError(f"{name}={value!r}: expected a finite number {wanted}".rstrip())
    return number
