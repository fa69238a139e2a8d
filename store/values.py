"""What makes a value cheap: `light` for the frozen dataclasses that every event needs, `changed` for copies.

Part of `store`, pure: standard library only.

At run time Python's frozen dataclasses pay for each of their fields, every time: their `__init__` may not
assign, and calls `object.__setattr__` instead, which takes two and a half times as long; a copy by
`dataclasses.replace` takes twice as long again. A call makes some thirty values with two hundred and fifty
fields. That nobody assigns to a field is what the type checkers see to, for every class that says
`frozen=True`; a light one is not looked at again at run time.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields, make_dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")


class _Plan(NamedTuple):
    """How the values of a light class are copied."""

    places: Mapping[str, int]
    members: Callable[[object], tuple[Any, ...]]
    fill: Callable[..., None]
    """Sets all fields of a new value, in order."""


class _Plans(dict[type, _Plan]):
    """The plans of those classes of which there were copies: a start needs none."""

    def __missing__(self, cls: type) -> _Plan:
        names = [item.name for item in fields(cls)]
        places = {name: place for place, name in enumerate(names)}
        members = attrgetter(*names) if len(names) > 1 else _only(names[0])
        plan = self[cls] = _Plan(places, members, _init_of([(name, Any) for name in names]))
        return plan


def _only(name: str) -> Callable[[object], tuple[Any, ...]]:
    return lambda value: (getattr(value, name),)


_PLANS: Final = _Plans()


def light(cls: type[T]) -> type[T]:
    """Let the frozen dataclass have the `__init__` of one that is not frozen; nothing else changes.

    A class that it inherits from must be light, too.
    """
    found = fields(cls)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    cls.__init__ = _init_of([(item.name, Any, _default(item)) for item in found])  # type: ignore[method-assign]
    for name in ("__setattr__", "__delattr__"):
        delattr(cls, name)
    return cls


def changed(value: T, changes: Mapping[str, Any]) -> T:
    """Return a copy of the value, of a light class, with these members. Raises KeyError for others."""
    cls = type(value)
    plan = _PLANS[cls]
    members = list(plan.members(value))
    for name, member in changes.items():
        members[plan.places[name]] = member
    copy = cls.__new__(cls)
    plan.fill(copy, *members)
    return copy


def _init_of(declared: "list[Any]") -> Any:  # noqa: ANN401 - a method, of whichever fields there are
    return vars(make_dataclass("Light", declared, repr=False, eq=False, match_args=False))["__init__"]


def _default(item: "Field[Any]") -> Any:  # noqa: ANN401 - that is what `field` returns
    """Return a field with the default, and the place among the arguments, of another one."""
    if item.default_factory is not MISSING:
        return field(default_factory=item.default_factory, kw_only=item.kw_only)
    return field(default=item.default, kw_only=item.kw_only)
