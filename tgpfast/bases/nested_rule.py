"""Gauss-Legendre rules for Gaussians in boxes, one whitened coordinate after the other."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from ..validation import Array
from .gaussian import GaussianBase

Rule = tuple[Array, Array]  # nodes on [0, 1], (n,), and logs of their weights


def panel_rule(panels: int, nodes: int) -> tuple[Array, Array]:
    """Nodes on [0, 1] and weights of Gauss-Legendre rules in equal panels."""
    t, w = np.polynomial.legendre.leggauss(nodes)
    x = (np.arange(panels)[:, None] + 0.5 + 0.5 * t) / panels
    return x.ravel(), np.tile(0.5 * w / panels, panels)


def nested_rule(
    part: GaussianBase, low: Array, high: Array, reach: float,
    choose_rule: Callable[[int, float], Rule],
) -> tuple[Array, Array]:  # fmt: skip
    """Nodes and log weights that integrate smooth functions against a Gaussian in a box.

    Parameters
    ----------
    part : GaussianBase
    low, high : (d,) arrays
        The box; -inf and inf where it has no end.
    reach : float
        Standard deviations from where the Gaussian is largest in the box.
    choose_rule : function (coordinate, widest range) -> Rule

    Returns
    -------
    x : (n, d) array
        Nodes.
    log_weights : (n,) array
        Logarithms of weights that sum to the mass in the box.
    """
    w, log_weights = np.zeros((1, 0)), np.zeros(1)
    for k in range(part.dimension):
        center = part.mean[k] + w @ part.cholesky[k, :k]
        a, b = ((end[k] - center) / part.cholesky[k, k] for end in (low, high))
        most = np.sqrt(np.square(np.clip(0.0, a, b)) + reach**2)
        a, b = np.clip(a, -most, most), np.clip(b, -most, most)
        w, log_weights = extend_rule(w, log_weights, a, b, functools.partial(choose_rule, k))
        log_weights -= 0.5 * np.square(w[:, k]) + 0.5 * math.log(2.0 * math.pi)
    return part.unwhiten(w), log_weights


def extend_rule(
    w: Array, log_weights: Array, a: Array, b: Array, choose_rule: Callable[[float], Rule]
) -> tuple[Array, Array]:
    """Add a coordinate between a and b, (n,) each, to rows (n, k): the rows with it, and logs of
    their weights. Rows without room are dropped.

    choose_rule : function of the widest range of the coordinate
    """
    room = b > a
    w, log_weights, a, b = w[room], log_weights[room], a[room], b[room]
    t, log_t = choose_rule(float((b - a).max(initial=0.0)))
    place = (a[:, None] + (b - a)[:, None] * t).ravel()
    log_weights = ((log_weights + np.log(b - a))[:, None] + log_t).ravel()
    return np.column_stack([np.repeat(w, len(t), axis=0), place]), log_weights
