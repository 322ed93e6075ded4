"""`Progress` and `Steps`: what a bar shows on standard error."""

import io
import re
import sys

import pytest

from tgpfast.runtime import progress
from tgpfast.runtime.progress import Progress, Steps


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


def fail(error):
    raise error


def lines(capsys):
    """What was painted, one after the other."""
    out, err = capsys.readouterr()
    assert out == ""
    return [line.rstrip() for line in err.split("\r")[1:] if line.strip()]


@pytest.mark.parametrize("total", [10, None])
def test_disabled_is_silent(capsys, total):
    with Progress(False, "rows", total) as bar:
        bar.add(3)
        bar.add(4)
    assert bar.done == 7
    with Steps(False, 10.0) as steps:
        with steps.step("a", 4.0):
            pass
        steps.drop(6.0)
    assert steps.done == 4.0
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


def test_what_runs_how_far_and_how_long(clock, capsys):
    """The time left is that of the guesses, times what they have proved to be wrong by."""
    guesses = {"first": 10.0, "second": 30.0, "third": 60.0}
    with Steps(True, 100.0) as bar:
        for name, seconds in guesses.items():
            with bar.step(name, seconds):
                clock.now += 3.0 * seconds
    found = [
        re.fullmatch(r" *(\d+)%\|.*\| (\S+) gone, (\S+) left  (\S+)", line).groups()
        for line in lines(capsys)
    ]
    assert found == [
        ("0", "00:00", "?", "first"),
        ("10", "00:30", "04:30", "second"),  # 30 s for a tenth: 270 s for the rest
        ("40", "02:00", "03:00", "third"),
        ("100", "05:00", "00:00", "done"),
    ]


@pytest.mark.parametrize("enabled", [False, True])
def test_a_step_that_fails_counts(enabled, clock, capsys):
    """Its seconds have gone by; the error goes on."""
    with Steps(enabled, 20.0) as bar:
        clock.now += 15.0
        with pytest.raises(ValueError, match="broken"), bar.step("bad", 15.0):
            fail(ValueError("broken"))
        assert bar.done == 15.0
        with bar.step("good", 5.0):
            clock.now += 5.0
    if enabled:
        assert re.search("75%.* 00:05 left  good", lines(capsys)[1])


def test_work_that_is_dropped_is_not_counted(clock, capsys):
    """It shortens the time left by its share, and does not make the rest seem fast."""
    with Steps(True, 40.0) as bar:
        with bar.step("a", 10.0):
            clock.now += 10.0
        bar.drop(20.0)
        with bar.step("b", 10.0):
            clock.now += 10.0
    found = [re.search(r"(\d+)%.* (\S+) left", line).groups() for line in lines(capsys)]
    assert found == [("0", "?"), ("50", "00:10"), ("100", "00:00")]


@pytest.mark.parametrize("total", [12.0, 0.0])
def test_all_that_was_to_be_done_can_be_dropped(clock, capsys, total):
    """Also where nothing was to be done at all."""
    with Steps(True, total) as bar:
        bar.drop(total)
    assert "100%" in lines(capsys)[-1]


def test_an_end_by_error_is_no_end(clock, capsys):
    """The bar stays where the work stopped."""
    bar = Steps(True, 10.0)
    with pytest.raises(KeyboardInterrupt), bar, bar.step("a", 4.0):
        fail(KeyboardInterrupt())
    assert re.search("40%.*stopped", lines(capsys)[-1])


def test_guesses_too_small_stay_within_the_bar(clock, capsys):
    """More done than was announced is still no more than all."""
    with Steps(True, 1.0) as bar:
        for name in "ab":
            with bar.step(name, 5.0):
                clock.now += 1.0
    shares = [int(re.match(r" *(\d+)%", line)[1]) for line in lines(capsys)]
    assert max(shares) == 100


def test_no_line_wraps(clock, capsys):
    """However long a name is."""
    with Steps(True, 3.0) as bar:
        for name in ("short", "long " * 40, "short"):
            with bar.step(name, 1.0):
                pass
    painted = lines(capsys)
    assert max(map(len, painted)) <= progress.COLUMNS
    assert [("long" in line) for line in painted] == [False, True, False, False]


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
    with Steps(True, 1.0) as steps, steps.step("name", 1.0):
        pass
    assert bar.done == 10
    assert steps.done == 1.0
