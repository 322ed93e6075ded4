"""`Progress`: what a bar shows on standard error."""

import io
import re
import sys

import pytest

from tgpfast.runtime import progress
from tgpfast.runtime.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test moves it."""
    from tqdm import tqdm

    class Clock:
        now = 1_000.0

        def __call__(self):
            return self.now

    clock, opened = Clock(), tqdm.__init__

    def opened_by_clock(self, *args, **options):
        opened(self, *args, **options)
        self._time, self.start_t = clock, clock.now

    monkeypatch.setattr(tqdm, "__init__", opened_by_clock)
    return clock


def lines(capsys):
    """What was painted, one after the other."""
    out, err = capsys.readouterr()
    assert out == ""
    return [line.rstrip() for line in err.split("\r")[1:] if line.strip()]


@pytest.mark.parametrize("total", [10, None])
def test_disabled_is_silent(capsys, total):
    with Progress(False, "rows", total) as bar:
        bar.name_step("first")
        bar.add(3)
        bar.add(4)
    assert bar.done == 7
    assert capsys.readouterr() == ("", "")


def test_items_are_counted(clock, capsys):
    """With their name, how many a second, and the share where the total is known."""
    for total in (50_000, None):
        with Progress(True, "rows", total) as bar:
            clock.now += 10.0
            bar.add(20_000)
            clock.now += 10.0
            bar.add(30_000)
        last = lines(capsys)[-1]
        if total:
            assert "100%" in last
            assert "50.0k/50.0k" in last
            assert "2.50k rows/s" in last
        else:
            assert "50000 rows" in last
            assert "2500.00 rows/s" in last


def test_what_runs_is_named(clock, capsys):
    """With the time left, as the steps so far have proved."""
    with Progress(True, "steps", 4) as bar:
        for name in ("first", "second"):
            bar.name_step(name)
            clock.now += 30.0
            bar.add(1)
    painted = lines(capsys)
    assert any(line.startswith("first") for line in painted)
    assert re.fullmatch(r"second: *50%.*2/4 \[01:00<01:00, .*", painted[-1])


def test_an_end_by_error_is_no_end(clock, capsys):
    """The bar stays where the work stopped."""

    def stop():
        with Progress(True, "steps", 10) as bar:
            clock.now += 1.0
            bar.add(4)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    assert "40%" in lines(capsys)[-1]


def test_no_line_wraps(clock, capsys):
    """However long a name is."""
    with Progress(True, "steps", 3) as bar:
        for name in ("short", "long " * 40, "short"):
            bar.name_step(name)
            bar.add(1)
    painted = lines(capsys)
    assert max(map(len, painted)) <= progress.COLUMNS
    assert any("long" in line for line in painted)


class Full(io.StringIO):
    """A stream on a full disk."""

    def flush(self):
        raise OSError("No space left on device")


@pytest.mark.parametrize("kind", ["missing", "closed", "full"])
def test_no_place_for_a_bar_is_no_error(monkeypatch, kind):
    """Programs without a console have no standard error; the work goes on."""
    stream = {"missing": lambda: None, "closed": io.StringIO, "full": Full}[kind]()
    if kind == "closed":
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress(True, "rows", 10) as bar:
        bar.add(10)
        bar.name_step("name")
    assert bar.done == 10
