"""What makes a value cheap to make: `light`, for the frozen dataclasses that every event needs.

Part of `store`, pure: standard library only.

At run time Python's frozen dataclasses pay for each of their fields, every time: their `__init__` may not
assign, and calls `object.__setattr__` instead, which takes two and a half times as long. A call makes some
thirty values with two hundred and fifty fields. That nobody assigns to a field is what the type checkers see
to, for every class that says `frozen=True`; a light one is not looked at again at run time.
"""

from dataclasses import MISSING, Field, field, fields, make_dataclass
from typing import Any, TypeVar

T = TypeVar("T")


def light(cls: type[T]) -> type[T]:
    """Let the frozen dataclass have the `__init__` of one that is not frozen; nothing else changes.

    A class that it inherits from must be light, too.
    """
    # the annotations of these fields are never evaluated
    declared = [(item.name, Any, _default(item)) for item in fields(cls)]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    twin = make_dataclass(cls.__name__, declared)
    cls.__init__ = vars(twin)["__init__"]  # type: ignore[method-assign]
    for name in ("__setattr__", "__delattr__"):
        delattr(cls, name)
    return cls


def _default(item: "Field[Any]") -> Any:  # noqa: ANN401 - that is what `field` returns
    """Return a field with the default, and the place among the arguments, of another one."""
    if item.default_factory is not MISSING:
        return field(default_factory=item.default_factory, kw_only=item.kw_only)
    return field(default=item.default, kw_only=item.kw_only)
