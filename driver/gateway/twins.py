"""Equal calls that were made before: the one whose answer nobody heard, and the one that another attached to.

Part of `driver.gateway`; imports `driver.core` and `store`. Both read the journal, in its thread.
"""

from collections.abc import Container, Sequence
from datetime import datetime
from typing import Final

from store.lifecycle import State
from store.records import CommandId, Digest, OperationRecord, Origin, RunId, moment
from store.view import View

DELIVERED: Final = "answered"
"""The word beside a command whose answer its agent has."""

_TELLS: Final = frozenset({State.SUCCEEDED, State.FAILED})


def undelivered(
    view: View, runs: Sequence[RunId], digests: Sequence[Digest], delivered: Container[CommandId]
) -> OperationRecord | None:
    """Return the newest equal write of the gateway, if it has an answer that nobody heard; else None.

    `delivered` are those whose note is not in the journal yet. Whatever guards by itself is the engine's.
    """
    newest = next(iter(_calls(view, runs, digests)), None)
    if newest is None or newest.guards or newest.state not in _TELLS:
        return None
    if newest.command_id in delivered or _is_delivered(view, newest.command_id):
        return None
    return newest


def attached(
    view: View, runs: Sequence[RunId], digests: Sequence[Digest], asked_at: datetime
) -> OperationRecord | None:
    """Return the equal call that was running at `asked_at`: whoever asked then was attached to it."""
    for call in _calls(view, runs, digests):
        began = moment(call.accepted_at) <= asked_at
        if began and (call.ended_at is None or moment(call.ended_at) >= asked_at):
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
    return any(delivery.answer == DELIVERED for delivery in view.deliveries(command_id))
