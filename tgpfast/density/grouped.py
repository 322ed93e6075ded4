"""`GroupedDensity`: the densities of many groups as one mapping and one file."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..bases.gaussian import GaussianBase
from ..data import storage
from ..data.blocks import Blocks
from ..data.scaling import Scaling
from ..data.table import Table
from ..features.evaluation import evaluate_features
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime.warnings import PoorNormalizerWarning, warn
from ..validation import Array, Ints, Seed, as_seed, without_far
from .answers.describing import METHOD_WORDS, list_facts, tabulate_facts
from .density import Density
from .exponents.exponent import PointTilt
from .group_files import labels_to_array, take_arrays, take_labels
from .group_index import GroupIndex
from .normalizing.group_normalizers import GroupNormalizers
from .normalizing.normalizer import DRAWS, Normalizer

GROUPS_KIND = "groups"  # of a saved file
FEATURE_ROWS = 2_048  # rows whose features are evaluated together: S of them fit the cache
NAMED_GROUPS = 5  # groups that a warning names
SETTINGS_OF_ALL = ("n_groups", "n_rows", "median_n", "n_shrunk")  # not settings of one group


class _GroupMember(Density):
    """A `Density` that takes its normalizer from its group."""

    find_normalizer: Any = None

    @functools.cached_property
    def log_normalizer(self) -> Normalizer:
        """log Z with standard error and effective sample size; see `Normalizer`."""
        if self.find_normalizer is None:
            return self.integrator.log_normalizer
        return self.find_normalizer()

    def save(self, path: str | os.PathLike[str], *, statistics: bool = False) -> None:
        """As ``Density.save``, with the normalizer: a single density would estimate another."""
        self.integrator.log_normalizer = self.log_normalizer
        super().save(path, statistics=statistics)


class GroupedDensity(Mapping[Any, Density]):
    """Densities of many groups that share features and scale; made by ``fit_groups``.

    It is a mapping from labels to `Density` objects, which are made on access.

    Attributes
    ----------
    labels : list
        Labels of the G groups, in the order of the arrays below.
    features : Features
        Features of u = (x - mean) / scale, the same for all groups.
    theta : ndarray of shape (G, S)
        Coefficients.
    means : ndarray of shape (G, d)
        Means of the bases, in the units of the data.
    covariances : ndarray of shape (G, d, d)
        Covariances of the bases, in the units of the data.
    n : ndarray of shape (G,)
        Effective numbers of rows.
    n_rows : ndarray of shape (G,)
        Numbers of rows.
    scale : ndarray of shape (d,)
    shrinkage : ndarray of shape (G,)
        Share of the pooled covariance in each base.
    condition : ndarray of shape (G,)
        Upper bounds of the condition numbers, trace over lam gamma^2.
    added : ndarray of shape (G,)
        Additions to the diagonals that rounding made necessary.
    settings : dict
        Every choice that was made.
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
        self._scaled_covariances = covariances
        self._index = GroupIndex(labels)
        self._normalizers = GroupNormalizers(
            self._parts_of, len(labels), features.dimension, normalizers
        )

    @property
    def dimension(self) -> int:
        """Number of columns d."""
        return self.features.dimension

    @property
    def covariances(self) -> Array:
        """Covariances of the bases in the units of the data, (G, d, d)."""
        return self._scaled_covariances * np.outer(self.scale, self.scale)

    # -- mapping ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.labels)

    def __contains__(self, label: object) -> bool:
        return self._index.find(label) is not None

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, label: Any) -> Density:
        g = self._place_of(label)
        tilt, base = self._parts_of(g)
        model = _GroupMember(
            self.settings["method"], tilt, base, settings=self._settings_of(g), table=self.table,
            threads=self.threads,
            diagnostics={
                "solver": "cholesky", "condition_bound": float(self.condition[g]),
                "added_to_diagonal": float(self.added[g]),
            },
            scaling=Scaling(self.means[g].copy(), self.scale),
        )  # fmt: skip
        model.find_normalizer = functools.partial(self.log_normalizer, label)
        return model

    def _place_of(self, label: Any) -> int:
        place = self._index.find(label)
        if place is None:
            raise KeyError(self._index.describe_unknown(label))
        return place

    def _parts_of(self, g: int) -> tuple[PointTilt, GaussianBase]:
        """(tilt, base) of the group at place g, in scaled coordinates."""
        zeros = np.zeros(self.dimension)
        tilt = PointTilt(self.features, self.theta[g].copy(), zeros)
        return tilt, GaussianBase(zeros, self._scaled_covariances[g])

    def _settings_of(self, g: int) -> dict[str, Any]:
        label = self.labels[g]
        return {
            **{k: v for k, v in self.settings.items() if k not in SETTINGS_OF_ALL},
            "group": label if isinstance(label, (str, int, float, bool)) else str(label),
            "n": float(self.n[g]), "n_rows": int(self.n_rows[g]),
            "base_shrinkage": float(self.shrinkage[g]),
        }  # fmt: skip

    # -- evaluation ------------------------------------------------------------------------------

    def log_density(self, Y: Any, groups: Any, normalized: bool = True) -> Any:
        """Log density of every row of Y under the density of its own group.

        Parameters
        ----------
        Y : rows of shape (n, d)
            In the units of the data, as for ``fit_groups``.
        groups : sequence of n labels, or one label for all rows
        normalized : bool, default True
            Subtract log Z, which is estimated at first use for the groups that occur.

        Returns
        -------
        ndarray of shape (n,), or a series if Y is a frame
            -inf for rows so far away that squared distances overflow.

        Raises
        ------
        ValueError
            If a label is unknown, or the number of labels is not that of the rows.
        """
        blocks = Blocks(Y, dimension=self.dimension, columns=self.table.columns, name="Y")
        places = self._index.find_rows(groups, blocks.n_rows)
        constants = self._log_constants
        if normalized:
            self._compute_normalizers(np.unique(places))
            constants = constants - self._normalizers.known[:, 0]
        parts, at = [], 0
        for y, _ in blocks:
            here = places if places.ndim == 0 else places[at : at + len(y)]
            at += len(y)
            if places.ndim and at > len(places):
                break
            parts += self._evaluate_block(y, np.broadcast_to(here, len(y)), constants)
        if places.ndim and at != len(places):
            raise ValueError(
                f"groups has {len(places):,} entries, but Y has another number of rows"
            )
        return blocks.table.series(np.concatenate(parts), "log_density")

    @functools.cached_property
    def _whitening(self) -> Array:
        """Inverse Cholesky factors L^-1 of the bases' covariances, (G, d, d)."""
        return np.linalg.inv(np.linalg.cholesky(self._scaled_covariances))

    @functools.cached_property
    def _log_constants(self) -> Array:
        """Log constants of the normal densities in the units of the data, (G,)."""
        whitening = np.einsum("gii->gi", self._whitening)
        volume = 0.5 * self.dimension * np.log(2.0 * np.pi) + np.log(self.scale).sum()
        return np.log(whitening).sum(axis=1) - volume

    def _evaluate_block(self, y: Array, places: Ints, constants: Array) -> list[Array]:
        """theta_g . phi(u) - |L_g^-1 u|^2 / 2 + constants_g of every row, in pieces."""
        S, d = self.features.frequencies.shape
        out = np.empty((S, FEATURE_ROWS)), np.empty((S, FEATURE_ROWS))
        variances = np.einsum("gii->gi", self._scaled_covariances).max(axis=0)
        values = []
        for start in range(0, len(y), FEATURE_ROWS):
            g = places[start : start + FEATURE_ROWS]
            with np.errstate(over="ignore"):
                u = (y[start : start + FEATURE_ROWS] - self.means[g]) / self.scale
            u, far = without_far(u, np.zeros(d), variances)
            phi, _ = evaluate_features(self.features, u, threads=self.threads, out=out)
            tilt = np.einsum("si,is->i", phi, self.theta[g])
            white = np.einsum("ijk,ik->ij", self._whitening[g], u)
            value = tilt - 0.5 * np.einsum("ij,ij->i", white, white) + constants[g]
            value[far | np.isnan(value)] = -np.inf  # phases or distances overflow
            values.append(value)
        return values

    def sample(self, label: Any, n: int, seed: Seed = None, **options: Any) -> Any:
        """Draw rows from the density of one group.

        Parameters
        ----------
        label : object
            Label of the group.
        n : int
            Number of rows.
        seed : int, None or numpy.random.Generator, default None
            None draws new rows at every call.
        **options
            As for ``Density.sample``.

        Returns
        -------
        ndarray of shape (n, d), or a frame if ``fit_groups`` was given one
        """
        return self[label].sample(n, as_seed(seed), **options)

    # -- normalizers -----------------------------------------------------------------------------

    def log_normalizer(self, label: Any) -> Normalizer:
        """log Z of one group with its error, estimated at first use.

        Parameters
        ----------
        label : object
            Label of the group.

        Returns
        -------
        Normalizer
        """
        g = self._place_of(label)
        self._compute_normalizers(np.array([g]))
        return self._normalizers[g]

    @property
    def poor(self) -> list[Any]:
        """Labels of the groups whose normalizers are known to be unreliable."""
        return [self.labels[g] for g in np.flatnonzero(self._normalizers.is_poor)]

    def _compute_normalizers(self, places: Ints) -> None:
        """Compute what is missing, with one warning for all groups with a poor normalizer."""
        poor = self._normalizers.compute_missing(places, self.threads)
        if len(poor):
            named = ", ".join(repr(self.labels[g]) for g in poor[:NAMED_GROUPS])
            more = ", ..." if len(poor) > NAMED_GROUPS else ""
            warn(
                f"the normalizers of {len(poor):,} of {len(self):,} groups ({named}{more}) are "
                f"unreliable: too few of {DRAWS:,} test points carry their mass, so do not trust "
                "their normalized densities and samples. result.poor lists these groups. Raise "
                "lam (for example 10 times) or gamma",
                PoorNormalizerWarning,
            )

    # -- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all groups to one npz file without pickles; ``tgpfast.load`` reads it.

        Parameters
        ----------
        path : str or path

        Raises
        ------
        TypeError
            If the labels cannot be saved: all must be integers, all text, or all numpy times.
        """
        of_features, arrays = self.features.members
        members: dict[str, Any] = {
            **arrays, "labels": labels_to_array(self.labels), "theta": self.theta,
            "means": self.means, "base_covariances": self._scaled_covariances,
            "n": self.n, "n_rows": self.n_rows, "scale": self.scale,
            "shrinkage": self.shrinkage, "condition": self.condition,
            "added": self.added, "normalizers": self._normalizers.known,
        }  # fmt: skip
        facts = {
            **of_features, "settings": self.settings,
            "columns": self.table.columns, "kind_of_table": self.table.kind,
        }  # fmt: skip
        storage.write(path, GROUPS_KIND, facts, members)

    @classmethod
    def _from_file(cls, path: Any, facts: dict[str, Any], arrays: dict[str, Any]) -> GroupedDensity:
        labels, n_rows = take_labels(arrays)
        features = Features.from_members(path, facts, arrays)
        got = take_arrays(path, arrays, len(labels), *features.frequencies.shape)
        settings = dict(facts["settings"])
        if settings["method"] != "fd":
            raise ValueError(f"method {settings['method']!r} is not known")
        return cls(
            labels, features, got["theta"], got["means"], got["base_covariances"], got["n"],
            n_rows, got["scale"], shrinkage=got["shrinkage"], condition=got["condition"],
            added=got["added"], settings=settings,
            table=Table.from_facts(facts["columns"], facts["kind_of_table"], features.dimension),
            normalizers=got["normalizers"],
        )  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"GroupedDensity(n_groups={len(self):,}, method={self.settings['method']!r}, "
            f"d={self.dimension}, n_features={self.features.n_features}, "
            f"bandwidth={self.features.bandwidth:.6g}, n_rows={int(self.n_rows.sum())})"
        )

    def summary(self) -> str:
        """What the groups share, and how many rows they have.

        Returns
        -------
        str
            A line for each fact. ``result[label].summary()`` describes one group.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(size=600)
        >>> print(tgpfast.fit_groups(x, np.arange(600) % 3, n_features=50).summary())
        groups      3: 0, 1, 2
        columns     1
        method      fd, Fisher divergence
        ...
        """
        return list_facts(self._collect_facts())

    def _repr_html_(self) -> str:
        """A table of facts."""
        return f"<div>{tabulate_facts(self._collect_facts())}</div>"

    def _collect_facts(self) -> dict[str, str]:
        settings, names, counts = self.settings, self.table.columns, self.n_rows
        more = ", ..." if len(self) > NAMED_GROUPS else ""
        facts = {
            "groups": f"{len(self):,}: {', '.join(map(str, self.labels[:NAMED_GROUPS]))}{more}",
            "columns": f"{self.dimension}" + (f": {', '.join(names)}" if names else ""),
            "method": f"{settings['method']}, {METHOD_WORDS[settings['method']]}",
            "exponent": f"{self.features.n_features:,} features, bandwidth "
            f"{self.features.bandwidth:.4g}, lambda {settings['lam']:.4g}",
            "base": f"a Gaussian in each group ({settings['base']})",
            "rows": f"{counts.sum():,}; a group has {counts.min():,} to {counts.max():,}",
        }  # fmt: skip
        if settings["n_shrunk"]:
            facts["beware"] = f"{settings['n_shrunk']:,} groups have a shrunk covariance"
        if self.poor:
            facts["UNRELIABLE"] = f"the normalizers of {len(self.poor):,} groups"
        return facts


storage.register_reader(GROUPS_KIND, GroupedDensity._from_file)
