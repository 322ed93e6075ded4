"""`Base`: the density that a learned exponent tilts, and what a base of one's own must define."""

from __future__ import annotations

import abc
import hashlib
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..data.blocks import Blocks, as_blocks
from ..data.moments import check_full_rank, moments_and_sample
from ..data.row_sample import SAMPLE_ROWS
from ..data.scaling import Scaling
from ..features.random import Features
from ..validation import (
    Array,
    Seed,
    as_floats,
    as_seed,
    check_derivative,
    sampling_generator,
    whole,
    without_far,
)

# step of central differences of a score, in standard deviations: the cube root of the rounding
# error, where the error of the differences and that of rounding are equally large
DIFFERENCE_STEP = float(np.finfo(float).eps) ** (1.0 / 3.0)
FINGERPRINT_ROWS = 32  # draws whose values identify a base without `parameters`


class Base(abc.ABC):
    """A density that a learned exponent can tilt. Subclass it to use a base of your own.

    The model is q(x) proportional to exp{f(x)} base(x) (Eq. density of the paper, there with a
    Gaussian base). Methods whose names end in ``_at`` get checked rows, a float64 array (n, d).

    A subclass must define

    ==============================  ============================================================
    ``mean``, ``covariance``        attributes or properties, (d,) and (d, d): place and spread
                                    of the base. Integrals use coordinates in which they are 0
                                    and the identity. A base without moments gives numbers that
                                    describe where most of its mass lies.
    ``log_density_at(x)``           log density of every row, (n,), normalized
    ``score_at(x)``                 gradient of the log density at every row, (n, d)
    ``draw(n, rng)``                n independent draws, (n, d), from a NumPy ``Generator``
    ==============================  ============================================================

    and may define

    ==============================  ============================================================
    ``draw_sobol(log2_n, seed)``    2^log2_n quasi-random draws, which make normalizers more
                                    accurate. Default: ``draw`` with a generator of this seed
    ``laplacian_at(x, stretch)``    second derivatives. Default: differences of ``score_at``
    ``rescaled(scaling)``           the base in other units. Default: a `RescaledBase`
    ``feature_moments(features)``   moments of the features, for method="fvpd". Default: an error
    ``kind``, ``parameters()``,     what saving needs, with ``register_base``
    ``from_parameters(...)``
    ==============================  ============================================================

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> class LogisticBase(tgpfast.Base):
    ...     def __init__(self, d):
    ...         self.mean, self.covariance = np.zeros(d), np.eye(d) * np.pi**2 / 3
    ...     def log_density_at(self, x):
    ...         return -(x + 2 * np.logaddexp(0, -x)).sum(axis=1)
    ...     def score_at(self, x):
    ...         return -np.tanh(x / 2)
    ...     def draw(self, n, rng):
    ...         return rng.logistic(size=(n, self.dimension))
    >>> x = np.random.default_rng(0).normal(size=(500, 1))
    >>> model = tgpfast.fit(x, base=LogisticBase(1), method="fd", n_features=50, lam=10.0)
    >>> model.log_density([[0.0]]).shape
    (1,)
    """

    kind: ClassVar[str] = ""
    mean: Array
    covariance: Array

    @property
    def dimension(self) -> int:
        """Number of columns d."""
        if not hasattr(self, "mean"):
            raise TypeError(f"{type(self).__name__} must set mean, (d,), and covariance, (d, d)")
        return len(self.mean)

    # -- what a subclass must define --------------------------------------------------------------

    @abc.abstractmethod
    def log_density_at(self, x: Array) -> Array:
        """Log density of checked rows, (n,).

        Parameters
        ----------
        x : array, (n, d)
            Rows in the coordinates of the base; nothing is checked.
        """

    @abc.abstractmethod
    def score_at(self, x: Array) -> Array:
        """Gradient of the log density at checked rows, (n, d).

        Parameters
        ----------
        x : array, (n, d)
            Rows in the coordinates of the base; nothing is checked.
        """

    @abc.abstractmethod
    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n independent draws, (n, d).

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator
        """

    # -- what a subclass may define ---------------------------------------------------------------

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n draws made of scrambled Sobol points; here independent draws instead.

        Parameters
        ----------
        log2_n : int
            Logarithm to base 2 of the number of draws.
        seed : int
            Seed of the scrambling. Different seeds give independent sets.

        Returns
        -------
        array, (2^log2_n, d)
        """
        return self.draw(2**log2_n, np.random.default_rng(seed))

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        """Weighted trace of the Hessian; here by central differences of the score.

        Parameters
        ----------
        x : array, (n, d)
            Checked rows.
        stretch : array, (d,)
            Factors of the columns.

        Returns
        -------
        array, (n,)
            Sum over k of stretch_k^2 times the second derivative of the log density in column k.
        """
        total = np.zeros(len(x))
        widths = np.sqrt(np.diag(self.covariance))
        for k, step in enumerate(DIFFERENCE_STEP * np.diag(widths)):
            above, below = x + step, x - step
            rise = self.score_at(above)[:, k] - self.score_at(below)[:, k]
            total += stretch[k] ** 2 * rise / (above[:, k] - below[:, k])
        return total

    def rescaled(self, scaling: Scaling) -> Base:
        """The same base in the coordinates u = (x - shift) / scale.

        Parameters
        ----------
        scaling : Scaling
            Has ``shift`` and ``scale``, (d,) each.

        Returns
        -------
        Base
            By default a `RescaledBase`, or this base itself where the scaling changes nothing.
        """
        return self if scaling.is_identity else RescaledBase(self, scaling)

    def feature_moments(
        self, features: Features, *, backend: str = "auto", n_threads: int | None = None
    ) -> tuple[Array, Array]:
        """Mean (S,) and covariance (S, S) of the features phi(x), x from this base.

        Only method="fvpd" needs them (Eqs. muphi and sigphi of the paper).

        Parameters
        ----------
        features : Features
        backend, n_threads : see ``accumulate``

        Raises
        ------
        ValueError
            By default: most bases have no closed form.
        """
        raise ValueError(
            f"{type(self).__name__} has no closed form for the moments of features, which "
            'method="fvpd" needs; use "fd" or "map"'
        )

    @property
    def has_feature_moments(self) -> bool:
        """Whether `feature_moments` is defined, so that method="fvpd" can tilt this base."""
        return type(self).feature_moments is not Base.feature_moments

    def parameters(self) -> dict[str, Any]:
        """The arrays that determine the base, by name: what a file holds of it.

        Raises
        ------
        NotImplementedError
            By default: such a base can be fitted and evaluated, but not saved.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define parameters(), which saving needs"
        )

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> Base:
        """The base with these `parameters`; by default they are the arguments of the class.

        Parameters
        ----------
        parameters : dict of arrays
            As `parameters` returns them.
        """
        return cls(**parameters)

    # -- what every base offers -------------------------------------------------------------------

    def log_density(self, X: Any) -> Array:
        """Log density of every row.

        Parameters
        ----------
        X : array-like, (n, d)
            Rows in the coordinates of the base.

        Returns
        -------
        array, (n,)
            -inf for rows so far away that squares of distances overflow.

        Examples
        --------
        >>> import tgpfast
        >>> base = tgpfast.GaussianBase([0.0], [[1.0]])
        >>> base.log_density([[0.0]]).round(4).tolist()
        [-0.9189]
        """
        x, far = without_far(self._rows(X), self.mean, np.diag(self.covariance))
        values = self.log_density_at(x)
        values[far] = -np.inf
        return values

    def score(self, X: Any) -> Array:
        """Gradient of the log density at every row.

        Parameters
        ----------
        X : array-like, (n, d)
            Rows in the coordinates of the base.

        Returns
        -------
        array, (n, d)

        Raises
        ------
        ValueError
            Names the first row that is so far away that the gradient is not finite.

        Examples
        --------
        >>> import tgpfast
        >>> tgpfast.GaussianBase([0.0], [[4.0]]).score([[2.0]]).tolist()
        [[-0.5]]
        """
        with np.errstate(over="ignore", invalid="ignore"):
            score = self.score_at(self._rows(X))
        check_derivative("score", score, np.zeros(len(score), bool), 0)
        return score

    def sample(self, n: int, seed: Seed = None) -> Array:
        """Independent draws.

        Parameters
        ----------
        n : int
            Number of draws.
        seed : int, Generator or None, default None
            None draws anew at each call; an integer gives the same draws each time; a NumPy
            ``Generator`` gives its next ones.

        Returns
        -------
        array, (n, d)

        Examples
        --------
        >>> import tgpfast
        >>> tgpfast.GaussianBase([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]]).sample(3, seed=0).shape
        (3, 2)
        """
        return self.draw(whole("n", n, 0), sampling_generator(as_seed(seed)))

    @property
    def fingerprint(self) -> str:
        """Hash of the parameters, or of values at some draws where a base has no parameters."""
        if type(self).parameters is not Base.parameters:
            return _hash(self.kind or type(self).__qualname__, *self.parameters().values())
        x = self.draw(FINGERPRINT_ROWS, np.random.default_rng(0))
        return _hash(type(self).__qualname__, x, self.log_density_at(x), self.score_at(x))

    def _rows(self, X: Any) -> Array:
        return Blocks(X, dimension=self.dimension).whole()


def sample_rows(X: Any, sample_weight: Any) -> tuple[Array, Array]:
    """At most SAMPLE_ROWS random rows of a table, drawn in one pass over it, and their weights.

    Raises
    ------
    ValueError
        If a column is constant, or columns are linearly dependent.
    """
    blocks = as_blocks(X, sample_weight=sample_weight)
    moments, sample = moments_and_sample(blocks)
    check_full_rank(moments, blocks.table.columns)
    moments.check_range()
    x, w = sample.take(SAMPLE_ROWS)
    return x, np.ones(len(x)) if w is None else w


def check_base(base: Any, dimension: int, whose: str) -> None:
    """Raise TypeError or ValueError unless this is a base of ``dimension`` columns.

    whose : what has this dimension, for the message, such as "the features have"
    """
    if not isinstance(base, Base):
        raise TypeError(f"base must be a base of tgpfast, got {type(base).__name__}")
    if base.dimension != dimension:
        raise ValueError(f"base has dimension {base.dimension}, {whose} {dimension}")


def _hash(name: str, *arrays: Array) -> str:
    digest = hashlib.sha256(name.encode())
    for array in arrays:
        digest.update(repr(array.shape).encode() + array.astype("<f8").tobytes())
    return digest.hexdigest()


# -- files ----------------------------------------------------------------------------------------

_classes: dict[str, type[Base]] = {}  # kind -> class, for `load_base`

BaseClass = TypeVar("BaseClass", bound=type[Base])


def register_base(cls: BaseClass) -> BaseClass:
    """Let densities with bases of this class be saved and loaded. Works as a decorator.

    Parameters
    ----------
    cls : subclass of Base
        Defines ``kind``, a name that no other class has, and ``parameters()``; and
        ``from_parameters`` where the parameters are not the arguments of the class.

    Returns
    -------
    cls

    Raises
    ------
    TypeError
        Names what the class lacks.
    ValueError
        Another class has this kind.

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> @tgpfast.register_base
    ... class LaplaceBase(tgpfast.Base):
    ...     kind = "laplace"
    ...     def __init__(self, width):
    ...         self.width = np.asarray(width)
    ...         self.mean, self.covariance = np.zeros(1), 2 * self.width.reshape(1, 1) ** 2
    ...     def log_density_at(self, x):
    ...         return -np.abs(x[:, 0]) / self.width - np.log(2 * self.width)
    ...     def score_at(self, x):
    ...         return -np.sign(x) / self.width
    ...     def draw(self, n, rng):
    ...         return rng.laplace(scale=self.width, size=(n, 1))
    ...     def parameters(self):
    ...         return {"width": self.width}
    """
    if not (isinstance(cls, type) and issubclass(cls, Base)):
        raise TypeError(f"register_base takes a subclass of tgpfast.Base, got {cls!r}")
    missing = [] if cls.kind else ["kind, a name for files"]
    missing += ["parameters()"] if cls.parameters is Base.parameters else []
    missing += [f"{name}()" for name in sorted(getattr(cls, "__abstractmethods__", ()))]
    if missing:
        raise TypeError(f"{cls.__name__} cannot be registered: it lacks {', '.join(missing)}")
    known = _classes.get(cls.kind, cls)
    # a class that is defined again, as in a notebook, replaces itself
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(
            f"kind={cls.kind!r} of {cls.__name__} is that of {known.__name__}; choose another name"
        )
    _classes[cls.kind] = cls
    return cls


def describe_base(base: Base) -> tuple[str, dict[str, Any]]:
    """(kind, parameters) of a base, from which `load_base` makes it again.

    Raises
    ------
    TypeError
        The class of the base is not registered.
    """
    cls = type(base)
    if _classes.get(cls.kind) is not cls:
        raise TypeError(
            f"a {cls.__name__} cannot be saved: its class is not registered. Give the class kind "
            f"and parameters(), and call tgpfast.register_base({cls.__name__})"
        )
    return cls.kind, base.parameters()


def check_registered(kind: str) -> None:
    """ValueError unless a class of this kind is registered."""
    if kind not in _classes:
        raise ValueError(
            f"base {kind!r} is not registered: import the module that defines its class, or call "
            "tgpfast.register_base with the class, before loading"
        )


def load_base(kind: str, parameters: dict[str, Any]) -> Base:
    """The base of a registered class.

    Raises
    ------
    ValueError
        No class of this kind is registered, or the parameters are not those of the class.
    """
    check_registered(kind)
    try:
        return _classes[kind].from_parameters(parameters)
    except (KeyError, TypeError) as error:
        raise ValueError(f"base {kind!r} with parameters {sorted(parameters)}: {error}") from error


@register_base
class RescaledBase(Base):
    """Any base in the coordinates u = (x - shift) / scale.

    Parameters
    ----------
    original : Base
        The base in the coordinates x.
    scaling : Scaling
        Has ``shift`` and ``scale``, (d,) each.
    """

    kind = "rescaled"

    def __init__(self, original: Base, scaling: Scaling) -> None:
        self.original, self.scaling = original, scaling
        self.mean = scaling.apply(np.asarray(original.mean, float)[None])[0]
        self.covariance = original.covariance / np.outer(scaling.scale, scaling.scale)

    def log_density_at(self, x: Array) -> Array:
        """Log density of checked rows, (n,)."""
        return self.original.log_density_at(self.scaling.invert(x)) + self.scaling.log_volume

    def score_at(self, x: Array) -> Array:
        """Gradient of the log density at checked rows, (n, d)."""
        return self.original.score_at(self.scaling.invert(x)) * self.scaling.scale

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        """Sum over k of stretch_k^2 times the second derivative in column k, (n,)."""
        return self.original.laplacian_at(self.scaling.invert(x), stretch * self.scaling.scale)

    @property
    def has_feature_moments(self) -> bool:
        """Whether the original has them."""
        return self.original.has_feature_moments

    def feature_moments(
        self, features: Features, *, backend: str = "auto", n_threads: int | None = None
    ) -> tuple[Array, Array]:
        """Moments of the features under the original base, for features whose angles agree in
        its coordinates."""
        z = features.frequencies / self.scaling.scale
        phases = features.phases - z @ self.scaling.shift / features.bandwidth
        there = Features(z, phases, features.bandwidth)
        return self.original.feature_moments(there, backend=backend, n_threads=n_threads)

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n independent draws, (n, d)."""
        return self.scaling.apply(self.original.draw(n, rng))

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n quasi-random draws, (2^log2_n, d)."""
        return self.scaling.apply(self.original.draw_sobol(log2_n, seed))

    def parameters(self) -> dict[str, Any]:
        """Shift and scale, and the parameters of the original, whose names get a prefix."""
        kind, inner = describe_base(self.original)
        own = {"original": np.array(kind), "shift": self.scaling.shift, "scale": self.scaling.scale}
        return {**own, **{f"original_{name}": array for name, array in inner.items()}}

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> RescaledBase:
        """The inverse of `parameters`."""
        inner = {
            name.removeprefix("original_"): array
            for name, array in parameters.items() if name.startswith("original_")
        }  # fmt: skip
        shift = as_floats(parameters["shift"], "shift", "(d,)", 1)
        scale = as_floats(parameters["scale"], "scale", "(d,)", 1)
        if not (scale > 0).all():
            raise ValueError("scale must be positive")
        return cls(load_base(str(parameters["original"]), inner), Scaling(shift, scale))

    @property
    def fingerprint(self) -> str:
        """Hash of the fingerprint of the original, the shift and the scale."""
        return _hash(self.original.fingerprint, self.scaling.shift, self.scaling.scale)

    def __repr__(self) -> str:
        return f"RescaledBase({self.original!r})"
