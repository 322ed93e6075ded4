"""`Density`: what learning returns. Log density, gradient, samples, marginal CDF, save and load."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..bases.base import Base, check_registered, describe_base, load_base
from ..bases.gaussian import GaussianBase
from ..data import storage
from ..data.blocks import BLOCK_ROWS, Blocks, Table, as_blocks
from ..data.scaling import Scaling
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..statistics.feature_sums import FeatureSums
from ..statistics.spectral import DIMENSIONS
from ..statistics.statistics import Statistics, packed, unpacked
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
from .exponent import PointTilt, PredictiveTilt, Tilt
from .modes import find_modes
from .normalizer import (
    EXACT,
    Normalizer,
    by_importance,
    by_quadrature,
    of_quadrature,
    warn_if_poor,
)
from .proposal import Proposal
from .quadrature import Quadrature
from .sampling import METHODS, SamplingReport, draw, draw_from_grids

KIND = "density"
MODES = "modes_"  # before the names of the arrays of modes in a saved model
STATISTICS = "statistics_"  # before the names of their members in a saved model
OLD_NAMES = {("gaussian", "mean"): "mean"}  # parameters whose members lack the prefix "base_"
LEARNED = ("fd", "ncfd", "fvpd", "map", "base")
TRANSFORM_ROWS = 2**20  # rows evaluated together where a transform may serve
MARGINAL_LOG2_POINTS = 17  # points behind marginal_cdf where d > 3


@dataclass(eq=False)
class Density:
    """q(x) proportional to exp{tilt(x)} base(x); made by ``fit`` and ``solve``.

    Rows are given and returned in the units of the data; ``features``, ``base``, ``theta``, ``M``
    and ``m`` are in the model's own coordinates, which differ only where ``fit`` has scaled.

    Attributes
    ----------
    method : "fd", "ncfd", "fvpd", "map", or "base": the base alone, nothing is tilted
    features, base : the `Features` of the exponent, and what it tilts
    settings : every choice that was made, and how
    diagnostics : condition, residual, what was added to the diagonal, iterations
    sampling : how the last call of ``sample`` drew, None before
    selection : the candidates that ``fit`` compared, best first, one dictionary each; None where
        every setting was given
    statistics : those it was learned from, which ``update`` needs; set to None to let them go
    """

    method: str
    tilt: Tilt
    base: Base
    settings: dict[str, Any] = field(default_factory=dict)
    diagnostics: dict[str, Any] = field(default_factory=dict)
    scaling: Scaling | None = None
    table: Table = field(default_factory=Table)
    threads: Threads = field(default_factory=Threads)
    sampling: SamplingReport | None = field(default=None, init=False)
    selection: list[dict[str, Any]] | None = field(default=None, init=False)
    statistics: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.scaling is None:
            self.scaling = Scaling.identity(self.dimension)

    # -- parameters ------------------------------------------------------------------------------

    @property
    def features(self) -> Features:
        """The random Fourier features."""
        return self.tilt.features

    @property
    def dimension(self) -> int:
        """d."""
        return self.base.dimension

    @property
    def theta(self) -> Array:
        """(S,) coefficients of a point model; FVPD has ``M`` and ``m`` instead."""
        if isinstance(self.tilt, PointTilt):
            return self.tilt.theta
        raise AttributeError("an FVPD model has no theta: it has M and m (and M^-1 m)")

    @property
    def M(self) -> Array:
        """(S, S) matrix of FVPD (Eq. predictive), rebuilt from its Cholesky factor at each call."""
        return self._predictive("M").M

    @property
    def m(self) -> Array:
        """(S,) vector of FVPD (Eq. predictive)."""
        return self._predictive("m").m

    def _predictive(self, name: str) -> PredictiveTilt:
        if isinstance(self.tilt, PredictiveTilt):
            return self.tilt
        raise AttributeError(f"a {self.method} model has no {name}: it has theta")

    # -- more rows -------------------------------------------------------------------------------

    def update(
        self, X: Any, *, sample_weight: Any = None, decay: float = 1.0, progress: bool = False
    ) -> Density:
        """The model learned from the rows so far and those of X: a new one; this one stays.

        Features, scaling, lambda, eta and method are kept. The base is made anew from the moments
        of all rows where ``fit`` had made it so (base="empirical"), else kept, as it is by MAP that
        was learned from sums of features alone; where ``fit`` took a mixture or Student base alone,
        there is nothing to learn, and a warning says so. Costs a pass over X and one solve, which
        conjugate gradients start at the present theta.

        Parameters
        ----------
        X : rows in the units of the data, as for ``fit``
        sample_weight : (n,), as for ``fit``
        decay : what the weights of all earlier rows are multiplied by first, in (0, 1]; once an
            update, however many rows it brings. After many updates of m rows each,
            m / (1 - decay) rows count
        progress : show a bar on standard error
        """
        return _updaters[0](self, X, sample_weight, decay, progress)

    # -- evaluation ------------------------------------------------------------------------------

    def log_density(self, Y: Any, normalized: bool = True) -> Any:
        """Log density of every row of Y, (n,); a Series where Y is a data frame.

        Parameters
        ----------
        Y : (n, d) rows in the units of the data, as for ``fit``. Rows so far away that squares of
            distances overflow (beyond 1e150 standard deviations) have a log density of -inf
        normalized : subtract log Z, which is estimated on first use (see ``log_normalizer``)
        """
        blocks = self._blocks(Y)
        constant = -self._scaling.log_volume
        if normalized:
            constant -= self.log_normalizer.value
        if blocks.in_parts:
            return blocks.evaluated(self, "log_density", normalized=normalized)
        parts = []
        for u, far, _ in self._rows(blocks):
            value = self.tilt.value(u, self.threads) + self.base.log_density_at(u) + constant
            value[far | np.isnan(value)] = -np.inf  # phases or distances are not finite
            parts.append(value)
        return blocks.table.series(np.concatenate(parts), "log_density")

    def grad_log_density(self, Y: Any) -> Any:
        """Gradient of the log density at every row of Y, (n, d); a frame where Y is one.

        ValueError names the first row that is so far away that its log density is -inf.
        """
        blocks, parts = self._blocks(Y), []
        if blocks.in_parts:
            return blocks.evaluated(self, "grad_log_density")
        for u, far, first in self._rows(blocks):
            slope = self.tilt.gradient(u, self.threads)[1]
            with np.errstate(over="ignore", invalid="ignore"):
                slope = (slope + self.base.score_at(u)) / self._scaling.scale
            check_derivative("gradient", slope, far, first)
            parts.append(slope)
        return blocks.table.frame(np.concatenate(parts))

    def laplacian_log_density(self, Y: Any) -> Any:
        """Trace of the Hessian of the log density at every row of Y, (n,).

        ValueError names the first row that is so far away that its log density is -inf.
        """
        stretch = 1.0 / self._scaling.scale
        blocks, parts = self._blocks(Y), []
        if blocks.in_parts:
            return blocks.evaluated(self, "laplacian_log_density")
        for u, far, first in self._rows(blocks):
            of_tilt = self.tilt.laplacian(u, stretch, self.threads)
            with np.errstate(over="ignore", invalid="ignore"):
                total = of_tilt + self.base.laplacian_at(u, stretch)
            check_derivative("Laplacian", total, far, first)
            parts.append(total)
        return blocks.table.series(np.concatenate(parts), "laplacian")

    @functools.cached_property
    def log_normalizer(self) -> Normalizer:
        """log Z with standard error and effective sample size, estimated once; see `Normalizer`.

        Warns where too few samples carry the density to trust it.
        """
        if self.tilt.is_zero:
            return EXACT
        if isinstance(self._cover, Quadrature):
            result = of_quadrature(self._cover)
        else:
            result = by_importance(self.tilt, self._cover, self.threads)
        warn_if_poor(result)
        return result

    @functools.cached_property
    def _cover(self) -> Quadrature | Proposal:
        """Grids, in one to three dimensions, or draws that cover the density, found once."""
        return self._covered(None)

    def cover_from(self, rows: Array) -> None:
        """Seek modes from some rows of the data too, in the model's coordinates; for `fit`, before
        the normalizer is known."""
        if not self.tilt.is_zero:
            self.__dict__["_cover"] = self._covered(rows)

    def _covered(self, rows: Array | None) -> Quadrature | Proposal:
        if by_quadrature(self.base):
            return Quadrature(self.tilt, self.base, self.threads)
        return Proposal(self.base, find_modes(self.tilt, self.base, self.threads, rows))

    def __getstate__(self) -> dict[str, Any]:
        """Without the grids, which are large and can be made again."""
        state = {k: v for k, v in self.__dict__.items() if k != "_marginal_sample"}
        if isinstance(state.get("_cover"), Quadrature):
            del state["_cover"]
        return state

    def marginal_cdf(self, direction: Any, grid: Any) -> Array:
        """P(x . direction <= grid_j) for x from this density, (G,).

        Exact up to quadrature for d <= 3; from 131,072 weighted points otherwise, with a standard
        error of about half over the root of those that count.

        Parameters
        ----------
        direction : (d,), in the units of the data; any length but zero
        grid : (G,) values along it, in any order
        """
        v = as_floats(direction, "direction", f"({self.dimension},)", 1)
        points = as_floats(grid, "grid", "(G,)", 1)
        if len(v) != self.dimension or not v.any():
            raise ValueError(
                f"direction must have shape ({self.dimension},) and not be zero, got {v.tolist()}"
            )
        # in powers of two, which change no bit: squares of directions and scales stay in range
        power = np.frexp(np.abs(v).max())[1]
        with np.errstate(over="ignore"):  # a place beyond all is as good as infinite
            v, points = np.ldexp(v, -power), np.ldexp(points, -power)
        if isinstance(self._cover, Quadrature):
            # v . x = v . shift + (v * scale) . u; in powers of two, so that products stay in range
            power = np.frexp(self._scaling.scale.max())[1]
            along = v * np.ldexp(self._scaling.scale, -power)
            offset = float(v @ self._scaling.shift)
            with np.errstate(over="ignore"):
                return self._cover.marginal_cdf(along, np.ldexp(points - offset, -power))
        x, weights = self._marginal_sample
        projection = x @ v
        order = np.argsort(projection)
        running = np.cumsum(weights[order])
        running = np.concatenate([[0.0], running / running[-1]])
        return np.asarray(running[np.searchsorted(projection[order], points, side="right")])

    @functools.cached_property
    def _marginal_sample(self) -> tuple[Array, Array]:
        """Points in the units of the data and their weights, once for all directions."""
        assert isinstance(self._cover, Proposal)
        u = self._cover.sobol(MARGINAL_LOG2_POINTS, seed=0)
        log_weights = self._cover.log_weights(self.tilt, u, self.threads)
        return self._scaling.invert(u), np.exp(log_weights - log_weights.max())

    # -- draws -----------------------------------------------------------------------------------

    def sample(
        self, n: int, seed: Seed = None, *, method: str = "auto", progress: bool = False
    ) -> Any:
        """n rows drawn from the density, (n, d), of the kind that ``fit`` was given.

        Parameters
        ----------
        n : how many
        seed : None draws anew at each call; an integer gives the same rows each time, for any
            number of threads; a NumPy ``Generator`` gives its next rows
        method : "grid" (exact, up to three columns), "importance" (fresh draws, kept by their
            weight), "mala" (parallel Langevin chains), or "auto": draws of the base where the
            density is its base alone, else the first of these that serves. ``model.sampling`` says
            which drew and how many independent rows the sample is worth; a low number warns
        progress : show a bar on standard error
        """
        n, seed = whole("n", n), as_seed(seed)
        check_choice("method", method, METHODS)
        if method == "auto":
            self.log_normalizer  # noqa: B018 - warns once where samples are not to be trusted
        needs = method != "mala" and not (self.tilt.is_zero and method == "auto")
        u, self.sampling = draw(
            self.tilt, self.base, self.threads, self._cover if needs else Proposal(self.base),
            n, method=method, seed=seed, progress=progress,
        )  # fmt: skip
        return self.table.frame(self._scaling.invert(u))

    def at_noise(self, sigma: float) -> Density:
        """The density at another resolution, q(y | sigma); models learned with method="ncfd".

        sigma is in the model's coordinates: standard deviations where ``fit`` has standardised. Of
        a density that is at some noise already it is what is added, by squares:
        ``settings["sigma"]`` is the noise in all.
        """
        is_alone = self.method == "base" and isinstance(self.base, GaussianBase)
        if self.method != "ncfd" and not is_alone:
            raise ValueError(
                f'at_noise needs a model learned with method="ncfd"; this one is "{self.method}"'
            )
        level = float(as_floats(sigma, "sigma", "()", 0))
        if level < 0 or level * level == np.inf:
            raise ValueError(f"sigma={level}: expected a number of at least 0, of a finite square")
        assert isinstance(self.tilt, PointTilt)
        f = self.features
        features = Features(
            f.frequencies, f.phases, float(np.hypot(f.bandwidth, level)), covariance=f.covariance,
            seed=f.seed,
        )  # fmt: skip
        base = GaussianBase(
            self.base.mean, self.base.covariance + level**2 * np.eye(self.dimension)
        )
        # noise upon noise adds by squares
        settings = {**self.settings, "sigma": math.hypot(self.settings.get("sigma", 0.0), level)}
        return replace(
            self, tilt=replace(self.tilt, features=features), base=base, settings=settings
        )

    def _weighted_sample(self, n: int, seed: int) -> tuple[Array, Array]:
        """Draws in the units of the data and their weights: what `evaluate` asks for."""
        u, weights = self._weighted_points(n, seed)
        return self._scaling.invert(u), weights

    def _weighted_points(self, n: int, seed: int) -> tuple[Array, Array]:
        """Draws in the model's coordinates and their weights; those of grids all have the same."""
        rng = np.random.default_rng(seed)
        if self.tilt.is_zero:
            return self.base.draw(n, rng), np.ones(n)
        if isinstance(self._cover, Quadrature):
            return draw_from_grids(self._cover, n, rng)[0], np.ones(n)
        u = self._cover.draw(n, rng)
        log_weights = self._cover.log_weights(self.tilt, u, self.threads)
        return u, np.exp(log_weights - log_weights.max())

    # -- input and output ------------------------------------------------------------------------

    @property
    def _scaling(self) -> Scaling:
        assert self.scaling is not None
        return self.scaling

    def _blocks(self, Y: Any) -> Any:
        return as_blocks(
            Y, dimension=self.dimension, columns=self.table.columns, name="Y",
            block_rows=TRANSFORM_ROWS if self.dimension <= DIMENSIONS else BLOCK_ROWS,
        )  # fmt: skip

    def _rows(self, blocks: Blocks) -> Any:
        """(rows in the model's units, which of them are too far away to have a density, number of
        the first) of every block; rows too far away are moved to the mean of the base."""
        first, variances = 0, np.diag(self.base.covariance)
        for x, _ in blocks:
            with np.errstate(over="ignore"):
                u, far = without_far(self._scaling.apply(x), self.base.mean, variances)
            yield u, far, first
            first += len(x)

    def save(self, path: str | os.PathLike[str], *, statistics: bool = False) -> None:
        """Write to an npz file without pickles; ``tgpfast.load`` reads it back bit by bit.

        A crash on the way leaves the file that was there. statistics : also those that ``update``
        needs, S^2 / 2 numbers or more.
        """
        f, scaling = self.features, self._scaling
        arrays = {
            "frequencies": f.frequencies, "phases": f.phases, "origin": self.tilt.origin,
            "shift": scaling.shift, "scale": scaling.scale,
        }  # fmt: skip
        kind, parameters = _base_members(self.base)
        arrays.update(parameters)
        if f.covariance is not None:
            arrays["covariance"] = f.covariance
        if isinstance(self.tilt, PointTilt):
            arrays["theta"] = self.tilt.theta
        else:
            arrays["m"], arrays["factor"] = self.tilt.m, packed(self.tilt.factor.T)
        known, cover = self.__dict__.get("log_normalizer"), self.__dict__.get("_cover")
        if isinstance(cover, Proposal) and cover.modes is not None:  # samples depend on them
            arrays.update(_base_members(cover.modes, MODES)[1])
        facts = {
            "method": self.method, "bandwidth": f.bandwidth, "seed": f.seed,
            "base": kind, "selection": self.selection,
            "settings": self.settings, "diagnostics": self.diagnostics,
            "columns": self.table.columns, "kind_of_table": self.table.kind,
            "normalizer": None if known is None else known.__dict__,
            "covered": isinstance(cover, Proposal),
        }  # fmt: skip
        if statistics:
            if self.statistics is None:
                raise ValueError("statistics=True: this model does not hold its statistics")
            facts["statistics"], sums = self.statistics._members()
            arrays.update({STATISTICS + name: array for name, array in sums.items()})
        storage.write(path, KIND, facts, arrays)

    @classmethod
    def _from_file(cls, path: Any, facts: dict[str, Any], arrays: dict[str, Any]) -> Density:
        z = storage.take(arrays, "frequencies", None, path)
        if z.ndim != 2:
            raise ValueError(f"{os.fspath(path)!r} is damaged: frequencies")
        S, d = z.shape
        take = functools.partial(storage.take, arrays, path=path)
        phases, origin = take("phases", (S,)), take("origin", (d,))
        shift, scale = take("shift", (d,)), take("scale", (d,))
        drawn = take("covariance", (d, d)) if "covariance" in arrays else None
        try:
            check_registered(kind := str(facts.get("base", "gaussian")))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)!r}: {error}") from None
        try:
            sound = np.isfinite(shift).all() and np.isfinite(origin).all()
            if not (sound and (scale > 0).all() and np.isfinite(scale).all()):
                raise ValueError("shift, scale and origin must be finite, and scale positive")
            if facts["method"] not in LEARNED:
                raise ValueError(f"method {facts['method']!r} is not known")
            modes: Any = None
            if any(name.startswith(MODES) for name in arrays):
                modes = _take_base("mixture", arrays, d, MODES)
            base = _take_base(kind, arrays, d)
            table = Table.from_facts(facts["columns"], facts["kind_of_table"], d)
            features = Features(
                z, phases, facts["bandwidth"], covariance=drawn, seed=facts["seed"]
            )
            tilt: Tilt
            if facts["method"] == "fvpd":
                m, triangle = take("m", (S,)), take("factor", (S * (S + 1) // 2,))
                factor = np.tril(unpacked(triangle, S))
                if not (np.isfinite(factor).all() and (np.diag(factor) > 0).all()):
                    raise ValueError("the factor of M must be finite with a positive diagonal")
                if not np.isfinite(m).all():
                    raise ValueError("m must be finite")
                tilt = PredictiveTilt(features, factor, m, origin)
            else:
                tilt = PointTilt(features, take("theta", (S,)), origin)
                if not np.isfinite(tilt.theta).all():
                    raise ValueError("theta must be finite")
            stats: Any = None
            if "statistics" in facts:
                names = [name for name in arrays if name.startswith(STATISTICS)]
                sums = {name.removeprefix(STATISTICS): arrays.pop(name) for name in names}
                known = dict(facts["statistics"])
                sums_class: Any = FeatureSums if sums.keys() == {"sum_phi"} else Statistics
                stats = sums_class._from_members(path, features, known, sums)
            if arrays:
                raise ValueError(f"unexpected members {sorted(arrays)}")
            model = cls(
                method=str(facts["method"]), tilt=tilt, base=base,
                settings=dict(facts["settings"]), diagnostics=dict(facts["diagnostics"]),
                scaling=Scaling(shift, scale),
                table=table,
            )  # fmt: skip
            model.selection, model.statistics = facts.get("selection"), stats
            if facts.get("covered"):
                model.__dict__["_cover"] = Proposal(base, modes)
            if facts["normalizer"] is not None:
                model.__dict__["log_normalizer"] = _normalizer_from(facts["normalizer"])
            return model
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(path)!r} is damaged: {error}") from error

    def __repr__(self) -> str:
        if self.method == "base":
            return f"Density(method='base', d={self.dimension}, {type(self.base).__name__} alone)"
        return (
            f"Density(method={self.method!r}, d={self.dimension}, "
            f"n_features={self.features.n_features}, bandwidth={self.features.bandwidth:.6g})"
        )


def _base_members(base: Base, prefix: str = "") -> tuple[str, dict[str, Any]]:
    """Kind of a base, and its parameters under the names of the members of a file."""
    kind, parameters = describe_base(base)
    names = {name: OLD_NAMES.get((kind, name), f"base_{name}") for name in parameters}
    return kind, {prefix + names[name]: array for name, array in parameters.items()}


def _take_base(kind: str, arrays: dict[str, Any], d: int, prefix: str = "") -> Base:
    """The base whose members begin with a prefix; they are taken out of the arrays."""
    parameters = {}
    for name in list(arrays):
        plain = name.removeprefix(prefix)
        if name.startswith(prefix) and (plain.startswith("base_") or plain == "mean"):
            if arrays[name].dtype != np.float64 and arrays[name].dtype.kind != "U":
                raise ValueError(f"{name!r} is {arrays[name].dtype}, expected float64")
            parameters[plain.removeprefix("base_")] = arrays.pop(name)
    base = load_base(kind, parameters)
    if base.dimension != d:
        raise ValueError(f"the base has dimension {base.dimension}, the features have {d}")
    return base


def _normalizer_from(facts: dict[str, Any]) -> Normalizer:
    found = Normalizer(**facts)
    numbers = [found.value, found.standard_error, found.effective_sample_size, found.n_points]
    numbers += [found.n_modes]
    numbers += [v for v in (found.annealed, found.annealed_error) if v is not None]
    if not all(isinstance(v, (int, float)) for v in numbers) or not np.isfinite(found.value):
        raise ValueError("the normaliser is not a number")
    return found


_updaters: list[Callable[..., Density]] = []


def register_updater(update: Callable[..., Density]) -> None:
    """Set the function behind ``Density.update``: it solves, and solvers build on this module."""
    _updaters[:] = [update]


storage.register_reader(KIND, Density._from_file)
