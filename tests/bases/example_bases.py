"""Bases and rows that tests of several bases share."""

import math

import numpy as np

import tgpfast as tgp

MixtureBase, StudentBase = tgp.MixtureBase, tgp.StudentBase


def matrices(rng, K, d):
    """K well-conditioned covariances: eigenvalues of 0.5 and more."""
    half = rng.normal(size=(K, d, d)) / math.sqrt(2 * d)
    return half @ half.transpose(0, 2, 1) + 0.5 * np.eye(d)


def make_mixture(d=2, K=3, seed=0):
    rng = np.random.default_rng(seed)
    return MixtureBase(rng.dirichlet(np.full(K, 4.0)), rng.normal(0, 1.5, (K, d)),
                       matrices(rng, K, d))  # fmt: skip


def make_student(d=2, degrees=4.0, seed=0):
    rng = np.random.default_rng(seed)
    return StudentBase(rng.normal(size=d), matrices(rng, 1, d)[0], degrees)


def make_rows(n=300, d=2, seed=1):
    """Two clusters of unequal spread."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d))
    rows[: n // 3] = 0.4 * rows[: n // 3] + 2.0
    return rng.permutation(rows)


def make_features(d=2, S=20, gamma=0.8):
    return tgp.Features.draw(S, gamma, np.eye(d), seed=3)


def assert_monte_carlo(samples, expected, n_errors=5.0):
    """Means of samples (m, ...) within 5 standard errors: chance fails one in 2 million."""
    error = samples.std(axis=0, ddof=1) / math.sqrt(len(samples))
    worst = np.max(np.abs(samples.mean(axis=0) - expected) / error)
    assert worst <= n_errors, f"{worst:.1f} standard errors"


def clusters(n=3_000, seed=0):
    """Three components, 12 standard deviations apart: rows tell theirs without doubt."""
    rng = np.random.default_rng(seed)
    truth = MixtureBase(
        [0.5, 0.3, 0.2], [[0.0, 0.0], [12.0, 0.0], [0.0, 12.0]],
        [np.eye(2), [[1.0, 0.5], [0.5, 1.0]], np.diag([0.25, 1.0])],
    )  # fmt: skip
    index = rng.choice(3, n, p=truth.weights)
    return truth, truth._place(index, rng.standard_normal((n, 2))), index
