"""Facts about the machine: complete, and without names of people, hosts or folders."""

import os
import platform
import sys
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast.paper import machine
from tgpfast.paper.machine import machine_facts


def test_facts_of_the_machine(monkeypatch):
    """All are words, none names a person, a host or a path."""
    monkeypatch.setattr(platform, "node", lambda: pytest.fail("the host was asked for"))
    facts = machine_facts()
    assert list(facts) == ["processor", "cores", "memory", "operating system", "Python", "tgpfast",
                           *machine.PACKAGES, "date"]  # fmt: skip
    assert all(isinstance(value, str) and value for value in facts.values())
    assert facts["tgpfast"] == tgp.__version__
    assert facts["numpy"] == np.__version__
    assert facts["Python"].startswith(".".join(map(str, sys.version_info[:3])))
    home = os.path.expanduser("~")
    for value in facts.values():
        assert os.getcwd() not in value
        assert home == "/" or home not in value
        assert not value.startswith(("/", "\\"))


def test_the_date_is_the_present_in_utc():
    """To the second."""
    before = datetime.now(timezone.utc)
    date = datetime.fromisoformat(machine_facts()["date"])
    assert date.utcoffset() == timedelta(0)
    assert before - timedelta(seconds=1) <= date <= datetime.now(timezone.utc)


def test_a_package_that_is_missing(monkeypatch):
    """It says so."""
    monkeypatch.setattr(machine, "PACKAGES", ("no-such-package-here",))
    assert machine_facts()["no-such-package-here"] == "not installed"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nmodel name\t: A  CPU @ 2 GHz\nmodel name\t: B\n", "A CPU @ 2 GHz"),
        ("processor\t: 0\nBogoMIPS\t: 50\n", "known to Python"),
        ("model name\t:\n", "known to Python"),
        (None, "known to Python"),
    ],
)
def test_the_name_of_the_processor(tmp_path, monkeypatch, text, expected):
    """From Linux where it gives one, else from Python."""
    monkeypatch.setattr(platform, "processor", lambda: "known to Python")
    file = tmp_path / "cpuinfo"
    if text is not None:
        file.write_text(text)
    assert machine.read_processor_name(str(file)) == expected


def test_cores_that_may_not_be_used(monkeypatch):
    """A process held to some of the cores says so."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    assert machine_facts()["cores"] == "8, of which 2 usable"
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert machine_facts()["cores"] == "8"
