"""What may be made of a text, by a reading of docs/protocol.md that shares no code with the product.

Part of `hostile`. `meaning` returns the frame, where the text is one strict JSON object that the schema
allows; else why it is none. Where the product takes something for a frame that this does not, it has been
fooled.
"""

import json
import math
from functools import cache
from typing import Any, Final, NoReturn, cast

from jsonschema import Draft202012Validator, validators

from tests.faults.hostile.words import Json, definitions

DEPTH_MAX: Final = 64
DIGITS_MAX: Final = 4_300
TYPES: Final = frozenset({"welcome", "reject", "ack", "nack", "command", "error"})


def _is_integer(_: object, value: object) -> bool:
    return type(value) is int


# its stubs do not satisfy both type checkers
_EXTEND: Final[Any] = vars(validators)["extend"]
_VALIDATOR: Final[Any] = _EXTEND(
    Draft202012Validator,
    # the schema's integers have neither point nor exponent
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


class NoFrame(Exception):
    """Why a text is no frame."""


def strict(text: str | bytes) -> Json:
    """Return the object that a text is. Raises `NoFrame`."""
    if isinstance(text, bytes):
        raise NoFrame("binary")
    try:
        text.encode()
        found: Any = json.loads(
            text, object_pairs_hook=_pairs, parse_constant=_refuse, parse_float=_float, parse_int=_int
        )
    except (ValueError, RecursionError) as error:
        raise NoFrame(str(error)[:80]) from None
    if not isinstance(found, dict):
        raise NoFrame("not an object")
    if _depth(found) > DEPTH_MAX:
        raise NoFrame("too deep")
    try:
        json.dumps(found, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise NoFrame("a lone surrogate") from None
    return cast("Json", found)


def meaning(text: str | bytes) -> Json:
    """Return the frame that a text is, by the schema. Raises `NoFrame`."""
    found = strict(text)
    frame_type: Any = found.get("type")
    if not isinstance(frame_type, str) or frame_type not in TYPES:
        raise NoFrame("of no type")
    if frame_type == "error":
        # never answered, whatever is wrong with it: that could go on for ever
        return found
    required = definitions()[frame_type]["required"]
    present: Json = {name: value for name, value in found.items() if value is not None or name in required}
    if (fault := next(_validator(frame_type).iter_errors(present), None)) is not None:
        raise NoFrame(f"{fault.json_path}: {fault.message[:80]}")
    if frame_type == "welcome" and int(found["acked_seq"]) > 0 and "acked_chain" not in present:
        raise NoFrame("a watermark without a chain")
    if frame_type == "command" and str(found["command_id"]).startswith("compensate:"):
        raise NoFrame("an id of the daemon's own")
    return found


def is_call(frame: Json) -> bool:
    """Whether a frame asks for a tool's call in a way that may be executed."""
    if frame["type"] != "command" or frame["kind"] != "tool.call":
        return False
    return bool(_validator("command.tool.call").is_valid(frame.get("data", {})))


def _pairs(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is beyond a double")
    return number


def _int(text: str) -> int:
    digits = len(text.lstrip("-"))
    if digits > DIGITS_MAX:
        raise ValueError("too many digits")
    # beyond all bounds of the schema, whatever it is
    return int(text) if digits <= 600 else (-1 if text.startswith("-") else 1) * 10**600


def _depth(value: Any) -> int:  # noqa: ANN401 - any JSON value
    deep = 0
    level: list[Any] = [value]
    while level := list(filter(_is_container, level)):
        deep += 1
        level = [inner for item in level for inner in _inside(item)]
    return deep


def _is_container(value: object) -> bool:
    return isinstance(value, dict | list)


def _inside(value: Any) -> list[Any]:  # noqa: ANN401 - an object or a list
    return list(cast("Json", value).values()) if isinstance(value, dict) else cast("list[Any]", value)


@cache
def _validator(name: str) -> Any:  # noqa: ANN401 - its stubs do not satisfy both type checkers
    shape = {key: value for key, value in definitions()[name].items() if key != "allOf"}
    return _VALIDATOR({**shape, "$defs": definitions()})
