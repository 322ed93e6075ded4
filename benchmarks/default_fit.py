"""Seconds of ``tgpfast.fit(X)`` and one log density, as users call it.

    python benchmarks/default_fit.py [--data DIR] [--only PART ...]

Parts: ``sizes`` (columns x rows, beside scikit-learn on six columns), ``tables`` (MAGIC, HIGGS and
maps in the folder of ``--data``), ``busy`` (beside one busy process a core), ``threads`` (CPU time
with two threads over that with one), ``first`` (the first fit of a process over later ones).
Medians of 3 runs, in turns where two sides are compared.

Rows: two moons (one and two columns) or three Gaussian clusters. Rivals: scikit-learn's
``KernelDensity`` with 12 bandwidths and 3 folds up to 1,000 rows, and ``GaussianMixture`` by BIC
over 7 sizes up to 20.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import measure
import numpy as np

import tgpfast
from tgpfast import datasets
from tgpfast.data.blocks import Blocks

SIZES = (  # (columns, rows)
    (1, 100), (1, 1_000), (1, 100_000), (2, 100), (2, 1_000), (2, 10_000), (2, 1_000_000),
    (3, 20_000), (6, 100), (6, 1_000), (6, 10_000), (6, 100_000),
)  # fmt: skip
BESIDE_RIVALS = 6  # columns
KDE_ROWS = 1_000  # above, a tuned kernel estimate takes minutes
TABLES = ("magic", "higgs_18k", "us_zipcodes", "california_housing_latlon", "meteorites")
BUSY = ((1, 1_000), (2, 1_000), (6, 1_000), (6, 10_000))
FIRST = ((1, 1_000), (2, 1_000), (6, 100), (6, 1_000))
REPEATS = 3
_FIRST_FIT = """
import sys, time
sys.path.insert(0, {folder!r})
from default_fit import fit_once, make_rows
x = make_rows({columns}, {rows})
seconds = []
for _ in range(4):
    start = time.perf_counter()
    fit_once(x)
    seconds.append(time.perf_counter() - start)
print(seconds[0] / sorted(seconds[1:])[1], seconds[0])
"""


def make_rows(columns, rows):
    if columns <= 2:
        return datasets.two_moons(rows, seed=1)[:, :columns]
    rng = np.random.default_rng(0)
    centers = rng.normal(0.0, 2.0, (3, columns))
    return centers[rng.integers(0, 3, rows)] + rng.normal(size=(rows, columns))


def fit_once(x, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        tgpfast.fit(x, **options).log_density(x[:1])


def mixture_by_bic(x):
    from sklearn.mixture import GaussianMixture

    fits = [GaussianMixture(k, random_state=0).fit(x) for k in (1, 2, 4, 8, 12, 16, 20)]
    min(fits, key=lambda mixture: mixture.bic(x)).score_samples(x[:1])


def tuned_kde(x):
    from sklearn.model_selection import GridSearchCV
    from sklearn.neighbors import KernelDensity

    widths = {"bandwidth": np.geomspace(0.1, 2.0, 12)}
    GridSearchCV(KernelDensity(), widths, cv=3).fit(x).best_estimator_.score_samples(x[:1])


def median_seconds(*runs, clock=time.perf_counter):
    """Medians of some functions without arguments, which take turns after a first call of each."""
    taken = [[] for _ in runs]
    for turn in range(REPEATS + 1):
        for run, seconds in zip(runs, taken, strict=True):
            start = clock()
            run()
            if turn:
                seconds.append(clock() - start)
    return [statistics.median(seconds) for seconds in taken]


@contextlib.contextmanager
def busy_processes(count=2):
    """Run the block beside processes that keep a core busy each."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def sizes(data):
    for columns, rows in SIZES:
        x = make_rows(columns, rows)
        rivals = {}
        if columns == BESIDE_RIVALS:
            rivals["mixture by BIC"] = lambda x=x: mixture_by_bic(x)
            if rows <= KDE_ROWS:
                rivals["tuned KDE"] = lambda x=x: tuned_kde(x)
        ours, *theirs = median_seconds(lambda x=x: fit_once(x), *rivals.values())
        beside = "".join(f", {k} {s:.2f} s" for k, s in zip(rivals, theirs, strict=True))
        yield f"{rows:,} x {columns}: {ours:.2f} s{beside}"


def tables(data):
    if data is None:
        yield "left out: they need --data"
        return
    for name in TABLES:
        x = np.unique(Blocks(data / f"{name}.npz").whole(), axis=0)
        x = x[np.random.default_rng(0).permutation(len(x))][:20_000]
        (ours,) = median_seconds(lambda x=x: fit_once(x))
        yield f"{name}, {len(x):,} x {x.shape[1]}: {ours:.2f} s"


def busy(data):
    for columns, rows in BUSY:
        x = make_rows(columns, rows)
        (quiet,) = median_seconds(lambda x=x: fit_once(x))
        with busy_processes():
            (beside,) = median_seconds(lambda x=x: fit_once(x))
        ratio = beside / quiet
        yield f"{rows:,} x {columns}: {quiet:.2f} s, beside busy processes {ratio:.2f} times"


def threads(data):
    for columns, rows in BUSY:
        x = make_rows(columns, rows)
        two, one = median_seconds(
            lambda x=x: fit_once(x, n_threads=2), lambda x=x: fit_once(x, n_threads=1),
            clock=time.process_time,
        )  # fmt: skip
        yield f"{rows:,} x {columns}: CPU time of two threads {two / one:.2f} times that of one"


def first(data):
    for columns, rows in FIRST:
        text = _FIRST_FIT.format(folder=str(Path(__file__).parent), columns=columns, rows=rows)
        runs = [tuple(map(float, measure.run_child("-c", text).split())) for _ in range(REPEATS)]
        ratio, seconds = (statistics.median(values) for values in zip(*runs, strict=True))
        yield f"{rows:,} x {columns}: the first fit {seconds:.2f} s, {ratio:.2f} times a later one"


PARTS = {
    "sizes": sizes, "tables": tables, "busy": busy, "threads": threads, "first": first,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of data files")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    for name in options.only:
        print(f"{name}:", flush=True)
        for line in PARTS[name](options.data):
            print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
