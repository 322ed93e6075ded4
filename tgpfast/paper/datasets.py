"""Toy data: two-dimensional shapes that a density should be able to learn.

Every generator is ``name(n, *, seed=0, ...)`` and returns (n, 2) rows, float64, in random order;
`GENERATORS` holds them all by name. The same arguments give the same rows.

    import tgpfast as tgp
    from tgpfast import datasets

    model = tgp.fit(datasets.two_moons(10_000))

``noise`` is the standard deviation of independent Gaussian noise on both coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..validation import Array, whole


def two_moons(n: int, *, seed: int = 0, noise: float = 0.08) -> Array:
    """Two interleaved half circles of radius 1: the upper about (0, 0), the lower about (1, 0.5).

    Parameters
    ----------
    noise : standard deviation around the arcs
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    t = rng.uniform(0.0, np.pi, n)
    lower = rng.integers(0, 2, n).astype(bool)
    x = np.where(lower, 1.0 - np.cos(t), np.cos(t))
    y = np.where(lower, 0.5 - np.sin(t), np.sin(t))
    return _noisy(x, y, noise, rng)


def banana(n: int, *, seed: int = 0, curvature: float = 0.5, noise: float = 0.3) -> Array:
    """x from N(0, 1), and y = curvature (x^2 - 1) with noise: a bent Gaussian of mean 0.

    Parameters
    ----------
    curvature : 0 for a straight one, negative for one that hangs down
    noise : standard deviation of y around the parabola
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    curvature = _number("curvature", curvature, "")
    x = rng.standard_normal(n)
    return np.column_stack([x, curvature * (x**2 - 1.0) + noise * rng.standard_normal(n)])


def rings(
    n: int,
    *,
    seed: int = 0,
    radii: Sequence[float] = (1.0, 2.0, 3.0),
    centres: Sequence[Sequence[float]] | None = None,
    noise: float = 0.08,
) -> Array:
    """A mixture of rings, each with a share of the rows in proportion to its radius.

    Parameters
    ----------
    radii : one a ring, positive
    centres : (x, y), one a ring; all at the origin unless given
    noise : standard deviation around the circles
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    if isinstance(radii, str) or not isinstance(radii, (Sequence, np.ndarray)) or not len(radii):
        raise ValueError(f"radii={radii!r}: expected at least one positive number")
    r = np.array([_number(f"radii[{k}]", v, "above 0") for k, v in enumerate(radii)])
    middle: Array = np.zeros((len(r), 2))
    if centres is not None:
        try:
            middle = np.array(centres, dtype=float)
        except (TypeError, ValueError):
            middle = np.zeros(0)
        if middle.shape != (len(r), 2) or not np.isfinite(middle).all():
            raise ValueError(f"centres={centres!r}: expected {len(r)} pairs (x, y), one a ring")
    ring = rng.choice(len(r), size=n, p=r / r.sum())
    t = rng.uniform(0.0, 2.0 * np.pi, n)
    x, y = middle[ring].T
    return _noisy(x + r[ring] * np.cos(t), y + r[ring] * np.sin(t), noise, rng)


def heavy_tails(n: int, *, seed: int = 0, dimension: int = 2, degrees: float = 3.0) -> Array:
    """Student's t in any dimension, (n, dimension): round, and every column is a t by itself.

    Parameters
    ----------
    dimension : columns
    degrees : of freedom, positive: fewer are heavier; no variance at 2 or below, no mean at 1
    """
    n, rng, d = whole("n", n), _generator(seed), whole("dimension", dimension)
    degrees = _number("degrees", degrees, "above 0")
    normal = rng.standard_normal((n, d))
    # a chi-squared of few degrees may round to 0, and a row must be finite
    spread = np.maximum(rng.chisquare(degrees, (n, 1)), np.finfo(float).tiny) / degrees
    return normal / np.sqrt(spread)


def xo(n: int, *, seed: int = 0, noise: float = 0.08) -> Array:
    """The letters X and O side by side, half of the rows each, after the paper's XO.

    The strokes of X run from corner to corner of the square of side 2 about (-1.5, 0); O is the
    circle of radius 1 about (1.5, 0).

    Parameters
    ----------
    noise : standard deviation around the strokes
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    letter = rng.integers(0, 2, n).astype(bool)  # O where true
    rising = np.where(rng.integers(0, 2, n), 1.0, -1.0)
    along = rng.uniform(-1.0, 1.0, n)
    x = np.where(letter, 1.5 + np.cos(np.pi * along), along - 1.5)
    y = np.where(letter, np.sin(np.pi * along), rising * along)
    return _noisy(x, y, noise, rng)


def smile(n: int, *, seed: int = 0, noise: float = 0.08) -> Array:
    """A smiling face, after the paper's Smile.

    Half of the rows are the face, a circle of radius 2 about the origin; an eighth each of the two
    eyes, discs of radius 0.25 about (-0.7, 0.7) and (0.7, 0.7); a quarter the mouth, an arc of
    radius 1.1 about (0, 0) from 210 to 330 degrees.

    Parameters
    ----------
    noise : standard deviation around all of these
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    part = rng.choice(4, size=n, p=[0.5, 0.125, 0.125, 0.25])  # face, left eye, right eye, mouth
    u = rng.uniform(0.0, 1.0, n)
    eye = (part == 1) | (part == 2)
    radius = np.select([part == 0, eye], [2.0, 0.25 * np.sqrt(rng.uniform(0.0, 1.0, n))], 1.1)
    angle = np.where(part == 3, np.pi * (7.0 + 4.0 * u) / 6.0, 2.0 * np.pi * u)
    x = radius * np.cos(angle) + np.select([part == 1, part == 2], [-0.7, 0.7], 0.0)
    y = radius * np.sin(angle) + np.where(eye, 0.7, 0.0)
    return _noisy(x, y, noise, rng)


def pinwheel(
    n: int,
    *,
    seed: int = 0,
    arms: int = 5,
    radial: float = 0.3,
    tangential: float = 0.05,
    rate: float = 0.25,
) -> Array:
    """Gaussians in a circle, each bent into an arm.

    Around (1, 0) a point (a, b) is drawn, turned by the angle of its arm and by rate e^a.

    Parameters
    ----------
    arms : how many, equally likely
    radial, tangential : standard deviations of a and b
    rate : how far the arms are bent
    """
    n, rng, arms = whole("n", n), _generator(seed), whole("arms", arms)
    radial, tangential = _number("radial", radial), _number("tangential", tangential)
    rate = _number("rate", rate, "")
    a, b = (rng.standard_normal((n, 2)) * [radial, tangential] + [1.0, 0.0]).T
    angle = 2.0 * np.pi / arms * rng.integers(0, arms, n) + rate * np.exp(a)
    c, s = np.cos(angle), np.sin(angle)
    return np.column_stack([c * a - s * b, s * a + c * b])


def checkerboard(n: int, *, seed: int = 0, squares: int = 4) -> Array:
    """Uniform on the dark squares of a board of unit squares about the origin.

    The square in the lower left corner is dark.

    Parameters
    ----------
    squares : along a side
    """
    n, rng, squares = whole("n", n), _generator(seed), whole("squares", squares)
    column, row = np.nonzero(np.add.outer(np.arange(squares), np.arange(squares)) % 2 == 0)
    cell = rng.integers(0, len(row), n)
    corner = np.column_stack([column[cell], row[cell]]) - 0.5 * squares
    return corner + rng.uniform(0.0, 1.0, (n, 2))


def spirals(
    n: int, *, seed: int = 0, arms: int = 2, turns: float = 1.5, noise: float = 0.08
) -> Array:
    """Spirals of Archimedes wound into each other, from the origin out to radius 3.

    The radius is 3 sqrt(u) with u uniform, so that rows lie about evenly along an arm.

    Parameters
    ----------
    arms : how many, equally likely
    turns : of each arm, positive
    noise : standard deviation around the arms
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    arms, turns = whole("arms", arms), _number("turns", turns, "above 0")
    share = np.sqrt(rng.uniform(0.0, 1.0, n))
    angle = 2.0 * np.pi * (turns * share + rng.integers(0, arms, n) / arms)
    return _noisy(3.0 * share * np.cos(angle), 3.0 * share * np.sin(angle), noise, rng)


def eight_gaussians(n: int, *, seed: int = 0, radius: float = 2.0, noise: float = 0.2) -> Array:
    """Eight round Gaussians, equally likely, at multiples of 45 degrees on a circle.

    Parameters
    ----------
    radius : of the circle, positive
    noise : standard deviation of each
    """
    n, rng, noise = whole("n", n), _generator(seed), _number("noise", noise)
    radius = _number("radius", radius, "above 0")
    angle = 0.25 * np.pi * rng.integers(0, 8, n)
    return _noisy(radius * np.cos(angle), radius * np.sin(angle), noise, rng)


GENERATORS: dict[str, Callable[..., Array]] = {
    f.__name__: f
    for f in (
        two_moons, banana, rings, heavy_tails, xo, smile, pinwheel, checkerboard, spirals,
        eight_gaussians,
    )
}  # fmt: skip


def _noisy(x: Array, y: Array, noise: float, rng: np.random.Generator) -> Array:
    return np.column_stack([x, y]) + noise * rng.standard_normal((len(x), 2))


def _generator(seed: Any) -> np.random.Generator:
    return np.random.default_rng(whole("seed", seed, least=0))


def _number(name: str, value: Any, wanted: str = "of at least 0") -> float:
    """A finite number, ``wanted`` "of at least 0", "above 0" or "" for any."""
    try:
        number = math.nan if isinstance(value, (str, bytes, bool)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    fits = {"of at least 0": number >= 0.0, "above 0": number > 0.0, "": True}[wanted]
    if not (fits and math.isfinite(number)):
        raise ValueError(f"{name}={value!r}: expected a finite number {wanted}".rstrip())
    return number
