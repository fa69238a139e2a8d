"""`POST /v1/operations/{id}/reconcile` and `/annotate`: what people say of an operation.

Part of `driver.local.groups`. Whose word it is is the uid that the kernel names; a name in the request is a
label beside it. Bodies are looked at before any state is.
"""

from http import HTTPStatus
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from driver.core.commands import EVIDENCE_MAX, AnnotateData, Metadata, ReconcileData
from driver.core.fields import Name, Note
from driver.local import shapes
from driver.local.answers import accepted_answer, created_answer, json_answer
from driver.local.bodies import Body
from driver.local.endpoints import COMMAND_PROBLEMS, write
from driver.local.errors import Code, not_found
from driver.local.peers import label_of, peer_of
from driver.local.published import OperationCommand, Settled
from driver.local.service import Service
from store.lifecycle import Source
from store.records import CommandId, JsonObject, JsonValue, OperationId, OperationRecord
from store.view import View


class Verdict(Body):
    """What somebody who looked says."""

    effect: Literal["none", "occurred", "unknown"]
    note: Note
    evidence: Annotated[list[Note], Field(max_length=EVIDENCE_MAX, default_factory=list)]
    override: bool = False
    label: Name | None = None

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        if self.override and not self.note.strip():
            raise PydanticCustomError("no_reason", "an override needs a note that says why")
        return self


class Annotation(Body):
    """The host's own reference; what was there before is replaced."""

    metadata: Metadata


async def _reconcile(service: Service, request: Request, body: Verdict) -> Response:
    """Record an operator's verdict: 201; the same again is 200."""
    operation = await _operation(service, request)
    peer = peer_of(request)
    data: JsonObject = {
        "operation_id": operation.operation_id,
        "effect": body.effect,
        "actor": peer.actor,
        "note": body.note,
        "evidence": cast("list[JsonValue]", body.evidence),
        "override": body.override,
        "label": body.label or await label_of(peer),
    }
    done = await service.submit(ReconcileData.KIND, operation.run_id, data)
    now, seq = await service.read(lambda view: _settled(view, operation, done.command_id))
    answer: JsonObject = {**shapes.operation(now), "seq": seq}
    # the receipt of `operation.reconcile`, as the engine records it
    recorded = cast("dict[str, Any]", done.result)["recorded"]
    return created_answer(answer) if recorded else json_answer(answer)


def _settled(
    view: View, operation: OperationRecord, command_id: CommandId
) -> tuple[OperationRecord, int | None]:
    """Return the operation as it is now, and the event that holds the verdict which the command was about."""
    command = view.command(command_id)
    receipt_seq = None if command is None else command.receipt_seq
    words = [
        item.seq
        for item in view.evidence(operation.operation_id)
        if item.source is Source.OPERATOR and item.seq < (receipt_seq or 0)
    ]
    seq = view.wire_seq(words[-1]) if words else None
    return view.operation(operation.operation_id) or operation, seq


async def _annotate(service: Service, request: Request, body: Annotation) -> Response:
    """Keep the host's own reference for an operation, in place of what was there."""
    operation = await _operation(service, request)
    metadata: JsonObject = {name: body.metadata[name] for name in body.metadata}
    data: JsonObject = {"operation_id": operation.operation_id, "metadata": metadata}
    done = await service.submit(AnnotateData.KIND, operation.run_id, data)
    return accepted_answer({"command_id": done.command_id, "operation_id": operation.operation_id})


async def _operation(service: Service, request: Request) -> OperationRecord:
    wanted = OperationId(request.path_params["operation_id"])
    operation = await service.read(lambda view: view.operation(wanted))
    if operation is None:
        raise not_found(Code.OPERATION_NOT_FOUND, "operation", wanted)
    return operation


ENDPOINTS: Final = (
    write(
        "/v1/operations/{operation_id}/reconcile",
        _reconcile,
        body=Verdict,
        answers={HTTPStatus.CREATED: Settled, HTTPStatus.OK: Settled},
        problems=(
            Code.OPERATION_NOT_FOUND,
            Code.STILL_RUNNING,
            Code.ALREADY_SETTLED,
            Code.OUTRANKED,
            Code.OVERLOADED,
            *COMMAND_PROBLEMS,
        ),
    ),
    write(
        "/v1/operations/{operation_id}/annotate",
        _annotate,
        body=Annotation,
        answers={HTTPStatus.ACCEPTED: OperationCommand},
        problems=(Code.OPERATION_NOT_FOUND, Code.OVERLOADED, *COMMAND_PROBLEMS),
    ),
)
