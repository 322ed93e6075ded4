"""Held-out log-likelihood of ``tgpfast.fit(X)``, and nothing else, beside its rivals.

    python benchmarks/held_out.py [--data DIR] [--only NAME ...]

Exact duplicates are dropped, columns standardised, at most 20,000 rows taken, one in five held out.
Rivals: the model's own base; scipy's gaussian_kde; a kernel estimate whose bandwidth and shape are
tuned on a fifth of the training rows; a Gaussian mixture chosen by BIC (scikit-learn's, up to 20
components, where it is installed, else ours).
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.stats import gaussian_kde

import tgpfast
from tgpfast.data.blocks import Blocks
from tgpfast.paper import datasets

ROWS, HELD = 20_000, 5
TOYS = tuple(datasets.GENERATORS)
COLUMNS = ("fit", "base", "scipy KDE", "tuned KDE", "mixture")


def prepared(rows):
    """(training rows, held-out rows)."""
    x = np.unique(np.asarray(rows, float), axis=0)
    x = x[np.random.default_rng(0).permutation(len(x))][:ROWS]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    n = len(x) - len(x) // HELD
    return x[:n], x[n:]


def tuned_kde(train):
    """An ExactKDE with the bandwidth and the shape of kernel that suit rows left out."""
    left_out = np.arange(len(train)) % HELD == HELD - 1
    best, score = None, -np.inf
    for shape in ("data", "identity"):
        for width in np.geomspace(0.05, 1.2, 14):
            kde = tgpfast.ExactKDE(train[~left_out], bandwidth=width, covariance=shape)
            value = kde.log_density(train[left_out]).mean()
            if value > score:
                best, score = {"bandwidth": width, "covariance": shape}, value
    return tgpfast.ExactKDE(train, **best)


def mixture_score(train, held):
    try:
        from sklearn.mixture import GaussianMixture
    except ImportError:
        return tgpfast.MixtureBase.from_data(train).log_density(held).mean()
    fits = [GaussianMixture(k, random_state=0).fit(train) for k in range(1, 21)]
    return min(fits, key=lambda m: m.bic(train)).score(held)


def row(name, rows):
    train, held = prepared(rows)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what matters here is the score
        model = tgpfast.fit(train)
    seconds = time.perf_counter() - start
    base = model.base.log_density(model.scaling.apply(held)) - model.scaling.log_volume
    scores = (
        model.log_density(held).mean(), base.mean(), gaussian_kde(train.T).logpdf(held.T).mean(),
        tuned_kde(train).log_density(held).mean(), mixture_score(train, held),
    )  # fmt: skip
    chosen = f"{model.method}, {model.settings['base']}"
    cells = " | ".join(f"{score:.3f}" for score in scores)
    return f"| {name} | {len(train):,} x {train.shape[1]} | {cells} | {chosen} | {seconds:.0f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of data files, one set each")
    parser.add_argument("--only", nargs="*", help="names of sets")
    options = parser.parse_args()
    sets = {name: lambda name=name: datasets.GENERATORS[name](ROWS, seed=1) for name in TOYS}
    if options.data is not None:
        for path in sorted(options.data.iterdir()):
            if path.suffix in (".csv", ".npy", ".npz", ".parquet"):
                sets[path.stem] = lambda path=path: Blocks(path).whole()
    print(f"| set | rows | {' | '.join(COLUMNS)} | chosen | seconds |")
    print("|" + "---|" * (len(COLUMNS) + 4))
    for name in options.only or sets:
        print(row(name, sets[name]()), flush=True)


if __name__ == "__main__":
    main()
