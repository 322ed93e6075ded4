"""Densities as facts and arrays of a file, and back."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ..bases.base import Base, check_registered, describe_base, load_base
from ..bases.mixture import MixtureBase
from ..data import storage
from ..data.column_maps import ColumnMaps, MappedScaling
from ..data.scaling import Scaling
from ..data.table import Table
from ..features.lattice import LatticeFeatures
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..statistics.feature_means import FeatureMeans
from ..statistics.lattice_statistics import LatticeStatistics, take_modes
from ..statistics.statistics import Statistics, pack_triangle, unpack_triangle
from ..validation import Array
from .draws.proposal import Proposal
from .exponents.exponent import PointTilt, PredictiveTilt, Tilt
from .exponents.lattice_exponent import LatticeTilt
from .normalizing.integration import Integrator
from .normalizing.normalizer import Normalizer

SAVED_METHODS = ("fd", "ncfd", "fvpd", "map", "base")
LATTICE_PREFIX = "lattice_"  # of the names of the arrays of lattice features
MAPS_PREFIX = "maps_"  # of the names of the arrays of column maps
MODES_PREFIX = "modes_"  # of the names of the arrays of modes
STATISTICS_PREFIX = "statistics_"  # of the names of the arrays of statistics
BASE_PREFIX = "base_"  # of the names of the parameters of a base
UNPREFIXED = ("mean",)  # parameters of a base that have no prefix in files

Take = Callable[[str, tuple[int, ...]], Array]  # name, shape -> array of the file


# -- writing --------------------------------------------------------------------------------------


def density_members(model: Any, *, statistics: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts and arrays of a file that holds a `Density`.

    Parameters
    ----------
    model : Density
    statistics : bool
        Whether to include the statistics that ``update`` needs.

    Raises
    ------
    TypeError
        The class of the base is not registered.
    ValueError
        Statistics are asked for, and the model has none.
    """
    integrator = model.integrator
    kind, parameters = describe_base(model.base)
    of_tilt, arrays = _tilt_members(model.tilt)
    arrays |= {
        "shift": model.scaling.shift, "scale": model.scaling.scale, **_base_members(parameters)
    }  # fmt: skip
    if isinstance(model.scaling, MappedScaling):
        arrays |= _add_prefix(MAPS_PREFIX, model.scaling.maps.parameters())
    known = integrator.known_normalizer
    proposal = None if integrator.uses_quadrature else integrator.known_proposal
    if proposal is not None and proposal.modes is not None:  # samples depend on them
        arrays |= _add_prefix(MODES_PREFIX, _base_members(proposal.modes.parameters()))
    facts = {
        "method": model.method, **of_tilt,
        "base": kind, "selection": model.selection,
        "settings": model.settings, "diagnostics": model.diagnostics,
        "columns": model.table.columns, "kind_of_table": model.table.kind,
        "normalizer": None if known is None else known.__dict__,
        "covered": proposal is not None,
    }  # fmt: skip
    if statistics:
        if model.statistics is None:
            raise ValueError("statistics=True: this model does not hold its statistics")
        facts["statistics"], sums = model.statistics.to_members()
        arrays |= _add_prefix(STATISTICS_PREFIX, sums)
    return facts, arrays


def _tilt_members(tilt: Tilt) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts and arrays of an exponent and its features."""
    if isinstance(tilt, LatticeTilt):
        facts, arrays = tilt.features.members
        box = _add_prefix(LATTICE_PREFIX, arrays)
        return {"lattice": facts}, {**box, "theta": storage.as_reals(tilt.theta)}
    facts, arrays = tilt.features.members
    arrays["origin"] = tilt.origin
    if isinstance(tilt, PointTilt):
        return facts, {**arrays, "theta": tilt.theta}
    return facts, {**arrays, "m": tilt.m, "factor": pack_triangle(tilt.factor.T)}


def _add_prefix(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays with a prefix before their names; see `_take_prefixed`."""
    return {prefix + name: array for name, array in arrays.items()}


def _base_members(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a base under the names that they have in files."""
    return {
        name if name in UNPREFIXED else BASE_PREFIX + name: array
        for name, array in parameters.items()
    }


# -- reading --------------------------------------------------------------------------------------


def density_fields(path: Any, facts: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `Density` from the facts and arrays of a file.

    Raises
    ------
    ValueError
        Says what is wrong with the file, or that the class of the base is not registered.
    """
    name = repr(os.fspath(path))
    kind = str(facts.get("base", "gaussian"))
    try:
        check_registered(kind)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    try:
        return _density_fields(path, kind, facts, dict(arrays))
    except (KeyError, TypeError, ValueError) as error:
        text = str(error)
        raise ValueError(text if name in text else f"{name} is damaged: {text}") from error


def _density_fields(
    path: Any, kind: str, facts: dict[str, Any], arrays: dict[str, Any]
) -> dict[str, Any]:
    """As `density_fields`; takes what it reads out of the arrays."""
    take = functools.partial(storage.take, arrays, path=path)
    method = facts["method"]
    if method not in SAVED_METHODS:
        raise ValueError(f"method {method!r} is not known")
    is_lattice = "lattice" in facts
    tilt = _take_lattice(facts, arrays, path) if is_lattice else _take_tilt(facts, arrays, path)
    d = tilt.features.dimension
    shift, scale = take("shift", (d,)), take("scale", (d,))
    is_finite = np.isfinite(shift).all() and np.isfinite(tilt.origin).all()
    if not (is_finite and (scale > 0).all() and np.isfinite(scale).all()):
        raise ValueError("shift, scale and origin must be finite, and scale positive")
    scaling = _take_scaling(shift, scale, arrays, path)
    statistics = (
        _take_statistics(path, tilt.features, facts, arrays) if "statistics" in facts else None
    )
    modes = _take_modes(arrays, d)
    base = _take_base(kind, arrays, d)
    storage.check_all_taken(arrays, path)
    threads = Threads()
    integrator = Integrator(
        tilt, base, threads, proposal=Proposal(base, modes) if facts.get("covered") else None,
        normalizer=_read_normalizer(facts["normalizer"]),
    )  # fmt: skip
    return {
        "method": method, "tilt": tilt, "base": base, "settings": dict(facts["settings"]),
        "diagnostics": dict(facts["diagnostics"]), "scaling": scaling,
        "table": Table.from_facts(facts["columns"], facts["kind_of_table"], d),
        "threads": threads, "selection": facts.get("selection"), "statistics": statistics,
        "integrator": integrator,
    }  # fmt: skip


def _take_scaling(shift: Array, scale: Array, arrays: dict[str, Any], path: Any) -> Scaling:
    maps = _take_prefixed(arrays, MAPS_PREFIX)
    if not maps:
        return Scaling(shift, scale)
    taken = {name: storage.take(maps, name, None, path) for name in tuple(maps)}
    found = ColumnMaps.from_parameters(taken)
    if len(found.maps) != len(shift):
        raise ValueError(f"there are {len(found.maps)} column maps for {len(shift)} columns")
    return MappedScaling(shift, scale, found)


def _take_lattice(facts: dict[str, Any], arrays: dict[str, Any], path: Any) -> LatticeTilt:
    box = _take_prefixed(arrays, LATTICE_PREFIX)
    features = LatticeFeatures.from_members(
        facts["lattice"], {name: storage.take(box, name, None, path) for name in tuple(box)}
    )
    theta = take_modes(arrays, "theta", features.mode_shape, features, path)
    if not np.isfinite(theta).all():
        raise ValueError("theta must be finite")
    return LatticeTilt(features, theta)


def _take_tilt(facts: dict[str, Any], arrays: dict[str, Any], path: Any) -> Tilt:
    features = Features.from_members(path, facts, arrays)
    take: Take = functools.partial(storage.take, arrays, path=path)
    S, origin = features.n_features, take("origin", (features.dimension,))
    if facts["method"] != "fvpd":
        theta = take("theta", (S,))
        if not np.isfinite(theta).all():
            raise ValueError("theta must be finite")
        return PointTilt(features, theta, origin)
    m, triangle = take("m", (S,)), take("factor", (S * (S + 1) // 2,))
    factor = np.tril(unpack_triangle(triangle, S))
    if not (np.isfinite(factor).all() and (np.diag(factor) > 0).all()):
        raise ValueError("the factor of M must be finite with a positive diagonal")
    if not np.isfinite(m).all():
        raise ValueError("m must be finite")
    return PredictiveTilt(features, factor, m, origin)


def _take_prefixed(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names begin with a prefix, without it."""
    names = [name for name in arrays if name.startswith(prefix)]
    return {name.removeprefix(prefix): arrays.pop(name) for name in names}


def _take_base(kind: str, arrays: dict[str, Any], d: int) -> Base:
    parameters = _take_prefixed(arrays, BASE_PREFIX)
    parameters |= {name: arrays.pop(name) for name in UNPREFIXED if name in arrays}
    for name, array in parameters.items():
        if array.dtype != np.float64 and array.dtype.kind != "U":
            raise ValueError(f"{name!r} of the base is {array.dtype}, expected float64")
    base = load_base(kind, parameters)
    if base.dimension != d:
        raise ValueError(f"the base has dimension {base.dimension}, the features have {d}")
    return base


def _take_modes(arrays: dict[str, Any], d: int) -> MixtureBase | None:
    members = _take_prefixed(arrays, MODES_PREFIX)
    if not members:
        return None
    modes = _take_base(MixtureBase.kind, members, d)
    if members or not isinstance(modes, MixtureBase):
        raise ValueError(f"unexpected members {sorted(members)} of the modes")
    return modes


def _take_statistics(
    path: Any, features: Any, facts: dict[str, Any], arrays: dict[str, Any]
) -> Any:
    sums = _take_prefixed(arrays, STATISTICS_PREFIX)
    if isinstance(features, LatticeFeatures):
        return LatticeStatistics.from_members(path, dict(facts["statistics"]), sums)
    sums_class: Any = FeatureMeans if sums.keys() == {"sum_phi"} else Statistics
    return sums_class.from_members(path, features, dict(facts["statistics"]), sums)


def _read_normalizer(facts: dict[str, Any] | None) -> Normalizer | None:
    if facts is None:
        return None
    found = Normalizer(**facts)
    numbers = [v for name, v in facts.items() if name != "method" and v is not None]
    if not all(isinstance(v, (int, float)) for v in numbers) or not np.isfinite(found.value):
        raise ValueError("the normalizer is not a number")
    return found
