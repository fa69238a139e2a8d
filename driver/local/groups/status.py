"""`/v1/status`, `/healthz` and `/readyz`: how the daemon is; and `/v1/drain`, which ends it.

Part of `driver.local.groups`.
"""

from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from driver.local import shapes
from driver.local.answers import accepted_answer, json_answer
from driver.local.bodies import NoBody, parse_body
from driver.local.errors import Code, Problem
from driver.local.peers import peer_of
from driver.local.queries import NoQuery, parse_query
from driver.local.service import Service
from store.view import View


def routes(service: Service) -> list[Route]:
    """Return the routes of this group."""
    return [
        Route("/v1/status", partial(_status, service), methods=["GET"]),
        Route("/healthz", partial(_healthy, service), methods=["GET"]),
        Route("/readyz", partial(_ready, service), methods=["GET"]),
        Route("/v1/drain", partial(_drain, service), methods=["POST"]),
    ]


async def _status(service: Service, request: Request) -> Response:
    parse_query(NoQuery, request)
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
        fence=view.fence,
    )


async def _healthy(service: Service, request: Request) -> Response:
    """200 while the journal can commit; the supervisor of the process may restart it otherwise."""
    parse_query(NoQuery, request)
    ailment = await service.ailment()
    if ailment is not None:
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, Code.UNHEALTHY, ailment)
    return json_answer({"healthy": True})


async def _ready(service: Service, request: Request) -> Response:
    """200 while new calls are taken."""
    parse_query(NoQuery, request)
    state = service.sources.status().state
    if state != "ready":
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            Code.NOT_READY,
            f"the daemon is {state}: it takes no new calls now",
        )
    return json_answer({"ready": True, "state": state})


async def _drain(service: Service, request: Request) -> Response:
    """202: from now on new work is refused; what runs may finish within `drain_s`, then the daemon stops."""
    parse_query(NoQuery, request)
    await parse_body(NoBody, request, service.limits)
    service.sources.drain(peer_of(request).actor)
    return accepted_answer({"state": "draining"})
