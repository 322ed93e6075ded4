"""Arrays of many groups in a file: labels as arrays, and the checks of what was read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data import storage
from ..validation import Array

SAVED_KINDS = "iubfUMm"  # numpy kinds of labels that an npz file holds without pickles


def labels_to_array(labels: list[Any]) -> NDArray[Any]:
    """The labels as an array that `array_to_labels` turns back into equal labels.

    Raises
    ------
    TypeError
        If no such array exists.
    """
    array = _as_array(labels)
    if array.dtype.kind not in SAVED_KINDS or array_to_labels(array) != labels:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise TypeError(
            f"labels of kind {kinds} cannot be saved: all must be integers, all text, or all numpy "
            "times. Integers have at most 64 bits, and text does not end in NUL. Use other labels, "
            "for example str(label)"
        )
    return array


def array_to_labels(array: NDArray[Any]) -> list[Any]:
    """Labels from a file: numbers and text of Python, times of numpy."""
    return list(array) if array.dtype.kind in "Mm" else list(array.tolist())


def _as_array(labels: list[Any]) -> NDArray[Any]:
    """An array of the labels; of objects, which no file holds, where numpy would change them."""
    if all(type(label) is int for label in labels):
        is_wide = min(labels) >= 0 and 2**63 <= max(labels) < 2**64
        array = np.array(labels, np.uint64 if is_wide else None)
        return array if array.dtype.kind in "iu" else array.astype(object)
    if any(hasattr(label, "__len__") and not isinstance(label, str) for label in labels):
        return np.array([], object)  # numpy would make an array of several dimensions
    array = np.array(labels)
    dtypes = {getattr(label, "dtype", None) for label in labels}
    if array.dtype.kind in "Mm" and dtypes != {array.dtype}:
        return array.astype(object)  # times of Python, or of several units
    return array


def take_labels(arrays: dict[str, NDArray[Any]]) -> tuple[list[Any], NDArray[np.int64]]:
    """(labels, n_rows) of a file, checked and removed from ``arrays``."""
    labels, n_rows = arrays.pop("labels", None), arrays.pop("n_rows", None)
    if labels is None or labels.ndim != 1 or len(labels) == 0:
        raise ValueError("labels must be a list of at least one")
    names = array_to_labels(labels)
    if len(set(names)) != len(names):
        raise ValueError("labels must be distinct")
    if n_rows is None or n_rows.dtype.kind not in "iu" or n_rows.shape != labels.shape:
        raise ValueError("n_rows must be integers, one per group")
    return names, n_rows.astype(np.int64)


def take_arrays(
    path: Any, arrays: dict[str, NDArray[Any]], G: int, S: int, d: int
) -> dict[str, Array]:
    """The float64 arrays of a file by name, checked and removed from ``arrays``.

    G, S, d : numbers of groups, features and columns
    """
    shapes = {
        "theta": (G, S), "means": (G, d), "base_covariances": (G, d, d),
        "n": (G,), "scale": (d,), "shrinkage": (G,), "condition": (G,), "added": (G,),
    }  # fmt: skip
    taken = {name: storage.take(arrays, name, shape, path) for name, shape in shapes.items()}
    for name, array in taken.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite")
    normalizers = storage.take(arrays, "normalizers", (G, 4), path)
    if not np.isfinite(normalizers[~np.isnan(normalizers).all(axis=1)]).all():
        raise ValueError("normalizers must be finite, or missing")
    if not (taken["scale"] > 0).all():
        raise ValueError("scale must be positive")
    covariances = taken["base_covariances"]
    if not np.allclose(covariances, covariances.transpose(0, 2, 1), rtol=1e-8, atol=0.0):
        raise ValueError("base_covariances must be symmetric")
    np.linalg.cholesky(covariances)  # raises unless all are positive definite
    storage.check_all_taken(arrays, path)
    return {"normalizers": normalizers, **taken}
