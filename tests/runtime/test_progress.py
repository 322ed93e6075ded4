"""`Steps`: what a bar shows on standard error."""

import io
import itertools
import re
import sys

import pytest

from tgpfast.runtime import progress
from tgpfast.runtime.progress import Progress, Steps


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test moves it."""

    class Clock:
        now = 1_000.0

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(progress.time, "perf_counter", clock)
    return clock


def fail(error):
    raise error


def lines(capsys):
    """What was painted, one after the other."""
    out, err = capsys.readouterr()
    assert out == ""
    return [line.rstrip() for line in err.split("\r")[1:]]


def test_disabled_is_silent(capsys):
    with Steps(False, 10.0) as bar:
        with bar.step("a", 4.0):
            pass
        bar.drop(6.0)
    assert capsys.readouterr() == ("", "")
    assert bar.done == 4.0


def test_what_runs_how_far_and_how_long(clock, capsys):
    """First the sum of the guesses; where steps take three times as long, three times the rest."""
    guesses = {"first": 10.0, "second": 30.0, "third": 60.0}
    with Steps(True, 100.0) as bar:
        for name, seconds in guesses.items():
            with bar.step(name, seconds):
                clock.now += 3.0 * seconds
    painted = lines(capsys)
    assert [re.split(r"  +", line.split("]")[1].strip(), maxsplit=2) for line in painted] == [
        ["0%", "2 min left", "first"],  # 100 s
        ["10%", "4 min left", "second"],  # 30 s for a tenth: 270 s for the rest
        ["40%", "3 min left", "third"],  # 120 s for four: 180 s
        ["100%", "0 s left", "5 min in all"],
    ]
    filled = [line.split("]")[0].count("#") for line in painted]
    assert filled == [0, int(0.1 * progress.WIDTH), int(0.4 * progress.WIDTH), progress.WIDTH]


def test_time_left_falls_where_guesses_hold(clock, capsys):
    """By the seconds of each step, down to none."""
    with Steps(True, 50.0) as bar:
        for k in range(5):
            with bar.step(f"step {k}", 10.0):
                clock.now += 10.0
    left = [int(re.search(r"(\d+) s left", line)[1]) for line in lines(capsys)]
    assert left == [50, 40, 30, 20, 10, 0]


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
        assert "75%  5 s left  good" in lines(capsys)[1]


def test_work_that_is_dropped_is_not_counted(clock, capsys):
    """It shortens the time left by its share, and does not make the rest seem fast."""
    with Steps(True, 40.0) as bar:
        with bar.step("a", 10.0):
            clock.now += 10.0
        bar.drop(20.0)
        with bar.step("b", 10.0):
            clock.now += 10.0
    assert [re.search(r"(\d+)%  (\d+) s left", line).groups() for line in lines(capsys)] == [
        ("0", "40"), ("50", "10"), ("100", "0"),
    ]  # fmt: skip


def test_all_that_was_to_be_done_can_be_dropped(clock, capsys):
    """Also where nothing was to be done at all: a share is never of nothing."""
    for total in (12.0, 0.0):
        with Steps(True, total) as bar:
            bar.drop(total)
        (painted,) = lines(capsys)
        assert "100%  0 s left  0 s in all" in painted


def test_an_end_by_error_is_no_end(clock, capsys):
    """The bar stays where the work stopped."""
    bar = Steps(True, 10.0)
    bar.done = 4.0
    with pytest.raises(KeyboardInterrupt), bar:
        fail(KeyboardInterrupt())
    assert " 40%" in lines(capsys)[-1]


def test_guesses_too_small_stay_within_the_bar(clock, capsys):
    """More done than was announced is still no more than all, and leaves no time below none."""
    with Steps(True, 1.0) as bar:
        for name in "ab":
            with bar.step(name, 5.0):
                clock.now += 1.0
    for line in lines(capsys):
        assert len(line.split("]")[0]) == 1 + progress.WIDTH
        assert "-" not in line


def test_each_line_covers_the_one_before(clock, capsys):
    """All have one width, however long a name is, so that none leaves a rest or wraps."""
    names = ["short", "long " * 40, "short"]
    with Steps(True, 3.0) as bar:
        for name in names:
            with bar.step(name, 1.0):
                pass
    painted = capsys.readouterr().err.removesuffix("\n").split("\r")[1:]
    assert {len(line) for line in painted} == {78}
    assert [("long" in line) for line in painted] == [False, True, False, False]


def test_one_line_that_ends_once(clock, capsys):
    with Steps(True, 1.0) as bar, bar.step("a", 1.0):
        pass
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert err.startswith("\r")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 s"), (99.4, "99 s"), (100.0, "2 min"), (3_600.0, "60 min")]
)
def test_clock_texts(seconds, text):
    assert progress._clock(seconds) == text


def test_clock_texts_never_go_back():
    """More seconds are never shown as less."""
    scale = {"s": 1, "min": 60}
    values = [
        int(number) * scale[unit]
        for number, unit in (progress._clock(t / 2).split() for t in range(1_000))
    ]
    assert all(a <= b for a, b in itertools.pairwise(values))


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
