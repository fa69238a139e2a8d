"""Where a request goes, below the provider's base URL: a path and a query that arguments cannot break out of.

Part of `driver.providers.http`, pure: imports its `errors`, and `driver.core`.

Theory of operation
-------------------
An expression may put a path together as it likes, so what it yields does not show any more which part of it
was an argument. Therefore the path's expression sees the arguments percent-encoded: whatever it joins, an
argument stays within one segment, and begins no query. Three things survive that, and are refused: a segment
that means another place (`..`, encoded or not, for some servers decode before they look), one that is empty
because an argument was, and a control character.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote, unquote

from driver.core.strictjson import dumps_compact
from driver.providers.http.errors import InvalidArguments
from store.records import JsonObject, JsonValue

TARGET_CHARS_MAX: Final = 8_192
"""Of path and query together; servers commonly take this much."""

_EMPTY: Final = "\uffff"
"""Stands for an argument that is an empty string: no character of any text, encoded or not."""
_LITERAL: Final = "/:@!$&'()*+,;=~%"
"""What the declaration's own text may hold in a path, beside letters, digits and `-._~`."""
_STRAY_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNSAFE_NAME: Final = re.compile(r"[/\\?#%]|^\.{0,2}$")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SEPARATORS: Final = re.compile(r"[/\\]")


def shielded(value: JsonValue) -> JsonValue:
    """Return arguments as the expression of a path may see them: no text in them has a meaning in a path."""
    if isinstance(value, str):
        return quote(value, safe="") if value else _EMPTY
    if isinstance(value, list):
        return [shielded(item) for item in value]
    if isinstance(value, dict):
        return {_shielded_name(name): shielded(item) for name, item in value.items()}
    return value


def path_of(base: str, filled: JsonValue) -> str:
    """Return the path of a request: `filled` (text, or a list of segments) below the path of the base URL.

    Raises `InvalidArguments`.
    """
    parts = filled if isinstance(filled, list) else [filled]
    text = "/".join(text_of("path", part) for part in parts)
    if _EMPTY in text:
        raise InvalidArguments("path", "an argument in it is empty")
    for segment in text.split("/"):
        _refuse_elsewhere(segment)
    if not text:
        return base or "/"
    return f"{base.rstrip('/')}/{quote(_STRAY_PERCENT.sub('%25', text.lstrip('/')), safe=_LITERAL)}"


def query_of(filled: Mapping[str, JsonValue]) -> str:
    """Return the query, without its `?`. A list is a parameter that stands several times, null is none.

    Raises `InvalidArguments`.
    """
    return "&".join(
        f"{quote(name, safe='')}={quote(text, safe='')}"
        for name, value in filled.items()
        for text in _parameters(name, value)
    )


def text_of(part: str, value: JsonValue) -> str:
    """Return a string, a number or a boolean as text. Raises `InvalidArguments` for anything else."""
    if isinstance(value, str):
        return value
    if value is None:
        raise InvalidArguments(part, "it is null: an argument is missing")
    if isinstance(value, list | dict):
        raise InvalidArguments(part, "it must be a string, a number or a boolean")
    try:
        return dumps_compact(value)
    except ValueError:
        raise InvalidArguments(part, "it is no finite number") from None


def scope_of_path(scope: JsonObject) -> JsonObject:
    """Return what the expression of a path sees, where others see `scope`."""
    return {**scope, "arguments": shielded(scope["arguments"])}


def _shielded_name(name: str) -> str:
    """A name that means nothing in a path stays, so that expressions find it."""
    return quote(name, safe="").replace(".", "%2E") or _EMPTY if _UNSAFE_NAME.search(name) else name


def _refuse_elsewhere(segment: str) -> None:
    """Raises `InvalidArguments` where some server could take the segment for the way to another place."""
    meant = unquote(segment)
    if _CONTROL.search(meant):
        raise InvalidArguments("path", "a segment holds a control character")
    # what stands behind a `;` is cut off by some, and a backslash is a slash to others
    if any(part.partition(";")[0].strip() in {".", ".."} for part in _SEPARATORS.split(meant)):
        raise InvalidArguments("path", "a segment means another place: . or ..")


def _parameters(name: str, value: JsonValue) -> Iterator[str]:
    if value is None:
        return
    for item in value if isinstance(value, list) else [value]:
        yield text_of(f"query.{name}", item)
