"""Text of strangers as data: bounded, in ASCII, and never anything but the inside of a JSON string.

Part of `supervisor`, pure: imports `store.records`.

Whatever tools, agents and peers wrote reaches a model as JSON in which `<`, `>` and `&` are escaped as well.
So the markers around a wall cannot be written from inside it, no line break or control character is one, and
what is invisible on a screen is visible as an escape. Lengths are those of the escaped text, in bytes.
"""

import json
from collections.abc import Iterator
from typing import Final

from store.records import JsonValue

_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
_MARK: Final = "...[cut: {count} characters in all]"
_MARK_BYTES: Final = len(_MARK) + 12
_SHAPES: Final = ((32, 512), (16, 192), (12, 96), (8, 48), (4, 24))
"""Members of each list or object, and characters of each text, that are kept: ever fewer until it fits."""
_DEPTH_MAX: Final = 6
TEXT_BYTES_MIN: Final = 48
"""Less of a text than this says nothing."""


def dumps(value: JsonValue) -> str:
    """Return `value` as compact JSON in ASCII, without `<`, `>` and `&`."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    # none of the three is part of JSON's own grammar: they stand in strings only
    return text.translate(_ESCAPES)


def size(value: JsonValue) -> int:
    """Return how many bytes `dumps` makes of `value`."""
    return len(dumps(value))


def shortened(text: str, bytes_max: int) -> str:
    """Return `text`, or as much of its beginning as is quoted in `bytes_max` bytes, and a mark that says so.

    The two quotation marks around it count.
    """
    if len(text) <= bytes_max and size(text) <= bytes_max:
        return text
    kept = text[: _fitting(text, max(bytes_max - _MARK_BYTES, 2))]
    return kept + _MARK.format(count=len(text))


def _fitting(text: str, bytes_max: int) -> int:
    """How many characters of the beginning are quoted in `bytes_max` bytes."""
    low, high = 0, min(len(text), bytes_max)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle]) <= bytes_max else (low, middle - 1)
    return low


def bounded(value: JsonValue, bytes_max: int) -> JsonValue:
    """Return `value`, or what is left of it in `bytes_max` bytes.

    Long texts, lists and objects are shortened first, in ever smaller shapes; what does not fit then is
    quoted as text, as far as it goes.
    """
    if isinstance(value, str):
        return shortened(value, bytes_max)
    if size(value) <= bytes_max:
        return value
    for members, characters in _SHAPES:
        pruned = _pruned(value, members, characters, _DEPTH_MAX)
        if size(pruned) <= bytes_max:
            return pruned
    return shortened(json.dumps(value, separators=(",", ":")), bytes_max)


def _pruned(value: JsonValue, members: int, characters: int, depth: int) -> JsonValue:
    if isinstance(value, str):
        return shortened(value, characters + _MARK_BYTES)
    if isinstance(value, list | dict) and depth == 0:
        return f"...[cut: {len(value)} members]"
    if isinstance(value, list):
        kept: list[JsonValue] = [_pruned(item, members, characters, depth - 1) for item in value[:members]]
        return [*kept, f"...[cut: {len(value)} items in all]"] if len(value) > members else kept
    if isinstance(value, dict):
        found = dict(_members(value, members, characters, depth))
        if len(value) > members:
            found["..."] = f"[cut: {len(value)} members in all]"
        return found
    return value


def _members(
    value: dict[str, JsonValue], members: int, characters: int, depth: int
) -> Iterator[tuple[str, JsonValue]]:
    for number, (key, item) in enumerate(value.items()):
        if number == members:
            return
        yield shortened(key, characters + _MARK_BYTES), _pruned(item, members, characters, depth - 1)
