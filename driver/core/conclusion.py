"""What the receipt of an operation says, over all of its attempts.

Part of `driver.core`, pure: imports `store.events` and `store.lifecycle`.

Theory of operation
-------------------
Each attempt has a word of its own, in the form of the event that would end an operation of that one attempt.
The receipt must hold for all of them:

* what was never sent says nothing about what was: the receipt is the word of the newest attempt that may have
  left this machine, and `not_executed` only where none has;
* a failure beside another attempt that may have happened is `unsettled`, whatever the contract says that
  errors mean: the answer was not about that other attempt;
* a success of any attempt is the operation's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from store.events import (
    AttemptEnded,
    OperationFailed,
    OperationNotExecuted,
    OperationSucceeded,
    OperationUnknown,
)
from store.lifecycle import Effect
from store.values import light

Outcome: TypeAlias = OperationSucceeded | OperationFailed | OperationNotExecuted | OperationUnknown
"""How an attempt, or an operation, ended."""


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """One attempt that has ended; `outcome.attempts` is its own number."""

    attempt: int
    phase: str | None
    outcome: Outcome
    cleared: bool = False
    """Whether somebody found out since that it did not happen."""

    @property
    def sent(self) -> bool:
        """Whether a byte of it may have left."""
        return not isinstance(self.outcome, OperationNotExecuted)

    @property
    def doubtful(self) -> bool:
        """Whether nobody knows if it happened."""
        return self.outcome.effect is Effect.UNKNOWN and not self.cleared


def conclude(attempts: Sequence[Attempted], unsent: OperationNotExecuted | None = None) -> Outcome:
    """Return the receipt of an operation with these attempts, the newest last, of which none runs any more.

    `unsent` says why there is no further attempt; without any attempt it is the receipt.
    """
    count = len(attempts)
    word = next((item for item in reversed(attempts) if item.sent), None)
    if word is None:
        assert unsent or attempts, "an operation that ends has attempts, or a reason why it has none"
        return unsent or attempts[-1].outcome
    match word.outcome:
        case OperationUnknown() as lost:
            return replace(lost, attempts=count)
        case OperationFailed() as failed:
            doubted = any(item.doubtful for item in attempts if item is not word)
            stated = replace(failed, attempts=count, attempt=None if word.attempt == count else word.attempt)
            return replace(stated, effect=Effect.UNKNOWN, error_means="unsettled") if doubted else stated
        case OperationSucceeded() as succeeded:
            return replace(succeeded, attempts=count)
        case OperationNotExecuted():
            raise AssertionError  # it was not sent


def ended(attempted: Attempted) -> AttemptEnded:
    """Return the event of an attempt whose end is not its operation's."""
    common: dict[str, Any] = {"attempt": attempted.attempt, "phase": attempted.phase}
    match attempted.outcome:
        case OperationFailed() as failed:
            return AttemptEnded(
                **common,
                outcome="failed",
                reason=failed.reason,
                effect=failed.effect,
                error=failed.error,
                error_means=failed.error_means,
                result=failed.result,
                receipt=failed.receipt,
                duration_ms=failed.duration_ms,
                source=failed.source,
            )
        case OperationNotExecuted() as unsent:
            return AttemptEnded(
                **common,
                outcome="not_executed",
                reason=unsent.reason,
                effect=unsent.effect,
                message=unsent.message,
            )
        case OperationUnknown() as lost:
            return AttemptEnded(
                **common,
                outcome="unknown",
                reason=lost.reason,
                message=lost.message,
                receipt=lost.receipt,
            )
        case OperationSucceeded():
            raise AssertionError  # a success is its operation's end


def attempted(event: AttemptEnded) -> Attempted:
    """Return the attempt that `ended` made `event` from."""
    # its words are those that an outcome of the same name takes: `ended` wrote them
    data = cast("Any", event)
    outcome: Outcome
    match event.outcome:
        case "failed":
            outcome = OperationFailed(
                effect=event.effect or Effect.UNKNOWN,
                error=event.error or {},
                error_means=event.error_means or "unsettled",
                result=event.result,
                result_truncated=event.result_truncated is True,
                receipt=event.receipt,
                attempts=event.attempt,
                duration_ms=event.duration_ms,
                phase=event.phase,
                reason=event.reason,
                source=event.source,
            )
        case "not_executed":
            outcome = OperationNotExecuted(reason=data.reason, message=event.message)
        case "unknown":
            outcome = OperationUnknown(
                reason=data.reason,
                phase=event.phase,
                attempts=event.attempt,
                message=event.message,
                receipt=event.receipt,
            )
    return Attempted(attempt=event.attempt, phase=event.phase, outcome=outcome)
