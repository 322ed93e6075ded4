"""A bar on standard error for passes that take long."""

from __future__ import annotations

import sys
import time

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
        sys.stderr.write(f"\r{line:<78}")
        sys.stderr.flush()

    def __exit__(self, *exception: object) -> None:
        if self.enabled:
            self._paint()
            sys.stderr.write("\n")
