"""What a model is told: sentences that say the state first, then what it means, then what to do.

Part of `driver.gateway`, pure: imports `driver.core.contracts` and the store's values.

Of what may have happened nothing here says that it should be done once more. Sentences of others (a
provider's, an operator's) are quoted as theirs, and never about an uncertain outcome.
"""

from typing import Final

from driver.core.contracts import Contract, ToolName
from store.lifecycle import Effect
from store.records import OperationId, OperationRecord

QUOTED_MAX: Final = 500
"""Characters of somebody else's sentence."""

_WHY: Final = {
    "crash_window": "the daemon stopped while the call was under way",
    "execution_timeout": "no answer came within the time that the tool may take",
    "connection_lost": "the connection to the provider was lost before an answer came",
    "cancelled_after_dispatch": "it was cancelled after it had been sent",
    "protocol_error": "what came back was no answer that can be read",
    "gateway_error": "something between here and the provider answered in its place",
    "redirected": "the provider pointed elsewhere instead of answering",
    "task_pending": "the provider works on it as a task, and it was not done in time",
    "journal_lost": "an earlier journal may have had it executed",
    "rolled_back": "the journal was set back to an earlier state",
}

_STATES: Final = {
    "accepted": "waits for its turn",
    "awaiting_approval": "waits for a person's approval",
    "started": "is running",
    "succeeded": "has succeeded",
    "failed": "has failed",
    "not_executed": "was not executed",
    "unknown": "may have happened, and nobody knows yet",
}


def unknown(tool: str, operation_id: OperationId, reason: str, contract: Contract) -> str:
    """Say that a call may have happened."""
    why = _WHY.get(reason, reason)
    if not contract.write:
        return (
            f"unknown: no answer to this call of {tool} is known ({why}). The tool only reads, so nothing "
            f"was changed, and it may be called again. Recorded as operation {operation_id}."
        )
    return (
        f"unknown: this call of {tool} may have happened: {why}. Do not repeat it: it could be done twice, "
        f"and an equal call is refused while this is open. It is recorded as operation {operation_id}. "
        f"{follow_up(tool, contract)} {look(operation_id, contract)}"
    )


def follow_up(tool: str, contract: Contract) -> str:
    """Say what will be done about a call that may have happened."""
    if contract.probe is not None:
        probe = ToolName(ToolName.parse(tool).provider, contract.probe.tool)
        return f"effectd looks with {probe} whether it happened, and records what it finds."
    return (
        "If an answer still comes it is recorded; otherwise an operator, or the supervisor, looks into it "
        "and records what happened."
    )


def look(operation_id: OperationId, contract: Contract) -> str:
    """Say how to look at an operation."""
    ways = "effectd__operation shows what is known of it"
    if contract.probe is not None:
        ways += ", effectd__probe looks in the provider now"
    return f"{ways} (operation_id: {operation_id}). Go on with work that does not depend on it."


def settled(tool: str, record: OperationRecord) -> str:
    """Say what was found out about a call whose answer never came."""
    word = {
        Effect.OCCURRED: "It has happened. Do not repeat it.",
        Effect.NONE: "It has not happened.",
        Effect.UNKNOWN: "Nobody could find out whether it happened, and that is the last word. Do not repeat "
        "it unless the user decides so.",
    }[record.effect]
    who = record.effect_by or "nobody"
    guess = " This is a guess, no proof: do not repeat the call because of it." if record.best_effort else ""
    return (
        f"{record.state.value}: no answer to this call of {tool} was received. What is known of it now (by "
        f"{who}): {word}{guess} It is recorded as operation {record.operation_id}."
    )


def refused_alike(tool: str, twin: OperationRecord, contract: Contract, *, undelivered: bool) -> str:
    """Say that a call was not made because of an equal one."""
    begin = (
        f"refused: nothing was executed. An equal call of {tool} was made before in this run and "
        f"{_became(twin)} (operation {twin.operation_id}, state {twin.state.value}, effect "
        f"{twin.effect.value})"
    )
    if undelivered:
        why = (
            "that was not known yet when it was answered"
            if _was_doubted(twin)
            else "its answer was never delivered"
        )
        return f"{begin}; {why}. Use what is said of it here instead of a second call."
    if not twin.guards and twin.effect is Effect.OCCURRED:
        return (
            f"{begin}, and the tool may be called with these arguments only once in a run. Do not repeat it."
        )
    if twin.state.value in ("accepted", "awaiting_approval", "started"):
        return f"{begin}. Wait for it. {look(twin.operation_id, contract)}"
    return f"{begin}. A second one could do it twice. {look(twin.operation_id, contract)}"


def _became(twin: OperationRecord) -> str:
    """Return what is known of a call, who made it and what became of it being said around it."""
    match twin.state.value, twin.effect:
        case (("unknown" | "failed"), (Effect.NONE | Effect.OCCURRED)) if twin.best_effort:
            return "may have happened, of which there is a guess, and no proof"
        case "unknown", Effect.OCCURRED:
            return "has happened, as was found out later"
        case "failed", Effect.OCCURRED:
            return "was answered with an error, and has happened all the same, as was found out later"
        case "failed", Effect.UNKNOWN if twin.guards:
            return "was answered with an error, and may have happened all the same"
        case "unknown", Effect.UNKNOWN if twin.best_effort:
            return "may have happened, which could not be found out so far"
        case "unknown", Effect.UNKNOWN if twin.settled:
            return "may have happened, which nobody could find out"
        case state, _:
            return _STATES.get(state, state)


def _was_doubted(twin: OperationRecord) -> bool:
    """Whether nobody knew what had happened when a call ended, and it was found out since."""
    return twin.state.value == "unknown" or (twin.state.value == "failed" and twin.effect is Effect.OCCURRED)


def caution(record: OperationRecord) -> str | None:
    """Say what must not be made of what an operation shows; None where an equal call is nobody's resend."""
    if not record.guards:
        return None
    return f"It {_became(record)}. Do not repeat the call, whatever else is said of it here."


def denied(tool: str, operation_id: OperationId, approver: str | None, reason: str | None) -> str:
    """Say who decided against a call, and why."""
    because = f"the reason given: {quoted(reason)}" if reason else "no reason was given"
    return (
        f"denied: {approver or 'a person'} decided against this call of {tool}; {because}. Nothing was "
        f"executed (operation {operation_id}). Do not ask for the same again unless the user wants you to."
    )


def not_executed(tool: str, operation_id: OperationId, reason: str, message: str | None) -> str:
    """Say that a call provably did nothing."""
    detail = f": {quoted(message)}" if message else ""
    nothing = f"nothing was done by this call of {tool}"
    return f"not_executed ({reason}): {nothing}{detail} (operation {operation_id})."


def failed(tool: str, operation_id: OperationId, error: str, contract_says: str) -> str:
    """Say that the provider answered with an error."""
    return (
        f"failed: {tool} answered with an error: {quoted(error)}. {contract_says} (operation {operation_id})."
    )


def after_failure(effect: Effect, error_means: str, contract: Contract, operation_id: OperationId) -> str:
    """Say what an error leaves open."""
    if effect is Effect.NONE or not contract.write:
        return "Nothing was changed."
    if error_means == "unsettled":
        return (
            "It may have happened all the same, and must not be repeated; an equal call is refused while "
            f"this is open. {look(operation_id, contract)}"
        )
    return "Whether a part of it was done is not known: look before you call it with the same arguments."


def still_running(tool: str, operation_id: OperationId, approval_id: str | None) -> str:
    """Say that an answer is not waited for any longer, and that this ends nothing."""
    what = f"waits for a person's approval ({approval_id})" if approval_id else "goes on"
    return (
        f"still_running: this call of {tool} {what} as operation {operation_id}, and its answer is not "
        "waited for any longer. Nothing new was started by this, and nothing ends by it. Do not repeat the "
        f"call: look with effectd__operation (operation_id: {operation_id}) later."
    )


def retired(tool: str, operation_id: OperationId | None, kind: str, effect: str | None) -> str:
    """Say that only the end of a call is known any more."""
    return (
        f"refused: nothing was executed now. This call of {tool} ended long ago ({kind}, effect "
        f"{effect or 'unknown'}, operation {operation_id}), and its answer is not kept any more."
    )


def not_taken(code: str, message: str) -> str:
    """Say that a call was never accepted."""
    return f"refused ({code}): nothing was executed. {message}"


def quoted(text: str) -> str:
    """Return somebody else's sentence, bounded."""
    return text if len(text) <= QUOTED_MAX else text[:QUOTED_MAX] + "…"
