"""Turns the ending of an attempt into the event that records it.

Part of `driver.engine`, pure: imports `driver.core` and `store`'s values.
"""

from dataclasses import replace

from driver.core.attempts import Phase
from driver.core.classify import Ending, Failed, Failure, NotExecuted, Succeeded, Unknown
from driver.core.conclusion import Outcome
from store.events import (
    LateResult,
    OperationFailed,
    OperationNotExecuted,
    OperationSucceeded,
    OperationUnknown,
)
from store.records import JsonObject


def outcome(ending: Ending, *, phase: Phase, attempts: int, duration_ms: int) -> Outcome:
    """Return the word of the attempt number `attempts`: its operation's last, where it is the only one."""
    match ending:
        case Succeeded():
            return OperationSucceeded(
                result=ending.result,
                receipt=ending.receipt,
                attempts=attempts,
                duration_ms=duration_ms,
                phase=phase,
                receipt_missing=ending.receipt_missing or None,
                output_invalid=ending.output_invalid or None,
            )
        case Failed():
            return OperationFailed(
                effect=ending.effect,
                error=_as_json(ending.error),
                error_means=ending.error_means,
                result=ending.result,
                receipt=ending.receipt,
                attempts=attempts,
                duration_ms=duration_ms,
                phase=phase,
            )
        case NotExecuted():
            return OperationNotExecuted(reason=ending.reason, message=ending.message or None)
        case Unknown():
            return OperationUnknown(
                reason=ending.reason,
                phase=phase,
                attempts=attempts,
                message=ending.message or None,
                receipt=ending.receipt,
            )


def found_by_shim(word: Outcome) -> Outcome:
    """Return the word of an attempt whose end was read from a shim's record, after its daemon had died."""
    return replace(word, source="shim") if isinstance(word, OperationSucceeded | OperationFailed) else word


def late_result(ending: Ending, *, attempt: int) -> LateResult | None:
    """Return the event of an answer that came after its operation had ended; None for no answer."""
    match ending:
        case Succeeded():
            return LateResult(
                attempt=attempt, effect=ending.effect, result=ending.result, receipt=ending.receipt
            )
        case Failed():
            return LateResult(
                attempt=attempt,
                effect=ending.effect,
                result=ending.result,
                receipt=ending.receipt,
                error=_as_json(ending.error),
                error_means=ending.error_means,
            )
        case NotExecuted() | Unknown():
            return None


def _as_json(error: Failure) -> JsonObject:
    return {"code": error.code, "message": error.message}
