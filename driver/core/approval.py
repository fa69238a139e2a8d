"""Whether a person's approval may be used, and whether a decision about one may still be given.

Part of `driver.core`, pure: imports `store.lifecycle` and the store's values; time arrives as a fact.

Theory of operation
-------------------
An approval belongs to one request (`approval_id`) and one attempt. The request names what the person was
shown: the arguments by their digest, and the tool's definition as it was served then. It may be used once, in
the process life that heard the grant, while both are still the same and it has not expired. Where anything of
that fails but time, the person is asked again: a crash between the grant and the first byte, too, because
nobody can tell for certain on which side of it the crash was.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from store.lifecycle import State
from store.records import Digest

Verdict: TypeAlias = Literal["grant", "deny"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, as the journal has it; `decision` is None while nobody has decided."""

    approval_id: str
    args_digest: Digest
    definition_digest: Digest | None
    expires_at: datetime
    decision: Verdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UseFacts:
    """What is true when an attempt that needs an approval could begin."""

    now: datetime
    newest: Request | None
    granted: str | None
    """The request that this process life heard a grant of, and has not used."""
    args_digest: Digest
    definition_digest: Digest | None
    """Of the definition that the provider serves now; None where tools are described by us alone."""


@dataclass(frozen=True, slots=True)
class Use:
    """The approval stands for this attempt, and for no other."""

    approval_id: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A new request is needed."""


@dataclass(frozen=True, slots=True)
class TooLate:
    """It was granted, and expired before it could be used."""


def look(facts: UseFacts) -> Use | Ask | TooLate:
    """Return whether the attempt may begin, as far as approvals are concerned."""
    newest = facts.newest
    if newest is None or newest.decision != "grant" or newest.approval_id != facts.granted:
        return Ask()
    if facts.now >= newest.expires_at:
        return TooLate()
    shown = (newest.args_digest, newest.definition_digest)
    if shown != (facts.args_digest, facts.definition_digest):
        return Ask()
    return Use(newest.approval_id)


RefusalCode: TypeAlias = Literal[
    "unknown_operation",
    "history_not_confirmed",
    "not_awaiting_approval",
    "stale_approval",
    "already_decided",
    "approval_expired",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFacts:
    """What is true when somebody decides about `approval_id`."""

    now: datetime
    confirmed: bool
    """Whether the plane has confirmed this history: before it, another life may have acted on it."""
    state: State | None
    """None where the operation is not known."""
    newest: Request | None
    approval_id: str


@dataclass(frozen=True, slots=True)
class Valid:
    """The decision counts."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It does not; `message` says why, and what to do."""

    code: RefusalCode
    message: str


def decide(facts: DecisionFacts) -> Valid | Refused:
    """Return whether a decision is in time, and about the newest request."""
    newest = facts.newest
    if facts.state is None:
        return Refused("unknown_operation", "there is no such operation in this journal: check the id")
    if facts.state is not State.AWAITING_APPROVAL or newest is None:
        return Refused(
            "not_awaiting_approval", f"the operation is {facts.state}, and waits for nobody's approval"
        )
    if not facts.confirmed:
        return Refused(
            "history_not_confirmed",
            "the plane has not confirmed this journal since the daemon's start, so another life may have "
            "acted on it: decide once the link is connected",
        )
    if newest.approval_id != facts.approval_id:
        return Refused(
            "stale_approval",
            f"the operation was asked about again, as {newest.approval_id}: look at what is asked now",
        )
    if newest.decision is not None:
        return Refused("already_decided", f"the request was decided already: {newest.decision}")
    if facts.now >= newest.expires_at:
        return Refused("approval_expired", "the request has expired, and the operation ends with it")
    return Valid()
