"""Amounts of memory, and the budget of grids."""

import pytest

from tgpfast.runtime import memory


@pytest.fixture(autouse=True)
def no_budget(monkeypatch):
    """No budget of the caller's."""
    monkeypatch.delenv(memory.BUDGET_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1500, 1500), ("1500", 1500), ("2GB", 2 * 10**9), ("2 GiB", 2**31), ("0.5mb", 500_000),
        ("1e6", 10**6), ("3 KB", 3000), ("7B", 7), (2.5e9, 2_500_000_000), ("1TiB", 2**40),
    ],
)  # fmt: skip
def test_amounts_of_memory(text, size, monkeypatch):
    assert memory.parse_bytes(text) == memory.budget(text) == size
    monkeypatch.setenv(memory.BUDGET_VARIABLE, str(text))
    assert memory.budget() == size
    assert memory.budget("5MB") == 5_000_000  # what is given comes first


def test_the_default_budget_is_a_share_of_what_is_free(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 10 * 2**30)
    assert memory.budget() == 4 * 2**30
    monkeypatch.setattr(memory, "available", lambda: None)
    assert memory.budget() == 2 * 2**30
