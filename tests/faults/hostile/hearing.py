"""What a client may hear in bytes that a server sent: RFC 6455, section 5, read once more.

Part of `hostile`; shares no code with the product or its library.
"""

from collections.abc import Iterator
from typing import Final

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
CONTROL: Final = frozenset({CLOSE, 0x9, 0xA})
CONTROL_BYTES_MAX: Final = 125
NO_CODE: Final = 1005


def close_code(data: bytes) -> int | None:
    """Return the code of the close that is heard, 1005 where it has none; None where no close is."""
    for _, opcode, payload in _frames(data):
        if opcode == CLOSE:
            return int.from_bytes(payload[:2], "big") if payload else NO_CODE
    return None


def texts(data: bytes) -> Iterator[str]:
    """Yield each whole text message until the first fault, or the close, or the end."""
    parts: list[bytes] | None = None
    is_text = False
    for is_last, opcode, payload in _frames(data):
        if opcode in CONTROL:
            if opcode == CLOSE:
                return
            continue
        if (parts is None) != (opcode != CONTINUATION):
            return  # goes on with nothing, or begins anew in the middle
        if parts is None:
            parts, is_text = [], opcode == TEXT
        parts.append(payload)
        if not is_last:
            continue
        if is_text:
            try:
                yield b"".join(parts).decode()
            except UnicodeDecodeError:
                return
        parts = None


def _frames(data: bytes) -> Iterator[tuple[bool, int, bytes]]:
    """Yield frames: whether each is the last of its message, its opcode, its payload."""
    while len(data) >= 2:
        is_last, reserved, opcode = bool(data[0] & 0x80), data[0] & 0x70, data[0] & 0x0F
        is_masked, length, at = bool(data[1] & 0x80), data[1] & 0x7F, 2
        if length > CONTROL_BYTES_MAX:
            size = 2 if length == CONTROL_BYTES_MAX + 1 else 8
            length, at = int.from_bytes(data[2 : 2 + size], "big"), 2 + size
        is_known = opcode in CONTROL or opcode in (CONTINUATION, TEXT, BINARY)
        is_odd = opcode in CONTROL and (not is_last or length > CONTROL_BYTES_MAX)
        if reserved or is_masked or not is_known or is_odd or len(data) < at + length:
            return
        yield is_last, opcode, data[at : at + length]
        data = data[at + length :]
