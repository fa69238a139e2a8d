"""Gives an event its seq, its time, its bytes and its place in the chain; cuts it where it is too long.

Part of `store`; imports its own modules. Nothing is written here: `store.transaction` does that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from store import chain
from store.cuts import cut
from store.declared import EventData
from store.errors import ImpossibleEvent
from store.events import Draft
from store.head import Head, Ledger
from store.keys import DigestKey
from store.projection import Fact
from store.records import (
    Chain,
    CommandId,
    Digest,
    OperationId,
    Origin,
    RunId,
    StoredEvent,
    Timestamp,
    timestamp,
)
from store.values import light
from store.wire import MEMBERS, render, with_members

SEAL_BYTES: Final = len(chain.seal(b"{}", Chain("0" * chain.CHAIN_DIGITS))) - len(b"{}")
"""What `chain`, the last member, adds to an event's bytes."""


@light
@dataclass(frozen=True, slots=True)
class Address:
    """To whom an event belongs."""

    run_id: RunId | None
    command_id: CommandId | None
    operation_id: OperationId | None
    origin: Origin

    @classmethod
    def of(cls, draft: Draft) -> "Address":
        """Return the address that a draft names."""
        return cls(draft.run_id, draft.command_id, draft.operation_id, draft.origin)


@light
@dataclass(frozen=True, slots=True)
class Sealed:
    """An event that is ready to be written."""

    fact: Fact
    event: StoredEvent
    payload: bytes | None
    redact: tuple[str, ...]


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What all units of one commit are recorded under. Made by `terms`."""

    now: datetime
    """When the commit began, aware."""
    at: Timestamp
    """The same time as it is recorded."""
    has_room: Callable[[], bool]
    """Whether new work fits, and a result that is cut may be kept beside its event."""
    may_settle: Callable[[], bool]
    """Whether what settles old work does, though new work may not."""
    frame_bytes_max: int


def terms(
    now: datetime, *, has_room: Callable[[], bool], may_settle: Callable[[], bool], frame_bytes_max: int
) -> Terms:
    """Return the terms of a commit that begins now."""
    return Terms(
        now=now,
        at=timestamp(now),
        has_room=has_room,
        may_settle=may_settle,
        frame_bytes_max=frame_bytes_max,
    )


def seal(
    ledger: Ledger, terms: Terms, draft: Draft, data: EventData, address: Address, *, terminal: bool
) -> Sealed:
    """Return the next event of the journal. Raises `ImpossibleEvent` where its kind has no payload."""
    head = ledger.head
    payload = draft.payload
    if payload is not None:
        data = _with_payload(ledger, data, payload, draft)
    body = _rendered(head, terms, draft, data, address, terminal=terminal)
    bytes_max = min(terms.frame_bytes_max, head.plane_frame_bytes_max) - SEAL_BYTES
    if len(body) > bytes_max:
        keeps = payload is None and terms.has_room()
        data, result = cut(
            data,
            excess=lambda short: (
                len(_rendered(head, terms, draft, short, address, terminal=terminal)) - bytes_max
            ),
            digest=partial(_digest, ledger, draft) if keeps else None,
        )
        payload = result or payload
        body = _rendered(head, terms, draft, data, address, terminal=terminal)
    fact, event = _chained(head, terms, data, address, body, terminal=terminal)
    return Sealed(fact, event, payload, draft.redact)


def _chained(
    head: Head, terms: Terms, data: EventData, address: Address, body: bytes, *, terminal: bool
) -> tuple[Fact, StoredEvent]:
    """Return the event with its place in the chain: as the projections see it, and as it is kept and sent."""
    digest = chain.digest(body)
    link = chain.extend(head.chain, digest)
    seq, at, kind = head.last_seq + 1, terms.at, data.KIND
    event = StoredEvent(
        seq=seq,
        kind=kind,
        at=at,
        run_id=address.run_id,
        command_id=address.command_id,
        operation_id=address.operation_id,
        terminal=terminal,
        digest=digest,
        chain=link,
        body=chain.seal(body, link),
        data=data,
    )
    fact = Fact(
        seq=seq,
        at=at,
        data=data,
        run_id=address.run_id,
        command_id=address.command_id,
        operation_id=address.operation_id,
        origin=address.origin,
        base=head.base,
    )
    return fact, event


def _rendered(
    head: Head, terms: Terms, draft: Draft, data: EventData, address: Address, *, terminal: bool
) -> bytes:
    return render(
        data,
        journal_id=head.journal_id,
        seq=head.last_seq + 1 - head.base,
        at=terms.at,
        run_id=address.run_id,
        command_id=address.command_id,
        operation_id=address.operation_id,
        origin=address.origin,
        terminal=terminal,
        best_effort=draft.best_effort,
    )


def _with_payload(ledger: Ledger, data: EventData, payload: bytes, draft: Draft) -> EventData:
    """Name the payload's digest in the event."""
    if "payload_digest" not in MEMBERS[data.KIND]:
        raise ImpossibleEvent(data.KIND, "events of this kind carry no payload")
    return with_members(data, payload_digest=_digest(ledger, draft, payload))


def _digest(ledger: Ledger, draft: Draft, payload: bytes) -> Digest:
    """Return the payload's digest: a secret could be guessed from a plain one."""
    return key_of(ledger).digest(payload) if draft.redact else chain.digest(payload)


def key_of(ledger: Ledger) -> DigestKey:
    """Return the key of what is withheld."""
    assert ledger.key is not None, "whoever records has opened the folder with its key"
    return ledger.key
