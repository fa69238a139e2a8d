"""`/v1/status`, `/healthz` and `/readyz`: how the daemon is; and `/v1/drain`, which ends it.

Part of `driver.local.groups`.
"""

from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from driver.local import shapes
from driver.local.answers import accepted_answer, json_answer
from driver.local.bodies import NoBody
from driver.local.endpoints import read, write
from driver.local.errors import Code, Problem
from driver.local.peers import peer_of
from driver.local.published import Draining, Healthy, Ready, Status
from driver.local.queries import NoQuery
from driver.local.service import Service
from store.view import View

NO_ROOM: Final = (
    "the journal has no room left, and new calls are refused (no_room): raise journal.max_bytes, free the "
    "disk, or erase runs"
)


async def _status(service: Service, _request: Request, _: NoQuery) -> Response:
    """How the daemon is: state, link, watermarks, counts, what is unsettled, its journal."""
    known = await service.read(_known)
    statistics = service.sources.journal.statistics()
    return json_answer(shapes.status(service.sources.status(), known, statistics))


def _known(view: View) -> shapes.Known:
    unsettled, oldest = view.unsettled()
    return shapes.Known(
        now=view.now,
        journal_id=view.journal_id,
        last_seq=view.last_seq - view.base,
        acked_seq=view.acked_seq - view.base,
        counts=view.counts(),
        unsettled=unsettled,
        oldest_unsettled=oldest,
        dead_letters=view.parked(),
        fence=view.fence,
        room=view.room,
    )


async def _healthy(service: Service, _request: Request, _: NoQuery) -> Response:
    """Whether the journal can commit; whoever supervises the process may restart it otherwise."""
    ailment = await service.ailment()
    if ailment is not None:
        raise Problem(Code.UNHEALTHY, ailment)
    return json_answer({"healthy": True})


async def _ready(service: Service, _request: Request, _: NoQuery) -> Response:
    """Whether new calls are taken."""
    state = service.sources.status().state
    if state != "ready":
        raise Problem(
            Code.NOT_READY,
            f"the daemon is {state}: it takes no new calls now",
        )
    if not await service.read(lambda view: view.room):
        raise Problem(Code.NOT_READY, NO_ROOM)
    return json_answer({"ready": True, "state": state})


async def _drain(service: Service, request: Request, _: NoBody) -> Response:
    """Begin to stop: no new work, what runs may finish within `drain_s`, then the process ends."""
    service.sources.drain(peer_of(request).actor)
    return accepted_answer({"state": "draining"})


ENDPOINTS: Final = (
    read("/v1/status", _status, query=NoQuery, answer=Status),
    read("/healthz", _healthy, query=NoQuery, answer=Healthy, problems=(Code.UNHEALTHY,)),
    read("/readyz", _ready, query=NoQuery, answer=Ready, problems=(Code.NOT_READY,)),
    write("/v1/drain", _drain, answers={HTTPStatus.ACCEPTED: Draining}),
)
