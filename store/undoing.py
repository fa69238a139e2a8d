"""What a unit has changed of what is kept in memory, so that it can be taken back.

Part of `store`, pure: standard library only. Dictionaries are changed by `set`, which remembers what stood
there; lists only grow, so how long they were is enough.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

_Change = tuple[dict[Any, Any], object, object]
"""A dictionary, a key, and what stood under it."""
_ABSENT: Final = object()


class Taken(NamedTuple):
    """What was taken out again: the newest change first, and what each list had more."""

    changes: Sequence[_Change]
    tails: Sequence[list[Any]]


class Undo:
    """The changes of one unit, over lists that it appends to and dictionaries that it changes."""

    def __init__(self, lists: Sequence[list[Any]]) -> None:
        self._lists: Final = lists
        self._changes: Final[list[_Change]] = []
        self._lengths: tuple[int, ...] = (0,) * len(lists)
        self.is_open = False
        """Whether there is a unit whose changes may be taken out."""

    def begin(self) -> None:
        """Begin a unit."""
        self._changes.clear()
        self._lengths = tuple(map(len, self._lists))
        self.is_open = True

    def set(self, kept: dict[Any, Any], key: object, value: object) -> None:
        """Set a key, and remember what stood there."""
        if self.is_open:
            self._changes.append((kept, key, kept.get(key, _ABSENT)))
        kept[key] = value

    @property
    def has_any(self) -> bool:
        """Whether the unit has changed anything."""
        return bool(self._changes) or any(map(int.__lt__, self._lengths, map(len, self._lists)))

    def take_out(self) -> Taken:
        """Take out what the unit has changed so far."""
        changes: list[_Change] = []
        for kept, key, before in reversed(self._changes):
            changes.append((kept, key, kept.get(key, _ABSENT)))
            _restore(kept, key, before)
        self._changes.clear()
        tails = [items[length:] for items, length in zip(self._lists, self._lengths, strict=True)]
        for items, length in zip(self._lists, self._lengths, strict=True):
            del items[length:]
        return Taken(changes, tails)

    def put_back(self, taken: Taken) -> None:
        """Make the changes again that were taken out; what the dictionaries had meanwhile is not asked."""
        for kept, key, value in reversed(taken.changes):
            _restore(kept, key, value)
        for items, tail in zip(self._lists, taken.tails, strict=True):
            items.extend(tail)

    def forget(self) -> None:
        """Let what was changed so far stay: the lists are empty again."""
        self._changes.clear()
        self._lengths = (0,) * len(self._lists)


def _restore(kept: dict[Any, Any], key: object, value: object) -> None:
    if value is _ABSENT:
        kept.pop(key, None)
    else:
        kept[key] = value
