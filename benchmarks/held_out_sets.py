"""Tables of four to thirty columns for ``held_out.py``: scikit-learn's, and synthetic ones.

`TABLES` maps a name to a function without arguments, which returns the rows. Rows of synthetic
tables come from fixed seeds.
"""

import functools

import numpy as np


def bundled(loader):
    """Rows of a table that comes with scikit-learn."""
    from sklearn import datasets

    return np.asarray(getattr(datasets, f"load_{loader}")().data, float)


def digits(columns):
    """The first principal components of images of digits."""
    from sklearn.decomposition import PCA

    return PCA(columns).fit_transform(bundled("digits"))


def diabetes_with_target():
    """The columns of diabetes in their own units, and how the disease went on, in 11 columns."""
    from sklearn import datasets

    found = datasets.load_diabetes(scaled=False)
    return np.column_stack([found.data, found.target])


def photograph(name, side):
    """Patches of side x side pixels of a photograph, in shades of gray, 8,000 of them."""
    from sklearn.datasets import load_sample_image

    gray = load_sample_image(name).mean(axis=2)
    rng = np.random.default_rng(0)
    tops, lefts = (rng.integers(0, size - side, 8_000) for size in gray.shape)
    window = np.arange(side)
    rows = tops[:, None, None] + window[:, None]
    return gray[rows, lefts[:, None, None] + window].reshape(8_000, -1)


# -- synthetic tables -----------------------------------------------------------------------------


def skewed_copula(n=5_000, d=6):
    """A Gaussian copula; columns are gamma, log-normal, exponential, cubes, beta and t."""
    from scipy import stats

    rng = np.random.default_rng(0)
    root = np.tril(rng.normal(size=(d, d))) + 2.0 * np.eye(d)
    latent = rng.normal(size=(n, d)) @ root.T
    u = stats.norm.cdf(latent / np.sqrt(np.square(root).sum(axis=1)))
    margins = (
        stats.gamma(0.8), stats.lognorm(0.9), stats.expon(), stats.norm(), stats.beta(0.7, 2.0),
        stats.t(3),
    )  # fmt: skip
    x = np.column_stack([margin.ppf(u[:, k]) for k, margin in enumerate(margins)])
    x[:, 3] = x[:, 3] ** 3
    return x


def three_rings(n=4_000):
    """Rings of radius 1, 2 and 3 in two of five columns; the others are Gaussian noise."""
    rng = np.random.default_rng(0)
    radius = rng.integers(1, 4, n) + 0.1 * rng.normal(size=n)
    angle = rng.uniform(0.0, 2.0 * np.pi, n)
    return np.column_stack(
        [radius * np.cos(angle), radius * np.sin(angle), rng.normal(size=(n, 3))]
    )


def clusters(n, d, count=20):
    """Gaussian clusters of unlike shapes around scattered centers."""
    rng = np.random.default_rng(0)
    centers = 4.0 * rng.normal(size=(count, d))
    shapes = rng.normal(size=(count, d, d)) / np.sqrt(d)
    label = rng.integers(0, count, n)
    return centers[label] + np.einsum("nij,nj->ni", shapes[label], rng.normal(size=(n, d)))


def noisy_surface(n=4_000):
    """A curved surface of two dimensions in eight columns, with noise."""
    rng = np.random.default_rng(0)
    u, v = rng.uniform(-1.0, 1.0, (2, n))
    x = [u, v, u * v, u**2, np.sin(3 * u), np.cos(3 * v), np.exp(u), v**3]
    return np.column_stack(x) + 0.15 * rng.normal(size=(n, 8))


def cube(n=2_000, d=5):
    """Uniform in a cube."""
    return np.random.default_rng(0).uniform(size=(n, d))


def student(n=1_000, d=4):
    """A Student t distribution with 3 degrees of freedom."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)) / np.sqrt(rng.chisquare(3, (n, 1)) / 3.0)


def counts(n=1_500):
    """Poisson counts in three columns, of which two share a rate, and two continuous columns."""
    rng = np.random.default_rng(0)
    rate, other = rng.gamma(3.0, 3.0, (2, n))
    x = [rng.poisson(rate), rng.poisson(rate), rng.poisson(other), np.log(rate), other]
    return np.column_stack(x) + np.array([0, 0, 0, 0.3, 1.0]) * rng.normal(size=(n, 5))


# -- tables that nothing in the package was set while looking at ----------------------------------


def autoregression(n=3_000, d=12):
    """Twelve days in a row of a series whose variance changes (GARCH), from 3,000 series."""
    rng = np.random.default_rng(0)
    value, variance, days = np.zeros(n), np.ones(n), []
    for _ in range(d + 20):
        variance = 0.1 + 0.3 * value**2 + 0.6 * variance
        value = np.sqrt(variance) * rng.normal(size=n)
        days.append(value)
    return np.column_stack(days[-d:])


def two_regimes(n=6_000, d=10):
    """Two linear laws with heavy tails; the first column decides which one holds."""
    rng = np.random.default_rng(0)
    laws = rng.normal(size=(2, d - 1))
    first = rng.normal(size=n)
    noise = rng.standard_t(4, size=(n, d - 1))
    return np.column_stack([first, first[:, None] * laws[(first > 0).astype(int)] + 0.5 * noise])


def simplex(n=2_500, d=7):
    """Shares of eight parts (a mixture of three Dirichlet distributions), without the last."""
    rng = np.random.default_rng(0)
    concentrations = rng.gamma(2.0, 2.0, (3, d + 1))
    label = rng.integers(0, 3, n)
    parts = rng.gamma(concentrations[label])
    return (parts / parts.sum(axis=1, keepdims=True))[:, :-1]


def pendulum(n=20_000):
    """States of a double pendulum with unlike energies: two sines, two cosines, two velocities."""
    rng = np.random.default_rng(0)
    angles, speeds = 1.5 * rng.normal(size=(2, n)), 2.0 * rng.normal(size=(2, n))
    for _ in range(200):
        a, b = angles
        difference, share = a - b, 2.0 - np.cos(a - b) ** 2
        u, v = speeds
        pull = -2.0 * 9.8 * np.sin(a) - v**2 * np.sin(difference)
        other = -9.8 * np.sin(b) + u**2 * np.sin(difference)
        first = (pull - other * np.cos(difference)) / share
        second = (2.0 * other - pull * np.cos(difference)) / share
        speeds = speeds + 0.005 * np.array([first, second])
        angles = angles + 0.005 * speeds
    x = np.vstack([np.sin(angles), np.cos(angles), speeds]).T
    return x + 0.05 * rng.normal(size=x.shape)


def survey(n=1_200):
    """Answers from 1 to 5 to eight questions about one attitude, and age and income."""
    rng = np.random.default_rng(0)
    attitude = rng.normal(size=(n, 1))
    answers = np.clip(np.rint(3.0 + 0.8 * attitude + 0.8 * rng.normal(size=(n, 8))), 1, 5)
    age = np.floor(rng.uniform(18, 90, n))
    income = np.exp(9.5 + 0.02 * age + 0.3 * attitude[:, 0] + 0.5 * rng.normal(size=n))
    return np.column_stack([answers, age, income])


def few_factors(n=400, d=25):
    """Three skewed factors behind 25 columns, from 400 rows."""
    rng = np.random.default_rng(0)
    factors = rng.gamma(1.5, 1.0, (n, 3))
    return factors @ rng.normal(size=(3, d)) + 0.7 * rng.normal(size=(n, d))


def robot_arm(n=10_000):
    """Four angles of the joints of an arm within limits, and where its hand is, with noise."""
    rng = np.random.default_rng(0)
    angles = np.pi * (rng.beta(2.0, 2.0, (n, 4)) - 0.5)
    total = angles.cumsum(axis=1)
    hand = np.column_stack([np.cos(total).sum(axis=1), np.sin(total).sum(axis=1)])
    return np.column_stack([angles, hand + 0.1 * rng.normal(size=hand.shape)])


TABLES = {
    "iris": functools.partial(bundled, "iris"),
    "wine (13 columns)": functools.partial(bundled, "wine"),
    "diabetes": functools.partial(bundled, "diabetes"),
    "breast cancer": functools.partial(bundled, "breast_cancer"),
    "digits, 10 principal components": functools.partial(digits, 10),
    "copula, skewed columns": skewed_copula,
    "three rings": three_rings,
    "20 clusters": functools.partial(clusters, 5_000, 6),
    "noisy surface": noisy_surface,
    "cube": cube,
    "Student t": student,
    "20 clusters, few rows": functools.partial(clusters, 300, 4),
    "counts": counts,
    "diabetes with its target": diabetes_with_target,
    "digits, 25 principal components": functools.partial(digits, 25),
    "photograph of a flower, 3 x 3 pixels": functools.partial(photograph, "flower.jpg", 3),
    "photograph of a temple, 4 x 4 pixels": functools.partial(photograph, "china.jpg", 4),
    "GARCH": autoregression,
    "two regimes": two_regimes,
    "simplex": simplex,
    "pendulum": pendulum,
    "survey": survey,
    "few factors": few_factors,
    "robot arm": robot_arm,
}  # fmt: skip
