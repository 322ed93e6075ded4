"""A bar on standard error for passes that take long."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

WIDTH = 28
INTERVAL = 0.1  # seconds between repaints


class Progress:
    """``with Progress(enabled, "rows", total) as bar: bar.add(n)``; silent unless enabled."""

    def __init__(self, enabled: bool, unit: str, total: int | None) -> None:
        self.enabled, self.unit, self.total = enabled, unit, total
        self.done, self._start, self._painted = 0, 0.0, 0.0

    def __enter__(self) -> Progress:
        self._start = time.perf_counter()
        return self

    def add(self, n: int) -> None:
        self.done += n
        if self.enabled and time.perf_counter() - self._painted > INTERVAL:
            self._paint()

    def _paint(self) -> None:
        self._painted = time.perf_counter()
        rate = self.done / max(self._painted - self._start, 1e-9)
        line = f"{self.done:,} {self.unit}  {rate:,.0f}/s"
        if self.total:
            share = min(self.done / self.total, 1.0)
            bar = "#" * int(WIDTH * share)
            left = (self.total - self.done) / max(rate, 1e-9)
            line = f"[{bar:<{WIDTH}}] {share:4.0%}  {line}  {left:,.0f} s left"
        _show(f"\r{line:<78}")

    def __exit__(self, *exception: object) -> None:
        if self.enabled:
            self._paint()
            _show("\n")


class Steps:
    """Named pieces of work with a guess at the seconds of each; the bar says what runs and what is
    left, by how the guesses have proved so far. Silent unless enabled.

    ``with Steps(enabled, total) as bar: with bar.step("name", seconds): ...``
    """

    def __init__(self, enabled: bool, total: float) -> None:
        self.enabled, self.total = enabled, max(total, 1e-9)
        self.done, self._start = 0.0, 0.0

    def __enter__(self) -> Steps:
        self._start = time.perf_counter()
        return self

    @contextlib.contextmanager
    def step(self, name: str, seconds: float) -> Iterator[None]:
        """One piece; counted as done also where it fails."""
        self._paint(name)
        try:
            yield
        finally:
            self.done += seconds

    def drop(self, seconds: float) -> None:
        """Work that will not be done after all: it is no longer counted."""
        self.total = max(self.total - seconds, self.done, 1e-9)

    def _paint(self, name: str) -> None:
        if not self.enabled:
            return
        share = min(self.done / self.total, 1.0)
        elapsed = time.perf_counter() - self._start
        undone = max(self.total - self.done, 0.0)
        left = elapsed / self.done * undone if self.done else undone
        bar = "#" * int(WIDTH * share)
        line = f"[{bar:<{WIDTH}}] {share:4.0%}  {_clock(left)} left  {name}"
        _show(f"\r{line[:78]:<78}")  # a line that wraps could not be painted over

    def __exit__(self, *exception: object) -> None:
        if self.enabled:
            if exception[0] is None:
                self.done = self.total
            self._paint(f"{_clock(time.perf_counter() - self._start)} in all")
            _show("\n")


def _show(text: str) -> None:
    """Write to standard error. One that is missing (a program without a console), closed or full
    shows no bar, and the work goes on."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


def _clock(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
