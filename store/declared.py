"""How a kind of event is declared: what all of them have, and which of their fields may be left out.

Part of `store`, pure: standard library and `store.values`. The kinds themselves are those of `store.events`.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from store.values import light

_OPTIONAL: Final = {"optional": True}


def optional() -> Any:  # noqa: ANN401 - the one way to type a dataclass field's default
    """A field that is left out of the wire form where it is None."""
    return field(default=None, metadata=_OPTIONAL)


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class EventData:
    """The `data` of one event.

    Subclasses say which kind they are, and whether they can be a command's receipt. `requeue_of` is the seq
    of the dead letter that this event only reports again.
    """

    KIND: ClassVar[str]
    TERMINAL: ClassVar[bool] = False
    requeue_of: int | None = optional()
