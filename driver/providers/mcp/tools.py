"""The tool list that a server serves.

Part of `driver.providers.mcp`; imports its `schema`, and the SDK's rules for headers that repeat arguments.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog
from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map

from driver.providers.mcp.schema import Schema
from store.records import JsonObject, JsonValue

TOOLS_MAX: Final = 4_096
"""Tools that are kept of one list; what is beyond them is unknown to us."""

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTool:
    """One tool as its server describes it. `definition` is all of that, as it came."""

    name: str
    definition: JsonObject
    input_schema: Schema = field(repr=False, compare=False)
    output_schema: Schema | None = field(repr=False, compare=False)
    headers: Mapping[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])

    @property
    def read_only_hint(self) -> bool:
        """Whether the server claims that the tool only reads: a hint, and never proof."""
        annotations = self.definition.get("annotations")
        return isinstance(annotations, dict) and annotations.get("readOnlyHint") is True

    @property
    def only_as_task(self) -> bool:
        """Whether the server refuses calls that do not ask for a task (protocol 2025-11-25)."""
        execution = self.definition.get("execution")
        return isinstance(execution, dict) and execution.get("taskSupport") == "required"

    def output_invalid(self, result: JsonObject) -> bool:
        """Whether a result breaks the output schema that the tool promised."""
        if self.output_schema is None:
            return False
        content = result.get("structuredContent")
        return content is None or self.output_schema.problem(content) is not None

    def argument_headers(self, arguments: JsonObject) -> dict[str, str]:
        """Return the HTTP headers that repeat arguments, where the tool asks for any."""
        return mcp_param_headers(self.headers, arguments) if self.headers else {}


def read_tools(
    definitions: Iterable[JsonValue], *, provider: str, modern: bool, known: Mapping[str, ServedTool]
) -> dict[str, ServedTool]:
    """Return the tools of a listing by name. What is no tool is left out, and of two of a name the second.

    `modern`: protocol 2026-07-28, whose headers repeat arguments. A tool of `known` that did not change is
    kept, with what was compiled for it.
    """
    tools: dict[str, ServedTool] = {}
    for definition in definitions:
        name = definition.get("name") if isinstance(definition, dict) else None
        if not isinstance(definition, dict) or not isinstance(name, str) or name in tools:
            continue
        if len(tools) == TOOLS_MAX:
            log.warning("server_tools_cut", provider=provider, tools_max=TOOLS_MAX)
            break
        old = known.get(name)
        tool = (
            old if old and old.definition == definition else _tool(name, definition, provider, modern=modern)
        )
        if tool is not None:
            tools[name] = tool
    return tools


def _tool(name: str, definition: JsonObject, provider: str, *, modern: bool) -> ServedTool | None:
    schema = definition.get("inputSchema")
    if modern and (reason := find_invalid_x_mcp_header(schema)) is not None:
        # the protocol forbids clients to use such a tool
        log.warning("server_tool_dropped", provider=provider, tool=name, reason=reason)
        return None
    output = definition.get("outputSchema")
    return ServedTool(
        name=name,
        definition=definition,
        input_schema=Schema(schema, where=f"{provider}/{name} inputSchema"),
        output_schema=None if output is None else Schema(output, where=f"{provider}/{name} outputSchema"),
        headers=x_mcp_header_map(schema) if modern else {},
    )
