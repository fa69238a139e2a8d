"""Waits until the plane holds an intent, where the configuration says that it must (`control.intent_ack`).

Part of `driver.engine`; imports `store.events`. Definition: docs/protocol.md, section 6.

An intent is held once an acknowledgement reaches its `seq`: the plane's `ack`, or its word in a later
`welcome`. An acknowledgement passes over what the plane refused, so a refused intent is never held, whatever
is acknowledged after it. Both may be heard of before anybody waits: the event is sent as soon as it is
committed.
"""

from dataclasses import dataclass, field
from typing import Final

import anyio

from store.events import OperationNotExecuted

REFUSED_MAX: Final = 4_096
"""Refused events that are remembered, for an intent that nobody waits for yet: some milliseconds' worth."""


@dataclass(slots=True)
class _Wait:
    held: bool = False
    over: anyio.Event = field(default_factory=anyio.Event)


class Intents:
    """The intents of this process life that the plane must hold before they are acted on."""

    def __init__(self) -> None:
        self._acked = 0
        self._refused: dict[int, None] = {}
        self._waiting: dict[int, _Wait] = {}

    async def held(self, seq: int) -> bool:
        """Return whether the plane holds the intent `seq`, as soon as that can be told.

        False once it was refused, or once `interrupt` was called; put a bound around it. Waited for once.
        """
        if seq in self._refused:
            return False
        if seq <= self._acked:
            return True
        wait = self._waiting[seq] = _Wait()
        try:
            await wait.over.wait()
        finally:
            del self._waiting[seq]
        return wait.held

    def acknowledged(self, seq: int) -> None:
        """Note the plane's watermark. It may go back, where the plane has lost something."""
        self._acked = seq
        for each in [waited for waited in self._waiting if waited <= seq]:
            self._end(each, held=True)

    def refused(self, seq: int) -> None:
        """Note that an event was refused, or could not be sent: it will never be held."""
        self._refused[seq] = None
        if len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]
        self._end(seq, held=False)

    def interrupt(self) -> None:
        """Let everybody who waits look at the posture: nothing is acted on any more."""
        for each in list(self._waiting):
            self._end(each, held=False)

    def begin_history(self) -> None:
        """Forget what the plane holds: another history begins at seq 1."""
        self.interrupt()
        self._acked = 0
        self._refused.clear()

    def _end(self, seq: int, *, held: bool) -> None:
        wait = self._waiting.get(seq)
        if wait is not None and not wait.over.is_set():
            wait.held = held
            wait.over.set()


def unheld(waited_s: float) -> OperationNotExecuted:
    """Return what an attempt ends with whose intent the plane did not acknowledge in time."""
    message = (
        f"the plane did not acknowledge the intent within {waited_s:g} s (control.intent_ack_timeout_s), "
        "so nothing was sent"
    )
    return OperationNotExecuted(reason="intent_not_acknowledged", message=message)
