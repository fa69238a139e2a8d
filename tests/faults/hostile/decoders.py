"""Decoders of a server's JSON that take what is none, or for something else: each must be noticed.

Part of `hostile`, as controls; only for a process that does nothing else.
"""

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from json import JSONDecoder
from types import MappingProxyType
from typing import Any, Final

_JSONRPC: Final[Any] = import_module("driver.providers.mcp.jsonrpc")
PATCHED: Final = ("_DECODER", "_SURROGATE_ESCAPE", "ANSWER_DEPTH_MAX", "_parse")
"""What they change in it."""


def _decode_with(**hooks: Any) -> None:  # noqa: ANN401 - whatever the decoder takes
    strict: dict[str, Any] = {"parse_constant": _JSONRPC._refuse, "parse_float": _JSONRPC._finite}
    _JSONRPC._DECODER = JSONDecoder(**(strict | hooks))


def _take_nan() -> None:
    _decode_with(parse_constant=float)


def _take_infinities() -> None:
    _decode_with(parse_float=float)


def _take_the_first() -> None:
    def first(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            found.setdefault(key, value)
        return found

    _decode_with(object_pairs_hook=first)


def _take_any_integer() -> None:
    def rounded(digits: str) -> int:
        return int(digits) if len(digits) < 4_300 else 10**4_000

    _decode_with(parse_int=rounded)


def _take_surrogates() -> None:
    _JSONRPC._SURROGATE_ESCAPE = re.compile(rb"(?!)")


def _take_any_depth() -> None:
    _JSONRPC.ANSWER_DEPTH_MAX = 1_000_000


def _drop_bytes() -> None:
    parse: Callable[[bytes], object] = _JSONRPC._parse

    def without(data: bytes) -> object:
        return parse(data.decode("utf-8", "ignore").encode())

    _JSONRPC._parse = without


DECODERS: Final[Mapping[str, Callable[[], None]]] = MappingProxyType(
    {
        "NaN is a number": _take_nan,
        "a number beyond a double is infinite": _take_infinities,
        "the first of two keys counts": _take_the_first,
        "an integer may have any length": _take_any_integer,
        "half of a surrogate pair is text": _take_surrogates,
        "an answer may have any depth": _take_any_depth,
        "what is no UTF-8 is left out": _drop_bytes,
    }
)
