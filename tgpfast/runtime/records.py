"""`record`: dataclasses that are cheap to import."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # type checkers know what a dataclass is
    from dataclasses import dataclass as record
else:

    def record(cls: type | None = None, *, kw_only: bool = False) -> Any:
        """A frozen dataclass that compares by identity.

        ``dataclasses.dataclass`` compiles four methods for each class, which takes longer than all
        else of its module's import. The methods of a record are shared by all records, and take a
        microsecond longer to call.

        Parameters
        ----------
        cls : type
            With annotated fields, as for ``dataclasses.dataclass``, whose ``field``, ``fields`` and
            ``replace`` serve records too.
        kw_only : bool, default False
            Whether its arguments are given by name only.

        Examples
        --------
        >>> @record
        ... class Point:
        ...     x: float
        ...     y: float = 0.0
        >>> point = Point(1.0)
        >>> point, dataclasses.replace(point, y=2.0)
        (Point(x=1.0, y=0.0), Point(x=1.0, y=2.0))
        >>> point.y = 3.0
        Traceback (most recent call last):
        dataclasses.FrozenInstanceError: cannot assign to field 'y'
        """
        if cls is None:
            return functools.partial(record, kw_only=kw_only)
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
        fields = dataclasses.fields(cls)
        cls._positional_fields = tuple(f for f in fields if f.init and not f.kw_only)
        cls._other_fields = tuple(f for f in fields if not f.init or f.kw_only)
        cls.__init__ = _set_fields
        if "__repr__" not in vars(cls):
            cls.__repr__ = _show_fields
        cls.__setattr__, cls.__delattr__ = _refuse_to_assign, _refuse_to_delete
        return cls


def _set_fields(self: Any, /, *given: Any, **named: Any) -> None:
    """The ``__init__`` of all records."""
    fields, values = self._positional_fields, self.__dict__
    if len(given) > len(fields):
        raise TypeError(
            f"{type(self).__name__} takes at most {len(fields)} arguments without a name, and "
            f"{len(given)} were given"
        )
    for one, value in zip(fields, given, strict=False):
        values[one.name] = value
    for one in fields[len(given) :] + self._other_fields:
        name = one.name
        if one.init and name in named:
            values[name] = named.pop(name)
        elif one.default_factory is not dataclasses.MISSING:
            values[name] = one.default_factory()
        elif one.default is not dataclasses.MISSING:
            values[name] = one.default
        elif one.init:
            raise TypeError(f"{type(self).__name__} needs the argument {name!r}")
    if named:
        raise TypeError(f"{type(self).__name__} has no or repeated arguments {[*named]}")
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _show_fields(self: Any) -> str:
    """The ``__repr__`` of all records."""
    shown = [f for f in dataclasses.fields(self) if f.repr]
    pairs = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in shown)
    return f"{type(self).__qualname__}({pairs})"


def _refuse_to_assign(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
