"""Strict JSON in, compact JSON out: what `docs/protocol.md` (section 1) allows on the wire, and nothing else.

Part of `driver.core`, pure: imports `store.records` only. Python's own `json` lets through duplicate keys,
NaN and infinities, lone surrogates and any depth; each of them means something else to another reader, so
each is refused here. Integers are exact up to `DIGITS_MAX` digits whatever limit the interpreter was started
with.

Theory of operation: the parser is C, and stays C for an ordinary frame. What costs a Python call for each
value (long integers) or a walk over the values (depth, surrogates) is done only where the text shows that it
could matter.
"""

import json
import math
import re
from collections.abc import Iterable
from typing import Final, Literal

from store.records import JsonObject, JsonValue

DEPTH_MAX: Final = 64
"""Objects and lists inside one another, the outermost included (docs/protocol.md, section 1)."""
DIGITS_MAX: Final = 4_300
"""Digits in an integer (docs/protocol.md, section 1: the limit that CPython itself starts with)."""

_DIGITS_ALWAYS: Final = 640
"""Digits that `int` and `str` always convert: the lowest limit that `sys.set_int_max_str_digits` takes."""
_LONG_INTEGER: Final = re.compile(rf"[0-9]{{{_DIGITS_ALWAYS + 1}}}")
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

Fault = Literal[
    "invalid_utf8",
    "invalid_json",
    "duplicate_key",
    "not_finite",
    "lone_surrogate",
    "too_deep",
    "integer_too_long",
    "not_an_object",
]


class NotStrictJson(ValueError):
    """The text is not one strict JSON object: `code` is a stable word, `message` says what is wrong."""

    def __init__(self, code: Fault, message: str) -> None:
        self.code: Fault = code
        self.message = message
        super().__init__(message)


def loads(text: str | bytes) -> JsonObject:
    """Return the object that `text` (bytes must be UTF-8) is. Raises `NotStrictJson` for anything else."""
    if isinstance(text, bytes):
        text = _decoded(text)
    elif not text.isascii() and _SURROGATE.search(text):
        raise NotStrictJson("lone_surrogate", "the text holds a lone surrogate, which no UTF-8 can carry")
    value = _parsed(text)
    if not isinstance(value, dict):
        raise NotStrictJson("not_an_object", "it must be one JSON object: {…}")
    if text.count("{") + text.count("[") > DEPTH_MAX and deeper_than(value, DEPTH_MAX):
        raise _too_deep()
    if _SURROGATE_ESCAPE.search(text):
        _refuse_lone_surrogates(value)
    return value


def deeper_than(value: JsonValue, levels: int) -> bool:
    """Return whether more than `levels` objects and lists are inside one another, `value` included.

    Level by level, so that no depth can exhaust the stack.
    """
    level = _containers([value])
    for _ in range(levels):
        if not level:
            return False
        level = _containers(_inside(level))
    return bool(level)


def dumps_compact(value: JsonValue) -> str:
    """Return `value` as JSON without spaces, integers exact. Raises ValueError for NaN and infinities."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        # an integer longer than the interpreter's limit, or NaN, which raises again
        return _write(value)


def _write(value: JsonValue) -> str:
    """The same by a walk of our own: slow, and under no limit of the interpreter."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_ENCODER.encode(key)}:{_write(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write, value)) + "]"
    if isinstance(value, int) and not isinstance(value, bool):
        return integer_text(value)
    return _ENCODER.encode(value)


def integer_text(number: int) -> str:
    """Return the decimal digits of `number`, under no limit of the interpreter."""
    if abs(number) < _CHUNK:
        return str(number)
    sign, rest, chunks = "-" if number < 0 else "", abs(number), list[str]()
    while rest >= _CHUNK:
        rest, low = divmod(rest, _CHUNK)
        chunks.append(str(low).zfill(_DIGITS_ALWAYS))
    return sign + str(rest) + "".join(reversed(chunks))


_CHUNK: Final = 10**_DIGITS_ALWAYS


def _integer(text: str) -> int:
    """`int(text)`, under our limit instead of the interpreter's."""
    digits = text.removeprefix("-")
    if len(digits) > DIGITS_MAX:
        raise NotStrictJson(
            "integer_too_long", f"an integer has {len(digits)} digits; at most {DIGITS_MAX:,} are taken"
        )
    padded = digits.zfill(-(-len(digits) // _DIGITS_ALWAYS) * _DIGITS_ALWAYS)
    number = 0
    for start in range(0, len(padded), _DIGITS_ALWAYS):
        number = number * _CHUNK + int(padded[start : start + _DIGITS_ALWAYS])
    return -number if text.startswith("-") else number


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise NotStrictJson("not_finite", f"the number {text[:40]} is beyond what a double can hold")
    return number


def _refuse_constant(text: str) -> None:
    raise NotStrictJson("not_finite", f"{text} is not JSON")


def _unique(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise NotStrictJson("duplicate_key", f"the key {twice[:80]!r} stands twice in one object")
    return found


_DECODER: Final = json.JSONDecoder(
    parse_float=_finite, parse_constant=_refuse_constant, object_pairs_hook=_unique
)
_LONG_DECODER: Final = json.JSONDecoder(
    parse_float=_finite, parse_constant=_refuse_constant, object_pairs_hook=_unique, parse_int=_integer
)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotStrictJson("invalid_utf8", f"not UTF-8 at byte {error.start}") from None


def _parsed(text: str) -> JsonValue:
    long = len(text) > _DIGITS_ALWAYS and _LONG_INTEGER.search(text)
    decoder = _LONG_DECODER if long else _DECODER
    try:
        value: JsonValue = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise NotStrictJson("invalid_json", f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise _too_deep() from None
    return value


def _too_deep() -> NotStrictJson:
    return NotStrictJson("too_deep", f"more than {DEPTH_MAX} objects and lists stand inside one another")


def _containers(values: Iterable[JsonValue]) -> list[JsonObject | list[JsonValue]]:
    return [value for value in values if isinstance(value, dict | list)]


def _inside(containers: list[JsonObject | list[JsonValue]]) -> list[JsonValue]:
    return [item for each in containers for item in (each.values() if isinstance(each, dict) else each)]


def _refuse_lone_surrogates(value: JsonObject) -> None:
    level: list[JsonObject | list[JsonValue]] = [value]
    while level:
        items = _inside(level)
        keys = [key for each in level if isinstance(each, dict) for key in each]
        if any(_SURROGATE.search(text) for text in (*keys, *items) if isinstance(text, str)):
            raise NotStrictJson(
                "lone_surrogate", r"a string holds half of a surrogate pair (\ud800 to \udfff)"
            )
        level = _containers(items)
