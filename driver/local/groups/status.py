"""`/v1/status`, `/healthz` and `/readyz`: how the daemon is.

Part of `driver.local.groups`.
"""

from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from driver.local import shapes
from driver.local.answers import json_answer
from driver.local.errors import Code, Problem
from driver.local.queries import NoQuery, parse_query
from driver.local.service import Service
from store.view import View


def routes(service: Service) -> list[Route]:
    """Return the routes of this group."""
    return [
        Route("/v1/status", partial(_status, service), methods=["GET"]),
        Route("/healthz", partial(_healthy, service), methods=["GET"]),
        Route("/readyz", partial(_ready, service), methods=["GET"]),
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
        last_seq=view.last_seq,
        acked_seq=view.acked_seq,
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
