"""Where the engine tells a tracer what it does, and asks it for the trace context that a call goes out with.

Part of `driver.engine`; imports `driver.core` and `store`. The tracer is `driver.engine.tracing`, which
the daemon loads only where a provider of OpenTelemetry is set up: without one, this is all there is.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from driver.core.frames import CommandFrame, InvalidCommand
from store.records import OperationId, StoredEvent


class Traces(Protocol):
    """What the engine knows of a tracer. Nothing here blocks or raises."""

    def arrived(self, frames: Sequence[CommandFrame | InvalidCommand]) -> None:
        """Note that commands have arrived; whether they are accepted is told by the journal."""

    def answered(self, frames: Sequence[CommandFrame | InvalidCommand]) -> None:
        """Note that these commands are decided about."""

    def recall(self, operation_id: OperationId, given: str | None) -> None:
        """Note the `traceparent` of a command that an earlier process life accepted, and that goes on now."""

    def carrier(self, operation_id: OperationId, given: str | None) -> str | None:
        """Return the `traceparent` of what the operation does now; `given` is the one of its command."""

    def committed(self, seconds: float, units: int) -> None:
        """Note a commit; what it recorded is told next. A watch of the journal."""

    def note(self, events: Sequence[StoredEvent]) -> None:
        """Follow what was recorded. A listener of the journal."""

    def close(self) -> None:
        """End what is open."""


class Untraced:
    """No tracer: a call goes out with its command's own trace context."""

    def arrived(self, frames: Sequence[CommandFrame | InvalidCommand]) -> None:
        """See `Traces.arrived`."""

    def answered(self, frames: Sequence[CommandFrame | InvalidCommand]) -> None:
        """See `Traces.answered`."""

    def recall(self, operation_id: OperationId, given: str | None) -> None:
        """See `Traces.recall`."""

    def carrier(self, operation_id: OperationId, given: str | None) -> str | None:
        """See `Traces.carrier`."""
        del operation_id
        return given

    def committed(self, seconds: float, units: int) -> None:
        """See `Traces.committed`."""

    def note(self, events: Sequence[StoredEvent]) -> None:
        """See `Traces.note`."""

    def close(self) -> None:
        """See `Traces.close`."""


UNTRACED: Final[Traces] = Untraced()
