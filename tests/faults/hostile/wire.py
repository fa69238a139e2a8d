"""Bytes that no WebSocket server should send: in place of frames, and in place of its handshake.

Part of `hostile`. The number of each and the seed give it again. RFC 6455, section 5, says what a frame is.
"""

import struct
from random import Random
from typing import Final

from tests.faults.hostile.words import word

ACCEPT: Final = b"ACCEPT-OF-THE-KEY"
"""Stands for the proof that a handshake was read."""
TEXT: Final = 0x1
CLOSE: Final = 0x8
SIZES: Final = (0, 1, 2, 125, 126, 127, 300, 65_535, 65_536)
CODES: Final = (0, 999, 1000, 1001, 1004, 1005, 1006, 1012, 1015, 1100, 2999, 3000, 4002, 4999, 5000, 65_535)
PAYLOADS: Final = (
    b"", b"{}", b'{"type":"ack","seq":0}', b"\xff\xfe", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf",
    b"\x80",
    b"\xe2\x82", b"\x00" * 10, b"x" * 200,
)  # fmt: skip


def garbage(seed: int, number: int) -> bytes:
    """Return bytes to come behind a good handshake: some frames, or what is none."""
    chance = Random(seed * 1_000_000_009 + number)
    if chance.random() < 0.1:
        return chance.randbytes(chance.choice((1, 2, 3, 10, 100, 5_000)))
    data = b"".join(_frame(chance, number) for _ in range(chance.choice((1, 1, 1, 2, 4))))
    match chance.randrange(6):
        case 0:
            at = chance.randrange(len(data))
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[: chance.randint(0, len(data))]
        case _:
            return data


def _frame(chance: Random, number: int) -> bytes:
    opcode = chance.choice((0x0, TEXT, TEXT, 0x2, 0x3, 0x7, CLOSE, CLOSE, 0x9, 0xA, 0xB, 0xF))
    first = opcode | (0x80 if chance.random() < 0.7 else 0)
    if chance.random() < 0.3:
        first |= chance.choice((0x40, 0x20, 0x10, 0x70))
    payload = _payload(chance, opcode, number)
    masked = chance.random() < 0.15
    length = (
        len(payload) if chance.random() < 0.8 else chance.choice((*SIZES, 2**20, 2**31, 2**62, 2**64 - 1))
    )
    return (
        bytes([first])
        + _length(chance, length, masked=masked)
        + (chance.randbytes(4) if masked else b"")
        + payload
    )


def _payload(chance: Random, opcode: int, number: int) -> bytes:
    if opcode == CLOSE and chance.random() < 0.8:
        reason = chance.choice((b"", b"why", b"\xff", b"x" * 124))
        return struct.pack(">H", chance.choice(CODES)) + reason
    if opcode == TEXT and chance.random() < 0.5:
        text = word(1, number)
        return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return chance.choice((*PAYLOADS, b"y" * chance.choice(SIZES)))


def _length(chance: Random, length: int, *, masked: bool) -> bytes:
    """The length, sometimes in more bytes than it takes."""
    mask = 0x80 if masked else 0
    if length < 126 and chance.random() < 0.9:
        return bytes([mask | length])
    if length < 65_536 and chance.random() < 0.9:
        return bytes([mask | 126]) + struct.pack(">H", length)
    return bytes([mask | 127]) + struct.pack(">Q", length)


# --- handshakes

STATUS: Final = (
    "101 Switching Protocols", "200 OK", "101", "100 Continue", "199 ?", "204 No Content", "301 Moved",
    "302 Found",
    "307 Temporary", "401 Unauthorized", "403 Forbidden", "404 Not Found", "426 Upgrade Required",
    "429 Too Many", "500 Oops", "503 Busy", "999 ?", "1010 ?", "99 ?", "-1 ?", "abc", "101 \xff", "",
)  # fmt: skip
HEADERS: Final = (
    "Location: http://127.0.0.1:1/", "Location: ws://127.0.0.1:1/driver", "Content-Length: 5",
    "Content-Length: -1",
    "Content-Length: 99999999999999999999", "Transfer-Encoding: chunked", "Set-Cookie: a=b", "X: \x00",
    "X\x00: y",
    "no colon", ": no name", " folded: yes", "X: " + "y" * 9_000,
    "Sec-WebSocket-Extensions: permessage-deflate",
    "Sec-WebSocket-Extensions: x; y=", "Sec-WebSocket-Protocol: effectd.v2",
    "Sec-WebSocket-Protocol: effectd.v1, x",
    "Sec-WebSocket-Version: 8", "Upgrade: h2c", "Connection: close", "Sec-WebSocket-Accept: AAAA",
    "X: \xff\xfe",
    "Retry-After: 1e400", "Date: never",
)  # fmt: skip


def handshake(seed: int, number: int) -> bytes:
    """Return what a server says to a handshake that is not, or not only, its proper answer."""
    chance = Random(seed * 1_000_000_021 + number)
    if chance.random() < 0.05:
        return chance.randbytes(chance.choice((0, 1, 10, 1_000, 100_000)))
    status = STATUS[0] if chance.random() < 0.5 else chance.choice(STATUS)
    version = (
        "HTTP/1.1" if chance.random() < 0.9 else chance.choice(("HTTP/1.0", "HTTP/2", "HTTP/9.9", "ICY", ""))
    )
    lines = [
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {ACCEPT.decode()}",
        "Sec-WebSocket-Protocol: effectd.v1",
    ]
    for _ in range(chance.choice((0, 1, 1, 3))):
        match chance.randrange(4):
            case 0 if lines:
                lines.pop(chance.randrange(len(lines)))
            case 1 if lines:
                lines.append(chance.choice(lines))
            case _:
                lines.insert(chance.randint(0, len(lines)), chance.choice(HEADERS))
    if chance.random() < 0.02:
        lines += [f"X-{n}: y" for n in range(chance.choice((127, 128, 129, 5_000)))]
    end = "\r\n" if chance.random() < 0.95 else "\n"
    head = end.join([f"{version} {status}", *lines, "", ""]).encode("latin-1")
    body = chance.choice((b"", b"", b"hello", b"x" * 70_000, garbage(seed, number)))
    data = head + body
    return data[: chance.randint(0, len(data))] if chance.random() < 0.1 else data
