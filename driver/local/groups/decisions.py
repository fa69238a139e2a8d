"""`POST /v1/operations/{id}/approve`: a person's decision about one request.

Part of `driver.local.groups`. Who decides is the uid that the kernel names; a name in the request is a label
beside it.
"""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final, Literal

from starlette.requests import Request
from starlette.responses import Response

from driver.core.commands import ApproveData
from driver.core.fields import Name, Note
from driver.core.requester import requester_of
from driver.local import shapes
from driver.local.answers import accepted_answer
from driver.local.bodies import Body
from driver.local.endpoints import COMMAND_PROBLEMS, write
from driver.local.errors import Code, Problem, not_found
from driver.local.peers import label_of, peer_of
from driver.local.published import ApprovalCommand
from driver.local.service import Service
from store.records import JsonObject, OperationId, OperationRecord, StoredEvent
from store.view import View


class Decision(Body):
    """What is decided, and about which request: the newest one, unless it is named."""

    decision: Literal["grant", "deny"] = "grant"
    approval_id: Name | None = None
    reason: Note | None = None
    label: Name | None = None


async def _approve(service: Service, request: Request, body: Decision) -> Response:
    """Decide about an operation that waits for a person."""
    wanted = OperationId(request.path_params["operation_id"])
    operation, newest, requester = await service.read(lambda view: _asked(view, wanted))
    if operation is None:
        raise not_found(Code.OPERATION_NOT_FOUND, "operation", wanted)
    approval_id = body.approval_id or newest
    if approval_id is None:
        detail = f"the operation is {operation.state}, and nobody was asked to approve it"
        raise Problem(Code.NOT_AWAITING_APPROVAL, detail)
    peer = peer_of(request)
    if requester == peer.uid and not service.allow_self_approval:
        raise Problem(Code.SELF_APPROVAL, _SELF.format(uid=peer.uid))
    data: JsonObject = {
        "operation_id": wanted,
        "approval_id": approval_id,
        "decision": body.decision,
        "approver": peer.actor,
        "reason": body.reason,
        "label": body.label or await label_of(peer),
    }
    done = await service.submit(ApproveData.KIND, operation.run_id, data)
    return accepted_answer(
        {"command_id": done.command_id, "operation_id": wanted, "approval_id": approval_id}
    )


_SELF: Final = (
    "uid {uid} made this call, through the gateway, and nobody decides about their own: decide as another "
    "user, or set driver.allow_self_approval = true and restart the daemon"
)


def _asked(view: View, wanted: OperationId) -> tuple[OperationRecord | None, str | None, int | None]:
    """Return the operation, the newest request about it, and the uid behind it, where it is the gateway's."""
    operation = view.operation(wanted)
    data = None if operation is None else view.command_data(operation.command_id)
    requests = shapes.approvals(() if operation is None else _telling(view, wanted))
    newest = requests[-1] if requests else None
    asked = str(newest["approval_id"]) if isinstance(newest, dict) else None
    return operation, asked, requester_of(data)


def _telling(view: View, wanted: OperationId) -> Iterator[StoredEvent]:
    for seq in view.operation_events(wanted):
        event = view.event(seq)
        if event is not None and event.kind in shapes.TELLING:
            yield event


ENDPOINTS: Final = (
    write(
        "/v1/operations/{operation_id}/approve",
        _approve,
        body=Decision,
        answers={HTTPStatus.ACCEPTED: ApprovalCommand},
        problems=(
            Code.OPERATION_NOT_FOUND,
            Code.NOT_AWAITING_APPROVAL,
            Code.SELF_APPROVAL,
            Code.STALE_APPROVAL,
            Code.ALREADY_DECIDED,
            Code.APPROVAL_EXPIRED,
            *COMMAND_PROBLEMS,
        ),
    ),
)
