"""Rounded tables: log density at the values themselves, and log probability of their cells.

    python benchmarks/rounded.py [--data DIR] [--only NAME ...] [--splits N]

A density of rounded rows has no bound: components as narrow as 1e-3 standard deviations on the two
values of a column score 6 nats more than the histogram. The probability of the cell of a row (its
values plus or minus half a step of every column) cannot be raised so. The table has, for `fit`,
and for scikit-learn's mixtures by BIC and by held-out rows, the mean log density of held-out rows,
and the mean log probability of their cells per volume of a cell. Cells are as wide as the steps of
rounded columns, and have no width along the others.
"""

import argparse
import functools
import warnings
from pathlib import Path

import numpy as np
from held_out import GRIDDED, choose_by_bic, choose_by_held_out_rows, round_tags
from held_out_sets import TABLES
from scipy.special import logsumexp, ndtr
from scipy.stats import multivariate_normal, qmc

import tgpfast
from tgpfast.bases.expectation_maximization import measure_columns
from tgpfast.data.blocks import Blocks

TAGS = "higgs_18k, tags rounded"
# pima, breastw, wbc and HIGGS are files
NAMES = (
    "iris", "diabetes", "diabetes with its target", "survey", "pima", "breastw", "wbc", TAGS,
)  # fmt: skip
ROWS = 20_000  # at most
HELD = 5  # one row in so many is held out
LOG2_POINTS = 8  # points of a cell at which `fit` is evaluated, as a power of two
LEAST_MASS = 1e-300  # a cell far from all components has a probability of 0
MVN_POINTS = 20_000  # of the integral of a Gaussian over a cell, at most
NEGLIGIBLE = 1e-6  # share of a cell's mass that all components left out may have together


def read_rows(name, folder):
    """Rows of a table, or of a file of the folder or of its folder of outliers."""
    if name in TABLES:
        return TABLES[name]()
    if name == TAGS:
        return round_tags(read_rows("higgs_18k", folder))
    files = (folder / f"{name}.npz", folder / "outliers" / f"{name}.npz")
    return Blocks(next(file for file in files if file.exists())).whole()


def split(rows, seed):
    """(training rows, held-out rows, widths of cells), standardized."""
    x = np.unique(np.asarray(rows, float), axis=0)
    steps = measure_columns(x, np.ones(len(x))).resolution / x.std(axis=0)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    x = x[np.random.default_rng(100 + seed).permutation(len(x))][:ROWS]
    n = len(x) - len(x) // HELD
    return x[:n], x[n:], np.where(steps > GRIDDED, steps, 0.0)


def fit(train, held, steps):
    """(log density, log probability of the cell per volume) of every held-out row."""
    model = tgpfast.fit(train)
    points = steps * (qmc.Sobol(held.shape[1], seed=0).random_base2(LOG2_POINTS) - 0.5)
    cells = [logsumexp(model.log_density(row + points)) - np.log(len(points)) for row in held]
    return np.asarray(model.log_density(held)), np.array(cells)


def mixture(choose, train, held, steps):
    """The same of scikit-learn's mixture: the integral of every component over every cell."""
    best = choose(train)
    wide, parts = steps > 0.0, []
    for mean, covariance in zip(best.means_, best.covariances_, strict=True):
        parts.append(_Component(mean, covariance, held, steps, wide))
    weights = np.log(best.weights_)[:, None]
    bounds = weights + np.array([part.log_bound for part in parts])
    mass = np.zeros(len(held))
    for i in range(len(held)):
        order = np.argsort(-bounds[:, i])
        rest = np.append(np.exp(np.logaddexp.accumulate(bounds[order[::-1], i]))[::-1], 0.0)
        for place, k in enumerate(order):
            if rest[place] <= NEGLIGIBLE * mass[i]:
                break
            mass[i] += np.exp(weights[k, 0] + parts[k].log_mass(i))
    volume = np.log(steps[wide]).sum()
    return best.score_samples(held), np.log(np.maximum(mass, LEAST_MASS)) - volume


class _Component:
    """A Gaussian at cells: its density along columns without width, times the mass along the
    others given these."""

    def __init__(self, mean, covariance, held, steps, wide):
        thin = ~wide
        gain = np.linalg.solve(covariance[np.ix_(thin, thin)], covariance[np.ix_(thin, wide)]).T
        self.covariance = covariance[np.ix_(wide, wide)] - gain @ covariance[np.ix_(thin, wide)]
        offset = (held - mean)[:, wide] - (held - mean)[:, thin] @ gain.T
        self.low, self.high = offset - steps[wide] / 2, offset + steps[wide] / 2
        self.log_thin = np.zeros(len(held))
        if thin.any():
            law = multivariate_normal(mean[thin], covariance[np.ix_(thin, thin)])
            self.log_thin = np.atleast_1d(law.logpdf(held[:, thin]))
        deviation = np.sqrt(np.diag(self.covariance))
        low, high = self.low / deviation, self.high / deviation
        mirrored = low > 0.0  # so that small masses keep their digits
        low, high = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
        least = np.maximum(ndtr(high) - ndtr(low), LEAST_MASS).min(axis=1)
        self.log_bound = self.log_thin + np.log(least)  # of the mass: that of the narrowest column

    def log_mass(self, i):
        """Log of the mass of cell i, per volume along the columns without width."""
        found = multivariate_normal.cdf(
            self.high[i], lower_limit=self.low[i], cov=self.covariance, allow_singular=True,
            maxpts=MVN_POINTS, releps=1e-3, abseps=0.0, rng=np.random.default_rng(0),
        )  # fmt: skip
        return self.log_thin[i] + np.log(max(float(found), LEAST_MASS))


RIVALS = {"mixture by BIC": choose_by_bic, "mixture by held-out rows": choose_by_held_out_rows}
MODELS = {
    "fit": fit, **{name: functools.partial(mixture, choose) for name, choose in RIVALS.items()}
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of data files, one set each")
    parser.add_argument("--only", nargs="*", default=NAMES, help="names of sets")
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # what matters here is the score
    print(f"| set, split | {' | '.join(MODELS)} | {', cells | '.join(MODELS)}, cells |")
    print("|---|" + "---|" * (2 * len(MODELS)))
    for name in options.only:
        rows = read_rows(name, options.data)
        for seed in range(options.splits):
            found = [model(*split(rows, seed)) for model in MODELS.values()]
            ours = found[0][1]
            cells = [f"{values.mean():.2f}" for values, _ in found] + [f"{ours.mean():.2f}"]
            for _, theirs in found[1:]:
                gap = ours - theirs
                error = gap.std() / np.sqrt(len(gap))
                distance = f" ({gap.mean() / error:+.1f})" if error else ""
                cells.append(f"{theirs.mean():.2f}{distance}")
            print(f"| {name}, {seed} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
