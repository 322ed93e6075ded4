"""`Answer`: a number with its error and the way it was computed."""

from __future__ import annotations

from typing import Any


class Answer(float):
    """A float that knows its error. It can be used wherever a float can.

    Parameters
    ----------
    value : float
    standard_error : float
        Standard error of a value from draws; for quadrature, a bound on the error.
    method : str
        How the value was computed: "exact" is a closed form, "quadrature" an integral on grids,
        "draws" a mean over draws.

    Examples
    --------
    >>> answer = Answer(0.25, 0.001, "draws")
    >>> answer.standard_error, answer.method, 2 * answer
    (0.001, 'draws', 0.5)
    """

    __slots__ = ("_method", "_standard_error")

    _standard_error: float
    _method: str

    def __new__(cls, value: float, standard_error: float, method: str) -> Answer:
        answer = super().__new__(cls, value)
        answer._standard_error, answer._method = float(standard_error), method
        return answer

    @property
    def value(self) -> float:
        """The number alone."""
        return float(self)

    @property
    def standard_error(self) -> float:
        """Standard error of a value from draws; for quadrature, a bound on the error."""
        return self._standard_error

    @property
    def method(self) -> str:
        """How the value was computed: "exact", "quadrature" or "draws"."""
        return self._method

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.value, self.standard_error, self.method

    def __repr__(self) -> str:
        return f"{self.value:.8g} (error {self.standard_error:.1g}, {self.method})"
