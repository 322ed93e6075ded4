"""The command ``tgpfast``: a thin adapter; a command is one function and one entry below."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from . import __version__, kernels
from .accumulate import accumulate
from .base import GaussianBase
from .features import Array, Features
from .solve import fd_theta
from .warmup import warmup


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 1 with a one-line message on standard error otherwise."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"tgpfast: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tgpfast: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tgpfast", description="Learn nonparametric densities on a CPU.",
        epilog="Start with: tgpfast demo",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"tgpfast {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    demo = commands.add_parser(
        "demo", help="learn a toy density with every backend and draw it",
        description="Gathers the statistics of two moons with every backend that is installed, "
        "solves for the density by Fisher-divergence score matching, prints a table and, with "
        "matplotlib, writes a picture of data and contours.",
    )  # fmt: skip
    demo.add_argument("--rows", type=int, default=200_000, help="rows to draw (%(default)s)")
    demo.add_argument("--features", type=int, default=300, help="features S (%(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="seed of data and features (%(default)s)")
    demo.add_argument(
        "-o", "--output", type=Path, default=Path("tgpfast-demo.png"), help="picture to write"
    )
    demo.set_defaults(run=_demo)

    warm = commands.add_parser(
        "warmup", help="compile the kernels ahead of their first use",
        description="Compiles every kernel once; Numba keeps the result on disk, so that later "
        "processes start without waiting. Run it when an image is built.",
    )  # fmt: skip
    warm.add_argument("--backend", default="auto", help="auto, numba, cython or numpy")
    warm.set_defaults(run=lambda arguments: print(f"ready: {warmup(arguments.backend)}"))
    return parser


def _two_moons(n: int, seed: int) -> Array:
    """Two interleaved half circles with noise 0.08, standardised."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0.0, np.pi, n)
    lower = rng.integers(0, 2, n).astype(bool)
    x = np.where(lower, 1.0 - np.cos(t), np.cos(t))
    y = np.where(lower, 0.5 - np.sin(t), np.sin(t))
    moons = np.column_stack([x, y]) + 0.08 * rng.standard_normal((n, 2))
    return (moons - moons.mean(axis=0)) / moons.std(axis=0)


def _demo(arguments: argparse.Namespace) -> None:
    if arguments.rows < 100:
        raise ValueError(f"--rows {arguments.rows}: at least 100 are needed")
    x = _two_moons(arguments.rows, arguments.seed)
    base = GaussianBase.from_data(x)
    gamma = 2.0 * len(x) ** (-1.0 / 6.0)  # twice Scott's rule in two dimensions
    features = Features.draw(arguments.features, gamma, np.eye(2), arguments.seed)
    names = kernels.available()
    show = sys.stderr.isatty()
    if show and "numba" in names:
        print("compiling (only the first time) ...", file=sys.stderr)
    print(f"two moons: {len(x):,} rows, {features.n_features} features, bandwidth {gamma:.3f}\n")
    print("backend    threads   seconds   rows a second   largest change of theta")
    reference = None
    for name in names:
        accumulate(x[:2], features, backend=name)  # compiled before the clock starts
        start = time.perf_counter()
        stats = accumulate(x, features, backend=name, progress=show)
        seconds = time.perf_counter() - start
        theta = fd_theta(stats, base, lam=10.0)
        reference = theta if reference is None else reference
        gap = np.abs(theta - reference).max() / np.abs(reference).max()
        threads = stats.provenance["threads"]
        print(f"{name:<10}{threads:>8}{seconds:>10.3f}{len(x) / seconds:>16,.0f}{gap:>26.1e}")
    assert reference is not None
    _draw(x, features, base, reference, arguments.output)


def _draw(x: Array, features: Features, base: GaussianBase, theta: Array, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print('\nno picture: matplotlib is missing; install it with: pip install "tgpfast[plot]"')
        return
    side = np.linspace(-2.5, 2.5, 200)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    angle = grid @ (features.frequencies / features.bandwidth).T + features.phases
    log_q = np.sqrt(2.0 / features.n_features) * (np.cos(angle) @ theta) + base.log_density(grid)
    density = np.exp(log_q - log_q.max()).reshape(200, 200)
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    left.plot(*x[:4000].T, ".", markersize=2, alpha=0.5, color="#0072B2")
    left.set_title(f"data (4,000 of {len(x):,} rows)")
    right.contourf(side, side, density, levels=12, cmap="cividis")
    right.set_title(f"learned density (FD, {features.n_features} features)")
    for axes in (left, right):
        axes.set(xlabel="x", ylabel="y", aspect="equal", xlim=(-2.5, 2.5), ylim=(-2.5, 2.5))
    figure.savefig(output, dpi=120)
    print(f"\nwrote {output}")
