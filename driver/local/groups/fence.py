"""`POST /v1/unfence`: an operator lifts the fence.

Part of `driver.local.groups`. Who lifts it is the uid that the kernel names.
"""

from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from driver.core.unfencing import StillFenced
from driver.local.answers import json_answer
from driver.local.bodies import Body, parse_body
from driver.local.errors import Code, Problem
from driver.local.peers import peer_of
from driver.local.queries import NoQuery, parse_query
from driver.local.service import Service


class Unfencing(Body):
    """Whether the operator accepts that the journal was rolled back, and begins another history."""

    accept_rollback: bool = False


def routes(service: Service) -> list[Route]:
    """Return the routes of this group."""
    return [Route("/v1/unfence", partial(_unfence, service), methods=["POST"])]


async def _unfence(service: Service, request: Request) -> Response:
    parse_query(NoQuery, request)
    body = await parse_body(Unfencing, request, service.limits)
    found = await service.unfence(peer_of(request).actor, accept_rollback=body.accept_rollback)
    if isinstance(found, StillFenced):
        starting = found.code == "not_ready"
        status = HTTPStatus.SERVICE_UNAVAILABLE if starting else HTTPStatus.CONFLICT
        raise Problem(status, Code(found.code), found.message)
    return json_answer(
        {
            "reason": found.reason,
            "journal_id": found.journal_id,
            "previous_journal_id": found.previous_journal_id,
            "unknown": found.unknown,
        }
    )
