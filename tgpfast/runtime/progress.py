"""Progress bars on standard error, drawn by tqdm."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

COLUMNS = 78  # width of a bar, in characters: a line that wraps could not be painted over
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
            from tqdm import tqdm  # here, so that importing tgpfast does not import it

            is_scaled = self.total is not None and self.total >= SCALED_TOTAL
            # smoothing=0: the average rate, since steps and blocks differ in length
            self._bar = tqdm(
                total=self.total, file=_StandardError(), ncols=COLUMNS, smoothing=0,
                unit=f" {self.unit}", unit_scale=is_scaled,
            )  # fmt: skip
        return self

    def add(self, n: int) -> None:
        """Count n more items as done."""
        self.done += n
        if self._bar is not None:
            self._bar.update(n)

    def name_step(self, name: str) -> None:
        """Show the name of what runs now."""
        if self._bar is not None:
            self._bar.set_description_str(name)

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()


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
