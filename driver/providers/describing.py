"""What a provider can do whose tools are described by somebody else: tell how one is described now.

Part of `driver.providers`; imports `driver.core.attempts` and the store's values. A provider whose tools are
described by our own configuration needs none of this: what they are changes at a restart only.
"""

from typing import Protocol, runtime_checkable

from driver.core.attempts import NotSent
from driver.providers.protocol import Provider
from store.records import Digest


@runtime_checkable
class Describing(Provider, Protocol):
    """A provider that lists its tools."""

    def reads(self, tool: str) -> bool:
        """Whether the tool is known now to be described as one that only reads, by somebody we are to trust.

        Asks nobody: False where the provider is not connected, or its list is out of date.
        """
        ...

    async def definition(self, tool: str) -> Digest | NotSent:
        """Return the digest of the tool's whole definition as it is served now, or why there is none.

        Starts and connects what it needs, and takes a bounded time; a list that is older than a moment is
        asked for again.
        """
        ...
