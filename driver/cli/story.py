"""`effectd show ID` for a person: one operation from its command to its last evidence, in the order of time.

Part of `driver.cli`; imports rich's values, the replies, the views and the words. Nothing here prints.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from pydantic import JsonValue
from rich.console import RenderableType

from driver.cli import words
from driver.cli.replies import Approval, Attempt, Evidence, LateResult, Look, Story, Verdict
from driver.cli.views import dated, hint_lines, labelled, line, operation_lines, value_text
from store.lifecycle import ENDED, Effect

_FOUND: Final = {
    Effect.NONE: "it did not happen",
    Effect.OCCURRED: "it happened",
    Effect.UNKNOWN: "nobody can know",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened. `rank` orders what happened at the same time."""

    at: datetime
    rank: int
    text: str


def story_lines(told: Story, now: datetime, flags: str = "") -> Iterator[RenderableType]:
    """Yield the operation, what happened to it in order, its arguments and answer, and what to do next."""
    yield from operation_lines(told, now)
    if (sure := words.certainty(told)) is not None:
        yield labelled("sure", sure)
    yield from _incidents(told)
    if told.parent_operation_id is not None:
        yield labelled("part of", told.parent_operation_id)
    if told.child_run_id is not None:
        yield labelled("child run", _children(told))
    if told.compensation is not None:
        undo = told.compensation
        yield labelled("undone by", f"{undo.operation_id} ({undo.state}, effect {undo.effect})")
    if told.compensates is not None:
        yield labelled("undoes", told.compensates)
    yield line()
    for day, moments in groupby(timeline(told), key=_day):
        yield line((f"{day} (UTC)", "bold"))
        for moment in moments:
            yield dated(_clock(moment.at), moment.text)
    yield line()
    erased = told.arguments is None
    yield labelled("arguments", "erased" if erased else value_text(told.arguments))
    yield labelled("result", "erased" if erased else _value(told.result))
    yield labelled("events", ", ".join(str(seq) for seq in told.events))
    yield from hint_lines(told, flags, within="show")


def _incidents(told: Story) -> Iterator[RenderableType]:
    """What somebody should look at, whatever else is known."""
    for divergence in told.divergences:
        yield labelled("DIVERGED", (f"{divergence.detail}: somebody should look", "bold red"))
    for look in told.probes:
        if look.verdict == "duplicated":
            text = f"a probe found it {look.matches} times: somebody should look (event {look.seq})"
            yield labelled("DUPLICATED", (text, "bold red"))


def timeline(told: Story) -> list[Moment]:
    """Return all that happened to the operation, in the order of time."""
    return sorted(_moments(told), key=lambda moment: (moment.at, moment.rank))


def _moments(told: Story) -> Iterator[Moment]:
    yield Moment(at=told.accepted_at, rank=1, text=_accepted(told))
    for delivery in told.deliveries:
        text = f"delivered: answered {delivery.answer}"
        yield Moment(at=delivery.at, rank=0, text=text)
    for attempt in told.attempts:
        yield Moment(at=attempt.started_at, rank=2, text=_started(attempt))
        if attempt.ended_at is not None:
            yield Moment(at=attempt.ended_at, rank=3, text=_ended(attempt))
    for request in told.approvals:
        yield Moment(at=request.requested_at, rank=1, text=_asked(request))
        if request.decided_at is not None:
            yield Moment(at=request.decided_at, rank=1, text=_decided(request))
    yield from _learned_later(told)
    if told.ended_at is not None and told.state in ENDED:
        yield Moment(at=told.ended_at, rank=5, text=_outcome(told))


def _learned_later(told: Story) -> Iterator[Moment]:
    """What was learned, asked and written down; what rests on an event of its own is told by that."""
    own = {item.seq for item in told.verdicts} | {item.seq for item in told.late_results}
    for item in told.evidence:
        if item.seq not in own:
            yield Moment(at=item.at, rank=4, text=_learned(item))
    for late in told.late_results:
        yield Moment(at=late.at, rank=4, text=_late(late))
    for look in told.probes:
        yield Moment(at=look.at, rank=4, text=_looked(look))
    for verdict in told.verdicts:
        yield Moment(at=verdict.at, rank=6, text=_judged(verdict))
    for divergence in told.divergences:
        yield Moment(at=divergence.at, rank=7, text=f"DIVERGED: {divergence.detail} (event {divergence.seq})")
    for annotation in told.annotations:
        text = f"annotated: {value_text(dict[str, JsonValue](annotation.metadata))} (event {annotation.seq})"
        yield Moment(at=annotation.at, rank=4, text=text)


def _late(late: LateResult) -> str:
    error = "" if late.error is None else f", with the error {value_text(late.error)}"
    return f"late answer to attempt {late.attempt}: {_FOUND[late.effect]}{error} (event {late.seq})"


def _looked(look: Look) -> str:
    matches = "" if look.matches is None else f", {look.matches} found"
    detail = "" if look.detail is None else f": {look.detail}"
    return f"probe: {look.verdict}{matches}{detail} (event {look.seq})"


def _judged(verdict: Verdict) -> str:
    label = "" if verdict.label is None else f" ({verdict.label})"
    note = f": {verdict.note}" if verdict.note else ""
    shown = f" [{', '.join(verdict.evidence)}]" if verdict.evidence else ""
    return f"verdict of {verdict.actor}{label}: {_FOUND[verdict.effect]}{note}{shown} (event {verdict.seq})"


def _children(told: Story) -> str:
    count = f"{told.child_ops_total} operations, {told.child_ops_unresolved} of them unresolved"
    return f"{told.child_run_id}: {count}"


def _accepted(told: Story) -> str:
    command = told.command
    if command is None:
        return "accepted"
    seq = "" if command.accepted_seq is None else f" (event {command.accepted_seq})"
    expiry = "" if command.expires_at is None else f", to be dispatched by {words.moment(command.expires_at)}"
    return f"command {told.command_id} accepted{seq}{expiry}"


def _asked(request: Approval) -> str:
    until = words.moment(request.expires_at)
    return f"approval {request.approval_id} asked for, to be decided by {until}"


def _decided(request: Approval) -> str:
    word = {"grant": "granted", "deny": "denied"}.get(request.decision or "", request.decision)
    label = "" if request.label is None else f" ({request.label})"
    why = "" if request.reason is None else f": {request.reason}"
    return f"approval {request.approval_id} {word} by {request.approver}{label}{why}"


def _started(attempt: Attempt) -> str:
    carried = "" if attempt.key_carrier == "none" else f" carried by {attempt.key_carrier}"
    return (
        f"attempt {attempt.attempt}: intent recorded (event {attempt.started_seq}), "
        f"key {attempt.idempotency_key}{carried}, "
        f"deadline {words.moment(attempt.deadline_at)}"
    )


def _ended(attempt: Attempt) -> str:
    took = "" if attempt.duration_ms is None else f" after {attempt.duration_ms:,} ms"
    phase = "" if attempt.phase is None else f", last phase {attempt.phase}"
    why = "" if attempt.reason is None else f": {words.reason(attempt.reason)}"
    return f"attempt {attempt.attempt}: {attempt.outcome or 'ended'}{took}{phase}{why}"


def _learned(item: Evidence) -> str:
    who = f" {item.actor}" if item.actor is not None else ""
    return (
        f"evidence for attempt {item.attempt}: {_FOUND[item.effect]}, "
        f"says {words.source(item.source)}{who} (event {item.seq})"
    )


def _outcome(told: Story) -> str:
    command = told.command
    receipt = ""
    if command is not None and command.receipt_seq is not None:
        receipt = f"; its receipt is event {command.receipt_seq} ({command.receipt_kind or ''})"
    return f"ended {told.state}{receipt}"


def _value(value: JsonValue) -> str:
    return "none recorded" if value is None else value_text(value)


def _day(moment: Moment) -> str:
    return f"{moment.at.astimezone(UTC):%Y-%m-%d}"


def _clock(at: datetime) -> str:
    clock = at.astimezone(UTC)
    return f"{clock:%H:%M:%S}.{clock.microsecond // 1000:03d}"
