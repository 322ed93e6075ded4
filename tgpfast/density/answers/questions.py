"""`SharedQuestions`: questions whose arguments every kind of density reads in the same way."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from ...data.blocks import Blocks
from ...data.table import Table, find_column
from ...validation import Array, Seed, as_seed, check_flag
from .answer import Answer
from .column_choice import check_levels, find_columns, read_box
from .describing import DescribedDensity


class SharedQuestions(DescribedDensity, abc.ABC):
    """Questions to a density. Each kind of density answers them in its own way."""

    table: Table

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """Number of columns d."""

    def _read_rows(self, Y: Any) -> Blocks:
        """Rows (n, d) that a user gives, in the units of the data."""
        return Blocks(Y, dimension=self.dimension, columns=self.table.columns, name="Y")

    # -- probabilities --------------------------------------------------------------------

    def probability(self, lower: Any = None, upper: Any = None, *, seed: Seed = 0) -> Answer:
        """Probability that a row lies between two bounds in every column.

        Parameters
        ----------
        lower, upper : sequence of d numbers, mapping, or None, default None
            Bounds of the columns, in the units of the data; None or an infinite number where a
            column has none. A mapping names only the columns that have one. Bounds of a periodic
            column may lie in any period: from 22 to 26 with a period of 24 is from 22 to 2 of the
            next day. One bound alone reaches to the end of the period that samples lie in. Values
            of a discrete column that equal a bound count as inside.
        seed : int, None or numpy.random.Generator, default 0
            Of the draws, in more than three columns.

        Returns
        -------
        Answer
            A float with ``standard_error`` and ``method``.

        Raises
        ------
        ValueError
            A column is not known, or a lower bound is above the upper one.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 2))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> answer = model.probability([None, 5.0], [5.0, None])
        >>> round(answer, 1), answer.standard_error < 1e-6, answer.method
        (0.2, True, 'quadrature')
        """
        low, high = read_box(lower, upper, self.table.columns, self.dimension)
        return self._find_probability(low, high, as_seed(seed))

    @abc.abstractmethod
    def _find_probability(self, low: Array, high: Array, seed: int) -> Answer:
        """Probability of a box, from its ends (d,) each, in the units of the data."""

    def cdf(
        self, Y: Any, *, columns: Any = None, return_error: bool = False, seed: Seed = 0
    ) -> Any:
        """Distribution function: probability that every column is at most its value in Y.

        Parameters
        ----------
        Y : array-like, (n,) or (n, k), or data frame
            Values in the units of the data, one column for each one asked for. Those of periodic
            columns are moved into the period that samples lie in, and probability counts from its
            start.
        columns : str, int or sequence of them, default None
            Columns asked for; the others may have any value. All by default.
        return_error : bool, default False
            Return the errors of the values too.
        seed : int, None or numpy.random.Generator, default 0
            Of the draws, in more than three columns.

        Returns
        -------
        array, (n,); a Series where Y is a data frame
            With ``return_error`` a pair: the values, and their standard errors (n,). Of one column,
            ``quantile`` is the inverse. In a discrete column it jumps at the values, and includes
            the value itself.

        Raises
        ------
        ValueError
            A column is not known, or Y has other columns.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 2))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> model.cdf([5.0], columns=0).round(1).tolist()
        [0.5]
        """
        with_error = check_flag("return_error", return_error)
        names, d = self.table.columns, self.dimension
        chosen = list(range(d)) if columns is None else find_columns(columns, names, d)
        wanted = None if names is None else [names[k] for k in chosen]
        blocks = Blocks(Y, dimension=len(chosen), columns=wanted, name="Y")
        values, errors = self._evaluate_cdf(blocks.whole(), chosen, as_seed(seed), with_error)
        answer = blocks.table.series(values, "cdf")
        return (answer, errors) if with_error else answer

    @abc.abstractmethod
    def _evaluate_cdf(
        self, values: Array, chosen: list[int], seed: int, with_error: bool
    ) -> tuple[Array, Array]:
        """The distribution function at values (n, k) of some columns, (n,), and its errors, (n,),
        which are not defined unless they are asked for."""

    def quantile(self, q: Any, *, column: Any = None, seed: Seed = 0) -> Any:
        """Values below which given shares of the probability of a column lie.

        Parameters
        ----------
        q : float or array-like, (Q,)
            Shares in (0, 1).
        column : str or int, default None
            The column; by default all columns, each by itself.
        seed : int, None or numpy.random.Generator, default 0
            Of the draws, in more than three columns.

        Returns
        -------
        float or array
            In the units of the data. Of one column: a float, or (Q,) for several shares. Of all
            columns: (d,), or (Q, d). ``cdf`` of a quantile is q to within 1e-8 in one and two
            columns, 1e-6 on grids in three, and 1e-5 with draws. Of a discrete column it is the
            least value on its grid at which ``cdf`` reaches q.

        Raises
        ------
        ValueError
            A share is not in (0, 1), or the column is not known.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 2))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> low, high = model.quantile([0.05, 0.95], column=0)
        >>> bool(low < 5.0 < high), model.quantile(0.5).shape
        (True, (2,))
        """
        levels, seed, d = check_levels("q", q), as_seed(seed), self.dimension
        if column is None and d > 1:
            table = np.stack([self._find_quantiles(k, levels, seed) for k in range(d)], axis=1)
            return table[0] if np.ndim(q) == 0 else table
        number = find_column(0 if column is None else column, self.table.columns, d)
        found = self._find_quantiles(number, levels, seed)
        return float(found[0]) if np.ndim(q) == 0 else found

    @abc.abstractmethod
    def _find_quantiles(self, column: int, levels: Array, seed: int) -> Array:
        """Quantiles of a column, (Q,), in the units of the data."""

    def median(self) -> Array:
        """Median of every column, (d,), in the units of the data.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 2))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> model.median().round(0).tolist()
        [5.0, 5.0]
        """
        return np.atleast_1d(self.quantile(0.5))

    # -- information -------------------------------------------------------------------------------

    def mutual_information(self, a: Any, b: Any, *, seed: Seed = 0) -> Answer:
        """Mutual information E[log q_ab - log q_a - log q_b] of two groups of columns, in nats.

        Parameters
        ----------
        a, b : str, int or sequence of them
            The groups; no column is in both.
        seed : int, None or numpy.random.Generator, default 0
            Of the draws, in more than three columns and for discrete ones; else it is an integral
            on a grid.

        Returns
        -------
        Answer
            A float with ``standard_error`` and ``method``; 0 if the groups are independent.

        Raises
        ------
        ValueError
            A column is not known, or is in both groups.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(size=(1000, 2)) @ [[1.0, 0.8], [0.0, 0.6]]
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> round(model.mutual_information(0, 1), 1)  # of the Gaussian: -log(0.6) = 0.51
        0.5
        """
        names, d = self.table.columns, self.dimension
        one, two = find_columns(a, names, d, "a"), find_columns(b, names, d, "b")
        if set(one) & set(two):
            raise ValueError(f"a={a!r} and b={b!r}: expected different columns in both")
        return self._find_information(one, two, as_seed(seed))

    @abc.abstractmethod
    def _find_information(self, one: list[int], two: list[int], seed: int) -> Answer:
        """Mutual information of two groups of columns."""

    def kl_divergence(self, other: Any, *, seed: Seed = 0) -> Answer:
        """Kullback-Leibler divergence E[log q - log other] in nats, with rows from this density.

        Parameters
        ----------
        other : density
            Has ``log_density`` for the same columns, with the same discrete ones.
        seed : int, None or numpy.random.Generator, default 0
            Of the draws, in more than three columns. Marginals and densities of discrete columns
            always take draws, 2,048 of them.

        Returns
        -------
        Answer
            A float with ``standard_error`` and ``method``. It is infinite where the other density
            is zero and this one is not.

        Raises
        ------
        TypeError, ValueError
            The other is no density, or has other columns.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
        >>> options = dict(method="fd", lam=10.0, n_features=50, base="empirical")
        >>> one, two = tgpfast.fit(x, **options), tgpfast.fit(x + 1.0, **options)
        >>> bool(one.kl_divergence(two) > one.kl_divergence(one))
        True
        """
        if not hasattr(other, "log_density"):
            raise TypeError(f"other must be a density with log_density, got {type(other).__name__}")
        if getattr(other, "dimension", self.dimension) != self.dimension:
            raise ValueError(
                f"other has {other.dimension} columns, this density has {self.dimension}; expected "
                "the same columns"
            )
        if getattr(other, "own_steps", {}) != getattr(self, "own_steps", {}):
            raise ValueError(
                "other must have the same discrete columns with the same steps: probabilities of "
                "values and densities cannot be compared; fit both with the same discrete="
            )
        return self._find_divergence(other, as_seed(seed))

    @abc.abstractmethod
    def _find_divergence(self, other: Any, seed: int) -> Answer:
        """Divergence from a density of the same columns."""


class DerivedDensity(SharedQuestions):
    """What a density takes from the joint density that it is computed from."""

    joint: Any

    @property
    def method(self) -> str:
        """How the joint density was learned."""
        return str(self.joint.method)

    @property
    def settings(self) -> dict[str, Any]:
        """The choices behind the joint density, and how they were made."""
        return self.joint.settings

    @property
    def log_normalizer(self) -> Any:
        """`Normalizer` of the joint density: its log Z with the error."""
        return self.joint.log_normalizer
