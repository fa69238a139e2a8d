"""`POST /v1/unfence`: an operator lifts the fence.

Part of `driver.local.groups`. Who lifts it is the uid that the kernel names.
"""

from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from driver.core.unfencing import StillFenced
from driver.local.answers import json_answer
from driver.local.bodies import Body
from driver.local.endpoints import write
from driver.local.errors import Code, Problem
from driver.local.peers import peer_of
from driver.local.published import Unfenced
from driver.local.service import Service


class Unfencing(Body):
    """Whether the operator accepts that the journal was rolled back, and begins another history."""

    accept_rollback: bool = False


async def _unfence(service: Service, request: Request, body: Unfencing) -> Response:
    """Lift the fence."""
    found = await service.unfence(peer_of(request).actor, accept_rollback=body.accept_rollback)
    if isinstance(found, StillFenced):
        raise Problem(Code(found.code), found.message)
    return json_answer(
        {
            "reason": found.reason,
            "journal_id": found.journal_id,
            "previous_journal_id": found.previous_journal_id,
            "unknown": found.unknown,
        }
    )


ENDPOINTS: Final = (
    write(
        "/v1/unfence",
        _unfence,
        body=Unfencing,
        answers={HTTPStatus.OK: Unfenced},
        problems=(Code.NOT_FENCED, Code.ROLLBACK_NOT_ACCEPTED, Code.NOT_READY),
    ),
)
