"""Resources and prompts of the providers, passed through for reading.

Part of `driver.gateway`; imports `driver.core`, `driver.providers.serving` and its siblings.

Lists are those of all providers, one after the other; a provider that has none, does not answer, or is late
with its tools adds nothing. A resource is asked for at the provider that lists it, or whose template it may
be of. Prompts are named like tools.
"""

from collections.abc import Callable, Mapping
from typing import Final

import anyio
import structlog
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from driver.core.contracts import ToolName
from driver.gateway.fitting import fits
from driver.gateway.limits import GatewayLimits
from driver.gateway.names import exposed
from driver.gateway.words import quoted
from driver.providers.protocol import Provider
from driver.providers.serving import Asking
from store.records import JsonObject, JsonValue

PAGES_MAX: Final = 32
"""Pages of one provider's list."""
ITEMS_MAX: Final = 4_096
"""Entries of one provider's list."""
NOT_FOUND: Final = -32_002
"""The code for a resource that is not there."""

log = structlog.stdlib.get_logger(__name__)


class Passing:
    """Asks the providers for what is read."""

    def __init__(
        self, providers: Mapping[str, Provider], limits: GatewayLimits, is_late: Callable[[str], bool]
    ) -> None:
        self._is_late = is_late
        self._providers = {name: found for name, found in providers.items() if isinstance(found, Asking)}
        self._limits = limits
        self._owners: dict[str, str] = {}
        """Which provider lists a resource, by its URI."""
        self._prompts: dict[str, ToolName] = {}

    async def resources(self) -> list[JsonValue]:
        """Return all resources that are listed."""
        found = await self._all("resources/list", "resources")
        self._owners = {
            str(item.get("uri")): name for name, items in reversed(found.items()) for item in items
        }
        return [item for items in found.values() for item in items]

    async def templates(self) -> list[JsonValue]:
        """Return all templates of resources that are listed."""
        found = await self._all("resources/templates/list", "resourceTemplates")
        return [item for items in found.values() for item in items]

    async def prompts(self) -> list[JsonValue]:
        """Return all prompts that are listed, under names of ours."""
        found = await self._all("prompts/list", "prompts")
        self._prompts = {
            exposed(tool): tool
            for name, items in found.items()
            for item in items
            for tool in (ToolName(name, str(item.get("name"))),)
        }
        return [
            {**item, "name": exposed(ToolName(name, str(item.get("name"))))}
            for name, items in found.items()
            for item in items
        ]

    async def read(self, uri: str) -> JsonObject:
        """Return a resource. Raises `MCPError` where no provider has it, with the last one's own word."""
        if uri not in self._owners:
            await self.resources()
        owner = self._owners.get(uri)
        order = [owner] if owner is not None else list(self._providers)
        error = MCPError(NOT_FOUND, f"no provider has a resource {quoted(uri)}")
        for name in order:
            try:
                return await self._ask(name, "resources/read", {"uri": uri})
            except MCPError as refused:
                error = refused
        raise error

    async def prompt(self, name: str, arguments: JsonObject) -> JsonObject:
        """Return a prompt, filled in. Raises `MCPError` where there is none of that name."""
        if name not in self._prompts:
            await self.prompts()
        tool = self._prompts.get(name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"there is no prompt {quoted(name)}")
        return await self._ask(tool.provider, "prompts/get", {"name": tool.tool, "arguments": arguments})

    async def _all(self, method: str, member: str) -> dict[str, list[JsonObject]]:
        found: dict[str, list[JsonObject]] = {}

        async def ask(name: str) -> None:
            items = await self._pages(name, method, member)
            fitting = [item for item in items if fits(method, member, item)]
            if len(fitting) < len(items):
                log.warning(
                    "entries_not_shown", provider=name, method=method, count=len(items) - len(fitting)
                )
            if fitting:
                found[name] = fitting

        with anyio.move_on_after(self._limits.list_s):
            async with anyio.create_task_group() as tasks:
                for name in self._providers:
                    if not self._is_late(name):
                        tasks.start_soon(ask, name)
        return {name: found[name] for name in sorted(found)}

    async def _pages(self, name: str, method: str, member: str) -> list[JsonObject]:
        items: list[JsonObject] = []
        cursor: JsonValue = None
        for _ in range(PAGES_MAX):
            params: JsonObject = {} if cursor is None else {"cursor": cursor}
            try:
                page = await self._ask(name, method, params)
            except MCPError:
                break  # it has none of these, or cannot be asked
            listed = page.get(member)
            items += [item for item in (listed if isinstance(listed, list) else ()) if isinstance(item, dict)]
            previous, cursor = cursor, page.get("nextCursor")
            if cursor is None or cursor == previous or len(items) >= ITEMS_MAX:
                break
        return items[:ITEMS_MAX]

    async def _ask(self, name: str, method: str, params: JsonObject) -> JsonObject:
        """Return a provider's result. Raises `MCPError` with its error, or where it cannot be asked."""
        reply = await self._providers[name].ask(method, params)
        if not isinstance(reply, dict):
            raise MCPError(NOT_FOUND, reply.message)
        result, error = reply.get("result"), reply.get("error")
        if isinstance(result, dict):
            return result
        code = error.get("code") if isinstance(error, dict) else None
        message = error.get("message") if isinstance(error, dict) else None
        raise MCPError(
            code if isinstance(code, int) else NOT_FOUND, str(message or f"provider {name} has no answer")
        )
