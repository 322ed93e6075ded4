"""What large data cost: a billion points, files, Dask, many groups, automatic settings.

    python benchmarks/scale.py billion|disk|read|overlap|dask|groups|auto [--rows N] [--folder DIR]

Files are written to a temporary folder (--folder: on another disk) and removed. Sides of a
comparison take turns; leave the machine alone meanwhile.
"""

import argparse
import contextlib
import functools
import importlib
import tempfile
import threading
import time
import warnings
from pathlib import Path

import measure
import numpy as np

import tgpfast
from tgpfast.data.blocks import Blocks
from tgpfast.paper import datasets

FIXED = {
    "method": "fd", "lam": 10.0, "gamma": "scott", "eta": "1/gamma2", "base": "empirical",
    "frequency_covariance": "data", "n_features": 1000,
}  # fmt: skip


def resident():
    """Bytes of memory that the process holds itself, without pages of files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


class Peak:
    """The most memory held, beyond what was held before, while something runs."""

    def __enter__(self):
        self.start = self.most = resident()
        self.done = threading.Event()
        self.watch = threading.Thread(target=self._look)
        self.watch.start()
        return self

    def _look(self):
        while not self.done.wait(0.02):
            self.most = max(self.most, resident())

    def __exit__(self, *_):
        self.done.set()
        self.watch.join()

    @property
    def gigabytes(self):
        return (self.most - self.start) / 1e9


def repeated(n, d):
    """Blocks of float32, n rows in all: a pool of moons (d=2) or normals, again and again."""
    pool = datasets.two_moons(2_000_000, seed=1) if d == 2 else normals(2_000_000, d)
    pool = pool.astype(np.float32)
    for start in range(0, n, len(pool)):
        yield pool[: min(len(pool), n - start)]


def written(path, n, d):
    """A file of those rows."""
    out, at = np.lib.format.open_memmap(path, "w+", np.float32, (n, d)), 0
    for rows in repeated(n, d):
        out[at : at + len(rows)] = rows
        at += len(rows)
    out.flush()
    return np.load(path, mmap_mode="r")


def normals(n, d):
    return np.random.default_rng(0).standard_normal((n, d))


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def billion(rows, folder):
    n = rows or 1_000_000_000
    x = written(folder / "points.npy", n, 2)
    gamma = 10_000_000 ** (-1.0 / 6.0) * float(np.sqrt(x[:1_000_000].var(axis=0).mean()))
    features = tgpfast.Features.draw(1000, gamma, np.eye(2), 0)
    tgpfast.accumulate(x[:100_000], features, tolerance=1e-8, engine="spectral")
    print(f"{n:,} points of float32, S=1000, gamma {gamma:.4f}")
    pool = tgpfast.accumulate(next(repeated(n, 2)), features, tolerance=1e-12, engine="spectral")
    for kind, points in (("from disk", x), ("a generator of blocks", repeated(n, 2))):
        with Peak() as peak:
            start = time.perf_counter()
            stats = tgpfast.accumulate(points, features, tolerance=1e-8)
            took = time.perf_counter() - start
        assert (stats.n_rows, stats.provenance["engine"]) == (n, "spectral")
        # an entry of Phi' / n errs by 2 / S of what F / n does; exact where the pool goes into n
        error = np.abs(stats.gram / stats.n - pool.gram / pool.n).max() * 1000 / 2
        print(f"{kind}: {took:.1f} s, {n / took / 1e6:.1f}M points a second, "
              f"{peak.gigabytes:.2f} GB, error of F/n {error:.0e}")


def disk(rows, folder):
    n = rows or 20_000_000
    x = written(folder / "rows.npy", n, 6)
    features = tgpfast.Features.draw(500, 0.5, np.eye(6), 0)
    tgpfast.accumulate(x[:50_000], features)
    with Peak() as peak:
        took = seconds(lambda: tgpfast.accumulate(folder / "rows.npy", features))
    print(f"{n:,} x 6 from disk, S=500: {took:.1f} s, {peak.gigabytes:.2f} GB at most, the "
          "statistics among them")


def read(rows, folder):
    """A csv file to an array, beside what others take."""
    n = rows or 2_000_000
    path = folder / "rows.csv"
    np.savetxt(path, normals(n, 6), delimiter=",", fmt="%.9g")
    sides = {"tgpfast": lambda: Blocks(path).whole(),
             "numpy.loadtxt": lambda: np.loadtxt(path, delimiter=",")}  # fmt: skip
    for name in ("pandas", "polars"):
        with contextlib.suppress(ImportError):
            library = importlib.import_module(name)
            given = {"header": None} if name == "pandas" else {"has_header": False}
            sides[f"{name}.read_csv"] = functools.partial(
                lambda library, given: library.read_csv(path, **given).to_numpy(), library, given
            )
    expected = sides["tgpfast"]()
    for name, side in sides.items():
        assert np.allclose(side(), expected, rtol=1e-15, atol=0.0), name
    times = measure.take_turns([measure.timed(side) for side in sides.values()], 5)
    size = path.stat().st_size
    for name, took in zip(sides, times, strict=True):
        print(f"{n:,} x 6 of csv, {size / 1e6:.0f} MB, {name}: {took:.2f} s, "
              f"{size / took / 1e6:.0f} MB a second, {took / times[0]:.1f} times ours")


def overlap(rows, folder):
    """Reading alone, computing alone, and both, on one thread each."""
    n = rows or 2_000_000
    x = normals(n, 6)
    np.save(folder / "rows.npy", x.astype(np.float32))
    np.savetxt(folder / "rows.csv", x, delimiter=",", fmt="%.9g")
    paths = [folder / "rows.npy", folder / "rows.csv"]
    try:
        import polars

        polars.DataFrame(x).write_parquet(folder / "rows.parquet")
        paths.append(folder / "rows.parquet")
    except ImportError:
        pass
    for path in paths:
        read = np.concatenate([block for block, _ in Blocks(path)])
        for S in (200, 40, 20):  # computing takes ten times as long as reading text, twice, as long
            features = tgpfast.Features.draw(S, 0.5, np.eye(6), 0)
            pass_over = functools.partial(
                tgpfast.accumulate, features=features, engine="direct", precision="float64",
                n_threads=1,
            )  # fmt: skip
            alone, compute, both = measure.take_turns(
                [
                    measure.timed(lambda path=path: [len(b) for b, _ in Blocks(path)]),
                    measure.timed(functools.partial(pass_over, read)),
                    measure.timed(functools.partial(pass_over, path)),
                ],
                5 if S > 100 else 15,  # short passes are the more at the mercy of neighbours
            )  # fmt: skip
            slower = max(alone, compute)
            print(f"{path.suffix}, S={S}: reading {alone:.2f} s, computing {compute:.2f} s, both "
                  f"{both:.2f} s: {both / slower:.2f} of the slower, "
                  f"{both / (alone + compute):.2f} of their sum")


def over_dask(rows, folder):
    import dask.array
    from distributed import Client, LocalCluster

    n = rows or 5_000_000
    x = normals(n, 6)
    features = tgpfast.Features.draw(500, 0.5, np.eye(6), 0)
    for workers in (1, 2):
        cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
        with cluster, Client(cluster) as client:
            # the rows are where the workers are, as they would be on a cluster
            chunks = ((n // 20,) * 20, (6,))
            lazy = client.persist(dask.array.map_blocks(made, chunks=chunks, dtype=float))
            plain, spread = _plain_and_spread(x[: n // 20 * 20], lazy, features, workers)
        print(f"{n:,} x 6, S=500, {workers} workers: plain pass on as many threads {plain:.1f} s, "
              f"dask {spread:.1f} s: {spread / plain - 1:+.1%}")


def _plain_and_spread(x, lazy, features, workers):
    run = {"engine": "direct", "precision": "float64"}
    tgpfast.accumulate(lazy[: len(x) // 10], features, **run)
    return measure.take_turns(
        [
            measure.timed(lambda: tgpfast.accumulate(x, features, n_threads=workers, **run)),
            measure.timed(lambda: tgpfast.accumulate(lazy, features, **run)),
        ],
        2,
    )  # fmt: skip


def made(block_info=None):
    shape = block_info[None]["chunk-shape"]
    return np.random.default_rng(block_info[None]["chunk-location"][0]).standard_normal(shape)


def groups(rows, folder):
    n_groups, size = (rows or 1_000_000) // 500, 500
    for d in (2, 4, 6):
        x, labels = normals(n_groups * size, d), np.repeat(np.arange(n_groups), size)
        x += 3.0 * (np.arange(len(x)) % 2)[:, None]
        run = {"n_features": 128, "lam": 10.0, "gamma": 0.5, "frequency_covariance": "identity"}
        some = range(0, n_groups, max(n_groups // 40, 1))

        def loop(x=x, run=run, some=some):
            for g in some:
                tgpfast.fit(x[g * size : (g + 1) * size], method="fd", base="empirical", **run)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            loop()
            together, one_by_one = measure.take_turns(
                [measure.timed(functools.partial(tgpfast.fit_groups, x, labels, **run)),
                 measure.timed(loop)], 3,
            )  # fmt: skip
        one_by_one *= n_groups / len(some)
        print(f"{n_groups:,} groups of {size}, d={d}, S=128: {together:.2f} s, a loop over fit "
              f"{one_by_one:.1f} s ({len(some)} groups timed): {one_by_one / together:.0f} times")


def auto(rows, folder):
    """The whole automatic fit, in fits of fixed settings."""
    n = rows or 200_000
    tgpfast.fit(shapes(20_000, 2), **FIXED)
    for d in (1, 2, 3, 6, 10):
        x = shapes(n, d)
        tgpfast.fit(x[:5_000])
        fixed, chosen = measure.take_turns(
            [measure.timed(lambda x=x: tgpfast.fit(x, **FIXED).log_normalizer),
             measure.timed(lambda x=x: tgpfast.fit(x).log_normalizer)], 2,
        )  # fmt: skip
        print(f"{n:,} x {d}: fixed settings {fixed:.2f} s, chosen {chosen:.2f} s: "
              f"{chosen / fixed:.1f} times")


def shapes(n, d):
    """Rows with something to learn."""
    x = normals(n, d)
    if d == 1:
        return np.where(np.arange(n)[:, None] % 5 < 2, 0.3 * x - 2.0, x + 1.0)
    if d == 2:
        return datasets.two_moons(n, seed=1)
    x[:, 1] += x[:, 0] ** 2
    x[:, -1] += np.sin(2.0 * x[:, 0])
    return x


RUNS = {
    "billion": billion, "disk": disk, "read": read, "overlap": overlap, "dask": over_dask,
    "groups": groups, "auto": auto,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=RUNS, nargs="+")
    parser.add_argument("--rows", type=int, help="instead of the usual number")
    parser.add_argument("--folder", type=Path, help="for files, of which billion writes 8 GB")
    options = parser.parse_args()
    for what in options.what:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            RUNS[what](options.rows, Path(folder))


if __name__ == "__main__":
    main()
