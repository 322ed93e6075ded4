"""ROC-AUC of ``TGPOutlierDetector()`` and of five detectors of scikit-learn on labeled sets.

    python benchmarks/outliers.py [--data DIR] [--only NAME ...]

Every file DIR/NAME.npz has rows ``X`` and labels ``y``, 1 for outliers. DIR is the folder
"outliers" in that of the variable TGPFAST_DATA unless it is given. Detectors see all rows and no
labels, and score the same rows. Constant columns are dropped, the others standardized. All
detectors have their default settings, but the number of components of the mixture (1 to 10) is
chosen by BIC, and the bandwidth of the kernel estimate is Scott's. Prints a Markdown table, with
the best of each row in bold, and the sets that a detector refuses as "-".
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np

DATA_VARIABLE = "TGPFAST_DATA"  # a folder with sets of real data
MOST_COMPONENTS = 10  # of the mixture


def make_detectors():
    """Name -> function: rows -> scores, low for outliers."""
    # here, because asv imports every module of this folder, where scikit-learn may be missing
    from sklearn.ensemble import IsolationForest
    from sklearn.mixture import GaussianMixture
    from sklearn.neighbors import KernelDensity, LocalOutlierFactor
    from sklearn.svm import OneClassSVM

    from tgpfast.sklearn import TGPOutlierDetector

    def score_by_mixture(x):
        fits = [GaussianMixture(k, random_state=0).fit(x) for k in range(1, MOST_COMPONENTS + 1)]
        return min(fits, key=lambda m: m.bic(x)).score_samples(x)

    return {
        "tgpfast": lambda x: TGPOutlierDetector().fit(x).score_samples(x),
        "Isolation Forest": lambda x: IsolationForest(random_state=0).fit(x).score_samples(x),
        "LOF": lambda x: LocalOutlierFactor().fit(x).negative_outlier_factor_,
        "One-Class SVM": lambda x: OneClassSVM().fit(x).score_samples(x),
        "Gaussian Mixture": score_by_mixture,
        "Kernel Density": lambda x: KernelDensity(bandwidth="scott").fit(x).score_samples(x),
    }


def read_set(path):
    """(rows with standardized columns, labels)."""
    with np.load(path, allow_pickle=False) as held:
        x, y = held["X"].astype(float), held["y"]
    x = x[:, np.ptp(x, axis=0) > 0]
    return (x - x.mean(axis=0)) / x.std(axis=0), y


def measure_set(detectors, x, y):
    """ROC-AUC of every detector, nan where it refuses the rows, and the seconds of ours."""
    from sklearn.metrics import roc_auc_score

    areas, seconds = [], 0.0
    for name, score in detectors.items():
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what matters here is the order of the rows
                areas.append(roc_auc_score(y, -score(x)))
        except ValueError as error:
            print(f"<!-- {name}: {error} -->")
            areas.append(np.nan)
        if name == "tgpfast":
            seconds = time.perf_counter() - start
    return np.array(areas), seconds


def format_areas(areas):
    """Table cells, the best in bold."""
    best = np.nanmax(areas.round(3))
    words = ["-" if np.isnan(a) else f"{a:.3f}" for a in areas]
    marked = zip(words, areas, strict=True)
    return " | ".join(f"**{w}**" if round(a, 3) == best else w for w, a in marked)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of NAME.npz files")
    parser.add_argument("--only", nargs="*", help="names of sets")
    options = parser.parse_args()
    folder = options.data
    if folder is None:
        if DATA_VARIABLE not in os.environ:
            parser.error(f"give --data DIR, or set {DATA_VARIABLE}")
        folder = Path(os.environ[DATA_VARIABLE]) / "outliers"
    detectors = make_detectors()
    names = options.only or sorted(path.stem for path in folder.glob("*.npz"))
    print(f"| set | rows | outliers | {' | '.join(detectors)} | seconds of tgpfast |")
    print("|" + "---|" * (len(detectors) + 4))
    table = []
    for name in names:
        x, y = read_set(folder / f"{name}.npz")
        areas, seconds = measure_set(detectors, x, y)
        table.append(areas)
        size = f"{len(x):,} x {x.shape[1]} | {y.mean():.1%}"
        print(f"| {name} | {size} | {format_areas(areas)} | {seconds:.0f} |", flush=True)
    taken = np.array([areas for areas in table if not np.isnan(areas).any()])
    label = f"mean of the {len(taken)} sets that all take"
    print(f"| {label} | | | {format_areas(taken.mean(axis=0))} | |")


if __name__ == "__main__":
    main()
