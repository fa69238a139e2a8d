"""Whether an operation may still go out, and what a restart makes of one that did not end.

Part of `driver.core`, pure: imports `store.lifecycle` only; time arrives as a fact.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from store.lifecycle import OPEN, State
from store.values import light


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class LookFacts:
    """What is true in the moment between the durable intent and the first byte."""

    now: datetime
    expires_at: datetime | None
    """By when the command must have been dispatched."""
    deadline_at: datetime | None
    """By when the attempt must be over; None before there is an intent."""
    cancelled: bool
    draining: bool
    fenced: bool


@dataclass(frozen=True, slots=True)
class Go:
    """The first byte may leave."""


@dataclass(frozen=True, slots=True)
class NotExecuted:
    """Nothing left, and nothing will: the operation ends, or waits on, for this reason."""

    reason: Literal["cancelled", "expired", "deadline", "draining", "fenced"]


def last_look(facts: LookFacts) -> Go | NotExecuted:
    """Return whether the call may be sent. Of several reasons against it, the longest-lived is named.

    A fence first: it says that this journal may be the wrong one, and then nothing else in it counts. A
    person's cancel and a passed time hold for ever; a drain holds for this process life only.
    """
    if facts.fenced:
        return NotExecuted("fenced")
    if facts.cancelled:
        return NotExecuted("cancelled")
    if facts.expires_at is not None and facts.now >= facts.expires_at:
        return NotExecuted("expired")
    if facts.deadline_at is not None and facts.now >= facts.deadline_at:
        return NotExecuted("deadline")
    if facts.draining:
        return NotExecuted("draining")
    return Go()


@dataclass(frozen=True, slots=True)
class Requeue:
    """No attempt runs: it waits for the plane to confirm the history, and then for its turn.

    Its expiry and any cancel are looked at then, not now: in a restored snapshot another life may have
    executed it, and "provably nothing was dispatched" would be a lie.
    """


@dataclass(frozen=True, slots=True)
class EndAttempt:
    """An attempt was begun, and nobody wrote down how it ended: nobody can know what became of it."""


Recovery: TypeAlias = Requeue | EndAttempt


def recover(state: State, *, runs: bool) -> Recovery:
    """Return what a start makes of an operation that an earlier process life left open in `state`.

    `runs`: an attempt of it was begun, and not ended.
    """
    assert state in OPEN, f"an operation in state {state} has ended: there is nothing to recover"
    return EndAttempt() if runs else Requeue()
