"""One request of a client, as the gateway's parts see it, whatever it came over.

Part of `driver.gateway`; imports its siblings.
"""

from typing import Protocol

from driver.gateway.outcomes import Delivered
from driver.gateway.runs import Speaker
from store.records import CommandId


class Turn(Protocol):
    """Who asks, and what becomes of the answer."""

    @property
    def key(self) -> str:
        """Names the session of the client, as long as it has one."""
        ...

    @property
    def gone(self) -> bool:
        """Whether nobody is there any more: then nobody has cancelled anything either."""
        ...

    async def introduced(self) -> Speaker:
        """Return who asks, for which run, and what that continues. Raises `TooManyOpen`."""
        ...

    def answers(self, asked: CommandId, about: Delivered) -> None:
        """Take note of what the answer is about, to a call that came as `asked`."""
        ...
