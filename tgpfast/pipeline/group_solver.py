"""The FD systems of all groups: Gram matrices in batches, then one small solve per group.

Groups of similar size share one kernel call, in which every group is a lane of the same length.
Rows of weight zero pad a group to a length that depends on its own size alone. So neither the
batches nor the threads change a bit of the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dposv

from .. import kernels
from ..data.blocks import Blocks
from ..features.evaluation import Angles
from ..features.random import Features
from ..kernels import read_only
from ..kernels.thread_choice import Threads
from ..runtime import memory
from ..runtime.progress import Progress
from ..solvers.linear_systems import MOST_ADDED
from ..statistics.direct import DTYPES, accumulate_direct, required_memory
from ..validation import Array, Ints
from .group_rows import SortedRows

BATCH_GROUPS = 16  # groups per kernel call, if that is at least four per thread
BATCH_ROWS = 2**18  # rows per kernel call: a few MB per column
LARGE_GROUP_ROWS = 8_192  # a larger group is a pass of its own, with its rows shared by the threads


@dataclass(frozen=True, eq=False)
class GroupSolutions:
    """Solutions of all groups.

    Attributes
    ----------
    theta : ndarray of shape (G, S)
        Coefficients; nan where the sums of a group are not finite.
    condition : ndarray of shape (G,)
        Upper bounds of the condition numbers, trace over lam gamma^2.
    added : ndarray of shape (G,)
        Additions to the diagonals that rounding made necessary.
    """

    theta: Array
    condition: Array
    added: Array


class GroupSolver:
    """Solves (lam gamma^2 I + Z Z^T * Phi') theta = b for every group.

    Parameters
    ----------
    features : Features
    lam : float
    covariances : ndarray of shape (G, d, d)
        Covariances of the bases, whose means are 0.
    precision : {"float64", "mixed"}
    threads : Threads
    budget : int
        Bytes of working memory.

    References
    ----------
    Algorithm 2 of the paper (arXiv 2504.03485).
    """

    def __init__(
        self, features: Features, lam: float, covariances: Array, precision: str,
        threads: Threads, budget: int,
    ) -> None:  # fmt: skip
        self.features, self.covariances = features, covariances
        self.precision, self.budget = precision, budget
        self.module, self.n_threads = threads.resolve()
        z, gamma = features.frequencies, features.bandwidth
        self.outer, self.norms, self.ridge = z @ z.T, np.einsum("sk,sk->s", z, z), lam * gamma**2
        self.angles = Angles.of(features)
        # buffers that are used again: fresh pages cost as much as a solve
        self._grams, self._system = np.empty((0, 0, 0)), np.empty((len(z), len(z)))

    def solve(self, rows: SortedRows, progress: bool) -> GroupSolutions:
        """Solve for all groups of centered and scaled rows."""
        G, S = len(rows.counts), self.features.n_features
        solutions = GroupSolutions(np.empty((G, S)), np.empty(G), np.zeros(G))
        batches, large = self._plan_batches(rows)
        roots = np.sqrt(rows.w)
        with (
            np.errstate(over="ignore", invalid="ignore", divide="ignore"),  # nan marks the group
            Progress(progress, "groups", G) as bar,
        ):
            for length, groups in batches:
                grams, right = self._accumulate_batch(rows, roots, length, groups)
                self._solve_systems(groups, grams, right, solutions)
                bar.add(len(groups))
            for g in large:
                gram, right = self._accumulate_alone(rows, g)
                self._solve_systems(np.array([g]), gram, right, solutions)
                bar.add(1)
        return solutions

    def _plan_batches(self, rows: SortedRows) -> tuple[list[tuple[int, Ints]], list[int]]:
        """([(padded length, groups)], groups that are passes of their own), within the budget."""
        S, d = self.features.frequencies.shape
        large = np.flatnonzero(rows.counts > LARGE_GROUP_ROWS)
        small = np.flatnonzero(rows.counts <= LARGE_GROUP_ROWS)
        lengths = np.array([padded_length(n) for n in rows.counts[small].tolist()], np.int64)
        threads = self.n_threads
        fixed = 8 * (2 * threads * S * kernels.ROW_TILE + (3 + 2 * threads) * S * (S + d))
        batches, needed = [], 0
        if len(large):
            needed = fixed + required_memory(self.features, 0, False, self.precision, threads)
        for length in np.unique(lengths).tolist():
            groups = small[lengths == length]
            per_group = 8 * (S * (S + 4 * d + 4) + length * (2 * d + 2))
            needed = max(needed, fixed + per_group)
            size = min(max(BATCH_GROUPS, 4 * threads), (self.budget - fixed) // per_group)
            size = max(min(size, max(BATCH_ROWS // length, threads)), 1)
            batches += [(length, groups[at : at + size]) for at in range(0, len(groups), size)]
        if needed > self.budget:
            raise ValueError(
                f"a budget of {memory.format_bytes(self.budget)} does not hold one group with "
                f"{S:,} features, which takes {memory.format_bytes(needed)}; raise it or use fewer "
                "features"
            )
        return batches, large.tolist()

    def _accumulate_batch(
        self, rows: SortedRows, roots: Array, length: int, groups: Ints
    ) -> tuple[Array, Array]:
        """(Gram matrices, right-hand sides) of groups padded to one length, by one kernel call."""
        B, (S, d) = len(groups), self.features.frequencies.shape
        x, root = np.zeros((B * length, d)), np.zeros(B * length)
        for lane, g in enumerate(groups.tolist()):
            start, stop = rows.spans[g]
            part = slice(lane * length, lane * length + stop - start)
            x[part] = rows.x[:, start:stop].T
            root[part] = roots[start:stop]
        sum_phi, sum_dphi, sum_dphi_x = np.zeros((B, S)), np.zeros((B, S)), np.zeros((B, S, d))
        grams, dtype = self._zero_grams(B), DTYPES[self.precision]
        self.module.lane_rank_k(
            read_only(x), read_only(root), *self.angles, length, sum_phi, sum_dphi, sum_dphi_x,
            grams, np.zeros((0, 0, 0)),
            np.empty((self.n_threads, 2, S, kernels.ROW_TILE), dtype),
            np.empty((self.n_threads, 2, S, S), dtype), self.n_threads,
        )  # fmt: skip
        return grams, self._right_hand_sides(groups, sum_phi, sum_dphi_x)

    def _accumulate_alone(self, rows: SortedRows, g: int) -> tuple[Array, Array]:
        """(Gram matrix, right-hand side) of one large group, by the direct engine."""
        part = slice(*rows.spans[g])
        stats = accumulate_direct(
            Blocks(rows.x[:, part].T, sample_weight=rows.w[part]), self.features, np.zeros(0),
            np.zeros(len(rows.x)), gram_phi=False, precision=self.precision, backend=self.module,
            n_threads=self.n_threads,
        )  # fmt: skip
        right = self._right_hand_sides(np.array([g]), stats.sum_phi[None], stats.sum_dphi_x[None])
        return stats.gram[None], right

    def _zero_grams(self, B: int) -> Array:
        """(B, S, S) zeros in reused memory."""
        S = self.features.n_features
        if len(self._grams) < B:
            self._grams = np.empty((B, S, S))
        grams = self._grams[:B]
        grams.fill(0.0)
        return grams

    def _right_hand_sides(self, groups: Ints, sum_phi: Array, sum_dphi_x: Array) -> Array:
        """b = gamma psi' + |Z|^2 psi, (B, S), for bases with mean 0."""
        solved = np.linalg.solve(self.covariances[groups], sum_dphi_x.transpose(0, 2, 1))
        psi_prime = np.einsum("sk,bks->bs", self.features.frequencies, solved)
        return self.features.bandwidth * psi_prime + self.norms * sum_phi

    def _solve_systems(
        self, groups: Ints, grams: Array, right: Array, solutions: GroupSolutions
    ) -> None:
        """Solve for these groups one after the other, from the upper triangles of ``grams``.

        LAPACK in reused memory takes less than half the time of NumPy on a stack of matrices.
        """
        trace = np.einsum("bii,i->b", grams, self.norms) + len(self.norms) * self.ridge
        solutions.condition[groups] = np.minimum(trace / self.ridge, np.finfo(np.float64).max)
        finite = np.isfinite(trace) & np.isfinite(right).all(axis=1)
        solutions.theta[groups[~finite]] = np.nan
        diagonal = self._system.reshape(-1)[:: len(self._system) + 1]
        for k in np.flatnonzero(finite).tolist():
            np.multiply(grams[k], self.outer, out=self._system)
            diagonal += self.ridge
            _, theta, info = dposv(self._system.T, right[k], lower=1, overwrite_a=1)
            if info:
                theta, solutions.added[groups[k]] = self._solve_raised(grams[k], right[k])
            solutions.theta[groups[k]] = theta

    def _solve_raised(self, gram: Array, right: Array) -> tuple[Array, float]:
        """(theta, addition) where rounding prevents a Cholesky factor: raise the diagonal."""
        S = len(gram)
        matrix = gram * self.outer + self.ridge * np.eye(S)
        top = float(np.diag(matrix).max())
        added = S * np.finfo(float).eps * top
        while added < MOST_ADDED * top:
            _, theta, info = dposv((matrix + added * np.eye(S)).T, right, lower=1)
            if info == 0:
                return np.asarray(theta, np.float64), added
            added *= 10.0
        raise ValueError("the system of a group is far from positive definite; raise lam")


def padded_length(rows: int) -> int:
    """Length to which a group of ``rows`` rows is padded: at most an eighth more."""
    step = 1 << max(int(rows).bit_length() - 4, 0)
    return -(-rows // step) * step
