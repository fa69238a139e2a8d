"""Calls that wait for their answers, and what they hear meanwhile: from the journal, and from the provider.

Part of `driver.gateway`; imports `driver.core`, `driver.providers.serving` (its protocol) and `store`.

A call is over when the journal has its receipt, committed; nothing that a provider says ends it. It stays
here until then, whoever still waits for it: so an equal call finds it.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import anyio

from driver.core.attempts import Answered, HttpStatus, Report
from driver.gateway.outcomes import Ended, Outcome
from store.events import ApprovalDecided, ApprovalRequested, OperationStarted
from store.records import (
    CommandId,
    Digest,
    JsonObject,
    OperationId,
    RunId,
    StoredEvent,
    Timestamp,
)
from store.wire import frame_of

Watch: TypeAlias = Callable[[JsonObject], None]
"""Told what a provider says of its progress."""


class Wait:
    """One call on its way to its end."""

    def __init__(
        self, *, command_id: CommandId, operation_id: OperationId, run_id: RunId, tool: str, digest: Digest
    ) -> None:
        self.command_id: Final = command_id
        self.operation_id: Final = operation_id
        self.run_id: Final = run_id
        self.tool: Final = tool
        self.digest: Final = digest
        self.outcome: Outcome | None = None
        self.report: Report | None = None
        """The newest answer as it came; it counts once the journal has said how the call ended."""
        self.approval_id: str | None = None
        self.expires_at: Timestamp | None = None
        self.decided: JsonObject | None = None
        self.deadline_at: Timestamp | None = None
        """When the attempt that runs is over at the latest."""
        self.watches: list[Watch] = []
        self.askers = 0
        self._news = anyio.Event()

    @property
    def over(self) -> bool:
        """Whether the outcome is there."""
        return self.outcome is not None

    def end(self, outcome: Outcome) -> None:
        """Let everybody who waits go on; the first outcome counts."""
        if self.outcome is None:
            self.outcome = outcome
            self.tell()

    async def news(self) -> None:
        """Wait until something about it has changed."""
        await self._news.wait()

    def tell(self) -> None:
        """Wake everybody who waits."""
        self._news.set()
        self._news = anyio.Event()


class Waits:
    """All calls that wait. Implements `driver.providers.serving.Audience`, but for what lists there are."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._by_command: dict[CommandId, Wait] = {}
        self._by_operation: dict[OperationId, Wait] = {}
        self._by_call: dict[tuple[RunId, Digest], Wait] = {}
        self.on_end: Callable[[Wait], None] = _ignore
        """Called when one has its outcome, before an equal call can be taken for another one."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._by_command)

    def find(self, command_id: CommandId) -> Wait | None:
        """Return the call of that command, if it waits."""
        return self._by_command.get(command_id)

    def equal(self, run_id: RunId, digest: Digest) -> Wait | None:
        """Return the call with these arguments in this run, if one waits."""
        return self._by_call.get((run_id, digest))

    def add(self, wait: Wait) -> None:
        """Let it hear from now on."""
        self._by_command[wait.command_id] = wait
        self._by_operation[wait.operation_id] = wait
        self._by_call.setdefault((wait.run_id, wait.digest), wait)

    def end(self, wait: Wait, outcome: Outcome) -> None:
        """Give it its outcome, and forget it."""
        self._by_command.pop(wait.command_id, None)
        self._by_operation.pop(wait.operation_id, None)
        if self._by_call.get((wait.run_id, wait.digest)) is wait:
            del self._by_call[wait.run_id, wait.digest]
        wait.end(outcome)
        self.on_end(wait)

    # ------------------------------------------------------------ what they hear

    def hear(self, events: Sequence[StoredEvent]) -> None:
        """Take newly committed events. A listener of the journal."""
        if not self._by_command:
            return
        for event in events:
            wait = None if event.command_id is None else self._by_command.get(event.command_id)
            if wait is not None and event.body is not None and event.requeue_of is None:
                self._take(wait, event, event.body)

    def answered(self, operation_id: OperationId, report: Report) -> None:
        """Keep an answer as it came, until the journal says how its call ended."""
        wait = self._by_operation.get(operation_id)
        if wait is not None:
            wait.report = report

    def listens(self, operation_id: OperationId) -> bool:
        """See `Audience.listens`."""
        wait = self._by_operation.get(operation_id)
        return wait is not None and bool(wait.watches)

    def progressed(self, operation_id: OperationId, said: JsonObject) -> None:
        """See `Audience.progressed`."""
        wait = self._by_operation.get(operation_id)
        for watch in () if wait is None else tuple(wait.watches):
            watch(said)

    def changed(self, provider: str) -> None:
        """See `Audience.changed`."""
        self._changed(provider)

    def _take(self, wait: Wait, event: StoredEvent, body: bytes) -> None:
        if event.terminal:
            self.end(wait, ended(wait, event, body))
            return
        match event.data:
            case ApprovalRequested(approval_id=approval_id, expires_at=expires_at):
                wait.approval_id, wait.expires_at = approval_id, expires_at
                wait.decided = wait.deadline_at = None
            case ApprovalDecided():
                wait.approval_id, wait.decided = None, data_of(body)
            case OperationStarted(deadline_at=deadline_at):
                wait.deadline_at = deadline_at
                return  # no news for whoever waits: the provider is to be called first
            case _:
                return
        wait.tell()


def _ignore(wait: Wait) -> None:
    """Where nobody keeps account of what has ended."""
    del wait


def ended(wait: Wait, event: StoredEvent, body: bytes, *, replayed: bool = False) -> Ended:
    """Return what a receipt says of a call."""
    data = data_of(body)
    # a success that is an earlier attempt's has another answer than the one heard last
    own = data.get("attempt") is None and isinstance(wait.report, Answered | HttpStatus)
    return Ended(
        operation_id=wait.operation_id,
        kind=event.kind,
        data=data,
        report=wait.report if own else None,
        decided=wait.decided,
        replayed=replayed,
    )


def data_of(body: bytes) -> JsonObject:
    """Return the `data` of an event."""
    data: JsonObject = frame_of(body)["data"]
    return data
