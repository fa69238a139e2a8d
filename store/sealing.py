"""Gives an event its seq, its time, its bytes and its place in the chain; cuts it where it is too long.

Part of `store`; imports its own modules. Nothing is written here: `store.transaction` does that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from store import chain
from store.cuts import cut
from store.errors import ImpossibleEvent
from store.events import Draft, EventData
from store.head import Ledger
from store.keys import DigestKey
from store.projection import Fact
from store.records import Chain, CommandId, Digest, OperationId, Origin, RunId, StoredEvent, Timestamp
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
class Seal:
    """What an event is sealed with. `has_room`: whether a result that is cut may be kept beside it."""

    ledger: Ledger
    at: Timestamp
    frame_bytes_max: int
    has_room: Callable[[], bool]

    def event(self, draft: Draft, data: EventData, address: Address, *, terminal: bool) -> Sealed:
        """Return the next event of the journal. Raises `ImpossibleEvent` where its kind has no payload."""
        head = self.ledger.head
        seq = head.last_seq + 1

        def rendered(data: EventData) -> bytes:
            return render(
                data,
                journal_id=head.journal_id,
                seq=seq - head.base,
                at=self.at,
                run_id=address.run_id,
                command_id=address.command_id,
                operation_id=address.operation_id,
                origin=address.origin,
                terminal=terminal,
                best_effort=draft.best_effort,
            )

        payload = draft.payload
        data = self._with_payload(data, payload, draft)
        body = rendered(data)
        body_bytes_max = min(self.frame_bytes_max, head.plane_frame_bytes_max) - SEAL_BYTES
        if len(body) > body_bytes_max:
            keeps = payload is None and self.has_room()
            data, result = cut(
                data,
                excess=lambda shorter: len(rendered(shorter)) - body_bytes_max,
                digest=partial(self._digest, draft=draft) if keeps else None,
            )
            payload = result or payload
            body = rendered(data)
        digest = chain.digest(body)
        link = chain.extend(head.chain, digest)
        event = StoredEvent(
            seq=seq,
            kind=data.KIND,
            at=self.at,
            run_id=address.run_id,
            command_id=address.command_id,
            operation_id=address.operation_id,
            terminal=terminal,
            digest=digest,
            chain=link,
            body=chain.seal(body, link),
            data=data,
        )
        return Sealed(Fact.of(event, data, address.origin, head.base), event, payload, draft.redact)

    def _digest(self, payload: bytes, draft: Draft) -> Digest:
        """Return the payload's digest: a secret could be guessed from a plain one."""
        return key_of(self.ledger).digest(payload) if draft.redact else chain.digest(payload)

    def _with_payload(self, data: EventData, payload: bytes | None, draft: Draft) -> EventData:
        """Name the payload's digest in the event."""
        if payload is None:
            return data
        if "payload_digest" not in MEMBERS[data.KIND]:
            raise ImpossibleEvent(data.KIND, "events of this kind carry no payload")
        return with_members(data, payload_digest=self._digest(payload, draft))


def key_of(ledger: Ledger) -> DigestKey:
    """Return the key of what is withheld."""
    assert ledger.key is not None, "whoever records has opened the folder with its key"
    return ledger.key
