"""The SDK's side of a wire: a transport for its session, which shakes hands and answers the peer's requests.

Part of `driver.providers.mcp`; imports the SDK and `driver.providers.outbound`.

Tool calls do not come through here. The SDK's session would validate an answer and lose it, give its own
timeouts and closes the codes that a peer may use too, and drop what comes late; what it is used for is what
it does well: the negotiation of either era of the protocol, and its rules for what a server may ask of a
client.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, TypeAlias, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from driver.providers.outbound import Outbound
from store.records import JsonObject

INBOX_MAX: Final = 256
"""Messages that wait for the session; it takes each at once, so more than this is a flood."""
PEER_REQUESTS_MAX: Final = 64
"""Requests of the peer's own that wait for our answer: a peer that asks for more reads none of them."""

Send: TypeAlias = Callable[[JsonObject, Mapping[str, str]], Awaitable[None]]
"""Sends one message with the headers that belong to it (where the wire has headers)."""


class SdkSide:
    """An SDK transport: an async context manager that yields a stream to read from and one to write to."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._inbox, self._outlet = anyio.create_memory_object_stream[SessionMessage | Exception](INBOX_MAX)
        self._asked = 0

    async def __aenter__(self) -> tuple[MemoryObjectReceiveStream[SessionMessage | Exception], Outbound]:
        return self._outlet, Outbound(self._write)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the stream that the session reads: it takes that for the end of the connection."""
        self._inbox.close()
        self._outlet.close()

    def end(self) -> None:
        """The same, behind what the session has not read yet."""
        self._inbox.close()

    def deliver(self, message: JsonObject) -> bool:
        """Hand the session a response to it, or a request of the peer's. False: the peer floods us."""
        try:
            parsed = jsonrpc_message_adapter.validate_python(message, by_name=False)
        except ValidationError:
            return True  # nothing that the session could act upon
        if isinstance(parsed, JSONRPCRequest):
            self._asked += 1
        try:
            self._inbox.send_nowait(SessionMessage(parsed))
        except anyio.WouldBlock:
            return False
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return True  # the session has ended already
        return self._asked <= PEER_REQUESTS_MAX

    async def _write(self, item: SessionMessage) -> None:
        message = item.message
        headers = item.metadata.headers if isinstance(item.metadata, ClientMessageMetadata) else None
        dumped = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        await self._send(cast("JsonObject", dumped), headers or {})
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._asked -= 1
