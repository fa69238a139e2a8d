"""Equal calls that were made before: the one whose answer nobody heard, and the one that another attached to.

Part of `driver.gateway`; imports `driver.core` and `store`. Both read the journal, in its thread.
"""

from collections import OrderedDict
from collections.abc import Container, Sequence
from datetime import datetime
from typing import Final

from store.lifecycle import Effect, State
from store.records import CommandId, Digest, OperationId, OperationRecord, Origin, RunId, moment
from store.view import View

DELIVERED: Final = "answered"
"""The word beside a command whose answer its agent has."""
UNHEARD: Final = "unheard"
"""The word that takes that back. The last of the two counts."""
NOTED_MAX: Final = 4_096
"""Answers that were delivered, and whose note may not be in the journal yet; and those that were not."""
RUNS_MAX: Final = 1_024
"""Runs of which all is in memory."""

_TELLS: Final = frozenset({State.SUCCEEDED, State.FAILED})


class Deliveries:
    """Which answers were delivered in this process life, and which were not.

    Of a run that began in it this is all there is to know, and the journal need not be asked at each call.
    """

    def __init__(self) -> None:
        self._noted: OrderedDict[CommandId, None] = OrderedDict()
        self._unheard: OrderedDict[tuple[RunId, Digest], tuple[CommandId, OperationId]] = OrderedDict()
        self._whole: OrderedDict[RunId, None] = OrderedDict()

    def __contains__(self, command_id: object) -> bool:
        """Whether an answer was delivered."""
        return command_id in self._noted

    def begin(self, run_id: RunId) -> None:
        """Take note that a run begins now: nothing of it is in the journal."""
        self._whole[run_id] = None
        if len(self._whole) > RUNS_MAX:
            self._whole.popitem(last=False)

    def knows(self, run_id: RunId) -> bool:
        """Whether everything about the run is in memory."""
        return run_id in self._whole

    def doubt(self, run_id: RunId) -> None:
        """Take note that the journal may learn more of a call of the run than its agent was told."""
        self._whole.pop(run_id, None)

    def answered(self, run_id: RunId, digest: Digest, command_id: CommandId, operation: OperationId) -> None:
        """Take note of a write that has its answer, which nobody has heard yet."""
        self._unheard[run_id, digest] = (command_id, operation)
        while len(self._unheard) > NOTED_MAX:
            (forgotten, _), _ = self._unheard.popitem(last=False)
            self._whole.pop(forgotten, None)

    def heard(self, command_id: CommandId, run_id: RunId, digest: Digest) -> bool:
        """Take note that an answer was delivered. Returns whether that is news."""
        if self._unheard.get((run_id, digest), (None, None))[0] == command_id:
            del self._unheard[run_id, digest]
        if command_id in self._noted:
            return False
        self._noted[command_id] = None
        if len(self._noted) > NOTED_MAX:
            self._noted.popitem(last=False)
        return True

    def take_back(self, call: OperationRecord, digest: Digest) -> None:
        """Take note that an answer that was delivered was not heard."""
        self._noted.pop(call.command_id, None)
        self.answered(call.run_id, digest, call.command_id, call.operation_id)

    def unheard(self, run_id: RunId, digest: Digest) -> OperationId | None:
        """Return the equal write whose answer nobody has heard, as far as memory goes."""
        found = self._unheard.get((run_id, digest))
        return None if found is None else found[1]


def undelivered(
    view: View, runs: Sequence[RunId], digests: Sequence[Digest], delivered: Container[CommandId]
) -> OperationRecord | None:
    """Return the newest equal write of the gateway, if it has an answer that nobody heard; else None.

    `delivered` are those whose note is not in the journal yet. Whatever guards by itself is the engine's.
    """
    newest = next(iter(_calls(view, runs, digests)), None)
    if newest is None or newest.guards or not is_undelivered(view, newest, delivered):
        return None
    return newest


def tells(call: OperationRecord) -> bool:
    """Whether a call came to an end that its agent would call again after, had it not heard of it.

    What was found out about one whose end nobody knew is such an end, too.
    """
    if call.state is State.UNKNOWN:
        return call.effect is Effect.OCCURRED
    return call.state in _TELLS and call.effect is not Effect.NONE


def is_undelivered(view: View, call: OperationRecord, delivered: Container[CommandId]) -> bool:
    """Whether a call has an answer that its agent would call again after, not having heard it."""
    if not tells(call) or call.command_id in delivered:
        return False
    return not _is_delivered(view, call.command_id)


def attached(
    view: View, runs: Sequence[RunId], digests: Sequence[Digest], asked_at: datetime
) -> OperationRecord | None:
    """Return the equal call that was in flight at `asked_at` or since: whoever asked then attached to it."""
    for call in _calls(view, runs, digests):
        if call.ended_at is None or moment(call.ended_at) >= asked_at:
            return call
    return None


def _calls(view: View, runs: Sequence[RunId], digests: Sequence[Digest]) -> list[OperationRecord]:
    """The equal calls of the gateway, newest first; of those that were pruned nothing is left to tell."""
    found = [
        twin
        for twin in view.twins(runs, *digests)
        if isinstance(twin, OperationRecord) and twin.origin is Origin.GATEWAY
    ]
    return sorted(found, key=lambda call: call.accepted_seq, reverse=True)


def _is_delivered(view: View, command_id: CommandId) -> bool:
    said = [delivery.answer for delivery in view.deliveries(command_id)]
    return next((word == DELIVERED for word in reversed(said) if word in (DELIVERED, UNHEARD)), False)
