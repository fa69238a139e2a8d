"""The journal's words, said to a person: what a reason, an effect, an age means.

Part of `driver.cli`, pure: imports the store's vocabulary and the replies. A test holds that every reason
of every event has its words here.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from driver.cli.replies import Operation
from store.lifecycle import ENDED, Effect, Source, State

REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # operation.unknown
        "crash_window": "the daemon died after the call may have left, and before an answer was recorded",
        "execution_timeout": "no answer came before the deadline; the provider may still have done it",
        "connection_lost": "the connection to the provider broke before an answer came",
        "cancelled_after_dispatch": "it was cancelled after the call may have left",
        "protocol_error": "the provider's answer was malformed, too large, or could not be handled",
        "gateway_error": "something between us and the provider answered in its place",
        "redirected": "the provider answered with a redirect, which a write never follows",
        "task_pending": "the provider promised a result, and had none by the deadline",
        "journal_lost": "the command was delivered to an earlier journal, which is lost and may have run it",
        "rolled_back": "the journal was rolled back: what it did after that point is not recorded here",
        # operation.not_executed
        "expired": "it expired before it could be dispatched",
        "cancelled": "it was cancelled before the call left",
        "approval_denied": "a person denied it",
        "approval_expired": "nobody decided in time",
        "deadline": "its deadline passed before the call left",
        "connect_failed": "the provider could not be reached, so nothing was sent",
        "spawn_failed": "the provider's program could not be started, so nothing was sent",
        "invalid_arguments": "its arguments break the tool's own schema, so nothing was sent",
        "unknown_tool": "the provider has no such tool, so nothing was sent",
        "intent_not_acknowledged": "the plane did not acknowledge the intent in time, so nothing was sent",
        "draining": "the daemon was stopping, so nothing was sent",
        "fenced": "the daemon was fenced, so nothing was sent",
    }
)
"""Every reason that an event can have, in a sentence."""

_STATES: Final[Mapping[State, str]] = MappingProxyType(
    {
        State.ACCEPTED: "waits to run",
        State.AWAITING_APPROVAL: "waits for a person's approval",
        State.STARTED: "runs now, or rests between two attempts",
        State.SUCCEEDED: "the provider answered that it did it",
        State.FAILED: "the provider answered with a failure",
        State.NOT_EXECUTED: "never left this machine",
        State.UNKNOWN: "no answer is recorded",
    }
)

_SOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        Source.PROVIDER: "the provider",
        Source.DAEMON: "the daemon's own record",
        Source.SHIM: "the command shim's record",
        Source.OPERATOR: "an operator",
        Source.PROBE: "a probe",
        Source.SUPERVISOR: "a supervisor",
    }
)

_KILO: Final = 1_000
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


NO_ROOM: Final = (
    "the journal has no room left, and new calls are refused (no_room); what runs is still recorded"
)
"""What `journal.has_room` being false means."""


def reason(code: str | None) -> str:
    """Return a reason with its sentence; the bare code where there is none, `-` for None."""
    if code is None:
        return "-"
    sentence = REASONS.get(code)
    return code if sentence is None else f"{code}: {sentence}"


def state(found: State) -> str:
    """Return what a state says."""
    return f"{found}: {_STATES[found]}"


def source(found: str | None) -> str:
    """Return who says so."""
    return "nobody" if found is None else _SOURCES.get(found, found)


def effect(operation: Operation) -> str:
    """Return what may have happened, and how sure that is."""
    if operation.state not in ENDED:
        return "not ended yet"
    by = source(operation.effect_by)
    if operation.best_effort:
        return f"{_EFFECTS[operation.effect]}, as far as {by} could infer (best effort: not proof)"
    if operation.effect is Effect.UNKNOWN and operation.effect_by is None:
        return f"{_EFFECTS[Effect.UNKNOWN]}: nobody has said whether it did"
    return f"{_EFFECTS[operation.effect]}, says {by}"


def certainty(operation: Operation) -> str | None:
    """Return how sure the effect is, and what could still change it; None before the operation has ended."""
    if operation.state not in ENDED:
        return None
    if operation.effect_by is None:
        return "not at all: no evidence says anything yet"
    return _CERTAINTY.get(operation.effect_by, operation.effect_by)


_CERTAINTY: Final[Mapping[str, str]] = MappingProxyType(
    {
        Source.PROVIDER: "proof: the provider answered",
        Source.DAEMON: "proof: the daemon's own records",
        Source.SHIM: "proof: the record of the shim that outlived the daemon",
        Source.OPERATOR: "a person's word: a late answer changes it, or another operator's override",
        Source.PROBE: "a look at the provider: a late answer changes it, or an operator",
        Source.SUPERVISOR: "a guess: it takes it off the list, and lets nothing run again",
    }
)
"""What the word of each source is worth."""

_EFFECTS: Final[Mapping[Effect, str]] = MappingProxyType(
    {
        Effect.NONE: "did not happen",
        Effect.OCCURRED: "happened",
        Effect.UNKNOWN: "MAY HAVE HAPPENED",
    }
)


def duration(seconds: float) -> str:
    """Return an age in its two largest units: `4 h 3 min`."""
    rest = max(0, int(seconds))
    parts: list[str] = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def moment(at: datetime) -> str:
    """Return a time in UTC, to the second, as log lines have it."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def trouble(url: str, error: str | None) -> str:
    """Return the plane's address and why there is no link to it, which often names the address itself."""
    if error is None:
        return url
    return error if error.startswith(url) else f"{url}: {error}"


def since(at: datetime, now: datetime) -> str:
    """Return a time and how long ago that is."""
    return f"{moment(at)} ({duration((now - at).total_seconds())} ago)"


def size(count: int) -> str:
    """Return a number of bytes: `12.3 MB`."""
    value, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < _KILO:
            break
        value, unit = value / _KILO, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
