"""Answers without an end in sight: lines, of JSON as a rule, one piece at a time.

Part of `driver.local`; imports anyio, starlette and its own siblings.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from driver.local.service import Service

NDJSON: Final = "application/x-ndjson"

Emit = Callable[[bytes], Awaitable[None]]
"""Sends whole lines; returns when the connection has room for more."""
Produce = Callable[[Emit], Awaitable[None]]


class LineStream(Response):
    """Lines as they come. Ends when `produce` does, when the client goes, or when the service closes.

    `produce` is held up by a slow client, so that it costs one piece of memory. An error in mid-stream
    closes the connection without the final chunk: what is broken never looks complete. What can be refused
    must be refused before: by the handler, or by the bound on streams.
    """

    def __init__(self, service: Service, produce: Produce, *, media_type: str = NDJSON) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._service = service
        self._produce = produce

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines. Raises the 503 `Problem`, before anything is sent, at the bound on streams."""
        with self._service.stream():
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            if scope["method"] != "HEAD":
                await self._send_lines(receive, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_lines(self, receive: Receive, send: Send) -> None:
        async def emit(lines: bytes) -> None:
            await send({"type": "http.response.body", "body": lines, "more_body": True})

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_end_when_gone, receive, tasks)
                tasks.start_soon(_end_when_closing, self._service, tasks)
                await self._produce(emit)
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            raise group.exceptions[0] from group  # the producer's own: the two watchers raise nothing


async def _end_when_gone(receive: Receive, tasks: TaskGroup) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    tasks.cancel_scope.cancel()


async def _end_when_closing(service: Service, tasks: TaskGroup) -> None:
    await service.closing.wait()
    tasks.cancel_scope.cancel()
