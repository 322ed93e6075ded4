"""`Density`: what learning returns. Log density, gradients, samples, marginals, files."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..data import storage
from ..data.blocks import Blocks, as_blocks
from ..data.column_maps import MappedScaling
from ..data.scaling import Scaling
from ..data.table import BLOCK_ROWS, Table
from ..features.lattice import LatticeFeatures
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..statistics.transforms import TRANSFORM_DIMENSIONS
from ..validation import (
    Array,
    Seed,
    as_floats,
    as_seed,
    check_choice,
    check_derivative,
    whole,
    without_far,
)
from .answering import AnsweringDensity
from .answers.describing import describe_briefly
from .exponents.exponent import PointTilt, PredictiveTilt, Tilt
from .exponents.lattice_exponent import LatticeTilt
from .normalizing.integration import Integrator

if TYPE_CHECKING:
    from .sampling import SamplingReport

DENSITY_KIND = "density"  # of a saved file
TRANSFORM_ROWS = 2**20  # rows evaluated together in up to three columns, by transforms


@dataclass(eq=False)
class Density(AnsweringDensity):
    """A learned density, q(x) proportional to exp{f(x)} base(x).

    It is that of Eq. density of the paper.

    ``fit`` and ``solve`` make it. Rows are given and returned in the units of the data;
    ``features``, ``base``, ``theta``, ``M`` and ``m`` are in the model's own coordinates
    u = (x - shift) / scale, which differ from the units of the data only where ``fit`` has scaled,
    or (T(x) - shift) / scale where it has bent columns by increasing maps T.

    Use ``dataclasses.replace(model, settings=...)`` for a copy with other fields. It keeps what is
    known of the normalizer unless the tilt, the base or the threads change.

    Parameters
    ----------
    method : {"fd", "ncfd", "fvpd", "map", "base"}
        How f was learned; "base" where the density is its base alone.
    tilt : Tilt
        The exponent f.
    base : Base
        The density that is tilted.
    settings : dict, default {}
        Every choice that was made, and how.
    diagnostics : dict, default {}
        Condition number, residual, additions to the diagonal, iterations of the solver; of `fit`
        "repeats" too: how often rows and values of the sample repeat.
    scaling : Scaling, default None
        Between the units of the data and the model's coordinates; none by default.
    table : Table, default Table()
        Column names and kind of the table that ``sample`` returns.
    threads : Threads, default Threads()
        Backend and number of threads of evaluations.
    selection : list of dict, default None
        The candidates that ``fit`` compared, best first; None where every setting was given.
    statistics : Statistics, default None
        What the model was learned from, which ``update`` needs; set it to None to free the memory.
    integrator : Integrator, default None
        Mass, marginals and draws in the model's coordinates; made from the others by default.

    Attributes
    ----------
    sampling : SamplingReport or None
        How the last call of ``sample`` drew; None before.

    References
    ----------
    Paisley, Zhang, Barr, "Gaussian Process Tilted Nonparametric Density Estimation using Fisher
    Divergence Score Matching", arXiv 2504.03485.

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
    >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
    >>> model.dimension, model.method
    (1, 'fd')
    """

    method: str
    tilt: Tilt
    base: Base
    settings: dict[str, Any] = field(default_factory=dict)
    diagnostics: dict[str, Any] = field(default_factory=dict)
    scaling: Scaling = None  # type: ignore[assignment]
    table: Table = field(default_factory=Table)
    threads: Threads = field(default_factory=Threads)
    selection: list[dict[str, Any]] | None = None
    statistics: Any = field(default=None, repr=False)
    integrator: Integrator = field(default=None, repr=False)  # type: ignore[assignment]
    file_kind: ClassVar[str] = DENSITY_KIND
    sampling: SamplingReport | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.scaling is None:
            self.scaling = Scaling.identity(self.dimension)
        known = self.integrator
        if known is None or known.tilt is not self.tilt or known.base is not self.base or (
            known.threads != self.threads
        ):
            self.integrator = Integrator(self.tilt, self.base, self.threads)

    # -- parameters -------------------------------------------------------------------------------

    @property
    def features(self) -> Features | LatticeFeatures:
        """The Fourier features of the exponent."""
        return self.tilt.features

    @property
    def theta(self) -> Array:
        """Coefficients of a point model: (S,), or of the mode shape of lattice features.

        Raises
        ------
        AttributeError
            FVPD has ``M`` and ``m`` instead.
        """
        if isinstance(self.tilt, PointTilt | LatticeTilt):
            return self.tilt.theta
        raise AttributeError("an FVPD model has no theta: it has M and m (and M^-1 m)")

    @property
    def M(self) -> Array:
        """Matrix of FVPD (Eq. predictive), (S, S), made from its Cholesky factor at each call."""
        return self._predictive_tilt("M").M

    @property
    def m(self) -> Array:
        """Vector of FVPD (Eq. predictive), (S,)."""
        return self._predictive_tilt("m").m

    def _predictive_tilt(self, name: str) -> PredictiveTilt:
        if isinstance(self.tilt, PredictiveTilt):
            return self.tilt
        raise AttributeError(f"a {self.method} model has no {name}: it has theta")

    # -- other models from this one ---------------------------------------------------------------

    def update(
        self, X: Any, *, sample_weight: Any = None, decay: float = 1.0, missing: str = "error",
        progress: bool = False,
    ) -> Density:
        """The model learned from the rows so far and those of X: a new one; this one stays.

        Features, scaling, lambda, eta and method are kept. The base is made anew from the moments
        of all rows where ``fit`` made it so (base="empirical"), and kept otherwise; MAP that was
        learned from sums of features alone, and lattices, keep it too. Where such a model is its
        base alone, there is nothing to learn, and a warning says so. An update costs a pass over X
        and one solve, which conjugate gradients start at the present theta.

        Parameters
        ----------
        X : array-like, data frame, path or iterable of blocks
            Rows in the units of the data, as for ``fit``.
        sample_weight : array-like, (n,), default None
            Weights of the rows, as for ``fit``.
        decay : float, default 1.0
            In (0, 1]: multiplies the weights of all earlier rows first, once an update, however
            many rows it brings. After many updates of m rows each, m / (1 - decay) rows count.
        missing : {"error", "drop"}, default "error"
            What to do with rows that have missing entries, as for ``fit``: "drop" leaves them out;
            a warning says how many, and they are added to ``settings["n_missing"]``.
        progress : bool, default False
            Show a bar on standard error.

        Returns
        -------
        Density

        Raises
        ------
        ValueError
            The model does not hold its statistics, or rows or weights are not valid.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(size=(1000, 2))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> model.update(x[:100] + 1.0).settings["n_rows"]
        1100
        """
        return _updaters[0](self, X, sample_weight, decay, progress, missing)

    def at_noise(self, sigma: float) -> Density:
        """The density at another resolution, q(y | sigma) (section Noise Conditional of the paper).

        Parameters
        ----------
        sigma : float
            Standard deviation of the noise, >= 0, in the model's coordinates: standard deviations
            where ``fit`` has standardized. Noise on a density with noise adds by squares;
            ``settings["sigma"]`` is the noise in all.

        Returns
        -------
        Density
            Without statistics and selection.

        Raises
        ------
        ValueError
            The model was not learned with method="ncfd", or sigma is not valid.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(size=(500, 1))
        >>> model = tgpfast.fit(x, method="ncfd", lam=10.0, n_features=50, base="empirical")
        >>> model.at_noise(0.5).settings["sigma"]
        0.5
        """
        is_gaussian = self.method == "base" and isinstance(self.base, GaussianBase)
        if self.method != "ncfd" and not is_gaussian:
            raise ValueError(
                f'at_noise needs a model learned with method="ncfd"; this one is "{self.method}"'
            )
        level = float(as_floats(sigma, "sigma", "()", 0))
        if level < 0 or level * level == np.inf:
            raise ValueError(f"sigma={level}: expected a number of at least 0, of a finite square")
        if not isinstance(self.tilt, PointTilt):
            raise ValueError(
                'at_noise needs random features; this model has lattice features: fit with '
                'features="random"'
            )
        assert isinstance(self.features, Features)
        bandwidth = float(np.hypot(self.features.bandwidth, level))
        covariance = self.base.covariance + level**2 * np.eye(self.dimension)
        return replace(
            self, tilt=replace(self.tilt, features=replace(self.features, bandwidth=bandwidth)),
            base=GaussianBase(self.base.mean, covariance), selection=None, statistics=None,
            settings={**self.settings, "sigma": math.hypot(self.settings.get("sigma", 0.0), level)},
        )  # fmt: skip

    def with_record(
        self, *, scaling: Scaling, table: Table, settings: dict[str, Any],
        selection: list[dict[str, Any]] | None,
    ) -> Density:  # fmt: skip
        """The same density in the units of the data, with what ``fit`` records of it.

        Parameters
        ----------
        scaling : Scaling
        table : Table
        settings : dict
        selection : list of dict or None
        """
        return replace(
            self, scaling=scaling, table=table, settings=settings, selection=selection
        )

    def with_mode_starts(self, rows: Array) -> Density:
        """The same density, whose modes are sought from some rows too, in the model's coordinates.

        In more than three dimensions the normalizer depends on the modes that are found.

        Parameters
        ----------
        rows : array, (n, d)
        """
        return replace(self, integrator=self.integrator.with_mode_starts(rows))

    # -- evaluation -------------------------------------------------------------------------------

    def log_density(self, Y: Any, normalized: bool = True, *, missing: str = "error") -> Any:
        """Log density of every row of Y.

        Parameters
        ----------
        Y : array-like, data frame, path or iterable of blocks
            Rows (n, d) in the units of the data, as for ``fit``.
        normalized : bool, default True
            Subtract log Z, which is estimated at first use (see ``log_normalizer``).
        missing : {"error", "marginal"}, default "error"
            What to do with rows that have missing entries, nan: "marginal" gives the marginal log
            density of the columns that a row has, per unit of those columns.

        Returns
        -------
        array, (n,); a Series where Y is a data frame
            Rows so far away that squares of distances overflow (beyond 1e150 standard deviations)
            have -inf.

        Raises
        ------
        ValueError
            Y has other columns, or values that are not finite.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> bool(model.log_density([[5.0]])[0] > model.log_density([[11.0]])[0])
        True
        """
        from .columns.missing_values import MISSING_POLICIES, score_incomplete_rows

        if check_choice("missing", missing, MISSING_POLICIES) == "marginal":
            if not normalized:
                raise ValueError(
                    'missing="marginal" needs normalized=True: marginals are integrals'
                )
            return score_incomplete_rows(self, Y)
        blocks = self._blocks(Y)
        log_z = self.log_normalizer.value if normalized else 0.0
        if blocks.in_parts:
            return blocks.evaluated(self, "log_density", normalized=normalized)
        parts = []
        for x, u, far, _ in self._model_rows(blocks):
            constant = self.scaling.log_slope(x) - log_z
            value = self.tilt.value(u, self.threads) + self.base.log_density_at(u) + constant
            value[far | np.isnan(value)] = -np.inf  # angles or distances are not finite
            parts.append(value)
        return blocks.table.series(np.concatenate(parts), "log_density")

    def grad_log_density(self, Y: Any) -> Any:
        """Gradient of the log density, the score, at every row of Y (Eq. nabx).

        Parameters
        ----------
        Y : array-like, data frame, path or iterable of blocks
            Rows (n, d) in the units of the data.

        Returns
        -------
        array, (n, d); a frame where Y is one

        Raises
        ------
        ValueError
            Names the first row that is so far away that its log density is -inf.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> bool(model.grad_log_density([[9.0]])[0, 0] < 0)
        True
        """
        return self._differentiate(Y, "grad_log_density", "gradient", self._gradient)

    def laplacian_log_density(self, Y: Any) -> Any:
        """Trace of the Hessian of the log density at every row of Y (Eq. nabxx).

        Parameters
        ----------
        Y : array-like, data frame, path or iterable of blocks
            Rows (n, d) in the units of the data.

        Returns
        -------
        array, (n,); a Series where Y is a data frame

        Raises
        ------
        ValueError
            Names the first row that is so far away that its log density is -inf.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> model.laplacian_log_density([[5.0], [6.0]]).shape
        (2,)
        """
        return self._differentiate(Y, "laplacian_log_density", "Laplacian", self._laplacian)

    def _differentiate(
        self, Y: Any, method: str, name: str, derivative: Callable[[Array, Array], Array]
    ) -> Any:
        """A derivative at all rows: ``method`` by parts of Y, ``derivative`` of rows in memory."""
        blocks, parts = self._blocks(Y), []
        if blocks.in_parts:
            return blocks.evaluated(self, method)
        for x, u, far, first in self._model_rows(blocks):
            with np.errstate(over="ignore", invalid="ignore"):
                parts.append(derivative(x, u))
            check_derivative(name, parts[-1], far, first)
        values = np.concatenate(parts)
        table = blocks.table
        return table.frame(values) if values.ndim == 2 else table.series(values, name.lower())

    def _gradient(self, x: Array, u: Array) -> Array:
        """Gradient at rows x of the data, which are u in the model's coordinates."""
        slope = self.tilt.gradient(u, self.threads)[1] + self.base.score_at(u)
        return self.scaling.pull_score(x, slope)

    def _laplacian(self, x: Array, u: Array) -> Array:
        """Laplacian at rows x of the data, which are u in the model's coordinates."""

        def stretched(stretch: Array) -> Array:
            own = self.tilt.laplacian(u, stretch, self.threads)
            return np.asarray(own + self.base.laplacian_at(u, stretch))

        if not isinstance(self.scaling, MappedScaling):
            return stretched(1.0 / self.scaling.scale)
        score = self.tilt.gradient(u, self.threads)[1] + self.base.score_at(u)
        curvature = np.stack([stretched(axis) for axis in np.eye(self.dimension)], axis=1)
        return self.scaling.pull_laplacian(x, score, curvature)

    def _blocks(self, Y: Any) -> Any:
        return as_blocks(
            Y, dimension=self.dimension, columns=self.table.columns, name="Y",
            block_rows=TRANSFORM_ROWS if self.dimension <= TRANSFORM_DIMENSIONS else BLOCK_ROWS,
        )  # fmt: skip

    def _model_rows(
        self, blocks: Blocks
    ) -> Iterator[tuple[Array, Array, NDArray[np.bool_], int]]:
        """(rows, the same in the model's coordinates, which are too far away to have a density, or
        outside of the support, number of the first row) of every block. Rows without a density are
        moved to the mean of the base in the model's coordinates."""
        first, variances = 0, np.diag(self.base.covariance)
        for x, _ in blocks:
            with np.errstate(over="ignore"):
                u, far = without_far(self.scaling.apply(x), self.base.mean, variances)
            yield x, u, far, first
            first += len(x)

    # -- integrals --------------------------------------------------------------------------------

    def marginal_cdf(self, direction: Any, grid: Any) -> Array:
        """Distribution function of x . direction for x from this density.

        Parameters
        ----------
        direction : array-like, (d,)
            In the units of the data; any length but zero.
        grid : array-like, (G,)
            Values along the direction, in any order.

        Returns
        -------
        array, (G,)
            P(x . direction <= grid_j). For d <= 3 its error is that of quadrature. Else, and along
            oblique directions of columns that ``fit`` has bent, it comes from 131,072 weighted
            points, with a standard error of about half over the root of their effective number.

        Raises
        ------
        ValueError
            The direction is zero or has another shape, or values are not finite.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> model.marginal_cdf([1.0], [5.0]).round(1).tolist()
        [0.5]
        """
        v = as_floats(direction, "direction", f"({self.dimension},)", 1)
        places = as_floats(grid, "grid", "(G,)", 1)
        if len(v) != self.dimension or not v.any():
            raise ValueError(
                f"direction must have shape ({self.dimension},) and not be zero, got {v.tolist()}"
            )
        return self.integrator.marginal_cdf(v, places, self.scaling)

    # -- draws ------------------------------------------------------------------------------------

    def sample(
        self, n: int, seed: Seed = None, *, method: str = "auto", progress: bool = False
    ) -> Any:
        """Rows drawn from the density.

        Parameters
        ----------
        n : int
            Number of rows.
        seed : int, Generator or None, default None
            None draws anew at each call; an integer gives the same rows each time, for any number
            of threads; a NumPy ``Generator`` gives its next rows.
        method : {"auto", "grid", "importance", "mala"}, default "auto"
            "grid" is exact, up to three columns; "importance" keeps fresh draws by their weight;
            "mala" runs parallel Langevin chains. "auto" draws from the base where the density is
            its base alone, and takes the first of the others that serves elsewhere.
        progress : bool, default False
            Show a bar on standard error.

        Returns
        -------
        array or frame, (n, d)
            Of the kind that ``fit`` was given. ``model.sampling`` says which method drew and how
            many independent rows the sample is worth; a low number warns.

        Raises
        ------
        ValueError
            An argument is not valid, or the method cannot draw from this density.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> model.sample(3, seed=0).shape
        (3, 1)
        >>> model.sampling.method
        'grid'
        """
        from .sampling import SAMPLING_METHODS, draw_sample

        n, seed = whole("n", n), as_seed(seed)
        check_choice("method", method, SAMPLING_METHODS)
        if method == "auto":
            self.log_normalizer  # noqa: B018 - warns once where samples are not reliable
        u, self.sampling = draw_sample(
            self.integrator, n, method=method, seed=seed, progress=progress
        )
        return self.table.frame(self.scaling.invert(u))

    def weighted_sample(self, n: int, seed: Seed = None) -> tuple[Array, Array]:
        """Draws and their weights, for means over the density; `sample` has equal weights.

        Parameters
        ----------
        n : int
            Number of draws.
        seed : int, None or numpy.random.Generator, default None

        Returns
        -------
        rows : (n, d) array
            In the units of the data.
        weights : (n,) array

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 2))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> rows, weights = model.weighted_sample(1000, seed=0)
        >>> (weights @ rows / weights.sum()).round(0).tolist()
        [5.0, 5.0]
        """
        u, weights = self.integrator.weighted_draws(whole("n", n), as_seed(seed))
        return self.scaling.invert(u), weights

    # -- files ------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, statistics: bool = False) -> None:
        """Write to an npz file without pickles; ``tgpfast.load`` reads it back bit by bit.

        A crash on the way leaves the file that was there.

        Parameters
        ----------
        path : str or path
        statistics : bool, default False
            Include the statistics that ``update`` needs, S^2 / 2 numbers or more.

        Raises
        ------
        TypeError
            The base is of a class of your own that is not registered; see ``register_base``.
        ValueError
            Statistics are asked for, and the model has none.

        Examples
        --------
        >>> import os, tempfile, numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(size=(1000, 2))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(os.path.join(folder, "model.npz"))
        ...     again = tgpfast.load(os.path.join(folder, "model.npz"))
        >>> bool((again.log_density(x) == model.log_density(x)).all())
        True
        """
        storage.write(path, self.file_kind, *self.members(statistics=statistics))

    def members(self, *, statistics: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
        """Facts and arrays of a file that holds the density.

        Parameters
        ----------
        statistics : bool, default False
            As for ``save``.
        """
        from .saving import density_members

        return density_members(self, statistics=statistics)

    @classmethod
    def _from_file(cls, path: Any, facts: dict[str, Any], arrays: dict[str, Any]) -> Density:
        from .saving import density_fields

        return cls(**density_fields(path, facts, arrays))

    def __repr__(self) -> str:
        return describe_briefly(self)


_updaters: list[Callable[..., Density]] = []


def register_updater(update: Callable[..., Density]) -> None:
    """Set the function behind ``Density.update``: it solves, and solvers build on this module."""
    _updaters[:] = [update]


storage.register_reader(DENSITY_KIND, Density._from_file)
