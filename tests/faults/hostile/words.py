"""Frames of a plane that nobody should send, drawn from the schema of the protocol. Part of `hostile`.

A frame begins as a valid one of `docs/protocol.schema.json`, and is bent: a value of another type or beyond
its bounds at some place, a member twice, a member away, a token that is not JSON, a flipped bit, half of
it, two at once, another encoding. Some stay valid: whoever judges must not go by the bending. The number of
a word and the seed give it again.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, Final

from tests.system.plane import SCHEMA
from tests.system.test_bad_input import GARBAGE

Json = dict[str, Any]

RUNS: Final = ("run-1", "run-2", "r")
NAMES: Final = "abcXYZ019._:-"
RAW: Final = "\ue000"
"""Marks a string in whose place a token is put, of that number."""
PATTERNS: Final[dict[str, Callable[[Random], str]]] = {
    "^[A-Za-z0-9._:-]{1,128}$": lambda chance: "".join(
        chance.choices(NAMES, k=chance.choice((1, 8, 8, 128)))
    ),
    "^[0-9a-f]{32}$": lambda chance: f"{chance.getrandbits(128):032x}",
    "^op_[0-9a-f]{32}$": lambda chance: f"op_{chance.getrandbits(128):032x}",
}
PLANE_TYPES: Final = ("welcome", "reject", "ack", "nack", "command", "command", "command", "error")

TOKENS: Final = (
    "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "01", "+1", "0x1", "1.", ".5", "1_000",
    "9" * 4_300, "9" * 4_301, "-" + "9" * 5_000, "1" + "0" * 18, "9223372036854775807", "9223372036854775808",
    "1.0", "1e0", "-0", "-0.0", "0.1e1", "True", "None", "undefined", "'x'", '"\\ud800"', '"\\udc00\\ud800"',
    '"\\ud83d\\ude00"', '"\\u0000"', '"\\x41"', '"\t"', '"\\', "[" * 63 + "]" * 63, "[" * 70 + "]" * 70,
    '{"a":' * 70 + "1" + "}" * 70, "[1,]", '{"a":1,}', '{"a":1,"a":2}', '{"a":{"b":1,"b":1}}',
    "//x\n1", "/**/1", "nul", "tru", "{}", "[]", '""', "null", "true", "false", "-1", "0", "1", "2", "[[]]",
    '"' + "x" * 257 + '"', '"\u2028"', '"\U0001f600"', '"\u202e"', '"op_"',
)  # fmt: skip
HUGE_TOKENS: Final = ("[" * 100_000, '"' + "x" * 70_000 + '"', "9" * 50_000, '{"a":' * 20_000)
ALL_TOKENS: Final = (*TOKENS, *HUGE_TOKENS)
_MARKED: Final = re.compile(f'"{RAW}([0-9]+)"')
PIECES: Final = (
    '"type":"command",', '"type":"ack",', '"seq":1,', '"command_id":"x",', '"kind":"tool.call",',
    '"data":{},',
    "\ufeff", "\x00", "\u2028", " ", "\n", "{", "}", "[", "]", ",", ":", '"', "\\", "\\u", "\\ud800", "/",
    "1",
)  # fmt: skip


@cache
def definitions() -> dict[str, Json]:
    """Return the frames of the schema, and what they are made of, by name."""
    found: dict[str, Json] = json.loads(SCHEMA.read_text())["$defs"]
    return found


def word(seed: int, number: int) -> str | bytes:
    """Return one hostile frame; bytes are for a binary one."""
    chance = Random(seed * 1_000_000_007 + number)
    if chance.random() < 0.005:
        return chance.choice(GARBAGE)[1]
    text = bent(chance, valid(chance))
    return text.encode("utf-8", "surrogatepass") if chance.random() < 0.02 else text


def bent(chance: Random, message: Json) -> str:
    """Return the text of a message that was good; now and then it still is."""
    for _ in range(chance.choice((0, 1, 1, 2))):
        _bend(chance, message)
    text = _text(message)
    return chance.choice(BENDINGS)(chance, text) if chance.random() < 0.5 else text


@cache
def _kinds() -> tuple[str, ...]:
    names = tuple(name for name in definitions() if name.startswith("command."))
    return (*names, *["command.tool.call"] * len(names))


def valid(chance: Random, frame_type: str | None = None) -> Json:
    """Return a frame that the schema allows."""
    chosen = chance.choice(PLANE_TYPES) if frame_type is None else frame_type
    frame: Json = _value(chance, definitions()[chosen])
    if chosen == "command":
        kind = chance.choice(_kinds())
        frame["kind"] = kind.removeprefix("command.")
        frame["run_id"] = chance.choice(RUNS)
        frame["data"] = _value(chance, definitions()[kind])
        if kind == "command.tool.call":
            frame["data"]["tool"] = chance.choice(("tools/act", "counter/count", "counter/count", "no/such"))
            frame["data"].pop("parent_operation_id", None)
    return frame


def _value(chance: Random, schema: Json) -> Any:  # noqa: ANN401, PLR0911 - any JSON value; one for each kind
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return chance.choice(schema["enum"])
    if "anyOf" in schema:
        return _value(chance, chance.choice(schema["anyOf"]))
    match schema.get("type"):
        case "object":
            return _object(chance, schema)
        case "array":
            return [_value(chance, schema["items"]) for _ in range(chance.randint(0, 2))]
        case "string":
            return PATTERNS[schema["pattern"]](chance) if "pattern" in schema else chance.choice(_STRINGS)
        case "integer":
            low, high = schema.get("minimum", 0), schema.get("maximum", 2**63 - 1)
            return chance.choice((low, low + 1, low + chance.randint(0, 300), high))
        case "boolean":
            return chance.random() < 0.5
        case _:
            return None


UNKNOWN: Final[tuple[Callable[[], object], ...]] = (
    lambda: None,
    lambda: 1,
    lambda: "x",
    dict[str, object],
    list[object],
)
_STRINGS: Final = ("x", "a word", "\u017elu\u0165ou\u010dk\u00fd", "x" * 256, "\U0001f600")


def _object(chance: Random, schema: Json) -> Json:
    found: Json = {}
    for name, inner in schema.get("properties", {}).items():
        if name in schema.get("required", ()) or chance.random() < 0.5:
            found[name] = _value(chance, inner)
    if "additionalProperties" in schema:
        found["id"] = _value(chance, schema["additionalProperties"])
    elif not schema.get("properties") and chance.random() < 0.5:
        found["n"] = chance.randint(0, 9)
    if chance.random() < 0.1:
        found["unknown"] = chance.choice(UNKNOWN)()
    return found


# --- bending


def _objects_in(place: Json) -> list[Json]:
    return [value for value in place.values() if isinstance(value, dict) and value]


def _bend(chance: Random, frame: Json) -> None:
    """Change one value, or take it away, or add one."""
    place = frame
    while chance.random() < 0.5 and (inner := _objects_in(place)):
        place = chance.choice(inner)
    name = chance.choice([*place, "extra"])
    match chance.randrange(6):
        case 0:
            place.pop(name, None)
        case 1:
            place[name] = [place.get(name)]
        case 2:
            place[str(name).upper()] = place.pop(name, None)
        case _:
            huge = chance.random() < 0.005
            number = chance.randrange(len(TOKENS), len(ALL_TOKENS)) if huge else chance.randrange(len(TOKENS))
            place[name] = f"{RAW}{number}"


def _text(frame: Json) -> str:
    text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
    return _MARKED.sub(lambda found: ALL_TOKENS[int(found[1])], text) if RAW in text else text


def _twice(chance: Random, text: str) -> str:
    """The first member stands there twice."""
    end = text.find(",")
    return text if end < 0 else "{" + text[1:end] + "," + text[1:]


def _insert(chance: Random, text: str) -> str:
    at = chance.randint(0, len(text))
    return text[:at] + chance.choice(PIECES) + text[at:]


def _cut(chance: Random, text: str) -> str:
    return text[: chance.randint(0, len(text))]


def _drop(chance: Random, text: str) -> str:
    at = chance.randint(0, len(text))
    return text[:at] + text[at + chance.randint(1, 4) :]


def _flip(chance: Random, text: str) -> str:
    at = chance.randrange(len(text)) if text else 0
    return text[:at] + chr(ord(text[at]) ^ 1 << chance.randrange(7)) + text[at + 1 :] if text else "x"


def _join(chance: Random, text: str) -> str:
    return text + chance.choice(("", " ", "\n")) + _text(valid(chance))


def _splice(chance: Random, text: str) -> str:
    other = _text(valid(chance))
    return text[: chance.randint(0, len(text))] + other[chance.randint(0, len(other)) :]


def _encode(chance: Random, text: str) -> str:
    raw = text.encode(chance.choice(("utf-16", "utf-8-sig", "utf-7")), "replace")
    return raw.decode("latin-1")


def _wrap(chance: Random, text: str) -> str:
    return chance.choice(("[{}]", " {} ", '"{}"', "\ufeff{}", "{}\x00", "({})", "{};")).replace("{}", text)


BENDINGS: Final = (_twice, _insert, _insert, _cut, _drop, _flip, _join, _splice, _encode, _wrap)
