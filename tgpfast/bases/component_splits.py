"""Splits of mixture components in two: proposals, their gains, and mixtures grown by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..runtime.records import record
from ..validation import Array
from .expectation_maximization import Components, Learner, Moments, Rows

LEADING_AXES = 4  # principal axes of a component along which splits are proposed
PAIR_STEPS = 5  # steps of EM of the two halves on the rows of the component
INNER, OUTER = 0.4, 1.6  # variances of the halves of a split in width, over the component's
HALF_OFFSET = np.sqrt(2.0 / np.pi)  # mean of the upper half of a standard normal


class Splits(NamedTuple):
    """The best split of every component."""

    gains: Array  # (K,) log-likelihood that the component's own rows gain; -inf without a split
    held_gains: Array  # (K,) the same of held-out rows; 0 without any
    halves: Components  # (K, 2, ...); the weights of two halves sum to the component's


def propose_halves(
    components: Components, learner: Learner, rng: np.random.Generator
) -> Iterator[tuple[Array, Array]]:
    """(means (K, 2, d), covariances (K, 2, d, d)) of the halves of every component.

    First cut along leading principal axes, then along a random axis, then (unless covariances are
    tied) in an inner and an outer half.
    """
    means, covariances = components.means, components.covariances
    K, d = means.shape
    axes = np.linalg.eigh(covariances)[1]
    draws = rng.standard_normal((K, d))
    directions = [axes[:, :, d - 1 - j] for j in range(min(LEADING_AXES, d))]
    for direction in [*directions, draws] if d > 1 else directions:
        slope = np.einsum("kij,kj->ki", covariances, direction)
        slope /= np.sqrt(np.einsum("ki,ki->k", slope, direction))[:, None]
        offset = HALF_OFFSET * slope
        inside = covariances
        if not learner.is_tied:
            inside = covariances - offset[:, :, None] * offset[:, None, :]
        if learner.covariances == "diagonal":
            inside = inside * np.eye(d)
        yield np.stack([means - offset, means + offset], axis=1), np.stack([inside] * 2, axis=1)
    if not learner.is_tied:
        widths = np.stack([INNER * covariances, OUTER * covariances], axis=1)
        yield np.stack([means] * 2, axis=1), widths


def find_splits(
    rows: Rows, learner: Learner, components: Components, rng: np.random.Generator,
    *, held: Rows | None = None, guard: Array | None = None,
) -> Splits:  # fmt: skip
    """The best split of every component, by EM of two halves on the rows that are most likely its.

    Of all proposals the one counts that gains most on the rows it was learned from.

    Parameters
    ----------
    rows : Rows
    learner : Learner
    components : Components
    rng : numpy Generator
        For the random axis.
    held : Rows, default None
        Rows on which the gains are measured as well.
    guard : (n held,) array, default None
        Log density of a guard component at the held-out rows. It bounds what one outlier gains.
    """
    K = len(components.weights)
    means, covariances = map(
        np.stack, zip(*propose_halves(components, learner, rng), strict=True)
    )
    own = _Owned.find(rows, learner, components, np.full(len(rows.y), -np.inf))
    weights = np.broadcast_to(0.5 * components.weights[:, None], (len(means), K, 2))
    halves, alive = _learn_halves(own.rows, learner, Components(weights, means, covariances))
    pairs = learner.find_coefficients(halves)
    gains = own.gains(pairs)
    gains[~alive | np.isnan(gains)] = -np.inf
    best = gains.argmax(axis=0), np.arange(K)
    held_gains = np.zeros(K)
    if held is not None:
        without = np.full(len(held.y), -np.inf)
        judge = _Owned.find(held, learner, components, without if guard is None else guard)
        held_gains = judge.gains(pairs[best])
    return Splits(gains[best], held_gains, Components(*(array[best] for array in halves)))


@record
class _Owned:
    """Rows sorted by their most likely component, and what they gain by its halves."""

    rows: Rows
    tied: Array | float  # what coefficients of tied components lack
    guard: Array  # log density of a guard component
    parent: Array  # log (weight_k N_k + guard) of the component k that a row belongs to

    @classmethod
    def find(cls, rows: Rows, learner: Learner, components: Components, guard: Array) -> _Owned:
        coefficients = learner.find_coefficients(components)
        labels = rows.evaluate(coefficients, labels=True).labels
        own, order = rows.by_label(labels, len(coefficients)), np.argsort(labels, kind="stable")
        tied = learner.tied_term(own, components)
        alone = own.evaluate(coefficients[:, None]).log_density + tied
        return cls(own, tied, guard[order], np.logaddexp(alone, guard[order]))

    def gains(self, pairs: Array) -> Array:
        """Log-likelihood that the rows of every component gain, (..., K).

        pairs : (..., K, 2, P), one pair for every component
        """
        found = self.rows.evaluate(_by_lane(pairs)).log_density
        each = np.logaddexp(found + self.tied, self.guard) - self.parent
        gains = np.array([self.rows.sum_by_lane(values) for values in each])
        return gains.reshape(pairs.shape[:-2])


def _by_lane(pairs: Array) -> Array:
    """(..., K, 2, P) -> (K, J, 2, P): the J pairs of a component share its rows."""
    return np.ascontiguousarray(pairs.reshape(-1, *pairs.shape[-3:]).swapaxes(0, 1))


def _learn_halves(own: Rows, learner: Learner, halves: Components) -> tuple[Components, np.ndarray]:
    """(halves after PAIR_STEPS of EM, which pairs have enough rows in both).

    own : one lane for every component; halves : (J, K, 2, ...), J proposals for each of K of them
    """
    weights, means, covariances = (array.copy() for array in halves)
    total, d = weights.sum(axis=-1, keepdims=True), means.shape[-1]
    alive = np.ones(weights.shape[:-1], bool)
    targets: Array | None = None
    for _ in range(PAIR_STEPS):
        pairs = learner.find_coefficients(Components(weights, means, covariances), blurred=True)
        sums = own.evaluate(_by_lane(pairs), sums=True).sums.swapaxes(0, 1)
        moments = learner.read_moments(sums, own.count)
        alive &= (moments.counts >= learner.least_rows).all(axis=-1)
        # pairs that are out stay as they are; their moments only must be finite
        counts = np.where(alive[..., None], moments.counts, learner.least_rows)
        centers, scatters = moments.means, moments.scatters
        scatters[~alive] = np.eye(d)
        moments = Moments(counts, centers, scatters)
        if targets is None:
            targets = np.stack([
                learner.find_targets(Moments(*of_proposal))
                for of_proposal in zip(*moments, strict=True)
            ])  # fmt: skip
        weights[alive] = (total * counts / counts.sum(axis=-1, keepdims=True))[alive]
        means[alive] = centers[alive]
        if not learner.is_tied:
            covariances[alive] = learner.find_covariances(moments, targets)[alive]
    return Components(weights, means, covariances), alive


def apply_splits(components: Components, splits: Splits, scores: Array, limit: int) -> Components:
    """Components of which the best ``limit`` by score are replaced by their halves."""
    order = np.argsort(-scores, kind="stable")[:limit]
    chosen = np.sort(order[np.isfinite(splits.gains[order])])
    rest = np.setdiff1d(np.arange(len(scores)), chosen)
    halves = splits.halves.take(chosen)
    flat = Components(*(array.reshape(-1, *array.shape[2:]) for array in halves))
    return components.take(rest).join(flat)
