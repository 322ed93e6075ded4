"""Records behave as frozen dataclasses that compare by identity."""

import copy
import dataclasses
import functools
import pickle
from typing import ClassVar

import pytest

from tgpfast.runtime.records import record


@record
class Point:
    """A point."""

    x: float
    y: float = 0.0
    tags: list = dataclasses.field(default_factory=list, repr=False)
    size: float = dataclasses.field(init=False, default=1.0)
    kind: ClassVar[str] = "point"

    def __post_init__(self):
        object.__setattr__(self, "size", abs(self.x) + abs(self.y))

    @functools.cached_property
    def double(self):
        return 2.0 * self.x


@record
class Named(Point):
    """A point with a name."""

    name: str = "none"


@record(kw_only=True)
class Options:
    """Options without and with a default."""

    first: int = 1
    second: int


@record
class Silent:
    """A record with a text of its own."""

    def __repr__(self):
        return "silent"


def test_fields_are_given_by_place_or_name_and_have_defaults():
    point = Point(1.0, y=-2.0)
    assert (point.x, point.y, point.tags, point.size, point.kind) == (1.0, -2.0, [], 3.0, "point")
    assert Point(1.0).tags is not Point(1.0).tags
    assert repr(point) == "Point(x=1.0, y=-2.0, size=3.0)"
    assert repr(Named(1.0, name="a")) == "Named(x=1.0, y=0.0, size=1.0, name='a')"
    assert (Options(second=3).first, Options(second=3).second) == (1, 3)
    assert point.double == 2.0
    assert repr(Silent()) == "silent"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Point(), "Point needs the argument 'x'"),
        (lambda: Point(1.0, z=2.0), r"Point has no or repeated arguments \['z'\]"),
        (lambda: Point(1.0, x=2.0), r"Point has no or repeated arguments \['x'\]"),
        (lambda: Point(1.0, size=2.0), r"Point has no or repeated arguments \['size'\]"),
        (lambda: Point(1.0, 2.0, [], 3.0), "takes at most 3 arguments without a name, and 4"),
        (lambda: Options(1, 2), "takes at most 0 arguments without a name, and 2"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_records_are_frozen_and_compare_by_identity():
    point = Point(1.0)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2.0
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert point == point
    assert point != Point(1.0)
    assert len({point, Point(1.0)}) == 2


def test_records_are_replaced_copied_and_pickled():
    point = Named(1.0, 2.0, ["a"], "b")
    moved = dataclasses.replace(point, x=5.0)
    assert (moved.x, moved.y, moved.tags, moved.name, moved.size) == (5.0, 2.0, ["a"], "b", 7.0)
    for again in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert type(again) is Named
        assert vars(again) == vars(point)
