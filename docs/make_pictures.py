"""Draw the pictures of the README and of the pages: python docs/make_pictures.py

Writes PNG files to docs/pictures. They are kept in the repository, because the README shows one;
run this again when they should change.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np

import tgpfast as tgp

mpl.use("Agg")
from matplotlib import pyplot as plt

FOLDER = Path(__file__).parent / "pictures"
BLUE, ORANGE, GRAY = "#0072b2", "#d55e00", "#999999"
DOTS = {"s": 3, "linewidths": 0, "rasterized": True}
DPI = 110


def grid_of(x, side=160, margin=0.12):
    """(x values, y values, rows of a square grid) around two-dimensional rows."""
    low, high = x.min(axis=0), x.max(axis=0)
    pad = margin * (high - low)
    axes = [np.linspace(a - p, b + p, side) for a, b, p in zip(low, high, pad, strict=True)]
    return *axes, np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)


def save(figure, name):
    figure.savefig(FOLDER / name, dpi=DPI, facecolor="white")
    plt.close(figure)


def draw_readme():
    """Rows, the density learned from them, and new rows."""
    x = tgp.datasets.two_moons(4_000, noise=0.1)
    model = tgp.fit(x)
    across, up, nodes = grid_of(x)
    density = np.exp(model.log_density(nodes)).reshape(len(up), len(across))
    figure, axes = plt.subplots(1, 3, figsize=(9.0, 2.3), layout="constrained")
    axes[0].scatter(*x[:1_500].T, color=GRAY, **DOTS)
    axes[0].set_title("rows", fontsize=11)
    levels = density.max() * np.linspace(0.02, 1.0, 12)
    axes[1].contourf(across, up, density, levels=levels, cmap="Blues")
    axes[1].set_title("model = tgp.fit(X)", fontsize=11, family="monospace")
    axes[2].scatter(*model.sample(1_500, seed=0).T, color=BLUE, **DOTS)
    axes[2].set_title("model.sample(1500)", fontsize=11, family="monospace")
    for one in axes:
        one.set(xticks=[], yticks=[], xlim=across[[0, -1]], ylim=up[[0, -1]])
        one.set_aspect("equal")
    save(figure, "readme.png")


def draw_product():
    """Base, tilt and their product in one column."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-1.5, 0.5, 1_200), rng.normal(1.2, 0.9, 1_800)])[:, None]
    model = tgp.fit(x, base="empirical")
    base = tgp.GaussianBase.from_data(x)
    line = np.linspace(-4.5, 4.8, 400)
    log_base = base.log_density(line[:, None])
    log_density = model.log_density(line[:, None])
    figure, axes = plt.subplots(1, 3, figsize=(9.0, 2.7), sharex=True, layout="constrained")
    axes[0].plot(line, np.exp(log_base), color=ORANGE)
    axes[0].set_title("base p(x)", fontsize=11)
    axes[1].plot(line, np.exp(log_density - log_base), color=GRAY)
    axes[1].axhline(1.0, color="black", linewidth=0.6, linestyle=":")
    axes[1].set_title("tilt exp f(x) / Z", fontsize=11)
    axes[2].hist(x[:, 0], bins=60, density=True, color="#dddddd")
    axes[2].plot(line, np.exp(log_density), color=BLUE)
    axes[2].set_title("density and rows", fontsize=11)
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.set(ylim=(0.0, None), xlabel="x")
    save(figure, "product.png")


def draw_knobs():
    """The same rows with three precisions of the prior."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-1.5, 0.5, 200), rng.normal(1.2, 0.9, 300)])[:, None]
    line = np.linspace(-4.5, 4.8, 400)
    figure, axes = plt.subplots(1, 3, figsize=(9.0, 2.7), sharey=True, layout="constrained")
    for one, lam in zip(axes, (300.0, 1.0, 0.003), strict=True):
        model = tgp.fit(x, base="empirical", kernel="gaussian", gamma=0.4, lam=lam)
        one.hist(x[:, 0], bins=50, density=True, color="#dddddd")
        one.plot(line, np.exp(model.log_density(line[:, None])), color=BLUE)
        one.set_title(f"\u03bb = {lam:g}", fontsize=11)
        one.spines[["top", "right"]].set_visible(False)
        one.set(xlabel="x")
    save(figure, "knobs.png")


def draw_sums():
    """From blocks of rows to sums, and from sums to densities."""
    figure = plt.figure(figsize=(9.0, 2.6))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, 9), ylim=(0, 2.6))
    axes.axis("off")

    def box(left, bottom, text, color, width=1.9, height=0.55):
        patch = plt.Rectangle((left, bottom), width, height, facecolor=color, edgecolor="black")
        axes.add_patch(patch)
        axes.text(left + width / 2, bottom + height / 2, text, ha="center", va="center")

    def arrow(start, end):
        axes.annotate("", end, start, arrowprops={"arrowstyle": "->"})

    for k, source in enumerate(("files, machine 1", "files, machine 2", "rows of tomorrow")):
        bottom = 1.85 - 0.8 * k
        box(0.15, bottom, source, "#eeeeee")
        box(2.75, bottom, "sums", "#cfe3f1", width=0.9)
        arrow((2.05, bottom + 0.27), (2.75, bottom + 0.27))
        arrow((3.65, bottom + 0.27), (4.4, 1.32))
    box(4.4, 1.05, "sums of all rows", "#cfe3f1")
    for k, text in enumerate(("\u03bb = 1", "\u03bb = 10", "another base")):
        bottom = 1.85 - 0.8 * k
        box(7.0, bottom, text, "#f6d9c4")
        arrow((6.3, 1.32), (7.0, bottom + 0.27))
    for left, text in ((2.4, "one pass"), (4.15, "+"), (6.65, "solve")):
        axes.text(left, 2.45, text, ha="center", va="center", fontsize=10, color="#444444")
    save(figure, "sums.png")


def draw_frequencies():
    """Random frequencies, frequencies of a lattice, and the box of a lattice."""
    x = tgp.datasets.two_moons(1_500, noise=0.1)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    features = tgp.Features.draw(250, bandwidth=0.5, covariance=np.eye(2), seed=0)
    random = np.asarray(features.frequencies) / 0.5
    lattice = tgp.LatticeFeatures.for_data(x, 11, "gaussian", 0.5)
    steps = lattice.frequency_steps
    sides = [step * np.arange(-m, m + 1) for step, m in zip(steps, lattice.n_modes, strict=True)]
    first, second = np.meshgrid(*sides)
    weight = np.exp(-0.125 * (first**2 + second**2))
    figure, axes = plt.subplots(1, 3, figsize=(9.0, 3.2), layout="constrained")
    axes[0].scatter(*random.T, s=6, color=ORANGE, linewidths=0)
    axes[0].set_title("random features", fontsize=11)
    axes[1].scatter(first, second, s=1 + 14 * weight, color=BLUE, linewidths=0)
    axes[1].set_title("lattice: size is prior variance", fontsize=11)
    for one in axes[:2]:
        one.set(xlim=(-7, 7), ylim=(-7, 7), xlabel="frequency 1", ylabel="frequency 2")
    axes[2].scatter(*x.T, color=GRAY, **DOTS)
    core = [np.asarray(end) for end in lattice.core]
    for low, size, style in (
        (lattice.origin, lattice.lengths, "-"), (core[0], core[1] - core[0], "--"),
    ):  # fmt: skip
        box = plt.Rectangle(low, *size, fill=False, edgecolor=BLUE, linestyle=style)
        axes[2].add_patch(box)
    axes[2].autoscale_view()
    axes[2].set(xlabel="x1", ylabel="x2")
    axes[2].set_title("box; dashed: full tilt inside", fontsize=11)
    for one in axes:
        one.set_aspect("equal")
    save(figure, "frequencies.png")


def draw_domains():
    """A column that cannot be negative, and the hour of the day."""
    rng = np.random.default_rng(0)
    waits = rng.exponential(2.0, (2_000, 1))
    hours = np.concatenate([rng.normal(23.0, 1.5, 900), rng.normal(9.0, 2.0, 1_100)])[:, None] % 24
    figure, axes = plt.subplots(1, 2, figsize=(8.0, 2.8), layout="constrained")
    cases = (
        (waits, {"support": {0: (0, None)}}, "support={0: (0, None)}", np.linspace(-1, 12, 600)),
        (hours, {"period": {0: 24}}, "period={0: 24}", np.linspace(-2, 26, 600)),
    )
    for one, (x, options, text, line) in zip(axes, cases, strict=True):
        one.hist(x[:, 0], bins=60, density=True, color="#dddddd")
        for model, color, label in (
            (tgp.fit(x), ORANGE, "open"), (tgp.fit(x, **options), BLUE, text),
        ):  # fmt: skip
            one.plot(line, np.exp(model.log_density(line[:, None])), color=color, label=label)
        one.spines[["top", "right"]].set_visible(False)
        one.legend(frameon=False, fontsize=9)
    axes[0].set(xlabel="waiting time", ylabel="density")
    axes[1].set(xlabel="hour")
    save(figure, "domains.png")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for draw in (
        draw_readme, draw_product, draw_knobs, draw_frequencies, draw_sums, draw_domains,
    ):
        draw()
    for path in sorted(FOLDER.glob("*.png")):
        print(path.name, path.stat().st_size)
