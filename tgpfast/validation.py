"""Checks of arguments: one function for each kind of argument, used by every folder."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Seed = int | np.random.Generator | None

# Parameters must lie between these: smaller ones lose digits, larger ones leave no room for
# products.
LEAST_NUMBER, MOST_NUMBER = float(np.finfo(float).tiny), 1e307
# Bandwidths, noise levels and deviations lie between these: float64 holds their squares, and the
# inverses of those, with all digits.
LEAST_SCALE, MOST_SCALE = 1e-153, 1e153
# Useful bandwidths, in standard deviations of the rows. Features of a narrower one turn so often
# that sines lose their digits and a normalizer needs millions of points; of a wider one they are
# constant.
LEAST_WIDTH, MOST_WIDTH = 1e-6, 1e8
SAMPLE_STREAM = 1  # of the random numbers of samples, beside the seed
FAR = 1e150  # standard deviations from the mean beyond which squares overflow: no density there


# -- numbers and arrays ---------------------------------------------------------------------------


def as_floats(
    value: Any, name: str, shape: str | tuple[int, ...], ndim: int | None = None
) -> Array:
    """Return a read-only float64 copy of a small parameter array.

    Parameters
    ----------
    value : array-like
    name : str
        Name of the argument, for messages.
    shape : tuple of int, or str
        The expected shape; or, where only the number of dimensions is known, a text for messages,
        such as "(d,)".
    ndim : int, default None
        The expected number of dimensions, where the shape is a text.

    Raises
    ------
    TypeError
        If the values are not real numbers.
    ValueError
        If the shape is wrong, or a value is not finite.

    Examples
    --------
    >>> as_floats([1, 2], "mean", "(d,)", 1)
    array([1., 2.])
    >>> as_floats([1, 2], "mean", (3,))
    Traceback (most recent call last):
    ValueError: mean must have shape (3,), got (2,)
    """
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be real numbers, got dtype {array.dtype}")
    if array.shape != shape if isinstance(shape, tuple) else array.ndim != ndim:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    array = np.array(array, dtype=np.float64, order="C")
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} must be finite, got {array[where]} at index {where}")
    array.setflags(write=False)
    return array


def positive(name: str, value: Any, *rules: str) -> float:
    """Return value as a float if it is a finite positive number.

    Parameters
    ----------
    name : str
        Name of the argument, for messages.
    value : int or float
    *rules : str
        Words that the caller accepts as well, for messages.

    Raises
    ------
    TypeError
        If value is not a number.
    ValueError
        If it is not positive and finite, or beyond what float64 can square.

    Examples
    --------
    >>> positive("lam", 10)
    10.0
    """
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if isinstance(value, bool) or not is_number:
        words = "".join(f" or {rule!r}" for rule in rules)
        raise TypeError(f"{name}={value!r}: expected a number{words}")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond float64
        number = np.inf
    if not 0.0 < number < np.inf:
        raise ValueError(f"{name}={value!r}: expected a finite number above 0")
    if not LEAST_NUMBER <= number <= MOST_NUMBER:
        raise ValueError(
            f"{name}={value!r}: expected a number from {LEAST_NUMBER:.3g} to {MOST_NUMBER:g}; "
            "beyond, float64 loses digits or overflows"
        )
    return number


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return value as an int if it is an integer of at least ``least``, else raise ValueError.

    Examples
    --------
    >>> whole("n_features", np.int64(3))
    3
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name}={value!r}: expected an integer of at least {least}")
    return number


# -- words, flags and seeds -----------------------------------------------------------------------


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return value if it is one of the words, else raise ValueError that lists them.

    Examples
    --------
    >>> check_choice("method", "fd", ("fd", "map"))
    'fd'
    """
    known = tuple(choices)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(repr, known))}")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return value as a bool if it is True or False, else raise TypeError.

    Examples
    --------
    >>> check_flag("progress", np.True_)
    True
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}={value!r}: expected True or False")
    return bool(value)


def as_seed(seed: Any, name: str = "seed") -> int:
    """Return an integer seed: the one given, a fresh one for None, the next one of a Generator.

    Examples
    --------
    >>> as_seed(7)
    7
    """
    if seed is None:
        return int(np.random.default_rng().integers(2**63))
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63))
    try:
        return whole(name, seed, 0)
    except ValueError:
        raise ValueError(
            f"{name}={seed!r}: expected an integer of at least 0, None, or a numpy Generator"
        ) from None


def sampling_generator(seed: int) -> np.random.Generator:
    """The generator of a sample with this seed.

    It is not ``default_rng(seed)``, from which users draw rows: samples of a Gaussian would be the
    very rows that it was learned from, moved and scaled.

    Examples
    --------
    >>> own = sampling_generator(0).standard_normal()
    >>> bool(own == np.random.default_rng(0).standard_normal())
    False
    """
    return np.random.default_rng([seed, SAMPLE_STREAM])


# -- bandwidths and far rows ----------------------------------------------------------------------


def as_bandwidth(bandwidth: Any) -> float:
    """Return a bandwidth as a float if float64 holds its square and the inverse of that.

    Examples
    --------
    >>> as_bandwidth(2)
    2.0
    """
    gamma = positive("bandwidth", bandwidth)
    if not LEAST_SCALE <= gamma <= MOST_SCALE:
        raise ValueError(
            f"bandwidth={gamma:.6g}: expected a number from {LEAST_SCALE:g} to "
            f"{MOST_SCALE:g}; beyond, its square overflows or vanishes in float64. Give the "
            'rows other units, as scale="standardize" does'
        )
    return gamma


def check_bandwidth(gamma: float, variance: float, lam: float, widest: float = MOST_WIDTH) -> None:
    """Raise ValueError unless a bandwidth suits the rows and float64 holds lam gamma^2.

    Parameters
    ----------
    gamma : float
        The bandwidth.
    variance : float
        Mean variance of the columns, of the rows or of a base.
    lam : float
    widest : float, default 1e8
        The largest bandwidth, in standard deviations.
    """
    deviation = float(np.sqrt(variance))
    least, most = LEAST_WIDTH * deviation, widest * deviation
    if not least <= gamma <= most:
        raise ValueError(
            f"gamma={gamma:.6g}: expected a bandwidth of at least {least:.3g}"
            + (f" and at most {most:.3g}" if most < np.inf else "")
            + f", since the rows have a standard deviation of {deviation:.3g}; "
            'gamma="scott" gives a usual one'
        )
    if not LEAST_NUMBER <= lam * gamma * gamma < np.inf:
        least, most = 1.01 * LEAST_NUMBER / gamma**2, min(1e308 / gamma**2, 1e308)
        raise ValueError(
            f"lam={lam:.6g}: lam gamma^2 is beyond the range of float64; with "
            f"gamma={gamma:.6g} expected lam from {least:.3g} to {most:.3g}"
        )


def without_far(u: Array, mean: Array, variances: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Move rows beyond FAR, and infinite ones, to the mean, so that their squares do not overflow.

    Parameters
    ----------
    u : (n, d) array
    mean, variances : (d,) array
        Of the columns: the center and the unit of FAR.

    Returns
    -------
    rows : (n, d) array
        ``u`` itself if no row is far, else a copy.
    is_far : (n,) array of bool
    """
    with np.errstate(over="ignore"):
        reach = FAR * np.sqrt(variances)
        low, high = mean - reach, mean + reach
    # a column at a time: along axis 0 of few columns, reductions take a hundred times as long
    if (reach < np.inf).all() and all(
        not len(u) or (low[k] <= column.min() and column.max() <= high[k])
        for k, column in enumerate(u.T)
    ):
        return u, np.zeros(len(u), bool)
    is_near = np.asarray(((low <= u) & (u <= high) & np.isfinite(u)).all(axis=1))
    u = u.copy()
    u[~is_near] = mean
    return u, ~is_near


def check_derivative(what: str, values: Array, far: NDArray[np.bool_], first: int) -> None:
    """Raise ValueError that names the first row without a finite derivative.

    Parameters
    ----------
    what : str
        Name of the derivative.
    values : (n,) or (n, d) array
    far : (n,) array of bool
        Rows that `without_far` has moved.
    first : int
        Number of the first of these rows in the caller's table.
    """
    bad = far | ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    if bad.any():
        raise ValueError(
            f"Y, row {first + int(np.flatnonzero(bad)[0])}: the {what} is not finite so far away "
            "(the log density is -inf there); drop rows whose log_density is -inf"
        )
