"""Rounded tables: log density at the values themselves, and log probability of their cells.

    python benchmarks/rounded.py [--data DIR] [--only NAME ...] [--splits N]

A density of rounded rows has no bound: components as narrow as 1e-3 standard deviations on the two
values of a column score 6 nats more than the histogram. The probability of the cell of a row (its
values plus or minus half a step of every column) cannot be raised so. The table has, for `fit` and
scikit-learn's mixture by BIC, the mean log density of held-out rows, and the mean log probability
of their cells per volume of a cell.
"""

import argparse
import functools
import warnings
from pathlib import Path

import numpy as np
from held_out_sets import TABLES
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, qmc

import tgpfast
from tgpfast.bases.expectation_maximization import measure_columns
from tgpfast.data.blocks import Blocks

NAMES = ("iris", "diabetes", "pima")  # pima is a file
HELD = 5  # one row in so many is held out
LOG2_POINTS = 8  # points of a cell at which `fit` is evaluated, as a power of two
LEAST_MASS = 1e-300  # a cell far from all components has a probability of 0
MVN_POINTS = 20_000  # of the integral of a Gaussian over a cell, at most


def split(rows, seed):
    """(training rows, held-out rows, steps of the columns), standardized."""
    x = np.unique(np.asarray(rows, float), axis=0)
    steps = measure_columns(x, np.ones(len(x))).resolution / x.std(axis=0)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    x = x[np.random.default_rng(100 + seed).permutation(len(x))]
    n = len(x) - len(x) // HELD
    return x[:n], x[n:], steps


def fit(train, held, steps):
    """(log density, log probability of the cell per volume) of every held-out row."""
    model = tgpfast.fit(train)
    points = steps * (qmc.Sobol(held.shape[1], seed=0).random_base2(LOG2_POINTS) - 0.5)
    cells = [logsumexp(model.log_density(row + points)) - np.log(len(points)) for row in held]
    return np.asarray(model.log_density(held)), np.array(cells)


def mixture_by_bic(train, held, steps):
    """The same of scikit-learn's mixture: the integral of every component over every cell."""
    from sklearn.mixture import GaussianMixture

    fits = [GaussianMixture(k, random_state=0).fit(train) for k in (1, 2, 3, 5, 8, 12, 16, 20)]
    best = min(fits, key=lambda mixture: mixture.bic(train))
    mass = np.zeros(len(held))
    for weight, mean, covariance in zip(best.weights_, best.means_, best.covariances_, strict=True):
        integral = functools.partial(
            multivariate_normal.cdf, mean=mean, cov=covariance, allow_singular=True,
            maxpts=MVN_POINTS, releps=1e-3, abseps=0.0, rng=np.random.default_rng(0),
        )  # fmt: skip
        mass += [weight * integral(row + steps / 2, lower_limit=row - steps / 2) for row in held]
    return best.score_samples(held), np.log(np.maximum(mass, LEAST_MASS)) - np.log(steps).sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of data files, one set each")
    parser.add_argument("--only", nargs="*", default=NAMES, help="names of sets")
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # what matters here is the score
    print("| set, split | fit | mixture by BIC | fit, cells | mixture by BIC, cells |")
    print("|---|---|---|---|---|")
    for name in options.only:
        file = options.data / f"{name}.npz" if options.data is not None else None
        rows = TABLES[name]() if name in TABLES else Blocks(file).whole()
        for seed in range(options.splits):
            train, held, steps = split(rows, seed)
            (ours, our_cells), (theirs, their_cells) = (
                model(train, held, steps) for model in (fit, mixture_by_bic)
            )
            means = [f"{v.mean():.2f}" for v in (ours, theirs, our_cells, their_cells)]
            gap = our_cells - their_cells
            error = gap.std() / np.sqrt(len(gap))
            print(
                f"| {name}, {seed} | {' | '.join(means)} ({gap.mean() / error:+.1f}) |", flush=True
            )


if __name__ == "__main__":
    main()
