"""Outcomes as tool results: the provider's own, unchanged, or a sentence for a model that names the state.

Part of `driver.gateway`; imports `driver.core`, `store` and its siblings.
"""

import json
from dataclasses import dataclass
from typing import Final

from driver.core.attempts import Answered, HttpStatus, Report
from driver.core.contracts import Contract
from driver.gateway import words
from driver.gateway.outcomes import Alike, AskUser, Ended, NotTaken, Outcome, Retired, Running
from driver.gateway.wire import OURS
from store.events import (
    CommandRefused,
    OperationFailed,
    OperationNotExecuted,
    OperationSucceeded,
    OperationUnknown,
)
from store.lifecycle import Effect, State
from store.records import JsonObject, JsonValue, OperationId, OperationRecord

OPERATION_ID: Final = OURS + "operation-id"
OUTCOME: Final = OURS + "outcome"
REPLAYED: Final = OURS + "replayed"
CODE: Final = OURS + "code"
"""Beside `refused`: which of the reasons."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the journal holds about an operation, as it was read for one answer."""

    record: OperationRecord | None
    result: JsonObject | None


def result_of(
    outcome: Outcome, tool: str, contract: Contract, reading: Reading, *, wire: bool, shown_max: int
) -> JsonObject:
    """Return the tool result that tells an outcome.

    `reading` is about the operation, or about the twin. `wire`: the provider's results are tool results.
    """
    match outcome:
        case AskUser(result=result):
            return result
        case Ended():
            return _ended(outcome, tool, contract, reading, wire=wire)
        case NotTaken(code=code, message=message):
            return error(words.not_taken(code, message), "refused", code=code)
        case Alike(code=code, twin=twin, undelivered=undelivered):
            if reading.record is None:
                return error(words.retired(tool, twin, "pruned", None), "refused", twin, code=code)
            text = words.refused_alike(tool, reading.record, contract, undelivered=undelivered)
            told = error(text, "refused", twin, code=code)
            # of what may have happened, or has in spite of an error, nobody else's sentence: it might
            # advise to do it once more
            belied = reading.record.state is State.FAILED and reading.record.effect is Effect.OCCURRED
            hidden = belied or reading.record.guards
            return told if hidden else _with_result(told, reading.result, shown_max)
        case Retired(operation_id=operation_id, kind=kind, effect=effect):
            return error(
                words.retired(tool, operation_id, kind, effect), "refused", operation_id, code="retired"
            )
        case Running(operation_id=operation_id, approval_id=approval_id):
            text = words.still_running(tool, operation_id, approval_id)
            return error(text, "still_running", operation_id)


def error(
    text: str, outcome: str, operation_id: OperationId | None = None, *, code: str | None = None
) -> JsonObject:
    """Return a tool result that is a sentence of ours, and no success."""
    meta: JsonObject = {OUTCOME: outcome}
    if operation_id is not None:
        meta[OPERATION_ID] = operation_id
    if code is not None:
        meta[CODE] = code
    return {"content": [_text(text)], "isError": True, "_meta": meta}


def too_long(result: JsonObject, size: int) -> JsonObject:
    """Return what is told instead of a result that is too long to be carried: our words beside it stay."""
    found = result.get("_meta")
    meta = found if isinstance(found, dict) else {}
    ours: JsonObject = {name: value for name, value in meta.items() if name.startswith(OURS)}
    text = (
        f"{ours.get(OUTCOME, 'failed')}: the answer is there, and with {size:,} bytes too long to be handed "
        f"on (operation {ours.get(OPERATION_ID)}). Do not repeat the call for it."
    )
    return {"content": [_text(text)], "isError": True, "_meta": ours}


def _ended(ended: Ended, tool: str, contract: Contract, reading: Reading, *, wire: bool) -> JsonObject:
    operation_id, data = ended.operation_id, ended.data
    match ended.kind:
        case OperationSucceeded.KIND:
            return _marked(_success(ended, contract, reading, wire=wire), ended, "succeeded")
        case OperationFailed.KIND:
            return _marked(_failure(ended, tool, contract, reading, wire=wire), ended, "failed")
        case OperationUnknown.KIND:
            return _marked(_uncertain(ended, tool, contract, reading, wire=wire), ended, "unknown")
        case OperationNotExecuted.KIND:
            return _marked(_nothing(ended, tool), ended, _word_of(str(data["reason"])))
        case CommandRefused.KIND:
            text = words.not_taken(str(data["code"]), str(data["message"]))
            return error(text, "refused", code=str(data["code"]))
        case kind:
            return _marked(error(f"{kind}: see operation {operation_id}", kind), ended, kind)


def _word_of(reason: str) -> str:
    return "denied" if reason == "approval_denied" else "not_executed"


def _success(ended: Ended, contract: Contract, reading: Reading, *, wire: bool) -> JsonObject:
    """The result; what is left of it where it was withheld, or is not kept any more.

    What is left is no success to a client: it would hold that against the tool's schema, and tell its model
    of that fault instead of what has happened.
    """
    begin = f"succeeded: it has happened (operation {ended.operation_id})"
    result = _raw(ended.report) if ended.report is not None else None
    if result is not None:
        return result if wire else _wrapped(result)
    result = reading.result
    if result is None:
        return error(f"{begin}; its result is not kept any more.", "succeeded")
    if not wire:
        return _wrapped(result)
    if contract.redact is None or not contract.redact.withholds_results or "structuredContent" not in result:
        return result
    content = result.get("content")
    text = _text(f"{begin}. A part of its result is withheld, and stands here without it.")
    return {**result, "content": [text, *(content if isinstance(content, list) else [])], "isError": True}


def _raw(report: Report | None) -> JsonObject | None:
    return report.result if isinstance(report, Answered) else None


def _failure(ended: Ended, tool: str, contract: Contract, reading: Reading, *, wire: bool) -> JsonObject:
    data = ended.data
    means, effect = str(data.get("error_means")), Effect(str(data["effect"]))
    aftermath = words.after_failure(effect, means, contract, ended.operation_id)
    report = ended.report
    result = report.result if isinstance(report, Answered | HttpStatus) else reading.result
    # what wants something of a client would have it send the call once more, unasked
    whole = result is not None and result.get("resultType", "complete") == "complete"
    if wire and result is not None and whole and isinstance(result.get("content"), list):
        if means != "unsettled":
            return {**result, "isError": True}
        content = result["content"]
        assert isinstance(content, list), "looked at above"
        return {**result, "isError": True, "content": [*content, _text(f"failed: {aftermath}")]}
    found = data.get("error")
    # nobody else's sentence about what may have happened: it might advise to do it once more
    wanted = ("code",) if means == "unsettled" else ("message", "code")
    said = (found.get(name) for name in wanted) if isinstance(found, dict) else ()
    message = next((str(text) for text in said if text), "an error")
    told = error(words.failed(tool, ended.operation_id, message, aftermath), "failed", ended.operation_id)
    if result is None or means == "unsettled":
        return told
    return {**_wrapped(result, before=told["content"]), "isError": True}


def _uncertain(ended: Ended, tool: str, contract: Contract, reading: Reading, *, wire: bool) -> JsonObject:
    record = reading.record
    if record is None or (record.effect is Effect.UNKNOWN and not record.settled):
        reason = str(ended.data["reason"])
        return error(words.unknown(tool, ended.operation_id, reason, contract), "unknown", ended.operation_id)
    told = error(words.settled(tool, record), record.state.value, ended.operation_id)
    if reading.result is None or record.effect is not Effect.OCCURRED:
        return told
    content = told["content"]
    assert isinstance(content, list), "made above"
    shown = reading.result.get("content") if wire else None
    return {**told, "content": [*content, *(shown if isinstance(shown, list) else [_json(reading.result)])]}


def _nothing(ended: Ended, tool: str) -> JsonObject:
    data = ended.data
    reason, message = str(data["reason"]), data.get("message")
    if reason != "approval_denied":
        text = words.not_executed(tool, ended.operation_id, reason, str(message) if message else None)
        return error(text, "not_executed", ended.operation_id)
    decided = ended.decided or {}
    approver, why = decided.get("approver"), decided.get("reason")
    text = words.denied(tool, ended.operation_id, _or_none(approver), _or_none(why))
    return error(text, "denied", ended.operation_id)


def _or_none(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _marked(result: JsonObject, ended: Ended, outcome: str) -> JsonObject:
    """The result with our own words in its `_meta`, beside whatever the provider put there.

    What stands under our names is ours alone: a provider that is an effectd itself means its own call by it.
    """
    meta = result.get("_meta")
    found = meta.items() if isinstance(meta, dict) else ()
    theirs: JsonObject = {name: value for name, value in found if not name.startswith(OURS)}
    ours: JsonObject = {OPERATION_ID: ended.operation_id, OUTCOME: outcome}
    if ended.replayed:
        ours[REPLAYED] = True
    return {**result, "_meta": {**theirs, **ours}}


def _with_result(told: JsonObject, result: JsonObject | None, shown_max: int) -> JsonObject:
    if result is None:
        return told
    content = told["content"]
    assert isinstance(content, list), "made above"
    shown = json.dumps(result, ensure_ascii=False)
    if len(shown.encode()) > shown_max:
        shown = f"(longer than {shown_max} bytes: not shown here)"
    return {**told, "content": [*content, _text(f"Its result: {shown}")]}


def _wrapped(result: JsonObject, before: JsonValue = None) -> JsonObject:
    """The result of a program, or of an HTTP request, as a tool result."""
    content: list[JsonValue] = [*(before if isinstance(before, list) else []), _json(result)]
    return {"content": content, "structuredContent": result}


def _json(value: JsonObject) -> JsonObject:
    return _text(json.dumps(value, ensure_ascii=False))


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}
