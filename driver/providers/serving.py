"""What a provider can do whose tools others may be offered, and who wants to hear what happens meanwhile.

Part of `driver.providers`; imports `driver.core` and the store's values.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol, runtime_checkable

from driver.core.attempts import NotSent
from driver.core.expressions import Expression
from driver.core.templates import MARK
from driver.providers.protocol import Provider
from store.records import JsonObject, JsonValue, OperationId


@runtime_checkable
class Serving(Provider, Protocol):
    """A provider that can say which tools it has."""

    async def definitions(self) -> tuple[JsonObject, ...] | NotSent:
        """Return its tools as MCP describes them, or why nobody can know them now.

        Starts and connects what it needs, and takes a bounded time.
        """
        ...


@runtime_checkable
class Asking(Provider, Protocol):
    """A provider that answers MCP's reads: resources and prompts."""

    async def ask(self, method: str, params: JsonObject) -> JsonObject | NotSent:
        """Return the response to a request that changes nothing: its `result`, or its `error`.

        Starts and connects what it needs, and takes a bounded time. Not for tools: they are operations.
        """
        ...


class Audience(Protocol):
    """Whoever wants to hear what a provider says unasked. Its methods must neither block nor raise."""

    def listens(self, operation_id: OperationId) -> bool:
        """Whether the progress of an operation is of interest: only then is the provider asked for it."""
        ...

    def progressed(self, operation_id: OperationId, said: JsonObject) -> None:
        """Take what the provider said of how far it is: `progress`, and perhaps `total` and `message`."""
        ...

    def changed(self, provider: str) -> None:
        """Take note that the provider may list other tools, resources or prompts by now."""
        ...


class Nobody:
    """An `Audience` that is not there."""

    def listens(self, operation_id: OperationId) -> bool:
        """See `Audience.listens`."""
        del operation_id
        return False

    def progressed(self, operation_id: OperationId, said: JsonObject) -> None:
        """See `Audience.progressed`."""

    def changed(self, provider: str) -> None:
        """See `Audience.changed`."""


NOBODY: Final = Nobody()

_TOP: Final = "arguments"


def described(name: str, sources: Iterable[JsonValue]) -> JsonObject:
    """Return the description of a tool that our own configuration declares: what calls may fill in.

    `sources` are its templates. Which values they take nobody declares, so any is allowed.
    """
    arguments = sorted({found for source in sources for found in _arguments(source)})
    properties: JsonObject = {argument: {} for argument in arguments}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def _arguments(source: JsonValue) -> Iterator[str]:
    """Yield the names of the arguments that the expressions in a template look at."""
    if isinstance(source, str) and source.startswith(MARK):
        yield from Expression(source.removeprefix(MARK)).members(_TOP)
    elif isinstance(source, list):
        for item in source:
            yield from _arguments(item)
    elif isinstance(source, Mapping):
        for item in source.values():
            yield from _arguments(item)
