"""Light values are made, compared, copied and read as the frozen dataclasses that they are declared as."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields, replace

import pytest

from store.declared import EventData
from store.events import EVENT_TYPES
from store.records import OperationRecord
from store.values import changed, light


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What others inherit from."""

    label: str | None = None


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Base):
    """With a member that must be given."""

    x: int
    y: int = 0


@light
@dataclass(frozen=True, slots=True)
class Alone:
    """One member, by its place."""

    only: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain(Base):
    """One that is not light, of one that is."""

    x: int


def test_it_takes_what_its_fields_say() -> None:
    """Names where they are asked for, places where they are not; what has no default must be given."""
    assert (Point(x=1).y, Point(x=1).label, Alone(2).only) == (0, None, 2)
    wrong: tuple[tuple[Callable[..., object], tuple[int, ...], dict[str, int]], ...] = (
        (Point, (), {}),
        (Point, (1,), {}),
        (Point, (), {"x": 1, "z": 2}),
        (Alone, (), {}),
    )
    for made, given, named in wrong:
        with pytest.raises(TypeError):
            made(*given, **named)


def test_it_compares_hashes_and_shows_itself_as_before() -> None:
    """By its members, the inherited ones among them."""
    assert Point(x=1, label="a") == Point(label="a", x=1, y=0) != Point(x=1)
    assert len({Point(x=1), Point(x=1, y=0), Point(x=2)}) == 2
    assert repr(Point(x=1)) == "Point(label=None, x=1, y=0)"


def test_it_has_no_other_members() -> None:
    """Its slots stay."""
    with pytest.raises(AttributeError):
        object.__setattr__(Point(x=1), "z", 1)


def test_a_copy_has_the_changes_and_nothing_else() -> None:
    """As `dataclasses.replace` makes it, of one member or of many; the original stays as it is."""
    point = Point(x=1, label="a")
    assert changed(point, {"y": 3, "label": None}) == replace(point, y=3, label=None) == Point(x=1, y=3)
    assert changed(point, {}) == point == Point(x=1, label="a")
    assert changed(point, {}) is not point
    assert changed(Alone(1), {"only": 2}) == Alone(2)
    with pytest.raises(KeyError):
        changed(point, {"z": 1})


def test_what_is_not_light_stays_frozen() -> None:
    """A class only says so for itself."""
    with pytest.raises(FrozenInstanceError):
        Plain(x=1).x = 2  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("event", EVENT_TYPES, ids=lambda event: event.KIND)
def test_every_event_says_frozen_and_is_light(event: type[EventData]) -> None:
    """For the checkers it is frozen; at run time nothing stands between its fields and their values."""
    assert vars(event)["__dataclass_params__"].frozen
    assert event.__setattr__ is object.__setattr__
    assert {item.name for item in fields(event)} >= {"requeue_of"}


def test_an_operation_says_so_too() -> None:
    """It is copied with each of its events."""
    assert OperationRecord.__setattr__ is object.__setattr__
