"""What is posted over HTTP: read as a whole, or, where it is too long, what tells who waits for an answer.

Part of `driver.gateway`; imports starlette's types and its siblings.
"""

from dataclasses import dataclass
from typing import Final

from starlette.types import Receive

from driver.gateway.lines import HEAD_BYTES
from driver.gateway.wire import LINE_BYTES_MAX

SKIPPED_BYTES_MAX: Final = 67_108_864
"""Of a body that is too long, what is read all the same: many a client listens once it has said all."""


@dataclass(frozen=True, slots=True)
class Posted:
    """A body; of one that is not `whole`, its beginning and its end, in one."""

    data: bytes
    whole: bool


async def posted(receive: Receive) -> Posted | None:
    """Return what a request has posted; None where the client hung up in the middle of it."""
    data, size, more = bytearray(), 0, True
    while more and size <= SKIPPED_BYTES_MAX:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part: bytes = message.get("body", b"")
        data += part
        size += len(part)
        more = message.get("more_body", False)
        if size > LINE_BYTES_MAX:
            del data[HEAD_BYTES:-HEAD_BYTES]
    return Posted(bytes(data), whole=size <= LINE_BYTES_MAX)
