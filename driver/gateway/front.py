"""What a client of MCP is answered: its lists, its reads, and its calls.

Part of `driver.gateway`; imports the SDK's server side, `driver.core` and its siblings.

The SDK handles eras, handshakes and everything that is not about us. `tools/call` is answered in a
middleware, with the provider's own JSON: its models would drop what they do not know, and make an error of
what they do not accept, though it was executed.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, cast
from uuid import uuid4

import anyio
import structlog
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import (
    SERVER_INFO_META_KEY,
    GetPromptRequestParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from driver.core.fields import traceparent_or_none
from driver.core.identity import is_id
from driver.gateway.answers import error
from driver.gateway.approvals import Approvals, Company, client_name
from driver.gateway.asking import Asked
from driver.gateway.calls import Calls
from driver.gateway.catalogue import Catalogue
from driver.gateway.instructions import INSTRUCTIONS
from driver.gateway.limits import GatewayLimits
from driver.gateway.names import parse
from driver.gateway.own import DEFINITIONS, OwnTools
from driver.gateway.passing import Passing
from driver.gateway.predecessors import TooManyOpen
from driver.gateway.turns import Turn
from driver.gateway.wire import ASKED_AT, COMMAND_ID, COMMAND_PREFIX, JOURNAL_ID, NAME
from driver.gateway.words import quoted
from store.records import CommandId, JournalId, JsonObject, JsonValue

NOTIFY_S: Final = 1.0
"""How long one client may take over a notification."""
NAMED_MAX: Final = 30
"""Tools that the answer to an unknown one names."""
LATEST_S: Final = 253_402_300_799
"""Seconds since the epoch: the last ones of the year 9999, which is where `datetime` ends."""

Context = ServerRequestContext[Any, Any]

log = structlog.stdlib.get_logger(__name__)


class Front:
    """One server for all clients. `turn_of` says who a request comes from."""

    def __init__(
        self,
        calls: Calls,
        catalogue: Catalogue,
        passing: Passing,
        own: OwnTools,
        approvals: Approvals,
        limits: GatewayLimits,
        turn_of: Callable[[Context], Turn],
    ) -> None:
        self._calls = calls
        self._catalogue = catalogue
        self._passing = passing
        self._own = own
        self._approvals = approvals
        self._limits = limits
        self._turn_of = turn_of
        self._bus = InMemorySubscriptionBus()
        self._sessions: OrderedDict[str, ServerSession] = OrderedDict()
        """Clients of the older era, who are told of changes unasked."""
        self.server: Final = self._server()

    def options(self) -> InitializationOptions:
        """Return what a client of the older era is told when it begins."""
        return self.server.create_initialization_options()

    def forget(self, key: str) -> None:
        """Tell a session that has ended nothing more."""
        self._sessions.pop(key, None)

    async def changed(self, lists: frozenset[str]) -> None:
        """Tell all clients that `tools`, `resources` or `prompts` are others by now."""
        events: dict[str, ServerEvent] = {
            "tools": ToolsListChanged(),
            "resources": ResourcesListChanged(),
            "prompts": PromptsListChanged(),
        }
        for name in sorted(lists):
            await self._bus.publish(events[name])
        for session in tuple(self._sessions.values()):
            with anyio.move_on_after(NOTIFY_S):
                await _tell(session, lists)

    def _server(self) -> "Server[Any]":
        server: Server[Any] = _Announcing(
            NAME,
            version=version("effectd"),
            title="effectd: tools with a journal",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=cast("Any", self._catalogue.schema),
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        handlers = (
            ("tools/list", PaginatedRequestParams, self._list_tools),
            ("resources/list", PaginatedRequestParams, self._list_resources),
            ("resources/templates/list", PaginatedRequestParams, self._list_templates),
            ("resources/read", ReadResourceRequestParams, self._read_resource),
            ("prompts/list", PaginatedRequestParams, self._list_prompts),
            ("prompts/get", GetPromptRequestParams, self._get_prompt),
        )
        for method, params, handler in handlers:
            server.add_request_handler(method, params, cast("Any", _in_its_era(handler)))
        # before the SDK's own, which would make a span of a call beside the one that the engine makes
        server.middleware.insert(0, self._handle)
        return server

    # ------------------------------------------------------------ lists and reads

    async def _list_tools(self, _ctx: Context, _params: object) -> JsonObject:
        return {"tools": [*DEFINITIONS, *await self._catalogue.tools()]}

    async def _list_resources(self, _ctx: Context, _params: object) -> JsonObject:
        return {"resources": await self._passing.resources()}

    async def _list_templates(self, _ctx: Context, _params: object) -> JsonObject:
        return {"resourceTemplates": await self._passing.templates()}

    async def _read_resource(self, _ctx: Context, params: ReadResourceRequestParams) -> JsonObject:
        return await self._passing.read(str(params.uri))

    async def _list_prompts(self, _ctx: Context, _params: object) -> JsonObject:
        return {"prompts": await self._passing.prompts()}

    async def _get_prompt(self, _ctx: Context, params: GetPromptRequestParams) -> JsonObject:
        arguments: JsonObject = dict(params.arguments or {})
        return await self._passing.prompt(params.name, arguments)

    # ------------------------------------------------------------ calls

    async def _handle(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer a call; let the SDK go on with everything else."""
        if ctx.request_id is None:
            return await call_next(ctx)
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not modern and ctx.method != "initialize":
            self._remember(self._turn_of(ctx).key, ctx.session)
        if ctx.method != "tools/call":
            return await call_next(ctx)
        result = await self._call(ctx, self._turn_of(ctx))
        return self._stamped(result) if modern else result

    def _remember(self, key: str, session: ServerSession) -> None:
        self._sessions[key] = session
        self._sessions.move_to_end(key)
        while len(self._sessions) > self._limits.sessions_max:
            self._sessions.popitem(last=False)

    async def _call(self, ctx: Context, turn: Turn) -> JsonObject:
        params = cast("JsonObject", dict(ctx.params or {}))
        name, arguments = params.get("name"), params.get("arguments")
        arguments = {} if arguments is None else arguments
        if not isinstance(name, str) or not isinstance(arguments, dict):
            message = "a call has a name, and its arguments are an object"
            return error(f"invalid_arguments: nothing was executed; {message}.", "invalid_arguments")
        try:
            speaker = await turn.introduced()
        except TooManyOpen as found:
            return error(f"refused: nothing was executed. {found}.", "refused")
        own = await self._own.answer(name, arguments, speaker)
        if own is not None:
            return own
        tool = await self._catalogue.resolve(name)
        decided = None if tool is None else await self._approvals.take(params, speaker, client_name(ctx))
        command_id, asked_at, before = _identity(params, relayed=speaker.relayed)
        asked = Asked(
            command_id=decided or command_id,
            speaker=speaker,
            tool=str(tool or parse(name) or name),
            arguments=arguments,
            asked_at=asked_at,
            delivered_to=before,
            traceparent=_traceparent(params),
        )
        if tool is None:
            # what is asked about again may have been executed while there was such a tool
            given = await self._calls.recall(asked)
        else:
            company = Company(ctx, speaker, self._approvals, self._limits)
            given = await self._calls.answer(asked, company, gone=lambda: turn.gone)
        if given is None:
            return self._unknown(name)
        if given.about is not None:
            turn.answers(command_id, given.about)
        return given.result

    def _unknown(self, name: str) -> JsonObject:
        known = self._catalogue.names
        more = f" and {len(known) - NAMED_MAX} more" if len(known) > NAMED_MAX else ""
        named = ", ".join(known[:NAMED_MAX]) or "none"
        wanted = repr(quoted(name))
        text = f"unknown_tool: there is no tool {wanted}; nothing was executed. There are: {named}{more}."
        return error(text, "unknown_tool")

    def _stamped(self, result: JsonObject) -> JsonObject:
        """What the newer era wants of each result, where the provider's own does not have it."""
        meta = result.get("_meta")
        info: JsonObject = {SERVER_INFO_META_KEY: cast("JsonValue", self.server.server_info_stamp)}
        merged: JsonObject = {**info, **(meta if isinstance(meta, dict) else {})}
        return {"resultType": "complete", **result, "_meta": merged}


class _Announcing(Server[Any]):
    """The SDK's server, saying in every session, whoever opens it, that its lists may change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        return super().create_initialization_options(
            notification_options or _CHANGES, experimental_capabilities, extensions
        )


_CHANGES: Final = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


def _in_its_era(handler: Callable[[Context, Any], Awaitable[JsonObject]]) -> Callable[..., Any]:
    """What the newer era wants of each list and read, beside what is in it."""

    async def handle(ctx: Context, params: Any) -> JsonObject:  # noqa: ANN401 - each has its own
        result = await handler(ctx, params)
        return {**_UNCACHED, **result} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else result

    return handle


_UNCACHED: Final[JsonObject] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def _identity(
    params: JsonObject, *, relayed: bool
) -> tuple[CommandId, datetime | None, tuple[JournalId, ...]]:
    """Return the id of a call: the one that its relay minted, else one of our own.

    And when it was asked first, and of which journal, where it is asked about again.
    """
    meta = params.get("_meta")
    ours = meta if relayed and isinstance(meta, dict) else {}
    minted = ours.get(COMMAND_ID)
    if not isinstance(minted, str) or not minted.startswith(COMMAND_PREFIX) or not is_id(minted):
        return CommandId(f"{COMMAND_PREFIX}{uuid4().hex}"), None, ()
    if ASKED_AT not in ours:
        return CommandId(minted), None, ()
    journal_id = ours.get(JOURNAL_ID)
    before = (JournalId(journal_id),) if isinstance(journal_id, str) and is_id(journal_id) else ()
    return CommandId(minted), _moment(ours[ASKED_AT]), before


def _traceparent(params: JsonObject) -> str | None:
    """Return what the agent's own span is, where it says so as MCP has it."""
    meta = params.get("_meta")
    said = meta.get("traceparent") if isinstance(meta, dict) else None
    return traceparent_or_none(said) if isinstance(said, str) else None


def _moment(value: JsonValue) -> datetime:
    """Return when a call was asked first; long ago where a relay says nothing that can be a time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LATEST_S:
        return _LONG_AGO
    return datetime.fromtimestamp(value, UTC)


_LONG_AGO: Final = datetime.fromtimestamp(0, UTC)


async def _tell(session: ServerSession, lists: frozenset[str]) -> None:
    if "tools" in lists:
        await session.send_tool_list_changed()
    if "resources" in lists:
        await session.send_resource_list_changed()
    if "prompts" in lists:
        await session.send_prompt_list_changed()
