"""The RFC 8785 form of a JSON value: the bytes that digests are taken of.

Part of `driver.core`, pure: imports `store.records` and `driver.core.strictjson`. Two values have the same
bytes exactly when they are the same JSON (1 and 1.0 are one number; 1 and true are not). One extension,
documented in docs/protocol.md: an integer beyond ±(2^53 - 1) keeps all its digits, where the RFC would round
it to a double.
"""

import json
import re
from typing import Final

import rfc8785

from driver.core.strictjson import integer_text
from store.records import JsonValue

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)
_MAYBE_FLOAT: Final = re.compile(r"[0-9][.e]")
"""In every float's text; in other text too, so `_FLOAT` looks closer."""
_FLOAT: Final = re.compile(r"(?:^|[:,\[])-?[0-9]+[.e]")
"""A float where a value can stand. One inside a string costs the slower way, and nothing else."""
_BEYOND_BMP: Final = re.compile("[\U00010000-\U0010ffff]")
"""Characters whose place in an order by UTF-16 is not their place in an order by code point."""


def canonical(value: JsonValue) -> bytes:
    """Return the RFC 8785 bytes of `value`. Raises ValueError for NaN, an infinity or a lone surrogate."""
    try:
        text = _ENCODER.encode(value)
    except ValueError:
        # an integer longer than the interpreter's limit, or NaN, which raises again
        text = None
    return (_write(value) if text is None or _needs_care(text) else text).encode("utf-8")


def _needs_care(text: str) -> bool:
    """Whether what `_ENCODER` wrote might not be what the RFC writes."""
    if _MAYBE_FLOAT.search(text) and _FLOAT.search(text):
        return True
    return not text.isascii() and _BEYOND_BMP.search(text) is not None


def _write(value: JsonValue) -> str:
    """The same by a walk: floats as ECMAScript writes them, keys in the order of their UTF-16 code units."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(f"{_ENCODER.encode(key)}:{_write(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write, value)) + "]"
    if isinstance(value, float):
        return rfc8785.dumps(value).decode("ascii")
    if isinstance(value, int) and not isinstance(value, bool):
        return integer_text(value)
    return _ENCODER.encode(value)
