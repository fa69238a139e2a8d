"""Which of what is undecided reached a disk: nothing, everything, a prefix, a subset, torn writes."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tests.faults.platter import WHOLE, Kept, Undecided

Choice = Callable[[Sequence[Undecided], random.Random], dict[int, int]]
AT_LEAST: Final = 2
AT_MOST: Final = 12
PARTS_FOR_ONE: Final = 4
"""How many mixtures are drawn at a point: more of them, where more is undecided."""


def mixtures(
    undecided: Sequence[Undecided], chance: random.Random, *, again: bool
) -> Iterator[tuple[str, Kept]]:
    """Yield mixtures with what they are called; `again` at the same point, only those by chance."""
    if not undecided:
        yield from () if again else (("everything", {}),)
        return
    if not again:
        for mode in ("nothing", "everything"):
            yield mode, _ordered(MODES[mode](undecided, chance), undecided)
    parts = sum(max(1, item.sectors) for item in undecided)
    drawn = parts // PARTS_FOR_ONE + (0 if again or parts == 1 else AT_LEAST)
    for _ in range(min(AT_MOST, drawn)):
        mode = chance.choice(BY_CHANCE)
        yield mode, _ordered(MODES[mode](undecided, chance), undecided)


def _everything(undecided: Sequence[Undecided], _: random.Random) -> dict[int, int]:
    return {item.index: WHOLE for item in undecided}


def _prefix(undecided: Sequence[Undecided], chance: random.Random) -> dict[int, int]:
    return _everything(undecided[: chance.randint(0, len(undecided))], chance)


def _subset(undecided: Sequence[Undecided], chance: random.Random) -> dict[int, int]:
    share = chance.choice((0.1, 0.5, 0.9))
    return {item.index: WHOLE for item in undecided if chance.random() < share}


def _torn_write(undecided: Sequence[Undecided], chance: random.Random) -> dict[int, int]:
    kept = _prefix(undecided, chance)
    last = undecided[len(kept) - 1] if kept else undecided[0]
    if last.sectors:
        kept[last.index] = (
            chance.getrandbits(last.sectors)
            if chance.random() < 0.5
            else (1 << chance.randint(0, last.sectors)) - 1
        )
    return kept


def _torn_writes(undecided: Sequence[Undecided], chance: random.Random) -> dict[int, int]:
    share = chance.choice((0.1, 0.5, 0.9))
    return {
        item.index: chance.getrandbits(item.sectors) if item.sectors else WHOLE
        for item in undecided
        if chance.random() < share
    }


MODES: Final[Mapping[str, Choice]] = MappingProxyType(
    {
        "nothing": lambda _, __: {},
        "everything": _everything,
        "a prefix": _prefix,
        "a subset": _subset,
        "a torn write": _torn_write,
        "torn writes": _torn_writes,
    }
)
BY_CHANCE: Final = ("a prefix", "a subset", "a torn write", "torn writes")


def _ordered(kept: dict[int, int], undecided: Sequence[Undecided]) -> dict[int, int]:
    """Drop the names that come, in their folder, behind one that is not there."""
    missing: set[str] = set()
    for item in undecided:
        if item.folder is not None:
            if item.index not in kept:
                missing.add(item.folder)
            elif item.folder in missing:
                del kept[item.index]
    return kept
