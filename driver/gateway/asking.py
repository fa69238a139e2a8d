"""A call as it is asked, the command that it becomes, and what the engine and the journal say of it.

Part of `driver.gateway`; imports `driver.core`, `store` and its siblings. What takes a view reads the
journal, in its thread.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from driver.core.answers import Answer, Repeat, Reply
from driver.core.commands import ToolCallData
from driver.core.frames import CommandFrame
from driver.core.requester import requested
from driver.gateway.outcomes import Alike, Ended, NotTaken, Outcome, Retired, Running
from driver.gateway.runs import Speaker
from driver.gateway.twins import attached
from driver.gateway.waiting import Wait, data_of, ended
from store.events import ApprovalDecided, OperationUnknown
from store.records import CommandId, Digest, JournalId, JsonObject, OperationId, OperationRecord
from store.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A tool call as it came. `asked_at`: it was asked before, first then, and is asked about again."""

    command_id: CommandId
    speaker: Speaker
    tool: str
    """As commands name it."""
    arguments: JsonObject
    asked_at: datetime | None = None
    delivered_to: tuple[JournalId, ...] = ()
    """The journal that had it then."""
    traceparent: str | None = None
    """The span that it is made in."""


def frame_of(asked: Asked) -> CommandFrame:
    """Return the command that a call is."""
    data: JsonObject = {"tool": asked.tool, "arguments": asked.arguments, **requested(asked.speaker.uid)}
    if asked.speaker.resumes:
        data["resumes"] = list(asked.speaker.resumes)
    return CommandFrame(
        command_id=asked.command_id,
        run_id=asked.speaker.run_id,
        kind=ToolCallData.KIND,
        data=data,
        delivered_to=asked.delivered_to,
        traceparent=asked.traceparent,
    )


def outcome_of(wait: Wait, answer: Answer) -> Outcome | None:
    """Return what the engine said at once; None where the journal will say it."""
    match answer:
        case Reply(frame=frame):
            said: JsonObject = json.loads(frame)
            if said["type"] == "retired":
                effect = said.get("effect")
                return Retired(
                    operation_id=wait.operation_id,
                    kind=str(said["kind"]),
                    effect=effect if isinstance(effect, str) else None,
                )
            return NotTaken(code=str(said["code"]), message=str(said["message"]))
        case Repeat(events=events) if events and events[-1].terminal and events[-1].body is not None:
            return ended(wait, events[-1], events[-1].body, replayed=True)
        case _:
            return None


def before(
    view: View, *, wait: Wait, asked: Asked, asked_at: datetime, digests: Sequence[Digest]
) -> Outcome | None:
    """Return what is known of a call that was asked before, and is not taken now; None where it never was.

    A fenced daemon answers nobody, and its journal may not be the one that had the call.
    """
    command = view.command(asked.command_id)
    record = None if command is None or command.operation_id is None else view.operation(command.operation_id)
    if record is None:
        record = attached(view, (wait.run_id,), digests, asked_at)
    if record is not None and record.run_id == wait.run_id:
        receipt = of_record(view, record)
        return receipt if isinstance(receipt, Ended) else Running(operation_id=record.operation_id)
    if asked.delivered_to == (view.journal_id,) and view.fence is None:
        return None
    lost: JsonObject = {"reason": "journal_lost", "effect": "unknown"}
    return Ended(operation_id=wait.operation_id, kind=OperationUnknown.KIND, data=lost)


def of_record(view: View, record: OperationRecord) -> Outcome:
    """Return what a call of before came to, for one that was attached to it in another life of the daemon."""
    command = view.command(record.command_id)
    receipt = None if command is None or command.receipt_seq is None else view.event(command.receipt_seq)
    if receipt is None or receipt.body is None:
        return Alike(code="lookalike_unsettled", twin=record.operation_id)
    return Ended(
        operation_id=record.operation_id, kind=receipt.kind, data=data_of(receipt.body), replayed=True
    )


def decision_about(view: View, wanted: OperationId) -> JsonObject | None:
    """Return the newest decision about a request for approval of an operation."""
    found: JsonObject | None = None
    for seq in view.operation_events(wanted):
        event = view.event(seq)
        if event is not None and event.kind == ApprovalDecided.KIND and event.body is not None:
            found = data_of(event.body)
    return found
