"""What is known of a call that was never handed to its provider, or whose provider told nothing.

Part of `driver.engine`, pure: imports `driver.core` and `store`'s values.
"""

from driver.core.attempts import NotSent, Phase, Report, Silence
from driver.core.classify import bounded
from driver.core.contracts import ToolName
from driver.core.reports import Redactor
from store.events import OperationNotExecuted


def no_provider(tool: ToolName) -> str:
    """Return what a call of a tool is told whose provider is not configured."""
    return (
        f"no provider {tool.provider!r} is configured: a tool is named PROVIDER/TOOL, as in the configuration"
    )


def unsent(refusal: NotSent, redactor: Redactor | None = None) -> OperationNotExecuted:
    """Return the word of an attempt, or the receipt of an operation, that was refused before it left."""
    message = refusal.message if redactor is None else redactor.message(refusal.message)
    return OperationNotExecuted(reason=refusal.reason, message=bounded(message) or None)


def abandoned(phase: Phase) -> Report:
    """What is known of a call that we cancelled ourselves."""
    if phase.may_have_left:
        return Silence(cause="cancelled", message="cancelled after the call may have been sent")
    return NotSent(reason="cancelled", message="cancelled before the call was sent")


def broken(phase: Phase, exc: Exception) -> Report:
    """What is known of a call whose provider raised: an exception of ours, never the peer's word."""
    message = f"internal error in the provider: {type(exc).__name__}"
    if phase.may_have_left:
        return Silence(cause="internal", message=message)
    return NotSent(reason="connect_failed", message=message)
