"""Messages of a server, bent at random from a seed, and what may at most be made of them.

`ID` in a message stands for the id of the call that it answers. The oracle reads JSON by itself.
"""

import json
import math
import re
from random import Random
from typing import Final, NoReturn

from store.records import JsonObject, JsonValue

SENTINEL: Final = 7_777_777
"""What the oracle puts in the place of `ID`."""
DEPTH_MAX: Final = 56

LINES: Final = tuple(
    line.encode()
    for line in (
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"bent"}]}}',
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"n":1.5,"s":"\\u00e9\\ud83d"}}}',
        '{"jsonrpc":"2.0","id":"ID","result":{"content":[],"isError":false,"_meta":{"a/b":[null,true]}}}',
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[],"isError":true}}',
        '{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","content":[]}}',
        '{"jsonrpc":"2.0","id":ID,"result":{"resultType":"input_required","inputRequests":{}}}',
        '{"jsonrpc":"2.0","id":ID,"result":{"task":{"taskId":"t","status":"working"}}}',
        '{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"no","data":{"x":[1,2]}}}',
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}',
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5}}',
        '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"žluťoučký"}}',
        '{"jsonrpc":"2.0","id":"p","method":"ping"}',
        '{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}',
        '[{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}]',
    )
)
TOKENS: Final = (
    *(b"ID", b'"ID"', b"-ID", b"ID.0", b"IDe0", b"ID0", b"null", b"true", b"NaN", b"1e400", b"9" * 30, b'""'),
    *(b"{}", b"[]", b'"method":"x",', b'"result":{},', b'"error":{"code":1,"message":"e"},', b'"id":ID,'),
    *(b"\n", b"\r\n", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800", b"\\", b'"', b",", b":", b"[" * 70),
)

ODD: Final = (
    *(b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400"),
    # the most digits that Python reads as an integer, and one more
    *(b"9" * 30, b"9" * 4_300, b"9" * 4_301, b"-" + b"9" * 4_301),
    *(b'"\\ud800"', b'"\\udc00\\ud800"', b'"a\xff"', b'"\xed\xa0\x80"', b'"\xc3"', b'"\xf4\x90\x80\x80"'),
    # deeper than what is taken, and than what can be read at all
    *(b"[" * 70 + b"]" * 70, b'{"a":' * 70 + b"1" + b"}" * 70, b"[" * 5_000 + b"]" * 5_000),
)
"""Values that one reader of JSON takes, and another one does not, or for something else."""
_VALUE: Final = re.compile(rb'(?<=[:\[,])("[^"\\]*"|-?[0-9.]+|null|true|false|\[\]|\{\})(?=[,\]}])')
_KEY: Final = re.compile(rb'(?<=[{,])"[A-Za-z]+":')


def bent(chance: Random) -> bytes:
    """Return a message that was changed in one to four places."""
    data = chance.choice(LINES)
    for _ in range(chance.randint(1, 4)):
        data = chance.choice(_CHANGES)(chance, data)
    return data


def _span(chance: Random, data: bytes) -> tuple[int, int]:
    start = chance.randint(0, len(data))
    return start, min(len(data), start + chance.choice((0, 1, 1, 2, 5, 20)))


def _replace(chance: Random, data: bytes) -> bytes:
    start, end = _span(chance, data)
    return data[:start] + chance.choice(TOKENS) + data[end:]


def _insert(chance: Random, data: bytes) -> bytes:
    at = chance.choice([n for n, byte in enumerate(data) if byte in b",:{["] or [0])
    return data[: at + 1] + chance.choice(TOKENS) + data[at + 1 :]


def _drop(chance: Random, data: bytes) -> bytes:
    start, end = _span(chance, data)
    return data[:start] + data[end:]


def _repeat(chance: Random, data: bytes) -> bytes:
    start, end = _span(chance, data)
    return data[:end] + data[start:]


def _flip(chance: Random, data: bytes) -> bytes:
    if not data:
        return b"?"
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _cut(chance: Random, data: bytes) -> bytes:
    return data[: chance.randint(0, len(data))]


def _join(chance: Random, data: bytes) -> bytes:
    return data + chance.choice((b"", b"\n", b" ")) + chance.choice(LINES)


def _splice(chance: Random, data: bytes) -> bytes:
    other = chance.choice(LINES)
    return data[: chance.randint(0, len(data))] + other[chance.randint(0, len(other)) :]


def _swap(chance: Random, data: bytes) -> bytes:
    old, new = chance.sample((b'"id"', b'"result"', b'"error"', b'"method"', b'"content"', b'"jsonrpc"'), 2)
    return data.replace(old, new)


def _encode(chance: Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    return text.encode(chance.choice(("utf-16", "utf-8-sig", "utf-7")), "replace")


def _make_odd(chance: Random, data: bytes) -> bytes:
    """Put a value that is no JSON, or hardly, where a whole value stood."""
    found = list(_VALUE.finditer(data))
    if not found:
        return data
    at = chance.choice(found)
    return data[: at.start()] + chance.choice(ODD) + data[at.end() :]


def _say_twice(chance: Random, data: bytes) -> bytes:
    """Let an object have a key twice: with the value that it has, and another one before or behind that."""
    found = list(_KEY.finditer(data))
    if not found:
        return data
    at = chance.choice(found)
    other = at[0] + chance.choice((b"1", b"true", b"false", b"null", b"{}", *ODD))
    if chance.random() < 0.5:
        return data[: at.start()] + other + b"," + data[at.start() :]
    end = _VALUE.match(data, at.end())
    return data if end is None else data[: end.end()] + b"," + other + data[end.end() :]


_CHANGES: Final = (
    _replace,
    _replace,
    _insert,
    _insert,
    _drop,
    _repeat,
    _flip,
    _cut,
    _join,
    _splice,
    _swap,
    _encode,
    _make_odd,
    _make_odd,
    _say_twice,
)


# ------------------------------------------------------------------ the oracle


def success_of(pieces: list[bytes]) -> JsonObject | None:
    """Return the result of the first of these messages that answers the call, where that is a success."""
    for piece in pieces:
        message = _read(piece.replace(b"ID", str(SENTINEL).encode()))
        if message is not None and not isinstance(message.get("method"), str) and _is_ours(message.get("id")):
            return _success(message)
    return None


def is_the_same(result: JsonObject, expected: JsonObject) -> bool:
    """Whether a result is the expected one, whatever the id was that stands in it by accident."""
    pattern = re.escape(json.dumps(expected)).replace(str(SENTINEL), r"\d+")
    return re.fullmatch(pattern, json.dumps(result)) is not None


def _read(piece: bytes) -> JsonObject | None:
    def refuse(_text: str) -> NoReturn:
        raise ValueError

    def finite(text: str) -> float:
        value = float(text)
        return value if math.isfinite(value) else refuse(text)

    try:
        value: JsonValue = json.loads(
            piece.decode("utf-8", "replace"), parse_constant=refuse, parse_float=finite
        )
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and ("result" in value or "error" in value) else None


def _is_ours(request_id: object) -> bool:
    if isinstance(request_id, str):
        return request_id.isascii() and request_id.isdecimal() and int(request_id) == SENTINEL
    return type(request_id) is int and request_id == SENTINEL


def _success(message: JsonObject) -> JsonObject | None:
    result = message.get("result")
    if "error" in message or not isinstance(result, dict) or _depth(message) > DEPTH_MAX:
        return None
    fine = result.get("resultType", "complete") == "complete" and result.get("isError") in (None, False)
    found: JsonObject = json.loads(_mended(json.dumps(result)))
    return found if fine else None


def _mended(text: str) -> str:
    """Each lone surrogate becomes U+FFFD."""
    whole = json.dumps(json.loads(text), ensure_ascii=False)
    return whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _depth(value: JsonValue) -> int:
    deep, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        deep += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return deep
