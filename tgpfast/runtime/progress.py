"""Progress bars on standard error, drawn by tqdm."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

COLUMNS = 78  # width of a bar, in characters: a line that wraps could not be painted over
STEPS_FORMAT = "{percentage:3.0f}%|{bar}| {elapsed} gone, {remaining} left  {desc}"
SCALED_TOTAL = 10_000  # items from which on numbers are shown as 12.3k or 4.56M


class Progress:
    """A bar that counts items: how many, how many a second, and the time left.

    Parameters
    ----------
    enabled : bool
        False shows nothing.
    unit : str
        Name of the items, such as "rows".
    total : int or None
        Number of items; None where it is not known.

    Examples
    --------
    >>> with Progress(False, "rows", 10) as bar:
    ...     bar.add(10)
    >>> bar.done
    10
    """

    def __init__(self, enabled: bool, unit: str, total: int | None) -> None:
        self.enabled, self.unit, self.total = enabled, unit, total
        self.done = 0
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if self.enabled:
            is_scaled = self.total is not None and self.total >= SCALED_TOTAL
            self._bar = _open_bar(self.total, unit=f" {self.unit}", unit_scale=is_scaled)
        return self

    def add(self, n: int) -> None:
        """Count n more items as done."""
        self.done += n
        if self._bar is not None:
            self._bar.update(n)

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()


class Steps:
    """A bar over named steps, each with a guess at its seconds.

    The bar shows the name of the step that runs, and the time left as the guesses have proved so
    far.

    Parameters
    ----------
    enabled : bool
        False shows nothing.
    total : float
        Sum of the guesses, in seconds.

    Examples
    --------
    >>> with Steps(False, 3.0) as bar:
    ...     with bar.step("first", 1.0):
    ...         pass
    >>> bar.done
    1.0
    """

    def __init__(self, enabled: bool, total: float) -> None:
        self.enabled, self.total = enabled, max(total, 1e-9)
        self.done = 0.0
        self._bar: Any = None

    def __enter__(self) -> Steps:
        if self.enabled:
            self._bar = _open_bar(self.total, bar_format=STEPS_FORMAT, delay=1e-9)  # until a step
        return self

    @contextlib.contextmanager
    def step(self, name: str, seconds: float) -> Iterator[None]:
        """Run one step. A step that fails counts as done too."""
        self._show(name)
        try:
            yield
        finally:
            self.done += seconds

    def drop(self, seconds: float) -> None:
        """Take back work that will not be done after all."""
        self.total = max(self.total - seconds, self.done, 1e-9)

    def _show(self, name: str, refresh: bool = True) -> None:
        if self._bar is not None:
            self._bar.total, self._bar.n = max(self.total, self.done), self.done
            self._bar.set_description_str(name, refresh)

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            if exception[0] is None:
                self.done = self.total
            self._show("done" if exception[0] is None else "stopped", refresh=False)
            self._bar.close()


def _open_bar(total: float | None, **options: Any) -> Any:
    from tqdm import tqdm  # here, so that importing tgpfast does not import it

    # smoothing=0: the average rate, since steps and blocks differ in length
    return tqdm(total=total, file=_StandardError(), ncols=COLUMNS, smoothing=0, **options)


class _StandardError:
    """Standard error as tqdm writes to it.

    Where it is missing (a program without a console), closed or full, nothing is shown and the work
    goes on.
    """

    encoding = property(lambda self: getattr(sys.stderr, "encoding", "ascii"))

    def write(self, text: str) -> None:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            sys.stderr.flush()
