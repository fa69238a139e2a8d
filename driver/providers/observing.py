"""What a provider can do whose contracts name reading commands: look at the world around an attempt.

Part of `driver.providers`; imports `driver.core.attempts`.
"""

from typing import Protocol, runtime_checkable

from driver.core.attempts import ToolCall
from driver.providers.protocol import Provider


@runtime_checkable
class Observing(Provider, Protocol):
    """A provider some of whose tools declare `evidence`."""

    def observes(self, tool: str) -> bool:
        """Whether the tool declares a reading command. Costs nothing."""
        ...

    async def observe(self, call: ToolCall) -> str | None:
        """Run the tool's reading command for `call`, and return what it printed; None where it could not.

        Bounded in time and size, whatever the command does. Cancelled, it kills the command.
        """
        ...
