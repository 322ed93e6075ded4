"""Held-out log-likelihood of ``tgpfast.fit(X)``, and nothing else, beside its rivals.

    python benchmarks/held_out.py [--data DIR] [--only NAME ...] [--vine] [--flow] [--scores DIR]

Sets: toy data of two columns, `held_out_sets.TABLES`, and the files of ``--data``. Exact duplicates
are dropped, columns standardized, at most 20,000 rows taken, one in five held out. Sets whose
columns are rounded to a step appear twice: as they are, and "+ noise", with uniform noise of one
step added to all rows before any model sees them.

Rivals: the model's own base; a kernel estimate whose bandwidth and shape are tuned on a fifth of
the training rows; a Gaussian mixture by BIC (up to 20 components), and one whose number of
components (up to 160, covariances regularized) a fifth of the training rows decide on, both of
scikit-learn; where asked for and installed, a vine copula (pyvinecopulib) and a neural spline flow
(zuko, 8 minutes of CPU time at most). After each score stand the difference from ``fit`` in
standard errors of that difference, the standard error, and the CPU seconds of the rival.
Rivals whose scores an earlier run left in the folder of ``--scores`` are not run again, and have no
seconds.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from held_out_sets import TABLES

import tgpfast
from tgpfast.bases.expectation_maximization import measure_columns
from tgpfast.data.blocks import Blocks
from tgpfast.paper import datasets

ROWS, HELD = 20_000, 5
TOYS = tuple(datasets.GENERATORS)
GRIDDED = 0.002  # standard deviations: a column with a larger step is rounded
MIXTURE_FLOORS = (1e-3, 1e-2)  # added to the variances of the mixture by held-out rows
FLOW_SECONDS = 480  # of CPU time: four minutes of two cores
FLOW_PATIENCE = 10  # passes over the rows
MOST_TAGS = 5  # values of a column of HIGGS that is a tag
LEAST_DENSITY = 1e-300  # a vine has a density of 0 at some rows beyond its grid


def round_tags(rows):
    """HIGGS with its four columns of three values to one decimal: the file has some of the same
    values with three decimals, some with nine."""
    few = [k for k, column in enumerate(rows.T) if len(np.unique(column)) <= MOST_TAGS]
    rows = rows.copy()
    rows[:, few] = np.round(rows[:, few], 1)
    return rows


def prepared(rows, noise=False):
    """(training rows, held-out rows), and whether some column is rounded."""
    x = np.unique(np.asarray(rows, float), axis=0)
    steps = measure_columns(x, np.ones(len(x))).resolution
    if noise:
        x = x + steps * np.random.default_rng(1).uniform(-0.5, 0.5, x.shape)
    x = x[np.random.default_rng(0).permutation(len(x))][:ROWS]
    is_gridded = bool((steps > GRIDDED * x.std(axis=0)).any())
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    n = len(x) - len(x) // HELD
    return x[:n], x[n:], is_gridded


def inner_split(train):
    """Masks of the rows that a rival learns from, and that it tunes itself on."""
    left_out = np.arange(len(train)) % HELD == HELD - 1
    return ~left_out, left_out


# -- rivals: (training rows, held-out rows) -> log density of every held-out row ------------------


def tuned_kde(train, held):
    kept, tuned = inner_split(train)
    best, score = None, -np.inf
    for shape in ("data", "identity"):
        for width in np.geomspace(0.05, 1.2, 14):
            kde = tgpfast.ExactKDE(train[kept], bandwidth=width, covariance=shape)
            value = kde.log_density(train[tuned]).mean()
            if value > score:
                best, score = {"bandwidth": width, "covariance": shape}, value
    return tgpfast.ExactKDE(train, **best).log_density(held)


def choose_by_bic(train):
    """The mixture of up to 20 components with the least BIC."""
    from sklearn.mixture import GaussianMixture

    sizes = [k for k in (1, 2, 3, 5, 8, 12, 16, 20) if 2 * k < len(train)]
    fits = [GaussianMixture(k, random_state=0).fit(train) for k in sizes]
    return min(fits, key=lambda m: m.bic(train))


def choose_by_held_out_rows(train):
    """The mixture of up to 160 components that the inner held-out rows like best."""
    from sklearn.mixture import GaussianMixture

    kept, tuned = inner_split(train)
    sizes = [k for k in (2, 5, 10, 20, 40, 80, 160) if 5 * k <= kept.sum()] or [1]
    each = [
        {"n_components": k, "reg_covar": least, "random_state": 0, "max_iter": 50}
        for k in sizes for least in MIXTURE_FLOORS
    ]  # fmt: skip
    best = max(each, key=lambda o: GaussianMixture(**o).fit(train[kept]).score(train[tuned]))
    return GaussianMixture(**best).fit(train)


def mixture_by_bic(train, held):
    return choose_by_bic(train).score_samples(held)


def mixture_by_held_out_rows(train, held):
    return choose_by_held_out_rows(train).score_samples(held)


def vine(train, held):
    """Kernel estimates of the columns, and a vine of nonparametric pair copulas."""
    import pyvinecopulib as pv

    def to_uniform(reference, rows):
        values = np.sort(reference, axis=0)
        ranks = [
            np.searchsorted(v, c) + np.searchsorted(v, c, side="right")
            for v, c in zip(values.T, rows.T, strict=True)
        ]  # of equal values the middle
        return (0.5 * np.array(ranks).T + 0.5) / (len(reference) + 1.0)

    controls = pv.FitControlsVinecop(family_set=[pv.BicopFamily.tll])
    copula = pv.Vinecop.from_data(to_uniform(train, train), controls=controls)
    densities = [copula.pdf(to_uniform(train, held))]
    for k in range(train.shape[1]):
        margin = pv.core.Kde1d()
        margin.fit(train[:, k])
        densities.append(margin.pdf(held[:, k]))
    return np.log(np.maximum(densities, LEAST_DENSITY)).sum(axis=0)


def flow(train, held):
    """A neural spline flow: the state that the inner held-out rows like best.

    The step is halved after FLOW_PATIENCE passes without a gain, and training ends after three
    times as many, or after FLOW_SECONDS of CPU time on one thread.
    """
    import torch
    import zuko

    torch.manual_seed(0)
    torch.set_num_threads(1)
    kept, tuned = (torch.tensor(train[m], dtype=torch.float32) for m in inner_split(train))
    model = zuko.flows.NSF(train.shape[1], transforms=4, hidden_features=(128, 128))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=0.5, patience=FLOW_PATIENCE
    )
    best, state, idle, start = -np.inf, model.state_dict(), 0, time.process_time()
    while time.process_time() - start < FLOW_SECONDS and idle < 3 * FLOW_PATIENCE:
        for batch in torch.randperm(len(kept)).split(int(np.clip(len(kept) // 8, 32, 512))):
            optimizer.zero_grad()
            (-model().log_prob(kept[batch]).mean()).backward()
            optimizer.step()
        with torch.no_grad():
            score = float(model().log_prob(tuned).mean())
        schedule.step(score)
        idle += 1
        if score > best:
            best, idle = score, 0
            state = {name: values.clone() for name, values in model.state_dict().items()}
    model.load_state_dict(state)
    with torch.no_grad():
        return model().log_prob(torch.tensor(held, dtype=torch.float32)).numpy().astype(float)


RIVALS = {
    "tuned KDE": tuned_kde, "mixture by BIC": mixture_by_bic,
    "mixture by held-out rows": mixture_by_held_out_rows,
}  # fmt: skip


def score(rival, train, held, kept):
    """Log density of a rival at the held-out rows, and its CPU seconds.

    kept : file of an earlier score, which is then taken without seconds, or written
    """
    if kept is not None and kept.exists():
        return np.load(kept), None
    start = time.process_time()
    found = rival(train, held)
    spent = time.process_time() - start
    if kept is not None:
        np.save(kept, found)
    return found, spent


def row(name, train, held, rivals, folder=None):
    """One row of the table."""
    start, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what matters here is the score
        model = tgpfast.fit(train)
    ours = np.asarray(model.log_density(held))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    base = model.base.log_density(model.scaling.apply(held)) + model.scaling.log_slope(held)
    cells = [f"{ours.mean():.3f}", f"{base.mean():.3f}"]
    for word, rival in rivals.items():
        kept = folder / f"{name}, {word}.npy" if folder is not None else None
        theirs, spent = score(rival, train, held, kept)
        gap = ours - theirs
        error = gap.std() / np.sqrt(len(gap))
        distance = f"{gap.mean() / error:+.1f} of {error:.3f}"
        took = "" if spent is None else f", {spent:.0f} s"
        cells.append(f"{theirs.mean():.3f} ({distance}{took})")
    facts = model.settings
    chosen = f"{model.method}, {facts.get('features', 'random')}, {facts['base']}"
    cells += [chosen, f"{seconds:.1f}", f"{cpu:.1f}"]
    return f"| {name} | {len(train):,} x {train.shape[1]} | {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of data files, one set each")
    parser.add_argument("--only", nargs="*", help="names of sets")
    parser.add_argument("--vine", action="store_true", help="a vine copula too (pyvinecopulib)")
    parser.add_argument("--flow", action="store_true", help="a neural spline flow too (zuko)")
    parser.add_argument("--scores", type=Path, help="folder that keeps the scores of rivals")
    options = parser.parse_args()
    if options.scores is not None:
        options.scores.mkdir(parents=True, exist_ok=True)
    sets = {name: lambda name=name: datasets.GENERATORS[name](ROWS, seed=1) for name in TOYS}
    sets |= TABLES
    if options.data is not None:
        for path in sorted(options.data.iterdir()):
            if path.suffix in (".csv", ".npy", ".npz", ".parquet"):
                sets[path.stem] = lambda path=path: Blocks(path).whole()
    if "higgs_18k" in sets:
        sets["higgs_18k, tags rounded"] = lambda: round_tags(sets["higgs_18k"]())
    rivals = RIVALS | ({"vine": vine} if options.vine else {})
    rivals |= {"flow": flow} if options.flow else {}
    names = " | ".join(rivals)
    print(f"| set | rows | fit | its base | {names} | chosen | seconds | CPU seconds |")
    print("|" + "---|" * (len(rivals) + 7))
    for name in options.only or sets:
        rows = sets[name]()
        train, held, is_gridded = prepared(rows)
        print(row(name, train, held, rivals, options.scores), flush=True)
        if is_gridded:
            train, held, _ = prepared(rows, noise=True)
            print(row(f"{name} + noise", train, held, rivals, options.scores), flush=True)


if __name__ == "__main__":
    main()
