"""`POST /v1/verify`: does the live journal hold what it says? Nobody else can open it to look.

Part of `driver.local.groups`. It is a write only for its cost: it changes nothing, and reads everything.
"""

from functools import partial
from http import HTTPStatus
from typing import Final

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.requests import Request
from starlette.responses import Response

from driver.local import shapes
from driver.local.answers import encoded
from driver.local.bodies import Body
from driver.local.endpoints import write
from driver.local.peers import label_of, peer_of
from driver.local.service import Service
from driver.local.streams import NDJSON, Emit, LineStream
from store.errors import ScratchFailed
from store.findings import Finding, Progress
from store.records import JsonObject
from store.verify import verify_journal

_log = structlog.stdlib.get_logger(__name__)


class VerifyBody(Body):
    """`deep`: also project all events again, and compare."""

    deep: bool = False


async def _verify(service: Service, request: Request, body: VerifyBody) -> Response:
    """Look at the whole journal, and change nothing: lines of progress and findings, and a result."""
    peer = peer_of(request)
    _log.info("verify_requested", actor=peer.actor, user=await label_of(peer), deep=body.deep)
    return LineStream(service, partial(_produce, service, deep=body.deep))


async def _produce(service: Service, emit: Emit, *, deep: bool) -> None:
    """Emit lines of type `progress`, then one of type `finding` for each, then the one of type `result`.

    One at a time, so that commits share the journal with one of these only.
    """
    findings: list[Finding] = []
    result: JsonObject = {}
    send, receive = anyio.create_memory_object_stream[Progress](1)
    async with send, receive, service.verifying, anyio.create_task_group() as tasks:
        tasks.start_soon(_emit_progress, receive, emit)
        try:
            findings += await verify_journal(service.sources.journal, partial(_note, send), deep=deep)
        except ScratchFailed as error:
            result["message"] = str(error)
        send.close()
    for finding in findings:
        await emit(_line("finding", shapes.finding(finding)))
    ok = not findings and not result
    await emit(_line("result", {"ok": ok, "findings": len(findings), **result}))


def _note(send: MemoryObjectSendStream[Progress], reached: Progress) -> None:
    """Hand on how far it is; a client that still reads the last one misses this."""
    if not send.statistics().current_buffer_used:
        send.send_nowait(reached)


async def _emit_progress(receive: MemoryObjectReceiveStream[Progress], emit: Emit) -> None:
    async for reached in receive:
        await emit(_line("progress", shapes.progress(reached)))


def _line(kind: str, members: JsonObject) -> bytes:
    return encoded({"type": kind, **members}) + b"\n"


ENDPOINTS: Final = (write("/v1/verify", _verify, body=VerifyBody, answers={HTTPStatus.OK: NDJSON}),)
