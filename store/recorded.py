"""Whether every event is still what was recorded: its chain, its row, and what it keeps elsewhere.

Part of `store`; imports its own modules. Used by `store.checks`.
"""

from collections.abc import Mapping
from typing import Any, Final

from store import chain
from store.events import OperationReconciled, SupervisorVerdict
from store.findings import Paged
from store.histories import Histories
from store.inspection import broken_link
from store.lifecycle import Source
from store.located import Row
from store.records import Chain
from store.wire import frame_of


class EventsCheck(Paged):
    """Every event is there, is what it was, and follows from the one before it.

    A terminal one is its command's receipt; what it keeps outside the chain is there.
    """

    name = "chain"
    statement = "verify_events"

    def __init__(self) -> None:
        super().__init__()
        self._link: Chain | None = None
        self._histories: Histories | None = None

    def look(self, row: Row) -> None:
        """Look at one event."""
        (
            seq, kind, at, run_id, command_id, operation_id, terminal, digest, value, body, receipt_seq,
            payload, gap_first, gap_chain, *erased,
        ) = row  # fmt: skip
        if self._histories is None:
            self._histories = Histories(self.view)
        if seq != self.after + 1:
            self._link = self._over_gap(gap_first, gap_chain)
        if self._histories.begins_with(seq):
            self._link = self._into_history(seq, self._histories)
        if problem := broken_link(self._link, digest=digest, value=value, body=body):
            self.found(f"event {seq}", problem)
        self._link = value
        if terminal and receipt_seq != seq and not self._histories.is_later(receipt_seq, seq):
            self.found(
                f"event {seq}", f"its command {command_id} has the receipt {receipt_seq}, not this one"
            )
        if body is None and (body := self._remains(seq, *erased, alone=command_id is None)) is None:
            return
        told = self._histories.on_wire(seq)
        row_says = (*told, kind, at, run_id, command_id, operation_id, bool(terminal))
        self._look_at_content(seq, body, row_says, has_payload=payload is not None)

    def _into_history(self, seq: int, histories: "Histories") -> Chain:
        """Return the chain before a history's first event, once the history before it ended as it should."""
        ended = histories.ended_before(seq)
        if ended is not None and self._link not in (None, ended.chain):
            self.found(f"event {seq - 1}", f"its history {ended.journal_id} should end with another chain")
        return chain.origin(histories.journal_id(seq))

    def _over_gap(self, first: int | None, value: Chain | None) -> Chain | None:
        """Return the chain at the end of the gap before an event, where that begins after the last one."""
        if first == self.after + 1:
            return value
        self.found(f"event {self.after + 1}", "it is missing")
        return None

    def _remains(
        self, seq: int, body: bytes | None, digest: str | None, done: int | None, *, alone: bool
    ) -> bytes | None:
        """Return what is left of an event that was erased: with its command, unless it has none."""
        if body is None or (done != 1 and not alone):
            self.found(f"event {seq}", "its content is gone")
            return None
        if chain.digest(body) != digest:
            self.found(f"event {seq}", "what is left of it does not match its digest")
        return body

    def _look_at_content(
        self, seq: int, body: bytes, row_says: tuple[object, ...], *, has_payload: bool
    ) -> None:
        try:
            frame = frame_of(body)
        except (ValueError, RecursionError):
            self.found(f"event {seq}", "its content is not a JSON object")
            return
        event_says = tuple(map(frame.get, _ENVELOPE))
        if event_says != row_says:
            for name, says, said in zip(_ENVELOPE, event_says, row_says, strict=True):
                if says != said:
                    self.found(f"event {seq}", f"its {name} is {says!r}, and its row says {said!r}")
        if frame["best_effort"] is not _is_inference(frame):
            self.found(f"event {seq}", "it is marked as best-effort, or not, against what it says")
        if has_payload or frame["data"].get("payload_digest") is None:
            return
        moved = self._histories is not None and self._histories.base_of(seq) < self.view.base
        if not moved and frame["data"].get("requeue_of") is None:
            self.found(f"event {seq}", "what it keeps outside the chain is missing")

    def end(self) -> None:
        """Look where the chain ends."""
        if self.after != self.view.last_seq or (self._link is not None and self._link != self.view.chain):
            self.found("journal", f"its chain ends at event {self.after}, and should at {self.view.last_seq}")

    def total(self) -> int:
        """Return the newest seq."""
        return self.view.last_seq


_ENVELOPE: Final = ("journal_id", "seq", "kind", "at", "run_id", "command_id", "operation_id", "terminal")


def _is_inference(frame: Mapping[str, Any]) -> bool:
    """Whether only a model's inference stands behind an event (I8)."""
    kind: object = frame["kind"]
    if kind != OperationReconciled.KIND:
        return kind == SupervisorVerdict.KIND
    return str(frame["data"].get("actor")).startswith(Source.SUPERVISOR.value)
