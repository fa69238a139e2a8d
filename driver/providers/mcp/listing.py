"""The tools that a server lists, as the calls to it need them: asked for, bounded, and held against a call.

Part of `driver.providers.mcp`; imports its `calls`, `exchange`, `jsonrpc`, `settings` and `tools`, and
`driver.core`.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import anyio
import structlog

from driver.core.attempts import HttpStatus, NotSent, Silence, ToolCall
from driver.providers.mcp.calls import Dialect, arguments_of
from driver.providers.mcp.exchange import Reply
from driver.providers.mcp.jsonrpc import write_message
from driver.providers.mcp.settings import McpSettings
from driver.providers.mcp.tools import ServedTool, read_tools
from store.records import JsonObject, JsonValue

LIST_S: Final = 10.0
"""For each page of a tool list."""
LIST_PAGES_MAX: Final = 100
"""Pages of a tool list; a paginator that never ends is cut here, or at `answer_max_bytes` for all of them."""
FRESH_S: Final = 1.0
"""A tool list of this age is not asked for again only because a call does not fit it."""
TOOLS_NAMED_MAX: Final = 20
"""Tools that the error about an unknown one names."""

Ask: TypeAlias = Callable[[Dialect, str, JsonObject, float], Awaitable[Reply | None]]
"""Sends a request of our own; returns its reply, or None where none came within so many seconds."""

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class NoList(Exception):
    """The server did not answer when it was asked for its tools."""

    def __init__(self, reply: HttpStatus | NotSent | Silence | None) -> None:
        super().__init__(f"no tool list within {LIST_S:g} s" if reply is None else f"no tool list: {reply}")


class Listing:
    """The newest list of one connection."""

    def __init__(self, settings: McpSettings, ask: Ask) -> None:
        self._settings = settings
        self._ask = ask
        self._tools: dict[str, ServedTool] = {}
        self._stale = False
        self._listed_at = -math.inf

    @property
    def tools(self) -> tuple[ServedTool, ...]:
        """The tools."""
        return tuple(self._tools.values())

    def tool(self, name: str) -> ServedTool | None:
        """The tool of that name."""
        return self._tools.get(name)

    @property
    def stale(self) -> bool:
        """True where the server has said that its list is another one now."""
        return self._stale

    @property
    def fresh(self) -> bool:
        """True where asking for the list again would be too much."""
        return not self._stale and anyio.current_time() - self._listed_at < FRESH_S

    def has_changed(self) -> None:
        """Take note that the server says so."""
        self._stale = True

    def objection(self, call: ToolCall) -> NotSent | None:
        """Return why the list rules `call` out."""
        arguments = arguments_of(call, self._settings.key)
        if isinstance(arguments, NotSent):
            return arguments
        tool = self._tools.get(call.tool)
        if tool is None:
            return self.unknown(call.tool)
        problem = tool.input_schema.problem(arguments)
        if problem is None:
            return None
        return NotSent(
            reason="invalid_arguments", message=f"the arguments of {call.tool} do not fit: {problem}"
        )

    def unknown(self, name: str) -> NotSent:
        """Return what a call of a tool is told that the list does not have."""
        names = sorted(self._tools)
        known = ", ".join(names[:TOOLS_NAMED_MAX]) or "none"
        more = f" and {len(names) - TOOLS_NAMED_MAX} more" if len(names) > TOOLS_NAMED_MAX else ""
        message = f"provider {self._settings.name} has no tool {name!r}; its tools are: {known}{more}"
        return NotSent(reason="unknown_tool", message=message)

    async def load(self, dialect: Dialect) -> None:
        """Ask for the list. Raises `NoList` where the server does not answer; the old one stays then."""
        self._stale = False
        definitions = await self._pages(dialect)
        name, modern = self._settings.name, dialect.modern
        self._tools = read_tools(definitions, provider=name, modern=modern, known=self._tools)
        self._listed_at = anyio.current_time()

    async def _pages(self, dialect: Dialect) -> list[JsonValue]:
        definitions: list[JsonValue] = []
        cursor: JsonValue = None
        size = 0
        for _ in range(LIST_PAGES_MAX):
            params: JsonObject = {} if cursor is None else {"cursor": cursor}
            reply = await self._ask(dialect, "tools/list", params, LIST_S)
            if not isinstance(reply, dict):
                raise NoList(reply)
            page = reply.get("result")
            found = page.get("tools") if isinstance(page, dict) else None
            if not isinstance(page, dict) or not isinstance(found, list):
                log.warning("server_lists_no_tools", provider=self._settings.name)
                break
            size += len(write_message(page))
            bytes_max = self._settings.answer_max_bytes
            if size > bytes_max:
                log.warning("server_tools_cut", provider=self._settings.name, bytes_max=bytes_max)
                break
            definitions += found
            previous, cursor = cursor, page.get("nextCursor")
            if cursor is None or cursor == previous:
                break
        return definitions
