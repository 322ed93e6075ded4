"""`GroupedDensity`: the densities of many groups, one mapping, evaluated together, one file."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from ..bases.gaussian import GaussianBase
from ..bases.quasirandom import sobol_normals
from ..data import storage
from ..data.blocks import Blocks, Table
from ..data.labels import Ints, distinct_labels, label_values, python_time
from ..data.scaling import Scaling
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime.warnings import PoorNormalizerWarning, warn
from ..statistics.spectral import memory_budget
from ..validation import Array, without_far
from .component_grid import Lattice
from .density import Density
from .exponent import PointTilt
from .modes import find_modes
from .normalizer import (
    DRAWS,
    REPLICATES,
    Normalizer,
    average_replicates,
    estimate_by_importance,
    normalizer_of_quadrature,
)
from .proposal import Proposal
from .quadrature import Quadrature

KIND = "groups"
BLOCK = 2_048  # rows whose features are evaluated together
GRID_DIMENSIONS = 3  # up to which every group has grids of its own
LOG2_POINTS = 11  # of each replicate of Sobol points, at first
ENOUGH = 0.01  # standard error of log Z above which the replicates are made longer
GRID_BYTES = 2**29  # that the largest grid behind a normaliser takes while it is summed
POOR_NAMED = 5  # groups that a message names


class _OneOfMany(Density):
    """A `Density` whose normaliser is that of its group."""

    find: Any = None

    @functools.cached_property
    def log_normalizer(self) -> Normalizer:
        """log Z with standard error and effective sample size; see `Normalizer`."""
        if self.find is None:
            return self.integrator.log_normalizer
        found: Normalizer = self.find()
        return found

    def save(self, path: str | os.PathLike[str], *, statistics: bool = False) -> None:
        """As ``Density.save``, with the normaliser: a density alone would estimate another one."""
        self.integrator.log_normalizer = self.log_normalizer
        super().save(path, statistics=statistics)


class GroupedDensity(Mapping[Any, Density]):
    """Densities of many groups that share features and scale; made by ``fit_groups``.

    A mapping from labels to `Density`, which are made when asked for.

    Attributes
    ----------
    features : the `Features` of all groups, of u = (x - mean) / scale
    labels : of the groups, in the order of the arrays below
    theta : (G, S) coefficients
    means, covariances : (G, d), (G, d, d) of the bases, in the units of the data
    n : (G,) effective numbers of rows; n_rows : (G,) rows
    shrinkage : (G,) share of the pooled covariance in each base
    condition : (G,) bounds of the condition numbers, trace over lam gamma^2
    added : (G,) what rounding made add to the diagonals
    scale : (d,); settings : every choice that was made
    """

    def __init__(
        self, labels: list[Any], features: Features, theta: Array, means: Array,
        covariances: Array, n: Array, n_rows: Ints, scale: Array, *, shrinkage: Array,
        condition: Array, added: Array, settings: dict[str, Any], table: Table | None = None,
        threads: Threads | None = None, normalizers: Array | None = None,
    ) -> None:  # fmt: skip
        self.labels, self.features, self.theta, self.means = labels, features, theta, means
        self.n, self.n_rows, self.scale = n, n_rows, scale
        self.shrinkage, self.condition, self.added = shrinkage, condition, added
        self.settings, self.table = settings, table or Table()
        self.threads = threads or Threads()
        self._scaled = covariances  # of u
        self._index = {label: i for i, label in enumerate(labels)}
        for i, label in enumerate(labels):  # times of numpy hash unlike those of Python
            if (time := python_time(label)) is not None:
                self._index.setdefault(time, i)
        # value, standard error, effective sample size, points; NaN where not computed
        self._normalizers = np.full((len(labels), 4), np.nan)
        if normalizers is not None:
            self._normalizers[:] = normalizers

    @property
    def dimension(self) -> int:
        """d."""
        return self.features.dimension

    @property
    def covariances(self) -> Array:
        """(G, d, d), in the units of the data."""
        covariances: Array = self._scaled * np.outer(self.scale, self.scale)
        return covariances

    # -- a mapping -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.labels)

    def __contains__(self, label: object) -> bool:
        return self._find_label(label) is not None

    def _find_label(self, label: Any) -> int | None:
        try:
            place = self._index.get(label)
            # a time of pandas with nanoseconds hashes unlike that of numpy
            if place is None and not getattr(label, "tzinfo", None):
                place = self._index.get(getattr(label, "asm8", label))
            return place
        except TypeError:
            return None

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, label: Any) -> Density:
        g = self._place(label)
        model = _OneOfMany(
            self.settings["method"], self._tilt(g), self._base(g),
            settings=self._settings_of(g), table=self.table, threads=self.threads,
            diagnostics={
                "solver": "cholesky", "condition_bound": float(self.condition[g]),
                "added_to_diagonal": float(self.added[g]),
            },
            scaling=Scaling(self.means[g].copy(), self.scale),
        )  # fmt: skip
        model.find = functools.partial(self.log_normalizer, label)
        return model

    def _settings_of(self, g: int) -> dict[str, Any]:
        label = self.labels[g]
        skip = ("n_groups", "n_rows", "median_n", "n_shrunk")
        return {
            **{k: v for k, v in self.settings.items() if k not in skip},
            "group": label if isinstance(label, (str, int, float, bool)) else str(label),
            "n": float(self.n[g]), "n_rows": int(self.n_rows[g]),
            "base_shrinkage": float(self.shrinkage[g]),
        }  # fmt: skip

    def _place(self, label: Any) -> int:
        place = self._find_label(label)
        if place is None:
            raise KeyError(self._unknown(label))
        return place

    def _unknown(self, label: Any) -> str:
        """'no group ...', with the labels nearest to it."""
        import difflib

        if isinstance(label, str):
            texts = {str(known): known for known in self.labels}
            near = [texts[t] for t in difflib.get_close_matches(label, texts, 3)]
        else:
            try:
                near = sorted(self.labels, key=lambda known: abs(known - label))[:3]
            except TypeError:
                near = []
        hint = f"; near it: {', '.join(map(repr, near))}" if near else ""
        return f"no group {label!r} among {len(self):,}{hint}"

    def _tilt(self, g: int) -> PointTilt:
        return PointTilt(self.features, self.theta[g].copy(), np.zeros(self.dimension))

    def _base(self, g: int) -> GaussianBase:
        return GaussianBase(np.zeros(self.dimension), self._scaled[g])

    # -- evaluation ------------------------------------------------------------------------------

    def log_density(self, Y: Any, groups: Any, normalized: bool = True) -> Any:
        """Log density of every row of Y under its own group, (n,); a Series where Y is a frame.

        Parameters
        ----------
        Y : (n, d) rows in the units of the data, as for ``fit_groups``. Rows so far away that
            squares of distances overflow have a log density of -inf
        groups : (n,) their labels, or one label for all
        normalized : subtract log Z, which is estimated on first use for the groups that occur
        """
        blocks = Blocks(Y, dimension=self.dimension, columns=self.table.columns, name="Y")
        codes = self._codes(groups, blocks.n_rows)
        constants = self._log_constants
        if normalized:
            constants = constants - self._found(np.unique(codes))[:, 0]
        parts, at = [], 0
        for y, _ in blocks:
            here = codes if codes.ndim == 0 else codes[at : at + len(y)]
            at += len(y)
            if codes.ndim and at > len(codes):
                break
            parts += self._log_values(y, np.broadcast_to(here, len(y)), constants)
        if codes.ndim and at != len(codes):
            raise ValueError(f"groups has {len(codes):,} entries, but Y has another number of rows")
        return blocks.table.series(np.concatenate(parts), "log_density")

    def _codes(self, groups: Any, n_rows: int | None) -> Ints:
        """One index a row; of no dimension where there is one label for all rows."""
        if isinstance(groups, np.ndarray) and groups.ndim == 0:
            groups = groups[()]
        scalar = isinstance(groups, (str, bytes, frozenset)) or not hasattr(groups, "__len__")
        if scalar or groups in self:
            place = self._find_label(groups)
            if place is None:
                raise ValueError(f"groups: {self._unknown(groups)}")
            return np.array(place)
        values = label_values(groups)
        if n_rows is not None and len(values) != n_rows:
            raise ValueError(f"groups has {len(values):,} entries, but Y has {n_rows:,} rows")
        index = self._index
        try:
            if isinstance(values, np.ndarray):
                distinct, inverse = distinct_labels(values)
                places = np.array([index[v] for v in distinct.tolist()], np.int64)
                return np.asarray(places[inverse])
            return np.array([index[v] for v in values], np.int64)
        except (KeyError, TypeError):
            plain = values.tolist() if isinstance(values, np.ndarray) else values
            found = [self._find_label(v) for v in plain]
            if None in found:
                row = found.index(None)
                raise ValueError(f"groups, row {row}: {self._unknown(plain[row])}") from None
            return np.array(found, np.int64)

    @functools.cached_property
    def _whitening(self) -> Array:
        """L^-1 of every base, (G, d, d)."""
        return np.linalg.inv(np.linalg.cholesky(self._scaled))

    @functools.cached_property
    def _log_constants(self) -> Array:
        """Of the normal densities, in the units of the data, (G,)."""
        whitening = np.einsum("gii->gi", self._whitening)
        volume = 0.5 * self.dimension * np.log(2.0 * np.pi) + np.log(self.scale).sum()
        constants: Array = np.log(whitening).sum(axis=1) - volume
        return constants

    def _log_values(self, y: Array, codes: Ints, constants: Array) -> list[Array]:
        """theta_g . phi(u) - |L_g^-1 u|^2 / 2 + constants_g, block by block."""
        module, count = self.threads.resolve()
        S, d = self.features.frequencies.shape
        f, amplitude = self.features.frequencies / self.features.bandwidth, float(np.sqrt(2.0 / S))
        phi, dphi = np.empty((S, BLOCK)), np.empty((S, BLOCK))
        variances = np.einsum("gii->gi", self._scaled).max(axis=0)
        none = np.zeros(0)
        none.flags.writeable = False
        values = []
        with kernels.threads(module, count):
            for start in range(0, len(y), BLOCK):
                g = codes[start : start + BLOCK]
                with np.errstate(over="ignore"):
                    u = (y[start : start + BLOCK] - self.means[g]) / self.scale
                u, far = without_far(u, np.zeros(d), variances)
                u.flags.writeable = False
                module.feature_block(
                    u, none, np.zeros(d), f, self.features.phases.copy(), amplitude, dphi, phi,
                    np.zeros(S), np.zeros(S), np.zeros((S, d)), count,
                )  # fmt: skip
                tilt = np.einsum("si,is->i", phi[:, : len(u)], self.theta[g])
                white = np.einsum("ijk,ik->ij", self._whitening[g], u)
                value = tilt - 0.5 * np.einsum("ij,ij->i", white, white) + constants[g]
                value[far | np.isnan(value)] = -np.inf  # phases or distances are not finite
                values.append(value)
        return values

    def sample(self, label: Any, n: int, seed: int = 0, **options: Any) -> Any:
        """n rows drawn from the density of one group.

        Parameters
        ----------
        label : of the group
        n, seed, options : as for ``Density.sample``
        """
        return self[label].sample(n, seed, **options)

    # -- normalisers -----------------------------------------------------------------------------

    def log_normalizer(self, label: Any) -> Normalizer:
        """log Z of one group, with its error; estimated once and kept."""
        value, error, sample, points = self._found(np.array([self._place(label)]), label)
        method = "quadrature" if self.dimension <= GRID_DIMENSIONS else "importance"
        return Normalizer(float(value), float(error), float(sample), method, int(points))

    @property
    def poor(self) -> list[Any]:
        """Labels of the groups whose normalisers, as far as known, are not to be trusted."""
        return [self.labels[g] for g in np.flatnonzero(self._poor)]

    @property
    def _poor(self) -> NDArray[np.bool_]:
        known = self._normalizers
        return np.array([
            not np.isnan(v) and Normalizer(v, e, s, "", 0).is_poor for v, e, s, _ in known.tolist()
        ])  # fmt: skip

    def _found(self, which: Ints, *one: Any) -> Array:
        """Normalisers, those of the groups asked for among them, (G, 4); of one group, (4,)."""
        unknown = which[np.isnan(self._normalizers[which, 0])]
        if len(unknown):
            self._find(unknown)
            poor = unknown[self._poor[unknown]]
            if len(poor):
                named = ", ".join(repr(self.labels[g]) for g in poor[:POOR_NAMED])
                more = ", ..." if len(poor) > POOR_NAMED else ""
                warn(
                    f"the normalisers of {len(poor):,} of {len(self):,} groups ({named}{more}) "
                    f"rest on too few effective samples of {DRAWS:,}: nearly all of their mass "
                    "lies where the base has almost none, so that their normalised densities and "
                    "samples are not to be trusted; result.poor lists them. Raise lam (10 times, "
                    "say) or gamma",
                    PoorNormalizerWarning,
                )
        found: Array = self._normalizers[which[0]] if one else self._normalizers
        return found

    def _find(self, which: Ints) -> None:
        module, count = self.threads.resolve()
        with kernels.threads(module, count):
            if self.dimension <= GRID_DIMENSIONS:
                most = max(memory_budget() // GRID_BYTES, 1)
                if self.dimension > 2:
                    most = 1  # transforms silence warnings, which threads must not do at once
                with ThreadPoolExecutor(min(count, most)) as pool:
                    found = list(pool.map(self._by_grid, which.tolist()))
            else:
                points = [sobol_normals(self.dimension, LOG2_POINTS, r) for r in range(REPLICATES)]
                draws = np.concatenate(points)
                draws.flags.writeable = False
                found = [self._by_sobol(g, draws, module, count) for g in which.tolist()]
        for g, result in zip(which.tolist(), found, strict=True):
            self._normalizers[g] = (
                result.value, result.standard_error, result.effective_sample_size, result.n_points
            )  # fmt: skip

    def _by_grid(self, g: int) -> Normalizer:
        tilt = self._tilt(g)
        lattice = _tensor_lattice(tilt) if self.dimension <= 2 else None
        return normalizer_of_quadrature(Quadrature(tilt, self._base(g), self.threads, lattice))

    def _by_sobol(self, g: int, draws: Array, module: ModuleType, count: int) -> Normalizer:
        """As for one density, with an eighth of the draws where these are enough; the draws are the
        same for all groups, whose frequencies are whitened instead."""
        tilt, base = self._tilt(g), self._base(g)
        modes = find_modes(tilt, base, self.threads)
        if modes is not None:  # the base's own draws would miss them
            return estimate_by_importance(tilt, Proposal(base, modes), self.threads)
        f = np.ascontiguousarray(self.features.frequencies @ base.cholesky)
        f /= self.features.bandwidth
        values = np.empty(len(draws))
        module.tilt(
            draws, np.zeros(self.dimension), f, self.features.phases.copy(),
            tilt.amplitude * tilt.theta, values, count,
        )  # fmt: skip
        found = average_replicates(values.reshape(REPLICATES, -1))
        if found.is_poor or found.standard_error > ENOUGH:
            found = estimate_by_importance(tilt, Proposal(base), self.threads, annealed=False)
        return found

    # -- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all groups to one npz file without pickles; ``tgpfast.load`` reads it back."""
        labels = _as_saved(self.labels)
        if labels.dtype.kind not in "iubfUMm" or _as_labels(labels) != self.labels:
            kinds = ", ".join(sorted({type(label).__name__ for label in self.labels}))
            raise TypeError(
                f"labels of kind {kinds} cannot be saved: all must be integers, all text, or all "
                "times of numpy; give the groups such labels, by str() say. Integers have at most "
                "64 bits, and text does not end in NUL"
            )
        f = self.features
        arrays: dict[str, Any] = {
            "labels": labels, "frequencies": f.frequencies, "phases": f.phases,
            "theta": self.theta, "means": self.means, "base_covariances": self._scaled,
            "n": self.n, "n_rows": self.n_rows, "scale": self.scale,
            "shrinkage": self.shrinkage, "condition": self.condition, "added": self.added,
            "normalizers": self._normalizers,
        }  # fmt: skip
        if f.covariance is not None:
            arrays["covariance"] = f.covariance
        facts = {
            "bandwidth": f.bandwidth, "seed": f.seed, "settings": self.settings,
            "columns": self.table.columns, "kind_of_table": self.table.kind,
        }  # fmt: skip
        storage.write(path, KIND, facts, arrays)

    @classmethod
    def _from_file(
        cls, path: Any, facts: dict[str, Any], arrays: dict[str, Any]
    ) -> GroupedDensity:
        name = os.fspath(path)
        take = functools.partial(storage.take, arrays, path=path)
        z = take("frequencies", None)
        labels, n_rows = arrays.pop("labels", None), arrays.pop("n_rows", None)
        if z.ndim != 2 or labels is None or labels.ndim != 1 or len(labels) == 0:
            raise ValueError(f"{name!r} is damaged: frequencies or labels")
        (S, d), G = z.shape, len(labels)
        shapes = {
            "phases": (S,), "theta": (G, S), "means": (G, d), "base_covariances": (G, d, d),
            "n": (G,), "scale": (d,), "shrinkage": (G,), "condition": (G,), "added": (G,),
        }  # fmt: skip
        if "covariance" in arrays:
            shapes["covariance"] = (d, d)
        got = {key: take(key, shape) for key, shape in shapes.items()}
        normalizers = take("normalizers", (G, 4))
        try:
            for key, array in got.items():
                if not np.isfinite(array).all():
                    raise ValueError(f"{key} must be finite")
            if not (got["scale"] > 0).all():
                raise ValueError("scale must be positive")
            if n_rows is None or n_rows.dtype.kind not in "iu" or n_rows.shape != (G,):
                raise ValueError("n_rows must be integers, one a group")
            known = ~np.isnan(normalizers).all(axis=1)
            if not np.isfinite(normalizers[known]).all():
                raise ValueError("normalizers must be finite, or lacking")
            C = got["base_covariances"]
            if not np.allclose(C, C.transpose(0, 2, 1), rtol=1e-8, atol=0.0):
                raise ValueError("base_covariances must be symmetric")
            np.linalg.cholesky(C)
            if arrays:
                raise ValueError(f"unexpected members {sorted(arrays)}")
            names = _as_labels(labels)
            if len(set(names)) != G:
                raise ValueError("labels must be distinct")
            settings = dict(facts["settings"])
            if settings["method"] != "fd":
                raise ValueError(f"method {settings['method']!r} is not known")
            features = Features(
                z, got["phases"], facts["bandwidth"], covariance=got.get("covariance"),
                seed=facts["seed"],
            )  # fmt: skip
            return cls(
                names, features, got["theta"], got["means"], C, got["n"],
                n_rows.astype(np.int64), got["scale"], shrinkage=got["shrinkage"],
                condition=got["condition"], added=got["added"], settings=settings,
                table=Table.from_facts(facts["columns"], facts["kind_of_table"], d),
                normalizers=normalizers,
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, np.linalg.LinAlgError) as error:
            raise ValueError(f"{name!r} is damaged: {error}") from error

    def __repr__(self) -> str:
        return (
            f"GroupedDensity(n_groups={len(self):,}, method={self.settings['method']!r}, "
            f"d={self.dimension}, n_features={self.features.n_features}, "
            f"bandwidth={self.features.bandwidth:.6g})"
        )


def _as_saved(labels: list[Any]) -> NDArray[Any]:
    """An array of the labels; of objects, which no file holds, where numpy would change them."""
    if all(type(label) is int for label in labels):
        wide = min(labels) >= 0 and 2**63 <= max(labels) < 2**64
        array = np.array(labels, np.uint64 if wide else None)
        return array if array.dtype.kind in "iu" else array.astype(object)
    if any(hasattr(label, "__len__") and not isinstance(label, str) for label in labels):
        return np.array([], object)  # an array would not have one dimension
    array = np.array(labels)
    if array.dtype.kind in "Mm" and {getattr(label, "dtype", None) for label in labels} != {
        array.dtype
    }:
        return array.astype(object)  # times of Python, or of several units
    return array


def _as_labels(array: NDArray[Any]) -> list[Any]:
    """The labels that were saved: numbers and text of Python, times of numpy."""
    return list(array) if array.dtype.kind in "Mm" else list(array.tolist())


def _tensor_lattice(tilt: PointTilt) -> Lattice:
    """The exponent on a lattice of one or two dimensions, as a product of two matrices.

    cos(f . (corner + m @ steps) + c) is Re of a factor for the corner times one for each index.
    """
    f = tilt.features.frequencies / tilt.features.bandwidth
    strengths = tilt.amplitude * tilt.theta

    def lattice(corner: Array, steps: Array, shape: tuple[int, ...]) -> Array:
        turned = strengths * np.exp(1j * (tilt.features.phases + f @ corner))
        first = np.exp(1j * np.outer(np.arange(shape[0]), f @ steps[0])) * turned
        if len(shape) == 1:
            return np.asarray(first.real.sum(axis=1))
        second = np.exp(1j * np.outer(np.arange(shape[1]), f @ steps[1]))
        return np.asarray(first.real @ second.real.T - first.imag @ second.imag.T)

    return lattice


storage.register_reader(KIND, GroupedDensity._from_file)
