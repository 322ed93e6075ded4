"""Checkpoints: the sums of a fit's passes over the rows, saved on the way, so that a fit that was
stopped can go on.

The passes of a fit run in the same order each time, and what is chosen between them depends on
their sums alone. So a fit that starts again with the saved sums comes to the same bits.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from . import storage

CHECKPOINT_KIND = "checkpoint"
SAVE_SECONDS = 30.0  # between two saves: what a stop may cost

State = dict[str, NDArray[Any]]


class PassSums(Protocol):
    """What a pass adds rows to."""

    def state(self) -> State:
        """The sums so far, by name; complex numbers as pairs of real ones."""

    def restore(self, state: State) -> None:
        """Take over what ``state`` returned."""


class KeptSums:
    """Sums that are arrays and numbers, each in an attribute.

    Attributes
    ----------
    kept : tuple of str
        Names of the attributes.
    """

    kept: ClassVar[tuple[str, ...]] = ()

    def state(self) -> State:
        """The attributes that are kept."""
        return {name: storage.as_reals(np.array(getattr(self, name))) for name in self.kept}

    def restore(self, state: State) -> None:
        """Set the attributes that are kept; those of no dimension become numbers."""
        for name in self.kept:
            value = storage.from_reals(state[name], np.asarray(getattr(self, name)).dtype)
            setattr(self, name, value if value.ndim else value.item())


@dataclass
class PassRecord:
    """What is known of one pass.

    Attributes
    ----------
    name : str
    n_rows : int
        Rows that are in the sums.
    n_columns : int or None
        None before the first block.
    has_ended : bool
        Whether these are all rows.
    missing : dict
        Fields of `MissingCounts`, once these are all rows.
    state : dict of str to array
    """

    name: str
    n_rows: int = 0
    n_columns: int | None = None
    has_ended: bool = False
    missing: dict[str, Any] = field(default_factory=dict)
    state: State = field(default_factory=dict)


class Checkpoint:
    """The passes of one fit, in a file that is replaced from time to time.

    Parameters
    ----------
    path : str or path-like
        If the file exists, its sums are taken over.
    origin : dict of str to Any
        What the sums depend on, as JSON: options, data files. Each name is one fact.
    clock : callable, default time.monotonic
        Returns seconds.

    Raises
    ------
    ValueError
        If the file is no checkpoint, or one of other facts.
    """

    def __init__(
        self, path: str | os.PathLike[str], origin: dict[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.path, self._clock = Path(path), clock
        self.origin = json.loads(json.dumps(origin))  # as it is read back
        self._passes: list[PassRecord] = []
        self._n_begun, self._saved_at = 0, clock()
        if self.path.exists():
            self._passes = self._load()

    @property
    def n_rows(self) -> int:
        """Rows of the last pass that were saved."""
        return self._passes[-1].n_rows if self._passes else 0

    def begin(self, name: str, sums: PassSums) -> PassRecord:
        """Begin the next pass, or one that was stopped, whose sums are restored."""
        number, self._n_begun = self._n_begun, self._n_begun + 1
        if number == len(self._passes):
            self._passes.append(PassRecord(name))
        record = self._passes[number]
        if record.state:
            if record.name != name or record.state.keys() != sums.state().keys():
                raise ValueError(
                    f"{str(self.path)!r} holds the sums of another pass over the rows; delete it "
                    "to start again"
                )
            sums.restore(record.state)
        return record

    def add(self, record: PassRecord, n_rows: int, sums: PassSums) -> None:
        """Count rows that were added to the sums, and save these when it is time."""
        record.n_rows += n_rows
        if self._clock() - self._saved_at >= SAVE_SECONDS:
            self._save(record, sums)

    def end(self, record: PassRecord, sums: PassSums) -> None:
        """Record that all rows are in the sums."""
        if not record.has_ended:
            record.has_ended = True
            self._save(record, sums)

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)

    def _save(self, record: PassRecord, sums: PassSums) -> None:
        record.state = sums.state()
        passes = [
            {key: value for key, value in vars(each).items() if key != "state"}
            for each in self._passes
        ]
        arrays = {
            f"pass_{k}_{name}": array
            for k, each in enumerate(self._passes) for name, array in each.state.items()
        }  # fmt: skip
        storage.write(self.path, CHECKPOINT_KIND, {"origin": self.origin, "passes": passes}, arrays)
        self._saved_at = self._clock()

    def _load(self) -> list[PassRecord]:
        kind, facts, arrays = storage.read(self.path)
        name = repr(str(self.path))
        if kind != CHECKPOINT_KIND:
            raise ValueError(f"{name} holds {kind!r}, not a checkpoint; name another file")
        old = facts["origin"]
        changed = [key for key in {**self.origin, **old} if old.get(key) != self.origin.get(key)]
        if changed:
            raise ValueError(
                f"{name} belongs to a fit with other {changed[0]}; run the command that made it, "
                "or delete it to start again"
            )
        return [
            PassRecord(**each, state={
                key.removeprefix(f"pass_{k}_"): array for key, array in arrays.items()
                if key.startswith(f"pass_{k}_")
            })
            for k, each in enumerate(facts["passes"])
        ]  # fmt: skip
